"""Master weights that hold no more than weights of sixteen bits.

In:   a figure of the watch, of copies that an optimizer steps.
Out:  findings of `CopiesRounded`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class CopiesRounded(WatchRule):
    """The optimizer steps copies of the weights in 32 bits, and these are rounded to sixteen in each step.

    Beside a model whose weights have sixteen bits, copies in 32 are kept for what a step adds below the weights' last
    place. In three looks in a row, eight steps apart, all elements of the largest copy that are looked at are numbers
    of sixteen bits, though some have changed since the look before: the weights are read back into the copies, and what
    they hold beyond sixteen bits is lost. Where a rate of nearly 0 moves nothing, nothing is said.

    What to do: copy from the copies to the weights alone, behind the optimizer's step; from the weights to the copies
    once, before the first step.
    """

    name, family, kind, severity = "copies_rounded", "optimizer", "config", "warning"
    proves = "training"
    series = "model/copies_rounded"
    needs = ("=model/copies_rounded",)
    least = 3
    about = "Copies of the weights in 32 bits are rounded to sixteen in each step."
    thresholds: ClassVar = {"looks": (3.0, "in a row, eight steps apart; ours")}
    causes = ("master weights rounded: they are read back from the weights of sixteen bits, and lose small steps",)
    remedies = ("copy from the master weights to the model behind each step, and never back",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value == 1, place, self.at["looks"]):
            count = watched(history, "half_parameters", place)
            which = f"the {count:.0f} weights of sixteen bits" if count > 0 else "weights of sixteen bits"
            yield self.finding(
                0, f"The optimizer steps copies in 32 bits of {which}. In {self.at['looks']:.0f} looks in a row all "
                "that was looked at of them were numbers of sixteen bits, though they changed.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"looks": self.at["looks"]},
            )  # fmt: skip


RULES = (CopiesRounded,)
