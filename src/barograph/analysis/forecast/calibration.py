"""Constants of forecasts, found by hindcast; `benchmarks/forecast.py` measures what comes of them.

In:   how much of the plan was seen, whether its schedule is known.
Out:  by how much the law's deviations are stretched.

They come from 180 trainings of four families (GPT, convolution, linear, multi-layer perceptron) on bytes, under five
schedules; `LATE` with a look at nine public logs and at synthetic curves. docs/guides/forecast.md has the figures, also
of families that none of these constants has seen.
"""

from __future__ import annotations

import numpy as np

# L0 as a part of the loss now.
FLOOR_MIDDLE, FLOOR_SPREAD = 0.75, 0.25
# α: median, and deviation of its logarithm. Over sizes and data arXiv 2001.08361 and 2203.15556 find 0.05 to 0.34;
# fits of single whole trainings find 0.1 to 1.7.
ALPHA_MIDDLE, ALPHA_SPREAD = 0.45, 1.0
# C from the slope of the loss per e-fold of the sum of rates; its deviation is a part of it and a part of the loss now.
ANNEALING_PER_SLOPE, ANNEALING_SPREAD = 0.22, (0.75, 0.015)
# The falls of the rate that are still ahead gain more than the law says, by this part of the loss now for a fall from
# the peak to zero: how likely that is, by how much, and its deviation.
LATE = (0.4, 0.05, 0.03)
# Parts of the run so far that the fits leave out.
SKIPS = (0.07, 0.15, 0.3)
# What the law misses even with all numbers right, as a part of the loss: added to the deviation.
MISSED = 0.004
# By the part of the plan that was seen: what the law's deviations are multiplied with for 90% to be 90%.
SEEN = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
REACH = (1.25, 0.97, 0.85, 0.85, 0.9, 1.0, 1.0)
# Of a schedule that is not known: times so much more.
UNKNOWN = 1.15


def reach(seen: float, known: bool) -> float:
    """What the law's deviations are multiplied with. seen: part of the plan, 0 to 1; known: its schedule is."""
    return float(np.interp(seen, SEEN, REACH)) * (1.0 if known else UNKNOWN)
