"""Statistics of tensors on a device: work is queued, and the answer comes in one transfer.

In:   flat contiguous real tensors on one device that is not the CPU.
Out:  a `Transfer`: moments and sketch entries, once they have arrived in the host's memory.

On CUDA one Triton kernel reads all tensors of a dtype (stats_triton); without Triton, and on other devices,
torch operations do the same, some twenty launches a tensor. Nothing waits for the device: shapes are known
on the host, and sketches are packed on the device into room for 4,096 buckets a tensor on average. When they
need more (no gradient seen so far did), `wait` fetches the counts as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.probes.stats.moments import Moments
from barograph.probes.stats.sketch import BUCKETS, SHIFT, sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Entries = tuple[NDArray[Any], Counts]

FIELDS = 8  # columns of a table: finite, mean, deviation, low, high, zeros, nans, infs
ROOM = 4096  # buckets a tensor for which a transfer has room; float32 gradients fill 1,500 to 3,500
TOGETHER = 32  # tensors whose counts are packed at once: 30 MB for a moment
COUNT_BITS = 40  # of a packed entry's 63; the rest says which bucket of which tensor


class Transfer:
    """An answer on its way to the host: a table [n, 8] of float64 and packed sketch entries."""

    def __init__(self, table: Any, counts: Any | None) -> None:
        import torch

        self._rows = len(table)
        self._counts = counts
        parts = [table.view(torch.int64).flatten()]
        if counts is not None:
            parts += pack(counts, self._rows * ROOM)
        packet = torch.cat(parts)
        self._event: Any = None
        if packet.is_cuda:
            self._packet = torch.empty(packet.shape, dtype=packet.dtype, pin_memory=True)
            self._packet.copy_(packet, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        else:
            self._packet = packet.to("cpu")

    def arrived(self) -> bool:
        """Whether the answer is in the host's memory."""
        return self._event is None or bool(self._event.query())

    def wait(self) -> tuple[Moments, list[Entries]]:
        """Moments and (places, counts) of each tensor; waits for the transfer."""
        if self._event is not None:
            self._event.synchronize()
        packet = self._packet.numpy()
        size = self._rows * FIELDS
        finite, mean, deviation, low, high, zeros, nans, infs = packet[:size].view(np.float64).reshape(-1, FIELDS).T
        whole = [column.astype(np.int64) for column in (finite, zeros, nans, infs)]
        moments = Moments(whole[0], mean.copy(), deviation.copy(), low.copy(), high.copy(), *whole[1:])
        none = np.zeros(0, np.int64)
        if self._counts is None:
            return moments, [(none, none)] * self._rows
        filled = int(packet[size])
        if filled > self._rows * ROOM:
            return moments, [sparse(row) for row in self._counts.cpu().numpy().astype(np.int64)]
        entries = []
        packed = packet[size + 1 : size + 1 + filled]
        buckets, counts = packed >> COUNT_BITS, packed & ((1 << COUNT_BITS) - 1)
        edges = np.searchsorted(buckets, np.arange(self._rows + 1) * BUCKETS)
        for tensor in range(self._rows):
            dense = np.zeros(BUCKETS, np.int64)
            chosen = slice(edges[tensor], edges[tensor + 1])
            dense[buckets[chosen] - tensor * BUCKETS] = counts[chosen]
            entries.append(sparse(dense))
        return moments, entries


def pack(counts: Any, room: int) -> list[Any]:
    """[how many buckets hold something], [room: bucket · 2^40 + count of these, in order], without waiting."""
    import torch

    device = counts.device
    packed = torch.zeros(room + 1, dtype=torch.int64, device=device)
    total = torch.zeros(1, dtype=torch.int64, device=device)
    for first in range(0, len(counts), TOGETHER):
        flat = counts[first : first + TOGETHER].flatten()
        filled = flat > 0
        place = filled.cumsum(0).add_(total)
        total = place[-1:].clone()
        number = torch.arange(first * BUCKETS, first * BUCKETS + len(flat), device=device)
        # what is empty or has no room goes to the last place, which is cut off
        target = torch.where(filled, place.sub_(1), room).clamp_(max=room)
        packed.scatter_(0, target, number.bitwise_left_shift_(COUNT_BITS).add_(flat))
    return [total, packed[:-1]]


def queue(flats: Sequence[Any], sketched: bool) -> Transfer:
    """Queue the statistics of these tensors on their device's current stream."""
    import torch

    with torch.inference_mode(False), torch.no_grad():
        if flats[0].is_cuda and _triton():
            from barograph.probes.stats.kernels import measure

            return Transfer(*measure(flats, sketched))
        return Transfer(*measure_by_torch(flats, sketched))


@cache
def _triton() -> bool:
    return find_spec("triton") is not None


def measure_by_torch(flats: Sequence[Any], sketched: bool) -> tuple[Any, Any | None]:
    """(table [n, 8], counts by key [n, 2^15] or None) in torch operations that never wait for the device."""
    import torch

    device = flats[0].device
    counts = torch.zeros(len(flats), BUCKETS, dtype=torch.int64, device=device) if sketched else None
    rows = []
    exact = torch.float32 if device.type == "mps" else torch.float64  # Apple's devices have no float64
    for number, flat in enumerate(flats):
        wide = flat.dtype in (torch.float64, torch.int32, torch.int64)
        values = flat.to(torch.float64 if wide else torch.float32)
        good = torch.isfinite(values)
        kept = torch.where(good, values, 0)
        finite = good.sum()
        infinite = torch.isinf(values).sum()
        empty = torch.full((), float("nan"), device=device, dtype=values.dtype)
        if flat.numel():
            low = torch.where(good, values, float("inf")).amin()
            high = torch.where(good, values, float("-inf")).amax()
            low, high = torch.where(finite > 0, low, empty), torch.where(finite > 0, high, empty)
        else:
            low = high = empty
        largest = torch.maximum(low.abs(), high.abs())
        unit = torch.where(largest > 0, largest, 1)
        scaled = (kept / unit).to(exact)
        amount = finite.clamp(min=1)
        mean = scaled.sum() / amount
        away = torch.where(good, scaled - mean, 0)
        deviation = (away.square_().sum() / amount).sqrt()
        zeros = (values == 0).sum()
        nans = flat.numel() - finite - infinite
        row = (finite, mean * unit, deviation * unit, low, high, zeros, nans, infinite)
        rows.append(torch.stack([value.to(exact) for value in row]))
        if counts is not None:
            limit = torch.finfo(torch.float32).max
            short = kept.clamp(-limit, limit).to(torch.float32)
            keys = (short.view(torch.int32) >> SHIFT) & (BUCKETS - 1)
            counts[number].scatter_add_(0, keys.to(torch.int64), good.to(torch.int64))
    table = torch.stack(rows)
    return (table.cpu().double() if table.dtype != torch.float64 else table), counts
