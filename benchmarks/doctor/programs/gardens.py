"""Two towers learn which list of plants belongs to which climate: one reads twelve months, one reads a set of names.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: nce, nce_first, nce_sharpness, nce_lr, nce_norm each step; heldout_nce, heldout_first and
      heldout_rank of gardens that were not seen, each twentieth; memory, where it matters; the watch of data.

A climate has a temperature in degrees and rain in millimetres for each month, of several years of one garden, where it
has them. A plant likes a warmth, a swing and an amount of rain; a garden has up to nine plants that like its climate.
Months go round a circle of convolutions with batch norm; names are weighed by what each says of itself. What is judged
is an average of the weights, whose batch norms are measured anew from batches of the training. Written as two towers in
a dictionary, and a script of stages that pass a context on.
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

EVERY, HELD, MONTHS, ZONES, PLANTS, LONG = 20, 160, 12, 5, 60, 9
PAD = 0
CONFIG: dict[str, Any] = {
    "channels": 24, "embed_dim": 24, "norm": "batch", "dropout": 0.0, "pairs": 40, "pieces": 1, "opt": "adam",
    "lr": 5e-3, "plants_lr": 1.0, "sched": "inverse_root", "warmup": 10, "wd": 0.0, "clip": 10.0, "sharpness": 10.0,
    "learn_sharpness": True, "sides": "both", "reduction": "mean", "margin": 0.0, "average": 0.9, "gardens": 1400,
    "years": 1, "wrong_lists": 0.0, "full_lists_first": 0, "forget_plants": 0.0, "freeze": "", "heldout_every": 20,
    "log_every": 1,
}  # fmt: skip


# -- gardens --------------------------------------------------------------------------------------------------------


def gardens(seed: int, number: int, years: int = 1, wrong: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Months in degrees and millimetres, lists of plants, and which garden each is of, zone after zone."""
    laws, dice, many = torch.Generator().manual_seed(44), torch.Generator().manual_seed(seed), number // years
    likes, middles = torch.randn(PLANTS, 3, generator=laws), 1.1 * torch.randn(ZONES, 3, generator=laws)
    zone = torch.arange(many) * ZONES // many
    kind = middles[zone] + 0.8 * torch.randn(many, 3, generator=dice)
    fits = -((kind[:, None] - likes) ** 2).sum(2) + 0.5 * torch.randn(many, PLANTS, generator=dice)
    lists = fits.topk(LONG, 1).indices + 1
    lists = torch.where(torch.arange(LONG) < 4 + torch.randint(0, LONG - 3, (many, 1), generator=dice), lists, PAD)
    garden, kind, lists = (one.repeat_interleave(years, 0) for one in (torch.arange(many), kind, lists))
    turn = torch.arange(MONTHS) * 2 * math.pi / MONTHS
    phase = 0.3 * torch.randn(len(kind), 1, generator=dice)
    warm = 12 + 6 * kind[:, :1] - (9 + 4 * kind[:, 1:2]) * torch.cos(turn + phase)
    rain = (60 + 25 * kind[:, 2:]) * (1 + 0.4 * torch.sin(turn + kind[:, 1:2]))
    months = torch.stack([warm, rain], 1)
    months = months + torch.tensor([1.2, 8.0])[:, None] * torch.randn(months.shape, generator=dice)
    stray = torch.rand(len(kind), generator=dice) < wrong
    lists[stray] = lists[stray][torch.randperm(int(stray.sum()), generator=dice)]
    return months, lists, garden


# -- towers ---------------------------------------------------------------------------------------------------------


