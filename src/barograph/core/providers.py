"""What a room needs of rooms above it, which it imports nothing of: by name, given where the package is put together.

In:   `{what is needed: "module:function"}`.
Out:  the function, its module loaded when it is first needed.

Runs and comparisons have methods that draw them, `init` checks options of the doctor and of alerts, a follower of logs
puts together what is sealed: the functions that do it are in `views`, `doctor`, `sidecar`, `store`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_homes: dict[str, str] = {}


def provide(homes: Mapping[str, str]) -> None:
    """Name functions; a later one takes the place of an earlier one."""
    _homes.update(homes)


def provider(need: str) -> Callable[..., Any]:
    """The function that does what is needed. Raises KeyError where there is none."""
    module, _, function = _homes[need].partition(":")
    result: Callable[..., Any] = getattr(import_module(module), function)
    return result
