"""What a person means by a path or a name: stored runs, or logs that can be read.

In:   a run's id, name or folder, a folder of runs, a file or folder of any kind that is imported; `-`; or nothing.
Out:  runs, each with where it comes from.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from barograph.importing import temporary
from barograph.importing.read import read
from barograph.query import catalog
from barograph.query.stored import StoredRun


def resolve(
    path: str, dir: str | None = None, logged: bool = True, endings: bool = False
) -> Iterator[tuple[StoredRun, str]]:
    """The runs in a path, or the one of that name; of `-` those of standard input, without a path the newest run.

    logged, endings: as `read` takes them. Raises KeyError, OSError or ValueError with one sentence where there is none.
    """
    given = Path(path)
    if not path:
        newest = catalog.runs(dir)[-1:]
        if not newest:
            raise KeyError("there is no run to look at; name a run or a log, or try `barograph demo`")
        yield newest[0], str(newest[0].dir)
    elif path == "-":
        folder = temporary.folder()
        copy = folder / "standard-input.log"
        try:
            with copy.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            runs = read(copy, logged=logged, endings=endings)
        except ValueError as error:
            raise ValueError(str(error).replace(str(copy), "standard input")) from None
        finally:
            temporary.remove(folder)
        for run in runs:
            yield run, "standard input"
    elif given.is_dir() and (stored := catalog.runs(given)):
        for run in stored:
            yield run, str(run.dir)
    elif given.exists():
        for run in read(given, logged=logged, endings=endings):
            yield run, path
    else:
        run = catalog.find(path, dir)
        yield run, str(run.dir)
