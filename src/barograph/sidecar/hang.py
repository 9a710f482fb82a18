"""A training that stands still: no step for a long time, while its processes live.

In:   steps of the run's records; the processes of this host; the present.
Out:  a `hang` record with where every rank is, another one when steps come again; `hung` in the manifest.

The stacks come from the processes themselves: Python's fault handler is registered for a signal, so that they come
also while code holds the interpreter's lock. A process without that handler is left alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from barograph.core import manifest
from barograph.core.liveness import LONG_SECONDS, QUIET_SECONDS, pulses
from barograph.core.record import Record
from barograph.log.blocks import WideRow
from barograph.log.follow import Entry
from barograph.probes.ranks.stacks import STACKS_SIGNAL, describe, parse_dump, stacks_file, summary
from barograph.sidecar.death import handles
from barograph.sidecar.journal import Journal

STEPS = 10  # median steps without a step
_LONGEST = 2  # times the longest pause so far, such as an evaluation
_FEW = 3  # steps before their median counts
_ANSWER_SECONDS = 2.0  # what a process gets to write its stacks
_MOST_TEXT = 20_000  # characters of one rank's stacks
_STEPS_OF = ("step", "speed", "metrics")


class Process:
    """A process of the run on this host."""

    def __init__(self, pid: int, rank: int, writer: str):
        self.pid, self.rank, self.writer = pid, rank, writer


class Hang:
    """A consumer, and a watch on the present. seconds: how long no step may come; None for the rule.

    Each host's sidecar watches for itself, as only it can ask that host's processes where they are.
    """

    def __init__(self, journal: Journal, seconds: float | None = None):
        self._journal, self._seconds = journal, seconds
        self._step: int | None = None
        self._came = 0  # time of the record of the last step, or of the process's start
        self._pauses: deque[float] = deque(maxlen=64)  # seconds between steps
        self._longest = 0.0
        self._arrived = time.monotonic()
        self._looked = time.monotonic()
        self.since: int | None = None  # time of the last step before the hang that goes on

    def take(self, entry: Entry) -> None:
        """An entry of rank 0, or what this host's sidecar said of a hang, this one or the one before."""
        item = entry.item
        if isinstance(item, Record):
            if item.kind == "hang":
                if entry.source == self._journal.path.name:
                    self.since = None if item.fields.get("resumed") else int(item.fields.get("since") or item.time)
                return
            if entry.rank == 0 and item.kind == "segment":
                self._begin(item.time)
                return
            if item.kind not in _STEPS_OF:
                return
        elif not isinstance(item, WideRow):
            return
        if entry.rank == 0 and item.step != self._step:
            self._beat(item.step, item.time)

    def _begin(self, moment: int) -> None:
        self._step, self._came, self._longest = None, moment, 0.0
        self._pauses.clear()
        self._arrived = time.monotonic()

    def _beat(self, step: int, moment: int) -> None:
        pause = (moment - self._came) / 1e6
        if self._step is not None and pause > 0:
            self._pauses.append(pause)
            if pause > self._longest:
                self._longest = pause
        self._step, self._came, self._arrived = step, moment, time.monotonic()

    def settle(self, idle: bool) -> None:
        """Steps that came after a hang end it."""
        if self.since is not None and self._step is not None and self._came > self.since:
            stood = (self._came - self.since) / 1e6
            self.since = None
            self._journal.record("hang", self._step, {"resumed": True, "stood_seconds": round(stood, 3)})
            self._note(None)

    def finish(self) -> None:
        """The run has ended."""

    def limit(self) -> float:
        """Seconds without a step that count as a hang."""
        if self._seconds is not None and self._step is not None:
            return self._seconds
        if len(self._pauses) < _FEW:
            return max(LONG_SECONDS if self._step is None else QUIET_SECONDS, self._seconds or 0.0, *self._pauses, 0.0)
        middle = sorted(self._pauses)[len(self._pauses) // 2]
        return max(QUIET_SECONDS, STEPS * middle, _LONGEST * self._longest)

    def look(self, processes: Iterable[Process]) -> bool:
        """All records were read: whether the training stands still now. Says so once, with stacks."""
        now = time.monotonic()
        stopped, self._looked = now - self._looked > 10.0, now
        if stopped:  # this process did not run either
            self._arrived = now
        if self.since is not None or not self._came:
            return self.since is not None
        waited = min(time.time() - self._came / 1e6, now - self._arrived)
        if waited <= (limit := self.limit()) or (waited <= LONG_SECONDS and self._is_busy()):
            return False
        self._say(waited, limit, list(processes))
        return True

    def _is_busy(self) -> bool:
        """Whether the run has said that it does something long, such as an evaluation; not where a time is given."""
        if self._seconds is not None:
            return False
        return any(pulse.phase not in (None, "train") for pulse in pulses(self._journal.dir))

    def _say(self, waited: float, limit: float, processes: list[Process]) -> None:
        step, self.since = self._step or 0, self._came
        texts = dump(self._journal.dir, processes)
        places = {rank: parse_dump(text) for rank, text in texts.items()}
        fields: dict[str, Any] = {
            "waited_seconds": round(waited, 3),
            "limit_seconds": round(limit, 3),
            "since": self._came,
            "pids": [process.pid for process in processes],
        }
        if places:
            asked = {process.rank for process in processes}
            fields["summary"] = summary(places, max(self._journal.world_size, len(places)), waited, step, asked)
            fields["ranks"] = {str(rank): describe(place) for rank, place in places.items()}
            fields["stacks"] = {str(rank): text[-_MOST_TEXT:] for rank, text in texts.items()}
        self._journal.record("hang", step, fields)
        self._note({"since": self._came, "step": step})

    def _note(self, hung: Mapping[str, Any] | None) -> None:
        with contextlib.suppress(OSError):
            manifest.update(self._journal.dir, hung=hung)


def dump(folder: Path, processes: Iterable[Process], seconds: float = _ANSWER_SECONDS) -> dict[int, str]:
    """Have processes write all threads' stacks into their files; what each rank wrote."""
    asked: dict[int, tuple[Path, int]] = {}
    for process in processes:
        path = stacks_file(folder, process.writer)
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            if handles(process.pid, STACKS_SIGNAL):
                os.kill(process.pid, STACKS_SIGNAL)
                asked[process.rank] = path, size
    result: dict[int, str] = {}
    until = time.monotonic() + seconds
    while asked and time.monotonic() < until:
        time.sleep(0.05)
        for rank, (path, size) in list(asked.items()):
            text = _behind(path, size)
            if text and text == result.get(rank):  # it has grown no more
                del asked[rank]
            elif text:
                result[rank] = text
    return result


def _behind(path: Path, size: int) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(size)
        return file.read().decode("utf-8", "replace")
    return ""
