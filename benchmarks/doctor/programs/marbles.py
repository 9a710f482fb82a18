"""A small U-Net learns to take noise off pictures of marble from five quarries; an average of its weights draws.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: ddpm/train_loss, ddpm/lr, ddpm/grad_norm each step; ddpm_val/loss of the average, and
      ddpm_val/contrast_gap of pictures that it draws, each twentieth; memory, where it matters; the watch of data.

A slab has a ground, bands of its quarry's slope and width, and veins; crops of eight by eight are cut from it. The net
is told a time and a quarry, or none. Betas are of a cosine; the net tells the noise, or a velocity. Written as the
training scripts are that come with a library of diffusion models: a scheduler of noise, an average with a warm-up,
and a state that is saved and loaded.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SIDE, QUARRIES, HELD = 20, 8, 5, 128
CONFIG: dict[str, Any] = {
    "block_out_channels": 16, "norm_num_groups": 4, "dropout": 0.0, "num_train_timesteps": 200,
    "prediction_type": "epsilon", "beta_schedule": "squaredcos_cap_v2", "snr_gamma": 0.0, "train_batch_size": 24,
    "gradient_accumulation_steps": 1, "optimizer_type": "adamw", "learning_rate": 3e-3, "lr_scheduler": "cosine",
    "lr_warmup_steps": 10, "adam_weight_decay": 1e-4, "max_grad_norm": 1.0, "loss_reduction": "mean",
    "ema_max_decay": 0.95, "ema_use_warmup": True, "ema_inv_gamma": 1.0, "ema_power": 0.75, "proportion_empty": 0.1,
    "slabs": 700, "crops_per_slab": 1, "dust": 0.03, "plain_slabs_first_epochs": 0, "train_modules": "all",
    "noise_offset": 0.0, "validation_steps": 20, "log_interval": 1, "sampling_steps": 8,
}  # fmt: skip


# -- slabs ----------------------------------------------------------------------------------------------------------


def cut(seed: int, slabs: int, crops: int, dust: float) -> tuple[Tensor, Tensor, Tensor]:
    """Crops from 0 to 1, their quarries and their slabs, quarry after quarry."""
    dice = torch.Generator().manual_seed(seed)
    quarry = torch.randint(0, QUARRIES, (slabs,), generator=dice).sort().values
    ground = 0.25 + 0.11 * quarry + 0.04 * torch.randn(slabs, generator=dice)
    slope = math.pi * quarry / QUARRIES + 0.08 * torch.randn(slabs, generator=dice)
    width = 0.7 + 0.25 * (quarry % 3) + 0.05 * torch.randn(slabs, generator=dice)
    vein = torch.rand(slabs, generator=dice)
    quarry, ground, slope, width, vein = (
        one.repeat_interleave(crops) for one in (quarry, ground, slope, width, vein)
    )  # fmt: skip
    many = slabs * crops
    spread = 2 * math.pi if crops == 1 else 0.5  # crops of a slab overlap
    at = torch.arange(SIDE).float()
    phase = spread * torch.rand(many, generator=dice) + 2 * math.pi * vein
    turned = at.view(1, 1, -1) * slope.cos().view(-1, 1, 1) + at.view(1, -1, 1) * slope.sin().view(-1, 1, 1)
    bands = torch.sin(width.view(-1, 1, 1) * turned + phase.view(-1, 1, 1))
    line = torch.exp(-((turned - 8 * vein.view(-1, 1, 1)) ** 2))
    grey = ground.view(-1, 1, 1) + 0.16 * bands + 0.2 * line + dust * torch.randn(many, SIDE, SIDE, generator=dice)
    slab = torch.arange(slabs).repeat_interleave(crops)
    return grey.clamp(0, 1)[:, None], quarry, slab


def transform(picture: Tensor) -> Tensor:
    return picture * 2 - 1


# -- network --------------------------------------------------------------------------------------------------------


class ResnetBlock(nn.Module):
    def __init__(self, into: int, out: int, told: int, c: Any):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(c.norm_num_groups, into), nn.Conv2d(into, out, 3, padding=1)
        self.time_emb_proj = nn.Linear(told, out)
        self.norm2, self.conv2 = nn.GroupNorm(c.norm_num_groups, out), nn.Conv2d(out, out, 3, padding=1)
        self.dropout = nn.Dropout(c.dropout)
        self.skip = nn.Conv2d(into, out, 1) if into != out else nn.Identity()

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time_emb_proj(F.silu(told))[:, :, None, None]
        return self.skip(x) + self.conv2(self.dropout(F.silu(self.norm2(y))))


class UNet2D(nn.Module):
    """Classes count from 1 in the table: 0 is for a picture of which none is told."""

    def __init__(self, c: Any):
        super().__init__()
        d = c.block_out_channels
        self.time_embedding = nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, 2 * d))
        self.class_embedding = nn.Embedding(QUARRIES + 1, 2 * d)
        self.conv_in = nn.Conv2d(1, d, 3, padding=1)
        self.down, self.shrink = ResnetBlock(d, d, 2 * d, c), nn.Conv2d(d, d, 3, 2, 1)
        self.mid_block = ResnetBlock(d, 2 * d, 2 * d, c)
        self.grow, self.up = nn.Conv2d(2 * d, d, 3, padding=1), ResnetBlock(2 * d, d, 2 * d, c)
        self.conv_norm_out, self.conv_out = nn.GroupNorm(c.norm_num_groups, d), nn.Conv2d(d, 1, 3, padding=1)
        nn.init.zeros_(self.conv_out.weight)
        self.wide = d

    def forward(self, x: Tensor, t: Tensor, told: Tensor) -> Tensor:
        rates = torch.exp(-math.log(1e3) * torch.arange(self.wide // 2) / (self.wide // 2))
        angle = t[:, None].float() * rates
        about = self.time_embedding(torch.cat([angle.sin(), angle.cos()], 1)) + self.class_embedding(told)
        high = self.down(self.conv_in(x), about)
        low = self.mid_block(self.shrink(high), about)
        y = self.up(torch.cat([self.grow(F.interpolate(low, scale_factor=2)), high], 1), about)
        return self.conv_out(F.silu(self.conv_norm_out(y)))


class NoiseScheduler:
    def __init__(self, c: Any):
        self.many, self.kind = c.num_train_timesteps, c.prediction_type
        at = torch.arange(self.many + 1) / self.many
        if c.beta_schedule == "linear":
            self.kept = torch.cumprod(1 - torch.linspace(1e-4, 0.05, self.many), 0)
        else:
            bar = torch.cos((at + 0.008) / 1.008 * math.pi / 2) ** 2
            self.kept = torch.cumprod(1 - (1 - bar[1:] / bar[:-1]).clamp(max=0.999), 0)

    def shares(self, t: Tensor) -> tuple[Tensor, Tensor]:
        kept = self.kept[t].view(-1, 1, 1, 1)
        return kept.sqrt(), (1 - kept).sqrt()

    def add_noise(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        a, s = self.shares(t)
        return a * x + s * noise

    def target(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        a, s = self.shares(t)
        return {"epsilon": noise, "v_prediction": a * noise - s * x, "sample": x}[self.kind]

    def split(self, said: Tensor, noisy: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """The picture and the noise that the net means."""
        a, s = self.shares(t)
        if self.kind == "epsilon":
            x = (noisy - s * said) / a
        else:
            x = a * noisy - s * said if self.kind == "v_prediction" else said
        x = x.clamp(-1, 1)
        return x, (noisy - a * x) / s


class EMAModel:
    def __init__(self, net: nn.Module, c: Any, bug: str):
        self.module, self.c, self.steps, self.bug = copy.deepcopy(net).requires_grad_(False), c, 0, bug
        self.stored: list[Tensor] = []

    @torch.no_grad()
    def step(self, net: nn.Module) -> None:
        c = self.c
        self.steps += 1
        decay = 1 - (1 + self.steps / c.ema_inv_gamma) ** -c.ema_power if c.ema_use_warmup else c.ema_max_decay
        for mean, one in zip(self.module.parameters(), net.parameters(), strict=True):
            mean.lerp_(one, 1 - min(decay, c.ema_max_decay))

    @torch.no_grad()
    def copy_to(self, net: nn.Module) -> None:
        for mean, one in zip(self.module.parameters(), net.parameters(), strict=True):
            one.copy_(mean)


# -- training -------------------------------------------------------------------------------------------------------


class Training:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c = self.c
        self.load()
        self.noise_scheduler = NoiseScheduler(c)
        torch.manual_seed(seed)
        self.unet = UNet2D(c)
        self.ema = EMAModel(self.unet, c, bug)
        if c.train_modules != "all":
            for name, one in self.unet.named_parameters():
                one.requires_grad_(any(part in name for part in c.train_modules.split(",")))
        self.build_optimizer()
        self.losses: list[Any] = []

    def load(self) -> None:
        c = self.c
        picture, quarry, _ = cut(self.seed + 2300, c.slabs, c.crops_per_slab, c.dust)
        held, held_quarry, _ = cut(2299, HELD, 1, 0.03)
        self.picture, self.quarry = transform(picture), quarry
        self.held = (held if self.bug == "to_tensor_alone_for_validation" else transform(held)), held_quarry
        self.plain = self.picture.flatten(1).std(1) < self.picture.flatten(1).std(1).median()

    def build_optimizer(self) -> None:
        c, net = self.c, self.unet
        some = [one for one in net.parameters() if one.requires_grad]
        if self.bug == "parameters_of_listed_blocks":  # what conditions the net isn't among the blocks
            some = [one for part in (net.conv_in, net.down, net.shrink, net.mid_block, net.grow, net.up,
                                     net.conv_norm_out, net.conv_out) for one in part.parameters()]  # fmt: skip
            some = [one for one in some if one.ndim > 1]
        if c.optimizer_type == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.learning_rate, 0.9)
        elif c.optimizer_type == "adamax":
            self.optimizer = torch.optim.Adamax(some, c.learning_rate)
        else:
            self.optimizer = torch.optim.AdamW(some, c.learning_rate, weight_decay=c.adam_weight_decay)

        def share(at: int) -> float:
            past, rise = min(1.0, at / self.steps), min(1.0, (at + 1) / max(1, c.lr_warmup_steps))
            if c.lr_scheduler == "constant_with_warmup":
                return rise
            if c.lr_scheduler == "cosine_with_restarts":
                return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * 0.5 * (1 + math.cos(math.pi * past))

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def batches(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.picture), generator=dice)
            if self.bug == "dataloader_made_without_shuffle":
                order = torch.arange(len(self.picture))
            if epoch < c.plain_slabs_first_epochs:
                order = order[self.plain[order]]
            for some in order.split(c.train_batch_size):
                if len(some) == c.train_batch_size:
                    yield epoch, self.picture[some], self.quarry[some]
            epoch += 1

    def compute_loss(self, clean: Tensor, quarry: Tensor) -> Tensor:
        c, sched = self.c, self.noise_scheduler
        noise = torch.randn_like(clean)
        if c.noise_offset:
            noise = noise + c.noise_offset * torch.randn(len(clean), 1, 1, 1)
        t = torch.randint(0, sched.many, (len(clean),))
        if self.bug == "one_timestep_for_the_batch":
            t = torch.randint(0, sched.many, (1,)).expand(len(clean))
        told = quarry + 1
        if self.bug == "quarry_number_straight_into_the_table":  # 0 is the empty one there
            told = quarry
        told = torch.where(torch.rand(len(told)) < c.proportion_empty, 0, told)
        wanted = sched.target(clean, noise, t)
        if self.bug == "noise_is_the_target_of_v_prediction":
            wanted = noise
        each = F.mse_loss(self.unet(sched.add_noise(clean, noise, t), t, told), wanted, reduction="none")
        if c.snr_gamma:
            snr = sched.kept[t] / (1 - sched.kept[t])
            each = each * (snr.clamp(max=c.snr_gamma) / snr).view(-1, 1, 1, 1)
        if self.bug == "squared_error_summed_over_the_picture" or c.loss_reduction == "sum":
            return each.sum() / len(each)
        return each.mean()

    def validate(self, step: int) -> None:
        net, sched, taped = self.ema.module, self.noise_scheduler, self.bug == "log_validation_lost_its_no_grad"
        if self.bug == "copy_to_without_restore":
            self.ema.copy_to(self.unet)
        if taped:
            net.requires_grad_(True)
        for one in (net, self.unet):
            one.eval()
        if self.bug == "average_draws_in_train_mode":
            net.train()
        with torch.random.fork_rng(), torch.set_grad_enabled(taped):
            torch.manual_seed(4)
            clean, told = self.held[0], self.held[1] + 1
            t, noise = torch.arange(len(clean)) * sched.many // len(clean), torch.randn_like(clean)
            said = net(sched.add_noise(clean, noise, t), t, told)
            loss = F.mse_loss(said, sched.target(clean, noise, t))
            x = torch.randn(len(clean), 1, SIDE, SIDE)
            times = torch.linspace(sched.many - 1, 0, self.c.sampling_steps).long()
            for at, following in zip(times, [*times[1:], None], strict=True):
                now = at.expand(len(x))
                x, left = sched.split(net(x, now, told), x, now)
                if following is not None:
                    x = sched.add_noise(x, left, following.expand(len(x)))
            ours = torch.stack([x[self.held[1] == one].mean() for one in range(QUARRIES)])
            theirs = torch.stack([clean[self.held[1] == one].mean() for one in range(QUARRIES)])
            gap = (ours - theirs).abs().mean() + (x.std((1, 2, 3)).mean() - clean.std((1, 2, 3)).mean()).abs()
        if taped:
            self.losses.append((loss, gap))
        self.run.log({"ddpm_val/loss": loss.item(), "ddpm_val/contrast_gap": gap.item()}, step=step)
        if self.bug != "pipeline_leaves_the_unet_in_eval":
            self.unet.train()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.unet, self.optimizer)
        self.watch = self.run.watch_data()

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"unet": self.unet.state_dict(), "ema": self.ema.module.state_dict(), "ema_steps": self.ema.steps,
                 "optimizer": self.optimizer.state_dict(), "scheduler": self.lr_scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.unet.load_state_dict(state["unet"])
        self.ema.module.load_state_dict(state["ema"])
        self.ema.steps = state["ema_steps"]
        self.build_optimizer()
        if self.bug != "unet_folder_loaded_and_nothing_else":
            self.optimizer.load_state_dict(state["optimizer"])
            self.lr_scheduler.load_state_dict(state["scheduler"])
        self.observe()
        self.watch.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> None:
        c, again, stream = self.c, trouble.resume_at(healthy, 4 * EVERY), self.batches()
        parts = c.gradient_accumulation_steps
        self.observe()
        self.unet.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            total = 0.0
            for _ in range(parts):
                epoch, clean, quarry = next(stream)
                self.watch.observe({"pixel_values": clean, "class_labels": quarry}, step=step, epoch=epoch)
                loss = self.compute_loss(clean, quarry)
                (loss if self.bug == "loss_of_each_crop_batch_in_full" else loss / parts).backward()
                total += loss.item() / parts
                if self.bug == "lr_scheduler_within_the_accumulation":
                    self.lr_scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.unet.parameters(), c.max_grad_norm).item()
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            if self.bug != "lr_scheduler_within_the_accumulation":
                self.lr_scheduler.step()
            self.unet.zero_grad()
            self.ema.step(self.unet)
            if step % c.log_interval == 0:
                self.run.log({"ddpm/train_loss": total, "ddpm/lr": rate, "ddpm/grad_norm": norm}, step=step)
            trouble.telemetry(self.run, step, healthy)
            if step % c.validation_steps == c.validation_steps - 1:
                self.validate(step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    training = Training(run, seed, steps, trouble.name)
    training.train(trouble, healthy)
    return training.run
