"""`barograph import` says what it read, what it did not understand, and ends with a code that scripts can use."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barograph.importing import pursuit
from barograph.importing.command import run_import
from barograph.importing.read import read
from barograph.query.catalog import runs
from barograph.query.stored import StoredRun


def write_rows(path: Path, steps: range) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        for step in steps:
            file.write(json.dumps({"step": step, "loss": 2.5 - step / 100}) + "\n")
    return path


def test_runs_are_stored_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "logs" / "rows.jsonl", range(10))
    path.write_text(path.read_text() + "what is this?\n")
    assert run_import([tmp_path / "logs"], dir=tmp_path / "runs", project="p") == 0
    out, err = capsys.readouterr()
    (run,) = runs(tmp_path / "runs")
    assert run.project == "p" and len(run.series("train/loss")) == 10
    assert out.splitlines() == [
        f"jsonl  {path}",
        f"  → {run.dir}",
        "  new: 10 numbers in 10 rows, up to step 9",
        "  ! 1 not understood, such as",
        "    rows.jsonl:11  no JSON object: what is this?",
    ]
    assert err.startswith("import rows, MB") and "done in" in err
    assert run_import([tmp_path / "logs"], dir=tmp_path / "runs", project="p") == 0
    assert "  nothing new" in capsys.readouterr().out.splitlines()


def test_a_rehearsal_says_what_would_be_read_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    path.write_text("iter,train_loss,step_time_sec\n1,2.5,0.5\n2,oops,0.5\n")
    assert run_import([path], dir=tmp_path / "runs", dry_run=True) == 0
    assert not (tmp_path / "runs").exists()
    assert capsys.readouterr().out.splitlines() == [
        f"csv  {path}",
        "  3 numbers in 2 rows, steps 1 to 2",
        "            2  step_time_sec × 1000 → train/duration_ms",
        "            1  train_loss → train/loss",
        "  ! 1 not understood, such as",
        "    log.csv:3  train_loss is not a number: oops",
    ]
    assert run_import([path], dir=tmp_path / "runs", dry_run=True, as_json=True) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["points"] == 3 and run["names"]["train_loss"] == {"series": "train/loss", "factor": 1.0}


def test_paths_that_hold_nothing_are_told_in_one_sentence_each_and_the_others_are_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write_rows(tmp_path / "rows.jsonl", range(3))
    (tmp_path / "poem.txt").write_text("\nRoses are red\n")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    names = ["nothing", "poem.txt", "empty", "folder"]
    code = run_import([*(tmp_path / name for name in names), good], dir=tmp_path / "runs", as_json=True)
    out, err = capsys.readouterr()
    assert code == 1 and len(json.loads(out)["runs"]) == 1 and len(runs(tmp_path / "runs")) == 1
    lines = [line for line in err.splitlines() if line.startswith("barograph: ")]
    assert len(lines) == 4
    assert "nothing: No such file" in lines[0] and "line 2 is 'Roses are red'" in lines[1]
    assert "the file is empty" in lines[2] and "nothing in this folder" in lines[3]


def test_options_that_do_not_fit_are_told(tmp_path: Path) -> None:
    for name in "ab":
        write_rows(tmp_path / f"{name}.jsonl", range(3))
    with pytest.raises(ValueError, match="2 were found"):
        run_import([tmp_path], dir=tmp_path / "runs", name="x")
    with pytest.raises(ValueError, match="no kind of log"):
        run_import([tmp_path], dir=tmp_path / "runs", kind="x")
    with pytest.raises(ValueError, match="cannot be read"):
        run_import([tmp_path], dir=tmp_path / "runs", aliases=tmp_path / "nothing.yaml")
    assert not (tmp_path / "runs").exists()


def test_name_project_kind_and_aliases_are_used(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,my_loss,acc\n1,2.5,0\n2,2.25,0\n")
    (tmp_path / "a.yaml").write_text("aliases: {train/loss: my_loss}\n")
    code = run_import(
        [path], dir=tmp_path / "runs", name="N", project="P", kind="csv", aliases=tmp_path / "a.yaml"
    )  # fmt: skip
    (run,) = runs(tmp_path / "runs")
    assert code == 0 and (run.name, run.project) == ("N", "P") and len(run.series("train/loss")) == 2


def test_a_file_in_the_folder_of_runs_is_no_source(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", range(3))
    for _ in range(2):
        assert run_import([tmp_path], dir=tmp_path / "runs") == 0
    assert len(runs(tmp_path / "runs")) == 1
    assert run_import([tmp_path / "runs"], dir=tmp_path / "runs") == 1
    assert path.exists()


def test_control_characters_of_a_log_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_rows(tmp_path / "rows\x1b[31m.jsonl", range(3))
    path.write_text(path.read_text() + "\x1b]0;title\x07\n")
    run_import([path], dir=tmp_path / "runs")
    assert "\x1b" not in capsys.readouterr().out


def test_read_gives_runs_like_stored_ones_and_leaves_nothing_behind(tmp_path: Path) -> None:
    write_rows(tmp_path / "logs" / "a.jsonl", range(3))
    (tmp_path / "logs" / "b.csv").write_text("step,nll\n1,2.5\n")
    script = (
        "import sys, barograph.importing.read as r\n"
        "runs = r.read(sys.argv[1], aliases={'train/loss': 'nll'})\n"
        "print([(run.name, run.series('train/loss').value.tolist()) for run in runs])\n"
        "print(runs[0].dir)"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "logs")], capture_output=True, text=True, check=True
    )
    values, folder = found.stdout.splitlines()
    assert values == "[('a', [2.5, 2.49, 2.48]), ('b', [2.5])]" and not Path(folder).exists()


def test_read_of_a_run_is_the_run_and_of_nothing_an_error(tmp_path: Path) -> None:
    run_import([write_rows(tmp_path / "rows.jsonl", range(3))], dir=tmp_path / "runs")
    (run,) = runs(tmp_path / "runs")
    assert [one.dir for one in read(run.dir)] == [run.dir]
    with pytest.raises(ValueError, match="nothing in"):
        (tmp_path / "folder").mkdir()
        read(tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing")


# -- following --------------------------------------------------------------------------------------------

FOLLOWER = """
import sys
from barograph.importing import pursuit
from barograph.importing.command import run_import
pursuit.LOOK_SECONDS, pursuit.SEARCH_SECONDS = 0.02, 0.1
sys.exit(run_import(sys.argv[2:], dir=sys.argv[1], follow=True))
"""


def wait_for(what: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def loss_of(root: Path) -> dict[str, list[int]]:
    found = {}
    for run in runs(root):
        if "train/loss" in run.names():
            found[run.name] = run.series("train/loss").step.tolist()
    return found


def test_a_log_is_followed_while_it_grows_and_new_files_too(tmp_path: Path) -> None:
    logs, root = tmp_path / "logs", tmp_path / "runs"
    write_rows(logs / "a.jsonl", range(5))
    process = subprocess.Popen(
        [sys.executable, "-c", FOLLOWER, str(root), str(logs)], stdout=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: loss_of(root) == {"a": [*range(5)]})
        (run,) = runs(root)
        wait_for(lambda: run.status == "running")
        write_rows(logs / "a.jsonl", range(5, 9))
        wait_for(lambda: loss_of(root) == {"a": [*range(9)]})
        wait_for(lambda: [record.step for record in run.records("step")] == [*range(9)])
        write_rows(logs / "b.jsonl", range(2))
        wait_for(lambda: loss_of(root) == {"a": [*range(9)], "b": [0, 1]})
        with open(logs / "a.jsonl", "a") as file:
            file.write('{"step": 9, "lo')
            file.flush()
            time.sleep(0.2)
            assert loss_of(root)["a"] == [*range(9)]
            file.write('ss": 1.0}\n')
        wait_for(lambda: loss_of(root)["a"] == [*range(10)])
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0 and out.startswith(f"following {logs / 'a.jsonl'} → ")
    assert {run.status for run in runs(root)} == {"imported"}
    assert run_import([logs], dir=root) == 0 and loss_of(root) == {"a": [*range(10)], "b": [0, 1]}


@pytest.mark.slow
def test_a_follower_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    path, root = tmp_path / "a.jsonl", tmp_path / "runs"
    command = [sys.executable, "-c", FOLLOWER, str(root), str(path)]
    for begin in range(0, 500, 50):
        write_rows(path, range(begin, begin + 25))
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(0.4 + begin / 2000)
        write_rows(path, range(begin + 25, begin + 50))
        time.sleep(0.05)
        process.kill()
        process.wait()
    assert run_import([path], dir=root) == 0
    (run,) = runs(root)
    assert run.series("train/loss", branch="all").step.tolist() == list(range(500))
    json.loads((run.dir / "training.json").read_bytes())


def test_following_ends_by_itself_when_the_source_says_that_the_training_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pursuit, "LOOK_SECONDS", 0.01)
    history = [{"step": step, "epoch": 0.1, "loss": 1.0} for step in (1, 2)]
    history.append({"step": 2, "epoch": 0.1, "train_runtime": 5.0})
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"best_model_checkpoint": None, "log_history": history}))
    assert run_import([path], dir=tmp_path / "runs", follow=True) == 0
    (run,) = runs(tmp_path / "runs")
    assert run.status == "finished" and isinstance(run, StoredRun)


def test_a_log_that_is_away_for_a_moment_is_read_on_and_one_made_anew_is_another_run(tmp_path: Path) -> None:
    path, root = tmp_path / "train.log", tmp_path / "runs"
    rows = [f"iter {step}: loss {step + 1:.4f}, time 100.00ms, mfu 10.00%\n" for step in range(40)]
    path.write_text("".join(rows[:20]))
    process = subprocess.Popen([sys.executable, "-c", FOLLOWER, str(root), str(path)], stdout=subprocess.DEVNULL)

    def steps() -> list[list[int]]:
        return [run.series("train/loss", branch="all").step.tolist() for run in runs(root) if run.names()]

    try:
        wait_for(lambda: steps() == [[*range(20)]])
        away = path.rename(tmp_path / "away")
        time.sleep(0.5)
        away.rename(path)
        with open(path, "a") as file:
            file.writelines(rows[20:])
        wait_for(lambda: any(len(one) >= 40 for one in steps()))
        assert steps() == [[*range(40)]]
        path.unlink()
        time.sleep(0.5)
        path.write_text("".join(rows[5:10]))
        wait_for(lambda: sorted(steps(), key=len) == [[*range(5, 10)], [*range(40)]])
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    finally:
        process.kill()
    assert not any(run.manifest["source"]["unread"]["count"] for run in runs(root))


def test_a_log_that_is_replaced_while_it_is_followed_is_another_run(tmp_path: Path) -> None:
    path, root = write_rows(tmp_path / "a.jsonl", range(20)), tmp_path / "runs"
    process = subprocess.Popen([sys.executable, "-c", FOLLOWER, str(root), str(path)], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: loss_of(root) == {"a": [*range(20)]})
        path.write_text('{"step": 7, "loss": 1}\n{"step": 8, "loss": 1}\n')
        wait_for(lambda: sorted(map(len, (run.series("loss") for run in runs(root) if run.names()))) == [2, 20])
        assert [run.status for run in runs(root) if len(run.series("loss")) == 20] == ["imported"]
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    finally:
        process.kill()
    assert process.returncode == 0
