"""An evaluation that is measured in another unit than the training.

In:   evaluation and training losses, the number of classes.
Out:  findings of `EvaluationSummed`, `EvaluationDivided`, `TrainingSummed`, `EvaluationTotal`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.core.plain_names import plain_name
from barograph.core.roles import is_of_wholes
from barograph.doctor.kernel.cursor import summed_by_choice, usual
from barograph.doctor.kernel.curve import before, is_game, rounded
from barograph.doctor.rules.data.examples import watched
from barograph.doctor.rules.evaluation.evaluations import EvaluationPoint, Walker, gains

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.local import median


class EvaluationSummed(Walker):
    """The evaluation loss is a multiple of the training loss: a sum over batches, or divided by too little.

    The first evaluation is above the loss of a guess, though the training is below it; and in four evaluations or more
    it goes the way of the training loss, at 1.8 times it or more: their ratio changes by less than 7%, or, where the
    training loss falls far, by less than the power 0.4 of its fall. A model that is bad at what it is asked does not
    get better at it in the same proportion. Where no loss of a guess is known, as of pairs, each is three times the
    training's first loss or more, the first of five or more too, the training has lost a third since, and the ratio
    changes by less than 7%. Or, as of a regression, each of eight evaluations is 300 times the training's first loss or
    more, and the last is below the first by the power 0.3 of the training's fall, which is to 60% or less: no model
    that is evaluated on such data in such units is so much worse than before its first step, unless its training is.
    Inputs of another scale, where the watch knows them, are `evaluation_inputs`. Where the watch has seen an
    evaluation's answers, no course is needed: each of five is eight times the training loss or more, and three times
    that of a guess, while in three looks in a row hardly more of its answers are wrong than of the training's, and they
    are not one class whatever comes (`model/compared_recall`). A model is as sure of itself in both.

    Of an evaluation whose name says that it is of whole sentences, documents or windows, nothing is said; nor where its
    name says in which unit it is, as `rmse_usd`, and the training's does not, or the configuration does; nor where the
    watch has seen its answers, of 64 rows or more (`model/compared_own`), and less than half as many are right as in
    the training (`model/wrong_share`): a model that is wrong has such a loss in whatever unit; nor where the training's
    loss weighs classes the more the more frequent they are (`model/class_weight_slope`, `class_weights_inverted`): it
    is low by that, and `class_weights` says so.

    What to do: divide the sum by the number of targets, or of batches where batches are averaged.
    """

    name, kind, severity = "evaluation_summed", "config", "warning"
    compares = True
    needs: ClassVar[tuple[str, ...]] = ("eval_loss", "loss")
    least = 4
    about = "The evaluation loss is a multiple of the training loss."
    thresholds: ClassVar = {
        "evaluations": (4.0, "ours"),
        "times": (1.8, "the training loss; ours"),
        "steady": (0.07, "of the ratio, in ln; ours"),
        "power": (0.4, "of the training's fall; ours"),
        "fall": (0.1, "of the training loss, in ln; ours"),
        "guess": (1.1, "times the loss of a guess; ours"),
        "rows": (64.0, "whose answers were seen; ours"),
        "right": (0.5, "of the training's share of right answers, that these have at least; ours"),
        "weighed": (0.3, "power of how frequent a class is, in its weight; ours"),
        "points": (5.0, "evaluations, whose answers were seen; ours"),
        "sure": (8.0, "times the training loss, the same; ours"),
        "guesses": (3.0, "times the loss of a guess, the same; ours"),
        "wrong": (1.25, "times the training's share of wrong answers, at most, the same; ours"),
        "more": (0.03, "more of them, the same; ours"),
        "looks": (3.0, "in a row, the same; ours"),
        "one": (1.2, "classes whose rows are right, below which they have one answer; ours"),
        "far": (300.0, "times the training's first loss, without a guess; ours"),
        "several": (8.0, "evaluations, the same; ours"),
        "five": (5.0, "evaluations, of a watched loss without a guess; ours"),
        "first": (3.0, "times the training's first loss, the same; ours"),
        "lost": (0.4, "the training's fall, in ln, the same; ours"),
        "grown": (3.0, "times the training's first loss, by the first evaluation, the same; ours"),
        "halved": (0.5, "the training's fall, in ln, the same; ours"),
        "along": (0.3, "power of the training's fall, the same; ours"),
    }
    causes = ("evaluation loss summed: it is not divided by what it is added up over",)
    remedies = ("divide the sum by the number of targets, or of batches where batches are averaged",)

    def begin(self) -> None:
        self._points: list[EvaluationPoint] = []
        self._alike = 0  # looks in a row at answers that are hardly more often wrong than the training's

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        if not (0 < point.value < math.inf and 0 < point.train < math.inf) or is_of_wholes(channel.name):
            return
        self._points = [*self._points[:1], *self._points[1:][-14:], point]
        loss, guess = history.role("loss"), _guess(history, point)
        if len(self._points) < self.at["evaluations"] or loss is None or is_game(history, loss):
            return
        if _in_own_unit(history, channel.name, loss.name) or self._weighed(history, channel, point):
            return
        if guess != guess:
            yield from self._far(history, loss, channel, point)
            return
        yield from self._by_answers(history, channel, point, guess)
        first = self._points[0]
        ratios = [math.log(one.value) - math.log(one.train) for one in self._points]
        trains = [math.log(one.train) for one in self._points]
        fall = trains[0] - trains[-1]
        above = first.value > self.at["guess"] * guess and point.train < guess
        if not above or fall < self.at["fall"] or min(ratios) < math.log(self.at["times"]):
            return
        even = max(ratios) - min(ratios) < max(self.at["steady"], self.at["power"] * fall)
        if even and not self._answers_wrong(history, channel, point) and self.first(point.segment):
            times = math.exp(sorted(ratios)[len(ratios) // 2])
            yield self.finding(
                0, f"The evaluation loss is {times:.3g} times the training loss in each of {len(self._points)} "
                f"evaluations, and falls with it: {first.value:.4g} at the first, where a guess has {guess:.4g}.",
                found=point.step, segment=point.segment, confidence=0.97,
                evidence={"times": rounded(times), "standing": True},
            )  # fmt: skip

    def _by_answers(
        self, history: RunHistory, channel: Channel, point: EvaluationPoint, guess: float
    ) -> Iterator[Finding]:
        """Evaluations far above the training, of which as many answers are right."""
        place = point.step, int(channel.rows(point.row, point.row + 1).time[0]), point.segment
        own, rows, width = (watched(history, f"compared_{name}", place) for name in ("own", "rows", "width"))
        wrong = usual(history.channel("model/wrong_share"), *place, 8)
        most = self.at["wrong"] * wrong + self.at["more"]
        alike = width > 1 and rows >= self.at["rows"] and own >= 0.5 and 1 - own <= most
        classes, recall = (watched(history, f"compared_{name}", place) for name in ("named", "recall"))
        alike = alike and not (classes >= 2 and recall * classes < self.at["one"])  # else one answer, whatever comes
        self._alike = self._alike + 1 if alike else 0
        far = all(one.value >= max(self.at["sure"] * one.train, self.at["guesses"] * guess) for one in self._points)
        enough = len(self._points) >= self.at["points"] and self._alike >= self.at["looks"]
        if far and enough and point.train < guess and self.first(point.segment):
            yield self.finding(
                0, f"The evaluation loss is {point.value:.4g}, {point.value / point.train:.3g} times the training "
                f"loss, where a guess has {guess:.4g}, and {100 * own:.0f}% of its answers are right, as are "
                f"{100 - 100 * wrong:.0f}% of the training's.", found=point.step, segment=point.segment,
                confidence=0.95, evidence={"times": rounded(point.value / point.train), "standing": True},
            )  # fmt: skip

    def _weighed(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> bool:
        """Whether frequent classes have the larger weights in the training's loss."""
        place = point.step, int(channel.rows(point.row, point.row + 1).time[0]), point.segment
        slope, counts = (watched(history, f"class_weight{name}", place) for name in ("_slope", "s_inverted"))
        return slope >= self.at["weighed"] or counts == 1

    def _answers_wrong(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> bool:
        """Whether an evaluation's answers, as the watch saw them, are wrong far more often than the training's."""
        place = point.step, int(channel.rows(point.row, point.row + 1).time[0]), point.segment
        own, rows, width = (watched(history, f"compared_{name}", place) for name in ("own", "rows", "width"))
        right = 1 - watched(history, "wrong_share", place)
        return width > 1 and rows >= self.at["rows"] and own < self.at["right"] * right

    def _far(self, history: RunHistory, loss: Channel, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        """Evaluations in another unit, by the training's first loss."""
        first, least = self._points[0], min(one.value for one in self._points)
        fall = math.log(first.train) - math.log(point.train)
        place = point.step, int(channel.rows(point.row, point.row + 1).time[0]), point.segment
        pairs = watched(history, "loss_ranks", place) >= 0 and not watched(history, "loss_crossed", place) >= 0
        if pairs and not watched(history, "loss_error", place) >= 1:
            yield from self._along(loss, point, least, fall)
        far = least >= self.at["far"] * loss.first > 0 and len(self._points) >= self.at["several"]
        far = far and first.train < self.at["grown"] * loss.first  # else the training is as far up itself
        if not far or fall < self.at["halved"] or math.log(first.value / point.value) < self.at["along"] * fall:
            return
        mine, others = (usual(history.channel(f"model/{name}input_std"), *place, 8) for name in ("", "eval_"))
        if not (others > 2 * mine or mine > 2 * others) and self.first(point.segment):
            yield self.finding(
                0, f"The evaluation loss is {point.value:.4g}, {least / loss.first:.3g} times the training's first "
                f"loss or more in {len(self._points)} evaluations, and falls with the training: it is in other units.",
                found=point.step, segment=point.segment, confidence=0.9,
                causes=["units differ: the evaluation's loss is not in those of the training's", *self.causes],
                remedies=["compute both losses of the same scaled outputs and targets", *self.remedies],
                evidence={"evaluation": rounded(point.value), "train": rounded(point.train), "standing": True},
            )  # fmt: skip

    def _along(self, loss: Channel, point: EvaluationPoint, least: float, fall: float) -> Iterator[Finding]:
        """Evaluations that fall with the training, and are above all that it began with."""
        ratios = [math.log(one.value) - math.log(one.train) for one in self._points]
        above = least >= self.at["first"] * loss.first > 0 and min(ratios) >= math.log(self.at["first"])
        even = max(ratios) - min(ratios) < max(self.at["steady"], self.at["power"] * fall)
        enough = len(self._points) >= self.at["five"] and fall >= self.at["lost"]
        if enough and above and even and self.first(point.segment):
            times = math.exp(sorted(ratios)[len(ratios) // 2])
            yield self.finding(
                0, f"The evaluation loss is {times:.3g} times the training loss in {len(self._points)} evaluations, "
                f"and falls with it: {point.value:.4g}, where the training began with {loss.first:.4g}.",
                found=point.step, segment=point.segment, confidence=0.9,
                causes=["loss divided too often: that of the training, by what the evaluation's is not", *self.causes],
                remedies=["compute both losses by one function", *self.remedies],
                evidence={"times": rounded(times), "standing": True},
            )  # fmt: skip


_UNIT = expression(
    r"(?<![a-z])(?:usd|eur|gbp|dollars?|euros?|kg|grams?|km|cm|mm|metres?|meters?|miles?|px|pixels?|degrees?|deg"
    r"|celsius|kelvin|mmhg|kwh|mwh|watts?|seconds|minutes|hours|days|years)(?![a-z])"
)
_UNIT_OF_EVALUATIONS = expression(
    r"(?i)(?:^|[._/])(?:eval|val|valid|validation|test|metrics?|report\w*)(?:_\w+)?_units?"
)


def _in_own_unit(history: RunHistory, name: str, trained: str) -> bool:
    """Whether an evaluation's name says in which unit it is, and the training's does not, or the configuration does."""
    said = (isinstance(value, str) and value and _UNIT_OF_EVALUATIONS.fullmatch(option) is not None
            for option, value in history.options.found.items())  # fmt: skip
    return any(said) or (_UNIT.search(plain_name(name)) is not None and _UNIT.search(plain_name(trained)) is None)


def _guess(history: RunHistory, point: EvaluationPoint) -> float:
    """The loss of a guess; NaN where the classes are not known by then."""
    classes = history.channel("model/loss_classes")
    if classes is not None and classes.end and classes.began[0] <= point.step and classes.first > 1:
        return math.log(classes.first)
    count = history.facts.get("vocabulary")
    return math.log(count) if count and count > 1 else math.nan


class EvaluationDivided(Walker):
    """The evaluation loss is a small part of the training loss: it is divided by too much, as means of batches that are
    divided by the number of examples.

    In four evaluations in a row, from the first or the second on, it is a quarter of the training loss or less, and
    goes the way of it: their ratio changes by less than 7%, or, where the training loss falls far, by less than the
    power 0.4 of its fall. Until the first the training loss falls fastest, and what is compared is its mean. At the
    first the evaluation is an eighth of the loss of a guess or less, where the training has a third of it or more, and
    not more than a guess. A model that does better without dropout or augmentation does not do so by one factor from
    its first evaluations on. Where each has an accuracy, and all four together a loss of twice the share of their
    wrong answers or more, nothing is said: as few are wrong as the loss says.

    What to do: divide what is added up over batches by their number, or weigh each batch by its examples.
    """

    name, kind, severity = "evaluation_divided", "config", "warning"
    compares = True
    needs: ClassVar[tuple[str, ...]] = ("eval_loss", "loss")
    least = 4
    about = "The evaluation loss is a small part of the training loss."
    thresholds: ClassVar = {
        "evaluations": (4.0, "ours"),
        "times": (4.0, "the training loss of the evaluation's; ours"),
        "steady": (0.07, "of the ratio, in ln; ours"),
        "power": (0.4, "of the training's fall; ours"),
        "fall": (0.1, "of the training loss, in ln; ours"),
        "evaluated": (1 / 8, "of the loss of a guess, at the first evaluation; ours"),
        "trained": (1 / 3, "of the loss of a guess, that the training has there, at least; ours"),
        "most": (1.1, "of the loss of a guess, that it has at most; ours"),
        "wrong": (2.0, "times the share of an evaluation's wrong answers, its loss; ours"),
    }
    causes = ("evaluation averaged wrongly: means of batches are divided by the number of examples",)
    remedies = ("weigh each batch's mean by its examples, or divide their sum by the number of batches",)

    def begin(self) -> None:
        self._points: list[EvaluationPoint] = []
        self._wrong: list[float] = []  # shares of wrong answers

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        if len(self._points) > self.at["evaluations"] or not (
            0 < point.value < math.inf and 0 < point.train < math.inf
        ):
            return
        self._points.append(point)
        accuracy = history.role("eval_accuracy")
        right = before(accuracy, point.step + 1, point.segment) if accuracy is not None else math.nan
        self._wrong.append(1 - (right / 100 if right > 1 else right))
        loss, guess = history.role("loss"), _guess(history, point)
        if len(self._points) < self.at["evaluations"] or loss is None or is_game(history, loss) or not guess > 0:
            return
        first, row = self._points[0], self._points[-int(self.at["evaluations"]) :]
        ratios = [math.log(one.value) - math.log(one.train) for one in row]
        fall = math.log(row[0].train / point.train)
        trains = self.at["trained"] * guess <= first.train <= self.at["most"] * guess
        small = first.value <= self.at["evaluated"] * guess and max(ratios) <= -math.log(self.at["times"])
        steady = max(ratios) - min(ratios) < max(self.at["steady"], self.at["power"] * fall)
        fits = sum(one.value for one in row) >= self.at["wrong"] * sum(self._wrong[-len(row) :])
        if trains and small and steady and fall >= self.at["fall"] and not fits and self.first(point.segment):
            times = math.exp(-sorted(ratios)[len(ratios) // 2])
            yield self.finding(
                0, f"The training loss is {times:.3g} times the evaluation loss in each of {len(row)} evaluations, and "
                f"both fall together: {first.value:.4g} at the first, where a guess has {guess:.4g}.",
                found=point.step, segment=point.segment, confidence=0.9,
                evidence={"times": rounded(times), "standing": True},
            )  # fmt: skip


class TrainingSummed(Walker):
    """The loss that is trained is a sum over the batch, where the evaluation has a mean.

    An evaluation before the second step is of the model as the first step has it, so that both losses are the same but
    for chance and dropout. The first backward pass is called with as many times that evaluation's loss as the batch has
    rows, or pairs of rows, four or more (within 8%), and so is the training's loss at the third evaluation (within a
    factor of 1.6: it falls). As many backward passes a step would make such a number, too, where they are added for the
    log: then there is no finding. A preference against a reference that is the same model begins at ln 2 a pair: a
    first pass that is called with that times the number of pairs, within half a percent, needs no evaluation before it.
    And where the graph of the loss is one sum, which no setting names and nothing divides, of one backward pass, while
    all cross-entropies that evaluations call are means (`model/evaluated_averaged`), it is enough that the loss is 1.5
    times theirs in the median of five evaluations.

    What to do: the mean over the batch, `loss.mean()`; the learning rate and any clipping then are what they were for.
    """

    name, kind, severity = "training_summed", "config", "warning"
    compares = True
    proves = "training"
    needs: ClassVar[tuple[str, ...]] = ("eval_loss", "loss", "=model/loss_given", "=model/example_rows")
    least = 3
    about = "The loss that is trained is a sum over the batch, where the evaluation has a mean."
    thresholds: ClassVar = {
        "rows": (4.0, "of a batch; ours"),
        "near": (0.08, "of their number, in ln; ours"),
        "later": (1.6, "times more or less at the third evaluation; ours"),
        "exact": (0.005, "of a preference's first loss; ours"),
        "early": (1.0, "steps before the first evaluation; ours"),
        "points": (5.0, "evaluations, of a loss whose graph is one sum; ours"),
        "more": (1.5, "times the evaluation's, in their median, the same; ours"),
    }
    causes = ("wrong reduction: the loss is summed over the batch, not averaged",)
    remedies = ("take the mean over the batch: `loss.mean()`, or `reduction='mean'`",)

    def begin(self) -> None:
        self._points: list[EvaluationPoint] = []

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        given, loss = history.channel("model/loss_given"), history.role("loss")
        if len(self._points) >= self.at["points"] or not (0 < point.value < math.inf and 0 < point.train < math.inf):
            return
        self._points.append(point)
        if len(self._points) == self.at["points"]:
            yield from self._by_graph(history, channel, point)
        if len(self._points) > self.least:
            return
        if len(self._points) < self.least or given is None or loss is None or is_game(history, loss) or not given.end:
            return
        began, first = given.rows(0, 1), self._points[0]
        place = point.step, int(channel.rows(point.row, point.row + 1).time[0]), point.segment
        rows, passes = watched(history, "example_rows", place), watched(history, "backwards", place)
        early = first.step <= int(began.step[0]) + self.at["early"] and int(began.segment[0]) == point.segment
        begun = float(began.value[0])
        times, what = begun / first.value, f"the loss of the first evaluation ({first.value:.4g})"
        for count in (rows, rows / 2):
            known = 0 < times < math.inf and self.at["rows"] <= count < math.inf
            near = known and early and abs(math.log(times / count)) < self.at["near"]
            # the same answers twice: a preference against a reference begins at ln 2
            exact = known and watched(history, "loss_ranks", place) >= 0 and not summed_by_choice(history)
            if exact and abs(begun / (count * math.log(2)) - 1) < self.at["exact"]:
                near, times, what = True, count, "ln 2, at which a preference begins"
            later = near and abs(math.log(point.train / point.value / count)) < math.log(self.at["later"])
            if later and count != passes and self.first(point.segment):
                yield self.finding(
                    0, f"The first backward pass is called with {begun:.4g}, {times:.3g} times {what}, with "
                    f"{rows:.0f} rows in the batch: it is "
                    "the sum of what the evaluation averages.", found=point.step, segment=point.segment,
                    confidence=0.95, evidence={"times": rounded(times), "rows": rows, "standing": True},
                )  # fmt: skip

    def _by_graph(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        """A loss that is one sum, by its graph, where the evaluation calls cross-entropies that are means."""
        place = point.step, int(channel.rows(point.row, point.row + 1).time[0]), point.segment
        rows, passes, averaged, *one = (
            watched(history, name, place)
            for name in (
                "example_rows", "backwards", "evaluated_averaged", "loss_adds", "loss_terms", "loss_multiplied"
            )
        )  # fmt: skip
        times = median([one.train / one.value for one in self._points])
        same = len({one.segment for one in self._points}) == 1
        alone = same and one == [1, 1, 1] and passes == 1 and not summed_by_choice(history)
        more = averaged == 1 and rows >= self.at["rows"] and times >= self.at["more"]
        if alone and more and self.first(point.segment):
            yield self.finding(
                0, f"In the graph of the training's loss all is added up, of {rows:.0f} rows, and the evaluation's "
                f"cross-entropy is a mean: the loss is {times:.3g} times the evaluation's.", found=point.step,
                segment=point.segment, confidence=0.95,
                evidence={"times": rounded(times), "rows": rows, "standing": True},
            )  # fmt: skip


class EvaluationTotal(Walker):
    """The evaluation loss is the total of all evaluations so far: what it is added up in is never set to 0 again.

    In five evaluations in a row, from the first on, what each has more than the one before is close to the training
    loss: 0.6 to 1.6 times it, by a factor that changes by less than 12%; and the training loss falls by a seventh or
    more, with what is added. The first is close to the training loss itself. A model that overfits does not get worse
    by as much as its training loss each time, let alone by less when that falls.

    What to do: set the total, and the count, to 0 at the beginning of each evaluation.
    """

    name, kind, severity = "evaluation_total", "config", "warning"
    compares = True
    needs: ClassVar[tuple[str, ...]] = ("eval_loss", "loss")
    least = 5
    about = "The evaluation loss is the total of all evaluations so far."
    thresholds: ClassVar = {
        "evaluations": (5.0, "from the first on; ours"),
        "times": (1.6, "the training loss, that is added, or one part of as many; ours"),
        "steady": (0.12, "of that factor, in ln; ours"),
        "fall": (0.15, "of the training loss, in ln; ours"),
    }
    causes = ("evaluation never reset: losses are added to those of the evaluations before",)
    remedies = ("set the total, and the count, to 0 at the beginning of each evaluation",)

    def begin(self) -> None:
        self._points: list[EvaluationPoint] = []

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        if len(self._points) >= self.at["evaluations"]:
            return
        self._points.append(point)
        loss = history.role("loss")
        if len(self._points) < self.at["evaluations"] or loss is None or is_game(history, loss):
            return
        if not all(0 < one.train < math.inf and 0 < one.value < math.inf for one in self._points):
            return
        added = gains([one.value for one in self._points])
        factors = [more / one.train for more, one in zip(added, self._points, strict=True)]
        least, most = min(factors), max(factors)
        falls = math.log(self._points[0].train / point.train)
        close = 1 / self.at["times"] <= least and most <= self.at["times"]
        close = close and most < math.exp(self.at["steady"]) * least
        if close and falls >= self.at["fall"] and self.first(point.segment):
            yield self.finding(
                0, f"Each of {len(self._points)} evaluations has {least:.3g} to {most:.3g} times the training loss "
                f"more than the one before: {self._points[0].value:.4g} at the first, {point.value:.4g} at step "
                f"{point.step}, while the training loss falls to {point.train:.4g}.", found=point.step,
                segment=point.segment, confidence=0.95, evidence={"evaluations": len(self._points), "standing": True},
            )  # fmt: skip


RULES = (EvaluationSummed, EvaluationDivided, TrainingSummed, EvaluationTotal)
