"""Torch's DistributedSampler, which deals an epoch's examples out to ranks, and data sets or samplers of another make
that have a number of the epoch: which one they were given.

In:   objects of the process, among which `schedulers` has looked for what it needs itself.
Out:  figures for the `model` record, numbers on the host; no sampler is kept alive.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterable
from typing import Any

_MOST = 256  # classes
_FOUND: list[weakref.ref[Any]] = []  # of this process


_NUMBERED: list[weakref.ref[Any]] = []  # others of this process that have a number of the epoch


def _distributed() -> tuple[type, ...]:
    """The classes of torch's samplers of ranks; none where there are no ranks."""
    distributed: Any = sys.modules.get("torch.distributed")
    kind = getattr(sys.modules.get("torch.utils.data.distributed"), "DistributedSampler", None)
    if not isinstance(kind, type) or distributed is None or not distributed.is_available():
        return ()
    return (kind, *kind.__subclasses__()) if distributed.is_initialized() else ()


def _others() -> tuple[type, ...]:
    """The classes that a training makes of torch's data sets and samplers, at any depth."""
    module = sys.modules.get("torch.utils.data")
    waiting = [kind for name in ("Dataset", "Sampler") if isinstance(kind := getattr(module, name, None), type)]
    found: list[type] = []
    while waiting and len(found) < _MOST:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if not kind.__module__.startswith("torch."):
                found.append(kind)
    return tuple(found)


def kinds() -> tuple[type, ...]:
    """The classes whose objects are looked for."""
    return (*_distributed(), *_others())


def keep(objects: Iterable[Any]) -> None:
    """Remember samplers of ranks that shuffle, and what else has a number of the epoch."""
    known, others = _distributed(), _others()
    found = [one for one in objects if isinstance(one, (*known, *others))]
    _FOUND[:] = [weakref.ref(one) for one in found if isinstance(one, known) and getattr(one, "shuffle", False)]
    _NUMBERED[:] = [weakref.ref(one) for one in found if not isinstance(one, known) and type(_epoch(one)) is int]


def _epoch(one: Any) -> Any:
    """An object's own number of the epoch, without asking what it computes."""
    return getattr(one, "__dict__", {}).get("epoch")


def figures() -> dict[str, float]:
    """`sampler_epoch`: the highest number of an epoch that a sampler was given; `sampler_rows`: how many examples the
    largest one has for this rank; `order_epoch`: the highest number of an epoch that another sampler or data set has,
    where there are some."""
    found: dict[str, float] = {}
    with contextlib.suppress(Exception):  # a sampler of another make says nothing
        known = [one for reference in _FOUND if (one := reference()) is not None]
        if known:
            found["sampler_epoch"] = float(max(one.epoch for one in known))
            found["sampler_rows"] = float(max(one.num_samples for one in known))
    with contextlib.suppress(Exception):
        numbers = [_epoch(one) for reference in _NUMBERED if (one := reference()) is not None]
        if numbers:
            found["order_epoch"] = float(max(numbers))
    return found
