"""How far a mirror has come: a small file in the run's folder, replaced whole.

In:   what was sent and noted as such; what the backend says that it holds.
Out:  `mirrors/{backend}.json`, and from it the place at which another process goes on.

Between sending and noting a process may die. Who goes on then asks the backend what it holds, where it can tell
(`LoggingBackend._held`), or cuts off what was written after the note (TensorBoard); with others what the last
note does not cover is sent again.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barograph.manifest import write_json

FOLDER = "mirrors"
_WINDOW = 3_000_000  # µs: rows of one writer reach the store in the order of their times, but for so much
_MOST_RECENT = 2000

Key = tuple[int, int, str]
"""Time in µs, step, name of a histogram or empty: tells a row of the store from all others of its writer."""

LOWEST: Key = (-(2**63), -(2**63), "")


@dataclass
class StorePlace:
    """Of one writer's store: rows up to `floor` are dealt with, and of those behind it the ones in `recent`."""

    floor: Key = LOWEST
    recent: set[Key] = field(default_factory=set)
    passed: set[Key] = field(default_factory=set)  # behind it too, but told by the log file: not kept in the file
    arrived: set[int] = field(default_factory=set)  # times of rows that the backend holds, if it was asked
    scan: int = 0  # byte of the log file from which on records are younger than the floor

    def has(self, key: Key) -> bool:
        """Whether this row is dealt with."""
        if key <= self.floor or key in self.recent or key in self.passed:
            return True
        if key[0] in self.arrived:
            self.recent.add(key)
            return True
        return False

    def settle(self) -> None:
        """Raise the floor over what is surely the past."""
        if not self.recent and not self.passed:
            return
        ordered = sorted(self.recent | self.passed)
        at = bisect.bisect_left(ordered, (ordered[-1][0] - _WINDOW, LOWEST[1], ""))
        if len(self.recent) > _MOST_RECENT:
            at = max(at, bisect.bisect_left(ordered, sorted(self.recent)[-_MOST_RECENT]))
        if at > 0:
            self.floor = max(self.floor, ordered[at - 1])
            self.recent = {key for key in self.recent if key > self.floor}
            self.passed = {key for key in self.passed if key > self.floor}

    def close(self) -> None:
        """All rows there will ever be are dealt with."""
        self.floor = max(self.floor, *self.recent, *self.passed, self.floor)
        self.recent, self.passed = set(), set()


@dataclass
class Place:
    """Where a mirror stands in a run's folder. offsets: byte of each log file; stores: by writer."""

    offsets: dict[str, int] = field(default_factory=dict)
    stores: dict[str, StorePlace] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)

    def store(self, writer: str) -> StorePlace:
        """The place in a writer's store."""
        return self.stores.setdefault(writer, StorePlace(arrived=self.arrived))

    def hold(self, times: set[int]) -> None:
        """The backend holds rows of the store of these times."""
        self.arrived = times
        for one in self.stores.values():
            one.arrived = times

    def packed(self) -> dict[str, Any]:
        """As JSON."""
        stores = {
            name: {"floor": list(one.floor), "recent": sorted(map(list, one.recent)), "scan": one.scan}
            for name, one in self.stores.items()
        }
        return {"offsets": dict(self.offsets), "stores": stores}


def unpack(made: Any) -> Place:
    """A place out of JSON. Raises ValueError, TypeError or KeyError if it is none."""
    stores = {
        str(name): StorePlace(_key(one["floor"]), set(map(_key, one["recent"])), scan=int(one["scan"]))
        for name, one in made["stores"].items()
    }
    return Place({str(name): int(offset) for name, offset in made["offsets"].items()}, stores)


def _key(made: Any) -> Key:
    moment, step, name = made
    return int(moment), int(step), str(name)


@dataclass
class Position:
    """A mirror's file. `base`: the place when it was last known for sure; `clean`: nothing was sent since the note."""

    path: Path
    place: Place = field(default_factory=Place)
    base: Place = field(default_factory=Place)
    state: dict[str, Any] = field(default_factory=dict)  # the backend's own: ids, files
    options: dict[str, Any] = field(default_factory=dict)  # where it sends to
    rows: int = 0
    refused: int = 0
    clean: bool = True
    ended: bool = False  # the run's end was sent
    trouble: str = ""

    def write(self) -> None:
        """Raises OSError."""
        self.path.parent.mkdir(exist_ok=True)
        content = {
            "backend": self.path.stem,
            "clean": self.clean,
            "ended": self.ended,
            "rows": self.rows,
            "refused": self.refused,
            "trouble": self.trouble,
            "time": round(time.time(), 3),
            "state": self.state,
            "options": self.options,
            "place": self.place.packed(),
        }
        if not self.clean:
            content["base"] = self.base.packed()
        write_json(self.path, content)


def read(folder: Path, backend: str) -> Position:
    """A run's position for a backend; a new one where there is none, or none that can be read."""
    position = Position(folder / FOLDER / f"{backend}.json")
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        made = json.loads(position.path.read_bytes())
        place = unpack(made["place"])
        position.place, position.base = place, unpack(made.get("base", made["place"]))
        position.state, position.options = dict(made["state"]), dict(made["options"])
        position.rows, position.refused = int(made["rows"]), int(made["refused"])
        position.clean, position.ended = bool(made["clean"]), bool(made["ended"])
        position.trouble = str(made.get("trouble", ""))
    return position


class Busy(ValueError):
    """Another process sends this run to this backend."""


_held: set[str] = set()  # by this process: the system's locks are a process's


class Turn:
    """One sender a run and backend. Not inherited by forked children, and gone with the process."""

    def __init__(self, folder: Path, backend: str):
        self._path = folder / FOLDER / f".{backend}.lock"
        self._handle = -1

    def take(self) -> bool:
        """Whether it is ours now."""
        import fcntl

        name = str(self._path.resolve())
        if name in _held:
            return False
        self._path.parent.mkdir(exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if isinstance(error, (BlockingIOError, PermissionError)):
                return False
            handle = -1  # a file system without locks: nothing can be said
        _held.add(name)
        self._handle = handle
        return True

    def give_back(self) -> None:
        _held.discard(str(self._path.resolve()))
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1
