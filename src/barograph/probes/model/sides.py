"""What a model is given beside its first numbers, as a time for each row: its size in the training and in evaluations.

In:   inputs of passes, those of the training and those of evaluations.
Out:  figures for the `model` record, computed on the device from some numbers; nothing waits.

Classes that are given, one for each row, are counted (`given_classes`).

Passes with other inputs, of other kinds or in another order of dimensions, are not compared. What may be a mask, of two
numbers or with one for each pair of places, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model import given_classes
from barograph.probes.model.entrance import few
from barograph.probes.model.given_classes import GivenClassCounts
from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_MOST, _PASSES = 3, 4  # inputs; passes of an evaluation
_VARIED = 16  # different numbers of an input of an evaluation: fewer may be a setting
FIGURES = ("side_deviation", "side_deviation_least", "side_size", "side_size_least", "eval_side_deviation",
           "eval_side_size", "eval_side_half", "eval_side_place")  # fmt: skip
"""Of one input: the largest and the least deviation of a pass of the training, and size of its largest number; of the
evaluation its deviation, its largest number's size, the size that half of its numbers have; which of the inputs."""


class SideInputs:
    """Follows inputs of floating point numbers behind the first one."""

    def __init__(self) -> None:
        self._kinds: tuple[Any, ...] = ()  # of all inputs of a pass of the training
        self._known: dict[int, Tensor] = {}  # by place: `FIGURES` of the training
        self._evaluated: list[tuple[int, Tensor]] = []
        self._passes = 0
        self._classes = GivenClassCounts()

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        self._classes.given(tensors, trains, due)
        if (trains and not due) or (not trains and (not self._known or self._passes >= _PASSES)):
            return
        self._passes += not trains
        places = [at for at, one in enumerate(tensors) if one.is_floating_point() and one.dim()][1 : _MOST + 1]
        kinds = tuple((one.dim(), one.is_floating_point()) for one in tensors)
        if trains and kinds != self._kinds:
            self._kinds, self._known = kinds, {}
        if kinds != self._kinds:
            return
        for at in places:
            if _counts(tensors[at]):
                self._look(at, few(local(tensors[at].detach())).float(), trains)

    def _look(self, at: int, values: Tensor, trains: bool) -> None:
        import torch

        size, deviation = values.abs(), values.std()
        if not trains:
            different = (values.sort().values.diff() != 0).sum() + 1
            self._evaluated.append((at, torch.stack((deviation, size.amax(), size.median(), different.float()))))
            return
        now = torch.stack((deviation, -deviation, size.amax(), -size.amax()))
        before = self._known.get(at)
        self._known[at] = now if before is None or before.device != now.device else torch.maximum(before, now)

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        import torch

        self._classes.put(current)
        found = [(at, own) for at, own in self._evaluated if at in self._known and self._known[at].device == own.device]
        if found:
            rows = torch.stack([torch.cat((self._known[at], own)) for at, own in found], 1)
            current.put("side_inputs", tuple(str(at) for at, _ in found), rows)
        self._evaluated, self._passes = [], 0


def _counts(tensor: Tensor) -> bool:
    """Whether an input is looked at: several numbers, and no scores of pairs of places."""
    sizes = tuple(tensor.shape)
    pairs = len(sizes) > 2 and sizes[-1] == sizes[-2] and not (len(sizes) == 4 and sizes[1] == 3)
    return tensor.numel() > 1 and len(sizes) <= 4 and not pairs and not (len(sizes) == 4 and sizes[1] == 1) and (
        mesh_of(tensor) is None
    )  # fmt: skip


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """Of the input of an evaluation whose deviation is the furthest from those of the training, when it has arrived; of
    several passes, that of which it is."""
    classes = given_classes.fields_of(numbers)
    names, table = numbers.get("side_inputs", ((), ()))
    found: list[tuple[float, dict[str, float]]] = []
    for place, column in zip(names, table.T.tolist() if len(names) else (), strict=True):
        most, least, size, size_least, deviation, theirs, half, different = column
        if different < _VARIED or not all(map(math.isfinite, column)) or not min(-least, deviation) > 0:
            continue
        others = [_apart(own, deviation) for own in _of_others(names, table)]
        far = min([_apart((-least, most), deviation), *others])  # one of the others, where they changed places
        values = most, -least, size, -size_least, deviation, theirs, half, float(place)
        found.append((far, dict(zip(FIGURES, values, strict=True))))
    return (max(found, key=lambda one: one[0])[1] if found else {}) | classes


def _of_others(names: Iterable[str], table: Any) -> list[tuple[float, float]]:
    """The least and the largest deviation in the training, of each input."""
    return list({name: (-float(column[1]), float(column[0])) for name, column in zip(names, table.T, strict=True)}
                .values())  # fmt: skip


def _apart(training: tuple[float, float], deviation: float) -> float:
    """How far a deviation is from these two and what lies between, as a logarithm."""
    least, most = training
    return max(0.0, math.log(deviation / most), math.log(least / deviation)) if min(least, most) > 0 else 0.0
