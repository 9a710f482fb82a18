"""The server as a whole, by HTTP: what each address gives, hostile names, paths that want out, edits."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from served_runs import QUIET, Browser, finished, trained

import barograph
from barograph.views.server import app as app_module
from barograph.views.server.slow import SlowAnswers, StillWorking

SCRIPT = "<script>alert(1)</script>"
HOSTILE = [
    SCRIPT,
    '"onload="x',
    "\x1b[31mred",
    "\u202eevil",
    "a\u0000b",
    "‮",
    "../../etc/passwd",
    "a\ud800b",
    "''--",
    "{{7*7}}",
]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, written once."""
    root = tmp_path_factory.mktemp("original")
    finished(root, "a", 20, config={"lr": 0.1, "deep": {"x": [1, 2]}}, tags=["t"], notes="n")
    finished(root, "b", 20, config={"lr": 0.2})
    return root


@pytest.fixture
def browser(tmp_path: Path, original: Path) -> Iterator[Browser]:
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    with Browser(tmp_path) as made:
        yield made


def test_about(browser: Browser, tmp_path: Path) -> None:
    about = browser.get("/api/about")
    assert about["version"] == barograph.__version__ and about["root"] == str(tmp_path)
    assert about["token_needed"] is False and len(about["edit_token"]) >= 24


def test_the_list_of_runs_and_that_it_is_not_sent_twice(browser: Browser) -> None:
    answer = browser.http.get("/api/runs")
    found = answer.json()
    assert [row["key"] for row in found["runs"]] == ["p/a", "p/b"] and found["projects"] == ["p"]
    browser.server.table.wait_filled(20)
    answer = browser.http.get("/api/runs")
    again = browser.http.get("/api/runs", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304 and again.content == b""
    (browser.server.places.root / "p" / "a" / "run_manifest.json").touch()
    browser.server.table.refresh(force=True)
    assert browser.http.get("/api/runs", headers={"if-none-match": answer.headers["etag"]}).status_code == 200


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ("config.lr > 0.15", ["p/b"]), ("status = finished and config.lr = 0.1", ["p/a"]), ("tag = t", ["p/a"]),
        ("0.2", ["p/b"]), ("P", ["p/a", "p/b"]), ("lr=0.1", None), ("nothing at all", []), ("", ["p/a", "p/b"]),
        ("loss < 3 and step >= 19", ["p/a", "p/b"]), ("deep.x", ["p/a"]),
    ],
)  # fmt: skip
def test_filters(browser: Browser, said: str, keys: list[str] | None) -> None:
    if keys is None:
        assert "nearest is 'config.lr'" in browser.get(f"/api/runs?filter={quote(said)}", 400)["error"]
    else:
        assert [row["key"] for row in browser.get(f"/api/runs?filter={quote(said)}")["runs"]] == keys


def test_a_runs_overview(browser: Browser) -> None:
    run = browser.get("/api/runs/p/a")
    assert run["name"] == "a" and run["config"]["deep"] == {"x": [1, 2]} and run["config_flat"]["deep.x"] == [1, 2]
    assert run["series_count"] == len(browser.get("/api/runs/p/a/names")["names"]) == sum(run["families"].values())
    assert run["manifest"]["id"] == "a" and run["segments"][0]["kind"] == "start" and run["problems"] == []
    assert {"goodput", "energy", "checkpoints", "samples", "lineage"} <= set(run)


