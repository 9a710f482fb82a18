"""Learning rates by layer: whether they fall from the first layers to the last one.

In:   a torch model and its optimizers, when the first step begins.
Out:  figures for the `model` record, from numbers on the host, and whether the last layer is as torch draws it; and
      whether rates fall or rise from parameter to parameter, and not from layer to layer.

Where a model is trained with another rate in each part, new layers at its end have the highest one: those before were
trained already. Rates that are made from the sizes of layers, as one over their inputs, are no such order: they are
told by layers of one rate that have other sizes. Tables of tokens are left out, as they often have a rate of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.accounts import base_rate
from barograph.probes.model.frozen import as_drawn
from barograph.probes.model.parameters import mesh_of, own

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_LEAST = 3  # layers
_PARAMETERS = 8  # at least, of which each has a rate of its own
_SAME, _MOST = 1e-5, 0.8  # off a ratio, of two rates; of all neighbours, that have it
_OTHER_SIZE = 1.5  # times the inputs of another layer of one rate


def rate_figures(current: ModelRound, model: Any, optimizers: Sequence[Any]) -> None:
    """Add how many rates there are and how many times the last layer's the first one's is, where they fall."""
    import torch

    if len(optimizers) != 1:
        return
    groups = optimizers[0].param_groups
    if len(groups) < 2 or any(group.keys() != groups[0].keys() for group in groups):  # several methods in one
        return
    rates = {id(item): _rate(group) for group in groups for item in group["params"]}
    if (parted := _by_parameter(model, rates)) is not None:
        current.figures |= {"rates_by_parameter": parted[0], "rate_ratio": parted[1]}
    layers = [
        (module, weight) for module in model.modules()
        if next(module.children(), None) is None and not isinstance(module, torch.nn.Embedding)
        and (weight := own(module, "weight")) is not None and weight.dim() > 1
        and id(weight) in rates and mesh_of(weight) is None
    ]  # fmt: skip
    line = [rates[id(weight)] for _, weight in layers]
    falls = all(one >= other for one, other in itertools.pairwise(line))
    if len(line) < _LEAST or not all(0 < one < math.inf for one in line) or not falls or line[-2] == line[-1]:
        return
    widths: dict[float, list[int]] = {}
    for (_, weight), rate in zip(layers, line, strict=True):
        widths.setdefault(rate, []).append(max(1, weight[0].numel()))
    if not any(max(some) >= _OTHER_SIZE * min(some) for some in widths.values()):
        return
    current.figures |= {"falling_rates": float(len(widths)), "rate_over_last": line[0] / line[-1]}
    drawn = as_drawn(layers[-1][0])
    if drawn is not None:
        current.put("last_drawn", ("",), drawn.reshape(1))


def _by_parameter(model: Any, rates: dict[int, float]) -> tuple[float, float] | None:
    """Where the rates of most parameters, in the model's order, are each the same number of times the one before, also
    within layers: in how many layers of several parameters, and that number. None where they are not."""
    layers = [
        [rates[id(one)] for one in module.parameters(recurse=False) if id(one) in rates] for module in model.modules()
    ]
    line = [rates[one] for one in dict.fromkeys(map(id, model.parameters())) if one in rates]
    if len(line) < _PARAMETERS or not all(0 < one < math.inf for one in line):
        return None
    steps = [after / before for before, after in itertools.pairwise(line)]
    step = sorted(steps)[len(steps) // 2]

    def same(one: float) -> bool:
        return abs(one / step - 1) < _SAME

    within = [all(same(after / before) for before, after in itertools.pairwise(one)) for one in layers if len(one) > 1]
    if same(1.0) or sum(map(same, steps)) < _MOST * len(steps) or sum(within) < _LEAST:
        return None
    return float(sum(within)), step


def _rate(group: dict[str, Any]) -> float:
    """A group's rate, whatever share of it a schedule begins with; NaN where it is not known without waiting."""
    known = (rate for rate in (base_rate(group), group.get("lr")) if isinstance(rate, (int, float)) and rate)
    return float(next(known, math.nan))
