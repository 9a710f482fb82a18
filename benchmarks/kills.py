"""Kills: processes that record are killed at random moments, and their folders hold what they knew to be written.

In:   modes of recording, how many kills of each.
Out:  per mode: values whose call had returned, how many of them are lost or doubled, how many files are no JSON, at
      once and after the run was opened.

A process writes down each value whose call has returned. Values are counted up, so that each is there once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

BEGIN = """
import os, sys, threading, time
import barograph
root, first, told = sys.argv[1], int(sys.argv[2]), os.dup(1)
os.dup2(2, 1)
def returned(name, value):
    os.write(told, b"%s %d\\n" % (name.encode(), value))
def log(name, value, step):
    run.log({name: float(value), "lr": 0.1}, step=step)
    returned(name, value)
def start(**more):
    plain = dict(project="p", id="r", dir=root, verbosity=-2, git=False, machine=False, sidecar=False, resume="allow")
    return barograph.init(**plain | more)
n = first
"""

LOOP = "while True:\n    {}\n    n += 1\n"

MODES: dict[str, str] = {
    "tight": "run = start()\n" + LOOP.format('log("loss", n, n)'),
    "paced": "run = start()\n" + LOOP.format('log("loss", n, n); time.sleep(0.003)'),
    "wide": "run = start()\n"
    + LOOP.format('run.log_wide({f"act/{k}": float(n) for k in range(300)}, step=n); returned("act/7", n)'),
    "histograms": "run = start()\n"
    + LOOP.format('run.log_histogram("weights", [float(n), 2.0, 3.0], step=n); returned("#weights", n)'),
    "long texts": "run = start()\n"
    + LOOP.format('run.record("sample", n, {"text": "x" * (n * 997 % 50_000), "number": n}); returned("!sample", n)'),
    "many names": "run = start(wide_threshold=10_000)\n"
    + LOOP.format(
        'run.log({f"layers/{k}/attention/weight/gradient/norm": float(n) for k in range(300)}, step=n); '
        'returned("layers/7/attention/weight/gradient/norm", n)'
    ),
    "threads": """
run = start()
def work(name):
    n = first
    while True:
        log(name, n, n)
        n += 1
for name in "abcd":
    threading.Thread(target=work, args=(name,), daemon=True).start()
time.sleep(600)
""",
    "fork": """
run = start()
while True:
    log("loss", n, n)
    if n % 20 == 0:
        child = os.fork()
        if child == 0:
            for k in range(20):
                log("child", 100 * n + k, n)
            os._exit(0)
        os.waitpid(child, 0)
    n += 1
""",
    "worker processes": """
run = start()
for name in "ab":
    if os.fork() == 0:
        while True:
            log(name, n, n)
            n += 1
"""
    + LOOP.format('log("loss", n, n)'),
    "rewind": """
import random
run, step = start(), first
while True:
    log("loss", n, step)
    n, step = n + 1, step + 1
    if random.random() < 0.02:
        step = max(0, step - random.randrange(30))
        os.write(told, b"begin-rewind %d\\n" % step)
        run.rewind(step)
        os.write(told, b"end-rewind %d\\n" % step)
""",
    "resume": "run = start()\n" + LOOP.format('log("loss", n, n)'),
    "fork of a run": """
if not os.path.isdir(root + "/p/source"):
    with start(id="source") as run:
        for step in range(100):
            run.log({"loss": float(step)}, step=step)
run = barograph.fork(root + "/p/source", 50, id="r", dir=root, verbosity=-2, git=False, machine=False, sidecar=False)
n = 50
"""
    + LOOP.format('log("loss", n, n)'),
    "gc while it is written": "run = start()\n"
    + LOOP.format(
        'log("loss", n, n); run.log_wide({f"act/{k}": float(n) for k in range(100)}, step=n); returned("act/7", n)'
    ),
    "import": """
from barograph.cli import main
path = root + "/train.log"
if not os.path.exists(path):
    with open(path + ".new", "w") as file:
        for k in range(1, 20_001):
            file.write(f"[rank 0] INFO     [step {k}] loss={k}.0000 | lr=3.00e-04 | grad_norm=1.001 | "
                       "tok/s=123,001 | mfu=45.6% | mem=34.5/80.0GB | step_time=0.45s\\n")
    os.rename(path + ".new", path)
