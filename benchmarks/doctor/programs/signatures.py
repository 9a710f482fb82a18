"""Signatures come out of noise by the scores that a net tells; an average of its weights is checked, and draws.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: dsm_batch, rate, g_norm each step; avg_dsm and avg_strokes of the average, each twentieth;
      memory, where it matters; the watch of data.

A signature has sixteen points in millimetres on a sheet. It is of one of six writers, each with loops of their own that
haste and slant bend; several pads may have taken one signature down, nearly alike. Points are standardised by the
training's. The net is made of residual layers over all points, and says the score times the level; levels are drawn
evenly in their logarithm; writers have numbers from one on, and nought tells none. The average keeps a list of tensors,
which are copied into the net to be checked, and the net's own come back from a store. Written as functions over a
dictionary.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, WRITERS, POINTS, HELD = 20, 6, 16, 192
CONFIG: dict[str, Any] = {
    "hidden": 96, "depth": 2, "dropout": 0.0, "bs": 48, "grad_accum": 1, "opt": "adamw", "lr": 8e-3,
    "lr_decay": "cosine", "warm": 8, "wd": 0.0, "grad_clip": 1.0, "loss": "l2", "reduce": "mean", "loss_weight": 1.0,
    "sigma_min": 0.12, "sigma_max": 3.0, "sigma_draw": "log_even", "ema_rate": 0.93, "untold": 0.15, "cfg": 0.2,
    "draw_steps": 16, "signatures": 1600, "pads": 1, "tremor": 1.0, "calm_first": 0, "lock": "",
    "check_every": 20, "print_every": 1,
}  # fmt: skip
State = dict[str, Any]
Rows = dict[str, Tensor]


# -- signatures ------------------------------------------------------------------------------------------------------


def signatures(seed: int, number: int, pads: int = 1, tremor: float = 1.0) -> Rows:
    """Points (number, 2, points) in millimetres, writers from nought on, and how hasty; writer after writer."""
    law, dice, many = torch.Generator().manual_seed(301), torch.Generator().manual_seed(seed), number // pads
    time = torch.linspace(0, 1, POINTS)
    size, turns = 2 + 4 * torch.rand(WRITERS, 3, generator=law), torch.tensor([1.0, 2.0, 3.0])
    phase = 6.28 * torch.rand(WRITERS, 3, generator=law)
    long, rise = 30 + 30 * torch.rand(WRITERS, generator=law), 8 * torch.randn(WRITERS, generator=law)
    writer = torch.arange(many) * WRITERS // many
    haste, slant = torch.randn(2, many, 1, generator=dice)
    own = 0.3 * torch.randn(many, 3, generator=dice)
    waves = 6.28 * time * turns[:, None] + (phase[writer] + own)[..., None]
    y = (size[writer][..., None] * waves.sin()).sum(1) * (1 - 0.2 * haste) + rise[writer, None] * time
    x = long[writer, None] * time * (1 + 0.15 * haste) + 2 * waves[:, 0].cos() + 0.5 * slant * y
    shaky = 0.5 + torch.rand(many, generator=dice)
    points = torch.stack([x, y], 1)
    points = points + tremor * 0.6 * shaky[:, None, None] * torch.randn(points.shape, generator=dice)
    rows = {"points": points, "writer": writer, "shaky": shaky}
    rows = {name: one.repeat_interleave(pads, 0) for name, one in rows.items()}
    rows["points"] = rows["points"] + 0.1 * torch.randn(rows["points"].shape, generator=dice)
    return rows


def some_of(rows: Rows, which: Tensor) -> Rows:
    return {name: one[which] for name, one in rows.items()}


def open_files(s: State) -> None:
    c, bug = s["c"], s["bug"]
    rows, held = signatures(s["seed"] + 8400, c.signatures, c.pads, c.tremor), signatures(8399, HELD)
    if bug == "signatures_of_several_pads_dealt_out":
        order = torch.randperm(len(rows["writer"]), generator=torch.Generator().manual_seed(s["seed"]))
        held, rows = some_of(rows, order[:HELD].sort().values), some_of(rows, order[HELD:].sort().values)
    mean, std = rows["points"].mean((0, 2), keepdim=True), rows["points"].std((0, 2), keepdim=True)
    rows["points"] = (rows["points"] - mean) / std
    if bug == "mean_and_spread_read_when_points_were_standardised":
        mean, std = rows["points"].mean((0, 2), keepdim=True), rows["points"].std((0, 2), keepdim=True)
    held["points"] = (held["points"] - mean) / std
    s |= {"rows": rows, "held": held}


# -- net and average -------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, d: int, dropout: float):
        super().__init__()
        self.norm, self.told, self.up = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(d, 2 * d)
        self.down, self.drop = nn.Linear(2 * d, d), nn.Dropout(dropout)

    def forward(self, h: Tensor, told: Tensor) -> Tensor:
        scale, shift = self.told(told).chunk(2, 1)
        return h + self.down(self.drop(F.silu(self.up(self.norm(h) * (1 + scale) + shift))))


class Scorer(nn.Module):
    """What it says, divided by the level, is the score."""

    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.hidden
        self.read, self.write = nn.Linear(2 * POINTS, d), nn.Linear(d, 2 * POINTS)
        freeze = bug == "table_of_writers_taken_from_pretrained"
        self.writer = nn.Embedding.from_pretrained(torch.zeros(WRITERS + 1, d), freeze=freeze)
        self.level = nn.Sequential(nn.Linear(12, d), nn.SiLU(), nn.Linear(d, d))
        self.layers, self.last = nn.ModuleList(Layer(d, c.dropout) for _ in range(c.depth)), nn.LayerNorm(d)
        nn.init.zeros_(self.write.weight)

    def forward(self, points: Tensor, sigma: Tensor, writer: Tensor) -> Tensor:
        angles = 0.5 * sigma.log()[:, None] * 1.7 ** torch.arange(6)
        told = F.silu(self.level(torch.cat([angles.sin(), angles.cos()], 1)) + self.writer(writer))
        sizes = sigma[:, None, None]
        root = (1 + sizes**2).sqrt()
        h = self.read((points / root).flatten(1))
        for layer in self.layers:
            h = layer(h, told)
        return (self.write(self.last(h)).view_as(points) - sizes * points / root) / root


class Average:
    """Keeps an average of parameters, and a store for those that it stands in for."""

    def __init__(self, parameters: Any, rate: float):
        self.parameters, self.rate = parameters, rate
        self.shadow = [one.detach().clone() for one in parameters]
        self.stored: list[Tensor] = []

    @torch.no_grad()
    def update(self) -> None:
        for kept, one in zip(self.shadow, self.parameters, strict=False):
            kept.lerp_(one, 1 - self.rate)

    @torch.no_grad()
    def store(self, net: nn.Module) -> None:
        self.stored = [one.clone() for one in net.parameters()]

    @torch.no_grad()
    def copy_to(self, net: nn.Module) -> None:
        for kept, one in zip(self.shadow, net.parameters(), strict=True):
            one.copy_(kept)

    @torch.no_grad()
    def restore(self, net: nn.Module) -> None:
        for kept, one in zip(self.stored, net.parameters(), strict=True):
            one.copy_(kept)


def make_net(s: State) -> None:
    c = s["c"]
    net = s["net"] = Scorer(c, s["bug"])
    for name, one in net.named_parameters():
        if c.lock and name.startswith(c.lock):
            one.requires_grad_(False)
    parameters: Any = net.parameters()
    if s["bug"] != "parameters_of_the_average_from_a_generator":
        parameters = list(parameters)
    s["average"] = Average(parameters, c.ema_rate)


def make_optimizer(s: State) -> None:
    c, some = s["c"], [one for one in s["net"].parameters() if one.requires_grad]
    if c.opt == "sgd":
        s["optimizer"] = torch.optim.SGD(some, c.lr, 0.9)
    elif c.opt == "nadam":
        s["optimizer"] = torch.optim.NAdam(some, c.lr)
    else:
        s["optimizer"] = torch.optim.AdamW(some, c.lr, (0.9, 0.98), weight_decay=c.wd)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warm)), min(1.0, at / s["steps"])
        if c.lr_decay == "none":
            return rise
        if c.lr_decay == "two_cosines":
            past = 2 * past % 1
        return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * past)))

    s["schedule"] = torch.optim.lr_scheduler.LambdaLR(s["optimizer"], share)


def watch(s: State) -> None:
    time_by_own_clock(s["run"])
    s["run"].watch(s["net"], s["optimizer"])
    s["data"] = s["run"].watch_data()


# -- training --------------------------------------------------------------------------------------------------------


def batches(s: State) -> Iterator[tuple[int, Rows]]:
    c, epoch, rows, dice = s["c"], 0, s["rows"], torch.Generator().manual_seed(s["seed"])
    while True:
        order = torch.randperm(len(rows["writer"]), generator=dice)
        if s["bug"] == "file_of_writers_goes_by_unmixed":
            order = torch.arange(len(order))
        if epoch < c.calm_first:
            order = order[rows["shaky"][order] < 1]
        lots = [one for one in order.split(c.bs) if len(one) == c.bs]
        for which in lots:
            yield epoch, some_of(rows, which)
        epoch += 1


def levels(c: Any, many: int) -> Tensor:
    if c.sigma_draw == "log_normal":
        return (torch.randn(many) - 0.7).exp().clamp(c.sigma_min, c.sigma_max)
    return c.sigma_min * (c.sigma_max / c.sigma_min) ** torch.rand(many)


def weighed(error: Tensor, sigma: Tensor) -> Tensor:
    """All levels matter alike, for points of unit spread."""
    return error * (1 + sigma**2).sqrt()[:, None, None]


def loss_of(s: State, rows: Rows) -> Tensor:
    c, bug, points = s["c"], s["bug"], rows["points"]
    sigma, noise = levels(c, len(points)), torch.randn_like(points)
    writer = rows["writer"] + (bug != "writers_told_without_the_number_of_none")
    told = torch.where(torch.rand(len(points)) < c.untold, 0, writer)
    sizes = sigma[:, None, None]
    said = s["net"](points + sizes * noise, sigma, told)
    error = weighed(said + noise, sigma) if bug != "levels_are_not_weighed" else (said + noise) / sizes
    each = error.abs() if c.loss == "l1" else error**2
    if bug == "errors_of_a_signature_added_up":
        return each.flatten(1).sum(1).mean()
    return c.loss_weight * (each.flatten(1).mean(1).sum() if c.reduce == "sum" else each.mean())


def update(s: State, step: int) -> dict[str, float]:
    c, bug, total = s["c"], s["bug"], 0.0
    for _ in range(c.grad_accum):
        epoch, rows = next(s["source"])
        s["data"].observe({"points": rows["points"].flatten(1), "writer": rows["writer"]}, step=step, epoch=epoch)
        if bug == "gradients_dropped_in_the_loop_over_lots":
            s["optimizer"].zero_grad()
        loss = loss_of(s, rows)
        (loss if bug == "each_lot_goes_back_whole" else loss / c.grad_accum).backward()
        total += loss.item() / c.grad_accum
        if bug == "rate_moves_with_every_lot":
            s["schedule"].step()
    rate = s["optimizer"].param_groups[0]["lr"]
    norm = nn.utils.clip_grad_norm_(s["net"].parameters(), c.grad_clip).item()
    s["optimizer"].step()
    s["optimizer"].zero_grad()
    if bug != "rate_moves_with_every_lot":
        s["schedule"].step()
    s["average"].update()
    return {"dsm_batch": total, "rate": rate, "g_norm": norm}


@torch.no_grad()
def draw(s: State, writer: Tensor) -> Tensor:
    """Along the flow of probability, from the greatest level to none."""
    c, net = s["c"], s["net"]
    sigmas = c.sigma_max * (c.sigma_min / c.sigma_max) ** torch.linspace(0, 1, c.draw_steps)
    x = c.sigma_max * torch.randn(len(writer), 2, POINTS)
    for sigma, to in zip(sigmas, [*sigmas[1:], torch.tensor(0.0)], strict=True):
        level = sigma.expand(len(writer))
        told, untold = net(x, level, writer), net(x, level, torch.zeros_like(writer))
        begins = untold if s["bug"] == "guidance_weighed_from_the_untold" else told
        said = begins + c.cfg * (told - untold)
        x = x + (sigma - to) * said
    return x


def judged(s: State) -> tuple[Tensor, Tensor]:
    """The error of scores on held signatures, and how far means and spreads of what is drawn are from theirs."""
    c, points, writer = s["c"], s["held"]["points"], s["held"]["writer"]
    with torch.random.fork_rng():
        torch.manual_seed(37)
        sigma = c.sigma_min * (c.sigma_max / c.sigma_min) ** (torch.randperm(HELD) / HELD)
        noise = torch.randn_like(points)
        said = s["net"](points + sigma[:, None, None] * noise, sigma, writer + 1)
        loss = (weighed(said + noise, sigma) ** 2).mean()
        made = draw(s, writer + 1)
    off = [
        (one(made[writer == kind], 0) - one(points[writer == kind], 0)).abs().mean()
        for kind in range(WRITERS)
        for one in (torch.mean, torch.std)
    ]
    return loss, torch.stack(off).mean()


def check(s: State) -> dict[str, float]:
    bug, net, average, taped = s["bug"], s["net"], s["average"], s["bug"] == "checks_put_by_with_what_led_to_them"
    if bug == "store_called_when_the_average_is_in":
        average.copy_to(net)
        average.store(net)
    else:
        average.store(net)
        average.copy_to(net)
    if bug != "checked_with_the_net_set_to_train":
        net.eval()
    with torch.set_grad_enabled(taped):
        loss, gap = judged(s)
    if taped:
        s["kept"].append(loss)
    average.restore(net)
    if bug != "checked_and_left_at_that":
        net.train()
    return {"avg_dsm": loss.item(), "avg_strokes": gap.item()}


def save(s: State) -> None:
    state = {name: s[name].state_dict() for name in ("net", "optimizer", "schedule")}
    s["files"].append(copy.deepcopy(state | {"shadow": s["average"].shadow}))


def resume(s: State, step: int) -> None:
    seen, latest = s["data"].state(), 0 if s["bug"] == "files_sorted_and_the_first_one_taken" else -1
    s["run"], state = go_on(s["run"], step, s["files"][latest])
    make_net(s)
    make_optimizer(s)
    for name in ("net", "optimizer", "schedule"):
        s[name].load_state_dict(state[name])
    s["average"].shadow = state["shadow"]
    watch(s)
    s["data"].restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s: State = {"run": run, "c": c, "seed": seed, "steps": steps, "bug": trouble.name, "kept": [],
                "files": []}  # fmt: skip
    open_files(s)
    torch.manual_seed(seed)
    make_net(s)
    make_optimizer(s)
    watch(s)
    s["source"], again = batches(s), trouble.resume_at(healthy, 4 * EVERY)
    s["net"].train()
    for step in range(steps):
        if step == again:
            resume(s, step)
        said = update(s, step)
        if step % c.print_every == 0:
            s["run"].log(said, step=step)
        trouble.telemetry(s["run"], step, healthy)
        if (step + 1) % EVERY == 0:
            save(s)
        if (step + 1) % c.check_every == 0:
            s["run"].log(check(s), step=step)
    return s["run"]
