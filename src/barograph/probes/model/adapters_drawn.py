"""Whether the second factors of adapters are as they were drawn, and not trained.

In:   the two factors of each adapter.
Out:  `as_drawn`: 1 or 0, computed on the device; nothing waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_DRAWN = 1024  # elements of the second factors, at least, that say how they were drawn
_DEVIATIONS = 4.0  # of a size that is drawn


def as_drawn(seconds: list[Tensor], firsts: list[Tensor]) -> Tensor | None:
    """Whether the second factors are random numbers of one size, in all layers and in all columns: 1 or 0. None where
    there are too few to say. Factors that were trained have columns that resemble each other, and other sizes."""
    import torch

    if sum(item.numel() for item in seconds) < _DRAWN or len(seconds) < 2:
        return None
    home, fine = seconds[0].device, []
    resembles, pairs = [], 0.0  # how much columns resemble each other, squared, as a sum over pairs of them
    by_shape: dict[Any, list[Tensor]] = {}
    for item, first in zip(seconds, firsts, strict=True):
        tall = (item if item.shape[0] >= item.shape[1] else item.T).float()
        deviation = tall.square().mean().sqrt()
        columns = tall.square().mean(0).sqrt() / deviation
        shares = torch.nn.functional.normalize(tall, dim=0)
        alike = (shares.T @ shares).fill_diagonal_(0.0)
        count, rank = tall.shape
        mine = rank * (rank - 1) / 2
        both = alike.square().sum() / 2 * count  # of random numbers 1 for each pair, with a variance of 2
        resembles.append(both.to(home))
        pairs += mine
        even = ((columns - 1).abs() <= _DEVIATIONS / (2 * count) ** 0.5).all()
        flat = tall.pow(4).mean() / deviation**4
        kurtosis = (flat < 3 + _DEVIATIONS * (24 / tall.numel()) ** 0.5) & (flat > 1.5)
        unlike = both <= mine + _DEVIATIONS * (2 * mine) ** 0.5 + _DEVIATIONS
        within = unlike & (tall.mean().abs() <= _DEVIATIONS * deviation / tall.numel() ** 0.5)
        fine.append((deviation > 0) & even & kurtosis & within & (first != 0).any())
        by_shape.setdefault(tuple(item.shape), []).append(deviation.to(home))
    if pairs:
        whole = torch.stack(resembles).sum()
        slack = _DEVIATIONS * (2 * pairs) ** 0.5
        fine.append((whole >= max(pairs - slack, 0.1 * pairs)) & (whole <= pairs + slack))
    for shape, deviations in by_shape.items():
        sizes = torch.stack(deviations)
        fine.append((sizes.amax() / sizes.amin() - 1) <= 2 * _DEVIATIONS / (2 * shape[0] * shape[1]) ** 0.5)
    return torch.stack([one.to(home) for one in fine]).all().float()
