"""Which part of a text each of its places belongs to, as numbers beside the text say it: in the training, and in
evaluations.

In:   inputs of passes, with a row a text.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

Parts follow each other in a text: their numbers are whole, the same along a part, and another one behind a token that
ends it, which is the same in all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from barograph.probes.model.openings import are_texts
from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("parts_rows", "parts_told", "eval_parts_rows", "eval_parts_told")
"""Rows of the training that were looked at, and the share in which the numbers beside them change once behind one
token, the same in all; rows of the evaluation that have this token within, and the share of these whose numbers change
anywhere."""
_ROWS, _PASSES = 64, 4  # of a pass; of an evaluation
_BESIDE = 3  # inputs behind the texts
_PARTS = 32  # numbers of parts are below


class SegmentsGiven:
    """Follows the first input of texts, and whole numbers of its shape behind it."""

    def __init__(self) -> None:
        self._text = -1
        self._training: dict[int, Tensor] = {}  # by place of the numbers: [rows, told, token]
        self._evaluated: dict[int, Tensor] = {}
        self._passes = 0

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        if trains and due:
            self._text = next((at for at, one in enumerate(tensors) if are_texts(one)), -1)
            for at, text, numbers in self._beside(tensors):
                self._training[at] = _of_training(text, numbers, self._training.get(at))
        elif not trains and self._training and self._passes < _PASSES:
            self._passes += 1
            for at, text, numbers in self._beside(tensors):
                known, before = self._training.get(at), self._evaluated.get(at)
                if known is not None and known.device == text.device:
                    found = _of_evaluation(text, numbers, known[2])
                    self._evaluated[at] = found if before is None else before + found

    def _beside(self, tensors: Sequence[Tensor]) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Some rows of the texts, and of numbers beside them with their place."""
        if not 0 <= self._text < len(tensors) or not are_texts(tensors[self._text]):
            return
        whole = tensors[self._text]
        for at in range(self._text + 1, min(len(tensors), self._text + 1 + _BESIDE)):
            one = tensors[at]
            if str(one.dtype) in ("torch.int64", "torch.int32") and one.shape == whole.shape and mesh_of(one) is None:
                yield at, local(whole.detach())[:_ROWS], local(one.detach())[:_ROWS]

    def put(self, current: ModelRound) -> None:
        """A step begins: of the numbers that change in most rows of the training."""
        import torch

        both = [torch.cat((self._training[at][:2], one)) for at, one in self._evaluated.items()]
        if both:
            table = torch.stack(both)
            most = (table[:, 1] / table[:, 0].clamp_min(1)).argmax().reshape(1)
            rows, told, others, theirs = table.index_select(0, most)[0].unbind()
            shares = rows, told / rows.clamp_min(1), others, theirs / others.clamp_min(1)
            current.put("segments_given", FIGURES, torch.stack(shares))
        self._evaluated, self._passes = {}, 0


def _of_training(text: Tensor, numbers: Tensor, before: Tensor | None) -> Tensor:
    """Rows; in how many of them the numbers change once within the text, behind the one token behind which all do; that
    token. before: the same of the passes so far; where another token ends a part, no row counts any more."""
    import torch

    changes = (numbers[:, 1:] != numbers[:, :-1]) & ~_padding(text)[:, 1:]
    once = changes.sum(1) == 1
    ends = text[:, :-1].gather(1, changes.long().argmax(1, keepdim=True))[:, 0]
    token = torch.where(once, ends, -1).amax()
    same = ((ends == token) | ~once).all() & ((numbers >= 0) & (numbers < _PARTS)).all() & once.any()
    rows = torch.full_like(token, len(text))
    told = torch.where(same, once.sum(), 0)
    if before is not None and before.device == text.device:
        same = same & ((before[2] == token) | (before[2] < 0))
        rows, told = rows + before[0].long(), torch.where(same, told + before[1].long(), 0)
    return torch.stack((rows, told, torch.where(same, token, -1))).double()


def _of_evaluation(text: Tensor, numbers: Tensor, token: Tensor) -> Tensor:
    """Rows that have the token within, with others behind it; in how many of these the numbers change anywhere."""
    import torch

    tail = _padding(text)
    size = (~tail).long().sum(1)
    places = torch.arange(text.shape[1], device=text.device)[None]
    within = ((text == token.long()) & (places < size[:, None] - 2)).any(1)
    changes = ((numbers[:, 1:] != numbers[:, :-1]) & ~tail[:, 1:]).any(1)
    return torch.stack((within.sum(), (within & changes).sum())).double()


def _padding(text: Tensor) -> Tensor:
    """Where rows end with the token that stands at the end of a row most often in a row, however few."""
    same = (text == text[:, -1:]).flip(1).long().cumprod(1).flip(1).bool()
    size = same.sum(1)
    filler = text[:, -1].index_select(0, size.argmax().reshape(1))
    return same & (text[:, -1:] == filler) & (size.amax() > 1)
