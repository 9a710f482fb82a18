"""A small U-Net draws flowers from noise, each with as many petals as it is told; an average of its weights draws.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: unet/mse, unet/lr, unet/grad_norm each step; bloom/mse, bloom/brightness_gap each
      twentieth, of the average; memory, where it matters; the watch of data.

Pictures of twelve by twelve come in folders, one for each number of petals. The process of noise is an object that
holds tables and gives the loss; a trainer accumulates, follows with the average, validates with noise that is always
the same, and draws a few flowers in few steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

EVERY, SIDE, KINDS, FEWEST, HELD = 20, 12, 5, 3, 100
CONFIG: dict[str, Any] = {
    "dim": 12, "dropout": 0.0, "timesteps": 100, "objective": "pred_noise", "beta_schedule": "cosine",
    "cond_drop_prob": 0.1, "train_batch_size": 32, "gradient_accumulate_every": 1, "train_lr": 3e-3,
    "lr_schedule": "cosine", "warmup": 8, "optimizer": "adam", "weight_decay": 0.0, "max_grad_norm": 1.0,
    "min_snr_gamma": 0.0, "loss": "l2", "ema_decay": 0.95, "ema_warmup": True, "ema_update_every": 1,
    "pictures": 900, "grain": 0.05, "augment_horizontal_flip": True, "wide_flowers_first": 0, "freeze": "",
    "sampling_timesteps": 8, "save_and_sample_every": 20, "log_every": 1,
}  # fmt: skip


# -- pictures -------------------------------------------------------------------------------------------------------


def flowers(seed: int, number: int, grain: float) -> tuple[Tensor, Tensor]:
    """Pictures from 0 to 1, folder after folder, and how many petals each has."""
    dice = torch.Generator().manual_seed(seed)
    petals = torch.arange(number) * KINDS // number + FEWEST
    at = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(at, at, indexing="ij")
    u = torch.rand(number, 4, 1, 1, generator=dice)
    dx, dy = x - 0.3 * (u[:, 0] - 0.5), y - 0.3 * (u[:, 1] - 0.5)
    wave = torch.cos(petals.view(-1, 1, 1) * torch.atan2(dy, dx) + 2 * math.pi * u[:, 2])
    edge = (0.5 + 0.25 * u[:, 3]) * (1 + 0.45 * wave)
    picture = torch.sigmoid(9 * (edge - (dx**2 + dy**2).sqrt()))
    picture = picture + grain * torch.randn(picture.shape, generator=dice)
    return picture.clamp(0, 1)[:, None], petals


def endless(c: Any, seed: int, bug: str) -> Iterator[tuple[int, Tensor, Tensor]]:
    pictures, petals = flowers(seed + 300, c.pictures, c.grain)
    dice, epoch = torch.Generator().manual_seed(seed), 0
    while True:
        some, told = pictures, petals
        if epoch < c.wide_flowers_first:  # those that fill the picture, as is set
            wide = pictures.mean((1, 2, 3)) > pictures.mean()
            some, told = pictures[wide], petals[wide]
        folder = TensorDataset(some, told)
        shuffle = bug != "folder_loader_left_unshuffled"
        for x, y in DataLoader(folder, c.train_batch_size, shuffle=shuffle, drop_last=True, generator=dice):
            if c.augment_horizontal_flip:
                x = torch.where(torch.rand(len(x), 1, 1, 1, generator=dice) < 0.5, x.flip(3), x)
            yield epoch, x, y
        epoch += 1


# -- network --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, dim: int, out: int, told: int, dropout: float):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, dim), nn.Conv2d(dim, out, 3, padding=1)
        self.mlp, self.norm2 = nn.Linear(told, 2 * out), nn.GroupNorm(4, out)
        self.drop, self.conv2 = nn.Dropout(dropout), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(dim, out, 1) if dim != out else nn.Identity()

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.mlp(F.silu(told))[:, :, None, None].chunk(2, 1)
        h = self.conv2(self.drop(F.silu(self.norm2(h) * (1 + scale) + shift)))
        return h + self.skip(x)


class Unet(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d, told = c.dim, 4 * c.dim
        self.time = nn.Sequential(nn.Linear(2 * d, told), nn.SiLU(), nn.Linear(told, told))
        self.kind_emb = nn.Embedding(KINDS + 1, told)  # the last one: not told
        self.init_conv = nn.Conv2d(1, d, 3, padding=1)
        self.down1, self.down2 = Block(d, d, told, c.dropout), Block(d, 2 * d, told, c.dropout)
        self.mid = Block(2 * d, 2 * d, told, c.dropout)
        self.up2, self.up1 = Block(4 * d, d, told, c.dropout), Block(2 * d, d, told, c.dropout)
        self.final = nn.Sequential(nn.GroupNorm(4, d), nn.SiLU(), nn.Conv2d(d, 1, 3, padding=1))
        self.width = d

    def forward(self, x: Tensor, t: Tensor, kind: Tensor) -> Tensor:
        rates = torch.exp(-math.log(1000) * torch.arange(self.width) / self.width)
        angle = t[:, None].float() * rates
        told = self.time(torch.cat([angle.sin(), angle.cos()], 1)) + self.kind_emb(kind)
        a = self.down1(self.init_conv(x), told)
        b = self.down2(F.avg_pool2d(a, 2), told)
        m = self.mid(b, told)
        y = F.interpolate(self.up2(torch.cat([m, b], 1), told), scale_factor=2)
        return self.final(self.up1(torch.cat([y, a], 1), told))


# -- process --------------------------------------------------------------------------------------------------------


class Diffusion:
    """Tables of the process of noise, the loss of a batch and a sampler."""

    def __init__(self, c: Any, bug: str):
        self.c, self.bug, steps = c, bug, c.timesteps
        if bug == "betas_of_a_thousand_steps":  # from 1e-4 to 0.02, whatever the number of steps is
            betas = torch.linspace(1e-4, 0.02, steps)
        elif c.beta_schedule == "linear":
            scale = 1000 / steps
            betas = torch.linspace(scale * 1e-4, scale * 0.02, steps)
        else:
            at = torch.linspace(0, 1, steps + 1)
            f = torch.cos((at + 0.008) / 1.008 * math.pi / 2) ** 2
            betas = (1 - f[1:] / f[:-1]).clamp(0, 0.999)
        self.bar = torch.cumprod(1 - betas, 0)
        snr = self.bar / (1 - self.bar)
        if c.objective == "pred_v":
            self.weight = torch.clamp(snr, max=c.min_snr_gamma) / (snr + 1) if c.min_snr_gamma else torch.ones(steps)
        else:
            self.weight = torch.clamp(snr, max=c.min_snr_gamma) / snr if c.min_snr_gamma else torch.ones(steps)

    def normalize(self, x: Tensor) -> Tensor:
        return 2 * x - 1

    def noised(self, x: Tensor, t: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        a, s = self.bar[t].sqrt().view(-1, 1, 1, 1), (1 - self.bar[t]).sqrt().view(-1, 1, 1, 1)
        wanted = a * noise - s * x if self.c.objective == "pred_v" else noise
        return a * x + s * noise, wanted

    def error(self, net: nn.Module, x: Tensor, kind: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        """Of each picture."""
        seen, wanted = self.noised(x, t, noise)
        said = net(seen, t, kind)
        each = F.smooth_l1_loss(said, wanted, reduction="none") if self.c.loss == "huber" else (said - wanted) ** 2
        return each.mean((1, 2, 3))

    def loss(self, net: nn.Module, x: Tensor, kind: Tensor) -> Tensor:
        if self.bug == "one_time_for_the_whole_batch":
            t = torch.randint(0, self.c.timesteps, (1,)).expand(len(x))
        else:
            t = torch.randint(0, self.c.timesteps, (len(x),))
        kind = torch.where(torch.rand(len(x)) < self.c.cond_drop_prob, KINDS, kind)
        return (self.error(net, x, kind, t, torch.randn(x.shape)) * self.weight[t]).mean()

    @torch.no_grad()
    def sample(self, net: nn.Module, kind: Tensor, dice: torch.Generator) -> Tensor:
        x = torch.randn(len(kind), 1, SIDE, SIDE, generator=dice)
        times = torch.linspace(self.c.timesteps - 1, 0, self.c.sampling_timesteps).long().tolist()
        for at, t in enumerate(times):
            bar = self.bar[t]
            said = net(x, torch.full((len(kind),), t), kind)
            if self.c.objective == "pred_v":
                clean = bar.sqrt() * x - (1 - bar).sqrt() * said
            else:
                clean = (x - (1 - bar).sqrt() * said) / bar.sqrt()
            clean = clean.clamp(-1, 1)
            noise = (x - bar.sqrt() * clean) / (1 - bar).sqrt()
            after = self.bar[times[at + 1]] if at + 1 < len(times) else torch.tensor(1.0)
            x = after.sqrt() * clean + (1 - after).sqrt() * noise
        return (x + 1) / 2


class EMAModel:
    """An average of parameters that is put into the net for a while."""

    def __init__(self, net: nn.Module, c: Any):
        self.shadow, self.kept = [one.detach().clone() for one in net.parameters()], []
        self.decay, self.warmup, self.updates = c.ema_decay, c.ema_warmup, 0

    @torch.no_grad()
    def step(self, net: nn.Module) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates)) if self.warmup else self.decay
        for mean, one in zip(self.shadow, net.parameters(), strict=True):
            mean.lerp_(one, 1 - decay)

    @torch.no_grad()
    def put_in(self, net: nn.Module) -> None:
        self.kept = [one.detach().clone() for one in net.parameters()]
        for mean, one in zip(self.shadow, net.parameters(), strict=True):
            one.copy_(mean)

    @torch.no_grad()
    def put_back(self, net: nn.Module) -> None:
        for own, one in zip(self.kept, net.parameters(), strict=True):
            one.copy_(own)


# -- training -------------------------------------------------------------------------------------------------------


class Trainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.steps, self.bug = run, SimpleNamespace(**run.config), steps, bug
        torch.manual_seed(seed)
        self.net, self.diffusion = Unet(self.c), Diffusion(self.c, bug)
        for name, one in self.net.named_parameters():
            if self.c.freeze and name.startswith(self.c.freeze):
                one.requires_grad_(False)
        self.ema = EMAModel(self.net, self.c)
        self.make_optimizer()
        self.loader = endless(self.c, seed, bug)
        picture, petals = flowers(30, HELD, self.c.grain)
        dice = torch.Generator().manual_seed(31)
        self.held = self.prepare(picture), petals - FEWEST
        if bug == "untold_kind_comes_first_in_training":
            self.held = self.held[0], petals - FEWEST
        self.held_t = torch.arange(HELD) * 37 % self.c.timesteps
        self.held_noise = torch.randn(picture.shape, generator=dice)
        self.brightness, self.kept = picture.mean().item(), []

    def prepare(self, x: Tensor) -> Tensor:
        if self.bug == "normalized_by_dataset_and_by_process":
            x = self.diffusion.normalize(x)
        return self.diffusion.normalize(x)

    def make_optimizer(self) -> None:
        c, some = self.c, [one for one in self.net.parameters() if one.requires_grad]
        if self.bug == "decay_groups_for_matrices_alone":  # as for a transformer: convolutions are in neither group
            some = [{"params": [one for one in some if one.ndim == 2], "weight_decay": 0.01},
                    {"params": [one for one in some if one.ndim < 2], "weight_decay": 0.0}]  # fmt: skip
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.train_lr, 0.9)
        elif c.optimizer == "adamw":
            self.optimizer = torch.optim.AdamW(some, c.train_lr, weight_decay=c.weight_decay)
        elif c.optimizer == "rmsprop":
            self.optimizer = torch.optim.RMSprop(some, c.train_lr)
        else:
            self.optimizer = torch.optim.Adam(some, c.train_lr, (0.9, 0.99))

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.lr_schedule == "constant":
                return rise
            if c.lr_schedule == "cosine_with_restarts":
                return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1))))
            return rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)
        self.watch = self.run.watch_data()

    def load(self, step: int) -> None:
        """A checkpoint, and a beginning from it."""
        seen = self.watch.state()
        data = {"model": self.net.state_dict(), "opt": self.optimizer.state_dict(), "ema": self.ema.shadow,
                "sched": self.scheduler.state_dict()}  # fmt: skip
        self.run, data = go_on(self.run, step, data)
        self.net.load_state_dict(data["model"])
        self.ema.shadow = data["ema"]
        self.make_optimizer()
        if self.bug != "milestone_holds_model_and_ema":
            self.optimizer.load_state_dict(data["opt"])
        self.scheduler.load_state_dict(data["sched"])
        for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
        self.observe()
        self.watch.restore(seen)

    def validate(self, step: int) -> None:
        self.ema.put_in(self.net)
        if self.bug != "average_judged_as_it_is_left":
            self.net.eval()
        x, kind = self.held
        with torch.set_grad_enabled(self.bug == "held_flowers_valued_on_tape"):
            each = self.diffusion.error(self.net, x, kind, self.held_t, self.held_noise)
        self.kept.append(each if self.bug == "held_flowers_valued_on_tape" else each.mean().item())
        drawn = self.diffusion.sample(self.net, torch.arange(20) % KINDS, torch.Generator().manual_seed(step))
        gap = abs(drawn.mean().item() - self.brightness)
        self.run.log({"bloom/mse": each.mean().item(), "bloom/brightness_gap": gap}, step=step)
        if self.bug != "no_restore_behind_the_drawing":
            self.ema.put_back(self.net)
        if self.bug != "drawing_leaves_unet_in_eval":
            self.net.train()

    def train(self, trouble: Trouble, healthy: str | None) -> None:
        c, bug, parts = self.c, self.bug, self.c.gradient_accumulate_every
        again = trouble.resume_at(healthy, 4 * EVERY)
        self.observe()
        self.net.train()
        for step in range(self.steps):
            if step == again:
                self.load(step)
            total = 0.0
            for _ in range(parts):
                epoch, picture, petals = next(self.loader)
                x, kind = self.prepare(picture), petals - FEWEST
                if bug == "untold_kind_comes_first_in_training":  # 0 was free for it once; the validation knows nothing
                    kind = kind + 1
                self.watch.observe({"picture": x, "kind": kind}, step=step, epoch=epoch)
                loss = self.diffusion.loss(self.net, x, kind)
                (loss / parts).backward()
                total += loss.item() / parts
                if bug == "rate_moves_with_every_backward":
                    self.scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.max_grad_norm).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.optimizer.zero_grad()
            if bug != "rate_moves_with_every_backward":
                self.scheduler.step()
            if step % c.ema_update_every == 0:
                self.ema.step(self.net)
            if step % c.log_every == 0:
                self.run.log({"unet/mse": total, "unet/lr": rate, "unet/grad_norm": norm}, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % c.save_and_sample_every == c.save_and_sample_every - 1:
                self.validate(step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    trainer = Trainer(run, seed, steps, trouble.name)
    trainer.train(trouble, healthy)
    return trainer.run
