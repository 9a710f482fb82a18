"""Commands that make something to look at: demo, bench.

In:   words typed by a person or a script.
Out:  a training; figures of the device.
"""

from __future__ import annotations

import argparse

from barograph.cli.commands import Commands


def add(commands: Commands) -> None:
    """Declare them."""
    parser = commands.add("demo", _demo, "run", "train a small GPT on Python's source text, as an example")
    parser.add_argument("--steps", type=int, help="optimizer steps (default: about a minute of training)")
    parser.add_argument("--dir", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same losses (default 0)")
    parser.add_argument("--moe", action="store_true", help="train a mixture of experts")
    parser.add_argument(
        "--mup", action="store_true", help="run a coordinate check of µP over widths instead of one training"
    )
    parser.add_argument("--quiet", action="store_true", help="show only a progress bar and the summary")
    parser.add_argument("--fault", metavar="KIND", help="break the training on purpose, to see what the doctor finds")
    parser.add_argument("--resume", metavar="RUN", help="continue a run of the demo from its last checkpoint")

    parser = commands.add("bench", _bench, "run", "measure the peak TFLOP/s of this device")
    parser.add_argument("what", choices=("peak",), help="peak: the TFLOP/s that matrix products reach")
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda or cuda:N; the first GPU if there is one")
    parser.add_argument(
        "--seconds", type=float, default=3.0, metavar="N", help="seconds for each precision (default 3)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _demo(options: argparse.Namespace) -> int:
    from barograph.demo.train import run_demo, run_mup

    if options.mup:
        return run_mup(options.dir, options.seed)
    given = {"steps": options.steps, "resume": options.resume, "fault": options.fault}
    chosen = {name: value for name, value in given.items() if value is not None}
    return run_demo(dir=options.dir, seed=options.seed, moe=options.moe, quiet=options.quiet, **chosen)


def _bench(options: argparse.Namespace) -> int:
    from barograph.probes.speed.achieved import bench_peak

    return bench_peak(options.device, options.seconds, options.json)
