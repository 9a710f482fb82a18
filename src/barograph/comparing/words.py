"""Numbers as people read them: values, amounts with a unit, percent, intervals.

In:   numbers, some of them not finite, and what they count.
Out:  short text.
"""

from __future__ import annotations

import math

from barograph.comparing.measures import Cell, Row

_LARGE = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: float) -> str:
    """Four decimals where that says something, else four digits."""
    if not math.isfinite(value):
        return "NaN" if value != value else ("∞" if value > 0 else "−∞")
    size = abs(value)
    if value == 0 or 0.01 <= size < 10_000:
        return f"{value:.4f}"
    return f"{value:.4g}"


def amount(value: float, unit: str) -> str:
    """A value in its unit: `1.25 G`, `2h05m`, `0.31%`."""
    if not math.isfinite(value):
        return number(value)
    if unit == "seconds":
        return duration(value)
    if unit == "share":
        return f"{100 * value:.2f}%" if value >= 0.001 or value == 0 else f"{100 * value:.2g}%"
    if unit == "steps":
        return f"{value:,.0f}"
    if unit == "money":
        return f"{value:,.2f}" if value >= 1 else f"{value:.3g}"
    if unit == "a second":
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    if unit in ("tokens", "samples", "FLOPs"):
        return large(value)
    return number(value)


def large(value: float) -> str:
    for size, letter in _LARGE:
        if abs(value) >= size:
            return f"{value / size:.4g} {letter}"
    return f"{value:.4g}"


def duration(seconds: float) -> str:
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def percent(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0%"
    size = abs(value)
    return (
        f"{value:+.3f}%"
        if size < 0.1
        else f"{value:+.2f}%"
        if size < 10
        else f"{value:+.1f}%"
        if size < 1000
        else "> ±1000%"
    )


def cell_words(cell: Cell | None, unit: str) -> str:
    """A cell: its value, half its interval's width, and how many of the side's runs have one where some have none."""
    if cell is None:
        return "—"
    text = amount(cell.value, unit)
    if cell.low is not None and cell.high is not None and unit in ("", "share"):
        half = (cell.high - cell.low) / 2
        text += f" ± {amount(half, unit) if unit else f'{half:.2g}'}"
    return text + (f" ({cell.runs} of {cell.of})" if cell.runs < cell.of else "")


def change_words(row: Row, side: int) -> str:
    """A side's value against the baseline's, in percent; nothing where a value lacks some runs."""
    one, base = row.cells[side], row.cells[0]
    if one is None or base is None or one.runs < one.of or base.runs < base.of:
        return ""
    return percent(row.percent(side, 0))


def letter(side: int) -> str:
    """A, B, … Z, A1, B1, …"""
    return chr(65 + side % 26) + (str(side // 26) if side >= 26 else "")
