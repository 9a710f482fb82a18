"""Denoising that is not what the configuration says: another target, and conditions left out in other rows.

In:   figures of the watch, and what the configuration says of targets and of conditions.
Out:  findings of `VelocityTargets`, `ConditionDropped`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import numbers_named
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.data.noising import says_velocity

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class VelocityTargets(WatchRule):
    """The configuration says that velocities are learnt, and the targets are the noise.

    The model is given a time with a number a row, and in twelve looks in a row its targets are noise of mean 0 and
    deviation 1. In their median the noise has a factor of 0.3 or more in the inputs, and of 0.8 or more in the quarter
    of the rows that have the most of it. A velocity, a·noise − s·example, is less and less of the noise there, and of
    normalised examples it has nothing in common with the input. What samples then takes noise for a velocity, and so
    does an evaluation. A velocity of flows, noise less example, is nearly noise where examples are small: where the
    configuration speaks of flows, nothing is said.

    What to do: one setting for what the loss asks for, what samples and what evaluates.
    """

    name, family, kind, severity = "velocity_targets", "data", "config", "warning"
    proves = "training"
    series = "model/noise_target"
    needs = ("=model/noise_target", "=model/noise_share_late", "config")
    least = 12
    about = "The configuration says that velocities are learnt, and the targets are the noise."
    thresholds: ClassVar = {
        "looks": (12.0, "in a row; ours"),
        "factor": (0.3, "of the noise in the inputs, the median; ours"),
        "most": (0.8, "of it in the noisiest quarter, the median; ours"),
    }
    causes = ("wrong target: the loss asks for the noise, where the configuration says that velocities are learnt",)
    remedies = ("take the target from the same setting as the sampler: `a * noise - s * example` for velocities",)

    def begin(self) -> None:
        self._looks: list[tuple[float, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        factor, *ends = (watched(history, f"noise_share{end}", place) for end in ("", "_early", "_late"))
        if value != 1 or not math.isfinite(factor + sum(ends)):
            self._looks = []
            return
        self._looks = [*self._looks[1 - int(self.at["looks"]) :], (factor, max(ends))]
        if len(self._looks) < self.at["looks"]:
            return
        factor, most = (float(numpy.median(one)) for one in zip(*self._looks, strict=True))
        noise = factor >= self.at["factor"] and most >= self.at["most"]
        if noise and says_velocity(history) and not _speaks_of_flows(history) and self.first(place[2]):
            yield self.finding(
                0, f"The targets are noise of mean 0 and deviation 1, with a factor of {most:.2g} in the noisiest "
                "inputs, and the configuration says that velocities are learnt.", found=place[0], segment=place[2],
                confidence=0.95, evidence={"factor": rounded(factor), "most": rounded(most), "standing": True},
            )  # fmt: skip


def _speaks_of_flows(history: RunHistory) -> bool:
    return any("flow" in f"{name}={value}".lower() for name, value in history.options.found.items())


class ConditionDropped(WatchRule):
    """The class that a model is given is left out in as many rows as it was to be kept in.

    The configuration says in which share of the rows a condition is left out (`cond_drop_prob`, `p_uncond`,
    `class_dropout`), two fifths or less. In sixteen looks in a row one number among the classes that the model is given
    is the most frequent one, and its share of all their rows is what the configuration's leaves, to a twentieth:
    keeping and leaving out are exchanged. A training of which one class is as frequent shows the same.

    Whatever the configuration calls it: evaluations are given all classes but one, in two of them in a row, and that
    one is in seven tenths of the training's rows or more, of 128 at least. An option of what is left out, or given,
    that is this share, to a twentieth, says that it is meant.

    What to do: `drop = torch.rand(rows) < p`, and the class is left out where it is so.
    """

    name, family, kind, severity = "condition_dropped", "data", "config", "warning"
    proves = "training"
    series = "model/input_class_share"
    needs = ("=model/input_class_share|=model/given_alone_share", "config")
    least = 2
    about = "The class that a model is given is left out in as many rows as it was to be kept in."
    thresholds: ClassVar = {
        "looks": (16.0, "in a row; ours"),
        "highest": (0.4, "share that the configuration says; ours"),
        "near": (0.05, "of the rows; ours"),
        "mostly": (0.7, "of the training's rows, a class that evaluations lack; ours"),
        "rows": (128.0, "of the training; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("condition dropped too often: the probability of keeping it and that of leaving it out are exchanged",)
    remedies = ("leave the condition out where `torch.rand(rows) < p`, and not where it is above",)

    def begin(self) -> None:
        self._class, self._shares = math.nan, list[float]()

    def reset(self) -> None:
        super().reset()
        self._lacking: list[Place] = []  # evaluations in a row

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/given_alone_share"), self._of_evaluation)]

    def _of_evaluation(self, history: RunHistory, share: float, place: Place) -> Iterator[Finding]:
        """share: of the training's rows, of the one class that an evaluation lacks."""
        rows, which = (watched(history, f"given_{name}", place) for name in ("rows", "alone"))
        holds = share >= self.at["mostly"] and rows >= self.at["rows"]
        self._lacking = [*(one for one in self._lacking if one[2] == place[2]), place] if holds else []
        numbers = (said for name, said in history.options.found.items() if _SAYS_LEFT_OUT.search(name.lower()))
        meant = any(isinstance(said, float) and abs(share - said) <= self.at["near"] for said in numbers)
        if len(self._lacking) >= self.at["evaluations"] and not meant and self.first(place[2]):
            yield self.finding(
                0, f"The model is given the class {which:.0f} in {share:.0%} of the training's rows, and evaluations "
                "are given all classes but that one: it stands for a condition that is left out.", found=place[0],
                segment=place[2], confidence=0.85, evidence={"share": rounded(share), "standing": True},
            )  # fmt: skip

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        which = watched(history, "input_class", place)
        if which != self._class:
            self._class, self._shares = which, []
        self._shares.append(value)
        if len(self._shares) < self.at["looks"]:
            return
        share = float(numpy.mean(self._shares[-int(self.at["looks"]) :]))
        for name, said in numbers_named(history, _LEFT_OUT):
            if 0 < said <= self.at["highest"] and abs(share + said - 1) <= self.at["near"] and self.first(place[2]):
                yield self.finding(
                    0, f"The model is given the class {which:.0f} in {share:.0%} of the rows, where `{name}` says that "
                    f"a condition is left out in {said:.0%}.", found=place[0], segment=place[2], confidence=0.9,
                    evidence={"share": rounded(share), "configured": rounded(said), "standing": True},
                )  # fmt: skip


_PART = r"(?:cond(?:ition(?:ing)?)?|class(?:es)?|labels?|cls|cfg|guidance|context|uncond(?:itional)?|null)"
_CHANCE = r"_?(?:p|prob(?:ability)?|rate|ratio|frac(?:tion)?|share|chance)"
_WITHOUT = r"(?:untold|unknown|unnamed|ungiven|blank|left_out|omit(?:ted)?)"
_LEFT_OUT = expression(
    rf"(?:\w+_)?{_PART}_?drop(?:out|ped|ping)?(?:{_CHANCE})?|(?:\w+_)?drop(?:out)?_?{_PART}(?:{_CHANCE})?|"
    rf"(?:p|prob(?:ability)?)_?(?:of_)?(?:uncond(?:itional)?|null|cfg|drop_{_PART})|"
    rf"(?:uncond(?:itional)?|null|cfg){_CHANCE}|proportion_empty\w*|(?:\w+_)?{_WITHOUT}{_CHANCE}"
)
_SAYS_LEFT_OUT = expression(rf"{_PART}|drop|mask|hid|keep|kept|free|none|omit|told|blank|missing|empty|known|given")

RULES = (VelocityTargets, ConditionDropped)
