"""A small network of convolutions sorts heartbeats of one lead into six classes on two gloo processes; three are rare.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` of the first rank: beat/ce, beat/right, beat/lr, beat/gnorm each step; beat_val/ce,
      beat_val/macro_f1, beat_val/rare_recall each thirty-second; by `run.reduce` losses of both ranks; the watch of
      data; memory, where it matters.

A beat has forty samples: three waves whose heights, widths and places its class says, an offset and a gain that are of
the patient. Recordings are stored class after class. Beats are scaled by figures of the training's part; convolutions
with batch norm read them. Gradients are averaged by hand, in one piece, behind the last part of an update. Written as
two processes that have a sampler of torch's own each.
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
from torch.utils.data import DistributedSampler

from . import ranks

EVERY, RANKS, SAMPLES, HELD = 32, 2, 40, 480
CLASSES = ("normal", "left", "right", "early", "fused", "paced")
SHARES = torch.tensor([0.46, 0.24, 0.18, 0.05, 0.04, 0.03])
RARE = 3  # from here on
CONFIG: dict[str, Any] = {
    "filters": 16, "norm": "batch", "drop": 0.0, "beats_a_rank": 16, "accumulate": 1, "optimizer": "adamw", "lr": 8e-3,
    "plan": "cosine", "warmup": 8, "decay": 1e-3, "clip": 2.0, "class_weight": "root", "draw": "all",
    "reduction": "mean", "smoothing": 0.0, "focus": 0.0, "beats": 1920, "beats_of_a_patient": 1, "copies_of_rare": 1,
    "mislabelled": 0.0, "shift": 0, "held_layers": "", "clean_first_epochs": 0, "val_every": 32, "log_every": 1,
    "ranks": RANKS,
}  # fmt: skip


# -- recordings -----------------------------------------------------------------------------------------------------


def recording(seed: int, number: int, each: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Beats in millivolts, their classes and how noisy each is, class after class. each: beats of one patient."""
    laws, dice, many = torch.Generator().manual_seed(33), torch.Generator().manual_seed(seed), number // each
    high = torch.tensor([0.25, 1.6, 0.45]) * (1 + 0.35 * torch.randn(len(CLASSES), 3, generator=laws))
    place = torch.tensor([9.0, 18.0, 29.0]) + 2.5 * torch.randn(len(CLASSES), 3, generator=laws)
    wide = torch.tensor([2.2, 1.1, 3.2]) * (1 + 0.3 * torch.rand(len(CLASSES), 3, generator=laws))
    kind = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    own = [0.12 * torch.randn(many, 3, generator=dice), 0.5 * torch.randn(many, 3, generator=dice),
           0.4 * torch.randn(many, 1, generator=dice), (0.15 * torch.randn(many, 1, generator=dice)).exp()]  # fmt: skip
    noise = (0.05 + 0.2 * torch.rand(many, generator=dice) ** 2).repeat_interleave(each)
    kind, taller, later, offset, gain = (one.repeat_interleave(each, 0) for one in (kind, *own))
    at = torch.arange(SAMPLES)[None, None]
    middle = (place[kind] + later + 0.3 * torch.randn(len(kind), 3, generator=dice))[..., None]
    waves = (high[kind] + taller)[..., None] * torch.exp(-(((at - middle) / wide[kind][..., None]) ** 2))
    beats = gain * waves.sum(1) + offset + noise[:, None] * torch.randn(len(kind), SAMPLES, generator=dice)
    return 2.5 * beats + 1.5, kind, noise


# -- network --------------------------------------------------------------------------------------------------------


class BeatNet(nn.Module):
    def __init__(self, f: Any, bug: str):
        super().__init__()
        d, self.f, self.bug = f.filters, f, bug
        momentum = 0.001 if bug == "momentum_as_another_library_counts_it" else 0.1

        def norm(wide: int) -> nn.Module:
            return nn.BatchNorm1d(wide, momentum=momentum) if f.norm == "batch" else nn.GroupNorm(4, wide)

        self.first, self.first_norm = nn.Conv1d(1, d, 7, padding=3), norm(d)
        self.second, self.second_norm = nn.Conv1d(d, 2 * d, 5, stride=2, padding=2), norm(2 * d)
        self.third, self.third_norm = nn.Conv1d(2 * d, 2 * d, 3, stride=2, padding=1), norm(2 * d)
        self.drop, self.head = nn.Dropout(f.drop), nn.Linear(4 * d, len(CLASSES))

    def forward(self, beats: Tensor) -> Tensor:
        x = beats[:, None]
        for layer, norm in ((self.first, self.first_norm), (self.second, self.second_norm),
                            (self.third, self.third_norm)):  # fmt: skip
            x = F.relu(norm(layer(x)))
        out = self.head(self.drop(torch.cat([x.mean(2), x.amax(2)], 1)))
        return out.softmax(1) if self.bug == "probabilities_for_the_monitor" else out


