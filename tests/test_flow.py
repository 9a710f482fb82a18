"""Flow over depth, the stability guide's bands and lines."""

from __future__ import annotations

import math

import pytest

from barograph.probes.model import flow


@pytest.mark.parametrize("step, phase", [(0, "early"), (999, "early"), (1000, "mid"), (9999, "mid"), (10_000, "late")])
def test_bands_are_s2s(step: int, phase: str) -> None:
    found = flow.band(step)
    assert found.phase == phase and found.high == pytest.approx(10 * found.low)


def test_the_share_outside_the_band_counts_layers_on_both_sides() -> None:
    assert flow.outside([1e-3, 5e-3, 1e-2, 0.1, 1e-5], 0) == pytest.approx(0.4)
    assert flow.outside([5e-3, math.nan], 0) == 0
    assert math.isnan(flow.outside([], 0))


def test_blocks_are_summed_and_the_rest_left_out() -> None:
    squares = {"h.1.a.weight": 9.0, "h.10.a.weight": 16.0, "h.10.b": 9.0, "h.0.a": 4.0, "head.weight": 100.0}
    assert flow.block_norms(squares, ["h.0", "h.1", "h.2", "h.10"]) == [2.0, 3.0, 5.0]
    figures = flow.flow(squares, ["h.0", "h.1", "h.2", "h.10"])
    assert figures["flow_first_last"] == pytest.approx(0.4) and figures["flow_spread"] == pytest.approx(5.0)


def test_a_layer_without_gradient_does_not_make_the_spread_infinite() -> None:
    assert flow.flow({"a": 0.0, "b": 4.0, "c": math.nan}, [])["flow_spread"] == 1.0
    assert flow.flow({}, []) == {}


def test_biases_and_scales_of_norms_do_not_count_in_the_spread() -> None:
    squares = {"h.0.weight": 1.0, "h.0.key.bias": 1e-24, "h.0.norm.weight": 1e-6, "h.1.weight": 9.0}
    assert flow.flow(squares, [])["flow_spread"] == pytest.approx(3.0)


def test_lines_are_s2s_to_the_letter() -> None:
    row = {"norm": 0.1234, "mean": 0.000012, "std": 0.000456}
    (line,) = flow.gradient_lines({"transformer.blocks.0.attn_norm.weight": row})
    assert line == "transformer.blocks.0.attn_norm.weight: grad_norm=0.1234, mean=0.000012, std=0.000456"
    updates = {
        "blocks.0.attn.c_proj.weight": {"ratio": 0.1234, "weight_norm": 1.0},
        "blocks.1.attn.c_proj.weight": {"ratio": 0.01, "weight_norm": 1.0},
        "blocks.2.bias": {"ratio": 5.0, "weight_norm": 0.0},
        "blocks.5.mlp.c_fc.weight": {"ratio": 8e-8, "weight_norm": 1.0},
    }
    assert flow.update_lines(updates, 100) == [
        "Update ratio alerts (step 100):",
        "  blocks.0.attn.c_proj.weight: 0.1234 > 0.1 (learning rate may be too high)",
        "  blocks.5.mlp.c_fc.weight: 0.00000008 < 1e-7 (learning rate may be too low)",
    ]
    assert flow.update_lines({}, 100) == []
    marks = {"min": -0.002345, "p25": -0.000456, "p50": 0.000012, "p75": 0.000489, "p95": 0.001234, "max": 0.002567}
    assert flow.distribution_lines({"blocks.0.attn.c_proj.weight": marks}, 1000) == [
        "Gradient distribution summary (step 1000):",
        "  blocks.0.attn.c_proj.weight: min=-0.002345, p25=-0.000456, median=0.000012, p75=0.000489, p95=0.001234, "
        "max=0.002567",
    ]
