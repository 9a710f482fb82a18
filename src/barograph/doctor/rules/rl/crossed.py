"""A preference's reference whose log probabilities of chosen and rejected answers are exchanged; a side of its pairs
from which nothing is learnt, or whose answers are averaged, where those of the other are added up; a preference that is
learnt without bound.

In:   implicit rewards and the policy's log probabilities, as trainers of preferences log them; rows with a gradient;
      what the graph of the loss says; the loss.
Out:  findings of `ReferenceCrossed`, `SideUntrained`, `AnswersUneven`, `PreferenceUnbounded`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import numeric_setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.rl.preference import BETA, CHOSEN, MARGIN, is_preference, rewards_of, trained_like
from barograph.doctor.rules.rl.reference import has_no_reference

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_LIKELY = tuple(name.replace("rewards", "logps").replace("reward", "logp") for name in CHOSEN)


_CHOSEN_LIKELY = expression(r"(?i)(?:.*[/._-])?(?:logps?|log_?probs?)[/._-]chosen")
_REJECTED_LIKELY = expression(r"(?i)(?:.*[/._-])?(?:logps?|log_?probs?)[/._-]rejected")


def _margins_of(history: RunHistory) -> tuple[Channel, ...]:
    """The training's margins and the policy's log probabilities of chosen and of rejected answers, whatever they are
    called, where no rewards of both are logged; nothing if one of them is missing."""
    kinds = MARGIN, _CHOSEN_LIKELY, _REJECTED_LIKELY
    found = [next(iter(trained_like(history, kind)), None) for kind in kinds]
    there = tuple(one for one in found if one is not None and one.end)
    return there if len(there) == len(kinds) and None in rewards_of(history) else ()


def _rejected(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.replace("chosen", "rejected") for name in names)


class ReferenceCrossed(Rule):
    """The reference's log probability of the rejected answer is subtracted from the policy's of the chosen one.

    Where the reference is the policy before its first step, its log probabilities are the policy's own in the first
    rows. The chosen answers' reward is then β times the policy's log probability of chosen answers minus that of
    rejected ones, and the rejected answers' reward is the negative of it; both should be 0. In each of the first three
    rows both are so within a tenth, with one β, and the rewards are a fiftieth or more in size.

    Where margins are logged, by any name, and no rewards, the configuration has to say β: in each of the first three
    rows the margin, which should be 0, is 2 β times what the policy's log probabilities of both answers are apart,
    within a tenth.

    What to do: subtract the reference's log probability of the same answer.
    """

    name, family, kind, severity = "reference_crossed", "rl", "config", "critical"
    proves = "training"
    needs = ("chosen_reward|loss",)
    about = "The reference's log probabilities of chosen and rejected answers are exchanged."
    sources = ()
    thresholds: ClassVar = {
        "rows": (3.0, "the first ones; ours"),
        "steps": (5.0, "from the beginning, at most; ours"),
        "near": (0.1, "of the reward; ours"),
        "reward": (0.02, "in size, at least; ours"),
    }
    causes = ("reference wrong: its log probabilities of chosen and rejected answers are exchanged",)
    remedies = ("subtract the reference's log probability of the same answer, in the order in which it returns them",)

    def reset(self) -> None:
        self._done = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._by_rewards(history)
        yield from self._by_margins(history)

    def _by_margins(self, history: RunHistory) -> Iterator[Finding]:
        found, beta = () if self._done else _margins_of(history), numeric_setting(history, *BETA)
        count = int(self.at["rows"])
        if not found or not beta > 0 or min(one.end for one in found) <= count:
            return
        self._done = True
        rows = [one.rows(0, count) for one in found]
        same = all((one.step == rows[0].step).all() and (one.segment == rows[0].segment).all() for one in rows)
        if not same or any(one.first for one in rows) or rows[0].step[0] > self.at["steps"]:
            return
        margin, likely, unlikely = (one.value.astype(float) for one in rows)
        twice = 2 * beta * (likely - unlikely)
        near = numpy.abs(margin - twice) <= self.at["near"] * numpy.abs(margin)
        if near.all() and (numpy.abs(margin) >= self.at["reward"]).all() and not has_no_reference(history):
            yield self.finding(
                int(rows[0].step[0]), f"In the first row the margin is {margin[0]:.3g}: twice what the policy's own "
                "log probabilities of both answers are apart, times beta. The reference's are exchanged.",
                found=int(rows[0].step[-1]), segment=int(rows[0].segment[0]), confidence=0.95,
                evidence={"margin": rounded(float(margin[0])), "standing": True},
            )  # fmt: skip

    def _by_rewards(self, history: RunHistory) -> Iterator[Finding]:
        groups = (CHOSEN, _rejected(CHOSEN), _LIKELY, _rejected(_LIKELY))
        found = [next((one for name in some if (one := history.channel(name)) is not None), None) for some in groups]
        count, channels = int(self.at["rows"]), [one for one in found if one is not None]
        if self._done or len(channels) < len(groups) or min(one.end for one in channels) <= count:
            return
        self._done = True
        rows = [one.rows(0, count) for one in channels]
        same = all((one.step == rows[0].step).all() and (one.segment == rows[0].segment).all() for one in rows)
        if not same or any(one.first for one in rows) or rows[0].step[0] > self.at["steps"]:
            return
        good, bad, likely, unlikely = (one.value.astype(float) for one in rows)
        if self._are_crossed(good, bad, likely - unlikely) and not has_no_reference(history):
            yield self.finding(
                int(rows[0].step[0]), f"In the first row the reward of chosen answers is {good[0]:.3g}, and that of "
                f"rejected ones {bad[0]:.3g}: what the policy's own log probabilities of both are apart, times beta. "
                "The reference's are exchanged.", found=int(rows[0].step[-1]), segment=int(rows[0].segment[0]),
                confidence=0.95, evidence={"reward": rounded(float(good[0])), "standing": True},
            )  # fmt: skip

    def _are_crossed(self, good: numpy.ndarray, bad: numpy.ndarray, apart: numpy.ndarray) -> bool:
        size, near = numpy.abs(good), self.at["near"]
        if not (size >= self.at["reward"]).all() or (apart == 0).any():
            return False
        beta = good / apart
        one = float(numpy.median(beta))
        return bool(
            one > 0 and (numpy.abs(good + bad) <= near * size).all() and (numpy.abs(beta / one - 1) <= near).all()
        )


class SideUntrained(WatchRule):
    """One side of a preference's pairs gets no gradient.

    A preference is learnt: its margins are logged, or the graph of the loss shows it. The policy is asked for all
    answers at once, chosen ones in one half of the rows and rejected ones in the other. In three looks in a row no
    place of one half has a gradient, and each row of the other half has one (`model/half_silent`). A pair of which
    nothing is to be learnt any more, as behind a hinge, has none in both its rows. So the loss is of one side alone:
    the other's log probability is detached, or taken under `no_grad()`, and its answers may become as unlikely, or as
    likely, as the others.

    What to do: the log probabilities of both answers with their graph; `detach()` the reference's alone.
    """

    name, family, kind, severity = "side_untrained", "rl", "frozen", "warning"
    proves = "training"
    series = "model/half_silent"
    needs = ("=model/half_silent",)
    least = 3
    about = "One side of a preference's pairs gets no gradient."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    causes = ("graph cut: the log probabilities of one side of the pairs are detached",)
    remedies = ("detach the reference's log probabilities alone, and keep the graph of both of the policy's",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value == 1 and is_preference(history, place[1]), place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], "Half of the rows of each batch, one side of the pairs, get no gradient, and all "
                "others do.", found=place[0], segment=place[2], confidence=0.95, evidence={"standing": True},
            )  # fmt: skip


class AnswersUneven(WatchRule):
    """Of a preference's two answers the log probabilities of one are averaged, and those of the other are added up.

    In the graph of a logistic loss one answer's log probabilities are averaged over its tokens, or divided, and the
    other's are not (`model/preference_averaged` is neither 0 nor 1). A sum over n tokens is n times an average, so that
    the longer answer has its own weight, and the preference is decided by lengths.

    What to do: the same function for both sides, chosen and rejected.
    """

    name, family, kind, severity = "answers_uneven", "rl", "rl", "warning"
    proves = "training"
    series = "model/preference_averaged"
    needs = ("=model/preference_averaged",)
    least = 1
    about = "One side of a preference's pairs is averaged over its tokens, and the other is added up."
    thresholds: ClassVar = {}
    causes = ("sides treated otherwise: the log probabilities of one are averaged, those of the other added up",)
    remedies = ("take the same sum, or the same average, of both sides' log probabilities",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if 0 < value < 1 and self.first(place[2]):
            yield self.finding(
                place[0], "The log probabilities of one answer of a pair are averaged over its tokens, and those of "
                "the other are added up.", segment=place[2], confidence=0.95, evidence={"standing": True},
            )  # fmt: skip


class PreferenceUnbounded(WatchRule):
    """A preference's loss is the margin itself: it has no lower bound.

    The graph of the loss has the difference of two answers' log probabilities, from which those of a reference are
    subtracted, and no function of it: no logarithm of a sigmoid, no square, no hinge (`model/preference_unbounded`).
    The loss is below 0 in the median of 16 rows, behind 32. Each pair is pushed apart for ever, those that are in order
    already as hard as the others, and the gradient never becomes small.

    What to do: `-logsigmoid(margin)`, as in DPO, `(margin - 1 / (2 * beta)) ** 2`, as in IPO, or a hinge.
    """

    name, family, kind, severity = "preference_unbounded", "rl", "rl", "warning"
    proves = "training"
    needs = ("=model/preference_unbounded", "loss")
    least = 32
    about = "The loss of a preference is its margin, which has no bound."
    thresholds: ClassVar = {"rows": (32.0, "ours")}
    causes = ("function forgotten: the margin is the loss, without the logarithm of its sigmoid",)
    remedies = ("put the margin through the loss's function: `-logsigmoid(margin).mean()`",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("loss") if history.channel("model/preference_unbounded") is not None else None

    def begin(self) -> None:
        self._rows = 0
        self._last: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._rows += 1
        self._last = [*self._last[-15:], value]
        if self._rows < self.at["rows"] or watched(history, "preference_unbounded", place) != 1:
            return
        level = float(numpy.median(self._last))
        if level < 0 and self.first(place[2]):
            yield self.finding(
                0, "The loss is the difference of two answers' log probabilities, less a reference's, without a "
                f"logarithm of a sigmoid, a square or a hinge: it has no bound, and is {level:.4g}.", found=place[0],
                segment=place[2], confidence=0.95, evidence={"loss": rounded(level), "standing": True},
            )  # fmt: skip


RULES = (ReferenceCrossed, SideUntrained, AnswersUneven, PreferenceUnbounded)
