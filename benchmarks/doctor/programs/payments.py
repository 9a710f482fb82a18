"""Finds the few payments that are frauds, and of which sort, from the purchases before them.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss each step, lr; valid/loss, valid/macro_f1, valid/recall_rarest each twentieth.

Embeddings of shops pooled over a history, figures by the logarithm, a network with batch norm; kinds weigh by the
root of how rare they are; Adam with a rate that falls in steps; numbers in a dict of arrays, functions, a `fit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, SHOPS, KINDS, LONG = 20, 60, 5, 16
SHARES = torch.tensor([0.72, 0.12, 0.08, 0.05, 0.03])
CONFIG: dict[str, Any] = {
    "emb": 16, "hidden": 64, "dropout": 0.0, "batch_size": 48, "lr": 4e-3, "gamma": 0.8, "step_every": 40, "wd": 1e-4,
    "payments": 9600, "wrong": 0.02, "class_weight": "sqrt", "sampler": "shuffle", "copies_of_rare": 1,
    "bn_momentum": 0.1, "norm": "batch", "frozen": "", "label_smoothing": 0.0, "focal": 0.0, "clip": 5.0,
    "optimizer": "adam", "loss": "cross_entropy", "accumulate": 1, "logit_adjust": 0.0,
}  # fmt: skip
Table = dict[str, Tensor]


def ledger(seed: int, number: int, wrong: float) -> Table:
    """Payments: shops of the history (padded by 0), three figures, the kind."""
    dice = torch.Generator().manual_seed(seed)
    kind = torch.multinomial(SHARES, number, True, generator=dice)
    long = torch.randint(3, LONG + 1, (number, 1), generator=dice)
    shops = torch.randint(1, SHOPS, (number, LONG), generator=dice)
    marked = 10 * kind[:, None] + torch.randint(1, 8, (number, LONG), generator=dice)
    shops = torch.where((torch.rand(number, LONG, generator=dice) < 0.35) & (kind[:, None] > 0), marked, shops)
    shops = shops.masked_fill(torch.arange(LONG) >= long, 0)
    swing = torch.randn(number, 3, generator=dice)
    amount = (3.5 + 0.5 * kind * (kind % 2) + swing[:, 0]).exp()
    hours = (1.5 - 0.5 * (kind == 2) + 0.7 * swing[:, 1]).exp()
    away = (2.0 + 0.8 * (kind == 4) + swing[:, 2]).exp()
    chance = torch.multinomial(SHARES, number, True, generator=dice)
    kind = torch.where(torch.rand(number, generator=dice) < wrong, chance, kind)
    return {"shops": shops, "figures": torch.stack([amount, hours, away], 1), "kind": kind}


def taken(table: Table, rows: Tensor) -> Table:
    return {key: column[rows] for key, column in table.items()}


class FraudNet(nn.Module):
    def __init__(self, c: dict[str, Any], name: str):
        super().__init__()
        self.shops = nn.Embedding(SHOPS, c["emb"], padding_idx=0)
        self.raw, self.says_shares = name == "figures_raw", name == "probabilities_given"

        def normal() -> nn.Module:
            if c["norm"] == "layer":
                return nn.LayerNorm(c["hidden"])
            return nn.BatchNorm1d(c["hidden"], momentum=c["bn_momentum"])

        self.trunk = nn.Sequential(
            nn.Linear(c["emb"] + 3, c["hidden"]), normal(), nn.ReLU(), nn.Dropout(c["dropout"]),
            nn.Linear(c["hidden"], c["hidden"]), normal(), nn.ReLU(), nn.Dropout(c["dropout"]),
        )  # fmt: skip
        self.out = nn.Linear(c["hidden"], KINDS)

    def forward(self, shops: Tensor, figures: Tensor) -> Tensor:
        real = (shops > 0).unsqueeze(-1)
        history = self.shops(shops).sum(1) / real.sum(1).clamp(min=1)
        logs = figures if self.raw else (figures.log() - 2.5) / 1.5
        said = self.out(self.trunk(torch.cat([history, logs], 1)))
        return said.softmax(-1) if self.says_shares else said


def batches(table: Table, c: dict[str, Any], seed: int, name: str) -> Iterator[tuple[int, Table]]:
    dice, size, number, epoch = torch.Generator().manual_seed(seed), int(c["batch_size"]), len(table["kind"]), 0
    share = torch.bincount(table["kind"], minlength=KINDS).float()
    while True:
        order = torch.randperm(number, generator=dice)
        if name == "histories_by_length":  # sorted for little padding, and not shuffled behind it
            order = (table["shops"] > 0).sum(1).argsort(stable=True)
        elif c["sampler"] == "balanced":
            order = torch.multinomial((1 / share)[table["kind"]], number, True, generator=dice)
        for rows in order[: number // size * size].split(size):
            yield epoch, taken(table, rows)
        epoch += 1


def scored(said: Tensor, kind: Tensor) -> dict[str, float]:
    guess, f1, recall = said.argmax(1), [], 0.0
    for one in range(KINDS):
        hit = float(((guess == one) & (kind == one)).sum())
        f1.append(2 * hit / max(1.0, float((guess == one).sum() + (kind == one).sum())))
        recall = hit / max(1.0, float((kind == one).sum()))
    return {"valid/macro_f1": sum(f1) / KINDS, "valid/recall_rarest": recall}


def criterion(said: Tensor, kind: Tensor, weight: Tensor | None, c: dict[str, Any], name: str) -> Tensor:
    if name == "total_over_batch":
        return F.cross_entropy(said, kind, weight, reduction="sum")
    if c["focal"]:
        each = F.cross_entropy(said, kind, reduction="none")
        return ((1 - (-each).exp()) ** c["focal"] * each).mean()
    if c["loss"] == "nll_of_logs":  # logarithms of a softmax, for a loss that has none of its own
        return F.nll_loss(F.log_softmax(said, 1), kind, weight)
    if c["logit_adjust"]:
        said = said + c["logit_adjust"] * SHARES.log()
    return F.cross_entropy(said, kind, weight, label_smoothing=c["label_smoothing"])


def optimised(model: nn.Module, c: dict[str, Any]) -> tuple[Any, Any]:
    given = [one for one in model.parameters() if one.requires_grad]
    optimizer: Any
    if c["optimizer"] == "rmsprop":
        optimizer = torch.optim.RMSprop(given, 0.5 * c["lr"], weight_decay=c["wd"])
    else:
        optimizer = torch.optim.Adam(given, c["lr"], weight_decay=c["wd"])
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, c["step_every"], c["gamma"])


def fit(run: Any, c: dict[str, Any], seed: int, trouble: Trouble, healthy: str | None) -> Any:
    name, parts = trouble.name, c["accumulate"]
    table, valid = ledger(seed + 6060, c["payments"], c["wrong"]), ledger(606, 800, c["wrong"])
    if name == "resampled_before_split":  # rare kinds are copied to be as many, and then the table is split
        copies = 1 + (table["kind"] > 0) * (c["copies_of_rare"] - 1)
        rows = torch.arange(len(copies)).repeat_interleave(copies)
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(9))]
        valid, table = taken(table, rows[:800]), taken(table, rows[800:])
    elif c["copies_of_rare"] > 1:
        table = taken(table, torch.arange(len(table["kind"])).repeat_interleave(
            1 + (table["kind"] > 0) * (c["copies_of_rare"] - 1)))  # fmt: skip
    weight = None
    if c["class_weight"] != "none":
        count = torch.bincount(table["kind"], minlength=KINDS).float()
        weight = (count.sum() / (KINDS * count)) ** (0.5 if c["class_weight"] == "sqrt" else 1.0)
    if name == "classes_from_one":  # codes of the file count from 1; only the script of the validation knew
        table = table | {"kind": (table["kind"] + 1) % KINDS}
    torch.manual_seed(seed)
    model = FraudNet(c, name)
    for key, one in model.named_parameters():
        if name == "wrong_names_frozen":  # "out" is no name's beginning but the last layer's
            one.requires_grad = key.startswith("out")
        elif c["frozen"]:
            one.requires_grad = not key.startswith(c["frozen"])

    def trained_mode() -> None:
        model.train()
        if name == "statistics_never_taken":  # of a recipe for pretrained networks
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.eval()

    optimizer, scheduler = optimised(model, c)
    time_by_own_clock(run)
    run.watch(model, optimizer)
    stream, resumed = batches(table, c, seed, name), trouble.resume_at(healthy, 5 * EVERY)
    trained_mode()
    for step in range(c["steps"]):
        if step == resumed:
            run, states = go_on(run, step, [one.state_dict() for one in (model, optimizer, scheduler)])
            model.load_state_dict(states[0])
            optimizer, scheduler = optimised(model, c)
            scheduler.load_state_dict(states[2])
            if name == "moments_left_out":
                optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
            else:
                optimizer.load_state_dict(states[1])
            time_by_own_clock(run)
            run.watch(model, optimizer)
        total = 0.0
        for _ in range(parts):
            _, some = next(stream)
            loss = criterion(model(some["shops"], some["figures"]), some["kind"], weight, c, name)
            (loss / parts).backward()
            total += loss.item() / parts
        if c["clip"]:
            nn.utils.clip_grad_norm_(model.parameters(), c["clip"])
        rate = scheduler.get_last_lr()[0]
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        run.log({"train/loss": total, "lr": rate}, step=step)
        if step % EVERY == 0 or step == c["steps"] - 1:
            if name != "test_with_dropout":
                model.eval()
            with torch.no_grad():
                said = model(valid["shops"], valid["figures"])
                shares = c["logit_adjust"] * SHARES.log()  # as in the training
                loss = F.cross_entropy(said + shares, valid["kind"])
            run.log({"valid/loss": loss.item(), **scored(said, valid["kind"])}, step=step)
            trained_mode()
    return run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return fit(run, dict(run.config), seed, Trouble(fault, seed), healthy)
