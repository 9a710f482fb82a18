"""One step of 20 scalars in ours and in the trackers people use, and what a kill -9 costs in each.

    python -m venv peers && peers/bin/pip install . wandb tensorboard torch aim mlflow trackio swanlab
    peers/bin/python benchmarks/peers.py [--steps N] [--kills N] [TOOL …]

Each tool runs in a process of its own, in turns, in its default local mode, with no network. A tool
that is not installed is left out and said so. "lost" is the steps whose call had returned before
`kill -9` and that are not in the tool's files afterwards, read with the tool's own reader where it
has one; the loop takes 2 ms a step. "-" is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Log = Callable[[dict[str, float], int], Any]
QUIET = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "SWANLAB_MODE": "offline",
    "TRACKIO_DIR": "trackio",
    "AIM_UI_TELEMETRY_ENABLED": "0",
    "BITBUCKET_COMMIT": "0",
}


def plain(folder: Path) -> Log:
    file = open(folder / "plain.jsonl", "w")  # noqa: SIM115

    def log(values: dict[str, float], step: int) -> None:
        file.write(json.dumps({"step": step, "time": time.time()} | values) + "\n")
        file.flush()

    return log


def barograph(folder: Path) -> Log:
    import barograph

    return barograph.init(project="p", name="r", dir=folder, verbosity=-2, git=False).log


def wandb(folder: Path) -> Log:
    import wandb

    run = wandb.init(project="p", dir=folder, mode="offline", settings=wandb.Settings(silent=True))
    return lambda values, step: run.log(values, step=step)


def tensorboard(folder: Path) -> Log:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
        writer.flush()

    return log


def aim(folder: Path) -> Log:
    import aim

    run = aim.Run(repo=str(folder), system_tracking_interval=None, log_system_params=False)

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            run.track(value, name=name, step=step)

    return log


def mlflow(folder: Path) -> Log:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.start_run()
    return lambda values, step: mlflow.log_metrics(values, step=step)


def trackio(folder: Path) -> Log:
    import trackio

    trackio.init(project="p", name="r", embed=False)
    return lambda values, step: trackio.log(values, step=step)


def swanlab(folder: Path) -> Log:
    import swanlab

    swanlab.init(project="p", logdir=str(folder), mode="offline")
    return lambda values, step: swanlab.log(values, step=step)


TOOLS: dict[str, Callable[[Path], Log]] = {
    "plain": plain,
    "barograph": barograph,
    "wandb": wandb,
    "tensorboard": tensorboard,
    "aim": aim,
    "mlflow": mlflow,
    "trackio": trackio,
    "swanlab": swanlab,
}


def wandb_steps(data: bytes) -> int:
    """History records in a W&B file: blocks of 32 KB with LevelDB's log framing, of protobuf records."""
    from wandb.proto import wandb_internal_pb2

    at, whole, count = 7, b"", 0  # behind the file's header
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        piece = data[at + 7 : at + 7 + size]
        if len(piece) < size:
            break
        at += 7 + size
        whole = piece if kind in (1, 2) else whole + piece
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            count += record.WhichOneof("record_type") == "history"
    return count


def found(tool: str, folder: Path) -> int:
    """How many steps a reader finds after the kill; -1 where there is no reader to ask."""
    if tool == "plain":
        return len((folder / "plain.jsonl").read_text().splitlines())
    if tool == "barograph":
        items = json.loads((folder / "p" / "r" / "training.json").read_text())
        return sum(item["log"] == "metrics" for item in items)
    if tool == "wandb":
        return wandb_steps(next(folder.glob("wandb/offline-run-*/*.wandb")).read_bytes())
    if tool == "tensorboard":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        read.Reload()
        return len(read.Scalars("train/metric_0"))
    if tool in ("mlflow", "trackio"):
        import sqlite3

        pattern, query = {
            "mlflow": ("mlflow.db", "select count(*) from metrics where key = 'train/metric_0'"),
            "trackio": ("**/p.db", "select count(*) from metrics"),
        }[tool]
        (path,) = folder.glob(pattern)
        return int(sqlite3.connect(path).execute(query).fetchone()[0])
    if tool == "aim":
        import aim

        found = [run.run for run in aim.Repo(str(folder)).iter_runs()]
        return max((len(metric.values.sparse_list()[0]) for run in found for metric in run.metrics()), default=-1)
    return -1


