"""Averages of the weights that move too little for the training, or behind their evaluation; and what looks like it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy
import pytest
from rule_columns import findings, only

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.evaluation.average_moves import AverageBegun, AverageLate, AverageSlow
from barograph.doctor.rules.evaluation.averages import AverageBehind

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn  # noqa: E402

from barograph.probes.model.following import BegunCopies, FollowedAverage, moved_between  # noqa: E402

LOOKS = numpy.arange(50, 550, 50)


def columns(
    writes: float, kept: float, behind: float = 0.0, itself: bool = False, evaluated: float = 2.0
) -> dict[str, Any]:
    """Ten evaluations with a copy, at each fiftieth of 500 steps."""
    first = numpy.arange(len(LOOKS)) == 0
    figures = {
        "steps": LOOKS, "writes": numpy.where(first, -1.0, writes), "kept": numpy.where(first, -1.0, kept),
        "behind": numpy.where(first, -1.0, behind), "whose": numpy.full(len(LOOKS), 2.0),
    }  # fmt: skip
    passes = {"passes_without_gradients" if itself else "passes": numpy.ones(len(LOOKS))}
    found = {f"model/evaluated_{name}": (LOOKS, values) for name, values in figures.items()}
    found |= {f"model/{name}": (LOOKS, values) for name, values in (passes | {"passes": numpy.ones(10)}).items()}
    losses = numpy.interp(LOOKS, [0, 250, 500], [3.0, (2 + evaluated) / 2, evaluated])
    return found | {"train/loss": numpy.linspace(3.0, 1.0, 501), "val/loss": (LOOKS - 1, losses)}


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("writes", "kept", "itself", "cause", "severity"),
    [
        (1.0, 0.99, False, "averaged weights updated too seldom", "warning"),
        (50.0, 0.9999**50, False, "decay of the average too slow", "warning"),
        (1.0, 0.99999, False, "decay of the average too slow", "warning"),
        (50.0, 0.9999**50, True, "decay of the average too slow", "warning"),  # the evaluation is far behind
        (50.0, 0.9999**50, 1.05, "decay of the average too slow", "info"),
        (50.0, 0.99**50, False, "", ""),
        (1.0, 0.91, False, "averaged weights updated too seldom", "warning"),  # 530 steps: the evaluation is far behind
        (1.0, 0.91, 1.05, "", ""),
        (1.0, 0.88, False, "", ""),
        (5.0, 0.99**5, 1.05, "", ""),  # at each tenth step, and still well within the training
        (1.0, 0.5, False, "", ""),
        (50.0, -1.0, False, "", ""),  # it moves otherwise
        (0.0, 1.0, False, "", ""),  # never: `average_wrong`
    ],
)
def test_an_average_that_holds_the_beginning_to_the_end_is_too_slow(
    writes: float, kept: float, itself: bool | float, cause: str, severity: str, cuts: tuple[int, ...]
) -> None:
    evaluated = 2.0 if isinstance(itself, bool) else itself
    given = columns(writes, kept, itself=bool(itself), evaluated=evaluated)
    found = only(findings([AverageSlow()], given, cuts=cuts), "average_slow")
    assert [one.causes[0].split(":")[0] for one in found] == [cause] * bool(cause)
    assert [one.severity for one in found] == [severity] * bool(cause)


@pytest.mark.parametrize(
    ("writes", "kept", "evaluated", "told"),
    [
        (50.0, 0.9999**50, 2.0, True),
        (50.0, 0.9999**50, 1.3, False),  # the evaluation is hardly worse
        (50.0, 0.999**50, 2.0, False),  # 1,000 steps, as far as one stretch says it
        (1.0, 0.99, 2.0, False),
    ],
)
def test_one_stretch_between_two_evaluations_is_enough_for_an_average_that_is_far_too_slow(
    writes: float, kept: float, evaluated: float, told: bool
) -> None:
    given = columns(writes, kept, evaluated=evaluated) | {
        "train/loss": numpy.r_[numpy.linspace(3.0, 1.0, 495), [1.0] * 6]
    }
    for name in [one for one in given if one.startswith("model/evaluated_")]:
        given[name] = tuple(column[1:3] for column in given[name])
    found = only(findings([AverageSlow()], given), "average_slow")
    assert [one.causes[0].split(":")[0] for one in found] == ["decay of the average too slow"] * told


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("kept", "apart", "copied", "told"),
    [
        (0.91, 0.1, 0, True),  # it holds 530 steps
        (0.91, 0.09, 0, False),
        (0.89, 0.2, 0, False),  # 430
        (0.89, 0.2, 100, True),  # the same, and the training had 400 since it began as a copy
        (0.89, 0.2, 150, False),  # that was late, as of an average of the last part
        (0.5, 0.3, 0, False),
    ],
)
def test_an_average_that_is_written_seldom_and_far_away_in_the_end_is_behind(
    kept: float, apart: float, copied: int, told: bool, cuts: tuple[int, ...]
) -> None:
    given, begins = columns(1.0, kept, evaluated=1.05), max(50, copied - 50)
    kept_of = numpy.where(copied == LOOKS, 0.0, numpy.where(begins == LOOKS, -1.0, kept))
    rests = LOOKS == 400  # an evaluation with no update before it
    given["model/evaluated_kept"] = LOOKS, numpy.where(rests, 1.0, kept_of)
    given["model/evaluated_writes"] = LOOKS, numpy.where(rests, 0.0, numpy.where(begins == LOOKS, -1.0, 1.0))
    given["model/evaluated_apart"] = LOOKS, numpy.linspace(2 * apart, apart, len(LOOKS))
    for name in [one for one in given if one.startswith("model/evaluated_")]:
        given[name] = tuple(column[begins <= LOOKS] for column in given[name])
    found = only(findings([AverageSlow()], given, cuts=cuts), "average_slow")
    assert [one.causes[0].split(":")[0] for one in found] == ["averaged weights updated too seldom"] * told


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("name", "first", "times", "severity"),
    [
        ("val/loss_ema", 2.98, 1.51, "warning"),
        ("ema/val_loss", 2.98, 1.51, "warning"),
        ("val/loss_ema", 2.98, 1.49, "info"),  # less than half as large again
        ("val/loss_ema", 2.8, 1.51, "info"),  # begins as the other one: a loss that is smoothed
        ("val/loss_hard", 2.98, 1.51, "info"),  # of other examples
        ("test/loss_ema", 2.98, 1.51, "info"),
    ],
)
def test_the_average_is_evaluated_beside_the_trained_weights(
    name: str, first: float, times: float, severity: str, cuts: tuple[int, ...]
) -> None:
    given = columns(50.0, 0.9999**50, itself=True, evaluated=1.05)
    own = numpy.linspace(2.8, 1.05, len(LOOKS))
    given |= {"val/loss": (LOOKS - 1, own), name: (LOOKS - 1, numpy.append(first, times * own[1:]))}
    found = only(findings([AverageSlow()], given, cuts=cuts), "average_slow")
    assert [one.severity for one in found] == [severity]


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("heldout/fm_ema", "warning"),
        ("heldout/ema_fm", "warning"),
        ("heldout/fm_avg", "warning"),
        ("heldout/fm_small", "info"),
    ],
)
def test_the_average_is_evaluated_beside_the_trained_weights_by_a_loss_that_its_rows_tell(
    name: str, severity: str, cuts: tuple[int, ...]
) -> None:
    given = columns(50.0, 0.9999**50, itself=True, evaluated=1.05)
    del given["val/loss"]
    own = numpy.linspace(2.8, 1.05, len(LOOKS))
    given |= {"heldout/fm": (LOOKS - 1, own), name: (LOOKS - 1, numpy.append(2.98, 1.51 * own[1:]))}
    found = only(findings([AverageSlow()], given, cuts=cuts), "average_slow")
    assert [one.severity for one in found] == [severity]


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("averaged", "trained", "severity"),
    [
        ((1.35, 1.3), (1.2, 1.05), "warning"),
        ((1.35, 1.15), (1.2, 1.05), "info"),  # it came there
        ((1.35, 1.3), (1.2, 1.25), "info"),  # the training is no better, either
    ],
)
def test_an_average_that_never_comes_to_where_the_training_began(
    averaged: tuple[float, float], trained: tuple[float, float], severity: str, cuts: tuple[int, ...]
) -> None:
    given = columns(50.0, 0.9999**50, itself=True, evaluated=1.05)
    for name, (first, last) in {"val/loss": trained, "val/loss_ema": averaged}.items():
        given[name] = (LOOKS - 1, numpy.linspace(first, last, len(LOOKS)))
    found = only(findings([AverageSlow()], given, cuts=cuts), "average_slow")
    assert [one.severity for one in found] == [severity]


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("apart", "evaluated", "told"),
    [
        (numpy.linspace(0.6, 0.9, 10), 2.0, True),
        (numpy.full(10, 0.6), 2.0, False),  # weights that go to and fro around their average
        (numpy.linspace(0.02, 0.06, 10), 2.0, False),
        (numpy.linspace(0.03, 0.1, 10), 2.4, True),
        (0.75 + 0.15 * numpy.sin(numpy.arange(10)), 2.0, False),
        (numpy.append(numpy.linspace(0.6, 0.9, 9), 0.89), 2.0, True),  # a little nearer as the rate ends
        (numpy.linspace(0.6, 0.9, 10), 1.0, False),  # as good as the training
    ],
)
def test_weights_that_are_put_in_and_fall_behind_are_of_an_average_that_is_too_slow(
    apart: numpy.ndarray, evaluated: float, told: bool, cuts: tuple[int, ...]
) -> None:
    given = columns(-1.0, 0.99, itself=True) | {"model/evaluated_apart": (LOOKS, apart)}
    given["val/loss"] = (LOOKS - 1, numpy.linspace(3.0, evaluated, len(LOOKS)))
    if not told and evaluated < 2:
        given["val/loss"] = (LOOKS - 1, numpy.interp(LOOKS, numpy.arange(501), numpy.linspace(3.0, 1.0, 501)))
        given["train/loss"] = numpy.linspace(3.0, 1.4, 501)
    found = only(findings([AverageSlow()], given, cuts=cuts), "average_slow")
    assert [one.severity for one in found] == ["warning"] * told


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("rests", "kept", "moved", "evaluated", "told"),
    [
        (4, 0.87, 0.2, 2.0, True),
        (1, 0.87, 0.2, 2.0, False),
        (4, 0.87, 0.0, 2.0, False),  # nothing is trained there
        (4, 0.3, 0.2, 2.0, False),  # it comes along
        (4, 0.87, 0.2, 1.2, False),  # and its loss is that of the training, nearly
    ],
)
def test_weights_that_are_put_in_and_rest_from_one_evaluation_to_the_next_are_updated_too_seldom(
    rests: int, kept: float, moved: float, evaluated: float, told: bool, cuts: tuple[int, ...]
) -> None:
    given = columns(-1.0, kept, evaluated=evaluated)
    still = numpy.arange(len(LOOKS)) % 2 == 0
    still &= numpy.cumsum(still) <= rests + 1
    changed = numpy.where(still, 0.0, 0.08)
    given["model/evaluated_kept"] = LOOKS, numpy.where(still, -1.0, kept)
    given |= {"model/evaluated_changed": (LOOKS, changed), "model/evaluated_moved": (LOOKS, numpy.full(10, moved)),
              "model/evaluated_apart": (LOOKS, numpy.linspace(0.09, 0.01, 10))}  # fmt: skip
    found = only(findings([AverageSlow()], given, cuts=cuts), "average_slow")
    assert [one.causes[0].split(":")[0] for one in found] == ["averaged weights updated too seldom"] * told


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("kept", "apart", "evaluated", "told"),
    [(-1.0, 0.31, 2.4, True), (-1.0, 0.29, 2.4, False), (-1.0, 0.31, 1.1, False), (0.5, 0.31, 2.4, False)],
)
def test_what_moves_otherwise_than_an_average_is_judged_by_how_far_it_is_in_the_end(
    kept: float, apart: float, evaluated: float, told: bool, cuts: tuple[int, ...]
) -> None:
    given = columns(-1.0, 0.5, itself=True) | {"model/evaluated_apart": (LOOKS, numpy.linspace(0.5, apart, 10))}
    given["model/evaluated_kept"] = LOOKS, numpy.where(LOOKS[4] == LOOKS, kept, 0.5)
    given["val/loss"] = (LOOKS - 1, numpy.full(len(LOOKS), evaluated))
    found = only(findings([AverageSlow()], given, cuts=cuts), "average_slow")
    assert [one.severity for one in found] == ["warning"] * told
    for share in (0.7, 1.2):  # of the way of the trained ones
        given["model/evaluated_share"] = LOOKS, numpy.full(len(LOOKS), share)
        found = only(findings([AverageSlow()], given, cuts=cuts), "average_slow")
        assert [one.severity for one in found] == ["warning"] * (told and share < 1)


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("writes", "behind", "itself", "told"),
    [
        (1.0, 1.0, False, True),
        (50.0, 1.0, False, False),  # updated at each step, behind the evaluation too
        (1.0, 0.0, False, False),
        (1.0, 1.0, True, False),  # the best so far is kept
    ],
)
def test_what_is_evaluated_is_written_behind_the_evaluation(
    writes: float, behind: float, itself: bool, told: bool, cuts: tuple[int, ...]
) -> None:
    found = only(findings([AverageLate()], columns(writes, 0.5, behind, itself), cuts=cuts), "average_late")
    assert [one.severity for one in found] == ["warning"] * told


def follow(decays: list[float], off: float = 0.0) -> list[float]:
    """An average over steps of a walk, with 1 for a step in which it is not updated."""
    torch.manual_seed(0)
    weights, average = torch.randn(64), torch.randn(64)
    followed = FollowedAverage(average.clone())
    for decay in decays[:-1]:
        weights = weights + 0.1 * torch.randn(64)
        average = decay * average + (1 - decay) * weights + off * (decay < 1) * torch.randn(64)
        followed.step(lambda now=average: now, lambda now=weights: now)
    weights, before = weights + 0.1 * torch.randn(64), average
    average = decays[-1] * average + (1 - decays[-1]) * weights
    found = followed.figures(before, lambda: average, lambda: weights)
    return [round(float(one), 4) for one in found]


def test_what_is_left_of_an_average_is_the_product_of_its_decays() -> None:
    assert follow([0.9] * 4) == [4.0, round(0.9**4, 4), 1.0]
    assert follow([1.0, 0.9, 1.0, 1.0]) == [1.0, 0.9, 0.0]
    assert follow([1.0, 1.0, 1.0, 0.5]) == [1.0, 0.5, 1.0]
    assert follow([0.5] * 120) == [120.0, 0.0, 0.0]  # looked at in the first steps alone
    assert follow([0.9] * 4, off=1.0)[1] == -1.0  # no average


def test_weights_that_are_put_in_for_an_evaluation_moved_once_or_more() -> None:
    torch.manual_seed(0)
    then, newest = torch.randn(64), torch.randn(64)
    once = moved_between(then, then + 0.1 * (newest - then), newest)
    assert [round(float(one), 3) for one in once] == [1.0, 0.9, 0.0]
    little = moved_between(then, then + 0.02 * (newest - then) + 0.01 * torch.randn(64), newest)
    assert float(little[0]) == -1.0 and 0.9 < float(little[1]) < 1
    assert float(moved_between(then, newest + 0.1 * torch.randn(64), newest)[1]) == -1.0
    assert [float(one) for one in moved_between(then, then, newest)[:2]] == [-1.0, -1.0]


def train(folder: Path, how: str) -> dict[str, Any]:
    """Findings of a small training whose average is evaluated at each thirtieth step."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    average: Any = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9999 if how == "slow" else 0.97))
    if how == "mean":
        average = AveragedModel(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    rule, inputs = torch.randn(12, 4), torch.randn(128, 12)
    run = barograph.init(dir=folder, project="p", id=how, sidecar=False)
    run.watch(net, optimizer)
    for step in range(1, 241):
        batch = torch.randn(16, 12)
        loss = nn.functional.cross_entropy(net(batch), (batch @ rule).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss}, step=step)
        if how in ("each", "slow") or (how == "seldom" and step % 15 == 0) or (how == "mean" and step % 30 == 0):
            average.update_parameters(net)
        if step % 30 == 0:
            with torch.no_grad():
                evaluated = nn.functional.cross_entropy(average(inputs), (inputs @ rule).argmax(1))
            run.log({"val/loss": evaluated}, step=step)
            if how == "late":
                average.module.load_state_dict(copy.deepcopy(net.state_dict()))
        if how == "behind":
            average.update_parameters(net)
    run.finish()
    return {one["rule"]: one for one in diagnose(run.dir)["findings"] if one["severity"] != "info"}


