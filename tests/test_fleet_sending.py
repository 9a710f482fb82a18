"""A run goes to the server while it is written; whatever the server does, the training and the end state don't care."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clickhouse_server import PASSWORD, Server
from patience import patient
from test_contract import train
from test_fleet_push import everything
from written_runs import WrittenRun

import barograph
import barograph.store.clickhouse.push
from barograph.log.files import stores_of
from barograph.query.stored import StoredRun
from barograph.store.clickhouse.answers import read_points, read_ranks
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.pull import list_runs, pull
from barograph.store.clickhouse.push import push
from barograph.store.clickhouse.send import RunSender
from barograph.store.merge import merge_all
from barograph.store.seal import seal


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + patient(seconds)
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def fetched(client: Client, folder: Path) -> StoredRun | None:
    """The run as it is on the server now; None while it is not there, or the server is away."""
    try:
        return StoredRun(pull(client, list_runs(client)[0], folder))
    except (ServerError, IndexError):
        return None


class Sending:
    """The process beside a training."""

    def __init__(self, folder: Path, url: str):
        environment = os.environ | {"BAROGRAPH_CLICKHOUSE_PASSWORD": PASSWORD}
        environment["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "barograph.store.clickhouse.send", str(folder)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        options = {"to": url, "seconds": 0.1, "end_seconds": patient(60)}
        self._write(options)

    def _write(self, content: dict[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(content) + "\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Say that the run has ended; the exit code and what was printed."""
        self._write({"status": "finished"})
        _, printed = self.process.communicate(timeout=patient(120))
        return self.process.returncode, printed

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def sending(clickhouse: Server) -> Iterator[Callable[[Path, str], Sending]]:
    started: list[Sending] = []

    def start(folder: Path, url: str) -> Sending:
        started.append(Sending(folder, url))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def test_a_run_is_on_the_server_while_it_is_written(
    clickhouse: Server, sending: Callable[[Path, str], Sending], tmp_path: Path
) -> None:
    client = clickhouse.client()
    run = WrittenRun(tmp_path / "p")
    process = sending(run.dir, clickhouse.url(client.address.database))
    for last in (10, 20, 30):
        train(run, range(last - 10, last))
        loss = [float(value) for value in StoredRun(run.dir).series("train/loss").value]

        def is_there(loss: list[float] = loss) -> bool:
            there = fetched(client, tmp_path / "there")
            return there is not None and repr(there.series("train/loss").value.tolist()) == repr(loss)

        until(is_there, f"step {last} is not on the server")
    run.end()
    assert process.end() == (0, "")
    assert everything(fetched(client, tmp_path / "there")) == everything(StoredRun(run.dir))


def test_the_end_state_is_the_local_one_however_often_the_server_dies(
    clickhouse: Server, sending: Callable[[Path, str], Sending], tmp_path: Path
) -> None:
    client = clickhouse.client()
    run = WrittenRun(tmp_path / "p")
    process = sending(run.dir, clickhouse.url(client.address.database))
    for round in range(4):
        train(run, range(20 * round, 20 * round + 20))
        seal(run.dir, final=True)
        clickhouse.stop(signal.SIGTERM if round == 2 else signal.SIGKILL)
        train(run, range(20 * round + 5, 20 * round + 12), 0.5)  # steps come twice
        if round == 1:
            run.new_segment("rewind", 25)
        clickhouse.start()
    run.end()
    code, printed = process.end()
    assert code == 0, printed
    assert printed.count("\n") <= 6, "each sentence once"
    assert everything(fetched(client, tmp_path / "there")) == everything(StoredRun(run.dir))
    count = sum(len(points[0]) for _, points in StoredRun(run.dir).points_of(StoredRun(run.dir).names(), "all", "all"))
    assert int(client.rows("SELECT count() FROM all_points")[0][0]) == count


def test_a_sender_that_is_killed_is_followed_by_one_that_goes_on(
    clickhouse: Server, sending: Callable[[Path, str], Sending], tmp_path: Path
) -> None:
    client = clickhouse.client()
    run = WrittenRun(tmp_path / "p")
    for start in range(0, 60, 15):
        train(run, range(start, start + 15))
        seal(run.dir, final=True)
        process = sending(run.dir, clickhouse.url(client.address.database))
        until(lambda: fetched(client, tmp_path / "there") is not None, "nothing came")
        process.kill()
    run.end()
    assert sending(run.dir, clickhouse.url(client.address.database)).end()[0] == 0
    assert everything(fetched(client, tmp_path / "there")) == everything(StoredRun(run.dir))


