"""How a run ended is known whatever ended it, with its signal or exit code, and somebody is told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sidecar_runs as runs
from alert_receivers import HttpReceiver
from patience import patient, until
from sidecar_runs import own_records, sidecar, training

from barograph.core import liveness, manifest
from barograph.doctor import diagnose
from barograph.query.stored import StoredRun
from barograph.sidecar.attend import attend
from barograph.sidecar.death import WatchedProcess

KILLED = [
    ("os._exit(9)", {"status": "crashed", "exit_code": 9}),
    ("os.kill(os.getpid(), signal.SIGKILL)", {"status": "killed", "signal": "SIGKILL"}),
    ("os.kill(os.getpid(), signal.SIGTERM)", {"status": "killed", "signal": "SIGTERM"}),
    ("os.abort()", {"status": "crashed", "signal": "SIGABRT"}),
]


@pytest.mark.parametrize(("body", "expected"), KILLED, ids=[body for body, _ in KILLED])
def test_a_process_that_could_not_end_its_run_has_its_true_end(
    tmp_path: Path, body: str, expected: dict[str, Any]
) -> None:
    folder = tmp_path / "run"
    process = training(folder, f"sys.stdin.readline()\n{body}")
    with sidecar(folder, process.pid) as beside:
        assert until(lambda: '"at"' in _note(folder))
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        process.wait()
        (end,) = until(lambda: own_records(folder, "end"))
        assert beside.wait(60) == 0
    assert {name: end.get(name) for name in expected} == expected
    assert end["step"] == 50 and "train/loss" in end["last"][-1] and end["wall_seconds"] >= 0
    about = manifest.read(folder)
    assert about["status"] == expected["status"] and about["finished"] and about["final_metrics"]["step"] == 50
    assert liveness.status(folder, about) == expected["status"] and liveness.reason(about)


PROGRAM = """
import os, sys, barograph
run = barograph.init(project="p", id="r", dir=sys.argv[1], verbosity=-2, git=False, machine=False, sidecar=True)
for step in range(50):
    run.log({"loss": 3.0 - step / 100}, step=step)
run.alerts.beside.start()
"""
EXITS = [
    ("sys.exit(3)", "failed", 3),
    ("raise SystemExit('no data')", "failed", 1),
    ("with run: sys.exit(3)", "failed", 3),
    ("run.finish(); sys.exit(3)", "finished", None),
    ("sys.exit(0)", "finished", None),
    ("", "finished", None),
    ("1 / 0", "failed", None),
]


@pytest.mark.parametrize(("body", "status", "code"), EXITS, ids=[body for body, _, _ in EXITS])
def test_the_exit_code_of_a_program_that_leaves_its_run_open_is_seen_everywhere(
    tmp_path: Path, body: str, status: str, code: int | None
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + body, str(tmp_path)], env=runs.ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == (1 if body == "1 / 0" else 3 if "3" in body else code or 0), done.stderr
    folder = tmp_path / "p" / "r"
    assert until(lambda: '"done"' in _note(folder))
    about = manifest.read(folder)
    assert about["status"] == status and about["finished"]
    assert (about.get("ending") or {}).get("exit_code") == code
    listed = runs_in(tmp_path)
    assert [one["status"] for one in listed] == [status]
    found = [one for one in diagnose(StoredRun(folder))["findings"] if one["rule"] == "crashed"]
    assert bool(found) == (status == "failed")
    if code is not None:
        assert f"exit code {code}" in found[0]["message"]


def runs_in(folder: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "barograph", "ls", "--dir", str(folder), "--json"]
    listed: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return listed


def test_an_alert_of_a_killed_training_comes_within_five_seconds(tmp_path: Path) -> None:
    receiver = HttpReceiver()
    folder = tmp_path / "run"
    process = training(folder, "time.sleep(60)")
    try:
        with sidecar(folder, process.pid, notify=[receiver.address]) as beside:
            assert until(lambda: '"at"' in _note(folder))
            time.sleep(1.0)
            process.kill()
            began = time.monotonic()
            assert until(lambda: receiver.got, 20)
            took = time.monotonic() - began
            assert beside.wait(60) == 0
    finally:
        process.kill()
        receiver.close()
    assert took < patient(5.0)
    assert "crashed" in receiver.got[0]["title"].lower() and "SIGKILL" in receiver.got[0]["message"]


def test_a_run_that_ended_as_it_should_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = training(folder, "sys.stdin.readline()\nwriter.close()")
    with sidecar(folder, process.pid) as beside:
        assert until(lambda: '"at"' in _note(folder))
        process.communicate("\n")
        assert beside.wait(60) == 0
    assert not own_records(folder, "end") and not own_records(folder, "finding")
    about = manifest.read(folder)
    assert about["status"] == "finished" and "ending" not in about and about["final_metrics"]["train/lr"] == 1e-3


def test_a_training_that_stands_still_says_where_and_that_it_goes_on(tmp_path: Path) -> None:
    body = """
def wait_for_nothing():
    sys.stdin.readline()
