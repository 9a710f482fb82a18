"""Sending one run to one backend: now what is there, or on and on while the run is written.

In:   a run's folder or log file, a backend's name, options.
Out:  the backend's copy of the run, the position in the run's folder, a `Result`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from barograph.core import liveness, manifest
from barograph.core.aliases import parse_aliases
from barograph.trackers import backends, position
from barograph.trackers.mirror import Mirror
from barograph.trackers.position import Busy
from barograph.trackers.tensorboard import TensorBoardBackend

_POLL_SECONDS = 0.05
PATIENCE_SECONDS = 120.0  # without any progress, once the run is over


class Result(NamedTuple):
    """rows: sent in all; new: of them by this call; refused: what the backend did not take; done: it has
    everything; run_id: the backend's own."""

    rows: int
    new: int
    refused: int
    done: bool
    run_id: str


def send(
    path: Path,
    backend_name: str,
    options: Mapping[str, Any] | None = None,
    *,
    over: Callable[[], bool] = lambda: True,
    told: Callable[[Mirror], Any] = lambda mirror: None,
    patience: float = PATIENCE_SECONDS,
) -> Result:
    """Send what the backend has not got yet, and go on with it until `over()`.

    path: a run's folder, or a bare log file. told: called with the mirror from time to time, in its thread.
    Raises `Busy` if another process does the same, OSError if the run's folder can't be written.
    """
    folder = path if path.is_dir() else path.parent
    turn = position.Turn(folder, _stem(path, backend_name))
    if not turn.take():
        raise Busy(f"another process is sending {path.name} to {backend_name}; it sends all there is")
    try:
        return _send(path, folder, backend_name, options or {}, over, told, patience)
    finally:
        turn.give_back()


def copy_to_tensorboard(path: Path, out: Path, wanted: Callable[[str], bool] | None = None) -> int:
    """A run's folder or log file as one event file in the folder `out`, made whole or not at all; rows in it.

    wanted: which names. Superseded steps are in it too, as TensorBoard has them: behind a mark that hides them.
    """

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".") as place:
        backend = TensorBoardBackend(SimpleNamespace(tensorboard_dir=place))
        mirror = Mirror(path, backend, position.Position(Path(place) / "position" / "tensorboard.json"), wanted=wanted)
        backend.close_seconds = backend.stall_seconds = float("inf")
        backend.sender.feed(mirror.source)
        backend.close()
        if not mirror.finish() or backend.path is None:
            raise OSError(5, f"the event file could not be written whole ({mirror.new} rows were)", str(out))
        os.replace(backend.path, out / backend.path.name)
    return mirror.new


def _send(
    path: Path,
    folder: Path,
    name: str,
    options: Mapping[str, Any],
    over: Callable[[], bool],
    told: Callable[[Mirror], Any],
    patience: float,
) -> Result:
    where = position.read(folder, _stem(path, name))
    about = manifest.read(path) if path.is_dir() else {}
    run_id = path.resolve().name if path.is_dir() else path.stem
    log_file = path / "training.json" if path.is_dir() else path
    backend = backends.make(name, run_id, about, where, options, str(log_file))
    backend.later = f"`barograph sync {path} --to {name}` sends the rest later"
    aliases = parse_aliases(where.options.get("aliases") or {}, "the option aliases")
    mirror = Mirror(path, backend, where, lambda: told(mirror), aliases=aliases)
    backend.sender.feed(mirror.source)
    ended = False
    progress: Any = None
    moved = time.monotonic()
    while not backend.sender.off:
        if not ended and over():
            ended, mirror.idle, moved = True, False, time.monotonic()  # what was written until now has to arrive
            backend.sender.wake()
        if ended and mirror.idle:
            break
        if ended and time.monotonic() - moved > 1:
            reached = mirror.rows, backend.sender.returned
            if reached != progress:
                progress, moved = reached, time.monotonic()
        if ended and time.monotonic() - moved > patience:
            break
        time.sleep(_POLL_SECONDS)
    if backend.exit_code is None and path.is_dir() and liveness.status(path, manifest.read(path)) in liveness.LOST:
        backend.exit_code = 1
    backend.close(patience)
    done = mirror.finish()
    return Result(where.rows, mirror.new, mirror.refused, done, backend.run_id)


def _stem(path: Path, name: str) -> str:
    return name if path.is_dir() else f"{path.stem}-{name}"
