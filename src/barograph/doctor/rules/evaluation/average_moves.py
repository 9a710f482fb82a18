"""An average of the weights that moves too little for the training, or behind the evaluation that it is for.

In:   what the watch says of the copy that evaluations are made with, from one of them to the next.
Out:  findings of `AverageSlow`, `AverageEqual`, `AverageLate`, `AverageBegun`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import came_by, evaluations_of, numbers_named, other_model
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.kinds import of_other_kind
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.evaluation.averages import has_reference
from barograph.doctor.rules.evaluation.evaluations import beside_average

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

COPY = 2  # of `evaluated_whose`
_FOUND = 2  # steps, behind which copies are found


def is_reference(history: RunHistory, place: Place) -> bool:
    """Whether what is evaluated may be the reference of a policy or of preferences, or no evaluation is logged."""
    return has_reference(history, place) or not came_by(evaluations_of(history), place[1])


class AverageSlow(WatchRule):
    """The run is over, and the average of the weights that is evaluated is still mostly what it was at the beginning.

    The watch reads, from one evaluation to the next, in how many steps the average was written and what share of it is
    left each time. At the pace of all evaluations, three or more, the average holds the weights of twice as many steps
    as the training had, 100 or more: three fifths of it are the weights of the beginning. Where it was written in one
    step of five or fewer, and would not be behind if it were written in each, it is updated too seldom; else its decay
    is too slow. One that is written so seldom needs to hold no more steps than the training had, where its loss is half
    as large again as the training's, or where it lies a tenth of the weights' size away from the trained ones at the
    end. An average that begins as a copy of the weights within the first quarter of the steps is judged from there
    on. Of weights that are put into the model for the evaluation, and of averages in
    16 bits, there is what they have moved from one evaluation to the next: that counts where they have come farther
    from the trained ones each time, a fifth farther in all and three tenths of the weights' size, and the evaluation's
    loss is a tenth above the training's; or a twelfth of it, where that loss is half as large again. So it counts where
    from one evaluation to the next they have not moved at all, twice or more, though the trained ones have, and hold
    the weights of as many steps as the training had by the others; with a loss that is half as large again. Where it
    moves otherwise than an average does, it is enough that it lies three tenths of the weights' size away from the
    trained ones at the end, and that its loss is half as large again as the training's; not where it has come the whole
    way of the trained ones, or farther, as weights that are adapted for the evaluation have. A mean of all weights so
    far, and a decay that grows with the steps, come along. Where the run has two evaluations that are
    measured, and the average was written in each of the 20 steps or more between them, it is enough that it holds ten
    times the training's steps by these, and that its loss is half as large again as the training's. Where the trained
    model is evaluated as well, and the evaluation's loss is less than half as large again as the training's, it is an
    info finding; not so where both evaluations are logged, by their names, as `val_loss` and `val_loss_ema`, and the
    average's loss is half as large again as the other in each of the last five, or of all three or four, or is in all
    of them above the other's first one, which has been below it ever since: the average never came to where the
    training was at the first evaluation.

    What to do: update the average behind each `optimizer.step()`; choose a decay d with 1 / (1 − d) steps well below
    those of the training.
    """

    name, family, kind, severity = "average_slow", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_kept"
    needs = ("=model/evaluated_kept", "=model/evaluated_writes", "eval_loss|eval_accuracy|evaluation")
    least = 3  # the first of which says nothing
    about = "The average of the weights that is evaluated hardly moves in the whole training."
    thresholds: ClassVar = {
        "evaluations": (3.0, "of which all is known; ours"),
        "paces": (2.0, "of these, where its decay is one number; ours"),
        "stretch": (20.0, "steps between two evaluations, where there are no others; ours"),
        "lone": (10.0, "times the training's steps, that the average holds by these; ours"),
        "alike": (0.02, "of the logarithm of what one step leaves of it, in which these differ; ours"),
        "steps": (100.0, "of the training; ours"),
        "times": (2.0, "the training's steps, that the average holds; ours"),
        "lags": (1.0, "the same, of one that is written seldom and far behind; ours"),
        "seldom": (5.0, "steps for one in which it is written; ours"),
        "rests": (2.0, "evaluations, since the one before which it has not moved at all; ours"),
        "grows": (1.2, "times the distance at the first evaluation, of what is not followed; ours"),
        "far": (0.3, "of the weights' size, at the last one; ours"),
        "behind": (0.1, "the same, of one that is written seldom; ours"),
        "early": (0.25, "of the steps, in which an average begins as a copy; ours"),
        "away": (0.08, "the same, of one whose evaluation is far worse than the training; ours"),
        "worse": (1.1, "times the training's loss, its evaluation; ours"),
        "apart": (1.5, "the same, where the trained model is evaluated as well, or of that evaluation; ours"),
    }
    remedies = (
        "update the average behind each `optimizer.step()`, not where it is logged or evaluated",
        "choose a decay d of the average with 1 / (1 − d) steps well below the training's, or let it grow: "
        "min(d, (1 + t) / (10 + t))",
    )

    def begin(self) -> None:
        self._count, self._steps, self._writes, self._lost = 0, 0.0, 0.0, 0.0
        self._unseen, self._grows, self._apart = False, True, list[float]()  # how far it is, at first and at last
        self._whole, self._known, self._last, self._begun = 0.0, True, (0, 0, 0), 0  # steps in all
        self._followed = True  # whether it moves as an average does, as far as it is seen
        self._from, self._still = 0.0, 0  # steps before it began as a copy; evaluations since which it has not moved
        self._paces: list[float] = []  # of what is written in each step: −ln of what one leaves, by evaluations

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if history.facts.get("finished") and self._segment >= 0 and self._are_enough(history):
            yield from self._judge(history)

    def _are_enough(self, history: RunHistory) -> bool:
        """Whether there are enough evaluations, or a few between which the average has one decay; or a single stretch
        between two, in which it was written in each step, and from which it is far too slow."""
        paces = self._paces
        one = len(paces) == self._count >= self.at["paces"] and max(paces) <= (1 + self.at["alike"]) * min(paces)
        lone = len(paces) == self._count == 1 and self._steps >= self.at["stretch"]
        lone = (
            lone and self._steps >= self.at["lone"] * self._whole * self._lost and _is_worse(history, self.at["apart"])
        )
        return self._count >= self.at["evaluations"] or one or lone

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        whole, writes = (watched(history, f"evaluated_{name}", place) for name in ("steps", "writes"))
        before, self._whole = self._whole, whole
        apart = watched(history, "evaluated_apart", place)
        self._grows = self._grows and (not self._apart or apart >= _AS_FAR * self._apart[-1])
        self._apart = [*self._apart[:1], apart]
        if not before > 0:
            return  # the first evaluation
        if value == 0 and not self._count and writes > 0:
            self._from = whole  # it was made the weights themselves since
            return
        steps = whole - before
        if writes < 0 and value < 0 and _rests(history, place):
            value, self._still = 1.0, self._still + 1
        rests = writes == 0 and value == 1 and self._writes > 0  # written before, and not since
        self._known = self._known and (writes != 0 or rests) and not is_reference(history, place)
        self._followed = self._followed and 0 < value <= 1
        self._unseen, writes = self._unseen or writes < 0, writes if writes >= 0 else steps
        self._begun = self._begun if self._count else place[0]
        self._count, self._last = self._count + 1, place
        self._steps, self._writes = self._steps + steps, self._writes + writes
        self._lost -= math.log(value) if value > 0 else 0.0
        if writes == steps > 0 and 0 < value < 1 and not self._unseen:
            self._paces.append(-math.log(value) / steps)
        yield from ()

    def _is_behind(self, history: RunHistory) -> bool:
        """Whether it is ever farther from what is trained, and its evaluation is worse than the training."""
        if len(self._apart) < 2 or not self._apart[-1] >= self.at["grows"] * self._apart[0]:
            return False
        return (self._apart[-1] >= self.at["far"] and _is_worse(history, self.at["worse"])) or (
            self._apart[-1] >= self.at["away"] and _is_worse(history, self.at["apart"])
        )

    def _judge(self, history: RunHistory) -> Iterator[Finding]:
        whole = self._whole - self._from
        if self._known and not self._followed:
            yield from self._judge_unfollowed(history)
        holds = self._steps / self._lost if self._lost > 0 else math.inf
        pace = self._steps / max(self._writes, 1e-9)
        away = self._apart[-1] >= self.at["behind"] and self._from <= self.at["early"] * self._whole
        still = self._unseen and self._still >= self.at["rests"] and _is_worse(history, self.at["apart"])
        lags = pace >= self.at["seldom"] and not self._unseen and (away or _is_worse(history, self.at["apart"]))
        lags |= still
        times = self.at["lags"] if lags else self.at["times"]
        if not (self._known and self._followed) or whole < self.at["steps"] or not holds >= times * whole:
            return
        if self._unseen and not (still or (self._grows and self._is_behind(history))):
            return
        seldom = still or (pace >= self.at["seldom"] and holds < self.at["times"] * whole * pace)
        far = _is_worse(history, self.at["apart"]) or _is_worse_beside(history, self.at["apart"])
        alone = self._unseen or other_model(history, self._last[1]) or far
        each = "each step" if round(pace) <= 1 else f"one of {round(pace)} steps"
        written = "" if self._unseen else f"is written in {each}, and "
        message = f"The average that is evaluated {written}holds the weights of {holds:.3g} steps, as far as it moves; "
        message += f"the training had {whole:.0f} {'by then' if not self._from else 'since it began'}."
        if self.first(self._segment):
            yield self.finding(
                self._begun, message if holds < math.inf else "The average that is evaluated does not move.",
                found=self._last[0], segment=self._segment, confidence=0.95 if alone else 0.5,
                severity=self.severity if alone else "info", causes=[_SELDOM if seldom else _SLOW],
                evidence={"steps": rounded(holds), "pace": rounded(pace), "standing": True},
            )  # fmt: skip

    def _judge_unfollowed(self, history: RunHistory) -> Iterator[Finding]:
        """Of an average that moves otherwise, as one in 16 bits: whether it is far away in the end, and far worse."""
        away = self._apart[-1]
        far = away >= self.at["far"] and _is_worse(history, self.at["apart"])
        far = far and not watched(history, "evaluated_share", self._last) >= 1
        if far and self._whole >= self.at["steps"] and self.first(self._segment):
            yield self.finding(
                self._begun, f"What is evaluated lies {100 * away:.0f}% of the weights' size away from those that are "
                f"trained, at the end of {self._whole:.0f} steps, and its loss is far above the training's.",
                found=self._last[0], segment=self._segment, confidence=0.9, causes=[_SLOW, _SELDOM],
                evidence={"apart": rounded(away), "standing": True},
            )  # fmt: skip


_AS_FAR = 0.98  # of how far it was at the evaluation before: a rate that falls to 0 lets it come nearer in the end
_SELDOM = "averaged weights updated too seldom: in one of many steps, with a decay that is meant for each"
_SLOW = "decay of the average too slow: it holds the weights of more steps than the training has"


def _rests(history: RunHistory, place: Place) -> bool:
    """Whether the weights that are evaluated are those of the evaluation before, though the trained ones have moved."""
    changed, moved = (watched(history, f"evaluated_{name}", place) for name in ("changed", "moved"))
    return changed == 0 and moved > 0


def _is_worse(history: RunHistory, times: float) -> bool:
    """Whether the loss of the last evaluations is this many times that of the training, or more."""
    losses = [history.role(name) for name in ("eval_loss", "loss")]
    if any(one is None or not one.end for one in losses):
        return False
    rows = losses[0].rows(losses[0].end - 1) if losses[0] is not None else None
    if rows is not None and of_other_kind(
        history, losses[0], int(rows.step[0]), int(rows.time[0]), int(rows.segment[0])
    ):
        return False
    evaluated, trained = (float(numpy.median(one.rows().value[-5:])) for one in losses if one is not None)
    return evaluated >= times * trained > 0


def _is_worse_beside(history: RunHistory, times: float) -> bool:
    """Whether the loss of the average is this many times that of the trained weights, or more, in the last evaluations
    that have both; or is in all of them above the first of the trained ones, which have been below it ever since."""
    both = beside_average(history)
    first, last = both[0][1] if both else 0.0, both[-5:]
    never = all(averaged > first for averaged, _ in both) and all(first > trained > 0 for _, trained in both[1:])
    return bool(last) and (never or all(averaged >= times * trained > 0 for averaged, trained in last))


class AverageEqual(WatchRule):
    """What is evaluated is the mean of the weights of all steps, those of the beginning included.

    A copy of the model is evaluated, and it is written in each step, or nearly. Of such a mean m/n is left after n
    steps of what it was after m. In three evaluations or more, all of which it is known, what is left is that of a mean
    that began within the first twentieth of the steps. The run is over, with 100 steps or more; the model's weights
    were as torch draws them; its training loss is a third of its first one or less, so that the weights of the
    beginning are poor; and the evaluation's loss is half as large again as the training's, and still falling: its last
    value is the lowest, within a hundredth. An info finding: a mean that begins early may be meant, and the gap that of
    other examples. Where the configuration names a decay of the average, of a half or more, and the training has four
    times the steps that it holds, that mean is not what was meant, and it is a warning, whatever the losses are: a
    decay that rises up to the configured one is that of such a mean at first alone.

    What to do: begin the mean when the training has nearly settled, or give it a decay.
    """

    name, family, kind, severity = "average_equal", "eval", "eval", "info"
    proves = "evaluation"
    series = "model/evaluated_kept"
    needs = ("=model/evaluated_kept", "=model/evaluated_writes", "=model/drawn", "eval_loss", "loss")
    least = 3
    about = "What is evaluated is the mean of the weights of all steps, those of the beginning included."
    thresholds: ClassVar = {
        "evaluations": (3.0, "of which all is known; ours"),
        "began": (0.05, "of the steps, before which the mean began; ours"),
        "pace": (1.5, "steps for one in which it is written; ours"),
        "steps": (100.0, "of the training; ours"),
        "holds": (4.0, "times the steps that the configured decay holds; ours"),
        "fell": (0.33, "of the training's first loss; ours"),
        "worse": (1.5, "times the training's loss, its evaluation; ours"),
        "lowest": (1.01, "times the lowest evaluation, the last one; ours"),
    }
    causes = ("averaged weights lag: their mean begins at the first step, and the weights of the beginning are in it",)
    remedies = (
        "begin the mean late, as `swa_start`, when the learning rate is low or constant",
        "give the average a decay: `AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))`",
    )

    def begin(self) -> None:
        self._count, self._whole, self._holds, self._last, self._begun = 0, 0.0, True, (0, 0, 0), 0

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if history.facts.get("finished") and self._segment >= 0 and self._count >= self.at["evaluations"]:
            yield from self._judge(history)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("whose", "writes", "steps")
        whose, writes, whole = (watched(history, f"evaluated_{name}", place) for name in names)
        before, self._whole = self._whole, whole
        if value < 0:
            return  # the first evaluation of a copy
        enough = 0 < value < 1 and 0 < before < whole <= before + self.at["pace"] * writes
        began = (before - value * whole) / (1 - value) if enough else math.inf
        equal = whose == COPY and abs(began) <= self.at["began"] * whole
        self._holds = self._holds and equal and not is_reference(history, place)
        self._begun = self._begun if self._count else place[0]
        self._count, self._last = self._count + 1, place
        yield from ()

    def _judge(self, history: RunHistory) -> Iterator[Finding]:
        place, loss = self._last, history.role("loss")
        if not self._holds or self._whole < self.at["steps"]:
            return
        name, decay = next(_decays(history, self._whole / self.at["holds"]), ("", 0.0))
        if name and self.first(self._segment):
            yield self.finding(
                self._begun, f"The average that is evaluated is the mean of the weights of all {self._whole:.0f} "
                f"steps, each with the same share; the configuration says `{name}` = {decay:g}.", found=place[0],
                segment=self._segment, confidence=0.95, severity="warning", causes=[_NO_DECAY, *self.causes],
                evidence={"steps": self._whole, "decay": decay, "standing": True},
            )  # fmt: skip
        if loss is None or not loss.end:
            return
        fell = float(numpy.median(loss.rows().value[-5:])) <= self.at["fell"] * loss.first
        drawn = watched(history, "drawn", place) == 1
        evaluated = history.role("eval_loss")
        values = evaluated.rows().value if evaluated is not None and evaluated.end else numpy.array([math.nan])
        falls = bool(values[-1] <= self.at["lowest"] * values.min())
        if drawn and fell and falls and _is_worse(history, self.at["worse"]) and self.first(self._segment):
            yield self.finding(
                self._begun, f"What is evaluated is the mean of the weights of all {self._whole:.0f} steps, those of "
                "the beginning included.", found=place[0], segment=self._segment, confidence=0.8,
                evidence={"steps": self._whole, "standing": True},
            )  # fmt: skip


_NO_DECAY = "averaged weights lag: the average was given no decay, and is a mean of the weights of all steps"
_DECAY = expression(r"(?:\w*_)?(?:ema|averag(?:e|ed|ing)|polyak|shadow)_?(?:\w+_)?(?:decay|momentum|beta|rate)")


def _decays(history: RunHistory, most: float) -> Iterator[tuple[str, float]]:
    """How much of the average is kept at each update, as configured, where it holds this many of them at most."""
    return ((name, value) for name, value in numbers_named(history, _DECAY) if 0.5 <= value <= 1 - 1 / most)


class AverageLate(WatchRule):
    """The weights that are evaluated are put into place behind the evaluation: it is of those of the one before.

    A copy of the model is evaluated, and not the model itself. In three evaluations in a row, two steps or more apart,
    that copy was written in one step alone since the evaluation before: behind the passes of an evaluation, and before
    the next step. An average that is updated at each step is written in others too.

    What to do: copy the weights into what is evaluated before its first pass.
    """

    name, family, kind, severity = "average_late", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_behind"
    needs = ("=model/evaluated_behind", "=model/evaluated_writes", "eval_loss|eval_accuracy|evaluation")
    least = 3
    about = "The weights that are evaluated are put into place behind the evaluation."
    thresholds: ClassVar = {"evaluations": (3.0, "in a row; ours")}
    causes = ("averaged weights not updated before the evaluation: what is evaluated is of the evaluation before",)
    remedies = ("copy the weights into what is evaluated before its first pass, not behind its last",)

    def begin(self) -> None:
        self._steps = 0.0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("whose", "writes", "steps")
        whose, writes, steps = (watched(history, f"evaluated_{name}", place) for name in names)
        apart, self._steps = steps - self._steps, steps
        late = value == 1 and whose == COPY and writes == 1 and apart >= 2 and other_model(history, place[1])
        if self.lasts(late and not is_reference(history, place), place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], "What is evaluated is written behind the evaluation, and at no other time: each "
                "evaluation is of the weights of the one before.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"standing": True},
            )  # fmt: skip


class AverageBegun(WatchRule):
    """An average of the weights begins late, and goes on from what it was when the model was made.

    The watch keeps some elements of copies of the model that are there behind the second step. Up to its first
    evaluation a copy was changed in at most half of the steps so far, 20 at least, and had come less than half of the
    way to the newest weights by then; three times or more, or straight towards them, for functions over many tensors
    are not counted on a device; from there on it is written in each step, or nearly: it
    began late, and not from the weights of then. What is left of its beginning is known through two further evaluations
    or more. The run is over, three tenths or more of the average are still what it was at first, and the evaluation's
    loss is half as large again as the training's. One that is a copy of the weights where it begins is near them.

    Or a copy had not been changed at all by its first evaluation, 20 steps or more from the start, and moves as an
    average from some evaluation on: it waits, and goes on from weights as they were made. There a tenth that is left,
    and a loss a fifth above the training's, are enough.

    What to do: copy the weights into the average where it begins, and divide by the number of those that are in it.
    """

    name, family, kind, severity = "average_begun", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_kept"
    needs = ("=model/evaluated_kept", "=model/evaluated_begun_way", "eval_loss", "loss")
    least = 3
    about = "An average of the weights begins late, and goes on from what it was when the model was made."
    thresholds: ClassVar = {
        "changes": (3.0, "of the copy before its first evaluation; ours"),
        "off": (1e-3, "of its squared move, off the way to the newest weights, of one or two changes; ours"),
        "share": (0.5, "of the steps before it, at most, with a change; ours"),
        "steps": (20.0, "before it, at least; ours"),
        "way": (0.5, "to the newest weights, at its first evaluation; ours"),
        "pace": (1.5, "steps for one in which it is written, from there on; ours"),
        "evaluations": (2.0, "behind it; ours"),
        "left": (0.3, "of what it was at first, at the end; ours"),
        "worse": (1.5, "times the training's loss, its evaluation; ours"),
        "waited": (0.1, "of what it was at first, at the end, of one that had not been changed; ours"),
        "above": (1.2, "times the training's loss, the evaluation of such a one; ours"),
    }
    causes = (
        "averaged weights lag: the average begins late, from weights as they were made, and takes too little of each",
    )
    remedies = (
        "copy the weights into the average where it begins",
        "divide by the number of weights that are in a mean, not by the step: `average.lerp_(weights, 1 / averaged)`",
    )

    def begin(self) -> None:
        self._left, self._count, self._before, self._still = math.nan, 0, 0.0, False
        self._begun, self._last = (0, 0, 0), (0, 0, 0)

    def reset(self) -> None:
        super().reset()
        self._came: tuple[Place, float, bool] | None = None  # a copy's first evaluation; what is left; if it was still

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if not history.facts.get("finished") or self._segment < 0 or self._count < self.at["evaluations"]:
            return
        left, worse = (self.at[name] for name in (("waited", "above") if self._still else ("left", "worse")))
        lags = self._left >= left and _is_worse(history, worse)
        if lags and not is_reference(history, self._last) and self.first(self._segment):
            yield self.finding(
                self._begun[0], f"The average that is evaluated begins late, and {100 * self._left:.0f}% of it are "
                "still the weights that it had when the model was made.", found=self._last[0], segment=self._segment,
                confidence=0.9, evidence={"left": rounded(self._left), "standing": True},
            )  # fmt: skip

    def asked(self, history: RunHistory) -> list[Source]:
        return [(history.channel("model/evaluated_begun_way"), self._first_one), *super().asked(history)]

    def _first_one(self, history: RunHistory, way: float, place: Place) -> Iterator[Finding]:
        """The first evaluation of a copy."""
        names = ("begun_writes", "steps", "begun_off")
        changes, steps, off = (watched(history, f"evaluated_{name}", place) for name in names)
        counted = changes >= self.at["changes"] or (changes > 0 and off <= self.at["off"])
        late = counted and changes <= self.at["share"] * (steps - _FOUND) and steps >= self.at["steps"]
        still = changes == way == 0 and steps >= self.at["steps"]
        self._came = place, 1 - way if still or (late and way <= self.at["way"]) else math.nan, still
        yield from ()

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        whose, writes, steps = (watched(history, f"evaluated_{name}", place) for name in ("whose", "writes", "steps"))
        before, self._before, self._last = self._before, steps, place
        if self._came is not None and self._came[0] == place:
            (self._begun, self._left, self._still), self._count = self._came, 0
            return
        if self._still and not self._count and writes == 0:
            self._begun = place  # it waits
            return
        each = whose == COPY and 0 < value <= 1 and steps - before <= self.at["pace"] * writes
        self._left, self._count = self._left * value if each else math.nan, self._count + 1
        yield from ()


RULES = (AverageSlow, AverageEqual, AverageLate, AverageBegun)
