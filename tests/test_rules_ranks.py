"""Rules over ranks: what must be found, what must not, and the same in pieces of any size."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.core.record import Record
from barograph.doctor.rules.ranks.losses import RankLossStays
from barograph.doctor.rules.ranks.ranks import RULES, MissingRank, RankNonFinite, RanksDrifted, StragglerRank
from barograph.doctor.rules.ranks.shares import SameBatch
from barograph.doctor.rules.ranks.summed import SummedOverRanks


def said(step: int, **fields: object) -> Record:
    return Record("ranks", 0, step, dict(fields))


def test_a_straggler_is_passed_on_and_taken_back_when_it_was_brief() -> None:
    slow = Record(
        "straggler",
        0,
        140,
        {"rank": 2, "recovered": False, "slower_by": 0.35, "since": 110, "host": "a", "device": "cuda:2"},
    )
    (one,) = findings([StragglerRank()], {}, events=[slow]).values()
    assert (one.severity, one.step, one.found, one.key) == ("warning", 110, 140, "2")
    well = Record("straggler", 0, 200, {"rank": 2, "recovered": True, "slower_by": 0.01, "since": 160})
    (one,) = findings([StragglerRank()], {}, events=[slow, well]).values()
    assert one.severity == "info" and "keeps up again" in one.message


@pytest.mark.parametrize(("rank", "takes", "severity"), [(0, 1.0, "info"), (1, 1.0, "warning"), (0, 0.1, "warning")])
def test_a_rank_that_the_watch_makes_slower_is_told_so(rank: int, takes: float, severity: str) -> None:
    fields = {"rank": rank, "recovered": False, "slower_by": 0.2, "since": 0, "window": 40}
    looks = numpy.arange(0, 60, 4)
    columns = {"model/watch_ms": (looks, numpy.full(len(looks), 4 * takes)), "ranks/step_ms/min": numpy.full(60, 5.0)}
    (one,) = findings([StragglerRank()], columns, events=[Record("straggler", 1 << 62, 50, fields)]).values()
    assert one.severity == severity and one.causes[0].startswith("steps too short" if severity == "info" else "rank")


@pytest.mark.parametrize(("waits", "severity"), [(0.0, "warning"), (4.0, "info"), (9.0, "info")])
def test_what_a_rank_takes_longer_is_a_share_of_the_others_own_work(waits: float, severity: str) -> None:
    fields = {"rank": 0, "recovered": False, "slower_by": 1.0, "since": 0, "window": 40}
    columns = {"model/watch_ms": numpy.full(60, 1.0), "ranks/step_ms/min": numpy.full(60, 5.0)}
    columns |= {"ranks/wait_ms/max": numpy.full(60, waits)} if waits else {}
    (one,) = findings([StragglerRank()], columns, events=[Record("straggler", 1 << 62, 50, fields)]).values()
    assert one.severity == severity


def test_parameters_that_differ_are_critical_at_once() -> None:
    events = [said(step, step_ms={}, **({"drift": [1]} if step >= 50 else {})) for step in range(60)]
    (one,) = findings([RanksDrifted()], {}, events=events, facts={"world_size": 4}).values()
    assert (one.severity, one.step, one.found, one.kind) == ("critical", 50, 50, "desync")
    assert one.causes[0].startswith("ranks drifted apart")
    drifted = numpy.zeros(60)
    drifted[50:] = 4
    (one,) = findings([RanksDrifted()], {"ranks/drifted": drifted}, facts={"world_size": 4}).values()
    assert one.step == 50 and one.causes[0].startswith("all-reduce missing")


def norms(first: int) -> dict:
    later = numpy.arange(first, 80)
    return {
        "ranks/norm/mean": noisy(80, 0.5),
        "ranks/norm/min": (later, noisy(len(later), 0.4)),
        "ranks/norm/max": (later, noisy(len(later), 0.6)),
    }


def test_a_norm_that_was_equal_and_differs_is_critical_and_one_that_never_was_is_not() -> None:
    (one,) = only(findings([RanksDrifted()], norms(50)), "ranks_drifted")
    assert (one.severity, one.step, one.found) == ("critical", 50, 51)
    assert one.causes[0].startswith("all-reduce missing")
    assert not findings([RanksDrifted()], norms(0))


def test_a_nan_on_one_rank_is_critical_and_on_all_it_is_not_a_ranks_fault() -> None:
    columns = {
        "ranks/loss/non_finite": ([30, 31], [1.0, 1.0]),
        "ranks/loss/max_rank": (numpy.arange(40), numpy.full(40, 3.0)),
    }
    (one,) = findings([RankNonFinite()], columns, facts={"world_size": 4}).values()
    assert (one.severity, one.step, one.key, one.kind) == ("critical", 30, "3", "nonfinite")
    assert one.causes[0].startswith("NaN on one rank")
    everyone = {"ranks/loss/non_finite": ([30], [4.0])}
    assert not findings([RankNonFinite()], everyone, facts={"world_size": 4})


def test_a_rank_that_sends_nothing_for_long_warns() -> None:
    events = [said(step, step_ms={}, **({"absent": [3]} if step >= 20 else {})) for step in range(60)]
    (one,) = findings([MissingRank()], {}, events=events).values()
    assert (one.severity, one.step, one.found) == ("warning", 20, 35)
    some = [said(step, step_ms={}, **({"absent": [3]} if step % 2 else {})) for step in range(60)]
    assert not findings([MissingRank()], {}, events=some)


def test_ranks_on_the_same_batch_warn_unless_they_split_the_model() -> None:
    events = [said(step, same_batch=[[0, 1]]) for step in range(20)]
    (one,) = findings([SameBatch()], {}, events=events).values()
    assert (one.severity, one.step, one.found) == ("warning", 0, 7)
    assert not findings([SameBatch()], {}, events=events, facts={"config": {"parallel.tensor_parallel_size": 2}})


def test_a_rank_behind_another_one_warns_where_that_is_so_in_eight_steps() -> None:
    events = [said(step, batch_behind=[[1, 0, 2]]) for step in range(3, 20)]
    (one,) = findings([SameBatch()], {}, events=events).values()
    assert (one.severity, one.step, one.found) == ("warning", 3, 10)
    assert "rank 0" in one.message and "one share" in one.causes[0]
    assert not findings([SameBatch()], {}, events=events[:7])
    assert not findings([SameBatch()], {}, events=events, facts={"config": {"parallel.tensor_parallel_size": 2}})
    others = [said(step, batch_behind=[[1, 0, 1 + step % 3]]) for step in range(20)]
    assert not findings([SameBatch()], {}, events=others)


def test_rows_with_the_same_labels_on_all_ranks_warn_unless_examples_are_repeated_on_purpose() -> None:
    events = [said(step, same_labels=[[0, 1]], same_labels_for=step + 1) for step in range(20)]
    (one,) = findings([SameBatch()], {}, events=events).values()
    assert (one.severity, one.found) == ("warning", 7) and "labels" in one.message
    assert not findings([SameBatch()], {}, events=events[:7])
    for config in ({"parallel.tensor_parallel_size": 2}, {"repeated_aug": True}, {"data.n_views": 2}):
        assert not findings([SameBatch()], {}, events=events, facts={"config": config})
    assert findings([SameBatch()], {}, events=events, facts={"config": {"repeated_aug": False, "reviews": 3}})
    rewards = {"train/reward": (numpy.arange(20), numpy.ones(20))}
    assert not findings([SameBatch()], rewards, events=events)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_columns_give_the_same_in_pieces_and_never_raise(seed: int) -> None:
    names = ("ranks/loss/mean", "ranks/loss/min", "ranks/loss/max", "ranks/loss/max_rank", "ranks/loss/non_finite",
             "ranks/norm/mean", "ranks/norm/min", "ranks/norm/max", "ranks/drifted")  # fmt: skip
    dice = random.Random(seed)
    fields = (
        {"drift": [1]},
        {"drift": [0, 1, 2]},
        {"absent": [3]},
        {"same_batch": [[0, 1]]},
        {"batch_behind": [[1, 0, 2]]},
        {"same_labels": [[0, 1]], "same_labels_for": 9},
        {"step_ms": {}},
        {},
    )
    events = [said(step, **dice.choice(fields)) for step in range(0, 300, dice.choice((1, 3, 50)))]
    same_when_cut(
        RULES, random_columns(seed, names, (), ("ranks/loss/non_finite", "ranks/drifted")), seed, events=events
    )


WEIGHED = {"loss_weight": 0.83, "backwards": 1.0, "output_width": 6.0}


@pytest.mark.parametrize(
    ("times", "world", "more", "config", "told"),
    [
        ((1.9, 1.5, 1.4, 1.7, 1.4, 1.6), 2, {"loss_weight": 1.0}, {}, True),
        ((1.9, 1.5, 1.4, 1.7, 1.4, 1.6), 2, {"loss_undivided": 1.0}, {}, True),
        ((1.9, 1.5, 1.4, 1.7, 1.4, 1.6), 2, {"loss_weight": 0.5, "backwards": 2.0}, {}, True),
        ((1.9, 1.5, 1.4, 1.7, 1.4, 1.6), 2, {"loss_weight": 0.5}, {}, False),  # each rank divides by all
        ((1.9, 1.5, 1.4, 1.7, 1.4, 1.6), 2, WEIGHED | {"loss_given": 1.84}, {}, True),  # classes have weights
        ((1.9, 1.5, 1.4, 1.7, 1.4, 1.6), 2, WEIGHED | {"loss_given": 0.92}, {}, False),  # and each divides by all
        ((1.9, 1.5, 1.4, 1.7, 1.4, 1.6), 2, {"loss_undivided": 0.0}, {}, False),
        ((1.9, 1.5, 1.4, 1.7, 1.4, 1.6), 2, {}, {}, False),
        ((1.9, 1.5, 1.4, 1.7, 1.4, 1.6), 1, {"loss_weight": 1.0}, {}, False),
        ((1.9, 1.5, 1.4, 1.7, 1.4, 1.6), 2, {"loss_weight": 1.0}, {"tensor_parallel": 2}, False),
        ((0.9, 0.8, 0.7, 1.1, 0.9, 0.6), 2, {"loss_weight": 1.0}, {}, False),  # averaged
        ((1.3, 1.2, 1.0, 1.1, 0.9, 1.4), 2, {"loss_weight": 1.0}, {}, False),
        ((1.9, 1.5, 1.4, 9.0, 1.4, 1.6), 2, {"loss_weight": 1.0}, {}, False),  # more than any sum
        ((1.9, 1.5, 1.4), 2, {"loss_weight": 1.0}, {}, False),
    ],
)
def test_gradients_that_are_added_over_ranks_are_told_where_each_loss_is_a_mean(
    times: tuple[float, ...], world: int, more: dict, config: dict, told: bool
) -> None:
    columns = {f"model/{name}": numpy.full(len(times), value) for name, value in more.items()}
    columns["model/clip_coefficient"] = numpy.array(times)
    found = findings([SummedOverRanks()], columns, facts={"world_size": world, "config": config})
    assert [one.causes[0].partition(":")[0] for one in found.values()] == ["gradients summed over ranks"] * told


LOOKED = numpy.arange(0, 60, 10)
OWN = numpy.array([2.0, 1.7, 1.9, 1.5, 1.6, 1.4])


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 60, 3))])
@pytest.mark.parametrize(
    ("growth", "used", "more", "cause"),
    [
        (1.6, 0.5, {"loss_undivided": 1.0}, "gradients summed over ranks"),  # and clipped at 0.5
        (1.6, 0.5, {}, ""),  # each may divide by the targets of all
        (0.8, 0.5, {"loss_undivided": 1.0}, ""),  # averaged
        (0.4, 0.5, {}, "gradients divided by the ranks twice"),
        (0.4, 0.5, {"losses_given": 2.0}, ""),  # and by the micro-batches
        (0.72, 0.5, {}, ""),
    ],
)
def test_a_logged_norm_beside_the_ranks_own_shows_what_clipping_hides(
    growth: float, used: float, more: dict[str, float], cause: str, pieces: tuple[int, ...]
) -> None:
    figures = {"grad_norm": used, "losses_given": 1.0} | more
    columns = {f"model/{name}": (LOOKED, numpy.full(6, value)) for name, value in figures.items()}
    columns |= {"model/grad_norm_before": (LOOKED, OWN), "train/grad_norm": (LOOKED, growth * OWN)}
    found = findings([SummedOverRanks()], columns, facts={"world_size": 2}, cuts=pieces)
    said = [one.causes[0].partition(":")[0] for one in found.values()]
    assert said == ([cause] if cause else [])


def test_a_logged_norm_that_is_the_bound_of_clipping_says_nothing_of_ranks() -> None:
    columns = {"model/grad_norm_before": (LOOKED, OWN), "train/grad_norm": (LOOKED, numpy.full(6, 0.5))}
    columns |= {f"model/{name}": (LOOKED, numpy.full(6, value)) for name, value in
                {"grad_norm": 0.5, "losses_given": 1.0}.items()}  # fmt: skip
    assert not findings([SummedOverRanks()], columns, facts={"world_size": 2})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 60, 3))])
@pytest.mark.parametrize(
    ("more", "config", "says"),
    [
        ({}, {}, True),
        ({"averaged_ranks": 1.0}, {}, False),  # they may be added by hand
        ({"loss_weight": 1.0}, {}, False),
        ({"loss_given": math.log(10.0)}, {}, False),  # the half of two losses
        ({"backwards": 2.0}, {}, False),
        ({}, {"gradient_accumulation_steps": 2}, False),
        ({"backwards": 4.0, "loss_weight": 1 / 8}, {"gradient_accumulation_steps": 4}, True),
        ({"backwards": 4.0, "loss_weight": 1 / 8}, {}, False),
        ({"backwards": 2.0, "loss_weight": 1 / 4}, {"gradient_accumulation_steps": 2}, False),  # twice by the passes
        ({"loss_given": 0.02}, {}, False),  # goes on from weights that are trained
    ],
)
def test_a_loss_that_is_divided_by_ranks_which_are_averaged_is_divided_twice(
    more: dict[str, float], config: dict[str, int], says: bool, pieces: tuple[int, ...]
) -> None:
    figures = {"averaged_ranks": 2.0, "loss_weight": 0.5, "backwards": 1.0, "output_width": 10.0}
    figures |= {"loss_given": math.log(10.0) / 2} | more
    columns = {f"model/{name}": (LOOKED, numpy.full(6, value)) for name, value in figures.items()}
    found = findings([SummedOverRanks()], columns, facts={"world_size": 2, "config": config}, cuts=pieces)
    assert [one.causes[0].partition(":")[0] for one in found.values()] == ["loss divided too often"] * says


def losses(wrong: Any, right: Any, world: int = 4, rank: Any = 2.0, rows: int = 120) -> dict[str, Any]:
    """What ranks reduce of a loss. wrong: of one rank; right: of the others."""
    high, others, dice = wrong + numpy.zeros(rows), right + numpy.zeros(rows), numpy.random.default_rng(5)
    noise = 1 + 0.02 * dice.normal(size=rows)
    high, others = high * noise, others * noise[::-1]
    return {"ranks/loss/max": high, "ranks/loss/mean": (high + (world - 1) * others) / world,
            "ranks/loss/max_rank": rank + numpy.zeros(rows)}  # fmt: skip


FALLS = 4.0 * numpy.exp(-numpy.arange(120) / 40)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 120, 7))])
@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_whose_loss_stays_is_told(world: int, pieces: tuple[int, ...]) -> None:
    def judged(config: dict[str, Any] | None = None, **columns: Any) -> list[str]:
        facts = {"world_size": world, "config": config or {}}
        found = findings([RankLossStays()], losses(world=world, **columns), facts=facts, cuts=pieces)
        return [one.message for one in found.values()]

    (one,) = judged(wrong=4.1, right=FALLS)
    assert one.startswith("Rank 2's loss began at 4.") and "the others fell from 3." in one
    assert not judged(wrong=4.0 * numpy.exp(-numpy.arange(120) / 400), right=FALLS)  # harder rows, of which it learns
    assert not judged(wrong=8.0, right=FALLS)  # of another size from the start: another objective
    assert not judged(wrong=4.1, right=4.0)  # nothing is learnt
    assert not judged(wrong=4.1, right=FALLS, rank=numpy.arange(120) // 30 % 2)  # now one, now another
    assert not judged({"tensor_parallel_size": 2}, wrong=4.1, right=FALLS)
    assert not judged({"local_steps": 8, "algorithm": "diloco"}, wrong=4.1, right=FALLS)
