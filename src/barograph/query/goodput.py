"""Goodput: which part of a run's wall time brought the training forward, and what took the rest.

In:   the records of rank 0 in the order written: live, one by one, or from its log file.
Out:  `Totals`, seconds by cause that add up to the wall time, and the same as a record's fields or as money.

Time is held in whole microseconds, and every microsecond belongs to one cause: a record claims what is still
free of the stretch that it covers, so overlapping and nested records count once, the inner one first.
docs/guides/goodput.md defines each cause.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from barograph.core.record import Record
from barograph.log.read import records_from
from barograph.query.causes import (
    CAUSES,
    IN_STEP,
    LONGEST,
    Totals,
    cause_of_phase,
    cause_of_span,
    fields,
    microseconds,
    money,
)
from barograph.query.walltime import FreeTime, StepTime

__all__ = ["CAUSES", "Account", "Goodput", "Totals", "fields", "money", "of_records", "replay"]

# A step whose length nobody measured counts up to this many medians: ten are what the watchdog calls a stall.
STALL = 10
# Steps between two logged ones, where the logged ones were measured, count up to this many medians each.
SLACK = 2
_FEW = 5  # measured steps before their median is trusted
_BACKWARDS = 5_000_000  # µs: records of two threads may change places; more than this is a clock that was set
_SHORTEST_STALL = 10_000_000  # µs
_RECENT = 64  # steps that a late record can still split into phases
LONG_LOG = 32 << 20  # bytes: about a second's reading
_TAIL = 4 << 20
_NAMES = 32  # names of spans told apart


def of_records(records: Iterable[Record], now: float | None = None) -> Totals:
    """The totals of one writer's records, in the order written. `now` as in `Goodput.totals`."""
    account = Goodput()
    for record in records:
        account.add(record)
    return account.totals(now)


class Account(Protocol):
    """What adds up records: `Goodput`, and the energy's."""

    kind: str  # of the records that hold its own state

    def add(self, record: Record) -> None:
        """Count a record."""

    def go_on(self, record: Record) -> None:
        """Start from a record of its own kind."""


def replay(path: str | os.PathLike[str], accounts: Sequence[Account], stop: int | None = None, start: int = 0) -> int:
    """Give a log file's records behind byte `start`, up to byte `stop` if given, to accounts that have had those before
    it; the end of the last one. Raises OSError.

    Of a file longer than 32 MB that is read from its beginning only the end is read, from the last record on in which
    the writer told how far each account had come; all of it if there is none.
    """
    size = os.path.getsize(path) if stop is None else stop
    waiting: list[Account] = []
    if size > LONG_LOG and not start:
        base = max(0, size - _TAIL)
        with open(path, "rb") as file:
            file.seek(base)
            tail = file.read(_TAIL)
        found = [tail.rfind(b'{"log":"%s",' % account.kind.encode()) for account in accounts]
        if found and min(found) >= 0:
            start, waiting = base + min(found), list(accounts)
    for record, end in records_from(path, start):
        if end > size:
            break
        start = end
        for account in accounts:
            if account not in waiting:
                account.add(record)
            elif record.kind == account.kind:
                account.go_on(record)
                waiting.remove(account)
    return start


# ---------------------------------------------------------------------------------------------


