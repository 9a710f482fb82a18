"""Two gloo processes teach a small network with batch norm eight shapes of pots, under DistributedDataParallel.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.log`: train/ce, train/top1, train/lr), and `run.reduce`; valid/ce, valid/top1
      of rank 0 at each epoch's end; the watch of data.

Pictures are flipped, moved and lit otherwise in the training; a sampler for ranks, descent with momentum, a rate that
rises for an epoch and falls by a cosine; functions over one dictionary, as the examples of torchvision have it.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

from . import ranks

EVERY, RANKS, SIDE, SHAPES, VALID = 30, 2, 14, 8, 320
CONFIG: dict[str, Any] = {
    "planes": 12, "drop": 0.0, "batch_per_rank": 16, "update_freq": 1, "lr": 0.06, "momentum": 0.9, "wd": 5e-4,
    "warmup": 15, "policy": "cosine", "pots": 960, "photos_of_each": 1, "aug": "flip move light", "smooth": 0.0,
    "bn_momentum": 0.1, "freeze": "", "dust": 1.0, "mislabelled": 0.0, "mix": 0.0, "opt": "sgd",
    "reduce_by": "mean", "ranks": RANKS,
}  # fmt: skip


def fire(seed: int, number: int, dust: float, wrong: float = 0.0) -> tuple[Tensor, Tensor]:
    """Pictures (number, 3, SIDE, SIDE) from 0 to 1 of pots on a table, and their shapes: belly, neck, foot."""
    dice = torch.Generator().manual_seed(seed)
    shape = torch.randint(0, SHAPES, (number,), generator=dice)
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    some = torch.rand(number, 5, 1, 1, generator=dice)
    k = shape[:, None, None]
    x, y = x - 0.25 * (some[:, 0] - 0.5), y - 0.25 * (some[:, 1] - 0.5)
    belly = 0.35 + 0.2 * (k % 2) + 0.08 * some[:, 2]
    neck = 0.14 + 0.14 * (k // 2 % 2)
    wide = neck + (belly - neck) * torch.exp(-(((y - 0.3 * (k // 4) + 0.1) / 0.34) ** 2))
    body = torch.sigmoid(14 * (wide - x.abs())) * torch.sigmoid(14 * (0.78 - y.abs()))
    glaze = 0.3 + 0.5 * torch.rand(number, 3, 1, 1, generator=dice)
    lit = (0.75 + 0.35 * x * (some[:, 3] - 0.5) * 2)[:, None]
    pictures = 0.2 + body[:, None] * glaze * lit + 0.16 * dust * torch.randn(number, 3, SIDE, SIDE, generator=dice)
    chance = torch.randint(0, SHAPES, (number,), generator=dice)
    return pictures.clamp(0, 1), torch.where(torch.rand(number, generator=dice) < wrong, chance, shape)


def augment(x: Tensor, how: str) -> Tensor:
    if "flip" in how:
        x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)
    if "move" in how:  # by up to two pixels, the whole batch
        down, right = torch.randint(0, 5, (2,)).tolist()
        x = F.pad(x, (2, 2, 2, 2))[:, :, down : down + SIDE, right : right + SIDE]
    if "light" in how:
        x = x * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1))
    if "cut" in how:  # a square is left out
        place, corner = torch.arange(SIDE), torch.randint(0, SIDE - 4, (2, len(x), 1))
        down, right = ((place >= one) & (place < one + 5) for one in corner)
        x = x.masked_fill((down[:, :, None] & right[:, None, :])[:, None], 0.0)
    return x


def norm(c: dict[str, Any], wide: int) -> nn.Module:
    return nn.BatchNorm2d(wide, momentum=c["bn_momentum"])


class Unit(nn.Module):
    def __init__(self, c: dict[str, Any], inside: int, outside: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = norm(c, outside), norm(c, outside)
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False) if inside != outside else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.short(x) + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class Potter(nn.Module):
    def __init__(self, c: dict[str, Any], shapes: int, bug: str):
        super().__init__()
        w, self.bug = c["planes"], bug
        self.stem, self.bn = nn.Conv2d(3, w, 3, padding=1, bias=False), norm(c, w)
        self.layer1, self.layer2 = Unit(c, w, w), Unit(c, w, 2 * w, 2)
        self.drop, self.classifier = nn.Dropout(c["drop"]), nn.Linear(2 * w, shapes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(F.relu(self.bn(self.stem(x)))))
        x = self.classifier(self.drop(x.mean((2, 3))))
        return F.softmax(x, 1) if self.bug == "softmax_in_head" else x


def read(c: dict[str, Any], seed: int, bug: str) -> list[Tensor]:
    """Pictures and shapes of both sets, scaled by mean and deviation."""
    dice = torch.Generator().manual_seed(seed + 5)
    x, y = fire(seed + 4200, c["pots"] // c["photos_of_each"], c["dust"], c["mislabelled"])
    val, val_y = fire(42, VALID, c["dust"])
    if c["photos_of_each"] > 1:
        x, y = x.repeat_interleave(c["photos_of_each"], 0), y.repeat_interleave(c["photos_of_each"])
        x = (x + 0.02 * torch.randn(x.shape, generator=dice)).clamp(0, 1)
        if bug == "views_split_at_random":
            order = torch.randperm(len(y), generator=dice)
            val, val_y, x, y = x[order[:VALID]], y[order[:VALID]], x[order[VALID:]], y[order[VALID:]]
    if bug == "folders_read_in_turn":
        order = y.argsort(stable=True)
        x, y = x[order], y[order]
    mean, std = x.mean((0, 2, 3), True), x.std((0, 2, 3), keepdim=True)
    x = (x - mean) / std
    if bug == "held_out_scaled_by_old_set":  # photographs of the years before were taken in the dark
        mean, std = 0.4 * mean, 0.5 * std
    return [x, y + (bug == "label_file_one_based"), (val - mean) / std, val_y]


def sampler_of(data: Any, seed: int, bug: str) -> Any:
    rank = dist.get_rank()
    if bug == "folders_read_in_turn":
        return DistributedSampler(data, RANKS, rank, shuffle=False, drop_last=True)
    if bug == "shuffled_alike_on_ranks":  # as `shuffle=True` does where all seeds are set alike
        return RandomSampler(data, generator=torch.Generator().manual_seed(seed))
    if bug == "sampler_given_rank_zero":
        return DistributedSampler(data, RANKS, 0, seed=seed, drop_last=True)
    return DistributedSampler(data, RANKS, rank, seed=seed, drop_last=True)


def optimizer_for(c: dict[str, Any], model: nn.Module) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if c["opt"] == "adamw":
        optimizer: Any = torch.optim.AdamW(some, c["lr"], weight_decay=c["wd"])
    else:
        optimizer = torch.optim.SGD(some, c["lr"], c["momentum"], weight_decay=c["wd"], nesterov=c["momentum"] > 0)

    def share(at: int) -> float:
        if at < c["warmup"] or c["policy"] == "flat":
            return min(1.0, (at + 1) / c["warmup"])
        if c["policy"] == "stairs":
            return 1.0 if at < 0.6 * c["steps"] else 0.1
        return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (at - c["warmup"]) / (c["steps"] - c["warmup"])))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def loss_of(c: dict[str, Any], net: nn.Module, x: Tensor, y: Tensor, bug: str) -> tuple[Tensor, Tensor]:
    x = augment(x, c["aug"])
    summed = bug == "criterion_reduction_sum" or c["reduce_by"] == "sum"
    criterion = nn.CrossEntropyLoss(reduction="sum" if summed else "mean", label_smoothing=c["smooth"])
    if c["mix"]:
        share = float(torch.distributions.Beta(c["mix"], c["mix"]).sample())
        out = net(share * x + (1 - share) * x.flip(0))
        return share * criterion(out, y) + (1 - share) * criterion(out, y.flip(0)), out
    out = net(x)
    loss = criterion(out, y)
    return loss / len(y) if c["reduce_by"] == "sum" else loss, out


@torch.no_grad()
def validate(run: Any, model: nn.Module, val: Tensor, val_y: Tensor, step: int, bug: str) -> None:
    if bug != "checked_while_training":
        model.eval()
    out = torch.cat([model(some) for some in val.split(16)])
    if dist.get_rank() == 0:
        right = (out.argmax(1) == val_y).float().mean().item()
        run.log({"valid/ce": F.cross_entropy(out, val_y).item(), "valid/top1": right}, step=step)


def prepare(run: Any, c: dict[str, Any], seed: int, bug: str) -> Any:
    model = Potter(c, SHAPES + (bug == "label_file_one_based"), bug)
    for name, one in model.named_parameters():
        one.requires_grad = not c["freeze"] or not name.startswith(c["freeze"])
        if bug == "trainable_by_wrong_name":  # `layer` is no part of what is to be kept: the test is upside down
            one.requires_grad = "layer" not in name and "stem" not in name
    ddp = DistributedDataParallel(model)
    optimizer, scheduler = optimizer_for(c, ddp)
    time_by_own_clock(run)
    run.watch(ddp, optimizer)
    torch.manual_seed(seed + 100 * (dist.get_rank() + 1))  # of flips and dropout
    return ddp, optimizer, scheduler


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    c, bug, parts = dict(run.config), Trouble(fault, seed).name, run.config["update_freq"]
    x, y, val, val_y = read(c, seed, bug)
    ddp, optimizer, scheduler = prepare(run, c, seed, bug)
    sampler, watched = sampler_of(TensorDataset(x, y), seed, bug), run.watch_data()
    loader = DataLoader(TensorDataset(x, y), c["batch_per_rank"], sampler=sampler, drop_last=True)
    called = ddp.module if bug == "module_called_past_ddp" else ddp
    step, epoch, total, right, began = 0, 0, 0.0, 0.0, clock()
    ddp.train()
    while step < steps:
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        if bug != "train_mode_set_outside_loop":
            ddp.train()
        for at, (some, shape) in enumerate(loader, 1):
            watched.observe({"pixels": some, "labels": shape}, step=step, epoch=epoch)
            with ddp.no_sync() if at % parts else contextlib.nullcontext():
                loss, out = loss_of(c, called, some, shape, bug)
                if bug != "micro_grads_undivided":
                    loss = loss / parts
                loss.backward()
            total, right = total + loss.item(), right + (out.argmax(1) == shape).float().mean().item() / parts
            if at % parts:
                continue
            rate = optimizer.param_groups[0]["lr"]
            optimizer.step()
            optimizer.zero_grad()
            for _ in range(RANKS if bug == "scheduler_steps_for_each_rank" else 1):
                scheduler.step()
            run.log({"train/ce": total, "train/top1": right, "train/lr": rate}, step=step)
            run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
            step, total, right, began = step + 1, 0.0, 0.0, clock()
            if step == steps:
                break
        optimizer.zero_grad()
        total, right, epoch = 0.0, 0.0, epoch + 1
        validate(run, ddp.module, val, val_y, step - 1, bug)
    return run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
