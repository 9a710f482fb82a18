"""The scaling law of a family of runs: loss by parameters and tokens, with intervals; what to spend a budget on.

In:   runs of several sizes and token counts, or columns of N, D and L.
Out:  `Scaling`: coefficients of L(N, D) = E + A / N^α + B / D^β with intervals, predictions, the optimum of a budget;
      as text with a chart, and as plain data.

The intervals are of a bootstrap over runs: the law is fitted again to runs drawn with replacement. It refuses where
the runs can't tell the coefficients, and says of an exponent when it is not identified.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.analysis.compare.sides import Given, gather_sides
from barograph.analysis.scaling.law import (
    FLOPS_PER_PARAMETER,
    LEAST_EXPONENT,
    MOST_EXPONENT,
    Law,
    ScalingPoints,
    solve,
    theta_of,
)
from barograph.analysis.scaling.runs import Sample, Samples, ScalingError, gather
from barograph.core import providers
from barograph.core.text import compact, number
from barograph.query.stored import StoredRun

Floats = NDArray[np.float64]

LEAST_SIZES = 3  # two values of N lie on any curve of A and α
LEAST_TOKENS = 3
LEAST_RUNS = 7  # five coefficients, and something left to see the noise by
RESAMPLES = 1_000
_CELLS = 20_000  # resamples × runs fitted side by side: some 20 MB
_SAME = 0.05  # values of N, or of D, within 5% are one
_WIDE = 1.5  # an interval wider than this many times the exponent leaves it open
FAR = 10.0  # times beyond the runs: a prediction is said to be far out
_TOGETHER = 0.98  # correlation of ln N and ln D from which on their effects can't be separated


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float | None]:
        return {name: _finite(getattr(self, name)) for name in ("value", "low", "high")}


@dataclass(frozen=True)
class Prediction:
    """loss: of the law at N and D; run: the interval in which a single run would end, noise of runs included.

    beyond: how many times farther out than the largest run, the larger of N and D; 1 within.
    """

    parameters: float
    tokens: float
    loss: Interval
    run: Interval
    beyond: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "parameters": self.parameters,
            "tokens": self.tokens,
            "loss": self.loss.as_dict(),
            "run": self.run.as_dict(),
            "beyond": self.beyond,
        }


@dataclass(frozen=True)
class ScalingOptimum:
    """What a budget of FLOPs = 6 N D is best spent on. beyond: as in `Prediction`, by FLOPs."""

    flops: float
    parameters: Interval
    tokens: Interval
    loss: Interval
    beyond: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "flops": self.flops,
            "parameters": self.parameters.as_dict(),
            "tokens": self.tokens.as_dict(),
            "tokens_per_parameter": _finite(self.tokens.value / self.parameters.value),
            "loss": self.loss.as_dict(),
            "beyond": self.beyond,
        }


@dataclass
class Scaling:
    """samples: the runs, and those left out. law: the coefficients. resampled: the same of every resample, columns.

    noise: the standard deviation of ln L about the law. level: of the intervals (0.95). unidentified: coefficients
    that the runs leave open → why.
    """

    samples: Samples
    law: Law
    resampled: Law
    noise: float
    level: float
    unidentified: dict[str, str] = field(default_factory=dict)
    cautions: list[str] = field(default_factory=list)

    @property
    def coefficients(self) -> dict[str, Interval]:
        """E, A, B, alpha, beta, each with its interval."""
        return {name: self._interval(getattr(self.law, name), getattr(self.resampled, name)) for name in Law._fields}

    def predict(self, parameters: float, tokens: float) -> Prediction:
        """The loss of a model of this many parameters after this many tokens. Raises ValueError below or at 0."""
        _positive(parameters, "parameters")
        _positive(tokens, "tokens")
        value = float(self.law.loss(parameters, tokens))
        each = np.asarray(self.resampled.loss(parameters, tokens))
        # each resample with 16 runs' noise, evenly over its distribution: no random numbers are needed twice
        shares = (np.arange(16) + 0.5) / 16
        noisy = (each[:, None] * np.exp(self.noise * _normal_quantiles(shares))[None, :]).ravel()
        largest = (
            max(point.parameters for point in self.samples.points),
            max(point.tokens for point in self.samples.points),
        )
        beyond = max(1.0, parameters / largest[0], tokens / largest[1])
        return Prediction(parameters, tokens, self._interval(value, each), self._interval(value, noisy), beyond)

    def optimal(self, flops: float) -> ScalingOptimum:
        """N and D with the least loss for a budget of FLOPs, at six a parameter and token. Raises ValueError."""
        _positive(flops, "FLOPs")
        size, tokens = self.law.optimum(flops)
        with np.errstate(all="ignore"):
            sizes, others = self.resampled.optimum(flops)
            losses = self.resampled.loss(sizes, others)
        most = max(FLOPS_PER_PARAMETER * point.parameters * point.tokens for point in self.samples.points)
        return ScalingOptimum(
            flops,
            self._interval(float(size), np.asarray(sizes)),
            self._interval(float(tokens), np.asarray(others)),
            self._interval(float(self.law.loss(size, tokens)), np.asarray(losses)),
            max(1.0, flops / most),
        )

    def _interval(self, value: float, each: Any) -> Interval:
        known = np.asarray(each, np.float64)
        known = known[~np.isnan(known)]
        if not len(known):
            return Interval(float(value), math.nan, math.nan)
        side = (1 - self.level) / 2
        low, high = np.quantile(known, [side, 1 - side])
        return Interval(float(value), float(low), float(high))

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data; what is not finite is None."""
        return {
            "law": "L = E + A / N^alpha + B / D^beta",
            "metric": self.samples.metric,
            "parameters_from": self.samples.source,
            "level": self.level,
            "coefficients": {name: coefficient.as_dict() for name, coefficient in self.coefficients.items()},
            "noise": self.noise,
            "not_identified": self.unidentified,
            "cautions": self.cautions,
            "runs": [
                point.as_dict() | {"fitted": float(self.law.loss(point.parameters, point.tokens))}
                for point in self.samples.points
            ],
            "left_out": [{"run": name, "reason": reason} for name, reason in self.samples.left_out],
        }

    def text(self, width: int = 100) -> str:
        """For a terminal of this many columns."""
        return str(providers.provider("scaling law as text")(self, width))

    def __str__(self) -> str:
        return self.text()


