"""Energy and money: what a run's devices drew, what its tokens took, what it cost so far.

In:   `gpu`, `host`, `step` and `speed` records in the order written, and prices.
Out:  joules, kilowatt-hours, tokens per joule and money, as the fields of an `energy` record.

A device's own energy counter counts where the records have it (`energy`, joules), else its power (mW) over the
time between two records, by the trapezoid rule. What was not measured is left out and never taken as 0.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from barograph.core.record import BEGINNINGS, Record

JOULES_PER_KWH = 3.6e6
MOST_WATTS = 20_000.0  # no accelerator or processor package draws as much; beyond it a value is damage

# A gap counts up to this many usual intervals between two records of a device; the power in a longer one is unknown.
GAP_INTERVALS = 3
_FIRST_GAP = 60.0  # seconds, until there are a few intervals to compare with
_DEVICES = 100_000  # told apart
KINDS = BEGINNINGS | {"step", "speed", "gpu", "host", "gpu-model", "energy", "goodput"}
"""What `Energy.add` counts; it leaves out the others."""

# "RTX 4090 Laptop GPU" is another device than "RTX 4090": a price without such a word is not for it.
_VARIANTS = frozenset({"ti", "super", "laptop", "mobile", "xt", "xtx", "ada", "mig"})


class Prices:
    """What the user says things cost. Without a price there is no money, rather than a guess."""

    def __init__(self, settings: Any = None, *, per_gpu_hour: float | None = None, per_kwh: float | None = None):
        """settings: has `price_per_gpu_hour` and `prices`; the arguments win over it."""
        table = getattr(settings, "prices", None) or {}
        given = getattr(settings, "price_per_gpu_hour", None)
        self.given = per_gpu_hour if per_gpu_hour is not None else given
        named = {str(name).strip().lower(): float(price) for name, price in table.items()}
        self.per_kwh = per_kwh if per_kwh is not None else named.get("kwh")
        wordlists = ((tuple(_words(name)), price) for name, price in named.items() if name != "kwh")
        # the longest name first, so that "A100 80GB" is asked before "A100"
        self._table = sorted(
            ((words, price) for words, price in wordlists if words),
            key=lambda item: (-len(item[0]), -sum(map(len, item[0])), item[0]),
        )

    def of_device(self, name: str) -> float | None:
        """The price of an hour of a device: `price_per_gpu_hour` if given, else that of the longest name in `prices`
        whose words are all in the device's name, whole and in this order. "L4" is not the price of an "L40S".
        """
        if self.given is not None:
            return self.given
        found = _words(name)
        for words, price in self._table:
            rest = iter(found)
            if all(word in rest for word in words) and not _VARIANTS & (set(found) - set(words)):
                return price
        return None

    def per_gpu_hour(self, names: Iterable[str] = ()) -> float | None:
        """The mean price of an hour of one of these devices; None if one of them has none."""
        if self.given is not None:
            return self.given
        prices = [self.of_device(name) for name in names]
        present = [price for price in prices if price is not None]
        return sum(present) / len(present) if present and len(present) == len(prices) else None

    def __bool__(self) -> bool:
        return self.given is not None or self.per_kwh is not None or bool(self._table)


class _Meter:
    """One device's joules, and the seconds in which they were measured."""

    def __init__(self) -> None:
        self.joules, self.seconds = 0.0, 0.0
        self.measured = False
        self.time: float | None = None
        self.counter: float | None = None
        self.watts: float | None = None
        self.intervals: deque[float] = deque(maxlen=21)

    def forget(self) -> None:
        """A process starts: its counters start at 0, and what was drawn before it is not known."""
        self.time, self.counter, self.watts = None, None, None

    def read(self, time: float, counter: float | None, watts: float | None, began: float | None) -> None:
        last, self.time = self.time, time
        before, self.counter = self.counter, counter
        drew, self.watts = self.watts, watts
        if last is None:
            # a counter that starts with the process; one that has run since the driver was loaded is too large
            took = time - began if began is not None else 0.0
            most = (2.0 * watts + 10.0 if watts is not None else MOST_WATTS) * took
            if counter is not None and 0.0 < counter <= most:
                self._add(counter, took)
            return
        took = time - last
        if took <= 0:
            return
        if counter is not None and before is not None and 0.0 <= counter - before <= MOST_WATTS * took:
            self._add(counter - before, took)
        elif watts is not None and drew is not None:
            counted = min(took, self._longest())
            self._add((watts + drew) / 2.0 * counted, counted)
        self.intervals.append(took)

    def _longest(self) -> float:
        if len(self.intervals) < 3:
            return _FIRST_GAP
        return GAP_INTERVALS * sorted(self.intervals)[len(self.intervals) // 2]

    def _add(self, joules: float, seconds: float) -> None:
        self.joules += joules
        self.seconds += seconds
        self.measured = True


def _longest(meters: dict[str, _Meter]) -> _Meter:
    """Of the meters of one device in several log files the one that counts, whatever the order they were read in."""
    return meters[min(meters, key=lambda source: (not meters[source].measured, -meters[source].seconds, source))]


class Energy:
    """Adds up a run's energy and tokens. `add` takes microseconds; memory grows with the devices alone."""

    kind = "energy"

    def __init__(self) -> None:
        self._gpus: dict[tuple[Any, Any], dict[str, _Meter]] = {}  # host and number → a meter for each log file
        self._hosts: dict[Any, dict[str, _Meter]] = {}
        self._host: dict[str, Any] = {}
        self._began: dict[str, float] = {}
        self._step_tokens = self._speed_tokens = self._tokens = 0.0
        self._earlier: dict[str, float] = {}  # what an earlier record said: sums to go on from
        self.said: dict[str, float] = {}  # the prices that the run itself counted with
        self._models: dict[tuple[str, Any], str] = {}  # source and number of a device → its name

    def add(self, record: Record, source: str = "") -> None:
        """Count a record. Never raises on what a log may hold.

        source: the log file, where there are several: the same device of the same machine in two of them counts once,
            by the one that measured it longer, and tokens count from the first source ("") alone.
        """
        kind = record.kind
        if kind == "step":
            if not source:
                self._step_tokens += _positive(record.fields.get("step_tokens")) or 0.0
        elif kind == "speed":
            if not source:
                self._speed_tokens += _positive(record.fields.get("tokens")) or 0.0
        elif kind == "gpu":
            self._read_gpu(record, source)
        elif kind == "host":
            joules = _positive(record.fields.get("cpu_energy"))
            host = self._host.get(source)
            if joules is not None:
                meter = self._hosts.setdefault(host, {}).setdefault(source, _Meter())
                meter.read(record.time / 1e6, joules, None, self._began.get(source))
        elif kind == "gpu-model":
            number = record.fields.get("id", 0)
            if len(self._models) < _DEVICES and isinstance(number, (int, str)):
                self._models[source, number] = str(record.fields.get("name", ""))
        elif kind in BEGINNINGS:
            if record.fields.get("pid") is not None:
                self._start_part(record, source)
        elif kind in ("energy", "goodput"):
            self._note(record)

    def _start_part(self, record: Record, source: str) -> None:
        self._host[source] = str(record.fields.get("host"))
        self._began[source] = record.time / 1e6
        if not source:
            # a step may have told its tokens twice, as `step` and as `speed`
            self._tokens += max(self._step_tokens, self._speed_tokens)
            self._step_tokens = self._speed_tokens = 0.0
        self._models = {key: name for key, name in self._models.items() if key[0] != source}
        for meters in (*self._gpus.values(), *self._hosts.values()):
            if source in meters:
                meters[source].forget()

    def _read_gpu(self, record: Record, source: str) -> None:
        counter, power = _positive(record.fields.get("energy")), _positive(record.fields.get("power"))
        watts = power / 1000.0 if power is not None and power / 1000.0 <= MOST_WATTS else None
        if (counter is None and watts is None) or record.time <= 0:
            return
        number = record.fields.get("id", 0)
        key = (self._host.get(source), number if isinstance(number, (int, str)) else 0)
        if key not in self._gpus:
            if len(self._gpus) >= _DEVICES:
                return
            self._gpus[key] = {}
        meter = self._gpus[key].setdefault(source, _Meter())
        meter.read(record.time / 1e6, counter, watts, self._began.get(source))

    def _note(self, record: Record) -> None:
        for name in ("price_per_gpu_hour", "price_per_kwh"):
            if (price := _positive(record.fields.get(name))) is not None:
                self.said[name] = price

    def go_on(self, record: Record) -> None:
        """Start from an `energy` record instead of from the run's beginning."""
        self.__init__()  # type: ignore[misc]
        for name in ("gpu_joules", "gpu_seconds", "cpu_joules", "cpu_seconds", "tokens", "gpus_measured", "gpus"):
            value = _positive(record.fields.get(name))
            if value is not None:
                self._earlier[name] = value
        self._note(record)

    @property
    def models(self) -> list[str]:
        """Names of the devices, as `gpu-model` records have them; a device in several log files has one name."""
        ordered = sorted(self._models, key=lambda key: key[0], reverse=True)
        return list({(self._host.get(key[0]), key[1]): self._models[key] for key in ordered}.values())

    @property
    def gpus(self) -> int:
        """Devices that have a record."""
        return len(self._gpus)

    def fields(
        self,
        prices: Prices | None = None,
        gpu_hours: float | None = None,
        gpus: int | None = None,
        names: Iterable[str] | None = None,
    ) -> dict[str, Any]:
        """The fields of an `energy` record; what is not known is absent.

        gpu_hours: hours of one device that the run held, for their price. gpus: the run's devices: where fewer were
        measured (`gpus_measured`), `joules`, `kwh` and `watts` are scaled up to all of them, while `gpu_joules` and
        `cpu_joules` stay as measured. names: the devices, if not those of `gpu-model` records.
        `watts` is the mean power while measured; `cost` the sum of what has a price.
        """
        made: dict[str, Any] = {}
        joules = watts = 0.0
        for part, meters in (("gpu", self._gpus.values()), ("cpu", self._hosts.values())):
            measured = [meter for meter in map(_longest, meters) if meter.measured]
            if not measured and f"{part}_joules" not in self._earlier:
                continue
            seconds = sum(meter.seconds for meter in measured) + self._earlier.get(f"{part}_seconds", 0.0)
            spent = sum(meter.joules for meter in measured) + self._earlier.get(f"{part}_joules", 0.0)
            made[f"{part}_joules"], made[f"{part}_seconds"] = spent, seconds
            count = len(measured)
            if part == "gpu":
                count = max(count, int(self._earlier.get("gpus_measured", self._earlier.get("gpus", 0))))
                made["gpus"] = count
                if gpus and gpus > count > 0:
                    made["gpus"], made["gpus_measured"] = gpus, count
            joules += spent
            watts += spent / seconds * max(1, count) if seconds > 0 else 0.0
        if made:
            scale = made["gpus"] / made["gpus_measured"] if "gpus_measured" in made else 1.0
            joules, watts = joules * scale, watts * scale
            made = {"joules": joules, "kwh": joules / JOULES_PER_KWH, "watts": watts, **made}
        tokens = self._tokens + max(self._step_tokens, self._speed_tokens) + self._earlier.get("tokens", 0.0)
        if tokens > 0:
            made["tokens"] = tokens
            if joules > 0:
                made["tokens_per_joule"] = tokens / joules
        cost: list[float] = []
        if gpu_hours:
            made["gpu_hours"] = gpu_hours
        if prices is not None:
            if prices.per_kwh is not None and "kwh" in made:
                made["price_per_kwh"] = prices.per_kwh
                made["electricity_cost"] = made["kwh"] * prices.per_kwh
                cost.append(made["electricity_cost"])
            price = prices.per_gpu_hour(self.models if names is None else names)
            if price is not None and gpu_hours:
                made["price_per_gpu_hour"] = price
                made["gpu_cost"] = gpu_hours * price
                cost.append(made["gpu_cost"])
        if cost:
            made["cost"] = sum(cost)
            if tokens > 0:
                made["price_per_million_tokens"] = sum(cost) / tokens * 1e6
        return {name: value for name, value in made.items() if math.isfinite(value)}  # of 1e-309 tokens, say


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def _positive(value: Any) -> float | None:
    """A number from 0; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0.0 <= number < math.inf else None
