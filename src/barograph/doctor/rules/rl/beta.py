"""Where β is in the loss of a preference, and whether the loss is of the margins that are logged.

In:   β of the configuration, margins, the loss; what the watch saw in the loss's graph, and in the output's gradient.
Out:  findings of `BetaMisplaced`, `LossBelowMargin`, `ChancesCompared`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.configuration import ACCUMULATION
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import is_first_step, numeric_setting, told_behind
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.loss.given import side_by_side
from barograph.doctor.rules.rl.preference import BETA, MARGIN, margins_of, trained_like
from barograph.doctor.rules.rl.reference import OWN_MARGIN, has_no_reference

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_WEIGHT = expression(r"(?i).*(?:weight|coef|lambda|alpha|scale|factor).*")  # of the loss as a whole


class BetaMisplaced(WatchRule):
    """β of a preference multiplies the loss, and not the margin; or it multiplies the margin twice.

    The loss is logistic, of differences of log probabilities. It begins at ln 2, whatever β is. Where the median of its
    first four rows is β of the configuration times ln 2, within 15%, and the first one, where nothing is dropped,
    within 5%, and something multiplies it in its graph, β stands outside of the logarithm: the margin is taken as it
    is, as with a β of 1. Where 1 / β is a number of micro-batches or of processes, or another weight in the
    configuration is the same number, nothing is said.

    Before anything is learnt each token's log probability has the weight β / 2 in the loss of its pair. What the
    gradient of the output shows of it (`model/loss_weight`, and how many rows and targets there are) is β, or 2 β where
    both answers of a pair are rows of one pass. In three looks in a row within the first ten steps it is β², or 2 β²,
    within 10%: the margin is multiplied by β twice. A β above 0.25 is too near its square, and answers whose log
    probabilities are averaged have other weights: then up to 0.6 the loss has to fall, too, by β times half of the
    margin that is logged, to 15%, in three of the first eight rows or more with a margin up to 0.1.

    Where the margin that is logged is 0 in the first row, each pair's is, and the loss ln 2. Of the first eight rows
    those with a margin below 0.1 in size are four or more, the loss is a tenth above that of the margin in each of
    them, and not by one factor: the ratio's deviation is a fiftieth or more. The loss is then of another margin than
    what is logged, as where β multiplies the policy's log probabilities, or the reference's, and not their difference.
    Beside other terms, dropout, numbers of 16 bits, or options of weights of pairs nothing is said.

    What to do: `-logsigmoid(beta * margin)`, with the margin as the difference of log probabilities.
    """

    name, family, kind, severity = "beta_misplaced", "rl", "config", "warning"
    proves = "training"
    needs = ("=model/loss_ranks", "config", "loss")
    least = 4
    about = "β of a preference multiplies its loss, its margin twice, or a part of it."
    thresholds: ClassVar = {
        "rows": (4.0, "of the loss, from the first on; ours"),
        "near": (0.15, "of β, what the loss begins at, of ln 2; ours"),
        "first_row": (0.05, "the same, in the first row, where nothing is dropped; ours"),
        "same": (0.1, "of the square of β; ours"),
        "large": (0.25, "β that is too near its square; ours"),
        "most": (0.6, "β, of what the margin shows, too; ours"),
        "below": (3.0, "rows with a margin above 0; ours"),
        "slope": (0.15, "of β, what the loss falls by over half of the margin; ours"),
        "looks": (3.0, "in a row; ours"),
        "early": (10.0, "steps, in which hardly anything is learnt; ours"),
        "first": (8.0, "rows of the loss beside the margin; ours"),
        "few": (4.0, "of them with a margin that is nearly 0; ours"),
        "margin": (0.1, "that is nearly 0; ours"),
        "above": (1.1, "times the loss of the margin; ours"),
        "varies": (0.02, "deviation of that ratio; ours"),
    }
    remedies = ("write `-logsigmoid(beta * margin)`, with the margin as the difference of log probabilities",)

    def reset(self) -> None:
        super().reset()
        self._done = self._compared = False
        self._looks: list[int] = []  # their steps

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        beta = numeric_setting(history, *BETA)
        if not 0 < beta < 1:
            return
        yield from self._outside(history, beta)
        yield from self._beside(history, beta)
        for place, value in self._cursor.each(history.channel("model/loss_weight")):
            yield from self._twice(history, value, place, beta)

    def _outside(self, history: RunHistory, beta: float) -> Iterator[Finding]:
        loss, count = history.role("loss"), int(self.at["rows"])
        place = None if loss is None else told_behind(loss, count, history.channel("model/loss_ranks"))
        if self._done or loss is None or place is None:
            return
        self._done = True
        rows = loss.rows(0, count)
        times, first = float(numpy.median(rows.value)) / math.log(2), float(rows.value[0]) / math.log(2)
        begun = watched(history, "dropout", place) > 0 or abs(first / beta - 1) <= self.at["first_row"]
        parts = numeric_setting(history, *ACCUMULATION), watched(history, "backwards", place)
        divided = [one for one in (*parts, float(history.facts.get("world_size") or 1)) if one >= 2]
        other = any(
            _is_number(value, beta) and _WEIGHT.fullmatch(name) for name, value in history.options.found.items()
        )
        outside = (
            begun
            and abs(times / beta - 1) <= self.at["near"]
            and watched(history, "loss_ranks", place) >= 0
            and watched(history, "loss_multiplied", place) == 1
            and is_first_step(history, int(rows.step[0]))
        )
        if outside and not other and not any(abs(beta * one - 1) <= self.at["near"] for one in divided):
            yield self.finding(
                int(rows.step[0]), f"The loss begins at {times:.3g} times ln 2, as of a margin of 0 whose loss is "
                f"multiplied by β = {beta:.4g}.", found=place[0], segment=place[2], confidence=_PROOF, key="outside",
                causes=["beta outside of the logarithm: it multiplies the loss, and not the margin"],
                evidence={"beta": beta, "times": rounded(times)},
            )  # fmt: skip

    def _beside(self, history: RunHistory, beta: float) -> Iterator[Finding]:
        """By the margin that is logged, which is 0 in the first row."""
        margins, loss, count = _margins(history), history.role("loss"), int(self.at["first"])
        place = None if margins is None else told_behind(margins, count, history.channel("model/loss_ranks"))
        if self._compared or margins is None or loss is None or place is None or loss.end < count or loss.start:
            return
        self._compared = True
        rows = margins.rows(0, count)
        here = int(rows.step[-1]), max(place[1], int(loss.rows(0, count).time[-1])), int(rows.segment[-1])
        begins = is_first_step(history, int(rows.step[0])) and abs(rows.value[0]) <= _NOTHING
        if not begins or int(rows.segment[0]) != here[2] or not _is_plain(history, place):
            return
        ours, theirs = (values[:count] for values in side_by_side(margins, loss, here))
        small = numpy.abs(ours) <= self.at["margin"]
        ratios = theirs[small] / numpy.logaddexp(0.0, -ours[small])
        if len(ratios) < self.at["few"] or not small[0] or not (ratios >= self.at["above"]).all():
            return
        if ratios.std() >= self.at["varies"] * ratios.mean() and self.first(place[2], "beside"):
            yield self.finding(
                int(rows.step[0]), f"The first margin is 0, of which the loss is ln 2, and the loss begins at "
                f"{theirs[0]:.4g}: it is of another margin than the one that is logged.", found=place[0],
                segment=place[2], confidence=0.9, key="beside",
                evidence={"beta": beta, "loss": rounded(float(theirs[0])), "standing": True},
                causes=["beta beside the margin: it multiplies the policy's log probabilities, or the reference's, and "
                        "not their difference", "loss of other margins: it is not of the rewards that are logged"],
            )  # fmt: skip

    def _twice(self, history: RunHistory, weight: float, place: Place, beta: float) -> Iterator[Finding]:
        names = ("example_rows", "targets", "backwards", "preference_averaged", "loss_ranks")
        rows, targets, passes, averaged, ranked = (watched(history, name, place) for name in names)
        sure = averaged == 0 and beta <= self.at["large"]
        plain = ranked >= 0 and targets > 0 and (sure or (averaged >= 0 and self._falls_less(history, place, beta)))
        shown = 2 * weight * rows / targets * max(1.0, passes) if plain else math.nan
        squared = any(abs(shown / (times * beta**2) - 1) <= self.at["same"] for times in (1, 2))
        self._looks = [*self._looks, place[0]] if squared and place[0] <= self.at["early"] else []
        if len(self._looks) == self.at["looks"] and self.first(place[2], "twice"):
            yield self.finding(
                self._looks[0], f"Before anything is learnt a margin is multiplied by {shown:.3g}: a multiple of "
                f"the square of β = {beta:.4g}, and not of β.", found=place[0], segment=place[2], confidence=_PROOF,
                causes=["beta twice: the margin is multiplied by it already where the loss does so"], key="twice",
                evidence={"beta": beta, "shown": rounded(shown)},
            )  # fmt: skip

    def _falls_less(self, history: RunHistory, place: Place, beta: float) -> bool:
        """Whether the loss is less below ln 2 by a factor of β, while the margin that is logged is nearly 0, than that
        margin makes it: half of it."""
        margins, loss = _margins(history), history.role("loss")
        if margins is None or loss is None or beta > self.at["most"]:
            return False
        ours, theirs = side_by_side(margins, loss, place)
        small = (ours[: int(self.at["first"])] > 0) & (ours[: int(self.at["first"])] <= self.at["margin"])
        ours, below = ours[: len(small)][small], math.log(2) - theirs[: len(small)][small]
        if len(ours) < int(self.at["below"]):
            return False
        slope = 2 * float((ours * below).sum() / (ours * ours).sum())
        return abs(slope / beta - 1) <= self.at["slope"]


def _margins(history: RunHistory) -> Channel | None:
    """The margin that is logged, by any name: beside the loss, where there are several."""
    loss, some = history.role("loss"), trained_like(history, MARGIN)
    beside = (one for one in some if loss is not None and one.name.rpartition("/")[0] == loss.name.rpartition("/")[0])
    return margins_of(history) or next(beside, next(iter(some), None))


def _is_plain(history: RunHistory, place: Place) -> bool:
    """Whether the loss is that of a preference with a reference, and nothing else makes it larger."""
    names = ("preference_averaged", "loss_terms", "dropout", "half_parameters", "half_output")
    averaged, terms, dropout, *half = (watched(history, name, place) for name in names)
    weighed = any(
        value not in (None, False, 0, "", "none") and (_OF_PAIRS.search(name) or OWN_MARGIN.search(name.lower()))
        for name, value in history.options.found.items()
    )
    plain = averaged >= 0 and terms <= _TERMS and dropout == 0 and not any(one > 0 for one in half)
    return plain and not (weighed or has_no_reference(history))


_NOTHING = 1e-6  # of a margin
_TERMS = 2  # of a loss, as of smoothed labels
_OF_PAIRS = expression(r"(?i)weights?(?!_?decay)(?!\w*path)|importance|wpo|focal|confidence")


def _is_number(value: object, number: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == number


class LossBelowMargin(Rule):
    """The loss of a preference is lower than the margins that are logged beside it allow.

    −ln σ is convex: its mean over pairs is at least that of the mean margin. Of the first 16 rows those with a margin
    from 0 to 0.1 are four or more, and in each of them the loss is lower by 2% or more, and not by one factor as of a
    weight: the ratio's standard deviation is a hundredth or more. The loss is logistic, of differences, by its graph.
    It is of other margins than what is logged, as where the reference is left out, or added in place of being
    subtracted; or a term that should be added is subtracted.

    What to do: compute the loss from the rewards that are logged: `-logsigmoid(chosen - rejected)`.
    """

    name, family, kind, severity = "loss_below_margin", "rl", "rl", "warning"
    proves = "training"
    needs = ("=model/loss_ranks", "loss")
    about = "The loss of a preference is lower than its margins allow."
    thresholds: ClassVar = {
        "rows": (16.0, "from the first on; ours"),
        "few": (4.0, "of them with a margin from 0 to `margin`; ours"),
        "margin": (0.1, "that is nearly 0; ours"),
        "below": (0.02, "of the loss of the mean margin; ours"),
        "varies": (0.01, "standard deviation of the ratio; ours"),
    }
    causes = (
        "loss of other margins: it is not of the rewards that are logged, as where the reference is left out of it",
        "sign reversed: the reference's log probabilities are added, or another term is subtracted",
    )
    remedies = ("compute the loss from the rewards that are logged: `-logsigmoid(chosen - rejected)`",)

    def reset(self) -> None:
        self._done = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        margins, loss, count = margins_of(history), history.role("loss"), int(self.at["rows"])
        place = None if margins is None else told_behind(margins, count, history.channel("model/loss_ranks"))
        if self._done or margins is None or loss is None or place is None or loss.end < count or loss.start:
            return
        self._done = True
        rows = margins.rows(0, count)
        here = int(rows.step[-1]), max(place[1], int(loss.rows(0, count).time[-1])), int(rows.segment[-1])
        if not is_first_step(history, int(rows.step[0])) or int(rows.segment[0]) != here[2]:
            return
        ours, theirs = side_by_side(margins, loss, here)
        ours, theirs = ours[:count], theirs[:count]
        small = (ours >= 0) & (ours <= self.at["margin"])
        ratios = theirs[small] / numpy.logaddexp(0.0, -ours[small])
        if len(ratios) < self.at["few"] or not (ratios <= 1 - self.at["below"]).all() or has_no_reference(history):
            return
        if watched(history, "loss_ranks", place) >= 0 and ratios.std() >= self.at["varies"]:
            yield self.finding(
                int(rows.step[0]), f"Of {len(ratios)} rows with a margin near 0 the loss is {float(ratios.mean()):.3g} "
                "times what the mean margin's is, and it can't be lower than that.", found=place[0], segment=place[2],
                confidence=_PROOF, evidence={"ratio": rounded(float(ratios.mean())), "standing": True},
            )  # fmt: skip


class ChancesCompared(WatchRule):
    """A preference compares sums of chances, and not of their logarithms.

    In the graph of a logistic loss of differences, from which those of a reference are subtracted, what is added up
    over an answer's tokens is what a softmax gave, or the exponential of its logarithm. The chance of an answer is the
    product of its tokens' chances: their sum says nothing of it, and a token that is nearly sure hardly counts.

    What to do: `logits.log_softmax(-1).gather(...)`, added up, without `exp()`.
    """

    name, family, kind, severity = "chances_compared", "rl", "rl", "warning"
    proves = "training"
    series = "model/preference_of_chances"
    needs = ("=model/preference_of_chances",)
    least = 1
    about = "A preference compares sums of chances, and not of their logarithms."
    causes = ("logarithm missing: chances of an answer's tokens are added up, and not their logarithms",)
    remedies = ("add up `logits.log_softmax(-1).gather(...)`, without `exp()`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value == 1, place, 1):
            yield self.finding(
                0, "The loss is of sums of chances over an answer's tokens, and not of the sums of their logarithms.",
                found=place[0], segment=place[2], confidence=_PROOF, evidence={"standing": True},
            )  # fmt: skip


RULES = (BetaMisplaced, LossBelowMargin, ChancesCompared)
