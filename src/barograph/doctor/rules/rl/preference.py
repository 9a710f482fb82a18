"""Preferences learnt against a frozen reference: is it one?

In:   the implicit rewards that trainers of preferences log, in which the reference is subtracted.
Out:  findings of `ReferenceMoves`, `PreferenceReversed`, `EvaluationSwapped`, `MarginTurned`,
      `PairsAlike`.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.heldout import HELD_OUT
from barograph.core.patterns import expression
from barograph.core.roles import RECORDED, ROLES, is_of_held_out, other_sides
from barograph.doctor.kernel.cursor import (
    RowCursor,
    came_by,
    known,
    named,
    newest,
)
from barograph.doctor.kernel.curve import answers, between
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.rules.data.examples import Place

CHOSEN = ROLES["chosen_reward"][0]
_EVALUATED = ("eval/rewards/margins", "eval_rewards/margins", "val/rewards/margins", "eval/rewards_margins",
              "eval_rewards_margins", "val_rewards_margins", "eval_margin", "val_margin", "rewards_eval/margins",
              "rewards_valid/margins")  # fmt: skip
BETA = ("beta", "dpo_beta", "pref_beta", "kl_beta")
MARGINS = ("rewards/margins", "train/rewards/margins", "rewards_margins", "train/rewards_margins", "reward_margin",
           "train/reward_margin", "reward_margins", "train/reward_margins", "rewards_train/margins",
           *(f"{loss}/{name}" for loss in ("dpo", "ipo", "preference")
             for name in ("rewards/margins", "reward_margin", "reward_margins")))  # fmt: skip
MARGIN = expression(
    r"(?i)(?:.*[^a-z])?(?:margins?|gaps?|ahead)(?:[/._-](?:mean|train(?:ing)?|step))?"
)  # of a preference, whatever its prefix
_ORDERED = ("rewards/accuracies", "train/rewards/accuracies", "rewards_accuracies", "train/rewards_accuracies",
            "reward_accuracy", "train/reward_accuracy", "reward_accuracies", "train/reward_accuracies",
            "rewards_train/accuracies")  # fmt: skip
_APART = ("margin", "margins", "train/margin", "train/margins")
_MARGIN_OF_HELD_OUT = expression(rf"(?i)(?:.*[/_. ])?{HELD_OUT}[/_. ](?:rewards?[/_. ])?margins?")
_BEFORE, _NOW = 48, 16  # rows
_NEAR = 0.15  # of ln 2: how far from it the first losses may be


def margins_of(history: RunHistory) -> Channel | None:
    """How far chosen answers are ahead of rejected ones, in rewards; None where no preference is trained."""
    return next((one for name in MARGINS if (one := history.channel(name)) is not None), None)


def trained_like(history: RunHistory, kind: re.Pattern[str]) -> list[Channel]:
    """The training's own series whose names are of a kind, by their names."""
    return [history.channels[name] for name in sorted(history.channels)
            if kind.fullmatch(name) and not name.startswith(RECORDED) and not is_of_held_out(name)]  # fmt: skip


def rewards_of(history: RunHistory) -> tuple[Channel | None, Channel | None]:
    """The implicit rewards of chosen and of rejected answers, by any words for these."""
    chosen = history.role("chosen_reward")
    others = other_sides(chosen.name) if chosen is not None else []
    return chosen, next((one for name in others if (one := history.channel(name)) is not None), None)


def is_preference(history: RunHistory, time: int) -> bool:
    """Whether a preference is learnt, by what is known at a time: its margins, or the graph of its loss."""
    return came_by(margins_of(history), time) or came_by(history.channel("model/preference_averaged"), time)


_ALIKE = "chosen and rejected alike: the answers are the same texts"
_ONE_TERM = ("loss_terms", "preference_averaged")  # what says that the loss is a preference's alone
_STILL = 0.01  # of the loss: what is of a margin of 0 varies by rounding alone
_DIFFER = 0.5  # of the rows of a step's first two passes are the same
_ITSELF = "reference is the policy: both are one model, so that the margin is 0"


