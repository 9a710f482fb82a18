"""Rules over ranks: one that others wait for, ranks that have drifted apart, one that is missing or has NaN.

In:   the series `ranks/{name}/…`, records of stragglers, and the records `ranks` that name ranks.
Out:  findings of the family `ranks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor, averages_workers, known, saved_before, splits_model, whole
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import shown

if TYPE_CHECKING:
    from barograph.core.record import Record
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class EventRule(Rule):
    """Takes each event of one kind once."""

    event = ""

    def reset(self) -> None:
        self._events = 0

    def examine(self, history: RunHistory) -> Iterable[Finding]:
        if len(history.events) == self._events:
            return ()
        new, self._events = history.events[self._events :], len(history.events)
        return [item for event in new if event.kind == self.event for item in self.take(history, event)]

    def take(self, history: RunHistory, event: Record) -> Iterator[Finding]:
        """Findings of one event."""
        raise NotImplementedError


def ranks_named(some: Iterable[Any]) -> str:
    names = [str(item) for item in some]
    return f"rank{'s' if len(names) > 1 else ''} {shown(names, 8)}"


class StragglerRank(EventRule):
    """One rank is slower than the others, and they wait for it.

    In a synchronous training all steps take equally long, so the slow rank is the one that waits least: its own work,
    step less waiting, lies above the median of the others' by a tenth or more over 40 or 160 steps, six standard errors
    from zero. The probe records it when it is significant; this rule reports it, as an info finding when the rank has
    caught up within 200 steps, or when half of what rank 0 takes longer is what the watch of the model takes there
    (`model/watch_ms`): of a model that is not split, it looks on rank 0 alone.

    What to do: look at that rank's device (clock, temperature), at its share of the data, at other processes there.
    """

    name, family, kind, severity = "straggler", "ranks", "straggler", "warning"
    needs = ("!straggler",)
    about = "One rank is slower, and the others wait for it."
    sources = ("FALCON: 10%", "TraceML: 10% and 20%")
    thresholds: ClassVar = {"slower": (0.10, "FALCON, TraceML"), "brief": (200.0, "steps; ours")}
    event = "straggler"
    causes = ("rank slow: the others wait for it", "device throttled", "loader slow")

    def reset(self) -> None:
        super().reset()
        self._open: dict[Any, Finding] = {}

    def take(self, history: RunHistory, event: Record) -> Iterator[Finding]:
        fields = event.fields
        rank = fields.get("rank")
        slower = float(fields.get("slower_by") or 0.0)
        if fields.get("recovered"):
            known_one = self._open.pop(rank, None)
            if known_one is None:
                return
            known_one.last_step = max(known_one.last_step, event.step)
            if event.step - known_one.step < self.at["brief"]:
                known_one.severity = "info"
            known_one.message = known_one.message.rstrip(".") + f"; it keeps up again since step {event.step}."
            yield known_one
            return
        if slower < self.at["slower"]:
            return
        since = int(fields.get("since") or event.step)
        where = ", ".join(str(item) for item in (fields.get("host"), fields.get("device")) if item)
        evidence = {
            key: fields.get(key)
            for key in ("rank", "slower_by", "window", "votes", "p", "waits_least", "host", "device")
        }
        looks = rank == 0 and not splits_model(history) and _watch_takes(history, event, slower)
        finding = self.finding(
            since, f"Rank {rank}{f' ({where})' if where else ''} is {slower:.0%} slower than the others since step "
            f"{since}{'; half of that or more is what the watch takes' if looks else ''}.",
            found=event.step, key=str(rank), evidence=evidence, confidence=0.9,
            severity="info" if looks else self.severity,
            causes=[*([_WATCH] if looks else []), *self.causes],
            remedies=[f"look at rank {rank}'s device: clock, temperature, other jobs", f"look at rank {rank}'s data "
            "and loader",
                      "remove the node if this persists"],
        )  # fmt: skip
        self._open[rank] = finding
        yield finding


_WATCH = "steps too short for the watch: it looks at the model on rank 0 alone"
_PART = 0.5  # of what rank 0 takes longer
_MOST_WAIT = 0.95  # of a step: what a rank does itself is the rest or more


def _watch_takes(history: RunHistory, event: Record, slower: float) -> bool:
    """Whether the watch of the model takes a good part of what rank 0 takes longer, over the steps that were judged."""
    window = int(event.fields.get("window") or 0)
    names = ("model/watch_ms", "ranks/step_ms/min", "ranks/wait_ms/max")
    watch, least, waits = (_at_steps(history.channel(name), event, window) for name in names)
    if not window or not len(watch) or not len(least):
        return False
    step = float(numpy.median(least))
    work = step - min(float(numpy.median(waits)) if len(waits) else 0.0, _MOST_WAIT * step)  # of who waits most
    return float(watch.sum()) / window >= _PART * slower * work


def _at_steps(channel: Channel | None, event: Record, count: int) -> numpy.ndarray[Any, numpy.dtype[numpy.float64]]:
    """The finite values of a series in this many steps up to an event, as they were known then."""
    if channel is None:
        return numpy.empty(0)
    rows = channel.rows()
    here = (rows.time <= event.time) & (rows.step > event.step - count) & (rows.step <= event.step)
    here &= rows.segment == max(rows.segment[here], default=-1)  # not the same steps before a rewind
    values: numpy.ndarray[Any, numpy.dtype[numpy.float64]] = rows.value[here & numpy.isfinite(rows.value)]
    return values


class RanksDrifted(EventRule):
    """Values that should be equal on all ranks differ.

    Parameters of data-parallel ranks are equal to the bit after every step. A checksum that differs is
    critical at once, and the rank is named. Without checksums a norm of gradients or weights that was the same on all
    ranks in ten rows at least, and differs in two, means the same. Norms that differed from the start are local
    to each rank.

    Where the model is watched on all ranks, some of its weights are compared without being asked for: ranks that began
    with equal weights, before the first step, and differ in six looks in a row are a warning; so are ranks that began
    with other weights and have the same gradients, to the bit. Models that are split over ranks, experts of each rank's
    own and workers that are averaged now and then are left alone, as far as weights or the configuration say so.

    What to do: go back to a checkpoint from before; check that gradients are averaged over all ranks (hooks are lost
    when a model is moved or copied after wrapping), that random numbers of initialisation are the same, and that no
    rank skips a step.
    """

    name, family, kind, severity = "ranks_drifted", "ranks", "desync", "critical"
    prompt = True
    needs = ("ranks/*|!ranks",)
    about = "Ranks have drifted apart."
    sources = ("deepspeed#1801: found after 15 days of BLOOM", "pytorch#104336")
    thresholds: ClassVar = {
        "equal": (10.0, "rows that were equal; ours"),
        "rows": (2.0, "rows that differ; ours"),
        "apart": (1e-6, "relative distance; ours"),
        "steps": (512.0, "in which ranks may be averaged: DiLoCo averages every 500"),
    }
    event = "ranks"

    def reset(self) -> None:
        super().reset()
        self._drift: Finding | None = None
        self._ranks: list[Any] = []
        self._cursor = RowCursor()
        self._names = -1
        self._norms: list[str] = []
        self._rows: dict[str, list[int]] = {}
        self._said: set[tuple[int, str]] = set()
        self._waiting: list[Record] = []  # what says that weights differ, of ranks that may yet be averaged

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        for event in list(self._waiting):
            averaged = self._is_averaged_later(history, event)
            if averaged is not None:
                self._waiting.remove(event)
                if not averaged and not averages_workers(history):
                    yield self._away(history, event)
        rows = self._cursor.new(history.channel("ranks/drifted"))
        for at in numpy.flatnonzero(rows.value > 0) if rows is not None else ():
            assert rows is not None
            step, segment = int(rows.step[at]), int(rows.segment[at])
            if self.first(segment, "drifted"):
                yield self._counted(history, whole(float(rows.value[at])), step, int(rows.time[at]), segment)
        if len(history.channels) != self._names:
            self._names = len(history.channels)
            means = [name for name in history.channels if name.startswith("ranks/") and name.endswith("/mean")]
            self._norms = [name[:-5] for name in means if _NORM.search(name)]
        for name in self._norms:
            high = history.channel(f"{name}/max")
            rows = self._cursor.new(high)
            if rows is not None and high is not None:
                yield from self._apart(history, name, high, rows.first)

    def _copies(self, history: RunHistory, event: Record) -> Iterator[Finding]:
        """What the watches' own comparison of weights says."""
        away, never = event.fields.get("apart"), event.fields.get("never_equal")
        if never or not away or splits_model(history):
            if never and not splits_model(history):
                yield self.finding(
                    0, f"{never} ranks began with other weights, and have the same gradients: each makes the same "
                    "steps from another place.", found=event.step, key="never", severity="warning", confidence=0.95,
                    evidence={"ranks": never, "standing": True},
                    causes=["ranks drifted apart: initial weights differ between ranks, they were not broadcast"],
                    remedies=["broadcast the parameters from rank 0 before the first step, or wrap the model with "
                              "DistributedDataParallel", "seed each rank alike before the model is made"],
                )  # fmt: skip
            return
        self._waiting.append(event)

    def _is_averaged_later(self, history: RunHistory, event: Record) -> bool | None:
        """Whether weights are written between steps, once ranks differ; None as long as that may yet come."""
        loss, written = history.role("loss"), history.channel("model/written")
        rows = loss.rows() if loss is not None else None
        late = rows.time[rows.step >= event.step + self.at["steps"]] if rows is not None else numpy.empty(0)
        if not len(late) and not history.facts.get("finished") and rows is not None:
            return None
        if written is None:
            return False
        theirs = written.rows()
        here = (theirs.time <= late[0]) if len(late) else numpy.ones(len(theirs), bool)
        return bool((theirs.value[here & (theirs.step > int(event.fields["apart_since"]))] > 0).any())

    def _away(self, history: RunHistory, event: Record) -> Finding:
        """Ranks that were equal, and differ."""
        away = event.fields["apart"]
        since, count = int(event.fields["apart_since"]), history.facts.get("world_size")
        everyone = not isinstance(count, int) or len(away) >= count
        which = "The ranks' weights" if everyone else f"The weights of {ranks_named(away)}"
        passes, (apart, reduced) = history.channel("model/backwards"), _CAUSES
        parts = passes is not None and passes.last > 1
        return self.finding(
            since, f"{which} were equal to the bit before the first step, and differ since step {since}.",
            found=event.step, key="apart", severity="warning", confidence=0.95,
            evidence={"ranks": list(away)[:64], "standing": True},
            causes=[reduced + _LAST_PART if parts else reduced, apart] if everyone else _CAUSES,
            remedies=[_MEND[0], "don't call `model.module` in the training, nor the last micro-batch's `backward()` "
                      "within `no_sync()`: these gradients are not reduced", _MEND[1]],
        )  # fmt: skip

    def take(self, history: RunHistory, event: Record) -> Iterator[Finding]:
        if "apart" in event.fields or "never_equal" in event.fields:
            yield from self._copies(history, event)
        away = event.fields.get("drift")
        if not away:
            if self._drift is not None and "step_ms" in event.fields and event.step > self._drift.step + 8:
                self._drift = None
            return
        if self._drift is not None and list(away) == self._ranks:
            return
        self._ranks = list(away)
        others = history.facts.get("world_size")
        everyone = isinstance(others, int) and len(self._ranks) >= others
        which = f"Parameters of {ranks_named(self._ranks)} differ" + (
            " from one another" if everyone else " from the other ranks'"
        )
        self._drift = self.finding(
            event.step, f"{which} at step {event.step}.", key=f"parameters {self._ranks}",
            evidence={"ranks": self._ranks[:64]},
            causes=_CAUSES[::-1] if everyone else _CAUSES, remedies=[*saved_before(history, event.step), *_MEND],
            confidence=0.95,
        )  # fmt: skip
        yield self._drift

    def _counted(self, history: RunHistory, count: int, step: int, time: int, segment: int) -> Finding:
        rank = known(history.channel("ranks/drifted_rank"), step, time, segment)
        world = history.facts.get("world_size")
        everyone = isinstance(world, int) and count >= world
        which = f"rank {whole(rank)}" if rank == rank and count == 1 else f"{count} ranks"
        return self.finding(
            step, f"Parameters of {which} differ from the others' at step {step}.", key="parameters", segment=segment,
            evidence={"ranks": count, "rank": rank}, causes=_CAUSES[::-1] if everyone else _CAUSES,
            remedies=[*saved_before(history, step), *_MEND], confidence=0.95,
        )  # fmt: skip

    def _apart(self, history: RunHistory, name: str, high: Channel, first: int) -> Iterator[Finding]:
        mean, low = history.channel(f"{name}/mean"), history.channel(f"{name}/min")
        if mean is None or low is None:
            return
        rows = high.rows(first)
        for at in range(len(rows)):
            step, time, segment = int(rows.step[at]), int(rows.time[at]), int(rows.segment[at])
            if (segment, name) in self._said:
                return
            floor = known(low, step, time, segment)
            value = float(rows.value[at])
            if not math.isfinite(value) or not value - floor > self.at["apart"] * abs(value):
                continue
            seen_rows = mean.rows()
            before = seen_rows.step[(seen_rows.segment == segment) & (seen_rows.step < step)]
            run = self._rows.setdefault(name, [])
            if not run:
                differed = high.rows(0, rows.first + at)
                if (differed.segment == segment).any() or len(before) < self.at["equal"]:
                    self._said.add((segment, name))  # each rank's own, from the start
                    return
            run.append(step)
            if len(run) >= self.at["rows"]:
                self._said.add((segment, name))
                what = name.removeprefix("ranks/")
                yield self.finding(
                    run[0], f"{what} was the same on all ranks until step {run[0]}, and differs since: "
                    f"{floor:.3g} to "
                    f"{value:.3g}.", found=step, segment=segment, key=what, confidence=0.8,
                    evidence={"series": f"{name}/max", "min": floor, "max": value},
                    causes=["all-reduce missing: gradients are not averaged", "ranks drifted apart"],
                    remedies=[*saved_before(history, run[0]), *_MEND],
                )  # fmt: skip


