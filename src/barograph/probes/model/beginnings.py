"""How much of their beginnings the texts of a batch have in common, which come from a file in its sorted order.

In:   tokens of the training's passes, with a row an example.
Out:  figures for the `model` record, computed on the device from a few rows; nothing waits.

In a sorted file a row begins as the one before it, also where that was the last one of the batch before, and less as
one half a batch away; and rows of steps that are far apart begin otherwise. Of what all rows begin with, as a heading,
neighbours have as much in common as any two. Padding ahead of a text is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_ROWS, _LONGEST = 16, 64  # rows of a batch, and tokens of each
_LEAST = 8  # rows
_FAR = 16  # steps from the batch that others are compared with
_LOOKS = 48
_BORDERS = 5  # between batches of steps in a row
FIGURES = ("next", "half", "border", "far")


class Beginnings:
    """Compares rows with their neighbours, with the row before the batch, and with those of the first batch."""

    def __init__(self) -> None:
        self._first: Tensor | None = None  # rows of the first batch
        self._last: Tensor | None = None  # the last row of the newest batch
        self._began = self._before = -1  # their steps
        self._now: tuple[Tensor, Tensor] | None = None  # figures, and the last row
        self._borders: list[float] = []
        self._looks = 0

    def trained(self, rows: Tensor) -> None:
        """A pass of the training."""
        import torch

        if self._looks >= _LOOKS or rows.is_floating_point() or rows.dim() != 2 or len(rows) < _LEAST:
            return
        lines = rows.detach()[-_ROWS:, :_LONGEST].clone()
        half = len(lines) // 2
        own = lines.new_full((), -1, dtype=torch.double)
        self._now = torch.stack([
            _common(lines[1:], lines[:-1]), _common(lines[half:], lines[: len(lines) - half]),
            own if self._last is None else _common(rows.detach()[:1, :_LONGEST], self._last),
            own if self._first is None else _common(lines, self._first),
        ]), lines[-1:]  # fmt: skip
        if self._first is None:
            self._first = lines

    def trained_no_more(self) -> None:
        """No gradient reached the pass."""
        self._now = None

    def put(self, current: ModelRound, step: int) -> None:
        """A step begins. step: how many there were before it, looked at or not."""
        now, self._now = self._now, None
        if now is None:
            return
        self._looks += 1
        self._began = step if self._began < 0 else self._began
        figures, last = now
        if step != self._before + 1:
            figures[2] = -1
        if step < self._began + _FAR:
            figures[3] = -1
        self._last, self._before = last, step
        current.put("beginnings", FIGURES, figures)

    def fields_of(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step, in the order of steps."""
        if "beginnings" not in numbers:
            return {}
        found = dict(zip(FIGURES, map(float, numbers["beginnings"][1][0]), strict=True))
        if (border := found.pop("border")) >= 0:
            self._borders.append(border)
        if found["far"] < 0 or len(self._borders) < _BORDERS or not all(map(math.isfinite, found.values())):
            return {}
        found["border"] = sum(self._borders) / len(self._borders)
        return {f"beginnings_{name}": value for name, value in found.items()}


def _common(some: Tensor, others: Tensor) -> Tensor:
    """How many tokens rows begin with that others do, in the mean, where these are not their first one again."""
    count, length = min(len(some), len(others)), min(some.shape[1], others.shape[1])
    one, other = some[:count, :length], others[:count, :length]
    same = (one == other).long().cumprod(1) * (one != one[:, :1]).long()
    return same.sum(1).double().mean()
