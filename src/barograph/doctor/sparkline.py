"""A few characters that show what happened around a step.

In:   values.
Out:  bars from the smallest to the largest; `×` for NaN, `^` and `v` for the infinities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BARS = "▁▂▃▄▅▆▇█"
BEFORE, AFTER = 40, 20  # rows shown around the first bad one


def bars(values: NDArray[Any]) -> str:
    """One character a value."""
    finite = values[numpy.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    span = high - low
    return "".join(_bar(float(value), low, span) for value in values)


def _bar(value: float, low: float, span: float) -> str:
    if value != value:
        return "×"
    if value in (numpy.inf, -numpy.inf):
        return "^" if value > 0 else "v"
    return _BARS[min(7, int((value - low) / span * 8))] if span > 0 else _BARS[3]


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
    return {"from": int(step[low]), "to": int(step[high - 1]), "bars": bars(value[low:high])}