def loop(tool: str, folder: Path, steps: int, pause: float, tell: bool) -> None:
    """In a process of its own: log; print each call's µs, or each step as its call returns."""
    generator = random.Random(0)
    names = [f"train/metric_{number}" for number in range(20)]
    log = TOOLS[tool](folder)
    out, taken = os.fdopen(os.dup(1), "wb", buffering=0), []
    for step in range(steps):
        values = {name: generator.random() for name in names}
        if pause:
            time.sleep(pause)
        began = time.perf_counter()
        log(values, step)
        taken.append((time.perf_counter() - began) * 1e6)
        if tell:
            out.write(b"@%d\n" % step)
    if not tell:
        taken = taken[min(20, steps // 10) :]
        out.write(("\n@" + json.dumps(taken) + "\n").encode())
        os._exit(0)


def command(tool: str, folder: str, steps: int, pause: float, tell: bool) -> list[str]:
    return [sys.executable, __file__, "--loop", tool, folder, str(steps), str(pause), str(int(tell))]


def environment(folder: str) -> dict[str, str]:
    return os.environ | QUIET | {"TRACKIO_DIR": f"{folder}/trackio", "HOME": folder}


def times(tool: str, steps: int, pause: float) -> list[float]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            command(tool, folder, steps, pause, False),
            capture_output=True,
            text=True,
            env=environment(folder),
            timeout=300,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("@[")]
        if not lines:
            raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no answer")
        return list(json.loads(lines[-1][1:]))


def lost(tool: str, kills: int) -> list[int]:
    counts = []
    for number in range(kills):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            process = subprocess.Popen(
                command(tool, folder, 10**9, 0.002, True),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment(folder),
                start_new_session=True,
            )
            assert process.stdout is not None
            while not (line := process.stdout.readline()).startswith(b"@"):
                if not line:
                    return counts
            time.sleep(random.Random(number).uniform(0.3, 1.5))
            os.killpg(process.pid, signal.SIGKILL)
            told = [line, *process.stdout.read().splitlines()]
            process.wait()
            returned = sum(line.startswith(b"@") for line in told)
            try:
                there = found(tool, Path(folder))
            except Exception:  # its files can't be read after a kill, or are elsewhere
                there = -1
            counts.append(max(0, returned - there) if there >= 0 else -1)
    return counts


def main() -> None:
    if sys.argv[1:2] == ["--loop"]:
        tool, folder, steps, pause, tell = sys.argv[2:]
        loop(tool, Path(folder), int(steps), float(pause), tell == "1")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=", ".join(TOOLS))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    for tool in options.tools:
        if tool not in TOOLS:
            parser.error(f"there is no {tool} here; there are {', '.join(TOOLS)}")
    print(f"{'':<14}{'tight µs':>10}{'p99':>10}{'× plain':>9}{'paced 5 ms':>12}{'lost on kill':>14}")
    base = 0.0
    for tool in options.tools or TOOLS:
        try:
            tight = sorted(times(tool, options.steps, 0.0) + times(tool, options.steps, 0.0))
            paced = statistics.median(times(tool, max(100, options.steps // 10), 0.005))
            gone = lost(tool, options.kills) if options.kills else []
        except Exception as error:
            print(f"{tool:<14}left out: {str(error)[:90]}")
            continue
        middle = statistics.median(tight)
        base = base or middle
        shown = f"{max(gone)}" if gone and max(gone) >= 0 else "-"
        p99 = tight[int(len(tight) * 0.99)]
        print(f"{tool:<14}{middle:>10.1f}{p99:>10.1f}{middle / base:>9.2f}{paced:>12.1f}{shown:>14}", flush=True)


if __name__ == "__main__":
    main()
