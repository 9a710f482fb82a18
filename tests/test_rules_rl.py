"""Reinforcement learning: what breaks it, and how restless a healthy one is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from rule_columns import findings
from rule_curves import columns, found, warned

from barograph.doctor.rules.loss.initial import InitialLoss
from barograph.doctor.rules.rl.added import PreferenceSummed
from barograph.doctor.rules.rl.preference import (
    MarginTurned,
    PairsAlike,
    PreferenceReversed,
    ReferenceMoves,
)
from barograph.doctor.rules.rl.rewards import RewardCollapse, RewardConstant
from barograph.doctor.rules.rl.rl import RULES

STEPS = np.arange(480)


def healthy(seed: int = 0) -> dict[str, np.ndarray]:
    dice = np.random.default_rng(seed)
    return {
        "train/reward": np.clip(STEPS / 300, 0, 1) + dice.normal(0, 0.15, 480),
        "train/kl": np.abs(STEPS / 480 * 0.08 + dice.normal(0, 0.01, 480)),
        "train/entropy": 2 - STEPS / 480 + dice.normal(0, 0.05, 480),
        "train/clip_ratio": np.abs(dice.normal(0.05, 0.02, 480)),
        "train/frac_reward_zero_std": dice.uniform(0, 0.5, 480),
        "train/completions/clipped_ratio": dice.uniform(0, 0.1, 480),
        "train/sampling/sampling_logp_difference/mean": dice.uniform(0, 0.05, 480),
    }


def look(**changed: np.ndarray):
    series = healthy() | {f"train/{name}": values for name, values in changed.items()}
    return found([rule() for rule in RULES], {name: (STEPS, values) for name, values in series.items()})


@pytest.mark.parametrize("seed", range(6))
def test_a_healthy_policy_is_silent(seed: int) -> None:
    assert found([rule() for rule in RULES], {name: (STEPS, values) for name, values in healthy(seed).items()}) == []


def test_nothing_is_looked_at_without_a_reward() -> None:
    series = {name: (STEPS, values) for name, values in healthy().items() if name == "train/loss"}
    assert found([rule() for rule in RULES], series) == []


def only(rule: str, **changed: np.ndarray):
    (finding,) = [one for one in look(**changed) if one.rule == rule]
    assert finding.kind == "rl" and finding.family == "rl"
    return finding


def test_a_reward_that_is_lost_again() -> None:
    reward = healthy()["train/reward"].copy()
    reward[340:] -= 1.2
    finding = only("reward_collapse", reward=reward)
    assert finding.severity == "warning" and abs(finding.step - 340) <= 16


@pytest.mark.parametrize("seed", range(8))
def test_a_noisy_reward_is_lost_since_it_was_last_near_its_best(seed: int) -> None:
    rows = np.arange(250)
    reward = 0.3 + 0.4 * (1 - np.exp(-rows / 50)) + np.random.default_rng(seed).normal(0, 0.08, 250)
    reward -= np.minimum(0.62, 0.02 * np.maximum(0, rows - 160))
    (one,) = found([RewardCollapse()], {"train/reward": (rows, reward), "train/kl": (rows, 0.01 + 0 * rows)})
    assert 152 <= one.step <= 184


def test_a_reward_below_its_start_is_a_warning_after_four_blocks() -> None:
    rows = np.arange(250)
    reward = 0.3 + 0.4 * (1 - np.exp(-rows / 50)) + np.random.default_rng(1).normal(0, 0.05, 250)
    for lost, severity in ((0.65, "warning"), (0.3, "info")):
        after = np.where(rows < 208, reward, reward - lost)
        (one,) = found([RewardCollapse()], {"train/reward": (rows, after), "train/kl": (rows, 0.01 + 0 * rows)})
        assert one.severity == severity


@pytest.mark.parametrize(
    ("rows", "noise", "behind", "severity"),
    [
        (120, 0.02, 40, "warning"),  # beyond all noise: four blocks are an eighth of the run and more
        (120, 0.2, 40, "info"),  # the same fall in noise: five blocks of fifteen
        (400, 0.02, 40, "info"),  # a tenth of a longer run may be an episode
        (400, 0.02, 72, "warning"),
    ],
)
def test_a_fall_beyond_all_noise_is_a_warning_by_its_share_of_the_run(
    rows: int, noise: float, behind: int, severity: str
) -> None:
    at = np.arange(rows)
    reward = 1 - np.exp(-np.maximum(0, at - 16) / (rows / 8))
    reward[rows - behind :] = 0.1
    reward += np.random.default_rng(3).normal(0, noise, rows)
    (one,) = found([RewardCollapse()], {"train/reward": (at, reward)})
    assert one.severity == severity and abs(one.step - (rows - behind)) <= 16


def test_a_reward_that_is_one_number() -> None:
    reward = healthy()["train/reward"].copy()
    reward[240:] = 0.0
    finding = only("reward_constant", reward=reward)
    assert finding.severity == "critical" and abs(finding.step - 240) <= 8
    reward[240:] = 2.0
    assert only("reward_constant", reward=reward).severity == "info"


def test_a_reward_that_is_one_number_since_the_start_takes_longer_and_informs_once_it_varies() -> None:
    short = {"train/reward": (STEPS[:100], np.full(100, -1.2))}
    assert found([RewardConstant()], short) == []
    reward = np.full(480, -1.2)
    assert only("reward_constant", reward=reward).severity == "critical"
    reward[300:] = healthy()["train/reward"][300:]
    assert only("reward_constant", reward=reward).severity == "info"
    reward[60:] = healthy()["train/reward"][60:]
    assert "reward_constant" not in {one.rule for one in look(reward=reward)}


def test_a_kl_that_leaps() -> None:
    kl = healthy()["train/kl"].copy()
    kl[240:] += np.arange(240) * 0.01
    finding = only("kl_blow_up", kl=kl, reward=np.random.default_rng(0).normal(0, 0.1, 480))
    assert finding.severity == "warning" and abs(finding.step - 240) <= 16
    assert only("kl_blow_up", kl=np.where(STEPS < 240, 0.05, 40.0)).severity == "critical"


def test_a_single_row_of_kl_is_named_by_its_step_and_one_that_lasts_is_no_single_row() -> None:
    kl = np.where(STEPS == 244, 2.4, 0.02)
    finding = only("kl_blow_up", kl=kl)
    assert (finding.step, finding.severity) == (244, "warning") and finding.causes[0].startswith("bad batch")
    early = np.where(STEPS == 23, 0.456, 0.008)  # of a policy that has hardly moved yet, in few rows
    assert "kl_blow_up" not in {one.rule for one in look(kl=early) if one.severity != "info"}
    lasting = only("kl_blow_up", kl=np.where(STEPS < 244, 0.02, 2.4))
    assert lasting.step == 244 and lasting.causes[0].startswith("reward hacking") and "since step" in lasting.message


def test_a_kl_that_samples_put_around_0_has_no_row_far_above_it() -> None:
    dice = np.random.default_rng(3)
    kl = dice.normal(-0.0004, 0.003, 480)
    kl[100:] += np.where(np.arange(380) % 9 == 0, 0.06, 0.0)
    kl[260] = 0.16  # of a policy that has learnt it, and is sure
    assert "kl_blow_up" not in {one.rule for one in look(kl=kl)}
    kl[260] = 2.4
    assert only("kl_blow_up", kl=kl).step == 260


def test_an_entropy_that_is_gone() -> None:
    entropy = np.where(STEPS < 200, 2.0, 0.05)
    assert (
        only("entropy_collapse", entropy=entropy, reward=np.random.default_rng(0).normal(0, 0.1, 480)).severity
        == "warning"
    )
    assert only("entropy_collapse", entropy=entropy).severity == "info"


def test_the_entropy_of_actions_that_are_numbers_may_go_below_0() -> None:
    flat = np.random.default_rng(0).normal(0, 0.1, 480)
    falls = np.maximum(1.4 - 0.02 * STEPS, -1.0)
    assert "entropy_collapse" not in {one.rule for one in look(entropy=falls, reward=flat)}
    slow = np.where(STEPS < 200, 2.0, 0.05)
    assert "entropy_collapse" not in {one.rule for one in look(entropy=slow, reward=flat, std=0.1 + 0.0 * slow)}


def test_the_bounds_that_trl_users_know() -> None:
    flat = np.random.default_rng(0).normal(0, 0.1, 480)
    late = STEPS >= 200
    assert only("zero_advantage", frac_reward_zero_std=np.where(late, 0.95, 0.3), reward=flat - late * 0.5).step == 200
    assert only("policy_clipping", clip_ratio=np.where(late, 0.45, 0.1)).step == 200
    assert only("clipped_completions", **{"completions/clipped_ratio": np.where(late, 0.9, 0.1)}).severity == "warning"
    assert only("clipped_completions", **{"completions/clipped_ratio": np.full(480, 0.9)}).severity == "info"
    mismatch = {"sampling/sampling_logp_difference/mean": np.where(late, 0.8, 0.02)}
    assert only("sampling_mismatch", **mismatch).severity == "warning"


def test_warnings_are_few_where_rewards_wander() -> None:
    many = [
        warned(
            look(reward=np.cumsum(np.random.default_rng(seed).normal(0.003, 0.01, 480)) + healthy(seed)["train/reward"])
        )
        for seed in range(6)
    ]
    assert sum(map(bool, many)) == 0


@settings(max_examples=50, deadline=None)
@given(columns(("train/reward", "train/kl", "train/entropy", "train/clip_ratio", "train/frac_reward_zero_std")))
def test_pieces_of_any_size_give_the_same_findings_and_nothing_raises(drawn) -> None:
    series, cuts = drawn
    assert found([rule() for rule in RULES], series, cuts) == found([rule() for rule in RULES], series)


def test_an_entropy_that_fell_while_the_reward_rose_is_told_once_and_not_blamed_later() -> None:
    entropy = 2 * np.exp(-np.minimum(STEPS, 120) / 45) + 0.01
    reward = np.where(STEPS < 360, np.clip(STEPS / 200, 0, 1), 0.3)
    finding = only("entropy_collapse", entropy=entropy, reward=reward + np.random.default_rng(0).normal(0, 0.05, 480))
    assert finding.severity == "info"


@pytest.mark.parametrize(
    ("reward", "severity"),
    [
        (np.clip(STEPS / 100, 0, 0.85), "info"),  # solved: it is at its best, and stays there
        (np.minimum(STEPS / 3, 1.08) + np.clip(STEPS / 100, 0, 0.1) + 0.01 * (STEPS % 2), "info"),  # within a block
        (np.where(STEPS < 60, STEPS / 100, 0.2), "warning"),  # as still, and worse than it was
        (np.full(480, 0.85), "warning"),  # it never got better
    ],
)
@pytest.mark.parametrize("least", [0.01, 0.001])
def test_a_task_that_is_solved_for_good_needs_no_entropy(reward: np.ndarray, severity: str, least: float) -> None:
    entropy = 2 * np.exp(-STEPS / 30) + 2 * least
    judged = [one for one in look(entropy=entropy, reward=reward) if one.rule == "entropy_collapse"]
    assert {one.severity for one in judged} == {severity}


def test_an_entropy_of_nothing_warns_whatever_the_reward_and_begins_with_the_last_fall() -> None:
    entropy = np.where(STEPS < 300, 0.15, 0.15 * np.exp(-(STEPS - 300) / 20)) + 2 * np.exp(-STEPS / 20)
    finding = max(
        (one for one in look(entropy=entropy) if one.rule == "entropy_collapse"), key=lambda one: one.severity
    )
    assert finding.severity == "warning" and 290 <= finding.step <= 320


@pytest.mark.parametrize(("chosen", "told"), [("always", True), ("at first", False), ("rate of 0", False)])
def test_a_reference_that_is_the_policy_is_proven_by_rewards_of_exactly_zero(chosen: str, told: bool) -> None:
    rewards = np.zeros(60)
    if chosen == "at first":
        rewards[1:] = -0.01 * np.arange(1, 60)
    rate = np.zeros(60) if chosen == "rate of 0" else np.full(60, 1e-5)
    series = {"train/loss": np.full(60, 0.693), "train/lr": rate, "rewards/chosen": rewards}
    judged = found([rule() for rule in RULES], {name: (np.arange(60), values) for name, values in series.items()})
    assert ("reference_moves" in [one.rule for one in judged]) == told


@pytest.mark.parametrize(("sign", "told"), [(1, False), (-1, True)])
def test_a_preference_for_rejected_answers_is_known_by_its_own_loss(sign: int, told: bool) -> None:
    steps = np.arange(1, 81)
    margins = np.linspace(0, 1.5, 80)  # what the loss sees
    loss = np.log1p(np.exp(-margins))
    judged = found([PreferenceReversed()], {"loss": (steps, loss), "rewards/margins": (steps, sign * margins)})
    assert ("preference_reversed" in [one.rule for one in judged]) == told


@pytest.mark.parametrize(
    ("before", "behind", "told"),
    [(0.5, -0.4, True), (0.5, 0.02, False), (0.0, -0.4, False), (-0.3, -0.5, False), (0.05, -0.05, False)],
)
@pytest.mark.parametrize("pieces", [(), (90, 121, 125)])
def test_chosen_and_rejected_that_change_places_turn_the_margin(
    before: float, behind: float, told: bool, pieces: tuple[int, ...]
) -> None:
    steps, dice = np.arange(1, 201), np.random.default_rng(2)
    margins = np.where(steps < 121, before * np.minimum(steps / 40, 1), behind) + dice.normal(0, 0.15, 200)
    rows = {"loss": (steps, np.log1p(np.exp(-2 * margins))), "rewards/margins": (steps, margins)}
    judged = found([MarginTurned()], rows, pieces)
    assert [one.rule for one in judged] == (["margin_turned"] if told else [])
    assert not told or (judged[0].severity == "critical" and abs(judged[0].step - 121) <= 6)


@pytest.mark.parametrize(
    ("times", "size", "told"), [(16, 16, True), (1, 16, False), (36, 16, False), (16, None, False)]
)
def test_a_preference_that_is_summed_is_known_by_the_margin_and_the_batch(
    times: int, size: int | None, told: bool
) -> None:
    steps = np.arange(1, 81)
    margins = np.linspace(0.3, 1.5, 80) + np.random.default_rng(0).normal(0, 0.05, 80)
    rows = {"loss": (steps, times * np.log1p(np.exp(-margins))), "rewards/margins": (steps, margins)}
    facts = {"config": {"batch_size": size} if size else {}, "vocabulary": 40}
    judged = found([PreferenceSummed(), InitialLoss()], rows, **facts)
    assert [one.rule for one in judged] == (["preference_summed"] if told else [])


@pytest.mark.parametrize(
    ("times", "margin", "size", "told"),
    [(12.0, 0.0, 12, True), (1.0, 0.0, 12, False), (12.0, 0.01, 12, False), (12.3, 0.0, 12, False),
     (4.0, 0.0, 12, False), (12.0, 0.0, None, False)],  # of four micro-batches; of what nobody says
)  # fmt: skip
@pytest.mark.parametrize("pieces", [(), (1, 2, 7)])
@pytest.mark.parametrize("chosen", [{}, {"reduction": "sum"}, {"reduction": "mean"}])
def test_a_sum_over_pairs_shows_where_the_policy_is_still_its_reference(
    times: float, margin: float, size: int | None, told: bool, pieces: tuple[int, ...], chosen: dict[str, str]
) -> None:
    steps, dice = np.arange(80), np.random.default_rng(5)
    margins, losses = dice.normal(0, 3, 80), times * dice.uniform(0.2, 40, 80)  # it blows up at once
    margins[0], losses[0] = margin, times * np.log(2)
    facts = {"config": ({"per_device_batch_size": size} if size else {}) | chosen}
    rows = {"loss": (steps, losses), "rewards/margins": (steps, margins)}
    judged = found([PreferenceSummed()], rows, pieces, **facts)
    said = told and chosen.get("reduction") != "sum"  # who chose the sum may have chosen the rate for it
    assert [one.rule for one in judged] == (["preference_summed"] if said else [])


@pytest.mark.parametrize(
    ("rises", "itself", "adapters", "told"), [(0.0, True, 0, True), (0.01, True, 0, False), (0.0, False, 0, False),
     (0.0, True, 4, False)]
)  # fmt: skip
def test_a_reference_with_dropout_that_is_the_policy_is_known_by_noise(
    rises: float, itself: bool, adapters: int, told: bool
) -> None:
    steps = np.arange(1, 81)
    margins = np.random.default_rng(3).normal(0, 0.05, 80) + rises * steps
    margins[:48] -= margins[:48].mean() * (rises == 0) * 0.9
    series = {"loss": (steps, np.full(80, 0.69)), "rewards/margins": (steps, margins)}
    if itself:
        series["model/passes_without_gradients"] = (steps[:1], np.ones(1))
    if adapters:
        series["model/trained_adapters"] = (steps[:1], np.full(1, float(adapters)))
    judged = found([ReferenceMoves()], series)
    assert ("reference_moves" in [one.rule for one in judged]) == told


@pytest.mark.parametrize(
    ("rewards", "margins", "found_at"),
    [
        (np.linspace(0.01, 0.2, 40), np.zeros(40), 0),
        (np.r_[np.zeros(5), np.linspace(0.01, 0.2, 35)], np.zeros(40), 5),  # the rate was 0 at first
        (np.zeros(40), np.zeros(40), None),  # the reference's own rule
        (np.linspace(0.01, 0.2, 40), np.linspace(0.01, 0.4, 40), None),
        (np.linspace(0.01, 0.2, 40), np.tile([0.0, 0.01], 20), None),  # of few pairs some may be alike
        (np.full(40, np.nan), np.zeros(40), None),
    ],
)
def test_pairs_of_the_same_answers_are_known_by_their_margin(
    rewards: np.ndarray, margins: np.ndarray, found_at: int | None
) -> None:
    series = {"train/loss": np.full(40, 0.693), "rewards/chosen": rewards, "rewards/margins": margins}
    named = {name: (np.arange(40), values) for name, values in series.items()}
    steps = [one.step for one in found([PairsAlike()], named) if one.rule == "pairs_alike"]
    assert steps == ([] if found_at is None else [found_at])


@pytest.mark.parametrize(("ends", "severity"), [(3.0, "info"), (0.1, "warning")])
def test_a_reward_that_fell_and_is_higher_again_has_not_collapsed(ends: float, severity: str) -> None:
    """As of a policy that explores less and less, before it has learnt."""
    rows = np.arange(480)
    reward = np.select([rows < 80, rows < 200], [np.clip(rows / 40, 0, 1), 0.05], np.clip((rows - 200) / 40, 0, ends))
    reward = np.where(rows >= 200, np.maximum(0.05, reward), reward) + np.random.default_rng(1).normal(0, 0.02, 480)
    (one,) = found([RewardCollapse()], {"train/reward": (rows, reward), "train/kl": (rows, 0.01 + 0 * rows)})
    assert one.severity == severity and ("higher again since step" in one.message) == (severity == "info")


@pytest.mark.parametrize("pieces", [(), (1, 5, 8, 9)])
@pytest.mark.parametrize("name", ["dpo/reward_margin", "dpo/gain"])
@pytest.mark.parametrize(("times", "dropout", "told"), [(23.8, 0.1, True), (23.8, 0.0, False), (20.0, 0.1, False)])
def test_a_sum_over_pairs_is_known_by_its_first_loss_with_dropout(
    times: float, dropout: float, told: bool, name: str, pieces: tuple[int, ...]
) -> None:
    steps, once = np.arange(40), np.ones(1)
    columns = {"dpo/loss": (steps, times * np.log(2) * np.exp(-steps / 4)), name: (steps, 0.02 + 0.9 * steps),
               "model/loss_ranks": (steps[:1], once), "model/loss_adds": (steps[:1], once),
               "model/dropout": (steps[:1], dropout * once)}  # fmt: skip
    judged = found([PreferenceSummed()], columns, pieces, config={"batch": 24})
    assert [one.rule for one in judged] == ["preference_summed"] * told


@pytest.mark.parametrize("pieces", [(), (1, 5, 8, 9)])
@pytest.mark.parametrize(
    ("times", "ranks", "adds", "config", "told"),
    [
        (24.0, 1.0, 1.0, {"batch": 24}, True),
        (24.0, 1.0, 0.0, {"batch": 24}, False),  # a mean
        (24.0, 0.0, 1.0, {"batch": 24}, False),  # of one answer
        (24.1, 1.0, 1.0, {"batch": 24}, False),  # begins elsewhere
        (1.0, 1.0, 1.0, {"batch": 24}, False),
        (24.0, 1.0, 1.0, {"batch": 24, "reduction": "sum"}, False),
    ],
)
def test_a_sum_over_pairs_is_known_by_its_first_loss_where_no_margin_is_logged(
    times: float, ranks: float, adds: float, config: dict[str, object], told: bool, pieces: tuple[int, ...]
) -> None:
    steps = np.arange(40)
    columns = {"dpo/loss": (steps, times * np.log(2) * np.exp(-steps / 100)),
               "model/loss_ranks": (steps[:1], np.array([ranks])),
               "model/loss_adds": (steps[:1], np.array([adds]))}  # fmt: skip
    judged = found([PreferenceSummed()], columns, pieces, config=config)
    assert [one.rule for one in judged] == ["preference_summed"] * told
    late = dict.fromkeys(("model/loss_ranks", "model/loss_adds"), 20)  # a fast loop goes on meanwhile
    waited = findings([PreferenceSummed()], columns, facts={"config": config}, cuts=pieces, late=late)
    assert [one.found for one in waited.values()] == [20] * told


@pytest.mark.parametrize(
    ("config", "told"),
    [({"pairs_a_batch": 24, "pairs": 960}, True), ({"pairs_a_batch": 24, "per_word": False}, True),
     ({"pairs_a_batch": 24, "loss_reduction": "sum"}, False), ({"pairs": 960}, False),
     ({"pairs_a_batch": 24, "per_sample": False}, False)],
)  # fmt: skip
def test_how_many_pairs_a_batch_has_may_be_called_otherwise(config: dict[str, object], told: bool) -> None:
    steps, once = np.arange(40), np.ones(1)
    columns = {"dpo/loss": (steps, 24 * np.log(2) * np.exp(-steps / 4)), "dpo/gain": (steps, 0.9 * steps),
               "model/loss_ranks": (steps[:1], once), "model/loss_adds": (steps[:1], once)}  # fmt: skip
    judged = found([PreferenceSummed()], columns, config=config)
    assert [one.rule for one in judged] == ["preference_summed"] * told
