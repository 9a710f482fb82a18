"""Importing: megabytes a second of each kind of log, and the memory of a file of 2 GB.

In:   nothing; logs are made in a temporary folder. From a shell:
          python benchmarks/importing.py [--mb 50] [--memory GB]
Out:  a table. Beside each import stands the plain-Python floor, measured in the same run on the same bytes: the
      least that a script would do (`json.loads` or `csv.reader` and `float` of each cell, into lists). Seconds are
      of processor time; what sorts the stored numbers later is a process of its own and not in them.

A kind of log is a function that writes one and one that reads it plainly; `KINDS` has them by name.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

STEP_FIELDS = ("loss", "grad_norm", "lr", "tok_per_sec", "step_time_ms")


class Kind(NamedTuple):
    """A kind of log: a file's name, its first bytes, a row of it, and how a short script would read it."""

    file: str
    head: str
    row: Callable[[int, random.Random], str]
    plain: Callable[[Path], int]


def numbers(step: int, chance: random.Random) -> list[float]:
    return [2.5 + chance.random(), chance.random(), 3e-4, 800_000.0 + step % 977, 640.0 + chance.random()]


def json_row(step: int, chance: random.Random) -> str:
    return json.dumps({"step": step} | dict(zip(STEP_FIELDS, numbers(step, chance), strict=True))) + "\n"


def csv_row(step: int, chance: random.Random) -> str:
    return ",".join(map(repr, [step, *numbers(step, chance)])) + "\n"


def surogate_row(step: int, chance: random.Random) -> str:
    loss, norm, lr, _, duration = numbers(step, chance)
    lead = "" if step == 0 else ",\n"
    return (
        f'{lead}  {{"log": "step", "time": "2026-01-15 10:30:00.937641674", "step": {step}, "epoch": 0.5, '
        f'"step_tokens": 524288, "duration_ms": {duration:.0f}, "norm": {norm}, "loss": {loss}, "lr": {lr}}}'
    )


def read_json_lines(path: Path) -> int:
    columns: dict[str, list[float]] = {}
    with open(path) as file:
        for line in file:
            for name, value in json.loads(line).items():
                columns.setdefault(name, []).append(float(value))
    return sum(map(len, columns.values()))


def read_csv(path: Path) -> int:
    with open(path, newline="") as file:
        rows = csv.reader(file)
        columns: list[list[float]] = [[] for _ in next(rows)]
        for row in rows:
            for column, cell in zip(columns, row, strict=True):
                column.append(float(cell))
    return sum(map(len, columns))


def read_array(path: Path) -> int:
    text = path.read_text()
    columns: dict[str, list[float]] = {}
    for record in json.loads(text if text.rstrip().endswith("]") else text + "]"):
        for name, value in record.items():
            if isinstance(value, (int, float)):
                columns.setdefault(name, []).append(float(value))
    return sum(map(len, columns.values()))


KINDS = {
    "csv": Kind("log.csv", "step," + ",".join(STEP_FIELDS) + "\n", csv_row, read_csv),
    "jsonl": Kind("rows.jsonl", "", json_row, read_json_lines),
    "surogate": Kind("log.json", "[\n", surogate_row, read_array),
}


def write(kind: Kind, path: Path, size: int) -> int:
    """A log of about that many bytes; returns its rows. The same ten thousand rows again, with steps that go on."""
    chance = random.Random(1)
    rows = 0
    with open(path, "w") as file:
        file.write(kind.head)
        while file.tell() < size:
            file.write("".join(kind.row(step, chance) for step in range(rows, rows + 10_000)))
            rows += 10_000
    return rows


IMPORT = """
import resource, sys, time
from pathlib import Path
from barograph.importing import files
from barograph.importing.collect import collect
from barograph.importing.registry import identify
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.process_time()
((source, found),) = identify(Path(sys.argv[1]))
folder, tally = collect(source, found, Path(sys.argv[2]))
took = time.process_time() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for sealers in files._left.values():  # the run is there; its numbers are sorted behind it
    for one in sealers:
        one.wait()
print(took, tally.points, peak, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def imported(path: Path, root: Path) -> tuple[float, int, float, float]:
    """Seconds, numbers, and MB of memory of an import in a process of its own, and of its sealer."""
    shutil.rmtree(root, ignore_errors=True)
    command = [sys.executable, "-c", IMPORT, str(path), str(root)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    scale = 1 / 1024 if sys.platform == "linux" else 1 / 1024**2
    return float(out[0]), int(out[1]), int(out[2]) * scale, int(out[3]) * scale


def speeds(folder: Path, megabytes: float, rounds: int = 3) -> None:
    print(f"{'kind':<10} {'MB/s':>7} {'numbers/s':>12} {'plain MB/s':>11} {'ratio':>6}")
    for name, kind in KINDS.items():
        path = folder / name / kind.file
        path.parent.mkdir()
        write(kind, path, int(megabytes * 1e6))
        size = path.stat().st_size / 1e6
        ours, plain, points = [], [], 0
        for _ in range(rounds):
            took, points, _, _ = imported(path, folder / "runs")
            ours.append(took)
            began = time.process_time()
            kind.plain(path)
            plain.append(time.process_time() - began)
        mine, floor = statistics.median(ours), statistics.median(plain)
        row = f"{name:<10} {size / mine:>7.1f} {points / mine:>12,.0f} {size / floor:>11.1f} {floor / mine:>6.2f}"
        print(row, flush=True)
        shutil.rmtree(path.parent)


def memory(folder: Path, gigabytes: float) -> None:
    for name, kind in KINDS.items():
        path = folder / name / kind.file
        path.parent.mkdir()
        rows = write(kind, path, int(gigabytes * 1e9))
        took, points, peak, sealer = imported(path, folder / "runs")
        size = path.stat().st_size / 1e6
        print(
            f"{name:<10} {size:,.0f} MB, {rows:,} rows, {points:,} numbers: {took:.0f} s ({size / took:.0f} MB/s), ",
            end="",
        )
        print(f"at most {peak:.0f} MB of memory, its sealer {sealer:.0f} MB", flush=True)
        shutil.rmtree(path.parent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=50.0, help="size of each log (default 50)")
    parser.add_argument("--memory", type=float, metavar="GB", help="measure the memory of logs of that size instead")
    parser.add_argument("--kind", choices=sorted(KINDS), help="this kind alone")
    options = parser.parse_args()
    if options.kind:
        for name in set(KINDS) - {options.kind}:
            del KINDS[name]
    print(f"Python {sys.version.split()[0]}, start {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
    with tempfile.TemporaryDirectory() as folder:
        if options.memory:
            memory(Path(folder), options.memory)
        else:
            speeds(Path(folder), options.mb)


if __name__ == "__main__":
    main()
