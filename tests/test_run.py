"""A run records whatever it is given, wherever and however the process ends, and never raises."""

from __future__ import annotations

import json
import math
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
from typing import Any

import numpy
import pytest

import barograph
from barograph.query import StoredRun


def strict(path: Path) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def start(folder: Path, **options: Any) -> barograph.Run:
    options = {"project": "p", "dir": folder, "verbosity": -2, "git": False, "flush_seconds": 0.05} | options
    return barograph.init(**options)


def only(folder: Path) -> StoredRun:
    (run,) = barograph.runs(folder)
    return run


def test_what_is_logged_comes_back(tmp_path: Path) -> None:
    run = start(tmp_path, name="first", config={"lr": 0.1, "model": {"width": 8}})
    for step in range(100):
        run.log({"train/loss": 1.0 / (step + 1), "train/lr": 0.1}, step=step)
    run.finish()
    back = only(tmp_path)
    series = back.series("train/loss")
    assert len(series) == 100
    assert series.value.tolist() == [1.0 / (step + 1) for step in range(100)]
    assert series.step.tolist() == list(range(100))
    assert back.config == {"lr": 0.1, "model": {"width": 8}}
    assert (back.id, back.name, back.project, back.status) == ("first", "first", "p", "finished")
    assert [item["step"] for item in strict(back.dir / "training.json") if item["log"] == "metrics"] == list(range(100))


def test_what_is_logged_is_there_at_once_for_another_reader(tmp_path: Path) -> None:
    run = start(tmp_path, flush_seconds=3600)
    run.log({"loss": 1.5}, step=1)
    assert only(tmp_path).series("loss").value.tolist() == [1.5]
    assert only(tmp_path).status == "running"
    run.finish()


def test_nothing_is_doubled_while_the_store_catches_up(tmp_path: Path) -> None:
    run = start(tmp_path, flush_seconds=0.01)
    for step in range(2000):
        run.log({"a": step}, step=step)
        if step % 3 == 0:
            run.log({"b": step}, step=step)
        if step % 100 == 0:
            assert only(tmp_path).series("a").value.tolist() == list(range(step + 1))
    run.finish()
    assert only(tmp_path).series("a").value.tolist() == list(range(2000))
    assert only(tmp_path).series("b").value.tolist() == list(range(0, 2000, 3))


