"""A run on two hosts: what each host's sidecar measured is told apart, live and at rest, sealed and not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sidecar_runs import START, Writer, describe

from barograph.core import place
from barograph.core.options import Settings
from barograph.core.record import Record
from barograph.log.follow import Follower
from barograph.query.energy import Prices
from barograph.query.frames import frame
from barograph.query.stored import StoredRun
from barograph.sidecar.loop import Sidecar
from barograph.store.seal import seal

HOSTS = {"node-a": (0, 100.0), "node-b": (4, 300.0)}  # the first rank, and the watts of its GPU 0


def two_hosts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sidecar]:
    """A run whose sidecars have measured; each knows its host alone."""
    describe(folder, world_size=8)
    sidecars = []
    for host, (rank, watts) in HOSTS.items():
        monkeypatch.setattr(place, "host", lambda host=host: host)
        writer = Writer(folder, rank=rank)
        for step in range(1, 12):
            writer.row(step, {"train/loss": 2.0 + rank}, 10.0)
        sidecar = Sidecar(folder, Settings(machine=False, watchdog=False), rank=rank)
        sidecar.journal._write("gpu-model", START, 0, {"id": 0, "name": f"card of {host}"})
        for step in range(1, 12):
            moment = START + step * 10_000_000
            sidecar.journal._write("gpu", moment, step, {"id": 0, "power": watts * 1000, "temperature": 50 + rank})
            sidecar.journal._write("host", moment, step, {"cpu_util": 10.0 + rank})
        sidecars.append(sidecar)
    return sidecars


@pytest.mark.parametrize("sealed", [False, True])
def test_what_each_host_measured_has_its_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool) -> None:
    folder = tmp_path / "run"
    sidecars = two_hosts(folder, monkeypatch)
    for sidecar in sidecars:
        sidecar.close()
    if sealed:
        seal(folder, final=True)
    run = StoredRun(folder)
    for rank, watts in HOSTS.values():
        assert set(run.series("gpu/0/power", rank=rank).value) == {watts * 1000}
        assert set(run.series("host/cpu_util", rank=rank).value) == {10.0 + rank}
    assert set(run.series("gpu/0/power").value) == {100_000.0}  # rank 0's where nobody asks for another
    table = frame(run, ["gpu/0/power"], layout="long", rank="all")
    found: Any = set(zip(table["rank"].tolist(), table["value"].tolist(), strict=True))
    assert found == {(rank, watts * 1000) for rank, watts in HOSTS.values()}
    assert not [mark for mark in run.segments if mark.number != 1]


def test_readers_of_the_log_see_the_rank_and_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    for sidecar in two_hosts(folder, monkeypatch):
        sidecar.close()
    follower, found, hosts = Follower(folder), set(), {}
    while entries := follower.read(2000):
        for entry in entries:
            if isinstance(entry.item, Record) and entry.item.kind == "gpu":
                found.add((entry.source, entry.rank))
            if isinstance(entry.item, Record) and entry.item.kind == "sidecar":
                hosts[entry.rank] = entry.item.fields["host"]
        again = Follower(folder, follower.places)  # a later process goes on with the same
        follower.close()
        follower = again
    assert found == {(f"sidecar-{host}.json", rank) for host, (rank, _) in HOSTS.items()}
    assert hosts == {rank: host for host, (rank, _) in HOSTS.items()}


def test_devices_of_both_hosts_count_and_live_is_what_a_reader_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    main, other = two_hosts(folder, monkeypatch)
    other.close()
    main.read()
    assert main.accounts is not None
    joules = sum(watts * 100 for _, watts in HOSTS.values())
    live = main.accounts._energy.fields()
    assert live["gpu_joules"] == pytest.approx(joules) and live["gpus"] == 2
    assert sorted(main.accounts._energy.models) == [f"card of {host}" for host in HOSTS]
    main.close()
    energy = StoredRun(folder)._accounts()[1]
    assert energy.fields()["gpu_joules"] == pytest.approx(joules) and sorted(energy.models) == sorted(
        main.accounts._energy.models
    )
    assert Prices(per_gpu_hour=1.0).per_gpu_hour(energy.models) == 1.0


def test_a_sidecar_says_whose_it_is_each_time_it_begins(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    describe(folder)
    Writer(folder).close()
    for _ in range(2):
        sidecar = Sidecar(folder, Settings(machine=False, watchdog=False), rank=2)
        sidecar.journal.record("host", 1, {"cpu_util": 1.0})
        sidecar.close()
    assert [record.kind for record in StoredRun(folder).records("sidecar", "host")] == ["sidecar", "host"] * 2