@pytest.mark.parametrize(
    ("how", "rule"),
    [("each", ""), ("mean", ""), ("behind", ""), ("seldom", "average_slow"), ("slow", "average_slow"),
     ("late", "average_late")],
)  # fmt: skip
def test_a_training_whose_average_moves_in_this_way(tmp_path: Path, how: str, rule: str) -> None:
    found = train(tmp_path, how)
    assert [name for name in found if name.startswith("average")] == [rule] * bool(rule)


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("begun", "given", "told"),
    [
        ((60.0, 0.3, 0.5), {}, True),
        ((1.0, 0.01, 1e-9), {}, True),
        ((1.0, 0.01, 0.2), {}, False),  # written by functions that are not counted on a device
        ((0.0, 0.01, 1e-9), {}, False),
        ((150.0, 0.3, 0.5), {}, False),  # in each step
        ((60.0, 1.0, 0.1), {}, False),  # a copy of the weights where it begins
        ((60.0, 0.3, 0.5), {"kept": 0.8}, False),  # it has come away from there
        ((60.0, 0.3, 0.5), {"writes": 5.0}, False),  # updated at each tenth step
        ((60.0, 0.3, 0.5), {"kept": -1.0}, False),  # it moves otherwise
        ((60.0, 0.3, 0.5), {"evaluated": 1.3}, False),
    ],
)
def test_an_average_that_begins_late_from_weights_as_they_were_made_is_told(
    begun: tuple[float, float, float], given: dict[str, float], told: bool, cuts: tuple[int, ...]
) -> None:
    made = columns(given.get("writes", 50.0), given.get("kept", 0.93), evaluated=given.get("evaluated", 2.0))
    own = LOOKS < 150  # evaluations of the trained model itself
    made["model/evaluated_whose"] = LOOKS, numpy.where(own, 1.0, 2.0)
    kept = numpy.where(own, 0.0, made["model/evaluated_kept"][1])
    kept[[0, 2]] = -1.0
    made["model/evaluated_kept"] = LOOKS, kept
    for name, value in zip(("writes", "way", "off"), begun, strict=True):
        made[f"model/evaluated_begun_{name}"] = LOOKS[2:3], numpy.array([value])
    found = only(findings([AverageBegun()], made, cuts=cuts), "average_begun")
    assert [one.severity for one in found] == ["warning"] * told


