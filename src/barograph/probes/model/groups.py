"""Whether texts that belong together were dealt to both sides: drafts of one text, answers to one question, orders of
one row.

In:   rows of tokens of a pass; fingerprints of each row and of its ends, when they have arrived.
Out:  fingerprints computed on the device, exact; nothing waits. Figures for the `model` record: how often what an
      evaluation's rows have in common with the training's came there, beside how often others came.

Texts that are drawn one by one, from however small a language, have in common what is frequent: what an evaluation
has came in the training as often as other things did, or more often. Where rows are groups of a few each, and
an evaluation has some of a group, the training lacks just these: what the evaluation has came there less often than
what it has not. The order of both is that of likelihoods (the posterior mean of a Poisson's rate rises with its count:
Robbins, An empirical Bayes approach to statistics, 1956), and holds among those too that came some times or more.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from barograph.probes.model.overlaps import BITS, PassesOfEvaluation, back_to_begin, even_rows, mixed, sums_before
from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

    Whole = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

_PARTS = (7 / 16, 5 / 8)  # of a row, at least: those of 10 to 18 tokens have as many, and those of 7 to 12
KINDS = 1 + 2 * len(_PARTS)  # of a row: all of it; of each part its beginning and its end
_SHORTEST, _LONGEST = 6, 1024  # places of a row
_LEAST, _MOST = 4, 512  # tokens of a beginning, or an end: powers of two
_OF_STEP, _OF_PASS = 64, 64  # rows of a step; of a pass of an evaluation
_KEPT = 1 << 16  # different ones that are counted, of each kind
_ROWS_OF_ONE = 8  # different rows that have one beginning, or end, at most, in the mean
_ROWS_OF_PASS = 16
_SHARE = 0.2  # of an evaluation's rows: what fewer have is not looked at
_FEWEST = 8  # different ones that both sides have
_HARDLY = 0.05  # of these
_LIMITS = 12  # counts at which rows are parted into those that came as often, and those that did not


_NOTHING_LACKS = {
    "evaluated_groups": 0.0, "evaluated_groups_common": 0.0, "evaluated_groups_often": 1.0,
    "evaluated_groups_usual": 0.0, "evaluated_groups_times": 0.0, "evaluated_groups_above": 0.0,
}  # fmt: skip
_NOTHING_OPPOSES = {"evaluated_against": 0.0, "evaluated_against_of": 0.0, "evaluated_against_share": 0.0}


class Often(NamedTuple):
    """Of what came `above` times or more in the training: how many different ones an evaluation has; the shares of
    these, and of all, that came `times` times or more."""

    common: int
    share: float
    usual: float
    times: int
    above: int

    @property
    def lacking(self) -> tuple[bool, float]:
        """Whether the evaluation has hardly any of the frequent ones; and deviations by which these are fewer than
        chance gives at least."""
        error = math.sqrt(self.common * self.usual * (1 - self.usual) + 1)
        return self.share <= _HARDLY, self.common * (self.usual - self.share) / error


class Against(NamedTuple):
    """Of as many different ones of the training: the correlation of how often each came there with how many of an
    evaluation's rows have it."""

    of: int
    correlation: float

    @property
    def deviations(self) -> float:
        """How far that is from none."""
        return self.correlation * math.sqrt(self.of)


