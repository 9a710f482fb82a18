"""The base of every door to another tracker: a queue that never waits, and one thread that does.

In:   `log(metrics, step)` from the training loop: microseconds, no exception. Or a source that the thread asks.
Out:  a subclass's `_open`, `_write`, `_flush` and `_close`, called in order on a daemon thread.

The copy that goes to another tracker is never the only one, so nothing here may hurt the training. A
library that is missing, hangs, is slow or dies costs one warning and what it missed is counted; at exit
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
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from barograph.core import place
from barograph.core.values import PLAIN, DeviceValues, flatten, number, on_device, text

_logger = logging.getLogger("barograph")

_MOST_STEP = 2**63 - 1  # W&B and TensorBoard keep steps in 64 bits


class LoggingBackend:
    """One other tracker. Only rank 0 sends; the library is imported at the first `log`.

    A subclass says what it is (`name`, `package`, `install`) and how to `_open`, `_write` and `_close`;
    these run on this backend's own thread, one after the other, and may raise and take their time.

    log_file: where the same records are kept, for the sentences that say what was not sent.
    """

    name: ClassVar[str] = "the backend"
    package: ClassVar[str] = ""  # the library's import name
    install: ClassVar[str] = ""  # what brings it
    takes_text: ClassVar[bool] = False  # whether `_write` takes text among the values
    marks: ClassVar[bool] = False  # whether `_held` gives back what a mirror wrote: see there

    queue_records = 10_000  # waiting records; a record of 20 numbers takes about 2 kB
    queue_values = 2_000_000  # waiting numbers, about 200 MB
    poll_seconds = 0.25  # the thread looks at the queue this often: waking it would cost each log call
    most_failures = 20  # refusals in a row after which the backend is off
    stall_seconds = 10.0  # at close, a single call into the library may have lasted this long
    close_seconds = 30.0  # all that close waits, the library's own end included

    def __init__(self, *, log_file: str | os.PathLike[str] = ""):
        self.log_file = os.fspath(log_file)
        self._not_taken = self._not_sent = 0  # the first is counted by callers, the second by the thread
        self._queue: deque[tuple[Callable[..., Any], tuple[Any, ...], int]] = deque()
        self._values_in = self._values_out = 0  # the first is written by callers, the second by the thread
        self._lock = threading.Lock()  # among callers alone: the thread never makes one wait
        self._wake, self._done = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._off = self._failed = self._closing = False  # `_failed`: off by trouble, records are counted
        self._doing = ""  # what the thread is in the library for: start, write, flush, end or nothing
        self._busy_since = 0.0  # since when
        self._failures, self._refusal = 0, ""
        self._warned: set[str] = set()
        self._exit_hooks: list[Callable[..., Any]] = []  # the library's
        self._source: Callable[[], bool] | None = None
        self.run_id = ""  # the library's identity of the run, once it is known
        self.exit_code: int | None = None  # how the run ended, where that is known; read by `_close`
        self.mark: dict[str, float] = {}  # a mirror's own numbers, for a row that `_write` does not get
        self.begins_anew = False  # `_open` found nothing of the run that `_resume` told of
        self.later = ""  # how to send later what was not sent, for the sentences that say so

    @property
    def lost(self) -> int:
        """Records that were not sent."""
        return self._not_taken + self._not_sent

    # -- what a subclass gives ----------------------------------------------------------------------

    def _open(self) -> None:
        """Import the library and start its run. An ImportError means that it is not installed."""
        raise NotImplementedError

    def _write(self, metrics: dict[str, Any], step: int, seconds: float) -> None:
        """Hand over one record: flat names, plain values (NaN, infinity, text and None too); when it was
        logged, in seconds since 1970. Raises if the library refuses it."""
        raise NotImplementedError

    def _write_config(self, config: dict[str, Any]) -> None:
        """Hand over the run's configuration: flat names, plain values."""
        raise NotImplementedError(f"{self.name} gets no configuration")

    def _write_histogram(self, name: str, edges: list[float], counts: list[float], step: int, seconds: float) -> None:
        """Hand over a distribution: `counts[i]` values between `edges[i]` and `edges[i + 1]`."""
        raise NotImplementedError(f"{self.name} gets no histograms")

    def _write_text(self, name: str, content: str, step: int, seconds: float) -> None:
        """Hand over a text, such as a sample of what the model writes."""
        raise NotImplementedError(f"{self.name} gets no text")

    def _write_note(self, title: str, content: str, level: str, step: int, seconds: float) -> None:
        """Hand over something that a person should read now; level: info, warning or critical."""
        raise NotImplementedError(f"{self.name} gets no notes")

    def _write_parts(self, name: str, title: str, parts: dict[str, float], step: int, seconds: float) -> None:
        """Hand over the parts of a whole, for a pie."""
        raise NotImplementedError(f"{self.name} gets no pies")

    def _write_rewind(self, step: int, seconds: float) -> None:
        """The training went back to `step`: what was written at it or later is an old branch."""
        raise NotImplementedError(f"{self.name} gets no rewinds")

    def _flush(self) -> None:
        """Let others see what was written; called when the queue is empty, at most every `poll_seconds`.

        A mirror notes what was written as sent once this has returned.
        """

    def _state(self) -> dict[str, Any]:
        """What another process needs to go on with this run, as plain JSON values; asked after `_flush`."""
        return {"run_id": self.run_id} if self.run_id else {}

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Before `_open`: go on with the run that `_state` told of."""

    def _held(self, name: str) -> list[float] | None:
        """Every value of `name` that the run holds, in any order; None where that is not known.

        Asked after `_open`, when an earlier sender was interrupted. A class that answers sets `marks`: what
        `_write` gets then has numbers of the mirror's own among it (`barograph_offset`, `barograph_wide`), by
        which the mirror sees what has arrived.
        """
        return None

    def _close(self) -> None:
        """End the library's run."""

    # -- what the training calls --------------------------------------------------------------------

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Send numbers by name. Returns in microseconds and never raises; does nothing once closed.

        Values are read now, except those on an accelerator, which are copied without waiting for it.
        """
        if self._off:
            self._not_taken += self._failed
            return
        try:
            values: Any
            if PLAIN.issuperset(map(type, metrics.values())):
                values = dict(metrics)
            elif on_device(metrics):
                values = DeviceValues(metrics)
            else:
                values = flatten(metrics, self._odd)
            self._put(self._send_record, (values, step, time.time()), len(metrics))
        except Exception as error:
            self._odd(f"a record could not be read: {type(error).__name__}: {error}")

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Send the run's configuration; nested names are joined with `/`. Never raises."""
        try:
            self._put(self._write_config, (flatten(config, self._odd),), len(config))
        except Exception as error:
            self._odd(f"the configuration could not be read: {type(error).__name__}: {error}")

    def log_histogram(self, name: str, edges: Any, counts: Any, step: int) -> None:
        """Send a distribution: n counts between n + 1 edges. Never raises."""
        try:
            arguments = (text(name), list(edges), list(counts), step, time.time())
            self._put(self._send_histogram, arguments, 2 * len(arguments[2]))
        except Exception as error:
            self._odd(f"the histogram {name!r:.60} could not be read: {type(error).__name__}: {error}")

    def close(self, timeout: float | None = None) -> bool:
        """Send what waits and end the library's run, in at most `timeout` seconds; whether nothing is lost.

        Also done when the interpreter exits. A library that does not come back is left behind.
        """
        self._ask_to_close()
        if self._thread is None or self._thread is threading.current_thread():
            self._off = True
            return self.lost == 0
        deadline = time.monotonic() + (self.close_seconds if timeout is None else timeout)
        while not self._off and not self._done.wait(min(0.1, max(deadline - time.monotonic(), 0))):
            now, stalled = time.monotonic(), time.monotonic() - self._busy_since > self.stall_seconds
            if now >= deadline or (stalled and self._doing not in ("", "end")):
                self._leave_behind()
        if self.lost and "lost" not in self._warned:
            self._warned.add("lost")
            _logger.info("barograph: %d records were not sent to %s", self.lost, self.name)
        return self.lost == 0

    # -- the queue ----------------------------------------------------------------------------------

    def _put(self, send: Callable[..., Any], arguments: tuple[Any, ...], size: int) -> None:
        """Queue a call for the thread, which is started by the first one."""
        with self._lock:
            if self._thread is None and place.rank()[0] != 0:
                self._off = True
            if self._closing or self._off:
                self._not_taken += self._failed
                return
            waiting = self._values_in - self._values_out
            full = len(self._queue) >= self.queue_records or (waiting and waiting + size > self.queue_values)
            if full:
                self._not_taken += 1
            else:
                self._values_in += size
                self._queue.append((send, arguments, size))
                if self._thread is None:
                    self._start()
        if full and "trouble" not in self._warned:
            self._trouble(f"{self.name} does not keep up; records are being left out")

    def _start(self) -> None:
        import concurrent.futures.thread  # noqa: F401  libraries need it, and it can't be imported at exit

        self._thread = threading.Thread(target=self._work, name=f"barograph-{self.package}", daemon=True)
        _open_backends.add(self)
        _be_first_at_exit()  # also where the training itself has started the library
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is ending
            self._off = self._failed = True
            self._done.set()

    def _ask_to_close(self) -> None:
        self._closing = True
        self._wake.set()

    # -- instead of the queue ------------------------------------------------------------------------

    def feed(self, source: Callable[[], bool]) -> None:
        """Have the thread, which is started now, call `source` whenever there may be something to send.

        The source sends by `deliver`, and returns whether it has more at once. `close` lets it finish.
        """
        with self._lock:
            if self._thread is None and not self._off:
                self._source = source
                self._start()

    def deliver(self, send: Callable[..., Any], *arguments: Any) -> bool:
        """In the thread: one call into the library, counted and reported; whether it was taken."""
        self._busy_since, self._doing = time.monotonic(), "write"
        try:
            send(*arguments)
            self._accepted()
            return True
        except BaseException as error:
            self._refused(error)
            return False
        finally:
            self._doing = ""

    @property
    def refusing(self) -> bool:
        """The last records were refused, and perhaps the next one will be too."""
        return self._failures > 0

    @property
    def off(self) -> bool:
        """Nothing is sent any more."""
        return self._off

    @property
    def failed(self) -> bool:
        """Off because of trouble."""
        return self._failed

    # -- the thread ---------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            if self._call("start", self._open_watched):
                while True:
                    closing = self._closing  # asked first: what came before it is sent
                    if not self._drain() or (closing and not self._queue):
                        break
                    self._wake.wait(self.poll_seconds)
                self._call("end", self._close)
        finally:
            if self._refusal and not self._off:
                self._trouble(f"{self.name} refused a record ({self._refusal})", key="refused")
            self._off = True
            _open_backends.discard(self)
            self._done.set()

    def _open_watched(self) -> None:
        try:
            with _watch_exit_hooks(self.package, self._exit_hooks):
                self._open()
        except ImportError as error:
            missing = error.name or self.package
            reason = "" if missing == self.package else f" ({error})"
            self._turn_off(f"{self.name} gets no copy of this run; it needs {self.install}{reason}")
        except BaseException as error:
            self._turn_off(f"{self.name} could not start and gets no copy of this run: {_shown(error)}")

    def _drain(self) -> bool:
        """Send what waits; whether to go on."""
        sent = 0
        while self._queue and not self._off:
            send, arguments, size = self._queue.popleft()
            self.deliver(send, *arguments)
            self._values_out += size
            sent += 1
        if self._source is not None:
            while not self._off and self._source():
                pass
        return not self._off and (not sent or self._call("flush", self._flush))

    def _call(self, doing: str, call: Callable[[], Any]) -> bool:
        """Call into the library; whether to go on."""
        self._busy_since, self._doing = time.monotonic(), doing
        try:
            call()
        except BaseException as error:
            self._trouble(f"{self.name} could not {doing}: {_shown(error)}")
        self._doing = ""
        return not self._off

    def _send_record(self, values: Any, step: Any, seconds: float) -> None:
        if isinstance(values, DeviceValues):
            while not values.ready():
                time.sleep(0.001)
            values = values.values
        self._write(flatten(values, self._odd), _whole(step), seconds)

    def _send_histogram(self, name: str, edges: list[Any], counts: list[Any], step: Any, seconds: float) -> None:
        if len(edges) != len(counts) + 1:
            raise ValueError(f"the histogram {name!r} has {len(counts)} counts and {len(edges)} edges, not one more")
        edges, counts = [float(edge) for edge in edges], [float(count) for count in counts]
        self._write_histogram(name, edges, counts, _whole(step), seconds)

    # -- trouble ------------------------------------------------------------------------------------

    def _accepted(self) -> None:
        """A single refusal is reported when the next record goes through: until then it may be the end."""
        if self._refusal:
            self._trouble(f"{self.name} refused a record ({self._refusal}); it was left out", key="refused")
            self._failures, self._refusal = 0, ""

    def _refused(self, error: BaseException) -> None:
        self._not_sent += 1
        self._failures += 1
        self._refusal = self._refusal or _shown(error)
        self._doing = ""
        if self._failures >= self.most_failures:
            self._turn_off(f"{self.name} refused {self._failures} records in a row and is off now: {self._refusal}")

    def _turn_off(self, sentence: str) -> None:
        """Send nothing more; at exit nobody waits for the library."""
        self._give_up()
        self._trouble(sentence)

    def _leave_behind(self) -> None:
        """The library does not come back in time: forget it, and its exit hooks, which would wait too."""
        waiting = self._give_up()
        _open_backends.discard(self)
        self._trouble(f"{self.name} did not end in time and was left behind; {waiting} records were not sent")

    def _give_up(self) -> int:
        """How many records are not sent because of it."""
        with self._lock:
            waiting = len(self._queue) + (self._doing == "write")
            self._not_sent += waiting
            self._queue.clear()
            self._off = self._failed = True
        for hook in self._exit_hooks:
            atexit.unregister(hook)
        return waiting

    def _trouble(self, sentence: str, key: str = "trouble") -> None:
        """Say it: the first time as a warning, after that for those who read everything."""
        level = logging.INFO if key in self._warned else logging.WARNING
        self._warned.add(key)
        kept = f". The records are in {self.log_file}" if self.log_file else ""
        kept += f"; {self.later}" if self.later else ""
        _logger.log(level, "barograph: %s%s", sentence, kept)

    def _odd(self, sentence: str) -> None:
        if "odd" not in self._warned:
            self._warned.add("odd")
            _logger.warning("barograph: %s: %s", self.name, sentence)

    def _forget_thread(self) -> None:
        """In a forked child there is no thread, and the library's run is the parent's."""
        self._off = True
        for hook in self._exit_hooks:
            atexit.unregister(hook)
        self._queue = deque()
        self._lock = threading.Lock()
        self._thread = None


