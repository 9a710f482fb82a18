"""A mixer over windows of three series, sharded over two gloo processes by `fully_shard`, foresees the next hours.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with the log of each rank (`run.log` with loss, lr, grad_norm), rank 0's comparison and evaluations
      (valid_loss, valid_mae); the watch of model and data.

The loss of Huber, `DataLoader` and `DistributedSampler`, AdamW, a linear fall of the rate.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as distributed
from injections import Trouble, clock
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from . import ranks
from .parts import watched_rank

EVERY, RANKS, SERIES, WINDOW, AHEAD = 20, 2, 3, 24, 4
CONFIG: dict[str, Any] = {
    "width": 32, "depth": 2, "dropout": 0.0, "batch_size": 16, "learning_rate": 3e-3, "warmup_steps": 10,
    "schedule": "linear", "weight_decay": 0.01, "clip": 0.25, "accumulation": 1, "examples": 1600, "noise": 0.5,
    "ranks": RANKS, "optimizer": "adamw", "delta": 1.0, "precision": "fp32",
}  # fmt: skip


def windows(seed: int, number: int, noise: float) -> tuple[Tensor, Tensor]:
    """(number, WINDOW, SERIES) and what follows, (number, AHEAD): tones; the last series lags behind the first."""
    dice = torch.Generator().manual_seed(seed)
    time = torch.arange(WINDOW + AHEAD).float()
    pitch = 0.2 + 0.5 * torch.rand(number, 2, 1, generator=dice)
    phase = 6.3 * torch.rand(number, 2, 1, generator=dice)
    tones = torch.sin(pitch * time + phase)
    late = torch.sin(pitch[:, 0] * (time - 4) + phase[:, 0]) * tones[:, 1].sign()
    every = torch.stack([tones[:, 0], tones[:, 1], late], 2)
    every = every + noise * torch.randn(every.shape, generator=dice)
    return every[:, :WINDOW], every[:, WINDOW:, 0] + 0.5 * every[:, WINDOW:, 1]


class Mix(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        width, self.rate = config["width"], config["dropout"]
        self.always = name == "functional_dropout"
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_time = nn.Sequential(nn.Linear(WINDOW, 2 * WINDOW), nn.GELU(), nn.Linear(2 * WINDOW, WINDOW))
        self.over_width = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.rate, training=self.training or self.always) if self.rate else x

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.over_time(self.norm1(x).transpose(1, 2)).transpose(1, 2))
        return x + self.drop(self.over_width(self.norm2(x)))


class Mixer(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        width = config["width"]
        self.enter = nn.Linear(SERIES, width)
        self.mixes = nn.ModuleList(Mix(config, name) for _ in range(config["depth"]))
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, AHEAD)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for mix in self.mixes:
            x = mix(x)
        return self.leave(self.norm(x).mean(1))


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config, name = self.config, trouble.name
        self.rank = distributed.get_rank()
        torch.manual_seed(seed)
        self.model: Any = Mixer(config, name)
        if name == "wrong_group_frozen":
            self.model.mixes.requires_grad_(False)
            self.model.leave.requires_grad_(False)
        low = config["precision"] == "bf16"
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if low else MixedPrecisionPolicy()
        for mix in self.model.mixes:
            fully_shard(mix, mp_policy=policy)
        fully_shard(self.model, mp_policy=policy)
        trained = [one for one in self.model.parameters() if one.requires_grad]
        if config["optimizer"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(trained, lr=20 * config["learning_rate"], momentum=0.9)
        else:
            self.optimizer = torch.optim.AdamW(trained, lr=config["learning_rate"],
                                               weight_decay=config["weight_decay"])  # fmt: skip
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share)
        data = TensorDataset(*windows(seed + 41, config["examples"], config["noise"]))
        self.test = windows(414, 256, config["noise"])
        # of the library that asks for a rank, and was given none
        part = 0 if name == "same_seed_on_ranks" else self.rank
        self.sampler: Any = DistributedSampler(data, RANKS, part, shuffle=True, seed=seed, drop_last=True)
        self.loader = DataLoader(data, int(config["batch_size"]), sampler=self.sampler, drop_last=True)
        self.epoch, self.batches = -1, iter(())  # type: int, Any

    def share(self, step: int) -> float:
        warmup, total = self.config["warmup_steps"], self.config["steps"]
        if step < warmup:
            return (step + 1) / warmup
        return 1.0 if self.config["schedule"] == "constant" else max(0.02, (total - step) / (total - warmup))

    def batch(self) -> tuple[Tensor, Tensor]:
        try:
            return next(self.batches)
        except StopIteration:
            self.epoch += 1
            if self.trouble.name != "epoch_never_set":
                self.sampler.set_epoch(self.epoch)
            self.batches = iter(self.loader)
            return next(self.batches)

    def loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        said = self.model(x).float()
        return functional.huber_loss(said, y, delta=self.config["delta"]), (said - y).abs().mean()

    def step(self, step: int) -> None:
        trouble, config, began = self.trouble, self.config, clock()
        parts, total = config["accumulation"], 0.0
        for part in range(parts):
            x, y = self.batch()
            if trouble.on("validation_leak", step):
                some = torch.randint(0, len(self.test[0]), (RANKS * len(x),), generator=trouble.dice)[
                    self.rank :: RANKS
                ]
                x, y = self.test[0][some], self.test[1][some]
            self.watched.observe((x.flatten(1), y), step=step, epoch=self.epoch)
            self.model.set_requires_gradient_sync(part == parts - 1)
            loss, _ = self.loss(x, y)
            if trouble.name == "divided_by_ranks":  # `fully_shard` averages over ranks, too
                loss = loss / RANKS
            if trouble.name != "accumulation_undivided":
                loss = loss / parts
            loss.backward()
            total += loss.item()
        trouble.gradients(step, self.model, self.model.mixes[1])
        trained = [one for one in self.model.parameters() if one.requires_grad]
        if trouble.name == "norm_of_own_shard":
            own = [one.grad.to_local() for one in trained if one.grad is not None]
            norm = float(torch.stack([one.norm() for one in own]).norm())
            for one in own:
                one.mul_(min(1.0, config["clip"] / (norm + 1e-6)))
        else:
            found = nn.utils.clip_grad_norm_(trained, config["clip"])
            norm = float(found.full_tensor() if hasattr(found, "full_tensor") else found)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.scheduler.step()
        if trouble.clears(step):
            self.optimizer.zero_grad()
        self.run.log({"loss": total, "lr": rate, "grad_norm": norm, "epoch": self.epoch}, step=step)
        self.run.reduce(step, {"loss": total, "grad_norm": norm}, step_ms=(clock() - began) * 1000)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        """All ranks, since each has a part of the weights; the first one logs."""
        self.model.eval()
        loss, error = self.loss(*self.test)
        self.model.train()
        if self.rank == 0:
            self.run.log({"valid_loss": loss.item(), "valid_mae": error.item()}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    return watched_rank(Script(run, seed, Trouble(fault, seed)), run, steps, EVERY)


launch = partial(ranks.launch, work=train, number=RANKS)
