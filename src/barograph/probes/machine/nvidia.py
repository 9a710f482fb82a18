"""One NVIDIA device: what NVML is asked, how often, and what a record makes of the answers.

In:   a device's handle and the module `pynvml`.
Out:  Surogate's fields and more for a `gpu` record; LostError when the device is gone, ClosedError when NVML is.

Once a second: utilisation, temperature, clock, throttle reasons, and power where there is no energy counter.
Once a record: everything else, most of it in one call for many field values. A question that the device
does not support is asked once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from barograph.probes.machine.readings import (
    MOST_BYTES,
    SILENT_SAMPLES,
    EnergyReading,
    LostError,
    Rate,
    ReadingWindow,
    ordered,
    rounded,
    sane,
    whole,
)  # fmt: skip

# NVML's return codes, as nvml.h numbers them (nvmlReturn_t)
_CLOSED = 1
_NEVER = frozenset({2, 3, 4, 13, 22, 25, 26})  # bad argument, unsupported, forbidden, no such function, …
GONE = {15: "has fallen off the bus", 16: "needs a reset", 28: "is no longer there"}

_MOST_COUNT = 1 << 62
_ALL_LINKS = 2**32 - 1  # scope of the NVLink throughput fields that means all links together
_WIDE = 2**32  # a counter beyond this is not one of 32 bits
_KIBI, _MEBI = 1 << 10, 1 << 20
_MOST_MILLIWATTS = 20_000_000


class ClosedError(Exception):
    """NVML was shut down by somebody else in this process."""


class _Field(NamedTuple):
    """A value of nvmlDeviceGetFieldValues: its number in nvml.h (guaranteed never to change), scope, bounds."""

    number: int
    scope: int = 0
    low: int = 0
    high: int = _MOST_COUNT


_FIELDS = {
    "energy": _Field(83),  # mJ since the driver was loaded
    "ecc_corrected": _Field(3),  # since the driver was loaded, whole device
    "ecc_uncorrected": _Field(4),
    "temperature_memory": _Field(82, 0, 1, 200),
    "remapped_corrected": _Field(142),
    "remapped_uncorrected": _Field(143),
    "remap_pending": _Field(144, 0, 0, 1),
    "remap_failure": _Field(145, 0, 0, 1),
    "pcie_replays": _Field(94),
    "pcie_tx": _Field(197),
    "pcie_rx": _Field(198),
    "nvlink_tx": _Field(138, _ALL_LINKS),  # KiB
    "nvlink_rx": _Field(139, _ALL_LINKS),
    "crc_flit": _Field(38),
    "crc_data": _Field(45),
    "nvlink_replays": _Field(52),
    "nvlink_recoveries": _Field(59),
    "links": _Field(91, 0, 0, 64),
    "slowdown_margin": _Field(194, 0, -100, 100),
}
# Hopper and later count link by link: these three, with the link as scope.
_LINK_FIELDS = {"nvlink_replays": 161, "nvlink_recoveries": 162, "nvlink_crc_errors": 163}
# The same by calls of their own, where a driver does not have the field.
_CALLS: dict[str, tuple[Any, ...]] = {
    "energy": ("nvmlDeviceGetTotalEnergyConsumption",),
    "ecc_corrected": ("nvmlDeviceGetTotalEccErrors", 0, 0),  # corrected, since the driver was loaded
    "ecc_uncorrected": ("nvmlDeviceGetTotalEccErrors", 1, 0),
    "pcie_replays": ("nvmlDeviceGetPcieReplayCounter",),
}
_VALUE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t

# What holds the clock down, by NVML's bits (nvmlClocksEventReason…), and whether it counts as throttling.
_REASONS = {
    0x4: ("power cap", True),
    0x20: ("thermal", True),
    0x40: ("hw thermal", True),
    0x80: ("hw power brake", True),
    0x8: ("hw slowdown", True),
    0x10: ("sync boost", True),
    0x200: ("board limit", True),
    0x400: ("reliability", True),
    0x2: ("application clocks", False),
    0x100: ("display clocks", False),
}
_IDLE = 0x1

# GPM, from Hopper on: metric numbers of nvml.h. Percentages become shares, MiB/s become bytes/s.
_GPM = {
    2: ("sm_active", 0.01), 3: ("sm_occupancy", 0.01), 5: ("tensor_active", 0.01), 10: ("dram_active", 0.01),
    20: ("pcie_tx", _MEBI), 21: ("pcie_rx", _MEBI), 60: ("nvlink_rx", _MEBI), 61: ("nvlink_tx", _MEBI),
}  # fmt: skip


def code(error: Exception) -> int | None:
    """NVML's return code of an exception, if it has one."""
    value = getattr(error, "value", None)
    return value if type(value) is int else None


