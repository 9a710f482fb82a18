"""A report as one HTML file that opens from the disk with the network off.

In:   a run, or a report's content.
Out:  the file's text: style, charts as SVG, the charts' data and the script that makes them zoom, all inside.

The page may load nothing and run nothing but its own script and style, which its policy names by their hashes. Every
word of a user or a model is escaped. Without the built script the charts stand still, and the page says how to have it.
"""

from __future__ import annotations

import base64
import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from barograph.core.columns import thin_indices
from barograph.core.text import escape, html, html_block, percent
from barograph.query.given import GivenRun, stored_run
from barograph.views.draw import heat
from barograph.views.draw import page as draw
from barograph.views.draw.chart import SMALL, WIDE, ChartAxes, ChartCurve, ChartMark, described, keys, picture, span_of
from barograph.views.draw.palette import COLOURS
from barograph.views.draw.table import Markup, as_html
from barograph.views.report.assemble import assemble
from barograph.views.report.content import (
    MOST_POINTS,
    Block,
    Chart,
    FactList,
    Figure,
    Heading,
    Heat,
    Picture,
    Report,
    ReportFinding,
    ReportLine,
    ReportTable,
    Section,
    Sentence,
    TextBlock,
    Tiles,
)

SCRIPT = Path(__file__).parents[2] / "assets" / "report.js"
HOW_TO_BUILD = (
    "The charts of this report are static: this copy of Barograph lacks the page's script. "
    "`cd web && npm ci && node build.mjs` builds it (with Node.js), and so does `pip install .`."
)
# Points of all lines together: of some 16 bytes each, so that a page stays below 3 MB.
POINTS = 80_000
_FEWEST = 400
_TALL = 18  # rows of a table, from which on it scrolls


def report_html(run: GivenRun, price: float | None = None) -> str:
    """The report of one run as one HTML file. price: of an hour of a device; the run's own where it is not given."""

    return page(assemble(stored_run(run), price))


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
    body = "\n".join(writer.section(section) for section in report.sections)
    links = "".join(
        f'<li><a href="#{section.slug}">{html(section.short or section.title)}</a></li>' for section in report.sections
    )
    return draw.page(
        report.title, body, subtitle=report.subtitle, notice="" if code else HOW_TO_BUILD,
        nav=f'<nav aria-label="Sections"><ul>{links}</ul></nav>',
        foot=f"{report.made}. A figure's source is in its tooltip.", code=code, data=writer.data,
    )  # fmt: skip


