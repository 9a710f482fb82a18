"""Terms of a loss that are logged apart, in training and in evaluation: is one of them alone far from the training's?

In:   the logged terms; the losses.
Out:  findings of `EvaluationTerm`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known, usual
from barograph.doctor.kernel.curve import is_game, rounded
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_EVALUATED = expression(r"(?i)(?:eval(?:uation)?|val(?:id(?:ation)?)?|test)([/_.])(.+[/_.]loss|loss[/_.].+|.+_loss)")


class EvaluationTerm(WatchRule):
    """One term of the evaluation's loss is far from the training's, and the others are not.

    Two terms or more are logged of both, as `box_loss` and `val_box_loss`. In four evaluations in a row one of them is
    1.2 times the first of the training or more (the median of eight rows), though the training's has fallen below 0.3
    of that: who had learnt nothing would do better. Or the training's has not fallen by a fifth, and the evaluation's
    is a tenth of it or less. And another term of the evaluation is at most 1.5 times the training's, and at least a
    half of it: so it is not the model that knows no more than its examples. What one term compares is then in another
    form or unit in the two.

    What to do: print what this term compares, of one example of each set.
    """

    name, family, kind, severity = "evaluation_term", "eval", "data", "warning"
    needs = ("loss", "eval_loss")
    least = 4
    about = "One term of the evaluation's loss is far from the training's, and the others are not."
    thresholds: ClassVar = {
        "evaluations": (4.0, "in a row; ours"),
        "worse": (1.2, "times the training's first; ours"),
        "learnt": (0.3, "of the training's first; ours"),
        "better": (0.1, "of the training's; ours"),
        "kept": (0.8, "of the training's first, where the evaluation is better; ours"),
        "alike": (1.5, "times the training's, of another term; ours"),
        "least": (0.5, "of the training's, of another term; ours"),
    }
    causes = ("labels do not match the inputs: the targets of one term are in another form or unit than the other's",)
    remedies = ("print what this term compares, of one example of each set: pixels or shares, corners or centre",)

    def channel(self, history: RunHistory) -> Channel | None:
        loss = history.role("loss")
        return history.role("eval_loss") if loss is not None and not is_game(history, loss) else None

    def begin(self) -> None:
        self._rows_in: dict[str, int] = {}
        self._pairs: list[tuple[Channel, Channel]] = []
        self._known = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        before = (place[0] - 1, *place[1:])  # of rows whose step is over
        if self._known != len(history.channels):
            self._known, self._pairs = len(history.channels), _pairs(history)
        figures = {}
        for ours, theirs in self._pairs:
            rows = ours.rows(0, 8)
            if len(rows) == 8 and rows.value.min() > 0:
                figures[ours.name] = float(numpy.median(rows.value)), usual(ours, *before, 16), known(theirs, *before)
        if len(figures) < 2:
            return
        alike = [name for name, (_, train, there) in figures.items()
                 if self.at["least"] * train <= there <= self.at["alike"] * train]  # fmt: skip
        for name, (first, train, there) in figures.items():
            worse = there >= self.at["worse"] * first and train <= self.at["learnt"] * first
            better = 0 < there <= self.at["better"] * train and train >= self.at["kept"] * first
            off = math.isfinite(there) and (worse or better) and bool(alike)
            self._rows_in[name] = self._rows_in.get(name, 0) + 1 if off else 0
            if self._rows_in[name] >= self.at["evaluations"] and self.first(name, place[2]):
                yield self.finding(
                    0, f"In {self._rows_in[name]} evaluations the term {name} is {there:.4g} now, where the training "
                    f"has {train:.4g} and began at {first:.4g}; {alike[0]} is like the training's.", key=name,
                    found=place[0], segment=place[2], confidence=0.9,
                    evidence={"evaluation": rounded(there), "training": rounded(train), "first": rounded(first)},
                )  # fmt: skip


def _pairs(history: RunHistory) -> list[tuple[Channel, Channel]]:
    """Terms that are logged in training and in evaluation."""
    found = []
    for name, channel in sorted(history.channels.items()):
        match = _EVALUATED.fullmatch(name)
        if match is None:
            continue
        beside = (match[2], f"train{match[1]}{match[2]}", f"training{match[1]}{match[2]}")
        ours = next((history.channels[one] for one in beside if one in history.channels), None)
        if ours is not None:
            found.append((ours, channel))
    return found


RULES = (EvaluationTerm,)
