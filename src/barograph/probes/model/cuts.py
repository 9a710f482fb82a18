"""Cuts of one larger picture that overlap, of which some are trained on and others evaluated.

In:   pictures of a pass, with a row an example; fingerprints of their squares, when these have arrived.
Out:  fingerprints of some squares of each picture, with their places, exact, computed on the device, and nothing waits;
      figures for the `model` record: how many of an evaluation's pictures have a part of one of the training.

Of all squares of a picture those with the least fingerprints are known. Of two cuts of one picture all squares of what
both have are the same, as far apart in each; one of these whose fingerprint is less than the other's greatest is among
the other's. Of things that were drawn into two pictures the squares around them are others. A picture in which numbers
are repeated, as one of whole numbers or of plain areas has them, has squares that others have by chance: nothing is
said of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.probes.model.overlaps import BITS, mixed, powers, signed
from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

_TAKEN = 16  # squares of a picture
_SIDE, _SIDE_MOST, _LONGEST = 4, 64, 4096  # places of a square, and of a picture
_LEAST = 16  # places of a picture, each way
_VARIED, _SOME = 0.75, 1024  # of the places that are looked at: different ones
_ELEMENTS = 1 << 19  # of all pictures of a pass that are looked at
_ACROSS, _DOWN, _DEEP = (0x9E3779B97F4A7C15 + more - (1 << 64) for more in (0, 2, 4))
_ROW = 1 << 16  # places of a row, in the number of a place
_ALIKE = 3  # squares in common, all as far apart
_OTHERS = 6  # pictures that have a square, with which one that has it is compared
_KEPT = 8192  # pictures of the training


class Cut(NamedTuple):
    """Of a picture: places by fingerprint, the greatest of these, and how many squares there are across and down."""

    places: dict[float, tuple[int, int]]
    most: float
    sizes: tuple[int, int]


def of_pictures(rows: Tensor) -> Tensor | None:
    """Fingerprints of squares, and their places [2, n, 1 + _TAKEN], behind how many there are across and down; -1 of
    pictures that say nothing. None of all else than pictures [n, channels, height, width], or with channels last."""
    import torch

    if not rows.is_floating_point() or rows.dim() != 4 or mesh_of(rows) is not None:
        return None
    pictures = local(rows.detach()).float()
    if pictures.shape[1] > pictures.shape[3]:
        pictures = pictures.permute(0, 3, 1, 2)
    _, channels, height, width = pictures.shape
    pictures = pictures[: _ELEMENTS // max(1, channels * height * width)]
    if not _LEAST <= min(height, width) <= max(height, width) <= _LONGEST or not len(pictures):
        return None
    bits = pictures.contiguous().view(torch.int32).long()
    values = mixed(bits * powers(channels, _DEEP, bits)[:, None, None]).sum(1)
    some = values.flatten(1)[:, :: max(1, height * width // _SOME)].sort(1).values
    varied = (some.diff(dim=1) != 0).sum(1) >= _VARIED * some.shape[1]
    side = min(_SIDE_MOST, max(_SIDE, min(height, width) // 4))
    weights = powers(width, _ACROSS, bits) * powers(height, _DOWN, bits)[:, None]
    sums = torch.nn.functional.pad((values * weights).cumsum(1).cumsum(2), (1, 0, 1, 0))
    sums = sums[:, side:] - sums[:, :-side]
    sums = sums[:, :, side:] - sums[:, :, :-side]
    down, across = sums.shape[1:]
    back = [signed(pow(base, -1, 1 << 64)) for base in (_ACROSS, _DOWN)]
    sums = sums * powers(across, back[0], bits) * powers(down, back[1], bits)[:, None]
    least = (mixed(sums) & BITS).flatten(1).topk(_TAKEN, dim=1, largest=False)
    marks = torch.where(varied[:, None], least.values, -1)
    places = least.indices // across * _ROW + least.indices % across
    sizes = torch.full_like(marks[:, :1], across), torch.full_like(marks[:, :1], down)
    return torch.stack([torch.cat([sizes[0], marks], 1), torch.cat([sizes[1], places], 1)])


class Cuts:
    """Pictures of the training, by their squares."""

    def __init__(self) -> None:
        self._rows: list[Cut] = []
        self._having: dict[float, list[int]] = {}
        self._known: set[tuple[float, ...]] = set()

    def keep(self, numbers: Mapping[str, Any], whose: str = "") -> None:
        """Pictures of a step."""
        for cut in _of(numbers.get(f"{whose}squares")):
            if cut is None or len(self._rows) >= _KEPT or (one := tuple(cut.places)) in self._known:
                continue
            self._known.add(one)
            for mark in cut.places:
                self._having.setdefault(mark, []).append(len(self._rows))
            self._rows.append(cut)

    def seen(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """Of an evaluation's pictures: the share that have a part of a picture of the training, at another place."""
        found = numbers.get("evaluated_squares")
        if found is None or not self._rows:
            return {}
        cuts, having = _of(found), list[str]()
        passes: Sequence[str] = found[0][:: 2 * (1 + _TAKEN)]
        for cut, which in zip(cuts, passes, strict=True):
            if cut is not None:
                others = {at for mark in cut.places for at in self._having.get(mark, ())[:_OTHERS]}
                having += [which] if any(_overlap(cut, self._rows[at]) for at in others) else []
        return {
            "evaluated_cuts": len(having) / len(cuts),
            "evaluated_cuts_rows": float(len(cuts)),
            "evaluated_cuts_passes": len(set(having)) / len(set(passes)),
        }


def _of(found: Any) -> list[Cut | None]:
    """Pictures, as they have arrived; None for those that say nothing."""
    if found is None:
        return []
    cuts: list[Cut | None] = []
    for marks, places in found[1][0].reshape(-1, 2, 1 + _TAKEN).tolist():
        by_mark = {mark: divmod(int(place), _ROW) for mark, place in zip(marks[1:], places[1:], strict=True)}
        said = min(by_mark) >= 0
        cuts.append(Cut(by_mark, max(by_mark), (int(marks[0]), int(places[0]))) if said else None)
    return cuts


def _overlap(ours: Cut, theirs: Cut) -> bool:
    """Whether all that two pictures have at the same distance is the same, at another place of each."""
    both = ours.places.keys() & theirs.places.keys()
    apart = [(ours.places[mark][0] - theirs.places[mark][0], ours.places[mark][1] - theirs.places[mark][1])
             for mark in both]  # fmt: skip
    if len(both) < _ALIKE or len(set(apart)) > 1 or apart[0] == (0, 0):
        return False
    down, across = apart[0]
    return _within(ours, theirs, -down, -across) and _within(theirs, ours, down, across)


def _within(one: Cut, other: Cut, down: int, across: int) -> bool:
    """Whether all squares of the one that the other would have, so far away, are among its own."""
    there = [mark for mark, (y, x) in one.places.items()
             if 0 <= y + down < other.sizes[1] and 0 <= x + across < other.sizes[0] and mark <= other.most]  # fmt: skip
    return all(mark in other.places for mark in there)