def test_how_far_a_copy_has_come_since_it_was_found_is_known_once() -> None:
    net, begun = nn.Linear(8, 4, bias=False), BegunCopies()
    slow, items, sample = copy.deepcopy(net), lambda: [slow.weight], lambda: slow.weight.detach().flatten().clone()
    newest = lambda: net.weight.detach().flatten()  # noqa: E731
    with torch.no_grad():
        slow.weight.mul_(1.5)
    begun.made(slow, items, sample, newest)
    with torch.no_grad():
        net.weight.add_(torch.randn(4, 8))
        slow.weight.lerp_(net.weight, 0.1)
    found = begun.figures(slow, items, sample(), newest)
    assert found is not None and [round(float(one), 4) for one in found] == [1.0, 0.1, 0.0, 0.5]
    assert begun.figures(slow, items, sample(), newest) is None
    assert begun.figures(copy.deepcopy(net), items, sample(), newest) is None


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("kept", "writes", "way", "evaluated", "told"),
    [
        (0.7, 50.0, 0.0, 2.0, True),
        (0.5, 50.0, 0.0, 2.0, False),  # it has come away from there
        (0.7, 5.0, 0.0, 2.0, False),  # updated at each tenth step
        (-1.0, 50.0, 0.0, 2.0, False),  # a copy of the weights where it begins
        (0.7, 50.0, 0.01, 2.0, False),
        (0.7, 50.0, 0.0, 1.1, False),
    ],
)
def test_an_average_that_waits_and_goes_on_from_weights_as_they_were_made_is_told(
    kept: float, writes: float, way: float, evaluated: float, told: bool, cuts: tuple[int, ...]
) -> None:
    made = columns(writes, kept, evaluated=evaluated)
    waits = LOOKS <= 200
    made["model/evaluated_kept"] = LOOKS, numpy.where(LOOKS == 50, -1.0, numpy.where(waits, 1.0, kept))
    made["model/evaluated_writes"] = LOOKS, numpy.where(LOOKS == 50, -1.0, numpy.where(waits, 0.0, writes))
    if evaluated < 1.2:
        made["val/loss"] = LOOKS - 1, numpy.full(len(LOOKS), evaluated)
    for name, value in (("writes", 0.0), ("way", way), ("off", 0.0)):
        made[f"model/evaluated_begun_{name}"] = LOOKS[:1], numpy.array([value])
    found = only(findings([AverageBegun()], made, cuts=cuts), "average_begun")
    assert [one.severity for one in found] == ["warning"] * told


