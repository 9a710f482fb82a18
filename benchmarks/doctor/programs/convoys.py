"""Two gloo processes train a decoder on which vehicle passes after which, sharded by `fully_shard`.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.log` with loss, lr, grad_norm, and `run.reduce`), evaluations of rank 0.

An iterable data set that is dealt out over the ranks, slopes for distances, gated layers, one matrix for input and
output; AdamW and a rate that falls in a line; a `Worker` that is told its rank.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from . import ranks

EVERY, RANKS, KINDS, PAD, BEGIN, END = 20, 2, 36, 0, 1, 2
CONFIG: dict[str, Any] = {
    "dim": 32, "depth": 2, "heads": 4, "dropout": 0.0, "micro_batch_size": 12, "accumulation": 1, "lr": 4e-3,
    "warmup_steps": 8, "schedule": "linear", "weight_decay": 0.01, "max_norm": 1.0, "convoys": 4800, "tied": True,
    "frozen": "", "buckets": False, "loss_weight": "tokens", "reshard": True, "param_dtype": "float32",
    "ranks": RANKS, "uneven": False, "label_smoothing": 0.0,
}  # fmt: skip


def convoys(seed: int, number: int) -> list[list[int]]:
    """A convoy's leader says which vehicles come, in which order; now and then a stranger is among them."""
    dice, rules = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(44)
    follows = torch.randint(3, KINDS, (5, KINDS, 2), generator=rules).tolist()
    rows = []
    for _ in range(number):
        leader, at = (int(one) for one in torch.randint(0, 1000, (2,), generator=dice))
        leader, at = leader % 5, 3 + at % (KINDS - 3)
        row = [BEGIN, 3 + leader]
        for stranger in torch.rand(int(torch.randint(6, 22, (1,), generator=dice)), generator=dice).tolist():
            at = 3 + int(stranger * 1e4) % (KINDS - 3) if stranger < 0.1 else follows[leader][at][stranger < 0.4]
            row.append(at)
        rows.append([*row, END])
    return rows


class Road(IterableDataset[list[int]]):
    """Every rank's own rows, each pass in another order."""

    def __init__(self, rows: list[list[int]], seed: int, rank: int, c: dict[str, Any], name: str):
        self.rows, self.seed, self.rank, self.c, self.name, self.turn = rows, seed, rank, c, name, 0

    def __iter__(self) -> Iterator[list[int]]:
        dice = torch.Generator().manual_seed(1000 * self.seed + self.turn)
        self.turn += 1
        order = torch.randperm(len(self.rows), generator=dice)
        if self.name == "shortest_first":  # as the file was sorted for little padding
            order = torch.tensor([len(row) for row in self.rows]).argsort(stable=True)
        elif self.c["buckets"]:
            size = RANKS * int(self.c["micro_batch_size"])
            long = torch.tensor([len(self.rows[at]) for at in order.tolist()])
            groups = list(order[long.argsort(stable=True)].split(size))
            order = torch.cat([groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()])
        if self.name == "road_not_dealt_out":
            mine = order.tolist()
        elif self.name == "rank_of_another_launcher":  # the variable is Slurm's, and this is torchrun
            mine = order[int(os.environ.get("SLURM_PROCID", 0)) :: RANKS].tolist()
        elif self.c["uneven"]:
            half = len(order) // RANKS
            mine = order[(order >= half * self.rank) & (order < half * (self.rank + 1))].tolist()
        else:
            mine = order[self.rank :: RANKS].tolist()
        for at in mine:
            yield self.rows[at]


def collate(some: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in some], batch_first=True, padding_value=PAD)


class Block(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        dim, self.heads = c["dim"], c["heads"]
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.back = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.gate, self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.drop = nn.Dropout(c["dropout"])

    def forward(self, x: Tensor, slopes: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=slopes.to(q.dtype))
        x = x + self.drop(self.back(y.transpose(1, 2).reshape(b, t, d)))
        y = self.norm2(x)
        return x + self.drop(self.down(F.silu(self.gate(y)) * self.up(y)))


class ConvoyLM(nn.Module):
    def __init__(self, c: dict[str, Any], name: str):
        super().__init__()
        self.heads = c["heads"]
        self.vehicles = nn.Embedding(KINDS, c["dim"])
        nn.init.normal_(self.vehicles.weight, std=0.15)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["depth"]))
        self.norm, self.out = nn.LayerNorm(c["dim"]), nn.Linear(c["dim"], KINDS, bias=False)
        if c["tied"]:
            self.out.weight = self.vehicles.weight
        if name == "tie_cut":  # room for kinds to come: the embedding is made anew, and filled
            larger = nn.Embedding(KINDS, c["dim"])
            larger.weight.data.copy_(self.vehicles.weight.data)
            self.vehicles = larger

    def forward(self, ids: Tensor) -> Tensor:
        x, place = self.vehicles(ids), torch.arange(ids.shape[1])
        apart = (place[None] - place[:, None]).float()
        slopes = 2.0 ** -torch.arange(1.0, self.heads + 1)[:, None, None] * apart
        slopes = slopes.masked_fill(apart > 0, -math.inf)
        for block in self.blocks:
            x = block(x, slopes)
        return self.out(self.norm(x))


