"""A stand-in for a run, for tests of probes and of code that reports to a run.

In:   the calls that a probe makes on a run.
Out:  a `FakeRun` that keeps what it was given: records, tables, histograms, warnings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barograph.core.options import Settings
from barograph.core.record import KINDS


class FakeRecord(NamedTuple):
    """A record that a run was given."""

    kind: str
    step: int
    fields: dict[str, Any]


class FakeRun:
    """A run that writes nothing and keeps everything. It satisfies `barograph.probes.recording.Recording`.

    dir: the run's folder; nothing is made in it. rank, world_size: which of the ranks it is. step: the step that was
    logged last. Other options are those of `barograph.init`; they are not checked.
    Where a run would drop a mistake, such as a kind that does not exist or a NumPy number in a record, it raises.
    """

    name, project = "fake-run", "default"

    def __init__(
        self, dir: str | os.PathLike[str] = ".", *, rank: int = 0, world_size: int = 1, step: int = 0, **options: Any
    ) -> None:
        self.dir = Path(dir)
        self.settings = Settings(**options)
        self.rank, self.world_size = rank, world_size
        self.at_finish: list[Callable[[], Any]] = []
        self.next_step = step + 1 if step else 0
        self.records: list[FakeRecord] = []
        self.warnings: list[str] = []  # in order, one for each key
        self.warnings_by_key: dict[str, str] = {}
        self.tables: dict[tuple[str, int], dict[str, dict[str, float]]] = {}  # by prefix and step
        self.histograms: dict[tuple[str, int], tuple[Any, Any]] = {}  # edges and values by name and step

    @property
    def current_step(self) -> int:
        """The step that was begun or logged last; 0 before the first."""
        return max(0, self.next_step - 1)

    @current_step.setter
    def current_step(self, step: int) -> None:
        self.next_step = step + 1

    def record(self, kind: str, step: int, fields: dict[str, Any], *, draw: bool = True) -> None:
        """Keep a record. Raises ValueError for an unknown kind, TypeError for values that are not Python's own."""
        if kind not in KINDS:
            raise ValueError(f"there is no kind of record {kind!r}")
        json.dumps(fields)  # refuses what a record can't hold
        self.records.append(FakeRecord(kind, step, fields))

    def warn(self, sentence: str, key: str | None = None) -> None:
        """Keep a warning; the same key (or sentence) once."""
        if (key or sentence) not in self.warnings_by_key:
            self.warnings_by_key[key or sentence] = sentence
            self.warnings.append(sentence)

    def log_layers(
        self, step: int, layers: Mapping[str, Mapping[str, float]], prefix: str = "layers", *, advance: bool = True
    ) -> None:
        """Keep a table of layers and their statistics."""
        self.next_step = step + 1 if advance else self.next_step
        self.tables[prefix, step] = {name: dict(row) for name, row in layers.items()}

    def log_histogram(
        self,
        name: str,
        values: Any,
        step: int | None = None,
        *,
        edges: Any = None,
        bins: int = 64,
        advance: bool = True,
    ) -> None:
        """Keep a histogram, of raw values or of counts between edges; without a step, at the next one."""
        step = self.next_step if step is None else step
        self.next_step = step + 1 if advance else self.next_step
        self.histograms[name, step] = (edges, values)

    def finish(self) -> None:
        """Call what waits for the end, once, in order."""
        waiting, self.at_finish = self.at_finish, []
        for call in waiting:
            call()

    # -- what it was given -----------------------------------------------------------------------------

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The fields of the records of a kind, in order."""
        return [record.fields for record in self.records if record.kind == kind]

    def warned(self, words: str) -> bool:
        """Whether a warning has these words."""
        return any(words in sentence for sentence in self.warnings)
