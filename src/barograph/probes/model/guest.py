"""Hooks on a user's modules that stay behind when the model is pickled or copied.

In:   a function of ours that a module calls.
Out:  the same, but a pickle or a copy of it is one of Python's own functions that does nothing: a model that is saved
      whole can be saved while it is watched, and loaded where there is no Barograph.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any


class Guest:
    """A hook that calls a function, and does nothing where the compiler follows it: of all such hooks it then follows
    the same few instructions, which it has to compile but once."""

    def __init__(self, call: Callable[..., Any]):
        self._call = call

    def __call__(self, *given: Any) -> Any:
        import torch

        return None if torch.compiler.is_compiling() else self._call(*given)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything and gives None


class CompiledGuest(Guest):
    """One whose function is compiled with the module that it is a hook of."""

    def __call__(self, *given: Any) -> Any:
        return self._call(*given)


def is_compiled() -> bool:
    """Whether anything was compiled: hooks on its modules would have it compiled anew, and one on all modules has
    torch warn at each call of it."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", {})
    return any(counters.get(name) for name in ("frames", "stats"))
