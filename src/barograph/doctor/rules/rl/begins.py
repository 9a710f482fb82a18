"""What a preference's first row says: a margin that is not 0, whatever it is called.

In:   the margin and the loss of the first row; the watch's look at a second network of the policy's make.
Out:  findings of `MarginBegins`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import (
    came_by,
    is_first_step,
    numeric_setting,
)
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import watched
from barograph.doctor.rules.rl.preference import BETA, MARGIN, rewards_of, trained_like
from barograph.doctor.rules.rl.reference import OWN_MARGIN, goes_on, has_no_reference

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

_LIKELIHOOD = expression(r"sft|nll|rpo|likelihood")  # another term of the loss
_ROUNDING = 1e-6  # of the weights' size
_SOON = 64  # steps


class MarginBegins(Rule):
    """Before the first step the margin of a preference is not 0: policy and reference give different log probabilities.

    The margin is that of any series of this name, where no rewards of both sides are logged in the training, which
    `reference_apart` reads. The loss is logistic, of differences of log probabilities, without dropout and in single
    precision or more, and a second network of the policy's make is asked about the same examples. If both are one
    network, each margin is 0 and the loss ln 2. In the first row the margin is a fiftieth or more in size, the loss is
    a thousandth away from ln 2, and at least that of the mean margin, as a mean of logistic losses is. So it is where
    the configuration names IPO and its β: there each loss is the square of what a margin is away from 1 / 2β. A first
    loss of eight times what it should be is said with dropout, too.

    So it is, too, where the graph of the loss has nothing but the difference of two answers' log probabilities
    (`model/preference_alone`), though the second network is asked about the same answers: what it says is left out.
    That is said of one network alone, and the configuration may name a loss without a reference.

    A first row of a later step, as where each fifth is logged, tells nothing of it.

    Where the second network is no further away than the steps made it, log probabilities are computed in two ways.
    Where it is a tenth of the weights' size away, it is another one: that is said if a chosen reward of 1 or more is
    logged within 64 steps, of which the first margin is less than half, for a policy that goes on from an earlier stage
    has learnt a margin. Where the configuration says that it goes on, has a margin of its own, or a term for the
    likelihood of chosen answers, nothing is said.

    What to do: `reference = copy.deepcopy(policy)` before the first step; one function for both log probabilities.
    """

    name, family, kind, severity = "margin_begins", "rl", "config", "warning"
    proves = "training"
    needs = ("=model/other_apart", "=model/preference_averaged|=model/preference_alone|config", "loss")
    about = "Before the first step the margin of a preference is not 0."
    thresholds: ClassVar = {
        "margin": (0.02, "of the first row, in size; ours"),
        "loss": (0.001, "of ln 2, that the first loss is away from it; ours"),
        "looks": (3.0, "at the weights; ours"),
        "own": (4.0, "times what each step adds to the distance; ours"),
        "apart": (0.1, "of the weights' size, of another network; ours"),
        "reward": (1.0, "of chosen answers, in size, where it is another network; ours"),
        "beyond": (8.0, "times the loss of a margin of 0, which no dropout makes of it; ours"),
        "learnt": (0.5, "of that reward: a margin of an earlier stage; ours"),
        "far": (
            2.0,
            "times the loss of a margin of 0, or a part as small: one is rather a sum, the other a mean; ours",
        ),
    }
    remedies = (
        "compute both log probabilities with one function, of the same tokens and with the same sum or mean",
        "copy the policy before the first step: `reference = copy.deepcopy(policy).requires_grad_(False)`",
    )

    def reset(self) -> None:
        self._done = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        apart, loss = history.channel("model/other_apart"), history.role("loss")
        if self._done or apart is None or loss is None or apart.end < self.at["looks"]:
            return
        away, (chosen, rejected) = apart.rows(0, int(self.at["looks"])), rewards_of(history)
        if loss.start or apart.start:  # the first rows are gone
            self._done = True
            return
        if all(one is not None and came_by(one, int(away.time[-1])) for one in (chosen, rejected)):
            self._done = True
            return
        ours = loss.rows(0, 1)
        margin = margin_at(history, int(ours.step[0]), int(ours.segment[0]))
        place = int(away.step[-1]), int(away.time[-1]), int(away.segment[-1])
        target = _target(history)
        says = self._says(float(ours.value[0]), margin, target)
        if not is_first_step(history, int(ours.step[0])) or ours.segment[0] != place[2] or not says:
            self._done = True
            return
        names = ("preference_averaged", "loss_terms", "dropout", "other_same_input", "half_parameters", "half_output")
        averaged, terms, dropout, same, *half = (watched(history, name, place) for name in names)
        left_out = watched(history, "preference_alone", place) == 1
        alone = (
            (averaged >= 0 or target > 0 or left_out)
            and not terms > 2
            and (dropout == 0 or ours.value[0] >= self.at["beyond"] * _begins(target))
            and same == 1
            and not any(one > 0 for one in half)
        )
        if not alone or self._is_meant(history):
            self._done = True
            return
        where = self._where(away, chosen, margin, bool(history.facts.get("finished")))
        self._done = where != "wait"
        where = where if not left_out else "left out" if where == "one" else ""
        if where in _CAUSES:
            other = ", and their weights differ" if where == "other" else ""
            yield self.finding(
                int(ours.step[0]), f"The first margin is {margin:.3g} and the first loss {ours.value[0]:.5g}, where "
                "policy and reference should be one network, so that they are 0 and "
                f"{f'{target * target:.4g}' if target > 0 else 'ln 2'}{other}.",
                found=int(chosen.rows(0, 1).step[0]) if where == "other" and chosen is not None else place[0],
                segment=place[2], confidence=0.9, causes=self._causes(where, float(ours.value[0]) / _begins(target)),
                evidence={"margin": rounded(margin), "loss": rounded(float(ours.value[0])), "standing": True},
                remedies=list(_SUBTRACT if left_out else self.remedies),
            )  # fmt: skip

    def _says(self, loss: float, margin: float, target: float) -> bool:
        """Whether loss and margin are those of a mean of losses of margins other than 0. target: of squares."""
        if not (math.isfinite(margin) and abs(margin) >= self.at["margin"] and math.isfinite(loss)):
            return False
        begins = _begins(target)
        least = (margin - target) ** 2 if target > 0 else float(numpy.logaddexp(0.0, -margin))
        off = abs(loss / begins - 1) >= self.at["loss"]
        return off and loss >= least * (1 - self.at["loss"])

    def _causes(self, where: str, times: float) -> list[str]:
        """times: the first loss, of that of a margin of 0."""
        if where != "one" or 1 / self.at["far"] < times < self.at["far"]:
            return list(_CAUSES[where])
        first, *others, last = _CAUSES[where]
        return [last, first, *others]

    def _is_meant(self, history: RunHistory) -> bool:
        found = history.options.found
        meant = any(
            value not in (None, False, 0, "") and (OWN_MARGIN.search(name.lower()) or _LIKELIHOOD.search(name.lower()))
            for name, value in found.items()
        )
        return meant or goes_on(history) or has_no_reference(history)

    def _where(self, away: ChannelRows, chosen: Channel | None, margin: float, finished: bool) -> str:
        """Whether both are one network, or another one; "wait" where that is not to be seen yet, "" where it isn't."""
        steps, distance = away.step - away.step[0], float(away.value[0])
        each = float((away.value[-1] - away.value[0]) / max(1, steps[-1]))
        if distance <= self.at["own"] * max(each * max(1, int(away.step[0])), _ROUNDING):
            return "one"
        if distance < self.at["apart"]:
            return ""
        if chosen is None or not chosen.end:
            return "" if finished else "wait"
        if chosen.start:
            return ""
        first = chosen.rows(0, 1)
        reward = abs(float(first.value[0]))
        other = first.step[0] <= _SOON and reward >= self.at["reward"] and abs(margin) < self.at["learnt"] * reward
        return "other" if other else ""


