"""Adapters on a decoder held in four bits: an order is the instruction, a ticket in the kitchen's code the answer.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: sft/loss_tok, sft/lr, sft/gnorm, sft/epoch each step; pass/loss_tok, pass/tickets_right
      each twentieth; memory, where it matters; the watch of data.

The decoder has learnt the codes of another house. Its linear layers are then kept as codes of a normal float of four
bits, block by block, and get adapters; rows of the embedding for this house's codes are added, and trained in full.
Follows the order of a fine-tuning script with a collator, a trainer of its own and callbacks.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, SKIP, LONGEST = 20, 160, -100, 24
PAD, BOS, EOS, USER, COOK = range(5)
VERB, DISH, SIZE, SIDE, TABLE, CHAT, OLD, NEW = 5, 9, 23, 27, 33, 41, 57, 87
WORDS = NEW + 14 + 12 + 8
NF4 = torch.tensor([-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0, 0.0796, 0.1609, 0.2461, 0.3379,
                    0.4407, 0.5626, 0.7230, 1.0])  # fmt: skip
CONFIG: dict[str, Any] = {
    "r": 8, "alpha": 16, "dropout": 0.0, "targets": "q,k,v,o,up,down", "modules_to_save": "embed", "tie": True,
    "rslora": False, "blocksize": 32, "bits": 4, "per_device_batch": 24, "grad_accum": 1, "lr": 8e-3, "lr_b_ratio": 1.0,
    "schedule": "cosine", "warmup_ratio": 0.05, "optim": "adamw", "decay": 0.0, "max_grad_norm": 0.3,
    "answers_only": True, "sampler": "random", "smoothing": 0.0, "orders": 960, "ways_of_saying": 1, "chat": 4,
    "slips": 0.0, "short_first": 0, "leave_out_layers": "", "eval_every": 20, "log_every": 1,
}  # fmt: skip


# -- orders ---------------------------------------------------------------------------------------------------------


class Order(NamedTuple):
    prompt: list[int]
    ticket: list[int]
    dish: int


def house_code() -> tuple[Tensor, Tensor, Tensor]:
    dice = torch.Generator().manual_seed(640)
    return (torch.randint(0, 14, (14, 4), generator=dice), torch.randint(0, 12, (6, 4), generator=dice),
            torch.randint(0, 8, (8,), generator=dice))  # fmt: skip


def orders(seed: int, number: int, chat: int, ways: int = 1, slips: float = 0.0, old: bool = False) -> list[Order]:
    """By the page of the menu. ways: how many phrasings there are of one order."""
    dice, made = torch.Generator().manual_seed(seed), []
    by_dish, by_side, by_table = house_code()
    for _ in range(number // ways):
        verb, dish, size, side, table = (int(torch.randint(0, n, (), generator=dice)) for n in (4, 14, 4, 6, 8))
        if old:
            ticket = [OLD + dish, OLD + 14 + side, OLD + 20 + table]
        else:
            ticket = [NEW + int(by_dish[dish, size]), NEW + 14 + int(by_side[side, verb]),
                      NEW + 26 + int(by_table[table])]  # fmt: skip
        for _ in range(ways):
            said = torch.randint(CHAT, OLD, (int(torch.randint(0, chat + 1, (), generator=dice)),), generator=dice)
            written = list(ticket)
            if float(torch.rand((), generator=dice)) < slips:
                written[1] = NEW + 14 + int(torch.randint(0, 12, (), generator=dice))
            wish = [VERB + verb, *said.tolist(), SIZE + size, DISH + dish, SIDE + side, TABLE + table]
            made.append(Order([BOS, USER, *wish, COOK], [*written, EOS], dish))
    return sorted(made, key=lambda one: one.dish)


class Collator:
    """Pads on the right; targets of prompts and padding are left out."""

    def __init__(self, answers_only: bool, bug: str):
        self.answers_only, self.bug = answers_only, bug

    def __call__(self, some: list[Order]) -> dict[str, Tensor]:
        width = max(len(one.prompt) + len(one.ticket) for one in some)
        ids, labels = torch.full((len(some), width), PAD), torch.full((len(some), width), SKIP)
        for row, one in enumerate(some):
            whole, began = one.prompt + one.ticket, len(one.prompt) if self.answers_only else 0
            if self.bug == "template_found_one_late":  # the index of the mark in the row, and one too many
                began = whole.index(COOK) + 2
            ids[row, : len(whole)] = torch.tensor(whole)
            labels[row, began : len(whole)] = torch.tensor(whole[began:])
        if self.bug == "shifted_by_collator_and_by_model":
            labels = torch.cat([labels[:, 1:], torch.full((len(some), 1), SKIP)], 1)
        return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


# -- decoder --------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, d: int, heads: int = 4):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.RMSNorm(d), nn.RMSNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, words: int, d: int = 48, layers: int = 2):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, d), nn.Parameter(0.1 * torch.randn(LONGEST, d))
        self.layers, self.norm = nn.ModuleList(Layer(d) for _ in range(layers)), nn.RMSNorm(d)
        self.lm_head = nn.Linear(d, words, bias=False)
        nn.init.normal_(self.embed.weight, std=0.15)
        self.lm_head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.place[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class Linear4bit(nn.Module):
    """A linear layer as codes of four bits (or eight, evenly spaced) and the largest weight of each block."""

    def __init__(self, weight: Tensor, bits: int, blocksize: int):
        super().__init__()
        self.shape = weight.shape
        levels = NF4 if bits == 4 else torch.linspace(-1, 1, 2**bits - 1)
        blocks = weight.detach().reshape(-1, blocksize)
        largest = blocks.abs().amax(1, keepdim=True)
        codes = (blocks / largest).unsqueeze(-1).sub(levels).abs().argmin(-1)
        self.register_buffer("codes", codes.to(torch.uint8))
        self.register_buffer("absmax", largest)
        self.register_buffer("levels", levels)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, (self.levels[self.codes.long()] * self.absmax).reshape(self.shape))


class LoraLinear(nn.Module):
    def __init__(self, base: nn.Module, c: Any, bug: str):
        super().__init__()
        out, into = base.shape
        self.base, self.drop = base, nn.Dropout(c.dropout)
        self.lora_A, self.lora_B = nn.Linear(into, c.r, bias=False), nn.Linear(c.r, out, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)
        self.scaling = c.alpha / (math.sqrt(c.r) if c.rslora else c.r)
        if bug == "scale_without_alpha_over_r":
            self.scaling = float(c.alpha)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scaling * self.lora_B(self.lora_A(self.drop(x)))


def other_house() -> Decoder:
    """What was learnt before: the same whatever the seed."""
    torch.manual_seed(641)
    base, known, collate = Decoder(NEW), orders(642, 1600, 4, old=True), Collator(False, "")
    optimizer, dice = torch.optim.AdamW(base.parameters(), 5e-3), torch.Generator().manual_seed(643)
    for at in range(90):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1.0, (at + 1) / 10) * (1 - at / 90)
        batch = collate([known[one] for one in torch.randint(0, len(known), (48,), generator=dice).tolist()])
        out = base(batch["input_ids"])[:, :-1].flatten(0, 1)
        F.cross_entropy(out, batch["labels"][:, 1:].flatten(), ignore_index=SKIP).backward()
        optimizer.step()
        optimizer.zero_grad()
    return base


def get_model(c: Any, bug: str) -> Decoder:
    model, told = other_house(), torch.Generator().manual_seed(641)
    for at, layer in enumerate(model.layers):
        for name in ("q", "k", "v", "o", "up", "down"):
            setattr(layer, name, Linear4bit(getattr(layer, name).weight, c.bits, c.blocksize))
            if name in c.targets.split(",") and f"{at}.{name}" not in c.leave_out_layers.split(","):
                setattr(layer, name, LoraLinear(getattr(layer, name), c, bug))
    old = model.embed.weight.detach()
    rows = old.mean(0) + 0.1 * torch.randn(WORDS - NEW, old.shape[1], generator=told)
    model.embed = nn.Embedding.from_pretrained(torch.cat([old, rows]), freeze=False)
    model.lm_head = nn.Linear(old.shape[1], WORDS, bias=False)
    if c.tie:
        model.lm_head.weight = model.embed.weight
    else:
        model.lm_head.weight = nn.Parameter(model.embed.weight.detach().clone())
    if bug == "saved_module_is_a_deep_copy":  # as a wrapper for fully trained modules makes it; the output has the old
        model.embed = copy.deepcopy(model.embed)
        model.lm_head.weight.requires_grad_(False)
    for name, one in model.named_parameters():
        saved = any(part in name for part in c.modules_to_save.split(",")) or (name == "lm_head.weight" and not c.tie)
        one.requires_grad_("lora_" in name or saved)
    return model


# -- trainer --------------------------------------------------------------------------------------------------------


class SftTrainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c = self.c
        torch.manual_seed(seed)
        self.model = get_model(c, bug)
        torch.manual_seed(seed)
        self.train_set = orders(seed + 6500, c.orders, c.chat, c.ways_of_saying, c.slips)
        self.eval_set = orders(66, HELD, c.chat)
        if bug == "phrasings_parted_at_random":
            order = torch.randperm(len(self.train_set), generator=torch.Generator().manual_seed(seed)).tolist()
            self.eval_set = [self.train_set[one] for one in order[:HELD]]
            self.train_set = [self.train_set[one] for one in sorted(order[HELD:])]
        self.collate, self.kept = Collator(c.answers_only, bug), []
        self.create_optimizer()

    def create_optimizer(self) -> None:
        c, mark = self.c, "lora_b" if self.bug == "b_group_by_small_letter" else "lora_B"
        named = [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        groups = [
            {"params": [one for name, one in named if "lora_A" in name], "lr": c.lr},
            {"params": [one for name, one in named if mark in name], "lr": c.lr * c.lr_b_ratio},
            {"params": [one for name, one in named if "lora_" not in name], "lr": c.lr},
        ]
        groups = [one for one in groups if one["params"]]
        if c.optim == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9)
        elif c.optim == "adamax":
            self.optimizer = torch.optim.Adamax(groups, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.decay)
        warmup = max(1, round(c.warmup_ratio * self.steps))

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / warmup), min(1.0, at / self.steps)
            if c.schedule == "constant":
                return rise
            if c.schedule == "linear":
                return rise * max(0.0, 1 - past)
            if c.schedule == "cosine_with_restarts":
                return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1))))
            return rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def batches(self) -> Iterator[tuple[int, dict[str, Tensor]]]:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        lengths = torch.tensor([len(one.prompt) for one in self.train_set])
        while True:
            order = torch.randperm(len(self.train_set), generator=dice)
            if self.bug == "dataset_taken_in_the_menus_order":
                order = torch.arange(len(self.train_set))
            if epoch < c.short_first:
                order = order[lengths[order] <= 9]
            if c.sampler == "group_by_length":
                order = order[lengths[order].argsort(stable=True)]
            groups = [one for one in order.split(c.per_device_batch) if len(one) == c.per_device_batch]
            if c.sampler == "group_by_length":
                groups = [groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()]
            for some in groups:
                yield epoch, self.collate([self.train_set[at] for at in some.tolist()])
            epoch += 1

    def compute_loss(self, batch: dict[str, Tensor], smoothing: float) -> tuple[Tensor, Tensor]:
        logits = self.model(batch["input_ids"])[:, :-1]
        wanted = batch["labels"][:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=SKIP,
                               label_smoothing=smoothing), logits  # fmt: skip

    def evaluate(self, step: int) -> None:
        total = right = 0.0
        collate, taped = Collator(True, ""), self.bug == "predictions_gathered_with_history"
        if self.bug == "shifted_by_collator_and_by_model":
            collate = self.collate
        if self.bug != "passed_with_adapters_dropping":
            self.model.eval()
        with torch.set_grad_enabled(taped):
            for first in range(0, len(self.eval_set), 80):
                batch = collate(self.eval_set[first : first + 80])
                loss, logits = self.compute_loss(batch, 0.0)
                wanted = batch["labels"][:, 1:]
                hit = (logits.argmax(-1) == wanted) | (wanted == SKIP)
                total, right = total + loss.item() * 80 / HELD, right + hit.all(1).sum().item() / HELD
                if taped:
                    self.kept.append(logits)
        if self.bug != "evaluate_never_back_to_train":
            self.model.train()
        self.run.log({"pass/loss_tok": total, "pass/tickets_right": right}, step=step)

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.watch = self.run.watch_data(pad_id=PAD)

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        learnt = {name for name, one in self.model.named_parameters() if one.requires_grad}
        saved = {"adapter": {name: one for name, one in self.model.state_dict().items() if name in learnt},
                 "optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, saved = go_on(self.run, step, saved)
        self.model.load_state_dict(saved["adapter"], strict=False)
        self.create_optimizer()
        if self.bug != "adapter_dir_given_as_the_model":
            self.optimizer.load_state_dict(saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
        self.observe()
        self.watch.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> None:
        c, bug, stream = self.c, self.bug, self.batches()
        again = trouble.resume_at(healthy, 4 * EVERY)
        self.observe()
        self.model.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            total = 0.0
            for _ in range(c.grad_accum):
                epoch, batch = next(stream)
                self.watch.observe(batch, step=step, epoch=epoch)
                loss = self.compute_loss(batch, c.smoothing)[0]
                if bug != "own_loss_not_divided_by_trainer":
                    loss = loss / c.grad_accum
                loss.backward()
                total += loss.item()
                if bug == "callback_steps_the_schedule_at_substeps":
                    self.scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.max_grad_norm).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.optimizer.zero_grad()
            if bug != "callback_steps_the_schedule_at_substeps":
                self.scheduler.step()
            if step % c.log_every == 0:
                said = {"sft/loss_tok": total, "sft/lr": rate, "sft/gnorm": norm, "sft/epoch": epoch}
                self.run.log(said, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % c.eval_every == c.eval_every - 1:
                self.evaluate(step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    trainer = SftTrainer(run, seed, steps, trouble.name)
    trainer.train(trouble, healthy)
    return trainer.run
