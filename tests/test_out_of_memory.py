"""When memory runs out, the record is in the log before the error goes on: who held it, and what could be freed."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import forked_python
import pytest
import torch
from patience import patient
from torch import nn

import barograph
from barograph.probes.memory import out_of_memory
from barograph.probes.memory.out_of_memory import is_out_of_memory, memory_guard, remedies, snapshot, tried_bytes
from barograph.testing import FakeRun

SOURCE = str(Path(barograph.__file__).parents[1])


@pytest.fixture(autouse=True)
def time_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests left in this process is much to look through on a busy machine."""
    gc.collect()
    monkeypatch.setattr(out_of_memory, "SECONDS", 60.0)


def too_much() -> BaseException:
    try:
        torch.empty(1 << 50, dtype=torch.uint8)
    except RuntimeError as error:
        return error
    raise AssertionError("this machine has a petabyte")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79 GiB"),
        RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB, max allowed: 9.07 GB)"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:83] . DefaultCPUAllocator: not enough memory: you tried to allocate"
        ),
        OSError(12, "Cannot allocate memory"),
        MemoryError(),
    ],
)
def test_every_allocators_error_is_known(error: BaseException) -> None:
    assert is_out_of_memory(error)
    wrapped = ValueError("the step failed")
    wrapped.__cause__ = error
    assert is_out_of_memory(wrapped)


def test_a_real_failure_is_known_with_the_bytes_it_asked_for() -> None:
    error = too_much()
    assert is_out_of_memory(error) and tried_bytes(error) == 1 << 50
    assert tried_bytes(RuntimeError("CUDA out of memory. Tried to allocate 20.50 MiB. GPU 0")) == 20.5 * (1 << 20)
    assert tried_bytes(MemoryError()) is None


def test_numpys_failure_is_known() -> None:
    import numpy

    with pytest.raises(MemoryError) as caught:
        numpy.ones(1 << 50, numpy.uint8)
    assert is_out_of_memory(caught.value) and tried_bytes(caught.value) == 1 << 50


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("CUDA error: device-side assert triggered"),
        ValueError("the tale of a ship that ran out of memory"),
        OSError(28, "No space left on device"),
        KeyboardInterrupt(),
    ],
)
def test_no_other_error_is_taken_for_it(error: BaseException) -> None:
    assert not is_out_of_memory(error)


def test_the_record_is_in_the_log_before_the_error_goes_on(tmp_path: Path) -> None:
    run = barograph.init(project="p", name="r", dir=str(tmp_path), verbosity=-2, git=False)
    gc.collect()
    # bigger than what other tests of this process may hold: the record names the largest
    model = nn.Linear(3000, 2000, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3000)).sum().backward()
    optimizer.step()

    def forward() -> None:
        logits = torch.zeros(7000, 900)
        torch.empty(logits.numel() << 36)

    with pytest.raises(RuntimeError, match="allocate"):
        try:
            with memory_guard(run, model, optimizer):
                forward()
        except RuntimeError:
            # still on its way, and nothing closed: a strict parser reads the record
            items = json.loads(Path(run.log_file).read_text())
            raise
    run.finish()
    (found,) = [item for item in items if item["log"] == "oom"]
    assert found["error"] == "RuntimeError" and "DefaultCPUAllocator" in found["text"]
    assert found["tried_bytes"] == 4 * 7000 * 900 << 36
    sizes = {row["name"]: row["pageable"] for row in found["allocator"]}
    assert sizes == {"weights": 24_000_000, "gradients": 24_000_000, "optimizer": 48_000_004}
    named = {one["name"]: one for one in found["tensors"]}
    assert named["weight"]["segment"] == "weights" and named["weight"]["shape"] == [2000, 3000]
    assert {"gradient of weight", "exp_avg of weight", "exp_avg_sq of weight"} <= set(named)
    (logits,) = [one for name, one in named.items() if name.startswith("logits in test_out_of_memory.py:")]
    assert logits["bytes"] == 7000 * 900 * 4 and logits["name"].endswith(", forward")
    assert any("2.0 × the weights" in sentence for sentence in found["could_free"])
    assert found["process"]["rss_bytes"] > 0


def test_activations_that_only_the_graph_holds_are_found() -> None:
    run = FakeRun(step=5)
    model = nn.Sequential(nn.Linear(10, 50_000), nn.Sigmoid(), nn.Linear(50_000, 1))
    loss = model(torch.randn(200, 10)).sum()  # noqa: F841 — holds the graph
    fields = snapshot(run, too_much(), model)
    assert fields is not None
    held = [one for one in fields["tensors"] if one["segment"] == "activations"]
    assert held[0]["bytes"] == 200 * 50_000 * 4 and held[0]["name"] == "output of Sigmoid"


