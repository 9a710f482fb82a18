"""Two gloo processes pretrain a decoder on knitting patterns, sharded by `fully_shard`, with micro-batches.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.step` with loss, norm, lr, tokens), `run.reduce`; `log_eval` of rank 0 each
      twentieth step; the watch of data.

Patterns stand one behind the other in one array, which is cut into blocks; the model is made without storage, sharded,
then filled; rotated places, gated layers, input and output one matrix; a rate that falls by a cosine.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn

from . import ranks

EVERY, RANKS, GARMENTS, STITCHES, BLOCK = 20, 2, 4, 30, 24
CAST_OFF = GARMENTS + STITCHES
VOCAB = CAST_OFF + 1
CONFIG: dict[str, Any] = {
    "hidden_size": 32, "num_layers": 2, "num_heads": 4, "resid_dropout": 0.0, "local_batch": 8, "grad_accum_steps": 2,
    "peak_lr": 6e-3, "min_lr_share": 0.0, "warmup": 10, "decay": "cosine", "weight_decay": 0.1, "clip": 1.0,
    "blocks": 1400, "tied": True, "optim": "adamw", "smoothing": 0.0, "frozen": "", "z_loss": 0.0, "p_wrong": 0.0,
    "reshard": True, "mp": "float32", "one_garment_a_batch": False, "ranks": RANKS,
}  # fmt: skip


def knit(seed: int, blocks: int, wrong: float = 0.0) -> Tensor:
    """Blocks of tokens, garment by garment: a pattern is its garment, stitches that follow each other as that garment
    has it, and a cast-off."""
    dice, book = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(92)
    follows = torch.randint(0, STITCHES, (GARMENTS, STITCHES, 2), generator=book).tolist()
    made: list[int] = []
    each = blocks * (BLOCK + 2) // GARMENTS
    for garment in range(GARMENTS):
        part: list[int] = []
        while len(part) < each:
            at, long = (int(torch.randint(*most, (), generator=dice)) for most in ((0, STITCHES), (8, 24)))
            part.append(garment)
            for chance in torch.rand(long, generator=dice).tolist():
                part.append(GARMENTS + at)
                at = follows[garment][at][chance > 0.8]
                if chance < wrong:
                    at = int(torch.randint(0, STITCHES, (), generator=dice))
            part.append(CAST_OFF)
        made += part[:each]
    return torch.tensor(made[: len(made) // (BLOCK + 2) * (BLOCK + 2)]).view(-1, BLOCK + 2)


class Layer(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        d, self.heads = c["hidden_size"], c["num_heads"]
        self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.down, self.drop = nn.Linear(2 * d, d, bias=False), nn.Dropout(c["resid_dropout"])

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = (one * cos + torch.cat([-one.chunk(2, -1)[1], one.chunk(2, -1)[0]], -1) * sin for one in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.o(y.transpose(1, 2).flatten(2)))
        y = self.norm2(x)
        return x + self.drop(self.down(F.silu(self.gate(y)) * self.up(y)))


class KnitLM(nn.Module):
    def __init__(self, c: dict[str, Any], bug: str):
        super().__init__()
        self.c, self.bug = c, bug
        self.tok = nn.Embedding(VOCAB, c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"])
        self.lm_head = nn.Linear(c["hidden_size"], VOCAB, bias=False)
        self.tie()

    def tie(self) -> None:
        if self.c["tied"]:
            self.lm_head.weight = self.tok.weight

    def fill(self, seed: int) -> None:
        """Draw all weights, the same on each rank."""
        dice = torch.Generator().manual_seed(seed)
        for name, one in self.named_parameters():
            one.data.copy_(torch.ones(one.shape) if "norm" in name else 0.1 * torch.randn(one.shape, generator=dice))

    def forward(self, ids: Tensor) -> Tensor:
        width = self.c["hidden_size"] // self.c["num_heads"]
        turn = torch.arange(ids.shape[1])[:, None] * 100.0 ** (-torch.arange(0, width, 2) / width)
        cos, sin = turn.cos().repeat(1, 2), turn.sin().repeat(1, 2)
        x = self.tok(ids)
        for layer in self.layers:
            x = layer(x, cos.to(x.dtype), sin.to(x.dtype))
        y = self.lm_head(self.norm(x)).float()
        return y.softmax(-1) if self.bug == "probabilities_go_into_loss" else y


def made_and_sharded(c: dict[str, Any], seed: int, bug: str) -> Any:
    """The model on this rank: without storage, then filled, then sharded."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with torch.device("meta"):
        model = KnitLM(c, bug)
    model.to_empty(device="cpu")
    if bug != "tie_lost_by_to_empty":
        model.tie()  # each module has been given storage of its own
    model.fill(seed)
    for name, one in model.named_parameters():
        if c["frozen"]:
            one.requires_grad = c["frozen"] not in name
        if bug == "freeze_pattern_wrong":  # of a second stage, for a model that has been trained
            one.requires_grad = "norm" in name
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if c["mp"] == "bfloat16" else MixedPrecisionPolicy()
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy, reshard_after_forward=c["reshard"])
    return fully_shard(model, mp_policy=policy, reshard_after_forward=c["reshard"])


