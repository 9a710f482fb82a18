"""A report as one HTML file that opens from the disk with the network off.

In:   a run, or a report's content.
Out:  the file's text: style, charts as SVG, the charts' data and the script that makes them zoom, all inside.

The page may load nothing and run nothing but its own script and style, which its policy names by their hashes. Every
word of a user or a model is escaped. Without the built script the charts stand still, and the page says how to have it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from barograph.reading.query import StoredRun
from barograph.reporting import drawing, heat
from barograph.reporting.content import (
    MOST_POINTS,
    Block,
    Chart,
    Facts,
    Figure,
    Finding,
    Heading,
    Heat,
    Line,
    Report,
    Section,
    Sentence,
    Table,
    Text,
    Tiles,
)
from barograph.reporting.style import STYLE

SCRIPT = Path(__file__).parents[1] / "assets" / "report.js"
HOW_TO_BUILD = (
    "The charts of this report stand still: this copy of Barograph lacks the page's script. "
    "`cd web && npm ci && node build.mjs` builds it (with Node.js), and so does `pip install .`."
)
# Points of all lines together: of some 16 bytes each, so that a page stays below 3 MB.
POINTS = 80_000
_FEWEST = 400
_TALL = 18  # rows of a table, from which on it scrolls
_SEVERITY = {"critical": "critical", "warning": "warning", "info": "remark"}


def document(run: StoredRun, price: float | None = None) -> str:
    """The report of one run as one HTML file. price: of an hour of a device; the run's own where it is not given."""
    from barograph.reporting.assemble import assemble

    return page(assemble(run, price))


def script() -> str | None:
    """The built script; None in a copy of Barograph without it."""
    try:
        text = SCRIPT.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return text if len(text) > 1_000 and "</script" not in text.lower() and "<!--" not in text else None


