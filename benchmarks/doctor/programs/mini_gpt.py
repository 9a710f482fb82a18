"""A decoder of characters under autocast to float16, with a scaler that doubles and halves; output and input are tied.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` every second step: iter_loss, lr, scale, grad_norm; now and then train/loss and val/loss,
      each of several batches, as small scripts estimate them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .parts import all_steps

EVERY, LOGGED = 20, 2
LETTERS = "abcdefghijklmnopqrstuvwxyz .,"
CONFIG: dict[str, Any] = {
    "n_embd": 24, "n_layer": 2, "n_head": 2, "block_size": 24, "batch_size": 6, "accumulation": 1,
    "learning_rate": 4e-3, "min_rate": 0.1, "warmup_steps": 20, "schedule": "cosine", "weight_decay": 0.1, "clip": 1.0,
    "dropout": 0.0, "precision": "fp16", "init_scale": 2.0**12, "growth_interval": 40,
}  # fmt: skip


def text(seed: int, sentences: int) -> Tensor:
    """Sentences of a small grammar, as numbers of letters."""
    dice = torch.Generator().manual_seed(seed)
    words = [
        ("the", "a", "every", "some"), ("red", "old", "quick", "silent", "warm"),
        ("fox", "river", "teacher", "machine", "garden", "winter"), ("sees", "follows", "forgets", "builds", "carries"),
        ("the", "a", "no", "this"), ("door", "bird", "letter", "mountain", "song", "boat"),
    ]  # fmt: skip
    draws = torch.randint(0, 10**6, (sentences, len(words)), generator=dice).tolist()
    ends = [". ", ", "]
    drawn = "".join(
        " ".join(some[draw % len(some)] for some, draw in zip(words, row, strict=True)) + ends[row[0] % 7 == 0]
        for row in draws
    )
    return torch.tensor([LETTERS.index(letter) for letter in drawn])


class Block(nn.Module):
    def __init__(self, config: dict[str, Any], causal: bool):
        super().__init__()
        wide, self.heads, self.causal = config["n_embd"], config["n_head"], causal
        self.ln_1, self.ln_2, self.drop = nn.LayerNorm(wide), nn.LayerNorm(wide), nn.Dropout(config["dropout"])
        self.c_attn, self.c_proj = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.mlp = nn.Sequential(nn.Linear(wide, 4 * wide), nn.GELU(), nn.Linear(4 * wide, wide))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.c_attn(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.drop(self.c_proj(mixed.transpose(1, 2).flatten(2)))
        return x + self.drop(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    def __init__(self, config: dict[str, Any], causal: bool):
        super().__init__()
        wide = config["n_embd"]
        self.wte, self.wpe = nn.Embedding(len(LETTERS), wide), nn.Embedding(config["block_size"], wide)
        self.h = nn.ModuleList(Block(config, causal) for _ in range(config["n_layer"]))
        self.ln_f, self.lm_head = nn.LayerNorm(wide), nn.Linear(wide, len(LETTERS), bias=False)
        for name, one in self.named_parameters():
            if one.dim() > 1:
                nn.init.normal_(one, std=0.06 / (2.0 if name.endswith("c_proj.weight") else 1.0))
        self.lm_head.weight = self.wte.weight

    def forward(self, letters: Tensor, targets: Tensor) -> Tensor:
        x = self.wte(letters) + self.wpe.weight[: letters.shape[1]]
        for block in self.h:
            x = block(x)
        return functional.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), targets.flatten())


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        self.train, self.val = text(seed + 11, 1500), text(1111, 300)
        self.model = GPT(self.config, causal=trouble.name != "causal_forgotten")
        self.dice = torch.Generator().manual_seed(seed)
        self.prepare()
        if trouble.name == "weight_tying_broken":  # the output has weights of its own, loaded after the optimizer
            self.model.lm_head.weight = nn.Parameter(self.model.lm_head.weight.detach().clone())

    def prepare(self) -> None:
        config = self.config
        decayed = [one for one in self.model.parameters() if one.dim() > 1]
        others = [one for one in self.model.parameters() if one.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": config["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
            lr=config["learning_rate"], betas=(0.9, 0.95),
        )  # fmt: skip
        self.scaler = torch.amp.GradScaler(
            "cpu", init_scale=config["init_scale"], growth_interval=config["growth_interval"],
            enabled=config["precision"] == "fp16",
        )  # fmt: skip

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer, scaler=self.scaler)

    def resume(self, step: int) -> None:
        """A checkpoint, and going on from it."""
        state = [self.model.state_dict(), self.optimizer.state_dict(), self.scaler.state_dict()]
        self.run, (weights, moments, scale) = go_on(self.run, step, state)
        self.model.load_state_dict(weights)
        self.prepare()
        if self.trouble.name != "optimizer_state_lost":
            self.optimizer.load_state_dict(moments)
        self.scaler.load_state_dict(scale)
        self.watch()

    def batch(self, of: Tensor, rows: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
        long = self.config["block_size"]
        at = torch.randint(0, len(of) - long - 1, (rows, 1), generator=dice) + torch.arange(long)
        return of[at], of[at + 1]

    def loss(self, letters: Tensor, targets: Tensor) -> Tensor:
        kind = torch.float16 if self.config["precision"] == "fp16" else torch.bfloat16
        with torch.autocast("cpu", kind):
            return self.model(letters, targets)

    def rate(self, step: int) -> float:
        config = self.config
        if step < config["warmup_steps"]:
            return config["learning_rate"] * (step + 1) / config["warmup_steps"]
        share = (step - config["warmup_steps"]) / max(1, config["steps"] - config["warmup_steps"])
        if config["schedule"] == "wsd":
            return config["learning_rate"] * min(1.0, max(0.02, (1 - share) / 0.25))
        least = 1.0 if config["schedule"] == "constant" else config["min_rate"]
        return config["learning_rate"] * (least + (1 - least) * 0.5 * (1 + math.cos(math.pi * share)))

    def clip(self) -> float:
        moved = [one for group in self.optimizer.param_groups for one in group["params"]]
        return nn.utils.clip_grad_norm_(moved, self.config["clip"]).item()

    def step(self, step: int) -> None:
        config, name = self.config, self.trouble.name
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        if self.trouble.clears(step):
            self.model.zero_grad(set_to_none=True)
        norm = self.clip() if name == "clipped_before_backward" else 0.0
        if name == "seeded_in_each_step":
            self.dice.manual_seed(1337)
        total, parts = 0.0, config["accumulation"]
        for _ in range(parts):
            loss = self.loss(*self.batch(self.train, int(config["batch_size"]), self.dice))
            if name != "accumulation_undivided":
                loss = loss / parts
            total += loss.item()
            self.scaler.scale(loss).backward()
        if name not in ("clipped_while_scaled", "clipped_before_backward"):
            self.scaler.unscale_(self.optimizer)
        if name != "clipped_before_backward":
            norm = self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if step % LOGGED == 0:
            self.run.log({"iter_loss": total, "lr": self.rate(step), "scale": self.scaler.get_scale(),
                          "grad_norm": norm}, step=step)  # fmt: skip

    @torch.no_grad()
    def validate(self, step: int) -> None:
        self.model.eval()
        found = {}
        for name, of in (("train/loss", self.train), ("val/loss", self.val)):
            dice = torch.Generator().manual_seed(9)
            found[name] = sum(self.loss(*self.batch(of, 16, dice)).item() for _ in range(2)) / 2
        self.model.train()
        self.run.log(found, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Script(run, seed, trouble)
    made.watch()
    all_steps(made, steps, EVERY, trouble.resume_at(healthy, 5 * EVERY))
    return made.run
