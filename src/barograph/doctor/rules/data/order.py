"""The order of examples: from epoch to epoch, by length, and by class.

In:   figures of the watch: examples that come again, the epoch that a sampler was given, lengths of batches, targets.
Out:  findings of `SamplerEpoch`, `SameOrder`, `SortedLengths`, `SortedTargets`.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import RowCursor, came_by, known, newest, setting
from barograph.doctor.kernel.curve import between
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.stages import is_curriculum
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, carries_state, watched
from barograph.doctor.rules.data.passes import Passes

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_FEW = 16  # targets of a batch
_SORTED = 4  # times as many looks as are needed: a class of few examples comes once in an epoch
_BY_GROUP = "data sorted: by class, or file by file, of which each has some classes"
_ROWS, _ALIKE, _EARLY = "model/example_rows", 8, 4096  # looks; rows that are compared
_NUMBER = "set the epoch's number before each epoch, in what draws the order: `dataset.epoch = epoch`"
_REMEDY = "call `sampler.set_epoch(epoch)` before each epoch: the order is drawn from the seed and this number"


class SamplerEpoch(WatchRule):
    """A `DistributedSampler` that shuffles is never given the epoch's number, and two epochs or more have passed.

    The watch reads its epoch, and how many examples it has for a rank. It is 0 still when the steps of this launch have
    trained on two and a half times as many, as far as they were counted (64 of a batch at most): the third epoch
    has the order of the first.

    What to do: `sampler.set_epoch(epoch)` before each epoch.
    """

    name, family, kind, severity = "sampler_epoch", "data", "repeated_data", "warning"
    series = "model/sampler_epoch"
    needs = ("=model/sampler_epoch",)
    least = 2
    about = "A distributed sampler is never given the epoch's number."
    thresholds: ClassVar = {"epochs": (2.5, "that have passed; ours")}
    causes = ("same order in each epoch: `set_epoch` is never called",)
    remedies = (_REMEDY,)

    def begin(self) -> None:
        self._first = -1

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._first = place[0] if self._first < 0 else self._first
        rows, examples = watched(history, "example_rows", place), watched(history, "sampler_rows", place)
        passes = max(1.0, watched(history, "backwards", place))
        epochs = (place[0] - self._first) * rows * passes / examples if examples > 0 else 0.0
        if value == 0 and epochs >= self.at["epochs"] and self.first(place[2]):
            yield self.finding(
                self._first, f"{epochs:.1f} epochs of {examples:.0f} examples a rank have passed, and the sampler's "
                "epoch is still 0: each has the same order.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"epochs": round(epochs, 2), "standing": True},
            )  # fmt: skip


_BY_SOURCE = "data sorted: sources, or kinds of examples, come one behind the other"
_JUMP, _STAYS, _JUMPS = 1.5, 4, 3  # times the loss of the rows before; rows; jumps in all


_SOME, _TOGETHER = 3, 0.75  # examples of a batch that came before: at least; of them, together in one


class SameOrder(WatchRule):
    """Each epoch has the same batches, in the same order.

    In three looks all examples of a batch, four at least, came together in one batch before, and the steps between are
    multiples of one number, three at least and a sixteenth of the most; in no look were examples that had come before
    in several batches. Of examples that are altered in one of few ways, as mirrored or not, some are as they were: in
    four looks three or more, three quarters of those that had come before, came together, and the number is eight at
    least. The training has three batches of different examples or more. A batch that stays, and a
    policy's, which is trained on several times, are other things; so are streams whose state is carried on
    (`model/state_carried`). An info finding: of a text that is read from its beginning it is meant so. A warning where
    a data set or sampler of the training's own make has an `epoch`, and that is 0 still (`model/order_epoch`): the
    order was to be another one in each. So it is where the loss jumps three times
    or more, to one and a half times what it was and for some rows: other data begin there, as of another source, and
    what was learnt of the last ones is forgotten meanwhile.

    What to do: shuffle anew in each epoch; of a `DistributedSampler`, `set_epoch`.
    """

    name, family, kind, severity = "same_order", "data", "repeated_data", "info"
    series = "model/batch_again"
    needs = ("=model/batch_again",)
    least = 3
    about = "Each epoch has the same batches, in the same order."
    thresholds: ClassVar = {
        "looks": (3.0, "whose whole batch came before; ours"),
        "rows": (4.0, "of a batch; ours"),
        "steps": (3.0, "between two of the same, at least; ours"),
        "epochs": (16.0, "that a batch may have been away; ours"),
        "batches": (3.0, "of different examples; ours"),
        "parts": (4.0, "looks in which a part of the batch came before; ours"),
        "apart": (8.0, "steps between two of these, at least; ours"),
        "again": (0.9, "of a batch, that came before in several others: they are drawn anew; ours"),
    }
    causes: ClassVar[tuple[str, ...]] = (
        "same order in each epoch: the sampler's epoch, or its seed, never changes",
        "data not shuffled",
    )
    remedies: ClassVar[tuple[str, ...]] = (_REMEDY, "give the loader `shuffle=True`, and set no seed within an epoch")

    def begin(self) -> None:
        self.same: list[tuple[int, float]] = []  # step, and how many steps before
        self._in_part: list[tuple[int, float]] = []  # the same, where a part of the batch came before
        self._drawn = self._mixed = False

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        period = self.period(history, value, place)
        if not period or carries_state(history, place) or not self.first(place[2]):
            return
        stays = watched(history, "order_epoch", place) == 0
        jumps = 0 if stays or is_curriculum(history) else self._jumps(history, place)
        said = ", and the number of the epoch that deals them out is still 0" if stays else (
            f", and the loss has jumped {jumps} times, as where other data begin" if jumps else "")  # fmt: skip
        part = " in part" * (value < 1)
        yield self.finding(
            self.same[0][0], f"In {len(self.same)} looks the batch was{part} that of {period} steps "
            f"before, or of a multiple of these: each epoch has the same batches, in the same order{said}.",
            found=place[0],
            segment=place[2], confidence=0.9 if said else 0.6, severity="warning" if said else "info",
            evidence={"steps": period} | ({"jumps": jumps} if jumps else {}),
            causes=[_BY_SOURCE, *reversed(self.causes)] if jumps else list(self.causes),
            remedies=[_NUMBER, *self.remedies[1:]] if stays else
                     [*reversed(self.remedies)] if jumps else list(self.remedies),
        )  # fmt: skip

    def _jumps(self, history: RunHistory, place: Place) -> int:
        """How often the loss jumped, and stayed there for some rows; 0 of fewer than make a sign."""
        loss = between(history.role("loss"), 0, place[0] + 1, place[2])
        if len(loss) < 4 * _STAYS or not (loss > 0).all():
            return 0
        rows = numpy.lib.stride_tricks.sliding_window_view(loss, _STAYS)
        usual, least = numpy.median(rows[:-_STAYS], axis=1), rows[_STAYS:].min(1)
        high = least > _JUMP * usual
        rates = between(history.role("lr"), 0, place[0] + 1, place[2])
        if len(rates) == len(loss):  # begun anew, it raises the loss by itself
            rose = rates[1:] > _JUMP * rates[:-1]
            lately = numpy.array(numpy.lib.stride_tricks.sliding_window_view(rose, _STAYS).any(1))
            high &= ~lately[: len(high)]
        count = int((high[1:] & ~high[:-1]).sum() + high[:1].sum())
        return count if count >= _JUMPS else 0

    def period(self, history: RunHistory, value: float, place: Place) -> int:
        """After how many steps the same batches come in the same order; 0 if they don't."""
        again = watched(history, "rows_again", place)
        self._drawn = self._drawn or (again >= self.at["again"] and value < 1)
        rows = watched(history, "example_rows", place)
        several = watched(history, "distinct_rows", place) >= self.at["batches"] * rows
        self._mixed = self._mixed or (again * rows >= _SOME + 1 and value * rows < 2)
        part = value < 1 and value * rows >= _SOME and value >= _TOGETHER * again and not self._mixed
        if self._drawn or not (value == 1 or part) or rows < self.at["rows"] or not several:
            return 0
        after, looks = watched(history, "rows_again_after", place), history.channel("model/example_rows")
        if looks is None or place[0] - after == _step_before(looks, place) or history.role("reward") is not None:
            return 0  # the batch of the look before: it may have stayed
        found, least, steps = (self._in_part, "parts", "apart") if part else (self.same, "looks", "steps")
        found.append((place[0], after))
        period = math.gcd(*(int(steps) for _, steps in found))  # looks are few: each may skip an epoch
        longest = max(steps for _, steps in found)
        periodic = period >= self.at[steps] and longest <= self.at["epochs"] * period
        if len(found) < self.at[least] or not periodic:
            return 0
        self.same = found
        return period


