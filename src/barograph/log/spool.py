"""A log on a network file system: written on this machine, carried over by another thread.

In:   the path of a log whose folder is on NFS, Lustre or the like.
Out:  a local file that log calls write, and the log itself, byte for byte the same a moment later; block files
      that a full disk did not take.

A server that stalls then stalls the carrier, and no step. After a kill the local file stays; a
reader on this machine takes it in place of the log, and the next start or `barograph gc` carries it over.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import threading
from pathlib import Path

from barograph.core import locks
from barograph.log.blocks import HEAD, BlockWriter, pieces, sealed_number
from barograph.log.read import WHITE
from barograph.log.write import JsonLog

_CHUNK = 4 << 20
_ELSEWHERE_SECONDS = 30.0  # a log so much younger than the local file was written by another machine


def _root() -> str:
    return f"{os.environ.get('TMPDIR') or '/tmp'}/barograph-spool-{os.getuid()}"


def local_path(path: Path) -> Path:
    """Where the log at `path` is written on this machine."""
    import hashlib  # here: readers look for a spool each time, and importing it takes milliseconds

    return Path(f"{_root()}/{hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:24]}/{path.name}")


def best_copy(path: Path) -> Path:
    """The file to read for the log at `path`: its local one, unless another machine has written the log since."""
    if not os.path.isdir(_root()):  # no Path: asked for each of thousands of runs
        return path
    local = local_path(path)
    with contextlib.suppress(OSError):
        stat = local.stat()
        if stat.st_uid == os.getuid():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime > stat.st_mtime + _ELSEWHERE_SECONDS:
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
    """Brings a local log's bytes to the log itself, one thread at a time; may wait for the server."""

    def __init__(self, source: JsonLog, path: Path):
        self.path = path
        self._source = source
        self._target: JsonLog | None = None
        self._turn = threading.Lock()  # the thread that carries now and then may be at it when the run ends
        self._done = False

    def carry(self) -> None:
        """Bring over what is new. Raises OSError where the server refuses; then the next call goes on."""
        with self._turn:
            if not self._done:
                self._bring()

    def close(self) -> None:
        """Bring over the rest; the local file goes away once everything has arrived."""
        with self._turn:
            if self._done:
                return
            until = self._source.position
            target = self._bring()
            if target.position == until:
                target.close()
                self._done = True
                _remove(self._source.path)

    def _bring(self) -> JsonLog:
        until = self._source.position
        target = self._target
        if target is None:
            target = self._target = _matching(self._source.path, self.path)
        while target.position < until:
            with open(self._source.path, "rb") as file:
                file.seek(target.position)
                target.append_copy(file.read(min(_CHUNK, until - target.position)))
        return target


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


def _remove(local: Path) -> None:
    """A local log that is whole in its place; the folder too, unless it holds rows that are not."""
    import shutil

    if pieces(local.parent):
        local.unlink()
    else:
        shutil.rmtree(local.parent, ignore_errors=True)


# -- block files ----------------------------------------------------------------------------------


def keep_blocks(path: Path, blocks: BlockWriter) -> tuple[int, Path]:
    """What waits of the blocks beside the log at `path`, in a folder of this machine: how many, and where. Raises
    OSError where there is no room either."""
    folder = local_path(path).parent
    new = folder / f".{os.getpid()}"
    new.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        count = blocks.hand_over(new)
    except OSError:
        import shutil

        shutil.rmtree(new, ignore_errors=True)
        raise
    (folder / "target").write_text(os.path.abspath(path))
    for _, file in pieces(new):
        _put(file, folder)
    new.rmdir()
    return count, folder


def carry_blocks(folder: Path) -> None:
    """Bring what `keep_blocks` kept into a run's folder, as far as there is room. Never raises."""
    inside = os.path.abspath(folder)
    for note in Path(_root()).glob("*/target"):
        with contextlib.suppress(OSError, ValueError):
            path = Path(note.read_text())
            if str(path.parent) == inside:
                _carry_blocks(note.parent, path)


def _carry_blocks(local: Path, path: Path) -> None:
    """Raises OSError where there is no room; not while a process writes the log, whose file is the last one."""
    kept = pieces(local)
    if not kept:
        return
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as log:
        if locks.is_taken(log.fileno()):
            return
    import shutil

    for _, piece in kept:
        content = piece.read_bytes()
        if not _is_writer_in(content, path):
            continue  # of a run that was deleted, in whose place there may be another one
        if not any(item.read_bytes() == content for _, item in pieces(path.parent, path.stem)):  # else killed behind it
            temporary = path.with_name(f".{piece.name}.{os.getpid()}")
            try:
                shutil.copyfile(piece, temporary)
                _put(temporary, path.parent, path.stem)
            finally:
                temporary.unlink(missing_ok=True)
        piece.unlink()
    if not (local / path.name).exists() and not pieces(local):
        shutil.rmtree(local, ignore_errors=True)


def _is_writer_in(content: bytes, path: Path) -> bool:
    """Whether the log at `path` has records of the process that wrote this block file."""
    with contextlib.suppress(OSError, ValueError, KeyError), open(best_copy(path), "rb") as log:
        writer = json.loads(content[len(HEAD) :].partition(b"\n")[0])["writer"]
        with mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return text.find(b'"writer":"%b"' % writer.encode()) >= 0
    return False


def _put(file: Path, folder: Path, stem: str = "") -> None:
    """Move a block file into a folder, as the last one of its log."""
    stem = stem or file.name.rsplit(".", 2)[0]
    number = max([sealed_number(folder, stem), *(number for number, _ in pieces(folder, stem))])
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):
            os.link(file, folder / f"{stem}.{number:04d}.wide")
            file.unlink()
            return


def carry_leftovers() -> list[Path]:
    """Carry over what killed processes left on this machine; returns the logs that are whole again."""
    carried = []
    for note in Path(_root()).glob("*/target"):
        with contextlib.suppress(OSError, ValueError):
            path = Path(note.read_text())
            local = note.parent / path.name
            _carry_blocks(note.parent, path)
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
