"""Outputs with places in two dimensions, as a picture's points have: which places are targets at all, and whether the
targets are mirrored against what the output says.

In:   an output [n, k, height, width] and its gradient.
Out:  figures for the `model` record, computed on the device from some places of some examples; nothing waits.

The step makes a class likelier where its gradient is below 0: those are the targets of a cross-entropy, of a logistic
loss and of overlaps such as Dice's, alone or added up. Of a mean square the targets are known as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

FIGURES = ("idle_places", "idle_input", "mirrored", "mirrored_by_chance", "straight", "own_targets", "other_targets")
_EXAMPLES, _SIDE, _CHANNELS = 16, 32, 64  # that are looked at, at most
_MOST = 1 << 17  # numbers
_LEAST = 8  # places in each dimension
_AGREE, _LESS = 0.3, 0.5  # correlation of output and targets; that of the other way round, as a part of it
_OF_USUAL = 0.85  # of the median example's best correlation, at least


def has_places(tensor: Tensor) -> bool:
    """Whether it is an output with places in two dimensions."""
    return tensor.dim() == 4 and min(tensor.shape[2:]) >= _LEAST and tensor.shape[1] <= _CHANNELS


def side_of(output: Tensor) -> int:
    """How many places are looked at in each dimension."""
    return min(_SIDE, math.isqrt(_MOST // (min(_EXAMPLES, len(output)) * output.shape[1])))


def some(tensor: Tensor, side: int = _SIDE) -> Tensor:
    """Places of some examples [n, k, h, w], at even distances and the same from both edges."""
    import torch

    part = tensor[:: max(1, -(-len(tensor) // _EXAMPLES))]
    for axis in (2, 3):
        size = part.shape[axis]
        if size > side:
            chosen = (torch.arange(side, device=part.device) + 0.5) * (size / side)
            part = part.index_select(axis, chosen.long())
    return part


def input_of(tensors: Sequence[Tensor], output: Tensor) -> Tensor | None:
    """Of the first input with the output's examples and places, what `some` chooses; None without one."""
    for tensor in tensors:
        alike = tensor.dim() == 4 and len(tensor) == len(output) and tensor.shape[2:] == output.shape[2:]
        if alike and tensor.is_floating_point() and tensor.shape[1] <= _CHANNELS:
            return some(tensor.detach(), side_of(output)).clone()
    return None


def figures(
    output: Tensor, gradient: Tensor, given: Tensor | None = None, count: int = 0, signs: bool = True
) -> Tensor:
    """`FIGURES` of what `some` has chosen. given: the input's places. count: of how many differences the loss is the
    mean square; 0 if it is none. signs: whether the gradient is below 0 where a target is, as that of classes; without
    it, and without a count, targets are not known.

    `idle_places`: the share of places without any gradient; `idle_input`: how much the input varies there, of how much
    it varies everywhere. `mirrored`: the share of examples whose output agrees with the mirrored or turned targets, by
    far better than with the targets; `straight`: the other way round. `mirrored_by_chance`: the share whose output
    agrees as well with another example's targets, mirrored or turned. `own_targets`, `other_targets`: how well outputs
    agree with their own targets, and with those of another example, on the average."""
    import torch

    output, gradient = output.float(), gradient.float()
    still = (gradient == 0).all(1)
    varies = output.new_full((), torch.nan)
    if given is not None:
        there = given.float().to(still.device).movedim(1, -1)
        weight = still.float()[..., None]
        middle = (there * weight).sum((0, 1, 2)) / weight.sum().clamp_min(1)
        varies = (((there - middle).square() * weight).sum((0, 1, 2)) / weight.sum()).sum().sqrt()
        varies = varies / there.reshape(-1, there.shape[-1]).var(0, correction=0).sum().sqrt()
    if count:
        said, wanted = output, output - gradient * (count / 2)
    else:
        said = torch.softmax(output, 1) if output.shape[1] > 1 else torch.sigmoid(output)
        wanted = (gradient < 0).float()
    said, wanted = _centred(said), _centred(wanted)
    own, *others = _agreements(said, wanted)
    other = torch.stack(others).amax(0)
    least = torch.maximum(own, other).median().mul(_OF_USUAL).clamp_min(_AGREE)
    mirrored = (other >= least) & (own <= _LESS * other)
    straight = (own >= least) & (other <= _LESS * own)
    chance = torch.stack(_agreements(said, wanted.roll(1, 0))[1:]).amax(0) >= least
    rolled = (said * wanted.roll(1, 0)).sum((1, 2, 3))
    rolled = rolled / (said.square().sum((1, 2, 3)) * wanted.roll(1, 0).square().sum((1, 2, 3))).sqrt().clamp_min(1e-30)
    shares = [mirrored.float().mean(), chance.float().mean(), straight.float().mean(), own.mean(), rolled.mean()]
    if not (count or signs):
        shares = [torch.full_like(own.mean(), torch.nan)] * len(shares)
    return torch.stack([still.float().mean(), varies, *shares])


def _agreements(said: Tensor, wanted: Tensor) -> list[Tensor]:
    """Correlations of each example's output with its targets as they are, and mirrored and turned."""
    size = (said.square().sum((1, 2, 3)) * wanted.square().sum((1, 2, 3))).sqrt().clamp_min(1e-30)
    ways = [wanted, wanted.flip(3), wanted.flip(2), wanted.flip(2, 3)]
    if wanted.shape[2] == wanted.shape[3]:
        ways += [way.transpose(2, 3) for way in ways]
    return [(said * way).sum((1, 2, 3)) / size for way in ways]


def _centred(values: Tensor) -> Tensor:
    """Each example's and class's differences from their mean over places: how often a class comes says nothing."""
    return values - values.mean((2, 3), keepdim=True)
