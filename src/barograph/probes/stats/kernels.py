"""Statistics of many tensors in one kernel, written in Triton.

In:   flat contiguous real tensors on one CUDA device (or on the CPU under TRITON_INTERPRET=1).
Out:  a table [n, 8] of float64 (finite, mean, deviation, low, high, zeros, nans, infs) on that device, and
      the counts of each tensor's buckets.

One launch reads every tensor of a dtype once: each program takes one block of 8,192 values of one tensor,
keeps it in registers, and takes its mean, then the deviation around it, in float32 scaled by the largest
value. A second, small launch adds up each tensor's blocks in float64, always in the same order, so the
answer doesn't depend on which block came first. Buckets are counted by integer atomics, which don't either.

The list of blocks depends on sizes alone and stays on the device; the tensors' addresses, which may be new
at every step, are 8 bytes a tensor from pinned memory. Offsets are 64 bits wide.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-untyped, import-not-found"
# ruff: noqa: SIM108 - a kernel has blocks where Python has expressions

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from barograph.probes.stats.sketch import BUCKETS, SHIFT

BLOCK = 8192  # values of a program: 32 registers a thread of 8 warps
STRIDE = 256  # blocks that the second launch reads at once
READ_AS_IT_IS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DOUBLE = (torch.int32, torch.int64)  # read as float64; other dtypes are read as float32, fp8 as bfloat16


@triton.jit(do_not_specialize=["BLOCKS_TOTAL"])
def _read_blocks(
    addresses,
    sizes,
    owners,
    offsets,
    partial,
    counts,
    like,
    BLOCKS_TOTAL,
    BLOCK: tl.constexpr,
    SHIFT: tl.constexpr,
    BUCKETS: tl.constexpr,
    SKETCHED: tl.constexpr,
    WIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    owner = tl.load(owners + number)
    begin = tl.multiple_of(tl.load(offsets + number), BLOCK)
    size = tl.load(sizes + owner)
    place = begin + tl.arange(0, BLOCK).to(tl.int64)
    inside = place < size
    source = tl.load(addresses + owner).to(like.dtype)
    if ALIGNED:
        source = tl.multiple_of(source, 16)
    # a whole block has no mask, so that its loads are 16 bytes wide
    if begin + BLOCK <= size:
        read = tl.load(source + place)
    else:
        read = tl.load(source + place, mask=inside, other=0.0)
    values = read.to(tl.float64) if WIDE else read.to(tl.float32)
    infinity = float("inf")
    nan = values != values
    finite = inside & (tl.abs(values) < infinity)
    low = tl.min(tl.where(finite, values, infinity), 0)
    high = tl.max(tl.where(finite, values, -infinity), 0)
    # three counts in one sum: a block has at most 2^13 values
    amounts = finite.to(tl.int64) + ((finite & (values == 0.0)).to(tl.int64) << 20)
    amounts = tl.sum(amounts + ((inside & nan).to(tl.int64) << 40), 0)
    amount = amounts & 0xFFFFF
    zeros = (amounts >> 20) & 0xFFFFF
    nans = amounts >> 40
    total = tl.minimum(size - begin, BLOCK)
    some = amount > 0
    largest = tl.where(some, tl.maximum(tl.abs(low), tl.abs(high)), 1.0)
    unit = tl.where(largest > 0.0, largest, 1.0)
    scaled = tl.where(finite, values / unit, 0.0)
    divisor = tl.maximum(amount, 1).to(values.dtype)
    mean = tl.sum(scaled, 0) / divisor
    away = tl.where(finite, scaled - mean, 0.0)
    deviation = tl.sqrt((tl.sum(away * away, 0) / divisor).to(tl.float64))
    to = partial + number
    tl.store(to, amount.to(tl.float64))
    tl.store(to + BLOCKS_TOTAL, mean.to(tl.float64) * unit.to(tl.float64))
    tl.store(to + 2 * BLOCKS_TOTAL, deviation * unit.to(tl.float64))
    tl.store(to + 3 * BLOCKS_TOTAL, low.to(tl.float64))
    tl.store(to + 4 * BLOCKS_TOTAL, high.to(tl.float64))
    tl.store(to + 5 * BLOCKS_TOTAL, zeros.to(tl.float64))
    tl.store(to + 6 * BLOCKS_TOTAL, nans.to(tl.float64))
    tl.store(to + 7 * BLOCKS_TOTAL, (total - amount - nans).to(tl.float64))
    if SKETCHED:
        short = values
        if WIDE:
            short = tl.minimum(tl.maximum(values, -3.4028234663852886e38), 3.4028234663852886e38)
        bits = short.to(tl.float32).to(tl.int32, bitcast=True)
        key = (bits >> SHIFT) & (BUCKETS - 1)
        tl.atomic_add(counts + owner * BUCKETS + key, 1, mask=finite, sem="relaxed")


@triton.jit(do_not_specialize=["BLOCKS_TOTAL"])
def _add_blocks(partial, firsts, rows, table, BLOCKS_TOTAL, STRIDE: tl.constexpr):
    tensor = tl.program_id(0).to(tl.int64)
    first = tl.load(firsts + tensor)
    last = tl.load(firsts + tensor + 1)
    infinity = float("inf")
    lane = tl.arange(0, STRIDE).to(tl.int64)
    finite = tl.zeros([STRIDE], tl.float64)
    sums = tl.zeros([STRIDE], tl.float64)
    zeros = tl.zeros([STRIDE], tl.float64)
    nans = tl.zeros([STRIDE], tl.float64)
    infs = tl.zeros([STRIDE], tl.float64)
    low = tl.zeros([STRIDE], tl.float64) + infinity
    high = tl.zeros([STRIDE], tl.float64) - infinity
    for begin in range(first, last, STRIDE):
        place = begin + lane
        inside = place < last
        at = partial + place
        amount = tl.load(at, mask=inside, other=0.0)
        finite += amount
        sums += amount * tl.load(at + BLOCKS_TOTAL, mask=inside, other=0.0)
        low = tl.minimum(low, tl.load(at + 3 * BLOCKS_TOTAL, mask=inside, other=infinity))
        high = tl.maximum(high, tl.load(at + 4 * BLOCKS_TOTAL, mask=inside, other=-infinity))
        zeros += tl.load(at + 5 * BLOCKS_TOTAL, mask=inside, other=0.0)
        nans += tl.load(at + 6 * BLOCKS_TOTAL, mask=inside, other=0.0)
        infs += tl.load(at + 7 * BLOCKS_TOTAL, mask=inside, other=0.0)
    total = tl.sum(finite, 0)
    divisor = tl.maximum(total, 1.0)
    mean = tl.sum(sums, 0) / divisor
    squares = tl.zeros([STRIDE], tl.float64)
    for begin in range(first, last, STRIDE):
        place = begin + lane
        inside = place < last
        at = partial + place
        amount = tl.load(at, mask=inside, other=0.0)
        apart = tl.load(at + BLOCKS_TOTAL, mask=inside, other=0.0) - mean
        own = tl.load(at + 2 * BLOCKS_TOTAL, mask=inside, other=0.0)
        squares += amount * (own * own + apart * apart)
    lowest = tl.min(low, 0)
    highest = tl.max(high, 0)
    to = table + tl.load(rows + tensor) * 8
    nothing = total == 0.0
    tl.store(to, total)
    tl.store(to + 1, mean)
    tl.store(to + 2, tl.sqrt(tl.sum(squares, 0) / divisor))
    tl.store(to + 3, tl.where(nothing, float("nan"), lowest))
    tl.store(to + 4, tl.where(nothing, float("nan"), highest))
    tl.store(to + 5, tl.sum(zeros, 0))
    tl.store(to + 6, tl.sum(nans, 0))
    tl.store(to + 7, tl.sum(infs, 0))


def blocks(sizes: Sequence[int], block: int = BLOCK) -> tuple[Any, Any, Any]:
    """(owner of each block, its first value's place in the owner, first block of each tensor [n + 1]), int64."""
    amounts = np.array([-(-size // block) for size in sizes], np.int64)
    firsts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(amounts, out=firsts[1:])
    owners = np.repeat(np.arange(len(sizes), dtype=np.int64), amounts)
    return owners, (np.arange(firsts[-1], dtype=np.int64) - firsts[owners]) * block, firsts


@lru_cache(maxsize=16)
def _work(sizes: tuple[int, ...], numbers: tuple[int, ...], device: torch.device) -> list[torch.Tensor]:
    """Sizes, owners, offsets, first blocks and rows of the table on the device: the same at every step."""
    arrays = (np.array(sizes, np.int64), *blocks(sizes), np.array(numbers, np.int64))
    return [_upload(torch.from_numpy(array), device) for array in arrays]


def _upload(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type == "cuda":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


def _readable(flat: torch.Tensor) -> torch.Tensor:
    """The tensor in a dtype that the kernel reads; a copy of fp8 and of integers."""
    if flat.dtype in READ_AS_IT_IS:
        return flat
    if flat.dtype in DOUBLE:
        return flat.to(torch.float64)
    return flat.to(torch.bfloat16 if flat.is_floating_point() else torch.float32)


def measure(flats: Sequence[torch.Tensor], sketched: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(table [n, 8], counts by key [n, 2^15] or None). Queues work on the current stream and returns."""
    device = flats[0].device
    table = torch.zeros(len(flats), 8, dtype=torch.float64, device=device)
    table[:, 3:5] = float("nan")  # tensors without an element have no block
    # a tensor beyond 2^31 values may fill one bucket beyond 32 bits
    exact = torch.int64 if max(flat.numel() for flat in flats) >= 1 << 31 else torch.int32
    counts = torch.zeros(len(flats), BUCKETS, dtype=exact, device=device) if sketched else None
    sources = [_readable(flat) for flat in flats]
    for dtype in dict.fromkeys(source.dtype for source in sources):
        numbers = [number for number, source in enumerate(sources) if source.dtype == dtype and source.numel()]
        if numbers:
            _launch([sources[number] for number in numbers], tuple(numbers), table, counts)
    return table, counts


def _launch(
    sources: list[torch.Tensor], numbers: tuple[int, ...], table: torch.Tensor, counts: torch.Tensor | None
) -> None:
    device = table.device
    sizes, owners, offsets, firsts, rows = _work(tuple(source.numel() for source in sources), numbers, device)
    addresses = _upload(torch.tensor([source.data_ptr() for source in sources], dtype=torch.int64), device)
    partial = torch.empty(8, len(owners), dtype=torch.float64, device=device)
    # where these tensors are not all that were asked for, their counts have rows of their own at first
    own = counts
    if counts is not None and len(sources) < len(counts):
        own = torch.zeros(len(sources), BUCKETS, dtype=counts.dtype, device=device)
    constants = {"BLOCK": BLOCK, "SHIFT": SHIFT, "BUCKETS": BUCKETS}
    _read_blocks[(len(owners),)](
        addresses,
        sizes,
        owners,
        offsets,
        partial,
        partial if own is None else own,
        sources[0],
        len(owners),
        SKETCHED=own is not None,
        WIDE=sources[0].dtype == torch.float64,
        ALIGNED=all(source.data_ptr() % 16 == 0 for source in sources),
        num_warps=8,
        **constants,
    )
    _add_blocks[(len(sources),)](partial, firsts, rows, table, len(owners), STRIDE=STRIDE, num_warps=4)
    if counts is not None and own is not None and own is not counts:
        counts.index_copy_(0, rows, own)
