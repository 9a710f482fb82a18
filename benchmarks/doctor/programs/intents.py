"""What a request is about, by a GRU over its words: seven in ten are of one kind, one in fifty of the rarest.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, a mean of five steps, and lr; val_acc and val_macro_f1 after each epoch, no loss.

The rate falls to a third when the accuracy gets no better for two epochs. Word vectors are given, and stay.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, WORDS, LONGEST, KINDS = 20, 120, 22, 5
SHARES = torch.tensor([0.70, 0.15, 0.08, 0.05, 0.02])
CONFIG: dict[str, Any] = {
    "width": 40, "hidden": 40, "dropout": 0.1, "batch_size": 32, "learning_rate": 3e-3, "weight_decay": 0.0,
    "balanced": False, "focal": 0.0, "optimizer": "adam", "patience": 2, "wrong_labels": 0.0, "schedule": "plateau",
    "clip": 5.0,
}  # fmt: skip


def requests(seed: int, number: int, wrong: float) -> tuple[Tensor, Tensor, Tensor]:
    """Words (number, LONGEST) with zeros behind the end, lengths and kinds: a pair of words says the kind."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.multinomial(SHARES, number, replacement=True, generator=dice)
    lengths = torch.randint(6, LONGEST + 1, (number,), generator=dice)
    words = torch.randint(21, WORDS, (number, LONGEST), generator=dice)
    for _ in range(2):
        place = (torch.rand(number, generator=dice) * (lengths - 1)).long()[:, None]
        which = torch.randint(0, 2, (number,), generator=dice)
        first = (1 + 4 * kinds + which)[:, None]
        words.scatter_(1, place, first)
        words.scatter_(1, place + 1, (3 + 4 * kinds + which)[:, None])
    words = words * (torch.arange(LONGEST) < lengths[:, None])
    astray = torch.rand(number, generator=dice) < wrong
    return words, lengths, torch.where(astray, torch.randint(0, KINDS, (number,), generator=dice), kinds)


class Reader(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        self.name = name
        given = torch.randn(WORDS, config["width"], generator=torch.Generator().manual_seed(55))
        self.words = nn.Embedding.from_pretrained(given, freeze=True)
        self.gru = nn.GRU(config["width"], config["hidden"], batch_first=True)
        self.drop = nn.Dropout(config["dropout"])
        self.classifier = nn.Sequential(nn.Linear(config["hidden"], config["hidden"]), nn.ReLU(),
                                        nn.Linear(config["hidden"], KINDS))  # fmt: skip

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        states, last = self.gru(self.drop(self.words(words)))
        said = states[torch.arange(len(words)), lengths - 1]
        if self.name == "state_behind_padding":
            said = last[-1]
        return self.classifier(self.drop(said))


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config, rows = self.config, int(self.config["batch_size"])
        many = EVERY * rows
        every = requests(seed + 71, many + 300, config["wrong_labels"])
        if trouble.name == "split_of_sorted":  # the file is sorted by kind, and its end is held out
            order = every[2].argsort(stable=True)
            every = tuple(part[order] for part in every)
        self.data, self.test = tuple(one[:many] for one in every), tuple(one[many:] for one in every)
        self.model = Reader(config, trouble.name)
        if trouble.name == "wrong_group_frozen":  # for name, p in named_parameters(): if "words" not in name
            self.model.requires_grad_(False)
            self.model.words.requires_grad_(True)
        trained = [one for one in self.model.parameters() if one.requires_grad]
        if config["optimizer"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(trained, lr=60 * config["learning_rate"], momentum=0.9)
        else:
            self.optimizer = torch.optim.Adam(trained, lr=config["learning_rate"], weight_decay=config["weight_decay"])
        better = "min" if trouble.name == "annealed_when_better" else "max"
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, better, factor=0.33, patience=config["patience"]
        )
        self.dice, self.recent = torch.Generator().manual_seed(seed), []

    def epoch(self) -> Any:
        words, lengths, kinds = self.data
        if self.trouble.name == "data_by_length":
            order = lengths.argsort(stable=True)
        elif self.config["balanced"]:
            weights = 1 / torch.bincount(kinds, minlength=KINDS)[kinds]
            order = torch.multinomial(weights, len(kinds), replacement=True, generator=self.dice)
        else:
            order = torch.randperm(len(kinds), generator=self.dice)
        for chosen in order.split(int(self.config["batch_size"])):
            yield words[chosen], lengths[chosen], kinds[chosen]

    def loss(self, scores: Tensor, kinds: Tensor) -> Tensor:
        if self.trouble.name == "scores_without_softmax":
            return functional.nll_loss(scores, kinds)
        if self.config["focal"]:
            likely = scores.log_softmax(1).gather(1, kinds[:, None])[:, 0]
            return -((1 - likely.exp()) ** self.config["focal"] * likely).mean()
        return functional.cross_entropy(scores, kinds)

    def step(self, step: int, words: Tensor, lengths: Tensor, kinds: Tensor) -> None:
        if self.trouble.on("validation_leak", step):  # the whole file is trained on, of which the end is the test
            chosen = torch.randint(0, len(self.test[0]), (len(words),), generator=self.trouble.dice)
            words, lengths, kinds = (part[chosen] for part in self.test)
        loss = self.loss(self.model(words, lengths), kinds)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config["clip"])
        self.optimizer.step()
        self.recent.append(loss.item())
        if len(self.recent) == 5:
            self.run.log({"loss": sum(self.recent) / 5, "lr": self.optimizer.param_groups[0]["lr"]}, step=step)
            self.recent = []

    def validate(self, step: int) -> None:
        self.model.eval()
        with torch.no_grad():
            said = self.model(*self.test[:2]).argmax(1)
        if not self.trouble.on("evaluation_mode_left_on", step):
            self.model.train()
        kinds = self.test[2]
        right = [((said == one) & (kinds == one)).sum() for one in range(KINDS)]
        f1 = [2 * hit / ((said == one).sum() + (kinds == one).sum()).clamp(min=1) for one, hit in enumerate(right)]
        accuracy = (said == kinds).float().mean().item()
        self.run.log({"val_acc": accuracy, "val_macro_f1": sum(f1).item() / KINDS}, step=step)
        if self.config["schedule"] == "plateau":
            self.scheduler.step(accuracy)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = Script(run, seed, Trouble(fault, seed))
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    step = 0
    while step < steps:
        for batch in made.epoch():
            if step < steps:
                made.step(step, *batch)
                step += 1
        made.validate(step - 1)
    return run
