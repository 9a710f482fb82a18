"""Missing values of a table that a model is given as numbers.

In:   figures of the watch: numbers that lie far beyond the others of their columns; what the first matrix is given.
Out:  findings of `MissingNumbers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class MissingNumbers(WatchRule):
    """A number that stands for missing values, as -999 does, is given to the model like any other.

    In two columns of a table or more, one number is in a hundredth to half of the rows, in three at least, and lies
    further from all others of its column than these lie apart, of which sixteen or more are different. The first layer
    with a matrix is given numbers that far out, so the model does not take them out itself. Rows in which all columns
    are so are padding. Of what a policy is given nothing is said.

    What to do: fill such places with the column's mean, that of the training's rows that have one, and give the model a
    column that says so; leave them out of the statistics by which columns are scaled.
    """

    name, family, kind, severity = "missing_numbers", "data", "data", "warning"
    proves = "training"
    series = "model/filler_columns"
    needs = ("=model/filler_columns", "=model/entered_low")
    least = 1
    about = "A number that stands for missing values is given to the model like any other."
    thresholds: ClassVar = {"columns": (2.0, "that have such a number; ours")}
    causes = ("missing values are numbers: a placeholder, as -999, is scaled and read like what was measured",)
    remedies = (
        "fill missing places with the column's mean behind its scaling (0), and give the model a mask of them",
        "leave placeholders out of the mean and the deviation by which columns are scaled",
    )

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/entered_low"), self.look)]

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("columns", "size", "share", "number", "next", "rows")
        columns, size, share, number, following, rows = (watched(history, f"filler_{name}", place) for name in names)
        low, high = (watched(history, f"entered_{name}", place) for name in ("low", "high"))
        half = (number + following) / 2
        enters = low < half if number < following else high > half
        known = columns >= self.at["columns"] and enters and history.role("reward") is None
        if known and self.first(place[2]):
            yield self.finding(
                0, f"In {columns:.0f} of {size:.0f} columns of the model's inputs one number lies further out than all "
                f"others lie apart: {number:.4g} in {100 * share:.1f}% of {rows:.0f} rows of one of them, of which the "
                f"next number is {following:.4g}.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"columns": columns, "number": rounded(number), "next": rounded(following), "standing": True},
            )  # fmt: skip


RULES = (MissingNumbers,)
