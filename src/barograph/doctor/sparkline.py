"""A few characters that show what happened around a step.

In:   a series, the place in it.
Out:  the steps of the first and the last, and the values as a row of bars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from barograph.core.text import sparkline

if TYPE_CHECKING:
    from numpy.typing import NDArray

BEFORE, AFTER = 40, 20  # rows shown around the first bad one


def around(step: NDArray[Any], value: NDArray[Any], where: int, segment: NDArray[Any], which: int) -> dict[str, Any]:
    """The rows around a step, for a finding's evidence: `from`, `to` (steps), `bars`; empty if there are none."""
    if which:
        mine = segment == which
        step, value = step[mine], value[mine]
    if len(step) < 2:
        return {}
    at = int(numpy.searchsorted(step, where)) if (step[1:] >= step[:-1]).all() else int(numpy.argmax(step >= where))
    low, high = max(0, at - BEFORE), min(len(step), at + AFTER)
    if high - low < 2:
        return {}
    return {"from": int(step[low]), "to": int(step[high - 1]), "bars": sparkline(value[low:high].tolist())}
