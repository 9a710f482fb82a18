"""Small pictures of skylines are drawn out of noise by a net of convolutions, with an average of its weights to judge.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: v/step, v/lr, v/grad each step; shadowed/v and shadowed/heights_off of what the average
      draws, each sixteenth; memory, where it matters; the watch of data.

A picture has 12 rows and 16 columns in shades of grey from 0 to 255: a town of one of four kinds before a sky. Some
may be crops of one panorama. There are a hundred levels of noise in a cosine, and the net tells the velocity; the level
and the kind go into each block as scale and shift. Written as a module with hooks, callbacks, and a small fitter that
calls them.
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

EVERY, ROWS, COLUMNS, HELD = 16, 12, 16, 128
TOWNS = ("village", "harbour", "downtown", "suburb")
CONFIG: dict[str, Any] = {
    "channels": 16, "norm": "batch", "dropout": 0.0, "batch_size": 24, "accumulate_grad_batches": 1, "optim": "adamw",
    "lr": 4e-3, "lr_policy": "cosine", "warm_steps": 8, "weight_decay": 0.0, "gradient_clip_val": 1.0,
    "objective": "mean", "snr_cap": 0.0, "ema_decay": 0.9, "levels": 100, "null_share": 0.1, "pictures": 900,
    "crops": 1, "haze": 8.0, "mirror": False, "clear_first": 0, "fixed": "", "sampler_steps": 8,
    "judge_every_n_steps": 16, "log_every_n_steps": 1,
}  # fmt: skip


# -- pictures -------------------------------------------------------------------------------------------------------


def skylines(seed: int, number: int, crops: int = 1, haze: float = 8.0) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures from 0 to 255, kinds of town, and haze of each, town after town. crops: of one panorama."""
    dice, many = torch.Generator().manual_seed(seed), number // crops
    kind = torch.arange(many) * len(TOWNS) // many
    wide, mean, spread = torch.tensor([[2, 3, 0.8], [3, 4, 1.5], [2, 7, 2.5], [4, 5, 0.6]])[kind].T
    block = (torch.arange(COLUMNS + 4)[None] / wide[:, None]).long()
    tall = mean[:, None] + spread[:, None] * torch.randn(many, COLUMNS, generator=dice)
    shade = 60 + 70 * torch.rand(many, COLUMNS, generator=dice)
    sky = 170 + 50 * torch.rand(many, generator=dice)
    tall, shade = (one.gather(1, block.clamp(max=COLUMNS - 1)) for one in (tall, shade))
    tall, shade, sky, kind = (one.repeat_interleave(crops, 0) for one in (tall, shade, sky, kind))
    start = torch.randint(0, 5, (len(kind), 1), generator=dice)
    at = start + torch.arange(COLUMNS)
    tall, shade = tall.gather(1, at), shade.gather(1, at)
    up = ROWS - torch.arange(ROWS)[:, None]
    pictures = torch.where(up <= tall[:, None], shade[:, None], sky[:, None, None])
    dim = haze * (0.5 + torch.rand(len(kind), generator=dice))
    pictures = pictures + dim[:, None, None] * torch.randn(pictures.shape, generator=dice)
    return pictures.clamp(0, 255), kind, dim


def heights(pictures: Tensor) -> Tensor:
    """How much of each picture is town, by its shades."""
    return (pictures < 150).float().mean((1, 2)) * ROWS


