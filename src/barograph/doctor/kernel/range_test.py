"""Tests of a range of learning rates: a sweep that ends where the loss blows up, which is what it is made for.

In:   the learning rates of a run up to a finding.
Out:  that finding, as an info finding with the rate as its cause, where the rate rises by one factor at each row.

The sweep is Smith's (https://arxiv.org/abs/1506.01186), in the exponential form of fastai's and Lightning's finders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy

from barograph.doctor.kernel.curve import between

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_ROWS = 16
_RANGE = 1e4  # times the first rate: finders go through eight decades, a warm-up by one factor through two or three
_STRAIGHT = 0.02  # of the range, in logarithms: how far a rate may lie from the line
_RISES = "; the learning rate rises by one factor at each row, as in a test of a range"
_OUTCOMES = frozenset({
    "activations", "attention", "dead", "divergence", "exploding", "learning_rate", "logits", "nonfinite",
    "not_learning", "plateau", "saturated", "spike", "update_ratio", "vanishing", "weight_growth",
})  # fmt: skip
"""Kinds of findings that a rate far too low or far too high leads to."""


def tempered(finding: Finding, history: RunHistory) -> Finding:
    """The finding itself, or what is left of it in a test of a range of rates."""
    if finding.severity == "info" or finding.kind not in _OUTCOMES:
        return finding
    rates = between(history.role("lr"), 0, max(finding.step, finding.found) + 1, finding.segment)
    if not _sweeps(rates):
        return finding
    here = between(history.role("lr"), 0, finding.step + 1, finding.segment)
    rate = float(here[-1] if len(here) else rates[0])
    cause = "learning rate too high: a test of a range of rates, which ends where the loss blows up"
    return msgspec.structs.replace(
        finding, severity="info", causes=[cause, *finding.causes],
        message=finding.message.rstrip(".") + _RISES,
        remedies=[f"Train with a learning rate well below {rate:.2g}, where this began."],
    )  # fmt: skip


def _sweeps(rates: NDArray[numpy.float64]) -> bool:
    """Whether rates rise by one factor from row to row, ten thousandfold or more in all."""
    if len(rates) < _ROWS or not (rates > 0).all() or not rates[-1] >= _RANGE * rates[0]:
        return False
    logs = numpy.log(rates)
    line = numpy.linspace(logs[0], logs[-1], len(logs))
    return bool(numpy.abs(logs - line).max() < _STRAIGHT * (logs[-1] - logs[0]))