def page(report: Report) -> str:
    """The whole file."""
    code = script()
    writer = _Writer(report)
    body = "\n".join(writer.section(one) for one in report.sections)
    links = "".join(f'<li><a href="#{one.slug}">{_text(one.short or one.title)}</a></li>' for one in report.sections)
    policy = "; ".join((
        "default-src 'none'",
        f"style-src '{_hash(STYLE)}'",
        f"script-src '{_hash(code)}'" if code else "script-src 'none'",
        "img-src data:", "base-uri 'none'", "form-action 'none'",
    ))  # fmt: skip
    notice = "" if code else f'<p class="warn">{_text(HOW_TO_BUILD)}</p>'
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{_text(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        '<a class="skip" href="#main">Skip to the report</a>',
        f'<header class="top"><h1>{_text(report.title)}</h1><p class="subtitle">{_text(report.subtitle)}</p>{notice}'
        "</header>",
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>',
        f'<main id="main">\n{body}\n</main>',
        f"<footer><p>{_text(report.made)}. A figure's source stands in its tooltip.</p></footer>",
    ]
    if code:
        parts.append(f'<script type="application/json" id="data">{_json(writer.data)}</script>')
        parts.append(f'<script type="module">{code}</script>')
    return "\n".join(parts) + "\n</body>\n</html>\n"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _json(value: Any) -> str:
    """JSON that can't end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)


class _Writer:
    """Blocks as HTML; `data` gathers what the script draws from."""

    def __init__(self, report: Report):
        charts = [block for one in report.sections for block in one.blocks if isinstance(block, Chart)]
        lines = sum(len(chart.lines) + 2 * len(chart.bands) for chart in charts)
        self.points = max(_FEWEST, min(MOST_POINTS, POINTS // max(1, lines)))
        stepped = [drawing.span_of(chart) for chart in charts if chart.x == "step" and any(map(_has, chart.lines))]
        self.span = (min(low for low, _ in stepped), max(high for _, high in stepped)) if stepped else (0.0, 1.0)
        self.data: dict[str, Any] = {"span": list(self.span), "charts": {}, "heats": {}}

    def section(self, one: Section) -> str:
        blocks: list[str] = []
        for beside, group in itertools.groupby(one.blocks, _beside):
            inside = [self.block(block) for block in group]
            blocks += [f'<div class="pair">{"".join(inside)}</div>'] if beside and len(inside) > 1 else inside
        return f'<section id="{one.slug}">\n<h2>{_text(one.title)}</h2>\n' + "\n".join(blocks) + "\n</section>"

    def block(self, block: Block) -> str:
        match block:
            case Sentence():
                return self.sentence(block)
            case Facts():
                rows = "".join(f"<dt>{_text(label)}</dt><dd>{_figure(figure)}</dd>" for label, figure in block.rows)
                return f'<dl class="facts">{rows}</dl>'
            case Tiles():
                tiles = "".join(
                    f"<div><dt>{_text(label)}</dt><dd>{_figure(figure)}</dd><dd>{_text(words)}</dd></div>"
                    for label, figure, words in block.rows
                )
                return f'<dl class="tiles">{tiles}</dl>'
            case Table():
                return _table(block)
            case Text():
                return _pre(block)
            case Heading():
                return f"<h3>{_text(block.text)}</h3>"
            case Finding():
                return _finding(block)
            case Chart():
                return self.chart(block)
            case Heat():
                return self.heat(block)

    def sentence(self, block: Sentence) -> str:
        inside = "".join(
            _words(part, not block.source) if isinstance(part, str) else _figure(part) for part in block.parts
        )
        kind = f' class="{block.mood}"' if block.mood else ""
        source = f' title="{_text(block.source)}"' if block.source else ""
        return f"<p{kind}{source}>{inside}</p>"

    def chart(self, chart: Chart) -> str:
        span = self.span if chart.x == "step" else None
        still = drawing.picture(chart, span)
        said = "".join(map(self.sentence, chart.said))
        unit = f'<span class="unit">{_text(chart.unit)}</span>' if chart.unit else ""
        if not still:
            return f"<figure><figcaption>{_text(chart.title)}</figcaption><p class='dim'>It has no point.</p></figure>"
        self.data["charts"][chart.slug] = self.chart_data(chart)
        return (
            f'<figure class="chart{" small" if chart.small else ""}" id="chart-{chart.slug}" data-chart="{chart.slug}">'
            f"<figcaption>{_text(chart.title)} {unit}</figcaption>"
            f'<div class="still">{_keys(chart)}{still}</div>{said}</figure>'
        )

    def chart_data(self, chart: Chart) -> dict[str, Any]:
        tints = drawing.tints_of(chart)
        lines = [
            {"label": line.label, "look": line.look, "tint": tint, "points": line.points, "odd": line.odd,
             **self.columns(line)}
            for line, tint in zip(filter(_has, chart.lines), tints, strict=True)
        ]  # fmt: skip
        return {
            "title": chart.title, "x": chart.x, "unit": chart.unit, "log": chart.log, "zero": chart.zero,
            "lines": lines,
            "flags": [{"step": one.step, "severity": one.severity, "number": one.number, "message": one.message}
                      for one in chart.flags],
            "bands": [[self.columns(low), self.columns(high)] for low, high in chart.bands],
        }  # fmt: skip

    def columns(self, line: Line) -> dict[str, Any]:
        """x as whole numbers, each less the one before, or as they are; y with six digits, NaN and Inf as words."""
        from barograph.columns import thin_indices

        x, y = line.x, line.y
        if len(y) > self.points:
            keep = thin_indices(y, self.points, x)
            x, y = x[keep], y[keep]
        column: dict[str, Any] = {"y": [_value(value) for value in y.tolist()]}
        if np.issubdtype(np.asarray(x).dtype, np.integer):
            column["gaps"] = np.diff(x, prepend=0).tolist()
        else:
            column["x"] = [float(f"{value:.9g}") for value in np.asarray(x, np.float64).tolist()]
        return column

    def heat(self, block: Heat) -> str:
        found, low, high = heat.levels(block)
        self.data["heats"][block.slug] = {
            "rows": list(block.rows), "edges": [round(float(edge), 3) for edge in block.edges],
            "levels": base64.b64encode(found.tobytes()).decode(), "low": low, "high": high, "log": block.log,
            "how": block.how, "left": heat.LEFT, "right": heat.RIGHT, "top": heat.TOP, "wide": heat.WIDE,
            "each": heat.row_height(len(block.rows)),
        }  # fmt: skip
        said = "".join(map(self.sentence, block.said))
        how = f"each cell: the {block.how} value of its steps"
        return (
            f'<figure class="heat" id="heat-{block.slug}" data-heat="{block.slug}">'
            f'<figcaption>{_text(block.title)} <span class="unit">{how}</span></figcaption>'
            f'<div class="map">{heat.picture(block)}</div>{said}</figure>'
        )


def _beside(block: Block) -> bool:
    """Whether a block stands beside its like: texts, small charts."""
    return isinstance(block, Text) or (isinstance(block, Chart) and block.small)


_CODE = re.compile(r"`([^`]+)`")


def _words(text: str, own: bool) -> str:
    """Words as HTML; in those that Barograph wrote, what stands in backticks is code."""
    return _CODE.sub(r"<code>\1</code>", _text(text)) if own else _text(text)


def _has(line: Line) -> bool:
    return len(line.x) > 0


def _value(value: float) -> float | int | str:
    if value != value:
        return "n"
    short = float(f"{value:.6g}")
    if math.isinf(short):
        return "p" if value > 0 else "m"
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def _figure(figure: Figure) -> str:
    value = figure.value
    if not figure.text:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return (
            f'<span title="{_text(figure.source)}">{_text(figure.text)}</span>' if figure.source else _text(figure.text)
        )
    return f'<data value="{value!r}" title="{_text(figure.source)}">{_text(figure.text)}</data>'


def _cell(cell: str | Figure) -> str:
    return _text(cell) if isinstance(cell, str) else _figure(cell)


def _table(block: Table) -> str:
    kinds = [' class="number"' if at in block.numeric else "" for at in range(len(block.heads))]
    heads = "".join(f'<th scope="col"{kind}>{_text(head)}</th>' for head, kind in zip(block.heads, kinds, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{kind}>{_cell(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in block.rows
    )
    tall = " tall" if len(block.rows) > _TALL else ""
    label = _text(block.label)
    return (
        f'<div class="scroll{tall}" role="region" aria-label="{label}" tabindex="0"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _pre(block: Text) -> str:
    label = f'<p class="label">{_text(block.label)}</p>' if block.label else ""
    body = _text(block.body)
    if block.added:
        body = f'<span class="prompt">{_text(block.body[: block.added])}</span>{_text(block.body[block.added :])}'
    return f'<div>{label}<pre tabindex="0">{body}</pre></div>'


def _finding(one: Finding) -> str:
    span = f"step {one.step:,}" + (f" to {one.last_step:,}" if one.last_step > one.step else "")
    sure = f", {100 * one.confidence:.0f}% sure" if one.confidence is not None else ""
    parts = [
        f'<div class="finding {_text(one.severity)}" id="finding-{one.number}"><h3>'
        f'<span class="severity">{one.number} · {_SEVERITY.get(one.severity, "remark")}</span>{_text(one.message)}</h3>'
        f'<p class="dim">{span} · {_text(one.rule)}{sure}</p>'
    ]
    for label, lines in (("Then", one.story), ("Likely causes", one.causes), ("What to try", one.remedies)):
        if lines:
            parts.append(f"<p>{label}</p><ul>{''.join(f'<li>{_text(line)}</li>' for line in lines)}</ul>")
    return "".join(parts) + "</div>"


def _keys(chart: Chart) -> str:
    """The legend of the still picture; of a single line its label, where that is not the title."""
    lines = [line for line in chart.lines if _has(line)]
    tints = drawing.tints_of(chart)
    if len(lines) == 1 and lines[0].label == chart.title:
        return ""
    items = "".join(
        f'<li><span class="key c{tint}{" faint" if line.look == "faint" else ""}"></span>{_text(line.label)}</li>'
        for line, tint in zip(lines, tints, strict=True)
    )
    return f'<ul class="keys">{items}</ul>'
