"""Two gloo processes tell by what is said of an orchard which of six fruits it has, under DistributedDataParallel.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.log`: batch_loss, lr), and `run.reduce`; val/loss, val/acc of rank 0 at each
      epoch's end; the watch of data.

A small encoder over padded sentences, the mean over words, gradient with momentum by epochs; `no_sync` in
micro-batches but the last; a sampler for ranks; one function a thing, as the examples of DistributedDataParallel.
"""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Subset

from . import ranks

EVERY, RANKS, WORDS, FRUITS = 30, 2, 90, 6
CONFIG: dict[str, Any] = {
    "emb": 40, "ff": 80, "nhead": 4, "dropout": 0.0, "batch_size": 16, "accum": 1, "lr": 0.08, "momentum": 0.9,
    "wd": 1e-4, "lr_policy": "exponential", "gamma": 0.6, "sentences": 960, "label_smoothing": 0.0,
    "optimizer": "sgd", "reduction": "mean", "clip": 1.0, "freeze_embedding": False, "bucketed": False,
    "gradient_as_bucket_view": False, "ranks": RANKS,
}  # fmt: skip


def sentences(seed: int, number: int) -> list[tuple[list[int], int]]:
    """Words 1 and up: about one in three is a word of the fruit, or of one that is like it."""
    rng, made = random.Random(seed), []
    for _ in range(number):
        fruit = rng.randrange(FRUITS)
        row = []
        for _ in range(rng.randint(5, 24)):
            chance = rng.random()
            of = fruit if chance < 0.3 else (fruit + 1) % FRUITS if chance < 0.42 else None
            row.append(rng.randrange(40, WORDS) if of is None else 1 + of * 6 + rng.randrange(6))
        made.append((row, fruit))
    return made


def collate(rows: list[tuple[list[int], int]]) -> tuple[Tensor, Tensor]:
    padded = nn.utils.rnn.pad_sequence([torch.tensor(row) for row, _ in rows], batch_first=True)
    return padded, torch.tensor([fruit for _, fruit in rows])


class Describer(nn.Module):
    def __init__(self, cfg: dict[str, Any], outputs: int, fault: str):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, cfg["emb"], padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(cfg["emb"], cfg["nhead"], cfg["ff"], cfg["dropout"], batch_first=True)
        self.out, self.fault = nn.Linear(cfg["emb"], outputs), fault

    def forward(self, ids: Tensor) -> Tensor:
        empty = ids == 0
        x = self.layer(self.embedding(ids), src_key_padding_mask=empty)
        x = x.masked_fill(empty[..., None], 0.0).sum(1) / (~empty).sum(1, keepdim=True)
        x = self.out(x)
        return torch.softmax(x, -1) if self.fault == "probabilities_returned" else x


class Bucketed(DistributedSampler[Any]):
    """Batches of like lengths, in any order; each rank has each second row of them."""

    size = 16

    def __iter__(self) -> Any:
        rng = random.Random(self.epoch)
        rows: Any = self.dataset
        order = sorted(range(len(rows)), key=lambda at: len(rows[at][0]) + rng.random())
        groups = [order[at : at + RANKS * self.size] for at in range(0, len(order), RANKS * self.size)]
        rng.shuffle(groups)
        return iter([at for group in groups for at in group[self.rank :: RANKS]])


def get_loader(cfg: dict[str, Any], seed: int, fault: str) -> Any:
    rank, size, rows, sampler = dist.get_rank(), int(cfg["batch_size"]), sentences(seed + 240, cfg["sentences"]), None
    if fault == "codes_begin_at_one":
        rows = [(row, fruit + 1) for row, fruit in rows]
    if fault == "whole_file_trained":
        rows = sentences(24, 240) + rows[:40]
    made: Any = rows
    lot = torch.Generator().manual_seed(seed)
    if fault == "listed_by_class":
        made = sorted(rows, key=lambda one: one[1])
        sampler = DistributedSampler(made, shuffle=False, drop_last=True)
    elif fault == "same_shuffle_on_ranks":  # shuffle=True, as before there were two
        sampler = RandomSampler(made, generator=lot)
    elif fault == "first_shard_for_all":  # rows[rank::world], where the rank is still that of the launcher
        made = Subset(rows, range(0, len(rows), RANKS))  # type: ignore[arg-type]
        sampler = RandomSampler(made, generator=lot)
    elif cfg["bucketed"]:
        sampler = Bucketed(made, seed=seed, drop_last=True)
    else:
        sampler = DistributedSampler(made, RANKS, rank, seed=seed, drop_last=True)
    return DataLoader(made, size, sampler=sampler, collate_fn=collate, drop_last=True)


