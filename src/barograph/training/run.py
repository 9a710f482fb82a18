"""Run: what a training loop holds.

In:   named numbers at steps, the typed calls, steps and phases; more through its parts.
Out:  records in the run's log and rows in its block files, in the kernel's hands when a call returns.

`run.log` stands here. What there is besides is in parts: `run.model`, `run.data`, `run.ranks`, `run.alerts`,
`run.checkpoints`, `run.config`; what the run is, in `run.about`. Calls that are asked for often have a short way too
(`run.alert` is `run.alerts.send`, see `short.py`), and what probes need of a run (`record`, `warn`, `settings`, …) is
answered by its recorder.
"""

from __future__ import annotations

import contextlib
import copyreg
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.core import place, providers, segments
from barograph.core.options import Settings
from barograph.core.segments import Segment
from barograph.core.values import text, whole
from barograph.training.about import About
from barograph.training.alerting import RunAlerts
from barograph.training.checkpoints import Checkpoints
from barograph.training.configuration import RunConfig
from barograph.training.emitter import LAST_STEP
from barograph.training.ending import RunEnding, open_runs
from barograph.training.guard import guarded
from barograph.training.logfile import OpenLog
from barograph.training.metrics import draw_row, log_any
from barograph.training.probing import RunData, RunModel, RunRanks
from barograph.training.recorder import Recorder
from barograph.training.short import SHORT, ShortNames
from barograph.training.steps import Step, Steps
from barograph.training.typed import TypedCalls

if TYPE_CHECKING:
    from barograph.probes.model.watch import ModelWatch
    from barograph.probes.speed.clock import Phase

_encode = msgspec.json.Encoder().encode
_NUMBERS, _LARGEST = frozenset({float, int}), sys.float_info.max
_ROOM = 3900  # bytes of values with which a record surely fits a page of the file


if TYPE_CHECKING:

    class _Names(TypedCalls, ShortNames): ...

else:
    _Names = TypedCalls


