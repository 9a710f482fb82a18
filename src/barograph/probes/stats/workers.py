"""Threads that run torch operations side by side, each on one core.

In:   jobs, as calls that take a place in a queue.
Out:  their results, in the caller's order.

Some operations of torch run on one core whatever their size; two threads of Python run two of them at
once, because torch lets go of the interpreter's lock. Each thread is kept from opening a team of OpenMP
threads of its own: with more threads than cores OpenMP stops spinning for the whole process, and every
parallel operation of the training would then cost some 50 µs more (measured on 2 cores).
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

LIMIT = 4  # threads; more gain little, because they share memory bandwidth and the interpreter's lock

_teams: dict[tuple[int, int], Team] = {}


class Team:
    """`size` threads that wait for jobs, and end with the process."""

    def __init__(self, size: int) -> None:
        import torch

        self.size = size
        self._jobs: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        threads = torch.get_num_threads()
        for number in range(size):
            threading.Thread(target=self._work, daemon=True, name=f"barograph-statistics-{number}").start()
            self._done.get()
            # set_num_threads holds for the calling thread in OpenMP but for all in MKL: take that back
            torch.set_num_threads(threads)

    def _work(self) -> None:
        import torch

        # asking first makes torch set up this thread; otherwise its first operation would undo the next line
        torch.get_num_threads()
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self._done.put((None, None))
        while True:
            job = self._jobs.get()
            try:
                self._done.put((job(), None))
            except BaseException as error:
                self._done.put((None, error))

    def run(self, job: Callable[[Any, Any], None], items: list[Any], scratch: list[Any]) -> None:
        """`job(item, scratch)` for every item; each thread has one scratch. Raises the first error."""
        ticket = itertools.count()  # its next() is atomic

        def share(own: Any) -> None:
            while (number := next(ticket)) < len(items):
                job(items[number], own)

        for own in scratch[: self.size]:
            self._jobs.put(partial(share, own))
        errors = [self._done.get()[1] for _ in scratch[: self.size]]
        for error in errors:
            if error is not None:
                raise error


def team() -> Team | None:
    """Threads for this process and torch's present number of threads; None if that is one."""
    import torch

    size = min(torch.get_num_threads(), LIMIT)
    if size < 2:
        return None
    key = (os.getpid(), size)  # a forked child has none of its parent's threads
    if key not in _teams:
        for old in [known for known in _teams if known[0] != key[0]]:
            del _teams[old]
        _teams[key] = Team(size)
    return _teams[key]
