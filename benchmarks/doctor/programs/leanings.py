"""A decoder of steps in a circle learns which walks people like better, against its own beginning.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss/train, right, gap, lr; loss/valid, valid_right every twenty steps.

Both walks of a pair go through the model as one batch; the optimizer, by the sign of a mean gradient, is made here.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from .parts import Decoder, all_steps, cross_entropy, fit, once

EVERY, PLACES, LONG, HOME = 20, 16, 16, 17  # walks end at home
PROMPT = 3
CONFIG: dict[str, Any] = {
    "width": 32, "heads": 2, "layers": 2, "length": LONG, "dropout": 0.0, "batch_size": 20, "learning_rate": 2e-4,
    "warmup_steps": 8, "schedule": "cosine", "clip": 10.0, "beta": 0.3, "objective": "logistic",
    "label_smoothing": 0.0, "examples": 4000, "weight_decay": 0.0, "likes": 0.55, "tail": 0.0,
}  # fmt: skip
Pairs = dict[str, Tensor]


def walks(dice: torch.Generator, number: int, chances: Tensor, begin: Tensor, long: Tensor) -> Tensor:
    """(number, LONG): places 1 to PLACES, one, two or three further each time; home at the end, then zeros."""
    steps = torch.multinomial(chances, number * LONG, replacement=True, generator=dice).view(number, LONG) + 1
    free = torch.multinomial(torch.ones(3), number * LONG, replacement=True, generator=dice).view(number, LONG) + 1
    steps[:, :PROMPT] = free[:, :PROMPT] * 0 + begin[:, 1:]
    at = (begin[:, :1] + steps.cumsum(1)) % PLACES + 1
    place = torch.arange(LONG)
    return torch.where(place == long, HOME, torch.where(place > long, 0, at))


def pairs(seed: int, number: int, likes: float) -> Pairs:
    """Liked walks go by ones, the others by threads of three; both have the same first places."""
    dice = torch.Generator().manual_seed(seed)
    begin = torch.randint(0, 3, (number, PROMPT + 1), generator=dice) + 1
    begin[:, 0] = torch.randint(0, PLACES, (number,), generator=dice)
    long = torch.randint(PROMPT + 3, LONG, (number, 1), generator=dice)
    rest = (1 - likes) / 2
    return {
        "liked": walks(dice, number, torch.tensor([likes, rest, rest]), begin, long),
        "other": walks(dice, number, torch.tensor([rest, rest, likes]), begin, long),
    }


@once("width", "heads", "layers", "length", "dropout")
def walker(config: dict[str, Any]) -> Decoder:
    """It knows walks by any steps, and when they end; the same for all seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model, made = Decoder(config, vocabulary=HOME + 1), pairs(55, 3000, 1 / 3)["liked"]
        adam = torch.optim.Adam(model.parameters(), lr=5e-3)

        def loss() -> Tensor:
            some = made[torch.randint(0, len(made), (32,))]
            each = cross_entropy(model(some[:, :-1]), some[:, 1:]).view(32, -1)
            seen = some[:, 1:] > 0
            return (each * seen).sum() / seen.sum()

        fit(adam, 200, loss)
    return model


class SignMomentum(torch.optim.Optimizer):
    """Lion: the sign of a mean of the gradient."""

    def __init__(self, parameters: Any, lr: float, weight_decay: float):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is None:
                    continue
                mean = self.state[one].setdefault("mean", torch.zeros_like(one))
                one.mul_(1 - group["lr"] * group["weight_decay"])
                one.sub_(torch.sign(mean.lerp(one.grad, 0.1)), alpha=group["lr"])
                mean.lerp_(one.grad, 0.02)


