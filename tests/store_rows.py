"""What the store's tests share: a slow and obvious picture of what was written, and failing disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph.store.reader import StoreReader
from barograph.store.writer import Writer

Row = tuple[int, int, int, float]  # segment, step, time, value


class Book:
    """Writes to a store and keeps the same rows in a dictionary, by the order in which they must come back."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.histograms: dict[str, list[tuple[int, int, int, list[float], list[float]]]] = {}
        self._clock = 0

    def write(self, writer: Writer, names: list[str], steps: list[int], segment: int = 1, log_end: int = -1) -> None:
        block = self.block(names, steps, segment)
        writer.write_points(*block, segment=segment, log_end=log_end)
        self.keep(block, segment)

    def block(self, names: list[str], steps: list[int], segment: int = 1) -> tuple[Any, ...]:
        """Names, steps, times and values that occur nowhere else."""
        times = [self._clock + row for row in range(len(steps))]
        self._clock += len(steps)
        values = [[time + column / 1024 for column in range(len(names))] for time in times]
        shape = (len(steps), len(names))
        return tuple(names), np.array(steps, np.int64), np.array(times, np.int64), np.array(values).reshape(shape)

    def keep(self, block: tuple[Any, ...], segment: int = 1) -> None:
        names, steps, times, values = block
        for step, time, row in zip(steps.tolist(), times.tolist(), values.tolist(), strict=True):
            for name, value in zip(names, row, strict=True):
                self.rows.setdefault(name, []).append((segment, step, time, value))

    def write_histogram(self, writer: Writer, name: str, step: int, bins: int, segment: int = 1) -> None:
        self._clock += 1
        edges = [self._clock + bin / 8 for bin in range(bins + 1)]
        counts = [float(self._clock * 100 + bin) for bin in range(bins)]
        writer.write_histogram(name, step, self._clock, np.array(edges), np.array(counts), segment)
        self.histograms.setdefault(name, []).append((segment, step, self._clock, edges, counts))

    def check(self, store: Path | StoreReader) -> None:
        """Everything is in the store, once, in order, and nothing else is."""
        reader = store if isinstance(store, StoreReader) else StoreReader(store)
        assert reader.names() == sorted(self.rows)
        assert reader.histogram_names() == sorted(self.histograms)
        for name, rows in self.rows.items():
            assert read(reader, name) == sorted(rows, key=lambda row: row[:2])
        for name, expected in self.histograms.items():
            got = reader.histograms(name)
            found = [
                (segment, step, time, edges.tolist(), counts.tolist())
                for segment, step, time, edges, counts in zip(
                    got.segment.tolist(), got.step.tolist(), got.time.tolist(), got.edges, got.counts, strict=True
                )
            ]
            assert found == sorted(expected, key=lambda row: row[:2])


def read(reader: StoreReader, name: str) -> list[Row]:
    got = reader.points(name, columns=("time", "value"))
    columns = got.segment.tolist(), got.step.tolist(), got.time.tolist(), got.value.tolist()
    return list(zip(*columns, strict=True))


def fill(book: Book, writer: Writer, flushes: int, names: list[str], first: int = 0) -> None:
    """Some flushes of some rows each, with a histogram."""
    for flush in range(first, first + flushes):
        book.write(writer, names, [flush * 3, flush * 3 + 1, flush * 3 + 2])
        book.write_histogram(writer, "weights", flush, 4)
        writer.flush()


def failing_write(monkeypatch: pytest.MonkeyPatch, after_bytes: int) -> Callable[[], None]:
    """The disk takes so many more bytes, then it is full. Returns what makes room again."""
    left = [after_bytes]
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        room = min(len(data), left[0])
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= room
        return real(descriptor, memoryview(data)[:room])

    monkeypatch.setattr(os, "write", write)
    return lambda: monkeypatch.setattr(os, "write", real)


def values(steps: list[int]) -> tuple[Any, ...]:
    column = np.array(steps, np.int64)
    return column, column * 1000, column[:, None].astype(float)


def names_of(folder: Path, ending: str) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(ending))


def closed_files(folder: Path, book: Book, files: int, names: list[str] | None = None) -> None:
    """That many closed live files, a writer each."""
    for number in range(files):
        writer = Writer(folder)
        fill(book, writer, 2, names or ["loss", "lr"], number * 2)
        writer.close()
