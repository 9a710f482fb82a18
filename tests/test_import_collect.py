"""The collector stores what a source reads: once, whole, in order, whatever interrupts it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked_python
import numpy
import pytest

from barograph.core.aliases import Alias
from barograph.importing import collect as collecting
from barograph.importing import folders
from barograph.importing.collect import Collector, SourceFailed, collect
from barograph.importing.source import (
    Fact,
    FoundRun,
    ImportedDistribution,
    ImportedPoints,
    ImportMark,
    Item,
    Restart,
    Unread,
)
from barograph.query.catalog import runs
from barograph.query.stored import StoredRun

START = 1_700_000_000_000_000


class Script:
    """A source that says what a test wrote down; a mark counts the items."""

    kind = "script"
    about = "for tests"

    def __init__(self, items: list[Item]):
        self.items = items

    def find(self, path: Path, head: bytes) -> list[FoundRun]:
        return []

    def read(self, found: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        begin = since.state["items"] if since else 0
        for number, item in enumerate(self.items[begin:], begin + 1):
            yield item
            yield ImportMark({"items": number})
        yield ImportMark({"items": max(begin, len(self.items))})


def points(first: int, count: int, names: tuple[str, ...] = ("loss", "lr"), x: str = "step") -> ImportedPoints:
    steps = numpy.arange(first, first + count)
    values = numpy.stack([steps + column / 10 for column in range(len(names))], axis=1)
    return ImportedPoints(names, steps, START + steps * 1000, values, x)


@pytest.fixture
def found(tmp_path: Path) -> FoundRun:
    path = tmp_path / "train.log"
    path.write_text("the first line\n" * 100)
    return FoundRun("script", path, "", "my run", config={"width": 8})


def test_points_facts_histograms_and_what_was_not_understood_are_a_stored_run(found: FoundRun, tmp_path: Path) -> None:
    items: list[Item] = [
        Fact("option", 0, START, {"name": "lr", "value": 0.1}),
        Fact("cmd", 0, START, {"cmd": ["python", "train.py"]}),
        points(0, 100),
        Fact("eval", 50, START, {"loss": 3.5, "duration_ms": 10.0, "eval_tokens": 1000}),
        Fact("sample", 50, START, {"prompt": "a", "text": "b"}),
        ImportedDistribution("weights", 7, START, numpy.arange(4.0), numpy.array([1.0, 2.0, 3.0])),
        Unread(found.path, 3, "?" * 1000, "not a row"),
    ]
    folder, tally = collect(Script(items), found, tmp_path / "runs")
    run = StoredRun(folder)
    assert (run.name, run.project, run.status) == ("my run", "imported", "imported")
    assert run.config == {"width": 8, "lr": 0.1} and run.manifest["command"] == ["python", "train.py"]
    assert run.series("train/loss").value.tolist() == [float(step) for step in range(100)]
    assert run.series("train/loss").time[1] == pytest.approx(START / 1e6 + 0.001)
    assert run.series("eval/loss").value.tolist() == [3.5]
    assert run.series("eval/tokens_per_second").value.tolist() == [100_000.0]
    assert [one.counts.tolist() for one in run.histograms("weights")] == [[1.0, 2.0, 3.0]]
    assert [record.fields["text"] for record in run.records("sample")] == ["b"]
    source = run.manifest["source"]
    assert source["names"] == {"train/loss": "loss", "train/lr": "lr"}
    assert source["unread"]["count"] == 1 and len(source["unread"]["examples"][0]["text"]) == 160
    assert source["kind"] == "script" and source["path"] == str(found.path.resolve())
    assert run.manifest["final_metrics"]["train/loss"] == 99 and run.manifest["final_metrics"]["step"] == 99
    assert (tally.points, tally.rows, tally.facts, tally.histograms) == (204, 100, 4, 1)


def test_importing_again_adds_only_what_is_new(found: FoundRun, tmp_path: Path) -> None:
    source = Script([points(0, 100)])
    folder, _ = collect(source, found, tmp_path)
    before = (folder / "training.json").read_bytes()
    again, tally = collect(source, found, tmp_path)
    assert again == folder and tally.added == 0 and (folder / "training.json").read_bytes() == before
    source.items += [points(100, 5), Unread(found.path, 9, "", "why")]
    _, tally = collect(source, found, tmp_path)
    assert tally.points == 10 and tally.unread == 1
    assert StoredRun(folder).series("train/loss").step.tolist() == list(range(105))
    assert len(runs(tmp_path)) == 1


def test_a_file_that_was_replaced_is_another_run_and_the_first_stays(found: FoundRun, tmp_path: Path) -> None:
    folder, _ = collect(Script([points(0, 10)]), found, tmp_path)
    found.path.write_text("quite another file\n" * 100)
    second, tally = collect(Script([points(0, 3)]), found, tmp_path)
    assert second != folder and tally.replaced
    assert len(StoredRun(folder).series("train/loss")) == 10 and len(StoredRun(second).series("train/loss")) == 3
    assert StoredRun(folder).manifest["superseded_by"] == second.name
    assert collect(Script([points(0, 3)]), found, tmp_path)[0] == second


def test_a_file_that_has_grown_or_was_copied_is_the_same(found: FoundRun, tmp_path: Path) -> None:
    folder, _ = collect(Script([points(0, 10)]), found, tmp_path)
    text = found.path.read_text() + "one more line\n"
    found.path.unlink()  # another inode
    found.path.write_text(text)
    assert collect(Script([points(0, 10)]), found, tmp_path)[0] == folder


def test_a_source_that_finds_something_else_begins_anew_by_an_empty_mark(found: FoundRun, tmp_path: Path) -> None:
    class Rewritten(Script):
        rewrites = True

        def read(self, found: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
            if since is not None:
                yield ImportMark({})
            yield from super().read(found, None)

    folder, _ = collect(Rewritten([points(0, 10)]), found, tmp_path)
    second, tally = collect(Rewritten([points(0, 4)]), found, tmp_path)
    assert second != folder and tally.replaced and len(StoredRun(second).series("train/loss")) == 4


def test_a_restart_supersedes_and_the_old_branch_stays_visible(found: FoundRun, tmp_path: Path) -> None:
    late = points(5, 3)._replace(values=numpy.full((3, 2), 100.0))
    source = Script([points(0, 10), Restart(5, START)])
    collect(source, found, tmp_path)
    source.items.append(late)
    folder, _ = collect(source, found, tmp_path)
    run = StoredRun(folder)
    assert run.series("train/loss").value.tolist() == [0, 1, 2, 3, 4, 100, 100, 100]
    assert len(run.series("train/loss", branch="all")) == 13
    assert [(one.number, one.parent, one.start_step) for one in run.segments] == [(1, None, None), (2, 1, 5)]


def test_two_originals_of_one_name_never_share_a_series_also_over_imports(found: FoundRun, tmp_path: Path) -> None:
    source = Script([points(0, 3, ("loss",))])
    collect(source, found, tmp_path)
    source.items += [points(0, 4, ("train_loss",)), points(0, 5, ("train/loss",))]
    folder, _ = collect(source, found, tmp_path)
    run = StoredRun(folder)
    lengths = {name: len(run.series(name)) for name in run.names()}
    assert lengths == {"train/loss": 3, "train_loss": 4, "train/loss#2": 5}


def test_units_are_converted_where_the_name_says_them_and_that_is_told(found: FoundRun, tmp_path: Path) -> None:
    source = Script([points(1, 3, ("step_time_sec", "wonder"))])
    folder, _ = collect(source, found, tmp_path, aliases={"wonder": Alias("data/wonder", 2.0)})
    run = StoredRun(folder)
    assert run.series("train/duration_ms").value.tolist() == [1000.0, 2000.0, 3000.0]
    assert run.series("data/wonder").value.tolist() == [2.2, 4.2, 6.2]
    told = run.manifest["source"]["conversions"]
    assert told == ["step_time_sec × 1000 → train/duration_ms", "wonder × 2 → data/wonder"]
    source.items.append(points(4, 1, ("step_time_sec", "wonder")))
    collect(source, found, tmp_path)  # the alias of the first import holds on
    assert run.series("data/wonder").value.tolist() == [2.2, 4.2, 6.2, 8.2]


def test_steps_that_count_something_else_are_told(found: FoundRun, tmp_path: Path) -> None:
    folder, _ = collect(Script([points(0, 3, x="samples"), points(0, 3, ("acc",))]), found, tmp_path)
    assert StoredRun(folder).manifest["source"]["x"] == {"train/loss": "samples", "train/lr": "samples"}


def test_rows_of_small_sources_are_records_too_and_of_large_ones_none(
    found: FoundRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Script([points(0, 8), points(8, 8, ("loss", "val_loss", "other"))])
    run = StoredRun(collect(source, found, tmp_path)[0])
    assert [record.step for record in run.records("step")] == list(range(16))
    assert [record.step for record in run.records("eval")] == list(range(8, 16))
    assert next(record.fields for record in run.records("metrics")) == {"other": 8.2}
    monkeypatch.setattr(collecting, "LOGGED_BYTES", 10)
    run = StoredRun(collect(source, found, tmp_path, project="large")[0])
    assert not list(run.records("step", "eval", "metrics")) and len(run.series("train/loss")) == 16


def test_no_point_is_there_twice_while_rows_stand_in_the_log_and_wait_for_the_store(
    found: FoundRun, tmp_path: Path
) -> None:
    source = Script([points(0, 10)])
    with Collector(source, found, tmp_path, live=True) as collector:
        for count in range(1, 5):
            collector.read()
            assert StoredRun(collector.folder).series("train/loss").step.tolist() == list(range(10 * count))
            source.items.append(points(10 * count, 10))
        collector.tell("running")
        assert StoredRun(collector.folder).status == "running"
        assert len(list(StoredRun(collector.folder).records("step"))) == 40
        collector.finish()
    assert StoredRun(collector.folder).status == "imported"


def test_a_source_that_fails_keeps_what_came_before_its_last_mark(found: FoundRun, tmp_path: Path) -> None:
    class Failing(Script):
        def read(self, found: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
            yield points(0, 10)
            yield ImportMark({"items": 1})
            time.sleep(0)
            yield points(10, 10)
            raise RuntimeError("a mistake")

    with Collector(Failing([]), found, tmp_path) as collector:
        collector._committed_at -= 10  # the first mark is due
        with pytest.raises(SourceFailed, match="a mistake"):
            collector.read()
        folder = collector.finish("it failed")
    run = StoredRun(folder)
    assert (
        run.series("train/loss").step.tolist() == list(range(10)) and run.manifest["source"]["failure"] == "it failed"
    )
    collect(Script([points(0, 10), points(10, 10)]), found, tmp_path)
    assert run.series("train/loss").step.tolist() == list(range(20))


def test_a_source_without_a_mark_at_its_end_is_a_mistake(found: FoundRun, tmp_path: Path) -> None:
    class Endless(Script):
        def read(self, found: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
            yield points(0, 10)

    _, tally = collect(Endless([]), found, tmp_path)
    assert "ended without a mark" in tally.failure


def test_a_run_being_imported_is_left_to_the_other_import(found: FoundRun, tmp_path: Path) -> None:
    with Collector(Script([points(0, 3)]), found, tmp_path), pytest.raises(folders.FolderBusy, match="another process"):
        Collector(Script([points(0, 3)]), found, tmp_path)
    assert collect(Script([points(0, 3)]), found, tmp_path)[1].points == 6


def test_a_damaged_import_is_begun_anew(found: FoundRun, tmp_path: Path) -> None:
    folder, _ = collect(Script([points(0, 10)]), found, tmp_path)
    (folder / "training.json").unlink()
    second, _ = collect(Script([points(0, 10)]), found, tmp_path)
    assert second != folder and len(StoredRun(second).series("train/loss")) == 10


def test_a_run_of_facts_alone_is_a_run(found: FoundRun, tmp_path: Path) -> None:
    folder, _ = collect(Script([Fact("info", 0, 0, {"message": "hello"})]), found, tmp_path)
    again, tally = collect(Script([Fact("info", 0, 0, {"message": "hello"})]), found, tmp_path)
    assert again == folder and tally.added == 0 and StoredRun(folder).names() == []


def test_an_end_that_the_source_tells_is_the_status_also_at_the_next_import(found: FoundRun, tmp_path: Path) -> None:
    source = Script([points(0, 3), Fact("end", 2, START, {"status": "finished", "wall_seconds": 60.0})])
    folder, _ = collect(source, found, tmp_path)
    collect(source, found, tmp_path)
    about = StoredRun(folder).manifest
    assert about["status"] == "finished" and about["wall_seconds"] == 60.0


PROGRAM = """
import sys
from pathlib import Path
from barograph.importing import collect as collecting, tables
collecting.COMMIT_POINTS = 400
tables._CHUNK = 4096
path, root = map(Path, sys.argv[1:])
head = path.read_bytes()[:65536]
found = tables.SOURCES[0].find(path, head)[0]
try:
    collecting.collect(tables.SOURCES[0], found, root)
