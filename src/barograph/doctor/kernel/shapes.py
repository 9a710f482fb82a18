"""The shape of a histogram in four numbers.

In:   edges and counts.
Out:  modes, heaviness of the tails, distance of the centre from zero, share of the numbers at zero.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy

LEAST = 256  # numbers; of fewer the shape is chance
QUANTITIES = ("modes", "kurtosis", "shift", "zero")
KEPT = "shape"  # the family of the series that hold them: `shape/{histogram}/modes` and so on
_PEAK = 0.1  # of all numbers: a mode holds at least this share
_VALLEY = 0.5  # of the lower peak's density: the valley between two modes is below
_FINE = 32  # cells over the middle 98% of the numbers, in which modes are looked for


def shape_of(edges: Any, counts: Any) -> dict[str, float]:
    """`modes`, `kurtosis` (3 for a normal distribution), `shift` (mean / deviation), `zero` (share of the fullest cell
    that touches 0); nothing for fewer than 256 numbers or edges that are none.
    """
    edges, counts = numpy.asarray(edges, float), numpy.asarray(counts, float)
    whole = float(counts.sum())
    if len(edges) != len(counts) + 1 or not whole >= LEAST or not numpy.isfinite(edges).all():
        return {}
    low, high = edges[:-1], edges[1:]
    middle, width = (low + high) / 2, high - low
    share = counts / whole
    mean = float(share @ middle)
    variance = float(share @ ((middle - mean) ** 2 + width**2 / 12))
    at_zero = share[(low <= 0) & (high >= 0)]
    zero = float(at_zero.max()) if len(at_zero) else 0.0
    if not variance > 0:
        return {"modes": 1.0, "kurtosis": 3.0, "shift": 0.0, "zero": zero}
    fourth = float(share @ ((middle - mean) ** 4 + (middle - mean) ** 2 * width**2 / 2 + width**4 / 80))
    shift = mean / variance**0.5
    return {"modes": float(_modes(edges, counts)), "kurtosis": fourth / variance**2, "shift": shift, "zero": zero}


def _modes(edges: Any, counts: Any) -> int:
    """Peaks of the density with a real valley between them."""
    total = numpy.concatenate([[0.0], numpy.cumsum(counts)])
    places = numpy.interp([0.01, 0.99], total / total[-1], edges)
    grid = numpy.linspace(places[0], places[1], _FINE + 1)
    if not grid[-1] > grid[0]:
        return 1
    mass = numpy.diff(numpy.interp(grid, edges, total / total[-1]))
    smooth = numpy.convolve(numpy.pad(mass, 2, mode="edge"), [0.1, 0.2, 0.4, 0.2, 0.1], "valid")
    # walk from peak to valley: a new mode begins where the density has doubled from the lowest place since the last
    modes: list[tuple[float, int]] = []
    peak, valley, begin = 0.0, 0.0, 0
    cuts = [0]
    for at, value in enumerate(smooth):
        if value > peak and (not modes or valley == peak):
            peak = valley = value
        elif value < valley:
            valley, begin = value, at
        elif valley < _VALLEY * min(peak, value):
            cuts.append(begin)
            peak = valley = value
            modes.append((peak, at))
        elif value > peak:
            peak = value
    cuts.append(len(smooth))
    held = [float(mass[low:high].sum()) for low, high in itertools.pairwise(cuts)]
    return max(1, sum(item >= _PEAK for item in held))


def is_wanted(name: str) -> bool:
    """Whether a histogram is of gradients: what is normal for other things depends on what they are."""
    return "grad" in name.partition("/")[0].lower()
