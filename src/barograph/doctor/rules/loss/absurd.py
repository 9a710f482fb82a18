"""Losses that are finite, and so large that nothing is learnt from them.

In:   the series of the loss, and of its perplexity.
Out:  findings of `AbsurdLoss`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known
from barograph.doctor.kernel.local import median
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_THREE, _FIRST, _MILLION = 3, 16, 1e6  # rows; of a launch; times the rows ahead of a leap, and at least
_PERPLEXITY = expression(r"(?i)(?:.*[/_. ])?(?:ppl|perplexity)$")


class AbsurdLoss(WatchRule):
    """The loss is finite, and too large to be one.

    Eight rows in a row of 1e15 or more, of either sign, are of weights or targets that have blown up: critical. Three
    are enough of 1e20. Among the first sixteen rows two are enough that are each a thousand times the row before, the
    second a million times the median of the rows ahead of both, which are two at least, and above a million. A loss
    a token whose perplexity is logged beside it, as its exponential, is above 13 in eight rows in a row, and does not
    fall from the first four to the last four of them by half a percent: a guess among any vocabulary, of 440,000
    tokens, has less. The model is sure of what is wrong, and gets no better.

    What to do: look at the first steps: the learning rate, the initialisation, the targets.
    """

    name, family, kind, severity = "loss_out_of_range", "loss", "divergence", "critical"
    needs = ("loss",)
    least = 3
    about = "The loss is too large to be one."
    thresholds: ClassVar = {
        "huge": (1e15, "ours"),
        "nats": (13.0, "the logarithm of 440,000; ours"),
        "rows": (8.0, "in a row; ours"),
        "beyond": (1e20, "which no squares of targets come to: three rows are enough; ours"),
        "leap": (1e3, "times the row before, twice in a row, and a million times the rows ahead of them; ours"),
        "fell": (0.005, "from the median of their first half to that of the last; ours"),
    }
    causes = ("learning rate too high: the training diverged", "targets not scaled: or a value that feeds itself")
    remedies = (
        "lower the learning rate tenfold and clip gradients",
        "look at the targets' size, and at the first rows",
    )

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("loss")

    def begin(self) -> None:
        self._huge: list[int] = []
        self._beyond: list[int] = []
        self._high: list[tuple[int, float]] = []
        self._seen: list[tuple[int, float]] = []  # the first rows

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows = self._cursor.new(self.channel(history))
        if rows is None:
            return
        low = min(self.at["huge"], self.at["beyond"], self.at["nats"])
        for at in _worth_a_look(rows.value, rows.segment, low).tolist():
            place = (int(rows.step[at]), int(rows.time[at]), int(rows.segment[at]))
            yield from self._own(history, float(rows.value[at]), place)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        huge = math.isfinite(value) and abs(value) >= self.at["huge"]
        self._huge = [*self._huge, place[0]] if huge else []
        if len(self._huge) == self.at["rows"] and self.first(place[2], "huge"):
            yield self.finding(
                self._huge[0], f"The loss is {value:.3g}: above {self.at['huge']:.0g} in "
                f"{len(self._huge)} rows in a row.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"loss": value}, key="huge",
            )  # fmt: skip
        yield from self._few(value, place)
        if not self.at["nats"] < value < math.inf or not _is_of_tokens(history, value, place):
            self._high = []
            return
        self._high = [*self._high, (place[0], value)][-int(self.at["rows"]) :]
        half = len(self._high) // 2
        values = [one for _, one in self._high]
        lasts = len(values) >= self.at["rows"] and median(values[half:]) > (1 - self.at["fell"]) * median(values[:half])
        if lasts and self.first(place[2], "guess"):
            yield self.finding(
                self._high[0][0], f"The loss is {value:.4g} nats a token, as its perplexity says: a guess among any "
                f"vocabulary has less than {self.at['nats']:.0f}.", found=place[0], segment=place[2], confidence=0.9,
                severity="warning", kind="not_learning", evidence={"loss": value}, key="guess",
                causes=["learning rate too high: the model is sure of what is wrong", "bad initialisation",
                        "labels shuffled: inputs and targets have nothing to do with each other"],
            )  # fmt: skip

    def _few(self, value: float, place: Place) -> Iterator[Finding]:
        """What three rows say, where they are beyond anything, and the first ones of a launch, where they leap."""
        beyond = math.isfinite(value) and abs(value) >= self.at["beyond"]
        self._beyond = [*self._beyond, place[0]] if beyond else []
        if len(self._beyond) == _THREE and self.first(place[2], "huge"):
            yield self.finding(
                self._beyond[0], f"The loss is {value:.3g}: above {self.at['beyond']:.0g} in {_THREE} rows in a row.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"loss": value}, key="huge",
            )  # fmt: skip
        if len(self._seen) >= _FIRST:
            return
        self._seen.append((place[0], value))
        before = [one for _, one in self._seen[:-2]]
        if len(before) < 2 or not all(0 < one < math.inf for _, one in self._seen):
            return
        (step, first), (_, last), leap = *self._seen[-2:], self.at["leap"]
        grown = first >= leap * before[-1] and last >= leap * first
        if grown and last >= _MILLION * max(1.0, median(before)) and self.first(place[2], "huge"):
            yield self.finding(
                step, f"The loss went from {before[-1]:.4g} to {first:.4g} and {last:.4g} in two rows.",
                found=place[0], segment=place[2], confidence=0.9, evidence={"loss": value}, key="huge",
            )  # fmt: skip


def _worth_a_look(values: np.ndarray, segments: np.ndarray, low: float) -> np.ndarray:
    """Places of rows that may say something: the first ones here and of each launch, those above `low` or not finite,
    and the ones behind these, with which ends what had begun.

    values, segments: of the rows [rows]. Returns indices in order."""
    wanted = ~(np.abs(values) <= low)
    wanted[1:] |= wanted[:-1].copy()
    begins = np.flatnonzero(np.diff(segments, prepend=segments[:1] - 1))
    for begin in begins.tolist():
        wanted[begin : begin + _FIRST] = True
    return np.flatnonzero(wanted)


def _is_of_tokens(history: RunHistory, value: float, place: Place) -> bool:
    """Whether a perplexity that is logged at the same time is the loss's exponential."""
    names = (name for name in sorted(history.channels) if _PERPLEXITY.fullmatch(name))
    each = (known(history.channel(name), *place) for name in names)
    return any(0 < one < math.inf and abs(math.log(one) - value) < 0.01 * value for one in each)


RULES = (AbsurdLoss,)
