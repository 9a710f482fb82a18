"""Low-rank adapters in a small decoder as Llama's: root mean square norm, rotary positions, gated units.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, lr, norm) and `log_eval`.

The base knows how strings continue that begin with one of six commands; the adapters learn two more. The command and
its argument are not in the loss, nor is the padding. The model shifts the labels itself, as those of transformers do.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .parts import all_steps, fit, once

EVERY, TOKENS, IGNORED = 20, 29, -100
END = TOKENS - 1
KNOWN, ASKED = range(6), range(6, 8)  # commands; those that are asked for are new
CONFIG: dict[str, Any] = {
    "dim": 40, "layers": 2, "heads": 2, "rank": 4, "alpha": 8, "adapter_dropout": 0.0, "batch_size": 12,
    "learning_rate": 8e-3, "warmup_steps": 10, "schedule": "linear", "weight_decay": 0.01, "clip": 1.0,
    "accumulation": 1, "examples": 1500, "longest": 22, "targets": "attention", "train": "adapters", "argument": 2,
    "optimizer": "adamw",
}  # fmt: skip


def strings(seed: int, number: int, commands: range, config: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Tokens with zeros behind the end, and labels: a command, its argument, then what follows from both."""
    dice, longest = torch.Generator().manual_seed(seed), config["longest"]
    command = torch.randint(commands.start, commands.stop, (number,), generator=dice)
    rows = [command + 1]
    rows += [torch.randint(9, END, (number,), generator=dice) for _ in range(config["argument"])]
    for place in range(len(rows), longest):
        step = 1 + 2 * command + (place % 2) * (command % 3)
        following = 9 + (rows[-1] - 9 + step) % (END - 9)
        astray = torch.rand(number, generator=dice) < 0.1
        rows.append(torch.where(astray, torch.randint(9, END, (number,), generator=dice), following))
    lengths = torch.randint(longest // 2, longest + 1, (number,), generator=dice)
    tokens = torch.stack(rows, 1) * (torch.arange(longest) < lengths[:, None])
    tokens[torch.arange(number), lengths - 1] = END
    labels = torch.where(tokens == 0, IGNORED, tokens)
    labels[:, : 1 + config["argument"]] = IGNORED
    return tokens, labels


def turned(x: Tensor) -> Tensor:
    """Rotary positions. x: (rows, heads, length, size)."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[2])[:, None] * 100 ** (-torch.arange(half) / half)
    one, other = x.chunk(2, -1)
    return torch.cat([one * angle.cos() - other * angle.sin(), one * angle.sin() + other * angle.cos()], -1)


class Adapter(nn.Module):
    """A linear layer of the base, and a product of two thin matrices beside it."""

    def __init__(self, base: nn.Linear, config: dict[str, Any]):
        super().__init__()
        rank = config["rank"]
        self.base, self.drop, self.scale = base, nn.Dropout(config["adapter_dropout"]), config["alpha"] / rank
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scale * (self.drop(x) @ self.lora_a.T @ self.lora_b.T)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads, self.attention_norm, self.mlp_norm = heads, nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(dim, 2 * dim, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention_norm(x)
        query, key, value = (part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for part in (self.wq, self.wk, self.wv))  # fmt: skip
        mixed = functional.scaled_dot_product_attention(turned(query), turned(key), value, is_causal=True)
        x = x + self.wo(mixed.transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        dim = config["dim"]
        self.tokens = nn.Embedding(TOKENS, dim)
        self.blocks = nn.ModuleList(Block(dim, config["heads"]) for _ in range(config["layers"]))
        self.norm, self.output = nn.RMSNorm(dim), nn.Linear(dim, TOKENS, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.output(self.norm(x))[:, :-1].flatten(0, 1)
        return functional.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=IGNORED, reduction=reduction)

    def adapt(self, config: dict[str, Any]) -> None:
        """Put adapters into the blocks, and freeze what is not of them."""
        names = ("wq", "wv") if config["targets"] == "attention" else ("wq", "wk", "wv", "wo", "gate", "up", "down")
        for block in self.blocks:
            for name in names:
                setattr(block, name, Adapter(getattr(block, name), config))
        for name, one in self.named_parameters():
            one.requires_grad_("lora_" in name)


@once("dim", "layers", "heads", "longest", "argument")
def base(config: dict[str, Any]) -> Llama:
    """A decoder that knows six commands; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = Llama(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3)
        tokens, labels = strings(50, 2000, KNOWN, config)

        def loss() -> Tensor:
            chosen = torch.randint(0, len(tokens), (24,))
            return model(tokens[chosen], labels[chosen])

        fit(optimizer, 100, loss)
    return model


class Recipe:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config, name = self.config, trouble.name
        self.model = Llama(config) if name == "base_as_drawn" else base(config)
        torch.manual_seed(seed)
        if name != "adapted_after_optimizer":
            self.model.adapt(config)
        if name == "wrong_group_frozen":  # requires_grad = "lora_" not in name
            for one in self.model.parameters():
                one.requires_grad_(not one.requires_grad)
        trained = [one for one in self.model.parameters() if one.requires_grad]
        make = {"adamw": torch.optim.AdamW, "adafactor": torch.optim.Adafactor}[config["optimizer"]]
        self.optimizer = make(trained, lr=config["learning_rate"], weight_decay=config["weight_decay"])
        if name == "adapted_after_optimizer":
            self.model.adapt(config)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share)
        self.data = strings(seed + 91, config["examples"], ASKED, config)
        self.test = strings(919, 160, ASKED, config)
        self.dice, self.order, self.epoch = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long), -1

    def share(self, step: int) -> float:
        warmup, total = self.config["warmup_steps"], self.config["steps"]
        if step < warmup:
            return (step + 1) / warmup
        return 1.0 if self.config["schedule"] == "constant" else max(0.0, (total - step) / (total - warmup))

    def batch(self) -> tuple[Tensor, Tensor]:
        rows = int(self.config["batch_size"])
        if len(self.order) < rows:
            self.order, self.epoch = torch.randperm(len(self.data[0]), generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        tokens, labels = self.data[0][chosen], self.data[1][chosen]
        if self.trouble.name == "labels_off_by_one":  # the collator shifts, and so does the model
            labels = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)], 1)
        if self.trouble.name == "padding_counted":
            labels = torch.where((labels == IGNORED) & (tokens == 0), 0, labels)
        return tokens, labels

    def step(self, step: int) -> None:
        trouble, parts, total = self.trouble, self.config["accumulation"], 0.0
        with self.run.step(step=step) as timed:
            for _ in range(parts):
                with self.run.phase("data"):
                    tokens, labels = self.batch()
                    self.watched.observe({"input_ids": tokens, "labels": labels}, step=step, epoch=self.epoch)
                loss = self.model(tokens, labels, "sum" if trouble.name == "loss_summed" else "mean")
                (loss / parts).backward()
                total += loss.item() / parts
                if trouble.name == "scheduler_per_micro_batch":
                    self.scheduler.step()
            trained = [one for one in self.model.parameters() if one.requires_grad]
            norm = nn.utils.clip_grad_norm_(trained, self.config["clip"]).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.optimizer.zero_grad()
            if trouble.name != "scheduler_per_micro_batch":
                self.scheduler.step()
            timed.set(loss=total, lr=rate, norm=norm, epoch=self.epoch)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        began = clock()
        self.model.eval()
        loss = self.model(*self.test).item()
        self.model.train()
        self.run.log_eval(step, self.epoch, len(self.test[0]), (clock() - began) * 1000, loss)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = Recipe(run, seed, Trouble(fault, seed))
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    made.watched = run.watch_data(pad_id=0)
    all_steps(made, steps, EVERY)
    return run
