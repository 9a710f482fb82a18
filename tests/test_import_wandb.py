"""W&B's offline runs come in whole: what the real library wrote, torn, damaged, or without their `.wandb` file."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire_format import field, history, item, leveldb_log

from barograph.importing import wandb_rows
from barograph.importing.leveldb import Batch, read_batches
from barograph.importing.source import Fact, FoundRun, ImportedDistribution, ImportedPoints, ImportMark, Item, Unread
from barograph.importing.wandb_offline import SOURCE

SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)

PROGRAM = """
import os, sys
os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=sys.argv[1], WANDB_ERROR_REPORTING="false")
import wandb
run = wandb.init(project="proj", name="my run", config={"lr": 3e-4, "model": {"depth": 12}}, tags=["x", "y"],
                 notes="some notes", settings=wandb.Settings(x_disable_machine_info=True))
run.define_metric("tok/*", step_metric="tokens")
print("hello world")
run.config.update({"late": 5})
for step in range(500):
    row = {"train/loss": 3 / (step + 1), "train/lr": 1e-4 * step, "tokens": 1000 * step, "tok/loss": 1.5 + step,
           "nest": {"a": step, "b": {"c": 0.5}}, "on": step % 2 == 0, "who": f"text {step}"}
    if step % 100 == 0:
        row |= {"bad": float("nan"), "worse": float("-inf"), "none": None, "eval/loss": 0.25,
                "hist": wandb.Histogram(np_histogram=([1, 2, 3], [0.0, 1.0, 2.0, 4.0])), "page": wandb.Html("<b>x</b>")}
    run.log(row)
