"""What a driver answered, made into numbers that can be trusted: ranges, means, rates, joules.

In:   raw answers of NVML, amdsmi and /proc, one at a time, some of them nonsense.
Out:  numbers within their bounds or None; means and maxima between two records; rates of counters;
      energy since the start. And what a device backend looks like to the sampler (`Backend`).

Drivers say "not supported" in many ways: an error, -1, 2^32-1, 2^64-1, NaN. All of them end here as None,
and a field that is None is left out of the record.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

# Surogate's fields of a `gpu` record, in the order of its document; what we know beyond them comes after.
DOCUMENT_ORDER = (
    "id", "clock", "max_clock", "fan", "power", "power_limit", "temperature", "temp_slowdown", "gpu_util",
    "mem_util", "throttle", "dram_free", "pcie_rx", "pcie_tx",
)  # fmt: skip

MOST_BYTES = 1 << 50  # a petabyte: more is neither a memory size nor a rate of a device
_SENTINELS = frozenset({2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1})
SILENT_SAMPLES = 5  # this many samples in a row without one answer, and a device counts as gone


class MissingError(Exception):
    """A backend that can't be used here; its text is a sentence for the user."""


class LostError(Exception):
    """A device that is gone; its text says how, such as "has fallen off the bus"."""


class News(NamedTuple):
    """Something to tell once: `kind` is a word for programs, `warning` whether it goes to the user too."""

    key: str
    kind: str
    sentence: str
    fields: dict[str, Any]
    warning: bool = True


class Backend(Protocol):
    """One maker's devices, as the sampler sees them. Called from one thread; may be slow, must not raise."""

    name: str

    def open(self) -> None:
        """Find the devices. Raises MissingError where there are none or no driver."""

    def sample(self, now: float) -> None:
        """Take one sample of each device; `now` is monotonic seconds."""

    def records(self, now: float) -> list[dict[str, Any]]:
        """A `gpu` record's fields for each device, `id` first, of the time since the last call."""

    def models(self) -> list[dict[str, Any]]:
        """A `gpu-model` record's fields for each device."""

    def news(self) -> list[News]:
        """What happened since the last call."""

    def close(self) -> None:
        """Let go of the driver."""


def sane(value: Any, low: float, high: float) -> int | float | None:
    """The number if it is one, finite, within its bounds (inclusive) and no sentinel; else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value) or not low <= value <= high:
        return None
    if value in _SENTINELS:
        return None
    return value


def whole(value: Any, low: float, high: float) -> int | None:
    """The same, as a whole number."""
    number = sane(value, low, high)
    return None if number is None else round(number)


def rounded(value: float | None, digits: int = 0) -> int | float | None:
    """Rounded for a record; a whole number without digits."""
    if value is None or not math.isfinite(value):
        return None
    return round(value, digits) if digits else round(value)


def ordered(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that are known, Surogate's first and in its order."""
    names = [name for name in DOCUMENT_ORDER if name in fields]
    names += [name for name in fields if name not in DOCUMENT_ORDER]
    return {name: fields[name] for name in names if fields[name] is not None}


class ReadingWindow:
    """Values between two records, by name."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._most: dict[str, float] = {}

    def add(self, name: str, value: float | None) -> None:
        """One more value; None is not a value."""
        if value is None:
            return
        self._sums[name] = self._sums.get(name, 0.0) + value
        self._counts[name] = self._counts.get(name, 0) + 1
        self._most[name] = max(self._most.get(name, value), value)

    def count(self, name: str) -> int:
        """How many values there were."""
        return self._counts.get(name, 0)

    def mean(self, name: str) -> float | None:
        """Their mean; None of none."""
        count = self._counts.get(name, 0)
        return self._sums[name] / count if count else None

    def most(self, name: str) -> float | None:
        """The largest."""
        return self._most.get(name)


class Rate:
    """A counter's growth a second. A counter that went back (a reset, a wrap) gives no rate that time."""

    def __init__(self, factor: float = 1.0, most: float = MOST_BYTES) -> None:
        self._factor, self._most_rate = factor, most
        self._count: float | None = None
        self._at = 0.0

    def update(self, count: float | None, now: float) -> float | None:
        """Units a second since the last call, times the factor; None at first or where it makes no sense."""
        last, began = self._count, self._at
        self._count, self._at = count, now
        if count is None or last is None or now <= began or count < last:
            return None
        rate = (count - last) * self._factor / (now - began)
        return rate if rate <= self._most_rate else None


class EnergyReading:
    """Joules since the start: from a counter where there is one, else from power over time."""

    MOST_WATTS = 20_000.0  # no accelerator or processor package draws as much

    def __init__(self) -> None:
        self.joules: float | None = None
        self._count: float | None = None  # joules, as the counter has them
        self._power: float | None = None
        self._counted_at = self._powered_at = 0.0

    def count(self, joules: float | None, now: float) -> float | None:
        """Take the counter's state. Mean watts since the last call, or None."""
        if joules is None:
            return None
        last, began = self._count, self._counted_at
        self._count, self._counted_at = joules, now
        if last is None:
            self.joules = self.joules or 0.0
            return None
        spent, took = joules - last, now - began
        if took <= 0 or not 0 <= spent <= self.MOST_WATTS * took:  # reset, wrapped or nonsense: go on from here
            return None
        self.joules = (self.joules or 0.0) + spent
        return spent / took

    def power(self, watts: float | None, now: float) -> None:
        """Take a sample of the power; joules grow by the trapezoid between two samples."""
        last, began = self._power, self._powered_at
        self._power, self._powered_at = watts, now
        if watts is None:
            return
        if last is None or now <= began:
            self.joules = self.joules or 0.0
            return
        self.joules = (self.joules or 0.0) + (watts + last) / 2 * (now - began)
