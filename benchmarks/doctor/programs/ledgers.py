"""A decoder that is bfloat16 throughout reads the books of a shop: who paid whom how much, and that it was paid.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, lr, norm) and `log_eval`; the watch of data.

Rotary places, gated layers, one matrix for input and output, no biases; AdamW, warm-up and a cosine; plain functions
around a model, `get_batch` and `estimate_loss`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn as nn
from injections import Trouble, clock, go_on, time_by_own_clock
from torch import Tensor
from torch.nn import functional as F

EVERY, SIGNS = 20, "0123456789ABCDEF>=;."
CONFIG: dict[str, Any] = {
    "n_embd": 48, "n_layer": 2, "n_head": 4, "block_size": 32, "dropout": 0.0, "batch_size": 16, "learning_rate": 5e-3,
    "warmup_steps": 12, "weight_decay": 0.05, "grad_clip": 1.0, "accumulation": 1, "tied": True, "schedule": "cosine",
    "loss": "mean", "dtype": "bfloat16",
}  # fmt: skip


def book(seed: int, lines: int) -> Tensor:
    """`A>C=307;C307.`: the payer's habits say the payee and the first digit, and what was paid is said again."""
    dice = torch.Generator().manual_seed(seed)
    habits = torch.Generator().manual_seed(12)
    payees = torch.randint(0, 6, (6, 8), generator=habits)
    payees[:, :5] = payees[:, :1]
    text = []
    payer = torch.randint(0, 6, (lines,), generator=dice).tolist()
    choice = torch.randint(0, 8, (lines,), generator=dice).tolist()
    amount = torch.randint(0, 20, (lines,), generator=dice).tolist()
    for one, chosen, number in zip(payer, choice, amount, strict=True):
        payee, digits = "ABCDEF"[int(payees[one, chosen])], f"{one + 1}{number:02d}"
        text.append(f"{'ABCDEF'[one]}>{payee}={digits};{payee}{digits}.")
    return torch.tensor([SIGNS.index(sign) for sign in "".join(text)])


def rotated(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] / 100 ** (torch.arange(half) / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Layer(nn.Module):
    def __init__(self, n_embd: int, n_head: int, dropout: float, always: bool):
        super().__init__()
        self.n_head, self.dropout, self.always = n_head, dropout, always
        self.norm_1, self.norm_2 = nn.RMSNorm(n_embd), nn.RMSNorm(n_embd)
        self.wqkv, self.wo = nn.Linear(n_embd, 3 * n_embd, bias=False), nn.Linear(n_embd, n_embd, bias=False)
        self.w_in, self.w_out = nn.Linear(n_embd, 4 * n_embd, bias=False), nn.Linear(2 * n_embd, n_embd, bias=False)

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.always else F.dropout(x, self.dropout, self.training)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for one in
                   self.wqkv(self.norm_1(x)).chunk(3, -1))  # fmt: skip
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + self.drop(self.wo(y.transpose(1, 2).flatten(2)))
        gate, value = self.w_in(self.norm_2(x)).chunk(2, -1)
        return x + self.drop(self.w_out(F.silu(gate) * value))


class Bookkeeper(nn.Module):
    def __init__(self, cfg: dict[str, Any], name: str):
        super().__init__()
        self.wte = nn.Embedding(len(SIGNS), cfg["n_embd"])
        nn.init.normal_(self.wte.weight, std=0.1)
        self.h = nn.ModuleList(
            Layer(cfg["n_embd"], cfg["n_head"], cfg["dropout"], name == "dropped_always") for _ in range(cfg["n_layer"])
        )
        self.norm = nn.RMSNorm(cfg["n_embd"])
        self.lm_head = nn.Linear(cfg["n_embd"], len(SIGNS), bias=False)
        if name == "tied_by_copy":  # the same numbers, not the same matrix
            self.lm_head.weight = nn.Parameter(self.wte.weight.clone().detach())
        elif cfg["tied"]:
            self.lm_head.weight = self.wte.weight

    def forward(self, idx: Tensor) -> Tensor:
        x = self.wte(idx)
        for layer in self.h:
            x = layer(x)
        return self.lm_head(self.norm(x))


