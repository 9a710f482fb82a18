"""Evaluations whose attention has no mask, where that of the training hides what comes.

In:   what the watch saw of the functions of an evaluation's first passes, and of the training's attention.
Out:  findings of `EvaluatedLater`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class EvaluatedLater(WatchRule):
    """Evaluations see the tokens that they ask for: their attention has no causal mask, and that of the training has.

    In the first two passes of an evaluation each call of torch's attention over queries and keys of the same places has
    neither a mask nor `is_causal` (`model/later_in_evaluation`). In the training, later places are hidden
    (`model/attention/later` is 0), and the targets of both are the next tokens. The evaluation is then of a model that
    was never trained, which is given the answer in front of each question. A mask that is given in an evaluation may
    hide anything, and nothing is said.

    What to do: the same mask in both modes; of a step of decoding, which has one query, no mask is needed.
    """

    name, family, kind, severity = "evaluated_later", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/later_in_evaluation"
    needs = ("=model/later_in_evaluation", "=model/attention/later", "=model/target_shift")
    least = 1
    about = "Attention has no causal mask in evaluations, and has one in the training."
    thresholds: ClassVar[dict[str, tuple[float, str]]] = {}
    causes = ("no causal mask in evaluation: each place sees the tokens that are to be predicted",)
    remedies = ("let the mask depend on the number of queries, not on `self.training`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("attention/later", "target_shift", "eval_target_shift")
        later, ahead, evaluated = (watched(history, name, place) for name in names)
        if self.lasts(value == 1 and later == 0 and ahead == evaluated == 1, place, 1):
            yield self.finding(
                place[0], "In evaluations each place sees all later ones, for their attention has no mask; in the "
                "training it sees none of them.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"standing": True},
            )  # fmt: skip


RULES = (EvaluatedLater,)
