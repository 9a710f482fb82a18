"""Answers that take long: worked out once, however many ask, and kept while the run has nothing new.

In:   a key, what the answer depends on, and the work.
Out:  the answer; or, when it takes too long, that it is still being worked out.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

PATIENCE_SECONDS = 25.0  # browsers and proxies give up on a silent answer after half a minute or more
_KEPT = 64
_KEPT_BYTES = 32 << 20
_SHARE = 20  # an answer about a run that goes on is made anew after this many times what it took


class StillWorking(Exception):
    """The answer is not there yet; asking again later gets it."""


class SlowAnswers:
    """`threads` answers are worked out at a time. Any thread may call."""

    def __init__(self, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="barograph-slow")
        self._lock = threading.Lock()
        self._closed = False
        self._made: OrderedDict[Hashable, tuple[Any, bytes, float, float]] = OrderedDict()
        self._going: dict[Hashable, Future[bytes]] = {}

    def get(self, key: Hashable, state: Any, work: Callable[[], bytes], patience: float = PATIENCE_SECONDS) -> bytes:
        """The answer `work` gives. Raises what it raises, or StillWorking.

        One that is a little out of date is given again, where making it took a large part of the time since.
        """
        with self._lock:
            known = self._made.get(key)
            if known is not None:
                old_state, answer, made, took = known
                if old_state == state or time.monotonic() - made < _SHARE * took:
                    self._made.move_to_end(key)
                    return answer
            going = self._going.get(key)
            if going is None:
                if self._closed:
                    raise StillWorking("the server is ending")
                going = self._going[key] = self._threads.submit(self._work, key, state, work)
        try:
            return going.result(patience)
        except CancelledError:
            raise StillWorking("the server is ending") from None
        except TimeoutError:
            if going.done():
                raise
            raise StillWorking("this is still being computed; try again in a moment") from None

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _work(self, key: Hashable, state: Any, work: Callable[[], bytes]) -> bytes:
        began = time.monotonic()
        try:
            answer = work()
            with self._lock:
                now = time.monotonic()
                self._made[key] = state, answer, now, now - began
                self._made.move_to_end(key)
                held = sum(len(item[1]) for item in self._made.values())
                while len(self._made) > _KEPT or (held > _KEPT_BYTES and len(self._made) > 1):
                    held -= len(self._made.popitem(last=False)[1][1])
            return answer
        finally:
            with self._lock:
                self._going.pop(key, None)
