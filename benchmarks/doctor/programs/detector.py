"""A detector: one box, one class and whether there is anything, for each cell of a picture, with batch norm.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss, obj_loss, box_loss, cls_loss, iou, grad_norm, lr, epoch, eval_loss, eval_iou.

Pictures have one to three things of three kinds on a ground with noise; half of them are flipped as they are drawn.
Boxes are centre, width and height, in shares of the picture.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop

EVERY, SIDE, CELLS, KINDS = 20, 24, 6, 3
CONFIG: dict[str, Any] = {
    "channels": 16, "batch_size": 24, "learning_rate": 4e-3, "warmup_steps": 10, "schedule": "cosine",
    "weight_decay": 1e-3, "clip": 5.0, "examples": 1600, "box_weight": 5.0, "noise": 0.2, "empty": 0.0,
    "dropout": 0.0,
}  # fmt: skip
Found = tuple[Tensor, Tensor, Tensor, Tensor]  # pictures, whether a cell has a thing, its box, its kind


def pictures(seed: int, number: int, noise: float, empty: float) -> Found:
    dice = torch.Generator().manual_seed(seed)
    drawn = noise * torch.randn(number, 1, SIDE, SIDE, generator=dice)
    there, boxes = torch.zeros(number, CELLS, CELLS), torch.zeros(number, CELLS, CELLS, 4)
    kinds = torch.zeros(number, CELLS, CELLS, dtype=torch.long)
    across = torch.arange(SIDE)
    draws = torch.randint(0, 10**6, (number, 3, 5), generator=dice).tolist()
    skipped, many = torch.rand(number, generator=dice) < empty, torch.randint(1, 4, (number,), generator=dice)
    for row, (things, none, most) in enumerate(zip(draws, skipped.tolist(), many.tolist(), strict=True)):
        for kind, width, height, left, top in things[: 0 if none else most]:
            kind, width, height = kind % KINDS, 4 + width % 6, 4 + height % 6
            left, top = left % (SIDE - width), top % (SIDE - height)
            x, y = left + width / 2, top + height / 2
            cell = int(y * CELLS / SIDE), int(x * CELLS / SIDE)
            if there[row][cell]:
                continue
            inside = (across >= left) & (across < left + width), (across >= top) & (across < top + height)
            shape = (inside[1][:, None] & inside[0]).float()
            if kind == 1:  # a frame
                edge = ((across == left) | (across == left + width - 1), (across == top) | (across == top + height - 1))
                shape *= (edge[1][:, None] | edge[0]).float()
            drawn[row, 0] += shape * (-1.0 if kind == 2 else 1.0)
            there[(row, *cell)], kinds[(row, *cell)] = 1.0, kind
            boxes[(row, *cell)] = torch.tensor([x, y, width, height]) / SIDE
    return drawn, there, boxes, kinds


def flipped(batch: Found, which: Tensor, wrong: bool) -> Found:
    """Some pictures mirrored, with what is in them."""
    drawn, there, boxes, kinds = batch
    drawn = torch.where(which[:, None, None, None], drawn.flip(3), drawn)
    if wrong:
        return drawn, there, boxes, kinds
    other = torch.cat([1 - boxes[..., :1], boxes[..., 1:]], -1) * there[..., None]
    one = which[:, None, None]
    return (drawn, torch.where(one, there.flip(2), there), torch.where(one[..., None], other.flip(2), boxes),
            torch.where(one, kinds.flip(2), kinds))  # fmt: skip


def corners(boxes: Tensor) -> Tensor:
    centre, size = boxes.chunk(2, -1)
    return torch.cat([centre - size / 2, centre + size / 2], -1)


def overlap(one: Tensor, other: Tensor) -> Tensor:
    """Intersection over union of boxes (n, 4)."""
    a, b = corners(one), corners(other)
    common = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp(min=0).prod(-1)
    return common / (one[:, 2:].prod(-1) + other[:, 2:].prod(-1) - common).clamp(min=1e-6)


class Detector(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        wide = config["channels"]
        sizes = ((1, wide, 1), (wide, wide, 2), (wide, 2 * wide, 1), (2 * wide, 2 * wide, 2), (2 * wide, 2 * wide, 1))
        self.backbone = nn.Sequential(*(
            nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.SiLU())
            for before, after, stride in sizes
        ))  # fmt: skip
        self.dropout = nn.Dropout(config["dropout"])
        self.objectness, self.kind = nn.Conv2d(2 * wide, 1, 1), nn.Conv2d(2 * wide, KINDS, 1)
        self.box = nn.Sequential(nn.Conv2d(2 * wide, wide, 3, padding=1), nn.SiLU(), nn.Conv2d(wide, 4, 1))
        nn.init.constant_(self.objectness.bias, -2.5)  # few cells have anything
        self.register_buffer("middle", (torch.arange(CELLS) + 0.5) / CELLS)

    def forward(self, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of each cell: a logit, a box in shares of the picture, logits of kinds."""
        x = self.dropout(self.backbone(drawn))
        box = self.box(x).permute(0, 2, 3, 1)
        grid = torch.stack([self.middle.expand(CELLS, -1), self.middle[:, None].expand(-1, CELLS)], -1)
        box = torch.cat([grid + box[..., :2].tanh() / CELLS, box[..., 2:].sigmoid()], -1)
        return self.objectness(x)[:, 0], box, self.kind(x).permute(0, 2, 3, 1)


