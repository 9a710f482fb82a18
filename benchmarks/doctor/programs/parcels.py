"""Two gloo processes foretell the fate of parcels from figures and categories, one in thirty is lost, under DDP.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.log`: rank/loss, rank/lr, rank/norm) and `run.reduce`; port/nll, port/f1_macro,
      port/recall_lost of rank 0 at each epoch's end; the watch of data.

Each figure and each category is a token of its own; attention over these, and a head over the first. Logits are moved
by the logarithm of a fate's share in the training, or rare fates are drawn as often as others. A rate by epochs. A
`main(rank)` with functions, as a tutorial on several processes has it.
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

from . import ranks

EVERY, RANKS, FATES, FIGURES, CARRIERS, ZONES, PORT = 20, 2, 5, 7, 4, 6, 400
SHARES = torch.tensor([0.52, 0.25, 0.13, 0.065, 0.035])
LAST_YEAR = 2.5, 3.0  # mean and spread of all figures, which were in other units then
CONFIG: dict[str, Any] = {
    "token_dim": 24, "encoder_layers": 2, "attn_heads": 4, "dropout": 0.0, "bn_momentum": 0.1, "rows_per_rank": 16,
    "accumulate": 1, "lr": 3e-3, "warm": 8, "shape": "poly", "solver": "adamw", "decay": 0.05, "clip": 2.0,
    "sent": 1440, "rare_times": 1, "adjust": 1.0, "draw": "each", "smooth": 0.0, "reduce": "mean", "misfiled": 0.0,
    "roughness": 1.0, "fix": "", "one_carrier": False, "hide": 0.0, "ranks": RANKS,
}  # fmt: skip


def send(seed: int, number: int, roughness: float = 1.0, wrong: float = 0.0) -> tuple[Tensor, ...]:
    """Figures (number, FIGURES), carriers and zones (number, 2), fates."""
    dice, book = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(231)
    fate = torch.multinomial(SHARES, number, True, generator=dice)
    centre, tilt = 1.2 * torch.randn(FATES, FIGURES, generator=book), torch.randn(CARRIERS, FIGURES, generator=book)
    likely = torch.rand(FATES, ZONES, generator=book) ** 3 + 0.05
    carrier = torch.multinomial(torch.ones(FATES, CARRIERS)[fate] + 3 * F.one_hot(fate % CARRIERS, CARRIERS), 1,
                                generator=dice)[:, 0]  # fmt: skip
    zone = torch.multinomial(likely[fate], 1, generator=dice)[:, 0]
    x = centre[fate] * (1 + 0.4 * F.one_hot(zone % FIGURES, FIGURES)) + 0.8 * tilt[carrier]
    x = x + 1.1 * roughness * torch.randn(number, FIGURES, generator=dice)
    x = 4 * x + torch.arange(FIGURES) * 5
    chance = torch.randint(0, FATES, (number,), generator=dice)
    fate = torch.where(torch.rand(number, generator=dice) < wrong, chance, fate)
    return x, torch.stack([carrier, zone], 1), fate


class Encoder(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.token_dim
        self.norm = nn.BatchNorm1d(FIGURES, momentum=c.bn_momentum)
        self.scale = nn.Parameter(0.5 * torch.randn(FIGURES, d))
        self.shift = nn.Parameter(0.1 * torch.randn(FIGURES, d))
        self.categories = nn.ModuleList(nn.Embedding(many, d) for many in (CARRIERS, ZONES))
        self.token = nn.Parameter(0.1 * torch.randn(d))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d, c.attn_heads, 2 * d, c.dropout, "gelu", batch_first=True, norm_first=True)
            for _ in range(c.encoder_layers)
        )
        self.last = nn.LayerNorm(d)

    def forward(self, x: Tensor, category: Tensor) -> Tensor:
        tokens = [self.norm(x)[..., None] * self.scale + self.shift]
        tokens += [one(category[:, at])[:, None] for at, one in enumerate(self.categories)]
        y = torch.cat([self.token.expand(len(x), 1, -1), *tokens], 1)
        for layer in self.layers:
            y = layer(y)
        return self.last(y[:, 0])


class ParcelNet(nn.Module):
    def __init__(self, c: Any, fates: int, bug: str):
        super().__init__()
        self.encoder, self.head, self.bug = Encoder(c), nn.Linear(c.token_dim, fates), bug

    def forward(self, x: Tensor, category: Tensor) -> Tensor:
        y = self.head(self.encoder(x, category))
        return y.softmax(1) if self.bug == "fates_given_as_probabilities" else y


def warehouse(c: Any, seed: int, bug: str) -> dict[str, Any]:
    x, category, fate = send(seed + 7100, c.sent, c.roughness, c.misfiled)
    port = send(71, PORT, c.roughness)
    if c.rare_times > 1:
        times = torch.where(fate >= 2, c.rare_times, 1)
        x, category, fate = (one.repeat_interleave(times, 0) for one in (x, category, fate))
        if bug == "rare_parcels_copied_then_split":
            order = torch.randperm(len(fate), generator=torch.Generator().manual_seed(seed))
            port = tuple(one[order[:PORT]] for one in (x, category, fate))
            x, category, fate = (one[order[PORT:]] for one in (x, category, fate))
    mean, std = x.mean(0), x.std(0)
    x = (x - mean) / std
    if bug == "port_scaled_by_last_year":
        mean, std = LAST_YEAR
    one_up = bug == "fates_coded_from_one_at_the_depot"
    return {"x": x, "category": category, "fate": fate + one_up, "port": ((port[0] - mean) / std, *port[1:])}


def rows_of(c: Any, data: dict[str, Any], seed: int, epoch: int, bug: str) -> list[Tensor]:
    """This rank's batches of an epoch."""
    number, rank, fate = len(data["fate"]), dist.get_rank(), data["fate"]
    lot = torch.Generator().manual_seed(1000 * seed + epoch)
    order = torch.randperm(number, generator=lot)
    if bug == "carrier_after_carrier":
        order = data["category"][:, 0].argsort(stable=True)
    if c.draw == "alike":  # of each fate as many, with repetition, by each rank for itself
        share = 1 / fate.bincount().clamp(min=1)[fate].float()
        own = seed if bug == "even_draw_seeded_without_rank" else seed + 77 * (rank + 1)
        lot = torch.Generator().manual_seed(1000 * own + epoch)
        mine = torch.multinomial(share, number // RANKS, True, generator=lot)
    elif bug == "ranks_take_all_in_one_order":  # a loader that shuffles by a seed, and no sampler that knows the rank
        mine = order[: number // RANKS]
    else:
        mine = order[rank : number // RANKS * RANKS : RANKS]
    if c.one_carrier:
        mine = mine[data["category"][mine, 0].argsort(stable=True)]
    size = c.rows_per_rank // c.accumulate
    groups = [one for one in mine.split(size) if len(one) == size]
    if c.one_carrier:
        groups = [groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()]
    return groups[: len(groups) // c.accumulate * c.accumulate]


def solver_of(c: Any, modules: list[nn.Module], epochs: int) -> tuple[Any, Any]:
    some = [one for module in modules for one in module.parameters() if one.requires_grad]
    if c.solver == "sgd":
        solver: Any = torch.optim.SGD(some, c.lr, 0.9)
    elif c.solver == "adamax":
        solver = torch.optim.Adamax(some, c.lr)
    else:
        solver = torch.optim.AdamW(some, c.lr, weight_decay=c.decay)

    def share(epoch: int) -> float:
        past = min(1.0, epoch / epochs)
        if c.shape == "restarts":
            return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1)))
        return {"flat": 1.0, "stairs": 0.3 ** int(3 * past)}.get(c.shape, max(0.02, (1 - past) ** 0.9))

    return solver, torch.optim.lr_scheduler.LambdaLR(solver, share)


def loss_of(c: Any, out: Tensor, fate: Tensor, prior: Tensor, bug: str) -> Tensor:
    moved = -c.adjust * prior if bug == "shares_added_with_wrong_sign" else c.adjust * prior
    each = F.cross_entropy(out + moved, fate, reduction="none", label_smoothing=c.smooth)
    if bug == "losses_of_rank_totalled":
        return each.sum()
    return each.sum() / len(each) if c.reduce == "sum" else each.mean()


def judge(run: Any, model: nn.Module, data: dict[str, Any], prior: Tensor, step: int, bug: str) -> None:
    if dist.get_rank():
        return
    x, category, fate = data["port"]
    if bug != "port_judged_while_dropping":
        model.eval()
    with torch.no_grad():
        out = model(x, category)
        loss = F.cross_entropy(out + prior, fate)
    if bug != "rank_zero_judges_and_stays":
        model.train()
    said, scores = out.argmax(1), []
    for one in range(FATES):
        hit = float(((said == one) & (fate == one)).sum())
        scores.append(2 * hit / max(1.0, float((said == one).sum() + (fate == one).sum())))
    lost = (said[fate == FATES - 1] == FATES - 1).float().mean().item()
    run.log({"port/nll": loss.item(), "port/f1_macro": sum(scores) / FATES, "port/recall_lost": lost}, step=step)


def main_of_rank(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    c, bug, step, epoch = SimpleNamespace(**run.config), Trouble(fault, seed).name, 0, 0
    data = warehouse(c, seed, bug)
    model = ParcelNet(c, FATES + (bug == "fates_coded_from_one_at_the_depot"), bug)
    for name, one in model.encoder.named_parameters():
        if c.fix and name.startswith(c.fix):
            one.requires_grad = False
        if bug == "encoder_locked_for_its_head":  # as for parcels of another year; here it is as drawn
            one.requires_grad = False
    apart = bug == "gradients_of_head_not_synced"  # what is wrapped is the encoder, the head was added later
    if apart:
        wrapped: Any = DistributedDataParallel(model.encoder)
        forward: Any = lambda x, category: model.head(wrapped(x, category))  # noqa: E731
    else:
        wrapped = forward = DistributedDataParallel(model)
    count = data["fate"].bincount(minlength=model.head.out_features).float().clamp(min=1)
    prior = torch.zeros_like(count) if c.draw == "alike" else (count / count.sum()).log()
    size = c.rows_per_rank
    solver, curve = solver_of(c, [model], max(2, steps // max(1, len(data["fate"]) // RANKS // size)))
    time_by_own_clock(run)
    run.watch(model if apart else wrapped, solver)
    watch = run.watch_data()
    torch.manual_seed(seed + 31 * (dist.get_rank() + 1))  # of dropout
    model.train()
    while step < steps:
        total, began = 0.0, clock()
        for at, some in enumerate(rows_of(c, data, seed, epoch, bug), 1):
            x, category, fate = data["x"][some], data["category"][some], data["fate"][some]
            watch.observe({"figures": x, "fate": fate}, step=step, epoch=epoch)
            if c.hide:  # figures that were not weighed
                x = x.masked_fill(torch.rand(x.shape) < c.hide, 0.0)
            with wrapped.no_sync() if at % c.accumulate else contextlib.nullcontext():
                loss = loss_of(c, forward(x, category), fate, prior, bug)
                whole = bug == "accumulated_rows_left_whole"
                (loss if whole else loss / c.accumulate).backward()
            total += loss.item() / (1 if whole else c.accumulate)
            if at % c.accumulate:
                continue
            norm = nn.utils.clip_grad_norm_(model.parameters(), c.clip).item()
            for group, rate in zip(solver.param_groups, curve.get_last_lr(), strict=True):
                group["lr"] = rate * min(1.0, (step + 1) / max(1, c.warm))
            rate = solver.param_groups[0]["lr"]
            solver.step()
            solver.zero_grad()
            if bug == "curve_of_epochs_stepped_each_batch":
                curve.step()
            run.log({"rank/loss": total, "rank/lr": rate, "rank/norm": norm}, step=step)
            run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
            step, total, began = step + 1, 0.0, clock()
            if step == steps:
                break
        if bug != "curve_of_epochs_stepped_each_batch":
            curve.step()
        epoch += 1
        judge(run, model, data, c.adjust * prior, step - 1, bug)
    return run


train = main_of_rank
launch = partial(ranks.launch, work=main_of_rank, number=RANKS)
