"""Batches that come by groups of classes, as from files that hold some each: what says so, and what looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.data.order import SortedTargets
from barograph.probes.model.classes import ClassCounts

LOOKS = np.array([*range(8), *range(10, 240, 10)])  # of a watch: the first eight steps, and each tenth
CLASSES, EPOCH = 8, 40


def looked(batch_at: Any, rows: int) -> dict[str, Any]:
    """What the watch says of batches of targets at the steps of its looks."""
    seen, said = ClassCounts(), {}
    for step in LOOKS.tolist():
        counts = np.bincount(batch_at(step, np.random.default_rng(step), rows), minlength=CLASSES)
        said[step] = seen.fields_of({"classes": ((), np.stack([counts, counts]).astype(float))})
        said[step] |= {"targets": float(rows), "top_target_share": counts.max() / rows,
                       "top_target": float(counts.argmax())}  # fmt: skip
    columns: dict[str, Any] = {}
    for name in {name for found in said.values() for name in found}:
        some = [(step, found[name]) for step, found in said.items() if name in found]
        columns[f"model/{name}"] = tuple(np.array(one, float) for one in zip(*some, strict=True))
    return columns


def two_files(step: int, dice: Any, rows: int) -> Any:
    return dice.integers(0, 4, rows) + 4 * (step % EPOCH >= 20)


def three_files_of_unequal_size(step: int, dice: Any, rows: int) -> Any:
    at = step % EPOCH
    return dice.integers(0, 3, rows) if at < 24 else dice.integers(3, 6, rows) if at < 34 else dice.integers(6, 8, rows)


@pytest.mark.parametrize("rows", [8, 32])
@pytest.mark.parametrize(("batch", "since"), [(two_files, 20), (three_files_of_unequal_size, 30)])
def test_batches_that_come_by_groups_of_classes_are_found_once_they_come_again(
    batch: Any, since: int, rows: int
) -> None:
    (found,) = findings([SortedTargets()], looked(batch, rows)).values()
    assert found.severity == "warning" and found.causes[0].startswith("data sorted") and found.step == since
    assert found.found >= EPOCH


def one_class_after_another(step: int, dice: Any, rows: int) -> Any:
    later = (4, 5, 6, 0, 0, 0, 0)  # by group at step 60, by class at step 80
    return np.full(rows, step // 2 if step < 8 else later[step // 10 - 1] if step < 80 else 1)


@pytest.mark.parametrize("cuts", [range(240), [9, 20, 31, 120]])
def test_which_of_two_series_says_it_first_is_the_same_while_it_trains_and_later(cuts: Any) -> None:
    columns = looked(one_class_after_another, 16)
    (whole,), (pieces,) = (findings([SortedTargets()], columns, **one).values() for one in ({}, {"cuts": cuts}))
    assert whole.message == pieces.message and (whole.step, whole.found) == (pieces.step, pieces.found)


def shuffled(step: int, dice: Any, rows: int) -> Any:
    return dice.integers(0, CLASSES, rows)


def long_tail(step: int, dice: Any, rows: int) -> Any:
    return dice.choice(CLASSES, rows, p=np.array([64, 16, 8, 5, 3, 2, 1, 1]) / 100)


def some_classes_a_batch(step: int, dice: Any, rows: int) -> Any:
    return dice.choice(dice.permutation(CLASSES)[:2], rows)


def new_classes_come_once(step: int, dice: Any, rows: int) -> Any:
    return dice.integers(0, 4, rows) + 4 * (step >= 100)


def classes_are_added(step: int, dice: Any, rows: int) -> Any:
    return dice.integers(0, 4 if step < 100 else 8, rows)


@pytest.mark.parametrize("rows", [8, 32])
@pytest.mark.parametrize("batch", [shuffled, long_tail, some_classes_a_batch, new_classes_come_once, classes_are_added])
def test_shuffled_batches_and_plans_of_classes_are_not_sorted(batch: Any, rows: int) -> None:
    assert not findings([SortedTargets()], looked(batch, rows))


@pytest.mark.parametrize("batch", [two_files, shuffled])
def test_batches_of_a_few_targets_say_nothing_of_groups(batch: Any) -> None:
    assert not findings([SortedTargets()], looked(batch, 4))


def given_to_the_model(batch_at: Any, targets: bool = False) -> dict[str, Any]:
    """What the watch says of the classes that a model is given, without any of targets."""
    rows = [batch_at(step, np.random.default_rng(step), 32) for step in LOOKS.tolist()]
    tops = [np.bincount(row, minlength=CLASSES).argmax() for row in rows]
    shares = [float((row == top).mean()) for row, top in zip(rows, tops, strict=True)]
    found = {"input_class": np.array(tops, float), "input_class_share": np.array(shares)}
    return {f"model/{name}": (LOOKS, values) for name, values in found.items()} | (
        {"model/top_target_share": (LOOKS[:1], np.array([0.2]))} if targets else {}
    )


def class_after_class(step: int, dice: Any, rows: int) -> Any:
    return np.full(rows, step % EPOCH // 10)


def class_drawn_for_each_batch(step: int, dice: Any, rows: int) -> Any:
    return np.full(rows, dice.integers(0, CLASSES))


def one_class_ends_early(step: int, dice: Any, rows: int) -> Any:
    return class_after_class(step + 4, dice, rows)


@pytest.mark.parametrize("batch", [class_after_class, one_class_ends_early])
@pytest.mark.parametrize("cuts", [(), range(240)])
def test_classes_that_a_model_is_given_one_after_the_other_are_sorted(cuts: Any, batch: Any) -> None:
    (found,) = findings([SortedTargets()], given_to_the_model(batch), cuts=cuts).values()
    assert found.severity == "warning" and found.message.startswith("Most examples of a batch are of one class")


def of_long_classes(step: int, dice: Any, rows: int) -> Any:
    """Four classes of four batches each, but for some rows on both sides of a border: it stays in six of seven."""
    return ((step + 4) * rows + np.arange(rows) + rows // 4) // (4 * rows) % 4


def mixed_at_random(step: int, dice: Any, rows: int) -> Any:
    """The same, each batch drawn by itself."""
    return of_long_classes(int(dice.integers(0, 16)), dice, rows)


def test_classes_that_follow_each_other_within_a_batch_are_sorted_by_less_proof() -> None:
    (found,) = findings([SortedTargets()], given_to_the_model(of_long_classes)).values()
    assert found.severity == "warning"
    assert not findings([SortedTargets()], given_to_the_model(mixed_at_random))


def one_of_two_classes(step: int, dice: Any, rows: int) -> Any:
    return np.full(rows, dice.integers(0, 2))


@pytest.mark.parametrize(
    "batch", [class_drawn_for_each_batch, one_of_two_classes, shuffled, lambda step, dice, rows: np.full(rows, 3)]
)
def test_a_class_that_is_drawn_for_each_batch_and_shuffled_ones_are_not_sorted(batch: Any) -> None:
    assert not findings([SortedTargets()], given_to_the_model(batch))
    assert not findings([SortedTargets()], given_to_the_model(class_after_class, targets=True))


def through_a_buffer(step: int, dice: Any, rows: int) -> Any:
    """Five classes, file after file, in a buffer of some more rows than a batch has."""
    most = (step + 4) % EPOCH // 8
    return np.where(np.arange(rows) < 0.65 * rows, most, (most + 1) % 5)


def with_rows(columns: dict[str, Any], of_targets: bool = False) -> dict[str, Any]:
    columns = columns | {"model/example_rows": (LOOKS, np.full(len(LOOKS), 32.0))}
    if of_targets:
        names = {"model/input_class": "model/top_target", "model/input_class_share": "model/top_target_share"}
        columns = {names.get(name, name): value for name, value in columns.items() if name not in names.values()}
        columns |= {"model/targets": (LOOKS, np.full(len(LOOKS), 32.0))}
    return columns


@pytest.mark.parametrize("of_targets", [False, True])
@pytest.mark.parametrize("cuts", [(), range(240)])
def test_classes_that_a_small_buffer_mixes_are_sorted(of_targets: bool, cuts: Any) -> None:
    columns = with_rows(given_to_the_model(through_a_buffer), of_targets)
    (found,) = findings([SortedTargets()], columns, cuts=cuts).values()
    assert found.severity == "warning" and "buffer" in found.causes[0]
    curriculum = findings([SortedTargets()], columns, cuts=cuts, facts={"config": {"curriculum": True}})
    assert not curriculum


def drawn_anew_for_each_batch(step: int, dice: Any, rows: int) -> Any:
    return np.where(dice.random(rows) < 0.6, dice.integers(0, CLASSES), dice.integers(0, CLASSES, rows))


def two_that_take_turns(step: int, dice: Any, rows: int) -> Any:
    return dice.choice(CLASSES, rows, p=np.array([50, 40, 3, 2, 2, 1, 1, 1]) / 100)


@pytest.mark.parametrize("of_targets", [False, True])
@pytest.mark.parametrize("batch", [drawn_anew_for_each_batch, two_that_take_turns, shuffled, long_tail,
                                   some_classes_a_batch, new_classes_come_once])  # fmt: skip
def test_classes_that_a_plan_or_chance_makes_frequent_are_not_sorted(batch: Any, of_targets: bool) -> None:
    assert not findings([SortedTargets()], with_rows(given_to_the_model(batch), of_targets))


@pytest.mark.parametrize(
    ("rows", "share", "says"), [(24, 0.6, False), (24, 0.65, True), (8, 0.7, False), (8, 0.74, False), (7, 1.0, False)]
)
def test_how_far_beyond_chance_a_class_must_be(rows: int, share: float, says: bool) -> None:
    tops = np.where(LOOKS < 8, 0, LOOKS // 10 % 4)
    columns = {"model/input_class": tops, "model/input_class_share": 0 * tops + share,
               "model/example_rows": 0 * tops + rows, "model/top_target": tops}  # fmt: skip
    columns |= {"model/top_target_share": columns["model/input_class_share"]}  # of an unknown number
    found = findings([SortedTargets()], {name: (LOOKS, one.astype(float)) for name, one in columns.items()})
    assert not any("buffer" in one.causes[0] for one in found.values())
    del columns["model/top_target"], columns["model/top_target_share"]
    found = findings([SortedTargets()], {name: (LOOKS, one.astype(float)) for name, one in columns.items()})
    assert any("buffer" in one.causes[0] for one in found.values()) == says


SPARSE = np.array([1, 2, 3, 4, 5, 6, 7, 8, 18, 25, 32, 49, 56, 63, 80, 87, 94, 101, 118, 125, 132, 149, 156])


def in_epochs_of_31(step: int) -> int:
    return (step - 1) % 31 // 5


def drawn_for_each_batch(step: int) -> int:
    return int(np.random.default_rng(step).integers(0, 6))


def in_turn(step: int) -> int:
    return step % 6


@pytest.mark.parametrize("cuts", [(), range(24)])
@pytest.mark.parametrize(("class_at", "told"), [(in_epochs_of_31, 1), (drawn_for_each_batch, 0), (in_turn, 0)])
def test_classes_that_come_back_after_an_epoch_are_sorted_though_few_batches_are_looked_at(
    cuts: Any, class_at: Any, told: int
) -> None:
    """Some rows have no class, as those of which the condition is left out."""
    tops = np.array([class_at(step) for step in SPARSE.tolist()], float)
    columns = {"model/input_class": (SPARSE, tops), "model/input_class_share": (SPARSE, 0.89 + 0 * tops)}
    assert len(findings([SortedTargets()], columns, cuts=cuts)) == told
