"""A cross-entropy that stays at the loss of a guess, among classes or among pairs.

In:   the training's loss; how many classes or pairs its graph has; accuracies, evaluations.
Out:  findings of `UnrelatedLabels`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel import depth
from barograph.doctor.kernel.cursor import known, newest, param_norm_of, usual
from barograph.doctor.kernel.curve import between
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.loss.given import GivenLosses
from barograph.doctor.rules.optimizer.accounts import outweighed

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]

_PROOF = 0.95
_EVALUATIONS, _RISE, _FEWEST, _ENOUGH = 8, 6.0, 3, 5
_NEARER = 0.01  # of the first evaluation's loss
_OTHER, _VARIES, _TERMS = 0.1, 0.02, 20.0  # of what is logged, of that factor; times it: more is a loss's scale
_NEIGHBOURS = expression(r"(?:.*[^a-z])?(?:knn|recall|probe|neighbou?rs?|(?:r|hits?)(?=@\d))(?:[^a-z].*)?")


class UnrelatedLabels(WatchRule):
    """A cross-entropy stays at the loss of a guess among its classes, or pairs, as its graph says how many there are.

    When the run is over, or behind 1,000 rows, the last 200 rows (of pairs, and of keys beside a queue, 120) are looked
    at: a training may stay at a guess for long before it learns, and one that has learnt something in the end is well.
    Where the optimizer has counted several steps to a row, they are as many fewer rows, 40 at least. The mean of their
    last half is within 5% of ln n, and so was that of the other; weights change by steps of a usual size, or, of pairs,
    have changed: the first five rows were a tenth above ln n or more, and both means are within a thousandth of it,
    where all pairs are alike and hardly any gradient is left. Where accuracies are far above a guess's, and the
    evaluation's loss is that of the training, all is learnt but how to say it: the logits are nearly equal, as under a
    high temperature, or where similarities are multiplied by it instead of divided (of pairs without a logged accuracy,
    by the answers that the watch has seen); that is the first cause, too, where the loss of pairs is below a guess's in
    both halves, by four standard errors and half a percent, or where nineteen of twenty rows are below it, and as many
    by less than a fiftieth, if the first five rows were within a twentieth of it: logits that are nearly equal give no
    other loss. Where of pairs neither accuracy nor loss of the evaluations got better since the first, nothing was
    learnt all the same: what is alike is near each other from the start. Else inputs and targets have nothing to do
    with each other. A mean that fell by a fiftieth is of a slow training, but where there are five evaluations or more,
    the last of a guess's loss or more, and a loss that began at more than half as much again is one of a bad start:
    neither gives a finding. Of pairs, an accuracy that has risen from evaluation to evaluation shows that something is
    learnt, however little the loss says of it; so does, of keys beside a queue, an evaluation loss that is below the
    first by a hundredth, where the training's is below a guess's as above. An evaluation may have more pairs than a
    batch, and a higher guess: one whose loss has come down by a hundredth does not guess. Where the loss's graph has
    several terms, and in three looks or more what backward passes are called with (`model/loss_given`) is not what is
    logged, by a tenth, nor the same but for a factor that stays within a fiftieth, the logged loss is one of the terms,
    and need not be that of the classes or pairs: nothing is said. Where less than half of all places are targets, as of
    a masked language model, it takes a thousand rows. Where the first block's gradient is below a thousandth of the
    last block's (of a model without blocks: that of few layers a millionth of that of others), the first cause is that
    gradients vanish; where the weights had grown fivefold in the first hundred steps, that these were too large. So it
    is where the first block's gradient was a third of the last block's or more at the first look, and is a thirtieth or
    less now. Where a decay that is added to the gradient was larger than the loss's from the start, nothing is said:
    `decay_dominates` is about that.

    What to do: look at ten examples with their targets, as they go into the loss.
    """

    name, family, kind, severity = "unrelated_labels", "data", "data", "warning"
    proves = "training"
    needs = ("loss", "=model/loss_classes|=model/loss_pairs", "=model/update_p50|=model/param_norm")
    least = 200
    about = "The loss stays at that of a guess among its classes or pairs."
    thresholds: ClassVar = {
        "rows": (200.0, "ours"),
        "masked": (1000.0, "of a masked language model; ours"),
        "fewest": (40.0, "rows, whose means say something; ours"),
        "patience": (1000.0, "rows, before the run is over; ours"),
        "pairs": (120.0, "where batches are pairs, or have keys beside a queue; ours"),
        "began": (1.5, "of ln n, at most, the first five rows; ours"),
        "near": (0.05, "of ln n; ours"),
        "exact": (0.001, "of ln n, where hardly any gradient is left; ours"),
        "fell": (0.02, "of ln n, between two hundred rows; ours"),
        "accuracy": (5.0, "times a guess's; ours"),
        "alike": (0.05, "evaluation against training loss; ours"),
        "errors": (4.0, "standard errors that the loss of pairs is below a guess's where something is learnt; ours"),
        "below": (0.005, "of ln n, the same; ours"),
    }
    causes = ("labels shuffled: inputs and targets have nothing to do with each other",)
    remedies = ("print ten inputs with their targets, as they go into the loss: what joined them may be off by one",)

    def channel(self, history: RunHistory) -> Channel | None:
        loss = history.role("loss")
        return loss if (history.channel("model/loss_classes") or history.channel("model/loss_pairs")) else None

    def reset(self) -> None:
        super().reset()
        self.begin()

    def begin(self) -> None:
        self._newest: Place | None = None
        self._first: Place | None = None
        self._count = 0
        self._begun: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._count += 1
        self._newest, self._first = place, self._first or place
        if len(self._begun) < 5:
            self._begun.append(value)
        if self._count >= self.at["patience"] and self._count % 50 == 0:
            yield from self._judge(history, place)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if history.facts.get("finished") and self._newest is not None:
            yield from self._judge(history, self._newest)

    def _rows(self, history: RunHistory, steps: float, place: Place) -> int:
        """How many rows are as many steps of the optimizer, by its own count."""
        ages, first = history.channel("model/optimizer_age"), self._first
        if ages is None or first is None or self._count < 2:
            return int(steps)
        rows = ages.rows()
        here = (rows.segment == place[2]) & (rows.time <= place[1])
        step, age = rows.step[here], rows.value[here]
        passed = float(step[-1] - step[0]) if len(step) else 0.0
        counted = float(age[-1] - age[0]) / passed if passed > 0 else 0.0
        each = counted * (place[0] - first[0]) / (self._count - 1)
        return int(max(min(steps, self.at["fewest"]), math.ceil(steps / each))) if each > 1 else int(steps)

    def _hardly_moves(self, values: Floats, guess: float) -> bool:
        """Whether nearly all rows are below a guess, and none of these far: of pairs that have nothing to do with each
        other half are above it, and of examples that are known by heart some are far below."""
        low, high = numpy.quantile(values, (0.05, 0.95))
        return bool(guess * (1 - self.at["fell"]) < low and high < guess)

    def _came_down(self, guess: float, off: float) -> bool:
        """Whether the loss was above a guess's at first, and is that: all are alike, and hardly any gradient is left
        to change weights now."""
        return float(numpy.median(self._begun)) >= (1 + 2 * self.at["near"]) * guess and off <= self.at["exact"]

    def _judge(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        paired = watched(history, "loss_pairs", place)
        pairs, queued = paired > 1, watched(history, "loss_queue", place) > 0
        count = self._rows(history, self.at["pairs" if pairs or queued else "rows"], place)
        if self._count < count:
            return
        loss, step = history.role("loss"), place[0] - 1  # of rows whose step is over
        classes = known(history.channel("model/loss_classes"), step, *place[1:])
        classes = classes if math.isfinite(classes) else paired
        guess = math.log(classes) if classes >= 2 else math.nan
        assert loss is not None
        if not float(numpy.median(self._begun)) <= self.at["began"] * guess:
            return  # it has come down to a guess's from far above, and may go on
        masked = watched(history, "targets", place) < 0.5 * watched(history, "places", place)
        if masked and self._count < self.at["masked"]:
            return
        values = newest(loss, step, *place[1:], count)
        early, late = float(numpy.mean(values[: count // 2])), float(numpy.mean(values[count // 2 :]))
        off = max(abs(early - guess), abs(late - guess)) / guess if guess > 0 else math.inf
        if not off <= self.at["near"] or _is_a_part(history, place):
            return
        accuracy = usual(_accuracy(history, pairs), step, *place[1:], 3) * classes
        evaluation = usual(history.role("eval_loss"), step, *place[1:], 3)
        # evaluations may have another number of pairs, and so another guess
        alike = pairs or abs(evaluation - late) <= self.at["alike"] * guess
        ranked = accuracy >= self.at["accuracy"] and alike and accuracy <= classes
        by_heart = _by_heart(history, guess, place) and not (pairs and _comes_nearer(history, place))
        slow = early - late > self.at["fell"] * guess and not by_heart
        if not ranked and (slow or not ((pairs and self._came_down(guess, off)) or _moves(history, place))):
            return
        if evaluation < guess * (1 - 2 * self.at["near"]) or not self.first(place[2]):
            return
        what, others = "pairs" if pairs else "classes", [_PAIRED] if queued else []
        labels = _PAIRED if pairs else self.causes[0]
        if queued:
            labels = "labels shifted: they don't name the column of the key, and queued ones are random"
        if ranked and pairs and _gets_worse(history, place):
            yield self.finding(
                0, f"After {self._count} rows the loss is {late:.4g}, that of a guess among {classes:.0f} pairs, and "
                "the evaluation has come no nearer to the right pairs than it was at first.", found=place[0],
                segment=place[2], confidence=0.9, causes=[labels, _TOO_HIGH],
            )  # fmt: skip
            return
        if ranked:
            yield self.finding(
                0, f"The loss is {late:.4g}, that of a guess among {classes:.0f} {what} is {guess:.4g}; but the "
                f"accuracy is {accuracy / classes:.2g}: the logits are right in their order, and nearly equal.",
                found=place[0], segment=place[2], confidence=_PROOF, key="temperature", kind="logits",
                causes=_NEARLY_EQUAL if pairs else [_TOO_HIGH],
                remedies=["divide similarities by 0.05 to 0.2, and logits of classes by 1"],
            )  # fmt: skip
            return
        error = float(numpy.std(values)) / math.sqrt(count / 2)
        below = max(early, late) < guess - max(self.at["errors"] * error, self.at["below"] * guess)
        if ((pairs or queued) and _gets_better(history, place)) or (queued and below and _comes_nearer(history, place)):
            return
        if outweighed(history, place[1]) >= 1:
            return  # `decay_dominates` speaks when the run is over: nothing can be learnt of any labels
        vanished, blown = depth.vanishes(history, *place), _grown(history, place)
        faded = not vanished and depth.faded(history, *place)
        why = [_BROKEN, *_RATE] if faded else [
            *([_LARGE] if vanished and blown else []), *([depth.CAUSE] if vanished else [])
        ]  # fmt: skip
        under = pairs and ((not by_heart and below) or self._hardly_moves(values, guess))
        learnt = under and max(abs(one - guess) for one in self._begun) <= self.at["near"] * guess
        yield self.finding(
            0, f"After {self._count} rows the loss is {late:.4g}, where a guess among {classes:.0f} {what} has "
            f"{guess:.4g}: " + (f"no gradient reaches the first layers{blown}." if vanished else
                                "the first layers' gradients, as large as the last ones' when the training began, are "
                                "a small part of them: steps have broken what was initialised." if faded else
                                "it is below it all the time, and hardly falls." if learnt else
                                "it has come hardly below it." if under else
                                "evaluations have a guess's loss or more: only its own examples are learnt."
                                if by_heart else
                                "nothing in the inputs says what the targets are."),
            found=place[0], segment=place[2], confidence=0.9 if _moves(history, place) else 0.7,
            kind="vanishing" if vanished else "not_learning" if faded else "logits" if learnt else self.kind,
            causes=[*why, *(_NEARLY_EQUAL if learnt else []), labels, *others],
            remedies=list(_SMALLER if faded or (vanished and blown) else depth.REMEDIES if vanished else self.remedies),
        )  # fmt: skip


_NEARLY_EQUAL = ["temperature inverted: similarities are multiplied by it, and are nearly equal, whatever is learnt",
                 "temperature too high"]  # fmt: skip
_PAIRED = "labels shifted: the two sides of a pair don't belong together"
_LARGE = "learning rate too high: the first steps made the weights so large that no gradient goes through them"
_BROKEN = "learning rate too high: the first steps broke the initialisation"
_RATE = ["no warm-up: or one that is too short"]
_SMALLER = ["lower the learning rate tenfold", "warm it up, and clip gradients"]
_GROWN, _FIRST = 5.0, 100  # times the first norm of all weights, in that many steps
_TOO_HIGH = "temperature too high: the logits are divided by too much"


def _is_a_part(history: RunHistory, place: Place) -> bool:
    """Whether the logged loss is one of several terms: it is not what backward passes are called with, nor the same but
    for a factor."""
    if not watched(history, "loss_terms", place) > 1:
        return False
    told = [one for one in GivenLosses().new(history) if one.place[1] <= place[1] and one.place[2] == place[2]]
    if len(told) < _FEWEST:
        return False
    times = numpy.array([one.times for one in told])
    each = numpy.array([one.times / max(1.0, one.passes) for one in told])
    whole = any(abs(float(numpy.median(one)) - 1) <= _OTHER for one in (times, each))
    varies = float(numpy.ptp(times)) > _VARIES * abs(float(numpy.median(times)))
    return not whole and varies and 1 / _TERMS <= float(numpy.median(each)) <= _TERMS


def _by_heart(history: RunHistory, guess: float, place: Place) -> bool:
    """Whether there are five evaluations or more, and the last have the loss of a guess or more: what the training has
    learnt since is its own examples."""
    losses = between(history.role("eval_loss"), 0, place[0] + 1, place[2])
    return len(losses) >= _ENOUGH and bool(losses[-_FEWEST:].min() >= guess)


def _comes_nearer(history: RunHistory, place: Place) -> bool:
    """Whether the lowest of the last evaluation losses is below the first by a hundredth."""
    losses = between(history.role("eval_loss"), 0, place[0] + 1, place[2])
    return len(losses) > _FEWEST and bool(losses[-_FEWEST:].min() < (1 - _NEARER) * losses[0])


def _grown(history: RunHistory, place: Place) -> str:
    """Where the weights' norm grew many times over in the first steps: that it did."""
    norm = param_norm_of(history)
    first = int(norm.rows(0, 1).step[0]) if norm is not None and norm.end else 0
    norms = between(norm, first, min(first + _FIRST, place[0]) + 1, place[2])
    high = float(norms.max() / norms[0]) if len(norms) > 1 and norms[0] > 0 else 0.0
    return f", and the weights' norm had grown {high:.3g} times by step {first + _FIRST}" if high >= _GROWN else ""


