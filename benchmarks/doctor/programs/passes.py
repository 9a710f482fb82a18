"""A transformer flows from noise to elevation profiles of mountain roads; an average of its weights draws them.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: flow/train_mse, flow/lr, flow/grad_norm each step; ema_val/mse, ema_val/climb_gap each
      twentieth, of the average; memory, where it matters; the watch of data.

A road has one of four terrains, which the model is told, and a profile of 48 heights in metres, which a dataset scales
by figures that are kept in a file. Profiles are cut from longer routes. The net is a small transformer over patches
whose norms are shifted and scaled by time and terrain; the last layer begins at zero. The loop accumulates, averages
with a power that rises, validates at fixed times with fixed noise, and draws in eight Euler steps.
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
from torch.utils.data import DataLoader, Dataset

EVERY, LONG, PATCH, TERRAINS, NULL, HELD = 20, 48, 4, 4, 4, 96
CONFIG: dict[str, Any] = {
    "hidden_size": 48, "depth": 2, "num_heads": 4, "mlp_ratio": 2, "dropout": 0.0, "class_dropout_prob": 0.1,
    "prediction": "velocity", "time_sampling": "uniform", "per_step_batch": 32, "grad_accum": 1, "learning_rate": 3e-3,
    "lr_scheduler": "cosine", "lr_warmup_steps": 10, "optimizer": "adamw", "adam_beta2": 0.99, "weight_decay": 0.0,
    "max_grad_norm": 1.0, "ema_max_decay": 0.97, "ema_power": 0.75, "ema_inv_gamma": 1.0, "loss_reduction": "mean",
    "routes": 240, "windows_per_route": 4, "roughness": 0.25, "mirror": True, "flat_first_epochs": 0,
    "freeze_pos_embed": True, "freeze_modules": "", "guidance_scale": 1.0, "sample_steps": 8, "validation_steps": 20,
    "logging_steps": 1,
}  # fmt: skip


# -- roads ----------------------------------------------------------------------------------------------------------


def survey(seed: int, routes: int, windows: int, roughness: float) -> tuple[Tensor, Tensor, Tensor]:
    """Profiles in metres, terrain after terrain; the terrain; the route that each is cut from."""
    dice = torch.Generator().manual_seed(seed)
    terrain = torch.arange(routes) * TERRAINS // routes
    at = torch.arange(LONG + 8 * (windows - 1)) / LONG
    slope = torch.tensor([40.0, 350.0, -350.0, 120.0])[terrain, None] * (
        0.6 + 0.8 * torch.rand(routes, 1, generator=dice)
    )
    waves = torch.tensor([1.0, 1.5, 1.5, 3.0])[terrain, None] * (0.8 + 0.4 * torch.rand(routes, 1, generator=dice))
    high = torch.tensor([30.0, 60.0, 60.0, 160.0])[terrain, None]
    phase = 2 * math.pi * torch.rand(routes, 1, generator=dice)
    road = 700 + 150 * torch.randn(routes, 1, generator=dice) + slope * (at - 0.5)
    road = road + high * torch.sin(2 * math.pi * waves * at + phase)
    road = road + roughness * 40 * torch.randn(road.shape, generator=dice)
    cut = torch.stack([road[:, 8 * one : 8 * one + LONG] for one in range(windows)], 1)
    route = torch.arange(routes).repeat_interleave(windows)
    return cut.flatten(0, 1), terrain.repeat_interleave(windows), route


class Roads(Dataset[tuple[Tensor, Tensor]]):
    """Profiles scaled by figures of the training's."""

    def __init__(self, metres: Tensor, terrain: Tensor, stats: dict[str, float], mirror: bool = False):
        self.profile = (metres - stats["mean"]) / stats["std"]
        self.terrain, self.mirror = terrain, mirror

    def __len__(self) -> int:
        return len(self.terrain)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        profile, terrain = self.profile[at], self.terrain[at]
        if self.mirror and torch.rand(()) < 0.5:  # driven the other way: a climb is a descent
            profile = profile.flip(0)
            terrain = torch.tensor([0, 2, 1, 3])[terrain]
        return profile, terrain


