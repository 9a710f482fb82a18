"""Missing values of a table that a model is given as numbers, and columns in units that are far apart.

In:   figures of the watch: numbers that lie far beyond the others of their columns, what columns differ by; what the
      first matrix is given.
Out:  findings of `MissingNumbers`, `UnitsApart`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
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


class UnitsApart(WatchRule):
    """Columns of a table go into the model in units that are far apart: next to one of them the others hardly count.

    Of a table of four to 32 columns with sixteen different numbers or more each, half or more, and three at least,
    differ by less than a hundredth of what another one differs by, which is 100 or more. The first layer with a matrix
    is given numbers of that size, so the model does not scale them itself. What a column differs by is that of the
    middle half of its numbers, so that fillers and single large numbers don't count. Of what a policy is given nothing
    is said; where the configuration says that inputs are not normalised, it is an info finding.

    What to do: subtract each column's mean and divide by its deviation, both of the training's rows, in evaluations,
    too; or begin the model with `BatchNorm1d`.
    """

    name, family, kind, severity = "units_apart", "data", "data", "warning"
    proves = "training"
    series = "model/unit_lost"
    needs = ("=model/unit_lost", "=model/entered_low")
    least = 1
    about = "Columns of a table go into the model in units that are far apart."
    thresholds: ClassVar = {
        "columns": (4.0, "with many numbers, at least; ours"),
        "most": (32.0, "of the table, at most; ours"),
        "lost": (3.0, "that hardly differ beside another one; ours"),
        "share": (0.5, "of all, that hardly differ; ours"),
        "size": (100.0, "deviation of the largest one; ours"),
    }
    causes = ("inputs not normalised: columns of a table go in as they are, in units that are far apart",)
    remedies = (
        "scale each column by the mean and deviation of the training's rows, and evaluations by the same numbers",
        "begin the model with a batch norm over the columns, `BatchNorm1d(columns, affine=False)`",
    )

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/entered_low"), self.look)]

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("unit_columns", "unit_lost", "unit_deviation", "unit_number", "filler_size")
        columns, lost, deviation, number, size = (watched(history, name, place) for name in names)
        low, high = (watched(history, f"entered_{name}", place) for name in ("low", "high"))
        apart = columns >= self.at["columns"] and lost >= max(self.at["lost"], self.at["share"] * columns)
        large = deviation >= self.at["size"] and max(-low, high) >= deviation and size <= self.at["most"]
        if apart and large and history.role("reward") is None and self.first(place[2]):
            meant = any(_SCALES.search(name) and value in _NOT for name, value in history.options.found.items())
            yield self.finding(
                0, f"Of {columns:.0f} columns of the model's inputs {lost:.0f} differ by less than a hundredth of what "
                f"column {number:.0f} differs by, which is {deviation:.3g}, and they go into its first matrix so: next "
                "to that one they hardly count.", found=place[0], segment=place[2],
                severity="info" if meant else self.severity, confidence=0.4 if meant else 0.95,
                evidence={"columns": columns, "lost": lost, "deviation": rounded(deviation), "standing": True},
            )  # fmt: skip


_SCALES = expression(
    r"(?i)(?:^|[._])(?:normali[sz]e|standardi[sz]e|scale|whiten)(?:_?(?:inputs?|features?|columns?|data|tables?|x))?$"
    r"|(?:^|[._])(?:inputs?|features?|columns?|data)_?(?:norm|normali[sz]ation|scal(?:er?|ing))$"
)
_NOT = (False, "none", "off", "raw", "no")

RULES = (MissingNumbers, UnitsApart)
