"""Rules over the optimizer: what must be found, what must not, and the same in pieces of any size."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut
from rule_curves import found

from barograph.doctor.rules.optimizer.accounts import RateTooLow, ScheduleStuck
from barograph.doctor.rules.optimizer.epsilon import EpsilonDominates
from barograph.doctor.rules.optimizer.optimizer import (
    RULES,
    UnchangedParameters,
    UnclearedGradients,
)
from barograph.doctor.rules.optimizer.settings import NormEpsilon
from barograph.doctor.rules.optimizer.steps import ClearedPasses, ClippedAway, ClippedByValue
from barograph.doctor.rules.optimizer.updates import UpdateImbalance, UpdateRatio

NAN = float("nan")


def table(family: str, quantity: str, rows: dict, every: int = 10) -> dict:
    return {f"{family}/{name}/{quantity}": (numpy.arange(len(values)) * every, values) for name, values in rows.items()}


def test_parameters_that_a_step_leaves_as_they_were_are_critical_at_once_and_after_others_at_the_third_step() -> None:
    unchanged = numpy.full(100, 29.0)
    (one,) = only(findings([UnchangedParameters()], {"model/unchanged": unchanged}), "unchanged_parameters")
    assert (one.severity, one.step, one.found) == ("critical", 0, 0)
    unchanged[:40] = 0
    (one,) = only(findings([UnchangedParameters()], {"model/unchanged": unchanged}), "unchanged_parameters")
    assert (one.severity, one.step, one.found) == ("critical", 40, 42)
    assert one.causes[0].startswith("optimizer holds other parameters")


@pytest.mark.parametrize(("unheld", "proven"), [(29.0, True), (20.0, False)])
def test_that_parameters_are_in_no_optimizer_is_proven_where_all_that_stay_are(unheld: float, proven: bool) -> None:
    columns = {"model/unchanged": numpy.full(40, 29.0), "model/unheld": numpy.full(40, unheld)}
    (one,) = only(findings([UnchangedParameters()], columns), "unchanged_parameters")
    assert (len(one.causes) == 1) == proven and one.causes[0].startswith("optimizer holds other parameters")


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({}, "clip value too low"),
        ({"model/loss_scale": 2.0**16, "model/grad_norm": 2.0**-16}, "gradients clipped while scaled"),
        ({"model/loss_scale": 2.0**16, "model/grad_norm": 0.01}, "clip value too low"),
        ({"model/unheld": 2.0, "model/grad_norm": 0.001}, "optimizer holds other parameters"),
        ({"model/unheld": 2.0, "model/grad_norm": 0.9}, "clip value too low"),
    ],
)
def test_what_else_leaves_next_to_nothing_of_gradients_is_named_before_the_clip_value(more: dict, cause: str) -> None:
    columns = {
        "model/clip_coefficient": numpy.full(100, 1e-3), "model/grad_norm_before": numpy.full(100, 1000.0),
        "train/loss": noisy(100) * 0 + 2.3,
    } | {name: numpy.full(100, value) for name, value in more.items()}  # fmt: skip
    (one,) = only(findings([ClippedAway()], columns), "clipped_away")
    assert one.causes[0].startswith(cause) and (len(one.causes) == 1) == (cause == "clip value too low")


def test_a_last_step_that_rounds_updates_away_informs() -> None:
    unchanged = numpy.zeros(100)
    unchanged[99] = 3
    (one,) = only(findings([UnchangedParameters()], {"model/unchanged": unchanged}), "unchanged_parameters")
    assert one.severity == "info"


def test_one_step_that_changed_nothing_informs() -> None:
    unchanged = numpy.zeros(100)
    unchanged[[40, 60, 80]] = 3
    (one,) = only(findings([UnchangedParameters()], {"model/unchanged": unchanged}), "unchanged_parameters")
    assert (one.severity, one.step) == ("info", 40) and one.causes[0].startswith("updates lost in rounding")
    unchanged[80:] = 3
    series = {"model/unchanged": (numpy.arange(100), unchanged)}
    told = {one.step: one.severity for one in found([UnchangedParameters()], series)}
    assert told == {40: "info", 80: "critical"}


def test_updates_too_small_to_be_seen_at_the_end_of_a_schedule_are_no_trouble() -> None:
    unchanged = numpy.zeros(100)
    unchanged[97:] = 4
    rate = numpy.linspace(1e-3, 0, 100)
    assert not findings([UnchangedParameters()], {"model/unchanged": unchanged, "train/lr": rate})
    unchanged[60:] = 4
    (one,) = findings([UnchangedParameters()], {"model/unchanged": unchanged, "train/lr": rate}).values()
    assert (one.severity, one.step) == ("critical", 60)


def test_a_norm_of_parameters_equal_to_the_bit_is_critical_and_one_of_few_digits_says_nothing() -> None:
    columns = {"train/norm": noisy(60), "train/lr": numpy.full(60, 1e-3)}
    norms = 20 + 0.001 * numpy.arange(60)
    norms[30:] = norms[30] + 1e-9 / 3
    (one,) = only(findings([UnchangedParameters()], columns | {"model/param_norm": norms}), "unchanged_parameters")
    assert (one.severity, one.step, one.found) == ("critical", 30, 33)
    rounded = {"model/param_norm": numpy.round(norms, 2)}
    assert not findings([UnchangedParameters()], columns | rounded)
    moved = {"model/param_norm": norms, "model/unchanged": (numpy.array([0, 10]), numpy.zeros(2))}
    assert not findings([UnchangedParameters()], columns | moved), "the watch counts what did not change"
    half = {"model/param_norm": norms, "model/half_parameters": (numpy.array([0]), numpy.array([29.0]))}
    assert not findings([UnchangedParameters()], columns | half), "a norm of bfloat16 has eight bits itself"
    assert not findings([UnchangedParameters()], columns | {"model/param_norm": norms},
                        facts={"config": {"model.torch_dtype": "torch.bfloat16"}})  # fmt: skip
    stopped = {"model/param_norm": norms, "train/lr": numpy.zeros(60)}
    assert not findings([UnchangedParameters()], columns | stopped)


def test_gradients_that_are_not_cleared_are_critical_at_the_first_step() -> None:
    stale = numpy.zeros(100)
    stale[50:] = 1
    (one,) = only(findings([UnclearedGradients()], {"model/stale_gradients": stale}), "missing_zero_grad")
    assert (one.severity, one.step, one.found) == ("critical", 50, 50)
    assert one.causes[0].startswith("zero_grad missing")
    stale[51:] = 0
    (one,) = only(findings([UnclearedGradients()], {"model/stale_gradients": stale}), "missing_zero_grad")
    assert one.severity == "info"


def test_updates_a_tenth_of_the_weights_warn_after_the_start() -> None:
    ratio = numpy.where(numpy.arange(200) < 100, 0.15 * numpy.exp(-numpy.arange(200) / 30), 0.3)
    found = only(
        findings([UpdateRatio()], {"model/update_p50": ratio, "train/lr": numpy.full(200, 1e-3)}), "update_ratio"
    )
    assert {(one.key, one.step, one.severity) for one in found if one.severity == "warning"} == {
        ("high", 100, "warning")
    }
    assert "0.0001" in found[0].remedies[0]


def test_a_jump_of_the_updates_warns_at_once_and_a_warm_up_again_does_not() -> None:
    lr = numpy.where(numpy.arange(200) < 100, 1e-3, 3e-2)
    found = only(findings([UpdateRatio()], {"model/update_p50": noisy(200, 5.0) * lr, "train/lr": lr}), "update_ratio")
    jump = next(one for one in found if one.key == "jump")
    assert (jump.severity, jump.step, jump.found) == ("warning", 100, 100)
    assert "0.001" in jump.remedies[0]
    lr = 1e-3 * numpy.where(
        numpy.arange(200) < 100, 1 - numpy.arange(200) / 101, numpy.minimum(1, numpy.arange(-100, 100) / 40)
    )
    found = findings([UpdateRatio()], {"model/update_p50": noisy(200, 5.0) * lr, "train/lr": lr})
    assert all(one.severity == "info" for one in found.values())


def test_updates_too_small_warn_but_not_at_the_end_of_the_schedule() -> None:
    small = table("updates", "ratio", {f"h.{at}.weight": [1e-8] * 10 for at in range(4)})
    (one,) = only(findings([UpdateRatio()], small | {"train/lr": numpy.full(100, 1e-5)}), "update_ratio")
    assert (one.key, one.severity, one.step) == ("low", "warning", 0)
    assert not findings([UpdateRatio()], small | {"train/lr": numpy.full(100, 0.0) + 1e-3 * (numpy.arange(100) == 0)})


@pytest.mark.parametrize(("age", "told"), [(None, True), (20_000.0, True), (300.0, False)])
def test_the_phase_of_updates_is_that_of_the_optimizers_own_steps(age: float | None, told: bool) -> None:
    steps = 12_000 + 1000 * numpy.arange(20)  # of an environment
    columns = {"model/update_p50": (steps, numpy.full(20, 2.3e-3))}
    columns |= {} if age is None else {"model/optimizer_age": (steps, numpy.full(20, age))}
    assert bool(only(findings([UpdateRatio()], columns), "update_ratio")) is told


def test_a_layer_moved_further_than_its_like_informs() -> None:
    rows = {f"h.{at}.w": [0.05 if at == 2 else 1e-3] * 5 for at in range(6)}
    (one,) = only(findings([UpdateImbalance()], table("updates", "ratio", rows)), "update_imbalance")
    assert (one.severity, one.key, one.found) == ("info", "h.2.w", 20)


def test_an_epsilon_above_the_gradients_warns_and_rare_rows_of_embeddings_do_not() -> None:
    rows = {f"h.{at}.weight": [0.99] * 4 for at in range(5)}
    config = {"config": {"optimizer.eps": 0.1}}
    (one,) = only(
        findings([EpsilonDominates()], table("optimizer", "below_eps", rows, 25), facts=config), "epsilon_dominates"
    )
    assert (one.severity, one.step, one.found) == ("warning", 0, 25) and "0.1" in one.message
    rows = {"tok_embeddings.weight": [0.9] * 4} | {f"h.{at}.weight": [0.01] * 4 for at in range(5)}
    assert not findings([EpsilonDominates()], table("optimizer", "below_eps", rows, 25))


@pytest.mark.parametrize(("pruned", "told"), [(0.0, True), (0.5, True), (0.8, False), (1.0, True)])
def test_elements_without_any_gradient_are_none_that_an_epsilon_shrinks(pruned: float, told: bool) -> None:
    names = [f"h.{at}.weight_orig" for at in range(5)]
    rows = table("optimizer", "below_eps", dict.fromkeys(names, [max(0.82, pruned)] * 4), 25)
    figures = {"zeros": 400 * pruned, "mean": 0.0, "std": 1e-3, "norm": 2e-2}  # of 400 elements
    for quantity, value in figures.items():
        rows |= table("gradients", quantity, dict.fromkeys(names, [value] * 10), 10)
    assert bool(only(findings([EpsilonDominates()], rows), "epsilon_dominates")) is told


@pytest.mark.parametrize(
    ("epsilon", "flow", "cause", "remedy"),
    [
        (0.1, 0.5, "epsilon too big", "1e-08"),
        (1e-8, 0.5, "gradients vanish", "1e-12"),
        (1e-8, 1e-9, "gradients vanish: each layer", "residual"),
        (0.1, 1e-9, "gradients vanish: each layer", "residual"),
    ],
)
def test_where_gradients_vanish_on_their_way_an_epsilon_above_them_is_no_cause(
    epsilon: float, flow: float, cause: str, remedy: str
) -> None:
    rows = table("optimizer", "below_eps", {f"h.{at}.weight": [0.99] * 4 for at in range(5)}, 25)
    seen = {"model/flow_first_last": numpy.full(100, flow), "model/epsilon": numpy.full(100, epsilon)}
    (one,) = only(findings([EpsilonDominates()], rows | seen), "epsilon_dominates")
    assert one.causes[0].startswith(cause) and remedy in one.remedies[0]


@pytest.mark.parametrize(("left", "cause"), [(1e-6, "clip value too low"), (0.5, "gradients vanish")])
def test_where_clipping_leaves_next_to_nothing_an_epsilon_above_it_is_no_cause(left: float, cause: str) -> None:
    rows = table("optimizer", "below_eps", {f"h.{at}.weight": [0.99] * 4 for at in range(5)}, 25)
    seen = {"model/clip_coefficient": left, "model/grad_norm_before": 1.3, "model/epsilon": 1e-8}
    rows |= {name: numpy.full(100, value) for name, value in seen.items()}
    (one,) = only(findings([EpsilonDominates()], rows), "epsilon_dominates")
    assert one.causes[0].startswith(cause) and ("1.3" in one.remedies[0]) == (left < 0.01)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_columns_give_the_same_in_pieces_and_never_raise(seed: int) -> None:
    names = ("train/loss", "train/norm", "train/lr", "model/param_norm", "model/unchanged", "model/stale_gradients")
    tables = [
        f"{what}/h.{at}.weight/{of}"
        for at in range(5)
        for what, of in (("updates", "ratio"), ("optimizer", "below_eps"))
    ]
    same_when_cut(RULES, random_columns(seed, names, tables, ("model/unchanged", "model/stale_gradients")), seed)


def test_parameters_that_stand_still_after_they_moved_are_not_those_of_another_optimizer() -> None:
    columns = {"train/norm": noisy(60), "train/lr": numpy.full(60, 1e-3)}
    norms = numpy.full(60, 20.123456789012345)
    (start,) = only(findings([UnchangedParameters()], columns | {"model/param_norm": norms}), "unchanged_parameters")
    assert start.causes[0].startswith("optimizer holds other parameters")
    norms[:30] += 1e-3 * numpy.arange(30)[::-1] + 1e-3
    (later,) = only(findings([UnchangedParameters()], columns | {"model/param_norm": norms}), "unchanged_parameters")
    assert later.step == 30 and later.causes[0].startswith("learning rate too low")


def test_a_single_layer_beyond_the_red_flags_is_named_and_none_that_is_meant() -> None:
    def ratios(odd: float, layer: str = "h.2.mlp.weight") -> dict:
        rows = {f"h.{at}.mlp.weight": noisy(40, 1e-3) for at in range(5)}
        return table("updates", "ratio", rows | {layer: noisy(40, odd)})

    for odd, word in ((0.2, "above 0.1"), (1e-8, "below 1e-07")):
        (one,) = only(findings([UpdateRatio()], ratios(odd)), "update_ratio")
        assert (one.severity, one.step) == ("info", 70) and one.message.startswith("h.2.mlp.weight is moved by")
        assert word in one.message
        assert not only(findings([UpdateRatio()], ratios(odd, "h.2.mlp.bias")), "update_ratio"), "vectors are unlike"
        for seed in range(6):
            same_when_cut([UpdateRatio], ratios(odd), seed)
    decayed = ratios(1e-8) | {"train/lr": numpy.r_[numpy.full(40, 1e-3), numpy.full(400, 1e-6)]}
    assert not only(findings([UpdateRatio()], decayed), "update_ratio"), "at the end of the schedule"
    assert not only(findings([UpdateRatio()], ratios(0.09)), "update_ratio")


@pytest.mark.parametrize(
    ("measured", "count", "rising", "update", "found"),
    [(5, 2, False, 1e-5, "warning"), (5, 1, False, 1e-5, "info"), (2, 2, False, 1e-5, ""), (5, 2, True, 1e-5, ""),
     (5, 2, False, 1e-3, "info")],  # weights move: it is gains of 1 that stay
)  # fmt: skip
def test_16_bit_weights_are_judged_by_three_measured_steps_behind_the_warm_up(
    measured: int, count: int, rising: bool, update: float, found: str
) -> None:
    every, steps = numpy.arange(100), 10 * numpy.arange(10)
    unchanged = numpy.zeros(100)  # a step that was not measured counts as one that changed all
    unchanged[steps[:measured]] = count
    columns = {
        "model/unchanged": unchanged, "model/half_parameters": (steps, numpy.full(10, 6.0)),
        "model/update_p50": (steps, numpy.full(10, update)), "model/trained_parameters": (steps, numpy.full(10, 6.0)),
        "train/lr": numpy.minimum(every + 1, 100 if rising else 1) * 1e-5,
    }  # fmt: skip
    told = only(findings([UnchangedParameters()], columns), "unchanged_parameters")
    assert [one.severity for one in told] == ([found] if found else [])
    assert all(one.causes[0].startswith("updates lost in rounding") for one in told)


@pytest.mark.parametrize(("grown", "first"), [(1.1, "updates lost in rounding"), (5.0, "learning rate too high")])
def test_of_16_bit_weights_that_have_grown_the_rate_is_the_first_cause(grown: float, first: str) -> None:
    steps = 10 * numpy.arange(10)
    columns = {
        "model/unchanged": (steps, numpy.full(10, 4.0)), "model/half_parameters": (steps, numpy.full(10, 6.0)),
        "model/update_p50": (steps, numpy.zeros(10)), "model/trained_parameters": (steps, numpy.full(10, 6.0)),
        "model/param_norm": (steps, numpy.linspace(20.0, 20.0 * grown, 10)), "train/lr": numpy.full(100, 1e-2),
    }  # fmt: skip
    (told,) = only(findings([UnchangedParameters()], columns), "unchanged_parameters")
    assert told.causes[0].startswith(first) and any(one.startswith("updates lost in rounding") for one in told.causes)


def test_16_bit_weights_that_are_in_no_optimizer_are_not_rounded_away() -> None:
    every, steps = numpy.arange(100), 10 * numpy.arange(10)
    held = numpy.where(every > 0, 2.0, 0.0)
    columns = {
        "model/unchanged": held, "model/unheld": held, "model/half_parameters": (steps, numpy.full(10, 6.0)),
        "model/update_p50": (steps, numpy.full(10, 1e-3)), "model/trained_parameters": (steps, numpy.full(10, 6.0)),
        "train/lr": numpy.full(100, 1e-5),
    }  # fmt: skip
    (one,) = only(findings([UnchangedParameters()], columns), "unchanged_parameters")
    assert one.severity == "critical" and one.causes[0].startswith("optimizer holds other parameters")


@pytest.mark.parametrize(
    ("highest", "size", "epsilon", "found"),
    [
        ((1e-3, 1e-3, 1e-3), 9e-4, 0, "warning"),
        ((1e-3, 1e-3, 1e-3), 9e-4, 1e-8, "info"),  # Adam's steps are as large as before
        ((1e-3, 1e-3, 1e-3), 9e-4, -1, "info"),  # so are Lion's, which has no epsilon
        ((1e-9, 1e-9, 1e-9), 9e-10, 1e-8, "warning"),  # and here they are not
        ((1e-3, 1e-3, 1e-3), 3e-4, 0, ""),  # few elements reach the bound
        ((1e-3, 1e-3, 2e-3), 9e-4, 0, ""),  # no bound in common
        ((1e-3, 1e-3), 9e-4, 0, ""),  # two matrices may be alike
        ((1.0, 1.0, 1.0), 1.0, 0, ""),  # signs, on purpose
    ],
)
def test_gradients_of_which_clipping_leaves_the_signs_alone_are_found(
    highest: tuple[float, ...], size: float, epsilon: float, found: str
) -> None:
    names = [f"blocks.{at}.weight" for at in range(len(highest))]
    columns: dict = {}
    for quantity, values in (("max", highest), ("std", [size] * len(names)), ("mean", [0] * len(names))):
        rows = {name: numpy.full(5, value, float) for name, value in zip(names, values, strict=True)}
        columns |= table("gradients", quantity, rows)
    if epsilon:
        columns["model/epsilon" if epsilon > 0 else "model/scale_free"] = ([0], [abs(epsilon)])
    some = only(findings([ClippedByValue()], columns), "clipped_by_value")
    assert [one.severity for one in some] == ([found] if found else [])
    if found:
        assert (some[0].step, some[0].found) == (0, 20) and some[0].causes[0].startswith("clip value too low")


@pytest.mark.parametrize(
    ("count", "config", "weight", "found"),
    [(1, {}, 1.0, False), (1, {"accumulation_steps": 2}, 1.0, True), (1, {}, 0.5, True), (3, {}, 1.0, True)],
)
def test_one_cleared_pass_of_two_counts_where_two_are_accumulated(
    count: int, config: dict, weight: float, found: bool
) -> None:
    columns = {"model/cleared_passes": numpy.full(6, float(count)), "model/loss_weight": numpy.full(6, weight)}
    assert bool(findings([ClearedPasses()], columns, facts={"config": config})) == found


@pytest.mark.parametrize("cuts", [(), (2, 4), (3,)])
@pytest.mark.parametrize(("times", "found"), [(1.0, True), (2.0, False)])
def test_what_both_passes_were_called_with_says_that_the_cleared_one_was_meant_to_count(
    times: float, found: bool, cuts: tuple[int, ...]
) -> None:
    loss = numpy.linspace(3, 2, 8)
    columns = {"model/cleared_passes": numpy.ones(8), "loss": loss, "model/cleared_given": times * loss}
    assert bool(findings([ClearedPasses()], columns, cuts=cuts)) == found


@pytest.mark.parametrize(
    ("trained", "of", "severity"), [(1.0, 31.0, "info"), (1.0, 40.0, "critical"), (0.0, 31.0, "critical")]
)
def test_a_probe_of_what_was_trained_before_informs_and_a_part_of_a_new_model_is_critical(
    trained: float, of: float, severity: str
) -> None:
    figures = {"unchanged": 29.0, "unheld": 29.0, "unheld_trained": trained, "trained_parameters": of}
    columns = {f"model/{name}": numpy.full(40, value) for name, value in figures.items()}
    (one,) = only(findings([UnchangedParameters()], columns), "unchanged_parameters")
    assert one.severity == severity


@pytest.mark.parametrize("more", [{"unheld_by_block": numpy.ones(40)}, {"held_vectors": 2 * numpy.ones(40)},
                                  {"trained_elements": numpy.array([10.0] + [900.0] * 39)}])  # fmt: skip
def test_what_is_thawed_for_no_optimizer_is_no_probe(more: dict) -> None:
    figures = {"unchanged": 29.0, "unheld": 29.0, "unheld_trained": 1.0, "trained_parameters": 31.0}
    columns = {f"model/{name}": numpy.full(40, value) for name, value in figures.items()}
    columns |= {f"model/{name}": values for name, values in more.items()}
    (one,) = only(findings([UnchangedParameters()], columns), "unchanged_parameters")
    assert one.severity == "critical" and one.causes[0].startswith("optimizer holds other parameters")


@pytest.mark.parametrize(("unheld", "severity"), [(29.0, "info"), (0.0, "critical")])
@pytest.mark.parametrize("cuts", [(), (10, 30, 61)])
def test_parts_that_are_given_to_the_optimizer_later_inform(unheld: float, severity: str, cuts: tuple) -> None:
    steps = numpy.arange(100)
    columns = {
        "model/unchanged": numpy.where(steps < 60, 29.0, 0.0),
        "model/unheld": (steps[:60], numpy.full(60, unheld)),
    }
    (one,) = only(findings([UnchangedParameters()], columns, cuts=cuts), "unchanged_parameters")
    assert (one.severity, one.step) == (severity, 0) and ("since step 60" in one.message) == (severity == "info")


@pytest.mark.parametrize(("apart", "warns"), [(0.0, True), (1.0, False)])
def test_a_loss_like_a_guess_of_a_model_whose_gains_are_set_apart_is_not_of_one_that_was_not_trained(
    apart: float, warns: bool
) -> None:
    figures = {"drawn": 0.0, "untrained": 0.0, "output_width": 128.0, "loss_weight": 1.0, "gains_apart": apart}
    columns = {f"model/{name}": numpy.full(200, value) for name, value in figures.items()}
    columns |= {"model/reach": numpy.linspace(0, 0.1, 200), "train/loss": noisy(200) * 0 + 4.8}
    assert bool(only(findings([RateTooLow()], columns, facts={"finished": True}), "rate_too_low")) == warns


@pytest.mark.parametrize(
    ("base", "peak", "says", "squared"),
    [
        (3e-3, 3e-3, True, True),
        (3e-3, 2e-2, True, False),
        (1.0, 1e-5, True, False),  # the schedule counts in rates
        (3e-3, 0.9, True, False),
    ],
)
def test_a_schedule_that_gives_the_rate_for_a_factor_is_the_cause_of_a_rate_that_is_too_low(
    base: float, peak: float, says: bool, squared: bool
) -> None:
    looks = numpy.arange(0, 120, 10)
    shares = peak * numpy.concatenate([[0.1], 1 - numpy.arange(11) / 12])
    columns = {"model/drawn": (numpy.array([0]), numpy.ones(1)), "train/loss": numpy.full(120, 1.7),
               "model/reach": (numpy.array([0, 100]), numpy.array([0.0, 0.01])), "model/rate_share": (looks, shares),
               "model/rate_in_force": (looks, base * shares)}  # fmt: skip
    told = only(findings([RateTooLow()], columns, facts={"finished": True}), "rate_too_low")
    assert [one.causes[0].startswith("schedule gives the learning rate itself") for one in told] == [squared] * says


@pytest.mark.parametrize("falls", [True, False])
def test_a_share_of_the_rate_that_never_falls_is_told_by_its_own_rule(falls: bool) -> None:
    looks = numpy.arange(0, 120, 10)
    shares = 1e-3 * (12 - numpy.arange(12.0) if falls else 1 + numpy.arange(12.0))
    columns = {"model/drawn": (numpy.array([0]), numpy.ones(1)), "train/loss": numpy.full(120, 1.7),
               "model/reach": (numpy.array([0, 100]), numpy.array([0.0, 0.01])), "model/rate_share": (looks, shares),
               "model/rate_in_force": (looks, 3e-3 * shares)}  # fmt: skip
    told = findings([RateTooLow(), ScheduleStuck()], columns, facts={"finished": True})
    assert [one.rule for one in told.values()] == ["rate_too_low" if falls else "schedule_stuck"]


# -- settings of normalisations -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "momentum", "cause"),
    [
        (0.1, 1e-3, "eps and momentum swapped"),
        (0.1, 1e-5, "eps and momentum swapped"),
        (0.1, 0.1, "normalisation's epsilon too large"),
        (0.1, 0.01, "normalisation's epsilon too large"),
        (0.1, None, "normalisation's epsilon too large"),  # layer norm alone
        (1e4, 1e-3, "normalisation's epsilon too large"),
        (1e-3, 1e-3, None),  # a momentum for many steps
    ],
)
def test_an_epsilon_as_large_as_a_momentum_beside_one_as_small_as_an_epsilon_is_in_its_place(
    epsilon: float, momentum: float | None, cause: str | None
) -> None:
    columns = {"model/norm_epsilon": ([0], [epsilon]), "train/loss": (numpy.arange(100), numpy.ones(100))}
    if momentum is not None:
        columns["model/norm_momentum"] = ([0], [momentum])
    told = only(findings([NormEpsilon()], columns), "norm_epsilon")
    assert [one.causes[0].partition(":")[0] for one in told] == ([cause] if cause else [])
