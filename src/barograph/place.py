"""Who runs, and where: rank, launch, host, file system, code, packages, hardware, environment.

In:   environment variables, /proc and /sys, the git and nvidia-smi commands, an already imported torch.
Out:  plain dictionaries and lists for the start record and the manifest. What is not known is absent.

Nothing is looked up at import, torch is never imported from here, and no function raises for a strange
machine. Slow ones (up to seconds, for a background thread): `git_state`, `packages`, `hardware`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

COMMAND_SECONDS = 5.0  # git, nvidia-smi: both can hang on a sick file system or driver
MOST_DIFF_BYTES = 1_000_000


# ---------------------------------------------------------------------------------------------
# Ranks


class _Launcher(NamedTuple):
    """The variables in which a launcher tells a process who it is."""

    rank: str
    world: str
    local: str
    local_world: str


# mpirun inside a Slurm job sets both families, and Slurm's then describe mpirun: so Slurm comes last.
_LAUNCHERS = (
    _Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # torchrun, accelerate, deepspeed
    _Launcher(
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Launcher(
        "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"
    ),
    _Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _Launcher("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
)  # fmt: skip


def rank(environ: Mapping[str, str] | None = None) -> tuple[int, int, int]:
    """(rank, world size, rank on this host); (0, 1, 0) for a process alone, or where values make no sense.

    torch.distributed is asked if it is imported and initialised, else the launcher's variables are read.
    """
    environ = os.environ if environ is None else environ
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            mine, world = int(distributed.get_rank()), int(distributed.get_world_size())
            return mine, world, _whole(environ, "LOCAL_RANK", mine)
    except Exception:  # half torn down at exit
        pass
    launcher = _launcher(environ)
    if launcher is None:
        return 0, 1, 0
    mine, world = int(environ[launcher.rank]), _whole(environ, launcher.world, 1)
    return mine, world, _whole(environ, launcher.local, mine)


def _whole(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    text = environ.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise


def _launcher(environ: Mapping[str, str]) -> _Launcher | None:
    """Whose variables make sense: 0 <= rank < world size."""
    for launcher in _LAUNCHERS:
        mine, world = _whole(environ, launcher.rank, -1), _whole(environ, launcher.world, 0)
        # A batch script has SLURM_PROCID=0 and the job's SLURM_NTASKS too, but is one process, not a step.
        if launcher.rank == "SLURM_PROCID" and mine == 0 and not _slurm_step(environ):
            continue
        if 0 <= mine < world:
            return launcher
    return None


def _slurm_step(environ: Mapping[str, str]) -> str:
    return environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID") or ""


def launch_id(environ: Mapping[str, str] | None = None) -> str | None:
    """What all ranks of one launch share and no other launch has, such as `torchelastic-1b9d…`.

    None when the world is this process, or when nothing tells the launch apart. Built from the launcher's
    own identity and, where all ranks are on one host, from the launcher's process. An id that begins with
    `address-` had only MASTER_ADDR and MASTER_PORT to go by: a later launch there can have the same.
    """
    environ = os.environ if environ is None else environ
    _, world, _ = rank(environ)
    if world == 1:
        return None
    launcher = _launcher(environ)
    address = [environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")]
    slurm = [environ.get(name, "") for name in ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT")]
    slurm.append(_slurm_step(environ))
    is_step, is_one_host = bool(slurm[1] and slurm[3]), _is_one_host(environ, launcher, world)
    elastic, space = environ.get("TORCHELASTIC_RUN_ID", ""), environ.get("PMIX_NAMESPACE", "")
    if elastic:
        parts = [elastic, *address, environ.get("TORCHELASTIC_RESTART_COUNT", "")]
        if is_one_host:
            return _digest("torchelastic", [*parts, *_launcher_process("TORCHELASTIC_RUN_ID")])
        if elastic != "none":  # what torchrun puts in where no --rdzv-id was given
            return _digest("torchelastic", parts)
        return _digest("slurm", parts + slurm) if is_step else _digest("address", parts)
    if launcher is not None and launcher.rank == "SLURM_PROCID" and slurm[1]:
        return _digest("slurm", slurm)
    if space:
        return _digest("pmix", [space])
    if launcher is not None and is_one_host:
        return _digest("host", [host(), *address, *_launcher_process(launcher.rank)])
    if is_step:
        return _digest("slurm", [*slurm, *address])
    return _digest("address", address) if all(address) else None


def _digest(kind: str, parts: list[str]) -> str:
    import hashlib

    return f"{kind}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def _is_one_host(environ: Mapping[str, str], launcher: _Launcher | None, world: int) -> bool:
    if launcher is not None and _whole(environ, launcher.local_world, 0) == world:
        return True
    return environ.get("MASTER_ADDR", "") in ("localhost", "127.0.0.1", "::1")


def _launcher_process(variable: str) -> list[str]:
    """The nearest ancestor started without that variable: its boot, number and start (numbers come again)."""
    process = os.getppid()
    for _ in range(64):
        try:
            variables = Path(f"/proc/{process}/environ").read_bytes()
            if not any(one.startswith(variable.encode() + b"=") for one in variables.split(b"\0")):
                break
            parent = int(_process_status(process)[1])
        except (OSError, ValueError, IndexError):
            break
        if parent <= 1:
            break
        process = parent
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return [boot, str(process), _process_status(process)[19]]
    except (OSError, IndexError):
        return [str(process)]


def _process_status(process: int) -> list[str]:
    """The fields of /proc/PID/stat behind the command's name: [1] is the parent, [19] the start time."""
    return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()