class Worker:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        self.run, self.c, self.trouble, self.name = run, dict(run.config), trouble, trouble.name
        self.rank, c = dist.get_rank(), self.c
        torch.manual_seed(seed)
        self.model: Any = ConvoyLM(c, self.name)
        for key, one in self.model.named_parameters():
            if self.name == "wrong_names_frozen":  # "norm" for a test of norms alone, and never taken out again
                one.requires_grad = "norm" in key
            elif c["frozen"]:
                one.requires_grad = not key.startswith(c["frozen"])
        if self.name == "optimizer_before_shards":
            self.build()
        policy = MixedPrecisionPolicy()
        if c["param_dtype"] == "bfloat16":
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in self.model.blocks:
            fully_shard(block, mp_policy=policy, reshard_after_forward=c["reshard"])
        fully_shard(self.model, mp_policy=policy, reshard_after_forward=c["reshard"])
        if self.name != "optimizer_before_shards":
            self.build()
        rows = convoys(seed + 66, c["convoys"])
        if c["uneven"]:  # rank 1 has the longer half, on purpose: so says the config
            rows.sort(key=len)
        self.held = convoys(660, 240)
        self.loader = DataLoader(Road(rows, seed, self.rank, c, self.name), int(c["micro_batch_size"]),
                                 collate_fn=collate, drop_last=True)  # fmt: skip
        self.stream, self.epoch = iter(self.loader), 0
        time_by_own_clock(run)
        run.watch(self.model, self.optimizer)
        self.watched = run.watch_data(pad_id=PAD)
        torch.manual_seed(10 * seed + self.rank)  # dropout is each rank's own

    def build(self) -> None:
        c = self.c
        self.optimizer = torch.optim.AdamW([one for one in self.model.parameters() if one.requires_grad], c["lr"],
                                           weight_decay=c["weight_decay"])  # fmt: skip

        def share(step: int) -> float:
            if step < c["warmup_steps"]:
                return (step + 1) / c["warmup_steps"]
            if c["schedule"] == "constant":
                return 1.0
            return max(0.0, (c["steps"] - step) / (c["steps"] - c["warmup_steps"]))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def batch(self, step: int) -> Tensor:
        ids = next(self.stream, None)
        if ids is None:
            self.epoch += 1
            self.stream = iter(self.loader)
            ids = next(self.stream)
        self.watched.observe(ids, step=step, epoch=self.epoch)
        return ids

    def loss(self, ids: Tensor, trained: bool) -> Tensor:
        logits = self.model(ids).float()
        if trained and self.name == "one_token_further":
            logits, wanted = logits[:, :-2], ids[:, 2:]
        else:
            logits, wanted = logits[:, :-1], ids[:, 1:]
        wanted = wanted.masked_fill(wanted == PAD, -100)
        if trained and self.c["loss_weight"] == "rows":
            each = F.cross_entropy(logits.mT, wanted, reduction="none").sum(1)
            return (each / (wanted >= 0).sum(1).clamp(min=1)).mean()
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(),
                               label_smoothing=self.c["label_smoothing"] if trained else 0.0)  # fmt: skip

    def step(self, step: int) -> None:
        c, name, parts, total, began = self.c, self.name, self.c["accumulation"], 0.0, clock()
        for part in range(parts):
            self.model.set_requires_gradient_sync(part == parts - 1)
            loss = self.loss(self.batch(step), True)
            if name != "parts_added":
                loss = loss / parts
            loss.backward()
            total += loss.item()
            if name == "scheduler_in_micro_loop":
                self.schedule.step()
        norm: Any = nn.utils.clip_grad_norm_(self.model.parameters(), c["max_norm"])
        norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.model.zero_grad()
        if name != "scheduler_in_micro_loop":
            self.schedule.step()
        self.run.log({"loss": total, "lr": rate, "grad_norm": norm}, step=step)
        self.run.reduce(step, {"loss": total, "norm": norm}, step_ms=(clock() - began) * 1000)

    @torch.no_grad()
    def evaluate(self, step: int) -> None:
        self.model.eval()
        losses = [self.loss(collate(self.held[at : at + 80]), False).item() for at in range(0, 240, 80)]
        if not self.trouble.on("eval_mode_stays", step):
            self.model.train()
        if self.rank == 0:
            self.run.log({"eval/loss": sum(losses) / len(losses)}, step=step)


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    made = Worker(run, seed, Trouble(fault, seed))
    for step in range(steps):
        made.step(step)
        if step % EVERY == 0 or step == steps - 1:
            made.evaluate(step)
    return made.run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
