"""A network that loses, delays, cuts and resets: what has arrived afterwards is the local run, point for point."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clickhouse_server import PASSWORD, Server
from patience import patient
from test_contract import train
from test_fleet_answers import compare
from test_fleet_push import counts, everything
from test_fleet_sending import fetched
from written_runs import WrittenRun

from barograph.query.stored import StoredRun
from barograph.store.clickhouse.address import parse_address
from barograph.store.clickhouse.client import Client
from barograph.store.clickhouse.send import RunSender
from barograph.store.seal import seal

FAULTS = ("cut", "reset", "stall", "no answer", "late")


class Proxy:
    """Between a client and a server. After `most` bytes of a client's connection it does what `fault` says: cut both
    ends; reset them; stall, passing nothing on; lose what the server answers; deliver the rest late, at `release`."""

    def __init__(self, port: int):
        self._port = port
        self.fault, self.most = "", 0
        self.faults = 0  # connections that have met one
        self._late: list[tuple[socket.socket, list[bytes]]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def release(self) -> None:
        """Deliver what is late, and wait for what the server says to it."""
        for there, held in self._late:
            with contextlib.suppress(OSError):
                for data in held:
                    there.sendall(data)
                there.shutdown(socket.SHUT_WR)
                there.settimeout(patient(10))
                while there.recv(65536):
                    pass
            there.close()
        self._late.clear()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            reached = threading.Event()  # the fault
            arguments = (here, there, self.fault, reached)
            threading.Thread(target=self._send, args=(*arguments, self.most), daemon=True).start()
            threading.Thread(target=self._answer, args=arguments, daemon=True).start()

    def _send(self, here: socket.socket, there: socket.socket, fault: str, reached: threading.Event, left: int) -> None:
        held: list[bytes] = []
        with contextlib.suppress(OSError):
            while data := here.recv(65536):
                passed = data[:left] if fault else data
                if passed and not reached.is_set():
                    there.sendall(passed)
                left -= len(passed)
                if not fault or left > 0:
                    continue
                if not reached.is_set():
                    reached.set()
                    self.faults += 1
                if fault == "no answer":
                    there.sendall(data[len(passed) :])
                elif fault == "late":
                    held.append(data[len(passed) :])
                elif fault == "reset":
                    for end in (here, there):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        end.close()
                    return
                elif fault == "cut":
                    break
        if held:
            self._late.append((there, held))
        else:
            _shut(here, there)

    @staticmethod
    def _answer(here: socket.socket, there: socket.socket, fault: str, reached: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while not (fault == "late" and reached.is_set()) and (data := there.recv(65536)):
                if not reached.is_set():
                    here.sendall(data)
        if fault not in ("late", "stall", "no answer"):
            _shut(here, there)


def _shut(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxied(
    clickhouse: Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Client, Proxy, Callable[[str], Client]]]:
    """A database; a proxy before its server; what makes a client that goes through it, with that timeout."""
    client = clickhouse.client()
    proxy = Proxy(clickhouse.port)
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", PASSWORD)
    url = clickhouse.url(client.address.database).replace(str(clickhouse.port), str(proxy.port))
    yield client, proxy, lambda timeout: Client(parse_address(f"{url}?timeout={timeout}"))
    proxy.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_end_state_is_the_local_one_after_a_fault_at_any_byte(
    fault: str, proxied: tuple[Client, Proxy, Callable[[str], Client]], tmp_path: Path
) -> None:
    client, proxy, connect = proxied
    run = WrittenRun(tmp_path / "p")
    train(run, range(60))
    said: list[str] = []
    failures = 0
    for number, most in enumerate((1, 300, 1_500, 4_000, 9_000, 15_000, 25_000, 40_000, 80_000)):
        train(run, range(60 + 20 * number, 80 + 20 * number))
        if number % 3 == 2:
            seal(run.dir, final=True)
        proxy.fault, proxy.most = fault, most
        with connect("0.5" if fault in ("stall", "no answer", "late") else str(patient(60))) as faulty:
            failures += not RunSender(run.dir, faulty, said.append, 0.01).round(final=number > 6)
    assert failures and proxy.faults
    run.end()
    proxy.fault = ""
    with connect(str(patient(240))) as whole:
        assert RunSender(run.dir, whole, said.append, 0.01).round(final=True)
    for _ in range(2):
        assert everything(fetched(client, tmp_path / "there")) == everything(StoredRun(run.dir))  # type: ignore[arg-type]
        compare(client, StoredRun(run.dir))
        before = counts(client)
        proxy.release()  # what was on its way arrives when all is said, and changes nothing
    assert counts(client)[1] == before[1]
    assert not any(PASSWORD in sentence for sentence in said)


@pytest.mark.parametrize("fault", ("cut", "reset", "stall"))
def test_an_answer_that_breaks_off_is_one_sentence_and_the_copy_goes_on_later(
    fault: str, proxied: tuple[Client, Proxy, Callable[[str], Client]], tmp_path: Path
) -> None:
    _, proxy, connect = proxied
    run = WrittenRun(tmp_path / "p")
    train(run, range(400))
    run.end()
    with connect(str(patient(240))) as whole:
        assert RunSender(run.dir, whole, print, 0.01).round(final=True)
    proxy.fault = fault
    for most in (200, 900, 2_500, 5_000):
        proxy.most = most
        with connect("0.5" if fault == "stall" else str(patient(60))) as faulty:
            fetched(faulty, tmp_path / "there")
    proxy.fault = ""
    with connect(str(patient(240))) as whole:
        assert everything(fetched(whole, tmp_path / "there")) == everything(StoredRun(run.dir))  # type: ignore[arg-type]
