"""A training loss that is a sum where the evaluation's is a mean.

In:   the losses of training and evaluation, numbers of the configuration, the width of the output.
Out:  findings of `SummedLoss`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.configuration import ACCUMULATION, BATCH, PROCESSES, SEQUENCE
from barograph.doctor.kernel.channels import Channel, RunHistory
from barograph.doctor.kernel.cursor import numeric_setting
from barograph.doctor.kernel.curve import is_game, rounded
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.finding import Finding

_START = 20  # a run whose first row is later goes on with another one's weights
_PARTS = {"micro-batches": ACCUMULATION, "ranks": PROCESSES, "examples": BATCH, "tokens": SEQUENCE}
"""What a loss may be added up over → the settings that say how many there are."""


class SummedLoss(Rule):
    """The training loss is a sum over micro-batches, ranks, examples or tokens; the evaluation's is a mean.

    At each evaluation the median of the training loss around it, eight rows before and eight behind, is divided by the
    evaluation's. Two things must agree on one number: the median of four to sixteen such ratios, and the beginning,
    where a model that knows nothing has one loss in both: the first ratio, if the first evaluation is among the first
    20 steps, or the first loss over ln of the output's width (`model/output_width`) or of the vocabulary. A number that
    the configuration has, or a product of two, proves it: gradient accumulation, ranks, batch size, length. Both are
    within 10% of it; the median within a third, for a loss that is all noise, where it is 4 or more and the first loss
    over ln of the width agrees; each ratio within half, where it is 2 or 3.
    Any other number must be 4 or more, with the first loss as many times ln of the width, and the same (within 10%) at
    four evaluations in a row.

    What to do: divide the loss by that number; the learning rate then need not follow the batch size.
    """

    name, family, kind, severity = "summed_loss", "loss", "logits", "warning"
    needs = ("loss", "eval_loss")
    about = "The training loss is summed, the evaluation loss averaged."
    thresholds: ClassVar = {
        "times": (4.0, "a number that the configuration does not have; ours"),
        "same": (0.1, "how far ratios may differ; ours"),
        "evaluations": (4.0, "ours"),
    }

    def reset(self) -> None:
        self._row = 0
        self._ratios: list[float] = []
        self._early = math.nan  # the ratio at an evaluation of an untrained model
        self._segment = 0
        self._is_over = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        loss, evaluations = history.role("loss"), history.role("eval_loss")
        if self._is_over or loss is None or evaluations is None or evaluations.end == self._row or not loss.end:
            return
        if not 0 < loss.first < math.inf or loss.began[0] > _START or is_game(history, loss):
            self._is_over = True
            return
        rows = evaluations.rows(self._row)
        for at in range(len(rows)):
            step, segment, value = int(rows.step[at]), int(rows.segment[at]), float(rows.value[at])
            around = self._around(history, loss, step, segment)
            if around is None:
                return
            self._row = rows.first + at + 1
            ratio = around[0] / value if value > 0 else math.nan
            if not 0 < ratio < math.inf:
                continue
            if not self._ratios:
                self._segment = segment
                self._early = ratio if step <= _START else math.nan
            self._ratios.append(ratio)
            finding = self._look(history, loss, value, around[1])
            self._is_over = finding is not None or len(self._ratios) == 16
            if finding is not None:
                yield finding
            if self._is_over:
                return

    def _around(self, history: RunHistory, loss: Channel, step: int, segment: int) -> tuple[float, int] | None:
        """The median of the losses around a step, as many before as behind, and the step of the last of them; None
        while those behind may still come."""
        finished = bool(history.facts.get("finished"))
        if loss.last_step <= step and not finished and int(loss.rows(loss.end - 1).segment[0]) == segment:
            return None
        for count in (64, loss.end):
            rows = loss.rows(loss.end - count)
            here = rows.segment == segment
            before = numpy.flatnonzero(here & (rows.step <= step))[-8:]
            if len(before) == 8:
                break
        behind = numpy.flatnonzero(here & (rows.step > step))[: max(1, len(before))]
        ended = bool(len(rows)) and int(rows.segment[-1]) > segment
        if len(behind) < max(1, len(before)) and not ended and not finished:
            return None
        places = numpy.concatenate([before, behind])
        values = rows.value[places]
        values = values[numpy.isfinite(values)]
        last = int(rows.step[places].max()) if len(places) else step
        return (float(numpy.median(values)) if len(values) else math.nan), last

    def _look(self, history: RunHistory, loss: Channel, value: float, found: int) -> Finding | None:
        if len(self._ratios) < self.at["evaluations"]:
            return None
        width = history.facts.get("vocabulary") or _width(history)
        guess = math.log(width) if width > 1 else math.nan
        middle, same = median(self._ratios), self.at["same"]
        for number, what in _numbers(history):
            guessed = abs(loss.first / guess / number - 1) < same
            near = 1 / 3 if guessed and number >= 4 else same
            steady = number >= 4 or all(2 / 3 < item / number < 3 / 2 for item in self._ratios)
            if (guessed or abs(self._early / number - 1) < same) and steady and abs(middle / number - 1) < near:
                return self._say(loss, value, found, number, what, guess)
        last = self._ratios[-int(self.at["evaluations"]) :]
        steady = self.at["times"] <= min(last) and max(last) <= (1 + same) * min(last)
        if steady and loss.first >= self.at["times"] * guess and value < 1.5 * guess:
            return self._say(loss, value, found, median(last), "targets", guess)
        return None

    def _say(self, loss: Channel, value: float, found: int, number: float, what: str, guess: float) -> Finding:
        step = loss.began[0]
        cause = (
            f"gradient accumulation scaled wrongly: the losses of {number:.3g} {what} are added, not averaged"
            if what in ("micro-batches", "ranks", "targets")
            else f"loss summed: over {number:.3g} {what}, not averaged"
        )
        return self.finding(
            step,
            f"The training loss is {median(self._ratios):.3g} times the evaluation loss since the start ("
            f"{loss.first:.4g} at first, and now {value:.4g} in the evaluation): it is summed over {number:.3g} {what}",
            found=found,
            segment=self._segment,
            evidence={"times": rounded(median(self._ratios)), "first": rounded(loss.first), "guess": rounded(guess)},
            causes=[cause],
            remedies=[f"Divide the loss by {number:.3g} before `backward()`, or use `reduction='mean'`."],
            confidence=0.95,
        )


def _width(history: RunHistory) -> float:
    channel = history.channel("model/output_width")
    return channel.first if channel is not None and channel.end else math.nan


def _numbers(history: RunHistory) -> list[tuple[float, str]]:
    """Numbers of the configuration that a loss may be added up over, and of what; the smallest first."""
    single = {what: numeric_setting(history, *names) for what, names in _PARTS.items()}
    world = history.facts.get("world_size")
    if world:
        single["ranks"] = float(world)
    known = {what: number for what, number in single.items() if number >= 2 and number == int(number)}
    pairs = {f"{a} of {b}" if a == "micro-batches" else f"{b} of {a}": known[a] * known[b]
             for a, b in combinations(known, 2)}  # fmt: skip
    return sorted((number, what) for what, number in (known | pairs).items())