class Groups(PassesOfEvaluation):
    """Counts what the training's rows are and how they begin and end."""

    def __init__(self) -> None:
        super().__init__()
        self._step: Tensor | None = None
        self._padding = RowEnds()
        self._counts: list[Counter[int]] = [Counter() for _ in range(KINDS)]

    def trained(self, rows: Tensor) -> None:
        """Rows of a step."""
        self._step = marks(rows[:_OF_STEP], self._padding)

    def trained_no_more(self) -> None:
        """The rows of the step were not trained on."""
        self._step = None

    def between(self, current: ModelRound, rows: Tensor) -> None:
        """Rows of steps that were not looked at."""
        found = marks(rows, self._padding)
        if found is not None:
            current.put("between_groups", _names(found.numel()), found.reshape(-1))

    def evaluated(self, rows: Tensor) -> None:
        """Rows of a pass of an evaluation."""
        found = marks(even_rows(rows, _OF_PASS), self._padding, trains=False)
        if found is not None:
            self._evaluated.append(found)

    def put(self, current: ModelRound, evaluation: bool) -> None:
        """A step begins. evaluation: what came before it was one."""
        import torch

        if self._step is not None:
            current.put("groups", _names(self._step.numel()), self._step.reshape(-1))
        if self._evaluated and evaluation:
            names = tuple(str(at) for at, one in enumerate(self._evaluated) for _ in range(one.numel()))
            current.put("evaluated_groups", names, torch.cat(self._evaluated).reshape(-1))
        self._step, self._evaluated = None, []

    def fields_of(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step, in the order of steps."""
        self._count(numbers, "between_groups")
        given = numbers.get("evaluated_groups")
        found = {} if given is None else self._seen(_rows(given), given[0][::KINDS])
        self._count(numbers, "groups")
        return found

    def _count(self, numbers: Mapping[str, Any], name: str) -> None:
        if name not in numbers:
            return
        for counts, column in zip(self._counts, _rows(numbers[name]).T.tolist(), strict=True):
            if len(counts) < _KEPT:
                counts.update(mark for mark in column if mark >= 0)

    def _seen(self, rows: Whole, passes: Sequence[str]) -> dict[str, float]:
        """Of the kind that says most: of what hardly any came often, and of what comes the less here the more there. Of
        passes that have any part of the training's, where these have sixteen rows or more: others may be of another
        set. All figures of each evaluation: one that says nothing is none of two in a row, and has none of another's.
        """
        often: tuple[tuple[bool, float], dict[str, float]] = ((False, -math.inf), dict(_NOTHING_LACKS))
        against: tuple[float, dict[str, float]] = (math.inf, dict(_NOTHING_OPPOSES))
        different = len(self._counts[0])
        if not different:
            return {}
        having = {which for which, row in zip(passes, rows.tolist(), strict=True) if self._has_part(row)}
        of_these = numpy.array([which in having for which in passes], bool)
        rows = rows[of_these] if of_these.sum() >= _ROWS_OF_PASS * len(having) > 0 else rows
        for counts, column in zip(self._counts, rows.T.tolist(), strict=True):
            known = Counter(mark for mark in column if mark >= 0 and mark in counts)
            if len(known) < _FEWEST or len(counts) * _ROWS_OF_ONE < different:  # what many rows have is a form
                continue
            share = known.total() / len(rows)
            if share < _SHARE:
                continue
            found = compared([counts[mark] for mark in known], list(counts.values()))
            if found is not None and found.lacking > often[0]:
                often = (
                    found.lacking,
                    {
                        "evaluated_groups": share,
                        "evaluated_groups_common": float(found.common),
                        "evaluated_groups_often": found.share,
                        "evaluated_groups_usual": found.usual,
                        "evaluated_groups_times": float(found.times),
                        "evaluated_groups_above": float(found.above),
                    },
                )
            other = opposed(list(counts.values()), [known[mark] for mark in counts])
            if other is not None and other.deviations < against[0]:
                against = (
                    other.deviations,
                    {
                        "evaluated_against": other.correlation,
                        "evaluated_against_of": float(other.of),
                        "evaluated_against_share": share,
                    },
                )
        return often[1] | against[1] | {"evaluated_groups_rows": float(len(rows))}

    def _has_part(self, row: Sequence[int]) -> bool:
        return any(mark >= 0 and mark in counts for counts, mark in zip(self._counts, row, strict=True))


def compared(common: Sequence[int], all_of_them: Sequence[int]) -> Often | None:
    """Where those that an evaluation has lack most of what came often in the training; None where too few did.

    common: counts in the training of different ones that the evaluation has. all_of_them: of all of the training."""
    some, every = numpy.sort(numpy.asarray(common)), numpy.sort(numpy.asarray(all_of_them))
    limits = numpy.unique(every)
    if len(limits) > _LIMITS:
        limits = numpy.unique(numpy.quantile(every, numpy.linspace(0, 1, _LIMITS), method="nearest"))
    at_least_some = len(some) - numpy.searchsorted(some, limits)
    at_least_every = len(every) - numpy.searchsorted(every, limits)
    best: Often | None = None
    for low, above in enumerate(limits.tolist()):
        if at_least_some[low] < _FEWEST:
            break
        for high in range(low + 1, len(limits)):
            one = Often(
                int(at_least_some[low]),
                float(at_least_some[high] / at_least_some[low]),
                float(at_least_every[high] / at_least_every[low]),
                int(limits[high]),
                int(above),
            )
            if best is None or one.lacking > best.lacking:
                best = one
    return best


def opposed(trained: Sequence[int], evaluated: Sequence[int]) -> Against | None:
    """Where what came more often in the training is most clearly what fewer of an evaluation's rows have, as where both
    are parts of one group each; None of few, or where all are alike.

    trained, evaluated: of each different one of the training, how often it came there, and in how many rows here."""
    there, here = numpy.asarray(trained, float), numpy.asarray(evaluated, float)
    limits = numpy.unique(numpy.quantile(there, numpy.linspace(0, 1, _LIMITS), method="nearest"))
    best: Against | None = None
    for low in limits.tolist():
        some = there >= low
        if some.sum() < 2 * _FEWEST or there[some].std() == 0 or here[some].std() == 0:
            continue
        one = Against(int(some.sum()), float(numpy.corrcoef(there[some], here[some])[0, 1]))
        if best is None or one.deviations < best.deviations:
            best = one
    return best


class RowEnds:
    """Which token stands at the ends of rows without being theirs: the one of which most were seen in a row there. A
    batch's longest row has none of it, and is compared with others all the same."""

    def __init__(self) -> None:
        self._most: list[Tensor | None] = [None, None]  # in front and behind: how often in a row, and which token

    def ends(self, lines: Tensor, trains: bool) -> tuple[Tensor, Tensor]:
        """Where rows begin and end without it, each [n]; at once what is one token alone. trains: rows of the training,
        which say what it is: a model that writes in an evaluation may repeat itself."""
        import torch

        length, found = lines.shape[1], []
        for side, turned in enumerate((lines, lines.flip(1))):
            token = turned[:, :1]
            run = (turned == token).long().cumprod(1).sum(1)
            longest = torch.where(run < length, run, 0)
            at = longest.argmax().reshape(1)
            most = torch.cat([longest[at], token[:, 0][at]])
            before = self._most[side]
            if before is not None and before.device == most.device:
                most = torch.where(before[0] >= (most[0] if trains else 2), before, most)
            if trains:
                self._most[side] = most
            is_one = (most[0] > 1) & (token[:, 0] == most[1])
            found.append(torch.where(is_one | (run == length), run, 0))
        return found[0], torch.maximum(length - found[1], found[0])


def marks(rows: Tensor, padding: RowEnds, trains: bool = True) -> Tensor | None:
    """Fingerprints [n, KINDS] of rows of tokens [n, places], without padding at either end: of all of a row, of its
    first tokens and of its last, as many as the smallest power of two that is such a part of it or more (`_PARTS`). -1
    where a row is too short; None where rows are not of tokens."""
    import torch

    if rows.is_floating_point() or rows.dim() != 2 or mesh_of(rows) is not None:
        return None
    if not _SHORTEST <= rows.shape[1] <= _LONGEST or not len(rows):
        return None
    lines = local(rows.detach()).long()
    begin, end = padding.ends(lines, trains)
    real = end - begin
    sums, back = sums_before(mixed(lines + 1)), back_to_begin(lines.shape[1] + 1, lines)
    powers_of_two = torch.arange(_LEAST.bit_length() - 1, _MOST.bit_length(), device=lines.device)
    sizes = torch.ones_like(powers_of_two) << powers_of_two  # made on the device: a copy to it would wait

    first, last = [begin], [end]
    for part in _PARTS:
        large = sizes[(sizes < part * real[:, None]).sum(1).clamp_max(len(sizes) - 1)]
        large = torch.where(large < real, large, 0)
        first, last = [*first, begin, end - large], [*last, begin + large, end]
    begins, ends = torch.stack(first, 1), torch.stack(last, 1)
    many = ends - begins
    found = mixed((sums.gather(1, ends) - sums.gather(1, begins)) * back[begins] + many) & BITS
    return torch.where((many >= _LEAST) & (real[:, None] >= _SHORTEST), found, -1)


def _rows(put: tuple[Any, Any]) -> Whole:
    found: Whole = numpy.asarray(put[1][0]).astype(numpy.int64).reshape(-1, KINDS)
    return found


def _names(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))
