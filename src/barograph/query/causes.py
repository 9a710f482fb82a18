"""The causes that wall time is split into: their names, their totals, what they cost.

In:   seconds by cause; the names of phases and spans.
Out:  `Totals`, the fields of a `goodput` record, money; the cause that a phase or span belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The causes in the order shown. `redone` and `downtime` together are what restarts cost.
CAUSES = (
    "productive", "data", "communication", "evaluation", "checkpoint", "startup", "redone", "downtime", "other", "idle",
)  # fmt: skip

LONGEST = 10 * 365 * 86_400 * 1_000_000  # µs: ten years; a longer duration is damage

# What a step's phases are split into; the rest of a step is productive.
IN_STEP = ("data", "communication", "evaluation", "checkpoint")


@dataclass(frozen=True)
class Totals:
    """Seconds by cause. `wall` is their sum: from the run's start to its last record, planned pauses left out.

    `names` splits `other` by the spans' names; `paused` is outside the wall time; `parts` counts the processes
    that wrote the run one after another, `crashes` those of them that ended otherwise than planned, and
    `redone_steps` the steps that were done again.
    """

    wall: float = 0.0
    productive: float = 0.0
    data: float = 0.0
    communication: float = 0.0
    evaluation: float = 0.0
    checkpoint: float = 0.0
    startup: float = 0.0
    redone: float = 0.0
    downtime: float = 0.0
    other: float = 0.0
    idle: float = 0.0
    paused: float = 0.0
    parts: int = 0
    crashes: int = 0
    redone_steps: int = 0
    names: Mapping[str, float] = field(default_factory=dict)

    @property
    def goodput(self) -> float:
        """Productive time over wall time; NaN before there is any."""
        return self.productive / self.wall if self.wall > 0 else math.nan

    @property
    def restart(self) -> float:
        """Seconds that restarts cost: down, and doing steps again."""
        return self.redone + self.downtime

    @property
    def held(self) -> float:
        """Seconds in which a process was there, and held its devices: the wall time without `downtime`."""
        return self.wall - self.downtime

    def percent(self, cause: str) -> float:
        """A cause's share of the wall time, 0 to 100."""
        return 100.0 * float(getattr(self, cause)) / self.wall if self.wall > 0 else 0.0


def money(totals: Totals, gpus: float, price_per_gpu_hour: float) -> dict[str, float]:
    """What each cause cost, in the price's currency: seconds / 3600 × GPUs × price.

    `downtime` costs nothing, for no process held a device; `cost` is the sum, and `lost` what was not productive.
    """
    rate = gpus * price_per_gpu_hour / 3600.0
    causes = {cause: getattr(totals, cause) * rate for cause in CAUSES if cause != "downtime"}
    return {"cost": totals.held * rate, "lost": (totals.held - totals.productive) * rate, **causes}


def fields(totals: Totals, gpus: float | None = None, price_per_gpu_hour: float | None = None) -> dict[str, Any]:
    """Totals as the fields of a `goodput` record; with GPUs and a price `cost` and `lost_cost` too."""
    result: dict[str, Any] = {"wall_seconds": round(totals.wall, 6)}
    result |= {f"{cause}_seconds": round(getattr(totals, cause), 6) for cause in CAUSES}
    result["restart_seconds"] = round(totals.restart, 6)
    result["paused_seconds"] = round(totals.paused, 6)
    if totals.wall > 0:
        result["goodput"] = round(totals.goodput, 6)
    result |= {"parts": totals.parts, "crashes": totals.crashes, "redone_steps": totals.redone_steps}
    if totals.names:
        result["spans"] = {name: round(seconds, 6) for name, seconds in totals.names.items()}
    if gpus:
        result["gpu_hours"] = round(totals.held * gpus / 3600.0, 6)
        if price_per_gpu_hour is not None:
            spent = money(totals, gpus, price_per_gpu_hour)
            result |= {"cost": spent["cost"], "lost_cost": spent["lost"], "price_per_gpu_hour": price_per_gpu_hour}
    return result


_WORDS = {
    "data": ("data", "dataloader", "data_wait", "batch"),
    "communication": ("communication", "comm", "allreduce", "all_reduce", "exposed_communication"),
    "evaluation": ("eval", "evaluate", "evaluation", "validate", "validation", "val", "test"),
    "checkpoint": ("checkpoint", "checkpointing", "save", "save_checkpoint", "ckpt"),
    "startup": ("startup", "setup", "init", "compile", "warmup"),
    "productive": ("step", "train", "forward", "backward", "optimizer"),
}
_CAUSE_OF = {word: cause for cause, words in _WORDS.items() for word in words}


def cause_of_phase(name: Any) -> int:
    """`data_ms` is 1, as in the sums of steps; 0 is what belongs to a step. `backward/comm_ms` counts as `comm_ms`."""
    *above, last = str(name).removesuffix("_ms").lower().split("/")
    causes = [_CAUSE_OF.get(part) for part in above]
    if any(cause in IN_STEP for cause in causes):
        return 0  # within one that counts as a whole
    cause = _CAUSE_OF.get(last)
    return 1 + IN_STEP.index(cause) if cause in IN_STEP else 0


def cause_of_span(name: str) -> str | None:
    cause = _CAUSE_OF.get(name.strip().lower())
    if cause is None and " " in name:  # a section such as "Saving checkpoint 100"
        for word in name.lower().split():
            cause = _CAUSE_OF.get(word.strip(".:,"))
            if cause in ("evaluation", "checkpoint"):
                return cause
        return None
    return cause


def microseconds(milliseconds: Any) -> int:
    """Milliseconds as whole microseconds; 0 for what is not a duration."""
    if (type(milliseconds) is float or type(milliseconds) is int) and 0 < milliseconds < LONGEST / 1000:
        return int(milliseconds * 1000)
    return 0  # also NaN


def cause_of_time(name: str) -> str | None:
    """What a series of durations in ms is of, a span's or a phase's within steps: "checkpoint", "evaluation",
    "evaluation record"; None for anything else."""
    if name == "eval/duration_ms":
        return "evaluation record"
    if name.startswith("span/"):
        cause = cause_of_span(name.removeprefix("span/").removesuffix("_ms"))
        return cause if cause in ("checkpoint", "evaluation") else None
    if name.startswith("speed/phase/"):
        at = cause_of_phase(name[len("speed/phase/") :]) - 1
        return IN_STEP[at] if at >= 0 and IN_STEP[at] in ("checkpoint", "evaluation") else None
    return None
