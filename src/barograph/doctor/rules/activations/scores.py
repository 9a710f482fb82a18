"""Attention whose scores are not divided.

In:   what the watch saw of a forward pass: products that go into a softmax as they are, and how far scores lie apart.
Out:  findings of `UndividedScores`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import known
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.objectives import GraphRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.rules.data.examples import Place

_START = 20  # steps: weights are nearly those that were drawn


class UndividedScores(GraphRule):
    """Attention does not divide its scores by the root of the size of a head.

    In a forward pass that the watch followed, products of queries and keys go into a softmax, and nothing divided or
    multiplied them, the queries or the keys by a number. In the first steps the scores of a query have a deviation of 2
    or more, so that the largest of some dozen keys has nearly all of the attention without any training. The weights
    are as torch draws them, or a language model has the loss of a guess: one that was trained may have such scores, and
    one whose queries are drawn smaller to make up for it (as T5's) has a deviation of about 1.

    What to do: `scores / math.sqrt(size)`, or `scaled_dot_product_attention`, which does it itself.
    """

    name, family, kind, severity = "undivided_scores", "model", "attention", "warning"
    figures = ("attention/undivided",)
    needs = ("=model/attention/undivided", "=model/attention/deviation", "loss")
    least = 20
    about = "Attention does not divide its scores."
    thresholds: ClassVar = {
        "rows": (20.0, "ours"),
        "deviation": (2.0, "of a query's scores, in the first steps; ours"),
        "guess": (0.8, "of ln of the vocabulary, the first loss; ours"),
    }
    causes = ("attention temperature: scores are not divided by the root of the size of a head",)
    remedies = ("`scores / math.sqrt(size)`, or `scaled_dot_product_attention`, which does it itself",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        looks = history.channel("model/attention/deviation")
        if looks is None or not looks.end or figure <= 1:
            return
        first = looks.rows(0, 1)
        deviation = float(first.value[0])
        if int(first.step[0]) > _START or not deviation >= self.at["deviation"] or not self._is_new(history, place):
            return
        yield self.finding(
            int(first.step[0]), f"Scores of attention are products of queries and keys of {figure:.0f} numbers that "
            f"nothing divides: before any training those of a query have a deviation of {deviation:.3g}.",
            found=found, segment=place[2], confidence=0.95,
            evidence={"deviation": rounded(deviation), "standing": True},
            remedies=[f"divide the scores by √{figure:.0f} ≈ {math.sqrt(figure):.3g}, or use "
                      "`scaled_dot_product_attention`, which does it itself"],
        )  # fmt: skip

    def _is_new(self, history: RunHistory, place: Place) -> bool:
        """Whether the weights are those that were drawn, as far as that can be known."""
        if known(history.channel("model/drawn"), *place) == 1:
            return True
        loss, width = history.role("loss"), known(history.channel("model/output_width"), *place)
        text = known(history.channel("model/target_shift"), *place) == 1
        return bool(text and loss is not None and width > 1 and loss.first >= self.at["guess"] * math.log(width))


RULES = (UndividedScores,)
