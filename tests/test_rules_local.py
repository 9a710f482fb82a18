"""Level, spread and z of a channel do not depend on how its rows arrive, nor on what comes later."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.core.roles import candidates
from barograph.doctor.kernel.channels import KEEP, KEEP_LAYER, Channel, RunHistory, is_wanted
from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.growing import Growing
from barograph.doctor.kernel.local import median, tick_starts

VALUES = st.lists(
    st.one_of(st.floats(0.01, 20), st.sampled_from([0.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e300])),
    min_size=1,
    max_size=400,
)


def figures(
    values: list[float], cuts: list[int], segments: list[int], log: bool, steps: np.ndarray | None = None
) -> list[np.ndarray]:
    seen = RunHistory()
    steps = np.arange(len(values)) if steps is None else steps
    edges = sorted({0, len(values), *(cut % len(values) for cut in cuts)})
    for low, high in pairwise(edges):
        seen.add(
            "train/loss",
            steps[low:high],
            np.array(values[low:high]),
            np.zeros(high - low, np.int64),
            np.array(segments[low:high]),
        )
        local = seen.local(seen.channels["train/loss"], log=log)
    return list(local.rows(0))


@given(VALUES, st.lists(st.integers(0, 400), max_size=30), st.integers(1, 400), st.booleans())
def test_pieces_of_any_size_give_the_same_figures(values: list[float], cuts: list[int], border: int, log: bool) -> None:
    segments = [1 if at < border else 2 for at in range(len(values))]
    whole = figures(values, [], segments, log)
    for one, other in zip(whole, figures(values, cuts, segments, log), strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    assert all(len(column) == len(values) for column in whole)


@given(
    VALUES,
    st.lists(st.integers(0, 400), max_size=30),
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from([0, 1, 2, 5, 50, 1000, -40])), min_size=1),
    st.integers(1, 400),
)
def test_pieces_of_any_size_give_the_same_figures_however_far_apart_rows_are(
    values: list[float], cuts: list[int], gaps: list[tuple[int, int]], border: int
) -> None:
    apart = np.array([gap for count, gap in gaps for _ in range(count)])
    steps = np.cumsum(np.resize(apart, len(values)))
    segments = [1 if at < border else 2 for at in range(len(values))]
    whole = figures(values, [], segments, True, steps)
    single = figures(values, list(range(len(values))), segments, True, steps)
    for one, other, third in zip(whole, figures(values, cuts, segments, True, steps), single, strict=True):
        assert np.array_equal(one, other, equal_nan=True) and np.array_equal(one, third, equal_nan=True)


UNEQUAL = {
    "the first dozen": [*range(1, 13), *range(200, 60_001, 200)],
    "the first 500": [*range(1, 501), *range(600, 60_001, 200)],
    "the first 3,000 each tenth": [*range(10, 3_001, 10), *range(3_200, 60_001, 200)],
    "300 in the middle": [*range(200, 30_001, 200), *range(30_001, 30_301), *range(30_400, 60_001, 200)],
}


def verdict(steps: list[int], fault: str) -> set[tuple[str, str, int]]:
    rng = np.random.default_rng(5)
    step = np.array(steps)
    loss = (2.5 + 8 * np.exp(-step / 300)) * np.exp(0.02 * rng.standard_normal(len(step)))
    here = step >= 40_000
    factor = {"healthy": 1.0, "spike": np.where(here & (step < 40_600), 2.0, 1.0), "level": np.where(here, 1.5, 1.0),
              "fall": np.where(here, 0.2, 1.0), "nan": np.where(here, np.nan, 1.0)}[fault]  # fmt: skip
    examiner = Examiner(facts={"planned_steps": 60_000, "finished": True})
    examiner.seen.add("train/loss", step, loss * factor, step * 1_000_000)
    examiner.catch_up()
    return {(item.rule, item.severity, item.step) for item in examiner.incidents() if item.severity != "info"}


@pytest.mark.parametrize("fault", ["healthy", "spike", "level", "fall", "nan"])
def test_rows_that_are_logged_unequally_change_no_verdict(fault: str) -> None:
    equal = verdict([*range(200, 60_001, 200)], fault)
    assert bool(equal) == (fault != "healthy") and {step for _, _, step in equal} <= {40_000}
    for name, steps in UNEQUAL.items():
        assert verdict(steps, fault) == equal, name


@given(VALUES, st.integers(0, 399))
def test_a_row_s_figures_know_nothing_of_later_rows(values: list[float], at: int) -> None:
    at %= len(values)
    changed = values[: at + 1] + [1e6] * (len(values) - at - 1)
    ones = [1] * len(values)
    for one, other in zip(figures(values, [], ones, False), figures(changed, [], ones, False), strict=True):
        assert np.array_equal(one[: at + 1], other[: at + 1], equal_nan=True)


def test_noise_is_measured_and_a_spike_stands_out_by_as_much_as_it_does() -> None:
    rng = np.random.default_rng(0)
    values = 3 + 2 * np.exp(-np.arange(4000) / 500) + 0.05 * rng.standard_normal(4000)
    values[3000] += 0.5
    level, spread, z = figures(values.tolist(), [], [1] * 4000, False)
    assert np.allclose(spread[200:], 0.05, rtol=0.5)
    assert np.abs(level[500:] - (3 + 2 * np.exp(-np.arange(500, 4000) / 500))).max() < 0.06
    assert 6 < z[3000] < 16 and np.nanmax(np.abs(np.delete(z, 3000)[200:])) < 7


def test_ticks_cover_every_row_once() -> None:
    whole = tick_starts(0, 1000)
    assert whole[:64].tolist() == list(range(64)) and (np.diff(whole) > 0).all()
    for first, last in ((0, 1), (63, 66), (255, 258), (300, 301), (999, 1000)):
        starts = tick_starts(first, last)
        assert starts[0] <= first and set(starts.tolist()) <= set(whole.tolist())


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 64))
def test_growing_columns_keep_the_newest_rows(blocks: list[int], keep: int) -> None:
    column = Growing((np.int64,), keep)
    for count in blocks:
        column.add(count, np.arange(column.end, column.end + count))
    total = sum(blocks)
    assert column.end == total and total - column.start >= min(keep, total)
    assert column.view(0, 0).tolist() == list(range(column.start, total))
    assert column.view(0, total - 1).tolist() == [total - 1]


def test_roles_are_found_by_the_names_people_use_and_the_longest_series_wins() -> None:
    seen = RunHistory({"finished": True})
    for name, rows in (("aux_loss", 50), ("my loss", 5), ("trainer/policy loss", 40), ("val loss", 60)):
        seen.add(name, np.arange(rows), np.ones(rows))
    assert seen.role("loss").name == "trainer/policy loss" and seen.role("eval_loss").name == "val loss"
    seen.add("train/loss", 1, 2.0)
    assert seen.role("loss").name == "train/loss" and seen.role("norm") is None


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("loss", ["loss_val_free", "loss_without_aux", "logloss", "train_mse", "loss/mse", "train/rmse", "bce"]),
        ("eval_loss", ["val_mse", "mse_val", "loss/mse_val", "loss_valid", "val/bce", "held_out_mae", "val_logloss"]),
    ],
)
def test_an_error_is_a_loss_and_a_word_that_is_negated_says_nothing(role: str, names: list[str]) -> None:
    for name in names:
        others = {"aux_loss": [1] * 90, "grad_norm": [1] * 90, "val/free": [1] * 90, "loss_scale": [1] * 90}
        assert candidates(role, {**others, name: [1] * 9}) == [name]
    assert candidates("loss", {"mse": [1] * 90, "total_loss": [1] * 9})[0] == "total_loss"


@pytest.mark.parametrize(("role", "other"), [("eval_loss", "train_mse"), ("loss", "val_mse"), ("loss", "mse_val")])
def test_an_error_plays_the_part_of_its_data(role: str, other: str) -> None:
    assert candidates(role, {other: [1] * 9}) == []


@pytest.mark.parametrize("looks", [(), (1,), (30, 64), (66, 130), tuple(range(400))])
@pytest.mark.parametrize(("dense", "chosen"), [("train/loss", "train/loss"), ("my loss", "my loss")])
def test_which_series_plays_a_role_does_not_depend_on_when_somebody_asks(
    looks: tuple[int, ...], dense: str, chosen: str
) -> None:
    seen = RunHistory()
    for step in range(400):
        for name in ("train/loss", "my loss"):
            if name == dense or step % 20 == 0:
                seen.add(name, step, 1.0, 1_000_000 + step)
        if step in looks:
            seen.role("loss")
    assert seen.role("loss").name == chosen


def test_layers_are_kept_where_a_rule_looks_at_them_and_only_the_newest_rows() -> None:
    assert is_wanted("gradients/h.0/norm") and is_wanted("train/loss") and is_wanted("moe/h.0/load/3")
    assert not is_wanted("gradients/h.0/p99") and not is_wanted("weights/h.0/max")
    seen = RunHistory()
    for step in range(10_000):
        seen.add("gradients/h.0/norm", step, 1.0)
        seen.add("gradients/h.0/p99", step, 1.0)
        if step == 5000:
            (layer,) = seen.layers("gradients", "norm").values()
            assert len(layer.rows()) == 5001  # nobody has looked yet: nothing is lost
        elif step % 100 == 0 and step > 5000:
            assert len(layer.rows(step - 100)) == 101
    assert layer.end == 10_000 and len(layer.rows()) <= 4 * KEEP_LAYER and list(seen.channels) == ["gradients/h.0/norm"]


@pytest.mark.parametrize("size", [1, 16, 700, KEEP + 1])
@pytest.mark.parametrize("often", [1, 3, 10**9])
def test_a_channel_has_its_newest_rows_however_seldom_somebody_looks(size: int, often: int) -> None:
    total = 3 * KEEP if size > 1 else 2000
    channel = Channel("train/loss")
    for nth, low in enumerate(range(0, total, size)):
        step = np.arange(low, min(low + size, total))
        if nth % 5 == 4 and size > 1:
            channel.add(step, step * 0.5, 7, 2)  # one time and segment for all
        else:
            channel.add(step, step * 0.5, np.full(len(step), 7), np.full(len(step), 2, np.int32))
        assert channel.end == step[-1] + 1
        if nth % often == often - 1:
            assert channel.last_step == step[-1] and channel.rows(low).step.tolist() == step.tolist()
    rows = channel.rows()
    assert channel.start == rows.first <= max(0, total - KEEP) and rows.step.tolist() == list(range(rows.first, total))
    assert (rows.value == rows.step * 0.5).all() and (rows.time == 7).all() and (rows.segment == 2).all()
    assert len(rows) <= 2 * KEEP + 2 * size


@given(VALUES)
def test_the_median_is_numpys(values: list[float]) -> None:
    with np.errstate(all="ignore"):
        assert repr(median(values)) == repr(median(np.array(values))) == repr(float(np.median(values)))
    whole = np.array([round(min(max(value, 0), 100)) for value in values if value == value], np.int64)
    assert not len(whole) or median(whole) == float(np.median(whole))


def test_the_median_of_nothing_is_not_a_number() -> None:
    assert repr(median([])) == repr(median(np.empty(0))) == "nan"


@given(VALUES, st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_a_channel_is_finite_until_a_value_is_not(values: list[float], cuts: list[int]) -> None:
    channel, low, nth = Channel("train/loss"), 0, 0
    while low < len(values):
        high = low + cuts[nth % len(cuts)]
        some = np.minimum(np.array(values[low:high]), 1e200) if nth % 3 else np.array(values[low:high])
        some = np.where(np.abs(some) == 1e300, 1.0, some)  # a sum of these is not finite
        channel.add(np.arange(len(some)), some, np.zeros(len(some), np.int64), np.ones(len(some), np.int32))
        values[low:high] = some.tolist()
        if nth % 2:
            channel.rows()  # blocks become columns
        if nth % 5 != 4:
            with np.errstate(invalid="ignore"):
                assert channel.is_finite() == bool(np.isfinite(values[:high]).all())
        low, nth = high, nth + 1