class Run(_Names, contextlib.AbstractContextManager["Run"]):
    """One run, made by `barograph.init`. No call raises after that, unless `strict`.

    Attributes: `id`, `dir` (the run's folder), the parts (see above).
    """

    _out: Recorder
    id: str
    dir: Path
    about: About
    config: RunConfig
    alerts: RunAlerts
    model: RunModel
    data: RunData
    ranks: RunRanks
    checkpoints: Checkpoints

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        config: Mapping[str, Any],
        segment: Segment,
        callback: Callable[[str], Any] | None = None,
        next_step: int = 0,
        file: OpenLog | None = None,
    ):
        self._out = recorder = Recorder(folder, settings, segment, callback, next_step, file)
        self.id, self.dir = recorder.id, recorder.dir
        recorder.folder.on_change.append(lambda folder: setattr(self, "dir", folder))
        self._steps = Steps(recorder)
        self.about = About(recorder)
        self.config = RunConfig(recorder, config)
        self.alerts = RunAlerts(recorder)
        self.model = RunModel(recorder, self._steps, self.alerts)
        self.data = RunData(recorder, self._steps)
        self.ranks = RunRanks(recorder, self._steps, self.data)
        self.model.on_watch.append(self.ranks.follow)
        self.checkpoints = Checkpoints(recorder, self.config, self.data, self.alerts)
        self._steps.ranks = self.ranks
        self._steps.data = self.data
        self._ending = RunEnding(self, recorder, self.alerts, self.model)
        open_runs.add(self)

    def log(self, values: Mapping[Any, Any], step: int | None = None, commit: bool | None = None) -> None:
        """Record named numbers at a step (default: one more than the last, or what the values call `step`).

        Numbers may be Python's, NumPy's or torch's; one on an accelerator is read later, without
        waiting for it. Nested mappings are joined with `/`. Strings and None are kept in the log file.
        More than `wide_threshold` names go to the block file, as one row. `commit=False`, as W&B has it, leaves the
        count where it is: the next call without a step has the same one.
        """
        out = self._out
        if commit is False:
            coming = out.next_step
            self.log(values, step)
            if out.next_step != coming:
                out.next_step -= 1
            return
        try:
            shape = out.shapes.find(tuple(values))
            if shape is None or not shape.simple or (shape.step_name is not None and step is None):
                log_any(out, values, step)
                return
            if shape.wide:
                out.wide.pack(shape, values.values(), step)
                if shape.drawn:
                    draw_row(out, values, step)
                return
            try:
                body = _encode(values)
                total = sum(values.values())  # NaN, infinity, text, None and whatever else is not a number show in it
            except (TypeError, ValueError, OverflowError, RecursionError):  # the same names with other values
                log_any(out, values, step)
                return
            if type(total) not in _NUMBERS or not -_LARGEST < total < _LARGEST or len(body) > _ROOM:
                log_any(out, values, step)
                return
            if type(step) is not int or not 0 <= step <= LAST_STEP:
                step = out.at(step)
            else:
                out.next_step = step + 1
            second, fraction = divmod(time.time_ns() // 1000, 1_000_000)
            if second != out.second:
                out.tick(second)
            data = b'%b%06d","step":%d,%b' % (out.head, fraction, step, body[1:])
            shape.last = (step, body)
            out.log.append(data)
            if shape.drawn:
                draw_row(out, values, step)
            if out.callback is not None:
                out.call_back(out.callback, data)
            if out.clock is not None and out.clock.loose:
                out.clock.mark(step)
        except Exception as error:
            if isinstance(values, Mapping):
                out.failed("set of metrics", error)
            else:
                out.odd(f"run.log takes a mapping of names to numbers, not a {type(values).__name__}")

    def step(self, tokens: int | None = None, step: int | None = None) -> Step:
        """`with run.step(tokens=…) as step:` times one optimizer step and records it.

        tokens: those of all ranks; also by `step.set(tokens=…)`. step: default one more than the last.
        With `step.set(loss=…, norm=…, lr=…)` the step's own record is written too, and shown.
        """
        return self._steps.step(tokens, step)

    def phase(self, name: str) -> Phase:
        """`with run.phase("forward"):` times a part of a step: data, forward, backward, optimizer, or a name
        of yours; or something between steps, such as eval and checkpoint. Phases may be nested."""
        return self._steps.clock.phase(name if type(name) is str else text(name))

    def watch(self, model: Any, optimizer: Any = None, **options: Any) -> ModelWatch | None:
        """Look at the model from inside while it is trained: gradients, weights, updates, activations, experts.

        model: as it is trained (plain, compiled, DDP, FSDP2), or a list of those that are trained together. optimizer:
        one or several; found by themselves if not given. Options are intervals in steps, 0 is off: `gradients`,
        `updates`, `weights`, `histograms`, `activations`, `spectral`, `optimizer_state`, `moe`; and `scaler`, `budget`
        (share of the step time; 0.02 where no interval is given), `memory_budget_mb`, `modules`: docs/guides/model.md
        has them all. None, with a warning, where it can't.
        """
        return self.model.watch(model, optimizer, **options)

    @guarded("rewind")
    def rewind(self, step: int) -> None:
        """Go back to `step`: what was logged at it or later becomes an old branch, new records replace it."""
        back = whole(step)
        if back is None or back < 0:
            self._out.odd(f"run.rewind takes the step to go back to, a whole number from 0, not {text(step)[:60]!r}")
            return
        self._out.flush(5.0)
        self.model.flush()  # its figures are of the branch that ends here
        self.data.flush()
        number, launch = self._out.segment.number, place.launch_id()  # the ranks go back together: one segment
        segment = segments.begin(
            self.dir,
            kind="rewind",
            start_step=back,
            parent=number,
            launch=None if launch is None else f"{launch} back {number} {back}",
        )
        self._out.begin(segment, back)

    @property
    def stop_requested(self) -> bool:
        """Whether the loop is asked to stop: by `stop_on`, by `stop_early`, or by `request_stop`. To be looked at
        once a step; on several ranks by `barograph.stop_agreed`, so that all stop at the same one."""
        return self.alerts.stop_requested

    def finish(self, status: str | None = None, timeout: float = 10.0) -> None:
        """End the run: its last record, its files, its manifest. Takes at most about `timeout` s.

        status: how it ended. Without one it is "finished", or "failed" where an exception is on its way (in a
        `finally`, say), "interrupted" where that is Ctrl-C's.
        """
        self._ending.finish(status, timeout)

    def __exit__(self, *problem: Any) -> None:
        self._ending.leave(problem[1] if len(problem) > 1 else None)

    def __repr__(self) -> str:
        return f"<Run {self.id!r}: {self.about.status}, step {self._out.current_step}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What is in a part, what a reader answers, what a probe needs."""
            if name == "_repr_mimebundle_":
                return lambda **which: providers.provider("run's folder in a notebook")(self.dir, repr(self))
            if name.startswith("_"):
                raise AttributeError(name)
            if name in SHORT:
                return SHORT[name].find(self)
            if name in ("clock", "log_timed_step", "compare_ranks"):
                return getattr(self._steps, name)
            if hasattr(self._out, name):
                return getattr(self._out, name)
            raise AttributeError(f"a Run has no attribute {name!r}")


def attach(folder: str, settings: Settings, config: Mapping[str, Any]) -> Run:
    """The run in `folder`, written by this process too."""
    path = Path(folder)
    for run in open_runs:
        if run.dir == path and run._ending.is_here:  # the same process: the same run
            return run  # type: ignore[no-any-return]
    return Run(path, settings, config, segments.join(path))


def _reduce(run: Run) -> tuple[Any, ...]:
    """A pickled run is the same run, written by the process that unpickles it."""
    return attach, (str(run.dir), run._out.settings, dict(run.config))


copyreg.pickle(Run, _reduce)
