"""What evaluations of a model of denoising are given at the ends and in the middle of its times.

In:   figures of the watch: mean, deviation and roughness of inputs at the least, the middle and the greatest times;
      whether rows have one time within the model.
Out:  findings of `EvaluationTimed`, `TimesReversed`, `MixedApart`, `TimeSame`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.cursor import known, newest, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.stages import is_curriculum
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.data.scales import elsewhere

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

    Numbers = numpy.ndarray[Any, numpy.dtype[numpy.float64]]

_LOOKS = 64
_EVEN = 0.5, 12**-0.5  # mean and deviation of numbers that are drawn evenly between 0 and 1
_NORMAL = 0.1  # from mean 0 and deviation 1
_SAME = 1.05  # of deviations that are alike
_MORE = 1.5  # times what one quarter makes of the variance of all inputs
_LAST = 8  # rows of the training's loss


class EvaluationTimed(WatchRule):
    """Examples, or noise, are prepared in another way in evaluations of a model of denoising than in its training.

    The model is given a time with a number a row. In the quarter of the rows with the least time, or with the greatest,
    its inputs are nearly examples, or nearly noise: a difference that noise hides in all of them shows there. In three
    evaluations in a row the deviation of such a quarter lies beyond that of all looks at the training, eight at least,
    by three tenths or more, and so does its mean; both together are as far from the training's medians as a whole
    deviation, or a factor of e. The mean of all of the evaluation's inputs lies beyond all looks on the same side, by a
    tenth of the deviation or more: a quarter alone may have the examples of one class. Or the quarter's deviation alone
    lies beyond that of all looks by a factor of 1.8, and the deviation of all inputs on the same side by a tenth, as
    where numbers from 0 to 1 stand for ones that were scaled. The quarter's mean time is one
    that the training's quarters have, and the configuration speaks of no other data. Where the training's quarter has
    the mean and the deviation of numbers between 0 and 1, and the evaluation's those of normal noise, the noise of the
    training is the likeliest cause.

    What to do: prepare what is held out by the same function as what is trained on, and draw noise by one for both.
    """

    name, family, kind, severity = "evaluation_timed", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/eval_input_early_std"
    needs = ("=model/eval_input_early_std", "=model/input_early_std")
    least = 3
    about = "Examples or noise are prepared in another way in evaluations of a model of denoising than in its training."
    thresholds: ClassVar = {
        "looks": (8.0, "at the training; ours"),
        "beyond": (1.3, "times the deviation of all looks, or less than it; ours"),
        "apart": (1.0, "deviations of the mean and ln of the deviation together; ours"),
        "all": (0.1, "deviations beyond all looks, the mean of all inputs; ours"),
        "alone": (1.8, "times the deviation of all looks, or less than it, where the mean is theirs; ours"),
        "wide": (1.1, "the same, of all inputs; ours"),
        "worse": (1.25, "times the deviation of all looks, or less than it, where evaluations are worse; ours"),
        "loss": (1.5, "times the training's loss, for that; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("inputs not normalised: what the evaluation is given is prepared in another way than in the training",)
    remedies = ("prepare what is held out by the same function as what is trained on",
                "draw noise by one function for both: `torch.randn_like(images)`")  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ends = [end for end in ("early", "late") if self._differs(history, end, place)]
        meant = elsewhere(history) or is_curriculum(history)
        if not self.lasts(bool(ends) and not meant, place, self.at["evaluations"]):
            return
        end = ends[0]
        ours = [float(numpy.median(_newest(history, f"{end}_{what}", place))) for what in ("mean", "std")]
        theirs = [watched(history, f"eval_input_{end}_{what}", place) for what in ("mean", "std")]
        yield self.finding(
            self._row[0][0], f"Where the time is {'least' if end == 'early' else 'greatest'}, evaluations are given "
            f"inputs of mean {theirs[0]:.3g} and deviation {theirs[1]:.3g}, and the training has {ours[0]:.3g} and "
            f"{ours[1]:.3g}.", found=place[0], segment=place[2], confidence=0.9,
            causes=[*([_UNIFORM] if _is_even(ours, theirs) else []), *self.causes],
            evidence={"mean": rounded(ours[0]), "deviation": rounded(ours[1]), "eval_mean": rounded(theirs[0]),
                      "eval_deviation": rounded(theirs[1]), "standing": True},
        )  # fmt: skip

    def _differs(self, history: RunHistory, end: str, place: Place) -> bool:
        means, scales, times = (_newest(history, f"{end}_{what}", place) for what in ("mean", "std", "time"))
        mean, scale, time = (watched(history, f"eval_input_{end}_{what}", place) for what in ("mean", "std", "time"))
        every, here = _newest(history, "mean", place), watched(history, "eval_input_mean", place)
        deviations = _newest(history, "std", place)
        if min(map(len, (means, scales, times, every, deviations))) < self.at["looks"]:
            return False
        middling = float(numpy.median(deviations))
        if not (min(scales.min(), scale, middling) > 0 and times.min() <= time <= times.max()):
            return False
        outside = scale >= self.at["beyond"] * scales.max() or self.at["beyond"] * scale <= scales.min()
        side = 1 if mean > means.max() else -1 if mean < means.min() else 0
        middle, size = float(numpy.median(means)), float(numpy.median(scales))
        apart = abs(mean - middle) / size + abs(math.log(scale / size)) >= self.at["apart"]
        beyond = here - every.max() if side > 0 else every.min() - here
        alone, whole = self.at["alone"], watched(history, "eval_input_std", place)
        wider = scale >= alone * scales.max() and whole >= self.at["wide"] * deviations.max()
        if wider or (alone * scale <= scales.min() and self.at["wide"] * whole <= deviations.min()):
            return True
        if self._is_worse(history, end, (scale, scales), (whole, deviations), place):
            return True
        return bool(outside and side and apart and beyond >= self.at["all"] * middling)

    def _is_worse(
        self, history: RunHistory, end: str, part: tuple[float, Numbers], whole: tuple[float, Numbers], place: Place
    ) -> bool:
        """Whether a quarter's deviation alone is off by less, that of all inputs by more than this quarter makes, and
        evaluations are worse. part, whole: the evaluation's deviation, and the training's."""
        other = "late" if end == "early" else "early"
        theirs, ours = watched(history, f"eval_input_{other}_std", place), _newest(history, f"{other}_std", place)
        if not len(ours) or not (ours.min() / _SAME <= theirs <= ours.max() * _SAME):
            return False
        factor, wide = self.at["worse"], self.at["wide"]
        below = factor * part[0] <= part[1].min() and wide * whole[0] <= whole[1].min()
        if not below and not (part[0] >= factor * part[1].max() and whole[0] >= wide * whole[1].max()):
            return False
        usual_part, usual_whole = (float(numpy.median(one)) for _, one in (part, whole))
        by_quarter = abs(part[0] ** 2 - usual_part**2) / 4
        if abs(whole[0] ** 2 - usual_whole**2) < _MORE * by_quarter:
            return False
        loss, held = usual(history.role("loss"), *place, _LAST), known(history.role("eval_loss"), *place)
        return bool(held >= self.at["loss"] * loss)


class TimesReversed(WatchRule):
    """Evaluations mix examples with noise the other way round than the training: more of it where that has less.

    The model is given a time with a number a row. In the training one end of the times is rough as noise is, and the
    other is smoother, in all looks, eight at least: the squared distance of neighbours, as a share of that of any two
    numbers, lies a fifth or more apart between the quarters of the rows with the least and the greatest time. In three
    evaluations in a row the quarter that is the smoother one in the training is the rougher one, by a fifth or more,
    and the mean times of both quarters are such as the training's have.

    What to do: mix examples and noise by one function for both sides.
    """

    name, family, kind, severity = "times_reversed", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/eval_input_early_rough"
    needs = ("=model/eval_input_early_rough", "=model/input_early_rough")
    least = 3
    about = "Evaluations mix examples with noise the other way round in time than the training."
    thresholds: ClassVar = {
        "looks": (8.0, "at the training; ours"),
        "apart": (0.2, "of what noise has, between the ends of the times; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("time reversed: the evaluation has the noise where the training has the examples",)
    remedies = ("mix examples and noise by one function, for the training and for evaluations",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        early, late = (_newest(history, f"{end}_rough", place) for end in ("early", "late"))
        theirs = value - watched(history, "eval_input_late_rough", place)
        apart, known = numpy.empty(0), all(_is_known(history, end, place) for end in ("early", "late"))
        if len(early) == len(late) >= self.at["looks"]:
            apart = early - late
        sides = [side for side in (1, -1) if len(apart) and (side * apart >= self.at["apart"]).all()]
        turned = bool(sides) and known and sides[0] * theirs <= -self.at["apart"]
        if self.lasts(turned, place, self.at["evaluations"]):
            ends = ("least", "greatest") if sides[0] > 0 else ("greatest", "least")
            yield self.finding(
                self._row[0][0], f"The training is given noise where the time is {ends[0]}, and evaluations where it "
                f"is {ends[1]}.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"training": rounded(float(numpy.median(apart))), "evaluation": rounded(theirs),
                          "standing": True},
            )  # fmt: skip


class MixedApart(WatchRule):
    """The training mixes examples with noise by other factors than evaluations do.

    The model is given a time with a number a row. In three evaluations in a row the deviation of its inputs in the
    quarter of the rows in the middle of the times lies beyond that of all looks at the training, eight at least, and
    from their median by a factor of 1.2 or more, and that of all inputs lies beyond all looks on the same side; while
    in the quarters with the least and the greatest time, where inputs are nearly examples and nearly noise, it differs
    from the training's median by seven tenths of that at most, in logarithms. The mean times of all three quarters are
    such as the training's have, and the configuration speaks of no other data and of no curriculum. So are inputs where
    roots are forgotten: factors of α and 1 − α have a sum of squares of a half in the middle, those of √α and √(1 − α)
    one of 1 everywhere (Ho et al., Denoising Diffusion Probabilistic Models, 2020, equation 4).

    What to do: mix examples and noise by one function for both sides.
    """

    name, family, kind, severity = "mixed_apart", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/eval_input_middle_std"
    needs = ("=model/eval_input_middle_std", "=model/input_middle_std")
    least = 3
    about = "Examples and noise are mixed by other factors in the training than in evaluations of it."
    thresholds: ClassVar = {
        "looks": (8.0, "at the training; ours"),
        "beyond": (1.2, "times the median deviation of the looks, or less than it; ours"),
        "ends": (0.7, "of the logarithm of that factor to the median, at the ends of the times, at most; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("examples and noise mixed by other factors in the training than in the evaluation, as without a root",)
    remedies = ("mix examples and noise by one function, for the training, evaluations and what is drawn",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        meant = elsewhere(history) or is_curriculum(history)
        if not self.lasts(not meant and self._differs(history, value, place), place, self.at["evaluations"]):
            return
        middle = float(numpy.median(_newest(history, "middle_std", place)))
        yield self.finding(
            self._row[0][0], f"In the middle of the times evaluations are given inputs of deviation {value:.3g}, and "
            f"the training {middle:.3g}; at the least and the greatest times they differ less.",
            found=place[0], segment=place[2], confidence=0.9,
            evidence={"deviation": rounded(middle), "eval_deviation": rounded(value), "standing": True},
        )  # fmt: skip

    def _differs(self, history: RunHistory, value: float, place: Place) -> bool:
        parts = ("early", "middle", "late")
        every = {part: _newest(history, f"{part}_std", place) for part in parts}
        every[""] = _newest(history, "std", place)
        if min(map(len, every.values())) < self.at["looks"] or min(map(numpy.min, every.values())) <= 0:
            return False
        beyond, looks = self.at["beyond"], every["middle"]
        usual = float(numpy.median(looks))
        side = 1 if value > max(looks.max(), beyond * usual) else -1 if value < min(looks.min(), usual / beyond) else 0
        whole = watched(history, "eval_input_std", place)
        past = whole > every[""].max() if side > 0 else whole < every[""].min()
        if not (side and past and all(_is_known(history, part, place) for part in parts)):
            return False
        values = [watched(history, f"eval_input_{part}_std", place) for part in parts]
        if min(values) <= 0:
            return False
        early, middle, late = (
            abs(math.log(one / float(numpy.median(every[part])))) for one, part in zip(values, parts, strict=True)
        )
        return max(early, late) <= self.at["ends"] * middle


def _is_known(history: RunHistory, part: str, place: Place) -> bool:
    """Whether the quarter's mean time is one that the training's quarters have."""
    times, time = _newest(history, f"{part}_time", place), watched(history, f"eval_input_{part}_time", place)
    return len(times) > 0 and bool(times.min() <= time <= times.max())


class TimeSame(WatchRule):
    """All rows of a batch have one time within the model, though it is given several.

    The model is given a time with a number a row, and these differ in each batch that was looked at. A module that is
    named as an embedding of times (`time_mlp`, `t_embedder`, `sigma_proj`) gives the same numbers for all rows, in
    twelve looks in a row, so that no layer that begins at zero is meant: the time was divided in whole numbers, rounded
    to one number, or replaced.

    What to do: print what the embedding is given, for two times: `t / T`, and not `t // T`, and in 32 bits.
    """

    name, family, kind, severity = "time_same", "data", "data", "warning"
    proves = "training"
    series = "model/time_same"
    needs = ("=model/time_same", "=model/time_low")
    least = 12
    about = "All rows of a batch have one time within the model, though it is given several."
    thresholds: ClassVar = {
        "looks": (12.0, "in a row, at batches whose times differ; ours"),
    }
    causes = ("time lost: within the model it is one number, as where it is divided in whole numbers",)
    remedies = ("divide times as numbers with fractions: `t / T`, and not `t // T`, nor `(t / T).long()`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        low, high = (watched(history, f"time_{end}", place) for end in ("low", "high"))
        if self.lasts(value == 1 and low < high, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"The model is given times from {low:.3g} to {high:.3g}, and what it makes of them is "
                "the same for all rows.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"low": rounded(low), "high": rounded(high), "standing": True},
            )  # fmt: skip


def _newest(history: RunHistory, name: str, place: Place) -> Numbers:
    channel = history.channel(f"model/input_{name}")
    values = newest(channel, *place, _LOOKS) if channel is not None else numpy.empty(0)
    return values[numpy.isfinite(values)]


def _is_even(ours: list[float], theirs: list[float]) -> bool:
    """Whether the training's noise is drawn evenly between 0 and 1, and the evaluation's normally."""
    even = abs(ours[0] - _EVEN[0]) <= _NORMAL and abs(ours[1] - _EVEN[1]) <= _NORMAL
    return even and abs(theirs[0]) <= _NORMAL and abs(theirs[1] - 1) <= _NORMAL


_UNIFORM = "noise of the wrong distribution: `torch.rand` in the training, where `torch.randn` is meant"

RULES = (EvaluationTimed, TimesReversed, MixedApart, TimeSame)
