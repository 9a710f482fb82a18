"""Gradient flow over depth, bands for update ratios, the stability guide's lines about a table of layers.

In:   {layer: {statistic: number}} of gradients, updates, distributions.
Out:  a few numbers for the whole model, and lines for the console.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from barograph.core.names import is_vector

Table = Mapping[str, Mapping[str, float]]

TOO_HIGH, TOO_LOW = 0.1, 1e-7  # the stability guide's alerts on the update ratio
LEAST_WEIGHT = 1e-6  # the stability guide: a ratio to a smaller weight norm says nothing
SHOWN = 5  # tensors in the distribution summary (the stability guide's implementation)


class Band(NamedTuple):
    """The update ratios that the stability guide calls healthy in a phase of training."""

    phase: str
    low: float
    high: float


_BANDS = ((1_000, Band("early", 1e-3, 1e-2)), (10_000, Band("mid", 1e-4, 1e-3)))
_LATE = Band("late", 1e-5, 1e-4)


def band(step: int) -> Band:
    """The stability guide's band for a step: early up to 1K, mid up to 10K, then late."""
    return next((item for end, item in _BANDS if step < end), _LATE)


def outside(ratios: Iterable[float], step: int) -> float:
    """The share of layers whose update ratio is not in the band of the step; NaN without a layer."""
    low, high = band(step)[1:]
    chosen_ratios = [ratio for ratio in ratios if ratio == ratio]
    return sum(not low <= ratio <= high for ratio in chosen_ratios) / len(chosen_ratios) if chosen_ratios else math.nan


def quantiles(values: Iterable[float]) -> dict[str, float]:
    """`p5`, `p50`, `p95` of the numbers that are finite; nothing without one."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return {}
    return dict(zip(("p5", "p50", "p95"), map(float, np.percentile(finite, (5, 50, 95))), strict=True))


def block_norms(squares: Mapping[str, float], blocks: Iterable[str]) -> list[float]:
    """The gradient norm of each block that has one, in order of depth.

    squares: squared norm of each parameter by name. blocks: the names of the model's blocks, in order.
    """
    found: dict[str, float] = dict.fromkeys(blocks, -1.0)
    for name, square in squares.items():
        head = name
        while head:
            head = head.rpartition(".")[0]
            if head in found:
                found[head] = max(found[head], 0.0) + square
                break
    return [math.sqrt(square) if square == square else math.nan for square in found.values() if square != -1.0]


def flow(squares: Mapping[str, float], blocks: Iterable[str]) -> dict[str, float]:
    """Figures of gradient flow from squared norms by parameter.

    `flow_first_last`: first block's norm / last block's. `flow_spread`: largest / smallest norm of a weight matrix that
    is not 0; a key's bias has none but that of rounding wherever softmax follows. `flow_p5`, `flow_p50`, `flow_p95`:
    quantiles of the layers' norms.
    """
    norms = [math.sqrt(square) for square in squares.values() if math.isfinite(square)]
    figures = {f"flow_{name}": value for name, value in quantiles(norms).items()}
    matrices = [square for name, square in squares.items() if not is_vector(name)]
    positive = [math.sqrt(square) for square in matrices if square > 0 and math.isfinite(square)]
    if positive:
        figures["flow_spread"] = max(positive) / min(positive)
    deep = block_norms(squares, blocks)
    if len(deep) > 1 and deep[-1] != 0:
        figures["flow_first_last"] = deep[0] / deep[-1]
    return figures


# -- the stability guide's lines -------------------------------------------------------------------------


def gradient_lines(gradients: Table) -> list[str]:
    """One line a layer: its gradient's norm, mean and standard deviation (the stability guide: every 100 steps)."""
    return [
        f"{layer}: grad_norm={row['norm']:.4f}, mean={row['mean']:.6f}, std={row['std']:.6f}"
        for layer, row in gradients.items()
    ]


def update_lines(updates: Table, step: int) -> list[str]:
    """The layers whose update ratio is beyond the stability guide's limits, under a heading; nothing if none is."""
    lines = []
    for layer, row in updates.items():
        ratio = row["ratio"]
        if not row["weight_norm"] > LEAST_WEIGHT:
            continue
        if ratio > TOO_HIGH:
            lines.append(f"  {layer}: {ratio:.4f} > 0.1 (learning rate may be too high)")
        elif ratio < TOO_LOW:
            lines.append(f"  {layer}: {ratio:.8f} < 1e-7 (learning rate may be too low)")
    return [f"Update ratio alerts (step {step}):", *lines] if lines else []


def distribution_lines(distributions: Table, step: int, most: int = SHOWN) -> list[str]:
    """Percentiles of the first layers' gradients (the stability guide: every 1000 steps)."""
    lines = [f"Gradient distribution summary (step {step}):"]
    for layer, row in list(distributions.items())[:most]:
        lines.append(
            f"  {layer}: min={row['min']:.6f}, p25={row['p25']:.6f}, median={row['p50']:.6f}, "
            f"p75={row['p75']:.6f}, p95={row['p95']:.6f}, max={row['max']:.6f}"
        )
    return lines if len(lines) > 1 else []
