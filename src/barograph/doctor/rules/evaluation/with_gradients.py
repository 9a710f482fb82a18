"""Evaluations that build a graph, as the watch saw it.

In:   the watch's figures of passes with gradients that none comes back to.
Out:  findings of `EvaluationGradients`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import RowCursor, evaluations_of
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class EvaluationGradients(Rule):
    """Evaluations run with gradients: `torch.no_grad()` is missing.

    The watch records where, between two steps, passes with gradients ran in evaluation mode beside those in training
    mode (`model/gradients_in_evaluation`). Twice right after an evaluation, and not at the step before it, is a
    warning: each evaluation builds a graph, which takes time, and memory for as long as a loss of it is kept. Passes
    whose inputs ask for a gradient don't count: forces, residuals of an equation and attacks are made of it. Nor do
    evaluations that have backward passes of their own, as of a learner that is adapted to each task.

    Of a model that is in one mode all the time, it records the steps with passes whose graph no backward pass comes to,
    beside those to which one does (`model/graphs_unused`). That twice right after an evaluation, and at no other step
    since the first one, is a warning, too.
    """

    name, family, kind, severity = "evaluation_gradients", "eval", "eval", "warning"
    needs = ("=model/gradients_in_evaluation|=model/graphs_unused", "eval_loss|eval_accuracy|evaluation")
    about = "Evaluations run with gradients."
    thresholds: ClassVar = {"evaluations": (2.0, "ours")}
    causes = ("no_grad missing: evaluations build a graph",)
    remedies = ("evaluate under `torch.no_grad()` or `torch.inference_mode()`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._began: dict[str, list[int]] = {}  # evaluations with gradients, by what says so
        self._segment, self._elsewhere = -1, False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        evaluations = evaluations_of(history)
        if evaluations is None:
            return
        names = ("gradients_in_evaluation", "graphs_unused")
        for which, place, value in self._cursor.in_order(*(history.channel(f"model/{name}") for name in names)):
            if place[2] != self._segment:
                self._segment, self._began, self._elsewhere = place[2], {}, False
            if value == 1:
                yield from self._saw(evaluations, names[which], place)

    def _saw(self, evaluations: Channel, name: str, place: tuple[int, int, int]) -> Iterator[Finding]:
        step, time, segment = place
        known, began = evaluations.rows(), self._began.setdefault(name, [])
        here = (known.segment == segment) & (known.step < step) & (known.time <= time)
        last = int(known.step[here][-1]) if here.any() else -1
        if name == "graphs_unused" and last != step - 1:
            self._elsewhere |= last >= 0
            return
        if last < 0 or last in began or (name == "graphs_unused" and self._elsewhere):
            return
        began.append(last)
        if len(began) == self.at["evaluations"] and self.first(segment):
            yield self.finding(
                began[0], f"The evaluations of steps {began[0]} and {last} ran with gradients.",
                found=step, segment=segment, confidence=0.95,
            )  # fmt: skip


RULES = (EvaluationGradients,)
