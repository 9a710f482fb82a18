"""An optimizer that holds other parameters than those that are trained.

In:   how many parameters of the watched model learn, and how many of them never had a gradient at the optimizer's step.
Out:  findings of `OptimizerElsewhere`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import came_by
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


_NEVER_REDUCED = [
    "gradients never synchronised: `set_requires_gradient_sync(False)`, or `no_sync`, in each backward pass"
]
_REDUCE = (
    "synchronise in the last backward pass before each step: `set_requires_gradient_sync(True)`, outside of `no_sync`"
)
_KEPT = ["gradients not there: they are kept somewhere else, and not in the parameters' `grad`"]
_HAND_OVER = "put the gradients into the parameters' `grad` before the optimizer's step"


class OptimizerElsewhere(WatchRule):
    """The optimizer steps other parameters than those of the watched model, which nothing trains.

    In three looks in a row backward passes have reached the model, and not one of its trained parameters has ever had a
    gradient when an optimizer's step began. Weights that something writes between the steps, as where an optimizer
    holds master copies in fp32, give no finding, nor do gradients that are cleared too early, which have a rule. Where
    the optimizer does hold the model's parameters (`model/optimizer_holds`), gradients stay somewhere else: of a model
    that is sharded they are given to the parameters only when they are reduced over the ranks.

    What to do: make the optimizer last, of the parameters of the model as it is trained: behind `fully_shard`, behind
    a move or conversion that makes new parameters, behind a copy, and behind new layers.
    """

    name, family, kind, severity = "optimizer_elsewhere", "optimizer", "frozen", "critical"
    proves = "training"
    series = "model/without_gradient"
    needs = ("=model/without_gradient", "=model/trained_parameters", "=model/backwards")
    least = 3
    about = "The optimizer holds other parameters than those that are trained."
    thresholds: ClassVar = {"looks": (3.0, "in a row; ours")}
    causes = (
        "optimizer made too early: it holds parameters of before the model was sharded, converted, copied or replaced",
        "the optimizer of another model",
    )
    remedies = ("make the optimizer of `model.parameters()` once the model is what is trained: behind `fully_shard`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        count, reached = (watched(history, name, place) for name in ("trained_parameters", "backwards"))
        other = any(came_by(history.channel(f"model/{name}"), place[1]) for name in ("written", "cleared_gradients"))
        if self.lasts(value == count > 0 and reached > 0 and not other, place, self.at["looks"]):
            holds = watched(history, "optimizer_holds", place) == 1
            sharded = holds and watched(history, "shards", place) > 1
            what = "which it holds: they stay where they are, and" if holds else "it holds others, and"
            yield self.finding(
                self._row[0][0], f"Backward passes reach the model, and none of its {count:.0f} trained parameters has "
                f"had a gradient when the optimizer's step began, {what} nothing is trained.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"parameters": count, "standing": True},
                causes=_NEVER_REDUCED if sharded else _KEPT if holds else list(self.causes),
                remedies=[_REDUCE] if sharded else [_HAND_OVER] if holds else list(self.remedies),
            )  # fmt: skip


RULES = (OptimizerElsewhere,)
