"""On a cluster a run is sent, fetched and asked for as on one server: with shards, with replicas, with a coordinator or
without one."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_server import Coordinator, Server, caught_up, migrate_all, start_cluster
from patience import patient, until
from test_contract import STATES
from test_fleet_answers import compare
from test_fleet_push import everything, pull_all
from test_fleet_replay import check_replay
from test_fleet_thinning import check_buckets, check_thinned
from written_runs import WrittenRun

from barograph.query.stored import StoredRun
from barograph.store.clickhouse.answers import read_runs
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.migrate import migrate
from barograph.store.clickhouse.push import push
from barograph.store.clickhouse.retention import remove
from barograph.store.clickhouse.schema import VERSION, check, held_version
from barograph.store.clickhouse.thinning import thin_run

_MADE = itertools.count(1)
KINDS = ("shards", "shards with a coordinator", "replicas")


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    if shutil.which("clickhouse-server") is None:
        pytest.skip("clickhouse-server is not installed: apt-get install clickhouse-server")
    coordinator = None
    if request.param != "shards":
        if shutil.which("java") is None or not Path("/usr/share/java/zookeeper.jar").exists():
            pytest.skip("ZooKeeper is not installed: apt-get install zookeeper default-jre-headless")
        coordinator = Coordinator(tmp_path_factory.mktemp("zookeeper"))
    servers = start_cluster(tmp_path_factory.mktemp("cluster"), coordinator, request.param == "replicas")
    yield servers
    for server in servers:
        server.stop()
    if coordinator is not None:
        coordinator.stop()


def clients(cluster: list[Server], database: str) -> list[Client]:
    """A connection to each server, with the tables made, in a database that a test run once more has not used."""
    made = f"{database}{next(_MADE)}"
    found = [server.client(made, cluster="two") for server in cluster]
    done = migrate_all(cluster, found[0])
    if any("no coordinator" in sentence for sentence in done):
        migrate(found[1])
    assert until(lambda: all(held_version(client) == VERSION for client in found), patient(240.0))
    assert not any("tables are at" in sentence for client in found for sentence in migrate(client))
    return found


def test_runs_are_sent_fetched_and_asked_for_by_any_server(cluster: list[Server], tmp_path: Path) -> None:
    first, second = clients(cluster, "fleet")
    before = {}
    for number, name in enumerate(("sealed_many_times_and_merged", "many_ranks", "killed", "with_a_sidecars_log")):
        STATES[name](tmp_path / f"p{number}")
        folder = tmp_path / f"p{number}" / "r"
        push(folder, (first, second)[number % 2])
        before[f"p{number}"] = everything(StoredRun(folder))
    caught_up(first, second)
    assert sorted(row.project for row in read_runs(second)) == sorted(before)
    for number, client in enumerate((first, second)):
        for folder in pull_all(client, tmp_path / f"there{number}"):
            assert everything(StoredRun(folder)) == before[folder.parent.name]
        for project in before:
            compare(client, StoredRun(tmp_path / project / "r"))
    assert check(second)["runs"] == "4"
    push(tmp_path / "p0" / "r", second)  # what one has sent the other does not send again
    thin_run(second, "p1", "r", 10, confirmed=True)
    caught_up(first, second)
    (pulled,) = [folder for folder in pull_all(first, tmp_path / "there0") if folder.parent.name == "p1"]
    check_thinned(StoredRun(tmp_path / "p1" / "r"), StoredRun(pulled), 10)
    check_buckets(first, StoredRun(tmp_path / "p1" / "r"))
    remove(first, "p0", "r")
    caught_up(first, second)
    assert "p0" not in {row.project for row in read_runs(second)}


def test_shards_have_runs_and_replicas_have_the_same(cluster: list[Server], tmp_path: Path) -> None:
    first, second = clients(cluster, "spread")
    for number in range(8):
        run = WrittenRun(tmp_path / "p", f"r{number}")
        for step in range(100):
            run.rank().loss(step, float(step))
        run.end()
        push(run.dir, first)
    caught_up(first, second)
    held = [int(client.rows("SELECT count() FROM series_local")[0][0]) for client in (first, second)]
    total = int(first.rows("SELECT count() FROM series")[0][0])
    tables = f"system.tables WHERE database = '{first.address.database}'"
    engine = first.rows(f"SELECT engine FROM {tables} AND name = 'series_local'")[0][0]
    if sum(held) == total:
        assert all(held), "both shards have some"
        by_run = [client.rows("SELECT DISTINCT run FROM series_local") for client in (first, second)]
        assert not {row[0] for row in by_run[0]} & {row[0] for row in by_run[1]}, "a run is on one shard"
    else:
        assert engine == "ReplicatedMergeTree" and held == [total, total]


def test_a_replica_that_has_not_fetched_all_says_so(cluster: list[Server], tmp_path: Path) -> None:
    first, second = clients(cluster, "late")
    run = WrittenRun(tmp_path / "p")
    run.rank().loss(0, 1.0)
    push(run.dir, second)
    caught_up(first, second)
    held = f"system.replicas WHERE database = '{first.address.database}'"
    replicas = int(first.rows(f"SELECT max(total_replicas) FROM {held}", False)[0][0])
    first.run("SYSTEM STOP FETCHES")
    try:
        run.rank().loss(1, 1.0)
        run.end()
        push(run.dir, second)
        assert ("replica" in check(first)) == (replicas > 1)
    finally:
        first.run("SYSTEM START FETCHES")
    caught_up(first, second)
    assert "replica" not in check(first)


def test_an_insert_that_is_repeated_when_it_has_counted_changes_nothing(cluster: list[Server], tmp_path: Path) -> None:
    check_replay(*clients(cluster, "repeated"), tmp_path)


def test_a_cluster_that_the_server_does_not_know_is_one_sentence(cluster: list[Server]) -> None:
    with pytest.raises(ServerError, match="knows no cluster 'three'; it knows two"):
        migrate(cluster[0].client("elsewhere", cluster="three"))
