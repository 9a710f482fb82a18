"""A run in forked and spawned processes, and in a hostile environment."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from run_starts import only, start, strict

import barograph
from barograph.query.stored import StoredRun

# -- processes ----------------------------------------------------------------------------------------------


def _log_some(run: barograph.Run, number: int) -> None:
    for step in range(50):
        run.log({f"process{number}": step}, step=step)
    run.log({f"wide{number}/{at}": 1.0 for at in range(200)}, step=0)
    run.finish()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_many_processes_log_to_one_run(tmp_path: Path, method: str) -> None:
    run = start(tmp_path)
    run.log({"parent": 1.0}, step=0)
    context = multiprocessing.get_context(method)
    children = [context.Process(target=_log_some, args=(run, number)) for number in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    run.log({"parent": 2.0}, step=1)
    run.finish()
    back = only(tmp_path)
    assert back.series("parent").value.tolist() == [1.0, 2.0]
    for number in range(3):
        assert back.series(f"process{number}").value.tolist() == list(range(50))
        assert back.series(f"wide{number}/7").value.tolist() == [1.0]
    for path in back.log_files():
        strict(path)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_worker_that_logs_nothing_leaves_no_trace_and_does_not_hang(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.log({"loss": 1.0})
    child = os.fork()
    if child == 0:
        os._exit(0 if not run.finish() else 1)
    assert os.waitpid(child, 0)[1] == 0
    run.log({"loss": 2.0})
    run.finish()
    assert only(tmp_path).series("loss").value.tolist() == [1.0, 2.0]
    assert len(only(tmp_path).log_files()) == 1


def test_a_pickled_run_is_the_same_run(tmp_path: Path) -> None:
    run = start(tmp_path)
    again = pickle.loads(pickle.dumps(run))
    assert again.dir == run.dir and again.segment == run.segment
    again.finish()
    run.finish()


SCRIPT = """
import sys, time, barograph
run = barograph.init(project="p", dir=sys.argv[1], name="killed", verbosity=-2, git=False)
mode = sys.argv[2]
step = 0
while True:
    run.log({"loss": 1.0 / (step + 1), "lr": 0.1}, step=step)
    run.log({f"wide/{n}": float(step) for n in range(300)}, step=step)
    print(step, flush=True)
    step += 1
    if mode == "raise" and step == 20:
        raise RuntimeError("boom")
    if mode == "exit" and step == 20:
        sys.exit(0)
    time.sleep(0.005)
