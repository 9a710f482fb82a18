"""A sum of squares where clipping, or an evaluation, expects a mean; and the square of a mean.

In:   what the watch saw in the graph of a loss, and how much of the gradient clipping leaves; the evaluation's loss.
Out:  findings of `SquaresAdded`, `SquaresSummed`, `ErrorsAveraged`, `SumBesideMean`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import scaled_loss, summed_by_choice, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.data.objectives import GraphRule
from barograph.doctor.rules.loss.given import side_by_side

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class SquaresAdded(WatchRule):
    """The squared differences of each example are added up, and clipping cuts every step for it.

    In the graph of the loss, which is nothing else, squares or sizes of differences are added up, 64 or more for each
    that an average is over, such as the pixels of a picture; or the loss is 64 times their mean or more
    (`model/square_weight`), a whole number, and its graph has a sum, whatever it is divided by. In three looks in a row
    clipping leaves a twentieth of the gradient or less, and of the gradient of the mean it would leave a quarter at
    least: each step has the length that clipping allows, whatever the loss says.

    What to do: the mean over all elements, `functional.mse_loss(output, target)`.
    """

    name, family, kind, severity = "squares_added", "loss", "clipping", "warning"
    series = "model/clip_coefficient"
    needs = ("=model/clip_coefficient", "=model/squares_added|=model/square_weight")
    least = 3
    about = "Squared differences are added up, and clipping cuts every step for it."
    thresholds: ClassVar = {
        "elements": (64.0, "of a sum; ours"),
        "looks": (3.0, "in a row; ours"),
        "left": (0.05, "of the gradient; ours"),
        "of_mean": (0.25, "of the gradient of the mean; ours"),
    }

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        count = watched(history, "squares_added", place)
        count = count if count == count else _weight_of_sum(history, place)
        cut = count >= self.at["elements"] and value <= self.at["left"] and value * count >= self.at["of_mean"]
        if not self.lasts(cut, place, self.at["looks"]):
            return
        of_batch = watched(history, "squares_of_batch", place)
        what = {1.0: "elements of a batch", 0.0: "elements of each example"}.get(of_batch, "elements")
        yield self.finding(
            0, f"The squared differences of {count:.0f} {what} are added up, and clipping leaves {value:.2g} of the "
            f"gradient; of that of their mean it would leave {min(1.0, value * count):.2g}.", found=place[0],
            segment=place[2], confidence=0.95,
            evidence={"elements": count, "left": rounded(value), "standing": True},
            causes=[f"loss summed: over {count:.0f} {what}, not averaged"],
            remedies=["take the mean over all elements: `functional.mse_loss(output, target)`"],
        )  # fmt: skip


class SquaresSummed(WatchRule):
    """Squared differences are added up, and the evaluation averages them.

    In the graph of the loss, which is nothing else but weights of its rows, squares or sizes of differences, or of an
    output and the noise that it is to undo, are added up, 8 or more for each that an average is over; or the loss is 8
    times their mean or more (`model/square_weight`), a whole number, and its graph has a sum, as where it is divided by
    the number of micro-batches. Where a number divides the whole, it counts that the backward passes of each step that
    was looked at were called with what is logged, in all: a sum that is divided by the number of them, or by 1. At two
    evaluations in a row their loss times that number is the training's, from a third of it to three times: the
    training's loss is a sum, and the evaluation's the mean. Where the configuration says that the loss is a sum
    (`reduction: sum`), it is an info finding.

    What to do: the mean over all elements, `functional.mse_loss(output, target)`; or divide the sum by their number.
    """

    name, family, kind, severity = "squares_summed", "loss", "exploding", "warning"
    proves = "training"
    needs = (
        "=model/squares_added|=model/weighted_squares_added|=model/scaled_squares_added|=model/square_weight",
        "loss", "eval_loss",
    )  # fmt: skip
    least = 2
    about = "Squared differences are added up in the training, and averaged in the evaluation."
    thresholds: ClassVar = {
        "elements": (8.0, "of a sum; ours"),
        "evaluations": (2.0, "in a row; ours"),
        "ratio": (3.0, "times that number, or a third of it: of training and evaluation; ours"),
    }
    remedies = ("take the mean over all elements: `functional.mse_loss(output, target)`",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("eval_loss")

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("squares_added", "weighted_squares_added", "scaled_squares_added")
        added = (watched(history, name, place) for name in names[: 2 + _is_given_whole(history, place)])
        count = max((one for one in added if one == one), default=_weight_of_sum(history, place))
        loss, step = history.role("loss"), place[0] - 1  # of rows whose step is over
        if loss is None or count < self.at["elements"] or not value > 0:
            return
        ratio = usual(loss, step, *place[1:], 16) / value / count
        if not self.lasts(1 / self.at["ratio"] < ratio < self.at["ratio"], place, self.at["evaluations"]):
            return
        chosen = summed_by_choice(history)
        yield self.finding(
            0, f"Squared differences are added up in the loss, {count:.0f} for each that an average is over; the "
            f"evaluation's loss of {value:.3g} is their mean.", found=place[0], segment=place[2],
            severity="info" if chosen else self.severity, confidence=0.6 if chosen else 0.95,
            evidence={"elements": count, "standing": True},
            causes=[f"loss summed: over {count:.0f} elements, not averaged"],
        )  # fmt: skip


class ErrorsAveraged(GraphRule):
    """Differences are averaged before they are squared: with either sign they make up for each other.

    The graph shows that the loss is nothing but squares or sizes of means, or sums, over 8 or more differences between
    an output and what has no gradient, as `(output - target).mean(dim=1).pow(2).mean()`: an output that is wrong
    everywhere has a loss of 0 if it is right on the average. The mean square averages squares. Where what is compared
    are sums, as energies of all atoms, the difference is taken behind the sum, and where other terms are added, such a
    square may be one of them: nothing is said of either.

    What to do: the square first, then the mean: `functional.mse_loss(output, target)`.
    """

    name, family, kind, severity = "errors_averaged", "loss", "config", "warning"
    proves = "training"
    figures = ("errors_averaged",)
    needs = ("=model/errors_averaged", "loss")
    least = 20
    about = "Differences are averaged before they are squared."
    thresholds: ClassVar = {"rows": (20.0, "ours"), "differences": (8.0, "of each mean; ours")}
    causes = ("wrong reduction: differences are averaged over the wrong axis, before they are squared",)
    remedies = ("take squares first, then their mean: `functional.mse_loss(output, target)`",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure >= self.at["differences"]:
            yield self.finding(
                place[0], f"The loss is of means, or sums, of {figure:.0f} differences between output and target each: "
                "those of either sign make up for each other before they are squared.", found=found, segment=place[2],
                confidence=0.95, evidence={"differences": figure, "standing": True},
            )  # fmt: skip


class SumBesideMean(GraphRule):
    """One part of the loss is a sum over a batch, another one a mean.

    In the graph of the loss a sum of 64 numbers or more, which come from a layer, is added to a mean, and nothing
    multiplies or divides it on the way: it weighs as much beside the mean as that many of its own means would, and more
    in a larger batch. Sums of weights, and of averages, as of several layers, do not count; nor do correlations of
    columns, nor anything that is multiplied by a factor, in the sum or behind it: the graph does not know it when the
    backward pass is over, and weights may add up to one.

    Or to the mean of a preference's logistic losses the sum of all log probabilities of four texts or more is added,
    times a number, and divided by none; and the first loss, as it is logged or as a backward pass is called with it
    (`model/loss_given`, where another part alone is logged), is more than twice what ln 2 and the loss of a guess at a
    token are together, as no mean with a weight up to two would begin.

    What to do: the mean of both; or divide the sum by the number of examples.
    """

    name, family, kind, severity = "sum_beside_mean", "loss", "config", "warning"
    proves = "training"
    figures = ("sum_beside_mean", "total_beside_mean")
    needs = ("=model/sum_beside_mean|=model/total_beside_mean", "loss")
    least = 20
    about = "One part of the loss is a sum over a batch, another one a mean."
    thresholds: ClassVar = {
        "rows": (20.0, "ours"),
        "numbers": (64.0, "that are added up; ours"),
        "texts": (4.0, "whose log probabilities are; ours"),
        "guess": (2.0, "times: of ln 2 and the loss of a guess at a token; ours"),
    }
    causes = ("wrong reduction: one part of the loss is a sum, the other a mean",)
    remedies = ("take the mean of both parts, or divide the sum by the number of examples",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if name == "total_beside_mean":
            loss, width = history.role("loss"), watched(history, "output_width", (found, *place[1:]))
            guess = self.at["guess"] * (math.log(2) + math.log(width)) if width > 1 else math.inf
            first = max(_first_given(history, place), loss.first if loss is not None else math.nan)
            if figure >= self.at["texts"] and loss is not None and loss.began[0] <= _BEGUN and first > guess:
                yield self.finding(
                    place[0], f"To a mean over pairs the sum of all log probabilities of {figure:.0f} texts is added, "
                    f"which nothing divides: the loss begins at {first:.4g}.", found=found, segment=place[2],
                    confidence=0.9, key=name, evidence={"texts": figure, "standing": True},
                )  # fmt: skip
        elif figure >= self.at["numbers"]:
            yield self.finding(
                place[0], f"A sum of {figure:.0f} numbers is added to a mean in the loss, and nothing divides it.",
                found=found, segment=place[2], confidence=0.9, evidence={"numbers": figure, "standing": True},
            )  # fmt: skip


def _first_given(history: RunHistory, place: Place) -> float:
    """What each backward pass of the first step was called with, in the mean; minus infinity where that is not known,
    or is multiplied for half precision."""
    given, passes = (history.channel(f"model/{name}") for name in ("loss_given", "losses_given"))
    if given is None or passes is None or not given.end or not passes.end or scaled_loss(history, place[1]):
        return -math.inf
    return given.first / passes.first if given.began[0] <= _BEGUN and passes.first else -math.inf


def _is_given_whole(history: RunHistory, place: Place) -> bool:
    """Whether the backward passes of each step that was looked at were called with the logged loss, in all."""
    given, loss = history.channel("model/loss_given"), history.role("loss")
    if given is None or loss is None or scaled_loss(history, place[1]):
        return False
    ours, logged = side_by_side(given, loss, place)
    return len(ours) > 0 and bool(numpy.allclose(ours, logged, rtol=_LOGGED, atol=0.0))


def _weight_of_sum(history: RunHistory, place: Place) -> float:
    """How many times the mean of squares a loss is whose graph has a sum, over all passes of a step; 0 where it is not
    to be seen."""
    weight, passes = (watched(history, name, place) for name in ("square_weight", "backwards"))
    weight *= max(1.0, passes) if passes == passes else 1.0
    whole = 1 <= weight < math.inf and abs(weight / round(weight) - 1) < _WHOLE
    summed = watched(history, "loss_adds", place) == 1 and not scaled_loss(history, place[1])
    return float(round(weight)) if whole and summed else 0.0


_BEGUN = 20  # a run whose first row is later goes on with another one's weights
_WHOLE = 2e-3  # off a whole number, a weight
_LOGGED = 1e-3  # of a loss, that may be rounded where it is logged

RULES = (SquaresAdded, SquaresSummed, ErrorsAveraged, SumBesideMean)