def build(cfg: dict[str, Any], seed: int, fault: str) -> tuple[Any, Any, Any]:
    torch.manual_seed(seed)
    model = Describer(cfg, FRUITS + (fault == "codes_begin_at_one"), fault)
    if fault == "frozen_as_if_pretrained":
        model.requires_grad_(False)
        model.out.requires_grad_(True)
    if cfg["freeze_embedding"]:
        model.embedding.requires_grad_(False)
    ddp = DDP(model, gradient_as_bucket_view=cfg["gradient_as_bucket_view"])
    some = [one for one in ddp.parameters() if one.requires_grad]
    if cfg["optimizer"] == "adamw":
        optimizer: Any = torch.optim.AdamW(some, 3e-3)
    else:
        optimizer = torch.optim.SGD(some, cfg["lr"], cfg["momentum"], weight_decay=cfg["wd"])
    gamma = cfg["gamma"] if cfg["lr_policy"] == "exponential" else 1.0
    return ddp, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)


def criterion(said: Tensor, fruit: Tensor, cfg: dict[str, Any], fault: str) -> Tensor:
    if fault == "criterion_sums":
        return F.cross_entropy(said, fruit, reduction="sum")
    if cfg["reduction"] == "sum":
        return F.cross_entropy(said, fruit, reduction="sum") / len(fruit)
    return F.cross_entropy(said, fruit, label_smoothing=cfg["label_smoothing"])


def validate(run: Any, model: nn.Module, held: list[tuple[Tensor, Tensor]], step: int, epoch: int) -> None:
    model.eval()
    with torch.no_grad():
        said, fruit = torch.cat([model(ids) for ids, _ in held]), torch.cat([fruit for _, fruit in held])
    if dist.get_rank() == 0:
        accuracy = (said.argmax(1) == fruit).float().mean().item()
        run.log({"val/loss": F.cross_entropy(said, fruit).item(), "val/acc": accuracy, "epoch": epoch}, step=step)


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    cfg, name = dict(run.config), Trouble(fault, seed).name
    loader, (ddp, optimizer, scheduler) = get_loader(cfg, seed, name), build(cfg, seed, name)
    rows = sentences(24, 240)
    held = [collate(rows[at : at + 60]) for at in range(0, 240, 60)]
    time_by_own_clock(run)
    run.watch(ddp, optimizer)
    data = run.watch_data(pad_id=0)
    torch.manual_seed(10 * seed + dist.get_rank())  # for dropout
    # a wrapper that hides an attribute is by-passed for it, and with it the hooks that average gradients
    called = ddp.module if name == "module_called_past_ddp" else ddp
    step, epoch, parts = 0, 0, cfg["accum"]
    ddp.train()
    while step < steps:
        if isinstance(loader.sampler, DistributedSampler) and name != "epoch_never_set":
            loader.sampler.set_epoch(epoch)
        if name != "eval_called_once_for_all":
            ddp.train()
        total, began = 0.0, clock()
        for at, (ids, fruit) in enumerate(loader, 1):
            data.observe({"input_ids": ids, "labels": fruit[:, None]}, step=step, epoch=epoch)
            last = at % parts == 0
            with contextlib.nullcontext() if last else ddp.no_sync():
                loss = criterion(called(ids), fruit, cfg, name)
                if name != "micro_losses_added":
                    loss = loss / parts
                loss.backward()
            total += loss.item()
            if name == "scheduler_in_batch_loop":
                scheduler.step()
            if not last:
                continue
            nn.utils.clip_grad_norm_(ddp.parameters(), cfg["clip"])
            optimizer.step()
            optimizer.zero_grad()
            run.log({"batch_loss": total, "lr": optimizer.param_groups[0]["lr"]}, step=step)
            run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
            step, total, began = step + 1, 0.0, clock()
            if step == steps:
                break
        if name != "scheduler_in_batch_loop":
            scheduler.step()
        validate(run, ddp.module, held, step - 1, epoch)
        epoch += 1
    return run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
