"""What a model of denoising is given where examples are drawn with it, step by step.

In:   figures of the watch: time, deviation and roughness of what a drawing is given first and last, and of the inputs
      of the training at both ends of its times.
Out:  findings of `DrawnApart`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy

from barograph.doctor.kernel.cursor import newest, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

    Numbers = numpy.ndarray[Any, numpy.dtype[numpy.float64]]

_LOOKS, _LAST = 64, 8


class DrawnApart(WatchRule):
    """Where examples are drawn with a model of denoising, it is given what its training never had at that time.

    The model is given a time with a number a row, and in an evaluation three passes or more in which all rows have one
    time, of which the first is given noise, by how rough it is: there examples are drawn. The training was looked at
    eight times or more, and has noise at one end of its times. In three evaluations in a row one of these holds:

    - What is drawn begins with numbers of less than half the size of all that the training was given, at either end of
      its times, or more than twice as large; both ends of the training have about one size, so that it is none of a
      time: noise that is not multiplied by the first level, or is multiplied by the last one.
    - The training is given noise at one end of the times and smoother examples at the other, and the drawing begins at
      the time of the examples with what is as rough as noise, and ends at the time of the noise.
    - The drawing begins and ends at the right times, and ends with numbers that are three tenths larger than those of
      the training, and than it began with, and as rough as noise; it is so in five evaluations in a row, and grows no
      smaller from the first to the last of them: the steps lead away from the examples. A model that has learnt little
      ends with such numbers too, and comes nearer from evaluation to evaluation.
    - The drawing begins at the right time, and ends at one of the training's least times, or beyond, where it is given
      numbers that are rougher than nine tenths of the training's there by a fifth of what noise is, and half as rough
      as noise or more; in five evaluations in a row, which come no nearer, while the training's loss has fallen to a
      quarter of its first one or less (to half, where nine tenths of the noise or more are left), and an evaluation's
      to half, which is of weights that lag behind where a slow average is evaluated: too little noise is taken out, as
      with the levels of another schedule. Of a loss that weighs little where noise is little, as one by the ratio of
      signal to noise, little is learnt there, and some noise is left by the model, with any sampler.
    - It is rougher there by as much, and in four evaluations in a row rougher from one to the next, by a seventh in
      all, while that loss has fallen to a quarter, and falls: what a better model says is used wrongly.
    - What it is given first has the training's size, to the same factor of two, and the times that it is given are in
      other units than in the training: one end of them lies beyond all of the training's times by three widths of
      these, or both ends are within a fiftieth of that width. No look at the training has a time that is further from
      its mean end than its ends are apart: levels of noise that may be any number are seldom the largest ones.

    An example that is changed from a time in the middle on, or noise that is drawn a little colder, is neither.

    What to do: draw one example by hand, and print time and deviation at each step beside those of a training batch.
    """

    name, family, kind, severity = "drawn_apart", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/drawn_first_std"
    needs = ("=model/drawn_first_std", "=model/input_early_std")
    least = 3
    about = "Where examples are drawn, the model is given what its training never had at that time."
    thresholds: ClassVar = {
        "looks": (8.0, "at the training; ours"),
        "beyond": (3.0, "widths of the training's times, an end of a drawing's; ours"),
        "within": (0.02, "of that width, the distance between a drawing's ends; ours"),
        "size": (2.0, "times the deviation of all looks, or less than it; ours"),
        "alike": (2.0, "between the deviations of both ends of the times; ours"),
        "noise": (0.8, "of what noise has, of what a drawing begins with; ours"),
        "end": (0.7, "the same, of the training at one end of its times; ours"),
        "apart": (0.2, "of what noise has, between the ends of the times; ours"),
        "near": (0.35, "of the way between the ends' times; ours"),
        "grown": (1.3, "times the median deviation of the training, and the first one, at the end; ours"),
        "evaluations": (3.0, "in a row; ours"),
        "away": (5.0, "evaluations in a row that lead away, or leave the noise; ours"),
        "left": (0.5, "of what noise has, of what a drawing ends with that leaves it; ours"),
        "learnt": (0.25, "of the first loss, for that, at most; ours"),
        "evaluated": (0.5, "the same of an evaluation's loss, and of the training's where all the noise is left; ours"),
        "whole": (0.9, "as rough as noise, of all the noise; ours"),
        "risen": (1.15, "times as rough as three evaluations before, each rougher than the last; ours"),
    }
    causes = ("sampler wrong: it begins with noise of another size than the training's",)
    remedies = (
        "print time and deviation of what the model is given, at each step of a drawing and of a training batch",
        "take the times, levels and the sign of a step from the function that the training mixes noise by",
    )

    def reset(self) -> None:
        super().reset()
        self._before: list[tuple[int, str, float, int]] = []  # segment, what was seen, how much at the end, step
        self._rougher: list[tuple[int, float, float, int]] = []  # segment, roughness at the end, loss, step

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ours, drawn = _training(history, place), _drawn(history, place)
        what = self._what(ours, drawn) if ours is not None else ""
        if ours is not None and self._in_other_units(history, ours, drawn, place):
            what = "units"
        loss = self._learnt(history, drawn, place) if what in ("left", "rougher") else math.nan
        if ours is not None and self._rises(what, drawn, loss, place) and self.first(place[2]):
            yield self._say("rougher", ours, drawn, place)
        what = "" if what == "rougher" or (what == "left" and math.isnan(loss)) else what
        if self._before and self._before[-1][:2] != (place[2], what):
            self._before = []
        most, away = int(self.at["away"]), what in ("away", "left")
        ends = drawn.last_rough if what == "left" else drawn.last_std
        self._before = [*self._before[1 - most :], (place[2], what, ends, place[0])]
        if not what or ours is None or len(self._before) < (most if away else self.at["evaluations"]):
            return
        stays = _STAYS["whole" if what == "left" and drawn.last_rough >= self.at["whole"] else what] if away else 0.0
        if ends >= stays * self._before[0][2] and self.first(place[2]):
            yield self._say(what, ours, drawn, place)

    def _in_other_units(self, history: RunHistory, ours: _Ends, drawn: _Drawing, place: Place) -> bool:
        """Whether what is drawn begins like the training's noise, and comes with other times than that has."""
        sizes, rough = numpy.median(ours.std, axis=1), numpy.median(ours.rough, axis=1)
        if not (rough.max() >= self.at["end"] and drawn.first_rough >= self.at["noise"]):
            return False
        channels = [history.channel(f"model/time_{end}") for end in ("low", "high")]
        if None in channels or not sizes.min() / self.at["size"] <= drawn.first_std <= self.at["size"] * sizes.max():
            return False
        low, high = (newest(one, *place, _LOOKS) for one in channels if one is not None)
        least, most = float(numpy.nanmin(low)), float(numpy.nanmax(high))
        early, late = numpy.median(ours.time, axis=1)
        width, ends = most - least, (drawn.first_time, drawn.last_time)
        if not (width > 0 and max(most - late, early - least) <= late - early):
            return False
        beyond = max(max(one - most, least - one) for one in ends) >= self.at["beyond"] * width
        return beyond or abs(ends[1] - ends[0]) <= self.at["within"] * width

    def _what(self, ours: _Ends, drawn: _Drawing) -> str:
        """What is seen in this drawing."""
        low, high = ours.std.min(), ours.std.max()
        time, size, rough = (numpy.median(one, axis=1) for one in ours)
        if not (rough.max() >= self.at["end"] and drawn.first_rough >= self.at["noise"]):
            return ""  # nothing that begins with noise
        outside = drawn.first_std * self.at["size"] < low or drawn.first_std > self.at["size"] * high
        if outside and drawn.first_std > 0 and size.max() <= self.at["alike"] * size.min():
            return "size"
        apart = ours.rough[0] - ours.rough[1]
        if not ((apart >= self.at["apart"]).all() or (apart <= -self.at["apart"]).all()):
            return ""
        noise = int(rough.argmax())
        if self._is_at(drawn.first_time, time, 1 - noise) and self._is_at(drawn.last_time, time, noise):
            return "turned"
        right = self._is_at(drawn.first_time, time, noise) and self._is_at(drawn.last_time, time, 1 - noise)
        rougher = right and drawn.last_rough >= numpy.quantile(ours.rough[1 - noise], 0.9) + self.at["apart"]
        larger = drawn.last_std >= self.at["grown"] * max(size.max(), drawn.first_std)
        if rougher and larger and drawn.last_rough >= self.at["noise"]:
            return "away"
        if not (rougher and self._is_at(drawn.last_time, time, 1 - noise, 0.0)):
            return ""
        return "left" if drawn.last_rough >= self.at["left"] else "rougher"

    def _rises(self, what: str, drawn: _Drawing, loss: float, place: Place) -> bool:
        """Whether what is drawn is rougher from evaluation to evaluation, while the loss falls."""
        if math.isnan(loss) or (self._rougher and self._rougher[-1][0] != place[2]):
            self._rougher = []
        if math.isnan(loss):
            return False
        self._rougher = [*self._rougher[1 - _RISES :], (place[2], drawn.last_rough, loss, place[0])]
        rough = [one[1] for one in self._rougher]
        rises = len(rough) == _RISES and all(one < other for one, other in pairwise(rough))
        return rises and rough[-1] >= self.at["risen"] * rough[0] and loss <= self._rougher[0][2]

    def _is_at(self, at: float, time: Numbers, end: int, near: float | None = None) -> bool:
        """Whether a time is near an end of the training's times, or beyond it."""
        way, near = float(time[end] - time[1 - end]), self.at["near"] if near is None else near
        return (float(time[end]) - at) / way <= near if way else False

    def _learnt(self, history: RunHistory, drawn: _Drawing, place: Place) -> float:
        """The training's loss of late, where it has fallen since it began, and so has an evaluation's, if there is
        one."""
        loss, evaluated = history.role("loss"), history.role("eval_loss")
        late = usual(loss, *place, _LAST) if loss is not None else math.nan
        most = self.at["learnt" if drawn.last_rough < self.at["whole"] else "evaluated"]
        if loss is None or not late <= most * loss.first:
            return math.nan
        last = math.nan if evaluated is None else float(newest(evaluated, *place, 1)[0])
        behind = evaluated is not None and last > self.at["evaluated"] * max(loss.first, evaluated.first)
        return math.nan if behind else late

    def _say(self, what: str, ours: _Ends, drawn: _Drawing, place: Place) -> Finding:
        ends = [f"{value:.3g}" for value in numpy.median(ours.std, axis=1)]
        if what == "size":
            message = (f"What is drawn begins with numbers of deviation {drawn.first_std:.3g}, where the training is "
                       f"given {ends[0]} at its least times and {ends[1]} at its greatest.")  # fmt: skip
            causes = list(self.causes)
        elif what == "turned":
            message = (f"Drawing begins with noise at time {drawn.first_time:.3g} and ends at {drawn.last_time:.3g}; "
                       "the training is given examples where that begins, and noise where it ends.")  # fmt: skip
            causes = ["time reversed: the sampler goes through its times in the other direction"]
        elif what == "units":
            least, most = (f"{one:.3g}" for one in numpy.median(ours.time, axis=1))
            message = (f"Where examples are drawn, the model is given times from {drawn.first_time:.3g} to "
                       f"{drawn.last_time:.3g}; those of the training are about {least} at the least, and {most} at "
                       "the greatest.")  # fmt: skip
            causes = ["time scaled otherwise: where examples are drawn, times are in other units than in the training, "
                      "as the number of a step"]  # fmt: skip
        elif what == "left":
            rough = float(numpy.median(ours.rough, axis=1).min())
            message = (f"What is drawn ends, at time {drawn.last_time:.3g}, with a roughness of {drawn.last_rough:.2g} "
                       f"and comes no nearer; noise has 1 and the training's inputs {rough:.2g}: too little noise is "
                       "taken out.")  # fmt: skip
            causes = ["sampler wrong: its levels of noise are not those of the training"]
        elif what == "rougher":
            message = (f"What is drawn ends, at time {drawn.last_time:.3g}, with a roughness of "
                       f"{drawn.last_rough:.2g}, and {self._rougher[0][1]:.2g} three evaluations before, while the "
                       "training's loss falls.")  # fmt: skip
            causes = ["sampler wrong: it uses what the network says in another way than the training"]
        else:
            message = (f"What is drawn ends with numbers of deviation {drawn.last_std:.3g}, as rough as noise, and "
                       f"began with {drawn.first_std:.3g}: the sampler's steps lead away from examples.")  # fmt: skip
            causes = ["sign reversed: the sampler steps against what the network is trained to say"]
        begins = self._rougher[0][3] if what == "rougher" else self._before[0][3]
        return self.finding(
            begins, message, found=place[0], segment=place[2], confidence=0.9, causes=causes,
            evidence={"first": rounded(drawn.first_std), "last": rounded(drawn.last_std), "standing": True},
        )  # fmt: skip


