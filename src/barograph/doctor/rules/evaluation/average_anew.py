"""An average of the weights that begins anew at a resume.

In:   how far the evaluated copy is from what is trained, at each evaluation.
Out:  findings of `AverageAnew`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import RowCursor, known
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_OWN = 1  # of `evaluated_whose`: the watched model itself, with no copy beside it; of a copy it is 2


class AverageAnew(Rule):
    """After a resume the average of the weights that is evaluated is another one.

    Evaluations are made with a copy of the watched model, or with other weights that are put into it. The watch reads
    how far it is from what is trained, of the weights' size. In two evaluations or more before the resume that was at
    most a fifth of what it is in the first one behind it, and there it is a tenth or more; or it had come nearer, and
    is twice as far, and three tenths or more: the average was not loaded, and begins as it was made. Of a copy that was
    there behind the second step of the launch, how far it was then counts, too: three tenths of the weights' size or
    more, and three times as far as in any evaluation before the resume. Of a slow average, far away before, it
    is enough that it was farther, if some matrix of it is another one (`model/evaluated_whole_least`): in the first
    evaluation behind the resume three fifths of the weights are in it or less, where it was nine tenths or more in each
    before. One that begins as a copy of the loaded weights is near them. A launch that begins at less than half of the
    steps before is another try.

    What to do: save the average's weights with the checkpoint, and load them.
    """

    name, family, kind, severity = "average_anew", "eval", "resume", "warning"
    needs = ("=model/evaluated_apart",)
    proves = "evaluation"
    least = 3
    about = "After a resume, the average of the weights begins anew."
    thresholds: ClassVar = {
        "evaluations": (2.0, "before the resume; ours"),
        "times": (5.0, "times as far as before; ours"),
        "apart": (0.1, "of the weights' size; ours"),
        "twice": (2.0, "times as far as in the last one before, of an average that came nearer; ours"),
        "farther": (0.3, "of the weights' size; ours"),
        "begun": (3.0, "times as far as before, of a copy when it was found; ours"),
        "whole": (0.9, "of the weights, that is in each matrix before; ours"),
        "foreign": (0.6, "of them, in some matrix, behind the resume; ours"),
        "other": (0.01, "of the weights' size, of what is put into the model each time; ours"),
    }
    causes = ("averaged weights lost: the average was not loaded at the resume",)
    remedies = (
        "save the average's weights with the checkpoint, and load them",
        "if they are gone, begin as a copy of the loaded weights: `ema.load_state_dict(model.state_dict())`",
    )

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._segment, self._begun = -1, 0
        self._before: list[float] = []  # of this launch
        self._whole: list[float] = []  # the same: how much of the weights is in the matrix of which it is the least
        self._last = 0

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), apart in self._cursor.each(history.channel("model/evaluated_apart")):
            value, whose = apart, known(history.channel("model/evaluated_whose"), step, time, segment)
            whole = watched(history, "evaluated_whole_least", (step, time, segment))
            if segment != self._segment:
                before, self._before, self._segment = self._before, [], segment
                held, self._whole = min(self._whole, default=0.0), []
                goes_on = len(before) >= self.at["evaluations"] and step >= 0.5 * self._last
                far = value >= max(self.at["apart"], self.at["times"] * max(before, default=0.0))
                nearer = goes_on and before[-1] < before[-2]
                far |= nearer and value >= max(self.at["farther"], self.at["twice"] * before[-1])
                begun = watched(history, "evaluated_begun_apart", (step, time, segment))
                foreign = held >= self.at["whole"] and 0 <= whole <= self.at["foreign"]
                lost = goes_on and whose > _OWN and begun >= (1 if foreign else self.at["begun"]) * max(before)
                if lost and begun >= self.at["farther"]:
                    value, far = begun, True
                if goes_on and (whose > _OWN or min(before) > self.at["other"]) and far and self.first(segment):
                    yield self.finding(
                        step, f"The average that is evaluated is {value:.2g} of the weights' size away from what is "
                        f"trained; before the resume that was {before[-1]:.2g}.", found=step, segment=segment,
                        confidence=0.95, evidence={"apart": rounded(value), "before": rounded(before[-1])},
                    )  # fmt: skip
            self._before.append(apart)
            self._whole.append(whole)
            self._last = step


RULES = (AverageAnew,)
