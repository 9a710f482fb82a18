"""A small network of convolutions takes noise off pictures of smoke above five chimneys; an average of it is judged.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: noising/mse, noising/lr, noising/norm each step; shadow/mse and shadow/grey_gap of pictures
      that the average draws, each twenty-fourth; memory, where it matters; the watch of data.

A picture has 8 by 8 greys from 0 to 255: smoke rises from the middle of the lowest row, bends with the wind and widens
as its chimney has it. The network halves the picture once and has a way around; batch norms are scaled and shifted by
what is known of time and chimney. There are 200 times. Written as a course with handlers that are called behind each
update.
"""

from __future__ import annotations

import copy
import itertools
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SIDE, CHIMNEYS, TIMES, HELD = 24, 8, 5, 200, 120
CONFIG: dict[str, Any] = {
    "channels": 16, "norm": "batch", "dropout": 0.0, "betas": "cosine", "predict": "noise", "batch": 32,
    "micro_batches": 1, "optimizer": "adamw", "lr": 4e-3, "weight_decay": 1e-4, "schedule": "trapezoid", "warmup": 10,
    "clip": 1.0, "error": "square", "sum_pixels": False, "decay": 0.95, "untold": 0.1, "plumes": 720, "frames": 1,
    "haze": 4.0, "calm_first_epochs": 0, "hold": "", "mirror": False, "weight_of_times": "none", "draw_steps": 8,
    "judge_every": 24, "log_every": 1,
}  # fmt: skip


# -- smoke ----------------------------------------------------------------------------------------------------------


def smoke(seed: int, number: int, frames: int = 1, haze: float = 4.0) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures, their chimneys and winds, chimney after chimney. frames: pictures of one plume."""
    dice, many = torch.Generator().manual_seed(seed), number // frames
    chimney = (torch.arange(many) * CHIMNEYS // many).repeat_interleave(frames)
    wind = (2 * torch.rand(many, generator=dice) - 1).repeat_interleave(frames)
    thick = (0.7 + 0.4 * torch.rand(many, generator=dice)).repeat_interleave(frames)
    kind = chimney[:, None, None]
    high = (SIDE - 1 - torch.arange(SIDE))[None, :, None] / (SIDE - 1)
    middle = 3.5 + 3.4 * wind[:, None, None] * high ** (0.8 + 0.35 * kind)
    wide = 0.5 + (0.2 + 0.45 * kind) * high
    dense = torch.exp(-(((torch.arange(SIDE)[None, None] - middle) / wide) ** 2)) * (1 - 0.13 * kind * high)
    grey = 25 + 190 * thick[:, None, None] * dense
    grey = grey + haze * torch.randn(grey.shape, generator=dice)
    return grey.clamp(0, 255)[:, None], chimney, wind


def scaled(grey: Tensor) -> Tensor:
    return grey / 127.5 - 1


# -- network --------------------------------------------------------------------------------------------------------


class Told(nn.Module):
    """Two convolutions beside a way around; what is known scales and shifts the norm between them."""

    def __init__(self, into: int, out: int, wide: int, c: Any):
        super().__init__()
        self.first, self.second = nn.Conv2d(into, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.norm: nn.Module = nn.BatchNorm2d(out) if c.norm == "batch" else nn.GroupNorm(4, out)
        self.told, self.drop = nn.Linear(wide, 2 * out), nn.Dropout(c.dropout)
        self.around = nn.Conv2d(into, out, 1) if into != out else nn.Identity()

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        grow, move = self.told(told)[:, :, None, None].chunk(2, 1)
        y = F.silu(self.norm(self.first(x)) * (1 + grow) + move)
        return self.around(x) + self.second(self.drop(y))


class SmokeNet(nn.Module):
    """The last row of `chimney` is for a picture whose chimney is not told."""

    def __init__(self, c: Any):
        super().__init__()
        d, wide = c.channels, 2 * c.channels
        self.time = nn.Sequential(nn.Linear(16, wide), nn.SiLU(), nn.Linear(wide, wide))
        self.chimney = nn.Embedding(CHIMNEYS + 1, wide)
        self.enter, self.above = nn.Conv2d(1, d, 3, padding=1), Told(d, d, wide, c)
        self.halve, self.below = nn.Conv2d(d, wide, 2, stride=2), Told(wide, wide, wide, c)
        self.enlarge, self.after = nn.ConvTranspose2d(wide, d, 2, stride=2), Told(2 * d, d, wide, c)
        self.leave = nn.Conv2d(d, 1, 3, padding=1)
        self.rates = torch.exp(-torch.arange(8) * math.log(400) / 8)

    def forward(self, x: Tensor, time: Tensor, chimney: Tensor) -> Tensor:
        turn = time[:, None] * self.rates
        told = F.silu(self.time(torch.cat([turn.sin(), turn.cos()], 1)) + self.chimney(chimney))
        upper = self.above(self.enter(x), told)
        lower = self.below(self.halve(upper), told)
        return self.leave(self.after(torch.cat([upper, self.enlarge(lower)], 1), told))


class Shadow:
    """The average of a network's weights."""

    def __init__(self, net: nn.Module, decay: float, bug: str):
        self.source, self.decay, self.bug = net, decay, bug
        self.net = copy.deepcopy(net).requires_grad_(False)

    @torch.no_grad()
    def update(self) -> None:
        for mean, one in zip(self.net.parameters(), self.source.parameters(), strict=True):
            mean.lerp_(one, 1 - self.decay)
        if self.bug == "shadow_takes_parameters_alone":
            return
        for mean, one in zip(self.net.buffers(), self.source.buffers(), strict=True):
            mean.copy_(one)


