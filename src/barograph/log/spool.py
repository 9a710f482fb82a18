"""A log on a network file system: written on this machine, carried over by another thread.

In:   the path of a log whose folder is on NFS, Lustre or the like.
Out:  a local file that log calls write, and the log itself, byte for byte the same a moment later.

A server that stalls then stalls the carrier, and no step. After a kill the local file stays; a
reader on this machine takes it in place of the log, and the next start or `barograph gc` carries it over.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from barograph.core import locks
from barograph.log.read import WHITE
from barograph.log.write import JsonLog

_CHUNK = 4 << 20
_ELSEWHERE_SECONDS = 30.0  # a log so much younger than the local file was written by another machine


def _root() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp") / f"barograph-spool-{os.getuid()}"


def local_path(path: Path) -> Path:
    """Where the log at `path` is written on this machine."""
    import hashlib  # here: readers look for a spool each time, and importing it takes milliseconds

    return _root() / hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:24] / path.name


def best_copy(path: Path) -> Path:
    """The file to read for the log at `path`: its local one, unless another machine has written the log since."""
    if not _root().is_dir():
        return path
    local = local_path(path)
    with contextlib.suppress(OSError):
        found = local.stat()
        if found.st_uid == os.getuid():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime > found.st_mtime + _ELSEWHERE_SECONDS:
                    return path
            return local
    return path


def prepare(path: Path) -> Path:
    """A local file that goes on where the log ends: its copy, or what an earlier process left here."""
    local = local_path(path)
    local.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists():
        import shutil

        _give_way(local, path)
        if not local.exists():
            temporary = local.with_name(f".{local.name}.{os.getpid()}")
            shutil.copyfile(path, temporary)
            os.replace(temporary, local)
    (local.parent / "target").write_text(os.path.abspath(path))
    return local


def _give_way(local: Path, path: Path) -> None:
    """Put the local file aside where the log has what it has not: another machine has gone on with the log."""
    import shutil

    if local.exists() and path.exists():
        logged = path.read_bytes().rstrip(WHITE).removesuffix(b"]").rstrip(WHITE)
        if not local.read_bytes().startswith(logged):
            shutil.move(local, path.with_name(f"{path.name}.left"))


class Carrier:
    """Brings a local log's bytes to the log itself. Called in the pump's thread; may wait for the server."""

    def __init__(self, source: JsonLog, path: Path):
        self.path = path
        self._source = source
        self._target: JsonLog | None = None

    def carry(self) -> None:
        """Bring over what is new. Raises OSError where the server refuses; then the next call goes on."""
        until = self._source.position
        if self._target is None:
            self._target = _matching(self._source.path, self.path)
        while self._target.position < until:
            with open(self._source.path, "rb") as file:
                file.seek(self._target.position)
                self._target.append_copy(file.read(min(_CHUNK, until - self._target.position)))

    def close(self) -> None:
        """Bring over the rest; the local file goes away once everything has arrived."""
        until = self._source.position
        self.carry()
        if self._target is not None and self._target.position == until:
            self._target.close()
            import shutil

            shutil.rmtree(self._source.path.parent, ignore_errors=True)


def _matching(source: Path, path: Path) -> JsonLog:
    """The log, with nothing in it that the local file does not have."""
    target = JsonLog(path)
    with open(source, "rb") as file:
        start = file.read(target.position)
    if path.read_bytes()[: target.position] != start:
        target.close()
        os.replace(path, path.with_name(f"{path.name}.other"))
        target = JsonLog(path)
    return target


def carry_leftovers() -> list[Path]:
    """Carry over what killed processes left on this machine; returns the logs that are whole again."""
    carried = []
    for note in _root().glob("*/target"):
        with contextlib.suppress(OSError, ValueError):
            path = Path(note.read_text())
            local = note.parent / path.name
            with open(local, "rb") as file:
                if locks.is_taken(file.fileno()):
                    continue  # its writer lives
            _give_way(local, path)
            if not local.exists():
                note.unlink()
                note.parent.rmdir()
                continue
            source = JsonLog(local)
            source.close()
            reopened = JsonLog(local)
            Carrier(reopened, path).close()
            reopened.abandon()
            carried.append(path)
    return carried
