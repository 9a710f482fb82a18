"""Statistics of tensors equal those of a float64 reference, whatever the tensor."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import forked_python
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.probes.stats import cpu as stats_cpu
from barograph.probes.stats import device as stats_device
from barograph.probes.stats.cpu import plan
from barograph.probes.stats.moments import measure
from barograph.probes.stats.sketch import RELATIVE_ERROR, gather
from barograph.probes.stats.statistics import (
    COLUMNS,
    Statistics,
    _statistics,
    flatten,
    merge_statistics,
    tensor_statistics,
)
from barograph.probes.stats.workers import team

SIZES = (0, 1, 2, 1023, 1024, 1025, 5000, 8191, 8192, 9217, 65_536, 70_000, 1_200_001)


def reference(tensor: Any) -> dict[str, float]:
    """Every statistic in float64 by NumPy; squares are scaled, so that none overflows."""
    values = tensor.detach().to(torch.float64).flatten().numpy()
    finite = values[np.isfinite(values)]
    unit = np.abs(finite).max(initial=0.0) or 1.0
    scaled = finite / unit
    some = len(finite) > 0
    return {
        "count": len(values),
        "norm": np.sqrt(np.sum(scaled**2)) * unit if some or not len(values) else np.nan,
        "mean": scaled.mean() * unit if some else np.nan,
        "std": scaled.std() * unit if some else np.nan,
        "min": finite.min() if some else np.nan,
        "max": finite.max() if some else np.nan,
        "zeros": int((values == 0).sum()),
        "nans": int(np.isnan(values).sum()),
        "infs": int(np.isinf(values).sum()),
    }


def same(found: Statistics, number: int, expected: dict[str, float]) -> None:
    """Norm and deviation to 2e-6, the mean to 1e-6 of the deviation plus the mean's own rounding, the rest exactly."""
    row = found.row(number)
    for name in ("count", "zeros", "nans", "infs", "min", "max"):
        assert np.array_equal(row[name], expected[name], equal_nan=True), (name, row[name], expected[name])
    for name in ("norm", "std"):
        assert np.isclose(row[name], expected[name], rtol=2e-6, atol=0, equal_nan=True), (name, row, expected)
    allowed = 1e-6 * expected["std"] + 1e-9 * abs(expected["mean"])
    assert row["mean"] == expected["mean"] or not abs(row["mean"] - expected["mean"]) > allowed, (row, expected)
    assert np.isnan(row["mean"]) == np.isnan(expected["mean"])