_NORM = expression(r"(?:^|[/_])(?:grad_|gradient_|param_|weight_)?norm/")
_CAUSES = [
    "ranks drifted apart: parameters were changed on one alone",
    "all-reduce missing: gradients are not averaged",
]
_LAST_PART = ", as where the last part of a gradient accumulation runs within `no_sync()`"
_MEND = ["check that gradients are averaged over all ranks: wrap the model after it has been moved",
         "broadcast the parameters from rank 0 and go on"]  # fmt: skip


class RankNonFinite(Rule):
    """One rank alone has a loss or norm that is NaN or infinite.

    The other ranks are finite, so the cause is that rank's data or device. Averaged with the others it makes all of
    them NaN in the next step. It is critical at once; the rank is the one with the largest value, as NaN counts as
    that.
    """

    name, family, kind, severity = "rank_non_finite", "ranks", "nonfinite", "critical"
    prompt = True
    needs = ("ranks/*",)
    about = "A single rank has a NaN."
    sources = ("ByteRobust: NaN on one rank is a device to replay",)
    thresholds: ClassVar = {"count": (0.0, "ranks")}
    causes = ("NaN on one rank: its data, or its device", "bad batch")

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._names = -1
        self._series: list[str] = []

    def examine(self, history: RunHistory) -> Iterable[Finding]:
        if len(history.channels) != self._names:
            self._names = len(history.channels)
            self._series = sorted(
                name for name in history.channels if name.startswith("ranks/") and name.endswith("/non_finite")
            )
        world = history.facts.get("world_size")
        bad = []
        for name in self._series:
            rows = self._cursor.new(history.channel(name))
            if rows is None:
                continue
            for at in numpy.flatnonzero(rows.value > self.at["count"]):
                count = whole(float(rows.value[at]))
                if not isinstance(world, int) or count < world:  # all of them: that is the training's own finding
                    bad.append((int(rows.segment[at]), int(rows.step[at]), name, int(rows.time[at]), count))
        return [item for segment, step, name, time, count in sorted(bad)
                for item in self._say(history, name, step, time, segment, count)]  # fmt: skip

    def _say(self, history: RunHistory, name: str, step: int, time: int, segment: int, count: int) -> Iterator[Finding]:
        head = name[: -len("/non_finite")]
        rank = known(history.channel(f"{head}/max_rank"), step, time, segment)
        who = whole(rank) if count == 1 else -1
        if not self.first(segment, who):
            return
        which = f"Rank {who} alone has" if who >= 0 else f"{count} ranks alone have"
        yield self.finding(
            step, f"{which} a {head.removeprefix('ranks/')} that is not finite at step {step}.", segment=segment,
            key=str(who), evidence={"rank": who, "ranks": count, "series": name},
            confidence=0.95,
            remedies=[f"look at rank {who}'s batch of step {step}" if who >= 0 else "look at the batches of these "
            "ranks",
                      "run the step again on another device", *saved_before(history, step)],
        )  # fmt: skip


