"""Spectral norms of weight matrices by warm-started block power iteration.

In:   named weights of two dimensions or more; one with more is taken as (first, the rest) (S1).
Out:  for each its largest singular value and its stable rank (Frobenius norm² / spectral norm²), at two
      reads of the weights an update.

A block of a few right vectors is kept for each matrix and moved once an update: V ← orthonormal(Wᵀ(WV)). The
norm is the largest Ritz value of the block, so it comes from below; with a block of b its error falls with
(σ_{b+1} / σ₁)^{4k} after k updates (Saad, Numerical Methods for Large Eigenvalue Problems, 5.2), and
between updates the weights of a training move little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 8
_FIRST = 5  # iterations at a matrix's first update, whose start is random
_SQUARINGS = 6  # of a small Gram matrix: its largest direction, without asking the device for a decomposition


class Spectral(NamedTuple):
    """Columns, one value a matrix, on the device of the weights."""

    names: tuple[str, ...]
    norms: Tensor
    stable_ranks: Tensor

    def summary(self) -> dict[str, float]:
        """S1's `spectral_norm_max`, `_mean` and `_std` (over the matrices, n - 1); reads from the device."""
        norms = self.norms.double()
        spread = float(norms.std()) if len(norms) > 1 else 0.0
        return {
            "spectral_norm_max": float(norms.max()),
            "spectral_norm_mean": float(norms.mean()),
            "spectral_norm_std": spread,
        }


def matrices(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Those that have a spectral norm: floating point, two dimensions or more, not empty, on a real device."""
    return {
        name: weight
        for name, weight in weights.items()
        if weight.dim() >= 2
        and weight.numel()
        and weight.is_floating_point()
        and not weight.is_meta
        and not weight.is_sparse
    }


class SpectralNorms:
    """Follows the spectral norms of a set of weights. `update` moves each block once and gives the norms.

    The weights are given at each update, so that parameters may be replaced; a matrix whose shape or device
    has changed begins anew. A matrix with NaN or infinity has a norm of NaN and begins anew afterwards.
    """

    def __init__(self, block: int = BLOCK, seed: int = 0):
        self._block, self._seed = block, seed
        self._vectors: dict[str, Tensor] = {}

    def update(self, weights: Mapping[str, Any], iterations: int = 1) -> Spectral:
        """The norms of these weights after so many iterations more. Nothing waits for a device."""
        import torch

        chosen = {name: _local(weight) for name, weight in matrices(weights).items()}
        self._vectors = {name: self._vectors[name] for name in chosen if name in self._vectors}
        if not chosen:
            return Spectral((), torch.empty(0), torch.empty(0))
        norms, ranks = [], []
        with torch.no_grad():
            for name, weight in chosen.items():
                norm, rank = self._move(name, weight.detach().reshape(len(weight), -1), iterations)
                norms.append(norm)
                ranks.append(rank)
            device = norms[0].device
            return Spectral(
                tuple(chosen),
                torch.stack([norm.to(device, non_blocking=True) for norm in norms]),
                torch.stack([rank.to(device, non_blocking=True) for rank in ranks]),
            )

    def _move(self, name: str, weight: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
        import torch

        kind = weight.dtype if weight.dtype in (torch.float64, torch.float32) else torch.float32
        matrix = weight.to(kind)  # half precision: the products would overflow or lose what counts
        wide = min(self._block, *matrix.shape)
        vectors = self._vectors.get(name)
        if vectors is None or vectors.shape != (matrix.shape[1], wide) or vectors.device != matrix.device:
            vectors = self._start(matrix, wide)
            iterations = max(iterations, _FIRST)
        for _ in range(iterations):
            # scaled, so that the squares neither overflow nor vanish
            image = matrix @ vectors
            scale = image.abs().amax().clamp_min(torch.finfo(kind).tiny)
            moved = ((image / scale).T @ matrix).T
            most = moved.abs().amax()
            healthy = torch.isfinite(most) & (most > 0)
            moved = torch.where(healthy, moved / most, vectors)
            vectors = torch.linalg.qr(moved).Q
        self._vectors[name] = vectors
        # the norms are those of the vectors before the last move: their image is at hand
        norm = _largest(image / scale) * scale
        square = matrix.square().sum() if matrix.numel() < 1 << 16 else matrix.flatten().dot(matrix.flatten())
        return norm, torch.where(norm > 0, square / norm.square(), torch.zeros_like(norm))

    def _start(self, matrix: Tensor, wide: int) -> Tensor:
        import torch

        generator = torch.Generator().manual_seed(self._seed)  # the same start everywhere, and no one's numbers used
        drawn = torch.randn(matrix.shape[1], wide, generator=generator, dtype=torch.float32)
        start: Tensor = torch.linalg.qr(drawn).Q.to(matrix.device, matrix.dtype, non_blocking=True)
        return start


def _largest(image: Tensor) -> Tensor:
    """The largest singular value of a matrix with a few columns, by squaring its Gram matrix again and again."""
    import torch

    gram = (image.T @ image).double() if image.device.type != "mps" else image.T @ image
    power = gram
    for _ in range(_SQUARINGS):
        power = power / power.diagonal().sum().clamp_min(1e-300 if power.dtype == torch.float64 else 1e-30)
        power = power @ power
    # the column of the largest diagonal element is the dominant direction, up to its length
    best = power.index_select(1, power.diagonal().argmax().reshape(1))
    best = best / best.norm().clamp_min(1e-300 if power.dtype == torch.float64 else 1e-30)
    largest: Tensor = (best.T @ gram @ best).clamp_min(0).sqrt().reshape(()).to(image.dtype)
    return largest


def _local(weight: Any) -> Any:
    """The whole of a sharded weight where it can be had by itself; a shard's norm is not the matrix's."""
    gather = getattr(weight, "full_tensor", None)
    return weight if gather is None else gather()
