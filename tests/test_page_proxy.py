"""The page behind a proxy that has it under a path, in a browser: with the token, and links that stay below it."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from served_pages import *  # noqa: F403
from served_pages import NEEDED, Page, Served, expect

pytestmark = NEEDED
TOKEN = "a-token-of-the-team"
PATH = "/team/barograph"


class Proxy(BaseHTTPRequestHandler):
    """Passes on what is below PATH, with the path as it is, and refuses all else."""

    port = 0

    def do_GET(self) -> None:
        if not f"{self.path}/".startswith((f"{PATH}/", f"{PATH}?")):
            self.send_error(502, "not below the path")
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            while piece := answer.read1(65_536):
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:  # the browser has gone on
            pass
        upstream.close()
        self.close_connection = True

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def address(root: Path) -> Iterator[str]:
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{proxy.server_address[1]}{PATH}"
    served = Served(root, token=TOKEN, url=url)
    Proxy.port = served.port
    yield url
    served.end()
    proxy.shutdown()
    proxy.server_close()


def test_a_team_uses_the_page_behind_a_proxys_path(address: str, page: Page) -> None:
    failed: list[str] = []
    page.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
    page.goto(f"{address}/?token={TOKEN}")
    page.get_by_role("link", name="fast").first.click()
    expect(page).to_have_url(re.compile(re.escape(f"{address}/run/gpt/fast")))
    expect(page.locator("canvas").first).to_be_visible()
    page.reload()
    expect(page.locator("canvas").first).to_be_visible()
    outside = page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)")
    assert outside and all(link.startswith(address) for link in outside if link.startswith("http://127.0.0.1"))
    page.go_back()
    expect(page.get_by_role("link", name="slow").first).to_be_visible()
    about = page.request.get(f"{address}/api/about").json()
    edit = page.request.put(
        f"{address}/api/views?project=gpt",
        data=json.dumps({}),
        headers={"Content-Type": "application/json", "X-Barograph-Token": about["edit_token"]},
    )
    assert edit.status < 400, edit.text()
    assert failed == []


def test_without_the_token_or_from_elsewhere_nothing_is_shown(address: str, page: Page) -> None:
    assert page.request.get(f"{address}/api/runs").status == 401
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert page.request.get(f"{address}/api/runs", headers=headers).status == 200
    elsewhere = headers | {"Origin": "http://team.example"}
    assert page.request.get(f"{address}/api/runs", headers=elsewhere).status == 403
