"""ModelWatch: a model looked at from inside, at the right moments of each optimizer step.

In:   a model, its optimizers, how often to look at what; hooks that autograd and the optimizers call.
Out:  a `model` record a step, tables by layer and histograms at their intervals (docs/guides/model.md has them all).

Gradients are read when `optimizer.step` begins: after accumulation, clipping and a GradScaler's unscaling; the norm
before clipping when backward has ended; weights when the step is over. On a device nothing is waited for: the
run's own thread writes what has arrived. Nothing raises into the training.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, cast

from barograph.probes.model import blocks, report
from barograph.probes.model.backward import BackwardEnd, Sentinel
from barograph.probes.model.ended import last_round
from barograph.probes.model.findings import Witness
from barograph.probes.model.guest import CAPTURED, apart, left_as_it_was
from barograph.probes.model.hooks import OptimizerHooks, optimizers_of, scaler_around
from barograph.probes.model.looks import Looks, prepare, skipped_round, unscaled
from barograph.probes.model.outlet import Outlet, due_lines
from barograph.probes.model.own_time import OwnTime
from barograph.probes.model.parameters import joined, mesh_of, whole
from barograph.probes.model.reach import Reach
from barograph.probes.model.rounds import ModelRound
from barograph.probes.model.schedule import BUDGET, DEFAULTS, WatchSchedule
from barograph.probes.model.settings import IdleOptimizers, Unstepped
from barograph.probes.model.sharded import is_recorder, is_told_of
from barograph.probes.model.stale import StaleGradients
from barograph.probes.model.state import ModelState
from barograph.probes.model.unchanged import Unchanged
from barograph.probes.model.written import Written
from barograph.probes.recording import Recording, upcoming_step

_MOST_PENDING = 100  # steps whose figures have not arrived: the device is far behind, or gone
_SKIPS = 16  # steps in a row that a scaler leaves out


class ModelWatch:
    """Watches one model until `close` or the end of the run.

    model: as it is trained (plain, compiled, DDP, FSDP2). optimizer: one, or several; by default those that step its
    parameters are found. `gradients`, `updates`, `weights`, `histograms`, `activations`, `spectral`, `optimizer_state`,
    `moe`: intervals in optimizer steps, 0 is off; the defaults are those of the stability guide. every_step_norms:
    global norms at each step. scaler: the GradScaler; torch's is found. budget: the share of the step time to
    stay below, by postponing measurements and widening intervals; by default 0.02, and none where an interval is given
    or the model is sharded. memory_budget_mb: for the weights kept while a step is measured. modules: for activations,
    instead of blocks. show: called with (lines, "INFO" or "WARNING") at the stability guide's intervals.

    Raises ValueError for an interval or a budget that is none; nothing after that.
    """

    joined = staticmethod(joined)

    def __init__(
        self,
        run: Recording,
        model: Any,
        optimizer: Any = None,
        *,
        gradients: int | None = None,
        updates: int | None = None,
        weights: int | None = None,
        histograms: int | None = None,
        activations: int | None = None,
        spectral: int | None = None,
        optimizer_state: int | None = None,
        moe: int | None = None,
        every_step_norms: bool = True,
        scaler: Any = None,
        budget: float | Literal["default"] | None = "default",
        memory_budget_mb: float = 256,
        modules: Any = None,
        show: Callable[[list[str], str], Any] | None = None,
    ):
        chosen = {
            "gradients": gradients, "updates": updates, "weights": weights, "histograms": histograms,
            "activations": activations, "spectral": spectral, "optimizer_state": optimizer_state, "moe": moe,
        }  # fmt: skip
        given = {family: interval for family, interval in chosen.items() if interval is not None}
        intervals = DEFAULTS | {"norms": int(every_step_norms)} | given
        if budget == "default":
            sharded = any(mesh_of(parameter) is not None for parameter in model.parameters())
            budget = None if sharded or any(given.values()) else BUDGET
        fixed = {"moe"} if run.world_size > 1 else set()  # experts are counted by a collective of all ranks
        if not (isinstance(memory_budget_mb, (int, float)) and 0 <= memory_budget_mb < 1e9):
            raise ValueError(f"memory_budget_mb is a number of megabytes, not {memory_budget_mb!r:.60}")
        WatchSchedule(intervals, budget)  # refuses what is not an interval, before anything is hooked
        self.model = model
        self.records = is_told_of(run.rank, model)
        if not self.records:  # a copy of rank 0's model: nothing to see that rank 0 does not see
            intervals = dict.fromkeys(intervals, 0) | {"moe": intervals["moe"]}
        self.schedule = WatchSchedule(intervals, budget, fixed)
        self.show, self._scaler = show, scaler
        self._run, self._outlet = run, Outlet(run)
        self._witness = Witness(lambda sentence, key: run.warn(sentence, key=f"watch {key}"))
        about = run, model, self.schedule, memory_budget_mb, modules, self._witness
        self._looks = left_as_it_was(model, lambda: Looks(*about))
        self._blocks = tuple(blocks.find(model).blocks)
        self._given, self._start = optimizer is not None, run.current_step
        self._round, self._queue = cast("ModelRound | None", None), cast("deque[ModelRound]", deque())
        self._writing, self._home = threading.Lock(), threading.get_ident()
        self._armed: frozenset[str] = frozenset()  # due in the step to come
        self._rests = False  # whether that is not looked at
        self._held, self._last = True, cast("int | None", None)  # the first number is sure when the second step begins
        self._upcoming_before = upcoming_step(self._run)
        self._marked: int | None = None  # the step that was coming when backward began to leave gradients
        self._tells_norms = False  # the loop tells its own norm: gradients are not read before clipping
        self._freed = False  # gradients are gone when backward ends: they are looked at as they come
        self._costs: dict[str, float] = {}
        self._clock, self._time = self._looks.clock, OwnTime(self._looks.clock)
        self._before: Any = None  # the squared norm when backward ended, and what the gradients were then
        self._skipped, self._noticed = 0, -1
        self.is_closed = self._touched = False  # touched: by a backward pass since another optimizer stepped
        self._backward = BackwardEnd(self._at_backward_end)
        self._stale, self._unchanged, self._reach = StaleGradients(model), Unchanged(model), Reach(model)
        self._idle, self._unstepped, self._outside = IdleOptimizers(), Unstepped(), Written()
        self._said, self._noted = dict[str, float](), cast("tuple[Any, Any] | None", None)
        self._zeros: dict[str, Any] = {}  # what the last step with a record had of these; None where it is not known
        self._hooks = OptimizerHooks(
            optimizers_of(optimizer),
            lambda: self._looks.refresh(),
            self._before_step,
            self._after_step,
            self._other_step,
        )
        self.at_rest = self._hooks.at_rest
        self.at_steps: list[Callable[[int], Any]] = []  # called with each step as the optimizer's begins
        self._state, self._sentinel = cast("ModelState | None", None), Sentinel(self._mark, model)
        self._safely("set-up", self._begin)

    def _begin(self) -> None:
        self._run.at_finish.append(self.close)
        CAPTURED.clear()
        if not any(self.schedule.given.values()):
            return
        names = self._looks.refresh()
        if not names:
            meta = any(parameter.is_meta for parameter in self.model.parameters())
            what = " yet, for they are on the meta device" if meta else ": there is nothing to see"
            self._run.warn(f"the watched model has no trainable parameters{what}", key="watch empty")
        self._hooks.say_without(self._run.warn)
        about = self.model, self._clock, bool(self.schedule.given["activations"]), self._sentinel, self._outside
        self._state = left_as_it_was(self.model, lambda: ModelState(*about))
        prepare(self._looks.parameters, self.schedule.given)
        self._arm(upcoming_step(self._run))
        if (register := getattr(self._run, "at_each_round", None)) is not None:
            register(self.poll)

    @property
    def optimizers(self) -> list[Any]:
        """Those whose steps are seen, in the order in which they were given or found."""
        return self._hooks.optimizers

    def __deepcopy__(self, memo: Any) -> ModelWatch:
        return self  # a copy of the model (for an average of its weights, say) is not watched, and copies no run

    # -- which step it is --------------------------------------------------------------------------------

    def _mark(self) -> None:
        """A backward pass has reached the first parameter. What the loop logs after it is of this step still."""
        upcoming = self._marked = upcoming_step(self._run)
        self._touched = True
        self._witness.backward_left_gradients = True
        if self._given and not self._hooks.seen and self._scaler is None:
            self._safely(
                "first steps", lambda: self._queue.extend(self._unstepped.came(upcoming, self._looks.parameters))
            )
            self._held = not self._queue
        if self._scaler is not None and self._last is not None and not self._held:
            skipped = upcoming - self._last - 1  # the scaler leaves them out: no optimizer's step would tell
            if skipped > 0 and skipped % _SKIPS == 0 and self._noticed != upcoming:
                self._noticed = upcoming
                count = self._skipped + skipped
                about = self._looks, upcoming, self._scaler, count
                self._safely("skipped steps", lambda: self._queue.append(skipped_round(*about)))

    def _number(self) -> int:
        """The step in progress: what the loop logs next if it has logged since; else one more than before."""
        upcoming = upcoming_step(self._run) if self._marked is None or self._freed else self._marked
        self._marked = None
        before, last = self._upcoming_before, self._last
        logged = upcoming < before or (upcoming > before and (last is None or upcoming > last))  # < after a rewind
        step = upcoming if last is None or logged else last + 1
        if self._held and self._last is not None:
            first = next(iter(self._queue), None)
            # the loop logged the first step under another number than 0: it counts from 1
            if first is not None and first.step == 0 and upcoming == 2 and step == 2:
                first.step = 1
            # or it goes on from a checkpoint before the last step that the run knew
            elif first is not None and 0 < upcoming < before:
                first.step = upcoming - 1
            self._held = False
        elif self._scaler is not None and self._last is not None and step > self._last + 1:
            self._skipped += step - self._last - 1
        self._upcoming_before, self._last = upcoming, step
        return step

    # -- hooks -------------------------------------------------------------------------------------------

    def _safely(self, what: str, call: Callable[[], Any]) -> None:
        """Nothing goes wrong for the training, whatever goes wrong here; time spent is counted."""
        self._time.begin()
        try:
            import torch

            with torch.no_grad():
                apart(call)
        except Exception as error:
            with contextlib.suppress(Exception):
                reason = (str(error).splitlines() or [""])[0][:300]
                self._run.warn(
                    f"the model watch failed ({what}: {type(error).__name__}: {reason}); the training goes on, the "
                    "step's figures are missing",
                    key=f"watch {what} {type(error).__name__}",
                )
        self._time.end()

    def _before_step(self, optimizer: Any) -> None:
        self._safely("before the optimizer's step", lambda: self._look_before(optimizer))

    def _after_step(self, optimizer: Any) -> None:
        self._safely("after the optimizer's step", lambda: self._look_after(optimizer))

    def _look_before(self, optimizer: Any) -> None:
        current = self._round
        if current is None or id(optimizer) in current.begun:
            if current is not None:
                self._end_round(current)
            if self._scaler is None and (self._last is None or self._held):
                self._scaler = scaler_around()
                if self._before is not None:  # read before it was known
                    self._before = unscaled(self._before, self._scaler)
            current = self._round = self._new_round()
            for call in self.at_steps:
                call(current.step)
        current.begun.add(id(optimizer))
        if current.rests:
            self._looks.count(current, optimizer)
        else:
            self._looks.before(current, optimizer)

    def _new_round(self) -> ModelRound:
        step = self._number()
        if self._rests and self._state is not None:
            self._noted = None
            if not self._state.evaluates:
                self._time.spent += self._state.rested()
                return ModelRound(step, frozenset(), rests=True)
        current = ModelRound(step, frozenset() if self._rests else self.schedule.begin(step))
        current.costs, self._costs = self._costs, {}
        self._looks.begin(current)
        if self._noted is not None:
            (norm, most), self._noted = self._noted, None
            self._looks.note(current, norm, most)
        elif self._before is not None:
            self._looks.put_before(current, self._before)
        self._before, evaluated = None, False
        if self._state is not None:
            evaluated = self._state.evaluates
            self._state.put(current, self._looks.parameters, self._hooks.optimizers)
            self._time.spent += self._state.taken()
        self._sentinel.put(current, len(self._hooks.known) == 1, self._looks.owners(self._hooks.optimizers))
        self._outside.began(current, evaluated)
        if self._scaler is not None:
            self._looks.scaled(current, self._scaler, self._skipped)
        self._unchanged.began(current, self._looks, self._hooks.optimizers)
        return current

    def _look_after(self, optimizer: Any) -> None:
        self._marked = None  # backward passes within the step (a closure's) are of this step
        current = self._round
        if current is None or id(optimizer) not in current.begun:
            return
        if not current.rests:
            self._looks.after(current, optimizer)
            stale = self._stale.stepped(optimizer, self._looks)
            if stale is not None:
                current.stale(*stale)
        current.stepped.add(id(optimizer))
        # optimizers that were found by themselves may be followed by another one in the first step
        if current.stepped >= self._hooks.known and not (self._held and not self._given):
            self._end_round(current)
            self._round = None

    def _end_round(self, current: ModelRound) -> None:
        """The step is over: start what is on its way to the CPU, and get ready for the next step."""
        current.step_seconds = self._time.step_seconds()
        if current.rests:
            self._end_rest(current)
            return
        self._looks.end(current)
        if current.stepped and current.stepped == current.begun:
            still = self._unchanged.held(self._looks.parameters, self._looks.names.values())
            current.judge(still)
        owners = any(self._looks.owners(self._hooks.optimizers))
        self._outside.ended(self._looks.parameters)
        reached = self._idle.ended(current, self._hooks.optimizers, self._looks.names)
        loose, names = self._unchanged.reached, tuple(self._looks.names.values())
        self._witness.saw(current.present | reached, names, owners or self._freed, loose)
        self._reach.ended(
            current, self._witness.waiting, self._looks.names, lambda: self._looks.owners(self._hooks.optimizers)
        )
        current.figures |= self._witness.left_out(current.present, current.absent)
        if current.backwards and not current.present and owners and not self._freed:
            current.figures["cleared_gradients"] = 1.0
        if "gradients" in current.due and self._witness.waiting and self._witness.rounds > 1:
            current.figures |= {"without_gradient": len(self._witness.waiting), "optimizer_holds": float(owners)}
        quiet = self.schedule.budget is not None and current.adds_nothing_to(self._zeros)
        if not quiet:
            current.send()
        current.besides = self._time.besides(sum(current.costs.values()))
        if not current.events:
            self._looks.tell(current)
        self._arm(current.step + 1)
        self._time.settled()
        if not quiet:
            current.figures |= self._time.figures() | {"watch_bytes": self._looks.bytes}
            self._zeros = {name: current.figures.get(name) for name in report.SAID_ONCE}
            if not current.due & {"updates"} and not current.loose and current.unchanged is not None:
                self._zeros["unchanged"] = len(current.unchanged)
            self._queue.append(current)
        if getattr(self._run, "at_each_round", None) is None:
            self.poll()

    def _end_rest(self, current: ModelRound) -> None:
        """A step is over that was not looked at."""
        self._outside.ended(self._looks.parameters)
        self._idle.rested(current)
        current.besides = self._time.besides(0.0)
        self._looks.tell(current)
        self._arm(current.step + 1)
        self._time.settled()
        if getattr(self._run, "at_each_round", None) is None:
            self.poll()

    def _other_step(self, optimizer: Any) -> None:
        if self._touched and self._round is None:
            self._touched = False
            self._safely("after another optimizer's step", lambda: self._look_at_other(optimizer))

    def _look_at_other(self, optimizer: Any) -> None:
        """Another optimizer has stepped: does it hold copies of the parameters that should have been stepped?"""
        found = self._unchanged.foreign(optimizer, self._looks.parameters)
        if found is not None:
            current = ModelRound(self._number(), frozenset())
            current.suspect(found)
            current.send()
            self._queue.append(current)

    def _arm(self, upcoming: int) -> None:
        """Have in place what the next step needs, and nothing else."""
        self._sentinel.follow(self._looks.parameters, self._looks.names)
        rests = self.schedule.rests and not self._freed and self._looks.can_rest
        rests = rests and self._state is not None and self._state.can_rest
        if rests != self._rests and self._state is not None:
            self._rests = self._state.rests = self._sentinel.rests = rests
            self._stale.rest(rests)
        due = self._armed = frozenset() if rests else self.schedule.due(upcoming)
        self._looks.arm(due)
        if self._freed:
            self._backward.disarm()
            each = self._look_at_freed if due & {"norms", "gradients"} else None
            self._backward.arm(self.model, self._looks.parameters, each)
        # before the first step it is open whether an optimizer steps: gradients may be gone when backward ends
        elif ("gradients" in due and not self._tells_norms) or (
            self.schedule.given["gradients"] and not self._hooks.seen
        ):
            self._backward.arm(self.model, self._looks.parameters)
        else:
            self._backward.disarm()

    def _at_backward_end(self) -> None:
        self._safely("after backward", self._look_after_backward)

    def _look_after_backward(self) -> None:
        began = self._clock()
        if self._freed:
            current, self._round = self._round, None
            if current is None:  # nothing was due
                self.schedule.spend({}, self._time.skipped(began))
                self._arm(self._number() + 1)
            else:
                self._end_round(current)
            return
        seen = self._hooks.seen  # of the first step the norm is read in any case: who clears it, clears all
        if seen and "gradients" not in self._armed and any(item.grad is not None for item in self._looks.parameters):
            return
        squares = self._looks.gradient_squares()
        if squares is not None:
            self._before = unscaled(squares, self._scaler)
        elif self._round is None and not self._hooks.seen and whole(self._looks.parameters):
            self._freed = True
            self._run.warn(
                "gradients are freed while backward runs and no torch optimizer steps: the watch looks at each one as "
                "it comes, so the norm before clipping, updates and optimizer state are not known",
                key="watch freed",
            )
            self._arm(self._number() + 1)
        self._costs["gradients"] = self._costs.get("gradients", 0.0) + self._clock() - began

    def _look_at_freed(self, parameter: Any, gradient: Any) -> None:
        def look() -> None:
            if self._round is None:
                self._round = self._new_round()
            self._looks.freed(self._round, parameter, gradient)

        self._safely("in backward", look)

    # -- what the loop may say ---------------------------------------------------------------------------

    def note_norm(self, norm: Any, max_norm: float | None = None) -> None:
        """The loop's own gradient norm of this step, as `clip_grad_norm_` returned it: before clipping.

        With max_norm, what it clipped to, the norm after clipping follows from it and gradients are read for
        tables alone. A tensor is not waited for.
        """
        self._noted, self._tells_norms = (norm, max_norm), True

    # -- writing -----------------------------------------------------------------------------------------

    def poll(self, wait: bool = False) -> None:
        """Write the steps that have arrived; called by the run's thread. `wait`: the run is ending."""
        if not self._writing.acquire(blocking=wait):
            return
        began = time.thread_time() if threading.get_ident() != self._home else None
        try:
            if self._last is None and not self._freed and not self.is_closed:
                logged = self._run.current_step - self._start
                if logged >= 10 and not CAPTURED and self.schedule.intervals["norms"] and self._looks.parameters:
                    self._witness.no_steps(logged, self._given)
            if CAPTURED and not self.is_closed:
                self._witness.captured(self._run.current_step, self._last)
            deadline = time.monotonic() + 2.0
            while self._queue and (wait or not self._held):
                first = self._queue[0]
                if not first.ready() and len(self._queue) <= _MOST_PENDING:
                    if not wait or time.monotonic() > deadline:
                        return
                    time.sleep(0.001)
                    continue
                self._queue.popleft()
                self._safely_write(first)
        finally:
            if began is not None:
                self._time.wrote(began)
            self._writing.release()

    def _safely_write(self, found: ModelRound) -> None:
        try:
            if found.events:  # of the device's clock, which have arrived now
                self._looks.tell(found)
            made = report.make(found, self._blocks, tuple(self._looks.names.values()), self._state)
            report.leave_out_said(made, found.due, self._said)
            if not self.records or not is_recorder(self._looks.parameters):
                return
            report.write(made, found, self._outlet, self._run.record)
            if self.show is not None and self._run.settings.verbosity >= 1:
                for lines, level in due_lines(made, found.step):
                    self.show(lines, level)
        except Exception as error:
            self._run.warn(
                f"the watch's figures of step {found.step} could not be written ({type(error).__name__}: {error})",
                key=f"watch write {type(error).__name__}",
            )

    def flush(self, last: bool = False) -> None:
        """Write all steps that are over; waits for the device. last: and what was evaluated since, for none follows."""

        def end() -> None:
            current, self._round = self._round, None
            if current is not None:
                self._end_round(current)
            if last and self._state is not None and self._last is not None:
                self._queue.extend(last_round(self._number, self._state))

        self._safely("at the end", end)
        self._held = False
        self.poll(wait=True)

    def close(self) -> None:
        """Write what waits, and leave no hook behind."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            self.flush(last=True)
        finally:
            for end in (self._hooks.close, self._stale.close, self._reach.close, self._backward.disarm):
                end()
            if self._state is not None:
                self._state.close()
            self._sentinel.follow(())
            self._looks.close()
