"""Figures of tensors that are spread over ranks (DTensor: FSDP2, tensor parallelism), put together.

In:   what each rank measured of its shards, at the same steps on all of them.
Out:  the figures of the whole tensors, on every rank. One packed collective for each family of figures and
      each way of sharding (one, in a model that FSDP2 shards).

Partial sums are added; extremes, moments and distributions are combined as `stats.merge` does. A dimension of the
mesh over which a tensor is replicated takes no part, so nothing is counted twice.

A collective that some ranks do not join would stop the training. So each watch announces its schedule in the
store through which the ranks met, and nothing is exchanged while the others' is missing or another: `Agreement`.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.probes.model.parameters import mesh_of
from barograph.probes.stats.sketch import BUCKETS, Sketches, gather
from barograph.probes.stats.statistics import COLUMNS, Statistics, merge_statistics

if TYPE_CHECKING:
    from torch import Tensor

    Floats = np.ndarray[Any, np.dtype[np.float64]]
    Key = tuple[Any, tuple[int, ...]]

_AT_ONCE = 256  # distributions in one collective: 32 MB
_numbers = itertools.count()


def way(parameter: Any) -> Key | None:
    """How a parameter is spread: its mesh and the dimensions over which it is sharded; None if it is whole here."""
    mesh = mesh_of(parameter)
    if mesh is None:
        return None
    dimensions = tuple(
        number
        for number, placement in enumerate(parameter.placements)
        if not placement.is_replicate() and not placement.is_partial() and mesh.size(number) > 1
    )
    return (mesh, dimensions) if dimensions else None


def shards_of(parameters: Sequence[Any]) -> dict[str, float]:
    """`shards`: over how many ranks each of these is sharded, where all are over as many; nothing elsewhere."""
    ways = [way(parameter) for parameter in parameters]
    counts = {math.prod(key[0].size(one) for one in key[1]) if key else 1 for key in ways}
    return {"shards": float(counts.pop())} if len(counts) == 1 and max(counts) > 1 else {}


def is_recorder(parameters: Sequence[Any]) -> bool:
    """Whether this rank records what all ranks know: the first of a mesh; every rank where nothing is spread."""
    meshes = {id(mesh): mesh for parameter in parameters if (mesh := mesh_of(parameter)) is not None}
    places = [mesh.get_coordinate() for mesh in meshes.values()]
    return not places or any(place is not None and not any(place) for place in places)


def is_told_of(rank: int, model: Any) -> bool:
    """Whether a rank has anything to say of its model: DDP's other ranks hold copies of what rank 0 holds."""
    return rank == 0 or type(model).__name__ != "DistributedDataParallel"


class Shards:
    """Exchanges the rows of sharded tensors. `ways`: how each row's tensor is spread, see `way`.

    All ranks of a mesh must call the same in the same order; `Agreement.holds` says whether they will.
    """

    def __init__(self, ways: Sequence[Key | None]):
        self.size = len(ways)
        self.groups: dict[Key, list[int]] = {}
        for row, key in enumerate(ways):
            if key is not None:
                self.groups.setdefault(key, []).append(row)

    def __bool__(self) -> bool:
        return bool(self.groups)

    def add(self, columns: Tensor, largest: int = 0) -> Tensor:
        """Figures [c, n] of shards put together: sums, and of the last `largest` columns the maxima."""
        import torch
        import torch.distributed as distributed

        columns = columns.clone()
        for (mesh, dimensions), rows in self.groups.items():
            places = torch.tensor(rows).to(columns.device, non_blocking=True)
            pack = columns.index_select(1, places).to(_device(mesh), non_blocking=True).contiguous()
            for dimension in dimensions:
                group = mesh.get_group(dimension)
                if largest:
                    parts = [torch.empty_like(pack) for _ in range(distributed.get_world_size(group))]
                    distributed.all_gather(parts, pack, group=group)
                    whole = torch.stack(parts)
                    pack = torch.cat([whole[:, :-largest].sum(0), whole[:, -largest:].amax(0)])
                else:
                    distributed.all_reduce(pack, group=group)
            columns.index_copy_(1, places, pack.to(columns.device, non_blocking=True))
        return columns

    def collect(self, columns: Floats) -> dict[Key, Floats]:
        """Every shard's numbers, by way of sharding: [shards, c, rows of that way]."""
        import torch
        import torch.distributed as distributed

        result = {}
        for (mesh, dimensions), rows in self.groups.items():
            pack = torch.from_numpy(np.ascontiguousarray(columns[:, rows])).to(_device(mesh))[None]
            for dimension in dimensions:
                group = mesh.get_group(dimension)
                parts = [torch.empty_like(pack) for _ in range(distributed.get_world_size(group))]
                distributed.all_gather(parts, pack, group=group)
                pack = torch.cat(parts)
            result[(mesh, dimensions)] = pack.cpu().numpy()
        return result

    def merge(self, statistics: Statistics) -> Statistics:
        """Statistics of the whole tensors from those of this rank's shards."""
        table = np.stack([getattr(statistics, name) for name in COLUMNS])
        gathered = self.collect(table)
        for key, rows in self.groups.items():
            whole = merge_statistics([_columns(part) for part in gathered[key]])
            table[:, rows] = np.stack([getattr(whole, name) for name in COLUMNS])
        sketches = statistics.sketches
        if sketches is not None:
            sketches = self._merge_sketches(sketches, table[COLUMNS.index("min")], table[COLUMNS.index("max")])
        return replace(_columns(table), sketches=sketches, names=statistics.names)

    def _merge_sketches(self, sketches: Sketches, low: Floats, high: Floats) -> Sketches:
        import torch
        import torch.distributed as distributed

        entries: list[tuple[Any, Any]] = [
            (sketches.places[sketches.starts[row] : sketches.starts[row + 1]],
             sketches.counts[sketches.starts[row] : sketches.starts[row + 1]])
            for row in range(self.size)
        ]  # fmt: skip
        for (mesh, dimensions), rows in self.groups.items():
            for some in _batches(rows):
                dense = torch.zeros(len(some), BUCKETS, dtype=torch.int64)
                for place, row in enumerate(some):
                    dense[place, torch.from_numpy(entries[row][0].astype(np.int64))] = torch.from_numpy(entries[row][1])
                pack = dense.to(_device(mesh))
                for dimension in dimensions:
                    distributed.all_reduce(pack, group=mesh.get_group(dimension))
                for row, counts in zip(some, pack.cpu().numpy(), strict=True):
                    places = np.flatnonzero(counts)
                    entries[row] = (places, counts[places])
        return gather(entries, low, high)


