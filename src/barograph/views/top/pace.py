"""How often something may be looked at again: seldom, if looking is dear.

In:   the least time between two looks, the share of a core that it may cost.
Out:  whether it is time.
"""

from __future__ import annotations

import time
from types import TracebackType

SHARE = 0.01


class TopPace:
    """`if pace.due(): with pace: …` measures what the work costs, and waits so long that it stays below `share`."""

    def __init__(self, least_seconds: float, share: float = SHARE):
        self._least, self._share = least_seconds, share
        self._next = self._began = 0.0

    def due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self._next

    def hurry(self) -> None:
        """It is time now: what was computed before is out of date."""
        self._next = 0.0

    def __enter__(self) -> TopPace:
        self._began = time.thread_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cost = time.thread_time() - self._began
        self._next = time.monotonic() + max(self._least, cost / self._share)
