"""A convolutional network that learns to tell drawn shapes apart, with momentum and batch norm.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run. It logs as scripts of vision people do: plain `run.log` with names of its own, `run.step` for time alone.

Images are 16 × 16 and made here: a cross, a square, a disc, stripes of two directions or a triangle, anywhere, of any
brightness, in noise.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, clock, go_on, pause, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY = 30
CLASSES, SIZE = 6, 16
CONFIG: dict[str, Any] = {
    "channels": 16, "batch_size": 32, "learning_rate": 0.06, "momentum": 0.9, "weight_decay": 5e-4, "clip": 5.0,
    "schedule": "cosine", "warmup_steps": 10, "dropout": 0.1, "examples": 6000, "noise": 0.7,
}  # fmt: skip


def draw(seed: int, number: int, noise: float) -> tuple[Tensor, Tensor]:
    """Images (number, 1, SIZE, SIZE) and classes (number,)."""
    dice = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, CLASSES, (number,), generator=dice)
    x0, y0 = (torch.randint(4, SIZE - 4, (number, 1, 1), generator=dice) for _ in range(2))
    size = torch.randint(3, 5, (number, 1, 1), generator=dice)
    light = 0.7 + 0.6 * torch.rand(number, 1, 1, generator=dice)
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    dx, dy = x[None] - x0, y[None] - y0
    inside = (dx.abs() <= size) & (dy.abs() <= size)
    shapes = torch.stack([
        inside & ((dx == 0) | (dy == 0)),
        inside & ((dx.abs() == size) | (dy.abs() == size)),
        dx.square() + dy.square() <= size.square(),
        inside & (dx % 2 == 0),
        inside & (dy % 2 == 0),
        inside & (dx.abs() <= (dy + size) // 2),
    ])  # fmt: skip
    images = shapes[classes, torch.arange(number)].float() * light
    return (images + noise * torch.randn(images.shape, generator=dice))[:, None], classes


class Stage(nn.Module):
    """Two convolutions, the second with a shortcut."""

    def __init__(self, inward: int, outward: int, normed: bool):
        super().__init__()
        self.first = nn.Conv2d(inward, outward, 3, stride=2, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outward)
        self.rectified = nn.Conv2d(outward, outward, 3, padding=1)
        self.second_norm = nn.BatchNorm2d(outward) if normed else nn.Identity()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first_norm(self.first(x)))
        return self.act(self.second_norm(self.rectified(x)))


class Network(nn.Module):
    def __init__(self, config: dict[str, Any], trouble: Trouble):
        super().__init__()
        channels = config["channels"]
        normed = trouble.name != "dead_units"  # a norm would mend the bias
        self.stages = nn.ModuleList(
            Stage(inward, outward, normed)
            for inward, outward in ((1, channels), (channels, 2 * channels), (2 * channels, 2 * channels))
        )
        width = 2 * channels
        self.sigmoids = nn.Sequential(
            *(
                part
                for _ in range(trouble.hidden.get("sigmoids", 0))
                for part in (nn.Linear(width, width), nn.Sigmoid())
            )
        )
        self.dropout, self.fc = nn.Dropout(config["dropout"]), nn.Linear(width, CLASSES)
        self.trouble, self.step = trouble, 0

    def forward(self, x: Tensor) -> Tensor:
        for number, stage in enumerate(self.stages):
            x = stage(x)
            if number == 1:
                x = self.trouble.output(self.step, x)
        return self.fc(self.dropout(self.sigmoids(x.mean((2, 3)))))


def sgd(model: nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        model.parameters(), lr=config["learning_rate"], momentum=config["momentum"],
        weight_decay=config["weight_decay"], nesterov=True,
    )  # fmt: skip


def learning_rate(config: dict[str, Any], step: int, total: int) -> float:
    peak, schedule, warmup = config["learning_rate"], config["schedule"], config["warmup_steps"]
    if schedule == "rewarm" and step >= total // 2:  # warm restarts (Loshchilov and Hutter 2017)
        step, total, peak, warmup = step - total // 2, total - total // 2, 0.7 * peak, 2 * warmup
    elif schedule == "rewarm":
        total //= 2
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "constant":
        return peak
    if schedule == "wsd":
        return peak * min(1.0, max(0.01, (total - step) / (0.25 * total)))
    return 0.5 * peak * (1 + math.cos(math.pi * min(1.0, step / total)))


class Training:
    """What a checkpoint holds, and the order of the data."""

    def __init__(self, config: dict[str, Any], seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.net = Network(config, trouble)
        trouble.spoil_model(self.net)
        self.optimizer = sgd(self.net, config)
        if trouble.name == "optimizer_stale":
            stale, self.net = self.net, Network(config, trouble)
            self.net.load_state_dict(stale.state_dict())
        self.images, self.classes = draw(seed + 1, config["examples"], config["noise"])
        images, classes = draw(4242, 300, config["noise"])
        order = classes.argsort(stable=True)  # class by class, as data sets in folders are
        self.test = images[order], classes[order]
        self.dice = torch.Generator().manual_seed(seed)
        self.order = torch.empty(0, dtype=torch.long)
        self.epoch = -1

    def batch(self, rows: int, easy: bool) -> tuple[Tensor, Tensor]:
        if len(self.order) < rows:
            self.order, self.epoch = torch.randperm(len(self.images), generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        images, classes = self.images[chosen], self.classes[chosen]
        if easy:
            images = images * 1.5
        return images, classes


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    made = Training(config, seed, trouble)
    net = made.net
    options = dict(gradients=10, updates=5, weights=60, histograms=0, activations=15, optimizer_state=30)
    time_by_own_clock(run)
    run.watch(net, made.optimizer, **options)
    watch = run.watch_data()
    resume_at = trouble.resume_at(healthy, 4 * EVERY)
    for step in range(steps):
        if step == resume_at:
            run = restart(run, made, config, step, trouble)
            time_by_own_clock(run)
            run.watch(net, made.optimizer, **options)
            watch = run.watch_data()
        trouble.freeze(step, net.stages[1])
        rate = trouble.rate(step, learning_rate(config, *trouble.early(step, steps)))
        for group in made.optimizer.param_groups:
            group["lr"] = rate
        rows = int(config["batch_size"])
        if healthy == "batch_ramp":
            rows = rows // 2 * (1 + (step >= steps // 3) + 2 * (step >= 2 * steps // 3))
        net.step, began = step, clock()
        with run.step(step=step):
            with run.phase("data"):
                images, classes = made.batch(rows, healthy == "curriculum" and step < config["curriculum_step"])
                images, classes = spoil(images, classes, made, trouble, healthy, config, step)
                trouble.delay(step, 0.014)
                if healthy == "loader_hiccups" and step in (60, 117, 190):
                    pause(0.1)
                watch.observe((images.flatten(1), classes[:, None]), step=step, epoch=made.epoch)
            logits = net(images)
            loss = trouble.loss(step, functional.cross_entropy(logits, classes))
            if trouble.clears(step):
                net.zero_grad()
                made.optimizer.zero_grad()
            loss.backward()
            trouble.gradients(step, net, net.stages[2])
            norm = nn.utils.clip_grad_norm_(net.parameters(), config["clip"] or math.inf)
            made.optimizer.step()
            trouble.leak(step)
            trouble.work(step, began)
        hits = (logits.argmax(1) == classes).float().mean()
        run.log({"loss": loss, "acc": hits, "lr": rate, "grad_norm": norm, "epoch": made.epoch}, step=step)
        trouble.telemetry(run, step, healthy)
        if healthy == "checkpoint_stalls" and step % 40 == 39:
            pause(0.15)
        if healthy == "evaluation_pauses" and step % EVERY == 0:
            pause(0.1)
        if step % EVERY == 0 or step == steps - 1:
            evaluate(run, net, made.test, trouble, step)
    return run


def spoil(
    images: Tensor,
    classes: Tensor,
    made: Training,
    trouble: Trouble,
    healthy: str | None,
    config: dict[str, Any],
    step: int,
) -> tuple[Tensor, Tensor]:
    """What happens to a batch before the network has it."""
    if trouble.on("validation_leak", step):
        half = len(images) // 4
        chosen = torch.randint(0, len(made.test[0]), (len(images) - half,), generator=trouble.dice)
        images, classes = (
            torch.cat([images[:half], made.test[0][chosen]]),
            torch.cat([classes[:half], made.test[1][chosen]]),
        )
    if healthy == "small_spike" and step in config["odd_batches"]:
        images = images + 0.35 * torch.randn(images.shape, generator=trouble.dice)
    return trouble.batch(step, images, classes, CLASSES)


def restart(run: Any, made: Training, config: dict[str, Any], step: int, trouble: Trouble) -> Any:
    """A checkpoint, an end, and a beginning from the checkpoint."""
    run, state = go_on(run, step, {"net": made.net.state_dict(), "sgd": made.optimizer.state_dict()})
    made.net.load_state_dict(state["net"])
    made.optimizer = sgd(made.net, config)
    if trouble.name != "optimizer_state_lost":
        made.optimizer.load_state_dict(state["sgd"])
    return run


def evaluate(run: Any, net: Network, test: tuple[Tensor, Tensor], trouble: Trouble, step: int) -> None:
    net.train(trouble.on("training_mode_in_evaluation", step))
    with torch.no_grad():
        logits = torch.cat([net(images) for images in test[0].split(50)])
    net.train(not trouble.on("evaluation_mode_left_on", step))
    loss = functional.cross_entropy(logits, test[1])
    run.log({"val_loss": loss, "val_acc": (logits.argmax(1) == test[1]).float().mean()}, step=step)