except collecting.folders.FolderBusy:
    sys.exit(3)
"""


def write_lines(path: Path, count: int) -> None:
    with open(path, "w") as file:
        for step in range(count):
            row: dict[str, Any] = {"step": step, "loss": step / 7, "note": "same"}
            if step % 10 == 0:
                row["val_loss"] = step / 3
            file.write(json.dumps(row) + "\n")


def check_lines(root: Path, count: int) -> None:
    (run,) = runs(root)
    series = run.series("train/loss", branch="all")
    assert series.step.tolist() == list(range(count))
    assert series.value.tolist() == [step / 7 for step in range(count)]
    assert run.series("eval/loss", branch="all").step.tolist() == list(range(0, count, 10))
    assert len(list(run.records("option"))) == 1 and run.problems == []
    json.loads((run.dir / "training.json").read_bytes())


@pytest.mark.slow
def test_an_import_killed_anywhere_goes_on_and_loses_and_doubles_nothing(tmp_path: Path) -> None:
    path, root, count = tmp_path / "rows.jsonl", tmp_path / "runs", 60_000
    write_lines(path, count)
    chance, killed = random.Random(7), 0
    for _ in range(60):
        # forked, so that it is killed while it imports rows, and not modules
        needs = ("numpy", "pyarrow.parquet")
        process = forked_python.start(sys.executable, "-c", PROGRAM, str(path), str(root), needs=needs)
        try:
            process.wait(0.1 + chance.random() * 0.5)
            assert process.returncode == 0
            break
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
    else:
        subprocess.run([sys.executable, "-c", PROGRAM, str(path), str(root)], check=True)
    assert killed >= 3
    check_lines(root, count)


@pytest.mark.slow
def test_imports_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    path, root = tmp_path / "rows.jsonl", tmp_path / "runs"
    write_lines(path, 5000)
    command = [sys.executable, "-c", PROGRAM, str(path), str(root)]
    processes = [subprocess.Popen(command) for _ in range(4)]
    codes = sorted(process.wait(60) for process in processes)
    assert codes[0] == 0 and set(codes) <= {0, 3}
    check_lines(root, 5000)


def test_the_log_file_has_its_records_in_the_order_of_their_steps(found: FoundRun, tmp_path: Path) -> None:
    items: list[Item] = [
        Fact("info", 0, START, {"message": "first"}),
        points(0, 6),
        Fact("sample", 3, START + 3000, {"text": "x"}),
        points(2, 2, ("val_loss",)),
        Restart(4, START + 6000),
        points(4, 2),
    ]
    folder, _ = collect(Script(items), found, tmp_path)
    kinds = ("step", "eval", "sample", "segment", "info")
    told = [(record.kind, record.step) for record in StoredRun(folder).records(*kinds)]
    assert told[:-1] == [
        ("segment", 0), ("info", 0), ("step", 0), ("step", 1), ("step", 2), ("eval", 2), ("step", 3), ("sample", 3),
        ("eval", 3), ("step", 4), ("step", 5), ("segment", 4), ("step", 4), ("step", 5),
    ]  # fmt: skip
    assert StoredRun(folder).goodput().wall == pytest.approx(0.006, abs=0.002)
