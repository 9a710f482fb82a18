"""`barograph demo --mup`: a GPT in the standard parametrisation and in muP, checked over widths.

In:   the standard library's text, a seed.
Out:  a run with both checks' slopes, their plots as PNG and JSON files, and both verdicts on the screen.

muP here is table 8 of Yang et al. 2022 (arXiv:2203.03466) for Adam, against the standard parametrisation:
input weights and biases: variance 1 / fan_in, rate unchanged; hidden weights: variance 1 / fan_in, rate
∝ 1 / fan_in; output weights: variance 1, multiplied by 1 / fan_in, rate unchanged; attention: 1 / d instead
of 1 / sqrt(d) (definition 4.1). Widths are relative to `BASE`, where both parametrisations are the same.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import barograph
from barograph.analysis.widths.mup import coord_check
from barograph.demo.text import NoSources, fixed_windows, read_corpus

BASE = 64
WIDTHS = (64, 128, 256, 512)
SEEDS, STEPS, RATE = 5, 8, 0.01
BYTES, CONTEXT, HEADS = 256, 16, 4


class Readout(nn.Linear):
    """The last layer: in muP its answer is divided by width / BASE."""

    def __init__(self, width: int, out: int, mup: bool) -> None:
        super().__init__(width, out, bias=False)
        self.factor = BASE / width if mup else 1.0
        # in table 8 the variance is constant and the factor shrinks by the width
        nn.init.normal_(self.weight, std=(BASE if mup else width) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = super().forward(x) * self.factor
        return answer


class WidthAttention(nn.Module):
    def __init__(self, width: int, mup: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.scores = nn.Identity()  # so that attention logits can be looked at
        size = width // HEADS
        self.scale = (BASE / HEADS) ** 0.5 / size if mup else size**-0.5

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        query, key, value = self.qkv(x).view(batch, time, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        logits = self.scores(query @ key.transpose(-1, -2) * self.scale)
        mask = torch.ones(time, time, dtype=torch.bool).triu(1)
        mixed = logits.masked_fill(mask, -1e9).softmax(-1) @ value
        answer: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return answer


class WidthBlock(nn.Module):
    def __init__(self, width: int, mup: bool) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = WidthAttention(width, mup)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        answer: Tensor = x + self.down(functional.gelu(self.up(self.feed_norm(x))))
        return answer


class GPT(nn.Module):
    def __init__(self, width: int, mup: bool, vocabulary: int = BYTES) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(WidthBlock(width, mup) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.readout = Readout(width, vocabulary, mup)
        for name, weight in self.named_parameters():
            if name.endswith(("tokens.weight", "places.weight")):
                nn.init.normal_(weight, std=0.5)
            elif weight.dim() == 2 and "readout" not in name:
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        with torch.no_grad():  # appendix D.2: queries and readout start at 0, so that no chance is left in either
            self.readout.weight.zero_()
            for name, weight in self.named_parameters():
                if name.endswith("qkv.weight"):
                    weight[:width].zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.readout(self.norm(x))
        return logits


INPUT_AND_OUTPUT = ("first", "readout", "tokens", "places")


def adam(rate: float, mup: bool) -> Any:
    """The optimizer at a width: in muP the rate of hidden matrices is divided by width / BASE."""

    def make(model: nn.Module, width: int) -> torch.optim.Optimizer:
        hidden: list[Tensor] = []
        others: list[Tensor] = []
        for name, weight in model.named_parameters():
            inside = weight.dim() == 2 and not name.startswith(INPUT_AND_OUTPUT)
            (hidden if inside else others).append(weight)
        groups: list[dict[str, Any]] = [
            {"params": hidden, "lr": rate * BASE / width if mup else rate},
            {"params": others},
        ]
        return torch.optim.Adam(groups, lr=rate)

    return make


def run_widths(dir: str | os.PathLike[str] | None = None, seed: int = 0) -> int:
    """Check both parametrisations, record and tell; returns the exit code."""

    try:
        text = read_corpus().train.text
    except NoSources as error:
        print(f"barograph: {error}", file=sys.stderr)
        return 1
    windows = fixed_windows(text[seed * CONTEXT :], CONTEXT, 200)

    def batch(step: int, number: int) -> tuple[Tensor, Tensor]:
        # a few bytes twice, so that attention has something to learn within a handful of steps
        chosen = torch.randperm(len(windows), generator=torch.Generator().manual_seed(number))[:8]
        half = torch.stack([torch.tensor(list(windows[row][:5])) for row in chosen.tolist()])
        tokens = torch.cat((half, half[:, :4]), 1)
        return tokens[:, :-1], tokens[:, 1:]

    config = {"widths": list(WIDTHS), "seeds": SEEDS, "steps": STEPS, "lr": RATE, "seed": seed}
    with barograph.init("demo", name="widths", config=config, dir=dir) as run:
        passed = {}
        for name, mup in (("standard", False), ("mup", True)):
            print(f"\nThe {'muP' if mup else 'standard'} parametrisation, {STEPS} steps at {len(WIDTHS)} widths:")
            check = coord_check(
                make_model=lambda width, mup=mup: GPT(width, mup),  # type: ignore[misc]
                widths=WIDTHS,
                batches=batch,
                optimizer=adam(RATE, mup),
                steps=STEPS,
                seeds=SEEDS,
            )
            print(check, flush=True)
            passed[name] = check.passed
            check.plot(run.dir / f"widths_{name}.png")
            check.to_json(run.dir / f"widths_{name}.json")
            check.record(run, int(mup))
    print(f"\nPictures and figures are in {run.dir}")
    return 0
