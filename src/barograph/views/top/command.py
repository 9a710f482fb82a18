"""The command `barograph top`: pages, keys and the clock.

In:   a run's name, or none; a terminal.
Out:  the run's live view until a person quits; one printed page where there is no terminal.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from barograph.core import liveness
from barograph.core.terminal import wants_colour
from barograph.core.text import fit
from barograph.importing import temporary
from barograph.importing.resolve import resolve
from barograph.query.catalog import find, runs
from barograph.query.stored import StoredRun
from barograph.views.top.keys import KeyReader
from barograph.views.top.page import PAGES, Viewer
from barograph.views.top.place import TopPlace
from barograph.views.top.screen import Screen, plain
from barograph.views.top.terminal import Gone, TopTerminal

_LEAST, _MOST = 0.1, 3600.0
_ONCE_SECONDS = 30.0  # that a printed page waits for what is slow to read
_ESCAPE_SECONDS = 0.05  # a lone Escape, if nothing follows within


def top(
    run: str | None = None,
    dir: str | None = None,
    *,
    once: bool = False,
    every: float = 1.0,
    page: str = "overview",
    ascii: bool = False,
) -> int:
    """Show a run, live; returns the exit code.

    run: an id, a name, a folder, a log; None: the newest run that is live, else a list to choose from.
    once: print one page and end, as where standard output is not a terminal. every: seconds between two looks.
    page: the one shown first. ascii: no characters beyond ASCII in charts.
    Raises KeyError, ValueError and OSError with one sentence.
    """
    if page not in PAGES:
        raise ValueError(f"there is no page {page!r}; there are {', '.join(PAGES)}")
    if not _LEAST <= every <= _MOST:
        raise ValueError(f"--every is {_LEAST} to {_MOST:,.0f} seconds, not {every}")
    shown = _meant(run, dir) if run is not None else _newest_live(dir)
    if shown is not None and run is not None and dir is None and Path(run).exists():
        dir = str(shown.dir.resolve().parent)  # its neighbours are the other runs
    place = TopPlace(page=page, braille=not ascii and _has_braille())
    viewer = Viewer(shown, dir, place)
    try:
        if once or not (sys.stdout.isatty() and sys.stdin.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
            return _print(viewer)
        return _watch(viewer, every)
    finally:
        viewer.close()


def _meant(run: str, dir: str | None) -> StoredRun:
    path = Path(run)
    try:
        return find(run, dir)
    except KeyError:
        if not path.exists():
            raise

    found = [item for item, _ in resolve(run, dir)]
    if not found:
        raise KeyError(f"{run} holds no run and no log that can be read")
    if len(found) > 1 and path.is_dir():
        live = [item for item in found if item.status in liveness.ALIVE]
        return (live or found)[-1]
    return found[0]


def _newest_live(dir: str | None) -> StoredRun | None:
    found = runs(dir)
    for states in (liveness.ALIVE, liveness.OPEN):
        for item in reversed(found):
            if item.status in states:
                return item
    return None


def _has_braille() -> bool:
    """The kernel's console has no such font; an encoding without Unicode has no such characters."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return encoding.startswith("utf") and os.environ.get("TERM") not in ("linux", "vt100", "vt220")


def _print(viewer: Viewer) -> int:
    """One page. As wide as the terminal or COLUMNS; a whole page where that is not known."""
    found = shutil.get_terminal_size((100, 40))
    viewer.complete(_ONCE_SECONDS)
    lines = plain(viewer.rows(found.columns, max(12, found.lines - 1), footer=False)).rstrip().split("\n")
    text = "\n".join(fit(line, found.columns) for line in lines)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding))
    return 0


def _watch(viewer: Viewer, every: float) -> int:

    keys = KeyReader()
    stopped: int | None = None
    with contextlib.suppress(Gone), TopTerminal(sys.stdin.fileno(), sys.stdout.fileno()) as terminal:
        try:
            screen = Screen(*terminal.size(), colour=wants_colour())
            due = 0.0
            while terminal.stopped is None:
                if terminal.resized:
                    terminal.resized = False
                    screen.resize(*terminal.size())
                now = time.monotonic()
                if now >= due:
                    complete = viewer.look(screen.columns, screen.rows)
                    # what has a long history is read piece by piece, with pages in between
                    due = now + every if complete else now + 0.02
                if terminal.ready():
                    terminal.write(screen.update(viewer.rows(screen.columns, screen.rows)))
                wait = _ESCAPE_SECONDS if keys.waiting else max(0.0, min(due - time.monotonic(), every))
                data = terminal.read(wait)
                pressed = keys.feed(data) if data else keys.flush() if keys.waiting else []
                for key in pressed:
                    if not viewer.press(key):
                        return 0
                    due = min(due, 0.0) if viewer.moved else due
                if b"\x0c" in data:
                    screen.forget()
        finally:
            stopped = terminal.stopped
    if stopped == signal.SIGINT:
        return 130
    if stopped is not None:
        temporary.end()
        signal.signal(stopped, signal.SIG_DFL)
        os.kill(os.getpid(), stopped)  # so that who sent it sees that it was heeded
    return 0
