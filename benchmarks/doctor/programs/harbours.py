"""Two gloo processes train a decoder on which harbour a ship calls at after which, sharded by `fully_shard`.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.step` with loss, norm, lr, tokens), and `run.reduce`; eval/loss of rank 0 at
      each twentieth step; the watch of data.

A map-style data set and a `DistributedSampler`, places turned, root mean square norms, input and output one matrix;
AdamW and half a cosine; functions over the rank's own state, as a script for torchrun has.
"""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torch.utils.data.distributed import DistributedSampler

from . import ranks

EVERY, RANKS, PORTS, PAD, BEGIN, END, MAX = 20, 2, 40, 0, 1, 2, 28
CONFIG: dict[str, Any] = {
    "hidden": 32, "layers": 2, "heads": 4, "dropout": 0.0, "batch_per_rank": 12, "grad_accum": 1, "lr": 4e-3,
    "min_lr": 2e-4, "warmup": 8, "lr_schedule": "cosine", "weight_decay": 0.05, "clip_norm": 1.0, "voyages": 960,
    "tied": True, "freeze": "", "mp_dtype": "float32", "reshard_after_forward": True, "label_smoothing": 0.0,
    "loss_mean": "tokens", "by_length": False, "optimizer": "adamw", "ranks": RANKS,
}  # fmt: skip


def voyages(seed: int, number: int) -> list[list[int]]:
    """A ship's line says between which harbours it goes; from each it has two ways on, of which one is usual."""
    dice, charts = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(12)
    ways = torch.randint(9, PORTS, (6, PORTS, 2), generator=charts).tolist()
    rows = []
    for _ in range(number):
        line = int(torch.randint(0, 6, (1,), generator=dice))
        at, row = int(torch.randint(9, PORTS, (1,), generator=dice)), [BEGIN, 3 + line]
        for storm in torch.rand(int(torch.randint(5, MAX - 3, (1,), generator=dice)), generator=dice).tolist():
            row.append(at)
            at = ways[line][at][int(storm < 0.25)] if storm < 0.94 else 9 + int(storm * 1e5) % (PORTS - 9)
        rows.append([*row, END])
    return rows


class Voyages(Dataset[list[int]]):
    def __init__(self, rows: list[list[int]]):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> list[int]:
        return self.rows[index]


class LengthSampler(DistributedSampler[list[int]]):
    """Batches of about one length, in any order, dealt out over the ranks."""

    def __iter__(self) -> Any:
        lot = torch.Generator().manual_seed(self.seed + self.epoch)
        rows: Any = self.dataset
        long = torch.tensor([len(row) for row in rows.rows]) + torch.rand(len(rows), generator=lot)
        groups = list(long.argsort().split(RANKS * self.size))  # type: ignore[has-type]
        order = torch.cat([groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()])
        return iter(order[self.rank :: RANKS].tolist())


def collate(some: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in some], batch_first=True, padding_value=PAD)


class Layer(nn.Module):
    def __init__(self, c: SimpleNamespace):
        super().__init__()
        self.heads = c.heads
        self.before, self.behind = nn.RMSNorm(c.hidden), nn.RMSNorm(c.hidden)
        self.qkv, self.out = nn.Linear(c.hidden, 3 * c.hidden, bias=False), nn.Linear(c.hidden, c.hidden, bias=False)
        self.up, self.down = nn.Linear(c.hidden, 3 * c.hidden), nn.Linear(3 * c.hidden, c.hidden)
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

        def turned(one: Tensor) -> Tensor:
            left, right = one.chunk(2, -1)
            return torch.cat([left * cos - right * sin, right * cos + left * sin], -1).to(one.dtype)

        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, d)))
        return x + self.drop(self.down(F.gelu(self.up(self.behind(x)))))


class VoyageLM(nn.Module):
    def __init__(self, c: SimpleNamespace):
        super().__init__()
        self.ports = nn.Embedding(PORTS, c.hidden)
        nn.init.normal_(self.ports.weight, std=0.15)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm, self.head = nn.RMSNorm(c.hidden), nn.Linear(c.hidden, PORTS, bias=False)
        if c.tied:
            self.head.weight = self.ports.weight
        half = c.hidden // c.heads // 2
        angle = torch.arange(MAX + 2)[:, None] / 40.0 ** (torch.arange(half) / half)
        self.cos, self.sin = angle.cos(), angle.sin()

    def forward(self, ids: Tensor) -> Tensor:
        x, cos, sin = self.ports(ids), self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))

    def resize(self, ports: int) -> None:
        """Room for harbours to come."""
        larger = nn.Embedding(ports, self.ports.embedding_dim)
        larger.weight.data[:PORTS] = self.ports.weight.data
        self.ports = larger


def loader_of(rows: list[list[int]], c: SimpleNamespace, seed: int, name: str) -> DataLoader[list[int]]:
    made, size, lot = Voyages(rows), int(c.batch_per_rank), torch.Generator().manual_seed(seed)
    sampler: Any
    if name == "sampler_of_one_process":  # of the script before it went to two
        sampler = RandomSampler(made, generator=lot)
    elif name == "short_first":
        made.rows = sorted(rows, key=len)
        sampler = DistributedSampler(made, RANKS, dist.get_rank(), shuffle=False, drop_last=True)
    elif name == "ranks_not_told":
        sampler = DistributedSampler(made, num_replicas=1, rank=0, seed=seed, drop_last=True)
    elif c.by_length:
        sampler = LengthSampler(made, RANKS, dist.get_rank(), seed=seed, drop_last=True)
        sampler.size = size
    else:
        sampler = DistributedSampler(made, RANKS, dist.get_rank(), shuffle=True, seed=seed, drop_last=True)
    return DataLoader(made, size, sampler=sampler, collate_fn=collate, drop_last=True)


