"""A comparison on a terminal.

In:   a comparison, the terminal's width, whether it shows colours.
Out:  text whose lines fit: who, what differs, the verdict, the table, the difference along the way, notes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from barograph.analysis.compare.axes import UNITS
from barograph.analysis.compare.contrasts import BETTER, DIFFERENT, WORSE, Contrast
from barograph.analysis.compare.difference import ABSENT, Difference
from barograph.analysis.compare.words import (
    PLUS_MINUS,
    amount,
    cell_words,
    change_words,
    common_end,
    ends_alike,
    has_interval,
    letter,
    smoothing,
)
from barograph.core.text import change, count, escape, fit, number, padded, sparkline, width, wrapped

if TYPE_CHECKING:
    from barograph.analysis.compare.comparison import Comparison

MOST_DIFFERENCES = 24
MOST_NAMES = 4
_FLAT = 1e-3  # of its size: a difference that varies by less is drawn as a flat line
_BESIDE = 3  # sides that stand beside each other; more stand below each other
_BOLD, _DIM, _GREEN, _RED, _YELLOW, _END = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


def page(comparison: Comparison, columns: int = 100, colour: bool = False) -> str:
    """The whole comparison. columns: at least 60 are used."""
    columns = max(60, columns)
    parts = [_sides(comparison, columns), _differences(comparison, columns), _verdict(comparison, columns)]
    parts += [
        _table(comparison, columns),
        _list(comparison, columns),
        _along(comparison, columns),
        _notes(comparison, columns),
    ]
    text = "\n\n".join("\n".join(lines) for part in parts if (lines := list(part)))
    return text if colour else _plain(text)


def _plain(text: str) -> str:
    for code in (_BOLD, _DIM, _GREEN, _RED, _YELLOW, _END):
        text = text.replace(code, "")
    return text


def _head(words: str) -> str:
    return f"{_BOLD}{words}{_END}"


def _sides(comparison: Comparison, columns: int) -> Iterator[str]:
    for at, side in enumerate(comparison.sides):
        runs = len(side.members)
        first = side.members[0]
        statuses = list(dict.fromkeys(member.status for member in side.members))
        told = [f"{runs} runs" if runs > 1 else escape(first.project, 24), ", ".join(statuses)]
        if at == 0 and len(comparison.sides) > 2:
            told.append("baseline")
        about = ", ".join(told)
        name = fit(escape(side.label), columns - len(about) - 6)
        yield f"{_BOLD}{letter(at):<2}{_END} {name}  {_DIM}{about}{_END}"
        if runs > 1:
            names = [fit(escape(member.name), 28) for member in side.members]
            shown = next(
                (at for at in range(min(MOST_NAMES, runs), 1, -1) if width(names[:at]) + 2 * at < columns - 16), 1
            )
            more = f" and {runs - shown} more" if runs > shown else ""
            yield f"   {_DIM}{', '.join(names[:shown])}{more}{_END}"


def _differences(comparison: Comparison, columns: int) -> Iterator[str]:
    found = comparison.differences
    if len(comparison.sides) < 2:
        return
    yield _head("WHAT DIFFERS")
    shown = [item for item in found.between if item.change is not None]
    other = [item for item in found.between if item.change is None]
    size = min(34, max((width([_key(item)]) for item in found.between), default=0), columns // 3)
    for item in shown[:MOST_DIFFERENCES]:
        yield _difference(item, size, columns, "•")
    if len(shown) > MOST_DIFFERENCES:
        yield f"  … and {len(shown) - MOST_DIFFERENCES} more changes: --json lists all"
    told = [item for item in other if item.part != "packages" and item.role != "bookkeeping"]
    for item in told[:8]:
        yield f"{_DIM}{_difference(item, size, columns, ' ')}{_END}"
    if not shown and not told:
        yield "  no known difference" if found.unknown else "  nothing"
    if found.files:
        yield f"    in {_names(found.files, 5, columns - 8)}"
    aside = []
    packages = sum(item.part == "packages" for item in other)
    if packages:
        aside.append(f"{count(packages, 'package')} that do not affect training")
    names = [item.key for item in other if item.role == "bookkeeping"]
    if names:
        aside.append(f"names and places ({_names(names, 3, 40)})")
    if len(told) > 8:
        aside.append(f"{len(told) - 8} more settings")
    if aside:
        yield from wrapped(f"also: {'; '.join(aside)}", columns, "  ")
    if found.same:
        yield from (f"{_DIM}{line}{_END}" for line in wrapped(f"the same: {', '.join(found.same)}", columns, "  "))
    for who, parts in unknown_words(comparison):
        yield from (f"{_YELLOW}{line}{_END}" for line in wrapped(f"not known of {who}: {parts}", columns, "  "))


def unknown_words(comparison: Comparison) -> list[tuple[str, str]]:
    """Who says nothing, and of what: the parts that the same sides are silent about together."""
    silent: dict[str, list[str]] = {}
    for part, sides in comparison.differences.unknown.items():
        every = len(sides) == len(comparison.sides)
        silent.setdefault("any side" if every else ", ".join(map(letter, sides)), []).append(part)
    return [(who, ", ".join(parts)) for who, parts in silent.items()]


def _difference(difference: Difference, size: int, columns: int, mark: str) -> str:
    room = columns - size - 6
    values = [escape(value, 120) for value in difference.values]
    if len(values) <= 4:
        each = max(6, (room - 3 * (len(values) - 1)) // len(values))
        spare = sum(max(0, each - width([value])) for value in values)
        text = " → ".join(fit(value, each + spare if width([value]) > each else each) for value in values)
    else:
        text = ", ".join(dict.fromkeys(value for value in values if value != ABSENT))
    return f"  {mark} {padded(_key(difference), size)} {fit(text, room)}"


def _key(difference: Difference) -> str:
    return escape(
        difference.key if difference.part in ("config", "environment") else f"{difference.part}: {difference.key}", 120
    )


def _verdict(comparison: Comparison, columns: int) -> Iterator[str]:
    yield _head("VERDICT")
    outcomes = {contrast.sentence: contrast.outcome for contrast in comparison.contrasts}
    for sentence in comparison.verdict.sentences:
        outcome = outcomes.get(sentence)
        tint = {BETTER: _GREEN, WORSE: _RED, DIFFERENT: _YELLOW}.get(outcome or "", "")
        for at, line in enumerate(wrapped(escape(sentence), columns, "  ")):
            yield f"{tint}{line}{_END}" if tint and at == 0 else line
    for refusal in comparison.refusals:
        if refusal.sentence not in comparison.verdict.sentences:
            yield from wrapped(escape(refusal.sentence), columns, "  ")
    for sentence in comparison.equality_sentences():
        yield from wrapped(escape(sentence), columns, "  ")


def _table(comparison: Comparison, columns: int) -> Iterator[str]:
    """A row a measure and a column a side, with its change against the first."""
    sides = len(comparison.sides)
    if not comparison.rows or sides > _BESIDE:
        return
    cells = [[cell_words(cell, row.unit) for cell in row.cells] for row in comparison.rows]
    changes = [[change_words(row, at) for at in range(1, sides)] for row in comparison.rows]
    sizes = [max(6, *(width([line[at]]) for line in cells)) for at in range(sides)]
    grown = [max(8, *(len(line[at]) for line in changes)) for at in range(sides - 1)]
    rest = sum(sizes) + sum(grown) + 2 * (2 * sides - 1) + 2
    name = max(12, min(max(width([escape(row.name)]) for row in comparison.rows), columns - rest))
    heads = [letter(0).rjust(sizes[0])]
    for at in range(1, sides):
        heads += [letter(at).rjust(sizes[at]), f"{letter(at)} vs A".rjust(grown[at - 1])]
    yield _head(f"  {padded('', name)}  {'  '.join(heads)}".rstrip())
    for row, line, grows in zip(comparison.rows, cells, changes, strict=True):
        parts = [padded(line[0], sizes[0], right=True)]
        for at in range(1, sides):
            parts += [padded(line[at], sizes[at], right=True), grows[at - 1].rjust(grown[at - 1])]
        yield f"  {padded(escape(row.name), name)}  {'  '.join(parts)}".rstrip()
    if has_interval(comparison.rows):
        yield f"  {_DIM}{PLUS_MINUS}{_END}"


def _list(comparison: Comparison, columns: int) -> Iterator[str]:
    """A row a side, for many sides."""
    if len(comparison.sides) <= _BESIDE or not comparison.rows:
        return
    final = comparison.rows[0]
    by_side = {contrast.side: contrast for contrast in comparison.contrasts}
    alike = ends_alike(comparison.contrasts)
    there = () if alike else ("AT", "A THERE", "THERE")
    rows = [("", "SIDE", "RUNS", escape(final.name, 28), *there, "VS A", "P", "")]
    for at in comparison.order():
        side, one = comparison.sides[at], by_side.get(at)
        test = one.test if one is not None else None
        rows.append(
            (
                letter(at),
                escape(side.label),
                str(len(side.members)),
                cell_words(final.cells[at], final.unit),
                *(() if alike else common_end(one) if one is not None else ("", "", "")),
                change(one.percent) if one is not None else "",
                number(test.p, 2) if test is not None else "",
                one.outcome if one is not None else "baseline",
            )
        )
    sizes = [max(width([row[at]]) for row in rows) for at in range(len(rows[0]))]
    sizes[1] = max(10, min(sizes[1], columns - sum(sizes) + sizes[1] - 14))
    for at, row in enumerate(rows):
        left = f"{padded(row[0], sizes[0])}  {padded(row[1], sizes[1])}"
        right = "  ".join(padded(row[place], sizes[place], right=True) for place in range(2, len(row) - 1))
        line = f"  {left}  {right}  {row[-1]}".rstrip()
        yield _head(line) if at == 0 else line
    if has_interval([final]):
        yield f"  {_DIM}{PLUS_MINUS}{_END}"


def _along(comparison: Comparison, columns: int) -> Iterator[str]:
    """The difference along the axis as a row of blocks, for up to three contrasts."""
    shown = [contrast for contrast in comparison.contrasts if contrast.curve is not None and len(contrast.curve.x) > 1][
        :3
    ]
    if not shown or comparison.axis is None:
        return
    unit = UNITS[comparison.axis]
    assert shown[0].curve is not None
    x = shown[0].curve.x
    yield _head(f"DIFFERENCE IN {comparison.metric} from {amount(x[0], unit)} to {amount(x[-1], unit)} {unit}".rstrip())
    for item in shown:
        yield from _one_along(item, columns)


def _one_along(contrast: Contrast, columns: int) -> Iterator[str]:
    curve = contrast.curve
    assert curve is not None
    finite = [value for value in curve.difference.tolist() if math.isfinite(value)]
    if not finite:
        return
    names = f"{letter(contrast.side)} − {letter(contrast.baseline)}"
    ends = f"{number(min(finite))} … {number(max(finite))}"
    flat = max(finite) - min(finite) < _FLAT * max(map(abs, finite))
    heights = [0.0] * len(finite) if flat else curve.difference.tolist()
    drawn = sparkline(heights, max(10, min(60, columns - len(names) - len(ends) - 8)))
    yield f"  {names}  {drawn}  {ends}"
    sure = [place for place in range(len(curve.x)) if curve.low[place] > 0 or curve.high[place] < 0]
    if curve.kind == "seeds":
        told = f"{len(sure)} of {len(curve.x)} points have an interval without zero, each tested alone"
        yield f"  {_DIM}{told}{_END}"
    elif curve.kind:
        told = f"{len(sure)} of {len(curve.x)} points differ by more than the noise within the runs"
        for line in wrapped(f"{told}; the variation between seeds is not known", columns, "  "):
            yield f"{_DIM}{line}{_END}"


def _notes(comparison: Comparison, columns: int) -> Iterator[str]:
    lines = [
        *comparison.cautions,
        *comparison.notes,
        *filter(None, [smoothing(comparison.place, comparison.contrasts)]),
    ]
    if lines:
        yield _head("NOTES")
    for sentence in lines:
        yield from wrapped(escape(sentence), columns, "  ")


def _names(names: Sequence[str], most: int, columns: int) -> str:
    listed = ", ".join(escape(name, 60) for name in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return fit(listed, max(10, columns - len(more))) + more