# -- noise ----------------------------------------------------------------------------------------------------------


def kept(betas: str) -> Tensor:
    """What share of a picture's power is left at each time."""
    if betas == "linear":
        return torch.cumprod(1 - torch.linspace(5e-4, 0.05, TIMES), 0)
    return torch.cos((torch.arange(TIMES) + 2) / (TIMES + 4) * math.pi / 2) ** 2


def noised(share: Tensor, clean: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    left = share[time][:, None, None, None]
    return left.sqrt() * clean + (1 - left).sqrt() * noise


def wanted(c: Any, share: Tensor, clean: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    left = share[time][:, None, None, None]
    if c.predict == "velocity":
        return left.sqrt() * noise - (1 - left).sqrt() * clean
    return clean if c.predict == "picture" else noise


def draw(c: Any, net: nn.Module, share: Tensor, chimney: Tensor) -> Tensor:
    """Pictures, without chance behind their first noise."""
    x = torch.randn(len(chimney), 1, SIDE, SIDE)
    times = torch.linspace(TIMES - 1, 0, c.draw_steps + 1).long()
    for now, following in itertools.pairwise(times):
        said, left = net(x, now.expand(len(x)), chimney), share[now]
        if c.predict == "noise":
            clean = (x - (1 - left).sqrt() * said) / left.sqrt()
        else:
            clean = said if c.predict == "picture" else left.sqrt() * x - (1 - left).sqrt() * said
        clean = clean.clamp(-1.2, 1.2)
        noise = (x - left.sqrt() * clean) / (1 - left).sqrt()
        x = share[following].sqrt() * clean + (1 - share[following]).sqrt() * noise
    return x


# -- course ---------------------------------------------------------------------------------------------------------


class Course:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.drawn: list[Any] = []
        self.share = kept(self.c.betas)
        self.load()
        torch.manual_seed(seed)
        self.net = SmokeNet(self.c)
        self.shadow = Shadow(self.net, self.c.decay, bug)
        if bug == "shadow_holds_the_net_from_before_its_copy":  # copied for the device, behind the shadow
            self.net = copy.deepcopy(self.net)
        held = tuple(filter(None, self.c.hold.split(",")))
        if bug == "lower_part_held_as_in_the_stage_before":
            held = ("halve", "below", "enlarge")
        for name, one in self.net.named_parameters():
            if name.startswith(held) and held:
                one.requires_grad_(False)
        self.prepare()

    def load(self) -> None:
        c, bug = self.c, self.bug
        grey, chimney, wind = smoke(self.seed + 2500, c.plumes, c.frames, c.haze)
        held, told, _ = smoke(2499, HELD)
        self.clean, self.chimney, self.calm = scaled(grey), chimney, wind.abs() < 0.5
        self.held = (held / 255 if bug == "held_pictures_from_to_tensor_alone" else scaled(held)), told

    def prepare(self) -> None:
        c = self.c
        some = [one for one in self.net.parameters() if one.requires_grad]
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.lr, 0.9)
        elif c.optimizer == "adamax":
            self.optimizer = torch.optim.Adamax(some, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.factor)

    def factor(self, at: int) -> float:
        c, past = self.c, min(1.0, at / self.steps)
        rise = min(1.0, (at + 1) / max(1, c.warmup))
        if c.schedule == "level":
            return rise
        if c.schedule == "two_cycles":
            return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
        return rise * min(1.0, (1 - past) / 0.4)

    def batches(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.clean), generator=dice)
            if self.bug == "pictures_listed_and_not_shuffled":
                order = torch.arange(len(self.clean))
            if epoch < c.calm_first_epochs:
                order = order[self.calm[order]]
            for some in order.split(c.batch):
                if len(some) == c.batch:
                    clean = self.clean[some]
                    turned = torch.rand(len(some), generator=dice) < 0.5 if c.mirror else torch.zeros(len(some)).bool()
                    yield epoch, torch.where(turned[:, None, None, None], clean.flip(3), clean), self.chimney[some]
            epoch += 1

    def loss(self, clean: Tensor, chimney: Tensor) -> Tensor:
        c, bug, many = self.c, self.bug, len(clean)
        time = torch.randint(0, TIMES, (1 if bug == "one_time_for_the_batch" else many,)).expand(many)
        noise = torch.randn_like(clean)
        told = torch.where(torch.rand(many) < c.untold, CHIMNEYS, chimney)
        said = self.net(noised(self.share, clean, noise, time), time, told)
        each = said - wanted(c, self.share, clean, noise, time)
        each = each.abs() if c.error == "absolute" else each**2
        if c.weight_of_times == "min_snr":
            ratio = (self.share / (1 - self.share))[time][:, None, None, None]
            each = each * ratio.clamp(max=5) / ratio
        return each.flatten(1).sum(1).mean() if c.sum_pixels or bug == "sum_over_a_picture_of_pixels" else each.mean()

    def judge(self, step: int) -> None:
        if step % self.c.judge_every != self.c.judge_every - 1:
            return
        c, bug, net, taped = self.c, self.bug, self.shadow.net, self.bug == "judge_lost_its_decorator"
        before = self.net.state_dict()
        if bug == "before_is_no_copy_of_the_weights":  # the average is judged in the net's place, then put back
            self.net.load_state_dict(net.state_dict())
        self.net.eval()
        net.train(bug == "shadow_is_in_the_mode_of_its_copying")
        net.requires_grad_(taped)
        share = kept("linear") if bug == "judged_with_the_scheduler_by_default" else self.share
        with torch.random.fork_rng(), torch.set_grad_enabled(taped):
            torch.manual_seed(12)
            clean, chimney = self.held
            time, noise = torch.arange(len(clean)) * 37 % TIMES, torch.randn_like(clean)
            said = net(noised(share, clean, noise, time), time, chimney)
            loss = F.mse_loss(said, wanted(c, share, clean, noise, time))
            made = draw(c, net, share, chimney)
            gap = torch.stack([(made - clean)[chimney == at].mean().abs() for at in range(CHIMNEYS)]).mean()
        if taped:
            self.drawn.append((loss, gap))
        self.run.log({"shadow/mse": loss.item(), "shadow/grey_gap": gap.item()}, step=step)
        if bug == "before_is_no_copy_of_the_weights":
            self.net.load_state_dict(before)
        if bug != "net_stays_as_the_drawing_needs_it":
            self.net.train()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)
        self.watch = self.run.watch_data()

    def resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"net": self.net.state_dict(), "shadow": self.shadow.net.state_dict(),
                 "optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.net.load_state_dict(state["net"])
        self.shadow.net.load_state_dict(state["shadow"])
        self.prepare()
        if self.bug != "file_of_two_nets_and_no_more":
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
        self.observe()
        self.watch.restore(seen)

    def update(self, step: int, stream: Any) -> dict[str, float]:
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.micro_batches):
            epoch, clean, chimney = next(stream)
            self.watch.observe({"picture": clean, "chimney": chimney}, step=step, epoch=epoch)
            loss = self.loss(clean, chimney)
            (loss if bug == "micro_batch_losses_in_full" else loss / c.micro_batches).backward()
            total += loss.item() / c.micro_batches
            if bug == "schedule_goes_with_micro_batches":
                self.schedule.step()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.clip).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if bug != "schedule_goes_with_micro_batches":
            self.schedule.step()
        return {"noising/mse": total, "noising/lr": rate, "noising/norm": norm}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    course = Course(run, seed, steps, trouble.name)
    again, stream = trouble.resume_at(healthy, 3 * EVERY), course.batches()
    handlers = (lambda step: course.shadow.update(), course.judge,
                lambda step: trouble.telemetry(course.run, step, healthy))  # fmt: skip
    course.observe()
    course.net.train()
    for step in range(steps):
        if step == again:
            course.resume(step)
        said = course.update(step, stream)
        if step % course.c.log_every == 0:
            course.run.log(said, step=step)
        for handler in handlers:
            handler(step)
    return course.run
