"""A small vision transformer tells from photographs of tiles which of six workshops painted them.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train_loss, train_acc1, lr each step; val_loss, val_acc1 at each epoch's end.

A script in the manner of image libraries: patches cut by hand, a token for the class, AdamW, a cosine over epochs.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SIZE, WORKSHOPS = 30, 16, 6
CONFIG: dict[str, Any] = {
    "embed_dim": 48, "depth": 2, "num_heads": 4, "patch_size": 4, "drop_rate": 0.0, "batch_size": 32, "base_lr": 3e-3,
    "weight_decay": 0.05, "sched": "cosine", "opt": "adamw", "smoothing": 0.0, "mixup": False, "model_ema_decay": 0.0,
    "train_images": 960, "photos_per_tile": 1, "freeze": "", "grain": 1.1, "loss_reduction": "mean",
}  # fmt: skip


def photograph(seed: int, number: int, grain: float) -> tuple[Tensor, Tensor]:
    """Pictures (number, 3, SIZE, SIZE) from 0 to 1 of waves at an angle in a colour of chance, and who painted them."""
    dice = torch.Generator().manual_seed(seed)
    shop = torch.randint(0, WORKSHOPS, (number,), generator=dice)
    down, across = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    some = torch.rand(number, 3, 1, 1, generator=dice)
    angle = (shop % 3 + 0.3 * (some[:, 0, 0, 0] - 0.5)) * torch.pi / 3
    turns = torch.where(shop < 3, 4.0, 7.0)
    along = down * angle.cos()[:, None, None] + across * angle.sin()[:, None, None]
    wave = torch.cos(turns[:, None, None] * along + 6.28 * some[:, 1])
    colour = 0.4 + 0.6 * torch.rand(number, 3, 1, 1, generator=dice)
    pictures = 0.3 + 0.12 * colour * wave[:, None] + 0.12 * grain * torch.randn(number, 3, SIZE, SIZE, generator=dice)
    return pictures.clamp(0, 1), shop


class EncoderBlock(nn.Module):
    def __init__(self, dim: int, heads: int, drop: float):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(drop), nn.Linear(2 * dim, dim))
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.drop(self.attn(y, y, y, need_weights=False)[0])
        return x + self.drop(self.mlp(self.norm2(x)))


class TileViT(nn.Module):
    def __init__(self, args: dict[str, Any], classes: int, bug: str):
        super().__init__()
        dim, self.patch, self.bug = args["embed_dim"], args["patch_size"], bug
        self.patch_embed = nn.Linear(3 * self.patch**2, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, (SIZE // self.patch) ** 2 + 1, dim))
        blocks = (EncoderBlock(dim, args["num_heads"], args["drop_rate"]) for _ in range(args["depth"]))
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(dim)
        self.head_drop, self.head = nn.Dropout(args["drop_rate"]), nn.Linear(dim, classes)

    def patches(self, x: Tensor) -> Tensor:
        rows, p, side = len(x), self.patch, SIZE // self.patch
        if self.bug == "patches_viewed":
            return x.reshape(rows, side * side, 3 * p * p)
        return x.view(rows, 3, side, p, side, p).permute(0, 2, 4, 1, 3, 5).reshape(rows, side * side, 3 * p * p)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(self.patches(x))
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        x = self.head(self.head_drop(self.norm(self.blocks(x))[:, 0]))
        return F.softmax(x, dim=-1) if self.bug == "softmax_then_loss" else x


def datasets(args: dict[str, Any], seed: int, bug: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pictures and workshops of both sets, normalised."""
    each, dice = args["photos_per_tile"], torch.Generator().manual_seed(seed + 5)
    x, y = photograph(seed + 1300, args["train_images"] // each, args["grain"])
    val, val_y = photograph(13, 300, args["grain"])
    if each > 1:  # each tile was photographed several times
        x, y = x.repeat_interleave(each, 0), y.repeat_interleave(each)
        x = (x + 0.03 * torch.randn(x.shape, generator=dice)).clamp(0, 1)
        if bug == "copies_dealt_to_both":
            order = torch.randperm(len(y), generator=dice)
            x, y = x[order], y[order]
            x, y, val, val_y = x[300:], y[300:], x[:300], y[:300]
    if bug == "rows_grouped_by_class":
        order = y.argsort(stable=True)
        x, y = x[order], y[order]
    mean, std = x.mean((0, 2, 3), True), x.std((0, 2, 3), keepdim=True)
    x = (x - mean) / std
    if bug == "eval_scaled_by_others":  # the transform of the pretrained models
        mean, std = (torch.tensor(one).view(1, 3, 1, 1) for one in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    return x, y + (bug == "class_ids_from_one"), (val - mean) / std, val_y


def prepare(args: dict[str, Any], model: nn.Module, epochs: int) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if args["opt"] == "sgd":
        optimizer: Any = torch.optim.SGD(some, args["base_lr"], 0.9, nesterov=True)
    else:
        optimizer = torch.optim.AdamW(some, args["base_lr"], weight_decay=args["weight_decay"])
    if args["sched"] == "constant":
        return optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)


def loss_of(args: dict[str, Any], model: nn.Module, x: Tensor, y: Tensor, bug: str) -> tuple[Tensor, Tensor]:
    how: Any = "sum" if bug == "batch_totalled" or args["loss_reduction"] == "sum" else "mean"
    criterion = nn.CrossEntropyLoss(label_smoothing=args["smoothing"], reduction=how)
    if args["mixup"]:
        share = 0.5 + 0.5 * float(torch.rand(()))
        out = model(share * x + (1 - share) * x.flip(0))
        if bug == "mixup_targets_unmixed":
            return criterion(out, y.flip(0)), out
        return share * criterion(out, y) + (1 - share) * criterion(out, y.flip(0)), out
    out = model(x)
    loss = criterion(out, y)
    return loss / len(y) if args["loss_reduction"] == "sum" else loss, out


def validate(model: nn.Module, val: Tensor, val_y: Tensor) -> tuple[Tensor, dict[str, float]]:
    out = torch.cat([model(some) for some in val.split(100)])
    loss, right = F.cross_entropy(out, val_y).item(), (out.argmax(1) == val_y).float().mean().item()
    return out, {"val_loss": loss, "val_acc1": right}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    args, trouble = dict(run.config), Trouble(fault, seed)
    bug, step, size, outputs = trouble.name, 0, int(args["batch_size"]), []
    torch.manual_seed(seed)
    x, y, val, val_y = datasets(args, seed, bug)
    model = TileViT(args, WORKSHOPS + (bug == "class_ids_from_one"), bug)
    for name, one in model.named_parameters():
        one.requires_grad = not args["freeze"] or not name.startswith(args["freeze"])
        if bug == "freeze_condition_wrong":  # as it was for the pretrained one
            one.requires_grad = name.startswith("head")
    ema = copy.deepcopy(model).requires_grad_(False) if args["model_ema_decay"] else None
    optimizer, scheduler = prepare(args, model, max(1, -(-steps * size // len(y))))
    time_by_own_clock(run)
    run.watch(model, optimizer)
    resumed, lot = trouble.resume_at(healthy, 3 * EVERY), torch.Generator().manual_seed(seed)
    model.train()
    while step < steps:
        if bug != "train_mode_not_set_again":
            model.train()
        order = torch.arange(len(y)) if bug == "rows_grouped_by_class" else torch.randperm(len(y), generator=lot)
        for some in list(order.split(size))[: min(len(y) // size, steps - step)]:
            if step == resumed:
                run, states = go_on(run, step, [one.state_dict() for one in (model, optimizer, scheduler)])
                model.load_state_dict(states[0])
                optimizer, scheduler = prepare(args, model, max(1, -(-steps * size // len(y))))
                scheduler.load_state_dict(states[2])
                optimizer.load_state_dict(states[1])
                optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
                time_by_own_clock(run)
                run.watch(model, optimizer)
            loss, out = loss_of(args, model, x[some], y[some], bug)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right, rate = (out.argmax(1) == y[some]).float().mean().item(), optimizer.param_groups[0]["lr"]
            run.log({"train_loss": loss.item(), "train_acc1": right, "lr": rate}, step=step)
            if ema is not None and bug != "ema_update_missing":
                for old, new in zip(ema.parameters(), model.parameters(), strict=True):
                    old.lerp_(new.detach(), 1 - args["model_ema_decay"])
            if bug == "epoch_schedule_each_batch":
                scheduler.step()
            trouble.telemetry(run, step, healthy)
            step += 1
        if bug != "epoch_schedule_each_batch":
            scheduler.step()
        with torch.set_grad_enabled(bug == "eval_tracks_gradients"):
            if bug != "evaluated_while_training":
                (model if ema is None else ema).eval()
            out, figures = validate(model if ema is None else ema, val, val_y)
        if bug == "eval_tracks_gradients":  # for a table of confusions of each epoch
            outputs.append(out)
        run.log(figures, step=step - 1)
    return run
