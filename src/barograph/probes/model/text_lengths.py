"""How long padded texts are in the training, and in evaluations: where those of one side alone end at one length, or
have their padding in front.

In:   inputs of passes, with a row a text.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

Which token is padding is known from a pass of the training in which it is sure, or whose rows all end with as many of
one token, three or more; then texts end in front of it. Two of
them or more at the beginning of a row are padding, too. Where there is none, all rows of the training have one length,
and those of an evaluation are three tokens longer or more, rows are as long as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barograph.probes.model.openings import are_texts
from barograph.probes.model.padding import is_given, tails
from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_OF_SIDE = ("rows", "longest", "full", "beside", "longer", "before")
FIGURES = tuple(f"{side}text_{name}" for side in ("", "eval_") for name in _OF_SIDE)
"""Of the training and of an evaluation: rows that were looked at; tokens of the longest one; the share of the rows that
are as long; of those that are one token shorter; of those that are longer than any of the other side; and of those that
have padding in front, of which nothing beside them says where it is."""
_ROWS, _PASSES, _LONGEST = 64, 4, 1024  # of a pass; of an evaluation; tokens: longer texts say nothing
_CLOSED = 3  # times the same token at a row's end: it may be padding
_EVEN = 8  # rows of a pass that all end with as many of one token, which they have nowhere else: it is padding
_FRONT = 2  # tokens in front that are padding, at least: one may be what texts begin with


class TextLengths:
    """Follows the first input of texts."""

    def __init__(self) -> None:
        self._place = -1
        self._padding: Tensor | None = None  # the token, -1 while none is known
        self._counts: dict[bool, Tensor] = {}  # of lengths, by whether it is of the training
        self._passes = 0
        self._widths: dict[bool, dict[int, int]] = {True: {}, False: {}}  # of passes: how many rows
        self._closed: dict[bool, Tensor] = {}  # how many of these may end with padding

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        if trains and due:
            self._place = next((at for at, one in enumerate(tensors) if are_texts(one)), -1)
        elif trains or self._padding is None or self._passes >= _PASSES:
            return
        if not 0 <= self._place < len(tensors) or not are_texts(tensors[self._place]):
            return
        rows = local(tensors[self._place].detach())[:_ROWS].long()
        if rows.shape[1] > _LONGEST:
            return
        if trains:
            self._padding = _padding_of(rows, self._padding)
        self._passes += not trains
        self._wide(rows, trains)
        padding = self._padding
        if padding is not None and padding.device == rows.device:
            text = tensors[self._place]
            others = [one for one in tensors if one is not text and one.dim() in (1, 2) and len(one) == len(text)]
            others = [local(one.detach())[:_ROWS] for one in others if not mesh_of(one)]
            found = _counted(rows, padding, others)
            before = self._counts.get(trains)
            self._counts[trains] = found if before is None or before.device != found.device else before + found

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        import torch

        theirs, self._passes = self._counts.pop(False, None), 0
        ours, whole = self._counts.get(True), self._whole()
        if ours is not None and theirs is not None and ours.device == theirs.device:
            said = figures(ours, theirs)
            if whole is not None and self._padding is not None:
                bare = (self._padding < 0) & (self._closed[True] + self._closed[False] == 0)
                said = torch.where(bare, torch.tensor(whole, dtype=said.dtype, device=said.device), said)
            current.put("text_lengths", FIGURES, said)
        self._widths[False] = {}
        self._closed.pop(False, None)

    def _wide(self, rows: Tensor, trains: bool) -> None:
        widths, wide = self._widths[trains], rows.shape[1]
        widths[wide] = widths.get(wide, 0) + len(rows)
        closed = (rows[:, -_CLOSED:] == rows[:, -1:]).all(1).sum()
        before = self._closed.get(trains)
        self._closed[trains] = closed if before is None or before.device != closed.device else before + closed

    def _whole(self) -> list[float] | None:
        """`FIGURES` of rows without padding, where those of the training have one length and some of the evaluation's
        are longer."""
        ours, theirs = self._widths[True], self._widths[False]
        if len(ours) != 1 or not theirs or max(theirs) < (wide := max(ours)) + _CLOSED:
            return None
        rows, longest = sum(theirs.values()), max(theirs)
        longer = sum(count for one, count in theirs.items() if one > wide) / rows
        return [ours[wide], wide, 1.0, 0.0, 0.0, 0.0, rows, longest, theirs[longest] / rows, 0.0, longer, 0.0]


def _padding_of(rows: Tensor, before: Tensor | None) -> Tensor:
    import torch

    tail, sure = tails(rows)
    token = torch.where(sure, torch.where(tail, rows, -1).amax(), -1)
    last = rows[:, -1:]
    size = (rows.flip(1) == last).long().cumprod(1).sum(1)
    even = (last == last[0]).all() & (size == size[0]).all() & (size[0] >= _CLOSED) & (size[0] < rows.shape[1])
    even = even & ((rows == last).sum(1) == size).all() & (len(rows) >= _EVEN)
    token = torch.where(even & ~sure, last[0, 0], token)
    return token if before is None or before.device != token.device else torch.where(before >= 0, before, token)


def _counted(rows: Tensor, padding: Tensor, others: Sequence[Tensor]) -> Tensor:
    """How many rows have each length, and last how many have padding in front that none of the others says; none while
    padding is not known."""
    import torch

    places, same = torch.arange(1, rows.shape[1] + 1, device=rows.device), rows == padding
    front = same.long().cumprod(1).sum(1)
    front = torch.where((front >= _FRONT) & (front < rows.shape[1]), front, 0)
    long = torch.where(~same, places, 0).amax(1) - front
    known = (padding >= 0).float().expand(len(rows))
    found = torch.zeros(_LONGEST + 2, device=rows.device).index_add_(0, long.clamp_min(0), known)
    said = is_given(places <= front[:, None], others)
    found[-1] = ((front > 0).float() * known).sum() * ~said
    return found


def figures(ours: Tensor, theirs: Tensor) -> Tensor:
    """`FIGURES` of counts of lengths."""
    import torch

    before = ours[-1], theirs[-1]
    ours, theirs = ours[:-1], theirs[:-1]
    places = torch.arange(len(ours), device=ours.device)
    longest = [torch.where(one > 0, places, 0).amax() for one in (ours, theirs)]
    found = []
    for at, one in enumerate((ours, theirs)):
        rows = one.sum()
        ends = [one.index_select(0, (longest[at] - back).clamp_min(0).reshape(1))[0] / rows for back in (0, 1)]
        beyond = torch.where(places > longest[1 - at], one, 0.0).sum() / rows
        found += [rows, longest[at].to(rows.dtype), *ends, beyond, before[at] / rows]
    return torch.stack(found)
