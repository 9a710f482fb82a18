"""A pretrained image encoder, fine-tuned over two gloo processes by DistributedDataParallel for kinds of its own.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with the log of each rank (`run.step` with accuracy), rank 0's comparison and evaluations; the watch of
      model and data.

The encoder has learnt six kinds of textures on rank 0; DistributedDataParallel hands its weights to the other. The new
task has five other kinds, few pictures of each, and a new head.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as distributed
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from . import ranks
from .loop import factor

EVERY, RANKS, SIDE, OLD, NEW = 20, 2, 16, 6, 5
CONFIG: dict[str, Any] = {
    "channels": 10, "batch_size": 12, "learning_rate": 2e-3, "head_factor": 3.0, "warmup_steps": 10,
    "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "examples": 480, "noise": 0.8, "train": "all",
    "unfreeze_step": 0, "mixup": 0.0, "ranks": RANKS,
}  # fmt: skip


def textures(seed: int, number: int, kinds: range, noise: float) -> tuple[Tensor, Tensor]:
    """Pictures as bytes would be, from 0 to 255, sorted by kind as folders are; and their kinds from 0 on."""
    dice = torch.Generator().manual_seed(seed)
    kind = torch.arange(number) * len(kinds) // number
    which = (kind + kinds.start)[:, None, None].float()
    phase = 6.3 * torch.rand(2, number, 1, 1, generator=dice)
    grid = torch.arange(SIDE).float()
    turn = 0.9 * which + 0.25 * torch.randn(number, 1, 1, generator=dice)
    along = turn.cos() * grid + turn.sin() * grid[:, None]
    waves = torch.sin((0.6 + 0.13 * (which % 4)) * along + phase[0]) + 0.5 * torch.sin(1.9 * grid + phase[1])
    drawn = waves + noise * torch.randn(number, SIDE, SIDE, generator=dice)
    return (110 + 45 * drawn).clamp(0, 255)[:, None], kind


class Encoder(nn.Module):
    def __init__(self, config: dict[str, Any], kinds: int):
        super().__init__()
        wide = config["channels"]
        self.backbone = nn.Sequential(*(
            nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
            for before, after, stride in ((1, wide, 1), (wide, 2 * wide, 2), (2 * wide, 3 * wide, 2))
        ))  # fmt: skip
        self.fc = nn.Linear(3 * wide, kinds)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.fc(self.backbone(pictures).mean((2, 3)))


def scaled(pictures: Tensor) -> Tensor:
    return (pictures - 110) / 50


def pretrain(config: dict[str, Any]) -> dict[str, Tensor]:
    """The weights of an encoder that tells other kinds apart."""
    torch.manual_seed(6)
    model = Encoder(config, OLD)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    pictures, kinds = textures(66, 900, range(OLD), 0.5)
    for _ in range(70):
        chosen = torch.randint(0, len(kinds), (32,))
        loss = functional.cross_entropy(model(scaled(pictures[chosen])), kinds[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.state_dict()


class Tuning:
    def __init__(self, run: Any, seed: int, trouble: Trouble, healthy: str | None):
        from torch.nn.parallel import DistributedDataParallel

        self.run, self.config, self.trouble, self.healthy = run, dict(run.config), trouble, healthy
        self.rank = distributed.get_rank()
        weights = pretrain(self.config) if self.rank == 0 else {}
        torch.manual_seed(seed)
        self.model = Encoder(self.config, NEW)
        if trouble.name == "weights_under_other_names":  # saved from a wrapped model: each name begins with "module."
            weights = {f"module.{name}": value for name, value in weights.items()}
        weights = {name: value for name, value in weights.items() if not name.startswith("fc.")}
        self.model.load_state_dict(weights, strict=False)
        self.freeze()
        self.wrapped = DistributedDataParallel(self.model, find_unused_parameters=self.config["train"] == "head")
        rate = self.config["learning_rate"]
        groups = [{"params": list(self.model.backbone.parameters()), "lr": rate},
                  {"params": list(self.model.fc.parameters()), "lr": rate * self.config["head_factor"]}]  # fmt: skip
        self.optimizer = torch.optim.AdamW(groups, weight_decay=self.config["weight_decay"])
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: factor(self.config, self.config["steps"], step)
        )
        self.data = textures(seed + 76, self.config["examples"], range(OLD, OLD + NEW), self.config["noise"])
        self.test = textures(767, 200, range(OLD, OLD + NEW), self.config["noise"])
        self.seed, self.epoch, self.order = seed, -1, torch.empty(0, dtype=torch.long)
        self.dice = torch.Generator().manual_seed(1000 * seed + self.rank)

    def freeze(self) -> None:
        name, train = self.trouble.name, self.config["train"]
        if name == "wrong_group_frozen":
            self.model.fc.requires_grad_(False)
        elif train == "head":
            self.model.backbone.requires_grad_(False)

    def batch(self) -> tuple[Tensor, Tensor]:
        """This rank's share of an epoch, as a DistributedSampler deals it out."""
        rows = int(self.config["batch_size"])
        if len(self.order) < rows:
            self.epoch += 1
            known = 0 if self.trouble.name == "order_never_changes" else self.epoch
            dice = torch.Generator().manual_seed(100 * self.seed + known)
            order = torch.randperm(len(self.data[0]), generator=dice)
            if self.trouble.name == "pictures_by_class":
                order = torch.arange(len(self.data[0]))
            self.order = order if self.trouble.name == "same_seed_on_ranks" else order[self.rank :: RANKS]
        chosen, self.order = self.order[:rows], self.order[rows:]
        return self.data[0][chosen], self.data[1][chosen]

    def loss(self, model: nn.Module, pictures: Tensor, kinds: Tensor) -> tuple[Tensor, float]:
        given = pictures if self.trouble.name == "inputs_as_bytes" else scaled(pictures)
        wanted = functional.one_hot(kinds, NEW).float()
        if model.training and self.config["mixup"]:
            share = torch.rand(len(kinds), generator=self.dice) * self.config["mixup"]
            other = torch.randperm(len(kinds), generator=self.dice)
            given = given.lerp(given[other], share[:, None, None, None])
            wanted = wanted.lerp(wanted[other], share[:, None])
        logits = model(given)
        return functional.cross_entropy(logits, wanted), (logits.argmax(1) == kinds).float().mean().item()

    def one(self, step: int) -> None:
        trouble, began = self.trouble, clock()
        trouble.freeze(step, self.model.backbone[2])
        alone = trouble.on("all_reduce_missing", step)
        with self.run.step(step=step) as timed:
            with self.run.phase("data"):
                pictures, kinds = self.batch()
                self.watched.observe((pictures.flatten(1), kinds[:, None]), step=step, epoch=self.epoch)
            self.wrapped.train()
            if self.healthy == "frozen_statistics":  # the backbone's batch norm keeps what it has
                self.model.backbone.eval()
            if trouble.clears(step):
                self.optimizer.zero_grad()
            with self.wrapped.no_sync() if alone else nullcontext():
                loss, accuracy = self.loss(self.wrapped, pictures, kinds)
                loss.backward()
            if step < self.config["unfreeze_step"]:  # the head alone at first
                for parameter in self.model.backbone.parameters():
                    parameter.grad = None
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config["clip"]).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.scheduler.step()
            timed.set(loss=loss.item(), lr=rate, norm=norm, accuracy=accuracy, epoch=self.epoch)
        self.run.reduce(step, {"loss": loss.item(), "norm": norm}, step_ms=(clock() - began) * 1000)

    @torch.no_grad()
    def evaluate(self, step: int) -> None:
        began = clock()
        self.model.eval()
        loss, accuracy = self.loss(self.model, *self.test)
        self.model.train()
        self.run.log_eval(step, self.epoch, len(self.test[1]), (clock() - began) * 1000, loss.item(),
                          accuracy=accuracy)  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    made = Tuning(run, seed, Trouble(fault, seed), healthy)
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    made.watched = run.watch_data()
    for step in range(steps):
        made.one(step)
        if made.rank == 0 and (step % EVERY == 0 or step == steps - 1):
            made.evaluate(step)
    return run


launch = partial(ranks.launch, work=train, number=RANKS)