def get_batch(text: Tensor, cfg: dict[str, Any], dice: torch.Generator, name: str = "") -> tuple[Tensor, Tensor]:
    long, rows = cfg["block_size"], int(cfg["batch_size"])
    ahead = 2 if name == "labels_off_by_one" else 1  # the text had a place cut off already
    begin = torch.randint(0, len(text) - long - 2, (rows,), generator=dice).tolist()
    x = torch.stack([text[one : one + long] for one in begin])
    return x, torch.stack([text[one + ahead : one + ahead + long] for one in begin])


def loss_of(logits: Tensor, targets: Tensor, cfg: dict[str, Any], name: str) -> Tensor:
    logits = logits.float().flatten(0, 1)
    if name == "double_softmax":
        logits = torch.softmax(logits, dim=-1)
    if name == "divided_by_rows":
        return F.cross_entropy(logits, targets.flatten(), reduction="sum") / len(targets)
    if cfg["loss"] == "sum":  # divided by what it is summed over
        return F.cross_entropy(logits, targets.flatten(), reduction="sum") / targets.numel()
    return F.cross_entropy(logits, targets.flatten())


@torch.no_grad()
def estimate_loss(model: nn.Module, text: Tensor, cfg: dict[str, Any]) -> float:
    model.eval()
    dice = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(4):
        x, y = get_batch(text, cfg | {"batch_size": 32}, dice)
        losses.append(F.cross_entropy(model(x).float().flatten(0, 1), y.flatten()).item())
    model.train()
    return sum(losses) / 4


def configure(model: nn.Module, cfg: dict[str, Any]) -> tuple[Any, Any]:
    found = list(model.parameters())
    groups = [{"params": [one for one in found if one.dim() > 1]},
              {"params": [one for one in found if one.dim() < 2], "weight_decay": 0.0}]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, cfg["learning_rate"], (0.9, 0.98), weight_decay=cfg["weight_decay"])
    warm, total = cfg["warmup_steps"], cfg["steps"]

    def share(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        gone = min(1.0, (step - warm) / (total - warm))
        if cfg["schedule"] == "wsd":
            return min(1.0, max(0.05, (1 - gone) / 0.2))
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * gone))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    name = trouble.name
    torch.manual_seed(seed)
    train_text, val_text = book(seed + 47, 2600), book(474, 400)
    model = Bookkeeper(cfg, name).to(torch.bfloat16)
    optimizer, scheduler = configure(model, cfg)
    if name == "weight_tying_broken":  # "half precision head", made behind the optimizer
        model.lm_head.weight = nn.Parameter(model.wte.weight.detach().to(torch.bfloat16).clone())
    dice = torch.Generator().manual_seed(seed)
    time_by_own_clock(run)
    run.watch(model, optimizer)
    data = run.watch_data()
    for iteration in range(steps):
        if iteration == trouble.resume_at(healthy, 5 * EVERY):
            memory = data.state()
            run, saved = go_on(run, iteration, {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                                                "scheduler": scheduler.state_dict()})  # fmt: skip
            model.load_state_dict(saved["model"])
            optimizer, scheduler = configure(model, cfg)
            scheduler.load_state_dict(saved["scheduler"])
            if name == "optimizer_state_lost":
                for group, rate in zip(optimizer.param_groups, scheduler.get_last_lr(), strict=True):
                    group["lr"] = rate
            else:
                optimizer.load_state_dict(saved["optimizer"])
            time_by_own_clock(run)
            run.watch(model, optimizer)
            data = run.watch_data()
            data.restore(memory)
        with run.step(tokens=cfg["accumulation"] * int(cfg["batch_size"]) * cfg["block_size"], step=iteration) as step:
            total = 0.0
            for _ in range(cfg["accumulation"]):
                x, y = get_batch(train_text, cfg, dice, name)
                data.observe((x, y), step=iteration)
                loss = loss_of(model(x), y, cfg, name)
                if name != "accumulation_undivided":
                    loss = loss / cfg["accumulation"]
                loss.backward()
                total += loss.item()
                if name == "scheduler_per_micro_batch":
                    scheduler.step()
            norm = nn.utils.clip_grad_norm_(model.parameters(), cfg["grad_clip"]).item()
            rate = optimizer.param_groups[0]["lr"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if name != "scheduler_per_micro_batch":
                scheduler.step()
            step.set(loss=total, lr=rate, norm=norm)
        if iteration % EVERY == 0 or iteration == steps - 1:
            began = clock()
            loss = estimate_loss(model, val_text, cfg)
            run.log_eval(iteration, 0, 128 * cfg["block_size"], (clock() - began) * 1000, loss)
    return run
