"""Players that don't oppose each other; values above returns; the network that targets come from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rule_columns import findings, noisy, only
from rule_curves import found as findings_of

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.data.examples import CopiedExamples
from barograph.doctor.rules.data.objectives import SameSides
from barograph.doctor.rules.evaluation.ranking import RankingReversed
from barograph.doctor.rules.gradient.gradient import GradientSpike
from barograph.doctor.rules.loss.players import PlayersAgree, PlayerWins
from barograph.doctor.rules.rl.rewards import RewardCollapse
from barograph.doctor.rules.rl.values import NextStates, TargetNetwork, ValuesAboveReturns, ValuesOutweigh

ROWS = 1600
STEP = np.arange(ROWS)
DICE = np.random.default_rng(5)
GONE = np.exp(-STEP / 40) + 1e-4


def one(rule: type, series: dict[str, np.ndarray], pieces: tuple[int, ...] = ()) -> list[Finding]:
    return findings_of([rule()], {name: (STEP[: len(values)], values) for name, values in series.items()}, pieces)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 37))])
@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (1.386 * GONE, 0.693 * GONE, True),
        (1.386 * GONE, 0.693 + STEP / 100, False),  # a discriminator that wins: the generator's loss is large
        (1.3 + 0.05 * DICE.normal(size=ROWS), 0.75 + 0.05 * DICE.normal(size=ROWS), False),
        (1.386 * GONE, -0.693 * GONE, False),  # log(1 - D): it is 0 where the discriminator wins
        (0.05 * GONE, 0.05 * GONE, False),  # of another unit
        (1.386 * GONE, -0.8 - STEP / 30, True),  # the sign of the generator's loss is turned round
        (1.386 * GONE, 0.8 + STEP / 30, False),  # a score that the generator is to raise
        (-0.5 - STEP / 30, -0.8 - STEP / 30, False),  # critics have scores below 0
        (0.6 + 0.05 * DICE.normal(size=ROWS), -0.8 - STEP / 300, False),  # of a discriminator that is fooled
    ],
)
@pytest.mark.parametrize("names", [("d_loss", "g_loss"), ("train/loss_D", "train/loss_G"), ("disc_loss", "gen_loss")])
def test_players_whose_losses_vanish_together_agree(
    first: np.ndarray, second: np.ndarray, told: bool, names: tuple[str, str], pieces: tuple[int, ...]
) -> None:
    found = one(PlayersAgree, dict(zip(names, (first, second), strict=True)), pieces)
    assert [finding.step for finding in found] == [0] * told
    turned = second[-1] < -1
    assert not told or found[0].causes[0].startswith("sign reversed" if turned else "labels swapped")


def test_players_that_agree_are_found_in_a_short_training() -> None:
    fast = {"d_loss": 1.386 * np.exp(-np.arange(120) / 8), "g_loss": 0.693 * np.exp(-np.arange(120) / 8)}
    assert len(one(PlayersAgree, fast)) == 1
    assert not one(PlayersAgree, {name: values[:90] for name, values in fast.items()})


RETURNS = np.repeat(10 + 2 * DICE.normal(size=ROWS // 8), 8)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 37))])
@pytest.mark.parametrize(
    ("values", "apart", "cause"),
    [
        (1 + STEP / 30, 0.3, "terminal states bootstrapped"),
        (1e3 + 10.0 * STEP, 0.3, "reward scale"),
        (np.exp(STEP / 100), 0.0, "target network missing"),
        (1 + STEP / 300, 0.3, None),  # below what episodes return
        (np.full(ROWS, 8.0), 0.3, None),
        (np.full(ROWS, 23.0), 0.3, None),  # overestimated, and no more
        (np.minimum(STEP / 50, 25), 0.3, "terminal states bootstrapped"),
    ],
)
def test_values_above_returns_are_found(
    values: np.ndarray, apart: float, cause: str | None, pieces: tuple[int, ...]
) -> None:
    series = {"train/loss": GONE, "train/q_values": values, "train/episode_return": RETURNS}
    found = one(ValuesAboveReturns, series | {"model/loss_of_chosen": np.ones(ROWS), "model/other_apart":
                                              np.full(ROWS, apart)}, pieces)  # fmt: skip
    assert len(found) == (cause is not None)
    assert cause is None or found[0].causes[0].startswith(cause)


def test_values_beside_rewards_of_single_steps_say_nothing() -> None:
    series = {"train/loss": GONE, "train/q_values": 1e3 + 10.0 * STEP, "train/reward": RETURNS}
    assert not one(ValuesAboveReturns, series)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 37))])
@pytest.mark.parametrize(
    ("apart", "moved", "chosen", "cause"),
    [
        (np.zeros(ROWS), np.full(ROWS, 0.01), 1.0, "target network updated at each step"),
        (0.001 * STEP, np.zeros(ROWS), 1.0, "target network not updated"),
        (0.001 * (STEP % 200), np.where(STEP % 200, 0.0, 0.1), 1.0, None),
        (0.01 + 0 * STEP, np.full(ROWS, 1e-3), 1.0, None),  # an average
        (0.001 * STEP, np.zeros(ROWS), 0.0, None),  # the reference of a policy stays as it is
        (np.zeros(ROWS), np.zeros(ROWS), 1.0, None),  # nothing is trained
        (
            np.where(STEP, 5e-6, 0.0),
            np.full(ROWS, 1e-3),
            1.0,
            "target network updated at each step",
        ),  # of swapped weights
        (np.where(STEP, 5e-4, 0.0), np.full(ROWS, 1e-3), 1.0, None),  # half of each
    ],
)
def test_a_target_network_is_updated_now_and_then(
    apart: np.ndarray, moved: np.ndarray, chosen: float, cause: str | None, pieces: tuple[int, ...]
) -> None:
    moved = np.where(STEP, moved, np.nan)
    series = {"model/other_apart": apart, "model/other_moved": moved[1:], "model/loss_of_chosen": np.full(ROWS, chosen)}
    series["model/update_p50"] = np.full(ROWS, 1e-3)
    columns = {name: (STEP[-len(values) :], values) for name, values in series.items()}
    found = findings_of([TargetNetwork()], columns, pieces)
    assert len(found) == (cause is not None)
    assert cause is None or (found[0].step == 0 and found[0].causes[0].startswith(cause))
    assert cause is None or found[0].kind == "rl"


@pytest.mark.parametrize(("often", "tells"), [(50, True), (100, False), (5, False), (0.005, False)])
def test_a_target_network_that_is_not_updated_as_often_as_is_said_is_found_before_the_end(
    often: float, tells: bool
) -> None:
    step = STEP[:250]
    columns = {"model/other_apart": (step, 0.001 * step), "model/other_moved": (step[1:], np.zeros(249)),
               "model/loss_of_chosen": (step, np.ones(250))}  # fmt: skip
    found = findings([TargetNetwork()], columns, facts={"config": {"dqn.target_update_interval": often}})
    assert [finding.found for finding in found.values()] == [150] * tells


def test_a_critic_whose_values_are_logged_beside_a_reward_has_a_target_network_too() -> None:
    series = {"model/other_apart": 0.001 * STEP, "model/other_moved": np.zeros(ROWS), "train/reward": RETURNS}
    assert not one(TargetNetwork, series)
    found = one(TargetNetwork, series | {"train/q_mean": RETURNS})
    assert [finding.causes[0].partition(":")[0] for finding in found] == ["target network not updated"]


@pytest.mark.parametrize(("chosen", "same", "told"), [(1.0, 1.0, True), (0.0, 1.0, False), (1.0, 0.0, False)])
def test_a_target_network_that_is_asked_about_the_states_themselves_is_said(
    chosen: float, same: float, told: bool
) -> None:
    series = {"model/loss_of_chosen": np.full(ROWS, chosen), "model/other_same_input": np.full(20, same)}
    found = one(NextStates, series)
    assert [finding.causes[0].partition(":")[0] for finding in found] == ["states overwritten"] * told
    series["model/other_same_input"] = np.where(np.arange(20) % 4, same, 0.0)  # few states, and a batch of one kind
    assert not one(NextStates, series)


def test_a_mean_over_episodes_that_wanders_is_no_collapse() -> None:
    wanders = np.repeat(20 + np.cumsum(DICE.normal(size=ROWS // 16)) * 0.15, 16)
    low = 20 + DICE.normal(size=260)
    falls = np.repeat(np.concatenate([np.linspace(20, 100, 100), np.linspace(100, 20, 40), low]), 4)
    dips = np.repeat(np.concatenate([22 + 0.3 * DICE.normal(size=100), 14 + 0.3 * DICE.normal(size=300)]), 4)
    assert not [finding for finding in one(RewardCollapse, {"reward": dips}) if finding.severity != "info"]
    assert not [one for one in one(RewardCollapse, {"reward": wanders}) if one.severity != "info"]
    assert [finding.rule for finding in one(RewardCollapse, {"reward": falls}) if finding.severity != "info"]


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 37))])
@pytest.mark.parametrize(
    ("area", "falls", "told"),
    [
        (np.linspace(0.35, 0.1, 8), True, True),
        (np.linspace(0.35, 0.1, 8), False, False),
        (np.linspace(0.35, 0.8, 8), True, False),
        (np.linspace(0.6, 0.45, 8), True, False),  # overfitting
    ],
)
def test_an_order_that_is_the_wrong_way_round_is_found(
    area: np.ndarray, falls: bool, told: bool, pieces: tuple[int, ...]
) -> None:
    loss = 0.7 * np.exp(-STEP / 300) if falls else 0.7 + 0.01 * DICE.normal(size=ROWS)
    series = {"train/loss": (STEP, loss), "val/auc": (199 + 200 * np.arange(8), area)}
    assert len(findings_of([RankingReversed()], series, pieces)) == told


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 37))])
@pytest.mark.parametrize(
    ("value", "left", "rises", "told"),
    [(1e6, 8e-5, False, True), (150.0, 0.02, False, False), (1e6, 8e-5, True, False), (1e6, 0.5, False, False)],
)
def test_a_value_loss_that_leaves_nothing_to_the_policy_is_found(
    value: float, left: float, rises: bool, told: bool, pieces: tuple[int, ...]
) -> None:
    found = one(ValuesOutweigh, {
        "train/loss": value * (1 + 0.1 * DICE.normal(size=ROWS)), "train/value_loss": np.full(ROWS, value),
        "train/policy_loss": 600 + DICE.normal(size=ROWS), "model/clip_coefficient": np.full(ROWS, left),
        "train/reward": 20 + DICE.normal(size=ROWS) + rises * STEP / 20,
    }, pieces)  # fmt: skip
    assert len(found) == told


@pytest.mark.parametrize(
    ("policy", "left", "rises", "told"),
    [(0.01, 8e-3, False, True), (0.01, 8e-3, True, False), (0.01, 0.05, False, False), (600.0, 8e-3, False, False)],
)
def test_few_rows_are_enough_where_values_are_all_there_is(policy: float, left: float, rises: bool, told: bool) -> None:
    some = np.arange(70)
    found = one(ValuesOutweigh, {
        "train/loss": 1e6 * (1 + 0.1 * DICE.normal(size=70)), "train/value_loss": np.full(70, 1e6),
        "train/policy_loss": policy * (1 + 0.1 * DICE.normal(size=70)),
        "model/clip_coefficient": np.full(70, left),
        "train/reward": 20 + DICE.normal(size=70) + rises * some / 7,
    })  # fmt: skip
    assert len(found) == told


@pytest.mark.parametrize(("ranks", "told"), [(1.0, True), (0.0, False)])
def test_an_accuracy_of_pairs_is_an_order_too(ranks: float, told: bool) -> None:
    series = {"train/loss": (STEP, 0.7 * np.exp(-STEP / 300)), "model/loss_ranks": (STEP[:1], np.array([ranks])),
              "eval/accuracy": (199 + 200 * np.arange(8), np.linspace(0.3, 0.05, 8))}  # fmt: skip
    assert len(findings_of([RankingReversed()], series)) == told


@pytest.mark.parametrize("chosen", [True, False])
def test_gradients_of_values_may_jump_when_their_targets_do(chosen: bool) -> None:
    norm = 0.2 * np.exp(0.1 * DICE.normal(size=ROWS))
    norm[200::200] *= 40
    series = {"train/loss": 0.1 * np.exp(0.1 * DICE.normal(size=ROWS)), "model/grad_norm_before": norm,
              "model/grad_norm": norm}  # fmt: skip
    found = one(GradientSpike, series | ({"model/loss_of_chosen": np.ones(ROWS)} if chosen else {}))
    assert found and (not [finding for finding in found if finding.severity != "info"]) is chosen


@pytest.mark.parametrize("names", [("D loss", "G loss"), ("train/d_loss", "train/g_loss"), ("loss_D", "loss_G")])
@pytest.mark.parametrize("winner", [0, 1])
def test_a_player_whose_loss_vanishes_while_the_others_is_high_has_won(names: tuple[str, str], winner: int) -> None:
    at = np.arange(160)
    won = np.where(at < 64, 0.6, 0.0)
    lost = np.where(at < 64, 0.9, 9.0) * noisy(160, 1, 0.3)
    series = dict(zip(names, (won, lost) if winner == 0 else (lost, won), strict=True))
    found = findings([PlayerWins()], series)
    (one,) = only(found, "player_wins")
    word = ("discriminator", "generator")[winner]
    assert (one.severity, one.step) == ("warning", 64) and one.message.startswith(f"The {word} has won")
    assert found == findings([PlayerWins()], series, cuts=range(160))
    short = {name: values[60:80] for name, values in series.items()}
    assert only(findings([PlayerWins()], short), "player_wins"), "a few rows are enough at the end"


@pytest.mark.parametrize(
    ("rows", "best", "told"), [(8, 0.0, True), (11, 0.004, True), (7, 0.0, False), (9, 0.2, False)]
)
def test_of_few_rows_each_must_say_that_a_player_has_won(rows: int, best: float, told: bool) -> None:
    lost = noisy(rows, 3, 0.1) * 70.0
    won = np.zeros(rows)
    won[2] = best
    found = findings([PlayerWins()], {"d_loss": lost, "g_loss": won})
    assert len(only(found, "player_wins")) == told


@pytest.mark.parametrize(("won", "lost"), [(0.3, 4.5), (0.0, 1.2), (-0.2, 9.0), (0.0, -5.0)])
def test_players_in_balance_and_critics_have_not_won(won: float, lost: float) -> None:
    series = {"D loss": noisy(160, 1, 0.1) * won, "G loss": noisy(160, 1, 0.2) * lost}
    assert not findings([PlayerWins()], series)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 37))])
@pytest.mark.parametrize(
    ("first", "began", "cause"),
    [(0.8, 599, "labels shifted"), (0.55, 0, "sign reversed")],  # above a half by chance
)
def test_an_order_that_was_right_before_has_not_the_wrong_sign(
    first: float, began: int, cause: str, pieces: tuple[int, ...]
) -> None:
    order = np.array([0.5, first, first, 0.45, 0.3, 0.28, 0.25, 0.2])
    series = {"train/loss": (STEP, 0.7 * np.exp(-STEP / 300)), "val/auc": (199 + 200 * np.arange(8), order)}
    (finding,) = findings_of([RankingReversed()], series, pieces)
    assert (finding.step, finding.found) == (began, 1399)
    assert finding.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("ranks", "share", "alike"),
    [(1.0, 0.5, True), (0.0, 0.5, True), (math.nan, 0.5, False), (1.0, 0.75, False)],  # NaN: no logistic loss
)
def test_chosen_and_rejected_that_are_the_same_are_half_a_batch_of_copies(
    ranks: float, share: float, alike: bool
) -> None:
    series = {"model/batch_copies": (STEP[:8], np.full(8, share)), "model/loss_ranks": (STEP[:1], np.array([ranks]))}
    (finding,) = findings_of([CopiedExamples()], series)
    assert [cause.partition(":")[0] for cause in finding.causes] == [
        *["chosen and rejected alike"] * alike, "copied examples"]  # fmt: skip


@pytest.mark.parametrize("share", [0.5, 0.75])
def test_pairs_that_are_half_a_batch_of_copies_have_one_view_twice(share: float) -> None:
    series = {"model/batch_copies": (STEP[:8], np.full(8, share)), "model/loss_pairs": (STEP[:1], np.array([64.0]))}
    (finding,) = findings_of([CopiedExamples()], series)
    assert finding.causes[0].startswith("views are the same") == (share == 0.5)


@pytest.mark.parametrize(
    ("level", "severity", "causes"),
    [
        (0.5, "critical", ["positives are the examples themselves"]),
        (1.5, "warning", ["mask missing", "positives are the examples themselves"]),
        (3.0, "warning", ["mask missing"]),
    ],
)
def test_a_batch_compared_with_itself_has_no_mask_or_itself_as_the_answer(
    level: float, severity: str, causes: list[str]
) -> None:
    graph = {f"model/{name}": (STEP[:1], np.array([value])) for name, value in
             (("similarity_to_itself", 1.0), ("loss_pairs", 64.0))}  # fmt: skip
    (told,) = findings_of([SameSides()], {"loss": (STEP, np.full(len(STEP), level)), **graph})
    assert (told.severity, [cause.partition(":")[0] for cause in told.causes]) == (severity, causes)


@pytest.mark.parametrize(("generator", "told"), [(12.0, True), (1.2, False)], ids=["lost", "even"])
@pytest.mark.parametrize("names", [("D_fake_loss", "G_GAN_loss"), ("d_real_loss", "g_adv_loss"), ("d_loss", "g_loss")])
def test_a_player_whose_parts_are_logged_wins(names: tuple[str, str], generator: float, told: bool) -> None:
    first = 0.001 + 0.0005 * np.random.default_rng(3).random(64) if told else np.full(64, 0.4)
    found = one(PlayerWins, dict(zip(names, (first, np.full(64, generator)), strict=True)))
    assert len(found) == told and (not told or "discriminator has won" in found[0].message)
