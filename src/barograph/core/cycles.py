"""How often Python searches for objects in cycles.

In:   work that makes objects by the hundred thousand, none of them in a cycle.
Out:  the same work with few searches.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
from collections.abc import Iterator

_SWEEP = 500_000  # objects made between two searches


def seldom_until_end() -> None:
    """Few searches for the rest of a process that ends soon, and none as it ends, where the system takes all back."""
    _set()
    atexit.register(gc.freeze)


def _set() -> None:
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], _SWEEP), *before[1:])


@contextlib.contextmanager
def seldom_swept() -> Iterator[None]:
    """With few searches: a text log's rows are tuples by the million, and none is in a cycle. They cost a sixth of the
    time."""
    before = gc.get_threshold()
    _set()
    try:
        yield
    finally:
        gc.set_threshold(*before)
