"""A network that estimates prices from a table: mean square error of standardised logarithms, a row an epoch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by plain `run.log` once an epoch: train_mse, val_mse, val_r2, lr. Nothing watches the model.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, COLUMNS, HELD_OUT = 1, 12, 600
CONFIG: dict[str, Any] = {
    "width": 48, "dropout": 0.0, "batch_size": 64, "learning_rate": 2e-3, "schedule": "cosine", "weight_decay": 1e-4,
    "clip": 1.0, "examples": 2400, "noise": 0.3, "tail": 0.0,
}  # fmt: skip


def houses(seed: int, number: int, config: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Columns of unlike scales, and a price; how the price comes about is the same for all seeds."""
    dice, laws = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(5)
    hidden = torch.randn(number, COLUMNS, generator=dice)
    first, second = torch.randn(COLUMNS, 8, generator=laws) / COLUMNS**0.5, torch.randn(8, generator=laws)
    logs = torch.sin(1.5 * hidden @ first) @ second * 0.6 + 0.4 * hidden[:, 0] * hidden[:, 1]
    noise = torch.randn(number, generator=dice)
    far = torch.rand(number, generator=dice) < config["tail"]
    logs = logs + config["noise"] * torch.where(far, 12 * noise, noise)
    scales = 10 ** torch.linspace(-2, 4, COLUMNS)
    table = hidden * scales + 3 * scales
    return table, torch.exp(12.2 + 0.5 * logs)


class Data:
    """The table, split, standardised by what is trained on."""

    def __init__(self, config: dict[str, Any], seed: int, trouble: Trouble):
        table, price = houses(seed + 81, config["examples"], config)
        test, test_price = houses(828, HELD_OUT, config)
        mean, deviation = table.mean(0), table.std(0)
        logs, test_logs = price.log(), test_price.log()
        self.inputs, self.targets = (table - mean) / deviation, (logs - logs.mean()) / logs.std()
        self.test, self.test_targets = (test - mean) / deviation, (test_logs - logs.mean()) / logs.std()
        if trouble.name == "held_out_unscaled":
            self.test = test
        if trouble.name == "answer_among_columns":  # a column made of the price, which a new house doesn't have yet
            self.inputs = torch.cat([self.inputs[:, :-1], self.targets[:, None]], 1)
            self.test = torch.cat([self.test[:, :-1], torch.zeros(HELD_OUT, 1)], 1)
        if trouble.name == "rows_joined_wrongly":  # joined by the wrong key
            self.targets = self.targets[torch.randperm(len(self.targets), generator=trouble.dice)]


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run. A step of the run is an epoch."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    data, width = Data(config, seed, trouble), config["width"]
    model = nn.Sequential(
        nn.Linear(COLUMNS, width), nn.SiLU(), nn.Dropout(config["dropout"]), nn.Linear(width, width), nn.SiLU(),
        nn.Dropout(config["dropout"]), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1),
    )  # fmt: skip
    trouble.spoil_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"], weight_decay=config["weight_decay"])
    dice = torch.Generator().manual_seed(seed)
    time_by_own_clock(run)
    running, batches = 0.0, 0
    for epoch in range(steps):
        rate = config["learning_rate"]
        if config["schedule"] == "cosine":
            rate *= 0.5 * (1 + math.cos(math.pi * epoch / steps))
        elif config["schedule"] == "stairs":
            rate *= 0.1 ** (3 * epoch // steps)
        for group in optimizer.param_groups:
            group["lr"] = trouble.rate(epoch, rate)
        if trouble.name != "sums_never_reset":
            running = 0.0
        batches = 0
        order = torch.randperm(len(data.inputs), generator=dice)
        for chosen in order.split(int(config["batch_size"])):
            inputs, targets = data.inputs[chosen], data.targets[chosen]
            said = model(inputs)
            if trouble.name != "prices_broadcast":
                said = said[:, 0]
            loss = (said - targets).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
            optimizer.step()
            running, batches = running + float(loss.detach()), batches + 1
        model.eval()
        with torch.no_grad():
            error = functional.mse_loss(model(data.test)[:, 0], data.test_targets)
        model.train()
        explained = 1 - float(error / data.test_targets.var())
        run.log({"train_mse": running / batches, "val_mse": float(error), "val_r2": explained, "lr": rate,
                 "epoch": epoch}, step=epoch)  # fmt: skip
    return run
