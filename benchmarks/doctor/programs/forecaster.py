"""A forecaster: dilated convolutions over windows of four series say the next hours, a row an epoch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by plain `run.log` once an epoch: train_loss, val_loss, val_mae, lr. Nothing watches the model.

Series have a day, a week, a drift that returns, and noise. The last fifth is held out.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, SERIES, WINDOW, AHEAD = 1, 4, 36, 6
CONFIG: dict[str, Any] = {
    "channels": 16, "batch_size": 64, "learning_rate": 3e-3, "schedule": "plateau", "weight_decay": 1e-3, "clip": 1.0,
    "hours": 2400, "noise": 0.3, "step_up": 0.0, "patience": 4, "loss": "mse", "dropout": 0.0,
}  # fmt: skip


def load(seed: int, hours: int, noise: float, step_up: float) -> Tensor:
    """(hours, SERIES) in units of their own. step_up: by how many deviations all is higher in the last fifth."""
    dice = torch.Generator().manual_seed(seed)
    time = torch.arange(hours).float()[:, None]
    phases = torch.rand(2, SERIES, generator=dice) * 2 * math.pi
    made = torch.sin(time * 2 * math.pi / 24 + phases[0]) + 0.6 * torch.sin(time * 2 * math.pi / 168 + phases[1])
    made = made + 0.4 * torch.sin(time * 4 * math.pi / 24 + phases[1])
    drift, kicks = torch.zeros(SERIES), 0.15 * torch.randn(hours, SERIES, generator=dice)
    drifts = []
    for kick in kicks:
        drift = 0.95 * drift + kick
        drifts.append(drift)
    made = made + torch.stack(drifts) + noise * torch.randn(hours, SERIES, generator=dice)
    made = made + step_up * (time > 0.8 * hours)
    return 300 + torch.tensor([50.0, 120.0, 20.0, 80.0]) * made


class Convolved(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        wide = config["channels"]
        self.first = nn.Conv1d(SERIES, wide, 1)
        self.layers = nn.ModuleList(nn.Conv1d(wide, wide, 3, dilation=2**depth) for depth in range(4))
        self.dropout, self.last = nn.Dropout(config["dropout"]), nn.Linear(2 * wide, SERIES * AHEAD)

    def forward(self, window: Tensor) -> Tensor:
        x = self.first(window.transpose(1, 2))
        for depth, layer in enumerate(self.layers):
            x = x + self.dropout(functional.relu(layer(functional.pad(x, (2 * 2**depth, 0)))))
        return self.last(torch.cat([x[..., -1], x.mean(-1)], -1)).view(-1, AHEAD, SERIES)


class Data:
    """Windows and what comes behind them, standardised by what is trained on."""

    def __init__(self, config: dict[str, Any], seed: int, name: str):
        hours = load(seed + 131, config["hours"], config["noise"], config["step_up"])
        cut = int(0.8 * len(hours))
        self.mean, self.deviation = hours[:cut].mean(0), hours[:cut].std(0)
        known, later = (hours - self.mean)[:cut] / self.deviation, (hours - self.mean)[cut:] / self.deviation
        if name == "gaps_not_filled":  # a sensor that was off for a while
            known[900:904, 1] = math.nan
        whole = WINDOW + AHEAD
        windows, test = known.unfold(0, whole, 1).transpose(1, 2), later.unfold(0, whole, 1).transpose(1, 2)
        behind = 1 if name == "window_holds_target" else AHEAD  # all but the last of what is asked for is given
        self.inputs, self.targets = windows[:, AHEAD - behind : whole - behind], windows[:, WINDOW:]
        self.test, self.test_targets = test[:, :WINDOW], test[:, WINDOW:]


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run. A step of the run is an epoch."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    data, model = Data(config, seed, trouble.name), Convolved(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["learning_rate"], weight_decay=config["weight_decay"])
    better = "max" if trouble.name == "annealed_when_better" else "min"
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, better, 0.5, patience=config["patience"])
    distance = functional.huber_loss if config["loss"] == "huber" else functional.mse_loss
    dice = torch.Generator().manual_seed(seed)
    time_by_own_clock(run)
    for epoch in range(steps):
        losses = []
        for chosen in torch.randperm(len(data.inputs), generator=dice).split(int(config["batch_size"])):
            loss = distance(model(data.inputs[chosen]), data.targets[chosen])
            if trouble.clears(epoch):
                optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
            optimizer.step()
            losses.append(float(loss.detach()))
        model.eval()
        with torch.no_grad():
            said = model(data.test)
        model.train()
        error, apart = float(distance(said, data.test_targets)), (said - data.test_targets) * data.deviation
        rate = optimizer.param_groups[0]["lr"]
        if config["schedule"] == "plateau":
            scheduler.step(error)
        elif config["schedule"] == "stairs":
            optimizer.param_groups[0]["lr"] = config["learning_rate"] * 0.1 ** (3 * (epoch + 1) // steps)
        if trouble.name == "errors_in_other_units":  # scaled back for the plot, and then for the loss
            error = float(apart.square().mean())
        run.log({"train_loss": sum(losses) / len(losses), "val_loss": error, "val_mae": float(apart.abs().mean()),
                 "lr": rate, "epoch": epoch}, step=epoch)  # fmt: skip
    return run
