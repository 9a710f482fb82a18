"""Is the process that writes a run still there, does it log, and do its steps advance?

In:   a run's folder, manifest and heartbeats (`store/*/heartbeat.json`, written by each rank).
Out:  the run's true status, and that of each rank.

| status | what it means |
|---|---|
| `running` | its process lives and, as far as heartbeats tell, logs and makes steps |
| `silent` | its process lives and has logged nothing for a while |
| `stuck` | its process lives and logs, but no step has come for a while |
| `stalled` | its process is on another machine, and nothing has been heard of it for two minutes |
| `hung` | its process lives, and its sidecar has seen no step for a long time |
| `crashed` | its process is gone, and nobody has written how it ended |
| `diverged` | it came to its end, and its last training loss is not a finite number |

Anything else is how the run ended: `finished`, `failed`, `interrupted`, or what a sidecar saw of a process that could
not say so itself, one of `LOST`. Every view asks `status`, so that all of them show the same word. "A
while" is 120 s or ten steps, whichever is longer; half an hour before the first step and during an evaluation or a
checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barograph.core import providers
from barograph.core.lazy import lazy
from barograph.core.place import host
from barograph.core.roles import losses

psutil = lazy("psutil")
_PROC = "/proc"  # of Linux; elsewhere psutil answers

ALIVE = ("running", "silent", "stuck", "hung")  # its process was seen on this machine, or was heard of lately
IMPORTED = "imported"  # how a run ended is not known: its source does not say
LOST = ("crashed", "killed", "out of memory")  # the process is gone and did not end the run itself
DIVERGED = "diverged"  # ended as planned, with a loss that is not finite
FAILED = ("failed", *LOST, DIVERGED)  # how a run ends that needs somebody
OPEN = (*ALIVE, "stalled")  # something may still be written
QUIET_SECONDS = 120.0  # a process on another machine that wrote nothing for so long counts as stalled
LONG_SECONDS = 1800.0  # start-up, evaluations, checkpoints
_QUIET_STEPS = 10  # steps' time without a record or a step
_QUIET_BEATS = 6  # heartbeats missed by a process of another machine


class Pulse(NamedTuple):
    """One writer's sign of life. `status` as above, `ended` after a proper end; times in seconds ago.

    beat_seconds, logged_seconds, stepped_seconds: since the heartbeat, and at that time since the last record
    and the last step (None: none yet). step: the last one. phase: what it said it was doing.
    """

    rank: int
    status: str
    host: str
    pid: int
    step: int
    beat_seconds: float
    logged_seconds: float | None
    stepped_seconds: float | None
    phase: str | None


def process() -> dict[str, Any]:
    """This process, so that another can tell it from one that got its number later."""
    pid = os.getpid()
    return {"host": host(), "pid": pid, "process_started": process_started(pid), "boot": boot()}


def is_alive(manifest: Mapping[str, Any]) -> bool:
    """Whether the process that the manifest names is running on this machine."""
    pid = manifest.get("pid")
    if manifest.get("status") != "running" or not isinstance(pid, int) or manifest.get("host") != host():
        return False
    if has_restarted(manifest):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another user's process: it is there
    if is_dead(pid):
        return False
    started = manifest.get("process_started")
    return started is None or process_started(pid) in (None, started)


def has_restarted(manifest: Mapping[str, Any]) -> bool:
    """Whether this is the run's host and it has started anew since: the run's process can't be there any more."""
    then = manifest.get("boot")
    return isinstance(then, str) and manifest.get("host") == host() and boot() not in (None, then)


def reason(manifest: Mapping[str, Any]) -> str:
    """Why a run that is `crashed`, `killed` or `out of memory` ended, in some words; empty where it is not known."""
    ending = manifest.get("ending")
    if isinstance(ending, Mapping) and ending.get("reason"):
        return str(ending["reason"])
    if manifest.get("status") == "running" and has_restarted(manifest):
        return "the host restarted"
    return ""


