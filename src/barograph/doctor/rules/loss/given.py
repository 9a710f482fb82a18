"""What the watch saw of a step, beside what the loop logs for it.

In:   `model/loss_given`, the sum of what a step's backward passes were called with, and `model/losses_given`, their
      number, beside the logged loss; or another figure beside the series of another role.
Out:  for each step that has both, how many times the logged number the figure is; what a loss may be added up over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from barograph.core.configuration import ACCUMULATION, BATCH, PROCESSES, SEQUENCE
from barograph.doctor.kernel.cursor import RowCursor, is_past, known, newest, numeric_setting

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory

_OTHER = 1.3  # times the least of a few weights: they are not one
_PARTS = {"micro-batches": ACCUMULATION, "ranks": PROCESSES, "examples": BATCH, "tokens": SEQUENCE}
"""What a loss may be added up over → the settings that say how many there are."""


def until(channel: Channel, place: tuple[int, int, int]) -> tuple[Any, Any]:
    """Steps and values of a launch up to a moment. place: a step, the moment, the launch."""
    rows = channel.rows()
    here = (rows.segment == place[2]) & (rows.time <= place[1])
    return rows.step[here], rows.value[here]


def side_by_side(given: Channel, loss: Channel, place: tuple[int, int, int]) -> tuple[Any, Any]:
    """What the backward passes were called with and what is logged, of the steps up to a moment that have both."""
    (steps, ours), (others, theirs) = (until(one, place) for one in (given, loss))
    _, here, there = numpy.intersect1d(steps, others, return_indices=True)
    return ours[here], theirs[there]


def divided_by(history: RunHistory, place: tuple[int, int, int]) -> float:
    """By how much the gradients that the passes left were divided before their norm was logged, in the newest step up
    to a moment that has both norms; NaN where none has."""
    before, logged = history.channel("model/grad_norm_before"), history.role("norm")
    if before is None or logged is None or logged.name.startswith("model/"):
        return math.nan
    ours, theirs = side_by_side(before, logged, place)
    return float(ours[-1] / theirs[-1]) if len(ours) and theirs[-1] > 0 else math.nan


def is_one_weight(weight: Channel | None, place: tuple[int, int, int], looks: float) -> bool:
    """Whether the gradient of a cross-entropy shows its weight: not where it is another one in each of the last looks,
    by three tenths, as of rows or classes that have weights of their own."""
    last = newest(weight, *place, int(looks)) if weight is not None else ()
    return len(last) > 0 and (len(last) < looks or bool(max(last) <= _OTHER * min(last)))


class Given(NamedTuple):
    """A step. place: its number, the moment when both were known, its launch. times: the figure, of what is logged.
    passes: how many backward passes there were. logged: what is logged."""

    place: tuple[int, int, int]
    times: float
    passes: float
    logged: float


class GivenLosses:
    """Pairs both, step by step. Steps without a logged number of their own are left out."""

    def __init__(self, series: str = "model/loss_given", role: str = "loss") -> None:
        self._series, self._role = series, role
        self._cursor = RowCursor()
        self._waiting: list[tuple[int, int, int, float]] = []

    def new(self, history: RunHistory) -> Iterator[Given]:
        """Those that have come since."""
        channel = history.channel(self._series)
        for (step, time, segment), value in self._cursor.each(channel):
            self._waiting.append((step, time, segment, value))
        loss = history.role(self._role)
        if not self._waiting or loss is None or not loss.end or loss.name.startswith("model/"):
            return
        logged = loss.rows()
        while self._waiting:
            step, time, segment, value = self._waiting[0]
            same = numpy.flatnonzero((logged.step == step) & (logged.segment == segment))
            if not len(same) and not is_past(loss, step, segment):
                return
            self._waiting.pop(0)
            if len(same) != 1:
                continue
            size, moment = float(logged.value[same[0]]), max(time, int(logged.time[same[0]]))
            times = value / size if size else math.nan
            if math.isfinite(times):
                passes = known(history.channel("model/losses_given"), step, moment, segment)
                yield Given((step, moment, segment), times, passes, size)


def summands(history: RunHistory) -> list[tuple[float, str]]:
    """Numbers of the configuration that a loss may be added up over, and of what; the smallest first."""
    single = {what: numeric_setting(history, *names) for what, names in _PARTS.items()}
    world = history.facts.get("world_size")
    if world:
        single["ranks"] = float(world)
    known = {what: number for what, number in single.items() if number >= 2 and number == int(number)}
    pairs = {f"{a} of {b}" if a == "micro-batches" else f"{b} of {a}": known[a] * known[b]
             for a, b in combinations(known, 2)}  # fmt: skip
    return sorted((number, what) for what, number in (known | pairs).items())
