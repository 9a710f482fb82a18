"""Gradients that an optimizer's step uses although its step before has used them: nothing has come since.

In:   an optimizer before and after its steps; how many backward passes there were between.
Out:  a figure for the `model` record: 1 where a step used the gradients of the step before once more.

Tensors count their changes in place. The next step uses gradients again where all of them are the tensors that they
were, none has changed, and no backward pass came between. One of few elements is kept, too: it has the same numbers
then. Gradients that are put there by hand have others, and those that were cleared are gone or 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import Owned, has_small_gradient

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_LEAST, _MOST = 2, 4096  # elements of the gradient
_STEPS = 200  # that are looked at, of a launch


class SpentGradient:
    """Follows the first of the watched optimizers."""

    def __init__(self) -> None:
        # the optimizer; what tells its gradients; which parameter, its gradient, and what that held
        self._kept: tuple[int, list[tuple[int, int]], int, Tensor, Tensor] | None = None
        self._left = _STEPS

    def ended(self, optimizer: Any, own: Owned) -> None:
        """Its step has ended."""
        if self._kept is not None or self._left <= 0:
            return
        self._left -= 1
        few = [at for at, item in enumerate(own.parameters) if has_small_gradient(item, _LEAST, _MOST)]
        if few:
            chosen = min(few, key=lambda at: own.parameters[at].grad.numel())
            alias = own.parameters[chosen].grad.detach()  # it counts the same changes
            self._kept = id(optimizer), _marks(own), chosen, alias, alias.clone()

    def begins(self, current: ModelRound, optimizer: Any, own: Owned) -> None:
        """Its next step begins."""
        if self._kept is None or self._kept[0] != id(optimizer):
            return
        (_, marks, chosen, alias, held), self._kept = self._kept, None
        gradient: Any = own.parameters[chosen].grad if chosen < len(own.parameters) else None
        same = gradient is not None and gradient.data_ptr() == alias.data_ptr() and marks == _marks(own)
        if same and not current.backwards:
            current.put("spent", ("",), (held.eq(gradient).all() & held.any()).reshape(1))


def _marks(own: Owned) -> list[tuple[int, int]]:
    """What tells gradients, and how often each was changed."""
    return [(id(item.grad), item.grad._version) for item in own.parameters if item.grad is not None]


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What is recorded of a step, when it has arrived."""
    return {"gradient_again": 1.0} if "spent" in numbers and numbers["spent"][1].any() else {}
