"""Losses of preferences that are added up over a batch: at the beginning policy and reference are one.

In:   the loss and the margins or rewards of the first rows; what the graph of the loss says; the configuration.
Out:  findings of `PreferenceSummed`, `PreferencesSummed`, `JudgedSummed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.configuration import BATCH
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known, numbers_named, numeric_setting, summed_by_choice, told_behind
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.rl.begins import margin_at
from barograph.doctor.rules.rl.preference import BETA, MARGINS, margins_of, rewards_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.rules.data.examples import Place

_WHOLE = 1e-4  # of a multiple of ln 2
_LATER = 8  # rows behind which it is said
_ROUNDING = 1e-6  # of a margin or a reward
_PAIRS = expression(r".*(?:batch|bsz|pairs).*")  # how many a batch has


def _size_near(history: RunHistory, times: float, least: float, near: float) -> float:
    """What the configuration says that a batch has, or its pairs, which is this number; 0 where nothing is."""
    sizes = {numeric_setting(history, *BATCH), *(size for _, size in numbers_named(history, _PAIRS))}
    return next((size for size in sorted(sizes) if size >= least and abs(times / size - 1) <= near), 0.0)


def _adds_ranks(history: RunHistory, place: Place) -> bool:
    """Whether the graph of the loss has a sum of logarithms of sigmoids of a difference, and nobody chose a sum."""
    ranks, adds = (known(history.channel(f"model/loss_{name}"), *place) for name in ("ranks", "adds"))
    return ranks == 1 and adds == 1 and not summed_by_choice(history, over_rows=True)


class PreferenceSummed(Rule):
    """The loss of a preference is a sum over the pairs of a batch.

    DPO's loss of a pair is −ln σ(m) of its margin m. Of the first eight rows the loss is as many times that of the mean
    margin as the configuration has examples in a batch, within a tenth and four times at least, in each row within a
    fifth of their median. Or the margin of the first row is 0, as that of a policy that is its reference, and the loss
    there is that number of times ln 2, to a ten thousandth. Where no margin is logged by a usual name, that first loss
    is enough, if the graph shows the logarithm of a sigmoid of a difference (`model/loss_ranks`), and a sum. With
    dropout a policy is its reference but for noise: where the graph shows both, the first loss is that number of times
    ln 2 within a tenth. Where the configuration says that the loss is a sum, nothing is said.

    What to do: `loss.mean()`; the learning rate that was found for the sum is too small then.
    """

    name, family, kind, severity = "preference_summed", "rl", "exploding", "warning"
    needs = ("|".join(f"={name}" for name in (*MARGINS, "model/loss_ranks")), "loss")
    about = "The loss of a preference is summed over the pairs of a batch."
    sources = ()
    thresholds: ClassVar = {
        "rows": (8.0, "ours"), "near": (0.1, "of the batch's size; ours"), "alike": (0.2, "of the median; ours"),
        "least": (4.0, "ours"),
    }  # fmt: skip
    causes = ("loss summed: over the pairs of a batch",)
    remedies = ("take the mean over the pairs: `loss.mean()`",)

    def reset(self) -> None:
        self._done = self._begun = False

    def _by_graph(self, history: RunHistory, loss: Channel) -> Iterator[Finding]:
        """A preference of which no margin is known, but what its loss is made of."""
        told = told_behind(loss, int(self.at["rows"]), history.channel("model/loss_ranks"))
        if told is None:
            return
        self._done, first = True, loss.rows(0, 1)
        place = int(first.step[0]) + 1, told[1], int(first.segment[0])
        if _adds_ranks(history, place):
            yield from self._of_none(history, loss, told[0], known(history.channel("model/dropout"), *place) > 0)

    def _at_first(self, history: RunHistory, margins: Channel, loss: Channel) -> Iterator[Finding]:
        """A policy that is still its reference."""
        apart, values = margins.rows(0, 1), loss.rows(0, 1)
        if apart.first or values.first or int(apart.step[0]) != int(values.step[0]):
            return
        place = int(values.step[0]) + 1, int(loss.rows(0, 2).time[-1]), int(values.segment[0])
        none = abs(apart.value[0]) <= 1e-6
        if none or (_adds_ranks(history, place) and known(history.channel("model/dropout"), *place) > 0):
            found = int(values.step[0] if none else loss.rows(0, 2).step[-1])
            yield from self._of_none(history, loss, found, not none)

    def _of_none(self, history: RunHistory, loss: Channel, found: int, noisy: bool = False) -> Iterator[Finding]:
        """At a margin of 0 each pair's loss is ln 2. noisy: but for dropout."""
        values = loss.rows(0, 1)
        times = float(values.value[0]) / math.log(2)
        size = _size_near(history, times, self.at["least"], self.at["near"] if noisy else _WHOLE)
        if size:
            self._done = True
            yield self.finding(
                int(values.step[0]), f"{'Before the first step' if noisy else 'At a margin of 0'} the loss is "
                f"{times:.5g} times ln 2, and a batch has {size:.0f} examples: it is summed.", found=found,
                segment=int(values.segment[0]), confidence=0.95, evidence={"times": times, "standing": True},
            )  # fmt: skip

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        margins, loss = margins_of(history), history.role("loss")
        count = int(self.at["rows"])
        if self._done or loss is None or summed_by_choice(history, over_rows=True):
            return
        if margins is None:
            yield from self._by_graph(history, loss)
            return
        if not self._begun and min(margins.end, loss.end) > 1:
            self._begun = True
            yield from self._at_first(history, margins, loss)
        size = numeric_setting(history, *BATCH)
        if self._done or min(margins.end, loss.end) < count + 1:
            return
        self._done = True
        apart, values = margins.rows(0, count), loss.rows(0, count)
        if apart.first or values.first or not size >= self.at["least"] or (apart.step != values.step).any():
            return
        times = values.value / numpy.logaddexp(0.0, -apart.value)
        usual = float(numpy.median(times))
        if abs(usual / size - 1) <= self.at["near"] and (abs(times / usual - 1) <= self.at["alike"]).all():
            yield self.finding(
                int(values.step[0]), f"The loss is {usual:.3g} times that of a pair with the mean margin, and a batch "
                f"has {size:.0f} examples: it is summed.", found=int(values.step[-1]),
                segment=int(values.segment[0]), confidence=0.95, evidence={"times": usual},
            )  # fmt: skip


