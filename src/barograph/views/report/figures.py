"""Values as a report shows them.

In:   numbers, times, words; where they come from.
Out:  `Figure`s.
"""

from __future__ import annotations

from typing import Any

from barograph.core import text
from barograph.core.record import parse_time
from barograph.views.report.content import Figure


def number(value: float, source: str) -> Figure:
    return Figure(text.number(value), float(value), source)


def count(value: float, source: str, what: str = "") -> Figure:
    """A whole number, with what it counts: "1 step", "2,000 steps"."""
    whole = int(value)
    return Figure(text.count(whole, what) if what else f"{whole:,}", whole, source)


def amount(value: float, source: str, unit: str = "") -> Figure:
    """A large number with a letter for its size: 1.25B tokens."""
    shown = text.compact(value) if abs(value) >= 10_000 else text.number(value)
    return Figure(f"{shown}{unit}", float(value), source)


def percent(share: float, source: str) -> Figure:
    """A share of 1 in percent."""
    return Figure(text.percent(share), float(share), source)


def money(value: float, source: str) -> Figure:
    """In the currency of the price that was given, which is not known."""
    return Figure(text.money(value), float(value), source)


def duration(seconds: float, source: str) -> Figure:
    return Figure(text.duration(seconds), float(seconds), source)


def milliseconds(value: float, source: str) -> Figure:
    return Figure(text.milliseconds(value), float(value), source)


def size(value: float, source: str) -> Figure:
    """Bytes."""
    return Figure(text.size(value), float(value), source)


def word(value: Any, source: str, longest: int = 400) -> Figure:
    """A text of a user or of the machine, on one line."""
    return Figure(text.escape(value, longest), str(value)[:longest], source)


def moment(value: Any, source: str) -> Figure | None:
    """A time as it is written in a manifest, to the second; None if it is none."""
    parsed = parse_time(value)
    if not parsed:
        return None
    return Figure(f"{str(value)[:10]} {str(value)[11:19]} UTC", str(value), source)
