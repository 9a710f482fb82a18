"""A chart in characters: each column shows its exact minimum and maximum, and where a value was not finite.

In:   columns of a range of steps; a size in characters.
Out:  rows of spans.

Braille gives two columns and four rows of dots a character; where the terminal has no braille, one mark a character.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.core.text import BARS, narrow, number
from barograph.views.top.fold import FoldColumns
from barograph.views.top.screen import Row, Span

# the dots of a braille character, by column and by row from the top
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_PLAIN_BARS = "_.-=+*%#"
LABEL = 9  # characters of the labels beside a chart


class Scale(NamedTuple):
    """What the lowest and the highest row of a chart stand for. left_out: points at or below zero on a log scale."""

    low: float
    high: float
    log: bool = False
    left_out: bool = False

    def share(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Where values are between bottom (0) and top (1); NaN for what has no place."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.log:
                value = np.where(value > 0, np.log10(np.where(value > 0, value, 1.0)), np.nan)
                low, high = math.log10(self.low), math.log10(self.high)
            else:
                low, high = self.low, self.high
            # halves: the width of -1e308 to 1e308 is a number
            return np.asarray((value / 2 - low / 2) / (high / 2 - low / 2))

    def at(self, share: float) -> float:
        """The value at a share of the height."""
        if share in (0.0, 1.0):
            return self.high if share else self.low
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return float(10 ** (low + (high - low) * share))
        return self.low * (1 - share) + self.high * share


def scale_of(columns: Sequence[FoldColumns], log: bool = False) -> Scale:
    """From the lowest to the highest value of all, widened to round figures so that a live chart rarely moves."""
    lows = np.concatenate([column.low for column in columns]) if columns else np.empty(0)
    highs = np.concatenate([column.high for column in columns]) if columns else np.empty(0)
    left_out = False
    if log:
        left_out = bool((lows <= 0).any())
        positive = [side[side > 0] for side in (lows, highs)]
        if not len(positive[1]):
            log = False
        else:
            least = float(positive[0].min()) if len(positive[0]) else float(positive[1].min())
            low, high = _round_log(least, False), _round_log(float(positive[1].max()), True)
            if high > low:
                return Scale(low, high, True, left_out)
            return Scale(low / 2 or low, high * 2 if high < 1e307 else high, True, left_out)
    finite = np.isfinite(lows)
    if not finite.any():
        return Scale(0.0, 1.0, False, left_out)
    low, high = float(lows[finite].min()), float(highs[finite].max())
    if low == high:
        room = abs(low) / 10 or 1.0
        return Scale(low - room, high + room, False, left_out)
    step = _round_step(high / 8 - low / 8)
    if not math.isfinite(step) or step <= 0:
        return Scale(low, high, False, left_out)
    bottom, top = math.floor(low / step) * step, math.ceil(high / step) * step
    fine = math.isfinite(bottom) and math.isfinite(top) and top > bottom
    return Scale(bottom, top, False, left_out) if fine else Scale(low, high, False, left_out)


def _round_step(width: float) -> float:
    """1, 2 or 5 times a power of ten, at least so wide."""
    if not 0 < width < math.inf:
        return 0.0
    power = 10.0 ** math.floor(math.log10(width))
    return next(power * item for item in (1.0, 2.0, 5.0, 10.0) if power * item >= width * 0.999999)


def _round_log(value: float, up: bool) -> float:
    """1, 2 or 5 times a power of ten, next to a value above zero."""
    power = 10.0 ** math.floor(math.log10(value))
    if not power > 0 or not math.isfinite(power * 10):
        return value
    steps = [power * item for item in (1.0, 2.0, 5.0, 10.0)]
    if up:
        return next((step for step in steps if step >= value * 0.999999), value)
    return next((step for step in reversed(steps) if step <= value * 1.000001), value)


def span_of(first: int, last: int, window: int, planned: int | None = None, live: bool = True) -> tuple[float, float]:
    """The steps that a chart shows: the last 1/2^window of the run; its end is rounded up while it is live.

    Rounded, so that a chart of a live run stands still while points are added, and moves now and then.
    planned: the steps the run will have; a chart never shows more.
    """
    whole = max(1, last - first + 1)
    shown = max(8.0, whole / 2**window)
    unit = max(1.0, 2.0 ** math.floor(math.log2(shown)) / 16)
    end = math.ceil((last + 1) / unit) * unit if live else last + 1.0
    if planned is not None and last < planned:
        end = min(end, planned + 1.0)
    if not window:
        return float(first), max(end, first + (8.0 if live else 1.0))
    return max(float(first), end - math.ceil(shown / unit) * unit), end


def curve(columns: FoldColumns, scale: Scale, width: int, height: int, braille: bool) -> list[str]:
    """The rows of a chart, from the top; columns has 2 · width columns (braille) or width."""
    across, down = (2, 4) if braille else (1, 1)
    dots = height * down
    low, high = _rows(scale.share(columns.low), dots), _rows(scale.share(columns.high), dots)
    if scale.log:  # a column that reaches below zero still shows what is above it
        low = np.where(np.isnan(low) & ~np.isnan(high), 0.0, low)
    field = np.zeros((height, width), np.int64)

    def dot(at: int, begin: int, end: int) -> None:
        for row in range(begin, end + 1):
            level = dots - 1 - row
            field[level // down, at // across] |= _DOTS[at % 2][level % 4] if braille else 1

    before: tuple[int, int, int] | None = None  # the last column with a value, its lowest and highest dot
    for at in range(width * across):
        if not (low[at] <= high[at]):
            if columns.odd[at]:
                before = None  # nothing is drawn through a NaN
            continue
        bottom, top = int(low[at]), int(high[at])
        dot(at, bottom, top)
        if before is not None:  # a line to the one before, over columns without a point
            place, least, most = before
            start = (min(most, max(least, bottom)) + max(least, min(most, top))) // 2
            goal = (min(top, max(bottom, least)) + max(bottom, min(top, most))) // 2
            last = start
            for here in range(place + 1, at + 1):
                level = start + round((goal - start) * (here - place) / (at - place))
                near = last + (level > last) - (level < last)
                dot(here, min(near, level), max(near, level))
                last = level
        before = at, bottom, top
    if braille:
        return ["".join(chr(0x2800 + int(item)) if item else " " for item in line) for line in field]
    return ["".join("*" if item else " " for item in line) for line in field]


def _rows(share: NDArray[np.float64], dots: int) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.clip(np.rint(share * (dots - 1)), 0, dots - 1))


def points(values: FoldColumns, scale: Scale, width: int, height: int) -> dict[tuple[int, int], bool]:
    """(row, column) of marks for few points, such as evaluations; `values` has `width` columns."""
    rows = _rows(scale.share(values.high), height)
    return {(height - 1 - int(rows[at]), at): True for at in range(width) if not math.isnan(rows[at])}


def chart(
    main: FoldColumns, evaluations: FoldColumns | None, scale: Scale, width: int, height: int, braille: bool
) -> list[Row]:
    """A curve with its labels, `height` rows of `width` characters, and points over it."""
    inner = width - LABEL - 1
    drawn = curve(main, scale, inner, height, braille)
    marks = points(evaluations, scale, inner, height) if evaluations is not None else {}
    rows: list[Row] = []
    labelled = {0: 1.0, height - 1: 0.0} | ({height // 2: 1 - (height // 2) / (height - 1)} if height >= 5 else {})
    for at, line in enumerate(drawn):
        label = tick(scale.at(labelled[at])) if at in labelled else ""
        row: Row = [Span(f"{label:>{LABEL}}", "dim"), Span("┤" if braille else "|", "dim")]
        begin = 0
        for column in sorted(column for line_at, column in marks if line_at == at):
            row += [Span(line[begin:column], "cyan"), Span("●" if braille else "o", "bold yellow")]
            begin = column + 1
        rows.append([*row, Span(line[begin:], "cyan")])
    return rows


def tick(value: float) -> str:
    """A label of an axis: three digits say where a row is."""
    shown = number(value, 3)
    return shown if len(shown) <= LABEL else narrow(value)


def mark_row(odd: NDArray[np.int64], flags: dict[int, str], width: int, braille: bool) -> Row:
    """Under a chart: where values were not finite, and where findings begin; `odd` has a count a character.

    flags: column → severity.
    """
    row: Row = [Span(" " * LABEL, "dim"), Span("┼" if braille else "+", "dim")]
    style = {"critical": "bold red", "warning": "bold yellow", "info": "dim"}
    for at in range(width - LABEL - 1):
        if odd[at]:
            row.append(Span("×" if braille else "x", "bold red"))
        elif at in flags:
            row.append(Span("▲" if braille else "^", style.get(flags[at], "")))
        else:
            row.append(Span("─" if braille else "-", "dim"))
    return row


def sparkline(columns: FoldColumns, braille: bool) -> Row:
    """One row: each character the value of its column farthest from the middle; × for what is not finite."""
    bars = BARS if braille else _PLAIN_BARS
    low, high = columns.low, columns.high
    if not np.isfinite(low).any():
        return [Span("".join(("×" if braille else "x") if item else " " for item in columns.odd), "bold red")]
    least, most = float(np.nanmin(low)), float(np.nanmax(high))
    scale, middle = Scale(least, most), least / 2 + most / 2
    far = np.where(np.abs(high - middle) >= np.abs(low - middle), high, low)
    with np.errstate(invalid="ignore"):
        share = scale.share(far) if most > least else np.where(np.isnan(far), np.nan, 0.4)
    row: Row = []
    text, style = "", "green"
    for at in range(len(low)):
        odd = bool(columns.odd[at])
        mark = ("×" if braille else "x") if odd else " " if math.isnan(share[at]) else bars[min(7, int(share[at] * 8))]
        wanted = "bold red" if odd else "green"
        if wanted != style and text:
            row.append(Span(text, style))
            text = ""
        text, style = text + mark, wanted
    return [*row, Span(text, style)]


def bar(share: float, width: int, braille: bool) -> str:
    """A share of 1 as a bar; anything above 0 is seen."""
    if not share > 0:
        return ""
    if not braille:
        return "#" * max(1, round(min(1.0, share) * width))
    eighths = max(1, round(min(1.0, share) * width * 8))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