def memory_of(answer: Any) -> dict[str, int]:
    """`total` and `free` bytes of NVML's memory answer, where they make sense together."""
    total = whole(getattr(answer, "total", None), 1, MOST_BYTES)
    free = whole(getattr(answer, "free", None), 0, total or MOST_BYTES)
    return {name: size for name, size in (("total", total), ("free", free)) if size is not None}


class NvidiaDevice:
    """A device, its window of samples, its counters. `instance` is a MIG instance's handle, or None."""

    def __init__(self, library: Any, index: int, handle: Any, instance: Any = None):
        self.library, self.index, self.handle, self.instance = library, index, handle, instance
        self.xid: int | None = None
        self.xid_errors: int | None = None  # None: this device does not report them
        self.silent = 0  # samples in a row without an answer
        self._answers = 0
        self._never: set[tuple[Any, ...]] = set()
        self._window = ReadingWindow()
        self._reasons: list[int] = []
        self.energy = EnergyReading()
        self._counts_energy: bool | None = None  # None: not asked yet
        self._rates = {name: Rate() for name in ("pcie_tx", "pcie_rx")}
        self._rates |= {name: Rate(_KIBI) for name in ("nvlink_tx", "nvlink_rx")}
        self._fields = dict(_FIELDS)
        self._link_fields: dict[tuple[str, int], _Field] | None = None
        self._nvml_index = whole(self.ask("nvmlDeviceGetIndex"), 0, 1 << 16)
        self.name = str(self.ask("nvmlDeviceGetName") or "NVIDIA device")[:100]
        self._gpm = _Gpm(library, handle, self._instance_number())

    def nvml_index(self) -> int | None:
        """NVML's index, which may differ from the device's id."""
        return self.index if self._nvml_index is None else self._nvml_index

    def _instance_number(self) -> int | None:
        if self.instance is None:
            return None
        try:
            return int(self.library.nvmlDeviceGetGpuInstanceId(self.instance))
        except Exception:
            return None

    # -- asking ----------------------------------------------------------------------------------------

    def ask(self, question: str, *arguments: Any, of: Any = None) -> Any:
        """NVML's answer, or None. What the device does not support is not asked again."""
        key = (question, *arguments)
        if key in self._never:
            return None
        try:
            answer = getattr(self.library, question)(self.handle if of is None else of, *arguments)
        except Exception as error:
            self._judge(error, key)
            return None
        self._answers += 1
        return answer

    def _judge(self, error: Exception, key: tuple[Any, ...]) -> None:
        number = code(error)
        if number in GONE:
            raise LostError(GONE[number]) from None
        if number == _CLOSED:
            raise ClosedError from None
        if number in _NEVER or isinstance(error, AttributeError):
            self._never.add(key)
            if number is not None:
                self._answers += 1  # "not supported" is an answer: somebody is there
        # anything else may pass: nothing this time

    def _values(self, fields: dict[Any, _Field]) -> dict[Any, Any]:
        """Field values by name, in one call. Those that the device does not have are dropped from `fields`."""
        if not fields:
            return {}
        names = list(fields)
        asked = [(field.number, field.scope) for field in fields.values()]
        key = ("nvmlDeviceGetFieldValues",)
        if key in self._never:
            return {}
        try:
            answers = self.library.nvmlDeviceGetFieldValues(self.handle, asked)
        except Exception as error:
            self._judge(error, key)
            return {}
        self._answers += 1
        result: dict[Any, Any] = {}
        for name, answer in zip(names, answers, strict=False):
            field = fields[name]
            if answer.nvmlReturn in GONE:
                raise LostError(GONE[answer.nvmlReturn])
            if answer.nvmlReturn in _NEVER:
                del fields[name]
            elif answer.nvmlReturn == 0 and 0 <= answer.valueType < len(_VALUE):
                value = whole(getattr(answer.value, _VALUE[answer.valueType]), field.low, field.high)
                if value is not None:
                    result[name] = value
        return result

    # -- once a second ---------------------------------------------------------------------------------

    def sample(self, now: float) -> None:
        """One look. Raises LostError when the device is gone or has not answered for some time."""
        self._answers = 0
        window = self._window
        rates = self.ask("nvmlDeviceGetUtilizationRates")
        window.add("gpu_util", sane(getattr(rates, "gpu", None), 0, 100))
        window.add("mem_util", sane(getattr(rates, "memory", None), 0, 100))
        window.add("temperature", self._temperature())
        window.add("clock", sane(self.ask("nvmlDeviceGetClockInfo", 1), 0, 20_000))  # 1: the multiprocessors'
        reasons = self.ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # the name before R535
            reasons = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        if (reasons := whole(reasons, 0, 0xFFFF_FFFF)) is not None:
            self._reasons.append(reasons)
        if self._counts_energy is None:
            self._begin(now)
        if not self._counts_energy:
            power = sane(self.ask("nvmlDeviceGetPowerUsage"), 0, _MOST_MILLIWATTS)
            window.add("power", power)
            self.energy.power(None if power is None else power / 1000, now)
        self.silent = 0 if self._answers else self.silent + 1
        if self.silent >= SILENT_SAMPLES:
            raise LostError(f"has not answered {SILENT_SAMPLES} times in a row")

    def _temperature(self) -> int | None:
        """Degrees Celsius; a device that works does not answer 0."""
        now = whole(self.ask("nvmlDeviceGetTemperature", 0), 1, 200)
        return now if now is not None else whole(self.ask("nvmlDeviceGetTemperatureV", 0), 1, 200)

    def _begin(self, now: float) -> None:
        """The first state of every counter, and whether there is one of energy."""
        values = self._values(self._fields)
        self._fall_back(values, ("energy",))
        self._counts_energy = "energy" in values
        if self._counts_energy:
            self.energy.count(values["energy"] / 1000, now)
        for name, rate in self._rates.items():
            rate.update(values.get(name), now)

    # -- once a record ---------------------------------------------------------------------------------

    def record(self, now: float) -> dict[str, Any]:
        """A `gpu` record's fields of the time since the last one."""
        window, values = self._window, self._values(self._fields)
        self._fall_back(values, _CALLS)
        watts = None
        if "energy" in values:
            self._counts_energy = True  # also where the first question failed by chance
            watts = self.energy.count(values["energy"] / 1000, now)
        power = window.mean("power") if watts is None else watts * 1000
        if power is None:  # between two states of the counter there was no time, or it was reset
            power = sane(self.ask("nvmlDeviceGetPowerUsage"), 0, _MOST_MILLIWATTS)
        gpm = self._gpm.shares()
        made: dict[str, Any] = {
            "id": self.index,
            "clock": rounded(window.mean("clock")),
            "max_clock": whole(self.ask("nvmlDeviceGetMaxClockInfo", 1), 1, 20_000),
            "fan": self._fan(),
            "power": rounded(power),
            "power_limit": whole(self.ask("nvmlDeviceGetEnforcedPowerLimit"), 1, _MOST_MILLIWATTS),
            "temperature": rounded(window.most("temperature")),
            "temp_slowdown": self._slowdown(values),
            "gpu_util": rounded(window.mean("gpu_util"), 1),
            "mem_util": rounded(window.mean("mem_util"), 1),
            "throttle": throttle(self._reasons),
            "dram_free": memory_of(self.ask("nvmlDeviceGetMemoryInfo", of=self.instance)).get("free"),
        }
        made |= self._traffic(values, gpm, now)
        made["throttled"] = throttled(self._reasons)
        made["energy"] = None if self.energy.joules is None else round(self.energy.joules, 3)
        for name in ("temperature_memory", "ecc_corrected", "ecc_uncorrected", "remapped_corrected"):
            made[name] = values.get(name)
        for name in ("remapped_uncorrected", "remap_pending", "remap_failure", "pcie_replays"):
            made[name] = values.get(name)
        made |= self._link_errors(values)
        made |= {name: rounded(gpm.get(name), 4) for name, factor in _GPM.values() if factor < 1}
        made |= {"xid_errors": self.xid_errors, "xid": self.xid}
        made |= self._processes()
        window.clear()
        self._reasons = []
        return ordered(made)

    def _fall_back(self, values: dict[Any, Any], names: Iterable[str]) -> None:
        """The same counters by calls of their own, where the field values don't have them."""

        for name in names:
            if name not in values:
                answer = whole(self.ask(*_CALLS[name]), 0, _MOST_COUNT)
                if answer is not None:
                    values[name] = answer

    def _fan(self) -> int | None:
        """Percent; 0 of a device that has no fan of its own, as Surogate has it."""
        speed = whole(self.ask("nvmlDeviceGetFanSpeed"), 0, 255)  # NVML: may exceed 100
        if speed is None and ("nvmlDeviceGetFanSpeed",) in self._never:
            fans = whole(self.ask("nvmlDeviceGetNumFans"), 0, 64)
            return None if fans else 0
        return speed

    def _slowdown(self, values: dict[Any, Any]) -> int | None:
        """Where the hardware slows down, °C. From Ada on NVML may have it only as a distance from now."""
        limit = whole(self.ask("nvmlDeviceGetTemperatureThreshold", 1), 30, 200)
        if limit is not None:
            return limit
        margin = whole(self.ask("nvmlDeviceGetMarginTemperature"), -200, 200)
        now = self._temperature()
        if margin is None or now is None or "slowdown_margin" not in values:
            return None
        return whole(now + margin - values["slowdown_margin"], 30, 200)

    def _traffic(self, values: dict[Any, Any], gpm: dict[str, float], now: float) -> dict[str, int | float | None]:
        """Bytes a second over PCIe and NVLink: counters, else GPM, else (PCIe) a look of 20 ms."""
        result: dict[str, int | float | None] = {}
        for name in ("pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx"):
            count = values.get(name)
            rate = self._rates[name].update(count, now)
            if name.startswith("pcie") and (count is None or count < _WIDE):
                rate = None  # maybe one of 32 bits, that wraps several times a second
            if rate is None or name in gpm:
                rate = gpm.get(name, rate)
            result[name] = rounded(rate)
        for name, direction in (("pcie_rx", 1), ("pcie_tx", 0)):
            if result[name] is None:  # KB/s; NVML sleeps 20 ms for it, in this thread
                speed = sane(self.ask("nvmlDeviceGetPcieThroughput", direction), 0, 1 << 31)
                result[name] = None if speed is None else rounded(speed * 1000)
        return result

    def _link_errors(self, values: dict[Any, Any]) -> dict[str, int | None]:
        """NVLink errors of all links since the driver was loaded."""
        parts = [values[name] for name in ("crc_flit", "crc_data") if name in values]
        result: dict[str, int | None] = {"nvlink_crc_errors": sum(parts) if parts else None}
        result |= {name: values.get(name) for name in ("nvlink_replays", "nvlink_recoveries")}
        if any(value is not None for value in result.values()) or not values.get("links"):
            return result
        if self._link_fields is None:
            self._link_fields = {
                (name, link): _Field(number, link)
                for name, number in _LINK_FIELDS.items()
                for link in range(values["links"])
            }
        for (name, _), count in self._values(self._link_fields).items():
            result[name] = (result[name] or 0) + count
        return result

    def _processes(self) -> dict[str, int | None]:
        """How many processes compute on the device, and this one's memory there (not seen from a container)."""
        answer = self.ask("nvmlDeviceGetComputeRunningProcesses", of=self.instance)
        if not isinstance(answer, list):
            return {}
        mine = [whole(item.usedGpuMemory, 0, MOST_BYTES) for item in answer if item.pid == os.getpid()]
        return {"processes": len(answer), "process_memory": mine[0] if mine else None}

    def close(self) -> None:
        """Free what NVML holds for this device."""
        self._gpm.close()


