"""A set of twelve atoms is freed of noise by attention, told its lattice; an average of the weights draws new ones.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: edm/denoise, edm/rate, edm/grad each step; tick/denoise and tick/spacing_off of atoms that
      the average draws, each twentieth; memory, where it matters; the watch of data.

Atoms lie in a plane, in angstroms, as one of five lattices has them, turned and stretched a little. Noise has a
deviation whose logarithm is normal; the network's input, output and way around are scaled by it. The network knows by
itself where atoms lie and how far apart: both figures are taken from the training's part. Everything is counted in
crystals seen: the ramp of the rate, its fall, and the half-life of the average. Written as one class of settings, one
of a trainer, and ticks.
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

EVERY, ATOMS, HELD = 20, 12, 160
LATTICES = ("square", "hexagonal", "oblique", "narrow", "chain")
CELLS = torch.tensor([[[2.6, 0.0], [0.0, 2.6]], [[2.9, 0.0], [1.45, 2.51]], [[2.4, 0.3], [0.9, 3.1]],
                      [[1.8, 0.0], [0.0, 3.9]], [[1.5, 0.8], [-0.9, 4.4]]])  # fmt: skip
CONFIG: dict[str, Any] = {
    "width": 48, "layers": 2, "heads": 4, "dropout": 0.0, "batch": 32, "rounds": 1, "optimizer": "adam", "rate": 4e-3,
    "weight_decay": 0.0, "ramp": 320, "fall": "cosine", "grad_cap": 2.0, "noise_mean": -0.9, "noise_spread": 1.1,
    "weighted": True, "reduce": "mean", "untold": 0.1, "half_life": 320, "crystals": 800, "snapshots": 1, "heat": 0.08,
    "turn": 0.0, "cool_first": 0, "fixed": "", "draw_steps": 10, "tick": 20, "write_every": 1,
}  # fmt: skip


# -- atoms ----------------------------------------------------------------------------------------------------------


def grown(seed: int, number: int, snapshots: int = 1, heat: float = 0.08) -> tuple[Tensor, Tensor, Tensor]:
    """Places in angstroms, lattices and how warm each is, lattice after lattice. snapshots: of one crystal."""
    dice, many = torch.Generator().manual_seed(seed), number // snapshots
    kind = torch.arange(many) * len(LATTICES) // many
    grid = torch.stack(torch.meshgrid(torch.arange(4.0) - 1.5, torch.arange(3.0) - 1, indexing="ij"), -1).view(-1, 2)
    places = grid @ CELLS[kind]
    angle = 0.25 * torch.randn(many, generator=dice)
    places = turned(places * (1 + 0.06 * torch.randn(many, 1, 2, generator=dice)), angle) + 4.0
    places, kind = (one.repeat_interleave(snapshots, 0) for one in (places, kind))
    warm = heat * (0.5 + torch.rand(len(kind), generator=dice))
    return places + warm[:, None, None] * torch.randn(places.shape, generator=dice), kind, warm


def turned(places: Tensor, angle: Tensor) -> Tensor:
    sin, cos = angle.sin(), angle.cos()
    return places @ torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)


def spacing(places: Tensor) -> Tensor:
    """How far an atom's nearest neighbour is, by crystal."""
    apart = torch.cdist(places, places) + 1e3 * torch.eye(ATOMS)
    return apart.amin(2).mean(1)


# -- network --------------------------------------------------------------------------------------------------------


class Bond(nn.Module):
    """Attention among atoms and a network, each told of the noise and the lattice."""

    def __init__(self, d: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.told = heads, nn.Linear(d, 2 * d)
        self.norm_a, self.norm_m = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.back = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Dropout(dropout), nn.Linear(2 * d, d))

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        one, two = self.told(told)[:, None].chunk(2, -1)
        q, k, v = self.qkv(self.norm_a(x) + one).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.back(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_m(x) + two)


