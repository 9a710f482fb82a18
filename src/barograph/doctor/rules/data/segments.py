"""Texts of two parts that evaluations are not told apart.

In:   figures of the watch: whole numbers that are given beside texts.
Out:  findings of `SegmentsMissing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class SegmentsMissing(WatchRule):
    """Evaluations do not say which of two parts of a text a place belongs to, and the training does.

    Beside its texts the model is given whole numbers of their shape. In the training these change once within each row,
    behind one token that is the same in all, in nine of ten rows or more of 64 at least: they say where the second part
    of a pair begins. In two evaluations in a row 16 rows or more have that token within, and the numbers of none change
    anywhere (`model/eval_parts_told`).

    What to do: make the inputs of both by one function, with `token_type_ids` or what the model calls them.
    """

    name, family, kind, severity = "segments_missing", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/eval_parts_told"
    needs = ("=model/eval_parts_told", "=model/parts_told")
    least = 2
    about = "Evaluations do not tell two parts of a text apart, as the training does."
    thresholds: ClassVar = {
        "told": (0.9, "of the training's rows; ours"),
        "rows": (64.0, "of the training; ours"),
        "held": (16.0, "rows of the evaluation; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("segments missing: the evaluation's inputs lack the numbers of the second part of each text",)
    remedies = ("make the inputs of the training and of evaluations by one function, `token_type_ids` with them",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("parts_rows", "parts_told", "eval_parts_rows")
        rows, told, held = (watched(history, name, place) for name in names)
        missing = value == 0 and told >= self.at["told"] and rows >= self.at["rows"] and held >= self.at["held"]
        if self.lasts(missing, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], "Whole numbers beside the texts say where their second part begins in the training, "
                "and are one number throughout each text of the evaluation.", found=place[0], segment=place[2],
                confidence=0.95, evidence={"rows": held, "standing": True},
            )  # fmt: skip


RULES = (SegmentsMissing,)
"""All rules of this file."""
