"""Evaluation pictures that are normalised with other numbers, or have red and blue exchanged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from test_rules_objective import EVALUATIONS, FALLS, ROWS, every, warned

LOOKS = np.arange(0, ROWS, 10)
DICE = np.random.default_rng(5)
MEANS, DEVIATIONS = np.array([0.6, 0.45, 0.3]), np.array([0.25, 0.22, 0.18])


def columns(
    ours: tuple[float, float] = (-1.989, 2.13),
    theirs: tuple[float, float] = (-2.118, 2.13),
    share: float = 0.01,
    theirs_share: float = 0.01,
    jitter: float = 0.0,
    rows: float = 4000.0,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A training whose pictures have these ends."""
    found = {"loss": every(np.linspace(1.5, 0.5, ROWS)), "eval_loss": (EVALUATIONS, np.full(len(EVALUATIONS), 1.0))}
    for at, end in enumerate(("low", "high")):
        found[f"model/input_{end}"] = LOOKS, ours[at] + jitter * DICE.normal(size=len(LOOKS))
        found[f"model/input_{end}s"] = LOOKS, np.full(len(LOOKS), share)
        found[f"model/eval_input_{end}"] = EVALUATIONS + 1, np.full(len(EVALUATIONS), theirs[at])
        found[f"model/eval_input_{end}s"] = EVALUATIONS + 1, np.full(len(EVALUATIONS), theirs_share)
    found["model/distinct_rows"], found["model/example_rows"] = (LOOKS, np.full(40, rows)), (LOOKS, np.full(40, 64.0))
    return found


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, True),
        ({"theirs": (-1.989, 2.64)}, True),  # white alone is another
        ({"theirs": (-1.989, 2.13)}, False),
        ({"theirs": (-1.9892, 2.1301)}, False),  # rounding of sixteen bits
        ({"theirs": (-1.7, 1.9)}, False),  # pictures without black and white
        ({"theirs_share": 0.0003}, False),  # overshoot of a resampling: each number once
        ({"share": 0.0003}, False),  # no black, but the darkest of each batch
        ({"jitter": 0.05}, False),  # brightness is drawn
        ({"rows": 64.0}, False),  # the same pictures in each step
    ],
)
def test_another_black_is_another_normalisation(settings: dict[str, Any], told: bool, rows: int) -> None:
    found = warned(columns(**settings), rows)
    assert ("evaluation_pictures" in found) is told
    assert not told or found["evaluation_pictures"].step == int(EVALUATIONS[1]) + 1  # eight looks came by then


