"""Evaluations whose examples have siblings in the training, as frames of one film, that are not near enough to be seen
one by one: their distances to the training leap behind the first few.

In:   small pictures, an example each, of steps and of evaluations.
Out:  means over blocks of each, computed on the device; nothing waits. When they have arrived: how many times as far
      apart the nearest few are, by rank, as those that follow.

Among examples that were drawn one by one the nearest, the second and the tenth nearest lie ever farther away by a known
law: rank times the logarithm of the next distance over this one is the same at each rank, but for chance. Where the
example has siblings in the training these are nearer, and the first ranks have more. Means over blocks drop noise that
points have by themselves, and what little an augmentation moves. Directions are those in which the evaluation's own
examples vary, most of all first, each with the same weight; distances are angles, so that no example is near to all.
Examples that have another one of the evaluation close by may stand where all are dense: those of the other half count.
Pictures that are made of three or four smooth parts, with hardly any noise, leap in many directions, as siblings do,
but not in the few in which they vary most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from barograph.probes.model.overlaps import PassesOfEvaluation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from barograph.probes.model.apart import Floats
    from barograph.probes.model.rounds import ModelRound

_NUMBERS, _SIDE = 192, 12  # means of a picture, at most; blocks along a side
_FEWEST = 48  # means of a picture
_KEPT, _LEAST = 2048, 400  # rows of the training
_EVALUATED, _ASKED = 256, 96  # rows of an evaluation: at most, at least
_DIRECTIONS = (16, 24, 32)
_FIRST, _THEN, _LAST = 4, 20, 60  # ranks
_CLIPPED = 8.0  # times the mean of later ranks, at most: a few copies do not make groups


class Leaps(PassesOfEvaluation):
    """Means over blocks of the pictures of some steps, and of evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: Tensor | None = None
        self._trained = numpy.empty((0, 0))

    def trained(self, pictures: Tensor | None) -> None:
        """Pictures of a step [n, channels, height, width]."""
        self._rows = _blocks(pictures)

    def trained_no_more(self) -> None:
        """The pictures of the step were not trained on."""
        self._rows = None

    def between(self, current: ModelRound, pictures: Tensor | None) -> None:
        """Pictures of steps that were not looked at."""
        rows = _blocks(pictures) if len(self._trained) < _KEPT else None
        if rows is not None:
            current.put("between_blocks", ("",) * rows.shape[1], rows)

    def evaluated(self, pictures: Tensor | None) -> None:
        """Pictures of a pass of an evaluation."""
        found = _blocks(pictures)
        if found is not None and (not self._evaluated or self._evaluated[0].shape[0] == found.shape[0]):
            self._evaluated.append(found)

    def put(self, current: ModelRound, evaluation: bool) -> None:
        """A step begins. evaluation: what came before it was one."""
        import torch

        if self._rows is not None:
            current.put("blocks", ("",) * self._rows.shape[1], self._rows)
        if self._evaluated and evaluation:
            rows = torch.cat(self._evaluated, 1)
            current.put("evaluated_blocks", ("",) * rows.shape[1], rows)
        self._rows, self._evaluated = None, []

    def fields_of(self, numbers: Mapping[str, Any], known: Sequence[bool]) -> dict[str, float]:
        """What is recorded of a step. known: of the rows of its batch, whether they had come before."""
        found: dict[str, float] = {}
        if "evaluated_blocks" in numbers:
            found = self._leap(numbers["evaluated_blocks"][1].T)
        self._keep(numbers, "blocks", known)
        return found

    def keep_between(self, numbers: Mapping[str, Any], known: Sequence[bool]) -> None:
        """Remember pictures of steps that were not looked at. known: whether each had come before."""
        self._keep(numbers, "between_blocks", known)

    def _keep(self, numbers: Mapping[str, Any], family: str, known: Sequence[bool]) -> None:
        rows = numbers[family][1].T if family in numbers else numpy.empty((0, 0))
        if len(rows) == len(known) and len(self._trained) < _KEPT and numpy.isfinite(rows).all():
            new = rows[~numpy.array(known, bool)]
            if not self._trained.size:
                self._trained = new
            elif self._trained.shape[1] == new.shape[1]:
                self._trained = numpy.concatenate([self._trained, new])[:_KEPT]

    def _leap(self, rows: Floats) -> dict[str, float]:
        """By how much more the first ranks lie apart than later ones, of an evaluation's rows."""
        rows = numpy.unique(rows[numpy.isfinite(rows).all(1)], axis=0)
        rows = rows[:: max(1, -(-len(rows) // _EVALUATED))]
        if len(rows) < _ASKED or len(self._trained) < _LEAST or rows.shape[1] != self._trained.shape[1]:
            return {}
        middle = rows.mean(0)
        variances, directions = numpy.linalg.eigh(numpy.cov(rows.T))
        found = []
        for count in _DIRECTIONS:
            some, sizes = directions[:, -count:], numpy.sqrt(numpy.maximum(variances[-count:], 0))
            if not sizes[0] > 1e-4 * sizes[-1]:
                return {}
            ours, theirs = (_of_length_1((one - middle) @ some / sizes) for one in (rows, self._trained))
            found.append(_leap(ours, theirs))
        return {
            "evaluated_leap": float(numpy.mean(found)),
            "evaluated_leap_least": float(min(found)),
            "evaluated_leap_rows": float(len(rows)),
        }


def _leap(ours: Floats, theirs: Floats) -> float:
    """How many times as much the first ranks lie apart as later ones, for the half of ours with no other close by."""
    among = ours @ ours.T
    numpy.fill_diagonal(among, -1.0)
    nearest = among.max(1)
    away = 1 - ours[nearest <= numpy.median(nearest)] @ theirs.T
    away = numpy.sort(numpy.partition(away, _LAST, axis=1)[:, : _LAST + 1], axis=1)
    steps = numpy.diff(numpy.log(numpy.maximum(away, 1e-6)), axis=1) * numpy.arange(1, _LAST + 1)
    later = float(steps[:, _THEN:].mean())
    return float(numpy.minimum(steps[:, :_FIRST], _CLIPPED * later).mean() / max(later, 1e-9))


def _of_length_1(rows: Floats) -> Floats:
    found: Floats = rows / numpy.maximum(numpy.sqrt((rows**2).sum(1, keepdims=True)), 1e-12)
    return found


def _blocks(pictures: Tensor | None) -> Tensor | None:
    """Means over blocks of each picture [means, n]; None where these would be too few."""
    import torch

    if pictures is None:
        return None
    channels, height, width = pictures.shape[1:]
    side = min(_SIDE, height, width, int((_NUMBERS / channels) ** 0.5))
    if channels * side**2 < _FEWEST:
        return None
    return torch.nn.functional.adaptive_avg_pool2d(pictures, side).flatten(1).T
