"""Skip advice: whether the optimizer should step on this batch, asked by the loop just before it steps.

In:   the step's loss and gradient norm.
Out:  an advice, in microseconds, with its reason.

OLMo's SkipStepOptimizer skips a step whose loss or norm lies 6 σ above the mean of the last 128, once 64 are known
(research of Ai2, olmo-core). Here the mean is a median and σ is the distance between the quartiles / 1.349, which one
spike moves little; norms are compared by their logarithms, for they are skewed; and a value that was advised against
does not join what later ones are compared with.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import Any, NamedTuple

_QUARTILES = 1.3489795  # distance of the quartiles of a normal distribution in σ
# A history as good as constant: smaller changes than these are nothing to skip a batch for. Ours.
_LEAST_LOSS_SIGMA = 0.005  # of the median
_LEAST_NORM_SIGMA = 0.02  # of a logarithm: 2 %


class Advice(NamedTuple):
    """True where the step should be skipped. `why` is a sentence, empty where it should not. `loss_sigmas`,
    `norm_sigmas`: robust σ above the median, NaN while too few are known."""

    skip: bool
    why: str = ""
    loss_sigmas: float = math.nan
    norm_sigmas: float = math.nan

    def __bool__(self) -> bool:
        return self.skip


class SkipAdvisor:
    """Knows the last `window` losses and norms. One for a training; not for two threads at once.

    window: steps to compare with. sigmas: how far above the median is too far. least: steps to know before a finite
    value is advised against. most_in_row: after this many in a row for finite values the training has changed
    and not the batch: the history begins anew. NaN and infinity are advised against always.

    With several ranks give values that all ranks share, such as a reduced loss and the norm of the whole gradient:
    ranks that disagree about a step wait for each other for ever.
    """

    def __init__(self, window: int = 128, sigmas: float = 6.0, least: int = 64, most_in_row: int = 8):
        if not 4 <= least <= window:
            raise ValueError(f"least must be from 4 to the window of {window}, not {least}")
        if not sigmas > 0 or most_in_row < 1:
            raise ValueError("sigmas and most_in_row must be above 0")
        self.window, self.sigmas, self.least, self.most_in_row = window, sigmas, least, most_in_row
        self.advised = 0  # steps advised against so far
        self._losses, self._norms = _Recent(window), _Recent(window)
        self._in_row = 0

    def advise(self, loss: Any = None, norm: Any = None) -> Advice:
        """Whether to skip the step with this loss and this gradient norm; either may be left out.

        Microseconds for Python's numbers; a tensor on a device is waited for. Never raises: what is not a number
        says nothing.
        """
        plain_loss, plain_norm = _plain(loss), _plain(norm)
        for name, value in (("loss", plain_loss), ("gradient norm", plain_norm)):
            if value is not None and not math.isfinite(value):
                self.advised += 1
                return Advice(True, f"the {name} is not finite")
        over_loss = over_norm = math.nan
        logarithm = None
        if plain_loss is not None and len(self._losses) >= self.least:
            over_loss = self._losses.sigmas(plain_loss, _LEAST_LOSS_SIGMA * abs(self._losses.median))
        if plain_norm is not None and plain_norm > 0:
            logarithm = math.log(plain_norm)
            if len(self._norms) >= self.least:
                over_norm = self._norms.sigmas(logarithm, _LEAST_NORM_SIGMA)
        if over_loss > self.sigmas or over_norm > self.sigmas:
            self._in_row += 1
            if self._in_row <= self.most_in_row:
                self.advised += 1
                return Advice(True, self._why(plain_loss, plain_norm, over_loss, over_norm), over_loss, over_norm)
            self._losses.clear()
            self._norms.clear()
        self._in_row = 0
        if plain_loss is not None:
            self._losses.add(plain_loss)
        if logarithm is not None:
            self._norms.add(logarithm)
        if over_loss == over_loss or over_norm == over_norm:
            return Advice(False, "", over_loss, over_norm)
        return _GO_ON

    def _why(self, loss: float | None, norm: float | None, over_loss: float, over_norm: float) -> str:
        parts = []
        if loss is not None and over_loss > self.sigmas:
            parts.append(f"the loss {loss:.4g} is {over_loss:.1f} σ above the median {self._losses.median:.4g}")
        if norm is not None and over_norm > self.sigmas:
            usual = math.exp(self._norms.median)
            parts.append(f"the gradient norm {norm:.4g} is {over_norm:.1f} σ above the median {usual:.4g}")
        return f"{' and '.join(parts)} of the last {max(len(self._losses), len(self._norms))} steps"


_GO_ON = Advice(False)


def _plain(value: Any) -> float | None:
    if value is None:
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except Exception:
        return None


class _Recent:
    """The last values, in the order of time and of size; the window is small and fixed, so all of it is O(1)."""

    __slots__ = ("_order", "_sorted", "_window")

    def __init__(self, window: int):
        self._window = window
        self._order: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._order)

    @property
    def median(self) -> float:
        return self._sorted[len(self._sorted) // 2] if self._sorted else math.nan

    def sigmas(self, value: float, least_sigma: float) -> float:
        """How many robust σ the value lies above the median; σ is at least `least_sigma`."""
        known = self._sorted
        count = len(known)
        spread = (known[(3 * count) // 4] - known[count // 4]) / _QUARTILES
        sigma = max(spread, least_sigma)
        over = value - known[count // 2]
        return over / sigma if sigma > 0 else (math.inf if over > 0 else 0.0)

    def add(self, value: float) -> None:
        if len(self._order) == self._window:
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]
        self._order.append(value)
        insort(self._sorted, value)

    def clear(self) -> None:
        self._order.clear()
        self._sorted.clear()
