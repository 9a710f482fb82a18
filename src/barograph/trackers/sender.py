"""A backend's sender: a queue that never waits, and one thread that does.

In:   calls put by the training loop, or a source that the thread asks.
Out:  these calls on a daemon thread, one after the other; what was not taken, counted.

A library that is missing, hangs, is slow or dies costs one warning and what it missed is counted; at exit
it gets a bounded time, and after that its own exit hooks are taken out, so that the process can end.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from barograph.core import place
from barograph.core.values import text

if TYPE_CHECKING:
    from barograph.trackers.backend import LoggingBackend

_logger = logging.getLogger("barograph")


class Sender:
    """The queue and the thread of one backend.

    Attributes: `off` (nothing is sent any more), `failed` (off by trouble: records are counted as lost), `doing`
    (what the thread is in the library for: start, write, flush, end or nothing), `busy_since`, and `returned` (how
    many calls into the library came back without an error).
    """

    def __init__(self, backend: LoggingBackend):
        self.backend = backend
        self.not_taken = self.not_sent = 0  # records; the first is counted by callers, the second by the thread
        self.queue: deque[tuple[Callable[..., Any], tuple[Any, ...], int]] = deque()
        self._values_in = self._values_out = 0  # the first is written by callers, the second by the thread
        self._lock = threading.Lock()  # among callers alone: the thread never makes one wait
        self._wake, self._done = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self.off = self.failed = self._closing = False
        self.doing, self.busy_since = "", 0.0
        self.returned = 0
        self._failures, self._refusal = 0, ""
        self._warned: set[str] = set()
        self.exit_hooks: list[Callable[..., Any]] = []  # the library's
        self._source: Callable[[], bool] | None = None

    @property
    def lost(self) -> int:
        """Records that were not sent."""
        return self.not_taken + self.not_sent

    # -- the queue ----------------------------------------------------------------------------------

    def put(self, send: Callable[..., Any], arguments: tuple[Any, ...], size: int) -> None:
        """Queue a call for the thread, which is started by the first one."""
        with self._lock:
            if self._thread is None and place.rank()[0] != 0:
                self.off = True
            if self._closing or self.off:
                self.not_taken += self.failed
                return
            waiting = self._values_in - self._values_out
            full = len(self.queue) >= self.backend.queue_records or (
                waiting and waiting + size > self.backend.queue_values
            )
            if full:
                self.not_taken += 1
            else:
                self._values_in += size
                self.queue.append((send, arguments, size))
                if self._thread is None:
                    self._start()
        if full and "trouble" not in self._warned:
            self.trouble(f"{self.backend.name} does not keep up; records are being left out")

    def _start(self) -> None:
        import concurrent.futures.thread  # noqa: F401  libraries need it, and it can't be imported at exit

        self._thread = threading.Thread(target=self._work, name=f"barograph-{self.backend.package}", daemon=True)
        _senders.add(self)
        _be_first_at_exit()  # also where the training itself has started the library
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is ending
            self.off = self.failed = True
            self._done.set()

    def wake(self) -> None:
        """Have the thread look now."""
        self._wake.set()

    def ask_to_close(self) -> None:
        """Have the thread end once all is sent."""
        self._closing = True
        self._wake.set()

    def close(self, timeout: float | None) -> None:
        """Wait for that, at most so long; a library that does not come back is left behind."""
        self.ask_to_close()
        if self._thread is None or self._thread is threading.current_thread():
            self.off = True
            return
        deadline = time.monotonic() + (self.backend.close_seconds if timeout is None else timeout)
        while not self.off and not self._done.wait(min(0.1, max(deadline - time.monotonic(), 0))):
            now, stalled = time.monotonic(), time.monotonic() - self.busy_since > self.backend.stall_seconds
            if now >= deadline or (stalled and self.doing not in ("", "end")):
                self._leave_behind()
        if self.lost and "lost" not in self._warned:
            self._warned.add("lost")
            _logger.info("barograph: %d records were not sent to %s", self.lost, self.backend.name)

    # -- instead of the queue ------------------------------------------------------------------------

    def feed(self, source: Callable[[], bool]) -> None:
        """Have the thread, which is started now, call `source` whenever there may be something to send.

        The source sends by `deliver`, and returns whether it has more at once. `close` lets it finish.
        """
        with self._lock:
            if self._thread is None and not self.off:
                self._source = source
                self._start()

    def deliver(self, send: Callable[..., Any], *arguments: Any) -> bool:
        """In the thread: one call into the library, counted and reported; whether it was taken."""
        self.busy_since, self.doing = time.monotonic(), "write"
        try:
            send(*arguments)
            self._accepted()
            self.returned += 1
            return True
        except BaseException as error:
            self._refused(error)
            return False
        finally:
            self.doing = ""

    @property
    def refusing(self) -> bool:
        """The last records were refused, and perhaps the next one will be too."""
        return self._failures > 0

    # -- the thread ---------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            if self._call("start", self._open_watched):
                while True:
                    closing = self._closing  # asked first: what came before it is sent
                    if not self._drain() or (closing and not self.queue):
                        break
                    self._wake.wait(self.backend.poll_seconds)
                    self._wake.clear()
                if self.backend._close is not None:
                    self._call("end", self.backend._close)
        finally:
            if self._refusal and not self.off:
                self.trouble(f"{self.backend.name} refused a record ({self._refusal})", key="refused")
            self.off = True
            _senders.discard(self)
            self._done.set()

    def _open_watched(self) -> None:
        try:
            with _watch_exit_hooks(self.backend.package, self.exit_hooks):
                self.backend._open()
        except ImportError as error:
            missing = error.name or self.backend.package
            reason = "" if missing == self.backend.package else f" ({error})"
            self.turn_off(f"{self.backend.name} gets no copy of this run; it needs {self.backend.install}{reason}")
        except BaseException as error:
            self.turn_off(f"{self.backend.name} could not start and gets no copy of this run: {_shown(error)}")

    def _drain(self) -> bool:
        """Send what waits; whether to go on."""
        sent = 0
        while self.queue and not self.off:
            send, arguments, size = self.queue.popleft()
            self.deliver(send, *arguments)
            self._values_out += size
            sent += 1
        if self._source is not None:
            while not self.off and self._source():
                pass
        if sent and not self.off:
            self.flush()
        return not self.off

    def _call(self, doing: str, call: Callable[[], Any]) -> bool:
        """Call into the library; whether it worked."""
        self.busy_since, self.doing = time.monotonic(), doing
        try:
            call()
            self.returned += 1
            return not self.off
        except BaseException as error:
            self.trouble(f"{self.backend.name} could not {doing}: {_shown(error)}")
            return False
        finally:
            self.doing = ""

    def flush(self) -> bool:
        """In the thread: let others see what was written; whether that worked. What did not, the backend keeps."""
        return self.backend._flush is None or self._call("flush", self.backend._flush)

    # -- trouble ------------------------------------------------------------------------------------

    def _accepted(self) -> None:
        """A single refusal is reported when the next record goes through: until then it may be the end."""
        if self._refusal:
            self.trouble(f"{self.backend.name} refused a record ({self._refusal}); it was left out", key="refused")
            self._failures, self._refusal = 0, ""

    def _refused(self, error: BaseException) -> None:
        self.not_sent += 1
        self._failures += 1
        self._refusal = self._refusal or _shown(error)
        self.doing = ""
        if self._failures >= self.backend.most_failures:
            self.turn_off(
                f"{self.backend.name} refused {self._failures} records in a row and is off now: {self._refusal}"
            )

    def turn_off(self, sentence: str) -> None:
        """Send nothing more; at exit nobody waits for the library."""
        self._give_up()
        self.trouble(sentence)

    def _leave_behind(self) -> None:
        """The library does not come back in time: forget it, and its exit hooks, which would wait too."""
        waiting = self._give_up()
        _senders.discard(self)
        self.trouble(f"{self.backend.name} did not end in time and was left behind; {waiting} records were not sent")

    def _give_up(self) -> int:
        """How many records are not sent because of it."""
        with self._lock:
            waiting = len(self.queue) + (self.doing == "write")
            self.not_sent += waiting
            self.queue.clear()
            self.off = self.failed = True
        for hook in self.exit_hooks:
            atexit.unregister(hook)
        return waiting

    def trouble(self, sentence: str, key: str = "trouble") -> None:
        """Say it: the first time as a warning, after that for those who read everything."""
        level = logging.INFO if key in self._warned else logging.WARNING
        self._warned.add(key)
        kept = f". The records are in {self.backend.log_file}" if self.backend.log_file else ""
        kept += f"; {self.backend.later}" if self.backend.later else ""
        _logger.log(level, "barograph: %s%s", sentence, kept)

    def odd(self, sentence: str) -> None:
        """Something that the library can't take: one warning."""
        if "odd" not in self._warned:
            self._warned.add("odd")
            _logger.warning("barograph: %s: %s", self.backend.name, sentence)

    def forget_thread(self) -> None:
        """In a forked child there is no thread, and the library's run is the parent's."""
        self.off = True
        for hook in self.exit_hooks:
            atexit.unregister(hook)
        self.queue = deque()
        self._lock = threading.Lock()
        self._thread = None


