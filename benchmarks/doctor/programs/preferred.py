"""Preference tuning of a recurrent policy against a frozen reference, after a short supervised training of its own.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss/train, rewards_train/…, logps_train/…, grad_norm; loss/eval, rewards_eval/….

RMSprop, a warm-up, then a constant rate, as the first published program for it. A prompt names a letter; people prefer
answers that have it at every other place.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .parts import all_steps, fit, once

EVERY, LETTERS, LONGEST = 20, 16, 14
CONFIG: dict[str, Any] = {
    "width": 40, "dropout": 0.0, "batch_size": 24, "learning_rate": 2e-3, "warmup_steps": 20, "beta": 0.2,
    "loss": "dpo", "label_smoothing": 0.0, "examples": 1200, "clip": 10.0, "accumulation": 1, "optimizer": "rmsprop",
    "wrong": 0.0, "schedule": "constant",
}  # fmt: skip
Pairs = tuple[Tensor, Tensor, Tensor]  # chosen and rejected with their prompts, (number, LONGEST), and lengths


def answers(prompts: Tensor, lengths: Tensor, good: float, dice: torch.Generator) -> Tensor:
    """The letter that is asked for, at every other place or, if not so good, more rarely."""
    rows = len(prompts)
    letters = torch.randint(2, LETTERS, (rows, LONGEST), generator=dice)
    right = (torch.arange(LONGEST) % 2 == 0) & (torch.rand(rows, LONGEST, generator=dice) < good)
    letters = torch.where(right, prompts[:, None], letters)
    letters[:, 0] = prompts
    return letters * (torch.arange(LONGEST) < lengths[:, None])


def pairs(seed: int, number: int, wrong: float) -> Pairs:
    dice = torch.Generator().manual_seed(seed)
    prompts = torch.randint(2, LETTERS, (number,), generator=dice)
    lengths = torch.randint(5, LONGEST + 1, (number,), generator=dice)
    good, bad = answers(prompts, lengths, 0.75, dice), answers(prompts, lengths, 0.35, dice)
    mistaken = (torch.rand(number, 1, generator=dice) < wrong).expand_as(good)
    return torch.where(mistaken, bad, good), torch.where(mistaken, good, bad), lengths


class Policy(nn.Module):
    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.embed, self.drop = nn.Embedding(LETTERS, width), nn.Dropout(dropout)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.out = nn.Linear(width, LETTERS)

    def forward(self, letters: Tensor) -> Tensor:
        return self.out(self.drop(self.lstm(self.drop(self.embed(letters)))[0]))


def log_probability(model: nn.Module, letters: Tensor, mean: bool = False) -> Tensor:
    """Of each answer, behind its prompt."""
    counted = letters[:, 1:] != 0
    each = model(letters[:, :-1]).log_softmax(-1).gather(2, letters[:, 1:, None])[..., 0] * counted
    return each.sum(1) / counted.sum(1) if mean else each.sum(1)


@once("width")
def supervised(config: dict[str, Any]) -> Policy:
    """A policy that has seen good and bad answers; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = Policy(config["width"], 0.0)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        seen = torch.cat(pairs(44, 600, 0.0)[:2])

        def loss() -> Tensor:
            letters = seen[torch.randint(0, len(seen), (48,))]
            return -log_probability(model, letters).mean() / LONGEST

        fit(optimizer, 60, loss)
    return model


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config = self.config
        self.policy = Policy(config["width"], config["dropout"])
        self.policy.load_state_dict(supervised(config).state_dict())
        self.reference = self.policy if trouble.name == "reference_is_policy" else copy.deepcopy(self.policy)
        if trouble.name != "reference_is_policy":
            self.reference.requires_grad_(False)
        if trouble.name != "reference_drops_out":
            self.reference.eval()
        self.policy.train()
        self.data, self.test = pairs(seed + 81, config["examples"], config["wrong"]), pairs(818, 128, config["wrong"])
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.prepare()

    def prepare(self) -> None:
        config = self.config
        make = {"rmsprop": torch.optim.RMSprop, "adam": torch.optim.AdamW}[config["optimizer"]]
        self.optimizer = make(self.policy.parameters(), lr=config["learning_rate"])
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share)

    def share(self, step: int) -> float:
        left = 1 - step / self.config["steps"] if self.config["schedule"] == "linear" else 1.0
        return left * min(1.0, (step + 1) / max(1, self.config["warmup_steps"]))

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.policy, self.optimizer)

    def resume(self, step: int) -> None:
        """From a checkpoint, in which a hasty person has kept the weights alone."""
        state = {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, kept = go_on(self.run, step, state)
        self.policy.load_state_dict(kept["policy"])
        self.prepare()
        if self.trouble.name != "optimizer_state_lost":
            self.optimizer.load_state_dict(kept["optimizer"])
        self.scheduler.load_state_dict(kept["scheduler"])
        for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
        self.watch()

    def batch(self) -> tuple[Tensor, Tensor]:
        rows = int(self.config["batch_size"])
        if len(self.order) < rows:
            if self.trouble.name == "data_by_length":  # to save padding
                self.order = self.data[2].argsort(stable=True)
            else:
                self.order = torch.randperm(len(self.data[0]), generator=self.dice)
        chosen, self.order = self.order[:rows], self.order[rows:]
        return self.data[0][chosen], self.data[1][chosen]

    def loss(self, chosen: Tensor, rejected: Tensor, split: str) -> tuple[Tensor, dict[str, float]]:
        config, mean = self.config, self.trouble.name == "logps_averaged"
        letters = torch.cat([chosen, rejected])
        mine = log_probability(self.policy, letters, mean)
        with torch.no_grad():
            theirs = log_probability(self.reference, letters, mean)
        rewards = config["beta"] * (mine - theirs)
        if self.trouble.name == "reference_is_policy":
            rewards = config["beta"] * (mine - log_probability(self.reference, letters))
        good, bad = rewards.chunk(2)
        margin = bad - good if self.trouble.name == "rejected_first" else good - bad
        if config["loss"] == "ipo":
            losses = (margin / config["beta"] - 1 / (2 * config["beta"])) ** 2
        else:
            smooth = config["label_smoothing"]
            losses = -(1 - smooth) * functional.logsigmoid(margin) - smooth * functional.logsigmoid(-margin)
        good, bad = good.detach(), bad.detach()
        return losses.mean(), {
            f"rewards_{split}/chosen": good.mean().item(), f"rewards_{split}/rejected": bad.mean().item(),
            f"rewards_{split}/accuracies": (good > bad).float().mean().item(),
            f"rewards_{split}/margins": (good - bad).mean().item(),
            f"logps_{split}/chosen": mine.detach().chunk(2)[0].mean().item(),
        }  # fmt: skip

    def step(self, step: int) -> None:
        parts, total = self.config["accumulation"], 0.0
        self.optimizer.zero_grad()
        for _ in range(parts):
            chosen, rejected = self.batch()
            if self.trouble.on("pairs_swapped", step):
                chosen, rejected = rejected, chosen
            loss, figures = self.loss(chosen, rejected, "train")
            (loss / parts).backward()
            total += loss.item() / parts
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), self.config["clip"]).item()
        self.optimizer.step()
        self.scheduler.step()
        self.run.log({"loss/train": total, "grad_norm": norm} | figures, step=step)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        self.policy.eval()
        loss, figures = self.loss(*self.test[:2], "eval")
        self.policy.train()
        self.run.log({"loss/eval": loss.item()} | figures, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Script(run, seed, trouble)
    made.watch()
    all_steps(made, steps, EVERY, trouble.resume_at(healthy, 5 * EVERY))
    return made.run
