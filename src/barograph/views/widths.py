"""Pictures of a coordinate check: in plain characters for a terminal, and as a PNG.

In:   a `CoordCheck`.
Out:  text of a given width, or a PNG file: size or change of each activation against width, both logarithmic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from barograph.core.text import number, wrapped
from barograph.views.draw.board import Board, text_width
from barograph.views.draw.palette import LIGHT, LINES, Rgb, rgb

if TYPE_CHECKING:
    from barograph.analysis.widths.mup import Activation, CoordCheck

MOST_LINES = 24  # in a picture; those that stray most are shown
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_COLOURS = tuple(map(rgb, LINES))
_RED, _GREY, _DIM, _INK = (rgb(LIGHT[name]) for name in ("bad", "rule", "ink-3", "ink"))
_PANEL, _PANEL_HEIGHT, _MARGIN = 330, 300, 20


def shown(check: CoordCheck, most: int = MOST_LINES) -> list[Activation]:
    """The activations to draw, in the model's order: all, or the faults and those with the steepest slopes."""

    def rank(activation: Activation) -> tuple[bool, float]:
        slope = activation.change.slope
        return not activation.is_fault, -abs(slope) if math.isfinite(slope) else 0.0

    chosen = sorted(check.activations, key=rank)[:most]
    return [activation for activation in check.activations if activation in chosen]


def check_text(check: CoordCheck, columns: int = 80, rows: int = 16) -> str:
    """Table of verdicts and log-log plot of the changes after the last step, no line longer than `columns`."""
    activations = shown(check, len(_LETTERS))
    percent = round(100 * check.confidence)
    wide = max(columns - 50, 12)
    lines = [
        *wrapped(check.sentence(), columns, hang=""),
        "",
        f"  {'activation':<{wide}} {'slope of change':>15}  {f'{percent}% interval':<16} verdict",
    ]
    for letter, activation in zip(_LETTERS, activations, strict=False):
        change = activation.change
        interval = f"{_signed(change.low)} to {_signed(change.high)}"
        name = _fit(activation.name, wide)
        lines.append(
            f"{letter} {name:<{wide}} {_signed(change.slope):>15}  {interval:<16} {activation.verdict}"[:columns]
        )
    hidden = len(check.activations) - len(activations)
    if hidden:
        lines.append(f"  and {hidden} more")
    lines += ["", f"change after {check.steps} steps ({check.measure} of x_t - x_0) against width, log-log"[:columns]]
    series = [(letter, check.series(each.name)) for letter, each in zip(_LETTERS, activations, strict=False)]
    return "\n".join(lines + _grid(check.widths, series, columns, rows))


