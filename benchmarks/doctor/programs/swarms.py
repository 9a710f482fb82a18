"""A flow carries noise to formations of drones: eighteen numbered points, each of which sees the others.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: cfm/loss, cfm/lr, cfm/gnorm each step; ema/cfm_loss, ema/sample_gap each twentieth; the
      watch of data.

Times are drawn from a logistic normal, paths are straight, the velocity is learnt; layers are scaled and shifted by
time and formation. An average of the weights, which warms up, is judged and sampled with by a solver of few steps. A
script over flags and functions, as those who compare flows have it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

EVERY, DRONES, FORMATIONS, HELD = 20, 18, 6, 180
ANY = FORMATIONS + 1  # the row for a formation that is not told
INDOORS = torch.tensor([150.0, 120.0]), torch.tensor([60.0, 45.0])  # the camera of the hall, where the pilots flew
CONFIG: dict[str, Any] = {
    "num_channel": 40, "num_blocks": 3, "num_heads": 4, "dropout": 0.0, "batch_size": 32, "accum_iter": 1, "lr": 4e-3,
    "warmup": 8, "hold": 0.6, "lr_policy": "trapezoid", "grad_clip": 1.0, "optimizer": "adamw", "wd": 1e-3,
    "ema_decay": 0.9, "ema_start": 0, "ema_every": 1, "ema_judged": True, "cond_drop": 0.1, "time_draw": "lognormal",
    "flights": 640, "frames": 1, "jitter": 1.0, "mislabelled": 0.0, "pairing": "independent", "huber": 0.0,
    "fixed_layers": "", "simple_first": 0, "solver_steps": 6, "in_turn": False,
}  # fmt: skip


def fly(seed: int, number: int, frames: int = 1, jitter: float = 1.0, wrong: float = 0.0) -> tuple[Tensor, Tensor]:
    """Places (number, DRONES, 2) in the camera's pixels, and formations. frames: pictures of one flight."""
    dice = torch.Generator().manual_seed(seed)
    flights = number // frames
    kind, own = torch.randint(0, FORMATIONS, (flights,), generator=dice), torch.rand(flights, 4, 1, generator=dice)
    at = torch.linspace(0, 1, DRONES)[None].expand(flights, -1)
    round_, side = 6.283 * at, 2 * at - 1
    row, column = (torch.arange(DRONES) // 6 - 1.0), (torch.arange(DRONES) % 6 - 2.5) / 2.5
    x = torch.stack(
        [
            round_.cos(),
            side,
            column.expand_as(at),
            at * round_.mul(1.5).cos(),
            side,
            torch.where(at < 0.5, -0.7 + 0.3 * (2 * round_).cos(), 0.7 + 0.3 * (2 * round_).cos()),
        ],
        1,
    )
    y = torch.stack([round_.sin(), 0.1 * side, row.expand_as(at), at * round_.mul(1.5).sin(), side.abs() - 0.5,
                     0.3 * (2 * round_).sin()], 1)  # fmt: skip
    x, y = (one[torch.arange(flights), kind] for one in (x, y))
    turn = 0.5 * (own[:, 0] - 0.5)
    x, y = turn.cos() * x - turn.sin() * y, turn.sin() * x + turn.cos() * y
    size = 0.7 + 0.5 * own[:, 1]
    places = torch.stack([x * size + 0.3 * (own[:, 2] - 0.5), y * size + 0.3 * (own[:, 3] - 0.5)], -1)
    places, kind = places.repeat_interleave(frames, 0), kind.repeat_interleave(frames)
    places = places + 0.05 * jitter * torch.randn(places.shape, generator=dice)
    chance = torch.randint(0, FORMATIONS, kind.shape, generator=dice)
    kind = torch.where(torch.rand(kind.shape, generator=dice) < wrong, chance, kind)
    return 320 + torch.tensor([150.0, 110.0]) * places, kind


class Flights(Dataset[tuple[Tensor, Tensor, Tensor]]):
    def __init__(self, places: Tensor, kind: Tensor, seed: int):
        self.places, self.kind = places, kind
        self.dice = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.places[at], self.kind[at], torch.randn(DRONES, 2, generator=self.dice)


class Layer(nn.Module):
    def __init__(self, f: Any):
        super().__init__()
        d, self.heads = f.num_channel, f.num_heads
        self.ln_a, self.ln_m = (nn.LayerNorm(d, elementwise_affine=False) for _ in range(2))
        self.in_proj, self.out_proj, self.drop = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Dropout(f.dropout)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.SiLU(), nn.Dropout(f.dropout), nn.Linear(3 * d, d))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))
        nn.init.zeros_(self.ada[1].weight)
        nn.init.zeros_(self.ada[1].bias)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        s1, b1, g1, s2, b2, g2 = self.ada(told)[:, None].chunk(6, -1)
        y = self.ln_a(x) * (1 + s1) + b1
        q, k, v = self.in_proj(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + (1 + g1) * self.drop(self.out_proj(y))
        return x + (1 + g2) * self.mlp(self.ln_m(x) * (1 + s2) + b2)


class Velocity(nn.Module):
    """How each drone is to move, at a time from 0 (noise) to 1."""

    def __init__(self, f: Any):
        super().__init__()
        d = f.num_channel
        self.point_in, self.number = nn.Linear(2, d), nn.Parameter(0.2 * torch.randn(DRONES, d))
        self.register_buffer("waves", torch.randn(12) * 4)
        self.time, self.kind = nn.Sequential(nn.Linear(24, d), nn.SiLU(), nn.Linear(d, d)), nn.Embedding(ANY + 1, d)
        self.layers = nn.ModuleList(Layer(f) for _ in range(f.num_blocks))
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2))

    def forward(self, x: Tensor, t: Tensor, kind: Tensor) -> Tensor:
        turn = t[:, None] * self.waves
        told = self.time(torch.cat([turn.sin(), turn.cos()], 1)) + self.kind(kind)
        y = self.point_in(x) + self.number
        for layer in self.layers:
            y = layer(y, told)
        return self.head(y)


