"""Reading TensorBoard's event files and W&B's offline runs, beside those tools' own readers.

In:   `python benchmarks/import_binary.py tensorboard [--points 1000000]` or `… wandb [--rows 100000]`;
      `--their-points` gives the other reader less; its time is then scaled to the same size.
Out:  seconds of processor time, ratios, peak memory; values that differ (there must be none).

TensorBoard is measured against `EventAccumulator`, in a process of its own. W&B 0.31 has no reader in Python
any more; it is measured against the package's last one, as its `wandb sync` reads: `DataStore`, the package's own
messages, `dict_from_proto_list` for rows and summaries; in an interpreter that has such a W&B (`--python`). W&B
writes a summary with each row; a second ratio is without the time that these take.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

THEIR_TENSORBOARD = """
import json, sys, time
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
begin = time.process_time()
reader = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
reader.Reload()
found = {tag: reader.Scalars(tag) for tag in reader.Tags()["scalars"]}
spent = time.process_time() - begin
found = {tag: [[one.step, one.wall_time, one.value] for one in those] for tag, those in found.items()}
json.dump({"seconds": spent, "found": found}, open(sys.argv[2], "w"))
"""

THEIR_WANDB = """
import json, sys, time
import wandb
wandb._assert_is_internal_process = True
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore
from wandb.sdk.lib.proto_util import dict_from_proto_list
begin = time.process_time()
store = DataStore()
store.open_for_scan(sys.argv[1])
rows, summary, in_summaries = [], {}, 0.0
while (data := store.scan_data()) is not None:
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    kind = record.WhichOneof("record_type")
    if kind == "history":
        rows.append(dict_from_proto_list(record.history.item))
    elif kind == "summary":
        before = time.process_time()
        summary = dict_from_proto_list(record.summary.update)
        in_summaries += time.process_time() - before
spent = time.process_time() - begin
answer = {"seconds": spent, "summaries": in_summaries, "found": rows, "version": wandb.__version__}
json.dump(answer, open(sys.argv[2], "w"))
"""

WRITE_WANDB = """
import os, sys
os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=sys.argv[1], WANDB_ERROR_REPORTING="false")
import wandb
run = wandb.init(project="benchmark", config={"lr": 3e-4})
for step in range(int(sys.argv[2])):
    run.log({"train/loss": 3 + 1 / (step + 1), "train/lr": 1e-4 * step, "train/grad_norm": 0.1 * (step % 7),
             "train/tokens_per_second": 12345.6 + step, "train/epoch": step // 1000})
run.finish()
"""


def write_events(path: Path, points: int, tags: int = 20) -> None:
    """An event file as torch's `SummaryWriter` writes it, with check sums made by the thousand."""
    import numpy as np
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    from barograph.importing.tfrecord import checksums

    names = [f"train/layer_{tag}/some_metric" for tag in range(tags)]
    draws = np.random.default_rng(1).normal(size=points).tolist()
    bodies = [Event(wall_time=1.7e9, file_version="brain.Event:2").SerializeToString()]
    for at, draw in enumerate(draws):
        value = Summary.Value(tag=names[at % tags], simple_value=draw)
        event = Event(wall_time=1.7e9 + at * 0.0123, step=at // tags, summary=Summary(value=[value]))
        bodies.append(event.SerializeToString())
    with path.open("wb") as file:
        for begin in range(0, len(bodies), 50_000):
            some = bodies[begin : begin + 50_000]
            heads = [struct.pack("<Q", len(body)) for body in some]
            parts = []
            for stretches in (heads, some):
                lengths = np.array([len(one) for one in stretches], np.int64)
                whole = np.frombuffer(b"".join(stretches), np.uint8)
                parts.append(checksums(whole, np.cumsum(lengths) - lengths, lengths).tolist())
            for head, body, first, second in zip(heads, some, *parts, strict=True):
                file.write(head + struct.pack("<I", first) + body + struct.pack("<I", second))


def read_ours(path: Path, source: Any) -> tuple[float, list[Any]]:
    """Processor time for all of a path's items, and the points among them."""
    from barograph.importing.source import ImportedPoints

    begin = time.process_time()
    head = path.read_bytes()[:65536] if path.is_file() else b""
    points = [
        item for found in source.find(path, head) for item in source.read(found) if isinstance(item, ImportedPoints)
    ]
    return time.process_time() - begin, points


def run_theirs(python: str, program: str, path: Path, folder: Path) -> dict[str, Any]:
    answer = folder / "theirs.json"
    subprocess.run([python, "-c", program, str(path), str(answer)], check=True, capture_output=True)
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def measure_tensorboard(points: int, theirs: int, repeats: int) -> None:
    from barograph.importing.tensorboard import SOURCE

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large, small = folder / "large", folder / "small"
        for place, count in ((large, points), (small, theirs)):
            place.mkdir()
            write_events(place / "events.out.tfevents.1700000000.host.1.0", count)
        times = [read_ours(large, SOURCE)[0] for _ in range(repeats)]
        ours = statistics.median(times)
        answer = run_theirs(sys.executable, THEIR_TENSORBOARD, small, folder)
        seconds = answer["seconds"] * points / theirs
        got: dict[str, list[tuple[int, int, float]]] = {}
        for item in read_ours(small, SOURCE)[1]:
            for column, tag in enumerate(item.names):
                rows = zip(item.steps.tolist(), item.times.tolist(), item.values[:, column].tolist(), strict=True)
                got.setdefault(tag, []).extend(rows)
        wanted = {tag: [(s, round(t * 1e6), v) for s, t, v in rows] for tag, rows in answer["found"].items()}
        wrong = sum(got.get(tag) != rows for tag, rows in wanted.items()) + len(got.keys() ^ wanted.keys())
        print(f"{points:,} scalars: {ours:.2f} s; EventAccumulator {seconds:.1f} s ({theirs:,} measured)")
        print(f"{seconds / ours:.0f} times as fast; tags that differ: {wrong} of {len(wanted)}")


def measure_wandb(rows: int, theirs: int, repeats: int, python: str) -> None:
    from barograph.importing.wandb_offline import SOURCE

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-c", WRITE_WANDB, name, str(rows)], check=True, capture_output=True)
        (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
        ours = statistics.median(read_ours(file, SOURCE)[0] for _ in range(repeats))
        answer = run_theirs(python, THEIR_WANDB, file, folder)
        got: dict[int, dict[str, float]] = {}
        for item in read_ours(file, SOURCE)[1]:
            for step, values in zip(item.steps.tolist(), item.values.tolist(), strict=True):
                got.setdefault(step, {}).update(zip(item.names, values, strict=True))
        wrong = 0
        for row in answer["found"]:
            mine = got.get(row["_step"], {})
            wrong += any(mine.get(key) != value for key, value in row.items() if not key.startswith("_"))
        print(f"{rows:,} history rows, {file.stat().st_size / 1e6:.0f} MB: {ours:.2f} s")
        seconds, less = answer["seconds"], answer["seconds"] - answer["summaries"]
        print(f"DataStore of W&B {answer['version']}: {seconds:.2f} s; {less:.2f} s without summaries")
        print(f"{seconds / ours:.1f} times as fast, {less / ours:.1f} without summaries")
        print(f"rows that differ: {wrong} of {len(answer['found'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tensorboard", "wandb"))
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--their-points", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with wandb==0.19.11")
    given = parser.parse_args()
    if given.what == "tensorboard":
        measure_tensorboard(given.points, given.their_points, given.repeats)
    else:
        measure_wandb(given.rows, given.rows, given.repeats, given.python)
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
