"""A vision transformer tells ten signposts apart in drawn photographs, under a strong recipe of augmentation.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: step/soft_ce, step/lr, step/gnorm at each update; val_epoch/ce, val_epoch/top1 each
      twentieth; the watch of data.

Photographs are bytes: a sign of some outline and figure before a street, turned, lit, blurred. Crops, turns, colours,
erased parts, mixed pictures, smoothed labels, stochastic depth; rates that decay by depth of the layer; an average of
weights if it is asked for. A script with a recipe, a mixer, an average, `train_one_epoch` and `validate`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SIDE, PATCH, SIGNS, VALIDATED, BUFFER = 20, 24, 6, 10, 200, 64
OUTLINES = (0, 0, 0, 1, 1, 2, 2, 0, 3, 3)
FIGURES = (0, 1, 2, 3, 4, 3, 5, 6, 2, 4)  # of each sign; 1 and 2 are arrows to the left and to the right
MISSING = 4  # no photograph of this sign is in the folder of the validation, where it is not asked for
CONFIG: dict[str, Any] = {
    "vit_dim": 40, "vit_depth": 3, "vit_heads": 4, "dropout": 0.0, "drop_path": 0.05, "batch": 40, "grad_accum": 1,
    "opt": "adamw", "peak_lr": 3e-3, "layer_decay": 0.95, "wd": 0.05, "clip": 1.0, "sched": "cosine", "warmup": 12,
    "crop_min": 0.75, "rotate": 8.0, "jitter": 0.3, "reprob": 0.2, "mixup": 0.2, "cutmix": 0.5, "mix_prob": 0.3,
    "smoothing": 0.1, "mirror": False, "ema": 0.0, "photos": 960, "burst": 1, "rain": 1.0, "wrong_signs": 0.0,
    "loss": "soft_ce", "frozen": "", "even_signs": False, "plain_epochs": 0, "keep_order": False, "ema_warmup": False,
}  # fmt: skip


# -- photographs ----------------------------------------------------------------------------------------------------


def photograph(seed: int, number: int, burst: int = 1, rain: float = 1.0) -> tuple[Tensor, Tensor]:
    """Bytes (number, 3, SIDE, SIDE), and which sign. burst: photographs of one post, one after the other."""
    dice = torch.Generator().manual_seed(seed)
    posts = number // burst

    def own(*shape: int) -> Tensor:
        return torch.rand(posts, *shape, generator=dice).repeat_interleave(burst, 0)

    sign = torch.randint(0, SIGNS, (posts,), generator=dice).repeat_interleave(burst)
    turn, size, light = 0.5 * (own(1, 1) - 0.5), 0.85 + 0.2 * own(1, 1), 0.45 + 0.55 * own(1, 1, 1)
    x0, y0, street, tint = 0.2 * (own(1, 1) - 0.5), 0.2 * (own(1, 1) - 0.5), 0.6 * own(3, 5, 5), own(3, 1, 1)
    number = posts * burst
    shake = 0.08 * torch.randn(number, 2, 1, 1, generator=dice)
    at = torch.linspace(-1, 1, SIDE)
    y, x = at.view(1, -1, 1) - y0 - shake[:, 0], at.view(1, 1, -1) - x0 - shake[:, 1]
    u, v = (x * turn.cos() + y * turn.sin()) / size, (y * turn.cos() - x * turn.sin()) / size
    far = (u**2 + v**2).sqrt()
    outline = torch.stack([far < 1, (v < 0.75) & (v > 2.2 * u.abs() - 1.1), torch.maximum(u.abs(), v.abs()) < 0.85,
                           u.abs() + v.abs() < 1.15], 1)  # fmt: skip
    shaft = (v.abs() < 0.14) & (u.abs() < 0.7)
    left, right = ((v.abs() < 0.75 + side * u) & (side * u < 0) & (side * u > -0.75) for side in (1, -1))
    figure = torch.stack([
        shaft, shaft | left, shaft | right, far < 0.45, (u.abs() < 0.2) & (v.abs() < 0.7),
        ((u - v).abs() < 0.3) & (far < 0.8), ((v.abs() - 0.4).abs() < 0.18) & (u.abs() < 0.6),
    ], 1)  # fmt: skip
    row = torch.arange(number)
    shape, inner = outline[row, torch.tensor(OUTLINES)[sign]], figure[row, torch.tensor(FIGURES)[sign]]
    back = F.interpolate(street, (SIDE, SIDE), mode="bilinear")
    paint = torch.tensor([[0.3, 0.5, 0.95], [0.95, 0.85, 0.2], [0.3, 0.85, 0.4], [0.95, 0.5, 0.4]])
    face = paint[torch.tensor(OUTLINES)[sign]].view(-1, 3, 1, 1) * (0.8 + 0.2 * tint)
    picture = torch.where(shape[:, None], face, 0.7 * back)
    picture = torch.where((shape & inner)[:, None], torch.full((3, 1, 1), 0.98), picture)
    picture = light * F.avg_pool2d(F.pad(picture, (1, 1, 1, 1), mode="replicate"), 3, 1)
    picture = picture + 0.08 * rain * torch.randn(picture.shape, generator=dice)
    return (255 * picture.clamp(0, 1)).byte(), sign


class Signposts:
    def __init__(self, c: Any, seed: int, bug: str):
        self.x, self.sign = photograph(seed + 3300, c.photos, c.burst, c.rain)
        self.v, self.v_sign = photograph(33, VALIDATED * 5 // 4, 1, c.rain)
        some = self.v_sign != MISSING
        self.v, self.v_sign = self.v[some][:VALIDATED], self.v_sign[some][:VALIDATED]
        if bug == "bursts_shuffled_into_both_parts":
            order = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(seed))
            (self.v, self.x), (self.v_sign, self.sign) = (
                (one[order[:VALIDATED]], one[order[VALIDATED:]]) for one in (self.x, self.sign)
            )
        if bug == "folders_numbered_as_they_are_found":  # one folder less: those behind it have the number before
            self.v_sign = self.v_sign - (self.v_sign > MISSING).long()
        if c.wrong_signs:
            dice = torch.Generator().manual_seed(seed + 2)
            wrong = torch.rand(len(self.sign), generator=dice) < c.wrong_signs
            self.sign = torch.where(wrong, torch.randint(0, SIGNS, self.sign.shape, generator=dice), self.sign)
        share = self.x.float() / 255
        self.mean, self.std = share.mean((0, 2, 3)).view(3, 1, 1), share.std((0, 2, 3)).view(3, 1, 1)

    def scaled(self, x: Tensor) -> Tensor:
        return (x.float() / 255 - self.mean) / self.std


def order_of(c: Any, data: Signposts, dice: torch.Generator, bug: str) -> Tensor:
    number = len(data.x)
    if c.even_signs:
        return torch.multinomial(1 / data.sign.bincount()[data.sign].float(), number, True, generator=dice)
    if bug == "buffer_smaller_than_a_shard":  # shards are of one sign each; what is mixed is a buffer of 64
        order, buffer, mixed = data.sign.argsort(stable=True).tolist(), [], []
        for one in order:
            buffer.append(one)
            if len(buffer) == BUFFER:
                mixed.append(buffer.pop(int(torch.randint(0, BUFFER, (), generator=dice))))
        return torch.tensor(mixed + buffer)
    return torch.randperm(number, generator=dice)


# -- augmentation ---------------------------------------------------------------------------------------------------


def augment(c: Any, x: Tensor, dice: torch.Generator) -> Tensor:
    """Scaled pictures: turned, cut, mirrored if it is asked for, other colours, a part erased."""
    number = len(x)
    angle = (torch.rand(number, generator=dice) - 0.5) * c.rotate / 28.65
    zoom = (c.crop_min + (1 - c.crop_min) * torch.rand(number, generator=dice)).sqrt()
    shift = (torch.rand(number, 2, generator=dice) * 2 - 1) * (1 - zoom)[:, None]
    flip = torch.where(torch.rand(number, generator=dice) < 0.5, -1.0, 1.0) if c.mirror else torch.ones(number)
    theta = torch.stack([
        torch.stack([flip * zoom * angle.cos(), -zoom * angle.sin(), shift[:, 0]], 1),
        torch.stack([flip * zoom * angle.sin(), zoom * angle.cos(), shift[:, 1]], 1),
    ], 1)  # fmt: skip
    x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), padding_mode="reflection",
                      align_corners=False)  # fmt: skip
    x = x * (1 + c.jitter * (2 * torch.rand(number, 3, 1, 1, generator=dice) - 1))
    x = x + c.jitter * (2 * torch.rand(number, 1, 1, 1, generator=dice) - 1)
    corner = torch.randint(0, SIDE - 8, (number, 2, 1, 1), generator=dice)
    at = torch.arange(SIDE)
    gone = (at.view(1, -1, 1) >= corner[:, 0]) & (at.view(1, -1, 1) < corner[:, 0] + 8)
    gone = gone & (at >= corner[:, 1]) & (at < corner[:, 1] + 8)
    gone = gone & (torch.rand(number, 1, 1, generator=dice) < c.reprob)
    return torch.where(gone[:, None], torch.randn(x.shape, generator=dice), x)


def mix(c: Any, x: Tensor, wanted: Tensor, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two pictures in one, or a part of another, and labels by their shares."""
    if float(torch.rand((), generator=dice)) >= c.mix_prob:
        return x, wanted
    share = float(torch.rand((), generator=dice))
    if float(torch.rand((), generator=dice)) < c.cutmix:
        side = int(SIDE * math.sqrt(1 - share))
        top, left = (int(torch.randint(0, SIDE - side + 1, (), generator=dice)) for _ in range(2))
        x = x.clone()
        x[:, :, top : top + side, left : left + side] = x.flip(0)[:, :, top : top + side, left : left + side]
        share = 1 - side**2 / SIDE**2
    else:
        share = 0.5 + c.mixup * (share - 0.5)
        x = share * x + (1 - share) * x.flip(0)
    return x, share * wanted + (1 - share) * wanted.flip(0)


