"""An average of the weights that is evaluated, and lags far behind what is trained.

In:   evaluations, the training at those times, and whether the watched model itself was evaluated.
Out:  findings of `AverageBehind`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import other_model
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.evaluation.evaluations import EvaluationPoint, Walker

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class AverageBehind(Walker):
    """Another model is evaluated than the one that is trained, and it is far behind.

    The watched model has had no pass without gradients, though evaluations are logged: a copy is evaluated, as an
    average of the weights is. In four evaluations in a row, behind the first four, its loss falls or stays within a
    five-hundredth, is half as large again as the training's or more, and is one that the training had passed in the
    first quarter of the steps. Where it is at nine tenths of the training's first loss or above in all evaluations, a
    difference of a twentieth counts as none: these weights are as they were drawn. An average with decay d holds the
    weights of the last 1 / (1 − d) steps: 10,000 for 0.9999.

    What to do: a decay that fits the length of the training, or one that grows: min(d, (1 + t) / (10 + t)).
    """

    name, kind, severity = "average_behind", "eval", "warning"
    needs = ("eval_loss", "loss", "=model/passes")
    least = 8
    about = "What is evaluated is far behind what is trained."
    sources = ()
    thresholds: ClassVar = {
        "worse": (1.5, "evaluation over training loss; ours"),
        "share": (0.25, "of the steps, in which the training had that loss; ours"),
        "still": (0.002, "of the evaluation before; ours"),
        "drawn": (0.9, "of the training's first loss: weights as they were drawn; ours"),
        "near": (0.05, "of the evaluation before, of such weights; ours"),
        "evaluations": (4.0, "in a row, and that many before them; ours"),
    }
    causes = ("averaged weights behind: their decay is too slow for this training, or they are seldom updated",)
    remedies = (
        "choose a decay d of the average with 1 / (1 − d) steps well below the training's, or let it grow: "
        "min(d, (1 + t) / (10 + t))",
        "check that the average is updated at each step, buffers included, and begins as a copy of the weights",
    )

    def reset(self) -> None:
        super().reset()
        self._waits: tuple[EvaluationPoint, int] | None = None

    def begin(self) -> None:
        self._points: list[EvaluationPoint] = []
        self._waits, self._still, self._drawn = None, True, True
        self._behind, self._lowest = 0, math.inf  # lowest: training loss of the points

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        before = self._points[-1] if self._points else None
        passed = point.step
        if self._lowest <= point.value:  # the points that are kept may begin after the lowest
            passed = next((one.step for one in self._points if one.train <= point.value), point.step)
        self._lowest = min(self._lowest, point.train)
        self._points.append(point)
        loss = history.role("loss")
        drawn = loss is not None and loss.end > 0 and point.value >= self.at["drawn"] * loss.first > 0
        self._drawn = self._drawn and drawn
        limit = self.at["near" if self._drawn else "still"]
        change, same = (point.value - before.value, limit * abs(before.value)) if before else (0.0, 0.0)
        falls, self._still = before is not None and change < same, self._still and abs(change) <= same
        worse = point.train > 0 and point.value > self.at["worse"] * point.train
        early = passed <= self.at["share"] * point.step
        few = len(self._points) <= self.at["evaluations"]
        self._behind = 0 if few or not (falls and worse and early) else self._behind + 1
        if self._behind < self.at["evaluations"]:
            return
        self._waits = point, passed  # the watch's records of a short run come behind its evaluations
        yield from self._say(history, point, passed, int(channel.rows(point.row, point.row + 1).time[0]))

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if history.facts.get("finished") and self._waits is not None:
            yield from self._say(history, *self._waits, 1 << 62)

    def _say(self, history: RunHistory, point: EvaluationPoint, passed: int, time: int) -> Iterator[Finding]:
        if not other_model(history, time) or not self.first(point.segment):
            return
        yield self.finding(
            self._points[0].step,
            f"The evaluation loss {'stays at' if self._still else 'falls, to'} {point.value:.4g} at step {point.step}, "
            f"where the training had it by step {passed} and is at {point.train:.4g}; and it is of another model than "
            "the one that is trained",
            found=point.step,
            segment=point.segment,
            evidence={"evaluation": rounded(point.value), "train": rounded(point.train), "passed": passed},
            confidence=0.8,
        )
