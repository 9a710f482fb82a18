"""MLPerf's result logs: every number at its place, hyper-parameters once, the end as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barograph.core.manifest import read as read_manifest
from barograph.importing.collect import collect
from barograph.importing.registry import identify
from barograph.importing.source import Fact, FoundRun, ImportedPoints, ImportMark, Item, Restart, Unread
from barograph.importing.textlogs.mlperf import SOURCE
from barograph.query.stored import StoredRun

LOG = Path(__file__).parent / "mlperf" / "result_0.txt"
LINE = ':::MLLOG {"time_ms": %d, "event_type": "%s", "key": "%s", "value": %s, "metadata": {%s}}\n'


def rows(items: list[Item]) -> dict[str, list[tuple[str, int, float]]]:
    found: dict[str, list[tuple[str, int, float]]] = {}
    for one in items:
        if isinstance(one, ImportedPoints):
            for column, name in enumerate(one.names):
                values = zip(one.steps.tolist(), one.values[:, column].tolist(), strict=True)
                found.setdefault(name, []).extend((one.x, step, value) for step, value in values)
    return found


def read(path: Path, since: ImportMark | None = None) -> list[Item]:
    return list(SOURCE.read(FoundRun("mlperf", path, "", "x"), since))


def test_numbers_stand_where_their_metadata_says(tmp_path: Path) -> None:
    ((source, found),) = identify(LOG)
    assert source.kind == "mlperf" and found.created == 1759984116.164
    items = list(source.read(found))
    assert rows(items) == {
        "train_loss": [("step", 10, 9.5), ("step", 20, 8.25)],
        "throughput": [("samples", 640, 30.5)],  # its "step" is the count of samples of the block around it
        "eval_loss": [("samples", 640, 5.73), ("samples", 1280, 4.55)],
    }
    facts = {one.kind: one for one in items if isinstance(one, Fact)}
    assert facts["end"].fields == {"status": "finished", "wall_seconds": 10.5} and facts["end"].step == 1280
    [unread] = [one for one in items if isinstance(one, Unread)]
    assert unread.where == 16 and "train_loss" in unread.text


def test_it_is_imported_with_its_hyper_parameters_and_names(tmp_path: Path) -> None:
    ((source, found),) = identify(LOG)
    folder, tally = collect(source, found, tmp_path)
    run = StoredRun(folder)
    assert run.series("train/loss").value.tolist() == [9.5, 8.25]
    assert run.series("eval/loss").step.tolist() == [640, 1280]
    assert run.series("train/samples_per_second").value.tolist() == [30.5]
    about = read_manifest(folder)
    assert about["config"]["global_batch_size"] == 32 and about["config"]["submission_benchmark"] == "llama31_8b"
    assert about["status"] == "finished" and about["source"]["x"]["eval/loss"] == "samples"
    assert tally.unread == 1 and not collect(source, found, tmp_path)[1].added


def test_an_accuracy_of_another_benchmark_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text(
        LINE % (1_000_000, "POINT_IN_TIME", "submission_benchmark", '"resnet"', "")
        + LINE % (1_000_001, "POINT_IN_TIME", "eval_accuracy", "0.759", '"epoch_num": 35')
        + LINE % (1_000_002, "INTERVAL_END", "run_stop", "null", '"status": "aborted"')
    )
    items = read(path)
    assert rows(items) == {"eval_accuracy": [("epoch", 35, 0.759)]}
    assert [one.fields for one in items if isinstance(one, Fact)][-1] == {"status": "failed"}


def test_it_goes_on_where_it_stood_and_a_second_start_is_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    start = LINE % (1_000_000, "INTERVAL_START", "run_start", "null", "")
    first = start + LINE % (1_000_001, "POINT_IN_TIME", "train_loss", "3.5", '"step": 1')
    path.write_text(first + ":::MLLOG {")
    before = read(path)
    assert rows(before) == {"train_loss": [("step", 1, 3.5)]} and not [o for o in before if isinstance(o, Unread)]
    path.write_text(first + start + LINE % (1_000_009, "POINT_IN_TIME", "train_loss", "3.25", '"step": 0'))
    after = read(path, before[-1])  # type: ignore[arg-type]
    assert rows(after) == {"train_loss": [("step", 0, 3.25)]}
    assert [one.step for one in after if isinstance(one, Restart)] == [0]


def test_a_last_line_that_is_whole_needs_no_line_break(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text(LINE % (1_000_001, "POINT_IN_TIME", "train_loss", "3.5", '"step": 1') + ":::MLLOG {}")
    before = read(path)
    assert not [one for one in before if isinstance(one, Unread)]
    path.write_text((LINE % (1_000_001, "POINT_IN_TIME", "train_loss", "3.5", '"step": 1')) * 2)
    whole = path.read_text().rstrip().replace("1}}", "2}}").replace("2}}", "1}}", 1)
    path.write_text(whole)
    items = read(path)
    assert rows(items) == {"train_loss": [("step", 1, 3.5), ("step", 2, 3.5)]}
    path.write_text(whole + "\n")
    assert not rows(read(path, items[-1]))  # type: ignore[arg-type]


@pytest.mark.skipif("BAROGRAPH_REALLOGS" not in os.environ, reason="needs the folder of real logs")
def test_real_results_come_in() -> None:
    found = [(s, f) for s, f in identify(os.environ["BAROGRAPH_REALLOGS"]) if s.kind == "mlperf"]
    assert found
    for source, one in found:
        items = list(source.read(one))
        assert len(rows(items)["eval_loss"]) == 16 and not [o for o in items if isinstance(o, Unread)]
