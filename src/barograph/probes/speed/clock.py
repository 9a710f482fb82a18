"""StepClock: times steps, their phases, and what happens between them.

In:   the beginnings and ends of steps and phases, on the training's thread; tokens of a step.
Out:  a `speed` record a step (its time, its phases, throughput, MFU), a `span` record for what is long
      and between steps, such as an evaluation.

A step lasts from its beginning to its end on the wall clock, and begins with the wait for its batch where
that was timed. Phases are timed by the wall clock too; where torch has started CUDA also by events on the
current stream, which are read later, without waiting, by another thread.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from barograph.probes.recording import Recording

STEP_PHASES = ("data", "forward", "backward", "optimizer", "communication")
"""Phases that belong to the next step, where they are timed outside of one; others are spans of their own."""

_MOST_PENDING = 1000  # steps whose events have not arrived: more means that they never will


def milliseconds(nanoseconds: int) -> float:
    """Milliseconds, to the microsecond: more says nothing and costs room in the log."""
    return nanoseconds // 1000 / 1000


class Phase:
    """`with` this, and the time goes to the phase. One object a name, used again and again."""

    __slots__ = ("_clock", "name")

    def __init__(self, clock: StepClock, name: str):
        self._clock, self.name = clock, name

    def __enter__(self) -> Phase:
        self._clock.enter(self.name)
        return self

    def __exit__(self, *problem: object) -> None:
        self._clock.leave()


class ClockedStep(NamedTuple):
    """One step by the wall clock. `seconds` is NaN where the step's beginning is not known."""

    seconds: float
    tokens_per_second: float
    mfu: float


class _Open(NamedTuple):
    path: str
    began: int  # nanoseconds
    event: Any


class _Pending(NamedTuple):
    """A step whose device times have not arrived."""

    step: int
    fields: dict[str, Any]
    events: list[tuple[str, Any, Any]]


