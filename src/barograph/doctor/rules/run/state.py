"""What the first steps after a resume say of the optimizer's state.

In:   the median update of a step, the learning rate, the norm of all parameters, how old the optimizer is and of how
      many batches running statistics are, where a new segment begins.
Out:  findings of `OptimizerStateLost`, `OlderWeights`, `StatisticsLost`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import RowCursor, known, saved_before, whole
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.series import SeriesRule
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


class OptimizerStateLost(SeriesRule):
    """The first step after a resume is much longer than the steps before, at the same learning rate.

    Adam's steps are m̂ / √v̂. With moments that begin at zero both are the first gradient, so each weight moves by the
    whole learning rate; with moments of a training under way the directions of many batches cancel, and it moves by a
    tenth to a third of that. The median update ratio over the learning rate, in the first table behind the resume,
    must be twice the largest of the eight before it. Where the learning rate isn't logged it counts as unchanged.

    The loss need not show it: the step is long in a random direction, once.
    """

    name, family, kind, severity = "optimizer_state_lost", "run", "resume", "warning"
    series, waits = "=model/update_p50", False
    needs = ("=model/update_p50",)
    least = 9
    about = "The first step after a resume is far longer than those before."
    sources = ("Adam: bias correction",)
    thresholds: ClassVar = {
        "times": (2.0, "times the largest of eight before; ours"),
        "tables": (8.0, "before the resume; ours"),
    }
    causes = ("optimizer state lost: its moments begin at zero", "learning rate too high: not the one before")

    def reset(self) -> None:
        self._past: list[float] = []  # update ratio over learning rate, of the newest tables
        self._segment: int | None = None
        self._step = 0

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        rate = history.role("lr")
        cuts = [0, *(numpy.flatnonzero(numpy.diff(rows.segment)) + 1).tolist(), len(rows)]
        for low, high in pairwise(cuts):
            segment = int(rows.segment[low])
            if self._segment is not None and segment != self._segment:
                yield from self._look(history, rate, rows, low)
            self._segment, self._step = segment, int(rows.step[high - 1])
            for at in range(max(low, high - int(self.at["tables"])), high):
                self._past.append(_each(rate, rows, at))
            self._past = self._past[-int(self.at["tables"]) :]

    def _look(self, history: RunHistory, rate: Channel | None, rows: ChannelRows, at: int) -> Iterator[Finding]:
        step, segment = int(rows.step[at]), int(rows.segment[at])
        usual = [item for item in self._past if math.isfinite(item) and item > 0]
        now, largest = _each(rate, rows, at), max(usual, default=math.nan)
        anew = step < 0.5 * self._step  # another stage, or another try
        if anew or len(usual) < self.at["tables"] or not self.at["times"] * largest < now < math.inf:
            return
        times = now / float(numpy.median(usual))
        yield self.finding(
            step, f"The first step after the resume at step {step} moves the weights {times:.3g} times as far as "
            "those before, at the same learning rate.", found=step, segment=segment,
            confidence=0.85, evidence={"times": times, "ratio": float(rows.value[at])},
            remedies=["load the optimizer's state with the weights", "if it is gone, warm the learning rate up again",
                      *saved_before(history, step)],
        )  # fmt: skip


class OlderWeights(Rule):
    """A run goes on with the weights of an earlier step than the one that it goes on at.

    The watch records the norm of all parameters. In the launch before it went one way: eight of its looks, five at
    least, evenly over the launch up to the resume, rise all or fall all. The first one behind the resume lies behind
    the last but one of these, by twice their last change and 15% of all change or more from the last, and within what
    they have come through, without its first twentieth; and as many parameters are trained. It is the norm of an
    earlier step then.

    What to do: look at which checkpoint is loaded, and at the step that is saved in it.
    """

    name, family, kind, severity = "older_weights", "run", "resume", "warning"
    needs = ("=model/param_norm",)
    least = 6
    about = "A run goes on with the weights of an earlier step."
    thresholds: ClassVar = {
        "looks": (8.0, "of the launch before; ours"),
        "least": (5.0, "of them; ours"),
        "gap": (3.0, "times their distance, from the last of them to the resume; ours"),
        "back": (2.0, "times the last change between two of them; ours"),
        "share": (0.15, "of all the change, at least; ours"),
        "start": (0.05, "of all the change, at its beginning: as if nothing were loaded; ours"),
    }
    causes = ("old weights loaded: the checkpoint is of an earlier step than the run goes on at",)
    remedies = ("load the newest checkpoint, and save step, weights and optimizer state in one file",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._segment = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel = history.channel("model/param_norm")
        rows = self._cursor.new(channel)
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None and channel is not None
            segment, first = int(rows.segment[at]), self._segment
            self._segment = segment
            if first not in (-1, segment):
                yield from self._look(history, channel.rows(0, rows.first + at + 1))

    def _look(self, history: RunHistory, rows: ChannelRows) -> Iterator[Finding]:
        """The last row is the first one of a launch."""
        step, segment, now = int(rows.step[-1]), int(rows.segment[-1]), float(rows.value[-1])
        here = (rows.segment == rows.segment[-2]) & (rows.step < step) & numpy.isfinite(rows.value)
        steps, norms = rows.step[here], rows.value[here]
        some = norms[::-1][:: max(1, len(norms) // int(self.at["looks"]))][::-1]
        if len(some) < self.at["least"] or step - steps[-1] > self.at["gap"] * (steps[-1] - steps[0]) / len(some):
            return
        way = float(numpy.sign(some[-1] - some[0]))
        changes, come = way * numpy.diff(some), way * (now - some[0]) / abs(some[-1] - some[0]) if way else 0.0
        trained = history.channel("model/trained_parameters")
        same = trained is None or len(set(trained.rows().value.tolist())) == 1
        away = way * (some[-1] - now)
        back = (
            away >= max(self.at["back"] * changes[-1], self.at["share"] * changes.sum()) and way * (some[-2] - now) > 0
        )
        if not ((changes > 0).all() and back and come > self.at["start"] and same and self.first(segment)):
            return
        nearest = int(steps[numpy.argmin(numpy.abs(norms - now))])
        yield self.finding(
            step, f"The run goes on at step {step} with weights of a norm of {now:.6g}; it was {float(norms[-1]):.6g} "
            f"at step {int(steps[-1])}, and nearest to this at step {nearest}.", found=step, segment=segment,
            confidence=0.95, evidence={"norm": now, "nearest": nearest, "standing": True},
        )  # fmt: skip


class StatisticsLost(WatchRule):
    """A run goes on with its weights, and with batch norm's running statistics as torch makes them.

    In the first step of a launch the statistics are those of that step's passes alone, two for each backward pass at
    most, and were 0 and 1 before (`model/begun_statistics`). In the launch before they moved, and the training goes on:
    its optimizer has made twenty steps by its own count, and twice as many as these are batches; or where it has no
    count, the norm of all parameters is within 1% of the last one before the resume, or of where it would be if it went
    on as until then, and 5% or more away from the run's first one.

    An evaluation soon behind the resume has statistics of a few batches and of none.

    What to do: save `model.state_dict()`, which has the buffers, and load it with `strict=True`.
    """

    name, family, kind, severity = "statistics_lost", "run", "resume", "warning"
    series = "model/begun_statistics"
    needs = ("=model/begun_statistics", "=model/stale_statistics")
    about = "A run goes on with its weights, and without batch norm's running statistics."
    thresholds: ClassVar = {
        "steps": (20.0, "of the optimizer before the resume; ours"),
        "passes": (2.0, "for each backward pass of the step; ours"),
        "same": (0.01, "of the weights' norm, from the last one before the resume; ours"),
        "away": (0.05, "of the weights' norm, from the run's first one; ours"),
        "part": (0.33, "of its way until then, at most, for the steps that came since; ours"),
    }
    causes = (
        "state lost at the resume: batch norm's running statistics, which are buffers, are not in the checkpoint",
    )
    remedies = (
        "save `model.state_dict()`, not `named_parameters()`: buffers as `running_mean` and `running_var` are in it",
        "load it with `strict=True`, which says what is missing",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        step, time, segment = place
        moved = history.channel("model/stale_statistics")
        rows = moved.rows() if moved is not None else None
        if rows is None or not (rows.value[(rows.segment < segment) & (rows.step < step)] == 0).any():
            return
        passes = max(1.0, known(history.channel("model/backwards"), step, time, segment))
        few = 0 < value <= self.at["passes"] * passes
        if few and self._goes_on(history, value, place) and self.first(segment):
            yield self.finding(
                step, f"The run goes on at step {step}, and batch norm's running statistics are those of "
                f"{whole(value)} {'batch' if value == 1 else 'batches'}: those of before are gone.", found=step,
                segment=segment, confidence=0.95, evidence={"batches": value, "standing": True},
                remedies=[*self.remedies, *saved_before(history, step)],
            )  # fmt: skip

    def _goes_on(self, history: RunHistory, batches: float, place: Place) -> bool:
        """Whether it is the training of the launch before, by the optimizer's count, or by the weights' norm."""
        age = known(history.channel("model/optimizer_age"), *place)
        if age == age:
            return age >= max(self.at["steps"], 2 * batches)
        channel, (step, _, segment) = history.channel("model/param_norm"), place
        if channel is None:
            return False
        rows = channel.rows()
        before = (rows.segment < segment) & (rows.step < step) & numpy.isfinite(rows.value)
        old, steps, now = rows.value[before], rows.step[before], known(channel, *place)
        if len(old) < 2 or not now > 0:
            return False
        way, part = abs(old[-1] / old[0] - 1), (step - steps[-1]) / max(1, steps[-1] - steps[0])
        near = max(self.at["same"], way * min(part, self.at["part"]))  # it is looked at now and then, and goes on
        return bool(abs(old[-1] / now - 1) <= near and abs(old[0] / now - 1) >= self.at["away"])


def _each(rate: Channel | None, rows: ChannelRows, at: int) -> float:
    """The median update for a learning rate of 1."""
    value = known(rate, int(rows.step[at]), int(rows.time[at]), int(rows.segment[at]))
    if value == 0:
        return math.nan
    return float(rows.value[at]) / (value if value > 0 else 1.0)
