"""What lies in a folder of sealed parts: the names of the files, which file hides which, and their columns.

In:   file names of one folder, such as `store/training/`.
Out:  `StoreFile`s, the ones a reader must look at (`visible`) and the ones nobody needs any more (`hidden`).

    000001-000006.points.parquet       rows sorted by series; merged of the parts 1 to 6
    000001-000006.histograms.parquet   the same for histograms; absent if there were none
    0002.sealed                        the block files up to training.0002.wide were sealed and deleted

A file that covers the numbers A to B hides every file of its table inside A..B, so a crash between "the new file is
there" and "the old ones are gone" neither loses nor doubles anything. Its header, JSON in the file's own metadata, says
what it holds, and so what need not be read elsewhere:

    log        [[start, end], …]: bytes of the log
    wide       {"training.0001.wide": [[start, end]], …}: bytes of block files; in a histograms file of its histograms
    segments   [[end, segment, rank, foreign, fields], …]: the `segment` records in those bytes, with the ends of them
    first      {segment: [byte, step]}: the first step that each segment logged, and where
    pending    true: rows of an import that count once a later part does
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from barograph.core.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy("pyarrow")


FORMAT = 1  # raised when a reader of an older version could misread a file
META_KEY = b"barograph"
SERIES_KEY = b"barograph.series"
SEALING_LOCK = ".sealing"  # in store/: locked while a sealer works
TEMPORARY_PREFIX = ".tmp-"
DAMAGED_SUFFIX = ".damaged"  # put behind a file whose bytes could not be read

Table = Literal["points", "histograms"]
TABLES: tuple[Table, ...] = ("histograms", "points")  # in the order in which they are sealed

# One row group is the least that is decoded to read one series: 65,536 points take 0.4 ms.
GROUP_ROWS: dict[str, int] = {"points": 65_536, "histograms": 4_096}

_SEALED_NAME = re.compile(r"(\d{6,})-(\d{6,})\.(points|histograms)\.parquet")


class StoreFile(NamedTuple):
    """A file by its name: the numbers it covers, and its table."""

    first: int
    last: int
    table: str
    name: str

    def covers(self, other: StoreFile) -> bool:
        """Whether the other's numbers lie inside this file's."""
        return self.first <= other.first and other.last <= self.last


@functools.cache
def sealed_schema(table: str) -> Any:
    """The columns of a sealed file.

    Values are always 64-bit: a byte-stream split of float32 values held as doubles costs 0 to 4 % more
    than float32 itself (3.53 against 3.39 bytes for noise), and files of different runs stay one type.
    """
    numbers = pa.list_(pa.float64())
    own = {"points": {"value": pa.float64()}, "histograms": {"edges": numbers, "counts": numbers}}[table]
    types = {
        "name": pa.dictionary(pa.int32(), pa.string()), "step": pa.int64(), "time": pa.timestamp("us", "UTC"),
        **own, "segment": pa.int32(), "rank": pa.int32(),
    }  # fmt: skip
    return pa.schema([pa.field(name, type, nullable=False) for name, type in types.items()])


def sealed_name(first: int, last: int, table: str) -> str:
    return f"{first:06d}-{last:06d}.{table}.parquet"


def parse_name(name: str) -> StoreFile | None:
    """What a file name says; None for files that are not the store's."""
    if match := _SEALED_NAME.fullmatch(name):
        return StoreFile(int(match[1]), int(match[2]), match[3], name)
    return None


def parse_names(names: Iterable[str]) -> list[StoreFile]:
    """The store's files among these names, by their numbers."""
    return sorted(file for name in names if (file := parse_name(name)) is not None)


def number_of(path: Path) -> int:
    """The last number that a sealed file covers; 0 for another file."""
    file = parse_name(path.name)
    return file.last if file is not None else 0


def visible(files: Iterable[StoreFile], table: str) -> list[StoreFile]:
    """The files that hold a table's rows, each row in exactly one of them, oldest first."""
    parts = [file for file in files if file.table == table]
    return sorted(part for part in parts if not any(_hides(other, part) for other in parts))


def hidden(files: Iterable[StoreFile]) -> list[StoreFile]:
    """The files whose rows are all in another file too: left behind by a sealer that was killed."""
    files = list(files)
    chosen_files = {file for table in TABLES for file in visible(files, table)}
    return [file for file in files if file not in chosen_files]


def _hides(cover: StoreFile, part: StoreFile) -> bool:
    return cover != part and cover.covers(part)


def merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Half-open ranges joined where they touch or overlap, in order."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > start:
            joined.append((start, end))
    return joined


def sync_folder(folder: Path) -> None:
    """Have the folder's list of names on the disk itself: a renamed file survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
