"""How long a report of a large run takes, and how large it is.

    python benchmarks/report.py [--cache FOLDER] [--steps 1000000] [--series 2000] [--every 100] [--times 3]

The run: 20 series logged at every step, the others (statistics of layers) at every 100th step, as `run.watch` logs
them by default; written through the store's own writer and sealed, kept in the cache. Three faults are in it: a spike
of the loss, a NaN, a stall. Each report is made in a process of its own, imports among them; median of the times,
size of the HTML file, and whether the spike's one step is in the chart's data.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

import barograph
from barograph.store.seal import seal
from barograph.store.write import ImportWriter

SPIKE = 612_345  # of 1,000,000: a step that no round thinning meets
BLOCK = 20_000
QUANTITIES = {
    "gradients": ("norm", "mean", "std"),
    "updates": ("ratio", "update_norm"),
    "weights": ("norm", "std"),
    "activations": ("rms", "max"),
}
DENSE = (
    "train/loss", "train/norm", "train/lr", "train/duration_ms", "train/step_tokens", "train/tokens_per_second",
    "train/mfu", "train/loss_smooth", "speed/step_ms", "speed/phase/data_ms", "speed/phase/forward_ms",
    "speed/phase/backward_ms", "speed/phase/optimizer_ms", "data/padding_share", "data/tokens_seen",
    "model/grad_norm", "model/param_norm", "model/clip_coefficient", "memory/peak_gb", "memory/allocated_gb",
)  # fmt: skip


def layers(count: int) -> list[str]:
    """This many names of statistics of layers."""
    kinds = [(family, quantity) for family, ones in QUANTITIES.items() for quantity in ones]
    found = []
    for at in range(count):
        layer, (family, quantity) = at // len(kinds), kinds[at % len(kinds)]
        part = ("attention.qkv.weight", "attention.out.weight", "feed.up.weight", "feed.down.weight")[layer % 4]
        found.append(f"{family}/blocks.{layer // 4}.{part}/{quantity}")
    return found


def make(folder: Path, steps: int, series: int, every: int) -> Path:
    """The run, made once."""
    name = f"long_{steps}_{series}_{every}"
    path = folder / "report" / name
    if (path / "made").exists():
        return path
    run = barograph.init(
        project="report", name=name, dir=folder, verbosity=-2, git=False, machine=False, doctor=False,
        config={"max_steps": steps, "optimizer": {"lr": 3e-4, "schedule": "cosine", "warmup_steps": steps // 100},
                "model": {"layers": 55, "width": 2048}, "seed": 1, "batch_tokens": 4096},
    )  # fmt: skip
    run.finish()
    random = numpy.random.default_rng(0)
    writer = ImportWriter(path / "store" / "bulk")
    wide = tuple(layers(series - len(DENSE)))
    scale = 10.0 ** random.uniform(-3, 0, len(wide))
    start = 1_800_000_000_000_000
    spike = SPIKE * steps // 1_000_000
    for low in range(0, steps, BLOCK):
        step = numpy.arange(low, min(low + BLOCK, steps))
        part = step / steps
        took = 50.0 + random.standard_exponential(len(step))
        took[step == spike // 2] = 60_000.0
        noise = random.standard_normal((len(step), len(DENSE)))
        level = 2.5 + 6.0 * numpy.exp(-numpy.sqrt(step / (steps * 0.005)))
        loss = level + 0.05 * noise[:, 0]
        norm = 0.4 + 2 * numpy.exp(-step / (steps * 0.02)) + 0.04 * numpy.abs(noise[:, 1])
        loss[step == spike], norm[step == spike] = 77.25, 250.0
        loss[step == spike + 50_000 * steps // 1_000_000] = numpy.nan
        rate = 3e-4 * numpy.minimum(step / (steps * 0.01), 0.55 + 0.45 * numpy.cos(numpy.pi * part))
        columns = [
            loss, norm, rate, took, numpy.full(len(step), 4096.0), 4096e3 / took, 0.4 + 0.01 * noise[:, 2],
            level, took, 0.3 + 0.02 * noise[:, 3], 16 + noise[:, 4],
            31 + noise[:, 5], 2 + 0.1 * noise[:, 6], 0.02 + 0.002 * noise[:, 7], 4096.0 * (step + 1), norm,
            200 + 40 * part + 0.01 * noise[:, 8], numpy.minimum(1.0, 1 / norm), numpy.full(len(step), 61.5),
            44 + 0.2 * noise[:, 9],
        ]  # fmt: skip
        times = start + step * 51_000
        writer.points(DENSE, step, times, numpy.column_stack(columns).astype(numpy.float32), 1)
        seen = step[step % every == 0]
        drift = scale * (1 + 0.3 * numpy.sin(seen[:, None] / steps * 9 + numpy.arange(len(wide))))
        drift *= 1 + 0.05 * random.standard_normal(drift.shape)
        writer.points(wide, seen, start + seen * 51_000, drift.astype(numpy.float32), 1)
    writer.commit(0, ())
    seal(path, final=True)
    (path / "made").write_text("whole\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "barograph-benchmarks")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--series", type=int, default=2_000)
    parser.add_argument("--every", type=int, default=100, help="steps between two looks at the layers (default 100)")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    path = make(options.cache, options.steps, options.series, options.every)
    took: list[tuple[float, float]] = []
    code = (
        "import sys, time; t = time.perf_counter(); from pathlib import Path; "
        "from barograph.query.stored import StoredRun; "
        "from barograph.views.report.command import report; report([StoredRun(sys.argv[1])], Path(sys.argv[2])); "
        "import resource; "
        "print('TOOK', time.perf_counter() - t, time.process_time(), "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report"
        memory = 0.0
        for _ in range(options.times):
            began = time.perf_counter()
            command = [sys.executable, "-c", code, str(path), str(out)]
            found = subprocess.run(command, capture_output=True, text=True, check=True)
            words = found.stdout.rsplit("TOOK", 1)[1].split()
            took.append((time.perf_counter() - began, float(words[1])))
            memory = max(memory, float(words[2]))
        page = (out / "report.html").read_text(encoding="utf-8")
        markdown = sum(file.stat().st_size for file in out.glob("*.md"))
    wall, processor = (statistics.median(column) for column in zip(*took, strict=True))
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"{options.steps:,} steps, {options.series:,} series, of which {len(DENSE)} at every step; {load}")
    print(f"  whole process    {wall:6.2f} s, {processor:.2f} s of processor, {memory:,.0f} MiB  (target 10 s)")
    print(f"  report.html      {len(page.encode()) / 1e6:6.2f} MB  (target 3 MB);  Markdown {markdown / 1e3:.0f} kB")
    spike = SPIKE * options.steps // 1_000_000
    print(f"  the spike of step {spike:,} is in the page: {'77.25' in page and str(spike) in page}")


if __name__ == "__main__":
    main()
