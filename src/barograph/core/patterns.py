"""Regular expressions that are compiled when they are first used: of hundreds a command asks few.

In:   an expression.
Out:  `expression`: what stands for it, with the methods of `re.Pattern`.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class LazyPattern:
    """An expression; from the first use on, its methods are found as quickly as the compiled one's."""

    def __init__(self, given: Any, flags: int):
        self._given, self.pattern = (given, flags), given

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(*self._given)
        for method in ("search", "match", "fullmatch", "finditer", "findall", "sub", "split", "groups"):
            self.__dict__[method] = getattr(compiled, method)
        return getattr(compiled, name)


def expression(given: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A regular expression. Raises re.error at its first use."""
    return cast("re.Pattern[AnyStr]", LazyPattern(given, flags))
