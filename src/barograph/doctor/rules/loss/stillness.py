"""Losses that stand still, are exactly zero, or fall too suddenly.

In:   the series of the loss, and beside it evaluation, gradient norm, learning rate, epoch, reward.
Out:  findings of `ZeroLoss`, `FrozenLoss`, `LossJumpDown`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.heldout import HELD_OUT
from barograph.core.patterns import expression
from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.curve import again, before, between, is_game, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.series import SeriesRule
from barograph.doctor.rules.loss.no_margin import no_margin
from barograph.doctor.rules.loss.settled import COPY_FIRST, ONCE, REFERENCE, TWICE, has_settled, is_halves, is_reference
from barograph.doctor.rules.loss.short_runs import repeats
from barograph.doctor.rules.loss.zero_rows import CERTAIN, least_of_zeros
from barograph.doctor.rules.rl.preference import margins_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HELD_OUT = expression(rf"(?i)(?:.*[/_. ])?{HELD_OUT}(?:[/_. ].*)?(?:acc|accuracy|rate|score|success).*")
_CUT_ROWS = 4  # rows of such a loss
_CONVERGED = 1e-4  # of all that the loss has lost: what its last rows differ by
_EXACT = 7  # digits, as numbers have that nobody rounded
_WHOLE = 10  # digits of a number as it was computed
_GUESSES = (2, 3, 10, 100, 1000)  # usual numbers of classes
_LOOKED_BACK, _FEWEST = 4096, 20  # rows in which the losses of an epoch may come again
_HELD = "optimizer holds other parameters: no weight changes"

# Losses that come of a probability that was kept from 0: float32's smallest number (also a denormal one), and usual
# epsilons; 100 is where PyTorch's binary cross-entropy ends.
_CUT = (16.1181, 18.4207, 27.6310, 34.5388, 87.3365, 100.0, 103.279, 103.972)


def _is_cut(value: float) -> bool:
    return any(abs(value / bound - 1) < 1e-5 for bound in _CUT)


@dataclass
class _Stretch:
    """Equal rows: the row and step with which they begin, and how many there are so far."""

    value: float
    row: int
    step: int
    segment: int
    length: int


class ZeroLoss(SeriesRule):
    """A loss that is exactly 0 for several rows.

    No training loss of a language model is 0: all labels are masked, the loss is not computed, or NaN is hidden (HF
    Trainer's `logging_nan_inf_filter` writes 0 where all losses since the last line were NaN; the gradient norm is NaN
    then: two rows are enough). The stretch must have 5 rows; two are enough, for a warning, where each loss ahead was
    above 100, which no rounding makes 0, and three where all ahead were NaN. With a gradient norm of 0 or NaN it is
    critical.

    Silent or an info finding: a loss that was below 0.05 before, or in its last row, which has been fitted and rounded;
    (not where it fell ten-thousandfold within five rows, as where the targets can be seen or are all alike); one that
    was 0 three times before, for fewer rows, as one with a margin that more and more batches keep is;
    one beside which evaluations or errors get better, which is not what is trained, or rounded; losses of policies and
    games (GANs), which may be 0 while reward and KL move. A policy loss that was not 0 and stays
    0 for 20 rows while the gradient norm is 0 too is a warning, and so is one that is 0 for half of the rows while a
    held-out rate stands at its bound.
    """

    name, family, kind, severity = "zero_loss", "loss", "zero", "critical"
    needs = ("loss",)
    least = 5
    about = "The training loss is exactly zero for several rows."
    sources = ("SageMaker Debugger: NLPSequenceRatio, AllZero",)
    thresholds: ClassVar = {
        "rows": (5.0, "ours"),
        "policy_rows": (20.0, "ours: GRPO's first losses are 0 by construction"),
        "few": (5.0, "rows, in which no model learns all there is; ours"),
        "at_once": (1e-4, "of the highest loss, in these; ours"),
        "touched": (3.0, "times that it was 0 for fewer rows before; ours"),
        "fitted": (0.05, "a loss below this may be printed as 0 when it is fitted; ours"),
    }

    def reset(self) -> None:
        self._start: tuple[int, int, int] | None = None  # row, step, segment
        self._nonzero = self._touched = 0
        self._highest = 0.0
        self._recent: list[float] = []
        self._told: Finding | None = None

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        zero = rows.value == 0
        if self._start is None and not zero.any():
            self._count(rows.value)
            return
        edges = numpy.flatnonzero((zero[1:] != zero[:-1]) | (numpy.diff(rows.segment) != 0)) + 1
        cuts = [0, *edges.tolist(), len(rows)]
        for low, high in pairwise(cuts):
            if not zero[low]:
                self._count(rows.value[low:high])
                self._touched += self._start is not None and self._told is None
                self._start = self._told = None
                continue
            if self._start is None or self._start[2] != rows.segment[low]:
                self._start = (rows.first + low, int(rows.step[low]), int(rows.segment[low]))
                self._told = None
            yield from self._zero(
                history, channel, self._start, rows.first + high - self._start[0], int(rows.step[high - 1])
            )

    def _count(self, value: NDArray[Any]) -> None:
        self._nonzero += len(value)
        self._highest = max(self._highest, float(numpy.nanmax(value, initial=0.0)))
        self._recent = [*self._recent, *value[-8:].tolist()][-8:]

    def _zero(
        self, history: RunHistory, channel: Channel, start: tuple[int, int, int], length: int, last_step: int
    ) -> Iterator[Finding]:
        begin, step, segment = start
        least = least_of_zeros(history, channel, begin, segment, int(self.at["rows"]))
        if length < least:
            return
        history.as_of(channel.rows(begin + least - 1, begin + least).time[0] if begin >= channel.start else None)
        game = is_game(history, channel) or history.role("kl") is not None
        # a policy's loss is 0 at times: half of the rows so far are enough
        needed = int(max(least, min(self.at["policy_rows"], begin)) if game else least)
        if length < needed or (game and not self._nonzero):
            return
        if self._told is not None:
            self._told.last_step = last_step
            self._told.evidence["rows"] = length
            yield again(self._told)
            return
        found = channel.rows(begin + needed - 1, begin + needed)
        history.as_of(found.time[0] if len(found) else None)
        found_step = int(found.step[0]) if len(found) else last_step
        earlier = [abs(value) for value in self._recent if math.isfinite(value)]
        usual = min(float(numpy.median(earlier)), earlier[-1]) if earlier else math.nan
        norms = history.role("norm")
        norm = math.nan
        hidden = still = False
        if norms is not None:
            beside = norms.rows()
            here = (beside.step >= step) & (beside.step <= found_step) & (beside.segment == segment)
            part = beside.value[here & (beside.time <= history.clock.now)]
            hidden = len(part) > 0 and not numpy.isfinite(part).any()
            still = len(part) > 0 and not hidden and float(numpy.nanmax(numpy.abs(part))) < 1e-12
            norm = float(numpy.nanmedian(part)) if len(part) and not hidden else math.nan
        fitted = (usual < self.at["fitted"] or self._touched >= self.at["touched"]) and not hidden
        fitted &= not (self._nonzero < self.at["few"] and usual <= self.at["at_once"] * self._highest)
        evidence: dict[str, Any] = {"rows": length, "nonzero_rows_before": self._nonzero}
        if math.isfinite(usual):
            evidence["loss_before"] = rounded(usual)
        if math.isfinite(norm):
            evidence["norm"] = rounded(norm)
        severity = "critical"
        if fitted:
            severity = "info"
        elif game:
            done = self._nonzero >= self.at["rows"] and _stands_at_bound(history, step, found_step, segment)
            severity = "warning" if done or (still and self._nonzero >= 3 * self.at["policy_rows"]) else "info"
        elif not (hidden or still) and (not self._nonzero or needed < self.at["rows"]):
            severity = "warning"
        moves = not hidden and _evaluation_falls(history, step, found_step, segment)
        severity = "info" if moves else severity
        unlogged = not game and not self._nonzero and math.isfinite(norm) and not still
        kind, message, causes, remedies = _reading_of_zero(game, fitted, hidden, still, step, found_step)
        if game and history.role("reward") is None and history.role("kl") is None and not fitted and not hidden:
            causes, remedies = list(_WON), list(_BALANCE)
        margins = between(margins_of(history), step, found_step + 1, segment)
        if len(margins) and margins.min() > CERTAIN and not hidden:
            severity, causes, remedies = "warning", list(_APART), list(_PREFER)
            message += f", with margins of {float(numpy.median(margins)):.3g}"
        if unlogged or moves:
            other = "the evaluation or an error falls" if moves else "the gradient norm is not"
            causes = [f"loss not logged, or rounded: it is 0 in each row, while {other}"]
            remedies = ["Log the loss of each step under this name."]
        self._told = self.finding(
            step,
            message,
            kind=kind,
            severity=severity,
            last_step=last_step,
            found=found_step,
            evidence=evidence,
            causes=causes,
            remedies=remedies,
            segment=segment,
            confidence=0.95 if severity == "critical" else 0.6,
        )
        yield again(self._told)


def _evaluation_falls(history: RunHistory, step: int, last: int, segment: int) -> bool:
    """Whether evaluations from a step on, three or more, or errors beside the loss, get better by a twentieth: the
    model learns."""
    errors = [channel for name, channel in history.channels.items() if _AN_ERROR.fullmatch(name)]
    for channel in (history.role("eval_loss"), *errors):
        values = between(channel, step, last + 1, segment)
        if len(values) >= _EVALUATED and bool(0 < values[-1] < _BETTER * values[0]):
            return True
    return False


_AN_ERROR = expression(r"(?i)(?:.*[^a-z])?(?:r?mse|mae)(?:[^a-z].*)?")
_EVALUATED, _BETTER = 3, 0.95  # evaluations, and what is left of their loss
_APART = ("learning rate too high: the policy has run away from its reference, and tells all pairs apart for certain",
          "overfitting: the pairs are memorized")  # fmt: skip
_PREFER = ("Lower the learning rate by a factor of 10 or more, or beta; stop at margins of a few nats.",
           "Read answers of the policy: a margin this large may come of answers that are broken.")  # fmt: skip
_WON = ("one player has won: it tells real from generated examples without fail, and the other learns nothing",)
_BALANCE = ("Give the other player a higher learning rate or more steps; add noise or smooth labels.",)


def _stands_at_bound(history: RunHistory, step: int, last_step: int, segment: int) -> bool:
    """Whether a held-out rate stands at 0 or 1 between two steps, and did not before."""
    for name, channel in history.channels.items():
        if not _HELD_OUT.fullmatch(name):
            continue
        now, then = between(channel, step, last_step + 1, segment), between(channel, 0, step, segment)
        if len(now) > 2 and len(then) > 2 and now[0] in (0.0, 1.0) and (now == now[0]).all() and (then != now[0]).any():
            return True
    return False


def _reading_of_zero(
    game: bool, fitted: bool, hidden: bool, still: bool, step: int, found_step: int
) -> tuple[str, str, list[str], list[str]]:
    """Kind, message, causes and remedies of a loss of 0. hidden: beside norms that are not finite; still: of 0."""
    message = f"The loss is exactly 0 since step {step}"
    remedies = [
        "Count the labels that are not ignored (−100) in the batches of "
        f"steps {step} to {found_step}; check the chat template and the response mask."
    ]
    causes = ["loss masked out: all labels are ignored", "data exhausted: empty batches"]
    if game:
        causes = [
            "loss masked out: all rewards of a group are equal, so the advantage is zero",
            "reward hacking or KL blow-up: the policy collapsed to one answer",
        ]
    if hidden:
        message += " while the gradient norm is not finite: NaN losses are logged as 0"
        causes = [
            "learning rate too high: NaN, hidden by `logging_nan_inf_filter`",
            "fp16 overflow: NaN, hidden by the trainer's filter",
        ]
        remedies = ["Set `logging_nan_inf_filter=False` to see the loss as it is.", *remedies]
    elif still:
        message += ", and so is the gradient norm: the model does not learn"
    if fitted:
        causes, remedies = ["overfitting: the loss is fitted and rounded to 0"], ["Stop here, or use more data."]
    return "nonfinite" if hidden else "zero", message, causes, remedies


class FrozenLoss(SeriesRule):
    """A loss that has the same value, to the last digit, row after row.

    After a stretch in which fewer than one row in twenty repeated the one before, 8 equal rows are not chance; from the
    start on it takes 16 rows, or 8 of a loss that has moved before, is printed with four digits or more, and is as
    large as at the start: nothing was learned. The same batch with weights that no longer change gives such rows.
    Eight rows are enough of a number of ten digits or more, which nobody rounded, wherever the loss began.
    Numbers printed with few digits repeat by chance, and are distinguished from it by how often they did. Losses that
    come again epoch after epoch, three times to the last digit, are of weights that don't change too. Four rows are
    enough of a number that comes of a probability of 0 which was kept from it, as −ln of float32's smallest. A loss of
    ln 2 of preferences whose graph has a reference, while all weights change, is that of a reference which is the
    policy itself; so are four rows beside margins of exactly 0 behind a warmup.

    It is a warning, critical where the gradient norm is 0 or frozen too. A loss below 0.05, or of a policy, is an info
    finding; so is one that ran into its value: its last changes were each at most half of the one before, down to a
    thousandth of all that it has lost, or the last two a hundredth of that or less, as where a whole data set is fitted
    to the end. Numbers of seven digits are not rounded: where nothing was learned, sixteen equal ones count however
    often they repeated before. A whole multiple of ln 2, while all weights change, is the logistic loss of outputs that
    are all 0.
    """

    name, family, kind, severity = "frozen_loss", "loss", "frozen", "critical"
    needs = ("loss",)
    least = 9
    about = "The training loss does not change at all."
    sources = ("TrainCheck: silent errors, the optimizer's step changes nothing",)
    thresholds: ClassVar = {
        "rows": (8.0, "0.05^8 by chance; ours"),
        "rows_from_start": (16.0, "twice as many; ours"),
        "fallen": (0.01, "of the first loss: less than that is nothing learned; ours"),
        "repeats": (0.05, "share of rows equal to the one before that a healthy log may have; ours"),
        "fitted": (0.05, "as for zero_loss"),
    }
    remedies = (
        "Compare the weights before and after a step; check that the optimizer was given this model's "
        "parameters after the model was moved or wrapped.",
        "Check that the loader gives another batch each step.",
    )

    def reset(self) -> None:
        self._stretch: _Stretch | None = None
        self._repeats = self._rows = 0
        self._first = math.nan
        self._told: Finding | None = None

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        value = rows.value
        old = self._stretch
        if not rows.first:
            self._first = float(value[0])
        goes_on = old is not None and old.value == value[0] and old.segment == rows.segment[0]
        changes = value[1:] != value[:-1]
        if not goes_on and self._told is None and changes.all() and not rows.cuts:  # each row is a stretch
            self._end(old)
            last = len(rows) - 1
            self._rows += last
            step, segment = int(rows.step[last]), int(rows.segment[last])
            self._stretch = _Stretch(float(value[last]), rows.first + last, step, segment, 1)
            return
        edges = numpy.flatnonzero(changes | (rows.segment[1:] != rows.segment[:-1])) + 1
        lengths = numpy.diff(edges, prepend=0, append=len(rows))
        longest = int(lengths.max()) + (old.length if goes_on and old else 0)
        cuts = [0, *edges.tolist(), len(rows)]
        cut = rows.highest > _CUT[0] - 1 and any(
            _is_cut(float(value[low])) and length + (old.length if old and goes_on and not low else 0) >= _CUT_ROWS
            for low, length in zip(cuts[:-1], lengths.tolist(), strict=True)
        )
        if (
            longest < self.at["rows"] and self._told is None and not cut
        ):  # nothing to see: count the stretches that are over
            begin = int(cuts[-2])
            if len(cuts) == 2 and goes_on and old is not None:
                old.length += len(rows)
                return
            self._end(old)
            self._rows += begin
            self._repeats += begin - len(edges) + (1 if goes_on else 0)
            self._stretch = _Stretch(
                float(value[-1]), rows.first + begin, int(rows.step[begin]), int(rows.segment[-1]), len(rows) - begin
            )
            return
        for nth, (low, high) in enumerate(pairwise(cuts)):
            if self._stretch is None or nth or not goes_on:
                self._end(self._stretch)
                self._told = None
                self._stretch = _Stretch(
                    float(value[low]), rows.first + low, int(rows.step[low]), int(rows.segment[low]), 0
                )
            self._stretch.length += high - low
            yield from self._still(history, channel, self._stretch, int(rows.step[high - 1]))

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        """Epochs whose losses are the same, row by row. What the watch has seen since is put into what was said."""
        told, last = self._told, channel.rows(channel.end - 1)
        if told is None and (unmoved := no_margin(self, history, channel)) is not None:
            yield unmoved
        held = told is not None and told.causes[:1] == [_HELD] and len(last) > 0
        place = (int(last.step[0]), 1 << 62, int(last.segment[0])) if held else (0, 0, 0)
        if told is not None and held and is_reference(history, float(last.value[0]), place):
            told.causes, told.remedies = [REFERENCE, *told.causes], [COPY_FIRST, *told.remedies]
            yield again(told)
        rows = channel.rows(channel.end - _LOOKED_BACK)
        lag = repeats(rows.value) if len(rows) > _FEWEST and rows.finite and self._told is None else 0
        if not lag or is_game(history, channel) or any(len(f"{one:.10g}") < 5 for one in rows.value[-lag:].tolist()):
            return
        if numpy.ptp(rows.value[-lag:]) <= _CONVERGED * (channel.first - rows.value[-1]):
            return  # a method that uses all data in each step goes round its minimum
        yield self.finding(
            int(rows.step[-3 * lag]),
            f"The losses come again after {lag} rows, to the last digit, up to step {int(rows.step[-1])}: no weight "
            "changes",
            severity="warning",
            found=int(rows.step[-1]),
            segment=int(rows.segment[-1]),
            key="again",
            causes=[
                "optimizer holds other parameters: no weight changes",
                "layer frozen: what the optimizer steps does not reach the loss",
                "learning rate too low: it is 0, or each step is skipped",
            ],
            evidence={"rows": lag},
            confidence=0.9,
        )

    def _end(self, old: _Stretch | None) -> None:
        if old is not None:
            self._rows += old.length
            self._repeats += old.length - 1

    def _still(self, history: RunHistory, channel: Channel, stretch: _Stretch, last_step: int) -> Iterator[Finding]:
        if stretch.value == 0 or not math.isfinite(stretch.value):
            return
        digits = len(f"{stretch.value:.10g}".replace(".", "").lstrip("0"))
        unlearned = (
            self._rows > 0 and digits >= 4 and abs(stretch.value - self._first) <= self.at["fallen"] * abs(self._first)
        )
        long = self._rows < 20 and not unlearned and digits < _WHOLE
        needed = int(self.at["rows_from_start" if long else "rows"])
        needed = min(needed, _CUT_ROWS) if (cut := _is_cut(stretch.value)) else needed
        drawn = unlearned and digits >= _EXACT and stretch.length >= self.at["rows_from_start"]  # not of rounding
        if stretch.length < needed or (self._repeats > self.at["repeats"] * max(self._rows, 1) and not drawn):
            return
        if self._told is not None:
            self._told.last_step, self._told.evidence["rows"] = last_step, stretch.length
            yield again(self._told)
            return
        found = channel.rows(stretch.row + needed - 1, stretch.row + needed)
        history.as_of(found.time[0] if len(found) else None)
        found_step = int(found.step[0]) if len(found) else last_step
        norms = between(history.role("norm"), stretch.step, found_step + 1, stretch.segment)
        still = len(norms) >= 3 and (float(norms.max()) == float(norms.min()))
        severity = "critical" if still else "warning"
        moved = self._rows > 2 and abs(stretch.value - self._first) > self.at["fallen"] * abs(self._first)
        settled = moved and has_settled(channel, stretch.row, stretch.segment, stretch.value)
        if (is_game(history, channel) or abs(stretch.value) < self.at["fitted"] or digits < 3 or settled) and not cut:
            severity = "info"
        message = f"The loss is {stretch.value:.6g} in every row since step {stretch.step}"
        if still:
            message += f", and the gradient norm is {float(norms.max()):.4g} in each"
        causes = [
            _HELD,
            "data exhausted: the same batch at every step",
            "layer frozen: no trained parameter affects the loss",
        ]
        remedies, kind = list(self.remedies), self.kind
        guess = next((count for count in _GUESSES if abs(stretch.value - math.log(count)) < 6e-5), 0)
        if cut:
            severity = "critical"
            message += ": the logarithm of a probability that was kept from 0"
        elif guess and moved:
            message += f": that of a uniform guess among {guess}"
        time = int(found.time[0]) if len(found) else 0
        if before(history.role("lr"), found_step + 1, stretch.segment) == 0:
            causes.insert(0, "learning rate too low: it is 0")
        elif settled and not cut:
            message, causes, remedies = message + ", into which it ran by ever smaller changes: it is fitted", [], []
        elif is_halves(history, stretch.value, (found_step, time, stretch.segment)):
            kind, causes, remedies = "logits", [TWICE, *causes[1:]], [ONCE, *remedies]
        elif is_reference(history, stretch.value, (found_step, time, stretch.segment)):
            causes, remedies = [REFERENCE, *causes], [COPY_FIRST, *remedies]
        elif cut or (guess and moved):  # weights did change before
            causes = [
                "learning rate too high: outputs overflowed, or units died, and are the same for each input",
                "bad initialisation: outputs are far too large" if cut else causes[2],
                "labels shifted: no example has the label that is trained" if cut else causes[0],
            ]
            remedies = [
                "Lower the learning rate by a factor of 10, and clip gradients.",
                f"Look at the outputs of step {stretch.step}: are they finite, and do they differ between inputs?",
            ]
        self._told = self.finding(
            stretch.step,
            message,
            kind=kind,
            severity=severity,
            last_step=last_step,
            found=found_step,
            segment=stretch.segment,
            causes=causes,
            remedies=remedies,
            evidence={
                "rows": stretch.length,
                "loss": stretch.value,
                "repeats_before": self._repeats,
                "rows_before": self._rows,
            },
            confidence=0.9 if severity != "info" else 0.5,
        )
        yield again(self._told)
