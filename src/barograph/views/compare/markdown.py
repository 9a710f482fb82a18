"""A comparison as Markdown.

In:   a comparison.
Out:  a document for a pull request or a report; names of users can't become markup in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barograph.analysis.compare.words import (
    PLUS_MINUS,
    cell_words,
    change_words,
    common_end,
    ends_alike,
    has_interval,
    letter,
)
from barograph.core.text import change, number
from barograph.core.text import markdown as words
from barograph.views.compare.tables import unknown_words
from barograph.views.draw.table import as_markdown as table

if TYPE_CHECKING:
    from barograph.analysis.compare.comparison import Comparison


def document(comparison: Comparison) -> str:
    """The whole comparison."""
    blocks = [
        "# "
        + " and ".join(words(side.label) for side in comparison.sides[:3])
        + (" …" if len(comparison.sides) > 3 else "")
    ]
    sides = [
        (letter(at), words(side.label), str(len(side.members)), words(side.members[0].project))
        for at, side in enumerate(comparison.sides)
    ]
    blocks.append(table(("", "side", "runs", "project"), sides))
    said = [*comparison.verdict.sentences]
    said += [refusal.sentence for refusal in comparison.refusals if refusal.sentence not in said]
    said += comparison.equality_sentences()
    blocks += ["## Verdict", "\n".join(f"- {words(sentence)}" for sentence in said)]
    if len(comparison.sides) > 1:
        blocks.append("## What differs")
        blocks.append(_differences(comparison))
    if comparison.rows:
        blocks += ["## Figures", _figures(comparison)]
    notes = [*comparison.cautions, *comparison.notes]
    if notes:
        blocks += ["## Notes", "\n".join(f"- {words(sentence)}" for sentence in notes)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _differences(comparison: Comparison) -> str:
    found = comparison.differences
    shown = [item for item in found.between if item.role != "bookkeeping" and (item.part != "packages" or item.change)]
    rows = [
        ("change" if item.change is not None else "", words(item.part), words(item.key), *map(words, item.values[:6]))
        for item in shown
    ]
    heads = ("", "part", "key", *(letter(at) for at in range(min(6, len(comparison.sides)))))
    parts = [table(heads, rows)] if rows else ["No known difference."]
    if found.files:
        parts.append(f"Uncommitted changes differ in {words(', '.join(found.files[:10]))}.")
    if found.same:
        parts.append(f"The same: {', '.join(found.same)}.")
    parts += [f"Not known of {who}: {silent}." for who, silent in unknown_words(comparison)]
    return "\n\n".join(parts)


def _figures(comparison: Comparison) -> str:
    return _figure_table(comparison) + (f"\n\n{PLUS_MINUS}" if has_interval(comparison.rows) else "")


def _figure_table(comparison: Comparison) -> str:
    sides = range(len(comparison.sides))
    if len(comparison.sides) <= 4:
        heads = ["", "A", *(head for at in sides[1:] for head in (letter(at), f"{letter(at)} vs A"))]
        rows = [
            [words(row.name), cell_words(row.cells[0], row.unit)]
            + [text for at in sides[1:] for text in (cell_words(row.cells[at], row.unit), change_words(row, at))]
            for row in comparison.rows
        ]
        return table(heads, rows)
    by_side = {contrast.side: contrast for contrast in comparison.contrasts}
    alike = ends_alike(comparison.contrasts)
    there = () if alike else ("at", "A there", "there")
    heads = ["", "side", *(words(row.name) for row in comparison.rows[:6]), *there, "vs A", "p", "outcome"]
    rows = []
    for at in comparison.order():
        one = by_side.get(at)
        test = one.test if one is not None else None
        rows.append(
            [letter(at), words(comparison.sides[at].label)]
            + [cell_words(row.cells[at], row.unit) for row in comparison.rows[:6]]
            + list(() if alike else common_end(one) if one is not None else ("", "", ""))
            + [change(one.percent) if one is not None else "", number(test.p, 2) if test is not None else ""]
            + [one.outcome if one is not None else "baseline"]
        )
    return table(heads, rows)
