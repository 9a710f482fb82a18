"""Rows of an evaluation that say the same as a row of the training, in other words: phrasings of one fact, tellings of
one story, pieces in another order.

In:   rows of tokens of a pass; fingerprints of what each row has, when they have arrived.
Out:  fingerprints computed on the device, exact; nothing waits. Figures for the `model` record: how many of an
      evaluation's rows have a sibling in the training.

A row has its tokens, each as often as it comes, and those that stand side by side. What few rows of the training have
says more of a row than what many have: it weighs the logarithm of one in how many rows have it. Of all that a row
weighs a sibling has most; and the step from it down to the tenth nearest row is far longer than the one from there to
the hundredth. Where rows are alike by chance, as in a language of few words, each step by ten is about as long as the
next one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy

from barograph.probes.model.overlaps import PassesOfEvaluation, even_rows, mixed
from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound
    from barograph.probes.model.row_passages import Floats

    Whole = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

HAD = 96  # fingerprints of a row: all of its tokens and pairs where it has 48 places or fewer, else an even sample
_SHORTEST, _LONGEST = 6, 256  # places of a row
_FEWEST = 8  # fingerprints of a row that says something
_PLACES = 1024  # above all places
_BITS = (1 << 42) - 1  # of a fingerprint: with a place behind it a double holds it
_NOTHING = 1 << 53  # above all of them
_PADDING = 2  # equal tokens at an end of a row, above which they are padding
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
_KEPT, _ENOUGH = 1024, 128  # rows of the training; and as many at least, so that the hundredth nearest is like any
_LOOKED, _IN_PASS = 64, 64  # rows of an evaluation; and of each of its passes
_OF_PASS = 16  # rows of a pass that must have one with a sibling
_FIRST, _MORE = 3, 1.25  # looks at evaluations; behind them, where the training has had that many times the rows
_LAST = 12  # looks at evaluations
_SAYS, _SAYS_NEAR = 3, 5  # times what one thing weighs that one row has: what weighs no more comes again by chance
_TOKENS, _PAIRS = 8, 10  # that a sibling has in common: of a few fields, and what follows from these, all come again
_OFTEN = 3  # one in as many rows, at most, has such a token or pair
_ANEW = 0.25  # of rows of the training: siblings of others
_PART, _LEAST = 0.6, 0.08  # of what a row weighs; the step behind the tenth nearest counts as no shorter than that
_STEP, _STEP_NEAR = (
    2.5,
    3.0,
)  # how much longer the step to the tenth is than that behind, in all rows and in the nearest
_TENTH, _NEAREST, _HUNDREDTH = 10, 50, 100  # rows of the training by how much they have in common with one
_SAME_SHIFT = 0.8  # of what two rows have in common, at places that lie equally far apart: the rest is by chance


def things_had(rows: Tensor) -> Tensor | None:
    """Fingerprints of tokens and of pairs side by side, each with its place [n, HAD], least first; -1 where a row has
    no more. None where there are no rows of tokens. Padding is left out."""
    import torch

    if rows.is_floating_point() or rows.dim() != 2 or rows.shape[1] < _SHORTEST or mesh_of(rows) is not None:
        return None
    lines = local(rows.detach())[:, :_LONGEST].long()
    places = torch.arange(lines.shape[1], device=lines.device)
    real = ~(_padding(lines) | _padding(lines.flip(1)).flip(1))
    ordered = lines.sort(dim=1, stable=True)
    begins = torch.nn.functional.pad(ordered.values[:, 1:] != ordered.values[:, :-1], (1, 0), value=True)
    since = places - torch.where(begins, places, 0).cummax(1).values
    times = torch.empty_like(lines).scatter_(1, ordered.indices, since)  # it came before in its row
    tokens = mixed(lines + 1)
    own, pairs = mixed(tokens + (times + 1) * _FACTOR), mixed(tokens[:, :-1] * 3 + tokens[:, 1:])
    each = torch.cat([own * 2, pairs * 2 + 1], 1) & _BITS
    marks = each * _PLACES + torch.cat([places, places[:-1]])
    known = torch.cat([real, real[:, :-1] & real[:, 1:]], 1)
    least = marks.masked_fill(~known, _NOTHING).topk(min(HAD, marks.shape[1]), dim=1, largest=False, sorted=True).values
    found = lines.new_full((len(lines), HAD), -1)
    found[:, : least.shape[1]] = least.masked_fill(least == _NOTHING, -1)
    return found


def _padding(lines: Tensor) -> Tensor:
    """Where rows begin with the same token again and again."""
    same = (lines == lines[:, :1]).long().cumprod(1)
    return (same * (same.sum(1, keepdim=True) > _PADDING)).bool()


class SiblingLook(PassesOfEvaluation):
    """Of steps that were trained on, and of an evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self._step: Tensor | None = None
        self._known = Siblings()
        self._again = False  # whether rows of the training came again, in other words
        self._given = self._looks = self._looked_at = 0  # rows of steps; looks at evaluations; rows at the last one

    @property
    def _is_due(self) -> bool:
        """Whether an evaluation is worth a look: the first ones, and where many rows were trained on since the last."""
        more = self._looks < _FIRST or self._given >= _MORE * self._looked_at
        return self._given >= _ENOUGH and self._looks < _LAST and more

    def trained(self, rows: Tensor) -> None:
        """Rows of a step."""
        self._step = None if self._known.is_full else things_had(rows)

    def trained_no_more(self) -> None:
        """The rows of the step were not trained on."""
        self._step = None

    def between(self, current: ModelRound, rows: Tensor) -> None:
        """Rows of steps that were not looked at."""
        found = None if self._known.is_full or self._again else things_had(rows)
        if found is not None:
            self._given += len(found)
            current.put("between_things", tuple(map(str, range(found.numel()))), found.reshape(-1))

    def evaluated(self, rows: Tensor) -> None:
        """Rows of a pass of an evaluation."""
        found = things_had(even_rows(rows, _IN_PASS)) if self._is_due else None
        if found is not None:
            self._evaluated.append(found)

    def put(self, current: ModelRound, evaluation: bool) -> None:
        """A step begins. evaluation: what came before it was one."""
        import torch

        if self._step is not None:
            self._given += len(self._step)
            current.put("things", tuple(map(str, range(self._step.numel()))), self._step.reshape(-1))
        if self._evaluated and evaluation:
            self._looks, self._looked_at = self._looks + 1, self._given
            rows = torch.cat(self._evaluated)
            every = -(-len(rows) // _LOOKED)
            passes = [str(at) for at, one in enumerate(self._evaluated) for _ in range(len(one))][::every]
            names = tuple(one for one in passes for _ in range(HAD))
            current.put("evaluated_things", names, rows[::every].reshape(-1))
        self._step, self._evaluated = None, []

    def fields_of(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step, in the order of steps."""
        found: dict[str, float] = {}
        if "between_things" in numbers:
            rows = numbers["between_things"][1][0].reshape(-1, HAD)
            share = self._known.seen(rows, ("",) * len(rows)).get("evaluated_siblings", 0.0)
            self._again = self._again or share >= _ANEW
            if not self._again:
                self._known.keep(rows)
        if "evaluated_things" in numbers:
            passes, values = numbers["evaluated_things"]
            found = self._known.seen(values[0].reshape(-1, HAD), passes[::HAD])
        if "things" in numbers:
            self._known.keep(numbers["things"][1][0].reshape(-1, HAD))
        return found


class Siblings:
    """Different rows of the training, by what they have."""

    def __init__(self) -> None:
        self._rows: list[Whole] = []
        self._whole: set[bytes] = set()

    @property
    def is_full(self) -> bool:
        """Whether no more rows are kept."""
        return len(self._rows) >= _KEPT

    def keep(self, rows: Floats) -> None:
        """Rows of a step [n, HAD]."""
        for row in rows.astype(numpy.int64):
            if not self.is_full and row[_FEWEST - 1] >= 0 and (whole := row.tobytes()) not in self._whole:
                self._whole.add(whole)
                self._rows.append(row)

    def seen(self, rows: Floats, passes: Sequence[str]) -> dict[str, float]:
        """Of an evaluation's rows the share that have a sibling in the training; how many were looked at; and the share
        of its passes of sixteen rows or more that have any. Rows of the training itself don't count."""
        if len(self._rows) < _ENOUGH:
            return {}
        known = _Index(self._rows)
        asked: dict[str, list[bool]] = {}
        for row, which in zip(rows.astype(numpy.int64), passes, strict=True):
            if row[_FEWEST - 1] >= 0 and row.tobytes() not in self._whole:
                asked.setdefault(which, []).append(known.has_sibling(row))
        total = sum(map(len, asked.values()))
        if not total:
            return {}
        having = [any(one) for one in asked.values() if len(one) >= _OF_PASS]
        return {
            "evaluated_siblings": sum(map(sum, asked.values())) / total,
            "evaluated_siblings_rows": float(total),
            "evaluated_siblings_passes": sum(having) / len(having) if having else 1.0,
        }


class _Index:
    """Which rows have what, and how much that weighs."""

    def __init__(self, rows: Sequence[Whole]):
        self._rows = rows
        marks = numpy.stack(rows)
        number = numpy.repeat(numpy.arange(len(rows)), HAD)[marks.ravel() >= 0]
        both = numpy.unique((marks[marks >= 0] // _PLACES) * _KEPT + number)  # each once a row
        self._owners = both % _KEPT
        self._names, self._begins, self._counts = numpy.unique(both // _KEPT, return_index=True, return_counts=True)
        self._weights = numpy.log(len(rows) / self._counts)

    def has_sibling(self, row: Whole) -> bool:
        """Whether a row of the training stands out from the others by what it has in common with this one: by how rare
        that is in the training, or among the rows that are nearest, as those of one form are."""
        own = numpy.unique(row[row >= 0] // _PLACES)
        at = numpy.searchsorted(self._names, own).clip(max=len(self._names) - 1)
        at = at[self._names[at] == own]
        number, others = len(self._rows), len(own) - len(at)
        weighs = float(self._weights[at].sum()) + others * math.log(number)
        if weighs <= _SAYS * math.log(number):
            return False
        counts, begins = self._counts[at], self._begins[at]
        which = numpy.arange(int(counts.sum())) + numpy.repeat(begins - counts.cumsum() + counts, counts)
        owners, thing = self._owners[which], numpy.repeat(numpy.arange(len(at)), counts)
        pair, tells = self._names[at] % 2 == 1, self._weights[at] >= math.log(_OFTEN)
        several = numpy.bincount(owners, (tells & ~pair)[thing], number) >= _TOKENS
        several |= numpy.bincount(owners, (tells & pair)[thing], number) >= _PAIRS
        parts = numpy.bincount(owners, self._weights[at][thing], number) / weighs
        if self._stands_out(row, parts, _STEP, several, numpy.arange(number)):
            return True
        near = numpy.argpartition(parts, -_NEAREST)[-_NEAREST:]
        place = numpy.full(number, -1)
        place[near] = numpy.arange(_NEAREST)
        owners, thing = place[owners[place[owners] >= 0]], thing[place[owners] >= 0]
        rare = _rarity(numpy.bincount(thing, minlength=len(at)))
        weighs = float(rare.sum()) + others * float(_rarity(numpy.zeros(1))[0])
        if weighs <= _SAYS_NEAR * math.log(_NEAREST):
            return False
        parts = numpy.bincount(owners, rare[thing], _NEAREST) / weighs
        return self._stands_out(row, parts, _STEP_NEAR, several[near], near)

    def _stands_out(self, row: Whole, parts: Floats, step: float, several: Any, which: Whole) -> bool:
        """parts: what rows have of this one. several: whether that is tokens enough. which: these rows."""
        last = min(_HUNDREDTH, len(parts))
        last_part, tenth = numpy.partition(parts, (-last, -_TENTH))[[-last, -_TENTH]].tolist()
        least = max(_PART, tenth + step * max(_LEAST, tenth - last_part))
        found = which[(parts >= least) & several][:_TENTH]
        return any(not _is_past(row, self._rows[one]) for one in found.tolist())


def _rarity(counts: Any) -> Floats:
    """What things weigh, by how many of the nearest rows have them: nothing where ten or more do."""
    weights: Floats = numpy.log(_NEAREST / numpy.maximum(counts, 1)) * (counts < _TENTH)
    return weights


def _is_past(ours: Whole, theirs: Whole) -> bool:
    """Whether a row of the training is what came before: all that both have stands there at the same place or later,
    and ours goes on behind it."""
    ours, theirs = ours[ours >= 0], theirs[theirs >= 0]
    _, at, other = numpy.intersect1d(ours // _PLACES, theirs // _PLACES, return_indices=True)
    places = ours[at] % _PLACES
    apart = places - theirs[other] % _PLACES
    shifts, counts = numpy.unique(apart, return_counts=True)
    shift = shifts[counts.argmax()]
    if shift > 0 or counts.max() < _SAME_SHIFT * len(apart):
        return False
    return bool(places[apart == shift].max() < (ours % _PLACES).max())
