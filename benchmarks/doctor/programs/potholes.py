"""Two workers under gloo tell what a wheel has met from how it shakes; three of seven kinds are rare.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` of the first worker: road_ce, road_hits, road_lr, road_norm each step; bumps_ce, bumps_f1
      and bumps_rare_f1 each nineteenth; by `run.reduce` losses of both; memory, where it matters; the watch of data.

A window has 32 readings of two sensors in millimetres a second squared, and the speed in kilometres an hour; several
windows may be of one drive. The file has kind after kind. Readings are scaled by figures of the training's part, and go
through convolutions with batch norm. A wrapped optimizer averages the gradients of all workers in one flat piece as it
steps. Written as a job with a sampler, a wrapped optimizer and meters.
"""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn

from . import ranks

EVERY, WORKERS, READINGS, HELD = 19, 2, 32, 480
KINDS = ("asphalt", "gravel", "cobbles", "joint", "pothole", "rail", "kerb")
SHARES = torch.tensor([0.34, 0.24, 0.2, 0.12, 0.04, 0.035, 0.025])
RARE = 4  # kinds from here on are rare
CONFIG: dict[str, Any] = {
    "channels": 16, "hidden": 32, "norm": "batch", "dropout": 0.0, "batch": 16, "pieces": 1, "opt": "adamw", "lr": 5e-3,
    "schedule": "cosine", "warmup": 8, "weight_decay": 1e-3, "max_norm": 3.0, "class_weights": "effective",
    "balanced": False, "reduction": "mean", "label_smoothing": 0.0, "gamma": 0.0, "windows": 1900, "of_a_drive": 1,
    "mislabelled": 0.0, "calm_first": 0, "shake": 0.0, "frozen": "", "test_every": 19, "log_every": 1,
    "workers": WORKERS,
}  # fmt: skip
Rows = dict[str, Tensor]


# -- windows ---------------------------------------------------------------------------------------------------------


def drives(seed: int, number: int, of_a_drive: int = 1) -> Rows:
    """Readings, speeds, kinds and drives, kind after kind."""
    laws, dice, many = torch.Generator().manual_seed(53), torch.Generator().manual_seed(seed), number // of_a_drive
    pitch = 0.1 + 0.8 * torch.rand(len(KINDS), 2, generator=laws)
    sharp = 0.2 + 1.6 * torch.rand(len(KINDS), 2, generator=laws)
    kind = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    speed = (45 + 15 * torch.randn(many, generator=dice)).clamp(8, 110)
    own = 1 + 0.15 * torch.randn(many, 2, generator=dice)
    made = {"kind": kind, "speed": speed, "own": own, "drive": torch.arange(many)}
    made = {name: one.repeat_interleave(of_a_drive, 0) for name, one in made.items()}
    many, kind = len(made["kind"]), made["kind"]
    phase = 6 * torch.rand(many, 1, 1, generator=dice)
    time = torch.arange(READINGS)
    wave = (time * (pitch[kind] * made["own"])[..., None] * (made["speed"] / 45)[:, None, None] * 3 + phase).sin()
    hit = torch.randint(4, READINGS - 8, (many, 1, 1), generator=dice)
    knock = (kind >= 3)[:, None, None] * torch.exp(-(((time - hit) / (1 + 3 * sharp[kind])[..., None]) ** 2))
    noise = torch.randn(many, 2, READINGS, generator=dice)
    rough = 0.5 + torch.rand(many, generator=dice)
    made["rough"] = rough
    made["shakes"] = 900 * (sharp[kind][..., None] * wave + 2.2 * knock + 0.5 * rough[:, None, None] * noise) + 300
    del made["own"]
    return made


def picked(rows: Rows, some: Tensor) -> Rows:
    return {name: one[some] for name, one in rows.items()}


# -- net -------------------------------------------------------------------------------------------------------------


