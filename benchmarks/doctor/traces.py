"""Makes the traces of the fault bench: one recorded training a fault, program and seed, and the same number of healthy
ones.

    python benchmarks/doctor/traces.py [--out FOLDER] [--seeds 3] [--jobs 1] [--only program/fault] [--resume]

In:   the tables of faults and healthy variants, the programs.
Out:  run folders `{out}/{program}/{fault or healthy}-{seed}` and `{out}/labels.json`. Traces that are there are left
      as they are; with `--resume` those that failed are made again, with `--relabel` labels alone are made anew.
      Every trace is a process forked from this one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
if importlib.util.find_spec("barograph") is None:
    sys.path.insert(0, str(HERE.parent.parent / "src"))

import eighteenth  # noqa: E402
import eighth  # noqa: E402
import eleventh  # noqa: E402
import fifteenth  # noqa: E402
import fifth  # noqa: E402
import fourteenth  # noqa: E402
import fourth  # noqa: E402
import nineteenth  # noqa: E402
import ninth  # noqa: E402
import opened  # noqa: E402
import seventeenth  # noqa: E402
import seventh  # noqa: E402
import sixteenth  # noqa: E402
import sixth  # noqa: E402
import tenth  # noqa: E402
import third  # noqa: E402
import thirteenth  # noqa: E402
import twelfth  # noqa: E402
import twentieth  # noqa: E402
import twentyeighth  # noqa: E402
import twentyfifth  # noqa: E402
import twentyfirst  # noqa: E402
import twentyfourth  # noqa: E402
import twentyninth  # noqa: E402
import twentysecond  # noqa: E402
import twentyseventh  # noqa: E402
import twentysixth  # noqa: E402
import twentythird  # noqa: E402
from faults import (  # noqa: E402
    BF16,
    DIFFUSION,
    ENCODER,
    FAULTS,
    GPT,
    LORA,
    MOE,
    POLICY,
    RANKS,
    RARE,
    TRAINER,
    VISION,
    VIT,
    Fault,
)  # fmt: skip
from healthy import HEALTHY, LOOP, NOISY, PLAIN, Healthy  # noqa: E402
from putaway import part_of, put_away  # noqa: E402

STEPS = {GPT: 200, MOE: 200, ENCODER: 220, VISION: 210, TRAINER: 200, POLICY: 200, RANKS: 200,
         **dict.fromkeys(LOOP, 200), **opened.STEPS, **third.STEPS, **fourth.STEPS, **fifth.STEPS,
         **sixth.STEPS, **seventh.STEPS, **eighth.STEPS, **ninth.STEPS, **tenth.STEPS,
         **eleventh.STEPS, **twelfth.STEPS, **thirteenth.STEPS, **fourteenth.STEPS,
         **fifteenth.STEPS, **sixteenth.STEPS, **seventeenth.STEPS, **eighteenth.STEPS,
         **nineteenth.STEPS, **twentieth.STEPS, **twentyfirst.STEPS, **twentysecond.STEPS,
         **twentythird.STEPS, **twentyfourth.STEPS, **twentyfifth.STEPS,
         **twentysixth.STEPS, **twentyseventh.STEPS, **twentyeighth.STEPS,
         **twentyninth.STEPS}  # fmt: skip
TUNED = (GPT, ENCODER, VISION, VIT, DIFFUSION, LORA, RARE, BF16)  # what thresholds may look at; the others are held out
COPY_SEED = 1000  # copies of a healthy variant have seeds from here on


class Trace(NamedTuple):
    """One training to make."""

    program: str
    kind: str  # a fault or a healthy variant
    seed: int

    @property
    def name(self) -> str:
        return f"{self.program}/{self.kind}-{self.seed}"


def plan(seeds: int, only: str = "") -> list[Trace]:
    """All traces, seed by seed: the healthy runs that others are compared with first, then faults and variants."""
    made = []
    for seed in range(seeds):
        turn = [Trace(program, PLAIN, seed) for program in STEPS]
        paired = {(one.compare, program): None for one in FAULTS.values() for program in one.programs}
        turn += [Trace(program, kind, seed) for kind, program in paired if kind != PLAIN]
        faulty = [Trace(program, fault.name, seed) for fault in FAULTS.values() for program in fault.programs]
        well = [
            Trace(program, one.name, seed + COPY_SEED * copy if one.copies > 1 else seed)
            for one in HEALTHY.values()
            for program in one.programs if one.name != PLAIN and (one.name, program) not in paired
            for copy in range(1, one.copies + 1)
        ]  # fmt: skip
        for number in range(max(len(faulty), len(well))):
            turn += faulty[number : number + 1] + well[number : number + 1]
        made += turn
    program, _, kind = only.partition("/")
    return [
        trace for trace in made
        if (not program or trace.program == program) and (not kind or trace.kind == kind)
    ]  # fmt: skip


def noisy(number: int) -> list[Trace]:
    """This many noisy and healthy trainings, each kind with seeds from 0 on."""
    return [Trace(*NOISY[place % len(NOISY)], place // len(NOISY)) for place in range(number)]


def placed(trace: Trace, steps: int | None = None) -> tuple[Fault | None, Healthy | None]:
    """The trace's fault with its onset, or its healthy variant."""
    if trace.kind in FAULTS:
        every = importlib.import_module(f"programs.{trace.program}").EVERY
        return FAULTS[trace.kind].placed(trace.seed, steps or STEPS[trace.program], every, trace.program), None
    return None, HEALTHY[trace.kind]