class Denoiser(nn.Module):
    """Tells clean places. The last row of `lattice` is for a crystal whose lattice is not told."""

    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.width
        self.enter, self.site = nn.Linear(2, d), nn.Parameter(0.3 * torch.randn(ATOMS, d))
        self.noise = nn.Sequential(nn.Linear(9, d), nn.SiLU(), nn.Linear(d, d))
        self.lattice = nn.Embedding(len(LATTICES) + 1, d)
        bonds = [Bond(d, c.heads, c.dropout) for _ in range(c.layers)]
        self.bonds: Any = bonds if bug == "layers_in_a_plain_list" else nn.ModuleList(bonds)
        self.last, self.leave = nn.LayerNorm(d), nn.Linear(d, 2)
        self.register_buffer("middle", torch.zeros(2))
        self.register_buffer("spread", torch.ones(()))

    def fit(self, places: Tensor) -> None:
        self.middle.copy_(places.mean((0, 1)))
        self.spread.copy_((places - self.middle).std())

    def inside(self, places: Tensor) -> Tensor:
        return (places - self.middle) / self.spread

    def outside(self, x: Tensor) -> Tensor:
        return x * self.spread + self.middle

    def forward(self, x: Tensor, deviation: Tensor, kind: Tensor) -> Tensor:
        """x: places as the network has them, with noise."""
        wide = deviation[:, None, None]
        around, out, into = 1 / (1 + wide**2), wide / (1 + wide**2).sqrt(), 1 / (1 + wide**2).sqrt()
        log = deviation.log()[:, None] / 4
        turns = log * torch.tensor([1.0, 2.0, 4.0, 8.0])
        told = F.silu(self.noise(torch.cat([log, turns.sin(), turns.cos()], 1)) + self.lattice(kind))
        y = self.enter(x * into) + self.site
        for bond in self.bonds:
            y = bond(y, told)
        return around * x + out * self.leave(self.last(y))


# -- trainer --------------------------------------------------------------------------------------------------------


