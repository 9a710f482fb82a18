"""Tests for few seeds: known values, exact counts, and the level."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.analysis.compare import statistics
from barograph.analysis.compare.statistics import contrast, mean_interval, pooled_spread, seeds_needed
from barograph.analysis.compare.student import incomplete_beta, quantile, two_sided


@pytest.mark.parametrize(
    ("probability", "dof", "value"),
    [  # tables of Student's t; one degree of freedom is Cauchy's tan(π(p − ½)), two is closed too
        (0.975, 1, math.tan(math.pi * 0.475)),
        (0.975, 2, 0.95 * math.sqrt(2 / (1 - 0.95**2))),
        (0.975, 4, 2.776445105197793),
        (0.975, 10, 2.2281388519649385),
        (0.975, 30, 2.0422724563012373),
        (0.9995, 5, 6.868826625881251),
        (0.95, 7, 1.894578605061305),
        (0.975, math.inf, 1.959963984540054),
    ],
)
def test_quantiles_are_those_of_the_tables(probability: float, dof: float, value: float) -> None:
    assert quantile(probability, dof) == pytest.approx(value, rel=1e-9)
    assert quantile(1 - probability, dof) == pytest.approx(-value, rel=1e-9)


def test_probabilities_are_exact_far_out_and_near_zero() -> None:
    # with one degree of freedom P(|T| > t) = 1 − 2/π · arctan(t); with two 1 − t/√(2 + t²)
    for t in (1e-12, 0.3, 1.0, 5.0):
        assert two_sided(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-12)
        assert two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)
    assert two_sided(1e8, 1) == pytest.approx(2 / math.pi * 1e-8, rel=1e-9)
    assert two_sided(3.0, 1e9) == pytest.approx(math.erfc(3 / math.sqrt(2)), rel=1e-6)
    assert two_sided(math.inf, 3) == 0.0
    assert math.isnan(two_sided(math.nan, 3))


@given(st.floats(0.5, 1e5), st.floats(1e-9, 0.4999))
def test_a_quantile_has_its_probability(dof: float, tail: float) -> None:
    assert two_sided(quantile(1 - tail, dof), dof) == pytest.approx(2 * tail, rel=1e-6)


@given(st.floats(0.1, 50), st.floats(0.1, 50), st.integers(1, 2**20 - 1))
def test_the_incomplete_beta_function_is_its_mirror(a: float, b: float, parts: int) -> None:
    x = parts / 2**20  # so that 1 - x is exact: near x = 0 the function is steep where a is small
    assert incomplete_beta(a, b, x) == pytest.approx(1 - incomplete_beta(b, a, 1 - x), abs=1e-11)


def test_what_has_no_value_is_refused() -> None:
    with pytest.raises(ValueError, match="no quantile"):
        quantile(1.0, 3)
    with pytest.raises(ValueError, match="no quantile"):
        quantile(0.9, 0)
    with pytest.raises(ValueError, match="no value"):
        incomplete_beta(1, 1, 2)


def test_welch_as_in_a_worked_example() -> None:
    # t = 2.219…, ν = 7.71…, checked by hand from the formulas
    a, b = [1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 4.0, 5.0, 6.0, 8.0]
    test = contrast(a, b)
    assert test is not None
    parts = (np.var(a, ddof=1) / 5, np.var(b, ddof=1) / 5)
    t = 2.2 / math.sqrt(sum(parts))
    dof = sum(parts) ** 2 / (parts[0] ** 2 / 4 + parts[1] ** 2 / 4)
    assert test.method == "Welch's t"
    assert test.dof == pytest.approx(dof)
    assert test.p == pytest.approx(two_sided(t, dof))
    assert test.low < 0 < test.high
    assert not test.settled


def test_the_permutation_test_counts_every_arrangement() -> None:
    random = np.random.default_rng(3)
    a, b = random.standard_normal(5), random.standard_normal(5) + 1.5
    values = np.concatenate([a, b])

    def welch(left: list[float], right: list[float]) -> float:
        error = math.sqrt(np.var(left, ddof=1) / len(left) + np.var(right, ddof=1) / len(right))
        return abs(float(np.mean(right) - np.mean(left))) / error

    seen = welch(list(a), list(b))
    counted = [
        welch([values[at] for at in chosen], [values[at] for at in range(10) if at not in chosen]) >= seen - 1e-12
        for chosen in itertools.combinations(range(10), 5)
    ]
    test = contrast(a.tolist(), b.tolist())
    assert test is not None and test.permutation == pytest.approx(np.mean(counted))


def test_few_runs_have_no_permutation_test_because_it_could_never_say_anything() -> None:
    test = contrast([1.0, 1.1, 1.2], [2.0, 2.1, 2.2])
    assert test is not None and test.permutation is None and test.settled


def test_the_tests_have_to_agree() -> None:
    # one run far off: Welch's t and the permutations see the same data and judge it each in their own way
    test = contrast([1.0, 1.01, 1.02, 0.99, 1.0], [1.0, 1.01, 1.02, 0.99, 9.0])
    assert test is not None and not test.settled


def test_pairs_of_one_seed_find_what_groups_do_not() -> None:
    a = [2.0, 2.5, 3.0, 3.5]
    b = [one - 0.1 + wiggle for one, wiggle in zip(a, (0.001, -0.001, 0.002, 0.0), strict=True)]
    groups, pairs = contrast(a, b), contrast(a, b, paired=True)
    assert groups is not None and not groups.settled
    assert pairs is not None and pairs.settled and pairs.high < 0
    assert pairs.correlation == pytest.approx(1.0, abs=1e-3)


def test_one_run_a_side_needs_the_spread_of_repeats() -> None:
    assert contrast([1.0], [2.0]) is None
    assert contrast([1.0], [2.0], repeats=(0.1, 1)) is None  # two repeats alone tell too little
    test = contrast([1.0], [1.2], repeats=(0.1, 6))
    assert test is not None
    assert test.p == pytest.approx(two_sided(0.2 / (0.1 * math.sqrt(2)), 6))
    assert not test.settled


def test_copies_are_no_repeats() -> None:
    assert contrast([1.0, 1.0, 1.0], [1.1, 1.1, 1.1]) is None
    assert contrast([1.0, 1.0, 1.0], [1.1, 1.1, 1.1], paired=True) is None
    assert contrast([1.0], [1.1, 1.1, 1.1]) is None


def test_nothing_against_nothing_is_no_test() -> None:
    assert contrast([], [1.0, 2.0]) is None
    assert mean_interval([1.0]) is None
    assert pooled_spread([[1.0], [2.0]]) is None


def test_the_seeds_needed_are_enough_and_one_less_is_not() -> None:
    number = seeds_needed(0.5, 1.0)
    assert number == 64  # the textbooks' example: medium effect, 80% power, two sides of 64
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(0.001, 1.0) is None
    assert seeds_needed(100.0, 1.0) == 2


def test_the_effect_is_corrected_for_few_runs() -> None:
    test = contrast([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    assert test is not None and test.effect is not None
    assert test.effect == pytest.approx(1.0 * (1 - 3 / (4 * 4 - 1)), rel=0.01)  # Hedges' own approximation


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6), st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6))
def test_turning_the_sides_round_turns_the_interval_round(a: list[float], b: list[float]) -> None:
    one, other = contrast(a, b), contrast(b, a)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert other.difference == pytest.approx(-one.difference)
        assert other.p == pytest.approx(one.p, rel=1e-6, abs=1e-12)
        assert other.low == pytest.approx(-one.high, rel=1e-6, abs=1e-9)


def test_equals_are_called_unequal_about_once_in_twenty() -> None:
    random = np.random.default_rng(5)
    found = {}
    for size in (3, 5):
        drawn = random.standard_normal((1000, 2, size))
        found[size] = np.mean([bool(t and t.settled) for t in (contrast(*pair) for pair in drawn.tolist())])
    assert 0.02 < found[3] < 0.06
    assert 0.03 < found[5] < 0.07


def test_two_beside_many_are_not_trusted_for_lying_close() -> None:
    random = np.random.default_rng(6)
    draws = [(random.standard_normal(2).tolist(), random.standard_normal(7).tolist()) for _ in range(1000)]
    assert np.mean([bool(t and t.settled) for t in (contrast(a, b) for a, b in draws)]) < 0.06
    assert statistics.LEVEL == 0.05


# -- boundaries: a change of one sign, one or one constant has to be seen ---------------------------------


def test_pairs_need_three_and_groups_two() -> None:
    assert "pairs" in statistics.contrast([1, 2, 3], [2, 3.5, 4.1], paired=True).method
    assert statistics.contrast([1, 2], [2, 3.5], paired=True).method == "Welch's t"
    assert statistics.contrast([1.0], [2, 3.5]) is None  # one degree of freedom says nothing of a spread
    assert statistics.contrast([1.0], [2, 3.5, 4]).dof == 2
    assert statistics.contrast([1.0], [2.0], repeats=(0.1, 1.9)) is None
    assert statistics.contrast([1.0], [2.0], repeats=(0.1, 2.0)).dof == 2
    assert statistics.mean_interval([1.0]) is None and statistics.mean_interval([1.0, 2.0]) is not None


def test_what_decides_is_at_the_level_itself() -> None:
    a, b = [0.0, 1.0, 2.0], [2.2, 3.3, 4.1]
    p = statistics.contrast(a, b).p
    assert statistics.contrast(a, b, level=p).settled and not statistics.contrast(a, b, level=p * (1 - 1e-9)).settled
    five = statistics.contrast([1, 2, 3, 4, 5], [6, 7, 8, 9, 10])
    assert five.permutation == pytest.approx(2 / 252)


def test_numbers_against_those_of_a_table() -> None:
    low, high = statistics.mean_interval([1.0, 1.001, 1.002])
    assert (high - low) / 2 == pytest.approx(4.302653 * 0.001 / 3**0.5, rel=1e-6)
    made = statistics.contrast([1.0, 2.0, 4.0], [2.0, 3.0, 9.0])
    variances = 7 / 3, 43 / 3
    error = (sum(variances) / 3) ** 0.5
    freedom = (sum(variances) / 3) ** 2 / sum((one / 3) ** 2 / 2 for one in variances)
    assert made.difference == pytest.approx(7 / 3) and made.dof == pytest.approx(freedom)
    assert (made.high - made.low) / 2 == pytest.approx(quantile(0.975, freedom) * error)
    pairs = statistics.contrast([1.0, 2.0, 4.0], [2.0, 3.5, 4.5], paired=True)
    assert pairs.dof == 2 and pairs.difference == 1.0
    assert (pairs.high - pairs.low) / 2 == pytest.approx(4.302653 * 0.5 / 3**0.5, rel=1e-6)
    single = statistics.contrast([1.0], [2.0], repeats=(0.5, 4.0))
    assert (single.high - single.low) / 2 == pytest.approx(quantile(0.975, 4.0) * 0.5 * 2**0.5)


def test_two_against_more_take_the_larger_p() -> None:
    close = statistics.contrast([1.0, 1.001], [1.2, 1.5, 1.1, 1.4])
    assert close.method == "Student's t" and close.dof == 4
    wide = statistics.contrast([0.0, 3.0], [1.2, 1.21, 1.19, 1.2])
    assert wide.method == "Welch's t" and wide.dof < 2
    assert statistics.contrast([1.0, 1.001], [1.2, 1.5]).method == "Welch's t"


def test_spreads_of_groups_are_pooled_by_their_freedom() -> None:
    assert statistics.pooled_spread([[1.0], [2.0]]) is None
    spread, freedom = statistics.pooled_spread([[1.0, 2.0], [5.0, 6.0, 10.0], [4.0]])
    assert freedom == 3 and spread == pytest.approx(((0.5 + 14.0) / 3) ** 0.5)


def test_rounding_is_no_spread() -> None:
    assert statistics.contrast([1.0, 1.0 + 1e-15], [2.0, 2.0]) is None
    assert statistics.contrast([1.0, 1.0 + 1e-9], [2.0, 2.0]) is not None
    assert statistics.contrast([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], paired=True) is None


def test_no_number_of_seeds_settles_nothing_and_a_thousand_is_the_most() -> None:
    assert statistics.seeds_needed(0.0, 1.0) is None and statistics.seeds_needed(float("nan"), 1.0) is None
    assert statistics.seeds_needed(1e-3, 1.0) is None and statistics.seeds_needed(100.0, 1e-6) == 2
    found = statistics.seeds_needed(0.5, 1.0)
    assert found == 64 and statistics.seeds_needed(0.5, 1.0, paired=True) == 34
    assert statistics.seeds_needed(-0.5, 1.0) == found and statistics.seeds_needed(0.2, 1.0) == 394
