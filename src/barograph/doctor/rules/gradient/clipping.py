"""Clipping that comes too early, too late, or not at all.

In:   the logged norm of the gradient, and the watch's own, before and at the optimizer's step; the configured limit.
Out:  findings of `ClippedEmpty`, `NeverClipped`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.configuration import CLIP
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor, known, scaled_loss
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.remedies import clip_limit
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_OTHERWISE = expression(r"(?i)value|agc|adaptive|quantile|unit")  # an option of clipping that is none by the norm
_INSIDE = expression(
    r"(?i)deepspeed|lamb\b|zero_?[123]|apex|colossal|megatron|opacus|noise_multiplier"
)  # clips in its own step


class ClippedEmpty(Rule):
    """The logged norm of the gradient is 0 from the first row on, and the optimizer steps with gradients that are not.

    In six rows in a row, all there are so far, the norm is exactly 0, and at the last of them the watch's own
    (`model/grad_norm`) is above it. What is clipped, or measured, is not there yet, or no longer: `clip_grad_norm_` is
    called ahead of `backward()`, or behind `zero_grad()`, or for other parameters. Where the configuration turns
    clipping off, with a limit of 0, nobody measured that norm: an info finding.

    What to do: `loss.backward()`, then `clip_grad_norm_`, then `optimizer.step()`.
    """

    name, family, kind, severity = "clipped_empty", "gradient", "clipping", "warning"
    proves = "training"
    needs = ("norm", "=model/grad_norm")
    least = 6
    about = "The logged norm is 0, and the optimizer steps with gradients that are not."
    thresholds: ClassVar = {"rows": (6.0, "from the first one on; ours")}
    causes = ("gradients clipped when there are none: ahead of `backward()`, or behind `zero_grad()`",
              "optimizer holds other parameters: those that are clipped get no gradient")  # fmt: skip
    remedies = ("call `clip_grad_norm_` between `backward()` and `optimizer.step()`",)
    unmeasured = "norm not measured: 0 is logged in its place, for the configuration clips nothing"

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._rows = 0

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        logged = history.role("norm")
        if logged is None or logged.name.startswith("model/") or logged.start:
            return
        for place, value in self._cursor.each(logged):
            self._rows = self._rows + 1 if value == 0 and self._rows >= 0 else -1
            own = known(history.channel("model/grad_norm"), *place)
            if self._rows >= self.at["rows"] and 0 < own < math.inf and self.first():
                off = _turned_off(history)
                yield self.finding(
                    int(logged.rows(0, 1).step[0]), f"The logged norm of the gradient is 0 in all {self._rows} rows, "
                    f"and the optimizer steps with a gradient of norm {own:.3g}.", found=place[0], segment=place[2],
                    severity="info" if off else "warning", confidence=0.95,
                    causes=[self.unmeasured] if off else list(self.causes),
                    remedies=["log the norm that is measured, or none"] if off else list(self.remedies),
                    evidence={"norm": rounded(own), "standing": True},
                )  # fmt: skip


class NeverClipped(WatchRule):
    """The configuration has a norm at which gradients are clipped, and they are above it as the optimizer steps.

    The watch compares the norm when the backward pass has ended with that at the step (`model/clip_coefficient`). In
    two looks in a row it is the same, to a thousandth, and a twentieth or more above the configured limit: nothing
    clips these gradients ahead of the step. Where an option says that values are clipped, or another program steps by
    itself and clips within, nothing is said; nor under a scaler. A bare `clip` is the bound of a policy's ratios where
    rewards are logged, it is 0.3 or less or the share of clipped ratios is logged, and no other option is that bound.

    What to do: `clip_grad_norm_` between `backward()` and `optimizer.step()`.
    """

    name, family, kind, severity = "never_clipped", "gradient", "clipping", "warning"
    proves = "training"
    series = "model/clip_coefficient"
    needs = ("=model/clip_coefficient", "=model/grad_norm")
    least = 2
    about = "Gradients are above the configured limit as the optimizer steps."
    thresholds: ClassVar = {
        "looks": (2.0, "in a row; ours"),
        "same": (0.001, "of 1, the norm at the step over that before; ours"),
        "above": (1.05, "times the limit; ours"),
    }
    causes = ("gradients not clipped: `clip_grad_norm_` is called behind the step, or not at all",)
    remedies = ("call `clip_grad_norm_` between `backward()` and `optimizer.step()`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        limit, norm = clip_limit(history), watched(history, "grad_norm", place)
        above = 0 < limit * self.at["above"] <= norm < math.inf and abs(value - 1) < self.at["same"]
        above = above and not scaled_loss(history, place[1]) and not _clips_otherwise(history)
        if self.lasts(above, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"The configuration clips gradients at a norm of {limit:.4g}; at the step it is "
                f"{norm:.4g}, as it was when the backward pass had ended.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"norm": rounded(norm), "limit": limit, "standing": True},
            )  # fmt: skip


def _turned_off(history: RunHistory) -> bool:
    """Whether the configuration has a limit of the norm, and each that it has is 0."""
    found = history.options.found
    limits = [found[name] for name in CLIP if name in found]
    return bool(limits) and not any(limits)


def _clips_otherwise(history: RunHistory) -> bool:
    """Whether the configuration clips values, or by another rule, or names a program that clips by itself."""
    for name, value in history.options.found.items():
        clips = "clip" in name.lower()
        if clips and (_OTHERWISE.search(name) or (isinstance(value, str) and _OTHERWISE.search(value))):
            return True
        if _INSIDE.search(name) or (isinstance(value, str) and _INSIDE.search(value)):
            return True
    return False


RULES = (ClippedEmpty, NeverClipped)
