"""Losses over a batch's pairs whose two halves are one and the same.

In:   a figure of the watch, which reads what is added up from autograd's graph of the loss.
Out:  findings of `PairsOneWay`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.objectives import GraphRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.rules.data.examples import Place


class PairsOneWay(GraphRule):
    """A loss of pairs adds one cross-entropy twice, and has none the other way.

    The loss is two or more cross-entropies over the similarities of all pairs of a batch's two sides, added as
    they are, as those from images to texts and from texts to images are. The graph shows that all of them are along the
    same rows of the same similarities, in all looks up to the 20th row of the loss: the second one is the first one
    once more, and the other side never has to find its own. A single cross-entropy, over one side on purpose, is none
    of these; nor are those of which one has a weight of its own, as of mixed targets.

    What to do: transpose the similarities for the second one: `cross_entropy(scores.T, labels)`.
    """

    name, family, kind, severity = "pairs_one_way", "data", "config", "warning"
    proves = "training"
    figures = ("pairs_one_way",)
    needs = ("=model/pairs_one_way", "loss")
    about = "A loss of pairs adds one cross-entropy twice, and has none the other way."
    thresholds: ClassVar = {"rows": (20.0, "ours")}
    causes = ("transpose missing: both halves of the loss are along the same side of the pairs",)
    remedies = ("transpose the similarities for one half: `cross_entropy(scores.T, labels)`",)

    def tell(self, history: RunHistory, name: str, figure: float, place: Place, found: int) -> Iterator[Finding]:
        if figure > 1 and self.first(place[2]):
            yield self.finding(
                place[0], f"The cross-entropies over the batch's {figure:.0f} pairs that the loss adds are all along "
                "the same rows of the same similarities: one counts twice, and none is the other way.",
                found=found, segment=place[2], confidence=0.9, evidence={"standing": True},
            )  # fmt: skip


RULES = (PairsOneWay,)
