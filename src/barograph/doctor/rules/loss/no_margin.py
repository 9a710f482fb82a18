"""A policy of preferences that never leaves its reference, in a log of few rows.

In:   the loss, the margins and the learning rate of a run.
Out:  a finding of `FrozenLoss`, or None.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from barograph.doctor.kernel.curve import between
from barograph.doctor.rules.loss.settled import COPY_FIRST, REFERENCE
from barograph.doctor.rules.rl.preference import margins_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.series import SeriesRule

_ROWS, _MANY = 4, 8  # in which no margin leaves 0: behind the warmup, or within it
_LN2 = 6e-5  # of a loss of four digits
_HELD = "optimizer holds other parameters: no weight changes"


def no_margin(rule: SeriesRule, history: RunHistory, channel: Channel) -> Finding | None:
    """What is said where each loss is ln 2 and each margin exactly 0. Within a warmup, while the rate still rises,
    weights of few digits may stay as they are for some steps: there it takes eight rows."""
    rows = channel.rows()
    if not len(rows) >= _ROWS or rows.cuts or not (abs(rows.value - math.log(2)) < _LN2).all():
        return None
    first, last, segment = int(rows.step[0]), int(rows.step[-1]), int(rows.segment[-1])
    margins = between(margins_of(history), first, last + 1, segment)
    rates = between(history.role("lr"), first, last + 1, segment)
    warm = len(rates) > 1 and bool(rates[-1] <= rates[0])
    if len(margins) < (_ROWS if warm else _MANY) or len(margins) < len(rows) or margins.any():
        return None
    causes = [REFERENCE, _HELD]
    if len(rates) and not rates.any():
        causes = ["learning rate too low: it is 0", *causes]
    return rule.finding(
        first,
        f"In each of {len(rows)} rows the loss is ln 2 and the margin exactly 0: the policy is its reference",
        severity="warning",
        found=last,
        last_step=last,
        segment=segment,
        key="margin",
        causes=causes,
        remedies=[COPY_FIRST, *rule.remedies],
        evidence={"rows": len(rows), "loss": float(rows.value[-1])},
        confidence=0.85,
    )
