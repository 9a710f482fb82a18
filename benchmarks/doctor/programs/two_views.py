"""Two views of a signal are brought together, those of others are pushed away: NT-Xent over convolutions.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: nt_xent, contrast_acc, lr of each step; val_nt_xent and val_knn (nearest neighbours by the
      features, without labels in the training) now and then.

Stochastic gradient descent with Nesterov's momentum, batch norm, a projection behind the features.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .loop import factor
from .parts import all_steps

EVERY, LENGTH, KINDS = 20, 64, 5
CONFIG: dict[str, Any] = {
    "width": 20, "features": 40, "projection": 20, "batch_size": 32, "learning_rate": 0.15, "momentum": 0.9,
    "warmup_steps": 10, "schedule": "cosine", "weight_decay": 1e-4, "temperature": 0.2, "examples": 640,
    "strength": 1.0, "optimizer": "sgd", "norm_momentum": 0.1,
}  # fmt: skip


def signals(seed: int, number: int) -> tuple[Tensor, Tensor]:
    """Sounds of five kinds, (number, LENGTH), and which kind each is."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (number,), generator=dice)
    pitch = 0.25 + 0.5 * torch.rand(number, 1, generator=dice)
    turn = pitch * torch.arange(LENGTH) + 6.3 * torch.rand(number, 1, generator=dice)
    wave = torch.stack([
        turn.sin(), turn.sin().sign(), (turn % 6.2832) / 3.1416 - 1,
        (turn.sin() + (2 * turn).sin()) / 1.4, turn.sin() * (turn / 5).sin() * 1.4,
    ])  # fmt: skip
    drawn = wave[kinds, torch.arange(number)]
    return drawn + 0.1 * torch.randn(drawn.shape, generator=dice), kinds


def view(signal: Tensor, dice: torch.Generator, strength: float) -> Tensor:
    """The signal begun elsewhere, louder or softer, some of it silent, with noise."""
    rows = len(signal)
    start = torch.randint(0, LENGTH, (rows, 1), generator=dice)
    signal = signal.gather(1, (start + torch.arange(LENGTH)) % LENGTH)
    loud = (0.3 * strength * torch.randn(rows, 1, generator=dice)).exp()
    hole = torch.randint(0, LENGTH, (rows, 1), generator=dice)
    silent = (torch.arange(LENGTH) >= hole) & (torch.arange(LENGTH) < hole + 12 * strength)
    return (loud * signal + 0.2 * strength * torch.randn(rows, LENGTH, generator=dice)).masked_fill(silent, 0.0)


class Encoder(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        wide, features, momentum = config["width"], config["features"], config["norm_momentum"]
        self.trunk = nn.Sequential(
            nn.Conv1d(1, wide, 7, 2, 3, bias=False), nn.BatchNorm1d(wide, momentum=momentum), nn.ReLU(),
            nn.Conv1d(wide, wide, 5, 2, 2, bias=False), nn.BatchNorm1d(wide, momentum=momentum), nn.ReLU(),
            nn.Conv1d(wide, features, 3, 1, 1, bias=False), nn.BatchNorm1d(features, momentum=momentum), nn.ReLU(),
        )  # fmt: skip
        self.projector = nn.Sequential(
            nn.Linear(features, features, bias=False), nn.BatchNorm1d(features, momentum=momentum), nn.ReLU(),
            nn.Linear(features, config["projection"]),
        )  # fmt: skip

    def features(self, signal: Tensor) -> Tensor:
        return self.trunk(signal[:, None]).mean(-1)

    def forward(self, signal: Tensor) -> Tensor:
        return self.projector(self.features(signal))


def nt_xent(one: Tensor, other: Tensor, temperature: float, name: str) -> tuple[Tensor, Tensor]:
    """The loss, and how often the other view is the nearest."""
    both = torch.cat([one, other])
    if name != "length_kept":
        both = functional.normalize(both, dim=1)
    alike = both @ both.T
    alike = alike * temperature if name == "temperature_multiplied" else alike / temperature
    if name != "self_among_others":
        alike = alike.masked_fill(torch.eye(len(both), dtype=torch.bool), float("-inf"))
    partner = torch.arange(len(both)).roll(len(one))
    return functional.cross_entropy(alike, partner), (alike.argmax(1) == partner).float().mean()


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config = self.config
        if trouble.name == "stale_statistics":  # Keras' convention, where it says how much is kept
            config["norm_momentum"] = 0.0
        if trouble.name == "last_batch_of_one":
            config["examples"] += 1
        self.data, self.test = signals(seed + 61, config["examples"]), signals(616, 192)
        self.model = Encoder(config)
        if config["optimizer"] == "adam":
            self.optimizer: Any = torch.optim.AdamW(self.model.parameters(), lr=config["learning_rate"] / 40)
        else:
            self.optimizer = torch.optim.SGD(
                self.model.parameters(), lr=config["learning_rate"], momentum=config["momentum"], nesterov=True,
                weight_decay=config["weight_decay"],
            )  # fmt: skip
        if trouble.name == "optimizer_stale":  # a copy, so that the first one can be looked at later
            self.model = copy.deepcopy(self.model)
        self.peak = self.optimizer.param_groups[0]["lr"]
        self.dice, self.waiting = torch.Generator().manual_seed(seed), []

    def batch(self) -> Tensor:
        if not self.waiting:
            rows = int(self.config["batch_size"])
            order = torch.randperm(len(self.data[0]), generator=self.dice)
            self.waiting = [part for part in order.split(rows)
                            if len(part) == rows or self.trouble.name == "last_batch_of_one"]  # fmt: skip
        return self.data[0][self.waiting.pop(0)]

    def step(self, step: int) -> None:
        config, name = self.config, self.trouble.name
        signal = self.batch()
        first = view(signal, self.dice, config["strength"])
        second = first if name == "views_alike" else view(signal, self.dice, config["strength"])
        if self.trouble.on("labels_shuffled", step):
            second = second[torch.randperm(len(second), generator=self.trouble.dice)]
        one, other = self.model(torch.cat([first, second])).chunk(2)
        loss, right = nt_xent(one, other, config["temperature"], name)
        self.optimizer.param_groups[0]["lr"] = rate = self.peak * factor(config, config["steps"], step)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.run.log({"nt_xent": loss.item(), "contrast_acc": right.item(), "lr": rate}, step=step)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        self.model.train(self.trouble.on("training_mode_in_evaluation", step))
        dice = torch.Generator().manual_seed(8)
        losses = [
            nt_xent(*(self.model(view(part, dice, self.config["strength"])) for _ in range(2)),
                    self.config["temperature"], self.trouble.name)[0].item()
            for part in self.test[0].split(int(self.config["batch_size"]))
        ]  # fmt: skip
        known = functional.normalize(self.model.features(self.data[0][:400]), dim=1)
        asked = functional.normalize(self.model.features(self.test[0]), dim=1)
        near = (asked @ known.T).topk(5).indices
        said = self.data[1][:400][near].mode(1).values
        self.model.train()
        self.run.log({"val_nt_xent": sum(losses) / len(losses),
                      "val_knn": (said == self.test[1]).float().mean().item()}, step=step)  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = Script(run, seed, Trouble(fault, seed))
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    all_steps(made, steps, EVERY)
    return run
