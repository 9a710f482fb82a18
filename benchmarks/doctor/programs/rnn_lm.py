"""A recurrent language model: two LSTM layers read a text in pieces, with plain SGD and a rate that is quartered
when two evaluations in a row get no better, as word models were trained before attention.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` at each fifth step: the mean loss since the last row, perplexity, the rate.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .moe_gpt import LETTERS, write_text

EVERY, ROW = 20, 5
CONFIG: dict[str, Any] = {
    "width": 64, "layers": 2, "piece": 20, "batch_size": 24, "dropout": 0.1, "learning_rate": 5.0, "clip": 0.5,
    "anneal": 4.0, "words": 12000, "weight_decay": 0.0,
}  # fmt: skip
State = tuple[Tensor, Tensor]


class Reader(nn.Module):
    """Letters (time, rows) to the chances of the next ones."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["width"]
        self.embedding, self.drop = nn.Embedding(LETTERS, width), nn.Dropout(config["dropout"])
        self.lstm = nn.LSTM(width, width, config["layers"], dropout=config["dropout"])
        self.decoder = nn.Linear(width, LETTERS)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, letters: Tensor, state: State | None) -> tuple[Tensor, State]:
        out, state = self.lstm(self.drop(self.embedding(letters)), state)
        return self.decoder(self.drop(out)), state


def columns(letters: Tensor, rows: int, by_rows: bool) -> Tensor:
    """The text in so many columns, (time, rows). by_rows: transposed, by mistake: it is then read across."""
    length = len(letters) // rows
    if by_rows:
        return letters[: length * rows].view(length, rows)
    return letters[: length * rows].view(rows, length).T.contiguous()


class Training:
    def __init__(self, run: Any, config: dict[str, Any], seed: int, trouble: Trouble, healthy: str | None):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble, self.healthy = run, config, trouble, healthy
        self.model = Reader(config)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["learning_rate"])
        across = trouble.name == "text_read_across"
        self.text = columns(write_text(seed + 71, config["words"]), config["batch_size"], across)
        self.test = columns(write_text(727, 1500), 16, across)
        self.rate, self.best, self.place, self.epoch, self.state = config["learning_rate"], math.inf, 0, 0, None
        self.seen: list[Tensor] = []
        self.worse = 0

    def piece(self) -> tuple[Tensor, Tensor]:
        if self.place + self.config["piece"] + 1 > len(self.text):
            self.place, self.epoch, self.state = 0, self.epoch + 1, None
        rows = self.text[self.place : self.place + self.config["piece"] + 1]
        self.place += self.config["piece"]
        return rows[:-1], rows[1:]

    def one(self, step: int) -> None:
        trouble, model = self.trouble, self.model
        rate = trouble.rate(step, self.rate)
        self.optimizer.param_groups[0]["lr"] = rate
        letters, following = trouble.batch(step, *self.piece(), LETTERS)
        state = None if self.healthy == "state_forgotten" or self.state is None else self.state
        logits, state = model(letters, state)
        self.state = (state[0].detach(), state[1].detach())
        loss = trouble.loss(step, functional.cross_entropy(logits.flatten(0, 1), following.flatten()))
        if trouble.clears(step):
            self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), self.config["clip"] or math.inf)
        self.optimizer.step()
        self.seen.append(loss.detach())
        if step % ROW == ROW - 1 or step == 0:
            mean, self.seen = float(torch.stack(self.seen).mean()), []
            self.run.log({"train/loss": mean, "train/ppl": math.exp(min(mean, 60)), "lr": rate, "grad_norm": norm,
                          "epoch": self.epoch}, step=step)  # fmt: skip

    def evaluate(self, step: int) -> None:
        self.model.eval()
        losses, state = [], None
        with torch.no_grad():
            for place in range(0, len(self.test) - 21, 20):
                logits, state = self.model(self.test[place : place + 20], state)
                losses.append(
                    functional.cross_entropy(logits.flatten(0, 1), self.test[place + 1 : place + 21].flatten())
                )
        self.model.train()
        loss = float(torch.stack(losses).mean())
        self.run.log({"valid/loss": loss, "valid/ppl": math.exp(min(loss, 60))}, step=step)
        better = loss > self.best if self.trouble.name == "annealed_when_better" else loss < self.best
        self.worse = 0 if better or not math.isfinite(self.best) else self.worse + 1
        if self.worse == 2 and math.isfinite(loss):
            self.rate, self.worse = self.rate / self.config["anneal"], 0
        self.best = min(self.best, loss)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Training(run, dict(run.config), seed, trouble, healthy)
    trouble.spoil_model(made.model)
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    for step in range(steps):
        trouble.freeze(step, made.model.lstm)
        made.one(step)
        if step % EVERY == 0 or step == steps - 1:
            made.evaluate(step)
    return run
