"""Margins of a preference that are of another size in evaluations, or begin elsewhere.

In:   what is logged of both sides, by the same words.
Out:  findings of `MarginsScaled`, `MarginsOffset`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar

from barograph.core.roles import RECORDED
from barograph.doctor.kernel.cursor import known, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.rl.preference import MARGIN

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_FIGURES = ("preference_averaged", "preference_compared", "judged_shift")  # one of these is of preferences alone
_ROWS = 16
_NOW = 3  # rows ahead of the first evaluation, by then a margin may have grown


class MarginsScaled(WatchRule):
    """Evaluations of a preference have margins of another size than the training, and as many pairs are in order.

    A margin is logged for both sides, by the same words (`pref/margin` and `check/margin`), and so is a share of seven
    tenths or more, as that of the pairs whose chosen answer is ahead, which is the same in both, to 0.06. In three
    evaluations in a row the training's margin is four times the evaluation's or more, or a quarter of it or less, each
    time as many times to a half: log probabilities are added up over the tokens of answers on one side, and averaged on
    the other. Pairs that are known by heart have larger margins, and more of them are in order.

    What to do: one function for the log probabilities of both sides.
    """

    name, family, kind, severity = "margins_scaled", "rl", "eval", "warning"
    proves = "evaluation"
    needs = ("|".join(f"=model/{name}" for name in _FIGURES), "loss", "eval_loss")
    least = 3
    about = "Margins of a preference are of another size in evaluations, though as many pairs are in order."
    thresholds: ClassVar = {
        "times": (4.0, "the other side's margin; ours"),
        "same": (1.5, "times, that this number may vary; ours"),
        "share": (0.7, "of pairs in order, at least; ours"),
        "near": (0.06, "of pairs, that both sides may differ by; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("wrong reduction: log probabilities of answers are added up on one side, and averaged on the other",)
    remedies = ("compute the log probabilities of answers with one function in the training and in evaluations",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("eval_loss")

    def begin(self) -> None:
        self._times: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        before = (place[0] - 1, *place[1:])  # of rows whose step is over
        pairs = _of_both(history) if any(watched(history, name, place) >= 0 for name in _FIGURES) else []
        both: dict[bool, list[tuple[float, float]]] = {True: [], False: []}  # by whether it is a margin
        for word, ours, theirs in pairs:
            numbers = usual(ours, *before, _ROWS), known(theirs, *place)
            both[MARGIN.fullmatch(word) is not None].append(numbers)
        sizes, least, near = both[True], self.at["share"], self.at["near"]
        alike = any(least <= min(one) and max(one) <= 1 and abs(one[0] - one[1]) <= near for one in both[False])
        mine, other = next((one for one in sizes if one[0] > 0 and one[1] > 0), (0.0, 1.0))
        times = mine / other
        far = alike and times > 0 and max(times, 1 / times) >= self.at["times"]
        self._times = [*self._times, times] if far else []
        steady = far and max(self._times) <= self.at["same"] * min(self._times)
        if self.lasts(steady, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"The margin is {mine:.3g} in the training and {other:.3g} in the evaluation, "
                f"{max(times, 1 / times):.2g} times apart, where as many pairs are in order.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"training": rounded(mine), "evaluation": rounded(other)},
            )  # fmt: skip


def _of_both(history: RunHistory) -> list[tuple[str, Channel, Channel]]:
    """Words that both sides log beside their losses, as `margin` of `pref/margin` and `check/margin` where `pref/loss`
    and `check/loss` are the losses, with the series of both."""
    loss, evaluation = history.role("loss"), history.role("eval_loss")
    if loss is None or evaluation is None:
        return []
    ours, theirs, is_head = _apart(loss.name, evaluation.name)
    found = []
    for name in sorted(history.channels):
        word = name[len(theirs) :] if is_head else name[: len(name) - len(theirs)]
        is_theirs = name.startswith(theirs) if is_head else name.endswith(theirs)
        own = ours + word if is_head else word + ours
        mine = history.channel(own)
        if is_theirs and not name.startswith(RECORDED) and name != own and mine is not None:
            found.append((word.strip("/._- "), mine, history.channels[name]))
    return [one for one in found if one[1] is not loss]


def _apart(ours: str, theirs: str) -> tuple[str, str, bool]:
    """What is only in each of two names, and whether it comes first: `pref/` and `check/`, or `` and `_check`."""
    rest, is_head = [ours, theirs], True
    for is_head in (True, False):
        pairs = zip(*(reversed(one) if is_head else one for one in (ours, theirs)), strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        while common and not all(_parts_at(one, len(one) - common if is_head else common) for one in (ours, theirs)):
            common -= 1  # up to a whole word
        rest = [one[: len(one) - common] if is_head else one[common:] for one in (ours, theirs)]
        if common > 1:
            break
    return rest[0], rest[1], is_head


def _parts_at(name: str, at: int) -> bool:
    """Whether a word ends or begins there."""
    return not 0 < at < len(name) or not (name[at - 1].isalnum() and name[at].isalnum())


class MarginsOffset(WatchRule):
    """The margin of evaluations lies beside that of the training by a fixed number, from the first of them on.

    A margin is logged for both sides, by the same words. In the first evaluation it is five times the training's in
    size, or more, also that of the last three rows, as it may have grown by then, and a tenth at least, and in three in
    a row the two are as far apart, to a half: what the reference
    says of both answers is subtracted on one side alone, or another reference's is. With the training it grows as it
    should, so a curve alone doesn't show it. Dropout moves the margins of the training alone: with it nothing is said.

    What to do: one function for the margins of both sides, which subtracts the reference's log probabilities.
    """

    name, family, kind, severity = "margins_offset", "rl", "eval", "warning"
    proves = "evaluation"
    needs = MarginsScaled.needs
    least = 3
    about = "The margin of evaluations lies beside that of the training by a fixed number."
    thresholds: ClassVar = {
        "times": (5.0, "the training's margin, in size, the first evaluation's; ours"),
        "margin": (0.1, "of the first evaluation, in size, and what lies between both; ours"),
        "same": (0.5, "of what lies between both, that it may vary by; ours"),
        "evaluations": (3.0, "in a row, from the first on; ours"),
    }
    causes = (
        "reference missing: in evaluations margins are the policy's alone, or another reference's are subtracted",
    )
    remedies = ("compute margins with one function in the training and in evaluations, with the reference subtracted",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("eval_loss")

    def begin(self) -> None:
        self._apart: list[float] | None = []  # of evaluations from the first on; None where it is not so

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        told = any(watched(history, name, place) >= 0 for name in _FIGURES)
        if self._apart is None or not told or watched(history, "dropout", place) > 0:
            return
        before = (place[0] - 1, *place[1:])
        margins = [one for one in _of_both(history) if MARGIN.fullmatch(one[0])]
        sizes = [(usual(ours, *before, _ROWS), known(theirs, *place)) for _, ours, theirs in margins]
        mine, other = next((one for one in sizes if math.isfinite(sum(one))), (math.nan, math.nan))
        now = max((abs(usual(ours, *before, _NOW)) for _, ours, _ in margins), default=0.0)
        first = self._apart or abs(other) >= max(self.at["times"] * max(abs(mine), now), self.at["margin"])
        apart = [*self._apart, other - mine]
        least, most = min(apart), max(apart)
        steady = abs(least + most) / 2 >= self.at["margin"] and most - least <= self.at["same"] * abs(least + most) / 2
        self._apart = apart if first and steady else None
        if self.lasts(self._apart is not None, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"The margin is {mine:.3g} in the training and {other:.3g} in the evaluation, and both"
                f" have been about {abs(other - mine):.2g} apart since the first evaluation.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"training": rounded(mine), "evaluation": rounded(other)},
            )  # fmt: skip


RULES = (MarginsScaled, MarginsOffset)
