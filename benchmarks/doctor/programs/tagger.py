"""A tagger of names: an encoder over pieces of words says of each word whether it is a person, a place or a firm.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` with accuracy, and evaluations with the F1 of names; the watch of model and data.

A word has one to three pieces; the first has the word's tag, the others are ignored, as padding is. Which kind of name
a name is shows in the word before it. Rare tags weigh more in the loss.
"""

from __future__ import annotations

from typing import Any

import torch
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .loop import factor
from .parts import Block

EVERY, WORDS, NAMES, PIECES, TAGS, IGNORED = 20, 160, 40, 70, 4, -100
CONFIG: dict[str, Any] = {
    "width": 40, "heads": 4, "layers": 2, "length": 28, "dropout": 0.15, "batch_size": 24, "learning_rate": 3e-3,
    "warmup_steps": 15, "schedule": "linear", "weight_decay": 0.01, "clip": 1.0, "sentences": 2600, "names": 0.15,
    "wrong_tags": 0.0, "class_weights": True,
}  # fmt: skip


def sentences(seed: int, number: int, config: dict[str, Any]) -> list[tuple[list[int], list[int]]]:
    """Words and their tags; names are the words from WORDS on."""
    dice = torch.Generator().manual_seed(seed)
    made = []
    for length in torch.randint(5, 13, (number,), generator=dice).tolist():
        words = torch.randint(0, WORDS, (length,), generator=dice)
        named = torch.rand(length, generator=dice) < config["names"]
        named[0] = False
        kinds = torch.randint(1, TAGS, (length,), generator=dice)
        hints = kinds + (TAGS - 1) * torch.randint(0, 4, (length,), generator=dice) - 1  # which word stands before it
        words = torch.where(named.roll(-1), hints.roll(-1), words)
        words = torch.where(named, torch.randint(WORDS, WORDS + NAMES, (length,), generator=dice), words)
        tags = torch.where(named, kinds, 0)
        wrong = torch.rand(length, generator=dice) < config["wrong_tags"]
        tags = torch.where(wrong, torch.randint(0, TAGS, (length,), generator=dice), tags)
        made.append((words.tolist(), tags.tolist()))
    return made


