"""Gradients that are clipped when the optimizer's step is over.

In:   by what gradients were multiplied between a step's end and the next one's begin.
Out:  findings of `ClippedAfter`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class ClippedAfter(WatchRule):
    """Gradients are clipped behind the optimizer's step, which has used them as they were.

    A gradient that a step has used is scaled before the next step begins, and no new one comes into its place
    (`model/scaled_after`): in four looks by a factor below 1, and not always by the same one. Gradients that go on,
    as with a momentum by hand, get the next pass added, and then are not a multiple of what they were.

    What to do: `clip_grad_norm_` behind `backward()`, ahead of `optimizer.step()`.
    """

    name, family, kind, severity = "clipped_after", "gradient", "clipping", "warning"
    proves = "training"
    series = "model/scaled_after"
    needs = ("=model/scaled_after",)
    least = 4
    about = "Gradients are clipped behind the optimizer's step."
    thresholds: ClassVar = {"looks": (4.0, "ours"), "apart": (1.01, "times the least factor, the largest; ours")}
    causes = ("clipping not in force: it runs after the step",)
    remedies = ("call `clip_grad_norm_` after `backward()` and before `optimizer.step()`",)

    def begin(self) -> None:
        self._factors: list[tuple[int, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._factors.append((place[0], value))
        factors = [factor for _, factor in self._factors]
        enough = len(factors) >= self.at["looks"] and max(factors) >= self.at["apart"] * min(factors)
        if enough and self.first(place[2]):
            yield self.finding(
                self._factors[0][0], f"Behind the optimizer's step gradients are scaled, by {min(factors):.3g} to "
                f"{max(factors):.3g}, and then let go: the step has used them unclipped.", found=place[0],
                segment=place[2], confidence=0.95, evidence={"factor": rounded(value), "standing": True},
            )  # fmt: skip


RULES = (ClippedAfter,)
