"""A rank that others wait for is named, with how much and since when; a healthy training is left in peace."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.probes.ranks.straggler import StragglerFinding, StragglerWatch, excesses, median


def training(
    seed: int,
    steps: int,
    ranks: int = 4,
    noise: float = 0.05,
    slow: dict[int, tuple[float, int, int]] | None = None,
) -> list[tuple[int, list[float], list[float]]]:
    """Step and wait times of a synchronous training: `slow` is {rank: (factor, first step, last step)}."""
    chance = random.Random(seed)
    found = []
    for step in range(steps):
        work = [100.0 * chance.lognormvariate(0, noise) for _ in range(ranks)]
        for rank in range(ranks):
            if chance.random() < 0.01:  # garbage collection, another process on the machine
                work[rank] *= chance.uniform(1.5, 6)
        if step % 50 == 0:
            work[0] += 400  # rank 0 evaluates
        if step % 200 < 3:
            work[0] += 2000  # and writes checkpoints, of which the disk has more to do for a while
        for rank, (factor, first, last) in (slow or {}).items():
            if first <= step < last:
                work[rank] *= factor
        whole = max(work) + 5
        found.append((step, [whole + chance.gauss(0, 0.2) for _ in work], [whole - own for own in work]))
    return found


def findings(times: list[tuple[int, list[float], list[float]]]) -> list[StragglerFinding]:
    judge = StragglerWatch()
    return [finding for step, steps, waits in times for finding in judge.observe(step, steps, waits)]


@pytest.mark.parametrize("seed", range(10))
def test_fifteen_percent_on_one_of_four_ranks_is_named_within_fifty_steps(seed: int) -> None:
    found = findings(training(seed, 400, slow={2: (1.15, 200, 400)}))
    assert [finding.rank for finding in found] == [2]
    assert found[0].step < 250
    assert abs(found[0].since - 200) <= 5
    assert found[0].slower_by == pytest.approx(0.15, abs=0.05)
    assert found[0].p < 1e-6 and found[0].waits_least


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_no_rank_of_a_healthy_training_is_named(noise: float, ranks: int) -> None:
    assert findings(training(7, 2000, ranks, noise)) == []


def test_a_rank_four_percent_slower_is_no_straggler() -> None:
    assert findings(training(3, 2000, slow={1: (1.04, 0, 2000)})) == []


def test_a_rank_that_recovers_is_said_to_once_and_may_be_named_again() -> None:
    found = findings(training(5, 900, slow={3: (1.3, 100, 300)}) + training(6, 900, slow={3: (1.3, 400, 900)}))
    assert [(finding.rank, finding.recovered) for finding in found] == [(3, False), (3, True), (3, False)]
    assert abs(found[1].since - 300) <= 5
    assert found[1].slower_by < 0.05


def test_two_slow_ranks_of_four_are_both_named() -> None:
    found = findings(training(8, 300, slow={0: (1.25, 50, 300), 1: (1.25, 50, 300)}))
    assert sorted(finding.rank for finding in found if not finding.recovered) == [0, 1]


def test_a_slowdown_in_noise_that_forty_steps_cannot_prove_is_named_later() -> None:
    found = findings(training(11, 600, noise=0.25, slow={2: (1.3, 0, 600)}))
    assert [finding.rank for finding in found] == [2]


def test_all_ranks_slow_at_once_name_nobody() -> None:
    assert findings(training(9, 400, slow={rank: (2.0, 100, 400) for rank in range(4)})) == []


def test_without_wait_times_the_durations_are_compared() -> None:
    judge = StragglerWatch()
    found = [f for step in range(60) for f in judge.observe(step, [10.0, 10.1, 13.0 + step % 2, 9.9])]
    assert [finding.rank for finding in found] == [2]
    assert found[0].waits_least is None


def test_times_that_are_none_are_left_out_and_a_new_number_of_ranks_starts_anew() -> None:
    judge = StragglerWatch()
    for step in range(100):
        assert judge.observe(step, [math.nan, 1.0, 2.0]) == []
        assert judge.observe(step, [0.0, 1.0]) == []
        assert judge.observe(step, [1.0]) == []
    for step in range(39):
        assert judge.observe(step, [1.0, 2.0]) == []
    assert judge.observe(39, [1.0, 2.0, 1.0]) == []  # three ranks: the window is empty again
    assert judge.observe(40, [1.0, 2.0]) == []
    assert [f.rank for step in range(41, 81) for f in judge.observe(step, [1.0, 2.0])] == [1]


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=40))
def test_the_excess_is_over_the_median_of_the_others(work: list[float]) -> None:
    for rank, excess in enumerate(excesses(work)):
        others = statistics.median(work[:rank] + work[rank + 1 :])
        assert excess == pytest.approx(work[rank] / others - 1, rel=1e-9, abs=1e-9)
    assert median(work) == pytest.approx(statistics.median(work))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(1, 2), st.floats(1, 2)), min_size=170, max_size=260))
def test_the_counts_of_slow_steps_are_those_of_the_windows(times: list[tuple[float, float]]) -> None:
    judge = StragglerWatch()
    for step, pair in enumerate(times):
        judge.observe(step, pair)
    for rank in range(2):
        column = list(judge._excess[rank])
        for at, window in enumerate(judge.windows):
            recent = [excess >= judge.slower for excess in column[-window:]]
            half = window // 2
            assert judge._runs[rank][2 * at : 2 * at + 2] == [sum(recent[:half]), sum(recent[half:])]
