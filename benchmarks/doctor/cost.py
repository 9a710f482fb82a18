"""What the rules cost: live, a step; a doctor's look at a run of a million steps, and at a log of 1 MB, cold.

    python benchmarks/doctor/cost.py [--steps 1000000] [--folder FOLDER]

Live: 20 scalars a step are given to all rules sixteen rows at a time, as the pump's thread does; processor time a step.
Replay: `diagnose` of a stored run of --steps rows of 20 series, processor and wall time. The run is made once, in
--folder.
Cold: `barograph doctor` of a text log of 1 MB and of 2 MB, each in a new process, by turns with a bare `import numpy`;
wall time, and processor time. Modules are compiled before the first, as pip does when it installs them.
"""

from __future__ import annotations

import argparse
import compileall
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import barograph
from barograph.doctor import diagnose
from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.facts import facts_of

NAMES = ("train/loss", "train/norm", "train/lr", "train/duration_ms", "train/tokens_per_second",
         *(f"other/{at}" for at in range(15)))  # fmt: skip


def rows(steps: int, seed: int = 0) -> np.ndarray:
    """A healthy training [steps, 20]."""
    values = np.random.default_rng(seed).standard_normal((steps, len(NAMES))) * 0.03
    step = np.arange(steps)
    values[:, 0] += 2 + 3 * np.exp(-step / (steps / 5))
    values[:, 1] = np.exp(values[:, 1] * 5)
    values[:, 2] = 1e-3 * np.minimum(1, (step + 1) / 100) * (0.55 + 0.45 * np.cos(np.pi * step / steps))
    values[:, 3] = 100 + values[:, 3]
    values[:, 4] = 5000 + values[:, 4]
    return values


def live(steps: int = 20_000, at_once: int = 16) -> float:
    """Processor time of all rules, µs a step."""
    values = rows(steps)
    examiner = Examiner(None, facts_of({"max_steps": steps}))
    step, moment, segment = np.arange(steps), np.arange(steps) * 100_000, np.ones(steps, np.int32)
    began = time.process_time()
    for low in range(0, steps, at_once):
        some = slice(low, low + at_once)
        columns = step[some], values[some], moment[some], segment[some]
        for at, name in enumerate(NAMES):
            examiner.seen.add(name, columns[0], columns[1][:, at], *columns[2:])
        examiner.examine()
    took = time.process_time() - began
    assert not examiner.failed, examiner.failed
    return took / steps * 1e6


def stored(folder: Path, steps: int) -> barograph.StoredRun:
    """A run of this many steps; made if it is not there."""
    found = [run for run in barograph.runs(folder) if run.name == f"cost-{steps}"]
    if not found:
        values = rows(steps)
        given = {"verbosity": -2, "git": False, "machine": False, "doctor": False, "watchdog": False, "blackbox": False}
        run = barograph.init("cost", f"cost-{steps}", {"max_steps": steps}, str(folder), **given)
        for step in range(steps):
            run.log(dict(zip(NAMES, values[step].tolist(), strict=True)), step=step)
        run.finish(timeout=600)
        found = [one for one in barograph.runs(folder) if one.name == f"cost-{steps}"]
    return found[0]


def text_log(folder: Path, size: int) -> Path:
    """A healthy training's log of this many bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    path, values = folder / f"cold-{size}.log", rows(size // 50)
    lines = [f"step {step} | loss {row[0]:.4f} | grad norm {row[1]:.3f} | lr {row[2]:.1e} | {row[4]:.0f} tok/s\n"
             for step, row in enumerate(values)]  # fmt: skip
    path.write_text("".join(lines)[:size])
    return path


def cold(folder: Path, times: int = 7) -> dict[str, tuple[float, float]]:
    """Wall and processor seconds of a doctor in a new process, the middle ones of several by turns."""
    doctor = [sys.executable, "-m", "barograph", "doctor"]
    commands = {
        "1 MB": [*doctor, str(text_log(folder, 1_000_000))],
        "2 MB": [*doctor, str(text_log(folder, 2_000_000))],
        "import numpy": [sys.executable, "-c", "import numpy"],
    }
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    compileall.compile_dir(Path(barograph.__file__).parent, quiet=2)
    for _ in range(times):
        for name, command in commands.items():
            began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)
            now = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
            took[name].append((time.perf_counter() - began, processor))
    middle = times // 2
    return {name: (sorted(one[0] for one in each)[middle], sorted(one[1] for one in each)[middle])
            for name, each in took.items()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("build/doctor-cost"))
    options = parser.parse_args()
    micros = [live() for _ in range(3)]
    each = ", ".join(f"{one:.1f}" for one in micros)
    print(f"all rules live, 16 rows at a time: {sorted(micros)[1]:.1f} µs a step (of {each})")
    took = ", ".join(f"{name} {wall:.2f} ({cpu:.2f})" for name, (wall, cpu) in cold(options.folder).items())
    print(f"doctor, cold, seconds of wall (processor) time: {took}")
    run = stored(options.folder, options.steps)
    wall, processor = [], []
    for _ in range(3):
        fresh = barograph.StoredRun(run.dir)
        began, used = time.perf_counter(), time.process_time()
        found = diagnose(fresh)["findings"]
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    worst = [one["rule"] for one in found if one["severity"] != "info"]
    took = f"{sorted(wall)[1]:.2f} s wall, {sorted(processor)[1]:.2f} s of processor"
    print(f"{options.steps:,} steps × {len(NAMES)} series: {took}")
    print(f"first look {wall[0]:.2f} s; warnings: {', '.join(worst) or 'none'}")
    assert math.isfinite(sum(wall))


if __name__ == "__main__":
    main()
