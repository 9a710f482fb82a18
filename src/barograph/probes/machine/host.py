"""The machine around the devices: processor, memory, disk, network, and what this process takes of them.

In:   psutil, /proc, /sys: the control group of this process (version 1 or 2), RAPL's energy counters.
Out:  fields of a `host` record: means since the last record, within what the control group allows.

Everything is a difference of counters, so nothing is asked between two records. What is not known is
absent.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barograph.core import hardware
from barograph.probes.machine.readings import EnergyReading, MissingError, Rate, rounded, sane, whole

_MOST_MEMORY = 1 << 60
_MOST_CHILDREN = 4096
# Ends of a container's network, and bridges: their bytes are counted at the real interface too.
_INNER = ("lo", "veth", "docker", "br-", "virbr", "cni", "flannel", "cali", "vxlan", "tunl", "kube-ipvs", "ifb")
_RDMA_WORDS = 4  # port_rcv_data and port_xmit_data count words of four octets (IBTA specification, PortCounters)


class Host:
    """Samples the host. `whole_host`: its own share alone otherwise (the other ranks of a host).

    `folder` is the run's; pid: the training's process, this one if not given. Raises MissingError without psutil.
    """

    def __init__(self, folder: Path, whole_host: bool = True, root: str = "/", pid: int | None = None):
        try:
            import psutil
        except Exception:
            raise MissingError("psutil is missing: `pip install psutil`; the host is not watched") from None
        self._psutil: Any = psutil
        self._folder, self._whole_host, self._root = folder, whole_host, Path(root)
        try:
            self._process: Any = psutil.Process(pid)
        except psutil.Error:
            raise MissingError(f"there is no process {pid}; the host is not watched") from None
        self._group = ControlGroup(self._root, pid=pid)
        self._processor = EnergyReading()
        self._packages = _Packages(self._root)
        self._rates: dict[str, Rate] = {}
        self._times: dict[int, float] = {}  # seconds of processor time by process
        self._busy: tuple[float, float] | None = None
        self._kills = self._group.oom_kills()
        self._last = time.monotonic()
        self._has_children_file = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
        self.record(self._last)  # the first state of every counter

    def sample(self, now: float) -> None:
        """Between two records: only what would wrap, the energy counters."""
        if self._whole_host and self._packages:
            self._processor.count(self._packages.joules(), now)

    def record(self, now: float) -> dict[str, Any]:
        """A `host` record's fields of the time since the last one; never raises."""
        took, self._last = now - self._last, now
        made: dict[str, Any] = {}
        parts: list[Callable[[], dict[str, Any]]] = [lambda: self._own(took)]
        if self._whole_host:
            parts = [
                lambda: self._cpu(took),
                self._memory,
                *parts,
                lambda: self._disk(now),
                lambda: self._network(now),
                lambda: self._energy(now),
            ]
        for part in parts:
            with contextlib.suppress(Exception):  # a file that vanished, a strange kernel: the others go on
                made |= part()
        return {name: value for name, value in made.items() if value is not None}

    # -- processor and memory ----------------------------------------------------------------------------

    def _cpu(self, took: float) -> dict[str, Any]:
        usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        count = os.cpu_count() or 1
        cores, used = self._group.cpus(), None
        if cores is not None and cores < (len(usable) or count):
            used = self._rate("cgroup cpu", self._group.cpu_seconds(), self._last)
        else:
            cores = float(len(usable) or count)
            if usable and len(usable) < count:
                every = self._psutil.cpu_times(percpu=True)
                times = [_busy_and_all(every[at]) for at in usable if at < len(every)]
                busy, total = sum(item[0] for item in times), sum(item[1] for item in times)
            else:
                busy, total = _busy_and_all(self._psutil.cpu_times())
            before, self._busy = self._busy, (busy, total)
            if before is not None and total > before[1] and busy >= before[0]:
                used = cores * (busy - before[0]) / (total - before[1])
        share = None if used is None or not cores else min(100.0, 100 * used / cores)
        return {"cpu_util": rounded(share, 1), "cpu_cores": rounded(cores, 2), "load": rounded(os.getloadavg()[0], 2)}

    def _memory(self) -> dict[str, Any]:
        system = self._psutil.virtual_memory()
        limit, used = whole(system.total, 1, _MOST_MEMORY), whole(system.total - system.available, 0, _MOST_MEMORY)
        own = self._group.memory()
        if own is not None and (limit is None or own[1] < limit):
            used, limit = own
        result = {"memory_used": used, "memory_limit": limit}
        if used is not None and limit is not None:
            result["memory_available"] = max(0, limit - used)
        result["swap_used"] = whole(self._psutil.swap_memory().used, 0, _MOST_MEMORY)
        kills = self._group.oom_kills()
        if kills is not None and self._kills is not None:
            result["oom_kills"] = max(0, kills - self._kills)
        return result

    # -- this process ------------------------------------------------------------------------------------

    def _own(self, took: float) -> dict[str, Any]:
        """Processor time as percent of one core (100 is one core busy), resident memory, of it and its children."""
        times: dict[int, float] = {}
        memory = self._process.memory_info().rss
        spent = self._process.cpu_times()
        times[self._process.pid] = spent.user + spent.system
        children = self._children()
        resident = 0
        for child in children:
            with contextlib.suppress(Exception):  # it ended just now
                process = self._psutil.Process(child)
                spent = process.cpu_times()
                resident += process.memory_info().rss
                times[child] = spent.user + spent.system
        before, self._times = self._times, times
        result: dict[str, Any] = {"process_rss": whole(memory, 0, _MOST_MEMORY), "children": len(children)}
        if children:
            result["children_rss"] = whole(resident, 0, _MOST_MEMORY)
        if before and took > 0.1:
            own = times[self._process.pid] - before.get(self._process.pid, 0.0)
            theirs = sum(max(0.0, times[child] - before.get(child, 0.0)) for child in times)
            result["process_cpu"] = rounded(100 * max(0.0, own) / took, 1)
            if children:
                result["children_cpu"] = rounded(100 * max(0.0, theirs - own) / took, 1)
        return result

    def _children(self) -> list[int]:
        """Process numbers of all descendants. The kernel's own list costs microseconds, psutil's a scan of /proc."""
        if not self._has_children_file:
            children = self._process.children(recursive=True)
            return [child.pid for child in children if child.pid != os.getpid()][:_MOST_CHILDREN]
        result: list[int] = []
        waiting = [self._process.pid]
        while waiting and len(result) < _MOST_CHILDREN:
            with contextlib.suppress(OSError):
                tasks = f"/proc/{waiting.pop()}/task"
                for thread in os.listdir(tasks):
                    with contextlib.suppress(OSError):
                        words = _text(Path(tasks, thread, "children")).split()
                        children = [child for word in words if (child := int(word)) != os.getpid()]
                        result += children
                        waiting += children
        return result

    # -- disk and network --------------------------------------------------------------------------------

    def _disk(self, now: float) -> dict[str, Any]:
        result: dict[str, Any] = {}
        with contextlib.suppress(Exception):
            counted = self._psutil.disk_io_counters(nowrap=False)
            if counted is not None:
                result["disk_read"] = rounded(self._rate("disk_read", counted.read_bytes, now))
                result["disk_write"] = rounded(self._rate("disk_write", counted.write_bytes, now))
        result["disk_free"] = whole(shutil.disk_usage(self._folder).free, 0, 1 << 62)
        return result

    def _network(self, now: float) -> dict[str, Any]:
        result: dict[str, Any] = {}
        with contextlib.suppress(Exception):
            counted = self._psutil.net_io_counters(pernic=True, nowrap=False)
            outer = [item for name, item in counted.items() if not name.startswith(_INNER)]
            if outer:
                for name, field in (("network_rx", "bytes_recv"), ("network_tx", "bytes_sent")):
                    result[name] = rounded(self._rate(name, sum(getattr(item, field) for item in outer), now))
        for name, file in (("rdma_rx", "port_rcv_data"), ("rdma_tx", "port_xmit_data")):
            counts = [int(_text(path)) for path in self._root.glob(f"sys/class/infiniband/*/ports/*/counters/{file}")]
            if counts:
                result[name] = rounded(self._rate(name, sum(counts) * _RDMA_WORDS, now))
        return result

    def _rate(self, name: str, count: Any, now: float) -> float | None:
        return self._rates.setdefault(name, Rate()).update(sane(count, 0, 1 << 62), now)

    # -- energy ------------------------------------------------------------------------------------------

    def _energy(self, now: float) -> dict[str, Any]:
        if not self._packages:
            return {}
        watts = self._processor.count(self._packages.joules(), now)
        joules = self._processor.joules
        made = {} if joules is None else {"cpu_energy": round(joules, 3)}
        return made if watts is None else made | {"cpu_power": rounded(watts * 1000)}


