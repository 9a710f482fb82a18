"""What the gradient of a mean square says of its targets: they are the output less a multiple of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from barograph.probes.model.loss_graph import loss_of_pass

if TYPE_CHECKING:
    from torch import Tensor

_BESIDE = 1e-3  # of the outputs' deviation: less can't be distinguished from 0
LINE = 1e-4  # off a line, of its deviation: rounding of single precision
_SLACK = 0.02  # of targets at the bounds of a function: smoothed ones, and rounding
TARGETS = ("target_mean", "target_std", "explained", "output_rms", "out_of_range")  # of a mean square


def targets(output: Tensor, gradient: Tensor, count: int, within: tuple[float, float] | None) -> Tensor:
    """`TARGETS` of rows of an output and its gradient, where the loss is the mean square of `count` differences: mean
    and deviation of the targets, which part of their variance the outputs explain, the outputs' size, and the share of
    targets out of the range that the output's function has."""
    import torch

    wide = torch.float32 if output.device.type == "mps" else torch.float64
    output = output.to(wide)
    target = output - gradient.to(wide) * (count / 2)
    away = (target - target.mean(0)).square().sum()
    nothing = output.new_full((), math.nan)
    explained = 1 - (output - target).square().sum() / away if len(target) >= 16 else nothing
    outside = nothing
    if within is not None:
        outside = ((target < within[0] - _SLACK) | (target > within[1] + _SLACK)).to(wide).mean()
    return torch.stack([target.mean(), target.std(), explained, output.square().mean().sqrt(), outside])


def undone(gradient: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The gradient of a mean square of `count` differences, from that of a multiple of it, which the loss is; and that
    multiple. NaN where the loss is not to be seen."""
    import torch

    wide = torch.float32 if gradient.device.type == "mps" else torch.float64
    loss = loss_of_pass()
    if loss is None or loss.numel() != 1:
        return torch.full_like(gradient, math.nan), gradient.new_full((), math.nan)
    value = loss.detach().reshape(()).to(gradient.device, wide)
    over = 4 * value / (count * gradient.to(wide).square().sum())
    return gradient.to(wide) * over, 1 / over


def line_of(output: Tensor, gradient: Tensor, within: float) -> Tensor:
    """The one target with which all outputs were compared by their squares; NaN where it is not one, or where outputs
    are so large beside it that targets of any kind would look like one."""
    import torch

    here, there = output - output.mean(), gradient - gradient.mean()
    slope = (here * there).sum() / here.square().sum()
    off = (there - slope * here).square().mean().sqrt()
    target = output.mean() - gradient.mean() / slope
    one = (slope > 0) & (off <= within * there.square().mean().sqrt())
    one = one & (target.abs() >= _BESIDE * here.square().mean().sqrt())
    return torch.where(one, target, output.new_full((), math.nan))
