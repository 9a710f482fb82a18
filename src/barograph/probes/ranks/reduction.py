"""Values of all ranks, reduced in one exchange a logged step, and what follows from them.

In:   named values on every rank of torch.distributed, step and wait times, a fingerprint of the batch, a
      checksum of the parameters.
Out:  records of kind `ranks` (rank 0: minimum, mean, maximum and which rank; every rank: its own times) and
      `straggler`; warnings that name the rank.

`reduce` hands its values to a thread and returns at once (so does `compare_copies`, which watched models call where no
loop calls `reduce`); rank 0 writes the record when all ranks' values are
there. With `wait=True` it waits for them and returns them. Either way the exchange (`probes.exchange`) is
beside the training's own collectives: a rank that never calls `reduce` costs the others nothing.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from barograph.core import place
from barograph.core.values import DeviceValues, on_device, text
from barograph.probes.ranks.behind import BatchesBehind
from barograph.probes.ranks.copies import CopiesSeen
from barograph.probes.ranks.entries import mark, plain_float, settle
from barograph.probes.ranks.exchange import ExchangeEntry, ExchangeFrame, Link
from barograph.probes.ranks.labels import SharedLabels
from barograph.probes.ranks.straggler import StragglerFinding, StragglerWatch
from barograph.probes.recording import Recording

CLOSE_SECONDS = 2.0  # how long the end of a run waits for the other ranks' last values
_PATIENCE = 120.0  # seconds, for other ranks' watches: a rank without one never comes
_SKEW_EVERY = 1000  # reduced steps between two records of the clocks' offsets


class Reduced(NamedTuple):
    """One value over all ranks. min_rank, max_rank: the first rank that has it; sum: over finite values.

    mean: of the finite values, NaN if there is none; non_finite: how many ranks have NaN or infinity. A NaN
    is the maximum, so that `max_rank` names its rank.
    """

    min: float
    mean: float
    max: float
    min_rank: int
    max_rank: int
    non_finite: int
    sum: float


class Waits(Protocol):
    """Something that measures how long this rank waits for others."""

    def take(self) -> float | None:
        """Milliseconds waited since the last call; None where nothing was measured."""


class Ranks:
    """The probe: make one on every rank, call `reduce` on every rank at every step.

    group: the ranks to compare, as torch.distributed has them (default: all); every: reduce the steps that it
    divides; wait: `reduce` returns this step's values, and is a barrier.
    Before torch.distributed is initialised, and in a world of one, values are reduced here alone. When the
    process group is made anew, with another world size, the ranks meet again and a record says so.
    `waits` may be set to what measures waiting (`probes.waiting`): `reduce` then needs no `wait_ms`.
    """

    def __init__(self, run: Recording, group: Any = None, every: int = 1, wait: bool = False):
        self.run, self.every, self.wait = run, max(1, int(every)), wait
        self.waits: Waits | None = None
        self.straggler = StragglerWatch()
        self.last: dict[str, Reduced] | None = None
        self._group, self._link, self._owner = group, None, os.getpid()
        self._current: Any = None
        self._met_asked = False
        self._world = 0
        self._reduced = 0
        self._shapes: dict[tuple[Any, ...], tuple[int, tuple[str, ...], list[Any]]] = {}
        self._by_hash: dict[int, tuple[str, ...]] = {}
        self._sums: frozenset[str] = frozenset()
        self._called: float | None = None
        self._step: int | None = None
        self._waited = math.nan
        self._drifted: set[int] = set()
        self._copies, self._behind, self._labels = CopiesSeen(), BatchesBehind(), SharedLabels()
        self.asked = False  # whether a loop has called `reduce`
        self._before: Link | None = None  # the watches' link, from before that
        self._shown: dict[int, int] = {}  # the first rank's number of each step that watches compare
        run.at_finish.append(self.close)

    _link: Link | None

    def reduce(
        self,
        step: int,
        values: Mapping[str, Any],
        *,
        step_ms: float | None = None,
        wait_ms: float | None = None,
        sums: Iterable[str] = (),
        fingerprint: int | None = None,
        labels: int = 0,
        checksum: Any = None,
        copies: Mapping[str, Any] | None = None,
    ) -> dict[str, Reduced] | None:
        """Reduce named numbers over all ranks. Every rank calls it with the same names; never raises.

        values: Python's, NumPy's or torch's numbers; those on a device are copied without waiting.
        step_ms: the step's duration (default: since the last call); wait_ms: how long this rank waited in it.
        sums: names whose sum is recorded too. fingerprint: a number of the batch (64 bits), to find ranks
        that train on the same one; labels: one of the labels of its rows (52 bits; 0: not known). checksum: a number
        that ranks with equal parameters share (`checksum`). copies: what a watch of the model says of both, for where
        the loop says nothing.

        Returns the values of this step with `wait`, in a world of one too; else None, and `last` on rank 0
        holds those that came last.
        """
        try:
            now = time.perf_counter()
            if step_ms is None and self._called is not None and step != self._step:
                step_ms = (now - self._called) * 1e3
            self._called, self._step = now, step
            if wait_ms is None and self.waits is not None:
                wait_ms = self.waits.take()
            elif wait_ms is None and self.wait:
                wait_ms = self._waited
            if step % self.every or os.getpid() != self._owner:
                return None
            self.asked = True
            link = self._meet()
            if link is None:
                self.last = {name: alone(plain_float(value)) for name, value in values.items()}
                return self.last
            entry = self._entry(step, values, sums)
            entry.step_ms = math.nan if step_ms is None else float(step_ms)
            entry.wait_ms = math.nan if wait_ms is None else float(wait_ms)
            mark(entry, fingerprint, checksum, copies or {})
            entry.labels = labels or entry.labels
            link.send(entry)
            self._own(step, entry)
            if not self.wait:
                return None
            self._waited = link.swap_ms
            if entry.table is not None and link.rank:  # the first rank has it out of its frame
                self.last = self._named(entry.names, entry.table, entry.present)
            return self.last if entry.table is not None else None
        except Exception as error:
            self.run.warn(f"ranks are not compared at step {step}: {error}", key="ranks-failed")
            return None

    def compare_copies(self, count: int, step: int, copies: Mapping[str, Any]) -> None:
        """Compare what the ranks' watches say, until a loop calls `reduce`; never raises and never waits.

        count: of the watched steps, the same on all ranks; step: what this rank calls it. Nothing is exchanged before
        every rank has called this: `reduce` on some of them is not enough.
        """
        try:
            if self.asked or os.getpid() != self._owner or (link := self._meet()) is None:
                return
            entry = self._entry(count, {}, ())
            mark(entry, None, None, copies)
            if not link.rank and not link.ended:
                self._shown[count] = step
            link.send(entry)
        except Exception as error:
            self.run.warn(f"ranks are not compared at step {step}: {error}", key="ranks-failed")

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Say to the others that nothing more comes. A run calls it when it ends."""
        if os.getpid() == self._owner:
            for link, its in ((self._before, 0.0), (self._link, seconds)):
                if link is not None:
                    link.close(its)

    # -- the group ---------------------------------------------------------------------------------------

    def _meet(self) -> Link | None:
        """The link of the group as it is now; None where this rank is alone."""
        torch = sys.modules.get("torch")
        distributed: Any = getattr(torch, "distributed", None)
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return None
        group = distributed.group.WORLD if self._group is None else self._group
        if group is self._current and self.asked == self._met_asked:
            if self.asked and self._link is not None and self._link.missing():
                self.run.warn(
                    "ranks can't be compared yet: not every rank has called reduce; the others don't wait for it",
                    key="ranks-missing",
                )
            return self._link
        if self._link is not None:
            self._link.leave()  # its process group is gone, or from now on the loop compares
            self._before = self._link
        self._current, self._link, self._met_asked = group, None, self.asked
        self.straggler, self._copies, self._behind = StragglerWatch(), CopiesSeen(), BatchesBehind()
        self._labels = SharedLabels()
        world = int(distributed.get_world_size(group))
        if world > 1 and distributed.get_rank(group) >= 0:
            about = {
                "rank": distributed.get_rank(),
                "host": place.host(),
                "device": device(torch),
                "pid": os.getpid(),
                "restart": os.environ.get("TORCHELASTIC_RESTART_COUNT", ""),
            }
            if self.asked:
                self._link = Link(torch, group, about, self._handle, self._broken, self.wait)
            else:
                self._link = Link(torch, group, about, self._handle_copies, _quiet, patience=_PATIENCE, apart="/watch")
        if self._world and world != self._world:
            self.run.warn(f"the world changed from {self._world} to {world} ranks", key=f"world-{world}-{time.time()}")
            if int(distributed.get_rank(group)) == 0:
                self.run.record("ranks", self.run.current_step, {"world_size": world, "world_size_before": self._world})
        self._world = world
        return self._link

    def _broken(self, reason: str) -> None:
        self.run.warn(
            f"ranks are compared no more: the connection to another rank is gone ({reason}). The training goes on "
            "as far as it can",
            key=f"ranks-broken-{id(self._link)}",
        )

    # -- one rank's entry ------------------------------------------------------------------------------

    def _entry(self, step: int, values: Mapping[str, Any], sums: Iterable[str]) -> ExchangeEntry:
        keys = tuple(values)
        shape = self._shapes.get(keys)
        if shape is None:
            order = sorted(keys, key=text)
            names = tuple(text(key) for key in order)
            digest = hashlib.blake2b("\0".join(names).encode(), digest_size=6).digest()
            shape = int.from_bytes(digest) + 1, names, order  # never 0
            self._shapes[keys] = shape
            self._by_hash[shape[0]] = names
        if sums:
            self._sums |= frozenset(sums)
        names_hash, names, order = shape
        entry = ExchangeEntry(int(step), names, names_hash)
        if on_device(values):
            entry.arrived = DeviceValues({key: values[key] for key in order})
            entry.settle = settle
        else:
            entry.values = [
                value if type(value) is float else plain_float(value) for value in map(values.__getitem__, order)
            ]
        return entry

    def _own(self, step: int, entry: ExchangeEntry) -> None:
        """This rank's times in its own log: they outlive the exchange."""
        times = {
            name: value
            for name, value in (("step_ms", entry.step_ms), ("wait_ms", entry.wait_ms))
            if math.isfinite(value)
        }
        if times:
            self.run.record("ranks", step, {"by_rank": {str(self.run.rank): times}})

    # -- the first rank ----------------------------------------------------------------------------------

    def _handle(self, frame: ExchangeFrame) -> None:
        """A step of all ranks. On the link's thread, or on the caller's with `wait`."""
        link = self._link
        if link is None:
            return
        step, fields = frame.step, dict[str, Any]()
        if frame.names_hash:
            names = self._by_hash.get(frame.names_hash) or link.ask_names(frame.names_hash)
            if names:
                self.last = self._named(names, frame.table, len(frame.present))
                fields.update((name, self._fields(name, item)) for name, item in self.last.items())
        elif any(frame.counts[rank] for rank in frame.present):
            self._say_names(link, frame)
        for name, times in (("step_ms", frame.step_ms), ("wait_ms", frame.wait_ms)):
            known = [(time_ms, rank) for rank, time_ms in enumerate(times) if math.isfinite(time_ms)]
            if known:
                low, high = min(known), max(known)
                fields[name] = {
                    "min": low[0],
                    "mean": math.fsum(time_ms for time_ms, _ in known) / len(known),
                    "max": high[0],
                    "min_rank": link.ranks[low[1]],
                    "max_rank": link.ranks[high[1]],
                }
        if len(frame.present) < link.world:
            fields["absent"] = [rank for at, rank in enumerate(link.ranks) if at not in frame.present]
        self._marks(link, frame, fields)
        if self._reduced % _SKEW_EVERY == min(_SKEW_EVERY - 1, 9):  # after ten steps the bounds are close
            self._skew(link, fields)
        self._reduced += 1
        if fields:
            self.run.record("ranks", step, fields)
        for finding in self.straggler.observe(step, frame.step_ms, frame.wait_ms):
            self._say_straggler(link, finding)

    def _handle_copies(self, frame: ExchangeFrame) -> None:
        """A step that the watches of all ranks compare. On the link's thread."""
        link, step = self._link, self._shown.pop(frame.step, None)
        if link is None or step is None or self.asked:
            return
        fields = dict[str, Any]()
        self._marks(link, frame._replace(step=step), fields)
        if fields:
            self.run.record("ranks", step, fields)

    def _marks(self, link: Link, frame: ExchangeFrame, fields: dict[str, Any]) -> None:
        """What fingerprints and checksums say."""
        if any(frame.checks):
            fields |= self._copies.compare(frame, link.ranks)
        else:
            self._drift(link, frame, fields)
        fields |= self._copies.modes(frame, link.ranks)
        if not any(frame.watched) or self._copies.are_copies:
            self._same_batch(link, frame, fields)

    def _named(self, names: tuple[str, ...], table: list[list[float]], present: int) -> dict[str, Reduced]:
        ranks = self._link.ranks if self._link is not None else []
        return {
            name: Reduced(
                low,
                total / (present - odd) if odd < present else math.nan,
                high,
                ranks[int(low_at)],
                ranks[int(high_at)],
                int(odd),
                total,
            )
            for name, low, high, total, low_at, high_at, odd in zip(names, *table, strict=False)
        }

    def _fields(self, name: str, reduced: Reduced) -> dict[str, Any]:
        """What is the same on all ranks is said once: ranks are named where they differ."""
        fields: dict[str, Any] = {"mean": reduced.mean}
        if reduced.min != reduced.max:
            fields = {
                "min": reduced.min,
                "mean": reduced.mean,
                "max": reduced.max,
                "min_rank": reduced.min_rank,
                "max_rank": reduced.max_rank,
            }
        if reduced.non_finite:
            fields["non_finite"] = reduced.non_finite
        if name in self._sums:
            fields["sum"] = reduced.sum
        return fields

    def _say_names(self, link: Link, frame: ExchangeFrame) -> None:
        first, *others = sorted(frame.present, key=lambda rank: (frame.hashes[rank] != frame.hashes[0], rank))
        other = next(rank for rank in others if frame.hashes[rank] != frame.hashes[first])
        sets = [self._by_hash.get(frame.hashes[r]) or link.ask_names(frame.hashes[r]) for r in (first, other)]
        if sets[0] is not None and sets[1] is not None:
            only = [sorted(set(a) - set(b)) for a, b in ((sets[0], sets[1]), (sets[1], sets[0]))]
            differ = "; ".join(
                f"only rank {link.ranks[rank]} has {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
                for rank, names in zip((first, other), only, strict=True)
                if names
            )
        else:
            differ = f"{frame.counts[first]} and {frame.counts[other]} of them"
        self.run.warn(
            f"ranks {link.ranks[first]} and {link.ranks[other]} reduce different names ({differ}); such steps are not "
            "reduced: call reduce with the same names on every rank",
            key=f"ranks-names-{frame.hashes[first]}-{frame.hashes[other]}",
        )

    def _same_batch(self, link: Link, frame: ExchangeFrame, fields: dict[str, Any]) -> None:
        groups: dict[int, list[int]] = {}
        for rank, fingerprint in enumerate(frame.fingerprints):
            if fingerprint is not None:
                groups.setdefault(fingerprint, []).append(link.ranks[rank])
        if behind := self._behind.see(frame.step, frame.fingerprints, link.ranks):
            fields["batch_behind"] = behind
        alike, steps = self._labels.see(frame.labels, link.ranks) if frame.labels else ([], 0)
        if alike:
            fields |= {"same_labels": alike, "same_labels_for": steps}
        same = [ranks for ranks in groups.values() if len(ranks) > 1]
        if same:
            fields["same_batch"] = same
            self.run.warn(
                f"{_ranks(same[0])} train on the same batch at step {frame.step}: is the sampler given each rank's "
                "number? (Right for ranks that split one model, wrong for data parallel ones.)",
                key="same-batch",
            )

    def _drift(self, link: Link, frame: ExchangeFrame, fields: dict[str, Any]) -> None:
        known = {rank: number for rank, number in enumerate(frame.checksums) if number is not None}
        marks = {rank: repr(number) for rank, number in known.items()}  # NaN equals itself here
        usual = Counter(marks.values()).most_common(2)
        if len(usual) < 2:
            self._drifted.clear()
            return
        if usual[0][1] == usual[1][1]:  # no majority: nobody knows who is right
            away, named = list(known), f"the parameters of {_ranks([link.ranks[rank] for rank in known])} differ"
        else:
            away = [rank for rank in known if marks[rank] != usual[0][0]]
            named = f"the parameters of {_ranks([link.ranks[rank] for rank in away])} differ from the other ranks'"
        fields["drift"] = [link.ranks[rank] for rank in away]
        fields["drifted"] = len(away)
        if len(away) == 1:
            fields["drifted_rank"] = link.ranks[away[0]]
        if set(away) != self._drifted:
            self._drifted = set(away)
            self.run.warn(
                f"{named} at step {frame.step}: they should be equal after every step", key=f"drift-{sorted(away)}"
            )

    def _skew(self, link: Link, fields: dict[str, Any]) -> None:
        found = {
            str(link.ranks[rank]): {"offset": offset[0] * 1e3, "uncertainty": offset[1] * 1e3}
            for rank, offset in enumerate(link.offsets.estimate())
            if offset is not None and rank
        }
        if found:
            fields["clock_skew_ms"] = found

    def _say_straggler(self, link: Link, finding: StragglerFinding) -> None:
        about, rank = link.places[finding.rank], link.ranks[finding.rank]
        fields = finding._asdict() | {"rank": rank, "host": about.get("host"), "device": about.get("device")}
        self.run.record("straggler", fields.pop("step"), fields)
        where = f"rank {rank} ({about.get('host')}, {about.get('device')})"
        if finding.recovered:
            sentence = f"{where} keeps up with the others again since step {finding.since}"
        else:
            sentence = f"{where} is {finding.slower_by:.0%} slower than the others since step {finding.since}" + (
                ": it waits least, they wait for it" if finding.waits_least else ""
            )
        self.run.warn(sentence, key=f"straggler-{rank}-{finding.step}")


