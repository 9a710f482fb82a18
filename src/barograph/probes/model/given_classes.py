"""Which classes a model is given beside its inputs, one or a few for each row, in the training and in evaluations.

In:   inputs of passes: whole numbers, one a row or a few, or rows with a 1 in one column and 0 in the others.
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

Counts = numpy.ndarray[Any, numpy.dtype[numpy.float64]]
_CLASSES, _LEAST = 64, 3  # that are counted each by itself; columns of rows with a 1 in one of them, at least
_PASSES = 8  # of an evaluation
_ROWS, _INPUTS = 1024, 3  # of a pass; inputs that are followed, at most
_FEWEST = 3  # classes of each side
_COLUMNS = 4  # of a table of whole numbers beside an input of as many rows, at most: classes of as many kinds


class GivenClassCounts:
    """Counts the classes of each input that is such: times are whole numbers, too, and stand ahead of classes."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[bool, Tensor]] = {}  # by place: of the training, and of evaluations
        self._kinds: dict[int, int] = {}  # columns, by place
        self._lengths: dict[int, Tensor] = {}  # whether all are lengths of the rows beside them, by place
        self._tables: dict[int, dict[bool, Tensor]] = {}  # counts of each column, by place
        self._passes = 0
        self._came = False

    def given(self, tensors: Iterable[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        known = self._kinds or self._tables
        if (trains and not due) or (not trains and (not known or self._passes >= _PASSES)):
            return
        some = list(tensors)
        if not any(one.dim() > 1 and len(one) > 1 and one.shape[1:].numel() > _LEAST for one in some):
            return
        self._passes += not trains
        for at, one in enumerate(some):
            if _may_be(one) and not mesh_of(one):
                self._count(at, one, trains, some)
            elif _is_table(one, some) and not mesh_of(one) and (trains or at in self._tables):
                self._count_table(at, one, trains)

    def _count_table(self, at: int, tensor: Tensor, trains: bool) -> None:
        """The classes of each column. Which of them evaluations have is up to a split, as by months."""
        import torch

        found = torch.stack([counts(one) for one in tensor.detach()[:_ROWS].unbind(1)])
        kept = self._tables.setdefault(at, {}) if len(self._tables) < _INPUTS else self._tables.get(at, {})
        before = kept.get(trains)
        alike = before is not None and before.shape == found.shape and before.device == found.device
        kept[trains] = before + found if before is not None and alike else found
        self._came |= not trains

    def _count(self, at: int, tensor: Tensor, trains: bool, beside: Iterable[Tensor]) -> None:
        """The classes of one input. trains: in a pass of the training. beside: all inputs of the pass."""
        import torch

        columns = int(tensor.shape[1]) if tensor.dim() == 2 else 0
        new = at not in self._kinds
        if (new and (not trains or len(self._kinds) >= _INPUTS)) or self._kinds.get(at, columns) != columns:
            return
        found = counts(tensor.detach()[:_ROWS])
        # what is none is not waited for to know that
        if new and tensor.is_floating_point() and tensor.device.type == "cpu" and float(found[-1]) != 0:
            return
        self._kinds[at] = columns
        if trains and tensor.dim() == 1:
            fits = _are_lengths(tensor, beside)
            self._lengths[at] = self._lengths[at] & fits if _alike(self._lengths.get(at), fits) else fits
        kept = self._counts.setdefault(at, {})
        before = kept.get(trains, torch.zeros_like(found))
        kept[trains] = found if before.device != found.device else before + found
        self._came |= not trains

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        import torch

        for at, both in self._counts.items() if self._came else ():
            if len(both) == 2 and both[True].device == both[False].device:
                ours = both[True]
                if at in self._lengths and self._lengths[at].device == ours.device:  # lengths don't count
                    none = torch.nn.functional.pad(self._lengths[at].to(ours.dtype).view(1), (_CLASSES, 0))
                    ours = ours + none
                current.put("given_classes", tuple(map(str, range(_CLASSES + 1))), torch.stack([ours, both[False]]))
            both.pop(False, None)
        for both in self._tables.values() if self._came else ():
            alike = len(both) == 2 and both[True].shape == both[False].shape
            if alike and both[True].device == both[False].device:
                for column in torch.stack([both[True], both[False]], 1):
                    current.put("given_columns", tuple(map(str, range(_CLASSES + 1))), column)
            both.pop(False, None)
        self._came, self._passes = False, 0


def _may_be(tensor: Tensor) -> bool:
    import torch

    if tensor.dim() == 1:
        return tensor.dtype in (torch.int64, torch.int32) and len(tensor) > 1
    return (
        tensor.dim() == 2 and tensor.is_floating_point() and _LEAST <= tensor.shape[1] <= _CLASSES and len(tensor) > 1
    )


def _are_lengths(tensor: Tensor, beside: Iterable[Tensor]) -> Tensor:
    """Whether the greatest of these whole numbers is as many places as another input's rows have, and none is below 1,
    as with rows that are padded to the longest one."""
    import torch

    places = {int(one.shape[1]) for one in beside if one.dim() > 1 and len(one) == len(tensor)}
    most, least = tensor.detach().max(), tensor.detach().min()
    found = torch.zeros((), dtype=torch.bool, device=tensor.device)
    for many in places:
        found = found | (most == many)
    return found & (least >= 1)


def _alike(one: Tensor | None, other: Tensor) -> bool:
    return one is not None and one.device == other.device


def _is_table(tensor: Tensor, beside: Iterable[Tensor]) -> bool:
    """Whether these are rows of a few whole numbers, beside an input of as many rows."""
    import torch

    few = tensor.dim() == 2 and 1 <= tensor.shape[1] <= _COLUMNS and tensor.dtype in (torch.int64, torch.int32)
    return few and len(tensor) > 1 and any(
        one.is_floating_point() and one.dim() > 1 and len(one) == len(tensor) for one in beside
    )  # fmt: skip


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
    """Behind an evaluation, of the first input whose classes are moved, else of the one whose evaluation has a class
    that the training lacks in most of its rows, else of the first that has some: how many rows were counted in the
    training and in it; how many classes the training has; by how much those of the evaluation are higher, each of them,
    but for one that both may have for none, 0 where they are not; how many of its rows have a class that the training
    lacks, and how many should have one that it lacks. Where the evaluation has all classes but one: which, and its
    share of the training's rows; and where it has some that the training lacks, which it has most often, and its share
    of the evaluation's rows. Of columns of a table only where they are moved."""
    found = []
    if "given_classes" in numbers:
        both = numpy.asarray(numbers["given_classes"][1], float).reshape(2, -1, _CLASSES + 1)
        found = [one for ours, theirs in zip(*both, strict=True) if (one := _fields(ours, theirs))]
    if "given_columns" in numbers:
        both = numpy.asarray(numbers["given_columns"][1], float).reshape(2, -1, _CLASSES + 1)
        pairs = zip(*both, strict=True)
        columns = [one for pair in pairs if (one := _fields(*pair)) and one["eval_given_moved"]]
        found += [{name: one[name] for name in one if "unseen" not in name} for one in columns]
    most = max(found, key=lambda one: one.get("eval_given_unseen_share", 0.0), default={})  # the first of equal ones
    return next((one for one in found if one["eval_given_moved"]), most)


def _fields(ours: Counts, theirs: Counts) -> dict[str, float]:
    """Of one input."""
    if not numpy.isfinite(ours + theirs).all() or ours[-1] or theirs[-1]:
        return {}
    mine, other = set(numpy.flatnonzero(ours).tolist()), set(numpy.flatnonzero(theirs).tolist())
    rows, count = float(ours.sum()), float(theirs.sum())
    if len(mine) < _FEWEST or not count:
        return {}
    found = {"given_rows": rows, "given_classes": float(len(mine)), "eval_given_rows": count, "eval_given_moved": 0.0}
    if other - mine:
        unseen = max(other - mine, key=lambda one: theirs[one])
        found |= {"eval_given_unseen": float(unseen), "eval_given_unseen_share": float(theirs[unseen]) / count}
    if other < mine and len(mine - other) == 1:
        (alone,) = mine - other
        found |= {"given_alone": float(alone), "given_alone_share": float(ours[alone]) / rows}
    for none in (set[int](), *({one} for one in mine & other)):
        by = next((by for by in (1, -1) if {one + by for one in mine - none} == other - none), 0)
        new, missed = other - mine, mine - other
        if by and new and missed:
            should = float(min(ours[list(missed)])) / rows * count
            return found | {"eval_given_moved": float(by), "given_classes": float(len(mine - none)),
                            "eval_given_new": float(max(theirs[list(new)])), "eval_given_missed": should}  # fmt: skip
    return found