class Months(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.channels

        def norm(wide: int) -> nn.Module:
            return nn.BatchNorm1d(wide) if c.norm == "batch" else nn.GroupNorm(4, wide)

        self.layers = nn.Sequential(
            nn.Conv1d(2, d, 3, padding=1, padding_mode="circular"), norm(d), nn.SiLU(),
            nn.Conv1d(d, 2 * d, 3, padding=1, padding_mode="circular"), norm(2 * d), nn.SiLU(), nn.AvgPool1d(3),
            nn.Flatten(), nn.Dropout(c.dropout), nn.Linear(8 * d, c.embed_dim),
        )  # fmt: skip

    def forward(self, months: Tensor) -> Tensor:
        return self.layers(months)


class Plants(nn.Module):
    """Names weigh by what they say of themselves."""

    def __init__(self, c: Any, bug: str):
        super().__init__()
        start = 0.3 * torch.randn(PLANTS + 1, c.embed_dim)
        if bug == "table_made_by_from_pretrained":
            self.names = nn.Embedding.from_pretrained(start, padding_idx=PAD)
        else:
            self.names = nn.Embedding(PLANTS + 1, c.embed_dim, padding_idx=PAD, _weight=start)
        self.weigh, self.drop = nn.Linear(c.embed_dim, 1), nn.Dropout(c.dropout)
        self.out = nn.Sequential(nn.Linear(c.embed_dim, 64), nn.SiLU(), nn.Linear(64, c.embed_dim))

    def forward(self, lists: Tensor) -> Tensor:
        x = self.names(lists)
        weight = self.weigh(x).masked_fill((lists == PAD)[..., None], -1e4).softmax(1)
        return self.out(self.drop((weight * x).sum(1)))


def towers(c: Any, bug: str) -> nn.ModuleDict:
    sharp = nn.ParameterList([nn.Parameter(torch.tensor(math.log(c.sharpness)), requires_grad=c.learn_sharpness)])
    return nn.ModuleDict({"months": Months(c), "plants": Plants(c, bug), "sharp": sharp})


def compared(net: nn.ModuleDict, months: Tensor, lists: Tensor, bug: str) -> Tensor:
    """Cosines of each climate and each list, made sharper."""
    a, b = net["months"](months), net["plants"](lists)
    a = F.normalize(a, dim=1)
    if bug != "plants_left_at_their_length":
        b = F.normalize(b, dim=1)
    log = net["sharp"][0]
    return a @ b.T * (log if bug == "sharpness_used_as_its_logarithm" else log.exp())


# -- stages ---------------------------------------------------------------------------------------------------------


def read(x: SimpleNamespace) -> None:
    c, bug = x.c, x.bug
    months, x.lists, x.garden = gardens(x.seed + 2900, c.gardens, c.years, c.wrong_lists)
    held, held_lists, held_garden = gardens(2899, HELD)
    if bug == "years_of_a_garden_in_both_parts":
        order = torch.randperm(len(months), generator=torch.Generator().manual_seed(x.seed))
        mine, rest = order[:HELD], order[HELD:].sort().values
        held, held_lists, held_garden = months[mine], x.lists[mine], x.garden[mine]
        months, x.lists, x.garden = months[rest], x.lists[rest], x.garden[rest]
    mean, std = months.mean((0, 2))[:, None], months.std((0, 2))[:, None]
    x.months = (months - mean) / std
    x.held = (held if bug == "heldout_months_as_they_are_in_the_file" else (held - mean) / std), held_lists
    x.held_garden = held_garden


def build(x: SimpleNamespace) -> None:
    torch.manual_seed(x.seed)
    x.net = towers(x.c, x.bug)
    x.mean = copy.deepcopy(x.net).requires_grad_(False)
    for name in filter(None, x.c.freeze.split(",")):
        x.net.get_submodule(name).requires_grad_(False)


def optimise(x: SimpleNamespace) -> None:
    c, net = x.c, x.net
    slow = [one for one in net["plants"].parameters() if one.requires_grad]
    fast = [one for one in [*net["months"].parameters(), *net["sharp"].parameters()] if one.requires_grad]
    if x.bug == "months_not_given_to_the_optimizer":
        fast = [one for one in net["sharp"].parameters() if one.requires_grad]
    groups = [{"params": some, "lr": c.lr * by} for some, by in ((slow, c.plants_lr), (fast, 1.0)) if some]
    if c.opt == "sgd":
        x.opt = torch.optim.SGD(groups, c.lr, 0.9, weight_decay=c.wd)
    elif c.opt == "nadam":
        x.opt = torch.optim.NAdam(groups, c.lr)
    else:
        x.opt = torch.optim.AdamW(groups, c.lr, weight_decay=c.wd)

    def by(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / x.steps)
        if c.sched == "flat":
            return rise
        if c.sched == "cosine_twice":
            return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
        if c.sched == "line":
            return rise * (1 - 0.97 * past)
        return min(1.0, (at + 1) / max(1, c.warmup), math.sqrt(max(1, c.warmup) / (at + 1)))

    x.sched = torch.optim.lr_scheduler.LambdaLR(x.opt, by)


def stream(x: SimpleNamespace) -> Any:
    c, epoch, dice = x.c, 0, torch.Generator().manual_seed(x.seed)
    while True:
        order = torch.randperm(len(x.lists), generator=dice)
        if x.bug == "gardens_by_zone_as_they_were_collected":
            order = torch.arange(len(x.lists))
        if epoch < c.full_lists_first:
            order = order[(x.lists[order] != PAD).sum(1) > 6]
        for some in order.split(c.pairs):
            if len(some) == c.pairs:
                lists = x.lists[some]
                if c.forget_plants:
                    gone = torch.rand(lists.shape, generator=dice) < c.forget_plants
                    gone[:, 0] = False
                    lists = torch.where(gone, PAD, lists)
                yield epoch, x.months[some], lists, x.garden[some]
        epoch += 1


def contrast(x: SimpleNamespace, months: Tensor, lists: Tensor, garden: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and how many climates have their list first."""
    c, bug, many = x.c, x.bug, len(months)
    scores = compared(x.net, months, lists, bug)
    same = (garden[:, None] == garden[None]) & ~torch.eye(many).bool()
    scores = scores.masked_fill(same, -1e4)
    own = torch.arange(many)
    first = (scores.argmax(1) == own).float().mean()
    if bug == "targets_begin_at_one":
        own = torch.arange(1, many + 1) % many
    if c.margin:
        scores = scores - c.margin * x.net["sharp"][0].exp().detach() * torch.eye(many)
    if bug == "scores_made_probabilities_first":
        scores = scores.softmax(1)
    each = F.cross_entropy(scores, own, reduction="none")
    if c.sides == "both":
        each = (each + F.cross_entropy(scores.T, own, reduction="none")) / 2
    return each.sum() if c.reduction == "sum" or bug == "rows_of_the_batch_summed" else each.mean(), first


def follow(x: SimpleNamespace) -> None:
    with torch.no_grad():
        for mean, one in zip(x.mean.parameters(), x.net.parameters(), strict=True):
            mean.lerp_(one, 1 - x.c.average)


def settle(x: SimpleNamespace) -> None:
    """Measure the batch norms of the average, from batches of the training."""
    norms = [one for one in x.mean.modules() if isinstance(one, nn.BatchNorm1d)]
    for one in norms:
        one.reset_running_stats()
        one.momentum = None
    x.mean.train()
    with torch.no_grad(), torch.random.fork_rng():
        for some in torch.arange(len(x.months))[:: max(1, len(x.months) // 400)].split(80):
            x.mean["months"](x.months[some])


def heldout(x: SimpleNamespace, step: int) -> None:
    taped = x.bug == "heldout_scores_kept_for_a_plot"
    if x.bug != "norms_of_the_average_never_measured":
        settle(x)
    x.mean.train(x.bug == "average_judged_as_it_was_settled")
    x.net.eval()
    x.mean.requires_grad_(taped)
    with torch.set_grad_enabled(taped), torch.random.fork_rng():
        scores = compared(x.mean, *x.held, x.bug)
        same = (x.held_garden[:, None] == x.held_garden[None]) & ~torch.eye(HELD).bool()
        scores, own = scores.masked_fill(same, -1e4), torch.arange(HELD)
        loss = (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
    if taped:
        x.plots.append((loss, scores))
    rank = (scores > scores.diagonal()[:, None]).sum(1).float() + 1
    x.run.log({"heldout_nce": loss.item(), "heldout_first": (rank == 1).float().mean().item(),
               "heldout_rank": rank.mean().item()}, step=step)  # fmt: skip
    if x.bug == "average_is_taken_over_after_it_is_judged":
        x.net.load_state_dict(x.mean.state_dict())
    if x.bug != "towers_are_left_in_eval":
        x.net.train()


def observe(x: SimpleNamespace) -> None:
    time_by_own_clock(x.run)
    x.run.watch(x.net, x.opt)
    x.watch = x.run.watch_data(pad_id=PAD)


def resume(x: SimpleNamespace, step: int) -> None:
    seen = x.watch.state()
    state = {"net": x.net.state_dict(), "mean": x.mean.state_dict(), "opt": x.opt.state_dict(),
             "sched": x.sched.state_dict()}  # fmt: skip
    x.run, state = go_on(x.run, step, state)
    x.net.load_state_dict(state["net"])
    x.mean.load_state_dict(state["mean"])
    optimise(x)
    if x.bug != "towers_and_their_average_come_back_alone":
        x.opt.load_state_dict(state["opt"])
        x.sched.load_state_dict(state["sched"])
    observe(x)
    x.watch.restore(seen)


def update(x: SimpleNamespace, step: int, batches: Any) -> dict[str, float]:
    c, bug, total, hits = x.c, x.bug, 0.0, 0.0
    for _ in range(c.pieces):
        epoch, months, lists, garden = next(batches)
        x.watch.observe({"months": months, "plants": lists}, step=step, epoch=epoch)
        loss, first = contrast(x, months, lists, garden)
        (loss if bug == "pieces_are_not_parts_of_a_mean" else loss / c.pieces).backward()
        total += loss.item() / c.pieces
        hits += first.item() / c.pieces
        if bug == "sched_moves_with_pieces":
            x.sched.step()
    norm = nn.utils.clip_grad_norm_(x.net.parameters(), c.clip).item()
    rate = x.opt.param_groups[0]["lr"]
    x.opt.step()
    x.net.zero_grad()
    if bug != "sched_moves_with_pieces":
        x.sched.step()
    follow(x)
    return {"nce": total, "nce_first": hits, "nce_sharpness": x.net["sharp"][0].exp().item(), "nce_lr": rate,
            "nce_norm": norm}  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    x = SimpleNamespace(
        run=run, c=SimpleNamespace(**run.config), seed=seed, steps=steps, bug=trouble.name, plots=[]
    )  # fmt: skip
    for stage in (read, build, optimise, observe):
        stage(x)
    again, batches = trouble.resume_at(healthy, 4 * EVERY), stream(x)
    x.net.train()
    for step in range(steps):
        if step == again:
            resume(x, step)
        said = update(x, step, batches)
        if step % x.c.log_every == 0:
            x.run.log(said, step=step)
        trouble.telemetry(x.run, step, healthy)
        if step % x.c.heldout_every == x.c.heldout_every - 1:
            heldout(x, step)
    return x.run
