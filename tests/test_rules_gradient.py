"""Rules over gradients: what must be found, what must not, and the same in pieces of any size."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.doctor.rules.gradient.flow import GradientSpread, LayerGradientSpike, VanishingGradient, ZeroLayers
from barograph.doctor.rules.gradient.gradient import RULES, GradientNormRange, GradientSpike, NonFiniteGradient
from barograph.doctor.rules.gradient.level import ExplodingGradient
from barograph.doctor.rules.gradient.scale import ClipSaturation, LossScaleCollapse
from barograph.doctor.rules.gradient.vanished import GradientDecay, ZeroGradient

NAN = float("nan")


def falling(count: int, noise: float = 0.03) -> numpy.ndarray:
    return (2 + 3 * numpy.exp(-numpy.arange(count) / 60)) * noisy(count, 1, noise, 9)


def worst(found: dict) -> str:
    order = ("critical", "warning", "info")
    return min((one.severity for one in found.values()), key=order.index, default="none")


# -- not finite ---------------------------------------------------------------------------------------


def test_a_nan_after_which_the_loss_is_nan_is_critical_from_the_step_of_the_nan() -> None:
    norm, loss = noisy(200), falling(200)
    norm[120:], loss[121:] = NAN, NAN
    (one,) = only(findings([NonFiniteGradient()], {"train/norm": norm, "train/loss": loss}), "non_finite_gradient")
    assert (one.severity, one.step, one.found, one.kind) == ("critical", 120, 121, "nonfinite")
    assert one.causes[0].startswith("non-finite gradient")


def test_a_nan_that_heals_and_a_step_that_the_scaler_skips_inform() -> None:
    norm, loss = noisy(200), falling(200)
    norm[120] = NAN
    assert worst(findings([NonFiniteGradient()], {"train/norm": norm, "train/loss": loss})) == "info"
    norm[120:124] = numpy.inf
    columns = {"train/norm": norm, "train/loss": loss, "model/loss_scale": numpy.full(200, 1024.0)}
    assert worst(findings([NonFiniteGradient()], columns)) == "info"
    assert worst(findings([NonFiniteGradient()], {"train/norm": norm, "train/loss": loss})) == "warning"


@pytest.mark.parametrize(("first", "last"), [(300, 600), (120, 121), (50, 400)])
def test_a_norm_that_stays_nan_is_told_as_long_as_it_lasts(first: int, last: int) -> None:
    norm, loss = noisy(601), falling(601)
    norm[first : last + 1] = NAN
    columns = {"train/norm": norm, "train/loss": loss}
    (one,) = only(findings([NonFiniteGradient()], columns), "non_finite_gradient")
    assert one.evidence["rows"] == last + 1 - first and one.last_step == last
    assert one.severity == ("warning" if last - first > 2 else "info")
    cut = findings([NonFiniteGradient()], columns, cuts=[first + 2, first + 70, first + 200, last + 3])
    assert [(x.message, x.last_step, x.found) for x in cut.values()] == [(one.message, one.last_step, one.found)]


@pytest.mark.parametrize("period", [41, 97])
def test_spikes_at_equal_distances_are_one_finding_with_their_period(period: int) -> None:
    norm = noisy(1500, 0.8, 0.1)
    norm[period::period] = 60.0
    found = findings([GradientSpike()], {"train/norm": norm, "train/loss": falling(1500)})
    (one,) = [x for x in found.values() if x.key == "series"]
    assert one.severity == "warning" and f"every {period} steps" in one.message and len(found) <= 5
    assert one.evidence["count"] == len(range(period, 1500, period))


def test_spikes_at_no_regular_distance_are_counted_and_do_not_warn() -> None:
    norm = noisy(1500, 0.8, 0.1)
    norm[[100, 150, 333, 500, 790, 1203, 1400]] = 60.0
    found = findings([GradientSpike()], {"train/norm": norm, "train/loss": falling(1500)})
    (one,) = [x for x in found.values() if x.key == "series"]
    assert one.severity == "info" and one.evidence["count"] == 7


def test_a_column_with_gaps_or_without_numbers_is_not_a_gradient_gone_wrong() -> None:
    norm, loss = noisy(300), falling(300)
    norm[numpy.arange(300) % 10 != 0] = NAN
    assert all(one.step < 30 and one.severity != "critical" for one in findings(
        [NonFiniteGradient()], {"train/norm": norm, "train/loss": loss}).values())  # fmt: skip
    assert not findings([NonFiniteGradient()], {"train/norm": numpy.full(300, NAN), "train/loss": loss})


def test_the_layer_is_named_by_its_table() -> None:
    norm, loss = noisy(100), falling(100)
    norm[50:], loss[51:] = NAN, NAN
    columns = {"train/norm": norm, "train/loss": loss}
    for layer, count in (("h.0.w", 1.0), ("h.1.w", 4.0), ("h.2.w", 0.0)):
        columns[f"gradients/{layer}/nan"] = ([40, 50, 60], [0.0, count, 1.0])
    (one,) = only(findings([NonFiniteGradient()], columns), "non_finite_gradient")
    assert "h.1.w" in one.causes[0] and one.evidence["layers"] == ["h.0.w", "h.1.w"]


# -- spikes and levels ----------------------------------------------------------------------------------


def test_a_spike_of_norm_and_loss_warns_and_of_the_norm_alone_informs() -> None:
    norm, loss = noisy(200), falling(200)
    norm[150] = 14
    (one,) = only(findings([GradientSpike()], {"train/norm": norm, "train/loss": loss}), "gradient_spike")
    assert (one.severity, one.step) == ("info", 150)
    loss[150] *= 1.6
    (one,) = only(findings([GradientSpike()], {"train/norm": norm, "train/loss": loss}), "gradient_spike")
    assert (one.severity, one.step, one.found) == ("warning", 150, 150)


def test_an_unclipped_step_a_hundred_times_too_long_is_critical_and_says_why() -> None:
    norm, loss = noisy(200), falling(200)
    norm[150], loss[150] = 500, 400
    found = findings([GradientSpike()], {"train/norm": norm, "train/loss": loss}, facts={"config": {"clip": 0.0}})
    (one,) = only(found, "gradient_spike")
    assert one.severity == "critical" and one.causes[0].startswith("clipping off")
    assert "90th percentile" in one.remedies[0]


@pytest.mark.parametrize(
    ("optimizer", "jumps", "severity"),
    [
        ({}, False, "warning"),
        ({"model/scale_free": ([0], [1.0])}, False, "info"),
        ({"model/epsilon": ([0], [1e-8])}, False, "info"),
        ({"model/epsilon": ([0], [1e-8])}, True, "critical"),
    ],
)
def test_an_unclipped_gradient_alone_is_no_harm_to_a_step_that_does_not_grow_with_it(
    optimizer: dict, jumps: bool, severity: str
) -> None:
    norm, loss = noisy(200), falling(200)
    norm[150] = 500
    loss[150] = 400 if jumps else loss[150]
    columns = {"train/norm": norm, "train/loss": loss} | optimizer
    (one,) = only(findings([GradientSpike()], columns, facts={"config": {"clip": 0.0}}), "gradient_spike")
    assert one.severity == severity


@pytest.mark.parametrize(("clipped_once", "named"), [(False, True), (True, False)])
def test_clipping_is_called_off_only_where_no_look_saw_it(clipped_once: bool, named: bool) -> None:
    norm, loss = noisy(200), falling(200)
    norm[150], loss[150] = 500, 400
    clip = numpy.where(numpy.arange(200) < 140, 1.0, NAN)
    if clipped_once:
        clip[120] = 0.8
    columns = {"train/norm": norm, "train/loss": loss, "model/clip_coefficient": clip}
    (one,) = only(findings([GradientSpike()], columns), "gradient_spike")
    assert one.causes[0].startswith("clipping off") is named
    assert not named or "at any look before" in one.causes[0]


def test_heavy_tails_are_no_spikes() -> None:
    norm = numpy.exp(0.4 * numpy.random.default_rng(1).standard_t(3, 2000))
    assert worst(findings([GradientSpike()], {"train/norm": norm, "train/loss": noisy(2000, 3)})) in ("none", "info")


@pytest.mark.parametrize(("level", "key"), [(0.0005, "low"), (0.005, "quiet"), (200, "high"), (5000, "red")])
def test_norms_out_of_range_inform_and_warn_where_the_bound_is_the_users(level: float, key: str) -> None:
    (one,) = findings([GradientNormRange()], {"train/norm": noisy(64, level)}).values()
    assert (one.key, one.severity) == (key, "info")
    bound = {"low": {"low": 0.002}, "quiet": {"quiet": 0.01}, "high": {"high": 50.0}, "red": {"red": 900.0}}[key]
    assert {
        one.severity for one in findings([GradientNormRange(**bound)], {"train/norm": noisy(64, level)}).values()
    } == {"warning"}
    assert not findings([GradientNormRange()], {"train/norm": noisy(64, 1.0)})


def test_a_norm_that_explodes_while_the_loss_stands_warns_and_while_it_falls_informs() -> None:
    norm = noisy(400)
    norm[250:] *= 40
    (one,) = only(
        findings([ExplodingGradient()], {"train/norm": norm, "train/loss": noisy(400, 3, 0.01)}), "exploding_gradient"
    )
    assert (one.severity, one.kind) == ("warning", "exploding") and 250 <= one.step <= 272
    loss = 5 * numpy.exp(-numpy.arange(400) / 100)
    assert worst(findings([ExplodingGradient()], {"train/norm": norm, "train/loss": loss})) == "info"
    assert not findings(
        [ExplodingGradient()], {"train/norm": noisy(400) * numpy.linspace(1, 5, 400), "train/loss": loss}
    )


def test_a_norm_that_grows_in_a_straight_line_names_zero_grad() -> None:
    norm = numpy.concatenate([noisy(200, 1, 0.02), 1 + 0.5 * numpy.arange(200)])
    (one,) = only(
        findings([ExplodingGradient()], {"train/norm": norm, "train/loss": noisy(400, 3)}), "exploding_gradient"
    )
    assert one.causes[0].startswith("zero_grad missing")


def test_a_norm_that_decays_beside_a_loss_that_stands_warns() -> None:
    norm = noisy(400, 1) * numpy.where(numpy.arange(400) < 100, 1, 0.02)
    (one,) = only(
        findings([GradientDecay()], {"train/norm": norm, "train/loss": noisy(400, 3, 0.01)}), "gradient_decay"
    )
    assert one.severity == "warning" and 90 <= one.step <= 112
    assert not findings([GradientDecay()], {"train/norm": norm, "train/loss": falling(400)})


def test_a_norm_of_exactly_zero_is_critical_and_in_reinforcement_learning_an_info_finding() -> None:
    norm, loss = noisy(100), falling(100)
    norm[60:] = 0.0
    (one,) = only(findings([ZeroGradient()], {"train/norm": norm, "train/loss": loss}), "zero_gradient")
    assert (one.severity, one.step, one.found) == ("critical", 60, 62)
    margins = numpy.where(numpy.arange(100) < 50, loss, 1e-4 * loss[0])  # all are kept
    assert worst(findings([ZeroGradient()], {"train/norm": norm, "train/loss": margins})) == "info"
    columns = {"train/norm": norm, "train/loss": loss, "train/reward": noisy(100)}
    assert worst(findings([ZeroGradient()], columns)) == "info"
    norm[:], norm[0] = 1.0, 0.0
    assert not findings([ZeroGradient()], {"train/norm": norm, "train/loss": loss})


def test_a_norm_of_zero_from_the_first_step_is_critical_where_the_watch_has_it_too() -> None:
    zero = {"train/norm": numpy.zeros(100), "train/loss": noisy(100, 5.4, 0.01)}
    assert not findings([ZeroGradient()], zero), "it may be what a loop without clipping logs"
    watched = zero | {"model/grad_norm": numpy.zeros(100)}
    (one,) = only(findings([ZeroGradient()], watched), "zero_gradient")
    assert (one.severity, one.step) == ("critical", 0) and one.causes[0].startswith("layer frozen")
    dead = watched | {"model/trained_parameters": numpy.full(100, 8.0)}
    (one,) = only(findings([ZeroGradient()], dead), "zero_gradient")
    assert one.causes[0].startswith("dead units")
    tables = {f"updates/h.0.lora_{factor}/weight_norm": (numpy.arange(10) * 10, numpy.zeros(10)) for factor in "ab"}
    (one,) = only(findings([ZeroGradient()], watched | tables), "zero_gradient")
    assert len(one.causes) == 1 and one.causes[0].startswith("bad initialisation")
    assert worst(findings([ZeroGradient()], watched | {"train/reward": noisy(100)})) == "info"


# -- clipping and the loss scale ---------------------------------------------------------------------------


def test_clipping_that_becomes_the_rule_warns_and_clipping_from_the_start_informs() -> None:
    clipped = numpy.where(numpy.arange(800) < 500, 1.0, 0.4)
    (one,) = only(findings([ClipSaturation()], {"model/clip_coefficient": clipped}), "clip_saturation")
    assert (one.severity, one.key) == ("warning", "often") and 500 <= one.step <= 600
    assert worst(findings([ClipSaturation()], {"model/clip_coefficient": numpy.full(800, 0.2)})) == "info"
    assert not findings([ClipSaturation()], {"model/clip_coefficient": numpy.where(numpy.arange(800) % 12, 1.0, 0.5)})


def test_a_loss_scale_that_falls_after_it_stood_warns_then_is_critical() -> None:
    scale = numpy.full(200, 65536.0)
    scale[100:] = numpy.maximum(65536.0 / 2.0 ** numpy.arange(1, 101), 0.25)
    found = only(findings([LossScaleCollapse()], {"model/loss_scale": scale}), "loss_scale_collapse")
    assert {(one.key, one.severity) for one in found} == {("falls", "warning"), ("least", "critical")}
    assert found[0].step == 100 and found[0].causes[0].startswith("fp16 overflow")


def test_a_scaler_that_finds_its_value_is_silent() -> None:
    scale = numpy.concatenate([2.0**22 / 2.0 ** numpy.arange(12), numpy.full(100, 2.0**11), numpy.full(100, 2.0**10)])
    assert not findings([LossScaleCollapse()], {"model/loss_scale": scale, "train/norm": noisy(len(scale))})


def test_steps_skipped_one_after_the_other_are_critical() -> None:
    norm = noisy(100)
    norm[60:] = numpy.inf
    found = findings(
        [LossScaleCollapse()], {"train/norm": norm, "train/loss": falling(100)}, facts={"config": {"precision": "fp16"}}
    )
    (one,) = only(found, "loss_scale_collapse")
    assert (one.severity, one.step, one.found) == ("critical", 60, 69)


# -- layers ----------------------------------------------------------------------------------------------


def layers(norms: dict[str, list[float]], every: int = 10) -> dict:
    return {f"gradients/{name}/norm": (numpy.arange(len(values)) * every, values) for name, values in norms.items()}


def test_gradients_that_vanish_over_the_depth_warn_and_frozen_layers_do_not() -> None:
    deep = {f"h.{at}.weight": [10.0 ** (at - 9)] * 12 for at in range(9)}
    found = only(findings([VanishingGradient()], layers(deep)), "vanishing_gradient")
    assert {(one.severity, one.key, one.step, one.kind) for one in found} == {
        ("warning", "layers", 0, "vanishing"),
        ("info", "blocks", 0, "vanishing"),
    }
    shallow = {f"h.{at}.weight": [0.0 if at < 5 else 0.3] * 12 for at in range(9)}
    assert not findings([VanishingGradient()], layers(shallow))
    adapters = {f"h.{at}.weight": [1e-7] * 3 + [0.1] * 9 if at % 2 else [0.2] * 12 for at in range(9)}
    assert not findings([VanishingGradient()], layers(adapters))


def test_an_actor_whose_gradient_is_small_beside_its_critics_has_none_that_vanish() -> None:
    def warned(norms: dict[str, list[float]], more: dict) -> bool:
        found = only(findings([VanishingGradient()], layers(norms) | more), "vanishing_gradient")
        return "warning" in {one.severity for one in found}

    actor = {f"actor.{at}.weight": [1e-6] * 9 for at in range(3)}
    reward = {"reward": (numpy.arange(90), numpy.sin(numpy.arange(90)))}
    critic = {f"critic.{at}.weight": [0.5] * 9 for at in range(3)}
    assert warned(actor | critic, {}) and not warned(actor | critic, reward)
    assert warned(actor | {f"actor.{at}.weight": [0.5] * 9 for at in range(3, 6)}, reward)


def test_layers_whose_gradients_are_exactly_zero_warn() -> None:
    zero = {f"h.{at}.weight": [0.0] * 6 for at in range(6)} | {"head.bias": [0.1] * 6}
    (one,) = only(findings([ZeroLayers()], layers(zero)), "zero_layers")
    assert (one.severity, one.found) == ("warning", 20)
    gates = {f"h.{at}.weight": [0.0, 0.1, 0.1, 0.1] for at in range(6)} | {"head.bias": [0.1] * 4}
    assert not findings([ZeroLayers()], layers(gates))


def test_tasks_that_take_turns_leave_the_others_without_a_gradient() -> None:
    heads = {f"heads.{at}.weight": [0.1 * (step % 4 == at) for step in range(12)] for at in range(4)}
    assert not findings([ZeroLayers()], layers({"trunk.0.weight": [0.1] * 12, **heads}))
    assert findings([ZeroLayers()], layers({"trunk.0.weight": [0.1] * 12, **heads, "heads.0.weight": [0.1] * 12}
                                           | {f"heads.{at}.weight": [0.0] * 12 for at in (1, 2, 3)}))  # fmt: skip


def test_one_layer_that_jumps_alone_informs() -> None:
    some = {f"h.{at}.weight": list(noisy(20, 1, 0.05, at)) for at in range(8)}
    some["h.3.weight"][15] = 30.0
    (one,) = only(findings([LayerGradientSpike()], layers(some)), "layer_gradient_spike")
    assert (one.severity, one.step, one.key) == ("info", 150, "h.3.weight")


# -- all of them -------------------------------------------------------------------------------------------


def test_a_healthy_run_has_no_warning() -> None:
    count = 3000
    lr = numpy.minimum(numpy.arange(count) / 200, 1) * (1 - numpy.arange(count) / count) * 3e-4
    columns = {"train/loss": falling(count), "train/norm": noisy(count, 0.5, 0.3), "train/lr": lr,
               "model/clip_coefficient": numpy.minimum(1, noisy(count, 1.2, 0.2))}  # fmt: skip
    columns |= layers({f"h.{at}.weight": list(noisy(300, 0.1, 0.2, at)) for at in range(6)})
    assert worst(findings([rule() for rule in RULES], columns)) in ("none", "info")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
@example(seed=3914)  # a loss that falls to zero
@example(seed=2057)  # a norm far beyond that of the backward pass
@example(seed=90355)  # no loss, and a loss scale that comes long after the norm was infinite
def test_random_columns_give_the_same_in_pieces_and_never_raise(seed: int) -> None:
    names = (
        "train/loss",
        "train/norm",
        "model/grad_norm_before",
        "model/clip_coefficient",
        "model/loss_scale",
        "train/lr",
    )
    tables = [f"gradients/h.{at}.weight/{what}" for at in range(4) for what in ("norm", "nan")]
    same_when_cut(RULES, random_columns(seed, names, tables), seed)


# -- a norm on its way up ----------------------------------------------------------------------------


def test_a_norm_that_rises_block_after_block_warns_before_it_is_tenfold() -> None:
    norm = noisy(400, 0.3, 0.2)
    norm[250:] += 0.03 * numpy.arange(150)
    (one,) = only(findings([ExplodingGradient()], {"train/norm": norm, "train/loss": noisy(400, 1.0, 0.1, 2)}),
                  "exploding_gradient")  # fmt: skip
    assert one.severity == "warning" and 250 <= one.step <= 310 and one.found < 400
    assert one.evidence["norm"] < 10 * one.evidence["usual"] and one.causes[0].startswith("zero_grad missing")


def test_a_norm_that_doubles_or_leaps_for_one_block_is_no_explosion() -> None:
    norm = noisy(400, 0.3, 0.2)
    norm[300:] *= 2.5
    norm[320:330] *= 3
    assert not findings([ExplodingGradient()], {"train/norm": norm, "train/loss": noisy(400, 1.0, 0.1, 2)})


def test_a_rise_is_judged_by_the_loss_just_before_it() -> None:
    norm, loss = noisy(400, 0.3, 0.2), falling(400)
    norm[250:] += 0.03 * numpy.arange(150)
    loss[250:] *= 1.2  # far below the start, and above what it was
    (one,) = only(findings([ExplodingGradient()], {"train/norm": norm, "train/loss": loss}), "exploding_gradient")
    assert one.severity == "warning"


def test_a_loss_that_is_nan_with_its_own_gradient_overflowed_on_the_way_forward() -> None:
    norm, loss = noisy(200), falling(200)
    norm[120:], loss[120:] = NAN, NAN
    (one,) = only(findings([NonFiniteGradient()], {"train/norm": norm, "train/loss": loss}), "non_finite_gradient")
    assert one.causes[0].startswith("overflow in a layer")


def test_weights_that_are_nan_are_no_skipped_steps() -> None:
    norm, loss = noisy(200, 1.0, 0.1), noisy(200, 3.0, 0.02)
    norm[120:] = loss[120:] = numpy.nan
    columns = {"train/norm": norm, "train/loss": loss, "model/loss_scale": numpy.full(200, 64.0)}
    assert not findings([LossScaleCollapse()], columns)
    loss[120:] = 3.0
    assert findings([LossScaleCollapse()], columns)


def test_the_flow_over_the_depth_is_read_from_tables_where_no_watch_wrote_it() -> None:
    def tables(ratio: float) -> dict:
        steps = numpy.arange(20) * 10
        norms = {f"h.{at}.mlp.weight": noisy(20, ratio ** (1 - at / 11)) for at in range(12)}  # h.10 is behind h.9
        return {f"gradients/{name}/norm": (steps, values) for name, values in norms.items()}

    found = findings([VanishingGradient(), GradientSpread()], tables(1e-3))
    assert {(one.rule, one.severity) for one in found.values()} == {
        ("vanishing_gradient", "info"),
        ("gradient_spread", "info"),
    }
    assert "The first block's gradient is 0.00" in only(found, "vanishing_gradient")[0].message
    (spread, first) = only(findings([VanishingGradient(), GradientSpread()], tables(1e3)), "gradient_spread")
    assert "times the smallest" in spread.message and "times the last block's" in first.message
    assert not findings([VanishingGradient(), GradientSpread()], tables(0.05))
    for seed in range(6):
        same_when_cut([VanishingGradient, GradientSpread], tables(1e-3), seed)


@pytest.mark.parametrize(
    ("norms", "shares", "says"),
    [
        ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), True),
        ((0.0, 0.0, 0.0), (1.0, 0.9, 0.9), False),  # one of them moves
        ((0.0, 0.0), (0.5, 0.5), False),
        ((0.0,), (1.0,), False),  # before the first step alone
        ((0.0, 0.1, 0.0), (1.0, 1.0, 1.0), False),
    ],
)
def test_of_a_watch_with_few_rows_two_are_enough_where_all_that_is_trained_is_zero(
    norms: tuple[float, ...], shares: tuple[float, ...], says: bool
) -> None:
    steps = numpy.arange(len(norms)) * 40
    columns = {
        "train/loss": numpy.full(100, 4.0),
        "model/grad_norm": (steps, numpy.array(norms)),
        "model/zero_share": (steps, numpy.array(shares)),
    }
    some = only(findings([ZeroGradient()], columns), "zero_gradient")
    cause = "bad initialisation: all trained matrices begin at 0, and so does each gradient"
    assert [one.causes for one in some] == [[cause]] * says