def normal(*shape: int, scale: float = 1e-3, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def with_faults() -> Any:
    values = normal(200_000)
    values[::3] = 0
    values[7], values[8], values[150_000] = float("inf"), float("-inf"), float("nan")
    values[100:3000] = float("nan")
    return values


@pytest.mark.parametrize("sketch", [False, True])
def test_many_tensors_of_all_sizes_equal_the_reference(sketch: bool) -> None:
    tensors = [normal(size, seed=size) for size in SIZES] + [with_faults(), torch.zeros(3000), -torch.zeros(70_000)]
    found = tensor_statistics(tensors, sketch=sketch).result()
    assert len(found) == len(tensors) and (found.sketches is not None) == sketch
    for number, tensor in enumerate(tensors):
        same(found, number, reference(tensor))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (1 + normal(100_000, scale=1e-4), "a mean far above the deviation"),
        (-1e4 + normal(300_000, scale=1e-2), "… where float32 leaves 3 digits of the deviation"),
        (torch.full((200_000,), 0.1), "no deviation at all"),
        (normal(100_000, scale=1e-25), "squares underflow in float32"),
        (normal(100_000, scale=1e-42), "denormals"),
        (normal(100_000, scale=1e30), "squares overflow in float32"),
        (torch.full((100_000,), 3e38), "the sum overflows in float32"),
        (torch.cat([normal(100_000), torch.tensor([1e25])]), "one value beyond all others"),
        (torch.full((20_000,), float("nan")), "nothing finite"),
        (torch.full((20_000,), float("-inf")), "nothing finite, all of one sign"),
        (torch.cat([torch.full((5000,), float("nan")), torch.full((5000,), 2.0)]), "whole rows of NaN"),
        (torch.cat([1 + normal(90_000, scale=1e-4), torch.tensor([float("inf")] * 2000)]), "shifted, with infinities"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_awkward_values_equal_the_reference(values: Any, why: str) -> None:
    for sketch in (False, True):
        same(tensor_statistics([values], sketch=sketch).result(), 0, reference(values))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=5),
    st.floats(-3, 3),
    st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e20]),
    st.floats(0, 0.2),
    st.integers(0, 2**31),
)
def test_any_small_tensors_equal_the_reference(
    sizes: list[int], mean: float, scale: float, faults: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for size in sizes:
        values = (torch.randn(size, generator=generator) + mean) * scale
        marked = torch.rand(size, generator=generator)
        values[marked < faults] = float("nan")
        values[marked < faults / 2] = float("inf")
        values[marked > 1 - faults] = 0
        tensors.append(values)
    found = tensor_statistics(tensors, sketch=True).result()
    for number, tensor in enumerate(tensors):
        same(found, number, reference(tensor))
        assert found.sketches is not None and found.sketches.dense(number).sum() == torch.isfinite(tensor).sum()


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int8,
        torch.int64,
        torch.uint8,
        torch.bool,
    ],
    ids=str,
)
def test_every_dtype_counts_with_its_own_values(dtype: torch.dtype) -> None:
    tensors = [(normal(size, scale=20.0, seed=size)).to(dtype) for size in (0, 1, 1500, 100_003)]
    found = tensor_statistics(tensors, sketch=True).result()
    for number, tensor in enumerate(tensors):
        same(found, number, reference(tensor))


def test_float64_goes_beyond_the_range_of_float32() -> None:
    tensors = [normal(50_000).double() * scale for scale in (1e200, 1e-200, 1e300, 1e-300)]
    found = tensor_statistics(tensors, sketch=True).result()
    for number, tensor in enumerate(tensors):
        same(found, number, reference(tensor))
    huge = found.percentiles((0, 100))[0]
    assert huge[0] == tensors[0].min() and huge[1] == tensors[0].max()


def test_the_layout_in_memory_does_not_matter() -> None:
    square = normal(300, 400)
    views = [square.t(), square[:, ::2], square[5:17, 3:9], square[0].expand(50, 400), square.view(3, 100, 400).mT]
    views += [normal(4, 3, 20, 20).to(memory_format=torch.channels_last), square[0, 0], square.flip(0)]
    found = tensor_statistics(views, sketch=True).result()
    for number, view in enumerate(views):
        same(found, number, reference(view))


def test_a_transposed_tensor_is_read_where_it_lies() -> None:
    weight = normal(64, 128)
    for view in (weight.t(), normal(2, 3, 4, 5).to(memory_format=torch.channels_last)):
        assert flatten(view, "")[0].data_ptr() == view.data_ptr()


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning")
def test_sparse_gradients_count_their_implicit_zeros() -> None:
    indices = torch.tensor([[0, 3, 3, 9]])
    sparse = torch.sparse_coo_tensor(indices, normal(4, 100), (50, 100), check_invariants=True)
    rows = torch.zeros(60, 30)
    rows[::7] = normal(9, 30)
    tensors = [sparse, rows.to_sparse(), rows.to_sparse_csr(), torch.zeros(5, 5).to_sparse()]
    found = tensor_statistics(tensors, sketch=True).result()
    for number, tensor in enumerate(tensors):
        same(found, number, reference(tensor.to_dense()))
    dense = tensor_statistics([tensor.to_dense() for tensor in tensors], sketch=True).result()
    assert np.array_equal(found.percentiles(), dense.percentiles())


def test_a_complex_element_counts_as_its_two_parts() -> None:
    values = torch.complex(normal(5000), normal(5000, seed=1))
    found = tensor_statistics([values, values.conj()]).result()
    parts = reference(torch.view_as_real(values))
    same(found, 0, parts)
    assert found.norm[0] == pytest.approx(float(torch.linalg.vector_norm(values.to(torch.complex128))), rel=2e-6)
    assert found.norm[1] == found.norm[0] and found.mean[1] != found.mean[0]


