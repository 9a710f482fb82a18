"""Small sealed parts of one folder become bigger ones.

In:   a folder of the store, locked by the caller.
Out:  a merged part in place of several neighbours; what a sealer that was killed left behind is removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from barograph.store.folder import Folder
from barograph.store.packing import NamesTooLong
from barograph.store.part import DamagedPart, GroupCache, Part
from barograph.store.schema import (
    TABLES,
    TEMPORARY_PREFIX,
    StoreFile,
    hidden,
    merge_spans,
    parse_names,
    sealed_name,
    visible,
)
from barograph.store.sort import merge_windows
from barograph.store.write import write_part

MERGE_PARTS = 8  # this many neighbours become one; fewer would rewrite too often
MERGE_ROWS = 100_000_000  # no sealed file grows beyond this


def clean(folder: Path) -> None:
    """Remove temporary files, and parts whose rows are all in a merged one."""
    names = os.listdir(folder)
    for name in names:
        if name.startswith(TEMPORARY_PREFIX):
            os.remove(folder / name)
    cache = GroupCache(0)
    readable = []
    for file in parse_names(names):
        try:
            Part(folder / file.name, cache).close()
        except DamagedPart:  # it must hide nothing
            continue
        readable.append(file)
    for file in hidden(readable):
        os.remove(folder / file.name)


def merge_all(folder: Path) -> list[Path]:
    """Merge what is worth it. The new parts."""
    merged = []
    for table in TABLES:
        with contextlib.suppress(NamesTooLong):
            while name := _merge(folder, table):
                merged.append(folder / name)
    return [path for path in merged if path.exists()]


def _merge(folder: Path, table: str) -> str | None:
    """Merge one group of neighbouring sealed files. None if there is nothing worth merging."""
    files = parse_names(os.listdir(folder))
    cache = GroupCache(8 << 20)
    parts: dict[StoreFile, Part] = {}
    try:
        candidates = visible(files, table)
        for file in candidates:
            with contextlib.suppress(DamagedPart):
                parts[file] = Part(folder / file.name, cache)
        if any(part.header.get("pending") for part in parts.values()):
            committed = Folder(folder, cache, {}).committed()
            candidates = [file for file in candidates if file.last <= committed]
        group = choose([(file, parts[file].rows if file in parts else -1) for file in candidates])
        if not group:
            return None
        chosen = [parts[file] for file in group]
        series, rows, windows = merge_windows(chosen, table)
        if windows is None:
            return None
        name = sealed_name(group[0].first, group[-1].last, table)
        try:
            write_part(folder, name, table, series, rows, windows, joined_headers([part.header for part in chosen]))
        except DamagedPart:  # found while reading; the sealer verifies parts when a run has ended
            return None
    finally:
        for part in parts.values():
            part.close()
    for file in group:
        os.remove(folder / file.name)
    return name


def joined_headers(headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a merged part says it holds."""
    wide: dict[str, list[tuple[int, int]]] = {}
    marks: dict[int, Any] = {}
    first: dict[str, list[int]] = {}
    for header in headers:
        for name, spans in (header.get("wide") or {}).items():
            wide.setdefault(name, []).extend((int(start), int(end)) for start, end in spans)
        marks.update((mark[0], mark) for mark in header.get("segments") or ())
        for segment, held in (header.get("first") or {}).items():
            first[segment] = min(first.get(segment, held), held)
    joined: dict[str, Any] = {
        "log": merge_spans((int(start), int(end)) for header in headers for start, end in header.get("log") or ()),
        "wide": {name: merge_spans(spans) for name, spans in wide.items()},
        "first": first,
    }
    if all("segments" in header for header in headers):
        joined["segments"] = [marks[end] for end in sorted(marks)]
    return joined


def choose(files: Iterable[tuple[StoreFile, int]]) -> list[StoreFile]:
    """Which neighbours to merge, out of (file, rows) by number; rows < 0 marks a file to keep apart.

    At least MERGE_PARTS neighbours of which none holds more than half of the rows: each row is then
    rewritten only when its file at least doubles. The longest such group of at most MERGE_ROWS.
    """
    files = list(files)
    best: list[StoreFile] = []
    for start in range(len(files)):
        total = largest = 0
        for stop in range(start, len(files)):
            rows = files[stop][1]
            if rows < 0 or total + rows > MERGE_ROWS:
                break
            total, largest = total + rows, max(largest, rows)
            length = stop - start + 1
            if length >= MERGE_PARTS and length > len(best) and 2 * largest <= total:
                best = [file for file, _ in files[start : stop + 1]]
    return best
