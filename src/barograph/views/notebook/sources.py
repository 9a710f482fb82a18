"""What a notebook may show: one run, or a comparison.

In:   a stored run with the series to show; a comparison.
Out:  its heading, its facts, its panels in any range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from barograph.analysis.compare.words import cell_words, letter
from barograph.core import liveness
from barograph.core.text import duration, short
from barograph.query.given import wall_seconds
from barograph.query.losses import told_losses
from barograph.query.stored import StoredRun
from barograph.views.notebook.panels import Panel, chosen, line

Facts = list[tuple[str, str]]


class PanelSource(Protocol):
    """What is shown."""

    def title(self) -> str:
        """The heading."""

    def facts(self) -> Facts:
        """What is said beside the charts."""

    def live(self) -> bool:
        """Whether more may come."""

    def panels(self, most: int, low: float | None = None, high: float | None = None) -> list[Panel]:
        """The charts in a range of the axis, in at most this many buckets."""


class RunSource:
    """A run. names: the series to show, each in a panel, a list of names for one panel; None: those that matter.

    x: the axis, as of `StoredRun.series`.
    """

    def __init__(self, run: StoredRun, names: Sequence[str | Sequence[str]] | None = None, x: str = "step"):
        self._run, self._x = run, x
        self._asked = None if names is None else [[name] if isinstance(name, str) else list(name) for name in names]

    def again(self) -> RunSource:
        """The same for another thread: a stored run is read from one."""
        run = self._run
        source = RunSource(StoredRun(run.log_files()[0] if run.status == "log file" else run.dir), None, self._x)
        source._asked = self._asked
        return source

    def title(self) -> str:
        return f"{short(self._run.project, 100)}/{short(self._run.name, 100)}"

    def live(self) -> bool:
        return self._run.status in liveness.OPEN

    def facts(self) -> Facts:
        run, about = self._run, self._run.manifest
        result = [("status", short(run.status))]
        final = about.get("final_metrics") or {}
        steps = [final["step"]] if isinstance(final.get("step"), (int, float)) else []
        for _, names in self._panels_of()[:1]:
            series = run.series(names[0])
            steps += [int(series.step[-1])] if len(series) else []
        if steps:
            planned = about.get("total_steps")
            result.append(("step", f"{max(steps):,}" + (f" of {planned:,}" if isinstance(planned, int) else "")))
        wall = wall_seconds(run)
        if isinstance(wall, (int, float)) and math.isfinite(wall):
            result.append(("took", duration(wall)))
        for key, value in list(run.config.items())[:12]:
            if not isinstance(value, (dict, list)):
                result.append((short(key, 40), short(value, 60)))
        if run.tags:
            result.append(("tags", short(", ".join(map(str, run.tags)), 100)))
        if about.get("notes"):
            result.append(("notes", short(" ".join(str(about["notes"]).split()), 200)))
        return result

    def panels(self, most: int, low: float | None = None, high: float | None = None) -> list[Panel]:
        result = []
        for title, names in self._panels_of():
            lines = []
            for name in names:
                series = self._run.series(name, x=self._x)
                lines.append(line(series.name, series.x, series.value, most, low, high))
            result.append(Panel(title, self._x, lines))
        return result

    def _panels_of(self) -> list[tuple[str, list[str]]]:
        if self._asked is not None:
            return [(names[0], names) for names in self._asked if names]
        names = self._run.names()
        return chosen(names, told_losses(self._run, names))


class ComparisonSource:
    """A comparison: `made` as of `barograph.compare`."""

    def __init__(self, made: Any):
        self._made = made

    def again(self) -> ComparisonSource:
        """It doesn't change."""
        return self

    def title(self) -> str:
        labels = [f"{letter(at)} {short(side.label, 60)}" for at, side in enumerate(self._made.sides)]
        return " · ".join(labels[:8])

    def live(self) -> bool:
        return False

    def facts(self) -> Facts:
        made = self._made
        result = [
            ("verdict" if not at else "", short(sentence, 600))
            for at, sentence in enumerate(made.verdict.sentences[:6])
        ]
        result += [("refused", short(refusal.sentence, 600)) for refusal in made.refusals[:3]]
        result += [("caution", short(caution, 600)) for caution in made.cautions[:3]]
        return result

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The figures: heads and rows."""
        made = self._made
        heads = ["", *(f"{letter(at)}" for at in range(len(made.sides)))]
        rows = []
        for row in made.rows[:24]:
            rows.append([short(row.name, 60), *(cell_words(cell, row.unit) for cell in row.cells)])
        return heads, rows

    def panels(self, most: int, low: float | None = None, high: float | None = None) -> list[Panel]:
        made, place = self._made, self._made.place
        if place is None or not place.is_whole or place.high <= place.low:
            return []
        first = place.low if low is None else max(place.low, low)
        last = place.high if high is None else min(place.high, high)
        if not last > first:
            return []
        x = np.linspace(first, last, max(2, most))
        lines = []
        for at, side in enumerate(place.sides):
            curves = [item.curve.at(x, place.window, place.low, place.high) for item in side]
            mean = np.mean(curves, axis=0) if curves else np.full(len(x), math.nan)
            lines.append(line(f"{letter(at)} {short(made.sides[at].label, 40)}", x, mean, most))
        return [Panel(f"{made.metric}", made.axis or "step", lines)]
