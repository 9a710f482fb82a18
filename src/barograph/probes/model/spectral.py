"""Spectral norms of weight matrices by a warm-started conjugate-gradient iteration of four vectors.

In:   named weights of two dimensions or more; one with more is taken as (first, the rest), as in the speedrun-mup
      metrics analysis.
Out:  for each its largest singular value and its stable rank (Frobenius norm² / spectral norm²), at one
      read of the weights from memory an update once the vectors have settled.

For each matrix four right vectors are kept: the best so far, the residual, the direction of the last improvement, and
the second best, which takes over when another direction grows past. A pass is LOBPCG's (Knyazev, SIAM J. Sci. Comput.
23, 2001) for WᵀW: the norm is the largest Ritz value of the four on the weights as they are now, so it comes from
below. What differs is the residual: it is taken at a point told in advance, the vectors mixed as they were mixed last
time, so that W and Wᵀ are applied to a part of the matrix while it is in the cache, and the matrix crosses the memory
bus once instead of twice. The residual also says how far off that point is: on a CPU, where reading it costs nothing,
matrices that moved too much get more passes at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

_VECTORS = 4
_SETTLED = 0.01  # residual over eigenvalue at which a matrix needs no further pass
_PASSES = 8  # at most, an update
_FIRST_PASSES = 30  # at most, at a matrix's first update, whose start is random
_BLIND_PASSES = 3  # an update, on a device that would have to be waited for
_FOREIGN = 0.5  # residual over eigenvalue at an update's first pass: these vectors are of another matrix
_SQUARINGS = 10  # of a small Gram matrix: its largest direction, without asking the device for a decomposition
_LEAST_SCALE = 1e-37  # its inverse is a number of 32 bits
_LEAST_SQUARE = 1e-30  # below it 32 bits lose what is added
_PART = 1 << 20  # numbers of a matrix at a time on the CPU: they stay in its cache between W and Wᵀ


class Spectral(NamedTuple):
    """Columns, one value a matrix, on the device of the weights."""

    names: tuple[str, ...]
    norms: Tensor
    stable_ranks: Tensor

    def summary(self) -> dict[str, float]:
        """speedrun-mup's `spectral_norm_max`, `_mean` and `_std` (over the matrices, n - 1); reads from the device."""
        norms = self.norms.double()
        spread = float(norms.std()) if len(norms) > 1 else 0.0
        return {
            "spectral_norm_max": float(norms.max()),
            "spectral_norm_mean": float(norms.mean()),
            "spectral_norm_std": spread,
        }


