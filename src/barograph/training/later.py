"""Later: the one thread of the training process, started by the first thing that has to be waited for.

In:   values that are on an accelerator, chores that look for what has arrived, calls that must not hold up a step.
Out:  the chores called while there is something to wait for; nothing runs where there is not.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from barograph.core.values import DeviceValues
from barograph.training.captures import leave_alone

_SOON, _SELDOM = 0.005, 0.25  # seconds between two looks: at values on their way, at chores


class Later:
    """write: records values that have arrived: `write(kind, step, values, moment)`. warn: told what a chore raised."""

    def __init__(self, write: Callable[[str, int, Mapping[Any, Any], int], Any], warn: Callable[[str], Any]):
        self._write, self._warn = write, warn
        self._waiting: deque[tuple[DeviceValues, str, int, int]] = deque()  # values, kind, step, moment
        self._chores: list[Callable[[], Any]] = []
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._reading = threading.Lock()
        self._running = False
        self._ended = False
        self._owner = os.getpid()

    def values(self, values: Mapping[Any, Any], kind: str, step: int) -> None:
        """Copy what is on a device without waiting, and record all of it once it is here."""
        self._waiting.append((DeviceValues(values), kind, step, time.time_ns() // 1000))
        self._wake(None)

    def each_round(self, chore: Callable[[], Any]) -> None:
        """Call `chore` some times a second until the end. It must not wait for anything."""
        if chore not in self._chores:
            self._chores.append(chore)
            self._wake(None)

    def call(self, work: Callable[[], Any]) -> None:
        """Call `work` once, soon."""
        self._wake(work)

    def _wake(self, work: Callable[[], Any] | None) -> None:
        if self._ended:
            return
        if os.getpid() != self._owner:  # a forked child: the thread is the parent's
            self.forget()
        self._calls.put(work)
        if not self._running:
            # not by `threading`: a signal handler that raises in the middle of that leaves half a thread behind
            _thread.start_new_thread(self._work, ())
            self._running = True

    def _work(self) -> None:
        settled = False
        while not self._ended:
            settled = settled or leave_alone()
            pause = _SOON if self._waiting else _SELDOM if self._chores else None
            with contextlib.suppress(queue.Empty):
                work = self._calls.get(timeout=pause)
                if work is not None:
                    self._guard(work)
            self._guard(self.read)
            for chore in tuple(self._chores):
                self._guard(chore)

    def _guard(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:  # a thread that dies would lose all that follows
            self._warn(f"a background task failed with {type(error).__name__}: {error}")

    def read(self) -> None:
        """Record what has arrived, in order; from any thread."""
        with self._reading:
            while self._waiting and self._waiting[0][0].ready():
                arrived, kind, step, moment = self._waiting.popleft()
                self._write(kind, step, arrived.values, moment)

    def wait(self, seconds: float) -> bool:
        """Have all values recorded that are on their way, for at most so long; whether none is left."""
        deadline = time.monotonic() + seconds
        while self._waiting:
            self._guard(self.read)
            if not self._waiting or time.monotonic() >= deadline:
                break
            time.sleep(0.001)
        return not self._waiting

    def stop(self) -> None:
        """End the thread; what still waits is not recorded."""
        self._ended = True
        self._calls.put(None)

    def forget(self) -> None:
        """In a forked child: the parent's values are the parent's."""
        self._owner, self._running, self._ended = os.getpid(), False, False
        self._calls, self._reading = queue.SimpleQueue(), threading.Lock()
        self._waiting, self._chores = deque(), []
