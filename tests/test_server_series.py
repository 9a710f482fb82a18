"""Series as the page gets them: the same numbers as `StoredRun.series`, whatever x and branch."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from served_runs import QUIET, Browser, finished, trained

import barograph
from barograph.core import columns
from barograph.query.stored import StoredRun
from barograph.store.seal import seal
from barograph.views.server import series as series_module


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 steps with NaN and infinities, an evaluation each 100 steps, tokens; sealed, and once more not sealed."""
    place = tmp_path_factory.mktemp("runs")
    for name in ("sealed", "open"):
        run = barograph.init(project="p", id=name, dir=str(place), **QUIET)
        for step in range(1000):
            odd = {333: math.nan, 444: math.inf, 555: -math.inf}
            run.log({"train/loss": odd.get(step, math.sin(step)), "train/step_tokens": 8.0 + step % 3}, step=step)
            if step % 100 == 50:
                run.log({"eval/loss": step / 1000}, step=step)
        run.finish()
    seal(place / "p" / "sealed", final=True, wait=True)
    return place


@pytest.fixture
def browser(root: Path) -> Iterator[Browser]:
    with Browser(root) as made:
        yield made


@pytest.mark.parametrize("name", ["sealed", "open"])
@pytest.mark.parametrize("x", ["step", "time", "relative", "eval/loss"])
@pytest.mark.parametrize("metric", ["train/loss", "eval/loss"])
def test_exact_points_are_those_of_the_query_layer(
    browser: Browser, root: Path, name: str, x: str, metric: str
) -> None:
    (entry,) = browser.series((f"p/{name}", metric), x=x, buckets=2000)
    wanted = StoredRun(root / "p" / name).series(metric, x=x)
    good = np.isfinite(wanted.x)
    order = np.argsort(wanted.x[good], kind="stable")
    np.testing.assert_array_equal(entry["columns"]["x"], wanted.x[good][order])
    np.testing.assert_array_equal(entry["columns"]["y"], wanted.value[good][order])
    assert entry["exact"] and entry["total"] == len(wanted) and entry["points"] == good.sum()
    assert entry["last_step"] == wanted.step[-1] and entry["last_value"] == wanted.value[-1]


@pytest.mark.parametrize("tab", ["", "/charts"])
@pytest.mark.parametrize("name", ["sealed", "open"])
def test_the_page_of_a_run_reads_its_losses_ahead(browser: Browser, name: str, tab: str) -> None:
    asked: list[str] = []
    reading = browser.server.reading
    real = reading._read
    reading._read = lambda place, names, *rest: asked.extend(names) or real(place, names, *rest)  # type: ignore
    assert browser.http.get(f"/run/p/{name}{tab}").status_code in (200, 503)  # 503: the page is not built here
    browser.series((f"p/{name}", "train/loss"), (f"p/{name}", "eval/loss"))
    assert sorted(asked) == ["eval/loss", "train/loss"], "read once, ahead, and waited for"


def test_a_page_of_no_run_is_the_page_all_the_same(browser: Browser) -> None:
    whole = browser.http.get("/").status_code
    for path in ("/run/p/none", "/run/", "/run/..%2f..%2fetc", "/run/p/sealed/charts/more"):
        assert browser.http.get(path).status_code in (whole, 404)


def test_tokens_add_up(browser: Browser) -> None:
    (entry,) = browser.series(("p/sealed", "train/loss"), x="tokens", buckets=2000)
    np.testing.assert_array_equal(entry["columns"]["x"], np.cumsum(8.0 + np.arange(1000) % 3))


def test_an_axis_that_the_run_has_not_got_is_a_sentence(browser: Browser) -> None:
    (entry,) = browser.series(("p/sealed", "train/loss"), x="samples")
    assert "can't be drawn over samples" in entry["error"] and entry["columns"] == {}
    (entry,) = browser.series(("p/sealed", "train/loss"), x="train/los")
    assert "nearest is 'train/loss'" in entry["error"]


def test_what_is_not_finite_is_marked(browser: Browser) -> None:
    (entry,) = browser.series(("p/sealed", "train/loss"), buckets=10)
    assert [(mark["step"], mark["kind"]) for mark in entry["marks"]] == [(333, "nan"), (444, "+inf"), (555, "-inf")]
    assert np.isfinite(entry["columns"]["max"]).all()


def test_a_short_name_is_found_and_told_in_full(browser: Browser) -> None:
    (entry,) = browser.series(("p/sealed", "lr"))
    assert "has no series 'lr'" in entry["error"]
    (entry,) = browser.series(("p/sealed", "loss"))
    assert entry["name"] == "train/loss" and entry["points"] == 1000