def make(trace: Trace, out: Path, steps: int | None = None) -> None:
    """Train and record one trace, in this process."""
    import torch

    torch.set_num_threads(1)
    import barograph

    program = importlib.import_module(f"programs.{trace.program}")
    steps = steps or STEPS[trace.program]
    fault, healthy = placed(trace, steps)
    if fault is not None:
        config = fault.configured(program.CONFIG, trace.program)
    else:
        config = healthy.configured(program.CONFIG, trace.program)  # type: ignore[union-attr]
    config["steps"] = steps
    variant = None if healthy is None or healthy.name in (PLAIN, "plain_again") else healthy.name
    shutil.rmtree(out / trace.name, ignore_errors=True)
    arguments = dict(project=trace.program, name=f"{trace.kind}-{trace.seed}", dir=str(out), verbosity=-2, git=False,
                     config=config, machine=False, watchdog=False, total_steps=steps)  # fmt: skip
    if hasattr(program, "launch"):  # every rank opens the run for itself
        arguments["output_dir"] = str(out / trace.name)  # ranks that make a folder by its name race for it
        program.launch(arguments, seed=trace.seed, steps=steps, fault=fault, healthy=variant)
        return
    run = barograph.init(**arguments)
    run = program.train(run, seed=trace.seed, steps=steps, fault=fault, healthy=variant)
    run.finish()


def preload() -> None:
    """Import in this process what all children need: a fork is then ready at once."""
    import torch

    torch.set_num_threads(1)
    import torch.distributed.fsdp
    import torch.distributed.tensor

    for program in STEPS:
        importlib.import_module(f"programs.{program}")
    from transformers import GPT2LMHeadModel, Trainer  # noqa: F401


def forked(work: Any, *arguments: Any) -> int:
    """A child that does the work and ends; its exit code says whether it could."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def finish(trace: Trace, out: Path, took: float) -> None:
    """Label a made trace: what `labels.json` says of it is kept beside the run."""
    from labels import label

    made = label(trace, out, placed(trace))
    made |= {"seconds": round(took, 2), "part": part_of(trace.program, trace.kind)}
    path = out / trace.name / "label.json"
    path.with_suffix(".new").write_text(json.dumps(made))
    path.with_suffix(".new").replace(path)


def gather(out: Path) -> dict[str, int]:
    """Write `labels.json` of the fair traces, and `left_out.json` of the others with the reason; count them."""
    fair: dict[str, Any] = {}
    unfair: dict[str, str] = {}
    known = {trace.name.rpartition("-")[0] for trace in plan(1)}
    for path in sorted(out.glob("*/*/label.json")):
        made = json.loads(path.read_text())
        name = f"{path.parent.parent.name}/{path.parent.name}"
        if name.rpartition("-")[0] not in known:
            continue  # of an older table
        if made.get("unfair"):
            unfair[name] = made["unfair"]
        else:
            fair[name] = made
    for name, table in (("labels.json", fair), ("left_out.json", unfair)):
        path = out / name
        path.with_suffix(f".{os.getpid()}").write_text(json.dumps(table, indent=1))
        path.with_suffix(f".{os.getpid()}").replace(path)
    return {"labelled": len(fair), "left out": len(unfair)}


def run_all(traces: list[Trace], out: Path, jobs: int, again: bool) -> int:
    """Make what is missing; returns how many failed."""
    waiting = [trace for trace in traces if not (out / trace.name / "label.json").exists()]
    if not again:
        waiting = [trace for trace in waiting if not (out / f"{trace.name}.failed").exists()]
    print(f"{len(traces) - len(waiting)} traces are there, {len(waiting)} to make in {out}", flush=True)
    busy: dict[int, tuple[Trace, float]] = {}
    failed, began = 0, time.time()
    for number, trace in enumerate([*waiting, None], 1):
        while busy and (trace is None or len(busy) >= jobs):
            child, status = os.wait()
            if child not in busy:
                continue
            done, started = busy.pop(child)
            took = time.time() - started
            if status == 0:
                status = os.waitpid(forked(finish, done, out, took), 0)[1]
            if status:
                failed += 1
                (out / f"{done.name}.failed").write_text(str(status))
            print(f"{number - 1}/{len(waiting)} {done.name} {'failed' if status else 'ok'} {took:.1f} s", flush=True)
            gather(out)
        if trace is not None:
            (out / trace.program).mkdir(parents=True, exist_ok=True)
            busy[forked(make, trace, out)] = (trace, time.time())
    print(f"{gather(out)}, {failed} failed, {time.time() - began:.0f} s", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / ".traces", help="where traces are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="trainings at the same time")
    parser.add_argument("--only", default="", help="program, or program/fault")
    parser.add_argument("--noisy", type=int, default=0, help="so many noisy and healthy trainings instead")
    parser.add_argument("--newer", action="store_true", help="the programs over programs/loop.py alone")
    parser.add_argument("--putaway", action="store_true", help="those that are put away alone, which are left out else")
    parser.add_argument("--relabel", action="store_true", help="label traces that are there anew, and make none")
    parser.add_argument("--resume", action="store_true", help="make those that failed again")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    preload()
    traces = noisy(given.noisy) or [
        trace for trace in plan(given.seeds, given.only)
        if put_away(trace.program, trace.kind) == given.putaway or given.only
    ]  # fmt: skip
    if not traces:
        parser.error("no training is put away" if given.putaway else f"there is no training {given.only!r}")
    if given.newer:
        traces = [trace for trace in traces if trace.program in LOOP]
    if given.relabel:
        for trace in traces:
            path = given.out / trace.name / "label.json"
            if path.exists():
                finish(trace, given.out.resolve(), json.loads(path.read_text()).get("seconds", 0.0))
        print(gather(given.out))
        return 0
    return 1 if run_all(traces, given.out.resolve(), given.jobs, given.resume) else 0


if __name__ == "__main__":
    sys.exit(main())
