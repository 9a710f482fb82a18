"""Following logs while another program writes them.

In:   paths, looked at again and again.
Out:  stored runs that grow with them, until the user interrupts or every run has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph.core.aliases import Alias
from barograph.core.text import escape
from barograph.importing import folders, results
from barograph.importing.collect import Collector, SourceFailed
from barograph.importing.registry import sources
from barograph.importing.source import FoundRun, ImportSource

LOOK_SECONDS = 0.5  # between two looks at known files
SEARCH_SECONDS = 5.0  # between two searches for new ones
_TELL_SECONDS = 5.0  # between two updates of a manifest
_MOST_FILES = 2000  # of a folder that are looked at to see whether it has changed


class Pursuit:
    """One run that is followed."""

    def __init__(self, collector: Collector):
        self.collector = collector
        self._seen: Any = None
        self._told_at = 0.0
        self._added = -1

    def look(self) -> bool:
        """Take in what is new; whether there was anything. Raises SourceFailed, OSError."""
        now = signature(self.collector.found.path)
        if (now is not None and now == self._seen) or not self.collector.found.path.exists():
            return False  # gone: moved away for a moment, as by a rotation
        tally = self.collector.read()
        self._seen = now
        grown = tally.added != self._added
        if grown and time.monotonic() - self._told_at >= _TELL_SECONDS:
            # only when it grew: a run counts as running by what is written
            self.collector.tell("running")
            self._told_at, self._added = time.monotonic(), tally.added
        return grown


def pursue(
    paths: Sequence[str | os.PathLike[str]],
    root: Path,
    *,
    project: str = "",
    name: str = "",
    kind: str | None = None,
    aliases: Mapping[str, Alias] | None = None,
) -> int:
    """Follow the paths until an interrupt, or until all runs in them have ended; returns the exit code."""
    known: dict[tuple[str, str], Pursuit | None] = {}  # None: another process has it, or it failed
    code = 0
    searched = -SEARCH_SECONDS
    with _interruptible():
        try:
            while True:
                if time.monotonic() - searched >= SEARCH_SECONDS:
                    searched = time.monotonic()
                    code = max(code, _search(paths, root, known, project, name, kind, aliases))
                for key, item in known.items():
                    if item is not None and not _look(item):
                        item.collector.finish(item.collector.tally.failure)
                        known[key], code = None, 1
                followed = [item for item in known.values() if item is not None]
                if known and all(item.collector.ended for item in followed):
                    break
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            print("stopped following; import again to go on", file=sys.stderr)
        finally:
            for item in known.values():
                if item is not None:
                    _finish(item)
            for source in sources():
                be_patient(source, False)
    return code


def _search(
    paths: Sequence[str | os.PathLike[str]],
    root: Path,
    known: dict[tuple[str, str], Pursuit | None],
    project: str,
    name: str,
    kind: str | None,
    aliases: Mapping[str, Alias] | None,
) -> int:
    """Take up runs that are new in the paths; renew what is known of the others."""
    found, _, _ = results.look(paths, kind, root)
    code = 0
    for source, item in found:
        key = str(item.path), item.key
        if key in known:
            before = known[key]
            if before is not None:
                before.collector.found = _renewed(before.collector.found, item)
            continue
        be_patient(source, True)
        try:
            collector = Collector(source, item, root, project=project, name=name, aliases=aliases, live=True)
        except (folders.FolderBusy, OSError) as error:
            print(f"barograph: {item.path}: {error}", file=sys.stderr)
            known[key], code = None, 0 if isinstance(error, folders.FolderBusy) else 1
            continue
        known[key] = Pursuit(collector)
        print(f"following {escape(item.path)} → {collector.folder}", flush=True)
    return code


def _renewed(before: FoundRun, now: FoundRun) -> FoundRun:
    """What a second look says of a run, under the name that it has."""
    return now._replace(name=before.name, project=before.project)


def _look(pursuit: Pursuit) -> bool:
    """Whether the run can be followed further."""
    try:
        pursuit.look()
    except SourceFailed as error:
        pursuit.collector.tally.failure = str(error)
    except FileNotFoundError:
        return True  # moved away for a moment, as by a rotation
    except OSError as error:
        pursuit.collector.tally.failure = f"{pursuit.collector.found.path}: {error.strerror or error}"
    if pursuit.collector.tally.failure:
        print(f"barograph: {pursuit.collector.tally.failure}", file=sys.stderr)
    return not pursuit.collector.tally.failure


def _finish(pursuit: Pursuit) -> None:
    collector = pursuit.collector
    try:
        folder = collector.finish(collector.tally.failure)
    except OSError as error:
        print(f"barograph: {collector.folder}: {error.strerror or error}", file=sys.stderr)
        return
    told = results.result(collector.source, collector.found, folder, collector.project, collector.tally)
    print("\n".join(results.result_lines(told)), flush=True)


def be_patient(source: ImportSource, follow: bool) -> None:
    """Whether a last row without a line break waits for it."""
    if hasattr(source, "patient"):
        source.patient = follow


def signature(path: Path) -> Any:
    """Changes when something was written; None if that can't be found out cheaply."""
    try:
        state = os.stat(path)
        if not path.is_dir():
            return state.st_ino, state.st_size, state.st_mtime_ns
        seen = []
        for at, (folder, _, names) in enumerate(os.walk(path)):
            for name in names:
                with contextlib.suppress(OSError):
                    stat = os.stat(os.path.join(folder, name))
                    seen.append((folder, name, stat.st_size, stat.st_mtime_ns))
            if len(seen) > _MOST_FILES or at > _MOST_FILES:
                return None
        return tuple(seen)
    except OSError:
        return None


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """An end asked for by `kill` is one by Ctrl-C: what was read is completed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
