"""Stopping: a request that loops poll, the criteria for an early stop, and one answer for all ranks.

In:   findings, alerts and evaluations.
Out:  whether to stop and why; whether to write a checkpoint before.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any, Literal


class StopRequest:
    """A wish that the training end, with its reason; true once there is one. The first reason stays.

    Nothing is interrupted: the loop asks, and stops where it likes.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.step = 0  # at which it was asked for
        self._asked = False
        self._checkpoint = False
        self._lock = threading.Lock()

    def ask(self, reason: str, step: int = 0, checkpoint: bool = True) -> None:
        """Ask for an end; with `checkpoint`, for a checkpoint before it."""
        with self._lock:
            if not self._asked:
                self.reason, self.step = reason, step
                self._checkpoint = checkpoint
                self._asked = True

    def ask_checkpoint(self, reason: str, step: int = 0) -> None:
        """Ask for a checkpoint alone; the training goes on."""
        with self._lock:
            if not self._asked and not self._checkpoint:
                self.reason, self.step = reason, step
            self._checkpoint = True

    def checkpoint_saved(self) -> None:
        """A checkpoint was written."""
        self._checkpoint = False

    @property
    def checkpoint_requested(self) -> bool:
        return self._checkpoint

    def withdraw(self) -> None:
        """The loop goes on in spite of it: forget it, so that a later reason counts."""
        with self._lock:
            self._asked = self._checkpoint = False
            self.reason, self.step = "", 0

    def __bool__(self) -> bool:
        return self._asked

    def __repr__(self) -> str:
        return f"<stop requested at step {self.step}: {self.reason}>" if self._asked else "<no stop requested>"


def stop_agreed(wish: object, group: Any = None) -> bool:
    """Whether any rank wishes it: the same answer on all ranks of torch.distributed, which must all ask at the
    same step. One collective of one number, and it waits for it; without torch.distributed just the wish.

    Only rank 0 sees findings. A rank that stops alone leaves the others waiting for it.
    """
    wished = bool(wish)
    torch = sys.modules.get("torch")
    distributed: Any = getattr(torch, "distributed", None)
    if torch is None or distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return wished
    backend = str(distributed.get_backend(group))
    device = torch.device("cuda", torch.cuda.current_device()) if "nccl" in backend else torch.device("cpu")
    flag = torch.tensor([int(wished)], dtype=torch.int32, device=device)
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX, group=group)
    return bool(flag.item())


class EarlyStopping:
    """Early stopping (the stability guide, phase 4). Usable alone: `if stopper.update(step, value): break`.

    patience: evaluations in a row without an improvement of more than `min_delta` (in the metric's unit) after which
        to stop; None for no such criterion. patience_steps: the same in steps; the stability guide warns at 10,000.
    mode: "min" if less is better, "max" if more is. divergence: stop at a value worse than this. target: stop at a
        value as good as this. finite: stop at NaN and infinity. least: evaluations to see before patience may end.

    `best` and `best_step` (of the last value that was better by more than `min_delta`), `waited` (evaluations since
    then), `reason` and `stopped` may be read at any time.
    Raises ValueError for criteria that are none.
    """

    def __init__(
        self,
        patience: int | None = 5,
        min_delta: float = 0.0,
        metric: str = "eval/loss",
        mode: Literal["min", "max"] = "min",
        divergence: float | None = None,
        target: float | None = None,
        patience_steps: int | None = None,
        finite: bool = True,
        least: int = 0,
    ):
        if mode not in ("min", "max"):
            raise ValueError(f"mode is min or max, not {mode!r}")
        for name, count in (("patience", patience), ("patience_steps", patience_steps)):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
                raise ValueError(f"{name} is a whole number from 1, or None, not {count!r}")
        if not min_delta >= 0 or math.isinf(min_delta):
            raise ValueError(f"min_delta is how much better a value must be, from 0, not {min_delta!r}")
        for name, bound in (("divergence", divergence), ("target", target)):
            if bound is not None and math.isnan(bound):
                raise ValueError(f"{name} is a number, not NaN")
        self.patience, self.patience_steps, self.min_delta = patience, patience_steps, min_delta
        self.metric, self.mode, self.divergence, self.target = metric, mode, divergence, target
        self.finite, self.least = finite, least
        self._sign = 1.0 if mode == "min" else -1.0
        self._bests: list[tuple[int, float]] = []  # improvements: what a rewind goes back to
        self._first_step: int | None = None
        self._last_step: int | None = None
        self._updates = 0
        self.waited = 0
        self.reason = ""

    @property
    def best(self) -> float:
        """The best value; NaN before the first."""
        return self._bests[-1][1] if self._bests else math.nan

    @property
    def best_step(self) -> int | None:
        """The step of the best value."""
        return self._bests[-1][0] if self._bests else None

    @property
    def stopped(self) -> bool:
        return bool(self.reason)

    def update(self, step: int, value: float) -> bool:
        """An evaluation at a step; whether to stop. A step before the last one is a rewind: what was seen from
        it on is forgotten."""
        if self._last_step is not None and step < self._last_step:
            self._rewind(step)
        self._last_step = step
        if self._first_step is None:
            self._first_step = step
        self._updates += 1
        if not self.reason:
            self.reason = self._judge(step, float(value))
        return self.stopped

    def _judge(self, step: int, value: float) -> str:
        name, sign = self.metric, self._sign
        if not math.isfinite(value):
            if self.finite:
                return f"{name} is not finite at step {step}"
            self.waited += 1
            return self._tired(step)
        if self.divergence is not None and sign * value > sign * self.divergence:
            return f"{name} is {value:.6g} at step {step}, worse than {self.divergence:.6g}"
        if self.target is not None and sign * value <= sign * self.target:
            self._better(step, value)
            return f"{name} has reached {value:.6g} at step {step}; the target was {self.target:.6g}"
        if not self._bests or sign * (self.best - value) > self.min_delta:
            self._better(step, value)
            return ""
        self.waited += 1
        return self._tired(step)

    def _better(self, step: int, value: float) -> None:
        if not self._bests or self._sign * value < self._sign * self.best:
            self._bests.append((step, value))
            del self._bests[:-1000]
        self.waited = 0

    def _tired(self, step: int) -> str:
        if self._updates < self.least:
            return ""
        told = f"{self.metric} has not improved by more than {self.min_delta:g} " if self.min_delta else ""
        told = told or f"{self.metric} has not improved "
        best = f"; the best was {self.best:.6g} at step {self.best_step}" if self._bests else ""
        if self.patience is not None and self.waited >= self.patience:
            return f"{told}for {self.waited} evaluations at step {step}{best}"
        since = step - (self.best_step if self.best_step is not None else self._first_step or 0)
        if self.patience_steps is not None and since >= self.patience_steps:
            return f"{told}for {since} steps at step {step}{best}"
        return ""

    def _rewind(self, step: int) -> None:
        while self._bests and self._bests[-1][0] >= step:
            self._bests.pop()
        self.waited, self.reason = 0, ""

    def criteria(self) -> dict[str, Any]:
        """The arguments that make such a one."""
        names = ("patience", "patience_steps", "min_delta", "metric", "mode", "divergence", "target", "finite", "least")
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as plain JSON values."""
        return {"bests": [list(best) for best in self._bests[-1:]], "waited": self.waited, "last_step": self._last_step,
                "first_step": self._first_step, "updates": self._updates}  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self._bests = [(int(step), float(value)) for step, value in state.get("bests", [])]
        self.waited = int(state.get("waited", 0))
        self._last_step, self._first_step = state.get("last_step"), state.get("first_step")
        self._updates = int(state.get("updates", 0))
        self.reason = ""
