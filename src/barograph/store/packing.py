"""Writing one sealed file.

In:   tables of rows in the order (name, segment, step, arrival).
Out:  a Parquet file with an index of its series (see `part`), safely on the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.core.lazy import lazy
from barograph.store.columns import Array, chunk_of, names_of
from barograph.store.part import pack_index
from barograph.store.schema import FORMAT, GROUP_ROWS, META_KEY, SERIES_KEY, sealed_schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    np, pa, pq = lazy("numpy"), lazy("pyarrow"), lazy("pyarrow.parquet")

MOST_INDEX_BYTES = 64 << 20  # Parquet libraries refuse metadata texts of about 100 MB


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
            sealed_schema(table),
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
        packed, index_bytes = pack_index(self._names, self._counts)
        if len(packed) > MOST_INDEX_BYTES:
            raise NamesTooLong(f"the names of {self.path.name} are too long for one sealed file")
        header = {
            "format": FORMAT,
            "table": self._table,
            **header,
            "rows": self.rows,
            "group": self._group,
            "index_bytes": index_bytes,
        }
        self._writer.add_key_value_metadata({META_KEY: json.dumps(header), SERIES_KEY: packed})
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
        field = sealed_schema(self._table).field("name")
        for start in range(0, rows, self._group):
            group = codes[start : min(start + self._group, rows)]
            # only the names in this row group: Arrow writes the whole dictionary it is given
            names = names_of(self._names[group[0] : group[-1] + 1])
            column = pa.DictionaryArray.from_arrays(chunk_of(group - group[0], pa.int32()), names)
            self._writer.write_table(table.slice(start, len(group)).add_column(0, field, column))
        self._waiting = [(codes[rows:], table.slice(rows))] if rows < len(codes) else []
        self._waiting_rows = len(codes) - rows
