"""Communication: what is hidden behind computation and what a step waits for."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked_python
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.probes.speed.communication import length, overlap, split, union

_intervals = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def covered(intervals: list[tuple[int, int]]) -> set[int]:
    return {moment for began, ended in intervals for moment in range(began, ended)}


@given(first=_intervals, second=_intervals)
def test_overlaps_are_those_of_the_moments_covered(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    assert length(first) == len(covered(first))
    assert overlap(first, second) == len(covered(first) & covered(second)) == overlap(second, first)
    joined = union(first)
    assert all(left[1] < right[0] for left, right in pairwise(joined))


def event(name: str, began: float, ended: float, device: str = "DeviceType.CPU") -> Any:
    return SimpleNamespace(name=name, device_type=device, time_range=SimpleNamespace(start=began, end=ended))


def test_on_a_cpu_gloo_stands_against_torchs_operations() -> None:
    found = split([event("aten::mm", 0, 4000), event("gloo:all_reduce", 3000, 6000), event("Optimizer.step", 0, 9000)])
    assert found == {"total_ms": 3, "overlapped_ms": 1, "exposed_ms": 2, "compute_ms": 4}


def test_on_a_gpu_only_kernels_count() -> None:
    cuda = "DeviceType.CUDA"
    found = split(
        [
            event("aten::mm", 0, 100_000),
            event("ampere_sgemm", 0, 4000, cuda),
            event("Memcpy HtoD", 4000, 5000, cuda),
            event("ncclDevKernel_AllReduce_Sum_f32", 3000, 6000, cuda),
        ]
    )
    assert found == {"total_ms": 3, "overlapped_ms": 1, "exposed_ms": 2, "compute_ms": 4}


PROGRAM = """
import json, os, sys
import torch, torch.distributed as distributed, torch.multiprocessing as processes
import barograph

def train(rank, folder):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=2)
    run = barograph.init(project="p", id="r", dir=folder, verbosity=-2, git=False, machine=False)
    run.profile_communication(every=4, first=3)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
    for _ in range(8):
        with run.step(tokens=64):
            model(torch.randn(64, 256)).sum().backward()
    run.finish()
    distributed.destroy_process_group()

if __name__ == "__main__":
    processes.start_processes(train, (sys.argv[1],), nprocs=2, start_method="fork")
"""


@pytest.mark.slow
def test_a_real_training_of_two_ranks_tells_what_it_waits_for(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    done = forked_python.run(sys.executable, program, tmp_path, timeout=600, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    records = json.loads((tmp_path / "p" / "r" / "training.json").read_text())
    found = [record["communication"] for record in records if record["log"] == "ranks" and "communication" in record]
    assert len(found) == 2, "steps 3 and 7"
    for one in found:
        assert one["total_ms"] > 0 and one["compute_ms"] > 0
        assert one["overlapped_ms"] + one["exposed_ms"] == pytest.approx(one["total_ms"], abs=0.01)
    speeds = [record for record in records if record["log"] == "speed"]
    assert [record.get("profiled", False) for record in speeds] == [n in (2, 6) for n in range(8)]
