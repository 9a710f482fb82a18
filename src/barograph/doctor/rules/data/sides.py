"""What evaluations are given that hardly shows in the mean of all of their numbers: a second input or one column in
other units than in the training, texts with another beginning.

In:   figures of the watch.
Out:  findings of `EvaluationUnits`, `EvaluationColumns`, `EvaluationCentred`, `EvaluationOpenings`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import came_by, evaluations_of, known, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.kinds import both_losses
from barograph.doctor.kernel.stages import is_curriculum
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.data.scales import elsewhere

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_ORDER = ["columns in another order: columns of the evaluation's inputs are not those of the training's"]
_BY_NAME = ["pick columns by their names, in one order, in both"]
_DEGREES = (
    ("Fahrenheit beside those of Celsius", 1.8, 32.0, -60.0, 60.0),
    ("Celsius beside those of Fahrenheit", 1 / 1.8, -32 / 1.8, -76.0, 140.0),
)
"""What evaluations have beside the training; times the training's numbers, and what is added; where these may lie."""
_BASES = (
    ("logarithms to ten beside natural ones", 1 / math.log(10)),
    ("natural logarithms beside those to ten", math.log(10)),
    ("logarithms to two beside natural ones", 1 / math.log(2)),
    ("natural logarithms beside those to two", math.log(2)),
    ("logarithms to ten beside those to two", math.log10(2)),
    ("logarithms to two beside those to ten", math.log2(10)),
)
"""What evaluations have beside the training; times the training's numbers."""


