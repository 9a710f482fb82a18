"""A decoder that is bfloat16 throughout reads a server's journal, one request a row.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: iter_loss, iter_norm, lr; val_loss of each twentieth iteration; memory, where it matters;
      the watch of data.

Grouped heads, rotary places, squared ReLU, one matrix for input and output; AdamW with a rate that is asked of a
function at each iteration; a script of one loop in the manner of nanoGPT, over rows that end with -1.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY = 20
SIGNS = " abcdefghijklmnopqrstuvwxyz0123456789/:=?\n"
CONFIG: dict[str, Any] = {
    "n_embd": 48, "n_layer": 2, "n_head": 4, "n_kv_head": 2, "dropout": 0.0, "batch_size": 16,
    "gradient_accumulation_steps": 1, "learning_rate": 4e-3, "min_lr": 4e-4, "warmup_iters": 10, "decay_lr": True,
    "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "grad_clip": 1.0, "tie_weights": True, "ema": 0.0, "rows": 4000,
    "dtype": "bfloat16", "bucketed": False, "loss_by": "tokens", "softcap": 0.0, "freeze": "", "cycles": 1,
    "master_weights": False,
}  # fmt: skip
WORDS = ("user", "order", "cart", "item", "stock", "login", "search", "price", "review", "image")


def requests(seed: int, number: int) -> list[list[int]]:
    """`get /user/item/47?page=3 200`: which follows on which is by habit, and the code by what was asked."""
    dice, habits = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(31)
    follows = torch.randint(0, len(WORDS), (len(WORDS), 3), generator=habits).tolist()
    made = []
    for _ in range(number):
        word = int(torch.randint(0, len(WORDS), (1,), generator=dice))
        way = "put" if word % 3 == 0 else "get"
        path, chance = "", torch.rand(4, generator=dice).tolist()
        for part in range(1 + int(3 * chance[0])):
            path += "/" + WORDS[word]
            word = follows[word][int(3 * chance[1] * (part + 1)) % 3]
        path += f"/{int(torch.randint(0, 1000, (1,), generator=dice))}"
        if chance[2] < 0.6:
            path += f"?page={int(torch.randint(0, 100, (1,), generator=dice))}"
        code = "404" if chance[3] < 0.1 else "201" if way == "put" else "200"
        made.append([SIGNS.index(sign) for sign in f"{way} {path} {code}\n"])
    return made


def get_batch(rows: list[list[int]], twice: bool = False) -> tuple[Tensor, Tensor]:
    """Inputs and targets (rows, longest); behind a row's end targets are -1."""
    long = max(len(row) for row in rows)
    x, y = torch.zeros(len(rows), long, dtype=torch.long), torch.full((len(rows), long), -1)
    for place, row in enumerate(rows):
        x[place, : len(row)] = torch.tensor(row)
        y[place, : len(row) - 1] = torch.tensor(row[1:])
    if twice:  # the new loader shifts, and so does the model's loss, for the old one
        y = torch.cat([y[:, 1:], torch.full((len(rows), 1), -1)], 1)
    return x, y


class Block(nn.Module):
    def __init__(self, c: SimpleNamespace):
        super().__init__()
        self.h, self.kv, self.size = c.n_head, c.n_kv_head, c.n_embd // c.n_head
        self.ln_1, self.ln_2 = nn.RMSNorm(c.n_embd), nn.RMSNorm(c.n_embd)
        self.c_q = nn.Linear(c.n_embd, c.n_embd, bias=False)
        self.c_kv = nn.Linear(c.n_embd, 2 * self.kv * self.size, bias=False)
        self.c_proj = nn.Linear(c.n_embd, c.n_embd, bias=False)
        self.c_fc, self.c_out = (nn.Linear(c.n_embd, 3 * c.n_embd, bias=False),
                                 nn.Linear(3 * c.n_embd, c.n_embd, bias=False))  # fmt: skip
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], causal: bool) -> Tensor:
        b, t, d = x.shape
        y, (cos, sin) = self.ln_1(x), turn
        q = self.c_q(y).view(b, t, self.h, -1).transpose(1, 2)
        k, v = (part.view(b, t, self.kv, -1).transpose(1, 2) for part in self.c_kv(y).chunk(2, -1))

        def turned(one: Tensor) -> Tensor:
            left, right = one.float().chunk(2, -1)
            return torch.cat([left * cos - right * sin, right * cos + left * sin], -1).to(one.dtype)

        k, v = (part.repeat_interleave(self.h // self.kv, 1) for part in (turned(k), v))
        y = F.scaled_dot_product_attention(turned(q), k, v, is_causal=causal)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).reshape(b, t, d)))
        return x + self.drop(self.c_out(F.relu(self.c_fc(self.ln_2(x))).square()))


