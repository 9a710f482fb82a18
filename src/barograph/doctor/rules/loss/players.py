"""Two players whose losses are logged: do they oppose each other, or has one won?

In:   the losses of a discriminator and a generator.
Out:  findings of `PlayersAgree`, `PlayerWins`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known, named, newest
from barograph.doctor.kernel.curve import between, rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_BEGUN, _EVERY, _WINDOW = 8, 32, 40  # rows
_FEW = 12  # rows; of fewer each must tell
_PLAYER = (
    r"(?i)(?!.*(?:val|eval|test))(?:.*[/_. ])?(?:{0}(?:[/_. ](?:gan|adv|real|fake))?[/_. ]?(?:loss|err)|"
    r"(?:loss|err)[/_. ]?{0})(?:[/_. ]?total)?"
)
_DISCRIMINATOR = expression(_PLAYER.format(r"(?:d|dis|disc|discrim|discriminator)"))
_GENERATOR = expression(_PLAYER.format(r"(?:g|gen|generator)"))
_REAL, _FAKE = (
    re.compile(rf"(?i)(?:.*[/_. ])?(?:d|dis|disc|discriminator)[/_. ]?(?:\(?x\)?|{word})(?:[/_. ](?:prob|mean|score))?")
    for word in ("real", "fake")
)


class PlayersAgree(WatchRule):
    """The losses of a discriminator and of a generator vanish together.

    In its first eight rows each was above 0.3, and over two windows of 40 rows both medians are between 0 and a
    twentieth of that. Where a discriminator tells real from generated examples, the loss of a generator that opposes it
    is large; where it can't, its own is. That both are small says that they are trained towards the same answer: labels
    of one of them are swapped. So does a generator's loss that is −1 or less in both windows, and falls, while that of
    the discriminator vanishes: its sign is turned round. The logarithm of 1 − D is nearly 0 then, and a score that a
    generator is to raise gives it a loss above 0. A critic's loss, which is below 0 itself, gives no finding.

    What to do: real examples are 1 and generated ones 0 for the discriminator; generated ones are 1 for the generator.
    """

    name, family, kind, severity = "players_agree", "loss", "config", "critical"
    needs = ("loss",)
    least = 96
    about = "The losses of a discriminator and of a generator vanish together."
    thresholds: ClassVar = {
        "rows": (96.0, "ours"),
        "began": (0.3, "of each loss, at least, in the first eight rows; ln 2 and 1 are usual; ours"),
        "left": (0.05, "of where it began; ours"),
        "turned": (-1.0, "the loss of a generator whose sign is turned round; ours"),
    }
    causes = ("labels swapped: discriminator and generator are trained towards the same answer",)
    remedies = (
        "discriminator: real examples are 1, generated ones 0; generator: generated ones are 1",
        "print the discriminator's mean answer for real and for generated examples",
    )

    def channel(self, history: RunHistory) -> Channel | None:
        loss = named(history, _DISCRIMINATOR)
        return loss if named(history, _GENERATOR) is not None else None

    def begin(self) -> None:
        self._count = 0
        self._first = (math.nan, math.nan)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._count += 1
        if self._count % _EVERY and self._count != _BEGUN + 1:
            return
        before = (place[0] - 1, *place[1:])  # of rows whose step is over
        losses = named(history, _DISCRIMINATOR), named(history, _GENERATOR)
        if losses[0] is None or losses[1] is None:
            return
        if self._count == _BEGUN + 1:
            self._first = _largest(losses[0], before), _largest(losses[1], before)
        if self._count < self.at["rows"] or not min(map(abs, self._first)) >= self.at["began"]:
            return
        turned = False
        for one, first in zip(losses, self._first, strict=True):
            assert one is not None
            values = newest(one, *before, 2 * _WINDOW - 1)
            early, late = (float(numpy.median(half)) for half in (values[:_WINDOW], values[_WINDOW:]))
            if not numpy.isfinite(values).all():
                return
            turned = one is losses[1] and values.max() < 0 and late <= early <= self.at["turned"]
            gone = values.min() >= 0 and max(early, late) <= self.at["left"] * first
            if not (gone or turned):
                return
        if self.first(place[2]):
            now = [_level(one, before, _WINDOW) for one in losses]
            yield self.finding(
                0, f"The discriminator's loss fell from {self._first[0]:.3g} to {now[0]:.3g}, and the generator's from "
                f"{self._first[1]:.3g} to {now[1]:.3g}: they don't oppose each other{self._answers(history, before)}.",
                found=place[0], segment=place[2], confidence=0.95,
                causes=["sign reversed: of the generator's loss, which is best where the discriminator's is"] if turned
                else list(self.causes),
                evidence={"generator": rounded(now[1]), "standing": True},
            )  # fmt: skip

    def _answers(self, history: RunHistory, place: Place) -> str:
        """What the discriminator answers, where that is logged."""
        real, fake = (known(named(history, words), *place) for words in (_REAL, _FAKE))
        if not (math.isfinite(real) and math.isfinite(fake)):
            return ""
        return f"; the discriminator answers {real:.2g} for real examples and {fake:.2g} for generated ones"


def _largest(channel: Channel, place: Place) -> float:
    return float(newest(channel, *place, _BEGUN).max())


def _level(channel: Channel | None, place: Place, count: int) -> float:
    """The median of the newest rows; NaN where there are fewer, or one is not finite."""
    return float(numpy.median(newest(channel, *place, count))) if channel is not None else math.nan


class PlayerWins(Rule):
    """Of a discriminator and a generator one has won, and the other learns nothing any more.

    In 32 rows (in all of a run of 12 to 32) the median loss of one is below 0.01, and that of the other above 4: an
    answer that is right in all but 1%, where the other is right in less than 2% (e⁻⁴). In a run of 8 to 11 rows each of
    them must say so. A critic's scores are not logarithms: where a loss is below zero nothing is said.

    What to do: a lower learning rate for the one that wins, noise on its inputs, smoothed labels, a gradient penalty;
    look at what is generated.
    """

    name, family, kind, severity = "player_wins", "loss", "zero", "warning"
    needs = ("loss",)
    least = 8
    about = "Of a discriminator and a generator one has won."
    thresholds: ClassVar = {
        "won": (0.01, "median loss of the one; ours"),
        "lost": (4.0, "median loss of the other, nats; ours"),
    }

    def reset(self) -> None:
        self._row = 0

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        first, second = named(history, _DISCRIMINATOR), named(history, _GENERATOR)
        if first is None or second is None:
            return
        over = bool(history.facts.get("finished"))
        while self._row + _EVERY < first.end:  # the row behind tells that the other's loss of that step has come
            self._row += _EVERY
            yield from self._judge(history, first, second, self._row - _EVERY, self._row, self._row)
        if over and not self._row and first.end >= self.least:
            yield from self._judge(history, first, second, 0, first.end, first.end - 1)

    def _judge(
        self, history: RunHistory, first: Channel, second: Channel, low: int, high: int, by: int
    ) -> Iterator[Finding]:
        rows = first.rows(low, high)
        if rows.first != low or rows.cuts:
            return
        history.as_of(first.rows(by, by + 1).time[0])
        segment = int(rows.segment[0])
        other = between(second, int(rows.step[0]), int(rows.step[-1]) + 1, segment)
        history.as_of(None)
        if len(other) < len(rows) // 2 or not rows.finite or rows.lowest < 0 or other.min() < 0:
            return
        medians = {"discriminator": float(numpy.median(rows.value)), "generator": float(numpy.median(other))}
        winner, loser = sorted(medians, key=lambda name: medians[name])
        if medians[winner] > self.at["won"] or medians[loser] < self.at["lost"]:
            return
        each = {"discriminator": rows.value, "generator": other}
        wavers = each[winner].max() > self.at["won"] or each[loser].min() < self.at["lost"]
        if (len(rows) < _FEW and (wavers or len(other) < self.least)) or not self.first(segment):
            return
        yield self.finding(
            int(rows.step[0]), f"The {winner} has won: its loss is {medians[winner]:.3g}, the {loser}'s "
            f"{medians[loser]:.3g}, in the median of steps {int(rows.step[0])} to {int(rows.step[-1])}.",
            found=int(rows.step[-1]), segment=segment, confidence=0.8,
            evidence={"series": first.name} | {name: rounded(value) for name, value in medians.items()},
            causes=[f"one player has won: the {loser} gets no useful gradient from it",
                    f"learning rate too high: the {winner}'s, against the {loser}'s"],
            remedies=[f"Lower the {winner}'s learning rate, or give the {loser} more steps.",
                      "Smooth the labels, add noise to the discriminator's inputs, or a gradient penalty.",
                      "Look at what is generated: is it always the same?"],
        )  # fmt: skip


RULES = (PlayersAgree, PlayerWins)