def test_a_round_takes_no_more_memory_for_a_longer_run(clickhouse: Server, tmp_path: Path) -> None:
    """Nothing is sealed meanwhile; rows are narrow and wide, of several ranks and launches."""
    run = WrittenRun(tmp_path / "p")
    client = clickhouse.client()
    sender = RunSender(run.dir, client, lambda sentence: None)
    peaks = []
    for length in (20, 20, 20, 2000, 20, 20):
        for step in range(length):
            for rank in range(2):
                run.rank(rank).metrics(step, **{f"metric/{number}": number + step for number in range(50)})
                run.rank(rank).wide(step, **{f"layer/{number}": number + step for number in range(200)})
                run.rank(rank).histogram(step, "weights", [1.0, 2.0, 3.0])
        run.new_segment("resume", length)
        assert sender.round()
        run.rank(0).metrics(length, last=1.0)
        tracemalloc.start()
        try:
            assert sender.round()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # 2,000 steps are 4 MB of log, 8 MB of block files, and more as rows
    assert max(peaks[3:]) - min(peaks[:3]) < 500_000, peaks
    run.end()
    assert sender.round(final=True)
    assert everything(fetched(client, tmp_path / "there")) == everything(StoredRun(run.dir))


def test_parts_that_are_merged_while_they_are_sent_arrive_merged(
    clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = WrittenRun(tmp_path / "p")
    for start in range(0, 100, 10):
        train(run, range(start, start + 10))
        monkeypatch.setattr("barograph.store.seal.merge_all", lambda folder: [])
        seal(run.dir, final=True)
        monkeypatch.undo()
    run.end()
    sent, send_part = [], barograph.store.clickhouse.push.send_part

    def send(*arguments: Any) -> Any:
        if not sent:
            assert [path for store in stores_of(run.dir) for path in merge_all(store)]
        sent.append(arguments)
        return send_part(*arguments)

    monkeypatch.setattr("barograph.store.clickhouse.push.send_part", send)
    client = clickhouse.client()
    assert push(run.dir, client, final=False).left_out == []
    assert everything(fetched(client, tmp_path / "there")) == everything(StoredRun(run.dir))
    counted = int(client.rows("SELECT count() FROM all_points")[0][0])
    assert counted == sum(
        len(points[0]) for _, points in StoredRun(run.dir).points_of(StoredRun(run.dir).names(), "all", "all")
    )


def test_a_wrong_password_is_said_once_and_the_run_goes_on(
    clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = WrittenRun(tmp_path / "p")
    train(run, range(5))
    said: list[str] = []
    client = clickhouse.client("fleet1", password="wrong")
    sender = RunSender(run.dir, client, said.append, 0.01)
    for _ in range(3):
        assert not sender.round()
    assert len(said) == 1
    assert "wrong name or password" in said[0]
    assert sender.pause > 0.05


def test_the_option_sends_a_training_to_the_server(
    clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = clickhouse.client()
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", PASSWORD)
    monkeypatch.setenv("BAROGRAPH_SIDECAR", "true")
    run = barograph.init(dir=tmp_path / "runs", project="p", store=clickhouse.url(client.address.database))
    for step in range(20):
        run.log({"train/loss": 1.0 / (step + 1)}, step=step)
    run.finish()

    def is_there() -> bool:
        there = fetched(client, tmp_path / "there")
        return there is not None and there.status == "finished" and "train/loss" in there.names()

    until(is_there, "the run is not on the server", 120)
    there = fetched(client, tmp_path / "there")
    assert there is not None
    assert there.series("train/loss").value.tolist() == [1.0 / (step + 1) for step in range(20)]
    kept = b"".join(path.read_bytes() for path in run.dir.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in kept


HOST = """
import os, sys, time, barograph
rank, folder, url = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                  MASTER_ADDR="node0", MASTER_PORT="29500")
run = barograph.init(project="p", id="two", dir=folder, verbosity=-2, git=False, machine=False, store=url,
                     sidecar=True)
for step in range(60):
    run.log({"train/loss": 100.0 * rank + step}, step=step)
    time.sleep(0.1)
if rank == 0:
    run.finish()
else:
    os.kill(os.getpid(), 9)
"""


def test_two_hosts_with_folders_of_their_own_send_one_run(clickhouse: Server, tmp_path: Path) -> None:
    client = clickhouse.client()
    password = {"BAROGRAPH_CLICKHOUSE_PASSWORD": PASSWORD}
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", HOST, str(rank), str(tmp_path / str(rank)), clickhouse.url(client.address.database)],
            env={**os.environ, **password},
        )
        for rank in range(2)
    ]
    for host in hosts:
        host.wait(patient(60))

    def arrived() -> bool:
        counted = client.rows("SELECT rank, uniqExact(step) FROM all_points WHERE name = 'train/loss' GROUP BY rank")
        return {int(rank): int(steps) for rank, steps in counted} == {0: 60, 1: 60}

    until(arrived, "the points of both hosts", 40)
    compared = read_ranks(client, "p", "two", "train/loss")
    assert compared.maximum.tolist() == [100.0 + step for step in range(60)]
    assert read_points(client, "p", "two", "train/loss").value.tolist() == [float(step) for step in range(60)]
