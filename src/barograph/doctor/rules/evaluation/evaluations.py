"""Evaluations, one by one, with the training at that time.

In:   the series of the evaluation loss and of the loss.
Out:  `EvaluationPoint`; `Walker`, a rule that gets each of them; `Rise`, one that gets those behind the best; whether
      an evaluation is of one term of the loss alone; evaluations of an average of the weights beside those of others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import numpy

from barograph.core.patterns import expression
from barograph.core.roles import RECORDED, is_goodness, plays
from barograph.doctor.kernel.channels import Channel, RunHistory
from barograph.doctor.kernel.cursor import numbers_named
from barograph.doctor.kernel.curve import again, before, between, fell_at_once, noise_of
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.kinds import of_other_kind
from barograph.doctor.kernel.local import median
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.stages import model_begins

_SECOND = 0.4  # of a first evaluation, what a second adds to a total; a rise from one to the next is less
_AROUND = 5  # evaluations of which each row has one
_ADDS = 1.15  # times what the one before it added


_ROWS = 16  # of the training before an evaluation, at most


class EvaluationPoint(NamedTuple):
    """One evaluation, and the training at that time. train: median of the 16 losses up to it, of those behind the
    evaluation before, NaN if there are none; trained: how many these are."""

    step: int
    value: float
    train: float
    segment: int
    row: int
    trained: int = _ROWS


_OF_TRAINING = 1 / 6  # of the noise of the training's median, that an evaluation has at least
_TRAINS: WeakKeyDictionary[RunHistory, dict[tuple[str, int, int, int], tuple[float, int]]] = WeakKeyDictionary()


"""The training at an evaluation, worked out once for all rules: (series, step before, step, segment) → loss, and of how
many rows it is the median."""


_OFTEN, _AGAIN = 3, 0.25  # looks with rows that came again; of all rows, those that did, as these looks let expect
_TINY = 16  # examples of an evaluation
_EVALUATED = expression(  # options: how many examples an evaluation has
    r"(?:(?:n|num|number|max|limit)[_-](?:of[_-])?)?(?:val(?:id(?:ation)?)?|eval(?:uation)?|test|dev|held[_-]?out)[_-]"
    r"(?:set[_-])?(?:rows|samples|examples|size|items|images|pairs|texts|sentences|documents|points|tasks|episodes)"
)
_FEW = 32  # rows, of which there may be no level yet
_FEW_ROWS = 0.1  # mean share of rows that were seen before; `repeated_rows` counts from there too


class Walker(Rule):
    """A rule that walks along the evaluations."""

    family = "eval"
    needs: ClassVar[tuple[str, ...]] = ("eval_loss",)
    compares: ClassVar[bool] = False
    """Whether it compares the size of the evaluation's loss with that of the training's: evaluations of a loss of
    another kind are left out, as `ce` beside `bce`."""

    def reset(self) -> None:
        self._name: str | None = None
        self._row = 0
        self._last = (-1, -1)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel = history.role("eval_loss")
        loss = history.role("loss")
        if channel is None:
            return
        if channel.name != self._name:
            self._name, self._row, self._last = channel.name, 0, (-1, -1)
            self.begin()
        if channel.end == self._row:
            return
        rows = channel.rows(self._row)
        # an evaluation is looked at when the training has gone on, so that all losses up to its step are known
        now = (math.inf, math.inf)
        if not history.facts.get("finished"):
            newest = loss.rows(loss.end - 1) if loss is not None and loss.end else rows.part(len(rows) - 1, len(rows))
            now = (float(newest.segment[0]), float(newest.step[0]))
        for at in range(len(rows)):
            step, segment = int(rows.step[at]), int(rows.segment[at])
            if (segment, step) >= now:
                return
            self._row = rows.first + at + 1
            if segment != self._last[1] and step < 0.5 * self._last[0]:
                self.begin()  # another stage
            elif segment == self._last[1] and model_begins(history, self._last[0], step, segment):
                self.begin()  # another fold, with a model of its own
            since = self._last[0] if segment == self._last[1] else -1
            self._last = (step, segment)
            if self.compares and of_other_kind(history, channel, step, int(rows.time[at]), segment):
                continue
            known = _TRAINS.setdefault(history, {})
            key = (loss.name if loss is not None else "", since, step, segment)
            if key not in known:
                if len(known) > 16_384:
                    known.clear()
                known[key] = _train(loss, since, step, segment)
            train, trained = known[key]
            point = EvaluationPoint(step, float(rows.value[at]), train, segment, rows.first + at, trained)
            yield from self.look(history, channel, point)

    def begin(self) -> None:
        """The first evaluation comes next."""

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        """One evaluation."""
        raise NotImplementedError


def _train(loss: Channel | None, since: int, step: int, segment: int) -> tuple[float, int]:
    """The median of the last 16 losses up to a step, of those behind the evaluation before if there are any; how many
    they are."""
    if loss is None or not loss.end:
        return math.nan, 0
    rows = loss.rows(loss.end - 4096)
    if len(rows) and (rows.step[0] > step or rows.segment[0] > segment):
        rows = loss.rows()
    mine = numpy.flatnonzero((rows.segment == segment) & (rows.step <= step))[-_ROWS:]
    fresh = mine[rows.step[mine] > since]
    values = rows.value[fresh if len(fresh) else mine[-1:]]
    values = values[numpy.isfinite(values)]
    return (median(values), len(values)) if len(values) else (math.nan, 0)


def _spread(history: RunHistory, step: int, segment: int) -> float:
    """The standard deviation of single training losses, in ln, at a step; 0 where it is not known."""
    loss = history.role("loss")
    if loss is None or not loss.end:
        return 0.0
    rows = loss.rows(loss.end - 4096)
    places = numpy.flatnonzero((rows.segment == segment) & (rows.step <= step))
    if not len(places):
        return 0.0
    spread = history.local(loss, log=True).rows(rows.first + int(places[-1]), rows.first + int(places[-1]) + 1)[1]
    if len(spread) and math.isfinite(spread[0]):
        return float(spread[0])
    return noise_of(rows.value[places[-_FEW:]].tolist())  # too few rows for a level


def train_noise(history: RunHistory, step: int, segment: int, trained: int) -> float:
    """The standard deviation, in ln, of the difference of two training losses at evaluations, as it was at a step; 0
    where that is not known. trained: of how many rows each is the median."""
    rows = min(max(trained, 1), _ROWS)
    return math.sqrt(2) * _spread(history, step, segment) * (1.2533 if rows > 2 else 1.0) / math.sqrt(rows)


def gains(values: Sequence[float]) -> list[float]:
    """What each evaluation has more than the one before, and the first more than 0: of a total that is never reset,
    what was added to it."""
    return [after - before for before, after in pairwise([0.0, *values])]


def is_total(values: Sequence[float]) -> bool:
    """Whether five evaluations or more are each the total of all so far, by themselves: the second adds nearly what the
    first was, and each later one no more than the one before it, but something."""
    added = gains(values)
    falls = all(0 < after <= _ADDS * before for before, after in pairwise(added))
    return len(values) >= 5 and added[1] >= _SECOND * added[0] and falls


def of_few(history: RunHistory, point: EvaluationPoint) -> float:
    """The noise, in ln, that an evaluation has for the few answers that it gets wrong: a mean loss of L nats over N
    targets is that of about L N targets, and it has half of the deviation of such a number, for it asks the same each
    time. 0 where the watch has not counted the targets."""
    counts = between(history.channel("model/evaluated_targets"), 0, point.step + 1, point.segment)
    wrong = float(counts[-1]) * point.value if len(counts) else 0.0
    return 0.5 / math.sqrt(wrong) if wrong > 0 else 0.0


def largest_rise(values: list[float]) -> float:
    """The largest rise from one evaluation to the next, in ln; a falling curve shows its noise in what rises."""
    rises = [math.log(b) - math.log(a) for a, b in pairwise(values) if a > 0 and b > 0]
    return max([0.005, *rises]) if len(rises) > 2 else max([0.01, *rises])


def usual_change(values: list[float]) -> float:
    """The median change from one evaluation to the next, in ln, up or down; 0 of fewer than eight: those are a curve
    that falls.
    """
    if len(values) < 8:
        return 0.0
    changes = [abs(math.log(b) - math.log(a)) for a, b in pairwise(values) if a > 0 and b > 0]
    return median(changes) if changes else 0.0


def learnt_at_once(history: RunHistory, last: EvaluationPoint, point: EvaluationPoint) -> bool:
    """Whether the training loss fell from one row to the next between two evaluations, as at the border of an epoch
    whose examples are known by heart."""
    loss = history.role("loss")
    if loss is None or not 0 < point.train <= 0.8 * last.train:
        return False
    return fell_at_once(loss, 2 * last.step - point.step, point.step, last.segment, last.train, point.train)


def evaluates_few(history: RunHistory) -> bool:
    """Whether the configuration says that an evaluation has sixteen examples or fewer."""
    counts = [count for _, count in numbers_named(history, _EVALUATED)]
    return bool(counts) and max(counts) <= _TINY


def in_first_epoch(history: RunHistory, step: int, segment: int) -> bool:
    """Whether hardly any example can have been seen twice up to a step: the epoch is still the first one, or the watch
    of the data has counted no repeated batch and few repeated rows; and none says the contrary."""
    signs = []
    for epochs in (history.role("epoch"), history.channel("data/epoch")):
        if epochs is not None and epochs.end and epochs.began[0] <= step:
            now = before(epochs, step + 1, segment)
            signs.append(0 <= epochs.first < 2 and math.floor(now + 1e-6) == math.floor(epochs.first + 1e-6))
    for name, limit in (("data/repeats_total", 0.0), ("data/repeated_rows_share", _FEW_ROWS)):
        repeats = history.channel(name)
        if repeats is not None and repeats.end and repeats.began[0] <= step:
            rows = repeats.rows()
            seen = rows.value[(rows.step <= step) & numpy.isfinite(rows.value)]
            signs.append(not len(seen) or float(seen.mean()) <= limit)
    known = history.channel("model/rows_again")  # of some steps: examples that are seen again are, others may be
    if known is not None and known.end and known.began[0] <= step:
        rows = known.rows()
        seen = rows.value[(rows.step <= step) & numpy.isfinite(rows.value)]
        mean = float(seen.mean()) if len(seen) else 0.0
        often = int((seen > 0).sum()) >= _OFTEN and mean * _unseen(history, step, segment) > _AGAIN
        signs += [False] * bool(mean > _FEW_ROWS or often)
    return bool(signs) and all(signs)


def _unseen(history: RunHistory, step: int, segment: int) -> float:
    """How many times as many examples were trained on as the watch, which looks at some steps, knows."""
    looks, distinct = history.channel("model/example_rows"), history.channel("model/distinct_rows")
    sizes, counts = between(looks, 0, step + 1, segment), between(distinct, 0, step + 1, segment)
    if looks is None or not min(len(sizes), len(counts)) or not counts[-1] > 0:
        return 1.0
    return max(1.0, float(numpy.median(sizes)) * (step - looks.began[0] + 1) / float(counts[-1]))


def trained_then(history: RunHistory, points: Sequence[EvaluationPoint], best: EvaluationPoint) -> float:
    """The training loss at the best evaluation. Where each row has its evaluation, that of one row, which is low by
    chance: the median of those of the last ones before. points: evaluations up to now."""
    earlier = [other for other in points if other.step <= best.step][-_AROUND:]
    if len(earlier) < _AROUND:
        return best.train
    rows = between(history.role("loss"), earlier[0].step, best.step, best.segment)
    return median([other.train for other in earlier]) if len(rows) <= _AROUND else best.train


class Rise(Walker):
    """Walks along, keeps the best evaluation, and looks at those behind it."""

    def begin(self) -> None:
        self._best: EvaluationPoint | None = None
        self._below: EvaluationPoint | None = None  # the lowest below 0, which has no logarithm
        self._after: list[EvaluationPoint] = []
        self._before: list[float] = []
        self._told: Finding | None = None
        self._count = 0
        self._points: list[EvaluationPoint] = []  # the last 32

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        if -math.inf < point.value <= 0 and point.value < (self._below or point._replace(value=1.0)).value:
            self._below = point
        if not math.isfinite(point.value) or point.value <= 0:
            return
        self._count += 1
        self._points = [*self._points[-31:], point]
        if self._best is None or point.value < self._best.value:
            self._before = [*self._before[-15:], *[other.value for other in self._after[-8:]], point.value][-24:]
            self._best, self._after = point, []
            if self._told is not None:
                self._told.severity = "info"
                self._told.message += f"; step {point.step} was better again"
                yield again(self._told)
                self._told = None
            return
        self._after = [*self._after[-63:], point]
        yield from self.risen(history, channel, self._best, point)

    def by_chance(self, history: RunHistory, rise: float, train: float) -> bool:
        """Whether noise alone may make such a rise of the evaluation over the best, and such a change of the training
        loss, as shares: less than three standard deviations of what the evaluation does, or of both together. Few
        evaluations that fall show no noise: it has a sixth of the training's at least, and that of the few answers
        that it gets wrong. Where the evaluation leaves no doubt, one deviation of the training loss says which way it
        went.
        """
        points = [point.value for point in self._points], [point.train for point in self._points]
        trained = self.train_noise(history)
        few = of_few(history, self._best or self._points[-1])
        noise = max(noise_of(points[0]), largest_rise(self._before) / 2, _OF_TRAINING * trained, few)
        train_noise = max(math.sqrt(2) * noise_of(points[1]), trained, 1e-9)
        evaluation, training = math.log1p(rise) / noise, abs(math.log1p(max(train, -0.999))) / train_noise
        return evaluation < 3 or training < 1 or math.hypot(evaluation, training) < 3 * math.sqrt(2)

    def train_noise(self, history: RunHistory) -> float:
        """`train_noise` at the best evaluation."""
        point = self._best or self._points[-1]
        return train_noise(history, point.step, point.segment, point.trained)

    def risen(
        self, history: RunHistory, channel: Channel, best: EvaluationPoint, point: EvaluationPoint
    ) -> Iterator[Finding]:
        """An evaluation behind the best one."""
        raise NotImplementedError

    def floor(self, best: EvaluationPoint) -> float:
        """The median of the best evaluation and its neighbours: the lowest of many is low by chance, of few not."""
        if len(self._before) < 8:
            return best.value
        return median([*self._before[-3:-1], best.value, *[other.value for other in self._after[:2]]])


_WORDS = expression(r"[A-Za-z][a-z]*|\d+")
_OF_ANY = frozenset({"train", "training", "val", "valid", "validation", "eval", "evaluation", "test", "dev", "loss",
                     "losses", "total", "step", "epoch", "avg", "mean"})  # fmt: skip


def is_term(history: RunHistory, channel: Channel) -> bool:
    """Whether the evaluation is of one term of the training's loss, by its name: a series of the training beside the
    loss has the words that are in it, as `train/box_loss` those of `val/box_loss`."""
    loss, own = history.role("loss"), _words(channel.name)
    if loss is None or not own or _words(loss.name) >= own:
        return False
    for name, other in history.channels.items():
        beside = other is not loss and other is not channel and other.began[0] == loss.began[0] and name.count("/") < 2
        if beside and not name.startswith(("model/", "speed/", "data/")) and (words := _words(name)) and words <= own:
            return True
    return False


def terms_hold(history: RunHistory, channel: Channel, point: EvaluationPoint, ratio: float) -> bool:
    """Whether the terms that both sides log under one name each, as `train/price` and `val/price`, two at least, are
    not as far apart as the losses, by this ratio: the training's are weighed, or learn their weights."""
    loss = history.role("loss")
    ours, theirs = (one.name.rpartition("/") for one in (loss, channel)) if loss is not None else (("",), ("",))
    if not ours[0] or not theirs[0] or ours[0] == theirs[0]:
        return False
    apart = []
    for name, other in history.channels.items():
        head, _, tail = name.rpartition("/")
        trained = history.channel(f"{ours[0]}/{tail}") if head == theirs[0] and tail != theirs[-1] else None
        if trained is None or is_goodness(tail):
            continue
        value = before(other, point.step + 1, point.segment)
        rows = between(trained, 0, point.step + 1, point.segment)[-_ROWS:]
        if len(rows) and value > 0 and (level := median(rows)) > 0:
            apart.append(value / level)
    return len(apart) > 1 and max(apart) <= ratio


