"""Where the console's lines go: a stream that is written to without ever waiting for its reader.

In:   lines in parts: texts, each with a colour and how dispensable it is.
Out:  text on the stream; coloured and fitted to its width on a terminal, plain elsewhere.

Colour wraps a text and never changes it. Text that users or models wrote is escaped before it becomes a part.

A reader that stands still (`less`, Ctrl-S, a frozen ssh) must not hold the training: what the stream
does not take now waits here, at most 1,000 lines, and is written with a later line. What had to be
dropped is counted and said. A stream that is closed or whose reader has gone is left alone for good.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, TextIO

from barograph.core.text import count, width

LIMIT = 1_000
_BATCH = 4_096  # PIPE_BUF on Linux: what a writable pipe takes at once
_USERS = 16_384  # what the user's own prints may have left in the stream's two buffers
_GONE = {errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO, errno.ECONNRESET, errno.ENOTCONN}
_CODES = {
    "bold": ("\x1b[1m", "\x1b[22m"),
    "dim": ("\x1b[2m", "\x1b[22m"),
    "red": ("\x1b[31m", "\x1b[39m"),
    "green": ("\x1b[32m", "\x1b[39m"),
    "yellow": ("\x1b[33m", "\x1b[39m"),
}


class TextPart(NamedTuple):
    """A piece of a line. `colour`: names of codes. `spare`: 0 stays always; of the others the highest goes first."""

    text: str
    colour: str = ""
    spare: int = 0


TextLine = tuple[TextPart, ...]


def line(content: str, colour: str = "") -> TextLine:
    """A line of one part."""
    return (TextPart(content, colour),)


def plain(parts: TextLine) -> str:
    """The line's text."""
    return "".join(part.text for part in parts)


def painted(parts: TextLine) -> str:
    """The line's text with terminal codes around its parts."""
    return "".join(_paint(part) for part in parts)


def _paint(part: TextPart) -> str:
    if not part.colour or not part.text.strip():
        return part.text
    codes = [_CODES[name] for name in part.colour.split()]
    return "".join(code[0] for code in codes) + part.text + "".join(code[1] for code in reversed(codes))


def fitted(parts: TextLine, columns: int) -> TextLine:
    """The line without the spare parts that do not fit into `columns`; what is not spare stays."""
    while width(part.text for part in parts) > columns:
        most = max((part.spare for part in parts), default=0)
        if most == 0:
            break
        parts = tuple(part for part in parts if part.spare != most)
    return parts


