"""Who runs, and where: rank, launch, host, file system.

In:   environment variables, /proc, an already imported torch.
Out:  numbers and names. What is not known is absent.

Nothing is looked up at import, torch is never imported from here, and no function raises for a strange machine.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

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


def host_count(environ: Mapping[str, str] | None = None) -> int:
    """How many hosts the launch has, as far as its variables say; 1 where they don't."""
    environ = os.environ if environ is None else environ
    launcher = _launcher(environ)
    if launcher is None:
        return 1
    world = _whole(environ, launcher.world, 1)
    return max(1, world // max(1, _whole(environ, launcher.local_world, world) if launcher.local_world else world))


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
    own identity and, where all ranks are on one host, from the launcher's process. Without a launcher (processes that
    a program spawns) the ranks agree on it in the store through which they met. An id that begins with
    `address-` had only MASTER_ADDR and MASTER_PORT to go by: a later launch there can have the same.
    """
    environ = os.environ if environ is None else environ
    _, world, _ = rank(environ)
    if world == 1:
        return None
    launcher = _launcher(environ)
    if launcher is None and environ is os.environ and (group := _group_id()):
        return group
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


def _group_id() -> str | None:
    """What the first rank of torch's process group to ask has put into the group's store."""
    try:
        store = sys.modules["torch.distributed"].distributed_c10d._get_default_store()
        return str(store.compare_set("barograph/launch", "", f"group-{os.urandom(8).hex()}").decode())
    except Exception:  # no group, or half torn down
        return None


def _digest(kind: str, parts: list[str]) -> str:
    import hashlib

    return f"{kind}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def _is_one_host(environ: Mapping[str, str], launcher: _Launcher | None, world: int) -> bool:
    if launcher is not None and _whole(environ, launcher.local_world, 0) == world:
        return True
    return environ.get("MASTER_ADDR", "") in ("localhost", "127.0.0.1", "::1")


def in_notebook() -> bool:
    """Whether this process is a notebook's, in which a cell may be run again."""
    shell = sys.modules.get("IPython")
    return shell is not None and "ZMQ" in type(shell.get_ipython()).__name__


def _launcher_process(variable: str) -> list[str]:
    """The nearest ancestor started without that variable: its boot, number and start (numbers come again)."""
    process = os.getppid()
    for _ in range(64):
        try:
            variables = Path(f"/proc/{process}/environ").read_bytes()
            if not any(item.startswith(variable.encode() + b"=") for item in variables.split(b"\0")):
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


def cache_folder() -> Path:
    """What may be deleted at any time is kept here: $XDG_CACHE_HOME/barograph, or under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "barograph"
