"""A small residual network tells five post offices apart by the lines of their cancellations.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, top1, lr each step; val_loss, val_top1, epoch at each epoch's end.

A script as the reference trainings: meters, Nesterov's momentum, a rate in stairs by epochs, loaders with transforms.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler

EVERY, SIDE, OFFICES = 30, 16, 5
CONFIG: dict[str, Any] = {
    "planes": 12, "drop": 0.0, "batch_size": 24, "lr": 0.03, "momentum": 0.9, "wd": 5e-4, "opt": "sgd",
    "milestones": [3, 5], "gamma": 0.2, "letters": 720, "prints": 1, "smoothing": 0.0,
    "cutmix": 0.0, "model_ema": 0.0, "freeze": "", "ink_noise": 1.6, "reduction": "mean",
}  # fmt: skip


def cancel(seed: int, letters: int, noise: float) -> tuple[Tensor, Tensor]:
    """Grey pictures 0 to 1 (letters, 1, SIDE, SIDE) of lines at the office's angle in a ring; the offices."""
    rng = torch.Generator().manual_seed(seed)
    office = torch.randint(0, OFFICES, (letters,), generator=rng)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    r = torch.rand(letters, 3, 1, 1, generator=rng)
    angle = (office[:, None, None] + 0.5 * (r[:, 0] - 0.5)) * torch.pi / OFFICES
    ring = (xx.square() + yy.square() < 0.6 + 0.3 * r[:, 2]).float()
    made = ring * torch.cos(7 * (xx * angle.cos() + yy * angle.sin()) + 6.28 * r[:, 1])
    made += noise * torch.randn(letters, SIDE, SIDE, generator=rng)
    return (0.5 + 0.15 * made).clamp(0, 1)[:, None], office


class Letters(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, *given: Any):
        self.pictures, self.offices, self.transform = given

    def __len__(self) -> int:
        return len(self.offices)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        return self.transform(self.pictures[at]), self.offices[at]


class BasicBlock(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.bn2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + self.shortcut(x)).relu()


class PostNet(nn.Module):
    def __init__(self, args: dict[str, Any], classes: int, bug: str):
        super().__init__()
        p, self.bug = args["planes"], bug
        self.conv1, self.bn1 = nn.Conv2d(1, p, 3, 1, 1, bias=False), nn.BatchNorm2d(p)
        self.layer1, self.layer2 = BasicBlock(p, p, 2), BasicBlock(p, 2 * p, 2)
        self.dropout, self.fc = nn.Dropout(args["drop"]), nn.Linear(2 * p, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(self.bn1(self.conv1(x)).relu()))
        x = self.fc(self.dropout(x.mean((2, 3))))
        x = x.relu() if self.bug == "relu_on_logits" else x
        return nn.functional.softmax(x, dim=-1) if self.bug == "probabilities_returned" else x


class AverageMeter:
    sum: Any = 0.0
    count = 0

    def update(self, value: Any, n: int) -> None:
        self.sum, self.count = self.sum + value * n, self.count + n


def get_loaders(args: dict[str, Any], seed: int, bug: str) -> tuple[Any, Any]:
    prints, (val, val_offices) = args["prints"], cancel(12, 240, args["ink_noise"])
    pictures, offices = cancel(seed + 1200, args["letters"] // prints, args["ink_noise"])
    mean, std, dice = pictures.mean(), pictures.std(), torch.Generator().manual_seed(seed)
    if prints > 1:  # every letter was photographed several times
        pictures = pictures.repeat_interleave(prints, 0)
        pictures = (pictures + 0.02 * torch.randn(pictures.shape, generator=dice)).clamp(0, 1)
        offices = offices.repeat_interleave(prints)
        if bug == "augmented_then_split":
            order = torch.randperm(len(offices), generator=dice)
            pictures, offices = pictures[order], offices[order]
            val, val_offices, pictures, offices = pictures[:240], offices[:240], pictures[240:], offices[240:]
    if bug == "stray_folder_counted":  # os.listdir of the training's folder begins with one that is no office
        offices = offices + 1
    if bug == "listed_by_class":
        order = offices.argsort(stable=True)
        pictures, offices = pictures[order], offices[order]

    def train_transform(picture: Tensor) -> Tensor:
        return (picture.roll(torch.randint(-1, 2, (2,), generator=dice).tolist(), (1, 2)) - mean) / std

    def val_transform(picture: Tensor) -> Tensor:
        return picture if bug == "val_left_unnormalised" else (picture - mean) / std

    made = Letters(pictures, offices, train_transform)
    sampler: Any = SequentialSampler(made) if bug == "listed_by_class" else RandomSampler(made, generator=dice)
    train_loader = DataLoader(made, int(args["batch_size"]), sampler=sampler, drop_last=True)
    return train_loader, DataLoader(Letters(val, val_offices, val_transform), 120)


def get_optimizer(args: dict[str, Any], model: nn.Module, run: Any) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    optimizer: Any = torch.optim.SGD(some, args["lr"], args["momentum"], weight_decay=args["wd"], nesterov=True)
    if args["opt"] == "adamw":
        optimizer = torch.optim.AdamW(some, 3e-3, weight_decay=0.01)
    time_by_own_clock(run)
    run.watch(model, optimizer)
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, args["milestones"], args["gamma"])


