"""Which examples are alike without being the same: those of one batch, and those of an evaluation and the training.

In:   rows of numbers that a model is given, an example each.
Out:  a sketch of each row: products of its numbers with fixed signs, which keep distances to about an eighth; of a
      picture also one of its spectrum's amplitudes, which stay as they are when it is mirrored or rolled, and hardly
      change when it is moved by a little. Computed on the device, nothing waits. When they have arrived: which part of
      the examples' variance lies between batches, and how many of an evaluation's rows lie far nearer to one that was
      trained on than examples lie to each other.

A near copy has one row far nearer than the tenth nearest. In tight groups of many examples the tenth is near, too; in
few dimensions chance alone brings one near. How much farther the fortieth nearest is than the tenth says how many the
dimensions are. Where the training's own rows are as near each other, in one batch as in several, the examples come in
groups: another one of a group that is known need not be a copy.

Examples that are sorted by how bright or loud they are show it in the means of their batches: these rise, or fall,
through each epoch and begin again, whatever noise is drawn anew.

Batches are alike in a fixed order if those a number of steps apart, an epoch's, have nearly the same means. Groups that
are drawn for each batch have no such number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy

from barograph.probes.model.apart import Floats, beside, beyond_chance, blocks
from barograph.probes.model.behind_noise import KeptPlanes
from barograph.probes.model.leaps import Leaps
from barograph.probes.model.near import EVALUATED, SIGNS, SKETCH, KeptSketches, drawn_signs, squared_distances
from barograph.probes.model.overlaps import PassesOfEvaluation, even_rows
from barograph.probes.model.parameters import local

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_ELEMENTS = 1024  # of a row, that are looked at
_FIRST, _OF_PASS, _OF_LATER = 4, 64, 16  # passes of an evaluation; rows of each; rows of each later one
_SIDE, _CHANNELS = 32, 16  # points of a picture's side whose spectrum is taken; its channels, at most
_WIDE, _DIFFERENT = 8, 32  # numbers of a row; different ones, or three quarters of them
_BATCHES, _ROWS, _COMPARED = 8, 8, 256  # batches of different examples; rows of each; batches at most
_SHORTEST, _SAME = 8, 0.35  # steps of an epoch; squared distance of its batches, of that of all pairs
_RISING, _TURNS, _ALONG = 16, 2, 0.95  # batches; epochs; correlation of a batch's rank with its place in the epoch
_ALTERED, _UNALTERED = 64, 0.1  # rows of an evaluation, at least; of them, that are exactly as they were
_CHANCE = 1e-4  # that groups that are drawn are the same so often


class Likeness(PassesOfEvaluation):
    """Sketches of the rows of some steps, and of evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self._signs: dict[tuple[int, str], Tensor] = {}
        self._sums: dict[float, Floats] = {}  # of the signs, by width: what a row of ones has
        self._rows: Tensor | None = None
        self._waves: dict[tuple[int, str], Tensor] = {}
        self._kept = KeptSketches()
        self._last: Floats | None = None  # rows of the last evaluation
        self._width = -1.0  # of rows that are compared: others have other signs
        self._steps: list[int] = []
        self._means: list[Floats] = []
        self._within: list[Floats] = []
        self._counts: list[int] = []
        self._leaps, self._behind = Leaps(), KeptPlanes()

    def trained(self, rows: Tensor) -> None:
        """Rows of a step."""
        pictures = small_pictures(rows)
        self._rows = self._sketched(rows, pictures)
        self._leaps.trained(pictures)

    def trained_no_more(self) -> None:
        """The rows of the step were not trained on."""
        self._rows = None
        self._leaps.trained_no_more()

    def between(self, current: ModelRound, rows: Tensor, steps: tuple[str, ...]) -> None:
        """Rows of steps that were not looked at. steps: how many steps ago that was."""
        pictures = small_pictures(rows)
        if self._kept.again:
            return
        found = None if self._kept.is_full else self._sketched(rows, pictures)
        if found is not None:
            current.put("between_likeness", steps, found)
        self._leaps.between(current, pictures)

    def thin(self) -> None:
        super().thin()
        self._leaps.thin()

    def forget(self) -> None:
        super().forget()
        self._leaps.forget()

    def evaluated(self, rows: Tensor) -> None:
        """Rows of a pass of an evaluation."""
        count = _OF_PASS if len(self._evaluated) < _FIRST else _OF_LATER
        first = not self._evaluated
        some = even_rows(rows, count)
        pictures = small_pictures(some)
        found = self._sketched(some, pictures)
        if found is not None:
            self._evaluated.append(found)
        self._leaps.evaluated(small_pictures(even_rows(rows, EVALUATED)) if first else pictures)

    def put(self, current: ModelRound, evaluation: bool) -> None:
        """A step begins. evaluation: what came before it was one."""
        import torch

        if self._rows is not None:
            current.put("likeness", tuple(map(str, range(self._rows.shape[1]))), self._rows)
        if self._evaluated and evaluation:
            names = tuple(str(at) for at, one in enumerate(self._evaluated) for _ in range(one.shape[1]))
            current.put("evaluated_likeness", names, torch.cat(self._evaluated, 1))
        self._rows, self._evaluated = None, []
        self._leaps.put(current, evaluation)

    def _sketched(self, rows: Tensor, pictures: Tensor | None) -> Tensor | None:
        """Of each row [columns, n]; None of what has no rows of numbers."""
        import torch

        if not rows.is_floating_point() or rows.dim() < 2 or not rows.numel():
            return None
        with torch.autocast(rows.device.type, enabled=False):  # of the training: its evaluations may have none
            return self._in_full(rows, pictures)

    def _in_full(self, rows: Tensor, pictures: Tensor | None) -> Tensor:
        """`_sketched` in single precision."""
        import torch

        lines = local(rows.detach()).flatten(1)
        lines = lines[:, :: max(1, -(-lines.shape[1] // _ELEMENTS))].float()
        width = lines.shape[1]
        if (width, str(lines.device)) not in self._signs:
            drawn = drawn_signs(width)
            self._sums[float(width)] = drawn.sum(0)
            self._signs[width, str(lines.device)] = torch.from_numpy(drawn).to(lines)
        varied = lines.new_zeros(len(lines))
        if width >= _WIDE:
            different = (lines.sort(1).values.diff(dim=1) != 0).sum(1) + 1
            varied = (different >= min(_DIFFERENT, 3 * width // 4)).float()
        widths = torch.full_like(varied, width)
        spectrum = None if pictures is None else self._spectrum(pictures)
        drawn_as = torch.full_like(varied, spectrum is not None)
        own = torch.stack([lines.mean(1), lines.square().mean(1).sqrt(), varied, widths, drawn_as])
        sketch = (lines @ self._signs[width, str(lines.device)]).T
        return torch.cat([own, sketch, torch.zeros_like(sketch) if spectrum is None else spectrum.T])

    def _spectrum(self, pictures: Tensor) -> Tensor:
        """Sketches [n, signs] of the amplitudes of small pictures [n, channels, height, width]: of each wave and the
        one that is its mirror image together."""
        import torch

        high, wide = (self._waves_of(side, pictures) for side in pictures.shape[2:])
        waves = high @ pictures @ wide.T
        parts = waves.reshape(*waves.shape[:2], 2, len(high) // 2, 2, len(wide) // 2)
        amplitudes = parts.square().sum((2, 4)).sqrt().flatten(1)
        width, device = amplitudes.shape[1], f"spectrum {amplitudes.device}"
        if (width, device) not in self._signs:
            self._signs[width, device] = torch.from_numpy(drawn_signs(width)).to(amplitudes)
        found: Tensor = amplitudes @ self._signs[width, device]
        return found

    def _waves_of(self, side: int, like: Tensor) -> Tensor:
        """Cosines and sines of all waves that a side of points holds [waves, points]."""
        import torch

        if (side, str(like.device)) not in self._waves:
            angles = numpy.outer(numpy.arange(side // 2 + 1), numpy.arange(side)) * (2 * math.pi / side)
            waves = numpy.concatenate([numpy.cos(angles), numpy.sin(angles)])
            self._waves[side, str(like.device)] = torch.from_numpy(waves).to(like)
        return self._waves[side, str(like.device)]

    def fields_of(self, numbers: Mapping[str, Any], known: list[bool], step: int) -> dict[str, float]:
        """What is recorded of a step. known: of the rows of its batch, whether they had come before."""
        found = self._leaps.fields_of(numbers, known)
        if "evaluated_likeness" in numbers:
            found |= self._near(*numbers["evaluated_likeness"]) | self._altered(numbers["evaluated_likeness"][1].T)
        found |= self._behind.fields_of(numbers)  # noise hides near copies from what the model is given
        if "likeness" in numbers and len(known) == len(numbers["likeness"][0]):
            rows = numbers["likeness"][1].T
            self._width = float(rows[0, 3]) if self._width < 0 else self._width
            if not numpy.isfinite(rows).all() or rows[0, 3] != self._width:
                return found
            if 2 * sum(known) < len(known) and len(self._means) < _COMPARED:
                found |= self._apart(rows, step)
            self._kept.keep(rows, numpy.array(known, bool), numpy.full(len(rows), step))
        return found

    def keep_between(self, numbers: Mapping[str, Any], known: list[bool], step: int) -> None:
        """Remember rows of steps that were not looked at. known: whether each had come before."""
        if "between_likeness" in numbers and len(known) == len(numbers["between_likeness"][0]):
            ago, values = numbers["between_likeness"]
            rows = values.T
            self._width = float(rows[0, 3]) if self._width < 0 else self._width
            fine = numpy.isfinite(rows).all(1) & (rows[:, 3] == self._width)
            steps = step - numpy.array([int(one) for one in ago])
            self._kept.keep_if_new(rows[fine], numpy.array(known, bool)[fine], steps[fine])
        if not self._kept.again:
            self._leaps.keep_between(numbers, known)

    def _apart(self, rows: Floats, step: int) -> dict[str, float]:
        """Which part of the variance lies between batches: in the column where it is most, and in half of the sketches'
        columns or more when each row has mean 0 and deviation 1, so that no brightness of a batch counts."""
        if len(rows) < _ROWS:
            return {}
        mean, size, sketch = rows[:, :1], rows[:, 1:2], rows[:, SKETCH]
        spread = numpy.sqrt(numpy.maximum(size**2 - mean**2, 1e-12))
        columns = numpy.concatenate([mean, size, sketch, (sketch - mean * self._sums[self._width]) / spread], 1)
        self._means.append(columns.mean(0))
        self._within.append(columns.var(0, ddof=1))
        self._counts.append(len(rows))
        self._steps.append(step)
        if len(self._means) < _BATCHES:
            return {}
        means, variances = numpy.array(self._means), numpy.array(self._within)
        within = variances.mean(0)
        between = means.var(0, ddof=1) - within / float(numpy.mean(self._counts))
        both = between + within
        share = numpy.where(both > 0, between / numpy.where(both > 0, both, 1.0), 0.0)
        following = beside(self._steps, means[:, -SIGNS:])
        return {
            "rows_apart": float(share[:-SIGNS].max()),
            "rows_apart_even": float(numpy.median(share[-SIGNS:])),
            "apart_batches": float(len(self._means)),
            "apart_period": float(self._period()),
            "apart_rising": float(self._rising()),
            "apart_beyond": beyond_chance(means[:, -SIGNS:], variances[:, -SIGNS:], self._counts),
            "apart_blocks": float(blocks(self._steps, means[:, -SIGNS:], variances[:, -SIGNS:], self._counts)),
            **({} if following is None else {"apart_beside": following}),
        }

    def _rising(self) -> int:
        """After how many steps the mean, or the size, of batches begins anew that rises or falls until then; 0 where
        there is no such number."""
        steps = numpy.array(self._steps)
        longest = int(steps[-1] - steps[0]) // _TURNS
        if len(steps) < _RISING or longest < _SHORTEST:
            return 0
        periods = numpy.arange(_SHORTEST, longest + 1)
        phases = (steps % periods[:, None]) / periods[:, None]
        phases = phases - phases.mean(1, keepdims=True)
        lengths = numpy.sqrt((phases**2).sum(1))
        best = numpy.zeros(len(periods))
        for column in numpy.array(self._means)[:, :2].T:
            ranks = column.argsort().argsort() - (len(column) - 1) / 2
            along = numpy.abs(phases @ ranks) / numpy.maximum(lengths * math.sqrt((ranks**2).sum()), 1e-12)
            best = numpy.maximum(best, along)
        at = int(best.argmax())
        return int(periods[at]) if best[at] >= _ALONG else 0

    def _period(self) -> int:
        """After how many steps batches have nearly the same means, in the even columns; 0 where there is no such."""
        steps, means = numpy.array(self._steps), numpy.array(self._means)[:, -SIGNS:]
        first, second = numpy.triu_indices(len(steps), 1)
        after = steps[second] - steps[first]
        squares = ((means[first] - means[second]) ** 2).sum(1)
        longest = int(after.max()) // 2
        alike = max(1 / len(steps), float((squares < _SAME * squares.mean()).mean()))
        least = math.log(_CHANCE / max(1, longest)) / min(math.log(alike), -1e-9)  # batches that come again
        for period in range(1, longest + 1):
            if len(steps) - len(numpy.unique(steps % period)) < least:
                continue
            if squares[after % period == 0].mean() < _SAME * squares.mean():
                return period if period >= _SHORTEST else 0  # of fewer, groups take turns
        return 0

    def _near(self, passes: tuple[str, ...], values: Floats) -> dict[str, float]:
        """Share of an evaluation's rows that are near copies of one that was trained on."""
        rows = values.T
        told = numpy.flatnonzero(numpy.isfinite(rows).all(1) & (rows[:, 2] == 1) & (rows[:, 3] == self._width))
        told = told[:: max(1, -(-len(told) // EVALUATED))]
        if not self._kept.says or not len(told):
            return {}
        pictures = bool((rows[told, 4] == 1).all())
        found = self._kept.close(rows[told], pictures)
        if found is None:
            return {}
        near, groups, chances = found
        having = {passes[at] for at, one in zip(told, near, strict=True) if one}
        return {
            "evaluated_near": float(near.mean()),
            "evaluated_near_rows": float(len(near)),
            "evaluated_near_passes": len(having) / len({passes[at] for at in told}),
            "evaluated_near_groups": groups,
            "evaluated_near_chance": chances,
            "evaluated_near_pictures": float(pictures),
        }

    def _altered(self, rows: Floats) -> dict[str, float]:
        """Whether an evaluation has the examples of the last one in the same order, altered at random: how much nearer
        they are, in the mean, to those at their own places than to those any number of places on, in deviations of
        these means: by their sketches, or by their means and sizes, which mirrors and shifts leave; and how far from
        them, of what two examples lie apart. In an order by class, or one in turns, others at such a distance are as
        near."""
        before, self._last = self._last, rows
        if before is None or rows.shape != before.shape or len(rows) < _ALTERED or not (rows[:, 2] == 1).all():
            return {}
        if not (numpy.isfinite(rows).all() and numpy.isfinite(before).all() and (rows[:, 3] == before[:, 3]).all()):
            return {}
        if (rows == before).all(1).mean() > _UNALTERED:
            return {"evaluated_altered": 0.0, "evaluated_altered_by": 0.0}
        sketches, own = (_shifted(rows[:, at], before[:, at]) for at in (SKETCH, slice(0, 2)))
        if not sketches[1:].min() > 0:
            return {}
        return {
            "evaluated_altered": max((one[1:].min() - one[0]) / max(one[1:].std(), 1e-12) for one in (sketches, own)),
            "evaluated_altered_by": float(max(0.0, sketches[0] / sketches[1:].mean())),
        }


def small_pictures(rows: Tensor) -> Tensor | None:
    """Pictures [n, channels, height, width] with sides of 32 points at most, in single precision; None of what is
    not pictures."""
    import torch

    floats = rows.is_floating_point() and rows.dim() == 4 and rows.numel()
    if not floats or min(rows.shape[2:]) < 8 or rows.shape[1] > _CHANNELS:
        return None
    pictures = local(rows.detach()).float()
    each = [-(-side // _SIDE) for side in pictures.shape[2:]]
    return pictures if each == [1, 1] else torch.nn.functional.avg_pool2d(pictures, each)


def _shifted(rows: Floats, others: Floats) -> Floats:
    """Mean squared distances of rows from others that stand 0, 1, 2, … places on, each column in its deviations."""
    deviation = numpy.maximum(others.std(0), 1e-12)
    squares = squared_distances(rows / deviation, others / deviation)
    at = (numpy.arange(len(rows))[:, None] + numpy.arange(len(rows))) % len(rows)
    found: Floats = squares[at[:, 0][:, None], at].mean(0)
    return found
