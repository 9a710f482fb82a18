"""Whether pictures of evaluations are of another scale than those of the training.

In:   figures of the watch: mean, deviation, and the ends of the range of what a model is given.
Out:  `below_black`, `narrower`, `beyond_all`, `beyond_doubt`, `elsewhere`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known, newest, options_on, usual

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]
_ELSEWHERE = expression(
    r"(?i)(?:^|[._])(?:(?:target|source|test|eval)_?domain|domain_(?:adapt|shift)|ood|out_of_d|corrupt|extrapol"
    r"|cross_?lingual)"
)


def below_black(history: RunHistory, place: tuple[int, int, int], limits: Mapping[str, float]) -> bool:
    """Whether the evaluation's pictures have numbers below a black that all of the training's share."""
    lows, highs = (history.channel(f"model/input_{name}") for name in ("low", "high"))
    if lows is None or highs is None:
        return False
    low, high = newest(lows, *place, 64), newest(highs, *place, 64)
    low, high = low[numpy.isfinite(low)], high[numpy.isfinite(high)]
    if len(low) < limits["looks"] or not len(high):
        return False
    size = float(high.max() - low.min())
    theirs = known(history.channel("model/eval_input_low"), *place)
    return bool(low.max() - low.min() <= limits["floor"] * size and low.min() - theirs > limits["below"] * size)


def narrower(history: RunHistory, deviation: float, place: tuple[int, int, int], limits: Mapping[str, float]) -> bool:
    """Whether pictures of evaluations are full ones, in a range that is much narrower than the training's."""
    figures = {name: history.channel(f"model/input_{name}") for name in ("low", "high", "mean", "std")}
    scales = newest(figures["std"], *place, 64) if figures["std"] is not None else numpy.empty(0)
    scales = scales[numpy.isfinite(scales)]
    low, high, mean, scale = (usual(one, *place) for one in figures.values())
    ends = (known(history.channel(f"model/eval_input_{name}"), *place) for name in ("lows", "highs"))
    black, white = (known(history.channel(f"model/eval_input_{name}"), *place) for name in ("low", "high"))
    classes = known(history.channel("model/top_target_share"), *place) >= 0
    normal = abs(mean) <= limits["normal"] and abs(scale - 1) <= limits["normal"]
    full = min(ends) >= limits["ends"] and 0 < limits["narrow"] * (white - black) <= high - low
    less = len(scales) >= limits["looks"] and 0 < limits["narrow"] * deviation <= float(scales.min())
    return bool(classes and normal and full and less)


def beyond_all(
    history: RunHistory, deviation: float, past: Floats, place: tuple[int, int, int], limits: Mapping[str, float]
) -> bool:
    """Whether the evaluation's deviation and mean are far from those of each look at the training. past: deviations."""
    means = history.channel("model/input_mean")
    if means is None or len(past) < limits["looks"] or past[-1] > limits["scale"] * past[0]:
        return False
    values, here = newest(means, *place, len(past)), known(history.channel("model/eval_input_mean"), *place)
    away = max(float(values.min()) - here, here - float(values.max()))
    other = deviation > limits["near_scale"] * past[-1] or deviation < past[0] / limits["near_scale"]
    return bool(other and away > max(limits["plain"] * float(past[-1]), float(numpy.ptp(values))))


def beyond_doubt(
    history: RunHistory, deviation: float, place: tuple[int, int, int], limits: Mapping[str, float]
) -> bool:
    """Whether normalised inputs of a loss of classes or of pairs differ from the evaluation's in scale as well as in
    mean, or in their mean alone, by so much that its loss needs not say it: a training that augments, and one with
    several losses, has a loss that says nothing."""
    figures = {name: history.channel(f"model/input_{name}") for name in ("mean", "std")}
    if None in figures.values() or elsewhere(history) or not 0 < deviation < math.inf:
        return False
    means, scales = (newest(one, *place, 64) for one in figures.values() if one is not None)
    means, scales = means[numpy.isfinite(means)], scales[numpy.isfinite(scales)]
    if min(len(means), len(scales)) < limits["looks"] or not scales.min() > 0:
        return False
    mean, scale = float(numpy.median(means)), float(numpy.median(scales))
    here = known(history.channel("model/eval_input_mean"), *place)
    normal = abs(mean) <= limits["normal"] and abs(scale - 1) <= limits["normal"]
    discrete = known(history.channel("model/top_target_share"), *place) >= 0
    discrete = discrete or any(
        known(history.channel(f"model/{name}"), *place) > 1 for name in ("loss_pairs", "loss_classes", "loss_queue")
    )
    beyond = max(float(means.min()) - here, here - float(means.max())) / scale
    size = math.log(deviation)
    wider, narrow = size - math.log(scales.max()), math.log(scales.min()) - size
    pictures = math.isfinite(known(history.channel("model/eval_input_low"), *place))
    apart = abs(here - mean) / scale + abs(size - math.log(scale))
    enough = apart >= limits["both_of_pictures" if pictures else "both"]
    both = beyond >= limits["outside"] and max(wider, narrow) >= limits["other_scale"] and enough
    return bool(normal and discrete and (both or beyond >= limits["alone"]))


def elsewhere(history: RunHistory) -> bool:
    """Whether the configuration says that what is evaluated on is of another kind on purpose."""
    return any(_ELSEWHERE.search(name) for name, _ in options_on(history))
