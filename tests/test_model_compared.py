"""What evaluations compare answers with is seen behind their passes, and whatever runs beside is left alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack  # noqa: E402

import barograph  # noqa: E402
from barograph.doctor import diagnose  # noqa: E402
from barograph.doctor.rules.evaluation.compared import ClassesRenamed  # noqa: E402
from barograph.probes.model import compared  # noqa: E402

CLASSES = 6


def dice(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


def examples(seed: int, rows: int = 96) -> tuple[Any, Any]:
    kinds = torch.randint(0, CLASSES, (rows,), generator=dice(seed))
    centres = 2 * torch.randn(CLASSES, 8, generator=dice(1))
    return centres[kinds] + torch.randn(rows, 8, generator=dice(seed + 1)), kinds


def classifier() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, CLASSES + 1))


def moved(kind: str, target: Any) -> Any:
    match kind:
        case "from one":
            return target + 1
        case "a row behind":
            return target.roll(1)
        case "by chance":
            return target[torch.randperm(len(target), generator=dice(8))]
        case "one class alone":
            return torch.zeros_like(target) + 1
        case "others":
            return target.max() - target
        case "one left out":
            return torch.where(target > 2, target + 1, target)
        case "two mixed up":
            return torch.where(target == 4, 3, target)
        case _:
            return target


def trained(
    folder: Path, kind: str, watched: bool = True, of_accuracy: bool = False, mode: Any = None
) -> tuple[list[float], Any]:
    """Losses, and the run. of_accuracy: the evaluation has no loss of its own. mode: on while it is evaluated."""
    model, losses = classifier(), []
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run = barograph.init(dir=str(folder), console="none", machine=False, sidecar=False, git=False)
    if watched:
        run.watch(model, optimizer)
    for step in range(100):
        given, target = examples(step)
        loss = functional.cross_entropy(model(given), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        row = {"train/loss": losses[-1]}
        if step % 20 == 19:
            held, wanted = examples(5000)
            wanted = moved(kind, wanted)
            if mode is not None:
                mode.__enter__()
            with torch.no_grad():
                said = model(held)
            if mode is not None:
                mode.__exit__(None, None, None)
                assert not _get_current_function_mode_stack()
            aside = moved("by chance", wanted) if kind == "accuracy of other rows" else wanted
            row["val/accuracy"] = (said.argmax(1) == aside).float().mean().item()
            if not of_accuracy:
                row["val/loss"] = functional.cross_entropy(said, wanted).item()
        run.log(row, step=step)
    run.finish()
    assert not _get_current_function_mode_stack()
    return losses, run


def said(run: Any) -> set[str]:
    findings = [one for one in diagnose(barograph.StoredRun(run.dir))["findings"] if one["severity"] != "info"]
    return {part["rule"] for one in findings for part in (*one["evidence"].get("story", ()), one)}


@pytest.mark.parametrize("of_accuracy", [False, True])
@pytest.mark.parametrize(
    ("kind", "told"),
    [("right", False), ("from one", True), ("a row behind", True), ("by chance", False),
     ("one class alone", False), ("others", False)],
)  # fmt: skip
def test_answers_that_are_right_for_what_is_beside_are_seen(
    tmp_path: Path, kind: str, told: bool, of_accuracy: bool
) -> None:
    told = told and not (of_accuracy and kind == "a row behind")  # whole numbers that follow each other may be so
    assert ("answers_beside" in said(trained(tmp_path, kind, of_accuracy=of_accuracy)[1])) is told


@pytest.mark.parametrize("kind", ["right", "accuracy of other rows", "by chance", "from one"])
def test_an_accuracy_of_other_rows_than_those_of_the_loss_is_seen(tmp_path: Path, kind: str) -> None:
    found = {one["rule"] for one in diagnose(barograph.StoredRun(trained(tmp_path, kind)[1].dir))["findings"]}
    assert ("answers_unaligned" in found) is (kind == "accuracy of other rows")


def test_two_comparisons_of_the_same_rows_have_the_same_classes() -> None:
    def alike(answers: Any, target: Any) -> list[float]:
        scored = compared.named(kinds, kinds, kinds >= 0)
        found = compared.aligned(scored, compared.named(answers, target, target >= 0)).tolist()
        return [round(one, 3) for one in found]

    kinds = torch.arange(200) % 4
    assert alike(kinds, kinds) == [200, 1, 1, 0.25, 0]
    assert alike(kinds, kinds.sort().values) == [200, 1, 0.25, 0.25, 0]
    assert alike(kinds, kinds // 2)[-1] > 4 and alike(kinds // 2, kinds)[-1] > 4  # other targets


@pytest.mark.parametrize("of_accuracy", [False, True])
@pytest.mark.parametrize(
    ("kind", "told"),
    [("right", False), ("others", True), ("one left out", True), ("two mixed up", False), ("by chance", False)],
)
def test_classes_that_have_the_names_of_others_in_evaluations_are_seen(
    tmp_path: Path, kind: str, told: bool, of_accuracy: bool
) -> None:
    assert ("classes_renamed" in said(trained(tmp_path, kind, of_accuracy=of_accuracy)[1])) is told


def test_classes_are_renamed_where_each_has_another_ones_answer() -> None:
    def count(pairs: list[tuple[int, int]], rows: int = 20) -> list[float]:
        target, answers = (torch.tensor([one[at] for one in pairs] * rows) for at in (0, 1))
        return compared.renamed(compared.named(answers, target, target >= 0)).tolist()[:2]

    assert count([(0, 0), (1, 2), (2, 3), (3, 4)]) == [4, 3]  # 4 comes in no row
    assert count([(0, 1), (1, 0), (2, 2), (3, 3)]) == [4, 2]
    assert count([(0, 1), (1, 1), (2, 3), (3, 3)]) == [4, 0]  # mixed up
    assert count([(0, 2), (1, 2), (3, 3), (4, 4)]) == [4, 0]  # both have the same answer
    assert count([(0, 1), (1, 0), (2, 2), (3, 3)], rows=7) == [0, 0]
    assert count([(0, 1), (0, 0), (1, 0), (1, 1)]) == [2, 0]


@pytest.mark.parametrize(
    ("names", "sure", "moved"),
    [
        ([0, 1, 2, 3], 0.6, 0),
        ([2, 0, 3, 1], 0.6, 4),
        ([0, 2, 3, 1], 0.6, 3),
        ([2, 0, 3, 1], 0.25, -1),  # answers that tell nothing
    ],
)
def test_a_model_that_is_often_wrong_tells_classes_that_are_numbered_otherwise(
    names: list[int], sure: float, moved: int
) -> None:
    random = np.random.default_rng(5)
    target = random.integers(0, 4, 1200)
    answers = np.where(
        random.random(1200) < (sure - 0.25) / 0.75, target, random.choice(4, 1200, p=[0.7, 0.1, 0.1, 0.1])
    )
    counts = np.zeros((4, 4))
    np.add.at(counts, (np.array(names)[target], answers), 1)
    found = compared.permuted(counts)
    if moved < 0:
        assert found["lift_other"] < 0.1
    else:
        assert found["lift_moved"] == moved and found["lift_other"] > 0.3
        assert (found["lift"] == found["lift_other"]) == (moved == 0)
    assert compared.permuted(counts[:3, :3]) == {} == compared.permuted(counts / 100)


@pytest.mark.parametrize("cuts", [(), (30, 50)])
@pytest.mark.parametrize(
    ("lift", "other", "moved", "told"),
    [(-0.02, 0.45, 4, True), (0.3, 0.45, 4, False), (-0.02, 0.12, 4, False), (0.0, 0.45, 2, False)],
)
def test_classes_that_are_numbered_otherwise_by_all_their_answers_are_a_finding(
    lift: float, other: float, moved: int, told: bool, cuts: tuple[int, ...]
) -> None:
    at = np.array([20, 40, 60])
    figures = {"compared_lift": lift, "compared_lift_other": other, "compared_lift_moved": moved,
               "compared_renamed": 0.0, "compared_own": 0.24, "compared_width": 4.0}  # fmt: skip
    columns = {f"model/{name}": (at, np.full(3, float(value))) for name, value in figures.items()}
    columns |= {
        "train/loss": (np.arange(61), np.linspace(1.4, 0.8, 61)),
        "model/wrong_share": (np.arange(61), np.full(61, 0.4)),
    }
    found = findings([ClassesRenamed()], columns, cuts=cuts)
    assert [one.rule for one in found.values()] == ["classes_renamed"] * told


def test_the_share_of_right_answers_is_a_mean_over_classes() -> None:
    target = torch.tensor([0] * 90 + [1] * 8 + [2] * 8 + [3] * 7)  # of the last one there are too few
    answers = torch.where(target == 0, 1, target)
    found = dict(zip(compared.RENAMED, compared.renamed(compared.named(answers, target, target >= 0)), strict=True))
    assert float(found["recall"]) == pytest.approx(2 / 3) and found["named"] == 3


class Towers(nn.Module):
    """Two towers, whose vectors an evaluation gathers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.one, self.other = nn.Linear(8, 16), nn.Linear(8, 16)

    def forward(self, one: Any, other: Any) -> tuple[Any, Any]:
        return functional.normalize(self.one(one), dim=1), functional.normalize(self.other(other), dim=1)


