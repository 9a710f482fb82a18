"""Whether something that a model is given beside padded texts says where their padding is: in the training, and in
evaluations.

In:   inputs of passes, with a row a text.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barograph.probes.model.openings import are_texts
from barograph.probes.model.padding import is_given, tails
from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("padded_passes", "padding_said", "eval_padded_passes", "eval_padding_said", "eval_padding_share",
           "eval_front_passes", "eval_front_said")  # fmt: skip
"""How many passes of the training that were looked at had padding, and in how many of these it was said where; the same
of the evaluation's, and which share of their places was padding; and how many of the evaluation's had padding in front
of their texts, and in how many of these it was said where."""
KEPT = ("filler_kept",)
"""Of a pass of the training with padding: whether a mask takes the first of the padding's tokens in each row for text,
as where an end of the text is that token."""
_ROWS, _PASSES, _FEWEST = 64, 4, 2  # of a pass; of an evaluation; rows with padding in front


class MasksGiven:
    """Follows the first input of texts, and what is given beside it."""

    def __init__(self) -> None:
        self._place = -1
        self._training: Tensor | None = None  # sums of [padded, said, share, kept, padded in front, said]
        self._evaluated: Tensor | None = None
        self._kept: Tensor | None = None  # of the last pass of the training
        self._passes = 0
        self._filler: Tensor | None = None  # the token of the training's padding, −1 where it had none for sure

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        if trains and due:
            self._place = next((at for at, one in enumerate(tensors) if are_texts(one)), -1)
            self._training = self._with(self._training, tensors, True)
        elif not trains and self._training is not None and self._passes < _PASSES:
            self._passes += 1
            self._evaluated = self._with(self._evaluated, tensors, False)

    def _with(self, sums: Tensor | None, tensors: Sequence[Tensor], trains: bool) -> Tensor | None:
        import torch

        if not 0 <= self._place < len(tensors) or not are_texts(tensors[self._place]):
            return sums
        found, filler = _looked(tensors, self._place, None if trains else self._filler)
        if trains:
            known = self._filler
            kept = filler if known is None or known.device != filler.device else torch.where(filler < 0, known, filler)
            self._filler = kept
        self._kept = torch.where(found[:1] > 0, found[3:4], math.nan) if trains else self._kept
        return found if sums is None or sums.device != found.device else sums + found

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        import torch

        ours, theirs = self._training, self._evaluated
        self._evaluated, self._passes = None, 0
        if self._kept is not None:
            current.put("filler_kept", KEPT, self._kept)
            self._kept = None
        if ours is not None and theirs is not None and ours.device == theirs.device:
            share = theirs[2:3] / theirs[:1]
            current.put("masks_given", FIGURES, torch.cat((ours[:2], theirs[:2], share, theirs[4:])))


def _looked(tensors: Sequence[Tensor], place: int, filler: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of a pass, whether its texts have padding for sure, whether that is said, and which share of the places it is;
    whether all of it but the first token of each row is said to be padding; and whether there is padding in front, of
    the training's token `filler`, and that is said. And the token of its own padding, −1 without."""
    import torch

    tokens = local(tensors[place].detach())[:_ROWS]
    beside = [one for at, one in enumerate(tensors) if at != place and one.dim() in (1, 2) and mesh_of(one) is None]
    others = [local(one.detach())[:_ROWS] for one in beside if len(one) == len(tensors[place])]
    tail, sure = tails(tokens)
    padded, said = sure.float(), is_given(tail, others)
    rest = torch.cat((torch.zeros_like(tail[:, :1]), tail[:, 1:] & tail[:, :-1]), 1)
    kept = is_given(rest, [one for one in others if one.dim() == 2]) & ~said
    token = torch.where(sure, (tokens * tail).sum() // tail.sum().clamp_min(1), -1)
    front = (tokens == (token if filler is None else filler.to(token.device))).long().cumprod(1).bool()
    sizes = front.sum(1)
    alone = ((sizes > 0).sum() >= _FEWEST) & (sizes.amax() > sizes.amin()) & (sizes.amax() < tokens.shape[1])
    alone = alone & ~sure  # of rows that end with padding as well it is said with that
    told = is_given(front, [one for one in others if one.dim() == 2])
    numbers = (padded, padded * said.float(), padded * tail.float().mean(), padded * kept.float(), alone.float(),
               (alone & told).float())  # fmt: skip
    return torch.stack(numbers), token
