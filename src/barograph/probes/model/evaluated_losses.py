"""What the cross-entropies come to that an evaluation computes, whatever is logged of them.

In:   torch's cross-entropies that are called behind passes of an evaluation, with what they returned.
Out:  figures for the `model` record, computed on the device; nothing waits.

Of a mean the result is kept, of a sum its part of each target that counts, and so of results by rows that are added up,
or averaged, as they are. Weights of classes, or of rows, smoothed labels and targets that are shares have a mean of
their own: where there is any, or two of them are behind one pass, or a pass has something behind it that was not seen,
nothing is recorded of the evaluation.
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
        self._rows: list[Tensor] = []  # losses by rows that are not added up yet, under several names
        self._counted: Any = None
        self._is_whole = True

    def passed(self, seen: bool) -> None:
        """A pass is over. seen: whether what comes behind it is."""
        self._is_whole &= seen and not self._rows
        self._behind, self._rows = 0, []

    def ended(self) -> None:
        """What comes behind this pass is not seen any more."""
        self._is_whole &= self._behind > 0 and not self._rows

    def gave(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any], result: Any) -> None:
        """A function has returned."""
        name = getattr(function, "__name__", "")
        if self._rows and any(one is row for one in arguments for row in self._rows):
            self._taken(name, arguments, named, result)
        if name not in _KINDS or result.requires_grad:
            return
        given = {**dict(zip(_NAMES, arguments, strict=False)), **named}
        target, reduction = given["target"], given.get("reduction", "mean")
        kept = not (target.is_floating_point() or mesh_of(given["input"])) and reduction in ("mean", "sum", "none")
        kept = kept and all(given.get(one) is None for one in ("weight", "size_average", "reduce"))
        self._behind += 1
        self._is_whole &= kept and not given.get("label_smoothing") and self._behind == 1 and len(self._found) < _MOST
        if self._is_whole:
            count = (target.detach() != given.get("ignore_index", -100)).sum()
            if reduction == "none" and result.dim():
                self._rows, self._counted = [result], count
            else:
                self._keep(result, count, reduction == "mean")

    def _taken(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any], result: Any) -> None:
        """Losses of rows went into a function: those that are weighed, or left out, have another mean."""
        if name in ("detach", "float", "double"):
            self._rows.append(result)
        elif name in ("sum", "mean") and len(arguments) == 1 and not named:
            self._keep(self._rows[0].detach().sum(), self._counted, False)
            self._rows = []
        elif name not in ("__get__", "dim", "size", "numel", "__len__"):
            self._is_whole, self._rows = False, []

    def _keep(self, loss: Tensor, count: Any, averaged: bool) -> None:
        import torch

        with torch.no_grad():
            loss = loss.detach().float()
            loss = loss if averaged else loss / count.clamp_min(1)
            self._found.append(torch.stack([torch.where(count > 0, loss, 0.0), count.to(loss.dtype)]))

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        found, whole = self._found, self._is_whole and not self._rows
        self._found, self._behind, self._is_whole, self._rows = [], 0, True, []
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