class EMA:
    def __init__(self, net: nn.Module, f: Any, bug: str):
        self.shadow, self.f, self.bug, self.updates = copy.deepcopy(net), f, bug, 0
        if bug != "shadow_copied_while_training":  # the copy has the mode that the net had
            self.shadow.eval()

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        self.updates += 1
        start, every, decay = self.f.ema_start, self.f.ema_every, self.f.ema_decay
        if self.bug == "average_waits_for_a_long_run":  # what the flag is in runs of many thousands
            start = 2000
        if self.updates <= start or self.updates % every:
            if self.bug != "average_waits_for_a_long_run" and self.updates <= start:
                self.shadow.load_state_dict(net.state_dict())
            return
        kept = min(decay, (1 + self.updates - start) / (10 + self.updates - start))
        if self.bug == "average_decay_of_single_updates":  # 0.999 was for each update; this is each tenth
            kept = 0.98
        for mine, theirs in zip(self.shadow.parameters(), net.parameters(), strict=True):
            mine.lerp_(theirs, 1 - kept)


def sets_of(f: Any, seed: int, bug: str) -> tuple[Flights, Tensor, Tensor]:
    places, kind = fly(seed + 6100, f.flights, f.frames, f.jitter, f.mislabelled)
    held, held_kind = fly(60, HELD, 1, f.jitter)
    mean, std = places.mean((0, 1)), places.std((0, 1))
    places = (places - mean) / std
    if bug == "judged_by_the_hall_camera":
        mean, std = INDOORS
    held = (held - mean) / std
    if bug == "formations_listed_from_one":  # in the flights' table; those held out are named, and looked up
        kind = kind + 1
    if bug == "flights_formation_by_formation" or f.in_turn:
        order = kind.argsort(stable=True)
        places, kind = places[order], kind[order]
    return Flights(places, kind, seed), held, held_kind


