"""Which logs a run has, by the names in its folder, and which of a shared log's records are the run's.

In:   a run's folder.
Out:  paths of logs; whose records a `segment` record begins.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from barograph.core import manifest
from barograph.log.spool import best_copy

MAIN = "training.json"
_LOG = re.compile(r"(?:training.*|sidecar-.+)\.json")
_SIDECAR = re.compile(r"sidecar-.+\.json")
_RANK = re.compile(r"rank-?(\d+)")


def is_log_name(name: str) -> bool:
    """Whether a file of this name in a run's folder is one of its logs."""
    return _LOG.fullmatch(name) is not None


def is_sidecar_name(name: str) -> bool:
    return _SIDECAR.fullmatch(name) is not None


def rank_in(name: str) -> int:
    """The rank that a log's name tells, until its first record does."""
    match = _RANK.search(name)
    return int(match[1]) if match else 0


def logs_of(folder: Path, allowed: Callable[[Path], bool] = lambda path: True) -> list[Path]:
    """The logs of a run, each once: rank 0's first, the sidecars' last. allowed: which files may be opened."""
    found: dict[Path, Path] = {}
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder)):
            path = folder / name
            if is_log_name(name) and allowed(path):
                found.setdefault(path.resolve(), path)
    for store in stores_of(folder):
        path = (folder / log_of_store(store)).resolve()
        if path not in found and allowed(path):
            found[path] = path
    return sorted(found.values(), key=_order) if len(found) > 1 else list(found.values())


def _order(path: Path) -> tuple[bool, bool, str]:
    return is_sidecar_name(path.name), path.name != MAIN, str(path)


def readable_logs(folder: Path, allowed: Callable[[Path], bool] = lambda path: True) -> list[Path]:
    """`logs_of`, those that are there; of one that is carried to a network file system, the copy to read."""
    return [path for path in map(best_copy, logs_of(folder, allowed)) if path.is_file()]


def stores_of(folder: Path) -> list[Path]:
    """The folders of sealed parts in a run's folder."""
    try:
        with os.scandir(folder / "store") as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir() and entry.name[0] != ".")
    except OSError:
        return []


def log_of_store(store: Path) -> str:
    """The log whose numbers a folder of sealed parts has; in version 0.1.0 a file there says so."""
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        about = msgspec.json.decode((store / "writer.json").read_bytes())
        if isinstance(about, dict) and isinstance(about.get("log"), str):
            return str(about["log"])
    return f"{store.name}.json" if is_log_name(f"{store.name}.json") else MAIN


class Owner:
    """Tells a run's records in logs that several runs share."""

    def __init__(self, folder: Path, bare: bool = False):
        self._folder, self._bare = folder, bare
        self._name = folder.resolve().name
        self._id: str | None = None

    def __call__(self, run: object) -> bool:
        """Whether records behind a `segment` record that names this run are ours."""
        if run is None or self._bare or run == self._name:
            return True
        if self._id is None:
            self._id = str(manifest.read(self._folder).get("id") or "")
        return not self._id or run == self._id
