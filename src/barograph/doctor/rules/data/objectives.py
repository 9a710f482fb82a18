"""Objectives that can't be meant, as the graph of the loss shows them.

In:   figures of the watch, which reads signs, dimensions and weights from autograd's graph of the loss.
Out:  findings of `LossReversed`, `LabelSmoothing`, `SoftmaxOverRows`, `LossInput`, `SameSides`,
      `PairTemperature`, `ClassWeights`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import came_by, newest, summed_by_choice, usual
from barograph.doctor.kernel.curve import is_game, is_logarithm, rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched, without_logarithm

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class GraphRule(WatchRule):
    """A rule for what a figure of the loss's graph is in all looks up to a row of the loss. A figure is recorded when
    it changes: looks of two losses in turn, as of a generator and its judge, differ."""

    figures: ClassVar[tuple[str, ...]]

    def channel(self, history: RunHistory) -> Channel | None:
        loss = history.role("loss")
        if loss is None or all(history.channel(f"model/{figure}") is None for figure in self.figures):
            return None
        # where rewards are logged, such a loss is that of values
        return loss if history.role("reward") is not None or not is_game(history, loss) else None

    def reset(self) -> None:
        super().reset()
        self._place: Place | None = None

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if self._place is not None and history.facts.get("finished") and self.channel(history) is not None:
            yield from self._seen(history, (self._place[0], 1 << 62, self._place[2]))

    def begin(self) -> None:
        self._rows, self._place = 0, None
        self._waits = set(self.figures)  # the watch's records come behind the rows of a fast loop

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._rows += 1
        if self._rows >= self.at["rows"]:
            self._place = place
            yield from self._seen(history, place)

    def _seen(self, history: RunHistory, place: Place) -> Iterator[Finding]:
        """What the figures say of which nothing was known before. Those of a short run come behind all of its rows."""
        for name in self.figures:
            channel = history.channel(f"model/{name}")
            if channel is None or name not in self._waits:
                continue
            rows = channel.rows()
            here = (rows.segment == place[2]) & (rows.step < place[0]) & (rows.time <= place[1])
            values = rows.value[here]
            if len(values):
                self._waits.discard(name)
            if len(values) and (values == values[0]).all():
                first = int(rows.step[here][0]), *place[1:]
                yield from self.tell(history, name, float(values[0]), first, place[0])

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        """The figure was the same in all looks, since a step."""
        raise NotImplementedError


class LossReversed(GraphRule):
    """The negative of a loss is minimised: its sign is reversed.

    The loss is nothing but a cross-entropy, a mean square or another loss that is never negative (of preferences, the
    negative of a `logsigmoid`), with a minus before it, in all looks at its graph up to the 20th row; or it is a
    multiple of such losses, and below 0 in all 20, or in 20 rows in a row from a later step on. It falls without end,
    and the model learns the opposite. Two losses that are taken in turn, or a game, give no finding. An overlap of
    outputs and targets (Dice, the intersection over the union), whose best is 1, is to be largest: one that the loss
    has with a plus is reversed too. `nll_loss` of scores or probabilities is below 0 with the right sign, and a
    cross-entropy whose sums leave the answers out (`model/loss_hides`) may come below it.

    What to do: take the minus away; of an overlap `loss = 1 - dice`.
    """

    name, family, kind, severity = "loss_reversed", "loss", "config", "critical"
    proves = "training"
    figures = ("loss_reversed", "loss_multiplied", "overlap_minimised")
    needs = ("=model/loss_reversed|=model/loss_multiplied|=model/overlap_minimised", "loss")
    least = 20
    about = "The negative of a loss is minimised."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    causes = ("sign reversed: the negative of the loss is minimised",)
    remedies = ("take the minus before the loss away: `loss = criterion(output, target)`, and `loss.backward()`",)

    def begin(self) -> None:
        super().begin()
        self._below = self._since = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        yield from super().look(history, value, place)
        self._since = self._since if self._below else place[0]
        self._below = self._below + 1 if value < 0 else 0
        if self._below != self.at["rows"] or self._rows == self._below:
            return
        multiplied, other = (watched(history, name, place) for name in ("loss_multiplied", "loss_reversed"))
        hides = watched(history, "loss_hides", place) == 1
        if (multiplied == 1 or other == 0) and not hides and not without_logarithm(history, place):
            yield self.finding(
                self._since, f"The loss is below 0 since step {self._since}, and its graph is a multiple of losses "
                "that are never negative: the factor has turned.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"loss": rounded(value)}, key="turned",
                remedies=["look at what the loss is multiplied with: a weight, a schedule or a coefficient below 0"],
            )  # fmt: skip

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure != 1:
            return
        if name == "overlap_minimised":
            yield self.finding(
                place[0], "The overlap of outputs and targets is in the loss with a plus: steps make it smaller.",
                found=found, segment=place[2], confidence=_PROOF, key="overlap", evidence={"standing": True},
                causes=["sign reversed: the overlap itself is minimised, not what is missing to 1"],
                remedies=["`loss = 1 - dice`, and the same for an intersection over the union"],
            )  # fmt: skip
            return
        if name == "loss_multiplied":
            loss = history.role("loss")
            assert loss is not None
            below = newest(loss, found - 1, *place[1:], int(self.at["rows"]) - 1) < 0
            if not below.all() or without_logarithm(history, (found, *place[1:])):
                return
        yield self.finding(
            place[0], "What is minimised is the negative of a loss that is never negative: "
            + ("its graph has a minus behind the loss." if name == "loss_reversed" else
               "a multiple of it, which is below 0 since the first row."),
            found=found, segment=place[2], confidence=_PROOF, evidence={"standing": True},
        )  # fmt: skip


class LabelSmoothing(GraphRule):
    """Labels are smoothed so much that little of them is left.

    The graph of torch's cross-entropy has the smoothing ε in it: of half or more, the right class has hardly more
    weight than all others together. Usual are 0.05 to 0.2.

    What to do: `label_smoothing=0.1`, or none.
    """

    name, family, kind, severity = "label_smoothing", "data", "config", "warning"
    proves = "training"
    figures = ("label_smoothing",)
    needs = ("=model/label_smoothing", "loss")
    least = 20
    about = "Labels are smoothed so much that little of them is left."
    thresholds: ClassVar = {"rows": (20.0, "ours"), "most": (0.5, "of the targets' weight; ours")}
    causes = ("label smoothing too strong: the labels have little weight",)
    remedies = ("`label_smoothing=0.1`, or none",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure >= self.at["most"]:
            yield self.finding(
                place[0], f"The cross-entropy smooths labels by {figure:.3g}: {100 * figure:.0f}% of their weight is "
                "spread over all classes.", found=found, segment=place[2], confidence=_PROOF,
                evidence={"smoothing": figure},
            )  # fmt: skip


class SoftmaxOverRows(GraphRule):
    """The softmax of a cross-entropy runs over the rows of the batch, or over places, not over the classes.

    Of an output with a row an example and a column a class, the softmax is over the first dimension: each example's
    probabilities then depend on the others of its batch. Of one with places behind the classes, such as an image's, it
    is over a dimension of places. Either way the probabilities of the classes don't add up to 1. Nor do they where the
    logits [rows, places, classes] were reshaped to [rows, classes, places], or the latter to a row a place, without
    dimensions being exchanged: each softmax then runs over numbers of several places.

    What to do: `log_softmax` over the classes' dimension, or `cross_entropy`, which does it itself; `transpose(1, 2)`
    for `view` and `reshape`.
    """

    name, family, kind, severity = "softmax_over_rows", "data", "config", "critical"
    figures = ("softmax_over_rows",)
    needs = ("=model/softmax_over_rows", "loss")
    least = 20
    about = "The softmax runs over the rows of the batch or over places, not over the classes."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    remedies = ("`log_softmax` over the classes' dimension, or `cross_entropy` of the logits, which does it itself",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        over = {1.0: "the batch", 2.0: "places"}.get(figure)
        if figure == 3:
            yield self.finding(
                place[0], "The logits are reshaped where their dimensions are to be exchanged: the softmax of a place "
                "runs over numbers of several places.", found=found, segment=place[2], confidence=_PROOF,
                evidence={"standing": True}, key="torn",
                causes=["wrong dimension: logits are reshaped, not transposed, and places and classes are mixed"],
                remedies=["`logits.transpose(1, 2)` where `view` or `reshape` exchanges places and classes"],
            )  # fmt: skip
        elif over is not None:
            yield self.finding(
                place[0], f"The softmax of the cross-entropy runs over {over}, not over the classes.", found=found,
                segment=place[2], confidence=_PROOF, evidence={"standing": True},
                causes=[f"softmax over the wrong dimension: over {over}, not over the classes"],
            )  # fmt: skip


class LossInput(GraphRule):
    """A loss is given what it is not made for: probabilities or scores instead of logarithms, logits that are cut at 0.

    `nll_loss` picks the target's number out of a row and takes its negative: of logarithms of probabilities that is the
    cross-entropy. Of probabilities it is their negative, bounded below by −1, with next to no gradient where the model
    is wrong; of scores it has no bound at all. A ReLU before a softmax makes all unlikely classes equally likely, and a
    row whose scores are all below 0 has no gradient. An overlap of outputs and targets, as Dice's, is of chances: of
    what a layer gave it has no bounds, and its divisor goes through 0.

    What to do: `cross_entropy` of the last layer's scores; an overlap of their sigmoid or softmax.
    """

    name, family, kind, severity = "loss_input", "loss", "logits", "warning"
    figures = ("nll_of_probabilities", "nll_of_scores", "logits_cut", "overlap_of_scores")
    needs = ("=model/nll_of_probabilities|=model/logits_cut|=model/overlap_of_scores", "loss")
    least = 20
    about = "A loss is given probabilities, scores, or logits that are cut at 0."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    remedies = ("`cross_entropy` of the last layer's scores, without a softmax or ReLU in front",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure != 1:
            return
        what, cause = {
            "nll_of_probabilities": ("`nll_loss` is given probabilities, not their logarithms.",
                                     "logarithm missing: `nll_loss` of probabilities is minus their mean"),
            "nll_of_scores": ("`nll_loss` is given scores, not logarithms of probabilities: it has no least value.",
                              "softmax missing: `nll_loss` takes logarithms of probabilities, not scores"),
            "logits_cut": ("The logits go through a ReLU before the softmax: none can be below 0.",
                           "activation function on the output: logits are cut at 0 before the softmax"),
            "overlap_of_scores": ("The overlap of outputs and targets is of what a layer gave: no sigmoid or softmax "
                                  "comes before it.", "softmax missing: the overlap is of scores, not of chances"),
        }[name]  # fmt: skip
        overlap = ["`output.sigmoid()` or `output.softmax(1)` before the overlap"]
        yield self.finding(place[0], what, found=found, segment=place[2], confidence=_PROOF, causes=[cause], key=name,
                           severity="critical" if name.endswith("of_scores") else "warning",
                           remedies=overlap if name == "overlap_of_scores" else list(self.remedies),
                           evidence={"standing": True})  # fmt: skip


class SameSides(GraphRule):
    """Contrast of a batch with itself, with each example's similarity to itself among the answers.

    The similarities that a cross-entropy is of are those of a tensor with itself, and nothing is masked out of them.
    Where the loss of the first rows is below ln 2, the diagonal is the answer, and is the greatest of its row without
    any training: critical. Else the diagonal is a wrong answer that no embedding of length 1 gets below the right one,
    so that the loss can't fall below ln 2: a warning. From half of the loss of a guess on it may be either.

    What to do: compare with the other view, tower or sentence: `a @ b.T`; or mask the diagonal before the softmax.
    """

    name, family, kind, severity = "same_sides", "data", "config", "critical"
    proves = "training"
    figures = ("similarity_to_itself",)
    needs = ("=model/similarity_to_itself", "=model/loss_pairs", "loss")
    least = 20
    about = "Each example's similarity to itself is among the answers."
    thresholds: ClassVar = {
        "rows": (20.0, "ours"),
        "share": (0.95, "of ln 2, below which no loss of an example that is its own negative can be; ours"),
        "half": (0.5, "of the loss of a guess; ours"),
    }
    causes = ("positives are the examples themselves: the batch is compared with itself",)
    remedies = ("compare with the other view, tower or sentence: `a @ b.T`, not `a @ a.T`",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        pairs = watched(history, "loss_pairs", (found, *place[1:]))
        level = usual(history.role("loss"), found, place[1], place[2], int(self.at["rows"]))
        if figure == 1 and pairs > 1 and level < self.at["share"] * math.log(2):
            yield self.finding(
                place[0], f"The similarities of {pairs:.0f} examples are those of a tensor with itself: each is its "
                f"own positive, and the loss is {level:.3g}.", found=found, segment=place[2], confidence=_PROOF,
            )  # fmt: skip
        elif figure == 1 and pairs > 1 and math.isfinite(level):
            yield self.finding(
                place[0], f"The similarities of {pairs:.0f} examples are those of a tensor with itself, and the "
                "diagonal is not masked: each example is compared with itself.", found=found, segment=place[2],
                severity="warning", confidence=0.8,
                causes=["mask missing: the diagonal is not masked, so each example is its own negative",
                        *([self.causes[0]] if level < self.at["half"] * math.log(pairs) else [])],
                remedies=["`similarity.fill_diagonal_(-inf)` before the softmax, and the other view as the target"],
            )  # fmt: skip


class PairsRepelled(GraphRule):
    """The similarities of pairs go into the softmax of their cross-entropy with a minus.

    The graph shows products of embeddings of length 1, cosines, all with all of a batch, and between these and the
    softmax an odd number of negations: the loss is least where the right pairs are the least alike. Of one minus the
    cosines, which are distances, the negative is right. Two towers learn that as well as the contrary, with a loss that
    falls; what ranks by similarity afterwards has the right answer last.

    What to do: leave out the minus; of distances `-distance / temperature` is right, of similarities
    `similarity / temperature`.
    """

    name, family, kind, severity = "pairs_repelled", "data", "config", "warning"
    proves = "training"
    figures = ("pairs_repelled",)
    needs = ("=model/pairs_repelled", "loss")
    about = "Similarities of pairs go into the loss with the wrong sign."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    causes = ("sign reversed: the loss pushes the two sides of a pair apart, and the others together",)
    remedies = ("leave out the minus before the similarities: `cross_entropy(a @ b.T / temperature, …)`",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure == 1 and self.first(place[2]):
            yield self.finding(
                place[0], "The cosines of the batch's pairs are negated before the softmax of the loss: it is least "
                "where the right pairs are the least alike.", found=found, segment=place[2], confidence=_PROOF,
                evidence={"standing": True},
            )  # fmt: skip


ANY_LENGTH = "embeddings not normalised: their similarities are far apart"
TOO_LOW = "temperature too low: similarities are divided by too little"


def of_pairs_far_apart(history: RunHistory, place: Place) -> list[str]:
    """Why similarities of pairs are far apart before any training, by what the graph says of the embeddings."""
    found = watched(history, "pairs_any_length", place)
    return [ANY_LENGTH] if found == 1 else [TOO_LOW] if found == 0 else [ANY_LENGTH, TOO_LOW]


class PairTemperature(GraphRule):
    """Similarities of pairs begin far apart: the temperature is too low, or the embeddings are not normalised.

    A cross-entropy over the pairs of a batch begins at four times the loss of a guess or more, in the median of the
    first five rows. With embeddings of length 1 and a temperature of 0.07 it begins near a guess's. It is sure of
    answers that are wrong, and gradients are those of a few pairs. Where it is n times a guess's, or 2 n times that of
    two sides, for n pairs, or the graph shows a sum, the losses are added up, which is an info finding where the
    configuration says so (`reduction: sum`); at a thousand or more answers are what a mask hides. What the graph says
    of the embeddings decides between the two: they come straight from a layer, or have length 1. Or the graph shows
    similarities of embeddings of length 1, and no temperature at all: they are between −1 and 1, and the loss of n
    pairs can't fall below ln(1 + (n − 1) e⁻²).
    Or what multiplies them is a parameter of one number, as it is, whose name says that it is a logarithm, as
    `log_scale` does; or that begins, between 1 and 7, at the logarithm of a number with three figures, or of one over
    such a number, to the sixth figure, as 2.6593 is that of 1 / 0.07, and is no such number itself.

    What to do: `functional.normalize(embedding, dim=-1)`; a temperature of 0.05 to 0.2.
    """

    name, family, kind, severity = "pair_temperature", "data", "config", "warning"
    proves = "training"
    figures = ("loss_pairs", "pairs_unscaled", "scale_is_logarithm", "scale_at_start")
    needs = ("=model/loss_pairs", "loss")
    least = 20
    about = "Similarities of pairs begin far apart, or have no temperature."
    thresholds: ClassVar = {
        "rows": (20.0, "ours"),
        "times": (4.0, "the loss of a guess; ours"),
        "mask": (1000.0, "what a mask takes from scores, over ten answers; ours"),
        "sum": (0.1, "of n times a guess's, or of 2 n times, in which a sum over n pairs begins; ours"),
    }
    causes = (ANY_LENGTH, TOO_LOW)
    remedies = ("`functional.normalize(embedding, dim=-1)`, and a temperature of 0.05 to 0.2",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if name == "pairs_unscaled":
            if figure == 1:
                yield self.finding(
                    place[0], "The cross-entropy of pairs is of similarities of embeddings of length 1, and nothing "
                    "multiplies or divides them.", found=found, segment=place[2], confidence=_PROOF,
                    key=name, evidence={"standing": True},
                    causes=["temperature missing: similarities between -1 and 1 are nearly equal to a softmax"],
                    remedies=["`logits = a @ b.T / 0.07`, or `* log_scale.exp()` of a learnt scale"],
                )  # fmt: skip
            return
        if name in ("scale_is_logarithm", "scale_at_start"):
            if (figure == 1) if name == "scale_is_logarithm" else is_logarithm(figure):
                what = "whose name says" if name == "scale_is_logarithm" else f"that begins at {figure:.5g}, which says"
                yield self.finding(
                    place[0], f"The similarities of pairs are multiplied by a parameter {what} that it is a logarithm: "
                    "its exponential is not taken.", found=found, segment=place[2], confidence=0.9, key="logarithm",
                    evidence={"standing": True}, causes=[_LOGARITHM],
                    remedies=["`log_scale.exp() * a @ b.T`; else name it for what it is"],
                )  # fmt: skip
            return
        loss = history.role("loss")
        assert loss is not None
        rows = loss.rows(0, 5)
        level = float(numpy.median(rows.value)) if len(rows) == 5 and rows.step[0] < 20 else 0.0
        summed = history.channel("model/loss_summed")
        if (summed is not None and summed.end and summed.first > 1) or _first_evaluation(history, place) < level / 8:
            return  # a sum of many is large for that, where an evaluation has the mean
        if figure > 1 and level >= self.at["times"] * math.log(figure):
            adds = watched(history, "loss_adds", (found, *place[1:])) == 1
            unit = watched(history, "pairs_any_length", (found, *place[1:])) == 0
            causes, remedies = self._why(level, figure, adds, unit)
            chosen = len(causes) > len(self.causes) and causes[0] != _HIDDEN and summed_by_choice(history)
            if causes == list(self.causes):
                causes = of_pairs_far_apart(history, (found, *place[1:]))
            yield self.finding(
                int(rows.step[0]), f"The loss of {figure:.0f} pairs begins at {level:.4g}, where a guess has "
                f"{math.log(figure):.4g}.", found=found, segment=place[2], confidence=_PROOF,
                evidence={"loss": level, "pairs": figure}, causes=causes, remedies=remedies,
                severity="info" if chosen else self.severity,
            )  # fmt: skip

    def _why(self, level: float, pairs: float, adds: bool, unit: bool) -> tuple[list[str], list[str]]:
        """Causes and remedies of a loss of pairs that begins so high. adds: whether the graph shows a sum. unit:
        whether embeddings have length 1, of which a usual temperature makes no more than twice a guess's."""
        times = level / math.log(pairs) / pairs
        added = adds and times < 2 * self.at["times"]  # of two sides: less than what is far apart for another reason
        if level >= self.at["mask"] and not added:
            return [_HIDDEN, *self.causes], ["print the labels of a batch beside the mask of its similarities"]
        near = unit and 1 - self.at["sum"] <= times <= 2 * (1 + self.at["sum"])
        if added or near or any(abs(times / sides - 1) <= self.at["sum"] for sides in (1, 2)):
            cause = f"loss summed: over {pairs:.0f} pairs, not averaged"
            return [cause, *self.causes], ["the mean over pairs: `reduction='mean'`", *self.remedies]
        return list(self.causes), list(self.remedies)


