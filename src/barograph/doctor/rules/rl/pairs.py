"""Pairs of a preference that are not the two answers of a prompt, or one answer twice.

In:   figures of the watch: which rows of a batch are raised and which are lowered, beside their tokens; what the graph
      of the loss says.
Out:  findings of `PairsCrossed`, `AnswersTwice`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import ALIKE, Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


def _is_of_pairs(history: RunHistory, place: Place) -> bool:
    """Whether the graph of the loss compares two answers."""
    return any(watched(history, name, place) >= 0 for name in ("preference_averaged", "preference_compared"))


class PairsCrossed(WatchRule):
    """Both answers of each prompt are raised together, or lowered together.

    The loss compares answers in pairs, as its graph shows, and raises one half of a batch's rows and lowers the other.
    Each row begins with the same prompt as one other row, up to its first target. In three looks in a row the two rows
    of each prompt have the same direction (`model/judged_together`): answers to different prompts are compared, as
    where chosen and rejected rows are put one behind the other and taken apart by turns.

    What to do: take rows apart as they were put together: `logps.chunk(2)` of `torch.cat([chosen, rejected])`.
    """

    name, family, kind, severity = "pairs_crossed", "rl", "rl", "critical"
    proves = "training"
    series = "model/judged_together"
    needs = ("=model/judged_together", "=model/preference_averaged|=model/preference_compared")
    least = 3
    about = "Both answers of each prompt are raised together, or lowered together."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    causes = ("pairs misaligned: answers to different prompts are compared with each other",)
    remedies = ("take rows apart as they were put together: `logps.chunk(2)` of `torch.cat([chosen, rejected])`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value == 1 and _is_of_pairs(history, place), place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], "Of each prompt in a batch both answers are raised, or both are lowered: the loss "
                "compares answers to different prompts.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"standing": True},
            )  # fmt: skip


class AnswersTwice(WatchRule):
    """Of many pairs of a preference both answers are the same.

    The loss compares answers in pairs, as its graph shows: it raises a half of a batch's rows, or every other one, and
    lowers the others. In five looks in a row some pairs have two rows of the same tokens, a tenth of them or more in
    the mean (`model/judged_same`). Nothing is learnt from these: they were cut where both sides are still alike, as
    behind a long prompt, or the same answer was drawn twice.

    What to do: shorten prompts from their beginning, keep answers whole, and leave out pairs that are the same.
    """

    name, family, kind, severity = "answers_twice", "rl", "rl", "warning"
    proves = "training"
    series = "model/judged_same"
    needs = ("=model/judged_same", "=model/preference_averaged|=model/preference_compared")
    least = 5
    about = "Of many pairs of a preference both answers are the same."
    thresholds: ClassVar = {"share": (0.1, "of the pairs, in the mean; ours"), "looks": (5.0, "in a row; ours")}
    causes = (ALIKE,)
    remedies = ("shorten prompts from their beginning and keep answers whole", "leave out pairs that are the same")

    def begin(self) -> None:
        self._shares: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        looks = int(self.at["looks"])
        self._shares = [*self._shares, value][-looks:] if value > 0 and _is_of_pairs(history, place) else []
        mean = sum(self._shares) / looks
        if len(self._shares) == looks and mean >= self.at["share"] and self.first(place[2]):
            yield self.finding(
                0 if place[0] <= _FIRST else place[0], f"{100 * mean:.3g}% of the pairs are the same answer twice.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"share": rounded(mean)},
            )  # fmt: skip


_FIRST = 100  # steps, in which the first looks lie

RULES = (PairsCrossed, AnswersTwice)
"""All rules of this file."""
