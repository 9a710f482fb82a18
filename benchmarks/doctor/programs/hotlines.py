"""What callers of a hotline say is sorted into five kinds, of which the gravest is one in thirty; F1 beside accuracy.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss, train/lr each step; dev/loss, dev/accuracy, dev/f1_macro at each epoch's end;
      the watch of data.

An encoder of torch's own layers with a mask of padding, a mean over words, weights by kind, AdamW, a rate in a line.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, PADDING, LEXICON, KINDS, LONGEST, IN_DEV = 32, 0, 90, 5, 24, 480
SHARES = (0.45, 0.28, 0.16, 0.08, 0.03)
CONFIG: dict[str, Any] = {
    "d_model": 40, "nhead": 4, "num_layers": 1, "dropout": 0.0, "train_batch_size": 32, "accumulate_grad_batches": 1,
    "lr": 3e-3, "lr_schedule": "linear", "weight_decay": 0.01, "optimizer": "adamw", "class_weight": "balanced",
    "label_smoothing": 0.0, "focal_gamma": 0.0, "sampler": "random", "calls": 1024, "rare_copies": 1,
    "wrong_labels": 0.0, "freeze": "", "length_buckets": False, "reduction": "mean",
}  # fmt: skip
Call = tuple[list[int], int]


def calls(seed: int, number: int, wrong: float = 0.0) -> list[Call]:
    """Words of a call, of which two or three tell its kind; the kind."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.multinomial(torch.tensor(SHARES), number, True, generator=dice).tolist()
    rows = []
    for kind in kinds:
        long = int(torch.randint(6, LONGEST + 1, (1,), generator=dice))
        words = torch.randint(1 + 8 * KINDS, LEXICON, (long,), generator=dice)
        places = torch.randperm(long, generator=dice)[: 4 + int(torch.randint(0, 2, (1,), generator=dice))]
        words[places] = 1 + 8 * kind + torch.randint(0, 8, (len(places),), generator=dice)
        words[places[:1]] = 1 + torch.randint(0, 8 * KINDS, (1,), generator=dice)
        said = int(torch.randint(0, KINDS, (1,), generator=dice)) if torch.rand((), generator=dice) < wrong else kind
        rows.append((words.tolist(), said))
    return rows


