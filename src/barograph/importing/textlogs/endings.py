"""Logs without any row that say what went wrong: a traceback, memory that ran out, a kill, steps that are skipped.

In:   a file in which no source has found a run.
Out:  a `FoundRun` without metrics, whose end and messages the doctor can show; none if the file says nothing of an end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barograph.importing.source import FoundRun
from barograph.importing.textlogs import choice, chunks, messages
from barograph.importing.textlogs.engine import Dialect
from barograph.importing.textlogs.plain import SOURCE

_FAR = 64 << 20  # bytes that are searched
_TABLES = frozenset({".csv", ".tsv", ".json"})  # a shell may have written any text there


def endings_in(path: Path) -> Iterator[tuple[Dialect, FoundRun]]:
    """The run that a text without rows is about, if it says how that ended."""
    if not choice.may_be_log(path) and path.suffix.lower() not in _TABLES:
        return
    own: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        for chunk in chunks.chunks(path):
            text = chunk.text
            if text.count(0) > len(text) // 10 or chunk.end > _FAR:
                return
            lines = text.split(b"\n")
            said = messages.messages(text, lines, lines, own)
            if any(message.end or message.memory or message.is_trouble for message in said):
                yield SOURCE, FoundRun(SOURCE.kind, path, "", choice.name_of(path))
                return
