"""Rules over activations: what must be found, what must not, and the same in pieces of any size."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.doctor.rules.activations.activations import (
    RULES,
    ActivationDrift,
    AttentionEntropy,
    AttentionLogits,
    DeadUnits,
    NonFiniteActivation,
    OutputLogits,
    SaturatedUnits,
)

NAN = float("nan")


def table(quantity: str, rows: dict, every: int = 10) -> dict:
    return {
        f"activations/{name}/{quantity}": (numpy.arange(len(values)) * every, values) for name, values in rows.items()
    }


def test_an_attention_logit_that_jumps_warns_with_the_temperature_first() -> None:
    rows = {"h.0": list(noisy(20, 8, 0.1)), "h.1": list(noisy(20, 3, 0.1, 1))}
    rows["h.0"][12:] = [170.0] * 8
    (one,) = only(findings([AttentionLogits()], table("attention_logit_max", rows)), "attention_logits")
    assert (one.severity, one.step, one.key) == ("warning", 120, "jump")
    assert one.causes[0].startswith("attention temperature")


@pytest.mark.parametrize(
    ("last", "fall", "severity"),
    [(45.0, 0.9, "info"), (45.0, 1.0, "warning"), (120.0, 0.9, "warning"), (45.0, 1.2, "warning")],
)
def test_heads_that_learn_to_look_at_one_key_while_the_loss_falls_warn_nobody(
    last: float, fall: float, severity: str
) -> None:
    logits = table("attention_logit_max", {"h.0": [*noisy(12, 9, 0.1), *[last] * 8]})
    loss = 2.0 * numpy.where(numpy.arange(200) < 60, 1.0, fall)
    (one,) = only(findings([AttentionLogits()], logits | {"train/loss": loss}), "attention_logits")
    assert (one.severity, one.key) == (severity, "jump")


@pytest.mark.parametrize(
    ("last", "spike", "severity"), [(64.0, 0.8, "warning"), (64.0, 0.0, "info"), (45.0, 0.8, "info")]
)
def test_logits_that_are_ten_times_as_large_where_the_loss_jumped_are_not_learnt(
    last: float, spike: float, severity: str
) -> None:
    logits = table("attention_logit_max", {"h.0": [*noisy(8, 5, 0.1), *[last] * 12]})
    steps = numpy.arange(200)
    loss = 4.0 / (1 + steps / 60) + spike * (steps >= 75) * numpy.exp(-(steps - 75) / 6)
    (one,) = only(findings([AttentionLogits()], logits | {"train/loss": loss}), "attention_logits")
    assert (one.severity, one.key, one.step) == (severity, "jump", 80)


@pytest.mark.parametrize(("reach", "severity"), [(0.1, "warning"), (0.9, "info")])
def test_large_logits_while_the_loss_falls_warn_where_they_are_of_the_initialisation(
    reach: float, severity: str
) -> None:
    logits = table("attention_logit_max", {"h.0": [150.0, 152.0]})
    series = {name: (steps + 150, values) for name, (steps, values) in logits.items()}
    series["train/loss"] = (numpy.arange(200), numpy.linspace(3, 1, 200))
    series["model/reach"] = (numpy.array([100, 170]), [reach, reach])
    (one,) = only(findings([AttentionLogits()], series), "attention_logits")
    assert one.severity == severity


@pytest.mark.parametrize(("reach", "cause"), [(0.1, "bad initialisation"), (0.9, "learning rate"), (None, "learning")])
def test_large_logits_that_weights_can_not_have_moved_to_are_of_the_initialisation(
    reach: float | None, cause: str
) -> None:
    logits = table("attention_logit_max", {"h.0": [19000.0, 19500.0]})
    series = {name: (steps + 120, values) for name, (steps, values) in logits.items()}
    if reach is not None:
        series["model/reach"] = (numpy.array([100, 130]), [reach, reach])
    (one,) = only(findings([AttentionLogits()], series), "attention_logits")
    assert one.causes[0].startswith(cause)


def test_logits_beyond_a_thousand_are_critical_above_a_hundred_warn_above_fifty_inform() -> None:
    jump = table("attention_logit_max", {"h.0": [20.0] * 6 + [5000.0] * 3})
    assert {one.severity for one in findings([AttentionLogits()], jump).values()} == {"critical"}
    large = table("attention_logit_max", {"h.0": list(noisy(60, 130, 0.1))})
    assert "warning" in {one.severity for one in findings([AttentionLogits()], large).values()}
    usual = table("attention_logit_max", {"h.0": list(noisy(60, 70, 0.1))})
    assert {one.severity for one in findings([AttentionLogits()], usual).values()} == {"info"}
    growing = table("attention_logit_max", {"h.0": list(20 * 1.1 ** numpy.arange(40))})
    assert "warning" in {one.severity for one in findings([AttentionLogits()], growing).values()}
    young = table("attention_logit_max", {"h.0": list(numpy.minimum(1 + numpy.arange(40), 25.0))})
    assert not findings([AttentionLogits()], young)


def test_attention_that_falls_to_one_key_warns() -> None:
    rows = {"h.0": [0.8] * 10 + [0.01] * 6}
    found = only(findings([AttentionEntropy()], table("attention_entropy", rows)), "attention_entropy")
    assert (found[0].severity, found[0].step, found[0].found) == ("warning", 100, 120)
    low = findings([AttentionEntropy()], table("attention_entropy", {"h.0": [0.08] * 12}))
    assert {one.severity for one in low.values()} == {"info"}


def test_log_z_that_runs_away_warns_and_one_that_drifts_informs() -> None:
    away = numpy.concatenate([noisy(10, 6, 0.01), numpy.full(3, 400.0)])
    (one,) = only(findings([OutputLogits()], {"model/log_z": (numpy.arange(13) * 100, away)}), "output_logits")
    assert (one.severity, one.step, one.kind) == ("warning", 1000, "logits") and one.causes[0].startswith("no z-loss")
    drift = (numpy.arange(40) * 100, 6 + 0.5 * numpy.arange(40))
    assert {one.severity for one in findings([OutputLogits()], {"model/log_z": drift}).values()} == {"info"}
    assert not findings([OutputLogits()], {"model/log_z": (numpy.arange(40) * 100, noisy(40, 12, 0.05))})


def test_activations_of_another_size_warn_where_the_loss_is_worse() -> None:
    rows = {f"h.{at}": list(noisy(20, 1 + at, 0.05, at)) for at in range(3)}
    for name in rows:
        rows[name][12:] = [20.0 * value for value in rows[name][12:]]
    loss = noisy(200, 2.5, 0.01)
    assert {
        one.severity for one in findings([ActivationDrift()], table("rms", rows) | {"train/loss": loss}).values()
    } == {"info"}
    loss[118:] *= 1.5
    (one,) = only(findings([ActivationDrift()], table("rms", rows) | {"train/loss": loss}), "activation_drift")
    assert (one.severity, one.step, one.found) == ("warning", 120, 130)


@pytest.mark.parametrize(("ends", "severity"), [(200.0, "info"), (20.0, "warning"), (None, "warning")])
def test_saturated_units_beside_a_reward_that_rises_warn_nobody(ends: float | None, severity: str) -> None:
    """A critic of states that are worth the same, beside a policy that has learnt."""
    series = table("saturated", {"value.2": [*[0.3] * 10, *[0.95] * 6]})
    if ends is not None:
        series["rollout/reward"] = numpy.linspace(20, ends, 160) + noisy(160, 0, 0.1)
    (one,) = only(findings([SaturatedUnits()], series), "saturated_units")
    assert one.severity == severity


@pytest.mark.parametrize("learns", [True, False])
def test_saturated_units_of_a_critic_inform_once_the_policy_has_learnt(learns: bool) -> None:
    series = table("saturated", {"value.2": [0.95] * 16})
    series["rollout/reward"] = numpy.r_[numpy.full(50, 20.0), numpy.full(110, 200.0 if learns else 20.0)]
    (one,) = only(findings([SaturatedUnits()], series), "saturated_units")
    assert (one.severity, one.found) == ("info" if learns else "warning", 10)


@pytest.mark.parametrize(("ends", "severity"), [(199.9, "info"), (60.0, "warning")])
def test_saturated_units_beside_a_reward_that_stays_high_warn_nobody(ends: float, severity: str) -> None:
    """A reward at its bound does not rise any more; one that has fallen may be the critic's doing."""
    series = table("saturated", {"value.2": [*[0.3] * 10, *[0.95] * 6]})
    series["rollout/reward"] = numpy.r_[numpy.linspace(20, 200, 50), numpy.full(40, 200.0), numpy.full(70, ends)]
    (one,) = only(findings([SaturatedUnits()], series), "saturated_units")
    assert one.severity == severity


