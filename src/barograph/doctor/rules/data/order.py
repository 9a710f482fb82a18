"""The order of examples: from epoch to epoch, and by class.

In:   figures of the watch: examples that come again, the epoch that a sampler was given, targets.
Out:  findings of `SamplerEpoch`, `SameOrder`, `SortedTargets`.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor, came_by, known
from barograph.doctor.kernel.curve import between
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.stages import has_stages, is_curriculum
from barograph.doctor.rules.data.examples import KnownBatches, Place, Source, WatchRule, carries_state, watched
from barograph.doctor.rules.data.turns import at_least, comes_back, followed, stays

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_FEW = 16  # targets of a batch
_SORTED = 4  # times as many looks as are needed: a class of few examples comes once in an epoch
_NEVER = 1e-30
_BY_BUFFER = "data sorted: class after class, hardly shuffled, as by a buffer that is smaller than a class or a file"
_WIDER = "a shuffle buffer that holds many files' examples; or shuffle the files, and read several at a time"
_BY_GROUP = "data sorted: by class, or file by file, of which each has some classes"
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


BY_SOURCE = "data sorted: sources, or kinds of examples, come one behind the other"
_JUMP, _STAYS, _JUMPS = 1.5, 4, 3  # times the loss of the rows before; rows; jumps in all


_IN_TIME = expression(r"(?i)(?<![a-z])(?:online|continual|incremental|life_?long|walk_?forward|stream\w*|replay\w*)")
_SHUFFLED = expression(r"(?i)(?:.*[^a-z])?(?:shuffl\w*|random_?order|randomi[sz]e\w*)")
_OF_OLD = expression(r"(?i)(?<![a-z])(?:sequential|chronological|sorted?|fixed_?order|in_?order|by_?length|overfit\w*)")
_OF_ANSWERS = ("loss_ranks", "preference_averaged", "preference_compared")
_SOME, _TOGETHER = 3, 0.75  # examples of a batch that came before: at least; of them, together in one


class BatchOrder(WatchRule):
    """Looks after how many steps whole batches come again, and whether that is one number."""

    family, kind = "data", "repeated_data"
    series = "model/batch_again"
    needs = ("=model/batch_again",)
    least = 3
    thresholds: ClassVar = {
        "looks": (3.0, "whose whole batch came before; ours"),
        "rows": (4.0, "of a batch; ours"),
        "steps": (3.0, "between two of the same, at least; ours"),
        "epochs": (16.0, "that a batch may have been away; ours"),
        "batches": (3.0, "of different examples; ours"),
        "parts": (4.0, "looks in which a part of the batch came before; ours"),
        "apart": (8.0, "steps between two of these, at least; ours"),
        "again": (0.9, "of a batch, that came before in several others: they are drawn anew; ours"),
        "epoch": (8.0, "steps, at least, of batches that the watch of data knows; ours"),
        "chance": (1e-4, "that the few examples that were seen before came such a number of steps before; ours"),
    }

    def begin(self) -> None:
        self.same: list[tuple[int, float]] = []  # step, and how many steps before
        self._in_part: list[tuple[int, float]] = []  # the same, where a part of the batch came before
        self._few: list[tuple[int, float]] = []  # the same, of a row or two
        self._scattered = False  # rows of one batch came before in several
        self._drawn = self._mixed = False

    def period(self, history: RunHistory, value: float, place: Place) -> int:
        """After how many steps the same batches come in the same order; 0 if they don't."""
        again = watched(history, "rows_again", place)
        self._drawn = self._drawn or (again >= self.at["again"] and value < 1)
        rows = watched(history, "example_rows", place)
        several = watched(history, "distinct_rows", place) >= self.at["batches"] * rows
        self._mixed = self._mixed or (again * rows >= _SOME + 1 and value * rows < 2)
        part = value < 1 and value * rows >= _SOME and value >= _TOGETHER * again and not self._mixed
        self._scattered = self._scattered or value < again
        if several and not self._scattered and rows >= self.at["rows"] and value < 1:
            self._few.append((place[0], watched(history, "rows_again_after", place)))
            if period := _of_few(self._few, history, place, self.at):
                self.same = self._few
                return period
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


