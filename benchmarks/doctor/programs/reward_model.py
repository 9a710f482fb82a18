"""A reward model: a decoder with a head of one number, trained on pairs of answers of which people preferred one.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss, train/accuracy, train/margin, train/grad_norm, train/lr; eval_loss.

What an answer is worth is hidden in its letters and in pairs of neighbours; people are wrong in some of the pairs. The
loss begins at ln 2.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop
from .parts import Block

EVERY, LETTERS, PAD, PROMPT = 20, 24, 24, 6
CONFIG: dict[str, Any] = {
    "width": 40, "heads": 4, "layers": 2, "length": 24, "dropout": 0.05, "batch_size": 32, "learning_rate": 2e-3,
    "warmup_steps": 10, "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "examples": 8000, "wrong_pairs": 0.05,
    "closeness": 0.0, "max_length": 24,
}  # fmt: skip


def comparisons(seed: int, number: int, config: dict[str, Any]) -> loop.Batch:
    """Chosen answers behind their prompts (number, length), their lengths, rejected ones, and theirs."""
    dice, taste = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(31)
    single, double = torch.randn(LETTERS + 1, generator=taste), torch.randn(LETTERS + 1, LETTERS + 1, generator=taste)
    single[PAD], double[PAD], double[:, PAD] = 0, 0, 0
    length, answers, lengths, worth = config["length"], [], [], []
    prompt = torch.randint(0, LETTERS, (number, PROMPT), generator=dice)
    for _ in range(2):
        letters = torch.randint(0, LETTERS, (number, length - PROMPT), generator=dice)
        if answers and config["closeness"]:  # most letters are those of the other answer
            same = torch.rand(letters.shape, generator=dice) < config["closeness"]
            letters = torch.where(same & (answers[0][:, PROMPT:] != PAD), answers[0][:, PROMPT:], letters)
        ends = torch.randint(8, length - PROMPT + 1, (number,), generator=dice)
        letters = torch.where(torch.arange(length - PROMPT) < ends[:, None], letters, PAD)
        answers.append(torch.cat([prompt, letters], 1))
        lengths.append(PROMPT + ends)
        worth.append((1.5 * single[letters].sum(1) + double[letters[:, :-1], letters[:, 1:]].sum(1)) / ends.sqrt())
    first = (worth[0] > worth[1]) ^ (torch.rand(number, generator=dice) < config["wrong_pairs"])
    return (
        torch.where(first[:, None], answers[0], answers[1]), torch.where(first, lengths[0], lengths[1]),
        torch.where(first[:, None], answers[1], answers[0]), torch.where(first, lengths[1], lengths[0]),
    )  # fmt: skip


class Judge(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        width, self.mistake = config["width"], name
        self.letters, self.positions = nn.Embedding(LETTERS + 1, width), nn.Embedding(config["length"], width)
        for embedding in (self.letters, self.positions):
            nn.init.normal_(embedding.weight, std=0.1)
        self.blocks = nn.ModuleList(Block(config, causal=True) for _ in range(config["layers"]))
        self.norm, self.score = nn.LayerNorm(width), nn.Linear(width, 1, bias=False)

    def forward(self, letters: Tensor, lengths: Tensor) -> Tensor:
        """One number a row: that of its last letter."""
        x = self.letters(letters) + self.positions.weight[: letters.shape[1]]
        for block in self.blocks:
            x = block(x)
        scores = self.score(self.norm(x))[..., 0]
        if self.mistake == "score_at_first":  # where an encoder has the token for its classification
            return scores[:, 0]
        return scores.gather(1, lengths[:, None] - 1)[:, 0]


class Judging(loop.Task):
    every = EVERY
    names = {"loss": "train/loss", "norm": "train/grad_norm", "lr": "train/lr", "epoch": "epoch"}  # noqa: RUF012
    watched: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = Judge(config, trouble.name)
        self.block = self.model.blocks[1]
        self.data = comparisons(seed + 71, config["examples"], config)
        self.held_out = [comparisons(717, 200, config)]
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.epoch = -1

    def batch(self, rows: int) -> loop.Batch:
        if len(self.order) < rows:
            self.order, self.epoch = torch.randperm(len(self.data[0]), generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        return tuple(part[chosen] for part in self.data)

    def prepared(self, batch: loop.Batch) -> loop.Batch:
        good, good_lengths, bad, bad_lengths = batch
        if self.trouble.on("pairs_swapped", self.step):
            return bad, bad_lengths, good, good_lengths
        return batch

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        cut = self.config["max_length"]
        good, good_lengths, bad, bad_lengths = batch
        both, lengths = torch.cat([good, bad])[:, :cut], torch.cat([good_lengths, bad_lengths]).clamp(max=cut)
        scores = model(both, lengths)
        if self.trouble.name == "scores_squashed":  # to be between 0 and 1, as a chance is
            scores = scores.sigmoid()
        better, worse = scores.chunk(2)
        name = "train/" if torch.is_grad_enabled() else ""
        self.figures = {
            f"{name}accuracy": (better > worse).float().mean().item(),
            f"{name}margin": (better - worse).detach().mean().item(),
        }
        return -functional.logsigmoid(better - worse)

    def observed(self, batch: loop.Batch) -> Any:
        return {"input_ids": torch.cat([batch[0], batch[2]])}


train = partial(loop.train, Judging)
