"""Whether a model learns at all.

In:   the series of the loss, and beside it learning rate, accuracy, vocabulary.
Out:  findings of `NotLearning`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.cursor import exp, known, named
from barograph.doctor.kernel.curve import Tick, again, between, is_game, rounded
from barograph.doctor.kernel.curve_rule import CurveRule
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.evaluation.ranking import AREA
from barograph.doctor.rules.loss.one_answer import nothing_moves, one_share, same_answers, share_of, with_certainty
from barograph.doctor.rules.loss.settled import still_falls
from barograph.doctor.rules.loss.short_runs import (
    accuracies_of_a_guess,
    answers_by_chance,
    drops_to_a_guess,
    evaluations_stay_a_guess,
    falls_evenly,
    few_stay_a_guess,
    losses_stay_a_guess,
    never_changes,
    nothing_learnt,
    rests_at_a_guess,
    stands_still,
    stays_a_guess,
)
from barograph.doctor.rules.loss.suspects import advice, suspects
from barograph.doctor.rules.optimizer.early import began_blank

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_CLASSES = math.log(7.0)  # ln of ln of a thousand classes
CLASSES = (2, 3, 10, 100, 1000)  # usual numbers of classes; more would meet the losses of language models by chance
_TOO_NOISY = 0.3  # standard deviation of single rows, in ln, in which a fall of a quarter can't be seen
_MANY = 3000  # steps
_WARM_UP = 5000  # steps, more than any warm-up has
_IN_PERCENT = 1.5  # an accuracy above it
_FEW = 100  # rows from which on a guess is looked for while they come
_EPOCH_NOISE = 0.01  # in ln, of the mean of an epoch's losses
_AT_ONCE = 0.7  # in ln, from the first row to the median of five: one step, of all data, has taught it
_OFF = 0.005  # of a first loss that is none of a guess, as a share
_BEGINNING = 100  # steps within which a training begins


def _counts(history: RunHistory) -> str:
    """What the steps of an imported loss count, where that is something else."""
    loss = history.role("loss")
    return str(history.facts.get("counts", {}).get(loss.name, "")) if loss is not None else ""


_OF_OTHERS = expression(r"ood|anomal|outlier|novel|attack|mia|member|advers|domain|fair|privac|sensitiv", re.I)
"""Words in the names of areas that say nothing of what the training is for."""


def _unit(history: RunHistory) -> str:
    """What rows are called that are taken for epochs: so where the log says it."""
    return "epochs" if _counts(history) == "epoch" else "rows"


def _classes(history: RunHistory, tick: Tick) -> int:
    """Among how many classes the watched loss chooses, or examples of a batch; 0 where that is not known."""
    place = tick.step, tick.time, tick.segment
    targets = known(history.channel("model/class_targets"), *place)
    width = known(history.channel("model/output_width"), *place) if targets > 0 else math.nan
    count = known(history.channel("model/loss_classes"), *place)
    count = width if count != count else count
    return int(count) if count >= 2 else 0


class NotLearning(CurveRule):
    """The loss stays at its initial value.

    After 50 rows and 200 steps (20 rows where rows are further apart) the smoothed loss is within 2% of the first
    rows', and its lowest point is too. A model that goes on from a checkpoint has such a curve as well, so this is an
    info finding, unless the loss is that of a uniform guess: within 2% of ln of the vocabulary, or of the classes of a
    watched loss; where that isn't known,
    between 4 and 12.2, where no trained model begins (among how many it guesses nothing says), or within 0.3% of ln 2,
    3, 10, 100, 1000 classes, or that of outputs without information about the targets, since it began as log Z (within
    10%). Then it is a warning, and critical after four times the rows. One that has lost less than 7% after 150 rows,
    or 30 and 3,000 steps, the warm-up over, is a warning too, until it has lost two fifths. While the learning rate is
    still below a tenth of the highest seen, or 0, the rows don't count. One that, behind the first quarter of its rows,
    still falls by more than chance is slow: nothing is said. Of rows that are epochs, as the log says or because each
    has its evaluation, 20 are enough, and 24 from the first one on are a warning at any level. Rows of which the log
    says no step may be any number of steps: 50 are enough. Where the loss of the evaluation has fallen by a twentieth,
    nothing is said.

    For a classifier whose accuracy is logged, loss and accuracy count together: a loss within 3% of ln n and an
    accuracy within a third of 1/n, still after 130 rows, are those of a uniform guess among n, wherever the loss began;
    so are those of eight epochs or more, all there are, which are no more than 0.5% below it and 1.5% above, the first
    one 10%, and within a tenth; of four or more with evaluations, or six without, of which all but the training's first
    epoch are no more than 0.1% below and 0.3% above, and within a fiftieth (a twentieth among five or more); of six or
    more whose evaluations give one class for all in three quarters, while the medians are a guess's, and no loss is
    1.5% better; of eight rows in 500 steps with losses within 0.03%, and half of the accuracies at it. Where no
    accuracy is logged, eight epochs or more from the first one on, each with its evaluation, are enough of which all
    losses are within 0.3% of those of a guess among twenty or fewer; and six evaluations so near to one, whose accuracy
    is the same each time, where no loss of the training is lower. So is a loss of ln 2 beside an area under the
    curve that is a half in each epoch. Nor is anything learnt but the labels' shares in twenty epochs or more whose
    evaluations rest within a hundredth from the first quarter on, at ln 2 or less, with the training's last third
    beside them, while no area is more than 0.05 from a half, and in the later half they are not above it, as those of
    labels that are hard to tell always are, by a little. Areas of other questions, as of outliers or attacks, say
    nothing. Eight epochs or more of which no evaluation is more accurate than one of the first three are a warning
    where that accuracy comes six times, to the last digit, in a quarter of them at least, and lies below 0.9, while the
    loss of the training fell by less than 15% and its accuracy rose by less than 0.05. Eight rows or more, of any part
    of a run, in which the accuracies of the evaluation are the same number to the last digit, and these and the
    training's are 1 over a whole one, to a thousandth, are a warning too: one class is answered. So are eight rows, or
    five with evaluations, whose losses rest within a hundredth, at one and a half times that of a guess or more, while
    all accuracies are those of a guess among twenty or fewer, within a fifth (a fiftieth among less than five): outputs
    that are sure of an answer. So are a dozen epochs in which the training's accuracy never changes, where no other is
    logged, and the loss fell by less than 15%. So are five rows or more, all there are, or four with evaluations, in
    which losses and accuracies are the same to the last digit, but for the training's first row, where no accuracy
    reaches a half; six whose loss is one number of five digits, while evaluations above it move; and four rows or more,
    in a thousand steps, whose first loss is far above a guess, all later ones within a fiftieth of it, and whose
    evaluations have the same accuracy each time, that of such a guess. So are four rows or more whose losses are, but
    for the first, the share of wrong answers times −ln of an epsilon, as Keras's. Eight epochs or more, all there are,
    whose evaluations fall each time, by a fiftieth in all, and as much for each unit of the rate in the later half as
    in the earlier, have had the gradient of the first step to the end: the rate is too low.
    """

    name, family, kind, severity = "not_learning", "loss", "not_learning", "critical"
    least = 20
    about = "The training loss does not fall from its initial value."
    sources = ("TrainCheck: its cases", "accelerate#2665")
    thresholds: ClassVar = {
        "near": (0.02, "of ln of the vocabulary; ours"),
        "steps": (200.0, "ours"),
        "rows": (50.0, "ours; a third with sparse rows"),
        "epochs": (24.0, "from the first, that warn whatever the loss is; ours"),
    }

    def begin(self, history: RunHistory, channel: Channel, tick: Tick, old: int) -> None:
        fresh = old < 0 or tick.step < 0.5 * self._last_step
        self._first: list[float] = []
        self._sum, self._ticks = 0.0, 0
        self._low = math.inf
        self._high = -math.inf
        self._over = not fresh
        self._begin = tick
        self._chances = self._since = 0
        self._deepest = math.inf
        self._slow = False
        self._slowly: Finding | None = None
        self._guessed: Finding | None = None
        self._told: Finding | None = None
        self._last_step = tick.step

    _last_step = 0
    _channels, _classifier = -1, False  # whether an accuracy is logged, of this number of series

    def step(self, history: RunHistory, channel: Channel, tick: Tick) -> Iterator[Finding]:
        self._last_step = tick.step
        if not math.isfinite(tick.level):
            return
        self._deepest = min(self._deepest, tick.level)
        yield from self._at_chance(history, channel, tick)
        if self._first and not self._slow:
            yield from self._hardly(history, sorted(self._first)[len(self._first) // 2], tick)
        yield from self._after_all(tick)
        if self._over:
            yield from self._move(tick)
            return
        if len(self._first) < 5:
            self._first.append(tick.level)
            return  # medians of few rows do not make a lowest point
        start = sorted(self._first)[len(self._first) // 2]
        self._low, self._high = min(self._low, tick.level), max(self._high, tick.level)
        self._sum, self._ticks = self._sum + tick.level, self._ticks + 1
        near = self.at["near"]
        # a file that begins in the middle begins at no guess
        middle = self._begin.step > _BEGINNING and self._begin.step > 4 * (tick.step - self._begin.step)
        guess = 0 if middle else self._guess(history, start, tick)
        spread = tick.spread
        if not spread <= _TOO_NOISY:  # outputs of a model that has learnt nothing are alike, and so are its losses
            return
        # the lowest of some hundred medians lies three of their deviations (1.25 σ / √n) below the loss, and the start,
        # five medians of five rows at most, may lie as far above it
        noise = max(0.5, 3.75 / math.sqrt(tick.width)) * spread
        noise += 1.5 * spread if self._ticks < 48 or guess else 0.0
        left = self._high > start + 5 * near + noise or self._first[0] > start + _AT_ONCE
        if self._low < start - near - noise or (left and not guess):
            self._over = True
            yield from self._move(tick)
            return
        sparse = tick.nth > 0 and (tick.step - self._begin.step) / tick.nth >= 4
        rows = self.at["rows"] / (2.5 if sparse else 1)
        steps = tick.step - self._begin.step
        rates = between(history.role("lr"), 0, tick.step + 1, tick.segment)
        needed = self.at["steps"] * (0.5 if len(rates) and guess >= 0 else 1)  # a level alone says less
        epochs = tick.nth >= self.at["rows"] / 2.5 and self._in_epochs(history, tick)
        if epochs:
            rows, needed = self.at["rows"] / 2.5, 0.0
        elif _counts(history) == "row":
            needed = 0.0
        if tick.nth < rows or steps < needed:
            return
        if len(rates):
            used = rates > 0.1 * rates.max() if rates.max() > 0 else rates >= 0
            if used.sum() < 0.4 * min(rows, len(rates)) or (
                rates[-1] > 1.0001 * rates[:-1].max(initial=0.0) and steps < 2000
            ):
                return  # still in the warm-up
        long = tick.nth >= 4 * rows and (steps >= 4 * self.at["steps"] or epochs)
        blank = not guess and not middle and began_blank(history, exp(start))
        if guess <= 0 and not blank and still_falls(history, channel, self._begin.step, tick):
            return
        tells, game = guess or blank, is_game(history, channel)
        dozens = epochs and self._begin.step <= 1 and steps >= self.at["epochs"]
        severity = "info" if game or not (tells or dozens) else "critical" if tells and long else "warning"
        order = ("info", "warning", "critical")
        if self._told is not None and order.index(severity) <= order.index(self._told.severity):
            return
        level = exp(tick.level)
        message = f"The loss is {level:.4g} after {steps} {_unit(history) if epochs else 'steps'}, its initial value"
        message += f": that of a uniform guess among {guess}" if guess > 0 else ""
        message += ": it began as log Z, so the outputs carry no information about the targets" if blank else ""
        causes, remedies = advice(suspects(history, tick), rates)
        self._told = self.finding(
            self._begin.step,
            message,
            severity=severity,
            last_step=tick.step,
            found=self._told.found if self._told else tick.step,
            segment=tick.segment,
            causes=causes,
            evidence={"loss": rounded(level), "start": rounded(exp(start)), "steps": steps, "rows": tick.nth + 1},
            remedies=remedies,
            confidence=0.85 if guess or blank else 0.35,
        )
        yield again(self._told)

    def _after_all(self, tick: Tick) -> Iterator[Finding]:
        """A loss that had hardly fallen has lost two fifths by now."""
        if self._slowly is not None and tick.level < sorted(self._first)[len(self._first) // 2] + math.log(0.6):
            self._slowly.severity = "info"
            self._slowly.message += f"; it fell to {exp(tick.level):.4g} by step {tick.step}"
            yield again(self._slowly)
            self._slowly = None

    def _in_epochs(self, history: RunHistory, tick: Tick) -> bool:
        """Whether rows are epochs: numbered one by one, as the log says or each with an evaluation."""
        if tick.step - self._begin.step > 1.5 * tick.nth:
            return False
        if _counts(history) == "epoch":
            return True
        evaluations = between(history.role("eval_loss"), self._begin.step, tick.step + 1, tick.segment)
        return len(evaluations) >= 0.8 * tick.nth

    def _move(self, tick: Tick) -> Iterator[Finding]:
        """A loss that has left its start for good."""
        if self._told is None or tick.level >= sorted(self._first)[len(self._first) // 2] + math.log(0.93):
            return
        self._told.severity = "info"
        self._told.message += f"; it had fallen by step {tick.step}"
        yield again(self._told)
        self._told = None

    def _hardly(self, history: RunHistory, start: float, tick: Tick) -> Iterator[Finding]:
        """A language model from scratch that after 150 steps, warm-up over, has lost less than 7% of its first loss.
        Of rows far apart 30 are enough. Where no learning rate is known: after 5,000 steps, which no warm-up takes, and
        from 9 on, as with tokens.
        """
        steps = tick.step - self._begin.step
        if self._slow or steps < 150 or tick.nth < (30 if steps >= _MANY else 150):
            return
        rates = between(history.role("lr"), 0, tick.step + 1, tick.segment)
        if not len(rates) and steps < _WARM_UP:
            return
        self._slow = True
        level, first = exp(tick.level), exp(start)
        peak = float(rates.max()) if len(rates) else math.nan
        warm = not len(rates) or (len(rates) > 1 and peak > 0 and rates[-1] < peak)
        if (
            not ((4 if len(rates) else 9) <= first <= 12.2 or began_blank(history, first))
            or level < 0.93 * first
            or level > first
            or not warm
            or self._told is not None
        ):
            return
        if self._deepest < start + math.log(0.93):
            return  # it had learnt something, and lost it
        self._slowly = self.finding(
            self._begin.step,
            f"The loss went from {first:.4g} to {level:.4g} only in {steps} steps",
            severity="warning",
            found=tick.step,
            segment=tick.segment,
            key="slow",
            confidence=0.7,
            evidence={"start": rounded(first), "loss": rounded(level), "highest_lr": rounded(peak)},
            causes=suspects(history, tick),
            remedies=[f"Raise the learning rate: {10 * peak:.2g} instead of {peak:.2g}."]
            if len(rates)
            else ["Raise the learning rate tenfold, and see whether weights change."],
        )
        yield again(self._slowly)

    def _at_chance(self, history: RunHistory, channel: Channel, tick: Tick) -> Iterator[Finding]:
        """A classifier whose loss and accuracy both are those of a guess, in three looks 16 rows apart."""
        steps = tick.step - self._begin.step
        if tick.nth < 100 or tick.nth % 16 or steps < 150 or tick.level > _MOST_CLASSES:
            return
        if self._channels != len(history.channels):
            self._channels = len(history.channels)
            self._classifier = any(share_of(history, name) is not None for name in ("accuracy", "eval_accuracy"))
        if not self._classifier:
            return
        count = round(exp(exp(tick.level)))
        classes = known(history.channel("model/loss_classes"), tick.step, tick.time, tick.segment)
        above = 2 <= classes < count  # worse than a guess among all there are
        count = int(classes) if above else count
        expected = math.log(count) if count > 1 else 0.0
        chance = 0.0
        if count > 1 and (above or abs(exp(tick.level) - expected) < 0.03 * expected):
            for name, rows in (("accuracy", 32), ("eval_accuracy", 3)):
                values = between(share_of(history, name), 0, tick.step, tick.segment)[-rows:]
                if len(values) >= min(rows, 8) and abs(float(values.mean()) * count - 1) < 0.35:
                    chance = float(values.mean())
        start = max(self._first[:2], default=tick.level)
        fell_out = self._deepest < tick.level - 0.1
        if not fell_out and 0.2 < start - tick.level < 0.4:
            chance = 0.0  # it has learnt something: what is left is a guess among fewer by accident
        if not chance:
            self._chances = 0
            if self._guessed is not None:
                self._guessed.severity = "info"
                self._guessed.message += f"; it had improved by step {tick.step}"
                yield again(self._guessed)
                self._guessed = None
            return
        self._chances += 1
        if self._chances == 1:
            self._since = tick.step if fell_out else self._begin.step
        if self._chances < 3 or self._guessed is not None:
            return
        self._guessed = self.finding(
            self._since,
            f"After {steps} steps the loss is {exp(tick.level):.4g} and the accuracy {chance:.3g}: "
            f"{'not better than' if above else 'those of'} a uniform guess among {count}",
            severity="warning",
            found=tick.step,
            segment=tick.segment,
            key="guess",
            confidence=0.85,
            evidence={"loss": rounded(exp(tick.level)), "accuracy": rounded(chance), "classes": count, "steps": steps},
            causes=suspects(history, tick),
            remedies=[
                "Try to overfit one batch: if that fails, gradients or labels are wrong, otherwise the learning rate."
            ],
        )
        yield again(self._guessed)

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        """Few epochs, of which each has the loss and the accuracy of a guess."""
        rows = channel.rows()
        rows = rows.part(len(rows) - int((rows.segment == self._segment).sum()), len(rows))
        last = int(rows.step[-1]) + 1 if len(rows) else 0
        if not len(rows) or self._guessed is not None or len(rows) >= _FEW or rows.cuts or not rows.finite:
            return
        beside = [
            between(one, 0, last, self._segment)
            for one in (
                share_of(history, "accuracy"),
                history.role("eval_loss"),
                share_of(history, "eval_accuracy"),
            )
        ]
        printed = beside[0]
        beside = [
            one / 100 if at != 1 and len(one) and one.max() > _IN_PERCENT else one for at, one in enumerate(beside)
        ]
        count = stays_a_guess(rows.value, *beside) if _counts(history) in ("epoch", "") else 0
        if not count and _counts(history) == "epoch":
            count = few_stay_a_guess(rows.value, *beside)
        alone = not count and not len(beside[0]) and not len(beside[2]) and int(rows.step[0]) <= 1
        if alone and _counts(history) == "epoch" and not is_game(history, channel):
            count = losses_stay_a_guess(rows.value, beside[1])
        held_out = 0 if count or _counts(history) != "epoch" else evaluations_stay_a_guess(rows.value, *beside[1:])
        count = count or held_out
        told = self._told is not None and self._told.severity != "info"
        span = int(rows.step[-1] - rows.step[0])
        epochs = count = (count if span <= 1.5 * len(rows) else 0) or (
            drops_to_a_guess(rows.value, beside[2], span) or rests_at_a_guess(rows.value, beside[0], span)
        )
        by_chance = 0 if epochs or told else answers_by_chance(beside[0], beside[2])
        if not epochs and not told and not by_chance and int(rows.step[0]) <= 1:
            yield from self._little(history, rows, beside)
        still = 0.0 if epochs or told or by_chance else stands_still(rows.value, *beside)
        seen = epochs or told or by_chance or still or is_game(history, channel)
        wrong = None if seen else with_certainty(self, rows, _unit(history), beside)
        if by_chance:
            yield one_share(self, rows, _unit(history), by_chance)
        elif still:
            yield nothing_moves(self, rows, _unit(history), still)
        elif wrong is not None:
            yield wrong
        elif not epochs and not told and not len(beside[2]) and _counts(history) == "epoch":
            yield from same_answers(self, rows, never_changes(rows.value, printed))
        if epochs and not told:
            shown = accuracies_of_a_guess([beside[0][1:], beside[2]], count)
            at_once = held_out or abs(rows.value[0] / math.log(count) - 1) < _OFF
            yield self.finding(
                int(rows.step[0]),
                f"In each of {len(rows)} {_unit(history) if span <= 1.5 * len(rows) else 'rows'} "
                + ("the evaluation's loss and accuracy" if held_out
                   else "the losses of training and evaluation" if alone else f"loss and {shown}")
                + f" are those of a uniform guess among {count}"
                + ("" if at_once else ", but for the training's first"),
                severity="warning",
                last_step=last - 1,
                segment=self._segment,
                key="guess",
                confidence=0.85,
                evidence={"loss": rounded(float(rows.value[-1])), "classes": count, "rows": len(rows)},
                causes=["learning rate too high: outputs no longer depend on the inputs", "gradients vanish",
                        "labels shuffled: targets have nothing to do with the inputs"],
                remedies=["Lower the learning rate by a factor of 10; then look at initialisation and normalisation.",
                          "Try to overfit one batch: if that fails, gradients or labels are wrong."],
            )  # fmt: skip

    def _little(self, history: RunHistory, rows: ChannelRows, beside: list[NDArray[Any]]) -> Iterator[Finding]:
        """Epochs that have taught nothing, or whose evaluations fall by the same little for each unit of the rate: the
        first step's gradient."""
        losses, last = rows.value, int(rows.step[-1]) + 1
        evaluations, rates = beside[1], between(history.role("lr"), 0, last, self._segment)
        channel = named(history, AREA)
        channel = None if channel is None or _OF_OTHERS.search(channel.name) else channel
        area = between(channel, 0, last, self._segment)
        share = falls_evenly(evaluations, rates)
        moved = abs(math.log(losses[-1]) - math.log(losses[0])) if losses.min() > 0 else math.inf
        even = share and len(evaluations) == len(losses) and moved <= 2 * share + _EPOCH_NOISE
        nothing = nothing_learnt(losses, beside, area) if last - 1 - rows.step[0] <= 1.5 * len(rows) else None
        if not even and nothing is None:
            return
        said, causes = nothing or (
            f"the evaluation loss went from {evaluations[0]:.4g} to {evaluations[-1]:.4g}, evenly: by the same for "
            "each unit of the learning rate, as at the first step",
            ["learning rate too low: the weights have hardly left where they began"],
        )
        remedies = ["Try to overfit one batch: if that fails, gradients or labels are wrong.",
                    "Count the classes that the model answers with."]  # fmt: skip
        if nothing is None:
            remedies = ["Raise the learning rate tenfold, and again, until the loss falls."]
        yield self.finding(
            0,
            f"In {len(losses)} {_unit(history)} {said}",
            severity="warning",
            last_step=last - 1,
            segment=self._segment,
            key="evenly" if nothing is None else "nothing",
            confidence=0.9 if nothing is None else 0.75,
            evidence={"share": rounded(share, 3), "rows": len(losses)},
            causes=causes,
            remedies=remedies,
        )

    def _guess(self, history: RunHistory, start: float, tick: Tick) -> int:
        """How many equally likely answers the loss is that of, 0 if none; -1 where it is one of a number that nothing
        says.
        """
        vocabulary = history.facts.get("vocabulary") or _classes(history, tick)
        near = self.at["near"] if vocabulary or history.role("accuracy") is not None else 0.15 * self.at["near"]
        noise = 2.5 * (tick.spread if math.isfinite(tick.spread) else 0.0) / math.sqrt(tick.width)
        mean = self._sum / max(self._ticks, 1)  # of all so far: where single rows are noisy it is not
        for count in (vocabulary,) if vocabulary else CLASSES:
            expected = math.log(math.log(count))
            if abs(tick.level - expected) < near and abs(start - expected) < 2 * near:
                return int(count)
            if self._ticks >= 48 and abs(tick.level - expected) < near + noise and abs(mean - expected) < near:
                return int(count)
        # trained models that go on, and classifiers, begin below 4; ln of a million is 13.8
        off = min(abs(tick.level - start), max(abs(tick.level - mean) - noise, 0.0) if self._ticks >= 48 else math.inf)
        high = not vocabulary and 4 <= exp(start) <= 12.2 and off < self.at["near"]
        return -1 if high else 0
