"""Why a model learns nothing, the likeliest first.

In:   what is known of weights, rates, frozen parts, and of the first layers' gradients.
Out:  causes and remedies for `NotLearning`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from barograph.doctor.kernel import depth
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.cursor import exp, numeric_setting, param_norm_of, setting
from barograph.doctor.kernel.curve import Tick, between
from barograph.doctor.rules.data.regression import not_normalised
from barograph.doctor.rules.loss.settled import COPY_FIRST, REFERENCE, is_reference

if TYPE_CHECKING:
    from numpy.typing import NDArray


def advice(causes: list[str], rates: NDArray[Any]) -> tuple[list[str], list[str]]:
    """Causes and remedies that don't contradict each other: a rate is raised where it may be too low."""
    remedies = ["Check that a step changes the weights, and that labels match inputs: try to overfit one batch."]
    if causes[0] == REFERENCE:
        return causes, [COPY_FIRST, *remedies]
    if not len(rates) or causes[0].startswith("learning rate too high"):
        return causes, remedies
    if causes[0].startswith("weight decay too high"):
        return causes, ["Set the weight decay to 0.01 to 0.1, and see whether the loss falls.", *remedies]
    kept = [cause for cause in causes if not cause.startswith("learning rate too high")]
    return kept, [*remedies, f"Raise the learning rate; the highest so far was {rates.max():.2g}."]


def suspects(history: RunHistory, tick: Tick) -> list[str]:
    """Why nothing is learnt, the likeliest first: that a policy is its own reference, that most of the model is frozen
    and nobody asked for it, that the first layers get no gradient, else what the weights say.
    """
    causes = _by_weights(history, tick)
    if depth.vanishes(history, tick.step, tick.time, tick.segment):
        causes = [depth.CAUSE, *(cause for cause in causes if cause != "gradients vanish")]
    if is_reference(history, exp(tick.level), (tick.step, int(tick.time), tick.segment)):
        return [REFERENCE, *causes]
    share = between(history.channel("model/frozen_share"), 0, tick.step + 1, tick.segment)
    adapters = between(history.channel("model/trained_adapters"), 0, tick.step + 1, tick.segment)
    if not len(share) or share[-1] < _MOSTLY or adapters.any() or setting(history, *_HEAD_ONLY):
        return causes
    return ["layer frozen: most of the model is not trained", *causes]


_MOSTLY = 0.5  # of all elements
_DECAYED = 0.01  # of the weights, in each step: rate times decay, which is 1e-3 at most where something is learnt
_HEAD_ONLY = ("freeze_backbone", "freeze_encoder", "freeze_base_model", "freeze_base", "freeze_feature_extractor",
              "linear_probe", "linear_probing", "head_only", "train_head_only", "only_train_head")  # fmt: skip
"""Options by which a training of the head alone is asked for."""


def _by_weights(history: RunHistory, tick: Tick) -> list[str]:
    """Why nothing is learnt, the likeliest first, by how far the weights were moved.

    Updates that are not there, or far below the stability guide's band of 1e-3 to 1e-2 of the weights, can't have
    learnt anything; weights that have grown by a fifth, though nothing was learnt, are thrown about; weights that
    shrank were decayed. Where updates are as they should be, it is the inputs, if nobody normalised them, or the
    labels.
    """
    still, low, high = (
        "optimizer holds other parameters: no weight changes",
        "learning rate too low",
        "learning rate too high: updates undo each other",
    )
    rest = ["labels shuffled: nothing can be learnt", "gradients vanish", "bad initialisation", "epsilon too big"]
    updates = between(history.channel("model/update_p50"), 0, tick.step + 1, tick.segment)
    norms = between(param_norm_of(history), 0, tick.step + 1, tick.segment)
    watched = history.channel("model/flow_p50") is not None or history.channel("model/grad_norm_before") is not None
    rates = between(history.role("lr"), 0, tick.step + 1, tick.segment)
    grown = float(norms.max() / norms[0]) if len(norms) and norms[0] > 0 else 1.0
    shrunk = float(norms[-1] / norms[0]) if len(norms) and norms[0] > 0 else 1.0
    if not len(updates) and not len(norms):
        decayed = numeric_setting(history, "weight_decay", "wd") * float(rates.max(initial=0.0))
        if decayed >= _DECAYED:
            return [f"weight decay too high: it takes {100 * decayed:.2g}% of the weights in each step", still, *rest]
        first = [still, low] if watched or not len(rates) or rates.max() >= 1e-6 else [low, still]
        return [*first, *rest, high]
    if shrunk < 0.5:
        return ["weight decay too high: the weights have shrunk", high, *rest]
    if grown > 1.2 or (len(updates) and float(numpy.median(updates)) > 0.1):
        return [high, "no warm-up", *rest]
    if len(updates) and float(updates.max()) < 1e-3:
        return [low, *rest[1:], rest[0], still]
    if not len(updates) and len(norms) > 1 and abs(grown * shrunk - 1) < 1e-3:
        return [low, still, *rest]
    given = not_normalised(history, (tick.step, int(tick.time), tick.segment))
    return [*([f"inputs not normalised: {given}"] if given else []), *rest[:1], high, *rest[1:], low]
