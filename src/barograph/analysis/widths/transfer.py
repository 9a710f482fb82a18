"""The transfer check: does the best learning rate stay where it is as a model gets wider?

In:   final losses of trainings at several widths and learning rates: a table, or stored runs.
Out:  a `TransferCheck`: the best rate at each width, how it moves with width, a verdict, and what it
      costs to use the narrowest model's rate on the widest; a table of widths at equal tokens.

The point of muP is that the verdict is `stays` (Yang et al. 2022, arXiv:2203.03466, figure 1): tune the
small model, train the large one with its rate.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from barograph.analysis.widths.fit import fit_line, student_quantile
from barograph.core.text import number
from barograph.query.given import stored_run, stored_runs

FEWEST_WIDTHS = 3  # a line through two points fits whatever they are
FEWEST_RATES = 3  # the lowest point and one on each side
# Adam's best rate falls like 1 / width in the standard parametrisation and stays in muP: half-way between.
TOLERANCE = 0.5


@dataclass(frozen=True)
class RateOptimum:
    """The best rate at a width: the lowest point of a parabola through the lowest loss and its neighbours.

    low, high: the neighbouring rates that were tried, between which a loss with one valley has its lowest
    point; None where the lowest loss is at the edge of what was tried (`at_edge`).
    """

    width: int
    rate: float
    loss: float
    low: float | None
    high: float | None
    at_edge: bool
    tried: int
    diverged: int


@dataclass(frozen=True)
class TransferCheck:
    """How log2 of the best rate depends on log2 of the width, and what that means.

    verdict: `stays`, `moves`, or `unclear`. cost: what the widest model loses, in the loss's unit, if it is
    trained with the narrowest one's best rate (None if that rate lies outside of what was tried there).
    """

    optima: tuple[RateOptimum, ...]
    slope: float
    low: float
    high: float
    tolerance: float
    cost: float | None

    @property
    def verdict(self) -> str:
        if -self.tolerance <= self.low and self.high <= self.tolerance:
            return "stays"
        moved = abs(self.slope) > self.tolerance and not self.low <= 0 <= self.high
        return "moves" if moved else "unclear"

    def to_json(self) -> str:
        """All of it as strict JSON."""
        numbers = {"slope": self.slope, "low": self.low, "high": self.high}
        plain = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        optima = [asdict(optimum) for optimum in self.optima]
        about = {"verdict": self.verdict, **plain, "tolerance": self.tolerance, "cost": self.cost, "optima": optima}
        return json.dumps(about, allow_nan=False)

    def text(self) -> str:
        """A table of the best rates, and the verdict in a sentence."""
        lines = [f"{'width':>8} {'best rate':>11} {'between':>23} {'loss':>10}  tried"]
        for best in self.optima:
            low = "?" if best.low is None else number(best.low, 3)
            high = "?" if best.high is None else number(best.high, 3)
            diverged = f", {best.diverged} diverged" if best.diverged else ""
            edge = "; at the edge" if best.at_edge else ""
            between = f"{low} and {high}"
            lines.append(
                f"{best.width:>8} {best.rate:>11.4g} {between:>23} {best.loss:>10.4f}  {best.tried}{diverged}{edge}"
            )
        lines.append(self.sentence())
        return "\n".join(lines)

    def sentence(self) -> str:
        """The verdict and its reason."""
        measured = f"best rate ∝ width^{self.slope:+.2f}, {self._interval()}"
        cost = "" if self.cost is None else f"; the narrowest model's rate costs the widest {self.cost:.4f}"
        edge = [best.width for best in self.optima if best.at_edge]
        more = f"; try more rates at width {', '.join(map(str, edge))}" if edge else ""
        said = {"stays": "the best rate stays", "moves": "the best rate moves with width", "unclear": "unclear"}
        return f"Transfer check: {said[self.verdict]} ({measured}){cost}{more}"

    def _interval(self) -> str:
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"95% between {self.low:+.2f} and {self.high:+.2f}"
        if math.isfinite(self.high):
            return f"97.5% at most {self.high:+.2f}"
        return f"97.5% at least {self.low:+.2f}" if math.isfinite(self.low) else "not bounded by the rates tried"

    def __str__(self) -> str:
        return self.text()


def transfer_check(
    trainings: Iterable[Any],
    *,
    loss: str = "eval/loss",
    width: str = "width",
    rate: str = "lr",
    tolerance: float = TOLERANCE,
    confidence: float = 0.95,
) -> TransferCheck:
    """Find the best learning rate at each width, and whether it depends on the width.

    trainings: triples (width, learning rate, final loss), or stored runs, of which `loss` names the series
    whose last value counts, and `width` and `rate` the entries of their configuration. Several trainings of
    one width and rate (seeds) count by their median. A loss that is not finite has diverged.
    Raises ValueError with too few widths or rates.
    """
    table: dict[int, dict[float, list[float]]] = {}
    for size, speed, final in (_triple(training, loss, width, rate) for training in _opened(trainings)):
        if not (size > 0 and speed > 0):
            raise ValueError(f"a width and a learning rate are above 0, not {size} and {speed}")
        table.setdefault(int(size), {}).setdefault(float(speed), []).append(final)
    optima: list[RateOptimum] = []
    steps: list[float] = []
    for size in sorted(table):
        losses = {
            speed: median(x if math.isfinite(x) else math.inf for x in found) for speed, found in table[size].items()
        }
        finite = sum(math.isfinite(value) for value in losses.values())
        if len(losses) < FEWEST_RATES or not finite:
            raise ValueError(
                f"width {size} has {finite} learning rates with a finite loss out of {len(losses)}; "
                f"the check needs {FEWEST_RATES} rates or more at each width"
            )
        best, step = _optimum(size, losses)
        optima.append(best)
        steps.append(step)
    if len(optima) < FEWEST_WIDTHS:
        raise ValueError(f"the check needs {FEWEST_WIDTHS} widths or more, not {len(optima)}")
    across = [math.log2(best.width) for best in optima]
    line = fit_line(across, [math.log2(best.rate) for best in optima], confidence=confidence)
    # a grid says no better than half its step on each side: uniform in a step, of deviation step / sqrt(12)
    middle = math.fsum(across) / len(across)
    spread = math.fsum((x - middle) ** 2 for x in across)
    grid = math.sqrt(math.fsum(((x - middle) * step) ** 2 / 12 for x, step in zip(across, steps, strict=True))) / spread
    reach = max(student_quantile(confidence, line.dof) * line.error, student_quantile(confidence, 1000) * grid)
    low, high = line.slope - reach, line.slope + reach
    for best, x in zip(optima, across, strict=True):
        if best.at_edge and x != middle:  # the best rate may lie anywhere beyond: the slope is open to one side
            if (best.low is None) == (x > middle):
                low = -math.inf
            else:
                high = math.inf
    cost = _cost(table[optima[-1].width], optima[0].rate, optima[-1].loss)
    return TransferCheck(tuple(optima), line.slope, low, high, tolerance, cost)


def _optimum(size: int, losses: Mapping[float, float]) -> tuple[RateOptimum, float]:
    """The best rate and the spacing of the rates around it, in octaves."""
    speeds = sorted(losses)
    at = min(range(len(speeds)), key=lambda index: losses[speeds[index]])
    at_edge = at in (0, len(speeds) - 1)
    left, right = max(at - 1, 0), min(at + 1, len(speeds) - 1)
    place = [math.log2(speeds[index]) for index in (left, at, right)]
    high = [losses[speeds[index]] for index in (left, at, right)]
    best, value = place[1], high[1]
    if not at_edge and all(map(math.isfinite, high)):
        # vertex of the parabola through three points, by divided differences
        first = (high[1] - high[0]) / (place[1] - place[0])
        second = ((high[2] - high[1]) / (place[2] - place[1]) - first) / (place[2] - place[0])
        if second > 0:
            best = (place[0] + place[1]) / 2 - first / (2 * second)
            value = high[0] + first * (best - place[0]) + second * (best - place[0]) * (best - place[1])
    optimum = RateOptimum(
        size,
        2.0**best,
        value,
        None if at == 0 else speeds[left],
        None if at == len(speeds) - 1 else speeds[right],
        at_edge,
        len(speeds),
        sum(not math.isfinite(loss) for loss in losses.values()),
    )
    return optimum, (place[2] - place[0]) / max(right - left, 1)


def _final(found: Sequence[float]) -> float:
    return median(loss if math.isfinite(loss) else math.inf for loss in found)


def _cost(losses: Mapping[float, Sequence[float]], rate: float, best: float) -> float | None:
    """The loss at a rate, on straight lines between those tried in log2, less the best one."""
    points = [(math.log2(speed), _final(found)) for speed, found in sorted(losses.items())]
    place = math.log2(rate)
    for (left, low), (right, high) in itertools.pairwise(points):
        if left <= place <= right and math.isfinite(low) and math.isfinite(high):
            return max(0.0, low + (high - low) * (place - left) / (right - left) - best)
    return None


def compare_widths(
    runs: Iterable[Any], *, loss: str = "train/loss", tokens: str = "tokens", width: str = "width", rate: str = "lr"
) -> list[dict[str, float]]:
    """Runs side by side at equal tokens: rows of width, rate, tokens and loss, sorted by width and loss.

    The tokens are the most that every run has seen; the loss is the last one logged up to there. Where a run has no
    tokens, all are compared at equal steps, and the rows say `steps`. A rate that a configuration does not have is
    left out. Runs without the loss are left out.
    """
    chosen = [run for run in _opened(runs) if _has(run, loss)]
    axis, unit = (tokens, "tokens") if all(_has(run, loss, tokens) for run in chosen) else ("step", "steps")
    found = [(run, run.series(loss, x=axis)) for run in chosen]
    if not found:
        return []
    shared = min(float(series.x[-1]) for _, series in found)
    rows = []
    for run, series in found:
        seen = [index for index, place in enumerate(series.x) if place <= shared]
        row = {"width": _entry(run, width)}
        if (speed := _find(run, rate)) is not None:
            row["rate"] = speed
        rows.append(row | {unit: shared, "loss": float(series.value[seen[-1]]) if seen else math.nan})
    return sorted(rows, key=lambda row: (row["width"], row["loss"]))


def _opened(given: Any) -> list[Any]:
    """What is given, its runs opened for reading."""
    listed = stored_runs(given) if isinstance(given, (str, os.PathLike)) else given
    return [
        stored_run(one) if isinstance(one, (str, os.PathLike)) or isinstance(getattr(one, "dir", None), Path) else one
        for one in listed
    ]


def _has(run: Any, name: str, x: str = "step") -> bool:
    try:
        return len(run.series(name, x=x)) > 0
    except KeyError:
        return False


def _triple(training: Any, loss: str, width: str, rate: str) -> tuple[float, float, float]:
    if not hasattr(training, "series"):
        try:
            size, speed, final = training
            return float(size), float(speed), float(final)
        except (TypeError, ValueError):
            what = "a stored run or three numbers (width, learning rate, final loss)"
            raise ValueError(f"a training is {what}, not {training!r:.80}") from None
    try:
        values = training.series(loss).value
    except KeyError:
        values = ()
    if not len(values):
        raise ValueError(f"run {training.id} has no series {loss!r}; say `loss=` which one counts")
    return _entry(training, width), _entry(training, rate), float(values[-1])


def _entry(run: Any, name: str) -> float:
    """A number of a run's configuration, by its name or its path (`model.width` or `model/width`)."""
    result = _find(run, name)
    if result is None:
        raise ValueError(f"run {run.id} has no number {name!r} in its configuration")
    return result


def _find(run: Any, name: str) -> float | None:
    value: Any = run.config
    if name in value:
        value = value[name]
    else:
        for part in name.replace("/", ".").split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    return None if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)
