"""Embeddings of sentences: an encoder with mean pooling, questions and answers matched within the batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` with a Trainer's names: loss, grad_norm, learning_rate, epoch, eval_loss,
      eval_cosine_accuracy; the watch of model and data.

A question is about three things, its answer has another word for each of them; both have words besides. The similarity
of all pairs of a batch, times 20, goes through a cross-entropy.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop
from .parts import Block

EVERY, THINGS, OTHERS, LENGTH, PAD = 20, 70, 30, 14, 0
WORDS = 1 + 2 * THINGS + OTHERS
CONFIG: dict[str, Any] = {
    "width": 48, "heads": 4, "layers": 1, "dropout": 0.0, "batch_size": 32, "learning_rate": 4e-3, "warmup_steps": 20,
    "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "pairs": 3000, "scale": 20.0, "alike": 0.0,
    "accumulation": 1, "fillers": 5,
}  # fmt: skip


def pairs(seed: int, number: int, config: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Questions and answers (number, LENGTH). alike: which share of the pairs is about things next to each other."""
    dice = torch.Generator().manual_seed(seed)
    things = torch.randint(0, THINGS, (number, 3), generator=dice)
    near = torch.rand(number, generator=dice) < config["alike"]
    things[:, :2] = torch.where(near[:, None], torch.tensor([1, 2]), things[:, :2])
    sides = []
    for side in range(2):
        about = 1 + side * THINGS + things
        rest = 1 + 2 * THINGS + torch.randint(0, OTHERS, (number, LENGTH - 3), generator=dice)
        many = torch.randint(1, config["fillers"] + 1, (number, 1), generator=dice)
        kept = torch.cat([torch.ones(number, 3, dtype=torch.bool), torch.arange(LENGTH - 3) < many], 1)
        order = torch.where(kept, torch.rand(number, LENGTH, generator=dice), 2.0).argsort(1)
        words = torch.where(kept, torch.cat([about, rest], 1), PAD)
        sides.append(words.gather(1, order))
    return sides[0], sides[1]


class Encoder(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        width, self.mistake = config["width"], name
        self.words, self.positions = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(config, causal=False) for _ in range(config["layers"]))
        self.norm, self.dense = nn.LayerNorm(width), nn.Linear(width, width)
        for embedding in (self.words, self.positions):
            nn.init.normal_(embedding.weight, std=0.3)

    def forward(self, words: Tensor) -> Tensor:
        there = words != PAD
        x = self.words(words) + self.positions.weight
        for block in self.blocks:
            x = block(x, there[:, None, None])
        x = self.norm(x)
        if self.mistake == "padding_pooled":  # the mean over all places
            pooled = x.mean(1)
        else:
            pooled = (x * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        return functional.normalize(self.dense(pooled), dim=-1)


class Matching(loop.Task):
    every = EVERY
    names = {"loss": "loss", "norm": "grad_norm", "lr": "learning_rate", "epoch": "epoch"}  # noqa: RUF012
    watched: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = Encoder(config, trouble.name)
        self.block = self.model.blocks[0]
        questions, answers = pairs(seed + 51, config["pairs"], config)
        if trouble.name == "rows_joined_wrongly":  # two files, sorted differently
            answers = answers[torch.randperm(len(answers), generator=trouble.dice)]
        if trouble.name == "answers_repeat":  # eight questions to each answer, and one file in their order
            answers = answers[torch.arange(len(answers)) // 8 * 8]
            things = answers.masked_fill((answers <= THINGS) | (answers > 2 * THINGS), 0)
            about = things.sort(1, descending=True).values[:, :3] - THINGS
            asked = (questions > 0) & (questions <= THINGS)
            place = (asked.cumsum(1) - 1).clamp(0, 2)
            questions = torch.where(asked, about.gather(1, place), questions)
        self.data = questions, answers
        held_out = pairs(515, 96, config)
        self.held_out = list(zip(held_out[0].split(32), held_out[1].split(32), strict=True))
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.epoch = -1

    def batch(self, rows: int) -> loop.Batch:
        if len(self.order) < rows:
            self.epoch += 1
            self.order = torch.randperm(len(self.data[0]), generator=self.dice)
            if self.trouble.name == "answers_repeat":
                self.order = torch.arange(len(self.data[0]))
        chosen, self.order = self.order[:rows], self.order[rows:]
        return self.data[0][chosen], self.data[1][chosen]

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        asked, answered = model(batch[0]), model(batch[1])
        scores = asked @ answered.T
        if self.trouble.name != "scale_missing":
            scores = scores * self.config["scale"]
        wanted = torch.arange(len(scores))
        if not model.training:
            self.figures = {"cosine_accuracy": (scores.argmax(1) == wanted).float().mean().item()}
        return functional.cross_entropy(scores, wanted, reduction="none")

    def observed(self, batch: loop.Batch) -> Any:
        return {"input_ids": batch[0], "attention_mask": (batch[0] != PAD).long(), "labels": batch[1]}


train = partial(loop.train, Matching)