# ---------------------------------------------------------------------------------------------
# Host and file system


def host() -> str:
    """This machine's name; `localhost` if it has none."""
    try:
        return os.uname().nodename or "localhost"
    except OSError:
        return "localhost"


_NETWORK = frozenset({
    "nfs", "nfs3", "nfs4", "smbfs", "smb2", "smb3", "cifs", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "panfs",
    "pvfs2", "orangefs", "glusterfs", "wekafs", "ocfs2", "gfs2", "coda", "ncpfs", "davfs",
})  # fmt: skip
_LOCAL_FUSE = frozenset({
    "fuse-overlayfs", "overlayfs", "lxcfs", "mergerfs", "encfs", "gocryptfs", "ntfs-3g", "portal", "snapfuse",
})  # fmt: skip


def is_network_filesystem(path: str | os.PathLike[str], mountinfo: str | None = None) -> bool:
    """Whether the path, which need not exist yet, lies on a network file system; unknown is False.

    `mountinfo` is the text of /proc/self/mountinfo, read if not given (Linux; False elsewhere).
    """
    try:
        if mountinfo is None:
            mountinfo = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return False
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        places, kinds = head.split(), tail.split()
        if len(places) < 5 or not kinds:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), places[4]).rstrip("/")
        if len(mount) >= best and (real == mount or real.startswith(mount + "/")):
            best, kind = len(mount), kinds[0]  # a later mount on the same place covers the earlier one
    if kind.startswith("fuse."):
        return kind[5:] not in _LOCAL_FUSE
    return kind in _NETWORK


# ---------------------------------------------------------------------------------------------
# Code and packages


def git_state(path: str | os.PathLike[str] = ".") -> dict[str, Any]:
    """`commit`, `branch`, `dirty`, `diff` (at most 1 MB, then `diff_truncated`) of the repository of a path.

    {} without git, outside a repository, or before its first commit. Waits 5 seconds at most. Files that
    git does not track count neither as dirty nor in the diff: a run's own folder is often one.
    """
    until = time.monotonic() + COMMAND_SECONDS
    # no lock taken, no question asked, and no program run that the repository's settings name
    git = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", os.fspath(path)]
    commit, _ = _output([*git, "rev-parse", "--verify", "HEAD"], until)
    if not commit.strip():
        return {}
    state: dict[str, Any] = {"commit": _decoded(commit).strip()}
    branch, _ = _output([*git, "symbolic-ref", "--short", "-q", "HEAD"], until)
    if branch.strip():
        state["branch"] = _decoded(branch).strip()
    diff, end = _output([*git, "diff", "--no-ext-diff", "--no-textconv", "HEAD"], until, MOST_DIFF_BYTES)
    if end == "failed":
        return state
    state["dirty"] = bool(diff)
    if diff:
        state["diff"] = _decoded(diff)
        if end == "cut":
            state["diff_truncated"] = True
    return state


