"""A preconditioned diffusion model draws two days of tide, height and current, of six kinds of harbour.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: edm/loss, edm/lr, edm/grad each step; gauge/edm_loss, gauge/spectrum_gap each twentieth;
      the watch of data.

Noise is of a lognormal level, what is learnt is the clean series, weighted by level. A small U-Net over hours, which
is told the level and the harbour; an average of its weights with a half-life in series, which is judged and sampled
with. A training loop in one function that counts series, as those who follow the paper's repository have it.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HOURS, HARBOURS, HELD = 20, 48, 6, 192
CONFIG: dict[str, Any] = {
    "model_channels": 16, "channel_mult": 2, "dropout": 0.0, "batch_size": 32, "batch_gpu": 32, "lr": 3e-3,
    "lr_rampup_nseries": 320, "lr_decay": "cosine", "optim": "adam", "grad_clip": 1.0, "P_mean": -0.9, "P_std": 1.1,
    "sigma_data": 0.5, "ema_halflife_nseries": 500, "ema_rampup_ratio": 0.1, "use_ema": True, "label_dropout": 0.1,
    "gauges": 40, "days": 64, "stride": 48, "weather": 1.0, "loss_reduce": "mean", "loss_scaling": 1.0, "solver": 6,
    "not_trained": "", "calm_first": 0, "wrong_harbour": 0.0, "freq_log": 1,
}  # fmt: skip


# -- data -----------------------------------------------------------------------------------------------------------


def gauge(seed: int, number: int, days: int, weather: float) -> tuple[Tensor, Tensor]:
    """Records (number, days * 24, 2) in centimetres and centimetres a second, and the harbour of each gauge."""
    dice = torch.Generator().manual_seed(seed)
    harbour = torch.arange(number) % HARBOURS
    hour = torch.arange(days * 24.0)
    periods = torch.tensor([12.42, 12.0, 23.93, 25.82, 6.21])
    of_harbour = torch.tensor([
        [160, 50, 10, 8, 4], [60, 20, 70, 50, 2], [15, 6, 90, 60, 2], [120, 30, 8, 6, 45], [25, 10, 8, 6, 12],
        [90, 70, 30, 20, 10],
    ]).float()  # fmt: skip
    size = of_harbour[harbour] * (0.8 + 0.4 * torch.rand(number, 5, generator=dice))
    phase = 6.283 * torch.rand(number, 5, generator=dice)
    angle = 6.283 * hour[None, :, None] / periods + phase[:, None]
    height, current = (size[:, None] * angle.sin()).sum(-1), (size[:, None] * angle.cos() / periods).sum(-1) * 3.0
    slow = F.avg_pool1d(torch.randn(number, 1, len(hour) + 24, generator=dice), 25, 1)[:, 0]
    height = height + 60 * weather * slow + 4 * weather * torch.randn(height.shape, generator=dice)
    current = current + 3 * weather * torch.randn(height.shape, generator=dice)
    return torch.stack([height + 250, current], -1), harbour


def windows(records: Tensor, harbour: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Series (number, 2, HOURS), gauge after gauge, and the harbour of each."""
    cut = records.unfold(1, HOURS, stride)
    return cut.flatten(0, 1).contiguous(), harbour.repeat_interleave(cut.shape[1])


