"""Whether a loss still falls: the gain of the last stretch, with its error.

In:   columns of step and loss.
Out:  a `ForecastPlateau`, or None where too little was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from barograph.analysis.forecast.curve import LEAST_ROWS, bucket, columns

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# The stretch that is looked at: the last part of the run so far.
PART = 1 / 3
# A fall over the stretch by less than this part of the loss is none. The law of arXiv 2203.15556 (equation 10) still
# has a 70B model lose 0.8% of its loss over the last third of 3e12 tokens, twice what is usual.
LEAST_FALL = 0.005
SURE = 2.0


@dataclass(frozen=True)
class ForecastPlateau:
    """The last third of a run. flat: it has surely fallen by less than `LEAST_FALL` of the loss.

    since: first step of the stretch. level: loss at its end. fall: how much of the loss it lost over the stretch, as a
    part of it (negative: it rose); error: one standard deviation of that.
    """

    flat: bool
    since: int
    level: float
    fall: float
    error: float


def plateau(
    step: ArrayLike, loss: ArrayLike, *, part: float = PART, least_fall: float = LEAST_FALL
) -> ForecastPlateau | None:
    """Look at the last `part` of the steps: a line is fitted, its errors widened by what correlation is left.

    Neither a fall too small to be seen in the noise nor a loss that rises for sure is called flat. Raises ValueError
    for columns of different lengths or a part outside 0 to 1.
    """
    if not 0 < part <= 1:
        raise ValueError(f"the part of a run is between 0 and 1, not {part}")
    cleaned = columns(step, loss)
    if isinstance(cleaned, str):
        return None
    steps, losses = cleaned
    late = steps >= steps[-1] - part * (steps[-1] - steps[0])
    if late.sum() < LEAST_ROWS:
        return None
    curve = bucket(steps[late], losses[late])
    x = (curve.step - curve.step.mean()) / max(float(np.ptp(curve.step)), 1e-12)
    square = float(x @ x)
    slope = float(x @ curve.loss) / square
    level = float(curve.loss.mean()) + slope / 2
    rest = curve.loss - curve.loss.mean() - slope * x
    together = min(max(float(rest[1:] @ rest[:-1]) / max(float(rest @ rest), 1e-300), 0.0), 0.9)
    variance = float(rest @ rest) / max(len(rest) - 2, 1) / square * (1 + together) / (1 - together)
    scale = max(abs(level), 1e-12)
    fall, error = -slope / scale, float(np.sqrt(variance)) / scale
    return ForecastPlateau(abs(fall) + SURE * error < least_fall, int(steps[late][0]), level, fall, error)
