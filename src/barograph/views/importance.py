"""`barograph importance`: which keys explain a metric, on a terminal, as Markdown or as JSON.

In:   an `Importance`, or runs as typed.
Out:  text; an exit code.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from barograph.analysis.importance.explain import Importance, KeyImportance, importance
from barograph.core.record import json_text
from barograph.core.text import MISSING, bar, count, escape, listed, number, percent, table, wrapped
from barograph.core.text import markdown as words
from barograph.views.draw.table import as_markdown

_HEADS = ("KEY", "SHARE", "INTERVAL", "P", "BEST AT", "OUTCOME")
_BAR = 12


def page(found: Importance, columns: int = 100) -> str:
    """For a terminal of this many columns."""
    return "\n".join(_lines(found, max(60, columns)))


def _lines(found: Importance, columns: int) -> Iterator[str]:
    yield f"{escape(found.metric)} of {_whom(found)}"
    yield ""
    for sentence in found.sentences:
        yield from wrapped(escape(sentence), columns, "  ")
    if found.keys:
        yield ""
        heads = ["", *_HEADS]
        rows = [[bar(item.share, _BAR), *_cells(item)] for item in found.keys]
        shown = [[row[0], escape(row[1], 40), *row[2:5], escape(row[5], 30), row[6]] for row in rows]
        yield from ("  " + line for line in table([heads, *shown], right=(2, 3, 4)))
    rest = _rest(found)
    if rest:
        yield ""
        yield from wrapped(escape(rest), columns, "  ")


def _whom(found: Importance) -> str:
    several = f", {count(found.configurations, 'configuration')}" if found.configurations != found.runs else ""
    return count(found.runs, "run") + several


def _cells(item: KeyImportance) -> list[str]:
    interval = f"{percent(item.low, 0)} to {percent(item.high, 0)}"
    p = MISSING if item.p is None else number(item.p, 2)
    return [item.key, percent(item.share, 0), interval, p, item.best or "", item.outcome]


def _rest(found: Importance) -> str:
    parts = []
    if found.constant:
        parts.append(f"The same in all runs: {listed(found.constant, 5)}.")
    if found.apart:
        parts.append(f"Another value in almost every run, so not examined: {listed(found.apart, 5)}.")
    return " ".join(parts)


def markdown(found: Importance) -> str:
    """A document; names of users can't become markup in it."""
    blocks = [f"# What explains {words(found.metric)}", _whom(found).capitalize() + "."]
    blocks.append("\n".join(f"- {words(sentence)}" for sentence in found.sentences))
    if found.keys:
        rows = [[words(cell) for cell in _cells(item)] for item in found.keys]
        blocks.append(as_markdown([head.lower() for head in _HEADS], rows))
    if rest := _rest(found):
        blocks.append(words(rest))
    return "\n\n".join(blocks) + "\n"


def run_importance(
    paths: Sequence[str],
    *,
    dir: str | None = None,
    metric: str | None = None,
    value: str = "last",
    condition: str | None = None,
    level: float = 0.05,
    to: str = "text",
) -> int:
    """Print which keys explain the metric; returns the exit code 0.

    The arguments are those of `barograph.importance`; to: "text", "md" or "json".
    """
    found = importance(*paths, dir=dir, metric=metric, value=value, where=condition, level=level)
    if to == "json":
        print(json_text(found.as_dict()))
    elif to == "md":
        print(markdown(found), end="")
    else:
        print(page(found, min(120, shutil.get_terminal_size((100, 24)).columns)))
    return 0
