"""Rules over memory: a device nearly full, memory that grows from step to step, errors for want of it.

In:   the series `memory/…`, the process's resident memory, records of out-of-memory errors.
Out:  findings of the family `memory`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.rules.cursor import Cursor, known, newest, number, whole
from barograph.rules.rule import Rule

if TYPE_CHECKING:
    from barograph.rules.channels import Seen
    from barograph.rules.finding import Finding

_GIB = float(1 << 30)


class DeviceMemory(Rule):
    """The device's memory is nearly full.

    `mem_utilization` is the largest share that tensors have taken. 92% is a remark (TraceML), 95% warns (S2), and 97%
    is critical where the allocator had to give its cache back and try again more often than before
    (`num_alloc_retries`): the next longer batch fails. A run that stays at a high level without retries is well used,
    so above 95% it is a remark again after it was said once.
    """

    name, family, kind, severity = "device_memory", "memory", "memory", "critical"
    needs = ("=memory/mem_utilization",)
    about = "The device's memory is nearly full."
    source = "R42: 92% and 97% (TraceML); S2: ALERT_THRESHOLDS memory_usage 0.95"
    thresholds: ClassVar = {"share": (0.95, "S2, ALERT_THRESHOLDS memory_usage"), "informs": (0.92, "TraceML"),
                  "critical": (0.97, "TraceML")}  # fmt: skip

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._cursor = Cursor()
        self._said: set[str] = set()

    def examine(self, seen: Seen) -> Iterable[Finding]:
        rows = self._cursor.new(seen.channel("memory/mem_utilization"))
        if rows is None:
            return ()
        with numpy.errstate(invalid="ignore"):
            high = numpy.flatnonzero(rows.value >= min(self.at["informs"], self.at["share"]))
        if not len(high) or "critical" in self._said:
            return ()
        found: list[Finding] = []
        retries = seen.channel("memory/num_alloc_retries")
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
            total = known(seen.channel("memory/total_gb"), step, time, segment)
            room = f", {number(total * (1 - share))} GiB are left" if total == total else ""
            found.append(self.finding(
                step, f"{share:.1%} of the device's memory was in use at step {step}{room}.", severity=grade,
                segment=segment,
                key=grade, evidence={"share": share, "total_gb": total, "retries": more},
                causes=["the batch or the sequences are as large as the device allows", "memory leak"],
                remedies=["make micro-batches smaller", "recompute activations",
                          "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True if much is reserved and not allocated"],
                confidence={"critical": 0.8, "warning": 0.6, "info": 0.3}[grade],
            ))  # fmt: skip
        return found


class MemoryCreep(Rule):
    """Memory grows from record to record, and does not stop.

    The process's resident memory, its children's, and the device's allocated memory, each alone, from 20 steps after
    the start on. In the last 12 records nine of ten must be larger than the one before, by a quarter of the mean
    growth at least, so that a heap that has settled is not taken along; the second half must have
    grown by at least half as much as the first (a cache that fills slows down), and the growth since it began must be
    a tenth (SageMaker) and 128 MiB, or 1 GiB (TraceML). The finding says when the limit is reached, where the limit
    is known.

    What to do: look for lists that keep tensors with their graphs (`losses.append(loss)`), for caches, for data
    loader workers that copy pages.
    """

    name, family, kind, severity = "memory_creep", "memory", "memory", "warning"
    needs = ("=host/process_rss|=memory/rss_bytes|=memory/allocated_gb",)
    least = 12
    about = "Memory grows and does not stop."
    source = "R42: 1 GiB, monotone (TraceML); SageMaker Debugger's GPUMemoryIncrease: 10%"
    thresholds: ClassVar = {"share": (0.10, "SageMaker"), "gib": (1.0, "TraceML"),
                  "least": (0.125, "GiB: libraries and caches take as much while they warm up; ours"),
                  "records": (12.0, "ours"),
                  "rising": (0.9, "share of records; ours"), "steps": (20.0, "steps of warming up; ours")}  # fmt: skip
    series = ("host/process_rss", "host/children_rss", "memory/rss_bytes", "memory/allocated_gb")

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._cursor = Cursor()
        self._runs: dict[str, list[tuple[int, int, float]]] = {}
        self._start: dict[str, tuple[int, int]] = {}
        self._said: dict[str, int] = {}

    def examine(self, seen: Seen) -> Iterable[Finding]:
        found: list[Finding] = []
        for name in self.series:
            rows = self._cursor.new(seen.channel(name))
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
                self._look(seen, name, segment, run, found)
        return found

    def _look(
        self, seen: Seen, name: str, segment: int, run: list[tuple[int, int, float]], found: list[Finding]
    ) -> None:
        count = int(self.at["records"])
        if len(run) < count or name in self._said:
            return
        last = run[-count:]
        values = [one for _, _, one in last]
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
        limit = known(seen.channel("memory/total_gb" if unit == 1.0 else "host/memory_limit"), step, time, segment)
        if unit != 1.0 and limit != limit:
            limit = known(seen.channel("memory/limit_bytes"), step, time, segment)
        full = step + int((limit - value) / each) if each > 0 and limit > value else -1
        text = (f"{'The device' if unit == 1.0 else 'The process'} holds {number(growth / unit)} GiB more than at "
            f"step {step0}, "
                f"{number(each / unit * 1024)} MiB more each step")  # fmt: skip
        found.append(self.finding(
            step0, text + (f"; memory is full at about step {full}." if full > 0 else "."), last_step=step, found=step,
            segment=segment, key=name, confidence=0.8, causes=["memory leak: something is kept from step to step"],
            evidence={"series": name, "growth_gib": growth / unit, "mib_each_step": each / unit * 1024,
            "full_at": full},
            remedies=["look for tensors that are kept with their graph: `losses.append(loss)` instead of `loss.item()`",
                      "look for caches without a bound", "fewer data loader workers, and arrays instead of lists in "
                      "the dataset",
                      *([f"save a checkpoint before step {full}"] if full > 0 else [])],
        ))  # fmt: skip


class HostMemory(Rule):
    """The host's memory, or the process's share of it, is nearly used up.

    What is used over the limit (of the control group, where it has one): 95% in three records in a row warns. On
    Linux a process that goes beyond is killed without a word. A process that the kernel has already killed for want
    of memory, often a data loader's worker, is critical.
    """

    name, family, kind, severity = "host_memory", "memory", "memory", "critical"
    needs = ("=host/memory_used|=host/oom_kills|=memory/rss_bytes",)
    about = "The host's memory is nearly used up."
    source = "S2: memory usage of 0.95; the kernel's counter of kills"
    thresholds: ClassVar = {"share": (0.95, "S2"), "records": (3.0, "in a row; ours")}

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._cursor = Cursor()
        self._row: dict[str, list[int]] = {}
        self._said: set[str] = set()

    def examine(self, seen: Seen) -> Iterable[Finding]:
        found: list[Finding] = []
        for used, most in (("host/memory_used", "host/memory_limit"), ("memory/rss_bytes", "memory/limit_bytes")):
            rows = self._cursor.new(seen.channel(used))
            limits = seen.channel(most)
            if rows is None or limits is None or used in self._said:
                continue
            for at in range(len(rows)):
                step, segment = int(rows.step[at]), int(rows.segment[at])
                limit = known(limits, step, int(rows.time[at]), segment)
                share = float(rows.value[at]) / limit if limit > 0 else 0.0
                self._row[used] = [*self._row.get(used, []), step] if share >= self.at["share"] else []
                if len(self._row[used]) == int(self.at["records"]):
                    self._said.add(used)
                    found.append(self.finding(
                        self._row[used][0], f"{share:.0%} of the host's memory is in use.", severity="warning",
                        last_step=step,
                        found=step, segment=segment, key=used, evidence={"share": share, "limit_bytes": limit},
                        confidence=0.7,
                        causes=["memory leak", "data loader workers hold too much"],
                        remedies=["use fewer data loader workers", "map files into memory instead of reading them"],
                    ))  # fmt: skip
                    break
        rows = self._cursor.new(seen.channel("host/oom_kills"))
        if rows is not None and "kills" not in self._said and (rows.value > 0).any():
            self._said.add("kills")
            at = int(numpy.argmax(rows.value > 0))
            kills, step = whole(float(rows.value[at])), int(rows.step[at])
            found.append(self.finding(
                step, f"The kernel has killed {kills} process{'es' if kills > 1 else ''} for want of memory.",
                segment=int(rows.segment[at]), key="kills", evidence={"kills": kills}, confidence=0.9,
                causes=["memory leak", "data loader workers hold too much"], remedies=["use fewer data loader workers"],
            ))  # fmt: skip
        return found


class OutOfMemory(Rule):
    """An allocation failed for want of memory.

    The record says what held the memory and what could be freed.
    """

    name, family, kind, severity = "out_of_memory", "memory", "memory", "critical"
    prompt = True
    needs = ("!oom",)
    about = "An allocation failed for want of memory."
    source = "S2, red alert conditions: GPU memory OOM"
    thresholds: ClassVar = {"count": (1.0, "any one")}

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._events = 0

    def examine(self, seen: Seen) -> Iterable[Finding]:
        if len(seen.events) == self._events:
            return ()
        new, self._events = seen.events[self._events :], len(seen.events)
        found = []
        for event in new:
            if event.kind != "oom":
                continue
            fields = event.fields
            tried = fields.get("tried_bytes")
            asked = f", {number(tried / _GIB)} GiB were asked for" if isinstance(tried, (int, float)) else ""
            free = [str(one) for one in fields.get("could_free") or ()][:4]
            found.append(self.finding(
                event.step, f"Out of memory at step {event.step}{asked}.", evidence={"error": str(fields.get("error",
                ""))[:200],
                "tried_bytes": tried if isinstance(tried, (int, float)) else None},
                causes=["the batch or the sequences are larger than the memory allows", "memory leak"],
                remedies=free or ["make micro-batches smaller, or recompute activations"], confidence=0.95,
            ))  # fmt: skip
        return found


RULES = (DeviceMemory, MemoryCreep, HostMemory, OutOfMemory)
