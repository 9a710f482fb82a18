"""A scale of half-precision training that is raised as soon as it was halved, so that many steps are skipped.

In:   the scale of each row.
Out:  findings of `ScaleSwings`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class ScaleSwings(WatchRule):
    """The loss scale is raised and halved by turns: each rise overflows, and a step is skipped for it.

    A scaler raises its scale behind 2000 steps in a row, by default, that have not overflowed, and halves it behind
    one that has. Of 64 rows eight or more are higher than the row before, and eight or more are lower: it is raised
    after a few steps each time, to where gradients overflow. Steps that do are skipped, and their data are lost.

    What to do: leave `growth_interval` at 2000; count what is to grow in steps, not in epochs or micro-batches.
    """

    name, family, kind, severity = "scale_swings", "gradient", "loss_scale", "warning"
    proves = "training"
    needs = ("loss_scale",)
    least = 64
    about = "The loss scale is raised and halved by turns."
    sources = ("DeepSpeed: loss scaling",)
    thresholds: ClassVar = {"rows": (64.0, "ours"), "turns": (8.0, "of them that rose, and that fell; ours")}
    causes = ("loss scale grows too often: `growth_interval` is a few steps, and each rise overflows",)
    remedies = ("leave `growth_interval` at 2000 steps",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("loss_scale")

    def begin(self) -> None:
        self._last = 0.0
        self._turns: deque[tuple[int, int]] = deque(maxlen=int(self.at["rows"]))  # step; 1 where it rose, −1: fell

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        turn = (value > self._last) - (value < self._last) if self._last > 0 else 0
        self._turns.append((place[0], turn))
        self._last = value
        rose, fell = (sum(one == way for _, one in self._turns) for way in (1, -1))
        full = len(self._turns) == self._turns.maxlen
        if full and min(rose, fell) >= self.at["turns"] and self.first(place[2]):
            yield self.finding(
                self._turns[0][0], f"In {len(self._turns)} rows the loss scale rose {rose} times and fell {fell} times,"
                " and each time that it falls a step is skipped.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"rose": rose, "fell": fell},
            )  # fmt: skip


RULES = (ScaleSwings,)
