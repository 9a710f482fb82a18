"""Receivers of alerts on this machine: an SMTP server, an HTTP server, and servers that hang, refuse or fail.

In:   a message, over a real socket.
Out:  what arrived.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import barograph.testing


class HttpReceiver:
    """Takes JSON by POST; `statuses` are the answers to the next requests, 200 after that."""

    def __init__(self, statuses: tuple[int, ...] = (), drip: bool = False) -> None:
        self.got: list[dict[str, Any]] = []
        self.paths: list[str] = []
        left = list(statuses)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.paths.append(self.path)
                status = left.pop(0) if left else 200
                if status == 200:
                    outer.got.append(json.loads(body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"json://127.0.0.1:{self.port}/secretpath"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class SmtpReceiver:
    """Takes mail: HELO, EHLO, MAIL, RCPT, DATA, QUIT (RFC 5321)."""

    def __init__(self) -> None:
        self.got: list[EmailMessage] = []
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 here\r\n")
                while line := self.rfile.readline():
                    word = line[:4].upper()
                    if word == b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        lines = []
                        while (text := self.rfile.readline()) not in (b".\r\n", b""):
                            lines.append(text[1:] if text.startswith(b"..") else text)
                        made: Any = message_from_bytes(b"".join(lines), policy=policy.default)
                        outer.got.append(made)
                    self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
                    if word == b"QUIT":
                        return

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def hung_server() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield server.getsockname()[1]


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


class FakeRun(barograph.testing.FakeRun):
    """A stand-in with the titles of its alerts."""

    name, project = "calm-river", "gpt"

    @property
    def titles(self) -> list[str]:
        return [fields["title"] for kind, _, fields in self.records if kind == "alert"]


def give(alerts: Any, record: Any) -> None:
    """A record of rank 0, and the time of what records so."""
    alerts.take_record(record)
    alerts.settle(False)