# -- net ------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, into: int, out: int, told: int, c: Any):
        super().__init__()
        self.norm = nn.BatchNorm2d(into) if c.norm == "batch" else nn.GroupNorm(4 if into > 1 else 1, into)
        self.conv, self.again = nn.Conv2d(into, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.told, self.drop = nn.Linear(told, 2 * out), nn.Dropout(c.dropout)
        self.past = nn.Conv2d(into, out, 1)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        scale, shift = self.told(told)[..., None, None].chunk(2, 1)
        y = F.silu(self.conv(self.norm(x)) * (1 + scale) + shift)
        return self.past(x) + self.again(self.drop(y))


class Painter(nn.Module):
    """The last row of `kind` is for pictures whose town is not told."""

    def __init__(self, c: Any):
        super().__init__()
        d = c.channels
        self.time, self.kind = nn.Linear(16, 2 * d), nn.Embedding(len(TOWNS) + 1, 2 * d)
        self.enter = nn.Conv2d(1, d, 3, padding=1)
        self.down, self.mid = Block(d, 2 * d, 2 * d, c), Block(2 * d, 2 * d, 2 * d, c)
        self.up, self.leave = Block(3 * d, d, 2 * d, c), nn.Conv2d(d, 1, 3, padding=1)

    def forward(self, x: Tensor, level: Tensor, kind: Tensor) -> Tensor:
        turns = level[:, None] / 1000 * 400 ** (torch.arange(8) / 7)
        told = F.silu(self.time(torch.cat([turns.sin(), turns.cos()], 1)) + self.kind(kind))
        one = self.enter(x[:, None])
        two = self.mid(self.down(F.avg_pool2d(one, 2), told), told)
        return self.leave(self.up(torch.cat([F.interpolate(two, scale_factor=2.0), one], 1), told))[:, 0]


# -- module ---------------------------------------------------------------------------------------------------------


class SkylineModule:
    """What is learnt, with the hooks that a fitter calls."""

    def __init__(self, c: Any, seed: int, bug: str):
        self.c, self.seed, self.bug = c, seed, bug
        pictures, kind, self.dim = skylines(seed + 4100, c.pictures, c.crops, c.haze)
        held, town, _ = skylines(4099, HELD)
        self.pictures, self.kind = pictures / 127.5 - 1, kind
        self.held = (held / 255 if bug == "held_pictures_from_nought_to_one" else held / 127.5 - 1), town
        if bug == "towns_counted_from_one":
            self.kind = kind + 1
        torch.manual_seed(seed)
        self.net = Painter(c)
        for name in filter(None, c.fixed.split(",")):
            self.net.get_submodule(name).requires_grad_(False)
        angle = (torch.arange(1, c.levels + 1) / (c.levels + 1)) * math.pi / 2
        self.signal, self.noise = angle.cos(), angle.sin()

    def loader(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.kind), generator=dice)
            if self.bug == "loader_made_without_shuffle":
                order = torch.arange(len(self.kind))
            if epoch < c.clear_first:
                order = order[self.dim[order] < c.haze]
            for some in order.split(c.batch_size):
                if len(some) == c.batch_size:
                    yield epoch, self.pictures[some], self.kind[some]
            epoch += 1

    def velocity(self, net: nn.Module, clean: Tensor, level: Tensor, kind: Tensor, training: bool) -> Tensor:
        """Square errors of the net's velocity."""
        a, s = self.signal[level, None, None], self.noise[level, None, None]
        eps = torch.randn_like(clean)
        mixed = a * clean + s * eps
        if training and self.bug == "mix_by_the_squares":
            mixed = a**2 * clean + s**2 * eps
        asked = level * (1000 / self.c.levels)
        if training and self.bug == "level_as_a_share_in_training":
            asked = level / self.c.levels
        return (net(mixed, asked, kind) - (a * eps - s * clean)) ** 2

    def training_step(self, pictures: Tensor, kind: Tensor) -> Tensor:
        c = self.c
        if c.mirror:
            turned = torch.rand(len(kind)) < 0.5
            pictures = torch.where(turned[:, None, None], pictures.flip(2), pictures)
        level = torch.randint(0, c.levels, (len(kind),))
        kind = torch.where(torch.rand(len(kind)) < c.null_share, len(TOWNS), kind)
        each = self.velocity(self.net, pictures, level, kind, True)
        if c.snr_cap:
            ratio = (self.signal[level] / self.noise[level]) ** 2
            each = each * (ratio.clamp(max=c.snr_cap) / (ratio + 1))[:, None, None]
        if c.objective == "sum" or self.bug == "squares_of_pixels_added":
            return each.sum() / len(kind)
        return each.mean()

    def configure_optimizers(self, steps: int) -> tuple[Any, Any]:
        c = self.c
        named = [(name, one) for name, one in self.net.named_parameters() if one.requires_grad]
        if self.bug == "groups_leave_the_way_up_out":
            named = [one for one in named if not one[0].startswith("up")]
        some = [one for _, one in named]
        if c.optim == "sgd":
            optimizer: Any = torch.optim.SGD(some, c.lr, 0.9)
        elif c.optim == "adamax":
            optimizer = torch.optim.Adamax(some, c.lr)
        else:
            optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warm_steps)), min(1.0, at / steps)
            if c.lr_policy == "constant":
                return rise
            if c.lr_policy == "linear":
                return rise * (1 - 0.98 * past)
            if c.lr_policy == "warm_restarts":
                past = 2 * past % 1
            return rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * past)))

        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, by)

    def draw(self, net: nn.Module, kind: Tensor) -> Tensor:
        x = torch.randn(len(kind), ROWS, COLUMNS)
        levels = torch.linspace(self.c.levels - 1, 0, self.c.sampler_steps).long().tolist()
        for now, then in zip(levels, [*levels[1:], None], strict=True):
            a, s = self.signal[now], self.noise[now]
            v = net(x, torch.full((len(kind),), now * 1000 / self.c.levels), kind)
            clean, eps = (a * x - s * v).clamp(-1.2, 1.2), s * x + a * v
            x = clean if then is None else self.signal[then] * clean + self.noise[then] * eps
        return (x + 1) * 127.5


# -- callbacks ------------------------------------------------------------------------------------------------------


class Callback:
    def on_train_batch_end(self, fitter: Fitter) -> None: ...

    def on_judge(self, fitter: Fitter, step: int) -> None: ...


