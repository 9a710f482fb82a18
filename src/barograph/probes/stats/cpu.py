"""Statistics of tensors in the processor's memory, in torch operations on pieces that stay in the cache.

In:   flat contiguous real tensors on the CPU.
Out:  their moments, and the places and counts of their sketches.

A tensor is cut into rows of 1,024 values. Sum, norm, minimum, maximum and zeros of each row are taken in
float32 over pieces of some hundred rows, so that only the first of these operations reads main memory;
rows are added up in float64. Many small tensors are copied into one piece. The last, incomplete row of each
tensor is measured in float64 together with all others. Three rare cases are read again: rows with NaN or
infinities; tensors whose mean is more than twice their deviation; tensors so small or large that a square
underflows or overflows.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.probes.stats import sketch
from barograph.probes.stats.moments import Moments, combine, measure, nothing
from barograph.probes.stats.workers import team

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Entries = tuple[NDArray[Any], Counts]

ROW = 1024  # values; at most 64 float32 additions follow one another in each lane of a vector
PIECE = 1 << 20  # values in one operation spread over all threads: 4 MB, or half of it a core
SHARED = 1 << 21  # values in the operations that several threads run at once, 1 << 20 each at most
SMALL = 1 << 16  # tensors with fewer values are copied together
COUNTED = 1 << 13  # … those with a sketch: sorting this many values takes as long as counting into all buckets
TAILS = 1 << 16  # values of incomplete rows that are measured at once
HELD = 1 << 16  # rows whose results are held before they are added up
FULL = -0x7F7F7F7F7F7F7F80  # eight bytes of 128 each: a row without a zero

# mean² above this many variances: measured again around the mean. Below, the error of a row's sum of squares
# (2e-7) grows at most fivefold on its way into the variance.
SHIFTED = 4.0
# extremes whose squares float32 can't add up: below, squares of the smaller values underflow
TINY, HUGE = 1e-12, 1e16


class Scratch:
    """Memory of one thread: at most 7 bytes a value of its piece."""

    def __init__(self, size: int, dtype: Any) -> None:
        import torch

        self.rows = size // ROW
        self.dtype = dtype
        self._packed: Any = None
        self.different = torch.empty(self.rows, ROW, dtype=torch.bool)
        self.eights = self.different.view(torch.int64)
        self._keys: NDArray[np.uint16] | None = None

    @property
    def packed(self) -> Any:
        import torch

        if self._packed is None:
            self._packed = torch.empty(self.rows, ROW, dtype=self.dtype)
        return self._packed

    def keys(self, rows: Any) -> NDArray[np.uint16]:
        """Bucket keys of contiguous rows, float32 or float64."""
        if self._keys is None:
            self._keys = np.empty(self.rows * ROW, np.uint16)
        return bucket_keys(rows.numpy().reshape(-1), self._keys[: rows.numel()])


def bucket_keys(values: NDArray[Any], out: NDArray[np.uint16] | None = None) -> NDArray[np.uint16]:
    """`bits >> 17` of values as float32; what float32 can't hold goes to its last bucket, not to infinity."""
    if values.dtype != np.float32:
        limit = np.finfo(np.float32).max
        values = np.where(np.isfinite(values), np.clip(values, -limit, limit), values).astype(np.float32)
    if out is None:
        out = np.empty(len(values), np.uint16)
    np.right_shift(values.view(np.uint32), np.uint32(sketch.SHIFT), out=out, casting="unsafe")
    return out


class CpuPiece:
    """Rows that are reduced together: `parts` are (tensor, first row, rows), `at` their place in the results."""

    __slots__ = ("at", "parts", "rows")

    def __init__(self, at: int) -> None:
        self.at = at
        self.rows = 0
        self.parts: list[tuple[int, int, int]] = []


@lru_cache(maxsize=32)
def plan(rows: tuple[int, ...], piece_rows: int, small_rows: int, held_rows: int) -> list[list[CpuPiece]]:
    """Batches of pieces that hold each row of each tensor once.

    `rows`: whole rows of each tensor. A tensor of `small_rows` or more has pieces of its own; others share.
    No batch has more than `held_rows`, no piece more than `piece_rows`.
    """
    batches: list[list[CpuPiece]] = []
    at = held_rows
    shared = False  # whether the last piece takes further tensors
    for small in (False, True):
        for tensor, total in enumerate(rows):
            begin = 0
            if (total < small_rows) != small:
                continue
            while begin < total:
                if at >= held_rows:
                    batches.append([])
                    at, shared = 0, False
                if not shared or batches[-1][-1].rows >= piece_rows:
                    batches[-1].append(CpuPiece(at))
                piece, shared = batches[-1][-1], small
                take = min(total - begin, piece_rows - piece.rows, held_rows - at)
                piece.parts.append((tensor, begin, take))
                piece.rows += take
                begin, at = begin + take, at + take
    return batches