_LOGARITHM = "temperature missing: a logarithm multiplies the similarities, and not its exponential"
_HIDDEN = "labels shifted: answers are what the mask of similarities hides"


def _first_evaluation(history: RunHistory, place: Place) -> float:
    """The first evaluation's loss that had come by then; NaN if there is none."""
    loss = history.role("eval_loss")
    return float(loss.first) if loss is not None and came_by(loss, place[1]) else math.nan


class ClassWeights(WatchRule):
    """Frequent classes have the larger weights in the loss.

    Each row's weight in a cross-entropy, and each target's in logistic losses, shows in its gradient. Over the targets
    that were looked at, 500 or more, the weights go up with how frequent a class is, by three tenths of a power of it
    or more: a class that is ten times as frequent has twice the weight. Weights that make up for rare classes go the
    other way. Where four classes or more have the frequencies themselves as weights, or their roots, to what chance
    leaves open, 200 targets and two looks are enough. Or the weights of four classes or more are one over the
    frequencies, or over their roots, to what chance leaves open, if both are sorted; and each class has another's.

    What to do: divide by the counts: `weight = total / (classes * counts)`; the counts in the order of the classes'
    numbers.
    """

    name, family, kind, severity = "class_weights", "data", "config", "warning"
    proves = "training"
    series = "model/class_targets"
    needs = ("=model/class_weight_slope|=model/class_weights_elsewhere|=model/class_weights_inverted",
             "=model/class_targets")  # fmt: skip
    least = 5
    about = "Frequent classes have the larger weights in the loss."
    thresholds: ClassVar = {
        "targets": (500.0, "that were looked at; ours"),
        "fewer": (200.0, "the same, where weights are of other classes, or the counts, five of each; ours"),
        "power": (0.3, "of the frequency; ours"),
        "looks": (5.0, "in a row; ours"),
        "exact": (2.0, "the same, of weights that are the frequencies or their roots; ours"),
        "others": (3.0, "the same, of weights that are those of other classes; ours"),
    }
    causes = ("class weights inverted: frequent classes have the larger weights",)
    remedies = ("divide by the counts: `weight = total / (classes * counts)`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        enough, power = value >= self.at["targets"], watched(history, "class_weight_slope", place)
        elsewhere = watched(history, "class_weights_elsewhere", place) if value >= self.at["fewer"] else 0.0
        counts = value >= self.at["fewer"] and watched(history, "class_weights_inverted", place) == 1
        rows = not watched(history, "loss_ranks", place) >= 0  # of answers that are compared, tokens weigh by these
        counts &= not power < self.at["power"]
        holds = (enough and power >= self.at["power"]) or counts or elsewhere > 0
        looks = self.at["exact" if counts else "others" if elsewhere > 0 else "looks"]
        if self.lasts(rows and holds, place, looks):
            if elsewhere > 0:
                shifted = ["labels shifted: by one class, or the weights are"] if elsewhere > 1 else []
                yield self.finding(
                    0, "Weights of classes make up for how rare classes are, but not each for its own: they are in "
                    "another order.", found=place[0], segment=place[2], confidence=_PROOF, key="order",
                    evidence={"standing": True}, causes=[*shifted, _OTHER_ORDER], remedies=[_IN_ORDER],
                )  # fmt: skip
                return
            yield self.finding(
                0, f"The loss weights classes by {f'the power {power:.2f} of ' if power == power else ''}how "
                "frequent they are: rare ones count less still.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"power": power} if power == power else {"standing": True},
            )  # fmt: skip


_OTHER_ORDER = "class weights in the wrong order: each class has the weight of another"
_IN_ORDER = "count with `torch.bincount(labels, minlength=classes)`, and don't sort: weights go by the class's number"
_PROOF = 0.95

RULES = (LossReversed, LabelSmoothing, SoftmaxOverRows, LossInput, SameSides, PairsRepelled, PairTemperature,
         ClassWeights)  # fmt: skip
