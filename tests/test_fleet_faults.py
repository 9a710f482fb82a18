"""TLS, a full disk, clocks that differ: a run is on the server whole, or one sentence says why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy
import pytest
from clickhouse_server import PASSWORD, Server
from test_fleet_answers import compare
from test_fleet_push import everything, pull_all
from written_runs import WrittenRun

import barograph
from barograph.query.stored import StoredRun
from barograph.store.clickhouse.address import parse_address
from barograph.store.clickhouse.answers import read_runs
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.migrate import migrate
from barograph.store.clickhouse.push import push

OPENSSL = """<https_port>{port}</https_port><openSSL><server><certificateFile>{folder}/server.pem</certificateFile>
<privateKeyFile>{folder}/server.key</privateKeyFile><verificationMode>none</verificationMode>
<loadDefaultCAFile>false</loadDefaultCAFile><cacheSessions>true</cacheSessions>
<disableProtocols>sslv2,sslv3</disableProtocols></server></openSSL>"""


def make_certificates(folder: Path) -> None:
    """An authority, ca.pem, a certificate for 127.0.0.1 that it signed, and an authority that has signed nothing."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem",
                "-days", "30", "-subj", f"/CN={name}")  # fmt: skip
    openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server"
    )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", "server.pem", "-days", "30", "-extfile", "names")  # fmt: skip


def a_run(root: Path, steps: int = 200) -> WrittenRun:
    run = WrittenRun(root / "p")
    for step in range(steps):
        run.rank().loss(step, step / 3)
    return run


def test_a_server_is_asked_by_tls_if_its_authority_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("clickhouse-server") is None or shutil.which("openssl") is None:
        pytest.skip("clickhouse-server or openssl is not installed")
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", PASSWORD)
    server = Server(tmp_path / "server")
    make_certificates(server.folder)
    server.configure(OPENSSL.format(port=server.replication_port, folder=server.folder))
    server.start()
    try:
        run = a_run(tmp_path)
        run.end()
        address = f"clickhouse://writer@127.0.0.1:{server.replication_port}/safe?secure=1&ca={server.folder}"
        with Client(parse_address(f"{address}/ca.pem")) as client:
            migrate(client)
            push(run.dir, client)
            (pulled,) = pull_all(client, tmp_path / "there")
        assert everything(StoredRun(pulled)) == everything(StoredRun(run.dir))
        for wrong in (f"{address}/other.pem", address.partition("&ca=")[0]):
            with Client(parse_address(wrong)) as client, pytest.raises(ServerError, match="can't be trusted"):
                client.version()
    finally:
        server.stop()


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    if shutil.which("clickhouse-server") is None:
        pytest.skip("clickhouse-server is not installed")
    server = Server(tmp_path / "server")
    data = server.folder / "data"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o"]
    if os.geteuid() or subprocess.run([*mount, "size=16m", "none", str(data)], capture_output=True).returncode:
        pytest.xfail("a container without the right to mount has no disk that can be filled")
    try:
        server.start()
        run = a_run(tmp_path, 20)
        client = server.client()
        push(run.dir, client)
        left = shutil.disk_usage(data).free - 300_000
        (data / "ballast").write_bytes(b"\0" * left)
        for step in range(20, 40_000):
            run.rank().loss(step, step / 3)
        run.end()
        with pytest.raises(ServerError, match=r"^the server 127.0.0.1:\d+ has no disk space left$"):
            push(run.dir, client)
        subprocess.run([*mount, "remount,size=200m", "none", str(data)], check=True)
        push(run.dir, client)
        (pulled,) = pull_all(client, tmp_path / "there")
        assert everything(StoredRun(pulled)) == everything(StoredRun(run.dir))
        compare(client, StoredRun(run.dir))
    finally:
        server.stop()
        subprocess.run(["umount", "-l", str(data)], check=False)


@pytest.mark.parametrize("days", [-400, 400])
def test_a_clock_that_is_wrong_hides_nothing_that_comes_later(
    days: int, clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent last counts, whatever the clocks of the hosts say."""
    now = time.time_ns
    client = clickhouse.client()
    run = a_run(tmp_path)
    for start, wrong in ((200, days), (250, 0), (300, days)):
        monkeypatch.setattr(time, "time_ns", lambda wrong=wrong: now() + wrong * 86_400_000_000_000)
        for step in range(start, start + 50):
            run.rank().loss(step, float(step))
        (run.dir / "note.txt").write_text(f"{start}")
        push(run.dir, client)
        compare(client, StoredRun(run.dir))
    monkeypatch.setattr(time, "time_ns", now)
    run.end()
    push(run.dir, client)
    (row,) = read_runs(client, ["train/loss"])
    assert row.status == "finished"
    (pulled,) = pull_all(client, tmp_path / "there")
    assert (pulled / "note.txt").read_bytes() == (run.dir / "note.txt").read_bytes()
    assert everything(StoredRun(pulled)) == everything(StoredRun(run.dir))


def test_media_are_sent_and_fetched_with_their_run(clickhouse: Server, tmp_path: Path) -> None:
    run = barograph.init(project="p", dir=str(tmp_path / "here"), git=False, sidecar=False, machine=False, verbosity=-2)
    run.log_image("sample", numpy.arange(48, dtype=numpy.uint8).reshape(4, 4, 3), step=3)
    run.finish()
    here = StoredRun(run.dir)
    wanted = [(item.name, item.step, Path(item.path).read_bytes()) for item in here.media()]
    assert wanted
    client = clickhouse.client()
    push(Path(run.dir), client)
    (pulled,) = pull_all(client, tmp_path / "there")
    found = [(item.name, item.step, Path(item.path).read_bytes()) for item in StoredRun(pulled).media()]
    assert found == wanted
