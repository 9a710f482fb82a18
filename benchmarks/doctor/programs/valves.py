"""A recurrent network tells from what sensors say of a valve which of five states it is in; the gravest are rare.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: batch/loss, batch/lr each step; test/loss, test/acc, test/macro_f1 at each epoch's end.

Recordings of different length, padded; a bidirectional layer, the last true step read; weights by state; Adam, a rate
that falls by epochs; plain functions over one dictionary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, STATES, SENSORS, MOST, TEST = 32, 5, 4, 36, 400
CONFIG: dict[str, Any] = {
    "hidden_units": 40, "num_layers": 1, "dropout": 0.0, "batchsize": 32, "accumulate": 1, "lr": 4e-3,
    "lr_gamma": 0.6, "weight_decay": 1e-4, "optimizer": "adam", "clip": 5.0, "recordings": 1024, "oversample": 1,
    "balance": "weights", "smoothing": 0.0, "focal": 0.0, "freeze": "", "reduction": "mean", "wrong_states": 0.0,
    "jitter": 0.0,
}  # fmt: skip
SHARES = (0.48, 0.25, 0.15, 0.08, 0.04)


def record(seed: int, number: int, wrong: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Values (number, MOST, SENSORS) in units of their own, how many steps are true, and states."""
    dice = torch.Generator().manual_seed(seed)
    state = torch.multinomial(torch.tensor(SHARES), number, True, generator=dice)
    long = torch.randint(16, MOST + 1, (number,), generator=dice)
    at, some = torch.arange(MOST)[None, :], torch.rand(number, 4, generator=dice)
    s, phase = state[:, None], 6.28 * some[:, :1]
    open_ = torch.cos(0.35 * at * (1 + 0.25 * (s % 3)) + phase)
    drift = (0.05 * (s == 2) - 0.05 * (s == 4)) * at
    ticks = (torch.rand(number, MOST, generator=dice) < 0.06 + 0.14 * (s >= 3)).float()
    parts = [open_ + drift, ticks * (1 + some[:, 1:2]), torch.where(s == 1, -open_, open_).roll(2, 1),
             drift + 0.3 * ticks]  # fmt: skip
    x = torch.stack(parts, 2) + 0.9 * torch.randn(number, MOST, SENSORS, generator=dice)
    x = x * torch.tensor([2.0, 30.0, 0.5, 8.0]) + torch.tensor([60.0, 10.0, 1.0, -4.0])
    x = x * (at < long[:, None])[..., None]
    chance = torch.randint(0, STATES, (number,), generator=dice)
    return x, long, torch.where(torch.rand(number, generator=dice) < wrong, chance, state)


class ValveRNN(nn.Module):
    def __init__(self, c: dict[str, Any], states: int, bug: str):
        super().__init__()
        h, self.bug = c["hidden_units"], bug
        self.inputs = nn.Sequential(nn.Linear(SENSORS, h), nn.ReLU())
        self.rnn = nn.GRU(h, h, c["num_layers"], batch_first=True)
        self.head = nn.Sequential(nn.Dropout(c["dropout"]), nn.Linear(h, h), nn.ReLU(), nn.Dropout(c["dropout"]),
                                  nn.Linear(h, states))  # fmt: skip

    def forward(self, x: Tensor, long: Tensor) -> Tensor:
        out, _ = self.rnn(self.inputs(x))
        last = out[:, -1] if self.bug == "last_step_of_padded" else out[torch.arange(len(x)), long - 1]
        y = self.head(last)
        return y.softmax(1) if self.bug == "softmax_as_last_layer" else y


def prepare(c: dict[str, Any], seed: int, bug: str) -> tuple[list[Tensor], list[Tensor]]:
    """Both sets: values as deviations from what is usual, lengths, states."""
    rows, test = list(record(seed + 2600, c["recordings"], c["wrong_states"])), list(record(26, TEST))
    if c["oversample"] > 1:  # of states that are not the usual one, recordings are there several times
        dice = torch.Generator().manual_seed(seed + 2)
        often = torch.where(rows[2] > 0, c["oversample"], 1)
        rows = [one.repeat_interleave(often, 0) for one in rows]
        order = torch.randperm(len(rows[2]), generator=dice)
        rows = [one[order] for one in rows]
        if bug == "rare_copied_before_split":
            rows, test = [one[TEST:] for one in rows], [one[:TEST] for one in rows]
    if bug == "loader_in_class_order":
        order = rows[2].argsort(stable=True)
        rows = [one[order] for one in rows]
    true = torch.arange(MOST)[None, :] < rows[1][:, None]
    mean, std = rows[0][true].mean(0), rows[0][true].std(0)
    scaled = []
    for x, long, state in (rows, test):
        true = (torch.arange(MOST)[None, :] < long[:, None])[..., None]
        scaled.append([(x - mean) / std * true, long, state])
        if bug == "val_scaled_by_old_figures":  # of last year's plant, where pressure and flow were others
            mean, std = mean + 1.2 * std, std * torch.tensor([0.5, 0.6, 1.5, 0.5])
    scaled[0][2] = scaled[0][2] + (bug == "csv_classes_from_one")
    return scaled[0], scaled[1]