def _step_before(looks: Channel, place: Place) -> int:
    """The step of the look before; -1 if there is none."""
    rows = looks.rows()
    steps = rows.step[(rows.segment == place[2]) & (rows.step < place[0]) & (rows.time <= place[1])]
    return int(steps[-1]) if len(steps) else -1


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
    one way (Kendall's τ). Batches of like lengths in random order have no such order. Where all rows of a batch have
    one length in each look, as those of a planned change of length, they have to rise and to begin anew, or to take
    five different lengths or more in one order to the end of the run, of texts that are whole: in eight looks or more
    all rows have padding behind one token that stands nowhere else, and in no look they have not. A plan that cuts
    texts cuts their ends. The same five lengths are enough where the configuration says that nothing is shuffled
    (`shuffle: false`, a sequential sampler). Or the lengths of all batches are recorded and go one way to the end, and
    where one length follows another, batches have some of both, three times or more; or each length has half as many
    batches again as the one before, and two thirds of them, by turns. Where the configuration has a curriculum, or
    groups examples by length on purpose, there is no finding; nor where a reward is logged, for what a policy writes
    gets longer or shorter as it learns. Where the lengths of all batches are recorded (`data/length_mean`), they need
    only rise and begin anew: by three fifths of their range from one to the next, with at most one in twenty of the
    other changes downwards. So of the tokens that are logged of each step, which are of the targets of two texts, say:
    where they are the loss's targets in eight looks or more of batches of as many rows, and those behind the new
    beginning are as many, one by one, as those of the pass before.

    Samplers that sort large pieces of shuffled data, to save padding, begin anew, too: with other examples. So it takes
    examples that come again behind the place where lengths begin anew (`model/rows_again`; where that is not known,
    batches that are as long, one by one, as those of the pass before); where lengths never begin anew, the end of the
    run.

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
            self._passes[what] = segment, Passes()
        passes = self._passes[what][1]
        passes.add(step, value)
        if not passes.sorted(self.at["looks"], self.at["against"]):
            return
        seen = _come_again(history, passes.anew, place)
        if not (passes.alike if seen is None else seen):
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
        sure = sure and (self._looked.anew < 0 or _come_again(history, self._looked.anew, place) is not False)
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


def _trend(means: list[float]) -> float:
    """Kendall's τ: of all pairs, the share that rises less the share that falls."""
    values = numpy.array(means)
    signs = numpy.sign(values[None, :] - values[:, None])[numpy.triu_indices(len(values), 1)]
    return float(signs.sum() / max(1, numpy.count_nonzero(signs)))


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


class SortedTargets(Rule):
    """The training's examples come by class: nearly all targets of a batch are one, and another one later; or of some
    classes, and of none of these later.

    The gradient of a cross-entropy shows each row's target. In half of the last looks or more (twelve to 48), three
    quarters of a batch's targets were the same, and at least two classes were so in three of them each: a class that is
    that frequent leaves no room for another one. Of fewer than sixteen targets nine tenths have to be the same, as
    chance makes more of them alike. The model forgets each class while it learns the next. The same is said of classes
    that the model is given (`model/input_class`), where six pairs of neighbouring steps or more were looked at, and the
    class stays in seven of eight: batches of one task each that are drawn at random are a plan.

    Where the first eight batches lack classes (`model/first_classes`), later ones are of those that they have, to nine
    tenths, or of others, to nine tenths: four in five of them, three of each, and some of the first kind behind some of
    the other, since what comes once may be a plan. Shuffled batches of eight targets or more have some of both.

    What to do: shuffle: `DataLoader(..., shuffle=True)`, or the files before they are read.
    """

    name, family, kind, severity = "sorted_targets", "data", "data", "warning"
    proves = "training"
    needs = ("=model/top_target_share|=model/input_class_share",)
    least = 12
    about = "The training's examples come by class."
    thresholds: ClassVar = {
        "share": (0.75, "of a batch's targets; ours"),
        "small": (0.9, "of fewer than sixteen; ours"),
        "looks": (12.0, "the last ones, of which half are such; ours"),
        "each": (3.0, "looks of each of two classes, or groups of classes; ours"),
        "pure": (0.9, "of a batch's targets, that are of one group of classes; ours"),
        "most": (0.8, "of the looks, in which that is so; ours"),
        "rows": (8.0, "targets of a batch, that are of one group; ours"),
        "pairs": (6.0, "neighbouring steps that were looked at, of classes that a model is given; ours"),
        "stays": (0.875, "of them, in which the class is the same; ours"),
    }
    causes = ("data sorted: batches are of one class each",)
    remedies = ("shuffle the examples: `DataLoader(..., shuffle=True)`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._looks: deque[tuple[int, float]] = deque()  # step; class of most of the batch, NaN where there is none
        self._of = "examples"  # what these are of
        self._last, self._pairs, self._same = (-2, -1.0), 0, 0  # of classes that the model is given
        self._segment = -1
        self._begin_groups(-1)

    def _begin_groups(self, segment: int) -> None:
        self._group_segment, self._asked = segment, 0
        self._others_since = -1
        self._pure = [0, 0, 0]  # looks of the others; of the first classes before and behind the first such one

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        names = ("model/top_target_share", "model/first_classes", "model/input_class_share")
        for which, place, share in self._cursor.in_order(*map(history.channel, names)):
            yield from (self._by_class, self._by_group, self._by_given)[which](history, place, share)

    def _by_given(self, history: RunHistory, place: Place, share: float) -> Iterator[Finding]:
        """share: of a batch's examples, that are of its most frequent class, which the model is given."""
        if came_by(history.channel("model/top_target_share"), place[1]):
            return
        if place[2] != self._segment:
            self._last, self._pairs, self._same = (-2, -1.0), 0, 0
        last, top = self._last, known(history.channel("model/input_class"), *place)
        if place[0] == last[0] + 1 and share >= self.at["share"]:
            self._pairs, self._same = self._pairs + 1, self._same + (top == last[1])
        self._last = place[0], top
        stays = self._pairs >= self.at["pairs"] and self._same >= self.at["stays"] * self._pairs
        yield from self._looked(place, top if share >= self.at["share"] else math.nan, "examples", stays)

    def _by_class(self, history: RunHistory, place: Place, share: float) -> Iterator[Finding]:
        """share: of a batch's targets, that are of its most frequent class."""
        few = known(history.channel("model/targets"), *place) < _FEW
        high = share >= self.at["small" if few else "share"]
        top = known(history.channel("model/top_target"), *place) if high else math.nan
        if self._of != "targets":
            self._of, self._looks = "targets", deque()
        yield from self._looked(place, top, "targets", True)

    def _looked(self, place: Place, top: float, of: str, sure: bool) -> Iterator[Finding]:
        """top: the class of most of a batch, or NaN. of: what has the classes. sure: whether it may be said."""
        step, _, segment = place
        if segment != self._segment:
            self._segment, self._looks = segment, deque()
        self._looks.append((step, top))
        if len(self._looks) > _SORTED * self.at["looks"]:
            self._looks.popleft()
        counts = Counter(top for _, top in self._looks if top == top)
        often = sum(count >= self.at["each"] for count in counts.values())
        most = len(self._looks) >= self.at["looks"] and 2 * counts.total() >= len(self._looks)
        if sure and most and often >= 2 and self.first(segment):
            began = next(step for step, top in self._looks if top == top)
            yield self.finding(
                began, f"Most {of} of a batch are of one class, since step {began}, and of {len(counts)} "
                "classes one after the other.",
                found=step, segment=segment, confidence=0.95, evidence={"looks": counts.total()},
            )  # fmt: skip

    def _by_group(self, history: RunHistory, place: Place, share: float) -> Iterator[Finding]:
        """share: of a batch's targets, that are of classes that the first eight batches had."""
        step, _, segment = place
        if segment != self._group_segment:
            self._begin_groups(segment)
        if known(history.channel("model/targets"), *place) < self.at["rows"]:
            return
        pure = self.at["pure"]
        self._asked += 1
        if share <= 1 - pure:
            self._pure[0] += 1
            self._others_since = step if self._others_since < 0 else self._others_since
        elif share >= pure:
            self._pure[2 if self._pure[0] else 1] += 1
        others, before, behind = self._pure
        if (
            min(others, before + behind) >= self.at["each"] and behind
            and others + before + behind >= self.at["most"] * self._asked and self.first(segment)
        ):  # fmt: skip
            yield self.finding(
                self._others_since, f"Batches come by groups of classes: {others} are of classes that the first "
                f"eight lacked, and {before + behind} are of none of these, some of them behind step "
                f"{self._others_since}.", found=step, segment=segment, confidence=0.95,
                evidence={"looks": others + before + behind}, causes=[_BY_GROUP],
            )  # fmt: skip


RULES = (SamplerEpoch, SameOrder, SortedLengths, SortedTargets)
