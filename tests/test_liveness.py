"""A run's status is what is true, not what it said last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from patience import patient, until

from barograph.core import liveness
from barograph.core.liveness import process, pulses, status


def test_a_run_whose_process_lives_is_running_and_one_whose_process_is_gone_crashed(tmp_path: Path) -> None:
    assert status(tmp_path, {"status": "running"} | process()) == "running"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    said = {"status": "running"} | process() | {"pid": child.pid, "process_started": None}
    assert status(tmp_path, said) == "running"
    child.communicate(b"\n")
    assert status(tmp_path, said) == "crashed"


def test_another_process_that_got_the_same_number_is_not_taken_for_it(tmp_path: Path) -> None:
    assert status(tmp_path, {"status": "running"} | process() | {"process_started": 1}) == "crashed"


def test_a_silent_run_of_another_machine_is_stalled_and_a_busy_one_running(tmp_path: Path) -> None:
    said = {"status": "running"} | process() | {"host": "elsewhere"}
    assert status(tmp_path, said) == "stalled"
    (tmp_path / "training.json").write_text("[]")
    assert status(tmp_path, said) == "running"


def test_an_ended_run_keeps_its_status(tmp_path: Path) -> None:
    assert status(tmp_path, {"status": "failed"} | process()) == "failed"
    assert status(tmp_path, {}) == "unknown"


def beat(folder: Path, rank: int = 0, **changes: Any) -> None:
    """A heartbeat of this process as the probe writes it, with some of it changed."""
    now = time.time()
    said = process() | {
        "rank": rank,
        "segment": 1,
        "started": now - 5000,
        "every_seconds": 10.0,
        "time": now,
        "state": "running",
        "phase": None,
        "logged": now - 1,
        "step": 70,
        "stepped": now - 1,
        "step_seconds": 0.5,
    }
    said |= changes
    place = folder / "store" / f"r{rank}-{said['host']}-{said['pid']}-{said['segment']}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "heartbeat.json").write_text(json.dumps(said))
    os.utime(place / "heartbeat.json", (said["time"], said["time"]))


def of(folder: Path) -> list[str]:
    return [pulse.status for pulse in pulses(folder)]


def test_a_process_that_logs_no_more_and_one_that_makes_no_steps_are_told_apart(tmp_path: Path) -> None:
    now, alive = time.time(), {"status": "running"} | process()
    beat(tmp_path)
    assert of(tmp_path) == ["running"] and status(tmp_path, alive) == "running"
    beat(tmp_path, stepped=now - 150)
    assert of(tmp_path) == ["stuck"] and status(tmp_path, alive) == "stuck"
    beat(tmp_path, stepped=now - 150, logged=now - 150)
    assert of(tmp_path) == ["silent"] and status(tmp_path, alive) == "silent"
    assert status(tmp_path, alive | {"status": "finished"}) == "finished"


def test_long_steps_start_up_and_evaluations_are_given_their_time(tmp_path: Path) -> None:
    now = time.time()
    quiet: dict[str, Any] = {"stepped": now - 500, "logged": now - 500}
    beat(tmp_path, **quiet, step_seconds=60.0)
    assert of(tmp_path) == ["running"]
    beat(tmp_path, **quiet, phase="eval")
    assert of(tmp_path) == ["running"]
    beat(tmp_path, stepped=None, logged=None, step_seconds=None, started=now - 500)
    assert of(tmp_path) == ["running"]
    beat(tmp_path, stepped=None, step_seconds=None, started=now - 2000)
    assert of(tmp_path) == ["stuck"]
    beat(tmp_path, stepped=None, logged=None, step_seconds=None, started=now - 2000)
    assert of(tmp_path) == ["silent"]


def test_a_rank_that_was_killed_crashed_though_the_others_live(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    beat(tmp_path)
    beat(tmp_path, 1, pid=child.pid, process_started=None)
    assert of(tmp_path) == ["running", "running"]
    child.kill()
    deadline = time.monotonic() + 5
    while of(tmp_path) != ["running", "crashed"]:  # also before anybody asks for its exit code
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.communicate()
    assert of(tmp_path) == ["running", "crashed"]
    assert status(tmp_path, {"status": "running"} | process()) == "running"


def test_a_rank_on_another_machine_is_stalled_when_its_heart_has_stopped(tmp_path: Path) -> None:
    now = time.time()
    beat(tmp_path, host="elsewhere")
    assert of(tmp_path) == ["running"]
    beat(tmp_path, host="elsewhere", time=now - 130, logged=now - 131, stepped=now - 131)
    assert of(tmp_path) == ["stalled"]
    beat(tmp_path, host="elsewhere", time=now - 130, every_seconds=60.0, logged=now - 131, stepped=now - 131)
    assert of(tmp_path) == ["running"]
    beat(tmp_path, host="elsewhere", time=now + 3600, logged=now + 3400, stepped=now + 3599)  # its clock is ahead
    assert of(tmp_path) == ["silent"]


def test_ranks_of_an_earlier_segment_and_damaged_files_are_left_out(tmp_path: Path) -> None:
    beat(tmp_path, 0)
    beat(tmp_path, 1)
    beat(tmp_path, 0, segment=2, step=80)
    assert [(pulse.rank, pulse.step) for pulse in pulses(tmp_path)] == [(0, 80)]
    beat(tmp_path, 0, segment=2, state="ended")
    assert of(tmp_path) == ["ended"]
    for number, text in enumerate(("", "{", "[]", "{}", '{"time": "x", "rank": 0}')):
        place = tmp_path / "store" / f"r9-{number}"
        place.mkdir()
        (place / "heartbeat.json").write_text(text)
    assert of(tmp_path) == ["ended"]


def test_without_proc_psutil_says_whether_a_process_lives_and_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "_PROC", str(tmp_path / "none"))
    about = {"status": "running"} | process()
    assert isinstance(about["process_started"], int)
    assert status(tmp_path, about) == "running"
    assert status(tmp_path, about | {"process_started": about["process_started"] - 500}) == "crashed"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    said = about | {"pid": child.pid, "process_started": liveness.process_started(child.pid)}
    assert status(tmp_path, said) == "running" and not liveness.is_dead(child.pid)
    assert child.stdin is not None
    child.stdin.close()
    assert until(lambda: liveness.is_dead(child.pid), patient(30))  # ended, and nobody has asked for its exit code
    assert status(tmp_path, said) == "crashed"
    child.wait()
    assert not liveness.is_dead(child.pid) and liveness.process_started(child.pid) is None
