"""Delivery: one thread a target, with a bounded queue, gathering, and another try where one failed.

In:   alerts, put by any thread, which never waits.
Out:  messages at the target; one warning if it does not take them.

The first alert goes out at once, with what comes within a moment of it; those of the next minute are gathered
into one message. The queue is bounded: what it can't hold is counted and told.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from barograph.sidecar.alerts.alert import Alert, rank
from barograph.sidecar.alerts.targets import Target, TargetError

MOMENT = 0.2  # seconds: consequences of one trouble come together
PAUSES = (2.0, 8.0, 30.0)  # seconds before each further try
STALLED = 60.0  # seconds after which a try that has not come back is reported; Apprise's own limits are 4 to 15 s
LIMIT = 200  # alerts that wait for one target

_END: Final = None


class Delivery:
    """Brings alerts to one target. The thread starts at once: at a process's exit none can be started."""

    def __init__(
        self,
        target: Target,
        *,
        warn: Callable[[str, str], None],
        about: Callable[[], str],
        lowest: str = "info",
        digest: float = 60.0,
        pauses: tuple[float, ...] = PAUSES,
        stalled: float = STALLED,
    ):
        self.target = target
        self.delivered = 0  # alerts
        self.lost = 0  # alerts that the queue could not hold, or the target did not take
        self._warn, self._about = warn, about
        self._lowest = rank(lowest)
        self._digest = digest if target.gathers else 0.0
        self._pauses, self._stalled = pauses, stalled
        self._queue: queue.SimpleQueue[Alert | None] = queue.SimpleQueue()  # its `put` may be interrupted by another
        self._more = 0  # alerts that the next message counts only
        self._busy_since: float | None = None
        self._ending = threading.Event()
        self._ended = threading.Event()
        self._failed = False  # the last message was not taken
        self._dead = False  # no message will ever be taken
        self._thread = threading.Thread(target=self._work, name="barograph-alerts", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is ending
            self._dead = True
            self._ended.set()

    def put(self, alert: Alert) -> None:
        """Have it delivered. Microseconds, from any thread, never raises."""
        if rank(alert.level) < self._lowest or self._ending.is_set():
            return
        if self._dead:
            self.lost += 1
        elif self._queue.qsize() >= LIMIT:
            self._more += 1
        else:
            self._queue.put(alert)

    @property
    def waiting(self) -> int:
        """About how many alerts are still to be sent."""
        return 0 if self._dead else self._queue.qsize() + self._more + (self._busy_since is not None)

    def check(self) -> None:
        """Say once that a try does not come back. Called now and then by a thread that must not wait."""
        began = self._busy_since
        if began is not None and time.monotonic() - began > self._stalled:
            self._trouble(f"it has not answered for {self._stalled:.0f} s")

    def end(self) -> None:
        """Deliver what waits, with one try, and take nothing more."""
        if not self._ending.is_set():
            self._ending.set()
            self._queue.put(_END)

    def wait(self, deadline: float) -> bool:
        """After `end`: until the deadline, by the monotonic clock; whether all that was put has been dealt with."""
        if self._thread is threading.current_thread():
            return False
        if self._ended.wait(max(0.0, deadline - time.monotonic())):
            return True
        waiting = self._queue.qsize() - 1 + self._more + (self._busy_since is not None)
        self._trouble(f"it did not answer before the run's end, with about {max(1, waiting)} alerts still to be sent")
        return False

    # -- the thread ----------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._open()
            next_at, ending = 0.0, False
            while not ending:
                first = self._queue.get()
                if first is _END:
                    break
                batch, ending = self._gather(first, max(next_at, time.monotonic() + self._moment()))
                self._deliver(batch)
                next_at = time.monotonic() + self._digest
        except Exception as error:  # a mistake of ours must not be silent
            self._trouble(f"{type(error).__name__}: {error}")
        finally:
            self._busy_since = None
            self._dead = True
            self._ended.set()

    def _moment(self) -> float:
        return MOMENT if self.target.gathers else 0.0

    def _open(self) -> None:
        self._busy_since = time.monotonic()
        try:
            self.target.open()
        except TargetError as error:
            self._dead = True
            self._warn(f"an alert target is off: {error}. Alerts are in the run's log", self._key())
        finally:
            self._busy_since = None

    def _gather(self, first: Alert, until: float) -> tuple[list[Alert], bool]:
        """The alerts of one message, and whether the end has come."""
        batch = [first]
        if not self.target.gathers:
            return batch, False
        with contextlib.suppress(queue.Empty):
            while True:
                left = until - time.monotonic()
                item = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
                if item is _END:
                    return batch, True
                if len(batch) < LIMIT:
                    batch.append(item)
                else:
                    self._more += 1
        return batch, False

    def _deliver(self, batch: list[Alert]) -> None:
        more, self._more = self._more, 0
        if self._dead:
            self.lost += len(batch) + more
            return
        pauses = (0.0,) if self._failed or not self.target.gathers else (0.0, *self._pauses)
        reason = ""
        for pause in pauses:
            if pause:
                self._ending.wait(pause)
            last = self._ending.is_set()  # one try is left to what ends
            self._busy_since = time.monotonic()
            try:
                self.target.send(batch, self._about(), more)
            except TargetError as error:
                reason = str(error)
                if error.lasting or last:
                    break
            except Exception as error:
                reason = f"{type(error).__name__}"
                break
            else:
                self._failed = False
                self.delivered += len(batch) + more
                return
            finally:
                self._busy_since = None
        self.lost += len(batch) + more
        self._failed = True
        self._trouble(reason)

    def _key(self) -> str:
        return f"alert target {id(self)}"

    def _trouble(self, reason: str) -> None:
        self._warn(
            f"an alert did not get through to {self.target.name} ({reason}); later ones are tried. "
            "Alerts are in the run's log",
            self._key(),
        )
