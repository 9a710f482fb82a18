"""The run's health, watched while it trains: the rules, in the pump's thread.

In:   the rows and records of rank 0, as they reach the store.
Out:  a `finding` record when something is wrong, and again when it gets worse; the same to whoever asked to be told.

Rows are collected and examined sixteen at a time; after five seconds, or at once where a value is not finite, fewer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.logtext import records_from
from barograph.probes.recording import Recording
from barograph.record import Record, numbers
from barograph.rules.facts import facts_of, is_event
from barograph.rules.finding import Finding

if TYPE_CHECKING:
    from barograph.rules.examiner import Examiner

ROWS, SECONDS = 16, 5.0
_HISTORY = 32 << 20  # bytes of an earlier process's log that are looked at, of a run that goes on
_MOST_ROWS = 4096  # collected; a stalled thread must not grow the process

_MOST_TIMES = 6  # that one incident is told: it came, it got worse, it was nothing

Block = tuple[list[int], list[int], list[tuple[float, ...]], list[int]]  # step, time, values, segment


class Health:
    """Belongs to the pump's thread, but for `finish`. `tell`: called with each finding, new or worse than before.

    log, start: the log file and the byte at which this process began to write it.
    """

    def __init__(self, run: Recording, config: Mapping[str, Any], log: Path, start: int):
        self.tell: list[Callable[[Finding], Any]] = []
        self._run, self._log, self._start = run, log, start
        self._config = config
        self._opened: Examiner | None = None
        self._blocks: dict[tuple[str, ...], Block] = {}
        self._events: list[Record] = []
        self._urgent = False
        self._examined = time.monotonic()
        self._told: dict[tuple[str, str, int, int], tuple[Finding, int]] = {}  # the last word, and how many there were
        self._ending = self._done = False  # no events: their locks would hold up a signal handler

    def take(self, record: Record) -> None:
        """A record of the log."""
        if self._opened is None and self._start > 16:
            self._look_back()
        if is_event(record):
            self._events.append(record)

    def take_row(self, names: tuple[str, ...], values: tuple[float, ...], step: int, moment: int, segment: int) -> None:
        """The numbers of a record, or of a wide row."""
        block = self._blocks.get(names)
        if block is None:
            block = self._blocks[names] = ([], [], [], [])
        steps, times, rows, segments = block
        if len(steps) >= _MOST_ROWS:
            self._examine()
            steps, times, rows, segments = self._blocks.setdefault(names, ([], [], [], []))
        steps.append(step)
        times.append(moment)
        rows.append(values)
        segments.append(segment)
        if not math.isfinite(sum(values)):
            self._urgent = True

    def settle(self) -> None:
        """What waited has been given: examine it if it is time."""
        if self._done:
            return
        ending = self._ending
        waiting = max((len(block[0]) for block in self._blocks.values()), default=0)
        if ending or self._urgent or waiting >= ROWS or time.monotonic() - self._examined >= SECONDS:
            if ending:
                self._examiner.seen.facts["finished"] = True
            self._examine()
        if ending:
            self._done = True

    def finish(self, wake: Callable[[], None], timeout: float = 2.0) -> None:
        """Have the last rows examined; from the thread that ends the run."""
        self._ending = True
        wake()
        until = time.monotonic() + timeout
        while not self._done and time.monotonic() < until:
            time.sleep(0.002)

    @property
    def failed(self) -> dict[str, str]:
        """Rules that failed, and how."""
        return {} if self._opened is None else self._opened.failed

    def _rules(self) -> list[Any]:
        from barograph.rules.registry import make_rules

        return make_rules(self._run.settings.thresholds, self._run.settings.silence)

    @property
    def _examiner(self) -> Examiner:
        """Made in the pump's thread: it loads NumPy, which the training's start need not wait for."""
        if self._opened is None:
            from barograph.rules.examiner import Examiner

            run = self._run
            planned = run.settings.total_steps
            facts = facts_of(self._config, world_size=run.world_size, planned_steps=planned, source="barograph")
            self._opened = Examiner(self._rules(), facts)
        return self._opened

    def _examine(self) -> None:
        urgent, self._urgent = self._urgent, False
        moment = time.monotonic()
        since, self._examined = moment - self._examined, moment
        if not self._blocks and not self._events and not self._ending:
            return
        self._pace(since)
        self._give()
        if not self._examiner.examine(urgent):
            return
        present: set[tuple[str, int]] = set()
        for finding in self._examiner.incidents():
            present |= _members(finding)
            before, times = self._told.get(finding.identity, (None, 0))
            if (before is None or before.severity != finding.severity) and times < _MOST_TIMES:
                self._told[finding.identity] = finding, times + 1
                self._say(finding)
        for finding, times in list(self._told.values()):
            if finding.severity != "info" and times < _MOST_TIMES and (finding.rule, finding.step) not in present:
                message = f"No longer so, as later rows show: {finding.message}"
                now = msgspec.structs.replace(finding, severity="info", message=message)
                self._told[finding.identity] = now, times + 1
                self._say(now)

    def _pace(self, seconds: float) -> None:
        """Tell the rules how fast rows come, so that those that may wait don't wait too long."""
        rows = max((len(block[0]) for block in self._blocks.values()), default=0)
        if rows:
            facts, each = self._examiner.seen.facts, seconds / rows
            facts["seconds_between_rows"] = 0.9 * facts.get("seconds_between_rows", each) + 0.1 * each

    def _say(self, finding: Finding) -> None:
        self._run.record("finding", finding.step, msgspec.structs.asdict(finding), draw=finding.severity != "info")
        for tell in self.tell:
            try:
                tell(finding)
            except Exception as error:
                self._run.warn(f"what was to be told of a finding met {type(error).__name__}: {error}", key="tell")

    def _give(self) -> None:
        """Hand what was collected to the examiner, as columns."""
        import numpy

        seen = self._examiner.seen
        events, self._events = self._events, []
        for event in events:
            seen.happened(event)
        blocks, self._blocks = self._blocks, {}
        for names, (steps, times, rows, segments) in blocks.items():
            step, moment = numpy.array(steps, numpy.int64), numpy.array(times, numpy.int64)
            values, segment = numpy.array(rows, numpy.float64), numpy.array(segments, numpy.int32)
            for at, name in enumerate(names):
                seen.add(name, step, values[:, at], moment, segment)

    def _look_back(self) -> None:
        """What an earlier process logged of this run, so that a resume is seen as one."""
        segment = 1
        try:
            for record, end in records_from(self._log, max(0, self._start - _HISTORY)):
                if end > self._start:
                    break
                if record.kind == "segment":
                    segment = int(record.fields.get("segment", segment))
                if is_event(record):
                    self._examiner.seen.happened(record)
                named = dict(numbers(record))
                if named:
                    self.take_row(tuple(named), tuple(named.values()), record.step, record.time, segment)
        except OSError as error:
            self._run.warn(f"what the run logged before can't be examined: {error.strerror or error}")
        self._give()
        self._examiner.examine()
        self._told = {finding.identity: (finding, 1) for finding in self._examiner.incidents()}


def _members(finding: Finding) -> set[tuple[str, int]]:
    """The rules that speak in an incident, and where each begins."""
    return {(finding.rule, finding.step), *((one["rule"], one["step"]) for one in finding.evidence.get("story", ()))}