def _whole(step: Any) -> int:
    value = number(step)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"a step must be a whole number, not {text(step)[:60]!r}")
    return max(-_MOST_STEP - 1, min(int(value), _MOST_STEP))


def _shown(error: BaseException) -> str:
    sentence = " ".join(text(error).split())[:300].rstrip(".")
    return f"{type(error).__name__}: {sentence}" if sentence else type(error).__name__


# -- the process: its exit, its forks -------------------------------------------------------------------

_open_backends: weakref.WeakSet[LoggingBackend] = weakref.WeakSet()
_watchers: list[tuple[str, list[Callable[..., Any]]]] = []
_watching = threading.Lock()
_register = atexit.register
_atexit: Any = atexit  # whose `register` is replaced for a while


def _close_all() -> None:
    backends = list(_open_backends)
    for backend in backends:
        backend._ask_to_close()  # all at once, so that two that hang are waited for once
    for backend in backends:
        backend.close()


def _be_first_at_exit() -> None:
    """Hooks run in the reverse order of their registration; a library's may wait for ever."""
    atexit.unregister(_close_all)
    _register(_close_all)


def _register_watched(hook: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Stands for `atexit.register` while a library starts."""
    made = _register(hook, *arguments, **named)
    package = str(getattr(hook, "__module__", "")).partition(".")[0]
    for watched, hooks in list(_watchers):
        if package == watched:
            hooks.append(hook)
            _be_first_at_exit()
    return made


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
    for backend in list(_open_backends):
        backend._forget_thread()
    _open_backends.clear()


_be_first_at_exit()
os.register_at_fork(after_in_child=_forked)
