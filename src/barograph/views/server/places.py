"""Which runs there are under the served folder, and nothing outside of it.

In:   the folder that is served.
Out:  runs by their keys; stored runs that read no file outside that folder.

A request never makes a path: its key is looked up among the runs that were found. A run whose files are links to
somewhere else is left out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from barograph.core.segments import is_run
from barograph.query.stored import StoredRun

_SETTLED_SECONDS = 2.0  # a folder changed within this may change again within its clock's tick
_GROUPS_BYTES = 8 << 20  # decoded row groups that an open run keeps; columns are kept elsewhere


@dataclass(frozen=True)
class RunPlace:
    """A run: its key, its folder, and the folder of its project, all within the served one."""

    key: str
    dir: Path
    project_dir: Path


def key_of(parts: Iterable[str]) -> str:
    """The key of folders below the root: each one percent-encoded, with slashes between."""
    return "/".join(quote(os.fsencode(part), safe="") for part in parts)


def canonical(text: str) -> str:
    """A key as `key_of` writes it, whichever signs somebody else has encoded: no folder's name has a slash."""
    return quote(unquote_to_bytes(text), safe="/")


class Places:
    """The runs under a folder: the folder itself, its children or grandchildren. `left_out`: sentences."""

    def __init__(self, root: str | os.PathLike[str]):
        self.root = Path(os.path.realpath(root))
        self.left_out: dict[str, str] = {}
        self._known: dict[str, RunPlace] = {}
        self._listed: dict[str, tuple[int, list[str]]] = {}
        self._lock = threading.Lock()

    def scan(self) -> dict[str, RunPlace]:
        """Every run by its key, in order. Only folders that changed are listed again."""
        with self._lock:
            result: dict[str, RunPlace] = {}
            self.left_out = {}
            own = key_of([self.root.name])
            if self._is_run(self.root, own):
                self._add(result, own, self.root, self.root)
            else:
                for child in self._children(self.root):
                    folder, first = self.root / child, key_of([child])
                    if self._is_run(folder, first):
                        self._add(result, first, folder, self.root)
                        continue
                    inside = is_inside(folder, self.root)
                    for name in self._children(folder):
                        key = f"{first}/{key_of([name])}"
                        if self._is_run(folder / name, key):
                            self._add(result, key, folder / name, folder, inside)
            self._known = result
            return result

    def find(self, key: str) -> RunPlace:
        """The run of a key. Raises KeyError with a sentence."""
        try:
            exact = canonical(key)
        except UnicodeEncodeError:  # half a character is in no folder's name
            exact = ""
        place = self._known.get(exact)
        if place is None:
            place = self.scan().get(exact)
        if place is None:
            raise KeyError(self.left_out.get(exact) or f"there is no run {key[:200]!r} here")
        return place

    def known(self) -> dict[str, RunPlace]:
        """The runs as they were found last."""
        return self._known

    def _is_run(self, folder: Path, key: str) -> bool:
        known = self._known.get(key)
        return (known is not None and os.path.isdir(folder)) or is_run(folder)

    def _add(self, found: dict[str, RunPlace], key: str, folder: Path, project: Path, inside: bool = True) -> None:
        """inside: whether the project's folder is within the root."""
        known = self._known.get(key)
        if known is None and not stays_inside(folder, self.root, inside):
            self.left_out[key] = (
                f"run {key!r} is left out: files of it are links to places outside of the served folder"
            )
            return
        found[key] = known or RunPlace(key, folder, project)

    def _children(self, folder: Path) -> list[str]:
        """The folders in a folder, sorted, those that begin with a dot left out."""
        path = str(folder)
        try:
            changed = os.stat(path).st_mtime_ns
            known = self._listed.get(path)
            if known is not None and known[0] == changed:
                return known[1]
            with os.scandir(path) as entries:
                names = sorted(entry.name for entry in entries if entry.name[0] != "." and entry.is_dir())
        except OSError:
            self._listed.pop(path, None)
            return []
        if abs(time.time_ns() - changed) > _SETTLED_SECONDS * 1e9:
            self._listed[path] = changed, names
        return names


def is_inside(path: str | os.PathLike[str], root: Path) -> bool:
    """Whether a path, every link followed, is the root or below it. `root` has no links itself."""
    real, within = os.path.realpath(path), str(root)  # no Path: asked for each of thousands of runs
    return real == within or real.startswith(within.rstrip(os.sep) + os.sep)


def stays_inside(folder: Path, root: Path, parent_inside: bool = False) -> bool:
    """Whether a run's folder and every file of it that is read lie within the root, links followed.

    parent_inside: it is known that the folder above does.
    """
    if not (parent_inside and not os.path.islink(folder)) and not is_inside(folder, root):
        return False
    return _links_stay(str(folder), root, 2)


def _links_stay(folder: str, root: Path, depth: int) -> bool:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink() and not is_inside(entry.path, root):
                    return False
                if depth and entry.is_dir() and not _links_stay(entry.path, root, depth - 1):
                    return False
    except OSError:
        return True  # what can't be listed can't be read either
    return True


def served_run(place: RunPlace, root: Path) -> StoredRun:
    """A stored run that reads no file outside the served folder, whatever its own files say.

    Raises KeyError where files of it are links to other places.
    """
    if not stays_inside(place.dir, root):
        raise KeyError(f"run {place.key!r} has files that are links to places outside of the served folder")
    return StoredRun(place.dir, may_open=partial(stays_inside, root=root), cache_bytes=_GROUPS_BYTES)
