"""Exceptions of signal handlers, which may fall into the middle of any call and belong to the loop.

In:   an exception.
Out:  whether a handler raised it; a suppression of the operating system's refusals that lets a handler's pass.
"""

from __future__ import annotations

import functools
import signal
from types import CodeType, TracebackType
from typing import Any


class Refusals:
    """Suppresses OSError, but for one that a signal handler raised (TimeoutError is an OSError)."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return isinstance(error, OSError) and not from_signal_handler(error)


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
    result = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        for call in (handler, getattr(type(handler), "__call__", None)):  # noqa: B004 - its code, not whether
            code = getattr(getattr(call, "__func__", call), "__code__", None)
            if isinstance(code, CodeType):
                result.add(code)
    return result
