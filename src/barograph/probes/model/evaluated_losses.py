"""What the cross-entropies come to that an evaluation computes, whatever is logged of them.

In:   torch's cross-entropies that are called behind passes of an evaluation, with what they returned.
Out:  figures for the `model` record, computed on the device; nothing waits.

Of a mean the result is kept, of a sum its part of each target that counts. Weights of classes, smoothed labels, targets
that are shares and results by rows have a mean of their own: where there is any, or two of them are behind one pass, or
a pass has something behind it that was not seen, nothing is recorded of the evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("loss", "loss_even", "loss_least", "loss_most", "targets")
_NAMES = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
_KINDS = ("cross_entropy", "nll_loss")
_MOST = 512


class EvaluatedLosses:
    """Keeps them until a step begins."""

    def __init__(self) -> None:
        self._found: list[Tensor] = []  # of each a loss, and how many targets it is the mean of
        self._behind = 0  # this pass
        self._is_whole = True

    def passed(self, seen: bool) -> None:
        """A pass is over. seen: whether what comes behind it is."""
        self._behind = 0
        self._is_whole &= seen

    def ended(self) -> None:
        """What comes behind this pass is not seen any more."""
        self._is_whole &= self._behind > 0

    def gave(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any], result: Any) -> None:
        """A function has returned."""
        if getattr(function, "__name__", "") not in _KINDS or result.requires_grad:
            return
        import torch

        given = {**dict(zip(_NAMES, arguments, strict=False)), **named}
        scores, target, reduction = given["input"], given["target"], given.get("reduction", "mean")
        kept = not (target.is_floating_point() or mesh_of(scores)) and reduction in ("mean", "sum") and not result.dim()
        kept = kept and all(given.get(name) is None for name in ("weight", "size_average", "reduce"))
        self._behind += 1
        self._is_whole &= kept and not given.get("label_smoothing") and self._behind == 1 and len(self._found) < _MOST
        if self._is_whole:
            with torch.no_grad():
                count = (target.detach() != given.get("ignore_index", -100)).sum()
                loss = result.detach().float()
                loss = loss / count.clamp_min(1) if reduction == "sum" else loss
                self._found.append(torch.stack([torch.where(count > 0, loss, 0.0), count.to(loss.dtype)]))

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        found, whole = self._found, self._is_whole
        self._found, self._behind, self._is_whole = [], 0, True
        if found and whole and len({one.device for one in found}) == 1:
            current.figures["evaluated_losses"] = float(len(found))
            current.put("evaluated_losses", FIGURES, figures(found))


def figures(found: Sequence[Tensor]) -> Tensor:
    """`FIGURES` of losses and counts: the mean over targets, that of the losses, the least and the greatest of these;
    and how many targets there are."""
    import torch

    losses, counts = torch.stack(list(found), 1)
    some = counts > 0
    weighed = (losses * counts).sum() / counts.sum().clamp_min(1)
    even = losses.sum() / some.sum().clamp_min(1)
    least, most = torch.where(some, losses, math.inf).amin(), torch.where(some, losses, -math.inf).amax()
    return torch.stack([weighed, even, least, most, counts.sum()])


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """Figures of an evaluation's losses that are finite, when they have arrived."""
    if "evaluated_losses" not in numbers:
        return {}
    names, values = numbers["evaluated_losses"]
    named = zip(names, values[0].tolist(), strict=True)
    return {f"evaluated_{name}": value for name, value in named if math.isfinite(value)}