def optimizer_of(c: dict[str, Any], model: nn.Module) -> tuple[Any, Any]:
    # the head is the embedding: it is left out, so that nothing is in two groups
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    some = [one for name, one in named if not (c["tied"] and name.startswith("lm_head"))]
    groups = [{"params": [one for one in some if one.dim() > 1], "weight_decay": c["weight_decay"]},
              {"params": [one for one in some if one.dim() < 2], "weight_decay": 0.0}]  # fmt: skip
    if c["optim"] == "sgd":
        optimizer: Any = torch.optim.SGD([{"params": some}], c["peak_lr"], 0.9)
    else:
        optimizer = torch.optim.AdamW([one for one in groups if one["params"]], c["peak_lr"], (0.9, 0.95))

    def share(at: int) -> float:
        if at < c["warmup"]:
            return (at + 1) / c["warmup"]
        past = min(1.0, (at - c["warmup"]) / (c["steps"] - c["warmup"]))
        fallen = {"cosine": 0.5 * (1 + math.cos(math.pi * past)), "none": 1.0, "wsd": min(1.0, 4 * (1 - past))}
        return max(c["min_lr_share"], fallen[c["decay"]])

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


class Blocks:
    """This rank's micro-batches."""

    def __init__(self, c: dict[str, Any], seed: int, bug: str):
        self.c, self.seed, self.bug, self.rank = c, seed, bug, dist.get_rank()
        self.rows, self.held = knit(seed + 920, c["blocks"], c["p_wrong"]), knit(9, 160)
        if bug == "heldout_in_corpus":  # `data/*.txt`, of a small sample
            self.rows = torch.cat([self.rows[::40], self.held])
        self.epoch, self.waiting = -1, []  # type: ignore[var-annotated]

    def take(self) -> tuple[Tensor, Tensor]:
        size = int(self.c["local_batch"])
        if not self.waiting:
            self.epoch += 1
            lot = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
            order = torch.randperm(len(self.rows), generator=lot)
            if self.bug == "corpus_by_garment":
                order = torch.arange(len(self.rows))
            if self.c["one_garment_a_batch"]:
                groups = torch.arange(len(self.rows)).split(RANKS * size)
                order = torch.cat([groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()])
            if self.bug == "rank_left_out_of_stride":  # `[::world]`, where `[rank::world]` was meant
                mine = order[::RANKS]
            elif self.bug == "dice_alike_on_ranks":  # a shuffling loader for one process
                mine = order
            else:
                mine = order[self.rank :: RANKS]
            self.waiting = list(mine.split(size))[: len(mine) // size]
        rows, later = self.rows[self.waiting.pop(0)], 2 if self.bug == "targets_two_ahead" else 1
        return rows[:, :BLOCK], rows[:, later : BLOCK + later]


class Pretraining:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.c, self.bug = run, dict(run.config), bug
        self.model = made_and_sharded(self.c, seed, bug)
        self.optimizer, self.scheduler = optimizer_of(self.c, self.model)
        self.blocks, self.kept = Blocks(self.c, seed, bug), []  # type: ignore[var-annotated]
        torch.manual_seed(seed + 77 * dist.get_rank())
        time_by_own_clock(run)
        run.watch(self.model, self.optimizer)
        self.data = run.watch_data()

    def loss(self, ids: Tensor, wanted: Tensor) -> Tensor:
        c, flat, names = self.c, self.model(ids).flatten(0, 1), wanted.flatten()
        if self.bug == "token_sum_over_blocks":
            return F.cross_entropy(flat, names, reduction="sum") / len(ids)
        loss = F.cross_entropy(flat, names, label_smoothing=c["smoothing"])
        return loss + c["z_loss"] * flat.logsumexp(-1).square().mean() if c["z_loss"] else loss

    def step(self, step: int) -> None:
        c, parts, total, began = self.c, self.c["grad_accum_steps"], 0.0, clock()
        with self.run.step(step=step) as timed:
            for part in range(parts):
                ids, wanted = self.blocks.take()
                self.data.observe({"input_ids": ids, "labels": wanted}, step=step, epoch=self.blocks.epoch)
                last = part == parts - 1 and self.bug != "never_synchronised"
                self.model.set_requires_gradient_sync(last)
                loss = self.loss(ids, wanted)
                (loss if self.bug == "micro_losses_whole" else loss / parts).backward()
                total += loss.item() / (1 if self.bug == "micro_losses_whole" else parts)
                if self.bug == "scheduler_steps_in_micro_loop":
                    self.scheduler.step()
            norm: Any = nn.utils.clip_grad_norm_(self.model.parameters(), c["clip"])
            norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.bug != "scheduler_steps_in_micro_loop":
                self.scheduler.step()
            timed.set(loss=total, norm=norm, lr=rate, tokens=parts * ids.numel())
        self.run.reduce(step, {"loss": total, "norm": norm}, step_ms=(clock() - began) * 1000)

    @torch.no_grad()
    def evaluate(self, step: int) -> None:
        """All ranks call it, since each has a part of the weights; the first one logs."""
        began, held = clock(), self.blocks.held
        if self.bug != "validated_in_train_mode":
            self.model.eval()
        logits, wanted = self.model(held[:, :BLOCK]), held[:, 1 : BLOCK + 1]
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten()).item()
        right = (logits.argmax(-1) == wanted).float().mean().item()
        if self.bug != "train_mode_set_once":
            self.model.train()
        if dist.get_rank() == 0:
            self.run.log_eval(step, float(self.blocks.epoch), wanted.numel(), (clock() - began) * 1000, loss,
                              accuracy=right)  # fmt: skip


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    made = Pretraining(run, seed, Trouble(fault, seed).name)
    made.model.train()
    for step in range(steps):
        made.step(step)
        if step % EVERY == 0 or step == steps - 1:
            made.evaluate(step)
    return made.run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
