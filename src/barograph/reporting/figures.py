"""Values as a report shows them.

In:   numbers, times, words; where they come from.
Out:  `Figure`s.
"""

from __future__ import annotations

import math
from typing import Any

from barograph.comparing.words import duration as spelled_duration
from barograph.comparing.words import large
from barograph.record import parse_time
from barograph.reporting.content import Figure
from barograph.sinks.parts import escape

_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SMALL = "\N{MINUS SIGN}"


def plain_number(value: float) -> str:
    """Four or five digits that mean something: 1.814, 0.0003, 12,345, 3e-06."""
    value = float(value)
    if not math.isfinite(value):
        return "NaN" if value != value else "infinity" if value > 0 else "-infinity"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e9 or size < 1e-4:
        return f"{value:.4g}"
    if value == int(value):
        return f"{int(value):,}"
    if size >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.5g}" if size >= 1000 else f"{value:.4g}"


def number(value: float, source: str) -> Figure:
    return Figure(plain_number(value), float(value), source)


def count(value: float, source: str, what: str = "") -> Figure:
    """A whole number, with what it counts: "1 step", "2,000 steps"."""
    whole = int(value)
    words = f"{whole:,}" + (f" {what}{'' if whole == 1 else 's'}" if what else "")
    return Figure(words, whole, source)


def amount(value: float, source: str, unit: str = "") -> Figure:
    """A large number with a letter for its size: 1.25 G tokens."""
    size = abs(value)
    text = large(float(value)) if size >= 10_000 else f"{value:,.0f}" if size >= 1_000 else plain_number(value)
    return Figure(f"{text}{unit}", float(value), source)


def percent(share: float, source: str) -> Figure:
    """A share of 1 in percent."""
    value = 100 * float(share)
    size = abs(value)
    text = f"{value:.1f}".removesuffix(".0") if size >= 1 else "0" if value == 0 else f"{value:.2g}"
    return Figure(f"{text}%", float(share), source)


def money(value: float, source: str) -> Figure:
    """In the currency of the price that was given; which one that is nobody said."""
    size = abs(value)
    text = f"{value:,.2f}" if size >= 1 or value == 0 else f"{value:.3g}"
    return Figure(text, float(value), source)


def duration(seconds: float, source: str) -> Figure:
    return Figure(spelled_duration(float(seconds)), float(seconds), source)


def milliseconds(value: float, source: str) -> Figure:
    value = float(value)
    text = (
        spelled_duration(value / 1000)
        if value >= 1000
        else f"{value:.3g} ms"
        if value >= 1
        else f"{value * 1000:.3g} µs"
    )
    return Figure(text, value, source)


def size(value: float, source: str) -> Figure:
    """Bytes."""
    for unit, name in _BYTES:
        if abs(value) >= unit:
            return Figure(f"{value / unit:.4g} {name}", float(value), source)
    return Figure(f"{value:,.0f} bytes", float(value), source)


def word(value: Any, source: str, longest: int = 400) -> Figure:
    """A text of a user or of the machine, on one line."""
    return Figure(escape(value, longest), str(value)[:longest], source)


def moment(value: Any, source: str) -> Figure | None:
    """A time as it is written in a manifest, to the second; None if it is none."""
    parsed = parse_time(value)
    if not parsed:
        return None
    return Figure(f"{str(value)[:10]} {str(value)[11:19]} UTC", str(value), source)
