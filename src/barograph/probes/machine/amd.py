"""AMD devices, by amdsmi: the same record as NVIDIA's, as far as this library has the fields.

In:   the module `amdsmi` (pip install "barograph[amd]", or ROCm's own), HIP_VISIBLE_DEVICES and its kin.
Out:  samples and records of each visible device, its model, and a sentence about each one that is lost.

Left out on purpose: amdsmi_get_gpu_pci_throughput measures for a whole second, and
amdsmi_get_violation_status for a tenth; residency counters of the metrics table say the same without waiting.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from barograph.core import place
from barograph.probes.machine.readings import (
    MOST_BYTES,
    SILENT_SAMPLES,
    EnergyReading,
    LostError,
    MissingError,
    News,
    ReadingWindow,
    ordered,
    rounded,
    sane,
    whole,
)  # fmt: skip

_MOST_DEVICES = 256
_MOST_WATTS = 20_000
_VISIBLE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_NEVER = ("NOT_SUPPORTED", "NOT_YET_IMPLEMENTED", "NO_PERM", "INVAL", "FILE_NOT_FOUND", "NO_ENERGY_DRV")

# Time spent held down, counted by the firmware: field of the metrics table → reason.
_RESIDENCIES = {
    "ppt_residency_acc": "power cap",
    "socket_thm_residency_acc": "thermal",
    "hbm_thm_residency_acc": "memory thermal",
    "vr_thm_residency_acc": "regulator thermal",
    "prochot_residency_acc": "hw slowdown",
}


class Amd:
    """Every AMD device this process is to look at. `library` is the module `amdsmi`, or a stand-in."""

    name = "amdsmi"

    def __init__(self, library: Any = None, environ: Mapping[str, str] | None = None):
        self._library = library
        self._environ = os.environ if environ is None else environ
        self._devices: list[AmdDevice] = []
        self._news: list[News] = []

    def open(self) -> None:
        """Start amdsmi and take hold of the devices. Raises MissingError with the reason."""
        if self._library is None:
            self._library = _load()
        try:
            self._library.amdsmi_init()
            handles = list(self._library.amdsmi_get_processor_handles())[:_MOST_DEVICES]
        except Exception as error:
            raise MissingError(f"amdsmi failed: {status(error) or type(error).__name__}") from None
        if place.rank(self._environ)[2] == 0:
            devices = [AmdDevice(self._library, at, handle) for at, handle in enumerate(handles)]
            chosen = visible(self._environ, [device.serial for device in devices])
            self._devices = [devices[at] for at in chosen]
        if not self._devices:
            self.close()
            raise MissingError("amdsmi shows no device that this process is to look at")

    def sample(self, now: float) -> None:
        """Activity, clock, temperature and power of each device."""
        self._each(lambda device: device.sample(now))

    def records(self, now: float) -> list[dict[str, Any]]:
        """A record's fields of each device."""
        result: list[dict[str, Any]] = []
        self._each(lambda device: result.append(device.record(now)))
        return result

    def _each(self, act: Callable[[AmdDevice], None]) -> None:
        for device in list(self._devices):
            how = ""
            try:
                act(device)
            except LostError as lost:
                how = str(lost)
            except Exception:  # an answer that no rule foresaw
                device.silent += 1
                how = "gives answers that make no sense" if device.silent >= SILENT_SAMPLES else ""
            if how:
                self._devices.remove(device)
                sentence = (
                    f"GPU {device.index} ({device.name}) {how}; it is not watched any more, the other devices are. "
                    "Run `amd-smi` and look for amdgpu in `dmesg`; most often the node needs a reboot"
                )
                self._news.append(News(f"gpu lost {device.index}", "lost", sentence, {"id": device.index}))

    def models(self) -> list[dict[str, Any]]:
        """Surogate's `gpu-model` fields: compute units as `sm_count`, gfx942 as 9 and 4."""
        rank = place.rank(self._environ)[0]
        return [{"rank": rank} | device.model() for device in self._devices]

    def news(self) -> list[News]:
        """What happened since the last call."""
        news, self._news = self._news, []
        return news

    def close(self) -> None:
        """Let go of amdsmi."""
        self._devices = []
        with contextlib.suppress(Exception):
            self._library.amdsmi_shut_down()


