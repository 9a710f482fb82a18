"""Programs with other trackers' libraries, run in processes of their own, and what came out of an importer."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from barograph.importing.source import Fact, ImportedPoints, ImportMark, Item, Restart, Unread

TESTS = Path(__file__).parent
SOURCE = f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"  # tests: for a limit that knows how slow the machine is
QUIET = {
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "HF_HUB_OFFLINE": "1",
    "GIT_PYTHON_REFRESH": "quiet",
}
HEAD = """
import json, logging, math, os, sys, time
from pathlib import Path
from types import SimpleNamespace
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "AIM_", "TRACKIO_"))}
    ours = {"HOME": str(folder), "PYTHONPATH": SOURCE, "TRACKIO_DIR": str(folder / "trackio")}
    return kept | QUIET | ours | more


def start_program(body: str, folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HEAD + textwrap.dedent(body), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=environment(folder, **variables), stdout=pipe, stderr=pipe, text=True
    )


def run_program(body: str, folder: Path, *arguments: str, **variables: str) -> tuple[str, str]:
    """What it printed, and what it told."""
    with start_program(body, folder, *arguments, **variables) as program:
        printed, told = program.communicate(timeout=120)
    assert program.returncode == 0, told
    return printed, told


def made(seed: int, steps: int = 40) -> list[tuple[int, dict[str, Any]]]:
    """Records as a training makes them: each tenth step, an evaluation beside it, one logged late."""
    generator = random.Random(seed)
    logged: list[tuple[int, dict[str, Any]]] = [(0, {"eval/loss": 11.0})]
    for step in range(10, steps * 10, 10):
        numbers = {
            f"train/{number}": generator.uniform(-1, 1) * 10 ** generator.randint(-30, 30) for number in range(6)
        }
        logged.append((step, numbers | {"train/loss": generator.choice([math.nan, math.inf, -math.inf, 0.5])}))
        if step % 50 == 0:
            logged.append((step, {"eval/loss": generator.random(), "done": True}))
            logged.append((step - 5, {"late/loss": generator.random()}))
    return logged


ODD = {"with space": 1.5, "a/b/c": -0.1, "été/損失": 1e-300, "<script>": 1e300, "a.b": 3.0, "x:y": 4.0, "_x2A_": 5.0,
       "a//b": 6.0, "./c": 7.0, "/d": 8.0, "e/": 9.0, "100%": 10.0, "step": 11.0, "__time": 12.0}  # fmt: skip


def write_records(path: Path, logged: list[tuple[int, dict[str, Any]]]) -> None:
    path.write_text(json.dumps(logged))


def series(logged: Iterable[tuple[int, dict[str, Any]]]) -> dict[str, list[tuple[int, str]]]:
    """The points in records: by name, in order; values as text, which tells NaN from NaN and -0 from 0."""
    found: dict[str, list[tuple[int, str]]] = {}
    for step, values in logged:
        for name, value in values.items():
            if isinstance(value, (int, float)):
                found.setdefault(name, []).append((step, repr(float(value))))
    return found


def points(items: Iterable[Item]) -> dict[str, list[tuple[int, str]]]:
    """The points among items, likewise."""
    found: dict[str, list[tuple[int, str]]] = {}
    for item in items:
        if isinstance(item, ImportedPoints):
            assert item.values.shape == (len(item.steps), len(item.names)) and len(item.times) == len(item.steps)
            for column, name in enumerate(item.names):
                rows = zip(item.steps.tolist(), item.values[:, column].tolist(), strict=True)
                found.setdefault(name, []).extend((step, repr(value)) for step, value in rows)
    return found


def of_kind(items: Iterable[Item], kind: type) -> list[Any]:
    return [item for item in items if isinstance(item, kind)]


def facts(items: Iterable[Item], kind: str) -> list[Fact]:
    return [item for item in of_kind(items, Fact) if item.kind == kind]


def check_items(items: list[Item]) -> None:
    """What holds for whatever a source gives: known types, plain values, a mark at the end."""
    assert items and isinstance(items[-1], ImportMark)
    for item in items:
        assert isinstance(item, Item.__args__)  # type: ignore[attr-defined]
        if isinstance(item, ImportMark):
            assert json.loads(json.dumps(item.state)) == item.state
        if isinstance(item, Unread):
            assert item.why and len(item.text) <= 1000
        if isinstance(item, Restart):
            assert isinstance(item.step, int)


def damaged(data: bytes, generator: random.Random) -> bytes:
    """A file as disks and copying leave them: cut, zeroed, shuffled, single bytes changed."""
    made = bytearray(data)
    kind = generator.randrange(4)
    if kind == 0:
        return bytes(made[: generator.randrange(len(made) + 1)])
    for _ in range(generator.choice([1, 3, 30])):
        at = generator.randrange(len(made))
        length = generator.choice([1, 1, 4, 512])
        if kind == 1:
            made[at : at + length] = generator.randbytes(len(made[at : at + length]))
        elif kind == 2:
            made[at : at + length] = bytes(len(made[at : at + length]))
        else:
            made[at] ^= 1 << generator.randrange(8)
    return bytes(made)
