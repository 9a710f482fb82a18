"""Hugging Face's Trainer and TRL: `callbacks=[BarographCallback()]`, or `report_to="barograph"` after this import.

In:   the calls that a `Trainer` makes of its callbacks, on every rank.
Out:  a run with losses, evaluations, gradients, checkpoints, times of steps, and TRL's completions as samples.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from barograph.core import manifest, segments
from barograph.core.values import text
from barograph.integrations.shared import SentToWorkers, begin, open_run
from barograph.training.configuration import as_mapping
from barograph.training.guard import guarded
from barograph.training.run import Run

try:
    from transformers import TrainerCallback
    from transformers.integrations import integration_utils
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    raise ImportError(
        f"barograph.integrations.huggingface needs transformers 4.55 or newer ({error}): pip install -U transformers"
    ) from None

_MOST_SAMPLES = 64  # completions of one step that become samples
_PREFIXES = (("eval_", "eval/"), ("test_", "test/"))
_ENDS = frozenset({"train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos"})


class BarographCallback(SentToWorkers, TrainerCallback):
    """Records what a Trainer does. `run`: the run, from the beginning of a training on.

    run: one of your own, which stays open. Without it the run that `barograph.init` has opened is taken, else a new
    one is begun, which ends when another training begins or the process ends, so that an evaluation after the training
    belongs to it. watch: look at gradients and weights (`run.watch`); a mapping has its options. Other options are
    those of `barograph.init`.
    """

    _step: Any = None

    def __init__(self, run: Run | None = None, watch: Any = True, **options: Any):
        self.run: Run | None = run
        self._given, self._watch, self._options = run is not None, watch, options
        self._read: set[tuple[str, int]] = set()  # TRL's files of completions
        self._watched = self._off = False
        self._logged: tuple[int, set[str]] = (-1, set())  # step and names of the last `on_log`

    @property
    def _out(self) -> Any:
        return None if self.run is None else self.run._out

    # -- the beginning and the end --------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        """Find or begin the run; every rank does."""
        self._read = {_version(path) for path in _completions(args)}
        first = control.__dict__.setdefault("_barograph", self)
        self._off = first is not self
        if self._off:  # `callbacks=[…]` and `report_to` at once
            return
        if not self._given:
            self._begin(args, state)
        run = self.run
        assert run is not None
        self._describe(args, state, model)
        if self._watch and model is not None and not self._watched:
            options = self._watch if isinstance(self._watch, dict) else {}
            self._watched = run.watch(model, rest.get("optimizer"), **options) is not None
        if getattr(args, "logging_nan_inf_filter", False):
            run._out.warn(
                "logging_nan_inf_filter is on: Trainer replaces a loss that is NaN by the mean of those before it, "
                "so a divergence shows in the gradients alone; set logging_nan_inf_filter=False to see it"
            )

    def _begin(self, args: Any, state: Any) -> None:
        mine, self.run = self.run, None
        if mine is not None and mine._ending.is_here:
            if state.global_step >= mine.about.step > 0:
                self.run = mine  # the same training goes on
                return
            mine.finish()
        others = [run for run in _begun if run._ending.is_here]
        for run in others:  # another training's of this process
            run.finish()
        found = open_run()
        if found is None:
            found = begin(as_mapping(args), **(_going_on(args, state) | _named(args) | self._options))
            _begun.append(found)
        elif 0 < state.global_step < found.about.step:
            found.rewind(state.global_step + 1)
        self.run = found

    @guarded("description of a training")
    def _describe(self, args: Any, state: Any, model: Any) -> None:
        run = self.run
        assert run is not None
        run.about.plan_steps(state.max_steps)
        values = as_mapping(args)
        held = getattr(model, "config", None)
        if held is not None and callable(getattr(held, "to_dict", None)):
            values |= {"model": as_mapping(held)}
        run.config.update({name: value for name, value in values.items() if run.config.get(name) != value})
        if callable(getattr(model, "num_parameters", None)):
            run.config["num_parameters"] = model.num_parameters()

    @guarded("end of a training")
    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """The last completions; the run stays open for evaluations."""
        self._leave_step()
        self._read_completions(args)
        if self.run is not None:
            self.run.model.flush()

    # -- steps -------------------------------------------------------------------------------------------------

    @guarded("step")
    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """A step's time begins. The watch counts steps as the Trainer does."""
        if self.run is not None:
            self._leave_step()
            self._out.next_step = state.global_step + 1
            self._step = self.run.step(step=state.global_step + 1)
            self._step.__enter__()

    @guarded("step")
    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """A step's time ends; what was written beside it is read; the run's requests are passed on."""
        self._leave_step()
        self._read_completions(args)
        if self.run is not None and self.run.stop_requested:
            control.should_training_stop = True
        if self.run is not None and self.run.alerts.checkpoint_requested:
            control.should_save = True

    def _leave_step(self) -> None:
        if self._step is not None:
            step, self._step = self._step, None
            step.__exit__(None, None, None)

    # -- values --------------------------------------------------------------------------------------------------

    @guarded("set of metrics")
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        """What the Trainer logs: means over the ranks, so rank 0's alone are recorded."""
        if self.run is not None and state.is_world_process_zero and logs:
            self.run.log({_name(text(name)): value for name, value in logs.items()}, step=state.global_step)
            self._logged = state.global_step, set(logs)

    @guarded("evaluation")
    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **rest: Any) -> None:
        """What of an evaluation the Trainer has not logged."""
        step, names = self._logged
        rest_of_it = {
            name: value for name, value in (metrics or {}).items() if step != state.global_step or name not in names
        }
        if rest_of_it:
            self.on_log(args, state, control, rest_of_it)

    @guarded("checkpoint")
    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """A checkpoint, which a later launch goes on from."""
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if self.run is not None and path.is_dir():
            folder = str(self.run.dir.absolute())
            self.run.checkpoints.save(path, state.global_step, run_folder=folder)

    @guarded("completion")
    def _read_completions(self, args: Any) -> None:
        """TRL writes prompts, completions and rewards of a step into a file when `log_completions` is on."""
        pandas: Any = sys.modules.get("pandas")
        if self.run is None or self._out.rank != 0 or not getattr(args, "log_completions", False) or pandas is None:
            return
        for path in _completions(args):
            if _version(path) not in self._read:
                self._read.add(_version(path))
                self._add_samples(pandas.read_parquet(path))

    def _add_samples(self, table: Any) -> None:
        assert self.run is not None
        for row in table.head(_MOST_SAMPLES).to_dict("records"):
            self.run.data.sample(int(row["step"]), _words(row["completion"]), _words(row["prompt"]))


