"""Records of lifts, events with their seconds, tell which of five troubles is coming; one in thirty is of the drive.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: tr_loss, tr_acc, tr_lr each step; va_loss, va_acc, va_macro_f1, va_rare_recall at each
      epoch's end.

A recurrent layer in both directions over packed rows, a weighted mean of its outputs, batch norm before the head;
classes weigh by the root of how rare they are; seconds are standardised; rates by epochs in steps; an average of
weights from an epoch on may be what is judged. Callbacks are called by a short engine, as in a competition's notebook.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.optim.swa_utils import AveragedModel, update_bn

EVERY, EVENTS, TROUBLES, JUDGED = 24, 14, 5, 360
SHARES = (0.60, 0.20, 0.11, 0.06, 0.03)
MOTIFS = ((1, 2), (3, 4, 3), (5, 6, 2), (7, 2, 9), (8, 9, 1))
SLOW = (1.0, 1.0, 2.2, 1.0, 1.8)
CONFIG: dict[str, Any] = {
    "emb": 16, "rnn_hidden": 24, "rnn_layers": 1, "p_drop": 0.0, "bs": 32, "accum": 1, "lr_max": 6e-3, "lr_drop": 0.4,
    "lr_drop_every": 3, "lr_kind": "steps", "wd": 1e-4, "grad_clip": 5.0, "opt": "adam", "n_records": 768,
    "class_weight": "sqrt", "rare_times": 1, "label_smooth": 0.0, "focal": 0.0, "bn_m": 0.1, "freeze": "",
    "swa_from_epoch": 0, "bucket": False, "annotators_err": 0.0, "pool": "attention", "mean_by": "weights",
    "cell": "gru",
}  # fmt: skip
Record = tuple[Tensor, Tensor, int]


def records(seed: int, number: int, err: float = 0.0) -> list[Record]:
    """Events (long,), their seconds (long,), and the trouble that followed."""
    dice, rows = np.random.default_rng(seed), []
    for _ in range(number):
        trouble = int(dice.choice(TROUBLES, p=SHARES))
        events = dice.integers(1, EVENTS, int(dice.integers(8, 28)))
        seconds = np.exp(dice.normal(1.0, 0.5, len(events)))
        for _ in range(1 + len(events) // 14):
            motif = [one if dice.random() > 0.15 else int(dice.integers(1, EVENTS)) for one in MOTIFS[trouble]]
            at = int(dice.integers(0, len(events) - len(motif) + 1))
            events[at : at + len(motif)] = motif
            seconds[at : at + len(motif)] *= SLOW[trouble]
        if dice.random() < err:
            trouble = int(dice.choice(TROUBLES, p=SHARES))
        rows.append((torch.tensor(events), torch.tensor(seconds, dtype=torch.float32), trouble))
    return rows


def collate(rows: list[Record], bug: str = "") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Events, seconds, lengths, troubles."""
    long = torch.tensor([len(row[0]) for row in rows])
    events, seconds = (pad_sequence([row[which] for row in rows], True) for which in (0, 1))
    if bug == "packed_rows_not_put_back":  # the longest first, as packing once asked for; the labels stay
        order = long.argsort(descending=True)
        events, seconds, long = events[order], seconds[order], long[order]
    return events, seconds, long, torch.tensor([row[2] for row in rows])


class LiftNet(nn.Module):
    def __init__(self, c: dict[str, Any], classes: int, bug: str):
        super().__init__()
        self.bug, self.pool, h = bug, c["pool"], c["rnn_hidden"]
        self.emb = nn.Embedding(EVENTS, c["emb"], padding_idx=0)
        cell = nn.LSTM if c["cell"] == "lstm" else nn.GRU
        self.rnn = cell(c["emb"] + 1, h, c["rnn_layers"], batch_first=True, bidirectional=True)
        self.score, self.bn = nn.Linear(2 * h, 1), nn.BatchNorm1d(2 * h, momentum=c["bn_m"])
        self.drop, self.fc = nn.Dropout(c["p_drop"]), nn.Linear(2 * h, classes)

    def forward(self, events: Tensor, seconds: Tensor, long: Tensor) -> Tensor:
        x = torch.cat([self.emb(events), seconds[..., None]], -1)
        y, _ = self.rnn(pack_padded_sequence(x, long, batch_first=True, enforce_sorted=False))
        y, _ = pad_packed_sequence(y, batch_first=True)
        there = torch.arange(y.shape[1]) < long[:, None]
        if self.pool == "max":
            x = y.masked_fill(~there[..., None], -1e4).amax(1)
        else:
            share = self.score(y)[..., 0].masked_fill(~there, -1e4).softmax(1)
            x = (share[..., None] * y).sum(1)
        x = self.bn(x)
        out = self.fc(self.drop(x))
        return F.softmax(out, -1) if self.bug == "activation_kept_for_scores" else out


