"""A run sent to a ClickHouse server and fetched from it is the same run, whatever happened to it and on the way."""

from __future__ import annotations

import contextlib
import math
import shutil
from pathlib import Path

import pytest
from clickhouse_server import Server
from test_contract import STATES, ask_everybody, train
from written_runs import WrittenRun

from barograph.query.stored import StoredRun
from barograph.store.clickhouse.address import ServerAddress
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.pull import list_runs, pull
from barograph.store.clickhouse.push import Sent, push
from barograph.store.seal import seal


def push_all(root: Path, client: Client) -> list[Sent]:
    return [push(path.parent, client) for path in sorted(root.glob("*/run_manifest.json"))]


def pull_all(client: Client, root: Path) -> list[Path]:
    return [pull(client, run, root) for run in list_runs(client)]


def counts(client: Client) -> list[int]:
    """Points that were sent, points that count, histograms."""
    counted = ("sum(length(step)) FROM series", "count() FROM all_points", "count() FROM histograms")
    return [int(client.rows(f"SELECT {each}")[0][0]) for each in counted]


def everything(run: StoredRun) -> dict[str, object]:
    """All points of all ranks and branches, histograms, records and what the run is, to the bit."""
    points = {
        name: [tuple(map(str, row)) for row in zip(*(column.tolist() for column in columns), strict=True)]
        for name, columns in run.points_of(run.names(), "all", "all")
    }
    histograms = {
        name: [(h.step, h.time, h.edges.tolist(), h.counts.tolist(), h.segment) for h in run.histograms(name, "all")]
        for name in run.histogram_names()
    }
    records = [(r.kind, r.time, r.step, repr(r.fields)) for r in run.records()]
    return {"points": points, "histograms": histograms, "records": records, "segments": run.segments,
            "config": run.config, "first": run.first_steps(), "id": run.id, "project": run.project}  # fmt: skip


class CutOff(Client):
    """A connection that ends once, with one of its INSERTs: it arrives, and the server's answer is lost."""

    def __init__(self, address: ServerAddress, after: int):
        super().__init__(address)
        self.after, self._inserts = after, 0

    @property
    def has_cut(self) -> bool:
        return self._inserts >= self.after

    def run(self, statement: str, data: bytes | None = None, *, database: bool = True) -> bytes:
        answer = super().run(statement, data, database=database)
        self._inserts += data is not None
        if data is not None and self._inserts == self.after:
            raise ServerError("cut off")
        return answer


class Late(Client):
    """A connection of which one INSERT arrives behind later ones, as between replicas."""

    def __init__(self, address: ServerAddress, table: str, number: int):
        super().__init__(address)
        self._begins, self._number, self._late = f"INSERT INTO {table} ", number, list[tuple[str, bytes | None]]()

    def run(self, statement: str, data: bytes | None = None, *, database: bool = True) -> bytes:
        if statement.startswith(self._begins):
            self._number -= 1
            if self._number == 0:
                self._late.append((statement, data))
                return b""
        return super().run(statement, data, database=database)

    def arrive(self) -> None:
        (late,) = self._late
        super().run(*late)


@pytest.mark.parametrize(("table", "number"), [("batches", 2), ("batches", 3), ("files", 1), ("series", 2)])
def test_what_comes_late_to_a_server_is_fetched_then(
    table: str, number: int, clickhouse: Server, tmp_path: Path
) -> None:
    STATES["sealed_many_times_and_merged"](tmp_path / "p")
    folder, there = tmp_path / "p" / "r", tmp_path / "there"
    client = Late(clickhouse.client().address, table, number)
    with contextlib.suppress(ServerError):  # rows that the server can't confirm are sent again
        push(folder, client)
    wanted = everything(StoredRun(folder))
    with contextlib.suppress(ServerError):
        pull_all(client, there)
        assert everything(StoredRun(there / "p" / "r")) != wanted
    client.arrive()
    push(folder, client)
    pull_all(client, there)
    assert everything(StoredRun(there / "p" / "r")) == wanted


@pytest.mark.parametrize("name", STATES)
def test_a_fetched_run_gives_the_figures_of_the_one_that_was_sent(
    name: str, clickhouse: Server, tmp_path: Path
) -> None:
    root = tmp_path / "here" / "p"
    wanted = STATES[name](root)
    client = clickhouse.client()
    push_all(root, client)
    before = everything(StoredRun(root / "r"))
    again = push_all(root, client)
    assert not any(sent.parts for sent in again), "what is there is not sent twice"
    shutil.move(root, tmp_path / "gone")
    there = tmp_path / "there"
    pull_all(client, there)
    (project,) = there.iterdir()
    assert everything(StoredRun(project / "r")) == before
    ask_everybody(project, wanted, tmp_path)