class AmdDevice:
    """A device, its window of samples, its counters."""

    def __init__(self, library: Any, index: int, handle: Any):
        self._library, self.index, self._handle = library, index, handle
        self.silent = 0
        self._answers = 0
        self._never: set[tuple[Any, ...]] = set()
        self._window = ReadingWindow()
        self.energy = EnergyReading()
        self._held: dict[str, int] = {}  # the residency counters at the last record
        about = self.ask("amdsmi_get_gpu_asic_info")
        self._asic: Mapping[str, Any] = about if isinstance(about, Mapping) else {}
        self.name = str(self._asic.get("market_name") or "AMD device")[:100]
        self.serial = str(self._asic.get("asic_serial", ""))

    def ask(self, question: str, *arguments: Any) -> Any:
        """amdsmi's answer, or None. What the device does not support is not asked again."""
        key = (question, *arguments)
        if key in self._never:
            return None
        try:
            answer = getattr(self._library, question)(self._handle, *arguments)
        except Exception as error:
            word = status(error)
            if any(word.endswith(end) for end in _NEVER) or isinstance(error, AttributeError):
                self._never.add(key)
                self._answers += bool(word)  # "not supported" is an answer: somebody is there
            return None
        self._answers += 1
        return answer

    def _part(self, question: str, name: str, *arguments: Any) -> Any:
        answer = self.ask(question, *arguments)
        return answer.get(name) if isinstance(answer, Mapping) else None

    def _constant(self, family: str, name: str) -> Any:
        return getattr(getattr(self._library, family, None), name, None)

    def sample(self, now: float) -> None:
        """One look. Raises LostError when the device has not answered for some time."""
        self._answers = 0
        window = self._window
        activity = self.ask("amdsmi_get_gpu_activity")
        activity = activity if isinstance(activity, Mapping) else {}
        window.add("gpu_util", sane(activity.get("gfx_activity"), 0, 100))
        window.add("mem_util", sane(activity.get("umc_activity"), 0, 100))
        window.add("temperature", self._temperature("HOTSPOT", "CURRENT"))
        clock = self.ask("amdsmi_get_clock_info", self._constant("AmdSmiClkType", "GFX"))
        if isinstance(clock, Mapping):
            window.add("clock", sane(clock.get("clk"), 0, 20_000))
            window.add("max_clock", sane(clock.get("max_clk"), 1, 20_000))
        watts = self._watts()
        window.add("power", watts)
        joules = self._joules()
        if joules is None:
            self.energy.power(watts, now)
        elif self.energy.joules is None:
            self.energy.count(joules, now)
        self.silent = 0 if self._answers else self.silent + 1
        if self.silent >= SILENT_SAMPLES:
            raise LostError(f"has not answered {SILENT_SAMPLES} times in a row")

    def _temperature(self, sensor: str, metric: str) -> int | None:
        kinds = (sensor, "EDGE") if sensor == "HOTSPOT" else (sensor,)  # the hot spot is what throttles
        for kind in kinds:
            degrees = self.ask(
                "amdsmi_get_temp_metric",
                self._constant("AmdSmiTemperatureType", kind),
                self._constant("AmdSmiTemperatureMetric", metric),
            )
            if (result := whole(degrees, 1, 200)) is not None:
                return result
        return None

    def _watts(self) -> float | None:
        answer = self.ask("amdsmi_get_power_info")
        answer = answer if isinstance(answer, Mapping) else {}
        for name in ("socket_power", "current_socket_power", "average_socket_power"):
            watts = sane(answer.get(name), 0, _MOST_WATTS)
            if watts:
                return watts
        return None

    def _joules(self) -> float | None:
        """The energy counter: a count in steps of `counter_resolution` microjoules."""
        answer = self.ask("amdsmi_get_energy_count")
        answer = answer if isinstance(answer, Mapping) else {}
        count = sane(answer.get("energy_accumulator"), 1, 1 << 62)
        step = sane(answer.get("counter_resolution"), 0.001, 1e6)
        return count * step / 1e6 if count is not None and step is not None else None

    def record(self, now: float) -> dict[str, Any]:
        """A `gpu` record's fields of the time since the last one."""
        window = self._window
        watts = self.energy.count(self._joules(), now)
        watts = window.mean("power") if watts is None else watts
        metrics = self.ask("amdsmi_get_gpu_metrics_info")
        errors = self.ask("amdsmi_get_gpu_total_ecc_count")
        errors = errors if isinstance(errors, Mapping) else {}
        reasons, held = self._throttle(metrics if isinstance(metrics, Mapping) else {})
        total = whole(self._memory("amdsmi_get_gpu_memory_total"), 1, MOST_BYTES)
        used = whole(self._memory("amdsmi_get_gpu_memory_usage"), 0, total or MOST_BYTES)
        bus = self._part("amdsmi_get_pcie_info", "pcie_metric")
        bus = bus if isinstance(bus, Mapping) else {}
        megabits = sane(bus.get("pcie_bandwidth"), 0, 1e8)
        made: dict[str, Any] = {
            "id": self.index,
            "clock": rounded(window.mean("clock")),
            "max_clock": rounded(window.most("max_clock")),
            "fan": self._fan(),
            "power": None if watts is None else rounded(watts * 1000),
            "power_limit": self._power_limit(),
            "temperature": rounded(window.most("temperature")),
            "temp_slowdown": self._temperature("HOTSPOT", "CRITICAL"),
            "gpu_util": rounded(window.mean("gpu_util"), 1),
            "mem_util": rounded(window.mean("mem_util"), 1),
            "throttle": reasons,
            "dram_free": total - used if total is not None and used is not None else None,
            "throttled": held,
            "energy": None if self.energy.joules is None else round(self.energy.joules, 3),
            "temperature_memory": self._temperature("VRAM", "CURRENT"),
            "ecc_corrected": whole(errors.get("correctable_count"), 0, 1 << 62),
            "ecc_uncorrected": whole(errors.get("uncorrectable_count"), 0, 1 << 62),
            "pcie_bandwidth": None if megabits is None else rounded(megabits * 1e6 / 8),
            "pcie_replays": whole(bus.get("pcie_replay_count"), 0, 1 << 62),
        }
        window.clear()
        return ordered(made)

    def _memory(self, question: str) -> Any:
        return self.ask(question, self._constant("AmdSmiMemoryType", "VRAM"))

    def _fan(self) -> int | None:
        """Percent of the fastest; 0 of a device without a fan of its own."""
        speed = sane(self.ask("amdsmi_get_gpu_fan_speed", 0), 0, 100_000)
        if speed is None:
            return 0 if ("amdsmi_get_gpu_fan_speed", 0) in self._never else None
        most = sane(self.ask("amdsmi_get_gpu_fan_speed_max", 0), 1, 100_000)
        return whole(speed / most * 100, 0, 255) if most else None

    def _power_limit(self) -> int | None:
        """Milliwatts. ROCm 6 and later give microwatts, earlier ones watts; no board takes 100 kW."""
        limit = sane(self._part("amdsmi_get_power_cap_info", "power_cap"), 1, 1e12)
        if limit is None:
            return None
        return whole(limit / 1000 if limit > 100_000 else limit * 1000, 1, _MOST_WATTS * 1000)

    def _throttle(self, metrics: Mapping[str, Any]) -> tuple[str | None, float | None]:
        """What held the clock down since the last record, and the largest share of that time."""
        now = {
            name: count
            for name in (*_RESIDENCIES, "accumulation_counter")
            if (count := whole(metrics.get(name), 0, 1 << 62)) is not None
        }
        before, self._held = self._held, now
        ticks = now.get("accumulation_counter", 0) - before.get("accumulation_counter", 0)
        if "accumulation_counter" in before and ticks > 0:
            shares = {
                reason: (now[name] - before[name]) / ticks
                for name, reason in _RESIDENCIES.items()
                if name in now and name in before
            }
            held = {reason: min(share, 1.0) for reason, share in shares.items() if share > 0}
            return (", ".join(held), round(max(held.values(), default=0.0), 3)) if shares else (None, None)
        flags = [metrics.get(name) for name in ("indep_throttle_status", "throttle_status")]
        known = [bool(flag) for flag in flags if isinstance(flag, int)]
        if now or not known:  # the counters' first state says nothing yet
            return None, None
        return ("other" if any(known) else ""), None

    def model(self) -> dict[str, Any]:
        """A `gpu-model` record's fields."""
        version = re.fullmatch(r"gfx(\d+)([0-9a-f])[0-9a-f]", str(self._asic.get("target_graphics_version", "")))
        total = whole(self._memory("amdsmi_get_gpu_memory_total"), 1, MOST_BYTES)
        used = whole(self._memory("amdsmi_get_gpu_memory_usage"), 0, total or MOST_BYTES)
        blocks = whole(self.ask("amdsmi_get_gpu_ecc_enabled"), 0, 1 << 62)
        model = {
            "id": self.index,
            "name": self.name,
            "sm_count": whole(self._asic.get("num_compute_units"), 1, 100_000),
            "major": int(version[1]) if version else None,
            "minor": int(version[2], 16) if version else None,
            "memory": total,
            "free": total - used if total is not None and used is not None else None,
            "l2_size": self._level_two(),
            "uuid": self.ask("amdsmi_get_gpu_device_uuid"),
            "ecc": None if blocks is None else blocks > 0,
            "driver": self._part("amdsmi_get_gpu_driver_info", "driver_version"),
        }
        return {name: value for name, value in model.items() if value is not None}

    def _level_two(self) -> int | None:
        """Bytes of one second-level cache; amdsmi counts in KiB."""
        caches = self._part("amdsmi_get_gpu_cache_info", "cache")
        for cache in caches if isinstance(caches, list) else ():
            if isinstance(cache, Mapping) and cache.get("cache_level") == 2:
                size = whole(cache.get("cache_size"), 1, 1 << 30)
                return None if size is None else size * 1024
        return None


