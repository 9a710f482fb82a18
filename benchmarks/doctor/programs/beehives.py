"""A network of convolutions tells from what four sensors say of a beehive which of five states it is in.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: fit/loss, fit/lr each step; check/loss, check/accuracy, check/recall_of_each at each
      epoch's end, the last the mean over states.

Swarming and loss of the queen are rare: states have weights, or are drawn evenly. Batch norm, Adam, a rate that falls
by epochs; a class in the manner of estimators, with `fit` and `check`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

EVERY, STATES, CHANNELS, LONG, CHECKED = 32, 5, 4, 48, 400
SHARES = (0.5, 0.24, 0.14, 0.08, 0.04)
CONFIG: dict[str, Any] = {
    "filters": 20, "kernel": 5, "dropout": 0.0, "batch_size": 32, "accumulate_batches": 1, "learning_rate": 3e-3,
    "schedule": "cosine", "weight_decay": 1e-4, "solver": "adam", "hours": 1024, "copies_of_rare": 1,
    "imbalance": "weights", "smoothing": 0.0, "gamma": 0.0, "fixed": "", "bn_momentum": 0.1, "loss_reduction": "mean",
    "mislabelled": 0.0, "stretch": 0.0, "wind": 1.0, "norm": "batch",
}  # fmt: skip


def listen(seed: int, number: int, wind: float = 1.0, wrong: float = 0.0) -> tuple[Tensor, Tensor]:
    """Values (number, CHANNELS, LONG) in units of their own, and states. wrong: the share of states of chance."""
    dice = torch.Generator().manual_seed(seed)
    state = torch.multinomial(torch.tensor(SHARES), number, True, generator=dice)
    at, some = torch.arange(LONG)[None, :], torch.rand(number, 4, 1, generator=dice)
    s = state[:, None]
    pitch = torch.tensor([0.5, 0.62, 0.5, 0.8, 0.62])[state][:, None] * (0.95 + 0.1 * some[:, 0])
    hum = torch.sin(pitch * at + 6.28 * some[:, 1]) * (0.7 + 0.6 * some[:, 2])
    piping = torch.where((at % 12 < 4) & (s >= 3), torch.sin(1.9 * at), 0.0) * 1.2
    warmth = 0.6 * torch.sin(0.13 * at + 6.28 * some[:, 3]) - 0.9 * (s == 2) - 0.02 * at * (s == 4)
    weight = 0.015 * at * (s == 1) - 0.9 * torch.sigmoid((at - 30 * some[:, 1] - 8) * 2.0) * (s == 3)
    x = torch.stack([hum + piping, warmth, weight.expand_as(hum), hum.roll(3, 1) * 0.6 - 0.5 * piping], 1)
    x = x + 1.5 * wind * torch.randn(number, CHANNELS, LONG, generator=dice)
    x = x * torch.tensor([[40.0], [3.0], [2.5], [0.2]]) + torch.tensor([[300.0], [34.0], [42.0], [1.0]])
    chance = torch.randint(0, STATES, (number,), generator=dice)
    return x, torch.where(torch.rand(number, generator=dice) < wrong, chance, state)


class Conv(nn.Module):
    def __init__(self, c: dict[str, Any], inside: int, outside: int):
        super().__init__()
        self.conv = nn.Conv1d(inside, outside, c["kernel"], padding=c["kernel"] // 2, bias=False)
        norm = nn.GroupNorm(4, outside) if c["norm"] == "group" else nn.BatchNorm1d(outside, momentum=c["bn_momentum"])
        self.norm, self.drop = norm, nn.Dropout(c["dropout"])

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(F.relu(self.norm(self.conv(x))))


class HiveNet(nn.Module):
    def __init__(self, c: dict[str, Any], states: int, bug: str):
        super().__init__()
        w, self.bug = c["filters"], bug
        self.first, self.second, self.third = Conv(c, CHANNELS, w), Conv(c, w, 2 * w), Conv(c, 2 * w, 2 * w)
        self.dense, self.logits = nn.Linear(4 * w, 32), nn.Linear(32, states)

    def forward(self, x: Tensor) -> Tensor:
        x = self.third(F.max_pool1d(self.second(F.max_pool1d(self.first(x), 2)), 2))
        x = self.logits(F.relu(self.dense(torch.cat([x.mean(2), x.amax(2)], 1))))
        return x.softmax(-1) if self.bug == "softmax_in_head" else x


def load(c: dict[str, Any], seed: int, bug: str) -> tuple[TensorDataset, TensorDataset]:
    """Both sets, each channel in deviations from its mean."""
    x, y = listen(seed + 4400, c["hours"], c["wind"], c["mislabelled"])
    check, check_y = listen(44, CHECKED, c["wind"])
    if c["copies_of_rare"] > 1:
        dice = torch.Generator().manual_seed(seed + 7)
        x, y = (one.repeat_interleave(torch.where(y > 0, c["copies_of_rare"], 1), 0) for one in (x, y))
        order = torch.randperm(len(y), generator=dice)
        x, y = x[order], y[order]
        if bug == "oversampled_ahead_of_split":
            check, check_y, x, y = x[:CHECKED], y[:CHECKED], x[CHECKED:], y[CHECKED:]
    if bug == "folders_read_in_turn":
        order = y.argsort(stable=True)
        x, y = x[order], y[order]
    mean, std = x.mean((0, 2), True), x.std((0, 2), keepdim=True)
    x = (x - mean) / std
    if bug == "held_out_scaled_by_old_set":  # of the hives at the other end of the valley
        mean, std = (
            mean + std * torch.tensor([[0.8], [-1.0], [1.5], [0.0]]),
            std * torch.tensor([[0.6], [2], [1], [0.5]]),
        )
    return TensorDataset(x, y + (bug == "label_file_one_based")), TensorDataset((check - mean) / std, check_y)


class HiveListener:
    """What an estimator is: its settings, `fit`, `check`."""

    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.c, self.bug, self.seed = run, dict(run.config), trouble.name, seed
        self.outs: list[Any] = []
        self.train_set, self.check_set = load(self.c, seed, self.bug)
        state = self.train_set.tensors[1]
        states = STATES + (self.bug == "label_file_one_based")
        self.net = HiveNet(self.c, states, self.bug)
        for name, one in self.net.named_parameters():
            one.requires_grad = not self.c["fixed"] or not name.startswith(self.c["fixed"])
            if self.bug == "trainable_by_wrong_name":  # `fc` is what the last layer is called elsewhere
                one.requires_grad = "norm" in name or "bias" in name
        count = torch.bincount(state, minlength=states).clamp(min=1)
        weight = (len(state) / (STATES * count)).clamp(max=6.0)
        if self.bug == "weights_in_other_order":  # the file lists states from the rarest on
            weight = weight.flip(0)
        both = self.c["imbalance"] == "weights" or self.bug == "balanced_twice"
        self.weight = weight if both else torch.ones(states)
        self.lot = torch.Generator().manual_seed(seed)
        rows: Any = RandomSampler(self.train_set, generator=self.lot)
        if self.c["imbalance"] == "sampler":
            rows = WeightedRandomSampler((1 / count)[state].tolist(), len(state), generator=self.lot)
        if self.bug == "folders_read_in_turn":
            rows = None
        self.loader = DataLoader(self.train_set, self.c["batch_size"], sampler=rows, drop_last=True)
        self.compile()

    def compile(self) -> None:
        c, some = self.c, [one for one in self.net.parameters() if one.requires_grad]
        if c["solver"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c["learning_rate"], 0.9)
        else:
            kind = torch.optim.NAdam if c["solver"] == "nadam" else torch.optim.Adam
            self.optimizer = kind(some, c["learning_rate"], weight_decay=c["weight_decay"])
        epochs = max(1, -(-c["steps"] * c["accumulate_batches"] // max(1, len(self.loader))))
        self.scheduler: Any = torch.optim.lr_scheduler.ConstantLR(self.optimizer, 1.0)
        if c["schedule"] == "cosine":
            self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, epochs)
        if c["schedule"] == "halving":
            self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)

    def loss(self, out: Tensor, state: Tensor) -> Tensor:
        c = self.c
        if self.bug == "weighted_losses_summed":
            return F.cross_entropy(out, state, self.weight, reduction="sum")
        if c["loss_reduction"] == "sum":
            return F.cross_entropy(out, state, self.weight, reduction="sum") / self.weight[state].sum()
        if c["gamma"]:
            each = F.cross_entropy(out, state, self.weight, reduction="none")
            return ((1 - out.softmax(1).gather(1, state[:, None])[:, 0]) ** c["gamma"] * each).mean()
        return F.cross_entropy(out, state, self.weight, label_smoothing=c["smoothing"])

    def batch(self, x: Tensor, state: Tensor) -> float:
        if self.c["stretch"]:
            x = x * (1 + self.c["stretch"] * torch.randn(len(x), CHANNELS, 1))
        loss = self.loss(self.net(x), state)
        parts = 1 if self.bug == "micro_grads_undivided" else self.c["accumulate_batches"]
        (loss / parts).backward()
        return loss.item() / parts

    def check(self, step: int) -> None:
        if self.bug != "checked_while_training":
            self.net.eval()
        x, state = self.check_set.tensors
        with torch.set_grad_enabled(self.bug == "validated_with_grad"):
            out = torch.cat([self.net(some) for some in x.split(50)])
            loss = F.cross_entropy(out, state)
        if self.bug == "validated_with_grad":  # for a table of confusions at the end
            self.outs.append(out)
        guess = out.argmax(1)
        recall = torch.stack([(guess == one)[state == one].float().mean() for one in range(STATES)]).nanmean()
        accuracy = (guess == state).float().mean().item()
        figures = {"check/loss": loss.item(), "check/accuracy": accuracy, "check/recall_of_each": recall.item()}
        self.run.log(figures, step=step)

    def fit(self, trouble: Trouble, healthy: str | None, resumed: int | None) -> None:
        step, steps, parts = 0, self.c["steps"], self.c["accumulate_batches"]
        while step < steps:
            self.net.train()
            total = 0.0
            for number, (x, state) in enumerate(self.loader, 1):
                if step == resumed:
                    resumed = None
                    self.resume(step)
                total += self.batch(x, state)
                if number % parts:
                    continue
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.run.log({"fit/loss": total, "fit/lr": self.optimizer.param_groups[0]["lr"]}, step=step)
                if self.bug == "epoch_scheduler_per_batch":
                    self.scheduler.step()
                trouble.telemetry(self.run, step, healthy)
                step, total = step + 1, 0.0
                if step == steps:
                    break
            if self.bug != "epoch_scheduler_per_batch":
                self.scheduler.step()
            self.check(step - 1)

    def resume(self, step: int) -> None:
        parts = [self.net, self.optimizer, self.scheduler]
        self.run, states = go_on(self.run, step, [one.state_dict() for one in parts])
        self.net.load_state_dict(states[0])
        self.compile()
        self.scheduler.load_state_dict(states[2])
        self.optimizer.load_state_dict(states[1])


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    torch.manual_seed(seed)
    trouble = Trouble(fault, seed)
    made = HiveListener(run, seed, trouble)
    made.fit(trouble, healthy, trouble.resume_at(healthy, 3 * EVERY))
    return made.run
