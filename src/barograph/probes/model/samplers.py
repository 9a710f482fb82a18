"""Torch's DistributedSampler, which deals an epoch's examples out to ranks: which epoch it was given.

In:   objects of the process, among which `schedulers` has looked for what it needs itself.
Out:  figures for the `model` record, numbers on the host; no sampler is kept alive.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterable
from typing import Any

_FOUND: list[weakref.ref[Any]] = []  # of this process


def kinds() -> tuple[type, ...]:
    """The classes of samplers that are looked for; none where there are no ranks."""
    distributed: Any = sys.modules.get("torch.distributed")
    kind = getattr(sys.modules.get("torch.utils.data.distributed"), "DistributedSampler", None)
    if not isinstance(kind, type) or distributed is None or not distributed.is_available():
        return ()
    return (kind, *kind.__subclasses__()) if distributed.is_initialized() else ()


def keep(objects: Iterable[Any]) -> None:
    """Remember those that shuffle."""
    some = kinds()
    _FOUND[:] = [weakref.ref(one) for one in objects if isinstance(one, some) and getattr(one, "shuffle", False)]


def figures() -> dict[str, float]:
    """`sampler_epoch`: the highest number of an epoch that a sampler was given; `sampler_rows`: how many examples the
    largest one has for this rank."""
    found: dict[str, float] = {}
    with contextlib.suppress(Exception):  # a sampler of another make says nothing
        known = [one for reference in _FOUND if (one := reference()) is not None]
        if known:
            found["sampler_epoch"] = float(max(one.epoch for one in known))
            found["sampler_rows"] = float(max(one.num_samples for one in known))
    return found
