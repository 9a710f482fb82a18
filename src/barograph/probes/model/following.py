"""How an average of the weights moves from one evaluation to the next.

In:   some elements of the copy that evaluations are made with, and of what is trained, when steps begin.
Out:  figures beside those of the evaluation: in how many steps the copy was written, what share of it is left of what
      it was at the evaluation before, and whether it was written behind the evaluation's passes alone. Nothing waits.

An average takes the share s of the newest weights each time it is updated: it moves by s of the way to them, and 1 - s
of it is left. A copy that moves otherwise is none, and nothing is said of what is left. Weights that are put into the
trained model for the time can't be followed from step to step, nor an average in 16 bits, which rounds: there is what
they have moved from one evaluation to the next.

Of a copy's first evaluation there is what became of it since the training began: how often its parameters counted a
change in place, what share of the way to the newest weights it has come, and how far it was from the trained ones when
it was found.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_CLOSE, _OFTEN = 48, 3  # steps with a write, one of three or more: the others are taken to be alike
_ENOUGH = _CLOSE * _OFTEN  # steps on a device, of which the CPU does not know whether they have a write
_OFF = 0.02  # of the squared move, what may be off the way to the newest weights
_ONCE = 1e-4  # the same, of a single move between two evaluations
_LITTLE = 0.1  # of the way to the newest weights
_COPIES = 4  # whose beginning is kept
NAMES = ("writes", "kept", "behind")
BEGUN = ("begun_writes", "begun_way", "begun_off", "begun_apart")


class FollowedAverage:
    """Follows one copy from an evaluation to the next."""

    def __init__(self, weights: Tensor):
        self._last = weights  # when the step before began
        self._left: Any = None
        self._steps = self._seen = 0
        self._writes: Any = 0  # a tensor on a device: functions over many tensors are counted by none of these there

    def step(self, sample: Callable[[], Tensor], newest: Callable[[], Tensor]) -> None:
        """A step begins. newest: the weights that the step before has left."""
        import torch

        self._steps += 1
        elsewhere = self._last.device.type != "cpu"
        if self._seen >= _ENOUGH if elsewhere else self._writes >= _CLOSE and _OFTEN * self._writes >= self._seen:
            return
        self._seen += 1
        now = sample()
        if not elsewhere and torch.equal(now, self._last):
            return
        share, fits = _share(now - self._last, newest() - self._last, _OFF)
        left = torch.where(fits, (1 - share).clamp(0.0, 1.0), torch.full_like(share, torch.nan))
        written = (now != self._last).any()
        left = torch.where(written, left, torch.ones_like(left))
        self._writes = self._writes + (written.to(left.dtype) if elsewhere else 1)
        self._left = left if self._left is None else self._left * left
        self._last = now

    def figures(self, passed: Tensor, sample: Callable[[], Tensor], newest: Callable[[], Tensor]) -> Tensor:
        """Of the step behind an evaluation, whose first pass was made with `passed`: what happened since the evaluation
        before; from here on the next one is prepared."""
        import torch

        before, count = self._last, self._writes
        self.step(sample, newest)
        behind = ((passed == before).all() & (self._last != passed).any()).float() * (self._writes > count)
        scale = self._steps / max(1, self._seen)
        left = torch.ones_like(behind) if self._left is None else self._left**scale
        writes = torch.zeros_like(behind) + self._writes * scale
        found: Tensor = torch.stack((writes, left.nan_to_num(-1.0), behind))
        self._left, self._steps, self._seen, self._writes = None, 0, 0, 0
        return found


class BegunCopies:
    """Copies of a model as they were when they were found, up to the first evaluation of each."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[Any, tuple[list[int], Tensor, Tensor]] = weakref.WeakKeyDictionary()

    def made(
        self, copy: Any, items: Callable[[], list[Any]], sample: Callable[[], Tensor], newest: Callable[[], Tensor]
    ) -> None:
        """A copy is found. items: some of its parameters; sample: some of their elements; newest: the trained ones."""
        with contextlib.suppress(Exception):
            if len(self._kept) < _COPIES:
                now, trained = sample(), newest()
                apart = (now - trained).norm() / trained.norm().clamp_min(1e-30)
                self._kept[copy] = [one._version for one in items()], now, apart

    def figures(
        self, copy: Any, items: Callable[[], list[Any]], passed: Tensor | None, newest: Callable[[], Tensor]
    ) -> Tensor | None:
        """`BEGUN`, at the first evaluation of a copy, whose passes were made with `passed`: how often a parameter of it
        was changed since it was found, which share of the way it has come, what of its squared move is off that, and
        how far from the trained weights it was when it was found, of their size."""
        import torch

        kept = self._kept.pop(copy, None) if copy is not None and passed is not None else None
        if kept is None or passed is None:
            return None
        versions, then, apart = kept
        changes = max(one._version - before for one, before in zip(items(), versions, strict=True))
        move, line = passed - then, newest() - then
        way = share_of_way(move, line)
        off = (move - way * line).square().sum() / move.square().sum().clamp_min(1e-30)
        return torch.stack((torch.full_like(way, float(changes)), way.clamp(0.0, 2.0), off, apart))


def moved_between(then: Tensor, evaluated: Tensor, newest: Tensor) -> Tensor:
    """The figures of weights that nothing could follow, from one evaluation to the next. Where one move brought them
    here, what is left; else, where they have come a small part of the way to the newest weights, at most a tenth, what
    is left at least, if the trained ones went that way throughout: writes are unknown then, -1."""
    import torch

    share, fits = _share(evaluated - then, newest - then, _ONCE)
    blank, moved = torch.full_like(share, -1.0), (evaluated != then).any()
    once = fits & moved
    little = (share >= 0) & (share <= _LITTLE) & moved
    left = torch.where(once, (1 - share).clamp(0.0, 1.0), torch.where(little, 1 - 2 * share, blank))
    return torch.stack((torch.where(once, -blank, blank), left, torch.zeros_like(share)))


def share_of_way(move: Tensor, way: Tensor) -> Tensor:
    """Which share of the way a move is."""
    found: Tensor = (move * way).sum() / way.square().sum().clamp_min(1e-30)
    return found


def _share(move: Tensor, way: Tensor, off: float) -> tuple[Tensor, Tensor]:
    """Which share of the way a move is, and whether it is along it."""
    share = share_of_way(move, way)
    return share, (move - share * way).square().sum() <= off * move.square().sum()