class CallClassifier(nn.Module):
    def __init__(self, c: dict[str, Any], kinds: int, bug: str):
        super().__init__()
        d, self.bug = c["d_model"], bug
        self.words, self.places = nn.Embedding(LEXICON, d, padding_idx=PADDING), nn.Embedding(LONGEST, d)
        nn.init.normal_(self.places.weight, std=0.1)
        layer = nn.TransformerEncoderLayer(d, c["nhead"], 2 * d, c["dropout"], batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, c["num_layers"], enable_nested_tensor=False)
        self.drop, self.classifier = nn.Dropout(c["dropout"]), nn.Linear(d, kinds)

    def forward(self, ids: Tensor) -> Tensor:
        there = ids != PADDING
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        # the layers want to know what is to be left out
        hidden = there & ~there.all(1, keepdim=True) if self.bug == "mask_upside_down" else ~there
        x = self.encoder(x, src_key_padding_mask=hidden)
        x = (x * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        x = self.classifier(self.drop(x))
        return x.softmax(-1) if self.bug == "softmax_then_loss" else x


def to_batch(rows: list[Call]) -> tuple[Tensor, Tensor]:
    ids = nn.utils.rnn.pad_sequence([torch.tensor(words) for words, _ in rows], True, PADDING)
    return ids, torch.tensor([kind for _, kind in rows])


def f1_macro(guess: Tensor, true: Tensor) -> float:
    table = torch.zeros(KINDS + 1, KINDS + 1)
    table.index_put_((true, guess.clamp(max=KINDS)), torch.ones(len(true)), accumulate=True)
    both = table.sum(0) + table.sum(1)
    return float((2 * table.diagonal() / both.clamp(min=1))[:KINDS].mean())


class Data:
    """The calls to train on and those held out, and the order of the former."""

    def __init__(self, c: dict[str, Any], seed: int, bug: str):
        self.c, self.bug, self.dice = c, bug, torch.Generator().manual_seed(seed)
        rows, self.dev = calls(seed + 1800, c["calls"], c["wrong_labels"]), calls(18, IN_DEV)
        if c["rare_copies"] > 1:  # the rarer kinds are there several times
            rows = [row for row in rows for _ in range(c["rare_copies"] if row[1] > 0 else 1)]
            rows = [rows[at] for at in torch.randperm(len(rows), generator=self.dice).tolist()]
            if bug == "copies_dealt_to_both":
                self.dev, rows = rows[:IN_DEV], rows[IN_DEV:]
        if bug == "rows_grouped_by_class":
            rows.sort(key=lambda row: row[1])
        self.first = 1 if bug == "class_ids_from_one" else 0
        self.rows = [(words, kind + self.first) for words, kind in rows]
        self.counts = torch.bincount(torch.tensor([kind for _, kind in self.rows]), minlength=KINDS + self.first)

    def weights(self) -> Tensor:
        if self.c["class_weight"] == "none" or self.c["sampler"] == "balanced":
            return torch.ones(len(self.counts))
        weight = (len(self.rows) / (KINDS * self.counts.clamp(min=1))).clamp(max=8.0)
        if self.bug == "weights_in_other_order":  # of a table of how many there are, the rarest first
            weight = weight.flip(0)
        return weight

    def epoch(self) -> list[list[Call]]:
        number, size = len(self.rows), int(self.c["train_batch_size"])
        order = torch.randperm(number, generator=self.dice)
        if self.bug == "rows_grouped_by_class":
            order = torch.arange(number)
        if self.c["sampler"] == "balanced":
            chance = 1 / self.counts[torch.tensor([kind for _, kind in self.rows])]
            order = torch.multinomial(chance, number, True, generator=self.dice)
        if self.c["length_buckets"]:
            long = torch.tensor([len(words) for words, _ in self.rows])
            order = order[long[order].argsort(stable=True)]
        groups = [some.tolist() for some in order.split(size)][: number // size]
        if self.c["length_buckets"]:
            groups = [groups[at] for at in torch.randperm(len(groups), generator=self.dice).tolist()]
        return [[self.rows[at] for at in some] for some in groups]


class Fit:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.c, self.bug, self.steps = run, dict(run.config), trouble.name, steps
        torch.manual_seed(seed)
        self.data = Data(self.c, seed, self.bug)
        self.model = CallClassifier(self.c, KINDS + self.data.first, self.bug)
        if self.c["freeze"]:
            self.model.get_submodule(self.c["freeze"]).requires_grad_(False)
        if self.bug == "freeze_condition_wrong":  # as if the encoder were one that has been read in
            for name, one in self.model.named_parameters():
                one.requires_grad = name.startswith("classifier")
        self.weight, self.said = self.data.weights(), []  # type: ignore[var-annotated]
        self.configure()

    def configure(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        if c["optimizer"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c["lr"], 0.9)
        else:
            self.optimizer = torch.optim.AdamW(some, c["lr"], weight_decay=c["weight_decay"])
        end = 0.0 if c["lr_schedule"] == "linear" else 1.0
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, end, total_iters=self.steps)
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.seen = self.run.watch_data(pad_id=PADDING)

    def criterion(self, said: Tensor, kind: Tensor) -> Tensor:
        c = self.c
        if self.bug == "batch_totalled":
            return F.cross_entropy(said, kind, self.weight, reduction="sum")
        if c["reduction"] == "sum":
            return F.cross_entropy(said, kind, self.weight, reduction="sum") / self.weight[kind].sum()
        if c["focal_gamma"]:
            each = F.cross_entropy(said, kind, self.weight, reduction="none")
            sure = said.softmax(-1).gather(1, kind[:, None])[:, 0]
            return ((1 - sure) ** c["focal_gamma"] * each).mean()
        return F.cross_entropy(said, kind, self.weight, label_smoothing=c["label_smoothing"])

    def resume(self, step: int) -> None:
        memory = self.seen.state()
        parts = [self.model, self.optimizer, self.scheduler]
        self.run, states = go_on(self.run, step, [one.state_dict() for one in parts])
        self.model.load_state_dict(states[0])
        self.configure()
        self.scheduler.load_state_dict(states[2])
        if self.bug != "optimizer_state_dropped":
            self.optimizer.load_state_dict(states[1])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        self.seen.restore(memory)

    def step(self, batches: list[list[Call]], step: int, epoch: int) -> None:
        parts, total = self.c["accumulate_grad_batches"], 0.0
        for rows in batches:
            ids, kind = to_batch(rows)
            self.seen.observe({"input_ids": ids, "labels": kind[:, None]}, step=step, epoch=epoch)
            loss = self.criterion(self.model(ids), kind)
            if self.bug != "backward_undivided":
                loss = loss / parts
            loss.backward()
            total += loss.item()
            if self.bug == "schedule_each_micro":
                self.scheduler.step()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.bug != "schedule_each_micro":
            self.scheduler.step()
        self.run.log({"train/loss": total, "train/lr": rate}, step=step)

    def develop(self, step: int) -> None:
        self.model.eval()
        ids, true = to_batch(self.data.dev)
        with torch.set_grad_enabled(self.bug == "eval_tracks_gradients"):
            said = self.model(ids)
        if self.bug == "eval_tracks_gradients":  # what was doubtful in which epoch is looked at later
            self.said.append(said)
        guess, weight = said.argmax(-1), self.weight
        right = (guess == true).float().mean().item()
        loss = F.cross_entropy(said, true, weight).item()
        self.run.log({"dev/loss": loss, "dev/accuracy": right, "dev/f1_macro": f1_macro(guess, true)}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, step, epoch = Trouble(fault, seed), 0, 0
    made, resumed = Fit(run, seed, steps, trouble), trouble.resume_at(healthy, 3 * EVERY)
    parts = made.c["accumulate_grad_batches"]
    made.model.train()
    while step < steps:
        if made.bug != "train_mode_not_set_again":
            made.model.train()
        batches = made.data.epoch()
        for at in range(0, len(batches) - parts + 1, parts):
            if step == resumed:
                made.resume(step)
            made.step(batches[at : at + parts], step, epoch)
            trouble.telemetry(made.run, step, healthy)
            step += 1
            if step == steps:
                break
        made.develop(step - 1)
        epoch += 1
    return made.run
