"""Rules over the gradient norm: not finite, spikes, out of range, exploding, decayed, zero, clipped, scaled.

In:   the norm each step, the loss beside it, the clip coefficient, the loss scale.
Out:  findings of the family `gradient`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy

from barograph.doctor.kernel.blocks import NewBlocks
from barograph.doctor.kernel.cursor import (
    RowCursor,
    came_by,
    exp,
    half_rate,
    known,
    newest,
    saved_before,
    scaled_loss,
    usual,
)  # fmt: skip
from barograph.doctor.kernel.remedies import clip_limit
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import in_order
from barograph.doctor.rules.gradient import flow as gradient_flow
from barograph.doctor.rules.gradient import level as gradient_level
from barograph.doctor.rules.gradient import scale as gradient_scale
from barograph.doctor.rules.gradient import shapes as gradient_shapes

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


def clip_value(history: RunHistory, step: int, time: int, segment: int) -> str:
    """What value to clip at, from the healthy norms before a step: their 90th percentile."""
    norm = history.role("norm")
    if norm is None:
        return "clip gradients at a norm of 1.0"
    values = newest(norm, step - 1, time, segment, 256)
    values = values[numpy.isfinite(values)]
    if len(values) < 16:
        return "clip gradients at a norm of 1.0"
    return f"clip gradients at a norm of {float(numpy.quantile(values, 0.9)):.3g}, the 90th percentile before"


_WAIT = 64  # rows of the loss in which a table of the layers comes, which is written later
_MANY = 16  # rows of a stretch whose steps are kept


class _InvalidRows:
    """Rows in a row that are not finite: the steps of the first 16, how many there are and the last one's step.

    told: its finding, once all is known but how long it lasts. settled: when the 16th came, or the first row behind
    them; all that is known where there is no loss.
    """

    __slots__ = ("channel", "count", "last", "segment", "settled", "step", "steps", "time", "told", "value")

    def __init__(self, channel: str, step: int, time: int, segment: int, value: float):
        self.channel, self.step, self.time, self.segment, self.value = channel, step, time, segment, value
        self.steps: list[int] = []
        self.count, self.last, self.settled = 0, step, math.inf
        self.told: Finding | None = None


class NonFiniteGradient(Rule):
    """The norm of the gradient is NaN or infinite.

    One such number in any element makes the whole norm one. What it means depends on what follows, so the finding
    grows: with a loss scaler a skipped step is how the scaler works, and only an info finding; a norm that is finite
    again at once has been skipped by somebody, and is an info finding too. If the loss turns NaN with it or within
    three steps, the weights are gone: critical. Three steps in a row without that are a warning: the optimizer is not
    stepping, or it is the norm alone that overflows.

    A column in which the value is missing now and then (more than one row in twenty), or before the first finite one,
    says nothing. What to do: find the layer (the finding names it where tables of gradients were recorded), go back
    to the last checkpoint, leave out the batch or lower the learning rate.
    """

    name, family, kind, severity = "non_finite_gradient", "gradient", "nonfinite", "critical"
    prompt = ("norm", "=model/grad_norm")
    needs = ("norm|=model/grad_norm",)
    about = "The gradient norm is NaN or infinite."
    sources = ("SageMaker Debugger: ExplodingTensor", "PyTorch AMP: a step that the scaler skips is harmless")
    thresholds: ClassVar = {
        "rows": (3.0, "rows in a row, with a finite loss, that warn; one may be a skipped step"),
        "missing": (0.05, "share of earlier rows that are not finite above which the column is taken to have gaps"),
    }

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._counts: dict[str, list[int]] = {}  # finite rows, other rows
        self._open: list[_InvalidRows] = []
        self._last: dict[str, _InvalidRows | None] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel = history.role("norm") or history.channel("model/grad_norm")
        rows = self._cursor.new(channel)
        if rows is not None and channel is not None:
            self._look(channel.name, rows)
        if not self._open:
            return
        for run in list(self._open):
            yield self._judge(history, run)

    def _look(self, name: str, rows: ChannelRows) -> None:
        counts = self._counts.setdefault(name, [0, 0])
        last = self._last.get(name)
        if rows.finite and last is None:
            counts[0] += len(rows)
            return
        finite = numpy.isfinite(rows.value)
        edges = numpy.flatnonzero((numpy.diff(finite) != 0) | (numpy.diff(rows.segment) != 0)) + 1
        for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(rows)], strict=True):
            last = self._last.get(name)
            if last is not None and (finite[low] or last.segment != rows.segment[low]):
                last.settled = min(last.settled, float(rows.time[low]))
            if finite[low]:
                counts[0] += high - low
                self._last[name] = None
                continue
            if last is None or last.segment != rows.segment[low]:
                gaps = counts[1] > max(2, self.at["missing"] * (counts[0] + counts[1]))
                if counts[0] < 2 or gaps:
                    counts[1] += high - low
                    continue
                last = _InvalidRows(
                    name, int(rows.step[low]), int(rows.time[low]), int(rows.segment[low]), float(rows.value[low])
                )
                self._last[name] = last
                self._open.append(last)
            counts[1] += high - low
            stop = min(high, low + _MANY - len(last.steps))
            last.steps += rows.step[low:stop].tolist()
            if stop > low and len(last.steps) == _MANY:
                last.settled = float(rows.time[stop - 1])
            last.count, last.last = last.count + high - low, int(rows.step[high - 1])

    def _judge(self, history: RunHistory, run: _InvalidRows) -> Finding:
        """What is known of a stretch of such rows, which goes on as long as it lasts."""
        over = self._last.get(run.channel) is not run
        if run.told is not None:
            if over:
                self._open.remove(run)
            return self._lasting(run, run.told, over)
        return self._lasting(run, self._first_judged(history, run), over)

    def _lasting(self, run: _InvalidRows, finding: Finding, over: bool) -> Finding:
        """A warning, with how long the stretch has lasted so far."""
        if finding.severity != "warning":
            return finding
        what = "NaN" if run.value != run.value else "infinite"
        stretch = f"from step {run.step} on, {run.count} steps so far" if not over else (
            f"from step {run.step} to step {run.last}, {run.count} steps")  # fmt: skip
        beside = ", though the loss is finite" if "loss is finite" in finding.message else ""
        message = f"The gradient's norm is {what} {stretch}{beside}."
        return msgspec.structs.replace(
            finding, message=message, last_step=run.last, evidence=finding.evidence | {"rows": run.count}
        )

    def _first_judged(self, history: RunHistory, run: _InvalidRows) -> Finding:
        """The finding by the rows that follow at once; kept in `run.told` when they have all come."""
        settled = len(self._open)
        finding = self._judged(history, run)
        if len(self._open) < settled and finding.severity == "warning" and self._last.get(run.channel) is run:
            self._open.append(run)
            run.told = finding
        return finding

    def _judged(self, history: RunHistory, run: _InvalidRows) -> Finding:
        history.as_of(int(run.settled) if run.settled < math.inf else None)
        loss = history.role("loss")
        history.as_of(None)
        broken, later, limit, until = None, 0, math.inf, math.inf if loss is not None else run.settled
        if loss is not None:
            rows = loss.rows(max(loss.start, loss.end - 8192 - 256))
            here = (rows.segment == run.segment) & (rows.step >= run.step)
            values, steps, times = rows.value[here][:4], rows.step[here][:4], rows.time[here][:_WAIT]
            later = len(times)
            limit = float(steps[-1]) if later >= 4 else math.inf
            until = float(times[-1]) if later == _WAIT else math.inf
            bad = numpy.flatnonzero(~numpy.isfinite(values))
            broken = int(steps[bad[0]]) if len(bad) else None
        some = [step for step in run.steps if step <= limit]
        count, last_step, need = len(some), some[-1], int(self.at["rows"])
        if later == _WAIT or (loss is None and run.settled < math.inf):
            self._open.remove(run)  # all is known
        where, layers = first_layer(history, run.step, run.segment, until)
        what = "NaN" if run.value != run.value else "infinite"
        evidence: dict[str, Any] = {"value": str(run.value), "rows": count}
        if layers:
            evidence["layers"] = layers
        causes = ["non-finite gradient: " + (where or "one element that is not finite makes the whole norm so"),
                  "overflow in a layer", "learning rate too high"]  # fmt: skip
        if broken == run.step:  # the loss comes first: what it is made of overflowed on the way forward
            causes[:2] = ["overflow in a layer: the loss of the same step is not finite", "non-finite gradient"]
        if scaled_loss(history, until):
            causes = ["fp16 overflow: a value left the range of half precision", *causes[1:2], causes[0]]
        remedies = [*saved_before(history, run.step), f"look at the batch of step {run.step} and skip it",
                    half_rate(history, run.step, run.time, run.segment)]  # fmt: skip
        if where:
            remedies.insert(0, f"look at {where}")
        if broken is not None:
            message = (
                f"The gradient norm is {what} at step {run.step}, and the loss is not finite from step {broken} on."
            )
            return self.finding(run.step, message, last_step=max(last_step, broken), found=broken, confidence=0.95,
                                evidence=evidence, causes=causes, remedies=remedies, segment=run.segment)  # fmt: skip
        if scaled_loss(history, until):
            message = f"The gradient norm is {what} at step {run.step}; the loss scaler skips such steps."
            return self.finding(run.step, message, severity="info", last_step=last_step, confidence=0.8,
                                evidence=evidence, causes=["fp16 overflow: the scaler lowers its scale"],
                                segment=run.segment)  # fmt: skip
        if count >= need:
            message = f"The gradient norm is {what} for {count} steps from step {run.step} on" + (
                ", though the loss is finite." if loss is not None else "."
            )
            return self.finding(run.step, message, severity="warning", last_step=last_step, found=some[need - 1],
                                evidence=evidence, causes=causes, remedies=remedies, confidence=0.7,
                                segment=run.segment)  # fmt: skip
        message = f"The gradient norm is {what} at step {run.step}."
        return self.finding(run.step, message, severity="info", last_step=last_step, evidence=evidence,
                            causes=causes, remedies=remedies, segment=run.segment)  # fmt: skip


def first_layer(history: RunHistory, step: int, segment: int, until: float) -> tuple[str, list[str]]:
    """Where a gradient first was not finite at a step, by its table: the layer, and some of all such layers.

    Backward goes from the output to the input, so the last such layer was the first.
    """
    bad: list[str] = []
    for quantity in ("nan", "inf"):
        for layer, channel in history.layers("gradients", quantity).items():
            rows = channel.rows(max(channel.start, channel.end - 64))
            here = (rows.step == step) & (rows.segment == segment) & (rows.value > 0) & (rows.time <= until)
            if here.any() and layer not in bad:
                bad.append(layer)
    bad = in_order(bad)
    for event in history.events_of("model"):
        name = event.fields.get("first_non_finite_gradient")
        if event.step == step and event.time <= until and isinstance(name, str):
            return name, bad[:5] or [name]
    return (bad[-1] if bad else ""), bad[:5]


_FIRST = 16  # rows of the logged norm


def _of_values(history: RunHistory) -> bool:
    """Whether the loss is an error of values of chosen actions."""
    chosen = history.channel("model/loss_of_chosen")
    return chosen is not None and chosen.end > 0 and chosen.first == 1


class GradientSpike(Rule):
    """The gradient norm jumps far above its usual variation for one or a few steps.

    z = (log norm − level) / deviation, with level and robust standard deviation from the rows before (a robust line
    through the last 128, and the median distance from it). A spike has z above 8 and at least three times the level.
    Alone it is an info finding: gradients have heavy tails, and clipping handles them. At ten times the level it is a
    warning where the loss jumps with it (z above 6 within two rows), and where nothing clipped it and the optimizer's
    step grows with the gradient, as Adam's does not; with both, at a hundred times, it is critical.
    From the fifth of a segment on, those of info alone are one finding that counts them; it is a warning where they
    come at equal distances, within two steps. Values of chosen actions jump whenever the network of their targets is
    updated: there all are info findings.

    What to do: clip, look at the batch, lower the learning rate if it comes again.
    """

    name, family, kind, severity = "gradient_spike", "gradient", "spike", "warning"
    needs = ("norm|=model/grad_norm_before",)
    least = 32
    about = "The gradient norm jumps far above its usual variation."
    sources = (
        "OLMo-core: 6 standard deviations over 128 values",
        "Surogate metrics guide: a factor of 5 (alone it is noise)",
        "AdaGC",
    )
    thresholds: ClassVar = {
        "z": (8.0, "healthy runs of 130M to 1.2B stayed below 4.5 in the loss"),
        "ratio": (3.0, "times the level, so that a very quiet norm may wiggle"),
        "loss_z": (6.0, "the loss jumps with it; ours"),
        "large": (10.0, "times the level, to warn; ours"),
        "rows": (32.0, "rows of a segment before the first"),
        "series": (5.0, "spikes of a segment that are one finding; ours"),
    }

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._segment, self._begin = -1, 0
        self._last_row = -100
        self._spikes: dict[int, list[int]] = {}  # segment → steps
        self._by_watch: bool | None = None
        self._pending: list[tuple[Any, ...]] = []

    def examine(self, history: RunHistory) -> Iterable[Finding]:
        channel = self._before_clipping(history)
        rows = self._cursor.new(channel)
        if rows is None or channel is None:
            return () if not self._pending else self._settle(history)
        local = history.local(channel, log=True)
        if rows.all_of(self._segment) and not local.extremes(rows.first)[1] > self.at["z"]:
            return self._settle(history) if self._pending else ()
        level, _, z = local.rows(rows.first)
        places = numpy.flatnonzero(z > self.at["z"])
        if rows.segment[-1] != self._segment or rows.segment[0] != self._segment:
            cuts = numpy.flatnonzero(numpy.diff(rows.segment, prepend=self._segment))
            begins = {int(rows.segment[cut]): rows.first + int(cut) for cut in cuts}
        else:
            begins = {self._segment: self._begin}
        for place in places:
            segment, row = int(rows.segment[place]), rows.first + int(place)
            begin = begins.get(segment, self._begin)
            ratio = float(rows.value[place]) / exp(float(level[place]))
            if row - begin < self.at["rows"] or not self.at["ratio"] < ratio < math.inf:
                continue
            if row - self._last_row > 16:  # one of a burst
                steps = self._spikes.setdefault(segment, [])
                steps.append(int(rows.step[place]))
                self._pending.append((steps[-1], int(rows.time[place]), segment, float(rows.value[place]),
                                      ratio, float(z[place]), len(steps)))  # fmt: skip
            self._last_row = row
        if rows.segment[-1] != self._segment:
            self._segment = int(rows.segment[-1])
            self._begin = begins[self._segment]
        return self._settle(history) if self._pending else ()

    def _before_clipping(self, history: RunHistory) -> Channel | None:
        """The norm before clipping where the watch measures it at every step, else the norm that is logged: by the
        first rows of that, so that it is the same however much has come."""
        before, logged = history.channel("model/grad_norm_before"), history.role("norm")
        if before is None or logged is None or not logged.end:
            return logged if before is None else before
        if self._by_watch is None and logged.end >= _FIRST:
            rows, until = before.rows(), logged.rows(_FIRST - 1, _FIRST).time
            came = before.start + int((rows.time <= until[0]).sum()) if len(until) else before.end
            self._by_watch = came >= 0.9 * (_FIRST if len(until) else logged.end)
        by_watch = before.end > logged.end if self._by_watch is None else self._by_watch
        return before if by_watch else logged

    def _settle(self, history: RunHistory) -> Iterable[Finding]:
        loss = history.role("loss")
        result, waiting = [], []
        for item in self._pending:
            step, _, segment = item[:3]
            beside, done, at = 0.0, True, step
            if loss is not None:
                rows = loss.rows(max(loss.start, loss.end - 8192 - 256))
                here = numpy.flatnonzero((rows.segment == segment) & (rows.step >= step))[:3]
                done = len(here) == 3 or bool(rows.segment[-1] != segment) if len(rows) else False
                if len(here):
                    zs = history.local(loss, log=True).rows(rows.first)[2][here]
                    zs = numpy.where(numpy.isfinite(zs), zs, 0.0)
                    high = numpy.flatnonzero(zs > self.at["loss_z"])
                    beside = float(zs[high[0]] if len(high) else zs.max())
                    if len(high):
                        at, done = int(rows.step[here[high[0]]]), True
            if not done and not history.facts.get("finished"):
                waiting.append(item)
            said = self._say(history, item, beside, at)
            if said.severity != "info" or item[6] < self.at["series"]:
                result.append(said)
            else:
                result.append(self._series(history, segment))
        self._pending = waiting
        return result

    def _series(self, history: RunHistory, segment: int) -> Finding:
        """All spikes of a segment as one finding."""
        steps = self._spikes[segment]
        gaps = numpy.diff(steps)
        period = int(numpy.median(gaps))
        regular = bool((numpy.abs(gaps - period) <= 2).mean() >= 0.75) and not _of_values(history)
        how = f"every {period} steps" if regular else "at no regular distance"
        return self.finding(
            steps[0], f"The gradient's norm has jumped far above its level {len(steps)} times since step {steps[0]}, "
            f"{how}.", key="series", severity="warning" if regular else "info", last_step=steps[-1],
            found=steps[int(self.at["series"]) - 1], segment=segment, confidence=0.6 if regular else 0.3,
            evidence={"count": len(steps), "period": period if regular else 0},
            causes=[f"something that runs every {period} steps: an evaluation, a data set's border, a schedule"]
            if regular else ["bad batches", "heavy tails of the gradient"],
            remedies=[f"look at what runs or changes every {period} steps"] if regular else [
                "clip gradients", "look at the batches of these steps"],
        )  # fmt: skip

    def _say(self, history: RunHistory, one: tuple[Any, ...], beside: float, at: int) -> Finding:
        step, time, segment, value, ratio, z, _ = one
        limit = clip_limit(history)
        open_valve = limit == 0.0 or (_unclipped(history, step, time, segment) and not limit < value)
        strong = beside > self.at["loss_z"]
        bounded = any(came_by(history.channel(f"model/{name}"), time) for name in ("epsilon", "scale_free"))
        severity = "warning" if ratio > self.at["large"] and (strong or (open_valve and not bounded)) else "info"
        if strong and open_valve and ratio > self.at["large"] ** 2:
            severity = "critical"
        if _of_values(history):
            severity = "info"
        causes = ["bad batch: this step's data are unlike the others", "learning rate too high"]
        remedies = [f"look at the batch of step {step}, and skip it if it is corrupt"]
        rate, usual_rate = (
            known(history.role("lr"), step, time, segment),
            usual(history.role("lr"), step - 8, time, segment, 32),
        )
        if rate > 1.5 * usual_rate > 0:
            causes.reverse()
            remedies.insert(0, half_rate(history, step, time, segment))
        if open_valve:
            seen = "" if limit == 0.0 else " at any look before"
            causes.insert(0, f"clipping off: the gradient was not clipped{seen}")
        if open_valve or limit != limit:
            remedies.insert(0, clip_value(history, step, time, segment))
        message = f"The gradient norm is {value:.3g} at step {step}, {ratio:.3g} times its level (z = {z:.3g})"
        message += f"; the loss jumps with it (z = {beside:.3g})." if strong else "."
        return self.finding(
            step, message, severity=severity, last_step=step, found=at if strong else step, segment=segment,
            evidence={"norm": value, "ratio": ratio, "z": z, "loss_z": beside}, causes=causes, remedies=remedies,
            confidence=0.6 if strong else 0.4,
        )  # fmt: skip


def _unclipped(history: RunHistory, step: int, time: int, segment: int) -> bool:
    """Whether the newest looks at clipping saw none: one that clips large gradients leaves the others as they are."""
    channel = history.channel("model/clip_coefficient")
    looked = newest(channel, step, time, segment, 64) if channel is not None else numpy.zeros(0)
    return bool((looked > 0.999).any() and not (looked < 0.999).any())


class GradientNormRange(Rule):
    """The norm of the gradient is outside the range that is usual for language models.

    The stability guide's table calls 0.1 to 10 healthy, below 0.01 and above 100 a red flag; its `ALERT_THRESHOLDS` say
    0.001 and 100, its red alerts 1000. Where they contradict each other all are kept, as grades of one info finding.
    The norm depends on the loss's scale, the batch and the size of the model, so absolute bounds give info findings; a
    bound that you set yourself warns. Judged by the median of 16 rows.
    """

    name, family, kind, severity = "gradient_norm_range", "gradient", "exploding", "warning"
    needs = ("norm|=model/grad_norm",)
    least = 16
    about = "The gradient norm is outside the usual range."
    sources = ("stability guide: grad_norm_max and grad_norm_min, the gradient table, the red alerts",)
    thresholds: ClassVar = {
        "high": (100.0, "stability guide, grad_norm_max"),
        "low": (0.001, "stability guide, grad_norm_min"),
        "red": (1000.0, "stability guide, red alert conditions"),
        "quiet": (0.01, "stability guide, gradient table: red flag"),
    }

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._blocks = NewBlocks()

    def examine(self, history: RunHistory) -> Iterable[Finding]:
        new = self._blocks.new(history, history.role("norm") or history.channel("model/grad_norm"))
        if new is None:
            return ()
        at, result = self.at, []
        strange = (new.middle > at["high"]) | ((new.middle < at["quiet"]) & (new.middle > 0))
        for place in numpy.flatnonzero(strange):
            middle, segment = float(new.middle[place]), int(new.segment[place])
            step, last_step, time = int(new.step[place]), int(new.last_step[place]), int(new.time[place])
            name = ("red" if middle > at["red"] else "high" if middle > at["high"] else
                    "low" if middle < at["low"] else "quiet")  # fmt: skip
            if not self.first(segment, name):
                continue
            high = name in ("red", "high")
            message = (f"The gradient norm is {middle:.3g} in the median of steps {step} to {last_step}, "
                       f"{'above' if high else 'below'} {at[name]:.3g}.")  # fmt: skip
            result.append(self.finding(
                step, message, severity="warning" if name in self.changed else "info", key=name,
                kind="exploding" if high else "vanishing", found=last_step,
                segment=segment, evidence={"norm": middle, "bound": at[name]}, confidence=0.3,
                causes=["clipping off", "learning rate too high"] if high else ["gradients vanish",
                "learning rate too low"],
                remedies=[clip_value(history, step, time, segment)] if high else [],
            ))  # fmt: skip
        return result


RULES = (
    NonFiniteGradient,
    GradientSpike,
    GradientNormRange,
    *gradient_level.RULES,
    *gradient_scale.RULES,
    *gradient_flow.RULES,
    *gradient_shapes.RULES,
)