def coloured(
    mean: np.ndarray, deviation: np.ndarray, evaluation: tuple[Any, ...], loss: float = 4.0
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = columns(theirs=(-1.989, 2.13)) | {"eval_loss": (EVALUATIONS, np.full(len(EVALUATIONS), loss))}
    for at, name in enumerate(("red", "green", "blue")):
        for column, ours, theirs in zip(("", "_std"), (mean, deviation), evaluation, strict=True):
            noise = 0.005 * DICE.normal(size=len(LOOKS))
            found[f"model/input_{name}{column}"] = LOOKS, ours[at] + noise
            found[f"model/eval_input_{name}{column}"] = EVALUATIONS + 1, np.full(len(EVALUATIONS), theirs[at])
    return found


TURNED = MEANS[::-1], DEVIATIONS[::-1]


@pytest.mark.parametrize(
    ("ours", "theirs", "loss", "told"),
    [
        ((MEANS, DEVIATIONS), TURNED, 4.0, True),
        ((np.zeros(3), np.ones(3)), ((TURNED[0] - MEANS) / DEVIATIONS, TURNED[1] / DEVIATIONS), 4.0, True),
        (((MEANS - 0.48) / 0.23, DEVIATIONS / 0.23), ((TURNED[0] - 0.48) / 0.23, TURNED[1] / 0.23), 4.0, True),
        ((MEANS, DEVIATIONS), TURNED, 1.0, False),  # whatever it is, it does no harm
        ((MEANS, DEVIATIONS), (MEANS, DEVIATIONS), 4.0, False),
        ((MEANS, DEVIATIONS), (MEANS + 0.2, DEVIATIONS), 4.0, False),  # brighter
        ((MEANS, DEVIATIONS), (MEANS + np.array([0.2, 0.0, 0.2]), DEVIATIONS), 4.0, False),
        ((MEANS, DEVIATIONS), (MEANS - np.array([0.15, 0.0, -0.15]), DEVIATIONS), 4.0, False),  # colder light
        ((MEANS, DEVIATIONS), (MEANS[[1, 0, 2]], DEVIATIONS[[1, 0, 2]]), 4.0, False),
    ],
)
def test_red_and_blue_that_are_exchanged_are_told_from_other_light(
    ours: tuple[Any, ...], theirs: tuple[Any, ...], loss: float, told: bool
) -> None:
    found = warned(coloured(*ours, theirs, loss))
    assert ("evaluation_pictures" in found) is told
    assert not told or found["evaluation_pictures"].causes[0].startswith("channels exchanged")


def clipped(
    ends: tuple[float, float] = (0.0, 1.0),
    at_ends: float = 0.2,
    reach: float = 3.0,
    mean: float = 0.33,
    ours: float = 0.0,
    loss: float = 1.0,
    share: float = 0.3,
    looks: int = 40,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Evaluation pictures that are cut to these ends, beside normalised ones."""
    found = columns((ours - reach, ours + reach), ends, 0.0003, at_ends)
    found |= {"model/top_target_share": (LOOKS, np.full(len(LOOKS), share))}
    found |= {"eval_loss": (EVALUATIONS, np.full(len(EVALUATIONS), loss))}
    for name, value, theirs in (("mean", ours, mean), ("std", 1.0, 0.4)):
        found[f"model/input_{name}"] = LOOKS, np.full(len(LOOKS), value)
        found[f"model/eval_input_{name}"] = EVALUATIONS + 1, np.full(len(EVALUATIONS), theirs)
    return {name: (x[:looks], y[:looks]) if "/input_" in name else (x, y) for name, (x, y) in found.items()}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, True),
        ({"ends": (-1.0, 1.0), "mean": 0.3}, True),
        ({"ends": (0.01, 1.0)}, False),
        ({"ends": (0.0, 2.1)}, False),
        ({"at_ends": 0.009}, False),
        ({"at_ends": 0.01}, True),
        ({"reach": 1.4}, False),  # shares of 255 that are brightened a little
        ({"mean": 0.05}, False),  # noise in the training alone
        ({"ours": 0.5, "mean": 0.9}, False),  # the training's are not normalised
        ({"loss": 0.5}, False),  # it does no harm
        ({"share": np.nan}, False),  # no classes
        ({"looks": 7}, False),
    ],
)
def test_pictures_that_are_clipped_behind_their_normalisation(settings: dict[str, Any], told: bool) -> None:
    found = warned(clipped(**settings))
    said = "evaluation_pictures" in found and found["evaluation_pictures"].causes[0].startswith("clipped")
    assert said is told


@pytest.mark.parametrize(
    ("nearer", "by", "share", "told"),
    [(8.0, 0.9, 0.3, True), (2.0, 0.9, 0.3, False), (60.0, 0.002, 0.3, False), (0.0, 0.0, 0.3, False),
     (8.0, 0.9, np.nan, False)],
)  # fmt: skip
def test_evaluations_that_are_altered_are_told_from_noise_and_attacks(
    nearer: float, by: float, share: float, told: bool
) -> None:
    found = columns(theirs=(-1.989, 2.13)) | {"model/top_target_share": (LOOKS, np.full(len(LOOKS), share))}
    found["model/evaluated_altered"] = EVALUATIONS[1:] + 1, np.full(len(EVALUATIONS) - 1, nearer)
    found["model/evaluated_altered_by"] = EVALUATIONS[1:] + 1, np.full(len(EVALUATIONS) - 1, by)
    assert ("evaluation_altered" in warned(found)) is told


@pytest.mark.parametrize(("scale", "told"), [(255.0, True), (1 / 255, True), (30.0, False)])
def test_inputs_of_another_unit_are_said_whatever_the_loss(scale: float, told: bool) -> None:
    found = {"loss": every(np.linspace(1.5, 1.0, ROWS)), "eval_loss": (EVALUATIONS, np.full(len(EVALUATIONS), 1.0))}
    for name, value in (("mean", 0.25), ("std", 0.22)):
        found[f"model/input_{name}"] = LOOKS, np.full(len(LOOKS), value)
        found[f"model/eval_input_{name}"] = EVALUATIONS + 1, np.full(len(EVALUATIONS), value * scale)
    assert ("evaluation_inputs" in warned(found)) is told


@pytest.mark.parametrize(
    ("rising", "apart", "share", "told"),
    [(60.0, 0.9, 0.3, True), (0.0, 0.9, 0.3, False), (60.0, 0.2, 0.3, False), (60.0, 0.9, np.nan, False)],
)
def test_batches_that_rise_through_each_epoch_are_sorted(rising: float, apart: float, share: float, told: bool) -> None:
    found = {"loss": every(np.linspace(1.5, 1.0, ROWS))}
    figures = {"apart_rising": rising, "rows_apart": apart, "top_target_share": share, "apart_batches": 20.0}
    found |= {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in figures.items()}
    found["model/apart_period"] = LOOKS, np.zeros(len(LOOKS))
    assert ("sorted_examples" in warned(found)) is told
    assert not told or warned(found)["sorted_examples"].causes[0].startswith("data sorted")


@pytest.mark.parametrize(
    ("apart", "compared", "rows", "config", "told"),
    [
        (0.2, {"candidates": 128.0}, 16.0, {}, True),
        (0.2, {"pairs": 64.0}, 64.0, {}, True),
        (0.19, {"candidates": 128.0}, 64.0, {}, False),
        (0.2, {"candidates": 128.0}, 15.0, {}, False),
        (0.2, {}, 64.0, {}, False),
        (0.2, {"candidates": 128.0}, 64.0, {"curriculum": True}, False),
    ],
)  # fmt: skip
def test_batches_of_pairs_that_rise_through_each_epoch_are_sorted(
    apart: float, compared: dict[str, float], rows: float, config: dict[str, Any], told: bool
) -> None:
    found = {"loss": every(np.linspace(1.5, 1.0, ROWS))}
    figures = {"apart_rising": 60.0, "rows_apart": apart, "example_rows": rows, "apart_batches": 20.0}
    figures |= {f"loss_{name}": value for name, value in compared.items()}
    found |= {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in figures.items()}
    assert ("sorted_examples" in warned(found, config=config)) is told


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [(0.0, -0.03, True), (0.7, 0.0, True), (0.0, 0.0, False), (0.02, -0.03, False), (0.0, 1e-5, False)],
)
def test_a_reference_that_is_asked_about_other_answers_shows_in_the_first_row(
    good: float, bad: float, told: bool
) -> None:
    found = {"loss": every(np.linspace(0.69, 0.5, ROWS)), "model/other_apart": (LOOKS + 3, 0.01 + LOOKS / 1000)}
    for name, first, last in (("chosen", good, 0.5), ("rejected", bad, -0.5)):
        found[f"rewards/{name}"] = every(first + np.linspace(0.0, last, ROWS))
    said = warned(found).get("reference_apart")
    assert (said is not None and said.causes[0].startswith("loss on the wrong tensor")) is told


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, True),
        ({"theirs": 0.11}, True),
        ({"theirs": 0.05}, False),  # a little noise, or an attack
        ({"most": 0.01}, False),  # no row of the training is off: augmented behind it
        ({"scale": 0.5}, False),  # one-hot rows, or pictures: all of one mean
        ({"loss": 0.6}, False),  # as good as the training
        ({"rows": 64.0}, False),  # the same rows each time
    ],
)
def test_examples_that_are_standardised_each_by_itself_in_the_training_alone_are_said(
    settings: dict[str, float], told: bool, rows: int
) -> None:
    found = columns(rows=settings.get("rows", 4000.0))
    found["eval_loss"] = EVALUATIONS, np.full(len(EVALUATIONS), settings.get("loss", 1.7))
    found["model/input_std"] = LOOKS, np.full(len(LOOKS), settings.get("scale", 0.99))
    most = np.full(len(LOOKS), 1e-6)
    most[1] = settings.get("most", 1e-6)
    found["model/input_rows_off_most"] = LOOKS, most
    found["model/eval_input_rows_off"] = EVALUATIONS + 1, np.full(len(EVALUATIONS), settings.get("theirs", 0.34))
    assert ("rows_standardised" in warned(found, rows)) == told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, True),
        ({"worse": 1.05}, False),  # nearly as good as the training
        ({"lows": 0.001}, False),  # of less contrast: no black that many share
        ({"high": 2.0}, False),  # as wide
        ({"std": 0.6}, False),
        ({"classes": math.nan}, False),  # noise may be what is trained on
        ({"ours": 0.45}, False),  # not normalised
    ],
)
def test_full_pictures_in_a_range_much_narrower_than_that_of_the_training(change: dict[str, float], told: bool) -> None:
    its = {"worse": 1.2, "lows": 0.03, "high": 0.5, "std": 0.27, "classes": 0.3, "ours": 1.0} | change
    dice = np.random.default_rng(1)
    found = {"loss": every(FALLS), "eval_loss": (EVALUATIONS, its["worse"] * FALLS[EVALUATIONS])}
    found["model/top_target_share"] = LOOKS, np.full(len(LOOKS), its["classes"])
    ours = {"mean": 0.0, "std": its["ours"], "low": -2.0, "high": 2.3, "lows": 0.001, "highs": 0.001}
    theirs = {"mean": -0.14, "std": its["std"], "low": -0.5, "high": its["high"], "lows": its["lows"], "highs": 0.02}
    for name, value in ours.items():
        spread = dice.uniform(0.8, 1.15, len(LOOKS)) if name == "std" else 1.0  # it mixes pictures
        found[f"model/input_{name}"] = LOOKS, value * spread * np.ones(len(LOOKS))
        found[f"model/eval_input_{name}"] = EVALUATIONS + 1, np.full(len(EVALUATIONS), theirs[name])
    assert ("evaluation_inputs" in warned(found)) is told


def noisy(middle: float, spread: float) -> np.ndarray:
    return np.asarray(middle + spread * np.random.default_rng(3).uniform(-1, 1, len(LOOKS)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, True),
        ({"low": 0.0, "mean": 0.35}, True),
        ({"high": 0.98}, False),  # not exactly the end of a range
        ({"low": -0.5}, False),
        ({"mean": 0.02}, False),  # clean pictures where the training's are noisy
        ({"mean": 0.02, "red": -0.5}, True),  # one channel says it
        ({"std": 0.6}, False),  # as much contrast as some batches of the training have
        ({"ours": 0.7}, False),  # the training's are not normalised
        ({"past": 0.2}, False),  # they end near the same numbers
    ],
)
def test_pictures_that_were_not_normalised_lie_between_exact_ends(change: dict[str, float], told: bool) -> None:
    its = {"low": -1.0, "high": 1.0, "mean": -0.36, "std": 0.44, "red": 0.0, "ours": 1.0, "past": 1.2} | change
    found = {"loss": every(FALLS), "eval_loss": (EVALUATIONS, 0.9 * FALLS[EVALUATIONS])}
    ours = {"mean": noisy(0.03, 0.1), "std": its["ours"] * noisy(0.95, 0.12), "low": noisy(-1.2 - its["past"], 0.1),
            "high": noisy(1.2 + its["past"], 0.1), "red": noisy(0.0, 0.1)}  # fmt: skip
    theirs = {name: its[name] for name in ("low", "high", "mean", "std", "red")}
    for name, values in ours.items():
        found[f"model/input_{name}"] = LOOKS, values
        found[f"model/eval_input_{name}"] = EVALUATIONS + 1, np.full(len(EVALUATIONS), theirs[name])
    for end in ("lows", "highs"):
        found[f"model/input_{end}"] = LOOKS, np.full(len(LOOKS), 0.0003)
        found[f"model/eval_input_{end}"] = EVALUATIONS + 1, np.full(len(EVALUATIONS), 0.003)
    if change.get("past") == 0.2:
        found["model/input_high"] = LOOKS, noisy(1.1, 0.02)
    assert ("evaluation_pictures" in warned(found)) is told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, True),
        ({"classes": math.nan}, False),  # a series may have grown in the time that is held out
        ({"classes": math.nan, "pairs": 32.0}, True),
        ({"mean": 0.2}, False),  # the mean is that of some batch
        ({"std": 1.2}, True),  # the mean alone, so far away
        ({"mean": 1.6, "std": 1.2}, False),  # the scale nearly is
        ({"mean": 0.9, "std": 2.0}, False),  # of other subjects
        ({"mean": 0.9, "std": 2.0, "low": -3.0}, True),  # of pictures that is much
        ({"ours": 0.8}, False),  # the training's are not normalised
        ({"mean": -2.6, "std": 0.2}, True),
    ],
)
def test_inputs_of_another_mean_and_scale_are_said_though_several_losses_are_one(
    change: dict[str, float], told: bool
) -> None:
    its = {"mean": 2.6, "std": 4.9, "low": math.nan, "classes": 0.2, "pairs": 0.0, "ours": 1.0} | change
    found = {"loss": every(4 * FALLS), "eval_loss": (EVALUATIONS, 2 * FALLS[EVALUATIONS])}
    figures = {"mean": noisy(0.0, 0.3), "std": its["ours"] * noisy(1.0, 0.1), "low": noisy(-2.0, 0.3)}
    for name, values in figures.items():
        found[f"model/input_{name}"] = LOOKS, values
        if its[name] == its[name]:
            found[f"model/eval_input_{name}"] = EVALUATIONS + 1, np.full(len(EVALUATIONS), its[name])
    found["model/top_target_share"] = LOOKS, np.full(len(LOOKS), its["classes"])
    found["model/loss_pairs"] = LOOKS, np.full(len(LOOKS), its["pairs"])
    assert ("evaluation_inputs" in warned(found)) is told
