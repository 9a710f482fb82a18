"""Charts as SVG: what a page shows before its script runs, without one, and on paper.

In:   a chart, the span of its x axis.
Out:  an `<svg>` element, its colours by the page's classes.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.columns import thin_indices
from barograph.comparing.words import duration, large
from barograph.reporting.content import Chart, Line
from barograph.reporting.figures import plain_number
from barograph.sinks.parts import escape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WIDE, HIGH, LEFT, RIGHT, TOP, BELOW = 760, 220, 58, 14, 20, 24
SMALL = 400  # the width of a small one
POINTS = 700  # of a line: two extremes for each two pixels
COLOURS = 8
_MOST_MARKS = 80
_TICKS = 5


def picture(chart: Chart, span: tuple[float, float] | None = None) -> str:
    """The chart as SVG; "" where it has no point. span: of x; the chart's own where it is not given."""
    drawn = [line for line in chart.lines if len(line.x)]
    if not drawn:
        return ""
    low_x, high_x = span or span_of(chart)
    if not high_x > low_x:
        low_x, high_x = low_x - 0.5, high_x + 0.5
    low, high = _range(chart)
    log = chart.log and low > 0
    if log:
        low, high = math.log10(low), math.log10(high)
    margin = (high - low) * 0.05 or abs(high) * 0.02 or 1.0
    low, high = low - margin, high + margin
    wide = SMALL if chart.small else WIDE
    frame = _Frame(low_x, high_x, low, high, log, wide)
    label = html.escape(f"{escape(chart.title, 200)}: {_described(chart)}", quote=True)
    parts = [f'<svg viewBox="0 0 {wide} {HIGH}" role="img" aria-label="{label}">', *_axes(frame, chart)]
    clip = f"clip-{chart.slug}"
    parts.append(f'<clipPath id="{clip}"><rect x="{LEFT}" y="{TOP}" width="{wide - LEFT - RIGHT}" '
                 f'height="{HIGH - TOP - BELOW}"/></clipPath><g clip-path="url(#{clip})">')  # fmt: skip
    if chart.zero and not log and low < 0 < high:
        y = frame.y(np.array([0.0]))[0]
        parts.append(f'<line class="zero" x1="{LEFT}" x2="{wide - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for at, (lower, upper) in enumerate(chart.bands):
        parts.append(_band(frame, lower, upper, chart.tint + at))
    tints = tints_of(chart)
    for line, tint in sorted(zip(drawn, tints, strict=False), key=lambda pair: pair[0].look != "faint"):
        parts.append(_curve(frame, line, tint))
    parts.append("</g>")
    for line in drawn:
        parts.append(_odd(frame, line))
    for flag in chart.flags:
        x = frame.x(np.array([flag.step], np.float64))[0]
        if LEFT <= x <= wide - RIGHT:
            parts.append(
                f'<a href="#finding-{flag.number}" class="flag {flag.severity}"><title>'
                f"{html.escape(flag.message)}</title>"
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HIGH - BELOW}"/>'
                f'<circle cx="{x:.1f}" cy="{TOP - 8}" r="8"/><text x="{x:.1f}" y="{TOP - 4.5}" '
                f'text-anchor="middle">{flag.number}</text></a>'
            )
    return "".join(parts) + "</svg>"


def tints_of(chart: Chart) -> list[int]:
    """The colour of each line that has a point: a faint one has that of the line that follows it."""
    tints, tint = [], chart.tint
    for line in chart.lines:
        if len(line.x):
            tints.append(tint % COLOURS)
        tint += line.look != "faint"
    return tints


def span_of(chart: Chart) -> tuple[float, float]:
    """The least and the greatest x of a chart; 0 and 1 of an empty one."""
    ends = [float(one) for line in chart.lines if len(line.x) for one in (line.x[0], line.x[-1])]
    return (min(ends), max(ends)) if ends else (0.0, 1.0)


def tick_words(value: float, unit: str) -> str:
    """A tick's label: steps in full, large numbers with a letter."""
    if unit == "seconds":
        return duration(value)
    if abs(value) >= 1e5:
        return large(value)
    return plain_number(float(f"{value:.6g}"))


