"""Two views of a whale's call are brought together, against a slow copy's keys of the batch and of a queue.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: moco/loss, moco/top1, moco/lr, moco/grad_norm each step; probe/infonce, probe/knn each
      twentieth; the watch of data.

A call is a spectrogram of sixteen bands; a view is a cut in time with masks, gain and noise. Convolutions with batch
norm, a projector and a predictor; the slow copy follows by a momentum that rises. Recordings have several calls; what
is probed is of recordings of its own: pairs once more, and nearest neighbours by the kind of call. Arguments as a
command line has them, one class that holds both encoders, and a loop by epochs.
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

EVERY, BANDS, FRAMES, CUT, KINDS, PROBED = 20, 16, 32, 24, 8, 128
CONFIG: dict[str, Any] = {
    "width": 16, "moco_dim": 24, "moco_mlp_dim": 64, "moco_m": 0.9, "moco_m_cos": True, "moco_t": 0.2, "queue": 128,
    "dropout": 0.0, "batch_size": 48, "update_every": 1, "lr": 4e-3, "opt": "adamw", "weight_decay": 1e-3,
    "lr_schedule": "cos", "warmup_updates": 10, "clip": 5.0, "recordings": 800, "calls_each": 1, "sea": 1.0,
    "band_mask": 4, "time_mask": 5, "gain": 0.4, "hiss": 0.3, "stop_grad_stem": False, "fix": "", "loss_sum": False,
    "calm_first": 0, "probe_each": 20, "bn_momentum": 0.1,
}  # fmt: skip


# -- recordings -----------------------------------------------------------------------------------------------------


def listen(seed: int, recordings: int, calls: int, sea: float) -> tuple[Tensor, Tensor, Tensor]:
    """Power (number, BANDS, FRAMES), the kind of each call, and its recording; recording after recording."""
    dice = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, KINDS, (recordings,), generator=dice)
    own = torch.rand(recordings, 6, generator=dice).repeat_interleave(calls, 0)
    of = torch.arange(recordings).repeat_interleave(calls)
    kind, number = kind[of], recordings * calls
    t, band = torch.linspace(0, 1, FRAMES)[None], torch.arange(BANDS)[None, :, None]
    now = 0.04 * torch.rand(number, 1, generator=dice)
    low, t = 2 + 5 * own[:, :1] + 0.3 * torch.randn(number, 1, generator=dice), t + now
    up = torch.tensor([0.0, 6, -4, 0, 5, 0, -3, 3])[kind][:, None] * (0.7 + 0.6 * own[:, 1:2])
    wave = torch.tensor([0.0, 0, 0, 2, 0, 0, 2, 0])[kind][:, None] * (0.7 + 0.6 * own[:, 2:3])
    rate = (2 + 4 * own[:, 3:4]) * torch.tensor([0.0, 0, 0, 1, 0, 3, 2, 1])[kind][:, None]
    pitch = low + up * t + wave * (6.283 * rate * t).sin()
    loud = torch.where((kind == 5)[:, None] | (kind == 7)[:, None], (6.283 * rate * t).sin().clamp(min=0), t * 0 + 1)
    power = loud[:, None] * (-0.5 * (band - pitch[:, None]) ** 2 / 0.6).exp()
    over = 0.6 * own[:, 4:5, None] * loud[:, None] * (-0.5 * (band - 1.8 * pitch[:, None]) ** 2 / 0.6).exp()
    floor = 0.05 * sea * (1 + (BANDS - band) / 6) * (0.5 + own[:, 5:6, None])
    power = 30 * (power + over) + 30 * floor * torch.rand(number, BANDS, FRAMES, generator=dice) + 1e-3
    return power, kind, of


class Calls:
    """Logarithms of power, scaled band by band."""

    def __init__(self, a: Any, seed: int, bug: str):
        power, kind, of = listen(seed + 5200, a.recordings, a.calls_each, a.sea)
        held, held_kind, _ = listen(52, PROBED, 1, a.sea)
        x, y = power.log(), held.log()
        mean, std = x.mean((0, 2), keepdim=True), x.std((0, 2), keepdim=True)
        if bug == "probe_calls_in_decibels":  # the other library's function for the same thing
            y = 10 * held.log10()
        self.x, self.kind, self.of = (x - mean) / std, kind, of
        self.held, self.held_kind = (y - mean) / std, held_kind
        self.bank = torch.arange(len(self.x))[torch.randperm(len(self.x), generator=torch.Generator())[:256]]
        if bug == "kinds_of_the_table_from_one":  # annotations count from 1; those held out were put right
            self.kind = self.kind + 1


def view(a: Any, x: Tensor, dice: torch.Generator, cut: int = CUT) -> Tensor:
    """A cut in time, one band and one stretch left out, louder or fainter, and hiss."""
    number = len(x)
    begin = torch.randint(0, FRAMES - cut + 1, (number, 1, 1), generator=dice)
    x = x.gather(2, (begin + torch.arange(cut)).expand(number, BANDS, cut))
    for many, most, shape in ((BANDS, a.band_mask, (1, BANDS, 1)), (cut, a.time_mask, (1, 1, cut))):
        wide = torch.randint(0, most + 1, (number, 1, 1), generator=dice)
        first = (torch.rand(number, 1, 1, generator=dice) * (many - wide + 1)).long()
        place = torch.arange(many).view(shape)
        x = x.masked_fill((place >= first) & (place < first + wide), 0.0)
    x = x * (1 + a.gain * (2 * torch.rand(number, 1, 1, generator=dice) - 1))
    return x + a.hiss * torch.randn(x.shape, generator=dice)


def epoch_of(a: Any, data: Calls, dice: torch.Generator, epoch: int, bug: str) -> Iterator[Tensor]:
    order = torch.randperm(len(data.x), generator=dice)
    if epoch < a.calm_first:  # calls over little noise alone, as is set
        calm = data.x.abs().mean((1, 2)).argsort()[: len(data.x) // 2]
        order = calm[torch.randperm(len(calm), generator=dice)]
    if bug == "calls_in_the_order_of_the_disk":  # folders of kinds, in which recordings lie
        order = data.kind.argsort(stable=True)
    size = a.batch_size // a.update_every
    for some in order.split(size):
        if len(some) == size:
            yield some


# -- model ----------------------------------------------------------------------------------------------------------


def mlp(a: Any, i: int, last_norm: bool) -> nn.Sequential:
    layers = [nn.Linear(i, a.moco_mlp_dim, bias=False), nn.BatchNorm1d(a.moco_mlp_dim, momentum=a.bn_momentum),
              nn.ReLU(), nn.Dropout(a.dropout), nn.Linear(a.moco_mlp_dim, a.moco_dim, bias=False)]  # fmt: skip
    if last_norm:
        layers.append(nn.BatchNorm1d(a.moco_dim, affine=False, momentum=a.bn_momentum))
    return nn.Sequential(*layers)


class CallEncoder(nn.Module):
    def __init__(self, a: Any):
        super().__init__()
        w, m = a.width, a.bn_momentum
        self.stem = nn.Sequential(nn.Conv2d(1, w, 3, 2, 1, bias=False), nn.BatchNorm2d(w, momentum=m), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv2d(w, 2 * w, 3, 2, 1, bias=False), nn.BatchNorm2d(2 * w, momentum=m), nn.ReLU(),
            nn.Conv2d(2 * w, 3 * w, 3, 1, 1, bias=False), nn.BatchNorm2d(3 * w, momentum=m), nn.ReLU(),
        )  # fmt: skip
        self.drop, self.project = nn.Dropout(a.dropout), mlp(a, 6 * w, True)

    def features(self, x: Tensor) -> Tensor:
        y = self.body(self.stem(x[:, None]))
        return torch.cat([y.mean((2, 3)), y.amax((2, 3))], 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(self.drop(self.features(x)))


class MoCo(nn.Module):
    def __init__(self, a: Any, bug: str):
        super().__init__()
        self.a, self.bug = a, bug
        self.base, self.predictor = CallEncoder(a), mlp(a, a.moco_dim, False)
        self.slow = copy.deepcopy(self.base)
        for fast, slow in zip(self.base.parameters(), self.slow.parameters(), strict=True):
            slow.data.copy_(fast.data)
            if bug == "fast_encoder_locked_for_the_slow":
                fast.requires_grad = False
            else:
                slow.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(max(1, a.queue), a.moco_dim), dim=1))
        self.at = 0

    @torch.no_grad()
    def follow(self, m: float) -> None:
        for fast, slow in zip(self.base.parameters(), self.slow.parameters(), strict=True):
            if self.bug == "slow_weights_bound_to_a_name":
                slow = slow * m + fast * (1.0 - m)
            else:
                slow.copy_(slow * m + fast * (1.0 - m))

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        if self.a.queue:
            place = (self.at + torch.arange(len(keys))) % self.a.queue
            self.queue[place] = keys
            self.at = (self.at + len(keys)) % self.a.queue

    def contrast(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each query, and whether its key is the nearest."""
        a, wanted = self.a, torch.arange(len(q))
        q, others = F.normalize(q, dim=1), self.queue.clone() if self.a.queue else k[:0]
        logits = torch.cat([q @ k.T, q @ others.T], 1) / a.moco_t
        top = logits.argmax(1) == wanted
        how = "sum" if self.bug == "contrast_summed_over_batch" or a.loss_sum else "mean"
        return 2 * a.moco_t * F.cross_entropy(logits, wanted, reduction=how), top.float().mean()

    def forward(self, one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
        q1, q2 = self.predictor(self.base(one)), self.predictor(self.base(two))
        with torch.no_grad():
            if self.bug == "slow_encoder_put_to_eval":
                self.slow.eval()
            k1, k2 = F.normalize(self.slow(one), dim=1), F.normalize(self.slow(two), dim=1)
        if self.bug == "keys_go_into_the_queue_first":
            self.enqueue(torch.cat([k1, k2]))
        first, second = self.contrast(q1, k2), self.contrast(q2, k1)
        if self.training and self.bug != "keys_go_into_the_queue_first":
            self.enqueue(torch.cat([k1, k2]))
        return first[0] + second[0], (first[1] + second[1]) / 2


# -- probing --------------------------------------------------------------------------------------------------------


def probe(s: Any, step: int, bug: str) -> None:
    """Pairs of held-out calls; the kind of each by its five nearest in the training, by the fast encoder."""
    model, data, dice = s.model, s.data, torch.Generator().manual_seed(53)
    one, two = view(s.a, data.held, dice), view(s.a, data.held, dice)
    model.eval()
    with torch.set_grad_enabled(bug == "bank_of_features_with_grad"):
        q, k = model.predictor(model.base(one)), F.normalize(model.slow(two), dim=1)
        logits = F.normalize(q, dim=1) @ k.T / s.a.moco_t
        loss = F.cross_entropy(logits, torch.arange(len(q)))
        bank = F.normalize(model.base.features(data.x[data.bank]), dim=1)
        asked = F.normalize(model.base.features(data.held), dim=1)
        near = (asked @ bank.T).topk(5, 1).indices
    if bug == "bank_of_features_with_grad":
        s.kept.append((bank, asked))
    votes = F.one_hot(data.kind[data.bank][near], KINDS + 1).sum(1)
    hit = (votes.argmax(1) == data.held_kind).float().mean()
    if bug != "probe_ends_in_eval":
        model.train()
    s.run.log({"probe/infonce": loss.item(), "probe/knn": hit.item()}, step=step)


# -- training -------------------------------------------------------------------------------------------------------


def optimizer_of(a: Any, model: nn.Module) -> torch.optim.Optimizer:
    some = [one for one in model.parameters() if one.requires_grad]
    if a.opt == "sgd":
        return torch.optim.SGD(some, a.lr, 0.9)
    if a.opt == "nadam":
        return torch.optim.NAdam(some, a.lr)
    return torch.optim.AdamW(some, a.lr, weight_decay=a.weight_decay)


def share_at(a: Any, update: int) -> float:
    rise, past = min(1.0, (update + 1) / max(1, a.warmup_updates)), min(1.0, update / a.steps)
    if a.lr_schedule == "none":
        return rise
    if a.lr_schedule == "steps":
        return rise * 0.2 ** ((past > 0.6) + (past > 0.85))
    if a.lr_schedule == "restarts":
        return rise * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
    return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * past)))


