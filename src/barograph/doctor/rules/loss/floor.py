"""A loss that can't fall below a floor, because its inputs are probabilities.

In:   loss and accuracy, row by row; the width of the output.
Out:  findings of `DoubleSoftmax`, `EvaluationTwice`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.cursor import RowCursor, came_by, known, newest, numeric_setting, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.finding import Finding


_TWICE = (  # by series: what comes twice, and before which loss
    ("activation", "softmax or sigmoid", "loss"),
    ("softmax", "softmax", "cross-entropy"),
    ("sigmoid", "sigmoid", "binary cross-entropy"),
)
_WITHIN_BOUNDS = {  # by `activation_twice`: what comes before is another function
    2: "sigmoid, tanh or log-sigmoid",
    3: "division by its own length, over the classes",
}
_BELOW = 0.1  # nats below the floor: a training that has one softmax, unlike its evaluation


class DoubleSoftmax(Rule):
    """The output goes through a softmax before the cross-entropy, which has its own.

    Its inputs then lie between 0 and 1. Of K classes a target that has probability 1 costs ln(1 + (K − 1) / e), the
    floor, and one that has 0 costs 1 more; so a model that has learnt its classes has a loss of floor + (1 − accuracy),
    whatever it does. In 32 rows in a row with loss and accuracy (5 evaluations, where only these have an accuracy) nine
    of ten lie within −0.01 and 0.1 of that line, and the line through them has its slope (within 0.15: labels that are
    smoothed cross it at one accuracy with another slope); none of the run was ever below the floor; the accuracy is
    more than a quarter of the way from a guess to 1; and the mean loss is above the entropy of a guess that is right so
    often, with the rest spread evenly: no classifier whose confidence fits its accuracy has that loss. Gradients are
    small, and the model learns slowly.

    Where the model is watched, the gradient of its output shows that a softmax follows (`model/softmax_twice`), or a
    sigmoid (`model/sigmoid_twice`), though the output's rows are probabilities: that is proof, and needs no accuracy.
    Two looks for a softmax; twelve for a sigmoid, the first of the run, since outputs may be between 0 and 1 by chance.
    One look is enough where the loss's own graph shows both, one behind the other (`model/activation_twice`), as of
    similarities, also where numbers are added to the probabilities in between, such as the logarithms of classes'
    shares, or where a distribution normalises them as logits; or shows a sigmoid or tanh right before a cross-entropy,
    or a log-sigmoid before another, or logits that are divided by their own length over the classes right before a
    cross-entropy of labels, with no scale or temperature after that: outputs that have bounds, which leave a loss of
    its own to the surest answer. Where the output's rows do not add up to 1, and its gradient is that of one softmax
    (`model/loss_weight`), or the loss's graph is one cross-entropy, and shows no other before it, as of outputs that
    are logarithms already (`model/loss_classes`), there is none, and a model that learns slowly is near that line by
    chance: only an evaluation counts then, while the training's loss is 0.1 below the floor.

    What to do: give `cross_entropy` the logits; or take the logarithm of the probabilities and use `nll_loss`.
    """

    name, family, kind, severity = "double_softmax", "loss", "logits", "warning"
    proves = "training"
    needs = (
        "loss|eval_loss",
        "accuracy|eval_accuracy|=model/softmax_twice|=model/sigmoid_twice|=model/activation_twice",
        "vocabulary|=model/output_width|config|=model/activation_twice",
    )
    about = "The loss has the floor of a softmax that is applied twice."
    thresholds: ClassVar = {
        "rows": (32.0, "ours"),
        "evaluations": (5.0, "ours"),
        "share": (0.9, "of them on the line; ours"),
        "above": (0.1, "nats above the line: probabilities that are not 0 or 1 yet; ours"),
        "slope": (0.15, "off the line's; ours"),
        "softmax": (2.0, "looks in a row; ours"),
        "sigmoid": (12.0, "looks, from the first on; ours"),
        "activation": (1.0, "looks at the loss's graph; ours"),
        "learnt": (0.25, "of the way from a guess to an accuracy of 1; ours"),
    }
    causes = ("softmax twice: the output goes through a softmax before the cross-entropy",)
    remedies = ("Give `cross_entropy` the logits: take the softmax, or sigmoid, out of the model's output.",)

    def reset(self) -> None:
        self._pairs = {
            "train": _Pairs("loss", "accuracy", "rows"),
            "eval": _Pairs("eval_loss", "eval_accuracy", "evaluations"),
        }
        self._said = False
        self._cursor = RowCursor()
        self._looks: dict[tuple[str, int], tuple[int, int]] = {}  # since which step, and how many

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channels = [history.channel(f"model/{name}_twice") for name, *_ in _TWICE]
        sources = [self._asked(pairs, history) for pairs in self._pairs.values() if not (self._said or pairs.is_over)]
        inside: Iterator[tuple[Place, _Pairs | int, float]] = (
            (place, which, value) for which, place, value in self._cursor.in_order(*channels)
        )
        # which of them says it first is the same live and in replay
        for place, which, value in heapq.merge(inside, *sources, key=lambda one: one[0][1]):
            if self._said:
                continue
            if isinstance(which, _Pairs):
                finding = None if which.is_over else self._look(history, which, *place)
            else:
                finding = self._inside(which, value, *place)
            if finding is not None:
                self._said = True
                yield finding

    def _asked(self, pairs: _Pairs, history: RunHistory) -> Iterator[tuple[Place, _Pairs | int, float]]:
        for place in pairs.new(history, int(self.at[pairs.threshold])):
            yield place, pairs, math.nan

    def _inside(self, which: int, value: float, step: int, time: int, segment: int) -> Finding | None:
        """What the watch has seen of the output and its gradient."""
        name, what, loss = _TWICE[which]
        began, count = self._looks.get((name, segment), (step, 0))
        bounded = name == "activation" and value in _WITHIN_BOUNDS
        if not (value == 1 or bounded) or count < 0:  # a sigmoid's output is always within its bounds
            self._looks[name, segment] = step, -1 if name == "sigmoid" else 0
            return None
        began = began if count else step
        self._looks[name, segment] = began, count + 1
        if count + 1 != self.at[name]:
            return None
        what = _WITHIN_BOUNDS[int(value)] if bounded else what
        told = (
            f"the softmax or sigmoid of the {loss}: it has bounds, and logits have none" if bounded
            else f"that of the {loss}: it is probabilities, and its gradient is that of logits"
        )  # fmt: skip
        return self.finding(
            began, f"The output goes through a {what}, and then through {told}.", found=step, segment=segment,
            confidence=0.98, evidence={"looks": count + 1},
            causes=[f"softmax twice: the output goes through a {what} before the {loss}"],
        )  # fmt: skip

    def _look(self, history: RunHistory, pairs: _Pairs, step: int, time: int, segment: int) -> Finding | None:
        count = _classes(history, time)
        if not count >= 2:
            return None
        floor = math.log(1 + (count - 1) / math.e)
        loss, right = numpy.array(pairs.values).T
        right = right / 100 if right.max() > 1.5 else right
        mean, middle = float(loss.mean()), float(right.mean())
        place = step, time, segment
        names = ("softmax_twice", "loss_weight", "activation_twice", "loss_classes")
        twice, weight, before, classes = (known(history.channel(f"model/{name}"), *place) for name in names)
        if pairs.lowest < floor - 0.001:
            pairs.is_over = True
            return None
        by_graph = before == 0 and math.isfinite(classes) and twice != 1
        if (twice == 0 and math.isfinite(weight)) or by_graph:  # the training's output goes through one softmax
            learnt = usual(history.role("loss"), *place, 8) < floor - _BELOW
            if pairs is self._pairs["train"] or not learnt:
                return None
        off = loss - (1 - right) - floor
        share = float(((off > -0.01) & (off < self.at["above"])).mean())
        if share < self.at["share"] or middle < 1 / count + self.at["learnt"] * (1 - 1 / count) or middle >= 1:
            return None
        deviation = right - middle
        slope = -float(deviation @ (loss - mean)) / max(float(deviation @ deviation), 1e-12)
        if abs(slope - 1) > self.at["slope"]:
            return None
        entropy = -middle * math.log(middle) - (1 - middle) * math.log((1 - middle) / (count - 1))
        if mean <= entropy:
            return None
        return self.finding(
            pairs.began,
            f"The loss is {mean:.4g} at an accuracy of {middle:.3g}, and was never below {floor:.4g}: with {count:.0f} "
            "classes that is the least after a softmax, and each wrong answer adds 1",
            found=step,
            last_step=step,
            segment=segment,
            evidence={"loss": rounded(mean), "accuracy": rounded(middle), "floor": rounded(floor), "classes": count},
            confidence=0.95,
        )


class _Pairs:
    """Rows of an accuracy with the loss of the same step, as they come. lowest: of all losses up to the last pair."""

    def __init__(self, loss: str, accuracy: str, threshold: str):
        self.threshold, self.is_over = threshold, False
        self.values: list[tuple[float, float]] = []
        self.lowest, self.began = math.inf, 0
        self._roles, self._rows, self._count = (loss, accuracy), [0, 0], 0
        self._last = (-1, -1), math.nan  # segment and step of the last loss, and that loss

    def new(self, history: RunHistory, count: int) -> Iterator[Place]:
        """Step, time and segment of each row with which half of the last `count` pairs are new."""
        channels = [history.role(role) for role in self._roles]
        if channels[0] is None or channels[1] is None or channels[1].end == self._rows[1]:
            return
        losses, rows = (channel.rows(row) for channel, row in zip(channels, self._rows, strict=True) if channel)
        low, finished = 0, bool(history.facts.get("finished"))
        for at in range(len(rows)):
            place = int(rows.segment[at]), int(rows.step[at])
            while low < len(losses) and (then := (int(losses.segment[low]), int(losses.step[low]))) <= place:
                self._last = then, float(losses.value[low])
                if self._last[1] < self.lowest:
                    self.began = self.began if self.lowest < math.inf else then[1]
                    self.lowest = self._last[1]
                low += 1
            self._rows[0] = losses.first + low
            if self._last[0] != place and low == len(losses) and not finished:
                return  # the loss of this step may still come
            self._rows[1] = rows.first + at + 1
            pair = self._last[1], float(rows.value[at])
            if self._last[0] != place or not all(map(math.isfinite, pair)):
                continue
            self.values = [*self.values[-count + 1 :], pair]
            self._count += 1
            if len(self.values) == count and self._count % max(1, count // 2) == 0:
                yield place[1], int(rows.time[at]), place[0]


class EvaluationTwice(WatchRule):
    """The evaluation's loss takes a softmax of what is probabilities already; the training's does not.

    The watch looks at the outputs of the first pass of each evaluation. Of logits with an accuracy the loss is at most
    what the surest answers cost in the mean (`model/answer_least`), and for each wrong one of them as much as the
    largest and the least logit of a row are apart (`model/answer_span`). Of their probabilities, given to a
    cross-entropy as if they were logits, it would be the logarithm of the sum of their exponentials less the chance
    of the target: that of the surest answer in the mean, less the share of wrong answers at most. From the first
    evaluation of a launch on, five or more, each loss is within 0.1 of that range; the last three are above the most
    that logits could have by 0.1 or more; and the accuracy is more than a quarter of the way from a guess to 1. Three
    classes or more, of which none has more than half of the targets of the training, whose own loss takes one softmax:
    where classes are rare, weights may make a loss larger.

    What to do: give `cross_entropy` the mean of the logits, or `nll_loss` the logarithm of the mean probabilities.
    """

    name, family, kind, severity = "softmax_twice_in_evaluation", "loss", "logits", "warning"
    proves = "evaluation"
    series = "model/answer_least"
    needs = ("=model/answer_least", "=model/top_target_share", "eval_loss", "eval_accuracy")
    least = 5
    about = "The evaluation's loss takes a softmax of probabilities."
    thresholds: ClassVar = {
        "evaluations": (5.0, "from the first on; ours"),
        "above": (3.0, "of them, the last, above what logits could have; ours"),
        "off": (0.1, "nats, from what probabilities have, and above what logits could; ours"),
        "learnt": (0.25, "of the way from a guess to an accuracy of 1; ours"),
        "classes": (3.0, "ours"),
        "share": (0.5, "of the targets, of the most frequent class; ours"),
    }
    causes = ("softmax twice: in the evaluation, whose loss is given probabilities in the place of logits",)
    remedies = (
        "give `cross_entropy` the mean of the logits, or `nll_loss` the logarithm of the mean of the probabilities",
    )

    def begin(self) -> None:
        self._fits, self._count = True, 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        accuracies = history.role("eval_accuracy")
        loss = known(history.role("eval_loss"), *place)
        shares = newest(accuracies, *place, 64) if accuracies is not None else numpy.empty(0)
        shares = shares[numpy.isfinite(shares)]
        if not self._fits or not len(shares) or not math.isfinite(loss):
            return
        wrong = 1 - float(shares[-1]) / (100 if shares.max() > 1.5 else 1)
        span, level, chance = (watched(history, f"answer_{name}", place) for name in ("span", "level", "chance"))
        off = self.at["off"]
        self._fits, self._count = level - chance - off <= loss <= level - chance + wrong + off, self._count + 1
        classes = watched(history, "output_width", place)
        learnt = 0 <= wrong <= (1 - 1 / classes) * (1 - self.at["learnt"]) if classes >= self.at["classes"] else False
        even = usual(history.channel("model/top_target_share"), *place) <= self.at["share"]
        single = even and watched(history, "softmax_twice", place) == 0
        above = self._fits and learnt and single and loss >= value + wrong * span + off
        self._row = [*self._row, place] if above else []
        enough = self._count >= self.at["evaluations"] and len(self._row) >= self.at["above"]
        if enough and self.first(place[2]):
            yield self.finding(
                self._row[0][0], f"The evaluation loss is {loss:.4g}, where the model's outputs can have "
                f"{value + wrong * span:.4g} at most with an accuracy of {1 - wrong:.3g}, and their probabilities, "
                f"taken for logits, {level - chance:.4g} or a little more.", found=place[0], segment=place[2],
                confidence=0.95, evidence={"loss": rounded(loss), "most": rounded(value + wrong * span)},
            )  # fmt: skip


def _classes(history: RunHistory, time: int) -> float:
    """How many classes there are, as far as is known by then."""
    width = history.channel("model/output_width")
    if came_by(width, time):
        assert width is not None
        return width.first
    named = numeric_setting(history, "num_classes", "n_classes", "num_labels", "classes")
    return named if named == named else float(history.facts.get("vocabulary") or math.nan)