def make_data(c: Any, seed: int, bug: str) -> tuple[Roads, Roads]:
    metres, terrain, _route = survey(seed + 220, c.routes, c.windows_per_route, c.roughness)
    held, held_terrain, _ = survey(219, HELD, 1, c.roughness)
    if bug == "windows_parted_by_random_split":
        order = torch.randperm(len(metres), generator=torch.Generator().manual_seed(seed))
        held, held_terrain = metres[order[:HELD]], terrain[order[:HELD]]
        rest = order[HELD:].sort().values
        metres, terrain = metres[rest], terrain[rest]
    stats = {"mean": metres.mean().item(), "std": metres.std().item()}
    if bug == "stats_file_of_the_first_region":  # roads by the coast: the file was never made anew
        stats = {"mean": 80.0, "std": 35.0}
    own = {"mean": held.mean().item(), "std": held.std().item()} if bug == "stats_file_of_the_first_region" else stats
    train = Roads(metres, terrain, stats, c.mirror)
    val = Roads(held, held_terrain, own)
    if bug == "survey_codes_start_at_one":  # codes of the table go in as they are; the validation's loader knows
        train.terrain = (terrain + 1).clamp(max=NULL)
        train.mirror = False
    return train, val


# -- net ------------------------------------------------------------------------------------------------------------


def sinusoid(t: Tensor, width: int) -> Tensor:
    rates = torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2))
    angle = t[..., None].float() * rates
    return torch.cat([angle.cos(), angle.sin()], -1)


class DiTBlock(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.hidden_size
        self.heads, self.p = c.num_heads, c.dropout
        self.norm1, self.norm2 = nn.LayerNorm(d, elementwise_affine=False), nn.LayerNorm(d, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, c.mlp_ratio * d), nn.GELU(), nn.Dropout(c.dropout),
                                 nn.Linear(c.mlp_ratio * d, d))  # fmt: skip
        self.drop = nn.Dropout(c.dropout)
        self.ada = nn.Linear(d, 6 * d)
        nn.init.zeros_(self.ada.weight)
        nn.init.zeros_(self.ada.bias)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        b1, a1, g1, b2, a2, g2 = self.ada(F.silu(told))[:, None].chunk(6, -1)
        q, k, v = self.qkv(self.norm1(x) * (1 + a1) + b1).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + g1 * self.drop(self.proj(y))
        return x + g2 * self.mlp(self.norm2(x) * (1 + a2) + b2)


