"""One run in a comparison: its facts, its metrics under their common names, its axes, its money.

In:   a stored run.
Out:  `ComparedMember`; sentences about what it lacks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from barograph.analysis.compare.axes import ComparisonAxes
from barograph.analysis.compare.curves import ComparisonCurve, Spikes, spike_score
from barograph.analysis.compare.facts import RunFacts, gather
from barograph.core import liveness
from barograph.core.aliases import Names
from barograph.core.utilization import mfu_fraction
from barograph.query.losses import RunLosses, all_told, losses_by_name, told_losses
from barograph.query.metrics import direction as direction
from barograph.query.metrics import is_evaluation as is_evaluation
from barograph.query.stored import Series

if TYPE_CHECKING:
    from barograph.query.stored import StoredRun

Floats = NDArray[np.float64]

EVALUATIONS = ("eval/loss", "val/loss", "eval/bpb", "eval/bits_per_byte", "eval/perplexity", "eval/accuracy")
# Measures of text that don't depend on how it is cut into tokens
PER_BYTE = re.compile(r".*(?:bpb|bits?_per_(?:byte|char\w*)|bpc|nats_per_byte).*", re.IGNORECASE)
_PER_TOKEN = re.compile(r".*(?:loss|ppl|perplexity|nll|cross_?entropy|(?<![a-z])ce)(?![a-z]).*", re.IGNORECASE)


def preferred(names: Iterable[str], told: Iterable[RunLosses] = ()) -> tuple[str, ...]:
    """What runs are compared by, of these names: measures on data held out, then the training's loss. told: losses
    that the rows of each tell."""
    known = tuple(names)
    evaluations = [name for name in EVALUATIONS if name in known]
    losses = losses_by_name(known).and_told(all_told(one.among(known) for one in told))
    found = (losses.evaluation, *evaluations, losses.loss)
    return tuple(dict.fromkeys(name for name in found if name is not None))


def is_per_token(metric: str) -> bool:
    """Whether a metric's value depends on the tokenizer."""
    return _PER_TOKEN.fullmatch(metric) is not None and PER_BYTE.fullmatch(metric) is None