_SUBTRACT = (
    "subtract what the reference gives: `(chosen - rejected) - (ref_chosen - ref_rejected)`",
    "switch `reference_free` on in the configuration where no reference is meant, and do without one",
)
_CAUSES = {
    "one": ("log probabilities differ: those of policy and reference are computed in two ways",
            "reference wrong: it is given another mask or other positions of padded rows than the policy",
            "wrong reduction: one is a sum over an answer's tokens, the other a mean"),
    "left out": ("reference not used: nothing of what it says is subtracted from the policy's log probabilities",),
    "other": ("reference is another network: not a copy of the policy",),
}  # fmt: skip


def _target(history: RunHistory) -> float:
    """Of IPO, which margin its squares ask for; 0 of another loss."""
    values = (value.lower() for value in history.options.found.values() if isinstance(value, str))
    beta = numeric_setting(history, *BETA)
    return 1 / (2 * beta) if beta > 0 and any(value in ("ipo", "ipo_loss") for value in values) else 0.0


def _begins(target: float) -> float:
    """The loss of a margin of 0. target: of IPO's squares, 0 of logistic losses."""
    return target * target if target > 0 else math.log(2)


def margin_at(history: RunHistory, step: int, segment: int) -> float:
    """The margin of a step, NaN where none is logged."""
    for channel in trained_like(history, MARGIN):
        rows = channel.rows(0, 1)
        if len(rows) and rows.step[0] == step and rows.segment[0] == segment:
            return float(rows.value[0])
    return math.nan


RULES = (MarginBegins,)
