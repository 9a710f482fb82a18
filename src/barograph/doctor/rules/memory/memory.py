"""Rules over memory: a device nearly full, memory that grows from step to step, errors for want of it.

In:   the series `memory/…`, the process's resident memory, records of out-of-memory errors.
Out:  findings of the family `memory`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy

from barograph.core.record import Record
from barograph.doctor.kernel.cursor import RowCursor, came_by, known, newest, whole
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.series import SeriesRule
from barograph.doctor.rules.run.ending import MEMORY, Ending, evidence_of, rank_of, when

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

_GIB = float(1 << 30)


class DeviceMemory(SeriesRule):
    """The device's memory is nearly full.

    `mem_utilization` is the largest share that tensors have taken. 92% is an info finding (TraceML), 95% warns, and 97%
    is critical where the allocator had to give its cache back and try again more often than before
    (`num_alloc_retries`): the next longer batch fails. A run that stays at a high level without retries is well used,
    so above 95% it is an info finding again after it was reported once.
    """

    name, family, kind, severity = "device_memory", "memory", "memory", "critical"
    series, waits = "=memory/mem_utilization", False
    needs = ("=memory/mem_utilization",)
    about = "The device's memory is nearly full."
    sources = ("TraceML: 92% and 97%", "stability guide: memory_usage 0.95")
    thresholds: ClassVar = {
        "share": (0.95, "stability guide, memory_usage"),
        "informs": (0.92, "TraceML"),
        "critical": (0.97, "TraceML"),
    }
    causes = ("the batch or the sequences are as large as the device allows", "memory leak")
    remedies = (
        "make micro-batches smaller",
        "recompute activations",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True if much is reserved and not allocated",
    )

    def reset(self) -> None:
        self._said: set[str] = set()

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        with numpy.errstate(invalid="ignore"):
            high = numpy.flatnonzero(rows.value >= min(self.at["informs"], self.at["share"]))
        if not len(high) or "critical" in self._said:
            return
        retries = history.channel("memory/num_alloc_retries")
        for at in high:
            share, step = float(rows.value[at]), int(rows.step[at])
            time, segment = int(rows.time[at]), int(rows.segment[at])
            grade, more = ("warning" if share >= self.at["share"] else "info"), 0.0
            if retries is not None:
                counts = newest(retries, step, time, segment, 16)
                counts = counts[numpy.isfinite(counts)]
                more = float(counts[-1] - counts[0]) if len(counts) > 1 else 0.0
            if share >= self.at["critical"] and more > 0:
                grade = "critical"
            if grade in self._said or (grade == "info" and self._said) or "critical" in self._said:
                continue
            self._said |= {grade, "info"}
            total = known(history.channel("memory/total_gb"), step, time, segment)
            room = f", {total * (1 - share):.3g} GiB are left" if total == total else ""
            yield self.finding(
                step, f"{share:.1%} of the device's memory was in use at step {step}{room}.", severity=grade,
                segment=segment,
                key=grade, evidence={"share": share, "total_gb": total, "retries": more},
                confidence={"critical": 0.8, "warning": 0.6, "info": 0.3}[grade],
            )  # fmt: skip


class MemoryCreep(Rule):
    """Memory grows from record to record, and does not stop.

    The process's resident memory, its children's, and the device's allocated memory, each alone, from 20 steps after
    the start on. In the last 12 records nine of ten must be larger than the one before, by a quarter of the mean
    growth at least, so that a heap of constant size does not count; the second half must have
    grown by at least half as much as the first (a cache that fills slows down), and the growth since it began must be
    a tenth (SageMaker) and 128 MiB, or 1 GiB (TraceML). The finding gives the step at which the limit is reached, where
    the limit is known.

    What to do: look for lists that keep tensors with their graphs (`losses.append(loss)`), for caches, for data
    loader workers that copy pages.
    """

    name, family, kind, severity = "memory_creep", "memory", "memory", "warning"
    needs = ("=host/process_rss|=memory/rss_bytes|=memory/allocated_gb",)
    least = 12
    about = "Memory grows and does not stop."
    sources = ("TraceML: 1 GiB, monotone", "SageMaker Debugger: GPUMemoryIncrease, 10%")
    thresholds: ClassVar = {
        "share": (0.10, "SageMaker"),
        "gib": (1.0, "TraceML"),
        "least": (0.125, "GiB: libraries and caches take as much while they warm up; ours"),
        "records": (12.0, "ours"),
        "rising": (0.9, "share of records; ours"),
        "steps": (20.0, "steps of warming up; ours"),
    }
    series = ("host/process_rss", "host/children_rss", "memory/rss_bytes", "memory/allocated_gb")
    causes = ("memory leak: something is kept from step to step",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._runs: dict[str, list[tuple[int, int, float]]] = {}
        self._start: dict[str, tuple[int, int]] = {}
        self._said: dict[str, int] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for name in self.series:
            rows = self._cursor.new(history.channel(name))
            if rows is None:
                continue
            number_of = numpy.arange(rows.first, rows.first + len(rows))
            # records of every step are looked at now and then
            every = numpy.where(number_of < 256, 1, numpy.where(number_of < 4096, 8, 64))
            for at in numpy.flatnonzero(number_of % every == 0):
                segment, step, value = int(rows.segment[at]), int(rows.step[at]), float(rows.value[at])
                start = self._start.get(name)
                if start is None or start[0] != segment:
                    start = self._start[name] = (segment, step)
                    self._runs[name] = []
                    self._said.pop(name, None)
                if not 0 < value < float("inf") or step - start[1] < self.at["steps"]:
                    continue
                run = self._runs[name]
                if run and step <= run[-1][0]:
                    continue  # more records of one step: memory comes and goes within it
                run.append((step, int(rows.time[at]), value))
                if len(run) > 256:
                    del run[1:129]  # the first stays: growth is since it began
                yield from self._look(history, name, segment, run)

    def _look(
        self, history: RunHistory, name: str, segment: int, run: list[tuple[int, int, float]]
    ) -> Iterator[Finding]:
        count = int(self.at["records"])
        if len(run) < count or name in self._said:
            return
        last = run[-count:]
        values = [item for _, _, item in last]
        usual = (values[-1] - values[0]) / (count - 1)
        ups = sum(later - earlier > 0.25 * usual for earlier, later in pairwise(values)) if usual > 0 else 0
        if ups < self.at["rising"] * (count - 1):
            return
        half = count // 2
        first, second = values[half] - values[0], values[-1] - values[half]
        if not second >= 0.5 * first > 0:
            return
        begin = len(run) - count
        while begin > 0 and run[begin][2] - run[begin - 1][2] > 0.25 * usual:  # where it began to grow
            begin -= 1
        step0, _, value0 = run[begin]
        growth = values[-1] - value0
        unit = 1.0 if name.endswith("_gb") else _GIB
        if growth < min(max(self.at["share"] * value0, self.at["least"] * unit), self.at["gib"] * unit):
            return
        step, time, value = run[-1]
        self._said[name] = step
        each = second / max(1, step - last[half][0])
        limit = known(history.channel("memory/total_gb" if unit == 1.0 else "host/memory_limit"), step, time, segment)
        if unit != 1.0 and limit != limit:
            limit = known(history.channel("memory/limit_bytes"), step, time, segment)
        full = step + int((limit - value) / each) if each > 0 and limit > value else -1
        text = (f"{'The device' if unit == 1.0 else 'The process'} holds {growth / unit:.3g} GiB more than at "
            f"step {step0}, "
                f"{each / unit * 1024:.3g} MiB more each step")  # fmt: skip
        yield self.finding(
            step0, text + (f"; memory is full at about step {full}." if full > 0 else "."), found=step,
            segment=segment, key=name, confidence=0.8, evidence={"series": name, "growth_gib": growth / unit,
            "mib_each_step": each / unit * 1024,
            "full_at": full},
            remedies=["look for tensors that are kept with their graph: `losses.append(loss)` instead of `loss.item()`",
                      "look for caches without a bound", "fewer data loader workers, and arrays instead of lists in "
                      "the dataset",
                      *([f"save a checkpoint before step {full}"] if full > 0 else [])],
        )  # fmt: skip


class EvaluationMemory(Rule):
    """Memory grows at each evaluation, and not between them.

    An evaluation without `torch.no_grad()` builds a graph, and a list of its losses keeps it. At five evaluations in a
    row the memory of the process or of the device is larger after than before, each time by half of the largest growth
    at least; what it gains between them is below a tenth of that; and together it is a tenth (SageMaker) and 32 MiB.
    The first evaluation of all doesn't count: it fills caches. Where the watch has seen evaluations with gradients
    (`model/gradients_in_evaluation`) the cause is proven; where it has seen passes without, something else is kept.

    What to do: `with torch.no_grad():` around the evaluation, and `loss.item()` in lists.
    """

    name, family, kind, severity = "evaluation_memory", "memory", "memory", "warning"
    needs = ("eval_loss", "=host/process_rss|=memory/rss_bytes|=memory/allocated_gb")
    least = 6
    about = "Memory grows at each evaluation."
    sources = ("SageMaker Debugger: GPUMemoryIncrease, 10%",)
    thresholds: ClassVar = {
        "share": (0.10, "SageMaker"),
        "least": (1 / 32, "GiB; ours"),
        "evaluations": (5.0, "in a row; ours"),
        "between": (0.1, "of the growth; ours"),
    }
    series = ("host/process_rss", "memory/rss_bytes", "memory/allocated_gb")
    remedies = (
        "evaluate under `torch.no_grad()` or `torch.inference_mode()`",
        "keep numbers: `losses.append(loss.item())` instead of `losses.append(loss)`",
    )

    def reset(self) -> None:
        self._series = {name: _BesideEvaluations() for name in self.series}
        self._said: set[int] = set()  # segments

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        evaluations = history.role("eval_loss")
        if evaluations is None:
            return
        for name, seen in self._series.items():
            channel = history.channel(name)
            if channel is None or channel.end == seen.row:
                continue
            rows, past = channel.rows(seen.row), evaluations.rows(seen.evaluation)
            seen.row = channel.end
            for at in range(len(rows)):
                if seen.take(rows, at, past):
                    yield from self._look(history, name, seen, int(rows.step[at]), int(rows.time[at]))

    def _look(
        self, history: RunHistory, name: str, seen: _BesideEvaluations, step: int, time: int
    ) -> Iterator[Finding]:
        """An evaluation is over, and what came after it is known."""
        count = int(self.at["evaluations"])
        last = seen.grown[-count:]
        if len(seen.grown) <= count or seen.segment in self._said:
            return
        growths = [item.during for item in last]
        total, unit = sum(growths), 1.0 if name.endswith("_gb") else _GIB
        if (
            not min(growths) >= 0.5 * max(growths) > 0
            or sum(abs(item.between) for item in last) > self.at["between"] * total
            or total < max(self.at["share"] * last[0].level, self.at["least"] * unit)
        ):
            return
        self._said.add(seen.segment)
        with_gradients = known(history.channel("model/gradients_in_evaluation"), step, time, seen.segment)
        graph = "no_grad missing: evaluations build a graph, and something keeps it"
        if came_by(history.channel("model/training_in_evaluation"), time):
            causes = ["memory leak: something is kept at each evaluation, on the host or on the device"]
        elif with_gradients == with_gradients:
            causes = [graph]
        else:
            causes = [graph, "memory leak: something is kept at each evaluation"]
        yield self.finding(
            last[0].step, f"{'The device' if unit == 1.0 else 'The process'} holds {total / unit * 1024:.3g} MiB more "
            f"after {count} evaluations since step {last[0].step}, and no more between them.",
            found=step, segment=seen.segment, key=name, confidence=0.95, causes=causes,
            evidence={"series": name, "mib_each": total / count / unit * 1024},
        )  # fmt: skip


class _Growth(NamedTuple):
    """One evaluation. during, between: how memory grew over it, and since the one before; level: before it."""

    step: int
    during: float
    between: float
    level: float


class _BesideEvaluations:
    """A series of memory, cut where evaluations came."""

    def __init__(self) -> None:
        self.row = self.evaluation = 0  # the next row, and the next evaluation
        self.grown: list[_Growth] = []
        self.segment = -1
        self._kept: list[tuple[int, float]] = []  # the first and the last record since the evaluation before

    def take(self, rows: ChannelRows, at: int, evaluations: ChannelRows) -> bool:
        """The next row; whether an evaluation came before it. evaluations: those from `evaluation` on when the rows
        began."""
        segment, step, value = int(rows.segment[at]), int(rows.step[at]), float(rows.value[at])
        moment = (segment, int(rows.time[at]) or step)
        self.evaluation = max(self.evaluation, evaluations.first)
        came = False
        while (place := self.evaluation - evaluations.first) < len(evaluations):
            then = int(evaluations.segment[place]), int(evaluations.time[place]) or int(evaluations.step[place])
            if then >= moment:
                break
            self.evaluation += 1
            came = True
        if segment != self.segment:
            self.segment, self._kept, self.grown, came = segment, [], [], False
        if not 0 < value < math.inf:
            return False
        kept, self._kept = self._kept, [*self._kept[:1], (step, value)]
        if not came or not kept:
            return False
        self._kept = [(step, value)]
        if len(kept) < 2:  # one record since the evaluation before says nothing of the training
            self.grown = []
            return False
        (_, began), (last, level) = kept
        self.grown = [*self.grown[-15:], _Growth(last, value - level, level - began, level)]
        return True


class HostMemory(Rule):
    """The host's memory, or the process's share of it, is nearly used up.

    What is used over the limit (of the control group, where it has one): 95% in three records in a row warns. On
    Linux a process that goes beyond is killed without a word. A process that the kernel has already killed for want
    of memory, often a data loader's worker, is critical.
    """

    name, family, kind, severity = "host_memory", "memory", "memory", "critical"
    needs = ("=host/memory_used|=host/oom_kills|=memory/rss_bytes",)
    about = "The host's memory is nearly full."
    sources = ("stability guide: memory usage of 0.95",)
    thresholds: ClassVar = {"share": (0.95, "stability guide"), "records": (3.0, "in a row; ours")}
    causes = ("memory leak", "data loader workers hold too much")

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: dict[str, list[int]] = {}
        self._said: set[str] = set()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for used, most in (("host/memory_used", "host/memory_limit"), ("memory/rss_bytes", "memory/limit_bytes")):
            rows = self._cursor.new(history.channel(used))
            limits = history.channel(most)
            if rows is None or limits is None or used in self._said:
                continue
            for at in range(len(rows)):
                step, segment = int(rows.step[at]), int(rows.segment[at])
                limit = known(limits, step, int(rows.time[at]), segment)
                share = float(rows.value[at]) / limit if limit > 0 else 0.0
                self._row[used] = [*self._row.get(used, []), step] if share >= self.at["share"] else []
                if len(self._row[used]) == int(self.at["records"]):
                    self._said.add(used)
                    yield self.finding(
                        self._row[used][0], f"{share:.0%} of the host's memory is in use.", severity="warning",
                        found=step, segment=segment, key=used, evidence={"share": share, "limit_bytes": limit},
                        confidence=0.7,
                        remedies=["use fewer data loader workers", "map files into memory instead of reading them"],
                    )  # fmt: skip
                    break
        rows = self._cursor.new(history.channel("host/oom_kills"))
        if rows is not None and "kills" not in self._said and (rows.value > 0).any():
            self._said.add("kills")
            at = int(numpy.argmax(rows.value > 0))
            kills, step = whole(float(rows.value[at])), int(rows.step[at])
            yield self.finding(
                step, f"The kernel has killed {kills} process{'es' if kills > 1 else ''} because memory ran out.",
                segment=int(rows.segment[at]), key="kills", evidence={"kills": kills}, confidence=0.9,
                remedies=["use fewer data loader workers"],
            )  # fmt: skip


class OutOfMemory(Ending):
    """An allocation failed because memory ran out, or the kernel killed the training because the host's was full.

    The record of a failed allocation says what held the memory and what could be freed. The kernel counts what it
    kills (`memory.events` of the control group, `/proc/vmstat`): a kill while that count rose is one of those.
    """

    name, family, kind, severity = "out_of_memory", "memory", "memory", "critical"
    needs = ("!oom|!end|lost",)
    about = "An allocation failed because memory ran out, or the kernel killed the training for it."
    sources = (
        "stability guide: red alert on GPU memory",
        "cgroup v2: oom_kill",
    )
    thresholds: ClassVar = {"count": (1.0, "any one")}
    causes = ("the batch or the sequences are larger than the memory allows", "memory leak")

    def is_mine(self, status: str) -> bool:
        return status == MEMORY

    def describe(self, step: int, fields: Mapping[str, Any]) -> Finding:
        return self.finding(
            step, f"The training was killed{when(fields, f' after step {step}')} because the host's memory, or what it "
            "may have of it, was full.",
            evidence=evidence_of(fields), confidence=1.0, key=rank_of(fields) or "host",
            causes=["memory of the host that grows: tensors that are kept, workers of the data loader",
                    "a limit of the job that is too low"],
            remedies=["look at `host/process_rss` and `host/children_rss` over the run", "use fewer workers",
                      "ask for more memory"],
        )  # fmt: skip

    def take(self, event: Record, findings: list[Finding]) -> None:
        super().take(event, findings)
        if event.kind != "oom":
            return
        fields = event.fields
        tried = fields.get("tried_bytes")
        asked = f", {tried / _GIB:.3g} GiB were requested" if isinstance(tried, (int, float)) else ""
        free = [str(item) for item in fields.get("could_free") or ()][:4]
        findings.append(self.finding(
            event.step, f"Out of memory{when(fields, f' at step {event.step}')}{asked}.",
            evidence={"error": str(fields.get("error", ""))[:200],
                      "tried_bytes": tried if isinstance(tried, (int, float)) else None}
            | ({"no_step": True} if fields.get("no_step") else {}),
            causes=["the batch or the sequences are larger than the memory allows", "memory leak"],
            remedies=free or ["make micro-batches smaller, or recompute activations"], confidence=0.95,
        ))  # fmt: skip


RULES = (DeviceMemory, MemoryCreep, EvaluationMemory, HostMemory, OutOfMemory)
