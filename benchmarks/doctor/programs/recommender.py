"""A recommender: embeddings of people and films and a small network say whether somebody watches a film.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by plain `run.log` once an epoch: train_loss, val_loss, val_auc, hit_rate@10, lr. Nothing watches the
      model.

What somebody watched is known, what they would not watch is drawn at random: two films for each that was watched,
anew in each epoch. One in six of all views is held out.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, PEOPLE, FILMS, TASTES = 1, 400, 240, 4
CONFIG: dict[str, Any] = {
    "factors": 12, "hidden": 24, "batch_size": 256, "learning_rate": 3e-3, "schedule": "cosine", "weight_decay": 0.3,
    "negatives": 2, "dropout": 0.1, "examples": 7000, "popularity": 0.5, "by_chance": 0.1,
}  # fmt: skip


def views(seed: int, config: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Pairs of a person and a film, each once; who likes what is the same for all seeds."""
    laws, dice = torch.Generator().manual_seed(19), torch.Generator().manual_seed(seed)
    people, films = torch.randn(PEOPLE, TASTES, generator=laws), torch.randn(FILMS, TASTES, generator=laws)
    liking = 2 * people @ films.T + 2 * config["popularity"] * torch.randn(FILMS, generator=laws)
    chances = (liking - 5).sigmoid().flatten()
    chances = (1 - config["by_chance"]) * chances / chances.sum() + config["by_chance"] / liking.numel()
    chosen = torch.multinomial(chances, config["examples"], generator=dice)
    return chosen // FILMS, chosen % FILMS


class Recommender(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        factors, hidden = config["factors"], config["hidden"]
        self.people, self.films = nn.Embedding(PEOPLE, factors), nn.Embedding(FILMS, factors)
        self.bias = nn.Embedding(FILMS, 1)
        self.mlp = nn.Sequential(nn.Linear(2 * factors, hidden), nn.ReLU(), nn.Dropout(config["dropout"]),
                                 nn.Linear(hidden, 1))  # fmt: skip
        for embedding in (self.people, self.films, self.bias):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, person: Tensor, film: Tensor) -> Tensor:
        one, other = self.people(person), self.films(film)
        deep = self.mlp(torch.cat([one.expand_as(other), other], -1))[..., 0]
        return (one * other).sum(-1) + self.bias(film)[..., 0] + deep


class Data:
    """Views to train on and views that are held out, each of these beside films that nobody said anything of."""

    def __init__(self, config: dict[str, Any], seed: int, name: str):
        self.dice, self.many = torch.Generator().manual_seed(seed), config["negatives"]
        person, film = views(seed + 41, config)
        held = torch.rand(len(person), generator=self.dice) < 1 / 6
        self.person, self.film, self.test_person, self.test_film = person[~held], film[~held], person[held], film[held]
        self.watched = torch.zeros(PEOPLE, FILMS, dtype=torch.bool)
        self.watched[person, film] = True
        self.others = self.unwatched(self.test_person, self.many)
        self.ranked = self.unwatched(self.test_person[:400], 60)
        self.name, self.kept = name, self.unwatched(self.person, self.many)
        if name == "ids_encoded_apart":  # each table has numbers of its own, in the order in which films come
            order = torch.unique(self.test_film, sorted=True)[torch.randperm(
                len(torch.unique(self.test_film)), generator=self.dice)]  # fmt: skip
            numbers = torch.zeros(FILMS, dtype=torch.long)
            numbers[order] = torch.arange(len(order))
            self.test_film, self.others, self.ranked = (
                numbers[some] for some in (self.test_film, self.others, self.ranked)
            )

    def unwatched(self, person: Tensor, many: int) -> Tensor:
        """Films (len(person), many) that somebody has not watched."""
        drawn = torch.randint(0, FILMS, (len(person), many), generator=self.dice)
        for _ in range(6):
            bad = self.watched[person[:, None], drawn]
            drawn = torch.where(bad, torch.randint(0, FILMS, drawn.shape, generator=self.dice), drawn)
        return drawn

    def epoch(self) -> tuple[Tensor, Tensor, Tensor]:
        """Persons, films and labels, shuffled."""
        other = self.unwatched(self.person, self.many)
        if self.name == "negatives_drawn_once":
            other = self.kept
        person = torch.cat([self.person, self.person.repeat_interleave(self.many)])
        film = torch.cat([self.film, other.flatten()])
        labels = torch.cat([torch.ones(len(self.person)), torch.zeros(other.numel())])
        if self.name == "negatives_forgotten":
            person, film, labels = self.person, self.film, torch.ones(len(self.person))
        order = torch.randperm(len(person), generator=self.dice)
        return person[order], film[order], labels[order]


def evaluated(model: Recommender, data: Data) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        right, wrong = model(data.test_person, data.test_film), model(data.test_person[:, None], data.others)
        loss = (functional.softplus(-right).sum() + functional.softplus(wrong).sum()) / (len(right) + wrong.numel())
        ranks = (model(data.test_person[:400, None], data.ranked) >= right[:400, None]).sum(1)
    model.train()
    return {"val_loss": float(loss), "val_auc": (right[:, None] > wrong).float().mean().item(),
            "hit_rate@10": (ranks < 10).float().mean().item()}  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run. A step of the run is an epoch."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    data, model = Data(config, seed, trouble.name), Recommender(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["learning_rate"], weight_decay=config["weight_decay"])
    rows = int(config["batch_size"])
    time_by_own_clock(run)
    for epoch in range(steps):
        rate = config["learning_rate"]
        if config["schedule"] == "cosine":
            rate *= 0.5 * (1 + math.cos(math.pi * epoch / steps))
        for group in optimizer.param_groups:
            group["lr"] = trouble.rate(epoch, rate)
        losses, (person, film, labels) = [], data.epoch()
        if trouble.on("validation_leak", epoch):  # what is held out has been joined to what is trained on
            person, film = torch.cat([data.test_person, person]), torch.cat([data.test_film, film])
            labels = torch.cat([torch.ones(len(data.test_person)), labels])
            order = torch.randperm(len(person), generator=trouble.dice)
            person, film, labels = person[order], film[order], labels[order]
        for chosen in torch.arange(len(person)).split(rows):
            loss = functional.binary_cross_entropy_with_logits(model(person[chosen], film[chosen]), labels[chosen])
            if trouble.clears(epoch):
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        run.log({"train_loss": sum(losses) / len(losses), "lr": rate, "epoch": epoch} | evaluated(model, data),
                step=epoch)  # fmt: skip
    return run