def configure(c: dict[str, Any], model: nn.Module) -> tuple[Any, Any]:
    some = [one for one in model.parameters() if one.requires_grad]
    if c["optimizer"] == "sgd":
        optimizer: Any = torch.optim.SGD(some, c["lr"], 0.9)
    else:
        kind = torch.optim.RMSprop if c["optimizer"] == "rmsprop" else torch.optim.Adam
        optimizer = kind(some, c["lr"], weight_decay=c["weight_decay"])
    return optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, c["lr_gamma"])


def weights(c: dict[str, Any], state: Tensor, states: int, bug: str) -> Tensor:
    if c["balance"] != "weights":
        return torch.ones(states)
    count = torch.bincount(state, minlength=states)
    made = (len(state) / (STATES * count.clamp(min=1))).clamp(max=6.0)
    return made.flip(0) if bug == "weights_in_other_order" else made


def criterion(c: dict[str, Any], out: Tensor, state: Tensor, weight: Tensor, bug: str) -> Tensor:
    if bug == "loss_left_as_sum":
        return F.cross_entropy(out, state, weight, reduction="sum")
    if c["reduction"] == "sum":
        return F.cross_entropy(out, state, weight, reduction="sum") / weight[state].sum()
    if c["focal"]:
        sure = out.softmax(1).gather(1, state[:, None])[:, 0]
        return ((1 - sure) ** c["focal"] * F.cross_entropy(out, state, weight, reduction="none")).mean()
    return F.cross_entropy(out, state, weight, label_smoothing=c["smoothing"])


def macro_f1(guess: Tensor, state: Tensor) -> float:
    found = []
    for one in range(STATES):
        both = ((guess == one) & (state == one)).sum()
        found.append(2 * both / ((guess == one).sum() + (state == one).sum()).clamp(min=1))
    return float(torch.stack(found).mean())


def examine(model: nn.Module, test: list[Tensor], weight: Tensor, bug: str) -> tuple[Tensor, dict[str, float]]:
    if bug != "eval_never_called":
        model.eval()
    x, long, state = test
    with torch.set_grad_enabled(bug == "eval_without_no_grad"):
        out = model(x, long)
        loss = F.cross_entropy(out, state, weight)
    guess = out.argmax(1)
    return out, {"test/loss": loss.item(), "test/acc": (guess == state).float().mean().item(),
                 "test/macro_f1": macro_f1(guess, state)}  # fmt: skip


def epoch_of(c: dict[str, Any], state: Tensor, lot: torch.Generator, bug: str) -> list[Tensor]:
    order = torch.randperm(len(state), generator=lot)
    if bug == "loader_in_class_order":
        order = torch.arange(len(state))
    if c["balance"] == "sampler":
        chance = 1 / torch.bincount(state)[state]
        order = torch.multinomial(chance, len(state), True, generator=lot)
    return list(order.split(int(c["batchsize"])))[: len(state) // int(c["batchsize"])]


def resume_from(run: Any, step: int, c: dict[str, Any], parts: list[Any]) -> tuple[Any, Any, Any]:
    run, states = go_on(run, step, [one.state_dict() for one in parts])
    model = parts[0]
    model.load_state_dict(states[0])
    optimizer, scheduler = configure(c, model)
    scheduler.load_state_dict(states[2])
    optimizer.load_state_dict(states[1])
    optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
    time_by_own_clock(run)
    run.watch(model, optimizer)
    return run, optimizer, scheduler


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    c, trouble, step, kept = dict(run.config), Trouble(fault, seed), 0, []
    bug, parts = trouble.name, c["accumulate"]
    torch.manual_seed(seed)
    (x, long, state), test = prepare(c, seed, bug)
    states = STATES + (bug == "csv_classes_from_one")
    model, weight = ValveRNN(c, states, bug), weights(c, state, states, bug)
    if c["freeze"]:
        model.get_submodule(c["freeze"]).requires_grad_(False)
    if bug == "body_frozen_by_name":  # a line for fine-tuning on a new plant
        for name, one in model.named_parameters():
            one.requires_grad = "head" in name
    optimizer, scheduler = configure(c, model)
    time_by_own_clock(run)
    run.watch(model, optimizer)
    resumed, lot = trouble.resume_at(healthy, 3 * EVERY), torch.Generator().manual_seed(seed)
    while step < steps:
        model.train()
        batches = epoch_of(c, state, lot, bug)
        for first in range(0, len(batches) - parts + 1, parts):
            if step == resumed:
                run, optimizer, scheduler = resume_from(run, step, c, [model, optimizer, scheduler])
            total = 0.0
            for some in batches[first : first + parts]:
                seen = x[some] + c["jitter"] * torch.randn(len(some), 1, SENSORS) if c["jitter"] else x[some]
                loss = criterion(c, model(seen, long[some]), state[some], weight, bug)
                if bug != "accumulated_without_dividing":
                    loss = loss / parts
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(model.parameters(), c["clip"])
            optimizer.step()
            optimizer.zero_grad()
            run.log({"batch/loss": total, "batch/lr": optimizer.param_groups[0]["lr"]}, step=step)
            if bug == "epoch_scheduler_in_batch_loop":
                scheduler.step()
            trouble.telemetry(run, step, healthy)
            step += 1
            if step == steps:
                break
        if bug != "epoch_scheduler_in_batch_loop":
            scheduler.step()
        out, figures = examine(model, test, weight[:STATES] if states == STATES else weight, bug)
        if bug == "eval_without_no_grad":
            kept.append(out)
        run.log(figures, step=step - 1)
    return run
