"""A run's life cycle against what comes at a bad moment: other ranks, signals, refusals, a second writer."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_starts import only, start, strict

import barograph
from barograph.importing.files import RunFiles
from barograph.log import spool
from barograph.store.schema import SEALING_LOCK
from barograph.training.ending import open_runs


def test_ranks_that_come_late_go_on_with_the_run_that_rank_0_went_on_with(tmp_path: Path) -> None:
    run = start(tmp_path)
    for step in range(5):
        run.log({"loss": 1.0}, step=step)
    run.finish()
    script = (
        "import sys, barograph;"
        "r = barograph.init(project='p', dir=sys.argv[1], verbosity=-2, git=False, resume='auto');"
        "r.log({f'rank{r.rank}': 1.0}); r.log({f'rank{r.rank}': 2.0}); print(r.id, flush=True); sys.stdin.read();"
        "r.finish()"
    )
    common = {"WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "localhost", "MASTER_PORT": "29501"}
    ranks, ids = [], []
    for rank in range(3):  # each comes when the ones before are at work
        environment = os.environ | common | {"RANK": str(rank)}
        ranks.append(
            subprocess.Popen(
                [sys.executable, "-c", script, tmp_path],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        out = ranks[-1].stdout
        assert out is not None
        ids.append(out.readline().strip())
    for process in ranks:
        process.communicate(timeout=60)
    assert ids == [run.id] * 3
    back = only(tmp_path)
    assert [segment.kind for segment in back.segments] == ["start", "resume"] and back.status == "finished"
    for rank in range(3):
        assert back.series(f"rank{rank}").step.tolist() == [5, 6]


@pytest.mark.parametrize("resume", ["True", "'auto'"])
def test_ranks_that_end_a_run_and_go_on_with_it_in_one_launch_begin_a_segment(tmp_path: Path, resume: str) -> None:
    """As where a program loads a checkpoint of an earlier step, and records on from there: once, and once more."""
    script = (
        "import sys, barograph\n"
        "for begun, resume in ((0, 'never'), (3, RESUME), (2, RESUME)):\n"
        "    r = barograph.init(project='p', dir=sys.argv[1], verbosity=-2, git=False, resume=resume,\n"
        "                       resume_step=begun if begun else None)\n"
        "    for step in range(begun, begun + 4): r.log({f'rank{r.rank}': begun + step / 100}, step=step)\n"
        "    print(r.id, flush=True); sys.stdin.readline(); r.finish('interrupted')\n"
        "    print(r.dir, flush=True); sys.stdin.readline()\n"
    ).replace("RESUME", resume)
    common = {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "localhost", "MASTER_PORT": "29501"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script, tmp_path],
            env=os.environ | common | {"RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for _ in range(6):  # at each place the two wait for each other
        for process in ranks:
            assert process.stdout is not None and process.stdout.readline().strip()
        for process in ranks:
            assert process.stdin is not None
            process.stdin.write("on\n")
            process.stdin.flush()
    for process in ranks:
        process.communicate(timeout=60)
    back = only(tmp_path)
    assert [(one.kind, one.start_step) for one in back.segments][1:] == [("resume", 3), ("resume", 2)]
    for rank in range(2):
        rows = back.series(f"rank{rank}")
        assert rows.step.tolist() == [0, 1, 2, 3, 4, 5]
        assert rows.value.tolist() == pytest.approx([0.0, 0.01, 2.02, 2.03, 2.04, 2.05])


def test_an_old_meeting_place_is_removed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later launch of the same identity: no rank removes what another has put in its place."""
    from barograph.training.folders import _shared_folder

    first = _shared_folder(tmp_path, "n", "launch")
    (place,) = tmp_path.glob(".launch-*")
    os.utime(place, (1, 1))
    removing, unlink = threading.Event(), Path.unlink

    def slow(path: Path, missing_ok: bool = False) -> None:
        if path == place and not removing.is_set():
            removing.set()
            time.sleep(0.5)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", slow)
    found: list[Path] = []
    ranks = [threading.Thread(target=lambda: found.append(_shared_folder(tmp_path, "n", "launch"))) for _ in range(2)]
    ranks[0].start()
    assert removing.wait(10)
    ranks[1].start()
    for rank in ranks:
        rank.join(30)
    assert found[0] == found[1] != first


# -- what the store can't take ----------------------------------------------------------------------------


def _log_odd(run: barograph.Run, what: str) -> None:
    if what == "words":
        run.log_histogram("odd", ["a", "b"], step=1)
    elif what == "no bins":
        run.log_histogram("odd", [1.0, 2.0], step=1, bins=0)
    elif what == "bins without a number":
        run.log_histogram("odd", [1.0, 2.0], step=1, bins="auto")  # type: ignore[arg-type]
    elif what == "a step beyond 64 bits":
        run.log({"odd": 1.0}, step=1 << 70)
    elif what == "a step behind the last":
        run.log({"odd": 1.0}, step=(1 << 63) - 1)
        run.log({"odd": 1.0})