class ReferenceMoves(Rule):
    """The implicit reward of a preference is exactly 0, step after step: the reference is the policy itself.

    DPO's reward is β times the difference of the policy's and the reference's log probability. At the first step both
    models are one, and it is 0. In eight rows in a row behind the first update, with a learning rate above 0, a reward
    of exactly 0 says that the reference is the same object, or is copied anew at each step: the margin is 0, and the
    loss stays at ln 2. Where the watch sees that the loss is a preference's and nothing else, and it varies by a
    hundredth all the same, it is of another margin, as without a reference, and nothing is said. Where margins alone
    are logged, and no reference was seen, they are what is 0. With dropout it is 0 but for noise: there the model that
    is trained runs without gradients in the very first step, no adapters can be switched off, and the mean margin of 48
    rows is below three standard errors.

    What to do: `reference = copy.deepcopy(policy).requires_grad_(False)`, before the training.
    """

    name, family, kind, severity = "reference_moves", "rl", "rl", "critical"
    proves = "training"
    needs = tuple(["|".join(["chosen_reward", *(f"={name}" for name in MARGINS)])])
    about = "The reference of a preference is the policy itself."
    sources = ()
    thresholds: ClassVar = {
        "rows": (8.0, "ours"),
        "margins": (48.0, "rows; ours"),
        "errors": (3.0, "standard errors; ours"),
    }
    causes = (_ITSELF,)
    remedies = ("make the reference a frozen copy: `copy.deepcopy(policy).requires_grad_(False)`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._began = self._count = 0
        self._segment = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._noisy(history)
        chosen, rejected = rewards_of(history)
        chosen = chosen or margins_of(history)
        name = chosen.name if chosen is not None else ""
        both = name not in (*CHOSEN, *MARGINS)  # of another name it takes both sides
        for (step, time, segment), value in self._cursor.each(chosen):
            if both and known(rejected, step, time, segment) != 0:
                value = math.nan
            if segment != self._segment or value != 0:
                self._segment, self._count, self._began = segment, 0, step
            idle = known(history.role("lr"), step, time, segment) == 0
            if value != 0 or idle or numpy.isnan(value):
                continue
            self._count += 1
            if self._count == self.at["rows"] + 1 and self.first(segment):
                yield from self._say(history, name, step, time, segment)

    def _say(self, history: RunHistory, name: str, step: int, time: int, segment: int) -> Iterator[Finding]:
        """A margin of 0 alone may be of answers that are alike, if a reference was seen, or both passes' inputs."""
        alone = name in MARGINS
        if self._is_of_another(history, step, time, segment):
            return
        if alone and known(history.channel("model/other_apart"), step, time, segment) >= 0:
            return
        alike = alone and not known(history.channel("model/beside_copies"), step, time, segment) < _DIFFER
        yield self.finding(
            self._began, f"The {'margin' if alone else 'reward'} of chosen answers is exactly 0 in each row since step "
            f"{self._began}: policy and reference are one model{', or chosen and rejected are' if alike else ''}.",
            found=step, segment=segment, confidence=0.9 if alike else 0.95,
            causes=[*self.causes, *([_ALIKE] if alike else [])],
        )  # fmt: skip

    def _is_of_another(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """Whether the loss is one term, a preference's, and varies though what is logged as its margin is 0: it is of
        another margin, as without a reference."""
        loss = history.role("loss")
        seen = (known(history.channel(f"model/{name}"), step, time, segment) for name in _ONE_TERM)
        if loss is None or not all(value >= 0 for value in seen):
            return False
        values = between(loss, self._began, step, segment)
        one = known(history.channel("model/loss_terms"), step, time, segment) == 1
        return one and len(values) > 1 and float(numpy.ptp(values)) > _STILL * abs(float(values.mean()))

    def _noisy(self, history: RunHistory) -> Iterator[Finding]:
        """A margin of noise alone, where the policy itself runs as the reference does."""
        channel = margins_of(history)
        itself, adapters = (
            history.channel(f"model/{name}") for name in ("passes_without_gradients", "trained_adapters")
        )
        count = int(self.at["margins"])
        if channel is None or channel.end < count or itself is None or not itself.end:
            return
        rows, first = channel.rows(0, count), itself.began[0]
        if first > rows.step[0] or int(rows.segment[-1]) != int(rows.segment[0]) or not self.first("noisy"):
            return
        error = float(rows.value.std()) / count**0.5
        if not 0 < abs(float(rows.value.mean())) < self.at["errors"] * error or (adapters and adapters.first > 0):
            return
        yield self.finding(
            int(rows.step[0]), f"The margin of chosen over rejected answers is noise around 0 up to step "
            f"{int(rows.step[-1])}, and the model that is trained runs without gradients too: it is its own reference.",
            found=int(rows.step[-1]), segment=int(rows.segment[0]), confidence=0.95, key="noise",
        )  # fmt: skip


class PreferenceReversed(Rule):
    """The loss of a preference is below that of indifference, and the margin is negative: the rejected answer wins.

    The loss is convex in the margin, so its mean is at least the loss of the mean margin: of DPO's −ln σ(m) at least
    ln 2 where the margin is not positive, and IPO's and the hinge's are above that too. A loss below 0.98 ln 2 with a
    margin below 0, in eight rows in a row, is a loss of another sign than what is logged: chosen and rejected are
    swapped, or the sign of the margin is.

    What to do: compare one pair by hand; the loss is `-logsigmoid(beta * (chosen - rejected))`.
    """

    name, family, kind, severity = "preference_reversed", "rl", "rl", "critical"
    needs = (*tuple(["|".join(f"={name}" for name in MARGINS)]), "loss")
    about = "The rejected answers of a preference are preferred."
    sources = ()
    thresholds: ClassVar = {"rows": (8.0, "ours"), "share": (0.98, "of ln 2; ours")}
    causes = ("sign reversed: the loss prefers the rejected answers, or chosen and rejected are swapped",)
    remedies = ("compare one pair by hand: the loss is `-logsigmoid(beta * (chosen - rejected))`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._count, self._began, self._segment = 0, 0, -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        name = next((name for name in MARGINS if history.channel(name) is not None), "")
        loss = history.role("loss")
        for (step, time, segment), value in self._cursor.each(history.channel(name)):
            low = known(loss, step - 1, time, segment) < self.at["share"] * math.log(2)  # of a row that is complete
            if not (low and value < 0) or segment != self._segment:
                self._segment, self._count, self._began = segment, 0, step
            if not (low and value < 0):
                continue
            self._count += 1
            if self._count == self.at["rows"] and self.first(segment):
                yield self.finding(
                    self._began, f"The margin of chosen over rejected answers is negative since step {self._began}, "
                    f"{value:.3g}, while the loss is below ln 2.", found=step, segment=segment,
                    confidence=0.95,
                )  # fmt: skip


class EvaluationSwapped(Rule):
    """Training and evaluation prefer opposite answers: the margin of the one is positive, that of the other negative.

    In two evaluations in a row the mean margin of chosen over rejected answers is below 0, and at least half as large
    as that of the last 16 rows of the training, which is above 0. A policy that has learnt nothing of use has a margin
    around 0; one that memorizes prefers at random. In one of the two, chosen and rejected are swapped. Where the
    training logs no margins, they are the rewards of chosen answers less those of rejected ones, as of answers that are
    judged one by one.

    So it is where margins of the evaluation are not logged, and its accuracy is a quarter or less where that of the
    training, the median of 16 rows, is three quarters or more: of a choice of two, of which a guess has a half. The
    loss then begins within 15% of ln 2, and the training logs margins or how many pairs are ordered right.

    What to do: print one pair of each.
    """

    name, family, kind, severity = "evaluation_swapped", "rl", "data", "critical"
    needs = ("|".join([*(f"={name}" for name in (*MARGINS, *_ORDERED, *_APART)), "chosen_reward"]),
             "|".join([*(f"={name}" for name in _EVALUATED), "eval_accuracy", "eval_loss", "evaluation"]))  # fmt: skip
    about = "Training and evaluation prefer opposite answers."
    thresholds: ClassVar = {
        "evaluations": (2.0, "in a row; ours"),
        "share": (0.5, "of the training's margin; ours"),
        "rows": (16.0, "of the training; ours"),
        "wrong": (0.25, "accuracy of the evaluation; one less this of the training; ours"),
    }
    causes = ("pairs swapped: chosen and rejected are exchanged in the training, or in the evaluation",)
    remedies = ("print one pair of the training and one of the evaluation: which answer is the chosen one?",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: list[tuple[int, int]] = []

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        name = next((name for name in _EVALUATED if history.channel(name) is not None), "")
        ours, theirs, answers = margins_of(history), history.channel(name), False
        theirs, less = theirs or named(history, _MARGIN_OF_HELD_OUT), None
        if ours is None:
            ours, less = rewards_of(history)
            ours = ours if less is not None else None
        if ours is None or theirs is None:
            ours, theirs, answers = self._accuracies(history)
        rows = self._cursor.new(theirs) if ours is not None else None
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None and ours is not None
            step, time, segment = int(rows.step[at]), int(rows.time[at]), int(rows.segment[at])
            count = int(self.at["rows"])
            values = newest(ours, step - 1, time, segment, count)  # of steps that are complete
            if less is not None and not answers:
                values = values - newest(less, step - 1, time, segment, count)
            usual = float(numpy.median(values) if answers else values.mean())
            if answers:
                other = usual >= 1 - self.at["wrong"] and rows.value[at] <= self.at["wrong"]
            else:
                other = values.min() > 0 and rows.value[at] < -self.at["share"] * usual
            if not other or (self._row and self._row[0][1] != segment):
                self._row = []
            if not other:
                continue
            self._row.append((step, segment))
            if len(self._row) == self.at["evaluations"] and self.first(segment):
                what = "share of pairs that are ordered right" if answers else "margin of chosen over rejected answers"
                yield self.finding(
                    self._row[0][0], f"The {what} is {rows.value[at]:.3g} in the "
                    f"evaluation, and {usual:.3g} in the training.", found=step, segment=segment, confidence=0.95,
                )  # fmt: skip

    def _accuracies(self, history: RunHistory) -> tuple[Channel | None, Channel | None, bool]:
        """Of a choice of two: the accuracy of the training, that of the evaluation."""
        loss = history.role("loss")
        pairs = any(history.channel(name) is not None for name in (*_APART, *MARGINS, *_ORDERED))
        ours, theirs = answers(history) if pairs else None, history.role("eval_accuracy")
        if loss is None or ours is None or theirs is None or not loss.end or loss.start:
            return None, None, True
        first = float(numpy.median(loss.rows(0, 4).value))
        return (ours if abs(first / math.log(2) - 1) < _NEAR else None), theirs, True


class MarginTurned(Rule):
    """The margin of chosen over rejected answers was above 0, and is below it from a step on.

    The mean of the 48 rows before is above 0 by four of its standard errors, and that of the newest 16 below 0 by as
    many, and the loss of these is above ln 2 and above what it was: what had been learnt is now wrong. Chosen and
    rejected have changed places in the data, or the sign of one of them has.

    What to do: print a pair from before the step and one from behind it.
    """

    name, family, kind, severity = "margin_turned", "rl", "rl", "critical"
    needs = (*tuple(["|".join(f"={name}" for name in MARGINS)]), "loss")
    about = "Chosen and rejected answers have changed places during the training."
    thresholds: ClassVar = {"sure": (4.0, "standard errors; ours")}
    causes = ("labels shifted: chosen and rejected answers have changed places",)
    remedies = ("print a pair from before the step and one from behind it, as they go into the loss",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._rows: deque[tuple[int, float]] = deque(maxlen=_BEFORE + _NOW)
        self._segment = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        loss = history.role("loss")
        rows = self._cursor.new(margins_of(history))
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None
            step, time, segment = int(rows.step[at]), int(rows.time[at]), int(rows.segment[at])
            if segment != self._segment:
                self._segment = segment
                self._rows.clear()
            if not math.isfinite(rows.value[at]):
                continue
            self._rows.append((step, float(rows.value[at])))
            if loss is None or len(self._rows) < _BEFORE + _NOW or not rows.value[at] < 0:
                continue
            values = numpy.array([value for _, value in self._rows])
            before, now = values[:_BEFORE], values[_BEFORE:]
            sure = self.at["sure"]
            if not (before.mean() > sure * before.std() / _BEFORE**0.5 and now.mean() < -sure * now.std() / _NOW**0.5):
                continue
            began = self._rows[_BEFORE][0]
            level = newest(loss, step - 1, time, segment, _BEFORE + _NOW)  # of rows that are complete
            lately, earlier = float(numpy.nanmean(level[_BEFORE:])), float(numpy.nanmean(level[:_BEFORE]))
            if lately > max(math.log(2), earlier) and self.first(segment):
                yield self.finding(
                    began, f"The margin of chosen over rejected answers was {before.mean():.3g} in the mean of "
                    f"{_BEFORE} rows, and is {now.mean():.3g} since step {began}.", found=step, segment=segment,
                    confidence=0.9, evidence={"before": float(before.mean()), "now": float(now.mean())},
                )  # fmt: skip


class PairsAlike(Rule):
    """Chosen and rejected answers are the same.

    Their margin is exactly 0 in eight rows in a row in which the chosen ones' reward is not: the policy is another
    than its reference, and says the same of both answers. Nothing is learnt, and the loss stays at ln 2. With dropout
    the margin is noise: there the watch compares the inputs of a step's first two passes, of which nine rows in ten or
    more are the same, in three looks in a row, while the loss is logistic, of differences. Where no second network was
    seen, and a batch has no example twice, the second pass may be the reference's, which is the policy itself: that is
    the first cause then.

    What to do: print a pair as it goes into the loss. A column that is read twice, and a `max_length` that cuts answers
    off behind the prompt, both do this.
    """

    name, family, kind, severity = "pairs_alike", "rl", "rl", "critical"
    needs = (
        "|".join([*(f"={name}" for name in MARGINS), "=model/beside_copies"]),
        "chosen_reward|=model/loss_ranks",
    )
    about = "Chosen and rejected answers are the same."
    thresholds: ClassVar = {
        "rows": (8.0, "in a row; ours"),
        "share": (0.9, "of the rows of two passes; ours"),
        "looks": (3.0, "in a row; ours"),
    }
    causes = (_ALIKE,)
    remedies = ("print a pair as it goes into the loss: one column may be read twice, or both be cut at the prompt",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._began = self._count = 0
        self._segment = -1
        self._row: list[tuple[int, int]] = []

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        chosen, _ = rewards_of(history)
        for which, place, value in self._cursor.in_order(history.channel("model/beside_copies"), chosen):
            yield from (self._by_margin if which else self._by_input)(history, place, value)

    def _by_input(self, history: RunHistory, place: Place, share: float) -> Iterator[Finding]:
        """share: of the rows of a step's first two passes, that are the same."""
        step, _, segment = place
        if share < self.at["share"] or (self._row and self._row[0][1] != segment):
            self._row = []
        if share < self.at["share"]:
            return
        self._row = [*self._row, (step, segment)][: int(self.at["looks"])]
        ranked = known(history.channel("model/loss_ranks"), *place) >= 0
        if ranked and len(self._row) == self.at["looks"] and self.first(segment):
            itself = self._of_itself(history, place)
            yield self.finding(
                self._row[0][0], f"{100 * share:.0f}% of the rows of a step's two passes are the same.",
                found=step, segment=segment, confidence=0.9 if itself else 0.95,
                causes=[_ITSELF, *self.causes] if itself else list(self.causes),
                evidence={"share": share, "standing": True},
            )  # fmt: skip

    def _of_itself(self, history: RunHistory, place: Place) -> bool:
        """Whether the second pass may be the reference's: a batch has no example twice, the output has classes, and no
        other network of the policy's make was seen, nor adapters that can be switched off."""
        other, adapters, copies, width = (
            known(history.channel(f"model/{name}"), *place)
            for name in ("other_apart", "trained_adapters", "batch_copies", "output_width")
        )
        return copies == 0 and width > 2 and not other >= 0 and not adapters > 0

    def _by_margin(self, history: RunHistory, place: Place, reward: float) -> Iterator[Finding]:
        """reward: of the chosen answers."""
        step, _, segment = place
        if segment != self._segment:
            self._segment, self._count = segment, 0
        margin = known(margins_of(history), *place)
        if margin != 0 or not math.isfinite(reward):
            self._count = 0
        elif reward != 0:
            self._began = self._began if self._count else step
            self._count += 1
        if self._count == self.at["rows"] and self.first(segment):
            yield self.finding(
                self._began, "The margin of chosen over rejected answers is exactly 0 in each row, while their "
                "rewards are not: the answers are the same.", found=step, segment=segment, confidence=0.95,
                evidence={"rows": self._count, "standing": True},
            )  # fmt: skip


RULES = (ReferenceMoves, PreferenceReversed, EvaluationSwapped, MarginTurned, PairsAlike)