def _shown(error: BaseException) -> str:
    sentence = " ".join(text(error).split())[:300].rstrip(".")
    return f"{type(error).__name__}: {sentence}" if sentence else type(error).__name__


# -- the process: its exit, its forks -------------------------------------------------------------------

_senders: weakref.WeakSet[Sender] = weakref.WeakSet()
_watchers: list[tuple[str, list[Callable[..., Any]]]] = []
_watching = threading.Lock()
_register = atexit.register
_atexit: Any = atexit  # whose `register` is replaced for a while


def _close_all() -> None:
    senders = list(_senders)
    for sender in senders:
        sender.ask_to_close()  # all at once, so that two that hang are waited for once
    for sender in senders:
        sender.close(None)


def _be_first_at_exit() -> None:
    """Hooks run in the reverse order of their registration; a library's may wait for ever."""
    atexit.unregister(_close_all)
    _register(_close_all)


def _register_watched(hook: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Stands for `atexit.register` while a library starts."""
    result = _register(hook, *arguments, **named)
    package = str(getattr(hook, "__module__", "")).partition(".")[0]
    for watched, hooks in list(_watchers):
        if package == watched:
            hooks.append(hook)
            _be_first_at_exit()
    return result


@contextlib.contextmanager
def _watch_exit_hooks(package: str, hooks: list[Callable[..., Any]]) -> Iterator[None]:
    """Collect the exit hooks that a library registers meanwhile, and stay in front of them."""
    watcher = (package, hooks)
    with _watching:
        _watchers.append(watcher)
        if _atexit.register is _register:
            _atexit.register = _register_watched
    try:
        yield
    finally:
        with _watching:
            _watchers[:] = [other for other in _watchers if other is not watcher]
            if not _watchers and _atexit.register is _register_watched:
                _atexit.register = _register


def _forked() -> None:
    global _watching
    _watching = threading.Lock()
    for sender in list(_senders):
        sender.forget_thread()
    _senders.clear()


_be_first_at_exit()
os.register_at_fork(after_in_child=_forked)