@pytest.mark.parametrize(
    "what",
    [
        "words",
        "no bins",
        "bins without a number",
        "a step beyond 64 bits",
        "a step behind the last",
    ],
)
def test_what_the_store_cannot_take_costs_nothing_else(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    wide = {f"wide{number}": 1.0 for number in range(500)}
    run = start(tmp_path)
    run.log({"loss": 1.0}, step=0)
    run.log_wide(wide, step=0)
    _log_odd(run, what)
    run.log({"loss": 2.0}, step=2)
    run.log_wide(wide, step=2)
    run.log_histogram("even", [1.0, 2.0], step=2)
    run.finish()
    back = only(tmp_path)
    assert back.status == "finished" and not list(back.dir.glob("store/*/*.arrows"))
    assert back.series("loss").value.tolist() == [1.0, 2.0]
    assert back.series("wide7").step.tolist() == [0, 2]
    assert [row.step for row in back.histograms("even")] == [2]


@pytest.mark.parametrize("values", [[1.7e308, -1.7e308], [1.0, 1.0 + 2**-52], [1e17, 1e17]])
def test_a_histogram_of_values_without_room_for_edges_between_them_is_one_bin(
    tmp_path: Path, values: list[float]
) -> None:
    run = start(tmp_path)
    run.log_histogram("h", values, step=3)
    run.log_wide({f"wide{number}": 1.0 for number in range(500)}, step=3)
    run.finish()
    back = only(tmp_path)
    (row,) = back.histograms("h")
    assert row.step == 3 and sum(row.counts) == 2
    assert back.series("wide7").value.tolist() == [1.0]


def test_a_segment_whose_first_step_cannot_be_noted_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(tmp_path, id="r") as run:
        run.log({"a": 1.0}, step=0)

    def refuse(folder: Path, number: int, step: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("barograph.core.segments.settle", refuse)
    run = start(tmp_path, id="r", resume="must")
    for step in range(5):
        run.log({"a": 2.0}, step=step)
    run.finish()
    assert only(tmp_path).series("a").value.tolist() == [2.0] * 5


# -- ends that meet a signal ------------------------------------------------------------------------------

SIGNALLED = """
import os, signal, sys, threading, time, barograph

run = barograph.init(project="p", dir=sys.argv[1], verbosity=-2, git=False)
ends, leaves = sys.argv[2], sys.argv[3] == "leaves"

def handler(number, frame):
    began = time.monotonic()
    run.finish("preempted")
    print(time.monotonic() - began, flush=True)
    if leaves:
        sys.exit(3)

signal.signal(signal.SIGTERM, handler)
run.log({"a": 1.0}, step=0)
run.flush()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
if ends == "finish":
    run._out.at_finish.append(lambda: time.sleep(0.6))
    run.finish()
until = time.monotonic() + 0.6
step = 1
while time.monotonic() < until:
    if ends == "log":
        with run._out.log.lock:  # where a loop that logs without a pause is nearly all of the time
            run.log({"a": 1.0}, step=step)
            time.sleep(0.0005)
    elif ends == "flush":
        run.log({"a": 1.0}, step=step)
        run.flush()
    step += 1
run.finish()
"""


@pytest.mark.parametrize("leaves", ["leaves", "returns"])
@pytest.mark.parametrize("during", ["log", "flush", "finish"])
def test_a_signal_handler_ends_the_run_whole_whatever_it_interrupts(tmp_path: Path, during: str, leaves: str) -> None:
    command = [sys.executable, "-c", SIGNALLED, str(tmp_path), during, leaves]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == (3 if leaves == "leaves" else 0), ended.stderr
    assert float(ended.stdout) < 5
    back = only(tmp_path)
    assert back.status == "preempted"
    assert [record.fields["status"] for record in back.records("end")] == ["preempted"]
    logged = [record.step for record in back.records("metrics")]
    assert logged and back.series("a").step.tolist() == logged
    assert not list(back.dir.glob("store/*/*.arrows"))


def test_wide_rows_after_the_end_are_refused_with_a_sentence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = start(tmp_path)
    run.finish()
    run.log_wide({f"wide{number}": 1.0 for number in range(500)}, step=1)
    run.log_histogram("h", [1.0, 2.0], step=1)
    assert "is finished; what is logged from now on is not recorded" in caplog.text
    assert not list(run.dir.glob("*.wide"))


@pytest.mark.parametrize(
    "ask",
    [
        lambda run: barograph.report([run], run.dir.parent / "report"),
        lambda run: barograph.report_html(run),
        lambda run: barograph.frame(run, library="arrow"),
        lambda run: barograph.stretches(run, "train/loss").live.step.tolist() == list(range(20)),
        lambda run: barograph.lineage(run).asked,
        lambda run: barograph.charts(run),
        lambda run: run.goodput(),
        lambda run: run.cost(),
        lambda run: run.series("train/loss").step.tolist() == list(range(20)),
    ],
    ids=["report", "report_html", "frame", "stretches", "lineage", "charts", "goodput", "cost", "series"],
)
def test_what_is_asked_of_a_stored_run_is_asked_of_the_live_one(tmp_path: Path, ask: Callable[[Any], Any]) -> None:
    run = start(tmp_path)
    for step in range(20):
        run.log({"train/loss": 3 - step / 20}, step=step)
    assert ask(run) is not False
    run.finish()


def test_whatever_is_recorded_after_the_end_gives_one_sentence_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = start(tmp_path)
    run.log({"train/loss": 1.0}, step=0)
    run.finish()
    before = run.log_file.read_bytes()
    for step in (1, 2):
        run.log({"train/loss": 1.0}, step=step)
        run.log_step(step, 0.1, 8, 1.0, 1.0, 3.0, 1e-3)
        run.log_eval(step, 0.1, 8, 1.0, 3.0)
        run.log_sample(step, "text")
        run.record("metrics", step, {"a": 1.0})
        run.log_wide({f"wide{number}": 1.0 for number in range(500)}, step=step)
        run.log_table("answers", [["2+2="]], step, columns=["prompt"])
        run.checkpoints.save(tmp_path, step)
        run.config["late"] = step
        with run.step(step=step), run.phase("data"):
            pass
    assert [record.getMessage() for record in caplog.records] == [
        f"barograph: run {run.id} is finished; what is logged from now on is not recorded"
    ]
    assert run.log_file.read_bytes() == before and run.log_file.exists()


def test_an_import_that_ends_while_another_seals_waits_and_seals_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    files = RunFiles(folder)
    files.add_row(("a",), 1, 0, 1, [1.0])
    files.commit(0, {})
    lock = os.open(files.store / SEALING_LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(0.3, os.close, [lock]).start()
    assert files.close()
    assert not list(files.store.glob("*.arrows")) and list(files.store.glob("*.parquet"))


@pytest.mark.parametrize("swept", [False, True])
def test_what_a_killed_process_left_here_does_not_replace_what_another_machine_logged_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swept: bool
) -> None:
    monkeypatch.setattr("barograph.core.place.is_network_filesystem", lambda path: True)
    log = tmp_path / "there" / "p" / "job" / "training.json"

    def go_on(machine: str, step: int) -> barograph.Run:
        (tmp_path / machine).mkdir(exist_ok=True)
        monkeypatch.setenv("TMPDIR", str(tmp_path / machine))
        run = start(tmp_path / "there", id="job", resume="allow")
        run.log_message(step, f"of {step}")
        return run

    run = go_on("one", 0)
    run._out.later._chores.clear()
    time.sleep(0.3)
    run._out.file.carrier.carry()
    run.log_message(1, "never carried over")
    kept = spool.local_path(log).read_bytes()
    run.finish()
    go_on("two", 2).finish()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "one"))
    left = spool.local_path(log)
    left.parent.mkdir(parents=True)
    left.write_bytes(kept)  # as after a kill
    (left.parent / "target").write_text(str(log))
    os.utime(left, (1, 1))
    said = [record.fields["message"] for record in only(tmp_path / "there").records("info")]
    assert "of 2" in said
    if swept:  # by `barograph gc`
        assert spool.carry_leftovers() == [] and not left.exists()
    go_on("one", 3).finish()
    said = [item["message"] for item in strict(log) if item["log"] == "info" and "message" in item]
    assert [one for one in said if one.startswith("of ")] == ["of 0", "of 2", "of 3"]
    assert (log.parent / "training.json.left").read_bytes() == kept


def test_an_end_that_the_manifest_has_no_room_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = start(tmp_path)
    run.log({"a": 1.0}, step=0)

    def refuse(path: Path, content: Any, *_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("barograph.core.manifest.write_json", refuse)
    run.finish()
    assert "can't say that the run has ended (No space left on device)" in caplog.text
    assert run not in open_runs


def test_steps_of_a_timed_loop_count_once_when_it_goes_on_from_a_checkpoint_before_the_last_record(
    tmp_path: Path,
) -> None:
    for first, last in ((1, 30), (21, 40)):
        with barograph.init(dir=tmp_path, id="one", resume="auto", console="none", machine=False, git=False) as run:
            for number in range(first, last):
                with run.step(step=number) as step:
                    step.set(loss=1.0 / number)
    steps = barograph.StoredRun(run.dir).series("train/loss").step
    assert steps.tolist() == list(range(1, 40))