_AVERAGED = frozenset({"ema", "swa", "polyak", "averaged", "average", "avg", "shadow"})
_TRAINED = frozenset({"raw", "online", "live"})
_BOTH = 3  # evaluations


def beside_average(history: RunHistory, until: int = 1 << 62) -> list[tuple[float, float]]:
    """The evaluation loss of an average of the weights, and that of the trained ones, by their names, as `val_loss_ema`
    and `val_loss`: both of each evaluation that has them. None where there are fewer than three, or the first two are
    the same, as those of a loss that is smoothed are. Of a loss that no name tells, as `heldout/fm`, it is the other
    one with its words. until: the time by which they were logged."""
    logged = [name for name in history.channels if not name.startswith(RECORDED)]
    names = [name for name in logged if plays("eval_loss", name)]
    known = history.role("eval_loss") if not names else None
    if known is not None:
        names = [name for name in logged if _bare(name) == _bare(known.name)]
    for name in names:
        own = _spelled(name)
        bare = [word for word in own if word not in _AVERAGED]
        alike = (one for one in names if [word for word in _spelled(one) if word not in _TRAINED] == bare)
        averaged, trained = history.channel(name), history.channel(next(alike, ""))
        if bare == own or averaged is None or trained is None:
            continue
        of_both = averaged.rows(), trained.rows()
        steps, losses = ([getattr(rows, name)[rows.time <= until] for rows in of_both] for name in ("step", "value"))
        _, here, there = numpy.intersect1d(*steps, return_indices=True)
        values = list(zip(losses[0][here].tolist(), losses[1][there].tolist(), strict=True))
        if len(values) >= _BOTH and values[0][0] != values[0][1]:
            return values
    return []


def _bare(name: str) -> list[str]:
    """The words of a name without those that say whose weights are evaluated."""
    return [word for word in _spelled(name) if word not in _AVERAGED | _TRAINED]


def _spelled(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


@lru_cache(4096)
def _words(name: str) -> frozenset[str]:
    """The words of a name that tell one term from another."""
    return frozenset(word.lower() for word in _WORDS.findall(name)) - _OF_ANY