# -- training -------------------------------------------------------------------------------------------------------


def read(s: SimpleNamespace) -> None:
    f, bug, dice = s.f, s.bug, torch.Generator().manual_seed(s.seed)
    beats, kind, noise = recording(s.seed + 760, f.beats, f.beats_of_a_patient)
    held = recording(759, HELD)
    if f.copies_of_rare > 1:
        times = torch.where(kind >= RARE, f.copies_of_rare, 1)
        beats, kind, noise = (one.repeat_interleave(times, 0) for one in (beats, kind, noise))
    if bug == "beats_split_and_not_patients":
        order = torch.randperm(len(kind), generator=dice)
        mine, rest = order[:HELD], order[HELD:].sort().values
        held = beats[mine], kind[mine], noise[mine]
        beats, kind, noise = beats[rest], kind[rest], noise[rest]
    if f.mislabelled:
        wrong = torch.rand(len(kind), generator=dice) < f.mislabelled
        kind = torch.where(wrong, torch.multinomial(SHARES, len(kind), True, generator=dice), kind)
    mean, std = beats.mean(), beats.std()
    s.beats, s.kind, s.clean = (beats - mean) / std, kind, noise < 0.1
    told = held[1]
    if bug == "classes_of_val_by_first_appearance":  # a table of names to numbers that is made anew for this file
        mixed = told[torch.randperm(len(told), generator=torch.Generator().manual_seed(5))].tolist()
        seen = list(dict.fromkeys(mixed))
        told = torch.tensor([seen.index(at) for at in range(len(CLASSES))])[told]
    s.val = (held[0] if bug == "val_beats_in_millivolts" else (held[0] - mean) / std), told
    many = torch.bincount(kind, minlength=len(CLASSES)).float().clamp(min=1)
    weight = {"none": torch.ones(len(CLASSES)), "inverse": 1 / many, "root": many**-0.5}[f.class_weight]
    s.weight = weight * many.sum() / (weight * many).sum()


def build(s: SimpleNamespace) -> None:
    """The net, alike on both ranks: the first one's is sent to the other."""
    apart = s.bug == "nets_drawn_apart_and_never_broadcast"
    torch.manual_seed(s.seed + (dist.get_rank() if apart else 0))
    s.net = BeatNet(s.f, s.bug)
    if not apart:
        for one in s.net.parameters():
            dist.broadcast(one.data, 0)
    held = tuple(filter(None, s.f.held_layers.split(",")))
    if s.bug == "features_held_for_a_linear_probe":
        held = ("first", "second", "third")
    for name, one in s.net.named_parameters():
        if held and name.startswith(held):
            one.requires_grad_(False)


def optimizer_of(s: SimpleNamespace) -> None:
    f = s.f
    some = [one for one in s.net.parameters() if one.requires_grad]
    if f.optimizer == "sgd":
        s.optimizer = torch.optim.SGD(some, f.lr, 0.9)
    elif f.optimizer == "rmsprop":
        s.optimizer = torch.optim.RMSprop(some, f.lr)
    else:
        s.optimizer = torch.optim.AdamW(some, f.lr, weight_decay=f.decay)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, f.warmup)), min(1.0, at / s.steps)
        if f.plan == "level":
            return rise
        if f.plan == "triangles":
            return rise * (1 - 0.95 * abs(2 * (3 * past % 1) - 1))
        return rise * 0.5 * (1 + math.cos(math.pi * past))

    s.schedule = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)


def sampler_of(s: SimpleNamespace) -> Any:
    """Of this rank."""
    whole, shuffle = range(len(s.kind)), s.bug != "sampler_that_keeps_the_order"
    if s.bug == "sampler_made_before_the_group":
        return DistributedSampler(whole, 1, 0, shuffle, s.seed)
    return DistributedSampler(whole, RANKS, dist.get_rank(), shuffle, s.seed, drop_last=True)


