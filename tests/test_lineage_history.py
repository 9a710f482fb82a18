"""A fork's history is what its source was when it was made; the ranks of a launch go back, fork and begin together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import barograph
from barograph import StoredRun


def steps(run: barograph.Run, first: int, last: int, loss: float) -> None:
    for step in range(first, last + 1):
        run.log({"train/loss": loss}, step=step)


def test_a_fork_s_history_is_not_what_its_source_did_later(tmp_path: Path) -> None:
    run = barograph.init("p", "a", dir=tmp_path, verbosity=-2, doctor=False)
    steps(run, 1, 20, 1.0)
    run.flush()
    fork = barograph.fork(run.dir, 15, "b", dir=tmp_path, verbosity=-2, doctor=False)
    steps(fork, 15, 18, 5.0)
    fork.finish()
    run.rewind(10)
    steps(run, 10, 12, 9.0)
    run.finish()
    again = barograph.fork(run.dir, 12, "c", dir=tmp_path, verbosity=-2, doctor=False)
    again.finish()
    assert StoredRun(fork.dir).series("train/loss").value.tolist() == [1.0] * 14 + [5.0] * 4
    assert StoredRun(again.dir).series("train/loss").value.tolist() == [1.0] * 9 + [9.0] * 2


def test_folders_that_name_each_other_end(tmp_path: Path) -> None:
    run = barograph.init("p", "a", dir=tmp_path, verbosity=-2, doctor=False)
    steps(run, 1, 5, 1.0)
    run.finish()
    fork = barograph.fork(run.dir, 3, "b", dir=tmp_path, verbosity=-2, doctor=False)
    steps(fork, 3, 5, 2.0)
    fork.finish()
    path = run.dir / "segments" / "0001.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"source": str(fork.dir), "start_step": 2}))
    assert len(StoredRun(fork.dir).series("train/loss")) >= 3


_PROGRAM = """
import pathlib, sys, time, barograph
options = {"dir": sys.argv[1], "verbosity": -2, "doctor": False}
run = barograph.init("p", "a", **options)
folder = pathlib.Path(sys.argv[1])
(folder / f"here-{run.rank}").touch()
while not all((folder / f"here-{rank}").exists() for rank in (0, 1)): time.sleep(0.01)
for step in range(1, 21): run.log({"train/loss": float(run.rank)}, step=step)
time.sleep(0.3 * run.rank)
run.rewind(11)
for step in range(11, 31): run.log({"train/loss": 10.0 + run.rank}, step=step)
run.rewind(26)
for step in range(26, 36): run.log({"train/loss": 20.0 + run.rank}, step=step)
run.finish()
fork = barograph.fork(run.dir, 15, "b", **options)
fork.log({"train/loss": 30.0 + fork.rank}, step=15)
fork.finish()
other = barograph.init("p", "c", **options)
other.log({"train/loss": 40.0 + other.rank}, step=1)
other.finish()
"""


def test_ranks_go_back_and_fork_and_begin_another_run_together(tmp_path: Path) -> None:
    launch = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "TORCHELASTIC_RUN_ID": "one"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(tmp_path)],
            env=os.environ | launch | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [one.wait(60) for one in ranks] == [0, 0]
    folders = sorted(one for one in (tmp_path / "p").iterdir() if one.is_dir())  # `a-2` if both made a folder at once
    assert [one.name[0] for one in folders] == ["a", "b", "c"]
    for rank in range(2):
        found = {one.name[0]: StoredRun(one).series("train/loss", rank=rank) for one in folders}
        assert found["a"].value.tolist() == [rank] * 10 + [10.0 + rank] * 15 + [20.0 + rank] * 10
        assert found["b"].value.tolist() == [rank] * 10 + [10.0 + rank] * 4 + [30.0 + rank]
        assert found["c"].value.tolist() == [40.0 + rank]
