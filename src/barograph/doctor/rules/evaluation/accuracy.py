"""Accuracies and scores that are lost again, also where no loss tells.

In:   the accuracies of the training and of the evaluation; where there are none, a score. What the watch has seen of an
      evaluation's answers.
Out:  findings of `AccuracyCollapse`, `AccuracySummed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from barograph.core.roles import plays
from barograph.doctor.kernel.blocks import SteppedCourse
from barograph.doctor.kernel.cursor import RowCursor, known
from barograph.doctor.kernel.curve import again, rounded
from barograph.doctor.kernel.local import median
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


_PERCENT = 1.5  # an accuracy above it is in percent
_FEW, _THREE = 10, 3  # rows of an accuracy; of fewer, those that are the last
_CHANCE = 1e-4  # how far such an accuracy may be from 1 over the number of classes, as a share


class AccuracyCollapse(Rule):
    """An accuracy that was gained is lost again, most of it, and does not come back.

    Rows of the evaluation's accuracy (where there is none of the training's, or of one that has no other name), merged
    into at most 64 over the whole run: the last tenth, three at least, lie below the best, the median of three in a
    row, by three fifths of what was gained since the start and by six standard deviations of the change from one to the
    next. The gain is 0.15 at least. An accuracy that is the same to the last digit in six rows, and 0.2 or more below
    the best, is of one answer for all, however high it began; so are, of fewer than ten rows, the last three, where
    each is 1 over a whole number from 3 on (0.1, 25%), and half of the best or less. If the accuracy comes back it is
    an info finding. Rewards have rules of their own. Where there is no accuracy a score that is higher where the model
    is better (PSNR, Dice, mIoU, AUC) is looked at, if it is all that was evaluated: its gain is 0.15 of its best at
    least, if that is above 1.
    """

    name, family, kind, severity = "accuracy_collapse", "eval", "eval", "warning"
    needs = ("eval_accuracy|accuracy|=accuracy|=acc|score",)
    least = 6
    about = "The accuracy, or a score, is lost again."
    thresholds: ClassVar = {
        "gain": (0.15, "since the start, for a loss of it to be one; ours"),
        "same": (6.0, "rows that are equal to the last digit, as of one answer for all; ours"),
        "gone": (0.2, "of an accuracy that was higher before; ours"),
        "lost": (0.6, "share of the gain; ours"),
        "deviations": (6.0, "of the change from one to the next; ours"),
    }
    causes = (
        "learning rate too high: the training diverged",
        "bad batch: labels or inputs differ since then",
        "evaluation mode left on: or other data in the evaluation",
    )

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._courses: dict[str, SteppedCourse] = {}
        self._told: Finding | None = None

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel = history.role("eval_accuracy") or _of_batches(history) or _score(history)
        rows = self._cursor.new(channel)
        if channel is None or rows is None or history.role("reward") is not None:
            return
        course = self._courses.setdefault(channel.name, SteppedCourse())
        for step, value, segment in zip(rows.step.tolist(), rows.value.tolist(), rows.segment.tolist(), strict=True):
            if segment != course.segment:
                course.begin(segment)
                self._told = None
            if course.add(value, step) and len(course.values) >= self.least:
                yield from self._judge(channel, course, step, segment)

    def _judge(self, channel: Channel, course: SteppedCourse, found: int, segment: int) -> Iterator[Finding]:
        values = course.values
        middles = [sorted(three)[1] for three in zip(values[:-2], values[1:-1], values[2:], strict=True)]
        place = max(range(len(middles)), key=middles.__getitem__)
        best, start = middles[place], median(values[:3])
        gain, last = best - start, values[-max(3, len(values) // 10) :]
        noise = 1.4826 * median([abs(b - a) for a, b in pairwise(values)])
        if self._told is not None:
            self._told.last_step = found
            if values[-1] > best - 0.3 * gain:
                self._told.severity = "info"
                self._told.message += f"; it was back at step {found}"
                yield again(self._told)
                self._told = None
            return
        few = len(values) < _FEW
        same = values[-_THREE if few else -int(self.at["same"]) :]
        scale = max(1.0, best) if plays("score", channel.name) else 100.0 if best > _PERCENT else 1.0
        stuck = len({*same}) == 1 and best - same[0] >= scale * self.at["gone"] and _word_of(channel) == "accuracy"
        if few and not (stuck and _is_chance(same[0] / scale, best / scale)):
            return
        if not stuck and (
            gain < scale * self.at["gain"]
            or max(last) > best - max(self.at["lost"] * gain, self.at["deviations"] * noise)
        ):
            return
        enough = same[0] if stuck else best - 0.3 * gain
        high = [at for at in range(place, len(values)) if values[at] > enough]
        step = course.step(min(max(high, default=place) + 1, len(values) - 1))
        word = _word_of(channel)
        self._told = self.finding(
            step, f"The {word} was {best:.3g} and is {values[-1]:.3g} since step {step}; it began at {start:.3g}",
            found=found, segment=segment, confidence=0.8,
            evidence={"series": channel.name, "best": rounded(best), "now": rounded(values[-1]),
                      "start": rounded(start)},
            remedies=[f"Go back to before step {step}, and look at loss, gradients and data from there on."],
        )  # fmt: skip
        yield again(self._told)


def _is_chance(share: float, best: float) -> bool:
    """Whether a share of right answers is that of one answer for three classes or more, and half of the best."""
    classes = round(1 / share) if share > 0 else 0
    return classes >= _THREE and abs(share * classes - 1) < _CHANCE and 2 * share <= best


def _word_of(channel: Channel) -> str:
    """What a message calls it."""
    return channel.name if plays("score", channel.name) else "accuracy"


def _of_batches(history: RunHistory) -> Channel | None:
    """The accuracy of training batches, or what is called accuracy alone."""
    return history.role("accuracy") or history.channel("accuracy") or history.channel("acc")


def _score(history: RunHistory) -> Channel | None:
    """The score of a run that evaluates no loss."""
    return history.role("score") if history.role("eval_loss") is None else None


class AccuracySummed(WatchRule):
    """The evaluation's accuracy is above 1, and several times the share of answers that are right.

    The watch sees which of an evaluation's answers are their target (`model/compared_own`). The logged accuracy is
    above 1, and 2 to 8 times that share, a whole number to what chance leaves open, the same in two evaluations in a
    row: shares of ranks, or of batches, are added, and not divided by their number. One in percent is 100 times it.

    What to do: add the hits and the examples of all ranks, or batches, and divide the one by the other.
    """

    name, family, kind, severity = "accuracy_summed", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/compared_own"
    needs = ("=model/compared_own", "eval_accuracy")
    least = 2
    about = "The evaluation's accuracy is a sum of shares, above 1."
    thresholds: ClassVar = {
        "share": (0.1, "of the answers that are right, at least; ours"),
        "most": (8.0, "times that share; ours"),
        "errors": (3.0, "standard errors of that share; ours"),
        "rounded": (0.01, "of it, beside these; ours"),
        "evaluations": (2.0, "in a row, with the same number; ours"),
    }
    causes = ("accuracy summed: shares are added, and not divided by their number",)
    remedies = ("add hits and examples of all ranks, or batches, and divide the one by the other",)

    def begin(self) -> None:
        self._times = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        accuracy, rows = known(history.role("eval_accuracy"), *place), watched(history, "compared_rows", place)
        times = 0
        if self.at["share"] <= value <= 1 < accuracy < math.inf and rows > 0:
            off = self.at["errors"] * math.sqrt((1 - value) / (value * rows)) + self.at["rounded"]
            nearest = round(accuracy / value)
            fits = 2 <= nearest <= self.at["most"] and abs(accuracy / value - nearest) <= off * nearest < 0.5
            times = nearest if fits else 0
        before, self._times = self._times, times
        if not before or before != times:
            self._row = []
        if self.lasts(times > 0, place, self.at["evaluations"]):
            ranks = history.facts.get("world_size") == times
            what = f"of {times} ranks" if ranks else "of batches, or ranks"
            yield self.finding(
                self._row[0][0], f"The evaluation's accuracy is {accuracy:.4g}, {times} times the share of its answers "
                f"that are right ({value:.3g}).", found=place[0], segment=place[2], confidence=0.95,
                evidence={"accuracy": rounded(accuracy), "right": rounded(value), "times": times, "standing": True},
                causes=[f"accuracy summed: shares {what} are added, and not divided by their number"],
            )  # fmt: skip


RULES = (AccuracyCollapse, AccuracySummed)
