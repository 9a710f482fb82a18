"""Sealed parts as batches of rows on the server: which the server has, and a part's rows as it takes them.

In:   a client; sealed parts.
Out:  `SentBatch`es that count; bodies of INSERTs, and sums by which both sides know that they have the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barograph.core.lazy import lazy
from barograph.store.clickhouse import native
from barograph.store.clickhouse.client import Client, quote
from barograph.store.clickhouse.schema import BLOCK, LIVE_BATCHES
from barograph.store.columns import Array
from barograph.store.part import Part, numbers
from barograph.store.schema import StoreFile, sealed_name, visible

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

INSERT_ROWS = {"points": 500_000, "histograms": 4_096}
_HASH = (0x4CF2D2BAAE6DA887, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)


@dataclass(frozen=True)
class SentBatch:
    """A sealed part as the server has it."""

    log: str
    file: StoreFile
    number: int
    rows: int
    checksum: int
    header: dict[str, Any]


def where(project: str, run: str) -> str:
    return f"project = {quote(project)} AND run = {quote(run)}"


def arrived(client: Client, project: str, run: str) -> str:
    """A condition that rows of a run's points fulfil which count. The server chooses their batches: a statement that
    names those of a thousand ranks is longer than it takes."""
    chosen = LIVE_BATCHES.format(batches=f"batches WHERE {where(project, run)} AND kind = 'points'")
    within = "GLOBAL IN" if client.address.cluster else "IN"
    return f"{where(project, run)} AND batch {within} (SELECT batch FROM ({chosen}))"


def read_batches(
    client: Client, project: str, run: str, logs: Collection[str] | None = None
) -> tuple[list[SentBatch], int]:
    """A run's batches that count, by log, kind and number, of all logs or these; the highest number of any batch."""
    chosen = f" AND log IN ({', '.join(map(quote, logs)) or 'NULL'})" if logs is not None else ""
    found: dict[tuple[str, StoreFile], SentBatch] = {}
    highest = 0
    answer = client.rows(
        "SELECT log, kind, first, last, batch, rows, checksum, header FROM batches "
        f"WHERE {where(project, run)}{chosen} ORDER BY batch"
    )
    for log, kind, first, last, number, rows, checksum, header in answer:
        file = StoreFile(int(first), int(last), kind, sealed_name(int(first), int(last), kind))
        found[log, file] = SentBatch(log, file, int(number), int(rows), int(checksum), json.loads(header))
        highest = max(highest, int(number))
    counted = []
    for log, kind in sorted({(log, file.table) for log, file in found}):
        files = [file for name, file in found if name == log]
        counted += [found[log, file] for file in visible(files, kind)]
    return counted, highest


def batch_rows(project: str, run: str, batches: Sequence[SentBatch]) -> bytes:
    """The rows of `batches` that make these count, all at once."""
    rows = len(batches)
    numbers = {
        "first": ("UInt32", [batch.file.first for batch in batches]),
        "last": ("UInt32", [batch.file.last for batch in batches]),
        "batch": ("UInt64", [batch.number for batch in batches]),
        "rows": ("UInt64", [batch.rows for batch in batches]),
        "checksum": ("UInt64", [batch.checksum for batch in batches]),
    }
    return native.block(rows, {
        "project": native.repeated([project], [rows]), "run": native.repeated([run], [rows]),
        "log": native.texts(batch.log for batch in batches),
        "kind": native.texts(batch.file.table for batch in batches),
        **{name: native.numbers(kind, values) for name, (kind, values) in numbers.items()},
        "header": native.texts(json.dumps(batch.header) for batch in batches),
    })  # fmt: skip


def covered(file: StoreFile, batches: Sequence[StoreFile]) -> bool:
    """Whether these hold all numbers of a part, and so all of its rows."""
    numbers = set(range(file.first, file.last + 1))
    for other in batches:
        if file.first <= other.first and other.last <= file.last:
            numbers -= set(range(other.first, other.last + 1))
    return not numbers or any(other.covers(file) for other in batches)