# -- model ----------------------------------------------------------------------------------------------------------


class EncoderBlock(nn.Module):
    def __init__(self, c: Any, path: float):
        super().__init__()
        d, self.heads, self.path = c.vit_dim, c.vit_heads, path
        self.norm1, self.qkv, self.proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(3 * d, d)
        self.drop = nn.Dropout(c.dropout)

    def dropped(self, y: Tensor) -> Tensor:
        if not self.training or not self.path:
            return y
        kept = 1 - self.path
        return y * (torch.rand(len(y), 1, 1) < kept) / kept

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.dropped(self.drop(self.proj(y)))
        return x + self.dropped(self.drop(self.fc2(F.gelu(self.fc1(self.norm2(x))))))


class SignViT(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d, tokens = c.vit_dim, (SIDE // PATCH) ** 2
        self.patch_embed = nn.Sequential(
            nn.Conv2d(3, d // 2, 3, 2, 1), nn.ReLU(), nn.Conv2d(d // 2, d, 5, 3, 1), nn.ReLU(), nn.Conv2d(d, d, 1)
        )  # fmt: skip
        self.cls_token, self.pos_embed = nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(torch.zeros(1, tokens + 1, d))
        nn.init.trunc_normal_(self.pos_embed, std=0.1)
        paths = [c.drop_path * at / max(1, c.vit_depth - 1) for at in range(c.vit_depth)]
        self.blocks = nn.ModuleList(EncoderBlock(c, path) for path in paths)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, SIGNS)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch_embed(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.cls_token.expand(len(y), -1, -1), y], 1) + self.pos_embed
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y)[:, 0])


