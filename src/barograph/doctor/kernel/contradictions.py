"""Causes that what was measured rules out.

In:   a cause that a finding names without proof, and the run up to now.
Out:  whether the watch has seen that it can't be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy

from barograph.doctor.kernel import depth
from barograph.doctor.kernel.curve import between
from barograph.doctor.kernel.facts import excluded_causes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_LOOKS = 3  # that have to agree
_KNOWN, _SOME = 32, 8  # looks before a finding, at most and at least, that show what is usual
_MEAN, _DEVIATIONS = 3.0, (0.1, 5.0)  # of inputs that were normalised, or need not be
_STEP = 1e-3  # of a layer's weights, the median one: a step of the usual size, by the stability guide
_EPSILON = 1e-7  # of Adam: no larger than torch's default, or ten times it
_OF_EVALUATION = "those of the evaluation"
_EVEN = (0.01, 100.0)  # the first block's gradient over the last one's


class _Measured:
    """What the watch has recorded of a segment, and what of that since a finding began."""

    def __init__(self, history: RunHistory, finding: Finding):
        self._history, self._finding = history, finding

    def all(self, name: str) -> NDArray[Any]:
        return between(self._history.channel(f"model/{name}"), 0, 1 << 62, self._finding.segment)

    def since(self, name: str) -> NDArray[Any]:
        return between(self._history.channel(f"model/{name}"), self._finding.step, 1 << 62, self._finding.segment)

    def never(self, name: str) -> bool:
        """Whether it was looked at since the finding began, and has always been 0."""
        return len(self.since(name)) > 0 and not self.all(name).any()

    def has_changed(self, name: str) -> bool:
        """Whether a figure is beyond all that it was before the finding, by the width of that, at its first looks."""
        history, finding = self._history, self._finding
        channel = history.channel(f"model/{name}")
        earlier = between(channel, 0, finding.step, finding.segment)[-_KNOWN:]
        during = between(channel, finding.step, finding.last_step + 1, finding.segment)[:_LOOKS]
        if len(earlier) < _SOME or len(during) < 2:
            return False
        low, high = float(earlier.min()), float(earlier.max())
        return bool((during > high + (high - low)).all() or (during < low - (high - low)).all())

    def takes_numbers(self) -> bool:
        """Whether the model is given floating-point numbers, and no tokens."""
        return len(self.all("input_std")) > 0


def _normalised(seen: _Measured) -> bool:
    for of in ("input", "eval_input"):
        mean, deviation = seen.all(f"{of}_mean"), seen.all(f"{of}_std")
        if of == "input" and len(deviation) < _LOOKS:
            return False
        usual = ((deviation > _DEVIATIONS[0]) & (deviation < _DEVIATIONS[1])).all()
        if not (usual and (abs(mean) < _MEAN).all()):
            return False
    return True


def _clips(seen: _Measured) -> bool:
    return bool((seen.since("clip_coefficient") < 1 - 1e-3).any())


def _one_by_one(seen: _Measured) -> bool:
    """Whether no token batch had an example that was there before. Pictures are drawn with changes."""
    return len(seen.since("rows_again")) >= _LOOKS and seen.never("rows_again") and not seen.takes_numbers()


def _moves(seen: _Measured) -> bool:
    steps = seen.since("update_p50")
    return len(steps) > 0 and float(numpy.median(steps)) >= _STEP


def _no_modes(seen: _Measured) -> bool:
    """Whether the model has neither dropout nor batch norm, so that its mode changes nothing."""
    return len(seen.all("passes")) >= _LOOKS and not len(seen.all("training"))


def _in_full(seen: _Measured) -> bool:
    """Whether neither the weights nor the output are of 16 bits, and nothing scales the loss."""
    known = seen.never("half_parameters") or not seen.all("half_parameters").any()
    return known and len(seen.all("half_output")) > 0 and not seen.all("half_output").any()


def _all_trained(seen: _Measured) -> bool:
    """Whether nothing is frozen, and layers have moved: of those without gradients it is not asked."""
    frozen, moved = seen.all("frozen_parameters"), seen.since("update_p5")
    whole = len(frozen) > 0 and not frozen.any() and seen.never("unchanged")
    return whole and len(moved) > 0 and bool((moved > 0).all())


def _reaches_back(seen: _Measured) -> bool:
    """Whether the first block's gradient is about as large as the last's, and no half of the layers has next to none,
    as in a part of the model that has no blocks."""
    flow, (middle, high) = seen.since("flow_first_last"), (seen.since(f"flow_{name}") for name in ("p50", "p95"))
    if min(len(middle), len(high)) and float(numpy.median(middle)) < depth.LAYERS * float(numpy.median(high)):
        return False
    return len(flow) > 0 and bool(_EVEN[0] < float(numpy.median(flow)) < _EVEN[1])


def _other_inputs(seen: _Measured) -> bool:
    """Whether what the model is given is not what it was before the finding, so that not the labels alone changed."""
    return any(seen.has_changed(name) for name in ("token_mean", "token_std", "input_mean", "input_std"))


_RULED_OUT: dict[str, Callable[[_Measured], bool]] = {
    "inputs not normalised": _normalised,
    "clipping off": _clips,
    "zero_grad missing": lambda seen: seen.never("stale_gradients"),
    "softmax twice": lambda seen: seen.never("softmax_twice") or bool(seen.all("target_std").any()),
    "fp16 overflow": _in_full,
    "learning rate too low": _moves,
    "tokenizer mismatch": _Measured.takes_numbers,
    "evaluation mode left on": _no_modes,
    "overfitting": _one_by_one,
    "data exhausted": _one_by_one,
    "layer frozen": _all_trained,
    "gradients vanish": _reaches_back,
    "labels shifted": _other_inputs,
    "labels shuffled": _other_inputs,
    "epsilon too big": lambda seen: 0 < float(seen.all("epsilon").max(initial=0.0)) <= _EPSILON,
    "weight decay too high": lambda seen: seen.never("decay_share"),
}
"""By the words of a cause before its colon: what rules it out."""


def ruled_out(history: RunHistory) -> Callable[[Finding, str, bool], bool]:
    """Whether a finding's cause can't be. Asked with the cause, and whether the finding proves it: what is proven
    stays, but for what the configuration excludes."""
    excluded = excluded_causes(history.facts)

    def impossible(finding: Finding, cause: str, proven: bool) -> bool:
        label = cause.partition(":")[0].strip()
        if label in excluded:
            return True
        look, seen = None if proven else _RULED_OUT.get(label), _Measured(history, finding)
        if look is _normalised and _OF_EVALUATION in cause and not len(seen.all("eval_input_std")):
            return False  # another model is evaluated, and nobody has seen what it is given
        return look is not None and bool(look(seen))

    return impossible