class ControlGroup:
    """The control group of a process: what it may use and what it has used. Absent limits are None.

    A limit may stand on any group above ours; the use is read where the least limit stands. A value is None
    where there is no limit, no such file, or no control group at all (macOS).
    """

    def __init__(self, root: Path = Path("/"), own: str | None = None, pid: int | None = None):
        self._base = root / "sys/fs/cgroup"
        try:
            self._own = (root / f"proc/{pid or 'self'}/cgroup").read_text() if own is None else own
        except OSError:
            self._own = ""
        self._limits: dict[str, float | int] = {}
        with contextlib.suppress(ValueError):  # files that hold nonsense
            self._limits = hardware.cgroup_limits(str(self._base), self._own)
        self._cpu = self._place("cpu", "cpus")
        self._memory = self._place("memory", "memory_bytes")

    def _folders(self, controller: str) -> Iterator[Path]:
        """The folders of our group and of those above it, in version 1's tree of the controller and in version 2's."""
        for line in self._own.splitlines():
            number, _, rest = line.partition(":")
            controllers, _, group = rest.partition(":")
            if number != "0" and controller not in controllers.split(","):
                continue
            base = self._base if number == "0" else self._base / controller
            parts = [part for part in group.split("/") if part not in ("", ".", "..")]
            for count in range(len(parts), -1, -1):
                yield base.joinpath(*parts[:count])

    def _place(self, controller: str, limit: str) -> Path | None:
        """The folder that holds the least limit."""
        if limit not in self._limits:
            return None
        for folder in self._folders(controller):
            if self._states(folder, controller) == self._limits[limit]:
                return folder
        return None

    @staticmethod
    def _states(folder: Path, controller: str) -> float | None:
        """The limit that stands on this folder itself."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            if controller == "cpu":
                for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
                    if all((folder / file).exists() for file in files):
                        quota, period = " ".join(_text(folder / file) for file in files).split()[:2]
                        return round(float(quota) / float(period), 3)
            else:
                for file in ("memory.max", "memory.limit_in_bytes"):
                    if (folder / file).exists():
                        return float(_text(folder / file))
        return None

    def cpus(self) -> float | None:
        """Cores' worth of time allowed, if limited and the use can be read there."""
        return float(self._limits["cpus"]) if self._cpu is not None else None

    def cpu_seconds(self) -> float | None:
        """Processor time used in the limited group."""
        if self._cpu is None:
            return None
        with contextlib.suppress(OSError, ValueError, KeyError):
            return float(_table(self._cpu / "cpu.stat")["usage_usec"]) / 1e6
        with contextlib.suppress(OSError, ValueError):  # version 1 counts in another tree, often the same folder
            group = self._cpu.relative_to(self._base / "cpu")
            return float(_text(self._base / "cpuacct" / group / "cpuacct.usage")) / 1e9
        return None

    def memory(self) -> tuple[int, int] | None:
        """(used, limit) bytes, if limited. Used leaves out file pages that can be dropped, as Kubernetes does."""
        if self._memory is None:
            return None
        for used, idle in (("memory.current", "inactive_file"), ("memory.usage_in_bytes", "total_inactive_file")):
            with contextlib.suppress(OSError, ValueError):
                count = int(_text(self._memory / used))
                count -= _table(self._memory / "memory.stat").get(idle, 0)
                return max(0, count), int(self._limits["memory_bytes"])
        return None

    def oom_kills(self) -> int | None:
        """Processes that the kernel killed in this group because its memory was full."""
        for folder in self._folders("memory"):
            for file in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError, ValueError, KeyError):
                    return _table(folder / file)["oom_kill"]
        return None


