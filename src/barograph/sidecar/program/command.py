"""The command `barograph run`: where the run of a program is kept, then the program.

In:   a command line; options as typed.
Out:  the program's exit code. What is wrong with the options is said before it starts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barograph.core import options, place
from barograph.core.names import run_name
from barograph.sidecar.program.relay import run_program
from barograph.training.folders import find_folder

_NOT_HERE = {"id": "", "output_dir": "", "log_file": "", "resume": "never"}  # meant for runs of the program's own


def run_run(command: Sequence[str], given: dict[str, Any], follow: Sequence[str]) -> int:
    """`barograph run`; the exit code. Raises ConfigError (a ValueError) for options that don't fit."""
    settings = options.load(_NOT_HERE | given)
    name = settings.name or run_name(_title(command))
    settings = options.load(_NOT_HERE | given | {"name": name})
    folder: Path | None = None
    try:
        folder = find_folder(settings, {}, place.launch_id())[0].absolute()
    except OSError as error:
        where = error.filename or settings.dir
        print(f"barograph: nothing is recorded: {error.strerror or error} ({where})", file=sys.stderr)
    about = {"options": given | {"name": name}, "aliases": settings.aliases, "follow": [str(path) for path in follow]}
    return run_program(command, folder, about)


def _title(command: Sequence[str]) -> str:
    """What a program is called: its script or module, else the command."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word == "-m" and following:
            return following.rpartition(".")[2] or following
        if word.endswith((".py", ".sh")):
            return Path(word).stem
    return Path(command[0]).name