class RoadDiT(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.bug = c.hidden_size, bug
        self.x_embedder = nn.Linear(PATCH, d)
        self.pos_embed = nn.Parameter(sinusoid(torch.arange(LONG // PATCH), d), requires_grad=not c.freeze_pos_embed)
        self.t_embedder = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        self.y_embedder = nn.Embedding(TERRAINS + 1, d)
        self.blocks = nn.ModuleList(DiTBlock(c) for _ in range(c.depth))
        self.final_norm, self.final = nn.LayerNorm(d, elementwise_affine=False), nn.Linear(d, PATCH)
        self.width = d
        nn.init.normal_(self.y_embedder.weight, std=0.1)
        nn.init.zeros_(self.final.weight)
        nn.init.zeros_(self.final.bias)
        for name, one in self.named_parameters():
            if bug == "embed_in_the_name_is_held" and "embed" in name:
                one.requires_grad_(False)
            if c.freeze_modules and name.startswith(c.freeze_modules):
                one.requires_grad_(False)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        seen = x.unflatten(1, (LONG // PATCH, PATCH))
        scale = 1.0 if self.bug == "time_embedded_from_zero_to_one" else 1000.0
        told = self.t_embedder(sinusoid(scale * t, self.width)) + self.y_embedder(y)
        h = self.x_embedder(seen) + self.pos_embed
        for block in self.blocks:
            h = block(h, told)
        return self.final(self.final_norm(h)).flatten(1)


class EMA:
    """The average, whose decay rises with the updates."""

    def __init__(self, net: nn.Module, c: Any):
        self.model = copy.deepcopy(net).requires_grad_(False).eval()
        self.c, self.updates, self.kept = c, 0, []

    def decay(self) -> float:
        value = 1 - (1 + self.updates / self.c.ema_inv_gamma) ** -self.c.ema_power
        return max(0.0, min(value, self.c.ema_max_decay))

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        decay = self.decay()
        for mean, one in zip(self.model.parameters(), net.parameters(), strict=True):
            mean.lerp_(one, 1 - decay)
        self.updates += 1

    @torch.no_grad()
    def copy_to(self, net: nn.Module) -> None:
        self.kept = [one.detach().clone() for one in net.parameters()]
        for mean, one in zip(self.model.parameters(), net.parameters(), strict=True):
            one.copy_(mean)

    @torch.no_grad()
    def restore(self, net: nn.Module) -> None:
        for own, one in zip(self.kept, net.parameters(), strict=True):
            one.copy_(own)


# -- flow -----------------------------------------------------------------------------------------------------------


def target_of(c: Any, x1: Tensor, x0: Tensor) -> Tensor:
    """x1: a road, x0: noise; the way leads from noise at 0 to roads at 1."""
    return x1 if c.prediction == "sample" else x1 - x0


def flow_loss(s: SimpleNamespace, x1: Tensor, y: Tensor) -> Tensor:
    c, rows = s.c, len(x1)
    if s.bug == "generator_seeded_in_the_step":
        dice = torch.Generator().manual_seed(s.seed)
        x0, t = torch.randn(x1.shape, generator=dice), torch.rand(rows, generator=dice)
    else:
        x0 = torch.randn_like(x1)
        t = torch.randn(rows).sigmoid() if c.time_sampling == "logit_normal" else torch.rand(rows)
    y = torch.where(torch.rand(rows) < c.class_dropout_prob, NULL, y)
    xt = (1 - t[:, None]) * x0 + t[:, None] * x1
    said = s.net(xt, t, y)
    if s.bug == "squares_summed_over_the_profile":
        return ((said - target_of(c, x1, x0)) ** 2).sum(1).mean()
    each = (said - target_of(c, x1, x0)) ** 2
    return each.sum(1).mean() if c.loss_reduction == "sum_over_dims" else each.mean()


def velocity(s: SimpleNamespace, net: nn.Module, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
    said = net(x, t, y)
    if s.c.guidance_scale != 1.0:
        free = net(x, t, torch.full_like(y, NULL))
        said = free + s.c.guidance_scale * (said - free)
    if s.c.prediction == "sample":
        said = (said - x) / (1 - t[:, None]).clamp(min=0.05)
    return said


def draw(s: SimpleNamespace, net: nn.Module, y: Tensor, step: int) -> Tensor:
    """Roads by Euler steps."""
    x = torch.randn(len(y), LONG, generator=torch.Generator().manual_seed(step))
    with torch.set_grad_enabled(s.bug == "drawn_with_a_graph_for_the_grid"):
        for at in range(s.c.sample_steps):
            t = torch.full((len(y),), at / s.c.sample_steps)
            x = x + velocity(s, net, x, t, y) / s.c.sample_steps
    return x


def validate(s: SimpleNamespace, step: int) -> None:
    """With the average in the net: what its error is, and how far its roads climb."""
    s.ema.copy_to(s.net)
    if s.bug != "validated_behind_net_train":
        s.net.eval()
    x1, y = s.val.profile, s.val.terrain
    dice = torch.Generator().manual_seed(17)
    t, x0 = torch.arange(len(x1)) * 37 % 100 / 100, torch.randn(x1.shape, generator=dice)
    with torch.no_grad():
        said = s.net((1 - t[:, None]) * x0 + t[:, None] * x1, t, y)
        mse = F.mse_loss(said, target_of(s.c, x1, x0)).item()
    drawn = draw(s, s.net, torch.arange(64) % TERRAINS, step)
    if s.bug == "drawn_with_a_graph_for_the_grid":
        s.grid.append(drawn)  # for a picture of all samples at the end
    gap = abs(climb(drawn) - climb(x1))
    s.run.log({"ema_val/mse": mse, "ema_val/climb_gap": gap}, step=step)
    if s.bug != "average_written_over_the_net":
        s.ema.restore(s.net)
    if s.bug != "net_drawn_with_and_left_in_eval":
        s.net.train()


def climb(roads: Tensor) -> float:
    return roads.detach().diff(dim=1).abs().sum(1).mean().item()


# -- training -------------------------------------------------------------------------------------------------------


def make_optimizer(s: SimpleNamespace) -> None:
    c, some = s.c, [one for one in s.net.parameters() if one.requires_grad]
    if c.optimizer == "sgd":
        s.optimizer = torch.optim.SGD(some, c.learning_rate, 0.9)
    elif c.optimizer == "radam":
        s.optimizer = torch.optim.RAdam(some, c.learning_rate)
    else:
        s.optimizer = torch.optim.AdamW(some, c.learning_rate, (0.9, c.adam_beta2), weight_decay=c.weight_decay)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.lr_warmup_steps)), min(1.0, at / c.steps)
        if c.lr_scheduler == "constant_with_warmup":
            return rise
        if c.lr_scheduler == "cosine_with_restarts":
            return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1))))
        return rise * 0.5 * (1 + math.cos(math.pi * past))

    s.scheduler = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.net, s.optimizer)
    s.watch = s.run.watch_data()