def alone(value: float) -> Reduced:
    """The reduction of a single rank's value."""
    finite = math.isfinite(value)
    return Reduced(value, value if finite else math.nan, value, 0, 0, int(not finite), value if finite else 0.0)


def device(torch: Any) -> str:
    """The device that this rank computes on, such as `cuda:3 NVIDIA H100 80GB HBM3`, or `cpu`."""
    try:
        if torch.cuda.is_initialized():
            index = torch.cuda.current_device()
            return f"cuda:{index} {torch.cuda.get_device_name(index)}"
    except Exception:
        pass
    return "cpu"


def checksum(tensors: Iterable[Any]) -> Any:
    """A 64-bit checksum of torch tensors' bits, as a tensor on their device: equal bits, equal checksum.

    One pass over the memory. Give it `model.parameters()` and hand the result to `reduce`, every some steps.
    """
    torch: Any = sys.modules["torch"]
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    total: Any = 0
    for tensor in tensors:
        tensor = tensor.detach()
        bits = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        total = total * 1_000_003 + bits.contiguous().view(whole[bits.element_size()]).sum(dtype=torch.int64)
    return total


def _quiet(reason: str) -> None:
    """Nobody asked for the comparison of watches: nobody has to hear that it ended."""


def _ranks(ranks: list[int]) -> str:
    """`rank 2`, or `ranks 0, 1 and 3`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