def throttle(samples: list[int]) -> str | None:
    """Every reason seen, joined; "idle" if the device was idle all the time; "" for none; None if unknown."""
    if not samples:
        return None
    union = 0
    for bits in samples:
        union |= bits
    if all(bits & _IDLE for bits in samples) and not union & ~_IDLE:
        return "idle"
    found = [name for bit, (name, _) in _REASONS.items() if union & bit]
    if union & ~(sum(_REASONS) | _IDLE):
        found.append("other")
    return ", ".join(found)


def throttled(samples: list[int]) -> float | None:
    """The share of samples in which something held the clock down."""
    slowing = sum(bit for bit, (_, slows) in _REASONS.items() if slows)
    return round(sum(1 for bits in samples if bits & slowing) / len(samples), 3) if samples else None


class _Gpm:
    """NVML's GPU performance monitoring: means between two samples, kept by the driver."""

    def __init__(self, library: Any, handle: Any, instance: int | None):
        self._library, self._handle, self._instance = library, handle, instance
        self._samples: list[Any] = []
        self._request: Any = None
        self._holds_first = False
        try:
            if not library.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                return
            self._request = library.c_nvmlGpmMetricsGet_t()
            self._samples = [library.nvmlGpmSampleAlloc() for _ in range(2)]
            self._take(self._samples[0])
            self._holds_first = True
        except Exception:  # before Hopper, an older driver, or not allowed
            self.close()

    def _take(self, sample: Any) -> None:
        if self._instance is None:
            self._library.nvmlGpmSampleGet(self._handle, sample)
        else:
            self._library.nvmlGpmMigSampleGet(self._handle, self._instance, sample)

    def shares(self) -> dict[str, float]:
        """Means since the last call, by field name; {} where there is no GPM."""
        if not self._holds_first:
            return {}
        try:
            first, second = self._samples
            self._take(second)
            self._samples.reverse()
            request = self._request
            request.version, request.numMetrics = 1, len(_GPM)
            request.sample1, request.sample2 = first, second
            for place, number in enumerate(_GPM):
                request.metrics[place].metricId = number
            self._library.nvmlGpmMetricsGet(request)
            answers = [request.metrics[place] for place in range(len(_GPM))]
        except Exception as error:
            if code(error) in GONE:
                raise LostError(GONE[code(error) or 15]) from None
            if code(error) in _NEVER:
                self.close()
            return {}
        found: dict[str, float] = {}
        for (name, factor), answer in zip(_GPM.values(), answers, strict=True):
            value = sane(answer.value, 0, MOST_BYTES) if answer.nvmlReturn == 0 else None
            if value is not None and (factor > 1 or value <= 100.5):
                found[name] = min(value * factor, 1.0) if factor < 1 else value * factor
        return {name: value for name, value in found.items() if value <= MOST_BYTES}

    def close(self) -> None:
        """Free the two samples."""
        for sample in self._samples:
            with contextlib.suppress(Exception):
                self._library.nvmlGpmSampleFree(sample)
        self._samples, self._request, self._holds_first = [], None, False
