"""A decoder that is bfloat16 throughout, over nested brackets: weights, gradients and moments.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` at each fifth step: loss (the mean since the last row) and lr; heldout_loss, heldout_ppl.

The model is called with labels, and gives a dict with its loss. Attention with a mask of its own and one pair of keys
and values for all heads, gated units, RMS norms, sines for positions; the output's weights are the embedding's.
"""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .parts import all_steps

EVERY, LOGGED, PAIRS, WORDS = 20, 5, 3, 8
SIGNS = 2 * PAIRS + WORDS + 1
CONFIG: dict[str, Any] = {
    "width": 40, "heads": 4, "layers": 2, "length": 40, "batch_size": 12, "learning_rate": 4e-3, "warmup_steps": 10,
    "schedule": "cosine", "weight_decay": 0.0, "clip": 1.0, "accumulation": 1, "signs": 24_000, "optimizer": "adamax",
}  # fmt: skip


def written(seed: int, number: int) -> Tensor:
    """Brackets of three kinds with words in them; a word depends on the bracket that it is in."""
    dice, open_ones, made = random.Random(seed), [], []
    for _ in range(number):
        chance = dice.random()
        if open_ones and (chance < 0.3 or len(open_ones) > 4):
            made.append(PAIRS + open_ones.pop())
        elif chance < 0.6:
            open_ones.append(dice.randrange(PAIRS))
            made.append(open_ones[-1])
        else:
            word = 2 * open_ones[-1] + dice.randrange(2) if open_ones and dice.random() < 0.9 else dice.randrange(WORDS)
            made.append(2 * PAIRS + word)
    return torch.tensor(made)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.size, self.causal = heads, width // heads, causal
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.pair = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y, long = self.before(x), x.shape[1]
        query = self.query(y).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        key, value = self.pair(y).chunk(2, -1)
        scores = torch.einsum("bhqd,bkd->bhqk", query, key) / math.sqrt(self.size)
        if self.causal:
            later = torch.ones(long, long, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        mixed = torch.einsum("bhqk,bkd->bqhd", scores.float().softmax(-1).to(x.dtype), value).flatten(2)
        x = x + self.out(mixed)
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        width = config["width"]
        self.embed = nn.Embedding(SIGNS, width)
        nn.init.normal_(self.embed.weight, std=0.1)
        place, rate = torch.arange(config["length"])[:, None], 1000 ** (-torch.arange(width // 2) / (width // 2))
        self.register_buffer("places", 0.1 * torch.cat([(place * rate).sin(), (place * rate).cos()], 1))
        causal = name != "causality_forgotten"
        self.blocks = nn.ModuleList(Block(width, config["heads"], causal) for _ in range(config["layers"]))
        self.norm, self.lm_head = nn.RMSNorm(width), nn.Linear(width, SIGNS, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, signs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """labels: the signs themselves; they are shifted here."""
        x = self.embed(signs) + self.places[: signs.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.norm(x)).float()
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-1)
        return {"loss": loss, "logits": logits}


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        self.model = Decoder(self.config, trouble.name).to(torch.bfloat16)
        self.signs, self.held = written(seed + 91, self.config["signs"]), written(919, 64 * self.config["length"])
        self.dice, self.sums = torch.Generator().manual_seed(seed), [0.0, 0]
        self.prepare()
        if trouble.name == "weight_tying_broken":  # as loading state by names does, behind the optimizer
            self.model.lm_head.weight = nn.Parameter(self.model.lm_head.weight.detach().clone())

    def prepare(self) -> None:
        make = {"adamax": torch.optim.Adamax, "adamw": torch.optim.AdamW}[self.config["optimizer"]]
        self.optimizer = make(self.model.parameters(), lr=self.config["learning_rate"],
                              weight_decay=self.config["weight_decay"])  # fmt: skip
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share)

    def share(self, step: int) -> float:
        config = self.config
        if step < config["warmup_steps"]:
            return (step + 1) / config["warmup_steps"]
        gone = min(1.0, (step - config["warmup_steps"]) / (config["steps"] - config["warmup_steps"]))
        if config["schedule"] == "restarts":
            gone = 3 * gone % 1
        elif config["schedule"] == "wsd":
            return min(1.0, max(0.05, (1 - gone) / 0.3))
        elif config["schedule"] == "constant":
            return 1.0
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * gone))

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)

    def resume(self, step: int) -> None:
        state = [self.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()]
        self.run, (weights, moments, schedule) = go_on(self.run, step, state)
        self.model.load_state_dict(weights)
        self.prepare()
        self.optimizer.load_state_dict(moments)
        self.scheduler.load_state_dict(schedule)
        self.watch()

    def batch(self) -> tuple[Tensor, Tensor]:
        long = self.config["length"]
        begin = torch.randint(0, len(self.signs) - long, (int(self.config["batch_size"]), 1), generator=self.dice)
        signs = self.signs[begin + torch.arange(long)]
        if self.trouble.name == "shifted_twice":  # the loader's labels are the next signs already
            return signs, torch.cat([signs[:, 1:], torch.full_like(signs[:, :1], -1)], 1)
        return signs, signs

    def step(self, step: int) -> None:
        parts, name = self.config["accumulation"], self.trouble.name
        total = 0.0
        for _ in range(parts):
            signs, labels = self.batch()
            loss = self.model(signs, labels)["loss"]
            (loss if name == "accumulation_undivided" else loss / parts).backward()
            total += loss.item() if name == "accumulation_undivided" else loss.item() / parts
            if name == "scheduler_per_micro_batch":
                self.scheduler.step()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config["clip"])
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if name != "scheduler_per_micro_batch":
            self.scheduler.step()
        self.sums = [self.sums[0] + total, self.sums[1] + 1]
        if step % LOGGED == LOGGED - 1:
            self.run.log({"loss": self.sums[0] / self.sums[1], "lr": rate}, step=step)
            self.sums = [0.0, 0]

    @torch.no_grad()
    def validate(self, step: int) -> None:
        self.model.eval()
        signs = self.held.view(-1, self.config["length"])
        loss = self.model(signs, signs)["loss"].item()
        self.model.train()
        self.run.log({"heldout_loss": loss, "heldout_ppl": math.exp(min(loss, 20))}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Script(run, seed, trouble)
    made.watch()
    all_steps(made, steps, EVERY, trouble.resume_at(healthy, 5 * EVERY))
    return made.run
