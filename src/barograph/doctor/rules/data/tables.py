"""Pairs of a batch that a loss tells from all others by a logistic loss each: is anything learnt of them?

In:   how many pairs a table has, by the graph of the loss; losses and accuracies.
Out:  findings of `PairsUnlearnt`.

SigLIP's loss (arXiv:2303.15343) asks of each of n × n similarities whether both sides belong together. What gives all
of them one score has, at best, the entropy of one in n for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import known
from barograph.doctor.kernel.curve import between, rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import few_examples

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.rules.data.examples import Place

_HALVES = 2
_OVERFIT = "overfitting: the examples are memorized, and nothing else is learnt"


class PairsUnlearnt(Rule):
    """Of pairs that a sigmoid each tells from all others nothing is learnt, or nothing that evaluations show.

    The graph of the loss shows a logistic loss for each of n × n similarities of two sides (`model/sigmoid_pairs`), of
    eight rows or more. A run is over, in one launch. One score for all has the entropy of one in n for each similarity;
    it is compared as a mean, and times n or n², as where rows, or all of them, are added up.

    - In both halves of the last 120 losses the mean is within 1.5% of that, and no evaluation has more right answers
      than a guess, by 0.03: the two sides of pairs don't belong together.
    - Or it is within half a percent of ln 2 for each similarity that is not a pair's: these are multiplied by 0, where
      −1 was meant, and only pairs are learnt, which one answer for all satisfies.
    - Or the last third is a tenth below a guess's, and none of four evaluations or more, a hundred steps from the first
      to the last, is below one by a fiftieth, or has more right answers: the two sides of what is evaluated don't
      belong together, or what is learnt are the training's examples alone.

    What to do: print ten pairs of the training and of the evaluation, as they go into the model.
    """

    name, family, kind, severity = "pairs_unlearnt", "data", "not_learning", "warning"
    needs = ("loss", "=model/sigmoid_pairs")
    least = 120
    about = "Of pairs that a sigmoid each tells from all others nothing is learnt."
    thresholds: ClassVar = {
        "pairs": (8.0, "of a batch; ours"),
        "rows": (120.0, "the last ones, of the loss; ours"),
        "near": (0.015, "of a guess's loss; ours"),
        "floor": (0.005, "of the loss of similarities that are multiplied by 0; ours"),
        "apart": (0.03, "of an accuracy above a guess's; ours"),
        "learnt": (0.1, "of a guess's loss, by which the training's is below it; ours"),
        "guess": (0.02, "of it, by which no evaluation is below it; ours"),
        "evaluations": (4.0, "ours"),
        "steps": (100.0, "from the first to the last; ours"),
    }
    causes = ("labels shuffled: the two sides of the pairs don't belong together",)
    remedies = ("print ten pairs of the training and of the evaluation, as they go into the model",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        loss = history.role("loss")
        if not history.facts.get("finished") or loss is None or loss.end < self.at["rows"]:
            return
        rows = loss.rows(loss.end - int(self.at["rows"]))
        place = int(rows.step[-1]), int(rows.time[-1]), int(rows.segment[-1])
        count = known(history.channel("model/sigmoid_pairs"), *place)
        if not count >= self.at["pairs"] or rows.cuts or not numpy.isfinite(rows.value).all():
            return
        guess, floor = _entropy(1 / count), math.log(2) * (1 - 1 / count)
        early, late = (float(half.mean()) for half in numpy.array_split(rows.value, _HALVES))
        accuracy = history.role("eval_accuracy")
        shares = between(accuracy, 0, place[0] + 1, place[2]) if accuracy is not None else numpy.empty(0)
        guesses = not len(shares) or float(shares.max()) <= 1 / count + self.at["apart"]
        for times in (count, 1.0, count * count):
            for level, near, what, cause in (
                (times * guess, self.at["near"] if guesses else 0.0, _GUESS, self.causes[0]),
                (times * floor, self.at["floor"], _FLOOR, _NONE),
            ):
                off = max(abs(one / level - 1) for one in (early, late))
                if off <= near and self.first():
                    yield self.finding(
                        int(rows.step[0]), f"The loss is {late:.4g}, and {what} {level:.4g}, of {count:.0f} × "
                        f"{count:.0f} similarities: which of them are pairs is not learnt.", found=place[0],
                        segment=place[2], confidence=0.9, causes=[cause],
                        evidence={"loss": rounded(late), "guess": rounded(level)},
                    )  # fmt: skip
            if guesses and len(shares) and self._holds_alone(history, times * guess, place, late):
                yield self._held(history, times * guess, place, late, float(shares.max()))

    def _holds_alone(self, history: RunHistory, guess: float, place: Place, late: float) -> bool:
        """Whether the training is below a guess, and no evaluation is."""
        evaluation = history.role("eval_loss")
        seen = evaluation.rows() if evaluation is not None and evaluation.end else None
        if seen is None or len(seen) < self.at["evaluations"] or seen.cuts or not numpy.isfinite(seen.value).all():
            return False
        long = seen.step[-1] - seen.step[0] >= self.at["steps"]
        near = guess * (1 - self.at["guess"]) <= seen.value.min() <= 2 * guess
        return bool(long and near and guess / 2 <= late <= (1 - self.at["learnt"]) * guess)

    def _held(self, history: RunHistory, guess: float, place: Place, late: float, right: float) -> Finding:
        evaluation = history.role("eval_loss")
        assert evaluation is not None
        few = few_examples(history, place)
        low, first = float(evaluation.rows().value.min()), int(evaluation.rows().step[0])
        return self.finding(
            first, f"No evaluation is better than one score for all ({guess:.4g}): {low:.4g} at best, with "
            f"{100 * right:.2g}% right at most; the training loss is {late:.4g}.", found=place[0], segment=place[2],
            key="evaluation", confidence=0.85, causes=[_OVERFIT, _OTHER] if few else [_OTHER, _OVERFIT],
            kind="overfit" if few else "eval", evidence={"guess": rounded(guess), "best": rounded(low)},
        )  # fmt: skip


def _entropy(share: float) -> float:
    """Of a chance of that share, in nats."""
    return -share * math.log(share) - (1 - share) * math.log1p(-share)


_GUESS = "with one score for all it is"
_FLOOR = "where all but those of pairs are multiplied by 0 it is at least"
_NONE = "negatives missing: the labels of all similarities that are not a pair's are 0, where −1 was meant"
_OTHER = "labels of the evaluation are others: the two sides of its pairs don't belong together"
RULES = (PairsUnlearnt,)
