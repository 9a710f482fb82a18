"""Whether the targets of a loss are the model's own inputs, as those of an autoencoder are, whatever is added to it.

In:   an input with as many elements as the output, the output and its gradient.
Out:  figures for the `model` record, computed on the device from some elements; nothing waits.

The gradient of a square is c (output − target), that of a logistic loss c (sigmoid(output) − target), and where the
output is a chance already, c (output − target) / (output (1 − output)). Where one of them is a line through 0 over the
difference with the input, the input is the target, and c need not be known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barograph.probes.model import noising

if TYPE_CHECKING:
    from torch import Tensor

FIGURES = ("input_target", "target_mean", "target_std", "output_rms", "out_of_range", "rebuilt")
_OFF = 1e-3  # off the line, of the gradient's size: rounding of single precision
_LEAST, _ROWS = 64, 16  # elements; rows whose mean says something
_SLACK = 0.02  # of targets at the bounds: smoothed ones, and rounding


def input_of(tensors: Sequence[Tensor], output: Tensor) -> Tensor | None:
    """Some elements of the first input with the output's rows and as many elements; None without one."""
    if output.dim() < 2 or output.numel() < _LEAST:
        return None
    for tensor in tensors:
        if tensor.is_floating_point() and len(tensor) == len(output) and tensor.numel() == output.numel():
            return noising.some(tensor.detach().reshape(output.shape)).clone()
    return None


def figures(given: Tensor, output: Tensor, gradient: Tensor, within: tuple[float, float] | None) -> Tensor:
    """`FIGURES` of what `noising.some` has chosen: 1 where inputs are targets, else 0; mean and deviation of the
    targets, the outputs' size, the share of targets out of the range that the loss or the output's function has, and
    which part of their variance between rows the outputs explain, NaN where they are not known. within: the range of
    the output's last function."""
    import torch

    wide = torch.float32 if output.device.type == "mps" else torch.float64
    given, said, gradient = given.to(output.device, wide), output.to(wide), gradient.to(wide)
    plain, chance = said - given, torch.sigmoid(said) - given
    ways = [plain, chance]
    if within == (0.0, 1.0):
        ways.append(plain / (said * (1 - said)).clamp_min(1e-12))
    same = torch.stack([_is_line(way, gradient) for way in ways])
    low, high = within or (-math.inf, math.inf)
    beyond = ((given < low - _SLACK) | (given > high + _SLACK)).to(wide).mean()
    logistic = ((given < -_SLACK) | (given > 1 + _SLACK)).to(wide).mean()
    nothing = said.new_full((), math.nan)
    outside = torch.where(same[1], logistic, beyond if within is not None else nothing)
    away = (given - given.mean(0)).square().sum()
    left = torch.where(same[1], chance, plain).square().sum()
    rebuilt = 1 - left / away if len(given) >= _ROWS else nothing
    known = [given.mean(), given.std(), said.square().mean().sqrt(), outside, rebuilt]
    one = same.any()
    return torch.stack([one.to(wide), *(torch.where(one, value, nothing) for value in known)])


def _is_line(way: Tensor, gradient: Tensor) -> Tensor:
    slope = (way * gradient).sum() / way.square().sum()
    off = (gradient - slope * way).square().sum()
    return (slope > 0) & (off <= _OFF**2 * gradient.square().sum())
