"""What users hand to a log call, made plain.

In:   a mapping of anything: Python, NumPy and torch numbers, strings, nested dictionaries, nonsense.
Out:  a flat dictionary of str to float, int, bool, str or None, and sentences about what was odd.

Neither NumPy nor torch is imported: their values are known by what they can do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

_DEPTH = 16  # deeper nesting is a mistake or a loop
PLAIN = frozenset({float, int, bool})


def flatten(values: Mapping[Any, Any], odd: Callable[[str], None]) -> dict[str, Any]:
    """Nested mappings joined with `/`, keys text, values plain. `odd` gets a sentence a surprise."""
    flat: dict[str, Any] = {}
    _flatten(values, "", flat, odd, _DEPTH)
    return flat


def _flatten(
    values: Mapping[Any, Any], prefix: str, flat: dict[str, Any], odd: Callable[[str], None], depth: int
) -> None:
    for key, value in list(values.items()):
        name = prefix + text(key)
        if isinstance(value, Mapping):
            if depth:
                _flatten(value, name + "/", flat, odd, depth - 1)
            else:
                odd(f"{name[:60]!r} is nested more than {_DEPTH} deep; what is below was left out")
        else:
            flat[name] = plain(value, name, odd)


def plain(value: Any, name: str, odd: Callable[[str], None]) -> Any:
    """One value as float, int, bool, str or None; an array of more than one element as a description."""
    if type(value) in PLAIN or value is None:
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):  # a subclass, such as numpy.float64
        return float(value)
    if isinstance(value, int):
        return int(value)
    try:
        item = getattr(value, "item", None)
    except Exception:  # a closed handle, a proxy of a process that is gone
        odd(f"{name[:60]!r} is a {type(value).__name__} that can't be read; it was left out")
        return None
    if callable(item):
        try:
            single = item()
        except Exception:  # more than one element, a meta tensor, a dead device
            shape = tuple(getattr(value, "shape", ()))
            odd(
                f"{name[:60]!r} is not one number (shape {shape}); its shape was recorded. "
                "Log a number, or use log_histogram for a distribution"
            )
            return f"{type(value).__name__}{list(shape)}"
        if type(single) in PLAIN:
            return single
        value = single
    try:
        return float(value)  # Decimal, Fraction, anything with __float__
    except Exception:
        odd(f"{name[:60]!r} is a {type(value).__name__}, not a number; its text was recorded")
        return text(value)[:10_000]


def number(value: Any) -> Any:
    """A number for a typed field such as a loss: float or int; NaN where there is none."""
    if type(value) in PLAIN:
        return value
    single = plain(value, "", lambda sentence: None)
    return single if isinstance(single, (int, float)) else float("nan")


_ESSENTIAL = frozenset({"loss"})  # fields that every step has: None is a mistake there


def measured(value: Any, name: str, odd: Callable[[str], None]) -> Any:
    """A number for the typed field `name`: float, int, or None where it was not measured.

    `odd` gets a sentence for anything else: text that is a number is read as one, the rest becomes NaN.
    """
    if type(value) in PLAIN:
        return value
    if value is None:
        if name in _ESSENTIAL:
            odd(f"{name} is None, not a number; it was left out")
        return None
    if isinstance(value, str):
        try:
            parsed = float(value)
        except ValueError:
            odd(f"{name} is the text {value[:60]!r}, not a number; NaN was recorded")
            return float("nan")
        odd(f"{name} is the text {value[:60]!r}, not a number; it was read as {parsed:g}")
        return parsed
    single = plain(value, name, lambda sentence: None)
    if isinstance(single, (int, float)):
        return single
    odd(f"{name} is a {type(value).__name__}, not a number; NaN was recorded")
    return float("nan")


def whole(value: Any) -> int | None:
    """A step as a whole number of 64 bits, also of text such as "16"; None where there is none."""
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 40 else None
        except ValueError:
            return None
    made = number(value)
    if isinstance(made, float) and not math.isfinite(made):
        return None
    return max(-(1 << 63), min(int(made), (1 << 63) - 1))


def text(value: Any) -> str:
    """Any value as text that UTF-8 can hold; never raises."""
    try:
        result = value if isinstance(value, str) else str(value)
        result.encode()
    except UnicodeError:
        return result.encode("utf-8", "backslashreplace").decode()
    except Exception:
        return f"<{type(value).__name__}>"
    return result


def on_device(values: Mapping[Any, Any]) -> bool:
    """Whether reading a value would wait for an accelerator. Never raises."""
    return any(_on_device(value) for value in values.values() if type(value) not in PLAIN)


def _on_device(value: Any) -> bool:
    try:
        if _of_jax(value):  # computed while Python goes on, also on a CPU
            return not value.is_ready() or value.device.platform != "cpu"
        return bool(
            getattr(value, "is_cuda", False)
            or getattr(getattr(value, "device", None), "type", "cpu") not in ("cpu", "meta")
        )
    except Exception:  # a closed handle, a proxy of a process that is gone
        return False


def _of_jax(value: Any) -> bool:
    return hasattr(value, "copy_to_host_async") and hasattr(value, "is_ready")


class DeviceValues:
    """Values of which some are on an accelerator: copied without waiting, read when the copy is done.

    `arrivals`: for each copy, what says whether it is done."""

    def __init__(self, values: Mapping[Any, Any]):
        self.values = dict(values)
        self.arrivals: list[Callable[[], bool]] = []
        for key, value in values.items():
            if type(value) in PLAIN or not on_device({key: value}):
                continue
            if _of_jax(value):
                value.copy_to_host_async()
                self.arrivals.append(value.is_ready)
                continue
            # the copy is queued on the stream that computes the value, so it sees the value of now
            self.values[key] = value.detach().to("cpu", non_blocking=True)
            stream = getattr(self._module(value), "current_stream", None)
            if stream is not None:
                self.arrivals.append(stream(value.device).record_event().query)

    @staticmethod
    def _module(value: Any) -> Any:
        import sys

        torch = sys.modules.get("torch")
        return getattr(torch, value.device.type, None)

    def ready(self) -> bool:
        """Whether every copy has arrived; never waits."""
        return all(arrived() for arrived in self.arrivals)
