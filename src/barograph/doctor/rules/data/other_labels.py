"""Labels of the training and of the evaluation that don't go with each other.

In:   losses of both, and what the watch has seen of targets.
Out:  findings of `OtherLabels`, `EvaluationBelowGuess`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.heldout import HELD_OUT
from barograph.core.patterns import expression
from barograph.core.roles import is_of_wholes
from barograph.doctor.kernel.cursor import known, newest, other_model, usual
from barograph.doctor.kernel.curve import answers, is_game
from barograph.doctor.rules.data.examples import SAME_VIEWS, Place, WatchRule, few_examples, watched
from barograph.doctor.rules.data.targets import by_heart, others_scale

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_RECALL = expression(r"(?i)(?:val|eval|test|dev|valid)[^a-z](?:.*[^a-z])?(?:recall|r|hits?)@1")
_HELD_OUT = expression(rf"(?i){HELD_OUT}")
_AVERAGE = "averaged weights not updated: another model than the one that is trained is evaluated, and hardly changes"


class OtherLabels(WatchRule):
    """The evaluation's labels are others than the training's.

    The training loss has fallen to half of that of a guess, or its accuracy has come half of the way from a guess's to
    all, and the evaluation's accuracy is half of a guess's or less, its loss above that of a guess, in two evaluations
    in a row: a model that has learnt nothing of use would still guess. Where an evaluation before had an accuracy of
    twice a guess's, its labels are not others, and something else has come since. Of five classes or more an accuracy
    up to a quarter above a guess's counts, where the evaluation's loss is 1.2 times that of a guess, and the training
    has more than a few hundred examples: none of the evaluation is like those of the training. Of pairs that are
    matched in the batch an accuracy up to five times a guess's counts, for the evaluation may have smaller batches.

    Where the evaluation's inputs are of another scale, one class is three quarters of a batch's targets, or a batch's
    inputs were a hundred times as large as usual, the labels are not to blame, and there is no finding; nor is there
    one where each step has the same few hundred tuples of numbers: a model that knows them by heart is sure, and wrong.
    Where the watch sees an evaluation's answers, and the rows of three classes or more are right half as often again
    as by a guess, in the mean over these classes, the labels are those of the training: most of the evaluation is of
    one class, and that is rarely the answer.

    Where a part of the model, other than torch's layers, has two buffers of 0 and 1 after twenty steps
    (`model/unset_buffers`), as a running mean and deviation that nothing moved, these are the first cause.

    What to do: compare an example of both: the number of its class, the mapping of names to numbers, `drop` and sort.
    """

    name, family, kind, severity = "other_labels", "eval", "data", "warning"
    proves = "evaluation"
    needs = ("loss", "eval_loss", "eval_accuracy", "=model/output_width")
    about = "The evaluation's labels are others than the training's."
    thresholds: ClassVar = {
        "learnt": (0.5, "of the loss of a guess, or of the way from a guess's accuracy to all; ours"),
        "accuracy": (0.5, "of a guess's; ours"),
        "before": (2.0, "times a guess's, of an evaluation before; ours"),
        "near": (1.25, "of a guess's, of five classes or more; ours"),
        "pairs": (5.0, "times a guess's, of pairs; ours"),
        "recall": (1.5, "times a guess's, in the mean over classes; ours"),
        "several": (3.0, "classes, that have rows enough in an evaluation; ours"),
        "one": (0.75, "of a batch's targets are of one class: they may be sorted; ours"),
        "worse": (1.2, "of the loss of a guess; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("labels shifted: training and evaluation have different targets",)
    remedies = ("compare the labels of one example in both: the mapping of names to numbers, an index that is off",)

    def channel(self, history: RunHistory) -> Channel | None:
        both = history.role("loss") is not None and history.role("eval_loss") is not None
        return history.role("eval_accuracy") if both else None

    def begin(self) -> None:
        self._percent = False
        self._first = -1  # the launch's first evaluation: its labels are not others later on
        self._theirs = math.nan  # the evaluation before
        self._highest = 0.0  # accuracy of an evaluation before, as a multiple of a guess's

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._percent = self._percent or value > 1
        self._first = place[0] if self._first < 0 else self._first
        pairs = history.channel("model/loss_pairs")
        widths = pairs or history.channel("model/output_width")
        width = widths.first if widths is not None else math.nan  # whenever it came: it is the model's
        ours, theirs = usual(history.role("loss"), *place, 16), known(history.role("eval_loss"), *place)
        if not width >= 2 or not math.isfinite(ours + theirs):
            return
        right = (value / 100 if self._percent else value) * width
        guess = math.log(width)
        differs = right <= self.at["accuracy"] and theirs > guess
        near = self.at["pairs"] if pairs is not None else self.at["near"]
        unlike = width >= 5 and right <= near and theirs > self.at["worse"] * guess
        differs = differs or (unlike and not few_examples(history, place))
        differs = differs and not usual(history.channel("model/top_target_share"), *place) >= self.at["one"]
        differs = differs and not others_scale(history, place)
        differs = differs and not by_heart(history, place)
        differs = differs and not self._tells_apart(history, place, width)
        outlier = history.channel("model/input_outlier")  # batch norm's statistics are theirs
        differs = differs and not known(outlier, *place) > 0
        differs, self._theirs = differs and theirs != self._theirs, theirs  # one that never changes is of other weights
        if pairs is None:
            self._highest = max(self._highest, right)
            differs = differs and self._highest < self.at["before"]
        right_ones = self._answers(history, place)
        learnt = ours < self.at["learnt"] * guess or right_ones >= self.at["learnt"] + 0.5 / width
        classes = right_ones == right_ones or pairs is not None or history.channel("model/class_targets") is not None
        if self.lasts(differs and learnt and classes, place, self.at["evaluations"]):
            yield self.finding(
                self._first, f"The evaluation's accuracy is {100 * right / width:.3g}%, where a guess has "
                f"{100 / width:.3g}%, and its loss {theirs:.4g}, while that of the training is {ours:.4g}.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"accuracy": right / width},
                causes=[*([_AVERAGE] if other_model(history, place[1]) else []), *_never_moved(history, place),
                        *self.causes],
            )  # fmt: skip

    def _tells_apart(self, history: RunHistory, place: Place, width: float) -> bool:
        """Whether the rows of the evaluation's classes are right more often than by a guess, in the mean over
        classes: its labels are those of the training, and one class that is frequent there is rarely the answer."""
        several = watched(history, "compared_named", place) >= self.at["several"]
        return several and watched(history, "compared_recall", place) * width >= self.at["recall"]

    def _answers(self, history: RunHistory, place: Place) -> float:
        """The share of the training's examples that are right of late, NaN if that is not logged."""
        ours, theirs = answers(history), history.role("eval_accuracy")
        assert theirs is not None
        for word in ("train", "training", "") if ours is None else ():
            ours = ours or history.channel(_HELD_OUT.sub(word, theirs.name, count=1).strip("/_. "))
        share = usual(ours if ours is not theirs else None, *place, 16)
        return share / 100 if self._percent else share


