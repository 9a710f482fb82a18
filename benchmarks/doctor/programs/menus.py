"""An encoder fills in what was blotted out of menus, under autocast to float16 with a scaler.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: mlm_loss, lr, loss_scale each step; dev/loss, dev/accuracy each twentieth; memory, where it
      matters.

Torch's own attention, norms behind each layer, places learnt, one matrix for input and output; Adam, a rate that falls
by the root; a class `Pretrainer` with hooks that are called by name.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, DISHES, PARTS, PRICES, LONG = 20, 10, 16, 9, 16
PAD, MASK, FIRST = 0, 1, 2
VOCABULARY = FIRST + DISHES + PARTS + PRICES
CONFIG: dict[str, Any] = {
    "dim": 32, "layers": 2, "heads": 4, "dropout": 0.0, "batch_size": 32, "accumulate": 1, "lr": 5e-3, "warmup": 30,
    "schedule": "sqrt", "clip": 1.0, "mask_share": 0.2, "menus": 4000, "tied": True, "init_scale": 2.0**12,
    "growth_interval": 50, "amp": "float16", "smoothing": 0.0, "frozen": "", "bf16_instead": False, "wd": 0.0,
    "random_share": 0.0, "whole_dishes": False,
}  # fmt: skip


def menus(seed: int, number: int) -> Tensor:
    """Rows (number, LONG) of dish, parts, price, …, padded: parts belong to dishes, prices are by dish and house."""
    dice, cooks = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(17)
    belongs = torch.randint(0, PARTS, (DISHES, 4), generator=cooks).tolist()
    price = torch.randint(0, PRICES - 3, (DISHES,), generator=cooks).tolist()
    rows = torch.zeros(number, LONG, dtype=torch.long)
    for place in range(number):
        dear, row = int(torch.randint(0, 3, (1,), generator=dice)), []
        for _ in range(int(torch.randint(2, 5, (1,), generator=dice))):
            dish = int(torch.randint(0, DISHES, (1,), generator=dice))
            parts = torch.randint(0, 4, (2,), generator=dice).tolist()
            row += [FIRST + dish, *(FIRST + DISHES + belongs[dish][part] for part in parts),
                    FIRST + DISHES + PARTS + price[dish] + dear]  # fmt: skip
        rows[place, : len(row)] = torch.tensor(row)
    return rows


def blotted(rows: Tensor, c: dict[str, Any], dice: torch.Generator) -> tuple[Tensor, Tensor]:
    """Ids with some of them hidden, and what they were; -100 where nothing is asked."""
    hidden = torch.rand(rows.shape, generator=dice) < c["mask_share"]
    if c["whole_dishes"]:
        hidden = hidden[:, ::4].repeat_interleave(4, 1)
    hidden &= rows != PAD
    hidden[:, 0] |= ~hidden.any(1)
    ids = rows.masked_fill(hidden, MASK)
    if c["random_share"]:
        other = torch.randint(FIRST, VOCABULARY, rows.shape, generator=dice)
        ids = torch.where(hidden & (torch.rand(rows.shape, generator=dice) < c["random_share"]), other, ids)
    return ids, rows.masked_fill(~hidden, -100)


class Layer(nn.Module):
    def __init__(self, c: dict[str, Any], name: str):
        super().__init__()
        self.attention = nn.MultiheadAttention(c["dim"], c["heads"], batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(c["dim"]), nn.LayerNorm(c["dim"])
        self.up, self.down = nn.Linear(c["dim"], 3 * c["dim"]), nn.Linear(3 * c["dim"], c["dim"])
        self.rate, self.always = c["dropout"], name == "functional_always"

    def dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, p=self.rate) if self.always else F.dropout(x, self.rate, self.training)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = self.norm1(x + self.dropped(self.attention(x, x, x, key_padding_mask=hidden, need_weights=False)[0]))
        return self.norm2(x + self.dropped(self.down(F.gelu(self.up(x)))))


class MenuBert(nn.Module):
    def __init__(self, c: dict[str, Any], name: str):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, c["dim"], padding_idx=PAD), nn.Embedding(LONG, c["dim"])
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.15)
        self.enter = nn.LayerNorm(c["dim"])
        self.layers = nn.ModuleList(Layer(c, name) for _ in range(c["layers"]))
        self.change, self.decoder = nn.Linear(c["dim"], c["dim"]), nn.Linear(c["dim"], VOCABULARY)
        if name == "tie_cut":  # tied by its values alone
            self.decoder.weight.data = self.words.weight.data.clone()
        elif c["tied"]:
            self.decoder.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.enter(self.words(ids) + self.places.weight)
        for layer in self.layers:
            x = layer(x, ids == PAD)
        return self.decoder(F.gelu(self.change(x)))


class Pretrainer:
    def __init__(self, run: Any, seed: int, trouble: Trouble, healthy: str | None):
        self.run, self.c, self.trouble, self.name, self.healthy = run, dict(run.config), trouble, trouble.name, healthy
        torch.manual_seed(seed)
        self.model = MenuBert(self.c, self.name)
        for key, one in self.model.named_parameters():
            one.requires_grad = not (self.c["frozen"] and key.startswith(self.c["frozen"]))
        self.rows, self.dev = menus(seed + 700, self.c["menus"]), menus(70, 320)
        self.dice, self.kept, self.waiting = torch.Generator().manual_seed(seed), [], []  # type: ignore[var-annotated]
        self.half = torch.bfloat16 if self.c["amp"] == "bfloat16" else torch.float16
        self.build()

    def build(self) -> None:
        c = self.c
        self.adam = torch.optim.AdamW([one for one in self.model.parameters() if one.requires_grad], c["lr"],
                                      (0.9, 0.98), weight_decay=c["wd"])  # fmt: skip
        self.scaler = torch.amp.GradScaler("cpu", c["init_scale"], growth_interval=c["growth_interval"],
                                           enabled=c["amp"] == "float16")  # fmt: skip

        def share(step: int) -> float:
            if step < c["warmup"]:
                return (step + 1) / c["warmup"]
            if c["schedule"] == "constant":
                return 1.0
            return math.sqrt(c["warmup"] / step)

        self.rates = torch.optim.lr_scheduler.LambdaLR(self.adam, share)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.adam)

    def batch(self) -> Tensor:
        size = int(self.c["batch_size"])
        if len(self.waiting) < size:
            self.waiting = torch.randperm(len(self.rows), generator=self.dice).tolist()
        some, self.waiting = self.waiting[:size], self.waiting[size:]
        return self.rows[some]

    def loss(self, ids: Tensor, wanted: Tensor) -> Tensor:
        with torch.autocast("cpu", self.half):
            logits = self.model(ids)
        logits = logits.float()
        if self.name == "shifted_as_a_decoder":  # the loss is that of the decoder's script
            logits, wanted = logits[:, :-1], wanted[:, 1:]
        if self.name == "probabilities_given":
            logits = logits.softmax(-1)
        if self.name == "mean_over_the_asked_and_others":
            return F.cross_entropy(logits.mT, wanted, reduction="none").mean()
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), label_smoothing=self.c["smoothing"])

    def on_step(self, step: int) -> None:
        c, name, parts, total = self.c, self.name, self.c["accumulate"], 0.0
        self.adam.zero_grad()
        for _ in range(parts):
            loss = self.loss(*blotted(self.batch(), c, self.dice))
            share = loss if name == "parts_added" else loss / parts
            self.scaler.scale(share).backward()
            total += share.item()
            if name == "scheduler_in_micro_loop":
                self.rates.step()
        if name == "stepped_past_the_scaler":
            nn.utils.clip_grad_norm_(self.model.parameters(), c["clip"])
            self.adam.step()
        else:
            self.scaler.unscale_(self.adam)
            nn.utils.clip_grad_norm_(self.model.parameters(), c["clip"])
            self.scaler.step(self.adam)
            self.scaler.update()
        rate = self.adam.param_groups[0]["lr"]
        if name != "scheduler_in_micro_loop":
            self.rates.step()
        self.run.log({"mlm_loss": total, "lr": rate, "loss_scale": self.scaler.get_scale()}, step=step)

    def on_evaluate(self, step: int) -> None:
        self.model.eval()
        dice, losses, right, asked = torch.Generator().manual_seed(4), [], 0, 0
        for rows in self.dev.split(80):
            ids, wanted = blotted(rows, self.c | {"random_share": 0.0}, dice)
            with torch.set_grad_enabled(self.name == "scores_kept"):
                logits = self.model(ids)
                loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
            losses.append(loss.item())
            if self.name == "scores_kept":  # for a table of all evaluations
                self.kept.append(loss)
            right += int((logits.argmax(-1) == wanted).sum())
            asked += int((wanted >= 0).sum())
        self.model.train()
        self.run.log({"dev/loss": sum(losses) / len(losses), "dev/accuracy": right / asked}, step=step)

    def on_resume(self, step: int) -> None:
        parts = {"model": self.model, "adam": self.adam, "rates": self.rates, "scaler": self.scaler}
        self.run, states = go_on(self.run, step, {key: one.state_dict() for key, one in parts.items()})
        self.model.load_state_dict(states["model"])
        self.build()
        self.rates.load_state_dict(states["rates"])
        self.scaler.load_state_dict(states["scaler"])
        if self.name == "moments_left_out":
            self.adam.param_groups[0]["lr"] = self.rates.get_last_lr()[0]
        else:
            self.adam.load_state_dict(states["adam"])
        self.watch()

    def run_all(self) -> Any:
        self.watch()
        resumed = self.trouble.resume_at(self.healthy, 5 * EVERY)
        for step in range(self.c["steps"]):
            if step == resumed:
                self.on_resume(step)
            self.on_step(step)
            self.trouble.telemetry(self.run, step, self.healthy)
            if step % EVERY == 0 or step == self.c["steps"] - 1:
                self.on_evaluate(step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return Pretrainer(run, seed, Trouble(fault, seed), healthy).run_all()
