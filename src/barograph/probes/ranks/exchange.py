"""Rows from every rank to the first one and an answer back: the packed reduction's wire.

In:   one entry a logged step on each rank: numbers, times, a batch's fingerprint, a parameters' checksum.
Out:  a frame on the group's first rank, with every rank's row, and the reduced numbers on all ranks.

A link has a gloo process group of its own, between the CPUs and beside the training's: it takes no turn in
the training's collectives, so a rank that doesn't come holds up a thread of ours and nothing else, and
values that are numbers already never see an accelerator. No collective is begun before every rank has
said, through torch's store, that it is there.

A frame is one gather to the first rank and one broadcast back. Ranks may come with different steps: those
with the lowest are reduced, the others' entries wait for the next frame. Rows have a fixed number of places;
when a rank needs more, the answer says so and the frame is done again. So all ranks always agree on sizes.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

CLOSED = 1 << 52  # the step of a rank that has nothing more to say
LONGEST_QUEUE = 4096  # entries that wait for the other ranks; further ones are dropped
_HEAD = struct.Struct("17d")
_HEAD_PLACES = 17
_ANSWER_PLACES = 8
_FIRST_PLACES = 64
_STEP, _NAMES, _COUNT, _PRINT, _SUM, _SENT, _RECEIVED, _STEP_MS, _WAIT_MS = 0, 1, 2, 3, 6, 9, 11, 13, 14
_LABELS, _LAYERS = 15, 16
_SKEW_FRAMES = 512  # an offset is narrowed down by this many frames, then anew: clocks drift
_CONNECT_SECONDS = 300.0
_LEAVE_SECONDS = 20.0  # how long the end of a run waits for a thread that is inside torch
_SHORT_SECONDS, _YOUNG_SECONDS = 0.5, 10.0  # so long it waits for ranks that need not come, and for a young link alone
_PAUSES = 0.0002, 0.02  # between two looks whether a collective is done: the first, and the longest


@dataclass(slots=True)
class ExchangeEntry:
    """What one rank says at a step. `arrived` is set where values are still on their way from a device."""

    step: int
    names: tuple[str, ...] = ()
    names_hash: int = 0
    values: Sequence[Any] = ()
    step_ms: float = math.nan
    wait_ms: float = math.nan
    fingerprint: int | None = None
    checksum: float | int | None = None
    checks: int = 0  # what the checksum is of, as `copies` numbers it; 0 for what the loop gave
    watched: bool = False  # the fingerprint is the watch's own
    labels: int = 0  # what tells the labels of the batch's rows, 52 bits
    layers: int = 0  # how many layers have a mode, and how many are in training mode, as `copies` puts both into one
    arrived: Any = None
    settle: Callable[[ExchangeEntry], None] | None = None  # makes `values` plain once they have arrived
    table: list[list[float]] | None = None  # min, max, sum, min rank, max rank, non-finite, once reduced
    present: int = 0  # ranks in the table


class ExchangeFrame(NamedTuple):
    """One step of all ranks, as the first rank sees it. Ranks are places in the group, 0 to n - 1.

    present: the ranks that had this step; names_hash: their common set of names, 0 if they differ;
    hashes, counts: of each rank; table: min, max, sum, min rank, max rank and non-finite ranks, a list each.
    """

    step: int
    present: list[int]
    names_hash: int
    hashes: list[int]
    counts: list[int]
    table: list[list[float]]
    step_ms: list[float]
    wait_ms: list[float]
    fingerprints: list[int | None]
    checksums: list[float | int | None]
    checks: list[int] = []  # noqa: RUF012
    watched: list[bool] = []  # noqa: RUF012
    labels: list[int] = []  # noqa: RUF012
    layers: list[int] = []  # noqa: RUF012


@dataclass(slots=True)
class Offsets:
    """Each rank's clock against the first rank's, in seconds, between hard bounds.

    What a rank sent before the first one received it, and the first one's answer before the rank received
    it, bound the offset from both sides; no assumption about how long messages travel is needed.
    """

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    _fresh_low: list[float] = field(default_factory=list)
    _fresh_high: list[float] = field(default_factory=list)
    _frames: int = 0

    def narrow(self, sent: Sequence[float], received: Sequence[float]) -> None:
        """One frame's bounds in seconds: `sent` − arrival (at most the offset), `received` − answer (at least it)."""
        count = len(sent)
        if len(self.low) != count:
            self._frames = 0
            self.low, self.high = [-math.inf] * count, [math.inf] * count
        if self._frames % _SKEW_FRAMES == 0:
            if self._frames:
                self.low, self.high = self._fresh_low, self._fresh_high
            self._fresh_low, self._fresh_high = [-math.inf] * count, [math.inf] * count
        self._frames += 1
        for rank in range(count):
            low, high = sent[rank], received[rank]
            self._fresh_low[rank], self.low[rank] = max(self._fresh_low[rank], low), max(self.low[rank], low)
            self._fresh_high[rank], self.high[rank] = min(self._fresh_high[rank], high), min(self.high[rank], high)
            if self.low[rank] > self.high[rank]:  # a clock was set or drifts: what came before doesn't hold
                self.low[rank], self.high[rank] = self._fresh_low[rank], self._fresh_high[rank]
            if self.low[rank] > self.high[rank]:
                self.low[rank] = self._fresh_low[rank] = low
                self.high[rank] = self._fresh_high[rank] = high

    def estimate(self) -> list[tuple[float, float] | None]:
        """(offset, uncertainty) of each rank in seconds; the true offset is within; None where not known."""
        return [
            ((low + high) / 2, (high - low) / 2) if math.isfinite(low + high) and low <= high else None
            for low, high in zip(self.low, self.high, strict=True)
        ]