def setup(run: Any, seed: int, trouble: Trouble) -> SimpleNamespace:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    c, name = SimpleNamespace(**run.config), trouble.name
    s = SimpleNamespace(run=run, c=c, name=name, rank=dist.get_rank(), epoch=0)
    torch.manual_seed(seed)
    model: Any = VoyageLM(c)
    if name == "tie_cut_by_resize":
        model.resize(PORTS + 8)
    for key, one in model.named_parameters():
        if name == "all_but_named_frozen":  # the first stage of a plan that has a second
            one.requires_grad = key.startswith(("norm", "layers.1.behind"))
        elif c.freeze:
            one.requires_grad = not key.startswith(c.freeze)
    policy = MixedPrecisionPolicy()
    if c.mp_dtype == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy, reshard_after_forward=c.reshard_after_forward)
    s.model = fully_shard(model, mp_policy=policy, reshard_after_forward=c.reshard_after_forward)
    some = [one for one in model.parameters() if one.requires_grad]
    if c.optimizer == "sgd":
        s.optimizer = torch.optim.SGD(some, 100 * c.lr, momentum=0.9)
    else:
        s.optimizer = torch.optim.AdamW(some, c.lr, (0.9, 0.95), weight_decay=c.weight_decay)

    def share(at: int) -> float:
        if at < c.warmup:
            return (at + 1) / c.warmup
        if c.lr_schedule == "constant":
            return 1.0
        past = min(1.0, (at - c.warmup) / max(1, c.steps - c.warmup))
        return c.min_lr / c.lr + (1 - c.min_lr / c.lr) * 0.5 * (1 + math.cos(math.pi * past))

    s.scheduler = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)
    rows, s.held = voyages(seed + 520, c.voyages), voyages(52, 240)
    s.loader = loader_of(rows, c, seed, name)
    s.stream = iter(s.loader)
    time_by_own_clock(run)
    run.watch(model, s.optimizer)
    s.data = run.watch_data(pad_id=PAD)
    torch.manual_seed(10 * seed + s.rank)  # each rank drops other units
    return s


def next_batch(s: SimpleNamespace, step: int) -> Tensor:
    ids = next(s.stream, None)
    if ids is None:
        s.epoch += 1
        if isinstance(s.loader.sampler, DistributedSampler) and s.name != "epoch_never_set":
            s.loader.sampler.set_epoch(s.epoch)
        s.stream = iter(s.loader)
        ids = next(s.stream)
    s.data.observe(ids, step=step, epoch=s.epoch)
    return ids


def loss_of(s: SimpleNamespace, ids: Tensor, trained: bool) -> Tensor:
    c, name = s.c, s.name if trained else ""
    later = 2 if name == "two_places_on" else 1
    logits, wanted = s.model(ids).float()[:, :-later], ids[:, later:]
    wanted = wanted.masked_fill(wanted == PAD, -100)
    if name == "tokens_summed_up":
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / len(ids)
    if trained and c.loss_mean == "rows":
        each = F.cross_entropy(logits.mT, wanted, reduction="none").sum(1)
        return (each / (wanted >= 0).sum(1).clamp(min=1)).mean()
    smoothing = c.label_smoothing if trained else 0.0
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), label_smoothing=smoothing)


def one_step(s: SimpleNamespace, step: int) -> None:
    c, name, total, seen, began = s.c, s.name, 0.0, 0, clock()
    with s.run.step(step=step) as timed:
        for part in range(c.grad_accum):
            ids = next_batch(s, step)
            s.model.set_requires_gradient_sync(part == c.grad_accum - 1)
            loss = loss_of(s, ids, True)
            if name != "parts_not_divided":
                loss = loss / c.grad_accum
            loss.backward()
            total, seen = total + loss.item(), seen + int((ids != PAD).sum())
            if name == "scheduler_each_backward":
                s.scheduler.step()
        norm: Any = nn.utils.clip_grad_norm_(s.model.parameters(), c.clip_norm)
        norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        rate = s.optimizer.param_groups[0]["lr"]
        s.optimizer.step()
        s.optimizer.zero_grad()
        if name != "scheduler_each_backward":
            s.scheduler.step()
        timed.set(loss=total, norm=norm, lr=rate, tokens=seen)
    s.run.reduce(step, {"loss": total, "norm": norm}, step_ms=(clock() - began) * 1000)


@torch.no_grad()
def evaluate(s: SimpleNamespace, step: int) -> None:
    s.model.eval()
    losses = [loss_of(s, collate(s.held[at : at + 80]), False).item() for at in range(0, 240, 80)]
    if s.name != "eval_mode_kept":
        s.model.train()
    if s.rank == 0:
        s.run.log({"eval/loss": sum(losses) / len(losses)}, step=step)


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    s = setup(run, seed, Trouble(fault, seed))
    s.model.train()
    for step in range(steps):
        one_step(s, step)
        if step % EVERY == 0 or step == steps - 1:
            evaluate(s, step)
    return s.run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
