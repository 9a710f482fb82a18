"""Batches whose examples are alike: what says so, and what looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings
from test_rules_same_order import LOOKS, drawn_anew, fixed, looked

from barograph.doctor.rules.data.alike import SortedExamples
from barograph.doctor.rules.data.overlaps import EvaluationOverlaps


@pytest.mark.parametrize(
    ("batches", "apart", "different", "says"),
    [
        (fixed(6), 0.6, 9.0, True),
        (fixed(6), 0.2, 9.0, False),  # shuffled once
        (fixed(6), 0.6, 4.0, False),
        (drawn_anew(7), 0.9, 9.0, False),  # groups in another order
        (fixed(1000), 0.9, 9.0, False),  # a stream
        (lambda step: np.arange(8), 0.9, 9.0, False),
    ],
)
@pytest.mark.parametrize("cuts", [(), (3, 50, 90)])
def test_one_order_of_batches_that_are_alike_is_a_warning(
    batches: Any, apart: float, different: float, says: bool, cuts: tuple[int, ...]
) -> None:
    columns = looked(batches)
    columns["model/rows_apart"] = LOOKS, np.full(len(LOOKS), apart)
    columns["model/apart_batches"] = LOOKS, np.full(len(LOOKS), different)
    found = findings([SortedExamples()], columns, cuts=cuts)
    assert [one.causes[0][:11] for one in found.values()] == ["data sorted"] * says


@pytest.mark.parametrize(
    ("apart", "pairs", "batches", "rows", "says"),
    [(0.25, 32, 14, 32, True), (0.25, 0, 14, 32, False), (0.25, 32, 8, 32, False), (0.25, 32, 14, 8, False),
     (0.1, 32, 14, 32, False)],
)  # fmt: skip
def test_one_order_harms_a_loss_of_pairs_where_batches_are_less_alike(
    apart: float, pairs: float, batches: float, rows: float, says: bool
) -> None:
    names = {"rows_apart": apart, "apart_batches": batches, "loss_pairs": pairs, "example_rows": rows,
             "distinct_rows": 400.0}  # fmt: skip
    columns = looked(fixed(6)) | {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in names.items()}
    assert bool(findings([SortedExamples()], columns)) == says


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, True),
        ({"wording_apart": 0.04}, False),  # shuffled once
        ({"wording_beside": 0.6}, False),  # a batch is made of one kind, in an order that is drawn
        ({"wording_batches": 11.0}, False),
        ({"loss_pairs": 0.0}, False),
        ({"example_rows": 8.0}, False),
    ],
)
def test_texts_that_come_by_what_they_are_about_harm_a_loss_of_pairs(changed: dict[str, float], says: bool) -> None:
    names = {"wording_apart": 0.05, "wording_batches": 12.0, "wording_beside": 0.5, "loss_pairs": 16.0,
             "example_rows": 16.0, "distinct_rows": 400.0} | changed  # fmt: skip
    columns = looked(fixed(6)) | {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in names.items()}
    assert len(findings([SortedExamples()], columns)) == says
    anew = looked(drawn_anew(7)) | {name: column for name, column in columns.items() if "wording" in name}
    assert not findings([SortedExamples()], anew | {"model/loss_pairs": columns["model/loss_pairs"]})


@pytest.mark.parametrize(
    ("even", "pairs", "batches", "says"),
    [(0.4, 32.0, 14.0, True), (0.1, 32.0, 14.0, False), (0.4, 0.0, 14.0, False), (0.4, 32.0, 8.0, False)],
)
@pytest.mark.parametrize("period", [20.0, 0.0])
def test_a_loss_of_pairs_needs_no_examples_that_come_again(
    even: float, pairs: float, batches: float, says: bool, period: float
) -> None:
    says = says and period > 0  # else groups are drawn for each batch
    names = {"rows_apart_even": even, "rows_apart": 0.6, "apart_batches": batches, "loss_pairs": pairs}
    names["apart_period"] = period
    columns: dict[str, Any] = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in names.items()}
    found = findings([SortedExamples()], columns)
    assert len(found) == says
    rewarded = columns | {"rollout/ep_rew_mean": (LOOKS, np.arange(len(LOOKS)))}
    assert not findings([SortedExamples()], rewarded)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, True),
        ({"rows_apart_even": 0.14}, False),
        ({"rows_apart": 0.29}, False),
        ({"apart_period": 0.0}, False),  # shuffled, or groups that are drawn for each batch
        ({"apart_batches": 15.0}, False),
        ({"example_rows": 15.0}, False),  # chance gives more
        ({"time_high": np.nan}, False),  # no model of denoising
        ({"time_high": 0.1}, False),  # one time for all
        ({"state_carried": 1.0}, False),  # streams
    ],
)
def test_examples_that_are_noised_are_known_to_be_sorted_by_what_is_left_of_them(
    changed: dict[str, float], says: bool
) -> None:
    names = {"rows_apart_even": 0.15, "rows_apart": 0.3, "apart_batches": 16.0, "apart_period": 20.0,
             "example_rows": 16.0, "time_low": 0.1, "time_high": 0.9} | changed  # fmt: skip
    columns: dict[str, Any] = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in names.items()}
    for cuts in ((), (3, 50, 90)):
        found = findings([SortedExamples()], columns, cuts=cuts)
        assert [one.causes[0][:11] for one in found.values()] == ["data sorted"] * says


@pytest.mark.parametrize(
    ("changed", "after", "says"),
    [
        ({}, [22.0] * 40, True),
        ({"rows_apart_even": 0.09}, [22.0] * 40, False),  # shuffled once
        ({"rows_apart": 0.29}, [22.0] * 40, False),
        ({"apart_beside": 0.51}, [22.0] * 40, False),  # of batches of one group each, or what is drawn for each
        ({"apart_batches": 15.0}, [22.0] * 40, False),
        ({"example_rows": 15.0}, [22.0] * 40, False),
        ({"state_carried": 1.0}, [22.0] * 40, False),
        ({}, [7.0] * 40, False),
        ({}, [22.0] * 15, False),
        ({}, [22.0, 21.0] * 20, False),  # fixed batches in an order that is drawn
    ],
)
def test_augmented_examples_are_known_to_be_sorted_by_batches_that_the_watch_of_data_knows_again(
    changed: dict[str, float], after: list[float], says: bool
) -> None:
    names = {"rows_apart_even": 0.1, "rows_apart": 0.3, "apart_batches": 16.0, "apart_beside": 0.5,
             "example_rows": 16.0} | changed  # fmt: skip
    columns: dict[str, Any] = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in names.items()}
    columns["data/repeats_after"] = np.arange(22, 22 + len(after)), np.array(after)
    for cuts in ((), (3, 25, 41)):
        found = findings([SortedExamples()], columns, cuts=cuts)
        assert [one.causes[0][:11] for one in found.values()] == ["data sorted"] * says
    assert not findings([SortedExamples()], columns, facts={"config": {"curriculum": True}})


STREAM = {"input_length_std": 0.0, "targets": 512.0}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, True),
        ({"beyond": 0.39}, False),  # shuffled once
        ({"beside": 0.81}, False),  # batches of one group each, or two views of each example
        ({"batches": 11.0}, False),
        ({"example_rows": 7.0}, False),
        ({"state_carried": 1.0}, False),  # streams
        ({"rollout/ep_rew_mean": 1.0}, False),
    ],
)
@pytest.mark.parametrize("of", ["apart", "wording"])
@pytest.mark.parametrize("by", ["data", "model"])
def test_batches_in_one_order_that_have_something_in_common_are_a_warning(
    changed: dict[str, float], says: bool, of: str, by: str
) -> None:
    names = {"beyond": 0.4, "beside": 0.8, "batches": 12.0, "example_rows": 8.0} | changed
    columns: dict[str, Any] = looked(fixed(9)) if by == "model" else {}
    for name, value in names.items():
        one = f"{of}_{name}" if name in ("beyond", "beside", "batches") else name
        columns[one if "/" in one else f"model/{one}"] = LOOKS, np.full(len(LOOKS), value)
    if by == "data":
        columns["data/repeats_after"] = np.arange(22, 62), np.full(40, 22.0)
    for cuts in ((), (3, 25, 41)):
        found = findings([SortedExamples()], columns, cuts=cuts)
        assert [one.causes[0][:11] for one in found.values()] == ["data sorted"] * says
    assert not findings([SortedExamples()], columns, facts={"config": {"curriculum": True}})


@pytest.mark.parametrize(
    ("changed", "jumps", "says"),
    [
        (STREAM, 0, False),  # one text, which is read from its beginning
        (STREAM, 4, True),  # one source behind the other, each of which the model forgets
        (STREAM | {"input_length_std": 2.0}, 0, True),  # texts by themselves
        (STREAM | {"targets": 16.0}, 0, True),  # an answer each
        (STREAM | {"ignored_inside": 16.0}, 0, True),  # several texts in each row
        (STREAM | {"eval_opens_with": 1.0}, 0, True),  # each row is a text, behind a token of its own
        (STREAM | {"eval_opens_with": -1.0}, 0, False),
        (STREAM | {"eval_opens_with": 1.0, "wording_beside": 0.6}, 0, False),
        (STREAM | {"ignored_inside": 3.0}, 0, False),  # a chapter begins now and then
        (STREAM | {"ignored_inside": 16.0, "wording_beside": 0.6}, 0, False),
        (STREAM | {"ignored_inside": 16.0, "wording_beside": 1.0, "wording_beyond": 0.15}, 0, False),  # shuffled once
        (STREAM | {"ignored_inside": 16.0, "state_carried": 1.0}, 0, False),
    ],
)
def test_a_text_that_is_read_from_its_beginning_is_in_order_on_purpose(
    changed: dict[str, float], jumps: int, says: bool
) -> None:
    names = {"wording_beyond": 0.9, "wording_beside": 0.1, "wording_batches": 12.0, "example_rows": 16.0} | changed
    columns: dict[str, Any] = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in names.items()}
    columns["data/repeats_after"] = np.arange(60, 160), np.full(100, 60.0)
    steps = np.arange(160)
    columns["loss"] = steps, np.where(steps % 15 < 1.5 * jumps, 3.0, 1.0)
    assert bool(findings([SortedExamples()], columns)) == says


SORTED = np.repeat([20.0, 14.0, 17.0, 11.0, 15.0], 8)  # lengths of an epoch of five sources
DEALT = np.random.default_rng(0).permutation(SORTED)  # each batch of one, in an order that is drawn once


@pytest.mark.parametrize(
    ("lengths", "std", "config", "says"),
    [
        (SORTED, 2.0, {}, True),
        (np.linspace(10, 20, 40), 2.0, {}, True),
        (DEALT, 2.0, {}, False),
        (SORTED, 12.0, {}, False),  # rows of a batch vary as much
        (SORTED, 2.0, {"group_by_length": True}, False),
        (np.full(40, 16.0), 0.0, {}, False),
        (np.repeat([20.0, 14.0], 5), 2.0, {}, False),  # a short epoch
    ],
)
def test_lengths_tell_that_sources_come_one_behind_the_other(
    lengths: Any, std: float, config: dict[str, Any], says: bool
) -> None:
    period, steps = len(lengths), np.arange(3 * len(lengths))
    columns: dict[str, Any] = {
        "data/length_mean": (steps, np.tile(lengths, 3)),
        "data/length_std": (steps, np.full(len(steps), std)),
        "data/sequences": (steps, np.full(len(steps), 16.0)),
        "data/repeats_after": (steps[period:], np.full(2 * period, float(period))),
        "model/example_rows": (LOOKS, np.full(len(LOOKS), 16.0)),
    }
    without = {name: rows for name, rows in columns.items() if name != "data/repeats_after"}
    without["data/repeat_of"] = steps[period:], steps[:-period].astype(float)  # no epochs are given
    for cuts, seen in (((), columns), ((3, 50, 90), columns), ((), without), ((3, 50, 90), without)):
        found = findings([SortedExamples()], seen, cuts=cuts, facts={"config": config})
        assert [one.causes[0][:11] for one in found.values()] == ["data sorted"] * says


@pytest.mark.parametrize(
    ("changed", "config", "says"),
    [
        ({}, {}, True),
        ({"blocks": 3.0}, {}, False),
        ({"beyond": 0.79}, {}, False),
        ({"batches": 15.0}, {}, False),
        ({"example_rows": 15.0}, {}, False),
        ({"state_carried": 1.0}, {}, False),
        ({"rollout/ep_rew_mean": 1.0}, {}, False),
        ({"ratio_clip": 0.2}, {}, False),  # a policy's
        ({"task_id": 1.0}, {}, False),  # in stages
        ({}, {"setting": "online_learning"}, False),
        ({}, {"curriculum": True}, False),
        ({}, {"streaming": True}, False),
    ],
)
@pytest.mark.parametrize("of", ["apart", "wording"])
def test_blocks_of_batches_that_are_alike_need_no_second_epoch(
    changed: dict[str, float], config: dict[str, Any], says: bool, of: str
) -> None:
    names = {"blocks": 4.0, "beyond": 0.8, "batches": 16.0, "example_rows": 16.0} | changed
    columns: dict[str, Any] = {}
    for name, value in names.items():
        one = f"{of}_{name}" if name in ("blocks", "beyond", "batches") else name
        columns[one if "/" in one or one == "task_id" else f"model/{one}"] = LOOKS, np.full(len(LOOKS), value)
    for cuts in ((), (3, 25, 41)):
        found = findings([SortedExamples()], columns, cuts=cuts, facts={"config": config})
        assert [one.causes[0][:11] for one in found.values()] == ["data sorted"] * says
    read_on = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in STREAM.items()}
    if of == "wording":
        assert not findings([SortedExamples()], columns | read_on)


@pytest.mark.parametrize(
    ("blocks", "rise", "config", "says"),
    [
        (3.0, 1.7, {}, True),
        (2.0, 1.7, {}, False),
        (3.0, 1.2, {}, False),
        (3.0, 1.0, {}, False),  # the loss does not know of them
        (3.0, 1.7, {"curriculum": True}, False),
    ],
)
def test_three_blocks_of_a_text_that_may_be_read_on_need_a_loss_that_jumps(
    blocks: float, rise: float, config: dict[str, Any], says: bool
) -> None:
    names = {"wording_blocks": blocks, "wording_beyond": 0.9, "wording_batches": 16.0, "example_rows": 8.0}
    columns: dict[str, Any] = {
        f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in (names | STREAM).items()
    }
    steps = np.arange(int(LOOKS[-1]) + 8)
    part = len(steps) // 5
    columns["train/loss"] = steps, 2.0 + 2.0 * (rise - 1) * (1 - (steps % part) / part) * (steps >= part)
    for cuts in ((), (3, 25, 41)):
        found = findings([SortedExamples()], columns, cuts=cuts, facts={"config": config})
        assert [one.causes[0][:11] for one in found.values()] == ["data sorted"] * says


@pytest.mark.parametrize(
    ("near", "passes", "width", "says"),
    [
        (0.5, 1.0, 10.0, True),
        (0.1, 1.0, 10.0, False),  # few, as pictures that a collection has twice
        (0.5, 0.5, 10.0, False),  # the training's examples are evaluated, too
        (0.5, 1.0, 100.0, False),  # classes of few examples, each near each other
    ],
)
@pytest.mark.parametrize(
    ("groups", "pictures", "pairs", "labels", "config", "meant"),
    [
        (0.0, 0, 0, True, {}, False),
        (0.8, 0, 0, False, {}, True),  # as months of a customer, of which the next one is told
        (0.8, 0, 0, True, {}, False),
        (0.8, 0, 0, True, {"data": {"split": "within subjects"}}, True),
        (0.8, 0, 0, True, {"split": "random"}, False),
        (0.8, 0, 0, True, {"eval_checkpoint": "last"}, False),
        (0.8, 1, 0, True, {}, False),
        (0.8, 1, 32, True, {}, True),
    ],
)
def test_near_copies_in_evaluations_are_a_warning(
    near: float, passes: float, width: float, says: bool, groups: float, pictures: float, pairs: float, labels: bool,
    config: dict[str, Any], meant: bool,
) -> None:  # fmt: skip
    step = np.arange(30, 150, 30)
    names = {
        "evaluated_near": near, "evaluated_near_rows": 64.0, "evaluated_near_passes": passes, "output_width": width,
        "top_target_share": 0.2, "distinct_rows": 900.0, "example_rows": 32.0, "evaluated_near_groups": groups,
        "evaluated_near_pictures": pictures, "loss_pairs": pairs,
    }  # fmt: skip
    if not labels:
        del names["top_target_share"]
        says = says or width > 10  # nothing is known of classes
    columns: dict[str, Any] = {f"model/{name}": (step, np.full(len(step), value)) for name, value in names.items()}
    columns |= {"eval/loss": (step, np.ones(len(step))), "train/loss": np.ones(150)}
    found = findings([EvaluationOverlaps()], columns, facts={"config": config})
    assert [one.causes[0][:15] for one in found.values()] == ["validation leak"] * says
    assert {one.severity for one in found.values()} <= {"info" if meant else "warning"}


@pytest.mark.parametrize(
    ("changed", "after", "says"),
    [
        ({}, (40.0, 80.0), True),
        ({}, (40.0, 50.0), False),  # groups in another order
        ({"apart_beside": 1.0}, (40.0, 80.0), False),  # shuffled once, or groups in an order that is drawn
        ({"apart_beyond": 0.1}, (40.0, 80.0), False),
        ({"example_rows": 8.0}, (40.0, 80.0), False),
        ({}, (4.0, 8.0), False),
    ],
)
@pytest.mark.parametrize("cuts", [(), (3, 50, 90)])
def test_two_large_batches_that_came_again_are_enough_where_neighbours_are_alike(
    changed: dict[str, float], after: tuple[float, float], says: bool, cuts: tuple[int, ...]
) -> None:
    again = np.isin(np.arange(len(LOOKS)), (7, 11)).astype(float)
    names = {"rows_apart": 0.3, "apart_batches": 14.0, "apart_beyond": 0.9, "apart_beside": 0.3,
             "example_rows": 32.0, "distinct_rows": 400.0} | changed  # fmt: skip
    columns: dict[str, Any] = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in names.items()}
    columns["model/batch_again"] = LOOKS[again > 0], np.ones(2)
    columns["model/rows_again"] = LOOKS, again
    columns["model/rows_again_after"] = LOOKS[again > 0], np.array(after)
    assert len(findings([SortedExamples()], columns, cuts=cuts)) == says


@pytest.mark.parametrize(
    ("changed", "config", "says"),
    [
        ({}, {}, True),
        ({"wording_beside": 0.3}, {}, False),  # as groups that come in any order
        ({"wording_beyond": 0.5}, {}, False),
        ({"wording_batches": 12.0}, {}, False),
        ({"example_rows": 8.0}, {}, False),
        ({"input_length_std": 0.0}, {}, False),  # one text may be read on
        ({"input_length_std": 0.0, "loss_ranks": 1.0}, {}, True),  # answers that are compared
        ({}, {"curriculum": True}, False),
        ({}, {"stream": "online"}, False),
    ],
)
@pytest.mark.parametrize("cuts", [(), (3, 25, 41)])
def test_texts_that_come_in_one_line_by_what_they_are_about_are_sorted(
    changed: dict[str, float], config: dict[str, Any], says: bool, cuts: tuple[int, ...]
) -> None:
    names = {"wording_beside": 0.14, "wording_beyond": 0.86, "wording_batches": 18.0, "wording_apart": 0.3,
             "example_rows": 16.0, "input_length_std": 2.0, "targets": 90.0} | changed  # fmt: skip
    columns: dict[str, Any] = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in names.items()}
    columns["train/loss"] = np.ones(int(LOOKS[-1]) + 8)
    found = findings([SortedExamples()], columns, cuts=cuts, facts={"config": config})
    assert [one.causes[0][:11] for one in found.values()] == ["data sorted"] * says