def weights_of(c: dict[str, Any], rows: list[Record], bug: str) -> Tensor | None:
    """The weight of each class, one on average."""
    if c["class_weight"] == "none":
        return None
    count = torch.bincount(torch.tensor([row[2] for row in rows]), minlength=TROUBLES).float().clamp(min=1)
    weight = count.rsqrt() if c["class_weight"] == "sqrt" else 1 / count
    if bug == "weights_by_count":
        weight = count
    return weight / weight.mean()


class TrainLoss(nn.Module):
    def __init__(self, c: dict[str, Any], weight: Tensor | None, bug: str):
        super().__init__()
        self.c, self.weight, self.bug = c, weight, bug

    def forward(self, out: Tensor, y: Tensor) -> Tensor:
        c, weight = self.c, self.weight
        if c["focal"]:
            each = F.cross_entropy(out, y, reduction="none")
            return ((1 - (-each).exp()) ** c["focal"] * each).mean()
        if self.bug == "weighted_rows_totalled":
            return F.cross_entropy(out, y, weight, reduction="sum", label_smoothing=c["label_smooth"])
        if c["mean_by"] == "rows":
            each = F.cross_entropy(out, y, weight, reduction="none", label_smoothing=c["label_smooth"])
            return each.sum() / len(y)
        return F.cross_entropy(out, y, weight, label_smoothing=c["label_smooth"])


class Standard:
    """Standardises seconds."""

    def __init__(self, rows: list[Record]):
        every = torch.cat([row[1] for row in rows])
        self.mean, self.std = every.mean(), every.std()

    def apply(self, rows: list[Record]) -> list[Record]:
        return [(events, (seconds - self.mean) / self.std, y) for events, seconds, y in rows]


def splits(c: dict[str, Any], seed: int, bug: str) -> tuple[list[Record], list[Record]]:
    """Rows to train on and rows to judge by."""
    rows, judged = records(seed + 4600, c["n_records"], c["annotators_err"]), records(46, JUDGED)
    if c["rare_times"] > 1:
        rows = [row for row in rows for _ in range(c["rare_times"] if row[2] > 1 else 1)]
        if bug == "train_test_split_of_oversampled":
            order = np.random.default_rng(seed).permutation(len(rows)).tolist()
            judged, rows = [rows[at] for at in order[:JUDGED]], [rows[at] for at in order[JUDGED:]]
    scaler = Standard(rows)
    rows = scaler.apply(rows)
    if bug == "scaler_pickled_last_year":  # when seconds were hundredths of minutes
        scaler.mean, scaler.std = scaler.mean * 1.67, scaler.std * 0.4
    judged = scaler.apply(judged)
    if bug == "grouped_by_trouble":
        rows = sorted(rows, key=lambda row: row[2])
    if bug == "code_book_from_one":
        rows = [(events, seconds, y + 1) for events, seconds, y in rows]
    return rows, judged


