"""Saved views: a file for everybody, in which nobody's change is lost."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from served_runs import Browser, finished

from barograph.views.server import saved

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    finished(tmp_path, "a", 3)
    with Browser(tmp_path) as made:
        yield made


def put(browser: Browser, changes: object, status: int = 200, project: str = "p") -> dict[str, object]:
    answer = browser.http.put("/api/views", params={"project": project}, json=changes, headers=browser.edit)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("project", ["p", ""])
def test_views_are_kept_in_the_folder(browser: Browser, tmp_path: Path, project: str) -> None:
    assert browser.get("/api/views", params={"project": project}) == {"settings": {}, "views": {}}
    view = {"q": f"name ~ {SCRIPT}", "group": "config:lr"}
    put(browser, {"views": {SCRIPT: view}, "settings": {"cols": "last:loss"}}, project=project)
    assert put(browser, {"views": {"other": {}}, "settings": {"cols": None, "sort": "name"}}, project=project) == {
        "settings": {"sort": "name"},
        "views": {SCRIPT: view, "other": {}},
    }
    kept = json.loads((tmp_path / project / saved.FILE).read_text())
    assert kept == {"version": 1, **browser.get("/api/views", params={"project": project})}
    assert put(browser, {"views": {SCRIPT: None}}, project=project)["views"] == {"other": {}}


def test_two_who_write_at_once_lose_nothing(browser: Browser, tmp_path: Path) -> None:
    with Browser(tmp_path) as second, ThreadPoolExecutor(8) as threads:
        names = [f"view {at}" for at in range(40)]
        jobs = [
            threads.submit(put, (browser, second)[at % 2], {"views": {name: {"q": name}}})
            for at, name in enumerate(names)
        ]
        assert all(job.result() for job in jobs)
    assert sorted(browser.get("/api/views", params={"project": "p"})["views"]) == sorted(names)


@pytest.mark.parametrize(
    "changes",
    [
        {"views": {"": {}}}, {"views": {"a\nb": {}}}, {"views": {"x" * 101: {}}}, {"views": {"a": {"q": 1}}},
        {"views": {"a": {"q": "x" * 9_000}}}, {"views": {"a": {str(at): "" for at in range(50)}}}, {"else": {}}, [],
        {"views": {str(at): {} for at in range(201)}}, {"views": {str(at): {"q": "x" * 8_000} for at in range(40)}},
    ],
)  # fmt: skip
def test_what_is_no_view_is_refused_and_changes_nothing(browser: Browser, changes: object) -> None:
    put(browser, {"views": {"mine": {}}})
    assert put(browser, changes, 400)["error"]
    assert browser.get("/api/views", params={"project": "p"})["views"] == {"mine": {}}


def test_nobody_writes_without_the_token_of_edits(browser: Browser) -> None:
    assert browser.http.put("/api/views?project=p", json={"views": {"a": {}}}).status_code == 403
    assert put(browser, {"views": {"a": {}}}, 404, "nothing")["error"]


@pytest.mark.parametrize("text", ["{", "[]", '{"views": []}', '{"views": {"a": {"q": 3}}}', "\xff"])
def test_a_damaged_file_is_said_and_not_written_over(browser: Browser, tmp_path: Path, text: str) -> None:
    path = tmp_path / "p" / saved.FILE
    path.write_text(text, encoding="latin-1")
    assert saved.FILE in browser.get("/api/views", 400, params={"project": "p"})["error"]
    assert saved.FILE in str(put(browser, {"views": {"a": {}}}, 400)["error"])
    assert path.read_text(encoding="latin-1") == text


def test_a_link_out_of_the_folder_is_not_followed(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "p" / saved.FILE).symlink_to("/etc/passwd")
    assert "outside" in browser.get("/api/views", 400, params={"project": "p"})["error"]


def test_a_folder_that_cannot_be_written_can_be_read(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(browser, {"views": {"a": {}}})

    def refuse(*arguments: Any, **named: Any) -> Any:  # as of a folder that is read-only; root may write to any other
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(saved.manifest, "write_json", refuse)
    assert put(browser, {"views": {"b": {}}}, 403)["error"]
    assert browser.get("/api/views", params={"project": "p"})["views"] == {"a": {}}
