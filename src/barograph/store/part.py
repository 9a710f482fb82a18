"""One sealed file: written once by the sealer, sorted by series; read by anyone.

In:   tables of rows in the order (name, segment, step, arrival), or a path.
Out:  a Parquet file with an index of its series, or the rows of one series out of it.

The index stands in the file's own metadata (JSON, zstd, base64: metadata must be text for some
readers): every name and its number of rows. So one series is found without reading the column of
names, and without row-group statistics, which writers may cut short or leave out for long names.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import json
import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barograph.store.live import Array
from barograph.store.schema import FORMAT, GROUP_ROWS, META_KEY, SEALED_SCHEMAS, SERIES_KEY

MOST_INDEX_BYTES = 64 << 20  # Parquet libraries refuse metadata texts of about 100 MB


class DamagedPart(Exception):
    """The file is not a whole sealed file of this format."""


class NamesTooLong(ValueError):
    """The index of a sealed file would be longer than Parquet libraries read."""


class PartWriter:
    """Writes rows into whole row groups, then the index, then has the file on the disk.

    `rows` and `series` are what will come, to choose how times are packed.
    """

    def __init__(self, path: Path, table: str, rows: int, series: int):
        self.path = path
        self.rows = 0
        self._table = table
        self._group = GROUP_ROWS[table]
        self._names: list[str] = []
        self._counts: list[int] = []
        self._waiting: list[tuple[Array, Any]] = []  # series numbers and rows that fill no row group yet
        self._waiting_rows = 0
        # Series of one part share their times. Where several series lie in one row group, zstd finds the
        # repeats in plainly split bytes (0.6 bytes a point); where one fills it, deltas are smaller.
        shared_times = rows <= series * (self._group // 4)
        value_encodings = (
            {"value": "BYTE_STREAM_SPLIT"}
            if table == "points"
            else {"edges.list.element": "BYTE_STREAM_SPLIT", "counts.list.element": "BYTE_STREAM_SPLIT"}
        )
        self._writer = pq.ParquetWriter(
            path,
            SEALED_SCHEMAS[table],
            compression="zstd",
            compression_level=3,
            use_dictionary=["name", "segment", "rank"],
            column_encoding={
                "step": "DELTA_BINARY_PACKED",
                "time": "BYTE_STREAM_SPLIT" if shared_times else "DELTA_BINARY_PACKED",
                **value_encodings,
            },
            write_statistics=["name", "step", "segment"],
            write_page_checksum=True,
            data_page_size=4 << 20,  # a page a column and row group: repeats are found within a page
        )

    def add(self, names: Sequence[str], counts: Sequence[int], rows: Any) -> None:
        """Append the rows of these series; the first may continue the last series added before."""
        codes = np.zeros(len(names), np.int32)
        for place, (name, count) in enumerate(zip(names, counts, strict=True)):
            if not count:
                continue
            if self._names and self._names[-1] == name:
                self._counts[-1] += int(count)
            else:
                self._names.append(name)
                self._counts.append(int(count))
            codes[place] = len(self._names) - 1
        self._waiting.append((np.repeat(codes, counts), rows))
        self._waiting_rows += rows.num_rows
        self.rows += rows.num_rows
        if self._waiting_rows >= self._group:
            self._write(self._waiting_rows // self._group * self._group)

    def close(self, header: dict[str, Any]) -> None:
        """Write the rest and the index. Raises NamesTooLong."""
        self._write(self._waiting_rows)
        index = json.dumps({"names": self._names, "rows": self._counts}, ensure_ascii=False).encode()
        packed = pa.compress(index, codec="zstd", asbytes=True)
        if len(packed) > MOST_INDEX_BYTES:
            raise NamesTooLong(f"the names of {self.path.name} are too long for one sealed file")
        header = {
            "format": FORMAT,
            "table": self._table,
            **header,
            "rows": self.rows,
            "group": self._group,
            "index_bytes": len(index),
        }
        self._writer.add_key_value_metadata({META_KEY: json.dumps(header), SERIES_KEY: base64.b64encode(packed)})
        self._writer.close()
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def abort(self) -> None:
        """Give up and remove the file."""
        with contextlib.suppress(OSError, ValueError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _write(self, rows: int) -> None:
        """Write the first `rows` waiting rows, a row group at a time."""
        if not rows:
            return
        codes = np.concatenate([part for part, _ in self._waiting])
        table = pa.concat_tables([part for _, part in self._waiting]).combine_chunks()
        field = SEALED_SCHEMAS[self._table].field("name")
        for start in range(0, rows, self._group):
            group = codes[start : min(start + self._group, rows)]
            # only the names in this row group: Arrow writes the whole dictionary it is given
            names = pa.array(self._names[group[0] : group[-1] + 1], pa.string())
            column = pa.DictionaryArray.from_arrays(pa.array(group - group[0]), names)
            self._writer.write_table(table.slice(start, len(group)).add_column(0, field, column))
        self._waiting = [(codes[rows:], table.slice(rows))] if rows < len(codes) else []
        self._waiting_rows = len(codes) - rows


class GroupCache:
    """Decoded row groups, the most recently used up to a number of bytes."""

    def __init__(self, limit_bytes: int):
        self._limit = limit_bytes
        self._held = 0
        self._tables: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any) -> Any:
        table = self._tables.get(key)
        if table is not None:
            self._tables.move_to_end(key)
        return table

    def put(self, key: Any, table: Any) -> None:
        self._tables[key] = table
        self._held += table.nbytes
        while self._held > self._limit and len(self._tables) > 1:
            self._held -= self._tables.popitem(last=False)[1].nbytes


_serial = itertools.count()  # tells a part from another one that had its path


class Part:
    """A sealed file, opened. `header`: what the sealer said of it. `names`: its series, sorted.

    Raises FileNotFoundError if it is gone, DamagedPart if it is not a whole file of this format.
    """

    def __init__(self, path: Path, cache: GroupCache):
        self.path = path
        self._cache = cache
        self._serial = next(_serial)
        try:
            self._file = pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
            metadata = self._file.metadata.metadata or {}
            self.header: dict[str, Any] = json.loads(metadata[META_KEY])
            self.rows = int(self.header["rows"])
            self._group = int(self.header["group"])
            groups = -(-self.rows // self._group)
            if self.header["format"] > FORMAT:
                raise DamagedPart(f"{path.name} was written by a newer version of Barograph")
            if self._file.metadata.num_rows != self.rows or self._file.num_row_groups != groups:
                raise DamagedPart(f"{path.name} is damaged: its rows don't match its index")
            packed = base64.b64decode(metadata[SERIES_KEY])
            index = json.loads(pa.decompress(packed, self.header["index_bytes"], codec="zstd", asbytes=True))
            self.names: list[str] = index["names"]
            self.starts = np.concatenate([[0], np.cumsum(np.array(index["rows"], np.int64))])
        except DamagedPart:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ESTALE):
                raise
            raise DamagedPart(f"{path.name} is not a sealed file of this store, or damaged ({error})") from error
        self.log_spans = [(int(start), int(end)) for start, end in self.header.get("log", ())]

    def find(self, name: str) -> tuple[int, int] | None:
        """The first row of a series and the one behind its last; None if it is not in the file."""
        place = bisect_left(self.names, name)
        if place == len(self.names) or self.names[place] != name:
            return None
        return int(self.starts[place]), int(self.starts[place + 1])

    def read(self, start: int, stop: int, columns: tuple[str, ...]) -> list[Any]:
        """Rows `start` to `stop` (not included) as tables in order, each out of one row group.

        Raises DamagedPart if bytes of them are not as they were written.
        """
        pieces = []
        for group in range(start // self._group, -(-stop // self._group) if stop > start else 0):
            key = (self._serial, group, columns)
            table = self._cache.get(key)
            if table is None:
                try:
                    table = self._file.read_row_group(group, columns=list(columns), use_threads=False)
                except (pa.ArrowException, OSError, ValueError) as error:
                    raise DamagedPart(f"{self.path.name} is damaged ({error})") from error
                self._cache.put(key, table)
            first = group * self._group
            low, high = max(start - first, 0), min(stop - first, table.num_rows)
            pieces.append(table.slice(low, high - low))
        return pieces

    def constant(self, column: str) -> int | None:
        """The only value of `segment` or `rank` in the file, if there is only one."""
        value = self.header.get(column)
        return None if value is None else int(value)

    def close(self) -> None:
        self._file.close(force=True)


def numbers(table: Any, column: str) -> list[Array]:
    """A column's chunks as arrays over Arrow's memory; times as µs."""
    chunks = table.column(column).chunks
    if column == "time":
        chunks = [chunk.view(pa.int64()) for chunk in chunks]
    return [chunk.to_numpy() for chunk in chunks]
