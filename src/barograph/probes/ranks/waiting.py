"""How long this rank waits for the others, measured where it waits.

In:   a DistributedDataParallel model, or any program that calls torch.distributed's collectives.
Out:  `take()`: milliseconds waited since the last call, for `Ranks.reduce`.

Who is slow comes last to a collective and waits least. On CPUs the wall clock is read before and after; on
CUDA events are recorded on the stream that has to wait, and read when they are over: nothing waits for them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any

_LONGEST = 1024  # pairs of events that nobody took


class _Measure:
    """Sums up waits: numbers at once, pairs of CUDA events when they are over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sum, self._measured = 0.0, False
        self._events: deque[tuple[Any, Any]] = deque(maxlen=_LONGEST)

    def _add(self, milliseconds: float) -> None:
        with self._lock:
            self._sum += milliseconds
            self._measured = True

    def take(self) -> float | None:
        """Milliseconds waited since the last call; None where nothing was measured. On CUDA some steps late."""
        with self._lock:
            while self._events and self._events[0][1].query():
                began, ended = self._events.popleft()
                self._sum += began.elapsed_time(ended)
                self._measured = True
            taken = self._sum if self._measured else None
            self._sum, self._measured = 0.0, False
            return taken


class GradientWaits(_Measure):
    """Waiting for gradients in DistributedDataParallel: from this rank's last bucket being ready to its reduction.

    Gradients reduced while this rank still computes others cost it no waiting, so only the last bucket counts.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.reducing = False  # this rank has given its last bucket, and waits
        self._torch: Any = sys.modules["torch"]
        self._group = model.process_group
        self._world = int(self._torch.distributed.get_world_size(self._group))
        # no annotations: torch compares them with its own classes
        model.register_comm_hook(None, lambda state, bucket: self._reduce(bucket))

    def _reduce(self, bucket: Any) -> Any:
        """What DistributedDataParallel does without a hook: the mean over ranks, by a sum of scaled gradients."""
        buffer = bucket.buffer()
        last, on_cuda = bucket.is_last(), buffer.is_cuda
        buffer.mul_(1.0 / self._world)
        began: Any = None
        if last:
            self.reducing = True
            began = self._event() if on_cuda else time.perf_counter()
        work = self._torch.distributed.all_reduce(buffer, group=self._group, async_op=True)

        def reduced(future: Any) -> Any:
            if last:
                if on_cuda:  # the callback's stream follows the reduction
                    self._events.append((began, self._event()))
                else:
                    self._add((time.perf_counter() - began) * 1e3)
                self.reducing = False
            return future.value()[0]

        return work.get_future().then(reduced)

    def _event(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def watch_collectives(model: Any) -> GradientWaits:
    """Measure this rank's waiting in a DistributedDataParallel model, before its first step.

    Gradients stay the same. Raises ValueError where the model is no such one or has a communication hook
    already; `time_collectives` works there, for collectives that are called from Python.
    """
    if not hasattr(model, "register_comm_hook") or not hasattr(model, "process_group"):
        raise ValueError(
            f"watch_collectives takes a DistributedDataParallel model, not a {type(model).__name__}; "
            "use time_collectives for collectives that are called from Python"
        )
    if getattr(model, "_comm_hooks", None):
        raise ValueError("the model has a communication hook already; call watch_collectives before setting one")
    return GradientWaits(model)


class CollectiveWaits(_Measure):
    """Waiting in collectives that Python code waits for: `all_reduce`, `barrier`, `work.wait()` and all others.

    A context: within it, each wait for a collective on any thread is timed. What C++ code waits for by itself
    (DistributedDataParallel, functional collectives) isn't seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self._original: Any = None
        self._depth = threading.local()

    def __enter__(self) -> CollectiveWaits:
        self._torch: Any = sys.modules["torch"]
        work = self._torch._C._distributed_c10d.Work
        original = self._original = work.wait
        # every collective of torch.distributed ends in Work.wait, however it was imported
        measure = self._timed

        def wait(self: Any, *arguments: Any, **options: Any) -> Any:
            return measure(original, self, arguments, options)

        wait.__wrapped__ = getattr(original, "__wrapped__", original)  # type: ignore[attr-defined]
        self._wait = work.wait = wait
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        work = self._torch._C._distributed_c10d.Work
        if work.wait is self._wait:
            work.wait = self._original
        else:  # another one has come over it: measure no more
            self._timed = lambda original, work, arguments, options: original(work, *arguments, **options)  # type: ignore[method-assign]

    def _timed(self, original: Any, work: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        cuda = self._torch.cuda
        if cuda.is_available() and cuda.is_initialized():
            began = cuda.Event(enable_timing=True)
            began.record()
            wall = time.perf_counter()
            result = original(work, *arguments, **options)
            self._add((time.perf_counter() - wall) * 1e3)  # a gloo collective holds up the caller instead
            ended = cuda.Event(enable_timing=True)
            ended.record()
            with self._lock:
                self._events.append((began, ended))
            return result
        wall = time.perf_counter()
        try:
            return original(work, *arguments, **options)
        finally:
            self._add((time.perf_counter() - wall) * 1e3)


def time_collectives() -> CollectiveWaits:
    """A context in which every wait for a collective is timed: `with time_collectives() as waits: …`.

    Raises ValueError where the process has no torch.distributed, whose collectives they would be.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        raise ValueError(
            "waits between ranks are not measured: no torch.distributed in this process; "
            "call it after torch.distributed.init_process_group"
        )
    return CollectiveWaits()