class ComparedMember:
    """A run, read lazily: series once each, facts at once.

    names: of its series, under the names that tables of aliases give them → its own.
    """

    def __init__(self, run: StoredRun, head: bool = True):
        self.run = run
        self._about = run.manifest
        self.facts: RunFacts = gather(run, self._about, head)
        self.status = run.status
        self.name = str(self._about.get("name") or run.id)
        self.project = run.project
        names = Names()
        self.names: dict[str, str] = {}
        for name in run.names():
            alias = names.canonical(name)
            self.names.setdefault(alias.name if alias.factor == 1.0 else name, name)
        self._series: dict[str, Series] = {}

    def __repr__(self) -> str:
        return f"<Member {self.project}/{self.name}>"

    @property
    def is_alive(self) -> bool:
        """Whether it goes on being written."""
        return self.status in liveness.ALIVE

    @property
    def was_lost(self) -> bool:
        """Whether it ended without wanting to."""
        return self.status in (*liveness.LOST, "failed")

    def read(self, metric: str) -> Series:
        """A series by its common name, rank 0's if several ranks logged it, in the order of steps."""
        if metric not in self._series:
            self._series[metric] = self.run.series(self.names[metric])
        return self._series[metric]

    @cached_property
    def told(self) -> RunLosses:
        """Its losses that no name tells, but their rows, by their common names."""
        return told_losses(self.run, self.names)

    @property
    def losses(self) -> RunLosses:
        """Its losses, by their common names."""
        return losses_by_name(self.names).and_told(self.told)

    def way(self, metric: str) -> int:
        """1 if larger is better, −1 if smaller is, 0 if neither is known."""
        return direction(metric, self.told)

    @cached_property
    def main(self) -> Series | None:
        """The series whose steps and times are the run's: the training loss, else the longest that it trains by."""
        name = self.losses.loss
        if name is None:
            shown = [name for name in self.names if name.startswith("train/")] or list(self.names)
            name = max(shown[:20], key=lambda item: len(self.read(item)), default=None)
        found = self.read(name) if name is not None else None
        return found if found is not None and len(found) else None

    @cached_property
    def axes(self) -> ComparisonAxes | None:
        """None for a run without a step."""
        return ComparisonAxes(set(self.names), self.facts, self.main, self.read) if self.main is not None else None

    def curve(self, metric: str, axis: str) -> ComparisonCurve | None:
        """The finite values of a metric along an axis; None if the run has not the metric, the axis or a value."""
        if metric not in self.names or self.axes is None:
            return None
        series = self.read(metric)
        x = self.axes.at(axis, series.step)
        if x is None:
            return None
        good = np.isfinite(series.value)
        if axis == "tokens" and len(series):
            good &= np.isfinite(x)
        if not good.any():
            return None
        return (
            ComparisonCurve(np.asarray(x[good], np.float64), series.value[good])
            if not good.all()
            else ComparisonCurve(x, series.value)
        )

    def diverged_at(self, metric: str) -> int | None:
        """The step from which a metric is not finite to its end; None if it ends finite or has no points."""
        if metric not in self.names:
            return None
        series = self.read(metric)
        if not len(series) or math.isfinite(series.value[-1]):
            return None
        finite = np.flatnonzero(np.isfinite(series.value))
        return int(series.step[finite[-1] + 1 if len(finite) else 0])

    def last_step(self, metric: str) -> int | None:
        series = self.read(metric) if metric in self.names else None
        return int(series.step[-1]) if series is not None and len(series) else None

    def seeds(self) -> tuple[Any, ...] | None:
        """What tells this run from its repeats; None if no seed is known."""
        return tuple(value for _, value in sorted(self.facts.seeds.items())) or None

    def spikes(self, metric: str) -> Spikes | None:
        """The spike score of a metric's values as logged."""
        return spike_score(self.read(metric).value) if metric in self.names else None

    @cached_property
    def throughput(self) -> dict[str, float]:
        """steps_per_second, tokens_per_second, mfu: whole stretches over the training time; only what is known."""
        result: dict[str, float] = {}
        axes = self.axes
        if axes is None or self.main is None or len(self.main) < 2:
            return result
        ends = np.array([self.main.step[0], self.main.step[-1]], np.float64)
        times, tokens = axes.at("time", ends), axes.at("tokens", ends)
        if times is not None and times[1] > times[0]:
            result["steps_per_second"] = float((ends[1] - ends[0]) / (times[1] - times[0]))
            if tokens is not None:
                result["tokens_per_second"] = float((tokens[1] - tokens[0]) / (times[1] - times[0]))
        elif "train/tokens_per_second" in self.names:
            result["tokens_per_second"] = _median(self.read("train/tokens_per_second").value)
        name = next((item for item in ("train/mfu", "speed/mfu") if item in self.names), None)
        if name is not None:
            result["mfu"] = mfu_fraction(_median(self.read(name).value), name, self.names)
        return {key: value for key, value in result.items() if math.isfinite(value)}

    @cached_property
    def cost_per_second(self) -> float | None:
        """Money a second of training, in the currency of the run's own prices; None if they are not known."""
        wall, cost = self._about.get("wall_seconds"), self._about.get("cost")
        if cost and wall:
            return float(cost) / float(wall)
        if not self.run.log_files() or "source" in self._about:
            return None
        fields = self.run.cost()
        held = self.run.goodput().held
        if fields.get("cost") and held > 0:
            return float(fields["cost"]) / held
        return None


def _in_order(
    step: NDArray[Any], time: NDArray[Any], value: NDArray[Any], segment: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    if not bool((step[1:] < step[:-1]).any()):
        return step, time, value, segment
    order = np.lexsort((time, step))
    return step[order], time[order], value[order], segment[order]


def _median(values: Floats) -> float:
    good = values[np.isfinite(values)]
    return float(np.median(good)) if len(good) else math.nan
