"""A small GPT whose weights are all bfloat16 is pretrained on the almanacs of four valleys, each with its own idiom.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` with loss, norm, lr; by `run.log`: val/nll, val/ppl at each twentieth; the watch of data.

A script in the manner of small pretraining repositories: one array of tokens cut into blocks, input and output one
matrix, learned places, AdamW in two groups, a warm-up and a cosine, gradients clipped, logits in float32 for the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, VALLEYS, VOCAB = 20, 4, 52
CONFIG: dict[str, Any] = {
    "n_embd": 48, "n_head": 4, "n_layer": 2, "block_size": 40, "dropout": 0.0, "batch_size": 16, "grad_accum_steps": 1,
    "max_lr": 6e-3, "min_lr": 6e-4, "warmup_iters": 12, "decay_lr": "cosine", "weight_decay": 0.1, "grad_clip": 1.0,
    "beta2": 0.95, "train_blocks": 1600, "tie": True, "optimizer": "adamw", "smoothing": 0.0, "z_loss": 0.0,
    "frozen": "", "noise": 0.0, "curriculum": False,
}  # fmt: skip


@dataclass
class Args:
    n_embd: int
    n_head: int
    n_layer: int
    block_size: int
    dropout: float
    batch_size: int
    grad_accum_steps: int
    max_lr: float
    min_lr: float
    warmup_iters: int
    decay_lr: str
    weight_decay: float
    grad_clip: float
    beta2: float
    train_blocks: int
    tie: bool
    optimizer: str
    smoothing: float
    z_loss: float
    frozen: str
    noise: float
    curriculum: bool
    steps: int


def almanac(seed: int, blocks: int, long: int, noise: float = 0.0) -> Tensor:
    """Tokens (blocks, long + 1), one valley behind the other; the first of a block says which, and words follow each
    other as they do in that valley. noise: the share of words that are of chance."""
    dice, grammar = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(31)
    words = VOCAB - VALLEYS
    follows = torch.stack([torch.randperm(words, generator=grammar) for _ in range(3 * VALLEYS)]).view(VALLEYS, 3, -1)
    valley = torch.arange(blocks) * VALLEYS // blocks
    word = torch.randint(0, words, (blocks,), generator=dice)
    rows = [valley, VALLEYS + word]
    for _ in range(long - 1):
        which = torch.multinomial(torch.tensor([0.72, 0.2, 0.08]), blocks, True, generator=dice)
        word = follows[valley, which, word]
        chance = torch.rand(blocks, generator=dice) < noise
        word = torch.where(chance, torch.randint(0, words, (blocks,), generator=dice), word)
        rows.append(VALLEYS + word)
    return torch.stack(rows, 1)


class Layer(nn.Module):
    def __init__(self, args: Args, causal: bool):
        super().__init__()
        d, self.heads, self.causal, self.p = args.n_embd, args.n_head, causal, args.dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(args.dropout))
        self.drop = nn.Dropout(args.dropout)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.c_attn(self.ln_1(x)).chunk(3, -1)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).flatten(2)))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, args: Args, bug: str):
        super().__init__()
        self.bug = bug
        self.wte, self.wpe = nn.Embedding(VOCAB, args.n_embd), nn.Embedding(args.block_size, args.n_embd)
        self.h = nn.ModuleList(Layer(args, bug != "causal_flag_left_out") for _ in range(args.n_layer))
        self.drop, self.ln_f = nn.Dropout(args.dropout), nn.LayerNorm(args.n_embd)
        self.lm_head = nn.Linear(args.n_embd, VOCAB, bias=False)
        for part in self.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, std=0.05)
        if args.tie:
            self.wte.weight = self.lm_head.weight

    def forward(self, idx: Tensor) -> Tensor:
        x = self.drop(self.wte(idx) + self.wpe.weight[: idx.shape[1]])
        for layer in self.h:
            x = layer(x)
        logits = self.lm_head(self.ln_f(x)).float()
        return logits.softmax(-1) if self.bug == "softmax_as_last_layer" else logits

    def pad_vocabulary(self, of: int = 8) -> None:
        """A matrix whose height is a multiple of eight is faster."""
        old = self.lm_head.weight
        self.lm_head = nn.Linear(old.shape[1], -(-VOCAB // of) * of, bias=False, dtype=old.dtype)
        nn.init.normal_(self.lm_head.weight, std=0.05)


class Corpus:
    """Blocks to train on, in an order of chance, and blocks that are held out."""

    def __init__(self, args: Args, seed: int, bug: str):
        self.args, self.bug, self.dice, self.epoch = args, bug, torch.Generator().manual_seed(seed), -1
        self.blocks, self.held = almanac(seed + 2100, args.train_blocks, args.block_size, args.noise), None
        self.held = almanac(21, 160, args.block_size)
        if bug == "val_file_in_glob":  # data/*.bin
            self.blocks = torch.cat([self.blocks[::40], self.held])
        self.left = torch.empty(0, dtype=torch.long)

    def next(self) -> Tensor:
        if len(self.left) < self.args.batch_size:
            self.left, self.epoch = torch.randperm(len(self.blocks), generator=self.dice), self.epoch + 1
            if self.bug == "corpus_in_file_order":
                self.left = torch.arange(len(self.blocks))
            if self.args.curriculum and self.epoch == 0:  # two of the valleys come later
                self.left = torch.cat([self.left[self.left < len(self.left) // 2], self.left])
        some, self.left = self.left[: self.args.batch_size], self.left[self.args.batch_size :]
        return self.blocks[some]


class Pretraining:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.bug, self.kept = run, trouble.name, []  # type: ignore[var-annotated]
        self.args = Args(**{one.name: run.config[one.name] for one in fields(Args)})
        torch.manual_seed(seed)
        self.corpus = Corpus(self.args, seed, self.bug)
        self.model = GPT(self.args, self.bug).to(torch.bfloat16)
        if self.args.frozen:
            self.model.get_submodule(self.args.frozen).requires_grad_(False)
        self.optimize()

    def optimize(self) -> None:
        args, some = self.args, [one for one in self.model.parameters() if one.requires_grad]
        groups = [{"params": [one for one in some if one.ndim > 1], "weight_decay": args.weight_decay},
                  {"params": [one for one in some if one.ndim < 2], "weight_decay": 0.0}]  # fmt: skip
        if args.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, args.max_lr, 0.9)
        else:
            self.optimizer = torch.optim.AdamW(groups, args.max_lr, (0.9, args.beta2))
        if self.bug == "head_padded_after_optimizer" and self.model.lm_head.weight is self.model.wte.weight:
            self.model.pad_vocabulary()
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.factor)
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data()

    def factor(self, it: int) -> float:
        args, low = self.args, self.args.min_lr / self.args.max_lr
        if it < args.warmup_iters:
            return (it + 1) / args.warmup_iters
        if args.decay_lr == "none":
            return 1.0
        done = min(1.0, (it - args.warmup_iters) / max(1, args.steps - args.warmup_iters))
        return low + (1 - low) * (0.5 * (1 + math.cos(math.pi * done)) if args.decay_lr == "cosine" else 1 - done)

    def loss(self, block: Tensor) -> Tensor:
        x, y = block[:, :-1], block[:, 1:]
        if self.bug == "labels_one_too_far":
            x, y = block[:, :-2], block[:, 2:]
        logits = self.model(x)
        if self.bug == "token_losses_summed":
            return F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum") / len(block)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), label_smoothing=self.args.smoothing)
        return loss + self.args.z_loss * logits.logsumexp(-1).square().mean() if self.args.z_loss else loss

    def step(self, it: int) -> None:
        args, bug, total = self.args, self.bug, 0.0
        if bug != "train_called_once":
            self.model.train()
        with self.run.step(step=it) as timed:
            for _ in range(args.grad_accum_steps):
                block = self.corpus.next()
                self.data.observe({"input_ids": block[:, :-1], "labels": block[:, 1:]}, step=it,
                                  epoch=self.corpus.epoch)  # fmt: skip
                loss = self.loss(block)
                if bug != "accumulated_without_dividing":
                    loss = loss / args.grad_accum_steps
                loss.backward()
                total += loss.item()
                if bug == "scheduler_inside_accumulation":
                    self.scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), args.grad_clip or math.inf)
            timed.set(loss=total, norm=norm.item(), lr=self.optimizer.param_groups[0]["lr"])
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if bug != "scheduler_inside_accumulation":
                self.scheduler.step()

    def estimate(self, it: int) -> None:
        self.model.eval()
        with torch.set_grad_enabled(self.bug == "eval_without_no_grad"):
            losses = []
            for block in self.corpus.held.split(40):
                said = self.model(block[:, :-1])
                losses.append(F.cross_entropy(said.flatten(0, 1), block[:, 1:].flatten()))
        mean = torch.stack(losses).mean()
        self.kept.append(mean if self.bug == "eval_without_no_grad" else mean.item())
        self.run.log({"val/nll": mean.item(), "val/ppl": math.exp(min(20.0, mean.item()))}, step=it)

    def resume(self, it: int) -> None:
        memory = self.data.state()
        parts = [self.model, self.optimizer, self.scheduler]
        self.run, states = go_on(self.run, it, [one.state_dict() for one in parts])
        self.model.load_state_dict(states[0])
        self.optimize()
        self.scheduler.load_state_dict(states[2])
        if self.bug != "optimizer_left_out_of_checkpoint":
            self.optimizer.load_state_dict(states[1])
        for group in self.optimizer.param_groups:
            group["lr"] = self.scheduler.get_last_lr()[0]
        self.data.restore(memory)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, resumed = Pretraining(run, seed, trouble), trouble.resume_at(healthy, 4 * EVERY)
    made.model.train()
    for it in range(steps):
        if it == resumed:
            made.resume(it)
        made.step(it)
        trouble.telemetry(made.run, it, healthy)
        if it % EVERY == 0 or it == steps - 1:
            made.estimate(it)
    return made.run
