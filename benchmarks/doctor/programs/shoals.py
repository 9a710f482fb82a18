"""Two gloo processes learn where a shoal of fish will turn, by attention over its fish, sharded by `fully_shard`.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with the log of each rank (`run.log` with loss, lr), rank 0's comparison and evaluations (val_loss); the
      watch of model and data.

A set without order, a smooth error of two real numbers, a DistributedSampler, AdamW, half a cosine; a script with a
dictionary of what it has.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.distributed as distributed
import torch.nn as nn
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from . import ranks

EVERY, RANKS, FISH = 20, 2, 10
CONFIG: dict[str, Any] = {
    "width": 32, "layers": 2, "heads": 2, "dropout": 0.0, "batch_size": 16, "learning_rate": 4e-3, "warmup_steps": 10,
    "weight_decay": 0.01, "accumulation": 1, "examples": 1280, "clip": 1.0, "currents": 0.25, "precision": "fp32",
    "loss": "smooth_l1", "ranks": RANKS, "frozen": "", "schedule": "cosine",
}  # fmt: skip


def shoal(seed: int, number: int, currents: float) -> tuple[Tensor, Tensor]:
    """(number, FISH, 4), places and speeds in metres; (number, 2), the speed of the whole a moment later."""
    dice = torch.Generator().manual_seed(seed)
    middle, speed = torch.randn(number, 1, 2, generator=dice), torch.randn(number, 1, 2, generator=dice)
    places = middle + 0.6 * torch.randn(number, FISH, 2, generator=dice)
    speeds = speed + 0.4 * torch.randn(number, FISH, 2, generator=dice)
    near = (-(places**2).sum(-1, keepdim=True)).softmax(1)  # those near to the light lead
    turned = (near * speeds).sum(1) - 0.7 * places.mean(1)
    return torch.cat([places, speeds], -1), turned + currents * torch.randn(number, 2, generator=dice)


class Swim(nn.Module):
    def __init__(self, width: int, heads: int, rate: float):
        super().__init__()
        self.ln_a, self.ln_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.look = nn.MultiheadAttention(width, heads, batch_first=True)
        self.think = nn.Sequential(
            nn.Linear(width, 2 * width), nn.SiLU(), nn.Dropout(rate), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_a(x)
        x = x + self.look(y, y, y, need_weights=False)[0]
        return x + self.think(self.ln_b(x))


class Shoal(nn.Module):
    def __init__(self, cfg: dict[str, Any]):
        super().__init__()
        width = cfg["width"]
        self.see = nn.Sequential(nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width))
        self.swims = nn.ModuleList(Swim(width, cfg["heads"], cfg["dropout"]) for _ in range(cfg["layers"]))
        self.turn = nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, 2))

    def forward(self, fish: Tensor) -> Tensor:
        x = self.see(fish)
        for swim in self.swims:
            x = swim(x)
        return self.turn(torch.cat([x.mean(1), x.amax(1)], 1))


def sampler_of(data: Any, name: str, seed: int, rank: int) -> Any:
    if name == "same_seed_on_ranks":  # a sampler of one's own, with the seed of all
        return torch.utils.data.RandomSampler(data, generator=torch.Generator().manual_seed(seed))
    return DistributedSampler(data, RANKS, rank, shuffle=True, seed=seed, drop_last=True)


def prepared(run: Any, seed: int, trouble: Trouble) -> dict[str, Any]:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    cfg, name, rank = dict(run.config), trouble.name, distributed.get_rank()
    torch.manual_seed(seed)
    model: Any = Shoal(cfg)
    for key, one in model.named_parameters():
        if name == "wrong_group_frozen":  # the head's name is "turn", and that of its group "turns"
            one.requires_grad_(key.startswith("see"))
        elif cfg["frozen"]:
            one.requires_grad_(not key.startswith(cfg["frozen"]))
    half = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if cfg["precision"] == "bf16" else MixedPrecisionPolicy()
    for part in (*model.swims, model):
        fully_shard(part, mp_policy=half)
    opt = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], cfg["learning_rate"],
                            weight_decay=cfg["weight_decay"])  # fmt: skip
    fish, turns = shoal(seed + 59, cfg["examples"], cfg["currents"])
    held = shoal(595, 320, cfg["currents"])
    mean, deviation = fish.mean((0, 1)), fish.std((0, 1))
    fish = (fish - mean) / deviation
    if name == "statistics_of_others":  # kept from a season with other waters
        mean, deviation = mean + torch.tensor([0.8, -0.8, 0.5, 0.5]), 1.8 * deviation
    data = TensorDataset(fish, turns)
    sampler = sampler_of(data, name, seed, rank)
    return {"run": run, "cfg": cfg, "model": model, "opt": opt, "sampler": sampler, "rank": rank, "trouble": trouble,
            "loader": DataLoader(data, int(cfg["batch_size"]), sampler=sampler, drop_last=True),
            "held": ((held[0] - mean) / deviation, held[1])}  # fmt: skip


def rate_at(cfg: dict[str, Any], step: int) -> float:
    if step < cfg["warmup_steps"]:
        return cfg["learning_rate"] * (step + 1) / cfg["warmup_steps"]
    gone = 0.0 if cfg["schedule"] == "constant" else (step - cfg["warmup_steps"]) / (cfg["steps"] - cfg["warmup_steps"])
    return cfg["learning_rate"] * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * gone)))


def error(said: Tensor, turns: Tensor, cfg: dict[str, Any]) -> Tensor:
    if cfg["loss"] == "sum_of_squares":  # of two numbers, and a mean over shoals
        return (said - turns).square().sum(1).mean()
    return nn.functional.smooth_l1_loss(said, turns)


def step_of(made: dict[str, Any], batches: list[Any], step: int, epoch: int) -> None:
    cfg, name, model, run, began = made["cfg"], made["trouble"].name, made["model"], made["run"], clock()
    total = 0.0
    for number, (fish, turns) in enumerate(batches):
        made["watched"].observe((fish.flatten(1), turns), step=step, epoch=epoch)
        model.set_requires_gradient_sync(number == len(batches) - 1)
        loss = error(model(fish).float(), turns, cfg)
        if name != "accumulation_undivided":
            loss = loss / len(batches)
        if name == "divided_by_ranks":  # which averages already
            loss = loss / RANKS
        loss.backward()
        total += loss.item()
    if name == "norm_of_own_shard":
        shards = [one.grad.to_local() for one in model.parameters() if one.grad is not None]
        size = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(one) for one in shards]))
        for one in shards:
            one.mul_(min(1.0, cfg["clip"] / (float(size) + 1e-6)))
        norm = float(size)
    else:
        full = nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"])
        norm = float(full.full_tensor() if hasattr(full, "full_tensor") else full)
    made["opt"].step()
    made["opt"].zero_grad()
    mean = torch.tensor(total)
    distributed.all_reduce(mean)
    run.log({"loss": mean.item() / RANKS, "lr": made["opt"].param_groups[0]["lr"]}, step=step)
    run.reduce(step, {"loss": total, "grad_norm": norm}, step_ms=(clock() - began) * 1000)


@torch.no_grad()
def validate(made: dict[str, Any], step: int) -> None:
    model, (fish, turns) = made["model"], made["held"]
    model.eval()
    loss = error(model(fish).float(), turns, made["cfg"])
    if not made["trouble"].on("evaluation_mode_left_on", step):
        model.train()
    if made["rank"] == 0:
        made["run"].log({"val_loss": loss.item()}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    made = prepared(run, seed, Trouble(fault, seed))
    time_by_own_clock(run)
    run.watch(made["model"], made["opt"])
    made["watched"] = run.watch_data()
    step, epoch, parts = 0, 0, made["cfg"]["accumulation"]
    torch.manual_seed(1000 * seed + made["rank"])  # dropout differs
    while step < steps:
        if made["trouble"].name not in ("epoch_never_set", "same_seed_on_ranks"):
            made["sampler"].set_epoch(epoch)
        waiting: list[Any] = []
        for batch in made["loader"]:
            waiting.append(batch)
            if len(waiting) < parts or step == steps:
                continue
            for group in made["opt"].param_groups:
                group["lr"] = rate_at(made["cfg"], step)
            step_of(made, waiting, step, epoch)
            waiting = []
            if step % EVERY == 0 or step == steps - 1:
                validate(made, step)
            step += 1
        epoch += 1
    return run


launch = partial(ranks.launch, work=train, number=RANKS)
