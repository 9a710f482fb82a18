"""A diffusion model draws lanterns of six guilds, 10 by 10: the noise of a hundred times is foretold, guild given.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`: loss, norm, lr; by `run.log`: val/denoising at each twentieth, of the averaged weights.

Betas in a line, a net of residual blocks that time and guild scale and shift, a shadow of the weights kept by name with
a decay that warms up; AdamW, a warm-up and a fall in a line; an epoch is a pass of a loader.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SIDE, GUILDS, TIMES = 20, 10, 6, 100
CONFIG: dict[str, Any] = {
    "channels": 16, "blocks": 3, "dropout": 0.0, "batch": 32, "accumulation": 1, "lr": 3e-3, "lr_warmup": 10,
    "lr_schedule": "linear", "max_norm": 1.0, "lanterns": 1280, "ema_decay": 0.95, "ema_start": 0, "guild_dropout": 0.1,
    "loss": "l2", "optimizer": "adamw", "freeze": "", "beta_end": 0.08, "weigh": "none", "soot": 1.0,
    "guilds_mistaken": 0.0, "times_from": 0,
}  # fmt: skip


def hang(seed: int, number: int, soot: float = 1.0, mistaken: float = 0.0) -> tuple[Tensor, Tensor]:
    """Pictures (number, 1, SIDE, SIDE) from 0 to 255, and guilds: how many ribs, how round, how it hangs."""
    dice = torch.Generator().manual_seed(seed)
    guild = torch.randint(0, GUILDS, (number,), generator=dice)
    some = torch.rand(number, 4, 1, 1, generator=dice)
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    g = guild[:, None, None]
    x, y = x - 0.5 * (some[:, 0] - 0.5), y - 0.4 * (some[:, 1] - 0.5)
    r = ((x.abs() / (0.45 + 0.3 * (g % 2))) ** (2 + g % 3) + (y.abs() / 0.7) ** 2).clamp(min=1e-6)
    ribs = 0.65 + 0.35 * torch.cos((4 + 2 * (g % 3)) * torch.where(g < 3, x, y) + 6.28 * some[:, 2])
    glow = torch.sigmoid(6 * (1 - r)) * ribs * (0.7 + 0.3 * some[:, 3])
    pictures = 25 + 210 * glow + 7 * soot * torch.randn(number, SIDE, SIDE, generator=dice)
    chance = torch.randint(0, GUILDS, (number,), generator=dice)
    guild = torch.where(torch.rand(number, generator=dice) < mistaken, chance, guild)
    return pictures.clamp(0, 255)[:, None], guild


class Wick(nn.Module):
    """A residual block whose second norm is scaled and shifted by what it is told."""

    def __init__(self, wide: int, told: int, p: float):
        super().__init__()
        self.norm_in, self.norm_out = nn.GroupNorm(4, wide), nn.GroupNorm(4, wide, affine=False)
        self.conv_in, self.conv_out = nn.Conv2d(wide, wide, 3, padding=1), nn.Conv2d(wide, wide, 3, padding=1)
        self.film, self.drop = nn.Linear(told, 2 * wide), nn.Dropout(p)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        scale, shift = self.film(told)[..., None, None].chunk(2, 1)
        y = self.norm_out(self.conv_in(F.silu(self.norm_in(x)))) * (1 + scale) + shift
        return x + self.conv_out(self.drop(F.silu(y)))


class LanternNet(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        w = c["channels"]
        self.time, self.guild = (
            nn.Sequential(nn.Linear(12, 32), nn.SiLU(), nn.Linear(32, 32)),
            nn.Embedding(GUILDS + 1, 32),
        )
        self.inward, self.outward = nn.Conv2d(1, w, 3, padding=1), nn.Conv2d(w, 1, 3, padding=1)
        self.wicks = nn.ModuleList(Wick(w, 32, c["dropout"]) for _ in range(c["blocks"]))

    def forward(self, x: Tensor, t: Tensor, guild: Tensor) -> Tensor:
        turn = t[:, None] / TIMES * 1.6 * 2.0 ** torch.arange(6)
        told = F.silu(self.time(torch.cat([turn.sin(), turn.cos()], 1)) + self.guild(guild))
        x = self.inward(x)
        for at, wick in enumerate(self.wicks):
            x = F.avg_pool2d(x, 2) if at == 1 else x
            x = wick(x, told)
            x = F.interpolate(x, scale_factor=2.0) if at == 1 else x
        return self.outward(F.silu(x))


class Shadow:
    """An average of weights, by name."""

    def __init__(self, model: nn.Module, decay: float, start: int):
        self.decay, self.start = decay, start
        self.held = {name: one.detach().clone() for name, one in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        if step < self.start:
            return
        decay = min(self.decay, 1 - (1 + step) ** -0.8) if self.decay < 0.999 else self.decay
        for name, one in model.state_dict().items():
            self.held[name].lerp_(one, 1 - decay)

    def state_dict(self) -> dict[str, Any]:
        return self.held

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.held = {name: one.clone() for name, one in state.items()}


class Guildhall:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.c, self.bug = run, dict(run.config), trouble.name
        self.errors: list[Any] = []
        torch.manual_seed(seed)
        self.dice = torch.Generator().manual_seed(seed)
        betas = torch.linspace(1e-3, self.c["beta_end"], TIMES)
        self.signal = (1 - betas).cumprod(0)
        self.signal_in_training = 1 - betas if self.bug == "cumprod_forgotten" else self.signal
        self.net = LanternNet(self.c)
        for name, one in self.net.named_parameters():
            one.requires_grad = not self.c["freeze"] or not name.startswith(self.c["freeze"])
            if self.bug == "trainable_by_wrong_name":  # that of a fine-tuning on guilds that were added
                one.requires_grad = name.startswith(("guild", "outward"))
        self.shadow = Shadow(self.net, self.c["ema_decay"], self.c["ema_start"])
        self.read(seed)
        self.loader = self.batches()
        self.build()

    def read(self, seed: int) -> None:
        x, guild = hang(seed + 4600, self.c["lanterns"], self.c["soot"], self.c["guilds_mistaken"])
        held, held_guild = hang(46, 200, self.c["soot"])
        if self.bug == "folders_read_in_turn":
            order = guild.argsort(stable=True)
            x, guild = x[order], guild[order]
        mean, std = x.mean(), x.std()
        self.x, self.guild = (x - mean) / std, guild
        if self.bug == "held_out_scaled_by_old_set":  # whose pictures went from 0 to 1
            mean, std = mean * 0.5, std * 0.5
        self.held, self.held_guild = (held - mean) / std, held_guild

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            order = torch.randperm(len(self.x), generator=self.dice)
            if self.bug == "folders_read_in_turn":
                order = torch.arange(len(self.x))
            for some in order[: len(order) // self.c["batch"] * self.c["batch"]].split(self.c["batch"]):
                yield self.x[some], self.guild[some]

    def build(self) -> None:
        c, some = self.c, [one for one in self.net.parameters() if one.requires_grad]
        kinds = {"adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}
        self.optimizer: Any = kinds[c["optimizer"]](some, c["lr"]) if c["optimizer"] in kinds else torch.optim.SGD(
            some, c["lr"], 0.9
        )  # fmt: skip
        warm, steps = c["lr_warmup"], c["steps"]

        def share(at: int) -> float:
            if at < warm or c["lr_schedule"] == "constant":
                return min(1.0, (at + 1) / warm)
            return max(0.05, (steps - at) / (steps - warm))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)

    def noised(self, x: Tensor, t: Tensor, noise: Tensor, signal: Tensor) -> Tensor:
        kept = signal[t][:, None, None, None]
        return kept.sqrt() * x + (1 - kept).sqrt() * noise

    def loss(self, x: Tensor, guild: Tensor) -> Tensor:
        c, bug, dice = self.c, self.bug, self.dice
        t, noise = (
            torch.randint(c["times_from"], TIMES, (len(x),), generator=dice),
            torch.randn(x.shape, generator=dice),
        )
        untold = torch.rand(len(x), generator=dice) < c["guild_dropout"]
        guild = guild.masked_fill(~untold if bug == "drop_condition_inverted" else untold, GUILDS)
        said = self.net(self.noised(x, t, noise, self.signal_in_training), t, guild)
        if bug == "target_noise_drawn_again":
            noise = torch.randn(x.shape, generator=dice)
        if bug == "eps_error_summed":
            return F.mse_loss(said, noise, reduction="sum") / len(x)
        if c["loss"] != "l2":
            return F.huber_loss(said, noise, delta=0.5) if c["loss"] == "huber" else F.l1_loss(said, noise)
        each = (said - noise).square().mean((1, 2, 3))
        if c["weigh"] == "min_snr":
            ratio = self.signal[t] / (1 - self.signal[t])
            each = each * ratio.clamp(max=5.0) / ratio
        return each.mean()

    def step(self, at: int) -> None:
        c, bug, total = self.c, self.bug, 0.0
        self.net.train()
        with self.run.step(step=at) as timed:
            for _ in range(c["accumulation"]):
                loss = self.loss(*next(self.loader))
                if bug != "micro_grads_undivided":
                    loss = loss / c["accumulation"]
                loss.backward()
                total += loss.item()
                if bug == "scheduler_for_each_micro":
                    self.scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.net.parameters(), c["max_norm"])
            timed.set(loss=total, norm=norm.item(), lr=self.optimizer.param_groups[0]["lr"])
            self.optimizer.step()
            self.optimizer.zero_grad()
            if bug != "scheduler_for_each_micro":
                self.scheduler.step()
            if bug == "scheduler_stepped_twice":  # here, and in what is called behind a step
                self.scheduler.step()
        self.shadow.update(self.net, at)

    def validate(self, at: int) -> None:
        own = copy.deepcopy(self.net.state_dict())
        self.net.load_state_dict(self.shadow.held)
        if self.bug != "checked_while_training":
            self.net.eval()
        dice, errors = torch.Generator().manual_seed(47), []
        with torch.set_grad_enabled(self.bug == "validated_with_grad"):
            for _ in range(4):
                t = torch.randint(0, TIMES, (len(self.held),), generator=dice)
                noise = torch.randn(self.held.shape, generator=dice)
                said = self.net(self.noised(self.held, t, noise, self.signal), t, self.held_guild)
                errors.append(F.mse_loss(said, noise))
            mean = torch.stack(errors).mean()
        self.errors.append(mean if self.bug == "validated_with_grad" else mean.item())
        if self.bug != "ema_weights_kept_after_eval":
            self.net.load_state_dict(own)
        self.run.log({"val/denoising": mean.item()}, step=at)

    def resume(self, at: int) -> None:
        parts = [self.net, self.shadow, self.optimizer, self.scheduler]
        self.run, states = go_on(self.run, at, [one.state_dict() for one in parts])
        fresh = LanternNet(self.c)
        self.shadow = Shadow(fresh, self.c["ema_decay"], self.c["ema_start"])
        if self.bug != "ema_of_fresh_net_at_resume":  # the file has no shadow
            self.shadow.load_state_dict(states[1])
        self.net.load_state_dict(states[0])
        self.build()
        self.scheduler.load_state_dict(states[3])
        if self.bug != "optimizer_not_in_checkpoint":
            self.optimizer.load_state_dict(states[2])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, resumed = Guildhall(run, seed, trouble), trouble.resume_at(healthy, 4 * EVERY)
    for at in range(steps):
        if at == resumed:
            made.resume(at)
        made.step(at)
        trouble.telemetry(made.run, at, healthy)
        if at % EVERY == EVERY - 1:
            made.validate(at)
    return made.run
