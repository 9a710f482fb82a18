"""How fast printed logs are read: megabytes a second and memory, on generated logs.

    python benchmarks/textlogs.py [--megabytes 200] [--dialects nanochat,megatron]

Each log is written to a temporary folder, then read by a fresh process through the dialect's `find` and `read`.
"import" is the whole of it: found, read and stored as a run. Beside it: the same file read line by line with one
regular expression and `float`, the usual script. Seconds are of processor time, so other programs don't matter much;
what sorts the stored numbers later is a process of its own and not in them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

READER = """
import json, re, resource, sys, time
from pathlib import Path
path, kind, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
rows = points = 0
if how == "script":
    pattern = re.compile(r"(?:step|iteration) +(\\d+)/ *(\\d+)")
    pair = re.compile(r"([\\w/ ()]+): +([-+.,eE\\d]+)")
    begin = time.process_time()
    for line in open(path, errors="replace"):
        match = pattern.search(line)
        if match:
            rows += 1
            values = {name: float(value.replace(",", "")) for name, value in pair.findall(line)}
            points += len(values)
elif how == "import":
    import tempfile
    from barograph.importing import files
    from barograph.importing.collect import collect
    from barograph.importing.registry import identify
    with tempfile.TemporaryDirectory() as runs:
        begin = time.process_time()
        ((source, found),) = identify(path)
        tally = collect(source, found, Path(runs))[1]
        seconds = time.process_time() - begin
        files.stop_sealing(Path(runs))
    rows, points = tally.rows, tally.points
else:
    import numpy
    from barograph.importing.source import Points
    from barograph.importing.textlogs import SOURCES
    source = next(one for one in SOURCES if one.kind == kind)
    begin = time.process_time()
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    (found,) = source.find(path, head)
    for item in source.read(found):
        if isinstance(item, Points):
            rows += len(item.steps)
            points += item.values.size
if how != "import":
    seconds = time.process_time() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "rows": rows, "points": points, "peak_mb": peak}))
"""


def nanochat(step: int) -> str:
    return (
        f"step {step:05d}/9999999 ({step / 99999.99:.2f}%) | loss: {2 + 8 / (1 + step / 999):.6f} | lrm: 1.00 | "
        f"dt: {640 + step % 17:.2f}ms | tok/sec: {810_000 + step % 977:,} | bf16_mfu: 50.{step % 90 + 10} | "
        f"epoch: 1 pq: {step // 999} rg: {step % 80} | total time: {step / 90:.2f}m | eta: {9e5 - step / 90:.1f}m\n"
    )


def megatron(step: int) -> str:
    return (
        f" iteration {step:8d}/ 9999999 | consumed samples: {step * 512:12d} | elapsed time per iteration (ms): "
        f"{6700 + step % 97}.5 | learning rate: 1.499E-04 | global batch size:   512 | lm loss: "
        f"{2 + 8 / (1 + step / 999):.6E} | loss scale: 16384.0 | grad norm: {1 + step % 7 / 10:.3f} | number of "
        f"skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def nanogpt(step: int) -> str:
    return f"iter {step}: loss {2 + 8 / (1 + step / 999):.4f}, time {345 + step % 9}.17ms, mfu 38.{step % 90 + 10}%\n"


def modded_nanogpt(step: int) -> str:
    loss, average = 2 + 8 / (1 + step / 999), f"178.{step % 90 + 10}"
    return f"step:{step}/9999999 train_loss:{loss:.4f} train_time:{step * 178}ms step_avg:{average}ms\n"


def hf_printed(step: int) -> str:
    loss, epoch = 2 + 8 / (1 + step / 999), step / 1e5
    return f"{{'loss': {loss:.4f}, 'grad_norm': 1.19{step}, 'learning_rate': 3.9e-07, 'epoch': {epoch:.5f}}}\n"


def plain(step: int) -> str:
    return f"step {step} loss={2 + 8 / (1 + step / 999):.4f} lr=3.0e-4 acc: 0.91\n"


LOGS: dict[str, Callable[[int], str]] = {
    "nanochat": nanochat, "megatron": megatron, "nanogpt": nanogpt, "modded_nanogpt": modded_nanogpt,
    "hf_printed": hf_printed, "plain": plain,
}  # fmt: skip


def write(path: Path, line: Callable[[int], str], megabytes: int) -> None:
    size = step = 0
    with path.open("w") as file:
        while size < megabytes << 20:
            text = "".join(map(line, range(step, step + 10_000)))
            file.write(text)
            size, step = size + len(text), step + 10_000


def measure(path: Path, kind: str, how: str, repeats: int) -> dict[str, float]:
    runs: list[dict[str, float]] = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", READER, str(path), kind, how], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(repeats)
    ]
    return sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dialects", default="nanochat,megatron")
    options = parser.parse_args()
    print(f"{'dialect':16}{'MB':>6}{'MB/s':>8}{'import':>8}{'rows/s':>10}{'× script':>10}{'peak MB':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.dialects.split(","):
            path = Path(folder) / f"{kind}.log"
            write(path, LOGS[kind], options.megabytes)
            size = path.stat().st_size / 1e6
            ours = measure(path, kind, "barograph", options.repeats)
            script = measure(path, kind, "script", 1)
            whole = measure(path, kind, "import", options.repeats)
            print(
                f"{kind:16}{size:6.0f}{size / ours['seconds']:8.1f}{size / whole['seconds']:8.1f}"
                f"{ours['rows'] / ours['seconds']:10.0f}"
                f"{script['seconds'] / ours['seconds']:10.2f}{ours['peak_mb']:9.0f}"
            )
            path.unlink()


if __name__ == "__main__":
    main()
