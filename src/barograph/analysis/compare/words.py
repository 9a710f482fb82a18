"""The cells of a comparison's table: amounts in their unit, cells, changes, a side's letter.

In:   measures, some of them not finite, and what they count.
Out:  short text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from barograph.analysis.compare.axes import UNITS
from barograph.analysis.compare.contrasts import Contrast
from barograph.analysis.compare.ends import SharedStretch
from barograph.analysis.compare.measures import Cell, MeasureRow
from barograph.core.text import MISSING, change, compact, duration, money, number, percent

PLUS_MINUS = "± is half of the 95% interval of the mean over a side's runs."


def amount(value: float, unit: str) -> str:
    """A value in its unit: `1.25B`, `02h05m`, `0.31%`."""
    if unit == "seconds":
        return duration(value)
    if unit == "share":
        return percent(value, 2)
    if unit == "money":
        return money(value)
    if unit in ("tokens", "samples"):
        return compact(value)
    if unit == "steps" and math.isfinite(value):
        return f"{value:,.0f}"
    return number(value, 4 if unit in ("FLOPs", "a second") else 5)


def cell_words(cell: Cell | None, unit: str) -> str:
    """A cell: its value, half its interval's width, and how many of the side's runs have one where some have none."""
    if cell is None:
        return MISSING
    text = amount(cell.value, unit)
    if cell.low is not None and cell.high is not None and unit in ("", "share"):
        half = (cell.high - cell.low) / 2
        text += f" ± {amount(half, unit) if unit else number(half, 2)}"
    return text + (f" ({cell.runs} of {cell.of})" if cell.runs < cell.of else "")


# heads of the table of tests on the page and in the report
TEST_COLUMNS = (
    "", "at", "A", "side", "difference", "", "interval", "p", "permutation p", "Hedges' g", "test", "outcome",
)  # fmt: skip


def common_end(contrast: Contrast) -> tuple[str, str, str]:
    """Where a side and the baseline are compared, and the two values there: the baseline's, the side's."""
    place = contrast.place
    if place is None or not place.is_whole or math.isnan(contrast.difference):
        return "", "", ""
    base = float(np.mean(place.values(contrast.baseline)))
    return amount(place.high, UNITS[place.axis]), number(base, 5), number(base + contrast.difference, 5)


def ends_alike(contrasts: Sequence[Contrast]) -> bool:
    """Whether the final values of all sides are those that are compared."""
    places = [contrast.place for contrast in contrasts if contrast.place is not None and contrast.place.is_whole]
    ends = {float(placed.curve.x[-1]) for place in places for side in place.sides for placed in side}
    return len(ends) <= 1


def smoothing(place: SharedStretch | None, contrasts: Sequence[Contrast]) -> str:
    """How values were smoothed; nothing where they were not."""
    if place is None or not place.window:
        return ""
    unit = UNITS[place.axis]
    own = any(contrast.place is not None and contrast.place.window not in (0.0, place.window) for contrast in contrasts)
    pairs = "; a pair that shares a longer stretch by the same rule over that" if own else ""
    return (
        f"Smoothed for all alike: means over {amount(place.window, unit)} {unit}{pairs}; a final value is the last "
        "such mean."
    )


def has_interval(rows: Sequence[MeasureRow]) -> bool:
    """Whether any cell is shown with its ±."""
    return any("±" in cell_words(cell, row.unit) for row in rows for cell in row.cells)


def change_words(row: MeasureRow, side: int) -> str:
    """A side's value against the baseline's, in percent; nothing where a value lacks some runs."""
    one, base = row.cells[side], row.cells[0]
    if one is None or base is None or one.runs < one.of or base.runs < base.of:
        return ""
    return change(row.percent(side, 0))


def letter(side: int) -> str:
    """A, B, … Z, A1, B1, …"""
    return chr(65 + side % 26) + (str(side // 26) if side >= 26 else "")
