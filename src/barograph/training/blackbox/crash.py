"""The ends of a process that can be seen coming: an exception that nobody catches, and SIGTERM.

In:   open black boxes.
Out:  a call of each box's `ended_by` or `terminated`; then whatever would have happened without us.

The handler that stood before is called after ours. Without one the process ends of SIGTERM as it always did. A
main thread that is in C code (a collective that never returns) runs no Python handler, where it would have died
at once before: so a thread of ours is woken by the interpreter's wakeup file descriptor, writes the boxes, and
after `PATIENCE` lets the signal have its way. Handlers are set by the main thread alone, and taken away with
the last box, if they are still ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Protocol

PATIENCE = 3.0  # seconds in which the main thread may notice the signal


class Guarded(Protocol):
    """A black box as it is seen here."""

    def ended_by(self, problem: BaseException) -> None:
        """An exception ends the program."""

    def terminated(self, at_rest: bool) -> None:
        """SIGTERM has come. Returns within 2 s. at_rest: the main thread waits for it, and is not in C code."""

    def killed(self, name: str) -> None:
        """The process ends of this signal, now."""


_boxes: list[Guarded] = []
_lock = threading.Lock()
_owner = os.getpid()
_hooked: Callable[..., Any] | None = None  # sys.excepthook as it was before ours
_handled = threading.Event()
_terminating = threading.Lock()


class _Signal:
    """SIGTERM while it is ours."""

    def __init__(self) -> None:
        self.previous: Any = None
        self.installed = False
        self._ears: tuple[int, int] | None = None

    def install(self) -> None:
        previous = signal.getsignal(signal.SIGTERM)
        if previous is None or threading.current_thread() is not threading.main_thread():
            return  # a handler of C code can't be called from here
        if not self.installed:
            signal.signal(signal.SIGTERM, _on_signal)
            self.previous, self.installed = previous, True
        if previous == signal.SIG_DFL and self._ears is None:
            self._listen()

    def _listen(self) -> None:
        heard, told = os.pipe()
        os.set_blocking(told, False)
        before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        if before != -1:  # somebody else's, such as an event loop's
            signal.set_wakeup_fd(before)
            os.close(heard)
            os.close(told)
            return
        self._ears = heard, told
        _load_thread_exit()
        threading.Thread(target=_hear, args=(heard,), name="barograph-signals", daemon=True).start()

    def remove(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # it does nothing without a box, but call the one before it
        if self._ears is not None:
            _, told = self._ears
            before = signal.set_wakeup_fd(-1)
            if before not in (-1, told):
                signal.set_wakeup_fd(before)
            with contextlib.suppress(OSError):
                os.close(told)  # the thread reads the end, and closes its own
            self._ears = None
        if self.installed and signal.getsignal(signal.SIGTERM) is _on_signal:
            signal.signal(signal.SIGTERM, self.previous)
            self.installed = False

    def forget(self) -> None:
        """In a forked child: signals there must not reach the parent."""
        if self._ears is not None:
            with contextlib.suppress(ValueError, OSError):
                before = signal.set_wakeup_fd(-1)
                if before not in (-1, self._ears[1]):
                    signal.set_wakeup_fd(before)
            self._ears = None


_signal = _Signal()


def guard(box: Guarded) -> None:
    """Tell this box when the process ends badly."""
    global _hooked, _owner
    with _lock:
        if os.getpid() != _owner:
            _owner = os.getpid()
            _boxes.clear()
        _boxes.append(box)
        if _hooked is None:  # else it is in place, or called by the one that is
            _hooked = sys.excepthook
            sys.excepthook = _on_exception
        with contextlib.suppress(ValueError, OSError):
            _signal.install()


def release(box: Guarded) -> None:
    """The box is closed."""
    global _hooked
    with _lock:
        if box in _boxes:
            _boxes.remove(box)
        if _boxes or os.getpid() != _owner:
            return
        if sys.excepthook is _on_exception and _hooked is not None:
            sys.excepthook, _hooked = _hooked, None
        with contextlib.suppress(ValueError, OSError):
            _signal.remove()


def _on_exception(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    for box in _ours():
        with contextlib.suppress(Exception):
            box.ended_by(problem)
    (_hooked or sys.__excepthook__)(kind, problem, trace)


def _ours() -> list[Guarded]:
    return list(_boxes) if os.getpid() == _owner else []


def _tell(at_rest: bool) -> None:
    """Have all boxes written, once, whoever asks."""
    if _terminating.acquire(blocking=False):
        threads = [threading.Thread(target=box.terminated, args=(at_rest,), daemon=True) for box in _ours()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2.0)


def _on_signal(number: int, frame: FrameType | None) -> None:
    _handled.set()
    with contextlib.suppress(Exception):
        _tell(at_rest=True)
    previous = _signal.previous
    if callable(previous):
        with contextlib.suppress(RuntimeError):
            _terminating.release()  # the process may go on
        _handled.clear()
        previous(number, frame)
    elif previous == signal.SIG_DFL:
        _say_killed()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _hear(heard: int) -> None:
    """The thread: a byte for each signal, from the interpreter's own handler."""
    with contextlib.suppress(OSError), os.fdopen(heard, "rb", buffering=0) as ear:
        while data := ear.read(64):
            if signal.SIGTERM not in data or _handled.wait(PATIENCE):
                continue
            with contextlib.suppress(Exception):
                _tell(at_rest=False)
            if signal.getsignal(signal.SIGTERM) is _on_signal:
                if not _handled.is_set():
                    _end()
            elif _terminating.locked():
                _terminating.release()  # a handler of the user's own has it, and the process may go on


def _load_thread_exit() -> None:
    """glibc loads this library when a thread ends at the interpreter's end, and aborts the process where no memory is
    left for it."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import _ctypes  # not ctypes, which takes ten times as long

        _ctypes.dlopen("libgcc_s.so.1", 0)


def _say_killed() -> None:
    for box in _ours():
        with contextlib.suppress(Exception):
            box.killed("SIGTERM")


def _end() -> None:
    """End of SIGTERM though the main thread can't take its handler away."""
    saying = threading.Thread(target=_say_killed, daemon=True)  # the main thread may hold a lock of a run
    saying.start()
    saying.join(1.0)
    try:
        import ctypes

        ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
        os.kill(os.getpid(), signal.SIGTERM)
    except (OSError, AttributeError, ImportError):
        os._exit(128 + signal.SIGTERM)


def _forked() -> None:
    global _lock, _handled, _terminating
    _lock, _handled, _terminating = threading.Lock(), threading.Event(), threading.Lock()
    _signal.forget()


os.register_at_fork(after_in_child=_forked)
