"""Every reading command has the same answer from a ClickHouse server as from the folder; errors are one sentence."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from clickhouse_server import PASSWORD, READER_PASSWORD, Server
from test_contract import train
from written_runs import WrittenRun

import barograph
from barograph.cli import main
from barograph.query import curation, trash
from barograph.query.folders import copy_folder
from barograph.query.sql import sql
from barograph.store.clickhouse.address import parse_address
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.migrate import migrate
from barograph.store.clickhouse.push import push
from barograph.store.clickhouse.schema import VERSION, check


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        run = WrittenRun(tmp_path / "runs" / "p", name)
        train(run, range(20), float(ord(name)))
        run.new_segment("rewind", 15)
        train(run, range(15, 25), 0.5)
        run.end()
    return tmp_path / "runs"


@pytest.fixture
def url(clickhouse: Server, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server with these runs, for a user who may only read."""
    client = clickhouse.client()
    for folder in sorted((runs / "p").iterdir()):
        push(folder, client)
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", READER_PASSWORD)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return clickhouse.url(client.address.database, "reader")


COMMANDS = [
    ["ls", "--json"],
    ["ls", "status=finished", "--json"],
    ["show", "a", "--json"],
    ["tail", "b", "--json"],
    ["doctor", "a", "--json"],
    ["compare", "a", "b", "--json"],
    ["lineage", "b", "--json"],
    ["projects", "--json"],
    ["search", "a", "--json"],
    ["sql", "select run, name, step, value, segment, rank from all_points order by all", "--format", "json"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_a_command_says_the_same_of_a_server_as_of_a_folder(
    words: list[str], url: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for where in (str(runs), url):
        code = main([*words, "--dir", where])
        printed = capsys.readouterr()
        root = str(runs) if where != url else str(copy_folder(parse_address(url)))
        answers.append((code, printed.out.replace(root, "ROOT"), printed.err))
    assert answers[0] == answers[1]
    assert answers[0][1], answers[0][2]


def test_python_and_the_environment_take_an_address(url: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [run.id for run in barograph.runs(runs)]
    assert [run.id for run in barograph.runs(url)] == names
    assert sql("select count(*) as n from points", dir=url).to_pylist()[0]["n"] > 0
    monkeypatch.setenv("BAROGRAPH_DIR", url)
    assert [run.id for run in barograph.runs()] == names


def test_what_is_new_on_the_server_is_read(url: str, runs: Path, clickhouse: Server) -> None:
    assert barograph.runs(url)[0].notes == ""
    curation.edit(runs / "p" / "a", notes="fine")
    push(runs / "p" / "a", clickhouse.client(parse_address(url).database))
    (run,) = [run for run in barograph.runs(url) if run.id == "a"]
    assert run.notes == "fine"


def test_a_copy_is_not_edited(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = barograph.runs(url)[0]
    with pytest.raises(ValueError, match="copy"):
        curation.edit(run.dir, notes="lost")
    with pytest.raises(ValueError, match="copy"):
        trash.trash(run.dir)
    for words in (["mark", "a", "--tag", "x"], ["delete", "a", "--yes"], ["gc"], ["restore"]):
        assert main([*words, "--dir", url]) == 1, words
        assert capsys.readouterr().err.count("\n") == 1


def test_push_and_pull_by_command(
    clickhouse: Server, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", PASSWORD)
    url = clickhouse.url("by_command")
    assert main(["push", "a", "--to", url, "--dir", str(runs)]) == 1
    assert "fleet migrate" in capsys.readouterr().err
    assert main(["fleet", "migrate", url]) == 0
    assert main(["fleet", "migrate", url]) == 0
    assert "up to date" in capsys.readouterr().out
    assert main(["push", "a", "b", "--to", url, "--dir", str(runs), "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["p/a", "p/b"]
    assert main(["pull", "p/a", "--from", url, "--dir", str(tmp_path / "there")]) == 0
    assert [path.name for path in (tmp_path / "there" / "p").iterdir()] == ["a"]
    assert main(["pull", "c", "--from", url, "--dir", str(tmp_path / "there")]) == 1
    capsys.readouterr()
    assert main(["fleet", "check", url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == "2"
    assert found["tables"] == f"version {VERSION}"


def test_what_a_series_is_printed_as_has_times_that_people_read(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["fleet", "series", url, "a", "train/loss"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["STEP", "TIME", "VALUE", "RANK"]
    assert all(line.split()[1].startswith("2023-11-14T22:13:2") for line in lines[1:])


def test_the_page_of_a_server_says_that_it_can_be_read(url: str) -> None:
    words = [sys.executable, "-m", "barograph", "view", url, "--port", "0", "--token", "a" * 24, "--no-open"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            printed = [process.stdout.readline() for _ in range(2)]
        finally:
            process.kill()
    assert printed[1] == "Whoever has this address with its token can read these runs.\n"


@pytest.mark.parametrize("error", (ConnectionResetError, BrokenPipeError, ConnectionRefusedError, TimeoutError))
def test_a_connection_that_is_not_made_is_one_sentence(error: type[OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise error(104, "no connection")

    monkeypatch.setattr(socket, "create_connection", connect)
    with Client(parse_address("clickhouse://writer@127.0.0.1:8123/nowhere")) as client:
        for _ in range(2):
            with pytest.raises(ServerError, match=r"the server 127.0.0.1:8123 did not answer \(no connection\)"):
                client.version()


def test_no_password_is_printed_or_kept(
    clickhouse: Server, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = clickhouse.client()
    push(runs / "p" / "a", client)
    name = client.address.database
    for words in (["ls", "--dir"], ["fleet", "check"], ["pull", "--from"]):
        assert main([*words, clickhouse.url(name).replace("writer@", "writer:some-secret@")]) == 1
        printed = capsys.readouterr()
        assert "BAROGRAPH_CLICKHOUSE_PASSWORD" in printed.err
        assert "some-secret" not in printed.out + printed.err
    for wrong in ("wrong-secret", ""):
        monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", wrong)
        assert main(["pull", "--from", clickhouse.url(name), "--dir", str(tmp_path / "there")]) == 1
        sentence = capsys.readouterr().err
        assert "wrong name or password" in sentence
        assert not wrong or wrong not in sentence
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", PASSWORD)
    assert main(["pull", "--from", clickhouse.url(name), "--dir", str(tmp_path / "there")]) == 0
    kept = b"".join(path.read_bytes() for path in (tmp_path / "there").rglob("*") if path.is_file())
    assert PASSWORD.encode() not in kept
    assert PASSWORD not in repr(client.address) + str(client.address)


def test_a_reader_can_not_write(clickhouse: Server, runs: Path) -> None:
    database = clickhouse.client().address.database
    reader = clickhouse.client(database, "reader", READER_PASSWORD)
    assert check(reader)["rights"] == "read"
    with pytest.raises(ServerError, match="does not allow"):
        push(runs / "p" / "a", reader)
    with pytest.raises(ServerError, match="does not allow"):
        migrate(clickhouse.client("another", "reader", READER_PASSWORD))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("clickhouse://", "host is missing"),
        ("clickhouse://host:port/db", "port is wrong"),
        ("clickhouse://host/a-b", "not the name of a database"),
        ("clickhouse://host/db?secured=1", "no option 'secured'"),
        ("clickhouse://host/db?timeout=soon", "not a number of seconds"),
        ("clickhouse://user:pass@host/db?password_file=/nowhere&timeout=-1", "not a number of seconds"),
        ("clickhouse://user@host/db?password_file=/nowhere", "can't be read"),
    ],
)
def test_a_wrong_address_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as raised:
        parse_address(text)
    assert "pass@" not in str(raised.value)


def _answer_without_tls(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    connection.close()


def test_a_server_that_is_away_too_old_or_something_else_is_one_sentence(
    clickhouse: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServerError, match="did not answer"):
        migrate(Client(parse_address("clickhouse://user@127.0.0.1:1/db")))
    with socket.create_server(("127.0.0.1", 0)) as plain:
        threading.Thread(target=_answer_without_tls, args=(plain,), daemon=True).start()
        with pytest.raises(ServerError, match="TLS"):
            migrate(Client(parse_address(f"clickhouse://user@127.0.0.1:{plain.getsockname()[1]}/db?secure=1")))
    with pytest.raises(ServerError, match="HTTP port"):
        migrate(Client(parse_address(f"clickhouse://user@127.0.0.1:{clickhouse.tcp_port}/db")))
    client = clickhouse.client()
    with pytest.raises(ServerError, match="fleet migrate"):
        check(clickhouse.client("nothing_here"))
    client.run("INSERT INTO schema_versions VALUES", f"({VERSION + 1})".encode())
    with pytest.raises(ServerError, match="newer version"):
        check(client)
    monkeypatch.setattr("barograph.store.clickhouse.client.OLDEST", (99, 1))
    with pytest.raises(ServerError, match=r"it takes 99\.1 or newer"):
        check(client)


def test_reading_a_folder_loads_no_http_client(tmp_path: Path) -> None:
    program = "import sys; import barograph.query.catalog; print('http.client' in sys.modules, 'ssl' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]