def endless(f: Any, data: Flights, seed: int, bug: str) -> Iterator[tuple[int, list[Tensor]]]:
    lot, epoch = torch.Generator().manual_seed(seed), 0
    size = f.batch_size // f.accum_iter
    whole: Any = DataLoader(data, size, shuffle=bug != "flights_formation_by_formation", drop_last=True, generator=lot)
    few = [at for at in range(len(data)) if int(data.kind[at]) < f.simple_first]
    while True:
        # as the flag says: the first pass has the simple formations alone
        part = torch.utils.data.Subset(data, few) if f.simple_first and not epoch else None
        for batch in whole if part is None else DataLoader(part, size, shuffle=True, drop_last=True, generator=lot):
            yield epoch, batch
        epoch += 1


def share_of(f: Any, at: int) -> float:
    """Rises, stays, and falls in a line."""
    rise = min(1.0, (at + 1) / max(1, f.warmup))
    if f.lr_policy == "constant":
        return rise
    if f.lr_policy == "restarts":
        return rise * (1 - 0.9 * (3 * at / f.steps % 1))
    if f.lr_policy == "linear":
        return rise * max(0.02, 1 - at / f.steps)
    past = (at / f.steps - f.hold) / (1 - f.hold)
    return rise * min(1.0, max(0.02, 1 - past))


def solver_of(f: Any, net: nn.Module) -> tuple[Any, Any]:
    some = [one for one in net.parameters() if one.requires_grad]
    made: dict[str, Any] = {
        "adamw": lambda: torch.optim.AdamW(some, f.lr, (0.9, 0.95), weight_decay=f.wd),
        "sgd": lambda: torch.optim.SGD(some, f.lr, 0.9, nesterov=True),
        "nadam": lambda: torch.optim.NAdam(some, f.lr),
    }
    optimizer = made[f.optimizer]()
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: share_of(f, at))


def cfm_loss(f: Any, net: nn.Module, x: Tensor, kind: Tensor, noise: Tensor, dice: Any, bug: str) -> Tensor:
    t = torch.rand(len(x), generator=dice)
    if f.time_draw == "lognormal":
        t = torch.randn(len(x), generator=dice).sigmoid()
    if f.pairing == "sorted":  # pairs whose paths cross less: by how far noise lies to the left
        noise = noise[noise.mean((1, 2)).argsort()][x.mean((1, 2)).argsort().argsort()]
    kind = kind.masked_fill(torch.rand(len(x), generator=dice) < f.cond_drop, ANY)
    at = t[:, None, None]
    said = net((1 - at) * noise + at * x, t, kind)
    wanted = noise - x if bug == "velocity_of_the_way_back" else x - noise
    if bug == "velocities_of_swarm_summed":
        return F.mse_loss(said, wanted, reduction="none").sum((1, 2)).mean()
    return F.huber_loss(said, wanted, delta=f.huber) if f.huber else F.mse_loss(said, wanted)


def solve(f: Any, net: nn.Module, kind: Tensor, x: Tensor) -> Tensor:
    for at in range(f.solver_steps):
        t = torch.full((len(x),), at / f.solver_steps)
        x = x + net(x, t, kind) / f.solver_steps
    return x


