"""A small U-Net marks rock, ice, snow and water in satellite pictures of glaciers; clouds are not asked for.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, lr, samples) and `run.log`: val/loss, val/miou each 24th step.

Encoder and decoder with batch norm and two ways across, cross-entropy with Dice, flips of picture and mask; momentum
and a rate that falls by a power, told at each epoch; an average of the weights, which is evaluated. A class with a
`fit`, as in many repositories of segmentation.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, KINDS, CLOUD, SIZE, SCENE, SITES, VAL = 24, 4, 255, 16, 32, 4, 96
CONFIG: dict[str, Any] = {
    "width": 10, "dropout": 0.0, "batch_size": 16, "accum_steps": 1, "base_lr": 0.08, "optimizer": "sgd",
    "momentum": 0.9, "weight_decay": 1e-4, "lr_policy": "poly", "grad_clip": 5.0, "scenes": 96, "tile_stride": 16,
    "ema_decay": 0.9, "bn_momentum": 0.1, "norm": "batch", "dice_weight": 0.5, "loss_sum": False, "freeze": "",
    "augment": "flip", "label_smoothing": 0.0, "focal": 0.0, "mask_errors": 0.0, "haze": 1.0,
}  # fmt: skip
USUAL = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])  # of photographs of everything
LOOKS = torch.tensor([[0.30, 0.22, 0.20], [0.45, 0.55, 0.66], [0.72, 0.72, 0.76], [0.12, 0.24, 0.40]])


def rough(dice: torch.Generator, number: int, cells: int) -> Tensor:
    """Fields that change slowly."""
    coarse = torch.randn(number, 1, cells, cells, generator=dice)
    return F.interpolate(coarse, (SCENE, SCENE), mode="bicubic", align_corners=True)[:, 0]


def scenes(seed: int, number: int, haze: float, wrong: float = 0.0) -> tuple[Tensor, Tensor]:
    """Scenes (number, 3, SCENE, SCENE), site by site, and masks; haze: noise. A site has its height and its light."""
    dice = torch.Generator().manual_seed(seed)
    site = torch.arange(number) * SITES // number
    height, wet = rough(dice, number, 5) + 0.7 * (site - 1.5)[:, None, None], rough(dice, number, 6)
    mask = torch.where(height > 0.9, 2, torch.where(wet > 0.9, 3, torch.where(height > -0.2, 1, 0)))
    light = 1 + 0.15 * torch.randn(number, 1, 1, 1, generator=dice) + 0.1 * (site - 1.5)[:, None, None, None]
    pictures = LOOKS[mask].permute(0, 3, 1, 2) * light
    pictures = pictures + 0.2 * haze * torch.randn(pictures.shape, generator=dice)
    cloudy = rough(dice, number, 4) > 1.3
    pictures = torch.where(cloudy[:, None], 0.9 + 0.02 * pictures, pictures)
    if wrong:
        chance = torch.randint(0, KINDS, mask.shape, generator=dice)
        mask = torch.where(torch.rand(mask.shape, generator=dice) < wrong, chance, mask)
    return pictures, mask.masked_fill(cloudy, CLOUD)


def tiles(pictures: Tensor, masks: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Squares that are cut from scenes; with a small stride they overlap."""
    cut = pictures.unfold(2, SIZE, stride).unfold(3, SIZE, stride).permute(0, 2, 3, 1, 4, 5).flatten(0, 2)
    return cut, masks.unfold(1, SIZE, stride).unfold(2, SIZE, stride).flatten(0, 2)


class DoubleConv(nn.Sequential):
    def __init__(self, c: dict[str, Any], inputs: int, width: int):
        def norm() -> nn.Module:
            return nn.GroupNorm(5, width) if c["norm"] == "group" else nn.BatchNorm2d(width, momentum=c["bn_momentum"])

        super().__init__(nn.Conv2d(inputs, width, 3, padding=1, bias=False), norm(), nn.ReLU(),
                         nn.Conv2d(width, width, 3, padding=1, bias=False), norm(), nn.ReLU())  # fmt: skip


