"""A thread beside a training that captures CUDA graphs.

In:   the thread that calls; torch, where it is loaded and has begun to use a GPU.
Out:  the driver no longer counts what this thread asks of events as part of a capture in another thread, which it
      would break (torch captures in the mode `global`, in which no thread may ask).
"""

from __future__ import annotations

import contextlib
import sys

_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_DRIVERS = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}


def leave_alone() -> bool:
    """Whether this is settled for the thread that calls; False while torch uses no GPU."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if not getattr(cuda, "is_initialized", bool)():  # torch may be half imported, by another thread
        return False
    import ctypes

    with contextlib.suppress(OSError, AttributeError):  # no driver of this make: then it captures nothing either
        driver = ctypes.CDLL(_DRIVERS.get(sys.platform, ""))
        exchange = driver.cuThreadExchangeStreamCaptureMode
        exchange.argtypes, exchange.restype = [ctypes.POINTER(ctypes.c_int)], ctypes.c_int
        exchange(ctypes.byref(ctypes.c_int(_THREAD_LOCAL)))
    return True