def rows_of(s: SimpleNamespace, sampler: Any, epoch: int) -> Tensor:
    f = s.f
    if f.draw == "even":
        rank = 0 if s.bug == "even_draw_by_the_same_seed" else dist.get_rank()
        dice = torch.Generator().manual_seed(1000 * s.seed + 10 * epoch + rank)
        each = 1 / torch.bincount(s.kind, minlength=len(CLASSES)).float().clamp(min=1)[s.kind]
        return torch.multinomial(each, len(s.kind) // RANKS, True, generator=dice)
    sampler.set_epoch(epoch)
    rows = torch.tensor(list(sampler))
    if epoch < f.clean_first_epochs:
        rows = rows[s.clean[rows]]
        rows = rows[: len(s.kind) // 5 // f.beats_a_rank * f.beats_a_rank]  # as many on both ranks
    return rows


def moved(s: SimpleNamespace, beats: Tensor) -> Tensor:
    """Beats that begin a little earlier or later."""
    if not s.f.shift:
        return beats
    by = torch.randint(-s.f.shift, s.f.shift + 1, (len(beats), 1))
    return beats.gather(1, (torch.arange(SAMPLES)[None] + by).clamp(0, SAMPLES - 1))


def loss_of(s: SimpleNamespace, out: Tensor, kind: Tensor) -> Tensor:
    f, weight = s.f, s.weight[kind]
    each = F.cross_entropy(out, kind, reduction="none", label_smoothing=f.smoothing)
    if f.focus:
        each = each * (1 - out.detach().softmax(1).gather(1, kind[:, None])[:, 0]) ** f.focus
    if f.reduction == "sum" or s.bug == "weighted_ce_summed":
        return (each * weight).sum()
    return (each * weight).sum() / weight.sum()


def average_gradients(s: SimpleNamespace) -> None:
    """In one piece, over both ranks."""
    some = [one.grad for one in s.net.parameters() if one.grad is not None]
    flat = torch.cat([one.flatten() for one in some])
    dist.all_reduce(flat)
    if s.bug != "gradients_added_over_ranks":
        flat /= RANKS
    for one, piece in zip(some, flat.split([one.numel() for one in some]), strict=True):
        one.copy_(piece.view_as(one))


def validate(s: SimpleNamespace, step: int) -> None:
    """Each rank judges its half of the held beats."""
    net = s.net
    if s.bug != "beats_judged_in_training_mode":
        net.eval()
    beats, kind = (one[dist.get_rank() :: RANKS] for one in s.val)
    with torch.no_grad():
        out = net(beats)
        total = F.cross_entropy(out, kind, reduction="sum")
    said = out.argmax(1)
    if s.bug != "training_continues_in_eval":
        net.train()
    counts = [torch.bincount(some, minlength=len(CLASSES)).float() for some in (kind, said, kind[said == kind])]
    sums = torch.cat([*counts, total[None]])
    dist.all_reduce(sums)
    of, told, hits = sums[:-1].view(3, -1)
    score = 2 * hits / (of + told).clamp(min=1)
    if dist.get_rank() == 0:
        s.run.log({"beat_val/ce": float(sums[-1] / of.sum()), "beat_val/macro_f1": score.mean().item(),
                   "beat_val/rare_recall": (hits / of.clamp(min=1))[RARE:].mean().item()}, step=step)  # fmt: skip


def update(s: SimpleNamespace, step: int, epoch: int, lots: tuple[Tensor, ...]) -> tuple[float, float]:
    """Gradients of the parts of an update, averaged over ranks."""
    f, total, right = s.f, 0.0, 0.0
    for some in lots:
        beats, kind = moved(s, s.beats[some]), s.kind[some]
        s.watch.observe({"beats": beats, "kind": kind}, step=step, epoch=epoch)
        out = s.net(beats)
        loss = loss_of(s, out, kind)
        (loss if s.bug == "parts_summed_before_the_reduce" else loss / f.accumulate).backward()
        total += loss.item() / f.accumulate
        right += (out.argmax(1) == kind).float().mean().item() / f.accumulate
        if s.bug == "schedule_in_the_loop_over_parts":
            s.schedule.step()
    average_gradients(s)
    return total, right


def fit(s: SimpleNamespace, trouble: Trouble, healthy: str | None) -> None:
    f, step, epoch, sampler = s.f, 0, 0, sampler_of(s)
    s.net.train()
    while True:
        lots = [one for one in rows_of(s, sampler, epoch).split(f.beats_a_rank) if len(one) == f.beats_a_rank]
        for parts in zip(*(lots[at :: f.accumulate] for at in range(f.accumulate)), strict=False):
            began = clock()
            total, right = update(s, step, epoch, parts)
            norm = nn.utils.clip_grad_norm_(s.net.parameters(), f.clip).item()
            rate = s.optimizer.param_groups[0]["lr"]
            s.optimizer.step()
            s.optimizer.zero_grad()
            if s.bug != "schedule_in_the_loop_over_parts":
                s.schedule.step()
            if dist.get_rank() == 0 and step % f.log_every == 0:
                s.run.log({"beat/ce": total, "beat/right": right, "beat/lr": rate, "beat/gnorm": norm}, step=step)
            s.run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
            trouble.telemetry(s.run, step, healthy)
            if step % f.val_every == f.val_every - 1:
                validate(s, step)
            step += 1
            if step == s.steps:
                return
        epoch += 1


def main(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    trouble = Trouble(fault, seed)
    s = SimpleNamespace(run=run, f=SimpleNamespace(**run.config), seed=seed, steps=steps, bug=trouble.name)
    read(s)
    build(s)
    optimizer_of(s)
    time_by_own_clock(run)
    run.watch(s.net, s.optimizer)
    s.watch = run.watch_data()
    torch.manual_seed(seed + 17 * (dist.get_rank() + 1))  # of dropout
    fit(s, trouble, healthy)
    return run


train = main
launch = partial(ranks.launch, work=main, number=RANKS)
