"""A residual network over columns names minerals on two gloo processes; three of seven minerals are rare.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` of the first rank: Train/CE, Train/Accuracy, Train/LR, Train/GradNorm each step; Valid/CE,
      Valid/BalancedAccuracy, Valid/RareF1 each twenty-fifth; by `run.reduce` losses of both ranks; the watch of data;
      memory, where it matters.

A sample has ten measures in units of their own (shares of elements, density, hardness, an angle) and three properties
in words (colour, lustre, cleavage); a measure may be missing. The file has samples mineral after mineral. Measures are
scaled by figures of the training's part and words are looked up in tables; blocks with batch norm read both. The
network is wrapped by torch's own data parallelism. Written with a data module, a wrapped network, and an engine whose
methods are named after what happens.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from . import ranks

EVERY, RANKS, MEASURES, HELD, MISSING = 25, 2, 10, 500, -99.0
MINERALS = ("quartz", "feldspar", "mica", "calcite", "garnet", "topaz", "beryl")
SHARES = torch.tensor([0.36, 0.26, 0.17, 0.11, 0.04, 0.035, 0.025])
RARE, WORDS = 4, (6, 4, 5)  # minerals from here on are rare; how many words a property has
CONFIG: dict[str, Any] = {
    "width": 48, "blocks": 2, "table": 6, "norm": "batch", "dropout": 0.0, "batch_per_rank": 16, "accumulate": 1,
    "optimizer": "adamw", "lr": 4e-3, "schedule": "one_cycle", "rise": 0.15, "weight_decay": 1e-3, "clip_norm": 2.0,
    "class_weights": "root", "sampler": "plain", "reduction": "mean", "smoothing": 0.0, "focal": 0.0, "samples": 2000,
    "pieces_of_a_rock": 1, "repeat_rare": 1, "wrong_names": 0.0, "missing": 0.03, "complete_first_epochs": 0,
    "frozen": "", "valid_every": 25, "log_every": 1, "world": RANKS,
}  # fmt: skip


# -- samples --------------------------------------------------------------------------------------------------------


class Samples:
    """Measures, words and minerals, mineral after mineral."""

    def __init__(self, seed: int, number: int, pieces: int = 1, missing: float = 0.03):
        laws, dice, many = torch.Generator().manual_seed(27), torch.Generator().manual_seed(seed), number // pieces
        middle = torch.randn(len(MINERALS), MEASURES, generator=laws)
        mixing = torch.randn(MEASURES, MEASURES, generator=laws) / math.sqrt(MEASURES)
        unit = torch.tensor([30.0, 12.0, 6.0, 3.0, 0.5, 0.4, 2.0, 1.3, 40.0, 0.02])
        start = torch.tensor([40.0, 18.0, 9.0, 5.0, 1.0, 2.7, 6.0, 1.6, 90.0, 0.1])
        likes = [torch.rand(len(MINERALS), one, generator=laws) ** 3 for one in WORDS]
        name = torch.multinomial(SHARES, many, True, generator=dice).sort().values
        own = torch.randn(many, MEASURES, generator=dice) @ mixing
        words = torch.stack([torch.multinomial(one[name], 1, generator=dice)[:, 0] for one in likes], 1)
        self.name, own, self.words = (one.repeat_interleave(pieces, 0) for one in (name, own, words))
        small = 0.15 if pieces > 1 else 0.0
        measures = 0.8 * middle[self.name] + own + small * torch.randn(own.shape, generator=dice)
        gone = torch.rand(measures.shape, generator=dice) < missing
        self.measures = torch.where(gone, MISSING, start + unit * measures)

    def pick(self, some: Tensor) -> Samples:
        made = object.__new__(Samples)
        made.measures, made.words, made.name = self.measures[some], self.words[some], self.name[some]
        return made

    def figures(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of each measure, where it is there."""
        real = (self.measures != MISSING).float()
        mean = (self.measures * real).sum(0) / real.sum(0)
        return mean, (((self.measures - mean) ** 2 * real).sum(0) / real.sum(0)).sqrt()

    def scaled(self, mean: Tensor, std: Tensor, fill: bool = True) -> Tensor:
        out = (self.measures - mean) / std
        return torch.where(self.measures == MISSING, 0.0, out) if fill else out


# -- network --------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.norm = nn.BatchNorm1d(c.width) if c.norm == "batch" else nn.LayerNorm(c.width)
        self.one, self.two, self.drop = nn.Linear(c.width, c.width), nn.Linear(c.width, c.width), nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(self.drop(F.relu(self.one(self.norm(x)))))


