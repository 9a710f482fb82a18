"""Settings that no training is meant to have, as the watch reads them from layers and optimizers.

In:   the largest dropout, epsilon and momentum; optimizers that never step; losses.
Out:  findings of `MomentumTooHigh`, `BetasSwapped`, `NormEpsilon`, `NormMomentum`, `DropoutTooHigh`, `IdleOptimizer`,
      `SharedParameters`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor, known, names_of, numbers_named, whole
from barograph.doctor.kernel.curve import between, rounded
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


_EXCHANGED = ["eps and momentum swapped: batch norm's epsilon and momentum are in each other's place"]
_BY_KEYWORD = ["give them by name: `eps=1e-5, momentum=0.1`; the epsilon is the first of the two"]


class SettingRule(Rule):
    """A figure of the watch that is beyond a bound, said once in a segment."""

    series: ClassVar[str]

    def reset(self) -> None:
        self._cursor = RowCursor()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, _, segment), value in self._cursor.each(history.channel(self.series)):
            if self.is_beyond(value) and self.first(segment):
                yield self.finding(
                    step, self.sentence(value), found=step, segment=segment, confidence=0.95,
                    evidence={self.series.partition("/")[2]: rounded(value), "standing": True},
                )  # fmt: skip

    def is_beyond(self, value: float) -> bool:
        """Whether it is wrong."""
        raise NotImplementedError

    def sentence(self, value: float) -> str:
        """What is said then."""
        raise NotImplementedError


class MomentumTooHigh(SettingRule):
    """The momentum, or the first beta of Adam, is 0.995 or more.

    A gradient counts in 1 / (1 - momentum) steps: 200 at 0.995, 1,000 at 0.999, and without Adam the step is as many
    times longer than the learning rate says. The loss swings, and often diverges. At 1 or more nothing is ever
    forgotten: each step is the sum of all gradients so far.

    What to do: 0.9, or a learning rate that is as many times smaller.
    """

    name, family, kind, severity = "momentum_too_high", "optimizer", "config", "warning"
    needs = ("=model/momentum",)
    series = "model/momentum"
    about = "The momentum is far too high."
    thresholds: ClassVar = {"momentum": (0.995, "usual are 0.9 to 0.99; ours")}
    causes = ("momentum too high: hundreds of gradients count in each step",)
    remedies = ("set the momentum to 0.9",)

    def is_beyond(self, value: float) -> bool:
        return value >= self.at["momentum"]

    def sentence(self, value: float) -> str:
        if value >= 1:
            return f"The momentum is {value:g}: each step is the sum of all gradients so far, none is forgotten."
        return f"The momentum is {value:g}: each gradient counts in {1 / (1 - value):.0f} steps."


class BetasSwapped(SettingRule):
    """Adam's betas are in the wrong order.

    The first moment is averaged over twice as many steps as the second (1.9 times, for rounding), and over ten or more:
    (0.999, 0.9) where (0.9, 0.999) is meant, (0.95, 0.9) where (0.9, 0.95) is. Equal betas, and a first one below 0.9,
    are left alone.
    """

    name, family, kind, severity = "betas_swapped", "optimizer", "config", "warning"
    needs = ("=model/betas_swapped",)
    series = "model/betas_swapped"
    about = "Adam's betas are swapped."
    sources = ("Adam: bias correction",)
    causes = ("Adam's betas swapped: the gradient is averaged over far more steps than its square",)
    remedies = ("set Adam's betas to (0.9, 0.999), or (0.9, 0.95) for a language model",)

    def is_beyond(self, value: float) -> bool:
        return value > 0

    def sentence(self, value: float) -> str:
        return "Adam averages the gradient over twice as many steps as its square, or more: the betas are swapped."


class NormEpsilon(SettingRule):
    """A normalisation's epsilon is as large as what it normalises.

    A layer divides by sqrt(variance + epsilon), with an epsilon of 1e-6 to 1e-3. With 0.1 or more it doesn't normalise:
    small inputs stay small. Where it is half or less, as batch norm's momentum may be, and batch norm's momentum is
    0.001 or less, as an epsilon is, the first cause is that they were given in each other's place.
    """

    name, family, kind, severity = "norm_epsilon", "model", "config", "warning"
    needs = ("=model/norm_epsilon",)
    series = "model/norm_epsilon"
    about = "A normalisation's epsilon is too large."
    thresholds: ClassVar = {
        "epsilon": (0.1, "usual are 1e-6 to 1e-3; ours"),
        "as_momentum": (0.5, "the largest epsilon that may be meant for the momentum; ours"),
        "momentum": (1e-3, "of batch norm, that may be meant for the epsilon; usual are 0.01 to 0.1; ours"),
    }
    causes = ("normalisation's epsilon too large: the layer does not normalise",)
    remedies = ("set the epsilon of normalisation layers to 1e-5",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        momenta = history.channel("model/norm_momentum")
        for place, value in self._cursor.each(history.channel(self.series)):
            if not (self.is_beyond(value) and self.first(place[2])):
                continue
            momentum = known(momenta, *place)
            swapped = value <= self.at["as_momentum"] and 0 < momentum <= self.at["momentum"]
            message = self.sentence(value)
            if swapped:
                message = (
                    f"The epsilon of a normalisation is {value:g}, usual are 1e-6 to 1e-3, and the momentum of batch "
                    f"norm is {momentum:g}, usual is 0.1: each is what the other one is as a rule."
                )
            yield self.finding(
                place[0], message, found=place[0], segment=place[2], confidence=0.95,
                evidence={"norm_epsilon": rounded(value), "standing": True},
                causes=_EXCHANGED + list(self.causes) if swapped else list(self.causes),
                remedies=_BY_KEYWORD if swapped else list(self.remedies),
            )  # fmt: skip

    def is_beyond(self, value: float) -> bool:
        return value >= self.at["epsilon"]

    def sentence(self, value: float) -> str:
        return f"The epsilon of a normalisation is {value:g}, usual are 1e-6 to 1e-3: the layer does not normalise."


class NormMomentum(SettingRule):
    """Batch norm's running statistics are those of the last batches alone.

    Torch's `momentum` is the weight of the newest batch, 0.1 as a rule; what other libraries call so is the weight of
    the past, 0.9 to 0.99. With 0.9 or more, evaluations normalise with what the last batch happened to have.

    What to do: 0.1, or one minus the other library's number.
    """

    name, family, kind, severity = "norm_momentum", "model", "config", "warning"
    needs = ("=model/norm_momentum",)
    series = "model/norm_momentum"
    about = "Batch norm's running statistics are those of the last batches."
    thresholds: ClassVar = {"momentum": (0.9, "usual are 0.001 to 0.1; ours")}
    causes = ("batch norm's momentum too large: running statistics are those of the last batch",)
    remedies = ("`momentum=0.1`: it is the weight of the newest batch, not of the past",)

    def is_beyond(self, value: float) -> bool:
        return value >= self.at["momentum"]

    def sentence(self, value: float) -> str:
        return (
            f"The momentum of a batch norm is {value:g}, usual is 0.1: evaluations normalise with the statistics of "
            "the last batch."
        )


_DROPOUT = expression(r"(?:.*_)?(?:dropout|drop|p_?drop)(?:_(?:rate|prob|p|ratio|probability))?")


class DropoutTooHigh(Rule):
    """Dropout leaves too little, and the training shows it.

    A layer drops three quarters or more, and after 100 steps either the evaluation loss of three evaluations in a row
    is below three quarters of the training loss, or the loss has fallen by less than a third since the start. Without
    such a loss it is an info finding, but where all that the configuration says of dropout is half of that or less.

    What to do: a dropout of 0.1 to 0.5.
    """

    name, family, kind, severity = "dropout_too_high", "model", "config", "warning"
    needs = ("=model/dropout", "loss")
    about = "Dropout is far too high."
    thresholds: ClassVar = {
        "dropout": (0.75, "usual are 0 to 0.5; ours"),
        "steps": (100.0, "ours"),
        "better": (0.75, "of the training loss; ours"),
        "fall": (1 / 3, "of the first loss; ours"),
    }
    causes = ("dropout too high: most of a layer's units are dropped",)
    remedies = ("set the dropout to 0.1 to 0.5",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._begun: dict[int, tuple[int, float]] = {}  # by segment: since when, and how high

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, _, segment), value in self._cursor.each(history.channel("model/dropout")):
            if value >= self.at["dropout"] and segment not in self._begun:
                self._begun[segment] = (step, value)
                meant = max(_dropouts(history), default=math.inf)
                other = f"the configuration says {meant:g}" if meant <= value / 2 else ""
                yield self._say(
                    step, value, step, segment, "warning" if other and self.first(segment) else "info", other
                )
        loss = history.role("loss")
        if not self._begun or loss is None or not loss.end:
            return
        losses = loss.rows()
        for segment, (begun, value) in self._begun.items():
            for looked in range(begun + int(self.at["steps"]), begun + 1001, int(self.at["steps"])):
                past = numpy.flatnonzero((losses.segment == segment) & (losses.step > looked + 8))
                if not len(past):
                    break
                if self.first(segment, looked):
                    history.as_of(losses.time[past[0]])  # the same whenever it is looked at
                    sign = self._sign(history, begun, looked, segment)
                    history.as_of(None)
                    if sign and self.first(segment):
                        yield self._say(begun, value, looked, segment, "warning", sign)

    def _sign(self, history: RunHistory, begun: int, step: int, segment: int) -> str:
        losses = between(history.role("loss"), begun, step, segment)
        evaluations = between(history.role("eval_loss"), begun, step, segment)[-3:]
        losses = losses[numpy.isfinite(losses)]
        if len(losses) < 16:
            return ""
        level, first = float(numpy.median(losses[-32:])), float(numpy.median(losses[:5]))
        if len(evaluations) == 3 and 0 < evaluations.max() < self.at["better"] * level:
            return f"the evaluation loss is {evaluations.max():.4g}, the training loss {level:.4g}"
        if first > 0 and level > (1 - self.at["fall"]) * first:
            return f"the loss went from {first:.4g} to {level:.4g} in {step - begun} steps"
        return ""

    def _say(self, begun: int, value: float, step: int, segment: int, severity: str, sign: str) -> Finding:
        return self.finding(
            begun, f"A layer drops {value:.0%} of its inputs" + (f", and {sign}." if sign else "."), found=step,
            segment=segment, severity=severity, confidence=0.95 if sign else 0.3,
            evidence={"dropout": rounded(value)} | ({"standing": True} if sign else {}),
        )  # fmt: skip


def _dropouts(history: RunHistory) -> Iterator[float]:
    """What the configuration says of dropout: shares from 0 to 1."""
    return (value for _, value in numbers_named(history, _DROPOUT) if 0 <= value < 1)


class IdleOptimizer(Rule):
    """One of the watched optimizers was never stepped, although its parameters have gradients.

    In the first hundred steps of the others. A generator or a discriminator that does not train has no opponent.
    Without gradients nothing is said: its part of the training may begin later. Where no optimizer at all was stepped
    in the first twenty steps of the loop, though gradients came in them, and no weight was written, nothing trains.
    """

    name, family, kind, severity = "idle_optimizer", "optimizer", "frozen", "critical"
    needs = ("=model/idle_optimizers|=model/unstepped",)
    about = "An optimizer is never stepped."
    causes = ("optimizer never stepped: `step()` is not called",)
    remedies = ("call `step()` of this optimizer after its loss's `backward()`",)

    def reset(self) -> None:
        self._cursor = RowCursor()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, _, segment), value in self._cursor.each(history.channel("model/unstepped")):
            if self.first(segment, "unstepped"):
                yield self.finding(
                    max(0, step - whole(value)), f"No optimizer was stepped in {value:.0f} "
                    "steps, though backward passes left gradients: no weight has changed.", found=step,
                    segment=segment, confidence=0.95, key="all", evidence={"standing": True},
                )  # fmt: skip
        for (step, time, segment), value in self._cursor.each(history.channel("model/idle_optimizers")):
            count = whole(value)
            gradient = known(history.channel("model/idle_gradient"), step, time, segment)
            if count > 0 and (gradient > 0 or not math.isfinite(gradient)) and self.first(segment):
                yield self.finding(
                    0, f"{count} of the optimizers {'were' if count > 1 else 'was'} never stepped in "
                    f"{step + 1} steps, though there are gradients for it: {names_of(history, 'idle', step, time)}.",
                    found=step, segment=segment, confidence=0.95, evidence={"optimizers": count, "standing": True},
                )  # fmt: skip


class SharedParameters(Rule):
    """Two optimizers step the same parameters in each step, or one is given a parameter twice.

    In twenty steps in which both stepped; an optimizer that works through another one, as those that look ahead do,
    counts once. Each of them has its own moments and its own rate: the parameters move twice, and a loss that one of
    them is for is minimised by parameters that belong to the other's, as a critic's by an actor's.

    An optimizer whose list has one parameter at two places (`model/listed_twice`), as a matrix that two layers share
    when the list is made part by part, moves it twice in each step, and its moments with it.

    What to do: give each optimizer the parameters of its own network; `model.parameters()` names each once.
    """

    name, family, kind, severity = "shared_parameters", "optimizer", "config", "warning"
    needs = ("=model/shared_parameters|=model/listed_twice",)
    about = "Two optimizers step the same parameters, or one does so twice."
    causes = ("optimizer holds other parameters: two of them step the same ones, each for a loss of its own",)
    remedies = ("give each optimizer the parameters of its own network: `Adam(actor.parameters())`",)

    def reset(self) -> None:
        self._cursor, self._twice = RowCursor(), RowCursor()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/shared_parameters")):
            count = whole(value)
            if count > 0 and self.first(segment):
                yield self.finding(
                    max(0, step - 20), f"{count} parameters are stepped by two optimizers in each step: "
                    f"{names_of(history, 'shared', step, time)}.", found=step, segment=segment, confidence=0.95,
                    evidence={"parameters": count, "standing": True},
                )  # fmt: skip
        for (step, time, segment), value in self._twice.each(history.channel("model/listed_twice")):
            if value > 0 and self.first("twice", segment):
                yield self.finding(
                    step, f"The optimizer's list has {whole(value)} of its parameters twice, and each step moves them "
                    f"twice: {names_of(history, 'shared', step, time)}.", found=step, segment=segment, key="twice",
                    confidence=0.95, evidence={"parameters": whole(value), "standing": True}, causes=[_LISTED],
                    remedies=["give it `model.parameters()`, or leave out what is there already: `dict.fromkeys(...)`"],
                )  # fmt: skip


_LISTED = "optimizer holds other parameters: one of them twice, as weights that are tied, listed part by part"


RULES = (MomentumTooHigh, BetasSwapped, NormEpsilon, NormMomentum, DropoutTooHigh, IdleOptimizer, SharedParameters)
