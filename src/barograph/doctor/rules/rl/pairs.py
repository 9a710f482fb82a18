"""Pairs of a preference that are not the two answers of a prompt, or one answer twice, or that lack their first tokens.

In:   figures of the watch: which rows of a batch are raised and which are lowered, beside their tokens; what the graph
      of the loss says.
Out:  findings of `PairsCrossed`, `AnswersTwice`, `AnswersEnded`, `AnswersByOther`, `AnswersBeginLate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import ALIKE, Place, Source, WatchRule, watched

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
    where chosen and rejected rows are put one behind the other and taken apart by turns. Or in five looks in a row nine
    of ten pairs have two different prompts (`model/judged_apart`), as where one of the columns is a row late: a
    warning.

    What to do: take rows apart as they were put together: `logps.chunk(2)` of `torch.cat([chosen, rejected])`.
    """

    name, family, kind, severity = "pairs_crossed", "rl", "rl", "critical"
    proves = "training"
    series = "model/judged_together"
    needs = ("=model/judged_together|=model/judged_apart", "=model/preference_averaged|=model/preference_compared")
    least = 3
    about = "A preference compares answers to different prompts."
    thresholds: ClassVar = {
        "looks": (3.0, "in a row; ours"),
        "share": (0.9, "of the pairs, that have two prompts; ours"),
        "apart": (5.0, "looks in a row at such; ours"),
    }
    causes = ("pairs misaligned: answers to different prompts are compared with each other",)
    remedies = ("take rows apart as they were put together: `logps.chunk(2)` of `torch.cat([chosen, rejected])`",)

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/judged_apart"), self._of_two_prompts)]

    def reset(self) -> None:
        super().reset()
        self._apart: list[tuple[int, int]] = []  # looks in a row at pairs of two prompts: step, launch

    def _of_two_prompts(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        here = value >= self.at["share"] and _is_of_pairs(history, place)
        kept = self._apart if self._apart and self._apart[-1][1] == place[2] else []
        self._apart = [*kept, (place[0], place[2])] if here else []
        if len(self._apart) >= self.at["apart"] and self.first(place[2], "apart"):
            yield self.finding(
                self._apart[0][0], f"{100 * value:.3g}% of the pairs have two prompts: the loss compares answers to "
                "different ones.", found=place[0], segment=place[2], confidence=0.9, key="apart", severity="warning",
                evidence={"share": rounded(value), "standing": True},
                remedies=["look both answers up by their prompt's own key, and filter and shuffle them together"],
            )  # fmt: skip

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
    lowers the others. In five looks in a row some pairs have two rows of the same tokens, a quarter of them or more in
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
    thresholds: ClassVar = {
        "share": (0.25, "of the pairs, in the mean; of short answers some are alike by chance; ours"),
        "looks": (5.0, "in a row; ours"),
    }
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


class AnswersEnded(WatchRule):
    """All answers of one side of a preference end with a token that none of the other side has.

    The loss compares answers in pairs, as its graph shows. In five looks in a row, at four pairs or more each, every
    raised answer ends with one and the same token, which stands nowhere else in answers, and the lowered ones end with
    different tokens (`model/judged_ended`); or the other way round. The end of a text was added on one side alone: the
    policy is taught that whatever ends is better, or worse, and little of what the answers say.

    What to do: make both answers by one function that adds the end, and shorten both to the same length.
    """

    name, family, kind, severity = "answers_ended", "rl", "rl", "warning"
    proves = "training"
    series = "model/judged_ended"
    needs = ("=model/judged_ended", "=model/preference_averaged|=model/preference_compared")
    least = 5
    about = "All answers of one side of a preference end with a token that the other side lacks."
    thresholds: ClassVar = {"looks": (5.0, "in a row; ours")}
    causes = ("end on one side alone: the end token is added to the chosen answers, or to the rejected ones, only",)
    remedies = ("make both answers by one function that adds the end, and shorten both to the same length",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(abs(value) == 1 and _is_of_pairs(history, place), place, self.at["looks"]):
            these, others = ("chosen", "rejected") if value > 0 else ("rejected", "chosen")
            yield self.finding(
                0 if place[0] <= _FIRST else self._row[0][0], f"Each of the {these} answers ends with one token, which "
                f"none of the {others} ones has.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"standing": True},
            )  # fmt: skip


class AnswersByOther(WatchRule):
    """The targets of one answer of a preference's pairs stand where those of the other one should.

    The loss compares answers in pairs, as its graph shows. In five looks in a row, at four pairs or more each, the
    targets of both answers of every pair stand at the same places, though answers differ in length. They are right for
    one of the two: what stands behind them is one token, padding. Of the other answers a fifth or more have padding
    among their targets, or words behind them that are none (`model/judged_by_other`). The mask of one answer is used
    for both: likelihoods of the other one have padding in them, or lack their ends.

    What to do: make the mask of each answer from its own tokens.
    """

    name, family, kind, severity = "answers_by_other", "rl", "data", "warning"
    proves = "training"
    series = "model/judged_by_other"
    needs = ("=model/judged_by_other", "=model/preference_averaged|=model/preference_compared")
    least = 5
    about = "The targets of one answer of a preference's pairs stand where those of the other one should."
    thresholds: ClassVar = {"share": (0.2, "of a look's pairs; ours"), "looks": (5.0, "in a row; ours")}
    causes = (
        "mask of the other answer: targets of the rejected answers are chosen by the chosen ones, or the other way",
    )
    remedies = ("make the mask of each answer from its own tokens",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value >= self.at["share"] and _is_of_pairs(history, place), place, self.at["looks"]):
            yield self.finding(
                0 if place[0] <= _FIRST else self._row[0][0], "The targets of both answers of each pair stand at the "
                f"same places, and are right for one of the two: in {100 * value:.0f}% of the pairs the other one has "
                "padding among them, or words behind them.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"share": rounded(value), "standing": True},
            )  # fmt: skip


class AnswersBeginLate(WatchRule):
    """The first token of a preference's answers has no part in its loss.

    The loss compares answers in pairs, as its graph shows. All tokens before the first target are the prompt, and both
    answers of a pair have the same one. In eight looks in a row, at two pairs or more each, both answers of each pair
    have prompts of one length, and the same tokens in them but for the last one, which differs in one of twenty pairs
    or more, in the mean, and in five looks of the eight (`model/judged_late`). It is the first token of the answers,
    then, which some pairs have in common: the mask begins one token late, and that they differ there is not learnt.
    Where that token differs in nearly all pairs it may be a mark of the better and of the worse answer, which is meant.

    What to do: print one row's tokens beside its mask. Of log probabilities of `logits[:, :-1]`, that of the first
    token of an answer is at the place of the prompt's last one.
    """

    name, family, kind, severity = "answers_begin_late", "rl", "rl", "warning"
    proves = "training"
    series = "model/judged_late"
    needs = ("=model/judged_late", "=model/preference_averaged|=model/preference_compared")
    least = 8
    about = "The first token of a preference's answers has no part in its loss."
    thresholds: ClassVar = {
        "looks": (8.0, "in a row; ours"),
        "some": (5.0, "of these, with such pairs; ours"),
        "share": (0.05, "of the pairs, in the mean; ours"),
        "most": (0.95, "the same, at most; ours"),
    }
    causes = ("answer mask begins one late: the first token of each answer has no part in the loss",)
    remedies = (
        "print one row's tokens beside its mask: the first token of the answer is the first one that counts",
        "where `logits[:, :-1]` are compared with `tokens[:, 1:]`, cut the mask as the tokens are: `mask[:, 1:]`",
    )

    def begin(self) -> None:
        self._shares: list[tuple[int, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        looks, here = int(self.at["looks"]), value >= 0 and _is_of_pairs(history, place)
        self._shares = [*self._shares, (place[0], value)][-looks:] if here else []
        shares = [share for _, share in self._shares]
        mean, some = sum(shares) / looks, sum(share > 0 for share in shares)
        told = len(shares) == looks and some >= self.at["some"] and self.at["share"] <= mean <= self.at["most"]
        if told and self.first(place[2]):
            yield self.finding(
                0 if place[0] <= _FIRST else self._shares[0][0], f"In {100 * mean:.0f}% of the pairs both answers have "
                "begun with different tokens in front of the first one that counts, and all before that is the same: "
                "the first token of the answers is left out.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"share": rounded(mean), "standing": True},
            )  # fmt: skip


_FIRST = 100  # steps, in which the first looks lie

RULES = (PairsCrossed, AnswersTwice, AnswersEnded, AnswersByOther, AnswersBeginLate)
"""All rules of this file."""
