"""Evaluations with batch norm's running statistics that are still those that torch begins with, or of other data.

In:   the weight of a batch in running statistics, and the configured one; evaluation and training losses; how well
      statistics fit what an evaluation gives; whether evaluations are made with a mean of 0, or with none that runs.
Out:  findings of `StatisticsSlow`, `StatisticsMoved`, `StatisticsAlone`, `StatisticsOther`, `StatisticsUnset`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import has_told_of_evaluations, known, numeric_setting
from barograph.doctor.kernel.curve import again, is_game, rounded
from barograph.doctor.kernel.kinds import both_losses
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.evaluation.average_moves import COPY
from barograph.doctor.rules.evaluation.evaluations import EvaluationPoint, Walker

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


def statistics_left(history: RunHistory, channel: Channel, point: EvaluationPoint) -> tuple[float, float]:
    """What share of what batch norm's running statistics began as is left in them at an evaluation, and the weight of a
    batch in them; NaN where that is not known: of another launch, of a model that was trained before, or where
    statistics are gathered anew for evaluations (share 0)."""
    loss = history.role("loss")
    place = point.step, int(channel.rows(point.row, point.row + 1).time[0]), point.segment
    weight = watched(history, "norm_momentum", place)
    if not 0 < weight < 1 or loss is None or is_game(history, loss) or not loss.end or loss.start:
        return math.nan, weight
    rows = loss.rows(0, 1)
    if int(rows.segment[0]) != point.segment or watched(history, "gains_apart", place) == 1:
        return math.nan, weight  # another launch, whose statistics were trained by the one before
    if any(watched(history, name, place) == 1 for name in ("training_in_evaluation", "statistics_gathered")):
        return 0.0, weight
    passes = max(1.0, watched(history, "backwards", place))
    return (1 - weight) ** ((point.step - int(rows.step[0]) + 1) * passes), weight


class StatisticsSlow(Walker):
    """Batch norm's running statistics have hardly moved from 0 and 1, and evaluations are made with them.

    With the weight w of a batch, n steps leave (1 − w)ⁿ of what the statistics began as. At three evaluations in a row,
    the last at step 100 or later, that is half or more, and the evaluation loss is twice the training loss or more; or
    four fifths or more, and one and a half times the training loss.
    Where the model was trained before, its statistics were, too, and nothing is said; nor where evaluations have passes
    in training mode beside those in evaluation mode (`model/statistics_gathered`): statistics are gathered anew for
    them, as `update_bn` does.

    What to do: `momentum=0.1`, or a number of steps that is several times one over the momentum.
    """

    name, kind, severity = "statistics_slow", "config", "warning"
    compares = True
    proves = "evaluation"
    needs: ClassVar[tuple[str, ...]] = ("eval_loss", "loss", "=model/norm_momentum")
    least = 1
    about = "Batch norm's running statistics have hardly moved, and evaluations are made with them."
    thresholds: ClassVar = {
        "evaluations": (3.0, "in a row; ours"),
        "steps": (100.0, "ours"),
        "left": (0.5, "of what the statistics began as; ours"),
        "times": (2.0, "the training loss; ours"),
        "mostly": (0.8, "of what the statistics began as; ours"),
        "less": (1.5, "times the training loss, where that is left; ours"),
    }
    causes = ("normalisation statistics stale: batch norm's momentum is too small for so few steps",)
    remedies = ("`momentum=0.1`: it is the weight of the newest batch",)

    def begin(self) -> None:
        self._stale: list[EvaluationPoint] = []
        self._began = -1

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        left, weight = statistics_left(history, channel, point)
        if left != left:
            return
        times = self.at["times"] if left < self.at["mostly"] else self.at["less"]
        apart = left >= self.at["left"] and point.value >= times * point.train > 0
        if not apart or not math.isfinite(point.value):
            self._stale = []
            return
        self._stale.append(point)
        late = point.step >= self.at["steps"] and len(self._stale) >= self.at["evaluations"]
        time = int(channel.rows(point.row, point.row + 1).time[0])
        late = late and has_told_of_evaluations(history, time)  # else statistics may be gathered anew for them
        if late and self.first(point.segment):
            yield self.finding(
                self._stale[0].step, f"A batch has a weight of {weight:g} in batch norm's running statistics, so that "
                f"at step {point.step} {100 * left:.0f}% of them is what they began as; the evaluation loss is "
                f"{point.value / point.train:.3g} times the training loss.", found=point.step, segment=point.segment,
                confidence=0.9, evidence={"left": left},
            )  # fmt: skip


class StatisticsMoved(WatchRule):
    """Passes without gradients move batch norm's running statistics away from the data, ahead of evaluations.

    Where such passes in training mode come between the last step and an evaluation, the watch compares the statistics
    that the step has left, and those with which the evaluation is made, with what the evaluation gives the model's
    first batch norm (`model/statistics_apart_before`, `model/statistics_apart_after`: nats by which one normal
    distribution differs from the other, in the mean of channels). In three evaluations in a row they are a tenth of a
    nat or more apart behind these passes, and four times as far as before. Statistics that are gathered anew on
    purpose, from the training's data or from the evaluation's, fit as well as before, or better.

    What to do: `model.eval()` ahead of any pass that is not of the training, as one that takes the time.
    """

    name, family, kind, severity = "statistics_moved", "eval", "config", "warning"
    proves = "evaluation"
    series = "model/statistics_apart_after"
    needs = ("=model/statistics_apart_after", "=model/statistics_apart_before")
    least = 3
    about = "Passes without gradients move batch norm's running statistics away from the data, ahead of evaluations."
    thresholds: ClassVar = {
        "apart": (0.1, "nats; ours"),
        "times": (4.0, "as far as before these passes; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("normalisation statistics spoiled: passes of other data in training mode moved them, without gradients",)
    remedies = ("`model.eval()` ahead of each pass that is not of the training, as of noise by which it is timed",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        before = watched(history, "statistics_apart_before", place)
        moved = self.at["apart"] <= value < math.inf and value >= self.at["times"] * before
        if self.lasts(moved, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"Passes in training mode, without gradients, move batch norm's running statistics "
                f"away from the data ahead of evaluations: {value:.3g} nats, where it was {before:.3g}.",
                found=place[0], segment=place[2], confidence=0.95,
                evidence={"before": rounded(before), "after": rounded(value), "standing": True},
            )  # fmt: skip


class StatisticsAlone(WatchRule):
    """Evaluations normalise each example by itself, where the training normalises batches.

    Batch norm without running statistics (`track_running_stats=False`) has those of the batch in an evaluation, too. In
    two evaluations in a row each pass had one example, and a batch of the training eight or more; and the means and
    variances of single examples are a twentieth of a nat or more from those of the batch, in the mean of channels, as
    two normal distributions are (`model/statistics_alone`). Where examples have nearly the same statistics, as large
    pictures may, or the training has one example at a time, too, it makes no difference; nor is anything said where no
    evaluation loss is logged, as of single examples that are generated.

    What to do: keep running statistics, or evaluate in batches as large as those of the training.
    """

    name, family, kind, severity = "statistics_alone", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/statistics_alone"
    needs = ("=model/statistics_alone", "eval_loss")
    least = 2
    about = "Evaluations normalise each example by itself, where the training normalises batches."
    thresholds: ClassVar = {"apart": (0.05, "nats; ours"), "evaluations": (2.0, "in a row; ours")}
    causes = ("batch normalisation has no running statistics: each example of an evaluation is normalised by itself",)
    remedies = (
        "leave out `track_running_stats=False`, so that evaluations have the training's statistics",
        "evaluate in batches as large as those of the training, or take a norm that knows of no batch, as `GroupNorm`",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        loss = history.role("loss")
        told = known(history.role("eval_loss"), *place)
        alone = self.at["apart"] <= value < math.inf and math.isfinite(told) and not (loss and is_game(history, loss))
        if self.lasts(alone, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], "Batch norm has no running statistics, and evaluations give it one example at a time: "
                f"those of one example are {value:.3g} nats from those of a batch of the training.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"apart": rounded(value), "standing": True},
            )  # fmt: skip


class StatisticsOther(WatchRule):
    """Batch norm gives a new batch another weight in its running statistics than the configuration says.

    The configuration has a `bn_momentum` (`batch_norm_momentum`, `norm_momentum`), and the layers have a quarter of it
    or less. Keras and others name what is kept of the old ones: a weight near one less what is configured is meant so.

    What to do: give the configured number to the layers; in torch it is the weight of the newest batch.
    """

    name, family, kind, severity = "statistics_other", "eval", "config", "warning"
    series = "model/norm_momentum"
    needs = ("=model/norm_momentum",)
    least = 1
    about = "Batch norm has another momentum than the configuration says."
    thresholds: ClassVar = {"share": (0.25, "of the configured weight; ours")}
    causes = ("normalisation statistics stale: batch norm's momentum is smaller than the configuration says",)
    remedies = ("give the layers the configured momentum: in torch it is the weight of the newest batch",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        said = numeric_setting(history, "bn_momentum", "batch_norm_momentum", "batchnorm_momentum", "norm_momentum")
        if not 0 < said < 1 or not 0 < value <= self.at["share"] * min(said, 1 - said) or not self.first(place[2]):
            return
        yield self.finding(
            place[0], f"Batch norm gives each batch a weight of {value:g} in its running statistics, and the "
            f"configuration says {said:g}.", found=place[0], segment=place[2], confidence=0.9,
            evidence={"weight": value, "configured": said, "standing": True},
        )  # fmt: skip


class StatisticsUnset(WatchRule):
    """Evaluations are made with batch norm's running statistics as torch makes them, and the training's have moved.

    When the passes of an evaluation begin, the layers are in evaluation mode, and their running means are 0
    throughout, as behind `reset_running_stats()`; behind the next pass of the training they are not. In two
    evaluations in a row that is so in each pass that was looked at, and the evaluation loss is one and a half times
    the training loss or more. Where passes in training mode gather statistics anew first, as `update_bn` has them
    do, those that count are the passes behind them. Of a copy of the model with other weights, `average_wrong` says
    it. The step is that of the first such evaluation, whatever its loss.

    Or nothing ever moves them: in five looks in a row some part in training mode has a running mean of 0 and a running
    variance or deviation of 1, as made (`model/unset_buffers`), as where its training is written out by hand. A warning
    where the evaluation loss is a tenth above the training loss, else an info finding: a part may be meant to do
    nothing.

    What to do: leave the statistics as they are for an evaluation, or gather them anew before it.
    """

    name, family, kind, severity = "statistics_unset", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_unset"
    needs = ("=model/evaluated_unset|=model/unset_buffers", "loss", "eval_loss")
    least = 2
    about = "Evaluations are made with batch norm's statistics as torch makes them."
    thresholds: ClassVar = {
        "evaluations": (2.0, "in a row; ours"),
        "looks": (5.0, "in a row, at statistics that nothing moves; ours"),
        "off": (1.1, "evaluation over training loss, there; ours"),
        "worse": (1.5, "evaluation over training loss; ours"),
    }
    causes = ("batch norm's statistics are stale: they are reset before an evaluation, and gathered by nothing",)
    remedies = (
        "take `reset_running_stats()` out of the evaluation, or have passes in training mode behind it",
        "look for what loads or makes buffers anew between the training and its evaluations",
    )

    def begin(self) -> None:
        self._since: int | None = None  # the first of the evaluations that are made with them, whatever its loss

    def reset(self) -> None:
        super().reset()
        self._never: list[int] = []  # the steps of looks in a row, in which nothing had moved them
        self._said: Finding | None = None

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/unset_buffers"), self._unmoved)]

    def _unmoved(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._never = [*self._never, place[0]] if value == 1 else []
        ours, theirs = both_losses(history, *place)
        told = len(self._never) >= self.at["looks"] and 0 < ours < math.inf and 0 < theirs < math.inf
        worse = self.at["off"] * ours <= theirs
        if told and self.first(place[2], "never"):
            self._said = self.finding(
                0 if self._never[0] <= _FIRST_LOOKS else self._never[0], "A running mean is 0 and its variance 1, as "
                f"made, in {len(self._never)} looks at the training: nothing moves them, and evaluations use them; "
                f"their loss is {theirs / ours:.3g} times the training loss.", found=place[0], segment=place[2],
                severity="warning" if worse else "info", confidence=0.9 if worse else 0.4, key="never",
                evidence={"times": rounded(theirs / ours)}, causes=[_NOTHING_MOVES], remedies=[_BY_THE_LAYER],
            )  # fmt: skip
            yield again(self._said)
        elif told and worse and self._said is not None and self._said.severity == "info":
            self._said.severity, self._said.confidence, self._said.found = "warning", 0.9, place[0]
            self._said.message = self._said.message.rpartition("; ")[0] + (
                f"; their loss has come to {theirs / ours:.3g} times the training loss."
            )
            yield again(self._said)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        loss = history.role("loss")
        if loss is None or is_game(history, loss):
            return
        ours, theirs = both_losses(history, *place)
        worse = 0 < self.at["worse"] * ours <= theirs < math.inf
        copied = watched(history, "evaluated_whose", place) == COPY
        same = watched(history, "evaluated_apart", place) == 0  # the trained weights: no average
        unset = value == 1 and (same or not copied)
        self._since = (place[0] if self._since is None else self._since) if unset else None
        if self.lasts(unset and worse, place, self.at["evaluations"]) and self._since is not None:
            yield self.finding(
                self._since, "Evaluations are made with batch norm's running means at 0, as torch makes them, and "
                f"the training moves them; the evaluation loss is {theirs / ours:.3g} times the training loss.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"times": rounded(theirs / ours)},
                causes=[_NOT_COPIED] if copied else list(self.causes),
                remedies=[_COPY_ALL] if copied else list(self.remedies),
            )  # fmt: skip


_FIRST_LOOKS = 40  # steps, in which the first look lies
_NOTHING_MOVES = "statistics are stale: the running statistics are as made, and the training does not move them"
_BY_THE_LAYER = "let the layer's own `forward` gather them, or fit them before the training"
_NOT_COPIED = "statistics are stale: the copy that is evaluated gets the parameters, and not batch norm's buffers"
_COPY_ALL = "copy the buffers too: `evaluated.load_state_dict(model.state_dict())`"


RULES = (StatisticsSlow, StatisticsMoved, StatisticsAlone, StatisticsOther, StatisticsUnset)