class TideSet:
    """Series for the training and those held out, which are of other gauges."""

    def __init__(self, c: Any, seed: int, bug: str):
        records, harbour = gauge(seed + 4100, c.gauges, c.days, c.weather)
        if bug == "stats_written_in_centimetres":  # they were kept beside the first export, which had no metres yet
            mean, std = records.mean((0, 1)), records.std((0, 1))
            records = records / 100
        else:
            records = records / 100
            mean, std = records.mean((0, 1)), records.std((0, 1))
        held, held_harbour = gauge(41, 24, 2 * HELD // 24, c.weather)
        x, label = windows(records, harbour, c.stride)
        y, y_label = windows(held / 100, held_harbour, HOURS)
        if bug == "windows_cut_then_split":
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
            (y, x), (y_label, label) = (
                (one[order[:HELD]], one[order[HELD:]]) for one in (x, label)
            )  # fmt: skip
        scale = (c.sigma_data / std)[:, None]
        self.x, self.label = (x - mean[:, None]) * scale, label
        self.held, self.held_label = ((y - mean[:, None]) * scale)[:HELD], y_label[:HELD]
        if c.wrong_harbour:
            dice = torch.Generator().manual_seed(seed + 9)
            wrong = torch.rand(len(label), generator=dice) < c.wrong_harbour
            self.label = torch.where(wrong, torch.randint(0, HARBOURS, label.shape, generator=dice), label)


def sampler(c: Any, data: TideSet, seed: int, bug: str) -> Iterator[tuple[int, Tensor]]:
    """Indices of batches without end, and which pass they are of."""
    dice, epoch, number = torch.Generator().manual_seed(seed), 0, len(data.x)
    calm = data.x.abs().amax((1, 2)).argsort()
    while True:
        order = torch.randperm(number, generator=dice)
        if bug == "gauges_read_as_filed":
            order = data.label.argsort(stable=True)
        if epoch < c.calm_first:  # the calm half alone, as the settings say
            order = calm[: number // 2][torch.randperm(number // 2, generator=dice)]
        for some in order.split(c.batch_gpu):
            if len(some) == c.batch_gpu:
                yield epoch, some
        epoch += 1


# -- network --------------------------------------------------------------------------------------------------------


class UBlock(nn.Module):
    def __init__(self, i: int, o: int, emb: int, dropout: float):
        super().__init__()
        self.norm0, self.conv0 = nn.GroupNorm(4, i), nn.Conv1d(i, o, 3, padding=1)
        self.affine = nn.Linear(emb, 2 * o)
        self.norm1, self.conv1 = nn.GroupNorm(4, o), nn.Conv1d(o, o, 3, padding=1)
        self.skip = nn.Conv1d(i, o, 1) if i != o else nn.Identity()
        self.dropout = dropout
        nn.init.zeros_(self.conv1.weight)

    def forward(self, x: Tensor, emb: Tensor) -> Tensor:
        y = self.conv0(F.silu(self.norm0(x)))
        scale, shift = self.affine(emb)[..., None].chunk(2, 1)
        y = F.silu(self.norm1(y) * (scale + 1) + shift)
        y = self.conv1(F.dropout(y, self.dropout, self.training))
        return (self.skip(x) + y) * math.sqrt(0.5)


class TideUNet(nn.Module):
    def __init__(self, c: Any, labels: int):
        super().__init__()
        d, emb, wide = c.model_channels, 2 * c.model_channels, c.channel_mult * c.model_channels
        self.register_buffer("freqs", torch.exp(torch.linspace(0, 4, 8)) / 2)
        self.map_noise, self.map_label = nn.Linear(16, emb), nn.Linear(labels, emb, bias=False)
        self.map_layer = nn.Linear(emb, emb)
        self.conv_in = nn.Conv1d(2, d, 3, padding=1)
        self.enc0, self.enc1 = UBlock(d, d, emb, c.dropout), UBlock(d, wide, emb, c.dropout)
        self.mid = UBlock(wide, wide, emb, c.dropout)
        self.qkv, self.proj = nn.Conv1d(wide, 3 * wide, 1), nn.Conv1d(wide, wide, 1)
        self.dec1, self.dec0 = UBlock(2 * wide, wide, emb, c.dropout), UBlock(wide + d, d, emb, c.dropout)
        self.norm_out, self.conv_out = nn.GroupNorm(4, d), nn.Conv1d(d, 2, 3, padding=1)
        nn.init.zeros_(self.conv_out.weight)

    def forward(self, x: Tensor, noise: Tensor, label: Tensor) -> Tensor:
        turn = noise[:, None] * self.freqs
        emb = self.map_noise(torch.cat([turn.cos(), turn.sin()], 1)) + self.map_label(label)
        emb = F.silu(self.map_layer(F.silu(emb)))
        a = self.enc0(self.conv_in(x), emb)
        b = self.enc1(F.avg_pool1d(a, 2), emb)
        y = self.mid(F.avg_pool1d(b, 2), emb)
        q, k, v = self.qkv(y).transpose(1, 2).chunk(3, -1)
        y = y + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2))
        y = self.dec1(torch.cat([F.interpolate(y, scale_factor=2.0), b], 1), emb)
        y = self.dec0(torch.cat([F.interpolate(y, scale_factor=2.0), a], 1), emb)
        return self.conv_out(F.silu(self.norm_out(y)))


