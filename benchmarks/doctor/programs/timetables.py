"""A decoder that is bfloat16 throughout reads a station's timetable: when, whither, from which platform.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss, train/lr, train/grad_norm; valid/loss, valid/ppl; memory, where it matters.

Torch's own encoder layers with a causal mask, learnt places, one matrix for input and output; AdamW, a rate that falls
in a line; windows of a text by a DataLoader; a small `Trainer` with a `fit`.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

EVERY, SIGNS = 20, "0123456789ABCDEFGH|>\n"
CONFIG: dict[str, Any] = {
    "d_model": 48, "n_layers": 2, "n_heads": 4, "context": 32, "dropout": 0.0, "batch_size": 16, "learning_rate": 4e-3,
    "warmup_steps": 10, "final_lr_share": 0.1, "weight_decay": 0.1, "grad_accum_steps": 1, "max_grad_norm": 1.0,
    "tie_embeddings": True, "ema": 0.0, "dtype": "bfloat16", "lines": 3000, "lr_schedule": "linear", "z_loss": 0.0,
    "loss_reduction": "mean", "beta2": 0.95, "freeze_embeddings": False, "stride": 32,
}  # fmt: skip


def timetable(seed: int, lines: int) -> Tensor:
    """`07|C>4`: the hour rises slowly from line to line; where trains go is by the hour, the platform by both."""
    dice, habits = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(29)
    towns = torch.randint(0, 8, (24, 4), generator=habits)
    towns[:, 1] = towns[:, 0]
    platforms = torch.randint(1, 10, (8,), generator=habits).tolist()
    text = []
    for line in range(lines):
        hour = line * 24 // lines
        town = int(towns[hour, int(torch.randint(0, 4, (1,), generator=dice))])
        platform = platforms[town] if float(torch.rand((), generator=dice)) < 0.85 else 0
        text.append(f"{hour:02d}|{'ABCDEFGH'[town]}>{platform}\n")
    return torch.tensor([SIGNS.index(sign) for sign in "".join(text)])


class Windows(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, text: Tensor, context: int, stride: int, ahead: int = 1):
        self.text, self.context, self.stride, self.ahead = text, context, stride, ahead

    def __len__(self) -> int:
        return (len(self.text) - self.context - 2) // self.stride

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        at = index * self.stride
        return self.text[at : at + self.context], self.text[at + self.ahead : at + self.ahead + self.context]


class Dropped(nn.Module):
    """Dropout by the function, which drops always where it is not told."""

    def __init__(self, rate: float, told: bool):
        super().__init__()
        self.rate, self.told = rate, told

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate, self.training) if self.told else F.dropout(x, self.rate)


class TimetableLM(nn.Module):
    def __init__(self, cfg: dict[str, Any], name: str):
        super().__init__()
        width = cfg["d_model"]
        self.tok_emb, self.pos_emb = nn.Embedding(len(SIGNS), width), nn.Embedding(cfg["context"], width)
        nn.init.normal_(self.tok_emb.weight, std=0.1)
        nn.init.normal_(self.pos_emb.weight, std=0.05)
        self.drop = Dropped(cfg["dropout"], name != "dropped_in_evaluation")
        layer = nn.TransformerEncoderLayer(width, cfg["n_heads"], 3 * width, 0.0, "gelu", batch_first=True,
                                           norm_first=True)  # fmt: skip
        self.blocks = nn.TransformerEncoder(layer, cfg["n_layers"], nn.LayerNorm(width), enable_nested_tensor=False)
        self.lm_head = nn.Linear(width, len(SIGNS), bias=False)
        if cfg["tie_embeddings"]:
            self.lm_head.weight = self.tok_emb.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.tok_emb(ids) + self.pos_emb.weight[: ids.shape[1]])
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], dtype=x.dtype)
        return self.lm_head(self.drop(self.blocks(x, mask=mask, is_causal=True)))


class Average:
    def __init__(self, model: nn.Module, decay: float, half: bool):
        self.model, self.decay, self.seen = copy.deepcopy(model).requires_grad_(False), decay, 0
        if not half:
            self.model = self.model.float()

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.seen += 1
        decay = min(self.decay, (1 + self.seen) / (10 + self.seen))
        for mine, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.mul_(decay).add_(theirs.to(mine.dtype), alpha=1 - decay)


class Trainer:
    def __init__(self, run: Any, cfg: dict[str, Any], seed: int, trouble: Trouble, healthy: str | None):
        self.run, self.cfg, self.trouble, self.healthy, self.name = run, cfg, trouble, healthy, trouble.name
        torch.manual_seed(seed)
        self.model = TimetableLM(cfg, self.name).to(torch.bfloat16)
        if cfg["freeze_embeddings"]:
            self.model.tok_emb.requires_grad_(False)
            self.model.pos_emb.requires_grad_(False)
        self.average = Average(self.model, cfg["ema"], self.name == "average_in_bf16") if cfg["ema"] else None
        self.make_optimizer()
        if self.name == "tie_lost":  # an embedding of float numbers was read from a file, and made half again
            self.model.tok_emb.weight = nn.Parameter(self.model.tok_emb.weight.detach().float().to(torch.bfloat16))
        dice = torch.Generator().manual_seed(seed)
        size = int(cfg["batch_size"])
        windows = Windows(timetable(seed + 53, cfg["lines"]), cfg["context"], cfg["stride"],
                          2 if self.name == "targets_off_by_one" else 1)  # fmt: skip
        self.loader = DataLoader(windows, size, shuffle=self.name != "read_in_order", drop_last=True, generator=dice)
        self.valid = DataLoader(Windows(timetable(535, 600), cfg["context"], 32), 32)
        self.kept: list[Tensor] = []
        self.step, self.epoch = 0, 0

    def make_optimizer(self) -> None:
        cfg = self.cfg
        matrices = [one for one in self.model.parameters() if one.requires_grad and one.dim() > 1]
        others = [one for one in self.model.parameters() if one.requires_grad and one.dim() < 2]
        self.optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": cfg["weight_decay"]},
                                            {"params": others, "weight_decay": 0.0}], cfg["learning_rate"],
                                           (0.9, cfg["beta2"]))  # fmt: skip
        warm, total, least = cfg["warmup_steps"], cfg["steps"], cfg["final_lr_share"]

        def share(step: int) -> float:
            if step < warm:
                return (step + 1) / warm
            gone = min(1.0, (step - warm) / max(1, total - warm))
            if cfg["lr_schedule"] == "constant":
                return 1.0
            if cfg["lr_schedule"] == "restarts":
                gone = 3 * gone % 1.0
            return 1 - (1 - least) * gone

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)

    def compute_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        logits = logits.float()
        flat = logits.flatten(0, 1)
        if self.name == "tokens_summed":
            return F.cross_entropy(flat, targets.flatten(), reduction="sum") / len(targets)
        if self.cfg["loss_reduction"] == "sum":
            return F.cross_entropy(flat, targets.flatten(), reduction="sum") / targets.numel()
        loss = F.cross_entropy(flat, targets.flatten())
        if self.cfg["z_loss"]:
            loss = loss + self.cfg["z_loss"] * logits.logsumexp(-1).square().mean()
        return loss

    def evaluate(self) -> None:
        model = self.model if self.average is None else self.average.model
        model.eval()
        forgotten = self.name == "evaluated_with_graphs"
        losses = []
        with torch.set_grad_enabled(forgotten):
            for ids, targets in self.valid:
                losses.append(F.cross_entropy(model(ids).float().flatten(0, 1), targets.flatten()))
        self.kept += losses if forgotten else []
        self.model.train()
        loss = torch.stack(losses).mean().item()
        self.run.log({"valid/loss": loss, "valid/ppl": math.exp(loss)}, step=self.step)

    def resume(self) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, self.step, state)
        self.model.load_state_dict(state["model"])
        self.make_optimizer()
        self.scheduler.load_state_dict(state["scheduler"])
        if self.name == "moments_not_loaded":
            for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
                group["lr"] = rate
        else:
            self.optimizer.load_state_dict(state["optimizer"])
        self.watch()

    def update(self, batches: list[Any]) -> None:
        cfg, name, total = self.cfg, self.name, 0.0
        for ids, targets in batches:
            loss = self.compute_loss(self.model(ids), targets)
            if name != "batches_added":
                loss = loss / len(batches)
            loss.backward()
            total += loss.item()
            if name == "stepped_each_micro_batch":
                self.scheduler.step()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), cfg["max_grad_norm"])
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if name != "stepped_each_micro_batch":
            self.scheduler.step()
        if self.average is not None:
            self.average.update(self.model)
        self.run.log({"train/loss": total, "train/lr": rate, "train/grad_norm": norm}, step=self.step)
        self.trouble.telemetry(self.run, self.step, self.healthy)

    def fit(self) -> Any:
        self.watch()
        resumed, total = self.trouble.resume_at(self.healthy, 5 * EVERY), self.cfg["steps"]
        waiting: list[Any] = []
        while self.step < total:
            for batch in self.loader:
                waiting.append(batch)
                if len(waiting) < self.cfg["grad_accum_steps"]:
                    continue
                if self.step == resumed:
                    self.resume()
                self.update(waiting)
                waiting = []
                if self.step % EVERY == 0 or self.step == total - 1:
                    self.evaluate()
                self.step += 1
                if self.step == total:
                    break
            self.epoch += 1
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return Trainer(run, dict(run.config), seed, Trouble(fault, seed), healthy).fit()