class EvaluationBelowGuess(WatchRule):
    """The evaluation is worse than a guess from its first look on, and gets no better, while the training learns.

    The training's loss is below three quarters of that of a guess (of losses other than a cross-entropy: a fifth of
    that of the first eight rows), few of the examples that were looked at came before (or few had when the first
    evaluation was 1.5 times a guess's, and the training had learnt), and each of three evaluations or more is above 1.1
    times that of a guess (1.5 times the first rows'), the last one no lower than nine tenths of the first; one that is
    near a guess before the training has learnt does not count. Of a preference against a reference, which the graph
    shows and which begins at ln 2, 1.04 times ln 2 is enough, if the first evaluation is above that while the training
    is as far below it, before its pairs came again. Of texts, if the model that is trained is evaluated itself, and
    hardly any had come again at the first evaluation, the training's loss is one of new texts: nine tenths of a guess's
    are enough, and evaluations above 1.02 times that. Who has learnt nothing of use would still guess: what is asked in
    the evaluation is another question. An evaluation that falls is measured in another unit, and gives no finding, but
    where the watch has seen its answers, and half as many as by a guess or fewer are right, once the last three of six
    no longer fall, 60 steps behind the start: what batch norm's statistics lacked at first is over by then. Nor does
    one that never changes give one, one with an accuracy of five times a guess's (twice, in a model with batch norm,
    whose statistics lag behind weights that move fast), or a training in which a class is missing, batches are of one
    class each, or targets are the inputs. Buffers of 0 and 1 (`OtherLabels`) are the first cause. Where the model that
    is trained was never evaluated itself, an average of its weights that hardly moves is the first cause; in a model
    with batch norm, if evaluations differ by a tenth and are 1.5 times a guess's, an average of weights without their
    buffers comes before it. Targets that are numbers may be of another scale, which comes first from ten times the
    training's first loss on; those of a denoiser may be minus the noise that the inputs have. Of pairs the guess is
    among as many as the evaluation has, where its cross-entropy was seen, and a logged `recall@1` is an accuracy. Where
    pairs are matched, and another network that moves is given what the trained one is given, both sides of a pair may
    be the same, which comes first.

    What to do: compare one example of both, input and target, as they go into the loss.
    """

    name, family, kind, severity = "evaluation_below_guess", "eval", "data", "warning"
    proves = "evaluation"
    needs = ("loss", "eval_loss", "=model/loss_reversed|=model/loss_multiplied|=model/softmax_twice",
             "=model/rows_again")  # fmt: skip
    least = 3
    about = "The evaluation is worse than a guess, while the training learns."
    thresholds: ClassVar = {
        "learnt": (0.75, "of the loss of a guess; ours"),
        "fell": (0.2, "of the first rows' loss, of another loss; ours"),
        "worse": (1.1, "times the loss of a guess; ours"),
        "above": (1.5, "times the first rows' loss; ours"),
        "fresh": (1.5, "times the loss of a guess, at the first evaluation; ours"),
        "again": (0.25, "of a batch's examples were seen before: they may be memorized; ours"),
        "evaluations": (3.0, "ours"),
        "accuracy": (5.0, "times a guess's, where it is logged; ours"),
        "normed": (2.0, "times a guess's, of batch norm, whose statistics lag while weights move fast; ours"),
        "one": (0.75, "of a batch's targets are of one class: they may be sorted; ours"),
        "falls": (0.9, "the last evaluation over the first; ours"),
        "settled": (6.0, "evaluations, of which the last three don't fall; ours"),
        "steps": (60.0, "behind the start, the same; ours"),
        "rows": (64.0, "whose answers were seen, the same; ours"),
        "right": (0.5, "of a guess's accuracy, that they have at most, the same; ours"),
        "near": (0.97, "of the loss of a guess, while nothing is learnt yet; ours"),
        "changes": (1.1, "the highest evaluation over the lowest, of weights that are not as drawn; ours"),
        "begins": (0.02, "of ln 2, that a preference begins at; ours"),
        "swapped": (1.04, "times ln 2, of a preference; ours"),
        "text_learnt": (0.9, "of the loss of a guess, on texts that are new; ours"),
        "text_worse": (1.02, "times the loss of a guess, of texts: the mean of many places; ours"),
        "new": (0.05, "of a batch's texts were seen before: a training loss is one of new texts; ours"),
        "guessed": (1.25, "of a guess's accuracy, where an evaluation was near it; ours"),
    }
    causes = OtherLabels.causes
    remedies = ("compare one example of both, input and target, as they go into the loss: an index, a sign, a shift",)

    def channel(self, history: RunHistory) -> Channel | None:
        evaluation, loss = history.role("eval_loss"), history.role("loss")
        if evaluation is None or loss is None or is_game(history, loss) or is_of_wholes(evaluation.name):
            return None
        return evaluation

    def begin(self) -> None:
        self._values: list[float] = []
        self._over = self._fresh = self._near = False

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        loss = history.role("loss")
        assert loss is not None
        step = place[0] - 1  # of rows whose step is over
        rows = loss.rows(0, 8)
        if self._over or step < 8 or len(rows) < 8 or not math.isfinite(value) or rows.value.min() <= 0:
            return
        classes = known(history.channel("model/loss_classes"), step, *place[1:])
        if math.isnan(classes) and known(history.channel("model/softmax_twice"), step, *place[1:]) == 0:
            classes = known(history.channel("model/output_width"), step, *place[1:])  # of targets that are chances
        first = float(numpy.median(rows.value))
        averaged = known(history.channel("model/preference_averaged"), step, *place[1:])
        chosen = averaged == averaged and abs(float(rows.value[0]) / math.log(2) - 1) <= self.at["begins"]
        classes = 2.0 if chosen else classes
        if not classes >= 2 and _bootstrapped(history, step, place):
            return  # what a guess has grows with the targets
        guess, learnt, worse = (
            (math.log(2), self.at["learnt"], self.at["swapped"])
            if chosen
            else (math.log(classes), self.at["learnt"], self.at["worse"])
            if classes >= 2
            else (first, self.at["fell"], self.at["above"])
        )
        pairs = known(history.channel("model/loss_pairs"), step, *place[1:])
        asked = guess if not pairs > 1 else math.log(max(pairs, watched(history, "compared_width", place)))
        shift = known(history.channel("model/target_shift"), step, *place[1:])
        text = classes >= 2 and not chosen and math.isfinite(shift)
        learnt, worse = (self.at["text_learnt"], self.at["text_worse"]) if text else (learnt, worse)
        known_before = usual(history.channel("model/rows_again"), step, *place[1:], 8)
        ours = usual(loss, step, *place[1:], 16)
        if classes >= 2 and ours >= learnt * guess and self.at["near"] * guess <= value <= worse * asked:
            self._near = True
            return
        self._values.append(value)
        if len(self._values) == 1:  # what has not come again is not memorized
            far = classes >= 2 and value > self.at["fresh"] * asked
            far, least = (value > worse * asked, 1 / worse) if chosen else (far, self.at["learnt"] if text else learnt)
            self._fresh = far and known_before <= self.at["again"] and ours < least * guess
            new = text and known_before <= self.at["new"] and ours < learnt * guess
            self._fresh = self._fresh or (new and value > worse * asked)
        self._over = value <= worse * asked or (known_before > self.at["again"] and not self._fresh)
        if self._over or len(self._values) < self.at["evaluations"] or not ours < learnt * guess:
            return
        little = min(self._values) <= self.at["worse"] * asked or ours >= self.at["learnt"] * guess
        if text and little and (not self._fresh or other_model(history, place[1])):
            return
        accuracy = usual(history.role("eval_accuracy"), step, *place[1:], 3) * max(classes, 1.0)
        accuracy = max(_recall(history, step, place) * pairs, accuracy) if pairs > 1 else accuracy
        missing = known(history.channel("model/untargeted_classes"), step, *place[1:])
        sorted_ones = usual(history.channel("model/top_target_share"), step, *place[1:]) >= self.at["one"]
        sorted_ones = sorted_ones and not math.isfinite(shift)  # most of a text's tags are one
        copied = shift == 0
        normed = history.channel("model/norm_momentum") is not None
        most = self.at["guessed" if self._near else "normed" if normed else "accuracy"]
        if (
            accuracy > most or missing >= 1 or sorted_ones or copied
        ):  # it knows some of them: those that were trained on
            return
        still = min(self._values) == max(self._values)  # `evaluation_frozen` is about that
        falls = value < self.at["falls"] * self._values[0] and not self._answers_wrong(history, place)
        if falls or still or others_scale(history, place):
            return
        if not self.first(place[2]):
            return
        yield self.finding(
            0, f"The evaluation's loss is {value:.4g}, above that of a guess ({asked:.4g}) since the first evaluation, "
            f"while that of the training is {ours:.4g}.",
            found=place[0], segment=place[2],
            confidence=0.8 if _is_stale(history, place) else 0.95 if classes >= 2 else 0.9,
            causes=[*self._average(history, place, value / asked), *_never_moved(history, place),
                    *self._sides(history, place),
                    *([_SWAPPED, *self.causes] if chosen else self._why(history, place, classes, value / first))],
            evidence={"evaluation": value, "guess": asked, "training": ours},
        )  # fmt: skip

    def _answers_wrong(self, history: RunHistory, place: Place) -> bool:
        """Whether evaluations that fell at first stand still, and their answers are wrong more often than a guess's."""
        names = ("own", "rows", "width", "recall")
        own, rows, width, recall = (watched(history, f"compared_{name}", place) for name in names)
        late = place[0] >= self.at["steps"] and len(self._values) >= self.at["settled"]
        still = late and min(self._values[-2:]) >= self.at["falls"] * self._values[-3]
        wrong = width > 1 and own * width <= self.at["right"] and not recall * width >= 1  # in the mean over classes
        return still and wrong and rows >= self.at["rows"]

    def _average(self, history: RunHistory, place: Place, times: float) -> list[str]:
        """Where another model than the trained one is evaluated. One that is as it was drawn is about as good as a
        guess, and stays so; one that changes and is far worse has other statistics of batch norm than its weights."""
        if not other_model(history, place[1]):
            return []
        changes = max(self._values) > self.at["changes"] * min(self._values)
        normed = history.channel("model/norm_momentum") is not None
        return [*([_BUFFERS] if normed and changes and times > self.at["fresh"] else []), _AVERAGE]

    def _sides(self, history: RunHistory, place: Place) -> list[str]:
        """Where pairs are matched and another network, which moves, is given what the trained one is given: the sides
        of a pair may be the same."""
        matched = watched(history, "loss_pairs", place) > 1 and watched(history, "other_moved", place) > 0
        same = history.channel("model/other_same_input") if matched else None
        looks = newest(same, *place, 3) if same is not None else numpy.empty(0)
        return [SAME_VIEWS] if len(looks) and (looks == 1).all() else []

    def _why(self, history: RunHistory, place: Place, classes: float, times: float) -> list[str]:
        """Targets that are numbers may be of another scale as well: the likelier, the further off. Noise that goes into
        the inputs with one sign and is a target with the other has its own cause."""
        if classes >= 2:
            return list(self.causes)
        noise, share = (newest(channel, *place, 5) if (channel := history.channel(f"model/noise_{name}")) is not None
                        else numpy.full(5, math.nan) for name in ("target", "share"))  # fmt: skip
        if (noise == 1).all() and (share < -_AGAINST).all():
            return [_MINUS_NOISE, *self.causes]
        scaled = "targets not scaled: the evaluation's are not shifted or divided as the training's"
        return [scaled, *self.causes] if times >= _FAR else [*self.causes, scaled]