wait_for_nothing()
writer.moment = time.time_ns() // 1000
writer.row(51, {"train/loss": 1.0})
sys.stdin.readline()
writer.close()
"""
    folder = tmp_path / "run"
    process = training(folder, body)
    with sidecar(folder, process.pid, watchdog_seconds=1.0) as beside:
        (hang,) = until(lambda: own_records(folder, "hang"))
        assert hang["step"] == 50 and "wait_for_nothing" in hang["ranks"]["0"] and "thread" in hang["stacks"]["0"]
        assert until(lambda: [one for one in own_records(folder, "finding") if one["rule"] == "hung"])
        assert liveness.status(folder, manifest.read(folder)) == "hung"
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert until(lambda: [one for one in own_records(folder, "hang") if one.get("resumed")])
        assert until(lambda: liveness.status(folder, manifest.read(folder)) == "running")
        process.communicate("\n")
        assert beside.wait(60) == 0
    last = [one for one in own_records(folder, "finding") if one["rule"] == "hung"][-1]
    assert last["severity"] == "warning" and "has continued" in last["message"]


def test_a_kill_while_the_kernel_counted_one_for_memory_is_out_of_memory(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (tmp_path / f"proc/{process.pid}").mkdir(parents=True)
    (tmp_path / f"proc/{process.pid}/cgroup").write_text("0::/job\n")
    (group / "memory.events").write_text("low 0\noom 0\noom_kill 3\n")
    watched = WatchedProcess(process.pid, tmp_path)
    assert not watched.gone()
    (group / "memory.events").write_text("low 0\noom 1\noom_kill 4\n")
    process.send_signal(signal.SIGKILL)
    assert until(watched.gone)
    ending = watched.ending()
    process.wait()
    assert (ending.status, ending.signal, ending.oom_kills) == ("out of memory", "SIGKILL", 1)


def test_the_end_is_known_also_after_the_parent_has_asked_for_it(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input(); raise SystemExit(7)"], stdin=subprocess.PIPE)
    watched = WatchedProcess(process.pid)
    process.communicate(b"\n")
    if not until(watched.gone) or watched.ending().exit_code is None:
        pytest.skip("this kernel tells exit codes to the parent alone (Linux before 6.15)")
    assert watched.ending() == ("crashed", 7, None, 0)


def test_a_host_that_restarted_leaves_a_crashed_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.describe(folder, boot="another start of the kernel")
    runs.Writer(folder).close(None)
    about = manifest.read(folder)
    assert liveness.status(folder, about) == "crashed" and liveness.reason(about) == "the host restarted"
    assert attend(folder, quiet=True) is not None
    about = manifest.read(folder)
    assert (about["status"], about["ending"]["reason"]) == ("crashed", "the host restarted") and about["finished"]
    (end,) = own_records(folder, "end")
    assert (end["status"], end["reason"]) == ("crashed", "the host restarted")
    (found,) = [one for one in diagnose(StoredRun(folder))["findings"] if one["rule"] == "crashed"]
    assert "the host restarted" in found["message"] and found["evidence"]["reason"] == "the host restarted"


@contextlib.contextmanager
def limited(pid: int, size: int) -> Iterator[None]:
    """A control group of so many bytes with one process in it; skips where this machine allows none."""
    for limit, base in (("memory.limit_in_bytes", "/sys/fs/cgroup/memory"), ("memory.max", "/sys/fs/cgroup")):
        group = Path(base, f"barograph-test-{os.getpid()}")
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                if (group / limit).exists():
                    (group / limit).write_text(str(size))
                    (group / "cgroup.procs").write_text(str(pid))
                    yield
                    return
            finally:
                until(lambda group=group: not (group / "cgroup.procs").read_text(), 5.0)
                group.rmdir()
    pytest.skip("no control group with a limit of memory can be made here")


def test_a_training_that_the_kernel_killed_for_memory_is_out_of_memory(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = training(folder, "sys.stdin.readline()\nheld = bytearray(1 << 30)\ntime.sleep(60)")
    try:
        with limited(process.pid, 200 << 20), sidecar(folder, process.pid) as beside:
            assert until(lambda: '"at"' in _note(folder))
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            process.wait(60)
            (end,) = until(lambda: own_records(folder, "end"))
            assert beside.wait(60) == 0
    finally:
        process.kill()
    assert (end["status"], end["signal"], end["oom_kills"]) == ("out of memory", "SIGKILL", 1)
    about = manifest.read(folder)
    assert about["status"] == "out of memory" and "memory was full" in liveness.reason(about)
    (found,) = [one for one in diagnose(StoredRun(folder))["findings"] if one["severity"] == "critical"]
    assert "memory" in found["message"]


@pytest.mark.parametrize("left", [1 << 16, 1 << 26])
def test_a_training_that_may_have_no_more_memory_failed_of_that(tmp_path: Path, left: int) -> None:
    program = f"""
import resource, sys
import barograph
run = barograph.init(project="p", dir=sys.argv[1], console="none", git=False, machine=False)
run.log({{"train/loss": 1.0}}, step=7)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + {left},) * 2)
held = bytearray(1 << 30)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=runs.ENVIRONMENT, capture_output=True)
    assert done.returncode == 1 and b"MemoryError" in done.stderr
    folder = next(tmp_path.glob("p/*/training.json")).parent
    assert liveness.status(folder, manifest.read(folder)) == "failed"
    (end,) = StoredRun(folder).records("end")
    assert end.fields["status"] == "failed" and "MemoryError" in str(end.fields["exception"])
    found = [one for one in diagnose(StoredRun(folder))["findings"] if one["severity"] == "critical"]
    assert found and "MemoryError" in str(found[0]["message"]) + str(found[0]["evidence"])


def _note(folder: Path) -> str:
    path = folder / f"sidecar-{os.uname().nodename}.lock"
    return path.read_text() if path.exists() else ""
