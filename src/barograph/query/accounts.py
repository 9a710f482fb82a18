"""Where a stored run's time, energy and money went, from its log files.

In:   the log files, rank 0's first.
Out:  `RunAccounts`: its `totals` of time, its `cost`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from barograph.log.read import records_from
from barograph.query.energy import Energy, Prices
from barograph.query.goodput import LONG_LOG, Goodput, Totals, replay

LogState = list[tuple[Path, int, int]]
"""Each log file with its size and the time of its last change."""


def account_state(files: Iterable[Path]) -> LogState:
    return [(path, found.st_size, found.st_mtime_ns) for path in files for found in (path.stat(),)]


class RunAccounts:
    """The accounts of a run whose logs stand as `state` says."""

    def __init__(self, state: LogState):
        self.state = state
        self._goodput, self._energy = Goodput(), Energy()
        if state:
            replay(state[0][0], (self._goodput, self._energy), state[0][1])
        if sum(size for _, size, _ in state[1:]) <= LONG_LOG:  # else the devices of rank 0's machine stand for all
            for path, _, _ in state[1:]:
                for record, _ in records_from(path):
                    self._energy.add(record, path.name)

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
            has_gpus = (manifest.get("hardware") or {}).get("gpus") or energy.gpus
            gpus, known = (int(manifest.get("world_size") or 1) if has_gpus else 0), None
        gpus = gpus if devices is None else devices
        given = (price_per_gpu_hour, energy.said.get("price_per_gpu_hour"), known)
        price = next((one for one in given if one is not None), None)
        kwh = energy.said.get("price_per_kwh") if price_per_kwh is None else price_per_kwh
        return energy.fields(Prices(per_gpu_hour=price, per_kwh=kwh), held * gpus / 3600.0, gpus)
