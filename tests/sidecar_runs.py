"""Runs for a sidecar, written as a training writes them: a manifest, a log, block files.

In:   what the training logs, and how it ends.
Out:  a run's folder; or a process that writes one, which a test may kill.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from barograph.core import liveness, manifest, place
from barograph.core.record import Record, encode
from barograph.log.blocks import BlockWriter
from barograph.log.write import JsonLog
from barograph.sidecar.columns import pack

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src"), "BAROGRAPH_MACHINE": "false"}
START = 1_770_000_000_000_000  # µs


class Writer:
    """A process of a run: a log, and the block files beside it. Times are the test's own."""

    def __init__(self, folder: Path, rank: int = 0, segment: int = 1, kind: str = "start", pid: int | None = None):
        self.folder, self.rank, self.segment = folder, rank, segment
        folder.mkdir(parents=True, exist_ok=True)
        self.writer = f"r{rank}-{segment}"
        name = "training.json" if rank == 0 else f"training-{self.writer}.json"
        self.log = JsonLog(folder / name, print)
        self.blocks = BlockWriter(folder, Path(name).stem, {"rank": rank})
        self.moment = START
        about = {"segment": segment, "kind": kind, "rank": rank, "writer": self.writer, "host": place.host()}
        self.record("segment", 0, about | {"pid": os.getpid() if pid is None else pid, "run": folder.name})

    def record(self, kind: str, step: int, fields: dict[str, Any], seconds: float = 0.0) -> int:
        """A record, so many seconds after the last one; where it ends."""
        self.moment += int(seconds * 1e6)
        return self.log.append(encode(Record(kind, self.moment, step, fields)))

    def row(self, step: int, values: dict[str, float], seconds: float = 0.1) -> int:
        return self.record("metrics", step, values, seconds)

    def wide(self, step: int, values: dict[str, float], seconds: float = 0.0) -> None:
        self.moment += int(seconds * 1e6)
        packed = pack(list(values.values()))
        self.blocks.row(tuple(values), packed, step, self.moment, self.segment, self.log.position)

    def close(self, status: str | None = "finished") -> None:
        if status is not None:
            self.record("end", 0, {"status": status, "wall_seconds": 1.0})
        self.blocks.close()
        self.log.close()


def describe(folder: Path, **about: Any) -> None:
    """The manifest of a run that this process writes."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {"id": folder.name, "name": "calm-river", "project": "gpt", "status": "running", "world_size": 1}
    manifest.write(folder, known | liveness.process() | about)


TRAINING = """
import os, signal, sys, threading, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import sidecar_runs as runs
from barograph.probes.ranks import stacks
folder = Path(sys.argv[1])
runs.describe(folder, config={{"lr": 1e-3}})
writer = runs.Writer(folder)
writer.moment = time.time_ns() // 1000
stacks.register(folder, writer.writer)
for step in range(1, 51):
    writer.row(step, {{"train/loss": 3.0 / step ** 0.2, "train/lr": 1e-3}}, 0.01)
print("ready", flush=True)
{body}
"""


def training(folder: Path, body: str) -> subprocess.Popen[str]:
    """A process that has logged 50 steps and does as `body` says then; it is ready when this returns."""
    program = TRAINING.format(body=body, tests=str(Path(__file__).parent))
    path = folder.parent / "train.py"
    path.write_text(program)
    process = subprocess.Popen(
        [sys.executable, str(path), str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@contextlib.contextmanager
def sidecar(folder: Path, pid: int | None, config: Any = None, **settings: Any) -> Any:
    """A sidecar beside a run; killed at the end if it still goes on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "barograph.sidecar", str(folder)], stdin=subprocess.PIPE, env=ENVIRONMENT
    )
    assert process.stdin is not None
    line = {"pid": pid, "settings": {"machine": False} | settings, "config": config or {}}
    process.stdin.write(json.dumps(line).encode() + b"\n")
    process.stdin.close()
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def own_records(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    """What a sidecar of this host has written, of some kinds."""
    path = folder / f"sidecar-{place.host()}.json"
    from barograph.log.read import read_log

    if not path.exists():
        return []
    return [item for item in read_log(path) if not kinds or item["log"] in kinds]
