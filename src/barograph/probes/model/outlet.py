"""Where a watch's tables go: the run's wide records, at a step of the watch's own.

In:   {layer: {statistic: number}} and histograms, from any thread.
Out:  `run.log_layers` and `run.log_histogram`, without moving the run's own count of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Outlet:
    """Writes to a run, or to anything with `record` and some of `log_layers`, `log_histogram`."""

    def __init__(self, run: Any):
        self._layers = getattr(run, "log_layers", None)
        self._histogram = getattr(run, "log_histogram", None)

    def table(self, prefix: str, step: int, table: Mapping[str, Mapping[str, float]]) -> None:
        """`{layer: {statistic: value}}` under `{prefix}/{layer}/{statistic}`."""
        if table and self._layers is not None:
            self._layers(step, table, prefix, advance=False)

    def histogram(self, name: str, step: int, edges: Any, counts: Any) -> None:
        """Counts [n] between edges [n + 1]."""
        if self._histogram is not None:
            self._histogram(name, counts, step, edges=edges, advance=False)
