"""What a notebook draws, as columns: a panel for each family of series, exact in every bucket.

In:   series of one run; curves of a comparison; a range of the axis.
Out:  `Panel`s: lines with each bucket's minimum and maximum, and where values were not finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.core.columns import buckets as in_buckets
from barograph.core.roles import candidates
from barograph.core.text import short
from barograph.query.losses import RunLosses

Floats = NDArray[np.float64]

MOST_MARKS = 200  # places of values that are not finite; all of them are counted
_FAMILIES = ("loss", "norm", "lr", "throughput", "mfu", "reward", "kl", "eval_accuracy")
# what every run has of its own accord: shown where it is asked for
_BESIDE = ("goodput/", "sol/", "energy/", "allocator/", "host/", "gpu/", "span/", "data/", "memory/", "ranks/")
_MOST_NAMES = 4000  # series that a part is looked for among
_FEW = 64  # points that are drawn as points
_NONE = RunLosses()


class PanelLine(NamedTuple):
    """One series in a range. x, low, high [n]: a bucket's first place, its extremes; low is high where every point
    has a place of its own (`exact`). odd: places of values that are not finite, `odd_count` of them in all; odd_values:
    those values."""

    name: str
    x: Floats
    low: Floats
    high: Floats
    last: float
    points: int
    exact: bool
    odd: Floats
    odd_count: int
    odd_values: Floats

    @property
    def few(self) -> bool:
        """Whether its points stand alone, as evaluations do."""
        return self.exact and self.points <= _FEW


class Panel(NamedTuple):
    """Lines on one pair of axes."""

    title: str
    along: str
    lines: list[PanelLine]


def line(name: str, x: Any, value: Any, most: int, low: float | None = None, high: float | None = None) -> PanelLine:
    """A series between two places of its axis (both inclusive, None: to its end) in at most `most` buckets."""
    along, values = np.asarray(x, np.float64), np.asarray(value, np.float64)
    inside = np.isfinite(along)
    if low is not None:
        inside &= along >= low
    if high is not None:
        inside &= along <= high
    if not inside.all():
        along, values = along[inside], values[inside]
    finite = np.isfinite(values)
    odd = along[~finite]
    last = float(values[-1]) if len(values) else math.nan
    every = max(1, -(-len(odd) // MOST_MARKS))
    marks, kinds = odd[::every], values[~finite][::every]
    if len(values) <= most:
        shown = np.where(finite, values, np.nan)
        return PanelLine(name, along, shown, shown, last, len(values), True, marks, len(odd), kinds)
    made = in_buckets(along, values, most)
    first = np.asarray(made.x_first, np.float64)
    return PanelLine(name, first, made.y_min, made.y_max, last, len(values), False, marks, len(odd), kinds)


def chosen(names: Sequence[str], told: RunLosses = _NONE, most: int = 6) -> list[tuple[str, list[str]]]:
    """Which series a run shows unasked: (title, series) of each panel, the loss with its evaluations first. told:
    losses that their rows tell.
    """
    few = [name for name in names if name.count("/") <= 1][:_MOST_NAMES]
    channels = dict.fromkeys(few, ())
    found: list[tuple[str, list[str]]] = []
    taken: set[str] = set()
    for family in _FAMILIES:
        likeliest = candidates(family, channels)[:1]
        if family == "loss":
            likeliest = likeliest or list(told.training)
            likeliest += candidates("eval_loss", channels)[:1] or list(told.evaluations)
        own = [name for name in likeliest if name not in taken]
        if own:
            taken.update(own)
            found.append((own[0], own))
    for name in (*few, *names):
        if len(found) >= min(most, 3):
            break
        if name not in taken and not name.startswith(_BESIDE):
            taken.add(name)
            found.append((name, [name]))
    return found[:most]


def frame(head: Mapping[str, Any], panels: Sequence[Panel]) -> bytes:
    """Panels as bytes: the length of a JSON header, the header, float64 columns; all little-endian.

    The header is filled with spaces so that the columns begin at a multiple of eight. Each column is named as
    `{"at": where it begins, in numbers, "n": its length}`.
    """
    import msgspec

    parts: list[Floats] = []
    place = 0

    def column(values: Floats) -> dict[str, int]:
        nonlocal place
        parts.append(np.ascontiguousarray(values, "<f8"))
        place += len(values)
        return {"at": place - len(values), "n": len(values)}

    described = [
        {
            "title": short(panel.title),
            "along": short(panel.along),
            "lines": [
                {
                    "name": short(item.name),
                    "points": item.points,
                    "exact": item.exact,
                    "few": item.few,
                    "odd_count": item.odd_count,
                    "last": column(np.array([item.last])),
                    "x": column(item.x),
                    "low": column(item.low),
                    "high": column(item.high),
                    "odd": column(item.odd),
                    "odd_values": column(item.odd_values),
                }
                for item in panel.lines
            ],
        }
        for panel in panels
    ]
    header = msgspec.json.encode({**head, "panels": described})
    header += b" " * (-(4 + len(header)) % 8)
    return b"".join([len(header).to_bytes(4, "little"), header, *(part.tobytes() for part in parts)])
