"""Memory by segment counts each storage once, where it lies, under the right name; figures are measured or absent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import barograph
from barograph.probes.memory import storages
from barograph.probes.memory import usage as memory
from barograph.probes.memory.usage import ActivationMeter, memory_segments
from barograph.testing import FakeRun


def pageable(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["name"]: row["pageable"] for row in rows}


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, *size: int) -> None:
    model(torch.randn(*size)).sum().backward()
    optimizer.step()


def test_weights_gradients_and_optimizer_are_the_bytes_of_their_tensors() -> None:
    model = nn.Linear(100, 10, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    assert pageable(memory_segments(model, optimizer)) == {"weights": 4000}
    trained(model, optimizer, 2, 100)
    # two moments of 4,000 bytes, and AdamW's step, one float32
    assert pageable(memory_segments(model, optimizer)) == {"weights": 4000, "gradients": 4000, "optimizer": 8004}
    optimizer.zero_grad(set_to_none=True)
    assert "gradients" not in pageable(memory_segments(model, optimizer))
    for row in memory_segments(model, optimizer):
        assert list(row) == ["name", "device", "managed", "pinned", "pageable"]


def test_tied_weights_views_and_buffers_count_once() -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(50, 8), "head": nn.Linear(8, 50, bias=False)})
    model["head"].weight = model["embed"].weight  # type: ignore[index, assignment]
    model["norm"] = nn.BatchNorm1d(8)  # two parameters, two float buffers, and a count of int64
    assert pageable(memory_segments(model)) == {"weights": 50 * 8 * 4 + 4 * 8 * 4 + 8}
    flat = nn.Parameter(torch.randn(1000))
    views = nn.Module()
    views.first = nn.Parameter(flat.data[:10])
    views.second = nn.Parameter(flat.data[10:])
    assert pageable(memory_segments([views, views])) == {"weights": 4000}  # the flat storage, whole and once


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.lists(st.integers(0, 5), max_size=6))
def test_any_sharing_of_parameters_sums_to_the_distinct_ones(sizes: list[int], ties: list[int]) -> None:
    parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
    model = nn.ParameterList([*parameters, *(parameters[tie % len(parameters)] for tie in ties)])
    assert pageable(memory_segments(model)) == {"weights": 4 * sum(sizes)}


def test_meta_and_fake_tensors_hold_nothing() -> None:
    assert memory_segments(nn.Linear(1000, 1000, device="meta")) == []
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        assert storages.holdings(torch.empty(1000)) == []


def test_a_sharded_parameter_counts_as_this_ranks_shard() -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        model = nn.Linear(16, 16, bias=False)
        model.weight = nn.Parameter(distribute_tensor(model.weight.data, mesh, [Shard(0)]))
        assert pageable(memory_segments(model)) == {"weights": 16 * 16 * 4}
        # the global shape is not what counts: a shard of a larger tensor
        half = torch.distributed.tensor.DTensor.from_local(torch.zeros(4, 16), mesh, [Shard(0)], run_check=False)
        assert [held.bytes for held in storages.holdings(half)] == [4 * 16 * 4]
    finally:
        dist.destroy_process_group()


def test_sparse_gradients_count_as_their_indices_and_values() -> None:
    model = nn.Embedding(1000, 4, sparse=True)
    model(torch.tensor([1, 2, 3])).sum().backward()
    assert pageable(memory_segments(model))["gradients"] == 3 * 8 + 3 * 4 * 4


@pytest.mark.parametrize(
    "name", ["lora_A", "lora_B", "lora_embedding_A", "lora_a", "lora_magnitude_vector", "hada_w1_a"]
)
def test_adapters_are_told_by_the_names_their_libraries_give(name: str) -> None:
    base = nn.Linear(8, 8, bias=False)
    setattr(base, name, nn.ParameterDict({"default": nn.Parameter(torch.zeros(2, 8))}))
    model = nn.Sequential(base)
    assert pageable(memory_segments(model)) == {"weights": 256, "lora": 64}


def test_a_name_that_only_resembles_an_adapters_is_a_weight() -> None:
    model = nn.Module()
    model.flora_weight = nn.Parameter(torch.zeros(4))
    model.soft_prompt = nn.Parameter(torch.zeros(4))
    assert pageable(memory_segments(model)) == {"weights": 32}


def test_quantised_weights_and_their_scales_are_qlora() -> None:
    # bitsandbytes' parameter class and its state, by the names they have there
    class Params4bit(nn.Parameter):
        quant_state: Any

    four = nn.Module()
    four.weight = Params4bit(torch.zeros(128, 1, dtype=torch.uint8), requires_grad=False)
    nested = SimpleNamespace(absmax=torch.zeros(1), code=torch.zeros(256))
    four.weight.quant_state = SimpleNamespace(
        absmax=torch.zeros(4, dtype=torch.uint8), code=torch.zeros(16), state2=nested
    )
    assert pageable(memory_segments(four)) == {"qlora": 128 + 4 + 64 + 4 + 1024}
    # GPTQ's and AWQ's buffers
    gptq = nn.Module()
    for name, tensor in {
        "qweight": torch.zeros(16, 8, dtype=torch.int32),
        "qzeros": torch.zeros(1, 2, dtype=torch.int32),
        "scales": torch.zeros(1, 8, dtype=torch.float16),
        "bias": torch.zeros(8),
    }.items():
        gptq.register_buffer(name, tensor)
    assert pageable(memory_segments(gptq)) == {"weights": 32, "qlora": 16 * 8 * 4 + 8 + 16}


def test_wrapped_quantised_tensors_count_their_inner_tensors() -> None:
    from torch.testing._internal.two_tensor import TwoTensor  # torch's own tensor of two tensors

    both = TwoTensor(torch.zeros(10), torch.zeros(10))
    assert sum(held.bytes for held in storages.holdings(both)) == 80


def test_paged_state_is_managed_memory() -> None:
    model = nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    trained(model, optimizer, 1, 4)
    optimizer.state[model.weight]["momentum_buffer"].is_paged = True  # as bitsandbytes marks it
    (row,) = [row for row in memory_segments(model, optimizer) if row["name"] == "optimizer"]
    assert (row["managed"], row["pageable"]) == (64, 0)


def test_master_copies_of_an_optimizer_are_the_optimizers() -> None:
    model = nn.Linear(8, 8, bias=False, dtype=torch.bfloat16)
    copies = [model.weight.detach().float().requires_grad_()]
    assert pageable(memory_segments(model, torch.optim.SGD(copies))) == {"weights": 128, "optimizer": 256}


def test_segments_are_what_log_allocator_takes(tmp_path: Path) -> None:
    model = nn.Linear(8, 8)
    with barograph.init(project="p", name="r", dir=str(tmp_path), verbosity=-2, git=False) as run:
        run.log_allocator(memory_segments(model, activations_bytes=123))
    (found,) = [item for item in barograph.read_log(run.log_file) if item["log"] == "allocator"]
    assert [(row["name"], row["pageable"]) for row in found["stats"]] == [("weights", 288), ("activations", 123)]


# -- activations --------------------------------------------------------------------------------


def test_activations_are_what_backward_needs_and_no_more() -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    batch = torch.randn(32, 64)
    with ActivationMeter(model) as meter:
        model(batch).sum().backward()
    # the first layer's input, and the ReLU's output, which is the second layer's input too
    assert meter.peak_bytes == 32 * 64 * 4 + 32 * 256 * 4
    assert meter.places["pageable"] == meter.peak_bytes
    assert sum(meter._now.values()) == 0 and not meter._uses  # and the graph let go of all of them


def test_micro_batches_share_the_peak_and_gradients_are_right() -> None:
    model, twin = nn.Linear(16, 16), nn.Linear(16, 16)
    twin.load_state_dict(model.state_dict())
    batches = [torch.randn(8, 16) for _ in range(4)]
    with ActivationMeter(model) as meter:
        for batch in batches:
            model(batch).tanh().sum().backward()
    once = 8 * 16 * 4 + 8 * 16 * 4
    assert once <= meter.peak_bytes < 2 * once
    for batch in batches:
        twin(batch).tanh().sum().backward()
    assert torch.equal(model.weight.grad, twin.weight.grad)  # type: ignore[arg-type]


def test_checkpointing_shows_as_fewer_activations() -> None:
    from torch.utils.checkpoint import checkpoint

    blocks = nn.ModuleList([nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)) for _ in range(4)])
    peaks = []
    for recompute in (False, True):
        hidden = torch.randn(16, 32, requires_grad=True)
        with ActivationMeter(blocks) as meter:
            for block in blocks:
                hidden = checkpoint(block, hidden, use_reentrant=False) if recompute else block(hidden)
            hidden.sum().backward()
        peaks.append(meter.peak_bytes)
    assert peaks[1] < peaks[0] / 2


# -- figures ---------------------------------------------------------------------------------------


def test_without_an_accelerator_there_are_no_device_figures_and_none_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start() -> None:
        raise AssertionError("an accelerator was started")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "_lazy_init", start)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert memory.figures() is None
    run = FakeRun()
    memory.record(run, 7)
    ((kind, step, fields),) = run.records
    assert (kind, step) == ("memory", 7)
    assert fields["rss_bytes"] > 1 << 20
    assert not [name for name in fields if name.endswith("_gb")], "a device that is not there has no figures, not zeros"


def test_figures_of_an_allocator_are_in_gib_and_peak_over_total() -> None:
    """The arithmetic, on an allocator with torch's names; a real device checks the names themselves."""
    gib = 1 << 30
    stats = {
        "allocated_bytes": {"all": {"current": 2 * gib, "peak": 6 * gib}},
        "reserved_bytes": {"all": {"current": 7 * gib, "peak": 7 * gib}},
        "inactive_split_bytes": {"all": {"current": gib // 2, "peak": gib}},
        "num_alloc_retries": 3,
        "num_ooms": 1,
    }
    module = SimpleNamespace(
        __name__="an allocator",
        memory_stats_as_nested_dict=lambda device: stats,
        memory_stats=None,
        get_device_properties=lambda device: SimpleNamespace(total_memory=8 * gib),
    )
    seen = memory._of_allocator(module, 0)
    assert (seen.allocated_gb, seen.peak_gb, seen.reserved_gb, seen.total_gb) == (2.0, 6.0, 7.0, 8.0)
    assert (seen.mem_utilization, seen.unallocated_gb, seen.inactive_split_gb) == (0.75, 5.0, 0.5)
    assert (seen.num_alloc_retries, seen.num_ooms) == (3, 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_the_process_figures_follow_its_memory() -> None:
    script = (
        "from barograph.probes.memory.usage import process_figures\n"
        "before = process_figures()\n"
        "block = bytearray(b'x') * (64 << 20)\n"
        "during = process_figures()\n"
        "del block\n"
        "after = process_figures()\n"
        "print(during['rss_bytes'] - before['rss_bytes'], after['peak_rss_bytes'] - after['rss_bytes'],\n"
        "      during['rss_bytes'] < during['limit_bytes'])\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(barograph.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    grown, fallen, within = done.stdout.split()
    assert int(grown) >= 60 << 20 and int(fallen) >= 60 << 20 and within == "True"


if torch.cuda.is_available():

    def test_a_real_devices_figures_agree_with_torch() -> None:
        block = torch.zeros(1 << 28, dtype=torch.uint8, device="cuda")
        seen = memory.figures()
        assert seen is not None
        assert seen.allocated_gb == pytest.approx(torch.cuda.memory_allocated() / 2**30)
        assert seen.peak_gb == pytest.approx(torch.cuda.max_memory_allocated() / 2**30)
        assert seen.reserved_gb == pytest.approx(torch.cuda.memory_reserved() / 2**30)
        assert seen.total_gb == pytest.approx(torch.cuda.get_device_properties(0).total_memory / 2**30)
        holder = nn.Linear(16, 16, bias=False, device="cuda")
        host = nn.Module()
        host.register_buffer("pinned", torch.zeros(1000).pin_memory())
        assert memory_segments(holder)[0]["device"] >= 1024
        assert memory_segments(host)[0]["pinned"] >= 4000
        del block


def test_without_proc_psutil_gives_the_resident_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil")
    read = Path.read_text

    def elsewhere(self: Path, *arguments: Any, **named: Any) -> str:
        if self.is_relative_to("/proc"):
            raise FileNotFoundError(self)
        return read(self, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", elsewhere)
    found = memory.process_figures()
    assert found["peak_rss_bytes"] >= found["rss_bytes"] * 0.5 > 1_000_000
