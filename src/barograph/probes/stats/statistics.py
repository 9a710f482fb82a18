"""Statistics of many tensors in one pass: norms, moments, extremes, zeros, NaN, distributions.

In:   gradients, weights or any other tensors of torch, on the CPU or on a device, sharded or sparse.
Out:  one column a statistic, one row a tensor; sketches from which percentiles and histograms are read.

    pending = tensor_statistics([p.grad for p in parameters], sketch=True)
    …                                       # a device works on; nobody waits
    statistics = pending.result()
    statistics.norm, statistics.percentiles((1, 50, 99))

docs/reference/statistics.md defines every column and says how exact it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.probes.stats.cpu import read
from barograph.probes.stats.device import queue
from barograph.probes.stats.moments import Moments, combine, nothing, zeros_only
from barograph.probes.stats.sketch import NEGATIVE, Sketches, gather, merge_sketches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]
    Entries = tuple[NDArray[Any], Counts]
    Answer = tuple[Moments, list[Entries]]

PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
COLUMNS = ("count", "norm", "mean", "std", "min", "max", "zeros", "nans", "infs")


@dataclass(frozen=True)
class Statistics:
    """Columns [n] of float64, a row a tensor; `names` [n] or empty; `sketches` if they were asked for.

    `count` is the number of elements, `nans` and `infs` how many of them are not finite; the other columns
    are of the finite ones. `norm` is the L2 norm, `std` the standard deviation that divides by n. Without a
    finite element `mean`, `std`, `min`, `max` are NaN, and so is `norm` unless the tensor is empty (then 0).
    """

    count: Floats
    norm: Floats
    mean: Floats
    std: Floats
    min: Floats
    max: Floats
    zeros: Floats
    nans: Floats
    infs: Floats
    sketches: Sketches | None = None
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.count)

    def row(self, tensor: int) -> dict[str, float]:
        """One tensor's scalar statistics by name."""
        return {name: float(getattr(self, name)[tensor]) for name in COLUMNS}

    @property
    def total_norm(self) -> float:
        """L2 norm of all finite elements of all tensors; 0 if there is none."""
        return float(_length(np.nan_to_num(self.norm, nan=0.0)))

    def percentiles(self, q: Sequence[float] = PERCENTILES) -> Floats:
        """n × len(q), each within 0.78% of the true order statistic. Raises ValueError without sketches."""
        return self._sketches().percentiles(q)

    def histogram(self, tensor: int, bins: int | Sequence[float] | Floats = 64) -> tuple[Floats, Floats]:
        """(edges [b + 1], counts [b]) of one tensor. Raises ValueError without sketches."""
        return self._sketches().histogram(tensor, bins)

    def histograms(self, bins: int = 64) -> tuple[Floats, Floats]:
        """(edges [n, b + 1], counts [n, b]) of all tensors. Raises ValueError without sketches."""
        return self._sketches().histograms(bins)

    def _sketches(self) -> Sketches:
        if self.sketches is None:
            raise ValueError("these statistics have no sketches: collect them with sketch=True")
        return self.sketches


class PendingStatistics:
    """Statistics that are on their way. On the CPU they are there at once."""

    def __init__(self, finish: Callable[[], Statistics], arrived: Callable[[], bool]) -> None:
        self._finish, self._arrived = finish, arrived
        self._result: Statistics | None = None

    def ready(self) -> bool:
        """Whether `result` would answer without waiting for a device."""
        return self._result is not None or self._arrived()

    def result(self) -> Statistics:
        """The statistics; waits for the device if they have not arrived."""
        if self._result is None:
            self._result = self._finish()
            self._finish, self._arrived = _spent, bool
        return self._result


def _spent() -> Statistics:
    raise RuntimeError("the result was taken")  # pragma: no cover - result() keeps it


def tensor_statistics(tensors: Sequence[Any], *, sketch: bool = False, names: Sequence[str] = ()) -> PendingStatistics:
    """Queue the statistics of these tensors, in their order; on the CPU they are done on return.

    On a device nothing waits: the work goes to the current stream, the answer comes in one transfer a device
    and is picked up by `Pending.result`. The tensors may be overwritten by later work on the same stream.
    `names` [n] are in error messages and in the answer. A DTensor counts with its local part; see `merge`.
    Raises TypeError for what is not a tensor, ValueError for a tensor whose elements can't be read: on the meta
    device, of a quantized or unknown dtype, or a DTensor of partial sums. Calls must come from one thread at a time.
    """
    if names and len(names) != len(tensors):
        raise ValueError(f"{len(tensors)} tensors but {len(names)} names")
    flats, implicit = [], np.zeros(len(tensors), np.int64)
    torch = sys.modules.get("torch")
    for number, tensor in enumerate(tensors):
        label = repr(names[number]) if names else f"number {number}"
        if torch is None or not isinstance(tensor, torch.Tensor):
            raise TypeError(f"tensor {label} is a {type(tensor).__name__}; give tensors of torch")
        flat, implicit[number] = flatten(tensor, label)
        flats.append(flat)
    answers: list[tuple[list[int], Callable[[], Answer], Callable[[], bool]]] = []
    for device in dict.fromkeys(flat.device for flat in flats):
        chosen = [number for number, flat in enumerate(flats) if flat.device == device]
        several = [flats[number] for number in chosen]
        if device.type == "cpu":
            answer = read(several, sketch)
            answers.append((chosen, lambda answer=answer: answer, lambda: True))  # type: ignore[misc]
        else:
            transfer = queue(several, sketch)
            answers.append((chosen, transfer.wait, transfer.arrived))

    def finish() -> Statistics:
        found = nothing(len(tensors))
        entries: list[Entries] = [(np.zeros(0, np.int64), np.zeros(0, np.int64)) for _ in tensors]
        for chosen, wait, _ in answers:
            moments, sketched = wait()
            found.put(chosen, moments)
            for number, entry in zip(chosen, sketched, strict=True):
                entries[number] = entry
        if implicit.any():
            found = combine(found, zeros_only(implicit))
            for number in np.flatnonzero(implicit).tolist():
                entries[number] = _with_zeros(entries[number], int(implicit[number]))
        sketches = gather(entries, found.low, found.high) if sketch else None
        return _statistics(found, sketches, tuple(names))

    pending = PendingStatistics(finish, lambda: all(arrived() for _, _, arrived in answers))
    if all(device.type == "cpu" for device in {flat.device for flat in flats}):
        pending.result()
    return pending


