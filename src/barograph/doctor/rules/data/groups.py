"""Examples that belong together, of which some are evaluated and the others trained on.

In:   figures of the watch: how often what an evaluation's texts have in common with the training's came there.
Out:  findings of `EvaluationGroups`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import came_by, evaluations_of
from barograph.doctor.kernel.curve import rounded
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

    A quarter of an evaluation's rows or more have such a part, seven sixteenths of a row or more, that no more than
    eight rows have in the mean; of the different ones hardly any came in the training as often as others did, which
    chance gives in one of ten million, for many counts are compared; and in two evaluations in a row. Or a part is
    in the evaluation the less often the more often it is in the training (`model/evaluated_against`): by a
    correlation of −0.7 or below, six deviations from none. A policy's own texts are none.

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
        "against": (-0.7, "of how often a part comes in the training with how often in the evaluation; ours"),
        "deviations": (6.0, "of such a correlation from none; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("validation leak: rows of one origin are on both sides, for rows were split and not what they are of",)
    remedies = ("split by what rows are of: keep all drafts, copies and orders of one thing on one side",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        said = self._lacks(history, place) or self._opposes(history, place)
        holds = bool(said) and history.role("reward") is None and came_by(evaluations_of(history), place[1])
        if self.lasts(holds, place, self.at["evaluations"]):
            names = ("groups", "against", "groups_often", "groups_usual")
            yield self.finding(
                self._row[0][0], said, found=place[0], segment=place[2], confidence=0.9,
                evidence={name: rounded(watched(history, f"evaluated_{name}", place), 4) for name in names},
            )  # fmt: skip

    def _lacks(self, history: RunHistory, place: Place) -> str:
        """What is said where the evaluation lacks what came often in the training."""
        names = ("", "_rows", "_common", "_often", "_usual", "_times", "_above")
        found = (watched(history, f"evaluated_groups{name}", place) for name in names)
        share, rows, common, often, usual, times, above = found
        if not (share >= self.at["share"] and often <= self.at["often"]):
            return ""
        less = round((1 - often) * common)  # that many at least come less often
        if at_least(less, round(common), 1 - usual) > self.at["chance"]:
            return ""
        return (
            f"Of {rows:.0f} examples of an evaluation that were looked at {share * rows:.0f} are, begin or end as some "
            f"of the training. Of what came {above:.0f} times or more there {100 * usual:.0f}% came {times:.0f} times "
            f"or more, but {round(often * common)} of the {common:.0f} that the evaluation has: the training lacks "
            "just what is evaluated."
        )

    def _opposes(self, history: RunHistory, place: Place) -> str:
        """What is said where the evaluation has the less of something the more the training has."""
        found = (watched(history, f"evaluated_against{name}", place) for name in ("", "_of", "_share"))
        against, count, share = found
        clear = against <= self.at["against"] and against * math.sqrt(count) <= -self.at["deviations"]
        if not (clear and share >= self.at["share"]):
            return ""
        return (
            f"{100 * share:.0f}% of an evaluation's examples that were looked at are, begin or end as some of the "
            f"training; and the more often one of {count:.0f} such parts came there, the fewer of the evaluation have "
            f"it (correlation {against:.2f}): together they are groups of one size."
        )


RULES = (EvaluationGroups,)
