"""A loss of the hardest examples of each batch alone.

In:   how many examples' losses are in the loss, as its graph shows; evaluation losses.
Out:  findings of `HardestAlone`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class HardestAlone(WatchRule):
    """The loss is the mean over an eighth of a batch's examples or fewer, and no evaluation is better than a guess.

    The graph of the loss shows how many of the examples' cross-entropies are taken from the end of their order
    (`model/hardest_kept`, `model/hardest_of`), by `topk` or a sort: one of eight at most, of eight examples or more,
    each row of the batch with one. The others have no gradient. From step 50 on, three evaluations in a row have a
    loss that is not below that of a guess among the classes: outliers and mistaken labels are what is learnt. Some of
    the hardest examples, as a quarter of them, or of the places of a picture, are taken on purpose, and where
    evaluations are good the choice is.

    What to do: keep the larger part: `each.topk(int(0.9 * len(each)))` leaves a tenth out.
    """

    name, family, kind, severity = "hardest_alone", "loss", "not_learning", "warning"
    proves = "training"
    needs = ("eval_loss", "=model/hardest_kept", "=model/output_width")
    least = 3
    about = "The loss is of the hardest few examples of each batch, and no evaluation is better than a guess."
    thresholds: ClassVar = {
        "share": (0.125, "of a batch's examples; ours"),
        "examples": (8.0, "of a batch, at least; ours"),
        "step": (50.0, "from which on evaluations count; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = (
        "wrong reduction: the loss is of a few examples of each batch, the hardest, and the others have no gradient",
    )
    remedies = ("take more of the examples into the loss: the share that is given is kept, and not left out",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("eval_loss")

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        kept, every, rows, width = (
            watched(history, name, place) for name in ("hardest_kept", "hardest_of", "example_rows", "output_width")
        )
        few = every == rows >= self.at["examples"] and 0 < kept <= self.at["share"] * every
        guess = math.log(max(width, 2.0))
        if self.lasts(few and place[0] >= self.at["step"] and guess <= value < math.inf, place, self.at["evaluations"]):
            yield self.finding(
                0, f"The loss is the mean of {kept:.0f} of a batch's {every:.0f} examples, chosen by its size; the "
                f"evaluation loss is {value:.4g}, and a guess has {guess:.4g}.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"kept": kept, "examples": every, "loss": rounded(value), "standing": True},
            )  # fmt: skip


RULES = (HardestAlone,)