class PartRows:
    """A part's rows as bodies of INSERTs. `rows` and `checksum`: of those so far."""

    def __init__(self, part: Part, kind: str, project: str, run: str, number: int):
        self.part, self.kind = part, kind
        self.rows, self.checksum = 0, 0
        self._project, self._run, self._number = project, run, number
        self._last: tuple[str, int, int, int] | None = None  # name, segment, step and seq of the row before

    def bodies(self) -> Iterator[bytes]:
        """Blocks of rows in the part's order, for `INSERT INTO … FORMAT Native`. Raises DamagedPart."""
        part = self.part
        size = INSERT_ROWS[self.kind]
        for start in range(0, part.rows, size):
            yield self._body(start, min(start + size, part.rows))

    def _body(self, start: int, stop: int) -> bytes:
        part, rows = self.part, stop - start
        low = int(np.searchsorted(part.starts, start, "right")) - 1
        high = int(np.searchsorted(part.starts, stop, "left"))
        names = part.names[low:high]
        edges = np.clip(part.starts[low : high + 1], start, stop)
        counts = np.diff(edges)
        values = ("value",) if self.kind == "points" else ("edges", "counts")
        tables = list(part.read(start, stop, ("step", "time", *values, "segment", "rank")))

        def column(name: str) -> Array:
            return np.concatenate([array for table in tables for array in numbers(table, name)])

        step, time = column("step"), column("time")
        segment, rank = (column(name).astype(np.int32) for name in ("segment", "rank"))
        seq = self._seq(names, edges - start, segment, step)
        held: dict[str, Any] = {}
        if self.kind == "points":
            held["value"] = column("value")
            inside = start - int(part.starts[low])  # of the first name, rows that have been sent
            lines, columns = _blocks(names, edges - start, inside, rank, segment, step, seq, time, held["value"])
        else:
            held = {name: [row for table in tables for row in _lists(table, name)] for name in values}
            lines = rows
            columns = {
                "name": native.repeated(names, counts.tolist()),
                "rank": native.numbers("Int32", rank),
                "segment": native.numbers("Int32", segment),
                "step": native.numbers("Int64", step),
                "seq": native.numbers("UInt32", seq),
                "time": native.numbers("Int64", time),
                **{name: native.lists(found) for name, found in held.items()},
            }
        columns |= {
            "project": native.repeated([self._project], [lines]),
            "run": native.repeated([self._run], [lines]),
            "batch": native.constant("UInt64", self._number, lines),
        }
        self.rows += rows
        self.checksum = (self.checksum + checksum(step=step, time=time, segment=segment, rank=rank, **held)) % (1 << 64)
        return native.block(lines, columns)

    def _seq(self, names: Sequence[str], edges: Array, segment: Array, step: Array) -> Array:
        """Of the rows of one name, segment and step, which one each is."""
        rows = len(step)
        begins = np.ones(rows, bool)
        begins[1:] = (segment[1:] != segment[:-1]) | (step[1:] != step[:-1])
        begins[edges[:-1]] = True
        place = np.arange(rows)
        seq = place - np.maximum.accumulate(np.where(begins, place, 0))
        if self._last is not None and self._last[:3] == (names[0], int(segment[0]), int(step[0])):
            first = int(np.flatnonzero(begins)[1]) if begins.sum() > 1 else rows
            seq[:first] += self._last[3] + 1
        self._last = names[-1], int(segment[-1]), int(step[-1]), int(seq[-1])
        return seq


def _blocks(
    names: Sequence[str], edges: Array, inside: int, rank: Array, segment: Array, step: Array, seq: Array, time: Array,
    value: Array,
) -> tuple[int, dict[str, tuple[str, bytes]]]:  # fmt: skip
    """Points as rows of `series`: how many rows, their columns. edges: where each name begins, and the end."""
    place = np.arange(len(step)) - np.repeat(edges[:-1], np.diff(edges))
    place[: edges[1]] += inside
    begins = place % BLOCK == 0
    begins[edges[:-1]] = True
    begins[1:] |= (segment[1:] != segment[:-1]) | (rank[1:] != rank[:-1])
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=len(step))
    of_name = np.diff(np.searchsorted(starts, edges)).tolist()
    with np.errstate(all="ignore"):
        single = value.astype(np.float32)
        exact = single.astype(np.float64).view(np.uint64) == value.view(np.uint64)
    short = np.logical_and.reduceat(exact, starts)
    points = np.repeat(short, lengths)
    return len(starts), {
        "name": native.repeated(names, of_name),
        "rank": native.numbers("Int32", rank[starts]),
        "segment": native.numbers("Int32", segment[starts]),
        "first": native.numbers("Int64", step[starts]),
        "step": native.arrays("Int64", lengths, step),
        "seq": native.arrays("UInt32", lengths, seq),
        "time": native.arrays("Int64", lengths, time),
        "single": native.arrays("Float32", lengths * short, single[points]),
        "double": native.arrays("Float64", lengths * ~short, value[~points]),
    }


def unfold(answer: dict[str, Any]) -> dict[str, Array]:
    """Rows of `series` as columns of points, `value` among them."""
    lengths = [len(steps) for steps in answer["step"]]
    found = {
        name: np.repeat(column, lengths) if isinstance(column, np.ndarray) else np.concatenate(column)
        for name, column in answer.items()
        if name not in ("single", "double")
    }
    values = [
        double if len(double) else single.astype(np.float64)
        for single, double in zip(answer["single"], answer["double"], strict=True)
    ]
    return found | {"value": np.concatenate(values)}


def checksum(*, step: Array, time: Array, segment: Array, rank: Array, **values: Any) -> int:
    """The sum over rows that `checksum_sql` makes on the server; values: `value`, or `edges` and `counts`."""
    place = step.astype(np.int64, copy=False) * 1000003
    for column, factor in ((time, 31), (segment, 7), (rank, 1)):
        place += column.astype(np.int64, copy=False) * factor
    place *= 2
    place += 1
    place = place.view(np.uint64)
    if "value" in values:
        bits = _hashed(np.ascontiguousarray(values["value"], "<f8").view("<u8"))
    else:
        bits = _bits(values["edges"]) * np.uint64(3) + _bits(values["counts"])
    place *= bits
    return int(place.sum(dtype=np.uint64))


def _hashed(bits: Array) -> Array:
    """ClickHouse's cityHash64 of one number: MurmurHash3's last step."""
    bits = bits ^ np.uint64(_HASH[0])
    for factor in _HASH[1:]:
        bits ^= bits >> np.uint64(33)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(33)
    return bits


def _bits(lists: Sequence[Array]) -> Array:
    result = np.empty(len(lists), np.uint64)
    for at, values in enumerate(lists):
        bits = np.ascontiguousarray(values, "<f8").view("<u8")
        result[at] = (bits * (2 * np.arange(1, len(bits) + 1, dtype=np.uint64) + np.uint64(1))).sum(dtype=np.uint64)
    return result


def _lists(table: Any, column: str) -> list[Array]:
    return [np.array(row.values, np.float64) for chunk in table.column(column).chunks for row in chunk]
