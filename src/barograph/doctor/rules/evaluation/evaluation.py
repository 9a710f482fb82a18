"""The evaluation beside the training: overfitting, jumps, values that are not finite or never change.

In:   the series of the evaluation loss, and beside it loss and accuracy.
Out:  findings of `Overfitting`, `ValidationDivergence`, `EvaluationJump`, `EvaluationNonFinite`, `EvaluationFrozen`,
      `EvaluationBetter`, `EvaluationGap`, `ValidationPlateau`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

import numpy

from barograph.doctor.kernel.channels import Channel, RunHistory
from barograph.doctor.kernel.cursor import exp, other_model
from barograph.doctor.kernel.curve import again, before, between, is_game, noise_of, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.local import median
from barograph.doctor.kernel.purpose import overfits_on_purpose
from barograph.doctor.kernel.stages import stage_between
from barograph.doctor.rules.evaluation.apart import beside_falls, causes_apart
from barograph.doctor.rules.evaluation.averages import (
    AverageBehind,
    AverageWrong,
    TeacherGradients,
    TeacherStill,
    TeacherSwapped,
    TeacherUnset,
)
from barograph.doctor.rules.evaluation.evaluations import (
    EvaluationPoint,
    Rise,
    evaluates_few,
    in_first_epoch,
    is_total,
    largest_rise,
    learnt_at_once,
    trained_then,
    usual_change,
)
from barograph.doctor.rules.evaluation.non_finite import EvaluationNonFinite
from barograph.doctor.rules.evaluation.running import StatisticsSlow, statistics_left
from barograph.doctor.rules.evaluation.signs import (
    AVERAGE,
    EvaluationBetter,
    EvaluationFrozen,
    EvaluationGap,
    EvaluationJump,
)
from barograph.doctor.rules.evaluation.units import EvaluationTotal
from barograph.doctor.rules.loss.rise import falling_term
from barograph.doctor.rules.rl.reference import reference_moved

_ALONE = [
    "overfitting: the examples are memorized",
    "learning rate too high",
    "data exhausted: the same examples repeat",
]
_OTHER_DATA = "evaluation data differ: the training loss is far above the evaluation's"
_DIFFERENT = [
    "labels shifted: training and evaluation have different targets, or the training's inputs show them",
    "softmax twice: in the training's loss alone",
    "tokenizer mismatch: or the evaluation data are prepared differently",
    "evaluation mode left on: or batch norm's statistics are stale",
]
_BETTER = 0.8  # of an evaluation that jumped: what it has come to since
_FAR_ABOVE = 4 / 3  # the training loss over the evaluation's, from which on the two are not of the same data
_BELOW_NOW = 0.6  # of the last evaluations: what lies below them by so much is known by heart, wherever it began
_MEMORIZED = 0.5  # of the best evaluation, below it the training loss: it lay above as the mean of a first epoch does
_NEVER = 0.8  # of the loss that the training began with, in each evaluation: those are the weights of then
_DRAWN = 1.25  # the same: weights as they were drawn are as good as those of the first step
_LITTLE_LEARNT = 0.8  # of the first loss: what is left of it where examples are memorized is far less
_RAISED = 1.2  # times the learning rate at the best evaluation
_RISEN = "learning rate too high: it was raised since the best evaluation"
_AT_ITS_END = "Compare evaluations at one learning rate, as at the end of each cycle."
_MEASURED = "Compare what the two losses are measured on: data, weights, reduction."
_NOT_MOVED = 0.5  # of what batch norm's running statistics began as
_WORSE = 0.05  # in ln: a training loss that much above what it was has not fitted its examples better


class Overfitting(Rise):
    """The evaluation gets worse while the training loss goes on falling: the model memorizes its examples.

    The last three evaluations after the best are above it, the median of them by 3% (an info finding) or by 10% (a
    warning), by twice the largest rise between two evaluations before and by three standard deviations of single
    evaluations; the training loss is below what it was then, by more than its noise, or below four fifths of the
    evaluation and no more than 5% and three deviations above what it was. The best is the median of the best evaluation
    and its neighbours: the lowest of many is low by chance. With five evaluations 0.1 nats warn, a tenth of the
    perplexity. Where the accuracy is as good as at the best loss, the model is only overconfident: an info finding, as
    is a rise of less than half while a schedule has the learning rate a fifth above that of then, or where evaluations
    have sixteen examples or fewer (`val_tasks: 6`). An evaluation that rose at once, and has got better each time
    since, by a fifth in all, does not overfit. The step is that of the best evaluation: keep its checkpoint.

    In the first epoch nothing is memorized, for no example was seen twice: where the epoch or the watch of the data
    says so of the third evaluation behind the best, the two losses are of different targets or data. So they are where
    the first evaluation, in that epoch, is a quarter above the training's loss of then, and the best one too; and where
    an area under the curve stays within 0.05 of the half that a guess has. Evaluations that rise by less each time, at
    first by nearly all that the first was, are sums that nobody set back.

    Where no training loss is logged, evaluations alone must say it, by 10%: eight of them, a quarter of all behind the
    best, an eighth of all above half of the rise, and the last three as high as ever since, to within a fifth of it. A
    hump comes down again. Losses of preferences are not compared where the reference was set anew between them.

    Where no evaluation was ever better than a guess, or than the training's first loss, the first one was a third above
    the training loss of then, and few of its examples had come again by then, the evaluation's labels or data come
    before memory; its inputs, if all are four times as bad. So do its data, of a denoiser, with new noise each time,
    where the first was 15% above, the best a third, and the training had a fifth to lose. A classifier or a matcher
    whose training was a guess at the first evaluation, and none of whose evaluations was ever better than one, has
    inputs and targets that don't belong together. Where another set's loss was a fifth lower, has lost half and doesn't
    rise, what rises is of other data: an info finding. Where the one named as the loss falls, it is another measure.

    A classifier whose evaluation is hardly better (1.5%) than the first in ten, whose accuracy there is below a half
    and has not risen by a tenth, and whose training loss has lost a quarter and is below the evaluation's, learns its
    examples and nothing else: a warning. Batches learnt by heart on purpose (`overfit_batches: 4`): an info finding.
    """

    name, kind, severity = "overfitting", "overfit", "warning"
    needs = ("eval_loss",)
    least = 4
    about = "The evaluation loss rises while the training loss falls."
    sources = ("stability guide: val_loss_increase 10%", "SageMaker Debugger: Overfit, ratio 0.1")
    thresholds: ClassVar = {
        "increase": (0.1, "stability guide"),
        "info": (0.03, "ours"),
        "nats": (0.1, "ours: a perplexity 10% higher; of five evaluations, while the training loss falls by 10%"),
        "evaluations": (3.0, "ours"),
        "alone": (8.0, "evaluations, where there is no training loss; ours"),
        "never": (10.0, "evaluations that are hardly better than the first; ours"),
    }

    def begin(self) -> None:
        super().begin()
        self._start: EvaluationPoint | None = None
        self._origin: EvaluationPoint | None = None
        self._asked, self._right = 0, (math.nan, -math.inf)  # evaluations, and their first and highest accuracy
        self._never: Finding | None = None

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        if self._origin is None and point.value > 0 and math.isfinite(point.value):
            self._origin = point
        yield from super().look(history, channel, point)
        accuracy = history.role("eval_accuracy")
        if accuracy is None or not math.isfinite(point.value):
            return
        self._start = self._start or point
        share = before(accuracy, point.step + 1, point.segment)
        self._right = share if not self._asked else self._right[0], max(self._right[1], share)
        self._asked += 1
        yield from self._never_better(history, self._start, point)

    def _never_better(self, history: RunHistory, start: EvaluationPoint, point: EvaluationPoint) -> Iterator[Finding]:
        """Whether nothing that was learnt from the examples holds for others."""
        (first, most), best = self._right, self._best.value if self._best is not None else math.nan
        bad = most < min(0.5, first + 0.1) and best > 0.985 * start.value
        if self._never is not None:
            if not bad:
                self._never.severity, self._never.message = (
                    "info",
                    f"{self._never.message}; step {point.step} was better",
                )
                yield again(self._never)
                self._answers, self._never = [-1.0], None  # it is said once
            return
        fitted = 0 < point.train < min(0.75 * start.train, point.value)
        quiet = self._told is None or self._told.severity == "info"
        if self._asked == int(self.at["never"]) and bad and fitted and quiet:
            self._never = self.finding(
                start.step,
                f"No evaluation is better than the first: {start.value:.4g} at step {start.step}, {point.value:.4g} at "
                f"step {point.step}, of which {most:.0%} are right at best, while the training loss went from "
                f"{start.train:.4g} to {point.train:.4g}",
                found=point.step,
                segment=start.segment,
                key="never",
                confidence=0.7,
                causes=self._others(history, point)
                or ["overfitting: the examples are memorized, and nothing else is learnt", *_DIFFERENT[2:]],
                remedies=["Compare a batch of the evaluation with one of the training: preparation, scale, labels.",
                          "Use more data, augmentation, or a smaller model."],
                evidence={"first": rounded(start.value), "best": rounded(best), "train_now": rounded(point.train)},
            )  # fmt: skip
            yield again(self._never)

    def risen(
        self, history: RunHistory, channel: Channel, best: EvaluationPoint, point: EvaluationPoint
    ) -> Iterator[Finding]:
        count = int(self.at["evaluations"])
        last = self._after[-count:]
        if len(last) < count or is_game(history, channel):
            return
        if reference_moved(history, best.step, point.step, best.segment):
            return
        level = median([other.value for other in last])
        rise = level / (floor := self.floor(best)) - 1
        if min(other.value for other in last) <= floor * (1 + 0.3 * self.at["info"]) or rise < self.at["info"]:
            return
        clear = max(0.3, 4 * usual_change(self._before))  # no noise, however wide its tails
        if math.log1p(rise) < 2 * largest_rise(self._before) and math.log1p(rise) < clear:
            return
        if math.log1p(rise) < 3 * noise_of([other.value for other in self._points], least=5):
            return
        alone = _is_alone(history, point)
        if alone and (rise < self.at["increase"] or not self._keeps_rising(floor, level)):
            return
        noise = self.train_noise(history)
        fell = alone or point.train < best.train * (0.98 if noise == 0 else math.exp(-3 * noise))
        rose = point.train > best.train * exp(max(_WORSE, 3 * noise))
        if not (fell or point.train < 0.8 * point.value) or rose:
            return
        long = len(self._after) >= 5 and level - best.value >= self.at["nats"] and point.train < 0.9 * best.train
        long = long and best.train > 0 < point.train and not self.by_chance(history, rise, point.train / best.train - 1)
        severity = "warning" if rise >= self.at["increase"] or long else "info"
        accuracy = history.role("eval_accuracy")
        now, then = before(accuracy, point.step + 1, point.segment), before(accuracy, best.step + 1, best.segment)
        if rise < 0.5 and (now >= then - 0.002 or _warms_up(history, best, point) or evaluates_few(history)):
            severity = "info"
        first_epoch = len(self._after) < 64 and in_first_epoch(history, self._after[count - 1].step, best.segment)
        others = best.train > _FAR_ABOVE * best.value and not first_epoch
        others = others and point.train > max(_MEMORIZED * best.value, _BELOW_NOW * level)
        aside = beside_falls(history, channel, point) if severity == "warning" else ""
        severity = "info" if others or aside or overfits_on_purpose(history) else severity
        if self._told is not None and self._told.severity == "warning" and severity == "info":
            severity = "warning"
        fresh = self._told is None or self._told.severity != severity
        if not fresh and self._told is not None and rise < 1.5 * self._told.evidence["rise"]:
            if point.step - self._told.step >= 1.5 * (self._told.last_step - self._told.step):
                self._told.last_step = point.step
                yield again(self._told)
            return
        # a rise that comes all at once has another cause
        course = [best, *self._after]
        sudden = next((b for a, b in pairwise(course) if b.value - a.value > 0.8 * (level - best.value)), None)
        behind = [other.value for other in course if sudden is not None and other.step >= sudden.step]
        if len(behind) >= count and behind == sorted(behind, reverse=True) and behind[-1] < _BETTER * behind[0]:
            return  # and gets better since: `evaluation_jump`
        lowest = self._below or best
        checkpoint = history.checkpoint_before(lowest.step + 1)
        remedies = [
            f"Keep the model of step {lowest.step}"
            + (f": the checkpoint of step {checkpoint[0]} ({checkpoint[1]})." if checkpoint else "."),
            "Use more data or fewer epochs, more dropout or weight decay.",
        ]
        message = (
            f"The evaluation loss was {lowest.value:.4g} at step {lowest.step} "
            f"and is {point.value:.4g} at step {point.step}"
        )
        if math.isfinite(lowest.train):
            message += f", while the training loss went from {lowest.train:.4g} to {point.train:.4g}"
        if alone:
            message += "; no training loss is logged beside it"
        if first_epoch:
            still = in_first_epoch(history, point.step, best.segment)
            message += ", in the first epoch" if still else "; it began to rise in the first epoch"
            remedies[1] = "Compare a batch of the training with one of the evaluation: inputs, targets, preparation."
        self._told = self.finding(
            self._told.step if self._told is not None else lowest.step,
            message,
            severity=severity,
            last_step=point.step,
            found=self._told.found if self._told is not None else point.step,
            segment=best.segment,
            evidence={
                "best": rounded(lowest.value),
                "evaluation": rounded(point.value),
                "rise": rounded(rise, 3),
                "train_then": rounded(lowest.train),
                "train_now": rounded(point.train),
                "evaluations": self._count,
            },
            causes=[_OTHER_DATA] if others else [aside] if aside else _ALONE if alone else
            self._causes(history, channel, course, sudden, first_epoch),
            remedies=[_MEASURED] if others else remedies,
            confidence=0.5 if severity == "info" else 0.7 if alone else 0.85,
        )  # fmt: skip
        yield again(self._told)

    def _keeps_rising(self, floor: float, level: float) -> bool:
        """Whether evaluations alone leave no doubt: not a hump that comes down again, nor a few of many."""
        high = max(other.value for other in self._after)
        half = sum(other.value * other.value > level * floor for other in self._after)
        seen = min(self._count, 256)
        long = self._count >= self.at["alone"] and 4 * len(self._after) >= seen and 8 * half >= seen
        return long and math.log(level / floor) > 0.8 * math.log(high / floor)

    def _untrained(self, history: RunHistory, point: EvaluationPoint) -> bool:
        """Whether another model than the trained one is evaluated, and was never better than the training began."""
        loss, channel = history.role("loss"), history.role("eval_loss")
        if loss is None or channel is None or loss.start:
            return False
        rows = channel.rows(point.row, point.row + 1)
        best = min(one.value for one in self._points)
        drawn = _NEVER * loss.first <= best <= _DRAWN * loss.first
        return len(rows) > 0 and other_model(history, int(rows.time[0])) and drawn and loss.first > 0

    def _causes(
        self,
        history: RunHistory,
        channel: Channel,
        course: list[EvaluationPoint],
        sudden: EvaluationPoint | None,
        first_epoch: bool,
    ) -> list[str]:
        """A training loss that has hardly left its start knows no example by heart. Memorizing takes its time: a rise
        from one evaluation to the next without the training loss has another cause; so has a training loss that drops
        as fast, unless at once, at the border of an epoch.
        """
        if self._count == len(self._points) and is_total([point.value for point in self._points]):
            return list(EvaluationTotal.causes)
        seen = ["overfitting: the examples are memorized", "data exhausted: the same examples repeat"]
        loss = history.role("loss")
        if self._untrained(history, course[-1]):
            return [AVERAGE, *seen]
        if statistics_left(history, channel, course[-1])[0] >= _NOT_MOVED:
            return [*StatisticsSlow.causes, *seen]
        if others := self._others(history, course[-1]):
            return others
        if loss is not None and not loss.start and course[-1].train > _LITTLE_LEARNT * loss.first:
            return [*_DIFFERENT, seen[0]]
        last = course[course.index(sudden) - 1] if sudden is not None else None
        if sudden is not None and last is not None and (not sudden.train > 0 or sudden.train > 0.8 * last.train):
            causes = [
                "tokenizer mismatch: evaluation uses another vocabulary",
                "evaluation mode left on: or training mode, with dropout, in the evaluation",
                "labels shifted: in the evaluation, or in the training alone",
            ]
            return causes if first_epoch else [*causes, seen[0]]
        if first_epoch:
            return list(_DIFFERENT)
        # what an untrained model learns between the first two evaluations is more than any leak would give it
        first = last is not None and last is self._points[0] and self._count == len(self._points)
        if sudden is None or last is None or first or learnt_at_once(history, last, sudden):
            return seen
        return ["labels shifted: the targets can be seen in the inputs", *reversed(seen)]

    def _others(self, history: RunHistory, point: EvaluationPoint) -> list[str]:
        """Causes where the two were apart before anything could be memorized; empty where they were not."""
        start, best = self._origin, self._best
        if start is None or best is None:
            return []
        return causes_apart(history, start, best, point, self._fresh(history, start, point))

    def _fresh(self, history: RunHistory, start: EvaluationPoint, point: EvaluationPoint) -> bool:
        """Whether the first evaluation came before any example was seen twice: in the first epoch as logged, or with
        the first of rows that are epochs."""
        loss = history.role("loss")
        if loss is None or loss.start or start.segment != point.segment:
            return False
        each = point.step - start.step <= 1.5 * (self._count - 1) and loss.began[0] == start.step <= 1
        return each or in_first_epoch(history, start.step, start.segment)


def _is_alone(history: RunHistory, point: EvaluationPoint) -> bool:
    """Whether no training loss was logged up to an evaluation, neither a number nor NaN."""
    loss = history.role("loss")
    return math.isnan(point.train) and (loss is None or not loss.end or loss.began[0] > point.step)


def _warms_up(history: RunHistory, best: EvaluationPoint, point: EvaluationPoint) -> bool:
    """Whether the learning rate has been raised since the best evaluation, and a schedule changes it still."""
    rates = between(history.role("lr"), best.step, point.step + 1, point.segment)
    return len(rates) > 1 and bool(rates[-1] > _RAISED * rates[0]) and bool(rates[-1] != rates[-2])


class ValidationDivergence(Rise):
    """The evaluation gets worse, and the training with it.

    As in `overfitting`, but the training loss is above what it was at the best evaluation by at least 5% too: the model
    does not memorize, it gets worse, or its data have changed. Since both losses rise, 3% and twice the largest rise
    between two evaluations before are enough, where noise does not explain them, as that of a loss of few wrong answers
    (`model/evaluated_targets`). Where the learning rate (at any step, as at a restart) or the tokens of a step grew
    since, or a stage began, it is an info finding; so it is where another set's loss was a fifth lower at first, has
    lost half and doesn't rise. Where the logged term that was nearly all of the training loss at first has fallen
    since, and it is another one that is evaluated, or a preference's reference was set anew, nothing is said.
    """

    name, kind, severity = "validation_divergence", "divergence", "warning"
    needs = ("eval_loss", "loss")
    least = 4
    about = "Evaluation and training loss rise together."
    sources = ("stability guide: phase 4, validation divergence", "picoLLM run analysis: validation that diverges")
    thresholds: ClassVar = {"increase": (0.03, "of both together; ours"), "train": (0.05, "of the training loss; ours")}

    def risen(
        self, history: RunHistory, channel: Channel, best: EvaluationPoint, point: EvaluationPoint
    ) -> Iterator[Finding]:
        last = self._after[-2:]
        if len(last) < 2 or self._told is not None or is_game(history, channel) or self._count < 4:
            return
        if usual_change(self._before) > 0.03:  # two of many that are noisy are high by chance
            last = self._after[-4:]
            if len(last) < 3:
                return
        if reference_moved(history, best.step, point.step, best.segment):
            return
        rise = min(other.value for other in last) / self.floor(best) - 1
        then = trained_then(history, self._points, best)
        train = min(other.train for other in last) / then - 1 if then > 0 else math.nan
        if rise < self.at["increase"] or not train > self.at["train"]:
            return
        if self.by_chance(history, rise, sum(other.train for other in last) / len(last) / then - 1):
            return
        if math.log1p(rise) < 2 * largest_rise(self._before):
            return
        main = falling_term(history, best.step + 1, point.step - 1, point.segment, 0)
        if main and main.split("/")[-1] != channel.name.split("/")[-1]:
            return
        begin = next((other for other in self._after if other.value > best.value * (1 + rise / 3)), point)
        rates = between(history.role("lr"), best.step, point.step + 1, point.segment)
        sizes = between(history.role("step_tokens"), 0, point.step + 1, point.segment)
        old = between(history.role("step_tokens"), 0, best.step + 1, point.segment)
        ramp = len(old) > 0 and abs(float(sizes[-1]) / max(float(numpy.median(old)), 1e-9) - 1) > 0.1
        raised = len(rates) > 1 and bool(rates.max() > _RAISED * rates[0])
        aside = beside_falls(history, channel, point)
        mild = ramp or raised or bool(aside) or stage_between(history, best.step, point.step, point.segment)
        causes = [_RISEN] if raised else [aside] if aside else self._why(history, best, point)
        self._told = self.finding(
            begin.step,
            f"The evaluation loss rose from {best.value:.4g} to {point.value:.4g}, the training loss from "
            f"{best.train:.4g} to {point.train:.4g}",
            severity="info" if mild else "warning",
            found=point.step,
            segment=point.segment,
            confidence=0.4 if mild else 0.75,
            evidence={
                "best": rounded(best.value),
                "best_step": best.step,
                "evaluation": rounded(point.value),
                "train_then": rounded(best.train),
                "train_now": rounded(point.train),
            },
            causes=causes,
            remedies=[_AT_ITS_END] if raised else [_MEASURED] if aside else self._remedies(causes, begin.step),
        )
        yield again(self._told)

    @staticmethod
    def _remedies(causes: list[str], step: int) -> list[str]:
        """Those of the first cause first."""
        data = f"Compare the data and the labels of the batches before and after step {step}."
        rate = f"Go back to a checkpoint before step {step} and lower the learning rate."
        return [data, rate] if causes[0].startswith("labels") else [rate, data]

    def _why(self, history: RunHistory, best: EvaluationPoint, point: EvaluationPoint) -> list[str]:
        """A rate that was stable and has not grown doesn't become too high while gradients stay as they were."""
        causes = ["labels shifted: targets changed", "labels shuffled", "bad batch", "learning rate too high"]
        norms, rates = history.role("norm"), between(history.role("lr"), best.step, point.step + 1, point.segment)
        then = between(norms, 0, best.step + 1, point.segment)[-32:]
        now = between(norms, best.step + 1, point.step + 1, point.segment)[-32:]
        wild = not len(then) or not len(now) or float(numpy.median(now)) > 2 * float(numpy.median(then))
        return causes[::-1] if wild or not len(rates) or rates.max() > 1.05 * rates[0] else causes


