"""A sum of losses that have weights, which nothing divides by these; weights that each weigh all rows.

In:   what the watch saw in the graph of a loss; the losses of training and evaluation.
Out:  findings of `WeightsUndivided`, `WeightsCrossed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.roles import is_of_other_kind
from barograph.doctor.kernel.cursor import came_by, scaled_loss, summed_by_choice, usual
from barograph.doctor.kernel.curve import between, rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.data.objectives import GraphRule
from barograph.doctor.rules.loss.given import side_by_side

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class WeightsUndivided(WatchRule):
    """Losses that have weights are added up, and their sum is not divided by the sum of the weights.

    The graph of the loss shows that it is nothing but a sum of 24 cross-entropies or logistic losses or more, each
    times a weight or a mask of its own, or that of its class (`model/weighed_sum`). What divides it is gone by the time
    it is looked at: so the training's loss, which is what the backward passes were called with (`model/loss_given`,
    within 0.2%; of several ranks within a tenth, in the median), has to be from a quarter as many times the
    evaluation's as there are losses to four times as many, in each of the first three evaluations; and how many times
    it is changes by no more than a factor of three from one to the next: the evaluation has a mean, and the training a
    sum. Where the sum is divided by the weights' own, or weights add up to one, both are alike. Nothing is said of
    losses of two kinds, nor where rewards are logged: there weights are advantages. Where the configuration says that
    the loss is a sum (`reduction: sum`), it is an info finding.

    A training that goes astray at once has no such evaluations. There the gradient of the outputs says it: of a sum of
    n losses, eight or more, a target's weight times n (`model/loss_weight`) is from a quarter of n to four times n, in
    three looks in a row, which a mean has about 1; and the first loss that is logged, within the first four steps, is
    from half as many times to twice as many times ln of the output's width, the loss of a guess, as losses are summed.
    Where the logged loss is divided, and has risen to eight times what it began with by then, that is asked of the
    first one that a backward pass was called with.

    What to do: `(weights * losses).sum() / weights.sum()`.
    """

    name, family, kind, severity = "weights_undivided", "loss", "exploding", "warning"
    proves = "training"
    needs = ("=model/weighed_sum", "loss", "eval_loss|=model/loss_weight")
    least = 3
    about = "Losses that have weights are added up, and not divided by the weights' sum."
    thresholds: ClassVar = {
        "losses": (24.0, "that are added up; ours"),
        "weight": (4.0, "the mean weight at most, or one over it at least, as losses have it; ours"),
        "alike": (3.0, "times: from one evaluation to the next; ours"),
        "evaluations": (3.0, "the first ones; ours"),
        "same": (0.002, "of what the passes were called with, what is logged; ours"),
        "ranks": (0.1, "the same of several ranks, in the median; ours"),
        "few": (3.0, "steps of these; ours"),
        "begin": (8.0, "losses that are added up, where the gradient and the first loss say it; ours"),
        "looks": (3.0, "in a row, of the gradient; ours"),
        "guess": (2.0, "times a guess's loss for each of them, as the first loss, or one over it; ours"),
        "first": (3.0, "the last step that the first loss may be of; ours"),
        "astray": (8.0, "times the first logged loss, where backward passes were called with another; ours"),
    }
    causes = ("loss summed: losses that have weights are not divided by the sum of the weights",)
    remedies = ("divide the sum by that of the weights: `(weights * losses).sum() / weights.sum()`",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("eval_loss")

    def reset(self) -> None:
        super().reset()
        self._weights: list[Place] = []

    def begin(self) -> None:
        self._over, self._times = False, list[float]()

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/loss_weight"), self._of_gradient)]

    def _of_gradient(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """What a target weighs in the gradient, beside the first loss."""
        loss, count = history.role("loss"), watched(history, "weighed_sum", place)
        guess = count * math.log(max(1.0, watched(history, "output_width", place)))
        holds = count >= self.at["begin"] and 1 / self.at["weight"] <= value / count <= self.at["weight"]
        if not holds or (self._weights and self._weights[0][2] != place[2]):
            self._weights = []
        if not holds:
            return
        self._weights.append(place)
        if loss is None or not came_by(loss, place[1]) or len(self._weights) < self.at["looks"] or not guess > 0:
            return
        if history.role("reward") is not None or not loss.began[0] <= self.at["first"]:
            return
        given, first = history.channel("model/loss_given"), float(loss.first)
        if given is not None and came_by(given, place[1]) and given.began[0] <= self.at["first"]:
            largest = float(between(loss, 0, place[0] + 1, place[2]).max(initial=0.0))
            first = float(given.first) if largest >= self.at["astray"] * loss.first > 0 else first
        near = 1 / self.at["guess"] <= first / guess <= self.at["guess"]
        if not near or scaled_loss(history, place[1]) or not self.first(place[2]):
            return
        chosen = summed_by_choice(history)
        yield self.finding(
            self._weights[0][0], f"{count:.0f} losses, each with a weight of its own, are added up and not divided by "
            f"the weights: the first loss is {first:.3g}, and a guess has {guess / count:.3g}.", found=place[0],
            segment=place[2], severity="info" if chosen else self.severity, confidence=0.6 if chosen else 0.95,
            evidence={"losses": count, "times": rounded(first * count / guess), "standing": True},
        )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        loss, evaluation, count = history.role("loss"), self.channel(history), watched(history, "weighed_sum", place)
        if self._over or loss is None or evaluation is None:
            return
        times = usual(loss, place[0] - 1, *place[1:], 16) / value if value > 0 else math.nan
        near = max(times, self._times[-1]) <= self.at["alike"] * min(times, self._times[-1]) if self._times else True
        within = count >= self.at["losses"] and 1 / self.at["weight"] <= times / count <= self.at["weight"]
        self._over = not (near and within) or is_of_other_kind(evaluation.name, loss.name)
        self._times.append(times)
        if self._over or len(self._times) < self.at["evaluations"]:
            return
        self._over = True
        if not self._is_given(history, loss, place) or history.role("reward") is not None or not self.first(place[2]):
            return
        chosen = summed_by_choice(history)
        yield self.finding(
            0, f"{count:.0f} losses, each with a weight of its own, are added up and not divided by the weights: what "
            f"is logged is {times:.3g} times the evaluation's loss.", found=place[0], segment=place[2],
            severity="info" if chosen else self.severity, confidence=0.6 if chosen else 0.95,
            evidence={"losses": count, "times": rounded(times), "standing": True},
        )  # fmt: skip

    def _is_given(self, history: RunHistory, loss: Channel, place: Place) -> bool:
        """Whether the loss that is logged is the one that is differentiated, as far as both have the same steps."""
        given = history.channel("model/loss_given")
        if given is None:
            return False
        ours, logged = side_by_side(given, loss, place)
        if (history.facts.get("world_size") or 1) > 1:  # each has a loss of its own
            ratio = float(numpy.median(ours / logged)) if len(ours) >= self.at["few"] and logged.all() else 0.0
            return abs(ratio - 1) <= self.at["ranks"]
        return len(ours) > 0 and bool((abs(ours - logged) <= self.at["same"] * abs(logged)).all())


class WeightsCrossed(GraphRule):
    """Weights of rows lie the other way than their losses, so that each weighs all rows.

    In the graph of a loss eight losses or more, one of each row, are multiplied by weights that have no gradient, or
    divided by them, and what comes of it is as wide as it is long: weights [n, 1] times losses [n] are [n, n]. Its mean
    is that of the weights times that of the losses: no row has a weight of its own.

    What to do: `weights.squeeze(1) * losses`, of one shape.
    """

    name, family, kind, severity = "weights_crossed", "loss", "config", "warning"
    proves = "training"
    figures = ("weights_crossed",)
    needs = ("=model/weights_crossed", "loss")
    least = 8
    about = "Weights of rows lie the other way than their losses: each weighs all rows."
    thresholds: ClassVar = {"rows": (8.0, "of the loss; ours"), "numbers": (8.0, "rows of a batch; ours")}
    causes = ("wrong reduction: weights are broadcast over the batch, and each weighs all rows",)
    remedies = ("give weights the shape of the losses: `weights.squeeze(1) * losses`",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure >= self.at["numbers"]:
            yield self.finding(
                place[0], f"Losses of {figure:.0f} rows times their weights are {figure:.0f} by {figure:.0f} numbers: "
                "each weight is that of all rows.", found=found, segment=place[2], confidence=0.95,
                evidence={"rows": figure, "standing": True},
            )  # fmt: skip


RULES = (WeightsUndivided, WeightsCrossed)
