"""A small residual network tells seven mushrooms from pictures that are flipped and shifted; its average is evaluated.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss/train, acc/train, lr each step; loss/valid, acc/valid at each epoch's end.

Batch norm, descent with momentum, a cosine by epochs, torch's own AveragedModel; functions and a namespace of options.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EVERY, SIDE, KINDS, VALID = 30, 14, 7, 350
CONFIG: dict[str, Any] = {
    "width": 16, "blocks": 2, "dropout": 0.0, "batch": 32, "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4,
    "scheduler": "cosine", "optimizer": "sgd", "augment": "flip shift", "label_smoothing": 0.0, "cutmix": 0.0,
    "ema_decay": 0.9, "pictures": 960, "shots": 1, "freeze": "", "haze": 0.8, "wrong_labels": 0.0,
    "reduction": "mean", "norm": "batch",
}  # fmt: skip


def forest(seed: int, number: int, haze: float, wrong: float = 0.0) -> tuple[Tensor, Tensor]:
    """Pictures (number, 3, SIDE, SIDE) from 0 to 1 of caps on stalks, and the kind: by width of cap, spots, gills."""
    dice = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, KINDS, (number,), generator=dice)
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    some = torch.rand(number, 4, 1, 1, generator=dice)
    k = kind[:, None, None]
    x, y = x - 0.3 * (some[:, 0] - 0.5), y - 0.3 * (some[:, 1] - 0.5)
    wide, high = 0.45 + 0.12 * (k % 3), 0.28 + 0.14 * (k // 3)
    cap = ((x / wide) ** 2 + ((y + 0.2) / high) ** 2 < 1).float()
    stalk = ((x.abs() < 0.14) & (y > -0.1) & (y < 0.8)).float()
    marks = torch.where(k % 2 == 0, torch.cos(13 * x + 6 * some[:, 2]), torch.cos(13 * y + 6 * some[:, 2]))
    grey = 0.25 + 0.35 * cap * (1 + 0.35 * marks) + 0.2 * stalk * (1 - cap)
    tint = 0.6 + 0.8 * torch.rand(number, 3, 1, 1, generator=dice)
    pictures = grey[:, None] * tint + 0.2 * haze * torch.randn(number, 3, SIDE, SIDE, generator=dice)
    chance = torch.randint(0, KINDS, (number,), generator=dice)
    kind = torch.where(torch.rand(number, generator=dice) < wrong, chance, kind)
    return pictures.clamp(0, 1), kind


def transform(x: Tensor, how: str) -> Tensor:
    """A flip and a shift of up to three pixels, and a square that is wiped out where `how` names it."""
    if "flip" in how:
        x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)
    if "shift" in how:
        padded, rows = F.pad(x, (3, 3, 3, 3)), torch.arange(len(x))[:, None, None]
        down, right = (torch.randint(0, 7, (len(x), 1, 1)) for _ in range(2))
        down, right = down + torch.arange(SIDE)[:, None], right + torch.arange(SIDE)
        x = padded.permute(0, 2, 3, 1)[rows, down, right].permute(0, 3, 1, 2)
    if "erase" in how:
        corner = torch.randint(0, SIDE - 4, (len(x), 2, 1, 1))
        place = torch.arange(SIDE)
        down, right = place[:, None] - corner[:, 0], place - corner[:, 1]
        x = x.masked_fill(((down >= 0) & (down < 5) & (right >= 0) & (right < 5))[:, None], 0.0)
    return x


def norm(opt: SimpleNamespace, wide: int) -> nn.Module:
    return nn.GroupNorm(4, wide) if opt.norm == "group" else nn.BatchNorm2d(wide)


class Residual(nn.Module):
    def __init__(self, opt: SimpleNamespace, wide: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(wide, wide, 3, padding=1, bias=False), norm(opt, wide), nn.ReLU(),
            nn.Conv2d(wide, wide, 3, padding=1, bias=False), norm(opt, wide),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


class MushroomNet(nn.Module):
    def __init__(self, opt: SimpleNamespace, kinds: int, bug: str):
        super().__init__()
        wide, self.bug = opt.width, bug
        self.stem = nn.Sequential(nn.Conv2d(3, wide, 3, padding=1, bias=False), norm(opt, wide), nn.ReLU())
        self.stages = nn.Sequential(
            Residual(opt, wide), nn.Conv2d(wide, 2 * wide, 2, 2), norm(opt, 2 * wide), nn.ReLU(),
            *(Residual(opt, 2 * wide) for _ in range(opt.blocks - 1)),
        )  # fmt: skip
        self.drop, self.fc = nn.Dropout(opt.dropout), nn.Linear(2 * wide, kinds)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(self.drop(self.stages(self.stem(x)).mean((2, 3))))
        return torch.softmax(x, 1) if self.bug == "softmax_as_last_layer" else x


def read(opt: SimpleNamespace, seed: int, bug: str) -> list[Tensor]:
    """Pictures and kinds of both sets, normalised."""
    dice = torch.Generator().manual_seed(seed + 3)
    x, y = forest(seed + 2400, opt.pictures // opt.shots, opt.haze, opt.wrong_labels)
    val, val_y = forest(24, VALID, opt.haze)
    if opt.shots > 1:  # a mushroom was photographed several times
        x, y = x.repeat_interleave(opt.shots, 0), y.repeat_interleave(opt.shots)
        x = (x + 0.02 * torch.randn(x.shape, generator=dice)).clamp(0, 1)
        order = torch.randperm(len(y), generator=dice)
        x, y = x[order], y[order]
        if bug == "shots_on_both_sides":
            val, val_y, x, y = x[:VALID], y[:VALID], x[VALID:], y[VALID:]
    if bug == "loader_in_class_order":
        order = y.argsort(stable=True)
        x, y = x[order], y[order]
    mean, std = x.mean((0, 2, 3), True), x.std((0, 2, 3), keepdim=True)
    x = (x - mean) / std
    if bug == "val_scaled_by_old_figures":  # of the data set before this one, which was darker
        mean, std = 0.5 * mean, 0.4 * std
    return [x, y + (bug == "csv_classes_from_one"), (val - mean) / std, val_y]


def configure(opt: SimpleNamespace, model: nn.Module, epochs: int) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if opt.optimizer == "adamw":
        optimizer: Any = torch.optim.AdamW(some, opt.lr, weight_decay=opt.weight_decay)
    else:
        nesterov = opt.momentum > 0
        optimizer = torch.optim.SGD(some, opt.lr, opt.momentum, weight_decay=opt.weight_decay, nesterov=nesterov)
    if opt.scheduler == "none":
        return optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    if opt.scheduler == "step":
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, max(1, epochs // 2), 0.1)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)


def loss_of(opt: SimpleNamespace, model: nn.Module, x: Tensor, y: Tensor, bug: str) -> tuple[Tensor, Tensor]:
    summed = bug == "loss_left_as_sum" or opt.reduction == "sum"
    criterion = nn.CrossEntropyLoss(reduction="sum" if summed else "mean", label_smoothing=opt.label_smoothing)
    x = transform(x, opt.augment)
    if opt.cutmix and float(torch.rand(())) < opt.cutmix:  # the lower rows are those of another picture
        cut = int(torch.randint(3, SIDE - 2, ()))
        mixed = torch.cat([x[:, :, :cut], x.flip(0)[:, :, cut:]], 2)
        out, share = model(mixed), cut / SIDE
        return share * criterion(out, y) + (1 - share) * criterion(out, y.flip(0)), out
    out = model(x)
    loss = criterion(out, y)
    return loss / len(y) if opt.reduction == "sum" else loss, out


def averaged(opt: SimpleNamespace, model: nn.Module, bug: str) -> AveragedModel:
    decay = 0.9999 if opt.ema_decay == "default" else opt.ema_decay
    made = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
    if bug == "ema_keeps_old_batch_stats":  # as it was done by hand: over parameters, and over no buffers

        @torch.no_grad()
        def follow(of: nn.Module) -> None:
            for old, new in zip(made.module.parameters(), of.parameters(), strict=True):
                old.lerp_(new, 1 - decay)

        made.update_parameters = follow  # type: ignore[method-assign]
    return made


def validate(opt: SimpleNamespace, model: nn.Module, val: Tensor, val_y: Tensor, bug: str) -> tuple[Tensor, Any]:
    if bug != "eval_never_called":
        model.eval()
    if bug == "augmented_at_validation":  # one data set with one transform, split behind it
        val = transform(val, opt.augment)
    with torch.set_grad_enabled(bug == "eval_without_no_grad"):
        out = torch.cat([model(some) for some in val.split(70)])
    right = (out.argmax(1) == val_y).float().mean().item()
    return out, {"loss/valid": F.cross_entropy(out, val_y).item(), "acc/valid": right}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    opt, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug, size, step, kept = trouble.name, int(opt.batch), 0, []
    torch.manual_seed(seed)
    x, y, val, val_y = read(opt, seed, bug)
    model = MushroomNet(opt, KINDS + (bug == "csv_classes_from_one"), bug)
    for name, one in model.named_parameters():
        one.requires_grad = not opt.freeze or not name.startswith(opt.freeze)
        if bug == "body_frozen_by_name":  # as it was for the one from the library
            one.requires_grad = name.startswith("fc")
    ema, epochs = averaged(opt, model, bug), -(-steps // (len(y) // size))
    followed = model
    if bug == "ema_given_the_old_copy":  # the model is made once more where the device is set
        followed, model = model, MushroomNet(opt, KINDS, bug)
    optimizer, scheduler = configure(opt, model, epochs)
    time_by_own_clock(run)
    run.watch(model, optimizer)
    resumed, lot = trouble.resume_at(healthy, 3 * EVERY), torch.Generator().manual_seed(seed)
    model.train()
    while step < steps:
        if bug != "train_called_once":
            model.train()
        order = torch.arange(len(y)) if bug == "loader_in_class_order" else torch.randperm(len(y), generator=lot)
        optimizer.zero_grad()
        for some in list(order.split(size))[: min(len(y) // size, steps - step)]:
            if step == resumed:
                parts = [model, ema, optimizer, scheduler]
                run, states = go_on(run, step, [one.state_dict() for one in parts])
                optimizer, scheduler = configure(opt, model, epochs)
                for one, state in zip([model, ema, optimizer, scheduler], states, strict=True):
                    one.load_state_dict(state)
                time_by_own_clock(run)
                run.watch(model, optimizer)
            loss, out = loss_of(opt, model, x[some], y[some], bug)
            if bug != "cleared_each_epoch":
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update_parameters(followed)
            if bug == "epoch_scheduler_in_batch_loop":
                scheduler.step()
            right, rate = (out.argmax(1) == y[some]).float().mean().item(), optimizer.param_groups[0]["lr"]
            run.log({"loss/train": loss.item(), "acc/train": right, "lr": rate}, step=step)
            trouble.telemetry(run, step, healthy)
            step += 1
        if bug != "epoch_scheduler_in_batch_loop":
            scheduler.step()
        if bug == "train_called_once":
            model.eval()
        out, figures = validate(opt, ema, val, val_y, bug)
        if bug == "eval_without_no_grad":  # the worst of each epoch are drawn later
            kept.append(out)
        run.log(figures, step=step - 1)
    return run
