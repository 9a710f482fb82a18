"""A heartbeat tells a process that lives from one that logs and one that makes steps, and holds up nobody."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import barograph
from barograph.config import Settings
from barograph.liveness import process, pulses
from barograph.probes.ranks.heartbeat import FILE, Heartbeat


class Recorder:
    """A run as probes see it, that keeps what it is told."""

    def __init__(self, folder: Path, rank: int = 0, world_size: int = 1):
        self.dir, self.settings, self.rank, self.world_size = folder, Settings(), rank, world_size
        self.at_finish: list[Any] = []
        self.current_step = 0
        self.said: list[str] = []

    def record(self, kind: str, step: int, fields: dict[str, Any]) -> None:
        raise AssertionError("a heartbeat is no record")

    def warn(self, sentence: str, key: str | None = None) -> None:
        self.said.append(sentence)


def writer(folder: Path, rank: int = 0) -> Path:
    place = folder / "store" / f"r{rank}"
    place.mkdir(parents=True)
    (place / "writer.json").write_text(json.dumps({"log": "training.json", "segment": 3}))
    (folder / "training.json").write_text("[]")
    return place


def wait_for(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
    return found


def said(place: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((place / FILE).read_bytes())
    except FileNotFoundError:
        return {}
    return content


def test_process_logging_and_steps_are_told_apart(tmp_path: Path) -> None:
    run, place = Recorder(tmp_path, rank=5, world_size=8), writer(tmp_path)
    phases: list[str | None] = [None]
    heart = Heartbeat(run, place, state=lambda: phases[0], seconds=0.05)
    first = wait_for(lambda: said(place))
    assert (first["rank"], first["world_size"], first["segment"], first["state"]) == (5, 8, 3, "running")
    assert {"host": first["host"], "pid": first["pid"], "process_started": first["process_started"]} == process()
    assert first["stepped"] is None and first["step"] == 0 and first["step_seconds"] is None
    assert first["logged"] == (tmp_path / "training.json").stat().st_mtime
    later = wait_for(lambda: said(place)["time"] > first["time"] and said(place))
    assert later["stepped"] is None and later["logged"] == first["logged"], "only the process lives"
    os.utime(tmp_path / "training.json", (time.time(), first["logged"] + 50))
    wait_for(lambda: said(place)["logged"] > first["logged"] + 49)
    for step in range(1, 30):
        run.current_step = 10 * step
        time.sleep(0.03)
    stepped = wait_for(lambda: said(place)["step"] == 290 and said(place))
    assert first["time"] < stepped["stepped"] <= stepped["time"]
    assert 0.001 < stepped["step_seconds"] < 0.03
    phases[0] = "eval"
    wait_for(lambda: said(place)["phase"] == "eval")
    heart.stop()
    assert said(place)["state"] == "ended" and not heart._thread.is_alive()
    assert [path.name for path in place.iterdir() if path.name.startswith(".")] == [], "half a file is left"


def test_a_folder_that_is_gone_or_a_disk_that_is_full_is_said_once_and_gone_over(tmp_path: Path) -> None:
    run, place = Recorder(tmp_path), writer(tmp_path)
    heart = Heartbeat(run, place, seconds=0.02)
    wait_for(lambda: said(place))
    shutil.rmtree(place)
    time.sleep(0.1)
    assert run.said == [], "who deletes a run knows it"
    place.mkdir()
    wait_for(lambda: said(place))
    (place / FILE).unlink()
    (place / FILE).mkdir()  # what can't be replaced, as on a disk that fails
    (place / FILE / "x").touch()
    wait_for(lambda: run.said)
    time.sleep(0.1)
    assert len(run.said) == 1 and run.said[0].startswith("the heartbeat could not be written: ")
    heart.stop()


def test_a_disk_that_hangs_holds_up_the_end_for_a_second_at_most(tmp_path: Path) -> None:
    run, place = Recorder(tmp_path), writer(tmp_path)
    heart = Heartbeat(run, place, seconds=0.02)
    wait_for(lambda: said(place))
    heart._write = lambda state: time.sleep(3)  # type: ignore[method-assign]
    time.sleep(0.1)
    began = time.monotonic()
    heart.stop()
    assert time.monotonic() - began < 1.5


def test_a_forked_child_does_not_end_its_parents_heartbeat(tmp_path: Path) -> None:
    place = writer(tmp_path)
    script = (
        "import os, time\nfrom pathlib import Path\nimport test_heartbeat as t\n"
        f"run = t.Recorder(Path({str(tmp_path)!r})); place = Path({str(place)!r})\n"
        "heart = t.Heartbeat(run, place, seconds=0.05); t.wait_for(lambda: t.said(place))\n"
        "if os.fork() == 0:\n    heart.stop(); os._exit(0)\n"
        "os.wait(); print(t.said(place)['state']); heart.stop(); print(t.said(place)['state'])\n"
    )
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": f"{here.parent / 'src'}:{here}"}
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.split() == ["running", "ended"], done.stderr


def test_in_a_real_run_a_log_call_is_seen_and_the_store_still_reads(tmp_path: Path) -> None:
    with barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False) as run:
        (place,) = (run.dir / "store").iterdir()
        Heartbeat(run, place, seconds=0.05)
        first = wait_for(lambda: said(place))
        time.sleep(0.02)
        run.log({"x": 1.0}, step=12)
        seen = wait_for(lambda: said(place)["step"] == 12 and said(place))
        assert seen["logged"] > first["time"] - 1
        (pulse,) = pulses(run.dir)
        assert (pulse.rank, pulse.status, pulse.step, pulse.pid) == (0, "running", 12, os.getpid())
    assert pulses(run.dir)[0].status == "ended"
    (stored,) = barograph.runs(tmp_path)
    assert stored.status == "finished" and list(stored.series("x").value) == [1.0]
