"""Whether examples that noise hides are near copies of others: those that a model of denoising is evaluated on, and
those that it was trained on.

In:   noisy inputs and targets of some rows, as the training's mean square has them, and as evaluations compare them.
Out:  a sketch of both, for each row, computed on the device; nothing waits. When they have arrived: how many of an
      evaluation's examples are near copies of one that was trained on.

Input and target are sums of an example and its noise, with factors that differ from row to row: x = a · example + b ·
noise, and the target is the noise, the example, or a sum of both as well. They span a plane in which the example lies,
whatever the noise and the factors. Planes of one example have a line in common, so that the sine of the least angle
between two planes is a distance of examples (Björck and Golub, Numerical methods for computing angles between linear
subspaces, 1973, https://doi.org/10.1090/S0025-5718-1973-0348991-3). A sketch is linear, and keeps that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from barograph.probes.model import noising
from barograph.probes.model.near import SIGNS, drawn_signs, nearer_by_chance, tenth_of
from barograph.probes.model.timed import is_one

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.apart import Floats
    from barograph.probes.model.rounds import ModelRound

_OF_PASS, _PASSES, _EVALUATED, _KEPT = 64, 4, 64, 2048  # rows, passes, rows of an evaluation, rows of the training
_LEAST, _WIDE = 200, 8  # rows of the training; numbers of a row
_NEARER = (
    0.35  # of the distance to the tenth nearest, at most: what differs in few ways by much, and in many by little,
)
# has fewer dimensions near by than farther off
_APART = 1e-3  # of the length of an input, that is not of its target
_COMPARES = frozenset({
    "sub", "__sub__", "rsub", "__rsub__", "subtract", "add", "__add__", "__radd__", "mse_loss", "l1_loss",
    "smooth_l1_loss", "huber_loss",
})  # fmt: skip


def sketched(*rows: Tensor) -> Tensor | None:
    """Sketches [signs · rows given, n] of some rows of [rows, numbers] of one shape; None of narrow ones."""
    import torch

    first = rows[0]
    if first.dim() != 2 or first.shape[1] < _WIDE or any(one.shape != first.shape for one in rows):
        return None
    signs = torch.from_numpy(drawn_signs(first.shape[1])).to(first.device, torch.float32)
    with torch.autocast(first.device.type, enabled=False):  # of the program: 16 bits are too few
        return torch.cat([one[:_OF_PASS].to(first.device).float() @ signs for one in rows], 1).T


class Noised:
    """What a pass of the training says of noise.

    Of a mean square the target is known. Of one whose rows have weights it is not, but it is a sum of the output and
    its gradient, row by row, whatever the weights: with the input these span all that a plane has, and a direction
    more."""

    def __init__(self) -> None:
        self._found: Tensor | None = None
        self._planes: Tensor | None = None

    def look(self, noisy: tuple[Tensor, Tensor | None, tuple[int, ...]], output: Tensor, gradient: Tensor,
             count: int) -> None:  # fmt: skip
        """noisy: see `noising.noisy_input`. output, gradient: `noising.some` rows of them. count: numbers of a mean
        square, 0 of another loss."""
        if count:
            self._found = noising.figures(*noisy, output, gradient, count)
            self._planes = sketched(noisy[0], noising.target_of(output, gradient, count))
        else:
            self._planes = sketched(noisy[0], output, gradient)

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        if self._found is not None:
            current.put("noise", noising.FIGURES, self._found)
        if self._planes is not None:
            current.put("planes", tuple(map(str, range(self._planes.shape[1]))), self._planes)
        self._found = self._planes = None


class ComparedNoise:
    """What passes of an evaluation compare their outputs with, where an input has the shape of the output."""

    def __init__(self) -> None:
        self._given: Tensor | None = None
        self._output: Any = None
        self._found: list[Tensor] = []

    def passed(self, tensors: Sequence[Tensor], output: Any) -> None:
        """A pass without gradients: its inputs and its output."""
        self.over()
        if len(self._found) < _PASSES and getattr(output, "ndim", 0) >= 2 and output.is_floating_point():
            noisy = noising.noisy_input(tensors, output)
            drawn = noisy is not None and noisy[1] is not None and is_one(noisy[1])  # a step of what is drawn
            if noisy is not None and not drawn:
                self._given, self._output = noisy[0][:_OF_PASS], output

    def over(self) -> None:
        """What comes now belongs to another pass."""
        self._given = self._output = None

    def saw(self, name: str, arguments: Sequence[Any]) -> None:
        """A function was called."""
        import torch

        if self._output is None or name not in _COMPARES or len(arguments) < 2:
            return
        ours, other = arguments[:2]
        if other is self._output:
            ours, other = other, ours
        fits = getattr(other, "shape", None) == self._output.shape and other.is_floating_point()
        if ours is self._output and fits and self._given is not None:
            target = noising.some(other.detach())[:_OF_PASS]
            found = sketched(self._given, target)
            if found is not None:
                is_noise = noising.is_normal(target.float()).to(found.dtype)
                self._found.append(torch.cat([found, is_noise.expand(1, found.shape[1])]))
            self.over()

    def taken(self) -> tuple[tuple[str, ...], Tensor] | None:
        """The sketches of an evaluation, each with its pass."""
        import torch

        found, self._found = self._found, []
        if not found or len({one.device for one in found}) > 1:
            return None
        return tuple(str(at) for at, one in enumerate(found) for _ in range(one.shape[1])), torch.cat(found, 1)


class KeptPlanes:
    """Directions of the training's rows that are remembered."""

    def __init__(self) -> None:
        self._kept = numpy.zeros((3, _KEPT, SIGNS))
        self._count = 0
        self._is_noise = False  # what the training learns to tell, or to undo

    def fields_of(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step, when it has arrived; nothing where no evaluation can be judged."""
        found: dict[str, float] = {}
        if "evaluated_planes" in numbers and self._count >= _LEAST:
            passes, values = numbers["evaluated_planes"]
            found = self._near(passes, values.T)
        if "noise" in numbers:
            named = dict(zip(numbers["noise"][0], numbers["noise"][1][0], strict=True))
            self._is_noise |= named["noise_target"] == 1 or math.isfinite(named["end_noise_mean"])
        if "planes" in numbers:
            bases, _ = _bases(numbers["planes"][1].T)
            some = bases[:, : _KEPT - self._count]
            self._kept[: len(some), self._count : self._count + some.shape[1]] = some
            self._count += some.shape[1]
        return found

    def _near(self, passes: tuple[str, ...], rows: Floats) -> dict[str, float]:
        noise = rows[:, -1] == 1
        if not (self._is_noise or noise.any()):
            return {}
        told = numpy.flatnonzero(noise if noise.any() else ~noise)  # else a way from or to it
        bases, some = _bases(rows[told, :-1])
        told = told[some]
        step = max(1, -(-len(told) // _EVALUATED))
        bases, told = bases[:, ::step], told[::step]
        if not len(told):
            return {}
        squares = _squared_sines(bases, self._kept[:, : self._count])
        nearer, chance = nearer_by_chance(squares, most=_NEARER)
        if not nearer:
            return {}
        near = squares.min(1) < nearer**2 * tenth_of(squares)[:, 0]
        having = {passes[at] for at, one in zip(told, near, strict=True) if one}
        return {
            "evaluated_near": float(near.mean()),
            "evaluated_near_rows": float(len(near)),
            "evaluated_near_passes": len(having) / len({passes[at] for at in told}),
            "evaluated_near_groups": 0.0,
            "evaluated_near_chance": chance,
            "evaluated_near_pictures": 0.0,
            "evaluated_near_noised": 1.0,
        }


def _bases(rows: Floats) -> tuple[Floats, Any]:
    """Directions [2 or 3, n, signs] at right angles of what each row's sketches span; and which rows these are: not
    those in which one sketch is a sum of the others."""
    parts = rows.reshape(len(rows), -1, SIGNS).transpose(1, 0, 2)
    lengths = numpy.sqrt((parts**2).sum(2))
    told = numpy.isfinite(rows).all(1) & (lengths > 0).all(0)
    found: list[Floats] = []
    for part, length in zip(parts[::-1], lengths[::-1], strict=True):  # the target first, of which most is the input's
        rest = part / numpy.maximum(length, 1e-30)[:, None]
        for one in found:
            rest = rest - (rest * one).sum(1, keepdims=True) * one
        left = numpy.sqrt((rest**2).sum(1))
        told &= left > _APART
        found.append(rest / numpy.maximum(left, 1e-30)[:, None])
    return numpy.stack(found)[:, told], numpy.flatnonzero(told)


def _squared_sines(bases: Floats, others: Floats) -> Floats:
    """The squared sine [rows, others] of the least angle between planes [2, rows, signs] and what others [3, others,
    signs] span: 1 less the square of the largest singular value of their directions' products."""
    one, two = (numpy.stack([side @ other.T for other in others]) for side in bases)
    a, b, c = (one * one).sum(0), (two * two).sum(0), (one * two).sum(0)
    most: Floats = (a + b + numpy.sqrt((a - b) ** 2 + 4 * c * c)) / 2
    return numpy.maximum(1 - most, 1e-9)