class Wheel(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.channels
        self.bug = bug
        first, second = (nn.Conv1d(into, out, 5, stride, 2) for into, out, stride in ((2, d, 1), (d, 2 * d, 2)))
        norms = [nn.BatchNorm1d(out) if c.norm == "batch" else nn.GroupNorm(4, out) for out in (d, 2 * d)]
        self.body = nn.Sequential(first, norms[0], nn.ReLU(), second, norms[1], nn.ReLU())
        self.head = nn.Sequential(nn.Linear(4 * d + 1, c.hidden), nn.ReLU(), nn.Dropout(c.dropout),
                                  nn.Linear(c.hidden, len(KINDS)))  # fmt: skip

    def forward(self, shakes: Tensor, speed: Tensor) -> Tensor:
        x = self.body(shakes)
        logits = self.head(torch.cat([x.amax(2), x.mean(2), speed[:, None]], 1))
        return F.softmax(logits, 1) if self.bug == "wheel_answers_with_probabilities" else logits


# -- workers ---------------------------------------------------------------------------------------------------------


class Averaged:
    """An optimizer that averages the gradients of all workers before it steps."""

    def __init__(self, optimizer: Any, net: nn.Module, bug: str):
        self.optimizer, self.net, self.bug = optimizer, net, bug

    def synchronize(self) -> None:
        some = [one.grad for one in self.net.parameters() if one.grad is not None]
        flat = torch.cat([one.flatten() for one in some])
        dist.all_reduce(flat)
        if self.bug != "workers_gradients_summed":
            flat /= dist.get_world_size()
        for one, piece in zip(some, flat.split([one.numel() for one in some]), strict=True):
            one.copy_(piece.view_as(one))


def broadcast(net: nn.Module) -> None:
    for one in [*net.parameters(), *net.buffers()]:
        dist.broadcast(one.data, 0)


class Sampler:
    """Rows of this worker, epoch by epoch."""

    def __init__(self, rows: Rows, c: Any, seed: int, bug: str):
        self.rows, self.c, self.seed, self.bug = rows, c, seed, bug
        self.rank, self.replicas = dist.get_rank(), dist.get_world_size()
        if bug == "sampler_asks_before_the_group_is_there":
            self.rank, self.replicas = 0, 1

    def order(self, epoch: int) -> Tensor:
        many = len(self.rows["kind"])
        dice = torch.Generator().manual_seed(1000 * self.seed + epoch)
        if self.c.balanced:
            rarity = 1 / torch.bincount(self.rows["kind"]).float()[self.rows["kind"]]
            order = torch.multinomial(rarity, many, True, generator=dice)
        else:
            order = torch.randperm(many, generator=dice)
        if self.bug == "sampler_without_its_shuffle":
            order = torch.arange(many)
        if epoch < self.c.calm_first:
            order = order[self.rows["rough"][order] < 1.0]
        return order[self.rank :: self.replicas]


def gathered(c: Any, seed: int, bug: str) -> tuple[Rows, Rows]:
    """Rows of the training and of the test, scaled."""
    rows, test = drives(seed + 2100, c.windows, c.of_a_drive), drives(2099, HELD)
    if bug == "windows_split_and_not_drives":
        order = torch.randperm(len(rows["kind"]), generator=torch.Generator().manual_seed(seed))
        rows, test = picked(rows, order[HELD:].sort().values), picked(rows, order[:HELD].sort().values)
    if c.mislabelled:
        dice = torch.Generator().manual_seed(seed)
        wrong = torch.rand(len(rows["kind"]), generator=dice) < c.mislabelled
        rows["kind"] = torch.where(wrong, torch.multinomial(SHARES, len(wrong), True, generator=dice), rows["kind"])
    mean, std = rows["shakes"].mean((0, 2)), rows["shakes"].std((0, 2))
    if bug == "test_readings_in_metres":
        test["shakes"] = test["shakes"] / 1000
    for one in (rows, test):
        one["shakes"] = (one["shakes"] - mean[:, None]) / std[:, None]
        one["speed"] = (one["speed"] - 45) / 15
    if bug == "kinds_of_the_test_sorted_by_name":
        place = torch.tensor([sorted(KINDS).index(kind) for kind in KINDS])
        test["kind"] = place[test["kind"]]
    return rows, test


def weights(c: Any, kind: Tensor) -> Tensor:
    counts = torch.bincount(kind, minlength=len(KINDS)).float().clamp(min=1)
    if c.class_weights == "none":
        return torch.ones(len(KINDS))
    weight = (1 - 0.998) / (1 - 0.998**counts) if c.class_weights == "effective" else counts**-0.5
    return weight / (weight * counts).sum() * counts.sum()


# -- job -------------------------------------------------------------------------------------------------------------


class Job:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.rank, self.kept, c = dist.get_rank(), [], self.c
        self.rows, self.test = gathered(c, seed, bug)
        self.weight = weights(c, self.rows["kind"])
        torch.manual_seed(seed)
        self.net = Wheel(c, bug)
        for name in filter(None, c.frozen.split(",")):
            self.net.get_submodule(name).requires_grad_(False)
        broadcast(self.net)
        some = [one for one in self.net.parameters() if one.requires_grad]
        if bug == "head_of_before_in_the_optimizer":
            some = [one for name, one in self.net.named_parameters() if not name.startswith("head")]
            self.net.head = type(self.net)(c, bug).head  # anew, as for other kinds
            some += self.net.head[0].parameters()
            broadcast(self.net)
        if c.opt == "sgd":
            optimizer: Any = torch.optim.SGD(some, c.lr, 0.9, weight_decay=c.weight_decay)
        elif c.opt == "rmsprop":
            optimizer = torch.optim.RMSprop(some, c.lr)
        else:
            optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)
        self.optimizer, self.averaged = optimizer, Averaged(optimizer, self.net, bug)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.by)
        torch.manual_seed(seed + 31 * (self.rank + 1))  # of dropout

    def by(self, at: int) -> float:
        c, past = self.c, min(1.0, at / self.steps)
        rise = min(1.0, (at + 1) / max(1, c.warmup))
        if c.schedule == "constant":
            return rise
        if c.schedule == "cycles":
            return rise * (0.05 + 0.95 * (1 - (2 * past % 1)))
        if c.schedule == "linear":
            return rise * (1 - 0.98 * past)
        return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))

    def mode(self, training: bool) -> None:
        self.net.train(training)
        if self.bug == "norms_held_as_when_the_body_was_lent":
            for one in self.net.body:
                if isinstance(one, nn.BatchNorm1d):
                    one.eval()

    def batches(self) -> Any:
        c, epoch, sampler = self.c, 0, Sampler(self.rows, self.c, self.seed, self.bug)
        dice = torch.Generator().manual_seed(self.seed + 57 * self.rank)
        while True:
            for some in sampler.order(epoch).split(c.batch):
                if len(some) == c.batch:
                    batch = picked(self.rows, some)
                    if c.shake:
                        batch["shakes"] = batch["shakes"] * (1 + c.shake * torch.randn(c.batch, 1, 1, generator=dice))
                    yield epoch, batch
            epoch += 1

    def criterion(self, logits: Tensor, kind: Tensor) -> Tensor:
        c, weight = self.c, self.weight[kind]
        each = F.cross_entropy(logits, kind, reduction="none", label_smoothing=c.label_smoothing)
        if c.gamma:
            sure = logits.detach().softmax(1).gather(1, kind[:, None])[:, 0]
            weight = weight * (sure if self.bug == "focus_falls_on_what_is_sure" else 1 - sure) ** c.gamma
        if c.reduction == "sum" or self.bug == "weighted_losses_left_as_a_sum":
            return (each * weight).sum()
        return (each * weight).mean() if c.gamma else (each * weight).sum() / weight.sum()

    def step(self, step: int, batches: Any) -> tuple[dict[str, float], float]:
        c, bug, total, hits = self.c, self.bug, 0.0, 0.0
        for _ in range(c.pieces):
            epoch, batch = next(batches)
            kind = batch["kind"]
            self.watch.observe({"shakes": batch["shakes"], "kind": kind}, step=step, epoch=epoch)
            logits = self.net(batch["shakes"], batch["speed"])
            loss = self.criterion(logits, kind)
            (loss if bug == "pieces_backed_without_division" else loss / c.pieces).backward()
            total += loss.item() / c.pieces
            hits += (logits.argmax(1) == kind).float().mean().item() / c.pieces
            if bug == "scheduler_moves_by_pieces":
                self.scheduler.step()
        self.averaged.synchronize()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.max_norm).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.net.zero_grad()
        if bug != "scheduler_moves_by_pieces":
            self.scheduler.step()
        return {"road_ce": total, "road_hits": hits, "road_lr": rate, "road_norm": norm}, total

    def tested(self) -> dict[str, float]:
        """Each worker tests every second row; counts are added up."""
        rows, many = picked(self.test, torch.arange(self.rank, HELD, dist.get_world_size())), len(KINDS)
        taped = self.bug == "meters_keep_losses_and_their_past"
        if self.bug != "test_is_run_in_training_mode":
            self.mode(False)
        with torch.set_grad_enabled(taped):
            logits = self.net(rows["shakes"], rows["speed"])
            loss = F.cross_entropy(logits, rows["kind"], reduction="sum")
        if taped:
            self.kept.append((loss, logits))
        if self.bug != "test_goes_over_into_training_in_eval":
            self.mode(True)
        told, right = logits.argmax(1), logits.argmax(1) == rows["kind"]
        counts = [torch.bincount(one, minlength=many).float() for one in (rows["kind"], told, told[right])]
        flat = torch.cat([*counts, loss.detach()[None]])
        dist.all_reduce(flat)
        there, said, hits, total = flat.split([many, many, many, 1])
        f1 = 2 * hits / (there + said).clamp(min=1)
        return {"bumps_ce": total.item() / HELD, "bumps_f1": f1.mean().item(), "bumps_rare_f1": f1[RARE:].mean().item()}


def main(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this worker, record, return the run."""
    torch.set_num_threads(1)
    trouble = Trouble(fault, seed)
    job = Job(run, seed, steps, trouble.name)
    time_by_own_clock(run)
    run.watch(job.net, job.optimizer)
    job.watch, batches = run.watch_data(), job.batches()
    job.mode(True)
    for step in range(steps):
        began = clock()
        said, total = job.step(step, batches)
        if job.rank == 0 and step % job.c.log_every == 0:
            run.log(said, step=step)
        run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
        trouble.telemetry(run, step, healthy)
        if step % job.c.test_every == job.c.test_every - 1:
            said = job.tested()
            if job.rank == 0:
                run.log(said, step=step)
    return run


train = main
launch = partial(ranks.launch, work=main, number=WORKERS)
