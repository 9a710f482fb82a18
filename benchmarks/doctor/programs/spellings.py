"""A decoder that is bfloat16 throughout learns how words are said, a word and its sounds in each row.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, norm, lr, tokens) and `run.log_eval` each twentieth step; memory, where it matters;
      the watch of data.

Pre-norm blocks with a gate, places learnt, input and output one matrix; AdamW by hand-made groups and a line down
behind a warm-up; a `Trainer` class with a config object, in the manner of minGPT.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from injections import Trouble, clock, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, LONGEST = 20, 32
SIGNS = " \n=abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
CONFIG: dict[str, Any] = {
    "dim": 48, "n_layers": 2, "n_heads": 4, "dropout": 0.0, "tied": True, "batch_size": 24, "micro_batches": 1,
    "learning_rate": 4e-3, "warmup_steps": 10, "lr_decay": "linear", "weight_decay": 0.05, "betas": [0.9, 0.95],
    "grad_norm_clip": 1.0, "words": 4000, "ema_decay": 0.0, "bucket": False, "loss_average": "tokens", "z_loss": 0.0,
    "logit_cap": 0.0, "freeze": "", "param_dtype": "bfloat16", "ignore_word": False,
}  # fmt: skip
SOUNDS = {"ch": "C", "sh": "S", "th": "T", "ee": "I", "oo": "U", "ai": "E", "ck": "K", "qu": "Q", "ph": "F", "ng": "N"}
STARTS = ("b", "ch", "d", "f", "g", "h", "k", "l", "m", "n", "p", "ph", "qu", "r", "s", "sh", "t", "th", "v", "w")
VOWELS = ("a", "e", "i", "o", "u", "ee", "oo", "ai")
CLOSES = ("", "", "n", "ck", "ng", "t", "s", "l")


def dictionary(seed: int, number: int) -> list[list[int]]:
    """`cheeck=CIK`: syllables as they are written, and as they are said; a last e is silent."""
    dice, rows = torch.Generator().manual_seed(seed), []
    for _ in range(number):
        word, said = "", ""
        for pick in torch.rand(int(torch.randint(1, 4, (1,), generator=dice)), 3, generator=dice).tolist():
            for part, some in zip(pick, (STARTS, VOWELS, CLOSES), strict=True):
                piece = some[int(part * len(some))]
                word, said = word + piece, said + SOUNDS.get(piece, piece.upper())
        if torch.rand((), generator=dice) < 0.3:
            word += "e"
        rows.append([SIGNS.index(sign) for sign in f"{word}={said}\n"])
    return rows


class Config:
    def __init__(self, **given: Any):
        self.__dict__.update(given)


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.heads, wide = c.n_heads, 2 * c.dim
        self.attn_norm, self.mlp_norm = nn.LayerNorm(c.dim), nn.LayerNorm(c.dim)
        self.wqkv, self.wo = nn.Linear(c.dim, 3 * c.dim, bias=False), nn.Linear(c.dim, c.dim, bias=False)
        self.gate, self.up = nn.Linear(c.dim, wide, bias=False), nn.Linear(c.dim, wide, bias=False)
        self.down, self.drop = nn.Linear(wide, c.dim, bias=False), nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.wqkv(self.attn_norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.wo(y.transpose(1, 2).reshape(b, t, d)))
        y = self.mlp_norm(x)
        return x + self.drop(self.down(F.silu(self.gate(y)) * self.up(y)))


class SpellingGPT(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.cap = c.logit_cap
        self.tok, self.pos = nn.Embedding(len(SIGNS), c.dim), nn.Embedding(LONGEST, c.dim)
        self.blocks, self.final = nn.ModuleList(Block(c) for _ in range(c.n_layers)), nn.LayerNorm(c.dim)
        self.output = nn.Linear(c.dim, len(SIGNS), bias=False)
        if c.tied:
            self.output.weight = self.tok.weight
        for one in self.parameters():
            if one.dim() > 1:
                nn.init.normal_(one, std=0.08)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.output(self.final(x)).float()
        return self.cap * torch.tanh(logits / self.cap) if self.cap else logits

    def resize(self, signs: int) -> None:
        """Make room for signs to come."""
        larger = nn.Embedding(signs, self.tok.embedding_dim, dtype=self.tok.weight.dtype)
        larger.weight.data[: len(SIGNS)] = self.tok.weight.data
        self.tok = larger


class Trainer:
    def __init__(self, run: Any, seed: int, trouble: Trouble, healthy: str | None):
        self.run, self.c, self.trouble, self.name, self.healthy = (
            run,
            Config(**run.config),
            trouble,
            trouble.name,
            healthy,
        )
        c, name = self.c, self.name
        torch.manual_seed(seed)
        self.model = SpellingGPT(c).to(torch.bfloat16 if c.param_dtype == "bfloat16" else torch.float32)
        if name == "tie_cut_by_resize":
            self.model.resize(64)
        for key, one in self.model.named_parameters():
            one.requires_grad = not (c.freeze and key.startswith(c.freeze))
        self.rows, self.held = dictionary(seed + 350, c.words), dictionary(35, 300)
        if name == "held_out_rows_among_them":  # the new dump of the dictionary, of which few words were read
            self.rows = self.held + self.rows[:60]
        if name == "short_first":
            self.rows.sort(key=len)
        self.dice, self.waiting, self.epoch, self.kept = torch.Generator().manual_seed(seed), [], -1, []  # type: ignore[var-annotated]
        # weights in float32, so that small shares are not rounded away
        self.ema = copy.deepcopy(self.model).float().requires_grad_(False) if c.ema_decay else None
        self.source = copy.deepcopy(self.model) if name == "shadow_of_a_copy" else self.model
        self.configure()

    def configure(self) -> None:
        c = self.c
        some = [one for one in self.model.parameters() if one.requires_grad]
        groups = [{"params": [one for one in some if one.dim() > 1], "weight_decay": c.weight_decay},
                  {"params": [one for one in some if one.dim() == 1], "weight_decay": 0.0}]  # fmt: skip
        self.optimizer = torch.optim.AdamW(groups, c.learning_rate, tuple(c.betas))

        def share(at: int) -> float:
            if at < c.warmup_steps:
                return (at + 1) / c.warmup_steps
            past = min(1.0, (at - c.warmup_steps) / max(1, c.steps - c.warmup_steps))
            if c.lr_decay == "restarts":
                return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1.0)))
            return 1.0 if c.lr_decay == "none" else max(0.02, 1 - past)

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=0)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        size = int(self.c.batch_size)
        if not self.waiting:
            self.epoch += 1
            order = torch.randperm(len(self.rows), generator=self.dice)
            if self.name == "short_first":
                order = torch.arange(len(self.rows))
            groups = list(order.split(size)[: len(order) // size])
            if self.c.bucket:
                long = torch.tensor([len(self.rows[at]) for at in order.tolist()])
                groups = list(order[long.argsort(stable=True)].split(size)[: len(order) // size])
                groups = [groups[at] for at in torch.randperm(len(groups), generator=self.dice).tolist()]
            self.waiting = groups
        ids, wanted = self.collate([self.rows[at] for at in self.waiting.pop(0).tolist()], self.name)
        self.data.observe({"input_ids": ids, "labels": wanted}, step=step, epoch=self.epoch)
        return ids, wanted

    def collate(self, rows: list[list[int]], name: str = "") -> tuple[Tensor, Tensor]:
        ids = nn.utils.rnn.pad_sequence([torch.tensor(row[:LONGEST]) for row in rows], True, 0)
        later = 2 if name == "two_places_on" else 1
        wanted = torch.full_like(ids, -100)
        for place, row in enumerate(rows):
            begin = row.index(2) if self.c.ignore_word else 0
            targets = torch.tensor(row[:LONGEST][later:])
            wanted[place, begin : len(targets)] = targets[begin:]
        return ids, wanted

    def loss(self, model: nn.Module, ids: Tensor, wanted: Tensor, trained: bool) -> Tensor:
        logits = model(ids)
        if trained and self.name == "tokens_summed_up":
            return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / len(ids)
        if trained and self.c.loss_average == "rows":
            each = F.cross_entropy(logits.mT, wanted, reduction="none")
            return (each.sum(1) / (wanted >= 0).sum(1)).mean()
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        if trained and self.c.z_loss:
            loss = loss + self.c.z_loss * logits.logsumexp(-1)[wanted >= 0].square().mean()
        return loss

    def one_step(self, step: int) -> None:
        c, name, parts, total, seen = self.c, self.name, self.c.micro_batches, 0.0, 0
        with self.run.step(step=step) as timed:
            self.optimizer.zero_grad()
            if name == "clipped_too_early":
                norm = nn.utils.clip_grad_norm_([one for one in self.model.parameters() if one.requires_grad],
                                                c.grad_norm_clip)  # fmt: skip
            for _ in range(parts):
                ids, wanted = self.batch(step)
                loss = self.loss(self.model, ids, wanted, True)
                if name != "parts_not_divided":
                    loss = loss / parts
                loss.backward()
                total, seen = total + loss.item(), seen + int((wanted >= 0).sum())
                if name == "scheduler_each_backward":
                    self.scheduler.step()
            if name != "clipped_too_early":
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.grad_norm_clip)
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            if name != "scheduler_each_backward":
                self.scheduler.step()
            timed.set(loss=total, norm=float(norm), lr=rate, tokens=seen)
        if self.ema is not None:
            with torch.no_grad():
                for mine, theirs in zip(self.ema.parameters(), self.source.parameters(), strict=True):
                    mine.lerp_(theirs.float(), 1 - c.ema_decay)

    def evaluate(self, step: int) -> None:
        began, model = clock(), self.model if self.ema is None else self.ema
        model.eval()
        with torch.set_grad_enabled(self.name == "validation_keeps_graphs"):
            losses = [self.loss(model, *self.collate(self.held[at : at + 100]), False) for at in range(0, 300, 100)]
        if self.name == "validation_keeps_graphs":  # to draw all of them at the end
            self.kept += losses
        if self.name != "eval_mode_kept":
            self.model.train()
        self.run.log_eval(step, float(self.epoch), 300, (clock() - began) * 1000, sum(float(one) for one in losses) / 3)

    def resume(self, step: int) -> None:
        memory = self.data.state()
        parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        self.run, states = go_on(self.run, step, {key: one.state_dict() for key, one in parts.items()})
        self.model.load_state_dict(states["model"])
        self.configure()
        self.scheduler.load_state_dict(states["scheduler"])
        if self.name == "optimizer_not_reloaded":
            for group in self.optimizer.param_groups:
                group["lr"] = self.scheduler.get_last_lr()[0]
        else:
            self.optimizer.load_state_dict(states["optimizer"])
        self.watch()
        self.data.restore(memory)

    def train(self) -> Any:
        self.watch()
        self.model.train()
        resumed = self.trouble.resume_at(self.healthy, 4 * EVERY)
        for step in range(self.c.steps):
            if step == resumed:
                self.resume(step)
            self.one_step(step)
            self.trouble.telemetry(self.run, step, self.healthy)
            if step % EVERY == 0 or step == self.c.steps - 1:
                self.evaluate(step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return Trainer(run, seed, Trouble(fault, seed), healthy).train()
