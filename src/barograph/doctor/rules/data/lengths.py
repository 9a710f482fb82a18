"""The order of examples by their lengths.

In:   figures of the watch and of the data: lengths of batches, tokens of a step, examples that come again.
Out:  findings of `SortedLengths`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy

from barograph.doctor.kernel.cursor import came_by, newest, setting
from barograph.doctor.kernel.curve import between
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.data.passes import Passes

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_ROWS, _ALIKE, _EARLY = "model/example_rows", 8, 4096  # looks; rows that are compared
BY_LENGTH = "data sorted: by length"
_LEVEL = 0.02  # of a length: those as near are of one stage of a plan
_SOURCES = ("data/length_{}", "data/sequences"), ("model/input_length_{}", _ROWS)  # of lengths; of rows
_PHASES, _APART, _NEAR, _SURELY, _ONE_WAY = 12, 4.0, 0.5, 3.5, 0.8  # see `sorted_examples`; Kendall's τ


def _come_again(history: RunHistory, since: int, place: Place) -> bool | None:
    """Whether a batch half of whose examples had come before has come since a step; None if nothing knows."""
    looks = history.channel("model/rows_again")
    if looks is None or not came_by(looks, place[1]):
        return None
    return bool((between(looks, since, place[0] + 1, place[2]) >= 0.5).any())


def _by_length(history: RunHistory) -> bool:
    """Whether lengths are in order on purpose, as the configuration says, or are those of what a policy writes."""
    if history.role("reward") is not None:
        return True
    grouped = setting(history, "group_by_length", "train_sampling_strategy") in (True, "group_by_length")
    return grouped or setting(history, "curriculum", "curriculum_learning") is not None


def _are_targets(history: RunHistory, place: Place) -> bool:
    """Whether the logged tokens of a step are the loss's targets in each look, eight or more, all of as many rows: a
    count of all tokens so far is none of them."""
    logged, told, sized = history.role("step_tokens"), history.channel("model/targets"), history.channel(_ROWS)
    if logged is None or told is None or sized is None or not (logged.end and told.end and sized.end):
        return False
    looks, sizes, rows = told.rows(0, _EARLY), sized.rows(0, _EARLY), logged.rows(0, _EARLY)
    here = (looks.segment == place[2]) & (looks.time <= place[1])
    at = numpy.flatnonzero((rows.segment == place[2]) & numpy.isin(rows.step, looks.step[here]))
    tokens = dict(zip(rows.step[at].tolist(), rows.value[at].tolist(), strict=True))
    targets = dict(zip(looks.step[here].tolist(), looks.value[here].tolist(), strict=True))
    both = [step for step in targets if step in tokens]
    alike = len(both) >= _ALIKE and all(tokens[step] == targets[step] for step in both)
    return alike and len({*sizes.value[sizes.segment == place[2]].tolist()}) == 1


class SortedLengths(WatchRule):
    """Batches come by length.

    Shuffled, the mean lengths of batches differ by what chance gives: their variance is that of the rows within a batch
    over their number. Here it is four times that or more, and lengths rise from look to look more often than not (or
    fall), by four standard deviations of what is so by chance: n differences of numbers in random order have (n ± √(n /
    3)) / 2 rises. To the end of a run in which they never begin anew, it is enough that nearly all pairs of looks go
    one way (Kendall's τ), of five lengths or more that differ by a fiftieth: fewer are the stages of a plan. Batches of
    like lengths in random order have no such order. Where all rows of a batch have one length in each look, as those of
    a planned change of length, they have to rise and to begin anew, or to take five different lengths or more in one
    order to the end of the run, of texts that are whole: in eight looks or more all rows have padding behind one token
    that stands nowhere else, and in no look they have not. A plan that cuts texts cuts their ends. The same five
    lengths are enough where the configuration says that nothing is shuffled (`shuffle: false`, a sequential sampler).
    Or the lengths of all batches are recorded and go one way to the end, and where one length follows another, batches
    have some of both, three times or more; or each length has half as many batches again as the one before, and two
    thirds of them, by turns. Where the configuration has a curriculum, or groups examples by length on purpose, nothing
    is said; nor where a reward is logged, for what a policy writes gets longer or shorter as it learns. Where the
    lengths of all batches are recorded (`data/length_mean`), they need only rise and begin anew: by three fifths of
    their range from one to the next, with at most one in twenty of the other changes downwards. So of the tokens that
    are logged of each step, which are of the targets of two texts, say: where they are the loss's targets in eight
    looks or more of batches of as many rows, and those behind the new beginning are as many, one by one, as those of
    the pass before. Lengths whose longest is no more than half as long again as the shortest begin anew, too, where
    they have gone one way for eight changes or more, and sixteen batches of a pass are as long, one by one, as those of
    the pass before, as below.

    Samplers that sort large pieces of shuffled data, to save padding, begin anew, too: with other examples. So it takes
    examples that come again behind the place where lengths begin anew (`model/rows_again`; where that is not known,
    batches that are as long, one by one, as those of the pass before, which is enough of sixteen, three of which have
    rows of two lengths, or of 32 with now more and now less batches of each length: examples may be masked anew); where
    lengths never begin anew, the end of the run.

    What to do: shuffle, or shuffle the order of batches of like lengths.
    """

    name, family, kind, severity = "sorted_lengths", "data", "data", "warning"
    proves = "training"
    series = "model/input_length_mean"
    needs = ("=model/input_length_mean|=data/length_mean|step_tokens",)
    least = 12
    about = "The training's examples come by length."
    thresholds: ClassVar = {
        "apart": (4.0, "times the variance that chance gives; ours"),
        "sure": (4.0, "standard deviations; ours"),
        "looks": (12.0, "ours"),
        "whole": (8.0, "looks; ours"),
        "lengths": (5.0, "different ones, in one order; ours"),
        "trend": (0.85, "of all pairs of looks go one way, less those that go the other; ours"),
        "against": (0.05, "of all changes, in the other direction; ours"),
    }
    remedies = ("shuffle the examples, or the order of batches of like lengths",)

    def reset(self) -> None:
        super().reset()
        self._passes: dict[str, tuple[int, Passes]] = {}  # by the series of lengths: a launch, and its batches
        self.begin()

    def asked(self, history: RunHistory) -> list[Source]:
        return [
            *super().asked(history),
            (history.channel("data/length_mean"), partial(self._of_all, "mean length")),
            (history.role("step_tokens"), partial(self._of_all, "tokens")),
        ]

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if not history.facts.get("finished"):
            return
        if self._newest is not None and self._looked.anew < 0:
            yield from self._judge(history, self._newest)
        segment, passes = self._passes.get("mean length", (-1, Passes()))
        if passes.unplanned(self.at["lengths"]) and not _by_length(history) and self.first(segment):
            way = "short" if passes.ups else "long"
            yield self.finding(
                passes.began, f"Batches come by length, {way} ones first: all {passes.ups + passes.downs} changes of "
                f"their mean length go {'up' if passes.ups else 'down'}, to the end.", found=passes.newest,
                segment=segment, confidence=_PROOF, evidence={"changes": passes.ups + passes.downs},
                causes=[f"data sorted: by length, {way} ones first"],
            )  # fmt: skip

    def _of_all(self, what: str, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """A row of a series that has each batch. what: it is of."""
        step, _, segment = place
        if segment != self._passes.get(what, (-1,))[0]:
            self._passes[what] = segment, Passes(closely=True)
        passes = self._passes[what][1]
        passes.add(step, value)
        if not passes.sorted(self.at["looks"], self.at["against"]) or (passes.narrow and not passes.same):
            return
        seen = _come_again(history, passes.anew, place)
        if not (passes.alike if seen is None else seen or passes.same):
            return
        if what == "tokens" and not (passes.alike and _are_targets(history, place)):
            return
        if not _by_length(history) and self.first(segment):
            up, changes = passes.ups > passes.downs, passes.ups + passes.downs
            first = "short" if up else "long"
            yield self.finding(
                passes.began, f"Batches come by length, {first} ones first, and begin anew at step {passes.anew}: of "
                f"{changes} changes of their {what} {max(passes.ups, passes.downs)} go {'up' if up else 'down'}.",
                found=step, segment=segment, confidence=_PROOF, evidence={"changes": changes},
                causes=[f"data sorted: by length, {first} ones first"],
            )  # fmt: skip

    def begin(self) -> None:
        self._means: list[float] = []
        self._within: list[float] = []
        self._looked = Passes()
        self._newest: Place | None = None
        self._began = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        within = watched(history, "input_length_std", place)
        rows = watched(history, "example_rows", place)
        if not math.isfinite(value) or not within >= 0 or not rows > 0 or len(self._means) >= 256:
            return
        if not self._means:
            self._began = place[0]
        self._means.append(value)
        self._within.append(within * within / rows)
        self._looked.add(place[0], value)
        self._newest = place
        if self._looked.anew >= 0:
            yield from self._judge(history, place)

    def _judge(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        if len(self._means) < self.at["looks"] or _by_length(history):
            return
        between, chance = float(numpy.var(self._means, ddof=1)), float(numpy.mean(self._within))
        steps = numpy.sign(numpy.diff(self._means))
        steps = steps[steps != 0]
        order = float(steps.sum()) / math.sqrt((len(steps) + 1) / 3)
        trend = _trend(self._means)
        sure = chance > 0 or self._looked.sorted(self.at["looks"], self.at["against"]) or (
            self._looked.anew < 0 and abs(steps.sum()) == len(steps) and len(set(self._means)) >= self.at["lengths"]
            and (_are_whole(history, place, self.at["whole"]) or _in_turn(history))
        )  # fmt: skip
        planned = self._looked.anew < 0 and _levels(self._means) < self.at["lengths"]
        sure = sure and not planned and (
            self._looked.anew < 0 or _come_again(history, self._looked.anew, place) is not False
        )  # fmt: skip
        ordered = abs(order) > self.at["sure"] or (self._looked.anew < 0 and abs(trend) > self.at["trend"])
        if sure and ordered and between > self.at["apart"] * chance and self.first(place[2]):
            up = (order if abs(order) > self.at["sure"] else trend) > 0
            yield self.finding(
                self._began, f"Batches come by length, {'short' if up else 'long'} ones first: of {len(steps)} changes "
                f"of their mean length {int((steps > 0).sum() if up else (steps < 0).sum())} go "
                f"{'up' if up else 'down'}.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"changes": len(steps), "order": order},
                causes=[f"data sorted: by length, {'short' if up else 'long'} ones first"],
            )  # fmt: skip


class Along(NamedTuple):
    """Mean lengths of an epoch's batches, in their order. `near`: squared distance of neighbours, of that of any."""

    batches: int
    near: float
    one_way: bool


def along_epoch(history: RunHistory, period: int, place: Place) -> Along | None:
    """How the lengths of batches follow each other in an epoch, whose batches are always the same;
    None where they do so as by chance, or vary no more than rows do by chance."""
    if _by_length(history):
        return None
    for lengths, counts in _SOURCES:
        names = (lengths.format("mean"), lengths.format("std"), counts)
        mean, std, rows = (_by_step(history, name, place) for name in names)
        phases: dict[int, float] = {}
        chances = []
        for step, value in mean.items():
            if step % period not in phases and std.get(step, -1.0) >= 0 and rows.get(step, 0.0) >= 1:
                phases[step % period] = value
                chances.append(std[step] ** 2 / rows[step])
        values = [phases[at] for at in sorted(phases)]
        if len(values) < _PHASES:
            continue
        size, chance = float(numpy.var(values, ddof=1)), float(numpy.mean(chances))
        if not size > _APART * chance or not size > 0:
            continue
        near = float((numpy.diff(values) ** 2).mean()) / (2 * size)
        if near <= _NEAR and (1 - near) * math.sqrt(len(values)) >= _SURELY * (1 - 2 / len(values)) ** 0.5:
            return Along(len(values), near, abs(_trend(values)) >= _ONE_WAY)
    return None


def _by_step(history: RunHistory, name: str, place: Place) -> dict[int, float]:
    """The rows of a series up to a place, the earliest ones of many."""
    channel = history.channel(name)
    if channel is None or not channel.end:
        return {}
    rows = channel.rows(0, _EARLY)
    here = (rows.segment == place[2]) & (rows.step <= place[0]) & (rows.time <= place[1])
    return dict(zip(rows.step[here].tolist(), rows.value[here].tolist(), strict=True))


def _trend(means: list[float]) -> float:
    """Kendall's τ: of all pairs, the share that rises less the share that falls."""
    values = numpy.array(means)
    signs = numpy.sign(values[None, :] - values[:, None])[numpy.triu_indices(len(values), 1)]
    return float(signs.sum() / max(1, numpy.count_nonzero(signs)))


def _levels(means: list[float]) -> int:
    """How many different lengths there are, but for those that lie within a fiftieth of each other."""
    values = numpy.sort(means)
    return 1 + int((values[1:] > (1 + _LEVEL) * values[:-1]).sum())


def _in_turn(history: RunHistory) -> bool:
    """Whether the configuration says that examples come as they lie there."""
    in_turn = setting(history, "train_sampling_strategy", "sampling_strategy", "sampler")
    shuffles = setting(history, "shuffle", "shuffle_train", "train_shuffle", "shuffle_data", "data_shuffle")
    return shuffles is False or (isinstance(in_turn, str) and in_turn.lower() in ("sequential", "sequentialsampler"))


def _are_whole(history: RunHistory, place: Place, looks: float) -> bool:
    """Whether texts are whole in all looks that show it, this many at least."""
    channel = history.channel("model/input_length_whole")
    told = newest(channel, *place, 256) if channel is not None else numpy.empty(0)
    told = told[numpy.isfinite(told)]
    return bool(len(told) >= looks and (told == 1).all())


RULES = (SortedLengths,)
