"""A comparison as one HTML file that opens from the disk: no script, no network, dark and light, fit for print.

In:   a comparison.
Out:  the file's text: verdict, what differs, curves and their difference as SVG, figures, remarks.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from barograph.comparing.axes import UNITS
from barograph.comparing.contrasts import BETTER, WORSE, Contrast
from barograph.comparing.tables import unknown_words
from barograph.comparing.words import amount, cell_words, change_words, letter, number, percent
from barograph.sinks.parts import escape

if TYPE_CHECKING:
    from barograph.comparing.comparison import Comparison

Floats = NDArray[np.float64]

_COLOURS = ("#1b6ca8", "#c4501b", "#2e8b57", "#8e44ad", "#b8860b", "#c2185b", "#00838f", "#5d4037")
_MOST_CURVES = 24
_WIDE, _HIGH, _LEFT, _BELOW = 760, 260, 64, 28
_STYLE = """
:root{color-scheme:light dark;--ink:#1d2329;--dim:#67717b;--line:#d8dde2;--paper:#fff;--good:#1b7f43;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8eb;--dim:#98a2ab;--line:#3a434b;--paper:#14181c;
--good:#5ec588;--bad:#f28b82}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.05rem;margin-top:2rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;font-size:.9rem;display:block;overflow-x:auto}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child,.words td,.words th{text-align:left}.words td{white-space:normal;overflow-wrap:anywhere}
.dim,.dim td{color:var(--dim)}.good{color:var(--good)}.bad{color:var(--bad)}
svg{max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:var(--dim)}
.key{display:inline-block;width:1.2em;height:.25em;vertical-align:middle;margin-right:.3em}
@media print{body{margin:0;max-width:none}h2,table,svg{break-inside:avoid}}
"""


def document(made: Comparison) -> str:
    """The whole file."""
    labels = [_text(side.label) for side in made.sides]
    title = " and ".join(labels[:3]) + (" …" if len(labels) > 3 else "")
    parts = [_verdict(made), _legend(made), _differences(made), _charts(made), _figures(made), _remarks(made)]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _verdict(made: Comparison) -> str:
    outcomes = {one.sentence: one.outcome for one in made.contrasts}
    tints = {BETTER: " class='good'", WORSE: " class='bad'"}
    said = list(made.verdict.sentences)
    said += [one.sentence for one in made.refusals if one.sentence not in said]
    said += made.equality_sentences()
    return "\n".join(f"<p{tints.get(outcomes.get(one, ''), '')}>{_text(one)}</p>" for one in said)


def _legend(made: Comparison) -> str:
    rows = [
        f"<tr><td><span class='key' style='background:{_colour(at)}'></span>{letter(at)}</td>"
        f"<td>{_text(side.label)}</td><td>{len(side.members)}</td>"
        f"<td>{_text(', '.join(one.name for one in side.members[:6]))}"
        f"{f' and {len(side.members) - 6} more' if len(side.members) > 6 else ''}</td></tr>"
        for at, side in enumerate(made.sides)
    ]
    return f"<table class='words'><tr><th></th><th>side</th><th>runs</th><th></th></tr>{''.join(rows)}</table>"


def _differences(made: Comparison) -> str:
    found = made.differences
    if len(made.sides) < 2:
        return ""
    shown = [one for one in found.between if one.role != "bookkeeping" and (one.part != "packages" or one.change)]
    rows = [
        f"<tr{'' if one.change is not None else ' class=dim'}>"
        f"<td>{'change' if one.change is not None else _text(one.role)}</td>"
        f"<td>{_text(one.part)}</td><td>{_text(one.key)}</td>"
        + "".join(f"<td>{_text(value)}</td>" for value in one.values[:6])
        + "</tr>"
        for one in shown
    ]
    heads = "".join(f"<th>{letter(at)}</th>" for at in range(min(6, len(made.sides))))
    body = f"<table class='words'><tr><th></th><th></th><th></th>{heads}</tr>{''.join(rows)}</table>" if rows else ""
    lines = [] if rows else ["Nothing that is known."]
    if found.files:
        lines.append(f"Uncommitted changes differ in {', '.join(found.files[:10])}.")
    if found.same:
        lines.append(f"The same: {', '.join(found.same)}.")
    lines += [f"Not known of {who}: {silent}." for who, silent in unknown_words(made)]
    return "<h2>What differs</h2>" + body + "".join(f"<p class='dim'>{_text(line)}</p>" for line in lines)


def _figures(made: Comparison) -> str:
    if not made.rows:
        return ""
    sides = range(len(made.sides))
    wide = len(made.sides) <= 8
    heads = "".join(f"<th>{letter(at)}</th>" + (f"<th>{letter(at)} vs A</th>" if at and wide else "") for at in sides)
    rows = []
    for row in made.rows:
        cells = []
        for at in sides:
            cells.append(f"<td>{_text(cell_words(row.cells[at], row.unit))}</td>")
            if at and wide:
                change = row.percent(at, 0)
                told = change_words(row, at)
                good = (
                    ""
                    if not told or not change or not row.direction
                    else ("good" if change * row.direction > 0 else "bad")
                )
                cells.append(f"<td class='{good}'>{_text(told)}</td>")
        rows.append(f"<tr><td>{_text(row.name)}</td>{''.join(cells)}</tr>")
    tests = []
    for one in made.contrasts:
        if one.test is not None:
            test = one.test
            cells = [
                f"{letter(one.side)} − {letter(one.baseline)}", number(one.difference), percent(one.percent),
                f"{number(test.low)} … {number(test.high)}", f"{test.p:.2g}",
                "" if test.permutation is None else f"{test.permutation:.2g}",
                "" if test.effect is None else f"{test.effect:.2f}", test.method, one.outcome,
            ]  # fmt: skip
            tests.append("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>")
    names = ("", "difference", "", "interval", "p", "permutation p", "Hedges' g", "test", "outcome")
    second = ""
    if tests:
        second = f"<table><tr>{''.join(f'<th>{_text(name)}</th>' for name in names)}</tr>{''.join(tests)}</table>"
    return f"<h2>Figures</h2><table><tr><th></th>{heads}</tr>{''.join(rows)}</table>{second}"


def _remarks(made: Comparison) -> str:
    lines = [*made.cautions, *made.notes]
    window = made.place.window if made.place is not None else 0.0
    if window and made.axis is not None:
        unit = UNITS[made.axis]
        lines.append(
            f"Smoothed for all alike: means over {amount(window, unit)} {unit}; a final value is the last such mean."
        )
    return "<h2>Remarks</h2>" + "".join(f"<p>{_text(line)}</p>" for line in lines) if lines else ""


# -- charts ---------------------------------------------------------------------------------------------


def _charts(made: Comparison) -> str:
    x, curves = made.curves()
    if not len(x) or made.axis is None:
        return ""
    unit = UNITS[made.axis]
    shown = [(at, curve) for at, curve in enumerate(curves) if np.isfinite(curve).any()][:_MOST_CURVES]
    lines = [(_colour(at), x, curve, None) for at, curve in shown]
    parts = [
        f"<h2>{_text(str(made.metric))} along {_text(unit)}</h2>",
        _chart(lines, unit, f"{made.metric} of each side"),
    ]
    gaps = [one for one in made.contrasts if one.curve is not None and len(one.curve.x) > 1][:_MOST_CURVES]
    if gaps:
        parts.append(f"<h2>Difference from {letter(0)}, {_kind(gaps[0])}</h2>")
        parts.append(_chart([_gap(one) for one in gaps], unit, f"difference in {made.metric}", zero=True))
    return "\n".join(parts)


def _kind(one: Contrast) -> str:
    words = {"seeds": "with the interval over seeds at each place", "within runs": "with the noise within the runs"}
    return words.get(one.curve.kind if one.curve is not None else "", "without an interval")


_Line = tuple[str, Floats, Floats, tuple[Floats, Floats] | None]


def _gap(one: Contrast) -> _Line:
    assert one.curve is not None
    band = (one.curve.low, one.curve.high) if one.curve.kind else None
    return _colour(one.side), one.curve.x, one.curve.difference, band


def _chart(lines: Sequence[_Line], unit: str, title: str, zero: bool = False) -> str:
    """Lines with bands. Without a zero line the highest twentieth of the values, the first steps, may be cut off."""
    values = np.concatenate([curve[np.isfinite(curve)] for _, _, curve, _ in lines])
    if not len(values):
        return ""
    low, high = float(values.min()), float(values.max())
    if zero:
        bands = [edge[np.isfinite(edge)] for _, _, _, band in lines if band is not None for edge in band]
        edges = np.concatenate([values, *bands])
        room = 2 * max(high - low, abs(low), abs(high))  # an interval that is far wider than the curve would hide it
        low = min(low, 0.0, max(float(edges.min()), low - room))
        high = max(high, 0.0, min(float(edges.max()), high + room))
    elif len(values) >= 20:
        high = float(np.quantile(values, 0.95))  # the first steps would flatten the rest
    margin = (high - low) * 0.06 or abs(high) * 0.01 or 1.0
    low, high = low - margin, high + margin
    first, last = min(float(x[0]) for _, x, _, _ in lines), max(float(x[-1]) for _, x, _, _ in lines)

    def places(x: Floats, y: Floats) -> list[str]:
        across = _LEFT + (x - first) / ((last - first) or 1.0) * (_WIDE - _LEFT - 8)
        down = (_HIGH - _BELOW) * (1 - (np.clip(y, low - 9 * margin, high + 9 * margin) - low) / (high - low))
        return [
            f"{one:.1f},{two:.1f}"
            for one, two in zip(across.tolist(), down.tolist(), strict=True)
            if math.isfinite(two)
        ]

    drawn = [
        f"<svg viewBox='0 0 {_WIDE} {_HIGH}' role='img' aria-label='{_text(title)}'>"
        f"<clipPath id='{'d' if zero else 'c'}'>"
        f"<rect x='{_LEFT}' y='0' width='{_WIDE - _LEFT}' height='{_HIGH - _BELOW}'/></clipPath>"
    ]
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        value, y = low + (high - low) * part, (_HIGH - _BELOW) * (1 - part)
        drawn.append(
            f"<line x1='{_LEFT}' x2='{_WIDE}' y1='{y:.1f}' y2='{y:.1f}' stroke='var(--line)' stroke-width='.6'/>"
        )
        drawn.append(f"<text x='{_LEFT - 6}' y='{max(10.0, y + 3):.1f}' text-anchor='end'>{number(value)}</text>")
        at, anchor = _LEFT + (_WIDE - _LEFT - 8) * part, "start" if part == 0 else "end" if part == 1 else "middle"
        tick = amount(first + (last - first) * part, unit)
        drawn.append(f"<text x='{at:.1f}' y='{_HIGH - 8}' text-anchor='{anchor}'>{_text(tick)}</text>")
    drawn.append(f"<g clip-path='url(#{'d' if zero else 'c'})'>")
    if zero:
        y = (_HIGH - _BELOW) * (1 - (0 - low) / (high - low))
        drawn.append(f"<line x1='{_LEFT}' x2='{_WIDE}' y1='{y:.1f}' y2='{y:.1f}' stroke='var(--dim)'/>")
    for colour, x, curve, band in lines:
        if band is not None:
            good = np.isfinite(band[0]) & np.isfinite(band[1])
            edge = places(x[good], band[1][good]) + places(x[good], band[0][good])[::-1]
            drawn.append(f"<polygon points='{' '.join(edge)}' fill='{colour}' opacity='.18'/>")
        drawn.append(
            f"<polyline points='{' '.join(places(x, curve))}' fill='none' stroke='{colour}' stroke-width='1.6'/>"
        )
    return "".join(drawn) + "</g></svg>"


def _colour(side: int) -> str:
    return _COLOURS[side % len(_COLOURS)]


def _text(value: object) -> str:
    return html.escape(escape(value, 400), quote=True)
