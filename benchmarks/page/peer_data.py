"""The same numbers written into each tracker, with the fastest way in that it documents for a local machine.

    PYTHON benchmarks/page/peer_data.py TOOL FOLDER RUNS METRICS STEPS SECONDS

In:   a tool, an empty folder, a size. Run by `peers.py`, with the interpreter in whose environment the tool is.
Out:  the tool's own files; on the last line how many steps of each run were written. A writer that is not done after
      SECONDS ends at a whole step, and the table says how far it came.

Every series falls slowly, with noise; near the middle of `train/loss` one value stands alone at SPIKE. Its step is not
a round number: a tool that takes each so-many-th point would meet one by chance.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

SPIKE = 87.40625  # the same number in 32 and in 64 bits, and no other value comes near
CHUNK = 1_000


def names(metrics: int) -> list[str]:
    return ["train/loss", *(f"train/metric_{at}" for at in range(1, metrics))]


def run_name(run: int) -> str:
    return f"run_{run:03d}"


def chunks(run: int, metrics: int, steps: int) -> Iterator[tuple[range, list[list[float]]]]:
    """Steps and their values [step][metric], in batches that a writer takes in one call."""
    chance = random.Random(run)
    for start in range(0, steps, CHUNK):
        at = range(start, min(start + CHUNK, steps))
        table = [[3.0 * math.exp(-step / steps) + chance.gauss(0.0, 0.05) for _ in range(metrics)] for step in at]
        if (lone := steps // 2 - 21) in at:
            table[lone - start][0] = SPIKE
        yield at, table


def barograph(folder: Path, runs: int, metrics: int, steps: int, until: float) -> int:
    import barograph

    for run in range(runs):
        made = barograph.init(
            project="p", id=run_name(run), dir=str(folder), console="none", machine=False, doctor=False, blackbox=False
        )
        for at, table in chunks(run, metrics, steps):
            for step, values in zip(at, table, strict=True):
                made.log(dict(zip(names(metrics), values, strict=True)), step=step)
        made.finish()
    return steps


def tensorboard(folder: Path, runs: int, metrics: int, steps: int, until: float) -> int:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for run in range(runs):
        writer = EventFileWriter(str(folder / run_name(run)))
        for at, table in chunks(run, metrics, steps):
            for step, values in zip(at, table, strict=True):
                found = [
                    Summary.Value(tag=name, simple_value=value)
                    for name, value in zip(names(metrics), values, strict=True)
                ]
                writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=found)))
        writer.close()
    return steps


def aim(folder: Path, runs: int, metrics: int, steps: int, until: float) -> int:
    import aim

    for run in range(runs):
        made = aim.Run(
            repo=str(folder), experiment="p", system_tracking_interval=None, log_system_params=False,
            capture_terminal_logs=False,
        )  # fmt: skip
        made.name = run_name(run)
        for at, table in chunks(run, metrics, steps):
            for step, values in zip(at, table, strict=True):
                made.track(dict(zip(names(metrics), values, strict=True)), step=step)
            if time.time() > until:
                steps = at.stop
                break
        made.close()
    return steps


def mlflow(folder: Path, runs: int, metrics: int, steps: int, until: float) -> int:
    import mlflow
    from mlflow.entities import Metric

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    client = mlflow.MlflowClient()
    experiment = client.create_experiment("p", artifact_location=str(folder / "artifacts"))
    for run in range(runs):
        made = client.create_run(experiment, run_name=run_name(run)).info.run_id
        for at, table in chunks(run, metrics, steps):
            now = int(time.time() * 1000)
            batch = [
                Metric(name, value, now, step)
                for step, values in zip(at, table, strict=True)
                for name, value in zip(names(metrics), values, strict=True)
            ]
            for start in range(0, len(batch), 1_000):  # no more are taken at once
                client.log_batch(made, metrics=batch[start : start + 1_000])
            if time.time() > until:
                steps = at.stop
                break
        client.set_terminated(made)
    return steps


def trackio(folder: Path, runs: int, metrics: int, steps: int, until: float) -> int:
    import csv

    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    if runs == 1:  # a file is the fastest way in, but makes a project of its own
        path = folder / "run.csv"
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["step", *names(metrics)])
            for at, table in chunks(0, metrics, steps):
                writer.writerows([step, *values] for step, values in zip(at, table, strict=True))
        trackio.import_csv(path, project="p", name=run_name(0))
        path.unlink()
        return steps
    for run in range(runs):
        trackio.init("p", name=run_name(run), embed=False, auto_log_gpu=False, auto_log_cpu=False)
        for at, table in chunks(run, metrics, steps):
            for step, values in zip(at, table, strict=True):
                trackio.log(dict(zip(names(metrics), values, strict=True)), step=step)
        trackio.finish()
    return steps


WRITERS = {"barograph": barograph, "tensorboard": tensorboard, "aim": aim, "mlflow": mlflow, "trackio": trackio}

if __name__ == "__main__":
    tool, folder, runs, metrics, steps, seconds = sys.argv[1:]
    written = WRITERS[tool](Path(folder), int(runs), int(metrics), int(steps), time.time() + float(seconds))
    print(f"\nwritten {written}", flush=True)
    os._exit(0)  # some wait for the network at their end
