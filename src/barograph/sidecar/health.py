"""The run's health, watched while it trains: the rules over the stream of its records.

In:   entries of the run's logs, in order.
Out:  a `finding` record when something is wrong, and again when it gets worse; the same to the subscribers.

When rules look follows from the records themselves: after a second and a half of their times, after a number of rows,
at once where a value is not finite or something happened. So a second reading gives the same findings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.core.record import HAS_NUMBERS, Record
from barograph.doctor.kernel.facts import facts_of, is_event, with_rank
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.shapes import KEPT, is_wanted, shape_of
from barograph.log.blocks import WideHistogram, WideRow
from barograph.log.follow import Entry
from barograph.query.findings import MERGED
from barograph.query.ranks import MOST_SERIES, RankRow
from barograph.sidecar.columns import ChosenRows, Rows, numbers_of, pack
from barograph.sidecar.journal import Journal
from barograph.store.tail import edges_and_counts

if TYPE_CHECKING:
    from barograph.doctor.kernel.examiner import Examiner

ROWS, MICROSECONDS = 512, 1_500_000  # rows, or time between rows, after which rules look
_MOST_TIMES = 6  # that one incident is reported: it came, it got worse, it was nothing
_WATCH_WAIT = 2_000_000  # µs of the run's time in which the watch may yet say where a NaN began

Identity = tuple[str, str, int, int]


class Health:
    """A consumer. `tell`: called with each finding, new or worse than before.

    config: the run's. planned_steps: how many steps are to come in all, if known. rows: shared with the alerts.
    """

    def __init__(
        self,
        journal: Journal,
        config: Mapping[str, Any],
        planned_steps: int | None = None,
        rows: ChosenRows | None = None,
    ):
        self.tell: list[Callable[[Finding], Any]] = []
        self._journal, self._config, self._planned = journal, config, planned_steps
        self._opened: Examiner | None = None
        self._rows = Rows()
        self._chosen = rows or ChosenRows()
        self._said_limit = False
        self._events: list[Record] = []
        self._urgent = False  # something happened that no rule may wait for
        self._due = False  # rules that are prompt look
        self._looked = False  # since the rules were asked to look at all there is
        self._time = self._looked_at = 0  # of the last row, and of the last one that rules have looked at
        self._said: dict[Identity, str] = {}  # the message recorded last
        self._standing: dict[Identity, tuple[str, int, Finding | None]] = {}  # severity told last, how often, what
        self._waiting: dict[Identity, int] = {}  # since when for the watch's figures

    def take(self, entry: Entry) -> None:
        """An entry; of a sidecar's log what it measured and how a process ended."""
        item = entry.item
        if isinstance(item, Record):
            self._take_record(item, entry)
        elif isinstance(item, WideRow):
            self._add(self._chosen.of(item, entry.rank, entry.segment))
        elif isinstance(item, WideHistogram) and entry.rank == 0:
            self._take_histogram(item, entry.segment)
        if self._due or self._urgent or self._rows.longest >= ROWS:
            self.examine()

    def _take_histogram(self, item: WideHistogram, segment: int) -> None:
        name = item.name.decode("utf-8", "replace") if isinstance(item.name, bytes) else item.name
        if not is_wanted(name):
            return
        shape = shape_of(*edges_and_counts(item))
        if shape:
            names = tuple(f"{KEPT}/{name}/{quantity}" for quantity in shape)
            row = RankRow(names, pack(list(shape.values())), item.step, item.time, segment)
            self._add(self._chosen.choose(0, row))

    def _take_record(self, record: Record, entry: Entry) -> None:
        if record.kind == "metrics":
            self._take_numbers(record, entry)
            return
        if record.kind == "finding":
            self._recall(record)
            return
        if is_event(record):
            self._events.append(with_rank(record, entry.rank))
            self._urgent |= record.kind in ("end", "hang", "oom", "stacks")
            if record.kind == "segment" and entry.rank == 0:
                self._reopen()
        if record.kind == "option":
            if entry.rank == 0:
                self._set_option(record.fields)
        elif record.kind in HAS_NUMBERS:
            self._take_numbers(record, entry)

    def _take_numbers(self, record: Record, entry: Entry) -> None:
        rows = self._chosen.of(record, entry.rank, entry.segment)
        if rows:
            self._add(rows)
            self._urgent |= not math.isfinite(sum(numbers_of(record)[1]))

    def _add(self, rows: list[RankRow]) -> None:
        for row in rows:
            self._rows.add(*row)
            self._time = row.time
            if abs(row.time - self._looked_at) >= MICROSECONDS:
                self._due = True
        if self._chosen.limited and not self._said_limit:
            self._said_limit = True
            self._journal.warn(f"the doctor looks at the first {MOST_SERIES:,} series; this run has more")

    def settle(self, idle: bool) -> None:
        """All there is for now was given. idle: and nothing more has come for a moment."""
        if idle and (self._rows or self._events or self._looked):
            self.examine(force=True)
            self._looked = False

    def finish(self) -> None:
        """The run has ended, in whatever way: what has grown since it was said is recorded once more."""
        self._examiner.seen.facts["finished"] = True
        for row in self._chosen.finish():
            self._rows.add(*row)
        self.examine(force=True)
        for identity, (severity, times, finding) in self._standing.items():
            if severity == MERGED or not times or finding is None:
                continue
            if self._said.get(identity) not in (None, finding.message):
                self._said[identity] = finding.message
                self._journal.record("finding", finding.step, msgspec.structs.asdict(finding))

    @property
    def failed(self) -> dict[str, str]:
        """Rules that failed, and how."""
        return {} if self._opened is None else self._opened.failed

    @property
    def _examiner(self) -> Examiner:
        """Made late: it loads NumPy and all rules, which a run without a row does not need."""
        if self._opened is None:
            from barograph.doctor.live import live_examiner

            settings = self._journal.settings
            self._opened = live_examiner(
                self._config,
                settings.thresholds,
                settings.silence,
                world_size=self._journal.world_size,
                planned_steps=self._planned,
            )
        return self._opened

    def _reopen(self) -> None:
        """A process of the run goes on: it has not ended."""
        if self._opened is not None:
            self._opened.seen.facts.pop("finished", None)

    def _set_option(self, fields: Mapping[str, Any]) -> None:
        name = fields.get("name")
        if isinstance(name, str) and "value" in fields:
            changed = facts_of({name: fields["value"]})
            facts = self._examiner.seen.facts
            facts["config"] = {**facts.get("config", {}), **changed.pop("config", {})}
            facts.update(changed)

    def examine(self, force: bool = False) -> None:
        """Let the rules look at what came, and say what is new."""
        urgent, self._urgent, self._due, self._looked_at, self._looked = self._urgent, False, False, self._time, True
        if not self._rows and not self._events and not force:
            return
        examiner = self._examiner
        events, self._events = self._events, []
        for event in events:
            examiner.seen.happened(event)
        self._rows.give(examiner.seen)
        changed = examiner.catch_up() if force else examiner.examine(urgent)
        if (changed or force or self._waiting) and not self._journal.repeating:
            self._compare(force)

    def _awaits(self, finding: Finding) -> bool:
        """Whether the watch's figures of the step at which the loss was no longer finite are still to come: they say
        whether it began in the inputs, in a layer or in a gradient."""
        watched = self._examiner.seen.channel("model/watch_ms")
        if finding.rule != "non_finite_loss" or watched is None or not watched.end:
            return False
        since = self._waiting.setdefault(finding.identity, self._time)
        here = watched.rows(watched.end - 1)
        behind = (int(here.segment[0]), int(here.step[0])) < (finding.segment, finding.step)
        return behind and abs(self._time - since) < _WATCH_WAIT

    def _compare(self, force: bool) -> None:
        """Say what stands and has not been said; note what was said and is part of another incident now."""
        incidents = {finding.identity: finding for finding in self._examiner.incidents()}
        for identity, finding in incidents.items():
            severity, times, _ = self._standing.get(identity, ("", 0, None))
            if not times and not force and self._awaits(finding):
                continue
            self._waiting.pop(identity, None)
            if severity != finding.severity and times < _MOST_TIMES:
                self._standing[identity] = finding.severity, times + 1, finding
                self._say(finding)
            elif times:
                self._standing[identity] = severity, times, finding
        self._waiting = {identity: since for identity, since in self._waiting.items() if identity in incidents}
        for identity, (severity, times, said) in list(self._standing.items()):
            if identity not in incidents and severity != MERGED and said is not None:
                self._standing[identity] = MERGED, times, said
                self._journal.record("finding", said.step, msgspec.structs.asdict(said) | {MERGED: True})

    def _say(self, finding: Finding) -> None:
        self._said[finding.identity] = finding.message
        self._journal.record("finding", finding.step, msgspec.structs.asdict(finding))
        for tell in self.tell:
            try:
                tell(finding)
            except Exception as error:
                self._journal.warn(f"a finding could not be passed on: {type(error).__name__}: {error}", key="tell")

    def _recall(self, record: Record) -> None:
        """A finding that was said: by this sidecar just now, or by the one before."""

        fields = {name: value for name, value in record.fields.items() if name in Finding.__struct_fields__}
        try:
            said = msgspec.convert({"step": record.step} | fields, Finding)
        except (msgspec.ValidationError, TypeError):
            return
        if self._journal.repeating or self._journal.at <= self._journal.resumed_at:
            _, times, _ = self._standing.get(said.identity, ("", 0, None))
            merged = record.fields.get(MERGED) is True
            self._standing[said.identity] = (MERGED, times, said) if merged else (said.severity, times + 1, said)
            self._said[said.identity] = said.message
