"""Libraries that are loaded when something of them is first used, so that importing our modules costs little.

In:   a library's name.
Out:  `lazy`: what stands for the library. Type checkers are given the plain import beside it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class LazyLibrary(ModuleType):
    """A library by its name; from the first use on, its names are found as quickly as in the library itself."""

    def __getattr__(self, name: str) -> Any:
        library = import_module(self.__name__)
        self.__dict__.update(library.__dict__)
        return getattr(library, name)


def lazy(name: str) -> Any:
    """A library that loads on first use. Raises ImportError then, if it is not installed."""
    return LazyLibrary(name)


def installed(*names: str) -> bool:
    """Whether libraries are there, without loading them: a training alone needs few of ours."""
    return all(find_spec(name) is not None for name in names)
