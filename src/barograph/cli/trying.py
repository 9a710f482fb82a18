"""Commands that make something to look at: demo, bench.

In:   words typed by a person or a script.
Out:  a training; figures of the device.
"""

from __future__ import annotations

import argparse

from barograph.cli.commands import Commands


def add(commands: Commands) -> None:
    """Declare them."""
    made = commands.add("demo", _demo, "train a small GPT on Python's own source text, with everything on")
    made.add_argument("--steps", type=int, help="optimizer steps (default: about a minute's worth)")
    made.add_argument("--dir", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)")
    made.add_argument("--seed", type=int, default=0, help="the same seed gives the same losses (default 0)")
    made.add_argument("--moe", action="store_true", help="a mixture of experts")
    made.add_argument("--mup", action="store_true", help="check a parametrisation over widths instead of training")
    made.add_argument("--quiet", action="store_true", help="a progress bar and the summary alone")
    made.add_argument("--fault", metavar="KIND", help="break the training on purpose, and have the doctor look at it")
    made.add_argument("--resume", metavar="RUN", help="go on with a demo's run from its last checkpoint")

    made = commands.add("bench", _bench, "measure what the device at hand can do, for the speed of light")
    made.add_argument("what", choices=("peak",), help="peak: the achievable TFLOP/s of matrix products")
    made.add_argument("--device", metavar="DEVICE", help="cpu, cuda or cuda:N; the first GPU if there is one")
    made.add_argument("--seconds", type=float, default=3.0, metavar="N", help="seconds for each precision (default 3)")
    made.add_argument("--json", action="store_true", help="print JSON")


def _demo(options: argparse.Namespace) -> int:
    from barograph.demo.train import run_demo

    if options.mup:
        from barograph.demo.train import run_mup

        return run_mup(options.dir, options.seed)
    given = {"steps": options.steps, "resume": options.resume, "fault": options.fault}
    chosen = {name: value for name, value in given.items() if value is not None}
    return run_demo(dir=options.dir, seed=options.seed, moe=options.moe, quiet=options.quiet, **chosen)


def _bench(options: argparse.Namespace) -> int:
    from barograph.probes.speed.achieved import bench_peak

    return bench_peak(options.device, options.seconds, options.json)