class Link:
    """This rank's end of the wire. `wait` has every entry exchanged before `send` returns.

    patience: seconds after which ranks that have not come are waited for no more; without one as long as the run lives.
    apart: a name for what these ranks exchange, that meets nobody who exchanges something else.
    """

    def __init__(
        self,
        torch: Any,
        group: Any,
        about: dict[str, Any],
        handle: Callable[[ExchangeFrame], None],
        trouble: Callable[[str], None],
        wait: bool = False,
        patience: float = math.inf,
        apart: str = "",
    ):
        distributed = torch.distributed
        self.torch, self.group, self.wait = torch, group, wait
        self.ranks: list[int] = list(distributed.get_process_group_ranks(group))
        self.rank, self.world = int(distributed.get_rank(group)), len(self.ranks)
        self.places: list[dict[str, Any]] = []
        self.offsets = Offsets()
        self.open = self.ended = self._connecting = False
        self.swap_ms = math.nan
        self.dropped = 0
        self._told: set[int] = set()
        self._handle, self._trouble = handle, trouble
        self._about = about
        self._prefix = f"barograph/{about.get('restart', '')}/{group.group_name}/{self.world}{apart}"
        self._patience, self._over = patience, threading.Event()
        self._queue: queue.SimpleQueue[ExchangeEntry] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._received = self._answered = 0.0
        self._thread: threading.Thread | None = None
        if not wait:
            self._thread = threading.Thread(target=self._run, name="barograph-ranks", daemon=True)
            self._thread.start()

    # -- the caller's side ---------------------------------------------------------------------------

    def send(self, entry: ExchangeEntry) -> None:
        """Hand over an entry: microseconds, or with `wait` until it is reduced."""
        if self.ended:
            return
        if self.wait:
            with self._lock:
                self._exchange(entry)
        elif self._queue.qsize() < LONGEST_QUEUE:
            self._queue.put(entry)
        else:
            self.dropped += 1

    def close(self, seconds: float) -> None:
        """Say that nothing more comes, and give the other ranks so long to say the same."""
        if not self.open and self._patience < math.inf:
            young = time.monotonic() - self._began < _YOUNG_SECONDS
            seconds = min(seconds, _SHORT_SECONDS) if young else 0.0
        if self.wait and self.open and not self.ended:
            last = ExchangeEntry(CLOSED)
            self._thread = threading.Thread(target=self.send, args=(last,), name="barograph-ranks", daemon=True)
            self._thread.start()
        self._queue.put(ExchangeEntry(CLOSED))
        if self._thread is not None and not self.missing():
            self._thread.join(seconds)
        self.leave()
        if self._thread is not None:
            self._thread.join(_LEAVE_SECONDS if self._connecting else 5 * _PAUSES[1])

    def leave(self) -> None:
        """Exchange nothing more; waits for nobody."""
        self.ended = True
        self._over.set()

    def missing(self) -> bool:
        """Whether ranks have not come for a minute after this one."""
        return not self.open and not self.ended and time.monotonic() - self._began > 60

    # -- the link's side -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self.ended:
            entry = self._queue.get()
            self._exchange(entry)
            if entry.step == CLOSED:
                return

    def _exchange(self, entry: ExchangeEntry) -> None:
        """Exchange frames until this entry's step was reduced. Ends the link when that can't be done."""
        try:
            if not self.open and not self._connect(entry):
                return
            if entry.settle is not None:
                entry.settle(entry)
            while not self.ended and not self._swap(entry):
                pass
        except Exception as error:  # a rank is gone, or the network
            if not self.ended:
                self.ended = True
                self._trouble(str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__)

    def _connect(self, entry: ExchangeEntry) -> bool:
        """Meet the other ranks through the store, then connect. Waits on this link's own thread, if it has one."""
        distributed = self.torch.distributed
        store = distributed.distributed_c10d._get_default_store()
        # A client of its own: one that waits in the store would keep the training's calls waiting.
        store = distributed.PrefixStore(self._prefix, store.clone() if hasattr(store, "clone") else store)
        turn = store.add(f"turn/{self.rank}", 1)  # the group may have met before, in this store
        store.set(f"{turn}/{self.rank}", json.dumps(self._about))
        store.add(f"{turn}/count", 1)
        pause, deadline = 0.005, time.monotonic() + (_CONNECT_SECONDS if self.wait else self._patience)
        while store.add(f"{turn}/count", 0) < self.world:
            if self.ended or time.monotonic() > deadline:
                store.add(f"{turn}/count", -1)  # who comes later doesn't wait for this rank
                raise TimeoutError("not every rank has come")
            self._over.wait(pause)
            pause = min(pause * 1.5, 1.0)
        connected = distributed.PrefixStore(f"{turn}/gloo", store)
        self._connecting = True
        try:
            self._gloo = distributed.ProcessGroupGloo(
                connected, self.rank, self.world, timedelta(seconds=_CONNECT_SECONDS)
            )
        finally:
            self._connecting = False
        self.places = [json.loads(store.get(f"{turn}/{rank}")) for rank in range(self.world)] if not self.rank else []
        self._names_store = distributed.PrefixStore(f"{turn}/names", store)
        self._gather, self._broadcast = distributed.GatherOptions(), distributed.BroadcastOptions()
        # an evaluation of hours on one rank is not a reason to stop
        self._gather.timeout = self._broadcast.timeout = timedelta(minutes=30) if self.wait else timedelta(days=7)
        work = self.torch._C._distributed_c10d.Work
        self._block = getattr(work.wait, "__wrapped__", work.wait)  # ours does not count as a wait of the training's
        self._size(_FIRST_PLACES)
        self.open = True
        return True

    def _await(self, work: Any) -> None:
        """Until a collective is done; raises what went wrong with it.

        The link's own thread never waits inside torch: an interpreter that ends while a thread is in there, and comes
        back to find it gone, aborts the process.
        """
        pause, longest = _PAUSES
        while threading.current_thread() is self._thread and not work.is_completed():
            if self.ended:
                raise TimeoutError("the run has ended")
            time.sleep(pause)
            pause = min(1.5 * pause, longest)
        self._block(work)

    def _size(self, places: int) -> None:
        torch, float64 = self.torch, self.torch.float64
        self._places = places
        width = _HEAD_PLACES + places
        self._bytes = bytearray(8 * width)
        self._row = torch.frombuffer(self._bytes, dtype=float64)
        self._answer = torch.zeros(_ANSWER_PLACES + 6 * places, dtype=float64)
        self._table = self._answer[_ANSWER_PLACES:].view(6, places)
        self._rows = torch.zeros(self.world if self.rank == 0 else 0, width, dtype=float64)
        self._into = [list(self._rows.unbind())] if self.rank == 0 else []

    def _swap(self, entry: ExchangeEntry) -> bool:
        """One frame: gather, reduce, broadcast. True when this entry is done with."""
        began = time.perf_counter()
        self._pack(entry)
        self._await(self._gloo.gather(self._into, [self._row], self._gather))
        frame = None
        if self.rank == 0:
            gathered = time.time_ns()
            frame = self._reduce(gathered)
        self._await(self._gloo.broadcast([self._answer], self._broadcast))
        self._received = time.time_ns()
        self.swap_ms = (time.perf_counter() - began) * 1e3
        step, places, closed, names_hash, present = [int(place) for place in self._answer[:5].tolist()]
        if closed:
            self.ended = True
            return True
        done = step == entry.step
        if done and names_hash and not (self.rank and not self.wait):  # who doesn't wait doesn't look either
            entry.present = present
            entry.table = self._table[:, : len(entry.values)].tolist()
        elif done and not names_hash and entry.names and entry.names_hash not in self._told:
            self._told.add(entry.names_hash)
            self._names_store.set(str(entry.names_hash), json.dumps(entry.names))
        if frame is not None:
            if entry.table is None and frame.names_hash:  # this rank's own entry is of another step
                frame = frame._replace(table=self._table[:, : max(frame.counts[r] for r in frame.present)].tolist())
            elif entry.table is not None and done:
                frame = frame._replace(table=entry.table)
            self._handle(frame)
        if places != self._places:
            self._size(places)
        return done

    def _pack(self, entry: ExchangeEntry) -> None:
        kind, number = 0.0, entry.checksum
        first = second = 0.0
        if isinstance(number, int):
            kind, first, second = 2.0 + entry.checks, *_halves(number)
        elif number is not None:
            kind, first = 1.0, number
        prints = (0.0, 0.0, 0.0) if entry.fingerprint is None else (1.0 + entry.watched, *_halves(entry.fingerprint))
        sent, received = divmod(time.time_ns(), 1_000_000_000), divmod(int(self._received), 1_000_000_000)
        values = entry.values
        _HEAD.pack_into(
            self._bytes, 0, entry.step, entry.names_hash, len(values), *prints, kind, first, second,
            *sent, *received, entry.step_ms, entry.wait_ms, float(entry.labels), float(entry.layers),
        )  # fmt: skip
        if len(values) <= self._places:
            struct.pack_into(f"{len(values)}d", self._bytes, 8 * _HEAD_PLACES, *values)

    # -- the first rank --------------------------------------------------------------------------------

    def _reduce(self, gathered: int) -> ExchangeFrame | None:
        """Fill the answer from the rows. None when nothing is reduced: rows have to grow, or all have ended."""
        heads = self._rows[:, :_HEAD_PLACES].tolist()
        steps = [int(head[_STEP]) for head in heads]
        most, lowest = max(int(head[_COUNT]) for head in heads), min(steps)
        self._narrow(heads, gathered)
        places = self._places
        while places < most:
            places *= 2
        grows, closed = places > self._places, lowest == CLOSED
        present = [rank for rank, step in enumerate(steps) if step == lowest]
        hashes = {int(heads[rank][_NAMES]) for rank in present}
        names_hash = hashes.pop() if len(hashes) == 1 else 0
        count = int(heads[present[0]][_COUNT]) if names_hash else 0
        if grows or closed:
            names_hash = count = 0
        self._answer[:5] = self.torch.tensor(
            [-1.0 if grows else lowest, places, closed, names_hash, len(present)], dtype=self.torch.float64
        )
        if count:
            rows = self._rows[:, _HEAD_PLACES : _HEAD_PLACES + count]
            reduce_rows(self.torch, rows if len(present) == self.world else rows[present], self._table, present)
        self._answered = time.time_ns()
        if grows or closed:
            return None
        here = set(present)
        only = [head if rank in here else None for rank, head in enumerate(heads)]
        return ExchangeFrame(
            lowest,
            present,
            names_hash,
            [int(head[_NAMES]) for head in heads],
            [int(head[_COUNT]) for head in heads],
            [],
            [head[_STEP_MS] if head else math.nan for head in only],
            [head[_WAIT_MS] if head else math.nan for head in only],
            [_whole(head[_PRINT + 1 :]) if head and head[_PRINT] else None for head in only],
            [_checksum(head[_SUM : _SUM + 3]) if head else None for head in only],
            [max(0, int(head[_SUM]) - 2) if head else 0 for head in only],
            [bool(head and head[_PRINT] > 1) for head in only],
            [int(head[_LABELS]) if head else 0 for head in only],
            [int(head[_LAYERS]) if head else 0 for head in only],
        )

    def _narrow(self, heads: list[list[float]], gathered: int) -> None:
        """Clock offsets: a rank sent before all was gathered, and received after the answer was sent."""
        second, nano = divmod(gathered, 1_000_000_000)
        sent = [(head[_SENT] - second) + (head[_SENT + 1] - nano) * 1e-9 for head in heads]
        second, nano = divmod(int(self._answered), 1_000_000_000)
        received = [
            (head[_RECEIVED] - second) + (head[_RECEIVED + 1] - nano) * 1e-9 if head[_RECEIVED] else math.inf
            for head in heads
        ]
        self.offsets.narrow(sent, received)

    def ask_names(self, names_hash: int) -> tuple[str, ...] | None:
        """The names of that hash. A rank tells them when it hears that not all have the same."""
        with contextlib.suppress(Exception):
            key = str(names_hash)
            for _ in range(20):
                if self._names_store.check([key]):
                    return tuple(json.loads(self._names_store.get(key)))
                time.sleep(0.01)
        return None


