"""What the pump has not handed over yet, read from the log file: every record is there before its call returns.

In:   a run's log file, and what the black box holds.
Out:  the same with the records of the last moments.
"""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path

from barograph.blackbox.nonfinite import NonFinite
from barograph.blackbox.ring import Held, StepDetail
from barograph.logtext import records_from
from barograph.record import Record, encode

_BYTES = 1 << 20  # of the log file's end


def with_tail(held: Held, bad: NonFinite, log_file: Path | None, steps: int) -> tuple[Held, NonFinite]:
    """What is held and what was not finite, with the records behind the last one that is held; `steps` at most.

    Neither of the two is changed. Where the file can't be read they come back as they are.
    """
    behind = _behind({_key(data) for data in held.records()}, log_file)
    if not behind:
        return held, bad
    bad = bad.copied()
    details = [copy.copy(detail) for detail in held.details]
    places = {detail.step: detail for detail in details}  # of two branches the later one
    for record, data in behind:
        detail = places.get(record.step)
        if detail is None and details and record.step <= max(places) - steps:
            detail = details[-1]  # of a step that is no longer held: a finding's, say
        if detail is None:
            detail = places[record.step] = StepDetail(record.step)
            details.append(detail)
        detail.records = [*detail.records, data]
        bad.take(record, data)
    return Held(details[-steps:], held.held_bytes, held.left_out), bad


def _behind(known: set[bytes], log_file: Path | None) -> list[tuple[Record, bytes]]:
    """The records behind the last known one; where none is known, those of the segment that the file ends with."""
    found: list[tuple[Record, bytes]] = []
    with contextlib.suppress(OSError, ValueError):
        if log_file is not None:
            start = max(0, log_file.stat().st_size - _BYTES)
            for record, _ in records_from(log_file, start):
                data = encode(record)
                if _key(data) in known or (record.kind == "segment" and not known):
                    found.clear()
                else:
                    found.append((record, data))
    return found


def _key(data: bytes) -> bytes:
    """Kind, time and step: what a record begins with."""
    return b",".join(data.split(b",", 3)[:3])
