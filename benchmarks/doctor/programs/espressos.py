"""Shots of espresso come out of noise that a net predicts; a shadow of its weights is validated, and draws.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/eps_l2, opt/lr, opt/gnorm each step; val/shadow_eps_l2 and val/shadow_gap of the
      shadow, each twentieth; memory, where it matters; the watch of data.

A shot has sixteen spans of two seconds, with the pressure in bar and the flow in grams a second. It is of one of six
roasts, each with curves of its own that grind and dose bend; several loggers may hang on one machine, and say nearly
the same of a shot. Both are standardised by the training's shots. A small net of convolutions with batch norm says
which noise was added; roasts have numbers from one on, and nought tells none. The shadow is a dictionary by the names
of the net's state, which is put into the net and taken out again. Written as a module with hooks, and a fit that calls
them.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

EVERY, ROASTS, SPANS, HELD, LEVELS = 20, 6, 16, 160, 200
CONFIG: dict[str, Any] = {
    "width": 32, "blocks": 3, "p_drop": 0.0, "norm": "batch", "batch_size": 32, "accumulate_grad_batches": 1,
    "optim": "adamw", "lr": 4e-3, "schedule": "cosine", "warmup_steps": 8, "weight_decay": 0.0,
    "gradient_clip_val": 1.0, "loss": "l2", "reduction": "mean", "snr_gamma": 0.0, "levels": "cosine",
    "shadow_decay": 0.93, "p_untold": 0.15, "guidance": 0.3, "draw_steps": 12, "shots": 1120, "loggers": 1,
    "channelling": 1.0, "even_first": 0, "freeze": "", "val_every": 20, "log_every_n_steps": 1,
}  # fmt: skip


# -- shots -----------------------------------------------------------------------------------------------------------


def shots(seed: int, number: int, loggers: int = 1, channelling: float = 1.0) -> list[Tensor]:
    """Curves (number, 2, spans), roasts from nought on, and how uneven the shot was; roast after roast."""
    law, dice, many = torch.Generator().manual_seed(251), torch.Generator().manual_seed(seed), number // loggers
    time = torch.linspace(0, 1, SPANS)
    rise, peak = 0.1 + 0.2 * torch.rand(ROASTS, generator=law), 6 + 3 * torch.rand(ROASTS, generator=law)
    sink, pour = 3 * torch.rand(ROASTS, generator=law), 1 + 2 * torch.rand(ROASTS, generator=law)
    roast = torch.arange(many) * ROASTS // many
    grind, dose = torch.randn(2, many, 1, generator=dice)
    up = torch.sigmoid((time - rise[roast, None] - 0.05 * dose) / 0.06)
    pressure = up * (peak[roast, None] + 0.8 * grind - sink[roast, None] * time)
    flow = up.roll(2, 1) * (pour[roast, None] * (0.4 + time) - 0.35 * grind + 0.3 * (6 * time + dose).sin())
    uneven = 0.5 + torch.rand(many, generator=dice)
    jolts = torch.randn(many, 2, SPANS, generator=dice)
    curves = torch.stack([pressure, flow], 1)
    curves = curves + channelling * uneven[:, None, None] * torch.tensor([0.5, 0.15])[:, None] * jolts
    curves, roast, uneven = (one.repeat_interleave(loggers, 0) for one in (curves, roast, uneven))
    return [curves + 0.02 * torch.randn(curves.shape, generator=dice), roast, uneven]


# -- net -------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.norm = nn.BatchNorm1d(d, affine=False) if c.norm == "batch" else nn.GroupNorm(4, d, affine=False)
        self.told, self.gate = nn.Linear(d, 2 * d), nn.Parameter(torch.zeros(d, 1))
        self.conv_in, self.conv_out = nn.Conv1d(d, d, 3, padding=1), nn.Conv1d(d, d, 3, padding=1)
        self.drop = nn.Dropout(c.p_drop)

    def forward(self, h: Tensor, told: Tensor) -> Tensor:
        scale, shift = self.told(told)[..., None].chunk(2, 1)
        y = F.silu(self.conv_in(self.norm(h) * (1 + scale) + shift))
        return h + self.gate * self.conv_out(self.drop(y))


class Barista(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.into, self.out = nn.Conv1d(3, d, 3, padding=1), nn.Conv1d(d, 2, 3, padding=1)
        self.level = nn.Sequential(nn.Linear(12, d), nn.SiLU(), nn.Linear(d, d))
        self.roast = nn.Embedding(ROASTS + 1, d)
        self.blocks, self.drop = nn.ModuleList(Block(c) for _ in range(c.blocks)), nn.Dropout(c.p_drop)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor, t: Tensor, roast: Tensor) -> Tensor:
        angles = t[:, None] / LEVELS * math.pi * 2.0 ** torch.arange(-2, 4)
        told = F.silu(self.level(torch.cat([angles.sin(), angles.cos()], 1)) + self.roast(roast))
        h = self.into(torch.cat([x, torch.linspace(-1, 1, SPANS).expand(len(x), 1, -1)], 1))
        for block in self.blocks:
            h = block(h, told)
        return self.out(self.drop(h))


class Shadow:
    """An average of all that has a name in a net's state."""

    def __init__(self, net: nn.Module, decay: float):
        self.decay, self.own = decay, {}
        self.state = {name: one.detach().clone() for name, one in net.state_dict().items()}

    @torch.no_grad()
    def update(self, net: nn.Module, parameters_alone: bool) -> None:
        for name, one in net.named_parameters() if parameters_alone else net.state_dict().items():
            if one.is_floating_point():
                self.state[name].lerp_(one, 1 - self.decay)
            else:
                self.state[name].copy_(one)

    def put_in(self, net: nn.Module, copied: bool) -> None:
        self.own = {name: one.clone() if copied else one for name, one in net.state_dict().items()}
        net.load_state_dict(self.state)

    def take_out(self, net: nn.Module) -> None:
        net.load_state_dict(self.own)


