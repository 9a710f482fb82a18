"""What a room needs of rooms above it, which it knows nothing of: how things are shown, what options accept.

In:   `{what is needed: "module:function"}`, given where the package is put together.
Out:  the function's answer, its module loaded when it is first needed.

A run or a comparison has methods that show it (`_repr_mimebundle_`, `text`, `html`), and the rooms that hold runs and
comparisons import nothing of `views`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_homes: dict[str, str] = {}


def register(homes: Mapping[str, str]) -> None:
    """Name the functions that show things; a later name takes the place of an earlier one."""
    _homes.update(homes)


def show(what: str, *arguments: Any, **named: Any) -> Any:
    """What the function that is registered for `what` returns. Raises KeyError where there is none."""
    module, _, function = _homes[what].partition(":")
    return getattr(import_module(module), function)(*arguments, **named)