os.write(told, b"begin 0\\n")
code = main(["import", path, "--dir", root + "/runs", "--project", "p"])
os.write(told, b"code %d\\n" % code)
""",
    "sealed by a sidecar": "run = start(sidecar=True)\nrun.alerts.beside.start()\n"
    + LOOP.format('log("loss", n, n); run.log_wide({f"act/{k}": float(n) for k in range(100)}, step=n); '
                  'returned("act/7", n); time.sleep(0.001)'),
    "two ranks": """
rank = int(os.environ["RANK"])
run = start(id=None, name="r", resume=False)
"""
    + LOOP.format('log(f"rank{rank}", n, n)'),
    "finish": "run = start()\nfor n in range(first, first + 50):\n    log('loss', n, n)\nrun.finish()\n"
    "os.write(told, b'finished 0\\n')\n",
}  # fmt: skip


class Outcome:
    """What was found in one mode."""

    def __init__(self, mode: str):
        self.mode = mode
        self.kills = self.returned = self.lost = self.doubled = self.mended = self.invalid = 0
        self.problems: list[str] = []

    def row(self) -> tuple[str, ...]:
        figures = (self.kills, self.returned, self.lost, self.doubled, self.mended, self.invalid)
        return (self.mode, *(f"{figure:,}" for figure in figures))


class _Training:
    """A process of a mode, and what it wrote down."""

    def __init__(self, mode: str, root: Path, first: int, **environment: str):
        self.told = Path(tempfile.mkstemp(dir=root, prefix="told-")[1])
        with open(self.told, "wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", BEGIN + MODES[mode], str(root), str(first)],
                stdout=out, stderr=subprocess.DEVNULL, start_new_session=True, env=os.environ | environment,
            )  # fmt: skip

    def kill(self, chance: random.Random, meanwhile: Callable[[], Any]) -> None:
        """Kill it and its children, at a random moment of its first steps, or while it starts."""
        early = chance.random() < 0.1
        until = time.monotonic() + (chance.uniform(0.0, 1.0) if early else 60.0)
        while self.process.poll() is None and time.monotonic() < until and not self.told.stat().st_size:
            time.sleep(0.002)
        until = time.monotonic() + chance.uniform(0.0, 0.3)
        while self.process.poll() is None and time.monotonic() < until:
            meanwhile()
            time.sleep(0.001)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def lines(self) -> list[tuple[str, int]]:
        found = (line.rpartition(b" ") for line in self.told.read_bytes().split(b"\n")[:-1])
        return [(name.decode(), int(value)) for name, _, value in found]


def kill_once(mode: str, seed: int, outcome: Outcome) -> None:
    """One kill, or several of one run for modes that go on with it, and a look at what is there."""
    chance = random.Random(f"{mode} {seed}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        root = Path(name)
        folder, lines, first = root / "p" / "r", [], 0
        for _ in range(3 if mode in ("resume", "fork of a run", "import") else 1):
            ranks = [_Training(mode, root, first, **environment) for environment in _environments(mode)]
            for training in ranks:
                training.kill(chance, lambda: _meanwhile(mode, folder))
                lines += training.lines()
            outcome.kills += 1
            first = max((value for _, value in lines), default=-2) + 2  # one may have been written, and not returned
            if mode == "fork of a run" and folder.is_dir():
                break
        if mode == "import":
            lines = _import_again(root)
        if mode == "sealed by a sidecar":
            _wait_for_sidecar(folder)
        if mode in ("import", "two ranks"):  # of two ranks, the second to come has its folder removed
            folder = next((path.parent for path in root.glob("**/training.json")), folder)
        if folder.is_dir():
            _check(folder, lines, outcome, f"{mode} {seed}")
        elif any(name not in ("begin",) for name, _ in lines):
            outcome.problems.append(f"{mode} {seed}: no folder")


def _environments(mode: str) -> list[dict[str, str]]:
    if mode != "two ranks":
        return [{}]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(time.time_ns()), "LOCAL_RANK": "0"}
    return [shared | {"RANK": rank} for rank in ("0", "1")]


def _meanwhile(mode: str, folder: Path) -> None:
    if mode == "gc while it is written" and folder.is_dir():
        from barograph.store.seal import seal

        with contextlib.suppress(OSError):
            seal(folder)


def _import_again(root: Path) -> list[tuple[str, int]]:
    again = _Training("import", root, 0)
    again.process.wait()
    return [("train/loss", value) for value in range(1, 20_001)] if ("code", 0) in again.lines() else [("code", 1)]


def _wait_for_sidecar(folder: Path) -> None:
    """Until the sidecar has said what was left to say."""
    until = time.monotonic() + 60.0
    for lock in folder.glob("sidecar-*.lock"):
        while '"done"' not in lock.read_text() and time.monotonic() < until:
            time.sleep(0.05)


def _check(folder: Path, lines: Iterable[tuple[str, int]], outcome: Outcome, where: str) -> None:
    from barograph.query.stored import StoredRun

    outcome.mended += len(_not_json(folder))
    run = StoredRun(folder)
    try:
        run.names()
        broken = _not_json(folder)
        outcome.invalid += len(broken)
        outcome.problems += [f"{where}: {path} is not JSON" for path in broken]
        _check_values(run, list(lines), outcome, where)
    except Exception as error:
        outcome.problems.append(f"{where}: {type(error).__name__}: {error}")


def _check_values(run: Any, lines: list[tuple[str, int]], outcome: Outcome, where: str) -> None:
    wanted: dict[str, set[int]] = {}
    since: set[int] = set()  # the last rewind
    rewinding = False
    for name, value in lines:
        if name == "begin-rewind":
            rewinding = True
        elif name == "end-rewind":
            since, rewinding = set(), False
        elif not name.startswith(("begin", "code", "finished")):
            wanted.setdefault(name, set()).add(value)
            since.add(value)
    if ("code", 1) in lines:
        outcome.problems.append(f"{where}: the import fails when it is done again")
    for name, values in wanted.items():
        found = Counter(_values(run, name))
        lost = values - found.keys()
        doubled = [value for value, count in found.items() if count > 1]
        if where.startswith("rewind") and not rewinding:
            lost |= since - set(run.series(name).value.astype(int).tolist())
        if where.startswith("fork of") and set(range(50)) - set(run.series(name).value.astype(int).tolist()):
            outcome.problems.append(f"{where}: the history of the source is not whole")
        outcome.returned += len(values)
        outcome.lost += len(lost)
        outcome.doubled += len(doubled)
        if lost or doubled:
            outcome.problems.append(f"{where}: {name}: lost {sorted(lost)[:5]}, doubled {sorted(doubled)[:5]}")


def _values(run: Any, name: str) -> list[int]:
    if name.startswith("#"):
        return [row.step for row in run.histograms(name[1:])]
    if name.startswith("!"):
        return [int(record.fields["number"]) for record in run.records(name[1:])]
    if name not in run.names():
        return []
    return [int(value) for value in run.series(name, branch="all", rank="all").value]


def _not_json(folder: Path) -> list[str]:
    """JSON files of the run that a strict parser refuses."""
    found = []
    for path in (*folder.glob("*.json"), *folder.glob("segments/*.json"), *folder.glob("store/*/*.json")):
        try:
            json.loads(path.read_text(), parse_constant=_refuse)
        except FileNotFoundError:
            pass
        except ValueError:
            found.append(path.name)
    return found


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def run(kills: int, modes: Iterable[str] = tuple(MODES), jobs: int = 2, shown: bool = True) -> list[Outcome]:
    """So many kills of each mode; prints a table."""
    head = ("mode", "kills", "values returned", "lost", "doubled", "torn at once", "torn once opened")
    outcomes = []
    if shown:
        print(_line(head))
    for mode in modes:
        outcome, seed = Outcome(mode), 0
        with ThreadPoolExecutor(jobs) as pool:
            while outcome.kills < kills:
                list(pool.map(lambda seed: kill_once(mode, seed, outcome), range(seed, seed + jobs)))  # noqa: B023
                seed += jobs
        outcomes.append(outcome)
        if shown:
            print(_line(outcome.row()), flush=True)
            print(*(f"  {problem}" for problem in outcome.problems), sep="\n", end="\n" if outcome.problems else "")
    if shown:
        total = Outcome("all")
        for name in ("kills", "returned", "lost", "doubled", "mended", "invalid"):
            setattr(total, name, sum(getattr(outcome, name) for outcome in outcomes))
        print(_line(total.row()))
    return outcomes


def _line(cells: tuple[str, ...]) -> str:
    return cells[0].ljust(24) + "".join(cell.rjust(18) for cell in cells[1:])
