"""Two players whose losses are logged: do they oppose each other?

In:   the losses of a discriminator and a generator.
Out:  findings of `PlayersAgree`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import known, named, newest
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_BEGUN, _EVERY, _WINDOW = 8, 32, 128  # rows
_PLAYER = r"(?i)(?!.*(?:val|eval|test))(?:.*[/_. ])?(?:{0}[/_. ]?(?:loss|err)|(?:loss|err)[/_. ]?{0})(?:[/_. ]?total)?"
_DISCRIMINATOR = re.compile(_PLAYER.format(r"(?:d|dis|disc|discrim|discriminator)"))
_GENERATOR = re.compile(_PLAYER.format(r"(?:g|gen|generator)"))
_REAL, _FAKE = (
    re.compile(rf"(?i)(?:.*[/_. ])?(?:d|dis|disc|discriminator)[/_. ]?(?:\(?x\)?|{word})(?:[/_. ](?:prob|mean|score))?")
    for word in ("real", "fake")
)


class PlayersAgree(WatchRule):
    """The losses of a discriminator and of a generator vanish together.

    In its first eight rows each was above 0.3, and over two windows of 128 rows both medians are between 0 and a
    twentieth of that. Where a discriminator tells real from generated examples, the loss of a generator that opposes it
    is large; where it can't, its own is. That both are small says that they are trained towards the same answer: labels
    of one of them are swapped. A generator whose loss is negative (the logarithm of 1 − D, a critic's score) gives no
    finding.

    What to do: real examples are 1 and generated ones 0 for the discriminator; generated ones are 1 for the generator.
    """

    name, family, kind, severity = "players_agree", "loss", "config", "critical"
    series = ""
    needs = ("loss",)
    least = 256
    about = "The losses of a discriminator and of a generator vanish together."
    thresholds: ClassVar = {
        "rows": (256.0, "ours"),
        "began": (0.3, "of each loss, at least, in the first eight rows; ln 2 and 1 are usual; ours"),
        "left": (0.05, "of where it began; ours"),
    }
    causes = ("labels swapped: discriminator and generator are trained towards the same answer",)
    remedies = (
        "discriminator: real examples are 1, generated ones 0; generator: generated ones are 1",
        "print the discriminator's mean answer for real and for generated examples",
    )

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        loss = named(history, _DISCRIMINATOR)
        if loss is not None and named(history, _GENERATOR) is not None:
            self.series = loss.name  # type: ignore[misc]
            yield from super().examine(history)

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
        if self._count < self.at["rows"] or not min(self._first) >= self.at["began"]:
            return
        for one, first in zip(losses, self._first, strict=True):
            assert one is not None
            values = newest(one, *before, 2 * _WINDOW - 1)
            halves = [values[:_WINDOW], values[_WINDOW:]]
            if not numpy.isfinite(values).all() or values.min() < 0:
                return
            if not all(float(numpy.median(half)) <= self.at["left"] * first for half in halves):
                return
        if self.first(place[2]):
            now = [_level(one, before, _WINDOW) for one in losses]
            yield self.finding(
                0, f"The discriminator's loss fell from {self._first[0]:.3g} to {now[0]:.3g}, and the generator's from "
                f"{self._first[1]:.3g} to {now[1]:.3g}: they don't oppose each other{self._answers(history, before)}.",
                found=place[0], segment=place[2], confidence=0.95,
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


RULES = (PlayersAgree,)
