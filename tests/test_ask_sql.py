"""SQL sees what the readers see, reads no more than it needs, and can change nothing."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pyarrow.parquet
import pytest

import barograph
from barograph.query import tables
from barograph.query.catalog import find
from barograph.query.sql import answer, sql
from barograph.store import run as run_module
from barograph.store.seal import seal
from barograph.views.tables.sql import drawn, run_sql

duckdb = pytest.importorskip("duckdb")
QUIET: dict[str, Any] = {"verbosity": -2, "git": False, "doctor": False, "machine": False, "ranks": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """baseline: finished and sealed. again: rewound. open: still written. other/baseline: the same id."""
    root = tmp_path_factory.mktemp("ask") / "runs"
    run = barograph.init(
        project="gpt", id="baseline", name="first", dir=str(root), tags=["sweep", "a"],
        config={"lr": "1e-3", "optim": {"betas": [0.9, 0.95], "fused": True}, "seed": None}, **QUIET,
    )  # fmt: skip
    for step in range(20):
        run.log({"train/loss": math.nan if step == 7 else 20.0 - step, "train/lr": 0.1}, step=step)
    run.log_eval(10, 0.5, 1000, 12.0, 2.5)
    run.log_eval(19, 1.0, 1000, 13.0, 2.25)
    run.record("finding", 7, {"rule": "spike", "severity": "warning", "message": "was small", "key": "", "segment": 1})
    run.record("finding", 7, {"rule": "spike", "severity": "critical", "message": "NaN at step 7", "key": "",
                              "segment": 1, "causes": ["a bad batch"], "evidence": {"loss": math.nan}})  # fmt: skip
    run.save_checkpoint(root / "gpt" / "baseline" / "checkpoints" / "at_19.pt", 19, val_loss=2.25)
    run.finish()
    run = barograph.init(project="gpt", id="again", dir=str(root), config={"lr": 0.01}, **QUIET)
    for step in range(10):
        run.log({"train/loss": 1.0}, step=step)
    run.rewind(5)
    for step in range(5, 8):
        run.log({"train/loss": 2.0}, step=step)
    run.finish()
    run = barograph.init(project="other", id="baseline", dir=str(root), config={}, **QUIET)
    run.log({"train/loss": 100.0, 'odd "name"\x1b[31m': 1.0}, step=1)
    run.finish()
    still = barograph.init(project="gpt", id="open", dir=str(root), config={"lr": 0.02}, **QUIET)
    for step in range(4):
        still.log({"train/loss": 5.0 + step}, step=step)
    yield root
    still.finish()


def rows(query: str, folder: Path, **given: Any) -> list[dict[str, Any]]:
    return sql(query, folder, **given).to_pylist()


def test_points_are_the_live_branch_of_every_run_the_one_in_progress_too(folder: Path) -> None:
    found = rows("select run, count(*) n, sum(value) total from points where name = 'train/loss' group by run", folder)
    by_run = {row["run"]: row for row in found}
    assert by_run.keys() == {"gpt/baseline", "other/baseline", "again", "open"}
    assert (by_run["again"]["n"], by_run["again"]["total"]) == (8, 5 * 1.0 + 3 * 2.0)
    assert (by_run["open"]["n"], by_run["open"]["total"]) == (4, 26.0)
    assert by_run["gpt/baseline"]["n"] == 20 and math.isnan(by_run["gpt/baseline"]["total"])


def test_points_equal_what_a_series_is(folder: Path) -> None:
    for which, key in (("gpt/baseline", "gpt/baseline"), ("again", "again"), ("open", "open")):
        run = find(which, folder)
        for name in run.names():
            series = run.series(name)
            found = sql("select step, value, time, segment from points where run = ? and name = ? order by step, time",
                        folder, parameters=[key, name])  # fmt: skip
            assert found["step"].to_pylist() == series.step.tolist()
            numpy.testing.assert_array_equal(found["value"].to_numpy(), series.value)
            assert found["segment"].to_pylist() == series.segment.tolist()
            times = [moment.timestamp() for moment in found["time"].to_pylist()]
            numpy.testing.assert_allclose(times, series.time, rtol=0, atol=2e-6)


def test_what_a_rewind_superseded_is_seen_where_it_is_asked_for(folder: Path) -> None:
    (row,) = rows("select count(*) n, count(*) filter (live) live from all_points "
                  "where run = 'again' and name = 'train/loss'", folder)  # fmt: skip
    assert row == {"n": 13, "live": 8}


def test_configurations_are_typed_and_nested_names_have_dots(folder: Path) -> None:
    found = rows("select key, value, number from configs where run = 'gpt/baseline'", folder)
    assert {row["key"]: (row["value"], row["number"]) for row in found} == {
        "lr": ("1e-3", 1e-3),
        "optim.betas": ("[0.9, 0.95]", None),
        "optim.fused": ("true", None),
        "seed": (None, None),
    }


def test_a_finding_told_twice_is_one_row_with_its_last_words(folder: Path) -> None:
    (row,) = rows("select step, severity, message, causes, evidence from findings where run = 'gpt/baseline'", folder)
    assert row["severity"] == "critical" and row["message"] == "NaN at step 7" and row["causes"] == ["a bad batch"]
    assert json.loads(row["evidence"]) == {"loss": "NaN"} and row["step"] == 7


def test_checkpoints_evaluations_and_runs_say_what_the_run_says(folder: Path) -> None:
    (row,) = rows("select run, step, val_loss, val_bpb from checkpoints", folder)
    assert row == {"run": "gpt/baseline", "step": 19, "val_loss": 2.25, "val_bpb": None}
    found = rows("select name, step, loss, tokens, duration_ms from evaluations order by step", folder)
    assert [tuple(row.values()) for row in found] == [
        ("eval/loss", 10, 2.5, 1000.0, 12.0),
        ("eval/loss", 19, 2.25, 1000.0, 13.0),
    ]
    found = rows("select project, run, name, status, tags, step, loss, eval_loss from runs", folder)
    assert found[0] == {
        "project": "gpt", "run": "gpt/baseline", "name": "first", "status": "finished", "tags": ["sweep", "a"],
        "step": 19, "loss": 1.0, "eval_loss": 2.25,
    }  # fmt: skip
    assert [row["status"] for row in found] == ["finished", "finished", "finished", "running"]
    assert found[3]["loss"] == 8.0 and found[3]["step"] == 3


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_table_has_its_documented_columns(folder: Path, name: str) -> None:
    found = sql(f"select * from {name}", folder)
    assert found.column_names == [column.name for column in tables.TABLES[name].columns]
    described = {row["column_name"]: row["column_type"] for row in rows(f"describe {name}", folder)}
    assert described == {column.name: tables.KINDS[column.kind] for column in tables.TABLES[name].columns}


def test_the_documentation_has_the_schema() -> None:
    assert tables.schema_markdown() in (Path(__file__).parents[1] / "docs" / "guides" / "sql.md").read_text()


def test_no_series_is_read_that_the_query_does_not_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = run_module.Look.points
    monkeypatch.setattr(run_module.Look, "points", lambda self, name: (read.append(name), real(self, name))[1])
    rows("select max(value) from points p join runs r using (run) where p.name in ('train/lr') and r.run > 'a'", folder)
    assert set(read) == {"train/lr"}
    read.clear()
    rows("select run, status from runs where name = 'first'", folder)
    assert not read, "losses are looked for only where they are asked for"


def test_rows_are_there_again_when_a_table_is_scanned_twice(folder: Path) -> None:
    (row,) = rows("select count(*) n from points a join points b using (project, run, name, step, value) "
                  "where name = 'train/lr'", folder)  # fmt: skip
    assert row["n"] == 20


@pytest.mark.parametrize(
    "query",
    [
        "copy runs to '{out}'", "copy (select 1) to '{out}' (format parquet)", "attach '{out}'",
        "export database '{out}'",
        "create table t as select 1", "insert into runs select * from runs", "drop view runs", "install httpfs",
        "load httpfs", "set threads = 1", "set enable_external_access = true", "pragma threads = 1", "checkpoint",
        "explain analyze copy runs to '{out}'", "create secret (type s3)", "begin", "use memory",
        "call pragma_version()",
        "select 1; copy runs to '{out}'", "prepare a as select 1", "vacuum", "",
    ],
)  # fmt: skip
def test_what_is_no_single_select_is_refused_with_a_sentence(folder: Path, tmp_path: Path, query: str) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=r"refused|queries|empty|answered"):
        sql(query.format(out=out), folder)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('{file}')", "select * from read_text('{file}')", "select * from read_blob('{file}')",
        "select * from '{file}'", "select * from glob('{folder}/*')", "select * from read_parquet('{file}')",
        "select * from read_csv('https://example.com/x.csv')", "select * from python_rows", "select getenv('HOME')",
        "from sniff_csv('{file}')",
    ],
)  # fmt: skip
def test_files_networks_and_variables_are_out_of_reach(folder: Path, tmp_path: Path, query: str) -> None:
    python_rows = pyarrow.table({"secret": [1]})
    file = tmp_path / "secret.csv"
    file.write_text("secret\n1\n")
    with pytest.raises(ValueError, match="cannot be answered"):
        sql(query.format(file=file, folder=tmp_path), folder)
    assert python_rows.num_rows == 1


def test_a_query_that_takes_too_long_is_broken_off(folder: Path) -> None:
    with pytest.raises(ValueError, match="took more than"):
        answer(
            "select count(*) from range(1000000) a, range(1000000) b where a.range + b.range = 7", folder, seconds=0.2
        )
    found = answer("select * from range(1000)", folder, most_rows=10)
    assert found.table.num_rows == 10 and found.cut


def test_a_damaged_file_is_told_and_everything_is_answered(folder: Path, tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "runs"
    shutil.copytree(folder / "gpt" / "baseline", root / "gpt" / "good")
    shutil.copytree(folder / "gpt" / "baseline", root / "gpt" / "torn")
    seal(root / "gpt" / "torn", final=True)
    (part,) = (root / "gpt" / "torn" / "store" / "training").glob("*.points.parquet")
    part.write_bytes(part.read_bytes()[:200])
    found = answer("select run, count(*) n from points where name = 'train/lr' group by run", root)
    assert {row["run"]: row["n"] for row in found.table.to_pylist()} == {"good": 20, "torn": 20}
    assert any(part.name in problem and "torn" in problem for problem in found.problems)


def test_the_sentence_says_what_is_wrong(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there is no folder of runs"):
        sql("select 1", folder / "nowhere")
    with pytest.raises(ValueError, match='answered: Referenced column "losss" not found'):
        sql("select losss from runs", folder)
    with monkeypatch.context() as old, pytest.raises(ImportError, match=r"DuckDB 2 or newer, not 1\.4\.4"):
        old.setattr(duckdb, "__version__", "1.4.4")
        sql("select 1", folder)
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(ImportError, match=r"pip install 'barograph\[sql\]'"):
        sql("select 1", folder)


def test_the_command_prints_and_writes_the_same_rows(folder: Path, tmp_path: Path, capsys: Any) -> None:
    query = "select run, step, value, time from points where run = 'gpt/baseline' and name = 'train/loss' order by step"
    assert run_sql(query, dir=str(folder), format="csv") == 0
    read = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["value"] for row in read[6:9]] == ["14.0", "NaN", "12.0"]
    run_sql(query, dir=str(folder), format="json")
    said = json.loads(capsys.readouterr().out)
    assert [{key: str(value) for key, value in row.items()} for row in said] == read
    run_sql(query, dir=str(folder), out=tmp_path / "new" / "rows.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "new" / "rows.parquet")
    assert table["step"].to_pylist() == [int(row["step"]) for row in read]
    assert os.listdir(tmp_path / "new") == ["rows.parquet"]
    assert "20 rows" in capsys.readouterr().out
    run_sql(None, schema=True)
    assert "findings: " in capsys.readouterr().out
    with pytest.raises(ValueError, match="--out"):
        run_sql(query, dir=str(folder), format="parquet")


@pytest.mark.parametrize("width", [20, 80, 120])
def test_a_terminal_is_never_driven_and_never_overfull(folder: Path, width: int) -> None:
    text = drawn(sql("select name, run, step, value, name from points order by name, step", folder), width)
    assert "\x1b" not in text and max(map(len, text.splitlines()[:-1])) <= width
    wide = drawn(sql("select repeat('a', 300) a, repeat('語', 90) b, 1.5 c, * from runs", folder), width)
    assert all(sum(2 if ord(char) > 0x2E80 else 1 for char in line) <= width for line in wide.splitlines()[:-1])


def test_numbers_and_times_are_never_shortened(folder: Path) -> None:
    text = drawn(sql("select 123456789012 n, repeat('x', 100) t, timestamp '2026-01-02 03:04:05' m", folder), 60)
    assert "123456789012" in text and "2026-01-02 03:04:05" in text


def test_checkpoints_of_a_discarded_branch_are_told_apart(tmp_path: Path) -> None:
    with barograph.init(
        project="p", id="c", dir=tmp_path, console="none", doctor=False, machine=False, git=False
    ) as run:
        for step in range(1, 90):
            run.log_step(step, 0, 10, 1.0, 1.0, 5 - step / 200, 1e-3)
            if step % 20 == 0:
                path = tmp_path / f"model_{step}.pt"
                path.write_bytes(b"w")
                run.save_checkpoint(path, step, val_loss=5 - step / 200)
        run.rewind(50)
        for step in range(50, 65):
            run.log_step(step, 0, 10, 1.0, 1.0, 4.0, 1e-3)
            if step == 60:
                (tmp_path / "again.pt").write_bytes(b"w")
                run.save_checkpoint(tmp_path / "again.pt", step, val_loss=4.9)
    expected = [(20, True), (40, True), (60, False), (60, True), (80, False)]
    stored = barograph.StoredRun(run.dir)
    assert sorted((one["step"], one["live"]) for one in stored.checkpoints()) == expected
    found = sql("select step, live from checkpoints order by step, live", tmp_path).to_pylist()
    assert [(one["step"], one["live"]) for one in found] == expected
    from barograph.views.report.assemble import assemble

    (section,) = (one for one in assemble(stored).sections if one.slug == "checkpoints")
    text = " ".join(getattr(block, "text", "") for block in section.blocks)
    assert "again.pt, of step 60" in text and "2 checkpoints of a discarded branch" in text
    assert "the one of step 40 has the lowest" in text
