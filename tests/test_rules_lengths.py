"""Batches that come by length, told from the tokens that are logged of each step."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found as findings_of

from barograph.doctor.rules.data.lengths import SortedLengths

STEP = np.arange(150)
LOOKS = np.array([*range(8), *range(17, 150, 10)])


def tokens(kind: str) -> np.ndarray:
    epoch = 32.0 * (2 + np.arange(50) // 4)
    dice = np.random.default_rng(3)
    if kind == "pieces":  # sorted within pieces of shuffled rows: other ones in each
        return np.concatenate([np.sort(epoch + 32 * dice.integers(0, 4, 50)) for _ in range(3)])
    if kind == "shuffled":
        return np.concatenate([dice.permutation(epoch) for _ in range(3)])
    return np.tile(np.cumsum(epoch) if kind == "of the epoch so far" else epoch, 3)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 150, 7))])
@pytest.mark.parametrize(
    ("kind", "rows", "config", "told"),
    [
        ("sorted", 32, {}, True),
        ("sorted", 32, {"curriculum": "length"}, False),
        ("sorted", None, {}, False),  # batches grow
        ("of the epoch so far", 32, {}, False),
        ("pieces", 32, {}, False),
        ("shuffled", 32, {}, False),
    ],
)
def test_batches_by_length_are_told_by_their_tokens(
    kind: str, rows: int | None, config: dict[str, str], told: bool, pieces: tuple[int, ...]
) -> None:
    counts = tokens(kind)
    targets = tokens("sorted") if kind == "of the epoch so far" else counts
    columns = {
        "train/loss": (STEP, 3.0 / (1 + STEP / 50)),
        "train/step_tokens": (STEP, counts),
        "model/targets": (LOOKS, targets[LOOKS]),
        "model/example_rows": (LOOKS, np.full(len(LOOKS), 32.0) if rows else counts[LOOKS] / 2),
        "model/rows_again": (LOOKS[LOOKS > 50], np.ones((LOOKS > 50).sum())),
    }
    found = findings_of([SortedLengths()], columns, pieces, config=config)
    assert [one.step for one in found] == [0] * told
    assert not told or found[0].causes == ["data sorted: by length, short ones first"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [("sorted each time", True), ("pieces of others", False), ("a plan of lengths", False), ("one length each", True)],
)
def test_examples_by_length_in_each_pass_are_told_though_each_is_masked_anew(kind: str, told: bool) -> None:
    dice = np.random.default_rng(4)
    rows = np.sort(dice.integers(9, 23, 50 * 24)).reshape(50, 24).mean(1)
    columns = {
        "train/loss": (STEP, 3.0 / (1 + STEP / 50)),
        "data/length_mean": (
            STEP,
            np.tile(np.repeat(np.arange(9.0, 19.0), 5) if kind == "a plan of lengths" else rows, 3),
        ),
        "model/example_rows": (LOOKS, np.full(len(LOOKS), 24.0)),
        "model/rows_again": (LOOKS[1:], np.full(len(LOOKS) - 1, 0.04)),  # masks differ
    }
    if kind == "one length each":  # as many batches of it as there are
        often = [6, 14, 3, 9, 2, 7, 9]
        columns["data/length_mean"] = STEP, np.tile(np.repeat(np.arange(8.0, 15.0), often), 3)
    if kind == "pieces of others":
        passes = [np.sort(dice.integers(9, 23, 50 * 24)).reshape(50, 24).mean(1) for _ in range(3)]
        columns["data/length_mean"] = STEP, np.concatenate(passes)
    found = findings_of([SortedLengths()], columns)
    assert [one.step for one in found] == [0] * told


def lengths(kind: str) -> np.ndarray:
    """Of each batch, in one pass to the end of the run."""
    dice = np.random.default_rng(5)
    stays = {"as often": [10] * 15, "plan that slows": [2, 3, 4, 5, 7, 9, 12, 15, 20, 25, 48], "texts": [
        11, 15, 6, 4, 10, 17, 22, 22, 9, 7, 9, 18]}  # fmt: skip
    if kind in stays:
        return np.repeat(np.arange(16.0, 16 + len(stays[kind])), stays[kind])
    rows = np.sort(dice.integers(16, 26, 150 * 8)).reshape(150, 8).mean(1)
    return rows if kind == "mixed" else dice.permutation(rows)


@pytest.mark.parametrize("pieces", [(), (20, 77, 140)])
@pytest.mark.parametrize(
    ("kind", "says"),
    [("mixed", True), ("texts", True), ("as often", False), ("plan that slows", False), ("shuffled", False)],
)
def test_batches_by_length_that_never_begin_anew_are_told_where_no_plan_makes_them(
    kind: str, says: bool, pieces: tuple[int, ...]
) -> None:
    columns = {"train/loss": (STEP, 3.0 / (1 + STEP / 50)), "data/length_mean": (STEP, lengths(kind))}
    found = findings_of([SortedLengths()], columns, pieces)
    assert [one.causes for one in found] == [["data sorted: by length, short ones first"]] * says


@pytest.mark.parametrize(("noise", "says"), [(0.6, True), (6.0, False)])
def test_lengths_that_rise_in_nearly_all_pairs_of_looks_are_in_order(noise: float, says: bool) -> None:
    dice = np.random.default_rng(7)
    means = 6 + 0.08 * LOOKS + dice.normal(0, noise, len(LOOKS))
    columns = {
        "train/loss": (STEP, 3.0 / (1 + STEP / 50)),
        "model/input_length_mean": (LOOKS, means),
        "model/input_length_std": (LOOKS, np.full(len(LOOKS), 3.0)),
        "model/example_rows": (LOOKS, np.full(len(LOOKS), 16.0)),
    }
    assert bool(findings_of([SortedLengths()], columns)) == says


@pytest.mark.parametrize("pieces", [(), (20, 77, 140)])
@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"train_sampling_strategy": "sequential"}, True),
        ({"shuffle": False}, True),
        ({"shuffle": True}, False),
        ({}, False),  # they may be planned
        ({"shuffle": False, "curriculum": "length"}, False),
    ],
)
def test_one_length_after_another_is_an_order_where_nothing_is_shuffled(
    config: dict[str, str | bool], says: bool, pieces: tuple[int, ...]
) -> None:
    columns = {
        "train/loss": (STEP, 3.0 / (1 + STEP / 50)),
        "model/input_length_mean": (LOOKS, 9.0 + 2 * (LOOKS // 30)),
        "model/input_length_std": (LOOKS, np.zeros(len(LOOKS))),
        "model/example_rows": (LOOKS, np.full(len(LOOKS), 16.0)),
    }
    found = findings_of([SortedLengths()], columns, pieces, config=config)
    assert [one.causes for one in found] == [["data sorted: by length, short ones first"]] * says


@pytest.mark.parametrize(
    ("kind", "told"),
    [("fall again", True), ("shuffled", False), ("other rows", False), ("once", False)],
)
def test_lengths_that_are_nearly_the_same_are_told_by_how_they_begin_anew(kind: str, told: bool) -> None:
    dice = np.random.default_rng(5)
    epoch = np.round(np.linspace(21, 16, 30) * 8) / 8
    passes = {
        "fall again": [epoch] * 5,
        "shuffled": [dice.permutation(epoch) for _ in range(5)],
        "other rows": [-np.sort(-np.round((epoch + dice.normal(0, 0.3, 30)) * 8) / 8) for _ in range(5)],
        "once": [epoch, *(dice.permutation(epoch) for _ in range(4))],  # short ones first, to begin with
    }[kind]
    columns = {"train/loss": (STEP, 3.0 / (1 + STEP / 50)), "data/length_mean": (STEP, np.concatenate(passes))}
    for pieces in ((), tuple(range(0, 150, 7))):
        assert [one.step for one in findings_of([SortedLengths()], columns, pieces)] == [0] * told


@pytest.mark.parametrize(("stages", "says"), [(3, False), (12, True)])
def test_a_few_lengths_one_behind_the_other_are_the_stages_of_a_plan(stages: int, says: bool) -> None:
    dice = np.random.default_rng(8)
    stage = np.arange(len(LOOKS)) * stages // len(LOOKS)
    ends = dice.random(len(LOOKS)) < 0.2  # a row that ends in what looks like padding
    columns = {
        "train/loss": (STEP, 3.0 / (1 + STEP / 50)),
        "model/input_length_mean": (LOOKS, 24.0 * (1 + stage) - 0.1 * ends),
        "model/input_length_std": (LOOKS, 0.5 * ends),
        "model/example_rows": (LOOKS, np.full(len(LOOKS), 32.0)),
    }
    assert bool(findings_of([SortedLengths()], columns)) == says
