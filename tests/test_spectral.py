"""Spectral norms: near the exact ones, whatever the weights are."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from barograph.probes.model.spectral import SpectralNorms, matrices  # noqa: E402


def exact(weights: dict[str, Any]) -> Any:
    return torch.stack(
        [torch.linalg.matrix_norm(w.detach().double().reshape(len(w), -1), ord=2) for w in matrices(weights).values()]
    )


@pytest.mark.parametrize("rate", [3e-4, 3e-3, 1e-2])
def test_norms_are_within_one_percent_at_the_steps_of_a_real_training(rate: float) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(64, 96), torch.nn.Linear(96, 384), torch.nn.GELU(), torch.nn.Linear(384, 96),
        torch.nn.LayerNorm(96), torch.nn.Linear(96, 64),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    followed = SpectralNorms()
    tokens = torch.randint(0, 64, (32, 16))
    for step in range(30):
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = followed.update(dict(model.named_parameters()))
        assert found.names == ("0.weight", "1.weight", "3.weight", "5.weight")
        wanted = exact(dict(model.named_parameters()))
        assert ((found.norms - wanted) / wanted).abs().max() <= (0.01 if step >= 10 else 0.04)
        assert (found.norms <= wanted * 1.00001).all(), "a Ritz value comes from below"


@pytest.mark.parametrize("seed", range(6))
def test_a_direction_that_grows_past_the_largest_is_found_within_two_looks(seed: int) -> None:
    torch.manual_seed(seed)
    weight, followed = torch.randn(300, 200), SpectralNorms()
    one, two = torch.randn(300, 1), torch.randn(1, 200)
    off = []
    for look in range(12):
        grown = weight + (0.4 * max(0, look - 3) / 8) * one @ two
        wanted = float(exact({"w": grown})[0])
        off.append(float(followed.update({"w": grown}).norms[0]) < 0.99 * wanted)
    assert sum(off) <= 1


def test_the_stable_rank_is_frobenius_over_spectral_squared() -> None:
    weight = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    found = SpectralNorms().update({"w": weight})
    assert float(found.norms[0]) == pytest.approx(3.0, rel=1e-4)
    assert float(found.stable_ranks[0]) == pytest.approx(14 / 9, rel=1e-3)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_no_scale_overflows_or_vanishes(scale: float) -> None:
    torch.manual_seed(1)
    weight = torch.randn(40, 30, dtype=torch.float64)
    found = SpectralNorms().update({"w": (weight * scale).float()})
    assert float(found.norms[0]) / scale == pytest.approx(float(torch.linalg.matrix_norm(weight, ord=2)), rel=0.01)


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e20, 1e36])
def test_stable_ranks_hold_at_every_scale(scale: float) -> None:
    torch.manual_seed(1)
    weight = torch.randn(40, 30) * scale
    followed = SpectralNorms()
    found = [followed.update({"w": weight}) for _ in range(3)][-1]
    norm = float(exact({"w": weight.double()})[0])
    assert float(found.norms[0]) == pytest.approx(norm, rel=0.01)
    assert float(found.stable_ranks[0]) == pytest.approx(float((weight.double() / norm).square().sum()), rel=0.02)


@pytest.mark.parametrize("shape", [(30, 40), (200, 100)])
def test_weights_that_were_replaced_have_their_norm_at_once(shape: tuple[int, int]) -> None:
    for seed in range(10):
        torch.manual_seed(seed)
        followed = SpectralNorms()
        followed.update({"w": torch.randn(shape)})
        weight = torch.randn(shape)
        assert float(followed.update({"w": weight}).norms[0]) == pytest.approx(float(exact({"w": weight})[0]), rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_weights_of_eight_bits_are_followed(dtype: Any) -> None:
    torch.manual_seed(2)
    weight = torch.randn(20, 50).to(dtype)
    found = SpectralNorms().update({"w": weight})
    assert float(found.norms[0]) == pytest.approx(float(exact({"w": weight.float()})[0]), rel=0.01)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_are_followed(dtype: Any) -> None:
    torch.manual_seed(2)
    weight = torch.randn(20, 50).to(dtype)
    found = SpectralNorms().update({"w": weight})
    assert float(found.norms[0]) == pytest.approx(float(exact({"w": weight})[0]), rel=0.01)


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (3, 4, 5, 6), (2, 9)])
def test_every_shape_has_a_norm(shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    weight = torch.randn(shape)
    found = SpectralNorms().update({"w": weight})
    assert float(found.norms[0]) == pytest.approx(float(exact({"w": weight})[0]), rel=0.01)


def test_zeros_have_the_norm_zero() -> None:
    found = SpectralNorms().update({"w": torch.zeros(8, 8)})
    assert float(found.norms[0]) == 0.0 and float(found.stable_ranks[0]) == 0.0


def test_a_matrix_gone_wrong_is_nan_and_comes_back() -> None:
    torch.manual_seed(4)
    weight, followed = torch.randn(30, 20), SpectralNorms()
    followed.update({"w": weight})
    broken = weight.clone()
    broken[0, 0] = float("nan")
    gone = followed.update({"w": broken})
    assert not torch.isfinite(gone.norms[0]) and not torch.isfinite(gone.stable_ranks[0])
    found = followed.update({"w": weight})
    assert float(found.norms[0]) == pytest.approx(float(exact({"w": weight})[0]), rel=0.01)


def test_vectors_and_integers_and_nothing_at_all_have_no_norm() -> None:
    weights = {"b": torch.zeros(3), "i": torch.zeros(3, 3, dtype=torch.int64), "e": torch.zeros(0, 3)}
    weights |= {"s": torch.eye(3).to_sparse(), "m": torch.eye(3, device="meta")}
    assert SpectralNorms().update(weights).names == ()
    assert SpectralNorms().update({}).names == ()


def test_a_shape_that_changes_begins_anew() -> None:
    followed = SpectralNorms()
    followed.update({"w": torch.randn(5, 6)})
    weight = torch.diag(torch.arange(1.0, 9.0))
    assert float(followed.update({"w": weight}).norms[0]) == pytest.approx(8.0, rel=1e-3)


def test_the_summary_has_the_documents_names() -> None:
    weights = {"a": torch.eye(4), "b": 3 * torch.eye(4)}
    found = SpectralNorms().update(weights).summary()
    assert found["spectral_norm_max"] == pytest.approx(3) and found["spectral_norm_mean"] == pytest.approx(2)
    assert found["spectral_norm_std"] == pytest.approx(2**0.5)
