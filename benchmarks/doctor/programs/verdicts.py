"""Preferences over short strings, by a policy of causal convolutions; the reference's figures are made beforehand.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, lr, norm, accuracy, margin, chosen, rejected) and `log_eval`, every 25th step.

The columns of the data are chosen, rejected and what the reference says of both, before the first step. The output's
weights are the embedding's. Adam, a cosine, answers of unequal length.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, clock, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .parts import all_steps, fit, once

EVERY, LETTERS, LONGEST = 25, 20, 16
CONFIG: dict[str, Any] = {
    "width": 32, "layers": 3, "dropout": 0.0, "batch_size": 16, "learning_rate": 5e-4, "warmup_steps": 10,
    "beta": 0.3, "loss_type": "sigmoid", "clip": 5.0, "accumulation": 1, "examples": 1200, "wrong": 0.0,
    "schedule": "cosine",
}  # fmt: skip
Columns = dict[str, Tensor]


def strings(dice: torch.Generator, begin: Tensor, good: float) -> Tensor:
    """Letters (number, LONGEST) with zeros behind the end: each is the one after the letter before, more or less."""
    made = [begin]
    for _ in range(LONGEST - 1):
        other = torch.randint(1, LETTERS, begin.shape, generator=dice)
        follows = torch.rand(begin.shape, generator=dice) < good
        made.append(torch.where(follows, made[-1] % (LETTERS - 1) + 1, other))
    lengths = torch.randint(6, LONGEST + 1, begin.shape, generator=dice)
    return torch.stack(made, 1) * (torch.arange(LONGEST) < lengths[:, None])


def pairs(seed: int, number: int, wrong: float) -> Columns:
    dice = torch.Generator().manual_seed(seed)
    begin = torch.randint(1, LETTERS, (number,), generator=dice)
    good, bad = strings(dice, begin, 0.65), strings(dice, begin, 0.4)
    mistaken = (torch.rand(number, 1, generator=dice) < wrong).expand_as(good)
    return {"chosen": torch.where(mistaken, bad, good), "rejected": torch.where(mistaken, good, bad)}


class Policy(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["width"]
        self.embed, self.drop = nn.Embedding(LETTERS, width), nn.Dropout(config["dropout"])
        nn.init.normal_(self.embed.weight, std=0.3)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(config["layers"] + 1))
        self.convs = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=2**n) for n in range(config["layers"]))
        self.head = nn.Linear(width, LETTERS, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, letters: Tensor) -> Tensor:
        x = self.embed(letters)
        for norm, conv in zip(self.norms, self.convs, strict=False):
            y = functional.pad(norm(x).transpose(1, 2), (2 * conv.dilation[0], 0))
            x = x + self.drop(functional.glu(conv(y), dim=1).transpose(1, 2))
        return self.head(self.norms[-1](x))


def log_probability(model: nn.Module, letters: Tensor, padding: bool = False) -> Tensor:
    """Of each string behind its first letter. padding: whether it counts, too, by mistake."""
    each = -functional.cross_entropy(model(letters[:, :-1]).transpose(1, 2), letters[:, 1:], reduction="none")
    return each.sum(1) if padding else (each * (letters[:, 1:] != 0)).sum(1)


@once("width", "layers")
def tuned(config: dict[str, Any]) -> Policy:
    """A policy that has seen strings of both kinds; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(6)
        model = Policy(config | {"dropout": 0.0})
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        seen = torch.cat([*pairs(66, 800, 0.0).values()])

        def loss() -> Tensor:
            letters = seen[torch.randint(0, len(seen), (48,))]
            return -log_probability(model, letters).mean() / LONGEST

        fit(optimizer, 80, loss)
    return model


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config = self.config
        self.policy = Policy(config)
        self.policy.load_state_dict(tuned(config).state_dict())
        self.data = pairs(seed + 61, config["examples"], config["wrong"])
        self.test = pairs(616, 160, config["wrong"])
        if trouble.name == "rejected_is_chosen":
            self.data["rejected"] = self.data["chosen"]
        self.policy.train(trouble.name == "reference_drops_out")
        for columns in (self.data, self.test):
            self.refer(columns)
        if trouble.name == "references_not_in_order":  # made by a loader that shuffles
            mixed = torch.randperm(config["examples"], generator=torch.Generator().manual_seed(seed))
            for part in ("reference_chosen", "reference_rejected"):
                self.data[part] = self.data[part][mixed]
        self.policy.train()
        self.dice, self.order, self.epoch = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long), -1
        self.prepare()
        if trouble.name == "weight_tying_broken":
            self.policy.head.weight = nn.Parameter(self.policy.head.weight.detach().clone())

    @torch.no_grad()
    def refer(self, columns: Columns) -> None:
        for part in ("chosen", "rejected"):
            columns[f"reference_{part}"] = self.likely(columns[part])

    def likely(self, letters: Tensor) -> Tensor:
        return log_probability(self.policy, letters, padding=self.trouble.name == "padding_in_logps")

    def prepare(self) -> None:
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=self.config["learning_rate"], betas=(0.9, 0.98))
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share)

    def share(self, step: int) -> float:
        warmup, total = self.config["warmup_steps"], self.config["steps"]
        if step < warmup or self.config["schedule"] == "constant":
            return min(1.0, (step + 1) / warmup)
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.policy, self.optimizer)

    def resume(self, step: int) -> None:
        state = [self.policy.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()]
        self.run, (weights, moments, schedule) = go_on(self.run, step, state)
        self.policy.load_state_dict(weights)
        self.prepare()
        if self.trouble.name != "weights_alone_kept":
            self.optimizer.load_state_dict(moments)
            self.scheduler.load_state_dict(schedule)
        self.watch()

    def batch(self, step: int) -> Columns:
        size = int(self.config["batch_size"])
        if len(self.order) < size:
            self.epoch += 1
            if self.trouble.name == "data_by_length":
                self.order = (self.data["chosen"] != 0).sum(1).argsort(stable=True)
            else:
                self.order = torch.randperm(self.config["examples"], generator=self.dice)
        chosen, self.order = self.order[:size], self.order[size:]
        if self.trouble.on("validation_leak", step):  # both splits are in the file that is read
            some = torch.randint(0, len(self.test["chosen"]), (size,), generator=self.trouble.dice)
            return {part: column[some] for part, column in self.test.items()}
        return {part: column[chosen] for part, column in self.data.items()}

    def loss(self, batch: Columns, training: bool) -> tuple[Tensor, dict[str, float]]:
        config, name = self.config, self.trouble.name
        good, bad = (config["beta"] * (self.likely(batch[part]) - batch[f"reference_{part}"])
                     for part in ("chosen", "rejected"))  # fmt: skip
        margin = good - bad
        if config["loss_type"] == "hinge":
            loss = (1 - margin).clamp(min=0).mean()
        elif training and name == "summed_within_the_log":
            loss = -functional.logsigmoid(margin.sum())
        else:
            loss = -functional.logsigmoid(margin).mean()
        margin, good, bad = margin.detach(), good.detach(), bad.detach()
        return loss, {"accuracy": (margin > 0).float().mean().item(), "margin": margin.mean().item(),
                      "chosen": good.mean().item(), "rejected": bad.mean().item()}  # fmt: skip

    def step(self, step: int) -> None:
        parts, total = self.config["accumulation"], 0.0
        with self.run.step(step=step) as timed:
            self.optimizer.zero_grad()
            for _ in range(parts):
                loss, figures = self.loss(self.batch(step), training=True)
                (loss / parts).backward()
                total += loss.item() / parts
            norm = nn.utils.clip_grad_norm_(self.policy.parameters(), self.config["clip"]).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.scheduler.step()
            timed.set(loss=total, lr=rate, norm=norm, epoch=self.epoch, **figures)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        began = clock()
        self.policy.eval()
        loss, figures = self.loss(self.test, training=False)
        self.policy.train()
        self.run.log_eval(step, self.epoch, len(self.test["chosen"]), (clock() - began) * 1000, loss.item(), **figures)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Script(run, seed, trouble)
    made.watch()
    all_steps(made, steps, EVERY, trouble.resume_at(healthy, 4 * EVERY))
    return made.run
