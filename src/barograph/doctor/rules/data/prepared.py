"""What evaluations are given that is prepared in another way than in the training, however alike it looks.

In:   figures of the watch: the ends of the pictures' range, mean and deviation of their channels, and of rows.
Out:  findings of `EvaluationPictures`, `EvaluationAltered`, `RowsStandardised`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.cursor import newest, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.kinds import both_losses
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]
_LOOKS, _LEAST = 64, 8  # at pictures of the training
_APART, _WITHIN = 8.0, 4.0  # times the deviation between batches: exchanged colours, and those that are not
_EVEN = 0.1  # of deviations, and of what colours are away
_WORSE = 1.5  # evaluation over training loss
EXCHANGED = "channels exchanged: evaluation pictures are BGR where the training's are RGB, or the contrary"
EXCHANGED_REMEDY = "read pictures in one way: `cv2.imread` gives BGR, `PIL` and `torchvision` RGB"
CLIPPED = (
    "clipped behind the normalisation: evaluation inputs are cut to 0 and 1, as pictures are before they are scaled"
)
BOUNDED = "inputs not normalised: evaluation pictures have the range of stored ones, the training's are normalised"
CLIPPED_REMEDY = "clip pictures before the normalisation, or not at all: what is normalised has no bounds of 0 and 1"


class EvaluationPictures(WatchRule):
    """Evaluations are given pictures that were normalised with other numbers, or have red and blue exchanged.

    Black and white are the same number in all pictures of one normalisation. Where the least of the training's numbers
    is the same in eight looks, to a hundred-thousandth of their range, and one of a thousand numbers or more is that
    least one, it is black; the same of the largest, white. An evaluation's black, of as many numbers, that is lower by
    0.3% of the range, or a white that is higher, is of another normalisation. Means and deviations that are nearly the
    same, as those of CIFAR and of ImageNet are, show so. Of a black that is higher nothing is said: there may be none
    in these pictures.

    Red and blue are exchanged where means and deviations of the first and the last channel are those of the training's
    exchanged, whatever was subtracted from each and divided by: the product of their deviations is as it was, to a
    tenth, and the last mean follows from the first one. Both means are away by eight times as much as the training's
    batches differ, green is as it was, and the evaluation's loss is half as large again as the training's. Where a
    batch has fewer than eight pictures nothing is said of colours.

    Clipped behind the normalisation are evaluation pictures whose least number is exactly 0 or -1 and whose largest is
    exactly 1, a hundredth of their numbers or more at each end, where all looks at the training's reach beyond both
    ends by half of their deviation, with a mean of about 0 (a quarter of the deviation), and the evaluation's mean is a
    quarter of it or more outside of theirs. Pictures that were not normalised at all look so too. Only of classes, and
    where the evaluation's loss is a tenth above the training's: a training on noise, clean in the evaluation, has the
    same mean in both.

    Not normalised, or by halves, are evaluation pictures of exactly these ends where the training's have a mean of 0
    and a deviation of 1, to a tenth, and all looks at them reach beyond both ends by a quarter of it: the evaluation's
    deviation is at most two thirds of that of any look, and its mean, or that of one channel, lies outside of all looks
    by a fifth of the training's deviation; fewer than a hundredth of their numbers are at one of the ends. Clean
    pictures of a training on noise have the same mean.

    Three evaluations in a row.

    What to do: one transformation of pictures for both; `cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)`.
    """

    name, family, kind, severity = "evaluation_pictures", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/eval_input_lows"
    needs = ("=model/eval_input_lows", "=model/input_lows")
    least = 3
    about = "Evaluation pictures are normalised with other numbers, or have red and blue exchanged."
    thresholds: ClassVar = {
        "looks": (8.0, "at pictures of the training; ours"),
        "same": (1e-5, "of their range, in which black lies; ours"),
        "share": (1e-3, "of the numbers, that are the least one; ours"),
        "off": (0.003, "of the range, by which black or white is another; ours"),
        "at_ends": (0.01, "of an evaluation's numbers, at each end to which they are clipped; ours"),
        "beyond": (0.5, "of the training's deviation, by which its numbers reach past these ends; ours"),
        "shifted": (0.25, "of the training's deviation, by which the evaluation's mean is another; ours"),
        "worse": (1.1, "times the training's loss, the evaluation's where they are clipped; ours"),
        "normal": (0.1, "from mean 0 and deviation 1: normalised; ours"),
        "past": (0.25, "of the training's deviation, by which normalised pictures reach past these ends; ours"),
        "narrower": (1.5, "times the evaluation's deviation, that of each look at them; ours"),
        "outside": (0.2, "of the training's deviation, beyond all looks, the mean of all or of a channel; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("normalisation differs: evaluation inputs are normalised with another mean or deviation",)
    remedies = ("normalise inputs of training and evaluation with the same numbers, those of the training",)

    def begin(self) -> None:
        self._places: dict[str, list[Place]] = {}

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/eval_input_red"), self._colours)]

    def _colours(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ours, theirs = both_losses(history, *place)
        worse = 0 < _WORSE * ours < theirs
        if not self._holds("colours", worse and exchanged(history, place), place):
            return
        red, blue = (watched(history, f"eval_input_{name}", place) for name in ("red", "blue"))
        first, last = (usual(history.channel(f"model/input_{name}"), *place) for name in ("red", "blue"))
        yield self.finding(
            self._places["colours"][0][0], f"Evaluation pictures have a mean of {red:.3g} in the first channel and of "
            f"{blue:.3g} in the last one, where the training's have {first:.3g} and {last:.3g}: as much as one is "
            "higher, the other is lower.", key="colours", found=place[0], segment=place[2], confidence=0.85,
            causes=[EXCHANGED, *self.causes], remedies=[EXCHANGED_REMEDY, *self.remedies],
        )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        for end, sign in (("low", 1), ("high", -1)):
            ours, theirs, off = self._ends(history, end, sign, place)
            if self._holds(end, off, place):
                yield self.finding(
                    self._places[end][0][0], f"The {'black' if sign > 0 else 'white'} of evaluation pictures is "
                    f"{theirs:.5g}, where that of the training's is {ours:.5g}: they are normalised with other "
                    "numbers.", key="ends", found=place[0], segment=place[2], confidence=0.9,
                    evidence={"training": ours, "evaluation": theirs},
                )  # fmt: skip
        if self._holds("clipped", self._clipped(history, place), place):
            low, high = (watched(history, f"eval_input_{end}", place) for end in ("low", "high"))
            yield self.finding(
                self._places["clipped"][0][0], f"Evaluation pictures have no number below {low:g} or above {high:g}, "
                "and many that are exactly these, where the training's reach beyond both: they are clipped behind the "
                "normalisation, or not normalised.", key="ends", found=place[0], segment=place[2], confidence=0.9,
                causes=[CLIPPED, *self.causes], remedies=[CLIPPED_REMEDY, *self.remedies],
                evidence={"low": low, "high": high},
            )  # fmt: skip
        if self._holds("bounded", bounded(history, place, self.at), place):
            low, high = (watched(history, f"eval_input_{end}", place) for end in ("low", "high"))
            yield self.finding(
                self._places["bounded"][0][0], f"Evaluation pictures lie between {low:g} and {high:g}, as they are "
                "before they are normalised, where the training's are normalised, and reach beyond both.", key="ends",
                found=place[0], segment=place[2], confidence=0.95, causes=[BOUNDED],
                evidence={"low": low, "high": high, "standing": True},
            )  # fmt: skip

    def _clipped(self, history: RunHistory, place: Place) -> bool:
        """Whether the last evaluation's pictures end at 0 and 1, or at -1 and 1, and normalised ones of the training
        go beyond."""
        low, high, mean = (watched(history, f"eval_input_{name}", place) for name in ("low", "high", "mean"))
        if high != 1 or low not in (0, -1) or not watched(history, "top_target_share", place) >= 0:
            return False
        many = min(watched(history, f"eval_input_{end}s", place) for end in ("low", "high")) >= self.at["at_ends"]
        lows, highs, means, sizes = (
            _newest(history, f"input_{name}", place) for name in ("low", "high", "mean", "std")
        )
        if not many or min(map(len, (lows, highs, means, sizes))) < self.at["looks"]:
            return False
        size = float(numpy.median(sizes))
        past = min(low - float(lows.max()), float(highs.min()) - high) >= self.at["beyond"] * size
        least = self.at["shifted"] * size
        shifted = max(float(means.min()) - mean, mean - float(means.max())) >= least
        ours, theirs = both_losses(history, *place)
        worse = 0 < self.at["worse"] * ours < theirs and history.role("reward") is None
        return bool(size > 0 and past and shifted and numpy.abs(means).max() <= least and worse)

    def _holds(self, name: str, holds: bool, place: Place) -> bool:
        row = self._places.setdefault(name, [])
        if not holds:
            row.clear()
            return False
        row.append(place)
        return len(row) >= self.at["evaluations"] and self.first("colours" if name == "colours" else "ends", place[2])

    def _ends(self, history: RunHistory, end: str, sign: int, place: Place) -> tuple[float, float, bool]:
        """Black, or white, of the training and of the evaluation; whether the latter is beyond the former."""
        bounds = [_newest(history, f"input_{name}", place) for name in ("low", "high")]
        theirs = watched(history, f"eval_input_{end}", place)
        mine = bounds[0] if end == "low" else bounds[1]
        if min(map(len, bounds)) < self.at["looks"]:
            return math.nan, theirs, False
        size = float(bounds[1].max() - bounds[0].min())
        shares = _newest(history, f"input_{end}s", place)
        clear = len(shares) > 0 and float(numpy.median(shares)) >= self.at["share"]
        clear = clear and watched(history, f"eval_input_{end}s", place) >= self.at["share"]
        same = float(mine.max() - mine.min()) <= self.at["same"] * size
        off = sign * (float(mine[-1]) - theirs) > self.at["off"] * size
        rows = watched(history, "distinct_rows", place)
        few = rows < 2 * watched(history, "example_rows", place)  # the same pictures each time
        return float(mine[-1]), theirs, bool(size > 0 and clear and same and off and not few)


class EvaluationAltered(WatchRule):
    """Evaluations are given the same examples each time, altered at random: the augmentation is left on.

    Of rows of eight numbers or more the watch compares the sketches of two evaluations, and means and sizes of their
    rows. The examples are others than in the last one, and 64 or more in the same order are nearer to those that had
    their places, in the mean, than to those any number of places on, by five deviations of such means: they are the
    same examples, altered. By how much: a fiftieth of the squared distance of two examples at least, for an attack on
    the model, or a little noise, is an evaluation of its own. A model that is trained on noise, as a loss of squares
    has it, is evaluated on noise as well: only cross-entropies and logistic losses count. Two comparisons in a row.

    What to do: `transform=evaluation_transform` for the evaluation's data; a `random_split` of one data set has one
    transformation for both parts.
    """

    name, family, kind, severity = "evaluation_altered", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_altered"
    needs = ("=model/evaluated_altered", "eval_loss|eval_accuracy|evaluation")
    least = 3
    about = "Evaluations are given the same examples each time, altered at random."
    thresholds: ClassVar = {
        "nearer": (5.0, "deviations; ours"),
        "by": (0.02, "of the squared distance of two examples; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("augmentation in evaluation: evaluation examples are altered at random, as those of the training are",)
    remedies = (
        "give the evaluation a transformation of its own, without random parts",
        "two parts of a `random_split` share one data set and its transformation: make two data sets, with two",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        by = watched(history, "evaluated_altered_by", place)
        classes = watched(history, "top_target_share", place) >= 0 and history.role("reward") is None
        altered = value >= self.at["nearer"] and by >= self.at["by"]
        if self.lasts(altered and classes, place, self.at["evaluations"] - 1):
            yield self.finding(
                self._row[0][0], "Evaluations are given the examples of the one before, altered at random: they "
                "are nearer to those at their places than to others, and none is the same.", found=place[0],
                segment=place[2], confidence=0.9,
                evidence={"nearer": rounded(value), "by": rounded(by), "standing": True},
            )  # fmt: skip


class RowsStandardised(WatchRule):
    """Each example is standardised by itself in the training, and not in the evaluations.

    In all looks at the training so far, eight at least, each of the rows that are looked at (eight or more, of 32
    numbers or more) has a mean of 0 and the deviation of the others, to half a hundredth, and the deviation of all
    numbers is 1, to a thirtieth: no data are so by themselves. In three evaluations in a row rows of the same size have
    not: half of them are a tenth or more away in their mean or deviation. The other way round nothing is said, for
    noise, and parts of examples that are cut out, take it away from the training's. Nor is it where evaluations are
    nearly as good as the training: their loss has to be a tenth above it, where both are known.

    What to do: prepare what is held out by the same function as what is trained on.
    """

    name, family, kind, severity = "rows_standardised", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/eval_input_rows_off"
    needs = ("=model/eval_input_rows_off", "=model/input_rows_off_most")
    least = 3
    about = "Each example is standardised by itself in the training, and not in evaluations."
    thresholds: ClassVar = {
        "looks": (8.0, "at the training; ours"),
        "same": (0.005, "of the deviation, what each of the training's rows may be off; ours"),
        "scale": (1 / 30, "of the training's deviation, from 1; ours"),
        "off": (0.1, "of the deviation, half of an evaluation's rows; ours"),
        "worse": (1.1, "times the training's loss, the evaluation's; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("normalisation differs: the training's examples are standardised each by itself, evaluations' are not",)
    remedies = ("prepare what is held out by the same function as what is trained on, each example by itself",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        most, scales = (_newest(history, f"input_{name}", place) for name in ("rows_off_most", "std"))
        few = watched(history, "distinct_rows", place) < 2 * watched(history, "example_rows", place)
        each = min(len(most), len(scales)) >= self.at["looks"] and bool(most.max() <= self.at["same"]) and not few
        each = each and bool(numpy.abs(scales - 1).max() <= self.at["scale"])
        ours, theirs = both_losses(history, *place)
        better = ours > 0 and theirs < self.at["worse"] * ours
        if self.lasts(each and value >= self.at["off"] and not better, place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], "Each of the training's examples has a mean of 0 and the same deviation: it is "
                f"standardised by itself. Half of the evaluations' are {value:.2g} deviations or more away from that.",
                found=place[0], segment=place[2], confidence=0.9,
                evidence={"training": rounded(float(most[-1])), "evaluation": rounded(value), "standing": True},
            )  # fmt: skip


def bounded(history: RunHistory, place: Place, limits: Mapping[str, float]) -> bool:
    """Whether the last evaluation's pictures have the range in which pictures are stored or halved, and the training's,
    which are normalised, another one, another mean and more deviation in each look."""
    low, high, deviation = (watched(history, f"eval_input_{name}", place) for name in ("low", "high", "std"))
    ends = min(watched(history, f"eval_input_{end}s", place) for end in ("low", "high"))
    if high != 1 or low not in (0, -1) or ends >= limits["at_ends"]:
        return False
    lows, highs, means, sizes = (_newest(history, f"input_{name}", place) for name in ("low", "high", "mean", "std"))
    if min(map(len, (lows, highs, means, sizes))) < limits["looks"]:
        return False
    size = float(numpy.median(sizes))
    normal = max(abs(float(numpy.median(means))), abs(size - 1)) <= limits["normal"]
    past = min(low - float(lows.max()), float(highs.min()) - high) >= limits["past"] * size
    narrow = 0 < limits["narrower"] * deviation <= float(sizes.min())
    beyond = []
    for name in ("mean", "red", "green", "blue", "first", "last"):
        mine, here = _newest(history, f"input_{name}", place), watched(history, f"eval_input_{name}", place)
        if len(mine) >= limits["looks"] and math.isfinite(here):
            beyond.append(max(float(mine.min()) - here, here - float(mine.max())))
    return bool(normal and past and narrow and max(beyond) >= limits["outside"] * size)


def exchanged(history: RunHistory, place: Place) -> bool:
    """Whether the last evaluation's red and blue are those of the training exchanged. What is divided by is r times as
    much in one as in the other, and what is subtracted d more: both follow from one channel, and say the other."""
    away, noise, ours, theirs = {}, {}, {}, {}
    for name in ("red", "green", "blue", "red_std", "green_std", "blue_std"):
        mine = _newest(history, f"input_{name}", place)
        if len(mine) < _LEAST:
            return False
        ours[name], noise[name] = float(mine.mean()), float(mine.std(ddof=1))
        theirs[name] = watched(history, f"eval_input_{name}", place)
        away[name] = abs(theirs[name] - ours[name])
    deviations = [one[f"{name}_std"] for one in (ours, theirs) for name in ("red", "blue")]
    if not min(deviations) > 0:
        return False
    most = max(noise["red"], noise["green"], noise["blue"])
    ratio = theirs["red_std"] / ours["blue_std"]
    beside = theirs["red"] - ratio * ours["blue"]
    followed = abs((ours["red"] - beside) / ratio - theirs["blue"])
    product = abs(math.log(deviations[0] * deviations[1] / (deviations[2] * deviations[3])))
    green = away["green"] <= _WITHIN * most and away["green_std"] <= _EVEN * ours["green_std"]
    apart = min(away["red"], away["blue"]) >= _APART * most
    return (
        apart and green and product <= _EVEN and followed <= max(_WITHIN * most, _EVEN * (away["red"] + away["blue"]))
    )


def channels_apart(history: RunHistory, place: Place, limits: Mapping[str, float]) -> bool:
    """Whether one channel of the evaluation's pictures lies above all looks at the training's, and another one below:
    what is subtracted is not the same for each, and hardly shows in the mean of all."""
    away = []
    for name in ("red", "green", "blue", "first", "last"):
        mine, here = _newest(history, f"input_{name}", place), watched(history, f"eval_input_{name}", place)
        scale = usual(history.channel(f"model/input_{name}_std"), *place)
        if len(mine) >= limits["looks"] and scale > 0 and math.isfinite(here):
            beyond = here > mine.max() or here < mine.min()
            away.append(beyond * (here - float(numpy.median(mine))) / scale)
    opposed = len(away) > 1 and min(max(away), -min(away)) >= limits["near_mean"]
    return bool(opposed and max(away) - min(away) >= limits["opposed"])


def _newest(history: RunHistory, name: str, place: Place) -> Floats:
    channel = history.channel(f"model/{name}")
    values = newest(channel, *place, _LOOKS) if channel is not None else numpy.empty(0)
    return values[numpy.isfinite(values)]


RULES = (EvaluationPictures, EvaluationAltered, RowsStandardised)
