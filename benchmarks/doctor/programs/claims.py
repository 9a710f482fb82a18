"""Reports of insurance claims, with three figures each, are put into five kinds, the rarest one in thirty.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: ce, the mean of five steps; dev_ce, dev_acc, dev_macro_f1 every twenty; memory where it
      matters.

A bidirectional LSTM over packed sequences; the figures are standardised by running ones, made by hand. RMSprop, a rate
that falls where the development loss stays.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

EVERY, LOGGED, WORDS, KINDS = 20, 5, 60, 5
SHARES = (0.6, 0.17, 0.12, 0.075, 0.035)
CONFIG: dict[str, Any] = {
    "embedding": 24, "hidden": 24, "dropout": 0.0, "batch_size": 32, "learning_rate": 2e-3, "momentum": 0.0,
    "schedule": "plateau", "class_weights": "root", "oversample": 1, "examples": 1609, "wrong_labels": 0.02,
    "focal": 0.0, "patience": 0, "clip": 0.0, "label_smoothing": 0.0,
}  # fmt: skip
Claim = dict[str, Any]


def claims(seed: int, number: int, wrong: float) -> list[Claim]:
    """Each with `words` (4 to 18 numbers from 1 on), `figures` (3) and `kind`."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.multinomial(torch.tensor(SHARES), number, replacement=True, generator=dice)
    made = []
    for kind in kinds.tolist():
        long = int(torch.randint(4, 19, (1,), generator=dice))
        words = torch.randint(13, WORDS, (long,), generator=dice)
        at = int(torch.randint(0, long - 1, (1,), generator=dice))
        first = 1 + 2 * int(torch.randint(0, 6, (1,), generator=dice))
        words[at], words[at + 1] = first, 1 + (first + kind) % 12  # which word follows says the kind
        drawn = torch.randn(3, generator=dice)
        figures = torch.stack([900 + 250 * drawn[0] + 120 * kind, 41 + 12 * drawn[1], 3 + 0.8 * drawn[2] - 0.5 * kind])
        if float(torch.rand((), generator=dice)) < wrong:
            kind = int(torch.randint(0, KINDS, (1,), generator=dice))
        made.append({"words": words, "figures": figures, "kind": kind})
    return made


def gathered(some: list[Claim]) -> dict[str, Tensor]:
    return {
        "words": pad_sequence([one["words"] for one in some], batch_first=True),
        "long": torch.tensor([len(one["words"]) for one in some]),
        "figures": torch.stack([one["figures"] for one in some]),
        "kind": torch.tensor([one["kind"] for one in some]),
    }


class Standard(nn.Module):
    """Figures less their running mean, by their running deviation; a batch's own while training."""

    def __init__(self, number: int, moves: bool):
        super().__init__()
        self.moves = moves
        self.register_buffer("running", torch.zeros(number))
        self.register_buffer("squares", torch.ones(number))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) > 1:
            mean, square = x.mean(0), x.var(0, unbiased=False)
            if self.moves:
                share = max(0.05, 1 / (1 + int(self.seen)))
                self.running.lerp_(mean, share)
                self.squares.lerp_(square, share)
                self.seen += 1
            return (x - mean) / (square + 1e-5).sqrt()
        return (x - self.running) / (self.squares + 1e-5).sqrt()


class Clerk(nn.Module):
    def __init__(self, cfg: dict[str, Any], name: str):
        super().__init__()
        hidden = cfg["hidden"]
        self.name = name
        self.embedding = nn.Embedding(WORDS, cfg["embedding"], padding_idx=0)
        self.reader = nn.LSTM(cfg["embedding"], hidden, bidirectional=True, batch_first=True)
        self.standard = Standard(3, moves=name != "figures_never_moved")
        self.decide = nn.Sequential(nn.Linear(2 * hidden + 3, hidden), nn.Tanh(), nn.Dropout(cfg["dropout"]),
                                    nn.Linear(hidden, KINDS + (name == "kinds_from_one")))  # fmt: skip

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        packed = pack_padded_sequence(self.embedding(batch["words"]), batch["long"], batch_first=True,
                                      enforce_sorted=False)  # fmt: skip
        states, _ = nn.utils.rnn.pad_packed_sequence(self.reader(packed)[0], batch_first=True)
        seen = torch.arange(states.shape[1]) < batch["long"][:, None]
        read = states.masked_fill(~seen[..., None], -1e9).amax(1)
        scores = self.decide(torch.cat([read, self.standard(batch["figures"])], 1))
        return scores.softmax(1) if self.name == "double_softmax" else scores


def split(cfg: dict[str, Any], seed: int, name: str) -> tuple[list[Claim], list[Claim]]:
    """What is trained on, and what it is judged by."""
    examples, dev = claims(seed + 41, cfg["examples"], cfg["wrong_labels"]), claims(414, 400, cfg["wrong_labels"])
    if name == "copied_before_split":
        every = examples + dev
        every = every + [one for one in every if one["kind"] > 1] * (cfg["oversample"] - 1)
        order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed)).tolist()
        return [every[one] for one in order[400:]], [every[one] for one in order[:400]]
    return examples + [one for one in examples if one["kind"] > 1] * (cfg["oversample"] - 1), dev


