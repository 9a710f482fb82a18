"""What a stand-in does not do: said once, and the training goes on.

In:   a name, such as `wandb.sweep`.
Out:  an object that takes any call and any attribute, and one warning a name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

_warnings = logging.getLogger("barograph")
_said: set[str] = set()


def say_once(sentence: str) -> None:
    """A warning by Python's logging, once a process."""
    if sentence not in _said:
        _said.add(sentence)
        _warnings.warning("barograph: %s", sentence)


class Unsupported:
    """Takes the place of a function, an object or a class. It is false, empty, and returns itself."""

    def __init__(self, name: str = "", *rest: Any):
        self._name = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Nothing happens; a decorator leaves its function as it is."""
        if len(arguments) == 1 and not named and callable(arguments[0]) and not isinstance(arguments[0], Unsupported):
            return arguments[0]
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, int):
            raise IndexError(name)
        return self

    def __setitem__(self, name: Any, value: Any) -> None:
        """It is not kept."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Unsupported:
        return self

    def __exit__(self, *problem: Any) -> None:
        """An exception goes on its way."""

    def __instancecheck__(self, value: Any) -> bool:
        return False

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()

    def __str__(self) -> str:
        return ""


def unsupported(name: str) -> Unsupported:
    """What stands for `name`, which the stand-in does not have."""
    say_once(f"{name} is not supported and does nothing; the training goes on")
    return Unsupported(name)