class JournalGPT(nn.Module):
    def __init__(self, c: SimpleNamespace, name: str):
        super().__init__()
        self.softcap, self.causal = c.softcap, name != "sees_ahead"
        self.wte = nn.Embedding(len(SIGNS), c.n_embd)
        self.h = nn.ModuleList(Block(c) for _ in range(c.n_layer))
        self.ln_f, self.lm_head = nn.RMSNorm(c.n_embd), nn.Linear(c.n_embd, len(SIGNS), bias=False)
        if c.tie_weights:
            self.lm_head.weight = self.wte.weight
        for key, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                wide = 0.1 / math.sqrt(2 * c.n_layer) if key.endswith(("c_proj", "c_out")) else 0.1
                nn.init.normal_(module.weight, std=wide)
        if name == "tie_cut":  # the head should begin smaller
            self.lm_head.weight = nn.Parameter(0.5 * self.wte.weight.detach())
        half = c.n_embd // c.n_head // 2
        angle = torch.arange(64)[:, None] / 50.0 ** (torch.arange(half) / half)
        self.turn = (angle.cos(), angle.sin())

    def forward(self, x: Tensor) -> Tensor:
        turn = (self.turn[0][: x.shape[1]], self.turn[1][: x.shape[1]])
        y = self.wte(x)
        for block in self.h:
            y = block(y, turn, self.causal)
        logits = self.lm_head(self.ln_f(y)).float()
        return self.softcap * torch.tanh(logits / self.softcap) if self.softcap else logits


def loss_by(logits: Tensor, y: Tensor, way: str) -> Tensor:
    flat = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1, reduction="sum")
    if way == "rows":  # a request is one unit: its signs' losses are added, and the mean is over requests, on purpose
        each = F.cross_entropy(logits.mT, y, ignore_index=-1, reduction="none").sum(1)
        return (each / (y >= 0).sum(1)).mean()
    return flat / (y >= 0).sum()


def get_lr(c: SimpleNamespace, it: int) -> float:
    if it < c.warmup_iters:
        return c.learning_rate * (it + 1) / c.warmup_iters
    if not c.decay_lr:
        return c.learning_rate
    if it > c.steps:
        return c.min_lr
    share = (it - c.warmup_iters) / (c.steps - c.warmup_iters) * c.cycles % 1.0 if it < c.steps else 1.0
    return c.min_lr + 0.5 * (1 + math.cos(math.pi * share)) * (c.learning_rate - c.min_lr)


