"""Rules over how gradients are held in range: clipping, and the scale of a half-precision loss.

In:   the norm each step, the clip coefficient, the loss scale, the count of skipped steps.
Out:  findings of the family `gradient`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.roles import RECORDED
from barograph.doctor.kernel.cursor import RowCursor, came_by, known, scaled_loss
from barograph.doctor.kernel.curve import between, rounded
from barograph.doctor.kernel.remedies import clip_limit
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.gradient.norms import norm_of
from barograph.doctor.rules.loss.given import Given, GivenLosses

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class ClipSaturation(Rule):
    """Clipping, which was rare, now affects most steps.

    A step is clipped where the clip coefficient is below 0.999, or, without it, where the norm reaches the clip value
    in the configuration. Clipping most steps from the start on is a choice: the clip value then sets the
    size of the update, and there is an info finding after 300 rows. A run in which fewer than 1% of at least 300 steps
    were clipped, and then more than half of 100 are, has left its stable region: a warning. Between the two (above 5%
    of the last 300) there is no finding.
    """

    name, family, kind, severity = "clip_saturation", "gradient", "clipping", "warning"
    needs = ("=model/clip_coefficient|norm",)
    least = 300
    about = "Nearly every step is clipped."
    thresholds: ClassVar = {
        "rare": (0.01, "share of steps that were clipped before; healthy runs of 130M to 1.2B had at most 0.5%"),
        "often": (0.5, "share that is clipped now"),
        "rows": (300.0, "ours"),
        "recent": (100.0, "rows that are now"),
    }

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._segment = -1
        self._begin()

    def _begin(self) -> None:
        self._rows = self._clipped = 0
        self._recent: list[tuple[int, bool]] = []
        self._said: set[str] = set()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel, limit = history.channel("model/clip_coefficient"), math.nan
        if channel is None:
            limit = clip_limit(history)
            if not limit > 0:
                return
            channel = history.role("norm")
            if channel is not None and channel.end < 2 and not history.facts.get("finished"):
                return  # the coefficient may be in a later record of the first step
        rows = self._cursor.new(channel)
        if rows is None:
            return
        with numpy.errstate(invalid="ignore"):
            clipped = rows.value < 0.999 if limit != limit else rows.value > 0.999 * limit
        if len(self._said) == 2 and rows.segment[-1] == self._segment:
            return
        recent = int(self.at["recent"])
        cuts = numpy.flatnonzero(numpy.diff(rows.segment)) + 1
        for low, high in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rows)], strict=True):
            if int(rows.segment[low]) != self._segment:
                self._segment = int(rows.segment[low])
                self._begin()
            at = low
            while at < high:  # windows of `recent` rows, one after the other
                some = min(recent - len(self._recent), high - at)
                self._recent += zip(rows.step[at : at + some].tolist(), clipped[at : at + some].tolist(), strict=True)
                at += some
                if len(self._recent) == recent:
                    yield from self._window()

    def _window(self) -> Iterator[Finding]:
        now = sum(item for _, item in self._recent)
        first, last = self._recent[0][0], self._recent[-1][0]
        earlier, share = self._clipped / max(1, self._rows), now / len(self._recent)
        enough = self._rows >= self.at["rows"]
        self._rows += len(self._recent)
        self._clipped += now
        began = next((step for step, item in self._recent if item), first)
        self._recent = []
        causes = ["learning rate too high", "bad batch", "gradient accumulation scaled wrongly"]
        if enough and earlier < self.at["rare"] and share > self.at["often"] and "often" not in self._said:
            self._said.add("often")
            message = f"{share:.0%} of steps {first} to {last} were clipped, {earlier:.1%} of all before."
            yield self.finding(began, message, found=last, segment=self._segment, causes=causes,
                key="often",
                                 evidence={"share": share, "share_before": earlier}, confidence=0.6,
                                 remedies=["check the loss at the same steps", "lower the learning rate"])  # fmt: skip
            return
        whole = self._clipped / self._rows
        if self._rows >= self.at["rows"] and whole > self.at["often"] and not self._said:
            self._said.add("always")
            message = f"{whole:.0%} of all steps so far were clipped: the clip value sets the size of each update."
            yield self.finding(first, message, severity="info", found=last, segment=self._segment,
                                 causes=["the clip value is below the usual norm"], key="always",
                                 evidence={"share": whole}, confidence=0.3)  # fmt: skip
            return


class LossScaleCollapse(Rule):
    """The loss scale of half-precision training keeps falling, or many steps in a row are skipped.

    A scaler begins too high, is halved by the first overflows, and is halved now and then later: that is how it finds
    its value. Once it has been stable for 32 rows, five halvings within 32 rows are a warning. So are five rows in a
    row whose norm is not finite, or five steps skipped at once; ten are critical: nothing is trained. A scale of 1
    or less is critical: small gradients are lost in half precision.

    What to do: bf16, if the device has it; else find the layer whose activations grow, lower the learning rate, go
    back.
    """

    name, family, kind, severity = "loss_scale_collapse", "gradient", "loss_scale", "critical"
    needs = ("loss_scale|norm",)
    least = 8
    about = "The loss scale collapses, or every step is skipped."
    sources = ("DeepSpeed: loss scaling", "OPT: overflows in a row")
    thresholds: ClassVar = {
        "skips": (5.0, "in a row; ours"),
        "stand": (10.0, "ours"),
        "calm": (32.0, "rows without a fall; ours"),
        "least": (1.0, "ours: below it small gradients are lost"),
    }

    def reset(self) -> None:
        self._scales, self._norms, self._skipped = RowCursor(), RowCursor(), RowCursor()
        self._last = math.nan
        self._since = 0  # rows since the last fall
        self._falls: list[tuple[int, int, int]] = []  # row, step, segment
        self._calm = False
        self._run: list[int] = []
        self._good = 0
        self._segment = -1
        self._before = 0.0
        self._before_step = 0

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        scales = self._scales.new(history.role("loss_scale"))
        norms = self._norms.new(norm_of(history))
        skipped = self._skipped.new(history.channel("model/skipped_steps"))
        if scales is None and norms is None and skipped is None:
            return
        if scales is not None and (
            self._falls or self._since < self.at["calm"] or not (scales.value == self._last).all()
        ):
            for at in range(len(scales)):
                yield from self._scale(
                    float(scales.value[at]), scales.first + at, int(scales.step[at]), int(scales.segment[at])
                )
        elif scales is not None:
            self._since += len(scales)
        if norms is not None:
            bad = ~numpy.isfinite(norms.value)
            if bad.any() or self._run:
                for at in range(len(norms)):
                    yield from self._norm(
                        history, bool(bad[at]), int(norms.step[at]), int(norms.time[at]), int(norms.segment[at])
                    )
            else:
                last = int(norms.segment[-1])
                self._good = (self._good if last == self._segment else 0) + int((norms.segment == last).sum())
                self._segment = last
        if skipped is not None:
            for at in range(len(skipped)):
                count, step = float(skipped.value[at]), int(skipped.step[at])
                more = count - self._before
                if (
                    math.inf > more >= self.at["skips"]
                    and self._before_step
                    and more > 0.5 * (step - self._before_step)
                ):
                    yield self._say(self._before_step + 1, step, int(skipped.segment[at]), int(more), "skips")
                self._before, self._before_step = count, step

    def _scale(self, scale: float, row: int, step: int, segment: int) -> Iterator[Finding]:
        if scale != self._last:
            fell = scale < 0.75 * self._last
            if fell:
                self._calm = self._calm or self._since >= self.at["calm"]
                self._falls = [fall for fall in self._falls if fall[0] > row - 32 and fall[2] == segment]
                self._falls.append((row, step, segment))
                self._since = 0
            before, self._last = self._last, scale
            if fell and scale <= self.at["least"] < before:
                yield self.finding(
                    self._falls[0][1], f"The loss scale has fallen to {scale:.3g}: small gradients are lost in half "
                    "precision.",
                    found=step, segment=segment, evidence={"scale": scale}, key="least", confidence=0.9,
                    causes=_OVERFLOW, remedies=_REMEDIES,
                )  # fmt: skip
                return
            if fell and self._calm and len(self._falls) == int(self.at["skips"]):
                yield self.finding(
                    self._falls[0][1], f"The loss scale was halved {len(self._falls)} times from step "
                    f"{self._falls[0][1]} to "
                    f"{step}, after it had been stable.", severity="warning", found=step,
                    segment=segment,
                    evidence={"scale": scale}, key="falls", confidence=0.7, causes=_OVERFLOW, remedies=_REMEDIES,
                )  # fmt: skip
                return
        self._since += 1
        if self._since > self.at["calm"]:
            self._calm, self._falls = True, []

    def _norm(self, history: RunHistory, bad: bool, step: int, time: int, segment: int) -> Iterator[Finding]:
        if segment != self._segment:
            self._segment, self._run, self._good = segment, [], 0
        if not bad:
            self._run = []
            self._good += 1
            return
        self._run.append(step)
        count = len(self._run)
        if count in (int(self.at["skips"]), int(self.at["stand"])) and self._good >= 5 and scaled_loss(history, time):
            loss = between(history.role("loss"), self._run[0], step + 1, segment, finite=False)
            if len(loss) > 1 and not numpy.isfinite(loss[1:]).any():
                return  # nothing was skipped: the weights themselves are not finite
            yield self._say(self._run[0], step, segment, count, "norms")
            return

    def _say(self, step: int, last: int, segment: int, count: int, key: str) -> Finding:
        return self.finding(
            step, f"The scaler has skipped {count} steps in a row since step {step}.", found=last,
            key=key,
            severity="critical" if count >= self.at["stand"] else "warning", segment=segment,
            evidence={"skipped": count}, causes=_OVERFLOW, remedies=_REMEDIES, confidence=0.9,
        )  # fmt: skip


class ScalerNotGiven(Rule):
    """Norms before clipping are a power of two times those of the step: the loss is multiplied by a scale.

    A GradScaler of torch's that makes the first step is found; this one is none, and `model/grad_norm_before` holds the
    scaled gradients. Three rows in a row with one exact power of two from 16 on (within 0.1%) prove it: clipping gives
    no such factor, and none that stays. Nothing is wrong with the training.

    What to do: `run.watch(model, optimizer, scaler=scaler)`.
    """

    name, family, kind, severity = "scaler_not_given", "gradient", "config", "info"
    needs = ("=model/grad_norm_before", "=model/grad_norm")
    least = 3
    about = "The watch does not know the scale of the loss."
    thresholds: ClassVar = {"rows": (3.0, "ours"), "least": (16.0, "ours")}
    causes = ("scaler not given to the watch",)
    remedies = ("give it the scaler: `run.watch(model, optimizer, scaler=scaler)`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._count, self._begin, self._said = 0, (0, 0), False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        after = history.channel("model/grad_norm")
        if after is None or history.channel("model/loss_scale") is not None:
            return
        rows = self._cursor.new(history.channel("model/grad_norm_before"))
        for at in range(len(rows) if rows is not None and not self._said else 0):
            assert rows is not None
            step, segment = int(rows.step[at]), int(rows.segment[at])
            same = between(after, step, step + 1, segment)
            ratio = float(rows.value[at]) / float(same[0]) if len(same) and same[0] > 0 else 0.0
            power = 2.0 ** round(math.log2(ratio)) if 0 < ratio < math.inf else 0.0
            if power < self.at["least"] or abs(ratio / power - 1) > 1e-3:
                self._count = 0
                continue
            if self._count == 0 or segment != self._begin[1]:
                self._count, self._begin = 0, (step, segment)
            self._count += 1
            if self._count == self.at["rows"]:
                self._said = True
                yield self.finding(
                    self._begin[0], f"Norms before clipping are {power:.6g} times too large: the loss is multiplied "
                    "by a scale that the watch was not given.",
                    found=step, segment=segment, confidence=0.95, evidence={"factor": power},
                )  # fmt: skip
                return


class ClippedWhileScaled(Rule):
    """Gradients are clipped before the scaler has divided them by its scale.

    The step's norm times the loss scale is then the clip value, in each of 16 rows in a row with a scale of 16 or
    more (within 0.2%), or in six where it is less than half of the norm before clipping, or the scale has changed
    (in two where it is the configured clip value); and the norm itself is below a thousandth: nobody clips there.
    Every step is clipped, to a part of what was meant that is as small as the scale is large.

    Or the optimizer makes its steps past the scaler, with gradients that are still scaled: in two looks or more the
    logged norm is that of the backward pass times the scale (within 1%), and the norm at the step is a twentieth above
    what it was behind the backward pass, or more: clipping makes no norm larger.

    What to do: `scaler.unscale_(optimizer)` before `clip_grad_norm_`.
    """

    name, family, kind, severity = "clipped_while_scaled", "gradient", "clipping", "warning"
    proves = "training"
    needs = ("=model/loss_scale", "=model/grad_norm")
    least = 6
    about = "Gradients are clipped while they are scaled."
    thresholds: ClassVar = {
        "rows": (16.0, "ours"),
        "fewer": (6.0, "where it was seen that the norm is clipped; ours"),
        "few": (2.0, "the same, where it is the configured clip value; ours"),
        "left": (0.5, "of the norm before clipping; ours"),
        "same": (0.002, "ours"),
        "norm": (1e-3, "no clip value is below it; ours"),
        "scale": (16.0, "ours"),
        "looks": (2.0, "in which the norm got larger; ours"),
        "times": (0.01, "of the scale, that the logged norm is off; ours"),
        "larger": (1.05, "times what it was behind the backward pass; ours"),
    }
    causes = ("gradients clipped while scaled: the scaler had not divided them yet",)
    remedies = ("call `scaler.unscale_(optimizer)` before `clip_grad_norm_`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._count, self._begin, self._product = 0, (0, 0), math.nan
        self._first, self._clipped = math.nan, False  # the scale, whether it changed or the norm was clipped
        self._looks, self._larger = RowCursor(), list[tuple[int, int, int]]()  # looks whose norm got larger

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        scales = history.channel("model/loss_scale")
        yield from self._past_the_scaler(history, scales)
        for (step, time, segment), value in self._cursor.each(
            history.channel("model/grad_norm") if scales is not None else None
        ):
            norm, scale = value, known(scales, step, time, segment)
            small = 0 < norm < self.at["norm"] and scale >= self.at["scale"]
            if self._count and not (small and abs(norm * scale / self._product - 1) < self.at["same"]):
                self._count = 0
            if small and (self._count == 0 or segment != self._begin[1]):
                self._count, self._begin, self._product = 0, (step, segment), norm * scale
                self._first, self._clipped = scale, False
            self._count += small
            left = known(history.channel("model/clip_coefficient"), step, time, segment)
            self._clipped = self._clipped or scale != self._first or left < self.at["left"]
            told = clip_limit(history)  # of few looks, as of a busy machine
            few = self._clipped and told > 0 and abs(norm * scale / told - 1) < self.at["same"]
            enough = self._count >= self.at["few" if few else "fewer" if self._clipped else "rows"]
            if small and enough and self.first(segment):
                yield self.finding(
                    self._begin[0], f"The norm after clipping is {norm:.3g} in each step, which is {norm * scale:.3g} "
                    f"divided by the loss scale of {scale:.6g}: gradients are clipped while they are scaled.",
                    found=step, segment=segment, confidence=0.95, evidence={"norm": norm, "scale": scale},
                )  # fmt: skip

    def _past_the_scaler(self, history: RunHistory, scales: Channel | None) -> Iterator[Finding]:
        """Steps with gradients that are clipped and scaled."""
        before, coefficients = history.channel("model/grad_norm_before"), history.channel("model/clip_coefficient")
        names = [name for name in history.channels if "norm" in name.lower() and not name.startswith(RECORDED)]
        if scales is None or before is None or not names:
            return
        for place, coefficient in self._looks.each(coefficients):
            scale, norm = known(scales, *place), known(before, *place)
            if not (scale >= self.at["scale"] and norm > 0):
                continue
            values = (between(history.channel(name), place[0], place[0] + 1, place[2]) for name in names)
            whole = norm * scale
            logged = [some for some in values if len(some) and abs(float(some[0]) - whole) <= self.at["times"] * whole]
            if not logged:
                continue
            self._larger = [one for one in self._larger if one[2] == place[2]]
            if coefficient >= self.at["larger"]:
                self._larger.append(place)
            if len(self._larger) >= self.at["looks"] and self.first(place[2], "past"):
                yield self.finding(
                    self._larger[0][0], f"The logged norm is {logged[0][0]:.4g}, that of the backward pass times the "
                    f"loss scale of {scale:.6g}, and the optimizer is given {coefficient:.3g} times that of the "
                    "backward pass: it makes its steps past the scaler.", key="past", found=place[0], segment=place[2],
                    confidence=0.95, evidence={"times": coefficient, "scale": scale}, causes=[_PAST, *self.causes],
                    remedies=["`scaler.unscale_(optimizer)` before clipping, then `scaler.step(optimizer)`"],
                )  # fmt: skip


_PAST = "gradients not unscaled: the optimizer is stepped past the scaler, with gradients that are scaled"


def _is_divided(history: RunHistory, scale: float, place: tuple[int, int, int]) -> bool:
    """Whether gradients are so small that they were divided by a scale: one that nothing uses divides none."""
    norm = known(history.role("norm") or history.channel("model/grad_norm"), *place)
    return 0 < norm * scale <= _USUAL


class LossNotScaled(Rule):
    """The output is in fp16, and the loss is not multiplied by a scale: small gradients become 0.

    The gradient of a cross-entropy shows the weight of its loss (`model/loss_weight`). Under a GradScaler it is the
    scale's size, 16 or more; in three looks in a row it is 1 or less, with a scaler that exists or without one. A scale
    of 16 or less says nothing. Of any other loss, and where the output is not in fp16 but a scaler makes the steps (the
    gradients' norm is 100 over its scale at most), what backward passes are called with (`model/loss_given`) is the
    logged loss itself, within 0.2%, where it would be a scale of 256 or more times as large; a loss that is a hundredth
    of the scale or more may be logged as it is scaled.

    What to do: `scaler.scale(loss).backward()`, `scaler.step(optimizer)`, `scaler.update()`; or bf16, which needs none.
    """

    name, family, kind, severity = "loss_not_scaled", "gradient", "loss_scale", "warning"
    proves = "training"
    needs = ("=model/half_output", "=model/loss_weight|=model/loss_given")
    least = 1
    about = "The output is in fp16, or a scaler makes the steps, and the loss is not scaled."
    sources = ("DeepSpeed: loss scaling",)
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours"), "most": (1.03, "weight of the loss; ours"),
                            "scale": (16.0, "of a scaler; ours"), "same": (0.002, "of the logged loss; ours"),
                            "above": (256.0, "a scale of a loss that is logged without it; ours"),
                            "logged": (0.01, "of the scale, the logged loss; ours")}  # fmt: skip
    causes = ("scaler not used: gradients of fp16 below 6e-8 become 0",)
    remedies = ("use `scaler.scale(loss).backward()`, `scaler.step(optimizer)` and `scaler.update()`",
                "else train in bf16, which needs no scale")  # fmt: skip

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._count, self._began = 0, (0, 0)
        self._given, self._alike = GivenLosses(), list[Given]()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._of_given(history)
        for (step, time, segment), value in self._cursor.each(history.channel("model/loss_weight")):
            half, scale = (
                known(history.channel(f"model/{name}"), step, time, segment) for name in ("half_output", "loss_scale")
            )
            weight = value * (scale if scale == scale else 1.0)
            if half != 1 or scale <= self.at["scale"] or not 0 < weight <= self.at["most"]:
                self._count = 0
                continue
            if not self._count or segment != self._began[1]:
                self._count, self._began = 0, (step, segment)
            self._count += 1
            if self._count == self.at["looks"] and self.first(segment):
                yield self.finding(
                    self._began[0], f"The output is in fp16, and the loss has a weight of {weight:.3g}: it is not "
                    "scaled.", found=step, segment=segment, confidence=0.95, evidence={"weight": weight},
                )  # fmt: skip

    def _of_given(self, history: RunHistory) -> Iterator[Finding]:
        """What is differentiated is the logged loss itself, though there is a scale."""
        for one in self._given.new(history):
            step, time, segment = one.place
            half, scale = (
                known(history.channel(f"model/{name}"), *one.place) for name in ("half_output", "loss_scale")
            )
            weighed = came_by(history.channel("model/loss_weight"), time)
            small = abs(one.logged) < self.at["logged"] * scale
            alike = scale >= self.at["above"] and small and abs(one.times - 1) < self.at["same"]
            alike = alike and (not weighed if half == 1 else _is_divided(history, scale, one.place))
            if not alike or not one.logged:
                self._alike = []
                continue
            self._alike = [pair for pair in self._alike if pair.place[2] == segment] + [one]
            if len(self._alike) == self.at["looks"] and self.first(segment):
                yield self.finding(
                    self._alike[0].place[0], f"What is differentiated is the loss of {one.logged:.4g} itself, and a "
                    f"scaler whose scale is {scale:.6g} makes the steps: it divides gradients that are not multiplied.",
                    found=step, segment=segment, confidence=0.95, evidence={"weight": rounded(one.times)},
                    causes=[_DIVIDED, *self.causes],
                )  # fmt: skip


_USUAL = 100.0  # a gradient norm, at most, before something divides it
_DIVIDED = "loss not scaled: gradients are divided by a scale that the loss was not multiplied by"
_OVERFLOW = ["fp16 overflow: activations or gradients leave the range of half precision", "overflow in a layer",
             "learning rate too high"]  # fmt: skip
_REMEDIES = ["train in bf16, if the device has it", "look at the layer whose activations grow",
    "lower the learning rate",
             "go back to a checkpoint from before"]  # fmt: skip


RULES = (ClipSaturation, LossScaleCollapse, ScalerNotGiven, ClippedWhileScaled, LossNotScaled)
