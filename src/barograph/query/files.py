"""What a stored run reads: its manifest, its log files, and its numbers in one look.

In:   a run's folder, or a bare log file.
Out:  `StoredFiles`, as they stand when they are asked; `FixedFiles`, as they stood when they were first asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from barograph.core import liveness, manifest
from barograph.log.files import readable_logs
from barograph.log.write import mend
from barograph.query import curation
from barograph.query.accounts import RunAccounts, account_state
from barograph.store.run import Look, RunStore
from barograph.store.thin import thinned_sentence


class StoredFiles:
    """log: the run is this log alone. may_open, cache_bytes: as for `StoredRun`."""

    def __init__(self, dir: Path, log: Path | None, may_open: Callable[[Path], bool], cache_bytes: int | None):
        self.dir, self.log, self.may_open, self.cache_bytes = dir, log, may_open, cache_bytes
        self._accounts = RunAccounts()
        self.told: Any = None  # which series are losses by their rows: `losses`

    @cached_property
    def _store(self) -> RunStore:
        if not self.log and self.status() in liveness.LOST:
            for path in self.logs():
                mend(path)
        return RunStore(self.dir, self.log, self.cache_bytes, self.may_open)

    def manifest(self) -> dict[str, Any]:
        return {} if self.log else curation.over(self.dir, manifest.read(self.dir))

    def status(self) -> str:
        return liveness.status(self.dir, self.manifest()) if not self.log else "log file"

    def logs(self) -> list[Path]:
        """The log files: rank 0's first, the sidecars' last."""
        return [self.log] if self.log else readable_logs(self.dir, self.may_open)

    def accounts(self) -> RunAccounts:
        """Of time and energy, read from the log files as far as they have grown."""
        state = account_state(self.logs())
        if self._accounts.state != state:
            self._accounts.read(state)
        return self._accounts

    def look(self) -> Look:
        """The numbers as they stand now."""
        return self._store.look()

    def missing(self) -> list[str]:
        """What was logged and can't be read from anywhere, a sentence each."""
        self._store.look()
        return list(self._store.missing)

    def problems(self) -> list[str]:
        """Files that could not be read whole, a sentence each."""
        return self._store.problems


class FixedFiles(StoredFiles):
    """A run at one moment, for one reader who asks thousands of times: each thing is looked for once."""

    def __init__(self, files: StoredFiles):
        super().__init__(files.dir, files.log, files.may_open, files.cache_bytes)
        self._kept: dict[Callable[[StoredFiles], Any], Any] = {}

    def _once(self, ask: Callable[[StoredFiles], Any]) -> Any:
        if ask not in self._kept:
            self._kept[ask] = ask(self)
        return self._kept[ask]

    def manifest(self) -> dict[str, Any]:
        result: dict[str, Any] = self._once(StoredFiles.manifest)
        return result

    def status(self) -> str:
        return str(self._once(StoredFiles.status))

    def logs(self) -> list[Path]:
        return list(self._once(StoredFiles.logs))

    def look(self) -> Look:
        result: Look = self._once(StoredFiles.look)
        return result


def thinned(run: Any) -> str:
    """Which points of a `StoredRun`, or of what it goes on from, were removed by `barograph fleet thin`; "" if none."""
    origin = run.origin
    before = thinned(origin[0]) if origin is not None else ""
    return "; ".join(
        filter(None, [thinned_sentence(run.dir), before and f"{origin[0].id}, which it goes on from, was {before}"])
    )
