"""`run_manifest.json` and the metadata beside each checkpoint: what a run was, written whole or not at all.

In:   facts about a run; a checkpoint's step, losses, configuration, loader position and loop state.
Out:  strict JSON files, replaced in one move, and their content again with NaN and infinities as floats.

Reading never raises: what is missing or damaged reads as empty. Writing raises OSError (read-only folder,
full disk) and leaves the file of before; the caller decides what a training run does about it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import operator
import os
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from barograph.core.patterns import expression
from barograph.core.record import encode_fields, parse_time

try:
    import fcntl
except ImportError:  # Windows: threads exclude each other, processes do not
    fcntl = None  # type: ignore[assignment]

FILE = "run_manifest.json"

# The keys of a manifest in the order they are written, with what each holds. Others may follow.
KEYS: dict[str, str] = {
    "id": "identity of the run, also its folder's name",
    "name": "name of the run",
    "project": "project that groups it",
    "group": "runs that belong together",
    "job_type": "what the run does, such as train or eval",
    "tags": "words to find it by",
    "notes": "what it is about",
    "status": "running, finished, failed, or what the run was ended with",
    "created": "UTC time of the first start",
    "started": "UTC time of the last start or resume",
    "finished": "UTC time of the end",
    "host": "machine of rank 0",
    "pid": "process of rank 0",
    "process_started": "when that process began, to tell it from a later one of the same number",
    "world_size": "processes of the launch",
    "total_steps": "planned steps",
    "report_to": "mirrors asked for",
    "command": "command line, as a list",
    "cwd": "folder it was started in",
    "program": "of `barograph run`: the program's command, process, exit code or signal, and the folder of its output",
    "code": "whether the commit and the changes are recorded",
    "repo_commit": "commit of the code",
    "git": "commit, branch, dirty, diff",
    "environment": "Python, platform, host, variables that shape a training",
    "packages": "installed packages, name to version",
    "hardware": "CPU, memory, GPUs",
    "dataset": "what it was trained and evaluated on",
    "config": "the full configuration, nested",
    "segments": "start, resumes, rewinds and forks",
    "checkpoints": "checkpoints saved: step, path, metadata, losses",
    "final_metrics": "last value of each series",
    "wall_seconds": "time in which a process of the run was there, over all its starts, in seconds",
    "gpu_hours": "wall time times GPUs, in hours",
    "cost": "gpu_hours times price_per_gpu_hour",
    "price_per_gpu_hour": "what an hour of a GPU costs, where it was given",
}

# Text is text in these, so that a run named "NaN" keeps its name.
_TEXT_KEYS = frozenset({
    "id", "name", "project", "tags", "notes", "status", "created", "started", "finished", "command", "cwd", "host",
    "repo_commit", "git", "environment", "packages", "checkpoint", "checkpoint_path", "metadata_path", "path", "time",
})  # fmt: skip
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

_LOCK_SECONDS = 1.0  # a writer that holds the manifest longer than this has died or hangs on its disk
_lock = threading.Lock()
_number = itertools.count()


# ---------------------------------------------------------------------------------------------
# The manifest


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest in a run's folder; {} where it is missing, damaged or unreadable. Never raises."""
    return read_json(Path(folder) / FILE)


def write(folder: str | os.PathLike[str], manifest: Mapping[str, Any], synced: bool = True) -> None:
    """Replaces the manifest in a run's folder, which must exist. synced: as for `write_json`. Raises OSError."""
    ordered = {key: manifest[key] for key in KEYS if key in manifest}
    write_json(Path(folder) / FILE, ordered | dict(manifest), synced)


def update(folder: str | os.PathLike[str], /, *, synced: bool = True, **changes: Any) -> dict[str, Any]:
    """Puts these keys into the manifest, each replaced as a whole; returns the new manifest. synced: as `write_json`'s.

    Threads and processes take turns, so no change is lost; where the file system has no locks, or a
    holder hangs for a second, the last writer wins. A damaged manifest is kept beside the new one as
    `run_manifest.json.damaged`. Raises OSError.
    """
    with turn(folder, _lock, _LOCK_SECONDS):
        manifest = _read_for_update(Path(folder) / FILE) | changes
        write(folder, manifest, synced)
    return manifest


def add_checkpoint(folder: str | os.PathLike[str], entry: Mapping[str, Any]) -> None:
    """Appends to the manifest's `checkpoints`, replacing an entry of the same `path` and `step`. Raises OSError."""
    with turn(folder, _lock, _LOCK_SECONDS):
        manifest = _read_for_update(Path(folder) / FILE)
        earlier = manifest.get("checkpoints")
        identity = (entry.get("path"), entry.get("step"))
        kept = [
            item
            for item in (earlier if isinstance(earlier, list) else [])
            if not (isinstance(item, dict) and (item.get("path"), item.get("step")) == identity)
        ]
        write(folder, manifest | {"checkpoints": [*kept, dict(entry)]})


