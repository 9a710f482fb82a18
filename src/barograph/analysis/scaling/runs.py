"""What a scaling law is fitted to: of each run its size N, its tokens D and its final loss, or why it can't take part.

In:   members of a comparison; the metric, if one was asked for.
Out:  `Sample`s of the runs that take part, reasons for those that don't, cautions; a refusal where they can't be mixed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from barograph.analysis.compare.curves import window_of
from barograph.analysis.compare.difference import differences
from barograph.analysis.compare.member import ComparedMember, direction, is_evaluation, preferred
from barograph.analysis.compare.refusals import metric_obstacle, obstacles, refused_metrics
from barograph.analysis.compare.sides import Side
from barograph.core.liveness import LOST
from barograph.core.text import compact, number, percent
from barograph.log.read import records_of
from barograph.query.keys import normal, shown
from barograph.query.losses import all_told

# names of a count of parameters, in the order of preference; each as `keys.normal` writes it
_COUNT = re.compile(
    r"(?:n|num|number_of|total|total_num|model|model_num)_(?:params|parameters)(?:_total)?|(?:params|parameters)(?:_count"
    r"|_total|_num)?|(?:param|parameter)_count|(?:num_)?(?:trainable|active|non_embedding|nonembedding)_(?:params"
    r"|parameters)"
)
_FINISHED = 0.98  # of the planned steps: a run that ended earlier has not let its learning rate down
_LATE = 0.9  # of its steps: an evaluation before that is not the final one
_HIGH_RATE = 0.5  # of the peak; where others end below the next, this one's rate is still up
_LOW_RATE = 0.25
_ABOVE_BEST = 0.25  # a final loss so much above the run's best one is of a run that diverged, or overfits
FLOPS_PER_PARAMETER = 6.0


class ScalingError(ValueError):
    """No law can be fitted; the message says what is missing."""


@dataclass(frozen=True)
class Sample:
    """A run as a point: its name, N, D, final loss, and the step that the loss is of."""

    name: str
    folder: str
    parameters: float
    tokens: float
    loss: float
    step: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Samples:
    """points: what is fitted. metric: whose final values. source: where N comes from. left_out: names and reasons."""

    metric: str
    source: str
    points: list[Sample] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)


def gather(members: Sequence[ComparedMember], metric: str | None, key: str | None, anyway: bool) -> Samples:
    """The points of some runs. key: of the configuration, holds N. anyway: take what would mislead.

    Raises ScalingError where the losses can't be set on one scale, KeyError for a metric that no run has.
    """
    usable = [member for member in members if member.main is not None]
    chosen, cautions = _metric(usable, metric, anyway)
    source, sizes = _sizes(usable, key)
    samples = Samples(chosen, source, cautions=cautions)
    samples.left_out += [(member.name, "it has logged no step") for member in members if member.main is None]
    rates = [_final_rate(item) for item in usable]
    low = [rate for rate in rates if rate is not None and rate <= _LOW_RATE]
    for item, size, rate in zip(usable, sizes, rates, strict=True):
        found = _sample(item, chosen, size, source)
        if isinstance(found, str):
            samples.left_out.append((item.name, found))
            continue
        why = _unfinished(item, chosen)
        if why is None and low and rate is not None and rate >= _HIGH_RATE:
            why = f"its learning rate ended at {percent(rate, 0)} of its peak, where others decayed"
        if why is not None and not anyway:
            samples.left_out.append((item.name, why))
            continue
        if why is not None:
            samples.cautions.append(f"{item.name}: {why}.")
        samples.points.append(found)
    samples.points.sort(key=lambda item: (item.parameters, item.tokens, item.name))
    if not low and any(rate is not None and rate >= _HIGH_RATE for rate in rates):
        samples.cautions.append("The learning rates did not decay at the end: with a decay all losses would be lower.")
    if repeated := [item.name for item in usable if _epochs(item) > 4]:
        samples.cautions.append(
            f"{_names(repeated)} saw the data more than four times: a repeated token is worth less than a new one."
        )
    return samples


# -- which loss ---------------------------------------------------------------------------------------------


def _metric(members: Sequence[ComparedMember], asked: str | None, anyway: bool) -> tuple[str, list[str]]:
    if not members:
        raise ScalingError("no run has logged a step, so there is no loss to fit")
    counts = {name: sum(name in member.names for member in members) for member in members for name in member.names}
    if asked is not None:
        ending = [name for name in counts if name == asked or name.endswith(f"/{asked}")]
        full = asked if asked in counts else ending[0] if len(ending) == 1 else None
        if full is None:
            raise KeyError(
                f"no run has a series {asked!r}; the losses there are: {', '.join(_losses(counts, members)) or 'none'}"
            )
        candidates = [full]
    else:
        candidates = _losses(counts, members)
        most = max((counts[name] for name in candidates), default=0)
        candidates = [name for name in candidates if counts[name] == most]
    if not candidates:
        raise ScalingError("the runs have no loss in common; say which series it is with --metric")
    if direction(candidates[0]) > 0:
        raise ScalingError(f"{candidates[0]} is better when it is larger; the law is one of losses")
    holders = [member for member in members if candidates[0] in member.names]
    sides = [Side(holder.name, [holder]) for holder in holders]
    reason = obstacles(sides, differences([[holder.facts] for holder in holders]))
    free = [name for name in candidates if metric_obstacle(name, reason) is None]
    cautions = list(reason.cautions)
    if free:
        if candidates[0] not in free:
            cautions.append(refused_metrics([candidates[0]], reason)[candidates[0]].sentence)
        return free[0], cautions
    refusal = refused_metrics(candidates[:1], reason)[candidates[0]]
    if not anyway:
        raise ScalingError(f"{refusal.sentence} One law is of one data set and one tokenizer.")
    return candidates[0], [*cautions, f"Fitted although it may mislead: {refusal.why}."]


def _losses(counts: dict[str, int], members: Sequence[ComparedMember]) -> list[str]:
    """Series that are losses, those of evaluations first, then in the order that comparisons prefer."""
    told = [member.told for member in members]
    names = preferred(counts, told)
    return [name for name in names if direction(name, all_told(told)) < 0 and "perplex" not in name]


# -- N --------------------------------------------------------------------------------------------------------


def _sizes(members: Sequence[ComparedMember], key: str | None) -> tuple[str, list[float | None]]:
    """Where N comes from, and each run's: one source for all, for counts of two kinds don't mix."""
    if key is not None:
        sizes = [_number(member, key) for member in members]
        if not any(sizes):
            raise KeyError(f"no configuration has a number above 0 at {key!r}")
        return f"config.{key}", sizes
    named: dict[str, list[float | None]] = {}
    for member in members:
        for path in member.facts.config():
            if _COUNT.fullmatch(normal(path)):
                named.setdefault(path, [_number(other, path) for other in members])
    light = [_of_light(member) for member in members]
    sources = [(f"config.{path}", sizes) for path, sizes in named.items()]
    sources.append(("the FLOPs of its matrices", light))
    return max(sources, key=lambda item: sum(size is not None for size in item[1]))


def _number(member: ComparedMember, key: str) -> float | None:
    config = member.facts.config()
    path = key if key in config else next((item for item in config if normal(item) == normal(key)), None)
    value = config.get(path) if path is not None else None
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    return float(value) if usable and value is not None else None


def _of_light(member: ComparedMember) -> float | None:
    """N of the matrices, from the FLOPs of a token that `run.speed_of_light` recorded: six a parameter."""

    for path in member.run.log_files()[:1]:
        for record, _ in records_of(path, ("sol",)):
            parts = [record.fields.get(name) for name in ("blocks", "lm_head")]
            flops = sum(value for value in parts if isinstance(value, (int, float)) and value > 0)
            return flops / FLOPS_PER_PARAMETER if flops > 0 else None
    return None


# -- D and L ----------------------------------------------------------------------------------------------------


def _sample(member: ComparedMember, metric: str, size: float | None, source: str) -> Sample | str:
    """The run as a point, or why it is none."""
    if size is None:
        return f"its number of parameters is not known ({source} does not say it)"
    if metric not in member.names:
        return f"it has no {metric}"
    if (at := member.diverged_at(metric)) is not None:
        return f"its {metric} is not finite from step {at:,} on"
    if member.axes is None or member.axes.reason("tokens") is not None:
        return f"its tokens are not known: {member.axes.reason('tokens') if member.axes else 'it has no step'}"
    series = member.read(metric)
    good = np.isfinite(series.value)
    if not good.any():
        return f"its {metric} has no value"
    step, last = int(series.step[good][-1]), int(member.main.step[-1]) if member.main is not None else 0
    if step < _LATE * last:
        return f"its last {metric} is of step {step:,} of {last:,}"
    tokens = member.axes.at("tokens", np.array([step], np.float64))
    curve = member.curve(metric, "step")
    if tokens is None or curve is None or not tokens[0] > 0:
        return "its tokens are not known"
    window = 0.0 if is_evaluation(metric) else window_of([curve], float(curve.x[0]), float(curve.x[-1]))
    loss = curve.end(float(curve.x[-1]), window)
    if not loss > 0:
        return f"its {metric} ends at {number(loss, 4)}, and the law is one of losses above 0"
    return Sample(member.name, str(member.run.dir), size, float(tokens[0]), loss, step)


def _unfinished(member: ComparedMember, metric: str) -> str | None:
    """Why a final loss is not what the run would have come to; None if it is."""
    if member.is_alive:
        return "it is still running"
    planned = member.facts.planned_steps
    last = member.last_step(metric) or 0
    reached = max(last, int(member.main.step[-1]) if member.main is not None else 0)
    if planned is not None and reached < _FINISHED * planned - 1:
        return f"it ended at step {reached:,} of {planned:,.0f} planned, before its learning rate had decayed"
    if member.status in ("failed", *LOST) and planned is None:
        return f"its status is {member.status}, so its loss is not final"
    values = member.read(metric).value
    values = values[np.isfinite(values)]
    tail = max(1, len(values) // 50) if not is_evaluation(metric) else 1
    if len(values) >= 5:
        best = min(float(np.mean(part)) for part in np.array_split(values, max(1, len(values) // tail)))
        end = float(np.mean(values[-tail:]))
        if end > (1 + _ABOVE_BEST) * best > 0:
            return f"its {metric} ended at {number(end, 4)}, {percent(end / best - 1, 0)} above its best"
    return None


def _final_rate(member: ComparedMember) -> float | None:
    """The learning rate at the end, as a part of its peak."""
    if "train/lr" not in member.names:
        return None
    rate = member.read("train/lr").value
    rate = rate[np.isfinite(rate)]
    return float(rate[-1] / rate.max()) if len(rate) > 1 and rate.max() > 0 else None


def _epochs(member: ComparedMember) -> float:
    if "train/epoch" not in member.names:
        return 0.0
    epochs = member.read("train/epoch").value
    epochs = epochs[np.isfinite(epochs)]
    return float(epochs.max()) if len(epochs) else 0.0


def _names(names: Sequence[str]) -> str:
    return ", ".join(shown(name) for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def spans(points: Sequence[Sample]) -> tuple[str, str]:
    """The ranges of N and D, in words."""
    ranges = []
    for values in ([point.parameters for point in points], [point.tokens for point in points]):
        ranges.append(f"{compact(min(values))} to {compact(max(values))}")
    return ranges[0], ranges[1]
