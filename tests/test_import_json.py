"""JSON logs of records are read whole, torn, damaged and of any age; run folders with all that is in them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as some

import barograph
from barograph.importing.barograph_json import SOURCES
from barograph.importing.collect import Collector, collect
from barograph.importing.jsonrecords import pieces
from barograph.importing.registry import identify
from barograph.importing.source import ImportMark
from barograph.query.stored import StoredRun

FOLDER, OURS, THEIRS = SOURCES
STEP = (
    '  {{"log": "step", "time": "2026-01-15 10:30:{second:02d}.937641674", "step": {step}, "epoch": 0.5, '
    '"step_tokens": 1000, "duration_ms": 10, "norm": 0.5, "loss": {loss}, "lr": 0.001}}'
)


def theirs(*records: str) -> str:
    return "[\n" + ",\n".join(records) + "\n]\n"


def step(number: int, loss: str = "2.5") -> str:
    return STEP.format(second=number % 60, step=number, loss=loss)


def imported(path: Path, root: Path) -> StoredRun:
    ((source, found),) = identify(path)
    return StoredRun(collect(source, found, root)[0])


def test_surogates_times_and_non_finite_numbers_of_both_dialects(tmp_path: Path) -> None:
    path = tmp_path / "log-run.json"
    path.write_text(theirs(step(1), step(2, "nan"), step(3, '"nan"'), step(4, "-inf"), step(5, '"inf"')))
    run = imported(path, tmp_path / "runs")
    losses = run.series("train/loss").value.tolist()
    assert losses[0] == 2.5 and math.isnan(losses[1]) and math.isnan(losses[2])
    assert losses[3:] == [-math.inf, math.inf]
    assert run.manifest["source"]["kind"] == "surogate" and run.manifest["source"]["unread"]["count"] == 0
    assert run.series("train/loss").time[0] == pytest.approx(1768473001.937641)
    assert run.series("train/tokens_per_second").value[0] == 100_000


def test_what_was_not_escaped_is_read_where_one_reading_is_possible(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(
        theirs(
            step(1),
            '  {"log": "info", "time": "2026-01-15 10:30:02.1", "step": 1, "message": "saved "best" to C:\\runs\\x"}',
            '  {"log": "option", "time": "2026-01-15 10:30:02.1", "step": 0, "name": "prompt", "value": "two\nlines"}',
            '  {"log": "abs-maxes", "time": "2026-01-15 10:30:02.1", "step": 1, "abs_maxes": [\n'
            '   {"name": "a", "value": 1},\n   {"name": "b", "value": 2}]}',
            step(2),
        )
    )
    run = imported(path, tmp_path / "runs")
    assert [record.fields["message"] for record in run.records("info") if "message" in record.fields] == [
        'saved "best" to C:\\runs\\x'
    ]
    assert run.config == {"prompt": "two\nlines"}
    assert run.series("abs_maxes/b").value.tolist() == [2.0]
    assert len(run.series("train/loss")) == 2 and run.manifest["source"]["unread"]["count"] == 0


def test_damage_is_counted_and_shown_with_its_line_and_what_follows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    broken = '  {"log": "step", "time": "2026-01-15 10:30:02.1", "step": 2, "lo\x00\x00'
    path.write_text(theirs(step(1), broken, step(3), '  {"no": "log"}', step(4)))
    run = imported(path, tmp_path / "runs")
    assert run.series("train/loss").step.tolist() == [1, 3, 4]
    unread = run.manifest["source"]["unread"]
    assert unread["count"] == 2 and [one["where"] for one in unread["examples"]] == [3, 5]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\t", " : ")])
@pytest.mark.parametrize("dialect", ["T", " "])
def test_an_array_on_one_line_is_the_same_log(tmp_path: Path, separators: tuple[str, str], dialect: str) -> None:
    records: list[dict[str, Any]] = [json.loads(step(number)) for number in range(1, 4001)]
    nested = {
        "log": "info",
        "time": records[0]["time"],
        "step": 9,
        "message": "}, {",
        "list": [{"log": "a"}, {"log": "b"}],
    }
    records.insert(9, nested)
    for record in records:
        record["time"] = record["time"].replace(" ", dialect)
    path = tmp_path / "log.json"
    path.write_text(json.dumps(records, separators=separators))
    run = imported(path, tmp_path / "runs")
    assert run.manifest["source"]["kind"] == (OURS.kind if dialect == "T" else THEIRS.kind)
    assert run.series("train/loss").step.tolist() == [*range(1, 4001)]
    assert [one.fields["list"] for one in run.records("info") if "list" in one.fields] == [nested["list"]]
    assert StoredRun(path).series("train/loss").step.tolist() == [*range(1, 4001)]
    path.write_text(
        json.dumps(records, separators=separators).replace("2.5", "nan", 2).replace('"loss"', '"lo', 1)[:-20]
    )
    run = imported(path, tmp_path / "torn")
    assert run.series("train/loss").step.tolist() == [*range(2, 4000)], "the first is damaged, the last torn"


def test_a_torn_end_waits_for_the_rest(tmp_path: Path) -> None:
    path, root = tmp_path / "log.json", tmp_path / "runs"
    whole = theirs(step(1), step(2))
    path.write_text(whole[:-30])
    assert imported(path, root).series("train/loss").step.tolist() == [1]
    path.write_text(whole)
    assert imported(path, root).series("train/loss").step.tolist() == [1, 2]


def test_values_that_mean_that_there_is_none_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    gpu = (
        '{"log": "gpu", "time": "2026-01-15 10:30:02.1", "step": 1, "id": 0, "power": 4294967295, "gpu_util": -1, '
        '"temperature": 40, "pcie_rx": 18446744073709551615}'
    )
    path.write_text(theirs(step(1), gpu))
    run = imported(path, tmp_path / "runs")
    assert [name for name in run.names() if name.startswith("gpu/")] == ["gpu/0/temperature"]


def test_a_log_whose_steps_go_back_was_resumed(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(theirs(*(step(number) for number in (1, 2, 3)), *(step(number, "9.5") for number in (2, 3))))
    run = imported(path, tmp_path / "runs")
    assert run.series("train/loss").value.tolist() == [2.5, 9.5, 9.5] and len(run.segments) == 2


def make_run(folder: Path, steps: range, **options: Any) -> Path:
    run = barograph.init(project="p", dir=folder, verbosity=-2, git=False, name="r", config={"a": {"b": 1}}, **options)
    for number in steps:
        run.log_step(number, 0.1, 100, 10.0, 0.5, 3.0 / (number + 1), 1e-3)
        run.log({"x": number, "odd": math.nan}, step=number)
    run.log_layers(steps[-1], {"block.0": {"norm": 1.5}})
    run.finish()
    return run.dir


def test_our_own_log_file_is_read_with_its_segments(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", range(5))
    make_run(tmp_path / "a", range(3, 6), resume="must", id=folder.name)
    lone = tmp_path / "elsewhere" / "training.json"
    lone.parent.mkdir()
    lone.write_bytes((folder / "training.json").read_bytes())
    run = imported(lone, tmp_path / "runs")
    assert run.manifest["source"]["kind"] == "barograph_log"
    assert run.series("train/loss").step.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(run.series("train/loss", branch="all")) == 8 and run.config == {"a/b": 1}


def test_a_run_folder_brings_its_store_and_goes_on_with_a_resume(tmp_path: Path) -> None:
    folder, root = make_run(tmp_path / "a", range(5)), tmp_path / "runs"
    run = imported(folder, root)
    original = StoredRun(folder)
    assert (run.name, run.project, run.status, run.config) == ("r", "p", "finished", {"a": {"b": 1}})
    assert run.names() == original.names()
    for name in original.names():
        for column in ("step", "value", "time"):
            numpy.testing.assert_array_equal(
                getattr(run.series(name), column), getattr(original.series(name), column), name
            )
    again, tally = collect(FOLDER, FOLDER.find(folder, b"")[0], root)
    assert again == run.dir and tally.added == 0
    make_run(tmp_path / "a", range(3, 7), resume="must", id=folder.name)
    imported(folder, root)
    assert run.series("train/loss").step.tolist() == original.series("train/loss").step.tolist() == list(range(7))
    assert run.series("x").value.tolist() == list(range(7))


def test_rows_with_a_text_in_them_keep_it_and_others_are_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    rows = [step(number, str(number / 3)) for number in range(50)]
    rows[7] = rows[7].replace('"lr": 0.001', '"lr": 0.001, "phase": "warm", "moe_aux_loss": 0.5')
    path.write_text(theirs(*rows))
    run = imported(path, tmp_path / "runs")
    assert run.series("train/loss").value.tolist() == [number / 3 for number in range(50)]
    assert len(run.series("train/tokens_per_second")) == 50 and run.series("moe/aux_loss").step.tolist() == [7]
    assert [record.fields.get("phase") for record in run.records("step")].count("warm") == 1


def test_a_growing_log_is_read_from_where_it_was_left(tmp_path: Path) -> None:
    run = barograph.init(project="p", dir=tmp_path / "a", verbosity=-2, git=False)
    path = run.dir / "training.json"
    run.log({"x": 0}, step=0)
    with Collector(OURS, OURS.find(path, path.read_bytes())[0], tmp_path / "runs", live=True) as collector:
        for number in range(1, 40):
            collector.read()
            assert StoredRun(collector.folder).series("x").value.tolist() == list(range(number))
            run.log({"x": number, "text": "y" * 100}, step=number)
    run.finish()


JUNK = some.binary(max_size=60) | some.sampled_from([b"{", b"}", b"\n", b'"', b'{"log": "step"', b"nan", b"\\", b"]"])


@given(some.lists(JUNK, max_size=8), some.booleans())
def test_pieces_never_fail_never_overlap_and_keep_whole_records(junk: list[bytes], last: bool) -> None:
    record = b'{"log": "step", "step": 1}'
    data = b"[\n" + b"".join(junk) + b"\n" + record + b",\n" + record + b"\n]\n"
    at = 0
    for piece in pieces(data, last):
        assert at <= piece.start < piece.end <= len(data)
        at = piece.end
    clean = b"[\n" + record + b",\n" + record + b"\n]\n"
    assert [piece.item for piece in pieces(clean, last)] == [{"log": "step", "step": 1}] * 2


@given(some.binary(max_size=300))
def test_any_bytes_behind_a_good_start_are_read_without_failing(tail: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write((theirs(step(1))[:-3] + ",\n").encode() + tail)
        file.flush()
        path = Path(file.name)
        found = THEIRS.find(path, path.read_bytes())
        assert len(found) == 1
        items = list(THEIRS.read(found[0]))
        assert isinstance(items[-1], ImportMark)
        rest = list(THEIRS.read(found[0], items[-1]))
        assert json.dumps(rest[-1].state)


def test_router_figures_inline_and_alone_are_one_point_a_step(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    records: list[dict[str, Any]] = []
    for step in (1, 2, 3):
        about = {"time": f"2026-01-15T10:30:0{step}.000000", "step": step}
        records.append({"log": "step"} | about | {"loss": 2.0, "moe_aux_loss": 0.1, "moe_load_imbalance": 1.5})
        records.append({"log": "moe"} | about | {"aux_loss": 0.1, "load_imbalance": 1.5, "expert_utilization": 0.9})
    path.write_text(json.dumps(records, indent=0))
    (run,) = barograph.read(path)
    for name in ("aux_loss", "load_imbalance", "expert_utilization"):
        assert run.series(f"moe/{name}").step.tolist() == [1, 2, 3], name
