"""The command `barograph lineage`, and the part of `barograph show` that tells of segments and forks.

In:   a stored run.
Out:  lines of text, or JSON.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from barograph.analysis.lineage.tree import lineage
from barograph.core.record import json_text
from barograph.core.terminal import wants_colour
from barograph.query.catalog import find
from barograph.query.stored import StoredRun
from barograph.views.lineage.drawing import lines


def run_lineage(name: str, *, dir: str | None = None, as_json: bool = False) -> int:
    """Print the tree that a run belongs to and what it took; returns the exit code 0.

    dir: the folder of runs where forks are looked for; by default the one that the run lies in. Raises KeyError with
    one sentence.
    """
    run = find(name, dir)
    made = lineage(run, _root(run, dir))
    if as_json:
        print(json_text(made.as_dict()))
        return 0

    colour = sys.stdout.isatty() and wants_colour()
    print("\n".join(lines(made, min(120, shutil.get_terminal_size((100, 24)).columns), colour)))
    return 0


def page_lines(run: StoredRun) -> list[str]:
    """What a page about a run says of its lineage: nothing for a run that was started once and has no forks.

    Forks are looked for in the run's own project, so that a page of one among thousands does not wait.
    """
    made = lineage(run, run.dir.resolve().parent)
    if made.is_plain:
        return []
    return ["", *lines(made, min(120, shutil.get_terminal_size((100, 24)).columns), most_runs=6)]


def _root(run: StoredRun, dir: str | None) -> Path | None:
    """The folder that was given, if the run lies in it."""
    if dir is None:
        return None
    root = Path(dir).resolve()
    return root if root in run.dir.resolve().parents else None
