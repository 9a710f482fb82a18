"""One rank of a sharded training with a watch; run by test_sharded.py. Prints nothing; rank 0 leaves a JSON file.

Arguments: kind (fsdp, ddp, hybrid, tensor, unequal, missing, late), file.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn

sys.path.insert(0, os.path.dirname(__file__))

from watched_models import Model, Notes, loss_of

from barograph.integrations.monitor import TrainingMonitor
from barograph.probes.model.watch import ModelWatch

STEPS = 5
OPTIONS: dict[str, Any] = {
    "gradients": 2, "updates": 2, "weights": 2, "histograms": 2, "activations": 2, "optimizer_state": 2, "spectral": 2,
}  # fmt: skip


def batch(rank: int, step: int) -> Any:
    return torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(100 * step + rank))


def prepared() -> Model:
    torch.manual_seed(3)
    model = Model()
    model.frozen = nn.Linear(3, 3).requires_grad_(False)
    return model


def unsharded(size: int, notes: Notes, clips: bool) -> None:
    """The same training in one process: the mean of all ranks' losses."""
    model = prepared()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    watch = ModelWatch(notes, model, optimizer, **OPTIONS)
    for step in range(STEPS):
        for rank in range(size):
            (loss_of(model, batch(rank, step)) / size).backward()
        if clips:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        notes.log(step)
    watch.close()


def sharded(model: Any, kind: str, size: int) -> Any:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh

    if kind == "tensor":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (size,))
        plan = {}
        for number in range(3):
            plan |= {f"blocks.{number}.up": ColwiseParallel(), f"blocks.{number}.down": RowwiseParallel()}
        return parallelize_module(model, mesh, plan)
    from torch.distributed.fsdp import fully_shard

    if kind == "hybrid":
        mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (size,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main(kind: str, file: str) -> None:
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    notes = Notes(rank=rank, world_size=size)
    model = sharded(prepared(), kind, size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    options = OPTIONS | ({"gradients": 1} if kind == "unequal" and rank == 1 else {})
    if kind == "budget":
        options |= {"budget": 1e-5}
    watch = None
    if not (kind == "missing" and rank == 1) and kind != "late":
        watch = ModelWatch(notes, model, optimizer, **options)
    monitor = TrainingMonitor(model, 2, enable_spectral_norms=True)
    metrics: dict[str, float] = {}
    for step in range(STEPS):
        if kind == "late" and step == rank + 1:
            watch = ModelWatch(notes, model, optimizer, **options)
        loss_of(model, batch(0 if kind == "tensor" else rank, step)).backward()
        if kind != "tensor":  # torch's clipping does not take tensors and DTensors together
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if kind == "fsdp":
            metrics = monitor.get_all_metrics(step)
        optimizer.step()
        optimizer.zero_grad()
        notes.log(step)
    if watch is not None:
        watch.close()
    found: dict[str, Any] = {
        "records": [(step, fields) for kind, step, fields in notes.records if kind == "model"],
        "tables": {f"{name}@{step}": table for (name, step), table in notes.tables.items()},
        "histograms": {f"{name}@{step}": [list(map(float, part)) for part in pair]
                       for (name, step), pair in notes.histograms.items()},
        "warnings": list(notes.warnings), "metrics": metrics,
        "intervals": None if watch is None else watch.schedule.intervals,
    }  # fmt: skip
    whole = Notes()
    if rank == 0:
        unsharded(1 if kind == "tensor" else size, whole, kind != "tensor")
        found["whole"] = {
            "records": [(step, fields) for kind, step, fields in whole.records if kind == "model"],
            "tables": {f"{name}@{step}": table for (name, step), table in whole.tables.items()},
            "histograms": {f"{name}@{step}": [list(map(float, part)) for part in pair]
                           for (name, step), pair in whole.histograms.items()},
        }  # fmt: skip
    with open(f"{file}.{rank}", "w") as out:
        json.dump(found, out)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
