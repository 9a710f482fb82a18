"""A run's folder that is deleted, emptied or moved while the run goes on, or after it: each point once, one warning."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.cli import main
from barograph.core import manifest
from barograph.core.record import Record, encode
from barograph.log.read import records_from
from barograph.log.write import JsonLog, mend
from barograph.query.stored import StoredRun
from barograph.store.seal import seal

STEPS, WIDE = 60, 8


def start(root: Path, **options: Any) -> barograph.Run:
    return barograph.init(project="p", id="r", dir=root, verbosity=-2, git=False, config={"lr": 0.5}, **options)


def log(run: barograph.Run, steps: range, wide: bool = True) -> None:
    for step in steps:
        run.log({"loss": float(step)}, step=step)
        if wide:
            run.log_wide({f"act/{n}": float(step) for n in range(WIDE)}, step=step)


def seconds_pass(run: barograph.Run) -> None:
    """As when the next log call is a second later."""
    run._out.second -= 1


def delete_run(folder: Path) -> None:
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def delete(name: str) -> Callable[[Path], None]:
    def work(folder: Path) -> None:
        found = list(folder.glob(name))
        assert found
        for path in found:
            delete_run(path) if path.is_dir() else path.unlink()

    return work


def empty(name: str) -> Callable[[Path], None]:
    def work(folder: Path) -> None:
        found = [path for path in folder.glob(name) if path.is_file()]
        assert found
        for path in found:
            path.write_bytes(b"")

    return work


# what happens to the folder; whether wide rows that were sealed and those that were not are gone with it
ACCIDENTS: dict[str, tuple[Callable[[Path], None], bool, bool]] = {
    "the folder is deleted": (delete_run, True, True),
    "the store is deleted": (delete("store"), True, False),
    "segments are deleted": (delete("segments"), False, False),
    "segments are emptied": (empty("segments/*.json"), False, False),
    "the manifest is deleted": (delete("run_manifest.json"), False, False),
    "the manifest is emptied": (empty("run_manifest.json"), False, False),
    "block files are deleted": (delete("*.wide"), False, True),
    "block files are emptied": (empty("*.wide"), False, True),
    "the log is deleted": (delete("training.json"), False, False),
}


@pytest.mark.parametrize(
    ("what", "sealed"),
    [(what, sealed) for what in ACCIDENTS for sealed in (False, True) if sealed or what != "the store is deleted"],
)
def test_what_is_deleted_under_a_run_comes_back_and_each_point_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, what: str, sealed: bool
) -> None:
    accident, takes_sealed, takes_blocks = ACCIDENTS[what]
    monkeypatch.setattr("barograph.log.blocks.PIECE_BYTES", 1000)
    run = start(tmp_path)
    folder = Path(run.dir)
    log(run, range(20))
    run.rewind(10)
    log(run, range(10, STEPS // 2))
    seconds_pass(run)
    log(run, range(STEPS // 2, STEPS // 2 + 1))
    if sealed:
        assert seal(folder, final=True)
    before = manifest.read(folder)
    assert len(StoredRun(folder).series("act/1")) == STEPS // 2 + 1
    accident(folder)
    log(run, range(STEPS // 2 + 1, STEPS), wide=False)  # perhaps within the second
    seconds_pass(run)
    log(run, range(STEPS, STEPS + 1))
    run.finish()
    stored = StoredRun(folder)
    assert stored.series("loss").value.tolist() == [float(step) for step in range(STEPS + 1)]
    assert stored.status == "finished" and stored.config == {"lr": 0.5}
    assert stored.manifest["created"] == before["created"]
    assert [segment.kind for segment in stored.segments] == ["start", "rewind"]
    json.loads((folder / "training.json").read_bytes())
    rows = stored.series("act/1").step.tolist() if "act/1" in stored.names() else []
    assert len(set(rows)) == len(rows) and rows[-1] == STEPS
    told = [record.message for record in caplog.records if "histograms are gone" in record.message]
    gone = STEPS // 2 + 1 + 10 - (len(stored.series("act/1", branch="all")) - 1)  # ten lie on the old branch
    assert (gone > 0) == ((takes_sealed and sealed) or (takes_blocks and not sealed))
    if gone:
        assert len(told) == 1 and f" {gone} rows or histograms are gone" in told[0]
    else:  # whether a row had been sealed, the writer does not know
        assert all("but for those that were sealed" in message for message in told)
    assert main(["show", "p/r", "--dir", str(tmp_path)]) == 0


@pytest.mark.parametrize("how", [delete, empty])
@pytest.mark.parametrize("what", ["store/training/*.points.parquet", "segments/*.json", "run_manifest.json"])
def test_what_is_deleted_after_a_run_doubles_nothing(tmp_path: Path, what: str, how: Any) -> None:
    run = start(tmp_path)
    log(run, range(20), wide=False)
    run.rewind(10)
    log(run, range(10, 30), wide=False)
    run.finish()
    folder = Path(run.dir)
    seal(folder, final=True)
    how(what)(folder)
    stored = StoredRun(folder)
    assert stored.series("loss").value.tolist() == [float(step) for step in range(30)]


@pytest.mark.parametrize("again", [False, True], ids=["moved", "moved, and another folder in its place"])
def test_a_folder_that_is_moved_is_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture, again: bool) -> None:
    run = start(tmp_path)
    log(run, range(30))
    folder, moved = Path(run.dir), tmp_path / "elsewhere" / "r"
    moved.parent.mkdir()
    folder.rename(moved)
    if again:
        folder.mkdir()
    log(run, range(30, 31), wide=False)
    seconds_pass(run)
    log(run, range(31, STEPS))
    assert run.dir == moved
    run.finish()
    stored = StoredRun(moved)
    assert stored.series("loss").step.tolist() == list(range(STEPS)) and stored.status == "finished"
    assert stored.series("act/1").step.tolist() == [*range(30), *range(31, STEPS)]
    assert list(folder.glob("*")) == []
    assert caplog.text.count("was moved while the run went on") == 1


def test_a_folder_whose_log_is_elsewhere_comes_back_with_the_link(tmp_path: Path) -> None:
    run = start(tmp_path, log_file=str(tmp_path / "out" / "log.json"))
    log(run, range(10), wide=False)
    delete_run(Path(run.dir))
    seconds_pass(run)
    log(run, range(10, 20), wide=False)
    run.finish()
    stored = StoredRun(run.dir)
    assert stored.series("loss").step.tolist() == list(range(20)) and stored.status == "finished"


def test_a_process_beside_the_training_comes_back_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barograph.training.beside._AFTER", 0.0)
    monkeypatch.setattr("barograph.training.beside._LEAVES", 3.0)
    run = start(tmp_path, sidecar=True)
    folder = Path(run.dir)
    beside = run.alerts.beside
    until(run, lambda: list(folder.glob("sidecar-*.lock")) and "at" in next(folder.glob("sidecar-*.lock")).read_text())
    first = beside._process
    delete_run(folder)
    until(run, lambda: beside._process not in (None, first))
    assert first.wait(60) == 0
    until(run, lambda: "packages" in manifest.read(folder))
    run.finish()
    assert beside._process.wait(60) == 0
    assert len(StoredRun(folder).series("loss")) == run._out.next_step


def until(run: barograph.Run, true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        run.log({"loss": 1.0})
        time.sleep(0.05)


def test_a_log_that_is_emptied_is_said_once_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = barograph.init("p", id="r", dir=tmp_path, verbosity=-2, git=False, sidecar=False, machine=False)
    for step in range(100):
        run.log({"loss": float(step)}, step=step)
    os.truncate(run.log_file, 0)
    for step in range(100, 200):
        run.log({"loss": float(step)}, step=step)
        time.sleep(0.025)
    run.finish()
    assert sum("was emptied" in record.message for record in caplog.records) == 1
    assert barograph.StoredRun(run.dir).series("loss").step.tolist() == list(range(100, 200))


def strict(path: Path) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        raise ValueError(word)

    found: list[dict[str, Any]] = json.loads(path.read_bytes(), parse_constant=refuse)
    return found


def losses(path: Path) -> list[int]:
    return [item["step"] for item in strict(path) if "loss" in item]


@pytest.mark.parametrize("before", [1, 30, 4000], ids=["a page", "some pages", "more than is read at once"])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("ended", ["finished", "last thing", "killed"])
def test_a_log_that_was_emptied_is_json_in_the_end_and_holds_what_came_later(
    tmp_path: Path, before: int, times: int, ended: str
) -> None:
    log = JsonLog(tmp_path / "training.json")
    count, later = before, []
    for step in range(before):
        log.append(encode(Record("metrics", 1, step, {"loss": 1.0, "filler": "x" * 300})))
    for _ in range(times):
        os.truncate(log.path, 0)
        later = [] if ended == "last thing" else list(range(count, count + 5))
        for step in later:
            log.append(encode(Record("metrics", 1, step, {"loss": 1.0})))
        count += 5
    if ended == "killed":
        copy = tmp_path / "copy.json"
        copy.write_bytes(log.path.read_bytes())
        assert mend(copy) and not mend(copy)
        assert losses(copy) == later == [record.step for record, _ in records_from(copy)]
    log.close()
    assert losses(log.path) == later and not mend(log.path)
    again = JsonLog(log.path)  # and it can be gone on with
    again.append(encode(Record("metrics", 1, 7_000, {"loss": 1.0})))
    again.close()
    assert losses(log.path) == [*later, 7_000] == [record.step for record, _ in records_from(log.path)]


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "not sealed"])
@pytest.mark.parametrize("began", ["first", "rewound", "resumed"])
def test_what_a_run_logs_behind_an_emptied_log_stays_in_its_segment_and_what_was_sealed_stays(
    tmp_path: Path, began: str, sealed: bool
) -> None:
    run = start(tmp_path, sidecar=False, machine=False)
    log(run, range(100), wide=False)
    first = 100
    if began == "rewound":
        run.rewind(50)
        first = 50
    elif began == "resumed":
        run.finish()
        run = start(tmp_path, sidecar=False, machine=False, resume=True)
    log(run, range(first, 150), wide=False)
    if sealed:
        seal(run.dir, final=True)
    log(run, range(150, 160), wide=False)  # in the log alone: gone
    os.truncate(run.log_file, 0)
    seconds_pass(run)
    log(run, range(160, 200), wide=False)
    wanted = [*(range(150) if sealed else ()), *range(160, 200)]
    assert StoredRun(run.dir).series("loss").step.tolist() == wanted
    run.finish()
    assert losses(Path(run.log_file)) == list(range(160, 200))
    assert StoredRun(run.dir).series("loss").step.tolist() == wanted
    seal(run.dir, final=True)
    assert StoredRun(run.dir).series("loss").step.tolist() == wanted
