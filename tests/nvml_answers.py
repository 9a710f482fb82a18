"""A stand-in for `pynvml`, with answers in the shape that real drivers give; made by ourselves.

In:   a description a device: question → answer, error number, or something to call; field number → value.
Out:  an object that has the functions of the module. What a device does not list, it does not support.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, TIMEOUT, LOST = 3, 10, 15
DOUBLE, UINT, ULONG, ULONGLONG, SLONGLONG, INT, USHORT = range(7)
NAMES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
GIB = 1 << 30


class NVMLError(Exception):
    """As in pynvml: `value` is the return code."""

    def __init__(self, value: int):
        super().__init__(f"NVML error {value}")
        self.value = value


class Fail:
    """An answer that is an error."""

    def __init__(self, value: int):
        self.value = value


def answer(given: Any) -> Any:
    if isinstance(given, Fail):
        raise NVMLError(given.value)
    return given() if callable(given) else given


class Device:
    """One device. `answers`: function name, or (function name, arguments…) → answer. `fields`: number or
    (number, scope) → (type, value) or Fail. `gpm`: metric number → value."""

    def __init__(
        self, answers: dict[Any, Any], fields: dict[Any, Any] | None = None, gpm: dict[int, Any] | None = None
    ):
        self.answers, self.fields, self.gpm = dict(answers), dict(fields or {}), gpm
        self.calls: list[str] = []

    def ask(self, question: str, arguments: tuple[Any, ...]) -> Any:
        self.calls.append(question)
        if "everything" in self.answers:
            return answer(self.answers["everything"])
        for key in ((question, *arguments), question):
            if key in self.answers:
                return answer(self.answers[key])
        raise NVMLError(NOT_SUPPORTED)

    def field(self, number: int, scope: int) -> Any:
        given = self.fields.get((number, scope), self.fields.get(number) if scope == 0 else None)
        if callable(given):
            given = given()
        if given is None or isinstance(given, Fail):
            return SimpleNamespace(nvmlReturn=getattr(given, "value", NOT_SUPPORTED), valueType=0, value=None)
        kind, value = given
        return SimpleNamespace(nvmlReturn=0, valueType=kind, value=SimpleNamespace(**{NAMES[kind]: value}))


class Nvml:
    """The module `pynvml` over these devices."""

    nvmlEventTypeXidCriticalError = 8

    def __init__(self, devices: list[Any], failing: dict[str, int] | None = None, events: bool = True):
        self.devices, self.failing, self.events = devices, failing or {}, events
        self.waiting: list[Any] = []
        self.initialised = 0
        self.closed = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def ask(handle: Any = None, *arguments: Any) -> Any:
            self._check(name)
            if not isinstance(handle, Device):
                raise NVMLError(NOT_SUPPORTED)
            return handle.ask(name, arguments)

        return ask

    def _check(self, name: str) -> None:
        if name in self.failing:
            raise NVMLError(self.failing[name])
        if self.closed and name != "nvmlInit":
            raise NVMLError(1)

    def nvmlInit(self) -> None:
        self._check("nvmlInit")
        self.initialised, self.closed = self.initialised + 1, False

    def nvmlShutdown(self) -> None:
        self.initialised -= 1

    def nvmlDeviceGetCount(self) -> Any:
        self._check("nvmlDeviceGetCount")
        return len(self.devices)

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        self._check("nvmlDeviceGetHandleByIndex")
        return answer(self.devices[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> Any:
        for device in self.devices:
            for instance in device.answers.get("instances", []):
                if instance.answers["nvmlDeviceGetUUID"] == uuid.decode():
                    return instance
        raise NVMLError(6)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, number: int) -> Any:
        instances = handle.answers.get("instances", [])
        if number >= len(instances):
            raise NVMLError(6)
        return instances[number]

    def nvmlDeviceGetIndex(self, handle: Any) -> int:
        return self.devices.index(handle)

    def nvmlDeviceGetFieldValues(self, handle: Any, fields: list[tuple[int, int]]) -> list[Any]:
        self._check("nvmlDeviceGetFieldValues")
        handle.calls.append("nvmlDeviceGetFieldValues")
        for key in ("everything", "nvmlDeviceGetFieldValues"):
            if key in handle.answers:
                return answer(handle.answers[key])  # type: ignore[no-any-return]
        return [handle.field(number, scope) for number, scope in fields]

    def nvmlEventSetCreate(self) -> object:
        if not self.events:
            raise NVMLError(NOT_SUPPORTED)
        return object()

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: int, events: Any) -> None:
        if not self.events:
            raise NVMLError(NOT_SUPPORTED)

    def nvmlEventSetWait_v2(self, events: Any, milliseconds: int) -> Any:
        assert milliseconds == 0, "waiting would hold up the sampler"
        if not self.waiting:
            raise NVMLError(TIMEOUT)
        return self.waiting.pop(0)

    def nvmlEventSetFree(self, events: Any) -> None:
        """Nothing to free."""

    # -- GPM

    class c_nvmlGpmMetricsGet_t:
        def __init__(self) -> None:
            self.version = self.numMetrics = 0
            self.sample1 = self.sample2 = None
            self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(100)]

    def nvmlGpmQueryDeviceSupport(self, handle: Any) -> Any:
        return SimpleNamespace(isSupportedDevice=int(handle.gpm is not None))

    def nvmlGpmSampleAlloc(self) -> dict[str, Any]:
        return {}

    def nvmlGpmSampleFree(self, sample: dict[str, Any]) -> None:
        sample.clear()

    def nvmlGpmSampleGet(self, handle: Any, sample: dict[str, Any]) -> None:
        sample["of"] = handle

    def nvmlGpmMigSampleGet(self, handle: Any, instance: int, sample: dict[str, Any]) -> None:
        sample["of"] = handle.answers["instances"][instance]

    def nvmlGpmMetricsGet(self, request: Any) -> None:
        assert request.version == 1 and request.sample1 is not request.sample2
        values = request.sample2["of"].gpm
        for metric in request.metrics[: request.numMetrics]:
            given = values.get(metric.metricId)
            metric.nvmlReturn, metric.value = (NOT_SUPPORTED, 0.0) if given is None else (0, given)


def h100(index: int = 0, **changes: Any) -> Device:
    """An H100 SXM in a training: counters for everything, GPM, NVLink, no fan of its own."""
    answers: dict[Any, Any] = {
        "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetUUID": f"GPU-{index:08x}-1111-2222-3333-444444444444",
        "nvmlDeviceGetMinorNumber": index,
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetNumGpuCores": 16896,
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=80 * GIB, free=20 * GIB, used=60 * GIB),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=98, memory=61),
        ("nvmlDeviceGetTemperature", 0): 58,
        ("nvmlDeviceGetClockInfo", 1): 1755,
        ("nvmlDeviceGetMaxClockInfo", 1): 1980,
        "nvmlDeviceGetPowerUsage": 655_000,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
        "nvmlDeviceGetMarginTemperature": 29,
        "nvmlDeviceGetComputeRunningProcesses": lambda: [SimpleNamespace(pid=1, usedGpuMemory=60 * GIB)],
        "nvmlDeviceGetMigMode": [0, 0],
    }
    fields: dict[Any, Any] = {
        83: (ULONGLONG, 5_000_000_000), 3: (ULONGLONG, 2), 4: (ULONGLONG, 0), 82: (UINT, 66), 94: (UINT, 0),
        142: (UINT, 0), 143: (UINT, 0), 144: (UINT, 0), 145: (UINT, 0), 91: (UINT, 18), 194: (INT, -2),
        197: (ULONGLONG, 9 * 10**12), 198: (ULONGLONG, 8 * 10**12),
        (138, 2**32 - 1): (ULONGLONG, 10**9), (139, 2**32 - 1): (ULONGLONG, 10**9),
    }  # fmt: skip
    fields |= {(number, link): (ULONGLONG, 0) for number in (161, 162, 163) for link in range(18)}
    fields[(163, 3)] = (ULONGLONG, 7)
    gpm = {2: 91.5, 3: 38.25, 5: 52.0, 10: 47.5, 20: 1000.0, 21: 2000.0, 60: 30_000.0, 61: 29_000.0}
    return Device(answers | changes, fields, gpm)


def a100(index: int = 0, **changes: Any) -> Device:
    """An A100: no GPM, byte counters of PCIe not there, NVLink errors as totals, thresholds by the old call."""
    device = h100(index, **changes)
    device.gpm = None
    device.answers |= {
        "nvmlDeviceGetName": "NVIDIA A100-SXM4-80GB",
        "nvmlDeviceGetCudaComputeCapability": (8, 0),
        "nvmlDeviceGetNumGpuCores": 6912,
        ("nvmlDeviceGetTemperatureThreshold", 1): 92,
        ("nvmlDeviceGetPcieThroughput", 0): 1_500_000,
        ("nvmlDeviceGetPcieThroughput", 1): 2_500_000,
    } | changes
    del device.answers["nvmlDeviceGetMarginTemperature"]
    for number in (197, 198, 194):
        del device.fields[number]
    device.fields |= {38: (ULONGLONG, 1), 45: (ULONGLONG, 2), 52: (ULONGLONG, 3), 59: (ULONGLONG, 0)}
    return device


def consumer(index: int = 0, **changes: Any) -> Device:
    """A card for a desk: a fan, no ECC, no NVLink, memory temperature 0, counters of 32 bits, sentinels."""
    device = h100(index, **changes)
    device.gpm = None
    device.answers |= {
        "nvmlDeviceGetName": "NVIDIA GeForce RTX 4090",
        "nvmlDeviceGetCudaComputeCapability": (8, 9),
        "nvmlDeviceGetNumGpuCores": 16384,
        "nvmlDeviceGetFanSpeed": 43,
        "nvmlDeviceGetNumFans": 2,
        ("nvmlDeviceGetTemperatureThreshold", 1): 90,
        ("nvmlDeviceGetPcieThroughput", 0): 12_000,
        ("nvmlDeviceGetPcieThroughput", 1): 2**32 - 1,
    } | changes
    for name in ("nvmlDeviceGetEccMode", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetMigMode"):
        device.answers.pop(name, None)
    device.fields = {83: (ULONGLONG, 1_000_000), 82: (UINT, 0), 94: (UINT, 5), 197: (UINT, 900), 198: (UINT, 900)}
    return device


def old(index: int = 0) -> Device:
    """A card of 2013: names from before R535, no energy counter, no field values at all."""
    return Device(
        {
            "nvmlDeviceGetName": "Tesla K40m",
            "nvmlDeviceGetUUID": f"GPU-{index:08x}-old",
            "nvmlDeviceGetCudaComputeCapability": (3, 5),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=12 * GIB, free=11 * GIB, used=GIB),
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=2**32 - 1),
            ("nvmlDeviceGetTemperature", 0): 40,
            ("nvmlDeviceGetClockInfo", 1): 324,
            ("nvmlDeviceGetMaxClockInfo", 1): 875,
            "nvmlDeviceGetPowerUsage": 20_000,
            "nvmlDeviceGetEnforcedPowerLimit": -1,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1,
            "nvmlDeviceGetFieldValues": Fail(13),
            ("nvmlDeviceGetTotalEccErrors", 0, 0): 4,
            ("nvmlDeviceGetTotalEccErrors", 1, 0): 2**64 - 1,
        }
    )
