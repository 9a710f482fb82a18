"""Where a stage of a training begins: a round, a task, a phase, as the training itself logs them.

In:   series that number stages (`round`, `task_id`, `al/cycle`), and the steps of the loss.
Out:  whether a stage begins with a step, and whether a training has stages.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory

_NUMBERS = re.compile(
    r"(?:.*[/._-])?(?:round|task|stage|phase|cycle|generation|curriculum|experience)"
    r"(?:[_-]?(?:id|idx|index|number|num|nr))?",
    re.IGNORECASE,
)
_PENALTY = re.compile(r"(?:.*[/._-])?ewc(?:[_-]?(?:loss|penalty|term|reg))?", re.IGNORECASE)
_LONG = 8  # rows of the loss in the stage before: a training that changes at each row has no stages
_NEAR = 2  # rows: the bend of a curve is found a row or two from where it is, and a number may be logged a row early
_NAMED: WeakKeyDictionary[RunHistory, tuple[int, tuple[str, ...]]] = WeakKeyDictionary()


def _numbered(history: RunHistory) -> list[Channel]:
    """The series that tell stages apart: their number; or a penalty for what tasks before need, 0 in the first."""
    known = _NAMED.get(history)
    if known is None or known[0] != len(history.channels):
        names = (name for name in history.channels if _NUMBERS.fullmatch(name) or _PENALTY.fullmatch(name))
        known = _NAMED[history] = len(history.channels), tuple(sorted(names))
    return [channel for name in known[1] if (channel := history.channel(name)) is not None]


def has_stages(history: RunHistory, time: int) -> bool:
    """Whether the training had logged a number of its stages by a time."""
    return any(channel.began[1] <= time for channel in _numbered(history))


def stage_begins(history: RunHistory, step: int, segment: int) -> bool:
    """Whether a stage begins at a step, or within two rows of the loss from it: the whole number that tells stages
    apart changes, behind eight rows or more of the loss with one and the same."""
    channels = _numbered(history)
    loss = history.role("loss") if channels else None
    if loss is None:
        return False
    there = loss.rows()
    steps = there.step[(there.segment == segment) & (there.time <= loss.clock.now)]
    at = int(numpy.searchsorted(steps, step))
    for channel in channels:
        rows = channel.rows()
        here = (rows.segment == segment) & (rows.time <= channel.clock.now) & numpy.isfinite(rows.value)
        number, places = rows.value[here], numpy.searchsorted(steps, rows.step[here])
        number = numpy.sign(number) if _PENALTY.fullmatch(channel.name) else number
        begins = numpy.concatenate([places[:1], places[1:][numpy.diff(number) != 0]])
        near = (numpy.diff(begins) >= _LONG) & (numpy.abs(begins[1:] - at) <= _NEAR)
        if near.any() and (number == numpy.round(number)).all():
            return True
    return False
