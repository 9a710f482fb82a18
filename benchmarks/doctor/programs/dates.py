"""Adapters of low rank teach a decoder that knows one way of writing dates another one, letter by letter.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` as train/loss, train/lr each step, and val/loss, val/exact; the watch of data.

A small decoder as Llama's (root mean square norms, rotary places, one matrix for input and output), adapters set in by
name, answers alone in the loss; AdamW and a rate that falls in a line; functions, and a `main` that calls them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import fit, once

EVERY = 20
SIGNS = "_$0123456789abcdefghijklmnopqrstuvwxyz .-/>,"
MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
          "november", "december")  # fmt: skip
CONFIG: dict[str, Any] = {
    "hidden_size": 48, "layers": 2, "heads": 4, "tie_word_embeddings": True, "lora_r": 8, "lora_alpha": 16,
    "lora_dropout": 0.0, "targets": ["q", "k", "v", "o", "up", "down"], "batch_size": 16, "accumulation": 1,
    "learning_rate": 6e-3, "warmup_ratio": 0.05, "weight_decay": 0.0, "max_grad_norm": 1.0, "train_rows": 3200,
    "train_on_prompt": False, "modules_to_save": [], "group_by_length": False, "scheduler": "linear",
    "label_smoothing": 0.0, "loss_over": "batch", "optimizer": "adamw", "scaling": "alpha/r",
}  # fmt: skip


def written(day: int, month: int, year: int, way: str) -> tuple[str, str]:
    """A date in words, and as figures. The base knows way "iso"; the adapters learn "us"."""
    said = f"{day} {MONTHS[month - 1]} {year}"
    return said, f"{year}-{month:02d}-{day:02d}" if way == "iso" else f"{month}/{day}/{year % 100:02d}"


def rows_of(seed: int, number: int, way: str) -> list[tuple[list[int], list[int]]]:
    """Prompts and answers, each date once."""
    dice = torch.Generator().manual_seed(seed)
    rows = []
    for place in torch.randperm(28 * 12 * 60, generator=dice)[:number].tolist():
        said, answer = written(1 + place % 28, 1 + place // 28 % 12, 1960 + place // 336, way)
        rows.append(([SIGNS.index(sign) for sign in said + ">"], [SIGNS.index(sign) for sign in answer + "$"]))
    return rows


def padded(some: list[tuple[list[int], list[int]]], cfg: dict[str, Any], name: str = "") -> tuple[Tensor, Tensor]:
    """Ids and labels, both (rows, longest)."""
    long = max(len(prompt) + len(answer) for prompt, answer in some)
    ids, labels = [], []
    for prompt, answer in some:
        rest = [0] * (long - len(prompt) - len(answer))
        ids.append(prompt + answer + rest)
        shown = prompt if cfg["train_on_prompt"] else [-100] * len(prompt)
        labels.append(shown + answer + [-100] * len(rest))
    wanted = torch.tensor(labels)
    if name == "end_masked":  # the token of the end is that of the padding, and what is padding is masked
        wanted[wanted == SIGNS.index("$")] = -100
    return torch.tensor(ids), wanted


class Norm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Layer(nn.Module):
    def __init__(self, cfg: dict[str, Any]):
        super().__init__()
        width = cfg["hidden_size"]
        self.heads, self.attn_norm, self.mlp_norm = cfg["heads"], Norm(width), Norm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, d = x.shape
        y = self.attn_norm(x)
        q, k, v = (part(y).view(b, t, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))

        def turned(one: Tensor) -> Tensor:
            left, right = one.chunk(2, -1)
            return one * cos + torch.cat([-right, left], -1) * sin

        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class DateLM(nn.Module):
    def __init__(self, cfg: dict[str, Any]):
        super().__init__()
        width = cfg["hidden_size"]
        self.embed = nn.Embedding(len(SIGNS), width)
        nn.init.normal_(self.embed.weight, std=0.15)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg["layers"]))
        self.norm, self.lm_head = Norm(width), nn.Linear(width, len(SIGNS), bias=False)
        if cfg["tie_word_embeddings"]:
            self.lm_head.weight = self.embed.weight
        half = width // cfg["heads"] // 2
        angle = torch.arange(48)[:, None] / 100.0 ** (torch.arange(half) / half)
        self.register_buffer("cos", torch.cat([angle.cos()] * 2, -1), persistent=False)
        self.register_buffer("sin", torch.cat([angle.sin()] * 2, -1), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        x, long = self.embed(ids), ids.shape[1]
        for layer in self.layers:
            x = layer(x, self.cos[:long], self.sin[:long])
        return self.lm_head(self.norm(x))


class Lora(nn.Module):
    def __init__(self, base: nn.Linear, cfg: dict[str, Any]):
        super().__init__()
        self.base, rank = base, cfg["lora_r"]
        self.A, self.B = nn.Parameter(torch.empty(rank, base.in_features)), nn.Parameter(
            torch.zeros(base.out_features, rank))  # fmt: skip
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))
        self.scale = cfg["lora_alpha"] / (math.sqrt(rank) if cfg["scaling"] == "alpha/sqrt(r)" else rank)
        self.drop = nn.Dropout(cfg["lora_dropout"])

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scale * F.linear(F.linear(self.drop(x), self.A), self.B)


def loss_of(model: nn.Module, ids: Tensor, labels: Tensor, cfg: dict[str, Any], name: str = "") -> Tensor:
    ahead = 2 if name == "one_token_further" else 1
    logits, wanted = model(ids)[:, :-ahead], labels[:, ahead:]
    if name == "tokens_totalled":
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / len(ids)
    if cfg["loss_over"] == "rows":  # each row weighs the same, on purpose
        each = F.cross_entropy(logits.mT, wanted, reduction="none")
        return (each.sum(1) / (wanted >= 0).sum(1)).mean()
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), label_smoothing=cfg["label_smoothing"])


@once("hidden_size", "layers", "heads")
def base_model(cfg: dict[str, Any]) -> DateLM:
    """Has learnt the first way of writing dates; the same for all seeds."""
    plain = cfg | {"tie_word_embeddings": True, "train_on_prompt": False, "label_smoothing": 0.0, "loss_over": "batch"}
    with torch.random.fork_rng():
        torch.manual_seed(8)
        model, rows = DateLM(plain), rows_of(88, 3000, "iso")

        def loss() -> Tensor:
            return loss_of(model, *padded([rows[at] for at in torch.randint(0, 3000, (24,)).tolist()], plain), plain)

        fit(torch.optim.AdamW(model.parameters(), 5e-3), 260, loss)
    return model.eval()


def adapted(cfg: dict[str, Any], name: str) -> DateLM:
    base = base_model(cfg)
    model = DateLM(cfg)
    model.load_state_dict(base.state_dict())
    if name == "base_eval_mode":
        model.eval()
    model.requires_grad_(False)
    for layer in model.layers:
        for key in cfg["targets"]:
            setattr(layer, key, Lora(getattr(layer, key), cfg))
    if name == "base_eval_mode":
        model.eval()
    for key, one in model.named_parameters():
        if key.split(".")[0] in cfg["modules_to_save"]:
            one.requires_grad = True
        if name == "wrong_names_frozen":  # "lora" is in no name: what the test leaves are norms
            one.requires_grad = "norm" in key
    return model


def main(run: Any, cfg: dict[str, Any], seed: int, steps: int, trouble: Trouble, healthy: str | None) -> Any:
    name, parts = trouble.name, cfg["accumulation"]
    torch.manual_seed(seed)
    model = adapted(cfg, name)
    rows = rows_of(909, cfg["train_rows"] + 256, "us")
    held, rows = rows[:256], rows[256:]
    if name == "whole_list_trained":  # `rows = load()` once more, where the part for training was meant
        rows = held + rows[:64]
    if name == "shortest_first":
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))

    def optimised() -> tuple[Any, Any]:
        given = [one for one in model.parameters() if one.requires_grad]
        optimizer: Any
        if cfg["optimizer"] == "adafactor":
            optimizer = torch.optim.Adafactor(given, 4 * cfg["learning_rate"])
        else:
            optimizer = torch.optim.AdamW(given, cfg["learning_rate"], weight_decay=cfg["weight_decay"])
        warm = max(1, round(cfg["warmup_ratio"] * steps))
        shapes = {"linear": lambda at: max(0.0, (steps - at) / (steps - warm)), "constant": lambda at: 1.0,
                  "cosine": lambda at: 0.5 * (1 + math.cos(math.pi * (at - warm) / (steps - warm)))}  # fmt: skip
        shape = shapes[cfg["scheduler"]]
        return optimizer, torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda at: (at + 1) / warm if at < warm else shape(at)
        )

    optimizer, scheduler = optimised()

    def watched() -> Any:
        time_by_own_clock(run)
        run.watch(model, optimizer)
        return run.watch_data(pad_id=0)

    data = watched()
    dice, size, epoch, waiting = torch.Generator().manual_seed(seed), int(cfg["batch_size"]), -1, []  # type: ignore[var-annotated]
    resumed = trouble.resume_at(healthy, 4 * EVERY)
    if name != "base_eval_mode":
        model.train()
    for step in range(steps):
        if step == resumed:
            memory = data.state()
            run, states = go_on(run, step, [one.state_dict() for one in (model, optimizer, scheduler)])
            model.load_state_dict(states[0])
            optimizer, scheduler = optimised()
            scheduler.load_state_dict(states[2])
            optimizer.load_state_dict(states[1])
            data = watched()
            data.restore(memory)
        total = 0.0
        for _ in range(parts):
            if not waiting:
                epoch += 1
                order = torch.randperm(len(rows), generator=dice)
                if name == "shortest_first":
                    order = torch.arange(len(rows))
                if cfg["group_by_length"]:
                    long = torch.tensor([len(rows[at][0]) for at in order.tolist()])
                    groups = list(order[long.argsort(stable=True)].split(size))
                    order = torch.cat([groups[at] for at in torch.randperm(len(groups), generator=dice).tolist()])
                waiting = list(order.split(size)[: len(rows) // size])
            ids, labels = padded([rows[at] for at in waiting.pop(0).tolist()], cfg, name)
            data.observe({"input_ids": ids, "labels": labels}, step=step, epoch=epoch)
            loss = loss_of(model, ids, labels, cfg, name) / parts
            (loss / parts if name == "divided_twice" else loss).backward()
            total += loss.item()
            if name == "scheduler_in_micro_loop":
                scheduler.step()
        nn.utils.clip_grad_norm_(model.parameters(), cfg["max_grad_norm"])
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        optimizer.zero_grad()
        if name != "scheduler_in_micro_loop":
            scheduler.step()
        run.log({"train/loss": total, "train/lr": rate}, step=step)
        if step % EVERY == 0 or step == steps - 1:
            validate(run, model, held, cfg | {"loss_over": "batch", "label_smoothing": 0.0}, step, name)
    return run


@torch.no_grad()
def validate(run: Any, model: nn.Module, held: list[Any], cfg: dict[str, Any], step: int, name: str) -> None:
    model.eval()
    losses, exact = [], 0
    for at in range(0, len(held), 64):
        ids, labels = padded(held[at : at + 64], cfg)
        losses.append(loss_of(model, ids, labels, cfg).item())
        said, wanted = model(ids)[:, :-1].argmax(-1), labels[:, 1:]
        exact += int(((said == wanted) | (wanted < 0)).all(1).sum())
    if name != "base_eval_mode":
        model.train()
    run.log({"val/loss": sum(losses) / len(losses), "val/exact": exact / len(held)}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return main(run, dict(run.config), seed, steps, Trouble(fault, seed), healthy)