def mixed(args: dict[str, Any], model: nn.Module, x: Tensor, y: Tensor, criterion: Any) -> tuple[Tensor, Tensor]:
    if not args["cutmix"]:
        return criterion(out := model(x), y), out
    cut = int(torch.randint(1, SIDE // 2, ()))
    out = model(torch.cat([x.roll(1, 0)[..., :cut], x[..., cut:]], -1))
    return (1 - cut / SIDE) * criterion(out, y) + cut / SIDE * criterion(out, y.roll(1)), out


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, args = Trouble(fault, seed), dict(run.config)
    bug, step, epoch, kept = trouble.name, 0, 0, AverageMeter()
    torch.manual_seed(seed)
    train_loader, val_loader = get_loaders(args, seed, bug)
    model = PostNet(args, OFFICES + (bug == "stray_folder_counted"), bug)
    for name, one in model.named_parameters():
        one.requires_grad = not args["freeze"] or not name.startswith(args["freeze"])
        if bug == "frozen_as_if_pretrained":
            one.requires_grad = name.startswith("fc.")
    ema = copy.deepcopy(model).requires_grad_(False) if args["model_ema"] else None

    def update_ema() -> None:
        for old, new in zip(ema.state_dict().values() if ema else (), model.state_dict().values(), strict=False):
            old.copy_(old.lerp(new, 1 - args["model_ema"]) if new.is_floating_point() else new)

    how: Any = "sum" if bug == "criterion_sums" or args["reduction"] == "sum" else "mean"
    ce = nn.CrossEntropyLoss(label_smoothing=args["smoothing"], reduction=how)
    criterion = (lambda out, y: ce(out, y) / len(y)) if args["reduction"] == "sum" else ce
    optimizer, scheduler = get_optimizer(args, model, run)
    resumed = trouble.resume_at(healthy, 3 * EVERY)
    while step < steps:
        if bug != "eval_called_once_for_all" or not step:
            model.train()
        for x, y in itertools.islice(train_loader, steps - step):
            if step == resumed:
                run, states = go_on(run, step, [one.state_dict() for one in (model, optimizer, scheduler)])
                model.load_state_dict(states[0])
                optimizer, scheduler = get_optimizer(args, model, run)
                scheduler.load_state_dict(states[2])
                optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
                if bug != "resume_weights_alone":
                    optimizer.load_state_dict(states[1])
            loss, out = mixed(args, model, x, y, criterion)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            top1, rate = (out.argmax(1) == y).float().mean().item(), optimizer.param_groups[0]["lr"]
            run.log({"loss": loss.item(), "top1": top1, "lr": rate}, step=step)
            if bug == "scheduler_in_batch_loop":
                scheduler.step()
            if bug != "ema_updated_each_epoch":
                update_ema()
            trouble.telemetry(run, step, healthy)
            step += 1
        if bug == "ema_updated_each_epoch":
            update_ema()
        if bug != "scheduler_in_batch_loop":
            scheduler.step()
        with torch.set_grad_enabled(bug == "predictions_hold_graphs"):
            losses, figures = validate(model if ema is None else ema, val_loader)
        kept.update(losses.sum, losses.count)  # for the mean of all epochs at the end
        run.log({**figures, "epoch": epoch}, step=step - 1)
        epoch += 1
    return run


def validate(model: nn.Module, loader: Any) -> tuple[AverageMeter, dict[str, float]]:
    losses, top1 = AverageMeter(), AverageMeter()
    for x, y in loader:
        out = model.eval()(x)
        losses.update(nn.functional.cross_entropy(out, y), len(y))
        top1.update((out.argmax(1) == y).float().mean().item(), len(y))
    return losses, {"val_loss": float(losses.sum) / losses.count, "val_top1": top1.sum / top1.count}
