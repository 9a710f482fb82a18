"""The commands `barograph ls` and `barograph show`.

In:   runs and words as typed.
Out:  lines of text, or JSON; an exit code.
"""

from __future__ import annotations

from collections.abc import Sequence

from barograph.core.record import json_text
from barograph.core.text import escape, size, table
from barograph.query.catalog import find, runs
from barograph.query.folders import place_name
from barograph.query.groups import groups, split_keys
from barograph.query.losses import run_losses
from barograph.query.media import MediaItem
from barograph.query.search import choose
from barograph.training.blackbox.files import read_blackbox
from barograph.views import overview
from barograph.views.blackbox import lines


def run_ls(
    words: Sequence[str],
    *,
    dir: str | None = None,
    project: str | None = None,
    tag: str | None = None,
    archived: bool = False,
    group: str | None = None,
    as_json: bool = False,
) -> int:
    """Print a row for each run; returns the exit code 0. words: only runs that have them all, or meet a condition.
    archived: those too. group: a row for each group of runs that have the same values of these keys instead."""
    every = [run for run in runs(dir, project, tag=tag) if archived or not run.archived]
    chosen = choose(every, words) if words else every
    if group is not None and chosen:
        found = groups(chosen, split_keys(group))
        print(json_text([overview.group_row(one) for one in found]) if as_json else overview.group_table(found))
        return 0
    rows = [overview.summary(run) for run in chosen]
    if as_json:
        print(json_text(rows))
    elif not rows and every:
        print(f"None of {len(every):,} runs has that; `barograph ls` shows them all.")
    elif not rows:
        where = place_name(dir or None)
        print(f"No runs in {where} yet. `barograph demo` makes one.")
    else:
        print(overview.table(rows))
    return 0


def run_show(
    name: str,
    *,
    dir: str | None = None,
    blackbox: bool = False,
    names: bool = False,
    media: bool = False,
    as_json: bool = False,
) -> int:
    """Print a run's page; returns the exit code 0. blackbox: its last steps before an incident instead; names: those
    of all its series; media: its images, sounds, tables and other files. Raises KeyError with one sentence."""
    run = find(name, dir)
    if media:
        found = run.media()
        if as_json:
            print(json_text([item.as_dict() for item in found]))
        else:
            print("\n".join(_media_lines(found)) or f"{run.id} has no images, sounds, tables or other files")
    elif as_json:
        print(json_text(overview.detail(run)))
    elif blackbox:
        boxes = read_blackbox(run.dir)
        if not boxes:
            raise KeyError(f"{run.id} has no black box: no incident has written one")
        losses = run_losses(run)
        print("\n\n".join("\n".join(lines(box, losses=losses)) for box in boxes))
    elif names:
        print("\n".join(escape(each) for each in run.names()))
    else:
        print(overview.page(run))
    return 0


def _media_lines(found: Sequence[MediaItem]) -> list[str]:
    rows = [("name", "type", "step", "size", "file", "caption")] if found else []
    for item in found:
        shown = size(item.bytes) if item.is_there else "gone"
        rows.append((escape(item.name), item.type, f"{item.step:,}", shown, item.path.name, escape(item.caption, 60)))
    return list(table(rows, right=(2, 3)))