class Goodput:
    """Adds up records of one writer as they come. `add` takes microseconds; memory doesn't grow with the run."""

    kind = "goodput"

    def __init__(self) -> None:
        self._begun, self._start = False, 0
        self._shift = 0  # µs that are added to a clock that was set back
        self._free = FreeTime()
        self._spent = dict.fromkeys(CAUSES, 0)
        self._names: dict[str, int] = {}
        self._paused = self._parts = self._crashes = self._redone_steps = 0
        self._ended: str | None = None  # how the process before ended, while none has followed
        self._process: tuple[Any, Any] | None = None
        self._segment = 0
        self._steps = StepTime()
        self._lengths: deque[int] = deque(maxlen=101)  # of the latest steps
        self._median, self._stale = 0, 0
        self._cut_at_first: int | None = None  # the parent, of a segment that says its first step by logging it
        self._start_part()

    def _start_part(self) -> None:
        """A process begins: nothing of the one before can be claimed any more."""
        self._free.close()
        self._starting = True
        self._measuring = False  # steps say how long they took
        self._first: tuple[int, int, int] | None = None  # until its excess is known: step, µs, steps in it
        self._mark: tuple[int, int] | None = None  # the last step, and when its first record came
        self._prelude: tuple[int, int, int] | None = None  # steps before the first logged one: how many, from, to
        self._began = self._free.now
        self._origin: int | None = None  # the first step of the part, if known
        self._recent: dict[int, _CountedStep] = {}  # steps that another kind of record may tell more about

    # -- records ------------------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        """Count a record. Never raises on what a log may hold."""
        kind, time, step, found = record
        if kind == "segment":
            self._join(time, found)
            return
        now = self._free.now
        moment = time + self._shift if time > 0 else now  # a time that could not be read is 0
        if moment > now:
            if not self._begun:
                self._begin(moment - (_length(found) if kind in _TIMED else 0))
            elif self._ended is not None:
                self._gap(moment)
            self._free.advance(moment, self._starting)
        elif not self._begun:
            return
        elif moment < now - _BACKWARDS:
            self._shift += now - moment
            moment = now
        if kind == "step":
            length = _length(found)
            if length:
                self._step(moment, step, length, kind, None)
            elif not self._measuring:
                self._infer(moment, step)
        elif kind == "speed":
            phases = found.get("phase")
            length = microseconds(found.get("step_ms"))
            if length:
                self._step(moment, step, length, kind, phases if isinstance(phases, Mapping) else None)
        elif kind == "metrics":
            if not self._measuring:
                self._infer(moment, step)
        elif kind in ("eval", "checkpoint"):
            length = _length(found)
            self._spent["evaluation" if kind == "eval" else kind] += self._free.claim(moment - length, moment, length)
        elif kind in ("span", "info"):
            length = _length(found)
            if length and found.get("beside") is not True:  # another thread's, beside the steps
                self._span(moment, str(found.get("name" if kind == "span" else "message", "")), length)
        elif kind == "end":
            self._ended = str(found.get("status", ""))

    def go_on(self, record: Record) -> None:
        """Start from a `goodput` record instead of from the run's beginning; how long each step took is not
        known then, and what a rewind loses of the steps before is taken to be of average length.
        """
        found = record.fields
        self.__init__()  # type: ignore[misc]
        for cause in CAUSES:
            self._spent[cause] = _seconds(found.get(f"{cause}_seconds"))
        productive = self._spent.pop("productive")
        self._spent["productive"] = 0
        self._paused = _seconds(found.get("paused_seconds"))
        spans = found.get("spans")
        for name, seconds in spans.items() if isinstance(spans, Mapping) else ():
            self._names[str(name)] = _seconds(seconds)
        parts, crashes, steps = (_whole(found.get(key)) or 0 for key in ("parts", "crashes", "redone_steps"))
        self._parts, self._crashes, self._redone_steps = max(1, parts), crashes, steps
        self._begin(record.time)
        self._parts -= 1
        self._segment = -1  # not known: the next segment is another one
        self._starting = not productive
        if productive:
            self._steps.add(-1, 0, 0)
            self._steps.add(record.step, 0, productive)

    def _begin(self, moment: int) -> None:
        self._begun = True
        self._parts += 1
        self._free.now = self._began = self._start = moment

    def _join(self, time: int, found: Mapping[str, Any]) -> None:
        """A process starts, or goes back in one that goes on."""
        process = (found.get("host"), found["pid"]) if found.get("pid") is not None else None
        moment = max(time + self._shift, self._free.now) if time > 0 else self._free.now
        fresh = not self._begun or self._ended is not None or (process is not None and process != self._process)
        if not self._begun:
            self._begin(moment)
        elif fresh:
            self._gap(moment)
        else:
            self._free.advance(moment, self._starting)
        self._process = process or self._process
        number, parent = _whole(found.get("segment")), _whole(found.get("parent"))
        start = _whole(found.get("start_step"))
        number = self._segment + 1 if number is None else number
        self._origin = start if start is not None else 0 if parent is None else None
        if number == self._segment:  # the same segment, by another process: what it logs again is done again
            self._cut_at_first = number if fresh else self._cut_at_first
        elif parent is not None:
            self._cut_at_first = parent if start is None else None
            if start is not None:
                self._cut(start, parent)
        self._segment = number
        self._recent.clear()

    def _gap(self, moment: int) -> None:
        """Between two processes: planned if the first one ended as it should, downtime if not."""
        if self._ended in ("finished", "interrupted"):
            self._paused += moment - self._free.now
        else:
            self._spent["downtime"] += moment - self._free.now
            self._crashes += 1
        self._resolve()
        self._free.now, self._ended = moment, None
        self._parts += 1
        self._start_part()

    def _cut(self, step: int, parent: int) -> None:
        """Steps from `step` on are done again."""
        self._resolve()
        lost, steps = self._steps.cut(step, parent)
        self._spent["redone"] += lost
        self._redone_steps += steps
        self._recent.clear()

    def _span(self, moment: int, name: str, length: int) -> None:
        start = moment - length
        cause = cause_of_span(name)
        if cause == "productive":
            self._steps.sums[0] += self._free.claim(start, moment, length)
        elif cause is not None:
            self._spent[cause] += self._free.claim(start, moment, length)
        elif not self._starting and self._mark is not None and self._mark[1] <= start:
            # one around whole steps, such as an epoch, is a frame and no loss; one before the first step is start-up
            name = name if name in self._names or len(self._names) < _NAMES else "…"
            taken = self._free.claim(start, moment, length)
            self._names[name] = self._names.get(name, 0) + taken
            self._spent["other"] += taken

    # -- steps ------------------------------------------------------------------------------------------

    def _step(self, moment: int, step: int, length: int, kind: str, phases: Mapping[str, Any] | None) -> None:
        """A step that says how long it took, or says in more detail what another kind of record said of it."""
        known = self._recent.get(step)
        if known is None or known.kind == kind:
            self._measuring = True
            if self._cut_at_first is not None:
                self._cut_first(step)
            taken = self._free.claim(moment - length, moment, length)
            if kind == "speed" and taken * 10 < length:
                # timings of devices come some steps late, the last of them in a row: look further back
                taken += self._free.claim(moment - 4 * length, moment - length, length - taken)
            known = self._recent[step] = _CountedStep(kind, moment, length, taken, self._starting)
            if len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]
            self._count(step, taken, 1, length)
            mark, self._mark = self._mark, (step, moment)
            if mark is None:
                if self._origin is not None and step > self._origin:
                    self._prelude = (step - self._origin, self._began, moment - length)
            elif step > mark[0] + 1:
                self._fill(step - mark[0], mark[1], moment - length)
            else:
                self._prelude = None  # every step is logged
        elif length > known.length and not known.whole:
            # the wait for the batch, say, that the step's own duration leaves out
            taken = self._free.claim(known.moment - length, known.moment, length - known.length)
            known.length, known.taken = length, known.taken + taken
            self._steps.sums[0] += taken
            self._steps.amend()
        if phases and not known.whole:
            self._split(known, phases)

    def _split(self, step: _CountedStep, phases: Mapping[str, Any]) -> None:
        step.whole = True  # once
        amounts = [0, 0, 0, 0, 0]
        for name, milliseconds in phases.items():
            cause = _PHASES.get(name)
            if cause is None:
                if len(_PHASES) > 1000:  # names with numbers in them
                    _PHASES.clear()
                cause = _PHASES[name] = cause_of_phase(name)
            if cause:
                amounts[cause] += microseconds(milliseconds)
        left = step.taken
        elsewhere = max(0, step.length - left)  # an evaluation, say, that has a record of its own
        for cause in range(1, 5):
            if amount := amounts[cause]:
                if cause > 2:  # evaluation and checkpoint
                    amount, elsewhere = max(0, amount - elsewhere), max(0, elsewhere - amount)
                amount = min(amount, left)
                left -= amount
                self._steps.sums[cause] += amount
        self._steps.amend()

    def _infer(self, moment: int, step: int) -> None:
        """A step of a loop that says no durations: the time since the step before, as far as it is free."""
        if self._cut_at_first is not None:
            self._cut_first(step)
        mark = self._mark
        if mark is not None and mark[0] == step:
            return
        self._mark = (step, moment)
        if mark is None:
            if self._origin is not None and step > self._origin:
                self._prelude = (step - self._origin, self._began, moment)
            return
        steps = max(1, step - mark[0])
        most = STALL * self._median * steps if len(self._lengths) >= _FEW else moment - mark[1]
        taken = self._free.claim(mark[1], moment, most)
        self._count(step, taken, steps, taken // steps)
        if self._prelude is not None:
            self._fill(steps, mark[1], moment)

    def _fill(self, stride: int, start: int, stop: int) -> None:
        """Steps that were not logged: between two that were, and before the first."""
        typical = self._median or (self._first[1] // self._first[2] if self._first is not None else 0)
        if self._prelude is not None:
            count, low, high = self._prelude
            if 1 < count <= stride:  # as far apart as those that follow: the loop logs every n-th step
                self._steps.sums[0] += self._free.claim(low, high, (count - 1) * typical)
            self._prelude = None
        if self._measuring:
            self._steps.sums[0] += self._free.claim(start, stop, (stride - 1) * SLACK * typical)

    def _cut_first(self, step: int) -> None:
        parent, self._cut_at_first = self._cut_at_first or 0, None
        self._cut(step, parent)

    def _count(self, step: int, taken: int, steps: int, length: int) -> None:
        if self._starting:
            self._starting = False
            self._first = (step, taken, steps)
        else:
            self._steps.add(step, self._segment, taken)
            self._lengths.append(length)
            self._stale -= 1
            if self._stale <= 0:
                self._median = sorted(self._lengths)[len(self._lengths) // 2]
                self._stale = len(self._lengths) // 4
        if self._first is not None and len(self._lengths) >= _FEW:
            self._resolve()

    def _first_parts(self) -> tuple[int, int]:
        """The first step of a process: what a step takes, and the excess, which is compiling and warming up."""
        if self._first is None:
            return 0, 0
        _, taken, steps = self._first
        usual = min(taken, sorted(self._lengths)[len(self._lengths) // 2] * steps) if self._lengths else taken
        return usual, taken - usual

    def _resolve(self) -> None:
        if self._first is not None:
            usual, excess = self._first_parts()
            self._steps.add(self._first[0], self._segment, usual)
            self._spent["startup"] += excess
            self._first = None

    # -- what came of it ------------------------------------------------------------------------------

    def totals(self, now: float | None = None) -> Totals:
        """The totals up to the last record.

        now: seconds since 1970, for a run that goes on. The time since the last record counts as start-up before
        the first step; after it as idle, once it is longer than ten median steps: until then a step is under way.
        """
        spent = dict(self._spent)
        idle, startup = self._free.left()
        usual, excess = self._first_parts()
        sums = self._steps.sums
        spent["idle"] += idle
        spent["startup"] += startup + excess
        spent["productive"] += usual + sums[0] - sum(sums[1:])
        for cause, amount in zip(IN_STEP, sums[1:], strict=True):
            spent[cause] += amount
        if now is not None and math.isfinite(now) and self._begun and self._ended is None:
            since = int(now * 1e6) + self._shift - self._free.now
            if 0 < since < LONGEST and (self._starting or since > max(_SHORTEST_STALL, STALL * self._median)):
                spent["startup" if self._starting else "idle"] += since
        return Totals(
            wall=sum(spent.values()) / 1e6,
            paused=self._paused / 1e6,
            parts=self._parts,
            crashes=self._crashes,
            redone_steps=self._redone_steps,
            names={name: amount / 1e6 for name, amount in self._names.items()},
            **{cause: amount / 1e6 for cause, amount in spent.items()},
        )


class _CountedStep:
    """A step that was counted: by which kind of record, when, how long it said it took, µs it got, split or not."""

    __slots__ = ("kind", "length", "moment", "taken", "whole")

    def __init__(self, kind: str, moment: int, length: int, taken: int, whole: bool):
        self.kind, self.moment, self.length, self.taken, self.whole = kind, moment, length, taken, whole


# ---------------------------------------------------------------------------------------------

_TIMED = frozenset({"step", "eval", "span", "info", "checkpoint"})
_PHASES: dict[str, int] = {}  # names of phases seen before: which of a step's sums they go to


def _length(found: Mapping[str, Any]) -> int:
    return microseconds(found.get("duration_ms"))


def _seconds(seconds: Any) -> int:
    return microseconds(seconds * 1000.0) if isinstance(seconds, (int, float)) else 0


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None