def judge(s: Any, f: Any, at: int, bug: str) -> None:
    """The loss at fixed times and noise, and how far samples are from the nearest held-out flight of their kind."""
    net, dice = s.ema.shadow if f.ema_judged else s.net, torch.Generator().manual_seed(61)
    mode = net.training
    if bug != "shadow_copied_while_training":
        net.eval()
    kept = bug == "held_flights_with_gradients"
    with torch.set_grad_enabled(kept):
        t, noise = torch.rand(HELD, generator=dice), torch.randn(s.held.shape, generator=dice)
        some = t * 1000 if bug == "judged_at_times_in_thousands" else t
        path = (1 - t)[:, None, None] * noise + t[:, None, None] * s.held
        errors = (net(path, some, s.held_kind) - (s.held - noise)).square().mean((1, 2))
    if kept:
        s.kept.append(errors)
    with torch.no_grad():
        drawn = solve(f, net, s.held_kind[:60], torch.randn(60, DRONES, 2, generator=dice))
        gap = (drawn[:, None] - s.held[None]).square().sum(-1).mean(-1).sqrt()
        gap = gap.masked_fill(s.held_kind[:60, None] != s.held_kind[None], 1e3).amin(1)
    if bug == "judging_ends_the_training_mode":
        s.net.eval()
    elif net is s.net:
        net.train(mode)
    if bug == "copied_from_the_average":  # the other of two functions, whose names are almost alike
        s.net.load_state_dict(s.ema.shadow.state_dict())
    s.run.log({"ema/cfm_loss": errors.mean().item(), "ema/sample_gap": gap.mean().item()}, step=at)


def look_on(s: Any) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.net, s.optimizer)
    s.data = s.run.watch_data()


def gone_on(s: Any, f: Any, at: int, bug: str) -> None:
    seen = s.data.state()
    state = {"net": s.net.state_dict(), "ema": s.ema.shadow.state_dict(), "optim": s.optimizer.state_dict()}
    s.run, saved = go_on(s.run, at, state | {"sched": s.sched.state_dict(), "updates": s.ema.updates})
    s.net.load_state_dict(saved["net"])
    s.ema.shadow.load_state_dict(saved["ema"])
    s.ema.updates = saved["updates"]
    s.optimizer, s.sched = solver_of(f, s.net)
    if bug != "optim_key_spelt_otherwise":  # `saved.get("optimizer")` is nothing, and nothing is loaded
        s.optimizer.load_state_dict(saved["optim"])
    s.sched.load_state_dict(saved["sched"])
    for group, rate in zip(s.optimizer.param_groups, s.sched.get_last_lr(), strict=True):
        group["lr"] = rate
    look_on(s)
    s.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    f, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug, again = trouble.name, trouble.resume_at(healthy, 4 * EVERY)
    torch.manual_seed(seed)
    s, dice = SimpleNamespace(run=run, kept=[], net=Velocity(f)), torch.Generator().manual_seed(seed + 3)
    for name, one in s.net.named_parameters():
        if f.fixed_layers and name.startswith(f.fixed_layers):
            one.requires_grad = False
        if bug == "freeze_asked_the_wrong_way":  # the embedding of time was to stay; a `not` too many
            one.requires_grad = name.startswith("time")
    s.ema = EMA(s.net, f, bug)
    s.optimizer, s.sched = solver_of(f, s.net)
    flights, s.held, s.held_kind = sets_of(f, seed, bug)
    stream = endless(f, flights, seed, bug)
    look_on(s)
    s.net.train()
    for at in range(steps):
        if at == again:
            gone_on(s, f, at, bug)
        total = 0.0
        for _ in range(f.accum_iter):
            epoch, (x, kind, noise) = next(stream)
            s.data.observe({"places": x, "formation": kind}, step=at, epoch=epoch)
            loss = cfm_loss(f, s.net, x, kind, noise, dice, bug)
            (loss if bug == "parts_of_flow_loss_whole" else loss / f.accum_iter).backward()
            total += loss.item() / (1 if bug == "parts_of_flow_loss_whole" else f.accum_iter)
            if bug == "trapezoid_moved_by_each_part":
                s.sched.step()
        norm = nn.utils.clip_grad_norm_(s.net.parameters(), f.grad_clip).item()
        rate = s.optimizer.param_groups[0]["lr"]
        s.optimizer.step()
        s.optimizer.zero_grad(set_to_none=True)
        if bug != "trapezoid_moved_by_each_part":
            s.sched.step()
        s.ema.update(s.net)
        s.run.log({"cfm/loss": total, "cfm/lr": rate, "cfm/gnorm": norm}, step=at)
        trouble.telemetry(s.run, at, healthy)
        if at % EVERY == EVERY - 1:
            judge(s, f, at, bug)
    return s.run