class PreferencesSummed(Rule):
    """The squares of a batch's preferences are added up.

    IPO's loss of a pair is the square of what its margin is away from 1 / 2β. Before the first step the policy is its
    reference: the margin is 0, and each pair's loss (1 / 2β)². The loss of the first row, with a margin of 0, is n
    times that, to a ten thousandth, where the configuration has β and says that a batch has n pairs, four at least, and
    the graph of the loss has a sum. Where the configuration says that the loss is a sum, nothing is said.

    What to do: `losses.mean()`.
    """

    name, family, kind, severity = "preferences_summed", "rl", "exploding", "warning"
    proves = "training"
    needs = ("loss", "=model/loss_adds", "config")
    about = "The squares of a batch's preferences are added up."
    thresholds: ClassVar = {"least": (4.0, "pairs of a batch; ours"), "near": (1e-4, "of their number; ours")}
    causes = ("loss summed: over the pairs of a batch",)
    remedies = ("take the mean over the pairs: `losses.mean()`",)

    def reset(self) -> None:
        self._done = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        loss, adds = history.role("loss"), history.channel("model/loss_adds")
        told = None if self._done or loss is None else told_behind(loss, _LATER, adds)
        if loss is None or told is None:
            return
        self._done, first = True, loss.rows(0, 1)
        place = int(first.step[0]), int(first.segment[0])
        beta = numeric_setting(history, *BETA)
        if (
            not beta > 0
            or not abs(margin_at(history, *place)) <= _ROUNDING
            or summed_by_choice(history, over_rows=True)
        ):
            return
        each = 1 / (4 * beta * beta)
        number = _size_near(history, float(first.value[0]) / each, self.at["least"], self.at["near"])
        if number and known(adds, place[0] + 1, told[1], place[1]) == 1:
            yield self.finding(
                place[0], f"At a margin of 0 the loss is {first.value[0]:.5g}, {number:.0f} times (1 / 2β)², and a "
                f"batch has {number:.0f} pairs: it is summed.", found=told[0], segment=place[1],
                confidence=0.95, evidence={"times": number, "standing": True},
            )  # fmt: skip


class JudgedSummed(Rule):
    """The losses of a batch's judged answers are added up.

    Before the first step the policy is its reference: rewards of good and of bad answers are 0, and each answer's loss
    1 − σ(0), which is a half. The loss of the first row is half as large as the configuration's number of examples in a
    batch, four at least, to a ten thousandth, and the graph of the loss has a sum. Where the configuration says that
    the loss is a sum, nothing is said.

    What to do: `losses.mean()`.
    """

    name, family, kind, severity = "judged_summed", "rl", "exploding", "warning"
    proves = "training"
    needs = ("chosen_reward", "loss", "=model/loss_adds", "config")
    about = "The losses of a batch's judged answers are added up."
    thresholds: ClassVar = {"least": (4.0, "examples of a batch; ours"), "near": (1e-4, "of the batch's size; ours")}
    causes = ("loss summed: over the answers of a batch",)
    remedies = ("take the mean over the answers: `losses.mean()`",)

    def reset(self) -> None:
        self._done = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        (chosen, rejected), loss = rewards_of(history), history.role("loss")
        adds = history.channel("model/loss_adds")
        if self._done or chosen is None or rejected is None or loss is None:
            return
        told = told_behind(loss, _LATER, adds)
        if told is None:
            return
        self._done = True
        if any(one.start or not one.end for one in (loss, chosen, rejected)):  # the first rows are gone
            return
        rows = [one.rows(0, 1) for one in (loss, chosen, rejected)]
        places = {(int(one.step[0]), int(one.segment[0])) for one in rows}
        size, value = numeric_setting(history, *BATCH), float(rows[0].value[0])
        zero = all(abs(one.value[0]) <= _ROUNDING for one in rows[1:])
        seen = known(adds, int(rows[0].step[0]) + 1, told[1], int(rows[0].segment[0]))
        summed = size >= self.at["least"] and abs(2 * value / size - 1) <= self.at["near"]
        if len(places) == 1 and zero and summed and seen == 1 and not summed_by_choice(history, over_rows=True):
            yield self.finding(
                int(rows[0].step[0]), f"At rewards of 0 the loss is {value:.5g}, {size:.0f} times a half, and a batch "
                f"has {size:.0f} examples: it is summed.", found=told[0],
                segment=int(rows[0].segment[0]), confidence=0.95, evidence={"times": size, "standing": True},
            )  # fmt: skip


RULES = (PreferenceSummed, PreferencesSummed, JudgedSummed)