def merge_statistics(parts: Sequence[Statistics]) -> Statistics:
    """Statistics of tensors of which each part holds other elements, such as the shards of several ranks.

    Counts, extremes, zeros and sketches are exact; norms, means and deviations are combined in float64.
    A rank that holds a copy (a replicated tensor) must not be counted twice. Raises ValueError if the parts
    don't have the same tensors, or only some have sketches.
    """
    if not parts:
        raise ValueError("nothing to merge")
    if len({(len(part), part.names) for part in parts}) > 1:
        raise ValueError("the parts hold different tensors")
    sketches = [part.sketches for part in parts if part.sketches is not None]
    if sketches and len(sketches) < len(parts):
        raise ValueError("some parts have no sketches")
    found = _moments(parts[0])
    for part in parts[1:]:
        found = combine(found, _moments(part))
    return _statistics(found, merge_sketches(sketches) if sketches else None, parts[0].names)


def flatten(tensor: Any, label: str) -> tuple[Any, int]:
    """(the stored elements as one dimension, how many more are zeros that a sparse layout leaves out).

    The order of elements is that of memory. Only tensors with gaps or overlaps in memory are copied, and
    sparse ones whose indices repeat. A complex element counts as its two parts.
    """
    import torch

    tensor = tensor.detach()
    placements = getattr(tensor, "placements", None)
    if placements is not None and hasattr(tensor, "to_local"):
        if any(placement.is_partial() for placement in placements):
            raise ValueError(f"tensor {label} is a DTensor of partial sums; redistribute it first")
        tensor = tensor.to_local()
    if hasattr(tensor, "wait") and hasattr(tensor, "trigger_wait"):  # still being gathered
        tensor = tensor.wait()
    if tensor.is_meta:
        raise ValueError(f"tensor {label} is on the meta device and has no elements")
    if not _readable(tensor.dtype):
        raise ValueError(f"tensor {label} is {tensor.dtype}, whose elements can't be read; convert it first")
    shape_count = tensor.numel()
    if tensor.layout != torch.strided:
        if tensor.layout == torch.sparse_coo:
            tensor = tensor.coalesce().values()
        elif tensor.is_mkldnn:
            tensor = tensor.to_dense()
        else:
            tensor = tensor.values()
    implicit = shape_count - tensor.numel()
    if tensor.is_complex():
        tensor, implicit = torch.view_as_real(tensor.resolve_conj()), 2 * implicit
    tensor = tensor.resolve_neg()
    if not tensor.is_contiguous():
        # a transposed or channels-last tensor has its elements side by side too, in another order
        order = sorted(range(tensor.dim()), key=lambda axis: (-tensor.stride(axis), -tensor.size(axis)))
        tensor = tensor.permute(order).contiguous()
    return tensor.view(-1), implicit


def _readable(dtype: Any) -> bool:
    import torch

    whole = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    known = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)
    return dtype in whole or dtype in known or str(dtype).startswith(("torch.float8_e4m3", "torch.float8_e5m2"))


def _with_zeros(entry: Entries, amount: int) -> Entries:
    """A sketch with this many more zeros."""
    places, counts = entry
    at = int(np.searchsorted(places, NEGATIVE))
    if at < len(places) and places[at] == NEGATIVE:
        counts = counts.copy()
        counts[at] += amount
        return places, counts
    return np.insert(places, at, NEGATIVE), np.insert(counts, at, amount)


def _length(norms: Floats) -> Any:
    """The norm of vectors of these norms, without overflow."""
    largest = norms.max(initial=0.0)
    if not 0 < largest < np.inf:
        return largest
    return largest * np.sqrt(np.sum((norms / largest) ** 2))


def _statistics(moments: Moments, sketches: Sketches | None, names: tuple[str, ...]) -> Statistics:
    count = (moments.finite + moments.nans + moments.infs).astype(np.float64)
    some = moments.finite > 0
    norm = np.sqrt(moments.finite) * np.hypot(moments.deviation, moments.mean)
    return Statistics(
        count,
        np.where(some | (count == 0), norm, np.nan),
        np.where(some, moments.mean, np.nan),
        np.where(some, moments.deviation, np.nan),
        moments.low,
        moments.high,
        moments.zeros.astype(np.float64),
        moments.nans.astype(np.float64),
        moments.infs.astype(np.float64),
        sketches,
        names,
    )


def _moments(part: Statistics) -> Moments:
    finite = (part.count - part.nans - part.infs).astype(np.int64)
    mean, deviation = np.nan_to_num(part.mean, nan=0.0), np.nan_to_num(part.std, nan=0.0)
    whole = [column.astype(np.int64) for column in (part.zeros, part.nans, part.infs)]
    return Moments(finite, mean, deviation, part.min, part.max, *whole)