def fit_scaling(
    *runs: Given,
    dir: str | os.PathLike[str] | None = None,
    metric: str | None = None,
    parameters: str | None = None,
    keep: Callable[[StoredRun], bool] | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    anyway: bool = False,
) -> Scaling:
    """Fit the law to runs.

    runs, dir: as `barograph.compare` takes them. metric: whose final value is L; by default the evaluation's loss where
    most runs have it, else the training's. parameters: the key of the configuration that holds N; by default one that
    is called so, else what the speed of light recorded. keep: runs for which it is false are left out.
    level: of the intervals. resamples: how often the law is fitted again. seed: of drawing them.
    anyway: also runs that did not end as planned, and losses of other data or tokenizers.
    Raises ScalingError (a ValueError) with a sentence where no law can be fitted, KeyError and OSError for names and
    files.
    """
    notes: list[str] = []
    lots: list[Any] = [list(run) if isinstance(run, Iterable) and not isinstance(run, str) else run for run in runs]
    try:
        sides = gather_sides(lots, dir=dir, notes=notes)
    except ValueError as error:
        if "needs two runs" in str(error):
            raise ScalingError(
                f"A scaling law needs {LEAST_RUNS} runs or more; name them, or a folder of them."
            ) from None
        raise
    members = [member for side in sides for member in side.members if keep is None or keep(member.run)]
    if not members:
        raise ScalingError("No run meets the filter.")
    samples = gather(members, metric, parameters, anyway)
    samples.cautions += notes
    return fit_samples(samples, level=level, resamples=resamples, seed=seed)


def fit_scaling_columns(
    parameters: Sequence[float], tokens: Sequence[float], losses: Sequence[float], **options: Any
) -> Scaling:
    """Fit the law to columns of N, D and final losses, an entry a run. options: level, resamples, seed, as in `fit`."""
    rows = list(zip(parameters, tokens, losses, strict=True))
    for row in rows:
        if not all(math.isfinite(value) and value > 0 for value in row):
            raise ScalingError(f"N, D and L are finite and above 0, not {row}")
    points = [Sample(f"{at + 1}", "", float(n), float(d), float(loss), 0) for at, (n, d, loss) in enumerate(rows)]
    return fit_samples(Samples("loss", "given", points), **options)


