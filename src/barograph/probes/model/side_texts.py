"""Texts that a model is asked for beside its answer: a second output whose targets are tokens of its inputs.

In:   the output of a pass, tokens that the model was given or that it embedded; the gradient of the second output.
Out:  by how many places its targets are ahead of its inputs, and whether they are beside those that were masked, as
      `texts` has it; computed on the device, nothing waits.

A classifier may be asked for the next event as well, two towers for words that were hidden: what is said of a model's
output is said of the first one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model import softmaxes, texts
from barograph.probes.model.activations import parts_of
from barograph.probes.model.guest import Guest
from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("shift", "masked_beside")
_ROWS = 64  # of a batch, whose tokens are at hand; places of texts that are looked at
_HALF = 0.5  # of all places, at most, have targets where tokens were hidden
_WIDTH = 8  # tokens of a vocabulary, at least


class SideTexts:
    """Looks at the second output of one pass of some steps."""

    def __init__(self) -> None:
        self._found: Tensor | None = None

    def follow(
        self, side: Any, given: Sequence[Tensor], fed: Sequence[bool], timed: Callable[[Any], Callable[..., None]]
    ) -> None:
        """Wait for the gradient of `side` [rows, places, tokens]. given, fed: as `texts.figures` has them."""
        import torch

        exact = side.dtype in (torch.float32, torch.float64)
        stride = max(1, side.shape[0] * side.shape[1] // _ROWS)
        while math.gcd(stride, side.shape[1]) > 1:  # else a few places of each row alone
            stride -= 1
        rows = side.detach().flatten(0, 1)[::stride][:_ROWS].clone()

        def arrived(gradient: Tensor) -> None:
            with contextlib.suppress(Exception), torch.no_grad():
                flat = gradient.flatten(0, 1)[::stride][:_ROWS]
                wide = torch.float32 if flat.device.type == "mps" else torch.float64
                within = softmaxes.EXACT if exact else softmaxes.HALF
                found = softmaxes.find(rows.to(wide), flat.to(wide), within)
                shift = texts.figures(given, fed, gradient, found, False)[0]["target_shift"]
                beside = torch.full_like(shift, math.nan)
                # others than the first may be the targets themselves: they count where they are inputs for sure
                for one in (one for at, one in enumerate(given) if not at or fed[at]):
                    beside = torch.where(beside.isnan(), texts.masked_beside(one, gradient, found), beside)
                # a text most of whose next tokens are asked for is written anew
                anew = (shift == 1) & ((gradient.amin(-1) < found.below).to(shift).mean() > _HALF)
                self._found = torch.stack([shift, torch.where(anew, math.nan, beside)])

        side.register_hook(Guest(timed(arrived)))

    def put(self, current: ModelRound) -> None:
        """A step begins: what its passes have shown."""
        if self._found is not None:
            current.put("side", FIGURES, self._found)
        self._found = None


def text_beside(output: Any, answer: Tensor, tokens: Sequence[Tensor]) -> Tensor | None:
    """Of several outputs the one of a text as long as these tokens; None where the answer itself is of one."""
    if answer.dim() > 2 or not tokens:
        return None
    shapes = {tuple(one.shape) for one in tokens}
    for part in parts_of(output):
        if part is answer or getattr(part, "ndim", 0) != 3 or not part.requires_grad or mesh_of(part) is not None:
            continue
        if part.shape[2] >= _WIDTH and (min(len(part), _ROWS), part.shape[1]) in shapes:
            found: Tensor = part
            return found
    return None