class _Writer:
    """Blocks as HTML; `data` gathers what the script draws from."""

    def __init__(self, report: Report):
        charts = [block for section in report.sections for block in section.blocks if isinstance(block, Chart)]
        lines = sum(len(chart.lines) + 2 * len(chart.bands) for chart in charts)
        self.points = max(_FEWEST, min(MOST_POINTS, POINTS // max(1, lines)))
        stepped = [span_of(chart.lines) for chart in charts if chart.x == "step" and any(map(_has, chart.lines))]
        self.span = (min(low for low, _ in stepped), max(high for _, high in stepped)) if stepped else (0.0, 1.0)
        self.data: dict[str, Any] = {"span": list(self.span), "charts": {}, "heats": {}}

    def section(self, section: Section) -> str:
        blocks: list[str] = []
        for beside, group in itertools.groupby(section.blocks, _beside):
            inside = [self.block(block) for block in group]
            kind = "pair pictures" if beside is Picture else "pair"
            blocks += [f'<div class="{kind}">{"".join(inside)}</div>'] if beside and len(inside) > 1 else inside
        return f'<section id="{section.slug}">\n<h2>{html(section.title)}</h2>\n' + "\n".join(blocks) + "\n</section>"

    def block(self, block: Block) -> str:
        match block:
            case Sentence():
                return self.sentence(block)
            case FactList():
                rows = "".join(f"<dt>{html(label)}</dt><dd>{_figure(figure)}</dd>" for label, figure in block.rows)
                return f'<dl class="facts">{rows}</dl>'
            case Tiles():
                tiles = "".join(
                    f"<div><dt>{html(label)}</dt><dd>{_figure(figure)}</dd><dd>{html(words)}</dd></div>"
                    for label, figure, words in block.rows
                )
                return f'<dl class="tiles">{tiles}</dl>'
            case ReportTable():
                return _table(block)
            case TextBlock():
                return _pre(block)
            case Picture():
                return _image(block)
            case Heading():
                return f"<h3>{html(block.text)}</h3>"
            case ReportFinding():
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
        source = f' title="{html(block.source)}"' if block.source else ""
        return f"<p{kind}{source}>{inside}</p>"

    def chart(self, chart: Chart) -> str:
        span = self.span if chart.x == "step" else None
        still = picture_of(chart, span)
        said = "".join(map(self.sentence, chart.said))
        unit = f'<span class="unit">{html(chart.unit)}</span>' if chart.unit else ""
        if not still:
            return f"<figure><figcaption>{html(chart.title)}</figcaption><p class='dim'>It has no point.</p></figure>"
        self.data["charts"][chart.slug] = self.chart_data(chart)
        return (
            f'<figure class="chart{" small" if chart.small else ""}" id="chart-{chart.slug}" data-chart="{chart.slug}">'
            f"<figcaption>{html(chart.title)} {unit}</figcaption>"
            f'<div class="still">{_keys(chart)}{still}</div>{said}</figure>'
        )

    def chart_data(self, chart: Chart) -> dict[str, Any]:
        lines = [
            {"label": line.label, "look": line.look, "tint": curve.tint, "points": line.points, "odd": line.odd,
             **self.columns(line)}
            for line, curve in zip(filter(_has, chart.lines), curves_of(chart), strict=True)
        ]  # fmt: skip
        return {
            "title": chart.title, "x": chart.x, "unit": chart.unit, "log": chart.log, "zero": chart.zero,
            "lines": lines,
            "flags": [{"step": flag.step, "severity": flag.severity, "number": flag.number, "message": flag.message}
                      for flag in chart.flags],
            "bands": [[self.columns(low), self.columns(high)] for low, high in chart.bands],
        }  # fmt: skip

    def columns(self, line: ReportLine) -> dict[str, Any]:
        """x as whole numbers, each less the one before, or as they are; y with six digits, NaN and Inf as words."""
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
        grid = block.grid
        found, low, high = heat.levels(grid)
        self.data["heats"][block.slug] = {
            "rows": list(grid.rows), "edges": [round(float(edge), 3) for edge in grid.edges],
            "levels": base64.b64encode(found.tobytes()).decode(), "low": low, "high": high, "log": grid.log,
            "how": block.how, "left": heat.LEFT, "right": heat.RIGHT, "top": heat.TOP, "wide": heat.WIDE,
            "each": heat.row_height(len(grid.rows)),
        }  # fmt: skip
        said = "".join(map(self.sentence, block.said))
        how = f"each cell: the {block.how} value of its steps"
        return (
            f'<figure class="heat" id="heat-{block.slug}" data-heat="{block.slug}">'
            f'<figcaption>{html(grid.title)} <span class="unit">{how}</span></figcaption>'
            f'<div class="map">{heat.picture(grid)}</div>{said}</figure>'
        )


def _beside(block: Block) -> type[Block] | None:
    """What stands beside its like: texts, images, small charts."""
    stands = isinstance(block, (TextBlock, Picture)) or (isinstance(block, Chart) and block.small)
    return type(block) if stands else None


_CODE = re.compile(r"`([^`]+)`")


def _words(text: str, own: bool) -> str:
    """Words as HTML; in those that Barograph wrote, what is in backticks is code."""
    return _CODE.sub(r"<code>\1</code>", html(text)) if own else html(text)


def _has(line: ReportLine) -> bool:
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
        return f'<span title="{html(figure.source)}">{html(figure.text)}</span>' if figure.source else html(figure.text)
    return f'<data value="{value!r}" title="{html(figure.source)}">{html(figure.text)}</data>'


def _table(block: ReportTable) -> str:
    rows = [[cell if isinstance(cell, str) else Markup(_figure(cell)) for cell in row] for row in block.rows]
    tall = " tall" if len(block.rows) > _TALL else ""
    return (
        f'<div class="scroll{tall}" role="region" aria-label="{html(block.label)}" tabindex="0">'
        f"{as_html(block.heads, rows, block.numeric)}</div>"
    )


def _pre(block: TextBlock) -> str:
    label = f'<p class="label">{html(block.label)}</p>' if block.label else ""
    prompt, body = html_block(block.body[: block.added]), html_block(block.body[block.added :])
    if prompt:
        body = f'<span class="prompt">{prompt}</span>{body}'
    return f'<div>{label}<pre tabindex="0">{body}</pre></div>'


def _image(block: Picture) -> str:
    high, wide = block.size
    words = f"{block.label}: {block.caption}" if block.caption else block.label
    return (
        f'<figure class="image"><img src="data:{block.content};base64,{base64.b64encode(block.data).decode()}" '
        f'alt="{html(words)}" width="{wide}" height="{high}">'
        f'<figcaption>{html(block.label)} <span class="unit">{html(block.caption)}</span></figcaption></figure>'
    )


def _finding(finding: ReportFinding) -> str:
    span = f"step {finding.step:,}" + (f" to {finding.last_step:,}" if finding.last_step > finding.step else "")
    sure = f", {percent(finding.confidence, 0)} sure" if finding.confidence is not None else ""
    parts = [
        f'<div class="finding {html(finding.severity)}" id="finding-{finding.number}"><h3>'
        f'<span class="severity">{finding.number} · {html(finding.severity)}</span>{html(finding.message)}</h3>'
        f'<p class="dim">{span} · {html(finding.rule)}{sure}</p>'
    ]
    for label, lines in (("Then", finding.story), ("Likely causes", finding.causes), ("What to try", finding.remedies)):
        if lines:
            parts.append(f"<p>{label}</p><ul>{''.join(f'<li>{html(line)}</li>' for line in lines)}</ul>")
    return "".join(parts) + "</div>"


def _keys(chart: Chart) -> str:
    """The legend of the still picture; of a single line its label, where that is not the title."""
    curves = curves_of(chart)
    return "" if len(curves) == 1 and curves[0].label == chart.title else keys(curves)


def curves_of(chart: Chart) -> list[ChartCurve]:
    """The lines that have a point, each in its colour: a faint one has that of the line that follows it."""
    curves: list[ChartCurve] = []
    tint = chart.tint
    for line in chart.lines:
        if _has(line):
            curves.append(ChartCurve(line.label, line.x, line.y, tint % COLOURS, line.look))
        tint += line.look != "faint"
    for at, (low, high) in enumerate(chart.bands):
        tint = (chart.tint + at) % COLOURS
        place = next((place for place, curve in enumerate(curves) if curve.tint == tint), None)
        if place is not None:
            curves[place] = replace(curves[place], band=(low.x, low.y, high.y))
    return curves


def picture_of(chart: Chart, span: tuple[float, float] | None = None) -> str:
    """The chart as it stands before the page's script runs, without one, and on paper. span: of x; else its own."""
    marks = [
        ChartMark(flag.step, flag.severity, flag.number, flag.message, f"#finding-{flag.number}")
        for flag in chart.flags
    ]
    axes = ChartAxes(chart.x, chart.unit, span, chart.log, chart.zero, marks=marks)
    curves = curves_of(chart)
    label = f"{escape(chart.title, 200)}: {described(curves[:4])}"
    return picture(curves, axes, label, chart.slug, SMALL if chart.small else WIDE)