def _grid(widths: Sequence[int], series: Sequence[tuple[str, Sequence[float]]], columns: int, rows: int) -> list[str]:
    """Letters on a grid; `*` where several meet; lines between the widths are dotted."""
    bounds = _bounds([value for _, values in series for value in values])
    if bounds is None:
        return ["(nothing moved)"]
    low, high = bounds
    across, rows = max(columns - 11, 8), max(rows, 3)
    cells = [[" "] * across for _ in range(rows)]
    places = _places(widths, 1, across - 2)

    def row(value: float) -> int:
        return round((high - math.log2(value)) / (high - low) * (rows - 1))

    for _, values in series:
        known = [(x, math.log2(y)) for x, y in zip(places, values, strict=True) if _drawable(y)]
        for (x0, y0), (x1, y1) in itertools.pairwise(known):
            for column in range(round(x0) + 2, round(x1), 3):
                cells[row(2 ** (y0 + (y1 - y0) * (column - x0) / (x1 - x0)))][column] = "."
    marks: dict[tuple[int, int], str] = {}
    for letter, values in series:
        for across_at, value in zip(places, values, strict=True):
            if _drawable(value):
                spot = (row(value), round(across_at))
                marks[spot] = letter if spot not in marks else "*"
    for (at_row, at_column), letter in marks.items():
        cells[at_row][at_column] = letter
    labelled = {0, rows // 2, rows - 1}
    lines = []
    for at, line in enumerate(cells):
        level = 2 ** (high - (high - low) * at / (rows - 1))
        label = f"{number(level, 3):>9}" if at in labelled else " " * 9
        lines.append(f"{label} |{''.join(line)}".rstrip())
    foot = [" "] * (across + 11)
    for width, place in zip(widths, places, strict=True):
        text = str(width)
        at = min(11 + round(place) - len(text) // 2, len(foot) - len(text))
        if all(cell == " " for cell in foot[max(at - 1, 0) : at + len(text) + 1]):
            foot[at : at + len(text)] = text
    return [*lines, " " * 10 + "+" + "-" * across, "".join(foot).rstrip()]


def check_png(check: CoordCheck, path: Path) -> Path:
    """Panels: size at the start, change after the first, a middle and the last step; below, a legend."""
    activations = shown(check)
    steps = sorted({1, (1 + check.steps) // 2, check.steps})
    panels = [("size", 0), *(("change", step) for step in steps)]
    across = max(len(panels) * (_PANEL + _MARGIN) + _MARGIN, 720)
    columns = 2 if len(activations) > 6 and across > 1000 else 1
    deep = math.ceil(len(activations) / columns)
    hidden = len(check.activations) - len(activations)
    board = Board(across, 60 + _PANEL_HEIGHT + 66 + 20 * (deep + (hidden > 0)))
    sentence = check.sentence()
    letters = int((across - 2 * _MARGIN) / text_width("x"))
    for at, line in enumerate(wrapped(sentence, letters, hang="")[:2]):
        board.text(_MARGIN, 10 + 18 * at, line, _RED if check.verdict == "fail" else _INK)
    for at, (quantity, step) in enumerate(panels):
        left = _MARGIN + at * (_PANEL + _MARGIN)
        title = "size at the start" if quantity == "size" else f"change after step {step}"
        lines = [(*_style(at, each), check.series(each.name, quantity, step)) for at, each in enumerate(activations)]
        _panel(board, left, 60, title, check.widths, lines)
    first, wide = 60 + _PANEL_HEIGHT + 60, (across - 2 * _MARGIN) // columns
    for at, activation in enumerate(activations):
        colour, thick = _style(at, activation)
        left, top = _MARGIN + at // deep * wide, first + 20 * (at % deep)
        board.line(left, top + 5, left + 24, top + 5, colour, thick)
        change = activation.change
        about = f"{_signed(change.slope)} [{_signed(change.low)}, {_signed(change.high)}] {activation.verdict}"
        board.text(left + 34, top, about, _RED if activation.is_fault else _INK)
        name = _fit(activation.name, int((wide - 54) / text_width("x")) - 34)
        board.text(left + 34 + text_width("x" * 33), top, name)
    if hidden:
        board.text(_MARGIN + 34, first + 20 * deep, f"and {hidden} more")
    path.write_bytes(board.save())
    return path


def _panel(
    board: Board,
    left: float,
    top: float,
    title: str,
    widths: Sequence[int],
    lines: Sequence[tuple[Rgb, float, Sequence[float]]],
) -> None:
    board.text(left + 50, top, f"{title}, log-log")
    inner, upper = left + 50, top + 20
    right, lower = left + _PANEL, top + _PANEL_HEIGHT
    bounds = _bounds([value for _, _, values in lines for value in values])
    if bounds is None:
        board.text(inner + 10, (upper + lower) / 2, "nothing but zeros")
        return
    low, high = bounds
    places = _places(widths, inner + 12, right - 12)

    def down(value: float) -> float:
        return lower - 8 - (math.log2(value) - low) / (high - low) * (lower - upper - 16)

    for value in _ticks(2**low, 2**high):
        board.line(inner, down(value), right, down(value), _GREY)
        label = number(value, 3)
        board.text(inner - 6 - text_width(label, 1.25), down(value) - 4, label, size=1.25)
    for width, place in zip(widths, places, strict=True):
        board.line(place, upper, place, lower, _GREY)
        board.text(place - text_width(str(width), 1.25) / 2, lower + 8, str(width), size=1.25)
    board.text((inner + right) / 2 - text_width("width", 1.25) / 2, lower + 24, "width", size=1.25)
    for colour, thick, values in lines:
        known = [(x, down(y)) for x, y in zip(places, values, strict=True) if _drawable(y)]
        for (x0, y0), (x1, y1) in itertools.pairwise(known):
            board.line(x0, y0, x1, y1, colour, thick)
        for x, y in known:
            board.line(x, y, x, y, colour, thick + 3)
    for x0, y0, x1, y1 in ((inner, upper, inner, lower), (inner, lower, right, lower)):
        board.line(x0, y0, x1, y1, _DIM)


def _style(number: int, activation: Activation) -> tuple[Rgb, float]:
    return _COLOURS[number % len(_COLOURS)], 2.4 if activation.is_fault else 1.4


def _drawable(value: float) -> bool:
    return 0 < value < math.inf


def _bounds(values: Sequence[float]) -> tuple[float, float] | None:
    """Logarithms to base 2 of the least and the greatest value, at least two octaves apart."""
    logs = [math.log2(value) for value in values if _drawable(value)]
    if not logs:
        return None
    low, high = min(logs), max(logs)
    room = max(2 - (high - low), 0) / 2
    return low - room, high + room


def _places(widths: Sequence[int], left: float, right: float) -> list[float]:
    logs = [math.log2(width) for width in widths]
    return [left + (log - logs[0]) / (logs[-1] - logs[0]) * (right - left) for log in logs]


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten, or 1, 2 and 5 times them where these are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 2, 5)):
        found = [factor * 10.0**power for power in powers for factor in factors]
        found = [value for value in found if low <= value <= high]
        if len(found) >= 3:
            break
    return found[:: max(1, len(found) // 6)]


def _signed(value: float) -> str:
    return f"{value:+.2f}" if math.isfinite(value) else "?"


def _fit(name: str, length: int) -> str:
    """The end of a name that is too long, in ASCII: the board has no other letters."""
    return name if len(name) <= length else ".." + name[-(length - 2) :]
