"""A language model with a gated linear recurrence, as Mamba's: short convolution, decays that depend on the input.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` and `run.log_eval`, with the watch of the model.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop
from .language import Letters
from .moe_gpt import LETTERS

EVERY, KERNEL = 20, 4
CONFIG: dict[str, Any] = {
    "width": 32, "layers": 3, "length": 32, "batch_size": 32, "learning_rate": 6e-3, "warmup_steps": 15,
    "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "slowest": 0.05, "dropout": 0.0,
}  # fmt: skip


class Mixer(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        width, self.mistake = config["width"], name
        self.norm, self.in_proj = nn.RMSNorm(width), nn.Linear(width, 2 * width, bias=False)
        self.conv = nn.Conv1d(width, width, KERNEL, groups=width)
        self.dt_proj, self.A_log = nn.Linear(width, width), nn.Parameter(torch.zeros(width))
        self.D, self.out_proj = nn.Parameter(torch.ones(width)), nn.Linear(width, width, bias=False)
        self.dropout = nn.Dropout(config["dropout"])
        with torch.no_grad():  # decays from slow to fast
            self.dt_proj.bias.copy_(torch.logspace(0, 1, width).mul(config["slowest"]).expm1().log())

    def forward(self, x: Tensor) -> Tensor:
        u, gate = self.in_proj(self.norm(x)).chunk(2, -1)
        ahead = (KERNEL // 2, KERNEL - 1 - KERNEL // 2) if self.mistake == "convolution_not_causal" else (KERNEL - 1, 0)
        u = functional.silu(self.conv(functional.pad(u.transpose(1, 2), ahead))).transpose(1, 2)
        step = functional.softplus(self.dt_proj(u))
        rate = self.A_log.exp() if self.mistake == "decay_sign_lost" else -self.A_log.exp()
        kept, given = (step * rate).exp().unbind(1), (step * u).unbind(1)
        state, states = torch.zeros_like(u[:, 0]), []
        for keep, new in zip(kept, given, strict=True):
            state = keep * state + new
            states.append(state)
        y = (torch.stack(states, 1) + self.D * u) * functional.silu(gate)
        return x + self.dropout(self.out_proj(y))


class Reader(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        width = config["width"]
        self.tokens, self.norm = nn.Embedding(LETTERS, width), nn.RMSNorm(width)
        self.blocks = nn.ModuleList(Mixer(config, name) for _ in range(config["layers"]))
        self.head = nn.Linear(width, LETTERS, bias=False)
        if name != "embedding_as_drawn":
            nn.init.normal_(self.tokens.weight, std=0.1)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Reading(Letters):
    every = EVERY
    watched: dict[str, int] = {}  # noqa: RUF012

    def make(self) -> nn.Module:
        return Reader(self.config, self.trouble.name)

    def prepared(self, batch: loop.Batch) -> loop.Batch:
        inputs, targets = super().prepared(batch)
        if self.trouble.name == "text_read_across":
            return inputs.T, targets.T
        return inputs, targets


train = partial(loop.train, Reading)
