"""A diffusion model paints kites of five makers, 12 by 12; it says a velocity, and the average of its weights paints.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`: loss, norm, lr; by `run.log`: valid/loss at each twentieth, of the averaged weights.

A cosine of noise, a small net of two scales told the time and the maker, AdamW, a warm-up; a class in the manner of
trainers of diffusion.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SIDE, MAKERS = 20, 12, 5
CONFIG: dict[str, Any] = {
    "base_channels": 16, "dropout": 0.0, "images_per_batch": 32, "gradient_accumulate_every": 1, "train_lr": 3e-3,
    "warmup": 10, "anneal": "cosine", "max_grad_norm": 1.0, "num_images": 1280, "ema_decay": 0.9, "objective": "v",
    "loss": "mse", "snr_gamma": 0.0, "cond_drop": 0.1, "freeze": "", "opt": "adamw", "time_sampling": "uniform",
    "makers_at_odds": 0.0,
}  # fmt: skip


def fly(seed: int, number: int, odd: float = 0.0) -> tuple[Tensor, Tensor]:
    """Pictures (number, 1, SIDE, SIDE) from 0 to 255, and makers. odd: the share whose maker is of chance."""
    dice = torch.Generator().manual_seed(seed)
    maker = torch.randint(0, MAKERS, (number,), generator=dice)
    some = torch.rand(number, 4, 1, 1, generator=dice)
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    x, y = x - 0.6 * (some[:, 0] - 0.5), y - 0.6 * (some[:, 1] - 0.5)
    k = maker[:, None, None]
    size = 0.45 + 0.25 * some[:, 2]
    lean = 0.5 * (k - 2) * 0.5
    inside = torch.sigmoid(12 * (size - (x + lean * y).abs() * (0.7 + 0.15 * k) - y.abs()))
    stripes = 0.5 + 0.5 * torch.cos((3 + 2 * k) * (x - y) + 6.28 * some[:, 3])
    pictures = 40 + 190 * inside * (0.35 + 0.65 * stripes) + 6 * torch.randn(number, SIDE, SIDE, generator=dice)
    chance = torch.randint(0, MAKERS, (number,), generator=dice)
    maker = torch.where(torch.rand(number, generator=dice) < odd, chance, maker)
    return pictures.clamp(0, 255)[:, None], maker


class ResBlock(nn.Module):
    def __init__(self, inside: int, outside: int, told: int, p: float, always: bool):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inside), nn.GroupNorm(4, outside)
        self.conv1, self.conv2 = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        self.emb, self.p, self.always = nn.Linear(told, outside), p, always
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.emb(told)[..., None, None]
        y = F.silu(self.norm2(y))
        y = F.dropout(y, self.p) if self.always else F.dropout(y, self.p, self.training)
        return self.skip(x) + self.conv2(y)


class KiteUNet(nn.Module):
    def __init__(self, c: dict[str, Any], bug: str):
        super().__init__()
        w, p, always = c["base_channels"], c["dropout"], bug == "eval_never_called"
        self.time_mlp = nn.Sequential(nn.Linear(16, 2 * w), nn.SiLU(), nn.Linear(2 * w, 2 * w))
        self.label_emb = nn.Embedding(MAKERS + 1, 2 * w)
        self.conv_in, self.conv_out = nn.Conv2d(1, w, 3, padding=1), nn.Conv2d(w, 1, 3, padding=1)
        self.down = ResBlock(w, w, 2 * w, p, always)
        self.pool, self.mid = nn.Conv2d(w, 2 * w, 2, 2), ResBlock(2 * w, 2 * w, 2 * w, p, always)
        self.up = ResBlock(3 * w, w, 2 * w, p, always)

    def forward(self, x: Tensor, t: Tensor, maker: Tensor) -> Tensor:
        turns = t[:, None] * 3.14159 * 2.0 ** torch.arange(8) / 4
        told = F.silu(self.time_mlp(torch.cat([turns.sin(), turns.cos()], 1)) + self.label_emb(maker))
        x = self.down(self.conv_in(x), told)
        low = F.interpolate(self.mid(self.pool(x), told), scale_factor=2.0)
        return self.conv_out(F.silu(self.up(torch.cat([x, low], 1), told)))


def objective(c: dict[str, Any], x: Tensor, noise: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the net sees, what it should say, and the signal's share."""
    angle = (t * torch.pi / 2)[:, None, None, None]
    kept, added = angle.cos(), angle.sin()
    seen = kept * x + added * noise
    return seen, noise if c["objective"] == "eps" else kept * noise - added * x, kept


