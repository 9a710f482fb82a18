"""An average of the weights that begins anew at a resume.

In:   how far the evaluated copy is from what is trained, at each evaluation.
Out:  findings of `AverageAnew`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
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

    Or the average goes on, and follows weights that stand still, as those of the model from before the resume do: in
    two evaluations before, of as many steps, one share of it was left (`model/evaluated_kept`); behind the resume it
    moves otherwise than an average of what is trained, comes no nearer to it, and moves from evaluation to evaluation
    by that very share of what it moved before (`model/evaluated_changed`).

    What to do: save the average's weights with the checkpoint, and load them; update it from the model that is trained.
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
        "same": (0.05, "of the share that is left, by which two of them may differ; ours"),
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
        self._moves: list[tuple[float, float, float]] = []  # of this launch: steps, share that is left, change
        self._kept = math.nan, 0.0  # before the resume: the share that is left, and of how many steps

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), apart in self._cursor.each(history.channel("model/evaluated_apart")):
            value, whose = apart, known(history.channel("model/evaluated_whose"), step, time, segment)
            whole = watched(history, "evaluated_whole_least", (step, time, segment))
            if segment != self._segment:
                before, self._before, self._segment = self._before, [], segment
                self._kept, self._moves = self._share(), []
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
            names = ("evaluated_steps", "evaluated_kept", "evaluated_changed")
            steps, kept, changed = (watched(history, name, (step, time, segment)) for name in names)
            self._moves.append((steps, kept, changed))
            if whose > _OWN and self._stands_still() and self.first(segment):
                yield self.finding(
                    step, "The average that is evaluated comes no nearer to what is trained since the resume, and "
                    f"moves by {changed:.2g} of what it is, {self._kept[0]:.2g} of what it moved before: what it "
                    "follows stands still.", found=step, segment=segment, confidence=0.9,
                    evidence={"apart": rounded(apart), "kept": rounded(self._kept[0])},
                    causes=["averaged weights lost: they follow the model of before the resume, not what is trained"],
                    remedies=["make the average's updates from the model that was built at the resume, and is trained"],
                )  # fmt: skip

    def _share(self) -> tuple[float, float]:
        """Which share of the average is left from evaluation to evaluation, in two of this launch or more, and of how
        many steps."""
        between = [(kept, new[0] - old[0]) for old, new in pairwise(self._moves) if (kept := new[1]) > 0]
        if len(between) < self.at["evaluations"]:
            return math.nan, 0.0
        share, steps = between[0]
        same = all(abs(kept / share - 1) <= _EQUAL and many == steps for kept, many in between)
        return (share, steps) if same and share < 1 - self.at["same"] else (math.nan, 0.0)

    def _stands_still(self) -> bool:
        """Whether the average moves to weights that do not, in this launch."""
        share, steps = self._kept
        if len(self._moves) < 3 or not steps:
            return False
        even = all(new[0] - old[0] == steps for old, new in pairwise(self._moves))
        other = all(kept < 0 or abs(kept / share - 1) > 2 * self.at["same"] for _, kept, _ in self._moves[1:])
        farther = all(new >= old for old, new in pairwise(self._before))
        before, changed = self._moves[-2][2], self._moves[-1][2]
        return even and other and farther and before > 0 and abs(changed / before / share - 1) <= self.at["same"]


_EQUAL = 0.01  # of a share that is left: two of one average

RULES = (AverageAnew,)
