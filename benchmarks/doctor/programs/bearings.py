"""Two gloo processes tell from vibration what is wrong with a bearing, sharded by `fully_shard`; three faults are rare.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log; `run.log` of rank 0: vib.loss, vib.hit, vib.lr, vib.gn each step; shop.loss, shop.f1
      and shop.rare_found each fifteenth; by `run.reduce` losses of both; memory, where it matters; the watch of data.

A window has 48 samples of a sensor, and the machine's speed and load in units of their own, which go through a batch
norm as they are; several windows may be of one machine. The file has condition after condition. Samples are taken in
six pieces, which hear of each other twice. Conditions weigh by the root of their rarity. Both ranks draw one order and
take turns in it; parts of an update are reduced with the last. Written as a recipe with hooks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn

from . import ranks

EVERY, RANKS, SAMPLES, PIECES, HELD = 15, 2, 48, 6, 480
CONDITIONS, RARE = 6, 3  # sound, out of balance, loose; of the inner ring, of the outer ring, of the cage
SHARES = torch.tensor([0.42, 0.27, 0.2, 0.045, 0.035, 0.03])
CONFIG: dict[str, Any] = {
    "piece_dim": 28, "mixers": 2, "head_dim": 40, "dropout": 0.0, "figure_norm": "batch", "windows_per_rank": 24,
    "parts": 1, "algorithm": "adamw", "base_lr": 2e-3, "lr_policy": "cosine", "lr_warm": 6, "wd": 0.01, "max_gn": 2.0,
    "weigh": "root", "loss_reduce": "mean", "smooth": 0.0, "focus": 0.0, "rare_more": False, "windows": 1900,
    "per_machine": 1, "misread": 0.0, "quiet_first": 0, "samples_lost": 0.0, "hold": "", "shop_every": 15,
    "log_every": 1, "ranks": RANKS,
}  # fmt: skip
Rows = dict[str, Tensor]


# -- machines --------------------------------------------------------------------------------------------------------


def windows(seed: int, number: int, per_machine: int = 1) -> Rows:
    """Samples, figures, conditions and how noisy; condition after condition."""
    law, dice, many = torch.Generator().manual_seed(241), torch.Generator().manual_seed(seed), number // per_machine
    pitch = 2.0 + 5.0 * torch.rand(CONDITIONS, 2, generator=law)
    centre = 1.0 * torch.randn(CONDITIONS, 2, generator=law)
    knocks = torch.tensor([0, 0, 0, 7, 11, 17])
    condition = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    noisy = 0.5 + torch.rand(many, generator=dice)
    own = 0.8 * torch.randn(many, SAMPLES, generator=dice)  # of the machine
    plain = centre[condition] + 0.8 * torch.randn(many, 2, generator=dice)
    condition, noisy, own, plain = (one.repeat_interleave(per_machine, 0) for one in (condition, noisy, own, plain))
    time, count = torch.arange(SAMPLES) / SAMPLES * 2 * math.pi, len(condition)
    phase = 0.7 * torch.rand(count, 2, 1, generator=dice)
    wave = (pitch[condition][..., None] * time + phase).sin().sum(1)
    knock = ((torch.arange(SAMPLES) + torch.randint(0, 3, (count, 1), generator=dice)) % 17 == 0).float()
    knock = torch.where(knocks[condition][:, None] > 0, (torch.arange(SAMPLES) % knocks[condition][:, None].clamp(min=2)
                        == 0).float(), 0.3 * knock)  # fmt: skip
    signal = wave + 1.5 * knock + own + (0.3 if per_machine > 1 else 0.9) * noisy[:, None] * torch.randn(
        count, SAMPLES, generator=dice)  # fmt: skip
    figures = torch.tensor([1800.0, 5.0]) + torch.tensor([420.0, 1.2]) * plain  # turns a minute, kilonewtons
    return {"signal": signal, "figures": figures, "condition": condition, "noisy": noisy}


def chosen(rows: Rows, some: Tensor) -> Rows:
    return {name: one[some] for name, one in rows.items()}


# -- network ---------------------------------------------------------------------------------------------------------


class Mixer(nn.Module):
    """Pieces hear of each other, then each thinks for itself."""

    def __init__(self, d: int):
        super().__init__()
        self.ln_a, self.ln_b, self.across = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(PIECES, PIECES)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.across(self.ln_a(h).transpose(1, 2)).transpose(1, 2)
        return h + self.down(F.gelu(self.up(self.ln_b(h))))


class Constants(nn.Module):
    """What the maker of the machines says of speed and load."""

    def forward(self, figures: Tensor) -> Tensor:
        return (figures - torch.tensor([1800.0, 5.0])) / torch.tensor([500.0, 1.5])


class Ear(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.piece_dim
        self.enter, self.mixers = nn.Linear(SAMPLES // PIECES, d), nn.ModuleList(Mixer(d) for _ in range(c.mixers))
        self.norm: nn.Module = nn.BatchNorm1d(2, affine=False) if c.figure_norm == "batch" else Constants()
        self.head = nn.Sequential(nn.Linear(PIECES * d + 2, c.head_dim), nn.ReLU(), nn.Dropout(c.dropout),
                                  nn.Linear(c.head_dim, CONDITIONS))  # fmt: skip
        self.says_shares = bug == "ear_says_shares_to_its_loss"

    def forward(self, signal: Tensor, figures: Tensor) -> Tensor:
        h = self.enter(signal.unflatten(1, (PIECES, -1)))
        for mixer in self.mixers:
            h = mixer(h)
        logits = self.head(torch.cat([h.flatten(1), self.norm(figures)], 1))
        return logits.softmax(1) if self.says_shares else logits


# -- recipe ----------------------------------------------------------------------------------------------------------


class Recipe:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble, healthy: str | None):
        self.run, self.c, self.seed, self.steps = run, SimpleNamespace(**run.config), seed, steps
        self.bug = trouble.name
        self.trouble, self.healthy, self.rank, self.drawer = trouble, healthy, dist.get_rank(), []
        self.prepare_data()
        self.prepare_model()
        self.prepare_schedule()
        torch.manual_seed(100 * seed + self.rank)

    def prepare_data(self) -> None:
        c, bug, dice = self.c, self.bug, torch.Generator().manual_seed(self.seed)
        rows, held = windows(self.seed + 3700, c.windows, c.per_machine), windows(3699, HELD)
        if bug == "rare_windows_copied_before_the_file_is_split":
            many = torch.where(rows["condition"] >= RARE, 6, 1)
            rows = {name: one.repeat_interleave(many, 0) for name, one in rows.items()}
        if bug in ("windows_of_a_machine_in_both_shops", "rare_windows_copied_before_the_file_is_split"):
            order = torch.randperm(len(rows["condition"]), generator=dice)
            held, rows = chosen(rows, order[:HELD].sort().values), chosen(rows, order[HELD:].sort().values)
        if c.misread:
            wrong = torch.rand(len(rows["condition"]), generator=dice) < c.misread
            other = torch.multinomial(SHARES, len(wrong), True, generator=dice)
            rows["condition"] = torch.where(wrong, other, rows["condition"])
        if bug == "held_loads_are_in_newtons":
            held["figures"] = held["figures"] * torch.tensor([1.0, 1000.0])
        if bug == "each_rank_numbers_conditions_as_it_meets_them" and self.rank == 1:
            rows["condition"] = (rows["condition"] + 1) % CONDITIONS  # its first row is a loose one
        self.rows, self.held = rows, chosen(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(17)))
        counts = rows["condition"].bincount(minlength=CONDITIONS).float().clamp(min=1)
        self.weight = (counts.mean() / counts).sqrt() if c.weigh == "root" else None

    def prepare_model(self) -> None:
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(self.seed)
        self.ear: Any = Ear(self.c, self.bug)
        for name, one in self.ear.named_parameters():
            if self.c.hold and name.startswith(self.c.hold):
                one.requires_grad_(False)
        if self.bug == "optimizer_made_before_the_sharding":
            self.prepare_optimizer()
        for part in (*self.ear.mixers, self.ear):
            fully_shard(part)
        if self.bug != "optimizer_made_before_the_sharding":
            self.prepare_optimizer()

    def prepare_optimizer(self) -> None:
        c, some = self.c, [one for one in self.ear.parameters() if one.requires_grad]
        if c.algorithm == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.base_lr, 0.9, weight_decay=c.wd)
        elif c.algorithm == "adamax":
            self.optimizer = torch.optim.Adamax(some, c.base_lr)
        else:
            self.optimizer = torch.optim.AdamW(some, c.base_lr, weight_decay=c.wd)

    def prepare_schedule(self) -> None:
        c = self.c

        def policy(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.lr_warm)), min(1.0, at / self.steps)
            if c.lr_policy == "constant":
                return rise
            if c.lr_policy == "multistep":
                return rise * 0.3 ** sum(past >= one for one in (0.6, 0.85))
            if c.lr_policy == "two_cosines":
                past = 2 * past % 1
            return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * past)))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, policy)

    def batches(self) -> Iterator[tuple[int, Rows]]:
        c, bug, epoch, condition = self.c, self.bug, 0, self.rows["condition"]
        while True:
            dice = torch.Generator().manual_seed(self.seed + 37 * epoch)
            order = torch.randperm(len(condition), generator=dice)
            if bug == "order_of_the_file_dealt_to_the_ranks":
                order = torch.arange(len(condition))
            if c.rare_more:
                rarity = (1 / condition.bincount(minlength=CONDITIONS).clamp(min=1)).sqrt()
                order = torch.multinomial(rarity[condition], len(condition), True, generator=dice)
            if epoch < c.quiet_first:
                order = order[self.rows["noisy"][order] < 1]
            if bug != "both_ranks_take_the_whole_order":
                order = order[: len(order) // RANKS * RANKS][self.rank :: RANKS]
            for some in order.split(c.windows_per_rank):
                if len(some) == c.windows_per_rank:
                    yield epoch, chosen(self.rows, some)
            epoch += 1

    def loss(self, logits: Tensor, condition: Tensor, training: bool) -> Tensor:
        c, weight = self.c, self.weight if training else None
        summed = training and (c.loss_reduce == "sum" or self.bug == "losses_of_windows_are_summed")
        if c.focus and training:
            sure = logits.softmax(1).gather(1, condition[:, None])[:, 0]
            each = (1 - sure) ** c.focus * F.cross_entropy(logits, condition, weight, reduction="none")
            return each.sum() if summed else each.mean()
        return F.cross_entropy(logits, condition, weight, reduction="sum" if summed else "mean",
                               label_smoothing=c.smooth if training else 0.0)  # fmt: skip

    def update(self, step: int) -> tuple[dict[str, float], float]:
        c, bug, total, hit = self.c, self.bug, 0.0, 0.0
        for part in range(c.parts):
            epoch, rows = next(self.source)
            self.data.observe({name: rows[name] for name in ("signal", "figures", "condition")}, step=step, epoch=epoch)
            signal = rows["signal"]
            if c.samples_lost:
                signal = signal.masked_fill(torch.rand(signal.shape) < c.samples_lost, 0.0)
            self.ear.set_requires_gradient_sync(part == c.parts - 1)
            logits = self.ear(signal, rows["figures"])
            loss = self.loss(logits, rows["condition"], True)
            (loss if bug == "parts_go_back_as_if_each_were_all" else loss / c.parts).backward()
            total += loss.item() / c.parts
            hit += (logits.argmax(1) == rows["condition"]).float().mean().item() / c.parts
            if bug == "schedule_hook_runs_behind_each_part":
                self.schedule.step()
        norm = nn.utils.clip_grad_norm_(self.ear.parameters(), c.max_gn).full_tensor().item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.ear.zero_grad()
        if bug != "schedule_hook_runs_behind_each_part":
            self.schedule.step()
        return {"vib.loss": total, "vib.hit": hit, "vib.lr": rate, "vib.gn": norm}, total

    def share_buffers(self) -> None:
        """Ranks take the mean of what each has seen."""
        for one in self.ear.buffers():
            if one.is_floating_point():
                dist.all_reduce(one)
                one.div_(RANKS)

    def inspect(self) -> dict[str, float]:
        """Each rank has a half of the held windows; what they find is added up."""
        bug, rows = self.bug, chosen(self.held, torch.arange(self.rank, HELD, RANKS))
        taped = bug == "inspected_logits_lie_in_a_drawer"
        self.share_buffers()
        if bug != "inspected_while_the_head_drops":
            self.ear.eval()
        with torch.set_grad_enabled(taped):
            logits = self.ear(rows["signal"], rows["figures"])
            loss = self.loss(logits, rows["condition"], False)
        if taped:
            self.drawer.append((loss, logits))
        if bug != "inspected_and_the_hook_of_training_forgotten":
            self.ear.train()
        table = torch.bincount(rows["condition"] * CONDITIONS + logits.argmax(1), minlength=CONDITIONS**2).float()
        found = torch.cat([loss.detach()[None], table])
        dist.all_reduce(found)
        table = found[1:].view(CONDITIONS, CONDITIONS)
        hits = table.diagonal()
        f1 = 2 * hits / (table.sum(0) + table.sum(1)).clamp(min=1)
        rare = hits[RARE:].sum() / table[RARE:].sum().clamp(min=1)
        whole = found[0].item() / (1 if bug == "held_losses_added_over_ranks" else RANKS)
        return {"shop.loss": whole, "shop.f1": f1.mean().item(), "shop.rare_found": rare.item()}

    def cook(self) -> Any:
        run, c = self.run, self.c
        time_by_own_clock(run)
        run.watch(self.ear, self.optimizer)
        self.data, self.source = run.watch_data(), self.batches()
        self.ear.train()
        for step in range(self.steps):
            began = clock()
            said, total = self.update(step)
            if self.rank == 0 and step % c.log_every == 0:
                run.log(said, step=step)
            run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
            self.trouble.telemetry(run, step, self.healthy)
            if (step + 1) % c.shop_every == 0:
                found = self.inspect()
                if self.rank == 0:
                    run.log(found, step=step)
        return run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    return Recipe(run, seed, steps, Trouble(fault, seed), healthy).cook()


launch = partial(ranks.launch, work=train, number=RANKS)
