"""The folder of runs that a person means: a folder, or a copy of the runs on a ClickHouse server.

In:   a folder or an address, by default of the environment; which run is wanted.
Out:  a folder. Of a server's runs it has what is there at this moment: fetched once, and then what is new.

The copy is under $XDG_CACHE_HOME/barograph/fleet and may be deleted at any time.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from barograph.core import segments
from barograph.core.place import cache_folder
from barograph.store.clickhouse.address import MARK, ServerAddress, is_address, parse_address

if TYPE_CHECKING:
    from barograph.store.clickhouse.pull import StoredThere

DEFAULT_DIR = "runs"
REFRESH_SECONDS = 5.0  # between two looks at the server, for who shows runs for longer

Place = str | os.PathLike[str] | None


def place_name(dir: Place = None) -> str:
    """What was asked for, as it may be printed: a folder, or an address without its password."""
    given = os.fspath(dir) if dir is not None else os.environ.get("BAROGRAPH_DIR", DEFAULT_DIR)
    return str(parse_address(given)) if is_address(given) else given


def runs_folder(dir: Place = None, which: str | None = None) -> Path:
    """The folder of these runs (default: `BAROGRAPH_DIR`, else `runs`). which: the run that is wanted, if one is.

    Raises ServerError (an OSError) and ValueError with one sentence.
    """
    given = dir if dir is not None else os.environ.get("BAROGRAPH_DIR", DEFAULT_DIR)
    return _fetched(parse_address(given), which) if is_address(given) else Path(given)


def own_folder(dir: Place = None) -> Path:
    """The same for who writes there. Raises ValueError for a server: what is fetched from one is a copy."""
    given = dir if dir is not None else os.environ.get("BAROGRAPH_DIR", DEFAULT_DIR)
    if is_address(given):
        raise ValueError(f"runs on {place_name(dir)} can only be read; change them where they are, and push them")
    return Path(given)


def refuse_copy(folder: Path) -> None:
    """Raises ValueError if a run's folder is a copy of one on a server: what is changed there would be lost."""
    if (folder / MARK).exists():
        raise ValueError(f"{folder.name} is a copy of a run on a server; change it where it was written, and push it")


def keep_fetching(dir: Place, stop: threading.Event) -> threading.Thread | None:
    """Fetch what is new every few seconds, in a thread, until `stop`; None where the runs are in a folder."""
    given = dir if dir is not None else os.environ.get("BAROGRAPH_DIR", DEFAULT_DIR)
    if not is_address(given):
        return None
    address = parse_address(given)

    def fetch() -> None:
        while not stop.wait(REFRESH_SECONDS):
            try:
                _fetched(address, None)
            except OSError:  # away for now: what is there is shown, and the next time asks again
                continue

    thread = threading.Thread(target=fetch, name="barograph-fetch", daemon=True)
    thread.start()
    return thread


def copy_folder(address: ServerAddress) -> Path:
    """Where the copies of a server's runs are."""
    name = f"{address.host}-{address.port}-{address.database}-{address.user}".replace(":", "_")
    return cache_folder() / "fleet" / name


def _fetched(address: ServerAddress, which: str | None) -> Path:
    from barograph.store.clickhouse.client import Client
    from barograph.store.clickhouse.pull import StoredThere, list_runs, pull
    from barograph.store.clickhouse.schema import require

    root = copy_folder(address)
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with Client(address) as client:
        require(client)
        there = list_runs(client)
        wanted = [run for run in there if which is not None and run.has_name(which)]
        left, fetched = list(wanted or there), set[StoredThere]()
        while left:
            run = left.pop()
            fetched.add(run)
            folder = pull(client, run, root)
            for segment in segments.read(folder)[:1] if wanted else ():  # a fork is read with what it goes on from
                source = Path(segment.source or "")
                named = (source.parent.name, source.name)
                left += [run for run in there if (run.project, run.run) == named and run not in fetched]
    _drop(root, there)
    return root


def _drop(root: Path, there: list[StoredThere]) -> None:
    """Remove copies of runs that are no longer on the server."""
    kept = {(run.project, run.run) for run in there}
    for mark in root.glob(f"*/*/{MARK}"):
        if (mark.parent.parent.name, mark.parent.name) not in kept:
            shutil.rmtree(mark.parent, ignore_errors=True)
