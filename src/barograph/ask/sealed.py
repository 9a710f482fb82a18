"""Series of a run that lies sealed and whole, read with as few looks at its folder as that takes.

In:   the folder of a run.
Out:  its series, or None if the run has to be read in the general way: it goes on, was resumed or forked,
      has several writers, or its log says more than its store.

`StoredRun` looks at everything twice, because a writer may be at work. For a thousand small runs that ended
this is most of the time; here each file is opened once. Checksums are verified as they are there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy

from barograph import segments
from barograph.logtext import scan
from barograph.record import HAS_NUMBERS, decode
from barograph.record import numbers as numbers_of
from barograph.spool import best_copy
from barograph.store.part import DamagedPart, GroupCache, Part, numbers
from barograph.store.schema import merge_spans, parse_names, visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.reading.tails import Columns

_CACHE_BYTES = 16 << 20
_TAIL_BYTES = 1 << 16  # the end of a run is some records without numbers; more is for the general way
_COLUMNS = ("step", "time", "value")


class Sealed:
    """The sealed files of one writer and one segment. Raises DamagedPart or OSError while reading."""

    def __init__(self, parts: list[Part], segment: int):
        self._parts = parts
        self._segment = segment

    def names(self) -> list[str]:
        """Every series, sorted."""
        return sorted({name for part in self._parts for name in part.names})

    def pieces(self, name: str, columns: Sequence[str] = _COLUMNS) -> Iterator[tuple[NDArray[Any], ...]]:
        """A series as it lies in the files, a row group at a time: so many of step, time (µs) and value as asked."""
        for part in self._parts:
            rows = part.find(name)
            for table in part.read(*rows, tuple(columns)) if rows is not None else ():
                yield tuple(_one(numbers(table, column)) for column in columns)

    def columns(self, name: str) -> Columns:
        """step, time (µs), value, segment of a series, sorted by step; empty if there is none."""
        pieces = list(self.pieces(name))
        if len(pieces) == 1:
            step, time, value = pieces[0]
        else:
            kinds = (numpy.int64, numpy.int64, numpy.float64)
            step, time, value = (
                numpy.concatenate([piece[at] for piece in pieces]) if pieces else numpy.empty(0, kind)
                for at, kind in enumerate(kinds)
            )
        return step, time, value, numpy.full(len(step), self._segment, numpy.int32)

    def close(self) -> None:
        for part in self._parts:
            part.close()


def _one(chunks: list[Any]) -> Any:
    return chunks[0] if len(chunks) == 1 else numpy.concatenate(chunks)


def open_sealed(folder: Path, cache_bytes: int = _CACHE_BYTES) -> Sealed | None:
    """A run's sealed series; None if it is not as simple as that. cache_bytes: of decoded row groups that are kept."""
    try:
        return _open(os.fspath(folder), cache_bytes)
    except (OSError, DamagedPart, msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return None


class _Stretch(msgspec.Struct):
    source: str | None = None


class _Writer(msgspec.Struct):
    log: str = "training.json"
    log_start: int = 0
    segment: int = 1


_decode_stretch = msgspec.json.Decoder(_Stretch).decode
_decode_writer = msgspec.json.Decoder(_Writer).decode


def _open(folder: str, cache_bytes: int) -> Sealed | None:
    writers = [name for name in os.listdir(f"{folder}/store") if name[0] != "."]
    stretches = [name for name in os.listdir(f"{folder}/{segments.FOLDER}") if name.endswith(".json")]
    if len(writers) != 1 or len(stretches) != 1:
        return None
    if _decode_stretch(_bytes(f"{folder}/{segments.FOLDER}/{stretches[0]}")).source:
        return None
    place = f"{folder}/store/{writers[0]}"
    files = visible(parse_names(os.listdir(place)), "points")
    if not files or any(file.table == "live" for file in files):
        return None
    writer = _decode_writer(_bytes(f"{place}/writer.json"))
    logs = [name for name in os.listdir(folder) if name.startswith("training") and name.endswith(".json")]
    if writer.log != "training.json" or writer.log_start > 1 or logs not in ([], ["training.json"]):
        return None
    cache = GroupCache(cache_bytes)
    parts = [Part(Path(place, file.name), cache) for file in files]
    if any(part.constant("segment") != writer.segment for part in parts):
        return None
    spans = merge_spans(span for part in parts for span in part.log_spans)
    if logs and _says_more(Path(folder, logs[0]), spans[-1][1] if spans else 0):
        return None
    return Sealed(parts, writer.segment)


def _bytes(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _says_more(log: Path, covered: int) -> bool:
    """Whether a log has numbers, or another segment, behind the byte up to which the store covers it."""
    with open(best_copy(log), "rb", buffering=0) as file:
        file.seek(covered)
        tail = file.read(_TAIL_BYTES)
    if len(tail) == _TAIL_BYTES:
        return True
    for item, _ in scan(tail):
        kind = item.get("log")
        if kind == "segment" or (kind in HAS_NUMBERS and next(iter(numbers_of(decode(item))), None) is not None):
            return True
    return False
