"""`barograph demo`: from its arguments to a trained model, a recorded run and a summary.

In:   the number of steps, a folder for runs, a seed, dense or mixture of experts, or a run to go on with.
Out:  a run, what it shows on the screen, and an exit code: 0, 1 without torch or text to train on,
      2 for a wrong argument, 130 after Ctrl-C. Every refusal is one sentence.

torch is imported here only once the arguments are known to be good.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import barograph
from barograph.core import liveness, manifest, options
from barograph.core.progress import Work, progress
from barograph.demo import summary, text
from barograph.probes.speed import achieved
from barograph.query import catalog
from barograph.query import stored as query

if TYPE_CHECKING:
    from barograph.demo.loop import Loop, Plan
    from barograph.training.run import Run

PROJECT = "demo"
MOST_THREADS = 4  # the matrices are small: more threads would mostly wait for each other
Folder = str | os.PathLike[str]


class DemoRefusal(Exception):
    """The demo cannot do what was asked: one sentence, and the exit code."""

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence)
        self.code = code


def run_demo(
    steps: int | None = None,
    dir: Folder | None = None,
    seed: int = 0,
    moe: bool = False,
    resume: str | None = None,
    quiet: bool = False,
    fault: str | None = None,
) -> int:
    """Train, record and tell; returns the exit code.

    steps: optimizer steps; by default about a minute's worth, or for a resumed run what it had planned.
    dir: the folder of runs; by default as for `barograph.init`.
    seed: the same seed gives the same losses on the same machine.
    moe: a mixture of experts. resume: the run to go on with; its own seed and kind of model are kept.
    quiet: a progress bar instead of a line a step. fault: the name of one of `faults.FAULTS`, which breaks the
    training after two fifths of its steps; the doctor says at the end what it found.
    """
    began = time.perf_counter()
    try:
        _check(steps, seed)
        stored = _find(resume, dir) if resume is not None else None
        loop = _prepare(steps, dir, seed, moe, stored, quiet, fault)
    except DemoRefusal as refusal:
        print(f"barograph: {refusal}", file=sys.stderr)
        return refusal.code
    return _train(loop, dir, quiet, began, fault)


def run_mup(dir: Folder | None = None, seed: int = 0) -> int:
    """The coordinate check of `widths`, refused with a sentence where there is no torch."""
    try:
        _check(None, seed)
        _import_torch(quiet=False)
    except DemoRefusal as refusal:
        print(f"barograph: {refusal}", file=sys.stderr)
        return refusal.code
    from barograph.demo.widths import run_widths

    return run_widths(dir, seed)


# -- before the run ----------------------------------------------------------------------------------


def _check(steps: int | None, seed: int) -> None:
    if steps is not None and steps < 1:
        raise DemoRefusal(f"--steps is {steps}, but a training needs at least 1 step.")
    if not 0 <= seed < 2**63:
        raise DemoRefusal(f"--seed is {seed}, but it has to be a whole number from 0 to 2^63 - 1.")


def _find(which: str, dir: Folder | None) -> query.StoredRun:
    try:
        stored = catalog.find(which, dir)
    except KeyError as error:
        raise DemoRefusal(str(error.args[0])) from None
    if stored.project != PROJECT or not isinstance(stored.config.get("plan"), Mapping):
        raise DemoRefusal(f"{stored.id} is not a run of the demo, so the demo can't go on with it.")
    if stored.status in liveness.ALIVE:
        raise DemoRefusal(f"{stored.id} is still running; stop it first, or wait for its end.")
    return stored


def _import_torch(quiet: bool) -> None:
    if "torch" not in sys.modules:
        if not quiet:
            print("Loading torch ...", flush=True)
        # Waiting threads sleep instead of spinning: 20% slower on an idle machine of two cores, three times
        # as fast beside one busy program.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    hint = 'run: pip install "barograph[demo]"'
    try:
        import torch
    except ImportError as error:
        missing = error.name == "torch"
        why = "it is not installed" if missing else f"it can't be loaded ({error})"
        raise DemoRefusal(f"The demo needs PyTorch, and {why}; {hint}", 1) from None
    except OSError as error:  # a library of torch's that is not there
        raise DemoRefusal(f"The demo needs PyTorch, and it can't be loaded ({error}); {hint}", 1) from None
    if not hasattr(torch.nn, "RMSNorm"):
        raise DemoRefusal(f"The demo needs PyTorch 2.4 or newer, and {torch.__version__} is installed; {hint}", 1)
    torch.set_num_threads(min(MOST_THREADS, torch.get_num_threads()))


def _prepare(
    steps: int | None,
    dir: Folder | None,
    seed: int,
    moe: bool,
    stored: query.StoredRun | None,
    quiet: bool,
    fault: str | None,
) -> Loop:
    """The training, ready for its next step. Whatever can be refused is refused before a run is begun."""
    _import_torch(quiet)
    from barograph.demo.faults import FAULTS, STEPS
    from barograph.demo.loop import Loop, Plan

    broken = None
    if fault is not None:
        if stored is not None:
            raise DemoRefusal("--fault breaks a new training; leave --resume out.")
        if fault not in FAULTS:
            near = difflib.get_close_matches(fault, FAULTS, 1, 0.0)[0]
            raise DemoRefusal(f"There is no fault {fault!r}; the nearest is {near}. There are: {', '.join(FAULTS)}.")
        steps, moe = steps or STEPS, moe or FAULTS[fault].moe
        broken = FAULTS[fault](max(1, steps * 2 // 5))
    try:
        corpus = text.read_corpus()
    except text.NoSources as error:
        raise DemoRefusal(str(error), 1) from None
    if stored is None:
        plan, checkpoint = Plan(seed=seed, moe=moe, **({} if steps is None else {"steps": steps})), None
    else:
        plan, checkpoint = _continued(stored, steps, Plan())
    loop = Loop(corpus, plan, broken)
    if stored is not None and checkpoint is not None:
        try:
            loop.restore(stored.dir / "checkpoints" / str(checkpoint.get("checkpoint")), checkpoint)
        except (OSError, ValueError) as error:
            raise DemoRefusal(f"{error}.", 1) from None
    digest = hashlib.sha256(corpus.train.text).hexdigest()
    config = {
        "plan": asdict(plan),
        "model": asdict(plan.shape()),
        "text": {"train_bytes": len(corpus.train.text), "train_sha256": digest},
    }
    name = "-".join(part for part in ("moe" if moe else "gpt", fault, f"seed{seed}" if seed else None) if part)
    loop.run = _begin(name, config, plan.steps, dir, stored, loop.step, quiet)
    if stored is not None and stored.config.get("text") != config["text"]:
        loop.run.log_message(loop.step, "This Python's library is not the one that the run began with.")
    _introduce(loop, corpus)
    return loop


def _continued(stored: query.StoredRun, steps: int | None, usual: Plan) -> tuple[Plan, dict[str, Any]]:
    """The plan of a run to go on with, and the metadata of the checkpoint to go on from."""
    about = manifest.last_checkpoint(stored.dir / "checkpoints")
    if about is None:
        raise DemoRefusal(f"{stored.id} has no checkpoint to go on from; start a new run.")
    try:
        plan = replace(usual, **stored.config["plan"])
    except TypeError:
        raise DemoRefusal(f"{stored.id} was made by another version of the demo; start a new run.") from None
    plan = plan if steps is None else replace(plan, steps=steps)
    if plan.steps <= about["step"]:
        raise DemoRefusal(f"{stored.id} has done {about['step']} steps; to go on, give --steps a greater number.")
    return plan, about


def _begin(
    name: str,
    config: dict[str, Any],
    steps: int,
    dir: Folder | None,
    stored: query.StoredRun | None,
    done: int,
    quiet: bool,
) -> Run:
    given: dict[str, Any] = {"verbosity": -2} if quiet else {}
    if stored is None:
        given["name"] = name
    else:
        given |= {"resume": str(stored.dir), "resume_step": done + 1}
    try:
        # a folder that can't be written is refused here, not replaced by another
        folder = Path(dir or options.load({}).dir) / PROJECT
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        run = barograph.init(PROJECT, config=config, dir=dir, total_steps=steps, **given)
    except OSError as error:
        where = error.filename or dir
        raise DemoRefusal(f"The run's folder can't be written ({error.strerror or error}: {where}).") from None
    except (barograph.ConfigError, barograph.LogFileError) as error:  # of the environment, or a file
        raise DemoRefusal(str(error)) from None
    return run


def _expect(loop: Loop) -> None:
    """What this machine could do at best: measured in half a second, for the speed of light of the steps."""

    try:
        peak = achieved.stored().get("fp32") or achieved.measure("cpu", "fp32", 0.5)
    except achieved.MeasureError:
        return
    loop.run.model.speed_of_light(
        loop.model, sequence=loop.model.shape.context, dtypes="fp32", devices=1, peak_tflops=peak.tflops
    )


def _introduce(loop: Loop, corpus: text.Corpus) -> None:
    kind = "mixture of experts" if loop.plan.moe else "GPT"
    sentence = f"A {kind} of {loop.parameters:,} parameters learns to write Python from the standard library."
    loop.run.log_message(loop.step, f"Going on after step {loop.step}." if loop.step else sentence)
    place, seed = loop.loader.state(), loop.plan.seed
    train, held_out = (
        {"files": len(split.files), "tokens": len(split.text)} for split in (corpus.train, corpus.held_out)
    )
    loop.run.log_dataset(
        train | {"file_index": place["pq_idx"], "chunk_index": place["rg_idx"], "seed": seed},
        held_out | {"file_index": 0, "chunk_index": 0, "seed": seed},
    )
    _expect(loop)


# -- the run -----------------------------------------------------------------------------------------


class _CtrlC:
    """While entered, Ctrl-C sets `pressed`, so that no step is left half done; a second one interrupts."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> _CtrlC:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *problem: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _press(self, number: int, frame: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


