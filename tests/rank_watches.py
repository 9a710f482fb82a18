"""A training on several ranks that watch their models and log by `run.log`: no loop compares them.

    python tests/rank_watches.py KIND FOLDER STEPS [same] [evaluated]

KIND says how it is trained, and what is unusual; with `same` all ranks have one seed for their data, with `evaluated`
rank 0 evaluates the model behind the last step, or all of them do where it is sharded. Each process is
one rank, with the variables that torchrun sets. It prints how long the run's end took.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn

import barograph


def parallel(kind: str, model: Any) -> Any:
    if kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        return fully_shard(model, mesh=init_device_mesh("cpu", (distributed.get_world_size(),)))
    if kind == "split":  # both ranks have parts of each layer, and FSDP2 has a group of one
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (1, distributed.get_world_size()), mesh_dim_names=("data", "tensor"))
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return fully_shard(model, mesh=mesh["data"])
    if kind in ("averaged", "unequal", "early", "parts"):
        return model
    return nn.parallel.DistributedDataParallel(model)


def main(kind: str, folder: str, steps: int, same: bool, evaluated: bool = False) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(rank if kind == "parts" else 0)
    drops = nn.Dropout(0.1) if kind in ("modes", "evaluates") else nn.Identity()
    model = parallel(kind, nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1), drops))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    run: Any = None
    if rank == 0 or kind != "first":
        options: dict[str, Any] = {"machine": False, "sidecar": False} | ({"ranks": False} if kind == "off" else {})
        run = barograph.init(project="p", output_dir=folder, verbosity=-2, git=False, **options)
        if rank == 0 or kind != "lonely":
            run.watch(model, optimizer)
    data = torch.Generator().manual_seed(7 if same else 7 + rank)
    for step in range(steps):
        inputs = torch.randn(8, 12, generator=data)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if kind == "averaged":  # after the step: until then each rank has weights of its own
            for parameter in model.parameters():
                distributed.all_reduce(parameter.data)
                parameter.data /= distributed.get_world_size()
        if kind in ("modes", "evaluates") and step == 5:  # the first one alone goes back to training mode
            with torch.no_grad():
                model.eval()(inputs)
            model.train(kind == "evaluates" or rank == 0)
        if kind == "early" and rank and step == 4:
            break
        if kind == "reduces" and step % 10 == 9:
            run.reduce(step, {"loss": loss.item()})
        if kind == "differs" and rank == 0 and step >= 9:
            run.reduce(step, {"loss": loss.item()})
        if run is not None and (rank == 0 or step % 3 == 0):  # ranks may log as they like
            run.log({"train/loss": loss.item()}, step=step + 1)
        time.sleep(0.01)
    if evaluated and (rank == 0 or kind == "fsdp"):
        with torch.no_grad():
            (model if kind == "fsdp" else model.module).eval()(torch.randn(64, 12))
    if kind == "destroyed":
        distributed.destroy_process_group()
    began = time.perf_counter()
    if run is not None:
        run.finish()
    print(f"ended in {time.perf_counter() - began:.2f}", flush=True)
    if kind == "early":
        time.sleep(0.0 if rank == 0 else 1.0)  # the store is rank 0's


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), "same" in sys.argv[4:], "evaluated" in sys.argv[4:])
