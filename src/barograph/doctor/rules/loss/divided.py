"""A loss that is divided once more than its mean, or by rows where it is a sum over targets.

In:   with which weight an example's loss is in the whole, as the watch saw it; the losses of training and evaluation.
Out:  findings of `LossDivided`, `DividedTwice`, `AddedWhole`, `SummedGiven`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.configuration import ACCUMULATION
from barograph.core.roles import is_of_other_kind
from barograph.doctor.kernel.cursor import (
    came_by,
    divided_by_rows,
    known,
    newest,
    numeric_setting,
    scaled_loss,
    summed_by_choice,
    usual,
)
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.loss.given import GivenLosses, side_by_side, until

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_START = 5  # a run whose first row is later goes on with another one's weights


class LossDivided(WatchRule):
    """The mean loss is divided by one more number, though no micro-batches are accumulated; or a sum is by rows.

    The gradient of a cross-entropy (`model/loss_weight`), and that of a mean square (`model/square_weight`), show with
    which weight the mean over the targets is in the loss. In three looks in a row that is one part in k, within 0.2%,
    of one pass in a step of one process, and k is the number of the batch's examples or targets, 8 or more: a mean that
    is divided by the batch's size again. Or k is the number of classes, 3 or more: the mean is over classes, too. Or it
    is another whole number, 8 or more. The logged loss has to show it, so that a part of a larger loss is not meant:
    the evaluation's loss is k times that of the training, from a third of it to three times; or, if k is no such other
    number, the first logged loss is that of a guess divided by k, within 30%. Or what is logged is the mean, and what
    the backward passes of three steps or more were called with (`model/loss_given`) is that over k, within 0.2%: all of
    the loss is divided. Is k another whole number, this has to do harm: steps follow the gradient's size, as SGD's do,
    and from the sixtieth step on the loss is still nine tenths of its first ones or more. Where gradients are
    accumulated, by the configuration or by what was seen, nothing is said; nor where a scaler is used that the watch
    was not given.

    Or the weight of the mean is the number of targets of a row, 2 or more: the loss is summed over all targets, as
    those of a text, and divided by rows. Then the evaluation's loss is smaller by that number, from a third of it to
    three times, for it is averaged over targets: where it is summed in the same way, nothing is said. Where the
    configuration says that the loss is a sum (`reduction: sum`), or that something is divided by rows (`normalise:
    rows`), it is an info finding.

    What to do: leave the mean as it is; divide a sum by the number of its targets. The learning rate, or with Adam its
    epsilon and the weight decay, are too small or too large for such a loss, and clipping never cuts it, or always.
    """

    name, family, kind, severity = "loss_divided", "loss", "vanishing", "warning"
    proves = "training"
    needs = ("=model/loss_weight|=model/square_weight", "loss")
    least = 3
    about = "The mean loss is divided by one more number, or a sum by rows."
    thresholds: ClassVar = {
        "looks": (3.0, "in a row; ours"),
        "same": (0.002, "of the number; ours"),
        "classes": (3.0, "ours"),
        "examples": (8.0, "ours"),
        "number": (8.0, "that is none of these; ours"),
        "row": (2.0, "targets of a row; ours"),
        "guess": (0.3, "of the loss of a guess over k; ours"),
        "begun": (60.0, "steps, where the logged loss is not divided; ours"),
        "slow": (0.9, "of its first losses, where k is another number and the logged one is not divided; ours"),
        "ratio": (3.0, "times k, or a third of it: of evaluation and training; ours"),
    }
    remedies = ("take the mean once: `loss.mean()` or `reduction='mean'`, and divide by nothing else",)

    def channel(self, history: RunHistory) -> Channel | None:
        weight = history.channel("model/loss_weight")
        self._of_classes = weight is not None
        return weight or history.channel("model/square_weight")

    def begin(self) -> None:
        self._what = ""

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        times = 1 / value if value > 0 else 0.0
        what = self._number(history, times, place) if times and self._alone(history, place) else ""
        if what != self._what:
            self._row, self._what = [], what
        if what and len(self._row) < self.at["looks"]:
            self._row.append(place)
        if not what or len(self._row) < self.at["looks"] or not self._shows(history, times, what, place):
            return
        if not self.first(place[2]):
            return
        if what == "rows":
            yield self._by_rows(value, place, summed_by_choice(history) or divided_by_rows(history))
            return
        whole = round(times)
        why = {
            "classes": f"loss averaged over the classes too: divided by {whole}, their number",
            "examples": f"loss divided twice: the mean is divided by the batch's {whole} examples again",
            "number": f"loss divided by {whole}: no micro-batches are accumulated that it could be the number of",
        }[what]
        named = {"classes": ", the number of classes", "examples": ", the examples of a batch"}.get(what, "")
        yield self.finding(
            self._row[0][0], f"The loss that is differentiated is the mean over its targets divided by {whole}{named}.",
            found=place[0], segment=place[2], confidence=0.95, causes=[why],
            evidence={"times": rounded(times), "standing": True},
        )  # fmt: skip

    def _by_rows(self, weight: float, place: Place, chosen: bool) -> Finding:
        return self.finding(
            self._row[0][0], f"The loss is summed over the targets of a row, {weight:.3g} of them, and divided by "
            "the number of rows; the evaluation's is averaged over targets.", found=place[0], segment=place[2],
            kind="exploding", severity="info" if chosen else self.severity, confidence=0.6 if chosen else 0.95,
            evidence={"weight": rounded(weight), "standing": True},
            causes=["loss summed: over the targets of a row, and divided by rows"],
            remedies=["divide the sum by the number of targets that count, or use `reduction='mean'`"],
        )  # fmt: skip

    def _alone(self, history: RunHistory, place: Place) -> bool:
        """Whether each step has one pass, in one process, and no scale is in the loss's weight."""
        passes, backwards = (watched(history, name, place) for name in ("passes", "backwards"))
        parts = numeric_setting(history, *ACCUMULATION)
        one = passes == backwards == 1 and not parts > 1 and (history.facts.get("world_size") or 1) == 1
        return one and (not scaled_loss(history, place[1]) or came_by(history.channel("model/loss_scale"), place[1]))

    def _number(self, history: RunHistory, times: float, place: Place) -> str:
        """What the number is of, by which the mean is divided."""
        width, rows, targets, spots = (
            watched(history, name, place) for name in ("output_width", "example_rows", "targets", "places")
        )

        def is_it(number: float, least: float) -> bool:
            return number >= least and abs(times / number - 1) < self.at["same"]

        if times < 1:
            row = targets / rows if rows > 0 else 0.0
            return "rows" if self._of_classes and row >= self.at["row"] and is_it(1 / row, 0.0) else ""
        if spots > targets and is_it(spots / targets, 1.0):
            return ""  # a mean over all places: see `loss_weight`
        if self._of_classes and is_it(width, self.at["classes"]):
            return "classes"
        if is_it(rows, self.at["examples"]) or is_it(targets, self.at["examples"]):
            return "examples"
        return "number" if is_it(round(times), self.at["number"]) else ""

    def _shows(self, history: RunHistory, times: float, what: str, place: Place) -> bool:
        """Whether the logged losses are smaller by that number."""
        loss, evaluation = history.role("loss"), history.role("eval_loss")
        step = place[0] - 1  # of rows whose step is over
        if loss is None or not loss.end:
            return False
        ours = usual(loss, step, *place[1:], 16)
        if what != "rows" and self._only_given(history, times, place):
            return what != "number" or self._is_slow(history, loss, ours, place)
        theirs = newest(evaluation, step, *place[1:], 1) if evaluation is not None else numpy.empty(0)
        if len(theirs) and ours > 0:
            ratio = float(theirs[0]) / ours / times
            return 1 / self.at["ratio"] < ratio < self.at["ratio"]
        if what == "rows":
            return False  # a policy's sum over a whole text is meant, as far as anyone can see
        width = watched(history, "output_width", place)
        guess = math.log(width) / times if self._of_classes and width > 1 else math.nan
        first = known(loss, loss.began[0], 1 << 62, place[2])
        return what != "number" and loss.began[0] <= _START and abs(first / guess - 1) < self.at["guess"]

    def _only_given(self, history: RunHistory, times: float, place: Place) -> bool:
        """Whether what backward passes were called with is the logged loss over that number."""
        given, loss = history.channel("model/loss_given"), history.role("loss")
        if given is None or loss is None or loss.name.startswith("model/"):
            return False
        ours, theirs = side_by_side(given, loss, place)
        if len(ours) < self.at["looks"] or not ours.all():
            return False
        return bool((abs(theirs / ours / times - 1) < self.at["same"]).all())

    def _is_slow(self, history: RunHistory, loss: Channel, ours: float, place: Place) -> bool:
        """Whether steps are as short as the gradient, and the loss has hardly fallen for it."""
        began, first = loss.began[0], numpy.median(loss.rows(0, 16).value)
        follows = came_by(history.channel("model/rate_sum"), place[1])
        begun = place[0] - began >= self.at["begun"] and began <= _START
        return bool(follows and begun and 0 < self.at["slow"] * first <= ours)