def test_steps_count_by_themselves(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for _ in range(3):
            run.log({"loss": 1.0})
        run.log({"loss": 1.0}, step=10)
        run.log({"loss": 1.0})
    assert only(tmp_path).series("loss").step.tolist() == [0, 1, 2, 10, 11]


def test_steps_that_go_back_are_kept_and_sorted(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for step in (5, 6, 3, 4, 6):
            run.log({"loss": float(step)}, step=step)
    series = only(tmp_path).series("loss")
    assert series.step.tolist() == [3, 4, 5, 6, 6]


NASTY: list[Any] = [
    {"nan": math.nan, "inf": math.inf, "minus": -math.inf, "fine": 1.0},
    {"huge": 10**400, "big": 2**64, "small": -(2**70)},
    {"text": "hello", "none": None, "flag": True},
    {"nested": {"deep": {"er": 1.5}}},
    {"numpy": numpy.float32(1.5), "array": numpy.zeros((3, 4)), "scalar": numpy.array(2.0)},
    {1: 2.0, None: 3.0, (1, 2): 4.0, b"bytes": 5.0},
    {'quote"': 1.0, "new\nline": 2.0, "a/b/../c": 3.0, "🎛️": 4.0, "\x00": 5.0, "</script>": 6.0, "": 7.0},
    {"k" * 10_000: 1.0},
    {"\ud800": 1.0},
    {"log": 1.0, "time": 2.0, "step": 3.0, "values": 4.0},
    {},
    None,
    "loss",
    [1, 2],
    {"object": object()},
]


@pytest.mark.parametrize("values", NASTY, ids=range(len(NASTY)))
def test_nothing_that_is_logged_raises_and_the_file_stays_strict(tmp_path: Path, values: Any) -> None:
    run = start(tmp_path)
    for _ in range(2):
        run.log(values)
        run.log({"after": 1.0})
    run.finish()
    strict(run.log_file)
    back = only(tmp_path)
    assert len(back.series("after")) == 2
    if isinstance(values, dict):
        for name in back.names():
            back.series(name)


def test_non_finite_values_come_back_as_they_were(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for value in (1.0, math.nan, math.inf, -math.inf, 2.0):
            run.log({"loss": value})
    value = only(tmp_path).series("loss").value
    assert math.isnan(value[1]) and value[2] == math.inf and value[3] == -math.inf
    assert [value[0], value[4]] == [1.0, 2.0]


def test_a_users_names_that_records_use_are_series_too(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.log({"log": 1.0, "time": 2.0, "step": 3.0, "values": 4.0}, step=7)
    back = only(tmp_path)
    assert {name: back.series(name).value.tolist() for name in ("log", "time", "step", "values")} == {
        "log": [1.0],
        "time": [2.0],
        "step": [3.0],
        "values": [4.0],
    }


@pytest.mark.parametrize("step", [math.nan, "five", None, 2.0, numpy.int64(3), 10**30, -1, object(), True])
def test_no_step_raises(tmp_path: Path, step: Any) -> None:
    with start(tmp_path) as run:
        run.log({"loss": 1.0}, step=step)
        run.log_step(step, 0.0, 1, 1, 1.0, 1.0, 1.0)
    assert len(only(tmp_path).series("loss")) == 1


def test_strict_raises_what_is_swallowed_otherwise(tmp_path: Path) -> None:
    run = start(tmp_path, strict=True)
    with pytest.raises(ValueError, match="log_histogram"):
        run.log({"array": numpy.zeros(3)})
    with pytest.raises(ValueError, match="mapping"):
        run.log([1, 2])  # type: ignore[arg-type]
    run.finish()


def test_wide_records_are_in_the_store_and_not_in_the_log(tmp_path: Path) -> None:
    wide = {f"layer{number}/norm": number * 0.5 for number in range(2000)}
    with start(tmp_path) as run:
        for step in range(5):
            run.log(wide, step=step)
        run.log_layers(9, {"block.0": {"norm": 1.0, "mean": 0.0}, "block.1": {"norm": 2.0, "mean": 0.5}}, "gradients")
        run.log_expert_loads(9, {"block.0": [0.25, 0.75]})
        run.log_histogram("weights", numpy.arange(100.0), step=9)
    back = only(tmp_path)
    assert back.series("layer1999/norm").value.tolist() == [999.5] * 5
    assert back.series("gradients/block.1/norm").value.tolist() == [2.0]
    assert back.series("moe/block.0/load/1").value.tolist() == [0.75]
    (histogram,) = back.histograms("weights")
    assert histogram.step == 9 and histogram.counts.sum() == 100 and len(histogram.edges) == len(histogram.counts) + 1
    assert not any(item["log"] == "metrics" for item in strict(run.log_file))


def test_threads_may_log_to_one_run(tmp_path: Path) -> None:
    run = start(tmp_path)

    def work(number: int) -> None:
        for step in range(300):
            run.log({f"thread{number}": step}, step=step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.finish()
    for number in range(6):
        assert only(tmp_path).series(f"thread{number}").value.tolist() == list(range(300))


def test_logging_after_the_end_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = start(tmp_path)
    run.finish()
    run.finish()
    for _ in range(3):
        run.log({"loss": 1.0})
    assert len([r for r in caplog.records if "finished" in r.message]) == 1


# -- resume, rewind, names -----------------------------------------------------------------------------


def test_a_resumed_run_supersedes_the_steps_it_logs_again_and_keeps_the_old_ones(tmp_path: Path) -> None:
    with start(tmp_path, id="job") as run:
        for step in range(100):
            run.log({"loss": 1.0}, step=step)
    with start(tmp_path, id="job") as run:
        assert run.segment.number == 2
        for step in range(80, 120):
            run.log({"loss": 2.0}, step=step)
    back = only(tmp_path)
    series = back.series("loss")
    assert series.step.tolist() == list(range(120))
    assert series.value.tolist() == [1.0] * 80 + [2.0] * 40
    assert len(back.series("loss", branch="all")) == 140
    assert [segment.kind for segment in back.segments] == ["start", "resume"]
    strict(run.log_file)


def test_rewind_supersedes_from_its_step_on(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for step in range(50):
            run.log({"loss": 1.0}, step=step)
        run.rewind(30)
        run.log({"loss": 2.0})
        run.log({"loss": 2.0})
    series = only(tmp_path).series("loss")
    assert series.step.tolist() == list(range(32))
    assert series.value.tolist() == [1.0] * 30 + [2.0] * 2


def test_resume_auto_takes_the_newest_and_counts_on(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with start(tmp_path, name=name, config={"lr": 1}) as run:
            for _ in range(5):
                run.log({"loss": 1.0})
    with start(tmp_path, resume="auto") as run:
        assert run.id == "new" and run.config == {"lr": 1}
        run.log({"loss": 3.0})
    assert next(r for r in barograph.runs(tmp_path) if r.id == "new").series("loss").step.tolist() == [0, 1, 2, 3, 4, 5]


def test_resume_of_a_run_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(barograph.ConfigError, match="no run to go on with"):
        start(tmp_path, resume="nothing")
    start(tmp_path, resume="auto").finish()


def test_runs_of_the_same_name_get_folders_of_their_own(tmp_path: Path) -> None:
    for _ in range(3):
        start(tmp_path, name="same").finish()
    assert {run.id for run in barograph.runs(tmp_path)} == {"same", "same-2", "same-3"}


def test_hostile_names_stay_inside_the_folder(tmp_path: Path) -> None:
    for name in ("../../escape", "/etc/passwd", "a/b", "..", "\n", "x" * 500, "<script>"):
        run = start(tmp_path / "runs", name=name, project=name.strip() or "p")
        assert run.dir.resolve().is_relative_to((tmp_path / "runs").resolve())
        run.finish()
    assert len(barograph.runs(tmp_path / "runs")) == 7


def test_a_checkpoints_metadata_comes_back_on_resume(tmp_path: Path) -> None:
    with start(tmp_path, id="job") as run:
        folder = run.dir / "checkpoints"
        folder.mkdir()
        state = {"pq_idx": 3, "rg_idx": 7, "epoch": 1}
        loop = {"smooth_train_loss": 2.5, "min_val_bpb": math.inf, "total_training_time": 12.5}
        (folder / "model_000010.pt").write_bytes(b"weights")
        run.save_checkpoint(folder / "model_000010.pt", 10, val_loss=2.0, loader_state=state, loop_state=loop)
    with start(tmp_path, id="job") as run:
        restored = run.restore()
    assert restored is not None and restored["step"] == 10
    assert restored["dataloader_state_dict"] == state
    assert restored["loop_state"] == loop


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
run = barograph.init(project="p", dir=sys.argv[1], name="killed", verbosity=-2, git=False, flush_seconds=0.1)
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


def test_kill_9_loses_no_logged_step_and_little_wide_data(tmp_path: Path) -> None:
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


def test_a_background_task_that_raises_or_hangs_costs_no_record(tmp_path: Path) -> None:
    def hang() -> None:
        release.wait(20)

    def fail() -> None:
        raise RuntimeError

    release = threading.Event()
    run = start(tmp_path)
    run._pump.chores += [fail, hang]
    for step in range(1000):
        run.log({"loss": 1.0}, step=step)
    assert only(tmp_path).series("loss").step.tolist() == list(range(1000))
    run._pump.chores.clear()
    release.set()
    run.finish()
    assert len(only(tmp_path).series("loss")) == 1000


def test_a_full_queue_drops_nothing_that_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph.recorder.LONG_QUEUE", 10)
    monkeypatch.setattr("barograph.pump.MOST_ROWS", 50)
    run = start(tmp_path, flush_seconds=0.2)
    for step in range(5000):
        run.log({"loss": float(step)}, step=step)
        if step % 1000 == 0:
            time.sleep(0.3)
    run.finish()
    back = only(tmp_path)
    assert back.series("loss").value.tolist() == list(range(5000))


def test_a_log_on_a_network_file_system_is_written_here_and_carried_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barograph.place.is_network_filesystem", lambda path: True)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "here"))
    (tmp_path / "here").mkdir()
    for first in (0, 30):
        run = start(tmp_path / "there", id="job", flush_seconds=3600 if first else 0.05)
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


def test_a_big_run_is_sealed_whole_soon_after_its_end(tmp_path: Path) -> None:
    run = start(tmp_path, seal_points=200_000)
    wide = {f"layer{number}": float(number) for number in range(1000)}
    for step in range(1400):
        run.log(wide, step=step)
    run.finish()
    until = time.monotonic() + 30
    while list(run.dir.glob("store/*/*.arrows")) and time.monotonic() < until:
        time.sleep(0.1)
    assert not list(run.dir.glob("store/*/*.arrows"))
    assert only(tmp_path).series("layer999").step.tolist() == list(range(1400))