def _accuracy(history: RunHistory, pairs: bool) -> Channel | None:
    """What says how many answers are right; of pairs what the watch has seen, where nothing is logged."""
    told = history.role("eval_accuracy") or history.role("accuracy")
    return _answers(history) if told is None and pairs else told


def _answers(history: RunHistory) -> Channel | None:
    """The share of an evaluation's answers that are right, as the watch has seen it."""
    return history.channel("model/compared_own")


def _gets_worse(history: RunHistory, place: Place) -> bool:
    """Whether neither the accuracy nor the loss of the evaluations, three at least, has got better since the first:
    rows that are alike are near each other without any training."""
    channels = history.role("eval_accuracy") or _answers(history), history.role("eval_loss")
    right, losses = (between(one, 0, place[0] + 1, place[2]) for one in channels)
    if min(len(right), len(losses)) < _FEWEST:
        return False
    late = slice(-_FEWEST, None)
    return bool(numpy.median(right[late]) <= right[0] and numpy.median(losses[late]) >= losses[0])


def _gets_better(history: RunHistory, place: Place) -> bool:
    """Whether the evaluations' accuracy, eight at least, rose from the first by six deviations of those since half."""
    others = (history.channel(name) for name in sorted(history.channels) if _NEIGHBOURS.fullmatch(name.lower()))
    accuracies = between(history.role("eval_accuracy") or next(others, None), 0, place[0] + 1, place[2])
    late = accuracies[len(accuracies) // 2 :]
    deviation = float(numpy.std(late, ddof=1)) if len(accuracies) >= _EVALUATIONS else math.nan
    return deviation > 0 and float(numpy.mean(late)) - accuracies[0] >= _RISE * deviation


def _moves(history: RunHistory, place: Place) -> bool:
    """Whether steps change the weights by what is usual, so that something would be learnt if there were anything;
    those of 16 bits by more than half a unit in their last place."""
    change = usual(history.channel("model/update_p50"), *place)
    if watched(history, "half_parameters", place) > 0 and change < 1e-3:
        return False
    rates = history.role("lr")
    return change > 1e-4 or (change != change and (rates is None or known(rates, *place) > 1e-6))


RULES = (UnrelatedLabels,)
