"""BlackBox: a run's last steps in full detail, held in the process until something goes wrong.

In:   the end of the run's log and block files; the models that are watched; findings, exceptions, SIGTERM.
Out:  a folder `blackbox/{step}-{reason}` in the run's folder for each incident, at most `keep` of them.

Nothing is held but the states of random number generators, taken every ten seconds. When the training is about to end
it waits until the box is written, two seconds at most, by a thread that nobody else waits for.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from barograph.core.record import format_time
from barograph.core.values import text
from barograph.probes.memory.out_of_memory import is_out_of_memory
from barograph.probes.recording import Recording
from barograph.training.blackbox import files, live, states
from barograph.training.blackbox.nonfinite import Bad, first_of
from barograph.training.blackbox.ring import Held
from barograph.training.blackbox.tail import read_tail

WAIT = 2.0  # seconds that a crash may wait for its box
_FLUSH, _LOOK = 0.8, 0.7  # of those: for what the watches hold, and for a look at the model
_STATES_EVERY = 60.0  # seconds between full states of the random number generators
_DIGEST_EVERY = 10.0  # seconds between two digests of their states: a log call takes them
_DIGESTS = 64  # digests kept
_WRITERS = 4  # boxes that may be on their way at once


class BlackBox:
    """`dump` writes a box. watches: the run's looks at models, as they are at that moment.

    steps, limit_bytes: what is held at most. keep: boxes of this rank kept in the run's folder. guard: also write at
    unhandled exceptions and SIGTERM. Raises ValueError for bounds that are none; nothing after that.
    """

    def __init__(
        self,
        run: Recording,
        steps: int = 64,
        limit_bytes: int = 32 << 20,
        *,
        watches: list[Any] | None = None,
        keep: int = 5,
    ):
        if steps < 1 or limit_bytes < 0:
            raise ValueError(f"a black box keeps at least one step, in 0 bytes or more, not {steps} in {limit_bytes}")
        self._run = run
        self._steps, self._limit_bytes = steps, limit_bytes
        self._keep = max(1, keep)
        self._owner = os.getpid()
        self._watches: list[Any] = [] if watches is None else watches
        self.at_crash: list[Callable[[], object]] = []  # writes down what waits for the end of the step
        self._digests: list[dict[str, Any]] = []
        self._states: dict[str, Any] = {}
        self._states_at = self._digest_at = 0.0
        self._optimizers_seen: list[dict[str, Any]] = []  # hyper-parameters when last looked at
        self._written: set[tuple[str, int]] = set()
        self._writing: list[threading.Thread] = []
        self._problem: BaseException | None = None
        self._lock = threading.Lock()
        self._closed = False
        run.at_finish.append(self.close)

    def follow(self, watch: Any) -> None:
        """Also look at this watch's model and optimizers (`probes/model/watch.py`) when something goes wrong."""
        self._watches.append(watch)

    def asked(self, request: Mapping[str, Any]) -> None:
        """The process beside the training asks for a box, because of a finding."""
        finding = request.get("finding")
        self.dump(str(request.get("reason") or "asked"), finding if isinstance(finding, Mapping) else None)

    def settle(self) -> None:
        """Called by a log call: where the random number generators stand, every ten seconds."""
        now = time.monotonic()
        step = self._run.current_step
        if now >= self._digest_at and (not self._digests or self._digests[-1]["step"] != step):
            self._digest_at = now + _DIGEST_EVERY
            self._digests.append({"step": step, "time": _now()} | states.digests())
            del self._digests[:-_DIGESTS]
        if now - self._states_at >= _STATES_EVERY or not self._states:
            self._states_at = now
            self._states = {"step": step, "time": _now()} | states.full()

    def _look_at_optimizers(self, step: int) -> None:
        with contextlib.suppress(Exception):  # an optimizer of another make
            rows = [row for watch in self._watches for row in states.hyperparameters(watch.optimizers)]
            if rows:
                self._optimizers_seen = [{"step": step, "optimizers": rows}]

    # -- writing -------------------------------------------------------------------------------------------

    def dump(self, reason: str, finding: Any = None, wait: bool = False) -> Path | None:
        """Write a box, once for a reason and a step; from any thread, on a thread of its own.

        finding: what was found (its fields are kept). wait: until it is written, 2 s at most. The folder where
        it is or will be (with a number behind it where there is one of that name); None where none is written.
        """
        return self._dump(reason, finding=finding, wait=WAIT if wait else 0.0)

    def ended_by(self, problem: BaseException | None) -> None:
        """An exception is on its way out of the training. Waits for the box, 2 s at most."""
        if problem is None or problem is self._problem or isinstance(problem, (KeyboardInterrupt, SystemExit)):
            return
        self._problem = problem
        reason = "out-of-memory" if is_out_of_memory(problem) else "exception"
        self._dump(reason, problem=problem, wait=WAIT, crashing=True)

    def terminated(self, at_rest: bool) -> None:
        """SIGTERM. Waits for the box, 2 s at most. at_rest: nobody uses the models meanwhile."""
        self._dump("sigterm", wait=WAIT, crashing=True, at_rest=at_rest)

    def _dump(
        self,
        reason: str,
        finding: Any = None,
        problem: BaseException | None = None,
        wait: float = 0.0,
        crashing: bool = False,
        at_rest: bool = True,
    ) -> Path | None:
        deadline = time.monotonic() + wait
        try:
            step = self._run.current_step
            if finding is not None:
                step = int(getattr(finding, "found", None) or getattr(finding, "step", None) or step)
            key = (reason, step)
            if self._closed or os.getpid() != self._owner:
                return None
            path = self._run.dir / files.FOLDER / self._name(reason, step)
            about = self._about(reason, step, finding, problem)
            with self._lock:
                new = key not in self._written
                self._written.add(key)
                self._writing = [thread for thread in self._writing if thread.is_alive()]
                if new and not crashing and len(self._writing) >= _WRITERS:
                    return None  # a storm of findings: the first boxes tell where it began
                if new:
                    how = path.name, about, crashing, at_rest
                    thread = threading.Thread(target=self._write, args=how, name="barograph-blackbox", daemon=True)
                    thread.start()
                    self._writing.append(thread)
                waiting = list(self._writing)
            for item in waiting if wait else ():
                item.join(max(0.0, deadline - time.monotonic()))
            return path
        except Exception as error:
            self._failed(error)
            return None

    def _name(self, reason: str, step: int) -> str:
        word = re.sub(r"[^A-Za-z0-9_]+", "-", reason).strip("-")[:60] or "unknown"
        return f"{step}-{word}" + (f"-rank{self._run.rank}" if self._run.rank else "")

    def _about(self, reason: str, step: int, finding: Any, problem: BaseException | None) -> dict[str, Any]:
        about: dict[str, Any] = {
            "version": files.VERSION,
            "reason": reason,
            "step": step,
            "time": _now(),
            "run": getattr(self._run, "id", self._run.dir.name),
            "rank": self._run.rank,
            "pid": os.getpid(),
        }
        if finding is not None:
            about["finding"] = _fields(finding)
        if problem is not None:
            about["exception"] = {
                "type": type(problem).__name__,
                "message": text(problem)[:2000],
                "traceback": "".join(traceback.format_exception(problem, limit=50))[-20_000:],
            }
        return about

    def _write(self, name: str, about: dict[str, Any], crashing: bool, at_rest: bool) -> None:
        """A thread of its own."""
        began = time.monotonic()
        try:
            bads: list[Bad] = []
            step = about["step"]
            if crashing:
                _started(self._hand_over).join(_FLUSH)
            log_path = getattr(self._run, "log_file", None)
            stem = getattr(self._run, "stem", "training")
            tail = read_tail(log_path, self._run.dir, stem, self._steps, self._limit_bytes)
            held, recorded = tail.held, tail.bad.found()
            if crashing and at_rest:
                looking = _started(lambda: self._look(step, bads))
                looking.join(max(0.0, began + WAIT - 0.3 - time.monotonic()))
            elif recorded and not crashing:
                self._look_at_rest(step, bads)
            first = first_of(recorded, list(bads))
            about |= {
                "first_bad": None if first is None else first.fields(),
                "bad": [bad.fields() for bad in recorded],
                "bad_now": [bad.fields() for bad in bads],
                "batch": self._batch_of(step if first is None else first.step, tail.batches),
                "held": {
                    "steps": [held.details[0].step, held.details[-1].step] if held.details else [],
                    "bytes": held.held_bytes,
                    "left_out": held.left_out,
                },
                "random": self._random(step),
                "optimizers": self._optimizers(step),
                "total_steps": getattr(self._run.settings, "total_steps", None),
            }
            self._finish(name, about, held, began + WAIT if crashing else began + 600.0)
        except Exception as error:
            self._failed(error)

    def _finish(self, name: str, about: dict[str, Any], held: Held, deadline: float) -> None:
        now = states.full() | {"step": about["step"], "time": about["time"]}
        files.write(self._run.dir, name, about, held, {"now": now, "before": self._states}, deadline)
        files.keep(self._run.dir, self._keep, self._run.rank)

    def _hand_over(self) -> None:
        """What was seen of the last steps waits in the watches."""
        for hand_over in [*(watch.poll for watch in self._watches), *self.at_crash]:
            with contextlib.suppress(Exception):  # a device that is gone
                hand_over()

    def _look(self, step: int, bads: list[Bad]) -> None:
        for watch in list(self._watches):
            _look_at(watch, step, bads)

    def _look_at_rest(self, step: int, bads: list[Bad]) -> None:
        """A look at the models of a training that goes on, by its own thread behind its next step. From another thread
        it would meet gradients that a backward pass is replacing, and end the process by a signal."""
        waiting = []
        for watch in list(self._watches):
            asked, seen = getattr(watch, "at_rest", None), threading.Event()
            if asked is not None and not watch.is_closed:
                waiting.append((asked, partial(_look_then, watch, step, bads, seen), seen))
        for asked, look, _ in waiting:
            asked.append(look)
        deadline = time.monotonic() + _LOOK
        for asked, look, seen in waiting:
            if not seen.wait(max(0.0, deadline - time.monotonic())):
                with contextlib.suppress(ValueError):  # it has begun
                    asked.remove(look)

    def _batch_of(self, step: int, batches: dict[int, dict[str, Any]]) -> dict[str, Any] | None:
        """What is known of the batch of a step: its record, or the last one there is."""
        return batches.get(step) or (batches[max(batches)] if batches else None)

    def _random(self, step: int) -> dict[str, Any]:
        return {"now": {"step": step} | states.digests(), "before": list(self._digests)}

    def _optimizers(self, step: int) -> list[dict[str, Any]]:
        self._look_at_optimizers(step)
        return self._optimizers_seen

    def _failed(self, error: Exception) -> None:
        with contextlib.suppress(Exception):
            self._run.warn(
                f"the black box could not be written ({type(error).__name__}: {error}); the log has the records",
                key="black box",
            )

    def close(self) -> None:
        """The run ends: wait for what is being written, 2 s at most, and guard nothing any more."""
        if self._closed or os.getpid() != self._owner:
            return
        deadline = time.monotonic() + WAIT
        for thread in list(self._writing):
            thread.join(max(0.0, deadline - time.monotonic()))
        self._closed, self._problem = True, None


def _look_at(watch: Any, step: int, bads: list[Bad]) -> None:
    with contextlib.suppress(Exception):  # a device that is gone, a model of another make
        live.look(watch.model, watch.optimizers, step, bads.append)


def _look_then(watch: Any, step: int, bads: list[Bad], seen: threading.Event) -> None:
    _look_at(watch, step, bads)
    seen.set()


def _started(work: Callable[[], Any]) -> threading.Thread:
    def guarded() -> None:
        with contextlib.suppress(Exception):
            work()

    thread = threading.Thread(target=guarded, name="barograph-blackbox-look", daemon=True)
    thread.start()
    return thread


def _fields(finding: Any) -> dict[str, Any]:
    """A finding's fields: of a mapping, a struct, or any object."""
    if isinstance(finding, Mapping):
        return {text(name): value for name, value in finding.items()}
    names = getattr(finding, "__struct_fields__", None)
    if names is None:
        names = [name for name in getattr(finding, "__dict__", {}) if not name.startswith("_")]
    return {name: getattr(finding, name) for name in names} or {"finding": text(finding)}


def _now() -> str:
    return format_time(time.time_ns() // 1000)
