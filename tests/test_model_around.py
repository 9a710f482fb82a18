"""What a loop does around its optimizer: clipping that does not reach it, optimizers made again, groups without a rate;
and a schedule in other units than it is stepped in."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rule_columns
import rule_curves

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.optimizer.around import ClipNotInForce, ScheduleUnits

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

RULE = torch.randn(12, 6, generator=torch.Generator().manual_seed(3))


def train(folder: Path, config: dict[str, Any] | None = None, clip: str = "none", remade: str = "", idle: str = "",
          scale: float = 8.0, by_hand: float = 1.0, steps: int = 120) -> dict[str, Any]:  # fmt: skip
    """Findings by rule, of some steps of a classifier whose gradients have norms above 1."""
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 6))
    other = copy.deepcopy(model)

    def make() -> Any:
        parts = [{"params": model[0].parameters()}, {"params": [*model[1].parameters(), *model[3].parameters()]}]
        return torch.optim.AdamW(parts, lr=1e-3)

    optimizer = make()
    if idle:
        optimizer.param_groups[0]["lr"] = 0.0
    quiet: dict[str, Any] = {"console": "none", "machine": False, "sidecar": False, "git": False}
    run = barograph.init(project="p", name="n", dir=str(folder), config=config or {}, **quiet)
    run.watch(model, optimizer, gradients=10)
    dice = torch.Generator().manual_seed(1)
    for step in range(steps):
        inputs = torch.randn(32, 12, generator=dice)
        loss = scale * functional.cross_entropy(model(inputs), (inputs @ RULE).argmax(1))
        optimizer.zero_grad()
        if clip == "before":
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        loss.backward()
        if clip == "another":
            nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        elif clip == "right":
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        elif clip == "parts":
            for part in (model[0], model[1], model[3]):
                nn.utils.clip_grad_norm_(part.parameters(), 0.5)
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= by_hand
        if remade and step % 20 == 19 and (remade == "often" or step == 59):
            optimizer = make()
        if remade == "rounds" and step % 20 == 19:  # workers are averaged
            optimizer = make()
            with torch.no_grad():
                for item in model.parameters():
                    item.mul_(0.9)
        if idle == "thawed" and step == 60:
            optimizer.param_groups[0]["lr"] = 1e-3
        row = {"loss": loss.item(), "lr": optimizer.param_groups[1]["lr"]}
        run.log({"loss": row["loss"]} if by_hand < 1 else row, step=step)
    run.finish()
    findings = diagnose(barograph.read(str(run.dir))[0])["findings"]
    return {part["rule"]: part for item in findings for part in (*item["evidence"].get("story", ()), item)}


@pytest.mark.parametrize("clip", ["before", "another", "none", "right", "parts"])
def test_a_clip_that_does_not_reach_the_gradients_is_found(tmp_path: Path, clip: str) -> None:
    found = train(tmp_path, {"max_grad_norm": 0.5}, clip)
    assert ("clip_not_in_force" in found) == (clip in ("before", "another", "none"))
    if clip == "before":
        assert found["clip_not_in_force"]["step"] <= 2


@pytest.mark.parametrize(
    ("config", "scale"),
    [({}, 8.0), ({"clip": 0.2}, 8.0), ({"max_grad_norm": 1000.0}, 8.0), ({"grad_clip": 0.0}, 8.0),
     ({"gradient_clip_val": 0.5, "gradient_clip_algorithm": "value"}, 8.0), ({"max_grad_norm": 1.0}, 0.02)],
)  # fmt: skip
def test_gradients_that_no_setting_limits_give_no_finding(tmp_path: Path, config: dict[str, Any], scale: float) -> None:
    assert "clip_not_in_force" not in train(tmp_path, config, scale=scale)


@pytest.mark.parametrize(
    ("logged", "measured", "config", "found"),
    [(0.0, 0.8, {"clip": 1.0}, True), (0.0, 0.8, {"clip": 0.0}, False), (0.0, 0.8, {}, False),
     (0.0, 0.0, {"clip": 1.0}, False), (0.3, 0.8, {"clip": 1.0}, False)],
)  # fmt: skip
def test_a_norm_of_nothing_says_that_nothing_is_clipped(
    logged: float, measured: float, config: dict[str, float], found: bool
) -> None:
    norms = np.zeros(40)
    norms[12] = logged
    columns: Any = {"loss": np.linspace(3, 1, 40), "grad_norm": norms}
    columns["model/grad_norm"] = np.arange(0, 40, 5), np.full(8, measured)
    for cuts in ((), range(40)):
        told = rule_columns.findings([ClipNotInForce()], columns, facts={"config": config}, cuts=cuts)
        assert [(one.step, one.found) for one in told.values()] == ([(0, 15)] if found else []), cuts


@pytest.mark.parametrize("remade", ["often", "once", "rounds"])
def test_an_optimizer_that_is_made_again_and_again_is_found(tmp_path: Path, remade: str) -> None:
    found = train(tmp_path, remade=remade)
    assert ("optimizer_remade" in found) == (remade == "often")
    if remade == "often":
        assert 20 <= found["optimizer_remade"]["step"] <= 24


@pytest.mark.parametrize("idle", ["all", "thawed", ""])
def test_a_group_whose_learning_rate_is_0_is_found(tmp_path: Path, idle: str) -> None:
    found = train(tmp_path, idle=idle)
    assert ("idle_group" in found) == (idle == "all")
    if idle == "all":
        assert "0.weight" in found["idle_group"]["message"] and found["idle_group"]["step"] == 0


def cosine(step: Any, length: float, low: float = 0.0) -> Any:
    return low + (1 - low) * 0.5 * (1 + np.cos(math.pi * step / length))


STEPS = np.arange(600)
RATES = {
    "cosine of epochs": (cosine(STEPS, 10), True),
    "steps of epochs": (0.5 ** (STEPS // 15), True),
    "exponential of epochs": (0.95**STEPS, True),
    "warm-up, then steps of epochs": (np.minimum(1, STEPS / 20) * 0.3 ** (np.maximum(0, STEPS - 20) // 10), True),
    "line of epochs": (np.maximum(0.0, 1 - STEPS / 8), True),
    "cosine": (cosine(STEPS, 600), False),
    "warm restarts": (cosine(STEPS % 40, 40), False),
    "four waves": (cosine(STEPS, 75), False),
    "between two rates": (cosine(STEPS, 10, 0.01), False),
    "steps": (0.1 ** (STEPS // 150), False),
    "exponential over the run": (0.985**STEPS, False),
    "constant": (np.ones(600), False),
    "to zero, and there": (np.maximum(0.0, 1 - STEPS / 300), False),
}


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("pieces", [(), (100, 333)])
def test_a_schedule_of_epochs_that_is_stepped_at_each_batch_is_found(kind: str, pieces: tuple[int, ...]) -> None:
    rate, wrong = RATES[kind]
    loss = rule_curves.falling(600)
    found = rule_curves.found([ScheduleUnits()], {"loss": (STEPS, loss), "lr": (STEPS, 3e-4 * rate)}, pieces)
    assert bool(found) == wrong
    if kind == "cosine of epochs":
        assert found[0].step == 10


SEEN = np.arange(0, 600, 10)  # as the watch looks


@pytest.mark.parametrize(
    ("rate", "wrong"),
    [
        (0.1 ** (SEEN // 2), True),
        (0.1 ** np.minimum(2, SEEN // 3), True),  # at steps 3 and 6, where epochs are meant
        (0.1 ** np.minimum(1, SEEN // 3), False),  # a single fall may be meant
        (0.1 ** np.minimum(2, SEEN // 60), False),
        (0.01 + 0.99 * (SEEN < 20) + 1e-5 * SEEN, False),  # it goes on changing
        (0.1 ** np.minimum(2, SEEN // 200), False),
    ],
)
def test_a_rate_that_the_log_has_once_an_epoch_is_seen_by_the_watch(rate: Any, wrong: bool) -> None:
    epochs = np.arange(59, 600, 60)
    curves = {"loss": (STEPS, rule_curves.falling(600)), "lr": (epochs, np.interp(epochs, SEEN, rate)),
              "model/rate_share": (SEEN, rate)}  # fmt: skip
    assert bool(rule_curves.found([ScheduleUnits()], curves)) == wrong
    short = {name: tuple(part[steps < 90] for part in (steps, values)) for name, (steps, values) in curves.items()}
    assert not rule_curves.found([ScheduleUnits()], short)


def between(epochs: float, first: float = 0.0, low: float = 0.03, by: float = 1.0) -> Any:
    """A cosine between two rates which ends with the last of the epochs, the first of which it rises in."""
    share = low + (1 - low) * 0.5 * (1 + np.cos(np.pi * (by * STEPS - first) / (epochs - first)))
    return np.where(by * STEPS < first, (by * STEPS + 1) / (first + 1), share)


def of_rate(rate: Any, epochs: int = 12, config: Any = (), name: str = "lr") -> bool:
    columns = {
        "loss": (STEPS, rule_curves.falling(600)),
        name: (STEPS, rate),
        "data/epoch": (STEPS, STEPS * epochs // 600),
        "model/rate_in_force": (SEEN, rate[SEEN]),
        "model/rate_share": (SEEN, rate[SEEN] / rate[0]),
    }
    return bool(rule_curves.found([ScheduleUnits()], columns, config=dict(config)))


@pytest.mark.parametrize("name", ["lr", "fit/speed"])
@pytest.mark.parametrize("first", [0.0, 0.6, 2.0])
def test_a_cosine_between_two_rates_that_ends_as_if_it_counted_epochs_is_found(name: str, first: float) -> None:
    assert of_rate(between(12, first), name=name)
    assert of_rate(between(12, first), config={"stages": 3}, name=name)  # of a network
    assert not of_rate(between(12, first), config={"schedule": "cyclic"}, name=name)


@pytest.mark.parametrize(
    "rate",
    [
        between(20), between(10), between(6), between(12, by=0.02),
        0.03 + 0.97 * abs((STEPS % 24) / 12 - 1),  # a triangle
        0.03 + 0.97 * 0.5 * (1 + np.cos(np.pi * (STEPS % 12) / 12)),  # restarts
        between(12, low=0.6),  # between two rates that are near each other
    ],
)  # fmt: skip
def test_other_cycles_are_nobodys_mistake(rate: Any) -> None:
    assert not of_rate(rate)


def test_few_epochs_say_nothing() -> None:
    assert not of_rate(between(3), epochs=3)


@pytest.mark.parametrize(("by_hand", "found"), [(0.93, True), (0.985, False)])
def test_a_rate_that_is_lowered_by_hand_at_each_batch_is_seen_where_nobody_logs_it(
    tmp_path: Path, by_hand: float, found: bool
) -> None:
    assert ("schedule_units" in train(tmp_path, by_hand=by_hand, steps=300)) == found
