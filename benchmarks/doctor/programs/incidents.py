"""Reports of incidents are told apart by two workers under gloo; four of eight kinds are rare.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` of the first worker: sort.loss, sort.share_right, sort.lr, sort.gradient each step;
      judged.loss, judged.recall and judged.rare_recall each twentieth; by `run.reduce` losses of both workers; memory,
      where it matters; the watch of data.

A report has five to fourteen words and three numbers: a delay in minutes, a cost in euros, and how many people were
there. Some incidents are reported several times in other words. The file has kind after kind. Numbers are scaled by
figures of the training's part; words go through convolutions of two widths with batch norm, and the largest answers
are kept. Gradients are averaged by hooks as soon as they are there. Written as a crew that knows how many work, data
as an iterable, and a loop in one function.
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

EVERY, WORKERS, VOCABULARY, LONG, HELD = 20, 2, 70, 14, 480
KINDS = ("delay", "noise", "leak", "outage", "injury", "theft", "smoke", "collision")
SHARES = torch.tensor([0.3, 0.24, 0.2, 0.13, 0.045, 0.035, 0.03, 0.02])
RARE = 4  # kinds from here on are rare
CONFIG: dict[str, Any] = {
    "embed": 24, "filters": 24, "hidden": 40, "norm": "batch", "dropout": 0.0, "batch": 16, "parts": 1,
    "optim": "adamw", "lr": 3e-3, "lr_shape": "hold_then_fall", "ramp": 8, "decay": 1e-3, "max_gradient": 3.0,
    "kind_weights": "root", "draw": "shuffled", "loss": "mean", "soft_labels": 0.0, "focus": 0.0, "reports": 1900,
    "wordings": 1, "rare_times": 1, "misfiled": 0.0, "long_first": 0, "lost_words": 0.0, "unlearnt": "",
    "judge_every": 20, "log_every": 1, "world": WORKERS,
}  # fmt: skip


# -- reports --------------------------------------------------------------------------------------------------------


class Reports:
    """Words, numbers and kinds, kind after kind. wordings: reports of one incident."""

    def __init__(self, seed: int, number: int, wordings: int = 1):
        laws, dice, many = torch.Generator().manual_seed(31), torch.Generator().manual_seed(seed), number // wordings
        likes = torch.rand(len(KINDS), VOCABULARY, generator=laws) ** 5 + 0.02
        middle = 0.7 * torch.randn(len(KINDS), 3, generator=laws)
        kind = torch.multinomial(SHARES, many, True, generator=dice).sort().values
        own = likes[kind] * torch.rand(many, VOCABULARY, generator=dice)
        numbers = middle[kind] + torch.randn(many, 3, generator=dice)
        self.kind, own, numbers = (one.repeat_interleave(wordings, 0) for one in (kind, own, numbers))
        self.words = 1 + torch.multinomial(own, LONG, True, generator=dice)
        self.count = torch.randint(5, LONG + 1, (len(own),), generator=dice)
        self.words *= torch.arange(LONG) < self.count[:, None]
        self.numbers = torch.tensor([25.0, 900.0, 6.0]) + torch.tensor([8.0, 250.0, 2.0]) * numbers

    def pick(self, some: Tensor) -> Reports:
        made = object.__new__(Reports)
        vars(made).update({name: one[some] for name, one in vars(self).items()})
        return made


# -- net ------------------------------------------------------------------------------------------------------------


class Sorter(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug, self.words = bug, nn.Embedding(VOCABULARY + 1, c.embed, padding_idx=0)
        self.windows = nn.ModuleList(nn.Conv1d(c.embed, c.filters, wide, padding=wide // 2) for wide in (1, 3))
        wide = 2 * c.filters + 3
        momentum = 0.0 if bug == "momentum_of_nought_for_a_plain_mean" else 0.1
        self.norm = nn.BatchNorm1d(wide, momentum=momentum) if c.norm == "batch" else nn.LayerNorm(wide)
        self.body = nn.Sequential(nn.Linear(wide, c.hidden), nn.ReLU(), nn.Dropout(c.dropout))
        self.kinds = nn.Linear(c.hidden, len(KINDS) + 1)  # the first is for reports without a kind

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        x = self.words(words).transpose(1, 2)
        found = [F.relu(one(x)).amax(2) for one in self.windows]
        out = self.kinds(self.body(self.norm(torch.cat([*found, numbers], 1))))
        return out.softmax(1) if self.bug == "forward_answers_with_shares" else out


# -- crew -----------------------------------------------------------------------------------------------------------


class Crew:
    """What workers do together."""

    def __init__(self) -> None:
        self.me, self.many, self.together = dist.get_rank(), dist.get_world_size(), True

    def prepare(self, net: nn.Module, bug: str) -> None:
        """The same net on all, and hooks that average gradients."""
        for one in [*net.parameters(), *net.buffers()]:
            dist.broadcast(one.data, 0)
        for name, one in net.named_parameters():
            if one.requires_grad and not (bug == "hooks_for_all_but_the_last_layer" and name.startswith("kinds")):
                one.register_post_accumulate_grad_hook(self.average)

    def average(self, one: Tensor) -> None:
        if self.together and one.grad is not None:
            dist.all_reduce(one.grad)
            one.grad /= self.many

    def sum(self, one: Tensor) -> Tensor:
        dist.all_reduce(one)
        return one


class Data:
    """Batches of this worker, without an end."""

    def __init__(self, c: Any, crew: Crew, seed: int, bug: str):
        self.c, self.crew, self.seed, self.bug = c, crew, seed, bug
        reports, judged = Reports(seed + 2500, c.reports, c.wordings), Reports(2499, HELD)
        if c.rare_times > 1:
            times = torch.where(reports.kind >= RARE, c.rare_times, 1)
            reports = reports.pick(torch.arange(len(reports.kind)).repeat_interleave(times))
        if c.misfiled:
            dice = torch.Generator().manual_seed(seed)
            wrong = torch.rand(len(reports.kind), generator=dice) < c.misfiled
            stray = torch.multinomial(SHARES, len(wrong), True, generator=dice)
            reports.kind = torch.where(wrong, stray, reports.kind)
        mean, std = reports.numbers.mean(0), reports.numbers.std(0)
        if bug == "costs_of_judged_reports_in_cents":
            judged.numbers = judged.numbers * torch.tensor([1.0, 100.0, 1.0])
        reports.numbers, judged.numbers = (reports.numbers - mean) / std, (judged.numbers - mean) / std
        reports.kind, judged.kind = 1 + reports.kind, 1 + judged.kind
        if bug == "kinds_of_the_training_from_nought":
            reports.kind = reports.kind - 1
        self.reports, self.judged = reports, judged
        self.counts = torch.bincount(reports.kind, minlength=len(KINDS) + 1).float().clamp(min=1)
        weight = {"none": torch.ones(len(self.counts)), "root": self.counts**-0.5, "inverse": 1 / self.counts}
        self.weight = weight[c.kind_weights]
        if bug == "kinds_weigh_by_their_number":
            self.weight = self.counts
        self.weight = self.weight / (self.weight * self.counts).sum() * self.counts.sum()

    def rows(self, epoch: int) -> Tensor:
        many, crew = len(self.reports.kind), self.crew
        if self.c.draw == "even":
            dice = torch.Generator().manual_seed(1000 * self.seed + crew.many * epoch + crew.me)
            return torch.multinomial(1 / self.counts[self.reports.kind], many // crew.many, True, generator=dice)
        order = torch.randperm(many, generator=torch.Generator().manual_seed(1000 * self.seed + epoch))
        if self.bug == "every_second_row_as_the_file_has_them":
            order = torch.arange(many)
        if self.bug == "shuffled_alike_and_not_shared_out":
            return order[: many // crew.many]
        return order[: many // crew.many * crew.many][crew.me :: crew.many]

    def __iter__(self) -> Any:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed + 77 * self.crew.me)
        while True:
            rows = self.rows(epoch)
            if epoch < c.long_first:
                rows = rows[self.reports.count[rows] > 9]
                rows = rows[: len(self.reports.kind) // self.crew.many // 3]
            for some in rows.split(c.batch):
                if len(some) == c.batch:
                    made = self.reports.pick(some)
                    if c.lost_words:
                        made.words = made.words * (torch.rand(made.words.shape, generator=dice) > c.lost_words)
                    yield epoch, made
            epoch += 1


# -- loop -----------------------------------------------------------------------------------------------------------


def equipped(c: Any, net: Sorter, steps: int, bug: str) -> tuple[Any, Any]:
    some = [one for one in net.parameters() if one.requires_grad]
    if bug == "optimizer_of_a_trial_with_the_head":
        some = list(net.kinds.parameters())
    if c.optim == "sgd":
        optimizer: Any = torch.optim.SGD(some, c.lr, 0.9, weight_decay=c.decay)
    elif c.optim == "nadam":
        optimizer = torch.optim.NAdam(some, c.lr)
    else:
        optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.decay)

    def by(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.ramp)), min(1.0, at / steps)
        if c.lr_shape == "constant":
            return rise
        if c.lr_shape == "stairs":
            return rise * 0.3 ** int(3 * past)
        if c.lr_shape == "waves":
            return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1))))
        return rise * min(1.0, 0.02 + 1.4 * (1 - past))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, by)


def loss_of(c: Any, data: Data, out: Tensor, kind: Tensor, bug: str) -> Tensor:
    each = F.cross_entropy(out, kind, reduction="none", label_smoothing=c.soft_labels)
    if c.focus:
        each = each * (1 - out.detach().softmax(1).gather(1, kind[:, None])[:, 0]) ** c.focus
    weight = data.weight[kind]
    if c.loss == "sum" or bug == "losses_of_a_batch_added_up":
        return (each * weight).sum()
    return (each * weight).sum() / weight.sum()


def judge(crew: Crew, net: Sorter, data: Data, bug: str, kept: list[Any]) -> dict[str, float]:
    """Each worker judges every second report."""
    mine, wide = data.judged.pick(torch.arange(HELD)[crew.me :: crew.many]), len(KINDS) + 1
    taped = bug == "judged_losses_kept_for_the_mean_of_all"
    if bug != "judged_without_a_change_of_mode":
        net.eval()
    with torch.set_grad_enabled(taped):
        out = net(mine.words, mine.numbers)
        each = F.cross_entropy(out, mine.kind, reduction="none")
    if taped:
        kept.append((out, each))
    if bug != "sorter_is_left_in_eval":
        net.train()
    right = mine.kind[out.argmax(1) == mine.kind]
    counts = [torch.bincount(one, minlength=wide).float() for one in (mine.kind, right)]
    of, hits, total = crew.sum(torch.cat([*counts, each.detach().sum()[None]])).split([wide, wide, 1])
    recall = hits[1:] / of[1:].clamp(min=1)
    return {"judged.loss": total.item() / HELD, "judged.recall": recall.mean().item(),
            "judged.rare_recall": recall[RARE:].mean().item()}  # fmt: skip


def main(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this worker, record, return the run."""
    torch.set_num_threads(1)
    trouble, crew, c = Trouble(fault, seed), Crew(), SimpleNamespace(**run.config)
    bug, kept = trouble.name, []
    data = Data(c, crew, seed, bug)
    torch.manual_seed(seed)
    net = Sorter(c, bug)
    for name in filter(None, c.unlearnt.split(",")):
        net.get_submodule(name).requires_grad_(False)
    crew.prepare(net, bug)
    optimizer, scheduler = equipped(c, net, steps, bug)
    torch.manual_seed(seed + 19 * (crew.me + 1))  # of dropout
    time_by_own_clock(run)
    run.watch(net, optimizer)
    watch, batches = run.watch_data(pad_id=0), iter(data)
    net.train()
    for step in range(steps):
        began, total, hits = clock(), 0.0, 0.0
        for part in range(c.parts):
            epoch, some = next(batches)
            watch.observe({"words": some.words, "kind": some.kind}, step=step, epoch=epoch)
            crew.together = part == c.parts - 1  # hooks average what all parts have added up
            out = net(some.words, some.numbers)
            loss = loss_of(c, data, out, some.kind, bug)
            (loss if bug == "parts_of_an_update_added" else loss / c.parts).backward()
            total += loss.item() / c.parts
            hits += (out.argmax(1) == some.kind).float().mean().item() / c.parts
            if bug == "scheduler_is_one_loop_too_deep":
                scheduler.step()
        norm = nn.utils.clip_grad_norm_(net.parameters(), c.max_gradient).item()
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        net.zero_grad()
        if bug != "scheduler_is_one_loop_too_deep":
            scheduler.step()
        if crew.me == 0 and step % c.log_every == 0:
            run.log({"sort.loss": total, "sort.share_right": hits, "sort.lr": rate, "sort.gradient": norm}, step=step)
        run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
        trouble.telemetry(run, step, healthy)
        if step % c.judge_every == c.judge_every - 1:
            said = judge(crew, net, data, bug, kept)
            if crew.me == 0:
                run.log(said, step=step)
    return run


train = main
launch = partial(ranks.launch, work=main, number=WORKERS)
