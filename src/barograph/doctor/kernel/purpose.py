"""What a configuration says that a training is for, where that is not to learn what it is given.

In:   the configuration.
Out:  whether a few examples are to be learnt by heart, as a check of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import options_on, setting

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory

_BY_HEART = expression(  # of values, as `overfit_64_rows`, `smoke-overfit`
    r"(?i)(?<![a-z])over[_ -]?fit[_ -](?:(?:on|to|a|the|one|two|few|single|tiny|small|\d+)[_ -])*"
    r"(?:smoke|sanity|check|test|purpose|batch|batches|rows|samples|examples|subset)(?![a-z])|"
    r"(?<![a-z])(?:smoke|sanity|debug)[_ -](?:(?:check|test)[_ -])?over[_ -]?fit(?![a-z])"
)
_UNWANTED = expression(r"(?i)(?<![a-z])(?:prevent|avoid|against|reduce|less|no|not|stop)(?![a-z])")


def overfits_on_purpose(history: RunHistory) -> bool:
    """Whether the configuration says that one batch, or a few, are to be learnt by heart, as a check of the model."""
    names = ("overfit_batches", "overfit_batch", "overfit_one_batch", "overfit_single_batch")
    if any(setting(history, name) not in (None, False, 0) for name in names):
        return True
    said = (value for _, value in options_on(history) if isinstance(value, str))
    return any(_BY_HEART.search(value) and not _UNWANTED.search(value) for value in said)
