"""With which weights logged parts are in a logged sum.

In:   rows of a sum, and of its parts.
Out:  their weights, where the parts add up to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray


def weights_of(parts: NDArray[Any], whole: NDArray[Any], exact: float) -> NDArray[Any] | None:
    """The weight of each part [rows, parts] in a sum [rows]; 0 where it may be rounding. None where a value is not
    finite, the parts say too little, or a row is further from the sum than this part of how the sum varies."""
    if not (numpy.isfinite(whole).all() and numpy.isfinite(parts).all()):
        return None
    scale = parts.std(0)
    scale[scale == 0] = 1.0
    weights, _, rank, _ = numpy.linalg.lstsq(parts / scale, whole, rcond=1e-9)
    off = float(numpy.abs(parts / scale @ weights - whole).max())
    if rank < parts.shape[1] or not off <= exact * float(whole.std()):
        return None
    found: NDArray[Any] = weights / scale * (numpy.abs(weights) > 10 * off)
    return found