class ValidationPlateau(Rise):
    """No evaluation within 10,000 steps was better than the best, by 0.1% at least: info, once for each best."""

    name, kind, severity = "validation_plateau", "plateau", "info"
    least = 6
    about = "The evaluation loss has stopped improving."
    sources = ("stability guide: no improvement for more than 10,000 steps",)
    thresholds: ClassVar = {"steps": (10_000.0, "stability guide"), "evaluations": (5.0, "ours")}
    causes = ("learning rate too high: decay it", "overfitting", "learning rate too low")
    remedies = ("Decay the learning rate, or stop and keep the best checkpoint.",)

    def risen(
        self, history: RunHistory, channel: Channel, best: EvaluationPoint, point: EvaluationPoint
    ) -> Iterator[Finding]:
        if self._told is not None or point.step - best.step <= self.at["steps"]:
            return
        if len(self._after) < self.at["evaluations"]:
            return
        self._told = self.finding(
            best.step,
            f"No evaluation since step {best.step} was better than {best.value:.4g}",
            found=point.step,
            segment=point.segment,
            evidence={"best": rounded(best.value), "steps": point.step - best.step},
            confidence=0.5,
        )
        yield again(self._told)


RULES = (
    Overfitting,
    ValidationDivergence,
    EvaluationJump,
    EvaluationNonFinite,
    EvaluationFrozen,
    EvaluationBetter,
    EvaluationGap,
    AverageBehind,
    AverageWrong,
    TeacherStill,
    TeacherSwapped,
    TeacherUnset,
    TeacherGradients,
    ValidationPlateau,
)