class DividedTwice(WatchRule):
    """A loss of several terms is divided by the number of micro-batches twice, by what it is at the start.

    Of a cross-entropy alone its gradient shows that (see `loss_weight`); of one beside other terms, such as an overlap,
    its size does. The configuration says that k micro-batches are accumulated, three at least, and a step has k passes
    in one process; the graph shows that the whole loss is divided or multiplied by two numbers or more, one after the
    other. A model that begins from scratch has one part in k of a guess's loss, from 0.8 to 1.4 times that, in what the
    first step's passes were called with, together. And the first evaluation that has a loss is k times what is logged
    for the training, to within three tenths of k's power. Where the configuration has the number 1 / k, it may be a
    weight: nothing is said.

    What to do: divide the loss by the number of micro-batches once, in the loop or in what makes the loss.
    """

    name, family, kind, severity = "divided_twice", "loss", "vanishing", "warning"
    proves = "training"
    needs = ("=model/loss_given", "=model/scaled_again", "=model/nll_of_probabilities", "loss", "eval_loss")
    about = "A loss of several terms is divided by the number of micro-batches twice."
    thresholds: ClassVar = {
        "parts": (3.0, "micro-batches; ours"),
        "numbers": (2.0, "by which the whole loss is multiplied or divided; ours"),
        "from": (0.8, "of a guess's loss, over k; ours"),
        "to": (1.4, "of a guess's loss, over k; ours"),
        "alike": (0.3, "of the logarithm of k: of k times the training's loss, and the evaluation's; ours"),
        "rows": (8.0, "of the training's loss before it; ours"),
    }
    remedies = ("divide the loss by the number of micro-batches once",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("eval_loss")

    def begin(self) -> None:
        self._over = False

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        loss, given = history.role("loss"), history.channel("model/loss_given")
        if self._over or loss is None or given is None or not came_by(given, place[1]):
            return
        ours = newest(loss, place[0] - 1, *place[1:], int(2 * self.at["rows"]))
        if len(ours) < self.at["rows"] or not value > 0:
            return
        self._over = True
        parts, each = numeric_setting(history, *ACCUMULATION), float(numpy.median(ours))
        if not (each > 0 and self._accumulated(history, parts, place) and self._guesses(history, parts, place)):
            return
        if abs(math.log(value / each / parts)) < self.at["alike"] * math.log(parts) and self.first(place[2]):
            yield self.finding(
                given.began[0], f"{parts:.0f} micro-batches are added up, and what their losses come to at first is a "
                f"guess's over {parts:.0f}; the evaluation's, {value:.3g}, is {value / each:.2g} times what is logged.",
                found=place[0], segment=place[2], confidence=0.9, evidence={"times": rounded(value / each)},
                causes=[f"gradient accumulation scaled wrongly: divided twice by {parts:.0f}"],
            )  # fmt: skip

    def _accumulated(self, history: RunHistory, parts: float, place: Place) -> bool:
        """Whether a step has the passes that are configured, and numbers scale the loss, none of which is a weight."""
        passes = [watched(history, name, place) for name in ("losses_given", "backwards", "passes")]
        chosen = (one for one in history.options.found.values() if isinstance(one, float) and one > 0)
        weighed = any(abs(one * parts - 1) < self.at["alike"] / 10 for one in chosen)
        alone = (history.facts.get("world_size") or 1) == 1 and not scaled_loss(history, place[1])
        numbers = watched(history, "scaled_again", place)
        return parts >= self.at["parts"] and passes == [parts] * 3 and numbers >= self.at["numbers"] and (
            alone and not weighed
        )  # fmt: skip

    def _guesses(self, history: RunHistory, parts: float, place: Place) -> bool:
        """Whether the first step's losses are, together, one part of those of a guess among the classes."""
        drawn, given = (history.channel(f"model/{name}") for name in ("drawn", "loss_given"))
        width, crossed = (watched(history, name, place) for name in ("output_width", "nll_of_probabilities"))
        if drawn is None or not drawn.end or drawn.first != 1 or given is None or given.began[0] > _START:
            return False
        share = given.first * parts / math.log(width) if width > 1 and crossed == 0 else math.nan
        return self.at["from"] <= share <= self.at["to"]


class AddedWhole(WatchRule):
    """The losses of a step's micro-batches are added whole, by the size of the evaluation's.

    Where the graph or the gradient of a loss shows that nothing divides it, `loss_weight` says so. Of others both leave
    it open: of a mean that numbers multiply and none divides (`model/only_multiplied`), as by a weight of 1, one of the
    numbers may be one over the number of micro-batches; of a loss whose rows have weights of their own, as a focal
    one, the weight of a cross-entropy in each pass (`model/loss_weight`) changes, and is half or more in the median; of
    one term of another make nothing is known. The configuration says that k are accumulated, four at least, a step has
    k forward and backward passes, and what is logged is what they were called with, added up (within 0.2%, in three
    looks or more). In each of the first evaluations, four or more, the logged loss is k times the evaluation's, to
    within three tenths of k's power, and in the first to within a fifth where the loss is of another make: each
    micro-batch's loss is as large as a whole one. Losses of two kinds are not compared; nor is one that a scaler
    multiplies, or whose gradients clipping divides by k, or that may be multiplied by the number of ranks. Where the
    configuration says that the loss is a sum (`reduction: sum`), it is an info finding.

    What to do: `loss = loss / k` before `backward()`.
    """

    name, family, kind, severity = "added_whole", "loss", "exploding", "warning"
    proves = "training"
    needs = ("=model/loss_given", "loss", "eval_loss")
    least = 4
    about = "The losses of a step's micro-batches are added whole."
    thresholds: ClassVar = {
        "parts": (4.0, "micro-batches; ours"),
        "looks": (3.0, "at what passes were called with; ours"),
        "same": (0.002, "of their sum, what is logged; ours"),
        "evaluations": (4.0, "the first ones; ours"),
        "alike": (0.3, "of the logarithm of k: of the training's loss over k, and the evaluation's; ours"),
        "first": (0.2, "of the first of these, where the loss is of another make; ours"),
        "half": (0.5, "of its mean: a pass's loss, in the median of its weights; ours"),
        "rows": (8.0, "of the training's loss before an evaluation; ours"),
    }

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("eval_loss")

    def begin(self) -> None:
        self._over, self._ratios = False, list[float]()

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        loss = history.role("loss")
        if self._over or loss is None or loss.name.startswith("model/"):
            return
        ours = newest(loss, place[0], *place[1:], int(self.at["rows"]))
        ours = ours[numpy.isfinite(ours)]
        parts = numeric_setting(history, *ACCUMULATION)
        usable = parts >= self.at["parts"] and len(ours) >= self.at["rows"] / 2 and value > 0
        ratio = float(numpy.median(ours)) / value / parts if usable else 0.0
        self._ratios.append(ratio)
        self._over = not (ratio > 0 and abs(math.log(ratio)) < self.at["alike"] * math.log(parts))
        if self._over or len(self._ratios) < self.at["evaluations"] or not self._added(history, loss, parts, place):
            return
        self._over = True
        if self.first(place[2]):
            times = float(numpy.median(self._ratios)) * parts
            yield self.finding(
                0, f"The losses of {parts:.0f} micro-batches are added, none of them is divided, and what is logged is "
                f"{times:.3g} times the evaluation's loss.", found=place[0], segment=place[2], confidence=0.8,
                severity="info" if summed_by_choice(history) else self.severity,
                causes=[f"gradient accumulation scaled wrongly: divided not at all by {parts:.0f}"],
                remedies=[f"Divide the loss by {parts:.0f} before `backward()`."],
                evidence={"times": rounded(times), "standing": True},
            )  # fmt: skip

    def _added(self, history: RunHistory, loss: Channel, parts: float, place: Place) -> bool:
        """Whether passes are added whose losses nothing divides, as far as the graph shows, and that sum is logged."""
        *passes, clipped = (
            watched(history, name, place) for name in ("losses_given", "backwards", "passes", "clip_coefficient")
        )
        given, other = history.channel("model/loss_given"), history.role("eval_loss")
        world = history.facts.get("world_size") or 1
        alone = world == 1 or abs(math.log(world / parts)) > self.at["half"]
        usable = alone and not scaled_loss(history, place[1]) and loss.began[0] <= _START and passes == [parts] * 3
        if not (usable and given is not None and self._undivided(history, place)) or (
            abs(clipped * parts - 1) < self.at["same"] or other is None or is_of_other_kind(other.name, loss.name)
        ):
            return False
        sums, logged = side_by_side(given, loss, place)
        off = abs(sums - logged) <= self.at["same"] * abs(logged)
        return len(sums) >= self.at["looks"] and bool(off.all())

    def _undivided(self, history: RunHistory, place: Place) -> bool:
        """Whether nothing divides the loss of each pass, as far as its gradient or its graph shows."""
        multiplied, terms = (watched(history, name, place) for name in ("only_multiplied", "loss_terms"))
        weight = history.channel("model/loss_weight")
        weights = until(weight, place)[1] if weight is not None else ()
        if len(weights):
            whole = float(numpy.median(weights))
            return whole >= self.at["half"] and abs(whole - 1) > self.at["same"]  # else `loss_weight` says it
        if watched(history, "loss_undivided", place) == 1:
            return False  # so it does here
        if multiplied == multiplied:
            return multiplied == 1
        return terms == 1 and abs(self._ratios[0] - 1) <= self.at["first"]


class SummedGiven(Rule):
    """The loss that is differentiated is the logged one times the number of a pass's targets: a sum, logged as a mean.

    Over a step what the backward passes were called with (`model/loss_given`) is n times the logged loss, or n times
    the number of passes, within 0.2%, in three looks in a row, and n is the number of targets of a pass
    (`model/targets`), 8 or more. So it is where a sum is divided by the number of micro-batches, or of nothing, and
    what is logged by that of targets. Where the gradient of the output shows a weight (`model/loss_weight`), it must be
    the same, within 2%; where that is n itself, `loss_weight` says it. Gradients that are divided by n before the step,
    as clipping shows them, are well. A warning where the size of the gradient counts: clipping leaves a tenth of it or
    less in each look, or steps follow it, as SGD's do. Else it is an info finding, and so it is where the configuration
    says that the loss is a sum (`reduction: sum`).

    What to do: divide what is differentiated as what is logged, by the number of targets.
    """

    name, family, kind, severity = "summed_given", "loss", "exploding", "warning"
    proves = "training"
    needs = ("=model/loss_given", "=model/targets", "loss")
    least = 3
    about = "The loss that is differentiated is a sum over targets, and logged as a mean."
    thresholds: ClassVar = {
        "looks": (3.0, "in a row; ours"),
        "same": (0.002, "of the number; ours"),
        "weight": (0.02, "of the number, of a gradient in half precision; ours"),
        "targets": (8.0, "ours"),
        "clipped": (0.1, "of the gradient, that clipping leaves at most; ours"),
    }
    remedies = ("divide by the number of targets before `backward()`, or use `reduction='mean'`",)

    def reset(self) -> None:
        self._given, self._row = GivenLosses(), list[Place]()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for one in self._given.new(history):
            place, times = one.place, one.times
            if scaled_loss(history, place[1]):
                times /= known(history.channel("model/loss_scale"), *place)
            count = watched(history, "targets", place)
            if not self._is_sum(history, times, count, one.passes, place):
                self._row = []
                continue
            self._row = [*(self._row if self._row and self._row[0][2] == place[2] else []), place]
            if len(self._row) < self.at["looks"] or not self.first(place[2]):
                continue
            counts = came_by(history.channel("model/rate_sum"), place[1]) or self._clips(history, place)
            serious = counts and not summed_by_choice(history)
            yield self.finding(
                self._row[0][0], f"What is differentiated is {times:.4g} times the loss that is logged, and a pass has "
                f"{count:.0f} targets: it is summed over them.", found=place[0], segment=place[2],
                severity="warning" if serious else "info", confidence=0.9 if serious else 0.6,
                causes=[f"loss summed: over {count:.0f} targets, not averaged"],
                evidence={"times": rounded(times), "standing": True},
            )  # fmt: skip

    def _is_sum(self, history: RunHistory, times: float, count: float, passes: float, place: Place) -> bool:
        """Whether the losses of a step are that number times the logged one, and nothing divides their gradients."""

        def is_it(number: float, whole: float, off: float = self.at["same"]) -> bool:
            return whole > 0 and abs(number / whole - 1) < off

        weight, clipped = (watched(history, name, place) for name in ("loss_weight", "clip_coefficient"))
        wholes = [count, count * passes] if passes >= 1 else []
        number = next((whole for whole in wholes if is_it(times, whole)), 0.0)
        if not (count >= self.at["targets"] and number) or is_it(clipped, 1 / number, self.at["weight"]):
            return False
        return weight != weight or (
            is_it(weight * passes, number, self.at["weight"]) and not is_it(weight, count, self.at["same"])
        )

    def _clips(self, history: RunHistory, place: Place) -> bool:
        """Whether clipping leaves hardly anything of the gradient, in each look."""
        clipped = history.channel("model/clip_coefficient")
        shares = until(clipped, place)[1] if clipped is not None else ()
        return len(shares) > 0 and bool(max(shares) <= self.at["clipped"])


RULES = (LossDivided, DividedTwice, AddedWhole, SummedGiven)
