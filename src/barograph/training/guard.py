"""The one guard around calls of a training loop: nothing that is logged raises, and nothing foreign is swallowed.

In:   a method that records something.
Out:  the same method, whose own failures become one warning (with `strict`, the error).

An exception of a signal handler (a preemption, a time limit) may fall into the middle of a call. It belongs to the
loop: it is recognized by the handler's own frame in its traceback and goes on its way.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from types import CodeType
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


def from_signal_handler(error: BaseException) -> bool:
    """Whether a handler of signals raised it: one of its frames runs a handler that is installed now."""
    handlers = _handlers()
    trace = error.__traceback__
    while handlers and trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _handlers() -> set[CodeType]:
    found = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        for call in (handler, getattr(type(handler), "__call__", None)):  # noqa: B004 - its code, not whether
            code = getattr(getattr(call, "__func__", call), "__code__", None)
            if isinstance(code, CodeType):
                found.add(code)
    return found
