"""FLOPs a token by every formula, and MFU, come out as published."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.probes.speed.architecture import Architecture, FlopsError, parameters
from barograph.probes.speed.configurations import architecture
from barograph.probes.speed.flops import (
    FORMULAS,
    RECOMPUTATION,
    flag,
    flops_per_token,
    hardware_flops,
    hfu,
    mfu,
    parts,
)

PALM = Architecture(
    layers=118, hidden=18432, heads=48, kv_heads=1, head_dim=256, ffn=73728, vocab=256000, sequence=2048, gated=True,
    tied=True,
)  # fmt: skip
# the 7B row of KempnerForge's scaling report: Llama 3 8B's sizes, sequences of 4096, one H200, 10,471 tokens a second
SEVEN = Architecture(
    layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256, sequence=4096, gated=True,
    tied=False, vectors=65 * 4096,
)  # fmt: skip
SPARSE = Architecture(
    layers=8, hidden=512, heads=8, kv_heads=2, head_dim=64, ffn=1024, vocab=32000, sequence=1024, gated=True,
    tied=False, experts=64, top_k=4, expert_ffn=256, shared_ffn=512, dense_layers=2,
)  # fmt: skip


def test_palm_540b_reaches_the_mfu_of_its_appendix() -> None:
    # arXiv:2204.02311 appendix B: 238.3 thousand tokens a second on 6144 TPU v4: 46.2%, without attention 45.7%
    whole = parts(PALM, "palm")
    assert round(100 * mfu(whole.total, 238.3e3, 275, 6144), 1) == 46.2
    assert round(100 * mfu(whole.blocks + whole.lm_head, 238.3e3, 275, 6144), 1) == 45.7
    assert whole.attention == 12 * 118 * 48 * 256 * 2048


def test_nanochat_d24_reaches_the_mfu_of_its_log() -> None:
    config = {
        "n_layer": 24, "n_embd": 1536, "n_head": 12, "n_kv_head": 12, "vocab_size": 32768, "sequence_len": 2048,
        "window_pattern": "SSSL",
    }  # fmt: skip
    gates = 12 * 32 * 12  # every second layer gates its embedding of values: 32 channels to 12 heads
    flops = flops_per_token(architecture(config, others=gates), "palm_non_embedding")
    assert f"{flops:e}" == "4.945112e+09"
    assert round(100 * mfu(flops, 524_288 / 0.64543, 989, 8), 2) == 50.77


def test_kempner_forge_7b_reaches_the_mfu_of_its_report_by_both_of_its_formulas() -> None:
    assert round(100 * mfu(flops_per_token(SEVEN, "palm"), 10_471, 989), 1) == 57.8  # as reported
    assert round(100 * mfu(flops_per_token(SEVEN, "kempner"), 10_471, 989), 1) == 54.5  # as it counts now


def test_megatron_counts_as_its_paper_does() -> None:
    # arXiv:2104.04473, equation 3 without recomputation: 72 B s L h² (1 + s / 6h + V / 12 L h), attention whole there
    gpt = Architecture(
        layers=96, hidden=12288, heads=96, kv_heads=96, head_dim=128, ffn=4 * 12288, vocab=51200, sequence=2048,
        gated=False, tied=True,
    )  # fmt: skip
    published = 72 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (12 * 96 * 12288))
    counted = parts(gpt, "megatron")
    assert counted.blocks + counted.lm_head + 2 * counted.attention == pytest.approx(published, rel=1e-12)


def test_surogate_counts_as_its_source_does() -> None:
    dense = Architecture(
        layers=12, hidden=768, heads=12, kv_heads=4, head_dim=64, ffn=2048, vocab=50304, sequence=1024, gated=True,
        tied=True,
    )  # fmt: skip
    channels = 768 + 2 * 4 * 64
    assert parts(dense) == (
        6 * 12 * 768 * (3 * 2048 + 768 + channels),
        6 * 50304 * 768,
        6 * 12 * 12 * 64 * 1024,
    )


def test_formulas_differ_by_what_they_say_they_differ_by() -> None:
    each = {name: parts(SEVEN, name) for name in FORMULAS}
    known = parameters(SEVEN)
    assert each["palm"].blocks - each["palm_non_embedding"].blocks == 6 * known.embedding  # untied: looked up only
    assert each["palm_non_embedding"].blocks - each["kempner"].blocks == 6 * known.vectors
    assert each["megatron"] == each["surogate"]
    assert each["kempner"].attention == each["palm"].attention == 2 * each["surogate"].attention
    assert len({one.lm_head for one in each.values()}) == 1
    for one in each.values():
        assert one.total == sum(one)


def test_a_tied_head_is_one_weight_and_still_a_product() -> None:
    tied = Architecture(**{**vars(SEVEN), "tied": True})
    assert parameters(SEVEN).total - parameters(tied).total == SEVEN.vocab * SEVEN.hidden
    for name in ("palm_non_embedding", "kempner", "megatron", "surogate"):
        assert parts(tied, name) == parts(SEVEN, name)
    assert parts(tied, "palm").lm_head == parts(SEVEN, "palm").lm_head


def test_experts_that_a_token_does_not_meet_cost_it_nothing_but_routing() -> None:
    more = Architecture(**{**vars(SPARSE), "experts": 128})
    for name in ("megatron", "kempner"):
        assert flops_per_token(more, name) == flops_per_token(SPARSE, name)
    for name in ("palm", "palm_non_embedding", "surogate"):
        assert flops_per_token(more, name) - flops_per_token(SPARSE, name) == 6 * 6 * 512 * 64
    dense_part = 2 * 3 * 512 * 1024
    expert_part = 6 * 3 * 512 * (4 * 256 + 512)
    attention = 8 * (512 * 512 * 2 + 2 * 512 * 2 * 64)
    assert parts(SPARSE, "megatron").blocks == 6 * (dense_part + expert_part + attention)


def test_windows_make_attention_cheaper_in_every_formula() -> None:
    narrow = Architecture(**{**vars(SEVEN), "windows": (1024,) * 16 + (None,) * 16})
    for name in FORMULAS:
        whole, some = parts(SEVEN, name), parts(narrow, name)
        assert some[:2] == whole[:2]
        share = (
            (1024 / 4096 + 1) / 2
            if name in ("palm", "palm_non_embedding", "kempner")
            else (1024 * (1 - 1 / 8) / 2048 + 1) / 2
        )
        assert some.attention / whole.attention == pytest.approx(share, rel=1e-12)


def test_recomputation_is_in_hfu_and_never_in_mfu() -> None:
    blocks, lm_head, attention = parts(SEVEN, "palm")
    assert hardware_flops(SEVEN, "none") == flops_per_token(SEVEN)
    assert hardware_flops(SEVEN, "selective") == pytest.approx(blocks + lm_head + attention * 4 / 3)
    assert hardware_flops(SEVEN, "full") == pytest.approx((blocks + attention) * 4 / 3 + lm_head)
    model = mfu(flops_per_token(SEVEN), 10_471, 989)
    assert model == hfu(SEVEN, 10_471, 989)
    assert model < hfu(SEVEN, 10_471, 989, recompute="selective") < hfu(SEVEN, 10_471, 989, recompute="full")
    assert hfu(SEVEN, 10_471, 989, recompute="full") / model < 4 / 3
    with pytest.raises(FlopsError, match=", ".join(RECOMPUTATION)):
        hardware_flops(SEVEN, "some")


def test_an_unknown_formula_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(FlopsError, match="palm, palm_non_embedding, megatron, kempner, surogate"):
        flops_per_token(SEVEN, "chinchilla")


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, -math.inf, None, "fast", 10**400])
def test_mfu_of_what_can_not_be_is_nan_and_raises_nothing(wrong: Any) -> None:
    for place in range(4):
        figures: list[Any] = [5e9, 1e5, 989.0, 8]
        figures[place] = wrong
        assert math.isnan(mfu(*figures))


@given(st.floats(1, 1e15), st.floats(1e-3, 1e12), st.floats(0.001, 1e5), st.integers(1, 100_000))
def test_mfu_is_the_share_of_the_peak_whatever_the_sizes(flops: float, speed: float, peak: float, devices: int) -> None:
    value = mfu(flops, speed, peak, devices)
    assert value == pytest.approx(flops * speed / (peak * 1e12 * devices), rel=1e-9)
    assert mfu(flops, speed, peak, 2 * devices) == pytest.approx(value / 2)


def test_impossible_mfu_is_flagged_and_not_clipped() -> None:
    value = mfu(flops_per_token(SEVEN), 40_000, 989)
    assert value > 2 and "impossible" in str(flag(value))
    assert "more than dense training reaches" in str(flag(0.8))
    assert "impossible" in str(flag(-0.1))
    for fine in (0.0, 0.3, 0.6, 0.75, math.nan, None, "x"):
        assert flag(fine) is None
    assert "impossible" in str(flag(math.inf))


def test_formulas_are_found_by_the_names_of_earlier_versions() -> None:
    assert flops_per_token(SEVEN, "nanogpt") == flops_per_token(SEVEN, "palm_non_embedding")