def matrices(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Those that have a spectral norm: floating point, two dimensions or more, dense, not empty, on a real device."""
    import torch

    return {
        name: weight
        for name, weight in weights.items()
        if not weight.is_nested
        and weight.layout is torch.strided
        and weight.dim() >= 2
        and weight.numel()
        and weight.is_floating_point()
        and not weight.is_meta
    }


class _Followed(NamedTuple):
    """What is kept of a matrix of n columns."""

    vectors: Tensor  # (4 or n, n), orthonormal: the best, the residual, the last direction, the second best
    mixture: Tensor  # (4 or n,): of the vectors, where the residual is taken; of length one
    scale: Tensor  # about the norm, so that squares neither overflow nor vanish
    rows: int  # of the matrix


class SpectralNorms:
    """Follows the spectral norms of a set of weights. `update` moves each matrix's vectors and gives the norms.

    The weights are given at each update, so that parameters may be replaced; a matrix whose shape or device
    has changed begins anew. A matrix with NaN or infinity has a norm of NaN, and is followed on when it is healthy.
    """

    def __init__(self, seed: int = 0):
        self._seed = seed
        self._followed: dict[str, _Followed] = {}

    @property
    def bytes(self) -> int:
        """Memory held at present."""
        return sum(part.numel() * part.element_size() for kept in self._followed.values() for part in kept[:3])

    def update(self, weights: Mapping[str, Any]) -> Spectral:
        """The norms of these weights. Nothing waits for a device."""
        import torch

        by_device: dict[Any, dict[str, Tensor]] = {}
        for name, weight in matrices(weights).items():
            whole = _local(weight).detach()
            by_device.setdefault(whole.device, {})[name] = whole.reshape(len(whole), -1)
        before, self._followed = self._followed, {}
        found: dict[str, tuple[Tensor, Tensor]] = {}
        with torch.no_grad():
            for group in by_device.values():
                passes = {}
                for name, matrix in group.items():
                    kept = before.get(name)
                    passes[name] = _PASSES
                    if kept is None or not _fits(kept, matrix):
                        kept, passes[name] = self._start(matrix), _FIRST_PASSES
                    self._followed[name] = kept
                found |= self._move(group, passes)
            if not found:
                return Spectral((), torch.empty(0), torch.empty(0))
            device = next(iter(by_device))
            norms = torch.stack([norm.to(device) for norm, _ in found.values()])
            squares = torch.stack([square.to(device) for _, square in found.values()])
            ranks = torch.where(norms == 0, torch.zeros_like(norms), squares / norms.square())
            return Spectral(tuple(found), norms.float(), ranks.float())

    def _move(self, group: Mapping[str, Tensor], passes: Mapping[str, int]) -> dict[str, tuple[Tensor, Tensor]]:
        """Norm and sum of squares of matrices of one device, after the passes that each needs."""
        import torch

        found: dict[str, tuple[Tensor, Tensor]] = {}
        moving, number = dict(group), 0
        while moving:
            number += 1
            known = {name: square for name, (_, square) in found.items()}
            looks = [_look(matrix, self._followed[name], known.get(name)) for name, matrix in moving.items()]
            offs = torch.stack([look.off for look in looks])
            before = [self._followed[name] for name in moving]
            norms, following = _follow(before, looks, offs)
            for name, look, norm, kept in zip(moving, looks, norms, following, strict=True):
                self._followed[name], found[name] = kept, (norm, look.square)
            if norms.device.type == "cpu":
                off = dict(zip(moving, offs.tolist(), strict=True))
                if number == 1:
                    passes = {name: _FIRST_PASSES if off[name] > _FOREIGN else passes[name] for name in moving}
                moving = {name: m for name, m in moving.items() if off[name] > _SETTLED and number < passes[name]}
            elif number >= _BLIND_PASSES:
                moving = {name: m for name, m in moving.items() if number < passes[name] == _FIRST_PASSES}
        return {name: found[name] for name in group}

    def _start(self, matrix: Tensor) -> _Followed:
        import torch

        columns = matrix.shape[1]
        count, kind = min(_VECTORS, columns), _kind(matrix)
        generator = torch.Generator().manual_seed(self._seed)  # the same start everywhere, and no one's numbers used
        drawn = torch.randn(columns, count, generator=generator, dtype=torch.float32)
        vectors = torch.linalg.qr(drawn).Q.T.contiguous().to(matrix.device, kind, non_blocking=True)
        largest = matrix.to(kind).abs().amax()
        usable = torch.isfinite(largest) & (largest > 0)
        largest = largest.to(_exact(matrix)).clamp_min(_LEAST_SCALE)
        mixture = torch.zeros(count, device=matrix.device, dtype=kind)
        mixture[:1].fill_(1)
        return _Followed(vectors, mixture, torch.where(usable, largest, torch.ones_like(largest)), len(matrix))


class _Look(NamedTuple):
    gram: Tensor  # (4, 4) of W's images of the vectors, over scale²; rows and columns that are not there are zero
    image: Tensor  # (n,) WᵀW of the mixture, over scale²
    off: Tensor  # the mixture's residual over its Rayleigh quotient
    square: Tensor  # the sum of the weights' squares


def _look(matrix: Tensor, kept: _Followed, square: Tensor | None) -> _Look:
    """All that a pass needs of a matrix, in one read of it. `square`: the sum of squares, if it is known."""
    import torch

    rows, columns = matrix.shape
    kind, exact = _kind(matrix), _exact(matrix)
    scaled = (kept.vectors / kept.scale).to(kind).T
    count = scaled.shape[1]
    seen = torch.empty(rows, count, device=matrix.device, dtype=kind)
    image = torch.zeros(columns, device=matrix.device, dtype=kind)
    squares = []
    length = max(1, _PART // columns) if matrix.device.type == "cpu" else rows
    parts = matrix.split(length)  # type: ignore[no-untyped-call]
    for part, out in zip(parts, seen.split(length), strict=True):  # type: ignore[no-untyped-call]
        part = part.to(kind)  # half precision: the products would overflow or lose what counts
        torch.mm(part, scaled, out=out)
        image.addmv_(part.T, (out @ kept.mixture / kept.scale).to(kind))
        if square is None:
            flat = part.reshape(-1)
            squares.append(flat.dot(flat))
    if square is None:
        square = torch.stack(squares).to(exact).sum()
        if matrix.device.type == "cpu" and (square < _LEAST_SQUARE or square == math.inf):  # beyond 32 bits
            square = torch.stack([part.double().square().sum() for part in parts]).sum()
    precise = seen.to(exact)
    gram = torch.zeros(_VECTORS, _VECTORS, device=matrix.device, dtype=exact)
    gram[:count, :count] = precise.T @ precise
    quotient = torch.linalg.vector_norm(precise @ kept.mixture.to(exact)).square()
    off = (image.dot(image) / quotient.square() - 1).clamp_min(0).sqrt()
    return _Look(gram, image, off, square)


def _follow(before: Sequence[_Followed], looks: Sequence[_Look], offs: Tensor) -> tuple[Tensor, list[_Followed]]:
    """The norms that a pass found, and what is kept after it."""
    import torch

    grams = torch.stack([look.gram for look in looks])
    best, values = _leading(grams)
    second, _ = _leading(grams - values.reshape(-1, 1, 1) * best.unsqueeze(2) * best.unsqueeze(1))
    scales = torch.stack([kept.scale for kept in before])
    norms = values.sqrt() * scales
    healthy = torch.isfinite(norms) & (norms > 0)
    going = healthy & torch.isfinite(offs)
    moved = torch.cat([torch.zeros_like(best[:, :1]), best[:, 1:]], 1)
    ways = torch.stack([best, moved, second], 1)
    mixtures = torch.cat([best[:, :1].clamp_min(0.5), best[:, 1:3], torch.zeros_like(best[:, 3:])], 1)
    mixtures = mixtures / mixtures.norm(dim=1, keepdim=True)
    scales = torch.where(healthy, norms.clamp_min(_LEAST_SCALE), scales)
    following = []
    for kept, look, way, mixture, scale, go in zip(before, looks, ways, mixtures, scales, going, strict=True):
        count, kind = len(kept.vectors), kept.vectors.dtype
        one, change, two = way[:, :count].to(kind) @ kept.vectors
        found = torch.linalg.qr(torch.stack([one, look.image, change, two][:count], 1))
        signs = torch.where(found.R.diagonal() < 0, -1.0, 1.0).to(kind)  # or the mixture would mean another point
        following.append(
            _Followed(
                torch.where(go, (found.Q * signs).T, kept.vectors).contiguous(),
                torch.where(go, mixture[:count].to(kind), kept.mixture),
                scale,
                kept.rows,
            )
        )
    return norms, following


def _leading(grams: Tensor) -> tuple[Tensor, Tensor]:
    """The leading eigenvectors (k, 4), their first element not negative, and eigenvalues (k,) of small Gram matrices.

    By squaring each again and again: a decomposition would wait for the device.
    """
    import torch

    tiny = torch.finfo(grams.dtype).tiny
    power = grams
    for _ in range(_SQUARINGS):
        power = power / power.abs().amax((1, 2), keepdim=True).clamp_min(tiny)
        power = power @ power
    # the column of the largest diagonal element is the leading direction, up to its length
    place = power.diagonal(dim1=1, dim2=2).argmax(1).reshape(-1, 1, 1).expand(-1, grams.shape[1], 1)
    best = power.gather(2, place)
    best = best / best.norm(dim=1, keepdim=True).clamp_min(tiny)
    best = torch.where(best[:, :1] < 0, -best, best)
    values = (best.mT @ grams @ best).clamp_min(0).reshape(-1)
    return best.squeeze(2), values


def _fits(kept: _Followed, matrix: Tensor) -> bool:
    same = kept.vectors.device == matrix.device and kept.vectors.dtype == _kind(matrix)
    return same and (kept.rows, kept.vectors.shape[1]) == matrix.shape


def _kind(matrix: Tensor) -> Any:
    import torch

    return matrix.dtype if matrix.dtype in (torch.float64, torch.float32) else torch.float32


def _exact(matrix: Tensor) -> Any:
    import torch

    return torch.float32 if matrix.device.type == "mps" else torch.float64


def _local(weight: Any) -> Any:
    """The whole of a sharded weight where it can be had by itself; a shard's norm is not the matrix's."""
    gather = getattr(weight, "full_tensor", None)
    return weight if gather is None else gather()
