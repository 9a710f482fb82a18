"""Numbers that are not finite, gradients that are clipped or cleared, weights that are written: around the step."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rule_curves

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.gradient.origin import NonFiniteOrigin

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model.backward import Sentinel  # noqa: E402
from barograph.probes.model.finite import figures  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402
from barograph.probes.model.written import Written  # noqa: E402

RULE = torch.randn(12, 6, generator=torch.Generator().manual_seed(3))


def net() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 6))


def cross_entropy(output: Any, targets: Any, step: int) -> Any:
    return functional.cross_entropy(output, targets)


def train(folder: Path, steps: int = 120, **how: Any) -> dict[str, dict[str, Any]]:
    """{rule: finding} of a small training that can be learnt; of stories what stands there."""
    torch.set_num_threads(1)
    model, dice = how.get("model") or net(), torch.Generator().manual_seed(1)
    optimizer = how.get("kind", torch.optim.SGD)(model.parameters(), lr=how.get("lr", 0.1))
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False,
        config=how.get("config", {}),
    )  # fmt: skip
    run.watch(model, optimizer)
    for step in range(steps):
        optimizer.zero_grad()
        whole = 0.0
        kept = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for part in range(how.get("parts", 1)):
            inputs = torch.randn(32, 12, generator=dice)
            loss = how.get("loss", cross_entropy)(model(inputs), (inputs @ RULE).argmax(1), step)
            if part and how.get("clears"):
                optimizer.zero_grad()
            (loss / how.get("parts", 1)).backward()
            whole += loss.item() / how.get("parts", 1)
            for total, parameter in zip(kept, model.parameters(), strict=True):
                total += parameter.grad
        if how.get("by_hand"):
            for total, parameter in zip(kept, model.parameters(), strict=True):
                parameter.grad = total
        if "clip" in how:
            nn.utils.clip_grad_norm_(model.parameters(), how["clip"])
        optimizer.step()
        how.get("after", lambda model, step: None)(model, step)
        run.log({"loss": whole, "lr": how.get("lr", 0.1)}, step=step)
    run.finish()
    findings = diagnose(barograph.read(str(run.dir))[0])["findings"]
    return {part["rule"]: part for item in findings for part in (*item["evidence"].get("story", ()), item)}


def test_nothing_is_recorded_of_a_step_in_which_all_is_finite() -> None:
    assert figures(3.0, -2.0) == {}
    nan = float("nan")
    assert figures(3.0, nan) == {"broken_output": 0.0, "broken_gradient": 1.0, "output_size": 3.0}
    assert figures(float("inf"), 0.0) == {"broken_output": 1.0, "broken_gradient": 0.0}


def logarithm_of_zero(output: Any, targets: Any, step: int) -> Any:
    chances = output.softmax(1) * (1.0 if step < 70 else (output.softmax(1) > 2))
    return -chances[range(len(targets)), targets].log().mean()


def root_at_zero(output: Any, targets: Any, step: int) -> Any:
    loss = functional.cross_entropy(output, targets)
    return loss + (output - output.detach()).square().sum().sqrt() if step >= 70 else loss


@pytest.mark.parametrize(
    ("loss", "cause"),
    [(logarithm_of_zero, "loss not finite by itself"), (root_at_zero, "non-finite gradient: of the loss")],
)
def test_nan_that_the_loss_makes_is_not_laid_to_the_learning_rate(tmp_path: Path, loss: Any, cause: str) -> None:
    found = train(tmp_path, loss=loss)
    assert found["non_finite_origin"]["step"] == 70
    heads = [item for item in found.values() if "causes" in item and item["severity"] == "critical"]
    assert heads and all(item["causes"][0].startswith(cause) for item in heads)


def test_nan_that_a_layer_makes_on_the_way_back_is_not_laid_to_the_loss(tmp_path: Path) -> None:
    model, steps = net(), []

    def hook(gradient: Any) -> Any:
        steps.append(0)
        return gradient * float("nan") if len(steps) == 71 else gradient

    model[0].weight.register_hook(hook)
    found = train(tmp_path, model=model)
    assert found["non_finite_origin"]["step"] == 70
    assert "1 of 4 parameters" in found["non_finite_origin"]["message"]
    heads = [item for item in found.values() if "causes" in item and item["severity"] == "critical"]
    assert heads and all(item["causes"][0].startswith("non-finite gradient") for item in heads)


def test_nan_in_a_layer_that_is_not_looked_at_is_known_by_its_weights(tmp_path: Path) -> None:
    model, steps = net(), []

    def hook(gradient: Any) -> Any:
        steps.append(0)
        return gradient * (float("nan") if len(steps) == 71 else 1.0)

    model[2].weight.register_hook(hook)
    found = train(tmp_path, model=model)
    assert found["non_finite_origin"]["step"] == 70 and "of 1 parameters" in found["non_finite_origin"]["message"]
    heads = [item for item in found.values() if "causes" in item and item["severity"] == "critical"]
    assert heads and all(item["causes"][0].startswith("non-finite gradient: of a layer") for item in heads)


@pytest.mark.parametrize(
    ("figures", "cause"),
    [
        ({"broken_output": 1, "broken_weights": 2}, "non-finite gradient: of a layer"),
        ({"broken_output": 1, "broken_weights": 2, "half_parameters": 6}, "fp16 overflow"),
        ({"broken_output": 1, "broken_weights": 2, "finite_until": 39}, "non-finite gradient: of a layer"),
        ({"broken_output": 1, "broken_weights": 2, "finite_until": 20}, ""),  # nobody looked at the step before
        ({"broken_output": 1, "broken_weights": 2, "finite_until": 70}, ""),  # nor here, behind a rewind
        ({"broken_output": 1, "broken_weights": 0}, ""),  # the pass left its range
        ({"broken_output": 1}, ""),
        ({"broken_output": 1, "broken_weights": 2, "loss_scale": 1024.0}, ""),
        ({"broken_output": 1, "broken_weights": 2, "non_finite_inputs": 1}, ""),
    ],
)
def test_an_output_that_is_not_finite_is_no_target_that_is_not(figures: dict[str, float], cause: str) -> None:
    steps = np.arange(60)
    columns: Any = {"loss": (steps, np.where(steps < 40, 2.0 - 0.01 * steps, np.nan))}
    columns |= {f"model/{name}": (steps[40:41], [float(value)]) for name, value in figures.items()}
    early = {"output_size": 0.5, "loss_error": 1.0}  # of an earlier look
    columns |= {f"model/{name}": (steps[:1], [value]) for name, value in early.items()}
    columns["model/broken_gradient"] = steps[40:43], np.ones(3)
    found = rule_curves.found([NonFiniteOrigin()], columns)
    assert len(found) == bool(cause)
    assert all(one.causes[0].startswith(cause) and one.step == 39 for one in found)


@pytest.mark.parametrize(("until", "first", "told"), [(0, 1, True), (0, 0, False), (-1, 1, False), (0, 2, False)])
def test_the_first_step_may_have_no_number_yet(until: int, first: int, told: bool) -> None:
    steps = np.arange(first, 40)
    columns: Any = {"loss": (steps, np.where(steps < 2, 2.0, np.nan))}
    figures = {"broken_output": 1.0, "broken_weights": 27.0, "half_parameters": 28.0, "finite_until": float(until)}
    columns |= {f"model/{name}": (steps[steps == 2], [value]) for name, value in figures.items()}
    columns["model/broken_gradient"] = np.arange(2, 5), np.ones(3)
    found = rule_curves.found([NonFiniteOrigin()], columns)
    assert [one.causes[0].split(":")[0] for one in found] == ["fp16 overflow"] * told


def spoiled(parameters: Any, lr: float) -> Any:
    """An optimizer whose 71st step finds a NaN in the gradient of one weight behind the first layer."""
    optimizer, steps = torch.optim.SGD(parameters, lr=lr), []

    def before(optimizer: Any, *_: Any) -> None:
        steps.append(0)
        if len(steps) == 71:
            optimizer.param_groups[0]["params"][2].grad.view(-1)[0] = float("nan")

    optimizer.register_step_pre_hook(before)
    return optimizer


def test_one_weight_that_a_step_made_nan_is_laid_neither_to_the_rate_nor_to_the_targets(tmp_path: Path) -> None:
    def square(output: Any, targets: Any, step: int) -> Any:
        return (output - functional.one_hot(targets, 6)).square().mean()

    found = train(tmp_path, kind=spoiled, loss=square)
    assert found["non_finite_origin"]["step"] == 70 and "of 1 parameters" in found["non_finite_origin"]["message"]
    heads = [item for item in found.values() if "causes" in item and item["severity"] == "critical"]
    assert heads and all(item["causes"][0].startswith("non-finite gradient") for item in heads)
    assert "double_softmax" not in found


def test_where_gradients_are_clipped_nobody_knows_whether_the_loss_made_nan_or_a_layer(tmp_path: Path) -> None:
    found = train(tmp_path, loss=root_at_zero, clip=1.0, config={"grad_clip": 1.0})
    assert found["non_finite_origin"]["causes"][0].startswith("non-finite gradient: of the loss")


def test_where_the_trainer_hides_nan_the_loss_of_the_step_is_not_told(tmp_path: Path) -> None:
    found = train(tmp_path, loss=root_at_zero, config={"logging_nan_inf_filter": True})["non_finite_origin"]
    assert found["causes"][0].startswith("loss not finite by itself, or its gradient")
    assert "The gradients of step 70 are not finite, though" in found["message"]


def test_a_training_that_left_its_range_is_not_laid_to_the_loss(tmp_path: Path) -> None:
    def square(output: Any, targets: Any, step: int) -> Any:
        return (output - functional.one_hot(targets, 6)).square().mean()

    found = train(tmp_path, loss=square, lr=60.0)
    assert "non_finite_loss" in found and "non_finite_origin" not in found


def test_weights_that_are_reset_are_found_since_the_step(tmp_path: Path) -> None:
    def reset(model: nn.Module, step: int) -> None:
        if step == 79:
            for layer in (model[0], model[2]):
                layer.reset_parameters()

    found = train(tmp_path, lr=0.5, after=reset)
    assert found["weights_replaced"]["step"] == 80 and found["weights_replaced"]["severity"] == "critical"


def swapped(model: nn.Module, step: int) -> None:
    """For an evaluation, and put back."""
    kept = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    model.load_state_dict(kept)


def clamped(model: nn.Module, step: int) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-0.3, 0.3)


@pytest.mark.parametrize("after", [swapped, clamped])
def test_weights_that_are_put_back_or_kept_in_bounds_are_not_replaced(tmp_path: Path, after: Any) -> None:
    assert "weights_replaced" not in train(tmp_path, after=after)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
def test_the_first_and_the_last_layer_are_among_those_that_are_compared(count: int) -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(count)))
    for layer in (model[0], model[-1]):
        written, current = Written(), ModelRound(1, frozenset())
        written.ended(tuple(model.parameters()))
        layer.reset_parameters()
        written.began(current)
        assert current.columns, "written"


def test_a_clip_that_leaves_nothing_is_a_warning_with_sgd_alone(tmp_path: Path) -> None:
    found = train(tmp_path / "sgd", 300, clip=1e-4)
    assert found["clipped_away"]["causes"][0].startswith("clip value too low")
    assert "clipped_away" not in train(tmp_path / "adam", clip=1e-4, kind=torch.optim.Adam, lr=3e-3)
    assert "clipped_away" not in train(tmp_path / "usual", clip=1.0)


@pytest.mark.parametrize(("parts", "clears", "found"), [(4, True, True), (4, False, False), (2, True, True)])
def test_micro_batches_that_are_cleared_are_counted(tmp_path: Path, parts: int, clears: bool, found: bool) -> None:
    assert ("cleared_passes" in train(tmp_path, parts=parts, clears=clears, clip=1.0)) == found


@pytest.mark.parametrize(("clears", "told"), [(False, False), (True, True)])
def test_the_passes_of_a_step_that_a_scaler_skips_are_cleared_on_purpose(
    tmp_path: Path, clears: bool, told: bool
) -> None:
    model, dice = net(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0005)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**118, growth_interval=1 + 4 * clears)
    run = barograph.init(project="p", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(60):
        for _ in range(2):
            if clears:
                optimizer.zero_grad()
            inputs = torch.randn(32, 12, generator=dice)
            loss = functional.cross_entropy(model(inputs), (inputs @ RULE).argmax(1)) / 2
            scaler.scale(loss * 256).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        run.log({"loss": 2 * loss.item()}, step=step)
    run.finish()
    stored = barograph.read(str(run.dir))[0]
    assert stored.series("model/skipped_steps").value[-1] > 5
    assert ("model/cleared_passes" in stored.names()) == told
    assert told or "cleared_passes" not in {item["rule"] for item in diagnose(stored)["findings"]}


def test_gradients_of_single_examples_that_are_added_up_by_hand_may_be_cleared(tmp_path: Path) -> None:
    assert "cleared_passes" not in train(tmp_path, 60, parts=4, clears=True, by_hand=True)


@pytest.mark.parametrize(
    ("kept", "clamps", "config"),
    [(True, False, {}), (False, False, {}), (True, True, {}), (True, False, {"inner_steps": 20, "workers": 2})],
)
def test_an_average_that_stays_behind_its_evaluation_is_told(
    tmp_path: Path, kept: bool, clamps: bool, config: dict[str, int]
) -> None:
    model, dice = net(), torch.Generator().manual_seed(1)
    optimizer, average = torch.optim.SGD(model.parameters(), lr=0.1), copy.deepcopy(model).requires_grad_(False)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), config=config, console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    for step in range(100):
        inputs = torch.randn(32, 12, generator=dice)
        loss = functional.cross_entropy(model(inputs), (inputs @ RULE).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row = {"loss": loss.item()}
        with torch.no_grad():
            for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(parameter, 0.05)
            if step % 20 == 19:
                before = copy.deepcopy(model.state_dict())
                model.load_state_dict(average.state_dict())
                held = torch.randn(64, 12, generator=dice)
                row["eval/loss"] = functional.cross_entropy(model(held), (held @ RULE).argmax(1)).item()
                if not kept:
                    model.load_state_dict(before)
        if clamps and step % 7 == 6:
            with torch.no_grad():
                model[0].weight.mul_(0.9)
        run.log(row, step=step)
    run.finish()
    told = [
        item for item in diagnose(barograph.read(str(run.dir))[0])["findings"] if item["rule"] == "evaluation_writes"
    ]
    assert bool(told) == (kept and not clamps and not config)
    assert not told or (told[0]["step"] in (19, 20) and told[0]["causes"][0].startswith("averaged weights not swapped"))


@pytest.mark.parametrize("several", [True, False])
def test_weights_that_ranks_average_without_being_counted_are_seen_on_ranks_alone(several: bool) -> None:
    model, written, seen = net(), Written(), []
    written._several = several
    parameters = tuple(model.parameters())
    for step in range(6):
        current = ModelRound(step, frozenset())
        written.began(current)
        seen.append(bool(current.columns))
        with torch.no_grad():
            for item in parameters:
                item.add_(0.01)
        written.ended(parameters)
        if step in (1, 3):
            for item in parameters:
                item.data.mul_(0.9)
    assert seen == [False, False, several, False, several, False]


@pytest.mark.parametrize(("evaluated", "back"), [(True, False), (True, True), (False, False)])
def test_weights_that_an_evaluation_puts_in_without_being_counted_are_seen(evaluated: bool, back: bool) -> None:
    model, written = net(), Written()
    parameters = tuple(model.parameters())
    written.ended(parameters)
    kept = [item.detach().clone() for item in parameters]
    for item in parameters:
        item.data.mul_(0.9)
    if back:
        for item, one in zip(parameters, kept, strict=True):
            item.data.copy_(one)
    current = ModelRound(1, frozenset())
    written.began(current, evaluated)
    if not evaluated:
        assert not current.columns
        return
    (column,) = current.columns
    assert (float(column.values[0, 0]) == 0) == back


@pytest.mark.parametrize("zeroed", [False, True])
def test_hooks_of_a_loop_that_change_a_gradient_within_a_pass_clear_nothing(zeroed: bool) -> None:
    """As those that average it over ranks behind the last micro-batch."""
    model, last = nn.Linear(4, 1), [False]

    def average(parameter: Any) -> None:
        if last[0]:
            parameter.grad.div_(2)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)
    sentinel = Sentinel(lambda: None, model)
    sentinel.follow(tuple(model.parameters()))
    for _ in range(3):
        for part in range(4):
            last[0] = part == 3
            (model(torch.randn(8, 4)).mean() / 4).backward()
            if zeroed and part < 3:
                model.zero_grad(set_to_none=False)
        current = ModelRound(1, frozenset())
        current.figures["passes"] = 4.0
        sentinel.put(current, True)
        model.zero_grad()
        assert current.figures.get("cleared_passes", 0.0) == (3.0 if zeroed else 0.0)
        assert current.figures["backwards"] == (1.0 if zeroed else 4.0)
