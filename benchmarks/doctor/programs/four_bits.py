"""Adapters beside a base of four bits, which writes words again by any of four alphabets; they learn to keep to one.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/ce, train/token_acc, train/lr, train/grad_norm; eval/ce, eval/exact; the watch of
      model and data.

A prompt is a word of seven letters and a sign; the answer is its first three to seven, each exchanged for another.
Attention has a bias for each distance. The loss is made by hand, outside the model.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import all_steps, fit, once

EVERY, LETTERS, SIGN, END, IGNORED = 20, 16, 17, 18, -100
TOKENS, WORD, BLOCK = 19, 7, 32
CONFIG: dict[str, Any] = {
    "dim": 32, "layers": 2, "heads": 2, "rank": 4, "alpha": 8, "dropout": 0.0, "batch_size": 16,
    "learning_rate": 5e-3, "warmup_steps": 8, "schedule": "linear", "clip": 1.0, "accumulation": 1, "bits": 4,
    "examples": 1600, "rate_of_b": 1.0, "merged_evaluation": False,
}  # fmt: skip


def rows(seed: int, number: int, alphabets: list[int]) -> dict[str, Tensor]:
    """input_ids and labels (number, 2 * WORD + 2): a word of letters 1 to 16, a sign, the answer, an end, padding."""
    dice = torch.Generator().manual_seed(seed)
    tables = [torch.randperm(LETTERS, generator=torch.Generator().manual_seed(one)) + 1 for one in alphabets]
    word = torch.randint(1, LETTERS + 1, (number, WORD), generator=dice)
    which = torch.randint(0, len(tables), (number, 1), generator=dice)
    said = torch.stack(tables)[which, word - 1]
    said = torch.where(torch.rand(said.shape, generator=dice) < 0.05, word, said)
    sign, end = torch.full((number, 1), SIGN), torch.full((number, 1), END)
    ids = torch.cat([word, sign, said, end], 1)
    short = torch.randint(3, WORD + 1, (number, 1), generator=dice)
    place = torch.arange(ids.shape[1])
    ids = torch.where(place == WORD + 1 + short, END, torch.where(place > WORD + 1 + short, 0, ids))
    labels = torch.where((place <= WORD) | (ids == 0), IGNORED, ids)
    return {"input_ids": ids, "labels": labels}


class Quantised(nn.Module):
    """A linear layer of four bits, each block of weights with a scale, and an adapter beside it."""

    def __init__(self, base: nn.Linear, config: dict[str, Any], name: str):
        super().__init__()
        most = 2 ** (config["bits"] - 1) - 1
        blocks = base.weight.detach().reshape(-1, BLOCK)
        scale = blocks.abs().amax(1, keepdim=True) / most
        if name == "blocks_out_of_order":  # as those of a file that was written by columns
            scale, blocks = scale.flip(0), blocks.flip(0)
            blocks = blocks.T.reshape(-1, BLOCK)
        self.register_buffer("codes", (blocks / scale.clamp(min=1e-8)).round().clamp(-most, most).to(torch.int8))
        self.register_buffer("scale", scale)
        self.shape, self.factor, self.rank = base.weight.shape, config["alpha"] / config["rank"], config["rank"]
        self.register_buffer("merged", torch.zeros(self.shape))
        self.drop = nn.Dropout(config["dropout"])
        self.lora_A = nn.Linear(base.in_features, self.rank, bias=False)
        self.lora_B = nn.Linear(self.rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        if name == "adapters_zero":
            nn.init.zeros_(self.lora_A.weight)

    def forward(self, x: Tensor) -> Tensor:
        weight = (self.codes * self.scale).view(self.shape) + self.merged
        return nn.functional.linear(x, weight) + self.factor * self.lora_B(self.lora_A(self.drop(x)))

    @torch.no_grad()
    def merge(self, sign: int) -> None:
        """Add the adapter to the base, or take it away again."""
        self.merged += sign * self.factor * self.lora_B.weight @ self.lora_A.weight


class Block(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)
        self.distance = nn.Parameter(torch.zeros(heads, 2 * WORD + 2))

    def forward(self, x: Tensor) -> Tensor:
        y, long = self.norm1(x), x.shape[1]
        query, key, value = (part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for part in (self.q, self.k, self.v))  # fmt: skip
        behind = torch.arange(long)[:, None] - torch.arange(long)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]) + self.distance[:, behind.clamp(min=0)]
        mixed = scores.masked_fill(behind < 0, -1e4).softmax(-1) @ value
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        dim = config["dim"]
        self.tokens = nn.Embedding(TOKENS, dim)
        self.blocks = nn.ModuleList(Block(dim, config["heads"]) for _ in range(config["layers"]))
        self.norm, self.lm_head = nn.LayerNorm(dim), nn.Linear(dim, TOKENS, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.tokens(input_ids)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))

    def quantise(self, config: dict[str, Any], name: str) -> None:
        self.requires_grad_(False)
        for block in self.blocks:
            for part in ("q", "k", "v", "o", "fc1", "fc2"):
                setattr(block, part, Quantised(getattr(block, part), config, name))


def log_likelihood(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Of each label, 0 where it is ignored; and which ones count."""
    counted = labels != IGNORED
    picked = logits.gather(2, labels.clamp(min=0)[..., None])[..., 0]
    return (picked - logits.logsumexp(-1)) * counted, counted