def reduce_rows(torch: Any, rows: Any, table: Any, ranks: list[int]) -> None:
    """Fill `table` (6 × places): min, max, sum over finite values, rank of each, non-finite values.

    rows: (ranks, names) of float64. A NaN is the maximum and its rank is named; the minimum is of the others.
    """
    count = rows.shape[1]
    high, total = rows.max(0), rows.sum(0)
    if bool(torch.isfinite(total).all()):  # the usual case; a sum that overflows takes the other way, rightly
        low = rows.min(0)
        table[5, :count] = 0
    else:
        finite = torch.isfinite(rows)
        low = torch.where(torch.isnan(rows), math.inf, rows).min(0)
        total = torch.where(finite, rows, 0.0).sum(0)
        table[5, :count] = (~finite).sum(0)
        empty = torch.isnan(rows).all(0)
        low.values[empty] = math.nan
        # where the least is infinity, a NaN's stand-in is not smaller: name the rank that has it
        infinite = torch.isposinf(low.values)
        low.indices[infinite] = (rows == math.inf).to(torch.uint8).argmax(0)[infinite]
    table[0, :count], table[1, :count], table[2, :count] = low.values, high.values, total
    numbers = torch.tensor(ranks, dtype=torch.float64)
    table[3, :count], table[4, :count] = numbers[low.indices], numbers[high.indices]


def _halves(number: int) -> tuple[float, float]:
    """A number's lowest 64 bits as two floats that hold 32 of them each, exactly."""
    return float(number >> 32 & 0xFFFFFFFF), float(number & 0xFFFFFFFF)


def _whole(halves: Sequence[float]) -> int:
    return int(halves[0]) << 32 | int(halves[1])


def _checksum(places: Sequence[float]) -> float | int | None:
    kind, first, second = places
    return None if not kind else _whole((first, second)) if kind >= 2 else first
