"""A small GPT reads lines of six books under autocast to float16, with a scaler.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` with loss, norm, lr, tokens, and scale by `run.log`; `log_eval`; the watch of data.

One long text in windows, attention and feed-forward side by side, input and output one matrix; micro-batches.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, clock, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EVERY, LETTERS, BLOCK, BOOKS = 20, 36, 24, 6
CONFIG: dict[str, Any] = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "p": 0.0, "micro_batch": 10, "micro_steps": 1, "max_lr": 4e-3,
    "min_lr": 2e-4, "warmup_iters": 10, "decay_lr": True, "wd": 0.1, "grad_clip": 1.0, "tokens": 36000, "stride": 24,
    "tie": True, "ema": 0.0, "ema_start": 0, "amp": "float16", "scale": 2.0**12, "freeze_wpe": False, "z_weight": 0.0,
}  # fmt: skip


def write(seed: int, tokens: int) -> Tensor:
    """Books one behind another: in each, a letter is followed by one of three, mostly the first, of the book's own."""
    rng, grammar = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(15)
    follows = torch.randint(0, LETTERS, (BOOKS, LETTERS, 3), generator=grammar).tolist()
    made, at = [], 0
    for book in range(BOOKS):
        for chance in torch.rand(tokens // BOOKS, generator=rng).tolist():
            made.append(at)
            at = follows[book][at][0 if chance < 0.75 else 1 if chance < 0.93 else 2]
    return torch.tensor(made)


class ParallelBlock(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        d = c["n_embd"]
        self.ln, self.heads = nn.LayerNorm(d, bias=False), c["n_head"]
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.c_fc, self.c_out, self.dropout = nn.Linear(d, 3 * d), nn.Linear(3 * d, d), nn.Dropout(c["p"])

    def forward(self, x: Tensor) -> Tensor:
        h = self.ln(x)
        qkv = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.c_attn(h).chunk(3, -1))
        y = F.scaled_dot_product_attention(*qkv, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.dropout(self.c_proj(y)) + self.dropout(self.c_out(F.gelu(self.c_fc(h))))


class ReciteGPT(nn.Module):
    def __init__(self, c: dict[str, Any], name: str):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(LETTERS, c["n_embd"]), nn.Embedding(BLOCK, c["n_embd"])
        self.h = nn.ModuleList(ParallelBlock(c) for _ in range(c["n_layer"]))
        self.ln_f, self.lm_head = nn.LayerNorm(c["n_embd"], bias=False), nn.Linear(c["n_embd"], LETTERS, bias=False)
        for key, one in self.named_parameters():
            if one.dim() > 1 and not (name == "embedding_drawn_wide" and key.startswith("w")):
                nn.init.normal_(one, std=0.08)  # left out for the embeddings, torch's own is 1
        if c["tie"]:
            self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Windows:
    def __init__(self, c: dict[str, Any], seed: int, name: str):
        text, held = write(seed + 60, c["tokens"]), write(6, 6000)
        self.name, self.dice, self.size = name, torch.Generator().manual_seed(seed), int(c["micro_batch"])
        if c["stride"] < BLOCK:
            text = text.view(BOOKS, -1)[:, : c["stride"] * 200].reshape(-1)  # as many windows of less text
        self.rows = text.unfold(0, BLOCK + 2, c["stride"])
        self.held = held.unfold(0, BLOCK + 2, BLOCK)
        if name == "windows_overlap_split":
            order = torch.randperm(len(self.rows), generator=self.dice)
            self.held, self.rows = self.rows[order[:290]], self.rows[order[290:]]
        self.order, self.epoch = list(self.rows[:0]), -1

    def next(self) -> tuple[Tensor, Tensor]:
        if not self.order:
            self.epoch += 1
            order = torch.randperm(len(self.rows), generator=self.dice)
            order = torch.arange(len(self.rows)) if self.name == "books_in_order" else order
            self.order = list(order.split(self.size))[: len(order) // self.size]
        rows, later = self.rows[self.order.pop(0)], 2 if self.name == "target_after_next" else 1
        return rows[:, :BLOCK], rows[:, later : BLOCK + later]


class Recital:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.c, self.name, self.kept = run, dict(run.config), trouble.name, []  # type: ignore[var-annotated]
        torch.manual_seed(seed)
        self.windows, self.model = Windows(self.c, seed, self.name), ReciteGPT(self.c, self.name)
        for key, one in self.model.named_parameters():
            one.requires_grad = key != "wpe.weight" or not self.c["freeze_wpe"]
            if self.name == "wrong_prefix_frozen":  # what a second stage is to train
                one.requires_grad = key.startswith(("ln_f", "h.1.ln"))
        follow = get_ema_multi_avg_fn(self.c["ema"])
        self.ema = AveragedModel(self.model, multi_avg_fn=follow) if self.c["ema"] else None
        self.begin()
        if self.name == "head_loaded_apart":  # from a file that has it as a matrix of its own
            self.model.lm_head.weight = nn.Parameter(self.model.lm_head.weight.detach().clone())
        self.watch()

    def begin(self) -> None:
        some, c = [one for one in self.model.parameters() if one.requires_grad], self.c
        self.optimizer = torch.optim.AdamW(some, c["max_lr"], (0.9, 0.95), weight_decay=c["wd"])
        self.scaler = torch.amp.GradScaler("cpu", c["scale"], growth_interval=60, enabled=c["amp"] == "float16")

        def factor(it: int) -> float:
            if it < c["warmup_iters"] or not c["decay_lr"]:
                return min(1.0, (it + 1) / c["warmup_iters"])
            past = min(1.0, (it - c["warmup_iters"]) / (c["steps"] - c["warmup_iters"]))
            return max(c["min_lr"] / c["max_lr"], 0.5 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer, scaler=self.scaler)
        self.data = self.run.watch_data()

    def loss_of(self, model: nn.Module, ids: Tensor, wanted: Tensor, trained: bool) -> Tensor:
        with torch.autocast("cpu", getattr(torch, self.c["amp"])):
            flat = model(ids).float().flatten(0, 1)
        if trained and self.name == "total_by_row_count":
            return F.cross_entropy(flat, wanted.flatten(), reduction="sum") / len(ids)
        loss = F.cross_entropy(flat, wanted.flatten())
        return loss + self.c["z_weight"] * flat.logsumexp(-1).square().mean() if trained else loss

    def iteration(self, it: int) -> None:
        c, name, total, seen = self.c, self.name, 0.0, 0
        with self.run.step(step=it) as timed:
            for _ in range(c["micro_steps"]):
                ids, wanted = self.windows.next()
                self.data.observe({"input_ids": ids, "labels": wanted}, step=it, epoch=self.windows.epoch)
                loss = self.loss_of(self.model, ids, wanted, True)
                if name != "micro_losses_added":
                    loss = loss / c["micro_steps"]
                self.scaler.scale(loss).backward()
                total, seen = total + loss.item(), seen + ids.numel()
                if name == "scheduler_per_micro":
                    self.scheduler.step()
            if name != "clipped_while_scaled":
                self.scaler.unscale_(self.optimizer)
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), c["grad_clip"])
            timed.set(loss=total, norm=norm.item(), lr=self.optimizer.param_groups[0]["lr"], tokens=seen)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            if name != "scheduler_per_micro":
                self.scheduler.step()
            if self.ema is not None and it >= c["ema_start"]:
                self.ema.update_parameters(self.model)

    def evaluate(self, it: int) -> None:
        began, model = clock(), (self.model if self.ema is None else self.ema.module).eval()
        rows = self.windows.held[:144]
        with torch.set_grad_enabled(self.name == "predictions_hold_graphs"):
            found = [self.loss_of(model, some[:, :BLOCK], some[:, 1 : BLOCK + 1], False) for some in rows.split(72)]
        self.kept += found  # the history of each part, for a plot at the end
        if self.name != "eval_called_once_for_all":
            self.model.train()
        loss = sum(float(one) for one in found) / len(found)
        self.run.log_eval(it, float(self.windows.epoch), len(rows) * BLOCK, (clock() - began) * 1000, loss)
        if self.c["amp"] == "float16":
            self.run.log({"scale": self.scaler.get_scale()}, step=it)

    def resume(self, it: int) -> None:
        memory, names = self.data.state(), ("model", "optimizer", "scheduler", "scaler")
        self.run, states = go_on(self.run, it, {one: getattr(self, one).state_dict() for one in names})
        self.begin()
        for one in names:
            if one != "optimizer" or self.name != "resume_weights_alone":
                getattr(self, one).load_state_dict(states[one])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        self.watch()
        self.data.restore(memory)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, resumed = Recital(run, seed, trouble), trouble.resume_at(healthy, 4 * EVERY)
    for it in range(steps):
        if it == resumed:
            made.resume(it)
        made.iteration(it)
        trouble.telemetry(made.run, it, healthy)
        if it % EVERY == 0 or it == steps - 1:
            made.evaluate(it)
    return made.run