class SameOrder(BatchOrder):
    """Each epoch has the same batches, in the same order.

    In three looks all examples of a batch, four at least, came together in one batch before, and the steps between are
    multiples of one number, three at least and a sixteenth of the most; in no look were examples that had come before
    in several batches. Of examples that are altered in one of few ways, as mirrored or not, some are as they were: in
    four looks three or more, three quarters of those that had come before, came together, and the number is eight at
    least. Of examples that are altered in many ways hardly one is as it was: there it is enough that in four looks or
    more all that had come before came together, with a chance below one in ten thousand that the looks before are such
    numbers of steps away. The training has three batches of different examples or more. A batch that stays, and a
    policy's, which is trained on several times, are other things; so are streams whose state is carried on
    (`model/state_carried`). An info finding: of a text that is read from its beginning it is meant so. A warning where
    a data set or sampler of the training's own make has an `epoch`, and that is 0 still (`model/order_epoch`): the
    order was to be another one in each. So it is where the loss jumps three times
    or more, to one and a half times what it was and for some rows: other data begin there, as of another source, and
    what was learnt of the last ones is forgotten meanwhile. So it is where the watch of data knows 32 batches in a row
    again as those of an earlier epoch, all the same number of steps before, eight or more (`data/repeats_after`).
    Nothing of that is said where the configuration says that nothing is shuffled, or what order is meant; nor of texts
    without padding, with targets at several places of each row, which may be one text that is read from its beginning.

    What to do: shuffle anew in each epoch; of a `DistributedSampler`, `set_epoch`.
    """

    name, severity = "same_order", "info"
    needs = ("=model/batch_again|=data/repeats_after",)
    about = "Each epoch has the same batches, in the same order."
    thresholds: ClassVar = {
        **BatchOrder.thresholds,
        "followed": (32.0, "batches in a row that the watch of data knows of an earlier epoch; ours"),
    }
    causes: ClassVar[tuple[str, ...]] = (
        "same order in each epoch: the sampler's epoch, or its seed, never changes",
        "data not shuffled",
    )
    remedies: ClassVar[tuple[str, ...]] = (_REMEDY, "give the loader `shuffle=True`, and set no seed within an epoch")

    def reset(self) -> None:
        super().reset()
        self._known = KnownBatches()

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("data/repeats_after"), self._by_data)]

    def _by_data(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """value: how many steps before the batch came in an earlier epoch, as the watch of data saw it."""
        began = self._known.since(value, place, self.at)
        if began is not None and not _is_kept(history, place) and self.first(place[2], "known"):
            self.first(place[2])  # the same with less proof
            yield self.finding(
                began, f"{self.at['followed']:.0f} batches in a row are those of {value:.0f} steps before: each "
                "epoch has the same batches, in the same order.", found=place[0], segment=place[2], confidence=0.9,
                severity="warning", evidence={"steps": value}, causes=[*reversed(self.causes)],
                remedies=[*reversed(self.remedies)],
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        period = self.period(history, value, place)
        if not period or carries_state(history, place) or not self.first(place[2]):
            return
        stays = watched(history, "order_epoch", place) == 0
        jumps = 0 if stays or is_curriculum(history) else jumps_of_loss(history, place)
        said = ", and the number of the epoch that deals them out is still 0" if stays else (
            f", and the loss has jumped {jumps} times, as where other data begin" if jumps else "")  # fmt: skip
        part = " in part" * (value < 1)
        yield self.finding(
            self.same[0][0], f"In {len(self.same)} looks the batch was{part} that of {period} steps "
            f"before, or of a multiple of these: each epoch has the same batches, in the same order{said}.",
            found=place[0],
            segment=place[2], confidence=0.9 if said else 0.6, severity="warning" if said else "info",
            evidence={"steps": period} | ({"jumps": jumps} if jumps else {}),
            causes=[BY_SOURCE, *reversed(self.causes)] if jumps else list(self.causes),
            remedies=[_NUMBER, *self.remedies[1:]] if stays else
                     [*reversed(self.remedies)] if jumps else list(self.remedies),
        )  # fmt: skip


def _is_kept(history: RunHistory, place: Place) -> bool:
    """Whether the order of examples may be kept on purpose."""
    said = history.options.found.items()
    named = any(
        (_SHUFFLED.fullmatch(name) and value in (False, 0, "none", "None"))
        or (value not in (None, False, 0, "", "none") and _OF_OLD.search(f"{name} {value}"))
        for name, value in said
    )
    answers = any(watched(history, name, place) >= 0 for name in _OF_ANSWERS)
    texts = history.channel("data/tokens") is not None and not answers
    read_on = texts and reads_on(history, watched(history, "example_rows", place), place)
    return named or read_on or _is_read_on(history, place)


def in_time(history: RunHistory, place: Place) -> bool:
    """Whether examples may come in an order on purpose: in that of time, in stages, or of what a policy does."""
    return _is_read_on(history, place) or has_stages(history, place[1])


def _is_read_on(history: RunHistory, place: Place) -> bool:
    """The same, of an order that does not change."""
    named = any(
        value not in (None, False, 0, "", "none") and _IN_TIME.search(f"{name} {value}")
        for name, value in history.options.found.items()
    )
    policy = history.role("reward") is not None or any(
        watched(history, name, place) >= 0 for name in ("ratio_clip", "ratio_constant", "policy_reversed")
    )
    return named or policy or is_curriculum(history) or carries_state(history, place)


def reads_on(history: RunHistory, rows: float, place: Place) -> bool:
    """Whether rows may be pieces of one text: they have no padding, and targets at several places each, and the loss
    compares none of them with each other."""
    padded = watched(history, "input_length_std", place) > 0
    compared = watched(history, "loss_ranks", place) >= 0 or watched(history, "loss_pairs", place) > 1
    return not (padded or compared) and watched(history, "targets", place) > rows


def _of_few(few: list[tuple[int, float]], history: RunHistory, place: Place, at: Mapping[str, float]) -> int:
    """After how many steps the few examples come that are as they were, where chance is ruled out; else 0. few: steps
    that were looked at, and how many steps before."""
    looks, period = history.channel("model/example_rows"), math.gcd(*(int(after) for _, after in few))
    if looks is None or len(few) < at["parts"] or period < at["apart"]:
        return 0
    if history.role("reward") is not None or max(after for _, after in few) > at["epochs"] * period:
        return 0
    rows = looks.rows()
    steps, chance = rows.step[(rows.segment == place[2]) & (rows.time <= place[1])], 1.0
    for step, _ in few:
        before = step - steps[steps < step]
        chance *= float((before % period == 0).mean()) if len(before) else 1.0
    return period if chance <= at["chance"] else 0


def jumps_of_loss(history: RunHistory, place: Place, by: float = _JUMP) -> int:
    """How often the loss jumped, and stayed there for some rows; 0 of fewer than make a sign. by: how many times what
    it was before."""
    loss = between(history.role("loss"), 0, place[0] + 1, place[2])
    if len(loss) < 4 * _STAYS or not (loss > 0).all():
        return 0
    rows = numpy.lib.stride_tricks.sliding_window_view(loss, _STAYS)
    usual, least = numpy.median(rows[:-_STAYS], axis=1), rows[_STAYS:].min(1)
    high = least > by * usual
    rates = between(history.role("lr"), 0, place[0] + 1, place[2])
    if len(rates) == len(loss):  # begun anew, it raises the loss by itself
        rose = rates[1:] > _JUMP * rates[:-1]
        lately = numpy.array(numpy.lib.stride_tricks.sliding_window_view(rose, _STAYS).any(1))
        high &= ~lately[: len(high)]
    count = int((high[1:] & ~high[:-1]).sum() + high[:1].sum())
    return count if count >= _JUMPS else 0


def _step_before(looks: Channel, place: Place) -> int:
    """The step of the look before; -1 if there is none."""
    rows = looks.rows()
    steps = rows.step[(rows.segment == place[2]) & (rows.step < place[0]) & (rows.time <= place[1])]
    return int(steps[-1]) if len(steps) else -1


class SortedTargets(Rule):
    """The training's examples come by class: nearly all targets of a batch are one, and another one later; or of some
    classes, and of none of these later.

    The gradient of a cross-entropy shows each row's target. In half of the last looks or more (twelve to 48), three
    quarters of a batch's targets were the same, and at least two classes were so in three of them each: a class that is
    that frequent leaves no room for another one. Of fewer than sixteen targets nine tenths have to be the same, as
    chance makes more of them alike. The model forgets each class while it learns the next. The same is said of classes
    that the model is given (`model/input_class`), where six pairs of neighbouring steps or more were looked at, and the
    class stays in seven of eight, or more often than in one of five hundred by chance: batches of one task each that
    are drawn at random are a plan. Of twenty is enough where half have one class each, and two or more several; or
    where classes come back after one number of steps, eight or more, in all looks at places of such an epoch that were
    looked at before, more often than in one of ten thousand by chance.

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
        "chance": (0.002, "of such a row of pairs by chance, by the shares of classes; ours"),
        "bordered": (0.05, "the same, where two looks or more have several classes, and as many have one; ours"),
        "unlikely": (3.0, "of the negative logarithm of chance, in the mean of looks, that are 1 by chance; ours"),
        "drawn": (8.0, "rows of a batch of which that is known; ours"),
        "classes": (3.0, "that are the most frequent ones in such looks; ours"),
    }
    causes = ("data sorted: batches are of one class each",)
    remedies = ("shuffle the examples: `DataLoader(..., shuffle=True)`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._looks: deque[tuple[int, float]] = deque()  # step; class of most of the batch, NaN where there is none
        self._of = "examples"  # what these are of
        self._most: deque[_Most] = deque(maxlen=int(_SORTED * self.at["looks"]))  # of the same, whatever its share is
        self._last, self._pairs, self._same = (-2, -1.0), 0, 0  # of classes that the model is given
        self._whole = [0, 0]  # looks of one, and of several
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
            self._last, self._pairs, self._same, self._whole = (-2, -1.0), 0, 0, [0, 0]
        self._whole[share < 1] += 1
        last, top = self._last, known(history.channel("model/input_class"), *place)
        if place[0] == last[0] + 1 and share >= self.at["share"]:
            self._pairs, self._same = self._pairs + 1, self._same + (top == last[1])
        self._last = place[0], top
        most = top if share >= self.at["share"] else math.nan
        looks = [*self._looks, (place[0], most)]
        drawn = followed(looks)
        stay = self._same >= self.at["stays"] * self._pairs
        plain = not self._whole[0] >= self._whole[1] >= 2  # borders: no plan of batches of one class each has them
        chance = at_least(self._same, self._pairs, drawn)
        stay = stay or chance <= self.at["chance" if plain else "bordered"]
        stay = stay or (chance <= self.at["bordered"] and comes_back(looks, drawn) > 0)
        yield from self._looked(place, most, "examples", self._pairs >= self.at["pairs"] and stay)
        yield from self._by_draws(history, place, share, "input_class")

    def _by_class(self, history: RunHistory, place: Place, share: float) -> Iterator[Finding]:
        """share: of a batch's targets, that are of its most frequent class."""
        few = known(history.channel("model/targets"), *place) < _FEW
        high = share >= self.at["small" if few else "share"]
        top = known(history.channel("model/top_target"), *place) if high else math.nan
        if self._of != "targets":
            self._of, self._looks = "targets", deque()
            self._most.clear()
        yield from self._looked(place, top, "targets", True)
        if known(history.channel("model/targets"), *place) <= watched(history, "example_rows", place):
            yield from self._by_draws(history, place, share, "top_target")

    def _by_draws(self, history: RunHistory, place: Place, share: float, name: str) -> Iterator[Finding]:
        """share: of a batch's rows, that are of its most frequent class, which `name` tells."""
        rows, top = watched(history, "example_rows", place), watched(history, name, place)
        if self._most and self._most[-1].place[2] != place[2]:
            self._most.clear()
        if not rows >= self.at["drawn"] or top != top:
            return
        self._most.append(_Most(place, top, share, int(rows)))
        looks = list(self._most)
        counts = Counter(look.top for look in looks)
        often = sum(count >= self.at["each"] for count in counts.values())
        if len(looks) < self.at["looks"] or often < self.at["classes"]:
            return
        tops = [(look.place[0], look.top) for look in looks]
        unlikely, same, pairs, drawn = _unlikely(looks, counts), *stays(tops), followed(tops)
        if unlikely < self.at["unlikely"] or pairs < self.at["pairs"] or (
            at_least(same, pairs, drawn) > self.at["chance"]
        ):  # fmt: skip
            return
        meant = is_curriculum(history) or has_stages(history, place[1]) or carries_state(history, place)
        if not meant and history.role("reward") is None and self.first(place[2]):
            yield self.finding(
                looks[0].place[0], f"The most frequent class of a batch has more of its {rows:.0f} rows than chance "
                f"gives, in {len(looks)} looks, and is that of the next batch in {same} of {pairs}: examples are "
                f"hardly shuffled, and {len(counts)} classes come in turn.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"unlikely": round(unlikely, 2), "looks": len(looks)}, causes=[_BY_BUFFER],
                remedies=[_WIDER, *self.remedies],
            )  # fmt: skip

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


class _Most(NamedTuple):
    """The most frequent class of a look: where, which one, its share of the rows, and how many these are."""

    place: Place
    top: float
    share: float
    rows: int


def _unlikely(looks: list[_Most], counts: Counter[float]) -> float:
    """Mean over looks of the negative logarithm of the chance that a class has that many of a batch's rows, or more:
    the n-th frequent one of an n-th of all examples."""
    ranks = {top: at for at, (top, _) in enumerate(counts.most_common(), 1)}
    chances = [at_least(round(one.share * one.rows), one.rows, 1 / ranks[one.top]) for one in looks]
    return -sum(math.log(max(chance, _NEVER)) for chance in chances) / len(looks)


RULES = (SamplerEpoch, SameOrder, SortedTargets)
