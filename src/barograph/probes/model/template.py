"""Tokens that all texts of the training have within their template, and none of an evaluation, or the contrary.

In:   tokens of passes, with a row a text.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

A line of a template is in each text, in front of a mark that all texts of both sides have, as that of an answer. What
stands behind all such marks, as the end of an answer, may be missing in a prompt that is to be answered, and says
nothing; nor does a token that is the first or the last one of some row, as padding is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.probes.model.openings import are_texts
from barograph.probes.model.parameters import local

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("template_lost", "template_added", "template_rows", "eval_template_rows")
_ROWS, _PLACES = 64, 512  # of a pass
_KINDS = 4096  # of tokens: some of a larger vocabulary share one
_PASSES = 4  # of an evaluation
_ALL = 0.98  # of the texts


class _Side(NamedTuple):
    """Of the training or an evaluation: how many texts have a kind of token; whether some begins or ends with it; how
    many texts; where each kind first is in each of the last ones."""

    counts: Tensor
    outer: Tensor
    rows: int
    first: Tensor


class Templates:
    """Follows the first input of tokens."""

    def __init__(self) -> None:
        self._place = -1
        self._kinds: tuple[Any, ...] = ()  # of all inputs of a pass of the training
        self._training: _Side | None = None
        self._evaluated: _Side | None = None
        self._passes = 0

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        kinds = tuple((one.dim(), one.is_floating_point()) for one in tensors)
        if trains and due:
            self._place, self._kinds = next((at for at, one in enumerate(tensors) if are_texts(one)), -1), kinds
            if self._place >= 0:
                self._training = _with(self._training, tensors[self._place])
            return
        known = self._training is not None and self._place >= 0 and kinds == self._kinds and self._passes < _PASSES
        if not trains and known and are_texts(tensors[self._place]):
            self._passes += 1
            self._evaluated = _with(self._evaluated, tensors[self._place])

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        ours, theirs = self._training, self._evaluated
        self._evaluated, self._passes = None, 0
        if ours is not None and theirs is not None and ours.counts.device == theirs.counts.device:
            current.put("template", FIGURES, figures(ours, theirs))


def _with(side: _Side | None, tensor: Tensor) -> _Side:
    """What is known of a side, and these texts."""
    import torch

    rows = local(tensor.detach())[:_ROWS, :_PLACES].long().remainder(_KINDS)
    places = torch.arange(rows.shape[1], device=rows.device, dtype=torch.int32).expand(rows.shape)
    none = torch.full((len(rows), _KINDS), _PLACES, dtype=torch.int32, device=rows.device)
    first = none.scatter_reduce(1, rows, places, "amin")
    counts, outer = (first < _PLACES).sum(0), torch.zeros(_KINDS, dtype=torch.bool, device=rows.device)
    outer.index_fill_(0, torch.cat((rows[:, 0], rows[:, -1])), True)
    if side is None or side.counts.device != counts.device:
        return _Side(counts, outer, len(rows), first)
    return _Side(side.counts + counts, side.outer | outer, side.rows + len(rows), first)


def figures(ours: _Side, theirs: _Side) -> Tensor:
    """`FIGURES`: how many kinds of tokens all texts of the training have and none of the evaluation's, in front of one
    that all of both have; how many of the evaluation's, the other way round; texts of both."""
    import torch

    every = [one.counts >= _ALL * one.rows for one in (ours, theirs)]
    inner = ~(ours.outer | theirs.outer)
    marks = every[0] & every[1] & inner
    found = []
    for all_of, side, other in ((every[0], ours, theirs), (every[1], theirs, ours)):
        last = torch.where(marks & (side.first < _PLACES), side.first, -1).amax(1, keepdim=True)
        before = ((side.first < last) | (side.first == _PLACES)).all(0)
        found.append((all_of & (other.counts == 0) & inner & before).sum())
    rows = torch.stack([torch.full_like(found[0], one.rows) for one in (ours, theirs)])
    return torch.cat((torch.stack(found), rows)).float()
