"""Targets that are not finite, and leave no trace in the weights.

In:   the loss; figures of the watch about its graph.
Out:  findings of `TargetsNotFinite`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class TargetsNotFinite(WatchRule):
    """Losses of single rows are not finite, and the next ones are: targets of these batches are NaN or infinite.

    The graph says that the loss is nothing but differences from targets, or logistic losses: of finite outputs it is
    finite, unless a target is not. The weights are finite, for the next row's loss is; inputs were, as far as the watch
    saw; and nothing is in half precision, whose overflow a scaler leaves out. Twice in a launch: one row may be a line
    of the log. Where the weights become NaN with the loss, see `non_finite_origin`.

    What to do: `torch.isfinite(target).all()` where targets are made; a division by 0, a logarithm of 0, a gap.
    """

    name, family, kind, severity = "targets_not_finite", "data", "nonfinite", "warning"
    needs = ("loss", "=model/loss_error")
    least = 4
    about = "Losses of single rows are not finite: targets of these batches are NaN or infinite."
    thresholds: ClassVar = {"rows": (2.0, "ours")}
    causes = ("target not finite: a NaN or an infinity among the targets of these batches",)
    remedies = (
        "check targets where they are made: `torch.isfinite(target).all()`; a division by 0, a gap in the data",
        "leave these rows out, or mask them with `where` before the loss is computed",
    )

    def channel(self, history: RunHistory) -> Channel | None:
        loss = history.role("loss")
        return loss if history.channel("model/loss_error") is not None else None

    def begin(self) -> None:
        self._steps: list[int] = []
        self._waiting: list[int] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if not math.isfinite(value):
            self._waiting.append(place[0])
            return
        self._steps, self._waiting = [*self._steps[:64], *self._waiting], []
        if len(self._steps) < self.at["rows"] or watched(history, "loss_error", place) != 1:
            return
        other = (watched(history, name, place) for name in ("half_output", "half_parameters", "non_finite_inputs"))
        if any(figure > 0 for figure in other) or watched(history, "loss_scale", place) > 0:
            return
        if self.first(place[2]):
            yield self.finding(
                self._steps[0], f"The losses of steps {', '.join(map(str, self._steps))} are not finite, those behind "
                "them are, and the loss is nothing but an error beside targets.", found=place[0], segment=place[2],
                confidence=0.95, evidence={"rows": len(self._steps)},
            )  # fmt: skip


RULES = (TargetsNotFinite,)