run.alert("title", "text")
run.summary["best"] = 0.125
run.finish(exit_code=3)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that the real library has written."""
    place = tmp_path_factory.mktemp("wandb")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    subprocess.run([sys.executable, "-c", PROGRAM, str(place)], check=True, capture_output=True, env=environment)
    (found,) = place.glob("wandb/offline-run-*")
    return found


def find(path: Path) -> list[FoundRun]:
    return list(SOURCE.find(path, path.read_bytes()[:65536] if path.is_file() else b""))


def items(path: Path, since: ImportMark | None = None) -> list[Item]:
    (found,) = find(path)
    return list(SOURCE.read(found, since))


def rows(read: list[Item]) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for one in read:
        if isinstance(one, ImportedPoints):
            for column, name in enumerate(one.names):
                pairs = zip(one.steps.tolist(), one.values[:, column].tolist(), strict=True)
                found.setdefault(name, []).extend(pairs)
    return found


def facts(read: list[Item], kind: str) -> list[dict[str, Any]]:
    return [one.fields for one in read if isinstance(one, Fact) and one.kind == kind]


def log(path: Path, *records: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(leveldb_log(list(records)))
    return path


def test_the_run_is_found_with_its_name_and_configuration(folder: Path) -> None:
    (found,) = find(folder)
    assert (found.name, found.project, found.notes, found.tags) == ("my run", "proj", "some notes", ("x", "y"))
    assert found.config == {"lr": 3e-4, "model": {"depth": 12}}
    assert found.created > 1.7e9 and found.status == "failed" and len(found.key) == 8
    (file,) = folder.glob("*.wandb")
    assert find(file)[0].key == found.key
    assert not find(folder.parent)


def test_every_value_of_the_history_is_there(folder: Path) -> None:
    read = items(folder)
    mine = rows(read)
    assert mine["train/loss"] == [(step, 3 / (step + 1)) for step in range(500)]
    assert mine["train/lr"] == [(step, 1e-4 * step) for step in range(500)]
    assert mine["nest.a"] == [(step, step) for step in range(500)] and mine["nest.b.c"][0] == (0, 0.5)
    assert mine["on"][:2] == [(0, 1.0), (1, 0.0)]
    assert mine["eval/loss"] == [(step, 0.25) for step in range(0, 500, 100)]
    assert len(mine["bad"]) == 5 and math.isnan(mine["bad"][0][1]) and mine["worse"][0][1] == -math.inf
    assert not {"none", "_step", "_timestamp", "_runtime"} & mine.keys()
    times = np.concatenate([one.times for one in read if isinstance(one, ImportedPoints)])
    assert times.min() > 1.7e15


def test_define_metric_says_what_steps_count(folder: Path) -> None:
    points = [one for one in items(folder) if isinstance(one, ImportedPoints) and "tok/loss" in one.names]
    assert {one.x for one in points} == {"tokens"}
    assert sorted(rows(points)["tok/loss"]) == [(1000 * step, 1.5 + step) for step in range(500)]


def test_what_is_no_number_is_a_fact_a_histogram_or_counted(folder: Path) -> None:
    read = items(folder)
    assert {"who": "text 7"} in facts(read, "metrics")
    histograms = [one for one in read if isinstance(one, ImportedDistribution)]
    assert [one.step for one in histograms] == [0, 100, 200, 300, 400]
    assert histograms[0].edges.tolist() == [0, 1, 2, 4] and histograms[0].counts.tolist() == [1, 2, 3]
    pages = facts(read, "media")
    assert len(pages) == 5 and {page["type"] for page in pages} == {"file"}
    assert not [one for one in read if isinstance(one, Unread)]


def test_console_configuration_alerts_and_the_end_come_too(folder: Path) -> None:
    read = items(folder)
    assert {"type": "stdout", "message": "hello world"} in facts(read, "info")
    assert {"type": "alert", "message": "title: text"} in facts(read, "info")
    assert facts(read, "option") == [{"name": "late", "value": 5}]
    assert {"summary/best": 0.125} in facts(read, "metrics")
    (end,) = facts(read, "end")
    assert end["status"] == "failed" and end["exit_code"] == 3
    assert isinstance(read[-1], ImportMark)


def test_a_growing_file_is_read_once_whatever_the_moments_of_reading(folder: Path, tmp_path: Path) -> None:
    (file,) = folder.glob("*.wandb")
    whole, mark, got = file.read_bytes(), None, []
    path = tmp_path / "run-x.wandb"
    for end in [*range(10_000, len(whole), 30_011), len(whole)]:
        path.write_bytes(whole[:end])
        read = items(path, mark)
        got += read
        assert isinstance(read[-1], ImportMark)
        mark = ImportMark(json.loads(json.dumps(read[-1].state)))
    at_once = items(file)
    for name, values in rows(at_once).items():
        assert str(rows(got)[name]) == str(values), name
    for kind in ("end", "option", "info"):
        assert facts(got, kind) == facts(at_once, kind)
    assert sorted(map(str, facts(got, "metrics"))) == sorted(map(str, facts(at_once, "metrics")))
    assert [type(one) for one in items(path, mark)] == [ImportMark]


def test_a_stop_between_two_marks_doubles_nothing_and_loses_nothing(folder: Path) -> None:
    (file,) = folder.glob("*.wandb")
    (found,) = find(file)
    at_once = list(SOURCE.read(found))
    first = next(index for index, one in enumerate(at_once) if isinstance(one, ImportMark))
    mark = at_once[first]
    assert isinstance(mark, ImportMark)
    again = at_once[:first] + list(SOURCE.read(found, ImportMark(json.loads(json.dumps(mark.state)))))
    assert facts(again, "end") == facts(at_once, "end") and str(rows(again)) == str(rows(at_once))


def test_a_damaged_byte_costs_a_block_at_most(tmp_path: Path) -> None:
    records = [history(step, {"loss": step / 7}) for step in range(3000)]
    path = log(tmp_path / "run-x.wandb", *records)
    whole = bytearray(path.read_bytes())
    assert len(whole) > 3 * 32768
    for place in (20, 40_000, len(whole) - 10):
        hurt = bytearray(whole)
        hurt[place] ^= 0x55
        path.write_bytes(bytes(hurt))
        read = items(path)
        assert any("damaged" in one.why for one in read if isinstance(one, Unread))
        assert 2999 >= len(rows(read)["loss"]) >= 2998 - 32768 // len(records[0])


def test_records_longer_than_a_block_are_put_together(tmp_path: Path) -> None:
    row = {f"layer.{layer}.norm": layer / 3 for layer in range(5000)}
    path = log(tmp_path / "run-x.wandb", *[history(step, row) for step in range(3)], history(3, {"loss": 1.0}))
    mine = rows(items(path))
    assert mine["layer.4999.norm"] == [(step, 4999 / 3) for step in range(3)] and mine["loss"] == [(3, 1.0)]


def test_a_step_of_the_runs_own_is_the_step(tmp_path: Path) -> None:
    # HF Trainer: rows are counted by `log` calls, and train/global_step is the step
    records = [history(n, {"train/loss": 1.0, "train/global_step": 10 * n}) for n in range(40)]
    records.insert(20, history(20, {"eval/loss": 2.0}))
    mine = rows(items(log(tmp_path / "run-x.wandb", *records)))
    assert mine["train/loss"] == [(10 * n, 1.0) for n in range(40)]
    assert mine["eval/loss"] == [(190, 2.0)]  # of the row before


def test_a_step_column_that_goes_back_is_refused(tmp_path: Path) -> None:
    records = [history(n, {"loss": 1.0, "step": n % 10}) for n in range(40)]
    read = items(log(tmp_path / "run-x.wandb", *records))
    assert [step for step, _ in rows(read)["loss"]] == list(range(40))
    assert [one.text for one in read if isinstance(one, Unread)] == ["step"]


def test_typed_items_of_newer_versions_are_read(tmp_path: Path) -> None:
    typed = [
        field(2, "number") + field(6, 2.5),
        field(2, "integer") + field(5, 7),  # zigzag: -4
        field(2, "flag") + field(4, 1),
        field(2, "text") + field(7, "hello"),
        field(1, "old key") + field(16, "1e-3"),
    ]
    record = field(2, b"".join(field(1, one) for one in typed) + field(2, field(1, 9)))
    read = items(log(tmp_path / "run-x.wandb", record))
    assert rows(read) == {"number": [(9, 2.5)], "integer": [(9, -4)], "flag": [(9, 1)], "old key": [(9, 1e-3)]}
    assert facts(read, "metrics") == [{"text": "hello"}]


def test_packed_histograms_and_system_metrics_are_read(tmp_path: Path) -> None:
    packed = {"_type": "histogram", "values": [1, 2], "packedBins": {"min": 1.0, "size": 0.5, "count": 2}}
    stats = field(2, field(1, 1_700_000_000)) + field(3, field(1, "gpu.0.powerWatts") + field(16, "312.5"))
    stats += field(3, field(1, "network") + field(16, '{"sent": 5}'))
    read = items(log(tmp_path / "run-x.wandb", history(4, {"h": packed}), field(7, stats)))
    (histogram,) = (one for one in read if isinstance(one, ImportedDistribution))
    assert histogram.edges.tolist() == [1, 1.5, 2] and histogram.step == 4
    (points,) = (one for one in read if isinstance(one, ImportedPoints))
    assert points.names == ("system/gpu.0.powerWatts", "system/network.sent")
    assert points.values.tolist() == [[312.5, 5]] and points.times.tolist() == [1_700_000_000_000_000]
    assert points.steps.tolist() == [4]


def test_console_lines_are_what_a_terminal_shows(tmp_path: Path) -> None:
    def output(text: str, stream: int) -> bytes:
        return field(13, field(1, stream) + field(3, text))

    pieces = [("10%\r50%\r100%\ntrain", 0), ("other\n", 1), ("ing\n\n", 0), ("rest", 0)]
    records = [output(text, stream) for text, stream in pieces]
    path = log(tmp_path / "run-x.wandb", *records, field(18, field(2, 60)))
    shown = [(one["type"], one["message"]) for one in facts(items(path), "info")]
    assert shown == [("stderr", "100%"), ("stdout", "other"), ("stderr", "training"), ("stderr", "rest")]


@pytest.mark.parametrize("content", [None, b"", b"no file of W&B's at all"])
def test_without_a_whole_log_the_files_beside_it_tell_the_run(tmp_path: Path, content: bytes | None) -> None:
    run = tmp_path / "offline-run-20260101_120000-abcd1234"
    files = run / "files"
    files.mkdir(parents=True)
    (files / "config.yaml").write_text(
        "wandb_version: 1\n_wandb: {value: {}}\nlr: {desc: null, value: 0.1}\nplain: 3\n"
    )
    (files / "wandb-summary.json").write_text(
        '{"loss": 0.5, "_step": 9, "deep": {"er": 2}, "h": {"_type": "histogram"}}'
    )
    (files / "output.log").write_text("epoch 1\nepoch 2\nhalf a li")
    metadata = {"program": "train.py", "args": ["--lr", "0.1"], "gpu_nvidia": [{"name": "H100", "memoryTotal": "85"}]}
    (files / "wandb-metadata.json").write_text(json.dumps(metadata))
    if content is not None:
        (run / "run-abcd1234.wandb").write_bytes(content)
    (found,) = find(run)
    assert found.key == "abcd1234" and found.config == {"lr": 0.1, "plain": 3}
    read = items(run)
    assert facts(read, "metrics") == [{"summary/loss": 0.5, "summary/deep.er": 2}]
    assert [one["message"] for one in facts(read, "info")] == ["epoch 1", "epoch 2"]
    assert facts(read, "cmd") == [{"cmd": "train.py --lr 0.1"}]
    assert facts(read, "gpu-model") == [{"id": 0, "name": "H100", "memory": 85}]
    mark = read[-1]
    assert isinstance(mark, ImportMark)
    assert [type(one) for one in items(run, mark)] == [ImportMark]


def test_a_last_block_of_zeros_is_room_and_no_damage(tmp_path: Path) -> None:
    path = log(tmp_path / "run-x.wandb", history(1, {"loss": 1.0}))
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0" * 4096)
    read = items(path)
    assert rows(read)["loss"] == [(1, 1.0)] and not [one for one in read if isinstance(one, Unread)]


@SAME_FOLDER
@given(
    sizes=st.lists(st.integers(0, 70_000), min_size=1, max_size=12),
    cut=st.integers(0, 100_000),
    blocks=st.integers(1, 5),
)
def test_the_log_format_is_read_back(tmp_path: Path, sizes: list[int], cut: int, blocks: int) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    whole = leveldb_log(bodies)
    path, found, end = tmp_path / "log", [], 7
    for upto in (max(len(whole) - cut, 7), len(whole)):
        path.write_bytes(whole[:upto])
        for batch in read_batches(path, end, blocks):
            assert isinstance(batch, Batch)
            ends = (batch.starts + batch.lengths).tolist()
            found += [batch.data[a:b] for a, b in zip(batch.starts.tolist(), ends, strict=True)]
            end = batch.end
    assert found == bodies


@SAME_FOLDER
@given(data=st.data())
def test_no_damage_stops_the_reader(tmp_path: Path, data: st.DataObject) -> None:
    rich = {"h": {"_type": "histogram", "values": [1], "bins": [0, 1]}, "t": "x", "n": None}
    bodies = [history(step, {"loss": 1.5, "lr": step, **(rich if step % 9 == 0 else {})}) for step in range(60)]
    bodies += [
        field(17, field(1, "id") + field(3, "proj") + field(4, field(1, item("lr", 0.1))) + field(17, field(1, 17))),
        field(3, field(1, item(["a", "b"], 1)) + field(1, item("best", 2))),
        field(12, field(2, "a*") + field(4, "lr")),
        field(13, field(3, "text\n")),
        field(7, field(3, field(1, "cpu") + field(16, "1"))),
        field(26, field(6, "p.py") + field(24, field(1, "H100"))),
        field(18, field(1, 1)),
    ]
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(bodies) - 1))
        body = bytearray(bodies[at])
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        bodies[at] = bytes(body[: data.draw(st.integers(1, len(body)))])
    whole = bytearray(leveldb_log(bodies))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(7, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "run-x.wandb"
    path.write_bytes(bytes(whole))
    for one in items(path):
        if isinstance(one, ImportedPoints):
            assert one.values.shape == (len(one.steps), len(one.names)) and len(one.times) == len(one.steps)


def real_files() -> list[Any]:
    place = os.environ.get("BAROGRAPH_REALLOGS")
    return sorted(Path(place).rglob("*.wandb")) if place else []


@pytest.mark.skipif(not real_files(), reason="BAROGRAPH_REALLOGS names no folder with W&B runs")
def test_real_files_are_read_without_a_remainder() -> None:
    for path in real_files():
        read = items(path)
        assert len(facts(read, "end")) == 1 and not [one for one in read if isinstance(one, Unread)]


@pytest.mark.parametrize("cells", [0, 1 << 20])
def test_columns_of_the_same_rows_stand_together(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    monkeypatch.setattr(wandb_rows, "_MOST_CELLS", cells)
    rows, keys = np.array([2, 0, 0, 2, 1, 0], np.int64), np.array([5, 5, 3, 3, 9, 5], np.int64)
    found = {
        tuple(its_keys): (its_rows.tolist(), values.tolist())
        for its_keys, its_rows, values in wandb_rows.group_columns(rows, keys, np.arange(6.0))
    }
    assert found == {(3, 5): ([0, 2], [[2, 5], [3, 0]]), (9,): ([1], [[4]])}  # of a key twice in a row, the last
