"""Losses of a special make that can't be meant so, as their graph or their weights show them: alignments and
divergences, classes that are made up for twice.

In:   figures of the watch, which reads lengths and functions from autograd's graph of the loss.
Out:  findings of `Alignment`, `AlignmentLengths`, `AlignmentBelowZero`, `DivergenceInput`, `Attraction`, `MarginKept`,
      `TrainedTarget`, `FocalOfMean`, `PairsAcross`, `ClassesTwice`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.data.objectives import GraphRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95


class Alignment(GraphRule):
    """The outputs of a connectionist temporal classification (CTC) are reshaped where they should be transposed, or
    come without a log-softmax.

    The loss wants places before rows, `[T, N, classes]`. A `view` or `reshape` from `[N, T, classes]` leaves the
    numbers where they are, and mixes the places of all examples. And it wants the result of `log_softmax` over the
    classes: the graph has none, or one over a dimension of another size.

    What to do: `output.log_softmax(-1).transpose(0, 1)`.
    """

    name, family, kind, severity = "alignment", "data", "config", "critical"
    figures = ("ctc_reshaped", "ctc_unnormalised", "ctc_across")
    needs = ("=model/ctc_reshaped", "loss")
    least = 20
    about = "The outputs of an alignment loss are reshaped, or come without a log-softmax."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    remedies = ("`functional.ctc_loss(output.log_softmax(-1).transpose(0, 1), …)` of an output `[N, T, classes]`",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        said = {
            "ctc_reshaped": ("outputs are reshaped to places before rows: numbers stay where they are, and the places "
                             "of all examples are mixed", "reshaped, not transposed: examples are mixed"),
            "ctc_unnormalised": ("outputs are not logarithms of chances: no log-softmax comes before the loss",
                                 "softmax missing: the loss takes logits for logarithms of chances"),
            "ctc_across": ("log-softmax before the loss runs over another dimension than the classes",
                           "softmax over the wrong dimension: not over the classes"),
        }  # fmt: skip
        if figure == 1:
            text, cause = said[name]
            yield self.finding(
                place[0], f"The {text}.", found=found, segment=place[2], confidence=_PROOF, key=name, causes=[cause],
                evidence={"standing": True},
            )  # fmt: skip


class AlignmentLengths(WatchRule):
    """Sequences are shorter than their targets, so that no alignment is possible.

    By the lengths that a CTC loss is given, a tenth of the sequences or more have fewer places than targets, in the
    median of the first four looks and of all later ones. Their loss is infinite, or 0 with `zero_infinity`. Where the
    longest is as long as all that the model gives, or even that is not longer than some targets, and the numbers of
    targets differ, lengths are right, and the model leaves too few places.

    What to do: lengths are those of the outputs, after what the model leaves out of the sequence; targets' lengths
    count targets, not padding; a smaller stride, or fewer symbols a second.
    """

    name, family, kind, severity = "alignment_lengths", "data", "data", "warning"
    series = "model/ctc_short"
    needs = ("=model/ctc_short", "loss")
    about = "Sequences are shorter than their targets, so that no alignment is possible."
    thresholds: ClassVar = {"share": (0.1, "of the sequences; ours"), "rows": (20.0, "of the loss; ours")}
    causes = ("lengths wrong: sequences are shorter than their targets",)
    remedies = (
        "a smaller stride or less pooling leaves more places; larger units make fewer targets",
        "give the lengths of the outputs: those of the inputs, divided once by what the model subsamples",
        "give the lengths of the targets without padding",
    )

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        short, loss = history.channel(self.series), history.role("loss")
        if short is None or loss is None:
            return
        rows = self._cursor.new(loss)
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None
            place = int(rows.step[at]), int(rows.time[at]), int(rows.segment[at])
            if rows.first + at + 1 != int(self.at["rows"]):
                continue
            seen = short.rows()
            here = (seen.segment == place[2]) & (seen.step < place[0]) & (seen.time <= place[1])
            share = float(numpy.median(seen.value[here])) if here.any() else 0.0
            if share >= self.at["share"]:
                yield self.finding(
                    int(seen.step[here][0]), f"{100 * share:.0f}% of the sequences have fewer places than targets.",
                    found=place[0], segment=place[2], confidence=_PROOF, causes=short_causes(history, place),
                    evidence={"share": rounded(share), "standing": True},
                )  # fmt: skip


def short_causes(history: RunHistory, place: Place) -> list[str]:
    """Why sequences are shorter than their targets, the likeliest first."""
    full = watched(history, "ctc_full", place) == 1
    outputs = "targets longer than outputs: the model leaves fewer places than there are targets"
    return [outputs, *AlignmentLengths.causes] if full else list(AlignmentLengths.causes)


class AlignmentBelowZero(WatchRule):
    """The loss of an alignment is below 0: the number of the blank is one that targets have.

    A connectionist temporal classification's loss is the negative logarithm of the chance that the outputs say the
    targets: it is 0 at the least. Here a log-softmax over the classes comes before it, its mean or sum is all of the
    loss, and in three looks of a launch what was differentiated is below −0.01. Where a target has the blank's number,
    paths through it are counted more than once, and their chances come to more than 1.

    What to do: `blank` is a number that no target has: 0 where symbols are numbered from 1, or the last class.
    """

    name, family, kind, severity = "alignment_below_zero", "data", "config", "warning"
    proves = "training"
    series = "model/loss_given"
    needs = ("=model/ctc_alone", "=model/loss_given")
    about = "The loss of an alignment is below 0: targets have the number of the blank."
    thresholds: ClassVar = {"looks": (3.0, "of a launch; ours"), "below": (-0.01, "the loss; ours")}
    causes = ("labels shifted: targets have the number of the blank, by one or by another table",)
    remedies = ("give the number of the blank that the table of symbols has: `ctc_loss(…, blank=len(symbols))`",)

    def begin(self) -> None:
        self._below: list[Place] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if not value < self.at["below"] or watched(history, "ctc_alone", place) != 1:
            return
        self._below.append(place)
        if len(self._below) == self.at["looks"] and self.first(place[2]):
            yield self.finding(
                self._below[0][0], f"The loss of an alignment is below 0, {value:.3g}, where a chance of 1 has 0: the "
                "number of the blank is among the targets.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"loss": rounded(value), "standing": True},
            )  # fmt: skip


class DivergenceInput(GraphRule):
    """A divergence is given chances where it takes their logarithms, or is averaged over the classes.

    `kl_div` takes the logarithms of chances first. The graph has a softmax there, and no logarithm: what is summed is
    below 0, where a divergence never is, and smallest where all chances are one. Its `reduction="mean"`, which is the
    default, divides by the number of classes, too: of eight or more that is a warning, for the divergence is that many
    times too small beside other losses, and the logged one is not the divergence.

    What to do: `functional.kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")`.
    """

    name, family, kind, severity = "divergence_input", "data", "config", "critical"
    figures = ("divergence_of_chances", "divergence_averaged")
    needs = ("=model/divergence_of_chances|=model/divergence_averaged", "loss")
    least = 20
    about = "A divergence is given chances where it takes their logarithms, or is averaged over the classes."
    thresholds: ClassVar = {"rows": (20.0, "ours"), "classes": (8.0, "that the mean is over; ours")}
    causes = ("logarithm missing: `kl_div` is given chances, not their logarithms",)
    remedies = ('`functional.kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")`',)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if name == "divergence_averaged":
            if figure >= self.at["classes"]:
                yield self.finding(
                    place[0], f"A divergence is averaged over {figure:.0f} classes, too: it is divided by their number "
                    "as well as by that of the rows.", found=found, segment=place[2], severity="warning",
                    confidence=0.8, key="averaged",
                    causes=["wrong reduction: `kl_div` divides by the number of classes, where rows are to be averaged",
                            "loss terms out of balance"],
                    remedies=['`reduction="batchmean"`, of outputs that are flattened to [rows, classes]'],
                )  # fmt: skip
        elif figure == 1:
            yield self.finding(
                place[0], "The graph of the loss has a divergence of chances, where it takes their logarithms.",
                found=found, segment=place[2], confidence=_PROOF, evidence={"standing": True},
            )  # fmt: skip


class Attraction(GraphRule):
    """The loss does nothing but pull outputs together, or trains the target of a value with the value.

    The graph is made of nothing but distances, or similarities, of outputs that both have gradients. It is least where
    every input gives the same output: there are no negatives, and the gradient is stopped on neither side. A finding
    where the loss of the last 64 of 128 rows is a tenth of the first five's or less, or a similarity is within 3% of
    its best. Of one pass a step, as of an equation that is to hold, only similarities count. Where one side was picked
    by an index it is the value of a chosen action, and the other is its target: each step moves the target towards the
    value, too.

    What to do: negatives, or `detach()` on one side; targets under `no_grad()`.
    """

    name, family, kind, severity = "attraction", "data", "config", "warning"
    figures = ("loss_attracts",)
    needs = ("=model/loss_attracts", "loss")
    least = 20
    about = "The loss does nothing but pull outputs together, or trains the target of a value with the value."
    thresholds: ClassVar = {
        "rows": (20.0, "ours"),
        "later": (128.0, "rows; ours"),
        "left": (0.1, "of the first five rows' loss; ours"),
        "best": (0.03, "of a similarity; ours"),
    }
    causes = ("outputs collapsed: nothing keeps them apart, and no gradient is stopped",)
    remedies = ("add negatives, or stop the gradient of one side: `target = model(view).detach()`",)

    def begin(self) -> None:
        super().begin()
        self._first: list[float] = []
        self._last: list[float] = []
        self._began: Place | None = None

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure == 2 and history.role("reward") is not None:
            yield self.finding(
                place[0], "The target of a value is computed with gradient: a step moves it towards the value.",
                found=found, segment=place[2], confidence=_PROOF, key="target", evidence={"standing": True},
                causes=["target not detached: its gradient is part of the step"],
                remedies=["compute targets under `torch.no_grad()`, or `target.detach()`"],
            )  # fmt: skip
        elif figure == 1:
            self._began = place

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        yield from super().look(history, value, place)
        self._first = [*self._first, value] if len(self._first) < 5 else self._first
        self._last = [*self._last[-63:], value]
        if self._began is None or self._rows < self.at["later"] or self._rows % 64:
            return
        first, last = float(numpy.median(self._first)), float(numpy.median(self._last))
        similar = first < 0 and any(abs(last + best) <= self.at["best"] * best for best in (1.0, 2.0))
        several = watched(history, "passes", place) > 1
        if (similar or (several and 0 <= last <= self.at["left"] * first)) and self.first(place[2]):
            yield self.finding(
                self._began[0], f"The loss is made of nothing but distances between outputs, and went from {first:.3g} "
                f"to {last:.3g}: it is least where all outputs are one.", found=place[0], segment=place[2],
                confidence=_PROOF, evidence={"loss": rounded(last), "standing": True},
            )  # fmt: skip


class MarginKept(GraphRule):
    """The loss of a margin stays where it began: what should be near and what should be far are equally far.

    The graph has nothing above what is left of a difference and a margin. Where distances are equal, the loss is the
    margin. After 300 rows the mean of the last 128 is at most a tenth below that of the first 20, and within 1% of that
    of the 128 before, while steps change the weights by a usual size.

    What to do: print labels of a triplet: anchor and positive are of one class, the negative of another.
    """

    name, family, kind, severity = "margin_kept", "data", "data", "warning"
    figures = ("loss_hinge",)
    needs = ("=model/loss_hinge", "loss", "=model/update_p50")
    least = 300
    about = "The loss of a margin stays where it began."
    thresholds: ClassVar = {
        "rows": (20.0, "ours"),
        "later": (300.0, "rows; ours"),
        "fell": (0.1, "of the first rows' loss, at most; ours"),
        "flat": (0.01, "of it, between 128 rows; ours"),
    }
    causes = (
        "positives and negatives are alike: swapped, or of one class",
        "outputs collapsed: all distances are equal",
    )
    remedies = (
        "print the labels of some triplets: anchor and positive are of one class, the negative of another",
        "draw negatives at random first: the hardest ones pull all outputs together",
    )

    def begin(self) -> None:
        super().begin()
        self._first: list[float] = []
        self._last: list[float] = []
        self._hinge = False

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        self._hinge = figure == 1
        yield from ()

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        yield from super().look(history, value, place)
        self._first = [*self._first, value] if len(self._first) < self.at["rows"] else self._first
        self._last = [*self._last[-255:], value]
        if not self._hinge or self._rows < self.at["later"] or self._rows % 64:
            return
        first = float(numpy.mean(self._first))
        early, late = (float(numpy.mean(half)) for half in (self._last[:-128], self._last[-128:]))
        flat = abs(late - early) <= self.at["flat"] * first
        kept = flat and (1 - self.at["fell"]) * first <= late <= (1 + self.at["flat"]) * first
        moves = usual(history.channel("model/update_p50"), *place) > _LEAST_UPDATE
        if moves and kept and self.first(place[2]):
            yield self.finding(
                0, f"The loss of a margin is {late:.4g} after {self._rows} rows, and began at {first:.4g}: what "
                "should be near and what should be far are equally far.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"loss": rounded(late)},
            )  # fmt: skip


_LEAST_UPDATE = 1e-4  # of the weights, in a step that could learn something


class TrainedTarget(GraphRule):
    """The target of a divergence is trained, and by nothing else than this divergence.

    Torch's `kl_div` has a gradient for its target, too. The loss reaches the parameters behind the target by no other
    way, an optimizer holds them all, and what is compared with the target has parameters of its own: a teacher that
    learns to say what its student says. Networks that learn from each other have losses of their own.

    What to do: compute the target under `no_grad()`, and give the optimizer the student's parameters.
    """

    name, family, kind, severity = "trained_target", "data", "data", "warning"
    figures = ("target_trained",)
    needs = ("=model/target_trained", "loss")
    least = 20
    about = "The target of a divergence is trained, by nothing but the divergence."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    causes = ("teacher is trained: the target of the divergence is not detached",)
    remedies = (
        "compute the target under `torch.no_grad()`, or freeze what gives it: `teacher.requires_grad_(False)`",
        "give the optimizer the parameters of the student alone",
    )

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        yield self.finding(
            place[0], "The target of a divergence is computed with gradient, by parameters that an optimizer holds and "
            "that nothing else in the loss trains.", found=found, segment=place[2], confidence=_PROOF,
            evidence={"standing": True},
        )  # fmt: skip


class FocalOfMean(GraphRule):
    """The focal factor is that of a mean loss: it weighs the whole batch, and no row of it.

    A focal loss multiplies the cross-entropy of each row by a power of one less the chance of its target, so that rows
    that are known count less. The graph shows one mean over several rows, and that it is multiplied by a power of one
    less its own negative's exponential: all rows have the same factor, which goes to 0 with the mean loss, and the
    steps with it. Where there are several such products, as of pictures one by one, nothing is said; nor of a power of
    0.

    What to do: `reduction="none"` first, the factor of each row, then the mean.
    """

    name, family, kind, severity = "focal_of_mean", "loss", "config", "warning"
    proves = "training"
    figures = ("focal_of_mean",)
    needs = ("=model/focal_of_mean", "loss")
    least = 20
    about = "The focal factor is that of a mean loss, and not of each row."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    causes = ("wrong reduction: the loss is averaged before its focal factor is taken",)
    remedies = (
        "`each = cross_entropy(output, target, reduction='none')`; `((1 - exp(-each)) ** gamma * each).mean()`",
    )

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure == 1:
            yield self.finding(
                place[0], "The focal factor is made of the batch's mean loss: it is the same for all rows.",
                found=found, segment=place[2], confidence=_PROOF, evidence={"standing": True},
            )  # fmt: skip


class PairsAcross(GraphRule):
    """The embeddings of pairs are normalised over the batch, each column of it, and not each example by itself.

    The graph of a cross-entropy, or of a logistic loss each, over the similarities of all pairs of a batch shows that
    one side or both are divided by the lengths of the batch's columns. So an embedding depends on the others of its
    batch, similarities are other numbers than cosines, and evaluations with batches of other sizes are on another
    scale. Losses of correlations between columns, which want that, have neither over pairs.

    Or one side of the pairs is divided by its rows' lengths, and the other one is what a linear layer gave, and both
    are trained: similarities grow with the lengths of one side, as cosines never do. Sides without a gradient, as of a
    teacher or a queue, and classes of a layer are left out.

    What to do: `functional.normalize(embedding, dim=-1)`, of both sides.
    """

    name, family, kind, severity = "pairs_across", "data", "config", "warning"
    proves = "training"
    figures = ("pairs_across", "pairs_one_length")
    needs = ("=model/pairs_across|=model/pairs_one_length", "loss")
    least = 20
    about = "Embeddings of pairs are normalised over the batch, or on one side alone."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    causes = ("normalised over the batch: embeddings are divided by the lengths of columns, the wrong dimension",)
    remedies = ("`functional.normalize(embedding, dim=-1)`: each example by itself",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure == 1 and name == "pairs_one_length":
            yield self.finding(
                place[0], "One side of the pairs is brought to length 1, and the other one is what a layer gave: "
                "similarities grow with its length.", found=found, segment=place[2], confidence=0.9, key=name,
                evidence={"standing": True},
                causes=["embeddings not normalised: those of one side of the pairs have any length"],
                remedies=["`functional.normalize(embedding, dim=-1)` of both sides"],
            )  # fmt: skip
        elif figure == 1:
            yield self.finding(
                place[0], "The similarities of pairs are of embeddings whose columns have length 1 over the batch, and "
                "not their rows: each depends on the others of its batch.", found=found, segment=place[2],
                confidence=_PROOF, evidence={"standing": True},
            )  # fmt: skip


class ClassesTwice(WatchRule):
    """Rare classes are made up for twice: by how examples are drawn, and by weights in the loss; or by these alone.

    The targets of the training are of all classes alike, none twice as often as another one; an evaluation's are not.
    And the weights that classes have in the loss, four or more of them, are one over their frequencies in the
    evaluation, or over the roots of these, to what chance leaves open (`model/class_weights_doubled`), in five looks in
    a row, and 200 targets of the training have been looked at; with 500, one look is enough, as each is of all targets
    so far. A class that is rare where it counts then counts more than a frequent one by as much as it is rarer.

    So it is where the weights of four classes or more are one over the squares of the frequencies that the training
    itself has, to what chance leaves open, and far from one over these (`model/class_weights_squared`), in five looks
    in a row with 200 targets.

    What to do: draw examples by class, or weigh the loss; not both.
    """

    name, family, kind, severity = "classes_twice", "data", "config", "warning"
    proves = "training"
    series = "model/class_weights_doubled"
    needs = ("=model/class_weights_doubled|=model/class_weights_squared", "=model/class_targets")
    least = 5
    about = "Rare classes are made up for twice."
    thresholds: ClassVar = {
        "looks": (5.0, "in a row; ours"),
        "targets": (200.0, "that were looked at; ours"),
        "many": (500.0, "the same, where one look is enough; ours"),
    }
    causes = ("rare classes made up for twice: a sampler draws all classes alike, and the loss weighs rare ones more",)
    remedies = ("leave out the weights of the loss, or draw examples as they come (`shuffle=True`, no sampler)",)

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/class_weights_squared"), self._squared)]

    def reset(self) -> None:
        super().reset()
        self._squares: list[tuple[int, int]] = []  # looks in a row at squares: step, launch

    def _squared(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        here = value == 1 and watched(history, "class_targets", place) >= self.at["targets"]
        kept = self._squares if self._squares and self._squares[-1][1] == place[2] else []
        self._squares = [*kept, (place[0], place[2])] if here else []
        if len(self._squares) >= self.at["looks"] and self.first(place[2], "squared"):
            yield self.finding(
                0, "The loss weighs classes by one over the square of how frequent they are: the rarest counts most.",
                found=place[0], segment=place[2], confidence=0.9, key="squared", evidence={"standing": True},
                causes=["class weights squared: they make up twice for how rare a class is"],
                remedies=["divide by the counts once: `weight = total / (classes * counts)`"],
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        targets = watched(history, "class_targets", place)
        looks = 1 if targets >= self.at["many"] else self.at["looks"]
        if self.lasts(value == 1 and targets >= self.at["targets"], place, looks):
            yield self.finding(
                0, "The training's targets are of all classes alike, and the loss weighs classes by how rare they are "
                "in the evaluation: rare ones are made up for twice.", found=place[0], segment=place[2],
                confidence=_PROOF, evidence={"standing": True},
            )  # fmt: skip


RULES = (
    ClassesTwice,
    PairsAcross,
    Alignment,
    AlignmentLengths,
    AlignmentBelowZero,
    DivergenceInput,
    Attraction,
    MarginKept,
    TrainedTarget,
    FocalOfMean,
)
