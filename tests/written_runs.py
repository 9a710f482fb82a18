"""Runs written by hand, as a training process and its sidecar write them: logs, block files, segments, a manifest."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from barograph.core import segments
from barograph.core.record import Record, encode
from barograph.log.blocks import BlockWriter, doubles
from barograph.log.write import JsonLog

START = 1_700_000_000_000_000


class WrittenRun:
    """One run's folder. `rank` gives the writer of a rank; the clock goes on by a millisecond with each thing logged.

    fork: the folder of another run, and the step from which on this one goes its own way.
    """

    def __init__(self, folder: Path, name: str = "r", fork: tuple[Path, int] | None = None):
        self.dir = folder / name
        self.dir.mkdir(parents=True)
        about = {"id": name, "name": name, "project": folder.name, "status": "running", "config": {}}
        (self.dir / "run_manifest.json").write_text(json.dumps(about))
        self.clock = itertools.count(START, 1000)
        source, step = fork or (None, None)
        self.segment = segments.begin(
            self.dir, kind="fork" if fork else None, start_step=step, source=str(source) if source else None
        )
        self.ranks: dict[int, Writer] = {}

    def rank(self, rank: int = 0) -> Writer:
        if rank not in self.ranks:
            name = "training.json" if rank == 0 else f"training-rank{rank}-1.json"
            self.ranks[rank] = Writer(self, name, rank)
        return self.ranks[rank]

    def new_segment(self, kind: str, start_step: int | None = None, source: str | None = None) -> None:
        parent = self.segment.number
        self.segment = segments.begin(self.dir, kind=kind, start_step=start_step, parent=parent, source=source)
        for writer in self.ranks.values():
            writer.say_segment()

    def resume(self, start_step: int | None = None) -> None:
        """Other processes go on."""
        self.close()
        self.new_segment("resume", start_step)
        self.rank(0)

    def end(self, status: str = "finished") -> None:
        about = json.loads((self.dir / "run_manifest.json").read_text())
        (self.dir / "run_manifest.json").write_text(json.dumps(about | {"status": status}))
        self.close()

    def close(self) -> None:
        for writer in self.ranks.values():
            writer.close()
        self.ranks.clear()


class Writer:
    """One process's log and block files."""

    def __init__(self, run: WrittenRun, name: str, rank: int):
        self.run, self.rank = run, rank
        self.log = JsonLog(run.dir / name)
        self.blocks = BlockWriter(run.dir, Path(name).stem, {"rank": rank})
        self.say_segment()

    def say_segment(self) -> None:
        segment = self.run.segment
        self.record("segment", segment.start_step or 0, run=self.run.dir.name, rank=self.rank, **segment.fields())

    def record(self, kind: str, step: int, /, **fields: Any) -> int:
        return self.log.append(encode(Record(kind, next(self.run.clock), step, fields)))

    def metrics(self, step: int, **values: float) -> int:
        return self.record("metrics", step, **values)

    def loss(self, step: int, loss: float) -> int:
        return self.record("step", step, loss=loss)

    def wide(self, step: int, **values: float) -> None:
        numbers = doubles(list(values.values()))
        self.blocks.row(tuple(values), numbers, step, next(self.run.clock), self.run.segment.number, self.log.position)

    def histogram(self, step: int, name: str, counts: list[float]) -> None:
        numbers = doubles([*range(len(counts) + 1), *counts])
        self.blocks.histogram(name, numbers, 0, step, next(self.run.clock), self.run.segment.number, self.log.position)

    def close(self) -> None:
        self.blocks.close()
        self.log.close()

    def kill(self) -> None:
        """As after kill -9: nothing is tidied up."""
        self.blocks.abandon()
        self.log.abandon()
