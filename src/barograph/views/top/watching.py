"""One run, followed: its series as folds, its records, its state; read a little at a time.

In:   a stored run, the series that a page wants.
Out:  what the pages draw.

A series' history is read once. What comes later is followed in the run's logs and block files. What costs more
(names, state, goodput) is looked at as seldom as it must be to stay within a few hundredths of a core.
"""

from __future__ import annotations

import contextlib
import re
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from barograph.core import liveness
from barograph.core.configuration import planned_steps
from barograph.core.manifest import wall_seconds
from barograph.core.record import Record, numbers
from barograph.core.roles import candidates
from barograph.log.blocks import WideRow
from barograph.log.follow import Entry, Follower
from barograph.query.causes import Totals
from barograph.query.losses import RunLosses, told_losses
from barograph.query.stored import StoredRun
from barograph.views.top.fold import Fold
from barograph.views.top.logbook import Logbook
from barograph.views.top.pace import TopPace

ROLES = ("loss", "eval_loss", "norm", "lr", "throughput", "mfu", "reward")
_MOST_NAMES = 4000  # series that a part is looked for among
_LOAD = re.compile(r"moe/(.+)/load/(\d+)")
_MOST_LOADS = 4096  # experts drawn, over all layers


class RunWatch:
    """names: of every series. roles: loss, eval_loss, norm, lr, throughput, mfu → series. told: losses
    that their rows tell. status: as of the run.
    about: its manifest. totals, cost: where the time went, once a page asked for it. pulses: signs of life of ranks.
    loads: layer → expert → latest share of the tokens."""

    def __init__(self, run: StoredRun):
        self.run = run
        self.names: list[str] = []
        self.roles: dict[str, str] = {}
        self.told = RunLosses()
        self.status, self.about = run.status, run.manifest
        self.totals: Totals | None = None
        self.cost: dict[str, Any] = {}
        self.pulses: list[liveness.Pulse] = []
        self.loads: dict[str, dict[int, float]] = {}
        self.step: int | None = None  # the newest of any series looked at
        self.moment: float | None = None  # when that was logged, in seconds since 1970
        self.logbook = Logbook(run)
        self._folds: dict[str, Fold] = {}
        self._until: dict[str, tuple[int, int | None]] = {}  # the time up to which a fold is read, and of which rank
        self._is_folder = run.status != "log file"
        self._follower = Follower(run.dir if self._is_folder else run.log_files()[0])
        self._follower.skip()
        self._segments: tuple[int, ...] = ()
        self._naming, self._state = TopPace(5.0), TopPace(1.0, 0.005)
        self._accounting, self._pulsing = TopPace(5.0), TopPace(2.0, 0.005)
        self._load_names: list[str] = []
        self._loaded = 0

    @property
    def live(self) -> bool:
        """Whether something may still be written."""
        return self.status in liveness.OPEN

    @property
    def is_mixture(self) -> bool:
        """Whether the run has experts."""
        return any(name.startswith(("moe/", "train/moe_")) for name in self.names)

    def fold(self, name: str) -> Fold | None:
        """A series that is read already."""
        return self._folds.get(name)

    def look(self, wanted: Sequence[str], seconds: float = 0.1, ask: Sequence[str] = ()) -> bool:
        """See what is new; whether all that is wanted has been read.

        wanted: series, the most urgent first. seconds: how long histories are read before the next is put off.
        ask: "time", "ranks", "experts": what else the page shows.
        """
        self._look_at_state()
        self._take(self._follower.read())
        records = self.logbook.look()
        if records and (self.step is None or records[-1].step > self.step):
            self.step, self.moment = records[-1].step, records[-1].time / 1e6
        if self._naming.due() and (self.live or not self.names):
            with self._naming:
                self._read_names()
        if "time" in ask and self._accounting.due() and (self.live or self.totals is None):
            with self._accounting, contextlib.suppress(OSError, ValueError):
                self.totals, self.cost = self.run.goodput(), self.run.cost()
        if "ranks" in ask and self._pulsing.due():
            with self._pulsing, contextlib.suppress(OSError):
                self.pulses = liveness.pulses(self.run.dir) if self._is_folder else []
        end = time.monotonic() + seconds
        complete = self._read_histories(wanted, end)
        if "experts" in ask:
            complete &= self._read_loads(end)
        return complete

    def progress(self) -> tuple[int | None, int | None, float | None, float | None]:
        """The last step, planned steps, seconds since the start, seconds that remain; None for what isn't known."""
        planned = planned_steps(self.about)
        elapsed = wall_seconds(self.about, time.time() if self.live else self.moment or 0.0)
        remaining = None
        if planned and self.step is not None and self.live and self.step < planned:
            each = self._step_seconds()
            remaining = (planned - self.step) * each if each else None
        return self.step, planned, elapsed, remaining

    def close(self) -> None:
        """Let go of the run's files."""
        self._follower.close()

    # -- inside ---------------------------------------------------------------------------------------

    def _step_seconds(self) -> float | None:
        """The median of the last steps, evaluations and the like left out."""
        spans = [speed.get("step_ms") for speed in self.logbook.speeds]
        known = sorted(float(span) for span in spans if isinstance(span, (int, float)) and span > 0)
        if known:
            return known[len(known) // 2] / 1000.0
        fold = self.fold("train/duration_ms")
        values = fold.latest(200) if fold is not None else np.empty(0)
        values = values[np.isfinite(values)]
        return float(np.median(values)) / 1000.0 if len(values) else None

    def _look_at_state(self) -> None:
        if not self._state.due():
            return
        with self._state:
            self.status, self.about = self.run.status, self.run.manifest
            segments = tuple(segment.number for segment in self.run.segments)
            if self._segments and segments != self._segments:  # a resume or rewind: what it logs again replaces the old
                self._forget()
            self._segments = segments

    def _forget(self) -> None:
        self._folds.clear()
        self._until.clear()
        self.step = None
        self._naming.hurry()
        self._loaded = 0

    def _take(self, entries: Sequence[Entry]) -> None:
        """What was logged since the last look."""
        if self._follower.restarted:
            self._follower.restarted.clear()
            self._forget()
        columns: dict[str, list[tuple[int, float, int]]] = {}
        for entry in entries:
            item = entry.item
            if isinstance(item, Record):
                if item.kind == "segment" and not self._is_folder:
                    self._forget()
                    columns.clear()
                named = list(numbers(item))
            elif isinstance(item, WideRow):
                named = list(zip(item.names, struct.unpack(f"<{len(item.names)}d", item.values), strict=True))
            else:
                continue
            for name, value in named:
                if name in self._folds:
                    until, rank = self._until[name]
                    if item.time > until and (rank is None or entry.rank == rank):
                        columns.setdefault(name, []).append((item.step, value, item.time))
                elif self._loaded and name.startswith("moe/") and (match := _LOAD.fullmatch(name)):
                    self.loads.setdefault(match[1], {})[int(match[2])] = value
        for name, rows in columns.items():
            if name in self._folds:
                step, values, moments = zip(*rows, strict=True)
                self._add(name, np.array(step, np.int64), np.array(values), np.array(moments, np.int64))

    def _add(self, name: str, step: Any, value: Any, moment: Any) -> None:
        self._folds[name].add(step, value)
        if len(step) and (self.step is None or int(step[-1]) >= self.step):
            self.step, self.moment = int(step.max()), float(moment.max()) / 1e6

    def _read_names(self) -> None:
        names = self.run.names()
        if names != self.names:
            self._take_names(names)
        self.told = told_losses(self.run, names)  # whose rows may have come since
        self.roles |= {role: some[0] for role, some in zip(("loss", "eval_loss"), self.told, strict=True) if some}

    def _take_names(self, names: list[str]) -> None:
        self.names = names
        few = [name for name in names if name.count("/") <= 1][:_MOST_NAMES]
        found = {role: candidates(role, dict.fromkeys(few, ())) for role in ROLES}
        self.roles = {role: likeliest[0] for role, likeliest in found.items() if likeliest}
        self._load_names = [name for name in names if _LOAD.fullmatch(name)][:_MOST_LOADS]
        self._loaded = min(self._loaded, len(self._load_names))

    def _read_histories(self, wanted: Sequence[str], end: float) -> bool:
        """Whether all of them are read."""
        for name in wanted:
            if name in self._folds:
                continue
            if time.monotonic() > end:
                return False
            self._folds[name] = Fold()
            self._until[name] = 0, None
            for _, (step, moment, value, _, ranks) in self.run.points_of([name]):
                self._until[name] = int(moment.max()), int(ranks[0])
                self._add(name, step, value, moment)
        return True

    def _read_loads(self, end: float) -> bool:
        while self._loaded < len(self._load_names):
            if time.monotonic() > end:
                return False
            name = self._load_names[self._loaded]
            self._loaded += 1
            _, _, value, _ = self.run.columns(name)
            if len(value) and (match := _LOAD.fullmatch(name)):
                self.loads.setdefault(match[1], {})[int(match[2])] = float(value[-1])
        return True