def resume(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {"net": s.net.state_dict(), "ema": s.ema.model.state_dict(), "optimizer": s.optimizer.state_dict(),
             "scheduler": s.scheduler.state_dict()}  # fmt: skip
    s.run, state = go_on(s.run, step, state)
    s.net.load_state_dict(state["net"])
    s.ema.model.load_state_dict(state["ema"])
    make_optimizer(s)
    if s.bug != "training_state_saved_by_save_pretrained":
        s.optimizer.load_state_dict(state["optimizer"])
        s.scheduler.load_state_dict(state["scheduler"])
    observe(s)
    s.watch.restore(seen)


def batches(s: SimpleNamespace) -> Any:
    epoch, dice, c = 0, torch.Generator().manual_seed(s.seed), s.c
    while True:
        roads: Any = s.train
        if epoch < c.flat_first_epochs:  # roads that climb little, as is set
            spread = s.train.profile.std(1)
            roads = torch.utils.data.Subset(s.train, (spread < spread.median()).nonzero()[:, 0].tolist())
        shuffle = s.bug != "dataloader_as_the_survey_lists"
        for x, y in DataLoader(roads, c.per_step_batch, shuffle=shuffle, drop_last=True, generator=dice):
            yield epoch, x, y
        epoch += 1


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    bug, again = trouble.name, trouble.resume_at(healthy, 4 * EVERY)
    s = SimpleNamespace(run=run, c=c, bug=bug, seed=seed, grid=[])
    s.train, s.val = make_data(c, seed, bug)
    torch.manual_seed(seed)
    s.net = RoadDiT(c, bug)
    s.ema = EMA(s.net, c)
    make_optimizer(s)
    observe(s)
    stream = batches(s)
    s.net.train()
    for step in range(steps):
        if step == again:
            resume(s, step)
        total = 0.0
        for _ in range(c.grad_accum):
            epoch, x, y = next(stream)
            s.watch.observe({"profile": x, "terrain": y}, step=step, epoch=epoch)
            loss = flow_loss(s, x, y)
            (loss if bug == "accelerator_backward_of_the_whole_loss" else loss / c.grad_accum).backward()
            total += loss.item() / c.grad_accum
            if bug == "scheduler_inside_accumulate":
                s.scheduler.step()
        norm = nn.utils.clip_grad_norm_(s.net.parameters(), c.max_grad_norm).item()
        rate = s.optimizer.param_groups[0]["lr"]
        s.optimizer.step()
        s.optimizer.zero_grad()
        if bug != "scheduler_inside_accumulate":
            s.scheduler.step()
        s.ema.update(s.net)
        if step % c.logging_steps == 0:
            s.run.log({"flow/train_mse": total, "flow/lr": rate, "flow/grad_norm": norm}, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.validation_steps == c.validation_steps - 1:
            validate(s, step)
    return s.run
