"""Rules over what a step's time is used for: waiting for data, figures that can't be, the speed of light.

In:   durations and phases of steps, throughput, utilisation, the speed-of-light estimate.
Out:  findings of the family `speed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.utilization import mfu_fraction
from barograph.doctor.kernel.blocks import BlockColumns, NewBlocks
from barograph.doctor.kernel.cursor import newest, usual
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.series import BlockRule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


def throughput_of(history: RunHistory) -> Channel | None:
    """Tokens or samples a second."""
    channel = history.role("throughput")
    return channel if channel is not None and channel.end > 1 else history.channel("speed/tokens_per_second")


def duration_of(history: RunHistory) -> Channel | None:
    """Milliseconds a step."""
    return history.role("duration_ms") or history.channel("speed/step_ms")


_PAST = 512  # rows of the share of waiting that are kept


class InputBound(Rule):
    """Steps wait for their batches.

    The phase `data` as a share of the step, median of the last 20 rows. A tenth is an info finding, a fifth another,
    and a third a warning (TraceML warns at a tenth and calls a fifth critical; on small models loading is a large part
    of a short step). From a fifth on it is a warning too if the share has risen by three times or more over what it
    was. A loader with rare short stops does not change the median.

    What to do: more workers, prefetching, decoding and tokenising beforehand, data closer to the machine.
    """

    name, family, kind, severity = "input_bound", "speed", "input_bound", "warning"
    needs = ("=speed/phase/data_ms",)
    least = 20
    about = "Steps wait for their batches."
    sources = ("TraceML: 10% and 20% of the step",)
    thresholds: ClassVar = {
        "informs": (0.10, "TraceML"),
        "share": (0.20, "TraceML"),
        "warns": (0.33, "ours"),
        "rise": (3.0, "times what it was; ours"),
        "rows": (20.0, "ours"),
    }
    causes = ("loader slow: the step waits for its batch",)
    remedies = (
        "use more workers and prefetch",
        "decode and tokenise beforehand",
        "move the data closer to the machine",
    )

    def reset(self) -> None:
        self._row = 0
        self._steps, self._shares = numpy.zeros(0, numpy.int64), numpy.zeros(0)  # of the last rows
        self._said: dict[str, int] = {}
        self._segment = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        waits, whole = history.channel("speed/phase/data_ms"), history.channel("speed/step_ms")
        if waits is None or whole is None or not whole.end or waits.end == self._row:
            return
        rows = waits.rows(self._row)
        if not history.facts.get("finished"):  # the step's own time may come in a later record
            newest = whole.rows(whole.end - 1)
            later = (rows.segment > newest.segment[0]) | (
                (rows.segment == newest.segment[0]) & (rows.step > newest.step[0])
            )
            rows = rows.part(0, int(numpy.argmax(later)) if later.any() else len(rows))
        self._row = rows.first + len(rows)
        if not len(rows):
            return
        size = len(rows) + 64
        steps = whole.rows(whole.end - size)
        while steps.first > whole.start and (steps.segment[0], steps.step[0]) > (rows.segment[0], rows.step[0]):
            size *= 4
            steps = whole.rows(whole.end - size)
        share = _share(rows, steps)
        cuts = [0, *(numpy.flatnonzero(numpy.diff(rows.segment)) + 1).tolist(), len(rows)]
        for low, high in pairwise(cuts):
            if int(rows.segment[low]) != self._segment:
                self._segment, self._said = int(rows.segment[low]), {}
                self._steps, self._shares = self._steps[:0], self._shares[:0]
            good = low + numpy.flatnonzero(numpy.isfinite(share[low:high]))
            old = len(self._steps)
            self._steps = numpy.concatenate([self._steps, rows.step[good]])
            self._shares = numpy.concatenate([self._shares, share[good]])
            if "warns" not in self._said:
                for at in numpy.flatnonzero(share[good] > self.at["informs"]):
                    yield from self._look(history, old + int(at), int(rows.time[good[at]]))
            self._steps, self._shares = self._steps[-_PAST:], self._shares[-_PAST:]

    def _look(self, history: RunHistory, at: int, time: int) -> Iterator[Finding]:
        count = int(self.at["rows"])
        recent = self._shares[max(0, at + 1 - count) : at + 1]
        if len(recent) < count or "warns" in self._said:
            return
        middle = float(numpy.sort(recent)[count // 2])
        if middle <= self.at["informs"]:
            return
        past = self._shares[max(0, at + 1 - _PAST) : max(0, at + 1 - 2 * count)]
        before = float(numpy.median(past)) if len(past) >= 16 else math.nan
        high = middle > self.at["warns"] or (middle > self.at["share"] and middle > self.at["rise"] * before)
        grade = "warns" if high else "informs"
        if grade in self._said:
            return
        low = numpy.flatnonzero(self._shares[: at + 1] < max(self.at["informs"], 0.5 * middle))
        first = max(int(low[-1]) + 1 if len(low) else 0, at + 1 - 2 * count)
        # a row or two may be quick by chance: the first of the rows that are mostly slow
        slow = self._shares[max(0, at + 1 - 2 * count) : at + 1] >= max(self.at["informs"], 0.5 * middle)
        run = numpy.flatnonzero(slow)
        first = min(first, max(0, at + 1 - 2 * count) + int(run[-min(len(run), count // 2 + 1)]))
        began = int(self._steps[first])
        step = int(self._steps[at])
        self._said[grade] = step
        waits = usual(history.channel("speed/phase/data_ms"), step, time, self._segment, 20)
        yield self.finding(
            began, f"Steps wait for their batch {middle:.0%} of the time ({waits:.3g} ms), since step {began}.",
            key=grade,
            severity="warning" if grade == "warns" else "info", found=step, segment=self._segment,
            evidence={"share": middle, "share_before": before, "data_ms": waits},
            confidence=0.8 if grade == "warns" else 0.4,
        )  # fmt: skip


def _share(part: ChannelRows, whole: ChannelRows) -> NDArray[numpy.float64]:
    """The part's value over the whole's at the same time and step; NaN where there is none."""
    if len(part) <= len(whole):
        tail = len(whole) - len(part)
        if (whole.step[tail:] == part.step).all():
            with numpy.errstate(all="ignore"):
                return numpy.where(whole.value[tail:] > 0, part.value / whole.value[tail:], numpy.nan)
    by_step = dict(
        zip(zip(whole.segment.tolist(), whole.step.tolist(), strict=True), whole.value.tolist(), strict=True)
    )
    keys = zip(part.segment.tolist(), part.step.tolist(), part.value.tolist(), strict=True)
    found = [value / by_step[segment, step] if by_step.get((segment, step), 0.0) > 0 else math.nan
             for segment, step, value in keys]  # fmt: skip
    return numpy.array(found)


class ImpossibleUtilization(BlockRule):
    """The model FLOPs utilisation can't be true.

    A median of 16 rows above 1 warns: the formula, the peak or the count of devices is wrong. Above 0.75 for a dense
    model is an info finding: nobody has published so much. Values above 5, and series whose name says so, are percent.
    """

    name, family, kind, severity = "impossible_mfu", "speed", "efficiency", "warning"
    needs = ("mfu|=speed/mfu",)
    least = 16
    about = "The MFU is impossible or improbable."
    thresholds: ClassVar = {"warns": (1.0, "more than the device can do"), "informs": (0.75, "ours")}
    causes = (
        "peak FLOP/s of another device or precision",
        "wrong number of devices",
        "a formula that counts too many FLOPs",
        "logged in percent: an MFU is a fraction",
    )

    def reset(self) -> None:
        super().reset()
        self._said: set[str] = set()

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("mfu") or history.channel("speed/mfu")

    def look(self, history: RunHistory, new: BlockColumns) -> Iterator[Finding]:
        channel = self.channel(history)
        name = channel.name if channel is not None else "mfu"
        for at in numpy.flatnonzero(new.middle > self.at["informs"]):
            share = mfu_fraction(float(new.middle[at]), name, history.channels)
            grade = "warns" if share > self.at["warns"] else "informs"
            if grade in self._said or share <= self.at["informs"]:
                continue
            self._said |= {grade, "informs"}
            yield self.finding(
                int(new.step[at]), f"An MFU of {share:.0%} "
                f"{'is impossible' if grade == 'warns' else 'is improbable'}.", key=grade,
                severity="warning" if grade == "warns" else "info", kind="efficiency",
                found=int(new.last_step[at]), segment=int(new.segment[at]), evidence={"mfu": share},
                confidence=0.8,
            )  # fmt: skip


class _ShareOfLight(Rule):
    """A rule over the training's speed as a share of the speed of light, in blocks of 16 rows."""

    needs = ("=sol/tps", "throughput")

    def reset(self) -> None:
        self._blocks = NewBlocks()

    def shares(self, history: RunHistory) -> Iterator[tuple[BlockColumns, int, float, float]]:
        """New blocks: their columns, the row, its share, and the tokens a second that the estimate allows."""
        light = history.channel("sol/tps")
        new = self._blocks.new(history, throughput_of(history)) if light is not None else None
        for at in range(len(new)) if new is not None else ():
            assert light is not None and new is not None
            best = float(newest(light, int(new.last_step[at]), int(new.time[at]), int(new.segment[at]), 1)[0])
            yield new, at, float(new.middle[at]) / best if best > 0 else math.nan, best


