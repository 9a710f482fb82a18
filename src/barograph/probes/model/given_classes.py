"""Which classes a model is given beside its inputs, one for each row, in the training and in evaluations.

In:   inputs of passes: whole numbers, one a row, or rows with a 1 in one column and 0 in the others.
Out:  figures for the `model` record, computed on the device; nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy

from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_CLASSES, _LEAST = 64, 3  # that are counted each by itself; columns of rows with a 1 in one of them, at least
_PASSES = 8  # of an evaluation
_ROWS = 1024  # of a pass
_FEWEST = 3  # classes of each side


class GivenClassCounts:
    """Counts the classes of one input: the first that is such."""

    def __init__(self) -> None:
        self._counts: dict[bool, Tensor] = {}  # of the training, and of evaluations: by class, and those of no class
        self._kind: tuple[int, int] | None = None  # place among the inputs, and columns
        self._passes = 0
        self._came = False

    def given(self, tensors: Iterable[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        import torch

        if (trains and not due) or (not trains and (self._kind is None or self._passes >= _PASSES)):
            return
        some = list(tensors)
        if not any(one.dim() > 1 and len(one) > 1 and one.shape[1:].numel() > _LEAST for one in some):
            return
        self._passes += not trains
        for at, one in enumerate(some):
            kind = at, int(one.shape[1]) if one.dim() == 2 else 0
            if not _may_be(one) or (self._kind is not None and kind != self._kind) or mesh_of(one):
                continue
            found = counts(one.detach()[:_ROWS])
            if self._kind is None:
                # of several such inputs the first is followed; what is none is not waited for to know that
                if one.is_floating_point() and one.device.type == "cpu" and float(found[-1]) != 0:
                    continue
                self._kind = kind
            before = self._counts.get(trains, torch.zeros_like(found))
            self._counts[trains] = found if before.device != found.device else before + found
            self._came |= not trains
            return

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        import torch

        if self._came and len({one.device for one in self._counts.values()}) == 1 and len(self._counts) == 2:
            current.put("given_classes", tuple(map(str, range(_CLASSES + 1))),
                        torch.stack([self._counts[True], self._counts[False]]))  # fmt: skip
        if self._came:
            self._counts.pop(False, None)
        self._came, self._passes = False, 0


def _may_be(tensor: Tensor) -> bool:
    import torch

    if tensor.dim() == 1:
        return tensor.dtype in (torch.int64, torch.int32) and len(tensor) > 1
    return (
        tensor.dim() == 2 and tensor.is_floating_point() and _LEAST <= tensor.shape[1] <= _CLASSES and len(tensor) > 1
    )


def counts(tensor: Tensor) -> Tensor:
    """How many rows have each class, and last how many have something else; rows of nothing but 0 are not counted."""
    import torch

    found = torch.zeros(_CLASSES + 1, dtype=torch.float32, device=tensor.device)
    if tensor.dim() == 1:
        classes = torch.where((tensor >= 0) & (tensor < _CLASSES), tensor, _CLASSES).long()
        return found.index_add_(0, classes, torch.ones_like(classes, dtype=found.dtype))
    one = ((tensor == 1).sum(1) == 1) & ((tensor != 0).sum(1) == 1)
    classes = torch.where(one, tensor.argmax(1), _CLASSES)
    return found.index_add_(0, classes, (tensor != 0).any(1).to(found.dtype))


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """Behind an evaluation: how many rows were counted in the training and in it; how many classes the training has; by
    how much those of the evaluation are higher, each of them, but for one that both may have for none, 0 where they are
    not; how many of its rows have a class that the training lacks, and how many should have one that it lacks."""
    if "given_classes" not in numbers:
        return {}
    ours, theirs = numpy.asarray(numbers["given_classes"][1], float)
    if not numpy.isfinite(ours + theirs).all() or ours[-1] or theirs[-1]:
        return {}
    mine, other = set(numpy.flatnonzero(ours).tolist()), set(numpy.flatnonzero(theirs).tolist())
    rows, count = float(ours.sum()), float(theirs.sum())
    if len(mine) < _FEWEST or not count:
        return {}
    found = {"given_rows": rows, "given_classes": float(len(mine)), "eval_given_rows": count, "eval_given_moved": 0.0}
    for none in (set[int](), *({one} for one in mine & other)):
        by = next((by for by in (1, -1) if {one + by for one in mine - none} == other - none), 0)
        new, missed = other - mine, mine - other
        if by and new and missed:
            should = float(min(ours[list(missed)])) / rows * count
            return found | {"eval_given_moved": float(by), "given_classes": float(len(mine - none)),
                            "eval_given_new": float(max(theirs[list(new)])), "eval_given_missed": should}  # fmt: skip
    return found
