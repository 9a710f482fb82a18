"""The line chart, as SVG.

In:   curves: columns of x and of values, with how they look; what the axes count.
Out:  an `<svg>` element. On a page its colours are the page's classes (`style.STYLE`); a picture that stands alone has
      them written out, in the light theme, on a ground of its own.

Each curve keeps its extremes, is broken where a value is not finite, and has a mark there: × for NaN below, an arrow
for an infinity above or below.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from barograph.core.columns import thin_indices
from barograph.core.text import compact, duration, html, number
from barograph.views.draw.palette import COLOURS, LIGHT, LINES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

POINTS = 700  # of a curve: two extremes for each two pixels
_MOST_MARKS = 80
_TICKS = 5


class ChartBox(NamedTuple):
    """The sizes of a picture and of the margins about its axes, in pixels."""

    wide: int = 760
    high: int = 220
    left: int = 58
    right: int = 14
    top: int = 20
    below: int = 24


WIDE, SMALL = ChartBox(), ChartBox(wide=400)


@dataclass(frozen=True, eq=False)
class ChartCurve:
    """label: for who can't see it. x, y [n]. top [n]: the greatest value where y is a bucket's least.

    odd: places and values of what is not finite, where x doesn't have them. tint: a colour's number. look: "line",
    "faint" (values behind a smoothed line), "dots" (few and far between). low, high [n]: a band about it.
    """

    label: str
    x: NDArray[Any]
    y: Floats
    tint: int = 0
    look: str = "line"
    top: Floats | None = None
    odd: tuple[Floats, Floats] | None = None
    band: tuple[NDArray[Any], Floats, Floats] | None = None


@dataclass(frozen=True)
class ChartMark:
    """A place on a chart: a line with a number, that leads to `address`. kind: of its colour."""

    x: float
    kind: str
    number: int
    title: str
    address: str


@dataclass(frozen=True, eq=False)
class ChartAxes:
    """x: what the axis counts ("step", "seconds", "time": seconds since 1970, …). unit: of the values. span: of x.

    log: the values' axis is logarithmic where all are positive. zero: has a line at zero. trimmed: this part of the
    values, the highest, may be out of sight: the first steps would flatten the rest.
    """

    x: str = "step"
    unit: str = ""
    span: tuple[float, float] | None = None
    log: bool = False
    zero: bool = False
    trimmed: float = 0.0
    marks: Sequence[ChartMark] = field(default=())


def picture(curves: Sequence[ChartCurve], axes: ChartAxes, label: str, slug: str, box: ChartBox = WIDE) -> str:
    """The chart for a page; "" where it has no point. label: what it shows, in words. slug: unique on the page."""
    drawn = [curve for curve in curves if len(curve.x)]
    if not drawn:
        return ""
    clip = f"clip-{slug}"
    inner = f'width="{box.wide - box.left - box.right}" height="{box.high - box.top - box.below}"'
    frame = _Frame(drawn, axes, box)
    return (
        f'<svg viewBox="0 0 {box.wide} {box.high}" role="img" aria-label="{html(label)}">'
        f"{_axes(frame, axes, _on_page)}"
        f'<clipPath id="{clip}"><rect x="{box.left}" y="{box.top}" {inner}/></clipPath><g clip-path="url(#{clip})">'
        f"{_curves(frame, drawn, axes, _on_page)}</g>"
        f"{''.join(_odd(frame, curve, _on_page) for curve in drawn)}"
        f"{''.join(_mark(frame, mark) for mark in axes.marks)}</svg>"
    )


def alone(curves: Sequence[ChartCurve], axes: ChartAxes, head: str, box: ChartBox) -> str:
    """The chart as a picture that needs no page. head: SVG above the axes."""
    drawn = [curve for curve in curves if len(curve.x)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{box.wide}" height="{box.high}" '
        f'viewBox="0 0 {box.wide} {box.high}" font-family="system-ui, sans-serif" font-size="11">'
        f'<rect width="{box.wide}" height="{box.high}" rx="6" fill="{LIGHT["paper"]}"/>{head}'
    ]
    if drawn:
        frame = _Frame(drawn, axes, box)
        parts += [_axes(frame, axes, _alone), _curves(frame, drawn, axes, _alone)]
        parts += [_odd(frame, curve, _alone) for curve in drawn]
    else:
        parts.append(f'<text x="{box.wide / 2}" y="{box.high / 2}" {_alone("words")} text-anchor="middle">'
                     "no point yet</text>")  # fmt: skip
    return "".join(parts) + "</svg>"


def _on_page(kind: str, tint: int | None = None) -> str:
    """The attributes of a shape: its classes."""
    classes = kind if tint is None else f"{kind} c{tint % COLOURS}"
    return f'class="{classes}"' if kind != "words" else ""


def _alone(kind: str, tint: int | None = None) -> str:
    """The attributes of a shape: its colours."""
    colour = LIGHT["ink-3"] if tint is None else LINES[tint % COLOURS]
    return {
        "grid": f'stroke="{LIGHT["rule"]}" stroke-width=".7"',
        "zero": f'stroke="{LIGHT["ink-3"]}"',
        "words": f'fill="{LIGHT["ink-3"]}"',
        "odd": f'stroke="{LIGHT["bad"]}" stroke-width="1.4" fill="none"',
        "dot": f'fill="{colour}"',
        "band": f'fill="{colour}" opacity=".18"',
        "line": f'fill="none" stroke="{colour}" stroke-width="1.5" stroke-linejoin="round"',
        "line faint": f'fill="none" stroke="{colour}" opacity=".35"',
        "line dotted": f'fill="none" stroke="{colour}" stroke-width=".8" opacity=".8"',
    }[kind]


# -- axes ---------------------------------------------------------------------------------------------


def span_of(curves: Sequence[Any]) -> tuple[float, float]:
    """The least and the greatest x of curves in the order of x; 0 and 1 of none."""
    ends = [float(end) for curve in curves if len(curve.x) for end in (curve.x[0], curve.x[-1])]
    return (min(ends), max(ends)) if ends else (0.0, 1.0)


class _Frame:
    """Places of values on the picture."""

    def __init__(self, curves: Sequence[ChartCurve], axes: ChartAxes, box: ChartBox):
        self.box = box
        self.low_x, self.high_x = axes.span or span_of(curves)
        if not self.high_x > self.low_x:
            self.low_x, self.high_x = self.low_x - 0.5, self.high_x + 0.5
        low, high = _range(curves, axes)
        self.log = axes.log and low > 0
        if self.log:
            low, high = math.log10(low), math.log10(high)
        room = (high / 2 - low / 2) * 0.1 or abs(high) * 0.02 or 1.0  # of halves: the whole may be no float
        most = sys.float_info.max
        self.low, self.high = max(low - room, -most), min(high + room, most)

    def x(self, values: Any) -> Floats:
        part = (np.asarray(values, np.float64) - self.low_x) / (self.high_x - self.low_x)
        return np.asarray(self.box.left + part * (self.box.wide - self.box.left - self.box.right))

    def y(self, values: Any) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = np.log10(values) if self.log else np.asarray(values, np.float64)
            share = (scaled / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return np.asarray(self.box.high - self.box.below - share * (self.box.high - self.box.top - self.box.below))

    def near(self, values: Any) -> Floats:
        """`y`, not far out of the picture; NaN for what is not finite."""
        places = np.clip(self.y(values), -self.box.high, 2 * self.box.high)
        return np.where(np.isfinite(values), places, np.nan)

    def has(self, x: float) -> bool:
        return self.box.left <= x <= self.box.wide - self.box.right


def _range(curves: Sequence[ChartCurve], axes: ChartAxes) -> tuple[float, float]:
    """Of the finite values of all curves; bands may widen it, but not hide the curves."""
    columns = [column for curve in curves for column in (curve.y, curve.top) if column is not None]
    values = _finite(columns)
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    if axes.trimmed and len(values) >= 20:
        high = float(np.quantile(values, 1 - axes.trimmed))
    edges = _finite([edge for curve in curves if curve.band is not None for edge in curve.band[1:]])
    if len(edges):
        room = 2 * max(high - low, abs(low), abs(high))
        low, high = max(min(low, float(edges.min())), low - room), min(max(high, float(edges.max())), high + room)
    if axes.zero:
        low, high = min(low, 0.0), max(high, 0.0)
    return low, high


def _finite(columns: Sequence[Floats]) -> Floats:
    joined = np.concatenate(columns) if columns else np.empty(0)
    return joined[np.isfinite(joined)]


def _axes(frame: _Frame, axes: ChartAxes, ink: Any) -> str:
    box, parts = frame.box, []
    for value in log_ticks(frame.low, frame.high) if frame.log else nice_ticks(frame.low, frame.high):
        y = float(frame.y(value))
        parts.append(
            f'<path {ink("grid")} d="M{box.left} {y:.1f}H{box.wide - box.right}"/>'
            f'<text x="{box.left - 6}" y="{y + 3.5:.1f}" {ink("words")} text-anchor="end">'
            f"{html(tick_words(value, axes.unit))}</text>"
        )
    for value, words in _along(frame, axes.x):
        x = float(frame.x(value))
        anchor = "end" if x > box.wide - 40 else "start" if x < box.left + 8 and box.left < 20 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{box.high - 8}" {ink("words")} text-anchor="{anchor}">{html(words)}</text>')
    return "".join(parts)


def _along(frame: _Frame, unit: str) -> list[tuple[float, str]]:
    """Where the axis is labelled, and how; times of day are UTC."""
    low, high = frame.low_x, frame.high_x
    if unit != "time":
        ticks = nice_ticks(low, high, max(3, frame.box.wide // 120))
        return [(value, tick_words(value, unit)) for value in ticks if unit != "step" or value == int(value)]
    form = "%H:%M:%S" if high - low < 86_400 else "%d %b %H:%M"
    even = [low + (high - low) * part for part in (0.08, 0.36, 0.64, 0.92)]
    return [(value, time.strftime(form, time.gmtime(value))) for value in even if 0 <= value < 2**40]


def tick_words(value: float, unit: str) -> str:
    """A tick's label: steps in full, large numbers with a letter."""
    if unit == "seconds":
        return duration(value)
    return compact(value) if abs(value) >= 1e5 else number(float(f"{value:.6g}"))


