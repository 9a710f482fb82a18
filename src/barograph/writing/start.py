"""init: from options to a Run in a folder of its own.

In:   arguments, environment, a YAML file; who and where this process is.
Out:  a Run: a new one, one that goes on from where it stopped, or another rank of one just started.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from barograph import config as options
from barograph import liveness, manifest, place, segments
from barograph.config import Settings
from barograph.logtext import LogFileError
from barograph.naming import folder_name, run_name
from barograph.record import format_time
from barograph.values import text, whole
from barograph.writing.run import Run

_warnings = logging.getLogger("barograph")
_LOOK_SECONDS = 3.0  # a run that ends at once waits so long for its manifest to be complete
_RENDEZVOUS_SECONDS = 3600.0  # a launch's ranks arrive within this time
_MEETING_SECONDS = 5.0  # the longest wait for another rank that looks
_meeting_lock = threading.Lock()
_meetings: Counter[str] = Counter()  # runs that this process began in its launch: every rank begins them in one order


def init(
    project: str | None = None,
    name: str | None = None,
    config: Any = None,
    dir: str | os.PathLike[str] | None = None,
    *,
    callback: Callable[[str], Any] | None = None,
    on_alert: Callable[[Any], Any] | None = None,
    config_file: str | os.PathLike[str] | None = None,
    **arguments: Any,
) -> Run:
    """Start a run, or go on with one, and return it.

    project, name: what it belongs to and is called; without a name, one is made from the config.
    config: the run's hyper-parameters, a mapping (nested keys welcome) or an object with attributes.
    dir: where runs are kept (default `runs`).
    callback: gets each record as a JSON line. on_alert: gets each alert, in a thread of its own (docs/alerts.md).
    config_file: YAML with options; environment variables `BAROGRAPH_…` and arguments go before it.
    Other options by name: docs/options.md lists them all. `id=` joins or goes on with the run of that
    id, `resume="auto"` with the newest run of the project, `resume=PATH` with that run.

    Raises `ConfigError` for an option that does not exist or does not fit, and `LogFileError` for a
    `log_file` that is not a log. A folder that can't be written is replaced by one in the system's
    temporary folder, with a warning (with `strict`, the error is raised).
    """
    given = {"project": project, "name": name, "dir": None if dir is None else os.fspath(dir)} | arguments
    settings = options.load({key: value for key, value in given.items() if value is not None}, file=config_file)
    plain_config = _config(config)
    _check_rules(settings)
    try:
        return _begin(settings, plain_config, callback, on_alert)
    except (OSError, LogFileError) as error:
        if settings.strict or isinstance(error, LogFileError):
            raise
        fallback = tempfile.mkdtemp(prefix="barograph-")
        _warnings.warning(
            "barograph: could not write to %s (%s); this run is recorded in %s",
            settings.output_dir or settings.dir,
            error.strerror or error,
            fallback,
        )
        settings = replace(settings, dir=fallback, output_dir="", log_file="", resume=False)
        return _begin(settings, plain_config, callback, on_alert)


def _check_rules(settings: Settings) -> None:
    """Refuse what the doctor and the alerts would not understand, before anything is written."""
    if settings.alerts or settings.notify:
        from barograph.alerts.options import read_routes, read_thresholds

        read_thresholds(settings.alerts)
        read_routes(settings.notify)
    if not settings.thresholds and not settings.silence:
        return
    from barograph.rules.registry import make_rules

    try:
        make_rules(settings.thresholds, settings.silence)
    except ValueError as error:
        raise options.ConfigError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None


def fork(source: Any, step: int, name: str | None = None, config: Any = None, **arguments: Any) -> Run:
    """Start a new run that shares the history of another before `step`.

    source: the other's folder, its id, `project/id`, or the run itself, stored or open.
    The config is the source's, with `config` over it. The source stays as it is.
    Raises `ConfigError` if there is no such run, several have that id, or the step is none.
    """
    begin = whole(step)
    if begin is None or begin < 0:
        raise options.ConfigError(f"A fork begins at a step, a whole number from 0, not at {text(step)[:60]!r}.")
    folder = _to_fork(source, Path(options.load(arguments).dir))
    before = manifest.read(folder)
    arguments.setdefault("project", before.get("project") or "default")
    name = name or f"{before.get('name') or folder.name}-fork"
    settings = options.load(arguments | {"name": name})
    mixed = (before.get("config") or {}) | _config(config)
    launch = place.launch_id()
    made, _ = _folder(settings, mixed, launch)
    segment = segments.begin(made, kind="fork", start_step=begin, source=str(folder), launch=launch)
    run = Run(made, settings, mixed, segment)
    run.continue_after(begin - 1)
    if run.rank == 0:
        _describe(run, settings, mixed, {})
    run.look_after()
    return run


def _begin(settings: Settings, config: dict[str, Any], callback: Any, on_alert: Any) -> Run:
    launch = place.launch_id()
    folder, goes_on = _folder(settings, config, launch)
    busy = goes_on and _is_alive(folder)
    if busy and launch is None:
        segment = segments.join(folder)
    else:
        segment = segments.begin(folder, start_step=settings.resume_step if goes_on else None, launch=launch)
    before = manifest.read(folder) if goes_on else {}
    if before and not config:
        config = before.get("config") or {}
    run = Run(folder, settings, config, segment, callback)
    if on_alert is not None and run.alerts is not None:
        run.alerts.call(on_alert)
    if goes_on and (launch is not None or not busy):
        run.continue_after(_last_step(folder, segment.number))
    if run.rank == 0 and not busy:
        _describe(run, settings, config, before)
    run.look_after()
    return run


# -- which folder ----------------------------------------------------------------------------------


def _folder(settings: Settings, config: dict[str, Any], launch: str | None) -> tuple[Path, bool]:
    """The run's folder and whether there was a run in it already."""
    if settings.output_dir:
        folder = Path(settings.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        return folder, bool(segments.read(folder))
    project = Path(settings.dir) / folder_name(settings.project)
    found = _to_resume(settings, project, launch)
    if found is not None:
        return found, True
    project.mkdir(parents=True, exist_ok=True)
    if settings.id:
        folder = project / folder_name(settings.id)
        folder.mkdir(exist_ok=True)
        return folder, bool(segments.read(folder))
    name = settings.name or run_name(settings.project, config, datetime.now())
    if launch is None:
        return _new_folder(project, name), False
    meeting = f"{launch} {settings.name}"
    _meetings[meeting] += 1
    return _shared_folder(project, name, f"{meeting} {_meetings[meeting]}"), False


def _new_folder(project: Path, name: str) -> Path:
    base = folder_name(name)
    for number in range(1, 1_000_000):
        folder = project / (base if number == 1 else f"{base}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise OSError(17, f"no free folder for a run named {base} in {project}")


def _shared_folder(project: Path, name: str, launch: str) -> Path:
    """One folder for all ranks of a launch: the first to come makes it, the others find its name."""
    meeting = project / f".launch-{hashlib.sha256(launch.encode()).hexdigest()[:16]}"
    for _ in range(3):
        # one rank at a time: an old one is removed once, and not the new one that another has just put in its place
        with contextlib.suppress(OSError), manifest.turn(project, _meeting_lock, _MEETING_SECONDS):
            if time.time() - meeting.stat().st_mtime < _RENDEZVOUS_SECONDS:
                return project / meeting.read_text()
            meeting.unlink()
        folder = _new_folder(project, name)
        mine = project / f".launch-{place.host()}-{os.getpid()}"
        mine.write_text(folder.name)
        try:
            os.link(mine, meeting)
            return folder
        except FileExistsError:
            folder.rmdir()
        finally:
            mine.unlink()
    return _new_folder(project, name)


def _to_resume(settings: Settings, project: Path, launch: str | None) -> Path | None:
    """The folder of the run to go on with, if the options ask for one and it is there."""
    which = settings.resume
    if which in (False, "", "never"):
        return None
    found = None
    if which not in (True, "must", "auto", "allow"):
        places = (Path(str(which)), project / str(which), project / folder_name(str(which)))
        found = next((folder for folder in places if segments.read(folder)), None)
    elif settings.id:
        folder = project / folder_name(settings.id)
        found = folder if segments.read(folder) else None
    elif project.is_dir():
        last = {folder: begun[-1] for folder in project.iterdir() if (begun := segments.read(folder))}
        # a run that is written is somebody else's, unless a rank of this launch has just gone on with it
        ours = {folder for folder, one in last.items() if one.launch == launch and one.parent is not None}
        ended = [folder for folder in last if (launch and folder in ours) or not _is_alive(folder)]
        found = max(ended, key=lambda folder: last[folder].time, default=None)
    if found is None and which not in ("auto", "allow"):
        raise options.ConfigError(
            f"There is no run to go on with (resume is {which!r}) in {project}; `barograph ls` shows what there is."
        )
    return found


def _to_fork(source: Any, root: Path) -> Path:
    """The folder of the run that is meant."""
    which = str(getattr(source, "dir", source))
    here = [folder for folder in (Path(which), root / which) if segments.read(folder)]
    found = here or [folder / which for folder in sorted(root.glob("*/")) if segments.read(folder / which)]
    if not found:
        raise options.ConfigError(f"There is no run {which!r} to fork in {root}; `barograph ls` shows what there is.")
    if len(found) > 1 and not here:
        named = ", ".join(f"{folder.parent.name}/{folder.name}" for folder in found[:5])
        raise options.ConfigError(f"{which!r} is {len(found)} runs: {named}; name the project too.")
    return found[0].resolve()


def _is_alive(folder: Path) -> bool:
    """Whether a process of this machine is writing the run now."""
    return liveness.is_alive(manifest.read(folder))


def _last_step(folder: Path, segment: int) -> int | None:
    """The last step in a run's main log before a segment, from its last records."""
    from barograph.logtext import records_from

    path = folder / "training.json"
    last = before = None
    begun = False
    with contextlib.suppress(OSError, ValueError):
        for record, _ in records_from(path, max(0, path.stat().st_size - (1 << 20))):
            if record.kind == "segment" and record.fields.get("segment") == segment:
                begun, before = True, last  # another rank of the launch may have logged in it already
            if record.kind in ("step", "eval", "metrics"):
                last = record.step if last is None else max(last, record.step)
    return before if begun else last


# -- what the run is ---------------------------------------------------------------------------------


def _describe(run: Run, settings: Settings, config: dict[str, Any], before: Mapping[str, Any]) -> None:
    """The manifest: at once what is known, and from another thread what takes time to find out."""
    now = format_time(time.time_ns() // 1000)
    about: dict[str, Any] = {
        "id": run.id,
        "name": run.name,
        "project": run.project,
        "tags": list(settings.tags),
        "notes": settings.notes,
        "config": config,
        "status": "running",
        "created": before.get("created", now),
        "started": now,
        "finished": None,
        "command": [text(word) for word in sys.argv],
        "cwd": os.getcwd(),
        "total_steps": settings.total_steps,
        "total_tokens": settings.total_tokens,
        "report_to": list(settings.backends),
        "world_size": run.world_size,
        **liveness.process(),
    }
    manifest.update(run.dir, **about)
    run.log_cmd(about["command"])
    run.log_options(config)
    looking = threading.Thread(target=_look_around, args=(run.dir, settings.git), name="barograph-place", daemon=True)
    looking.start()
    run.at_finish.append(lambda: looking.join(_LOOK_SECONDS))
    if settings.backends:
        from barograph.mirrors.live import open_mirrors

        run.mirrors = open_mirrors(run)
        run.at_end.append(run.mirrors.close)


def _look_around(folder: Path, git: bool) -> None:
    with contextlib.suppress(Exception):
        found: dict[str, Any] = {
            "environment": place.environment(),
            "hardware": place.hardware(),
            "packages": place.packages(),
        }
        if git:
            state = place.git_state(os.getcwd())
            found |= {"repo_commit": state.get("commit"), "git": state}
        if folder.is_dir():
            manifest.update(folder, **found)


def _config(config: Any) -> dict[str, Any]:
    """A config as a plain nested dictionary: of a mapping, a dataclass, a namespace."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        as_dict = getattr(config, "to_dict", None)
        if not callable(as_dict) and not hasattr(config, "__dict__"):
            raise options.ConfigError(
                f"config is a {type(config).__name__}, but it takes a mapping such as {{'lr': 3e-4}} or an object with "
                "attributes."
            )
        config = as_dict() if callable(as_dict) else vars(config)
    plain = _plain(config, 16)
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping) and depth:
        return {text(key): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)) and depth:
        return [_plain(item, depth - 1) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if hasattr(value, "__dataclass_fields__") and depth:
        return _plain(vars(value), depth - 1)
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        if not isinstance(value, (str, bytes)):
            return json.loads(json.dumps(value.item() if hasattr(value, "item") else value))
    return text(value)