class Painter:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.c, self.bug, self.steps = run, dict(run.config), trouble.name, steps
        torch.manual_seed(seed)
        self.dice = torch.Generator().manual_seed(seed)
        self.net = KiteUNet(self.c, self.bug)
        if self.c["freeze"]:
            self.net.get_submodule(self.c["freeze"]).requires_grad_(False)
        if self.bug == "body_frozen_by_name":  # the list was that of a fine-tuning on new makers
            for name, one in self.net.named_parameters():
                one.requires_grad = name.startswith(("label_emb", "conv_out"))
        self.ema = copy.deepcopy(self.net).requires_grad_(False)
        self.read(seed)
        self.stream, self.curve = self.batches(), []  # type: ignore[var-annotated]
        self.configure()

    def read(self, seed: int) -> None:
        x, maker = fly(seed + 2500, self.c["num_images"], self.c["makers_at_odds"])
        held, held_maker = fly(25, 200)
        if self.bug == "loader_in_class_order":
            order = maker.argsort(stable=True)
            x, maker = x[order], maker[order]
        mean, std = x.mean(), x.std()
        self.x, self.maker = (x - mean) / std, maker
        self.held, self.held_maker = (held - mean) / std, held_maker

    def batches(self) -> Any:
        size = int(self.c["images_per_batch"])
        while True:
            order = torch.randperm(len(self.x), generator=self.dice)
            if self.bug == "loader_in_class_order":
                order = torch.arange(len(self.x))
            for some in order[: len(order) // size * size].split(size):
                yield self.x[some], self.maker[some]

    def configure(self) -> None:
        c, some = self.c, [one for one in self.net.parameters() if one.requires_grad]
        if c["opt"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c["train_lr"], 0.9)
        else:
            self.optimizer = (torch.optim.Adam if c["opt"] == "adam" else torch.optim.AdamW)(some, c["train_lr"])
        later = [torch.optim.lr_scheduler.ConstantLR(self.optimizer, 1.0)]
        if c["anneal"] == "cosine":
            later = [torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.steps - c["warmup"])]
        warm = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, 1.0, c["warmup"])
        self.scheduler = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [warm, *later], [c["warmup"]])
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)

    def train_loss(self, x: Tensor, maker: Tensor) -> Tensor:
        c, bug, dice = self.c, self.bug, self.dice
        t = torch.rand(len(x), generator=dice)
        if c["time_sampling"] == "logit":
            t = torch.randn(len(x), generator=dice).sigmoid()
        noise = torch.randn(x.shape, generator=dice)
        if bug == "noise_shared_by_rows":
            noise = torch.randn(x.shape[1:], generator=dice).expand_as(x)
        seen, wanted, kept = objective(c, x, noise, t)
        if bug == "target_is_noise_model_says_v":
            wanted = noise
        maker = maker.masked_fill(torch.rand(len(x), generator=dice) < c["cond_drop"], MAKERS)
        said = self.net(seen, t, maker)
        if bug == "pixel_errors_summed":
            return F.mse_loss(said, wanted, reduction="sum") / len(x)
        if c["loss"] != "mse":
            return F.smooth_l1_loss(said, wanted) if c["loss"] == "huber" else F.l1_loss(said, wanted)
        each = (said - wanted).square().mean((1, 2, 3))
        if c["snr_gamma"]:
            ratio = (kept.square() / (1 - kept.square()).clamp(min=1e-4)).flatten()
            each = each * ratio.clamp(max=c["snr_gamma"]) / (ratio + 1)
        return each.mean()

    def step(self, at: int) -> None:
        c, bug, total, parts = self.c, self.bug, 0.0, self.c["gradient_accumulate_every"]
        self.net.train()
        with self.run.step(step=at) as timed:
            for _ in range(parts):
                loss = self.train_loss(*next(self.stream))
                if bug != "accumulated_without_dividing":
                    loss = loss / parts
                loss.backward()
                total += loss.item()
            norm = nn.utils.clip_grad_norm_(self.net.parameters(), c["max_grad_norm"])
            timed.set(loss=total, norm=norm.item(), lr=self.optimizer.param_groups[0]["lr"])
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.scheduler.step()
        decay = 0.9999 if c["ema_decay"] == "default" else c["ema_decay"]
        with torch.no_grad():
            for old, new in zip(self.ema.parameters(), self.net.parameters(), strict=True):
                old.lerp_(new, 1 - decay)

    def validate(self, at: int) -> None:
        dice, losses = torch.Generator().manual_seed(4), []
        before = copy.deepcopy(self.net.state_dict())
        self.net.load_state_dict(self.ema.state_dict())
        self.net.eval()
        with torch.set_grad_enabled(self.bug == "eval_without_no_grad"):
            for _ in range(4):
                t, noise = torch.rand(len(self.held), generator=dice), torch.randn(self.held.shape, generator=dice)
                seen, wanted, _ = objective(self.c, self.held, noise, t)
                losses.append(F.mse_loss(self.net(seen, t, self.held_maker), wanted))
        mean = torch.stack(losses).mean()
        self.curve.append(mean if self.bug == "eval_without_no_grad" else mean.item())
        if self.bug != "ema_stays_in_model":
            self.net.load_state_dict(before)
        self.run.log({"valid/loss": mean.item()}, step=at)

    def resume(self, at: int) -> None:
        parts = {"net": self.net, "ema": self.ema, "optimizer": self.optimizer, "scheduler": self.scheduler}
        self.run, states = go_on(self.run, at, {name: one.state_dict() for name, one in parts.items()})
        if self.bug == "ema_made_before_load":  # the net as it is made, and its copy: the copy is not in the file
            self.ema = copy.deepcopy(KiteUNet(self.c, self.bug)).requires_grad_(False)
        else:
            self.ema.load_state_dict(states["ema"])
        self.net.load_state_dict(states["net"])
        self.configure()
        self.scheduler.load_state_dict(states["scheduler"])
        if self.bug != "optimizer_left_out_of_checkpoint":
            self.optimizer.load_state_dict(states["optimizer"])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, resumed = Painter(run, seed, steps, trouble), trouble.resume_at(healthy, 4 * EVERY)
    for at in range(steps):
        if at == resumed:
            made.resume(at)
        made.step(at)
        trouble.telemetry(made.run, at, healthy)
        if at % EVERY == 0 or at == steps - 1:
            made.validate(at)
    return made.run