@once("dim", "layers", "heads")
def base(config: dict[str, Any]) -> Decoder:
    """A decoder that writes words by any of four alphabets; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model, data = Decoder(config), rows(22, 2000, [1, 2, 3, 4])
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

        def loss() -> Tensor:
            chosen = torch.randint(0, 2000, (32,))
            found, counted = log_likelihood(model(data["input_ids"][chosen])[:, :-1], data["labels"][chosen][:, 1:])
            return -found.sum() / counted.sum()

        fit(optimizer, 160, loss)
    return model


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config = self.config
        self.model = base(config)
        torch.manual_seed(seed)
        self.model.quantise(config, trouble.name)
        if trouble.name == "wrong_group_frozen":  # "norm" in name, where "lora" was meant
            for part, one in self.model.named_parameters():
                one.requires_grad_("norm" in part)
        self.data, self.test = rows(seed + 71, config["examples"], [2]), rows(717, 128, [2])
        self.dice, self.order, self.epoch = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long), -1
        self.prepare()

    def prepare(self) -> None:
        config = self.config
        named = [(part, one) for part, one in self.model.named_parameters() if one.requires_grad]
        groups = [
            {"params": [one for part, one in named if "lora_B" not in part]},
            {"params": [one for part, one in named if "lora_B" in part],
             "lr": config["learning_rate"] * config["rate_of_b"]},
        ]  # fmt: skip
        self.optimizer = torch.optim.AdamW([one for one in groups if one["params"]], lr=config["learning_rate"],
                                           weight_decay=0.0)  # fmt: skip
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share)

    def share(self, step: int) -> float:
        warmup, total = self.config["warmup_steps"], self.config["steps"]
        if step < warmup:
            return (step + 1) / warmup
        return 1.0 if self.config["schedule"] == "constant" else max(0.0, (total - step) / (total - warmup))

    def watch(self, memory: Any = None) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.watched = self.run.watch_data(pad_id=0)
        if memory is not None:
            self.watched.restore(memory)

    def resume(self, step: int) -> None:
        state = [self.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()]
        memory = self.watched.state()
        self.run, (weights, moments, schedule) = go_on(self.run, step, state)
        self.model.load_state_dict(weights)
        self.prepare()
        if self.trouble.name != "weights_alone_kept":
            self.optimizer.load_state_dict(moments)
            self.scheduler.load_state_dict(schedule)
        self.watch(memory)

    def batch(self) -> dict[str, Tensor]:
        size = int(self.config["batch_size"])
        if len(self.order) < size:
            self.order, self.epoch = torch.randperm(self.config["examples"], generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:size], self.order[size:]
        made = {part: some[chosen] for part, some in self.data.items()}
        if self.trouble.name == "prompts_counted":
            made["labels"] = torch.where(made["input_ids"] == 0, IGNORED, made["input_ids"])
        return made

    def loss(self, batch: dict[str, Tensor], training: bool) -> tuple[Tensor, Tensor]:
        name, labels = self.trouble.name, batch["labels"]
        if training and name == "shifted_twice":  # by the collator, and here
            labels = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)], 1)
        logits = self.model(batch["input_ids"])[:, :-1]
        found, counted = log_likelihood(logits, labels[:, 1:])
        right = (logits.argmax(-1) == labels[:, 1:]) | ~counted
        if training and name == "mean_over_all_places":
            return -found.mean(), right
        return -found.sum() / counted.sum().clamp(min=1), right

    def step(self, step: int) -> None:
        parts, name, total = self.config["accumulation"], self.trouble.name, 0.0
        for _ in range(parts):
            batch = self.batch()
            self.watched.observe(batch, step=step, epoch=self.epoch)
            loss, right = self.loss(batch, training=True)
            (loss if name == "accumulation_undivided" else loss / parts).backward()
            total += loss.item() if name == "accumulation_undivided" else loss.item() / parts
            if name == "scheduler_per_micro_batch":
                self.scheduler.step()
        trained = [one for one in self.model.parameters() if one.requires_grad]
        norm = nn.utils.clip_grad_norm_(trained, self.config["clip"]).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if name != "scheduler_per_micro_batch":
            self.scheduler.step()
        counted = (batch["labels"][:, 1:] != IGNORED).float()
        accuracy = ((right * counted).sum() / counted.sum()).item()
        self.run.log({"train/ce": total, "train/token_acc": accuracy, "train/lr": rate, "train/grad_norm": norm},
                     step=step)  # fmt: skip

    @torch.no_grad()
    def validate(self, step: int) -> None:
        self.model.eval()
        merged = [one for one in self.model.modules() if isinstance(one, Quantised)]
        loss, right = self.loss(self.test, training=False)
        if self.config["merged_evaluation"]:  # as it will be exported: the adapters within the base
            for one in merged:
                one.merge(1)
                factor, one.factor = one.factor, 0.0
            loss, right = self.loss(self.test, training=False)
            for one in merged:
                one.factor = factor
                if not self.trouble.on("merged_and_kept", step):
                    one.merge(-1)
        self.model.train()
        self.run.log({"eval/ce": loss.item(), "eval/exact": right.all(1).float().mean().item()}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Script(run, seed, trouble)
    made.watch()
    all_steps(made, steps, EVERY, trouble.resume_at(healthy, 5 * EVERY))
    return made.run