class ImpossibleSpeed(_ShareOfLight):
    """The training is faster than the speed of light.

    Tokens a second over the estimate of `sol`: a median of 16 rows above 100% warns. The estimate is too low, or the
    tokens are too many: the number of devices, their peak, the precision, or tokens that are counted on every rank.
    """

    name, family, kind, severity = "impossible_sol", "speed", "efficiency", "warning"
    least = 16
    about = "The training is faster than its speed of light."
    sources = ("Surogate metrics guide: sol is theoretical over actual time",)
    thresholds: ClassVar = {"share": (1.0, "more than the device can do")}
    causes = (
        "wrong number of devices in the estimate",
        "peak TFLOP/s of another device or precision",
        "tokens of a step counted too high, such as those of all ranks on every rank",
    )
    remedies = (
        "pass devices= to run.speed_of_light: how many share the work",
        "check the precision (dtypes=) and the peak (peak_tflops=) of the estimate",
    )

    def reset(self) -> None:
        super().reset()
        self._said: set[int] = set()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for new, at, share, best in self.shares(history):
            segment = int(new.segment[at])
            if share > self.at["share"] and segment not in self._said:
                self._said.add(segment)
                yield self.finding(
                    int(new.step[at]), f"Training runs at {share:.0%} of its speed of light, which is impossible.",
                    key=str(segment), found=int(new.last_step[at]), segment=segment, confidence=0.9,
                    evidence={"share": share, "tokens_per_second": float(new.middle[at]), "light": best},
                )  # fmt: skip