class _Frame:
    """Places of values on the drawing."""

    def __init__(self, low_x: float, high_x: float, low: float, high: float, log: bool, wide: int):
        self.wide = wide
        self.low_x, self.high_x, self.low, self.high, self.log = low_x, high_x, low, high, log

    def x(self, values: NDArray[Any]) -> Floats:
        part = (np.asarray(values, np.float64) - self.low_x) / (self.high_x - self.low_x)
        return np.asarray(LEFT + part * (self.wide - LEFT - RIGHT))

    def y(self, values: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = np.log10(values) if self.log else values
            return np.asarray(HIGH - BELOW - (scaled - self.low) / (self.high - self.low) * (HIGH - TOP - BELOW))


def _range(chart: Chart) -> tuple[float, float]:
    """Of the finite values of all lines; bands may widen it, but not hide the lines."""
    values = [line.y[np.isfinite(line.y)] for line in chart.lines]
    joined = np.concatenate(values) if values else np.empty(0)
    if not len(joined):
        return 0.0, 1.0
    low, high = float(joined.min()), float(joined.max())
    edges = [edge.y[np.isfinite(edge.y)] for band in chart.bands for edge in band]
    if edges and len(whole := np.concatenate(edges)):
        room = 2 * max(high - low, abs(low), abs(high))
        low, high = max(min(low, float(whole.min())), low - room), min(max(high, float(whole.max())), high + room)
    if chart.zero:
        low, high = min(low, 0.0), max(high, 0.0)
    return low, high


def _axes(frame: _Frame, chart: Chart) -> list[str]:
    parts = []
    for value in _log_ticks(frame.low, frame.high) if frame.log else nice_ticks(frame.low, frame.high):
        y = frame.y(np.array([value]))[0]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{frame.wide - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                     f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">'
                     f"{html.escape(tick_words(value, chart.unit))}</text>")  # fmt: skip
    for value in nice_ticks(frame.low_x, frame.high_x, frame.wide // 120):
        if chart.x == "step" and value != int(value):
            continue
        x = frame.x(np.array([value]))[0]
        anchor = "end" if x > frame.wide - 40 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{HIGH - 8}" text-anchor="{anchor}">'
                     f"{html.escape(tick_words(value, chart.x))}</text>")  # fmt: skip
    return parts


def nice_ticks(low: float, high: float, number: int = _TICKS) -> list[float]:
    """Round values between two others, about so many."""
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return [low] if math.isfinite(low) else []
    rough = (high - low) / number
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / width - 1e-9)
    last = math.floor(high / width + 1e-9)
    return [at * width for at in range(first, last + 1)][: 4 * number]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two powers; with their halves and fifths where those are few."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    every = max(1, len(powers) // 6)
    factors = (1.0, 2.0, 5.0) if len(powers) <= 3 else (1.0,)
    found = [factor * 10.0**power for power in powers if power % every == 0 for factor in factors]
    return [one for one in found if low <= math.log10(one) <= high]


def _curve(frame: _Frame, line: Line, tint: int) -> str:
    keep = thin_indices(line.y, POINTS, line.x) if len(line.y) > POINTS else slice(None)
    x, y = frame.x(line.x[keep]), frame.y(line.y[keep])
    good = np.isfinite(y)
    look = {"faint": " faint", "dots": " dotted"}.get(line.look, "")
    commands, joined = [], False
    for across, down, fine in zip(x.tolist(), y.tolist(), good.tolist(), strict=True):
        if fine:
            commands.append(f"{'L' if joined else 'M'}{across:.1f} {down:.1f}")
        joined = fine
    drawn = f'<path class="line c{tint}{look}" d="{"".join(commands)}"/>'
    alone = len(y) == 1 or line.look == "dots"
    lonely = good & ~np.append(good[1:], False) & ~np.append(False, good[:-1])  # between two that are not finite
    for across, down in zip(x[good if alone else lonely].tolist(), y[good if alone else lonely].tolist(), strict=True):
        drawn += f'<circle class="c{tint}" cx="{across:.1f}" cy="{down:.1f}" r="2.6"/>'
    return drawn


def _band(frame: _Frame, lower: Line, upper: Line, tint: int) -> str:
    good = np.isfinite(lower.y) & np.isfinite(upper.y)
    if good.sum() < 2:
        return ""
    x = frame.x(lower.x[good]).tolist()
    low = np.clip(frame.y(lower.y[good]), -HIGH, 2 * HIGH).tolist()
    high = np.clip(frame.y(upper.y[good]), -HIGH, 2 * HIGH).tolist()
    edge = [*zip(x, high, strict=True), *zip(x[::-1], low[::-1], strict=True)]
    points = " ".join(f"{across:.1f},{down:.1f}" for across, down in edge)
    return f'<polygon class="band c{tint % COLOURS}" points="{points}"/>'


def _odd(frame: _Frame, line: Line) -> str:
    """A mark at the top for each value that is not finite; those that fall on one pixel are one."""
    places = frame.x(line.x[~np.isfinite(line.y)])
    pixels = np.unique(np.round(places / 3) * 3) if len(places) else places
    if len(pixels) > _MOST_MARKS:
        pixels = pixels[np.unique(np.linspace(0, len(pixels) - 1, _MOST_MARKS).round().astype(int))]
    return "".join(
        f'<path class="odd" d="M{x - 2.5:.1f} {TOP + 2}l5 5m0 -5l-5 5"/>'
        for x in pixels.tolist()
        if LEFT <= x <= frame.wide - RIGHT
    )


def _described(chart: Chart) -> str:
    words = []
    for line in chart.lines[:4]:
        finite = line.y[np.isfinite(line.y)]
        if line.look == "faint" or not len(line.x):
            continue
        if not len(finite):
            words.append(f"{escape(line.label, 80)} never finite")
            continue
        words.append(
            f"{escape(line.label, 80)} from {plain_number(float(finite[0]))} to {plain_number(float(finite[-1]))}, "
            f"least {plain_number(float(finite.min()))}, greatest {plain_number(float(finite.max()))}"
        )
    return "; ".join(words)
