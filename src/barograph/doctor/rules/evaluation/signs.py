"""Single signs in the evaluation: leaps, values that never change, the distance to the training.

In:   the series of the evaluation loss and of the loss.
Out:  findings of `EvaluationJump`, `EvaluationFrozen`, `EvaluationBetter`, `EvaluationGap`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from barograph.doctor.kernel.channels import Channel, RunHistory
from barograph.doctor.kernel.cursor import exp, known, other_model, setting
from barograph.doctor.kernel.curve import again, before, is_game, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.local import median
from barograph.doctor.kernel.stages import stage_between
from barograph.doctor.rules.evaluation.evaluations import (
    EvaluationPoint,
    Walker,
    in_first_epoch,
    is_term,
    learnt_at_once,
    terms_hold,
    train_noise,
)

_AVERAGES = ("ema", "ema_decay", "use_ema", "ema_rate", "ema_beta", "swa", "model_ema", "ema_halflife")
_AVERAGE = "averaged weights not updated: the evaluation has the average that the configuration asks for"
AVERAGE = "averaged weights not updated: another model than the one that is trained is evaluated, and never changes"


def asked_average(history: RunHistory) -> list[str]:
    """The cause where the configuration asks for an average of the weights."""
    return [_AVERAGE] if setting(history, *_AVERAGES) else []


def _log_ratio(new: float, old: float) -> float:
    """ln of new over old, also where the ratio itself is beyond what a float holds."""
    return math.log(new) - math.log(old)


class EvaluationJump(Walker):
    """The evaluation loss jumps between two evaluations, and the training loss does not.

    The change of ln evaluation loss is more than ln 1.15 and more than 6 times the usual one of the evaluations before
    (four at least), and three times as much as any of the last three; a rise after four falls is compared with how the
    changes differ. The training loss explains less than a third of it. A second evaluation that stays there (where they
    change by 3% anyway, a third) makes it a warning: another evaluation set, another tokenizer, dropout left on, or,
    downwards, evaluation data that were trained on. One that comes back is an info finding, and so is one
    downwards while the training loss did not rise by 5% and by three standard deviations.
    """

    name, kind, severity = "evaluation_jump", "eval", "warning"
    least = 5
    about = "The evaluation loss jumps while the training loss does not."
    thresholds: ClassVar = {"jump": (1.15, "ratio; ours"), "times": (6.0, "times the usual change; ours")}

    def begin(self) -> None:
        self._values: list[EvaluationPoint] = []
        self._open: tuple[EvaluationPoint, EvaluationPoint, Finding] | None = None
        self._wait = 0  # evaluations that must stay there

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        if not math.isfinite(point.value) or point.value <= 0:
            return
        values = self._values
        if self._open is not None:
            old, new, finding = self._open
            stays = _log_ratio(point.value, old.value) / _log_ratio(new.value, old.value) > 0.5
            self._wait -= 1
            if stays and self._wait:
                self._values = [*values[-23:], point]
                return
            self._open = None
            if stays:
                # what got better and stays there is no harm, unless the training got worse: then it may have been seen
                rise = 3 * train_noise(history, new.step, new.segment, new.trained)
                better = new.value < old.value and not new.train > old.train * exp(max(0.05, rise))
                better = better or stage_between(history, old.step, new.step, new.segment)
                finding.severity, finding.confidence = ("info", 0.5) if better else ("warning", 0.8)
                finding.last_step = point.step
                finding.message += f", and {point.value:.4g} at step {point.step}"
            yield again(finding)
        elif len(values) >= 4:
            last = values[-1]
            change = _log_ratio(point.value, last.value)
            changes = [_log_ratio(b.value, a.value) for a, b in pairwise(values)]
            usual = [abs(each) for each in changes]
            train = _log_ratio(point.train, last.train) if point.train > 0 and last.train > 0 else 0.0
            known, middle = usual, median(usual)
            if len(changes) >= 4 and change > 0 and all(each < 0 for each in changes[-4:]):
                # where a curve falls steeply its changes are large; how they differ is what a rise is held against
                known = [abs(b - a) for a, b in pairwise(changes)]
                middle = sorted(known)[(len(known) - 1) // 2]
            limit = max(math.log(self.at["jump"]), self.at["times"] * max(middle, 0.002), 3 * max(known[-3:]))
            if abs(change) > limit and train * math.copysign(1, change) < abs(change) / 3:
                self._wait = 1 if median(usual) < 0.03 else 2
                yield from self._leap(history, channel, last, point, change)
        self._values = [*values[-23:], point]

    def _leap(
        self, history: RunHistory, channel: Channel, last: EvaluationPoint, point: EvaluationPoint, change: float
    ) -> Iterator[Finding]:
        up = change > 0
        if is_game(history, channel) or (up and learnt_at_once(history, last, point)):  # that is overfitting
            return
        causes = (
            [
                "tokenizer mismatch: evaluation uses another vocabulary",
                "evaluation mode left on: or training mode, with dropout, in the evaluation",
                "labels shifted: in the evaluation alone",
            ]
            if up
            else ["validation leak: evaluation data are trained on", "labels shifted: targets can be seen"]
        )
        message = f"The evaluation loss went from {last.value:.4g} at step {last.step} to {point.value:.4g} at step "
        message += f"{point.step}"
        if math.isfinite(last.train) and math.isfinite(point.train):
            message += f" while the training loss went from {last.train:.4g} to {point.train:.4g}"
        elif up:
            causes.append("learning rate too high: the training may have got worse with it")
        finding = self.finding(
            point.step,
            message,
            severity="info",
            found=point.step,
            segment=point.segment,
            confidence=0.5,
            causes=causes,
            evidence={
                "before": rounded(last.value),
                "after": rounded(point.value),
                "ratio": rounded(exp(min(change, 700.0)), 3),
                "train_before": rounded(last.train),
                "train_after": rounded(point.train),
            },
            remedies=[
                f"Compare what the evaluation does at steps {last.step} and {point.step}: data, tokenizer, "
                "`model.eval()`."
            ],
        )
        self._open = (last, point, finding)
        yield again(finding)


class EvaluationFrozen(Walker):
    """An evaluation that gives the same number, to the last digit, five times, while the training loss moves.

    It evaluates other weights than those that are trained. Where the loss is of pairs of scores, as its graph shows,
    and the number is ln 2, both of each pair get the same score instead; where adapters are trained, they may be off.
    A number of three digits must come ten times, while the training loss loses a tenth; of fewer digits, and losses
    below 0.01, nothing is said. A number that comes with each row of the training may be the last evaluation's, until
    the next one: it has to come twice as often as rows came before the first one, and as any number before it; once
    another one comes, it is an info finding.

    So is an accuracy between 0.02 and 0.9 that is the same ten times, while the evaluation loss changed by 5%, and was
    never further than 0.02 from it: what is evaluated gives one class to all examples. One of five digits or more that
    is the same fifteen times needs a loss that lies as far apart in any two of these evaluations.
    """

    name, kind, severity = "evaluation_frozen", "frozen", "warning"
    least = 5
    needs = ("eval_loss", "loss")
    about = "The evaluation loss never changes."
    sources = ("TrainCheck: stale parameters",)
    thresholds: ClassVar = {
        "evaluations": (5.0, "ours"),
        "answers": (10.0, "of one accuracy, or of three digits; ours"),
        "exact": (15.0, "of one accuracy of five digits; ours"),
    }
    causes = ("optimizer holds other parameters: the evaluated model is a copy", "layer frozen")
    remedies = ("Check that the evaluation is given the model that is trained, or copies its weights first.",)

    def begin(self) -> None:
        self._first: EvaluationPoint | None = None
        self._count = 0
        self._told = False
        self._share, self._shares = math.nan, 0  # the last accuracy, and how often it came in a row
        self._range, self._began = (math.inf, -math.inf), (0, math.nan)  # of all; step and loss of the first of a row
        self._losses = (math.inf, -math.inf)  # lowest and highest of a row
        self._same: Finding | None = None
        self._start, self._longest = 0, 0  # step of the first of all; how often one number came in a row
        self._along: Finding | None = None  # of a number that comes with each row of the training

    def _comes_along(self, history: RunHistory, point: EvaluationPoint) -> tuple[bool, int]:
        """Whether each row of the training has the number, and how many rows came before the first evaluation."""
        loss, first = history.role("loss"), self._first
        if loss is None or first is None:
            return False, 0
        rows = loss.rows()
        steps = rows.step[rows.segment == point.segment]
        between = ((steps > first.step) & (steps < point.step)).sum()
        return bool(between <= self._count - 2), int((steps < self._start).sum())

    def _answers(self, history: RunHistory, point: EvaluationPoint) -> Iterator[Finding]:
        """Whether the accuracy has never moved, though the loss has."""
        share = before(history.role("eval_accuracy"), point.step + 1, point.segment)
        if share != share:
            return
        self._range = min(self._range[0], share), max(self._range[1], share)
        if share != self._share:
            self._share, self._shares, self._began = share, 0, (point.step, point.value)
            self._losses = (math.inf, -math.inf)
            if self._same is not None:
                self._same.severity, self._same.message = "info", f"{self._same.message}; it changed at {point.step}"
                yield again(self._same)
                self._same = None
        self._shares += 1
        near = self._range[1] - self._range[0] <= _NEAR
        self._losses = low, high = min(self._losses[0], point.value), max(self._losses[1], point.value)
        moved = abs(point.value - self._began[1]) > 0.05 * abs(self._began[1])
        exact = len(f"{share:.10g}".replace(".", "").lstrip("0")) >= _EXACT and self._shares >= self.at["exact"]
        course = f"went from {self._began[1]:.4g} to {point.value:.4g}"
        if not moved and exact and high - low > 0.05 * abs(self._began[1]):
            moved, course = True, f"was between {low:.4g} and {high:.4g}"
        if self._same is None and self._shares >= self.at["answers"] and 0.02 < share < 0.9 and near and moved:
            self._same = self.finding(
                self._began[0],
                f"The accuracy of the evaluation is {share:.4g} in {self._shares} evaluations since step "
                f"{self._began[0]}, while its loss {course}",
                found=point.step, segment=point.segment, confidence=0.75, key="accuracy",
                causes=[
                    "one class alone: each example is given the most frequent class",
                    "learning rate too low: the outputs differ too little between inputs",
                ],
                remedies=["Count the classes that the model answers with; weight classes, or train for longer."],
                evidence={"accuracy": share, "evaluations": self._shares},
            )  # fmt: skip
            yield again(self._same)

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        yield from self._answers(history, point)
        if self._first is None or point.value != self._first.value:
            self._start = point.step if self._first is None else self._start
            self._longest = max(self._longest, self._count)
            self._first, self._count, self._told = point, 1, False
            if self._along is not None:
                self._along.severity, self._along.message = "info", f"{self._along.message}; then it changed"
                yield again(self._along)
                self._along = None
            return
        self._count += 1
        digits = len(f"{point.value:.10g}".replace(".", "").lstrip("0"))
        moved = abs(point.train - self._first.train) > 1e-4 * abs(point.train)
        enough = self._count >= self.at["evaluations"] and digits > 3
        if digits == 3:  # it may be rounded: the training must have got much further
            enough = self._count >= self.at["answers"] and point.train < 0.9 * self._first.train
        if self._told or not enough or abs(point.value) < 0.01 or not moved:
            return
        along, ahead = self._comes_along(history, point)
        if along and self._count < 2 * max(ahead, self._longest):
            return
        self._told = True
        first, time = self._first, int(channel.rows(point.row, point.row + 1).time[0])
        average = asked_average(history) or ([AVERAGE] if other_model(history, time) else [])
        pairs = known(history.channel("model/loss_ranks"), point.step, time, point.segment) == 1
        alike = [_ALIKE] if pairs and abs(point.value - math.log(2)) < _LAST_DIGIT else []
        alike += [_OFF] * (known(history.channel("model/adapter_rank"), point.step, time, point.segment) > 0)
        said = self.finding(
            first.step,
            f"The evaluation loss is {point.value:.6g} in {self._count} evaluations since step {first.step}",
            found=point.step, segment=point.segment, confidence=0.85, causes=[*alike, *average, *self.causes],
            evidence={"evaluation": point.value, "train_then": rounded(first.train), "train_now": rounded(point.train)},
        )  # fmt: skip
        self._along = said if along else None
        yield again(said) if along else said


_EXACT = 5  # digits of an accuracy that nobody rounded to two or three
_LAST_DIGIT = 1e-6  # of ln 2
_ALIKE = "chosen and rejected alike: both get the same score, read where they don't differ, or cut before they do"
_OFF = "adapters are off in the evaluation: the frozen layers beside them answer alone"
_NEAR = 0.02  # between the lowest and the highest accuracy of a model that always gives the same answer
_TERMS = "losses differ: the training's has several terms, and the evaluation's may be one of them"
_IN_A_ROW, _SUMMED = 3, "loss summed: in the training, where the evaluation has a mean"


class EvaluationBetter(Walker):
    """The evaluation is better than the training for long.

    Five evaluations in a row lie more than 10% below the training loss. Dropout and augmentation do that, an easier
    evaluation set too, and evaluation data among the training data: an info finding. What is below half of it from the
    first evaluation on is measured in another way, for nothing was learnt from evaluation data by then. Of an
    evaluation of one term alone, by its name and by those of the training's terms, nothing is said; nor where the
    training smooths its labels, which no loss below comes of.

    It is a warning where the model gets worse by the evaluation's measure: the first evaluation is of the first five
    steps, and below a third of the training loss; all others are below it, and three in a row are a quarter above the
    first. What is trained is then a sum of what is evaluated as a mean, or another loss.
    """

    name, kind, severity = "evaluation_better", "eval", "info"
    compares = True
    needs = ("eval_loss", "loss")
    least = 5
    about = "The evaluation loss is well below the training loss."
    thresholds: ClassVar = {
        "share": (0.1, "ours"),
        "evaluations": (5.0, "ours"),
        "begun": (5.0, "steps before the first evaluation: the model is as it began; ours"),
        "apart": (3.0, "times the evaluation's, the training loss; ours"),
        "worse": (1.25, "times the first evaluation, three later ones; ours"),
    }
    causes = ("validation leak: evaluation data among the training data", "evaluation mode left on")
    remedies = ("Check that no evaluation example is trained on; dropout and augmentation explain it too.",)

    def begin(self) -> None:
        self._count = 0
        self._first = 0
        self._told = False
        self._apart: bool | None = None
        self._origin: EvaluationPoint | None = None
        self._over, self._worse = False, 0  # whether evaluations are compared with the first no more; worse ones

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        smoothed = before(history.channel("model/label_smoothing"), point.step + 1, point.segment) > 0
        if smoothed or is_term(history, channel):
            return
        yield from self._gets_worse(history, channel, point)
        self._apart = point.value < 0.5 * point.train and self._apart is not False
        if not point.value < (1 - self.at["share"]) * point.train or point.value <= 0 or channel.name.endswith("bpb"):
            self._count = 0
            return
        if not self._count:
            self._first = point.step
        self._count += 1
        if self._count != int(self.at["evaluations"]) or self._told:
            return
        self._told = True
        yield self.finding(
            self._first,
            f"The evaluation loss ({point.value:.4g}) has been below the training loss ({point.train:.4g}) by more "
            f"than {100 * self.at['share']:.0f}% for {self._count} evaluations",
            found=point.step,
            segment=point.segment,
            confidence=0.4,
            causes=[*([_SUMMED] if self._apart else []), *self.causes],
            evidence={"evaluation": rounded(point.value), "train": rounded(point.train)},
        )

    def _gets_worse(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        """Evaluations above the first one, of a loss that was never that of the training."""
        first = self._origin = self._origin or point
        times = self.at["apart"] if first is point else 1.0
        apart = 0 < times * point.value < point.train
        if self._over or not apart or first.step > self.at["begun"] or is_game(history, channel):
            self._over = self._over or not apart
            return
        self._worse = self._worse + 1 if point.value >= self.at["worse"] * first.value else 0
        if self._worse < _IN_A_ROW:
            return
        self._over = True
        yield self.finding(
            first.step,
            f"The evaluation loss went from {first.value:.4g} at step {first.step} to {point.value:.4g}, and the "
            f"training loss was {first.train / first.value:.3g} times as large when the training began: it is another",
            severity="warning",
            found=point.step,
            segment=point.segment,
            key="other",
            confidence=0.8,
            causes=[_SUMMED, "losses differ: what is trained is not what is evaluated"],
            remedies=["Train on what is evaluated: take the mean over examples, and over tokens where it does."],
            evidence={"first": rounded(first.value), "evaluation": rounded(point.value), "train": rounded(first.train)},
        )


class EvaluationGap(Walker):
    """The evaluation loss is far above the training loss: by half of it in three evaluations in a row: info.

    Where there are two evaluations alone, it is three times as high in both, and rises while the training's falls.
    In the first epoch the cause is another than overfitting: nothing was seen twice. Where the graph of the training's
    loss adds up several terms, as of a distillation and of labels, an evaluation of one of them comes first. Of an
    evaluation of one term alone, by its name and by those of the training's terms, nothing is said; nor where terms
    that both sides log, as `train/price` and `val/price`, are not as far apart: the training's have weights.
    """

    name, kind, severity = "evaluation_gap", "overfit", "info"
    compares = True
    needs = ("eval_loss", "loss")
    least = 3
    about = "The evaluation loss is much higher than the training loss."
    sources = ("stability guide: validation loss much higher than training loss",)
    thresholds: ClassVar = {
        "ratio": (1.5, "ours; the stability guide says much higher"),
        "two": (3.0, "of two evaluations, all there are; ours"),
    }
    causes = (
        "overfitting",
        "tokenizer mismatch: or the evaluation data are prepared differently",
        "evaluation mode left on: or batch norm's statistics are stale",
    )
    remedies = ("Evaluate on a held-out part of the training data: if the gap stays, it is overfitting.",)

    def begin(self) -> None:
        self._count = 0
        self._first = 0
        self._told = False
        self._opened: EvaluationPoint | None = None  # the first of a row

    def _are_two(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> bool:
        """Whether a run that is over has two evaluations, far above the training, which move away from it."""
        first = self._opened
        if first is None or self._count != 2 or channel.end != 2 or not history.facts.get("finished"):
            return False
        far = all(each.value > self.at["two"] * each.train for each in (first, point))
        return far and point.value > first.value and point.train < first.train

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        if is_term(history, channel) or not (point.train > 0.01 and point.value > self.at["ratio"] * point.train):
            self._count = 0
            return
        if not self._count:
            self._first, self._opened = point.step, point
        self._count += 1
        if (self._count != 3 and not self._are_two(history, channel, point)) or self._told:
            return
        if terms_hold(history, channel, point, self.at["ratio"]):
            self._count = 0
            return
        self._told = True
        terms = before(history.channel("model/loss_terms"), point.step + 1, point.segment)
        yield self.finding(
            self._first,
            f"The evaluation loss ({point.value:.4g}) is {point.value / point.train:.3g} times "
            f"the training loss ({point.train:.4g})",
            found=point.step,
            segment=point.segment,
            confidence=0.5,
            evidence={"evaluation": rounded(point.value), "train": rounded(point.train)},
            causes=[
                *([_TERMS] if terms > 1 else []),
                *self.causes[1 if in_first_epoch(history, point.step, point.segment) else 0 :],
            ],
        )
