"""What arrives a second time, whenever that is and on whichever engine, changes no answer."""

from __future__ import annotations

from pathlib import Path

from clickhouse_server import Server, caught_up
from test_contract import STATES
from test_fleet_answers import compare
from test_fleet_push import everything, pull_all
from test_fleet_thinning import check_buckets, check_thinned

from barograph.query.stored import StoredRun
from barograph.store.clickhouse.client import Client
from barograph.store.clickhouse.push import push
from barograph.store.clickhouse.schema import VIEWS, check
from barograph.store.clickhouse.thinning import thin_run

STATES_SENT = ("sealed_many_times_and_merged", "rewound_twice_and_sealed", "many_ranks", "many_block_files")


class Recorder(Client):
    """A connection that remembers its INSERTs."""

    def __init__(self, client: Client):
        super().__init__(client.address)
        self.inserts: list[tuple[str, bytes | None]] = []

    def run(self, statement: str, data: bytes | None = None, *, database: bool = True) -> bytes:
        answer = super().run(statement, data, database=database)
        if statement.startswith("INSERT INTO "):
            self.inserts.append((statement, data))
        return answer

    def repeat(self, client: Client) -> None:
        """Each of them again, in the order they were sent, to a server."""
        for statement, data in list(self.inserts):
            client.run(statement, data)


def answers(client: Client) -> dict[str, object]:
    """All that counts, to the row."""
    found: dict[str, object] = {
        view: sorted(map(repr, client.rows(f"SELECT {_columns(client, view)} FROM {view}"))) for view in VIEWS
    }
    about = check(client)
    return found | {"runs": about["runs"], "points": about["points"].partition(",")[0]}


def _columns(client: Client, view: str) -> str:
    columns = client.rows(
        f"SELECT name, type FROM system.columns WHERE database = '{client.address.database}' AND table = '{view}'"
    )
    return ", ".join(f"toString({name})" if kind.startswith("Float") else name for name, kind in columns)


def check_replay(first: Client, second: Client, folder: Path) -> None:
    """Send runs by one connection, and each INSERT again by another, when all have been confirmed; then thin one."""
    recorder = Recorder(first)
    runs = []
    for number, name in enumerate(STATES_SENT):
        STATES[name](folder / f"p{number}")
        runs.append(folder / f"p{number}" / "r")
        push(runs[-1], recorder)
    assert {statement.split()[2] for statement, _ in recorder.inserts} >= {"series", "histograms", "batches", "pieces"}
    before = answers(first)
    for times in range(2):
        recorder.repeat(second)
        caught_up(first, second)
        assert answers(first) == answers(second) == before
        for path in pull_all(second, folder / f"there{times}"):
            assert everything(StoredRun(path)) == everything(StoredRun(folder / path.parent.name / "r"))
        for path in runs:
            compare(first, StoredRun(path))
    assert push(runs[0], recorder).parts == 0
    thinning = Recorder(first)
    thin_run(thinning, "p2", "r", 10, confirmed=True)
    before = answers(first)
    recorder.repeat(second)
    thinning.repeat(second)
    caught_up(first, second)
    assert answers(second) == before
    check_buckets(second, StoredRun(runs[2]))
    (thinned,) = [path for path in pull_all(second, folder / "thinned") if path.parent.name == "p2"]
    check_thinned(StoredRun(runs[2]), StoredRun(thinned), 10)


def test_an_insert_that_is_repeated_when_it_has_counted_changes_nothing(clickhouse: Server, tmp_path: Path) -> None:
    client = clickhouse.client()
    check_replay(client, clickhouse.client(client.address.database), tmp_path)
