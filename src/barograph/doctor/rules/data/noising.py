"""Denoising: is the noise that a model is to tell in its input, and does the time say how much of it there is?

In:   figures of the watch, which compares inputs with the targets of a mean square.
Out:  findings of `TimesBroadcast`, `NoisedInputs`, `NoiseTargets`, `ConstantTime`, `SharedTime`,
      `TimesAgain`, `SharedNoise`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.data.regression import input_scale

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95
_VELOCITY = expression(r"(?i)veloc|(?:^|[^a-z])v[_-]?pred|pred(?:ict\w*)?[_-]v(?:$|[^a-z])")
_TARGET = expression(r"(?i)pred|objective|param|target")
_RAW = "inputs not normalised: examples of deviation {:.3g} hide noise of deviation 1, whatever the time is"
_ABSENT = 0.05  # factor of a noise in an input that does not have it


class NoisedInputs(WatchRule):
    """The noise of the noisiest inputs is too weak, or has nothing to do with the time.

    Targets are noise of mean 0 and deviation 1 in all looks, and the watch knows the factor of it in the inputs. In
    the quarter of the rows with the greatest time, or with the least, it should be near 1, for samples begin as
    noise alone: in 16 looks the median of the greater one is below seven tenths. Or the noise is not of the time
    that the model is given: in 16 looks the factor is the same in both quarters on the average, to an eighth of it,
    and is the greater one in the first quarter in four looks or more, and in the last in four or more, or it is the
    same to a fiftieth, while times differ; times of a narrow range, the least a quarter of the greatest or more,
    say nothing. Where the noise is in no input at all, see `unexplained_targets`.

    What to do: print the factors of image and noise at the first, middle and last time; add noise and call the model
    with the same `t`.
    """

    name, family, kind, severity = "noised_inputs", "data", "config", "warning"
    series = "model/noise_target"
    needs = ("=model/noise_share_late", "=model/noise_target")
    least = 16
    about = "The noise of the noisiest inputs is too weak, or has nothing to do with the time."
    thresholds: ClassVar = {
        "looks": (16.0, "of noise that is too weak; ours"),
        "most": (0.7, "factor of the noise in the noisiest quarter; 0.9 and more are usual; ours"),
        "same": (0.125, "of the factor, between the quarters; ours"),
        "times": (16.0, "looks, of noise of another time; ours"),
        "raw": (3.0, "deviation of inputs, beside which noise of deviation 1 is hardly seen; ours"),
        "signs": (4.0, "of these with the greater factor in either quarter; 2 of 100 such have fewer by chance; ours"),
        "exact": (0.02, "of the factor, between the quarters, whichever is greater; ours"),
        "narrow": (0.25, "of the greatest time, the least; ours"),
    }

    def begin(self) -> None:
        self._shares: list[tuple[float, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        early, late = (watched(history, f"noise_share_{name}", place) for name in ("early", "late"))
        if value != 1 or not math.isfinite(early + late):
            self._shares = []
            return
        self._shares = [*self._shares[1 - int(self.at["looks"]) :], (early, late)]
        about = {"found": place[0], "segment": place[2], "confidence": _PROOF}
        other = self._of_another_time(history, place)
        if other is not None:
            early, late = other
            if self.first("time", place[2]):
                yield self.finding(
                    0, f"The noise is in the inputs with a factor of {early:.2g} where the time is least, and of "
                    f"{late:.2g} where it is greatest.", key="time",
                    evidence={"early": rounded(early), "late": rounded(late), "standing": True},
                    causes=[*([_RAW.format(size)] if (size := self._size(history, place)) >= self.at["raw"] else []),
                            "timestep does not belong to the noise: the model is given another one than its input"],
                    remedies=["add noise and call the model with the same `t`"], **about,
                )  # fmt: skip
            return
        if len(self._shares) < self.at["looks"]:
            return
        early, late = (float(numpy.median(side)) for side in zip(*self._shares, strict=True))
        most = max(early, late)
        evidence = {"early": rounded(early), "late": rounded(late), "standing": True}
        if 2 * _ABSENT < most < self.at["most"] and self.first("weak", place[2]):
            yield self.finding(
                0, f"In the noisiest quarter of the times the noise has a factor of {most:.2g} in the inputs: samples "
                "begin as noise alone, which the model never sees.", key="weak", evidence=evidence,
                causes=["noise schedule too weak: at the last step most of an input is still the example"],
                remedies=["print the factors of example and noise at the first, middle and last step: the last is "
                          "near 0 and 1", "for 1,000 steps betas from 1e-4 to 0.02; for fewer, larger ones"], **about,
            )  # fmt: skip

    def _size(self, history: RunHistory, place: Place) -> float:
        """The deviation of inputs, beside noise of deviation 1."""
        return usual(history.channel("model/input_std"), *place)

    def _of_another_time(self, history: RunHistory, place: Place) -> tuple[float, float] | None:
        """The factors of both quarters, where they are the same."""
        some = self._shares[-int(self.at["times"]) :]
        low, high = (watched(history, f"time_{end}", place) for end in ("low", "high"))
        if len(some) < self.at["times"] or 0 < self.at["narrow"] * high <= low:
            return None
        early, late = (float(numpy.mean(side)) for side in zip(*some, strict=True))
        most, signs = max(early, late), sum(one < other for one, other in some)
        if most <= 2 * _ABSENT or abs(late - early) > self.at["same"] * most:
            return None
        mixed = self.at["signs"] <= signs <= len(some) - self.at["signs"]
        return (early, late) if mixed or abs(late - early) <= self.at["exact"] * most else None


class NoiseTargets(WatchRule):
    """The targets of a model of denoising are not noise that was drawn for them.

    The model is given a time with a number a row. The watch knows the targets of a mean square, and compares them with
    inputs of the same shape.

    - Targets are noise of mean 0 and deviation 1, and both are the same numbers, to 1e-5, in eight looks in a row: the
      noise was drawn once, and is learnt by heart. Of noise that is drawn anew they vary by a hundredth and more. So of
      flow matching, where inputs lie on straight lines from noise to examples, targets are the way along them, and the
      time is the share of it: of the end that is noise, while the mean of the other end changes from look to look.
    - Targets are drawn evenly between 0 and 1 in twelve looks in a row: `torch.rand`, where `torch.randn` is meant.
    - Targets are such noise, its factor in the inputs is usually at most 1.5, and in twelve looks in a row the inputs'
      mean or deviation is ten or more: what is noised is ten times as large as the noise, which hardly changes it.
    - All rows of a batch have the same targets, or the same noise at the end of such lines, which is noise as far as
      one row can tell, in twelve looks in a row, and another each time: the noise is drawn for one example.
    - Targets are the inputs, in twelve looks in a row: the model has to do nothing.
    - Targets are such noise, and its factor in the inputs is below a twentieth in the median of twelve looks in a row,
      above 0 in three of them and below 0 in three, as that of noise which the inputs don't have: of little noise that
      they do have it is above 0 in all. Velocities of normalised examples have none in the inputs either: where the
      configuration names them, or the targets of one look before were no noise, nothing is said.

    What to do: `noise = torch.randn_like(images)` in each step, of images from -1 to 1; `loss(model(noisy, t), noise)`.
    """

    name, family, kind, severity = "noise_targets", "data", "data", "warning"
    series = "model/target_std"
    needs = ("=model/target_std", "=model/time_high")
    least = 8
    about = "The targets of a model of denoising are not noise that was drawn for them."
    thresholds: ClassVar = {
        "looks": (12.0, "in a row; ours"),
        "same": (8.0, "looks in a row with the same noise; ours"),
        "near": (1e-5, "between their means and deviations; ours"),
        "scale": (10.0, "mean or deviation of the inputs; ours"),
        "factor": (1.5, "of the noise in the inputs; ours"),
        "signs": (3.0, "looks with a factor above 0, and below it; 2 of 100 such twelve have fewer; ours"),
    }

    def begin(self) -> None:
        self._before = math.nan, math.nan
        self._ends = [math.nan] * 3
        self._factors: list[float] = []
        self._counts: dict[str, int] = {}
        self._always = True  # whether all targets so far were noise

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        noise, even, copied = (watched(history, name, place) == 1 for name in ("noise_target", "noise_even",
                                                                               "input_target"))  # fmt: skip
        self._always &= noise
        now, before = (watched(history, "target_mean", place), value), self._before
        self._before = now
        ends, earlier = [watched(history, f"end_{name}", place) for name in _ENDS], self._ends
        self._ends = ends
        if not math.isfinite(watched(history, "time_high", place)):
            return
        factor = usual(history.channel("model/noise_share"), *place, int(self.at["looks"]))
        self._factors = [*self._factors[1 - int(self.at["looks"]) :], watched(history, "noise_share", place)]
        above, below = (sum(one * sign > 0 for one in self._factors) for sign in (1, -1))
        scale = input_scale(history, place)
        near = self._are_near(now, before)
        kept = self._are_near(ends[:2], earlier[:2])
        once = kept and not self._are_near(ends[2:], earlier[2:])
        mean, deviation = ends[:2] if once else now
        holds = {
            "same": (noise and near) or once,
            "even": even and not copied,
            "scale": noise and scale >= self.at["scale"] and factor <= self.at["factor"],
            "copied": copied,
            "absent": noise and self._always and not says_velocity(history),
            "alike": self._is_alike(history, place, near, kept),
        }
        said = {
            "same": (f"The {'noise of the inputs has' if once else 'targets are noise with'} a mean of {mean:.5g} "
                     f"and a deviation of {deviation:.5g} in each look: it is drawn once.",
                     "noise drawn once: it is the same in each step",
                     "draw the noise in each step: `torch.randn_like(images)`"),
            "even": ("The targets are drawn evenly between 0 and 1.",
                     "noise of the wrong distribution: `torch.rand`, where `torch.randn` is meant",
                     "`torch.randn_like(images)`: samples begin as normal noise"),
            "scale": (f"What is noised has a mean or deviation of {scale:.3g}, the noise one of 1 with a factor of "
                      f"{factor:.2g}.", "inputs not normalised: they are far larger than their noise",
                      "scale images to -1 and 1 before noise is added"),
            "copied": ("The targets are what the model is given: it has to do nothing.",
                       "labels can be seen: the target is the input of the model",
                       "`loss(model(noisy, t), noise)`: not the noisy image"),
            "alike": ("All rows of a batch have the same noise, and another one in each look.",
                      "noise drawn once for a whole batch: all rows have the same",
                      "`torch.randn_like(images)`, of the shape of the whole batch"),
            "absent": (f"The noise that is the target has a factor of {factor:.2g} in the inputs: they have another "
                       "one, or none.",
                       "noise of the targets is not in the inputs: it was drawn anew, or nothing was added to the "
                       "inputs",
                       "draw the noise once a step: `noise = torch.randn_like(images)`, added to the images and told"),
        }  # fmt: skip
        for name, held in holds.items():
            self._counts[name] = self._counts.get(name, 0) + 1 if held else 0
            least = self.at["same"] if name == "same" else self.at["looks"]
            if name == "absent" and not (abs(factor) < _ABSENT and min(above, below) >= self.at["signs"]):
                continue
            if self._counts[name] >= least and self.first(name, place[2]):
                text, cause, remedy = said[name]
                yield self.finding(
                    0, text, found=place[0], segment=place[2], confidence=_PROOF, key=name, causes=[cause],
                    remedies=[remedy], evidence={"looks": self._counts[name], "standing": True},
                )  # fmt: skip

    def _are_near(self, some: Sequence[float], others: Sequence[float]) -> bool:
        return all(abs(one - other) <= self.at["near"] for one, other in zip(some, others, strict=True))

    @staticmethod
    def _is_alike(history: RunHistory, place: Place, targets: bool, ends: bool) -> bool:
        """Whether all rows have the same noise. targets, ends: whether it is also that of the look before."""
        of_targets = watched(history, "noise_alike", place) == 1 and not targets
        return of_targets or (watched(history, "end_noise_alike", place) == 1 and not ends)


_ENDS = ("noise_mean", "noise_std", "other_mean")


def says_velocity(history: RunHistory) -> bool:
    """Whether the configuration says that velocities are learnt: `v_prediction`, `objective: pred_v`."""
    return any(
        isinstance(value, str) and (_VELOCITY.search(value) or (value.lower() == "v" and _TARGET.search(name)))
        for name, value in history.options.found.items()
    )


class ConstantTime(WatchRule):
    """The model is given the same time for every row, step after step.

    The argument of the model that is called a time (`t`, `timesteps`, `sigma` and the like) has one number a row. It is
    the same number in all rows of 20 looks. A model of denoising then knows nothing of how much noise there is.

    What to do: `t = torch.randint(steps, (batch,))`, for the noise and for the model.
    """

    name, family, kind, severity = "constant_time", "data", "config", "warning"
    series = "model/time_high"
    needs = ("=model/time_high", "=model/time_low")
    least = 20
    about = "The model is given the same time for every row, step after step."
    thresholds: ClassVar = {"looks": (20.0, "in a row; ours")}
    causes = ("timestep not passed on: the model is given one and the same for every row",)
    remedies = ("`t = torch.randint(steps, (batch,))`: once a batch, for the noise and for the model",)

    def begin(self) -> None:
        self._one = math.nan

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        low = watched(history, "time_low", place)
        same = low == value and (not self._row or value == self._one)
        self._one = value
        if self.lasts(same, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"The time that the model is given is {value:.4g} in every row of {len(self._row)} "
                "batches.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"time": rounded(value), "standing": True},
            )  # fmt: skip


class TimesBroadcast(WatchRule):
    """The times of a batch are broadcast over the columns of its inputs, and not over its rows.

    A batch has as many rows as its inputs have columns, so that `t * x` is taken for what `t[:, None] * x` is. The
    factor with which a row's targets are in its inputs goes with the row's time, up or down: the watch has the
    correlation of their ranks. Here it is that of columns instead: 0.8 or more in size in the median of eight looks in
    a row, and 0.5 in each, with one sign, while that of rows is 0.4 or less in the median. Of 24 rows a correlation of
    0.5 comes by chance once in 70 looks.

    What to do: `t = t.view(-1, *[1] * (x.dim() - 1))` before it is multiplied.
    """

    name, family, kind, severity = "times_broadcast", "data", "config", "warning"
    proves = "training"
    series = "model/time_of_columns"
    needs = ("=model/time_of_columns", "=model/time_of_rows")
    least = 8
    about = "The times of a batch are broadcast over columns, and not over rows."
    thresholds: ClassVar = {
        "looks": (8.0, "in a row; ours"),
        "columns": (0.8, "in the median; ours"),
        "each": (0.5, "of columns, in each look; ours"),
        "rows": (0.4, "in the median; ours"),
    }
    causes = ("targets broadcast: the times of a batch go over the columns of its inputs, not over its rows",)
    remedies = ("give the times the inputs' dimensions: `t.view(-1, *[1] * (x.dim() - 1))`",)

    def begin(self) -> None:
        self._looks: list[tuple[float, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        rows, sign = watched(history, "time_of_rows", place), self._looks[-1][0] if self._looks else value
        if not (abs(value) >= self.at["each"] and value * sign > 0 and math.isfinite(rows)):
            self._looks = []
            return
        self._looks.append((value, rows))
        columns, beside = (float(numpy.median(numpy.abs(one))) for one in zip(*self._looks, strict=True))
        enough = len(self._looks) >= self.at["looks"] and columns >= self.at["columns"]
        if enough and beside <= self.at["rows"] and self.first(place[2]):
            yield self.finding(
                0, f"What part of an input is its target goes with the times of the batch from column to column, with "
                f"a correlation of {columns:.2g}, and from row to row with one of {beside:.2g}.", found=place[0],
                segment=place[2], confidence=_PROOF, evidence={"columns": rounded(columns), "standing": True},
            )  # fmt: skip


class SharedTime(WatchRule):
    """All rows of a batch have one time, another one in each batch.

    The argument of the model that is called a time has one number a row. It is the same number in all rows of 16 looks,
    and there are eight different ones. Each step then learns of one level of noise alone, and its gradient says nothing
    of the others.

    What to do: `t = torch.randint(steps, (batch,))`, with a number for each row.
    """

    name, family, kind, severity = "shared_time", "data", "data", "warning"
    series = "model/time_high"
    needs = ("=model/time_high", "=model/time_low")
    least = 16
    about = "All rows of a batch have one time."
    thresholds: ClassVar = {"looks": (16.0, "in a row; ours"), "different": (8.0, "times; ours")}
    causes = ("time is the same for the whole batch: it is drawn once in a step, and expanded",)
    remedies = ("`t = torch.randint(steps, (batch,))`: a time for each row",)

    def begin(self) -> None:
        self._times: list[float] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        one = watched(history, "time_low", place) == value
        self._times = [*self._times[1 - 2 * int(self.at["looks"]) :], value] if one else []
        different = len(set(self._times))
        enough = len(self._times) >= self.at["looks"] and different >= self.at["different"]
        if enough and self.first(place[2]):
            yield self.finding(
                0, f"All rows of a batch have one time, in each of {len(self._times)} looks; there were {different} "
                "different ones.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"looks": len(self._times), "standing": True},
            )  # fmt: skip


class TimesAgain(WatchRule):
    """The times that a model is given are the same in each step, row by row: its generator is seeded anew in each.

    The argument of the model that is called a time (`t`, `timesteps`, `sigma` and the like) has one number a row. In
    eight looks in a row these are the same numbers in the same order (`model/time_mark`), which is that of chance: a
    quarter of them or more are below the one before, and as many above it, and three quarters differ. At most half of
    the rows that the model is given came before: they are others, with the same times. What else is drawn in a step, as
    noise, is then the same, too, so that the model sees each example with few of its noises, and learns these.

    Or the noise with which a batch begins is the same in eight looks in a row (`model/noise_mark`), whatever the times
    are.

    What to do: seed the generator once, ahead of the loop.
    """

    name, family, kind, severity = "times_again", "data", "data", "warning"
    proves = "training"
    series = "model/time_mark"
    needs = ("=model/time_mark|=model/noise_mark",)
    least = 8
    about = "The times that a model is given, or the noise, are the same in each step, row by row."
    thresholds: ClassVar = {
        "looks": (8.0, "in a row; ours"),
        "again": (0.5, "of the rows, that came before; ours"),
    }
    causes = (
        "noise is the same in each step: the seed is set anew in each, and so are times and all that is drawn",
        "noise drawn once: it is the same in each step",
    )
    remedies = (
        "take `manual_seed` out of the loop: seed the generator once, ahead of it",
        "draw times and noise in each step",
    )

    def reset(self) -> None:
        super().reset()
        self._noises: list[tuple[float, Place]] = []  # in a row, the same

    def begin(self) -> None:
        self._mark = math.nan

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/noise_mark"), self._of_noise)]

    def _of_noise(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        known = self._noises and self._noises[-1][0] == value and self._noises[-1][1][2] == place[2]
        self._noises = [*(self._noises if known else []), (value, place)] if math.isfinite(value) else []
        others = not watched(history, "rows_again", place) > self.at["again"]
        if others and len(self._noises) >= self.at["looks"] and self.first(place[2]):
            yield self.finding(
                self._noises[0][1][0], f"The noise with which a batch begins is the same in {len(self._noises)} looks, "
                "and the rows are others.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"looks": len(self._noises), "standing": True}, causes=self.causes[::-1],
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        same, self._mark = value == self._mark or not self._row, value
        if not same:
            self._row = []  # this one may be the first of several
        others = not watched(history, "rows_again", place) > self.at["again"]
        if self.lasts(math.isfinite(value) and others, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"The times that the model is given are the same in {len(self._row)} looks, row by "
                "row, and the rows are others.", found=place[0], segment=place[2], confidence=_PROOF,
                evidence={"looks": len(self._row), "standing": True},
            )  # fmt: skip


class SharedNoise(WatchRule):
    """The rows of a batch that a model of denoising is given have one noise.

    The model is given a time with a number a row. Three tenths or more of the variance of its inputs, in half of the
    sketches' columns or more, of rows of mean 0 and deviation 1, lie between batches (`model/rows_apart_even`), in
    twelve batches of different examples or more, and no batches that are equally many steps apart are alike: what the
    rows of a batch have in common is drawn anew for each. Where they do come again, see `sorted_examples`.

    What to do: `torch.randn_like(images)`, a noise for each row.
    """

    name, family, kind, severity = "shared_noise", "data", "data", "warning"
    series = "model/rows_apart_even"
    needs = ("=model/rows_apart_even", "=model/time_high")
    least = 4
    about = "The rows of a batch have one noise."
    thresholds: ClassVar = {
        "share": (0.3, "of the variance in half of the sketches; ours"),
        "batches": (12.0, "of different examples; ours"),
    }
    causes = (
        "noise is the same for the whole batch: it is drawn for one row, and expanded",
        "data sorted: the examples of a batch are alike, and not shuffled",
    )
    remedies = ("`noise = torch.randn_like(images)`: a noise for each row",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        batches, period = (watched(history, f"apart_{name}", place) for name in ("batches", "period"))
        noised = math.isfinite(watched(history, "time_high", place))
        apart = value >= self.at["share"] and batches >= self.at["batches"] and period == 0
        if apart and noised and self.first(place[2]):
            yield self.finding(
                0, f"What the model is given is alike in all rows of a batch, and another thing in each: "
                f"{value:.0%} of its variance lies between {batches:.0f} batches.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"apart": rounded(value), "standing": True},
            )  # fmt: skip


RULES = (TimesBroadcast, NoisedInputs, NoiseTargets, ConstantTime, SharedTime, TimesAgain, SharedNoise)
