"""What a token costs to train, by five published formulas, and how much of a machine that uses.

In:   an `Architecture`; tokens a second; the devices' peak in TFLOP/s.
Out:  FLOPs a token in three parts (blocks, LM head, attention); MFU and HFU as fractions of the peak.

Every formula counts two FLOPs a weight and token forward and four backward, and says below what else it
counts. Names: N weights, L layers, H heads, Q a head's width, T the sequence, dim the stream's width.
Where a layer has a window of w keys, min(w, T) stands for T in each of them.

    palm       6 N + 12 L H Q T. N is every parameter a token meets, embeddings included (tied ones once).
               Attention is not halved for the causal mask.      PaLM, arXiv:2204.02311, appendix B
    palm_non_embedding
               As palm, but N leaves out position embeddings, and the token embedding unless it is also the
               head: what is looked up costs nothing.            nanoGPT model.py; nanochat, torchtitan alike
    megatron   6 × the weights of attention, feed-forward and head, no routers, norms or biases;
               attention 6 L H Q T, half of the mask.            Megatron-LM training.py
    kempner    6 × the same weights + 12 L dim T: full attention, and dim whatever the heads' width.
                                                                 KempnerForge metrics/mfu.py
    surogate   As megatron, with routers and gates.              Surogate's speed of light

A mixture of experts counts the `top_k` experts of a token and the shared ones in all five; Surogate itself
counts one dense layer instead. Grouped-query attention makes keys and values cheaper to project and no
cheaper to attend to.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from barograph.core.options import RENAMED_FORMULAS
from barograph.probes.speed.architecture import Architecture, FlopsError, parameters

FORMULAS: dict[str, str] = {
    "palm": "6 N + 12 L H Q T, N every parameter a token meets with its embeddings",
    "palm_non_embedding": "6 N + 12 L H Q T, N without embeddings that are only looked up",
    "megatron": "6 × matrices without routers + 6 L H Q T, half of the causal mask",
    "kempner": "6 × matrices without routers + 12 L dim T",
    "surogate": "6 × matrices with routers + 6 L H Q T, half of the causal mask",
}
RECOMPUTATION = ("none", "selective", "full")

# Dense models reach 0.55 to 0.65 of the sheet's peak at best; a value above this asks for another look.
IMPROBABLE = 0.75


class FlopsParts(NamedTuple):
    """FLOPs a token, forward and backward."""

    blocks: float  # projections, feed-forward layers, routers
    lm_head: float
    attention: float  # scores, and the mix of values by them

    @property
    def total(self) -> float:
        return self.blocks + self.lm_head + self.attention


def parts(arch: Architecture, formula: str = "surogate") -> FlopsParts:
    """FLOPs a token of each part, by a formula's id; see above. FlopsError for an id that is not there."""
    formula = dict(RENAMED_FORMULAS).get(formula, formula)
    if formula not in FORMULAS:
        raise FlopsError(f"there is no formula {formula!r}; there are {', '.join(FORMULAS)}.")
    known = parameters(arch)
    head = arch.vocab * arch.hidden  # the product is made whether the matrix is shared or not
    if formula == "kempner":
        attention = 12.0 * arch.hidden * arch.spans(causal=False)
    else:
        # 2 FLOPs × 3 passes × (queries with keys + weights with values): 12 H Q for heads of one width
        each = 6.0 * arch.heads * (arch.head_dim + arch.value_dim)
        attention = each * arch.spans(causal=formula in ("megatron", "surogate"))
    if formula == "palm":
        weights = known.active - head
    elif formula == "palm_non_embedding":
        weights = known.active - head - known.positions - (0 if arch.tied else known.embedding)
    elif formula == "surogate":
        weights = known.active_blocks
    else:
        weights = known.active_blocks - arch.router_weights - arch.others
    return FlopsParts(6.0 * weights, 6.0 * head, attention)


def flops_per_token(arch: Architecture, formula: str = "palm") -> float:
    """FLOPs a token, forward and backward, by a formula's id."""
    return parts(arch, formula).total


def hardware_flops(arch: Architecture, recompute: str, formula: str = "palm") -> float:
    """FLOPs a token with what is computed twice to save memory.

    none: as `flops_per_token`. full: each block keeps its input alone and runs forward again, so blocks and
    attention cost 4/3; the head is not run again. selective: the scores and the mix of values run forward
    again, so attention costs 4/3 (what is recomputed: arXiv:2205.05198 section 5, whose equation for the
    hardware's FLOPs is larger: it doubles the attention term).
    """
    if recompute not in RECOMPUTATION:
        raise FlopsError(f"recomputation is {recompute!r}; it is one of {', '.join(RECOMPUTATION)}.")
    blocks, lm_head, attention = parts(arch, formula)
    again = 4 / 3
    if recompute == "full":
        return blocks * again + lm_head + attention * again
    return blocks + lm_head + attention * (again if recompute == "selective" else 1.0)


def mfu(flops_per_token: float, tokens_per_second: float, peak_tflops: float | None, devices: int = 1) -> float:
    """Model FLOPs utilisation, as a fraction: FLOPs a token × tokens a second / (peak × devices).

    tokens_per_second: of all `devices` together. peak_tflops: of one, in TFLOP/s, at the precision of the
    matrix products, without sparsity. Not clipped: above 1 says that a figure is wrong, see `flag`.
    NaN if the peak is unknown (None) or any figure is zero, negative or not finite, so that a training
    loop may call it at every step.
    """
    if peak_tflops is None:
        return math.nan
    try:
        values = (float(flops_per_token), float(tokens_per_second), float(peak_tflops), float(devices))
    except (TypeError, ValueError, OverflowError):
        return math.nan
    if not all(0 < value < math.inf for value in values):
        return math.nan
    return values[0] / 1e12 * values[1] / values[2] / values[3]


def hfu(
    arch: Architecture,
    tokens_per_second: float,
    peak_tflops: float | None,
    devices: int = 1,
    *,
    recompute: str = "none",
    formula: str = "palm",
) -> float:
    """Hardware FLOPs utilisation, as a fraction: as `mfu`, with what is recomputed (`hardware_flops`)."""
    return mfu(hardware_flops(arch, recompute, formula), tokens_per_second, peak_tflops, devices)


def flag(mfu: Any) -> str | None:
    """A sentence if an MFU can't be right, else None. mfu: a fraction."""
    if not isinstance(mfu, (int, float)) or math.isnan(mfu):
        return None
    if mfu > 1:
        return (
            f"MFU is {100 * mfu:.1f}%, which is impossible: the FLOPs a token, the tokens a second, the number of "
            "devices or the peak is wrong."
        )
    if mfu > IMPROBABLE:
        return (
            f"MFU is {100 * mfu:.1f}%, more than dense training reaches: check the FLOPs formula, and whether the "
            "peak is the device's at this precision."
        )
    if mfu < 0:
        return f"MFU is {100 * mfu:.1f}%, which is impossible: a figure is negative."
    return None