def has_diverged(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether the last training loss that the manifest has is NaN or infinite. Where no name tells which series that
    is, or some of those that it may be are finite, the run's rows are asked."""
    final = manifest.get("final_metrics")
    if not isinstance(final, Mapping):
        return False
    odd = [name for name, value in final.items() if _is_not_finite(value)]
    if not odd:
        return False
    named = losses(final)
    if not named or 0 < len(set(named).intersection(odd)) < len(named):
        return providers.provider("loss at a run's end")(folder, str(manifest.get("finished"))) in odd
    return named[0] in odd


def _is_not_finite(value: Any) -> bool:
    return value in ("NaN", "Infinity", "-Infinity") or (isinstance(value, float) and not math.isfinite(value))


def status(folder: Path, manifest: Mapping[str, Any]) -> str:
    """One of the words above, or the status that the run ended with."""
    result = str(manifest.get("status") or "unknown")
    if result in ("finished", IMPORTED) and has_diverged(folder, manifest):
        return DIVERGED
    if result != "running":
        return result
    if is_alive(manifest):
        if isinstance(manifest.get("hung"), Mapping):
            return "hung"
        chosen_pulses = [
            pulse for pulse in pulses(folder) if pulse.pid == manifest.get("pid") and pulse.host == manifest.get("host")
        ]
        return chosen_pulses[-1].status if chosen_pulses and chosen_pulses[-1].status in ("silent", "stuck") else result
    if manifest.get("host") == host():
        return "crashed"
    return "running" if time.time() - last_write(folder) < QUIET_SECONDS else "stalled"


def pulses(folder: Path) -> list[Pulse]:
    """The ranks of the run's last segment by their heartbeats, in order of rank; [] where none were written."""
    found: dict[tuple[int, str], tuple[int, float, Pulse]] = {}
    for path in folder.glob("store/*/heartbeat.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            written = path.stat().st_mtime
            said = json.loads(path.read_bytes())
            pulse = _pulse(said, written)
            segment, began = int(said.get("segment") or 1), float(said.get("started") or 0.0)
            found[pulse.rank, path.parent.name] = segment, began, pulse
    last = max((segment for segment, _, _ in found.values()), default=0)
    newest: dict[int, tuple[float, Pulse]] = {}
    for segment, began, pulse in found.values():
        if segment == last and (pulse.rank not in newest or newest[pulse.rank][0] < began):
            newest[pulse.rank] = began, pulse
    return [newest[rank][1] for rank in sorted(newest)]


def _pulse(said: Mapping[str, Any], written: float) -> Pulse:
    beat = float(said["time"])
    logged, stepped = said.get("logged"), said.get("stepped")
    # ages by the writer's own clock, so that another machine's clock does not matter
    logged_ago = None if logged is None else max(0.0, beat - float(logged))
    stepped_ago = None if stepped is None else max(0.0, beat - float(stepped))
    beat_ago = max(0.0, time.time() - max(beat, written))
    phase = said.get("phase")
    return Pulse(
        rank=int(said["rank"]),
        status=_word(said, beat_ago, logged_ago, stepped_ago),
        host=str(said.get("host", "")),
        pid=int(said.get("pid", 0)),
        step=int(said.get("step") or 0),
        beat_seconds=beat_ago,
        logged_seconds=logged_ago,
        stepped_seconds=stepped_ago,
        phase=str(phase) if phase is not None else None,
    )


def _word(said: Mapping[str, Any], beat: float, logged: float | None, stepped: float | None) -> str:
    if said.get("state") == "ended":
        return "ended"
    if said.get("host") == host():
        if not is_alive({**said, "status": "running"}):
            return "crashed"
    elif beat > max(QUIET_SECONDS, _QUIET_BEATS * float(said.get("every_seconds") or 10.0)):
        return "stalled"
    quiet = max(QUIET_SECONDS, _QUIET_STEPS * float(said.get("step_seconds") or 0.0))
    if stepped is None or said.get("phase") not in (None, "train"):
        quiet = max(quiet, LONG_SECONDS)
    began = max(0.0, float(said["time"]) - float(said.get("started") or said["time"]))
    if (began if logged is None else logged) > quiet:
        return "silent"
    return "stuck" if (began if stepped is None else stepped) > quiet else "running"


def last_write(folder: Path) -> float:
    """When a file of the run was last written, in seconds since 1970."""
    latest = 0.0
    for pattern in ("*.json", "store/*/*"):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                latest = max(latest, path.stat().st_mtime)
    return latest


def process_started(pid: int) -> int | None:
    """The process's start in clock ticks since boot (field 22 of /proc/PID/stat), or in hundredths of a second since
    1970 where there is no /proc; None where unknown."""
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        began = started_at(pid) if not os.path.isdir(f"{_PROC}/self") else None
        return None if began is None else int(began * 100)


def started_at(pid: int) -> float | None:
    """When a process began, in seconds since 1970; None where unknown, or psutil is not there."""
    try:
        return float(psutil.Process(pid).create_time())
    except Exception:  # not installed; there is no such process, or it is not ours to ask
        return None


def resident_bytes() -> int | None:
    """Memory of this process; None where psutil is not there."""
    try:
        return int(psutil.Process().memory_info().rss)
    except Exception:
        return None


def command_lines() -> list[list[str]] | None:
    """Of all processes that may be seen; None where psutil is not there."""
    try:
        return [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    except Exception:
        return None


def boot() -> str | None:
    """The kernel's identity since it started; None where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip() or None
    except OSError:
        return None


def is_dead(pid: int) -> bool:
    """Whether the process has ended and only its number is left, because nobody has asked for its exit code."""
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except (OSError, IndexError):
        pass
    if os.path.isdir(f"{_PROC}/self"):
        return False
    try:
        return psutil.Process(pid).status() in ("zombie", "dead")
    except Exception:  # not installed, or there is no such process: `os.kill` says that
        return False