class LowEfficiency(_ShareOfLight):
    """The training is far below the speed of light.

    Tokens a second over the estimate of `sol`: below 60% for 96 rows, after the first 32, is an info finding (the
    Surogate metrics guide's best practice).
    """

    name, family, kind, severity = "low_efficiency", "speed", "efficiency", "info"
    least = 128
    about = "The training is far below the speed of light."
    sources = ("Surogate metrics guide: sustained below 60%",)
    thresholds: ClassVar = {"share": (0.6, "Surogate metrics guide"), "blocks": (6.0, "of 16 rows; ours")}
    causes = ("loader slow", "small batches or kernels", "communication that is not overlapped with computation")

    def reset(self) -> None:
        super().reset()
        self._low: list[int] = []
        self._seen, self._said = 0, False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        if self._said:
            return
        for new, at, share, best in self.shares(history):
            self._seen += 1
            self._low = [*self._low, int(new.step[at])] if share < self.at["share"] and self._seen > 2 else []
            if len(self._low) >= self.at["blocks"]:
                self._said = True
                step = int(new.last_step[at])
                yield self.finding(
                    self._low[0], causes=self._causes(history, step, int(new.time[at]), int(new.segment[at])),
                    message=f"Training runs at {share:.0%} of the speed of light.", found=step,
                    segment=int(new.segment[at]), evidence={"share": share, "tokens_per_second": float(new.middle[at]),
                    "light": best},
                    confidence=0.4,
                )  # fmt: skip
                return

    def _causes(self, history: RunHistory, step: int, time: int, segment: int) -> list[str]:
        """Without those that the run itself rules out."""
        waits = usual(history.channel("speed/phase/data_ms"), step, time, segment)
        whole = usual(history.channel("speed/step_ms") or history.role("duration_ms"), step, time, segment)
        alone = (history.facts.get("world_size") or 1) == 1
        return [
            cause
            for cause in self.causes
            if not (cause == self.causes[0] and waits < _WAITING * whole) and not (cause == self.causes[2] and alone)
        ]


_WAITING = 0.1  # of a step: a loader that is waited for less is not what makes the training slow


RULES = (InputBound, ImpossibleUtilization, ImpossibleSpeed, LowEfficiency)
