"""Where a watch's tables go: the run's wide records, at a step of the watch's own.

In:   {layer: {statistic: number}} and histograms, from any thread.
Out:  `run.log_layers` and `run.log_histogram`, without moving the run's own count of steps.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any


class Outlet:
    """Writes to a run, or to anything with `record` and some of `log_layers`, `log_histogram`."""

    def __init__(self, run: Any):
        self._run = run
        self._layers = _quiet(getattr(run, "log_layers", None))
        self._histogram = _quiet(getattr(run, "log_histogram", None))

    def table(self, prefix: str, step: int, table: Mapping[str, Mapping[str, float]]) -> None:
        """`{layer: {statistic: value}}` under `{prefix}/{layer}/{statistic}`."""
        if table and self._layers is not None:
            call, quiet = self._layers
            with _Count(self._run, not quiet):
                call(step, table, prefix, **quiet)

    def histogram(self, name: str, step: int, edges: Any, counts: Any) -> None:
        """Counts [n] between edges [n + 1]."""
        if self._histogram is not None:
            call, quiet = self._histogram
            with _Count(self._run, not quiet):
                call(name, counts, step, edges=edges, **quiet)


class _Count:
    """Keeps the run's next step what it was: a loop that logs without a step counts on from there."""

    def __init__(self, run: Any, needed: bool):
        self._run = run if needed and hasattr(run, "_next_step") else None

    def __enter__(self) -> None:
        if self._run is not None:
            self._next = self._run._next_step

    def __exit__(self, *problem: object) -> None:
        if self._run is not None:
            self._run._next_step = self._next


def _quiet(call: Any) -> tuple[Any, dict[str, Any]] | None:
    """A call of the run's, and the argument by which it leaves the count of steps alone, if it has one."""
    if call is None:
        return None
    try:
        known = "advance" in inspect.signature(call).parameters
    except (TypeError, ValueError):
        known = False
    return call, {"advance": False} if known else {}
