"""A comparison as one HTML file that opens from the disk: no script, no network, dark and light, fit for print.

In:   a comparison.
Out:  the file's text: verdict, what differs, curves and their difference as SVG, figures, notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.analysis.compare.axes import UNITS
from barograph.analysis.compare.contrasts import BETTER, WORSE, Contrast
from barograph.analysis.compare.words import (
    PLUS_MINUS,
    TEST_COLUMNS,
    cell_words,
    change_words,
    common_end,
    has_interval,
    letter,
    smoothing,
)
from barograph.core.text import change, escape, html, listed, number
from barograph.views.compare.tables import unknown_words
from barograph.views.draw.chart import ChartAxes, ChartBox, ChartCurve, described, picture
from barograph.views.draw.page import page
from barograph.views.draw.palette import COLOURS
from barograph.views.draw.table import Markup, as_html, tinted

if TYPE_CHECKING:
    from barograph.analysis.compare.comparison import Comparison

_MOST_CURVES = 24
_BOX = ChartBox(high=260, left=64)
_TRIMMED = 0.05  # of the values: the first steps would flatten the rest


def document(made: Comparison) -> str:
    """The whole file."""
    labels = [escape(side.label, 400) for side in made.sides]
    title = " and ".join(labels[:3]) + (" …" if len(labels) > 3 else "")
    parts = [_verdict(made), _legend(made), _differences(made), _charts(made), _figures(made), _notes(made)]
    return page(title, "\n".join(part for part in parts if part))


def _verdict(made: Comparison) -> str:
    outcomes = {one.sentence: one.outcome for one in made.contrasts}
    tints = {BETTER: ' class="good"', WORSE: ' class="bad"'}
    said = list(made.verdict.sentences)
    said += [one.sentence for one in made.refusals if one.sentence not in said]
    said += made.equality_sentences()
    return "\n".join(f"<p{tints.get(outcomes.get(one, ''), '')}>{html(one)}</p>" for one in said)


def _table(heads: list[str], rows: list[list[str]], **about: Any) -> str:
    return f'<div class="scroll" tabindex="0">{as_html(heads, rows, **about)}</div>'


def _legend(made: Comparison) -> str:
    rows = [
        [
            Markup(f'<span class="key c{at % COLOURS}"></span>{letter(at)}'),
            escape(side.label, 400),
            str(len(side.members)),
            escape(listed([one.name for one in side.members], 6), 400),
        ]
        for at, side in enumerate(made.sides)
    ]
    return _table(["", "side", "runs", ""], rows)


def _differences(made: Comparison) -> str:
    found = made.differences
    if len(made.sides) < 2:
        return ""
    shown = [one for one in found.between if one.role != "bookkeeping" and (one.part != "packages" or one.change)]
    rows = [
        ["change" if one.change is not None else one.role, one.part, one.key]
        + [escape(value, 400) for value in one.values[:6]]
        for one in shown
    ]
    heads = ["", "", "", *(letter(at) for at in range(min(6, len(made.sides))))]
    body = _table(heads, rows, dim={at for at, one in enumerate(shown) if one.change is None}) if rows else ""
    lines = [] if rows else ["No known difference."]
    if found.files:
        lines.append(f"Uncommitted changes differ in {', '.join(found.files[:10])}.")
    if found.same:
        lines.append(f"The same: {', '.join(found.same)}.")
    lines += [f"Not known of {who}: {silent}." for who, silent in unknown_words(made)]
    return "<h2>What differs</h2>" + body + "".join(f'<p class="dim">{html(line)}</p>' for line in lines)


def _figures(made: Comparison) -> str:
    if not made.rows:
        return ""
    sides = range(len(made.sides))
    wide = len(made.sides) <= 8
    heads = [""]
    for at in sides:
        heads += [letter(at), f"{letter(at)} vs A"] if at and wide else [letter(at)]
    rows = []
    for row in made.rows:
        cells = [row.name]
        for at in sides:
            cells.append(cell_words(row.cells[at], row.unit))
            if at and wide:
                grows, words = row.percent(at, 0), change_words(row, at)
                good = words and grows and row.direction and ("good" if grows * row.direction > 0 else "bad")
                cells.append(tinted(words, good or ""))
        rows.append(cells)
    tests = [
        [
            f"{letter(one.side)} − {letter(one.baseline)}", *common_end(one), number(one.difference),
                change(one.percent),
            f"{number(one.test.low)} … {number(one.test.high)}", number(one.test.p, 2),
            "" if one.test.permutation is None else number(one.test.permutation, 2),
            "" if one.test.effect is None else number(one.test.effect, 3), one.test.method, one.outcome,
        ]
        for one in made.contrasts
        if one.test is not None
    ]  # fmt: skip
    second = _table(list(TEST_COLUMNS), tests, right={*range(1, 10)}) if tests else ""
    note = f'<p class="dim">{html(PLUS_MINUS)}</p>' if has_interval(made.rows) else ""
    return f"<h2>Figures</h2>{_table(heads, rows, right=set(range(1, len(heads))))}{note}{second}"


def _notes(made: Comparison) -> str:
    lines = [*made.cautions, *made.notes, *filter(None, [smoothing(made.place, made.contrasts)])]
    return "<h2>Notes</h2>" + "".join(f"<p>{html(line)}</p>" for line in lines) if lines else ""


# -- charts ---------------------------------------------------------------------------------------------


def _charts(made: Comparison) -> str:
    x, columns = made.curves()
    if not len(x) or made.axis is None:
        return ""
    unit = UNITS[made.axis]
    shown = [(at, column) for at, column in enumerate(columns) if np.isfinite(column).any()][:_MOST_CURVES]
    curves = [ChartCurve(letter(at), x, column, at) for at, column in shown]
    parts = [
        f"<h2>{html(made.metric)} along {html(unit)}</h2>",
        _chart(curves, ChartAxes(unit, trimmed=_TRIMMED), f"{made.metric} of each side", "curves"),
    ]
    gaps = [one for one in made.contrasts if one.curve is not None and len(one.curve.x) > 1][:_MOST_CURVES]
    if gaps:
        parts.append(f"<h2>Difference from {letter(0)}, {_kind(gaps[0])}</h2>")
        curves = [_gap(one) for one in gaps]
        parts.append(_chart(curves, ChartAxes(unit, zero=True), f"difference in {made.metric}", "difference"))
    return "\n".join(parts)


def _kind(one: Contrast) -> str:
    words = {"seeds": "with the interval over seeds at each point", "within runs": "with the noise within the runs"}
    return words.get(one.curve.kind if one.curve is not None else "", "without an interval")


def _gap(one: Contrast) -> ChartCurve:
    curve = one.curve
    assert curve is not None
    band = (curve.x, curve.low, curve.high) if curve.kind else None
    return ChartCurve(f"{letter(one.side)} − {letter(one.baseline)}", curve.x, curve.difference, one.side, band=band)


def _chart(curves: list[ChartCurve], axes: ChartAxes, title: str, slug: str) -> str:
    label = f"{escape(title, 200)}: {described(curves[:4])}"
    return f'<figure><div class="still">{picture(curves, axes, label, slug, _BOX)}</div></figure>'