def momentum_at(a: Any, step: int) -> float:
    if not a.moco_m_cos:
        return a.moco_m
    return 1.0 - 0.5 * (1.0 + math.cos(math.pi * step / a.steps)) * (1.0 - a.moco_m)


def look(s: Any) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.model, s.optimizer)
    s.watch = s.run.watch_data()


def resume(s: Any, step: int) -> None:
    seen = s.watch.state()
    state = {"epoch": s.epoch, "state_dict": s.model.state_dict(), "optimizer": s.optimizer.state_dict()}
    s.run, checkpoint = go_on(s.run, step, state)
    s.model.load_state_dict(checkpoint["state_dict"])
    s.optimizer = optimizer_of(s.a, s.model)
    s.optimizer.load_state_dict(checkpoint["optimizer"])
    look(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    a, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    bug, again = trouble.name, trouble.resume_at(healthy, 4 * EVERY)
    torch.manual_seed(seed)
    s = SimpleNamespace(run=run, a=a, kept=[], epoch=0, data=Calls(a, seed, bug), model=MoCo(a, bug))
    for name, one in s.model.named_parameters():
        if (a.stop_grad_stem and name.startswith("base.stem.0")) or (a.fix and name.startswith(a.fix)):
            one.requires_grad = False
    s.optimizer = optimizer_of(a, s.model)
    dice, order = torch.Generator().manual_seed(seed + 1), torch.Generator().manual_seed(seed)
    look(s)
    s.model.train()
    step, part, moved, total, right = 0, 0, 0, 0.0, 0.0
    while step < steps:
        for some in epoch_of(a, s.data, order, s.epoch, bug):
            if step == again and not part:
                resume(s, step)
                again = None
            x = s.data.x[some]
            s.watch.observe({"call": x}, step=step, epoch=s.epoch)
            if bug == "views_drawn_by_the_clips_seed":  # each call's dice are its own, so that a run can be repeated
                one, two = (view(a, x, torch.Generator().manual_seed(1000 * s.epoch + step)) for _ in range(2))
            else:
                one, two = view(a, x, dice), view(a, x, dice)
            loss, top = s.model(one, two)
            shown = loss.item() / a.update_every
            (loss / a.update_every).backward()
            total, right, part = total + shown, right + top.item() / a.update_every, part + 1
            if bug == "cosine_moved_for_each_part":
                moved += 1
            if part < a.update_every:
                continue
            norm = nn.utils.clip_grad_norm_(s.model.parameters(), a.clip).item()
            rate = a.lr * share_at(a, moved)
            for group in s.optimizer.param_groups:
                group["lr"] = rate
            s.optimizer.step()
            s.optimizer.zero_grad()
            s.model.follow(momentum_at(a, step))
            moved += bug != "cosine_moved_for_each_part"
            s.run.log({"moco/loss": total, "moco/top1": right, "moco/lr": rate, "moco/grad_norm": norm}, step=step)
            trouble.telemetry(s.run, step, healthy)
            if step % a.probe_each == a.probe_each - 1:
                probe(s, step, bug)
            step, part, total, right = step + 1, 0, 0.0, 0.0
            if step == steps:
                break
        s.epoch += 1
    return s.run