def _bootstrapped(history: RunHistory, step: int, place: Place) -> bool:
    """Whether another network of the same make is asked in the steps of the training, and does not stand still."""
    if known(history.channel("model/other_asked"), step, *place[1:]) != 1:
        return False
    moved = history.channel("model/other_moved")
    rows = moved.rows() if moved is not None else None
    return rows is not None and bool((rows.value[rows.time <= place[1]] > 0).any())


def _never_moved(history: RunHistory, place: Place) -> list[str]:
    """Where a part that normalises has a running mean of 0 and a deviation of 1 still, which evaluations use."""
    return [_UNSET] if known(history.channel("model/unset_buffers"), *place) == 1 else []


def _is_stale(history: RunHistory, place: Place) -> bool:
    """Whether batch norm's statistics are seen to stand still, or to begin anew: that is the cause, and no label."""
    names = ("stale_statistics", "reset_statistics")
    return any(known(history.channel(f"model/{name}"), *place) == 1 for name in names)


_UNSET = "running statistics not updated: a part's mean and deviation are 0 and 1 still, and evaluations use them"
_BUFFERS = "batch norm's statistics are stale: the average has the trained weights, and not their buffers"
_SWAPPED = "pairs swapped: chosen and rejected are exchanged in the training, or in the evaluation"
_MINUS_NOISE = "sign reversed: the training's targets are minus the noise that is in their inputs"
_AGAINST = 0.2  # of the targets in the inputs, below 0; of noise that the inputs have it is above 0
_FAR = 10.0  # times the training's first loss: no other order of the same targets is that far off


def _recall(history: RunHistory, step: int, place: Place) -> float:
    """The least recall that is logged of pairs, as that of the first answer is; 0 where there is none."""
    found = (usual(history.channel(name), step, *place[1:], 3) for name in history.channels if _RECALL.fullmatch(name))
    return min((one for one in found if 0 <= one <= 1), default=0.0)


RULES = (OtherLabels, EvaluationBelowGuess)
