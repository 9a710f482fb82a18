"""What the value says at which a loss stands: whether it ran into it, as where a whole data set is fitted to the end,
and of which outputs it is.

In:   the rows of a loss up to the first that is equal to those behind it; what the watch knows at that step.
Out:  whether its falls became ever smaller until then; whether it is that of margins, or of outputs, that are all 0;
      whether a loss that seems to stand falls by more than chance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy

from barograph.doctor.kernel.cursor import known
from barograph.doctor.kernel.curve import between

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.curve import Tick

REFERENCE = "reference is the policy: both give each text the same log probability, and no margin leaves 0"
COPY_FIRST = "Copy the policy before the first step: `reference = copy.deepcopy(policy).requires_grad_(False)`."
TWICE = "activation twice: a sigmoid, or a ReLU, before a loss that has a sigmoid itself: its outputs run to 0"
ONCE = "give the loss the outputs of the last layer as they are"

_SETTLING = 4  # changes of a loss that runs into its value
_LAST_CHANGE = 1e-3  # the last of them, of all that the loss has lost
_NOTHING, _MUCH = 0.01, 0.05  # of all that the loss has lost, each of the last two falls; of the loss, what it has lost
_EVENLY = 5  # changes of which none is a rise
_ROUNDING = 1e-6  # of the loss, below which changes are in any order
_BY_CHANCE = 1.5  # standard errors of a difference of means; a level that stays passes in nine looks of ten
_EVALUATED = 0.95  # of an evaluation's first loss: below it something was learnt


def has_settled(channel: Channel, row: int, segment: int, value: float) -> bool:
    """Whether the loss came to this value, where it stands from a row on, by falls that were each half of the one
    before, or less; or by two at last that were next to nothing of all that it has lost, as of methods that use a whole
    data set in each step."""
    rows = channel.rows(max(row - 8, channel.start), row + 1)
    values = rows.value[rows.segment == segment]
    falls = values[:-1] - values[1:]
    falls = falls[falls > _ROUNDING * abs(value)]
    if len(values) < 2 or not numpy.isfinite(values).all():
        return False
    lost = float(channel.first) - value
    evenly = bool((values[1:] <= values[:-1])[-_EVENLY:].all())
    if evenly and len(falls) >= 2 and lost >= _MUCH * abs(value) and bool((falls[-2:] <= _NOTHING * lost).all()):
        return True
    if len(falls) < _SETTLING:
        return False
    shrink = bool((falls[-_SETTLING + 1 :] <= falls[-_SETTLING:-1] / 2).all())
    return shrink and bool(falls[-1] <= _LAST_CHANGE * lost)


def is_halves(history: RunHistory, value: float, place: tuple[int, int, int]) -> bool:
    """Whether a loss is a sum of logistic losses of outputs that are all 0, a multiple of ln 2, and weights change."""
    count = round(value / math.log(2))
    return (
        count >= 2 and abs(value - count * math.log(2)) <= 1e-5 * value
        and known(history.channel("model/unchanged"), *place) == 0
    )  # fmt: skip


def is_reference(history: RunHistory, value: float, place: tuple[int, int, int]) -> bool:
    """Whether a loss is that of margins of 0 against a reference, though all weights change."""
    if abs(value - math.log(2)) > 6e-5:
        return False
    referred, unchanged = (known(history.channel(f"model/{name}"), *place) for name in (
        "preference_averaged", "unchanged"))  # fmt: skip
    return referred >= 0 and unchanged == 0


def _evaluated(history: RunHistory, begin: int, tick: Tick) -> bool:
    """Whether the evaluation's loss has fallen and stays there: what is printed of the training may be the last
    batch's."""
    values = between(history.role("eval_loss"), begin, tick.step + 1, tick.segment)
    return len(values) >= 4 and bool(values[-3:].max() < _EVALUATED * values[0])


def still_falls(history: RunHistory, channel: Channel, begin: int, tick: Tick) -> bool:
    """Whether of the rows behind the first quarter the later half lies below the earlier by more than chance: slow
    is not still; or the evaluation's loss has fallen.
    """
    if _evaluated(history, begin, tick):
        return True
    values = between(channel, begin, tick.step + 1, tick.segment)
    part = 3 * len(values) // 8
    if part < 4:
        return False
    early, late = values[-2 * part : -part], values[-part:]
    error = math.sqrt((float(early.var()) + float(late.var())) / (part - 1))
    return float(early.mean() - late.mean()) > _BY_CHANCE * error
