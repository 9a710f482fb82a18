"""What a machine has: processor, memory, GPUs, and what its control groups allow.

In:   /proc, /sys, the nvidia-smi command, an already imported torch.
Out:  plain dictionaries for the manifest. What is not known is absent.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barograph.core.code import COMMAND_SECONDS, decoded, output


def hardware(ask_driver: bool = True) -> dict[str, Any]:
    """`cpu` (`model`, `cores`, `usable`, `limit`), `memory_bytes`, `memory_limit_bytes`, `gpus`, as far as known.

    `cores` counts the machine's logical ones, `usable` those this process may run on, `limit` the cores'
    worth of time that its control group allows. A GPU has `name`, `memory_bytes`, and `uuid`,
    `capability` or `driver` where known; only GPUs that CUDA_VISIBLE_DEVICES leaves visible.
    """
    cpu: dict[str, Any] = {}
    if model := _cpu_model():
        cpu["model"] = model
    if cores := os.cpu_count():
        cpu["cores"] = cores
    if hasattr(os, "sched_getaffinity"):
        cpu["usable"] = len(os.sched_getaffinity(0))
    limits = cgroup_limits()
    if "cpus" in limits:
        cpu["limit"] = limits["cpus"]
    result: dict[str, Any] = {"cpu": cpu} if cpu else {}
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        result["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if "memory_bytes" in limits:
        result["memory_limit_bytes"] = limits["memory_bytes"]
    gpus = _gpus_of_torch() or (_gpus_of_nvidia() if ask_driver else [])
    if gpus:
        result["gpus"] = gpus
    return result


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() == "model name":
                return value.strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        name, state = output(["sysctl", "-n", "machdep.cpu.brand_string"], time.monotonic() + COMMAND_SECONDS)
        if state == "whole" and name.strip():
            return decoded(name).strip()
    import platform

    return platform.machine()  # at least the architecture


def cgroup_limits(root: str = "/sys/fs/cgroup", own: str | None = None) -> dict[str, float | int]:
    """`cpus` and `memory_bytes` that the control group (version 1 or 2) allows; only limits that are set.

    `own` is the text of /proc/self/cgroup. A limit may stand on any group above ours: the least counts.
    """
    try:
        own = Path("/proc/self/cgroup").read_text() if own is None else own
    except OSError:
        return {}
    found: dict[str, list[float]] = {"cpus": [], "memory_bytes": []}
    for line in own.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        for controller in [""] if number == "0" else controllers.split(","):
            for folder in _groups(Path(root) / controller, group):
                cpu = _limit(folder, "cpu.max") or _limit(folder, "cpu.cfs_quota_us", "cpu.cfs_period_us")
                if len(cpu) == 2:  # microseconds of time allowed in a period of microseconds
                    found["cpus"].append(round(cpu[0] / cpu[1], 3))
                memory = _limit(folder, "memory.max") or _limit(folder, "memory.limit_in_bytes")
                # version 1 writes "no limit" as a number of about 2^63
                found["memory_bytes"] += [size for size in memory if size < 1 << 60]
    limits: dict[str, float | int] = {name: min(sizes) for name, sizes in found.items() if sizes}
    if "memory_bytes" in limits:
        limits["memory_bytes"] = int(limits["memory_bytes"])
    return limits


def _groups(base: Path, group: str) -> Iterator[Path]:
    """The folder of the group and of each group above it. In a container `group` may not be visible."""
    parts = [part for part in group.split("/") if part not in ("", ".", "..")]
    for count in range(len(parts), -1, -1):
        yield base.joinpath(*parts[:count])


def _limit(folder: Path, *files: str) -> list[float]:
    """The positive whole numbers in these files; `max` and -1, which mean no limit, are left out."""
    words: list[str] = []
    for file in files:
        try:
            words += (folder / file).read_text().split()
        except OSError:
            return []
    return [float(word) for word in words if word.isascii() and word.isdigit() and int(word) > 0]


def _gpus_of_torch() -> list[dict[str, Any]]:
    """From torch, only where it holds the devices already: asking earlier would take memory on each."""
    cuda: Any = sys.modules.get("torch.cuda")
    try:
        if cuda is None or not cuda.is_initialized():
            return []
        gpus = []
        for index in range(cuda.device_count()):
            device = cuda.get_device_properties(index)
            gpu = {"name": str(device.name), "memory_bytes": int(device.total_memory)}
            if uuid := str(getattr(device, "uuid", "")):
                gpu["uuid"] = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
            gpu["capability"] = f"{device.major}.{device.minor}"
            gpus.append(gpu)
        return gpus
    except Exception:
        return []


def _gpus_of_nvidia() -> list[dict[str, Any]]:
    query = "--query-gpu=index,uuid,name,memory.total,driver_version"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    content, _ = output(command, time.monotonic() + COMMAND_SECONDS)
    return parse_nvidia(decoded(content), os.environ.get("CUDA_VISIBLE_DEVICES"))


def parse_nvidia(text: str, visible: str | None) -> list[dict[str, Any]]:
    """nvidia-smi's `index, uuid, name, MiB, driver` lines as GPUs, if named in CUDA_VISIBLE_DEVICES."""
    chosen = None if visible is None else [word.strip() for word in visible.split(",") if word.strip()]
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 5 or not parts[0].isdigit():
            continue
        index, uuid, name, mebibytes, driver = parts
        if chosen is not None and not any(
            word == index or (word[:4] in ("GPU-", "MIG-") and uuid.startswith(word)) for word in chosen
        ):
            continue
        gpu: dict[str, Any] = {"name": name, "uuid": uuid, "driver": driver}
        if mebibytes.isdigit():  # "[N/A]" on devices that share the host's memory
            gpu["memory_bytes"] = int(mebibytes) * 1_048_576
        gpus.append(gpu)
    return gpus