"""


def test_kill_9_loses_no_logged_step_and_no_wide_row(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, tmp_path, "loop"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 100:
            break
    process.kill()
    rest = process.communicate()[0].split()
    last = int(rest[-1]) if rest else int(line)
    run = only(tmp_path)
    assert run.status == "crashed"
    strict(run.dir / "training.json")
    assert run.series("loss").step.tolist()[: last + 1] == list(range(last + 1))
    wide = run.series("wide/7").value.tolist()
    assert wide == [float(step) for step in range(len(wide))]
    assert len(wide) >= last - 100  # half a second of 5 ms steps
    with start(tmp_path, resume="killed") as again:
        again.log({"loss": 5.0}, step=last + 1)
    assert only(tmp_path).series("loss").value.tolist()[-1] == 5.0
    assert only(tmp_path).status == "finished"


@pytest.mark.parametrize(("mode", "status"), [("raise", "failed"), ("exit", "finished")])
def test_the_interpreters_exit_ends_the_run_with_the_right_status(tmp_path: Path, mode: str, status: str) -> None:
    subprocess.run([sys.executable, "-c", SCRIPT, tmp_path, mode], capture_output=True, check=False, timeout=60)
    run = only(tmp_path)
    assert run.status == status
    assert len(run.series("loss")) == len(run.series("wide/7")) == 20
    assert not list(run.dir.glob("store/*/*.arrows"))


def test_ctrl_c_ends_the_run_as_interrupted_with_everything_in_it(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, tmp_path, "loop"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 30:
            break
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[0].split()
    run = only(tmp_path)
    assert run.status == "interrupted"
    assert len(run.series("loss")) >= int(rest[-1] if rest else line) + 1


# -- a hostile environment ---------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_replaced_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    run = start(tmp_path / "file" / "runs")
    run.log({"loss": 1.0})
    run.finish()
    assert "could not write to" in caplog.text and str(run.dir.parent.parent) in caplog.text
    assert StoredRun(run.dir).series("loss").value.tolist() == [1.0]
    shutil.rmtree(run.dir.parent.parent)
    with pytest.raises(OSError):
        start(tmp_path / "file" / "runs", strict=True)


def test_a_folder_deleted_under_the_run_costs_no_logged_record(tmp_path: Path) -> None:
    run = start(tmp_path, sync_seconds=0.05)
    run.log({"loss": 1.0}, step=0)
    assert run.flush()
    while run.dir.exists():
        shutil.rmtree(run.dir, ignore_errors=True)
    for step in range(1, 20):
        run.log({"loss": 1.0}, step=step)
        time.sleep(0.03)
    run.finish()
    steps = [item["step"] for item in strict(run.log_file) if item["log"] == "metrics"]
    assert steps == list(range(20))


def test_a_clock_that_jumps_back_and_forth_keeps_order_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(tmp_path)
    real = time.time_ns
    for step, shift in enumerate((0, -(10**15), 10**18, -(10**18), 9 * 10**18)):
        monkeypatch.setattr(time, "time_ns", lambda shift=shift: real() + shift)
        run.log({"loss": float(step)}, step=step)
    monkeypatch.setattr(time, "time_ns", real)
    run.finish()
    assert only(tmp_path).series("loss").value.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    strict(run.log_file)


def test_a_background_task_that_raises_or_hangs_costs_no_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def hang() -> None:
        release.wait(20)

    def fail() -> None:
        raise RuntimeError

    release = threading.Event()
    run = start(tmp_path)
    run._out.later.each_round(fail)
    run._out.later.each_round(hang)
    run._out.each_second.append(fail)
    for step in range(1000):
        run.log({"loss": 1.0}, step=step)
        run._out.second -= 1
    assert only(tmp_path).series("loss").step.tolist() == list(range(1000))
    release.set()
    run.finish()
    assert len(only(tmp_path).series("loss")) == 1000 and caplog.text.count("RuntimeError") == 1


def test_a_log_on_a_network_file_system_is_written_here_and_carried_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barograph.core.place.is_network_filesystem", lambda path: True)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "here"))
    (tmp_path / "here").mkdir()
    for first in (0, 30):
        run = start(tmp_path / "there", id="job")
        for step in range(first, first + 40):
            run.log({"loss": float(step)}, step=step)
            assert only(tmp_path / "there").series("loss").value.tolist() == list(range(step + 1))
        run.finish()
        items = strict(tmp_path / "there" / "p" / "job" / "training.json")
        assert [item["step"] for item in items if item["log"] == "metrics"][-40:] == list(range(first, first + 40))
        assert not list((tmp_path / "here").glob("*/*"))


def test_ranks_of_one_launch_meet_in_one_run(tmp_path: Path) -> None:
    script = (
        "import sys, barograph; r = barograph.init(project='p', dir=sys.argv[1], verbosity=-2, git=False);"
        "[r.log({f'rank{r.rank}': s}, step=s) for s in range(20)]; r.log_message(0, 'hello'); r.finish()"
    )
    common = {"WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "localhost", "MASTER_PORT": "29501"}
    processes = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path], env=os.environ | common | {"RANK": str(rank)})
        for rank in range(4)
    ]
    assert [process.wait(60) for process in processes] == [0] * 4
    run = only(tmp_path)
    for rank in range(4):
        assert run.series(f"rank{rank}").value.tolist() == list(range(20))
    assert len(run.segments) == 1 and len(run.log_files()) == 4
