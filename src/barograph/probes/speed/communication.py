"""Communication by the profiler: how much of it is hidden behind computation, and how much is waited for.

In:   the beginnings and ends of steps; torch's profiler over one step in `every`.
Out:  a `ranks` record of that step: `communication` {total_ms, overlapped_ms, exposed_ms, compute_ms}.

On a GPU the device's kernels are looked at, NCCL's against all others; on a CPU the operations of the Gloo
backend against torch's own. A profiled step is slower than others: its `speed` record says `profiled`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

from barograph.probes.recording import Recording

Interval = tuple[float, float]
_COMMUNICATION = re.compile(r"nccl|rccl|gloo:|mpi:|ucc:", re.IGNORECASE)
_COPIES = re.compile(r"memcpy|memset", re.IGNORECASE)  # not a computation that hides anything


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The intervals as sorted ones that don't overlap; empty and backward ones are left out."""
    joined: list[Interval] = []
    for began, ended in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if joined and began <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ended))
        else:
            joined.append((began, ended))
    return joined


def length(intervals: Iterable[Interval]) -> float:
    """The time that intervals cover together."""
    return sum(ended - began for began, ended in union(intervals))


def overlap(first: Iterable[Interval], second: Iterable[Interval]) -> float:
    """The time during which both run."""
    one, other = union(first), union(second)
    total, here, there = 0.0, 0, 0
    while here < len(one) and there < len(other):
        total += max(0.0, min(one[here][1], other[there][1]) - max(one[here][0], other[there][0]))
        if one[here][1] < other[there][1]:
            here += 1
        else:
            there += 1
    return total


def split(events: Iterable[Any]) -> dict[str, float]:
    """A step's profiler events as milliseconds: communication, its hidden and its exposed part, computation."""
    communication: dict[bool, list[Interval]] = {True: [], False: []}
    computation: dict[bool, list[Interval]] = {True: [], False: []}
    for event in events:
        on_device = "CPU" not in str(event.device_type)
        interval = (float(event.time_range.start), float(event.time_range.end))  # microseconds
        if _COMMUNICATION.search(event.name):
            communication[on_device].append(interval)
        elif not _COPIES.search(event.name) and (on_device or event.name.startswith("aten::")):
            computation[on_device].append(interval)
    where = bool(computation[True])  # kernels were seen: they are what counts
    total = length(communication[where])
    hidden = overlap(communication[where], computation[where])
    return {
        "total_ms": round(total / 1e3, 3),
        "overlapped_ms": round(hidden / 1e3, 3),
        "exposed_ms": round((total - hidden) / 1e3, 3),
        "compute_ms": round(length(computation[where]) / 1e3, 3),
    }


class CommunicationProfile:
    """Profiles one step in `every`; the step clock calls `begin` and `end`. One profiler can run in a process:
    where the training runs its own, this one steps aside."""

    def __init__(self, run: Recording, every: int = 1000, first: int = 10):
        """first: the step that is profiled first; those before it warm up."""
        self._run, self._every, self._first = run, max(1, every), first
        self._steps = 0
        self._profile: Any = None

    def begin(self) -> None:
        """A step begins."""
        self._steps += 1
        if self._steps < self._first or (self._steps - self._first) % self._every:
            return
        torch = sys.modules.get("torch")
        if torch is None:
            self._run.warn("communication is not profiled: no torch in this process", key="profile")
            return
        try:
            profiler = torch.profiler
            os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # its own notes would stand among the step's lines
            activities = [profiler.ProfilerActivity.CPU]
            if torch.cuda.is_initialized():
                activities.append(profiler.ProfilerActivity.CUDA)
            self._profile = profiler.profile(activities=activities)
            self._profile.__enter__()
        except Exception as error:
            self._profile = None
            self._run.warn(f"communication is not profiled ({type(error).__name__}: {error})", key="profile")

    def end(self, step: int) -> bool:
        """A step ends; whether it was profiled."""
        profile, self._profile = self._profile, None
        if profile is None:
            return False
        try:
            profile.__exit__(None, None, None)
            self._run.record("ranks", step, {"communication": split(profile.events())})
        except Exception as error:
            self._run.warn(f"communication is not profiled ({type(error).__name__}: {error})", key="profile")
        return True