class CpuReading:
    """One pass over tensors of which all are read as float32, or all as float64 (`wide`)."""

    def __init__(self, flats: Sequence[Any], wide: bool, sketched: bool) -> None:
        import torch

        self.flats = flats
        self.sketched = sketched
        self.dtype = torch.float64 if wide else torch.float32
        size = len(flats)
        self.rows = np.array([flat.numel() // ROW for flat in flats], np.int64)
        self.sums, self.squares = np.zeros(size), np.zeros(size)
        self.whole = nothing(size)  # of the whole rows
        self.whole.finite[:] = self.rows * ROW
        self.entries: list[Entries] = [(np.zeros(0, np.int64), np.zeros(0, np.int64)) for _ in range(size)]
        self._dense: dict[int, Any] = {}
        self._left = [0] * size  # parts of each tensor that are still to be counted
        self._loose: list[Entries] = []  # (tensor · 2^15 + key, count)
        self._lock = threading.Lock()

    def result(self) -> Moments:
        """Read everything. Afterwards `entries` hold (places, counts) of each tensor's sketch."""
        import torch

        with torch.inference_mode(False), torch.no_grad(), np.errstate(all="ignore"):
            tails = self._tails()
            workers = team() if self.sketched else None
            length = PIECE if workers is None else min(PIECE, SHARED // workers.size)
            if self.dtype == torch.float64 or any(flat.dtype != self.dtype for flat in self.flats):
                length //= 2  # twice the memory a value
            batches = plan(tuple(self.rows.tolist()), length // ROW, (COUNTED if self.sketched else SMALL) // ROW, HELD)
            longest = max((piece.rows for batch in batches for piece in batch), default=0) * ROW
            # below 16 MB: 3 to 7 bytes a value of each thread's piece, 24 a row held, 512 kB of buckets a thread
            for tensor, _, _ in (part for batch in batches for piece in batch for part in piece.parts):
                self._left[tensor] += 1
            scratch = [Scratch(longest, self.dtype) for _ in range(1 if workers is None else workers.size)]
            held = min(HELD, int(self.rows.sum()))
            self.results = torch.empty(4, held, dtype=self.dtype)
            self.eights = torch.empty(held, dtype=torch.int64)
            for batch in batches:
                rows = [piece.rows for piece in batch]
                columns = (*self.results[:, : sum(rows)].unbind(), self.eights[: sum(rows)])
                jobs = list(zip(batch, *(torch.split(column, rows) for column in columns), strict=True))
                if workers is None:
                    for job in jobs:
                        self._read(job, scratch[0])
                else:
                    workers.run(self._read, jobs, scratch)
                self._add_up(batch)
            self._finish_rows()
            if self.sketched:
                self._finish_sketches()
            return combine(self.whole, tails)

    def _tails(self) -> Moments:
        """Moments of the incomplete rows, in float64."""
        import torch

        moments = nothing(len(self.flats))
        left = [tensor for tensor, flat in enumerate(self.flats) if flat.numel() % ROW]
        while left:
            several, left = left[: TAILS // ROW], left[TAILS // ROW :]
            tails = [self.flats[tensor][int(self.rows[tensor]) * ROW :] for tensor in several]
            sizes = np.array([tail.numel() for tail in tails], np.int64)
            joined = torch.cat([tail.to(self.dtype) for tail in tails]).numpy()
            moments.put(several, measure(joined.astype(np.float64), sizes))
            if self.sketched:
                self._count_loose(bucket_keys(joined), np.repeat(several, sizes))
        # sorted by tensor; a large tensor takes its own when the rest of it has been counted
        none = np.zeros(0, np.int64)
        keys = np.concatenate([none, *(keys for keys, _ in self._loose)])
        counts = np.concatenate([none, *(counts for _, counts in self._loose)])
        self._loose = [(keys, counts)]
        starts = np.searchsorted(keys >> 15, np.arange(len(self.flats) + 1))
        self._tail_entries = (keys & 0x7FFF, counts, starts)
        return moments

    def _rows(self, tensor: int, begin: int, rows: int) -> Any:
        return self.flats[tensor][begin * ROW : (begin + rows) * ROW].view(rows, ROW)

    def _read(self, job: Any, scratch: Scratch) -> None:
        """Reduce the rows of one piece: job is (piece, and where sums, norms, lows, highs, eights go)."""
        import torch

        piece, sums, norms, lows, highs, eights = job
        parts = piece.parts
        values = self._rows(*parts[0])
        if len(parts) > 1 or values.dtype != self.dtype:
            values = self._packed([values, *(self._rows(*part) for part in parts[1:])], scratch)
        torch.linalg.vector_norm(values, dim=1, out=norms)
        torch.amax(values, 1, out=highs)
        torch.amin(values, 1, out=lows)
        torch.sum(values, 1, out=sums)
        if self.sketched and not self._sketch(piece, values, scratch):
            eights.fill_(FULL)
            return
        different, bytes_of = scratch.different, scratch.eights
        if piece.rows < scratch.rows:
            different, bytes_of = different[: piece.rows], bytes_of[: piece.rows]
        different.copy_(values)
        torch.sum(bytes_of, 1, out=eights)

    def _packed(self, views: list[Any], scratch: Scratch) -> Any:
        """Rows of several tensors, or of another dtype, in one piece of scratch."""
        import torch

        values, at = scratch.packed[: sum(len(view) for view in views)], 0
        if all(view.dtype == self.dtype for view in views):
            return torch.cat(views, out=values)
        for view in views:
            values[at : at + len(view)].copy_(view)
            at += len(view)
        return values

    def _sketch(self, piece: CpuPiece, values: Any, scratch: Scratch) -> bool:
        """Count into buckets; says whether there may be zeros."""
        import torch

        keys = scratch.keys(values)
        if int(self.rows[piece.parts[0][0]]) * ROW < COUNTED:  # a piece of small tensors
            owners = np.repeat([tensor for tensor, _, _ in piece.parts], [rows * ROW for _, _, rows in piece.parts])
            self._count_loose(keys, owners)
            return True
        counts = torch.bincount(torch.from_numpy(keys.view(np.int16)), minlength=sketch.BUCKETS).numpy()
        tensor = piece.parts[0][0]
        zeros = bool(counts[0] or counts[sketch.NEGATIVE])
        with self._lock:
            before = self._dense.pop(tensor, None)
            if before is not None:
                counts += before
            self._left[tensor] -= 1
            if self._left[tensor]:
                self._dense[tensor] = counts
                return zeros
        tails, amounts, starts = self._tail_entries
        entries = slice(starts[tensor], starts[tensor + 1])
        counts[tails[entries]] += amounts[entries]
        self.entries[tensor] = sketch.sparse(counts)
        return zeros

    def _count_loose(self, keys: NDArray[np.uint16], owners: NDArray[Any]) -> None:
        found, counts = np.unique((owners.astype(np.int64) << 15) | keys, return_counts=True)
        with self._lock:
            self._loose.append((found, counts))

    def _add_up(self, batch: list[CpuPiece]) -> None:
        """Rows of one batch into their tensors, in float64."""
        parts = [part for piece in batch for part in piece.parts]
        owners = np.array([part[0] for part in parts])
        sizes = np.array([part[2] for part in parts])
        rows = int(sizes.sum())
        starts = np.cumsum(sizes) - sizes
        again = self._read_again(parts, sizes, rows)
        sums, norms, lows, highs = self.results[:, :rows].numpy()
        least, most = (np.fmin, np.fmax) if again else (np.minimum, np.maximum)
        np.add.at(self.sums, owners, np.add.reduceat(sums, starts, dtype=np.float64))
        squares = norms.astype(np.float64)
        np.multiply(squares, squares, out=squares)
        np.add.at(self.squares, owners, np.add.reduceat(squares, starts))
        np.fmin.at(self.whole.low, owners, least.reduceat(lows, starts))
        np.fmax.at(self.whole.high, owners, most.reduceat(highs, starts))
        eights = self.eights[:rows].numpy()
        holding = np.flatnonzero(eights != FULL)
        if len(holding):
            different = eights[holding].view(np.uint8).reshape(-1, 8).sum(1, dtype=np.int64)
            owner = owners[np.searchsorted(starts, holding, side="right") - 1]
            np.add.at(self.whole.zeros, owner, ROW - different)

    def _read_again(self, parts: list[tuple[int, int, int]], sizes: Counts, rows: int) -> bool:
        """Rows with NaN or infinities: their results over the finite values, and how many are not.

        Says whether there were any; a row without a finite value then has NaN for its extremes.
        """
        import torch

        _, _, lows, highs = self.results[:, :rows].numpy()
        bad = np.flatnonzero(~(np.isfinite(lows) & np.isfinite(highs)))
        if not len(bad):
            return False
        starts = np.cumsum(sizes) - sizes
        owner = np.searchsorted(starts, bad, side="right") - 1
        pool, top = torch.empty(min(len(bad), 256), ROW, dtype=self.dtype), float("inf")
        for part in np.unique(owner):
            tensor, begin, _ = parts[part]
            here = bad[owner == part]
            for few in np.array_split(here, -(-len(here) // 256)):
                places = torch.from_numpy(few)
                rows_of = places + int(begin - starts[part])
                if few[-1] - few[0] == len(few) - 1:
                    values = self._rows(tensor, int(rows_of[0]), len(few)).to(self.dtype)
                else:
                    values = self._rows(tensor, 0, int(self.rows[tensor]))[rows_of].to(self.dtype)
                # marks are 0.0 and 1.0: torch adds these up ten times as fast as booleans
                spare = pool[: len(values)]
                amounts = torch.eq(torch.sub(values, values, out=spare), 0, out=spare).sum(1)
                infinite = int(torch.eq(torch.abs(values, out=spare), top, out=spare).sum(1).sum())
                finite = int(amounts.sum())
                self.whole.infs[tensor] += infinite
                self.whole.nans[tensor] += values.numel() - finite - infinite
                self.whole.finite[tensor] += finite - values.numel()
                low = torch.nan_to_num(values, top, top, top, out=spare).amin(1)
                high = torch.nan_to_num(values, -top, -top, -top, out=spare).amax(1)
                low[amounts == 0] = high[amounts == 0] = float("nan")
                kept = torch.nan_to_num(values, 0, 0, 0, out=spare)
                norm = torch.linalg.vector_norm(kept, dim=1)
                self.results[:, places] = torch.stack([kept.sum(1), norm, low, high])
        return True

    def _finish_rows(self) -> None:
        """Mean and deviation of the whole rows; the tensors that need it are read once more in float64."""
        whole = self.whole
        amounts = np.maximum(whole.finite, 1)
        whole.mean[:] = self.sums / amounts
        variance = np.maximum(self.squares / amounts - whole.mean**2, 0)
        whole.deviation[:] = np.sqrt(variance)
        largest = np.fmax(np.abs(whole.low), np.abs(whole.high))
        tiny, huge = (TINY, HUGE) if str(self.dtype) == "torch.float32" else (1e-140, 1e140)
        doubtful = (largest > 0) & ((largest < tiny) | (largest > huge) | ~(whole.mean**2 <= SHIFTED * variance))
        for tensor in np.flatnonzero(doubtful & (whole.finite > 0)):
            self._measure_exactly(int(tensor), float(largest[tensor]))

    def _measure_exactly(self, tensor: int, largest: float) -> None:
        """Mean and deviation around it in float64, scaled by a power of two."""
        import torch

        unit = float(np.ldexp(1.0, int(np.clip(np.frexp(largest)[1], -1000, 1000))))
        flat = self.flats[tensor][: int(self.rows[tensor]) * ROW]
        amount = int(self.whole.finite[tensor])
        clean = amount == flat.numel()

        def scaled(values: Any) -> Any:
            wide = values.to(torch.float64)
            return (wide if clean else wide.nan_to_num_(0, 0, 0)) / unit

        pieces = flat.split(SMALL * 2)
        mean = sum(float(scaled(values).sum()) for values in pieces) / amount
        squares = 0.0
        for values in pieces:
            away = scaled(values).sub_(mean)
            if not clean:
                away.mul_(torch.isfinite(values))
            squares += float(torch.dot(away, away))
        self.whole.mean[tensor] = mean * unit
        self.whole.deviation[tensor] = np.sqrt(squares / amount) * unit

    def _finish_sketches(self) -> None:
        """Sort what was counted by sorting into the sketches of the small tensors."""
        keys = np.concatenate([found for found, _ in self._loose])
        counts = np.concatenate([amounts for _, amounts in self._loose])
        places = sketch.places_of(keys & 0x7FFF)
        small = self.rows * ROW < COUNTED
        good = small[keys >> 15] & (np.abs(places - sketch.NEGATIVE + 0.5) < sketch.NOT_FINITE)
        combined, back = np.unique((keys[good] >> 15 << 15) | places[good], return_inverse=True)
        added = np.bincount(back, counts[good], len(combined)).astype(np.int64)
        edges = np.searchsorted(combined, np.arange(len(self.flats) + 1) << 15)
        for tensor in np.flatnonzero(np.diff(edges)):
            entries = slice(edges[tensor], edges[tensor + 1])
            self.entries[tensor] = (combined[entries] & 0x7FFF, added[entries])


def read(flats: Sequence[Any], sketched: bool) -> tuple[Moments, list[Entries]]:
    """Moments and sketch entries of flat contiguous real tensors on the CPU, of any one dtype each."""
    import torch

    wide = {torch.float64, torch.int32, torch.int64, torch.uint32, torch.uint64}
    moments = nothing(len(flats))
    entries: list[Entries] = [(np.zeros(0, np.int64), np.zeros(0, np.int64)) for _ in flats]
    for group in (False, True):
        chosen = [number for number, flat in enumerate(flats) if (flat.dtype in wide) == group]
        if chosen:
            reading = CpuReading([flats[number] for number in chosen], group, sketched)
            moments.put(chosen, reading.result())
            for number, entry in zip(chosen, reading.entries, strict=True):
                entries[number] = entry
    return moments, entries