def fit_samples(samples: Samples, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Scaling:
    """Fit the law to points. Raises ScalingError where there are too few."""
    if not 0 < level < 1:
        raise ValueError(f"a level is between 0 and 1, such as 0.95, not {level}")
    if resamples < 20:
        raise ValueError(f"an interval needs 20 resamples or more, not {resamples}")
    _refuse_few(samples)
    size = np.array([point.parameters for point in samples.points])
    tokens = np.array([point.tokens for point in samples.points])
    target = np.log([point.loss for point in samples.points])
    points = ScalingPoints(size, tokens)
    solved = solve(points, target[None, :])
    law = solved.at(0)
    weight = _draws(size, tokens, resamples, np.random.default_rng(seed))
    again = _solve_in_parts(points, target, weight, theta_of(points, law))
    residual = target - np.log(law.loss(size, tokens))
    noise = float(np.sqrt((residual**2).sum() / max(1, len(target) - 5)))
    scaling = Scaling(samples, law, again, noise, level, cautions=list(samples.cautions))
    if not solved.converged[0]:
        scaling.cautions.append("The fit had not fully converged when it was stopped: the coefficients are imprecise.")
    _judge(scaling, size, tokens, residual)
    return scaling


def _solve_in_parts(points: ScalingPoints, target: Floats, weight: Floats, start: Floats) -> Law:
    """The law of every resample, in batches that keep memory small."""
    each = max(1, _CELLS // len(target))
    parts = [weight[at : at + each] for at in range(0, len(weight), each)]
    laws = [
        solve(points, np.broadcast_to(target, part.shape).copy(), part, 2, start, polish=False).law for part in parts
    ]
    return Law(*(np.concatenate(columns) for columns in zip(*laws, strict=True)))


def _refuse_few(samples: Samples) -> None:
    points = samples.points
    sizes = _different([point.parameters for point in points])
    tokens = _different([point.tokens for point in points])
    missing = []
    if sizes < LEAST_SIZES:
        missing.append(f"{LEAST_SIZES - sizes} more {_many(LEAST_SIZES - sizes, 'size')} of model (there are {sizes})")
    if tokens < LEAST_TOKENS:
        left = LEAST_TOKENS - tokens
        missing.append(f"{left} more {_many(left, 'count')} of tokens (there are {tokens})")
    if len(points) < LEAST_RUNS:
        left = LEAST_RUNS - len(points)
        missing.append(f"{left} more {_many(left, 'run')} (there are {len(points)})")
    if missing:
        why = "".join(f" {name} was left out: {reason}." for name, reason in samples.left_out[:3])
        more = f" So were {len(samples.left_out) - 3} more." if len(samples.left_out) > 3 else ""
        raise ScalingError(f"A scaling law can't be fitted to this: {', and '.join(missing)} are missing.{why}{more}")


def _many(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"


def _different(values: Sequence[float]) -> int:
    """How many values there are, those within 5% of each other counted once."""
    if not values:
        return 0
    ordered = np.sort(np.log(values))
    count, first = 1, ordered[0]
    for value in ordered:
        if value - first > math.log1p(_SAME):
            count, first = count + 1, value
    return count


def _draws(size: Floats, tokens: Floats, count: int, chance: np.random.Generator) -> Floats:
    """How often each run is drawn [count, n], with replacement; draws that no law can be fitted to are drawn again."""
    n = len(size)
    groups = [_groups(size), _groups(tokens)]
    found = np.empty((0, n))
    for _ in range(200):
        drawn = chance.multinomial(n, np.full(n, 1 / n), size=count).astype(np.float64)
        good = (drawn > 0).sum(axis=1) >= min(n, 5)
        for each in groups:
            there = np.stack([(drawn[:, each == item] > 0).any(axis=1) for item in np.unique(each)], axis=1)
            good &= there.sum(axis=1) >= LEAST_SIZES
        found = np.concatenate([found, drawn[good]])
        if len(found) >= count:
            return found[:count]
    raise ScalingError("The runs are too unevenly distributed over sizes and tokens for an interval.")


def _groups(values: Floats) -> NDArray[np.int64]:
    """A number for each value, the same for values within 5%."""
    order = np.argsort(values)
    result = np.zeros(len(values), np.int64)
    number, first = 0, math.log(values[order[0]])
    for place in order:
        if math.log(values[place]) - first > math.log1p(_SAME):
            number, first = number + 1, math.log(values[place])
        result[place] = number
    return result


def _judge(scaling: Scaling, size: Floats, tokens: Floats, residual: Floats) -> None:
    """What the runs leave open, and what else is to be known of the fit."""
    together = float(np.corrcoef(np.log(size), np.log(tokens))[0, 1])
    for name, letter, what in (("alpha", "N", "sizes"), ("beta", "D", "token counts")):
        one = scaling.coefficients[name]
        at_bound = one.low <= LEAST_EXPONENT * 1.01 or one.high >= MOST_EXPONENT * 0.99
        if at_bound or one.high - one.low > _WIDE * one.value:
            values = size if letter == "N" else tokens
            scaling.unidentified[name] = (
                f"its interval is {number(one.low, 2)} to {number(one.high, 2)}: over these {what} "
                f"({compact(values.min())} to {compact(values.max())}) the loss changes too little, or too little "
                "independently of the other, to identify it"
            )
    floor = scaling.coefficients["E"]
    if floor.low < 0.01 * min(point.loss for point in scaling.samples.points) or floor.high - floor.low > floor.value:
        scaling.unidentified["E"] = (
            f"its interval is {number(max(0.0, round(floor.low, 6)), 2)} to {number(floor.high, 2)}: the runs are "
            "too far above it to identify it"
        )
    if together > _TOGETHER:
        scaling.cautions.append(
            f"Tokens grow with parameters in these runs (correlation {together:.3f}): what either does alone is hard "
            "to separate, and so is the optimum. Train one size on other token counts."
        )
    worst = int(np.argmax(np.abs(residual)))
    scale = 1.4826 * float(np.median(np.abs(residual)))
    if len(residual) >= 8 and abs(residual[worst]) > max(5 * scale, 0.01):
        point = scaling.samples.points[worst]
        scaling.cautions.append(
            f"{point.name} is {100 * (math.exp(residual[worst]) - 1):+.1f}% off the law, far more than the others: "
            "check this run."
        )


def _normal_quantiles(shares: Floats) -> Floats:
    from statistics import NormalDist

    return np.array([NormalDist().inv_cdf(float(share)) for share in shares])


def _positive(value: float, what: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{what} have to be a number above 0, not {value}")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
