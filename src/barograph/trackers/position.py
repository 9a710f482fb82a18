"""How far a mirror has come: a small file in the run's folder, replaced whole.

In:   what was sent and noted as such; what the backend says that it holds.
Out:  `mirrors/{backend}.json`, and from it the place at which another process goes on.

Between sending and noting a process may die. Who goes on then asks the backend what it holds, where it can tell
(`LoggingBackend._held`), or cuts off what was written after the note (TensorBoard); with others what the last
note does not cover is sent again.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barograph.core.manifest import write_json

FOLDER = "mirrors"


@dataclass
class Place:
    """A mirror's position in a run's folder.

    follow: the place of the follow of the logs. offsets: byte of each log file up to which it was sent; wide: how many
    wide rows and histograms of each log.
    """

    follow: dict[str, Any] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    wide: dict[str, int] = field(default_factory=dict)

    def packed(self) -> dict[str, Any]:
        """As JSON."""
        return {"follow": self.follow, "offsets": dict(self.offsets), "wide": dict(self.wide)}


def unpack(content: Any) -> Place:
    """A place out of JSON. Raises ValueError, TypeError or KeyError if it is invalid, such as another version's."""
    offsets, wide = ({str(name): int(number) for name, number in content[part].items()} for part in ("offsets", "wide"))
    return Place(dict(content["follow"]), offsets, wide)


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
    """A run's position for a backend; a new one where there is none, or none that can be read.

    Of another version's file the backend's own state is taken, and what the backend holds is believed.
    """
    position = Position(folder / FOLDER / f"{backend}.json")
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        content = json.loads(position.path.read_bytes())
        position.state, position.options = dict(content["state"]), dict(content["options"])
        position.clean = False
        place = unpack(content["place"])
        position.place, position.base = place, unpack(content.get("base", content["place"]))
        position.rows, position.refused = int(content["rows"]), int(content["refused"])
        position.clean, position.ended = bool(content["clean"]), bool(content["ended"])
        position.trouble = str(content.get("trouble", ""))
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
