"""Rules over memory: what must be found, what must not, and the same in pieces of any size."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.core.record import Record
from barograph.doctor.rules.memory.memory import (
    RULES,
    DeviceMemory,
    EvaluationMemory,
    HostMemory,
    MemoryCreep,
    OutOfMemory,
)
from barograph.doctor.rules.run.ending import Crashed

MIB = float(1 << 20)


def test_a_device_nearly_full() -> None:
    def grades(share: float, **more: object) -> set:
        columns = {"memory/mem_utilization": numpy.full(40, share), "memory/total_gb": numpy.full(40, 80.0)} | more
        return {one.severity for one in findings([DeviceMemory()], columns).values()}

    assert not grades(0.9)
    assert grades(0.93) == {"info"}
    assert grades(0.96) == {"warning"}
    retries = numpy.concatenate([numpy.zeros(20), numpy.arange(20)])
    assert "critical" in grades(0.98, **{"memory/num_alloc_retries": retries})


def test_memory_that_grows_and_does_not_stop_warns_with_the_step_at_which_it_is_full() -> None:
    resident = 600 * MIB + noisy(60, MIB, 0.3)
    resident[30:] += 20 * MIB * numpy.arange(30)
    columns = {
        "host/process_rss": (numpy.arange(60) * 5, resident),
        "host/memory_limit": (numpy.arange(60) * 5, numpy.full(60, 4096 * MIB)),
    }
    (one,) = only(findings([MemoryCreep()], columns), "memory_creep")
    assert one.severity == "warning" and 130 <= one.step <= 155 and one.causes[0].startswith("memory leak")
    assert 900 < one.evidence["full_at"] < 1100


def evaluated(each: float, between: float = 0.0, evaluations: int = 12, series: str = "host/process_rss") -> dict:
    """Memory at each fifth step, in MiB; evaluations after steps 0, 20, …"""
    steps = numpy.arange(5, 20 * evaluations, 5)
    unit = 1 / 1024 if series.endswith("_gb") else MIB
    done = (steps - 1) // 20
    memory = unit * (450 + each * done + between * (steps // 5) + 0.1 * (steps % 3))
    return {series: (steps, memory), "eval/loss": (20 * numpy.arange(evaluations), numpy.linspace(3, 2, evaluations))}


@pytest.mark.parametrize("series", ["host/process_rss", "memory/rss_bytes", "memory/allocated_gb"])
def test_memory_that_grows_at_each_evaluation_is_a_graph_that_is_kept(series: str) -> None:
    (one,) = only(findings([EvaluationMemory()], evaluated(15, series=series)), "evaluation_memory")
    assert (one.severity, one.kind) == ("warning", "memory") and one.causes[0].startswith("no_grad missing")
    assert 14 < one.evidence["mib_each"] < 16 and len(one.causes) == 2
    once = numpy.array([1])
    proven = evaluated(15, series=series) | {"model/gradients_in_evaluation": (once, once)}
    assert only(findings([EvaluationMemory()], proven), "evaluation_memory")[0].causes == one.causes[:1]
    without = evaluated(15, series=series) | {"model/training_in_evaluation": (once, 0 * once)}
    assert only(findings([EvaluationMemory()], without), "evaluation_memory")[0].causes[0].startswith("memory leak")


@pytest.mark.parametrize(
    ("each", "between"),
    [(0.0, 0.0), (0.0, 4.0), (15.0, 4.0), (1.0, 0.0)],
    ids=["steady", "grows with steps", "grows with both", "too little"],
)
def test_memory_that_does_not_grow_by_evaluations_is_another_rules(each: float, between: float) -> None:
    assert not findings([EvaluationMemory()], evaluated(each, between))


def test_memory_that_stops_growing_at_evaluations_is_silent() -> None:
    columns = evaluated(15)
    steps, memory = columns["host/process_rss"]
    assert not findings([EvaluationMemory()], columns | {"host/process_rss": (steps, memory.clip(max=memory[12]))})


def test_memory_that_warms_up_fills_a_cache_or_comes_and_goes_is_silent() -> None:
    steps = numpy.arange(60) * 5
    cache = 600 * MIB * (1 + 0.5 * (1 - numpy.exp(-numpy.arange(60) / 5)))
    waves = 600 * MIB * (1 + 0.3 * numpy.sin(numpy.arange(60) / 2))
    stairs = 600 * MIB + 100 * MIB * (numpy.arange(60) // 10)
    little = 600 * MIB + 2 * MIB * numpy.arange(60)
    for values in (cache, waves, stairs, little):
        assert not findings([MemoryCreep()], {"host/process_rss": (steps, values)})


def test_the_hosts_memory() -> None:
    columns = {"host/memory_used": numpy.full(10, 97.0), "host/memory_limit": numpy.full(10, 100.0)}
    assert [(one.severity, one.found) for one in findings([HostMemory()], columns).values()] == [("warning", 2)]
    kills = numpy.array([0.0, 0, 1, 2])
    (one,) = findings([HostMemory()], {"host/oom_kills": kills}).values()
    assert (one.severity, one.step) == ("critical", 2)


def test_an_error_for_want_of_memory_is_critical_and_says_what_could_be_freed() -> None:
    event = Record(
        "oom", 0, 7, {"error": "OutOfMemoryError", "tried_bytes": 1 << 30, "could_free": ["Free the logits: 2 GiB."]}
    )
    (one,) = findings([OutOfMemory()], {}, events=[event]).values()
    assert (one.severity, one.step, one.remedies) == ("critical", 7, ["Free the logits: 2 GiB."])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_columns_give_the_same_in_pieces_and_never_raise(seed: int) -> None:
    names = ("memory/mem_utilization", "memory/num_alloc_retries", "memory/total_gb", "memory/allocated_gb",
             "host/process_rss", "host/memory_limit", "host/memory_used", "host/oom_kills", "memory/rss_bytes",
             "memory/limit_bytes")  # fmt: skip
    same_when_cut(RULES, random_columns(seed, names), seed)


def test_a_heap_that_grew_and_settled_before_is_no_part_of_the_leak() -> None:
    steps = numpy.arange(60) * 5
    resident = 600 * MIB + 80 * MIB * numpy.clip((numpy.arange(60) - 14) / 4, 0, 1) + 0.02 * MIB * numpy.arange(60)
    resident[22:] += 15 * MIB * numpy.arange(38)
    (one,) = only(findings([MemoryCreep()], {"host/process_rss": (steps, resident)}), "memory_creep")
    assert 100 <= one.step <= 110


def test_an_end_by_memory_that_ran_out_is_told_once() -> None:
    oom = Record("oom", 1_000_000, 39, {"error": "CUDA out of memory", "tried_bytes": 1 << 30})
    end = Record("end", 1_000_001, 39, {"status": "failed", "exception": {"type": "OutOfMemoryError",
                 "message": "CUDA out of memory. Tried to allocate 1 GiB"}})  # fmt: skip
    columns = {"train/loss": noisy(40, 3, 0.01)}
    found = findings([OutOfMemory(), Crashed()], columns, events=[oom, end])
    assert [one.rule for one in found.values()] == ["out_of_memory"]
    other = Record("end", 1_000_001, 39, {"status": "failed", "exception": {"type": "ValueError", "message": "x"}})
    found = findings([OutOfMemory(), Crashed()], columns, events=[oom, other])
    assert sorted(one.rule for one in found.values()) == ["crashed", "out_of_memory"]


@pytest.mark.parametrize(
    ("kind", "message", "cause", "remedy", "never"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB. "
         "Process 412 has 61.02 GiB memory in use. Including non-PyTorch memory, this process has 10.00 GiB memory in "
         "use. Of the allocated memory 9.00 GiB is by PyTorch.", "out of memory", "batch size", "Process 412"),
        ("AcceleratorError", "CUDA error: device-side assert triggered", "index out of range", "below the rows", "!"),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, …)`",
         "index out of range", "CUDA_LAUNCH_BLOCKING=1", "!"),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", "error on the device",
         "CUDA_LAUNCH_BLOCKING=1", "index out of range"),
        ("ValueError", "unknown optimizer", "did not catch", "traceback", "device"),
    ],
)  # fmt: skip
def test_an_exception_that_ended_a_training_is_told_by_what_it_says(
    kind: str, message: str, cause: str, remedy: str, never: str
) -> None:
    end = Record("end", 1_000_001, 39, {"status": "failed", "exception": {"type": kind, "message": message}})
    (one,) = findings([Crashed()], {"train/loss": noisy(40, 3, 0.01)}, events=[end]).values()
    assert cause in str(one.causes[0]) and any(remedy in each for each in one.remedies)
    assert never not in f"{one.message} {one.causes}"
