"""Who may ask what. Every request here is an HTTP request to the whole server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served_runs import Browser, finished

from barograph.views.server.addresses import is_loopback
from barograph.views.server.security import POLICY, Access

TOKEN = "a-token-of-more-than-16"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    finished(place, "a", 5)
    return place


@pytest.fixture
def browser(root: Path) -> Iterator[Browser]:
    with Browser(root) as made:
        yield made


@pytest.fixture
def remote(root: Path) -> Iterator[Browser]:
    """Served to other machines too."""
    with Browser(root, Access(TOKEN, False, hosts=frozenset({"trainer", "trainer.lab"}), port=6060)) as made:
        yield made


def status(browser: Browser, path: str = "/api/about", method: str = "GET", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return browser.http.request(method, path, headers=named).status_code


def test_every_answer_ties_the_page_down(browser: Browser) -> None:
    for path in ("/", "/api/about", "/api/nope", "/assets/nope.js", "/api/runs/../../etc/passwd", "/some/deep/link"):
        answer = browser.http.get(path)
        assert answer.headers["content-security-policy"] == POLICY, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers
    assert "unsafe" not in POLICY and POLICY.startswith("default-src 'none'")


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:6060", "127.9.9.9", "[::1]:6060", "LOCALHOST"])
def test_names_of_loopback_pass(browser: Browser, host: str) -> None:
    assert status(browser, host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.1.5",
        "",
        "[::2]",
        "0.0.0.0",
        "evil.example:6060",
        "localhost@evil.example",
        "127.0.0.1,evil.example",
    ],
)
def test_a_name_that_was_made_to_lead_here_does_not_pass(browser: Browser, host: str) -> None:
    for path in ("/", "/api/runs", "/assets/page.js"):
        assert status(browser, path, host=host) == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:6061", "https://evil:6060", "file://"]
)
def test_another_origin_does_not_pass(browser: Browser, origin: str) -> None:
    assert status(browser, origin=origin) == 403
    assert status(browser, "/api/series", "POST", origin=origin) == 403


def test_the_pages_own_origin_passes(browser: Browser) -> None:
    assert status(browser, origin="http://localhost:6060") == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_fetches_does_not_pass_but_a_link_to_the_page_does(browser: Browser, site: str) -> None:
    assert status(browser, "/api/runs", sec_fetch_site=site) == 403
    assert status(browser, "/api/runs", sec_fetch_site=site, sec_fetch_mode="navigate") == 403
    assert status(browser, "/assets/page.js", sec_fetch_site=site) == 403
    assert status(browser, "/runs/p/a", sec_fetch_site=site, sec_fetch_mode="navigate") in (200, 503)
    assert status(browser, "/api/runs", sec_fetch_site="same-origin") == 200


def test_headers_that_stand_twice_do_not_pass(browser: Browser) -> None:
    answer = browser.http.request("GET", "/api/about", headers=[("host", "localhost"), ("host", "evil.example")])
    assert answer.status_code == 400


EDITS = [
    ("PUT", "/api/runs/p/a", {"name": "new"}),
    ("DELETE", "/api/runs/p/a", None),
    ("POST", "/api/trash/x/restore", {}),
    ("PUT", "/api/projects/p/layout", {"panels": []}),
]


@pytest.mark.parametrize(("method", "path", "body"), EDITS)
def test_edits_need_the_word_that_only_our_page_reads(browser: Browser, method: str, path: str, body: Any) -> None:
    for headers in ({}, {"x-barograph-token": ""}, {"x-barograph-token": "wrong" * 6}):
        answer = browser.http.request(method, path, json=body, headers=headers)
        assert answer.status_code == 403, answer.text
    assert browser.get("/api/runs/p/a")["name"] == "a"


def test_a_form_of_another_page_cannot_post(browser: Browser) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = browser.http.post("/api/series", content=b'{"series": []}', headers={"content-type": kind})
        assert answer.status_code == 415


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_other_methods_are_refused(browser: Browser, method: str) -> None:
    assert status(browser, "/api/runs", method) == 405


def test_large_requests_are_refused_before_they_are_read(browser: Browser) -> None:
    body = b'{"series": [' + b" " * (1 << 20) + b"]}"
    kind = {"content-type": "application/json"}
    assert browser.http.post("/api/series", content=body, headers=kind).status_code == 413
    pieces = iter([b'{"series": ['] + [b" " * 65_536] * 20 + [b"]}"])  # a length that is not told
    answer = browser.http.post("/api/series", content=pieces, headers=kind)
    assert answer.status_code == 413 and "error" in answer.json()
    assert status(browser, content_length="-1") == 413
    assert status(browser, content_length="1e3") == 413


# -- the token ---------------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_told(remote: Browser) -> None:
    for path in ("/", "/api/about", "/api/runs", "/assets/page.js", "/api/live", "/?token=wrong", "/api/about?token="):
        answer = remote.http.get(path)
        assert answer.status_code == 401, path
        assert TOKEN not in answer.text and "token" in answer.json()["error"]
    assert remote.http.post("/api/series", json={"series": []}).status_code == 401


def test_the_token_in_the_address_becomes_a_cookie_and_leaves_the_address(remote: Browser) -> None:
    answer = remote.http.get(f"/runs/p/a?x=1&token={TOKEN}")
    assert answer.status_code == 303 and answer.headers["location"] == "/runs/p/a?x=1"
    kept = answer.headers["set-cookie"]
    assert "HttpOnly" in kept and "SameSite=Lax" in kept and kept.startswith("barograph-6060=")
    assert remote.http.get("/api/about").status_code == 200  # the client keeps the cookie


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "///evil.example"])
def test_the_way_back_never_leads_to_another_site(remote: Browser, path: str) -> None:
    answer = remote.http.get(f"http://localhost:6060{path}?token={TOKEN}")
    where = answer.headers.get("location", "/")
    assert where.startswith("/") and not where.startswith(("//", "/\\"))


def test_the_token_as_a_header_passes(remote: Browser) -> None:
    assert status(remote, authorization=f"Bearer {TOKEN}") == 200
    assert status(remote, authorization=f"bearer {TOKEN}") == 200
    assert status(remote, authorization=f"Basic {TOKEN}") == 401
    assert status(remote, authorization="Bearer ") == 401


def test_an_edit_needs_both_words(remote: Browser) -> None:
    both = {"authorization": f"Bearer {TOKEN}", **remote.edit}
    assert remote.http.put("/api/runs/p/a", json={"notes": "n"}, headers=remote.edit).status_code == 401
    assert (
        remote.http.put("/api/runs/p/a", json={"notes": "n"}, headers={"authorization": f"Bearer {TOKEN}"}).status_code
        == 403
    )
    assert remote.http.put("/api/runs/p/a", json={"notes": "n"}, headers=both).status_code == 200


def test_addresses_and_own_names_pass_elsewhere_and_other_names_do_not(remote: Browser) -> None:
    word = f"Bearer {TOKEN}"
    for host in ("192.168.1.5:6060", "trainer", "trainer.lab:6060", "TRAINER.lab.", "[fe80::1]:6060", "localhost"):
        assert status(remote, host=host, authorization=word) == 200, host
    for host in ("evil.example", "trainer.evil.example", "trainer.lab.evil.example:6060"):
        assert status(remote, host=host, authorization=word) == 403, host


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", socket.gethostname() + ".example", "")))
