"""Whether a loss ran into the value at which it stands, as where a whole data set is fitted to the end.

In:   the rows of a loss up to the first that is equal to those behind it.
Out:  whether its falls became ever smaller until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel

_SETTLING = 4  # changes of a loss that runs into its value
_LAST_CHANGE = 1e-3  # the last of them, of all that the loss has lost
_ROUNDING = 1e-6  # of the loss, below which changes are in any order


def has_settled(channel: Channel, row: int, segment: int, value: float) -> bool:
    """Whether the loss came to this value, where it stands from a row on, by falls that were each half of the one
    before, or less."""
    rows = channel.rows(max(row - 8, channel.start), row + 1)
    values = rows.value[rows.segment == segment]
    falls = values[:-1] - values[1:]
    falls = falls[falls > _ROUNDING * abs(value)]
    if len(falls) < _SETTLING or len(values) < 2 or not numpy.isfinite(values).all():
        return False
    shrink = bool((falls[-_SETTLING + 1 :] <= falls[-_SETTLING:-1] / 2).all())
    return shrink and bool(falls[-1] <= _LAST_CHANGE * (channel.first - value))
