"""A U-Net that marks drawn objects in noisy pictures, pixel by pixel: batch norm, flips, cross-entropy and Dice.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`, with the mean intersection over union of the objects' classes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop

EVERY, SIDE, CLASSES = 20, 24, 3
CONFIG: dict[str, Any] = {
    "channels": 8, "dropout": 0.05, "batch_size": 12, "learning_rate": 4e-3, "warmup_steps": 10, "schedule": "cosine",
    "weight_decay": 1e-3, "clip": 1.0, "examples": 900, "noise": 0.4, "objects": 3, "largest": 10,
}  # fmt: skip


def pictures(seed: int, number: int, config: dict[str, Any]) -> loop.Batch:
    """Pictures (number, 1, SIDE, SIDE) and their masks: 0 is the background, 1 a disc, 2 a square."""
    dice = torch.Generator().manual_seed(seed)
    masks = torch.zeros(number, SIDE, SIDE, dtype=torch.long)
    rows, columns = torch.arange(SIDE)[:, None], torch.arange(SIDE)[None]
    for _ in range(config["objects"]):
        size = torch.randint(3, config["largest"] + 1, (number, 1, 1), generator=dice)
        top, left = (torch.randint(0, SIDE - 3, (number, 1, 1), generator=dice) for _ in range(2))
        kind = torch.randint(1, CLASSES, (number, 1, 1), generator=dice)
        away = (rows - top - (size - 1) / 2) ** 2 + (columns - left - (size - 1) / 2) ** 2
        square = (rows >= top) & (rows < top + size) & (columns >= left) & (columns < left + size)
        inside = torch.where(kind == 1, away <= size**2 / 4, square)
        masks = torch.where(inside, kind, masks)
    shade = torch.tensor([0.0, 0.8, 1.1])[masks] + 0.3 * torch.randn(number, 1, 1, generator=dice)
    return (shade + config["noise"] * torch.randn(masks.shape, generator=dice))[:, None], masks


class Double(nn.Sequential):
    def __init__(self, inputs: int, outputs: int):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
        )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["channels"]
        self.down1, self.down2, self.middle = Double(1, width), Double(width, 2 * width), Double(2 * width, 4 * width)
        self.widen2, self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), Double(4 * width, 2 * width)
        self.widen1, self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2), Double(2 * width, width)
        self.dropout, self.head = nn.Dropout(config["dropout"]), nn.Conv2d(width, CLASSES, 1)

    def forward(self, images: Tensor) -> Tensor:
        first = self.down1(images)
        second = self.down2(functional.max_pool2d(first, 2))
        x = self.dropout(self.middle(functional.max_pool2d(second, 2)))
        x = self.up2(torch.cat([self.widen2(x), second], 1))
        x = self.up1(torch.cat([self.widen1(x), first], 1))
        return self.head(x)


class Segmenting(loop.Task):
    every = EVERY

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = UNet(config)
        self.block = self.model.middle
        self.data = pictures(seed + 31, config["examples"], config)
        self.held_out = [pictures(616, 48, config) for _ in range(2)]
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.epoch = -1

    def batch(self, rows: int) -> loop.Batch:
        if len(self.order) < rows:
            self.order, self.epoch = torch.randperm(len(self.data[0]), generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        return self.data[0][chosen], self.data[1][chosen]

    def prepared(self, batch: loop.Batch) -> loop.Batch:
        """Each picture is flipped by chance, and its mask with it."""
        images, masks = batch
        for axis in (-1, -2):
            flipped = torch.rand(len(images), generator=self.dice) < 0.5
            images = torch.where(flipped[:, None, None, None], images.flip(axis), images)
            if self.trouble.name != "masks_not_flipped":
                masks = torch.where(flipped[:, None, None], masks.flip(axis), masks)
        return images, masks

    def observed(self, batch: loop.Batch) -> Any:
        return batch[0].flatten(1), batch[1].flatten(1)

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        """Of each picture: the mean cross-entropy of its pixels, and one minus the Dice of its objects."""
        images, masks = batch
        logits = model(images)
        axis = 2 if self.trouble.name == "softmax_over_pixels" else 1
        ignored = 0 if self.trouble.name == "background_ignored" else -100
        likely = logits.log_softmax(axis)
        counted = (masks != ignored).float()
        entropy = functional.nll_loss(likely, masks, ignore_index=ignored, reduction="none")
        entropy = entropy.sum((1, 2)) / counted.sum((1, 2)).clamp(min=1)
        there = functional.one_hot(masks, CLASSES).movedim(-1, 1)[:, 1:] * counted[:, None]
        said = likely.exp()[:, 1:] * counted[:, None]
        dice = (2 * (said * there).sum((2, 3)) + 1) / (said.sum((2, 3)) + there.sum((2, 3)) + 1)
        best = logits.argmax(1)
        both = torch.stack([((best == one) & (masks == one)).sum() for one in range(1, CLASSES)])
        either = torch.stack([((best == one) | (masks == one)).sum() for one in range(1, CLASSES)])
        self.figures["iou"] = float((both / either.clamp(min=1)).mean())
        return entropy + 0.5 * (1 - dice.mean(1))


train = partial(loop.train, Segmenting)
