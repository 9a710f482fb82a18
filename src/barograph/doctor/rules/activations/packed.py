"""Layers whose weights are held as whole numbers, and multiplied by nothing.

In:   figures of the watch: which tensors of such layers a forward pass reads.
Out:  findings of `PackedUnscaled`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core import text
from barograph.doctor.rules.data.examples import Place, Source, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class PackedUnscaled(WatchRule):
    """Weights that are held as whole numbers are used without their scales, or without their zero points.

    A layer has its weights as whole numbers of eight bits, or packed in 32, and beside them numbers above 0 for blocks,
    rows or columns of them, which are not all the same. In the first passes of the training, two of them, torch's
    functions read the whole numbers and none of these scales (`model/packed_unscaled`), or they read the scales and not
    the zero points beside them, though these differ (`model/packed_unshifted`): what the layer gives is not what its
    weights were before. Layers whose numbers no torch function reads, as where a kernel of others does, say nothing.

    What to do: `(codes - zero) * scale`, block by block, and compare with the weights before.
    """

    name, family, kind, severity = "packed_unscaled", "model", "config", "warning"
    series = "model/packed_unscaled"
    needs = ("=model/packed_unscaled",)
    least = 2
    about = "Weights held as whole numbers are used without their scales or zero points."
    thresholds: ClassVar = {"looks": (2.0, "in a row; ours")}
    causes = ("base dequantised wrong: scales, or zero points, of layers in few bits are left out",)
    remedies = ("`(codes - zero) * scale`, block by block, and compare with the weights before",)

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/packed_unshifted"), self._unshifted)]

    def begin(self) -> None:
        self._zeros = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(value > 0, place, self.at["looks"]):
            yield self._said(value, "scales", place)

    def _unshifted(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._zeros = self._zeros + 1 if value > 0 else 0
        if self._zeros >= self.at["looks"] and self.first(place[2]):
            yield self._said(value, "zero points", place)

    def _said(self, count: float, what: str, place: Place) -> Finding:
        return self.finding(
            0 if place[0] <= _FIRST else place[0], f"{text.count(round(count), 'layer')} with weights held as whole "
            f"numbers: a forward pass reads these, and not their {what}.", found=place[0], segment=place[2],
            confidence=0.9, evidence={"layers": count, "standing": True},
        )  # fmt: skip


_FIRST = 200  # steps, in which passes are followed from the start on

RULES = (PackedUnscaled,)
"""All rules of this file."""
