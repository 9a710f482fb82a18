"""The last steps of a run, bounded in steps and in bytes.

In:   encoded records and packed rows of numbers, each with its step.
Out:  a snapshot of what is held, in the order of the steps.

Everything is kept as bytes, so what the ring holds is known exactly and is on its way to a file at once. Bytes
are counted as Python's own objects take them, names of rows once.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

_ENTRY = 600  # bytes of a step's own objects: its entry, its two lists, its key, its place in the table
_SLOT = 16  # a place in a list, with the list's room to grow


class PackedRow(NamedTuple):
    """Numbers of one step: `packed` holds one little-endian double a name. `time`: microseconds since 1970."""

    names: tuple[str, ...]
    packed: bytes
    time: int


_ROW = sys.getsizeof(PackedRow((), b"", 0)) + sys.getsizeof(1 << 60) + _SLOT


class StepDetail:
    """All that is held of a step."""

    __slots__ = ("held_bytes", "records", "rows", "step")

    def __init__(self, step: int):
        self.step = step
        self.records: list[bytes] = []
        self.rows: list[PackedRow] = []
        self.held_bytes = _ENTRY


class Held(NamedTuple):
    """A snapshot. `left_out`: records and rows that were too many, too large or too late."""

    details: list[StepDetail]
    held_bytes: int
    left_out: int

    def records(self) -> Iterator[bytes]:
        """Every record, oldest step first."""
        for detail in self.details:
            yield from detail.records


class Ring:
    """The last `steps` steps, in at most `limit_bytes`; older ones make room for newer ones."""

    def __init__(self, steps: int, limit_bytes: int):
        if steps < 1 or limit_bytes < 0:
            raise ValueError(f"a black box keeps at least one step, in 0 bytes or more, not {steps} in {limit_bytes}")
        self.steps, self.limit_bytes = steps, limit_bytes
        self.held_bytes = 0
        self.left_out = 0
        self._details: OrderedDict[tuple[int, int], StepDetail] = OrderedDict()  # by branch and step, oldest first
        self._names: dict[int, tuple[tuple[str, ...], int, list[int]]] = {}  # by id: names, their bytes, rows
        self._branch = 0
        self._newest: int | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._details)

    def begin_branch(self, step: int) -> None:
        """The run begins or goes back: what follows does not continue the steps that are held."""
        with self._lock:
            self._branch += 1
            self._newest = step

    def add(self, step: int, data: bytes, keep_late: bool = False) -> None:
        """A record, encoded. keep_late: one of a step that is no longer held is kept with the newest step."""
        with self._lock:
            if keep_late and self._newest is not None and self._is_late(step):
                step = self._newest
            cost = sys.getsizeof(data) + _SLOT
            detail = self._room(step, cost)
            if detail is not None:
                detail.records.append(data)

    def add_row(self, names: tuple[str, ...], packed: bytes, step: int, time: int) -> None:
        """A row of numbers that is in no record."""
        with self._lock:
            known = self._names.get(id(names))
            size = _size_of(names) if known is None else 0
            detail = self._room(step, sys.getsizeof(packed) + _ROW, size)
            if detail is None:
                return
            detail.rows.append(PackedRow(names, packed, time))
            known = self._names.get(id(names))  # making room may have let go of it
            if known is None:
                size = size or _size_of(names)
                known = self._names[id(names)] = (names, size, [0])
                self.held_bytes += size
            known[2][0] += 1
            self._evict()

    def _room(self, step: int, cost: int, names: int = 0) -> StepDetail | None:
        """The detail of a step, after making room for `cost` bytes more; None where there can be none."""
        newest = self._newest
        key = (self._branch, step)
        detail = self._details.get(key)
        if self._is_late(step) or cost + names + (_ENTRY if detail is None else detail.held_bytes) > self.limit_bytes:
            self.left_out += 1
            return None
        if newest is None or step > newest:
            self._newest = step
        if detail is None:
            detail = self._details[key] = StepDetail(step)
            self.held_bytes += _ENTRY
        detail.held_bytes += cost
        self.held_bytes += cost
        self._evict(names)
        if key not in self._details:  # it was the oldest itself
            self.left_out += 1
            return None
        return detail

    def _is_late(self, step: int) -> bool:
        gone = (self._branch, step) not in self._details
        return gone and self._newest is not None and step <= self._newest - self.steps

    def _evict(self, more: int = 0) -> None:
        while self._details and (self.held_bytes + more > self.limit_bytes or len(self._details) > self.steps):
            _, detail = self._details.popitem(last=False)
            self.held_bytes -= detail.held_bytes
            for row in detail.rows:
                names, size, rows = self._names[id(row.names)]
                rows[0] -= 1
                if not rows[0]:
                    del self._names[id(names)]
                    self.held_bytes -= size

    def snapshot(self, timeout: float = 0.5) -> Held:
        """What is held now. After `timeout` seconds it is read as it is, whoever holds the lock."""
        locked = self._lock.acquire(timeout=timeout)
        try:
            found = []
            for detail in list(self._details.values()):
                copied = StepDetail(detail.step)
                copied.records, copied.rows = list(detail.records), list(detail.rows)
                copied.held_bytes = detail.held_bytes
                found.append(copied)
            return Held(found, self.held_bytes, self.left_out)
        finally:
            if locked:
                self._lock.release()


def _size_of(names: tuple[str, ...]) -> int:
    return sys.getsizeof(names) + sum(map(sys.getsizeof, names)) + 300  # and its entry in the table