class Shadow(Callback):
    """An average of the weights, and figures of the norms as they are now."""

    def __init__(self, module: SkylineModule):
        self.net, self.decay, self.bug = copy.deepcopy(module.net).requires_grad_(False), module.c.ema_decay, module.bug
        if self.bug == "hook_of_the_shadow_is_misspelt":
            self.on_train_batch_ends = self.on_train_batch_end
            self.on_train_batch_end = super().on_train_batch_end  # type: ignore[method-assign]

    @torch.no_grad()
    def on_train_batch_end(self, fitter: Fitter) -> None:
        for mean, one in zip(self.net.parameters(), fitter.module.net.parameters(), strict=True):
            mean.lerp_(one, 1 - self.decay)
        if self.bug != "shadow_follows_parameters_alone":
            for mean, one in zip(self.net.buffers(), fitter.module.net.buffers(), strict=True):
                mean.copy_(one)


class Judge(Callback):
    def __init__(self) -> None:
        self.history: list[Any] = []

    def on_judge(self, fitter: Fitter, step: int) -> None:
        module, bug, net = fitter.module, fitter.module.bug, fitter.shadow.net
        kept, taped = copy.deepcopy(module.net.state_dict()), bug == "judge_keeps_losses_as_they_are"
        module.net.load_state_dict(net.state_dict())
        module.net.train(bug == "judge_forgets_its_mode")
        with torch.random.fork_rng(), torch.set_grad_enabled(taped):
            torch.manual_seed(61)
            pictures, kind = module.held
            level = torch.arange(HELD) * module.c.levels // HELD
            loss = module.velocity(module.net, pictures, level, kind, False).mean()
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(62)
            off = (heights(module.draw(module.net, kind)) - heights((pictures + 1) * 127.5)).abs().mean()
        if taped:
            self.history.append(loss)
        fitter.run.log({"shadowed/v": loss.item(), "shadowed/heights_off": off.item()}, step=step)
        if bug != "shadow_stays_behind_the_judge":
            module.net.load_state_dict(kept)
        if bug != "net_stays_as_the_judge_left_it":
            module.net.train()


# -- fitter ---------------------------------------------------------------------------------------------------------


class Fitter:
    def __init__(self, run: Any, module: SkylineModule, steps: int):
        self.run, self.module, self.steps = run, module, steps
        self.shadow = Shadow(module)
        self.callbacks: list[Callback] = [self.shadow, Judge()]
        self.optimizer, self.scheduler = module.configure_optimizers(steps)

    def call(self, hook: str, *more: Any) -> None:
        for one in self.callbacks:
            getattr(one, hook)(self, *more)

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.module.net, self.optimizer)
        self.watch = self.run.watch_data()

    def restore(self, step: int) -> None:
        seen, net = self.watch.state(), self.module.net
        state = {"state_dict": net.state_dict(), "shadow": self.shadow.net.state_dict(),
                 "optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        net.load_state_dict(state["state_dict"])
        self.shadow.net.load_state_dict(state["shadow"])
        self.optimizer, self.scheduler = self.module.configure_optimizers(self.steps)
        if self.module.bug != "weights_only_checkpoint_is_gone_on_from":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
        self.observe()
        self.watch.restore(seen)

    def step(self, step: int, loader: Any) -> dict[str, float]:
        c, bug, total = self.module.c, self.module.bug, 0.0
        for _ in range(c.accumulate_grad_batches):
            epoch, pictures, kind = next(loader)
            self.watch.observe({"pictures": pictures, "town": kind}, step=step, epoch=epoch)
            loss = self.module.training_step(pictures, kind)
            (loss if bug == "batches_accumulated_whole" else loss / c.accumulate_grad_batches).backward()
            total += loss.item() / c.accumulate_grad_batches
            if bug == "scheduler_interval_is_the_batch":
                self.scheduler.step()
        norm = nn.utils.clip_grad_norm_(self.module.net.parameters(), c.gradient_clip_val).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.module.net.zero_grad()
        if bug != "scheduler_interval_is_the_batch":
            self.scheduler.step()
        self.call("on_train_batch_end")
        return {"v/step": total, "v/lr": rate, "v/grad": norm}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    fitter = Fitter(run, SkylineModule(SimpleNamespace(**run.config), seed, trouble.name), steps)
    c, again, loader = fitter.module.c, trouble.resume_at(healthy, 4 * EVERY), fitter.module.loader()
    fitter.observe()
    fitter.module.net.train()
    for step in range(steps):
        if step == again:
            fitter.restore(step)
        said = fitter.step(step, loader)
        if step % c.log_every_n_steps == 0:
            fitter.run.log(said, step=step)
        trouble.telemetry(fitter.run, step, healthy)
        if step % c.judge_every_n_steps == c.judge_every_n_steps - 1:
            fitter.call("on_judge", step)
    return fitter.run