def test_a_run_is_fetched_as_it_grows(clickhouse: Server, tmp_path: Path) -> None:
    run = WrittenRun(tmp_path / "p")
    client, there = clickhouse.client(), tmp_path / "there"
    for start in range(0, 60, 10):
        train(run, range(start, start + 10))
        if start == 30:
            run.new_segment("rewind", 20)
        push(run.dir, client)
        pull_all(client, there)
        assert everything(StoredRun(there / "p" / "r")) == everything(StoredRun(run.dir)), start
    held = counts(client)
    assert held[0] == held[1], "nothing was sent twice"
    run.end()
    push(run.dir, client)
    pull_all(client, there)
    assert StoredRun(there / "p" / "r").status == "finished"


def test_parts_that_were_merged_are_neither_lost_nor_doubled(clickhouse: Server, tmp_path: Path) -> None:
    run = WrittenRun(tmp_path / "p")
    client = clickhouse.client()
    for start in range(0, 150, 5):  # merged now and then, before and after they are sent
        train(run, range(start, start + 5))
        seal(run.dir, final=True)
        if start % 35 == 0:
            push(run.dir, client)
    run.end()
    push(run.dir, client)
    pull_all(client, tmp_path / "there")
    assert everything(StoredRun(tmp_path / "there" / "p" / "r")) == everything(StoredRun(run.dir))
    assert counts(client)[1] == sum(len(rows) for _, (rows, *_) in StoredRun(run.dir).points_of(
        StoredRun(run.dir).names(), "all", "all"))  # fmt: skip


def test_rows_of_an_insert_that_was_not_confirmed_do_not_count(clickhouse: Server, tmp_path: Path) -> None:
    """Whichever INSERT's answer is lost: what is there is then sent anew, and counts once."""
    run = WrittenRun(tmp_path / "p")
    train(run, range(40))
    run.end()
    seal(run.dir, final=True)
    wanted = everything(StoredRun(run.dir))
    cut = CutOff(clickhouse.client().address, after=0)
    while cut.has_cut:
        cut = CutOff(clickhouse.client().address, cut.after + 1)
        with contextlib.suppress(ServerError):
            push(run.dir, cut)
        push(run.dir, cut)
        there = tmp_path / str(cut.after)
        pull_all(cut, there)
        assert everything(StoredRun(there / "p" / "r")) == wanted, cut.after
    assert cut.after > 8


@pytest.mark.parametrize("value", [math.nan, -0.0, 5e-324, math.inf, -math.inf, 1e308, 0.1])
def test_every_double_comes_back_as_it_was(value: float, clickhouse: Server, tmp_path: Path) -> None:
    run = WrittenRun(tmp_path / "p")
    for step in (0, 0, -3, 2**53):
        run.rank(0).metrics(step, x=value)
        run.rank(0).wide(step, **{"ünï'cödé\\ name": value})
    run.end()
    client = clickhouse.client()
    push(run.dir, client)
    pull_all(client, tmp_path / "there")
    assert everything(StoredRun(tmp_path / "there" / "p" / "r")) == everything(StoredRun(run.dir))


def test_a_folder_with_a_run_of_its_own_is_not_overwritten(clickhouse: Server, tmp_path: Path) -> None:
    run = WrittenRun(tmp_path / "p")
    train(run, range(3))
    run.end()
    client = clickhouse.client()
    push(run.dir, client)
    with pytest.raises(FileExistsError, match="not fetched"):
        pull_all(client, tmp_path)


def test_a_deleted_note_is_deleted_there_too(clickhouse: Server, tmp_path: Path) -> None:
    run = WrittenRun(tmp_path / "p")
    train(run, range(3))
    run.end()
    note = run.dir / "curation.json"
    note.write_text('{"notes": "good"}')
    client, there = clickhouse.client(), tmp_path / "there"
    push(run.dir, client)
    (folder,) = pull_all(client, there)
    assert StoredRun(folder).notes == "good"
    note.unlink()
    push(run.dir, client)
    pull_all(client, there)
    assert StoredRun(folder).notes == ""
