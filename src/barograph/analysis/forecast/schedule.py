"""Learning-rate schedules as numbers: the rate at any step of a plan.

In:   a name and numbers, or rates per step.
Out:  a `RateSchedule`, which gives the learning rate at steps and says in words what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

KINDS = ("constant", "cosine", "linear", "wsd", "step", "inverse_sqrt", "polynomial", "values")
# How the last stretch of warmup-stable-decay falls; the names are Megatron's, torchtitan's and Transformers'.
DECAY_SHAPES = ("linear", "cosine", "sqrt", "exponential")
# An exponential decay to zero would never arrive: Megatron's falls by 2^-10 over its length.
LEAST_EXPONENTIAL = 2.0**-10


@dataclass(frozen=True, eq=False)
class RateSchedule:
    """The learning rate over a plan of `total` steps.

    kind: one of `KINDS`. peak: the highest rate (1 if it is not known: forecasts use the shape alone).
    warmup: steps of a linear rise from 0. floor: the rate at the end of the decay. decay: steps that the
    decay takes; without it, all steps after the warm-up ("wsd": a fifth of the plan). shape: of a "wsd" decay.
    milestones: steps after which "step" multiplies the rate by `factor`. cycles: waves of a cosine, 0.5 for the
    usual one. power: of "polynomial". values: rates for "values", at `places` if they are given, else at steps 1 … n,
    in lines between. basis: where it was read from.
    """

    kind: str
    total: int
    peak: float = 1.0
    warmup: int = 0
    floor: float = 0.0
    decay: int | None = None
    shape: str = "linear"
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    cycles: float = 0.5
    power: float = 1.0
    values: Floats | None = None
    places: Floats | None = None
    basis: str = "given"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a schedule is one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.total < 1:
            raise ValueError(f"a schedule needs at least one step, not {self.total}")
        if self.shape not in DECAY_SHAPES:
            raise ValueError(f"a decay's shape is one of {', '.join(DECAY_SHAPES)}, not {self.shape!r}")
        if self.kind == "values" and (self.values is None or not len(self.values)):
            raise ValueError("a schedule of values needs its values")
        if not (np.isfinite(self.peak) and self.peak > 0 and np.isfinite(self.floor)):
            raise ValueError(f"a schedule's peak is above 0 and its floor a number, not {self.peak} and {self.floor}")

    @classmethod
    def from_values(cls, values: ArrayLike, total: int | None = None, basis: str = "given") -> RateSchedule:
        """Rates of steps 1 … n; the last one holds if `total` is more. Raises ValueError for none above 0 or NaN."""
        rates = np.asarray(values, np.float64).ravel()
        if not len(rates) or not np.isfinite(rates).all() or rates.max() <= 0 or rates.min() < 0:
            raise ValueError("a learning-rate schedule is a list of finite rates, none below 0 and some above")
        return cls("values", total or len(rates), float(rates.max()), values=rates, basis=basis)

    def with_total(self, total: int) -> RateSchedule:
        """The same over another number of steps, its decay still at its own place."""
        return replace(self, total=total)

    @property
    def decay_start(self) -> int:
        """The step at which the rate begins to fall; `total` if it never does."""
        if self.kind == "constant":
            return self.total
        if self.kind == "wsd":
            return max(self.total - self._decay_steps(), self.warmup)
        if self.kind == "step":
            return min((milestone for milestone in self.milestones if milestone > self.warmup), default=self.total)
        return self.warmup

    @property
    def knots(self) -> tuple[int, ...]:
        """Steps where the rate has a bend or a jump."""
        bends: tuple[int, ...] = (self.warmup, self.decay_start, *self.milestones)
        if self.kind not in ("constant", "wsd", "step"):
            bends += (self.warmup + self._decay_steps(),)
        return tuple(sorted({bend for bend in bends if 0 < bend < self.total}))

    def _decay_steps(self) -> int:
        if self.decay is not None:
            return max(self.decay, 1)
        return max(round(self.total * 0.2) if self.kind == "wsd" else self.total - self.warmup, 1)

    def lr(self, step: ArrayLike) -> Floats:
        """Learning rates at steps [n], counted from 1; beyond the plan the last one holds."""
        s = np.clip(np.asarray(step, np.float64), 0, self.total)
        if self.kind == "values":
            assert self.values is not None
            places = np.arange(1, len(self.values) + 1) if self.places is None else self.places
            return np.asarray(np.interp(s, places, self.values))
        part = np.clip((s - self.warmup) / self._decay_steps(), 0, 1)
        span = self.peak - self.floor
        if self.kind == "cosine":
            rate = self.floor + span * 0.5 * (1 + np.cos(2 * np.pi * self.cycles * part))
        elif self.kind in ("linear", "polynomial"):
            rate = self.floor + span * (1 - part) ** (self.power if self.kind == "polynomial" else 1.0)
        elif self.kind == "wsd":
            part = np.clip((s - self.decay_start) / self._decay_steps(), 0, 1)
            rate = self.floor + span * _fall(part, self.shape)
        elif self.kind == "step":
            passed = np.searchsorted(np.sort(np.asarray(self.milestones, np.float64)), s, side="left")
            rate = np.maximum(self.peak * self.factor**passed, self.floor)
        elif self.kind == "inverse_sqrt":
            rate = np.maximum(self.peak * np.sqrt(max(self.warmup, 1) / np.maximum(s, max(self.warmup, 1))), self.floor)
        else:
            rate = np.full(s.shape, self.peak)
        return np.asarray(np.where(s < self.warmup, self.peak * s / max(self.warmup, 1), rate), np.float64)

    def describe(self) -> str:
        """In words: "cosine to 10% of the peak over 5,000 steps"."""
        end = self.lr([self.total])[0] / self.peak
        low = "to zero" if end < 1e-3 else f"to {end:.0%} of the peak"
        words = {
            "constant": "constant",
            "wsd": f"stable, then {low} over the last {self._decay_steps():,} steps",
            "step": f"steps {low}",
            "values": f"given step by step, {low}",
            "inverse_sqrt": f"inverse square root {low}",
        }
        return f"{words.get(self.kind, f'{self.kind} {low}')}, {self.total:,} steps"


def _fall(part: Floats, shape: str) -> Floats:
    """From 1 at part 0 to 0 at part 1."""
    if shape == "cosine":
        return np.asarray(0.5 * (1 + np.cos(np.pi * part)))
    if shape == "sqrt":
        return np.asarray(1 - np.sqrt(part))
    if shape == "exponential":
        return np.asarray((LEAST_EXPONENTIAL**part - LEAST_EXPONENTIAL) / (1 - LEAST_EXPONENTIAL))
    return np.asarray(1 - part)


def named(kind: str, total: int, **numbers: Any) -> RateSchedule:
    """A schedule by its name: `named("cosine", 5000, warmup=100, floor=0.1)`. Raises ValueError for a strange name."""
    known = {
        "warmup_stable_decay": "wsd",
        "trapezoid": "wsd",
        "trapezoidal": "wsd",
        "constant_with_warmup": "constant",
        "multistep": "step",
        "inverse_square_root": "inverse_sqrt",
        "poly": "polynomial",
    }
    plain = kind.strip().lower().replace("-", "_").replace(" ", "_")
    if isinstance(milestones := numbers.get("milestones"), Sequence):
        numbers["milestones"] = tuple(int(milestone) for milestone in milestones)
    return RateSchedule(known.get(plain, plain), int(total), **numbers)
