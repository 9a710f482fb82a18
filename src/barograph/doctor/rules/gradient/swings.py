"""A scale of half-precision training that is raised as soon as it was halved, and gradients that are divided by it
twice.

In:   the scale of each row; how many steps were skipped; by what gradients were multiplied before the optimizer's step.
Out:  findings of `ScaleSwings`, `UnscaledTwice`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class ScaleSwings(WatchRule):
    """The loss scale is raised and halved by turns: each rise overflows, and a step is skipped for it.

    A scaler raises its scale behind 2000 steps in a row, by default, that have not overflowed, and halves it behind
    one that has. Of 64 rows eight or more are higher than the row before, and eight or more are lower: it is raised
    after a few steps each time, to where gradients overflow. Steps that do are skipped, and their data are lost.

    The watch's scale is that of steps that were not skipped, and may be the same in all of these. It counts those that
    were (`model/skipped_steps`): a quarter of the steps or more, in each of three windows of 32 steps or more, one
    after the other. The first steps, in which a scaler finds its value, are fewer.

    What to do: leave `growth_interval` at 2000; count what is to grow in steps, not in epochs or micro-batches.
    """

    name, family, kind, severity = "scale_swings", "gradient", "loss_scale", "warning"
    proves = "training"
    needs = ("loss_scale|=model/skipped_steps",)
    least = 32
    about = "The loss scale is raised and halved by turns."
    sources = ("DeepSpeed: loss scaling",)
    thresholds: ClassVar = {
        "rows": (64.0, "ours"),
        "turns": (8.0, "of them that rose, and that fell; ours"),
        "window": (32.0, "steps; ours"),
        "windows": (3.0, "in a row; ours"),
        "share": (0.25, "of the steps of each, that were skipped; ours"),
    }
    causes = ("loss scale grows too often: `growth_interval` is a few steps, and each rise overflows",)
    remedies = ("leave `growth_interval` at 2000 steps",)

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("loss_scale")

    def reset(self) -> None:
        super().reset()
        self._since: list[int] = []  # where windows in which a share of the steps was skipped began, and the open one
        self._count, self._launch = 0.0, -1  # of skipped steps, where that began

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/skipped_steps"), self._skips)]

    def _skips(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        """value: how many steps were skipped so far."""
        if place[2] != self._launch or value < self._count:
            self._since, self._count, self._launch = [place[0]], value, place[2]
            return
        steps = place[0] - self._since[-1]
        if steps < self.at["window"]:
            return
        enough = value - self._count >= self.at["share"] * steps
        self._since, self._count = [*(self._since if enough else []), place[0]], value
        if len(self._since) > self.at["windows"] and self.first(place[2]):
            yield self.finding(
                self._since[0], "The scaler skips a quarter of the steps or more, again and again since step "
                f"{self._since[0]}.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"since": self._since[0]}, causes=[*self.causes, _OVERFLOW],
            )  # fmt: skip

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


class UnscaledTwice(WatchRule):
    """Gradients are divided by the loss scale twice.

    With a scale of 16 or more, the norm with which the optimizer steps is one part in as many as the scale of the norm
    that the gradients of the loss itself have, within a thousandth, in three looks in a row (`model/clip_coefficient`):
    what the scaler has divided is divided once more, by hand or by another `unscale_`. Clipping, which takes away
    another part in each step, never acts then, and what an optimizer adds below the root, or to gradients, as weight
    decay in SGD, outweighs them.

    What to do: `scaler.unscale_(optimizer)` once, then clip, then `scaler.step(optimizer)`.
    """

    name, family, kind, severity = "unscaled_twice", "gradient", "loss_scale", "warning"
    proves = "training"
    series = "model/clip_coefficient"
    needs = ("=model/clip_coefficient", "=model/loss_scale")
    least = 3
    about = "Gradients are divided by the loss scale twice."
    thresholds: ClassVar = {
        "looks": (3.0, "in a row; ours"),
        "same": (1e-3, "of one over the scale; ours"),
        "scale": (16.0, "ours"),
    }
    causes = ("gradients unscaled twice: what `unscale_` has divided by the scale is divided by it once more",)
    remedies = ("divide by the scale once: `scaler.unscale_(optimizer)`, then clip, then `scaler.step(optimizer)`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        scale = watched(history, "loss_scale", place)
        twice = scale >= self.at["scale"] and abs(value * scale - 1) <= self.at["same"]
        if self.lasts(twice, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"The optimizer steps with 1 / {scale:.6g} of the gradients, and {scale:.6g} is the "
                "loss scale: they are divided by it twice.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"scale": scale, "part": rounded(value), "standing": True},
            )  # fmt: skip


_OVERFLOW = "fp16 overflow: activations or gradients leave the range of half precision"

RULES = (ScaleSwings, UnscaledTwice)
