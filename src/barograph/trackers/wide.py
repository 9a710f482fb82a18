"""Wide rows and histograms as a mirror sends them.

In:   blocks of a run's block files.
Out:  values by name; edges and counts.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barograph.log.blocks import WideHistogram

Key = tuple[int, int, str]
"""Time in µs, step, name of a histogram or empty."""


class Numbers(NamedTuple):
    """A row: values by name. key[0] is the time in µs, key[1] the step."""

    key: Key
    names: tuple[str, ...]
    values: list[float]


class Distribution(NamedTuple):
    """A histogram: n counts between n + 1 edges; key[2] is its name."""

    key: Key
    edges: list[float]
    counts: list[float]


def counted(item: WideHistogram) -> tuple[list[float], list[float]]:
    """Edges and counts of a histogram; values that are not finite are left out."""
    values = struct.unpack(f"<{len(item.numbers) // 8}d", item.numbers)
    if not item.bins:
        bins = len(values) // 2
        return list(values[: bins + 1]), list(values[bins + 1 :])
    import numpy as np

    array = np.array(values)
    finite = array[np.isfinite(array)]
    try:
        with np.errstate(all="ignore"):
            counts, edges = np.histogram(finite, item.bins)
    except ValueError:  # too near to each other, or so far apart that their distance is not finite
        counts, edges = np.array([finite.size]), np.array([finite.min(), finite.max()])
    return edges.tolist(), counts.tolist()