class Engine:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.c, self.bug, self.oof = run, dict(run.config), bug, []  # type: ignore[var-annotated]
        torch.manual_seed(seed)
        self.lot, self.epoch, self.step = torch.Generator().manual_seed(seed), 0, 0
        self.rows, self.judged = splits(self.c, seed, bug)
        self.model = LiftNet(self.c, TROUBLES + (bug == "code_book_from_one"), bug)
        for name, one in self.model.named_parameters():
            if self.c["freeze"] and name.startswith(self.c["freeze"]):
                one.requires_grad = False
            if bug == "encoder_frozen_unpretrained":  # the cell of the second stage, in the first
                one.requires_grad = not name.startswith(("emb", "rnn"))
        self.averaged = AveragedModel(self.model) if self.c["swa_from_epoch"] else None
        self.criterion = TrainLoss(self.c, weights_of(self.c, self.rows, bug), bug)
        self.setup()

    def setup(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        if c["opt"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c["lr_max"], 0.9, weight_decay=c["wd"])
        elif c["opt"] == "adamax":
            self.optimizer = torch.optim.Adamax(some, c["lr_max"])
        else:
            self.optimizer = torch.optim.Adam(some, c["lr_max"], weight_decay=c["wd"])
        if c["lr_kind"] == "steps":
            self.scheduler: Any = torch.optim.lr_scheduler.StepLR(self.optimizer, c["lr_drop_every"], c["lr_drop"])
        else:
            kinds = {"flat": lambda epoch: 1.0, "cycle": lambda epoch: (1.0, 0.6, 0.3, 0.1)[epoch % 4]}
            self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, kinds[c["lr_kind"]])
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)

    def batches(self) -> list[list[Record]]:
        rows, size = self.rows, int(self.c["bs"])
        order = torch.randperm(len(rows), generator=self.lot).tolist()
        if self.bug == "grouped_by_trouble":
            order = list(range(len(rows)))
        if self.c["bucket"]:
            order.sort(key=lambda at: len(rows[at][0]))
        groups = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
        if self.c["bucket"]:
            groups = [groups[at] for at in torch.randperm(len(groups), generator=self.lot).tolist()]
        return [[rows[at] for at in some] for some in groups]

    def fit_epoch(self, steps: int, at_step: Any) -> None:
        c, parts, total, right = self.c, self.c["accum"], 0.0, 0.0
        if self.bug != "mode_set_in_notebook_cell" or self.epoch == 0:
            self.model.train()
        for at, rows in enumerate(self.batches(), 1):
            if at % parts == 1 % parts and at_step(self.step):
                self.resume()
            events, seconds, long, y = collate(rows, self.bug)
            out = self.model(events, seconds, long)
            loss = self.criterion(out, y)
            (loss if self.bug == "accum_loss_not_averaged" else loss / parts).backward()
            total += loss.item() / (1 if self.bug == "accum_loss_not_averaged" else parts)
            right += (out.argmax(1) == y).float().mean().item() / parts
            if at % parts:
                continue
            nn.utils.clip_grad_norm_(self.model.parameters(), c["grad_clip"])
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.bug == "steplr_in_both_loops" and at % 8 == 0:  # by hand each few batches, and behind the epoch
                self.scheduler.step()
            self.run.log({"tr_loss": total, "tr_acc": right, "tr_lr": rate}, step=self.step)
            self.step, total, right = self.step + 1, 0.0, 0.0
            if self.step == steps:
                break
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.epoch += 1

    def on_epoch_end(self) -> None:
        """The average moves, and what is held out is judged."""
        c, model, bug = self.c, self.model, self.bug
        if self.averaged is not None and self.epoch >= c["swa_from_epoch"]:
            if bug != "swa_never_updated":
                self.averaged.update_parameters(self.model)
                with torch.no_grad():
                    update_bn(({"rows": collate(rows)[:3]} for rows in self.batches()[:12]), _Rows(self.averaged))
            model = self.averaged.module
        if bug == "judged_in_train_mode":
            model.train()
        else:
            model.eval()
        outs = []
        with torch.set_grad_enabled(bug == "oof_scores_under_grad"):
            for at in range(0, JUDGED, 60):
                events, seconds, long, _ = collate(self.judged[at : at + 60])
                outs.append(model(events, seconds, long))
        if bug == "oof_scores_under_grad":
            self.oof += outs
        out, y = torch.cat(outs).detach(), torch.tensor([row[2] for row in self.judged])
        told = out.argmax(1)
        f1 = [2 * float(((told == k) & (y == k)).sum()) / max(1, int((told == k).sum() + (y == k).sum()))
              for k in range(TROUBLES)]  # fmt: skip
        rare = (told == y)[y == TROUBLES - 1].float().mean().item() if (y == TROUBLES - 1).any() else 0.0
        self.run.log({"va_loss": F.cross_entropy(out, y).item(), "va_acc": (told == y).float().mean().item(),
                      "va_macro_f1": sum(f1) / TROUBLES, "va_rare_recall": rare}, step=self.step - 1)  # fmt: skip

    def resume(self) -> None:
        parts = [self.model, self.optimizer, self.scheduler]
        self.run, states = go_on(self.run, self.step, [one.state_dict() for one in parts])
        if self.bug != "optimizer_made_behind_its_load":
            self.setup()
        self.model.load_state_dict(states[0])
        self.optimizer.load_state_dict(states[1])
        if self.bug == "optimizer_made_behind_its_load":
            self.setup()
        self.scheduler.load_state_dict(states[2])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]


class _Rows(nn.Module):
    """The average as `update_bn` calls it: with one argument."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, rows: Any) -> Tensor:
        return self.model(*rows["rows"])


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, again = Engine(run, seed, trouble.name), trouble.resume_at(healthy, 4 * EVERY)

    def at_step(step: int) -> bool:
        trouble.telemetry(made.run, step, healthy)
        return step == again

    while made.step < steps:
        made.fit_epoch(steps, at_step)
        made.on_epoch_end()
    return made.run