def wall_seconds(manifest: Mapping[str, Any], until: float) -> float | None:
    """Of the run over all its starts: what earlier processes took, and the last one to its end.

    until: of a run that has said no end, the time of its last record, or now; seconds since 1970.
    """
    known = manifest.get("wall_seconds")
    seconds = float(known) if isinstance(known, (int, float)) else None
    started = parse_time(manifest.get("started") or manifest.get("created")) / 1e6
    if manifest.get("finished") or not 0 < started < until:
        return seconds
    return round((seconds or 0.0) + until - started, 3)


def spent(wall_seconds: float, gpus: int, price_per_gpu_hour: float | None = None) -> dict[str, float]:
    """`wall_seconds` and, where it held GPUs, `gpu_hours` and, with a price, `cost` in the price's currency, for
    `update`."""
    if not gpus:
        return {"wall_seconds": wall_seconds}
    hours = wall_seconds * gpus / 3600.0
    known = {"wall_seconds": wall_seconds, "gpu_hours": hours}
    return known if price_per_gpu_hour is None else known | {"cost": hours * price_per_gpu_hour}


def _read_for_update(path: Path) -> dict[str, Any]:
    """What a change is merged into: unlike `read`, a file that cannot be read does not count as empty."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    manifest = _parse(content)
    if manifest is None:
        if content.strip():
            os.replace(path, f"{path}.damaged")
        return {}
    return manifest


@contextlib.contextmanager
def turn(
    folder: str | os.PathLike[str], lock: threading.Lock, seconds: float, *, or_fail: bool = False
) -> Iterator[None]:
    """One writer at a time, by a lock on a folder itself, which leaves no file.

    lock: of this process. seconds: the longest wait for either; then it goes on without, as on a file system that has
    no locks, or raises TimeoutError with a sentence (`or_fail`: for edits, which can be made again).
    """
    until = time.monotonic() + seconds
    held = lock.acquire(timeout=seconds)  # a forked child may have inherited it locked
    handle = None
    try:
        locked = held
        with contextlib.suppress(OSError):
            if fcntl is not None:
                handle = os.open(folder, os.O_RDONLY)
                locked = _wait_for(handle, until) and held
        if or_fail and not locked:
            raise TimeoutError(f"another process has been writing in {folder} for {seconds:g} s; try again")
        yield
    finally:
        if handle is not None:
            os.close(handle)
        if held:
            lock.release()


def _wait_for(handle: int, until: float) -> bool:
    """Whether it was locked in time. Raises OSError on a file system that has no locks."""
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.002)


# ---------------------------------------------------------------------------------------------
# Strict JSON files, replaced whole


def write_json(path: str | os.PathLike[str], content: Mapping[str, Any], synced: bool = True) -> None:
    """Writes a JSON object so that a reader, or a crash at any moment, finds the old file or the new one.

    A temporary file in the same folder is written, synced to the disk and moved over `path`. synced: False for a file
    that need not survive a power cut. Raises OSError.
    """
    path = Path(path)
    body = encode_fields(content)
    with contextlib.suppress(msgspec.DecodeError):  # half a surrogate pair: valid JSON, but not to msgspec
        body = msgspec.json.format(body, indent=2)
    writer = f"{os.getpid()}-{threading.get_ident()}-{next(_number)}"
    temporary = path.with_name(f".{path.name[:100]}.{writer}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        with open(handle, "wb") as stream:
            stream.write(body + b"\n")
            stream.flush()
            if synced:
                os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if not synced:
        return
    with contextlib.suppress(OSError):  # the move itself; not every system can sync a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} where it is missing, damaged, unreadable or no object. Never raises."""
    try:
        return _parse(path.read_bytes()) or {}
    except (OSError, ValueError):
        return {}


def _parse(content: bytes) -> dict[str, Any] | None:
    """The JSON object in a file's bytes, non-finite numbers restored; None if it is not a whole one.

    Bare NaN and Infinity are read too: older checkpoint metadata has them.
    """
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    return {key: value if key in _TEXT_KEYS else _restored(value) for key, value in parsed.items()}


def _restored(value: Any) -> Any:
    """Only the three strings that our own encoder writes; older loggers' `nan` may be a word here."""
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: item if key in _TEXT_KEYS else _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value


# ---------------------------------------------------------------------------------------------
# Checkpoint metadata [the picoLLM run analysis]

_METADATA = expression(r"meta_([0-9]{6,18})(?:_.+)?\.json")
_LAST_NUMBER = expression(r"([0-9]{1,18})[^0-9]*$")
_LENGTHS = ("max_seq_len", "sequence_len", "seq_len", "sequence_length", "max_length", "block_size")
_SIZES = ("device_batch_size", "max_seq_len", "total_batch_size")  # picoLLM keeps these at the top
# what describes a model in a configuration that has no section for it
_MODEL = (
    "depth", "n_layer", "n_head", "n_kv_head", "n_embd", "aspect_ratio", "head_dim", "vocab_size", *_LENGTHS,
    "num_layers", "num_hidden_layers", "num_heads", "num_attention_heads", "num_key_value_heads", "hidden_size",
    "intermediate_size", "d_model", "n_layers", "n_heads", "window_pattern",
)  # fmt: skip