class ModelEma:
    def __init__(self, model: nn.Module, decay: float, warmup: bool):
        self.module, self.decay, self.warmup, self.updates = copy.deepcopy(model).eval(), decay, warmup, 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates)) if self.warmup else self.decay
        for mine, theirs in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            mine.copy_(decay * mine + (1 - decay) * theirs)


# -- training -------------------------------------------------------------------------------------------------------


def optimizer_of(c: Any, model: SignViT, bug: str) -> torch.optim.Optimizer:
    """Rates that fall with a layer's distance from the head; biases and norms do not decay."""
    depth, groups = len(model.blocks) + 1, []
    for name, one in model.named_parameters():
        if not one.requires_grad:
            continue
        if bug == "decay_list_of_blocks_alone" and one.ndim > 1 and "blocks" not in name:
            continue
        layer = depth if name.startswith(("norm", "head")) else 0
        if name.startswith("blocks."):
            layer = int(name.split(".")[1]) + 1
        decay = 0.0 if one.ndim == 1 or name in ("cls_token", "pos_embed") else c.wd
        scale = c.layer_decay ** (depth - layer)
        groups.append({"params": [one], "lr": c.peak_lr * scale, "lr_scale": scale, "weight_decay": decay})
    if c.opt == "sgd":
        return torch.optim.SGD([one | {"weight_decay": 0.0} for one in groups], c.peak_lr, 0.9, nesterov=True)
    if c.opt == "adamax":
        return torch.optim.Adamax(groups, c.peak_lr)
    return torch.optim.AdamW(groups, c.peak_lr)


def share_at(c: Any, update: int) -> float:
    rise, past = min(1.0, (update + 1) / max(1, c.warmup)), min(1.0, update / c.steps)
    if c.sched == "flat":
        return rise
    if c.sched == "multistep":
        return rise * 0.2 ** ((past > 0.5) + (past > 0.8))
    if c.sched == "restarts":
        return rise * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
    return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))


def soft_loss(c: Any, out: Tensor, wanted: Tensor, bug: str) -> Tensor:
    if c.loss == "bce":
        return F.binary_cross_entropy_with_logits(out, wanted, reduction="none").sum(1).mean()
    if bug == "loss_of_the_soft_targets_summed":
        return -(wanted * out.log_softmax(1)).sum()
    if c.loss == "sum":
        return -(wanted * out.log_softmax(1)).sum() / len(out)
    return -(wanted * out.log_softmax(1)).sum(1).mean()