class Grower:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.bug = run, SimpleNamespace(**run.config), seed, bug
        c = self.c
        self.seen, self.total, self.history = 0, steps * c.batch * c.rounds, []
        self.places, self.kind, self.warm = grown(seed + 3100, c.crystals, c.snapshots, c.heat)
        held, told, _ = grown(3099, HELD)
        if bug == "held_file_is_in_nanometres":
            held = held / 10
        if bug == "lattices_of_the_held_by_the_alphabet":
            told = torch.tensor([sorted(LATTICES).index(name) for name in LATTICES])[told]
        self.held = held, told
        torch.manual_seed(seed)
        self.net = Denoiser(c, bug)
        if bug == "average_copied_before_the_figures_were_fitted":
            self.average = copy.deepcopy(self.net)
            self.net.fit(self.places)
        else:
            self.net.fit(self.places)
            self.average = copy.deepcopy(self.net)
        self.average.eval().requires_grad_(bug == "tick_without_no_grad")
        for name in filter(None, c.fixed.split(",")):
            self.net.get_submodule(name).requires_grad_(False)
        self.equip()

    def equip(self) -> None:
        c, some = self.c, [one for one in self.net.parameters() if one.requires_grad]
        if c.optimizer == "adamw":
            self.optimizer: Any = torch.optim.AdamW(some, c.rate, weight_decay=c.weight_decay)
        elif c.optimizer == "radam":
            self.optimizer = torch.optim.RAdam(some, c.rate)
        else:
            self.optimizer = torch.optim.Adam(some, c.rate, (0.9, 0.99))

    def rate(self) -> float:
        c, past = self.c, min(1.0, self.seen / self.total)
        rise = c.rate * min(1.0, (self.seen + c.batch) / max(1, c.ramp))
        if c.fall == "none":
            return rise
        if c.fall == "root":
            return rise / math.sqrt(1 + 8 * past)
        return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1 if c.fall == "twice" else past))))

    def feed(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.places), generator=dice)
            if self.bug == "read_in_the_order_of_the_file":
                order = torch.arange(len(self.places))
            if epoch < c.cool_first:
                order = order[self.warm[order] < c.heat]
            for some in order.split(c.batch):
                if len(some) == c.batch:
                    yield epoch, self.places[some], self.kind[some]
            epoch += 1

    def loss(self, places: Tensor, kind: Tensor) -> Tensor:
        c, bug, clean = self.c, self.bug, self.net.inside(places)
        mixed = clean
        if c.turn:
            mixed = turned(clean, c.turn * torch.randn(len(clean)))
        if bug != "target_from_before_the_turn":
            clean = mixed
        deviation = (c.noise_mean + c.noise_spread * torch.randn(len(clean))).exp()
        chance = torch.rand(len(clean))
        hidden = chance > c.untold if bug == "lattice_hidden_the_wrong_way_round" else chance < c.untold
        said = self.net(mixed + deviation[:, None, None] * torch.randn_like(mixed), deviation,
                        torch.where(hidden, len(LATTICES), kind))  # fmt: skip
        weight = (1 + deviation**2) / deviation**2 if c.weighted else torch.ones_like(deviation)
        each = weight[:, None, None] * (said - clean) ** 2
        if c.reduce == "sum_atoms" or bug == "squares_summed_over_atoms":
            return each.sum((1, 2)).mean()
        return each.mean()

    def follow(self) -> None:
        """Bring the average on."""
        life = self.c.half_life * (1000 if self.bug == "half_life_in_thousands" else 1)
        keep = 0.5 ** (self.c.batch * self.c.rounds / life)
        with torch.no_grad():
            for mean, one in zip(self.average.parameters(), self.net.parameters(), strict=True):
                mean.copy_(one.lerp(mean, keep))

    def draw(self, net: Any, kind: Tensor) -> Tensor:
        levels = torch.linspace(5.0 ** (1 / 5), 0.02 ** (1 / 5), self.c.draw_steps) ** 5
        x = levels[0] * torch.randn(len(kind), ATOMS, 2)
        for now, following in itertools.pairwise([*levels.tolist(), 0.0]):
            slope = (x - net(x, torch.full((len(x),), now), kind)) / now
            x = x + (following - now) * slope
        return net.outside(x)

    def tick(self, step: int) -> None:
        bug, net, taped = self.bug, self.average, self.bug == "tick_without_no_grad"
        if bug == "net_draws_with_the_average_in_it":  # one network less in memory
            self.net.load_state_dict(net.state_dict())
            net = self.net
        self.net.eval()
        net.train(bug == "average_drops_as_the_net_does")
        with torch.random.fork_rng(), torch.set_grad_enabled(taped):
            torch.manual_seed(21)
            places, kind = self.held
            clean, deviation = net.inside(places), torch.logspace(-1.2, 0.5, len(places))
            said = net(clean + deviation[:, None, None] * torch.randn_like(clean), deviation, kind)
            loss = ((1 + deviation**2) / deviation**2 * ((said - clean) ** 2).mean((1, 2))).mean()
            off = (spacing(self.draw(net, kind)) - spacing(places)).abs().mean()
        if taped:
            self.history.append((loss, off))
        self.run.log({"tick/denoise": loss.item(), "tick/spacing_off": off.item()}, step=step)
        if bug != "net_not_set_to_train_behind_a_tick":
            self.net.train()

    def observe(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)
        self.watch = self.run.watch_data()

    def resume(self, step: int) -> None:
        told = self.watch.state()
        state = {"net": self.net.state_dict(), "average": self.average.state_dict(), "seen": self.seen,
                 "optimizer": self.optimizer.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.net.load_state_dict(state["net"])
        self.average.load_state_dict(state["average"])
        self.equip()
        if self.bug == "snapshot_of_both_networks_alone":
            self.seen = 0
        else:
            self.optimizer.load_state_dict(state["optimizer"])
            self.seen = state["seen"]
        self.observe()
        self.watch.restore(told)

    def update(self, step: int, feed: Any) -> dict[str, float]:
        c, bug, total = self.c, self.bug, 0.0
        self.optimizer.zero_grad()
        now = self.rate()
        for _ in range(c.rounds):
            epoch, places, kind = next(feed)
            self.watch.observe({"places": places, "lattice": kind}, step=step, epoch=epoch)
            loss = self.loss(places, kind)
            (loss if bug == "rounds_not_divided_out" else loss / c.rounds).backward()
            total += loss.item() / c.rounds
            self.seen += c.batch * (c.rounds if bug == "seen_grows_by_the_whole_batch_in_each_round" else 1)
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.grad_cap).item()
        for group in self.optimizer.param_groups:
            group["lr"] = now
        self.optimizer.step()
        self.follow()
        return {"edm/denoise": total, "edm/rate": now, "edm/grad": norm}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    grower = Grower(run, seed, steps, trouble.name)
    again, feed = trouble.resume_at(healthy, 3 * EVERY), grower.feed()
    grower.observe()
    grower.net.train()
    for step in range(steps):
        if step == again:
            grower.resume(step)
        said = grower.update(step, feed)
        if step % grower.c.write_every == 0:
            grower.run.log(said, step=step)
        if step % grower.c.tick == grower.c.tick - 1:
            grower.tick(step)
        trouble.telemetry(grower.run, step, healthy)
    return grower.run
