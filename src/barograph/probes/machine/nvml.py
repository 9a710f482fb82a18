"""NVIDIA devices, by NVML: the sampler's backend, and which devices it looks at.

In:   the module `pynvml` (nvidia-ml-py), CUDA_VISIBLE_DEVICES, a torch that holds the devices already.
Out:  samples and records of each visible device (nvidia.py has one device's), its model, XID errors,
      and a sentence about each device that is lost. CUDA is never initialised from here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barograph.core import place
from barograph.probes.machine.nvidia import GONE, ClosedError, NvidiaDevice, code, memory_of
from barograph.probes.machine.readings import MOST_BYTES, SILENT_SAMPLES, LostError, MissingError, News, whole

_LIBRARY = "libnvidia-ml.so.1"  # what the driver installs, and a container's runtime mounts
_MOST_DEVICES = 256
_REOPENS = 3
_FORBIDDEN, _TIMED_OUT = 4, 10  # of nvmlReturn_t

# CUDA cores of a multiprocessor by compute capability: the table "Throughput of Native Arithmetic
# Instructions" of the CUDA C++ programming guide (32-bit floating-point adds a clock). NVML counts cores alone.
_CORES = {
    (3, 0): 192, (3, 5): 192, (3, 7): 192, (5, 0): 128, (5, 2): 128, (5, 3): 128, (6, 0): 64, (6, 1): 128,
    (6, 2): 128, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128,
    (9, 0): 128, (10, 0): 128, (10, 3): 128, (12, 0): 128, (12, 1): 128,
}  # fmt: skip

# NVIDIA's document "Xid Errors", in our words: what it means, what to do. Only those a training meets.
_PROGRAM = "look for an out-of-range index or a faulty kernel in the program"
_RESET = "drain the node and reset the GPU"
_REPLACE = "drain the node and have the GPU checked"
XIDS: dict[int, tuple[str, str]] = {
    13: ("a kernel made an illegal access", _PROGRAM),
    31: ("a kernel touched memory that is not mapped", _PROGRAM),
    43: ("the driver stopped a faulty program", _PROGRAM),
    45: ("work was removed because its program ended", "nothing, if the program was killed"),
    48: ("a memory error that ECC could not correct", _RESET),
    61: ("the GPU's internal controller faltered", _RESET),
    62: ("the GPU's internal controller halted", _RESET),
    63: ("a bad memory row was retired", "nothing now; reset the GPU when it is idle"),
    64: ("a bad memory row could not be retired", _REPLACE),
    74: ("an NVLink error", "check the links with `nvidia-smi nvlink -e`; " + _RESET),
    79: ("the GPU fell off the bus", "reboot the node; if it happens again, have power and slot checked"),
    92: ("many corrected memory errors", _REPLACE),
    94: ("an uncorrected memory error, contained in one program", "restart the training"),
    95: ("an uncorrected memory error that spread", _RESET),
    119: ("the GPU's system processor does not answer", _RESET),
    120: ("the GPU's system processor failed", _RESET),
}


class Nvidia:
    """Every NVIDIA device this process is to look at. `library` is the module `pynvml`, or a stand-in."""

    name = "NVML"

    def __init__(self, library: Any = None, environ: Mapping[str, str] | None = None):
        self._library = library
        self._environ = os.environ if environ is None else environ
        self._devices: list[NvidiaDevice] = []
        self._events: Any = None
        self._news: list[News] = []
        self._told: set[str] = set()
        self._reopens = 0

    # -- finding the devices -------------------------------------------------------------------------

    def open(self) -> None:
        """Start NVML and take hold of the devices. Raises MissingError with the reason."""
        if self._library is None:
            self._library = _load()
        library = self._library
        try:
            library.nvmlInit()
        except Exception as error:
            raise MissingError(_why(error)) from None
        try:
            self._devices = self._find()
        except Exception as error:
            self.close()
            raise MissingError(_why(error)) from None
        if not self._devices:
            self.close()
            raise MissingError("the NVIDIA driver shows no device that this process is to look at")
        self._register()

    def _find(self) -> list[NvidiaDevice]:
        library = self._library
        count = whole(library.nvmlDeviceGetCount(), 0, _MOST_DEVICES) or 0
        handles: dict[int, Any] = {}
        uuids: dict[int, str] = {}
        for index in range(count):
            try:
                handles[index] = library.nvmlDeviceGetHandleByIndex(index)
                uuids[index] = str(library.nvmlDeviceGetUUID(handles[index]))
            except Exception as error:
                uuids[index] = ""
                if index not in handles and code(error) != _FORBIDDEN:
                    self._say_lost(index, "", GONE.get(code(error) or 0, f"can't be opened ({_why(error)})"))
        instances = {index: self._instances(handle) for index, handle in handles.items()}
        seen = visible(self._environ.get("CUDA_VISIBLE_DEVICES"), uuids, instances)
        seen = [(index, instance) for index, instance in seen if index in handles]
        if not samples_devices(place.rank(self._environ)[2], [index for index, _ in seen], count, self._environ):
            return []
        return [
            NvidiaDevice(library, self._number(index, handles[index], count), handles[index], self._instance(instance))
            for index, instance in seen
        ]

    def _instances(self, handle: Any) -> list[str]:
        """The UUIDs of a device's MIG instances."""
        result = []
        try:
            if _two_numbers(self._library.nvmlDeviceGetMigMode(handle), 1)[0] != 1:
                return []
            for number in range(whole(self._library.nvmlDeviceGetMaxMigDeviceCount(handle), 0, 64) or 0):
                with contextlib.suppress(Exception):  # a gap in the numbers
                    instance = self._library.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                    result.append(str(self._library.nvmlDeviceGetUUID(instance)))
        except Exception:  # no MIG here
            pass
        return result

    def _instance(self, uuid: str) -> Any:
        try:
            return self._library.nvmlDeviceGetHandleByUUID(uuid.encode()) if uuid else None
        except Exception:
            return None

    def _number(self, index: int, handle: Any, count: int) -> int:
        """The device's id: NVML's index; its minor number where a control group hides some of the host's."""
        if count < physical_count():
            with contextlib.suppress(Exception):
                number = whole(self._library.nvmlDeviceGetMinorNumber(handle), 0, _MOST_DEVICES)
                return index if number is None else number
        return index

    def _register(self) -> None:
        """Subscribe to XID errors; not every device and driver can."""
        library = self._library
        try:
            self._events = library.nvmlEventSetCreate()
        except Exception:
            self._events = None
            return
        for device in self._devices:
            with contextlib.suppress(Exception):
                library.nvmlDeviceRegisterEvents(device.handle, library.nvmlEventTypeXidCriticalError, self._events)
                device.xid_errors = 0

    # -- while it runs ---------------------------------------------------------------------------------

    def sample(self, now: float) -> None:
        """Utilisation, temperature, clock, throttle reasons and power, of each device."""
        self._each(lambda device: device.sample(now))
        self._read_events()

    def records(self, now: float) -> list[dict[str, Any]]:
        """A record's fields of each device."""
        result: list[dict[str, Any]] = []
        self._each(lambda device: result.append(device.record(now)))
        return result

    def _each(self, act: Any) -> None:
        for device in list(self._devices):
            try:
                act(device)
            except LostError as lost:
                self._devices.remove(device)
                self._say_lost(device.index, device.name, str(lost))
            except ClosedError:
                self._reopen()
                return
            except Exception:  # an answer that no rule foresaw
                device.silent += 1
                if device.silent >= SILENT_SAMPLES:
                    self._devices.remove(device)
                    self._say_lost(device.index, device.name, "gives answers that make no sense")

    def _say_lost(self, index: int, name: str, how: str) -> None:
        about = f"GPU {index}" + (f" ({name})" if name else "")
        sentence = (
            f"{about} {how}; it is not watched any more, the other devices are. "
            "Run `nvidia-smi` and look for Xid in `dmesg`; most often the node needs a reboot"
        )
        self._news.append(News(f"gpu lost {index}", "lost", sentence, {"id": index}))

    def _reopen(self) -> None:
        """Somebody shut NVML down under us: begin again, a few times."""
        self._reopens += 1
        before = {device.index: device.energy for device in self._devices}
        self._devices, self._events = [], None
        with contextlib.suppress(MissingError):
            if self._reopens <= _REOPENS:
                self.open()
        for device in self._devices:
            device.energy = before.get(device.index, device.energy)
        if not self._devices:
            sentence = "NVML was shut down by another library and could not be started again; no GPU is watched now"
            self._news.append(News("nvml closed", "closed", sentence, {}))

    def _read_events(self) -> None:
        """XID errors that came since; a time limit of 0 ms never waits."""
        if self._events is None or not self._devices:
            return
        for _ in range(32):  # a GPU that dies reports it many times
            try:
                event = self._library.nvmlEventSetWait_v2(self._events, 0)
            except Exception as error:
                if code(error) != _TIMED_OUT:  # else nothing waits; this is a driver that can't
                    self._events = None
                return
            with contextlib.suppress(Exception):
                self._note(event)

    def _note(self, event: Any) -> None:
        number = whole(event.eventData, 0, 10_000)
        if number is None or event.eventType != self._library.nvmlEventTypeXidCriticalError:
            return
        index = whole(self._library.nvmlDeviceGetIndex(event.device), 0, _MOST_DEVICES)
        for device in self._devices:
            if device.nvml_index() == index:
                device.xid, device.xid_errors = number, (device.xid_errors or 0) + 1
                meaning, advice = XIDS.get(number, ("see NVIDIA's list of Xid errors", "look into `dmesg`"))
                sentence = f"GPU {device.index} ({device.name}) reported Xid {number}: {meaning}. What to do: {advice}"
                fields = {"id": device.index, "xid": number}
                key = f"xid {device.index} {number}"
                if key not in self._told:  # a storm of them is reported once, and counted
                    self._told.add(key)
                    self._news.append(News(key, "xid", sentence, fields))

    def news(self) -> list[News]:
        """What happened since the last call."""
        news, self._news = self._news, []
        return news

    def close(self) -> None:
        """Let go of NVML; others in this process keep theirs."""
        for device in self._devices:
            device.close()
        self._devices = []
        for call, arguments in (("nvmlEventSetFree", (self._events,)), ("nvmlShutdown", ())):
            with contextlib.suppress(Exception):
                if arguments != (None,):
                    getattr(self._library, call)(*arguments)
        self._events = None

    # -- what they are ---------------------------------------------------------------------------------

    def models(self) -> list[dict[str, Any]]:
        """Surogate's `gpu-model` fields of each device; `l2_size` only where torch holds the devices."""
        result: list[dict[str, Any]] = []
        self._each(lambda device: result.append(self._model(device)))
        return result

    def _model(self, device: NvidiaDevice) -> dict[str, Any]:
        major, minor = _two_numbers(device.ask("nvmlDeviceGetCudaComputeCapability"), 1000)
        memory = memory_of(device.ask("nvmlDeviceGetMemoryInfo"))
        cores = whole(device.ask("nvmlDeviceGetNumGpuCores"), 1, 1_000_000)
        by_core = _CORES.get((major or 0, minor or 0))
        ecc, _ = _two_numbers(device.ask("nvmlDeviceGetEccMode"), 1)
        uuid = device.ask("nvmlDeviceGetUUID")
        torch = properties(str(uuid))
        model = {
            "rank": place.rank(self._environ)[0],
            "id": device.index,
            "name": device.name,
            "sm_count": torch.get("sm_count") or (cores // by_core if cores and by_core else None),
            "major": major,
            "minor": minor,
            "memory": memory.get("total"),
            "free": memory.get("free"),
            "l2_size": torch.get("l2_size"),
            "uuid": str(uuid) if uuid else None,
            "ecc": None if ecc is None else ecc == 1,
            "cuda_driver": self._driver_version(),
            "cuda_runtime": runtime_version(),
            "mig": True if device.instance is not None else None,
        }
        return {name: value for name, value in model.items() if value is not None}

    def _driver_version(self) -> int | None:
        for name in ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"):
            with contextlib.suppress(Exception):
                return whole(getattr(self._library, name)(), 1000, 1_000_000)
        return None


def _two_numbers(answer: Any, most: int) -> tuple[int | None, int | None]:
    """An answer of two numbers from 0 to the most."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        return None, None
    return whole(answer[0], 0, most), whole(answer[1], 0, most)


def _load() -> Any:
    """The module `pynvml`, loaded only where the driver's library is: on other machines it costs nothing."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        raise MissingError("no NVIDIA driver here") from None
    try:
        import pynvml
    except Exception:
        raise MissingError("there is an NVIDIA driver but no module to read it: `pip install nvidia-ml-py`") from None
    return pynvml


def _why(error: Exception) -> str:
    """An NVML error as part of a sentence."""
    number = code(error)
    known = {
        3: "the NVIDIA driver does not support NVML on this device",
        4: "this process may not read the NVIDIA driver",
        9: "the NVIDIA driver is not loaded",
        12: "no NVIDIA driver in this container or machine",
        18: "the NVIDIA driver and its library differ in version; a reboot after an update mends that",
    }
    if number in known:
        return known[number]
    return f"NVML failed: {type(error).__name__}" + (f" {number}" if number is not None else "")


def visible(chosen: str | None, uuids: Mapping[int, str], instances: Mapping[int, list[str]]) -> list[tuple[int, str]]:
    """(index, MIG instance's UUID or "") of the devices that CUDA_VISIBLE_DEVICES leaves, each device once.

    As CUDA reads it: numbers or beginnings of UUIDs, in order, up to the first that fits nothing; unset is
    all, empty is none. With numbers CUDA means its own order, which is NVML's on a host of equal devices.
    """
    if chosen is None:
        return [(index, next(iter(instances.get(index, [])), "")) for index in sorted(uuids)]
    found: dict[int, str] = {}
    for word in (part.strip() for part in chosen.split(",")):
        match = _match(word, uuids, instances)
        if match is None:
            break
        found.setdefault(*match)
    return list(found.items())


def _match(word: str, uuids: Mapping[int, str], instances: Mapping[int, list[str]]) -> tuple[int, str] | None:
    if word.isascii() and word.isdigit():
        index = int(word) if len(word) < 6 else -1
        return (index, next(iter(instances.get(index, [])), "")) if index in uuids else None
    if old := re.fullmatch(r"MIG-(GPU-[0-9a-fA-F-]+)/\d+/\d+", word):  # drivers before R470
        return _match(old[1], uuids, instances)
    for index, uuid in uuids.items():
        if word.startswith("GPU-") and uuid.startswith(word):
            return index, ""
        for instance in instances.get(index, []):
            if word.startswith("MIG-") and instance.startswith(word):
                return index, instance
    return None


def samples_devices(local_rank: int, seen: list[int], count: int, environ: Mapping[str, str]) -> bool:
    """Whether this process is the one that samples the devices it sees.

    The first rank of a host does, for all. Another rank does for its own, where its launcher gave it exactly
    one of several (as Slurm does for each task); torchrun and its kin give every rank the same variables.
    """
    if local_rank == 0:
        return True
    several = max(count, physical_count()) > 1
    return len(seen) == 1 and several and "TORCHELASTIC_RUN_ID" not in environ


def physical_count(folder: str = "/proc/driver/nvidia/gpus") -> int:
    """How many devices the host's driver has, also those hidden from us; 0 if it doesn't say."""
    try:
        return sum(1 for _ in Path(folder).iterdir())
    except OSError:
        return 0


def properties(uuid: str) -> dict[str, int]:
    """`sm_count` and `l2_size` (bytes) as torch has them, if it has started CUDA already."""
    cuda: Any = sys.modules.get("torch.cuda")
    try:
        if cuda is None or not cuda.is_initialized():
            return {}
        for index in range(cuda.device_count()):
            device = cuda.get_device_properties(index)
            if str(getattr(device, "uuid", "")).removeprefix("GPU-") != uuid.removeprefix("GPU-"):
                continue
            found = {
                "sm_count": whole(device.multi_processor_count, 1, 100_000),
                "l2_size": whole(getattr(device, "L2_cache_size", None), 1, MOST_BYTES),
            }
            return {name: value for name, value in found.items() if value is not None}
    except Exception:  # torn down, or another build of torch
        pass
    return {}


def runtime_version() -> int | None:
    """The CUDA runtime that torch was built with, as CUDA writes it: 12040 is 12.4."""
    version = getattr(sys.modules.get("torch.version"), "cuda", None)
    match = re.match(r"(\d{1,3})\.(\d{1,2})", version) if isinstance(version, str) else None
    return int(match[1]) * 1000 + int(match[2]) * 10 if match else None