# -- module ----------------------------------------------------------------------------------------------------------


class Roastery:
    """What is trained: data, net, optimizer, shadow, and what is done in each step."""

    def __init__(self, c: Any, seed: int, steps: int, bug: str):
        self.c, self.seed, self.steps, self.bug, self.errors = c, seed, steps, bug, []
        at = torch.arange(1, LEVELS + 1) / LEVELS
        if c.levels == "linear":
            self.alphas = 1 - torch.linspace(5e-4, 0.05, LEVELS)
            self.products = self.alphas.cumprod(0)
        else:
            self.products = (((at + 0.008) / 1.008 * math.pi / 2).cos() ** 2).clamp(min=1e-3)
            self.alphas = self.products / torch.cat([torch.ones(1), self.products[:-1]])
        self.make_net()

    def make_net(self) -> None:
        c, self.net = self.c, Barista(self.c)
        for name, one in self.net.named_parameters():
            one.requires_grad_(not (c.freeze and name.startswith(c.freeze)))
        self.shadow = Shadow(self.net, c.shadow_decay)

    def setup(self) -> None:
        c = self.c
        rows, held = shots(self.seed + 7300, c.shots, c.loggers, c.channelling), shots(7299, HELD)
        if self.bug == "random_split_of_what_loggers_wrote":
            order = torch.randperm(len(rows[1]), generator=torch.Generator().manual_seed(self.seed))
            rows, held = [one[order[HELD:].sort().values] for one in rows], [one[order[:HELD]] for one in rows]
        mean, std = rows[0].mean((0, 2), keepdim=True), rows[0].std((0, 2), keepdim=True)
        rows[0], held[0] = (rows[0] - mean) / std, (held[0] - mean) / std
        if self.bug == "transform_of_the_validation_only_centres":
            held[0] = held[0] * std
        self.rows, self.held = rows, held

    def train_dataloader(self, epoch: int) -> DataLoader[Any]:
        curves, roast, uneven = self.rows
        some = torch.ones_like(uneven, dtype=torch.bool) if epoch >= self.c.even_first else uneven < 1
        dice = torch.Generator().manual_seed(1000 * self.seed + epoch)
        return DataLoader(TensorDataset(curves[some], roast[some]), self.c.batch_size, generator=dice, drop_last=True,
                          shuffle=self.bug != "train_dataloader_says_nothing_of_shuffle")  # fmt: skip

    def configure_optimizers(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.net.named_parameters() if one.requires_grad]
        decayed = [one for name, one in named if name.endswith("weight")]
        others = [one for name, one in named if not name.endswith("weight")]
        if self.bug == "groups_by_weight_and_bias_leave_gates_out":
            others = [one for name, one in named if name.endswith("bias")]
        groups = [{"params": decayed, "weight_decay": c.weight_decay}, {"params": others, "weight_decay": 0.0}]
        if c.optim == "adamax":
            self.optimizer: Any = torch.optim.Adamax(groups, 2 * c.lr)
        elif c.optim == "sgd":
            self.optimizer = torch.optim.SGD(groups, c.lr, 0.9)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, (0.9, 0.98))

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / self.steps)
            if c.schedule == "constant":
                return rise
            if c.schedule == "steps":
                return rise * 0.3 ** sum(past >= one for one in (0.5, 0.8))
            if c.schedule == "restarts":
                past = 2 * past % 1
            return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def noised(self, curves: Tensor, noise: Tensor, t: Tensor, training: bool) -> Tensor:
        kept = self.products[t][:, None, None]
        if training and self.bug == "roots_forgotten_where_noise_is_added":
            return kept * curves + (1 - kept) * noise
        return kept.sqrt() * curves + (1 - kept).sqrt() * noise

    def training_step(self, curves: Tensor, roast: Tensor) -> Tensor:
        c, t, noise = self.c, torch.randint(0, LEVELS, (len(roast),)), torch.randn_like(curves)
        told = torch.where(torch.rand(len(roast)) < c.p_untold, 0, roast + 1)
        said = self.net(self.noised(curves, noise, t, True), t, told)
        each = F.l1_loss(said, noise, reduction="none") if c.loss == "l1" else (said - noise) ** 2
        if self.bug == "squares_of_a_shot_are_added_up":
            return each.flatten(1).sum(1).mean()
        if c.snr_gamma:
            ratio = self.products[t] / (1 - self.products[t])
            each = each * (ratio.clamp(max=c.snr_gamma) / ratio)[:, None, None]
        return each.flatten(1).mean(1).sum() if c.reduction == "sum" else each.mean()

    @torch.no_grad()
    def draw(self, roast: Tensor) -> Tensor:
        c, bug, x = self.c, self.bug, torch.randn(len(roast), 2, SPANS)
        table = self.alphas if bug == "drawn_with_alphas_and_not_their_products" else self.products
        times = torch.linspace(LEVELS - 1, 0, c.draw_steps).long()
        for at, to in zip(times, [*times[1:], None], strict=True):
            t = torch.full((len(roast),), int(at))
            told, untold = self.net(x, t, roast), self.net(x, t, torch.zeros_like(roast))
            noise = told + c.guidance * (told - untold)
            clean = ((x - (1 - table[at]).sqrt() * noise) / table[at].sqrt()).clamp(-4, 4)
            x = clean if to is None else table[to].sqrt() * clean + (1 - table[to]).sqrt() * noise
        return x

    def validation_step(self) -> tuple[Tensor, Tensor]:
        """The error in the noise, and how far means and spreads of what is drawn are from those of held shots."""
        (curves, roast, _), moved = self.held, int(self.bug != "roasts_told_from_nought_in_validation")
        with torch.random.fork_rng():
            torch.manual_seed(31)
            t, noise = torch.arange(HELD) * LEVELS // HELD, torch.randn_like(curves)
            t = t[torch.randperm(HELD)]
            loss = ((self.net(self.noised(curves, noise, t, False), t, roast + moved) - noise) ** 2).mean()
            made = self.draw(roast + moved)
        off = [
            (one(made[roast == kind], 0) - one(curves[roast == kind], 0)).abs().mean()
            for kind in range(ROASTS)
            for one in (torch.mean, torch.std)
        ]
        return loss, torch.stack(off).mean()

    def validate(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "validation_errors_listed_for_the_epoch"
        self.shadow.put_in(self.net, copied=bug != "own_weights_are_kept_by_their_names_alone")
        if bug != "validated_with_the_net_as_it_trains":
            self.net.eval()
        with torch.set_grad_enabled(taped):
            loss, gap = self.validation_step()
        if taped:
            self.errors.append(loss)
        self.shadow.take_out(self.net)
        if bug != "validated_and_never_put_back_to_training":
            self.net.train()
        return {"val/shadow_eps_l2": loss.item(), "val/shadow_gap": gap.item()}


# -- fit -------------------------------------------------------------------------------------------------------------


class Fit:
    def __init__(self, run: Any, module: Roastery, steps: int):
        self.run, self.module, self.steps, self.epoch = run, module, steps, -1
        self.loader: Any = iter(())

    def attach(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.module.net, self.module.optimizer)
        self.data = self.run.watch_data()

    def next_batch(self) -> list[Tensor]:
        rows = next(self.loader, None)
        if rows is None:
            if self.module.bug == "shadow_updated_where_an_epoch_begins" and self.epoch >= 0:
                self.module.shadow.update(self.module.net, False)
            self.epoch += 1
            self.loader = iter(self.module.train_dataloader(self.epoch))
            rows = next(self.loader)
        return rows

    def update(self, step: int) -> dict[str, float]:
        m, c, bug, total = self.module, self.module.c, self.module.bug, 0.0
        for _ in range(c.accumulate_grad_batches):
            curves, roast = self.next_batch()
            self.data.observe({"curves": curves.flatten(1), "roast": roast}, step=step, epoch=self.epoch)
            loss = m.training_step(curves, roast)
            (loss if bug == "manual_backward_of_the_undivided_loss" else loss / c.accumulate_grad_batches).backward()
            total += loss.item() / c.accumulate_grad_batches
            if bug == "lr_scheduler_stepped_with_each_batch":
                m.scheduler.step()
        rate = m.optimizer.param_groups[0]["lr"]
        norm = nn.utils.clip_grad_norm_(m.net.parameters(), c.gradient_clip_val).item()
        m.optimizer.step()
        m.net.zero_grad()
        if bug != "lr_scheduler_stepped_with_each_batch":
            m.scheduler.step()
        if bug != "shadow_updated_where_an_epoch_begins":
            m.shadow.update(m.net, bug == "shadow_of_the_state_moves_by_parameters")
        return {"train/eps_l2": total, "opt/lr": rate, "opt/gnorm": norm}

    def restore(self, step: int) -> None:
        m, seen = self.module, self.data.state()
        state = {"net": m.net.state_dict(), "shadow": m.shadow.state, "optimizer": m.optimizer.state_dict(),
                 "scheduler": m.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        m.make_net()
        m.net.load_state_dict(state["net"])
        if m.bug != "shadow_comes_with_the_module_and_not_its_file":
            m.shadow.state = state["shadow"]
        m.configure_optimizers()
        m.optimizer.load_state_dict(state["optimizer"])
        m.scheduler.load_state_dict(state["scheduler"])
        self.attach()
        self.data.restore(seen)

    def all(self, trouble: Trouble, healthy: str | None) -> Any:
        m, again = self.module, trouble.resume_at(healthy, 4 * EVERY)
        m.setup()
        m.configure_optimizers()
        self.attach()
        m.net.train()
        for step in range(self.steps):
            if step == again:
                self.restore(step)
            said = self.update(step)
            if step % m.c.log_every_n_steps == 0:
                self.run.log(said, step=step)
            trouble.telemetry(self.run, step, healthy)
            if (step + 1) % m.c.val_every == 0:
                self.run.log(m.validate(), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    torch.manual_seed(seed)
    module = Roastery(SimpleNamespace(**run.config), seed, steps, trouble.name)
    return Fit(run, module, steps).all(trouble, healthy)