class EvaluationUnits(WatchRule):
    """Evaluations are given a second input, as the times of a diffusion, in other units than the training.

    Of inputs behind the first, the watch knows how large they are in the training, and how much their numbers differ,
    over its looks so far. In three evaluations in a row the numbers of one differ by thirty times as much as in any
    pass of the training, and half of them are ten times as large as the training's largest; that one is the same in all
    of its looks, to a factor of five, so that it does not grow with the training. Or they differ by a hundredth of the
    least that they do there, or less, the largest is a thirtieth of the least of the training's largest ones, and the
    evaluation's loss is half as large again as the training's. A setting that all rows have, and a mask, are not looked
    at: sixteen different numbers at least.

    What to do: one function for both that makes the input; times from 0 to 1, or from 0 to 1000.
    """

    name, family, kind, severity = "evaluation_units", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/eval_side_deviation"
    needs = ("=model/eval_side_deviation", "=model/side_deviation", "eval_loss|eval_accuracy|evaluation")
    least = 3
    about = "Evaluations are given a second input in other units than the training."
    thresholds: ClassVar = {
        "wider": (30.0, "times as much that its numbers differ; degrees are 57 times as many as radians; ours"),
        "half": (10.0, "times the training's largest number, half of the evaluation's; ours"),
        "steady": (5.0, "times the least of the training's largest numbers, the largest one; ours"),
        "narrower": (100.0, "times as much that the training's differ; ours"),
        "smaller": (30.0, "times the evaluation's largest number, the training's; ours"),
        "worse": (1.5, "evaluation over training loss, where they are smaller; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("train and test differ: an input of evaluations is in other units than in the training",)
    remedies = ("make that input by one function for both: times from 0 to 1, or from 0 to 1000",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("side_deviation", "side_deviation_least", "side_size", "side_size_least", "eval_side_size")
        most, least, size, size_least, theirs = (watched(history, name, place) for name in names)
        half = watched(history, "eval_side_half", place)
        wide = value >= self.at["wider"] * most and half >= self.at["half"] * size
        wide = wide and size <= self.at["steady"] * size_least
        narrow = self.at["narrower"] * value <= least and self.at["smaller"] * theirs <= size_least
        narrow = narrow and self._worse(history, place)
        seen = came_by(evaluations_of(history), place[1]) and history.role("reward") is None
        if self.lasts(bool((wide or narrow) and most > 0 and seen), place, self.at["evaluations"]):
            which = watched(history, "eval_side_place", place) + 1
            yield self.finding(
                self._row[0][0], f"Input {which:.0f} of the model differs by {value:.3g} in evaluations, and reaches "
                f"{theirs:.3g}; in the training it differs by {most:.3g}, and reaches {size:.3g}.", found=place[0],
                segment=place[2], confidence=0.95,
                evidence={"deviation": rounded(most), "eval_deviation": rounded(value), "standing": True},
            )  # fmt: skip

    def _worse(self, history: RunHistory, place: Place) -> bool:
        ours, theirs = usual(history.role("loss"), *place, 8), known(history.role("eval_loss"), *place)
        return 0 < self.at["worse"] * ours < theirs < math.inf


class EvaluationColumns(WatchRule):
    """Evaluations are given one column of their inputs in other units than the training: a feature of a table, a
    channel of a series.

    The watch knows between which numbers each column lies in all of its looks at the training, eight at least, and how
    much it varies there. In three evaluations in a row half of a column's numbers lie beyond all of these, all on one
    side, by three times as much as they are apart or more: a feature that has grown in the time that is held out, and
    times that go on, hardly do by that much. Or a column varies by a thirtieth of what it does in the training, or
    less, below the last twentieth of its range, where a time that is held out would lie, and the evaluation's loss is a
    tenth above the training's; that range is ten of its deviations or less, else a few numbers make both. What has
    fewer than sixteen different numbers there may be a setting. Degrees Celsius and Fahrenheit lie nearer: there half
    of a column's numbers lie beyond all of the training's, which lie where temperatures do, and mean and deviation are
    those of the training, turned from one into the other, to three tenths of a deviation and to a fifth. Logarithms to
    ten beside natural ones, or to two beside either, are 0.434 times as large: there mean and deviation of each column,
    of four or more, are one number times the training's, which is that of two bases to a twenty-fifth; the training's
    lie where logarithms do, up to 64, and the evaluation's loss is a tenth above the training's. Nothing is
    said where the evaluation's loss is below the training's, or the configuration names another domain; where it names
    a curriculum, it is an info finding. Where four columns or more have a mean in evaluations that lies two of the
    training's deviations away, and each of these has mean and deviation of another column of the training, the first
    cause is that columns are in another order.

    What to do: prepare all columns by one function, with the training's statistics.
    """

    name, family, kind, severity = "evaluation_columns", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/column_beyond"
    needs = ("=model/column_beyond", "eval_loss|eval_accuracy|evaluation")
    least = 3
    about = "Evaluations are given a column of their inputs in other units than the training."
    thresholds: ClassVar = {
        "looks": (8.0, "at the training; ours"),
        "beyond": (3.0, "times the range of the training's numbers, half of the evaluation's; ours"),
        "narrow": (30.0, "times as much that the training's differ; ours"),
        "tails": (10.0, "of the training's deviations, its range at most: a few numbers make both, else; ours"),
        "last": (0.05, "of the range, its end, in which times lie that are held out; ours"),
        "worse": (1.1, "evaluation over training loss, where they are narrow, or logarithms; ours"),
        "swapped": (4.0, "columns, all that have moved, that are as another one is; ours"),
        "degrees": (0.3, "of a deviation, that the mean may be off what degrees turned into others give; ours"),
        "spread": (1.2, "times what they give, the deviation, or its inverse; ours"),
        "base": (0.04, "of what two bases give, that the columns' factor may be off; ours"),
        "logarithm": (64.0, "the largest number of a column; counts reach 2 to the power of it; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("normalisation differs: a column of the evaluation's inputs is in other units than in the training",)
    remedies = ("prepare all columns by one function for both, with the training's statistics",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ours, theirs = both_losses(history, *place)
        meant = history.role("reward") is not None or elsewhere(history) or 0 < theirs < ours
        seen = came_by(evaluations_of(history), place[1]) and not meant
        beyond = value >= self.at["beyond"] and watched(history, "column_looks", place) >= self.at["looks"]
        degrees = not beyond and value > 0 and self._turned(history, place)
        base = (
            ""
            if beyond or degrees or not 0 < self.at["worse"] * ours < theirs < math.inf
            else self._base(history, place)
        )
        beyond = beyond or bool(degrees or base)
        which = "column" if beyond else "narrow"
        low, high, median = (watched(history, f"{which}_{name}", place) for name in ("low", "high", "median"))
        narrow = watched(history, "narrow_times", place) >= self.at["narrow"] and median < high - self.at["last"] * (
            high - low
        )
        narrow = narrow and watched(history, "narrow_looks", place) >= self.at["looks"]
        narrow = narrow and high - low <= self.at["tails"] * watched(history, "narrow_deviation", place)
        narrow = narrow and 0 < self.at["worse"] * ours < theirs < math.inf
        if self.lasts(bool(seen and (beyond or narrow)), place, self.at["evaluations"]):
            names = ("number", "dimension", "place", "deviation", "eval_deviation")
            number, dimension, at, mine, here = (watched(history, f"{which}_{name}", place) for name in names)
            planned = is_curriculum(history)
            swapped = watched(history, "column_swapped", place) if beyond else math.nan
            order = swapped >= self.at["swapped"] and swapped == watched(history, "column_moved", place)
            yield self.finding(
                self._row[0][0], f"Column {number:.0f} of dimension {dimension:.0f} of the model's input {at + 1:.0f} "
                f"has the median {median:.4g} and the deviation {here:.3g} in evaluations, where the training's lies "
                f"between {low:.4g} and {high:.4g}, with a deviation of {mine:.3g}"
                + (f": as of degrees {degrees}." if degrees else "")
                + (f"; so it is with all columns, by one number: as of {base}." if base else "")
                + (f"; {swapped:.0f} columns in all have mean and deviation of another one." if order else "")
                + ("" if degrees or base or order else "."), found=place[0], segment=place[2],
                confidence=0.3 if planned else 0.95, severity="info" if planned else self.severity,
                causes=_ORDER if order else list(self.causes),
                remedies=_BY_NAME if order else list(self.remedies),
                evidence={"low": rounded(low), "high": rounded(high), "median": rounded(median), "standing": True},
            )  # fmt: skip

    def _turned(self, history: RunHistory, place: Place) -> str:
        """What the evaluation's numbers are beside the training's, where they are the same temperatures."""
        names = ("looks", "low", "high", "mean", "eval_mean", "deviation", "eval_deviation")
        looks, low, high, ours, theirs, mine, here = (watched(history, f"column_{name}", place) for name in names)
        if not (looks >= self.at["looks"] and min(mine, here) > 0):
            return ""
        for said, factor, moved, least, most in _DEGREES:
            near = abs(theirs - factor * ours - moved) <= self.at["degrees"] * here
            alike = 1 / self.at["spread"] <= here / (factor * mine) <= self.at["spread"]
            if near and alike and least <= low and high <= most:
                return said
        return ""

    def _base(self, history: RunHistory, place: Place) -> str:
        """What the evaluation's numbers are beside the training's, where they are the same logarithms."""
        looks, low, high, factor = (
            watched(history, f"column_{name}", place) for name in ("looks", "low", "high", "factor")
        )
        if not (looks >= self.at["looks"] and max(-low, high) <= self.at["logarithm"]):
            return ""
        return next((said for said, one in _BASES if abs(factor / one - 1) <= self.at["base"]), "")


class EvaluationCentred(WatchRule):
    """Each batch of an evaluation is standardised by its own rows, and the training's batches are not.

    Of tables the watch sees the mean and the deviation of each column, in all rows of a pass. In two passes of an
    evaluation or more, in two evaluations in a row, the mean of each column that varies, four or more, is 0 and its
    deviation 1, both to a thousandth; in three looks at the training or more, in each, those of some column are off by
    a hundredth or more, as where the statistics are those of all of the training's rows. What is then said of a row
    hangs on which rows come with it; of a batch of other shares of classes all is moved.

    What to do: standardise by the mean and deviation of the training's rows, kept with the model.
    """

    name, family, kind, severity = "evaluation_centred", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/centred_eval"
    needs = ("=model/centred_eval", "=model/centred_training")
    least = 2
    about = "Each batch of an evaluation is standardised by its own rows."
    thresholds: ClassVar = {
        "same": (1e-3, "off 0, or 1, at most, in evaluations; ours"),
        "off": (0.01, "the same in the training, at least; ours"),
        "passes": (2.0, "of an evaluation; ours"),
        "looks": (3.0, "at the training; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("normalisation differs: each batch of the evaluation by its own mean and deviation",)
    remedies = ("standardise by the mean and deviation of the training's rows, in both",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ours, passes, looks = (watched(history, f"centred_{name}", place) for name in ("training", "passes", "looks"))
        enough = passes >= self.at["passes"] and looks >= self.at["looks"]
        own = enough and value <= self.at["same"] and ours >= self.at["off"]
        if self.lasts(own, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"In each of {passes:.0f} passes of an evaluation all columns of the inputs have the "
                f"mean 0 and the deviation 1 to {max(value, 1e-6):.1g}; in the training's they are off by {ours:.2g} "
                "at least.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"off": rounded(value), "training": rounded(ours), "standing": True},
            )  # fmt: skip


class EvaluationOpenings(WatchRule):
    """All texts of evaluations begin with a token with which those of the training don't begin.

    In three evaluations in a row nineteen of twenty texts or more begin with one token, behind padding, which none of
    the training's texts had anywhere in eight looks or more. Or the training's texts all begin with one token, too, and
    it is another one: nineteen of twenty at each look. So it is where a prompt, a template or a header is put ahead of
    texts on one side alone. Nothing is said where the evaluation's loss is below the training's, or the configuration
    names another domain.

    What to do: make texts of both by one function, with one template.
    """

    name, family, kind, severity = "evaluation_openings", "eval", "data", "warning"
    proves = "evaluation"
    series = "model/eval_opening"
    needs = ("=model/eval_opening", "=model/opening", "eval_loss|eval_accuracy|evaluation")
    least = 3
    about = "All texts of evaluations begin with a token with which the training's don't."
    thresholds: ClassVar = {
        "looks": (8.0, "at the training; ours"),
        "share": (0.95, "of the texts, that begin with it; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("train and test differ: texts of evaluations have another beginning, as of another template",)
    remedies = ("make texts of the training and of evaluations by one function, with one template",)

    def asked(self, history: RunHistory) -> list[Source]:
        return [(history.channel("model/opening"), self._trained), *super().asked(history)]

    def reset(self) -> None:
        super().reset()
        self._looks, self._opening = 0, math.nan  # of the training; the one with which all of its texts begin

    def _trained(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        whole = watched(history, "opening_share", place) >= self.at["share"]
        same = whole and (value == self._opening or not self._looks)
        self._looks, self._opening = self._looks + 1, value if same else math.nan
        yield from ()

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ours, theirs = both_losses(history, *place)
        meant = history.role("reward") is not None or elsewhere(history) or 0 < theirs < ours
        seen = came_by(evaluations_of(history), place[1]) and self._looks >= self.at["looks"] and not meant
        whole = watched(history, "eval_opening_share", place) >= self.at["share"]
        unknown = watched(history, "eval_opening_known", place) == 0
        other = unknown or (self._opening == self._opening and value != self._opening)
        if self.lasts(bool(seen and whole and other), place, self.at["evaluations"]):
            told = (
                "a token that none of the training's had"
                if unknown
                else (f"where those of the training begin with token {self._opening:.0f}")
            )
            yield self.finding(
                self._row[0][0], f"The texts of evaluations begin with token {value:.0f}, {told}.", found=place[0],
                segment=place[2], confidence=0.95, evidence={"token": value, "standing": True},
            )  # fmt: skip


RULES = (EvaluationUnits, EvaluationColumns, EvaluationCentred, EvaluationOpenings)