@pytest.mark.parametrize("cuts", [(), (120, 260, 400)])
@pytest.mark.parametrize(
    ("kept", "part", "told"),
    [
        (0.99**50, False, False),  # of a hundred steps, and the training had that loss four hundred before
        (0.999**50, False, True),  # of a thousand
        (-1.0, False, True),  # it moves otherwise
        (-1.0, True, False),  # the trained model's own parts are evaluated
    ],
)
def test_an_average_of_few_steps_and_parts_of_the_model_itself_are_not_behind(
    kept: float, part: bool, told: bool, cuts: tuple[int, ...]
) -> None:
    rows = columns(50.0, kept)
    if part:
        rows = {name: one for name, one in rows.items() if "evaluated" not in name}
        rows["model/parts_without_gradients"] = LOOKS[:1], numpy.ones(1)
    steps = numpy.arange(501)
    rows |= {"train/loss": 1.0 + 2.0 * numpy.exp(-steps / 40), "val/loss": (LOOKS - 1, 2.4 - LOOKS / 5000)}
    assert bool(only(findings([AverageBehind()], rows, cuts=cuts), "average_behind")) == told


@pytest.mark.parametrize("cuts", [(), (60, 140)])
@pytest.mark.parametrize(
    ("kept", "writes", "said"),
    [
        ((-1.0, 0.9999**50, 0.9999**50), 50.0, True),
        ((-1.0, 0.9999**50, 0.999**50), 50.0, False),  # a decay that changes: more has to be seen
        ((-1.0, 0.9**50, 0.9**50), 50.0, False),
        ((-1.0, 0.9999**50, 0.9999**50), 10.0, False),  # written seldom
        ((-1.0, 0.9999**50), 50.0, True),  # it holds a hundred times the training, and its evaluation is far behind
        ((-1.0, 0.999**50), 50.0, False),
    ],
)
def test_two_paces_of_one_decay_are_enough(
    kept: tuple[float, ...], writes: float, said: bool, cuts: tuple[int, ...]
) -> None:
    given = columns(writes, 0.5)
    count = len(kept)
    given |= {name: (LOOKS[:count], values[1][:count]) for name, values in given.items() if name.startswith("model/")}
    given["model/evaluated_kept"] = LOOKS[:count], numpy.array(kept)
    given |= {"train/loss": numpy.linspace(3.0, 1.0, 170), "val/loss": (LOOKS[:count] - 1, numpy.full(count, 2.9))}
    assert len(only(findings([AverageSlow()], given, cuts=cuts), "average_slow")) == said
