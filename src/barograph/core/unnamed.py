"""Losses that have a name of their own, of a training and of its evaluations: which series is one shows in its rows.

In:   the series of a run in which no name is that of such a loss; of an evaluation's, the series of its training's.
Out:  the series that is one by its first rows; those whose first rows have not come; the accuracy beside it.

`match/nce` may be anything; if it is, step by step, what the backward passes were called with, it is the loss.

`val/denoising` is of data held out, and may be a loss or another measure; `review/loss` beside `fit/loss` may be a loss
of other data, or of a part, and so may `gallery/ce`, if `gallery/acc1` stands beside it. Where the watch has seen
evaluations, `recall/itc` may be one whose rows come at these, and so may `patrol/surprise`, of which no word says
anything, if it is above 1, as no share is, and near the training's loss. What decides are the first two rows behind a
few of the training's loss, so the answer depends on what was logged, and not on when somebody asks.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barograph.core import heldout
from barograph.core.lazy import lazy
from barograph.core.patterns import expression
from barograph.core.roles import (
    RECORDED,
    is_accuracy,
    is_goodness,
    is_loss_by_word,
    is_loss_of_other_data,
    is_loss_of_other_name,
    is_of_held_out,
    is_of_no_measure,
    is_unnamed_evaluation,
    plays,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import numpy
    from numpy.typing import NDArray
else:
    numpy = lazy("numpy")

_BEFORE = 4  # rows of the training's loss before one of the evaluation's
_BETWEEN = 2  # steps between two evaluations that the watch saw
_NEAR = 8  # of them, the newest that it is compared with
_LOOKED = 32  # rows among which two have to stand behind the first of the training
_HIGHEST, _LOWEST, _NEAREST = 8.0, 0.25, 0.5  # times the training's loss: at first; at least, of data or of a loss
_RISES = 2.0  # from the first to the second row, at most
_WRONG = 64.0  # times the training's loss, and from row to row, of a loss by its word where the watch saw evaluations
_SLACK = 3  # steps: a watch that rests looks some later
_BESIDE, _SHARE = 2.0, 1.0  # times the training's loss, of a name that says nothing; above what it is
_FAR = 0.05  # times the training's loss, at least, of what is logged where the watch has seen evaluations
_WORD = expression(r"[a-z0-9]+")
_OF_WHICH = frozenset({*heldout.WORDS, *heldout.APART, "train", "training", "tr", "step", "batch"})
SEEN = ("model/evaluated_rows", "model/evaluated_steps")  # of an evaluation's passes, at the step behind them
_SUMS = ("model/backwards", "model/loss_adds")  # see `_added_up`
_WEIGHTS = (  # of the mean of cross-entropies, of squares, in the loss; of cross-entropies, how many are added up
    "model/loss_weight", "model/square_weight", "model/loss_summed", "model/weighed_sum",
)  # fmt: skip
_COUNTED = (  # of squares, how many are added up in one pass
    "model/squares_added", "model/weighted_squares_added", "model/scaled_squares_added",
)  # fmt: skip
_ADDED, _WHOLE = 8, 2e-3  # of them, at least; off a whole number, of squares
GIVEN = "model/loss_given"  # what a step's backward passes were called with, in all
_EQUAL, _ASKED = 6, 64  # steps in a row, of those that have both, that tell it; steps of it, after which none is
_WITHIN = 1024  # rows of a series, among which these have to be
_EXACT, _DIFFER = 1e-4, 100.0  # apart from what was given at most, of it; times as much it has to vary
_NUMBER = 1e-6  # of a number: what single precision keeps of it
_SAME = 0.02  # of the mean of the training's rows since the one before, in both: it is this mean


class FirstRows(Protocol):
    """Columns of one length, in the order in which the rows were logged; time in µs since 1970."""

    step: NDArray[numpy.int64]
    value: NDArray[numpy.float64]
    time: NDArray[numpy.int64]
    segment: NDArray[numpy.int32]

    def __len__(self) -> int: ...


class ReadSeries(Protocol):
    """A series whose rows can be read. start: the oldest row that is kept; end: how many there ever were."""

    @property
    def name(self) -> str: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    def rows(self, first: int = 0, last: int | None = None) -> FirstRows: ...


One = TypeVar("One", bound=ReadSeries)


def evaluation_called(loss: str, names: Iterable[str]) -> str | None:
    """The series that is called as a loss with a name of its own is, and is of data held out: `val_nce` of `nce`."""
    own = _words_of_measure(loss)
    same = (name for name in names if name != loss and is_of_held_out(name) and _words_of_measure(name) == own)
    return min(same, key=lambda name: (len(name), name), default=None) if own else None


@lru_cache(maxsize=1024)
def _words_of_measure(name: str) -> tuple[str, ...]:
    """The words of a series but those that say whether it is of a training or of data held out."""
    return tuple(word for word in _WORD.findall(name.lower()) if word not in _OF_WHICH)


def loss_by_rows(channels: Mapping[str, One]) -> tuple[One | None, list[One]]:
    """The series that is what the first backward passes were called with, or a fixed multiple of it; of several the one
    whose multiple is nearest to 1. Where a reward is logged, a loss says nothing of how the training goes. Beside it:
    series that may be one when more rows have come."""
    asked_for = may_be_loss(channels)
    if not asked_for or channels[GIVEN].start:
        return None, []
    given, found = channels[GIVEN], []
    asked, pending = given.rows(0, _ASKED), [given] if given.end < _ASKED else []
    for name in asked_for:
        channel = channels[name]
        if channel.start:
            continue
        pairs = _side_by_side(asked, channel.rows(0, _WITHIN))
        windows = (pairs[at : at + _EQUAL] for at in range(len(pairs) - _EQUAL + 1))  # a loss's scale may change
        far = next((far for far in map(_fixed, windows) if far is not None), None)
        if far is not None:
            found.append((far, name, channel))
        elif pending:
            pending.append(channel)
    best = min(found, key=lambda one: one[:2])[2] if found else None
    return best, pending if best is None else []


def may_be_loss(names: Collection[str]) -> list[str]:
    """The series whose rows have to be looked at, to know whether one is the training's loss."""
    if GIVEN not in names or any(plays("reward", name) for name in names):
        return []
    return [name for name in names if not name.startswith(RECORDED) and not is_of_held_out(name)]


