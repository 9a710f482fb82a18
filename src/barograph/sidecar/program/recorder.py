"""The process that records a program: `python -m barograph.sidecar.program FOLDER`.

In:   a line of JSON when the program has started, another when it has ended; its output in files; files that it has
      open; where it is a run itself, the line that this run has left.
Out:  a run: the command, numbers as they come, how the program ended. Or, of a program that is a run itself, its output
      and how it ended in that one.

The run begins with the first number, or after some seconds; a program that uses Barograph has mostly begun its own by
then. It has a sidecar as every run has, which does the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from barograph.core import liveness, manifest, segments
from barograph.core.aliases import parse_aliases
from barograph.core.record import format_time
from barograph.core.secrets import masked_words
from barograph.probes.ranks import stacks
from barograph.sidecar.death import ProcessEnding, WatchedProcess, as_fields
from barograph.sidecar.program.files import ProgramFiles
from barograph.sidecar.program.intake import FollowedFile, Intake
from barograph.sidecar.program.output import FOLDER, drop_read, last_lines, part_name
from barograph.sidecar.program.relay import JOINED
from barograph.training.run import Run
from barograph.training.start import init

_PAUSE = 0.5  # seconds between two looks
_FILES_SECONDS = 5.0  # between two searches for what the program writes
_PATIENCE = 20.0  # a program that has begun no run of its own by then mostly won't
_MOST_FILES = 200
_NICE = 10


class ProgramRecorder:
    """One program. about: the relay's first line."""

    def __init__(self, folder: Path, about: dict[str, Any]):
        self.folder, self.output = folder, folder / FOLDER
        self.about = about
        self.pid = int(about["pid"])
        self.run: Run | None = None
        self.joined: Path | None = None  # the folder of the program's own run
        self.watched = WatchedProcess(self.pid)
        self._files = ProgramFiles(self.pid, [str(word) for word in about["command"]], folder)
        self._given = [Path(path) for path in about.get("follow") or ()]
        self._numbers = dict.fromkeys(about["outputs"], 0)  # the newest part of each output
        self._parts: dict[str, FollowedFile] = {}
        self._began, self._looked = time.monotonic(), -_FILES_SECONDS
        self._command = masked_words([str(word) for word in about["command"]])
        self._intake: Intake | None = None
        options = about.get("options") or {}
        (folder / segments.FOLDER).mkdir(exist_ok=True)
        self._tell(
            {},
            id=folder.name,  # as lists show it before it has begun
            name=options.get("name") or folder.name,
            project=options.get("project") or folder.parent.name,
            status="running",
            created=format_time(time.time_ns() // 1000),
            command=self._command,
            **liveness.process(),
        )

    # -- while it runs -------------------------------------------------------------------------------

    def look(self, final: bool = False) -> None:
        """Take in what is new."""
        if self.joined is None and (own := self._own_run()) is not None:
            self._join(own)
        if self.joined is not None:
            return
        if self.run is None and (final or time.monotonic() - self._began > _PATIENCE):
            self._open()
        if self._intake is None:
            self._intake = Intake(self._open, parse_aliases(self.about.get("aliases") or {}, "the option aliases"))
        for path in self._given:
            self._intake.add(path)
        if final or time.monotonic() - self._looked > _FILES_SECONDS:
            self._looked = time.monotonic()
            for path in self._files.find(final):
                if len(self._intake.files) < _MOST_FILES:
                    self._intake.add(path)
        self._add_output(self._intake)
        self._intake.read(final)
        if self.run is not None:
            self.run._out.tick(int(time.time()))

    def _add_output(self, intake: Intake) -> None:
        """The parts of the output; one that was read, and is not the first, need not be kept."""
        for name, number in self._numbers.items():
            while (path := self.output / part_name(name, number + 1)).exists():
                number += 1
                self._parts[name] = intake.add(path, self._parts.get(name))
                drop_read(self.output, name, number - 1)
                intake.files.pop(self.output / part_name(name, number - 3), None)
            self._numbers[name] = number

    def _open(self) -> Run | None:
        """Our run; None where the program has one of its own, which began before it printed what was just read."""
        if self.joined is not None or self._own_run() is not None:
            return None
        if self.run is None:
            sys.argv = [str(word) for word in self.about["command"]]
            arguments: dict[str, Any] = dict(self.about.get("options") or {})
            self.run = init(
                output_dir=str(self.folder), console="none", blackbox=False, log_file="", resume="never", **arguments
            )
            stacks.unregister(self.run.dir, self.run._out.writer)  # this process is none of the training's
        return self.run

    # -- a program that is a run itself ------------------------------------------------------------------

    def _own_run(self) -> Path | None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            for line in (self.folder / JOINED).read_text().splitlines():
                folder = Path(json.loads(line)["folder"])
                if folder.is_dir() and folder.resolve() != self.folder.resolve():
                    return folder
        return None

    def _join(self, own: Path) -> None:
        """The program's own run is the run; ours goes, unless it has numbers already."""
        self.joined = own
        if self.run is not None:
            self.run.finish("finished")
        target = next(path for path in _names(own / FOLDER) if not path.exists())
        with contextlib.suppress(OSError):  # another file system: it stays where it is
            os.rename(self.output, target)
            self.output = target
        if self.output == target and (self._intake is None or not self._intake.rows):
            shutil.rmtree(self.folder, ignore_errors=True)
        self._tell({})

    # -- the end -----------------------------------------------------------------------------------------

    def end(self, said: dict[str, Any]) -> None:
        """The program has ended. said: the relay's last line, {} where the relay was killed."""
        self.look(final=True)
        code = int(said.get("code", 0))
        ending = self.watched.ending_as(-code if code < 0 else code << 8) if said else self.watched.ending()
        fields = _as_end(ending)
        self._tell({name: value for name, value in fields.items() if name in ("exit_code", "signal", "oom_kills")})
        if self.run is not None and self.joined is None:
            if self._intake is not None and self._intake.unread:
                self._tell({"lines_not_understood": self._intake.unread})
            for problem in [
                *(self._intake.problems.values() if self._intake else ()),
                *said.get("problems", {}).values(),
            ]:
                self.run._out.record("info", self.run.about.step, {"type": "program", "text": problem})
            fields["last"] = last_lines(self.output)
            self.run._ending.program = {name: value for name, value in fields.items() if name != "status"}
            self.run.finish(fields["status"])
        self.watched.close()

    def _tell(self, more: dict[str, Any], **others: Any) -> None:
        """What the manifest has of the program, and others of its entries."""
        folder = self.joined or self.folder
        with contextlib.suppress(OSError):
            before = manifest.read(folder).get("program")
            content: dict[str, Any] = before if isinstance(before, dict) and before.get("pid") == self.pid else {}
            output = self.output.name if self.output.parent == folder else str(self.output)
            content = content | {"command": self._command, "pid": self.pid, "output": output} | more
            manifest.update(folder, program=content, **others)


def _as_end(ending: ProcessEnding) -> dict[str, Any]:
    """The fields of the run's end; of a program that ended well, nothing but the status."""
    if ending.exit_code == 0:
        return {"status": "finished", "exit_code": 0}
    if ending.exit_code is not None:
        ending = ending._replace(status="failed")
    elif ending.signal == "SIGINT":
        ending = ending._replace(status="interrupted")
    return as_fields(ending)


def _names(path: Path) -> Iterator[Path]:
    yield path
    number = 2
    while True:
        yield path.with_name(f"{path.name}-{number}")
        number += 1


def _lines(handle: int) -> Iterator[dict[str, Any] | None]:
    """Lines of JSON as they come; {} at the end of the file, None every half second."""
    text = b""
    while True:
        if not select.select([handle], [], [], _PAUSE)[0]:
            yield None
            continue
        chunk = os.read(handle, 1 << 16)
        if not chunk:
            yield {}
            return
        *whole, text = (text + chunk).split(b"\n")
        for line in whole:
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record one program; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m barograph.sidecar.program")
    parser.add_argument("folder")
    folder = Path(parser.parse_args(arguments).folder)
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    for name in ("SIGINT", "SIGHUP", "SIGQUIT"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    lines = _lines(0)
    about = next((line for line in lines if line), None)
    if about is None:
        return 1
    recorder = ProgramRecorder(folder, about)
    for line in lines:
        if line is None:
            recorder.look()
            continue
        while not line and not recorder.watched.gone():  # the relay was killed, and the program goes on
            recorder.look()
            time.sleep(_PAUSE)
        recorder.end(line)
        return 0
    return 1
