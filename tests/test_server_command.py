"""`barograph view` as a process of its own: what it prints, what it serves by real sockets, how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from patience import patient
from served_runs import finished, trained

from barograph.views.server import command
from barograph.views.server.frames import unpack

START = """
import sys
from barograph.views.server.command import view
options = dict(pair.split("=", 1) for pair in sys.argv[2:])
port = int(options.pop("port", 0))
sys.exit(view(sys.argv[1], port=port, open_browser=False, **options))
"""


class Process:
    """A running server. `url`: its address; `line`: what it printed."""

    def __init__(self, root: Path, *options: str):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "error"}
        self.popen = subprocess.Popen(
            [sys.executable, "-c", START, str(root), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.popen.stdout is not None
        self.line = self.popen.stdout.readline()
        assert self.line, self.popen.stderr.read() if self.popen.stderr else ""
        self.url = self.line.split(" at ")[1].split()[0]
        self.port = int(self.url.split("/")[2].rpartition(":")[2])

    def end(self) -> tuple[int, str]:
        """Exit code and what stands on standard error, after Ctrl-C."""
        self.popen.send_signal(signal.SIGINT)
        _, said = self.popen.communicate(timeout=20)
        return self.popen.returncode, said


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    finished(place, "a", 20)
    return place


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Process]:
    process = Process(root)
    yield process
    if process.popen.poll() is None:
        process.end()


def raw(process: Process, target: str, headers: str = "", method: str = "GET") -> bytes:
    """An answer to a request line as it is, which no client has put in order."""
    with socket.create_connection(("127.0.0.1", process.port), timeout=20) as connection:
        connection.sendall(
            f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n".encode()
        )
        found = b""
        while piece := connection.recv(65_536):
            found += piece
    return found


@pytest.mark.parametrize(
    "target",
    [
        "/api/runs/../../../../etc/passwd", "/api/runs/p/a/../../../../etc/passwd", "/assets/../../../../etc/passwd",
        "/../../../../etc/passwd", "/assets/%2e%2e/%2e%2e/%2e%2e/pyproject.toml", "//etc/passwd", "/assets//etc/passwd",
        "/api/runs/p/a/../../p/a/store/%2e%2e/training.json", "/api/runs/..;/..;/etc/passwd", "/.%00./etc/passwd.x",
        "http://evil.example/../../etc/passwd",
    ],
)  # fmt: skip
def test_request_lines_that_want_out(served: Process, target: str) -> None:
    answer = raw(served, target)
    assert b"root:" not in answer and b"[project]" not in answer and b'"log":' not in answer
    assert (
        answer.split(b" ", 2)[1] in (b"404", b"400", b"403")
        or b'<div id="page">' in answer
        or b"not been built" in answer
    )


def test_requests_that_are_no_http_get_400_and_the_server_goes_on(served: Process) -> None:
    assert raw(served, "/", "Content-Length: 5\r\nContent-Length: 6\r\n").startswith(b"HTTP/1.1 400")
    for target, header in (("/?" + "x" * 200_000, ""), ("/", "X: " + "y" * 100_000 + "\r\n")):
        with contextlib.suppress(ConnectionError):  # it hangs up on what is longer than a header may be
            assert raw(served, target, header).startswith(b"HTTP/1.1 4")
    assert httpx.get(f"{served.url}api/about").status_code == 200


def test_what_it_prints_and_how_it_ends(root: Path) -> None:
    process = Process(root)
    assert process.line == f"Barograph shows {root} at http://127.0.0.1:{process.port}/  (Ctrl-C ends it)\n"
    with httpx.stream("GET", f"{process.url}api/live", timeout=20) as events:
        assert next(events.iter_bytes()).startswith(b"retry")
        began = time.monotonic()
        assert process.end() == (0, "")
        assert time.monotonic() - began < patient(10)


def test_it_listens_on_loopback_alone(served: Process) -> None:
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    mine = [line[1] for line in lines if line[1].endswith(f":{served.port:04X}") and line[3] == "0A"]
    assert mine == [f"0100007F:{served.port:04X}"]


def test_the_server_names_no_software(served: Process) -> None:
    assert "server" not in httpx.get(f"{served.url}api/about").headers


def test_another_address_needs_a_token_and_says_so(root: Path) -> None:
    process = Process(root, "host=0.0.0.0")
    assert "?token=" in process.line
    token = process.line.split("?token=")[1].split()[0]
    assert len(token) >= 32
    address = f"http://127.0.0.1:{process.port}"
    assert httpx.get(f"{address}/api/runs").status_code == 401
    assert httpx.get(f"{address}/api/runs", headers={"authorization": f"Bearer {token}"}).status_code == 200
    with httpx.Client() as client:
        assert client.get(f"{address}/?token={token}").status_code == 303
        assert client.get(f"{address}/api/runs").status_code == 200
    assert process.end()[0] == 0


def test_a_token_of_the_environment_is_the_one_asked_for_and_on_loopback_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAROGRAPH_TOKEN", "one-of-my-own-words")
    process = Process(root)
    assert "?token=one-of-my-own-words" in process.line
    address = f"http://127.0.0.1:{process.port}/api/runs"
    assert httpx.get(address).status_code == 401
    assert httpx.get(address, headers={"authorization": "Bearer one-of-my-own-words"}).status_code == 200
    assert process.end()[0] == 0
    monkeypatch.setenv("BAROGRAPH_TOKEN", "short")
    with pytest.raises(ValueError, match=r"^BAROGRAPH_TOKEN of 5 characters is too short"):
        command.view(root, open_browser=False)


def test_a_live_run_from_its_log_to_the_frame(root: Path, served: Process) -> None:
    """The way of a value: logged, told, fetched."""
    run = trained(root, "live", 5)
    took: list[float] = []
    with (
        httpx.Client(base_url=served.url, timeout=20) as client,
        client.stream("GET", "/api/live?run=p/live") as events,
    ):
        pieces = events.iter_bytes()
        next(pieces)
        time.sleep(1.6)  # the server finds the new run, and the store takes its first values over
        for step in range(5, 10):
            began = time.monotonic()
            run.log({"train/loss": float(step)}, step=step)
            while not any(_point(piece) == step for piece in next(pieces).split(b"\n\n")):
                pass
            answer = client.post("/api/series", json={"series": [{"run": "p/live", "name": "train/loss"}]})
            took.append(time.monotonic() - began)
            header, data = unpack(answer.content)
            place = header["series"][0]["columns"]["y"]
            assert data[place["at"] + place["n"] - 1] == step
            time.sleep(0.4)
    run.finish()
    assert np.median(took) < 0.5, took


def _point(event: bytes) -> Any:
    if not event.startswith(b"event: points"):
        return None
    return json.loads(event.split(b"data: ", 1)[1])["step"]


# -- without a process -------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"can't listen on 127.0.0.1:{port} .*leave out --port") as told:
            command.view(tmp_path, port=port, open_browser=False)
        assert "\n" not in str(told.value)


def test_a_free_port_near_6060_is_found() -> None:
    with command._listen("127.0.0.1", None) as one, command._listen("127.0.0.1", 0) as two:
        ports = {one.getsockname()[1], two.getsockname()[1]}
        assert len(ports) == 2 and min(ports) >= 6060


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dir": "/no/such/folder"}, "there is no folder"),
        ({"host": "no.such.host.invalid"}, "no address"),
        ({"port": 99999}, "from 0 to 65535"),
        ({"token": "short"}, "is too short"),
        ({"token": "with spaces and; more"}, "letters, digits"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, OSError), match=sentence):
        command.view(**({"dir": str(tmp_path), "open_browser": False} | options))  # type: ignore[arg-type]


def test_importing_the_command_loads_no_server() -> None:
    script = (
        "import sys, barograph.views.server.command; "
        "print([one for one in ('starlette', 'uvicorn', 'numpy', 'pyarrow') if one in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
