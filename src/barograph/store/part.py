"""One sealed file, read by anyone: the rows of one series out of many.

In:   the path of a Parquet file that the sealer wrote, sorted by series.
Out:  its index of series; rows as Arrow tables, a row group at a time, remembered in a bounded cache.

The index is in the file's own metadata (as base64: metadata must be text for some readers): every
name and its number of rows. So one series is found without reading the column of names, and without
row-group statistics, which writers may cut short or leave out for long names.
"""

from __future__ import annotations

import base64
import errno
import json
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.core.lazy import lazy
from barograph.store.columns import SERIALS, Array, plain
from barograph.store.schema import FORMAT, META_KEY, SERIES_KEY, TABLES, sealed_schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
else:
    np, pa = lazy("numpy"), lazy("pyarrow")


class DamagedPart(Exception):
    """The file is not a whole sealed file of this format."""


def pack_index(names: list[str], counts: list[int]) -> tuple[bytes, int]:
    """The index of a file's series as text, and how many bytes it has unpacked.

    8 bytes a series for its number of rows, then a line for every name, as JSON writes it inside quotes.
    """
    lines = b"\n".join([b"", *map(_line, names), b""]) if names else b""
    plain = np.array([len(names), *counts], "<i8").tobytes() + lines
    return base64.b64encode(pa.compress(plain, codec="zstd", asbytes=True)), len(plain)


def unpack_index(packed: bytes, size: int) -> tuple[bytes, Array]:
    """Lines of names, a line break before the first and behind the last; the numbers of rows."""
    plain = pa.decompress(base64.b64decode(packed), size, codec="zstd", asbytes=True)
    behind = 8 * (1 + int(np.frombuffer(plain, "<i8", 1)[0]))
    return plain[behind:], np.frombuffer(plain[8:behind], "<i8")


def _line(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")


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


class ParquetSource:
    """A Parquet file of one of the store's schemas, its page checksums verified.

    `pyarrow.parquet` imports every file system there is, which is 15 of the 120 ms of a cold query. The class
    it wraps is used directly where it is as expected, and `pyarrow.parquet` where it is not.
    """

    def __init__(self, path: Path, direct: bool = True):
        self._direct: Any = None
        try:
            if direct:
                from pyarrow._parquet import ParquetReader

                self._direct = ParquetReader()
                self._direct.open(str(path), pre_buffer=False, page_checksum_verification=True)
                self.metadata = self._direct.metadata
        except (ImportError, AttributeError, TypeError):
            self._direct = None
        if self._direct is None:
            import pyarrow.parquet

            self._file = pyarrow.parquet.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
            self.metadata = self._file.metadata

    def read(self, group: int, columns: tuple[str, ...]) -> Any:
        """Columns of a row group, as a table in the order of the file's columns."""
        if self._direct is None:
            return self._file.read_row_group(group, columns=list(columns), use_threads=False)
        # every column of the store's schemas, lists too, is one column of Parquet's
        places = [place for place, name in enumerate(_columns(self.metadata.num_columns)) if name in columns]
        return self._direct.read_row_group(group, column_indices=places, use_threads=False)

    def close(self) -> None:
        if self._direct is None:
            self._file.close(force=True)
        else:
            self._direct.close()


def _columns(number: int) -> list[str]:
    """The names of the columns of the schema that has that many of them."""
    return next(schema.names for schema in map(sealed_schema, TABLES) if len(schema.names) == number)


class Part:
    """A sealed file, opened. `header`: what the sealer said of it. `starts`: each series' first row, and the end.

    rows: without them it is closed again, and is its header alone.

    Raises FileNotFoundError if it is gone, DamagedPart if it is not a whole file of this format.
    """

    def __init__(self, path: Path, cache: GroupCache, rows: bool = True):
        self.path = path
        self._cache = cache
        self.serial = next(SERIALS)
        try:
            self._file = ParquetSource(path)
            metadata = self._file.metadata.metadata or {}
            self.header: dict[str, Any] = json.loads(metadata[META_KEY])
            self.rows = int(self.header["rows"])
            self._group = int(self.header["group"])
            groups = -(-self.rows // self._group)
            if self.header["format"] > FORMAT:
                raise DamagedPart(f"{path.name} was written by a newer version of Barograph")
            if self._file.metadata.num_rows != self.rows or self._file.metadata.num_row_groups != groups:
                raise DamagedPart(f"{path.name} is damaged: its rows don't match its index")
            self.log_spans = [(int(start), int(end)) for start, end in self.header.get("log", ())]
            if not rows:
                self._file.close()
                del self._file  # and what it says of each row group
                return
            self._names, counts = unpack_index(metadata[SERIES_KEY], self.header["index_bytes"])
            self.starts = np.concatenate([[0], np.cumsum(counts)])
            if self.starts[-1] != self.rows:
                raise DamagedPart(f"{path.name} is damaged: its rows don't match its index")
        except DamagedPart:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ESTALE):
                raise
            raise DamagedPart(f"{path.name} is not a sealed file of this store, or damaged ({error})") from error

    @cached_property
    def names(self) -> list[str]:
        """Its series, sorted."""
        names: list[str] = json.loads(b'["' + self._names[1:-1].replace(b"\n", b'","') + b'"]') if self.rows else []
        return names

    def find(self, name: str) -> tuple[int, int] | None:
        """The first row of a series and the one behind its last; None if it is not in the file."""
        if "names" in self.__dict__:
            place = bisect_left(self.names, name)
            if place == len(self.names) or self.names[place] != name:
                return None
        else:  # searching the text takes a tenth of making 100,000 names of it
            line = self._names.find(b"\n" + _line(name) + b"\n")
            if line < 0:
                return None
            place = self._names.count(b"\n", 0, line)
        return int(self.starts[place]), int(self.starts[place + 1])

    def read(self, start: int, stop: int, columns: tuple[str, ...]) -> Iterator[Any]:
        """Rows `start` to `stop` (not included) as tables in order, each out of one row group, one after the other.

        Raises DamagedPart if bytes of them are not as they were written, OSError (ESTALE) if the file
        was deleted on another machine of a network file system.
        """
        for group in range(start // self._group, -(-stop // self._group) if stop > start else 0):
            key = (self.serial, group, columns)
            table = self._cache.get(key)
            if table is None:
                try:
                    table = self._file.read(group, columns)
                except (pa.ArrowException, OSError, ValueError) as error:
                    if isinstance(error, OSError) and error.errno == errno.ESTALE:  # gone, by another machine
                        raise
                    raise DamagedPart(f"{self.path.name} is damaged ({error})") from error
                self._cache.put(key, table)
            first = group * self._group
            low, high = max(start - first, 0), min(stop - first, table.num_rows)
            yield table.slice(low, high - low)

    def constant(self, column: str) -> int | None:
        """The only value of `segment` or `rank` in the file, if there is only one."""
        value = self.header.get(column)
        return None if value is None else int(value)

    def close(self) -> None:
        self._file.close()


def numbers(table: Any, column: str) -> list[Array]:
    """A column's chunks as arrays over Arrow's memory; times as µs."""
    return list(map(plain, table.column(column).chunks))