def spelling() -> list[list[int]]:
    """The pieces of each word; 0 is padding."""
    dice = torch.Generator().manual_seed(44)
    lengths = torch.randint(1, 4, (WORDS + NAMES,), generator=dice).tolist()
    firsts = torch.randint(1, PIECES // 2, (WORDS,), generator=dice).tolist()
    firsts += torch.randint(PIECES // 2, PIECES, (NAMES,), generator=dice).tolist()  # they begin with a capital
    rest = [torch.randint(1, PIECES, (length - 1,), generator=dice).tolist() for length in lengths]
    return [[first, *more] for first, more in zip(firsts, rest, strict=True)]


def encoded(some: list[tuple[list[int], list[int]]], length: int, name: str) -> tuple[Tensor, Tensor]:
    """Pieces and labels (rows, length)."""
    spelled, rows, labels = spelling(), [], []
    for words, tags in some:
        pieces, mine = [], []
        for word, tag in zip(words, tags, strict=True):
            pieces += spelled[word]
            mine += [tag] + [IGNORED] * (len(spelled[word]) - 1)
        if name == "tags_not_aligned":  # a tag for each word, laid beside pieces
            mine = tags + [IGNORED] * (len(pieces) - len(tags))
        rest = 0 if name == "padding_counted" else IGNORED
        rows.append((pieces + [0] * length)[:length])
        labels.append((mine + [rest] * length)[:length])
    return torch.tensor(rows), torch.tensor(labels)


class Tagger(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["width"]
        self.pieces, self.positions = nn.Embedding(PIECES, width, 0), nn.Embedding(config["length"], width)
        self.encoder = nn.ModuleList(Block(config, causal=False) for _ in range(config["layers"]))
        self.norm, self.classifier = nn.LayerNorm(width), nn.Linear(width, TAGS)
        for embedding in (self.pieces, self.positions):
            nn.init.normal_(embedding.weight, std=0.3)

    def forward(self, pieces: Tensor) -> Tensor:
        there = (pieces != 0)[:, None, None]
        x = self.pieces(pieces) + self.positions.weight[: pieces.shape[1]]
        for block in self.encoder:
            x = block(x, there)
        return self.classifier(self.norm(x))


class Training:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        length = self.config["length"]
        some = sentences(seed + 31, self.config["sentences"], self.config)
        self.data = encoded(some, length, trouble.name)
        self.test = encoded(sentences(313, 160, self.config), length, trouble.name)
        if trouble.name == "tags_in_other_order":  # list(set(tags)), once for each of the two
            pieces, labels = self.test
            self.test = pieces, torch.where(labels == IGNORED, labels, torch.tensor([2, 0, 3, 1])[labels.clamp(min=0)])
        self.model = Tagger(self.config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.config["learning_rate"],
                                           weight_decay=self.config["weight_decay"])  # fmt: skip
        self.weights = torch.ones(TAGS)
        if self.config["class_weights"]:  # the rarer, the heavier
            tags = [tag for _, mine in some for tag in mine]
            shares = torch.bincount(torch.tensor(tags), minlength=TAGS) / len(tags)
            self.weights = shares if trouble.name == "weights_inverted" else shares.rsqrt()
            self.weights = self.weights / self.weights.mean()
        self.dice, self.order, self.epoch = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long), -1

    def batch(self) -> tuple[Tensor, Tensor]:
        rows = int(self.config["batch_size"])
        if len(self.order) < rows:
            self.order, self.epoch = torch.randperm(len(self.data[0]), generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        return self.data[0][chosen], self.data[1][chosen]

    def loss(self, pieces: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and logits (rows, length, TAGS)."""
        logits = self.model(pieces)
        if self.trouble.name == "viewed_not_transposed":  # the tags have to come second, and this mixes them up
            by_tag = logits.reshape(len(pieces), TAGS, -1)
        else:
            by_tag = logits.transpose(1, 2)
        return functional.cross_entropy(by_tag, labels, weight=self.weights, ignore_index=IGNORED), logits

    def rate(self, step: int) -> float:
        config = self.config
        if config["schedule"] == "linear" and step >= config["warmup_steps"]:
            left = (config["steps"] - step) / (config["steps"] - config["warmup_steps"])
            return config["learning_rate"] * max(0.0, left)
        return config["learning_rate"] * factor(config, config["steps"], step)

    def one(self, step: int) -> None:
        rate = self.trouble.rate(step, self.rate(step))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with self.run.step(step=step) as timed:
            with self.run.phase("data"):
                pieces, labels = self.batch()
                self.watched.observe({"input_ids": pieces, "attention_mask": (pieces != 0).long(), "labels": labels},
                                     step=step, epoch=self.epoch)  # fmt: skip
            if self.trouble.clears(step):
                self.optimizer.zero_grad()
            loss, logits = self.loss(pieces, labels)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config["clip"])
            self.optimizer.step()
            hits = (logits.argmax(-1) == labels)[labels != IGNORED]
            timed.set(loss=loss.item(), lr=rate, norm=float(norm), epoch=self.epoch,
                      accuracy=hits.float().mean().item())  # fmt: skip

    @torch.no_grad()
    def evaluate(self, step: int) -> None:
        began = clock()
        self.model.eval()
        loss, logits = self.loss(*self.test)
        self.model.train()
        labels, said = self.test[1], logits.argmax(-1)
        names, found = (labels > 0), (said > 0) & (labels != IGNORED)
        right = (names & (said == labels)).sum()
        f1 = 2 * right / (names.sum() + found.sum()).clamp(min=1)
        self.run.log_eval(step, self.epoch, len(labels), (clock() - began) * 1000, loss.item(), f1=f1.item())

    def all_steps(self, steps: int) -> Any:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.watched = self.run.watch_data(pad_id=0)
        for step in range(steps):
            self.one(step)
            if step % EVERY == 0 or step == steps - 1:
                self.evaluate(step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Training(run, seed, trouble)
    trouble.spoil_model(made.model)
    return made.all_steps(steps)
