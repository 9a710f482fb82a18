"""Reading logs of other tools without importing them.

In:   a file or folder.
Out:  its runs, with the interface of stored ones. They are kept in a temporary folder until the process ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from barograph.core import options as config
from barograph.core.aliases import parse_aliases
from barograph.core.segments import FOLDER as SEGMENTS
from barograph.importing import temporary
from barograph.importing.collect import collect
from barograph.importing.registry import identify
from barograph.importing.source import Unread
from barograph.query.stored import StoredRun

_ARCHIVES = frozenset({".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".7z"})


def read(
    path: str | os.PathLike[str],
    *,
    kind: str | None = None,
    aliases: dict[str, str | list[str]] | None = None,
    logged: bool = True,
    endings: bool = False,
) -> list[StoredRun]:
    """The runs in a file or folder of any kind that `barograph import` reads, in the order of their paths.

    kind: take it for this kind of log. aliases: canonical name → the names of yours that mean it; they go
    before those of the option `aliases` (environment, YAML file). logged: False for rows as columns alone, in this
    process's memory where they are few: faster where nobody asks for the lines of the run's log or for its files.
    endings: a text without metrics that says how a program ended is a run as well.
    A folder that is a run already is given as it is. Raises OSError if the path is not there or can't be read,
    ValueError if nothing in it is understood.
    """
    given = Path(path)
    if kind is None and (given / SEGMENTS).is_dir():
        return [StoredRun(given)]
    known = parse_aliases(config.load().aliases, "the option aliases") | parse_aliases(aliases or {})
    problems: list[Unread] = []
    found = list(identify(given, kind, problems))
    if not found and endings and given.is_file():
        from barograph.importing.textlogs.endings import endings_in  # only where all sources found nothing

        found = list(endings_in(given))
    if not found:
        raise ValueError(f"nothing in {path} is a training log that can be read{_because(given, problems)}")
    root = temporary.folder()
    how: dict[str, Any] = {"aliases": known, "logged": logged, "here": not logged}
    return [StoredRun(collect(source, item, root, **how)[0]) for source, item in found]


def _because(path: Path, problems: list[Unread]) -> str:
    if path.suffix.lower() in _ARCHIVES:
        return "; if it is an archive of logs, unpack it first"
    if problems:
        return f" ({problems[0].file}: {problems[0].why})"
    from barograph.importing.textlogs.unnamed import unnamed_in  # only where all sources found nothing

    lists = unnamed_in(path) if path.is_file() else None
    if lists is None:
        return ""
    return f": {lists.number:,} lines hold numbers without a name, the first one is line {lists.line:,}: {lists.text}"
