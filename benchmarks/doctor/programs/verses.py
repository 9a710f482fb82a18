"""A decoder of letters under autocast to float16, with a scaler; it is called by methods, and has its loss within.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, lr, norm, scale) and `log_eval`.

Learned places, root mean square norms, tied output; AdamW with decay for matrices alone, a linear warm-up and a cosine.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, clock, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .moe_gpt import LETTERS, write_text
from .parts import all_steps

EVERY = 20
CONFIG: dict[str, Any] = {
    "d": 32, "layers": 2, "heads": 2, "context": 24, "dropout": 0.0, "branch_dropout": 0.0, "batch_size": 16,
    "learning_rate": 6e-3, "warmup_steps": 15, "schedule": "cosine", "weight_decay": 0.1, "clip": 1.0,
    "accumulation": 1, "precision": "fp16", "init_scale": 2.0**12, "checkpointing": False, "short_first": 0,
    "z_weight": 0.0,
}  # fmt: skip


class Stage(nn.Module):
    def __init__(self, cfg: dict[str, Any]):
        super().__init__()
        d = cfg["d"]
        self.heads, self.rate = cfg["heads"], cfg["branch_dropout"]
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.w1, self.w2 = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
        self.drop = nn.Dropout(cfg["dropout"])

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(x)
        mixed = F.scaled_dot_product_attention(self.split(self.wq(y)), self.split(self.wk(y)), self.split(self.wv(y)),
                                               is_causal=True)  # fmt: skip
        x = x + self.dropped(self.wo(mixed.transpose(1, 2).reshape(x.shape)))
        return x + self.dropped(self.w2(F.relu(self.w1(self.n2(x))).square()))

    def dropped(self, branch: Tensor) -> Tensor:
        if self.rate:
            return F.dropout(branch, self.rate, training=self.training)
        return self.drop(branch)


class Verses(nn.Module):
    """`training_loss` and `evaluation_loss` are what others call; there is no forward."""

    def __init__(self, cfg: dict[str, Any], name: str):
        super().__init__()
        d = cfg["d"]
        self.cfg, self.name = cfg, name
        self.wte, self.wpe = nn.Embedding(LETTERS, d), nn.Embedding(64, d)
        self.stages = nn.ModuleList(Stage(cfg) for _ in range(cfg["layers"]))
        self.nf, self.unembed = nn.RMSNorm(d), nn.Linear(d, LETTERS, bias=False)
        for embedding in (self.wte, self.wpe):
            nn.init.normal_(embedding.weight, std=0.1)
        self.unembed.weight = self.wte.weight

    def hidden(self, letters: Tensor) -> Tensor:
        if self.name == "positions_of_rows":  # size(0), where size(1) was meant
            places = torch.arange(letters.size(0))[:, None]
        else:
            places = torch.arange(letters.size(1))
        x = self.wte(letters) + self.wpe(places)
        again = self.cfg["checkpointing"] and self.training
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=False) if again else stage(x)
        return self.nf(x)

    def each(self, rows: Tensor) -> Tensor:
        """The loss of each letter of rows behind their first."""
        scores = self.unembed(self.hidden(rows[:, :-1])).float()
        loss = F.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
        if self.cfg["z_weight"] and self.training:
            loss = loss + self.cfg["z_weight"] * scores.logsumexp(-1).flatten().square()
        return loss

    def training_loss(self, rows: Tensor) -> Tensor:
        loss = self.each(rows)
        return loss.sum() / len(rows) if self.name == "divided_by_rows" else loss.mean()

    @torch.no_grad()
    def evaluation_loss(self, rows: Tensor, stays: bool) -> Tensor:
        self.eval()
        loss = torch.cat([self.each(some) for some in rows.split(48)]).mean()
        self.train(not stays)
        return loss


class Writer:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.cfg, self.trouble = run, dict(run.config), trouble
        self.text, held = write_text(seed + 131, 5000, 19), write_text(1313, 800, 19)
        long = self.cfg["context"] + 1
        self.held = held[: len(held) // long * long].view(-1, long)[:96]
        self.verses = Verses(self.cfg, trouble.name)
        self.half = trouble.name == "halved_weights"
        if self.half:
            self.verses.half()
        self.dice = torch.Generator().manual_seed(seed)
        self.prepare()
        if trouble.name == "weight_tying_broken":
            self.verses.unembed.weight = nn.Parameter(self.verses.wte.weight.detach().clone())

    def prepare(self) -> None:
        cfg, found = self.cfg, list(self.verses.parameters())
        groups = [{"params": [one for one in found if one.dim() > 1]},
                  {"params": [one for one in found if one.dim() < 2], "weight_decay": 0.0}]  # fmt: skip
        self.adamw = torch.optim.AdamW(groups, lr=cfg["learning_rate"], betas=(0.9, 0.95),
                                       weight_decay=cfg["weight_decay"])  # fmt: skip
        self.rates = torch.optim.lr_scheduler.LambdaLR(self.adamw, self.share)
        on = cfg["precision"] == "fp16" and not self.half
        self.scaler = torch.amp.GradScaler("cpu", init_scale=cfg["init_scale"], growth_interval=60, enabled=on)

    def share(self, step: int) -> float:
        warmup, total = self.cfg["warmup_steps"], self.cfg["steps"]
        if step < warmup:
            return (step + 1) / warmup
        gone = min(1.0, (step - warmup) / (total - warmup))
        if self.cfg["schedule"] == "restarts":
            gone = 2 * gone % 1
        elif self.cfg["schedule"] == "constant":
            return 1.0
        elif self.cfg["schedule"] == "wsd":
            return min(1.0, max(0.02, (1 - gone) / 0.2))
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * gone))

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.verses, self.adamw, scaler=self.scaler)

    def resume(self, step: int) -> None:
        parts = (self.verses, self.adamw, self.rates, self.scaler)
        self.run, states = go_on(self.run, step, [part.state_dict() for part in parts])
        self.verses.load_state_dict(states[0])
        self.prepare()
        if self.trouble.name != "weights_alone_kept":
            for part, state in zip((self.adamw, self.rates, self.scaler), states[1:], strict=True):
                part.load_state_dict(state)
        self.watch()

    def rows(self, step: int) -> Tensor:
        long = self.cfg["context"] // (2 if step < self.cfg["short_first"] else 1)
        begin = torch.randint(0, len(self.text) - long - 1, (int(self.cfg["batch_size"]), 1), generator=self.dice)
        return self.text[begin + torch.arange(long + 1)]

    def autocast(self) -> Any:
        low = torch.bfloat16 if self.cfg["precision"] == "bf16" else torch.float16
        return torch.autocast("cpu", low, enabled=not self.half and self.cfg["precision"] != "fp32")

    def step(self, step: int) -> None:
        cfg, name, total = self.cfg, self.trouble.name, 0.0
        with self.run.step(step=step) as timed:
            for _ in range(cfg["accumulation"]):
                with self.autocast():
                    loss = self.verses.training_loss(self.rows(step)) / cfg["accumulation"]
                self.scaler.scale(loss).backward()
                total += loss.item()
                if name == "scheduler_per_micro_batch":
                    self.rates.step()
            if name != "clipped_while_scaled":
                self.scaler.unscale_(self.adamw)
            norm = nn.utils.clip_grad_norm_(self.verses.parameters(), cfg["clip"]).item()
            rate = self.adamw.param_groups[0]["lr"]
            self.scaler.step(self.adamw)
            self.scaler.update()
            self.adamw.zero_grad(set_to_none=True)
            if name != "scheduler_per_micro_batch":
                self.rates.step()
            timed.set(loss=total, lr=rate, norm=norm)

    def validate(self, step: int) -> None:
        began = clock()
        with self.autocast():
            stays = self.trouble.on("evaluation_mode_left_on", step)
            loss = self.verses.evaluation_loss(self.held, stays).item()
        self.run.log_eval(step, 0, len(self.held), (clock() - began) * 1000, loss)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Writer(run, seed, trouble)
    made.watch()
    all_steps(made, steps, EVERY, trouble.resume_at(healthy, 5 * EVERY))
    return made.run
