"""Update ratios: how far an optimizer's step moved each weight, against the weight's own size.

In:   the parameters right before and right after a step.
Out:  |ΔW| and |W| (before the step) of each tensor, on the device; nothing waits for it.

`before` keeps what `after` is compared with. Whole tensors are kept, the smallest first, while they fit the
memory limit; of a larger one a sample of every k-th element, whose norms are scaled by sqrt(k). The relative
standard error of a sampled norm is ½ · sqrt((κ − 1) / n) for n elements whose kurtosis is κ: 0.3% at
n = 65,536 for normally distributed updates. k shares no factor with the length of a row, so every
column and every row is met.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.probes.model.norms import norms
from barograph.probes.model.parameters import flat, local

if TYPE_CHECKING:
    from torch import Tensor

SAMPLE = 1 << 16  # elements of a tensor that does not fit
_LEAST = 1 << 10
_PIECE = 1 << 18  # elements: 1 MB, which stays in the cache between its two readings


class Updates(NamedTuple):
    """Columns [n], in the order of the names: squares of |ΔW| and of |W| before the step. Local shards.

    `sampled`: names of those of which a part was compared.
    """

    names: tuple[str, ...]
    update_squares: Tensor
    weight_squares: Tensor
    sampled: frozenset[str] = frozenset()


def strides(sizes: Sequence[tuple[int, int, int]], limit: int) -> list[int]:
    """Every how many elements a tensor is kept, 1 for all; for (elements, bytes an element, row length).

    The total stays within `limit` bytes, save that at least one element of each tensor is kept.
    """
    result = [1] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda item: sizes[item][0] * sizes[item][1])
    reserved = sum(min(elements, _LEAST) * width for elements, width, _ in sizes)  # a small sample of each
    left = limit
    for place, number in enumerate(order):
        elements, width, row = sizes[number]
        reserved -= min(elements, _LEAST) * width
        if elements * width <= left - reserved:
            left -= elements * width
            continue
        room = left // (len(order) - place) // width
        kept = max(1, min(elements, SAMPLE, room))
        stride = -(-elements // kept)
        while stride > 1 and row > 1 and math.gcd(stride, row) > 1:
            stride += 1
        result[number] = stride
        left = max(0, left - -(-elements // stride) * width)
    return result


class UpdateProbe:
    """Measures updates within a memory limit. One `before` and one `after` a step."""

    def __init__(self, limit_bytes: int):
        self.limit = limit_bytes
        self.bytes = 0  # held at present
        self._plan: tuple[Any, list[int]] = ((), [])
        self._kept: list[Tensor] = []
        self._weights: Tensor | None = None
        self._names: tuple[str, ...] = ()
        self._parameters: tuple[Any, ...] = ()

    def _sources(self, parameters: Sequence[Any]) -> list[Tensor]:
        tensors = [flat(local(parameter)) for parameter in parameters]
        key = tuple((tensor.numel(), tensor.dtype) for tensor in tensors)
        if self._plan[0] != key:
            rows = [int(parameter.shape[-1]) if parameter.dim() else 1 for parameter in parameters]
            sizes = [(len(tensor), tensor.element_size(), row) for tensor, row in zip(tensors, rows, strict=True)]
            self._plan = (key, strides(sizes, self.limit))
        return [tensor[::stride] for tensor, stride in zip(tensors, self._plan[1], strict=True)]

    def before(self, names: tuple[str, ...], parameters: tuple[Any, ...]) -> None:
        """Keep the weights, or a sample of them, until `after`."""
        import torch

        sources = self._sources(parameters)
        self._names, self._parameters = names, parameters
        fitting = len(self._kept) == len(sources) and all(
            kept.shape == source.shape and kept.dtype == source.dtype and kept.device == source.device
            for kept, source in zip(self._kept, sources, strict=True)
        )
        if not fitting:
            self._kept = [torch.empty_like(source, memory_format=torch.contiguous_format) for source in sources]
            self.bytes = sum(kept.numel() * kept.element_size() for kept in self._kept)
        self._weights = _together(self._kept, sources, _copy)

    def after(self) -> Updates | None:
        """The update since `before`; None if there was none, or if a parameter was given other memory's shape."""
        import torch

        weights, self._weights = self._weights, None
        if weights is None:
            return None
        sources = self._sources(self._parameters)
        if any(kept.shape != source.shape for kept, source in zip(self._kept, sources, strict=True)):
            self._kept, self.bytes = [], 0
            return None
        moved = _together(self._kept, sources, _subtract)
        scale = torch.tensor(
            [source.numel() and len(flat(local(parameter))) / len(source)
             for source, parameter in zip(sources, self._parameters, strict=True)],
            dtype=moved.dtype,
        ).to(moved.device, non_blocking=True)  # fmt: skip
        sampled = frozenset(name for name, stride in zip(self._names, self._plan[1], strict=True) if stride > 1)
        updates = Updates(self._names, moved.square() * scale, weights.square() * scale, sampled)
        if self._kept and self._kept[0].device.type != "cpu":
            self._kept, self.bytes = [], 0  # the device's allocator gives it back at once; a CPU pages it in anew
        self._parameters = ()
        return updates

    def drop(self) -> None:
        """Forget what is held."""
        self._kept, self._weights, self._parameters, self.bytes = [], None, (), 0


def _copy(kept: list[Tensor], sources: list[Tensor]) -> None:
    import torch

    torch._foreach_copy_(kept, sources, non_blocking=True)


def _subtract(kept: list[Tensor], sources: list[Tensor]) -> None:
    import torch

    torch._foreach_sub_(kept, sources)


def _together(
    kept: list[Tensor], sources: list[Tensor], change: Callable[[list[Tensor], list[Tensor]], None]
) -> Tensor:
    """Change what is kept by the sources, and give its norms; on the CPU piece by piece, each read once."""
    import torch

    if not kept:
        return norms(kept)
    if kept[0].device.type != "cpu":
        change(kept, sources)
        return norms(kept)
    found = torch.empty(len(kept), dtype=torch.float64)
    small: list[int] = []
    for number, (mine, source) in enumerate(zip(kept, sources, strict=True)):
        if len(mine) <= _PIECE:
            small.append(number)
            continue
        squares = torch.zeros(1, dtype=torch.float64)
        for piece, part in zip(torch.split(mine, _PIECE), torch.split(source, _PIECE), strict=True):
            change([piece], [part])
            squares += norms([piece]).square()
        found[number] = squares[0]
    if small:
        some = [kept[number] for number in small]
        change(some, [sources[number] for number in small])
        found[torch.tensor(small)] = norms(some).square()
    return found.sqrt_()