def test_the_order_asked_for_is_the_order_given_and_errors_stand_alone(browser: Browser) -> None:
    wanted = [("p/open", "eval/loss"), ("p/none", "x"), ("p/sealed", "train/loss"), ("../p/sealed", "train/loss")]
    entries = browser.series(*wanted)
    assert [(one["run"], one["points"]) for one in entries] == [
        ("p/open", 10), ("p/none", 0), ("p/sealed", 1000), ("../p/sealed", 0)
    ]  # fmt: skip
    assert "there is no run" in entries[1]["error"] and "there is no run" in entries[3]["error"]


def test_asking_again_gives_the_same_bytes(browser: Browser) -> None:
    asked = {"series": [{"run": "p/sealed", "name": "train/loss"}], "x": "step", "buckets": 100, "smooth": 0.9}
    first = browser.http.post("/api/series", json=asked).content
    assert browser.http.post("/api/series", json=asked).content == first


def test_new_points_are_there_at_once(tmp_path: Path) -> None:
    run = trained(tmp_path, "live", 20)
    with Browser(tmp_path) as browser:
        assert browser.series(("p/live", "train/loss"))[0]["total"] == 20
        for step in range(20, 25):
            run.log({"train/loss": float(step)}, step=step)
            (entry,) = browser.series(("p/live", "train/loss"))
            assert entry["total"] == step + 1 and entry["last_value"] == step
        run.finish()
        assert browser.series(("p/live", "train/loss"))[0]["total"] == 25


def test_a_rewind_leaves_an_old_branch(tmp_path: Path) -> None:
    run = trained(tmp_path, "a", 50)
    run.rewind(30)
    for step in range(30, 40):
        run.log({"train/loss": 100.0 + step}, step=step)
    run.finish()
    with Browser(tmp_path) as browser:
        (live,) = browser.series(("p/a", "train/loss"))
        assert live["total"] == 40 and live["columns"]["y"][-1] == 139.0 and "old" not in live
        (entry,) = browser.series(("p/a", "train/loss"), branch="all")
        np.testing.assert_array_equal(entry["columns"]["y"], live["columns"]["y"])
        (old,) = entry["old"]
        assert old["columns"]["x"].tolist() == list(range(30, 50)) and old["columns"]["y"][0] == 3.0 - 30 / 50


def test_a_fork_has_the_history_before_it(tmp_path: Path) -> None:
    finished(tmp_path, "a", 30)
    folder = finished(tmp_path, "b", 40)
    path = folder / "segments" / "0001.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"source": str(tmp_path / "p" / "a"), "start_step": 0, "kind": "fork"}))
    with Browser(tmp_path) as browser:
        (entry,) = browser.series(("p/b", "train/loss"), branch="all")
        wanted = StoredRun(folder).series("train/loss", branch="all")
        np.testing.assert_array_equal(entry["columns"]["y"], wanted.value)


def test_one_ranks_points_alone(tmp_path: Path) -> None:
    finished(tmp_path, "a", 10)
    with Browser(tmp_path) as browser:
        asked = {"series": [{"run": "p/a", "name": "train/loss", "rank": rank} for rank in (0, 7)]}
        answer = browser.http.post("/api/series", json=asked)
        assert answer.status_code == 200
        header = json.loads(answer.content[4 : 4 + int.from_bytes(answer.content[:4], "little")])
        assert header["series"][0]["total"] == 10 and header["series"][1]["points"] == 0


