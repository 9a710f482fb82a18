"""A training loss that is a sum where the evaluation's is a mean.

In:   the losses of training and evaluation, numbers of the configuration, the width of the output.
Out:  findings of `SummedLoss`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.channels import Channel, RunHistory
from barograph.doctor.kernel.cursor import (
    is_first_step,
    known,
    scaled_loss,
    summed_by_choice,
)
from barograph.doctor.kernel.curve import is_game, rounded
from barograph.doctor.kernel.kinds import of_other_kind
from barograph.doctor.kernel.local import median
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.loss.given import summands

if TYPE_CHECKING:
    from barograph.doctor.kernel.finding import Finding

_START = 20  # a run whose first row is later goes on with another one's weights
_MASK = 1000.0  # what a mask takes from scores, over ten answers
_MANY = 64  # more are targets, not micro-batches: accumulation rarely has more; ours


class SummedLoss(Rule):
    """The training loss is a sum over micro-batches, ranks, examples or tokens; the evaluation's is a mean.

    At each evaluation the median of the training loss around it, eight rows before and eight behind, is divided by the
    evaluation's. Two things must agree on one number: the median of four to sixteen such ratios, and the beginning,
    where a model that knows nothing has one loss in both: the first ratio, if the first evaluation is among the first
    20 steps, or the first loss over ln of the output's width (`model/output_width`) or of the vocabulary, and over ln 2
    where an answer is compared with another (`model/loss_ranks`); a first loss of a guess's own size was not summed,
    and the first evaluation has learnt already. A number that the configuration has, or a product of two, proves it:
    gradient accumulation, ranks, batch size, length. So do the rows of a batch that the watch saw
    (`model/example_rows`), where the loss's graph is one sum, of one backward pass, and the first loss over ln of the
    width is their number. Both are within 10% of it (the median of eight ratios alone, where
    the number is 8 or more and no width is known); the median within a third, for a loss that is all noise, where it is
    4 or more and the first loss over ln of the width agrees; each ratio within half, where it is 2 or 3. Any other
    number must be 4 or more, with the first loss as many times ln of the width, and the same (within 10%) at four
    evaluations in a row; where the graph shows what is added up, `loss_weight` says it, and of pairs of a batch, whose
    loss begins at a thousand or more, `pair_temperature` that a mask hides the answers; where it shows a mean that
    nothing multiplies, no such number is one of a sum. Where the configuration says
    that the loss is a sum (`reduction: sum`), it is an info finding: the learning rate may be chosen for it.

    Where the watch knows that the loss which is differentiated is a mean (`model/loss_weight` times
    `model/backwards` is 1), the number that is logged is the sum, and the training is well.

    What to do: divide the loss by that number; the learning rate then need not follow the batch size.
    """

    name, family, kind, severity = "summed_loss", "loss", "exploding", "warning"
    proves = "training"
    needs = ("loss", "eval_loss")
    about = "The training loss is summed, the evaluation loss averaged."
    thresholds: ClassVar = {
        "times": (4.0, "a number that the configuration does not have; ours"),
        "same": (0.1, "how far ratios may differ; ours"),
        "evaluations": (4.0, "ours"),
        "guess": (0.15, "of a guess's loss, at which the first one is a mean, whatever evaluations say; ours"),
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
            place = step, int(rows.time[at]), segment
            if of_other_kind(history, evaluations, *place):
                self._is_over = True
                return
            finding = self._look(history, loss, value, around[1])
            if finding is not None and _trains_on_mean(history, place):
                _of_log(finding)
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
            here = (rows := loss.rows(loss.end - count)).segment == segment
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
        return (median(values) if len(values) else math.nan), last

    def _look(self, history: RunHistory, loss: Channel, value: float, found: int) -> Finding | None:
        if len(self._ratios) < self.at["evaluations"]:
            return None
        widths = history.channel("model/output_width")
        watched_width = widths.first if widths is not None and widths.end else math.nan
        width = history.facts.get("vocabulary") or watched_width
        guess = math.log(width) if width > 1 else math.nan
        if known(history.channel("model/loss_ranks"), found, 1 << 62, self._segment) == 1:
            guess = math.log(2)  # an answer beside another, whatever they are made of
        middle, same = median(self._ratios), self.at["same"]
        begun = is_first_step(history, loss.began[0])  # else a loss of a few steps may have halved already
        for number, what, seen in [*((*one, False) for one in summands(history)), *self._rows(history, found)]:
            if number < 4 and not begun:
                continue
            guessed = abs(loss.first / guess / number - 1) < same
            if seen and not guessed:
                continue
            near = 1 / 3 if guessed and number >= 4 else same
            steady = number >= 4 or all(2 / 3 < item / number < 3 / 2 for item in self._ratios)
            sure = number >= 8 and len(self._ratios) >= 8 and not guess > 0
            early = abs(self._early / number - 1) < same and not abs(loss.first / guess - 1) < self.at["guess"]
            if (sure or guessed or early) and steady and abs(middle / number - 1) < near:
                return self._say(history, value, found, number, what, guess)
        summed, pairs = (known(history.channel(f"model/loss_{name}"), found, 1 << 62, self._segment)
                         for name in ("summed", "pairs"))  # fmt: skip
        if summed > 1 or (pairs > 1 and loss.first >= _MASK):
            return None  # `loss_weight` knows the number, or `pair_temperature` why
        if self._is_mean(history, loss, found):
            return None
        last = self._ratios[-int(self.at["evaluations"]) :]
        steady = self.at["times"] <= min(last) and max(last) <= (1 + same) * min(last)
        if steady and loss.first >= self.at["times"] * guess and value < 1.5 * guess:
            return self._say(history, value, found, median(last), "targets", guess)
        return None

    def _rows(self, history: RunHistory, found: int) -> list[tuple[float, str, bool]]:
        """The rows of a batch, as the watch saw them, where the graph of the loss shows one sum of one pass."""
        rows, passes, *one = (
            known(history.channel(f"model/{name}"), found, 1 << 62, self._segment)
            for name in ("example_rows", "backwards", "loss_adds", "loss_terms")
        )
        return [(rows, "examples", True)] if rows >= self.at["times"] and one == [1, 1] and passes == 1 else []

    def _is_mean(self, history: RunHistory, loss: Channel, found: int) -> bool:
        """Whether what is logged is what the only backward pass of a step begins with, and the graph shows a mean."""
        place, given = (found, 1 << 62, self._segment), history.channel("model/loss_given")
        if given is None or not given.end or given.start or given.began[0] != loss.began[0]:
            return False
        same = abs(given.first - loss.first) <= 1e-3 * abs(loss.first)
        undivided, passes = (
            known(history.channel(f"model/{name}"), *place) for name in ("loss_undivided", "backwards")
        )
        return same and undivided == 1 and not passes > 1

    def _say(self, history: RunHistory, value: float, found: int, number: float, what: str, guess: float) -> Finding:
        loss = history.role("loss")
        assert loss is not None
        step, chosen = loss.began[0], summed_by_choice(history)
        count = f"about {number:.0f}" if what == "targets" else f"{number:.3g}"
        passes = known(history.channel("model/backwards"), found, 1 << 62, self._segment)
        ranks = history.facts.get("world_size") or 1
        parts = passes, ranks, passes * ranks
        single = passes == 1 or all(abs(number / many - 1) > self.at["same"] for many in parts)
        cause = (
            f"gradient accumulation scaled wrongly: the losses of {count} {what} are added, not averaged"
            if what in ("micro-batches", "ranks") or (what == "targets" and number < _MANY and not single)
            else f"loss summed: over {count} {what}, not averaged"
        )
        return self.finding(
            step, f"The training loss is {median(self._ratios):.3g} times the evaluation loss since the start ("
            f"{loss.first:.4g} at first, and now {value:.4g} in the evaluation): it is summed over {count} {what}",
            found=found, segment=self._segment,
            evidence={"times": rounded(median(self._ratios)), "first": rounded(loss.first), "guess": rounded(guess)},
            remedies=[f"Divide the loss by {number:.3g} before `backward()`, or use `reduction='mean'`."],
            causes=[cause], severity="info" if chosen else "warning", confidence=0.6 if chosen else 0.95,
        )  # fmt: skip


def _trains_on_mean(history: RunHistory, place: tuple[int, int, int]) -> bool:
    """Whether the loss that is differentiated is a mean over its targets, as its gradient shows."""
    weight, passes = (known(history.channel(f"model/{name}"), *place) for name in ("loss_weight", "backwards"))
    return abs(weight * max(1.0, passes) - 1) < 0.01 and not scaled_loss(history, place[1])


def _of_log(finding: Finding) -> None:
    """Say that the number which is logged is a sum, and nothing else."""
    number = finding.message.rpartition(" summed over ")[2]
    finding.kind = "logging"
    finding.message += " where it is logged"
    finding.causes = [f"loss summed: over {number}, in what is logged alone; that which is differentiated is a mean"]
    finding.remedies = [f"Divide what is logged by the number of {number.partition(' ')[2]}; gradients are right."]
