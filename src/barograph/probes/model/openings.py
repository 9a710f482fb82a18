"""With which token texts begin, in the training and in evaluations: a template, a header or a mark that one side has.

In:   tokens of passes, with a row a text.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

The same token several times at the beginning of a row is padding; then the one behind it counts. So does, of what all
rows of a pass begin with, such padding as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_ROWS, _LEAST, _SHORT = 64, 8, 4  # rows of a pass; of them at least; tokens of a row at least
_SEEN = 1 << 17  # tokens that are counted apart: others, which share a place, may seem to be known
_COMMON = 16  # tokens that all rows begin with, at most
TRAINED = ("opening", "opening_share", "opening_common", "opening_mark")
EVALUATED = ("eval_opening", "eval_opening_share", "eval_opening_known", "eval_opening_alike")
"""The most frequent opening of a pass, and its share; how many tokens all of its rows begin with, and a number that is
the same for the same ones; whether the training had that token anywhere, and the share of
the evaluation's rows that begin as most of the training's did at the last look."""


class Openings:
    """Follows the first input of tokens."""

    def __init__(self) -> None:
        self._place = -1
        self._kinds: tuple[Any, ...] = ()  # of all inputs of a pass of the training
        self._seen: Tensor | None = None
        self._now: Tensor | None = None  # of this step's pass
        self._last: Tensor | None = None  # the training's most frequent opening
        self._evaluated: Tensor | None = None

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        kinds = tuple((one.dim(), one.is_floating_point()) for one in tensors)
        if trains and due:
            self._place, self._kinds = next((at for at, one in enumerate(tensors) if are_texts(one)), -1), kinds
            if self._place >= 0:
                self._trained(local(tensors[self._place].detach())[:_ROWS].long())
        elif not trains and self._place >= 0 and kinds == self._kinds:
            self.evaluated(self._place, tensors[self._place])

    def _trained(self, rows: Tensor) -> None:
        import torch

        if self._seen is None or self._seen.device != rows.device:
            self._seen = torch.zeros(_SEEN, dtype=torch.bool, device=rows.device)
        self._seen.index_fill_(0, rows.flatten().remainder(_SEEN), True)
        first = _first_of(rows)
        self._last = first.mode().values
        found = self._last, (first == self._last).double().mean(), *_common(rows)
        self._now = torch.stack([one.double() for one in found])

    def evaluated(self, place: int, tensor: Tensor) -> None:
        """What an evaluation gives in this place."""
        import torch

        last = self._last
        if self._evaluated is not None or self._seen is None or last is None:
            return
        if place != self._place or not are_texts(tensor):
            return
        rows = local(tensor.detach())[:_ROWS].long()
        if rows.device != self._seen.device:
            return
        first = _first_of(rows)
        most = first.mode().values
        seen = self._seen[most.remainder(_SEEN).reshape(1)][0]
        shares = [(first == one.to(first)).double().mean() for one in (most, last)]
        self._evaluated = torch.stack((most.double(), shares[0], seen.double(), shares[1]))

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        if self._now is not None:
            current.put("openings", TRAINED, self._now)
        if self._evaluated is not None:
            current.put("eval_openings", EVALUATED, self._evaluated)
        self._now = self._evaluated = None


def are_texts(tensor: Tensor) -> bool:
    whole = tensor.dim() == 2 and not tensor.is_floating_point() and not tensor.is_complex()
    return whole and tensor.shape[1] >= _SHORT and len(tensor) >= _LEAST and mesh_of(tensor) is None and (
        tensor.device.type != "mps" and str(tensor.dtype) != "torch.bool"
    )  # fmt: skip


def _first_of(rows: Tensor) -> Tensor:
    """The token with which each row begins, behind padding."""
    others = rows != rows[:, :1]
    behind = rows.gather(1, others.long().argmax(1, keepdim=True))[:, 0]
    import torch

    return torch.where(others[:, 1], rows[:, 0], behind)


def _common(rows: Tensor) -> tuple[Tensor, Tensor]:
    """How many tokens all rows begin with, and a number that tells these from others."""

    begins = rows[:, :_COMMON]
    same = (begins == begins[:1]).all(0).long().cumprod(0)
    other = (begins[0] != begins[0, 0]).long().cumsum(0) > 0
    other[0] = True
    counted = same * other
    place = counted.cumsum(0)
    weights = (place * place * 7919 + place * 104729) % 65521
    return counted.sum(), (counted * (begins[0] + 1) * weights).sum()
