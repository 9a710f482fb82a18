"""A run as its scalar series and per-layer gradients: all that other doctors may look at.

In:   a stored run.
Out:  `Columns`: series by role, by name and by layer; the run as rows for a CSV or JSONL file.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from barograph.core.roles import candidates
from barograph.query.stored import StoredRun

# What a log for other tools calls a role. The names are ones that runmedic, losslint and gradsnitch all know.
EXPORTED = {"norm": "grad_norm", "lr": "lr", "throughput": "tokens_per_s"}
# The same for series of which no role is known: name → (name in the export, factor). Times there are in seconds.
EXPORTED_SERIES = {
    "speed/phase/data_ms": ("data_time", 1e-3),
    "memory/allocated_gb": ("gpu_memory_allocated", 1.0),
    "memory/rss_bytes": ("host_memory_rss", 1.0),
    "host/process_rss": ("host_memory_rss", 1.0),
}


class Column(NamedTuple):
    """One series: steps and values [n], in the order of steps; time in seconds since 1970."""

    step: NDArray[numpy.int64]
    value: NDArray[numpy.float64]
    time: NDArray[numpy.float64]

    def finite(self) -> Column:
        """The rows whose value is a finite number."""
        kept = numpy.isfinite(self.value)
        return Column(self.step[kept], self.value[kept], self.time[kept])


class Columns(Mapping[str, NDArray[numpy.float64]]):
    """A run's series, each read when it is first asked for. As a mapping: name → values."""

    def __init__(self, run: StoredRun):
        self._run = run
        self._names = dict.fromkeys(run.names())
        self._known: dict[str, Column] = {}

    def __getitem__(self, name: str) -> NDArray[numpy.float64]:
        return self.series(name).value

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._names

    def series(self, name: str) -> Column:
        """A series by its name; KeyError if the run has none."""
        if name not in self._known:
            if name not in self._names:
                raise KeyError(name)
            found = self._run.columns(name, rank=0)  # of several ranks the first, as a tracker shows it
            if not len(found[0]):
                found = self._run.columns(name)
            step, time, value = found[:3]
            order = numpy.argsort(step, kind="stable")
            self._known[name] = Column(step[order], value[order], time[order] / 1e6)
        return self._known[name]

    def role(self, role: str) -> Column | None:
        """The series that plays a role, chosen as the doctor's own rules choose it; None if there is none."""
        found = candidates(role, self)
        return self.series(found[0]) if found else None

    def layers(self, family: str, quantity: str) -> dict[str, Column]:
        """`{family}/{layer}/{quantity}` of all layers, from input to output as far as their names have numbers."""
        head, tail = f"{family}/", f"/{quantity}"
        named = {
            name[len(head) : -len(tail)]: name
            for name in self._names
            if name.startswith(head) and name.endswith(tail) and len(name) > len(head) + len(tail)
        }
        return {layer: self.series(named[layer]) for layer in sorted(named, key=_natural)}

    def step_seconds(self) -> Column | None:
        """What a step took, in seconds."""
        for name in ("speed/step_ms", "train/duration_ms"):
            if name in self:
                found = self.series(name)
                return Column(found.step, found.value / 1000.0, found.time)
        return None

    def rows(self) -> list[dict[str, float]]:
        """A row for each row of the loss, with what else is known at its step; no key for what is not.

        A validation loss is in the last row of training at or before it, as callbacks of frameworks merge them.
        """
        loss = self.role("loss")
        if loss is None or not len(loss.step):
            return []
        rows = [
            {"step": int(step), "loss": float(value)}
            for step, value in zip(loss.step.tolist(), loss.value.tolist(), strict=True)
        ]
        columns: dict[str, Column] = {}
        for role, name in EXPORTED.items():
            if (found := self.role(role)) is not None:
                columns[name] = found
        if (seconds := self.step_seconds()) is not None:
            columns["step_time"] = seconds
        for series, (name, factor) in EXPORTED_SERIES.items():
            if series in self and name not in columns:
                found = self.series(series)
                columns[name] = Column(found.step, found.value * factor, found.time)
        if (ratio := self._update_ratio()) is not None:
            columns["update_ratio"] = ratio
        places = {row["step"]: row for row in rows}
        for name, column in columns.items():
            for step, value in zip(column.step.tolist(), column.value.tolist(), strict=True):
                if step in places:
                    places[step][name] = value
        if (evaluation := self.role("eval_loss")) is not None:
            places_of_rows = numpy.searchsorted(loss.step, evaluation.step, side="right") - 1
            for place, value in zip(places_of_rows.tolist(), evaluation.value.tolist(), strict=True):
                rows[max(place, 0)]["eval_loss"] = value
        return rows

    def _update_ratio(self) -> Column | None:
        """|ΔW| / |W| of all layers together, at the steps where they were looked at."""
        updates, weights = self.layers("updates", "update_norm"), self.layers("updates", "weight_norm")
        if not updates or not weights:
            return None
        moved: dict[int, float] = {}
        held: dict[int, float] = {}
        times: dict[int, float] = {}
        for total, layers in ((moved, updates), (held, weights)):
            for column in layers.values():
                for step, value, time in zip(*(one.tolist() for one in column), strict=True):
                    total[step] = total.get(step, 0.0) + value * value
                    times[step] = time
        steps = sorted(step for step in moved if held.get(step, 0.0) > 0.0)
        ratio = [(moved[step] / held[step]) ** 0.5 for step in steps]
        return Column(numpy.array(steps, numpy.int64), numpy.array(ratio), numpy.array([times[step] for step in steps]))


def write_jsonl(rows: list[dict[str, float]], path: Path) -> None:
    """Rows as JSON lines; NaN and infinities as Python's json writes them."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_csv(rows: list[dict[str, float]], path: Path, names: Mapping[str, str]) -> None:
    """Rows as CSV; `names`: what a column is called there, others keep their names. What isn't known is empty."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([names.get(key, key) for key in keys])
        writer.writerows([_cell(row.get(key)) for key in keys] for row in rows)


def _cell(value: Any) -> str:
    return "" if value is None else repr(value)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]
