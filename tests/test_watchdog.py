"""A training that stands still says where, once; one that is slow for a good reason is left in peace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.config import Settings
from barograph.probes.ranks.stacks import describe, is_library, parse_dump, stacks, summary, where
from barograph.probes.ranks.watchdog import Watchdog, is_gone, read_whole, write_whole

sys.path.insert(0, str(Path(__file__).parent))
from rank_program import launch


class Recorder:
    """A run as probes see it, that keeps what it is told."""

    def __init__(self, folder: Path = Path("."), rank: int = 0, world_size: int = 1):
        self.dir, self.settings, self.rank, self.world_size = folder, Settings(), rank, world_size
        self.at_finish: list[Any] = []
        self.current_step = 0
        self.records: list[tuple[str, int, dict[str, Any]]] = []
        self.said: list[str] = []

    def record(self, kind: str, step: int, fields: dict[str, Any]) -> None:
        self.records.append((kind, step, fields))

    def warn(self, sentence: str, key: str | None = None) -> None:
        self.said.append(sentence)


def wait_for(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def test_a_stall_is_said_once_with_all_stacks_and_so_is_its_end(tmp_path: Path) -> None:
    run = Recorder()
    watchdog = Watchdog(run, seconds=0.3, folder=tmp_path)
    release = threading.Event()
    waiting = threading.Thread(target=release.wait, name="loader-7", daemon=True)
    waiting.start()
    for step in range(5):
        watchdog.beat(step)
    wait_for(lambda: run.said)
    time.sleep(0.5)
    assert len(run.said) == 1
    assert re.match(r"No step for 0 s after step 4\. The training is in test_watchdog\.py:\d+ ", run.said[0])
    ((kind, step, fields),) = run.records
    assert (kind, step, fields["in_collective"]) == ("stacks", 4, False)
    assert fields["waited_seconds"] >= fields["limit_seconds"] == 0.3
    by_name = {thread["name"]: thread["frames"] for thread in fields["threads"]}
    assert next(iter(by_name)) == "MainThread"
    assert re.search(r"test_watchdog\.py:\d+ test_a_stall_is_said_once", " ".join(by_name["MainThread"]))
    assert "loader-7" in by_name and not any(name.startswith("barograph") for name in by_name)
    assert json.loads((tmp_path / "stall.json").read_text())["step"] == 4
    watchdog.beat(5)
    wait_for(lambda: len(run.said) == 2)
    assert run.said[1].startswith("steps come again: step 5 after")
    assert run.records[-1][2]["resumed"] and not (tmp_path / "stall.json").exists()
    wait_for(lambda: len(run.said) == 3)  # and the next stall is said again
    release.set()
    watchdog.stop()
    assert not watchdog._thread.is_alive() and not (tmp_path / "stacks.txt").exists()


def test_start_up_evaluations_and_checkpoints_are_no_stalls(tmp_path: Path) -> None:
    run = Recorder()
    doing: list[str | None] = [None]
    watchdog = Watchdog(run, seconds=0.1, folder=tmp_path, busy=lambda: doing[0])
    time.sleep(0.4)  # no step yet: it compiles
    assert watchdog.limit() == 1800
    doing[0] = "eval"
    watchdog.beat(1)
    time.sleep(0.4)
    assert watchdog.limit() == 1800 and run.said == []
    doing[0] = None
    wait_for(lambda: run.said)
    watchdog.stop()


def test_the_limit_is_ten_median_steps_and_at_least_two_minutes() -> None:
    watchdog = Watchdog(Recorder(), fallback=False)
    for gap, limit in ((1.0, 120.0), (60.0, 600.0)):
        watchdog._times.clear()
        watchdog._times.extend(1000.0 + gap * number for number in range(20))
        assert watchdog.limit() == limit
    watchdog._times.clear()
    watchdog._times.extend((0.0, 300.0))  # only the first step, which compiled
    assert watchdog.limit() == 3000.0
    watchdog.stop()
    chosen = Recorder()
    chosen.settings = type("S", (), {"watchdog_seconds": 7.0})()  # type: ignore[assignment]
    watchdog = Watchdog(chosen, fallback=False)
    watchdog.beat(1)
    assert watchdog.limit() == 7.0
    watchdog.stop()


def test_a_beat_costs_less_than_a_microsecond() -> None:
    watchdog = Watchdog(Recorder(), fallback=False)
    beat = watchdog.beat
    seconds = min(timeit.repeat(lambda: beat(3), number=10_000, repeat=20)) / 10_000
    watchdog.stop()
    assert seconds < 1e-6


def test_a_child_that_is_forked_has_no_watchdog_and_may_stop_it(tmp_path: Path) -> None:
    script = (
        "import os, time\nfrom pathlib import Path\nimport test_watchdog as t\n"
        f"run = t.Recorder(); dog = t.Watchdog(run, seconds=0.2, folder=Path({str(tmp_path)!r})); dog.beat(1)\n"
        "if os.fork() == 0:\n    dog.beat(2); time.sleep(0.6); dog.stop(); os._exit(len(run.said))\n"
        "code = os.waitstatus_to_exitcode(os.wait()[1]); dog.stop(); print(code, len(run.said))\n"
    )
    done = run_script(script)
    assert done.stdout.split() == ["0", "1"], done.stderr


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": f"{here.parent / 'src'}:{here}"}
    command = [sys.executable, "-W", "ignore", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


def test_code_that_holds_the_interpreters_lock_is_caught_by_faulthandler(tmp_path: Path) -> None:
    script = (
        "import ctypes, time\nfrom pathlib import Path\nimport test_watchdog as t\n"
        f"run = t.Recorder(); dog = t.Watchdog(run, seconds=0.3, folder=Path({str(tmp_path)!r})); dog.beat(1)\n"
        "time.sleep(0.1)\n"
        "def hold(): ctypes.PyDLL(None).sleep(2)\n"  # PyDLL calls keep the lock
        "hold(); dog.beat(2); t.wait_for(lambda: run.said)\n"
        "print(run.records[0][2]['lock_held'], run.records[0][2]['text'].count('hold')); print(run.said[0])\n"
        "dog.stop()\n"
    )
    done = run_script(script)
    assert done.stdout.startswith("True 1\nPython stood still for 2 s after step"), done.stdout + done.stderr


def test_a_process_that_was_stopped_has_not_stalled(tmp_path: Path) -> None:
    script = (
        "import time\nfrom pathlib import Path\nimport test_watchdog as t\n"
        "run = t.Recorder(); dog = t.Watchdog(run, seconds=1.0); dog.beat(1)\n"
        "print('ready', flush=True); input(); dog.beat(2); time.sleep(0.3); print(run.said)\n"
    )
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": f"{here.parent / 'src'}:{here}"}
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    child.send_signal(signal.SIGCONT)
    time.sleep(0.2)
    assert child.communicate("\n")[0] == "[]\n"


def test_it_works_in_a_real_run(tmp_path: Path) -> None:
    with barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False) as run:
        (folder,) = (run.dir / "store").iterdir()
        watchdog = Watchdog(run, seconds=0.2, folder=folder)
        watchdog.beat(3)
        wait_for(lambda: watchdog.stalled)
    (stored,) = barograph.runs(tmp_path)
    (record,) = stored.records("stacks")
    assert record.step == 3 and record.fields["threads"][0]["name"] == "MainThread"


USER, C10D = "/home/me/train.py:88 main", "/v/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:3000 "
WRAPPER = "/v/lib/python3.12/site-packages/torch/distributed/c10d_logger.py:83 wrapper"


def test_a_stack_is_read_in_the_users_terms() -> None:
    waits = where(["/home/me/train.py:9 <module>", USER, WRAPPER, C10D + "all_reduce"])
    assert describe(waits) == "waits in all_reduce (train.py:88)"
    assert describe(where([USER, "/home/me/data.py:61 load_batch"])) == "is in data.py:61 load_batch"
    inner = "/v/lib/python3.12/site-packages/numpy/core.py:5 concatenate"
    assert describe(where([USER, inner])) == "is in train.py:88 main, in a call of concatenate"
    assert describe(where([])) == "is in no code of yours"
    assert is_library("<frozen runpy>") and is_library(barograph.__file__) and is_library(os.__file__)
    assert not is_library(__file__)


def test_the_sentence_names_who_waits_where() -> None:
    waits, loads = where([USER, WRAPPER, C10D + "all_reduce"]), where(["/home/me/train.py:61 load_batch"])
    found = {0: waits, 1: waits, 2: loads, 3: waits}
    assert summary(found, 4, 121.2, 7) == (
        "No step for 121 s after step 7. Ranks 0, 1, 3 wait in all_reduce (train.py:88); "
        "rank 2 is in train.py:61 load_batch."
    )
    many = {rank: waits for rank in range(64) if rank != 9} | {9: {"gone": 4711, "host": "node1"}}
    assert summary(many, 65, 121, 7).endswith(
        "Ranks 0–8, 10–63 wait in all_reduce (train.py:88); rank 9 is gone (process 4711 on node1); "
        "rank 64 said nothing."
    )
    behind = {0: waits | {"step": 8}, 1: loads | {"step": 7}}
    assert summary(behind, 2, 121, 8).endswith("rank 1 is behind, at step 7.")


def test_a_dump_of_faulthandlers_is_read(tmp_path: Path) -> None:
    text = (
        'Timeout (0:00:02)!\nThread 0x00007f1 (most recent call first):\n  File "/home/me/other.py", line 3 in run\n\n'
        'Thread 0x00007f2 [python] (most recent call first):\n  File "/home/me/load.py", line 4 in hold\n'
        '  File "/home/me/train.py", line 9 in <module>\n'
    )
    assert describe(parse_dump(text)) == "is in load.py:4 hold"
    assert parse_dump("") == {}


def test_stacks_are_bounded() -> None:
    def deep(levels: int) -> list[dict[str, Any]]:
        return deep(levels - 1) if levels else stacks(threading.main_thread().ident)

    (main, *_) = deep(200)
    assert len(main["frames"]) == 60 and main["frames"][-1].endswith(" stacks")


def test_small_files_are_whole_or_not_there(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", {"x": 1})
    assert read_whole(tmp_path / "a.json") == {"x": 1} and list(tmp_path.iterdir()) == [tmp_path / "a.json"]
    (tmp_path / "b.json").write_text("[1]")
    assert read_whole(tmp_path / "b.json") == read_whole(tmp_path / "c.json") == {}
    assert not is_gone(os.getpid()) and is_gone(2**22 + 1) and not is_gone(None)
    child = subprocess.Popen([sys.executable, "-c", ""])
    wait_for(lambda: is_gone(child.pid))  # also before anybody asks for its exit code
    child.wait()


@pytest.mark.slow
def test_a_rank_that_hangs_is_told_from_those_that_wait_for_it(tmp_path: Path) -> None:
    done = launch("hang", 4, tmp_path / "run")
    assert "codes [0, 0, 0, 0]" in done.stdout, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if "No step for" in line]
    assert len(said) == 1, done.stdout
    assert re.fullmatch(
        r"\[0\] No step for 2 s after step 19\. Ranks 0, 1, 3 wait in all_reduce \(rank_program\.py:\d+\); "
        r"rank 2 is in rank_program\.py:\d+ load_batch\.",
        said[0],
    ), said
    assert "[0] steps come again: step 2" in done.stdout
    dumped: dict[int, dict[str, Any]] = {}
    for path in (tmp_path / "run").glob("training*.json"):
        for item in json.loads(path.read_text()):
            if item["log"] == "stacks" and "threads" in item:
                dumped[item["rank"]] = item
    assert sorted(dumped) == [0, 1, 2, 3]
    assert [dumped[rank]["in_collective"] for rank in range(4)] == [True, True, False, True]
    assert "load_batch" in dumped[2]["threads"][0]["frames"][-1]


@pytest.mark.slow
def test_a_rank_that_was_killed_is_named_as_gone(tmp_path: Path) -> None:
    done = launch("kill", 4, tmp_path / "run")
    assert "codes [0, 0, 0, -9]" in done.stdout, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if "No step for" in line]
    assert len(said) == 1 and said[0].startswith("[0] "), done.stdout
    assert re.search(r"Ranks 0, 1, 2 are in rank_program\.py:\d+ kill; rank 3 is gone \(process \d+ on ", said[0]), said
    for rank in range(3):
        assert f"[{rank}] ranks are compared no more: the connection to another rank is gone" in done.stdout
    from barograph.liveness import pulses

    assert [pulse.status for pulse in pulses(tmp_path / "run")] == ["ended", "ended", "ended", "crashed"]
