"""Pictures as they enter a model: in the range in which they are stored, or scaled once too often.

In:   figures of the watch.
Out:  findings of `PicturesUnscaled`, `PicturesTwice`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import newest
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_BYTE = 255.0


class PicturesUnscaled(WatchRule):
    """Pictures go into the first layer as they are stored, or hardly vary there.

    The watch looks at what the first layer with weights is given, where that has one, three or four channels, and where
    no normalisation takes the scale out of its output. A mean and a deviation of ten or more are those of bytes:
    pictures that are scaled or normalised stay within a few units of 0. A deviation within the channels of a fiftieth
    of the numbers themselves or less, or pictures from 0 to at most 1 / 255, are of pictures that were divided by 255
    twice, or normalised by numbers that are meant for bytes.

    What to do: `pictures / 255` once, then the mean and deviation of the training's pictures.
    """

    name, family, kind, severity = "pictures_unscaled", "data", "data", "warning"
    series = "model/picture_std"
    needs = ("=model/picture_std", "=model/picture_mean")
    about = "Pictures go into the first layer as bytes, or hardly vary there."
    thresholds: ClassVar = {
        "large": (10.0, "mean and deviation; bytes of photographs have about 120 and 60; ours"),
        "varies": (0.02, "deviation within a channel over the size of the numbers; ours"),
        "twice": (1.02, "times 1 / 255, the largest number of pictures divided twice; ours"),
        "half": (0.5, "of that, at least; ours"),
    }
    causes = ("inputs not normalised: pictures go in as they are stored, from 0 to 255",)
    remedies = ("divide pictures by 255, once, or normalise them with the mean and deviation of the training's",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        low, high, mean = (watched(history, f"picture_{name}", place) for name in ("low", "high", "mean"))
        bytes_ = mean >= self.at["large"] and value >= self.at["large"]
        limit = self.at["twice"] / _BYTE
        twice = low >= 0 and self.at["half"] * limit < high <= limit
        still = 0 < value <= self.at["varies"] * math.hypot(mean, value)
        if not (bytes_ or twice or still) or not self.first(place[2]):
            return
        told = "" if bytes_ else " They hardly vary." if still else " They are divided by 255 twice."
        yield self.finding(
            0, f"Pictures go into the first layer with numbers from {low:.4g} to {high:.4g}, a mean of {mean:.4g} and "
            f"a deviation of {value:.4g} within a channel.{told}", found=place[0], segment=place[2], confidence=0.95,
            causes=list(self.causes) if bytes_ else [
                "inputs normalised twice: pictures are divided by 255, or normalised, once too often",
                "inputs not normalised: the numbers that they are normalised by are of another range"],
            evidence={"low": rounded(low), "high": rounded(high), "mean": rounded(mean), "deviation": rounded(value),
                      "standing": True},
        )  # fmt: skip


class PicturesTwice(WatchRule):
    """Pictures of the training are mapped to the range of -1 to 1 twice.

    What is mapped from 0 and 1 to -1 and 1 lies between -3 and 1 if that is done once more, as by a data set and by the
    process of noise behind it. It is said where the least number of all pictures in eight looks is exactly -3, and the
    largest exactly 1, or of a model that is given a time for each row, which pictures with noise are of: where the mean
    of its inputs over eight looks is beyond -1 or 1 by three standard errors. Noise has the mean 0, so that it is that
    of the pictures, or less; those between -1 and 1 have no such mean, nor have those that were normalised by their own
    mean.

    What to do: map pictures in one place, and print the least and the largest number of a batch.
    """

    name, family, kind, severity = "pictures_twice", "data", "data", "warning"
    proves = "training"
    series = "model/input_low"
    needs = ("=model/input_low", "=model/input_high", "=model/input_mean")
    least = 8
    about = "Pictures of the training are mapped to the range of -1 to 1 twice."
    thresholds: ClassVar = {
        "looks": (8.0, "at pictures of the training; ours"),
        "same": (1e-5, "off -3 and 1; ours"),
        "beyond": (1.0, "a denoiser's mean of pictures, below or above 0; ours"),
        "errors": (3.0, "standard errors of that mean; ours"),
    }
    causes = (
        "inputs normalised twice: pictures are mapped to the range of -1 to 1 once more than they should be",
        "inputs not normalised: the numbers that they are normalised by are of another range",
    )
    remedies = ("map pictures to the range of -1 to 1 in one place alone: the data set, or the process of noise",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        channels = [history.channel(f"model/input_{name}") for name in ("low", "high", "mean")]
        if None in channels or not math.isfinite(value):
            return
        looks = [newest(one, *place, 64) for one in channels if one is not None]
        lows, highs, means = (one[numpy.isfinite(one)] for one in looks)
        if min(map(len, (lows, highs, means))) < self.at["looks"]:
            return
        ends = max(float(numpy.abs(lows + 3).max()), float(numpy.abs(highs - 1).max())) <= self.at["same"]
        mean, error = float(means.mean()), float(means.std(ddof=1)) / math.sqrt(len(means))
        noisy = watched(history, "time_high", place) > watched(history, "time_low", place)
        noisy = noisy and history.role("reward") is None
        far = noisy and abs(mean) - self.at["errors"] * error >= self.at["beyond"]
        if (ends or far) and self.first(place[2]):
            told = "from -3 to 1" if ends else f"with noise, of a mean of {mean:.3g}"
            yield self.finding(
                0, f"The model is given pictures {told}: they are not between -1 and 1.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"mean": rounded(mean), "standing": True},
            )  # fmt: skip


RULES = (PicturesUnscaled, PicturesTwice)
