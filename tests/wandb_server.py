"""As much of W&B's server as a run needs: GraphQL for runs and their resume state, and the stream of files.

In:   what `wandb-core` sends to `WANDB_BASE_URL`.
Out:  in memory: each run's rows, summary and configuration; the names of the queries that had no answer here.

The shapes are those of wandb 0.31's `core/internal/gql/graphql.graphql` and of its file stream.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class StoredRun:
    """A run as the server has it: lines by their place, as the file stream writes them."""

    id: str
    name: str = ""
    config: str = "{}"
    summary: dict[str, Any] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)
    exit_codes: list[int] = field(default_factory=list)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(self.lines[at]) for at in sorted(self.lines)]


class Server(ThreadingHTTPServer):
    """Keeps what it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runs: dict[str, StoredRun] = {}
        self.unknown: list[str] = []
        self.lock = threading.Lock()

    def handle_error(self, *_: Any) -> None:
        """A client that was killed is not an error."""

    @property
    def variables(self) -> dict[str, str]:
        """For a program that is to speak with this server."""
        return {
            "WANDB_MODE": "online", "WANDB_BASE_URL": f"http://127.0.0.1:{self.server_address[1]}",
            "WANDB_API_KEY": "0123456789" * 4, "WANDB_ERROR_REPORTING": "false", "no_proxy": "127.0.0.1",
        }  # fmt: skip


@contextmanager
def serving() -> Iterator[Server]:
    """A server for as long as it lasts."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        self._answer({})

    def do_PUT(self) -> None:
        self._read()
        self._answer({})

    def do_POST(self) -> None:
        told = json.loads(self._read() or b"{}")
        with self.server.lock:
            if self.path.startswith("/graphql"):
                self._answer({"data": self._query(told.get("query", ""), told.get("variables") or {})})
            elif self.path.endswith("/file_stream"):
                self._stream(self.path.split("/")[-2], told)
                self._answer({"exitcode": None, "limits": {}})
            else:
                self._answer({})

    def _read(self) -> bytes:
        import gzip

        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content

    def _answer(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _query(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        entity = {"id": "RW50", "name": "me"}
        project = {"id": "UHJv", "name": given.get("project") or "p", "entity": entity}
        if "upsertBucket" in query:
            run = self.server.runs.setdefault(given["name"], StoredRun(given["name"]))
            run.config = given.get("config") or run.config
            bucket = {
                "id": base64.b64encode(run.id.encode()).decode(), "name": run.id, "displayName": run.id,
                "description": None, "config": run.config, "sweepName": None, "project": project,
                "historyLineCount": len(run.lines),
            }  # fmt: skip
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if "RunResumeStatus" in query:
            found = self.server.runs.get(given["name"])
            bucket = _state(found) if found else None
            return {"model": {"id": "UHJv", "name": project["name"], "entity": entity, "bucket": bucket}}
        if "viewer" in query:
            return {"viewer": {"id": "VXNl", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}}
        if "createRunFiles" in query:
            place = f"http://127.0.0.1:{self.server.server_address[1]}/upload"
            files = [{"name": name, "uploadUrl": place} for name in given.get("files") or ()]
            return {"createRunFiles": {"runID": given.get("run"), "uploadHeaders": [], "files": files}}
        if "__type" in query or "serverInfo" in query:
            return {}
        self.server.unknown.append(" ".join(query.split())[:80])
        return {}

    def _stream(self, name: str, told: dict[str, Any]) -> None:
        run = self.server.runs.setdefault(name, StoredRun(name))
        for file, chunk in (told.get("files") or {}).items():
            for at, line in enumerate(chunk["content"], int(chunk["offset"])):
                if file == "wandb-history.jsonl":
                    run.lines[at] = line
                elif file == "wandb-summary.json":
                    run.summary = json.loads(line)
        if told.get("complete"):
            run.exit_codes.append(int(told.get("exitcode") or 0))


def _state(run: StoredRun) -> dict[str, Any]:
    """What a process that goes on with the run is told."""
    tail = [run.lines[at] for at in sorted(run.lines)][-1:]
    return {
        "id": base64.b64encode(run.id.encode()).decode(), "name": run.id, "displayName": run.id,
        "summaryMetrics": json.dumps(run.summary), "config": run.config, "tags": [], "wandbConfig": '{"t": 1}',
        "logLineCount": 0, "historyLineCount": len(run.lines), "eventsLineCount": 0,
        "historyTail": json.dumps(tail), "eventsTail": "[]",
    }  # fmt: skip
