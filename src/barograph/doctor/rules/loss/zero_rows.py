"""How many losses of exactly 0 are enough to tell, by what stands ahead of them and beside.

In:   the loss up to its first zeros, the gradient norm, the margins of preferences.
Out:  a number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from barograph.doctor.kernel.curve import between
from barograph.doctor.rules.rl.preference import margins_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory

CERTAIN = 10.0  # nats of a margin: what is left of the loss is e⁻¹⁰
_HIDDEN, _PREFERRED = 2, 3  # rows of zeros beside norms that are not finite; of a preference
_LARGE, _LOOKED_BACK = 100.0, 4096  # a loss that no rounding makes 0; rows ahead


def least_of_zeros(history: RunHistory, channel: Channel, begin: int, segment: int, least: int) -> int:
    """How many zeros are enough: two where the norms beside them are not finite, or where all losses ahead, the first
    of the run among them, were far too large to be rounded; three where margins explain them, or all ahead were NaN."""
    if _is_hidden(history, channel, begin, segment):
        return _HIDDEN
    ahead = channel.rows(0, begin).value if 0 < begin < _LOOKED_BACK and not channel.start else None
    if ahead is not None and len(ahead) and (ahead > _LARGE).all():
        return _HIDDEN
    if ahead is not None and len(ahead) and numpy.isnan(ahead).all():
        return _PREFERRED
    rows = channel.rows(begin, begin + _PREFERRED)
    if margins_of(history) is None or rows.first != begin or len(rows) < _PREFERRED:
        return least
    history.as_of(rows.time[-1])
    margins = between(margins_of(history), int(rows.step[0]), int(rows.step[-1]) + 1, segment)
    history.as_of(None)
    return _PREFERRED if len(margins) >= _PREFERRED and margins.min() > CERTAIN else least


def _is_hidden(history: RunHistory, channel: Channel, begin: int, segment: int) -> bool:
    """Whether the norm is not finite in the first rows of a stretch of zeros: what was not finite is logged as 0."""
    rows = channel.rows(begin, begin + _HIDDEN)
    if rows.first != begin or len(rows) < _HIDDEN or history.role("norm") is None:
        return False
    history.as_of(rows.time[-1])
    norms = between(history.role("norm"), int(rows.step[0]), int(rows.step[-1]) + 1, segment, finite=False)
    history.as_of(None)
    return len(norms) >= _HIDDEN and not numpy.isfinite(norms).any()