def test_names_are_not_sent_twice(browser: Browser) -> None:
    answer = browser.http.get("/api/runs/p/a/names")
    again = browser.http.get("/api/runs/p/a/names", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
    assert browser.get("/api/runs/p/a/names?match=LOSS")["total"] == 0
    assert browser.get("/api/runs/p/a/names?match=loss")["names"] == ["train/loss"]
    assert browser.get("/api/runs/p/a/names?tree=train")["leaves"][0] == "train/loss"
    assert "error" in browser.get("/api/runs/p/a/names?match=(", 400)


def test_findings_are_those_of_the_doctor(browser: Browser, tmp_path: Path) -> None:
    from barograph.doctor import diagnose
    from barograph.query.stored import StoredRun

    wanted = json.loads(json.dumps(diagnose(StoredRun(tmp_path / "p" / "a"))))
    assert browser.get("/api/runs/p/a/findings") == wanted


def test_the_system_view(browser: Browser) -> None:
    system = browser.get("/api/runs/p/a/system")
    assert {one["cause"] for one in system["goodput"]} >= {"productive", "idle"}
    assert system["gpus"] == [] and system["world_size"] == 1
    assert system["ranks"][0]["rank"] == 0 if system["ranks"] else True


def test_devices_and_ranks(tmp_path: Path) -> None:
    run = barograph.init(project="p", id="g", dir=str(tmp_path), **QUIET)
    run.record("gpu-model", 0, {"id": 0, "name": SCRIPT, "memory": 80, "uuid": "u"})
    run.record("gpu", 0, {"id": 0, "power": 100.0, "gpu_util": 55, "dram_free": 30, "throttle": "thermal"})
    run.record("gpu", 0, {"id": 1, "power": 90.0, "gpu_util": 60, "throttle": None})
    run.record("ranks", 0, {"by_rank": {"0": {"step_ms": 10.0, "wait_ms": 1.0}, "1": {"step_ms": 12.0}}})
    run.record("straggler", 3, {"rank": 1, "slower_by": 0.2})
    run.finish()
    with Browser(tmp_path) as browser:
        system = browser.get("/api/runs/p/g/system")
    device, free = system["gpus"]
    assert free["throttle"] == ""  # nothing holds it down
    assert device["name"] == SCRIPT and device["utilisation"] == 55 and device["memory_used"] == 50
    assert device["throttle"] == "thermal" and device["series"]["power"] == "gpu/0/power"
    assert [(one["rank"], one.get("step_ms")) for one in system["ranks"]] == [(0, 10.0), (1, 12.0)]
    assert system["stragglers"][0]["slower_by"] == 0.2 and system["stragglers"][0]["step"] == 3


def test_compare(browser: Browser) -> None:
    made = browser.get("/api/compare?run=p/a&run=p/b&metric=train/loss")
    assert [one["key"] for side in made["sides"] for one in side["runs"]] == ["p/a", "p/b"]
    assert made["metric"] == "train/loss" and made["verdict"]["sentences"]
    assert browser.get("/api/compare?run=p/a&run=p/b&baseline=p/b")["sides"][0]["runs"][0]["key"] == "p/b"
    assert "needs two runs" in browser.get("/api/compare?run=p/a", 400)["error"]
    assert "no run" in browser.get("/api/compare?run=p/a&run=/etc", 404)["error"]
    assert "axis" in browser.get("/api/compare?run=p/a&run=p/b&x=moon", 400)["error"]
    for baseline in ("/etc/passwd", "../../x", "~root"):
        assert "not one of" in browser.get(f"/api/compare?run=p/a&run=p/b&baseline={quote(baseline)}", 404)["error"]


def test_the_report_is_a_file_that_cannot_run_here(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    class Room:
        @staticmethod
        def report_html(run: Any) -> str:
            return f"<html><script>1</script>{run.id}</html>"

    monkeypatch.setitem(sys.modules, "barograph.views.report", Room)
    monkeypatch.setitem(sys.modules, "barograph.views.report.webpage", Room)
    answer = browser.http.get("/api/runs/p/a/report.html")
    assert answer.status_code == 200 and answer.text.endswith("a</html>")
    assert answer.headers["content-disposition"] == 'attachment; filename="a.html"'
    assert answer.headers["content-security-policy"].startswith("sandbox")


# -- addresses ---------------------------------------------------------------------------------------------

# as they stand in the address: a client that shortens `..` itself is not a test (test_server_command.py has those)
OUT = [
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "..%5c..%5cetc",
    "p/a%00",
    "p/a/training.json",
    "p/a/store",
    "....//....//etc/passwd",
    "%252e%252e%252fetc%252fpasswd",
    "p%2fa%2f..%2f..%2f..%2fetc%2fpasswd",
    "~root",
    "file:///etc/passwd",
    "p",
]


@pytest.mark.parametrize("path", OUT)
def test_no_address_leads_out(browser: Browser, path: str) -> None:
    for action in ("", "/names", "/findings", "/report.html", "/layers"):
        answer = browser.http.get(f"http://localhost:6060/api/runs/{path}{action}")
        assert answer.status_code == 404, answer.text
        assert "root:" not in answer.text
    assert browser.http.delete(f"http://localhost:6060/api/runs/{path}", headers=browser.edit).status_code == 404


@pytest.mark.parametrize(
    "path", ["../app.py", "..%2fapp.py", "%2e%2e/server/app.py", "/etc/passwd", "page.js/../../app.py", "link.js"]
)
def test_assets_are_the_built_files_alone(tmp_path: Path, path: str) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "index.html").write_text("<p>page</p>")
    (assets / "page.js").write_text("1;" * 2000)
    (assets / "strange.exe").write_text("x")
    (tmp_path / "app.py").write_text("secret")
    (assets / "link.js").symlink_to(tmp_path / "app.py")
    with Browser(tmp_path / "runs", assets=assets) as browser:
        answer = browser.http.get(f"http://localhost:6060/assets/{path}")
        assert answer.status_code == 404 and "secret" not in answer.text
        assert browser.http.get("/assets/strange.exe").status_code == 404


def test_the_page_is_there_for_every_path_of_its_router(tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    (assets / "fonts").mkdir(parents=True)
    (assets / "index.html").write_text("<p>page</p>")
    (assets / "page.js").write_text("1;" * 2000)
    (assets / "fonts" / "a.woff2").write_bytes(b"f")
    with Browser(tmp_path / "runs", assets=assets) as browser:
        for path in ("/", "/runs", "/runs/p/a", "/compare?run=x", "/a/b/c/d"):
            assert browser.http.get(path).text == "<p>page</p>", path
        assert browser.http.get("/favicon.ico").status_code == 204
        for path in ("/favicon.png", "/a/b.js", "/api", "/api/nope", "/api/runs/x/y/z"):
            assert browser.http.get(path).status_code == 404, path
        answer = browser.http.get("/assets/page.js")
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert answer.headers["content-encoding"] == "gzip" and answer.headers["cache-control"] == "no-cache"
        assert browser.http.get("/assets/page.js", headers={"if-none-match": answer.headers["etag"]}).status_code == 304
        assert browser.http.get("/assets/fonts/a.woff2").content == b"f"
        (assets / "page.js").write_text("2;")
        assert browser.http.get("/assets/page.js").text == "2;"


def test_without_a_built_page_there_is_a_sentence(tmp_path: Path) -> None:
    with Browser(tmp_path / "runs", assets=tmp_path / "none") as browser:
        answer = browser.http.get("/")
        assert answer.status_code == 503 and "not been built" in answer.text


# -- hostile names -----------------------------------------------------------------------------------------


def test_hostile_names_travel_as_they_are_and_as_json(tmp_path: Path) -> None:
    run = barograph.init(
        project=SCRIPT, name=SCRIPT, dir=str(tmp_path), tags=HOSTILE[:3], notes=SCRIPT,
        config={name: name for name in HOSTILE}, **QUIET
    )  # fmt: skip
    for name in HOSTILE:
        run.log({name: 1.0, f"gradients/{name}/norm": 1.0, f"gradients/x{name}/norm": 1.0}, step=0)
    run.finish()
    with Browser(tmp_path) as browser:
        (row,) = browser.get("/api/runs")["runs"]
        assert row["name"] == SCRIPT and row["notes"] == SCRIPT and row["project"] == SCRIPT
        key = row["key"]
        address = key  # it can stand in an address as it is
        for action in ("", "/names", "/system", "/findings"):
            answer = browser.http.get(f"/api/runs/{address}{action}")
            assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        names = browser.get(f"/api/runs/{address}/names")["names"]
        assert SCRIPT in names
        for entry in browser.series(*((key, name) for name in names)):
            assert entry["points"] == 1, entry
        header, _ = browser.frame(f"/api/runs/{address}/layers")
        assert len(header["layers"]) >= 10
        assert browser.get(f"/api/projects/{quote(SCRIPT, safe='')}/layout") == {}


def test_an_error_is_json_and_never_a_stack_trace(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> None:
        raise RuntimeError(SCRIPT)

    monkeypatch.setattr(app_module.details, "overview", broken)
    answer = browser.http.get("/api/runs/p/a")
    assert answer.status_code == 500 and answer.headers["content-type"] == "application/json"
    assert "RuntimeError" in answer.json()["error"] and "Traceback" not in answer.text and SCRIPT not in answer.text


# -- edits -------------------------------------------------------------------------------------------------


def test_edits_are_kept_beside_the_run_and_its_own_files_stay(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "p" / "a"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    row = browser.http.put(
        "/api/runs/p/a", json={"name": SCRIPT, "tags": ["x"], "pinned": True}, headers=browser.edit
    ).json()
    assert row["name"] == SCRIPT and row["tags"] == ["x"] and row["pinned"] is True
    assert browser.get("/api/runs/p/a")["name"] == SCRIPT
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before
    assert {path.name for path in set(after) - set(before)} == {"curation.json"}


@pytest.mark.parametrize(
    "changes",
    [{"status": "failed"}, {"name": ""}, {"name": 5}, {"tags": "x"}, {"pinned": 1}, [], "x", {"notes": "x" * 200_000}],
)
def test_an_edit_that_does_not_fit_is_refused(browser: Browser, changes: Any) -> None:
    answer = browser.http.put("/api/runs/p/a", json=changes, headers=browser.edit)
    assert answer.status_code == 400 and len(answer.json()["error"]) > 10


def test_a_run_goes_to_the_trash_and_back(browser: Browser, tmp_path: Path) -> None:
    entry = browser.http.delete("/api/runs/p/a", headers=browser.edit).json()["id"]
    assert [row["key"] for row in browser.get("/api/runs")["runs"]] == ["p/b"]
    assert [one["run"] for one in browser.get("/api/trash")["trash"]] == ["a"]
    browser.get("/api/runs/p/a", 404)
    back = browser.http.post(f"/api/trash/{entry}/restore", json={}, headers=browser.edit)
    assert back.status_code == 200 and back.json() == {"key": "p/a"}
    assert browser.get("/api/runs/p/a")["name"] == "a"
    assert browser.http.post("/api/trash/..%5cx/restore", json={}, headers=browser.edit).status_code == 404


def test_a_run_that_is_written_is_not_deleted(tmp_path: Path) -> None:
    run = trained(tmp_path, "a", 3)
    with Browser(tmp_path) as browser:
        answer = browser.http.delete("/api/runs/p/a", headers=browser.edit)
        assert answer.status_code == 400 and "still being written" in answer.json()["error"]
    run.finish()


def test_the_run_that_is_served_itself_is_not_deleted(tmp_path: Path) -> None:
    folder = finished(tmp_path, "a", 3)
    with Browser(folder) as browser:
        assert [row["key"] for row in browser.get("/api/runs")["runs"]] == ["a"]
        answer = browser.http.delete("/api/runs/a", headers=browser.edit)
        assert answer.status_code == 400 and folder.is_dir()
        assert browser.http.put("/api/projects/p/layout", json={}, headers=browser.edit).status_code == 400


def test_what_lies_in_the_trash_comes_back_within_the_folder_only(browser: Browser, tmp_path: Path) -> None:
    entry = browser.http.delete("/api/runs/p/a", headers=browser.edit).json()["id"]
    note = tmp_path / ".trash" / entry / "trash.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"path": "../../stolen"}))
    browser.http.post(f"/api/trash/{entry}/restore", json={}, headers=browser.edit)
    assert not (tmp_path.parent.parent / "stolen").exists() and not (tmp_path.parent / "stolen").exists()


# -- layouts -----------------------------------------------------------------------------------------------


def test_a_layout_is_kept_in_the_projects_folder(browser: Browser, tmp_path: Path) -> None:
    layout = {"panels": [{"name": SCRIPT}], "version": 1}
    assert browser.get("/api/projects/p/layout") == {}
    assert browser.http.put("/api/projects/p/layout", json=layout, headers=browser.edit).json() == layout
    assert browser.get("/api/projects/p/layout") == layout
    assert json.loads((tmp_path / "p" / "barograph-layout.json").read_text()) == layout
    assert [row["key"] for row in browser.get("/api/runs")["runs"]] == ["p/a", "p/b"]


def test_a_layout_has_a_size(browser: Browser) -> None:
    answer = browser.http.put("/api/projects/p/layout", json={"x": "y" * 300_000}, headers=browser.edit)
    assert answer.status_code == 400 and "too large" in answer.json()["error"]
    assert browser.http.put("/api/projects/p/layout", json=[1], headers=browser.edit).status_code == 400


@pytest.mark.parametrize("project", ["%2e%2e", "../..", "/etc", "q", "p/a", "..\\x"])
def test_a_layout_belongs_to_a_project_that_there_is(browser: Browser, project: str) -> None:
    address = f"/api/projects/{quote(project, safe='')}/layout"
    assert browser.http.put(address, json={}, headers=browser.edit).status_code == 404
    assert browser.http.get(address).status_code == 404


def test_a_layout_that_is_a_link_is_neither_read_nor_written_through(browser: Browser, tmp_path: Path) -> None:
    secret = tmp_path.parent / f"{tmp_path.name}-secret.json"
    secret.write_text('{"secret": 1}')
    link = tmp_path / "p" / "barograph-layout.json"
    link.symlink_to(secret)
    assert "secret" not in browser.http.get("/api/projects/p/layout").json()
    browser.http.put("/api/projects/p/layout", json={"mine": 1}, headers=browser.edit)
    assert secret.read_text() == '{"secret": 1}' and not os.path.islink(link)


# -- answers that take long --------------------------------------------------------------------------------


def test_slow_answers_are_worked_out_once_and_kept() -> None:
    slow, gate, times = SlowAnswers(), threading.Event(), []

    def work() -> bytes:
        times.append(1)
        gate.wait(10)
        return b"done"

    with pytest.raises(StillWorking):
        slow.get("k", 1, work, patience=0.05)
    with pytest.raises(StillWorking):
        slow.get("k", 1, work, patience=0.05)
    gate.set()
    assert slow.get("k", 1, work) == b"done" and slow.get("k", 1, work) == b"done" and len(times) == 1
    slow.close()


def test_a_request_while_the_server_ends_is_told_so() -> None:
    slow, gate = SlowAnswers(1), threading.Event()
    first = threading.Thread(target=lambda: slow.get("a", 1, lambda: str(gate.wait(10)).encode()))
    first.start()
    refused: list[str] = []

    def wait_for_a_turn() -> None:
        try:
            slow.get("b", 1, lambda: b"")
        except StillWorking as error:
            refused.append(str(error))

    second = threading.Thread(target=wait_for_a_turn)
    second.start()
    while "b" not in slow._going:
        time.sleep(0.001)
    slow.close()
    second.join(10)
    with pytest.raises(StillWorking, match="the server is ending"):
        slow.get("c", 1, lambda: b"")
    gate.set()
    first.join(10)
    assert refused == ["the server is ending"]


def test_a_slow_answer_that_fails_is_tried_again() -> None:
    slow, tries = SlowAnswers(), []

    def work() -> bytes:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("no")
        return b"yes"

    with pytest.raises(ValueError, match="no"):
        slow.get("k", 1, work)
    assert slow.get("k", 1, work) == b"yes"
    slow.close()


def test_the_head_of_a_run_in_progress_moves_on_while_its_overview_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overview that takes long is made rarely; step, last values and status in the same answer are the newest."""
    slow = app_module.details.overview

    def overview(*given: Any) -> dict[str, Any]:
        time.sleep(0.5)
        return slow(*given)

    monkeypatch.setattr(app_module.details, "overview", overview)
    run = trained(tmp_path, "a", 20)
    with Browser(tmp_path) as browser:
        for step in range(100, 106):
            run.log({"train/loss": float(step)}, step=step)
            found = browser.get("/api/runs/p/a")
            assert found["step"] == step and found["last"]["train/loss"] == step
            assert found["config"] == {} and "goodput" in found
    run.finish()
