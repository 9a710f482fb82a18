"""Preferences whose reference is another network, and those whose beta lets nothing be learnt."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found as findings_of

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.rl.preference import PairsAlike, ReferenceMoves
from barograph.doctor.rules.rl.preference_loss import PreferenceAveraged, PreferenceBeta
from barograph.doctor.rules.rl.reference import (
    ReferenceApart,
    ReferenceCopied,
    ReferenceMode,
    ReferenceTrained,
)

ROWS = 300
STEP = 1 + np.arange(ROWS)
DICE = np.random.default_rng(7)


def one(rule: type, beta: float, pieces: tuple[int, ...], **series: np.ndarray) -> list[Finding]:
    columns = {name.replace("__", "/"): (STEP[: len(values)], values) for name, values in series.items()}
    return findings_of([rule()], columns, pieces, config={"beta": beta})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("chosen", "rejected", "apart", "cause"),
    [
        (4.4, 1.8, 1.36, "reference is another network"),
        (0.5, 3.1, 2e-4, "log probabilities differ"),
        (0.0, 0.0, 2e-4, None),
        (0.2, -0.3, 2e-4, None),  # dropout
        (0.0, 0.0, 1.36, None),
        (-0.4, -2.4, 0.5, None),  # what an earlier stage has learnt
        (-2.4, -2.9, 0.5, "reference is another network"),
    ],
)
def test_the_first_rewards_of_a_preference_are_zero(
    chosen: float, rejected: float, apart: float, cause: str | None, pieces: tuple[int, ...]
) -> None:
    found = one(
        ReferenceApart, 0.1, pieces, rewards__chosen=chosen + 0.01 * STEP, rewards__rejected=rejected - 0.01 * STEP,
        model__other_apart=apart + 1e-4 * STEP,
    )  # fmt: skip
    assert [finding.step for finding in found] == [1] * (cause is not None)
    assert cause is None or found[0].causes[0].startswith(cause)


@pytest.mark.parametrize(("names", "late", "told"), [
    (("rewards/chosen", "rewards/rejected"), 0, True), (("kto/good_reward", "kto/bad_reward"), 0, True),
    (("kto/good_reward", "kto/bad_reward"), 3, False),  # no batch before had an answer of that side
])  # fmt: skip
def test_first_rewards_of_both_sides_are_those_of_one_step(names: tuple[str, str], late: int, told: bool) -> None:
    columns = {names[0]: (STEP, 0.0 * STEP), names[1]: (STEP[late:], -0.5 + 0.0 * STEP[late:]),
               "model/other_apart": (STEP, 1e-4 + 1e-4 * STEP)}  # fmt: skip
    assert bool(findings_of([ReferenceApart()], columns, (), config={"beta": 0.1})) == told


@pytest.mark.parametrize(
    ("config", "told"),
    [({"iteration": 2}, False), ({"dpo.round": 1}, False), ({"dpo": {"ref_model": "sft/"}, "model": "dpo-1/"}, False),
     ({"ref_model": "sft/", "model": "sft/"}, True), ({"iteration": 0}, True), ({"max_iter": 90}, True),
     ({"zero.stage": 2}, True), ({"reference_model": None}, True)],
)  # fmt: skip
def test_a_policy_that_goes_on_by_the_configuration_may_be_apart(config: dict, told: bool) -> None:
    columns = {"rewards/chosen": (STEP, -2.4 + 0 * STEP), "rewards/rejected": (STEP, -2.9 + 0 * STEP),
               "model/other_apart": (STEP, 0.5 + 0 * STEP)}  # fmt: skip
    assert bool(findings_of([ReferenceApart()], columns, (), config=config)) == told


@pytest.mark.parametrize(
    ("apart", "each", "severity"),
    [
        (0.0, 2e-4, "critical"),
        (4e-4, 2e-4, "critical"),
        (0.03, 2e-4, "info"),
        (0.03, 0.0, "info"),
        (0.2, 2e-4, "critical"),
    ],
)
@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13)), (1, 2, 3)])
def test_a_policy_a_little_away_from_its_reference_was_trained_before(
    apart: float, each: float, severity: str, pieces: tuple[int, ...]
) -> None:
    series = {"rewards__chosen": -2.4 + 0 * STEP, "rewards__rejected": -2.9 + 0 * STEP}
    (found,) = one(ReferenceApart, 0.1, pieces, model__other_apart=apart + each * STEP, **series)
    assert found.severity == severity and ("same" in found.message) == (apart < 0.03)


@pytest.mark.parametrize(
    ("config", "told"),
    [({"loss_type": "simpo"}, False), ({"trainer.algo": "orpo"}, False), ({"reference_free": True}, False),
     ({"loss_type": "sigmoid"}, True), ({"name": "simpo"}, True), ({"reference_free": False}, True)],
)  # fmt: skip
def test_a_loss_without_a_reference_has_rewards_of_its_own(config: dict, told: bool) -> None:
    columns = {"rewards/chosen": (STEP, -2.4 + 0 * STEP), "rewards/rejected": (STEP, -2.9 + 0 * STEP),
               "model/other_apart": (STEP, 1e-4 * STEP)}  # fmt: skip
    assert bool(findings_of([ReferenceApart()], columns, (), config=config)) == told


def test_rewards_without_a_second_network_say_nothing() -> None:
    assert not one(ReferenceApart, 2.0, (), rewards__chosen=-2.0 + 0 * STEP, rewards__rejected=-3.0 + 0 * STEP)


@pytest.mark.parametrize(
    ("apart", "drift", "moved", "same", "told"),
    [
        (1.4, 1e-4, 0.0, 1.0, True),
        (1.4, 0.3, 0.0, 1.0, False),  # the policy goes far at each step
        (1.4, 1e-4, 1e-3, 1.0, False),  # it follows the policy: no reference
        (1.4, 1e-4, 0.0, 0.0, False),  # asked about other examples
        (0.5, 1e-4, 0.0, 1.0, False),  # the policy goes on from an earlier stage
        (0.02, 1e-4, 0.0, 1.0, False),
    ],
)
@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
def test_a_reference_that_is_another_network_is_known_by_its_weights_whatever_is_logged(
    apart: float, drift: float, moved: float, same: float, told: bool, pieces: tuple[int, ...]
) -> None:
    found = one(
        ReferenceApart, 0.1, pieces, loss=0.7 + 0 * STEP, model__loss_ranks=0 * STEP[:1],
        model__other_same_input=same + 0 * STEP, model__other_apart=apart + drift * STEP,
        model__other_moved=moved + 0 * STEP,
    )  # fmt: skip
    assert [finding.causes[0] for finding in found] == ["reference is another network: not a copy of the policy"] * told


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("beta", "difference", "cause"),
    [
        (1e-4, STEP / 50.0, "beta too small"),
        (0.1, STEP / 50.0, None),
        (1e-2, 0.01 * STEP / 50.0, None),  # nothing has been learnt yet
        (100.0, np.minimum(STEP - 1, 20) / 100.0, "beta too large"),
        (2.0, np.minimum(STEP - 1, 20) / 100.0, None),
    ],
)
def test_a_beta_that_lets_nothing_be_learnt(
    beta: float, difference: np.ndarray, cause: str | None, pieces: tuple[int, ...]
) -> None:
    margins = beta * difference
    found = one(PreferenceBeta, beta, pieces, rewards__margins=margins, loss=np.logaddexp(0, -margins))
    assert len(found) == (cause is not None)
    assert cause is None or found[0].causes[0].startswith(cause)


ONES = np.ones(ROWS)
KNOWN = {"model__loss_ranks": ONES[:1], "model__other_same_input": ONES}


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("apart", "moved", "known", "says"),
    [
        (0.0, 1e-3, KNOWN, True),
        (0.0, 1e-3, {"model__preference_compared": 2 * ONES[:1], "model__other_same_input": ONES}, True),  # IPO
        (1e-4, 1e-3, KNOWN, False),  # an average that follows
        (0.0, 0.0, KNOWN, False),  # a learning rate of 0
        (0.0, 1e-3, KNOWN | {"model__other_same_input": 0 * ONES}, False),  # a target network
        (0.0, 1e-3, {"model__other_same_input": ONES}, False),
    ],
)
def test_a_reference_that_is_copied_from_the_policy_is_found(
    apart: float, moved: float, known: dict[str, np.ndarray], says: bool, pieces: tuple[int, ...]
) -> None:
    series = {"model__other_apart": apart * ONES, "model__other_moved": moved * ONES}
    found = one(ReferenceCopied, 0.1, pieces, **series, **known)
    assert [finding.step for finding in found] == [1] * says


def test_a_reference_that_is_copied_now_and_then_is_none() -> None:
    series = {"model__other_apart": 1e-3 * (STEP % 8), "model__other_moved": 1.0 * (STEP % 8 == 0)}
    assert not one(ReferenceCopied, 0.1, (), **series, **KNOWN)


@pytest.mark.parametrize("graph", ["loss_ranks", "preference_compared", ""])
@pytest.mark.parametrize(("rule", "name"), [(ReferenceTrained, "gradient"), (ReferenceMode, "training")])
def test_a_reference_with_gradients_or_dropout_is_found(rule: type, name: str, graph: str) -> None:
    known = {"model__other_same_input": ONES} | ({f"model__{graph}": ONES[:1]} if graph else {})
    found = one(rule, 0.1, (), **{f"model__other_{name}": ONES}, **known)
    assert [finding.step for finding in found] == [0] * bool(graph)
    assert not one(rule, 0.1, (), **{f"model__other_{name}": 0 * ONES}, **known)


@pytest.mark.parametrize(
    ("share", "ranks", "says"), [(1.0, True, True), (1.0, False, False), (0.3, True, False)]
)  # two passes over one batch are compared on purpose elsewhere
def test_passes_of_the_same_pairs_are_found_without_a_margin(share: float, ranks: bool, says: bool) -> None:
    known = {"model__loss_ranks": ONES[:1]} if ranks else {}
    found = one(PairsAlike, 0.1, (), model__beside_copies=share * ONES[:6], **known)
    assert [finding.step for finding in found] == [1] * says


@pytest.mark.parametrize(
    ("seen", "causes"),
    [
        ({}, ["reference is the policy", "chosen and rejected alike"]),
        ({"other_apart": 0.0}, ["chosen and rejected alike"]),  # a reference runs beside it
        ({"trained_adapters": 8.0}, ["chosen and rejected alike"]),  # the reference is the policy without them
        ({"output_width": 1.0}, ["chosen and rejected alike"]),  # a model of rewards has no reference
        ({"batch_copies": 0.5}, ["chosen and rejected alike"]),
    ],
)
def test_a_second_pass_over_the_same_pairs_may_be_the_reference_that_is_the_policy(
    seen: dict[str, float], causes: list[str]
) -> None:
    figures = {"output_width": 31.0, "batch_copies": 0.0, "loss_ranks": 0.0} | seen
    known = {f"model__{name}": value * ONES[:1] for name, value in figures.items()}
    (told,) = one(PairsAlike, 0.1, (), model__beside_copies=ONES[:6], **known)
    assert [cause.partition(":")[0] for cause in told.causes] == causes


@pytest.mark.parametrize(
    ("seen", "causes"),
    [
        ({}, ["reference is the policy", "chosen and rejected alike"]),
        ({"beside_copies": 0.0}, ["reference is the policy"]),
        ({"other_apart": 0.0}, None),
    ],
)
def test_a_margin_of_zero_alone_is_of_a_policy_that_is_its_own_reference(
    seen: dict[str, float], causes: list[str] | None
) -> None:
    known = {f"model__{name}": value * ONES[:1] for name, value in seen.items()}
    found = one(ReferenceMoves, 0.1, (), rewards__margins=0.0 * ONES[:12], **known)
    assert [[cause.partition(":")[0] for cause in told.causes] for told in found] == [causes] * (causes is not None)
    assert not one(ReferenceMoves, 0.1, (), rewards__margins=np.where(STEP[:12] == 9, 1e-3, 0.0), **known)


@pytest.mark.parametrize(("varies", "terms", "told"), [(True, 1.0, False), (True, 2.0, True), (False, 1.0, True)])
def test_a_reward_of_zero_beside_a_loss_that_is_learnt_is_of_no_reference(
    varies: bool, terms: float, told: bool
) -> None:
    known = {"model__loss_terms": terms * ONES[:1], "model__preference_averaged": 0.0 * ONES[:1]}
    loss = 0.69 - (0.01 * np.arange(40) if varies else 1e-6 * (np.arange(40) % 2))
    found = one(ReferenceMoves, 0.1, (), rewards__chosen=0.0 * ONES[:40], train__loss=loss, **known)
    assert [one.rule for one in found] == ["reference_moves"] * told


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("names", "bad", "told"),
    [
        (("kto__good_reward", "kto__bad_reward"), 0.0, True),
        (("reward__winner", "reward__loser"), 0.0, True),
        (("kto__good_reward", "kto__bad_reward"), -0.1, False),  # of another name it takes both sides
        (("kto__good_reward", "kto__other_reward"), 0.0, False),
    ],
)
def test_rewards_of_both_sides_are_known_by_opposite_words(
    names: tuple[str, str], bad: float, told: bool, pieces: tuple[int, ...]
) -> None:
    good, other = names
    found = one(ReferenceMoves, 0.1, pieces, **{good: 0.0 * ONES[:40], other: bad * ONES[:40]})
    assert [one.severity for one in found] == ["critical"] * told


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("averaged", "falls", "first", "beta", "says"),
    [
        (1.0, 0.0002, 0.693, 0.1, True),
        (1.0, 0.0002, 0.693, 5.0, False),  # averages that are meant have a larger β
        (1.0, 0.005, 0.693, 0.5, True),  # a β for sums
        (1.0, 0.005, 0.693, 0.6, False),  # it learns
        (1.0, 0.0002, 0.66, 0.1, False),  # with no reference it begins anywhere
        (0.0, 0.0002, 0.693, 0.1, False),
    ],
)
def test_averaged_log_probabilities_are_said_where_the_loss_hardly_leaves_its_first_value(
    averaged: float, falls: float, first: float, beta: float, says: bool, pieces: tuple[int, ...]
) -> None:
    found = one(
        PreferenceAveraged, beta, pieces, loss=first - falls * (STEP - 1),
        model__preference_averaged=np.array([averaged]),
    )  # fmt: skip
    assert [(finding.step, finding.found) for finding in found] == [(0, 48)] * says
    assert not says or found[0].causes[0].startswith("loss divided too often")


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("first", "change", "config", "told"),
    [
        (2.13, {}, {}, True),
        (0.3, {}, {}, True),
        (0.693, {}, {}, False),
        (0.75, {}, {}, False),  # of some noise
        (8 * np.log(2), {}, {}, False),  # losses of eight pairs, added
        (2.13, {"model__loss_terms": 3.0}, {}, False),  # beside the loss of what was chosen
        (2.13, {"model__dropout": 0.1}, {}, False),
        (2.13, {"model__other_same_input": 0.0}, {}, False),
        (2.13, {"model__other_apart": 0.05}, {}, False),  # trained a little before
        (2.13, {}, {"dpo.margin": 1.0}, False),
        (0.9, {"model__loss_ranks": 0.0}, {}, False),  # of answers one by one, whose two kinds have weights
        (0.9, {"model__loss_ranks": 1.0}, {}, True),
        (0.9, {"model__loss_ranks": 1.0}, {"undesirable_weight": 1.5}, False),
        (0.9, {"model__loss_ranks": 1.0}, {"undesirable_weight": 1.0, "weight_decay": 0.1}, True),
    ],
)
def test_a_preference_begins_at_ln_2_where_policy_and_reference_are_one_network(
    first: float, change: dict[str, float], config: dict[str, float], told: bool, pieces: tuple[int, ...]
) -> None:
    level = {"model__loss_terms": 2.0, "model__dropout": 0.0, "model__other_same_input": 1.0, "model__other_apart": 0.0,
             "model__preference_averaged": 0.0} | change  # fmt: skip
    series = {name: value + 0 * STEP for name, value in level.items()} | {"train__loss": first - 1e-3 * (STEP - 1)}
    series["model__other_apart"] = level["model__other_apart"] + 1e-4 * STEP
    columns = {name.replace("__", "/"): (STEP, values) for name, values in series.items()}
    found = findings_of([ReferenceApart()], columns, pieces, config=config)
    assert [one.severity for one in found] == ["warning"] * told
