"""Whether a model's state is carried from each step into the next, as of a recurrent network that reads streams.

In:   what recurrent layers, and the model itself, are given beside their first input, and what they gave back beside
      their first output, in passes with gradients.
Out:  `state_carried` for the `model` record: 1 where the first pass of a step was given, without a graph, what the last
      one of the step before gave back, and not all of it 0. Values are compared on the device; nothing waits.

Batches of such a training go on where those before ended: their order is meant, and is what the state is for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.activations import dense_tensors, parts_of
from barograph.probes.model.guest import after, before

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_LAYERS = 2  # recurrent layers that are looked at
_ELEMENTS = 1 << 16  # of a state, at most
_LOOKS = 12  # steps that are compared, of four times as many at most


class CarriedState:
    """Hooks on the model's first recurrent layers, and on itself."""

    def __init__(self, model: Any):
        import torch

        kinds = (torch.nn.RNNBase, torch.nn.RNNCellBase)
        layers = [module for module in model.modules() if isinstance(module, kinds)][:_LAYERS]
        self._handles = [
            handle
            for module in dict.fromkeys([model, *layers])
            for handle in (before(module, self._began, with_kwargs=True), after(module, self._ended))
        ]
        self._steps = self._looks = 0
        self._kept: dict[int, tuple[int, list[Tensor]]] = {}  # by layer: the step, and what it gave back last
        self._same: list[Tensor] = []  # of this step

    def _began(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        import torch

        step, kept = self._kept.get(id(module), (-1, []))
        if step != self._steps - 1 or not torch.is_grad_enabled():
            return
        del self._kept[id(module)]
        with torch.no_grad():
            beside = [one for one in _states((*given, *named.values())) if one.grad_fn is None]
            self._same += [
                (one == state).all() & (state != 0).any()
                for one in beside for state in kept if one.shape == state.shape and one.device == state.device
            ]  # fmt: skip

    def _ended(self, module: Any, given: Any, output: Any) -> None:
        import torch

        if torch.is_grad_enabled():
            whole = [output] if isinstance(module, torch.nn.RNNCellBase) else []
            states = _states((None, *whole) if whole else parts_of(output))
            with torch.no_grad():  # of the graph alone: a mask may be handed through
                self._kept[id(module)] = self._steps, [one.clone() for one in states if one.requires_grad]

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        import torch

        self._steps += 1
        same, self._same = self._same, []
        if same:
            self._looks += 1
            home = same[0].device
            current.put("state_carried", ("",), torch.stack([one.to(home) for one in same]).any().reshape(1))
        if self._looks >= _LOOKS or self._steps >= 4 * _LOOKS:
            self.close()

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._kept = [], {}


def _states(parts: Any) -> list[Tensor]:
    """Small tensors of numbers with several elements, behind the first part."""
    found: list[Tensor] = []
    with contextlib.suppress(Exception):
        found = [one for one in dense_tensors(list(parts)[1:])
                 if one.is_floating_point() and 1 < one.numel() <= _ELEMENTS]  # fmt: skip
    return found
