"""Rules over devices and the host: heat, clocks held down, hardware errors, idle devices, a full disk.

In:   the series `gpu/{id}/…` and `host/…`. Out:  findings of the family `machine`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor, known
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.series import SeriesRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

_DEVICE = expression(r"gpu/([^/]+)/")
_GIB = float(1 << 30)


class _Devices(Rule):
    """Looks at each device's series."""

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._names = -1
        self._ids: list[str] = []
        self._said: set[tuple[str, str]] = set()

    def devices(self, history: RunHistory) -> list[str]:
        """Their numbers, as the series have them."""
        if len(history.channels) != self._names:
            self._names = len(history.channels)
            self._ids = list(dict.fromkeys(match[1] for name in history.channels if (match := _DEVICE.match(name))))
        return self._ids

    def once(self, device: str, what: str) -> bool:
        """Whether this is the first time."""
        if (device, what) in self._said:
            return False
        self._said.add((device, what))
        return True


class DeviceThrottled(_Devices):
    """A device is too hot, or its clock is reduced.

    Three records in a row at the temperature where the device says it slows down warn; at 85 °C, where it says
    nothing, they are an info finding: heat alone slows nothing down. So warns a clock that is 15% below the median of
    the records before (six at least) for three records, while the device is busy and was throttled in most of the time
    or is within 3 °C of slowing down. A power cap alone is ordinary for large devices in training.

    What to do: look at cooling and neighbours, lower the power limit; on a cluster, hand the node back.
    """

    name, family, kind, severity = "device_throttled", "machine", "hardware", "warning"
    needs = ("gpu/*",)
    least = 3
    about = "A device is too hot, or its clock is reduced."
    sources = ("TraceML: 85 °C", "Surogate metrics guide: fields of a device")
    thresholds: ClassVar = {
        "hot": (85.0, "°C, TraceML"),
        "clock": (0.85, "of what it was; ours"),
        "records": (3.0, "in a row; ours"),
    }

    def reset(self) -> None:
        super().reset()
        self._hot: dict[str, list[int]] = {}
        self._slow: dict[str, list[int]] = {}
        self._past: dict[str, list[float]] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for device in self.devices(history):
            yield from self._heat(history, device)
            yield from self._clock(history, device)

    def _heat(self, history: RunHistory, device: str) -> Iterator[Finding]:
        rows = self._cursor.new(history.channel(f"gpu/{device}/temperature"))
        if rows is None:
            return
        limits = history.channel(f"gpu/{device}/temp_slowdown")
        for at in range(len(rows)):
            hot, step = float(rows.value[at]), int(rows.step[at])
            limit = known(limits, step, int(rows.time[at]), int(rows.segment[at])) if hot > 50 else math.nan
            least = min(self.at["hot"], limit) if limit > 50 else self.at["hot"]
            self._hot[device] = [*self._hot.get(device, []), step] if hot >= least else []
            if len(self._hot[device]) == int(self.at["records"]) and self.once(device, f"hot {rows.segment[at]}"):
                too_hot = hot >= limit
                yield self.finding(
                    self._hot[device][0], f"Device {device} is at {hot:.3g} °C since step {self._hot[device][0]}.",
                    found=step, key=f"{device} hot", segment=int(rows.segment[at]),
                    evidence={"device": device, "temperature": hot, "limit": least},
                    severity="warning" if too_hot else "info", confidence=0.7 if too_hot else 0.4,
                    causes=["device throttled: too hot" if too_hot else "device hot"],
                    remedies=["look at cooling and airflow", "lower the power limit"],
                )  # fmt: skip

    def _clock(self, history: RunHistory, device: str) -> Iterator[Finding]:
        rows = self._cursor.new(history.channel(f"gpu/{device}/clock"))
        if rows is None:
            return
        past = self._past.setdefault(device, [])
        for at in range(len(rows)):
            clock, step, time, segment = (
                float(rows.value[at]),
                int(rows.step[at]),
                int(rows.time[at]),
                int(rows.segment[at]),
            )
            usual = sorted(past)[len(past) // 2] if len(past) >= 6 else float("nan")
            busy, throttled, heat, limit = (
                known(history.channel(f"gpu/{device}/{name}"), step, time, segment)
                for name in ("gpu_util", "throttled", "temperature", "temp_slowdown")
            )
            if not clock < self.at["clock"] * usual or busy < 50:
                if clock == clock and not busy < 50:
                    past.append(clock)
                    del past[:-64]
                self._slow[device] = []
                continue
            slow = self._slow[device] = [*self._slow.get(device, []), step]
            held = throttled > 0.5 or heat >= limit - 3 or heat >= self.at["hot"]
            if len(slow) >= self.at["records"] and held and self.once(device, f"clock {segment}"):
                yield self.finding(
                    slow[0], f"The clock of device {device} fell from {usual:.3g} to {clock:.3g} MHz at step "
                    f"{slow[0]}"
                    + (f", at {heat:.3g} °C." if heat == heat else "."), found=step,
                    segment=segment,
                    key=f"{device} clock", evidence={"device": device, "clock": clock, "usual": usual,
                    "temperature": heat},
                    causes=["device throttled: its clock is reduced"], confidence=0.85,
                    remedies=["look at the record's `throttle`: heat, power brake or a cap", "look at cooling",
                              "replace the node if this persists"],
                )  # fmt: skip
            if len(slow) == 64:  # it is the usual now
                past[:] = [clock]


_XIDS = {
    13: "an illegal access or instruction of a kernel", 31: "an illegal address of a kernel",
    43: "a kernel that was stopped",
    45: "work that was removed after an error", 48: "a memory error that could not be corrected",
    63: "a memory row was replaced",
    64: "replacing a memory row failed", 74: "an error of NVLink", 79: "the device fell off the bus",
    92: "many corrected memory errors", 94: "a contained memory error", 95: "an uncontained memory error",
    119: "the device's own processor does not answer", 120: "an error of the device's own processor",
}  # fmt: skip
_TAKE_OUT = "remove the node, run its diagnostics, continue from the last checkpoint"
_SOFTWARE = frozenset({13, 31, 43, 45})


class HardwareErrors(_Devices):
    """A device reports errors: Xid, uncorrectable memory errors, failed replacement of rows, links that recover.

    Xid errors of the hardware (all but 13, 31, 43 and 45, which programs make), memory errors that could not be
    corrected and rows that could not be replaced are critical: results may be wrong already. Rows that wait for a reset
    and links that had to recover warn. Corrected errors are an info finding, and Xid errors of programs: one that this
    training made ended it (`crashed`), and else it is another program's on the same device.
    """

    name, family, kind, severity = "hardware_errors", "machine", "hardware", "critical"
    prompt = True
    needs = ("gpu/*",)
    about = "A device reports errors."
    sources = ("NVIDIA Xid", "Llama 3: 58.7% of unexpected interruptions are devices and their memory")
    thresholds: ClassVar = {"count": (0.0, "more than at the start")}
    counters: ClassVar = {
        "xid_errors": ("critical", "Xid errors"), "ecc_uncorrected": ("critical", "memory errors that could not be "
        "corrected"),
        "remap_failure": ("critical", "failed replacements of memory rows"),
        "remapped_uncorrected": ("critical", "memory rows replaced after errors"),
        "remap_pending": ("warning", "memory rows that wait for a reset"),
        "nvlink_recoveries": ("warning", "recoveries of NVLink"), "nvlink_crc_errors": ("info", "CRC errors of NVLink"),
        "pcie_replays": ("info", "PCIe packets sent again"), "ecc_corrected": ("info", "corrected memory errors"),
        "remapped_corrected": ("info", "memory rows replaced"),
    }  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self._before: dict[str, float] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for device in self.devices(history):
            for counter, (severity, words) in self.counters.items():
                name = f"gpu/{device}/{counter}"
                rows = self._cursor.new(history.channel(name))
                if rows is None:
                    continue
                # counts since the driver was loaded mean nothing by themselves; those since the run's start do
                before = self._before.get(
                    name, 0.0 if counter in ("xid_errors", "remap_failure") else float(rows.value[0])
                )
                before = before if math.isfinite(before) else 0.0
                self._before[name] = before
                more = (rows.value > before) & (rows.value < math.inf)
                if not more.any() or not self.once(device, counter):
                    continue
                at = int(numpy.argmax(more))
                yield from self._say(
                    history, device, counter, severity, words, float(rows.value[at]) - before, rows, at
                )

    def _say(
        self, history: RunHistory, device: str, counter: str, severity: str, words: str, more: float, rows: ChannelRows,
        at: int,
    ) -> Iterator[Finding]:  # fmt: skip
        step, segment = int(rows.step[at]), int(rows.segment[at])
        evidence: dict[str, object] = {"device": device, "counter": counter, "more": more}
        text = f"Device {device} reports {int(more)} {words} at step {step}."
        if counter == "xid_errors":
            xid = known(history.channel(f"gpu/{device}/xid"), step, int(rows.time[at]), segment)
            if math.isfinite(xid):
                evidence["xid"] = int(xid)
                text = f"Device {device} reports Xid {int(xid)} at step {step}" + (
                    f": {_XIDS[int(xid)]}." if int(xid) in _XIDS else "."
                )
                severity = "info" if int(xid) in _SOFTWARE else severity
        causes = ["failing device"] if severity == "critical" else ["device or link to monitor"]
        remedies = [_TAKE_OUT if severity == "critical" else "check again in an hour"]
        if evidence.get("xid") in _SOFTWARE:
            causes = ["an error of a program on this device: of this training, if it ended there, or of another"]
            remedies = ["look at what else runs on the device"]
        yield self.finding(
            step, text, severity=severity, key=f"{device} {counter}", segment=segment, evidence=evidence,
            causes=causes, remedies=remedies, confidence=0.9 if severity == "critical" else 0.4,
        )  # fmt: skip


class LowUtilization(_Devices):
    """A device is idle most of the time, or the processors keep it waiting.

    The median of `gpu_util` over 40 records below 50% is an info finding (the stability guide's red flag); a busy
    device proves little. Where the device is below 10% and the processors above 90% in more than half of the last 40
    records, the processors are the bottleneck: a warning (SageMaker).
    """

    name, family, kind, severity = "low_utilization", "machine", "efficiency", "warning"
    needs = ("gpu/*",)
    least = 40
    about = "A device is idle most of the time."
    sources = (
        "stability guide: GPU utilisation below 50%",
        "SageMaker Debugger: CPUBottleneck, device below 10%, processors above 90%",
    )
    thresholds: ClassVar = {
        "busy": (50.0, "%, stability guide"),
        "device": (10.0, "%, SageMaker"),
        "cpu": (90.0, "%, SageMaker"),
        "records": (40.0, "ours"),
    }

    def reset(self) -> None:
        super().reset()
        self._window: dict[str, list[tuple[int, float, float]]] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        cpu = history.channel("host/cpu_util")
        for device in self.devices(history):
            rows = self._cursor.new(history.channel(f"gpu/{device}/gpu_util"))
            if rows is None:
                continue
            window = self._window.setdefault(device, [])
            for at in range(len(rows)):
                step, segment = int(rows.step[at]), int(rows.segment[at])
                load = known(cpu, step, int(rows.time[at]), segment) if rows.value[at] < self.at["device"] else 0.0
                window.append((step, float(rows.value[at]), load))
                del window[: -int(self.at["records"])]
                if len(window) == self.at["records"]:
                    yield from self._look(device, window, segment)

    def _look(self, device: str, window: list[tuple[int, float, float]], segment: int) -> Iterator[Finding]:
        starved = [item for item in window if item[1] < self.at["device"] and item[2] > self.at["cpu"]]
        first, last = window[0][0], window[-1][0]
        if len(starved) > len(window) / 2 and self.once(device, f"starved {segment}"):
            yield self.finding(
                first, f"Device {device} is idle while the processors are busy, since step {first}.",
                kind="input_bound",
                found=last, key=f"{device} starved", segment=segment, evidence={"device": device},
                causes=["loader slow: the processors are the bottleneck"], confidence=0.7,
                remedies=["use more processors or fewer transformations", "decode and tokenise beforehand"],
            )  # fmt: skip
        middle = sorted(item[1] for item in window)[len(window) // 2]
        if middle < self.at["busy"] and self.once(device, f"idle {segment}"):
            yield self.finding(
                first, f"Device {device} is busy {middle:.3g}% of the time.", severity="info", found=last,
                key=f"{device} idle", segment=segment, evidence={"device": device, "gpu_util": middle}, confidence=0.3,
                causes=["loader slow", "small batches", "many small kernels"],
            )  # fmt: skip


class DiskFull(SeriesRule):
    """The disk with the run's folder is nearly full.

    Less than 1 GiB warns, less than 100 MiB is critical: the next checkpoint will not be whole. Logging goes on in
    memory.
    """

    name, family, kind, severity = "disk_full", "machine", "hardware", "critical"
    series, waits = "=host/disk_free", False
    needs = ("=host/disk_free",)
    about = "The disk with the run's folder is nearly full."
    sources = ("picoLLM run analysis: a checkpoint that was not written costs the run",)
    thresholds: ClassVar = {"warns": (1.0, "GiB; ours"), "critical": (0.1, "GiB; ours")}
    causes = ("checkpoints fill the disk",)
    remedies = ("delete old checkpoints", "write checkpoints elsewhere")

    def reset(self) -> None:
        self._said: set[str] = set()

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        for level, severity in (("warns", "warning"), ("critical", "critical")):
            low = rows.value < self.at[level] * _GIB
            if not low.any() or level in self._said:
                continue
            self._said.add(level)
            at = int(numpy.argmax(low))
            free = float(rows.value[at]) / _GIB
            yield self.finding(
                int(rows.step[at]), f"{free:.3g} GiB are free where the run is written.", severity=severity,
                key=level,
                segment=int(rows.segment[at]), evidence={"free_gib": free}, confidence=0.9,
                )  # fmt: skip


RULES = (DeviceThrottled, HardwareErrors, LowUtilization, DiskFull)
