"""init: from options to a Run in a folder of its own.

In:   arguments, environment, a YAML file; who and where this process is.
Out:  a Run: a new one, one that goes on from where it stopped, or another rank of one just started.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from barograph.core import liveness, manifest, options, place, providers, segments
from barograph.core.arguments import Options
from barograph.core.names import folder_name
from barograph.core.options import Settings
from barograph.core.record import format_time
from barograph.core.secrets import masked, masked_words
from barograph.core.text import quoted
from barograph.core.values import text, whole
from barograph.log.read import LogFileError
from barograph.probes.ranks import stacks
from barograph.training import logfile
from barograph.training.beside import Beside
from barograph.training.configuration import as_mapping
from barograph.training.emitter import NoLog
from barograph.training.ending import open_runs
from barograph.training.folders import end, find_folder, is_alive, last_records, occasion, to_fork
from barograph.training.heartbeat import LoopHeartbeat
from barograph.training.recorder import Recorder
from barograph.training.run import Run

_warnings = logging.getLogger("barograph")
_TURN_SECONDS = 10.0  # the longest wait for another process that begins or resumes the same run
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_turn = threading.Lock()


def init(
    project: str | None = None,
    name: str | None = None,
    config: Any = None,
    dir: str | os.PathLike[str] | None = None,
    *,
    callback: Callable[[str], Any] | None = None,
    on_alert: Callable[[Any], Any] | None = None,
    config_file: str | os.PathLike[str] | None = None,
    **arguments: Unpack[Options],
) -> Run:
    """Start a run, or go on with one, and return it.

    project, name: what it belongs to and is called; without a name, one is made from the config.
    config: the run's hyper-parameters, a mapping (nested keys welcome) or an object with attributes.
    dir: where runs are kept (default `runs`).
    callback: gets each record as a JSON line. on_alert: gets each alert, in its own thread (docs/guides/alerts.md).
    config_file: YAML with options; environment variables `BAROGRAPH_…` and arguments go before it.
    Other options by name: docs/reference/options.md lists them all. `id=` joins or goes on with the run of that
    id, `resume="auto"` with the newest run of the project, `resume=PATH` with that run.

    Raises `ConfigError` for an option that does not exist or does not fit, and `LogFileError` for a
    `log_file` that is not a log. A folder that can't be written is replaced by one in the system's
    temporary folder, with a warning (with `strict`, the error is raised). Where no file can be opened at all, the run
    records nothing, and a warning says so.
    """
    settings = options.load({"project": project, "name": name, "dir": dir, **arguments}, file=config_file)
    plain_config = _config(config)
    _check_folders(settings)
    _check_rules(settings)
    if settings.log_file:
        logfile.check(settings.log_file)
    try:
        return _begin(settings, plain_config, callback, on_alert)
    except (OSError, LogFileError) as error:
        if settings.strict or isinstance(error, LogFileError):
            raise
        where = settings.output_dir or settings.dir
        try:
            if error.errno in _NO_DESCRIPTORS:
                raise
            fallback = tempfile.mkdtemp(prefix="barograph-")
            elsewhere = replace(settings, dir=fallback, output_dir="", log_file="", resume=False)
            run = _begin(elsewhere, plain_config, callback, on_alert)
        except OSError as last:
            reason = last.strerror or last
            _warnings.warning("barograph: could not write to %s (%s); this run is NOT recorded", where, reason)
            return _unrecorded(settings, plain_config, callback)
        reason = error.strerror or error
        _warnings.warning("barograph: could not write to %s (%s); this run is recorded in %s", where, reason, fallback)
        return run


def _check_folders(settings: Settings) -> None:
    """An address would make a folder of its name."""
    for name in ("dir", "output_dir"):
        value = str(getattr(settings, name) or "")
        if "://" in value:
            raise options.ConfigError(
                f"{name} is {quoted(value)}, but a training writes to a folder of this machine; a ClickHouse server is "
                "given as store."
            )


def _unrecorded(settings: Settings, config: dict[str, Any], callback: Any) -> Run:
    """A run without a file: the console and the callback have what is logged, and nobody else."""
    nothing: dict[str, Any] = {
        "sidecar": False,
        "blackbox": False,
        "watchdog": False,
        "machine": False,
        "report_to": (),
        "store": "",
    }
    settings = replace(settings, **nothing)
    folder = Path(settings.dir) / folder_name(settings.project) / f"not-recorded-{os.getpid()}-{time.time_ns():x}"
    path = folder / logfile.NAME
    segment = segments.Segment(1, start_step=0)
    return Run(folder, settings, config, segment, callback, 0, logfile.OpenLog(NoLog(path), path, "training", False))


def _check_rules(settings: Settings) -> None:
    """Refuse what the doctor and the alerts would not understand, before anything is written."""
    if settings.alerts:
        providers.provider("alert rules")(settings.alerts)
    if settings.notify:
        providers.provider("alert routes")(settings.notify)
    if settings.thresholds or settings.silence:
        try:
            providers.provider("doctor's rules")(settings.thresholds, settings.silence)
        except ValueError as error:
            raise options.ConfigError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None


def fork(
    source: Any,
    step: int,
    name: str | None = None,
    config: Any = None,
    *,
    project: str | None = None,
    dir: str | os.PathLike[str] | None = None,
    **arguments: Unpack[Options],
) -> Run:
    """Start a new run that shares the history of another before `step`.

    source: the other's folder, its id, `project/id`, or the run itself, stored or open.
    The config is the source's, with `config` over it; so is the project, if none is given. The source stays as it is.
    dir and other options: as of `init`.
    Raises `ConfigError` if there is no such run, several have that id, or the step is none.
    """
    begin = whole(step)
    if begin is None or begin < 0:
        raise options.ConfigError(f"A fork begins at a step, a whole number from 0, not at {text(step)[:60]!r}.")
    folder = to_fork(source, Path(options.load({"dir": dir, **arguments}).dir))
    before = manifest.read(folder)
    project = project or before.get("project") or "default"
    name = name or f"{before.get('name') or folder.name}-fork"
    settings = options.load({"project": project, "name": name, "dir": dir, "resume": "never", **arguments})
    _check_rules(settings)
    mixed = (before.get("config") or {}) | _config(config)
    launch = place.launch_id()
    made, _ = find_folder(settings, mixed, launch)
    segment = segments.begin(made, kind="fork", start_step=begin, source=str(folder.absolute()), launch=launch)
    run = Run(made, settings, mixed, segment, None, begin)
    if run.about.rank == 0:
        _describe(run, settings, mixed, {})
    _look_after(run, settings, mixed)
    return run


def _begin(settings: Settings, config: dict[str, Any], callback: Any, on_alert: Any) -> Run:
    launch = place.launch_id()
    folder, goes_on = find_folder(settings, config, launch)
    with contextlib.ExitStack() as stack:
        if launch is None and (goes_on or settings.id or settings.output_dir):
            # two processes may resume one run at once: the second has to see that the first is there
            (folder / segments.FOLDER).mkdir(parents=True, exist_ok=True)
            stack.enter_context(manifest.turn(folder / segments.FOLDER, _turn, _TURN_SECONDS))
            goes_on = bool(segments.read(folder))
        busy = goes_on and is_alive(folder)
        if busy and launch is None:
            segment = segments.join(folder)
        else:
            begun = settings.resume_step if goes_on else None
            segment = segments.begin(folder, start_step=begun, launch=occasion(folder, launch))
        before = manifest.read(folder) if goes_on else {}
        if before and not config:
            config = before.get("config") or {}
        last, moment = last_records(folder, segment.number) if goes_on else (None, 0)
        next_step = last + 1 if last is not None and (launch is not None or not busy) else 0
        run = Run(folder, settings, config, segment, callback, next_step)
        run._out.at_end.append(lambda: end(folder, launch))
        if run.about.rank == 0 and not busy:
            run._ending.wall_before = manifest.wall_seconds(before, moment / 1e6) or 0.0
            _describe(run, settings, config, before)
    if on_alert is not None:
        run.alerts.call(on_alert, lambda line: providers.provider("alert")(line))
    _look_after(run, settings, config)
    return run


def _look_after(run: Run, settings: Settings, config: Mapping[str, Any]) -> None:
    """What goes on beside the loop: the sidecar, the heartbeat, stacks on request."""
    out = run._out
    others = [other.about.name for other in open_runs if other is not run and other._ending.is_here]
    if others and place.in_notebook():
        names = ", ".join(sorted(others))
        out.warn(f"in this notebook {names} still records, as where a cell is run again; its finish() ends it")
    _tell_program(run.dir)
    run.alerts.beside = Beside(run.dir, settings, masked(config), out.local_rank, out.rank, out.warn)
    if not settings.sidecar and out.rank == 0:
        for fields in providers.provider("alert rules")(settings.alerts) if settings.alerts else ():
            run.alerts.add(**fields)
        if settings.notify or settings.stop_on != "none":
            run.alerts.need_sidecar()
    run.alerts.beside.look(out.later.call)
    if settings.watchdog:
        heartbeat = LoopHeartbeat(out, lambda: None if out.clock is None else out.clock.between())
        out.each_second.append(heartbeat.beat)
        out.at_end.append(heartbeat.stop)
        stacks.register(run.dir, out.writer)
        out.at_end.append(lambda: stacks.unregister(run.dir, out.writer))


def _tell_program(folder: Path) -> None:
    """To `barograph run`, where that has started this program: both are one run."""
    path = os.environ.get(options.PROGRAM_VARIABLE)
    if path:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(handle, json.dumps({"folder": str(folder.absolute())}).encode() + b"\n")
            finally:
                os.close(handle)


# -- what the run is ---------------------------------------------------------------------------------


def _describe(run: Run, settings: Settings, config: dict[str, Any], before: Mapping[str, Any]) -> None:
    """The manifest, as far as it is known at once; the sidecar adds what takes time to find out."""
    now = format_time(time.time_ns() // 1000)
    out = run._out
    command = [text(word) for word in sys.argv]
    about: dict[str, Any] = {
        "id": run.id,
        "name": run.about.name,
        "project": run.about.project,
        "group": settings.group,
        "job_type": settings.job_type,
        "tags": list(settings.tags),
        "notes": settings.notes,
        "config": masked(config),
        "status": "running",
        "created": before.get("created", now),
        "started": now,
        "finished": None,
        "command": masked_words(command),
        "cwd": os.getcwd(),
        "total_steps": settings.total_steps,
        "total_tokens": settings.total_tokens,
        "report_to": list(settings.backends),
        "world_size": out.world_size,
        "code": {"git": settings.git},
        **liveness.process(),
    }
    if settings.price_per_gpu_hour is not None:
        about["price_per_gpu_hour"] = settings.price_per_gpu_hour
    if settings.wandb_run_id:
        about["wandb_run_id"] = settings.wandb_run_id
    if run._ending.wall_before:
        about |= {"wall_seconds": run._ending.wall_before, "gpu_hours": None, "cost": None}
    _write_manifest(out, about)
    out.folder.keep()
    run.log_cmd(command)
    run.log_options(config)
    hidden = [name for name in ("config", "command") if about[name] != {"config": config, "command": command}[name]]
    if hidden:
        out.warn(f"what looks like a secret in the {' and the '.join(hidden)} is recorded as ****")


def _write_manifest(out: Recorder, about: dict[str, Any]) -> None:
    """Now, or where the process has no file to open left, later: the log is open, and that is what counts."""
    owed = True

    def write() -> None:
        nonlocal owed
        if owed:
            manifest.update(out.dir, **about)
            owed = False

    def later() -> None:
        with contextlib.suppress(OSError):
            write()

    try:
        write()
    except OSError as error:
        if error.errno not in _NO_DESCRIPTORS:
            raise
        out.warn(f"{out.dir / manifest.FILE} can't be written yet ({error.strerror}); all that is logged is recorded")
        out.each_second.append(later)
        out.at_finish.append(later)


def _config(config: Any) -> dict[str, Any]:
    try:
        return as_mapping(config)
    except TypeError as error:
        raise options.ConfigError(f"{error}.") from None