_begun: list[Run] = []
"""Runs that callbacks of this process have begun."""


def _name(name: str) -> str:
    """`eval_loss` as `eval/loss`; what a training logs at a step as `train/…`, as the other trackers have it."""
    for prefix, group in _PREFIXES:
        if name.startswith(prefix):
            return f"{group}{name.removeprefix(prefix)}"
    return name if name in _ENDS or name.startswith("train/") else f"train/{name}"


def _named(args: Any) -> dict[str, Any]:
    """The run's name and project, where the arguments have them."""
    name, project = getattr(args, "run_name", None), getattr(args, "project", None)
    named = {} if name in (None, "", getattr(args, "output_dir", None)) else {"name": name}
    return named if project in (None, "", "huggingface") else named | {"project": project}


def _going_on(args: Any, state: Any) -> dict[str, Any]:
    """The run that wrote the checkpoint from which the training goes on."""
    if not state.global_step:
        return {}
    path = getattr(args, "resume_from_checkpoint", None)
    with contextlib.suppress(Exception):
        if not isinstance(path, str):
            path = str(Path(args.output_dir) / f"checkpoint-{state.global_step}")
            path = path if Path(path).is_dir() else get_last_checkpoint(args.output_dir)
        held = manifest.read_checkpoint(path) or {}
        folder = held.get("run_folder")
        if folder and segments.read(Path(folder)):
            return {"resume": folder, "resume_step": state.global_step + 1}
    return {}


def _completions(args: Any) -> list[Path]:
    """TRL's files of completions, in the order of their steps."""
    return sorted((Path(args.output_dir) / "completions").glob("completions_*.parquet"))


def _version(path: Path) -> tuple[str, int]:
    """A file that is written anew is another one."""
    return path.name, path.stat().st_mtime_ns


def _words(value: Any) -> str:
    """A prompt or completion as text; of a conversation its messages."""
    messages = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(messages, (list, tuple)):
        return "\n".join(text(each.get("content", "")) if isinstance(each, dict) else text(each) for each in messages)
    return text(messages)


integration_utils.INTEGRATION_TO_CALLBACK["barograph"] = BarographCallback
