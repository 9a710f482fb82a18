"""Copies of weights that are to hold more of them than sixteen bits, and hold no more.

In:   the copies that an optimizer steps, and the weights of sixteen bits that they belong to.
Out:  a figure for the `model` record: 1 where all that is looked at of a copy in 32 bits is a number of sixteen, though
      it is another one than a look before.

A copy begins as what the weights are. From the first step on its numbers have more places than theirs; where they never
have, the weights are read back into it, and steps below their last place are lost. Nothing is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import mesh_of, spread

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_ELEMENTS = 2048  # of one copy
_EVERY, _LOOKS = 8, 12  # steps from look to look, and looks


class RoundedCopies:
    """Looks at one copy, the largest, now and then."""

    def __init__(self) -> None:
        self._steps = self._looks = 0
        self._before: tuple[int, Tensor] | None = None  # which copy, and what was seen of it

    def begins(self, current: ModelRound, copies: Sequence[Any], weights: Sequence[Any]) -> None:
        """A step of an optimizer begins. weights: what these are copies of, in their order."""
        import torch

        self._steps += 1
        if (self._steps - 1) % _EVERY or self._looks >= _LOOKS:
            return
        short = (torch.bfloat16, torch.float16)
        pairs = [
            (copy, weight.dtype) for copy, weight in zip(copies, weights, strict=True)
            if copy.dtype == torch.float32 and weight.dtype in short and mesh_of(copy) is None
        ]  # fmt: skip
        if not pairs:
            return
        self._looks += 1
        copy, kind = max(pairs, key=lambda one: one[0].numel())
        now, before = spread(copy, _ELEMENTS).clone(), self._before
        self._before = id(copy), now
        if before is not None and before[0] == id(copy) and before[1].shape == now.shape:
            rounded = now.to(kind).float() == now
            current.put("copies_rounded", ("",), (rounded.all() & (now != before[1]).any()).long().reshape(1))
