"""Diffusion of small blots by a network of convolutions with a way around, in the manner of diffusers' examples.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, lr, norm) and `log_eval` of the averaged weights; the watch of data.

Group norm, levels of noise by sines, 100 of them with a linear schedule; AdamW, warm-up and a cosine; the average has
`store`, `copy_to` and `restore`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, clock, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SIDE, TRAIN_TIMESTEPS = 20, 8, 100
CONFIG: dict[str, Any] = {
    "block_out_channels": 16, "dropout": 0.0, "train_batch_size": 24, "learning_rate": 3e-3, "lr_scheduler": "cosine",
    "lr_warmup_steps": 15, "gradient_accumulation_steps": 1, "max_grad_norm": 1.0, "ema_max_decay": 0.97,
    "prediction_type": "epsilon", "snr_gamma": 0.0, "num_images": 2400, "offset": 0.0, "loss": "mse", "freeze": "",
    "adam_weight_decay": 1e-4, "sampling": False, "ema_use_warmup": True,
}  # fmt: skip


class Blots:
    """Pictures between -1 and 1: one or two round blots of a colour."""

    def __init__(self, seed: int, number: int):
        dice = torch.Generator().manual_seed(seed)
        rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
        ink = torch.zeros(number, SIDE, SIDE)
        for share in (1.0, 0.5):
            middle = 1 + 5 * torch.rand(number, 2, 1, 1, generator=dice)
            size = 1 + 1.3 * torch.rand(number, 1, 1, generator=dice)
            far = (rows - middle[:, 0]) ** 2 + (columns - middle[:, 1]) ** 2
            drawn = (torch.rand(number, 1, 1, generator=dice) < share) * torch.exp(-far / (2 * size**2))
            ink = torch.maximum(ink, drawn)
        self.images = (2 * ink - 1)[:, None]

    def __getitem__(self, index: Any) -> Tensor:
        return self.images[index]


class NoiseScheduler:
    def __init__(self) -> None:
        self.alphas_cumprod = torch.cumprod(1 - torch.linspace(1e-3, 0.08, TRAIN_TIMESTEPS), 0)

    def at(self, t: Tensor) -> Tensor:
        return self.alphas_cumprod[t][:, None, None, None]

    def add_noise(self, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return self.at(t).sqrt() * clean + (1 - self.at(t)).sqrt() * noise

    def get_velocity(self, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return self.at(t).sqrt() * noise - (1 - self.at(t)).sqrt() * clean

    def snr(self, t: Tensor) -> Tensor:
        return self.alphas_cumprod[t] / (1 - self.alphas_cumprod[t])


class ResBlock(nn.Module):
    def __init__(self, inside: int, outside: int, embedded: int, dropout: float):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time_emb_proj = nn.Linear(embedded, outside)
        self.norm2, self.conv2 = nn.GroupNorm(4, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.shortcut = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: Tensor, emb: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time_emb_proj(F.silu(emb))[:, :, None, None]
        return self.shortcut(x) + self.conv2(self.dropout(F.silu(self.norm2(h))))


class UNet(nn.Module):
    def __init__(self, channels: int, dropout: float):
        super().__init__()
        self.channels, embedded = channels, 4 * channels
        self.time_embedding = nn.Sequential(nn.Linear(channels, embedded), nn.SiLU(), nn.Linear(embedded, embedded))
        self.conv_in = nn.Conv2d(1, channels, 3, padding=1)
        self.down = ResBlock(channels, channels, embedded, dropout)
        self.downsample = nn.Conv2d(channels, 2 * channels, 3, 2, 1)
        self.mid = ResBlock(2 * channels, 2 * channels, embedded, dropout)
        self.upsample = nn.ConvTranspose2d(2 * channels, channels, 2, 2)
        self.up = ResBlock(2 * channels, channels, embedded, dropout)
        self.conv_out = nn.Sequential(nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, 1, 3, padding=1))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        waves = torch.exp(-math.log(1000) * torch.arange(self.channels // 2) / (self.channels // 2))
        angles = t[:, None].float() * waves
        emb = self.time_embedding(torch.cat([angles.sin(), angles.cos()], 1))
        x = self.conv_in(x)
        skip = self.down(x, emb)
        x = self.upsample(self.mid(self.downsample(skip), emb))
        return self.conv_out(self.up(torch.cat([x, skip], 1), emb))


class EMAModel:
    def __init__(self, parameters: Any, decay: float, warmup: bool, graph: bool):
        self.shadow = [one.detach().clone() for one in parameters]
        self.decay, self.count, self.warmup, self.graph = decay, 0, warmup, graph
        self.kept: list[Tensor] | None = None

    def step(self, parameters: Any) -> None:
        self.count += 1
        decay = min(self.decay, (1 + self.count) / (10 + self.count)) if self.warmup else self.decay
        with torch.set_grad_enabled(self.graph):
            self.shadow = [decay * mine + (1 - decay) * one for mine, one in zip(self.shadow, parameters, strict=True)]

    def store(self, parameters: Any) -> None:
        self.kept = [one.detach().clone() for one in parameters]

    def put(self, values: Any, parameters: Any) -> None:
        with torch.no_grad():
            for one, value in zip(parameters, values, strict=True):
                one.copy_(value)


def lr_lambda(cfg: dict[str, Any], total: int) -> Any:
    def share(step: int) -> float:
        warm = cfg["lr_warmup_steps"]
        if step < warm:
            return (step + 1) / warm
        if cfg["lr_scheduler"] == "constant":
            return 1.0
        gone = (step - warm) / max(1, total - warm)
        if cfg["lr_scheduler"] == "cosine_with_restarts":
            return 0.5 * (1 + math.cos(math.pi * (3 * gone % 1.0)))
        return max(0.0, 0.5 * (1 + math.cos(math.pi * min(1.0, gone))))

    return share


def target_of(cfg: dict[str, Any], schedule: NoiseScheduler, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    if cfg["prediction_type"] == "v_prediction":
        return schedule.get_velocity(clean, noise, t)
    return clean if cfg["prediction_type"] == "sample" else noise


def loss_of(
    cfg: dict[str, Any], schedule: NoiseScheduler, said: Tensor, target: Tensor, t: Tensor, name: str
) -> Tensor:
    if name == "reduction_is_sum":
        return F.mse_loss(said, target, reduction="sum")
    if cfg["loss"] == "huber":
        return F.huber_loss(said, target, delta=0.3)
    if cfg["snr_gamma"]:
        weight = schedule.snr(t).clamp(max=cfg["snr_gamma"]) / schedule.snr(t)
        return (F.mse_loss(said, target, reduction="none").mean((1, 2, 3)) * weight).mean()
    return F.mse_loss(said, target)


def validate(run: Any, s: dict[str, Any], held: Blots, step: int, epoch: int, trouble: Trouble) -> None:
    cfg, net, ema, schedule, began = s["cfg"], s["net"], s["ema"], s["schedule"], clock()
    ema.store(net.parameters())
    ema.put(ema.shadow, net.parameters())
    net.eval()
    dice = torch.Generator().manual_seed(0)
    losses = []
    with torch.no_grad():
        for part in range(0, 192, 64):
            clean = held[part : part + 64]
            noise = torch.randn(clean.shape, generator=dice)
            t = torch.randint(0, TRAIN_TIMESTEPS, (64,), generator=dice)
            said = net(schedule.add_noise(clean, noise, t), t)
            losses.append(F.mse_loss(said, target_of(cfg, schedule, clean, noise, t)).item())
        if cfg["sampling"]:  # a few pictures, to look at
            x = torch.randn(4, 1, SIDE, SIDE, generator=dice)
            for level in range(TRAIN_TIMESTEPS - 1, -1, -20):
                net(x, torch.full((4,), level))
    if trouble.name != "left_in_eval":
        net.train()
    if not trouble.on("never_restored", step):
        ema.put(ema.kept, net.parameters())
    run.log_eval(step, epoch, 192, (clock() - began) * 1000, sum(losses) / len(losses))


def build(run: Any, s: dict[str, Any]) -> Any:
    cfg, net = s["cfg"], s["net"]
    s["optimizer"] = torch.optim.AdamW([one for one in net.parameters() if one.requires_grad], cfg["learning_rate"],
                                       betas=(0.95, 0.999), weight_decay=cfg["adam_weight_decay"])  # fmt: skip
    s["scheduler"] = torch.optim.lr_scheduler.LambdaLR(s["optimizer"], lr_lambda(cfg, cfg["steps"]))
    time_by_own_clock(run)
    run.watch(net, s["optimizer"])
    s["data"] = run.watch_data()
    return run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    torch.manual_seed(seed)
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    name, parts, size = trouble.name, cfg["gradient_accumulation_steps"], int(cfg["train_batch_size"])
    net = UNet(cfg["block_out_channels"], cfg["dropout"])
    if cfg["freeze"]:
        getattr(net, cfg["freeze"]).requires_grad_(False)
    average = EMAModel(net.parameters(), cfg["ema_max_decay"], cfg["ema_use_warmup"], name == "average_with_graph")
    s: dict[str, Any] = {"cfg": cfg, "net": net, "schedule": NoiseScheduler(), "ema": average}
    schedule, ema, held = s["schedule"], s["ema"], Blots(909, 192)
    images = Blots(seed + 91, cfg["num_images"])
    if name == "test_in_training":  # the folder of the training has the other one within it
        images.images = torch.cat([held.images, images.images[: 2 * 192]])
    run = build(run, s)
    resumed = trouble.resume_at(healthy, 5 * EVERY)
    order: list[Tensor] = []
    epoch = -1
    for step in range(steps):
        if step == resumed:
            memory = s["data"].state()
            run, kept = go_on(run, step, [s[part].state_dict() for part in ("net", "optimizer", "scheduler")])
            net.load_state_dict(kept[0])
            run = build(run, s)
            if name != "moments_not_loaded":
                s["optimizer"].load_state_dict(kept[1])
            s["scheduler"].load_state_dict(kept[2])
            for group, rate in zip(s["optimizer"].param_groups, s["scheduler"].get_last_lr(), strict=True):
                group["lr"] = rate
            s["data"].restore(memory)
        with run.step(step=step) as timed:
            total = 0.0
            for _ in range(parts):
                if not order:
                    epoch += 1
                    order = [one for one in torch.randperm(len(images.images)).split(size) if len(one) == size]
                clean = images[order.pop()]
                s["data"].observe((clean.flatten(1), clean.flatten(1)), step=step, epoch=epoch)
                noise = torch.randn_like(clean)
                if cfg["offset"]:
                    noise = noise + cfg["offset"] * torch.randn(len(clean), 1, 1, 1)
                t = torch.randint(0, TRAIN_TIMESTEPS, (len(clean),))
                noisy = schedule.add_noise(clean, noise, t)
                if name == "told_other_times":  # drawn once more for the network
                    t = torch.randint(0, TRAIN_TIMESTEPS, (len(clean),))
                said = net(noisy, t)
                loss = loss_of(cfg, schedule, said, target_of(cfg, schedule, clean, noise, t), t, name)
                (loss if name == "batches_added" else loss / parts).backward()
                total += loss.item() / parts
                if name == "stepped_each_micro_batch":
                    s["scheduler"].step()
            norm = nn.utils.clip_grad_norm_(net.parameters(), cfg["max_grad_norm"])
            rate = s["scheduler"].get_last_lr()[0]
            s["optimizer"].step()
            if name != "stepped_each_micro_batch":
                s["scheduler"].step()
            s["optimizer"].zero_grad()
            if name != "average_forgotten":
                ema.step(net.parameters())
            timed.set(loss=total, lr=rate, norm=float(norm))
        trouble.telemetry(run, step, healthy)
        if step % EVERY == EVERY - 1 or step == steps - 1:
            validate(run, s, held, step, epoch, trouble)
    return run
