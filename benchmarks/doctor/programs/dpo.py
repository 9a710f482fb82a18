"""Direct preference optimization: a decoder learns to prefer text of its language to text with wrong letters.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, with TRL's names: rewards/chosen, rewards/rejected, rewards/margins, rewards/accuracies, logps/….

The loss begins at ln 2, where the policy is the reference. Examples have lengths of their own.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop
from .language import Letters, pretrained
from .parts import Text

EVERY = 20
CONFIG: dict[str, Any] = {
    "width": 32, "heads": 2, "layers": 2, "length": 24, "dropout": 0.05, "batch_size": 16, "learning_rate": 4e-4,
    "warmup_steps": 10, "schedule": "cosine", "weight_decay": 0.0, "clip": 1.0, "beta": 0.2, "examples": 2400,
    "wrong_letters": 0.15,
}  # fmt: skip
PROMPT = 4


def preferences(seed: int, number: int, config: dict[str, Any]) -> loop.Batch:
    """Chosen and rejected (number, length + 1), their mask, and how many letters count."""
    dice = torch.Generator().manual_seed(seed)
    text = Text(seed, config["length"])
    inputs, targets = text.take(number)
    chosen = torch.cat([inputs, targets[:, -1:]], 1)
    lengths = torch.randint(8, config["length"] + 1, (number,), generator=dice)
    mask = torch.arange(1, config["length"] + 1) <= lengths[:, None]
    mask[:, :PROMPT] = False
    wrong = torch.rand(chosen.shape, generator=dice) < config["wrong_letters"]
    wrong[:, : PROMPT + 1] = False
    rejected = torch.where(wrong, torch.randint(1, 64, chosen.shape, generator=dice), chosen)
    unsure = torch.rand(number, generator=dice) < 0.12  # people disagree
    first = torch.where(unsure[:, None], rejected, chosen)
    return first, mask, torch.where(unsure[:, None], chosen, rejected)


class Preferring(loop.Task):
    every = EVERY
    names = {"loss": "loss", "norm": "grad_norm", "lr": "learning_rate", "epoch": "epoch"}  # noqa: RUF012

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = pretrained(config, language=12, steps=150)
        self.block = self.model.blocks[1]
        # a reference that is the policy itself, not its copy, moves with it
        same = trouble.name == "reference_is_policy"
        self.reference = self.model if same else copy.deepcopy(self.model).requires_grad_(False).eval()
        self.data = preferences(seed + 11, config["examples"], config)
        self.held_out = [preferences(991, 128, config)]
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.epoch = -1

    def batch(self, rows: int) -> loop.Batch:
        if len(self.order) < rows:
            self.epoch += 1
            self.order = torch.randperm(len(self.data[0]), generator=self.dice)
            if self.trouble.name == "data_by_length":
                self.order = self.data[1].sum(1).argsort(stable=True)
        chosen, self.order = self.order[:rows], self.order[rows:]
        return tuple(part[chosen] for part in self.data)

    def prepared(self, batch: loop.Batch) -> loop.Batch:
        chosen, mask, rejected = batch
        return (rejected, mask, chosen) if self.trouble.on("pairs_swapped", self.step) else batch

    def observed(self, batch: loop.Batch) -> Any:
        return {"input_ids": torch.cat([batch[0], batch[2]]), "attention_mask": functional.pad(
            torch.cat([batch[1], batch[1]]).long(), (1, 0), value=1)}  # fmt: skip

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        chosen, mask, rejected = batch
        both, masks = torch.cat([chosen, rejected]), torch.cat([mask, mask])
        mine = log_probability(model, both, masks)
        with torch.no_grad():
            theirs = log_probability(self.reference, both, masks)
        good, bad = (self.config["beta"] * (mine - theirs)).chunk(2)
        said = mine.detach().chunk(2)
        self.figures = {
            "rewards/chosen": good.detach().mean().item(), "rewards/rejected": bad.detach().mean().item(),
            "rewards/margins": (good - bad).detach().mean().item(),
            "rewards/accuracies": (good > bad).float().mean().item(),
            "logps/chosen": said[0].mean().item(), "logps/rejected": said[1].mean().item(),
        }  # fmt: skip
        return -functional.logsigmoid(good - bad)

    freeze_wrongly = Letters.freeze_wrongly


def log_probability(model: nn.Module, letters: Tensor, mask: Tensor) -> Tensor:
    """Of each row's counted letters."""
    chances = model(letters[:, :-1]).log_softmax(-1)
    return (chances.gather(-1, letters[:, 1:, None])[..., 0] * mask).sum(1)


train = partial(loop.train, Preferring)
