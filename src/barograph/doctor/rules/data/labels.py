"""Labels: noise in them, classes that are never one, evaluations with others.

In:   figures of the watch; the losses and the accuracy of training and evaluation.
Out:  findings of `NoisyLabels`, `MissingClasses`, `OtherLabels`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import known, usual
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class NoisyLabels(WatchRule):
    """A part of the targets is drawn at random: the model gives every class a share, whatever the input.

    A model that has learnt gives classes that can't be next to nothing. With labels of which a share is random it
    learns that share: in most rows even the classes that it thinks least of get it, evenly. An eighth or more, steady
    over eight looks, while the most likely class has 2.5 times the probability of a guess or more, and evaluations,
    whose labels are clean then, have a loss a tenth below the training's.

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
    }
    causes = ("label noise: a part of the training's labels is random",)
    remedies = ("look at a hundred labels by hand", "look at what joins inputs with labels: an index that is off")

    def begin(self) -> None:
        self._floors: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._floors = [*self._floors[1 - int(self.at["looks"]) :], value]
        low, high = min(self._floors), max(self._floors)
        steady = low >= self.at["floor"] and high <= self.at["steady"] * low and high <= self.at["most"]
        if len(self._floors) < self.at["looks"] or not steady:
            return
        if not value * math.exp(min(50.0, watched(history, "logit_range", place))) >= self.at["sure"]:
            return
        ours, theirs = usual(history.role("loss"), *place, 32), usual(history.role("eval_loss"), *place, 3)
        if 0 < theirs < self.at["better"] * ours and self.first(place[2]):
            yield self.finding(
                place[0], f"The model gives all classes an equal part of {100 * value:.0f}% of the probability, "
                f"whatever the input; the loss of the evaluation is {theirs:.4g}, that of the training {ours:.4g}.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"floor": value},
            )  # fmt: skip


class MissingClasses(WatchRule):
    """Classes of a classifier are never a target.

    Of five hundred targets that were looked at, none is of these classes: they come in less than one in a hundred, or
    not at all, and the model learns that they don't exist. Batches of one class each may be sorted, and say nothing. A
    warning where that are two or more, and a third of all; else an info finding.

    What to do: look at what the labels go through: a filter, a mapping of names to numbers, a split by class.
    """

    name, family, kind, severity = "missing_classes", "data", "data", "warning"
    series = "model/untargeted_classes"
    needs = ("=model/untargeted_classes", "=model/class_targets")
    about = "Some classes are never a target."
    thresholds: ClassVar = {
        "targets": (500.0, "that were looked at; ours"),
        "share": (1 / 3, "of all classes; ours"),
        "mixed": (0.95, "of a batch's targets are of one class: more may be sorted; ours"),
    }
    causes = ("rare class missing: some classes are never a target",)
    remedies = ("count the labels by class, after all that is done to them: filters, mappings, splits",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        targets = watched(history, "class_targets", place)
        mixed = usual(history.channel("model/top_target_share"), *place) < self.at["mixed"]
        if value >= 1 and mixed and targets >= self.at["targets"] and self.first(place[2]):
            width = watched(history, "output_width", place)
            many = value >= max(2.0, self.at["share"] * width)
            yield self.finding(
                0, f"{value:.0f} of {width:.0f} classes are not among {targets:.0f} targets that were looked at.",
                found=place[0], segment=place[2], confidence=0.95 if many else 0.6,
                severity="warning" if many else "info", evidence={"classes": value},
            )  # fmt: skip


class OtherLabels(WatchRule):
    """The evaluation's labels are others than the training's.

    The training loss has fallen to half of that of a guess, and the evaluation's accuracy is half of a guess's or less,
    its loss above that of a guess, in two evaluations in a row: a model that has learnt nothing of use would still
    guess. Of five classes or more an accuracy up to a quarter above a guess's counts, where the evaluation's loss is
    1.2 times that of a guess: no example of the evaluation is like those of the training.

    What to do: compare an example of both: the number of its class, the mapping of names to numbers, `drop` and sort.
    """

    name, family, kind, severity = "other_labels", "eval", "data", "warning"
    needs = ("loss", "eval_loss", "eval_accuracy", "=model/class_targets", "=model/output_width")
    series = ""
    about = "The evaluation's labels are others than the training's."
    thresholds: ClassVar = {
        "learnt": (0.5, "of the loss of a guess; ours"),
        "accuracy": (0.5, "of a guess's; ours"),
        "near": (1.25, "of a guess's, of five classes or more; ours"),
        "worse": (1.2, "of the loss of a guess; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("labels shifted: training and evaluation have different targets",)
    remedies = ("compare the labels of one example in both: the mapping of names to numbers, an index that is off",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        accuracy = history.role("eval_accuracy")
        self.series = accuracy.name if accuracy is not None else ""  # type: ignore[misc]
        if self.series and history.role("loss") is not None and history.role("eval_loss") is not None:
            yield from super().examine(history)

    def begin(self) -> None:
        self._percent = False
        self._first = -1  # the launch's first evaluation: its labels are not others later on

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._percent = self._percent or value > 1
        self._first = place[0] if self._first < 0 else self._first
        widths = history.channel("model/output_width")
        width = widths.first if widths is not None else math.nan  # whenever it came: it is the model's
        ours, theirs = usual(history.role("loss"), *place, 16), known(history.role("eval_loss"), *place)
        if not width >= 2 or not math.isfinite(ours + theirs):
            return
        right = (value / 100 if self._percent else value) * width
        guess = math.log(width)
        differs = right <= self.at["accuracy"] and theirs > guess
        differs = differs or (width >= 5 and right <= self.at["near"] and theirs > self.at["worse"] * guess)
        if self.lasts(differs and ours < self.at["learnt"] * guess, place, self.at["evaluations"]):
            yield self.finding(
                self._first, f"The evaluation's accuracy is {100 * right / width:.3g}%, where a guess has "
                f"{100 / width:.3g}%, and its loss {theirs:.4g}, while that of the training is {ours:.4g}.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"accuracy": right / width},
            )  # fmt: skip


RULES = (NoisyLabels, MissingClasses, OtherLabels)
