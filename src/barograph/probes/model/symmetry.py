"""Units of a layer that began as copies of one another, and still are after some steps.

In:   a model's layers, before its 20th step.
Out:  a figure for the `model` record, computed where the weights are; nothing waits.

What begins with the same numbers and gets the same gradients stays the same. Layers that begin at 0 on purpose, as the
last one of a block, have units with gradients of their own, and differ after a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import local

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_STEP = 20
_LAYERS, _COLUMNS = 64, 64  # of a model, and of a weight, that are looked at
_UNITS = 4  # fewer may be alike by the data
_SAME = 1e-4  # of the largest weight: what rounding leaves


class EqualUnits:
    """Looks once."""

    def __init__(self, model: Any):
        self._model, self._steps = model, 0

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        self._steps += 1
        if self._steps != _STEP:
            return
        import torch

        weights = [weight for module in self._model.modules() if (weight := _of_units(module)) is not None][:_LAYERS]
        if weights:
            found = [_equal(local(weight.detach())).to(weights[0].device) for weight in weights]
            current.put("equal_units", ("",), torch.stack(found).sum().reshape(1))


def _of_units(module: Any) -> Any:
    """The weights of a linear layer or a convolution that has a gradient, a row a unit; None of another one."""
    made = type(module).__name__
    weight = getattr(module, "_parameters", {}).get("weight")  # that of a parametrised layer is computed
    if weight is None or not (made.endswith("Linear") or made.startswith("Conv")) or "Transpose" in made:
        return None
    return weight if weight.grad is not None and weight.dim() > 1 and len(weight) >= _UNITS else None


def _equal(weight: Tensor) -> Tensor:
    some = weight.reshape(len(weight), -1)[:, :_COLUMNS]
    return ((some.amax(0) - some.amin(0)).amax() <= _SAME * some.abs().amax()).to(some.dtype)
