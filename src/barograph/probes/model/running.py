"""Whether running statistics move: those of batch norm, and a running mean and deviation of a part's own.

In:   a torch model.
Out:  figures for the `model` record; nothing waits for a device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any

from barograph.probes.autograd import is_here
from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_LAYERS = 4  # of batch norm whose statistics are compared
_EVERY = 10  # steps between two comparisons
_UNSET = 3  # steps in which statistics of layers in evaluation mode are looked at
_COMPARED = 1 << 14  # elements of a buffer, at most


class BatchNormStatistics:
    """Running statistics of some layers of batch norm, compared every tenth step."""

    def __init__(self, model: Any):
        layers = [
            module for module in model.modules()
            if "BatchNorm" in type(module).__name__
            and "Frozen" not in type(module).__name__
            and getattr(module, "running_mean", None) is not None
        ]  # fmt: skip
        self._layers = layers[:: max(1, len(layers) // _LAYERS)][:_LAYERS]
        self._kept: list[Any] = []
        self._made = _as_made(self._layers)
        self._steps = self._unset = self._trained = self._unseen = self._gather = 0
        self._pairs = [pair for module in model.modules() if module not in layers for pair in _pairs(module)][
            : 2 * _LAYERS
        ]

    def put(self, current: ModelRound, trains: bool, seen: bool = True) -> None:
        """A step begins. trains: whether its passes with gradients were in training mode. seen: whether any were."""
        self._trained, self._unseen = self._trained + trains, self._unseen + (not seen)
        if self._pairs and trains and self._trained % _EVERY == 0 and self._trained > _EVERY:
            self._as_begun(current)
        if not self._layers:
            return
        if trains and self._trained % _EVERY == 1:
            self._of_frozen(current)
        if trains and self._unset < _UNSET and not any(layer.training for layer in self._layers):
            self._unset += 1
            self._as_made(current)
        trains = trains and all(layer.training for layer in self._layers)
        if trains and self._made is not None:
            self._begun(current, self._made)
        self._made = self._made if not seen and self._unseen < _UNSET else None
        self._steps = self._steps + 1 if trains else 0
        if not trains:
            self._kept = []
        elif self._steps % _EVERY == 1:
            import torch

            now = [item for layer in self._layers for item in (layer.running_mean, layer.running_var)]
            if self._kept:
                same = [(kept == item).all() for kept, item in zip(self._kept, now, strict=True)]
                current.put("stale_statistics", ("",), torch.stack([item.to(same[0].device) for item in same]).all())
            self._kept = [item.clone() for item in now]

    def _as_begun(self, current: ModelRound) -> None:
        """Whether a part's own running mean and deviation, both in training mode, are 0 and 1 still."""
        import torch

        made = [
            (part._buffers[zero] == 0).all() & (part._buffers[one] == 1).all()
            for part, zero, one in self._pairs if part.training
        ]  # fmt: skip
        if made:
            current.put("unset_buffers", ("",), torch.stack([item.to(made[0].device) for item in made]).any())

    def _of_frozen(self, current: ModelRound) -> None:
        """How many layers that are frozen gather statistics, where that has changed."""
        before, self._gather = (
            self._gather,
            sum(
                layer.training and layer.weight is not None and not layer.weight.requires_grad for layer in self._layers
            ),
        )
        if self._gather != before:
            current.figures["frozen_norms_gather"] = float(self._gather)

    def _as_made(self, current: ModelRound) -> None:
        """The layers are in evaluation mode, and the model is not: whether their statistics are as torch makes them."""
        made = _as_made(self._layers)
        if made is not None:
            current.put("unset_statistics", ("",), made)

    def _begun(self, current: ModelRound, made: Any) -> None:
        """The first step whose passes are seen: of how many batches a step statistics are that were as torch makes them
        when the watch began, `made`; 0 where they were others."""
        import torch

        counts = [layer.num_batches_tracked for layer in self._layers]
        if all(isinstance(count, torch.Tensor) for count in counts):
            most = torch.stack([count.to(made.device) for count in counts]).amax()
            current.put("begun_statistics", ("",), most * made / (1 + self._unseen))


def _as_made(layers: Sequence[Any]) -> Any:
    """Whether running statistics of layers are as torch makes them; None where they can't be read, or not yet."""
    import torch

    with contextlib.suppress(Exception):  # layers that learn their size from their first input
        held = [(item, number) for layer in layers
                for item, number in ((layer.running_mean, 0), (layer.running_var, 1))]  # fmt: skip
        if held and all(is_here(item) and not item.is_meta and mesh_of(item) is None for item, _ in held):
            made = [(item == number).all() for item, number in held]
            return torch.stack([item.to(made[0].device) for item in made]).all()
    return None


def _pairs(module: Any) -> list[tuple[Any, str, str]]:
    """Of a part other than torch's layers: itself, and the names of two buffers of one shape, as a running mean and
    deviation are."""
    if type(module).__module__.startswith("torch."):
        return []
    shapes = {
        name: item.shape for name, item in module._buffers.items()
        if item is not None and item.is_floating_point() and not item.is_meta and 1 < item.numel() <= _COMPARED
        and mesh_of(item) is None
    }  # fmt: skip
    return [(module, one, other) for one, other in permutations(shapes, 2) if shapes[one] == shapes[other]][:_LAYERS]
