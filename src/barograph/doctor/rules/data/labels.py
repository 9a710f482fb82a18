"""Labels: noise in them, classes that are never one.

In:   figures of the watch; the losses and the accuracy of training and evaluation.
Out:  findings of `NoisyLabels`, `MissingClasses`, `OneClass`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import evaluations_of, known, newest, usual
from barograph.doctor.kernel.stages import has_stages, is_curriculum
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.data.targets import by_heart, same_few

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


def evaluated(evaluation: Channel | None, place: Place) -> Place:
    """When the newest evaluation that is known there was: its loss is compared with the training's of then, not of
    now, which a training that learns quickly has left behind."""
    rows = evaluation.rows() if evaluation is not None else None
    if rows is None:
        return place
    step, time, segment = place
    here = numpy.flatnonzero((rows.step <= step) & (rows.time <= time) & (rows.segment == segment))
    return (int(rows.step[here[-1]]), time, segment) if len(here) else place


class NoisyLabels(WatchRule):
    """A part of the targets is drawn at random: the model gives every class a share, whatever the input.

    A model that has learnt gives classes that can't be next to nothing. With labels of which a share is random it
    learns that share: in most rows even the classes that it thinks least of get it, evenly. An eighth or more, steady
    over eight looks, while the most likely class has 2.5 times the probability of a guess or more, and evaluations,
    whose labels are clean then, have a loss a tenth below the training's, and not below −ln(1 − share), which is the
    least that so even a model can have.

    A small classifier shows it in the rows that it gets wrong: where labels are right, the target is the next likely
    class, and where they are random, it may be any. In both halves of sixteen looks an eighth of the rows or more are
    wrong (at most 0.6, steadily, and a hundred at least), and their targets stand on the average below a third of the
    other classes; the model is nearly as sure there as in the others, as no model is of what it has yet to learn; the
    evaluation's loss is below four fifths of the training's. The training's is below that of a guess: the answers of a
    model that has learnt nothing, or no longer knows anything, are as wrong with the best of labels.

    Where steps have more passes with gradients than backward passes, as those of an attack have, which makes inputs
    hard, nothing is said; nor where the loss puts a second softmax on chances (`model/softmax_twice`): its answers stay
    about as likely as each other, whatever the labels.

    What to do: look at labels by hand; look at what joins inputs with labels.
    """

    name, family, kind, severity = "noisy_labels", "data", "data", "warning"
    series = "model/noise_floor"
    needs = ("=model/noise_floor", "loss", "eval_loss")
    least = 8
    about = "A part of the labels is random."
    thresholds: ClassVar = {
        "floor": (0.125, "of the probability; ours"),
        "most": (0.6, "of the probability: what has learnt less may yet learn; ours"),
        "steady": (1.4, "the largest of the looks over the smallest; ours"),
        "looks": (8.0, "in a row; ours"),
        "sure": (2.5, "times the probability of a guess; ours"),
        "better": (0.9, "evaluation over training loss; ours"),
        "wrong": (100.0, "rows; ours"),
        "rank": (0.33, "of the other classes: 0 is the next likely, 0.5 is chance; ours"),
        "alike": (0.8, "the likeliest class's probability in wrong rows, of that in right ones; ours"),
        "far": (0.8, "evaluation over training loss, where wrong rows show it; ours"),
        "guess": (0.97, "of the loss of a guess, that the training's has at most there: it has learnt; ours"),
    }
    causes = ("label noise: a part of the training's labels is random",)
    remedies = ("look at a hundred labels by hand", "look at what joins inputs with labels: an index that is off")

    def begin(self) -> None:
        self._floors: list[float] = []
        self._wrong: list[tuple[float, float, float]] = []

    def _by_rows(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        """Whether wrong rows have any class as target."""
        share, rank, sure = (watched(history, f"wrong_{name}", place) for name in ("share", "rank", "sure"))
        looks, rows = int(self.at["looks"]), min(64.0, watched(history, "targets", place))
        self._wrong = [*self._wrong[1 - 2 * looks :], (share, rank if share > 0 else 0.0, sure)]
        shares, ranks, sures = numpy.array(self._wrong).T
        if len(shares) < 2 * looks or not shares.sum() * rows >= self.at["wrong"]:
            return
        halves = [float(half.mean()) for half in (shares[:looks], shares[looks:])]
        stands = [float((s * r).sum() / max(s.sum(), 1e-9)) for s, r in
                  ((shares[:looks], ranks[:looks]), (shares[looks:], ranks[looks:]))]  # fmt: skip
        random = self.at["floor"] <= min(halves) and max(halves) <= min(
            self.at["most"], self.at["steady"] * min(halves)
        )
        sures = sures[numpy.isfinite(sures)]
        random = random and min(stands) >= self.at["rank"] and len(sures) > looks
        random = random and float(numpy.median(sures)) >= self.at["alike"]
        ours, theirs = _losses(history, place) if random else (math.nan, math.nan)
        width = watched(history, "output_width", place)
        learnt = not ours >= self.at["guess"] * math.log(width) if width >= 2 else True
        if learnt and 0 < theirs < self.at["far"] * ours and self.first(place[2]):
            yield self.finding(
                place[0], f"In {100 * halves[1]:.0f}% of the rows the likeliest class is not the target, which may be "
                f"any of the others there; the loss of the evaluation is {theirs:.4g}, that of the training "
                f"{ours:.4g}.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"wrong": halves[1], "rank": stands[1]},
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if watched(history, "passes", place) > watched(history, "backwards", place):
            return  # inputs may be made hard by passes of their own, as by an attack: the model is unsure of those
        if watched(history, "softmax_twice", place) == 1:
            return
        yield from self._by_rows(history, place)
        self._floors = [*self._floors[1 - int(self.at["looks"]) :], value]
        low, high = min(self._floors), max(self._floors)
        steady = low >= self.at["floor"] and high <= self.at["steady"] * low and high <= self.at["most"]
        if len(self._floors) < self.at["looks"] or not steady:
            return
        if not value * math.exp(min(50.0, watched(history, "logit_range", place))) >= self.at["sure"]:
            return
        ours, theirs = _losses(history, place)
        least = -math.log(1 - low)  # of what gives so much to the others: an evaluation below it is another figure
        if least <= theirs < self.at["better"] * ours and self.first(place[2]):
            yield self.finding(
                place[0], f"The model gives all classes an equal part of {100 * value:.0f}% of the probability, "
                f"whatever the input; the loss of the evaluation is {theirs:.4g}, that of the training {ours:.4g}.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"floor": value},
            )  # fmt: skip


def _losses(history: RunHistory, place: Place) -> tuple[float, float]:
    """The training's loss since the third evaluation before, and that of these three; NaN where four rows are not there
    yet: rows of a loss that falls, older than the evaluations, are above them in any training."""
    loss, evaluation = history.role("loss"), history.role("eval_loss")
    if loss is None or evaluation is None:
        return math.nan, math.nan
    rows = evaluation.rows()
    began = rows.step[(rows.time <= place[1]) & (rows.segment == place[2])][-3:]
    recent = loss.rows()
    here = (recent.time <= place[1]) & (recent.segment == place[2]) & (recent.step >= began.min(initial=place[0]))
    values = recent.value[here][-32:]
    values = values[numpy.isfinite(values)]
    # a loss that is added up over targets, or over a row's, is that many times one of the evaluation's
    times = watched(history, "loss_weight", place) * max(1.0, watched(history, "backwards", place))
    ours = float(numpy.median(values)) / (times if times > _ADDED else 1.0) if len(values) >= 4 else math.nan
    return ours, usual(evaluation, *place, 3)


_ADDED = 1.5  # the weight of a target's loss, above that of a mean


_OFF_BY_ONE = "labels shifted: all classes are off by one, and one is never a target"
_SPLIT = "split not shuffled: the evaluation has classes that the training lacks"


class MissingClasses(WatchRule):
    """Classes of a classifier are never a target.

    Of five hundred targets that were looked at, none is of these classes: they come in less than one in a hundred,
    or not at all, and the model learns that they don't exist. Batches of one class each may be sorted, and say
    nothing. A warning where that are two or more, and a third of all (not where the evaluation's loss is that of
    the training: an output that is wider than its task, such as a vocabulary of which some are answers), or where
    the evaluation has them, as it seems: its loss is half as large again as the training's at that step, and rises
    (not where the same few examples, fewer than five hundred, were seen again and again); else an info finding, and
    where the training logs a number of its task, stage or the like, or the configuration has a curriculum: others
    may have these classes. Where the training has learnt, the evaluation's accuracy can but lose the share of these
    classes. Below half of the rest the evaluation has little else than them (also where the training has learnt
    less, and the evaluation, which gets worse, has less than half of a guess's); where it is the first class or the
    last one, and the accuracy that of a guess, all are off by one, the class at the other end kept in range; where
    it is the first one and the accuracy is less, they begin at 1, and there is an output more; so it is where no
    accuracy is logged, and the evaluation's loss is half as large again as a guess's.

    What to do: look at what the labels go through: a filter, a mapping of names to numbers, a split by class.
    """

    name, family, kind, severity = "missing_classes", "data", "data", "warning"
    proves = "training"
    series = "model/untargeted_classes"
    needs = ("=model/untargeted_classes", "=model/class_targets")
    about = "Some classes are never a target."
    thresholds: ClassVar = {
        "targets": (500.0, "that were looked at; ours"),
        "share": (1 / 3, "of all classes; ours"),
        "worse": (1.5, "evaluation over training loss; ours"),
        "alike": (1.2, "evaluation over training loss; ours"),
        "mixed": (0.95, "of a batch's targets are of one class: more may be sorted; ours"),
        "guess": (1.25, "of a guess's accuracy; ours"),
        "some": (0.5, "of a guess's accuracy: that of the class that is kept in range; ours"),
        "rest": (0.5, "of what the other classes leave to the evaluation's accuracy; ours"),
        "learnt": (0.5, "of the loss of a guess; ours"),
    }
    causes = ("rare class missing: some classes are never a target",)
    remedies = ("count the labels by class, after all that is done to them: filters, mappings, splits",)

    def _has_them(self, history: RunHistory, place: Place) -> bool:
        """Whether the evaluation is worse than the training, and gets worse."""
        evaluation, loss = history.role("eval_loss"), history.role("loss")
        if evaluation is None or loss is None or same_few(history, place, self.at["targets"]):
            return False
        theirs = newest(evaluation, *place, 4)
        rises = bool((numpy.diff(theirs) > 0).sum() >= 2 and theirs[-1] > theirs[0])
        return rises and theirs[-1] > self.at["worse"] * usual(loss, *evaluated(evaluation, place), 32) > 0

    def _lacks_them(self, history: RunHistory, targets: float, place: Place) -> bool:
        """Whether the evaluation is as good as the training: then it has none of these classes either, and an output
        is wider than its task. Without an evaluation twice the targets are waited for, as it may come."""
        evaluation, loss = history.role("eval_loss"), history.role("loss")
        theirs = newest(evaluation, *place, 1) if evaluation is not None else numpy.array([math.nan])
        if not numpy.isfinite(theirs).all() or loss is None:
            return targets < 2 * self.at["targets"]
        return bool(theirs.max() <= self.at["alike"] * usual(loss, *evaluated(evaluation, place), 32))

    def _short(self, history: RunHistory, value: float, width: float, place: Place) -> float:
        """The evaluation's accuracy, times a guess's, where it is far below what the classes that are there leave to
        it; NaN else."""
        right = usual(history.role("eval_accuracy"), *place, 2)
        share = right / 100 if right > 1 else right
        then = evaluated(history.role("eval_accuracy"), place)
        learnt = usual(history.role("loss"), *then, 16) < self.at["learnt"] * math.log(max(width, 2.0))
        # what has learnt nothing says the most frequent class: only of an evaluation without it is so little right
        learnt = learnt or (share * width <= self.at["some"] and self._has_them(history, place))
        short = learnt and share < self.at["rest"] * (1 - value / width) and not by_heart(history, place)
        return share * width if short else math.nan

    def _misses(self, history: RunHistory, width: float, place: Place) -> bool:
        """Whether no accuracy tells, and the evaluation's loss is above that of a guess, though the training learns."""
        if history.role("eval_accuracy") is not None or by_heart(history, place):
            return False
        guess = math.log(max(width, 2.0))
        then = evaluated(history.role("eval_loss"), place)
        learnt = usual(history.role("loss"), *then, 16) < self.at["learnt"] * guess
        return learnt and usual(history.role("eval_loss"), *place, 2) > self.at["worse"] * guess

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        targets = watched(history, "class_targets", place)
        mixed = usual(history.channel("model/top_target_share"), *place) < self.at["mixed"]
        if value >= 1 and mixed and targets >= self.at["targets"]:
            width = watched(history, "output_width", place)
            accuracy = self._short(history, value, width, place)
            short = accuracy == accuracy
            third = value >= max(2.0, self.at["share"] * width)
            many = short or (third and not self._lacks_them(history, targets, place)) or self._has_them(history, place)
            many = many and not has_stages(history, place[1]) and not is_curriculum(history)
            if not self.first(place[2], many):
                return
            which = watched(history, "untargeted_class", place)
            edge = value == 1 and which in (0, width - 1)
            # one class is where two have come to; labels that begin at 1 leave an output more
            shifted = edge and accuracy <= self.at["guess"] and (which == 0 or accuracy >= self.at["some"])
            if which == 0 and edge and self._misses(history, width, place):
                shifted = short = True
            others = [_OFF_BY_ONE, _SPLIT] if shifted else [_SPLIT, _OFF_BY_ONE] if edge else [_SPLIT]
            yield self.finding(
                0, f"{value:.0f} of {width:.0f} classes are not among {targets:.0f} targets that were looked at.",
                causes=[*others, *self.causes] if short else list(self.causes),
                found=place[0], segment=place[2], confidence=0.95 if many else 0.6,
                severity="warning" if many else "info", evidence={"classes": value},
            )  # fmt: skip


class OneClass(WatchRule):
    """Nearly all of the training's targets are one class, and the evaluation's are not.

    Of 500 targets that were looked at, or more, nine in ten are one class, the same in each of twelve looks; and the
    evaluation's loss is above that of a guess among all classes: what it has is not what was trained on. Of a logistic
    loss of one output a row and of one term, in steps of one pass each, all targets of twelve looks are 1, or all are
    0, and the evaluation's loss is above that of a guess: the training has nothing to tell apart. So it is where all
    targets of a cross-entropy of few classes were one in each look, eight or more, the training's loss is next to 0,
    and two evaluations in a row have an accuracy of at most a quarter above a guess's, or a loss above that of a guess.

    What to do: shuffle before the data are split; count the labels by class; draw rare classes more often, or weight
    them; draw examples of what did not happen, where only what did is recorded.
    """

    name, family, kind, severity = "one_class", "data", "data", "warning"
    proves = "training"
    series = "model/top_target_share"
    needs = ("=model/top_target_share", "=model/top_target", "loss", "eval_loss|eval_accuracy")
    least = 8
    about = "Nearly all of the training's targets are one class."
    thresholds: ClassVar = {
        "targets": (500.0, "that were looked at; ours"),
        "share": (0.9, "of a batch's targets; ours"),
        "looks": (12.0, "in a row; ours"),
        "only": (8.0, "looks, of which all targets are one class; ours"),
        "vanished": (0.05, "of the loss of a guess; ours"),
        "guess": (1.25, "of a guess's accuracy; ours"),
    }
    causes = ("classes unbalanced: nearly all of the training's targets are one class",)
    remedies = (
        "count the labels by class; draw rare classes more often, or weight them",
        "draw examples of what did not happen, as many as of what did",
    )

    def reset(self) -> None:
        super().reset()
        self._only: list[Place] = []  # evaluations in a row that know other classes

    def begin(self) -> None:
        self._top: list[float] = []
        self._alone = 0  # looks in a row in which a logistic loss has one target alone

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (evaluations_of(history), self._evaluated)]

    def _evaluated(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """An evaluation, whatever its value."""
        if not self._is_only(history, place) or (self._only and self._only[0][2] != place[2]):
            self._only = []
            return
        self._only.append(place)
        if len(self._only) == 2 and self.first(place[2]):
            yield self.finding(
                0, f"All of the training's targets are class {watched(history, 'top_target', place):.0f} of "
                f"{watched(history, 'output_width', place):.0f}, and the evaluation has others.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"standing": True},
                causes=["split not shuffled: the training has one class alone, and the evaluation others",
                        "data sorted: the file was split as it came", *self.causes],
            )  # fmt: skip

    def _is_only(self, history: RunHistory, place: Place) -> bool:
        """Whether the training has one class alone by the time of an evaluation, which has others."""
        shares, tops = (history.channel(f"model/{name}") for name in ("top_target_share", "top_target"))
        width = watched(history, "output_width", place)
        if shares is None or tops is None or not width >= 2 or not watched(history, "class_targets", place) > 0:
            return False
        if any(history.channel(f"model/{name}") is not None for name in ("loss_pairs", "loss_queue")):
            return False  # the first of several is the right one on purpose
        count = int(self.at["only"])
        alone = bool((newest(shares, *place, count) == 1).all()) and len(set(newest(tops, *place, count))) == 1
        guess = math.log(width)
        if not alone or not usual(history.role("loss"), *place, 16) < self.at["vanished"] * guess:
            return False
        right, theirs = usual(history.role("eval_accuracy"), *place, 1), known(history.role("eval_loss"), *place)
        right = right / 100 if right > 1 else right
        return right * width <= self.at["guess"] or theirs > guess

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        looks = int(self.at["looks"])
        self._top = [
            *self._top[1 - looks :],
            watched(history, "top_target", place) if value >= self.at["share"] else -1,
        ]
        one = len(self._top) == looks and len(set(self._top)) == 1 and self._top[0] >= 0
        alone = value == 1 and watched(history, "sigmoid_twice", place) >= 0 and watched(history, "passes", place) == 1
        alone = alone and not watched(history, "loss_terms", place) > 1  # another may be of what did not happen
        self._alone = self._alone + 1 if alone and len(set(self._top[-2:])) == 1 else 0
        theirs = usual(history.role("eval_loss"), *place, 3)
        if self._alone >= looks and one and theirs > math.log(2) and self.first(place[2], "alone"):
            yield self.finding(
                0, f"All of the training's targets are {self._top[0]:.0f}: the loss has nothing to tell apart.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"target": self._top[0], "standing": True},
                causes=["negatives missing: all targets are one class"], key="alone",
            )  # fmt: skip
        width = watched(history, "output_width", place)
        one = one and watched(history, "class_targets", place) >= self.at["targets"]
        if one and width >= 2 and theirs > math.log(width) and self.first(place[2]):
            yield self.finding(
                0, f"{100 * value:.0f}% of the training's targets are class {self._top[0]:.0f} of {width:.0f}, and the "
                f"evaluation's loss is {theirs:.4g}, above that of a guess.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"share": value},
            )  # fmt: skip


RULES = (NoisyLabels, MissingClasses, OneClass)
