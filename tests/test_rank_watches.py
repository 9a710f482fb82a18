"""Ranks that watch their models are compared though no loop compares them; whoever differs is waited for by nobody."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked_python
import pytest

import barograph
from barograph.doctor import diagnose
from barograph.log.read import read_log

pytest.importorskip("torch")

PROGRAM = Path(__file__).parent / "rank_watches.py"


def train(kind: str, folder: Path, *more: str, steps: int = 60) -> tuple[list[dict[str, Any]], dict[str, str], str]:
    """Records of the comparison; what the doctor finds, by rule; what the ranks said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = str(PROGRAM.parents[1] / "src")
    ranks = [
        forked_python.start(
            sys.executable, PROGRAM, kind, folder, str(steps), *more, needs=("torch.distributed.fsdp",),
            env=os.environ
            | {
                "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "PYTHONPATH": source, "GLOO_SOCKET_IFNAME": "lo",
            },
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = ""
    try:
        for rank in ranks:
            words, _ = rank.communicate(timeout=90)
            said += words
            assert rank.returncode == 0, words[-2000:]
    finally:
        for rank in ranks:
            rank.kill()
    records = [
        record for path in folder.glob("training*.json") for record in read_log(path) if record["log"] == "ranks"
    ]
    found = diagnose(barograph.StoredRun(folder))["findings"]
    assert "compared no more" not in said and "Error" not in said and "Traceback" not in said, said
    return records, {one["rule"]: one["severity"] for one in found}, said


RULES = {"same_batch", "ranks_drifted", "missing_rank", "straggler"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp", "destroyed"])
def test_ranks_with_the_same_data_are_found_where_no_loop_compares_them(kind: str, tmp_path: Path) -> None:
    records, found, said = train(kind, tmp_path / "run", "same")
    steps = [record["step"] for record in records]
    assert steps[:12] == list(range(2, 14)) and steps[12:15] == [22, 32, 42]  # the first twelve, then each tenth
    assert all(record["same_batch"] == [[0, 1]] and "absent" not in record for record in records)
    assert found.get("same_batch") == "warning" and RULES & found.keys() == {"same_batch"}
    assert said.count("train on the same batch") == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp", "averaged"])
def test_ranks_with_data_of_their_own_are_left_alone(kind: str, tmp_path: Path) -> None:
    records, found, _ = train(kind, tmp_path / "run")
    assert not records and not RULES & found.keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["first", "lonely", "off", "split", "parts"])
def test_who_runs_or_watches_alone_or_holds_parts_is_compared_with_nobody(kind: str, tmp_path: Path) -> None:
    records, found, said = train(kind, tmp_path / "run", "same")
    assert not records and not RULES & found.keys()
    assert all(float(took) < 1.9 for took in re.findall(r"ended in (\d+\.\d+)", said)), said


@pytest.mark.slow
def test_a_rank_that_ends_early_is_neither_missed_nor_waited_for(tmp_path: Path) -> None:
    records, found, _ = train("early", tmp_path / "run", "same")
    assert {record["step"] for record in records} <= {1, 2, 3, 4, 5} and not RULES & found.keys()


@pytest.mark.slow
def test_a_loop_that_compares_from_its_tenth_step_on_compares_alone_from_then_on(tmp_path: Path) -> None:
    records, found, _ = train("reduces", tmp_path / "run", "same")
    of_watches = [record["step"] for record in records if set(record) - {"log", "time", "step"} == {"same_batch"}]
    assert of_watches and max(of_watches) <= 9
    assert [record["step"] for record in records if "loss" in record] == [9, 19, 29, 39, 49, 59]
    assert "same_batch" in found


@pytest.mark.slow
def test_a_loop_that_compares_on_one_rank_alone_is_not_mixed_with_watches(tmp_path: Path) -> None:
    records, found, _ = train("differs", tmp_path / "run")
    assert not [record for record in records if "loss" in record or "absent" in record or "same_batch" in record]
    assert not RULES & found.keys()


@pytest.mark.slow
def test_gradients_that_nobody_averages_are_found_too(tmp_path: Path) -> None:
    records, found, _ = train("unequal", tmp_path / "run")
    assert [set(record) & {"apart"} for record in records] == [{"apart"}]
    assert found.get("ranks_drifted") == "warning"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["modes", "evaluates"])
def test_a_rank_that_stays_in_evaluation_mode_is_found(kind: str, tmp_path: Path) -> None:
    records, found, _ = train(kind, tmp_path / "run")
    assert [record["modes_apart"] for record in records if "modes_apart" in record] == [[1]] * (kind == "modes")
    assert found.get("ranks_modes") == ("warning" if kind == "modes" else None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_an_evaluation_behind_the_last_step_is_recorded_and_no_rank_waits(kind: str, tmp_path: Path) -> None:
    _, _, said = train(kind, tmp_path / "run", "evaluated")
    last = barograph.StoredRun(tmp_path / "run").series("model/evaluated_last")
    assert (last.step.tolist(), last.value.tolist()) == ([61], [1])
    assert all(float(took) < 1.9 for took in re.findall(r"ended in (\d+\.\d+)", said)), said