def test_dead_and_saturated_units() -> None:
    (one,) = only(findings([DeadUnits()], table("dead", {"h.0": [0.0, 0.97, 0.98, 0.99]})), "dead_units")
    assert (one.severity, one.step, one.found, one.kind) == ("warning", 10, 20, "dead")
    assert {one.severity for one in findings([DeadUnits()], table("dead", {"h.0": [0.6] * 5})).values()} == {"info"}
    assert not findings([DeadUnits()], table("dead", {"h.0": [0.95, 0.1, 0.95, 0.2]}))
    (one,) = only(findings([SaturatedUnits()], table("saturated", {"h.0": [0.95] * 3})), "saturated_units")
    assert (one.severity, one.kind) == ("warning", "saturated")


def test_the_first_layer_that_is_not_finite_is_named() -> None:
    rows = {"h.0": [1.0, 1.0, 1.0], "h.2": [1.0, 1.0, NAN], "h.10": [1.0, 1.0, numpy.inf]}
    (one,) = only(findings([NonFiniteActivation()], table("rms", rows)), "non_finite_activation")
    assert (one.severity, one.step) == ("critical", 20) and one.evidence["first"] == "h.2"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_columns_give_the_same_in_pieces_and_never_raise(seed: int) -> None:
    names = ("train/loss", "train/lr", "model/log_z", "model/attention/logit_max")
    quantities = ("attention_logit_max", "attention_entropy", "rms", "max", "l2_norm", "dead", "saturated")
    tables = [f"activations/h.{at}/{quantity}" for at in range(3) for quantity in quantities]
    same_when_cut(RULES, random_columns(seed, names, tables), seed)
