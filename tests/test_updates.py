"""Update ratios: exact where weights fit the memory limit, within the stated error where they are sampled."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from barograph.probes.model.norms import FollowedNorms, norms  # noqa: E402
from barograph.probes.model.updates import SAMPLE, UpdateProbe, strides  # noqa: E402


def measured(weights: list[Any], move: Any, limit: int) -> tuple[list[float], list[float], UpdateProbe]:
    """Measured |ΔW| and |W| of an update in place."""
    probe = UpdateProbe(limit)
    with torch.no_grad():
        probe.before(tuple(map(str, range(len(weights)))), tuple(weights))
        for weight in weights:
            move(weight)
        found = probe.after()
    assert found is not None
    return found.update_squares.sqrt().tolist(), found.weight_squares.sqrt().tolist(), probe


def test_updates_that_fit_are_exact() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(30, 40), torch.randn(7), torch.randn(5, 6).T, torch.randn(2, 3, 4, 4)]
    old = [weight.clone() for weight in weights]
    moved, sizes, probe = measured(weights, lambda weight: weight.add_(torch.randn_like(weight), alpha=1e-3), 1 << 20)
    for weight, before, change, size in zip(weights, old, moved, sizes, strict=True):
        assert change == pytest.approx(float((weight - before).norm()), rel=1e-5)
        assert size == pytest.approx(float(before.norm()), rel=1e-6)
    assert probe.bytes == sum(weight.numel() * 4 for weight in weights)


def test_a_large_tensor_is_sampled_within_the_stated_error() -> None:
    torch.manual_seed(0)
    weight = torch.randn(1000, 1000)
    before = weight.clone()
    (moved,), (size,), probe = measured(
        [weight], lambda weight: weight.add_(torch.randn_like(weight) * 1e-3), SAMPLE * 4
    )
    assert probe.bytes <= SAMPLE * 4 < weight.numel() * 4
    error = 0.5 * math.sqrt(2 / SAMPLE)  # kurtosis 3
    assert moved == pytest.approx(float((weight - before).norm()), rel=5 * error)
    assert size == pytest.approx(float(before.norm()), rel=5 * error)


def test_a_sample_meets_every_column_of_an_embedding() -> None:
    weight = torch.zeros(5000, 64)
    moved = {}
    for column in (0, 1, 33, 63):
        changed = weight.clone()
        (moved[column],), _, _ = measured(
            [changed], lambda weight, column=column: weight[:, column].add_(1.0), 4 * 10_000
        )
    assert all(value == pytest.approx(math.sqrt(5000), rel=0.05) for value in moved.values())


@given(
    st.lists(st.tuples(st.integers(1, 1 << 28), st.sampled_from([2, 4, 8]), st.integers(1, 5000)), max_size=30),
    st.integers(1, 1 << 30),
)
def test_the_memory_limit_holds(sizes: list[tuple[int, int, int]], limit: int) -> None:
    kept = [-(-size[0] // stride) for size, stride in zip(sizes, strides(sizes, limit), strict=True)]
    assert all(amount >= 1 for amount in kept)
    least = sum(width for _, width, _ in sizes)
    assert sum(amount * width for amount, (_, width, _) in zip(kept, sizes, strict=True)) <= max(limit, 8 * least)


def test_small_tensors_are_whole_before_large_ones() -> None:
    assert strides([(1000, 4, 10), (10_000_000, 4, 1000), (500, 4, 5)], 1 << 16)[::2] == [1, 1]


def test_the_weights_of_a_step_that_never_came_are_not_compared() -> None:
    probe = UpdateProbe(1 << 20)
    assert probe.after() is None
    weight = torch.ones(4)
    probe.before(("a",), (weight,))
    weight.resize_(9).fill_(1.0)
    assert probe.after() is None and probe.bytes == 0


def test_no_update_is_zero_and_a_new_weight_counts_as_new() -> None:
    (still,), (size,), _ = measured([torch.ones(10)], lambda weight: None, 1 << 20)
    assert still == 0 and size == pytest.approx(math.sqrt(10))


@pytest.mark.parametrize("dtype, error", [("float32", 2e-5), ("bfloat16", 5e-3), ("float16", 1e-3), ("float64", 1e-12)])
def test_norms_are_right_for_large_and_small_tensors(dtype: str, error: float) -> None:
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    tensors = [
        torch.randn(2_500_000).to(kind),
        torch.randn(3, 5).to(kind),
        torch.zeros(0, dtype=kind),
        torch.ones(()).to(kind),
    ]
    for tensor, norm in zip(tensors, norms(tensors).tolist(), strict=True):
        assert norm == pytest.approx(float(tensor.double().norm()), rel=error)


def test_norms_let_nan_through_and_read_sparse_and_mixed_tensors() -> None:
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[0, 0, 3]]), torch.tensor([1.0, 2.0, 4.0]), (10,), check_invariants=False
    )
    found = norms([sparse, torch.tensor([1.0, math.nan]), torch.tensor([3.0, 4.0], dtype=torch.float64)]).tolist()
    assert found[0] == pytest.approx(5.0) and math.isnan(found[1]) and found[2] == pytest.approx(5.0)
    assert len(norms([])) == 0


def test_followed_norms_stay_near_the_exact_ones_between_full_readings() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(1000, 1000), torch.randn(30, 7), torch.zeros(600, 500)]
    followed = FollowedNorms()
    for step in range(25):
        found = followed.squares(weights, step).sqrt()
        for norm, weight in zip(found.tolist(), weights, strict=True):
            error = 2e-5 if step < 1 or weight[0, 0].abs() > 0.1 else 0.02
            assert norm == pytest.approx(float(weight.double().norm()), rel=error, abs=1e-9)
        for weight in weights:  # a step of 1e-3 of a weight's size
            weight.add_(torch.randn_like(weight), alpha=1e-3).mul_(0.9999)


def test_followed_norms_begin_anew_with_other_tensors() -> None:
    followed = FollowedNorms()
    followed.squares([torch.ones(1_000_000)], 0)
    found = followed.squares([torch.full((1_000_001,), 2.0)], 1).sqrt().item()
    assert found == pytest.approx(2 * math.sqrt(1_000_001), rel=1e-5)