@pytest.mark.parametrize(
    "asked",
    [
        {}, {"series": 5}, {"series": [{}]}, {"series": [], "buckets": 0}, {"series": [], "buckets": 4001},
        {"series": [], "smooth": 1.0}, {"series": [], "smooth": -0.1}, {"series": [], "branch": "dead"},
        {"series": [], "from": "x"}, {"series": [{"run": "a", "name": "b"}] * 501},
        {"series": [{"run": "a", "name": "b"}] * 400, "buckets": 4000}, {"series": [], "x": 7}, [],
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_a_sentence(browser: Browser, asked: object) -> None:
    answer = browser.http.post("/api/series", json=asked)
    assert answer.status_code == 400 and len(answer.json()["error"]) > 10


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"series":' * 1000, b'{"series": [], "from": 1e999}', b"NaN"])
def test_a_body_that_is_no_json_is_a_sentence(browser: Browser, body: bytes) -> None:
    answer = browser.http.post("/api/series", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and "error" in answer.json()


def test_reading_that_takes_too_long_is_left_out_with_a_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_module, "_SECONDS", -1.0)
    with Browser(root) as browser:
        (entry,) = browser.series(("p/sealed", "train/loss"))
        assert "took too long" in entry["error"]


def test_columns_are_packed_without_losing_a_bit() -> None:
    from barograph.views.server.reading import _Packed

    random = np.random.default_rng(0)
    for step in (np.arange(0, 900, 3), np.sort(random.integers(0, 99, 300)), np.array([5]), np.empty(0, np.int64)):
        for value in (random.standard_normal(len(step)), random.standard_normal(len(step)).astype(np.float32) * 1.0):
            made = _Packed(True)
            for piece in (slice(0, 100), slice(100, 101), slice(101, None)):
                made.add(step[piece], value[piece], step[piece] * 7)
            points = made.close().points()
            np.testing.assert_array_equal(points.step, step)
            np.testing.assert_array_equal(points.value, value)
            assert made.count == len(step) and made.is_sorted
    assert made.bytes >= 500
    evenly = _Packed(False)
    evenly.add(np.arange(100_000), np.arange(100_000, dtype=np.float64), None)
    assert evenly.close().bytes < 100_000 * 4 + 1000, "single precision, and no steps"


@pytest.mark.parametrize("text", ["train/loss - eval/loss", "ema(train/loss, 0.9) * 2", "eval/loss / train/loss"])
@pytest.mark.parametrize("x", ["step", "time", "tokens", "eval/loss", "eval/loss * 2"])
def test_expressions_are_those_of_the_query_layer(browser: Browser, root: Path, text: str, x: str) -> None:
    (entry,) = browser.series(("p/sealed", text), x=x, buckets=2000)
    wanted = StoredRun(root / "p" / "sealed").series(text, x=x)
    good = np.isfinite(wanted.x)
    order = np.argsort(wanted.x[good], kind="stable")
    np.testing.assert_array_equal(entry["columns"]["x"], wanted.x[good][order])
    np.testing.assert_array_equal(entry["columns"]["y"], wanted.value[good][order])
    (narrow,) = browser.series(("p/sealed", text), x=x, buckets=3)
    finite = wanted.value[good][np.isfinite(wanted.value[good])]
    if not narrow["exact"]:
        assert np.nanmin(narrow["columns"]["min"]) == finite.min()
        assert np.nanmax(narrow["columns"]["max"]) == finite.max()


def test_an_expression_that_can_not_be_read_is_a_sentence(browser: Browser) -> None:
    bad, missing = browser.series(("p/sealed", "ema(train/loss"), ("p/sealed", "train/loss - nothing/here"))
    assert "expected )" in bad["error"]
    assert "no series 'nothing/here'" in missing["error"]


@pytest.mark.parametrize("kind", ["mean:25", "gaussian:9", "0.9"])
def test_kinds_of_smoothing_are_those_of_the_columns(browser: Browser, root: Path, kind: str) -> None:
    (entry,) = browser.series(("p/sealed", "eval/loss"), smooth=kind)
    (other,) = browser.series(("p/sealed", "train/loss"), smooth=kind, buckets=2000)
    smoother = columns.smoother(kind)
    assert smoother is not None
    for made, name in ((entry, "eval/loss"), (other, "train/loss")):
        wanted = smoother(StoredRun(root / "p" / "sealed").series(name).value)
        np.testing.assert_array_equal(made["columns"]["smooth"], wanted)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("x", ["step", "tokens"])
def test_the_points_of_a_chart_are_those_that_were_logged(browser: Browser, root: Path, kind: str, x: str) -> None:
    low, high = (100, 700) if x == "step" else (900, 6000)
    asked = {"series": [{"run": "p/sealed", "name": "train/loss"}], "x": x, "from": low, "to": high, "buckets": 10}
    answer = browser.http.post(f"/api/series/points?format={kind}", json=asked)
    assert answer.status_code == 200, answer.text
    wanted = StoredRun(root / "p" / "sealed").series("train/loss", x=x)
    inside = (wanted.x >= low) & (wanted.x <= high)
    if kind == "parquet":
        table = pyarrow.parquet.read_table(io.BytesIO(answer.content))
        steps, values, times = (
            table["step"].to_numpy(),
            table["value"].to_numpy(),
            table["time"].cast("int64").to_numpy(),
        )
        np.testing.assert_array_equal(times / 1e6, wanted.time[inside])
    else:
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        assert rows[0]["run"] == "p/sealed" and rows[0]["name"] == "train/loss"
        assert rows[0]["time"].startswith("20") and (("x" in rows[0]) == (x != "step"))
        steps, values = np.array([int(row["step"]) for row in rows]), np.array([float(row["value"]) for row in rows])
    np.testing.assert_array_equal(steps, wanted.step[inside])
    np.testing.assert_array_equal(values, wanted.value[inside])


def test_points_of_nothing_are_refused_with_a_sentence(browser: Browser) -> None:
    ask = {"series": [{"run": "p/sealed", "name": "no/such"}]}
    missing = browser.http.post("/api/series/points", json=ask)
    assert missing.status_code == 404 and "no series 'no/such'" in missing.json()["error"]
    assert browser.http.post("/api/series/points?format=xls", json=ask).status_code == 400
