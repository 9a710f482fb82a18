"""Learning rates by layer: whether they fall from the first layers to the last one.

In:   a torch model and its optimizers, when the first step begins.
Out:  figures for the `model` record, from numbers on the host, and whether the last layer is as torch draws it.

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


def _rate(group: dict[str, Any]) -> float:
    """A group's rate, whatever share of it a schedule begins with; NaN where it is not known without waiting."""
    known = (rate for rate in (base_rate(group), group.get("lr")) if isinstance(rate, (int, float)) and rate)
    return float(next(known, math.nan))
