"""A loss column made ready for a forecast: in order, finite, batch noise in hand; or the reason why not.

In:   columns of step and loss, up to millions of rows.
Out:  a `LossCurve` of a few hundred means, or a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from barograph.core.text import number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

BUCKETS = 160
# Rows that a law with four free numbers needs at the least, to have some left that can contradict it.
LEAST_ROWS = 24
# For a run that ends in NaN, or has this many of them, there is no forecast.
MOST_LOST = 0.2
# Numbers of this size are not steps, losses or rates, and their squares would not be numbers: they count as not finite.
BEYOND = 1e30
# A value farther than this many deviations from its bucket's median is drawn in: spikes are not the curve.
SPIKE = 4.0
# The loss counts as rising if its level is this part of itself above its own lowest level…
RISEN = 0.08
# … and the rise is this many times the error of the two levels.
SURELY = 5.0


@dataclass(frozen=True, eq=False)
class LossCurve:
    """Means of buckets of equal numbers of rows. step, loss [b]; rows: in a bucket; spacing: steps from row to row.

    now: the last step seen. noise: standard deviation of one row about the curve, 1.4826 · median |difference| / √2.
    spikes: rows that were drawn in.
    """

    step: Floats
    loss: Floats
    rows: int
    spacing: float
    now: float
    noise: float
    spikes: int

    @property
    def level(self) -> float:
        """The loss now without batch noise: the median of the last tenth."""
        return float(np.median(self.loss[-max(3, len(self.loss) // 10) :]))


def columns(step: ArrayLike, loss: ArrayLike) -> tuple[Floats, Floats] | str:
    """step, loss [n] in order of steps, of equal steps the last, non-finite rows left out; or why not.

    Raises ValueError for columns of different lengths.
    """
    steps, losses = np.asarray(step, np.float64).ravel(), np.asarray(loss, np.float64).ravel()
    if len(steps) != len(losses):
        raise ValueError(f"step has {len(steps)} rows and loss has {len(losses)}")
    if not len(losses):
        return "There is no loss yet."
    placed = np.abs(steps) < BEYOND
    if (steps[1:] <= steps[:-1]).any() or not placed.all():
        steps, losses = steps[placed], losses[placed]
        order = np.argsort(steps, kind="stable")
        steps, losses = steps[order], losses[order]
        last = np.append(steps[1:] != steps[:-1], True) if len(steps) else np.zeros(0, bool)
        steps, losses = steps[last], losses[last]
        if not len(losses):
            return "There is no loss at a step that is a number."
    finite = np.abs(losses) < BEYOND
    if not finite[-1]:
        good = np.flatnonzero(finite)
        since = steps[good[-1] + 1] if len(good) else steps[0]
        return f"The loss has been NaN or infinite since step {since:,.0f}."
    if (lost := 1 - finite.mean()) > MOST_LOST:
        return f"{lost:.0%} of the losses are not finite."
    return steps[finite], losses[finite]


def bucket(step: Floats, loss: Floats) -> LossCurve:
    """Means of at most `BUCKETS` buckets of equal numbers of rows, spikes drawn in. step, loss [n]: ordered, finite."""
    count = len(loss)
    noise = 1.4826 * float(np.median(np.abs(np.diff(loss)))) / np.sqrt(2) if count > 1 else 0.0
    spacing = float(np.median(np.diff(step))) if count > 1 else 1.0
    rows = -(-count // BUCKETS)
    number = count // rows
    kept = loss[count - number * rows :].reshape(number, rows)
    places = step[count - number * rows :].reshape(number, rows).mean(1)
    if rows >= 5:
        middle = np.median(kept, 1, keepdims=True)
        spread = 1.4826 * np.median(np.abs(kept - middle), 1, keepdims=True)
        reach = SPIKE * np.maximum(spread, np.median(spread)) + 1e-12
        off = np.abs(kept - middle) > reach
        means = np.clip(kept, middle - reach, middle + reach).mean(1)
    else:  # buckets too small to have a median of their own: against the neighbours'
        values = kept.mean(1)
        near = running_median(values, 9)
        spread = 1.4826 * np.median(np.abs(values - near))
        reach = SPIKE * spread + 0.02 * np.abs(near) + 1e-12
        off = np.abs(values - near) > reach
        means = np.clip(values, near - reach, near + reach)
    return LossCurve(places, means, rows, spacing, float(step[-1]), noise, int(off.sum()))


def running_median(values: Floats, width: int) -> Floats:
    """Medians of windows of `width` (odd) about each place; at the ends the windows are cut off."""
    if len(values) <= 2:
        return values.copy()
    half = min(width, len(values)) // 2
    padded = np.concatenate([np.full(half, np.nan), values, np.full(half, np.nan)])
    return np.asarray(np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), 1))


def rising(curve: LossCurve) -> str | None:
    """A sentence if the loss is well above its lowest level and not on its way down, else None.

    Levels are means of a tenth of the buckets.
    """
    width = max(3, len(curve.loss) // 10)
    if len(curve.loss) < 2 * width:
        return None
    levels = np.convolve(curve.loss, np.full(width, 1 / width), "valid")
    lowest = int(np.argmin(levels))
    low, now = float(levels[lowest]), float(levels[-1])
    error = curve.noise / np.sqrt(max(width * curve.rows, 1)) * np.sqrt(2)
    before = float(levels[-1 - min(width, len(levels) - 1)])
    if now - low < max(RISEN * abs(low), SURELY * error) or now < before - error:
        return None
    begin = curve.step[lowest + width // 2]
    return f"The loss has risen from {number(low, 4)} near step {begin:,.0f} to {number(now, 4)}: it diverges."