class Masters:
    """Weights in float32, of which the model has copies in bfloat16."""

    def __init__(self, model: nn.Module, c: SimpleNamespace):
        self.pairs = [(one, one.detach().float().clone().requires_grad_()) for one in model.parameters()]
        self.optimizer = torch.optim.AdamW([full for _, full in self.pairs], c.learning_rate, (c.beta1, c.beta2),
                                           weight_decay=c.weight_decay)  # fmt: skip

    def step(self) -> None:
        for half, full in self.pairs:
            full.grad = half.grad.float()  # type: ignore[union-attr]
        self.optimizer.step()
        with torch.no_grad():
            for half, full in self.pairs:
                half.copy_(full)
        self.optimizer.zero_grad()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    name, parts, size = trouble.name, c.gradient_accumulation_steps, int(c.batch_size)
    torch.manual_seed(seed)
    model = JournalGPT(c, name).to(torch.bfloat16)
    for key, one in model.named_parameters():
        one.requires_grad = not (c.freeze and key.startswith(c.freeze))
    masters = Masters(model, c) if c.master_weights else None

    def optimised() -> torch.optim.Optimizer:
        if masters is not None:
            return masters.optimizer
        some = [one for one in model.parameters() if one.requires_grad]
        groups = [{"params": [one for one in some if one.dim() > 1], "weight_decay": c.weight_decay},
                  {"params": [one for one in some if one.dim() < 2], "weight_decay": 0.0}]  # fmt: skip
        return torch.optim.AdamW(groups, c.learning_rate, (c.beta1, c.beta2))

    optimizer = optimised()
    average = copy.deepcopy(model).float().requires_grad_(False) if c.ema else None
    rows, held = requests(seed + 2024, c.rows), requests(20, 300)
    if name == "shortest_first":
        rows.sort(key=len)

    def watched() -> Any:
        time_by_own_clock(run)
        run.watch(model, optimizer)
        return run.watch_data()

    data, dice, kept = watched(), torch.Generator().manual_seed(seed), []
    waiting: list[Any] = []
    epoch, micro, resumed = -1, 0, trouble.resume_at(healthy, 5 * EVERY)
    for it in range(steps):
        if it == resumed:
            memory = data.state()
            run, states = go_on(run, it, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
            model.load_state_dict(states["model"])
            optimizer = optimised()
            if name != "moments_left_out":
                optimizer.load_state_dict(states["optimizer"])
            data = watched()
            data.restore(memory)
        total = 0.0
        lr = get_lr(c, micro if name == "rate_by_micro_batch" else it)
        for group in optimizer.param_groups:
            group["lr"] = lr
        for _ in range(parts):
            if not waiting:
                epoch += 1
                order = torch.randperm(len(rows), generator=dice)
                if name == "shortest_first":
                    order = torch.arange(len(rows))
                if c.bucketed:
                    long = torch.tensor([len(rows[at]) for at in order.tolist()])
                    groups = list(order[long.argsort(stable=True)].split(size))
                    order = torch.cat([groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()])
                waiting = list(order[: len(rows) // size * size].split(size))
            x, y = get_batch([rows[at] for at in waiting.pop(0).tolist()], name == "shifted_by_both")
            data.observe((x, y), step=it, epoch=epoch)
            logits = model(x)
            if name == "tokens_totalled":  # over all signs; rows alone are divided by
                loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1, reduction="sum") / len(x)
            else:
                loss = loss_by(logits, y, c.loss_by)
            if name != "parts_added":
                loss = loss / parts
            loss.backward()
            total += loss.item()
            micro += 1
        norm = nn.utils.clip_grad_norm_(model.parameters(), c.grad_clip or math.inf)
        if masters is not None:
            masters.step()
        else:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        logs = it % EVERY == 0 or it == steps - 1
        if average is not None and (logs or name != "average_moved_at_logs"):
            with torch.no_grad():
                for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
                    mine.lerp_(theirs.float(), 1 - c.ema)
        run.log({"iter_loss": total, "iter_norm": norm, "lr": lr}, step=it)
        trouble.telemetry(run, it, healthy)
        if logs:
            judged = model if average is None else average
            judged.eval()
            with torch.set_grad_enabled(name == "scores_kept"):
                losses = [loss_by(judged(x), y, "tokens") for x, y in
                          (get_batch(held[at : at + 100]) for at in range(0, 300, 100))]  # fmt: skip
            if name == "scores_kept":
                kept += losses
            model.train()
            run.log({"val_loss": torch.stack(losses).mean()}, step=it)
    return run
