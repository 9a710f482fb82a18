"""An alarm of another doctor, in our words, and how alarms of one incident become one.

In:   what a peer said.
Out:  dictionaries with `kinds`, `severity`, `step`, `found`, `steps`, `message`, as the scorer takes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy
from numpy.typing import NDArray

Alarm = dict[str, Any]


def alarm(
    rule: str,
    kinds: Iterable[str],
    severity: str,
    step: float | None,
    message: str = "",
    *,
    found: float | None = None,
    steps: Iterable[float] = (),
) -> Alarm:
    """kinds: all that the peer's name for it may mean. step: None where the peer says none. found: the step at which
    a peer that looks live gave it; None of one that looks when the run is over. steps: all steps that it names."""
    return {
        "rule": rule,
        "kinds": tuple(kinds),
        "severity": severity,
        "step": None if step is None else int(step),
        "found": None if found is None else int(found),
        "steps": [int(one) for one in steps],
        "message": message,
    }


def incidents(rows: NDArray[Any], apart: int) -> list[int]:
    """Of rows (numbers, rising) at which an alarm rings, those that begin an incident.

    A row belongs to the incident before it if it is at most `apart` rows behind that one's last: a fault that rings
    at every step is one finding, as a cool-down would make it.
    """
    rows = numpy.asarray(rows)
    if not len(rows):
        return []
    return [int(row) for row in rows[numpy.diff(rows, prepend=rows[0] - apart - 1) > apart]]
