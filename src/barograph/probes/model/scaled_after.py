"""Gradients that are scaled behind the optimizer's step, which no longer asks for them.

In:   an optimizer before and after its steps.
Out:  a figure for the `model` record: by what its gradients were multiplied since the step before ended.

One gradient of few elements is kept, on the CPU, until the next step begins; a tensor counts its changes in place. If
it has changed, and what it holds is a multiple of what it held, but for rounding, something has scaled it. Zeroed,
overwritten, or added to, it is no such multiple, or one by 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import Owned, has_small_gradient

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_LEAST, _MOST = 8, 4096  # elements of the gradient
_STEPS = 100  # that are looked at, of a launch
_EXACT = 1e-5  # of the largest element: a product rounds
_SAME = 0.999  # what is scaled by more has hardly changed
_HALF = 1e-3  # greatest smallest step of a number's precision


class ScaledAfter:
    """Follows the first of the watched optimizers."""

    def __init__(self) -> None:
        self._kept: tuple[int, Tensor, Tensor, int] | None = None  # optimizer; gradient; what it held; its changes
        self._left = _STEPS

    def ended(self, optimizer: Any, own: Owned) -> None:
        """Its step has ended."""
        if self._kept is not None or self._left <= 0:
            return
        self._left -= 1
        few = [item.grad for item in own.parameters if _can_be_kept(item)]
        if few:
            one = min(few, key=lambda gradient: gradient.numel())
            alias = one.detach()  # it counts the same changes, and lets the gradient itself go
            self._kept = id(optimizer), alias, alias.clone(), alias._version

    def begins(self, current: ModelRound, optimizer: Any) -> None:
        """Its next step begins."""
        if self._kept is None or self._kept[0] != id(optimizer):
            return
        (_, gradient, held, changes), self._kept = self._kept, None
        if gradient._version == changes:
            return
        square = float(held.square().sum())
        factor = float((gradient * held).sum()) / square if square > 0 else 0.0
        apart = float((gradient - factor * held).abs().amax())
        if 0 < factor < _SAME and apart <= _EXACT * factor * float(held.abs().amax()):
            current.figures["scaled_after"] = factor


def _can_be_kept(parameter: Any) -> bool:
    import torch

    if not has_small_gradient(parameter, _LEAST, _MOST):
        return False
    return parameter.grad.device.type == "cpu" and torch.finfo(parameter.grad.dtype).eps < _HALF
