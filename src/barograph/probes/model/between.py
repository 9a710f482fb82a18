"""Rows of the steps between two looks: what is trained on there is remembered as what is looked at is.

In:   inputs of forward passes of steps that are not looked at.
Out:  a copy of some rows of each, until the next look or the next evaluation; then all of one form together, of the
      passes that a gradient came to. A copy is one call in its step; what is computed of the rows takes as many calls
      for ten steps as for one.

What the training was given before an evaluation counts, and what it is given behind it does not: examples may be
evaluated first and then trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

_ROWS, _PASSES = 32, 4  # of a pass; of a step
_BYTES = 1 << 23  # of all copies
_KEPT = 1 << 15  # rows in all: then no more are copied


class RowsTogether(NamedTuple):
    """Copies of rows. numbers: given beside them, or None. steps: how many steps ago each one was trained on."""

    rows: Tensor
    numbers: Tensor | None
    steps: list[int]


class _Copy(NamedTuple):
    number: int  # of its pass
    step: int
    rows: Tensor
    numbers: Tensor | None


class RowsBetween:
    """Copies of rows of a training, in the order of its steps."""

    def __init__(self) -> None:
        self._now: list[_Copy] = []  # of the step that runs
        self._waiting: list[_Copy] = []
        self._step = self._count = self._bytes = 0

    @property
    def is_wanted(self) -> bool:
        """Whether more rows are."""
        return self._count < _KEPT

    def given(self, number: int, tensor: Tensor, beside: Tensor | None) -> None:
        """The rows of a pass. number: of the pass, in its step."""
        if len(self._now) >= _PASSES or self._bytes + _size(tensor[:_ROWS]) + _size(beside) > _BYTES:
            return
        rows = tensor.detach()[:_ROWS].clone()
        numbers = None if beside is None else beside.detach()[:_ROWS].clone()
        self._now.append(_Copy(number, self._step, rows, numbers))
        self._bytes += _size(rows) + _size(numbers)

    def ended(self, kept: Callable[[int], bool]) -> None:
        """The step is over. kept: whether a pass is one of the training."""
        some = [one for one in self._now if kept(one.number)]
        self._bytes -= sum(_size(one.rows) + _size(one.numbers) for one in self._now if not kept(one.number))
        self._waiting, self._now = self._waiting + some, []

    def rested(self) -> None:
        """A step begins."""
        self._step += 1

    def take(self) -> list[RowsTogether]:
        """Those of the steps that are over, all of one form together."""
        import torch

        forms: dict[object, list[_Copy]] = {}
        for one in self._waiting:
            beside = None if one.numbers is None else (one.numbers.shape[1:], one.numbers.dtype)
            forms.setdefault((one.rows.shape[1:], one.rows.dtype, one.rows.device, beside), []).append(one)
        self._waiting, self._bytes = [], sum(_size(one.rows) + _size(one.numbers) for one in self._now)
        found = []
        for some in forms.values():
            numbers = [one.numbers for one in some if one.numbers is not None]
            steps = [self._step - one.step for one in some for _ in range(len(one.rows))]
            self._count += len(steps)
            found.append(
                RowsTogether(torch.cat([one.rows for one in some]), torch.cat(numbers) if numbers else None, steps)
            )
        return found


def _size(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel() * tensor.element_size()