class MissingRank(EventRule):
    """A rank has stopped sending values, or ranks have left.

    A rank without values in 16 steps in a row is a warning. A process group that was created again with fewer ranks is
    an info finding.
    """

    name, family, kind, severity = "missing_rank", "ranks", "desync", "warning"
    prompt = True
    needs = ("!ranks",)
    about = "A rank has stopped sending values."
    thresholds: ClassVar = {"steps": (16.0, "in a row; ours")}
    event = "ranks"

    def reset(self) -> None:
        super().reset()
        self._away: dict[Any, list[int]] = {}

    def take(self, history: RunHistory, event: Record) -> Iterator[Finding]:
        fields = event.fields
        before, now = fields.get("world_size_before"), fields.get("world_size")
        if isinstance(before, int) and isinstance(now, int):
            self._away.clear()
            if now < before:
                yield self.finding(
                    event.step, f"The group of ranks has {now} of {before} since step {event.step}.", severity="info",
                    kind="desync",
                    key="group", evidence={"world_size": now, "before": before}, confidence=0.5,
                )  # fmt: skip
                return
        if "by_rank" in fields and "absent" not in fields:
            return
        absent = list(fields.get("absent") or ())
        for rank in absent:
            steps = self._away.setdefault(rank, [])
            steps.append(event.step)
            if len(steps) == int(self.at["steps"]):
                yield self.finding(
                    steps[0], f"Rank {rank} has sent no values since step {steps[0]}.", found=event.step,
                    key=str(rank), evidence={"rank": rank, "steps": len(steps)}, confidence=0.6,
                    causes=["the rank skips steps, has ended, or hangs"],
                    remedies=[f"look at the log and the heartbeat of rank {rank}"],
                )  # fmt: skip
        for rank in [rank for rank in self._away if rank not in absent]:
            del self._away[rank]


RULES = (StragglerRank, RanksDrifted, RankNonFinite, MissingRank)