class Terminal:
    """Writes lines to `stream`, or to the `sys.stdout` of the moment. Not for two threads at once.

    patient: wait for a slow reader instead of dropping lines, for programs that only print.
    """

    def __init__(self, stream: TextIO | None = None, patient: bool = False):
        self._stream = stream
        self._patient = patient
        self._waiting: deque[str] = deque()
        self._rest = b""  # encoded and begun: a line is never cut in the middle
        self._dropped = 0
        self._gone: Any = None
        self._reopen = os.path.isdir("/proc/self/fd")
        self._at_exit = False

    @property
    def gone(self) -> bool:
        """Whether nobody can read the stream any more."""
        stream = self._target()
        return stream is None or stream is self._gone

    def _target(self) -> Any:
        return self._stream if self._stream is not None else sys.stdout

    def show(self, lines: Sequence[TextLine]) -> None:
        """Write the lines, or keep them for later. Raises nothing that is an Exception."""
        stream = self._target()
        if stream is None or stream is self._gone:
            return
        try:
            tty = _is_terminal(stream)
            columns = _columns(stream) if tty else 0
            write = painted if tty and wants_colour() else plain
            for parts in lines:
                self._waiting.append(write(fitted(parts, columns) if columns else parts) + "\n")
        except (OSError, ValueError):  # closed
            self._leave(stream)
            return
        self._push(stream)
        while len(self._waiting) > LIMIT:
            self._waiting.popleft()
            self._dropped += 1

    def lose(self, lines: int) -> None:
        """Count lines that could not even be kept."""
        self._dropped += lines

    def forget(self) -> None:
        """Drop what waits: in a forked child it is the parent's to write."""
        self._waiting.clear()
        self._rest, self._dropped = b"", 0

    def flush(self, timeout: float = 0.0) -> bool:
        """Write what waits, for at most `timeout` seconds; whether all of it was written."""
        end = time.monotonic() + timeout
        while True:
            stream = self._target()
            if stream is None or stream is self._gone:
                return False
            if self._push(stream):
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(0.005)

    def _push(self, stream: Any) -> bool:
        """Hand on what waits until the stream takes no more; whether nothing is left."""
        try:
            while self._rest or self._next(stream):
                taken = self._write(stream, self._rest)
                self._rest = self._rest[taken:]
                if not taken:
                    self._finish_at_exit()
                    return False
            return True
        except OSError as error:
            if error.errno in _GONE:
                self._leave(stream)
            else:  # a full disk behind a redirected stream: later lines may fare better
                self._dropped += max(1, self._rest.count(b"\n"))
                self._rest = b""
        except Exception:  # closed, or a stream of the user's that cannot write
            self._leave(stream)
        return False

    def _next(self, stream: Any) -> bytes:
        """Make the next lines that wait into bytes."""
        batch, size = [], 0
        if self._dropped and self._waiting:
            batch.append(f"… {count(self._dropped, 'line')} not shown\n")
            self._dropped = 0
        while self._waiting and size < _BATCH // 2:
            batch.append(self._waiting.popleft())
            size += len(batch[-1])
        encoding = getattr(stream, "encoding", None)
        encoding = encoding if isinstance(encoding, str) else "utf-8"
        self._rest = "".join(batch).encode(encoding, "backslashreplace")
        return self._rest

    def _write(self, stream: Any, data: bytes) -> int:
        """How many of the bytes the stream has taken, without waiting."""
        number = _descriptor(stream)
        kind = stat.S_IFMT(os.fstat(number).st_mode) if number is not None else 0
        if number is None or self._patient or kind == stat.S_IFREG:
            return _through(stream, data)
        if not _room(number, kind, len(data)):
            return 0
        if self._reopen and _untouched(stream) and kind in (stat.S_IFIFO, stat.S_IFCHR):
            stream.flush()  # the user's own prints come first
            taken = self._beside(number, data)
            if taken is not None:
                return taken
        return _through(stream, data)

    def _beside(self, number: int, data: bytes) -> int | None:
        """Write through a second opening of the same pipe or terminal, which alone is set not to wait.

        Setting that on the stream's own descriptor would also set it for the user's prints, and for every
        process that shares it. The opening is closed at once, so that a reader still sees the end.
        """
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        try:
            opened = os.open(f"/proc/self/fd/{number}", flags)
        except OSError as error:
            if error.errno in _GONE:
                raise
            self._reopen = False  # another user's terminal, no /proc
            return None
        try:
            return os.write(opened, data)
        except BlockingIOError:
            return 0
        finally:
            os.close(opened)

    def _leave(self, stream: Any) -> None:
        self._gone = stream
        self.forget()

    def _finish_at_exit(self) -> None:
        """What waits when the program ends gets a last half second."""
        if not self._at_exit:
            self._at_exit = True
            atexit.register(self.flush, 0.5)


def wants_colour() -> bool:
    """Whether the environment allows colour on a terminal: https://no-color.org, and no dumb terminal."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_terminal(stream: Any) -> bool:
    asked = getattr(stream, "isatty", None)
    return bool(asked()) if callable(asked) else False


def _descriptor(stream: Any) -> int | None:
    try:
        number = stream.fileno()
    except (AttributeError, OSError):  # io.UnsupportedOperation: a stream in memory
        return None
    return number if isinstance(number, int) and number >= 0 else None


def _columns(stream: Any) -> int:
    number = _descriptor(stream)
    if number is None:
        return 0
    try:
        return os.get_terminal_size(number).columns
    except OSError:
        return 0


def _untouched(stream: Any) -> bool:
    """Whether nobody wraps or patches the stream: notebooks, progress bars and captures must get the text."""
    return type(stream) is io.TextIOWrapper and "write" not in vars(stream)


def _through(stream: Any, data: bytes) -> int:
    """Write by the stream's own means; it takes all or raises."""
    encoding = getattr(stream, "encoding", None)
    with contextlib.suppress(BlockingIOError):  # the stream has kept what did not go out
        stream.write(data.decode(encoding if isinstance(encoding, str) else "utf-8", "replace"))
        flush = getattr(stream, "flush", None)
        if callable(flush):
            flush()
    return len(data)


def _room(number: int, kind: int, size: int) -> bool:
    """Whether writing `size` bytes and the user's buffered ones would not wait.

    A pipe counts as writable with one free page of sixteen, so its fill is asked for too: pages may be
    half empty, hence twice the bytes in it.
    """
    if not hasattr(select, "poll"):  # Windows
        return True
    asked = select.poll()
    asked.register(number, select.POLLOUT)
    events = asked.poll(0)
    if not events:
        return False
    if events[0][1] != select.POLLOUT:  # an error: writing tells which
        return True
    if kind == stat.S_IFIFO and sys.platform == "linux":
        import fcntl
        import termios

        with contextlib.suppress(OSError, AttributeError):
            held = int.from_bytes(fcntl.ioctl(number, termios.FIONREAD, bytes(4)), sys.byteorder)
            whole = fcntl.fcntl(number, fcntl.F_GETPIPE_SZ)
            return held == 0 or 2 * held + size + _USERS <= whole
    return True
