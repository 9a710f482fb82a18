"""Torch's schedulers of the watched optimizers: how far they have counted, and are to; what they wait for.

In:   optimizers, once; the schedulers that refer to them are found among the process's objects, as a collection of
      garbage finds them, which takes as long: some hundredths of a second.
Out:  figures for the `model` record, numbers on the host.
"""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from barograph.probes.model import graphs, samplers

_LENGTHS = ("T_max", "total_steps")  # of schedules that fill a run
_NOTHING = 1e-4  # of the highest rate
_PLANNED = "num_training_steps"  # as Transformers' schedules are bound to it
_STRAY: weakref.WeakKeyDictionary[Any, list[weakref.ref[Any]]] = weakref.WeakKeyDictionary()  # of others that idle
_FOUND: weakref.WeakKeyDictionary[Any, list[weakref.ref[Any]]] = weakref.WeakKeyDictionary()  # by optimizer
_MOVED: weakref.WeakKeyDictionary[Any, _Moves] = weakref.WeakKeyDictionary()  # by optimizer


@dataclass(slots=True)
class _Moves:
    """How a scheduler has counted between the optimizer's steps, since it was found.

    scheduler: it; count: its count at the newest step; moves: how often that was another than at the step before;
    jumps: how often by 2 or more; by: how much in each of these, 0 if not always the same; step, jumped: steps of the
    optimizer so far, and how many at the newest jump; nearest, farthest: steps between two jumps.
    """

    scheduler: weakref.ref[Any]
    count: float
    moves: int = 0
    jumps: int = 0
    by: float = 0.0
    step: int = 0
    jumped: int = 0
    nearest: float = math.inf
    farthest: float = 0.0


def find(optimizers: Collection[Any]) -> None:
    """Look for the schedulers of these optimizers."""
    module = sys.modules.get("torch.optim.lr_scheduler")
    kinds = tuple(
        kind for name in ("LRScheduler", "_LRScheduler", "ReduceLROnPlateau")
        if isinstance(kind := getattr(module, name, None), type)
    )  # fmt: skip
    if not kinds or not optimizers:
        return
    every = _with_kinds_of(kinds)
    some = gc.get_referrers(*optimizers, *samplers.kinds(), *graphs.kinds(), *every)  # an object refers to its class
    samplers.keep(some)
    graphs.keep(some, optimizers)
    tables = [
        one for one in some if type(one) is dict and "last_epoch" in one
    ]  # where a scheduler keeps its attributes
    some += gc.get_referrers(*tables) if tables else []
    found = {id(one): one for one in some if isinstance(one, kinds)}
    inner = {id(part) for one in found.values() for part in getattr(one, "_schedulers", ())}
    for optimizer in optimizers:
        ours: list[Any] = [
            one for one in found.values() if id(one) not in inner and getattr(one, "optimizer", None) is optimizer
        ]
        _FOUND[optimizer] = [weakref.ref(one) for one in ours]
        counting = [one for one in ours if not hasattr(one, "num_bad_epochs")]
        followed = counting or ours  # else what waits for a plateau
        if len(followed) == 1:
            _MOVED[optimizer] = _Moves(weakref.ref(followed[0]), float(followed[0].last_epoch))
        stray = [one for one in found.values() if id(one) not in inner and _idles(one, optimizer, optimizers)]
        _STRAY[optimizer] = [weakref.ref(one) for one in stray]


def _with_kinds_of(kinds: tuple[Any, ...]) -> list[Any]:
    """These classes, and all that are made of them."""
    every: dict[Any, None] = {}
    ahead = list(kinds)
    while ahead:
        kind = ahead.pop()
        if kind not in every:
            every[kind] = None
            ahead += kind.__subclasses__()
    return list(every)


def _idles(scheduler: Any, optimizer: Any, optimizers: Collection[Any]) -> bool:
    """Whether a scheduler is of another optimizer of the same parameters, which never stepped."""
    other = getattr(scheduler, "optimizer", None)
    waits = hasattr(scheduler, "num_bad_epochs")
    if other is None or waits or any(other is one for one in optimizers) or getattr(other, "_opt_called", False):
        return False
    held = {id(item) for group in optimizer.param_groups for item in group["params"]}
    return any(id(item) in held for group in getattr(other, "param_groups", ()) for item in group["params"])


def follow(optimizer: Any) -> None:
    """A step of the optimizer begins: how far its scheduler has counted since the step before."""
    moves = _MOVED.get(optimizer)
    if moves is None or (scheduler := moves.scheduler()) is None:
        return
    count = scheduler.last_epoch
    if not isinstance(count, (int, float)):
        return
    by, moves.count = count - moves.count, float(count)
    moves.step += 1
    moves.moves += by > 0
    if by >= 2:
        moves.by = by if not moves.jumps or moves.by == by else 0.0
        apart = moves.step - moves.jumped
        if moves.jumps:
            moves.nearest, moves.farthest = min(moves.nearest, apart), max(moves.farthest, apart)
        moves.jumps, moves.jumped = moves.jumps + 1, moves.step


