"""A heartbeat tells a process that lives from one that logs and one that makes steps."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import barograph
from barograph.core.liveness import process, pulses
from barograph.training.heartbeat import FILE, LoopHeartbeat


def content(run: barograph.Run) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((run.dir / "store" / "training" / FILE).read_bytes())
    return fields


def test_a_process_that_lives_is_told_from_one_that_makes_steps(tmp_path: Path) -> None:
    with barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False) as run:
        phases: list[str | None] = [None]
        heart = LoopHeartbeat(run._out, lambda: phases[0], seconds=0.0)
        heart.beat()
        first = content(run)
        assert (first["rank"], first["world_size"], first["segment"], first["state"]) == (0, 1, 1, "running")
        assert first.items() >= process().items()
        assert not first["stepped"] and first["step"] == 0 and first["step_seconds"] is None
        for step in range(10, 40, 10):
            run.log({"x": 1.0}, step=step)
            began = time.monotonic()
            time.sleep(0.01)
            heart.beat()
        stepped = content(run)
        assert first["time"] < stepped["stepped"] <= stepped["time"] and stepped["step"] == 30
        assert 0.001 <= stepped["step_seconds"] <= time.monotonic() - began + 60
        phases[0] = "eval"
        heart.beat()
        later = content(run)
        assert later["phase"] == "eval" and later["stepped"] == stepped["stepped"] and later["time"] > stepped["time"]
        heart.stop()
        assert content(run)["state"] == "ended"
        assert [path.name for path in (run.dir / "store" / "training").glob(".*")] == [], "half a file is left"


def test_a_folder_that_is_gone_or_a_file_that_cannot_be_replaced_holds_up_nobody(tmp_path: Path) -> None:
    with barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False) as run:
        heart = LoopHeartbeat(run._out, lambda: None, seconds=0.0)
        heart.beat()
        shutil.rmtree(run.dir / "store")
        heart.beat()
        place = run.dir / "store" / "training" / FILE
        assert place.is_file()
        place.unlink()
        place.mkdir()
        (place / "x").touch()
        heart.beat()
        heart.stop()


def test_in_a_real_run_the_loops_own_calls_write_it(tmp_path: Path) -> None:
    with barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False) as run:
        heart = LoopHeartbeat(run._out, lambda: None, seconds=0.0)
        run._out.each_second.append(heart.beat)
        run._out.at_end.append(heart.stop)
        run._out.second = -1  # the next call is the first of its second
        run.log({"x": 1.0}, step=12)
        (pulse,) = pulses(run.dir)
        assert (pulse.rank, pulse.status, pulse.step, pulse.pid) == (0, "running", 12, os.getpid())
    assert pulses(run.dir)[0].status == "ended"
    (stored,) = barograph.runs(tmp_path)
    assert stored.status == "finished" and list(stored.series("x").value) == [1.0]