def test_gradients_of_a_graph_are_read_without_touching_it() -> None:
    weight = normal(100, 100).requires_grad_()
    (weight * 2).sum().backward()
    found = tensor_statistics([weight, weight.grad]).result()
    assert found.mean[1] == 2.0 and weight.grad is not None and weight.grad.grad_fn is None
    with torch.inference_mode():
        assert tensor_statistics([torch.ones(2000)], sketch=True).result().mean[0] == 1.0


def test_nothing_gives_empty_columns() -> None:
    found = tensor_statistics([], sketch=True).result()
    assert len(found) == 0 and found.percentiles().shape == (0, 7) and found.total_norm == 0
    assert found.histograms(4)[1].shape == (0, 4)


def test_percentiles_and_histogram_of_real_sizes() -> None:
    values = normal(1_300_000)
    found = tensor_statistics([values, with_faults()], sketch=True).result()
    ordered = np.sort(values.double().numpy())
    q = np.array([0, 1, 5, 25, 50, 75, 95, 99, 100])
    exact = ordered[np.maximum(np.ceil(q * len(ordered) / 100).astype(int) - 1, 0)]
    assert (np.abs(found.percentiles(q)[0] - exact) <= RELATIVE_ERROR * np.abs(exact)).all()
    edges, counts = found.histogram(0, 32)
    assert np.abs(counts - np.histogram(ordered, edges)[0]).max() < 0.02 * counts.max()
    assert found.histogram(1, 8)[1].sum() == pytest.approx(200_000 - found.nans[1] - found.infs[1])
    with pytest.raises(ValueError, match="sketch=True"):
        tensor_statistics([values]).result().percentiles()


def test_the_same_tensors_give_the_same_numbers() -> None:
    tensors = [normal(size, seed=size) for size in SIZES] + [with_faults()]
    for sketch in (False, True):
        one, two = (tensor_statistics(tensors, sketch=sketch).result() for _ in range(2))
        for name in COLUMNS:
            assert np.array_equal(getattr(one, name), getattr(two, name), equal_nan=True)
        if sketch and one.sketches is not None and two.sketches is not None:
            assert np.array_equal(one.sketches.counts, two.sketches.counts)


def test_the_tensors_are_left_as_they_were() -> None:
    tensors = [with_faults(), normal(5000).half(), normal(5000).double()]
    before = [tensor.clone() for tensor in tensors]
    tensor_statistics(tensors, sketch=True).result()
    assert all(torch.equal(one.nan_to_num(), two.nan_to_num()) for one, two in zip(tensors, before, strict=True))


