"""What all tests rest on: examples without a deadline, limits that follow the machine, an interrupt that works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis
import patience
import pytest

HERE = Path(__file__).parent


def test_examples_have_no_deadline_and_those_of_ci_are_the_same_each_time() -> None:
    profile = hypothesis.settings()
    assert profile.deadline is None and profile.print_blob
    assert profile.derandomize == bool(os.environ.get("CI"))


def test_a_limit_grows_with_what_the_machine_is_slower_and_never_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert patience.patient(2.0) >= 2.0
    monkeypatch.setattr(patience, "_NOMINAL", patience._NOMINAL / 1000)
    assert patience.patient(2.0) > 100
    monkeypatch.setattr(patience, "_NOMINAL", 1e9)
    assert patience.patient(2.0) == 2.0


def test_an_interrupt_reaches_a_test_that_was_started_with_it_ignored() -> None:
    script = "import conftest, signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    shell = f"trap '' INT; exec {sys.executable} -c '{script}'"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, cwd=HERE, check=True)
    assert done.stdout.strip() == "True"


def test_no_limit_of_wall_time_stands_in_a_test_without_regard_to_the_machine() -> None:
    pattern = re.compile(r"assert .*time\.(?:perf_counter|monotonic|time)\(\) - \w.*? < [\d.]")
    lines = [
        f"{path.name}: {line.strip()}"
        for path in HERE.glob("test_*.py")
        for line in path.read_text().splitlines()
        if pattern.search(line)
    ]
    assert lines == []