class Namer(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug, self.tables = bug, nn.ModuleList(nn.Embedding(one, c.table) for one in WORDS)
        self.enter = nn.Linear(MEASURES + 3 * c.table, c.width)
        self.blocks = nn.Sequential(*(Residual(c) for _ in range(c.blocks)))
        self.norm, self.head = nn.BatchNorm1d(c.width), nn.Linear(c.width, len(MINERALS))
        if c.norm != "batch":
            self.norm = nn.LayerNorm(c.width)

    def forward(self, measures: Tensor, words: Tensor) -> Tensor:
        told = [table(words[:, at]) for at, table in enumerate(self.tables)]
        x = self.blocks(self.enter(torch.cat([measures, *told], 1)))
        out = self.head(F.relu(self.norm(x)))
        return out.softmax(1) if self.bug == "predict_and_forward_are_one" else out


# -- data module ----------------------------------------------------------------------------------------------------


class Cabinet:
    def __init__(self, c: Any, seed: int, bug: str):
        self.c, self.seed, self.bug = c, seed, bug
        samples, held = Samples(seed + 3400, c.samples, c.pieces_of_a_rock, c.missing), Samples(3399, HELD)
        dice = torch.Generator().manual_seed(seed)
        if c.repeat_rare > 1:
            many = torch.arange(len(samples.name)).repeat_interleave(
                torch.where(samples.name >= RARE, c.repeat_rare, 1)
            )
            samples = samples.pick(many)
        if bug == "rare_samples_repeated_before_the_split":
            order = torch.randperm(len(samples.name), generator=dice)
            held, samples = samples.pick(order[:HELD]), samples.pick(order[HELD:].sort().values)
        if c.wrong_names:
            wrong = torch.rand(len(samples.name), generator=dice) < c.wrong_names
            stray = torch.multinomial(SHARES, len(wrong), True, generator=dice)
            samples.name = torch.where(wrong, stray, samples.name)
        mean, std = samples.figures()
        if bug == "missing_is_a_number_like_others":
            self.measures = samples.scaled(samples.measures.mean(0), samples.measures.std(0), fill=False)
            self.held = held.scaled(samples.measures.mean(0), samples.measures.std(0), fill=False)
        else:
            self.measures, self.held = samples.scaled(mean, std), held.scaled(mean, std)
        if bug == "transform_of_the_valid_set_left_out":
            self.held = torch.where(held.measures == MISSING, 0.0, held.measures)
        self.words, self.name, self.held_words, self.held_name = samples.words, samples.name, held.words, held.name
        if bug == "names_of_valid_coded_by_the_alphabet":  # those of the training are as the table above has them
            codes = torch.tensor([sorted(MINERALS).index(name) for name in MINERALS])
            self.held_name = codes[held.name]
        self.complete = (samples.measures != MISSING).all(1)
        counts = torch.bincount(self.name, minlength=len(MINERALS)).float().clamp(min=1)
        weight = {"none": torch.ones(len(counts)), "root": counts**-0.5, "inverse": 1 / counts}[c.class_weights]
        self.weight, self.counts = weight / (weight * counts).sum() * counts.sum(), counts
        rank = 0 if bug == "rank_read_from_a_variable_that_is_not_set" else dist.get_rank()
        self.sampler: Any = DistributedSampler(range(len(self.name)), RANKS, rank, True, seed, drop_last=True)

    def epoch(self, number: int) -> list[Tensor]:
        """Rows of this rank's batches."""
        c, bug = self.c, self.bug
        if c.sampler == "balanced":
            own = 0 if bug == "balanced_draws_of_one_seed" else dist.get_rank()
            dice = torch.Generator().manual_seed(self.seed * 100 + number * RANKS + own)
            rows = torch.multinomial(1 / self.counts[self.name], len(self.name) // RANKS, True, generator=dice)
        elif bug == "each_rank_a_piece_of_the_file":
            long = len(self.name) // RANKS
            rows = torch.arange(long) + dist.get_rank() * long
        else:
            self.sampler.set_epoch(number)
            rows = torch.tensor(list(self.sampler))
        if number < c.complete_first_epochs:
            rows = rows[self.complete[rows]]
            rows = rows[: len(self.name) // RANKS // 2]
        return [one for one in rows.split(c.batch_per_rank) if len(one) == c.batch_per_rank]


# -- engine ---------------------------------------------------------------------------------------------------------


class Engine:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.steps, self.bug = run, SimpleNamespace(**run.config), steps, bug
        c = self.c
        self.data = Cabinet(c, seed, bug)
        torch.manual_seed(seed)
        net = Namer(c, bug)
        for name in filter(None, c.frozen.split(",")):
            net.get_submodule(name).requires_grad_(False)
        if bug == "head_replaced_behind_the_optimizer":
            self.configure(net)
            net.head = nn.Linear(c.width, len(MINERALS))
        else:
            self.configure(net)
        self.net = net
        self.wrapped = DistributedDataParallel(net)
        torch.manual_seed(seed + 31 * (dist.get_rank() + 1))  # of dropout

    def configure(self, net: nn.Module) -> None:
        c, some = self.c, [one for one in net.parameters() if one.requires_grad]
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.lr, 0.9, weight_decay=c.weight_decay)
        elif c.optimizer == "adagrad":
            self.optimizer = torch.optim.Adagrad(some, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)

        def by(at: int) -> float:
            past = min(1.0, at / self.steps)
            rise = min(1.0, (past + 0.01) / max(1e-3, c.rise))
            if c.schedule == "level":
                return rise
            if c.schedule == "three_cycles":
                return rise * (0.05 + 0.95 * (1 - 3 * past % 1))
            if c.schedule == "stairs":
                return rise * 0.4 ** int(3 * past)
            fallen = max(0.0, (past - c.rise) / (1 - c.rise))
            return rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * fallen)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, by)

    def criterion(self, out: Tensor, name: Tensor) -> Tensor:
        c, weight = self.c, self.data.weight[name]
        each = F.cross_entropy(out, name, reduction="none", label_smoothing=c.smoothing)
        if c.focal:
            each = each * (1 - out.detach().softmax(1).gather(1, name[:, None])[:, 0]) ** c.focal
        if c.reduction == "sum" or self.bug == "criterion_adds_the_rows":
            return (each * weight).sum()
        return (each * weight).sum() / weight.sum()

    def validate(self, step: int) -> None:
        """Each rank has half of the held samples."""
        data, half = self.data, slice(dist.get_rank(), None, RANKS)
        if self.bug == "running_figures_reset_for_a_clean_valid":
            for one in self.net.modules():
                if isinstance(one, nn.BatchNorm1d):
                    one.reset_running_stats()
        if self.bug != "valid_runs_as_the_training_does":
            self.net.eval()
        with torch.no_grad():
            out, name = self.net(data.held[half], data.held_words[half]), data.held_name[half]
            total = F.cross_entropy(out, name, reduction="sum")
        if self.bug != "no_way_back_from_valid":
            self.net.train()
        said, wide = out.argmax(1), len(MINERALS)
        counts = [torch.bincount(one, minlength=wide).float() for one in (name, said, name[said == name])]
        sums = torch.cat([*counts, total[None]])
        dist.all_reduce(sums)
        of, told, hits = sums[:-1].view(3, wide)
        if dist.get_rank() == 0:
            f1 = (2 * hits / (of + told).clamp(min=1))[RARE:].mean().item()
            self.run.log({"Valid/CE": float(sums[-1] / of.sum()),
                          "Valid/BalancedAccuracy": (hits / of.clamp(min=1)).mean().item(), "Valid/RareF1": f1},
                         step=step)  # fmt: skip

    def backward(self, step: int, epoch: int, lots: tuple[Tensor, ...]) -> tuple[float, float]:
        """Gradients of an update's parts; the last part's are averaged over ranks with those before."""
        c, bug, total, right = self.c, self.bug, 0.0, 0.0
        for at, some in enumerate(lots):
            measures, words, name = self.data.measures[some], self.data.words[some], self.data.name[some]
            self.watch.observe({"measures": measures, "mineral": name}, step=step, epoch=epoch)
            alone = at < len(lots) - 1 or bug == "no_sync_around_the_last_part_too"
            with self.wrapped.no_sync() if alone else contextlib.nullcontext():
                out = self.wrapped(measures, words)
                loss = self.criterion(out, name)
                (loss if bug == "parts_not_shared_out" else loss / c.accumulate).backward()
            total += loss.item() / c.accumulate
            right += (out.argmax(1) == name).float().mean().item() / c.accumulate
            if bug == "scheduler_in_every_backward":
                self.scheduler.step()
        return total, right

    def step(self) -> tuple[float, float]:
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), self.c.clip_norm).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.net.zero_grad()
        if self.bug != "scheduler_in_every_backward":
            self.scheduler.step()
        return norm, rate

    def fit(self, trouble: Trouble, healthy: str | None) -> None:
        c, step, epoch = self.c, 0, 0
        self.net.train()
        while True:
            lots = self.data.epoch(epoch)
            for parts in zip(*(lots[at :: c.accumulate] for at in range(c.accumulate)), strict=False):
                began = clock()
                total, right = self.backward(step, epoch, parts)
                norm, rate = self.step()
                if dist.get_rank() == 0 and step % c.log_every == 0:
                    self.run.log({"Train/CE": total, "Train/Accuracy": right, "Train/LR": rate,
                                  "Train/GradNorm": norm}, step=step)  # fmt: skip
                self.run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
                trouble.telemetry(self.run, step, healthy)
                if step % c.valid_every == c.valid_every - 1:
                    self.validate(step)
                step += 1
                if step == self.steps:
                    return
            epoch += 1


def main(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    trouble = Trouble(fault, seed)
    engine = Engine(run, seed, steps, trouble.name)
    time_by_own_clock(run)
    run.watch(engine.net, engine.optimizer)
    engine.watch = run.watch_data()
    engine.fit(trouble, healthy)
    return run


train = main
launch = partial(ranks.launch, work=main, number=RANKS)