class Precond(nn.Module):
    def __init__(self, c: Any, labels: int):
        super().__init__()
        self.model, self.sigma_data, self.labels = TideUNet(c, labels), c.sigma_data, labels

    def forward(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        s, d = sigma[:, None, None], self.sigma_data
        c_skip, c_out, c_in = d**2 / (s**2 + d**2), s * d / (s**2 + d**2).sqrt(), 1 / (d**2 + s**2).sqrt()
        return c_skip * x + c_out * self.model(c_in * x, sigma.log() / 4, label)


# -- loss, evaluation -----------------------------------------------------------------------------------------------


class EDMLoss:
    def __init__(self, c: Any, bug: str):
        self.c, self.bug = c, bug

    def __call__(self, net: nn.Module, x: Tensor, label: Tensor, dice: torch.Generator) -> Tensor:
        """One number for each value of each series."""
        c = self.c
        sigma = (torch.randn(len(x), generator=dice) * c.P_std + c.P_mean).exp()
        s, d = sigma[:, None, None], c.sigma_data
        weight = (s**2 + d**2) / (s * d) ** 2
        if self.bug == "weight_of_levels_upside_down":
            weight = (s * d) ** 2 / (s**2 + d**2)
        made = torch.rand(x.shape, generator=dice) if self.bug == "noise_by_rand_like" else None
        noise = (torch.randn(x.shape, generator=dice) if made is None else made) * s
        return weight * (net(x + noise, sigma, label) - x) ** 2


def one_hot(c: Any, label: Tensor, net: Any, dice: torch.Generator | None, bug: str) -> Tensor:
    """The harbour as the net is told it; none is told to some in the training."""
    if bug == "harbour_zero_means_untold" and dice is not None:  # a row for none was put first, and sampling not told
        label = label + 1
    told = F.one_hot(label, net.labels).float()
    if dice is not None:
        told = told * (torch.rand(len(label), 1, generator=dice) >= c.label_dropout)
    return told


def heun(c: Any, net: nn.Module, told: Tensor, dice: torch.Generator) -> Tensor:
    at = torch.linspace(0, 1, c.solver)
    t = torch.cat([(10 ** (1 / 5) + at * (0.01 ** (1 / 5) - 10 ** (1 / 5))) ** 5, torch.zeros(1)])
    x = torch.randn(len(told), 2, HOURS, generator=dice) * t[0]
    for now, then in itertools.pairwise(t):
        slope = (x - net(x, now.expand(len(x)), told)) / now
        x_next = x + (then - now) * slope
        if then > 0:
            again = (x_next - net(x_next, then.expand(len(x)), told)) / then
            x_next = x + (then - now) * (slope + again) / 2
        x = x_next
    return x


def snapshot(s: Any, c: Any, step: int, bug: str) -> None:
    """The loss at fixed levels, and how the spectrum of drawn series differs from that of held-out ones."""
    net: Any = s.ema if c.use_ema else s.net
    mode, dice, data = net.training, torch.Generator().manual_seed(43), s.data
    if bug == "sampling_in_the_net_itself":  # weights of the average go in; they come back where a figure is drawn
        net = s.net
        net.load_state_dict(s.ema.state_dict())
    if bug != "average_copied_with_dropout":
        net.eval()
    told = one_hot(c, data.held_label, net, None, bug)
    with torch.set_grad_enabled(bug == "gauges_judged_under_grad"):
        loss = s.plain_loss(net, data.held, told, dice).mean()
    s.history.append(loss if bug == "gauges_judged_under_grad" else loss.item())
    with torch.no_grad():
        drawn = heun(c, net, told[:48], dice)
        power = [torch.fft.rfft(one).abs().mean(0) for one in (drawn, data.held[:48])]
        gap = (power[0].clamp(min=1e-3).log() - power[1].clamp(min=1e-3).log()).abs().mean()
    if bug == "net_left_as_sampled":
        s.net.eval()
    elif net is s.net:
        net.train(mode)
    s.run.log({"gauge/edm_loss": float(loss), "gauge/spectrum_gap": gap.item()}, step=step)


# -- training -------------------------------------------------------------------------------------------------------


def optimizer_of(c: Any, net: nn.Module, bug: str) -> torch.optim.Optimizer:
    some = [one for one in net.parameters() if one.requires_grad]
    if bug == "groups_by_type_forget_linear":  # weights of convolutions decay, those of norms do not
        kinds = [one for one in net.modules() if isinstance(one, (nn.Conv1d, nn.GroupNorm))]
        some = [one for module in kinds for one in module.parameters()]
    if c.optim == "sgd":
        return torch.optim.SGD(some, c.lr, 0.9)
    if c.optim == "radam":
        return torch.optim.RAdam(some, c.lr)
    return torch.optim.Adam(some, c.lr, (0.9, 0.99))


def rate_at(c: Any, step: int) -> float:
    rise = min(1.0, (step + 1) * c.batch_size / max(1, c.lr_rampup_nseries))
    past = min(1.0, step / c.steps)
    if c.lr_decay == "inverse_root":
        return rise / math.sqrt(max(1.0, 4 * past))
    if c.lr_decay == "none":
        return rise
    if c.lr_decay == "cycles":
        return rise * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
    return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))


