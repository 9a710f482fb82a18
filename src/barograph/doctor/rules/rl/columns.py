"""A preference's reference whose log probabilities were made beforehand: are they the policy's of the same rows?

In:   the graph of the loss, its first value, and whether a second network was seen.
Out:  findings of `ReferenceColumns`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import came_by, is_first_step, numeric_setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.rl.begins import margin_at
from barograph.doctor.rules.rl.preference import BETA, margins_of, rewards_of
from barograph.doctor.rules.rl.reference import OWN_MARGIN, goes_on, has_no_reference

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class ReferenceColumns(WatchRule):
    """A preference with a reference that no network is asked for does not begin at ln 2.

    The graph of the loss is a logistic one of differences of log probabilities, from which numbers without gradient are
    subtracted: those of a reference that were made beforehand, or by the policy without its adapters, for no second
    network of its make was seen, or not in the first eight steps, and never with the examples that are trained on. The
    reference is the policy before its first step, so that all margins are 0 then and the loss is ln 2. Where the first
    row is three thousandths of ln 2 or more away from that, and less than half of it, the numbers are of other rows, of
    another mean or sum, of a model in training mode, or of another one. A loss that is farther away is of another kind,
    unless a margin of a fiftieth or more is logged at that step, and the loss is at least that of this margin, as a
    mean of logistic losses is. Nothing is said of a policy with dropout, whose margins are not 0; of one in 16 bits,
    which rounds; beside other terms, a margin of its own, another stage or a named reference model in the
    configuration, and where the run begins later.

    IPO's loss, the square of a difference less 1 / 2β, begins at (1 / 2β)², whatever is averaged: it is compared with
    that, where its graph shows that numbers of a reference are subtracted, the configuration has β, and the margin that
    is logged at the first step is not 0.

    A launch that goes on with such a training does not begin at ln 2: where its first row is, to a millionth, and the
    mean of the last eight rows before it was a tenth below, all margins are 0 again, as where the reference is made
    anew from the policy that was loaded, whether its numbers are kept, or a network or a policy without its adapters is
    asked for them, which were merged; or the policy was not loaded. What the loss does behind it comes of that. Of
    squares and hinges it takes the margin that is logged there: 0, to a millionth of the mean of the last eight rows
    before it. Of answers that are judged one by one, whose loss is none of pairs, it takes both rewards, the one of
    chosen and the one of rejected answers, that are logged there and are 0. Another round of an iteration begins so,
    and is left alone where the configuration says so.

    What to do: make the columns anew with the policy as it begins, in evaluation mode, by the function that the loss
    calls; look them up by the row's own key; the first loss has to be 0.6931.
    """

    name, family, kind, severity = "reference_columns", "rl", "config", "warning"
    proves = "training"
    needs = ("=model/preference_averaged|=model/preference_compared|chosen_reward", "loss")
    least = 3
    about = "Log probabilities of a reference that were made beforehand are not the policy's."
    thresholds: ClassVar = {
        "rows": (32.0, "of the loss, or steps: the watch's records come behind its rows; ours"),
        "steps": (5.0, "behind which a launch goes on with a training; ours"),
        "off": (0.003, "of ln 2, that the first loss is away from it; ours"),
        "margin": (0.001, "of the first row of IPO, in size, that is not 0; ours"),
        "far": (0.5, "of ln 2: a loss that is farther away is of another kind; ours"),
        "beside": (0.02, "of the first row, in size: the margin of a loss that is farther away; ours"),
        "again": (1e-6, "of ln 2, that the first loss of a later launch is away from it, at most; ours"),
        "learnt": (0.1, "of ln 2, that the loss was below it before; ours"),
        "before": (8.0, "rows of that; ours"),
        "terms": (2.0, "of the loss, at most, as of smoothed labels; ours"),
    }
    causes = (
        "reference wrong: its log probabilities, made beforehand, are of other rows than those that they stand beside",
        "log probabilities differ: the reference's are a mean over tokens and the policy's a sum, or the reverse",
        "reference is another network, or one in training mode: not the policy as it begins",
    )
    remedies = (
        "make the reference's columns anew with the policy before its first step, in evaluation mode, by the same "
        "function, and look them up by the row's own key",
    )

    def channel(self, history: RunHistory) -> Channel | None:
        seen = any(history.channel(f"model/preference_{name}") is not None for name in ("averaged", "compared"))
        return history.role("loss") if seen or all(rewards_of(history)) else None

    def begin(self) -> None:
        self._count, self._first, self._judged = 0, (0, math.nan), False

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._count += 1
        if self._count == 1:
            self._first = place[0], value
            if history.channel("model/preference_averaged") is not None:
                yield from self._anew(history, value, place)
        elif self._count == _COMPLETE and history.channel("model/preference_compared") is not None:
            yield from self._margins_anew(history, place)
        elif self._count == _COMPLETE and history.channel("model/preference_averaged") is None:
            yield from self._rewards_anew(history, place)
        step, first = self._first
        kinds = (history.channel(f"model/preference_{name}") for name in ("averaged", "compared"))
        told = any(came_by(one, place[1]) for one in kinds)
        early = self._count <= _COMPLETE or max(self._count, place[0] - step) < self.at["rows"]
        if self._judged or early or not told:
            return
        self._judged = True
        if not is_first_step(history, step) or self._is_asked(history, place):
            return
        level = self._of_squares(history, place, step)
        squares = level != 0
        level = level if squares else math.log(2)
        off = abs(first / level - 1)
        near = off < self.at["far"] or (not squares and self._has_margin(history, place, step, first))
        if not (off >= self.at["off"] and near and self._is_plain(history, place)):
            return
        if self.first(place[2]):
            yield self.finding(
                step, f"The first loss is {first:.4g}, where a policy that begins as its reference has "
                f"{'(1 / 2β)²' if squares else 'ln 2'}, {level:.4g}: the reference's log probabilities"
                f"{'' if _adapts(history) else ', made beforehand,'} are not the policy's.",
                found=place[0], segment=place[2], confidence=0.85,
                evidence={"loss": rounded(first), "standing": True},
                causes=[self.causes[1], self.causes[0], self.causes[2]]
                if off >= self.at["far"] or (_adapts(history) and first < level) else list(self.causes),
            )  # fmt: skip

    def _is_asked(self, history: RunHistory, place: Place) -> bool:
        """Whether a second network is asked in the training: one that comes later, and never for the examples that are
        trained on, is asked in evaluations alone."""
        other = history.channel("model/other_apart")
        if other is None or not came_by(other, place[1]):
            return False
        early = other.start > 0 or other.rows(0, 1).step[0] <= _EVALUATED_FROM
        return bool(early) or watched(history, "other_same_input", place) == 1

    def _has_margin(self, history: RunHistory, place: Place, step: int, loss: float) -> bool:
        """Whether the first step has a margin other than 0, and the loss may be the mean of logistic losses of it."""
        margin = margin_at(history, step, place[2])
        least = float(numpy.logaddexp(0.0, -margin)) if margin > 0 else math.log(2)
        return abs(margin) >= self.at["beside"] and least <= loss < math.inf

    def _of_squares(self, history: RunHistory, place: Place, step: int) -> float:
        """Where IPO's loss begins, of a policy that is its reference, where the margin of the first step says that it
        is not; 0 of other losses, NaN where that is not known."""
        if history.channel("model/preference_compared") is None:
            return 0.0
        margins, beta = margins_of(history), numeric_setting(history, *BETA)
        first = margins.rows(0, 1) if margins is not None and margins.end and not margins.start else None
        here = first is not None and int(first.step[0]) == step <= 1 and abs(first.value[0]) >= self.at["margin"]
        known = here and beta > 0 and watched(history, "preference_compared", place) == _REFERRED
        return 1 / (4 * beta * beta) if known else math.nan

    def _anew(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """A later launch, whose margins are all 0 again."""
        loss, count = history.role("loss"), int(self.at["before"])
        if loss is None or place[0] <= self.at["steps"] or abs(value / math.log(2) - 1) > self.at["again"]:
            return
        rows = loss.rows()
        before = rows.value[(rows.segment < place[2]) & (rows.step < place[0])][-count:]
        learnt = len(before) == count and float(before.mean()) <= (1 - self.at["learnt"]) * math.log(2)
        if learnt:
            yield from self._say_anew(history, place, place[0], f"a loss of ln 2; it was {before.mean():.4g}", before)

    def _margins_anew(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        """The same by the margin of a later launch's first row, which is complete by now."""
        margins, count, step = margins_of(history), int(self.at["before"]), self._first[0]
        rows = margins.rows() if margins is not None and margins.end else None
        if rows is None or step <= self.at["steps"]:
            return
        here = rows.value[(rows.segment == place[2]) & (rows.step == step)]
        before = rows.value[(rows.segment < place[2]) & (rows.step < step)][-count:]
        usual = float(before.mean()) if len(before) == count else 0.0
        if len(here) and abs(here[0]) <= self.at["again"] * usual and usual >= self.at["margin"]:
            yield from self._say_anew(history, place, step, f"a margin of 0; it was {usual:.4g}", before)

    def _rewards_anew(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        """The same by both rewards of a later launch's first row."""
        step, sizes, kept = self._first[0], [], numpy.empty(0)
        for side in rewards_of(history):
            rows = side.rows() if side is not None and side.end else None
            if rows is None or step <= self.at["steps"]:
                return
            here = rows.value[(rows.segment == place[2]) & (rows.step == step)]
            kept = numpy.abs(rows.value[(rows.segment < place[2]) & (rows.step < step)][-int(self.at["before"]) :])
            usual = float(kept.mean()) if len(kept) == int(self.at["before"]) else 0.0
            if not len(here) or abs(here[0]) > self.at["again"] * usual:
                return
            sizes.append(usual)
        if max(sizes) >= self.at["margin"]:
            what = f"rewards of 0; they were {sizes[0]:.4g} and {sizes[1]:.4g} in size"
            yield from self._say_anew(history, place, step, what, kept)

    def _say_anew(
        self, history: RunHistory, place: Place, step: int, what: str, before: Any
    ) -> Iterator[Finding]:  # fmt: skip
        if not (has_no_reference(history) or goes_on(history)) and self.first(place[2], "anew"):
            yield self.finding(
                step, f"The launch goes on at step {step} at {what} before: all margins are 0 again, as the reference "
                "is the policy that was loaded.",
                found=place[0], segment=place[2], confidence=_SURE, key="anew", kind="resume",
                evidence={"before": rounded(before.mean()), "standing": True}, causes=[_ANEW],
                remedies=["keep the reference's log probabilities, or its weights, in the checkpoint, or make them "
                          "before the policy is loaded",
                          *["resume adapters as they are, on the base from before: merged, they are a part of what the "
                            "policy is compared with"] * _adapts(history)],
            )  # fmt: skip

    def _is_plain(self, history: RunHistory, place: Place) -> bool:
        """Whether nothing else moves the loss away from ln 2 at the beginning."""
        averaged, terms, dropout, short = (
            watched(history, name, place)
            for name in ("preference_averaged", "loss_terms", "dropout", "half_parameters")
        )
        said = (f"{name}={value}".lower() for name, value in history.options.found.items() if value)
        rounds = short > 0 or any(map(_SHORT.search, said))
        margin = any(
            OWN_MARGIN.search(name.lower()) and isinstance(value, (int, float)) and value
            for name, value in history.options.found.items()
        )
        preferred = averaged >= 0 or watched(history, "preference_compared", place) == _REFERRED
        alone = preferred and terms <= self.at["terms"] and dropout == 0 and not rounds
        return alone and not (margin or has_no_reference(history) or goes_on(history))


def _adapts(history: RunHistory) -> bool:
    """Whether the policy has adapters: with these off it is its own reference, and nothing is made beforehand."""
    return history.channel("model/adapter_rank") is not None


_ANEW = (
    "reference wrong: behind the resume it is the policy that was loaded, and not the one before its first step; or "
    "the policy began anew with it"
)
_SURE = 0.95
_EVALUATED_FROM = 8  # steps, behind which an evaluation may have been the first that asked a network
_COMPLETE = 2  # rows of a launch, behind which its first one is complete
_REFERRED = 2  # squares of differences from which those of a reference are subtracted
_SHORT = expression(r"(?:bf|fp|float|bfloat|half)_?(?:16|8)(?!\d)")  # numbers of few bits

RULES = (ReferenceColumns,)