@pytest.mark.parametrize(
    ("tensor", "error", "words"),
    [
        (torch.empty(3, device="meta"), ValueError, "'w' is on the meta device"),
        (torch.empty(3, dtype=torch.float8_e8m0fnu), ValueError, "'w' is torch.float8_e8m0fnu, whose"),
        ([1.0], TypeError, "'w' is a list"),
        (None, TypeError, "'w' is a NoneType"),
    ],
)
def test_what_has_no_values_is_refused_by_name(tensor: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tensor_statistics([tensor], names=["w"])


def test_names_go_with_the_rows() -> None:
    assert tensor_statistics([torch.ones(2)], names=["a"]).result().names == ("a",)
    with pytest.raises(ValueError, match="1 tensors but 2 names"):
        tensor_statistics([torch.ones(2)], names=["a", "b"])


def test_shards_merge_into_the_statistics_of_the_whole() -> None:
    wholes = [with_faults(), 5 + normal(40_000), normal(9), torch.zeros(0), torch.full((8,), float("nan"))]
    shards = [tensor_statistics([t.tensor_split(4)[rank] for t in wholes], sketch=True).result() for rank in range(4)]
    merged, whole = merge_statistics(shards), tensor_statistics(wholes, sketch=True).result()
    for number, tensor in enumerate(wholes):
        same(merged, number, reference(tensor))
    assert np.array_equal(merged.percentiles(), whole.percentiles(), equal_nan=True)
    assert merged.total_norm == pytest.approx(whole.total_norm, rel=1e-6)
    with pytest.raises(ValueError, match="different tensors"):
        merge_statistics([shards[0], tensor_statistics([torch.ones(1)]).result()])
    with pytest.raises(ValueError, match="no sketches"):
        merge_statistics([shards[0], tensor_statistics([t.tensor_split(4)[1] for t in wholes]).result()])
    with pytest.raises(ValueError, match="nothing to merge"):
        merge_statistics([])


def test_a_dtensor_counts_with_its_local_part(tmp_path: Path) -> None:
    import torch.distributed as distributed
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Partial, Shard

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = DeviceMesh("cpu", [0])
        local = normal(100, 30)
        found = tensor_statistics([DTensor.from_local(local, mesh, [Shard(0)])]).result()
        same(found, 0, reference(local))
        with pytest.raises(ValueError, match="partial sums"):
            tensor_statistics([DTensor.from_local(local, mesh, [Partial()])])
    finally:
        distributed.destroy_process_group()


@given(
    st.lists(st.integers(0, 40) | st.integers(0, 5000), max_size=12),
    st.integers(1, 50),
    st.integers(1, 100),
    st.integers(1, 300),
)
def test_the_plan_holds_every_row_once(rows: list[int], piece: int, small: int, held: int) -> None:
    batches = plan(tuple(rows), piece, small, held)
    seen: dict[int, list[tuple[int, int]]] = {}
    for batch in batches:
        at = 0
        for one in batch:
            assert one.at == at and 0 < one.rows <= piece and one.rows == sum(part[2] for part in one.parts)
            assert len(one.parts) == 1 or all(rows[tensor] < small for tensor, _, _ in one.parts)
            at += one.rows
            for tensor, begin, amount in one.parts:
                seen.setdefault(tensor, []).append((begin, amount))
        assert 0 < at <= held
    for tensor, total in enumerate(rows):
        upto = 0
        for begin, amount in sorted(seen.get(tensor, [])):
            assert begin == upto
            upto += amount
        assert upto == total


def test_tensors_beyond_two_to_the_31_are_planned_to_the_last_row() -> None:
    rows = (1 << 32) // 1024 * 3 + 1
    parts = [part for batch in plan((rows,), 1024, 64, 1 << 16) for piece in batch for part in piece.parts]
    assert parts[-1][1] + parts[-1][2] == rows and sum(part[2] for part in parts) == rows
    assert max(part[1] for part in parts) * 1024 > 1 << 33


def test_a_tensor_in_many_batches_equals_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_cpu, "HELD", 7)
    monkeypatch.setattr(stats_cpu, "PIECE", 4096)
    plan.cache_clear()
    tensors = [with_faults(), normal(30_000).double(), normal(3000), 7 + normal(100_000)]
    for sketch in (False, True):
        found = tensor_statistics(tensors, sketch=sketch).result()
        for number, tensor in enumerate(tensors):
            same(found, number, reference(tensor))


def test_scratch_stays_below_16_megabytes() -> None:
    """… beside what is there once: the threads' own memory and torch's."""
    import tracemalloc

    tensors = [normal(3_000_000).bfloat16(), normal(4_000_000), *[normal(5000) for _ in range(50)]]
    tensor_statistics(tensors, sketch=True).result()
    sizes: list[int] = []
    real = torch.empty

    def spying(*arguments: Any, **options: Any) -> Any:
        made = real(*arguments, **options)
        sizes.append(made.numel() * made.element_size())
        return made

    tracemalloc.start()  # sees NumPy's arrays
    torch.empty = spying
    try:
        tensor_statistics(tensors, sketch=True).result()
        assert tracemalloc.get_traced_memory()[1] + sum(sizes) < 16e6
        assert sum(sizes) > 1e6, "the spy has seen nothing"
    finally:
        torch.empty = real
        tracemalloc.stop()