class Office:
    def __init__(self, run: Any, seed: int, trouble: Trouble, healthy: str | None):
        torch.manual_seed(seed)
        self.run, self.cfg, self.trouble, self.healthy = run, dict(run.config), trouble, healthy
        cfg = self.cfg
        self.examples, self.dev = split(cfg, seed, trouble.name)
        counts = torch.bincount(torch.tensor([one["kind"] for one in self.examples]), minlength=KINDS).float()
        weights = {"none": counts * 0 + 1, "root": counts.rsqrt(), "effective": 0.01 / (1 - 0.99**counts)}[
            cfg["class_weights"]
        ]
        self.weights = KINDS * weights / weights.sum()
        if trouble.name == "kinds_from_one":
            self.examples = [one | {"kind": one["kind"] + 1} for one in self.examples]
            self.weights = torch.cat([torch.ones(1), self.weights])
        self.clerk = Clerk(cfg, trouble.name)
        self.rms = torch.optim.RMSprop(self.clerk.parameters(), lr=cfg["learning_rate"], momentum=cfg["momentum"])
        self.falls = torch.optim.lr_scheduler.ReduceLROnPlateau(self.rms, factor=0.5, patience=1)
        self.dice, self.sums, self.kept = torch.Generator().manual_seed(seed), [0.0, 0], []  # type: Any, list[float], list[Tensor]
        self.best, self.bad = float("inf"), 0

    def batches(self) -> Any:
        """One epoch; the last batch is as long as what is left."""
        size = int(self.cfg["batch_size"])
        order = torch.randperm(len(self.examples), generator=self.dice).tolist()
        if self.trouble.name == "data_by_length":
            order.sort(key=lambda one: len(self.examples[one]["words"]))
        for begin in range(0, len(order), size):
            yield gathered([self.examples[one] for one in order[begin : begin + size]])

    def loss(self, scores: Tensor, kinds: Tensor, training: bool) -> Tensor:
        cfg = self.cfg
        smooth = cfg["label_smoothing"] if training else 0.0
        if training and self.trouble.name == "loss_summed":
            return F.cross_entropy(scores, kinds, self.weights, reduction="sum")
        if not cfg["focal"]:
            return F.cross_entropy(scores, kinds, self.weights[: scores.shape[1]], label_smoothing=smooth)
        each = F.cross_entropy(scores, kinds, reduction="none")
        return ((1 - (-each).exp()) ** cfg["focal"] * each * self.weights[kinds]).mean()

    def step(self, step: int, batch: dict[str, Tensor]) -> None:
        loss = self.loss(self.clerk(batch), batch["kind"], training=True)
        self.rms.zero_grad()
        loss.backward()
        if self.cfg["clip"]:
            nn.utils.clip_grad_value_(self.clerk.parameters(), self.cfg["clip"])
        self.rms.step()
        self.sums = [self.sums[0] + loss.item(), self.sums[1] + 1]
        if step % LOGGED == LOGGED - 1:
            self.run.log({"ce": self.sums[0] / self.sums[1]}, step=step)
            self.sums = [0.0, 0]
        self.trouble.telemetry(self.run, step, self.healthy)

    def judge(self, step: int) -> bool:
        """Whether the training goes on."""
        forgotten = self.trouble.name == "no_grad_missing"
        self.clerk.eval()
        with torch.set_grad_enabled(forgotten):
            dev = gathered(self.dev)
            scores = self.clerk(dev)
            loss = self.loss(scores, dev["kind"], training=False)
        if forgotten:  # for a curve at the end
            self.kept.append(scores)
        self.clerk.train()
        said, kinds = scores.argmax(1), dev["kind"]
        hits = torch.stack([((said == one) & (kinds == one)).sum() for one in range(KINDS)])
        sizes = [torch.bincount(some, minlength=KINDS)[:KINDS] for some in (said, kinds)]
        f1 = (2 * hits / (sizes[0] + sizes[1]).clamp(min=1)).mean().item()
        self.run.log({"dev_ce": loss.item(), "dev_acc": (said == kinds).float().mean().item(), "dev_macro_f1": f1,
                      "lr": self.rms.param_groups[0]["lr"]}, step=step)  # fmt: skip
        if self.cfg["schedule"] == "plateau":
            self.falls.step(loss.item())
        self.bad = 0 if loss.item() < self.best - 1e-3 else self.bad + 1
        self.best = min(self.best, loss.item())
        return not self.cfg["patience"] or self.bad < self.cfg["patience"]


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    office, step, goes_on = Office(run, seed, Trouble(fault, seed), healthy), 0, True
    time_by_own_clock(run)
    run.watch(office.clerk, office.rms)
    while step < steps and goes_on:
        for batch in office.batches():
            office.step(step, batch)
            step += 1
            if step % EVERY == 0 or step == steps:
                goes_on = office.judge(step - 1)
            if step == steps or not goes_on:
                break
    return run
