"""A panel as a still picture.

In:   a panel.
Out:  SVG text that stands alone: no script, no style sheet, no font, nothing loaded. Its ground is its own, so that
it can be read on a light and on a dark page.
"""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Sequence

import numpy as np

from barograph.notebook.panels import Line, Panel, text

WIDE, HIGH = 560, 240
_LEFT, _RIGHT, _TOP, _BELOW = 62, 12, 40, 26
COLOURS = ("#1f6feb", "#c4600c", "#1a7f37", "#8250df", "#b42331", "#0b7285", "#7a5900", "#57606a")
_INK, _DIM, _GRID, _GROUND, _BAD = "#1f2328", "#59636e", "#e4e8ec", "#ffffff", "#b42331"


def picture(panel: Panel) -> str:
    """The panel's chart."""
    across, down = _ranges(panel.lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{HIGH}" viewBox="0 0 {WIDE} {HIGH}" '
        f'font-family="system-ui, sans-serif" font-size="11">',
        f'<rect width="{WIDE}" height="{HIGH}" rx="6" fill="{_GROUND}"/>',
        _heading(panel),
    ]
    if across is None:
        return "".join(
            [
                *parts,
                f'<text x="{WIDE / 2}" y="{HIGH / 2}" text-anchor="middle" fill="{_DIM}">no point yet</text></svg>',
            ]
        )

    def at_x(value: float) -> float:
        return _LEFT + (value - across[0]) / ((across[1] - across[0]) or 1.0) * (WIDE - _LEFT - _RIGHT)

    def at_y(value: float) -> float:
        # halves: the width of -1e308 to 1e308 is a number
        share = (value / 2 - down[0] / 2) / ((down[1] / 2 - down[0] / 2) or 1.0)
        return HIGH - _BELOW - share * (HIGH - _TOP - _BELOW)

    for value in ticks(*down):
        y = at_y(value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{WIDE - _RIGHT}" stroke="{_GRID}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{_DIM}">{number(value)}</text>')
    for value, said in _places(panel, across):
        parts.append(f'<text x="{at_x(value):.1f}" y="{HIGH - 9}" text-anchor="middle" fill="{_DIM}">{said}</text>')
    for place, one in enumerate(panel.lines):
        colour = COLOURS[place % len(COLOURS)]
        xs, lows, highs = ([float(value) for value in column] for column in (one.x, one.low, one.high))
        dots = one.few and (place > 0 or one.points == 1)
        if not dots:
            parts.append(_path(one, [at_x(x) for x in xs], [at_y(y) for y in lows], [at_y(y) for y in highs], colour))
        else:
            points = [(at_x(x), at_y(y)) for x, y in zip(xs, highs, strict=True) if math.isfinite(y)]
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        bottom = HIGH - _BELOW
        marks = "".join(f"M{at_x(x) - 3:.1f} {bottom - 6}l6 6m0-6l-6 6" for x in one.odd.tolist())
        if marks:
            parts.append(f'<path d="{marks}" stroke="{_BAD}" stroke-width="1.5" fill="none"/>')
    return "".join([*parts, "</svg>"])


def told(panel: Panel) -> str:
    """What the picture shows, in words, for those who can't see it."""
    parts = []
    for one in panel.lines:
        finite = one.low[np.isfinite(one.low)], one.high[np.isfinite(one.high)]
        extremes = f", lowest {number(finite[0].min())}, highest {number(finite[1].max())}" if len(finite[0]) else ""
        odd = f", {one.odd_count:,} not finite" if one.odd_count else ""
        parts.append(f"{text(one.name)}: {one.points:,} points, last {number(one.last)}{extremes}{odd}")
    return f"{text(panel.title)} by {text(panel.along)}. " + "; ".join(parts)


def number(value: float) -> str:
    """Four digits that count."""
    if not math.isfinite(value):
        return "NaN" if value != value else "Inf" if value > 0 else "-Inf"
    size = abs(value)
    if value == int(value) and size < 1e6:
        return f"{int(value):,}"
    if 1e-3 <= size < 1e6:
        return (
            f"{value:.{max(0, 3 - math.floor(math.log10(size)))}f}".rstrip("0").rstrip(".")
            if size < 1000
            else f"{value:,.0f}"
        )
    return f"{value:.3g}"


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Round values in a range."""
    width = high / most - low / most
    if not 0 < width < math.inf:
        return [low]
    power = 10.0 ** math.floor(math.log10(width))
    step = next((power * one for one in (1.0, 2.0, 5.0, 10.0) if power * one >= width), width)
    if not step > 0:
        return [low]
    first = math.ceil(low / step)
    found = (float(f"{(first + at) * step:.12g}") for at in range(most + 2))
    return [value for value in found if low <= value <= high]


def _places(panel: Panel, across: tuple[float, float]) -> list[tuple[float, str]]:
    """Where the axis is labelled, and how; times of day are UTC."""
    if panel.along != "time":
        return [(value, number(value)) for value in ticks(*across, 5)]
    form = "%H:%M:%S" if across[1] - across[0] < 86_400 else "%d %b %H:%M"
    even = [across[0] + (across[1] - across[0]) * part for part in (0.08, 0.36, 0.64, 0.92)]
    return [(value, time.strftime(form, time.gmtime(value))) for value in even if 0 <= value < 2**40]


def _heading(panel: Panel) -> str:
    """The series' names with their last values, as many as there is room for."""
    parts, x = [], 12.0
    room = max(12, int((WIDE - 24) / 7.2 / max(1, min(4, len(panel.lines)))) - 12)  # characters of a name
    for place, one in enumerate(panel.lines):
        name = text(one.name, room)
        said = number(one.last)
        odd = f" · {one.odd_count:,} not finite" if one.odd_count else ""
        if x > WIDE - 120:
            parts.append(f'<text x="{x:.0f}" y="22" fill="{_DIM}">…</text>')
            break
        colour = COLOURS[place % len(COLOURS)]
        parts.append(
            f'<circle cx="{x + 4:.0f}" cy="18" r="4" fill="{colour}"/>'
            f'<text x="{x + 13:.0f}" y="22" fill="{_INK}" font-weight="600">{html.escape(name)}'
            f'<tspan font-weight="400" fill="{_DIM}"> {said}</tspan><tspan fill="{_BAD}">{odd}</tspan></text>'
        )
        x += 26 + 7.2 * (len(name) + len(said) + len(odd) + 1)
    return "".join(parts)


def _path(one: Line, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], colour: str) -> str:
    """One stroke down and up through each bucket's extremes; broken where nothing was finite."""
    drawn, pen = [], False
    for x, low, high in zip(xs, lows, highs, strict=True):
        if not math.isfinite(low):
            pen = False
            continue
        drawn.append(f"{'L' if pen else 'M'}{x:.1f} {high:.1f}")
        if low != high:
            drawn.append(f"L{x:.1f} {low:.1f}")
        pen = True
    return f'<path d="{"".join(drawn)}" stroke="{colour}" stroke-width="1.4" fill="none" stroke-linejoin="round"/>'


def _ranges(lines: Sequence[Line]) -> tuple[tuple[float, float] | None, tuple[float, float]]:
    """The range of x (None without a point) and of the values, some room around them."""
    xs = np.concatenate([one.x for one in lines]) if lines else np.empty(0)
    if not len(xs):
        return None, (0.0, 1.0)
    lows = np.concatenate([one.low for one in lines])
    highs = np.concatenate([one.high for one in lines])
    finite = np.isfinite(lows)
    if not finite.any():
        return (float(xs.min()), float(xs.max())), (0.0, 1.0)
    low, high = float(lows[finite].min()), float(highs[finite].max())
    room = (high / 2 - low / 2) * 0.08
    if low == high:
        room = abs(low) * 0.1 or 1.0
    most = sys.float_info.max
    return (float(xs.min()), float(xs.max())), (max(low - room, -most), min(high + room, most))