def test_recomputation_is_not_set_off_by_looking() -> None:
    from torch.utils.checkpoint import checkpoint

    calls = []

    def block(hidden: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return hidden.sigmoid().exp()

    loss = checkpoint(block, torch.randn(100, requires_grad=True), use_reentrant=False).sum()
    snapshot(FakeRun(step=5), too_much())
    assert len(calls) == 1
    loss.backward()


def test_an_error_is_written_once_however_many_guards_it_passes() -> None:
    run = FakeRun(step=5)
    both = memory_guard(run)
    with pytest.raises(RuntimeError), both, memory_guard(run):
        raise too_much()
    with pytest.raises(ZeroDivisionError), both:
        raise ZeroDivisionError
    assert [kind for kind, _, _ in run.records] == ["oom"]
    assert run.records[0][1] == 5


def test_a_loop_that_goes_on_after_each_error_is_not_held_up() -> None:
    run = FakeRun(step=5)
    for _ in range(30):
        with pytest.raises(RuntimeError), memory_guard(run):
            raise too_much()
    assert len(run.records) == 30
    assert "tensors" in run.records[2][2] and "tensors" not in run.records[3][2]


def test_strange_objects_are_passed_over() -> None:
    class Liar:
        @property
        def __class__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("ask no questions")

    class Gone:
        pass

    gone = Gone()
    proxy = weakref.proxy(gone)
    kept = [Liar(), proxy, torch.ones(3).to_sparse(), torch.empty(9, device="meta"), torch.ones(7_777_777)]
    del gone
    fields = snapshot(FakeRun(step=5), too_much())
    assert fields is not None and 7_777_777 * 4 in [one["bytes"] for one in fields["tensors"]]
    assert len(kept) == 5


def test_looking_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [[number] for number in range(300_000)]
    monkeypatch.setattr(out_of_memory, "SECONDS", 0.002)
    began = time.monotonic()
    fields = snapshot(FakeRun(step=5), too_much())
    assert time.monotonic() - began < patient(1)
    assert fields is not None and fields["incomplete"]
    assert len(many) == 300_000


def test_it_never_raises_and_writes_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*anything: Any) -> Any:
        raise MemoryError

    run = FakeRun(step=5)
    monkeypatch.setattr(gc, "get_objects", none_left)
    monkeypatch.setattr(out_of_memory.usage, "memory_segments", none_left)
    monkeypatch.setattr(out_of_memory.usage, "process_figures", none_left)
    fields = snapshot(run, too_much(), nn.Linear(4, 4))
    assert fields is not None and fields["incomplete"] and fields["tried_bytes"] == 1 << 50
    assert {one["name"] for one in fields["tensors"]} >= {"weight", "bias"}
    monkeypatch.setattr(run, "record", none_left)
    assert snapshot(run, too_much()) is None
    assert run.warnings


def test_losses_kept_with_their_graphs_are_named() -> None:
    weight = torch.ones(5, requires_grad=True)
    losses = [(weight * number).sum() for number in range(50)]
    fields = snapshot(FakeRun(step=5), too_much())
    assert fields is not None and fields["scalars_with_graph"] >= len(losses)
    assert any(".item()" in sentence for sentence in fields["could_free"])


def test_sentences_carry_the_records_own_numbers_largest_first() -> None:
    gib = 1 << 30
    row = {"device": 0, "managed": 0, "pinned": 0, "pageable": 0}
    said = remedies({
        "allocator": [
            row | {"name": "weights", "device": 4 * gib},
            row | {"name": "gradients", "device": 4 * gib},
            row | {"name": "optimizer", "device": 8 * gib},
        ],
        "device": {"allocated_gb": 60.0, "reserved_gb": 75.0, "unallocated_gb": 15.0, "outside_gb": 3.0},
        "tensors": [],
    })  # fmt: skip
    assert said[0].startswith("44 GiB are activations")
    assert said[1].startswith("15 GiB are reserved")
    assert "8 GiB, 2.0 × the weights" in said[2]
    assert said[3].startswith("gradients hold 4 GiB")
    assert said[4].startswith("3 GiB of the device are held outside")
    assert remedies({}) == []


LIMITED = """
import resource, sys
import torch
import barograph
from barograph.probes.memory.out_of_memory import memory_guard
torch.set_num_threads(1)
run = barograph.init(project="p", name="r", dir=sys.argv[1], verbosity=-2, git=False)
model = torch.nn.Linear(1000, 1000)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
kept = []
watch = memory_guard(run, model)
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), resource.RLIM_INFINITY))
with watch:
    for step in range(1000):
        kept.append(torch.zeros(1 << 20))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address space limits")
def test_a_process_with_no_memory_left_writes_its_record_and_dies_of_the_error(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": SOURCE}
    done = forked_python.run(
        sys.executable, "-c", LIMITED, tmp_path, capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 1 and "allocate" in done.stderr
    (log,) = tmp_path.glob("p/r/training.json")
    (found,) = [item for item in json.loads(log.read_text()) if item["log"] == "oom"]
    assert found["process"]["address_space_limit_bytes"] > 64 << 20
    assert {row["name"]: row["pageable"] for row in found["allocator"]} == {"weights": 4_004_000}
    assert found["tensors"][0]["bytes"] == 4 << 20 and "kept in" in found["tensors"][0]["name"]


if torch.cuda.is_available():

    def test_a_real_device_out_of_memory_names_the_activations() -> None:
        run = FakeRun(step=5)
        model = nn.Linear(1024, 1024, device="cuda")
        with pytest.raises(torch.OutOfMemoryError), memory_guard(run, model):
            kept = [model(torch.randn(1 << 16, 1024, device="cuda"))]
            kept.append(torch.empty(1 << 46, dtype=torch.uint8, device="cuda"))
        ((_, _, fields),) = run.records
        assert fields["device"]["allocated_gb"] > 0.4 and fields["device"]["total_gb"] > 1
        assert fields["tensors"][0]["name"].startswith("kept in") or fields["tensors"][0]["segment"] == "activations"
        assert fields["could_free"]
