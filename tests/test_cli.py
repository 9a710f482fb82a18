"""The command line, as a person types it."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from patience import patient

import barograph
from barograph.cli import main


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    for name in ("first", "second"):
        given = {"verbosity": -2, "git": False, "doctor": False}
        with barograph.init(project="gpt", name=name, dir=folder, config={"lr": 0.1}, **given) as run:
            for step in range(10):
                loss = math.nan if step == 7 else 5.0 - step / 10
                run.log_step(step, step / 10, 1000, 20, 1.0, loss, 0.1)
            run.log_eval(9, 1.0, 500, 10, 4.0)
            run.log({"odd/na\nme": 1.0, "<script>": 2.0}, step=9)
    return folder


def type_in(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.parametrize(
    "words",
    ["ls", "projects", "search loss", "show a", "doctor", "doctor a", "compare a b", "report a", "export a", "top",
     "gc", "restore", "delete a", "mark a --pin", "sql SELECT", "scaling", "sync a --to tensorboard", "attend a",
     "tail a"],
)  # fmt: skip
def test_a_folder_that_is_not_there_is_named_by_every_command_that_looks_into_one(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = type_in(capsys, *words.split(), "--dir", tmp_path / "mistyped")
    assert (code, out, err.count("\n")) == (1, "", 1) and f"there is no folder of runs {tmp_path}/mistyped" in err
    assert not (tmp_path / "mistyped").exists()


def test_ls_lists_every_run_with_its_state(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = type_in(capsys, "ls", "--dir", runs)
    assert code == 0 and "first" in out and "second" in out and out.count("finished") == 2 and "4.1" in out
    code, out, _ = type_in(capsys, "ls", "--dir", runs, "--json")
    rows = json.loads(out)
    assert [row["id"] for row in rows] == ["first", "second"] and rows[0]["step"] == 9 and rows[0]["eval_loss"] == 4.0


def test_an_empty_folder_says_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = type_in(capsys, "ls", "--dir", tmp_path)
    assert code == 0 and "barograph demo" in out


def test_show_is_one_screen_and_hostile_names_are_written_out(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = type_in(capsys, "show", "first", "--dir", runs)
    assert code == 0 and "train/loss" in out and "lr=0.1" in out and "1 not finite" in out and "×" in out
    assert "odd/na\\nme" in out
    assert all(len(line.replace(str(runs), "")) <= 110 for line in out.splitlines()), "a path is never cut"
    code, out, _ = type_in(capsys, "show", "first", "--dir", runs, "--names")
    assert "train/lr" in out.splitlines()
    code, out, _ = type_in(capsys, "show", "first", "--dir", runs, "--json")
    data = json.loads(out, parse_constant=pytest.fail)
    assert data["series"]["train/loss"]["not_finite"] == 1 and data["config"] == {"lr": 0.1}


def test_a_wrong_run_is_one_sentence_and_exit_code_1(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show", "tail", "export"):
        code, out, err = type_in(capsys, command, "frist", "--dir", runs)
        assert code == 1 and out == "" and err.count("\n") == 1 and "nearest is 'first'" in err


def test_a_file_that_is_no_log_is_one_sentence_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.md"
    for text in ("# Notes\n", "", "[1, 2]", '[{"a": 1}]'):
        path.write_text(text)
        for command in ("show", "tail", "export"):
            code, out, err = type_in(capsys, command, path)
            assert code == 1 and out == "" and err.count("\n") == 1 and "is not a training log" in err


def test_a_wrong_argument_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["tail", "x", "-n", "-3"], ["export", "x", "--to", "xlsx"], ["nonsense"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
    assert "must be 0 or more" in capsys.readouterr().err


def test_no_command_explains_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = type_in(capsys)
    assert code == 0 and "demo" in out and "export" in out


def test_tail_draws_the_latest_records(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = type_in(capsys, "tail", "first", "--dir", runs, "-n", 4)
    assert code == 0 and "step 9 " in out and "eval at step" in out and "step 3 " not in out
    code, out, _ = type_in(capsys, "tail", "first", "--dir", runs, "-n", 3, "--json")
    assert [json.loads(line)["log"] for line in out.splitlines()] == ["eval", "metrics", "end"]


def test_tail_follows_a_live_run_until_it_ends(tmp_path: Path) -> None:
    script = (
        "import barograph, sys, time; run = barograph.init(name='live', dir=sys.argv[1], verbosity=-2, git=False);\n"
        "for step in range(80):\n    run.log_step(step, 0.0, 10, 10, 1.0, 2.0, 0.1); time.sleep(0.05)\n"
        "run.finish()"
    )
    trainer = subprocess.Popen([sys.executable, "-c", script, tmp_path])
    while not list(tmp_path.glob("*/*/run_manifest.json")):
        time.sleep(0.02)
    began = time.monotonic()
    follower = subprocess.Popen(
        [sys.executable, "-m", "barograph", "tail", "live", "-n", "200", "--dir", tmp_path],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    first = follower.stdout.readline()
    assert trainer.poll() is None, "the first line came while the training went on"
    rest = follower.stdout.read()  # not communicate: it leaves out what readline has taken in already
    assert follower.wait(30) == 0 and trainer.wait() == 0 and time.monotonic() - began < patient(30)
    steps = [line for line in (first + rest).splitlines() if line.startswith("step ")]
    assert [int(line.split()[1]) for line in steps] == list(range(80))


@pytest.mark.parametrize("to", ["csv", "jsonl", "parquet"])
def test_export_to_standard_output_is_the_file_and_nothing_else(
    to: str, runs: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "first", "--dir", str(runs), "--to", to, "--out", "whole"]) == 0
    capfdbinary.readouterr()
    assert main(["export", "first", "--dir", str(runs), "--to", to, "--out", "-"]) == 0
    assert capfdbinary.readouterr().out == Path("whole").read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["whole"]


def test_export_writes_every_format_with_non_finite_values(runs: Path, tmp_path: Path) -> None:
    pandas_free = tmp_path / "out.csv"
    assert main(["export", "first", "--dir", str(runs), "--out", str(pandas_free), "--series", "train/*"]) == 0
    rows = list(csv.DictReader(pandas_free.open()))
    assert len(rows) == 10 and rows[7]["train/loss"] == "NaN" and float(rows[9]["train/loss"]) == 4.1
    assert main(["export", "first", "--dir", str(runs), "--to", "jsonl", "--out", str(tmp_path / "o.jsonl")]) == 0
    lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert lines[7]["train/loss"] == "NaN" and lines[9]["odd/na\nme"] == 1.0
    assert main(["export", "first", "--dir", str(runs), "--to", "parquet", "--out", str(tmp_path / "o.parquet")]) == 0
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "o.parquet").to_pylist()
    values = [row["value"] for row in table if row["name"] == "train/loss"]
    assert len(values) == 10 and math.isnan(values[7])
    assert main(["export", "first", "--dir", str(runs), "--layout", "long", "--out", str(tmp_path / "l.csv")]) == 0
    long = list(csv.DictReader((tmp_path / "l.csv").open()))
    assert {row["name"] for row in long} >= {"train/loss", "eval/loss"} and long[0].keys() >= {"step", "value"}


def test_export_of_nothing_is_a_sentence_and_no_file(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "none.csv"
    code, _, err = type_in(capsys, "export", "first", "--dir", runs, "--series", "zzz*", "--out", out)
    assert code == 1 and "no series that matches zzz*" in err and not out.exists()


def test_gc_seals_what_a_killed_run_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        "import barograph, os, signal, sys; run = barograph.init(dir=sys.argv[1], verbosity=-2, git=False)\n"
        "for step in range(500): run.log({'loss': step}, step=step)\n"
        "run.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    (run,) = barograph.runs(tmp_path)
    assert run.status == "crashed" and not list(run.dir.glob("store/*/*.parquet"))
    code, out, _ = type_in(capsys, "gc", "--dir", tmp_path)
    assert code == 0 and "bytes" in out
    assert list(run.dir.glob("store/*/*.parquet"))
    assert barograph.runs(tmp_path)[0].series("loss").value.tolist() == list(range(500))
    code, out, _ = type_in(capsys, "gc", "--dir", tmp_path)
    assert "Nothing to do" in out


def test_a_reader_that_leaves_a_pipe_is_no_error(runs: Path) -> None:
    command = f"{sys.executable} -m barograph show first --dir {runs} --json | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
