"""The command `barograph compare`.

In:   runs, files and folders as typed, and what to compare.
Out:  a comparison on the terminal, or as Markdown, HTML or JSON, printed or in a file; an exit code.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from barograph.analysis.compare import equality, statistics
from barograph.analysis.compare.comparison import Comparison, compare
from barograph.core.record import json_text
from barograph.core.terminal import wants_colour

FORMATS = ("text", "md", "html", "json")
UNEQUAL = 3


def run_compare(
    paths: Sequence[str],
    *,
    dir: str | None = None,
    x: str | None = None,
    metric: str | None = None,
    group: str | None = None,
    baseline: str | None = None,
    target: float | None = None,
    level: float = statistics.LEVEL,
    equal: bool = False,
    tolerance: float | None = None,
    anyway: bool = False,
    to: str = "text",
    out: str | None = None,
) -> int:
    """Compare, and print or write the result; returns the exit code: 0, or 3 if runs that should be equal are not.

    The arguments are those of `comparison.compare`; with a tolerance, differences within it are none.
    to: one of `FORMATS`. out: a file instead of the terminal.
    Raises KeyError, ValueError and OSError with one sentence.
    """
    if to not in FORMATS:
        raise ValueError(f"a comparison is written as one of {', '.join(FORMATS)}, not as {to!r}")
    made = compare(
        *paths,
        dir=dir,
        x=x,
        metric=metric,
        group=group,
        baseline=baseline,
        target=target,
        level=level,
        equal=equal,
        tolerance=equality.TOLERANCE if tolerance is None else tolerance,
        anyway=anyway,
    )
    text = _written(made, to, out is not None)
    if out is None:
        print(text.rstrip("\n"))
    else:
        Path(out).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        print(f"{out}: {len(text.encode()):,} bytes")
    return UNEQUAL if equal and not equality.are_equal(made.equal or (), exact=tolerance is None) else 0


def _written(comparison: Comparison, to: str, to_file: bool) -> str:
    if to == "md":
        return comparison.markdown()
    if to == "html":
        return comparison.html()
    if to == "json":
        return json_text(comparison.as_dict())

    width = 100 if to_file else min(120, shutil.get_terminal_size((100, 24)).columns)
    return comparison.text(width, not to_file and sys.stdout.isatty() and wants_colour())
