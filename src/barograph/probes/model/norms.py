"""L2 norms of many tensors, each tensor read once.

In:   local tensors (`parameters.local`).
Out:  their norms as one tensor on the device; nothing waits for it.

Torch's kernels add the squares of a whole tensor in 32 bits on the CPU: of 38 million elements the norm comes out
0.27% short (measured, GPT-2's embedding). So large tensors are taken in pieces, and the pieces' squares are added
in 64 bits: 1e-5.

Weights change little from one step to the next, so `FollowedNorms` reads all of them once in `FULL` steps and in
between a sixteenth: what that part has changed by since, times sixteen. An error of 10% in the change of a
square is far below 1e-5 of the norm as long as a step moves a weight by some 1e-3 of its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import flat

if TYPE_CHECKING:
    from torch import Tensor

PIECE = 1 << 20  # elements
FULL = 10  # steps
_RUN, _EVERY = 1 << 14, 16  # on the CPU: runs of this many elements, one in `_EVERY`
_HALF_PIECE = 1 << 18  # a piece's norm comes in 16 bits: many pieces even the rounding out


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The L2 norm of each, float64 (float32 on MPS) on the first one's device; NaN and infinity go through."""
    import torch

    if not tensors:
        return torch.zeros(0, dtype=torch.float64)
    home = tensors[0].device
    wide = torch.float32 if home.type == "mps" else torch.float64
    pieces: list[Tensor] = []
    owners: list[int] = []
    for number, tensor in enumerate(tensors):
        if tensor.layout != torch.strided:
            tensor = tensor.coalesce().values() if tensor.is_sparse else tensor.values()
        if not tensor.numel():
            continue
        size = _HALF_PIECE if tensor.dtype == torch.bfloat16 else PIECE
        if tensor.device.type != "cpu" or tensor.numel() <= size:
            pieces.append(tensor)
            owners.append(number)
        else:
            parts: tuple[Tensor, ...] = torch.split(flat(tensor), size)
            pieces.extend(parts)
            owners.extend([number] * len(parts))
    result = torch.zeros(len(tensors), dtype=wide, device=home)
    if not pieces:
        return result
    each = _each(pieces)
    if len({(norm.dtype, norm.device) for norm in each}) == 1:
        column = torch.stack(each).to(home, wide, non_blocking=True)
    else:
        column = torch.stack([norm.to(home, wide, non_blocking=True) for norm in each])
    if len(owners) == len(tensors):
        return column
    if home.type == "cpu":
        return result.index_add_(0, torch.tensor(owners), column.square()).sqrt_()
    places = torch.tensor(owners, pin_memory=home.type == "cuda").to(home, non_blocking=True)
    return result.index_add_(0, places, column.square()).sqrt_()


def _each(pieces: list[Tensor]) -> list[Tensor]:
    """Norms of the pieces, in their order: one call for each kind."""
    import torch

    kinds: dict[Any, list[int]] = {}
    for number, piece in enumerate(pieces):
        kinds.setdefault((piece.dtype, piece.device), []).append(number)
    ordered: list[Any] = [None] * len(pieces)
    for (kind, device), numbers in kinds.items():
        some = [pieces[number] for number in numbers]
        if kind in (torch.float32, torch.float64) or (kind == torch.bfloat16 and device.type == "cpu"):
            results = torch._foreach_norm(some)
        elif kind in (torch.float16, torch.bfloat16):
            results = torch._foreach_norm(some, dtype=torch.float32)
        else:  # eight bits
            results = torch._foreach_norm([piece.float() for piece in some])
        if device.type == "cpu" and bool(torch.stack(results).isinf().any()):  # squares beyond what 32 bits hold?
            results = tuple(
                torch.linalg.vector_norm(piece, dtype=torch.float64) if result.isinf() else result.double()
                for piece, result in zip(some, results, strict=True)
            )
        for number, result in zip(numbers, results, strict=True):
            ordered[number] = result
    return ordered


class FollowedNorms:
    """Squared norms of weights, step by step, without reading all of them at each."""

    def __init__(self) -> None:
        self._key: tuple[Any, ...] = ()
        self._step = 0
        self._full: Any = None
        self._part: Any = None
        self._scale: Any = None

    def squares(self, tensors: Sequence[Tensor], step: int, full: bool = False) -> Tensor:
        """The squared norm of each tensor [n]. full: read all of them, as every tenth step does anyway."""

        if not tensors or any(tensor.device.type != "cpu" for tensor in tensors):
            return norms(tensors).square()  # a device reads memory some hundred times as fast
        key = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if full or key != self._key or not 0 <= step - self._step < FULL:
            self._key, self._step = key, step
            self._full, self._part = norms(tensors).square(), self._parts(tensors)
            everything: Tensor = self._full.clone()
            return everything
        result: Tensor = (self._full + (self._parts(tensors) - self._part) * self._scale).clamp_min_(0.0)
        return result

    def _parts(self, tensors: Sequence[Tensor]) -> Tensor:
        """Squared norms of what is read at each step; sets how many times as large the tensors are."""
        import torch

        pieces: list[Tensor] = []
        owners: list[int] = []
        scale = []
        for number, tensor in enumerate(tensors):
            some = _runs(tensor)
            pieces += some
            owners += [number] * len(some)
            scale.append(tensor.numel() / max(1, sum(len(item) for item in some)))
        self._scale = torch.tensor(scale, dtype=torch.float64)
        found = torch.zeros(len(tensors), dtype=torch.float64)
        return found.index_add_(0, torch.tensor(owners, dtype=torch.int64), norms(pieces).square())


def _runs(tensor: Tensor) -> list[Tensor]:
    """All of a small tensor; of a large one, runs of consecutive elements, one in `_EVERY`."""
    line = flat(tensor)
    if len(line) < _RUN * _EVERY:
        return [line]
    return [line.narrow(0, begin, _RUN) for begin in range(0, len(line) - _RUN + 1, _RUN * _EVERY)]
