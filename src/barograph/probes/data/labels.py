"""What the rows of a batch are labelled with: a number that is the same for the same labels in the same order.

In:   a batch as loaders give it; the labels of its rows, in host memory or on a device.
Out:  whole numbers with one a row, by any name; 52 bits that tell them, 0 where they tell nothing; which labels there
      are, and of how many rows.

Examples that are augmented differ each time they are drawn; their labels do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from barograph.core.values import DeviceValues
from barograph.probes.data import fingerprints
from barograph.probes.memory.storages import is_tensor

_MOST = 4  # arrays that are looked at
_ROWS = 256  # of a batch, its first ones
_BITS = 8.0  # that the labels of a batch have, at least: fewer are alike by chance
_PLACES = (1 << 52) - 1  # that a float holds exactly
# what is drawn anew for each row, by generators that may be alike everywhere
_DRAWN = re.compile(r"(?i)(?:.*[^a-z])?(?:t|ts|time|times|time_?steps?|timesteps?|noise\w*|sigmas?|levels?|seeds?)")


def find(batch: Any, rows: int, home: Any) -> list[Any]:
    """The whole numbers in a batch that are one a row, on this device (None: in host memory)."""
    if isinstance(batch, Mapping):
        named = list(batch.items())
    else:
        named = [("", value) for value in batch] if isinstance(batch, (list, tuple)) else []
    return [
        value
        for name, value in named
        if rows > 1 and _is_whole(value) and tuple(value.shape) in ((rows,), (rows, 1))
        and _device(value) == home and not _DRAWN.fullmatch(str(name))
    ][:_MOST]  # fmt: skip


def classes_of(wanted: Any, rows: int) -> tuple[tuple[int, int], ...]:
    """Labels in host memory that are whole numbers, one a row, and of how many of the first 256 rows each is."""
    if wanted is None or rows < 2 or wanted.dtype.kind not in "iub" or wanted.shape not in ((rows,), (rows, 1)):
        return ()
    import numpy

    found, counts = numpy.unique(wanted.reshape(-1)[:_ROWS], return_counts=True)
    return tuple(zip(found.tolist(), counts.tolist(), strict=True))


def _is_whole(value: Any) -> bool:
    if is_tensor(value):
        dtype = value.dtype
        return value.device.type != "meta" and not (dtype.is_floating_point or dtype.is_complex)
    return hasattr(value, "__array_interface__") and value.dtype.kind in "iub"


def _device(array: Any) -> Any:
    return array.device if is_tensor(array) and array.device.type != "cpu" else None


def host_mark(labels: Sequence[Any]) -> int:
    """The number of labels in host memory."""
    import numpy

    mark, bits = 0, 0.0
    for one in labels:
        array = (fingerprints.host_array(one) if is_tensor(one) else one).reshape(1, -1)[:, :_ROWS]
        ordered = numpy.sort(array[0])
        ends = numpy.flatnonzero(ordered[1:] != ordered[:-1])
        counts = numpy.diff(ends, prepend=-1, append=len(ordered) - 1)
        bits = max(bits, _bits(float((counts * counts).sum()), len(ordered)))
        mark = fingerprints.combine(fingerprints.host_sums(array), array.shape[1])[0] ^ (mark << 1)
    return _told(mark, bits)


def on_device(labels: Sequence[Any]) -> DeviceValues | None:
    """What `device_mark` needs of labels on a device, queued there; None without any."""
    import torch

    if not labels:
        return None
    pieces = []
    with torch.no_grad():
        for one in labels:
            row = one.detach().reshape(1, -1)[:, :_ROWS].to(torch.int64)
            alike = (row == row.reshape(-1, 1)).sum()  # of each pair of rows: the squares of counts, added up
            pieces += [fingerprints.device_sums(row).reshape(1), alike.reshape(1), alike.new_full((1,), row.shape[1])]
        return DeviceValues({"all": torch.cat(pieces)})


def device_mark(copy: DeviceValues) -> int:
    """The number of labels whose copy has arrived: that of the same labels in host memory."""
    return mark_of(copy.values["all"])


def mark_of(copied: Any) -> int:
    """The same of what `on_device` has queued, in host memory."""
    values = copied.numpy().reshape(-1, 3)
    mark, bits = 0, 0.0
    for one in values:
        bits = max(bits, _bits(float(one[1]), int(one[2])))
        mark = fingerprints.combine(one[:1].reshape(1, 1), int(one[2]))[0] ^ (mark << 1)
    return _told(mark, bits)


def _bits(alike: float, rows: int) -> float:
    """How many bits labels have, drawn anew by how often each occurs. alike: pairs of rows that have one label."""
    return rows * math.log2(rows * rows / alike)


def _told(mark: int, bits: float) -> int:
    return (mark & _PLACES) or 1 if bits >= _BITS else 0
