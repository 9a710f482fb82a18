"""Whether texts of evaluations have the template of the training's.

In:   figures of the watch: kinds of tokens that all texts of one side have, and none of the other.
Out:  findings of `EvaluationTemplate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import newest
from barograph.doctor.kernel.kinds import both_losses
from barograph.doctor.kernel.stages import is_curriculum
from barograph.doctor.rules.data.examples import Place, WatchRule, of_look, watched
from barograph.doctor.rules.data.scales import elsewhere

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class EvaluationTemplate(WatchRule):
    """Texts of evaluations lack a token that all of the training's have, or have one that none of them has.

    Of the texts that were looked at, 128 of the training and 32 of an evaluation at least, 98 in a hundred of one side
    have some kind of token, and none of the other: within the text, and in front of another one that nearly all texts
    of both sides have, as the mark behind which an answer begins. So a template shows that lost a line, or has one
    more. In three evaluations in a row, whose loss is a fifth above the training's. So it is where in eight looks or
    more all answers of the training begin behind one and the same token (`model/answer_from`), and those of the
    evaluation, whose targets were seen, behind different ones (`model/eval_answers_apart`): they lack the mark itself.
    What stands behind the last common token says nothing: an evaluation that generates is given prompts without
    answers. Where the configuration speaks of other data for evaluations, nothing is said.

    What to do: print one text of the training and one of the evaluation, as they go into the model; make both by one
    function.
    """

    name, family, kind, severity = "evaluation_template", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/template_lost"
    needs = ("=model/template_lost", "loss", "eval_loss")
    least = 3
    about = "Texts of evaluations lack a token that all of the training's have, or have one that none of them has."
    thresholds: ClassVar = {
        "rows": (128.0, "texts of the training; ours"),
        "eval_rows": (32.0, "texts of an evaluation; ours"),
        "worse": (1.2, "evaluation over training loss; ours"),
        "looks": (8.0, "in which answers begin behind one token; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("prompt template differs: texts of evaluations are made in another way than those of the training",)
    remedies = ("print one text of each, as they go into the model, and make both by one function",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        added, rows, theirs = (watched(history, name, place) for name in ("template_added", "template_rows",
                                                                          "eval_template_rows"))  # fmt: skip
        enough = rows >= self.at["rows"] and theirs >= self.at["eval_rows"]
        before, after = both_losses(history, *place)
        worse = 0 < self.at["worse"] * before < after and history.role("reward") is None
        unmarked = value + added == 0 and self._lacks_the_mark(history, place)
        meant = elsewhere(history) or is_curriculum(history)
        differs = (value + added > 0 or unmarked) and enough and worse and not meant
        if self.lasts(differs, place, self.at["evaluations"]):
            what = f"lack {value:.0f} of the tokens that all of the training's have" if value else (
                f"have {added:.0f} tokens that none of the training's has"
            )  # fmt: skip
            what += ", in front of one that nearly all texts have"
            what = "lack the token behind which all answers of the training begin" if unmarked else what
            yield self.finding(
                self._row[0][0], f"{theirs:.0f} texts of an evaluation {what}, and the evaluation loss is "
                f"{after / before:.3g} times the training loss.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"lost": value, "added": added, "standing": True},
            )  # fmt: skip

    def _lacks_the_mark(self, history: RunHistory, place: Place) -> bool:
        """Whether answers of the training begin behind one token, and those of this evaluation behind several."""
        marks, count = history.channel("model/answer_from"), int(self.at["looks"])
        known = newest(marks, *place, count) if marks is not None else numpy.empty(0)
        marked = len(known) == count and len(set(known.tolist())) == 1
        apart = of_look(history, "eval_answers_apart", place) == 1
        ahead = watched(history, "target_shift", place) == 1 and of_look(history, "eval_target_shift", place) == 1
        return marked and ahead and apart


RULES = (EvaluationTemplate,)