class _Packages:
    """RAPL: energy of each processor package, where the kernel lets us read it (root alone, on most)."""

    def __init__(self, root: Path):
        self._zones: list[tuple[Path, int]] = []
        self._states: dict[Path, int] = {}
        self._joules = 0.0
        for zone in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
            with contextlib.suppress(OSError, ValueError):
                if _text(zone / "name").startswith("package"):
                    self._states[zone] = int(_text(zone / "energy_uj"))
                    self._zones.append((zone, int(_text(zone / "max_energy_range_uj"))))

    def __bool__(self) -> bool:
        return bool(self._zones)

    def joules(self) -> float | None:
        """Joules since the start, all packages. A counter that wrapped once since the last call is followed."""
        for zone, span in self._zones:
            with contextlib.suppress(OSError, ValueError):
                count = int(_text(zone / "energy_uj"))
                grown = count - self._states[zone]
                self._states[zone] = count
                self._joules += (grown if grown >= 0 else grown + span) / 1e6
        return self._joules


def _busy_and_all(times: Any) -> tuple[float, float]:
    """Seconds not idle, and all seconds. Linux counts a guest's time in the user's too."""
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - times.idle - getattr(times, "iowait", 0.0), total


def _text(path: Path) -> str:
    with open(path) as file:
        return file.read().strip()


def _table(path: Path) -> dict[str, int]:
    """A file of `name number` lines."""
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