def _load() -> Any:
    """The module `amdsmi`, loaded only where the kernel's driver is: on other machines it costs nothing."""
    if not os.path.exists("/sys/module/amdgpu"):
        raise MissingError("no AMD driver here")
    try:
        import amdsmi
    except Exception:  # it also fails where ROCm's library does not fit
        raise MissingError('there is an AMD driver but no module to read it: `pip install "barograph[amd]"`') from None
    return amdsmi


def status(error: Exception) -> str:
    """amdsmi's name of an error, such as AMDSMI_STATUS_NOT_SUPPORTED; "" of any other exception."""
    try:
        return str(error.get_error_info(detailed=False)).split()[0]  # type: ignore[attr-defined]
    except Exception:
        return ""


def visible(environ: Mapping[str, str], serials: list[str]) -> list[int]:
    """Indices that HIP_VISIBLE_DEVICES, or else its kin, leaves; all if none is set."""
    chosen = next((environ[name] for name in _VISIBLE if name in environ), None)
    if chosen is None:
        return list(range(len(serials)))
    result: list[int] = []
    for word in (part.strip() for part in chosen.split(",")):
        if word.isascii() and word.isdigit() and len(word) < 6:
            match = [int(word)] if int(word) < len(serials) else []
        else:
            match = [at for at, serial in enumerate(serials) if _same(word, serial)]
        if not match:
            break
        if match[0] not in result:
            result.append(match[0])
    return result


def _same(word: str, serial: str) -> bool:
    """HIP names a device `GPU-` and its serial number, that amdsmi writes as 0x…."""
    digits = word.removeprefix("GPU-").lower()
    return word.startswith("GPU-") and len(digits) >= 8 and serial.lower().removeprefix("0x") == digits
