"""Values of all ranks are reduced in one exchange, ranks are named, and nobody waits who needn't."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import barograph
from barograph.core.record import Record, numbers
from barograph.log.read import read_log
from barograph.probes.ranks import exchange
from barograph.probes.ranks.exchange import ExchangeFrame, Offsets, _halves, _whole, reduce_rows
from barograph.probes.ranks.reduction import Ranks, Reduced, checksum
from barograph.testing import FakeRun

sys.path.insert(0, str(Path(__file__).parent))
from patience import patient
from rank_program import launch


def test_a_world_of_one_reduces_here_and_writes_nothing() -> None:
    import torch

    run = FakeRun()
    ranks = Ranks(run)
    reduced = ranks.reduce(3, {"loss": torch.tensor(2.5), "bad": math.nan}, step_ms=1.0)
    assert reduced is not None
    assert reduced["loss"] == Reduced(2.5, 2.5, 2.5, 0, 0, 0, 2.5)
    assert math.isnan(reduced["bad"].max) and reduced["bad"].non_finite == 1
    assert run.records == [] and run.warnings == []


def test_in_a_real_run_of_one_process_it_is_quiet(tmp_path: Path) -> None:
    run = barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False)
    ranks = Ranks(run)
    assert ranks.reduce(1, {"x": 1.0}) == {"x": Reduced(1.0, 1.0, 1.0, 0, 0, 0, 1.0)}
    run.finish()


def test_a_value_that_is_no_number_raises_nothing() -> None:
    ranks = Ranks(FakeRun())
    assert ranks.reduce(0, {"x": object(), "y": "text", "z": 10**400}) is not None
    assert ranks.reduce(0, 3) is None  # type: ignore[arg-type]


def test_only_every_nth_step_is_reduced() -> None:
    ranks = Ranks(FakeRun(), every=10)
    assert [step for step in range(30) if ranks.reduce(step, {"x": 1.0}) is not None] == [0, 10, 20]


@settings(deadline=None, max_examples=60)  # the first call starts torch's threads
@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=6))
@example([[math.nan, 0.0, 0.0], [math.inf, 0.0, 0.0]])
def test_rows_are_reduced_as_a_slow_loop_reduces_them(rows: list[list[float]]) -> None:
    import torch

    table = torch.zeros(6, 4, dtype=torch.float64)
    ranks = list(range(10, 10 + len(rows)))
    reduce_rows(torch, torch.tensor(rows, dtype=torch.float64), table, ranks)
    for at, column in enumerate(zip(*rows, strict=True)):
        low, high, total, low_rank, high_rank, odd = table[:, at].tolist()
        known = [value for value in column if not math.isnan(value)]
        finite = [value for value in column if math.isfinite(value)]
        assert odd == len(column) - len(finite)
        assert total == pytest.approx(math.fsum(finite), rel=1e-9, abs=1e-20)
        if len(known) < len(column):
            assert math.isnan(high) and math.isnan(column[int(high_rank) - 10])
        else:
            assert high == max(column) == column[int(high_rank) - 10]
        if known:
            assert low == min(known) == column[int(low_rank) - 10]
        else:
            assert math.isnan(low)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**64 - 1))
def test_all_64_bits_of_a_fingerprint_travel(number: int) -> None:
    assert _whole(_halves(number)) == number & (2**64 - 1)


def test_clock_offsets_are_bounded_from_both_sides_and_follow_a_clock_that_is_set() -> None:
    offsets = Offsets()
    assert offsets.estimate() == []
    for delay in (0.004, 0.001, 0.003):  # the second rank's clock is 5 s ahead
        offsets.narrow([-0.001, 5 - delay], [math.inf, 5 + 2 * delay])
    first, second = offsets.estimate()
    assert first is None and second is not None
    assert second[0] == pytest.approx(5, abs=0.001) and second[1] == pytest.approx(0.0015)
    offsets.narrow([-0.001, -3 - 0.001], [0.001, -3 + 0.001])
    second = offsets.estimate()[1]
    assert second is not None and second[0] == pytest.approx(-3, abs=0.002)


def test_a_drifting_clock_is_followed_after_some_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_SKEW_FRAMES", 10)
    offsets = Offsets()
    for frame in range(100):
        drift = frame * 1e-5
        offsets.narrow([0.0, drift - 0.001], [0.0, drift + 0.001])
    second = offsets.estimate()[1]
    assert second is not None and second[0] == pytest.approx(99e-5, abs=3e-4)


def test_equal_parameters_have_equal_checksums_and_one_bit_makes_another() -> None:
    import torch

    tensors = [
        torch.randn(7, 3),
        torch.randn(5).bfloat16(),
        torch.tensor([True, False]),
        torch.randn(2).to(torch.cfloat),
    ]
    copies = [tensor.clone() for tensor in tensors]
    assert checksum(tensors).item() == checksum(copies).item()
    copies[0].view(torch.int32)[3, 1] ^= 1
    assert checksum(tensors).item() != checksum(copies).item()
    assert checksum(tensors).item() != checksum(tensors[::-1]).item()


class FakeLink:
    """Enough of a link for what the first rank makes of a frame."""

    def __init__(self, world: int):
        self.ranks, self.world, self.rank, self.ended = list(range(world)), world, 0, False
        self.places = [{"host": f"node{rank}", "device": f"cuda:{rank}"} for rank in range(world)]
        self.offsets = Offsets()


def frame(step: int, world: int, **fields: Any) -> ExchangeFrame:
    nothing = [math.nan] * world
    whole = ExchangeFrame(
        step, list(range(world)), 0, [0] * world, [0] * world, [], nothing, nothing, [None] * world, [None] * world
    )
    return whole._replace(**fields)


def first_rank(world: int) -> tuple[FakeRun, Ranks]:
    run = FakeRun(world_size=world)
    ranks = Ranks(run)
    ranks._link = FakeLink(world)  # type: ignore[assignment]
    return run, ranks


def test_the_straggler_is_named_with_host_and_device_and_so_is_its_recovery() -> None:
    run, ranks = first_rank(4)
    for step in range(150):
        slow = 115.0 if step < 60 else 100.0
        waits = [slow + 1 - work for work in (100.0, 101.0, slow, 99.0 + step % 3)]
        ranks._handle(frame(step, 4, step_ms=[slow + 2] * 4, wait_ms=waits))
    found = [fields for kind, _, fields in run.records if kind == "straggler"]
    assert [(item["rank"], item["host"], item["device"], item["recovered"]) for item in found] == [
        (2, "node2", "cuda:2", False),
        (2, "node2", "cuda:2", True),
    ]
    sentences = [sentence for key, sentence in run.warnings_by_key.items() if key.startswith("straggler")]
    assert sentences[0].startswith("rank 2 (node2, cuda:2) is 15% slower than the others since step 0: it waits least")
    assert re.match(r"rank 2 \(node2, cuda:2\) keeps up with the others again since step (60|59|61)", sentences[1])


def test_drift_names_the_minority_or_all_when_nobody_knows_who_is_right() -> None:
    run, ranks = first_rank(4)
    ranks._handle(frame(1, 4, checksums=[5, 5, 5, 5]))
    ranks._handle(frame(2, 4, checksums=[5, 6, 5, 5]))
    ranks._handle(frame(3, 4, checksums=[1.0, 1.0, 2.0, 2.0]))
    assert [(step, fields.get("drift")) for _, step, fields in run.records] == [(2, [1]), (3, [0, 1, 2, 3])]
    assert run.warned("parameters of rank 1 differ from the other ranks' at step 2")
    ranks._handle(frame(4, 4, checksums=[math.nan] * 4))
    assert len(run.records) == 2, "NaN on all ranks is the same on all ranks"


def test_the_numbers_in_a_record_are_series() -> None:
    run, ranks = first_rank(2)
    ranks._by_hash[9] = ("loss", "lr")
    table = [[1.0, 0.5], [3.0, 0.5], [4.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    ranks._handle(frame(7, 2, names_hash=9, hashes=[9, 9], counts=[2, 2], table=table, step_ms=[10.0, 12.0]))
    ((kind, step, fields),) = run.records
    series = dict(numbers(Record(kind, 0, step, fields)))
    assert series["ranks/loss/mean"] == 2.0 and series["ranks/loss/max_rank"] == 1
    assert series["ranks/step_ms/max"] == 12.0
    assert "ranks/lr/min" not in series and series["ranks/lr/mean"] == 0.5


def logs(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """The records of each rank's log, out of the run's folder."""
    found = {}
    for path in folder.glob("training*.json"):
        records = read_log(path)  # joins what was longer than a page
        found[next(item["rank"] for item in records if item["log"] == "segment")] = records
    return found


@pytest.mark.slow
def test_four_processes_reduce_what_a_slow_reference_finds_in_their_logs(tmp_path: Path) -> None:
    done = launch("reduce", 4, tmp_path / "run")
    assert "codes [0, 0, 0, 0]" in done.stdout, done.stdout + done.stderr
    of = logs(tmp_path / "run")
    reduced = {item["step"]: item for item in of[0] if item["log"] == "ranks" and "by_rank" not in item}
    assert set(reduced) == set(range(20))
    for step, record in reduced.items():
        if step == 7:
            assert set(record) == {"log", "time", "step", "step_ms"}, "other names on one rank: no values"
            continue
        there = [rank for rank in range(4) if not (step == 9 and rank == 3)]
        given = {
            rank: next(item for item in of[rank] if item["log"] == "metrics" and item["step"] == step) for rank in there
        }
        names = [name.removeprefix("own/") for name in given[0] if name.startswith("own/")]
        assert len(names) == (154 if step == 6 else 4)
        for name in names:
            values = {rank: float(given[rank][f"own/{name}"]) for rank in there}
            finite = {rank: value for rank, value in values.items() if math.isfinite(value)}
            one = record[name]
            assert one["mean"] == pytest.approx(math.fsum(finite.values()) / len(finite), rel=1e-12)
            if len(finite) < len(values):
                assert math.isnan(one["max"]) and (one["max_rank"], one["non_finite"]) == (2, 1)
            elif len(set(values.values())) > 1:
                assert (one["max"], one["min"]) == (max(values.values()), min(values.values()))
                assert values[one["max_rank"]] == one["max"] and values[one["min_rank"]] == one["min"]
        assert record["tokens"]["sum"] == sum(100.0 + rank for rank in there)
    assert reduced[9]["absent"] == [3] and "absent" not in reduced[8]
    assert [step for step, record in reduced.items() if "same_batch" in record] == [11]
    assert reduced[11]["same_batch"] == [[0, 1]]
    assert [step for step, record in reduced.items() if "drift" in record] == [13] and reduced[13]["drift"] == [1]
    assert "only rank 3 has extra" in done.stdout
    assert "ranks 0 and 1 train on the same batch at step 11" in done.stdout
    assert "the parameters of rank 1 differ" in done.stdout
    skew = next(record["clock_skew_ms"] for record in reduced.values() if "clock_skew_ms" in record)
    assert set(skew) == {"1", "2", "3"}
    for one in skew.values():  # one machine, one clock: the truth is 0
        assert abs(one["offset"]) <= one["uncertainty"] + 1e-3
    for rank in range(4):
        own = [item["by_rank"][str(rank)] for item in of[rank] if item["log"] == "ranks" and "by_rank" in item]
        assert len(own) >= 18 and all(item["step_ms"] > 0 for item in own)


@pytest.mark.slow
def test_a_slow_rank_is_named_in_a_real_training_and_its_recovery_too(tmp_path: Path) -> None:
    done = launch("slow", 4, tmp_path / "run")
    assert "codes [0, 0, 0, 0]" in done.stdout, done.stdout + done.stderr
    found = [item for item in logs(tmp_path / "run")[0] if item["log"] == "straggler"]
    assert [(item["rank"], item["recovered"]) for item in found] == [(2, False), (2, True)], done.stdout
    assert found[0]["waits_least"] and found[0]["device"] == "cpu"
    assert 40 <= found[0]["step"] < 160 <= found[1]["step"]  # named while it is slow, and recovered afterwards
    assert "rank 2 (" in done.stdout and "it waits least" in done.stdout


@pytest.mark.slow
def test_waiting_is_measured_in_three_ways_and_who_is_slow_waits_least(tmp_path: Path) -> None:
    done = launch("waited", 3, tmp_path / "run")
    assert "codes [0, 0, 0]" in done.stdout, done.stdout + done.stderr
    waits = {
        int(rank): [float(number) for number in rest.split()]
        for rank, rest in re.findall(r"\[(\d)\] waited (.*)", done.stdout)
    }
    for way in range(3):
        slow, *quick = (waits[rank][way] for rank in (1, 0, 2))
        assert min(quick) > slow + 100, (way, waits)  # of 180 to 400 ms slept


@pytest.mark.slow
def test_nobody_waits_for_a_rank_that_comes_late_or_never(tmp_path: Path) -> None:
    done = launch("late", 4, tmp_path / "late")
    assert "codes [0, 0, 0, 0]" in done.stdout, done.stdout + done.stderr
    assert all(float(took) < 0.2 for took in re.findall(r"took (\d+\.\d+)", done.stdout)), done.stdout
    reduced = [item for item in logs(tmp_path / "late")[0] if item["log"] == "ranks" and "x" in item]
    assert [item["step"] for item in reduced] == list(range(30)) and all(item["x"]["max"] == 3 for item in reduced)
    began = time.monotonic()
    done = launch("absent", 3, tmp_path / "absent")
    assert done.stdout.count("done") == 3 and "codes [0, 0, 0]" in done.stdout, done.stdout + done.stderr
    assert time.monotonic() - began < patient(60)
    assert not [item for item in logs(tmp_path / "absent")[0] if item["log"] == "ranks" and "x" in item]


@pytest.mark.slow
def test_the_world_may_grow_and_shrink(tmp_path: Path) -> None:
    done = launch("elastic", 3, tmp_path / "run")
    assert "codes [0, 0, 0]" in done.stdout, done.stdout + done.stderr
    records = [item for item in logs(tmp_path / "run")[0] if item["log"] == "ranks"]
    reduced = {item["step"]: item["rank"]["max"] for item in records if "rank" in item}
    assert reduced == {step: 2.0 if 10 <= step < 20 else 1.0 for step in range(30)}
    changes = [(item["world_size_before"], item["world_size"]) for item in records if "world_size" in item]
    assert changes == [(2, 3), (3, 2)]
    assert "[1] the world changed from 2 to 3 ranks" in done.stdout


@pytest.mark.slow
def test_a_rank_that_was_killed_is_compared_no_more(tmp_path: Path) -> None:
    done = launch("kill", 4, tmp_path / "run")
    assert "codes [0, 0, 0, -9]" in done.stdout, done.stdout + done.stderr
    for rank in range(3):
        assert f"[{rank}] ranks are compared no more: the connection to another rank is gone" in done.stdout


LEAVES = """
import os, sys, time
import torch.distributed as distributed
import barograph
from barograph.probes.ranks.reduction import Ranks

class Late:
    def __del__(self):
        time.sleep(3)  # while the interpreter takes its modules apart

late = Late()
rank, folder = int(sys.argv[1]), sys.argv[2]
os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), GLOO_SOCKET_IFNAME="lo")
distributed.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=2)
run = barograph.init(project="p", id="r", dir=folder, verbosity=-2, git=False, machine=False)
ranks = Ranks(run)
for step in range(20):
    ranks.reduce(step, {"x": float(rank)})
    run.log({"x": 1.0}, step=step)
    distributed.barrier()
    time.sleep(0.05)
if rank == 1:
    time.sleep(3.5)
    os._exit(0)
run.finish()
"""


@pytest.mark.slow
def test_a_process_ends_well_though_another_rank_goes_while_it_ends(tmp_path: Path) -> None:
    source = str(Path(barograph.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen([sys.executable, "-c", LEAVES, str(rank), str(tmp_path)], env=environment) for rank in (0, 1)
    ]
    assert [one.wait(120) for one in both] == [0, 0]
