"""Instruction tuning: a small decoder as Llama's, which can copy already, learns to follow four instructions.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`, with a Trainer's names: loss, grad_norm, learning_rate, epoch, eval_loss.

A prompt is an instruction and some letters, its answer these letters, each moved on by as many places of the alphabet
as the instruction says. Only answers count in the loss. The decoder has rotary positions, RMS norms, two heads of keys
for four of queries, and a gated feed-forward layer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop
from .parts import once

EVERY, LETTERS, TASKS = 20, 20, 4
BEGIN, ANSWER, END, PAD = range(LETTERS + TASKS, LETTERS + TASKS + 4)
VOCABULARY, LONGEST = PAD + 1, 10
CONFIG: dict[str, Any] = {
    "width": 48, "heads": 4, "key_heads": 2, "layers": 3, "batch_size": 24, "learning_rate": 3e-3, "warmup_steps": 20,
    "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "examples": 3000, "shortest": 3, "max_length": 24,
    "train_on_prompts": False,
}  # fmt: skip


def conversations(seed: int, number: int, shortest: int, tasks: int = TASKS) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (number, 2 * LONGEST + 4), and where each prompt and each conversation ends."""
    dice = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, LONGEST + 1, (number, 1), generator=dice)
    which = torch.randint(0, tasks, (number, 1), generator=dice)
    letters = torch.randint(0, LETTERS, (number, LONGEST), generator=dice)
    places = torch.arange(2 * LONGEST + 4).expand(number, -1)
    given = letters.gather(1, (places - 2).clamp(0, LONGEST - 1))
    said = (letters.gather(1, (places - 3 - lengths).clamp(0, LONGEST - 1)) + which) % LETTERS
    tokens = torch.where(places < 2 + lengths, given, said)
    tokens = torch.where(places == 2 + lengths, ANSWER, tokens)
    tokens = torch.where(places == 3 + 2 * lengths, END, torch.where(places > 3 + 2 * lengths, PAD, tokens))
    tokens[:, 0], tokens[:, 1:2] = BEGIN, LETTERS + which
    return tokens, 3 + lengths[:, 0], 4 + 2 * lengths[:, 0]


class Norm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Layer(nn.Module):
    across_heads = False  # positions run along the heads, by mistake

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width, self.heads, self.key_heads = config["width"], config["heads"], config["key_heads"]
        self.size = width // self.heads
        self.input_norm, self.post_norm = Norm(width), Norm(width)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(width, self.key_heads * self.size, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(width, width, bias=False)
        self.gate_proj, self.up_proj = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def turned(self, x: Tensor) -> Tensor:
        """Rotary positions of (rows, heads, length, size)."""
        rate = 1000.0 ** (-torch.arange(0, self.size, 2) / self.size)
        angle = torch.arange(x.shape[2])[:, None] * torch.cat([rate, rate])
        if self.across_heads:
            angle = angle[: x.shape[1], None]
        first, second = x.chunk(2, -1)
        return x * angle.cos() + torch.cat([-second, first], -1) * angle.sin()

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        normed, share = self.input_norm(x), self.heads // self.key_heads
        q, k, v = (
            part.view(rows, length, -1, self.size).transpose(1, 2)
            for part in (self.q_proj(normed), self.k_proj(normed), self.v_proj(normed))
        )
        q, k = self.turned(q), self.turned(k)
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(mixed.transpose(1, 2).reshape(rows, length, width))
        normed = self.post_norm(x)
        return x + self.down_proj(functional.silu(self.gate_proj(normed)) * self.up_proj(normed))


class Llama(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, config["width"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["layers"]))
        self.norm, self.lm_head = Norm(config["width"]), nn.Linear(config["width"], VOCABULARY, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.08)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


@once("width", "heads", "key_heads", "layers")
def base(config: dict[str, Any], steps: int = 200) -> Llama:
    """A model that was trained before on conversations with the first instruction, of which every token counted."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = Llama(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
        tokens, _, _ = conversations(4, 32 * steps, 3, tasks=1)
        for step, some in enumerate(tokens.split(32)):
            optimizer.param_groups[0]["lr"] = 5e-3 * min(1, step / 20) * (1 - step / steps)
            logits = model(some[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), some[:, 1:].flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


class Following(loop.Task):
    every = EVERY
    names = {"loss": "loss", "norm": "grad_norm", "lr": "learning_rate", "epoch": "epoch"}  # noqa: RUF012
    watched: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = base(config)
        for layer in self.model.layers:
            layer.across_heads = trouble.name == "rotary_over_heads"
        self.block = self.model.layers[1]
        self.data = conversations(seed + 41, config["examples"], config["shortest"])
        self.held_out = [self.collated(*conversations(414, 160, 3), cut=24, right=True)]
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.epoch = -1

    def collated(self, tokens: Tensor, prompts: Tensor, ends: Tensor, cut: int, right: bool = False) -> loop.Batch:
        """Inputs, and the token behind each: -100 in prompts and in padding."""
        name = "" if right else self.trouble.name
        places = torch.arange(tokens.shape[1])
        labels = torch.where(places < ends[:, None], tokens, -100)
        tokens = torch.where(places < ends[:, None], tokens, END)  # there is no token for padding but the end's
        if name == "end_never_told":
            labels = torch.where(tokens == END, -100, labels)
        if name != "prompts_counted":
            labels = torch.where(places < prompts[:, None], -100, labels)
        if name == "labels_off_by_one":  # the model's own loss shifts them too
            labels = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)
        tokens, labels = tokens[:, :cut], labels[:, :cut]
        return tokens[:, :-1], labels[:, 1:]

    def batch(self, rows: int) -> loop.Batch:
        if len(self.order) < rows:
            self.order, self.epoch = torch.randperm(len(self.data[0]), generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        return self.collated(*(part[chosen] for part in self.data), cut=self.config["max_length"])

    def changed_late(self) -> None:
        if self.trouble.name == "embeddings_resized_late":  # as resize_token_embeddings does
            model, old = self.model, self.model.embed_tokens
            model.embed_tokens = nn.Embedding(VOCABULARY + 4, self.config["width"])
            with torch.no_grad():
                model.embed_tokens.weight[:VOCABULARY] = old.weight
                model.embed_tokens.weight[LETTERS + 1 : LETTERS + TASKS].normal_(std=0.08)

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        logits, labels = model(batch[0]), batch[1]
        counted = labels != -100
        loss = functional.cross_entropy(logits[counted], labels[counted], reduction="none")
        right = (logits.argmax(-1) == labels) | ~counted
        self.figures = {"exact_match": float(right.all(1).float().mean())}
        return loss

    def observed(self, batch: loop.Batch) -> Any:
        return {"input_ids": batch[0], "labels": batch[1]}


train = partial(loop.train, Following)
