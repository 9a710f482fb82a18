"""Whether evaluations run with adapters that are switched off.

In:   an adapted module and the frozen layer within it, called in the training and in evaluations; or an adapter that is
      a module of its own, and adds to what it is given.
Out:  `AdaptersOff`: of an evaluation's passes, how many gave what the layer alone gives, or what the adapter is given,
      and how many there were; computed on the device; nothing waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barograph.probes.model.guest import after
from barograph.probes.model.parameters import spread

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_COMPARED = 64  # elements of an output
_WEIGHTS = 256  # of the layer's weight: one that an adapter was merged into is another
_PASSES = 8  # of an evaluation


class AdaptersOff:
    """Listens to one adapted module. A pass is of an evaluation where it has no gradients and the module is not set to
    train, and counts when a pass of the training before it has had another output than the layer's own. Of the
    training's passes it looks at the first, the second, the fourth and so on: the layer is frozen. An adapter without
    a layer is compared with what it is given, where that has its output's shape."""

    def __init__(self, module: Any = None, layer: Any = None) -> None:
        self._layer = layer
        self._own: Tensor | None = None  # of the layer's own output, in the pass that runs
        self._trained: tuple[Tensor, Tensor] | None = None  # whether outputs differ, and the layer's weight
        self._off: Tensor | None = None
        self._passes, self._count, self._due = 0, 0, False
        self._handles = [] if module is None else [after(module, self._went)]
        if layer is not None:
            self._handles.append(after(layer, self._inside))

    def _inside(self, layer: Any, given: Any, output: Any) -> None:
        import torch

        trains = torch.is_grad_enabled()
        self._count += trains
        self._due = not self._count & (self._count - 1) if trains else self._passes < _PASSES
        self._own = spread(output, _COMPARED).clone() if self._due else None

    def _went(self, module: Any, given: Any, output: Any) -> None:
        """The module was called."""
        import torch

        if self._layer is None and _adds(given, output):
            self._inside(module, given, given[0])
        own, self._own = self._own, None
        if own is None:
            return
        alike = (spread(output, _COMPARED) == own).all()
        weight = own if self._layer is None else spread(self._layer.weight, _WEIGHTS)
        if torch.is_grad_enabled():
            self._trained = ~alike, weight.clone()
        elif not module.training and self._trained is not None:
            differs, before = self._trained
            same = alike if self._layer is None else (weight == before).all()
            off = (alike & differs & same).float()
            self._off, self._passes = off if self._off is None else self._off + off, self._passes + 1

    def put(self, current: ModelRound) -> None:
        """A step begins: `adapters_off`, behind an evaluation."""
        if self._off is not None:
            current.put("adapters_off", ("",), (self._off / self._passes).reshape(1))
        self._off, self._passes = None, 0

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _adds(given: Any, output: Any) -> bool:
    """Whether a module has one input, and an output of its shape."""
    shapes = [getattr(one, "shape", None) for one in (*given, output)]
    return len(shapes) == 2 and shapes[0] is not None and shapes[0] == shapes[1]
