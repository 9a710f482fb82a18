"""The end of a run as its sidecar sees it: said where the run could not, and written into the manifest.

In:   entries, the processes of this host that belong to the run; how they ended.
Out:  an `end` record for a process that did not say so itself; the manifest's last state.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

from barograph.core import liveness, manifest, place
from barograph.core.record import Record, format_time
from barograph.log.files import MAIN
from barograph.log.follow import Entry
from barograph.query.ending import line_of
from barograph.sidecar.columns import numbers_of
from barograph.sidecar.death import WatchedProcess, as_fields
from barograph.sidecar.hang import Process
from barograph.sidecar.journal import Journal

_LAST = 20  # lines kept for the end
_METRICS = ("step", "eval", "metrics")
_MOST_FINAL = 1000  # series
_MOST_SHAPES = 1000  # sets of names


class Member:
    """One process of the run on this host."""

    def __init__(self, process: Process, source: str, pidfd: int = -1):
        self.process, self.source = process, source
        self.watched = WatchedProcess(process.pid, pidfd=pidfd)
        self.ended = False  # it has said so, or it has been said of it
        self.exits = False  # it has said so as the interpreter ended: its exit code is still to come


class RunEnd:
    """A consumer that knows which processes belong to the run, which have ended, and how.

    pid: rank 0's process, None where there is none to watch. pidfd: an open descriptor of it, if there is one.
    """

    def __init__(self, journal: Journal, pid: int | None, pidfd: int = -1):
        self._journal, self.pid = journal, pid
        self.members: dict[int, Member] = {}
        self.status: str | None = None  # of the run, once rank 0 has ended
        self.record: Record | None = None  # rank 0's end
        self.began = 0  # time of the process's first record
        self.listening = False  # the records have come to those of rank 0's present process
        self._main = MAIN
        self._last: deque[Record] = deque(maxlen=_LAST)
        self._values: dict[tuple[str, ...], list[float]] = {}  # the last ones of each set of names
        self._step = 0
        if pid is not None:
            self.members[pid] = Member(Process(pid, 0, ""), MAIN, pidfd)

    def take(self, entry: Entry) -> None:
        """An entry."""
        record = entry.item
        if not isinstance(record, Record):
            if entry.rank == 0:
                self._step = max(self._step, record.step)
            return
        own = entry.source.startswith("sidecar-")
        if record.kind == "segment" and not own:
            self._join(record, entry)
            if entry.rank == 0:
                self._step = min(self._step, record.step)
        elif record.kind == "end":
            self._take_end(record, entry, own)
        elif entry.rank == 0 and not own:
            if record.kind in _METRICS:
                if record.step > self._step:  # an evaluation of an earlier step may come late
                    self._step = record.step
                names, values = numbers_of(record)
                if len(self._values) < _MOST_SHAPES or names in self._values:
                    self._values[names] = values
            self._last.append(record)

    def _join(self, record: Record, entry: Entry) -> None:
        """A process of the run begins, or one goes back to an earlier step."""
        pid, host = record.fields.get("pid"), record.fields.get("host")
        if entry.rank == 0:
            if record.fields.get("kind") != "rewind":
                self.began = record.time
            self.status = self.record = None
            self._main = entry.source
            self.listening = pid == self.pid
        if not isinstance(pid, int) or host != place.host():
            return
        member = self.members.get(pid)
        process = Process(pid, entry.rank, str(record.fields.get("writer") or ""))
        if member is not None:
            member.process, member.source, member.ended, member.exits = process, entry.source, False, False
        elif _is_process_of(pid, record.time):
            self.members[pid] = Member(process, entry.source)

    def _take_end(self, record: Record, entry: Entry, own: bool) -> None:
        pid = record.fields.get("pid")
        for member in self.members.values():
            if member.process.pid == pid or (pid is None and not own and member.source == entry.source):
                # who sends to trackers is waited for by the process: its exit code comes too late
                member.exits = bool(record.fields.get("at_exit")) and not own and not self._journal.settings.backends
                member.ended = not member.exits
        rank = record.fields.get("rank", 0) if own else entry.rank
        if rank == 0 and (own or entry.source == self._main):
            self.status, self.record = str(record.fields.get("status") or "finished"), record

    def settle(self, idle: bool) -> None:
        """Nothing waits here."""

    def finish(self) -> None:
        """Nothing is left to say."""

    def is_main_there(self) -> bool:
        """Whether rank 0's process lives, if only to wait for this one."""
        member = self.members.get(self.pid) if self.pid is not None else None
        return member is not None and not member.watched.gone()

    def descriptors(self) -> list[int]:
        """What can be read once a process has ended."""
        open_ones = (member.watched.fileno() for member in self.members.values() if not member.ended)
        return [item for item in open_ones if item >= 0]

    def processes(self) -> list[Process]:
        """Those that train, as far as is known."""
        return [member.process for member in self.members.values() if not (member.ended or member.exits)]

    def gone(self) -> list[Member]:
        """Processes that are gone and have not ended as they should."""
        return [member for member in self.members.values() if not member.ended and member.watched.gone()]

    @property
    def over(self) -> bool:
        """Whether no process of this host has anything more to write."""
        return all(member.ended for member in self.members.values())

    def say(self, member: Member) -> dict[str, Any]:
        """Write the end of a process that is gone; all its records have been read. {}: there is nothing to add to what
        it said itself."""
        member.ended = True
        ending = member.watched.ending()
        if member.exits:
            if not ending.exit_code and ending.signal is None:
                return {}
            if ending.exit_code:
                ending = ending._replace(status="failed")
        fields = as_fields(ending) | {"pid": member.process.pid, "rank": member.process.rank, "host": place.host()}
        if member.process.rank == 0:
            fields["wall_seconds"] = round(max(0.0, self._last[-1].time - self.began) / 1e6, 3) if self._last else 0.0
            fields["last"] = [line_of(record) for record in self._last]
        self._journal.record("end", self._step, fields)
        return fields

    def say_unseen(self) -> None:
        """Write that rank 0's process is gone, though nobody saw how it ended."""
        about = manifest.read(self._journal.dir)
        said = about.get("status")
        if said not in (None, "running"):
            self.status = str(said)
            return
        reason = liveness.reason(about) or "the process is gone; nobody saw how it ended"
        last = [line_of(record) for record in self._last]
        self._journal.record("end", self._step, {"status": "crashed", "reason": reason, "last": last})

    def _final(self) -> dict[str, float]:
        """The last value of each series, of at most `most`."""
        final: dict[str, float] = {}
        for names, values in self._values.items():
            if len(final) < _MOST_FINAL:
                final.update(zip(names, values, strict=True))
        return final

    def write(self, spent: dict[str, Any]) -> None:
        """The run's last state into its manifest. spent: what it cost."""
        if self.record is None:
            return
        about = manifest.read(self._journal.dir)
        if not about:
            return
        changes: dict[str, Any] = {"status": self.status, "hung": None}
        said = self.record.fields
        if about.get("status") == "running":
            changes["finished"] = format_time(self.record.time)
            changes["wall_seconds"] = _wall_seconds(about, said)
        if not about.get("final_metrics") and (final := self._final()):
            changes["final_metrics"] = final | {"step": self._step}
        if self.status in liveness.LOST or said.get("exit_code"):
            names = ("reason", "signal", "exit_code", "oom_kills", "rank")
            changes["ending"] = {name: said[name] for name in names if said.get(name) is not None} | {
                "step": self.record.step
            }
        changes |= {name: value for name, value in spent.items() if about.get(name) is None}
        with contextlib.suppress(OSError):
            manifest.update(self._journal.dir, **changes)

    def close(self) -> None:
        for member in self.members.values():
            member.watched.close()


def _wall_seconds(about: dict[str, Any], said: dict[str, Any]) -> float:
    """Of the run: what earlier processes took, and this one."""
    before, took = about.get("wall_seconds"), said.get("wall_seconds")
    return round(float(before or 0.0) + float(took or 0.0), 3)


def _is_process_of(pid: int, moment: int) -> bool:
    """Whether a process that lives now was there at a time (µs since 1970), and so is not a later one of its number."""
    started = liveness.process_started(pid)
    if started is None:
        return False
    with contextlib.suppress(OSError, ValueError, IndexError):
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - uptime + started / os.sysconf("SC_CLK_TCK") <= moment / 1e6 + 2.0
    return (liveness.started_at(pid) or 0.0) <= moment / 1e6 + 2.0
