"""The one guard around calls of a training loop: nothing that is logged raises, and nothing foreign is swallowed.

In:   a method that records something.
Out:  the same method, whose own failures become one warning (with `strict`, the error).

An exception of a signal handler (a preemption, a time limit) may fall into the middle of a call. It belongs to the
loop: it is recognized by the handler's own frame in its traceback and goes on its way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def guarded(what: str) -> Callable[[F], F]:
    """A method that records `what`; None where it fails. The object's `_out`, an emitter, takes what fails."""

    def around(call: F) -> F:
        @functools.wraps(call)
        def guarded_call(self: Any, /, *arguments: Any, **named: Any) -> Any:
            try:
                return call(self, *arguments, **named)
            except Exception as error:
                self._out.failed(what, error)
                return None

        return cast(F, guarded_call)

    return around