def nice_ticks(low: float, high: float, most: int = _TICKS) -> list[float]:
    """Round values between two others, about `most` of them."""
    rough = high / most - low / most
    if not 0 < rough < math.inf:
        return [low] if math.isfinite(low) else []
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999), rough)
    if not (step > 0 and abs(low) / step < 1e15):
        return [low]
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{at * step:.12g}") for at in range(first, last + 1)][: 4 * most]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two powers; with their halves and fifths where those are few."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    every = max(1, len(powers) // 6)
    for factors in ((1.0,), (1.0, 2.0, 5.0)):
        result = [factor * 10.0**power for power in powers if power % every == 0 for factor in factors]
        result = [value for value in result if value > 0 and low <= math.log10(value) <= high]
        if len(result) >= 3:
            break
    return result


# -- curves -------------------------------------------------------------------------------------------


def _curves(frame: _Frame, curves: Sequence[ChartCurve], axes: ChartAxes, ink: Any) -> str:
    parts = []
    if axes.zero and not frame.log and frame.low < 0 < frame.high:
        y = float(frame.y(0.0))
        parts.append(f'<path {ink("zero")} d="M{frame.box.left} {y:.1f}H{frame.box.wide - frame.box.right}"/>')
    parts += [_band(frame, curve, ink) for curve in curves if curve.band is not None]
    parts += [_curve(frame, curve, ink) for curve in sorted(curves, key=lambda curve: curve.look != "faint")]
    return "".join(parts)


def _curve(frame: _Frame, curve: ChartCurve, ink: Any) -> str:
    keep = thin_indices(curve.y, POINTS, curve.x) if curve.top is None and len(curve.y) > POINTS else slice(None)
    x, y = frame.x(curve.x[keep]), frame.near(curve.y[keep])
    top = y if curve.top is None else frame.near(curve.top)
    good = np.isfinite(y)
    commands, joined = [], False
    for across, down, up, fine in zip(x.tolist(), y.tolist(), top.tolist(), good.tolist(), strict=True):
        if fine:
            commands.append(f"{'L' if joined else 'M'}{across:.1f} {up:.1f}")
            if up != down:  # one stroke through both extremes of a bucket
                commands.append(f"L{across:.1f} {down:.1f}")
        joined = fine
    look = {"faint": "line faint", "dots": "line dotted"}.get(curve.look, "line")
    drawn = f'<path {ink(look, curve.tint)} d="{"".join(commands)}"/>'
    if len(y) > 1 and curve.look != "dots":  # between two that are not finite
        good = good & ~np.append(good[1:], False) & ~np.append(False, good[:-1])
    for across, down in zip(x[good].tolist(), y[good].tolist(), strict=True):
        drawn += f'<circle {ink("dot", curve.tint)} cx="{across:.1f}" cy="{down:.1f}" r="2.6"/>'
    return drawn


def _band(frame: _Frame, curve: ChartCurve, ink: Any) -> str:
    assert curve.band is not None
    along, low, high = curve.band
    good = np.isfinite(low) & np.isfinite(high)
    if good.sum() < 2:
        return ""
    x, under, over = (
        places.tolist() for places in (frame.x(along[good]), frame.near(low[good]), frame.near(high[good]))
    )
    edge = [*zip(x, over, strict=True), *zip(x[::-1], under[::-1], strict=True)]
    points = " ".join(f"{across:.1f},{down:.1f}" for across, down in edge)
    return f'<polygon {ink("band", curve.tint)} points="{points}"/>'


def _odd(frame: _Frame, curve: ChartCurve, ink: Any) -> str:
    """A mark for each value that is not finite, as on the page: × for NaN, arrows for infinities.

    Those of one kind that fall on one pixel are one.
    """
    bad = ~np.isfinite(curve.y)
    x, values = (curve.x[bad], curve.y[bad]) if curve.odd is None else curve.odd
    top, bottom = frame.box.top + 2, frame.box.high - frame.box.below - 8
    drawn = []
    for here, y, shape in (
        (np.isnan(values), bottom, "m-3 0l6 6m0-6l-6 6"),
        (values == np.inf, top, "v7m-3-4l3-3l3 3"),
        (values == -np.inf, bottom, "v7m-3-3l3 3l3-3"),
    ):
        pixels = np.unique(np.round(frame.x(x[here]) / 3) * 3)
        if len(pixels) > _MOST_MARKS:
            pixels = pixels[np.unique(np.linspace(0, len(pixels) - 1, _MOST_MARKS).round().astype(int))]
        drawn += [f'<path {ink("odd")} d="M{at:.1f} {y}{shape}"/>' for at in pixels.tolist() if frame.has(at)]
    return "".join(drawn)


def _mark(frame: _Frame, mark: ChartMark) -> str:
    x, box = float(frame.x(mark.x)), frame.box
    if not frame.has(x):
        return ""
    return (
        f'<a href="{html(mark.address)}" class="flag {html(mark.kind)}"><title>{html(mark.title)}</title>'
        f'<path d="M{x:.1f} {box.top}V{box.high - box.below}"/><circle cx="{x:.1f}" cy="{box.top - 8}" r="8"/>'
        f'<text x="{x:.1f}" y="{box.top - 4.5}" text-anchor="middle">{mark.number}</text></a>'
    )


def keys(curves: Sequence[ChartCurve]) -> str:
    """The legend of a chart on a page."""
    items = "".join(
        f'<li><span class="key c{curve.tint % COLOURS}{" faint" if curve.look == "faint" else ""}"></span>'
        f"{html(curve.label)}</li>"
        for curve in curves
    )
    return f'<ul class="keys">{items}</ul>'


def described(curves: Sequence[ChartCurve]) -> str:
    """What a picture shows, in words, for who can't see it."""
    words = []
    for curve in curves:
        if curve.look == "faint" or not len(curve.x):
            continue
        least = _finite([curve.y])
        if not len(least):
            words.append(f"{curve.label} never finite")
            continue
        greatest = least if curve.top is None else _finite([curve.top])
        words.append(
            f"{curve.label} from {number(least[0])} to {number(least[-1])}, "
            f"minimum {number(least.min())}, maximum {number(greatest.max())}"
        )
    return "; ".join(words)
