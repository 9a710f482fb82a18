"""The axes on which runs are laid side by side: steps, tokens, samples, training time, FLOPs.

In:   a run's steps, times, and what it logged or its configuration says of tokens and FLOPs.
Out:  for every axis the column that belongs to a run's steps, or the reason why it has none.

Tokens, samples and FLOPs are what the model has learnt from: on the live branch alone. Time is the time that the live
branch's steps took, with the evaluations between them; pauses, restarts and steps that were discarded are not in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from barograph.core.columns import strides

if TYPE_CHECKING:
    from barograph.analysis.compare.facts import RunFacts
    from barograph.query.stored import Series

Floats = NDArray[np.float64]

AXES = ("step", "tokens", "samples", "time", "flops")
UNITS = {"step": "steps", "tokens": "tokens", "samples": "samples", "time": "seconds", "flops": "FLOPs"}
_SEEN = ("data/tokens_seen", "train/tokens_seen")
_SAMPLES = ("data/samples_seen", "train/samples_seen", "samples_seen", "consumed_samples")
_ELAPSED = (("train/elapsed_ms", 1e-3), ("train/elapsed_seconds", 1.0))


class ComparisonAxes:
    """The axes of one run, each made when it is first asked for.

    main: the series whose steps and times stand for the run's.
    """

    def __init__(self, names: set[str], facts: RunFacts, main: Series, read: Callable[[str], Series]):
        self._names, self._facts, self._main, self._read = names, facts, main, read
        self._made: dict[str, tuple[Floats, Floats] | str] = {}
        self._batch: list[float | None] = []

    def reason(self, axis: str) -> str | None:
        """Why the run has no such axis; None if it has."""
        found = self._of(axis)
        return found if isinstance(found, str) else None

    def at(self, axis: str, steps: NDArray[Any]) -> Floats | None:
        """x at steps [n], on the line between those known; None if the run has no such axis."""
        if axis == "step":
            return np.asarray(steps, np.float64)
        found = self._of(axis)
        if isinstance(found, str):
            return None
        known, x = found
        if len(known) == len(steps) and known[0] == steps[0] and known[-1] == steps[-1] and (known == steps).all():
            return x
        return np.asarray(np.interp(steps, known, x))

    def step_at(self, axis: str, x: float) -> float | None:
        """The step at which an axis has come to x."""
        if axis == "step":
            return x
        found = self._of(axis)
        return None if isinstance(found, str) else float(np.interp(x, found[1], found[0]))

    def batch_tokens(self) -> float | None:
        """Tokens a step: the median of those logged, else what the configuration says."""
        if not self._batch:
            self._batch.append(self._tokens_a_step())
        return self._batch[0]

    def _tokens_a_step(self) -> float | None:
        if "train/step_tokens" in self._names:
            logged = self._read("train/step_tokens").value
            logged = logged[np.isfinite(logged) & (logged > 0)]
            if len(logged):
                return float(np.median(logged))
        block = next((self._read(name) for name in _SEEN if name in self._names), None)
        if block is not None and len(block) > 1 and block.step[-1] > block.step[0]:
            rate = float((block.value[-1] - block.value[0]) / (block.step[-1] - block.step[0]))
            if math.isfinite(rate) and rate > 0:
                return rate
        if self._facts.batch_tokens is None and (found := self._by_rate()) is not None:
            return float(np.median(found[1]))
        return self._facts.batch_tokens

    def _by_rate(self) -> tuple[Floats, Floats] | None:
        """Steps and a step's tokens, where the rate and the time of each step are logged."""
        if not {"train/tokens_per_second", "train/duration_ms"} <= self._names:
            return None
        rate, took = self._read("train/tokens_per_second"), self._read("train/duration_ms")
        step, mine, theirs = np.intersect1d(rate.step, took.step, return_indices=True)
        tokens = rate.value[mine] * took.value[theirs] / 1e3
        good = np.isfinite(tokens) & (tokens > 0)
        return (np.asarray(step[good], np.float64), tokens[good]) if good.any() else None

    # -- inside ---------------------------------------------------------------------------------------

    def _of(self, axis: str) -> tuple[Floats, Floats] | str:
        if axis not in self._made:
            self._made[axis] = getattr(self, f"_{axis}")()
        return self._made[axis]

    def _step(self) -> tuple[Floats, Floats] | str:
        steps = np.asarray(self._main.step, np.float64)
        return (steps, steps) if len(steps) else "it has logged no step"

    def _tokens(self) -> tuple[Floats, Floats] | str:
        for name in _SEEN:
            if name in self._names and (result := _clean(self._read(name))) is not None:
                return result
        if "train/step_tokens" in self._names:
            logged = self._read("train/step_tokens")
            good = np.isfinite(logged.value)
            steps, values = np.asarray(logged.step[good], np.float64), logged.value[good]
            if len(steps):
                return steps, np.cumsum(values * strides(steps))
        if self._facts.batch_tokens is not None:
            return self._by_step(self._facts.batch_tokens)
        if (result := self._by_rate()) is not None:
            return result[0], np.cumsum(result[1] * strides(result[0]))
        return "it logged no tokens, and its configuration does not say how many a step has"

    def _samples(self) -> tuple[Floats, Floats] | str:
        for name in _SAMPLES:
            if name in self._names and (result := _clean(self._read(name))) is not None:
                return result
        if self._facts.batch_samples is not None:
            return self._by_step(self._facts.batch_samples)
        return "neither its log nor its configuration says how many samples a step has"

    def _by_step(self, each: float) -> tuple[Floats, Floats] | str:
        steps = np.asarray(self._main.step, np.float64)
        return (steps, np.cumsum(strides(steps)) * each) if len(steps) else "it has logged no step"

    def _time(self) -> tuple[Floats, Floats] | str:
        steps, times = np.asarray(self._main.step, np.float64), self._main.time
        if len(steps) > 1 and times[-1] > times[0] > 0:
            return steps, _clock(steps, times, self._main.segment)
        for name, factor in _ELAPSED:
            if name in self._names and (found := _clean(self._read(name))) is not None:
                return found[0], found[1] * factor
        if "train/duration_ms" in self._names:
            took = self._read("train/duration_ms")
            good = np.isfinite(took.value) & (took.value >= 0)
            at = np.asarray(took.step[good], np.float64)
            if len(at) and len(at) >= 0.9 * (
                at[-1] - at[0] + 1
            ):  # of single steps that are not logged nothing is known
                return at, np.cumsum(took.value[good] * strides(at)) / 1e3
        return "its log holds no times"

    def _flops(self) -> tuple[Floats, Floats] | str:
        tokens, each = self._of("tokens"), self.flops_per_token()
        if isinstance(tokens, str):
            return tokens
        if each is None:
            return "the FLOPs of a token are not known: call run.speed_of_light, or log the MFU with its peak"
        return tokens[0], tokens[1] * each

    def flops_per_token(self) -> float | None:
        """Of the speed of light or the configuration; else what the logged MFU was made from."""
        if self._facts.flops_per_token is not None:
            return self._facts.flops_per_token
        for family in ("train", "speed"):
            names = [f"{family}/{item}" for item in ("mfu", "peak_tflops", "tokens_per_second")]
            if all(name in self._names for name in names):
                mfu, peak, speed = (float(np.nanmedian(self._read(name).value)) for name in names)
                if mfu > 0 and peak > 0 and speed > 0:
                    return mfu * peak * 1e12 / speed
        return None


