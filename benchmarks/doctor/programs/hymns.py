"""Dilated causal convolutions say the next chord of a hymn, under autocast to float16 with a scaler.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train_loss, lr, grad_norm, loss_scale; val_loss, val_acc; memory, where it matters.

Hymns of several lengths, padded; group norm over channels, one matrix for chords in and out, Adam, a rate that falls
with one over the root of the step; the loop is one generator of figures, which a second function records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, CHORDS, REST = 20, 24, 0
CONFIG: dict[str, Any] = {
    "channels": 24, "dilations": [1, 2, 4], "dropout": 0.0, "batch_size": 16, "learning_rate": 8e-3, "warmup": 20,
    "clip": 1.0, "accumulation": 1, "init_scale": 2.0**11, "schedule": "inverse_root", "hymns": 960, "buckets": False,
    "tied": True, "decay_alone": 0.0,
}  # fmt: skip


def compose(seed: int, number: int) -> list[Tensor]:
    """Each chord leads to four others, by which was before; longer hymns wander more."""
    dice, rules = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(9)
    leads = torch.randint(1, CHORDS, (CHORDS, 2, 4), generator=rules)
    hymns = []
    for _ in range(number):
        long = int(torch.randint(6, 29, (1,), generator=dice))
        hymn = torch.randint(1, CHORDS, (2,), generator=dice).tolist()
        wander = 0.1 + 0.02 * long
        while len(hymn) < long:
            pick = (
                0 if float(torch.rand((), generator=dice)) > wander else int(torch.randint(0, 4, (1,), generator=dice))
            )
            hymn.append(int(leads[hymn[-1], hymn[-2] % 2, pick]))
        hymns.append(torch.tensor(hymn))
    return hymns


def in_rows(some: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    rows = nn.utils.rnn.pad_sequence(some, batch_first=True, padding_value=REST)
    return rows[:, :-1], rows[:, 1:], rows[:, 1:] != REST


class Dilated(nn.Module):
    def __init__(self, channels: int, dilation: int, rate: float):
        super().__init__()
        self.left = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.wide, self.flat = nn.Conv1d(channels, 2 * channels, 3, dilation=dilation), nn.Conv1d(channels, channels, 1)
        self.norm, self.drop = nn.LayerNorm(channels), nn.Dropout(rate)

    def forward(self, x: Tensor) -> Tensor:
        y, gate = self.wide(self.left(self.norm(x.mT).mT)).chunk(2, 1)
        return x + self.flat(self.drop(y.tanh() * gate.sigmoid()))


class Organist(nn.Module):
    def __init__(self, channels: int, dilations: list[int], rate: float, tied: bool):
        super().__init__()
        self.chords = nn.Embedding(CHORDS, channels)
        nn.init.normal_(self.chords.weight, std=0.15)
        self.body = nn.Sequential(*(Dilated(channels, dilation, rate) for dilation in dilations))
        self.norm, self.says = nn.LayerNorm(channels), nn.Linear(channels, CHORDS)
        if tied:
            self.says.weight = self.chords.weight

    def forward(self, chords: Tensor) -> Tensor:
        return self.says(self.norm(self.body(self.chords(chords).mT).mT))


class Shop:
    """What the loop needs, made from the config, and made again at a resume."""

    def __init__(self, cfg: dict[str, Any], model: Organist):
        self.adam = torch.optim.Adam(model.parameters(), lr=cfg["learning_rate"], betas=(0.9, 0.98))
        warm = cfg["warmup"]
        falls = cfg["schedule"] == "inverse_root"
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.adam, lambda step: min((step + 1) / warm, (warm / (step + 1)) ** 0.5 if falls else 1.0)
        )
        self.scaler = torch.amp.GradScaler("cpu", init_scale=cfg["init_scale"], growth_interval=50)

    def states(self) -> list[Any]:
        return [self.adam.state_dict(), self.sched.state_dict(), self.scaler.state_dict()]

    def load(self, states: list[Any]) -> None:
        for part, state in zip((self.adam, self.sched, self.scaler), states, strict=True):
            part.load_state_dict(state)


def batches(hymns: list[Tensor], cfg: dict[str, Any], seed: int, name: str) -> Iterator[list[Tensor]]:
    dice, size = torch.Generator().manual_seed(seed), int(cfg["batch_size"])
    long = torch.tensor([len(hymn) for hymn in hymns])
    while True:
        if name == "data_by_length":
            order = long.argsort(stable=True)
        elif cfg["buckets"]:
            by_length = (long + torch.rand(len(hymns), generator=dice)).argsort().view(-1, size)
            order = by_length[torch.randperm(len(by_length), generator=dice)].flatten()
        else:
            order = torch.randperm(len(hymns), generator=dice)
        for some in order.split(size):
            yield [hymns[one] for one in some.tolist()]


def masked_loss(scores: Tensor, chords: Tensor, mask: Tensor, name: str) -> Tensor:
    scores = scores.float()
    if name == "double_softmax":
        scores = scores.softmax(-1)
    each = nn.functional.cross_entropy(scores[mask], chords[mask], reduction="none")
    return each.sum() / mask.shape[1] if name == "divided_by_longest" else each.mean()


class Loop:
    def __init__(self, run: Any, seed: int, trouble: Trouble, healthy: str | None):
        self.run, self.cfg, self.trouble, self.healthy = run, dict(run.config), trouble, healthy
        cfg, name = self.cfg, trouble.name
        torch.manual_seed(seed)
        self.hymns, self.held = compose(seed + 67, cfg["hymns"]), compose(676, 192)
        self.model = Organist(cfg["channels"], cfg["dilations"], cfg["dropout"], cfg["tied"])
        self.shop = Shop(cfg, self.model)
        if name == "weight_tying_broken":  # the output is drawn anew when all is made
            self.model.says.weight = nn.Parameter(0.15 * torch.randn(CHORDS, cfg["channels"]))
        self.stream = batches(self.hymns, cfg, seed, name)
        self.kept: list[Tensor] = []

    def steps(self) -> Iterator[tuple[int, dict[str, float]]]:
        cfg, name = self.cfg, self.trouble.name
        resumed = self.trouble.resume_at(self.healthy, 5 * EVERY)
        for step in range(cfg["steps"]):
            if step == resumed:
                self.resume(step)
            shop, total = self.shop, 0.0
            for _ in range(cfg["accumulation"]):
                chords, following, mask = in_rows(next(self.stream))
                with torch.autocast("cpu", torch.float16):
                    scores = self.model(chords)
                loss = masked_loss(scores, following, mask, name)
                shop.scaler.scale(loss if name == "accumulation_undivided" else loss / cfg["accumulation"]).backward()
                total += loss.item() / (1 if name == "accumulation_undivided" else cfg["accumulation"])
            if name != "clipped_while_scaled":
                shop.scaler.unscale_(shop.adam)
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), cfg["clip"])
            rate = shop.adam.param_groups[0]["lr"]
            shop.scaler.step(shop.adam)
            shop.scaler.update()
            shop.adam.zero_grad()
            shop.sched.step()
            self.trouble.telemetry(self.run, step, self.healthy)
            yield step, {"train_loss": total, "lr": rate, "grad_norm": norm.item(), "scale": shop.scaler.get_scale()}

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.shop.adam, scaler=self.shop.scaler)

    def resume(self, step: int) -> None:
        self.run, (weights, states) = go_on(self.run, step, (self.model.state_dict(), self.shop.states()))
        self.model.load_state_dict(weights)
        self.shop = Shop(self.cfg, self.model)
        if self.trouble.name != "weights_alone_kept":
            self.shop.load(states)
        self.watch()

    def validate(self) -> dict[str, float]:
        forgotten = self.trouble.name == "no_grad_missing"
        if self.trouble.name != "evaluated_as_trained":
            self.model.eval()
        losses, right = [], []
        with torch.set_grad_enabled(forgotten):
            for start in range(0, len(self.held), 48):
                chords, following, mask = in_rows(self.held[start : start + 48])
                scores = self.model(chords).float()
                losses.append(nn.functional.cross_entropy(scores[mask], following[mask]))
                right.append((scores.argmax(-1) == following)[mask].float().mean())
        self.kept += losses if forgotten else []
        self.model.train()
        return {"val_loss": torch.stack(losses).mean().item(), "val_acc": torch.stack(right).mean().item()}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    loop = Loop(run, seed, Trouble(fault, seed), healthy)
    loop.watch()
    for step, figures in loop.steps():
        loop.run.log(figures, step=step)
        if step % EVERY == 0 or step == steps - 1:
            loop.run.log(loop.validate(), step=step)
    return loop.run
