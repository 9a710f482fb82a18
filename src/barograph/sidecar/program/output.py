"""What a program prints, kept in files of the run's folder.

In:   bytes, as they are passed on.
Out:  `output/NAME-0001.log`, `-0002`, …: a new one after 64 MB, at the end of a line. Whoever has read them deletes all
      but the first and the last two, so that a program that prints for weeks fills no disk.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FOLDER = "output"
PART_BYTES = 64 << 20
_LONGEST = 1 << 20  # a line may go beyond the end of a part by so much


class OutputFile:
    """The writer. folder: of the files; it may be moved while they are written. `problem`: why nothing is kept."""

    def __init__(self, folder: Path, name: str, part_bytes: int = PART_BYTES):
        self.name, self.problem = name, ""
        self._part_bytes = part_bytes
        self._number = self._size = 0
        self._handle = -1
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._next()

    def write(self, data: bytes) -> None:
        """Keep it; a disk that refuses is not the program's problem."""
        if self._handle < 0:
            return
        try:
            if self._size >= self._part_bytes:
                end = data.rfind(b"\n") + 1
                if end or self._size >= self._part_bytes + _LONGEST:
                    self._append(data[:end])
                    self._next()
                    data = data[end:]
            self._append(data)
        except OSError as error:
            self.problem = error.strerror or str(error)
            self.close()

    def close(self) -> None:
        for handle in (self._handle, self._folder):
            if handle >= 0:
                os.close(handle)
        self._handle = self._folder = -1

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._handle, view) :]
        self._size += len(data)

    def _next(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._number, self._size = self._number + 1, 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._handle = os.open(part_name(self.name, self._number), flags, 0o666, dir_fd=self._folder)


def part_name(name: str, number: int) -> str:
    return f"{name}-{number:04d}.log"


def parts(folder: Path) -> list[Path]:
    """The files there are, each program's output in order."""
    return sorted(folder.glob("*-[0-9][0-9][0-9][0-9]*.log"), key=lambda path: (len(path.name), path.name))


def drop_read(folder: Path, name: str, number: int) -> None:
    """Delete the parts that were read, up to this one, but for the first and the last two."""
    for old in range(2, number - 1):
        with contextlib.suppress(OSError):
            (folder / part_name(name, old)).unlink()


def last_lines(folder: Path, count: int = 20, width: int = 300) -> list[str]:
    """The end of what was printed, for the run's end."""
    newest = sorted(parts(folder), key=lambda path: path.stat().st_mtime_ns)[-1:]
    for path in newest:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - count * 4 * width))
            text = file.read().decode("utf-8", "replace").replace("\r", "\n")
            return [line[:width] for line in text.splitlines() if line.strip()][-count:]
    return []
