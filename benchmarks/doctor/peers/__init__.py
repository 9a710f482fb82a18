"""Other doctors on the same runs.

In:   `Columns` of a run.
Out:  `peers()`: name → what examines it and gives `Alarm`s.
"""

from __future__ import annotations

from collections.abc import Callable

from peers.alarms import Alarm
from peers.columns import Columns
from peers.packages import installed
from peers.restated import RESTATED

__all__ = ["Alarm", "Columns", "peers"]


def peers() -> dict[str, Callable[[Columns], list[Alarm]]]:
    """Every peer that can run here: packages that are installed, and the restated ones."""
    return installed() | RESTATED