def _output(command: list[str], until: float, most: int = 100_000) -> tuple[bytes, str]:
    """What a command prints, and whether it came `whole`, was `cut` at `most` bytes, or `failed`."""
    if time.monotonic() >= until:
        return b"", "failed"
    import subprocess

    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "LC_ALL": "C"},
        )
    except (OSError, ValueError):
        return b"", "failed"
    timer = threading.Timer(max(0.0, until - time.monotonic()), process.kill)
    timer.daemon = True
    timer.start()
    try:
        with process:
            assert process.stdout is not None
            content = process.stdout.read(most + 1)
            if len(content) > most:
                process.kill()
    finally:
        timer.cancel()
    if len(content) > most:
        return content[:most], "cut"
    return (content, "whole") if process.returncode == 0 else (b"", "failed")


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def packages() -> dict[str, str]:
    """Installed distributions, name to version, sorted by name; the first on the path counts."""
    import importlib.metadata

    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        try:
            metadata = distribution.metadata
            name, version = metadata["Name"], metadata["Version"]
        except Exception:  # a half-removed package
            continue
        if name and version:
            found.setdefault(str(name), str(version))
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


# ---------------------------------------------------------------------------------------------
# Hardware


def hardware() -> dict[str, Any]:
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
    found: dict[str, Any] = {"cpu": cpu} if cpu else {}
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        found["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if "memory_bytes" in limits:
        found["memory_limit_bytes"] = limits["memory_bytes"]
    gpus = _gpus_of_torch() or _gpus_of_nvidia()
    if gpus:
        found["gpus"] = gpus
    return found


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() == "model name":
                return value.strip()
    except OSError:
        pass
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
    content, _ = _output(command, time.monotonic() + COMMAND_SECONDS)
    return parse_nvidia(_decoded(content), os.environ.get("CUDA_VISIBLE_DEVICES"))


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


# ---------------------------------------------------------------------------------------------
# Environment

_SECRET = re.compile(r"TOKEN|SECRET|KEY|PASSWORD|PASSWD|CREDENTIAL|AUTH|JWT|COOKIE", re.IGNORECASE)
_PASSWORD_IN_ADDRESS = re.compile(r"://[^/@\s]*@")
_TOLD = re.compile(
    r"(CUDA|NCCL|CUDNN|CUBLAS|NVIDIA|NVTE|TORCH\w*|PYTORCH|TRITON|XLA|ROCR|HIP|HSA|RCCL|GLOO|UCX|OMP|KMP|GOMP|MKL|"
    r"OPENBLAS|NUMEXPR|SLURM|OMPI|PMI|MV2|ACCELERATE|FSDP|DS|BAROGRAPH)_\w+"
    r"|TORCHDYNAMO\w*|TORCHINDUCTOR\w*|TORCHELASTIC\w*|HF_HUB_OFFLINE|HF_DATASETS_OFFLINE|TRANSFORMERS_OFFLINE"
    r"|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|MASTER_ADDR|MASTER_PORT"
    r"|PYTHONHASHSEED|PYTHONOPTIMIZE|VIRTUAL_ENV|CONDA_DEFAULT_ENV"
)


def environment(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`python`, `implementation`, `executable`, `platform`, `host`, `process`, and telling `variables`.

    Variables come from a list of known families; one whose name hints at a secret, or whose value holds a
    password in an address, is left out.
    """
    import platform

    environ = os.environ if environ is None else environ
    variables = {
        name: value.encode("utf-8", "backslashreplace").decode()[:4096]
        for name, value in sorted(environ.items())
        if _TOLD.fullmatch(name) and not _SECRET.search(name) and not _PASSWORD_IN_ADDRESS.search(value)
    }
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "host": host(),
        "process": os.getpid(),
        "variables": variables,
    }
