"""Where a stored run's time, energy and money went, from its log files.

In:   the log files, rank 0's first.
Out:  `RunAccounts`: its `totals` of time, its `cost`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from barograph.core.record import Record
from barograph.query.energy import Energy, Prices
from barograph.query.goodput import LONG_LOG, Goodput, Totals, replay

LogState = list[tuple[Path, int, int, int]]
"""Each log file with its inode, its size and the time of its last change."""


def account_state(files: Iterable[Path]) -> LogState:
    return [(path, found.st_ino, found.st_size, found.st_mtime_ns) for path in files for found in (path.stat(),)]


class RunAccounts:
    """The accounts of a run whose logs stand as `state` says. `read` takes what they have got since."""

    def __init__(self) -> None:
        self.state: LogState = []
        self._restart()

    def _restart(self) -> None:
        self._goodput, self._energy = Goodput(), Energy()
        self._ends: dict[Path, int] = {}

    def read(self, state: LogState) -> None:
        """Read the logs up to there: what is new, or all of it where a log is another file or there are too many."""
        before, self.state = {path: (inode, size) for path, inode, size, _ in self.state}, state
        now = {path: (inode, size) for path, inode, size, _ in state}
        # of long logs of other ranks none is read: the devices of rank 0's machine stand for all
        others = state[1:] if sum(size for _, _, size, _ in state[1:]) <= LONG_LOG else []
        wanted = {path for path, *_ in (*state[:1], *others)}
        if before and any(
            path not in wanted or now[path][0] != before[path][0] or now[path][1] < before[path][1]
            for path in self._ends
        ):
            self._restart()
        for path, _, size, _ in state[:1]:
            self._ends[path] = replay(path, (self._goodput, self._energy), size, self._ends.get(path, 0))
        for path, _, size, _ in others:
            self._ends[path] = replay(path, (_Source(self._energy, path.name),), size, self._ends.get(path, 0))

    def totals(self, now: float | None) -> Totals:
        """Seconds by cause. now: seconds since 1970 up to which a run that goes on counts."""
        return self._goodput.totals(now)

    def cost(
        self,
        manifest: Mapping[str, Any],
        held: float,
        price_per_gpu_hour: float | None,
        price_per_kwh: float | None,
        devices: int | None = None,
    ) -> dict[str, Any]:
        """The fields of an `energy` record. held: seconds for which the devices were the run's. devices: how many,
        where the run does not know or is wrong."""
        energy = self._energy
        hours, wall = manifest.get("gpu_hours"), manifest.get("wall_seconds")
        if hours and wall:
            gpus = round(hours * 3600.0 / wall)
            known = manifest["cost"] / hours if manifest.get("cost") is not None else None
        else:
            has_gpus = (manifest.get("hardware") or {}).get("gpus") or energy.gpus or energy.models
            gpus, known = (int(manifest.get("world_size") or 1) if has_gpus else 0), None
        gpus = gpus if devices is None else devices
        own = manifest.get("price_per_gpu_hour")
        given = (price_per_gpu_hour, energy.said.get("price_per_gpu_hour"), known, own)
        price = next((item for item in given if item is not None), None)
        kwh = energy.said.get("price_per_kwh") if price_per_kwh is None else price_per_kwh
        return energy.fields(Prices(per_gpu_hour=price, per_kwh=kwh), held * gpus / 3600.0, gpus)


class _Source:
    """The account of energy, for the records of one of several logs."""

    kind = Energy.kind

    def __init__(self, energy: Energy, name: str):
        self._energy, self._name = energy, name

    def add(self, record: Record) -> None:
        self._energy.add(record, self._name)

    def go_on(self, record: Record) -> None:
        self.add(record)
