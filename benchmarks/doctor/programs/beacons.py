"""Two gloo processes put flashes of beacons into six kinds, by convolutions that `fully_shard` shards.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with the log of each rank (`run.log` with loss, acc, lr), rank 0's comparison and evaluations (val_loss,
      val_acc); the watch of model and data.

An iterable data set, of which each rank takes every second example; group norm, Nesterov's momentum, a rate that falls
by a power.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as distributed
from injections import Trouble, clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from . import ranks
from .parts import watched_rank

EVERY, RANKS, KINDS, LONG = 20, 2, 6, 40
CONFIG: dict[str, Any] = {
    "channels": 24, "depth": 2, "dropout": 0.0, "batch_size": 16, "learning_rate": 0.05, "momentum": 0.9,
    "weight_decay": 1e-4, "warmup_steps": 10, "schedule": "power", "accumulation": 1, "examples": 1280, "clip": 2.0,
    "ranks": RANKS, "fog": 0.5, "wrong_labels": 0.03, "precision": "fp32", "optimizer": "sgd",
}  # fmt: skip


def flashes(seed: int, number: int, fog: float, wrong: float) -> tuple[Tensor, Tensor]:
    """(number, 1, LONG) and kinds: by how many times a beacon flashes in a round, and for how long."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (number,), generator=dice)
    times, long = 1 + kinds % 3, 0.15 + 0.2 * (kinds // 3)
    begin = torch.rand(number, 1, generator=dice)
    turn = (times[:, None] * (begin + torch.arange(LONG) / LONG)) % 1
    lit = (turn < long[:, None]).float() * (0.7 + 0.6 * torch.rand(number, 1, generator=dice))
    mistaken = torch.rand(number, generator=dice) < wrong
    told = torch.where(mistaken, torch.randint(0, KINDS, (number,), generator=dice), kinds)
    return (lit + fog * torch.randn(lit.shape, generator=dice))[:, None], told


class Log(IterableDataset[tuple[Tensor, Tensor]]):
    """A rank's examples of an epoch."""

    def __init__(self, lights: Tensor, kinds: Tensor, rank: int, seed: int):
        self.lights, self.kinds, self.rank, self.seed, self.epoch = lights, kinds, rank, seed, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.kinds), generator=torch.Generator().manual_seed(1000 * self.seed + self.epoch))
        for one in order[self.rank :: RANKS].tolist():
            yield self.lights[one], self.kinds[one]


class Stage(nn.Module):
    def __init__(self, channels: int, rate: float):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.wide = nn.Conv1d(channels, channels, 7, padding=3, padding_mode="circular")
        self.narrow = nn.Conv1d(channels, channels, 1)
        self.drop = nn.Dropout(rate)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(self.drop(F.silu(self.wide(self.norm(x)))))


class Lookout(nn.Module):
    def __init__(self, cfg: dict[str, Any]):
        super().__init__()
        channels = cfg["channels"]
        self.first = nn.Conv1d(1, channels, 7, padding=3, padding_mode="circular")
        self.stages = nn.ModuleList(Stage(channels, cfg["dropout"]) for _ in range(cfg["depth"]))
        self.last = nn.Linear(2 * channels, KINDS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for stage in self.stages:
            x = stage(x)
        return self.last(torch.cat([x.mean(2), x.amax(2)], 1))


class Keeper:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        self.run, self.cfg, self.trouble = run, dict(run.config), trouble
        cfg, name = self.cfg, trouble.name
        self.rank = distributed.get_rank()
        torch.manual_seed(seed)
        self.model: Any = Lookout(cfg)
        if name == "wrong_group_frozen":
            self.model.stages.requires_grad_(False)
            self.model.last.requires_grad_(False)
        low = cfg["precision"] == "bf16"
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if low else MixedPrecisionPolicy()
        for part in (*self.model.stages, self.model):
            fully_shard(part, mp_policy=policy)
        self.trained = [one for one in self.model.parameters() if one.requires_grad]
        if cfg["optimizer"] == "adamw":
            self.optimizer: Any = torch.optim.AdamW(self.trained, lr=0.06 * cfg["learning_rate"])
        else:
            self.optimizer = torch.optim.SGD(self.trained, lr=cfg["learning_rate"], momentum=cfg["momentum"],
                                             nesterov=True, weight_decay=cfg["weight_decay"])  # fmt: skip
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share)
        part = 0 if name == "same_seed_on_ranks" else self.rank
        self.log = Log(*flashes(seed + 51, cfg["examples"], cfg["fog"], cfg["wrong_labels"]), part, seed)
        self.loader: Any = DataLoader(self.log, int(cfg["batch_size"]), drop_last=True)
        self.test = flashes(515, 256, cfg["fog"], cfg["wrong_labels"])
        self.batches, self.epoch = iter(self.loader), 0

    def share(self, step: int) -> float:
        warmup, total = self.cfg["warmup_steps"], self.cfg["steps"]
        if step < warmup:
            return (step + 1) / warmup
        return 1.0 if self.cfg["schedule"] == "constant" else max(0.0, 1 - (step - warmup) / (total - warmup)) ** 1.5

    def batch(self) -> tuple[Tensor, Tensor]:
        found = next(self.batches, None)
        if found is None:
            self.epoch += 1
            if self.trouble.name != "epoch_never_set":
                self.log.epoch = self.epoch
            self.batches = iter(self.loader)
            found = next(self.batches)
        return found

    def step(self, step: int) -> None:
        cfg, name, began = self.cfg, self.trouble.name, clock()
        parts, sums = cfg["accumulation"], torch.zeros(2)
        for part in range(parts):
            x, y = self.batch()
            self.watched.observe((x.flatten(1), y[:, None]), step=step, epoch=self.epoch)
            self.model.set_requires_gradient_sync(part == parts - 1)
            scores = self.model(x).float()
            loss = F.cross_entropy(scores, y) / parts
            if name == "divided_by_ranks":
                loss = loss / RANKS
            loss.backward()
            sums += torch.stack([loss.detach(), (scores.argmax(1) == y).float().mean() / parts])
            if name == "scheduler_per_micro_batch":
                self.scheduler.step()
        self.trouble.gradients(step, self.model, self.model.stages[0])
        norm = nn.utils.clip_grad_norm_(self.trained, cfg["clip"])
        norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if name != "scheduler_per_micro_batch":
            self.scheduler.step()
        own = sums[0].item()
        distributed.all_reduce(sums)
        if name != "summed_over_ranks":
            sums = sums / RANKS
        self.run.log({"loss": sums[0].item(), "acc": sums[1].item(), "lr": rate}, step=step)
        self.run.reduce(step, {"loss": own, "grad_norm": norm}, step_ms=(clock() - began) * 1000)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        """Each rank has all of the test, since a layer is gathered from both."""
        self.model.eval()
        scores, kinds = self.model(self.test[0]).float(), self.test[1]
        self.model.train(not self.trouble.on("evaluation_mode_left_on", step))
        if self.rank == 0:
            self.run.log({"val_loss": F.cross_entropy(scores, kinds).item(),
                          "val_acc": (scores.argmax(1) == kinds).float().mean().item()}, step=step)  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    return watched_rank(Keeper(run, seed, Trouble(fault, seed)), run, steps, EVERY)


launch = partial(ranks.launch, work=train, number=RANKS)
