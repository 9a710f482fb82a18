"""Where what a watch finds goes: tables and histograms into the run, lines onto the console.

In:   the report of a step.
Out:  calls of the run; the lines that are due.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.probes.model import flow, report


class Outlet:
    """Where a watch's tables go, at a step of its own: a run, or what has `record` and perhaps its other calls."""

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


def due_lines(found: report.ModelReport, step: int) -> list[tuple[list[str], str]]:
    """The stability guide's console lines that are due at a step, each group with its level."""
    shown = []
    if step and step % 100 == 0:
        shown.append((flow.gradient_lines(found.tables.get("gradients", {})), "INFO"))
        shown.append((flow.update_lines(found.tables.get("updates", {}), step), "WARNING"))
    if step and step % 1000 == 0:
        shown.append((flow.distribution_lines(found.distributions, step), "INFO"))
    return [(lines, level) for lines, level in shown if lines]