def _train(loop: Loop, dir: Folder | None, quiet: bool, began: float, fault: str | None) -> int:
    """Run the loop to its end or to Ctrl-C; returns the exit code."""
    run, last = loop.run, loop.plan.steps
    before, after = "", None
    first = loop.val_loss
    bar: AbstractContextManager[Work] = progress("Training", last - loop.step) if quiet else nullcontext(Work(None))
    with suppress(KeyboardInterrupt), run, _CtrlC() as ctrl_c, bar as work:  # `run` ends as interrupted
        if loop.step == 0:
            loop.evaluate()
            first = loop.val_loss
        before = loop.sample()
        while loop.step < last and not ctrl_c.pressed:
            loop.train_step()
            work.advance()
            if loop.step == last:
                after = loop.sample()
            if loop.evaluation_is_due():
                loop.evaluate()
            if loop.checkpoint_is_due():
                loop.save()
        if loop.step < last:
            if loop.step:
                loop.save()
            run.finish("interrupted")
    if after is None:
        print(summary.interrupted(run.dir, loop.step))
    else:
        print(summary.finished(loop, first, before, after, time.perf_counter() - began))
    print(summary.spent(run.dir))
    if fault is not None:
        print(summary.examined(run.dir, fault, loop.plan.steps))
    print(summary.what_next(run.dir, dir, goes_on=after is None), flush=True)
    return 0 if after is not None else 130
