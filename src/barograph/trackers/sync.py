"""`barograph sync`, and the process that mirrors a run while it is written.

In:   a run, a backend's name, options.
Out:  the backend's copy; one line for a person, or JSON; exit code 0 if the backend has everything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from barograph.core import liveness, manifest
from barograph.core import options as config
from barograph.core.progress import progress
from barograph.trackers import backends
from barograph.trackers.mirror import Mirror
from barograph.trackers.position import Busy
from barograph.trackers.send import Result, send

_EXIT_SECONDS = 20.0  # what a library's exit hooks and threads may take


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `barograph sync` takes beside RUN and --dir."""
    parser.add_argument("--to", required=True, choices=backends.NAMES, help="the tracker that gets a copy")
    parser.add_argument("--follow", action="store_true", help="go on while the run is written")
    parser.add_argument("--out", metavar="WHERE", help="the folder, project or address that gets it")
    parser.add_argument("--name", metavar="NAME", help="what the run is called there")


def sync(
    folders: Iterable[Path],
    to: str,
    *,
    follow: bool = False,
    out: str | None = None,
    name: str | None = None,
    as_json: bool = False,
) -> int:
    """Send runs, one after the other, each with a bar and a line; the exit code.

    follow: stay with a run until it ends. out, name: where to, and what to call it; by default what the settings
    say (environment, YAML file), or an earlier sync of the run.
    """
    options = backends.options_of(to, config.load())
    door = backends.DOORS[to]
    if out:
        options[door.destination] = out if "://" in out or to in ("wandb", "trackio") else os.path.abspath(out)
    names = [option for option in door.options if option.endswith("_name")]
    if name and names:
        options[names[0]] = name
    rows: list[dict[str, Any]] = []
    code = 0
    for folder in folders:
        try:
            result = _with_bar(folder, to, options, _is_over(folder) if follow else lambda: True, quiet=as_json)
        except Busy as error:
            if as_json:
                rows.append({"run": folder.name, "to": to, "busy": True})
            else:
                print(f"{folder.name}: {error}")
            continue
        code = code if result.done else 1
        if as_json:
            rows.append({"run": folder.name, "to": to} | result._asdict())
        else:
            print(_line(folder, to, result))
    if as_json:
        print(json.dumps(rows, indent=2))
    return code


def _line(folder: Path, to: str, result: Result) -> str:
    known = f" ({result.run_id})" if result.run_id else ""
    if not result.done:
        return f"{folder.name}: not everything has reached {to}{known}; the same command goes on with the rest"
    refused = f", {result.refused:,} refused" if result.refused else ""
    return f"{folder.name}: {to}{known} has everything: {result.rows:,} rows, {result.new:,} of them new{refused}"


def _with_bar(folder: Path, to: str, options: dict[str, Any], over: Callable[[], bool], quiet: bool) -> Result:
    if quiet:
        return send(folder, to, options, over=over)
    with progress(f"{folder.name} → {to}") as work:
        whole = 0

        def told(mirror: Mirror) -> None:
            nonlocal whole
            left = mirror.left()
            whole = max(whole, left + int(work.done))
            work.total = float(whole)
            work.advance(max(0.0, whole - left - work.done))

        return send(folder, to, options, over=over, told=told)


def _is_over(folder: Path) -> Callable[[], bool]:
    """Whether nobody writes the run any more; asked at most once a second."""
    asked = [0.0, False]

    def over() -> bool:
        if time.monotonic() - asked[0] > 1:
            asked[:] = time.monotonic(), liveness.status(folder, manifest.read(folder)) not in liveness.OPEN
        return bool(asked[1])

    return over


class _Sidecar:
    """What the sidecar that started this process says on standard input: options, and later how the run ended."""

    def __init__(self) -> None:
        self.ended = False
        self._text = b""
        self.options = self._line(wait=True) or {}

    def _line(self, wait: bool) -> dict[str, Any] | None:
        while b"\n" not in self._text:
            if not select.select([0], [], [], None if wait else 0)[0]:
                return None
            chunk = os.read(0, 1 << 16)
            if not chunk:  # the sidecar is gone: all there is now is sent
                self.ended = True
                return None
            self._text += chunk
        line, _, self._text = self._text.partition(b"\n")
        found = json.loads(line)
        return found if isinstance(found, dict) else {}

    def over(self) -> bool:
        """Whether the run has ended, in whatever way."""
        self.ended = self.ended or self._line(wait=False) is not None
        return self.ended


def mirror_process(folder: str, to: str) -> int:
    """The body of a process that mirrors a run until its sidecar says that the run has ended."""
    path, sidecar = Path(folder), _Sidecar()
    while True:
        try:
            return 0 if send(path, to, sidecar.options, over=sidecar.over).done else 1
        except Busy:  # the mirror of an earlier process of the run comes to its end
            time.sleep(0.25)
            if not path.is_dir():
                return 1


def _main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1))  # what was not noted is asked for next time
    with contextlib.suppress(OSError):
        os.nice(10)  # the training goes first
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    code = mirror_process(sys.argv[1], sys.argv[2])
    # a library ends its run properly on the way out (Aim does); one that hangs there is left behind
    ending = threading.Timer(_EXIT_SECONDS, os._exit, (code,))
    ending.daemon = True
    ending.start()
    return code


if __name__ == "__main__":
    raise SystemExit(_main())
