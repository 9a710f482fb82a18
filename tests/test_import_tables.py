"""CSV, JSON lines and JSON documents of any shape: what is certain is read, what is not is counted."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import barograph
from barograph.importing import delimited
from barograph.importing.collect import Tally, collect
from barograph.importing.registry import identify
from barograph.importing.source import ImportedPoints, ImportMark, Unread
from barograph.importing.tables import SOURCES
from barograph.query.stored import StoredRun

LINES, DOCUMENT, CSV = SOURCES


def imported(path: Path, root: Path | None = None, kind: str = "") -> tuple[StoredRun, Tally]:
    ((source, found),) = identify(path)
    assert not kind or source.kind == kind
    folder, tally = collect(source, found, root or path.parent / "runs")
    return StoredRun(folder), tally


def table(tmp_path: Path, text: str | bytes, name: str = "log.csv") -> tuple[StoredRun, Tally]:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return imported(path)


def lines(tmp_path: Path, *rows: dict[str, Any] | str, name: str = "rows.jsonl") -> tuple[StoredRun, Tally]:
    return table(tmp_path, "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), name)


# -- CSV ----------------------------------------------------------------------------------------------


def test_a_plain_table_is_series_by_its_step(tmp_path: Path) -> None:
    run, tally = table(
        tmp_path, "iter,train_loss,val_loss,lr,ms_per_iter\n0,9.5,9.25,7.5e-07,30460\n500,4.25,nan,3e-4,42236\n"
    )
    assert run.series("train/loss").step.tolist() == [0, 500]
    assert math.isnan(run.series("eval/loss").value[1]) and run.series("train/duration_ms").value[0] == 30460
    assert run.names() == ["eval/loss", "train/duration_ms", "train/loss", "train/lr"] and tally.unread == 0


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffstep,loss\n1,2.5\n2,2.25\n", "step;loss\n1;2,5\n2;2,25\n", "step\tloss\r\n1\t2.5\r\n2\t2.25\r\n",
        "step|loss\n1|2.5\n2|2.25\n", '"step","loss"\n"1","2.5"\n"2","2.25"\n', "step,loss,\n1,2.5,\n2,2.25,\n",
        "\n\nstep, loss\n1, 2.5\n\n2, 2.25\n", "step,loss\n1,2.5\n2,2.25", "step,loss\n1.0,2.5\n2.0,2.25\n",
        "_step,note,loss\n1,\"a\nb, \"\"c\"\"\",2.5\n2,,2.25\n",
        "step,loss\n1,tensor(2.5)\n2,\"tensor(2.25, device='cuda:0')\"\n",
    ],
)  # fmt: skip
def test_the_ways_to_write_a_table_are_one(tmp_path: Path, text: str) -> None:
    run, tally = table(tmp_path, text)
    series = run.series("train/loss")
    assert (series.step.tolist(), series.value.tolist(), tally.unread) == ([1, 2], [2.5, 2.25], 0)


def test_cells_that_are_empty_are_no_points_and_words_for_nothing_neither(tmp_path: Path) -> None:
    run, tally = table(tmp_path, "step,loss,val_loss\n1,2.5,\n2,,1.5\n3,None,null\n4,NA,inf\n")
    assert run.series("train/loss").step.tolist() == [1]
    assert run.series("eval/loss").value.tolist() == [1.5, math.inf] and tally.unread == 0


def test_what_does_not_fit_is_counted_with_its_line(tmp_path: Path) -> None:
    run, tally = table(
        tmp_path, "step,loss,acc\n1,2.5,0.1\n2,2.4\nTraceback, most\n3,oops,0.3\nx,2.2,0.4\n5,2.1,0.5,7\n6,2.0,0.6\n"
    )
    assert run.series("train/loss").step.tolist() == [1, 6] and run.series("acc").step.tolist() == [1, 3, 6]
    assert tally.unread == 6
    assert [(one["where"], one["why"]) for one in tally.examples] == [
        (3, "2 cells where the header has 3"),
        (4, "2 cells where the header has 3"),
        (5, "loss is not a number"),
        (6, "step is not a number"),
        (7, "4 cells where the header has 3"),
    ]


def test_words_behind_the_last_column_and_stars_around_the_best_are_no_cells(tmp_path: Path) -> None:
    text = (
        "epoch\tloss\tval/loss\n0\t0.9\t0.8\n1\t0.7\t0.9\tworse again\n2\t**0.6**\t**0.7**\t**lowest**\n3\t0.5\t0.7\n"
    )
    run, tally = table(tmp_path, text.replace("\n", "\t\n", 1))
    assert run.series("train/loss").value.tolist() == [0.9, 0.7, 0.6, 0.5]
    assert run.series("eval/loss").value.tolist() == [0.8, 0.9, 0.7, 0.7] and not tally.unread


def test_a_row_a_point_is_series_by_name(tmp_path: Path) -> None:
    run, _ = table(tmp_path, "metric,step,value\nloss,1,2.5\nval_loss,1,3.5\nloss,2,2.25\n")
    assert run.series("train/loss").value.tolist() == [2.5, 2.25] and run.series("eval/loss").value.tolist() == [3.5]


def test_a_column_that_tells_training_from_evaluation_keeps_them_apart(tmp_path: Path) -> None:
    run, _ = table(tmp_path, "split,step,loss\ntrain,1,2.5\nval,1,3.5\ntrain,2,2.25\n")
    assert run.series("train/loss").value.tolist() == [2.5, 2.25] and run.series("eval/loss").value.tolist() == [3.5]


@pytest.mark.parametrize(
    ("header", "x", "steps"),
    [
        ("epoch,loss", "epoch", [1, 2]), ("tokens,loss", "tokens", [1, 2]), ("samples,loss", "samples", [1, 2]),
        ("tokens,step,loss", "step", [7, 7]), ("acc,loss", "row", [0, 1]),
    ],
)  # fmt: skip
def test_what_the_steps_count_is_told(tmp_path: Path, header: str, x: str, steps: list[int]) -> None:
    row = {"epoch": 1, "tokens": 1, "samples": 1, "step": 7, "acc": 0.5, "loss": 2.5}
    rows = [
        {name: row[name] + (number if name in ("epoch", "tokens", "samples") else 0) for name in header.split(",")}
        for number in (0, 1)
    ]
    text = "".join(",".join(map(str, one.values())) + "\n" for one in rows)
    run, _ = table(tmp_path, f"{header}\n{text}")
    assert run.series("train/loss").step.tolist() == steps
    assert run.manifest["source"]["x"].get("train/loss", "step") == x


@pytest.mark.parametrize(
    "cells",
    [("1700000000", "1700000001"), ("1700000000000", "1700000001000"), ("2023-11-14 22:13:20", "2023-11-14T22:13:21Z")],
)
def test_wall_times_are_found(tmp_path: Path, cells: tuple[str, str]) -> None:
    run, _ = table(tmp_path, f"step,timestamp,loss\n1,{cells[0]},2.5\n2,{cells[1]},2.25\n")
    assert run.series("train/loss").time.tolist() == [1700000000.0, 1700000001.0] and run.names() == ["train/loss"]


def test_a_step_that_goes_back_begins_a_segment_and_a_table_without_order_does_not(tmp_path: Path) -> None:
    rows = [*range(50), *range(30, 60)]
    run, tally = table(tmp_path, "step,loss\n" + "".join(f"{step},{at}\n" for at, step in enumerate(rows)))
    assert tally.restarts == 1 and run.series("train/loss").step.tolist() == list(range(60))
    mixed = numpy.random.default_rng(1).permutation(500).tolist()
    run, tally = table(tmp_path, "step,loss\n" + "".join(f"{step},{step}\n" for step in mixed), "mixed.csv")
    assert tally.restarts == 0 and run.series("train/loss").value.tolist() == list(range(500))


def test_a_header_that_comes_again_is_passed_over(tmp_path: Path) -> None:
    run, tally = table(tmp_path, "step,loss\n1,2.5\nstep,loss\n2,2.25\n")
    assert run.series("train/loss").step.tolist() == [1, 2] and tally.unread == 0


@pytest.mark.parametrize(
    "text",
    [
        "# my run\n# of today, with 2 GPUs\nstep,loss\n1,2.5\n2,2.25\n3,2\n",
        "# step,loss\n1,2.5\n2,2.25\n3,2\n",
        "# step loss\n1.000e+00 2.500e+00\n2.000e+00 2.250e+00\n3.000e+00 2.000e+00\n",
    ],
)
def test_lines_of_comment_before_a_table_are_passed_over_and_the_last_may_be_its_header(
    tmp_path: Path, text: str
) -> None:
    run, tally = table(tmp_path, text)
    series = run.series("train/loss")
    assert series.step.tolist() == [1, 2, 3] and series.value.tolist() == [2.5, 2.25, 2.0] and tally.unread == 0


@pytest.mark.parametrize(
    "text",
    [
        "0,4.5,1e-3\n10,4.25,2e-3\n20,nan,3e-3\n",
        "0;4,5;0,001\n10;4,25;0,002\n20;;0,003\n",
        "# a run\n0,4.5,1e-3\n10,4.25,2e-3\n20,nan,3e-3\n",
        "0.0e+00 4.5 1e-3\n1.0e+01 4.25 2e-3\n2.0e+01 nan 3e-3\n",
    ],
)
def test_numbers_without_a_header_are_read_if_the_first_column_counts(tmp_path: Path, text: str) -> None:
    run, tally = table(tmp_path, text)
    assert run.names() == ["column_2", "column_3"] and tally.unread == 0
    assert run.series("column_3").step.tolist() == [0, 10, 20] and run.series("column_2").value[:2].tolist() == [
        4.5,
        4.25,
    ]


@pytest.mark.parametrize(
    "text", ["5.1,3.5\n4.9,3.0\n4.7,3.2\n", "3,1\n1,2\n2,3\n", "0,a\n1,b\n2,c\n", "0,1\n1,2\n", "0,1,2\n1,2\n2,3,4\n"]
)
def test_numbers_that_do_not_say_where_they_belong_are_no_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.csv").write_text(text)
    assert not list(identify(tmp_path / "log.csv"))


def test_a_column_of_words_is_configuration(tmp_path: Path) -> None:
    run, _ = table(tmp_path, "step,optimizer,loss\n1,adamw,2.5\n2,adamw,2.25\n")
    assert run.config == {"optimizer": "adamw"}


def test_a_growing_table_is_read_from_where_it_was_left_and_a_torn_row_waits(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    seen = ""
    for piece in ("step,loss\n1,2.5\n2,", "2.25\n", "", "3,2.0\n4"):
        seen += piece
        path.write_text(seen)
        run, _ = imported(path)
        whole = seen[: seen.rindex("\n")].count("\n")
        assert len(run.series("train/loss")) == whole
    assert len(list(path.parent.glob("runs/imported/*"))) == 1


TABLES = some.lists(
    some.tuples(some.integers(0, 2**40), some.floats() | some.none(), some.floats(width=32) | some.none()),
    min_size=1,
    max_size=30,
)


@given(TABLES, some.sampled_from(",;\t|"), some.booleans(), some.booleans())
@settings(max_examples=60, deadline=None)
def test_every_number_of_a_table_comes_out_as_it_went_in(
    rows: list[tuple[int, float | None, float | None]], delimiter: str, quoted: bool, windows: bool
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL,
                        lineterminator="\r\n" if windows else "\n")  # fmt: skip
    writer.writerow(["step", "loss", "val_loss"])
    writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(text.getvalue().encode())
        file.flush()
        path = Path(file.name)
        (found,) = CSV.find(path, path.read_bytes()[: 64 << 10])
        items = list(CSV.read(found))
    again = [all(a == b for a, b in zip(*pair, strict=True)) for pair in itertools.pairwise(rows)]
    rows = [row for row, told in zip(rows, [False, *again], strict=True) if not told]  # that of another rank
    expected = {
        name: sorted((row[0], repr(float(row[column]))) for row in rows if row[column] is not None)  # type: ignore[arg-type]
        for column, name in ((1, "loss"), (2, "val_loss"))
    }
    assert not [item for item in items if isinstance(item, Unread)]
    got: dict[str, list[tuple[int, str]]] = {"loss": [], "val_loss": []}
    for item in items:
        if isinstance(item, ImportedPoints):
            for column, name in enumerate(item.names):
                got[name] += zip(item.steps.tolist(), map(repr, item.values[:, column].tolist()), strict=True)
    assert {name: sorted(pairs) for name, pairs in got.items()} == expected


@given(some.text(max_size=400), some.integers(1, 60))
@settings(max_examples=100, deadline=None)
def test_any_text_behind_a_header_is_read_without_failing(text: str, chunk: int) -> None:
    with tempfile.NamedTemporaryFile(suffix=".csv") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "CHUNK", chunk)
        patch.setattr(delimited, "_MOST_RECORD", 200)
        file.write(b"step,loss\n1,2.5\n2,2.25\n" + text.encode("utf-8", "surrogatepass"))
        file.flush()
        path = Path(file.name)
        for found in CSV.find(path, path.read_bytes()):
            items = list(CSV.read(found))
            assert isinstance(items[-1], ImportMark)
            again = [item for item in CSV.read(found, items[-1]) if not isinstance(item, ImportMark)]
            assert not again


def test_a_stretch_of_plain_numbers_and_one_read_cell_by_cell_are_the_same(tmp_path: Path) -> None:
    rows = [f"{step},{step / 7!r},{'' if step % 3 else step}" for step in range(2000)]
    plain = table(tmp_path, "step,loss,acc\n" + "\n".join(rows) + "\n", "a.csv")[0]
    careful = table(
        tmp_path,
        "step,loss,acc\n" + "".join(f'"{row.split(",")[0]}",{row.split(",", 1)[1]}\n' for row in rows),
        "b.csv",
    )[0]
    for name in ("train/loss", "acc"):
        numpy.testing.assert_array_equal(plain.series(name).value, careful.series(name).value)
        numpy.testing.assert_array_equal(plain.series(name).step, careful.series(name).step)


@pytest.mark.parametrize(
    "text",
    ["name,age\nanna,3\nbert,4\n", "a b c\n", "1,2,3\n4,5,6\n", "id,text\n1,hello\n", "{}\n", "\0\0,\0\n", "loss\n"],
)
def test_a_table_of_something_else_is_no_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.csv"
    path.write_text(text)
    assert list(identify(tmp_path)) == []


# -- JSON lines ----------------------------------------------------------------------------------------


def test_nested_objects_numbers_in_text_and_pythons_nan(tmp_path: Path) -> None:
    run, tally = lines(
        tmp_path,
        {"_step": 1, "_timestamp": 1700000000.5, "train": {"loss": 2.5, "norms": {"layer.0": 1.0}}, "ok": True},
        '{"_step": 2, "_timestamp": 1700000001.5, "train": {"loss": NaN}, "lr": "1e-3", "none": null}',
        '{"_step": 3, "train": {"loss": -Infinity}, "lr": "nan"}',
    )
    loss = run.series("train/loss")
    assert loss.value[0] == 2.5 and math.isnan(loss.value[1]) and loss.value[2] == -math.inf
    assert loss.time.tolist() == [1700000000.5, 1700000001.5, 0] and run.series("train/lr").value[0] == 1e-3
    assert run.series("train/norms/layer.0").value.tolist() == [1.0] and tally.unread == 0


def test_what_stands_before_the_first_step_and_text_that_stays_is_configuration(tmp_path: Path) -> None:
    run, tally = lines(
        tmp_path,
        {"_meta": {"seed": 3, "optimizer": "adamw"}},
        *({"step": step, "loss": 2.0, "phase": "warm", "at": f"0:0{step}"} for step in range(3)),
        {"final": 3.0},
    )
    assert run.config == {"_meta/seed": 3, "_meta/optimizer": "adamw", "phase": "warm", "at": "0:00"}
    assert [one["why"] for one in tally.examples] == [
        "at is text that changes; what it said first is kept (in later rows too)",
        "a row without step",
    ]


def test_lines_of_something_else_lists_and_changes_of_type_are_counted(tmp_path: Path) -> None:
    run, tally = lines(
        tmp_path,
        {"step": 1, "loss": 2.5},
        "Traceback (most recent call last):",
        {"step": 2, "loss": [1, 2]},
        {"step": 3, "loss": {"value": 2.0}},
        '{"step": 4, "lo',
        {"step": 5, "loss": "bad"},
        {"step": 6, "loss": 2.0},
    )
    assert run.series("train/loss").step.tolist() == [1, 6] and run.series("loss/value").step.tolist() == [3]
    assert tally.unread == 3 and sorted(one["where"] for one in tally.examples) == [2, 3, 5]


def test_rows_that_name_their_split_or_their_metric(tmp_path: Path) -> None:
    run, _ = lines(
        tmp_path, *({"step": step, "split": split, "loss": 1.0} for step in (1, 2) for split in ("train", "eval"))
    )
    assert run.names() == ["eval/loss", "train/loss"] and len(run.segments) == 1
    run, _ = lines(
        tmp_path,
        *({"step": step, "key": key, "value": 1.0} for step in (1, 2) for key in ("loss", "x")),
        name="b.jsonl",
    )
    assert run.names() == ["train/loss", "x"]


def test_a_last_line_without_its_break_counts_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    text = "".join(json.dumps({"step": step, "loss": step / 2}) + "\n" for step in range(6))
    for end in range(30, len(text) + 1, 5):
        path.write_text(text[:end])
        run, _ = imported(path)
        assert run.series("train/loss").step.tolist() == list(range(text[:end].count("}")))
    imported(path)
    assert len(run.series("train/loss")) == text[:end].count("}")


def test_logs_that_are_resumed_in_one_file_have_segments(tmp_path: Path) -> None:
    steps = [*range(10), *range(5, 12)]
    run, tally = lines(tmp_path, *({"step": step, "loss": float(at)} for at, step in enumerate(steps)))
    assert tally.restarts == 1 and run.series("train/loss").value.tolist() == [0, 1, 2, 3, 4, *range(10, 17)]


@given(
    some.lists(some.binary(max_size=40) | some.sampled_from([b'{"step": 3, "loss": 1}', b"{", b"\n", b"}"]), max_size=8)
)
@settings(max_examples=100, deadline=None)
def test_any_lines_behind_a_row_are_read_without_failing_and_once(junk: list[bytes]) -> None:
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(
            b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.5}\n' + b"".join(junk) + b'\n{"step": 9, "loss": 2}\n'
        )
        file.flush()
        path = Path(file.name)
        for found in LINES.find(path, path.read_bytes()):
            items = list(LINES.read(found))
            rows = [step for item in items if isinstance(item, ImportedPoints) for step in item.steps.tolist()]
            assert rows.count(9) >= 1 and isinstance(items[-1], ImportMark)
            assert not [item for item in LINES.read(found, items[-1]) if not isinstance(item, ImportMark)]


# -- documents ------------------------------------------------------------------------------------------


def test_lists_of_numbers_and_of_objects_are_series_and_scalars_configuration(tmp_path: Path) -> None:
    run, _ = table(
        tmp_path,
        json.dumps(
            {
                "learning_rate": 0.1, "name": "x", "train_losses": [3.0, 2.0, 1.0],
                "eval": {"step": [10, 20], "val_loss": [2.5, math.nan]},
                "log": [{"step": 5, "grad_norm": 0.5}, {"step": 6, "grad_norm": 0.25}],
            }
        ),
        "result.json",
    )  # fmt: skip
    assert run.series("train/loss").value.tolist() == [3.0, 2.0, 1.0]
    assert run.series("eval/val_loss").step.tolist() == [10, 20] or run.series("eval/loss").step.tolist() == [10, 20]
    assert run.series("train/norm").step.tolist() == [5, 6]
    assert run.config == {"learning_rate": 0.1, "name": "x"} and run.manifest["source"]["x"] == {"train/loss": "row"}


def test_tensorboards_download_and_a_list_of_rows(tmp_path: Path) -> None:
    run, _ = table(tmp_path, json.dumps({"loss": [[1700000000.5, 1, 2.5], [1700000001.5, 2, 2.25]]}), "a.json")
    assert run.series("train/loss").time.tolist() == [1700000000.5, 1700000001.5]
    run, _ = table(tmp_path, json.dumps([{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}]), "b.json")
    assert run.series("train/loss").step.tolist() == [1, 2]


def test_a_document_that_grows_adds_its_new_rows_and_another_one_is_another_run(tmp_path: Path) -> None:
    run, _ = table(tmp_path, json.dumps({"losses": [3.0, 2.0]}), "a.json")
    again, tally = table(tmp_path, json.dumps({"losses": [3.0, 2.0, 1.0]}), "a.json")
    assert again.dir == run.dir and tally.points == 1 and again.series("train/loss").value.tolist() == [3.0, 2.0, 1.0]
    assert table(tmp_path, json.dumps({"losses": [3.0, 2.0, 1.0]}), "a.json")[1].added == 0
    assert table(tmp_path, json.dumps({"losses": [9.0, 2.0]}), "a.json")[0].dir != run.dir


@pytest.mark.parametrize(
    "text", ['{"lr": 0.1, "loss": 2}', "[]", "[1, 2, 3]", '{"files": ["a", "b"]}', '[{"a": "b"}]', "{"]
)
def test_a_document_without_series_is_no_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert list(identify(tmp_path)) == []


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_steps_that_begin_anew_with_each_epoch_are_counted_on(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"log.{ending}"
    rows = [(epoch, 50 * (at + 1), 2.0 - epoch / 10) for epoch in range(1, 40) for at in range(4)]
    if ending == "csv":
        path.write_text("epoch,iter,loss\n" + "".join(f"{one},{two},{loss}\n" for one, two, loss in rows))
    else:
        path.write_text("".join(f'{{"epoch": {one}, "iter": {two}, "loss": {loss}}}\n' for one, two, loss in rows))
    (run,) = barograph.read(path)
    step = run.columns("train/loss")[0]
    assert step.tolist() == [50 * (at + 1) for at in range(len(rows))]


def test_a_rerun_of_the_same_epochs_is_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [(at // 4, at % 4) for at in [*range(40), *range(24)]]
    path.write_text("epoch,iter,loss\n" + "".join(f"{epoch},{at},1.5\n" for epoch, at in rows))
    (run,) = barograph.read(path)
    assert run.columns("train/loss")[0].tolist() == list(range(24))  # the first try is another branch


def test_a_text_with_blanks_or_tabs_between_numbers_is_a_table(tmp_path: Path) -> None:
    blank, tab = tmp_path / "log.txt", tmp_path / "loss.txt"
    blank.write_text("epoch loss val_loss\n" + "".join(f"{at} {2 - at / 10} {2.1 - at / 10}\n" for at in range(10)))
    tab.write_text(
        "Learning Rate\tTrain Loss\tValid Loss\t\n" + "".join(f"0.1\t{2 - at / 10}\t2.1\t\n" for at in range(10))
    )
    for path in (blank, tab):
        (run,) = barograph.read(path)
        assert len(run.columns("train/loss")[0]) == 10


def test_objects_that_hold_their_figure_in_an_inner_object_are_points_of_the_name_beside_it(tmp_path: Path) -> None:
    rows = [
        {
            "name": name,
            "data": {"epoch": 0.25, "step": step, "value": 3 - step / 4, "timestamp": f"2031-02-0{step}T07:00:00"},
        }
        for step in range(1, 6)
        for name in ("loss", "lr")
    ]
    run, tally = lines(tmp_path, *rows)
    assert run.series("train/loss").step.tolist() == [1, 2, 3, 4, 5] and run.series("train/loss").value[1] == 2.5
    assert len(run.series("train/lr").step) == 5 and tally.unread == 0


def test_evaluations_that_count_their_own_batches_stand_behind_their_epoch(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for epoch in (4, 5, 6):
        rows += [{"mode": "train", "epoch": epoch, "iter": at, "loss": 1 / (epoch + at)} for at in (10, 20, 30)]
        rows.append({"mode": "val", "epoch": epoch, "iter": 7, "accuracy": epoch / 10})
    run, _ = lines(tmp_path, *rows)
    assert run.series("train/loss").step.tolist() == [10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert run.series("eval/accuracy").step.tolist() == [30, 60, 90]


@pytest.mark.parametrize(("column", "trained"), [("train", True), ("is_train", True), ("is_valid", False)])
def test_a_column_of_true_and_false_may_say_the_data(tmp_path: Path, column: str, trained: bool) -> None:
    rows = [
        (epoch, said, round(2 + 1 / (epoch + 1) + (said != trained), 4)) for epoch in range(5) for said in (True, False)
    ]
    text = f"loss,epoch,{column}\n" + "".join(f"{loss},{epoch},{said}\n" for epoch, said, loss in rows)
    objects = [{"epoch": epoch, "loss": loss, column: said} for epoch, said, loss in rows]
    for run in (table(tmp_path, text)[0], lines(tmp_path, *objects)[0]):
        assert run.series("train/loss").value.tolist() == [loss for _, said, loss in rows if said == trained]
        assert run.series("eval/loss").value.tolist() == [loss for _, said, loss in rows if said != trained]
