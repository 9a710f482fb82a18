"""Trains programs of the fault bench as `benchmarks/doctor/traces.py` does: each in a process forked from one that has
imported what they need.

    python tests/bench_program.py

In:   a line of JSON for each training: {"out": FOLDER, "some": {PROGRAM: [STEPS, FAULTS]}, "again": WHETHER}.
Out:  a line for each, once it has ended: how. FOLDER has `said.json`, what the records of each program say, and
      `printed.txt`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks" / "doctor"), str(ROOT / "src")]

import numpy  # noqa: E402
import traces  # noqa: E402
from faults import FAULTS  # noqa: E402
from labels import learned, of_time  # noqa: E402

import barograph.probes  # noqa: E402
import barograph.training  # noqa: E402
from barograph.query.stored import StoredRun  # noqa: E402


def made(program: str, steps: int, kind: str, out: Path) -> tuple[StoredRun, dict[str, Any]]:
    """A recorded training, and its columns that are not of time."""
    trace = traces.Trace(program, kind, 0)
    traces.make(trace, out, steps=steps)
    run = StoredRun(out / trace.name)
    columns = run.all_columns().items()
    return run, {name: held[2] for name, held in columns if not of_time(name) and "step_time" not in name}


def differ(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return sorted(
        name for name in one.keys() | other.keys()
        if name not in one or name not in other or not numpy.array_equal(one[name], other[name], equal_nan=True)
    )  # fmt: skip


def said_of(program: str, steps: int, kinds: list[str], again: bool, out: Path) -> dict[str, Any]:
    """How much the plain training learns, what differs when it is made again, and what each fault changes."""
    run, plain = made(program, steps, "plain", out / "first")
    second = made(program, steps, "plain", out / "second")[1] if again else plain
    twins, changed = {"plain": plain}, {}
    for fault in FAULTS.values():
        if fault.name in kinds:
            if fault.compare not in twins:
                twins[fault.compare] = made(program, steps, fault.compare, out / "first")[1]
            changed[fault.name] = differ(made(program, steps, fault.name, out / "first")[1], twins[fault.compare])
    same = [name for name in differ(plain, second) if "loss" in name.lower()]
    return {"gained": learned(run), "same": same, "changed": changed}


def work(out: Path, some: dict[str, tuple[int, list[str]]], again: bool) -> None:
    printed = os.open(out / "printed.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    said = {program: said_of(program, steps, kinds, again, out) for program, (steps, kinds) in some.items()}
    (out / "said.json").write_text(json.dumps(said))


def short_bases() -> None:
    """A base that a program takes over is trained for a few steps, not for the hundreds that the bench's own is: what
    follows needs one that is there, not one that is good."""
    parts = importlib.import_module("programs.parts")
    fit = parts.fit
    parts.fit = lambda optimizer, steps, loss_of: fit(optimizer, min(steps, 12), loss_of)


def main() -> None:
    short_bases()  # before programs are imported
    traces.preload()
    import torch._dynamo  # noqa: F401 - the ranks of a sharded training are forked: none imports it anew

    for package in (barograph.training, barograph.probes):  # a third of a second of a training that is as short as this
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)

    gc.collect()
    gc.freeze()  # a watch that asks the process's objects finds those of the training, not half a million others

    for line in sys.stdin:
        asked = json.loads(line)
        status = os.waitpid(traces.forked(work, Path(asked["out"]), asked["some"], asked["again"]), 0)[1]
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
