"""The host: this machine as it is, and control groups as files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.probes.machine.host import ControlGroup, Host, _Packages
from barograph.probes.machine.readings import MissingError

GIB = 1 << 30


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_this_machine_has_every_plain_field_in_its_bounds(tmp_path: Path) -> None:
    host = Host(tmp_path)
    began = time.monotonic()
    burn(0.15)
    fields = host.record(time.monotonic())
    took = time.monotonic() - began
    assert {"cpu_util", "cpu_cores", "load", "memory_used", "memory_limit", "memory_available"} <= fields.keys()
    assert {"process_rss", "process_cpu", "children", "disk_free", "swap_used"} <= fields.keys()
    assert 0 < fields["cpu_util"] <= 100 and 0 < fields["cpu_cores"] <= (os.cpu_count() or 1)
    assert 0 < fields["memory_used"] < fields["memory_limit"]
    assert fields["memory_available"] == fields["memory_limit"] - fields["memory_used"]
    assert 80 * 0.15 / took < fields["process_cpu"] < 120  # percent of one core, over what the record spans
    assert 1 << 20 < fields["process_rss"] < fields["memory_limit"]
    assert all(isinstance(value, (int, float)) for value in fields.values())


def test_children_are_counted_with_their_children_and_their_work(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=subprocess.PIPE)\n"
        "until = time.process_time() + 0.2\n"
        "while time.process_time() < until: pass\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "child.communicate()\n"
    )
    host = Host(tmp_path)
    before = set(host._children())  # what other tests of this process have left
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
        time.sleep(0.1)
        fields = host.record(time.monotonic())
        assert len(set(host._children()) - before) == 2 and fields["children"] >= 2
        assert fields["children_cpu"] > 5 and fields["children_rss"] > 1 << 20
        host._has_children_file = False  # kernels without that file: psutil's scan sees the same
        assert len(set(host._children()) - before) == 2
        worker.communicate("")
    assert set(host._children()) <= before


def test_another_rank_of_the_host_records_itself_alone(tmp_path: Path) -> None:
    host = Host(tmp_path, whole_host=False)
    time.sleep(0.11)
    children = {"children_rss", "children_cpu"} if host._children() else set()  # what other tests have left
    assert set(host.record(time.monotonic())) == {"process_rss", "process_cpu", "children"} | children


def test_without_psutil_the_host_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(MissingError, match="pip install psutil"):
        Host(tmp_path)


def test_a_part_that_fails_costs_its_own_fields_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path)
    for name in ("virtual_memory", "disk_io_counters", "cpu_times"):
        monkeypatch.setattr(host._psutil, name, lambda *arguments, **options: 1 / 0)
    monkeypatch.setattr(host, "_folder", tmp_path / "gone")
    fields = host.record(time.monotonic() + 1)
    assert "process_rss" in fields and "memory_used" not in fields and "disk_free" not in fields


# -- control groups --------------------------------------------------------------------------------------


def version_two(root: Path, group: str = "job") -> ControlGroup:
    base = f"sys/fs/cgroup/{group}"
    for name, text in {
        "cpu.max": "150000 100000\n",
        "cpu.stat": "usage_usec 3000000\nuser_usec 1\n",
        "memory.max": f"{8 * GIB}\n",
        "memory.current": f"{3 * GIB}\n",
        "memory.stat": f"anon 1\ninactive_file {GIB}\n",
        "memory.events": "low 0\noom 2\noom_kill 2\n",
    }.items():
        path = root / base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ControlGroup(root, f"0::/{group}/inner\n")


def test_version_two_is_read_where_its_limit_stands(tmp_path: Path) -> None:
    group = version_two(tmp_path)
    assert group.cpus() == 1.5 and group.cpu_seconds() == 3.0
    assert group.memory() == (2 * GIB, 8 * GIB)
    assert group.oom_kills() == 2


def test_version_one_is_read_where_its_limit_stands(tmp_path: Path) -> None:
    for name, text in {
        "cpu/job/cpu.cfs_quota_us": "200000\n",
        "cpu/job/cpu.cfs_period_us": "100000\n",
        "cpuacct/job/cpuacct.usage": "5000000000\n",
        "memory/job/memory.limit_in_bytes": f"{4 * GIB}\n",
        "memory/job/memory.usage_in_bytes": f"{2 * GIB}\n",
        "memory/job/memory.stat": f"total_inactive_file {GIB}\n",
        "memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
    }.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    group = ControlGroup(tmp_path, "4:memory:/job\n2:cpuacct:/job\n1:cpu:/job\n0::/\n")
    assert group.cpus() == 2 and group.cpu_seconds() == 5.0
    assert group.memory() == (GIB, 4 * GIB) and group.oom_kills() == 1


def test_no_limit_is_none(tmp_path: Path) -> None:
    for own in ("", "0::/x\n", "nonsense", "1:cpu:/x\n:::\n"):
        group = ControlGroup(tmp_path, own)
        assert (group.cpus(), group.cpu_seconds(), group.memory(), group.oom_kills()) == (None, None, None, None)


def test_the_share_is_of_what_the_group_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    host = Host(tmp_path)
    host._group = version_two(tmp_path)
    host._kills = host._group.oom_kills()
    now = time.monotonic()
    host.record(now)
    (tmp_path / "sys/fs/cgroup/job/cpu.stat").write_text("usage_usec 9000000\n")
    (tmp_path / "sys/fs/cgroup/job/memory.events").write_text("oom_kill 3\n")
    fields = host.record(now + 8)
    assert fields["cpu_util"] == 50 and fields["cpu_cores"] == 1.5  # six seconds of eight times one and a half
    assert fields["memory_limit"] == 8 * GIB and fields["memory_available"] == 6 * GIB
    assert fields["oom_kills"] == 1


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=60), st.text(max_size=30))
def test_whatever_the_files_hold_nothing_is_raised(own: str, content: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder, "sys/fs/cgroup")
        base.mkdir(parents=True)
        for name in ("cpu.max", "memory.max", "memory.current", "memory.stat", "cpu.stat", "memory.events"):
            (base / name).write_bytes(content.encode("utf-8", "surrogatepass"))
        for given_ in (own, "0::/\n"):
            group = ControlGroup(Path(folder), given_)
            group.cpus(), group.cpu_seconds(), group.oom_kills()
            memory = group.memory()
            assert memory is None or (memory[0] >= 0 and memory[1] > 0)


# -- energy and traffic ----------------------------------------------------------------------------------


def zone(root: Path, number: str, name: str, count: int) -> Path:
    folder = root / "sys/class/powercap" / f"intel-rapl:{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{count}\n")
    (folder / "max_energy_range_uj").write_text("1000000000\n")
    return folder


def test_package_energy_is_summed_over_packages_and_a_wrap(tmp_path: Path) -> None:
    first, second = zone(tmp_path, "0", "package-0", 999_000_000), zone(tmp_path, "1", "package-1", 0)
    zone(tmp_path, "0:0", "core", 7)
    packages = _Packages(tmp_path)
    assert packages and packages.joules() == 0
    (first / "energy_uj").write_text("1000000\n")  # wrapped: two joules
    (second / "energy_uj").write_text("3000000\n")
    assert packages.joules() == pytest.approx(5)
    assert not _Packages(tmp_path / "elsewhere")


def test_energy_and_rdma_reach_the_record(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 0)
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters"
    port.mkdir(parents=True)
    for name in ("port_rcv_data", "port_xmit_data"):
        (port / name).write_text("1000\n")
    host = Host(tmp_path, root=str(tmp_path))
    now = time.monotonic()
    host.record(now)
    (package / "energy_uj").write_text("50000000\n")
    (port / "port_rcv_data").write_text("3500\n")
    fields = host.record(now + 10)
    assert fields["cpu_energy"] == 50 and fields["cpu_power"] == 5000  # mW
    assert fields["rdma_rx"] == 1000 and fields["rdma_tx"] == 0  # words of four octets over ten seconds


def test_inner_interfaces_are_not_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path)
    counted: dict[str, Any] = {
        name: SimpleNamespace(bytes_recv=0, bytes_sent=0) for name in ("eth0", "lo", "veth1", "docker0")
    }
    monkeypatch.setattr(host._psutil, "net_io_counters", lambda **options: counted)
    host._rates.clear()
    now = time.monotonic()
    host.record(now)
    for one in counted.values():
        one.bytes_recv, one.bytes_sent = 1000, 500
    fields = host.record(now + 1)
    assert (fields["network_rx"], fields["network_tx"]) == (1000, 500)