class StepClock:
    """Times one run's steps. Its calls belong to one thread, the first to come; others may time spans."""

    def __init__(
        self,
        run: Recording,
        now: Callable[[], int] = time.perf_counter_ns,
        events: Callable[[], Any] | None = None,
    ):
        """now: nanoseconds. events: makes a recorded device event; by default torch's, once CUDA is started."""
        self.loose = False  # phases were timed outside of a step: they wait for the next logged one
        self.flops_per_token = math.nan
        self.hardware_flops_per_token = math.nan  # with recomputation
        self.peak_flops = math.nan  # a second, of all devices together
        self.formula = ""
        self.profile: Any = None  # a CommunicationProfile, if one was asked for
        self.busy = ""  # the phase or span that is open
        self._run = run
        self._now = now
        self._given_events = events
        self._make_event: Callable[[], Any] | None = events
        self._thread = threading.get_ident()
        self._phases: dict[str, Phase] = {}
        self._paths: dict[tuple[str, str], str] = {}
        self._stack: list[_Open] = []
        self._times: dict[str, int] = {}
        self._events: list[tuple[str, Any, Any]] = []
        self._began: int | None = None
        self._began_event: Any = None
        self._ended: int | None = None  # the last step's end
        self._between = 0  # nanoseconds of spans since then
        self._pending: deque[_Pending] = deque()
        self._polled = False  # whether another thread looks for them

    def between(self) -> str | None:
        """What the run does between steps, such as `eval`; None in a step, or where nothing was said."""
        return self.busy if self._began is None and self.busy not in ("", *STEP_PHASES) else None

    # -- phases ----------------------------------------------------------------------------------

    def phase(self, name: str) -> Phase:
        """The context manager that times a phase of that name."""
        result = self._phases.get(name)
        if result is None:
            if len(self._phases) > 1000:  # names with numbers in them
                self._phases.clear()
                self._paths.clear()
            result = self._phases[name] = Phase(self, str(name)[:200])
        return result

    def enter(self, name: str) -> None:
        """A phase begins; inside another one it is a part of that."""
        if threading.get_ident() != self._thread:
            self._others().append((name, self._now()))
            return
        if self._stack:
            above = self._stack[-1].path
            path = self._paths.get((above, name)) or self._paths.setdefault((above, name), f"{above}/{name}")
        else:
            path = name
            self.busy = name
            if self._began is None:
                self._look_for_device()
        event = self._make_event() if self._make_event is not None else None
        self._stack.append(_Open(path, self._now(), event))

    def leave(self) -> None:
        """The innermost phase ends."""
        if threading.get_ident() != self._thread:
            self._leave_other()
            return
        if not self._stack:
            return
        path, began, event = self._stack.pop()
        took = self._now() - began
        if not self._stack:
            self.busy = ""
            if self._began is None:
                if path not in STEP_PHASES:
                    self._span(path, took)
                    return
                self.loose = True
        self._times[path] = self._times.get(path, 0) + took
        if event is not None and self._make_event is not None:
            self._events.append((path, event, self._make_event()))

    def _span(self, name: str, took: int) -> None:
        """Something between steps: what was timed inside it goes with it."""
        self._between += took
        fields: dict[str, Any] = {"name": name, "duration_ms": milliseconds(took)}
        inside = [path for path in self._times if path.startswith(f"{name}/")]
        if inside:
            fields["phase"] = {f"{path[len(name) + 1 :]}_ms": milliseconds(self._times.pop(path)) for path in inside}
            self._events = [event for event in self._events if not event[0].startswith(f"{name}/")]
        self._run.record("span", self._run.current_step, fields)

    def _others(self) -> list[tuple[str, int]]:
        if not hasattr(self, "_local"):
            self._local = threading.local()
        stack: list[tuple[str, int]] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def _leave_other(self) -> None:
        """A phase of another thread ran beside the steps: it is recorded, and enters no step's time."""
        stack = self._others()
        if stack:
            name, began = stack.pop()
            fields = {"name": name, "duration_ms": milliseconds(self._now() - began), "beside": True}
            self._run.record("span", self._run.current_step, fields)

    def wrap(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches, with the wait for each of them timed as the phase `data`."""
        waiting = self.phase("data")
        source = iter(batches)
        while True:
            with waiting:
                try:
                    batch = next(source)
                except StopIteration:
                    break
            yield batch

    # -- steps -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """A step begins."""
        self._thread = threading.get_ident()
        if self._began is not None:  # the step before was given up, by an exception or `continue`
            self._stack.clear()
            self._times.clear()
            self._events.clear()
        self.loose = False
        self._look_for_device()
        if self.profile is not None:
            self.profile.begin()
        if self._make_event is not None:
            self._began_event = self._make_event()
        # the wait for the batch came before: the step began with it
        self._began = self._now() - sum(took for path, took in self._times.items() if "/" not in path)

    def abandon(self) -> None:
        """The step that was begun won't end: an exception is on its way."""
        self._began = None
        self.busy = ""
        self._stack.clear()
        self._times.clear()
        self._events.clear()

    def end(self, tokens: float = math.nan) -> ClockedStep:
        """The step's wall time and pace. `tokens`: those of all devices; a count that is none gives NaN."""
        now = self._now()
        if self._began is None:
            self._run.warn("a step ended that was not begun: its time is not known (call start_step first)")
            seconds = math.nan
        else:
            seconds = (now - self._began) / 1e9
        return self.pace(seconds, tokens)

    def pace(self, seconds: float, tokens: float) -> ClockedStep:
        """Tokens a second and MFU (a fraction, not cut at 1) of a step; NaN where they have no meaning."""
        speed = tokens / seconds if seconds > 0 and tokens > 0 else math.nan
        return ClockedStep(seconds, speed, speed * self.flops_per_token / self.peak_flops)

    def record(self, step: int, timed: ClockedStep, tokens: float = math.nan, **extra: Any) -> None:
        """Write the step's `speed` record; with device events, once they have arrived."""
        fields: dict[str, Any] = {"step_ms": round(timed.seconds * 1e3, 3)}
        if self.profile is not None and self.profile.end(step):
            fields["profiled"] = True
        if tokens == tokens:
            fields["tokens"] = tokens
            fields["tokens_per_second"] = timed.tokens_per_second
        if timed.mfu == timed.mfu:
            fields["mfu"] = timed.mfu
            if self.hardware_flops_per_token == self.hardware_flops_per_token:
                fields["hfu"] = timed.mfu * self.hardware_flops_per_token / self.flops_per_token
            fields["formula"] = self.formula
            fields["peak_tflops"] = self.peak_flops / 1e12
            if timed.mfu > 1:
                self._impossible(timed.mfu)
        if extra:
            fields.update(extra)
        if self._times:
            whole, phase = 0, {}
            for path, took in self._times.items():
                phase[f"{path}_ms"] = milliseconds(took)
                if "/" not in path:
                    whole += took
            if timed.seconds == timed.seconds:
                phase["other_ms"] = round(max(0.0, timed.seconds * 1e3 - whole / 1e6), 3)
            fields["phase"] = phase
        if self._make_event is not None and (self._events or self._began_event is not None):
            events = self._events
            if self._began_event is not None:
                events.append(("", self._began_event, self._make_event()))
            self._later(_Pending(step, fields, events))
            self._events = []
        else:
            self._run.record("speed", step, fields)
        self._times = {}
        self._began = self._began_event = None
        self._ended = self._now()
        self._between = 0
        self.loose = False

    def mark(self, step: Any) -> None:
        """A step was logged by a loop that begins none: phases timed since the last one are its phases."""
        if self._began is not None or not self._times or self._stack:
            return
        whole = sum(took for path, took in self._times.items() if "/" not in path)
        if self._ended is not None:
            whole = max(whole, self._now() - self._ended - self._between)
        number = step if type(step) is int else self._run.current_step
        self.record(number, ClockedStep(whole / 1e9, math.nan, math.nan))

    def _impossible(self, mfu: float) -> None:
        self._run.warn(
            f"an MFU of {mfu:.0%} can't be: the tokens, the FLOPs a token or the peak "
            f"({self.peak_flops / 1e12:g} TFLOP/s for all devices) are wrong; it is recorded as it is",
            key="impossible mfu",
        )

    # -- device events ---------------------------------------------------------------------------

    def _look_for_device(self) -> None:
        """Use events from the moment on at which torch has started CUDA; never start it."""
        if self._make_event is None and self._given_events is None:
            cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
            if cuda is not None and cuda.is_initialized():
                self._make_event = lambda: cuda.current_stream().record_event(cuda.Event(enable_timing=True))

    def _later(self, pending: _Pending) -> None:
        self._pending.append(pending)
        if not self._polled:
            self._polled = True
            register = getattr(self._run, "at_each_round", None)
            if register is not None:
                register(self.poll)
        if len(self._pending) > _MOST_PENDING:
            self._write(self._pending.popleft(), arrived=False)

    def poll(self, wait: bool = False) -> None:
        """Write the steps whose events have arrived; called by another thread. `wait`: the run is ending."""
        deadline = time.monotonic() + (2.0 if wait else 0.0)
        while self._pending:
            try:
                arrived = self._pending[0].events[-1][2].query()
            except Exception:  # the device is gone
                arrived = None
            if arrived is False and time.monotonic() < deadline:
                time.sleep(0.001)
            elif arrived is False and not wait:
                return
            else:
                self._write(self._pending.popleft(), arrived=bool(arrived))

    def _write(self, pending: _Pending, arrived: bool) -> None:
        """The device's times replace the host's; those stay beside as `host`."""
        step, fields, events = pending
        if arrived:
            device: dict[str, float] = {}
            for path, began, ended in events:
                name = f"{path}_ms" if path else "step_ms"
                device[name] = round(device.get(name, 0.0) + float(began.elapsed_time(ended)), 3)
            whole = device.pop("step_ms", None)
            if whole is not None:
                fields["device_ms"] = whole
            if device:
                if whole is not None:
                    inside = sum(took for name, took in device.items() if "/" not in name and name != "data_ms")
                    device["other_ms"] = max(0.0, whole - inside)
                fields["host"] = fields.pop("phase", {})
                fields["phase"] = device
        self._run.record("speed", step, fields)