class Detecting(loop.Task):
    every = EVERY
    names = {"loss": "loss", "norm": "grad_norm", "lr": "lr", "epoch": "epoch"}  # noqa: RUF012
    watched: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = Detector(config)
        if trouble.name == "stale_statistics":
            for module in self.model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.momentum = 0.0
        self.block = self.model.backbone[2]
        self.data = pictures(seed + 21, config["examples"], config["noise"], config["empty"])
        self.held_out = [pictures(212, 160, config["noise"], config["empty"])]
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.epoch = -1

    def batch(self, rows: int) -> loop.Batch:
        if len(self.order) < rows:
            self.order, self.epoch = torch.randperm(len(self.data[0]), generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        which = torch.rand(rows, generator=self.dice) < 0.5
        batch: Any = tuple(part[chosen] for part in self.data)
        return flipped(batch, which, wrong=self.trouble.name == "boxes_not_flipped")

    def prepared(self, batch: loop.Batch) -> loop.Batch:
        drawn, there, boxes, kinds = batch
        if self.trouble.name == "boxes_in_pixels":  # as they are in the annotations
            boxes = boxes * SIDE
        if self.trouble.name == "boxes_as_corners":  # the data have them so, the loss has centre and size
            boxes = corners(boxes)
        return drawn, there, boxes, kinds

    def evaluated(self, batch: loop.Batch) -> loop.Batch:
        if self.trouble.name == "held_out_unscaled":  # bytes, as they are read from a file
            return 127.5 + 127.5 * batch[0], *batch[1:]
        return batch

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        """Of each picture."""
        drawn, there, boxes, kinds = batch
        things, box, kind = model(drawn)
        has, number = there.bool(), there.sum((1, 2)).clamp(min=1)
        found = functional.binary_cross_entropy_with_logits(things, there, reduction="none").sum((1, 2)) / number
        apart = (box - boxes).abs().sum(-1)
        if self.trouble.name == "background_counted":  # cells without a thing have a box of zeros
            placed = apart.mean((1, 2))
        else:
            placed = (apart * there).sum((1, 2)) / number
        named = functional.cross_entropy(kind.permute(0, 3, 1, 2), kinds, reduction="none")
        named = (named * there).sum((1, 2)) / number
        self.figures = {
            "obj_loss": found.detach().mean().item(), "box_loss": placed.detach().mean().item(),
            "cls_loss": named.detach().mean().item(), "iou": overlap(box.detach()[has], boxes[has]).mean().item(),
        }  # fmt: skip
        if self.trouble.name == "box_term_detached":  # added up as the number that is logged
            placed = placed.detach()
        return found + self.config["box_weight"] * placed + named

    def observed(self, batch: loop.Batch) -> Any:
        return batch[0].flatten(1), batch[2].flatten(1)


train = partial(loop.train, Detecting)