def _clock(steps: Floats, times: Floats, segment: NDArray[Any]) -> Floats:
    """Seconds of training at each row. What lies between two segments is taken to be a usual row."""
    gaps, strides = np.diff(times), np.diff(steps)
    np.maximum(gaps, 0.0, out=gaps)
    joints = np.flatnonzero(segment[1:] != segment[:-1])
    ranges = gaps.copy() if len(joints) else gaps
    ranges[joints] = np.nan
    some = slice(None, None, max(1, len(gaps) // 20_000))  # the usual pace of a long run is known from a part of it
    paces = (ranges[some] / np.where(strides[some] > 0, strides[some], np.nan)) if len(gaps) else gaps
    paces = paces[np.isfinite(paces)]
    each = float(np.median(paces)) if len(paces) else 0.0
    gaps[joints] = each * np.maximum(strides[joints], 0.0)
    clock = np.empty(len(times))
    clock[0] = each
    np.cumsum(gaps, out=clock[1:])
    clock[1:] += each
    return clock


def _clean(series: Series) -> tuple[Floats, Floats] | None:
    """A column that counts up: its finite part, never falling; None if there is none."""
    good = np.isfinite(series.value)
    if not good.any():
        return None
    return np.asarray(series.step[good], np.float64), np.maximum.accumulate(series.value[good])