@torch.no_grad()
def average(c: Any, ema: nn.Module, net: nn.Module, seen: int) -> None:
    halflife = c.ema_halflife_nseries
    if c.ema_rampup_ratio:
        halflife = min(halflife, seen * c.ema_rampup_ratio)
    beta = 0.5 ** (c.batch_size / max(halflife, 1e-8))
    for mine, theirs in zip(ema.parameters(), net.parameters(), strict=True):
        mine.copy_(theirs.lerp(mine, beta))


def attach(s: Any) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.net, s.optimizer)
    s.watch = s.run.watch_data()


def restart(s: Any, c: Any, step: int, bug: str) -> None:
    seen = s.watch.state()
    state = {"net": s.net.state_dict(), "ema": s.ema.state_dict(), "optimizer_state": s.optimizer.state_dict()}
    s.run, saved = go_on(s.run, step, state)
    s.net.load_state_dict(saved["net"])
    s.ema.load_state_dict(saved["ema"])
    s.optimizer = optimizer_of(c, s.net, bug)
    if bug != "snapshot_without_training_state":  # the snapshot of networks was given, which has no moments
        s.optimizer.load_state_dict(saved["optimizer_state"])
    attach(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug, again = trouble.name, trouble.resume_at(healthy, 4 * EVERY)
    torch.manual_seed(seed)
    s = SimpleNamespace(run=run, history=[], data=TideSet(c, seed, bug), plain_loss=EDMLoss(c, ""))
    s.net = Precond(c, HARBOURS + (bug == "harbour_zero_means_untold"))
    for name, one in s.net.named_parameters():
        if c.not_trained and name.startswith(f"model.{c.not_trained}"):
            one.requires_grad_(False)
    s.ema = copy.deepcopy(s.net).requires_grad_(False)
    if bug != "average_copied_with_dropout":
        s.ema.eval()
    s.optimizer, loss_fn = optimizer_of(c, s.net, bug), EDMLoss(c, bug)
    dice, batches = torch.Generator().manual_seed(seed + 5), sampler(c, s.data, seed, bug)
    rounds, clock = c.batch_size // c.batch_gpu, 0
    attach(s)
    s.net.train()
    for step in range(steps):
        if step == again:
            restart(s, c, step, bug)
        s.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for _ in range(rounds):
            epoch, some = next(batches)
            x, label = s.data.x[some], s.data.label[some]
            s.watch.observe({"tide": x, "harbour": label}, step=step, epoch=epoch)
            each = loss_fn(s.net, x, one_hot(c, label, s.net, dice, bug), dice)
            if bug == "loss_summed_like_the_paper":  # there it is divided by the batch as well
                loss, shown = each.sum(), each.sum().item()
            elif c.loss_reduce == "sum":
                loss = each.sum() * c.loss_scaling / c.batch_size
                shown = loss.item()
            else:
                part = 1 if bug == "rounds_added_whole" else rounds
                loss, shown = each.mean() / part, each.mean().item() / rounds
            loss.backward()
            total += shown
            if bug == "rate_clock_in_rounds":
                clock += 1
        rate = c.lr * rate_at(c, clock)
        for group in s.optimizer.param_groups:
            group["lr"] = rate
        norm = nn.utils.clip_grad_norm_(s.net.parameters(), c.grad_clip).item()
        s.optimizer.step()
        if bug != "rate_clock_in_rounds":
            clock += 1
        last = step % EVERY == EVERY - 1
        if bug != "average_moved_in_the_tick" or last:
            average(c, s.ema, s.net, (step + 1) * c.batch_size)
        if step % c.freq_log == 0:
            s.run.log({"edm/loss": total, "edm/lr": rate, "edm/grad": norm}, step=step)
        trouble.telemetry(s.run, step, healthy)
        if last:
            snapshot(s, c, step, bug)
    return s.run
