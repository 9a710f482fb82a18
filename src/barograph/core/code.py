"""What runs: the code and its changes, installed packages, Python and the variables that shape a training.

In:   the git command, distributions on the path, environment variables.
Out:  plain dictionaries for the manifest, without secrets. What is not known is absent.

Nothing is looked up at import and no function raises for a strange machine. `git_state` and `packages` take up to
seconds: they are for another process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from barograph.core.patterns import expression
from barograph.core.place import host
from barograph.core.secrets import is_secret_name, masked_lines, masked_value

COMMAND_SECONDS = 5.0  # git, nvidia-smi: both can hang on a sick file system or driver
MOST_DIFF_BYTES = 1_000_000


def git_state(path: str | os.PathLike[str] = ".") -> dict[str, Any]:
    """`commit`, `branch`, `dirty`, `diff` (at most 1 MB, then `diff_truncated`) of the repository of a path.

    {} without git, outside a repository, or before its first commit. Waits 5 seconds at most. Files that
    git does not track count neither as dirty nor in the diff: a run's own folder is often one.
    """
    until = time.monotonic() + COMMAND_SECONDS
    # no lock taken, no question asked, and no program run that the repository's settings name
    git = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", os.fspath(path)]
    commit, _ = output([*git, "rev-parse", "--verify", "HEAD"], until)
    if not commit.strip():
        return {}
    state: dict[str, Any] = {"commit": decoded(commit).strip()}
    branch, _ = output([*git, "symbolic-ref", "--short", "-q", "HEAD"], until)
    if branch.strip():
        state["branch"] = decoded(branch).strip()
    diff, end = output([*git, "diff", "--no-ext-diff", "--no-textconv", "HEAD"], until, MOST_DIFF_BYTES)
    if end == "failed":
        return state
    state["dirty"] = bool(diff)
    if diff:
        state["diff"] = masked_lines(decoded(diff))
        if end == "cut":
            state["diff_truncated"] = True
    return state


def output(command: list[str], until: float, most: int = 100_000) -> tuple[bytes, str]:
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


def decoded(content: bytes) -> str:
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


_KNOWN = expression(
    r"(CUDA|NCCL|CUDNN|CUBLAS|NVIDIA|NVTE|TORCH\w*|PYTORCH|TRITON|XLA|ROCR|HIP|HSA|RCCL|GLOO|UCX|OMP|KMP|GOMP|MKL|"
    r"OPENBLAS|NUMEXPR|SLURM|OMPI|PMI|MV2|ACCELERATE|FSDP|DS|BAROGRAPH)_\w+"
    r"|TORCHDYNAMO\w*|TORCHINDUCTOR\w*|TORCHELASTIC\w*|HF_HUB_OFFLINE|HF_DATASETS_OFFLINE|TRANSFORMERS_OFFLINE"
    r"|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|MASTER_ADDR|MASTER_PORT"
    r"|PYTHONHASHSEED|PYTHONOPTIMIZE|VIRTUAL_ENV|CONDA_DEFAULT_ENV"
)


def environment(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`python`, `implementation`, `executable`, `platform`, `host`, `process`, and telling `variables`.

    Variables come from a list of known families; one that looks like a secret, by its name or its value, is left out.
    """
    environ = os.environ if environ is None else environ
    variables = {}
    for name, value in sorted(environ.items()):
        shown = value.encode("utf-8", "backslashreplace").decode()[:4096]
        if _KNOWN.fullmatch(name) and masked_value(name, shown) == shown and not is_secret_name(name):
            variables[name] = shown
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "platform": _system(),
        "host": host(),
        "process": os.getpid(),
        "variables": variables,
    }


def _system() -> str:
    """As `platform.platform` says it, without its import, which takes milliseconds."""
    try:
        system = os.uname()
    except AttributeError:  # Windows
        return sys.platform
    return "-".join((system.sysname, system.release, system.machine))
