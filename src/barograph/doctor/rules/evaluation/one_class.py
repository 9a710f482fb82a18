"""Evaluations whose rows are nearly all of one class, where the training has several.

In:   figures of the watch: classes of an evaluation's targets, and of the training's.
Out:  findings of `EvaluationOneClass`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import logged_at, options_on, usual
from barograph.doctor.kernel.stages import has_stages, is_curriculum
from barograph.doctor.rules.data.examples import Place, WatchRule, of_look, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_DRAWN = expression(  # what makes classes of the training as frequent as they are
    r"(?i)(?:sampl|draw|batch)\w*[ _-].*balanc|balanc\w*[ _-](?:class|sampl|batch|draw|data)|"
    r"(?:over|under|re)[_-]?sampl|(?:weighted|class)[_-]?(?:random[_-]?|aware[_-]?)?sampl|oftener|more[_-]often|"
    r"one[_-]class|open[_-]set|anomal"
)


class EvaluationOneClass(WatchRule):
    """Evaluations have hardly any row of another class than one, where the training has four classes or more.

    All rows of a cross-entropy were looked at (`model/compared_rows` and `model/evaluated_targets`), 64 or more, and
    one class alone has eight of them (`model/compared_named`). If classes came as in the training, three times as many
    rows or more would be of the others as these can have, seven each. In two evaluations in a row. What is measured
    says nothing of the other classes: a file in the order of its classes was cut, and not mixed first. Where there are
    several ranks, the logged loss has to be that of the rank that was seen, to a thousandth: the other ranks' parts are
    not in it.

    Of fewer than four classes in the training, or none of them half as frequent as all or less, it is an info finding,
    as rows of rare classes may be few. So it is where the configuration says how classes are drawn, or has stages.

    What to do: mix rows before the split, or take as large a part of each class; add up over all ranks what each has
    counted.
    """

    name, family, kind, severity = "evaluation_one_class", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/compared_named"
    needs = ("=model/compared_named", "=model/class_targets", "eval_loss|eval_accuracy|evaluation")
    least = 2
    about = "Evaluations have rows of one class alone, where the training has several."
    thresholds: ClassVar = {
        "rows": (64.0, "of an evaluation, all of which were looked at; ours"),
        "evaluations": (2.0, "in a row; ours"),
        "targets": (128.0, "of the training, that were looked at; ours"),
        "several": (4.0, "classes in the training; ours"),
        "share": (0.6, "of the training's rows, that its most frequent class has, at most; ours"),
        "each": (7.0, "rows that another class may have; the watch names those of eight"),
        "times": (3.0, "as many rows of others, that the training's shares give; ours"),
        "same": (1e-3, "of the logged loss, by which that of this rank may differ; ours"),
    }
    causes = ("split not shuffled: evaluations have rows of one class alone",)
    remedies = ("mix rows before the split, or take as large a part of each class",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("compared_rows", "evaluated_targets", "compared_width")
        rows, targets, width = (of_look(history, name, place) for name in names)
        classes = watched(history, "output_width", place) - watched(history, "untargeted_classes", place)
        top = usual(history.channel("model/top_target_share"), *place, 16)
        known = watched(history, "class_targets", place) >= self.at["targets"] and width > 2
        one = value == 1 and known and rows == targets >= self.at["rows"] and classes >= 2
        one = one and rows * (1 - top) >= self.at["times"] * self.at["each"] * (classes - 1)
        world = history.facts.get("world_size")
        several = isinstance(world, int) and world > 1
        if one and several and not self._is_own(history, place):
            one = False
        if not self.lasts(one, place, self.at["evaluations"]):
            return
        drawn = any(
            _DRAWN.search(f"{name} {one}" if isinstance(one, str) else name) for name, one in options_on(history)
        )
        meant = drawn or has_stages(history, place[1]) or is_curriculum(history)
        sure = classes >= self.at["several"] and top <= self.at["share"] and not meant
        part = [
            "evaluated on one rank's part alone: the rows of other ranks, of other classes, are not in what is logged"
        ]
        yield self.finding(
            self._row[0][0], f"Of the {rows:.0f} rows of an evaluation hardly any is of another class than one, where "
            f"the training has {classes:.0f} classes, none of which is more than {100 * top:.0f}% of its rows, as a "
            f"rule{', and what is logged is the loss of this rank alone' if several else ''}.",
            found=place[0], segment=place[2], severity="warning" if sure else "info",
            confidence=0.95 if sure else 0.6, evidence={"rows": rows, "classes": classes},
            causes=[*(part if several else []), *self.causes],
            remedies=[*(["add up over all ranks what each has counted"] if several else []), *self.remedies],
        )  # fmt: skip

    def _is_own(self, history: RunHistory, place: Place) -> bool:
        """Whether the logged loss is what this rank computed."""
        channel, own = history.role("eval_loss"), of_look(history, "evaluated_loss", place)
        logged = logged_at(channel, place) if channel is not None else math.nan
        return own > 0 and abs(logged - own) <= self.at["same"] * own


RULES = (EvaluationOneClass,)
