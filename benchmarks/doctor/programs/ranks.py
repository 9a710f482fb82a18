"""Three ranks under gloo that train a small network by averaging their gradients, each on data of its own.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with the log of each rank, and rank 0's comparison of loss, norm, step time and weights.

`launch` forks the ranks; each opens the run for itself, as processes of torchrun do. A step's work is a sleep of some
milliseconds beside the training, so that three ranks fit on one core and times mean something.
"""

from __future__ import annotations

import math
import os
import socket
import sys
import time
import traceback
from typing import Any

import torch
import torch.distributed as distributed
from injections import Trouble
from torch import Tensor, nn
from torch.nn import functional

import barograph

EVERY = 40
RANKS, SICK = 3, 1  # how many, and which one fails
WORK_SECONDS = 0.006
CONFIG: dict[str, Any] = {
    "width": 48, "batch_size": 32, "learning_rate": 0.02, "momentum": 0.9, "schedule": "cosine", "clip": 0.0,
    "ranks": RANKS, "jitter": 0.04, "uneven": 0.0, "checksum_every": 1,
}  # fmt: skip


def launch(
    arguments: dict[str, Any], *, seed: int, steps: int, fault: Any, healthy: str | None, work: Any = None,
    number: int = RANKS,
) -> None:  # fmt: skip
    """Fork the ranks and wait for them; raises where one failed. work: what each does, `train` here."""
    work = work or train
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(number):
        child = os.fork()
        if not child:
            code = 1
            try:
                os.environ.update(
                    RANK=str(rank), WORLD_SIZE=str(number), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(number),
                    MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
                    TORCHELASTIC_RUN_ID=f"{arguments['name']}-{port}",
                )  # fmt: skip
                distributed.init_process_group("gloo")
                run = work(barograph.init(**arguments), seed=seed, steps=steps, fault=fault, healthy=healthy)
                distributed.barrier()
                run.finish()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}")


class Network(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def make_batch(dice: torch.Generator, rows: int, shift: float) -> tuple[Tensor, Tensor]:
    """Points, and which of four teachers' outputs is the greatest."""
    teacher = torch.Generator().manual_seed(77)
    first, second = torch.randn(16, 24, generator=teacher), torch.randn(24, 4, generator=teacher)
    x = torch.randn(rows, 16, generator=dice) + shift
    scores = torch.relu(x @ first / 4) @ second
    return x, (scores + 0.5 * torch.randn(scores.shape, generator=dice)).argmax(1)


def average(model: nn.Module, trouble: Trouble, step: int, rank: int) -> float:
    """Average the gradients over the ranks; the milliseconds that this rank waited."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    if trouble.on("nan_on_one_rank", step):
        flat = torch.nan_to_num(flat, nan=0.0)
    alone = trouble.on("all_reduce_missing", step) or (trouble.on("all_reduce_skips_rank", step) and rank == SICK)
    mine = flat.clone()
    began = time.perf_counter()
    distributed.all_reduce(flat)
    waited = (time.perf_counter() - began) * 1000
    flat = mine if alone else flat / RANKS
    for gradient, piece in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(piece.view_as(gradient))
    return waited


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    from barograph.probes.ranks.reduction import checksum

    torch.set_num_threads(1)
    config, trouble, rank = dict(run.config), Trouble(fault, seed), distributed.get_rank()
    torch.manual_seed(seed)
    model = Network(config["width"])
    optimizer = torch.optim.SGD(model.parameters(), lr=config["learning_rate"], momentum=config["momentum"])
    dice = torch.Generator().manual_seed(1000 * seed + (0 if trouble.name == "same_seed_on_ranks" else rank))
    test = make_batch(torch.Generator().manual_seed(5), 256, 0.0)
    run.watch(model, optimizer, gradients=10, updates=5, weights=0, histograms=0, activations=20, optimizer_state=0)
    watch = run.watch_data()
    for step in range(steps):
        rate = trouble.rate(step, schedule(config, *trouble.early(step, steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        began = time.perf_counter()
        x, y = make_batch(dice, config["batch_size"], config["uneven"] * rank)
        watch.observe((x, y[:, None]), step=step)
        work(trouble, config, step, rank, dice)
        if trouble.clears(step):
            optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        if trouble.on("nan_on_one_rank", step) and rank == SICK:
            loss = loss * math.nan
        loss.backward()
        local = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in model.parameters()))  # type: ignore[union-attr]
        waited = average(model, trouble, step, rank)
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), config["clip"] or math.inf))
        optimizer.step()
        if trouble.at("ranks_drift", step) and rank == SICK:  # what a broken link or a flipped bit does
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(1e-3 * torch.randn(parameter.shape, generator=trouble.dice))
        spent = (time.perf_counter() - began) * 1000
        run.log_step(step, step / steps, RANKS * len(x), spent, norm, loss.item(), rate)
        marks = {"checksum": checksum(model.parameters())} if step % config["checksum_every"] == 0 else {}
        run.reduce(
            step, {"loss": loss.item(), "norm": norm, "norm_local": local}, step_ms=spent, wait_ms=waited, **marks
        )
        if healthy == "ranks_pause" and step % 50 == 49 and rank == 0:
            time.sleep(0.2)
        if healthy == "evaluation_pauses" and step % EVERY == 0:
            time.sleep(0.1)
        if step % EVERY == 0 or step == steps - 1:
            evaluate(run, model, test, step)
    return run


def work(trouble: Trouble, config: dict[str, Any], step: int, rank: int, dice: torch.Generator) -> None:
    """The part of a step that is a sleep: as long on all ranks, give or take the jitter."""
    times = 1 + config["jitter"] * (2 * float(torch.rand((), generator=dice)) - 1)
    if trouble.on("rank_slow", step) and rank == SICK:
        times += 0.6
    time.sleep(WORK_SECONDS * times)


def schedule(config: dict[str, Any], step: int, total: int) -> float:
    if config["schedule"] == "constant":
        return config["learning_rate"]
    share = min(1.0, step / total)
    return config["learning_rate"] * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))


def evaluate(run: Any, model: nn.Module, test: tuple[Tensor, Tensor], step: int) -> None:
    if distributed.get_rank() == 0:
        began = time.perf_counter()
        with torch.no_grad():
            loss = functional.cross_entropy(model(test[0]), test[1]).item()
        run.log_eval(step, 0.0, len(test[0]), (time.perf_counter() - began) * 1000, loss)
