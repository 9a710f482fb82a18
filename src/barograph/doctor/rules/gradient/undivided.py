"""Gradients that nothing divides: of a scaled loss, past the scaler, or of a sum over targets, by fewer than these.

In:   what backward passes are called with, the logged loss, the norm of the gradients as the passes leave them and as
      it is logged, the scaler's scale.
Out:  findings of `GradientsUndivided`, `DividedByPart`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import came_by, summed_by_choice
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.loss.given import GivenLosses, divided_by

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_MOST = 2.0**32  # no scale is above it


class GradientsUndivided(Rule):
    """The loss is scaled, and the optimizer steps with gradients that nothing has divided by the scale.

    In six steps in a row backward passes were called with one and the same power of two times the logged loss, 1024 or
    more (within 0.2%), and no GradScaler made the steps, as the watch would have seen; or it knows the scaler, and
    steps are made past it (`model/scaler_passed_by`). The norm of the gradients, ahead of clipping where there is any,
    is an eighth of that number or more: divided by it they would be of a usual size, and nobody has divided them. Where
    the norm that the program logs is that norm divided by the number (within 2%), or the one that the optimizer meets
    is so in two looks, the program has done it by itself, and nothing is said. Where the watch knows the scaler, the
    norm at a step has to be larger, in one look, than it would be divided: clipping makes it smaller. An optimizer such
    as Adam hardly minds the factor; clipping and weight decay do, and steps whose gradients overflowed are not left
    out.

    What to do: `scaler.unscale_(optimizer)`, clip, `scaler.step(optimizer)`, `scaler.update()`.
    """

    name, family, kind, severity = "gradients_undivided", "gradient", "loss_scale", "warning"
    proves = "training"
    needs = ("=model/loss_given", "=model/grad_norm|=model/grad_norm_before", "loss")
    least = 6
    about = "The loss is scaled, and the optimizer steps with gradients that nothing has divided by the scale."
    thresholds: ClassVar = {
        "steps": (6.0, "in a row; ours"),
        "scale": (1024.0, "ours"),
        "same": (0.002, "of a power of two; ours"),
        "norm": (0.125, "of the scale; ours"),
        "divided": (0.02, "of the gradients' norm, by the scale; ours"),
        "clipped": (0.05, "of the divided norm, more than that at a step; ours"),
    }
    causes = ("scaler passed by: `optimizer.step()` is called, not `scaler.step(optimizer)`",
              "gradients clipped while scaled: the scaler had not divided them yet")  # fmt: skip
    remedies = ("`scaler.unscale_(optimizer)`, then clip, then `scaler.step(optimizer)` and `scaler.update()`",)

    def reset(self) -> None:
        self._given = GivenLosses()
        self._row: list[tuple[int, int]] = []  # step and segment
        self._scale = math.nan

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for one in self._given.new(history):
            step, time, segment = one.place
            scale = 2.0 ** round(math.log2(one.times)) if 1 < one.times < _MOST else 0.0
            known = scale >= self.at["scale"] and abs(one.times / scale - 1) < self.at["same"]
            if not known or scale != self._scale or (self._row and self._row[0][1] != segment):
                self._row, self._scale = [], scale
            self._row += [(step, segment)] if known else []
            has_scaler = came_by(history.channel("model/loss_scale"), time)
            if len(self._row) < self.at["steps"] or (has_scaler and not self._is_passed(history, scale, one.place)):
                continue
            before, met = (watched(history, name, one.place) for name in ("grad_norm_before", "grad_norm"))
            # where the watch knows the scaler, it has divided the one before by its scale
            norms = (before * scale,) if has_scaler else (before, met)
            norm = max((norm for norm in norms if norm == norm), default=math.nan)
            large = self.at["norm"] * scale <= norm < math.inf
            large = large and (has_scaler or not self._is_divided(history, scale, one.place))
            if large and self.first(segment):
                who = "the optimizer's steps are made past the scaler" if has_scaler else "no scaler makes the steps"
                yield self.finding(
                    self._row[0][0], f"The loss is multiplied by {scale:.6g}, {who}, and the gradients' norm is "
                    f"{norm:.4g}: nothing divides them.", found=step, segment=segment,
                    confidence=0.9, evidence={"scale": scale, "norm": norm, "standing": True},
                )  # fmt: skip

    def _is_passed(self, history: RunHistory, scale: float, place: Place) -> bool:
        """Whether steps are made past a scaler that has this scale, and the optimizer has met gradients that nothing
        has divided."""
        if watched(history, "scaler_passed_by", place) != 1 or watched(history, "loss_scale", place) != scale:
            return False
        left, met = (_until(history.channel(f"model/{name}"), place) for name in ("grad_norm_before", "grad_norm"))
        return any(met[step] > (1 + self.at["clipped"]) * left[step] for step in left if step in met)

    def _is_divided(self, history: RunHistory, scale: float, place: Place) -> bool:
        """Whether the program's own norm is that of the gradients as the passes leave them, but for the scale, at one
        look; or the norm that the optimizer meets at two or more: clipped it would stay the same."""
        left, met = (_until(history.channel(f"model/{name}"), place) for name in ("grad_norm_before", "grad_norm"))
        norm = history.role("norm")
        said = _until(None if norm is None or norm.name.startswith("model/") else norm, place)

        def fits(norm: float, step: int) -> bool:
            return left[step] > 0 and abs(norm * scale / left[step] - 1) < self.at["divided"]

        if any(fits(said[at], step) for step in left for at in range(step - 1, step + 2) if at in said):
            return True
        both = [fits(met[step], step) for step in left if step in met]
        return len(both) > 1 and all(both)


def _until(channel: Channel | None, place: Place) -> dict[int, float]:
    """Step → figure of a launch, up to a place."""
    rows = channel.rows() if channel is not None and channel.end else None
    if rows is None:
        return {}
    here = (rows.segment == place[2]) & (rows.time <= place[1])
    return dict(zip(rows.step[here].tolist(), rows.value[here].tolist(), strict=True))


class DividedByPart(WatchRule):
    """Gradients of a sum over the targets of several micro-batches are divided by the targets of one.

    Each step has three backward passes or more, of losses that are summed over their targets
    (`model/loss_weight`, eight or more). The logged norm of the gradients is that of what the passes leave
    (`model/grad_norm_before`), divided by a number; in two looks that is the number of one pass's targets, within a
    fifth, and not that of all: the update is as many times too large as there are micro-batches. Where the
    configuration says that the loss is a sum, nothing is said.

    What to do: add up the targets of all micro-batches, and divide by these.
    """

    name, family, kind, severity = "divided_by_part", "gradient", "exploding", "warning"
    proves = "training"
    series = "model/grad_norm_before"
    needs = ("=model/grad_norm_before", "=model/loss_weight", "=model/backwards", "norm")
    least = 2
    about = "Gradients of several micro-batches are divided by the targets of one."
    thresholds: ClassVar = {
        "looks": (2.0, "in a row; ours"),
        "passes": (3.0, "of a step; ours"),
        "targets": (8.0, "of a pass; ours"),
        "near": (0.2, "of a pass's targets; ours"),
    }
    causes = ("gradient accumulation scaled wrongly: divided by the targets of one micro-batch, not by those of all",)
    remedies = ("add up the targets of all micro-batches of a step, and divide by their sum",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        weight, passes = (watched(history, name, place) for name in ("loss_weight", "backwards"))
        number = divided_by(history, place)
        part = weight >= self.at["targets"] and passes >= self.at["passes"]
        part = part and abs(number / weight - 1) <= self.at["near"] and not summed_by_choice(history)
        if self.lasts(part, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"Losses of {passes:.0f} micro-batches are summed over their targets, about "
                f"{passes * weight:.0f} in all, and gradients are divided by {number:.4g}.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"divided": rounded(number), "standing": True},
            )  # fmt: skip


RULES = (GradientsUndivided, DividedByPart)
