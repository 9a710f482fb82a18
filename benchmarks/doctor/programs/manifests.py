"""Two gloo processes train a decoder on what ships carry, sharded by `fully_shard`.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.step` with loss, norm, lr, compared over ranks), evaluations of rank 0.

Blocks with learnt places, rows padded at their ends, a DistributedSampler; AdamW with a warm-up and half a cosine of
torch's schedulers; a `main` with small helpers.
"""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from . import ranks

EVERY, RANKS, TOKENS, PAD, END = 20, 2, 40, 0, 1
CONFIG: dict[str, Any] = {
    "dim": 32, "depth": 2, "heads": 4, "dropout": 0.0, "micro_batch": 12, "grad_accum": 1, "learning_rate": 4e-3,
    "warmup": 10, "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "rows": 1200, "param_dtype": "float32",
    "frozen": "", "norm_of_loss": "mean", "reshard_after_forward": True, "optimizer": "adamw", "world_size": RANKS,
}  # fmt: skip


def manifest(seed: int, number: int) -> list[list[int]]:
    """A ship's port decides which cargo follows on which; each cargo has an amount of its own, most of the time."""
    dice, rules = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(14)
    follows = torch.randint(6, 22, (4, 22), generator=rules).tolist()
    amount = torch.randint(22, TOKENS, (22,), generator=rules).tolist()
    rows = []
    for _ in range(number):
        port = int(torch.randint(0, 4, (1,), generator=dice))
        cargo = int(torch.randint(6, 22, (1,), generator=dice))
        row = [2 + port]
        for chance in torch.rand(int(torch.randint(2, 11, (1,), generator=dice)), 2, generator=dice).tolist():
            row += [cargo, amount[cargo] if chance[0] < 0.85 else 22 + int(18 * chance[0] ** 2)]
            cargo = follows[port][cargo] if chance[1] < 0.85 else 6 + int(16 * chance[1] ** 2)
        rows.append([*row, END])
    return rows


def collate(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


class Block(nn.Module):
    def __init__(self, args: Any):
        super().__init__()
        self.heads, dim = args.heads, args.dim
        self.norm_attn, self.norm_ffn = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.drop = nn.Dropout(args.dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm_attn(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, d)))
        return x + self.drop(self.ffn(self.norm_ffn(x)))


class ManifestLM(nn.Module):
    def __init__(self, args: Any):
        super().__init__()
        self.tok, self.pos = nn.Embedding(TOKENS, args.dim), nn.Embedding(32, args.dim)
        for table in (self.tok, self.pos):
            nn.init.normal_(table.weight, std=0.1)
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.depth))
        self.ln_f, self.out = nn.LayerNorm(args.dim), nn.Linear(args.dim, TOKENS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.out(self.ln_f(x))


def build_model(args: Any, name: str) -> Any:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model: Any = ManifestLM(args)
    for key, parameter in model.named_parameters():
        if name == "wrong_part_frozen":  # "out" is in "layout" no more, and in nothing else of the list of old names
            parameter.requires_grad_(key.startswith(("tok", "pos")))
        elif args.frozen:
            parameter.requires_grad_(not key.startswith(args.frozen))
    policy = MixedPrecisionPolicy()
    if args.param_dtype == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy, reshard_after_forward=args.reshard_after_forward)
    fully_shard(model, mp_policy=policy)
    return model


def build_optim(model: Any, args: Any) -> tuple[Any, Any]:
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer: Any
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(trained, 40 * args.learning_rate, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(trained, args.learning_rate, weight_decay=args.weight_decay)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=args.warmup)
    rest: Any = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps - args.warmup, args.learning_rate / 20)
    if args.schedule == "constant":
        rest = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    return optimizer, torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, rest], [args.warmup])


def build_loader(rows: list[list[int]], args: Any, seed: int, name: str) -> DataLoader[Any]:
    size = int(args.micro_batch)
    if name == "one_seed_for_all":  # shuffled by a generator, which every process seeds alike
        dice = torch.Generator().manual_seed(seed)
        return DataLoader(rows, size, shuffle=True, drop_last=True, collate_fn=collate, generator=dice)  # type: ignore[arg-type]
    sampler: Any = DistributedSampler(rows, RANKS, dist.get_rank(), shuffle=True, seed=seed,  # type: ignore[arg-type]
                                      drop_last=True)  # fmt: skip
    return DataLoader(rows, size, sampler=sampler, drop_last=True, collate_fn=collate)  # type: ignore[arg-type]


def loss_fn(model: Any, ids: Tensor, args: Any, name: str) -> Tensor:
    logits, targets = model(ids).float(), ids.roll(-1, 1)
    targets[:, -1] = PAD
    if name == "targets_off_by_one":
        targets = targets.roll(-1, 1)
        targets[:, -1] = PAD
    flat = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum")
    if args.norm_of_loss == "rows":  # each row weighs the same
        each = F.cross_entropy(logits.mT, targets, ignore_index=PAD, reduction="none").sum(1)
        return (each / (targets != PAD).sum(1).clamp(min=1)).mean()
    return flat / (targets != PAD).sum()


@torch.no_grad()
def validate(run: Any, model: Any, held: list[list[int]], args: Any, step: int, epoch: int, trouble: Trouble) -> None:
    began = clock()
    model.eval()
    losses = [float(loss_fn(model, collate(held[at : at + 64]), args, "")) for at in range(0, len(held), 64)]
    if not trouble.on("eval_left_on", step):
        model.train()
    if dist.get_rank() == 0:
        run.log_eval(step, epoch, len(held), (clock() - began) * 1000, sum(losses) / len(losses))


def main(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    args, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    name, parts = trouble.name, args.grad_accum
    torch.manual_seed(seed)
    model = build_model(args, name)
    optimizer, scheduler = build_optim(model, args)
    rows, held = manifest(seed + 11, args.rows), manifest(111, 192)
    loader = build_loader(rows, args, seed, name)
    time_by_own_clock(run)
    run.watch_ranks()
    run.watch(model, optimizer)
    data = run.watch_data(pad_id=PAD)
    torch.manual_seed(100 * seed + dist.get_rank())
    step, epoch = 0, 0
    while step < steps:
        if isinstance(loader.sampler, DistributedSampler) and name != "epoch_never_set":
            loader.sampler.set_epoch(epoch)
        stream = iter(loader)
        for _ in range(len(loader) // parts):
            if step == steps:
                break
            with run.step(step=step) as timed:
                total = 0.0
                for number in range(parts):
                    ids = next(stream)
                    data.observe(ids, step=step, epoch=epoch)
                    model.set_requires_gradient_sync(number == parts - 1)
                    loss = loss_fn(model, ids, args, name)
                    if name != "batches_added":
                        loss = loss / parts
                    if name == "divided_by_world":  # for a sum over ranks, which it is not
                        loss = loss / args.world_size
                    loss.backward()
                    total += loss.item()
                norm: Any = nn.utils.clip_grad_norm_(model.parameters(), args.clip or math.inf)
                norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
                rate = optimizer.param_groups[0]["lr"]
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
                timed.set(loss=total, norm=norm.item(), lr=rate)
            if step % EVERY == 0 or step == steps - 1:
                validate(run, model, held, args, step, epoch, trouble)
            step += 1
        epoch += 1
    return run


train = main
launch = partial(ranks.launch, work=main, number=RANKS)
