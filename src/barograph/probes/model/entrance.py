"""What pictures look like where they enter a model: at its first layer with weights.

In:   layers that run in a pass, in their order, with what they are given and give.
Out:  figures for the `model` record, computed on the device; nothing waits.

What a model does with its inputs before its first layer, such as a division by 255, is done by then. Where that layer's
output goes whole into a normalisation, which takes any scale out of it, there are no figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("picture_low", "picture_high", "picture_mean", "picture_std")
MOMENTS = ("mean", "std", "low", "high")  # of a pass's inputs; the last two of pictures
_CHANNELS = (1, 3, 4)
_ROWS = 64
_NORMS = ("BatchNorm", "LayerNorm", "InstanceNorm", "RMSNorm")  # a residual block's group norm leaves the rest as it is


class Entrance:
    """Listens to one pass at a time."""

    def __init__(self) -> None:
        self._found: Tensor | None = None
        self._output: Any = None  # of the first layer, while the next one is waited for
        self._entered = False

    def began(self) -> None:
        """A pass."""
        self._found, self._output, self._entered = None, None, False

    def ran(self, module: Any, given: Any, output: Any) -> None:
        """A layer without parts has run."""
        tensor: Any = given[0] if given else None
        if self._entered:
            if self._output is not None and any(name in type(module).__name__ for name in _NORMS):
                self._found = None if tensor is self._output else self._found
            self._output = None
        elif getattr(getattr(module, "weight", None), "dim", lambda: 0)() > 1 and hasattr(tensor, "dim"):
            self._entered, self._output = True, output
            if _are_pictures(tensor) and not mesh_of(tensor):
                self._found = figures(tensor)

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        if self._found is not None:
            current.put("entrance", FIGURES, self._found)
        self.began()


def _are_pictures(tensor: Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_floating_point() and tensor.shape[1] in _CHANNELS


def moments(given: Tensor, values: Tensor) -> Tensor:
    """`MOMENTS` of some of the numbers that a model was given."""
    import torch

    bounds = [values.amin(), values.amax()] if _are_pictures(given) else []
    return torch.stack([values.mean(), values.std(), *bounds])


def figures(pictures: Tensor) -> Tensor:
    """`FIGURES` of pictures [rows, channels, height, width]: the least and the largest number, the mean, and the
    deviation within a channel."""
    import torch

    with torch.no_grad():
        some = local(pictures.detach())[:_ROWS].float()
        return torch.stack([some.amin(), some.amax(), some.mean(), some.std((0, 2, 3)).mean()])
