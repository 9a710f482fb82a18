"""A report as Markdown: a file for each section, and `report.md` that joins them.

In:   a report's content.
Out:  name of a file → its text; names of users can't become markup in it.
"""

from __future__ import annotations

import re

import numpy as np

from barograph.core.text import markdown as words
from barograph.core.text import number, one_line, sparkline
from barograph.views.draw.table import as_markdown as table
from barograph.views.report.content import (
    Block,
    Chart,
    FactList,
    Figure,
    Heading,
    Heat,
    Picture,
    Report,
    ReportFinding,
    ReportTable,
    Section,
    Sentence,
    TextBlock,
    Tiles,
)

_MARK = {"bad": "**✖** ", "warn": "**▲** ", "good": "", "dim": "", "": ""}
_KEPT = "\n\t"  # of a text's control characters
_FENCE = re.compile(r"`{3,}")


def files(report: Report) -> dict[str, str]:
    """`report.md`, and `{section}.md` of each section; `report.md` holds them all, in their order."""
    made = {f"{item.slug}.md": section(item) for item in report.sections}
    head = [f"# {words(report.title)}", words(report.subtitle)]
    links = [f"- [{words(item.title)}]({item.slug}.md)" for item in report.sections]
    joined = "\n\n".join([*head, "\n".join(links), *(text.strip() for text in made.values()), f"{report.made}."])
    return {"report.md": joined + "\n", **made}


def section(one: Section) -> str:
    """One section."""
    parts = [f"## {words(one.title)}"]
    run: list[str] = []
    for block in one.blocks:
        if isinstance(block, Sentence):
            run.append(f"{_MARK.get(block.mood, '')}{_sentence(block)}")
            continue
        if run:
            parts.append("\n".join(f"- {line}" for line in run) if len(run) > 1 else run[0])
            run = []
        parts.append(_block(block))
    if run:
        parts.append("\n".join(f"- {line}" for line in run) if len(run) > 1 else run[0])
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> str:
    match block:
        case FactList():
            return "\n".join(f"- {words(label)}: {words(figure.text)}" for label, figure in block.rows)
        case Tiles():
            rows = [(words(label), f"**{words(figure.text)}**", words(said)) for label, figure, said in block.rows]
            return table(("", "", ""), rows)
        case ReportTable():
            return table([words(head) for head in block.heads], [[_cell(cell) for cell in row] for row in block.rows])
        case TextBlock():
            fence = "`" * max(3, 1 + max((len(found) for found in _FENCE.findall(block.body)), default=2))
            label = f"{words(block.label)}:\n\n" if block.label else ""
            return f"{label}{fence}text\n{one_line(block.body, _KEPT)}\n{fence}"
        case Picture():
            high, wide = block.size
            said = f": {words(block.caption)}" if block.caption else ""
            return f"{words(block.label)}{said} (an image of {wide} × {high}, in the HTML report)"
        case Heading():
            return f"### {words(block.text)}"
        case ReportFinding():
            return _finding(block)
        case Chart():
            return _chart(block)
        case Heat():
            said = " ".join(words(item.text) for item in block.said)
            rows_ = f"{len(block.grid.rows)} rows; the heat map is in the HTML report"
            return f"**{words(block.grid.title)}** ({rows_}). {said}".strip()
        case Sentence():
            return _sentence(block)


def _sentence(block: Sentence) -> str:
    """Its words; those that Barograph wrote may hold code in backticks."""
    if block.source:
        return words(block.text)
    return "".join(
        words(part).replace("\\`", "`") if isinstance(part, str) else words(part.text) for part in block.parts
    )


def _cell(cell: str | Figure) -> str:
    return words(cell if isinstance(cell, str) else cell.text)


def _chart(chart: Chart) -> str:
    """What a chart shows, in a text: each line as a row of blocks with its ends."""
    rows = []
    for line in chart.lines:
        finite = line.y[np.isfinite(line.y)]
        if line.look == "faint" or not len(line.x):
            continue
        drawn = sparkline(line.y.tolist(), 24)
        ends = ("", "", "", "")
        if len(finite):
            ends = tuple(map(number, (finite[0], finite[-1], finite.min(), finite.max())))  # type: ignore[assignment]
        rows.append((words(line.label), f"`{drawn}`", *ends, f"{line.points or len(line.x):,}"))
    heads = (words(chart.title), f"along {words(chart.x)}s", "first", "last", "least", "greatest", "points")
    said = "\n\n".join(words(item.text) for item in chart.said)
    return table(heads, rows) + (f"\n\n{said}" if said else "")


def _finding(finding: ReportFinding) -> str:
    span = f"step {finding.step:,}" + (f" to {finding.last_step:,}" if finding.last_step > finding.step else "")
    lines = [f"{finding.number}. **{finding.severity}**, {span}, `{words(finding.rule)}`: {words(finding.message)}"]
    for label, told in (("then", finding.story), ("likely cause", finding.causes), ("to try", finding.remedies)):
        lines += [f"   - {label}: {words(line)}" for line in told]
    return "\n".join(lines)