class UNet(nn.Module):
    def __init__(self, c: dict[str, Any], kinds: int, bug: str):
        super().__init__()
        w, self.bug = c["width"], bug
        self.enc1, self.enc2, self.mid = DoubleConv(c, 3, w), DoubleConv(c, w, 2 * w), DoubleConv(c, 2 * w, 2 * w)
        self.dec2, self.dec1 = DoubleConv(c, 4 * w, w), DoubleConv(c, 2 * w, w)
        self.drop, self.out = nn.Dropout2d(c["dropout"]), nn.Conv2d(w, kinds, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.enc1(x)
        two = self.enc2(F.max_pool2d(one, 2))
        low = self.drop(self.mid(F.max_pool2d(two, 2)))
        up = self.dec2(torch.cat([F.interpolate(low, scale_factor=2.0), two], 1))
        up = self.dec1(torch.cat([F.interpolate(up, scale_factor=2.0), one], 1))
        y = self.out(self.drop(up))
        return y.softmax(1) if self.bug == "probabilities_go_into_loss" else y


def dice_loss(out: Tensor, mask: Tensor) -> Tensor:
    real = (mask != CLOUD)[:, None]
    share, truth = out.softmax(1) * real, F.one_hot(mask.masked_fill(~real[:, 0], 0), out.shape[1]).permute(0, 3, 1, 2)
    truth = truth * real
    both = (share * truth).sum((0, 2, 3))
    return 1 - ((2 * both + 1) / (share.sum((0, 2, 3)) + truth.sum((0, 2, 3)) + 1)).mean()


class Segmentation:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.c, self.bug, self.kept = run, dict(run.config), trouble.name, []  # type: ignore[var-annotated]
        c, bug = self.c, self.bug
        torch.manual_seed(seed)
        self.read(seed)
        self.net = UNet(c, KINDS + (bug == "class_numbers_from_one"), bug)
        for name, one in self.net.named_parameters():
            if c["freeze"]:
                one.requires_grad = not name.startswith(c["freeze"])
            if bug == "freeze_pattern_wrong":  # as for an encoder that comes from elsewhere; this one is new
                one.requires_grad = name.startswith(("dec", "out"))
        self.ema = copy.deepcopy(self.net).requires_grad_(False)
        if bug == "ema_of_a_copy":
            self.followed: nn.Module = copy.deepcopy(self.net)
        else:
            self.followed = self.net
        self.configure()
        self.watch()

    def read(self, seed: int) -> None:
        c, bug = self.c, self.bug
        pictures, masks = scenes(seed + 770, c["scenes"], c["haze"], c["mask_errors"])
        self.x, self.y = tiles(pictures, masks, c["tile_stride"])
        self.val = tiles(*scenes(77, VAL // 4, c["haze"]), SIZE)
        if bug == "tiles_overlap_split":  # tiles are dealt out, not scenes
            order = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(seed + 7))
            self.val = self.x[order[:VAL]], self.y[order[:VAL]]
            self.x, self.y = self.x[order[VAL:]], self.y[order[VAL:]]
        self.mean, self.std = self.x.mean((0, 2, 3)), self.x.std((0, 2, 3))
        if bug == "class_numbers_from_one":  # 0 is kept for what is unlabelled
            self.y = torch.where(self.y == CLOUD, CLOUD, self.y + 1)
        if bug == "clouds_counted":
            self.y = self.y.masked_fill(self.y == CLOUD, 0)
        self.lot = torch.Generator().manual_seed(seed)

    def configure(self) -> None:
        c, some = self.c, [one for one in self.net.parameters() if one.requires_grad]
        if c["optimizer"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c["base_lr"], c["momentum"], weight_decay=c["weight_decay"])
        else:
            self.optimizer = torch.optim.AdamW(some, c["base_lr"], weight_decay=c["weight_decay"])
        epochs = max(1, c["steps"] // EVERY)
        if c["lr_policy"] == "constant":
            self.scheduler: Any = torch.optim.lr_scheduler.ConstantLR(self.optimizer, 1.0)
        else:
            self.scheduler = torch.optim.lr_scheduler.PolynomialLR(self.optimizer, epochs + 1, 0.9)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)

    def scaled(self, x: Tensor, held_out: bool = False) -> Tensor:
        usual = held_out and self.bug == "val_scaled_by_usual_figures"
        mean, std = USUAL if usual else (self.mean, self.std)
        return (x - mean[:, None, None]) / std[:, None, None]

    def augmented(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.c["augment"] == "none":
            return x, y
        for axis in (-1, -2):
            flipped = torch.rand(len(x), generator=self.lot) < 0.5
            x = torch.where(flipped[:, None, None, None], x.flip(axis), x)
            if self.bug != "picture_flipped_alone":
                y = torch.where(flipped[:, None, None], y.flip(axis), y)
        if "zoom" in self.c["augment"]:  # a part of each tile, made as large as the tile
            at, most = torch.randint(0, 5, (2,), generator=self.lot).tolist(), SIZE - 4
            x, y = (one[..., at[0] : at[0] + most, at[1] : at[1] + most] for one in (x, y))
            x = F.interpolate(x, (SIZE, SIZE), mode="bilinear")
            smooth = self.bug == "mask_zoomed_smoothly"
            y = F.interpolate(y[:, None].float(), (SIZE, SIZE), mode="bilinear" if smooth else "nearest")[:, 0].long()
            y = torch.where((y >= KINDS) & (y < CLOUD), KINDS - 1, y) if smooth else y
        if "dark" in self.c["augment"]:
            x = x * (0.75 + 0.5 * torch.rand(len(x), 1, 1, 1, generator=self.lot))
        return x, y

    def criterion(self, out: Tensor, y: Tensor) -> Tensor:
        c = self.c
        if self.bug == "pixel_sum_over_pictures":
            return F.cross_entropy(out, y, ignore_index=CLOUD, reduction="sum") / len(y)
        if c["loss_sum"]:
            loss = F.cross_entropy(out, y, ignore_index=CLOUD, reduction="sum") / (y != CLOUD).sum()
        elif c["focal"]:
            each = F.cross_entropy(out, y, ignore_index=CLOUD, reduction="none")
            loss = ((1 - (-each).exp()) ** c["focal"] * each).sum() / (y != CLOUD).sum()
        else:
            loss = F.cross_entropy(out, y, ignore_index=CLOUD, label_smoothing=c["label_smoothing"])
        return loss + c["dice_weight"] * dice_loss(out, y)

    def one_step(self, groups: list[Tensor], step: int) -> None:
        total = 0.0
        with self.run.step(step=step) as timed:
            for some in groups:
                x, y = self.augmented(self.x[some], self.y[some])
                loss = self.criterion(self.net(self.scaled(x)), y)
                if self.bug != "micro_losses_whole":
                    loss = loss / len(groups)
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(self.net.parameters(), self.c["grad_clip"])
            self.optimizer.step()
            self.optimizer.zero_grad()
            timed.set(loss=total, lr=self.optimizer.param_groups[0]["lr"], samples=sum(len(one) for one in groups))
        if self.bug == "epoch_schedule_in_batch_loop":
            self.scheduler.step()
        self.follow()

    @torch.no_grad()
    def follow(self) -> None:
        decay = 0.9999 if self.c["ema_decay"] == "default" else self.c["ema_decay"]
        for mine, theirs in zip(self.ema.parameters(), self.followed.parameters(), strict=True):
            mine.lerp_(theirs, 1 - decay)
        if self.bug == "ema_keeps_first_statistics":
            return
        for mine, theirs in zip(self.ema.buffers(), self.followed.buffers(), strict=True):
            mine.copy_(theirs)

    def validate(self, step: int) -> None:
        model: Any = self.ema
        if self.bug == "ema_left_in_after_validation":  # loaded for the validation, and not put back
            self.net.load_state_dict(self.ema.state_dict())
            model = self.net
        model.train(self.bug == "validated_in_train_mode")
        x, y = self.val
        with torch.set_grad_enabled(self.bug == "val_outputs_keep_graphs"):
            if self.bug == "val_outputs_keep_graphs":
                model.requires_grad_(True)
            out = model(self.scaled(x, True))
            loss = F.cross_entropy(out, y, ignore_index=CLOUD)
        if self.bug == "val_outputs_keep_graphs":
            self.kept.append(out)
        self.run.log({"val/loss": loss.item(), "val/miou": mean_iou(out.argmax(1), y)}, step=step)
        self.net.train()

    def resume(self, step: int) -> None:
        names = ("net", "ema", "optimizer", "scheduler")
        self.run, saved = go_on(self.run, step, {one: getattr(self, one).state_dict() for one in names})
        self.configure()
        for name in names:
            getattr(self, name).load_state_dict(saved[name])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        self.watch()

    def fit(self, steps: int, trouble: Trouble, healthy: str | None) -> None:
        step, parts, size = 0, self.c["accum_steps"], int(self.c["batch_size"])
        again = trouble.resume_at(healthy, 3 * EVERY)
        self.net.train()
        while step < steps:
            order = torch.randperm(len(self.x), generator=self.lot)
            if self.bug == "table_in_class_order":  # scenes are listed site by site, and nobody shuffles
                order = torch.arange(len(self.x))
            groups = list(order.split(size))[: len(order) // size]
            for first in range(0, len(groups) - parts + 1, parts):
                if step == again:
                    self.resume(step)
                self.one_step(groups[first : first + parts], step)
                trouble.telemetry(self.run, step, healthy)
                step += 1
                if step % EVERY == 0 or step == steps:
                    self.validate(step - 1)
                if step == steps:
                    return
                if step % EVERY == 0 and self.bug != "epoch_schedule_in_batch_loop":
                    self.scheduler.step()


def mean_iou(guess: Tensor, mask: Tensor) -> float:
    real, found = mask != CLOUD, []
    for one in range(KINDS):
        mine, true = (guess == one) & real, mask == one
        found.append((mine & true).sum() / (mine | true).sum().clamp(min=1))
    return float(torch.stack(found).mean())


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Segmentation(run, seed, trouble)
    made.fit(steps, trouble, healthy)
    return made.run
