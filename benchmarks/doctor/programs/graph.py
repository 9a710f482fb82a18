"""A graph convolution that tells what each node of a network belongs to: the whole graph is each step's one batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` at each epoch, which is one step: loss, train_acc, val_loss, val_acc; the model's watch.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, NODES, CLASSES, FEATURES = 1, 700, 5, 40
CONFIG: dict[str, Any] = {
    "width": 32, "layers": 2, "dropout": 0.5, "learning_rate": 3e-3, "weight_decay": 5e-3, "labelled": 300,
    "noise": 3.0, "clip": 0.0,
}  # fmt: skip


def network(seed: int, config: dict[str, Any], normalised: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Features, links with what they weigh, and classes: nodes of one class are linked more often."""
    dice, makers = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(6)
    classes = torch.randint(0, CLASSES, (NODES,), generator=dice)
    chance = torch.where(classes[:, None] == classes[None], 0.04, 0.012)
    links = (torch.rand(NODES, NODES, generator=dice) < chance).triu(1).float()
    links = links + links.T + torch.eye(NODES)
    if normalised:
        scale = links.sum(1).rsqrt()
        links = scale[:, None] * links * scale[None]
    middles = torch.randn(CLASSES, FEATURES, generator=makers)
    return middles[classes] + config["noise"] * torch.randn(NODES, FEATURES, generator=dice), links, classes


class Network(nn.Module):
    def __init__(self, config: dict[str, Any], probable: bool):
        super().__init__()
        widths = [FEATURES, *[config["width"]] * (config["layers"] - 1), CLASSES]
        self.layers = nn.ModuleList(nn.Linear(one, other) for one, other in pairwise(widths))
        self.dropout, self.probable = nn.Dropout(config["dropout"]), probable

    def forward(self, features: Tensor, links: Tensor) -> Tensor:
        x = features
        for number, layer in enumerate(self.layers):
            x = links @ layer(self.dropout(x))
            if number < len(self.layers) - 1:
                x = functional.relu(x)
        return x.softmax(1) if self.probable else x.log_softmax(1)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    config, trouble = dict(run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    features, links, classes = network(seed + 91, config, trouble.name != "links_not_normalised")
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(seed))
    labelled, held_out = order[: config["labelled"]], order[NODES // 2 :]
    if trouble.name == "rows_joined_wrongly":  # sorted by another column than the links
        features = features[torch.randperm(NODES, generator=trouble.dice)]
    model = Network(config, trouble.name == "chances_without_logarithm")
    trouble.spoil_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"], weight_decay=config["weight_decay"])
    if trouble.name == "optimizer_stale":
        model = copy.deepcopy(model)
    time_by_own_clock(run)
    run.watch(model, optimizer)
    for epoch in range(steps):
        optimizer.param_groups[0]["lr"] = rate = trouble.rate(epoch, config["learning_rate"])
        said = model(features, links)
        loss = functional.nll_loss(said[labelled], classes[labelled])
        if trouble.clears(epoch):
            optimizer.zero_grad()
            model.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            told = model(features, links)
        model.train()
        right = told.argmax(1) == classes
        run.log({"loss": loss.detach(), "train_acc": right[labelled].float().mean(),
                 "val_loss": functional.nll_loss(told[held_out], classes[held_out]),
                 "val_acc": right[held_out].float().mean(), "lr": rate}, step=epoch)  # fmt: skip
    return run
