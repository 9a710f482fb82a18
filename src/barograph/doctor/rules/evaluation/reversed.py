"""Targets of an evaluation that have the other sign than those of the training.

In:   losses of both, and what the watch has seen of a mean square: sizes of targets and outputs.
Out:  findings of `ReversedTargets`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import came_by, known, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.data.targets import others_scale

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class ReversedTargets(WatchRule):
    """The evaluation's targets have the other sign than the training's.

    A mean square is the mean square of the outputs, and that of the targets, less twice the mean of their products.
    The watch knows the first two (`model/output_rms`, `model/target_std`, `model/target_mean`), so each loss gives the
    products. In the training they are a quarter of the targets' mean square or more, so that something is learnt; in
    the evaluation they are the same below 0, to 15%, in four looks in a row, with three evaluations or more. Outputs
    that have nothing to do with the targets, as those of a model that knows its examples by heart, have products of
    about 0. Nothing is said where the loss is a multiple of the mean square, or the evaluation's inputs are of another
    scale.

    What to do: compute the targets of both by one function.
    """

    name, family, kind, severity = "reversed_targets", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/output_rms"
    needs = ("=model/output_rms", "=model/target_std", "=model/square_weight", "loss", "eval_loss")
    least = 4
    about = "The evaluation's targets have the other sign than the training's."
    thresholds: ClassVar = {
        "learnt": (0.25, "of the targets' mean square; ours"),
        "same": (0.15, "of the training's products; ours"),
        "looks": (4.0, "in a row; ours"),
        "evaluations": (3.0, "among them; ours"),
    }
    causes = ("sign reversed: the evaluation's targets have the other sign than the training's",)
    remedies = ("compute the targets of both by one function: `b - a` in one place, `a - b` in the other",)

    def begin(self) -> None:
        self._since: list[Place] = []
        self._evaluations: set[float] = set()

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        evaluation, loss = history.role("eval_loss"), history.role("loss")
        if loss is None or not came_by(evaluation, place[1]):
            return
        train, theirs = usual(loss, *place, 16), known(evaluation, *place)
        size = math.hypot(*(usual(history.channel(f"model/target_{name}"), *place, 4) for name in ("std", "mean")))
        other = usual(history.channel(self.series), *place, 4)
        size *= size  # a power would raise where this is infinite
        whole = size + other * other
        ours, products = whole - train, whole - theirs  # twice the mean products
        holds = (
            abs(watched(history, "square_weight", place) - 1) < 0.01
            and ours >= 2 * self.at["learnt"] * size > 0
            and abs(products / ours + 1) <= self.at["same"]
            and not others_scale(history, place)
        )
        if not holds:
            self.begin()
            return
        self._since.append(place)
        self._evaluations.add(theirs)
        enough = len(self._since) >= self.at["looks"] and len(self._evaluations) >= self.at["evaluations"]
        if enough and self.first(place[2]):
            yield self.finding(
                0, f"The evaluation's mean square of {theirs:.4g} says that outputs and targets have a mean product of "
                f"{products / 2:.3g}, where that of the training is {ours / 2:.3g}: the same with the other sign.",
                found=place[0], segment=place[2], confidence=0.95,
                evidence={"evaluation": rounded(theirs), "train": rounded(train), "standing": True},
            )  # fmt: skip


RULES = (ReversedTargets,)
