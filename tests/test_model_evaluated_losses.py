"""What the cross-entropies of an evaluation come to is seen, however they are logged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import barograph  # noqa: E402
from barograph.doctor import diagnose  # noqa: E402
from barograph.probes.model.evaluated_losses import EvaluatedLosses, fields_of  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402

SCORES, TARGETS = torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(1)), torch.arange(24).view(2, 12) % 5
BATCHES = 6
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "rows added up": [("sum",)],
    "rows averaged": [("detach",), ("float",), ("mean",)],
    "rows weighed": [("mul", torch.arange(12)), ("sum",)],
    "rows left out": [("__getitem__", slice(3)), ("mean",)],
    "rows by rows": [("sum", 0)],
}


def recorded(seen: EvaluatedLosses) -> dict[str, float]:
    current = ModelRound(1, frozenset())
    seen.put(current)
    current.send()
    return current.figures | fields_of(current.numbers())


def of_calls(kind: str) -> dict[str, float]:
    """Figures of two passes with a call behind each."""
    seen = EvaluatedLosses()
    for batch in range(2):
        scores, target = SCORES[batch], TARGETS[batch].clone()
        target[: 4 * batch] = -100
        function, scores = functional.cross_entropy, scores
        arguments, named = [scores, target], dict[str, Any]()
        if kind == "sum" or kind.startswith("rows"):
            named["reduction"] = "sum" if kind == "sum" else "none"
        elif kind == "log":
            function, arguments[0] = functional.nll_loss, scores.log_softmax(1)
        elif kind == "weighed":
            arguments.append(torch.ones(5))
        elif kind == "smoothed":
            named["label_smoothing"] = 0.1
        elif kind == "shares":
            arguments[1] = functional.one_hot(target.clamp(0), 5).float()
        elif kind == "trained":
            arguments[0] = scores.clone().requires_grad_()
        result = function(*arguments, **named)
        seen.passed(kind != "unseen" or batch == 0)
        for _ in range(1 + (kind == "two")):
            seen.gave(function, arguments, named, result)
        if kind == "mean":
            result.mul_(3)  # what becomes of it afterwards
        elif kind.startswith("rows") and kind != "rows":
            for name, *more in ROWS[kind]:
                before, result = result, getattr(torch.Tensor, name)(result, *more)
                seen.gave(getattr(torch.Tensor, name), [before, *more], {}, result)
    return recorded(seen)


@pytest.mark.parametrize("kind", ["mean", "sum", "log", "rows added up", "rows averaged"])
def test_a_mean_over_targets_and_one_over_calls_are_kept(kind: str) -> None:
    each = [functional.cross_entropy(SCORES[0], TARGETS[0]), functional.cross_entropy(SCORES[1, 4:], TARGETS[1, 4:])]
    first, second = (one.item() for one in each)
    found = of_calls(kind)
    assert found["evaluated_loss"] == pytest.approx((12 * first + 8 * second) / 20, rel=1e-5)
    assert found["evaluated_loss_even"] == pytest.approx((first + second) / 2, rel=1e-5)
    assert found["evaluated_loss_least"] == pytest.approx(min(first, second), rel=1e-5)
    assert found["evaluated_loss_most"] == pytest.approx(max(first, second), rel=1e-5)
    assert (found["evaluated_targets"], found["evaluated_losses"]) == (20, 2)


@pytest.mark.parametrize(
    "kind",
    ["rows", "rows weighed", "rows left out", "rows by rows", "weighed", "smoothed", "shares", "two", "unseen",
     "trained"],
)  # fmt: skip
def test_nothing_is_told_of_what_has_a_mean_of_its_own(kind: str) -> None:
    assert of_calls(kind) == {}


def test_a_pass_behind_which_too_much_comes_counts_where_its_loss_was_seen() -> None:
    seen = EvaluatedLosses()
    loss = functional.cross_entropy(SCORES[0], TARGETS[0])
    for late in (False, True):
        seen.passed(True)
        if late:
            seen.ended()
        seen.gave(functional.cross_entropy, [SCORES[0], TARGETS[0]], {}, loss)
        if late:
            assert recorded(seen) == {}
        else:
            seen.ended()
            assert recorded(seen)["evaluated_loss"] == pytest.approx(loss.item())


def test_an_evaluation_without_targets_has_no_loss() -> None:
    seen, none = EvaluatedLosses(), torch.full((12,), -100)
    seen.passed(True)
    seen.gave(functional.cross_entropy, [SCORES[0], none], {}, functional.cross_entropy(SCORES[0], none))
    assert recorded(seen).keys() == {"evaluated_losses", "evaluated_loss", "evaluated_loss_even", "evaluated_targets"}


def trained(folder: Path, kind: str, by_rows: bool) -> Any:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 6))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run = barograph.init(dir=str(folder), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    centres = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))

    def examples(seed: int, rows: int) -> tuple[Any, Any]:
        dice = torch.Generator().manual_seed(seed)
        kinds = torch.randint(0, 6, (rows,), generator=dice)
        return centres[kinds] + torch.randn(rows, 8, generator=dice), kinds

    for step in range(72):
        given, target = examples(step, 64)
        loss = functional.cross_entropy(model(given), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row = {"train/loss": loss.item()}
        if step % 12 == 11:
            with torch.no_grad():
                each = [
                    functional.cross_entropy(model(one), wanted, reduction="none" if by_rows else "mean").mean().item()
                    for one, wanted in (examples(5000 + batch, 32) for batch in range(BATCHES))
                ]
            row["val/loss"] = sum(each) / {"mean": BATCHES, "summed": 1, "twice": BATCHES**2, "rows": 192}[kind]
        run.log(row, step=step)
    run.finish()
    return run


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("kind", ["mean", "summed", "twice", "rows"])
def test_a_logged_loss_that_is_not_divided_or_too_often_is_told_of(tmp_path: Path, kind: str, by_rows: bool) -> None:
    run = trained(tmp_path, kind, by_rows)
    stored = barograph.StoredRun(run.dir)
    seen, logged = stored.series("model/evaluated_loss"), stored.series("val/loss")
    assert list(seen.step) == [12, 24, 36, 48, 60, 72]
    if kind == "mean":
        assert list(seen.value) == pytest.approx(list(logged.value), rel=1e-5)
    findings = [one for one in diagnose(stored)["findings"] if one["severity"] != "info"]
    told = {part["rule"] for one in findings for part in (*one["evidence"].get("story", ()), one)}
    assert ("evaluation_multiplied" in told) is (kind != "mean")
