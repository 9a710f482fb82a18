"""A preference's margin is 0 before the first step, whatever it is called; where it is not, the reference is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings
from rule_curves import found

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.rl.added import PreferencesSummed
from barograph.doctor.rules.rl.begins import MarginBegins

ROWS = 120
STEP = np.arange(ROWS)
GRAPH = {"preference_averaged": 0.0, "loss_terms": 2.0, "dropout": 0.0, "other_same_input": 1.0,
         "half_parameters": 0.0, "half_output": 0.0}  # fmt: skip


def judge(
    margin: float, loss: float, apart: float, pieces: tuple[int, ...] = (), name: str = "slogan/margin",
    config: dict[str, Any] | None = None, rewards: dict[str, tuple[float, int]] | None = None,
    logged: slice = slice(None), **graph: float,
) -> list[Finding]:  # fmt: skip
    columns = {name: (STEP[logged], (margin + 0.02 * STEP)[logged]),
               "fit/loss": (STEP[logged], (loss - 0.004 * STEP)[logged]),
               "model/other_apart": (STEP[2:], apart + 1e-4 * STEP[2:])}  # fmt: skip
    columns |= {f"model/{one}": (STEP[:1], np.array([value])) for one, value in (GRAPH | graph).items()}
    columns |= {one: (STEP[at::20], level + 0 * STEP[at::20]) for one, (level, at) in (rewards or {}).items()}
    return found([MarginBegins()], columns, pieces, config=config or {"beta": 0.2}, finished=True)


@pytest.mark.parametrize("pieces", [(), tuple(range(ROWS)), tuple(range(0, ROWS, 7))])
@pytest.mark.parametrize("name", ["slogan/margin", "margins", "train/reward_margin", "pref/margin_mean"])
def test_a_first_margin_of_one_network_is_zero(name: str, pieces: tuple[int, ...]) -> None:
    (one,) = judge(0.33, 0.6917, 0.0, pieces, name)
    assert one.step == 0 and one.severity == "warning" and "two ways" in one.causes[0]
    assert judge(4.2, 2.4, 0.0, pieces, name)[0].causes[0].startswith("wrong reduction")  # far away
    assert not judge(0.0, 0.693147, 0.0, pieces, name)
    assert not judge(0.33, 0.693147, 0.0, pieces, name)  # a margin of another make: the loss is that of no margin
    assert not judge(4.2, 0.8, 0.0, pieces, name, config={"sft_weight": 0.1})
    assert not judge(-3.2, 0.8, 0.0, pieces, name)  # a mean of logistic losses is at least that of the mean


@pytest.mark.parametrize("pieces", [(), tuple(range(ROWS)), tuple(range(0, ROWS, 7))])
@pytest.mark.parametrize(
    ("margin", "reward", "at", "config", "told"),
    [
        (0.23, 1.7, 19, {}, True),
        (0.23, -1.7, 19, {}, True),
        (0.23, 0.3, 19, {}, False),
        (1.2, 1.7, 19, {}, False),  # what an earlier stage has learnt
        (0.23, 1.7, 99, {}, False),
        (0.23, 1.7, 19, {"iteration": 2}, False),
    ],
)
def test_another_network_gives_large_rewards_and_a_small_margin(
    margin: float, reward: float, at: int, config: dict[str, Any], told: bool, pieces: tuple[int, ...]
) -> None:
    said = judge(margin, 0.61, 0.27, pieces, config=config, rewards={"prefs/chosen_reward": (reward, at)})
    assert [one.causes[0][:28] for one in said] == ["reference is another network"] * told


@pytest.mark.parametrize(("logged", "passes", "told"), [
    (slice(0, None, 5), 1, True), (slice(1, None, 5), 1, True), (slice(2, None, 5), 1, False),
    (slice(4, None, 5), 1, False), (slice(4, None, 5), 4, False), (slice(3, None, 4), 4, True),
])  # fmt: skip
def test_a_first_row_that_is_logged_later_tells_nothing_of_the_first_step(
    logged: slice, passes: int, told: bool
) -> None:
    assert bool(judge(0.33, 0.7, 0.0, logged=logged, backwards=passes)) == told


@pytest.mark.parametrize("graph", [{"dropout": 0.1}, {"half_output": 1.0}, {"half_parameters": 8.0},
                                   {"loss_terms": 3.0}, {"other_same_input": 0.0}])  # fmt: skip
def test_noise_other_terms_and_other_examples_say_nothing(graph: dict[str, float]) -> None:
    assert not judge(0.33, 0.6917, 0.0, **graph)


@pytest.mark.parametrize("pieces", [(), tuple(range(ROWS)), tuple(range(0, ROWS, 7))])
@pytest.mark.parametrize(
    ("margin", "loss", "apart", "config", "graph", "told"),
    [
        (1.05, 0.3445, 1e-4, {"beta": 0.3}, {}, True),
        (1.05, 0.3445, 1e-4, {"loss_type": "simpo"}, {}, False),
        (1.05, 0.3445, 1e-4, {"reference_free": True}, {}, False),
        (1.05, 0.3445, 0.27, {"beta": 0.3}, {}, False),
        (0.0, 0.693147, 1e-4, {"beta": 0.3}, {}, False),
        (1.05, 0.3445, 1e-4, {"beta": 0.3}, {"other_same_input": 0.0}, False),  # asked about something else
        (1.05, 0.3445, 1e-4, {"beta": 0.3}, {"preference_alone": -1.0}, False),
    ],
)
def test_a_reference_that_is_asked_and_left_out_is_told(
    margin: float, loss: float, apart: float, config: dict[str, Any], graph: dict[str, float], told: bool,
    pieces: tuple[int, ...],
) -> None:  # fmt: skip
    graph = {"preference_averaged": -1.0, "preference_alone": 1.0} | graph
    rewards = {"prefs/chosen_reward": (1.7, 19)} if apart > 0.1 else None
    said = judge(margin, loss, apart, pieces, config=config, rewards=rewards, **graph)
    assert [one.causes for one in said] == [[one.causes[0]] for one in said]
    assert [one.causes[0][:18] for one in said] == ["reference not used"] * told


@pytest.mark.parametrize(("loss", "told"), [(184.0, True), (31.0, False)])
def test_a_loss_many_times_that_of_no_margin_is_said_with_dropout_too(loss: float, told: bool) -> None:
    config = {"objective": "IPO", "beta": 0.25}  # 4 at a margin of 0
    said = judge(-3.0, loss, 1e-4, name="ipo/gap", config=config, preference_averaged=-1.0, dropout=0.1)
    assert bool(said) == told


def test_rewards_of_both_sides_are_left_to_the_rule_that_reads_them() -> None:
    both = {"train/good_reward": (1.5, 0), "train/bad_reward": (1.2, 0)}
    assert not judge(0.33, 0.6917, 0.0, rewards=both)
    later = {"held_prefs/good_reward": (1.5, 20), "held_prefs/bad_reward": (1.2, 20)}
    for pieces in ((), tuple(range(ROWS))):
        assert len(judge(0.33, 0.6917, 0.0, pieces, rewards=later)) == 1


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 7))])
@pytest.mark.parametrize(
    ("margin", "loss", "apart", "told"),
    [(-1.3, 12.3, 1e-4, True), (0.9, 2.0, 1e-4, True), (0.0, 4.0, 1e-4, False), (-1.3, 4.0, 1e-4, False),
     (-1.3, 12.3, 0.05, False)],
)  # fmt: skip
def test_a_first_margin_of_squares_is_zero_where_both_are_one_network(
    margin: float, loss: float, apart: float, told: bool, pieces: tuple[int, ...]
) -> None:
    config = {"objective": "IPO", "beta": 0.25}
    assert bool(judge(margin, loss, apart, pieces, config=config, preference_averaged=-1.0)) == told
    assert not judge(margin, loss, apart, pieces, config={"beta": 0.25}, preference_averaged=-1.0)


@pytest.mark.parametrize("cuts", [(), tuple(range(0, 60, 3))])
@pytest.mark.parametrize(
    ("first", "margin", "adds", "config", "told"),
    [
        (64.0, 0.0, 1.0, {"pairs_a_batch": 16, "beta": 0.25}, True),
        (200.0, 0.0, 1.0, {"train": {"batch_size": 8}, "dpo_beta": 0.1}, True),
        (4.0, 0.0, 1.0, {"pairs_a_batch": 16, "beta": 0.25}, False),  # the mean
        (64.0, 0.2, 1.0, {"pairs_a_batch": 16, "beta": 0.25}, False),
        (64.0, 0.0, 0.0, {"pairs_a_batch": 16, "beta": 0.25}, False),
        (64.0, 0.0, 1.0, {"pairs_a_batch": 12, "beta": 0.25}, False),
        (64.0, 0.0, 1.0, {"pairs_a_batch": 16}, False),
        (64.0, 0.0, 1.0, {"pairs_a_batch": 16, "beta": 0.25, "sum_over_pairs": True}, False),
    ],
)
@pytest.mark.parametrize("late", [0, 20])
def test_squares_of_preferences_that_are_summed_are_known_before_the_first_step(
    first: float, margin: float, adds: float, config: dict[str, Any], told: bool, late: int, cuts: tuple[int, ...]
) -> None:
    step = np.arange(60)
    columns = {"ipo/margin": (step, margin + 0.01 * step), "ipo/loss": (step, first * (1 - 0.002 * step)),
               "model/loss_adds": (step[:1], np.array([adds]))}  # fmt: skip
    rows = {"model/loss_adds": late}  # a fast loop goes on meanwhile
    said = findings([PreferencesSummed()], columns, facts={"config": config}, cuts=cuts, late=rows)
    assert [(one.step, one.found) for one in said.values()] == [(0, max(7, late))] * told
