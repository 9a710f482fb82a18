"""`barograph fleet check` adds up again what a server holds, and compares it with the run's folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from clickhouse_server import PASSWORD, READER_PASSWORD, Server
from patience import patient, until
from test_contract import STATES, train
from test_fleet_replay import Recorder
from written_runs import WrittenRun

from barograph.cli import main
from barograph.store.clickhouse.client import Client
from barograph.store.clickhouse.push import push
from barograph.store.clickhouse.thinning import thin_run
from barograph.store.clickhouse.verify import differences
from barograph.store.seal import seal


def change(client: Client, table: str, what: str) -> None:
    """Alter rows on the server, and wait until it is done."""
    client.run(f"ALTER TABLE {table} {what}")
    done = "SELECT min(is_done) FROM system.mutations WHERE database = currentDatabase()"
    assert until(lambda: int(client.rows(done)[0][0]) == 1, patient(60))


def edit(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old)
    path.write_bytes(content.replace(old, new, 1))


THERE: dict[str, tuple[str, str, str]] = {
    "a value in single": ("series", "UPDATE single = arrayMap(x -> x + 1, single) WHERE length(single) > 0",
                          "not the values that were sent"),
    "a value in double": ("series", "UPDATE double = arrayMap(x -> x * 2, double) WHERE length(double) > 0",
                          "not the values that were sent"),
    "a time": ("series", "UPDATE time = arrayMap(x -> x + 1, time) WHERE name = 'train/loss'",
               "the server has as many points"),
    "a row": ("series", "DELETE WHERE name = 'train/loss'", "not the values that were sent"),
    "all rows": ("series", "DELETE WHERE 1", "the server has 0 of"),
    "a count": ("histograms", "UPDATE counts = arrayMap(x -> x + 1, counts) WHERE 1", "has as many histograms"),
    "a piece": ("pieces", "DELETE WHERE file = 'training.json'", "training.json of the run r is not whole"),
    "a file": ("pieces", "DELETE WHERE file = 'run_manifest.json'", "run_manifest.json"),
}  # fmt: skip


@pytest.mark.parametrize("what", THERE)
def test_what_is_altered_on_the_server_is_said(what: str, clickhouse: Server, tmp_path: Path) -> None:
    client = clickhouse.client()
    STATES["many_block_files"](tmp_path / "p")
    push(tmp_path / "p" / "r", client)
    STATES["sealed_whole"](tmp_path / "other")
    push(tmp_path / "other" / "r", client)
    assert differences(client, "p", "r") == []
    table, alteration, sentence = THERE[what]
    change(client, table, alteration.replace("WHERE", "WHERE project = 'p' AND"))
    found = differences(client, "p", "r")
    assert found and all(sentence in each for each in found), found
    assert differences(client, "other", "r") == []


def _end_later(folder: Path) -> None:
    (folder / "notes.txt").write_text("later")


HERE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a log": (lambda folder: edit(folder / "training.json", b'"loss":2.', b'"loss":7.'),
              "training.json is another one in the folder"),
    "a file": (lambda folder: edit(folder / "run_manifest.json", b'"finished"', b'"killed"'),
               "run_manifest.json is another one in the folder"),
    "a file more": (_end_later, "notes.txt is in the folder alone"),
    "a file less": (lambda folder: (folder / "training.json").unlink(), "training.json is on the server alone"),
}  # fmt: skip


@pytest.mark.parametrize("what", HERE)
def test_what_is_altered_in_the_folder_is_said(what: str, clickhouse: Server, tmp_path: Path) -> None:
    client = clickhouse.client()
    STATES["sealed_many_times_and_merged"](tmp_path / "p")
    folder = tmp_path / "p" / "r"
    push(folder, client)
    assert differences(client, "p", "r", folder) == []
    alter, sentence = HERE[what]
    alter(folder)
    assert sentence in differences(client, "p", "r", folder)


@pytest.mark.parametrize("name", STATES)
def test_a_run_is_as_it_was_sent_in_each_state(name: str, clickhouse: Server, tmp_path: Path) -> None:
    """However often it was sealed, merged and sent since; a repeated INSERT is no difference."""
    client = clickhouse.client()
    recorder = Recorder(client)
    STATES[name](tmp_path / "p")
    for _ in range(2):
        for folder in sorted((tmp_path / "p").iterdir()):
            push(folder, recorder)
        recorder.repeat(client)
    for folder in sorted((tmp_path / "p").iterdir()):
        assert differences(client, "p", folder.name, folder) == []


def test_columns_of_the_folder_that_are_not_on_the_server_or_are_others_are_said(
    clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = clickhouse.client()
    run = WrittenRun(tmp_path / "p")
    for step in range(50):
        run.rank().loss(step, step + 0.5)
    seal(run.dir, final=True)
    push(run.dir, client, final=False)
    for step in range(50, 100):
        run.rank().loss(step, step + 0.5)
    run.end()
    seal(run.dir, final=True)
    assert differences(client, "p", "r", run.dir, is_open=True) == []
    assert "some points of training.json are sealed in the folder alone" in differences(client, "p", "r", run.dir)
    push(run.dir, client)
    assert differences(client, "p", "r", run.dir) == []
    shutil.rmtree(run.dir / "store")  # sealed again, by other numbers
    seal(run.dir, final=True)
    assert differences(client, "p", "r", run.dir) == []
    shutil.rmtree(run.dir / "store")
    edit(run.dir / "training.json", b'"loss":2.', b'"loss":7.')
    seal(run.dir, final=True)
    assert differences(client, "p", "r", run.dir) == [
        "training.json is another one in the folder",
        "the points of training.json have other values in the folder",
    ]


def test_the_command_says_what_differs_and_ends_with_1(
    clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = clickhouse.client()
    for name in ("a", "b", "thin"):
        run = WrittenRun(tmp_path / "runs" / "p", name)
        train(run, range(30))
        run.end()
        push(run.dir, client)
    thin_run(client, "p", "thin", 10, confirmed=True)
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", READER_PASSWORD)
    url = clickhouse.url(client.address.database, "reader")
    words = ["fleet", "check", url, "--dir", str(tmp_path / "runs")]
    assert main(words) == 0
    assert "3 runs, 2 of them compared with their folders: as they were sent" in capsys.readouterr().out
    change(client, "series", "DELETE WHERE run = 'b' AND name = 'train/loss'")
    assert main(words) == 1
    printed = capsys.readouterr().out
    assert "p/b: store/training/" in printed and "p/a" not in printed and "1 of them with differences" in printed
    assert main([*words[:3], "p/a", "thin", *words[3:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == {"p/a": [], "p/thin": []}
    monkeypatch.setenv("BAROGRAPH_DIR", url)
    assert main(["fleet", "check", url, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["compared"] == 0
    assert main(["fleet", "check", url, "nobody"]) == 1
    assert "means none of the runs" in capsys.readouterr().err
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", PASSWORD)