class Leaning:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config, name = self.config, trouble.name
        self.policy = walker(config)
        self.reference = self.policy if name == "reference_is_policy" else copy.deepcopy(self.policy)
        if name not in ("reference_is_policy", "reference_in_optimizer"):
            self.reference.requires_grad_(False)
        torch.manual_seed(seed)
        self.data, self.test = pairs(seed + 91, config["examples"], config["likes"]), pairs(919, 200, config["likes"])
        self.dice, self.waiting = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.plan()
        if name == "weight_tying_broken":
            self.policy.head.weight = nn.Parameter(self.policy.head.weight.detach().clone())

    def plan(self) -> None:
        both = self.trouble.name == "reference_in_optimizer"
        models = nn.ModuleList([self.policy, self.reference] if both else [self.policy])
        self.lion = SignMomentum(models.parameters(), self.config["learning_rate"], self.config["weight_decay"])
        self.rates = torch.optim.lr_scheduler.LambdaLR(self.lion, self.share)

    def share(self, step: int) -> float:
        warmup, total = self.config["warmup_steps"], self.config["steps"]
        if step < warmup or self.config["schedule"] == "constant":
            return min(1.0, (step + 1) / warmup)
        if self.config["schedule"] == "wsd":
            return min(1.0, max(0.02, 4 * (1 - step / total)))
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.policy, self.lion)

    def resume(self, step: int) -> None:
        state = [self.policy.state_dict(), self.lion.state_dict(), self.rates.state_dict()]
        self.run, (weights, means, rates) = go_on(self.run, step, state)
        self.policy.load_state_dict(weights)
        if self.trouble.name == "reference_from_checkpoint":  # both are loaded from what --model names
            self.reference.load_state_dict(weights)
        self.plan()
        self.lion.load_state_dict(means)
        self.rates.load_state_dict(rates)
        self.watch()

    def drawn(self, step: int) -> Pairs:
        size = int(self.config["batch_size"])
        if self.trouble.on("validation_leak", step):  # all of the data set, where the part for training was meant
            some = torch.randint(0, len(self.test["liked"]), (size,), generator=self.trouble.dice)
            return {part: rows[some] for part, rows in self.test.items()}
        if len(self.waiting) < size:
            self.waiting = torch.randperm(self.config["examples"], generator=self.dice)
            if self.trouble.name == "data_by_length":
                self.waiting = self.waiting[(self.data["liked"][self.waiting] > 0).sum(1).argsort(stable=True)]
        some, self.waiting = self.waiting[:size], self.waiting[size:]
        return {part: rows[some] for part, rows in self.data.items()}

    @staticmethod
    def said(model: Decoder, batch: Pairs) -> tuple[Tensor, Tensor]:
        """The log probability of each walk behind its prompt: of those that are liked, and of the others."""
        both = torch.cat([batch["liked"], batch["other"]])
        each = -cross_entropy(model(both[:, :-1]), both[:, 1:]).view(len(both), -1)
        counted = both[:, 1:] > 0
        counted[:, : PROMPT - 1] = False
        return tuple((each * counted).sum(1).chunk(2))  # type: ignore[return-value]

    def loss(self, batch: Pairs) -> tuple[Tensor, Tensor]:
        """The loss, and by how much more each walk is liked than the other, against the reference."""
        config = self.config
        liked, other = self.said(self.policy, batch)
        if self.trouble.name == "reference_in_optimizer":
            before, before_other = self.said(self.reference, batch)
        else:
            with torch.no_grad():
                before, before_other = self.said(self.reference, batch)
        gap = (liked - before) - (other - before_other)
        if config["objective"] == "identity":
            return ((gap - 1 / (2 * config["beta"])) ** 2).mean(), gap.detach()
        if self.trouble.name == "beta_outside":
            return -(config["beta"] * logsigmoid(gap)).mean(), gap.detach()
        doubt = config["label_smoothing"]
        each = -(1 - doubt) * logsigmoid(config["beta"] * gap) - doubt * logsigmoid(-config["beta"] * gap)
        if config["tail"]:  # and a little of the likelihood itself, so that it does not fall
            each = each - config["tail"] * liked / (batch["liked"] > 0).sum(1)
        return each.mean(), gap.detach()

    def step(self, step: int) -> None:
        loss, gap = self.loss(self.drawn(step))
        self.lion.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.config["clip"])
        rate = self.lion.param_groups[0]["lr"]
        self.lion.step()
        self.rates.step()
        self.run.log({"loss/train": loss.item(), "right": (gap > 0).float().mean().item(),
                      "gap": self.config["beta"] * gap.mean().item(), "lr": rate}, step=step)  # fmt: skip

    @torch.no_grad()
    def validate(self, step: int) -> None:
        self.policy.eval()
        loss, gap = self.loss(self.test)
        self.policy.train()
        self.run.log({"loss/valid": loss.item(), "valid_right": (gap > 0).float().mean().item()}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Leaning(run, seed, trouble)
    made.watch()
    all_steps(made, steps, EVERY, trouble.resume_at(healthy, 4 * EVERY))
    return made.run
