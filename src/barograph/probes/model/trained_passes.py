"""Which of a step's forward passes a gradient comes back to: others, as of an evaluation with gradients, train nothing.

In:   the outputs of passes.
Out:  whether a pass is one of the training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barograph.probes.model.activations import parts_of
from barograph.probes.model.guest import Guest

_TENSORS = 4  # of an output


class TrainedPasses:
    """The passes of a step that were looked at, by their number."""

    def __init__(self) -> None:
        self._taken = 0
        self._now = -1  # the pass that is running; -1 where it is not looked at
        self._followed: set[int] = set()
        self._reached: set[int] = set()

    def begin(self) -> None:
        """A pass begins."""
        self._now = -1

    def take(self) -> int:
        """The pass is looked at: its number."""
        self._now = self._taken
        self._taken += 1
        return self._now

    def follow(self, output: Any) -> None:
        """The output of the pass."""
        number, reached = self._now, self._reached
        self._now = -1
        if number < 0:
            return
        tensors = [one for one in (output, *parts_of(output)) if getattr(one, "requires_grad", False)]
        for tensor in tensors[:_TENSORS]:
            tensor.register_hook(Guest(lambda _: reached.add(number)))
        if tensors:
            self._followed.add(number)

    def kept(self, most: int) -> Callable[[int], bool]:
        """Whether a pass is one of the training. Where no gradient came to any output, though no more passes were made
        than are looked at (most), the loss is made of something else than outputs: all of them are."""
        if not self._reached and self._taken < most:
            return lambda number: True
        left_out = self._followed - self._reached
        return lambda number: number not in left_out


def left_out(before: int, passes: int, due: bool, reached: bool) -> int:
    """How many of a step's first passes the next look at one pass leaves out.

    before: how many this one did. passes: that the step had. due: the look was not made. reached: a gradient came to
    the pass that was looked at: to one whose output is not used none comes, and the next one is looked at."""
    if not passes or (reached and not due):
        return before
    return 0 if due else (before + 1) % passes
