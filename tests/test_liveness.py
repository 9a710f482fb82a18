"""A run's status is what is true, not what it said last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from barograph.liveness import process, status


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
