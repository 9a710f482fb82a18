"""What one rank says at a step: its values as plain numbers, the batch's fingerprint and what tells its labels, the
weights' checksum.

In:   numbers of Python, NumPy or torch, also those on a device.
Out:  them in the entry that is exchanged, now or once they have arrived.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from barograph.core.values import PLAIN, DeviceValues, number, on_device
from barograph.probes.data.labels import mark_of
from barograph.probes.ranks.exchange import ExchangeEntry

_SUM, _PRINT, _LABELS = "\0checksum", "\0fingerprint", "\0labels"  # among the values of a step
_PAUSES = 0.0001, 0.005  # between two looks whether values have arrived: the first, and the longest


def mark(entry: ExchangeEntry, fingerprint: Any, checksum: Any, copies: Mapping[str, Any]) -> None:
    """Put a batch's fingerprint and a checksum into an entry: the loop's own, else those of the watch."""
    if fingerprint is None and "fingerprint" in copies:
        fingerprint, entry.watched = copies["fingerprint"], True
    if checksum is None and "checksum" in copies:
        checksum, entry.checks = copies["checksum"], copies["checks"]
    entry.layers = copies.get("layers", 0)
    told = copies.get("labels", 0)
    if type(told) is int:
        entry.labels = told
    else:
        told.values = {_LABELS: told.values["all"]}
        _add(entry, told)
    entry.fingerprint, entry.checksum = (
        _plain_or_none(fingerprint, entry, _PRINT),
        _plain_or_none(checksum, entry, _SUM),
    )


def _plain_or_none(found: Any, entry: ExchangeEntry, name: str) -> Any:
    """A checksum or fingerprint as Python's number; None while it is on its way from a device."""
    if found is None or type(found) in PLAIN:
        return found
    if not on_device({"": found}):
        known = number(found)
        return known if isinstance(known, (int, float)) else None
    _add(entry, DeviceValues({name: found}))
    return None


def _add(entry: ExchangeEntry, own: DeviceValues) -> None:
    """Wait for these values, too, before the entry is exchanged."""
    if entry.arrived is None:
        entry.arrived, entry.settle = own, settle
        own.values = dict(zip(entry.names, entry.values, strict=True)) | own.values
    else:
        entry.arrived.values |= own.values
        entry.arrived.arrivals += own.arrivals


def settle(entry: ExchangeEntry) -> None:
    """Wait for values from a device and make them plain."""
    pause, longest = _PAUSES
    while not entry.arrived.ready():
        time.sleep(pause)
        pause = min(2 * pause, longest)
    values = dict(entry.arrived.values)
    if _SUM in values:
        entry.checksum = int(values.pop(_SUM).item())
    if _PRINT in values:
        entry.fingerprint = int(values.pop(_PRINT).item())
    if _LABELS in values:
        entry.labels = mark_of(values.pop(_LABELS))
    entry.values, entry.settle = [plain_float(value) for value in values.values()], None


def plain_float(value: Any) -> float:
    try:
        return float(number(value))
    except (OverflowError, TypeError, ValueError):  # an integer beyond a float
        return math.inf