def test_the_training_keeps_its_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for _ in range(3):
            tensor_statistics([normal(100_000)], sketch=True).result()
        assert torch.get_num_threads() == 2
        workers = team()
        alive = sum(thread.name.startswith("barograph-statistics-") for thread in threading.enumerate())
        assert workers is not None and workers.size == 2 and 2 <= alive <= 6
        inside: list[int] = []
        meet = threading.Barrier(2, timeout=30)

        def ask(_item: Any, _scratch: Any) -> None:
            meet.wait()
            inside.append(torch.get_num_threads())

        workers.run(ask, [1, 2], [None, None])
        assert inside == [1, 1], "a thread of its own team of OpenMP threads slows the whole process down"
        torch.set_num_threads(1)
        assert team() is None
        same(tensor_statistics([normal(100_000)], sketch=True).result(), 0, reference(normal(100_000)))
    finally:
        torch.set_num_threads(before)


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        workers = team()
        assert workers is not None

        def fail(item: Any, _scratch: Any) -> None:
            raise RuntimeError(f"broken {item}")

        with pytest.raises(RuntimeError, match="broken"):
            workers.run(fail, [1, 2, 3], [None, None])
        done: list[int] = []
        workers.run(lambda item, _scratch: done.append(item), [1, 2, 3], [None, None])
        assert sorted(done) == [1, 2, 3]
    finally:
        torch.set_num_threads(before)


def test_a_forked_child_has_threads_of_its_own() -> None:
    """A child has none of the parent's threads: waiting for them would never end."""
    script = """
import os, sys, torch
from barograph.probes.stats.statistics import tensor_statistics
torch.set_num_threads(2)
tensor = torch.randn(20000)  # so few that OpenMP is not used, which forbids to fork after it
tensor_statistics([tensor], sketch=True).result()
child = os.fork()
if not child:
    torch.set_num_threads(2)
    os._exit(int(tensor_statistics([tensor], sketch=True).result().max[0] != float(tensor.max())))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    forked_python.run(sys.executable, "-W", "ignore", "-c", script, check=True, timeout=60)


def test_importing_it_does_not_import_torch() -> None:
    import subprocess

    script = (
        "import sys; from barograph.probes.stats import statistics; statistics.tensor_statistics([]).result(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def by_torch(tensors: list[Any]) -> Statistics:
    flats = [flatten(tensor, "")[0] for tensor in tensors]
    moments, entries = stats_device.Transfer(*stats_device.measure_by_torch(flats, True)).wait()
    return _statistics(moments, gather(entries, moments.low, moments.high), ())


def test_the_way_of_devices_without_triton_equals_the_reference() -> None:
    tensors = [normal(size, seed=size) for size in SIZES[:-1]] + [with_faults(), 3 + normal(5000), normal(99).half()]
    tensors += [torch.full((500,), float("nan")), torch.arange(50), normal(500, scale=1e-30), normal(500, scale=1e30)]
    found, here = by_torch(tensors), tensor_statistics(tensors, sketch=True).result()
    for number, tensor in enumerate(tensors):
        same(found, number, reference(tensor))
    assert np.array_equal(found.percentiles(), here.percentiles(), equal_nan=True)


def test_sketches_that_need_more_room_than_a_transfer_has_still_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [normal(5000), with_faults()]
    expected = by_torch(tensors).percentiles()
    monkeypatch.setattr(stats_device, "TOGETHER", 1)
    assert np.array_equal(by_torch(tensors).percentiles(), expected)
    monkeypatch.setattr(stats_device, "ROOM", 3)
    assert np.array_equal(by_torch(tensors).percentiles(), expected)


def test_moments_of_segments_with_huge_and_tiny_values() -> None:
    values = np.array([1e300, -1e300, 1e-300, 1e-300, 5e-324, np.inf, np.nan, 1.0])
    found = measure(values, np.array([2, 2, 1, 3]))
    assert found.mean.tolist() == [0.0, 1e-300, 5e-324, 1.0] and found.deviation.tolist() == [1e300, 0.0, 0.0, 0.0]
    assert found.nans.tolist() == [0, 0, 0, 1] and found.infs.tolist() == [0, 0, 0, 1]
