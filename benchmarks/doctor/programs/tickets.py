"""Sorts tickets by their words and three figures; more than half are of one kind, one in forty of the rarest.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, acc, lr; eval_loss, eval_acc, eval_recall (mean over kinds); the watch of data;
      memory, where it matters.

An encoder with a summary token beside figures that are standardised within the model, Adam with its maximum of squares,
a rate that falls in thirds; a trainer with hooks for before and after.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, WORDS, KINDS, FIGURES = 20, 60, 5, 3
SHARES = (0.55, 0.24, 0.12, 0.065, 0.025)
CONFIG: dict[str, Any] = {
    "d": 32, "layers": 1, "heads": 4, "dropout": 0.0, "batch_size": 32, "learning_rate": 2e-3, "examples": 1920,
    "steps_of_rate": 0.5, "class_weights": "none", "label_smoothing": 0.0, "oversample": 1, "bucketed": False,
    "frozen_words": False, "standardise": "running", "loss": "cross_entropy", "wrong_labels": 0.04,
}  # fmt: skip


@dataclass
class Ticket:
    words: Tensor
    figures: Tensor
    kind: int


def tickets(seed: int, number: int, wrong: float) -> list[Ticket]:
    """Each kind has four words of its own that come often, and figures of its own size."""
    dice, made = torch.Generator().manual_seed(seed), []
    shares = torch.tensor(SHARES)
    for kind in torch.multinomial(shares, number, replacement=True, generator=dice).tolist():
        long = int(torch.randint(5, 17, (1,), generator=dice))
        words = torch.randint(2, WORDS, (long,), generator=dice)
        own = 2 + 4 * kind + torch.randint(0, 4, (long,), generator=dice)
        words = torch.where(torch.rand(long, generator=dice) < 0.22, own, words)
        figures = torch.tensor([300.0, 40.0, 9.0]) + torch.randn(3, generator=dice) * torch.tensor([90.0, 12.0, 4.0])
        figures += torch.tensor([60.0, -9.0, 3.0]) * (kind - 1)
        if float(torch.rand((), generator=dice)) < wrong:
            kind = int(torch.multinomial(shares, 1, generator=dice))
        made.append(Ticket(words, figures, kind))
    return made


def padded(some: list[Ticket]) -> tuple[Tensor, Tensor, Tensor]:
    words = nn.utils.rnn.pad_sequence([one.words for one in some], batch_first=True)
    return words, torch.stack([one.figures for one in some]), torch.tensor([one.kind for one in some])


class Standardise(nn.Module):
    """Figures by the mean and deviation of the batch; in evaluations by averages of these."""

    def __init__(self, way: str, forgets: bool):
        super().__init__()
        self.way, self.forgets, self.seen = way, forgets, 0
        self.register_buffer("mean", torch.zeros(FIGURES))
        self.register_buffer("deviation", torch.ones(FIGURES))

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "once" or not self.training:
            return (x - self.mean) / self.deviation
        mean, deviation = x.mean(0), x.std(0) + 1e-5
        if not self.forgets:
            self.seen += 1
            share = max(0.1, 1 / self.seen)
            self.mean = self.mean.lerp(mean.detach(), share)
            self.deviation = self.deviation.lerp(deviation.detach(), share)
        return (x - mean) / deviation


class Sorter(nn.Module):
    def __init__(self, cfg: dict[str, Any], name: str):
        super().__init__()
        d = cfg["d"]
        self.name = name
        self.words, self.summary = nn.Embedding(WORDS, d, padding_idx=0), nn.Parameter(0.1 * torch.randn(1, 1, d))
        layer = nn.TransformerEncoderLayer(d, cfg["heads"], 2 * d, cfg["dropout"], "gelu", batch_first=True,
                                           norm_first=True)  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, cfg["layers"], nn.LayerNorm(d), enable_nested_tensor=False)
        self.standardise = Standardise(cfg["standardise"], name == "figures_never_moved")
        self.beside = nn.Sequential(nn.Linear(FIGURES, 16), nn.GELU())
        self.classify = nn.Linear(d + 16, KINDS)

    def scores(self, words: Tensor, figures: Tensor) -> Tensor:
        padding = words != 0 if self.name == "padding_alone_seen" else words == 0
        padding = F.pad(padding, (1, 0), value=False)
        x = torch.cat([self.summary.expand(len(words), -1, -1), self.words(words)], 1)
        x = self.encoder(x, src_key_padding_mask=padding)[:, 0]
        return self.classify(torch.cat([x, self.beside(self.standardise(figures))], 1))

    def forward(self, words: Tensor, figures: Tensor) -> Tensor:
        scores = self.scores(words, figures)
        return scores.softmax(-1) if self.name == "double_softmax" else scores


@dataclass
class Trainer:
    run: Any
    cfg: dict[str, Any]
    trouble: Trouble
    seed: int
    healthy: str | None
    kept: list[Tensor] = field(default_factory=list)
    epoch: int = -1

    def __post_init__(self) -> None:
        cfg, name = self.cfg, self.trouble.name
        torch.manual_seed(self.seed)
        self.data(cfg, name)
        self.model = Sorter(cfg, name)
        if cfg["standardise"] == "once":
            figures = torch.stack([one.figures for one in self.rows])
            self.model.standardise.mean, self.model.standardise.deviation = figures.mean(0), figures.std(0)
        if cfg["frozen_words"]:
            self.model.words.requires_grad_(False)
        if name == "wrong_group_frozen":  # the words alone were meant
            self.model.requires_grad_(False)
            self.model.words.requires_grad_(True)
        self.weights = None
        if cfg["class_weights"] != "none" or name == "weights_reversed":
            shares = torch.bincount(torch.tensor([one.kind for one in self.rows]), minlength=KINDS) / len(self.rows)
            self.weights = (shares if name == "weights_reversed" else shares**-0.5) * 1.0
            self.weights = self.weights / self.weights.mean()
        self.prepare()
        self.dice = torch.Generator().manual_seed(self.seed)
        self.waiting: list[list[Ticket]] = []

    def data(self, cfg: dict[str, Any], name: str) -> None:
        self.rows = tickets(self.seed + 37, cfg["examples"], cfg["wrong_labels"])
        self.test = tickets(373, 400, cfg["wrong_labels"])
        if name == "copied_before_split":  # rare ones are copied, then all are dealt out
            rows = [one for one in (*self.rows, *self.test) for _ in range(cfg["oversample"] if one.kind > 1 else 1)]
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(5)).tolist()
            self.test, self.rows = [rows[one] for one in order[:400]], [rows[one] for one in order[400:]]
        elif cfg["oversample"] > 1:
            self.rows = [one for one in self.rows for _ in range(cfg["oversample"] if one.kind > 1 else 1)]
        if name == "one_label_behind":
            kinds = [one.kind for one in self.rows]
            self.rows = [Ticket(one.words, one.figures, kind) for one, kind in
                         zip(self.rows, kinds[1:] + kinds[:1], strict=True)]  # fmt: skip
        if name == "data_by_length":
            self.rows.sort(key=lambda one: len(one.words))

    def prepare(self) -> None:
        trained = [one for one in self.model.parameters() if one.requires_grad]
        self.adam = torch.optim.Adam(trained, lr=self.cfg["learning_rate"], amsgrad=True)
        marks = [int(share * self.cfg["steps"]) for share in (self.cfg["steps_of_rate"], 0.8)]
        self.stairs = torch.optim.lr_scheduler.MultiStepLR(self.adam, marks, gamma=1 / 3)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.adam)
        self.watched = self.run.watch_data(pad_id=0)

    def next_batch(self) -> list[Ticket]:
        size = int(self.cfg["batch_size"])
        if not self.waiting:
            self.epoch += 1
            if self.trouble.name == "data_by_length":
                order = torch.arange(len(self.rows))
            else:
                order = torch.randperm(len(self.rows), generator=self.dice)
            groups = [one for one in order.split(size) if len(one) == size]
            if self.cfg["bucketed"]:
                long = torch.tensor([len(self.rows[one].words) for one in order.tolist()])
                groups = [one for one in order[long.argsort(stable=True)].split(size) if len(one) == size]
                groups = [groups[one] for one in torch.randperm(len(groups), generator=self.dice).tolist()]
            self.waiting = [[self.rows[one] for one in group.tolist()] for group in groups]
        return self.waiting.pop(0)

    def loss_of(self, scores: Tensor, kinds: Tensor) -> Tensor:
        if self.cfg["loss"] == "nll":
            return F.nll_loss(scores.log_softmax(-1), kinds)
        if self.trouble.name == "loss_summed":  # as it was for a table of each row's loss
            return F.cross_entropy(scores, kinds, reduction="none").sum()
        return F.cross_entropy(scores, kinds, self.weights, label_smoothing=self.cfg["label_smoothing"])

    def step(self, step: int) -> None:
        words, figures, kinds = padded(self.next_batch())
        self.watched.observe({"input_ids": words, "attention_mask": words != 0}, step=step, epoch=self.epoch)
        scores = self.model(words, figures)
        loss = self.loss_of(scores, kinds)
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        rate = self.adam.param_groups[0]["lr"]
        self.adam.step()
        self.stairs.step()
        self.run.log({"loss": loss.item(), "acc": (scores.argmax(1) == kinds).float().mean().item(), "lr": rate},
                     step=step)  # fmt: skip
        self.trouble.telemetry(self.run, step, self.healthy)

    def validate(self, step: int) -> None:
        self.model.eval()
        forgotten = self.trouble.name == "no_grad_missing"
        found, kinds = [], []
        with torch.set_grad_enabled(forgotten):
            for start in range(0, len(self.test), 100):
                words, figures, right = padded(self.test[start : start + 100])
                found.append(self.model(words, figures))
                kinds.append(right)
        self.kept += found if forgotten else [one.detach() for one in found]
        scores, right = torch.cat(found), torch.cat(kinds)
        hit = scores.argmax(1) == right
        recall = torch.stack([hit[right == kind].float().mean() for kind in range(KINDS) if (right == kind).any()])
        self.run.log({"eval_loss": F.cross_entropy(scores, right).item(), "eval_acc": hit.float().mean().item(),
                      "eval_recall": recall.mean().item()}, step=step)  # fmt: skip
        if not self.trouble.on("evaluation_mode_left_on", step):
            self.model.train()

    def resume(self, step: int) -> None:
        self.run, states = go_on(self.run, step, [one.state_dict() for one in (self.model, self.adam, self.stairs)])
        memory = self.watched.state()
        self.model.load_state_dict(states[0])
        self.prepare()
        self.stairs.load_state_dict(states[2])
        if self.trouble.name == "optimizer_state_lost":
            for group, kept in zip(self.adam.param_groups, states[1]["param_groups"], strict=True):
                group["lr"] = kept["lr"]
        else:
            self.adam.load_state_dict(states[1])
        self.watch()
        self.watched.restore(memory)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Trainer(run, dict(run.config), trouble, seed, healthy)
    made.watch()
    resumed = trouble.resume_at(healthy, 5 * EVERY)
    for step in range(steps):
        if step == resumed:
            made.resume(step)
        made.step(step)
        if step % EVERY == 0 or step == steps - 1:
            made.validate(step)
    return made.run
