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


def document(made: Comparison) -> str:
    """The whole comparison."""
    blocks = ["# " + " and ".join(words(side.label) for side in made.sides[:3]) + (" …" if len(made.sides) > 3 else "")]
    sides = [
        (letter(at), words(side.label), str(len(side.members)), words(side.members[0].project))
        for at, side in enumerate(made.sides)
    ]
    blocks.append(table(("", "side", "runs", "project"), sides))
    said = [*made.verdict.sentences]
    said += [one.sentence for one in made.refusals if one.sentence not in said]
    said += made.equality_sentences()
    blocks += ["## Verdict", "\n".join(f"- {words(sentence)}" for sentence in said)]
    if len(made.sides) > 1:
        blocks.append("## What differs")
        blocks.append(_differences(made))
    if made.rows:
        blocks += ["## Figures", _figures(made)]
    notes = [*made.cautions, *made.notes]
    if notes:
        blocks += ["## Notes", "\n".join(f"- {words(sentence)}" for sentence in notes)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _differences(made: Comparison) -> str:
    found = made.differences
    shown = [one for one in found.between if one.role != "bookkeeping" and (one.part != "packages" or one.change)]
    rows = [
        ("change" if one.change is not None else "", words(one.part), words(one.key), *map(words, one.values[:6]))
        for one in shown
    ]
    heads = ("", "part", "key", *(letter(at) for at in range(min(6, len(made.sides)))))
    parts = [table(heads, rows)] if rows else ["No known difference."]
    if found.files:
        parts.append(f"Uncommitted changes differ in {words(', '.join(found.files[:10]))}.")
    if found.same:
        parts.append(f"The same: {', '.join(found.same)}.")
    parts += [f"Not known of {who}: {silent}." for who, silent in unknown_words(made)]
    return "\n\n".join(parts)


def _figures(made: Comparison) -> str:
    return _figure_table(made) + (f"\n\n{PLUS_MINUS}" if has_interval(made.rows) else "")


def _figure_table(made: Comparison) -> str:
    sides = range(len(made.sides))
    if len(made.sides) <= 4:
        heads = ["", "A", *(head for at in sides[1:] for head in (letter(at), f"{letter(at)} vs A"))]
        rows = [
            [words(row.name), cell_words(row.cells[0], row.unit)]
            + [text for at in sides[1:] for text in (cell_words(row.cells[at], row.unit), change_words(row, at))]
            for row in made.rows
        ]
        return table(heads, rows)
    by_side = {one.side: one for one in made.contrasts}
    alike = ends_alike(made.contrasts)
    there = () if alike else ("at", "A there", "there")
    heads = ["", "side", *(words(row.name) for row in made.rows[:6]), *there, "vs A", "p", "outcome"]
    rows = []
    for at in sides:
        one = by_side.get(at)
        test = one.test if one is not None else None
        rows.append(
            [letter(at), words(made.sides[at].label)]
            + [cell_words(row.cells[at], row.unit) for row in made.rows[:6]]
            + list(() if alike else common_end(one) if one is not None else ("", "", ""))
            + [change(one.percent) if one is not None else "", number(test.p, 2) if test is not None else ""]
            + [one.outcome if one is not None else "baseline"]
        )
    return table(heads, rows)
