"""The last steps of a run, read back from its files: every record and row is there before its call returns.

In:   a run's log, its block files.
Out:  what a black box holds: the last steps in full, what was not finite, the batches.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import Any, NamedTuple

from barograph.core.record import Record, encode
from barograph.log.blocks import BlockReader, WideRow, pieces
from barograph.log.read import records_from
from barograph.training.blackbox.nonfinite import NonFinite
from barograph.training.blackbox.ring import Held, Ring

_FIRST, _MOST = 1 << 18, 16 << 20  # bytes of the log's end: read first, and read at most
_PIECES = 2  # block files from the end
_LASTING = frozenset({"finding", "alert", "oom", "stacks", "straggler", "segment"})  # kept though of an earlier step
_BATCH = ("fingerprint", "position", "epoch", "tokens_seen", "repeat_of", "sequences", "batches")


class Tail(NamedTuple):
    """batches: the `data` records by step, each with its number among those that were read."""

    held: Held
    bad: NonFinite
    batches: dict[int, dict[str, Any]]


def read_tail(log_file: Path | None, folder: Path, stem: str, steps: int, limit_bytes: int) -> Tail:
    """The last `steps` steps in at most `limit_bytes`. What can't be read is left out."""
    ring, bad = Ring(steps, limit_bytes), NonFinite()
    batches: dict[int, dict[str, Any]] = {}
    number = 0
    for item in _merged(_records(log_file, steps), _rows(folder, stem)):
        if isinstance(item, WideRow):
            ring.add_row(item.names, item.values, item.step, item.time)
            import numpy  # a process that has no trouble loads none

            bad.take_row(item.names, numpy.frombuffer(item.values, "<f8"), item.step)
            continue
        data = encode(item)
        if item.kind == "segment":
            ring.begin_branch(item.step)
        ring.add(item.step, data, item.kind in _LASTING)
        bad.take(item, data)
        if item.kind == "data":
            number += int(item.fields.get("batches", 1) or 1)
            seen = {"step": item.step, "number": number}
            batches[item.step] = seen | {name: item.fields[name] for name in _BATCH if name in item.fields}
    return Tail(ring.snapshot(), bad, batches)


def _records(log_file: Path | None, steps: int) -> list[tuple[int, Record]]:
    """The records of the log's end with the ends of each: of this many steps, if they are there."""
    result: list[tuple[int, Record]] = []
    if log_file is None:
        return result
    with contextlib.suppress(OSError, ValueError):
        size = os.stat(log_file).st_size
        length = _FIRST
        while True:
            start = max(0, size - length)
            result = [(end, record) for record, end in records_from(log_file, start)]
            if not start or length >= _MOST or len({record.step for _, record in result}) > steps:
                return result
            length *= 4
    return result


def _rows(folder: Path, stem: str) -> list[WideRow]:
    rows: list[WideRow] = []
    for _, path in pieces(folder, stem)[-_PIECES:]:
        with contextlib.suppress(OSError, ValueError):
            rows += [block for block in BlockReader(path).read() if isinstance(block, WideRow)]
    return rows


def _merged(records: list[tuple[int, Record]], rows: list[WideRow]) -> list[Record | WideRow]:
    first = records[0][0] if records else 0
    placed: list[tuple[int, int, Record | WideRow]] = [(end, 0, record) for end, record in records]
    placed += [(row.log, 1, row) for row in rows if row.log >= first]
    placed.sort(key=lambda item: item[:2])
    return list(itertools.chain(item for _, _, item in placed))
