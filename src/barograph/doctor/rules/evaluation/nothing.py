"""Evaluations of a classifier of which none is better than the first one.

In:   evaluation losses and accuracies, the training's loss, the number of classes.
Out:  findings of `NothingHolds`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import known
from barograph.doctor.kernel.curve import between, rounded
from barograph.doctor.kernel.kinds import of_other_kind
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import few_examples

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_NEAR = 0.3  # of ln of the classes: a first loss of a model that is new
_THIRD = 3
_SEEN = "overfitting: the examples are memorized, and nothing else is learnt"


class NothingHolds(Rule):
    """A classifier's run is over, and no evaluation is better than the first.

    A watched model that began with about the loss of a guess among its classes, trained in one launch. From the first
    evaluation to the last, a hundred steps or more, there are six or more: no loss of them is below the first by 4%,
    and none of the accuracies is more than 0.03 from another, or 0.7 or more. The first evaluation had not learnt
    anything either: its loss is not below the training's first one by more than 15%. Each example may be given the most
    frequent class. Where the training's loss has fallen by a tenth, something is learnt that holds for its own examples
    alone: inputs and labels don't belong together, or the evaluation's do not; or its examples are a few hundred,
    which it knows by heart.

    Of a loss that matches the pairs of a batch (`model/loss_pairs`) four evaluations are enough, none of which is below
    a guess's loss among its own pairs (`model/compared_width`) by a fiftieth, or has more right answers than a guess
    (`model/compared_own`) by more than 0.03, while the last third of the training's losses is a twentieth below a
    guess's: what is learnt is which pair is which, and nothing of what makes them one. Nothing is said of an average of
    the weights of which half or more is left from one evaluation to the next (`model/evaluated_kept`): it has not
    learnt what the training has. Where no text of four evaluations or more begins with the token that most of the
    training's began with at the look before, of which there are four or more, their tokens are numbered otherwise.

    What to do: print ten examples of each set with their labels, as they go into the model.
    """

    name, family, kind, severity = "nothing_holds", "eval", "not_learning", "warning"
    needs = ("loss", "eval_loss", "eval_accuracy|=model/compared_own", "=model/output_width|=model/loss_pairs")
    least = 4
    about = "No evaluation of a classifier is better than the first."
    thresholds: ClassVar = {
        "evaluations": (6.0, "ours"),
        "steps": (100.0, "from the first to the last; ours"),
        "better": (0.04, "of the first evaluation's loss; ours"),
        "apart": (0.03, "between accuracies; ours"),
        "most": (0.7, "an accuracy; ours"),
        "blank": (0.15, "of the training's first loss, below it the first evaluation's; ours"),
        "fitted": (0.1, "of the training's first loss, by which it fell; ours"),
        "matched": (4.0, "evaluations, of pairs; ours"),
        "guess": (0.02, "of a guess's loss, by which none of these is below it; ours"),
        "kept": (0.5, "of an average of the weights that is evaluated, from one evaluation to the next; ours"),
        "learnt": (0.05, "of a guess's loss, by which the training's is below it; ours"),
    }
    causes = (
        "labels shuffled: inputs and labels don't belong together",
        "learning rate too low: the weights have hardly left where they began",
        "gradients vanish",
    )
    remedies = ("print ten examples of the training and of the evaluation with their labels, as the model gets them",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._of_pairs(history)
        loss, evaluation, accuracy = (history.role(name) for name in ("loss", "eval_loss", "eval_accuracy"))
        if not history.facts.get("finished") or loss is None or evaluation is None or accuracy is None or loss.start:
            return
        rows, seen = loss.rows(), evaluation.rows()
        if not len(rows) or len(seen) < self.at["evaluations"] or len({*rows.segment, *seen.segment}) > 1:
            return
        place = int(seen.step[-1]), int(seen.time[-1]), int(seen.segment[-1])
        classes = known(history.channel("model/output_width"), *place)
        shares = between(accuracy, 0, place[0] + 1, place[2])
        if of_other_kind(history, evaluation, *place):
            return
        new = classes >= 2 and abs(loss.first / math.log(classes) - 1) <= _NEAR and rows.step[0] <= 1
        if not new or len(shares) < len(seen) or not numpy.isfinite(seen.value).all():
            return
        first, low, high = float(seen.value[0]), float(seen.value.min()), float(shares.max())
        long = seen.step[-1] - seen.step[0] >= self.at["steps"]
        blank = first >= (1 - self.at["blank"]) * loss.first
        same = high - float(shares.min()) <= self.at["apart"] and high < self.at["most"]
        if long and blank and same and low > (1 - self.at["better"]) * first and self.first():
            part = rows.value[-(len(rows) // _THIRD) :]
            now = float(numpy.median(part)) if len(part) else loss.last
            fitted = now <= (1 - self.at["fitted"]) * loss.first
            few = fitted and few_examples(history, place)
            yield self.finding(
                int(seen.step[0]), f"In {len(seen)} evaluations hardly one is better than the first: {first:.4g} then, "
                f"{low:.4g} at best, with an accuracy of {high:.3g} at most; the training loss went from "
                f"{loss.first:.4g} to {now:.4g}.", found=place[0], segment=place[2], confidence=0.85,
                causes=[_SEEN, *self.causes[:1]] if few else [*self.causes[:1], _SEEN] if fitted
                else list(self.causes), kind="overfit" if few else self.kind,
                evidence={"first": rounded(first), "best": rounded(low), "accuracy": rounded(high)},
            )  # fmt: skip

    def _of_pairs(self, history: RunHistory) -> Iterator[Finding]:
        """Of a loss that matches the pairs of a batch."""
        loss, evaluation, own = history.role("loss"), history.role("eval_loss"), history.channel("model/compared_own")
        if not history.facts.get("finished") or loss is None or evaluation is None or own is None or loss.start:
            return
        rows, seen = loss.rows(), evaluation.rows()
        if not len(rows) or len(seen) < self.at["matched"] or len({*rows.segment, *seen.segment}) > 1:
            return
        place = int(seen.step[-1]), int(seen.time[-1]), int(seen.segment[-1])
        shares = between(own, 0, place[0] + 1, place[2])
        ours, width = (known(history.channel(f"model/{name}"), *place) for name in ("loss_pairs", "compared_width"))
        if not (ours > 1 and width > 1) or len(shares) < len(seen) - 1 or of_other_kind(history, evaluation, *place):
            return
        long = seen.step[-1] - seen.step[0] >= self.at["steps"]
        low, high, part = float(seen.value.min()), float(shares.max()), rows.value[-max(1, len(rows) // _THIRD) :]
        guessed = low >= (1 - self.at["guess"]) * math.log(width) and high <= 1 / width + self.at["apart"]
        now = float(numpy.median(part))
        lags = float(between(history.channel("model/evaluated_kept"), 0, place[0] + 1, place[2]).max(initial=0.0))
        if lags < self.at["kept"] and long and guessed and now <= (1 - self.at["learnt"]) * math.log(ours) and (
            self.first()
        ):  # fmt: skip
            few, other = few_examples(history, place), _begin_otherwise(history, place)
            yield self.finding(
                int(seen.step[0]), f"None of {len(seen)} evaluations is better than a guess among {width:.0f} pairs "
                f"({math.log(width):.4g}): {low:.4g} at best, with {100 * high:.2g}% of them right at most; the "
                f"training loss is {now:.4g}, where a guess has {math.log(ours):.4g}.",
                found=place[0], segment=place[2], confidence=0.85,
                causes=[_OTHER_WORDS, _PAIRS] if other else [_SEEN, _PAIRS] if few else [_PAIRS, _SEEN],
                kind="data" if other else "overfit" if few else self.kind,
                evidence={"guess": rounded(math.log(width)), "best": rounded(low), "accuracy": rounded(high)},
            )  # fmt: skip


def _begin_otherwise(history: RunHistory, place: tuple[int, int, int]) -> bool:
    """Whether no text of four evaluations or more begins as most of the training's did at the last look before it, of
    which these are four tokens or more that evaluations know."""
    names = ("eval_opening_alike", "eval_opening_known", "opening")
    alike, known_ones, ours = (between(history.channel(f"model/{name}"), 0, place[0] + 1, place[2]) for name in names)
    some = len(alike) >= _LOOKS and len(known_ones) == len(alike) and len(set(ours.tolist())) >= _LOOKS
    return bool(some and not alike.any() and known_ones.all())


_LOOKS = 4
_OTHER_WORDS = (
    "vocabulary differs: no text of the evaluations begins with a token that most of the training's begin with"
)
_PAIRS = "labels shuffled: the two sides of the training's pairs don't belong together"
RULES = (NothingHolds,)
