"""What all tests rest on: examples without a deadline, limits that follow the machine, an interrupt that works."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import forked_python
import hypothesis
import patience
import pytest

HERE = Path(__file__).parent


def test_examples_have_no_deadline_and_those_of_ci_are_the_same_each_time() -> None:
    profile = hypothesis.settings()
    assert profile.deadline is None and profile.print_blob
    assert profile.derandomize == bool(os.environ.get("CI") or os.environ.get("BAROGRAPH_CI"))


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


FORKED = """
import atexit, os, sys, threading, time
atexit.register(print, "at exit")
print(sys.argv, os.getcwd(), os.environ.get("ONE"), "torch" in sys.modules, "barograph" in sys.modules, __name__)
print(sys.stdin.read())
threading.Thread(target=lambda: (time.sleep(0.2), print("a thread"))).start()
sys.exit(int(sys.argv[1]))
"""


def test_a_forked_program_is_like_one_that_was_started(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    environment = os.environ | {"ONE": "1", "PYTHONPATH": str(tmp_path)}
    (tmp_path / "train.py").write_text(FORKED)
    for words in (("-c", FORKED), ("train.py",)):
        given = [sys.executable, *words, "3"]
        options = {"cwd": tmp_path, "env": environment, "text": True, "stdout": -1, "stderr": -1}
        forked = forked_python.start(*given, stdin=subprocess.PIPE, **options)
        begun = subprocess.run(given, input="words", **options)
        said = forked.communicate("words")
        torch = "True False __main__"
        assert said == (begun.stdout.replace("False False __main__", torch), begun.stderr) and torch in said[0]
        assert forked.returncode == begun.returncode == 3
    ended = forked_python.run(sys.executable, "-W", "ignore", "-c", "1 / 0", **options)
    assert ended.returncode == 1 and ended.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "forked_python" not in ended.stderr


def test_a_forked_program_is_waited_for_and_killed_as_any_other() -> None:
    pytest.importorskip("torch")
    going = forked_python.start(sys.executable, "-c", "input()", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert going.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        going.wait(0.1)
    going.kill()
    assert going.wait(patience.patient(20)) == -signal.SIGKILL == going.poll()
    with pytest.raises(subprocess.CalledProcessError):
        forked_python.run(sys.executable, "-c", "raise SystemExit('no')", check=True, stderr=subprocess.DEVNULL)
