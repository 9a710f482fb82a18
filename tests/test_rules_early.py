"""What the first steps show: weights that outgrow their start, logits before any training."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.doctor.rules.optimizer.early import RULES, EarlyGrowth, InitialLogits, is_untrained

STEPS = numpy.arange(200)


def growing(times: float, over: int, first: int = 0) -> dict:
    """A norm that grows to so many times its start, by steps of one size in directions of chance."""
    norm = 20 * numpy.sqrt(1 + (times**2 - 1) * numpy.clip(STEPS / over, 0, 1))
    rate = numpy.where(STEPS < 10, (STEPS + 1) / 10, 1.0) * 1e-2
    return {"model/param_norm": (STEPS + first, norm), "train/lr": (STEPS + first, rate)}


def test_weights_that_double_in_the_first_steps_warn_of_the_learning_rate() -> None:
    (one,) = only(findings([EarlyGrowth()], growing(2.2, 30)), "early_growth")
    assert (one.severity, one.kind, one.step) == ("warning", "update_ratio", 0) and 20 < one.found < 30
    assert one.causes[0].startswith("learning rate too high") and "or one that is too short" in one.causes[1]


@pytest.mark.parametrize(("ends", "severity"), [(90.0, "info"), (30.0, "warning")])
def test_weights_that_double_while_a_reward_grows_several_times_were_of_use(ends: float, severity: str) -> None:
    columns = growing(2.2, 30) | {"rollout/ep_rew_mean": (STEPS, numpy.linspace(16, 16 + (ends - 16) * 200 / 20, 200))}
    assert [one.severity for one in only(findings([EarlyGrowth()], columns), "early_growth")] == [severity]


@pytest.mark.parametrize("every", [1, 10, 20])
def test_a_doubling_that_takes_longer_than_the_optimizer_remembers_is_an_info_finding(every: int) -> None:
    slow, quick = (
        {name: (steps[::every], values[::every]) for name, (steps, values) in growing(times, 60).items()}
        for times in (2.1, 3.2)
    )
    assert [one.severity for one in only(findings([EarlyGrowth()], slow), "early_growth")] == ["info"]
    assert [one.severity for one in only(findings([EarlyGrowth()], quick), "early_growth")] == ["warning"]


def test_less_than_a_doubling_warns_only_with_updates_of_a_tenth() -> None:
    columns = growing(1.85, 50)
    small, large = numpy.full(200, 0.05), numpy.full(200, 0.15)
    assert not findings([EarlyGrowth()], columns)
    assert not findings([EarlyGrowth()], columns | {"model/update_p50": (STEPS, small)})
    assert only(findings([EarlyGrowth()], columns | {"model/update_p50": (STEPS, large)}), "early_growth")


@pytest.mark.parametrize(("left", "severity"), [(0.4, "info"), (0.8, "warning")])
@pytest.mark.parametrize("cuts", [(), (5, 21, 40)])
def test_growth_by_which_a_held_out_loss_has_halved_was_of_use(
    left: float, severity: str, cuts: tuple[int, ...]
) -> None:
    held_out = 1.8 * numpy.maximum(left, 1 - STEPS / 20 * (1 - left))
    columns = growing(2.2, 30) | {"train/loss": (STEPS, 0.8 + held_out / 2), "val/loss": (STEPS, held_out)}
    found = only(findings([EarlyGrowth()], columns, cuts=cuts), "early_growth")
    assert [one.severity for one in found] == [severity]


@pytest.mark.parametrize(("noise", "severity"), [(0.0, "info"), (0.03, "warning")])
@pytest.mark.parametrize("cuts", [(), (5, 21, 40)])
def test_growth_along_which_each_evaluation_is_better_was_of_use(
    noise: float, severity: str, cuts: tuple[int, ...]
) -> None:
    held_out = 1.8 - STEPS / 200 + noise * numpy.random.default_rng(2).normal(size=200)
    columns = growing(2.2, 30) | {"train/loss": (STEPS, 0.9 * held_out), "val/loss": (STEPS, held_out)}
    found = only(findings([EarlyGrowth()], columns, cuts=cuts), "early_growth")
    assert [one.severity for one in found] == [severity]


def test_growth_that_takes_its_time_or_begins_in_the_middle_of_a_run_is_silent() -> None:
    assert not findings([EarlyGrowth()], growing(3.0, 300))
    assert not findings([EarlyGrowth()], growing(1.5, 50))
    assert not findings([EarlyGrowth()], growing(2.2, 50, first=5000))


def test_the_norm_of_what_is_trained_grows_when_layers_are_unfrozen() -> None:
    columns = growing(2.2, 30)
    steps, norm = columns["model/param_norm"]
    columns["model/param_norm"] = (steps, numpy.where(steps < 20, norm[0], 3 * norm[0]))
    assert only(findings([EarlyGrowth()], columns), "early_growth")
    for counts, told in (([750.0, 17278.0], False), ([17278.0, 750.0], True), ([750.0], True)):
        trained = {"model/trained_elements": (numpy.array([0, 20])[: len(counts)], numpy.array(counts))}
        assert bool(findings([EarlyGrowth()], columns | trained)) == told
    for loose, told in ((6.0, False), (0.0, True)):  # parts that the optimizer gets later
        late = {"model/unheld": (STEPS[:20], numpy.full(20, loose)), "model/unchanged": numpy.where(STEPS < 20, 6.0, 0)}
        assert bool(findings([EarlyGrowth()], columns | late)) == told


@pytest.mark.parametrize("every", [1, 5])
def test_adapters_whose_other_factor_began_at_zero_may_outgrow_their_start(every: int) -> None:
    steps = STEPS[::every]
    tables = {f"updates/h.{at}.lora_a/weight_norm": (steps, 3 + 0.02 * steps) for at in range(2)}
    blank = {f"updates/h.{at}.lora_b/weight_norm": (steps, 0.02 * steps) for at in range(2)}
    assert not findings([EarlyGrowth()], growing(2.2, 50) | tables | blank)
    assert only(findings([EarlyGrowth()], growing(2.2, 50) | tables), "early_growth")
    one = dict([*blank.items()][:1])  # one output layer that begins at 0 among others
    assert only(findings([EarlyGrowth()], growing(2.2, 50) | tables | one), "early_growth")


@pytest.mark.parametrize(("high", "count"), [(slice(17, 18), 0), (slice(17, 200), 1)])
def test_a_norm_of_another_optimizers_weights_is_no_growth(high: slice, count: int) -> None:
    norm = numpy.full(200, 1.4)
    norm[high] = 3.4
    assert len(only(findings([EarlyGrowth()], {"model/param_norm": norm}), "early_growth")) == count


@pytest.mark.parametrize(("layers", "fall", "severity"), [(1, 0.9, []), (2, 0.9, ["warning"]), (2, 0.25, ["info"])])
def test_one_layer_may_outgrow_its_start_and_steps_that_took_the_loss_away_were_of_use(
    layers: int, fall: float, severity: list[str]
) -> None:
    loss = numpy.where(STEPS < 5, 2.0, 2.0 * fall)
    columns = growing(2.2, 15) | {"model/trained_matrices": ([0], [layers]), "train/loss": (STEPS, loss)}
    assert [one.severity for one in only(findings([EarlyGrowth()], columns), "early_growth")] == severity


@pytest.mark.parametrize(("share", "count"), [(1.0, 0), (0.95, 0), (0.5, 1)])
def test_tables_that_are_looked_up_may_outgrow_their_start(share: float, count: int) -> None:
    columns = growing(2.2, 15) | {"model/table_share": ([0], [share])}
    assert len(only(findings([EarlyGrowth()], columns), "early_growth")) == count


def attention(logit: float, loss: float, log_z: float) -> dict:
    tables = {f"activations/h.{at}/attention_logit_max": (STEPS[::10], noisy(20, logit - at)) for at in range(2)}
    return tables | {
        "train/loss": (STEPS, noisy(200, loss, 0.01)),
        "model/log_z": (STEPS[::10], noisy(20, log_z, 0.01)),
    }


def test_logits_that_are_large_before_anything_was_learnt_are_a_bad_initialisation() -> None:
    (one,) = only(findings([InitialLogits()], attention(60, 11.0, 11.5)), "initial_logits")
    assert (one.severity, one.kind, one.step) == ("warning", "attention", 0)
    assert one.causes[0].startswith("bad initialisation") and one.evidence["layer"] == "h.0"


@pytest.mark.parametrize(("logit", "loss"), [(60, 2.4), (5, 11.0)])
def test_a_pretrained_model_and_an_even_start_are_silent(logit: float, loss: float) -> None:
    assert not findings([InitialLogits()], attention(logit, loss, 11.5))


def test_what_is_not_known_is_no_untrained_model() -> None:
    nan = float("nan")
    assert is_untrained(5.6, 5.55) and not is_untrained(5.6, 3.0)
    assert not is_untrained(nan, 5.5) and not is_untrained(5.6, nan)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_findings_are_the_same_in_pieces_of_any_size(seed: int) -> None:
    names = ("model/param_norm", "model/update_p50", "train/lr", "train/loss", "model/log_z")
    tables = [f"activations/h.{at}/attention_logit_max" for at in range(3)]
    tables += [f"updates/h.{at}.weight/weight_norm" for at in range(2)]
    same_when_cut(RULES, random_columns(seed, names, tables), seed)
