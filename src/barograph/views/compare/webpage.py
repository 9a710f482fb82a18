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


def document(comparison: Comparison) -> str:
    """The whole file."""
    labels = [escape(side.label, 400) for side in comparison.sides]
    title = " and ".join(labels[:3]) + (" …" if len(labels) > 3 else "")
    parts = [
        _verdict(comparison),
        _legend(comparison),
        _differences(comparison),
        _charts(comparison),
        _figures(comparison),
        _notes(comparison),
    ]
    return page(title, "\n".join(part for part in parts if part))


def _verdict(comparison: Comparison) -> str:
    outcomes = {contrast.sentence: contrast.outcome for contrast in comparison.contrasts}
    tints = {BETTER: ' class="good"', WORSE: ' class="bad"'}
    said = list(comparison.verdict.sentences)
    said += [refusal.sentence for refusal in comparison.refusals if refusal.sentence not in said]
    said += comparison.equality_sentences()
    return "\n".join(f"<p{tints.get(outcomes.get(item, ''), '')}>{html(item)}</p>" for item in said)


def _table(heads: list[str], rows: list[list[str]], **about: Any) -> str:
    return f'<div class="scroll" tabindex="0">{as_html(heads, rows, **about)}</div>'


def _legend(comparison: Comparison) -> str:
    rows = [
        [
            Markup(f'<span class="key c{at % COLOURS}"></span>{letter(at)}'),
            escape(side.label, 400),
            str(len(side.members)),
            escape(listed([member.name for member in side.members], 6), 400),
        ]
        for at, side in enumerate(comparison.sides)
    ]
    return _table(["", "side", "runs", ""], rows)


def _differences(comparison: Comparison) -> str:
    found = comparison.differences
    if len(comparison.sides) < 2:
        return ""
    shown = [item for item in found.between if item.role != "bookkeeping" and (item.part != "packages" or item.change)]
    rows = [
        ["change" if item.change is not None else item.role, item.part, item.key]
        + [escape(value, 400) for value in item.values[:6]]
        for item in shown
    ]
    heads = ["", "", "", *(letter(at) for at in range(min(6, len(comparison.sides))))]
    body = _table(heads, rows, dim={at for at, item in enumerate(shown) if item.change is None}) if rows else ""
    lines = [] if rows else ["No known difference."]
    if found.files:
        lines.append(f"Uncommitted changes differ in {', '.join(found.files[:10])}.")
    if found.same:
        lines.append(f"The same: {', '.join(found.same)}.")
    lines += [f"Not known of {who}: {silent}." for who, silent in unknown_words(comparison)]
    return "<h2>What differs</h2>" + body + "".join(f'<p class="dim">{html(line)}</p>' for line in lines)


def _figures(comparison: Comparison) -> str:
    if not comparison.rows:
        return ""
    sides = range(len(comparison.sides))
    wide = len(comparison.sides) <= 8
    heads = [""]
    for at in sides:
        heads += [letter(at), f"{letter(at)} vs A"] if at and wide else [letter(at)]
    rows = []
    for row in comparison.rows:
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
            f"{letter(contrast.side)} − {letter(contrast.baseline)}", *common_end(contrast),
            number(contrast.difference), change(contrast.percent),
            f"{number(contrast.test.low)} … {number(contrast.test.high)}", number(contrast.test.p, 2),
            "" if contrast.test.permutation is None else number(contrast.test.permutation, 2),
            "" if contrast.test.effect is None else number(contrast.test.effect, 3),
            contrast.test.method, contrast.outcome,
        ]
        for contrast in comparison.contrasts
        if contrast.test is not None
    ]  # fmt: skip
    second = _table(list(TEST_COLUMNS), tests, right={*range(1, 10)}) if tests else ""
    note = f'<p class="dim">{html(PLUS_MINUS)}</p>' if has_interval(comparison.rows) else ""
    return f"<h2>Figures</h2>{_table(heads, rows, right=set(range(1, len(heads))))}{note}{second}"


def _notes(comparison: Comparison) -> str:
    lines = [
        *comparison.cautions,
        *comparison.notes,
        *filter(None, [smoothing(comparison.place, comparison.contrasts)]),
    ]
    return "<h2>Notes</h2>" + "".join(f"<p>{html(line)}</p>" for line in lines) if lines else ""


# -- charts ---------------------------------------------------------------------------------------------


def _charts(comparison: Comparison) -> str:
    x, columns = comparison.curves()
    if not len(x) or comparison.axis is None:
        return ""
    unit = UNITS[comparison.axis]
    shown = [(at, column) for at, column in enumerate(columns) if np.isfinite(column).any()][:_MOST_CURVES]
    curves = [ChartCurve(letter(at), x, column, at) for at, column in shown]
    parts = [
        f"<h2>{html(comparison.metric)} along {html(unit)}</h2>",
        _chart(curves, ChartAxes(unit, trimmed=_TRIMMED), f"{comparison.metric} of each side", "curves"),
    ]
    gaps = [contrast for contrast in comparison.contrasts if contrast.curve is not None and len(contrast.curve.x) > 1][
        :_MOST_CURVES
    ]
    if gaps:
        parts.append(f"<h2>Difference from {letter(0)}, {_kind(gaps[0])}</h2>")
        curves = [_gap(gap) for gap in gaps]
        parts.append(_chart(curves, ChartAxes(unit, zero=True), f"difference in {comparison.metric}", "difference"))
    return "\n".join(parts)


def _kind(contrast: Contrast) -> str:
    words = {"seeds": "with the interval over seeds at each point", "within runs": "with the noise within the runs"}
    return words.get(contrast.curve.kind if contrast.curve is not None else "", "without an interval")


def _gap(contrast: Contrast) -> ChartCurve:
    curve = contrast.curve
    assert curve is not None
    band = (curve.x, curve.low, curve.high) if curve.kind else None
    return ChartCurve(
        f"{letter(contrast.side)} − {letter(contrast.baseline)}", curve.x, curve.difference, contrast.side, band=band
    )


def _chart(curves: list[ChartCurve], axes: ChartAxes, title: str, slug: str) -> str:
    label = f"{escape(title, 200)}: {described(curves[:4])}"
    return f'<figure><div class="still">{picture(curves, axes, label, slug, _BOX)}</div></figure>'
