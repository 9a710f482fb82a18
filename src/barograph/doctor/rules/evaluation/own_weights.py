"""Weights that were to be kept, and are the trained ones themselves.

In:   a figure of the watch: how often a model was given its own weights.
Out:  findings of `OwnWeights`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class OwnWeights(WatchRule):
    """A model is given its own weights: what was kept as an average, or to be put back, was not copied.

    `load_state_dict` was called in the midst of the training with a dictionary in which each trained weight is the very
    tensor of the model, three times or more, at different steps, and there were passes without gradients. To load these
    changes nothing: an average that is kept so is the trained weights, and weights that are to be put back behind an
    evaluation are those that were evaluated. Single loads, and such in which some weights are others, say nothing.

    What to do: `{name: value.clone() for name, value in model.state_dict().items()}`, or `copy.deepcopy`.
    """

    name, family, kind, severity = "own_weights", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/own_weights_loaded"
    needs = ("=model/own_weights_loaded", "=model/passes_without_gradients")
    least = 3
    about = "A model is given its own weights, kept without a copy."
    thresholds: ClassVar = {"loads": (3.0, "between different steps; ours")}
    causes = ("weights kept without a copy: `state_dict()` holds the trained tensors themselves",)
    remedies = ("keep copies: `{name: value.clone() for name, value in model.state_dict().items()}`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        evaluated = watched(history, "passes_without_gradients", place) == 1
        if self.lasts(evaluated, place, self.at["loads"]):
            yield self.finding(
                self._row[0][0], f"`load_state_dict` was given the model's own weights {value:.0f} times: what was "
                "kept was not copied, and to load it changes nothing.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"loads": value, "standing": True},
            )  # fmt: skip


RULES = (OwnWeights,)