def _side_by_side(asked: FirstRows, rows: FirstRows) -> Any:
    """What was given and what is logged [steps, 2], of each step of what was given that has one logged row."""
    same = (asked.step[:, None] == rows.step) & (asked.segment[:, None] == rows.segment)
    alone = same.sum(1) == 1
    return numpy.stack([asked.value[alone], rows.value[same[alone].argmax(1)] if alone.any() else rows.value[:0]], 1)


def _fixed(pairs: Any) -> float | None:
    """How far the fixed multiple is from 1, as a logarithm; None where there is none. A scaler doubles and halves what
    passes are called with."""
    given, logged = pairs.T
    if not (numpy.isfinite(given).all() and numpy.isfinite(logged).all() and given.all() and logged.all()):
        return None
    times = logged / given
    middle = float(numpy.sort(times)[len(times) // 2])
    doubled = numpy.log2(numpy.abs(times / middle))
    apart = max(_NUMBER, float(numpy.abs(numpy.exp2(doubled - numpy.round(doubled)) - 1).max()))
    varied = float(numpy.ptp(logged / logged.mean())) > _DIFFER * apart
    return abs(math.log(middle)) if varied and apart < _EXACT and (times > 0).all() else None


def evaluation_by_rows(channels: Mapping[str, One], loss: One) -> tuple[One | None, list[One]]:
    """Of several whose second row came at the same time, the one that is nearest to the training's loss; and series
    that may be one when more rows have come."""
    pending: list[One] = []
    found = []
    seen = [channels[name] for name in SEEN if name in channels]
    for name in may_be_evaluation(channels, loss.name):
        channel, of_data = channels[name], is_unnamed_evaluation(name)
        two = _first_two(channel, loss)
        if two is None:
            if channel.end < _LOOKED:
                pending.append(channel)
            continue
        if _is_as_good(channels, name, two, loss):
            continue
        near = _distance(two, loss, _LOWEST, True) if of_data else None
        at = None if not seen or near is not None else _at_evaluations(two, loss, seen, of_data)
        if at is None and seen and near is None:
            pending += [channel, *seen]  # the watch's records come behind the rows of a fast loop
        kind = _by_its_name(name, loss.name)
        if not at and (kind >= _IS_SEEN or (kind == _IS_BESIDE and not _has_beside(channels, name))):
            continue
        if kind == _IS_ANY:
            fars = [_distance(two, loss, 1 / _BESIDE, False)] if min(one[1] for one in two) > _SHARE else []
            fars = [far for far in fars if far is not None and far < math.log(_BESIDE)]
        elif at:
            parts = {1.0, _added_up(channels, two, loss)}
            lowest, seen_far = (_LOWEST, False) if of_data else (_FAR, True)  # of any word, or of a loss's
            fars = [_distance(two, loss, lowest, True, part, seen_far) for part in parts]
        else:
            fars = [near if of_data else _distance(two, loss, _NEAREST, False)]
        if known := [far for far in fars if far is not None]:
            found.append((kind == _IS_ANY, two[1][0], min(known), name, channel))
    return min(found, key=lambda one: one[:4])[4] if found else None, pending


def may_be_evaluation(names: Collection[str], loss: str) -> list[str]:
    """The series whose rows have to be looked at, to know whether one is an evaluation's loss beside this one of the
    training."""
    told = ((name, _by_its_name(name, loss)) for name in names)
    seen = any(name in names for name in SEEN)
    return [
        name for name, kind in told
        if kind == _IS or (kind and seen) or (kind == _IS_BESIDE and _has_beside(names, name))
    ]  # fmt: skip


_IS, _IS_BESIDE, _IS_SEEN, _IS_ANY = 1, 2, 3, 4
"""Whatever else is logged; if a measure stands beside it; where the watch has seen it, by its word or near the loss."""


@lru_cache(maxsize=1 << 14)
def _by_its_name(name: str, loss: str) -> int:
    """Whether a series may be an evaluation's loss beside this one of the training: `_IS`, …, or 0."""
    if name == loss or name.startswith(RECORDED):
        return 0
    if is_unnamed_evaluation(name) or is_loss_of_other_data(name, loss):
        return _IS
    if is_loss_of_other_name(name, loss):
        return _IS_BESIDE
    return _IS_SEEN if is_loss_by_word(name, loss) else _IS_ANY if is_of_no_measure(name) else 0


def _has_beside(names: Collection[str], name: str) -> bool:
    """Whether what may be the loss of other data has a measure of how good answers are beside it, as `gallery/ce` has
    `gallery/acc1`."""
    return any(is_goodness(word) for _, word in beside_of(names, name))


def beside_of(names: Collection[str], name: str) -> list[tuple[str, str]]:
    """The series that are called as this one but for its last word, with theirs: `quiz/acc` beside `quiz/loss`,
    `est_acc` beside `est_nll`; or but for its first, where that is a loss: `acc/quiz` beside `loss/quiz`."""
    mark = next((mark for mark in "/._- " if mark in name), "")
    head, _, last = name.rpartition(mark) if mark else ("", "", name)
    first, _, tail = name.partition(mark) if mark else (name, "", "")
    if not mark:
        return []
    if plays("loss", first) and not plays("loss", last):
        return [(other, other[: -len(tail) - 1]) for other in names if other.endswith(mark + tail) and other != name]
    return [(other, other[len(head) + 1 :]) for other in names if other.startswith(head + mark) and other != name]


def _is_as_good(
    channels: Mapping[str, One], name: str, two: tuple[tuple[int, float, list[float]], ...], loss: ReadSeries
) -> bool:
    """Whether two rows are in one proportion to those of a measure of how good answers are beside them: the same
    measure in another unit, as `valid/lift` beside `valid/recall@20`."""
    timed = bool(loss.rows(0, 1).time.any())
    for other in (other for other, word in beside_of(channels, name) if is_goodness(word)):
        rows = channels[other].rows(0, _LOOKED)
        known = dict(zip(_moments(rows, timed), rows.value.tolist(), strict=True))
        beside = [known.get(moment, math.nan) for moment, _, _ in two]
        times = [value / theirs if theirs > 0 else math.nan for (_, value, _), theirs in zip(two, beside, strict=True)]
        if beside[0] != beside[1] and times[0] > 0 and abs(times[1] / times[0] - 1) < _EXACT:
            return True
    return False


def _moments(rows: FirstRows, timed: bool) -> list[int]:
    return [int(moment) for moment in (rows.time if timed else rows.step)]


def _first_two(channel: ReadSeries, loss: ReadSeries) -> tuple[tuple[int, float, list[float]], ...] | None:
    """Moment, value, and the training's losses until then, of the first two rows behind some of the training."""
    theirs, ours = channel.rows(0, _LOOKED), loss.rows()
    timed = bool(len(ours)) and bool(ours.time[0])
    moments, result = numpy.asarray(_moments(ours, timed)), []
    for moment, value in zip(_moments(theirs, timed), theirs.value.tolist(), strict=True):
        count = int(numpy.searchsorted(moments, moment, side="right"))
        if count >= _BEFORE:
            result.append((moment, value, ours.value[:count].tolist()))
        if len(result) == 2:
            return tuple(result)
    return None


def _at_evaluations(
    two: tuple[tuple[int, float, list[float]], ...], loss: ReadSeries, seen: Sequence[ReadSeries], in_a_row: bool = True
) -> bool | None:
    """Whether the watch has seen an evaluation at each of two rows, another one each time: a record is of the step
    behind the last one of the training that was logged then, or one of the next few. None where it has not come.
    in_a_row: whether these may be two steps in a row. As a rule, passes of each step belong to the training, as those
    of a generator for its discriminator's step do, and what is logged in each is a part of it."""
    rows, theirs = loss.rows(), sorted({int(step) for one in seen for step in one.rows(0, _LOOKED).step})
    found = set()
    for _, _, before in two:
        step, after = int(rows.step[len(before) - 1]), len(before)
        if after >= len(rows) or not theirs or theirs[-1] <= step:
            return None
        last = max(int(rows.step[after]), step + 1) + _SLACK
        found |= {next((one for one in theirs if step < one <= last), None)}
    steps = sorted(one for one in found if one is not None)
    return len(steps) == len(two) and (in_a_row or steps[-1] - steps[0] >= _BETWEEN)


def _added_up(channels: Mapping[str, One], two: tuple[tuple[int, float, list[float]], ...], loss: ReadSeries) -> float:
    """How many cross-entropies or squared differences the training's loss adds up for each that their mean would be
    over, as the watch saw it before the first of two rows; 1 where it saw none. An evaluation may have the mean."""
    series = ((name, channels.get(name)) for name in (*_WEIGHTS, *_COUNTED, *_SUMS))
    here = {name: one for name, one in series if one is not None and one.end and not one.start}
    weighed = next((name for name in (*_WEIGHTS, *_COUNTED) if name in here), "")
    if not weighed or (weighed not in _COUNTED and not all(name in here for name in _SUMS)):
        return 1.0
    firsts = [here[name].rows(0, 1) for name in ((weighed,) if weighed in _COUNTED else (weighed, *_SUMS))]
    weight, *others = (float(one.value[0]) for one in firsts)
    times, adds = others or (1.0, 1.0)
    came = int(firsts[0].step[0])
    count = weight * max(1.0, times)
    whole = _ADDED <= count < math.inf and abs(count / round(count) - 1) < _WHOLE
    whole = whole or (weighed == _WEIGHTS[0] and _ADDED <= count < math.inf)  # rows may differ in length
    before = came <= int(loss.rows().step[len(two[0][2]) - 1])
    return count if before and whole and adds == 1 else 1.0


def _distance(
    two: tuple[tuple[int, float, list[float]], ...],
    loss: ReadSeries,
    lowest: float,
    of_data: bool,
    parts: float = 1.0,
    seen: bool = False,
) -> float | None:
    """How far a series is from the training's loss, or from what that is over these parts, as a logarithm; None of
    another series. seen: it is a loss by its word, and the watch saw evaluations there: it may be far off."""
    (_, first, before), (_, second, after) = two
    if not (math.isfinite(first + second) and first > 0 and second > 0):
        return None
    levels = [float(numpy.median(values[-_NEAR:])) / parts for values in (before, after)]
    if not all(math.isfinite(level) and level > 0 for level in levels):
        return None
    times = [value / level for value, level in zip((first, second), levels, strict=True)]
    highest, rises = (_WRONG, _WRONG) if seen else (_HIGHEST, _RISES)
    if times[0] > highest or min(times) < lowest or second > rises * first:
        return None
    if max(first, second) <= 1 and second > 1.05 * first and levels[1] < 0.98 * levels[0]:
        return None  # a share of what is right, rather
    between = after[len(before) :]
    few = len(between) < _BEFORE
    if not of_data and (few or (_is_mean(first, before) and _is_mean(second, between))):
        return None
    return abs(math.log(times[0]))


def _is_mean(value: float, rows: list[float]) -> bool:
    return abs(value - float(numpy.mean(rows))) < _SAME * value


def measured_by_rows(channels: Mapping[str, One], loss: One) -> tuple[One | None, list[One]]:
    """A series that says how good answers are, by its name, and whose rows come where the watch has seen evaluations;
    and series that may be one when more rows have come."""
    seen = [channels[name] for name in SEEN if name in channels]
    pending: list[One] = []
    if not seen or any(plays("reward", name) for name in channels):
        return None, pending
    found = []
    for name, channel in channels.items():
        if name == loss.name or name.startswith(RECORDED) or not is_goodness(name):
            continue
        two = _first_two(channel, loss)
        at = None if two is None else _at_evaluations(two, loss, seen)
        if at is None and channel.end < _LOOKED:
            pending += [channel, *seen]
        if two is not None and at and len(two[1][2]) - len(two[0][2]) >= _BEFORE:
            found.append((two[1][0], name, channel))
    return min(found, key=lambda one: one[:2])[2] if found else None, pending


def accuracy_beside(channels: Mapping[str, One], evaluation: One) -> One | None:
    """The accuracy that is called as an evaluation's loss is, but for its word."""
    names = (name for name, word in beside_of(channels, evaluation.name) if is_accuracy(word))
    return channels.get(next(names, ""))