def write_checkpoint(
    path: str | os.PathLike[str],
    *,
    step: int,
    val_loss: float | None = None,
    val_bpb: float | None = None,
    config: Mapping[str, Any] | None = None,
    loader_state: Mapping[str, Any] | None = None,
    loop_state: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Writes `meta_{step:06d}.json` beside a checkpoint and returns its path.

    Where that is another run's, of another checkpoint, it is `meta_{step:06d}_{checkpoint}.json`.
    `path` is the checkpoint, a file or a folder; save it first, so that its size is noted and a torn copy
    is known later. `config` is kept as `user_config`, its section `model` or `model_config` as
    `model_config`. `loader_state` is `{pq_idx, rg_idx, epoch}`; `loop_state` what the loop carries on with:
    smoothed and best loss, total time, rates. `extra` adds keys, or replaces those taken from `config`.
    Raises OSError, and ValueError for a step that is not a whole number from 0.
    """
    try:
        whole = operator.index(step)
    except TypeError:
        raise ValueError(f"The checkpoint's step is {step!r:.80}; give a whole number from 0.") from None
    if not 0 <= whole < 10**18:
        raise ValueError(f"The checkpoint's step is {whole}; give a whole number from 0 to 10^18.")
    checkpoint = Path(path)
    config = config or {}
    sections = (config.get(key) for key in ("model_config", "model"))
    content: dict[str, Any] = {"step": whole, "val_bpb": val_bpb, "val_loss": val_loss}
    flat = {name: config[name] for name in _MODEL if name in config}
    content["model_config"] = next((section for section in sections if isinstance(section, Mapping)), flat)
    content["user_config"] = config
    if length := next((config[name] for name in _LENGTHS if name in config), None):
        content["max_seq_len"] = length
    content |= {name: config[name] for name in _SIZES if name in config}
    fixed = ("step", "val_bpb", "val_loss")
    content |= {key: value for key, value in (extra or {}).items() if key not in fixed}
    content |= {"dataloader_state_dict": loader_state or {}, "loop_state": loop_state or {}}
    content |= {"checkpoint": checkpoint.name, "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")}
    if checkpoint.is_file():
        content["checkpoint_bytes"] = checkpoint.stat().st_size
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    metadata = checkpoint.parent / f"meta_{whole:06d}.json"
    other = _whole_metadata(metadata, any_checkpoint=True)
    if other is not None and other.get("checkpoint") != checkpoint.name and other.get("run") != content.get("run"):
        metadata = checkpoint.parent / f"meta_{whole:06d}_{checkpoint.name[:150]}.json"  # another run's stays
    write_json(metadata, content)
    return metadata


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The metadata of a checkpoint, named by the checkpoint or by its metadata file; None if there is none.

    Adds `metadata_path` and, where the file names its checkpoint, `checkpoint_path`. None also for metadata
    that is torn, and for a checkpoint that is gone or shorter than when it was saved. Never raises.
    """
    named = Path(path)
    if _METADATA.fullmatch(named.name):
        return _whole_metadata(named)
    number = _LAST_NUMBER.search(named.stem)
    if number:
        result = _whole_metadata(named.parent / f"meta_{int(number[1]):06d}.json")
        if result is not None and result.get("checkpoint", named.name) == named.name:
            return result
    same = (found for found in _newest_first(named.parent) if found.get("checkpoint") == named.name)
    return next(same, None)


def last_checkpoint(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The metadata of a folder's highest step, as `read_checkpoint` gives it; torn ones are passed over."""
    return next(_newest_first(Path(folder)), None)


def _newest_first(folder: Path) -> Iterator[dict[str, Any]]:
    steps: list[tuple[int, str]] = []
    with contextlib.suppress(OSError, ValueError):
        for name in os.listdir(folder):
            if match := _METADATA.fullmatch(name):
                steps.append((int(match[1]), name))
    for _, name in sorted(steps, reverse=True):
        found = _whole_metadata(folder / name)
        if found is not None:
            yield found


def _whole_metadata(path: Path, any_checkpoint: bool = False) -> dict[str, Any] | None:
    try:
        found = _parse(path.read_bytes())
    except (OSError, ValueError):
        return None
    if found is None or type(found.get("step")) is not int:
        return None
    name, size = found.get("checkpoint"), found.get("checkpoint_bytes")
    if isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name:
        checkpoint = path.parent / name
        if isinstance(size, int) and not any_checkpoint:
            try:
                if checkpoint.stat().st_size < size:
                    return None
            except OSError:
                return None
        found["checkpoint_path"] = str(checkpoint)
    return found | {"metadata_path": str(path)}
