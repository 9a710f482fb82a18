"""Key points of faces: a convolutional network with batch norm says where eyes, nose and mouth are in a picture.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss, train/lr, epoch, valid/loss, valid/pixels; the watch of the model.

A face is drawn from its five points; half of the pictures are mirrored as they are drawn. Points are numbers from -1 to
1, first across, then down. The rate falls after every fourth epoch.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, SIDE, POINTS = 20, 24, 5
SWAPPED = (1, 0, 2, 4, 3)  # left and right eye, nose, left and right corner of the mouth
CONFIG: dict[str, Any] = {
    "channels": 12, "batch_size": 32, "learning_rate": 3e-3, "schedule": "step", "step_epochs": 4, "gamma": 0.3,
    "weight_decay": 0.0, "examples": 640, "noise": 0.15, "hidden_points": 0.0, "loss": "mse", "dropout": 0.0,
}  # fmt: skip


def faces(seed: int, number: int, config: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures as bytes would be, from 0 to 255; points (number, POINTS, 2); which of them can be seen."""
    dice = torch.Generator().manual_seed(seed)
    x, y, size, turn, smile = torch.rand(5, number, 1, generator=dice) - 0.5
    shape = torch.tensor([[-0.35, -0.3], [0.35, -0.3], [0.0, 0.0], [-0.25, 0.35], [0.25, 0.35]]).expand(number, -1, -1)
    shape = shape * (1 + 0.4 * size)[..., None]
    shape = shape + torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0])[:, None] * torch.stack([0 * smile, 0.3 * smile], -1)
    angle = 0.8 * turn
    across = angle.cos() * shape[..., 0] - angle.sin() * shape[..., 1] + 0.7 * x
    down = angle.sin() * shape[..., 0] + angle.cos() * shape[..., 1] + 0.7 * y
    points = torch.stack([across, down], -1)
    grid = torch.linspace(-1, 1, SIDE)
    bright = torch.tensor([1.0, 1.0, 0.6, 0.8, 0.8])[:, None, None]
    wide = torch.tensor([0.12, 0.12, 0.16, 0.09, 0.09])[:, None, None]
    far = (grid - across[..., None, None]).square() + (grid[:, None] - down[..., None, None]).square()
    drawn = (bright * torch.exp(-far / wide.square())).amax(1, keepdim=True)
    drawn = drawn + config["noise"] * torch.randn(number, 1, SIDE, SIDE, generator=dice)
    seen = torch.rand(number, POINTS, generator=dice) >= config["hidden_points"]
    return (90 + 130 * drawn).clamp(0, 255), points, seen


class Net(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        wide = config["channels"]
        sizes = ((1, wide), (wide, 2 * wide), (2 * wide, 2 * wide))
        layers = [
            nn.Sequential(nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
            for before, after in sizes
        ]
        self.layers = layers if name == "layers_in_list" else nn.ModuleList(layers)
        self.hidden, self.dropout = nn.Linear(18 * wide, 48), nn.Dropout(config["dropout"])
        self.points, self.mistake = nn.Linear(48, 2 * POINTS), name

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        x = self.points(self.dropout(functional.relu(self.hidden(x.flatten(1)))))
        if self.mistake == "relu_at_output":
            x = functional.relu(x)
        return x.view(-1, POINTS, 2)


class Training:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        self.model = Net(self.config, trouble.name)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.config["learning_rate"],
                                          weight_decay=self.config["weight_decay"])  # fmt: skip
        self.scheduler = torch.optim.lr_scheduler.StepLR(
            self.optimizer, self.config["step_epochs"], self.config["gamma"]
        )
        self.data, self.test = faces(seed + 61, self.config["examples"], self.config), faces(616, 160, self.config)
        self.dice = torch.Generator().manual_seed(seed)
        self.order, self.epoch, self.kept = torch.empty(0, dtype=torch.long), -1, None

    def batch(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        rows = int(self.config["batch_size"])
        if len(self.order) < rows:
            if self.epoch >= 0 and self.trouble.name != "scheduled_per_batch":
                self.scheduler.step()
            self.order, self.epoch = torch.randperm(len(self.data[0]), generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        if self.trouble.on("data_exhausted", step):
            self.kept = chosen = chosen if self.kept is None else self.kept
        drawn, points, seen = (part[chosen] for part in self.data)
        mirrored = torch.rand(rows, generator=self.dice) < 0.5
        other, hidden = points * torch.tensor([-1.0, 1.0]), seen
        if self.trouble.name != "points_not_swapped":
            other, hidden = other[:, SWAPPED], seen[:, SWAPPED]
        which = mirrored[:, None, None]
        return (torch.where(which[..., None], drawn.flip(3), drawn), torch.where(which, other, points),
                torch.where(mirrored[:, None], hidden, seen))  # fmt: skip

    def loss(self, batch: tuple[Tensor, Tensor, Tensor], raw: bool = False) -> tuple[Tensor, float]:
        """The loss, and how many pixels points are off."""
        drawn, points, seen = batch
        found = self.model(drawn if raw else (drawn - 105) / 45)
        distance = functional.smooth_l1_loss if self.config["loss"] == "huber" else functional.mse_loss
        off = (found.detach() - points).square().sum(-1).sqrt()[seen].mean().item() * SIDE / 2
        if self.trouble.name == "missing_points_counted":  # they are zeros in the annotations
            return distance(found, points * seen[..., None]), off
        return distance(found[seen], points[seen]), off

    def one(self, step: int) -> None:
        batch = self.batch(step)
        loss, _ = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.trouble.gradients(step, self.model, self.model.hidden)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        if self.trouble.name == "scheduled_per_batch":  # one indent too far
            self.scheduler.step()
        self.run.log({"train/loss": loss.item(), "train/lr": rate, "epoch": self.epoch}, step=step)

    @torch.no_grad()
    def evaluate(self, step: int) -> None:
        self.model.eval()
        loss, off = self.loss(self.test, raw=self.trouble.name == "held_out_unscaled")
        self.model.train()
        self.run.log({"valid/loss": loss.item(), "valid/pixels": off}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = Training(run, seed, Trouble(fault, seed))
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    for step in range(steps):
        made.one(step)
        if step % EVERY == EVERY - 1:  # the end of an epoch
            made.evaluate(step)
    return run