class _Ends(NamedTuple):
    """Of the least and the greatest times [2, looks]."""

    time: Numbers
    std: Numbers
    rough: Numbers


class _Drawing(NamedTuple):
    first_time: float
    first_std: float
    first_rough: float
    last_time: float
    last_std: float
    last_rough: float


_RISES = 4  # evaluations
_STAYS = {
    "away": 0.98,
    "left": 0.98,
    "whole": 0.95,
}  # of how much it was at the end of a drawing, five evaluations before


def _drawn(history: RunHistory, place: Place) -> _Drawing:
    return _Drawing(*(watched(history, f"drawn_{name}", place) for name in _Drawing._fields))


def _training(history: RunHistory, place: Place) -> _Ends | None:
    """What the training was given in its last looks; None where there are few."""
    found = []
    for what in _Ends._fields:
        channels = [history.channel(f"model/input_{end}_{what}") for end in ("early", "late")]
        rows = [newest(one, *place, _LOOKS) if one is not None else numpy.empty(0) for one in channels]
        found.append([one[numpy.isfinite(one)] for one in rows])
    many = min(len(one) for rows in found[:2] for one in rows)
    if many < DrawnApart.thresholds["looks"][0]:
        return None
    rough = found[2] if all(len(one) >= many for one in found[2]) else [numpy.full(many, numpy.nan)] * 2
    return _Ends(*(numpy.array([one[-many:] for one in rows]) for rows in (*found[:2], rough)))


RULES = (DrawnApart,)
