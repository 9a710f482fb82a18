"""A recurrent network over a turbine's sensors tells what will fail: most often nothing; one in thirty is rarest.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: batch_loss, rate each step; test_loss, test_acc, test_f1, epoch at each epoch's end.

An LSTM over packed rows, batch norm behind it, weights by kind; Adam, stepped by epochs; a class with `fit`, NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

EVERY, SENSORS, FAILURES = 40, 5, 4
SHARES = (0.72, 0.16, 0.09, 0.03)
CONFIG: dict[str, Any] = {
    "lstm": 32, "fc": 32, "dropout": 0.0, "batch": 32, "learning_rate": 4e-3, "decay_epochs": 2, "decay": 0.5,
    "policy": "step", "records": 1280, "upsampling": 1, "weighting": "inverse", "norm": "batch", "smooth": 0.0,
    "gamma": 0.0, "freeze_fc1": False, "loss_is": "mean", "optimizer": "adam", "sampler": "shuffle", "noise": 1.6,
}  # fmt: skip


def measure(seed: int, records: int, noise: float) -> tuple[list[Any], Any]:
    """Records (moments, SENSORS) of twelve to thirty moments, and what fails: 0 is nothing."""
    rng = numpy.random.default_rng(seed)
    fails, made = rng.choice(FAILURES, records, p=SHARES), []
    for kind in fails:
        long = int(rng.integers(12, 31))
        moment = numpy.linspace(0, 1, long)[:, None]
        record = 3.0 + numpy.arange(SENSORS) + noise * rng.standard_normal((long, SENSORS))
        record += numpy.sin(2 * numpy.pi * (3 * moment + rng.random())) * numpy.array([1.0, 0.6, 0.3, 0.2, 0.1])
        if kind == 1:  # runs hot towards the end
            record[:, 1:3] += 1.8 * moment
        elif kind == 2:  # shakes
            record[:, 3:] += 1.6 * numpy.sin(2 * numpy.pi * 6 * moment)
        elif kind == 3:  # loses pressure
            record[:, :2] -= 2.2 * moment**2
        made.append(record.astype(numpy.float32))
    return made, fails.astype(numpy.int64)


class TurbineNet(nn.Module):
    def __init__(self, config: dict[str, Any], kinds: int, bug: str):
        super().__init__()
        self.lstm = nn.LSTM(SENSORS, config["lstm"], batch_first=True)
        self.fc1 = nn.Linear(2 * config["lstm"], config["fc"])
        self.bn: nn.Module = nn.BatchNorm1d(config["fc"]) if config["norm"] == "batch" else nn.LayerNorm(config["fc"])
        self.drop, self.fc2, self.bug = nn.Dropout(config["dropout"]), nn.Linear(config["fc"], kinds), bug

    def forward(self, x: Tensor, long: Tensor) -> Tensor:
        if self.bug == "last_step_of_padded":  # what stands behind a record's end is read to the longest's
            hidden, _ = self.lstm(x)
            last = mean = hidden[:, -1]
        else:
            hidden, (state, _) = self.lstm(pack_padded_sequence(x, long, batch_first=True, enforce_sorted=False))
            last, mean = state[-1], pad_packed_sequence(hidden, batch_first=True)[0].sum(1) / long[:, None]
        y = self.fc2(self.drop(self.bn(self.fc1(torch.cat([last, mean], 1))).relu()))
        return y.softmax(1) if self.bug == "probabilities_returned" else y


def f1_macro(said: Tensor, true: Tensor) -> float:
    every = []
    for kind in range(FAILURES):
        both = float((said == kind).sum() + (true == kind).sum())
        every.append(2 * float(((said == kind) & (true == kind)).sum()) / max(1.0, both))
    return sum(every) / FAILURES


class Classifier:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble, healthy: str | None):
        self.run, self.config, self.trouble, self.bug = run, dict(run.config), trouble, trouble.name
        self.steps, self.healthy, self.step, self.rng = steps, healthy, 0, numpy.random.default_rng(seed)
        torch.manual_seed(seed)
        self.read(seed)
        first = 1 if self.bug == "codes_begin_at_one" else 0
        self.net = TurbineNet(self.config, FAILURES + first, self.bug)
        if self.bug == "frozen_as_if_pretrained":
            self.net.requires_grad_(False)
            self.net.fc2.requires_grad_(True)
        if self.config["freeze_fc1"]:
            self.net.fc1.requires_grad_(False)
        self.y_train = self.y_train + first  # the table's codes; the test's were mended by hand
        counts = numpy.bincount(self.y_train, minlength=FAILURES + first).clip(1)
        weight = (counts.sum() / counts) ** 0.5 if self.config["weighting"] == "inverse" else numpy.ones(len(counts))
        self.weight = torch.tensor(weight / weight[first:].mean(), dtype=torch.float32)
        self.compile()

    def read(self, seed: int) -> None:
        config, bug, copies = self.config, self.bug, self.config["upsampling"]
        x, y = measure(seed + 800, config["records"], config["noise"])
        x_test, y_test = measure(80, 400, config["noise"])
        if copies > 1:
            rows = numpy.repeat(numpy.arange(len(y)), numpy.where(y == 0, 1, copies))
            self.rng.shuffle(rows)
            x, y = [x[row] for row in rows], y[rows]
            if bug == "upsampled_then_split":
                x_test, y_test, x, y = x[:400], y[:400], x[400:], y[400:]
        if bug == "listed_by_class":
            rows = numpy.argsort(y, kind="stable")
            x, y = [x[row] for row in rows], y[rows]
        flat = numpy.concatenate(x)
        mean, std = flat.mean(0), flat.std(0)
        self.x_train, self.y_train = [torch.from_numpy((one - mean) / std) for one in x], y
        if bug == "scaler_of_last_season":  # scaler.pkl was not written anew when the sensors were changed
            mean, std = mean - 1.2, 1.5 * std
        self.x_test, self.y_test = [torch.from_numpy((one - mean) / std) for one in x_test], torch.from_numpy(y_test)

    def compile(self) -> None:
        config, some = self.config, [one for one in self.net.parameters() if one.requires_grad]
        self.optimizer: Any = torch.optim.Adam(some, config["learning_rate"])
        if config["optimizer"] == "rmsprop":
            self.optimizer = torch.optim.RMSprop(some, 0.5 * config["learning_rate"])
        fade = config["decay"] if config["policy"] == "step" else 1.0
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, config["decay_epochs"], fade)
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)

    def resume(self) -> None:
        states = {"net": self.net.state_dict(), "opt": self.optimizer.state_dict(), "sch": self.scheduler.state_dict()}
        self.run, states = go_on(self.run, self.step, states)
        self.net.load_state_dict(states["net"])
        self.compile()
        self.scheduler.load_state_dict(states["sch"])
        if self.bug != "resume_weights_alone":
            self.optimizer.load_state_dict(states["opt"])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]

    def loss(self, y: Tensor, true: Tensor) -> Tensor:
        config = self.config
        if self.bug == "criterion_sums" or config["loss_is"] == "sum":
            loss = F.cross_entropy(y, true, self.weight, reduction="sum")
            return loss / self.weight[true].sum() if config["loss_is"] == "sum" else loss
        if config["gamma"]:
            each = F.cross_entropy(y, true, self.weight, reduction="none")
            sure = y.detach().softmax(1).gather(1, true[:, None])[:, 0]
            return ((1 - sure) ** config["gamma"] * each).mean()
        return F.cross_entropy(y, true, self.weight, label_smoothing=config["smooth"])

    def epoch_order(self) -> Any:
        number = len(self.y_train)
        if self.bug == "listed_by_class":
            return numpy.arange(number)
        if self.config["sampler"] == "even":
            chance = 1 / numpy.bincount(self.y_train)[self.y_train]
            return self.rng.choice(number, number, p=chance / chance.sum())
        return self.rng.permutation(number)

    def fit(self) -> Any:
        size, epoch, kept = int(self.config["batch"]), 0, []
        resumed = self.trouble.resume_at(self.healthy, 2 * EVERY)
        while self.step < self.steps:
            self.net.train()
            order = self.epoch_order()
            for at in range(0, len(order) - size + 1, size):
                if self.step == resumed:
                    self.resume()
                rows = order[at : at + size]
                x = [self.x_train[row] for row in rows]
                said = self.net(pad_sequence(x, batch_first=True), torch.tensor([len(one) for one in x]))
                loss = self.loss(said, torch.from_numpy(self.y_train[rows]))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.run.log({"batch_loss": loss.item(), "rate": self.optimizer.param_groups[0]["lr"]}, step=self.step)
                if self.bug == "scheduler_in_batch_loop":
                    self.scheduler.step()
                self.trouble.telemetry(self.run, self.step, self.healthy)
                self.step += 1
                if self.step == self.steps:
                    break
            if self.bug != "scheduler_in_batch_loop":
                self.scheduler.step()
            with torch.set_grad_enabled(self.bug == "predictions_hold_graphs"):
                said = self.test(epoch)
            if self.bug == "predictions_hold_graphs":  # for a table of confusions at the end
                kept.append(said)
            epoch += 1
        return self.run

    def test(self, epoch: int) -> Tensor:
        if self.bug != "eval_forgotten":
            self.net.eval()
        long = torch.tensor([len(one) for one in self.x_test])
        said = self.net(pad_sequence(self.x_test, batch_first=True), long)
        guess = said.argmax(1)
        right, f1 = (guess == self.y_test).float().mean().item(), f1_macro(guess, self.y_test)
        loss = F.cross_entropy(said, self.y_test, self.weight).item()
        self.run.log({"test_loss": loss, "test_acc": right, "test_f1": f1, "epoch": epoch}, step=self.step - 1)
        return said


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return Classifier(run, seed, steps, Trouble(fault, seed), healthy).fit()