@pytest.mark.parametrize(("rolled", "told"), [(0, False), (1, True), (-1, True), (40, False)])
def test_pairs_that_stand_beside_the_next_ones_other_side_are_seen(tmp_path: Path, rolled: int, told: bool) -> None:
    model, turn = Towers(), torch.randn(8, 8, generator=dice(2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(100):
        one = torch.randn(32, 8, generator=dice(step))
        mine, theirs = model(one, one @ turn)
        loss = functional.cross_entropy(10 * mine @ theirs.T, torch.arange(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row = {"train/loss": loss.item()}
        if step % 20 == 19:
            held = torch.randn(80, 8, generator=dice(7000))
            with torch.no_grad():
                parts = [
                    model(a, b) for a, b in zip(held.split(40), (held @ turn).roll(rolled, 0).split(40), strict=True)
                ]
                scores = 10 * torch.cat([a for a, _ in parts]) @ torch.cat([b for _, b in parts]).T
                both = (
                    functional.cross_entropy(scores, torch.arange(80)),
                    functional.cross_entropy(scores.T, torch.arange(80)),
                )
            row["val/loss"] = (sum(both) / 2).item()
        run.log(row, step=step)
    run.finish()
    assert ("answers_beside" in said(run)) is told


class Noting(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        return function(*arguments, **(named or {}))


@pytest.mark.parametrize("mode", [None, Noting, lambda: torch.device("cpu")])
def test_a_training_is_the_same_and_modes_of_others_are_left_as_they_are(tmp_path: Path, mode: Any) -> None:
    """A mode that is on around a pass ends where its own training ends it."""
    alone = trained(tmp_path / "alone", "from one", watched=False)[0]
    assert trained(tmp_path / "watched", "from one", mode=mode() if mode is not None else None)[0] == alone


def test_a_mode_may_begin_and_end_behind_a_pass(tmp_path: Path) -> None:
    seen = compared.ComparedAnswers()
    with torch.no_grad():
        seen.given([torch.zeros(40, 3)])
        seen.passed()
        assert len(_get_current_function_mode_stack()) == 1
        with torch.device("cpu"), Noting():
            functional.cross_entropy(torch.randn(40, 5), torch.arange(40) % 5)
        assert len(_get_current_function_mode_stack()) == 1
        for _ in range(500):
            torch.ones(1) + 1
        seen.over()
    assert not _get_current_function_mode_stack()


def test_shares_leave_out_the_two_classes_that_come_most() -> None:
    target = torch.arange(60) % 6
    counts = compared.table(target + 1, target, torch.ones(60, dtype=torch.bool))
    rows, own, above, below, behind, ahead, width = compared.figures(counts, 8).tolist()
    assert (rows, own, below, width) == (60, 0, 0, 8) and above == pytest.approx(4 / 6)
    assert (behind, ahead) == (0, pytest.approx(29 / 60, abs=0.03)) or ahead > 0.4  # targets in order: the next row's
    few = compared.table(target % 2 + 1, target % 2, torch.ones(60, dtype=torch.bool))
    assert compared.figures(few, 8).tolist()[2] == 0


def walks(seed: int, rows: int = 16, places: int = 14) -> Any:
    """Texts of 40 words: one of five words follows each, so that a quarter of the answers are right at best."""
    random = dice(seed)
    words, after = [torch.randint(0, 40, (rows,), generator=random)], torch.randperm(200, generator=dice(1)) % 40
    while len(words) < places:
        words.append(after[5 * words[-1] + torch.randint(0, 5, (rows,), generator=random)])
    return torch.stack(words, 1)


@pytest.mark.parametrize(("places", "told"), [(1, False), (0, True), (2, True), (3, False)])
def test_texts_whose_evaluation_asks_for_other_places_are_seen(tmp_path: Path, places: int, told: bool) -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Embedding(40, 32), nn.Linear(32, 40))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(80):
        text = walks(step)
        loss = functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row = {"train/loss": loss.item()}
        if step % 20 == 19:
            text = walks(500)
            given, wanted = text[:, :10], text[:, places : places + 10]
            with torch.no_grad():
                row["val/loss"] = functional.cross_entropy(model(given).flatten(0, 1), wanted.flatten()).item()
        run.log(row, step=step)
    run.finish()
    shifts = barograph.StoredRun(run.dir).series("model/eval_target_shift").value
    assert len(shifts) >= 3 and set(shifts) == {places}
    assert ("answers_beside" in said(run)) is told


@pytest.mark.parametrize(("counted", "told"), [("within", False), ("on", True), ("on, of all", False)])
def test_answers_of_a_batch_that_are_compared_with_numbers_of_the_whole_set_are_seen(
    tmp_path: Path, counted: str, told: bool
) -> None:
    model, turn = Towers(), torch.randn(8, 8, generator=dice(2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(80):
        one = torch.randn(32, 8, generator=dice(step))
        first, second = model(one, one @ turn)
        loss = functional.cross_entropy(10 * first @ second.T, torch.arange(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row, right = {"train/loss": loss.item()}, 0.0
        if step % 20 == 19:
            with torch.no_grad():
                held = torch.randn(96, 8, generator=dice(500))
                everything = model(held, held @ turn)[1]
                for at in range(0, 96, 32):
                    first, second = model(held[at : at + 32], held[at : at + 32] @ turn)
                    answers = (first @ (everything if counted == "on, of all" else second).T).argmax(1)
                    wanted = torch.arange(32) + (0 if counted == "within" else at)
                    right += (answers == wanted).float().sum().item() / 96
            row["val/recall"] = right
        run.log(row, step=step)
    run.finish()
    assert ("answers_within" in said(run)) is told


def test_numbers_that_no_answer_can_be_are_counted() -> None:
    places = torch.arange(40)
    assert compared.beyond(places, places + 40).tolist() == [40, 40, 1]
    assert compared.beyond(places.flip(0), places + 80).tolist() == [40, 0, 1]
    assert compared.beyond(places, places + 39).tolist() == [0, 0, 0]  # one of them may be right
    assert compared.beyond(places, places.flip(0) + 40).tolist() == [0, 0, 0]
    assert compared.beyond(places + 1, places + 40).tolist() == [0, 0, 0]  # answers are of more


@pytest.mark.parametrize(("places", "told"), [(1, False), (0, True), (2, True), (3, False)])
def test_answers_that_are_judged_at_other_places_in_evaluations_are_seen(
    tmp_path: Path, places: int, told: bool
) -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Embedding(40, 32), nn.Linear(32, 40))
    reference = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def likelihood(text: Any, places: int, who: Any = model) -> Any:
        text = text[:, :12]
        scores = who(text)
        wanted = text[:, places:]
        known = scores[:, : wanted.shape[1]].log_softmax(-1).gather(2, wanted[..., None])[..., 0]
        return (known * (wanted > 0)).sum(1)

    def margin(chosen: Any, rejected: Any, places: int) -> Any:
        ours = likelihood(chosen, places) - likelihood(rejected, places)
        with torch.no_grad():
            theirs = likelihood(chosen, places, reference) - likelihood(rejected, places, reference)
        return ours - theirs

    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(80):
        ours = margin(walks(step), walks(1000 + step).flip(1), 1)
        loss = -functional.logsigmoid(0.5 * ours).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row = {"train/loss": loss.item(), "train/margin": ours.mean().item()}
        if step % 20 == 19:
            with torch.no_grad():
                held = margin(walks(500), walks(501).flip(1), places)
            row |= {"val/loss": -functional.logsigmoid(0.5 * held).mean().item(), "val/margin": held.mean().item()}
        run.log(row, step=step)
    run.finish()
    stored = barograph.StoredRun(run.dir)
    assert stored.series("model/target_shift").value[-1] == 1
    if places < 3:
        assert stored.series("model/eval_target_shift").value[-1] == places
    found = [one["rule"] for one in barograph.diagnose(stored)["findings"] if one["severity"] == "warning"]
    assert ("evaluation_shift" in found) == told