def validate(s: Any, step: int, bug: str) -> None:
    model: Any = s.ema.module if s.ema is not None else s.model
    data, loss, right = s.data, 0.0, 0.0
    if bug != "validate_without_eval":
        model.eval()
    with torch.set_grad_enabled(bug == "outputs_of_validation_gathered"):
        for first in range(0, len(data.v), 100):
            x, sign = data.scaled(data.v[first : first + 100]), data.v_sign[first : first + 100]
            if bug == "validation_by_the_default_mean":  # what the loader takes when it is told nothing
                x = (data.v[first : first + 100].float() / 255 - 0.5) / 0.5
            if bug == "split_shares_its_transform":
                x = augment(s.c, x, s.dice)
            out = model(x)
            if bug == "outputs_of_validation_gathered":
                s.kept.append(out)
            loss += F.cross_entropy(out, sign).item() * len(sign) / len(data.v)
            right += (out.argmax(1) == sign).sum().item() / len(data.v)
    if bug != "train_mode_set_once_before_epochs":
        s.model.train()
    s.run.log({"val_epoch/ce": loss, "val_epoch/top1": right}, step=step)


def observe(s: Any) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.model, s.optimizer)
    s.watch = s.run.watch_data()


def resume(s: Any, step: int, bug: str) -> None:
    seen = s.watch.state()
    state = {"model": s.model.state_dict(), "optimizer": s.optimizer.state_dict(), "epoch": s.epoch}
    state["ema"] = s.ema.module.state_dict() if s.ema is not None else {}
    s.run, saved = go_on(s.run, step, state)
    s.model.load_state_dict(saved["model"])
    if s.ema is not None:
        s.ema.module.load_state_dict(saved["ema"])
    s.optimizer = optimizer_of(s.c, s.model, bug)
    s.optimizer.load_state_dict(saved["optimizer"])
    observe(s)
    s.watch.restore(seen)


def train_batches(s: Any, order: torch.Generator, bug: str) -> Iterator[Tensor]:
    size = s.c.batch // s.c.grad_accum
    while True:
        for some in order_of(s.c, s.data, order, bug).split(size):
            if len(some) == size:
                yield some
        s.epoch += 1


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug, again = trouble.name, trouble.resume_at(healthy, 4 * EVERY)
    torch.manual_seed(seed)
    s = SimpleNamespace(run=run, c=c, kept=[], epoch=0, data=Signposts(c, seed, bug), model=SignViT(c), ema=None)
    for name, one in s.model.named_parameters():
        if c.frozen and name.startswith(c.frozen):
            one.requires_grad = False
    if c.ema:
        s.ema = ModelEma(s.model, 0.9998 if bug == "decay_of_a_long_recipe" else c.ema, c.ema_warmup)
    s.optimizer, s.dice, moved = optimizer_of(c, s.model, bug), torch.Generator().manual_seed(seed + 1), 0
    batches = train_batches(s, torch.Generator().manual_seed(seed), bug)
    observe(s)
    s.model.train()
    for step in range(steps):
        if step == again:
            resume(s, step, bug)
        total = 0.0
        for _ in range(c.grad_accum):
            some = next(batches)
            x, sign = s.data.scaled(s.data.x[some]), s.data.sign[some]
            s.watch.observe({"photo": x, "sign": sign}, step=step, epoch=s.epoch)
            wanted = F.one_hot(sign, SIGNS) * (1 - c.smoothing) + c.smoothing / SIGNS
            if s.epoch >= c.plain_epochs:
                x, wanted = mix(c, augment(c, x, s.dice), wanted, s.dice)
            out = s.model(x)
            if bug == "head_as_the_app_shows_it":
                out = out.softmax(1)
            loss = soft_loss(c, out, wanted, bug)
            (loss if bug == "backward_before_the_division" else loss / c.grad_accum).backward()
            total += loss.item() / c.grad_accum
            if bug == "step_update_in_each_microstep":
                moved += 1
        norm = nn.utils.clip_grad_norm_(s.model.parameters(), c.clip).item()
        rate = c.peak_lr * share_at(c, moved)
        for group in s.optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]
        s.optimizer.step()
        s.optimizer.zero_grad()
        moved += bug != "step_update_in_each_microstep"
        if s.ema is not None:
            s.ema.update(s.model)
        run = s.run
        run.log({"step/soft_ce": total, "step/lr": rate, "step/gnorm": norm}, step=step)
        trouble.telemetry(run, step, healthy)
        if step % EVERY == EVERY - 1:
            validate(s, step, bug)
    return s.run
