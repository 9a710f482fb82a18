"""Examples that belong together, of which some are evaluated and the others trained on.

In:   figures of the watch: how often what an evaluation's texts have in common with the training's came there.
Out:  findings of `EvaluationGroups`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import came_by, evaluations_of
from barograph.doctor.rules.data.examples import WatchRule, watched
from barograph.doctor.rules.data.turns import at_least

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.rules.data.examples import Place


class EvaluationGroups(WatchRule):
    """Groups of texts that belong together lie on both sides of a split: drafts, askings, orders of one thing.

    Texts that are drawn one by one are alike by chance where their language is small, and how many of an evaluation's
    come in the training says nothing. How often they come there does: of what came twice or more, what an evaluation
    has, too, came as often as other things did, or more often. Where a training has groups of a few texts each, of
    which some were held back, it is the other way round: what the evaluation has, the training has less often than
    what it has not (`model/evaluated_groups_often` beside `model/evaluated_groups_usual`). Looked at are whole rows,
    how they begin, and how they end.

    A quarter of an evaluation's rows or more have such a part; of the different ones hardly any came in the training
    as often as others did, which chance gives in one of ten million, for many counts are compared; and in two
    evaluations in a row. A policy's own texts are none.

    What to do: split by what rows are of, not by rows.
    """

    name, family, kind, severity = "evaluation_groups", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_groups"
    needs = ("=model/evaluated_groups", "eval_loss|eval_accuracy|evaluation")
    least = 2
    about = "Texts that belong together are on both sides of a split."
    thresholds: ClassVar = {
        "share": (0.25, "of an evaluation's rows; ours"),
        "often": (0.05, "of the different ones that both sides have, that came as often as others; ours"),
        "chance": (1e-7, "of as few by chance, before some three hundred pairs of counts are compared; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("validation leak: rows of one origin are on both sides, for rows were split and not what they are of",)
    remedies = ("split by what rows are of: keep all drafts, copies and orders of one thing on one side",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("rows", "common", "often", "usual", "times", "above")
        rows, common, often, usual, times, above = (
            watched(history, f"evaluated_groups_{name}", place) for name in names
        )
        holds = value >= self.at["share"] and often <= self.at["often"] and history.role("reward") is None
        if holds:  # that many at least come less often
            less = round((1 - often) * common)
            holds = at_least(less, round(common), 1 - usual) <= self.at["chance"]
        if self.lasts(holds and came_by(evaluations_of(history), place[1]), place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0],
                f"Of {rows:.0f} examples of an evaluation that were looked at {value * rows:.0f} are, begin or end as "
                f"some of the training. Of what came {above:.0f} times or more there {100 * usual:.0f}% came "
                f"{times:.0f} times or more, but {round(often * common)} of the {common:.0f} that the evaluation has: "
                "the training lacks just what is evaluated.",
                found=place[0], segment=place[2], confidence=0.9,
                evidence={"share": value, "often": often, "usual": usual},
            )  # fmt: skip


RULES = (EvaluationGroups,)
