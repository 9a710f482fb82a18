"""The terminal while a program has it: its mode, its size, its signals, and how it gets it back.

In:   file descriptors of a terminal.
Out:  bytes typed, sizes, requests to stop; the terminal as it was before, whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import time
from types import FrameType, TracebackType
from typing import Any

# Another screen, no cursor, lines not wrapped; and back.
ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
LEAVE = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_SIGNALS = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGTSTP, signal.SIGCONT)
_DRAIN_SECONDS = 0.3


class Gone(Exception):
    """Nobody is at the terminal any more."""


class TopTerminal:
    """A context: inside it keys come one by one and unseen. `stopped`: the signal that asks to end, or None;
    `resized`: the size may have changed, or all that was drawn is lost."""

    def __init__(self, source: int, target: int):
        self._source, self._target = source, target
        self.stopped: int | None = None
        self.resized = False
        self._before: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._wake: tuple[int, int] = (-1, -1)
        self._suspend = False

    def __enter__(self) -> TopTerminal:
        self._wake = os.pipe()
        for end in self._wake:
            os.set_blocking(end, False)
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._signalled)
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for end in self._wake:
            os.close(end)

    def size(self) -> tuple[int, int]:
        """Columns and rows; 80 × 24 where the terminal doesn't know."""
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(self._target)
            if found.columns > 0 and found.lines > 0:
                return found.columns, found.lines
        return 80, 24

    def read(self, seconds: float) -> bytes:
        """What was typed, after at most so long; nothing also when a signal came. Raises Gone."""
        if self._suspend:
            self._stand_aside()
        try:
            ready, _, _ = select.select([self._source, self._wake[0]], [], [], max(0.0, seconds))
        except InterruptedError:
            return b""
        if self._wake[0] in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake[0], 512)
        if self._suspend:
            self._stand_aside()
        if self._source not in ready:
            return b""
        try:
            data = os.read(self._source, 1024)
        except OSError as error:
            raise Gone from error
        if not data:
            raise Gone
        return data

    def ready(self) -> bool:
        """Whether the terminal takes more: false while a slow line still carries the last page."""
        return bool(select.select([], [self._target], [], 0)[1])

    def write(self, data: bytes) -> None:
        """Write all of it, unless a signal asks to end meanwhile. Raises Gone."""
        while data and self.stopped is None:
            try:
                if not select.select([], [self._target], [], 0.1)[1]:
                    continue
                # a piece at a time: a terminal that takes one byte would otherwise hold up a key or a signal
                data = data[os.write(self._target, data[:1024]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise Gone from error

    # -- inside ---------------------------------------------------------------------------------------

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGWINCH, signal.SIGCONT):
            self.resized = True
        elif number == signal.SIGTSTP:
            self._suspend = True
        else:
            self.stopped = number
        with contextlib.suppress(OSError):
            os.write(self._wake[1], b"!")

    def _take(self) -> None:
        try:
            self._before = termios.tcgetattr(self._source)
            mode = termios.tcgetattr(self._source)
            mode[3] &= ~(termios.ICANON | termios.ECHO)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._source, termios.TCSADRAIN, mode)
        except termios.error:
            self._before = None  # no terminal to type at: it can still be looked at
        self._send(ENTER)

    def _give_back(self) -> None:
        self._send(LEAVE)
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._source, termios.TCSANOW, self._before)

    def _send(self, data: bytes) -> None:
        """Write without waiting for long: a dead line must not keep a program that ends."""
        end = time.monotonic() + _DRAIN_SECONDS
        with contextlib.suppress(OSError):
            while data and time.monotonic() < end:
                if select.select([], [self._target], [], 0.05)[1]:
                    data = data[os.write(self._target, data) :]

    def _stand_aside(self) -> None:
        """Ctrl-Z: the terminal as it was, until the shell brings the program back."""
        self._suspend = False
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._signalled)
        self._take()
        self.resized = True