def figures(optimizer: Any) -> dict[str, float]:
    """`scheduler_steps`: how often its scheduler was stepped, where there is one alone; `scheduler_length`: how many
    steps that is made for; `scheduler_last_mark`: at which of them its last stair is; `scheduler_moves`: how often its
    count was another one than at the step before; `scheduler_jumps`: how often by 2 or more; `scheduler_jump`: by how
    much each time, 0 if not always by the same; `scheduler_jumps_even`: the shortest distance between two of these over
    the longest, in steps; `schedule_beside`: the rate over that of the schedule's formula at its count;
    `plateau_best`: the best of what a scheduler that waits for a plateau was given; `plateau_highest`: whether the
    highest counts as the best; `plateau_steps`, `plateau_patience`: how often it was stepped, and how many steps
    without progress it waits; `plateau_moves`, `plateau_jumps`, `plateau_jump`: what the same of a scheduler are, where
    no other is there; `stray_steps`, `stray_share`: how often a scheduler of another optimizer of these parameters,
    which never stepped, was stepped, and what share of that optimizer's rate it leaves."""
    found: dict[str, float] = {}
    with contextlib.suppress(Exception):  # a scheduler of another make says nothing
        known = [one for reference in _FOUND.get(optimizer, ()) if (one := reference()) is not None]
        waiting = [one for one in known if hasattr(one, "num_bad_epochs")]
        counting = [one for one in known if not hasattr(one, "num_bad_epochs")]
        if len(waiting) == 1 and math.isfinite(best := float(waiting[0].best)):
            found |= {"plateau_best": best, "plateau_highest": float(waiting[0].mode == "max")}
        if len(waiting) == 1:
            found |= {"plateau_steps": float(waiting[0].last_epoch), "plateau_patience": float(waiting[0].patience)}
            moved = _jumps(optimizer) if not counting else {}
            found |= {f"plateau_{name[10:]}": moved[name] for name in tuple(moved)[:3]}
        if len(counting) == 1:
            found["scheduler_steps"] = float(counting[0].last_epoch)
            if (length := _length(counting[0])) > 0:
                found["scheduler_length"] = length
            if (mark := _last_mark(counting[0])) > 0:
                found["scheduler_last_mark"] = mark
            found |= _jumps(optimizer)
            with contextlib.suppress(Exception):  # a formula that fails, as of no steps
                if math.isfinite(beside := _beside(counting[0])):
                    found["schedule_beside"] = beside
        stray = [one for reference in _STRAY.get(optimizer, ()) if (one := reference()) is not None]
        if len(stray) == 1 and not getattr(stray[0].optimizer, "_opt_called", False):
            groups = stray[0].optimizer.param_groups
            found["stray_steps"] = float(stray[0].last_epoch)
            found["stray_share"] = max(float(one["lr"]) / float(one["initial_lr"]) for one in groups)
    return found


def _jumps(optimizer: Any) -> dict[str, float]:
    moves = _MOVED.get(optimizer)
    if moves is None or not moves.jumps:
        return {}
    found = {"scheduler_moves": float(moves.moves), "scheduler_jumps": float(moves.jumps), "scheduler_jump": moves.by}
    return found | ({"scheduler_jumps_even": moves.nearest / moves.farthest} if moves.farthest else {})


def _beside(scheduler: Any) -> float:
    """The rate over that which the schedule has at its count, by its formula; NaN where it has none, or next to 0."""
    formula = getattr(scheduler, "_get_closed_form_lr", None)
    now = [group["lr"] for group in scheduler.optimizer.param_groups]
    if formula is None or not now or not all(isinstance(rate, (int, float)) for rate in (*scheduler.base_lrs, *now)):
        return math.nan  # to read a tensor would wait for its device
    rates = formula()
    least = _NOTHING * max(scheduler.base_lrs)
    return float(now[0] / rates[0]) if len(rates) == len(now) and rates[0] > least else math.nan


def _length(scheduler: Any) -> float:
    """How many steps a schedule is made for; 0 where it does not say so."""
    parts = getattr(scheduler, "_schedulers", None)
    if parts:
        marks = getattr(scheduler, "_milestones", None)
        last = _length(parts[-1])
        return marks[-1] + last if marks and last else 0.0
    for name in _LENGTHS:
        if isinstance(length := getattr(scheduler, name, None), (int, float)):
            return float(length)
    bound = [getattr(one, "keywords", {}).get(_PLANNED) for one in getattr(scheduler, "lr_lambdas", ())]
    return float(bound[0]) if bound and isinstance(bound[0], (int, float)) else 0.0


def _last_mark(scheduler: Any) -> float:
    """At which step a schedule of several stairs has its last one; 0 for another."""
    parts, marks = getattr(scheduler, "_schedulers", None), getattr(scheduler, "milestones", None)
    if parts:
        starts, last = getattr(scheduler, "_milestones", None), _last_mark(parts[-1])
        return starts[-1] + last if starts and last else 0.0
    return float(max(marks)) if marks else 0.0