def _columns(table: Floats) -> Statistics:
    """Statistics of rows [c, n] in the order of `COLUMNS`."""
    return Statistics(**dict(zip(COLUMNS, table, strict=True)))


def _batches(rows: list[int]) -> list[list[int]]:
    return [rows[begin : begin + _AT_ONCE] for begin in range(0, len(rows), _AT_ONCE)]


def _device(mesh: Any) -> Any:
    import torch

    if mesh.device_type == "cpu":
        return torch.device("cpu")
    return torch.device(mesh.device_type, getattr(torch, mesh.device_type).current_device())


class Agreement:
    """Whether all ranks watch alike, asked at every exchange: one question to the store, some 100 µs.

    begin: the first step at which this rank's hooks look. A watch that was made in the middle of a step, or on
    ranks that count steps differently, is beyond what this can know.
    """

    def __init__(self, schedule: dict[str, Any], begin: int, warn: Callable[..., Any]):
        import torch.distributed as distributed

        self._warn = warn
        self._store = distributed.distributed_c10d._get_default_store()
        self._rank = distributed.get_rank()
        self._lead = f"barograph/watch/{next(_numbers)}"
        self._mine = {"schedule": schedule, "begin": begin}
        self._seen = -1
        self._known: dict[int, Any] = {}
        self._announce(self._mine)

    def _announce(self, what: dict[str, Any] | None) -> None:
        self._store.set(f"{self._lead}/{self._rank}", json.dumps(what))
        self._store.add(f"{self._lead}/changes", 1)

    def holds(self, step: int, ranks: Sequence[int]) -> bool:
        """Whether all these ranks exchange at this step. Says once why not."""
        changes = self._store.add(f"{self._lead}/changes", 0)
        if changes != self._seen:
            self._seen = changes
            self._known = {rank: self._ask(rank) for rank in ranks}
        missing = [rank for rank in ranks if self._known.get(rank) is None]
        if missing:
            return self._no(f"rank {missing[0]} does not watch the model")
        for rank in ranks:
            if self._known[rank]["schedule"] != self._mine["schedule"]:
                return self._no(f"rank {rank} watches it with other intervals or parameters")
        return all(self._known[rank]["begin"] <= step for rank in ranks)

    def _ask(self, rank: int) -> Any:
        key = f"{self._lead}/{rank}"
        return json.loads(self._store.get(key)) if self._store.check([key]) else None

    def _no(self, why: str) -> bool:
        self._warn(
            f"the model is sharded, but {why}: figures of sharded parameters are left out until all ranks call "
            "run.watch with the same arguments before the same step",
            key=f"watch agreement: {why}",
        )
        return False

    def close(self) -> None:
        """From the next step on this rank takes no part."""
        self._announce(None)


def ranks_of(ways: Sequence[Key | None]) -> list[int]:
    """All ranks that hold a shard of anything, in order."""
    meshes = {id(key[0]): key[0] for key in ways if key is not None}
    return sorted({int(rank) for mesh in meshes.values() for rank in mesh.mesh.flatten().tolist()})
