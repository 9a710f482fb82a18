"""Rules over routers: what must be found, what must not, and the same in pieces of any size."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.doctor.rules.moe import dead, moe
from barograph.doctor.rules.moe.dead import DeadExperts
from barograph.doctor.rules.moe.moe import (
    DroppedTokens,
    ExpertUtilization,
    LoadImbalance,
    RouterEntropy,
    RouterLosses,
)

RULES = (*moe.RULES, *dead.RULES)


def at(values: object, every: int = 10) -> tuple:
    return numpy.arange(len(values)) * every, values  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "series", "good", "bad", "severity"),
    [
        (LoadImbalance, "load_imbalance", 1.3, 3.6, "warning"),
        (LoadImbalance, "load_imbalance", 1.3, 6.5, "critical"),
        (LoadImbalance, "load_imbalance", 1.3, 2.7, "info"),
        (ExpertUtilization, "expert_utilization", 1.0, 0.4, "warning"),
        (ExpertUtilization, "expert_utilization", 1.0, 0.1, "critical"),
        (RouterEntropy, "router_entropy", 0.8, 0.02, "warning"),
        (RouterEntropy, "router_entropy", 0.8, 0.3, "info"),
        (DroppedTokens, "dropped_fraction", 0.01, 0.5, "warning"),
        (DroppedTokens, "dropped_fraction", 0.01, 0.1, "info"),
    ],
)
def test_a_figure_beyond_its_bound_for_long(rule: type, series: str, good: float, bad: float, severity: str) -> None:
    values = noisy(60, 1, 0.01) * numpy.where(numpy.arange(60) < 30, good, bad)
    found = list(findings([rule()], {f"moe/{series}": at(values)}).values())
    assert severity in {one.severity for one in found} and {one.step for one in found} == {300}
    assert all(one.found >= 370 for one in found)
    blip = noisy(60, good, 0.01)
    blip[30:33] = bad
    assert not findings([rule()], {f"moe/{series}": at(blip)})


def test_a_router_that_is_being_mended_is_left_alone() -> None:
    values = 1.2 + 4 * numpy.exp(-numpy.arange(60) / 15)
    assert not findings([LoadImbalance()], {"moe/load_imbalance": at(values)})


def loads(rows: int = 40, experts: int = 8) -> numpy.ndarray:
    return numpy.random.default_rng(0).multinomial(2000, [1 / experts] * experts, rows).astype(float)


def laid(table: numpy.ndarray, layer: str = "h.0") -> dict:
    return {f"moe/{layer}/load/{expert}": at(table[:, expert]) for expert in range(table.shape[1])}


def test_an_expert_without_tokens_warns_and_half_of_them_are_critical() -> None:
    table = loads()
    table[20:, 2] = 0
    (one,) = only(findings([DeadExperts()], laid(table)), "dead_expert")
    assert (one.severity, one.step, one.found, one.kind) == ("warning", 200, 220, "dead_expert")
    table[20:, 3:6] = 0
    (one,) = only(findings([DeadExperts()], laid(table)), "dead_expert")
    assert one.severity == "critical" and one.evidence["experts"] == [2, 3, 4, 5]


def each_step(table: numpy.ndarray) -> dict:
    return {f"moe/h.0/load/{expert}": at(table[:, expert], every=1) for expert in range(table.shape[1])}


def test_a_young_router_leaves_experts_out_for_some_steps() -> None:
    """As a GPT with four experts does, whose tables come at each step: half of a layer, for five steps."""
    table = loads(120, 4)
    table[8:13, 1] = table[7:12, 0] = 0
    assert not findings([DeadExperts()], each_step(table))
    table[40:, 1] = 0
    (one,) = only(findings([DeadExperts()], each_step(table)), "dead_expert")
    assert (one.severity, one.step, one.found) == ("warning", 40, 60)


@pytest.mark.parametrize("rows", [5, 40])
def test_dead_experts_that_have_their_share_again_are_no_warning_any_more(rows: int) -> None:
    table = loads(40 + rows, 4)
    table[15:40, 1:3] = 0
    (one,) = only(findings([DeadExperts()], each_step(table)), "dead_expert")
    back = rows > 20
    assert (one.severity, one.step) == ("info" if back else "critical", 15)
    assert ("a share again since step 40" in one.message) == back
    table[40:, 2] = 0  # one of the two alone
    (one,) = only(findings([DeadExperts()], each_step(table)), "dead_expert")
    assert one.severity == "critical"


def test_experts_that_never_had_a_token_are_dead_after_a_hundred_steps_and_rare_ones_are_not() -> None:
    table = loads()
    table[:, 5] = 0
    (one,) = only(findings([DeadExperts()], laid(table)), "dead_expert")
    assert (one.step, one.found) == (0, 100) and "never got" in one.message
    rare = loads()
    rare[:, 5] = numpy.arange(40) % 4 == 0  # one token now and then
    assert not findings([DeadExperts()], laid(rare))


def test_loads_of_a_run_whose_loss_is_nan_mean_nothing() -> None:
    table = loads()
    table[20:, :7] = 0
    columns = laid(table) | {"train/loss": at(numpy.where(numpy.arange(40) < 20, 2.0, numpy.nan))}
    assert not findings([DeadExperts()], columns)


def test_router_losses_inform_by_bounds_and_warn_by_their_own_median() -> None:
    found = findings([RouterLosses()], {"moe/z_loss": at(noisy(40, 0.3)), "moe/aux_loss": at(noisy(40, 0.01))})
    assert {(one.key, one.severity) for one in found.values()} == {("z_loss", "info")}
    values = noisy(60, 0.004)
    values[40:] *= 20
    (one,) = only(findings([RouterLosses()], {"moe/z_loss": at(values)}), "router_losses")
    assert (one.severity, one.step) == ("warning", 400)
    (one,) = findings([RouterLosses()], {"moe/non_finite_tokens": at(numpy.array([0.0, 0, 5, 0]))}).values()
    assert (one.severity, one.step, one.kind) == ("critical", 20, "nonfinite")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_columns_give_the_same_in_pieces_and_never_raise(seed: int) -> None:
    figures = ("load_imbalance", "expert_utilization", "router_entropy", "dropped_fraction", "aux_loss", "z_loss")
    names = ("train/loss", "moe/non_finite_tokens", *(f"moe/{name}" for name in figures))
    tables = [f"moe/h.{layer}/load/{expert}" for layer in range(2) for expert in range(4)]
    same_when_cut(RULES, random_columns(seed, names, tables, ("moe/non_finite_tokens",)), seed)


def test_an_expert_that_loses_its_load_by_and_by_tells_of_the_router_and_one_at_once_of_a_mask() -> None:
    table = loads()
    table[20:, 2] = 0
    (masked,) = only(findings([DeadExperts()], laid(table)), "dead_expert")
    assert masked.causes[0].startswith("expert dead")
    table[10:20, 2] *= numpy.linspace(0.6, 0.05, 10)
    (faded,) = only(findings([DeadExperts()], laid(table)), "dead_expert")
    assert faded.causes[0].startswith("router collapsed")
    table[20:, 3:6] = 0
    table[10:20, 2] = table[9, 2]
    (half,) = only(findings([DeadExperts()], laid(table)), "dead_expert")
    assert half.causes[0].startswith("router collapsed")


@pytest.mark.parametrize(("busiest", "collapsed"), [(1.3, False), (3.5, True), (None, True)])
def test_a_router_that_is_sure_and_loads_its_experts_evenly_has_not_collapsed(
    busiest: float | None, collapsed: bool
) -> None:
    columns = {"moe/router_entropy": numpy.full(200, 0.3)}
    columns |= {} if busiest is None else {"moe/load_imbalance": numpy.full(200, busiest)}
    (one,) = only(findings([RouterEntropy()], columns), "router_entropy")
    assert one.severity == "info" and one.causes[0].startswith("router collapsed") is collapsed
    assert one.message.endswith("loaded evenly.") is not collapsed
