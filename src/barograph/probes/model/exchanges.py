"""What a watch exchanges between ranks in a step, where a model's parameters are sharded.

In:   a `ModelRound` with figures of this rank's shards.
Out:  the same round with figures of whole tensors; without them where the ranks don't watch alike.

On the CPU statistics are exchanged when the step ends; on a device, where they have not arrived by then, when the
next step begins, which is the same moment on all ranks too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from barograph.probes.model.rounds import Arrival, ModelColumn, ModelRound
from barograph.probes.model.schedule import FAMILIES, WatchSchedule
from barograph.probes.model.sharded import Agreement, Shards, ranks_of, way
from barograph.probes.recording import Recording

_LOCAL = frozenset({"activations"})  # families that every rank has for itself


class Exchanges:
    """The exchanges of one watch."""

    def __init__(self, run: Recording, ways: dict[str, Any], schedule: WatchSchedule):
        self._by_name = ways
        self._schedule = schedule
        self._shards: dict[tuple[str, ...], tuple[tuple[Any, ...], Shards]] = {}
        self._ranks = ranks_of(list(ways.values()))
        about = {"intervals": schedule.given, "budget": schedule.budget, "names": _digest(ways)}
        begin = int(getattr(run, "next_step", run.current_step))
        self._agreement = Agreement(about, begin, run.warn)
        self._waiting: ModelRound | None = None
        self._agreed = False
        self._told: Arrival | None = None
        self._measured: frozenset[str] = frozenset()  # in the step of which `_told` has the costs
        kinds = {key for key in ways.values() if key is not None}
        self._one = next(iter(kinds)) if len(kinds) == 1 else None
        if schedule.budget is not None and self._one is None:
            schedule.budget = None
            run.warn(
                "the watch's budget is not kept: parameters are sharded in several ways, over ranks that can't change "
                "their intervals together",
                key="watch budget",
            )

    @classmethod
    def of(cls, run: Recording, parameters: Mapping[str, Any], schedule: WatchSchedule) -> Exchanges | None:
        """None for a model of which nothing is sharded."""
        ways = {name: way(parameter) for name, parameter in parameters.items()}
        if not any(key is not None for key in ways.values()):
            return None
        return cls(run, ways, schedule)

    def ways(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """How each of these is sharded."""
        known = self._shards.get(names)
        if known is None:
            ways = tuple(self._by_name.get(name) for name in names)
            known = self._shards[names] = (ways, Shards(ways))
        return known[0]

    def begin(self, current: ModelRound) -> None:
        """A step begins: the last one's statistics have arrived; is this one exchanged?"""
        self._finish_waiting()
        self._agreed = self._agreement.holds(current.step, self._ranks)
        if not self._agreed:
            self._schedule.refund(current.due - _LOCAL)
            current.due = current.due & _LOCAL

    def _finish_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._merge(waiting)

    def _merge(self, current: ModelRound) -> None:
        for part in current.parts:
            _, shards = self._shards[part.names]
            current.merged.append((part.family, part.names, shards.merge(part.pending.result())))
        current.exchanged = True

    def end(self, current: ModelRound) -> None:
        """A step ends: put together what is there."""
        if not self._agreed:
            current.columns = [column for column in current.columns if not any(column.ways)]
            current.parts = []
            return
        columns: list[ModelColumn] = []
        for column in current.columns:
            if any(column.ways):
                _, shards = self._shards[column.names]
                largest = 1 if column.family == "optimizer_state" else 0
                column = column._replace(values=shards.add(column.values, largest))
            columns.append(column)
        current.columns = columns
        if current.parts:
            if all(part.pending.ready() for part in current.parts) and self._on_cpu(current):
                self._merge(current)
            else:
                current.waits, self._waiting = True, current
        if self._schedule.budget is not None and self._one is not None:
            self._agree_on_costs(current)

    def _on_cpu(self, current: ModelRound) -> bool:
        return all(column.values.device.type == "cpu" for column in current.columns)

    def _agree_on_costs(self, current: ModelRound) -> None:
        """All ranks tell the schedule the same: what the step before cost on average."""
        import torch

        if self._told is not None:
            *costs, seconds = (self._told.numbers() / len(self._ranks)).tolist()
            known = {family: cost for family, cost in zip(FAMILIES, costs, strict=True) if cost > 0}
            self._schedule.spend(known, seconds, self._measured)
        self._measured = current.due
        mine = [current.costs.get(family, 0.0) for family in FAMILIES]
        seconds = current.step_seconds if math.isfinite(current.step_seconds) else 0.0
        home = next((column.values.device for column in current.columns), torch.device("cpu"))
        column = torch.tensor([*mine, seconds], dtype=torch.float64).to(home, non_blocking=True)[:, None]
        self._told = Arrival(Shards([self._one]).add(column)[:, 0])

    def close(self) -> None:
        """This rank exchanges nothing any more."""
        if self._waiting is not None:  # the others may be gone already
            self._waiting.parts, self._waiting.exchanged, self._waiting = [], True, None
        self._agreement.close()


def _digest(ways: Mapping[str, Any]) -> str:
    """Tells sets of sharded names apart."""
    import zlib

    return f"{zlib.crc32('|'.join(name for name, key in ways.items() if key is not None).encode()):08x}"
