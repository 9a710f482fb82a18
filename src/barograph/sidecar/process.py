"""The process beside a training: `python -m barograph.sidecar RUN`.

In:   a run's folder; one line of JSON on standard input from the training that starts it.
Out:  what `loop.Sidecar` does, until the run has ended on this host.

The line has `pid`, `pidfd` (an open descriptor of that process, -1 where there is none), `rank`, `settings` and
`config`. Secrets, such as addresses of alerts, come this way alone. Without a line, options come from the environment,
and the process from the run's manifest.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph import __version__
from barograph.core import liveness, manifest, surroundings
from barograph.core.options import ConfigError, Settings, load
from barograph.sidecar.lock import RunLock, Slot
from barograph.sidecar.loop import Sidecar

_LINE_SECONDS = 10.0  # that the line may take
_WAIT_SECONDS = 300.0  # for another process's sidecar of the run, which comes to its end
_NICE = 10
_LOOK_SECONDS = 10.0  # for code, packages and hardware of a run that ends at once


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sidecar; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m barograph.sidecar")
    parser.add_argument("run", metavar="RUN", help="the run's folder")
    options = parser.parse_args(arguments)
    folder = Path(options.run).absolute()
    if not folder.is_dir():
        return 1
    _be_humble()
    given = _read_line()
    settings = settings_of(given.get("settings"))
    pid = given.get("pid") if isinstance(given.get("pid"), int) else _process_of(folder)
    rank = given["rank"] if isinstance(given.get("rank"), int) else 0
    lock, slot = RunLock(folder), Slot()
    try:
        if not _wait_for(lock, pid):
            return 0
    except OSError:
        return 1
    needed = settings.needs_sidecar
    if not needed and not slot.take(most_sidecars()):
        return 0
    before = lock.read()
    at = before.get("at") if before.get("version") == __version__ else None
    about = {"pid": os.getpid(), "watches": pid, "run": str(folder), "began": time.time(), "version": __version__}
    sidecar = Sidecar(
        folder,
        settings,
        pid=pid,
        pidfd=given["pidfd"] if isinstance(given.get("pidfd"), int) else -1,
        config=given.get("config") if isinstance(given.get("config"), dict) else None,
        rank=rank,
        noted_at=at if isinstance(at, int) else -1,
        note=lambda content: lock.note(about | content | {"noted": time.time()}),
    )
    _listen_to_signals(sidecar)
    collect_rarely()
    sidecar.leaving = lambda: lock.deleted
    sidecar.note()
    looking = threading.Thread(target=surroundings.complete, args=(folder,), daemon=True)
    if sidecar.main and "packages" not in manifest.read(folder):
        looking.start()
    sidecar.run()
    if looking.ident is not None and not sidecar.stopping:
        looking.join(_LOOK_SECONDS)
    slot.release()
    lock.release()
    if sidecar.stopping:
        os._exit(0)
    return 0


def collect_rarely() -> None:
    """Let the garbage collector look for cycles seldom: rows have none, and the search is a twentieth of the work."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def most_sidecars() -> int:
    """Sidecars that nothing but findings and columns depends on, of this user on this host."""
    return max(8, 4 * (os.cpu_count() or 1))


def settings_of(given: Any) -> Settings:
    """Options as the training sent them; of another version what is known here. Without any, those from outside."""
    if not isinstance(given, Mapping):
        try:
            return load()
        except ConfigError:
            return Settings()
    known = {item.name for item in dataclasses.fields(Settings)}
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return Settings(**{name: value for name, value in values.items() if name in known})


def _be_humble() -> None:
    """The training goes first; Ctrl-C and a terminal that is closed are for it."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with contextlib.suppress(OSError):
        os.setsid()  # refused where the starter has done it already
    for name in ("SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP"):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _listen_to_signals(sidecar: Sidecar) -> None:
    def stop(number: int, frame: Any) -> None:
        if sidecar.stopping:
            return
        sidecar.stopping = True
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, 2.0)  # whatever it is in the middle of: all can be done again

    signal.signal(signal.SIGTERM, stop)


def _read_line() -> dict[str, Any]:
    """The line on standard input; {} where there is none."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stdin is None or sys.stdin.closed or os.isatty(0):
            return {}
        until, text = time.monotonic() + _LINE_SECONDS, b""
        while b"\n" not in text and (left := until - time.monotonic()) > 0:
            if not select.select([0], [], [], left)[0]:
                break
            chunk = os.read(0, 1 << 16)
            if not chunk:
                break
            text += chunk
        found = json.loads(text) if text.strip() else {}
        return found if isinstance(found, dict) else {}
    return {}


def _process_of(folder: Path) -> int | None:
    """The process that writes the run, if it lives on this host."""
    about = manifest.read(folder)
    return int(about["pid"]) if liveness.is_alive(about) else None


def _wait_for(lock: RunLock, pid: int | None) -> bool:
    """Whether this process is the run's sidecar now: the one of an earlier process of the run may have to end first,
    and a second one of the same process is not needed."""
    until = time.monotonic() + _WAIT_SECONDS
    while not lock.take():
        if lock.read().get("watches") == pid or time.monotonic() > until:
            return False
        time.sleep(0.25)
    return True
