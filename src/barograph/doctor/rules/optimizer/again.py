"""A schedule that begins again and again in one launch, goes on at another step than its own, is stepped in two places,
or lowers its rate twice, or is over within a few steps and comes back, or waits for a plateau of several things.

In:   the learning rate row by row; the scheduler's own count of steps, and the rate beside its formula.
Out:  findings of `WarmupAgain`, `ScheduleBackwards`, `ScheduleBehind`, `LoweredTwice`, `SteppedAgain`, `FewSteps`,
      `PlateauTold`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.series import SeriesRule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

_CYCLES = r"cycl|restart|period|wave|sawtooth|triang|sgdr|t_0|t_mult"
_MEANT = expression(rf"{_CYCLES}|stage|phase|round|curricul")  # stages may be a network's
_AS_CYCLES = expression(_CYCLES)
_SAME = 1e-3  # of a rate
_FOUND_AT = 20  # steps, before a scheduler is found
_TWICE = "schedule ahead: the scheduler's state is loaded, and it is stepped for all steps so far besides"
_ANEW = "schedule restarted: the scheduler's state was not loaded, and that of the optimizer was"
_LEFT = 0.1  # of a rate, that it differs from what a formula gives
_EVEN = 0.1  # of the distance between two restarts
REMEDY = "make the scheduler once, before the loop over epochs, and call its `step()` with nothing"


def is_meant(history: RunHistory, stages: bool = True) -> bool:
    """Whether the configuration speaks of cycles, restarts, or stages. stages: these count."""
    words = _MEANT if stages else _AS_CYCLES
    return any(
        value not in (None, False, 0, "") and (
            words.search(name.rpartition(".")[2].lower())
            or (isinstance(value, str) and "/" not in value and words.search(value.lower()))
        )
        for name, value in history.options.found.items()
    )  # fmt: skip


class WarmupAgain(SeriesRule):
    """The warm-up comes back at even distances: the schedule begins again and again.

    A launch begins with a warm-up, at half of its peak or less. Two times or more the rate falls at once, from half of
    the peak or more to two fifths of that or less, not to 0, and rises again from there, in four rows or more, to nine
    tenths of the peak, without a row in which it falls; the distances are the same to a tenth. Cycles of usual
    schedules come down smoothly, and jump up. Where the configuration speaks of cycles, restarts, stages or rounds,
    nothing is said.

    What to do: make the scheduler once; a scheduler that is given a number by `step()` takes it for the epoch.
    """

    name, family, kind, severity = "warmup_again", "optimizer", "learning_rate", "warning"
    series = "lr"
    needs = ("lr",)
    least = 24
    about = "The warm-up of the learning rate comes back at even distances."
    thresholds: ClassVar = {
        "fall": (0.4, "of the row before; ours"),
        "high": (0.5, "of the peak, from which it falls; ours"),
        "begins": (0.5, "of the peak, at most, at the start; ours"),
        "rises": (4.0, "rows; ours"),
        "back": (0.9, "of the peak; ours"),
        "times": (2.0, "ours"),
    }
    causes = (
        "schedule restarted: the scheduler is made anew each epoch, or is given a number as its epoch",
        "scheduler stepped with a loss: it takes that for its count of steps",
    )
    remedies = (REMEDY,)

    def reset(self) -> None:
        self._segment, self._begun, self._start = -1, 0, math.nan  # step and rate of its first row
        self._peak, self._last = 0.0, math.nan
        self._rises = -1  # rows since it fell at once; -1 where it has been up since
        self._falls: list[int] = []  # steps at which it fell so

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        value = rows.value
        if rows.finite and rows.all_of(self._segment) and self._rises < 0:
            before = numpy.concatenate(([self._last], value[:-1]))
            if not (value < self.at["fall"] * before).any():
                self._peak, self._last = max(self._peak, rows.highest), float(value[-1])
                return
        for at, one in enumerate(value.tolist()):
            if int(rows.segment[at]) != self._segment:
                self.reset()
                self._segment, self._begun, self._start = int(rows.segment[at]), int(rows.step[at]), one
            if math.isfinite(one):
                self._move(one, int(rows.step[at]))
                self._peak, self._last = max(self._peak, one), one
                yield from self._tell(history, int(rows.step[at]))

    def _move(self, value: float, step: int) -> None:
        """The next row of a launch."""
        if 0 < value < self.at["fall"] * self._last:
            if self._rises >= 0 or self._last < self.at["high"] * self._peak:
                self._falls = []
            self._rises = 0
            self._falls.append(step)
        elif self._rises >= 0 and value > self._last:
            self._rises += 1
        elif self._rises >= 0 and value < self._last:
            self._rises, self._falls = -1, []

    def _tell(self, history: RunHistory, step: int) -> Iterator[Finding]:
        if self._rises < 0 or self._last < self.at["back"] * self._peak:
            return
        if self._rises < self.at["rises"]:
            self._falls = []
        self._rises = -1
        apart = numpy.diff([self._begun, *self._falls])
        even = bool((abs(apart - apart[-1:]) <= max(2.0, _EVEN * float(apart[-1:].sum()))).all())
        begun = self._start <= self.at["begins"] * self._peak
        if (
            len(self._falls) >= self.at["times"]
            and even
            and begun
            and not is_meant(history)
            and self.first(self._segment)
        ):
            yield self.finding(
                self._falls[0], f"The learning rate falls at once and warms up again every {apart[-1]} steps, since "
                f"step {self._falls[0]}.", found=step, segment=self._segment, confidence=0.9,
                evidence={"times": len(self._falls), "peak": rounded(self._peak)},
            )  # fmt: skip


class ScheduleBackwards(WatchRule):
    """The scheduler's count of steps goes back within a launch.

    The watch reads it beside the optimizer's. Twice or more it is less than in the look before by one whole step: what
    `step()` of the scheduler was given, such as a loss, counts as its epoch. Where the configuration speaks of cycles,
    restarts, stages or rounds, nothing is said.

    What to do: call `scheduler.step()` with nothing; `ReduceLROnPlateau` alone is given a loss.
    """

    name, family, kind, severity = "schedule_backwards", "optimizer", "learning_rate", "warning"
    series = "model/scheduler_steps"
    needs = ("=model/scheduler_steps",)
    least = 3
    about = "The scheduler's count of steps goes back."
    thresholds: ClassVar = {"times": (2.0, "ours"), "steps": (1.0, "at least; ours")}
    causes = (
        "scheduler stepped with a loss: it takes that for its count of steps",
        "schedule restarted: its count is set back within the launch",
    )
    remedies = (REMEDY, "`ReduceLROnPlateau` is the one scheduler whose `step` is given a loss")

    def begin(self) -> None:
        self._newest, self._segment = -math.inf, -1
        self._back: list[Place] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if place[2] != self._segment:
            self._segment, self._back, self._newest = place[2], [], value
        if value <= self._newest - self.at["steps"]:
            self._back.append(place)
        before, self._newest = self._newest, value
        if len(self._back) >= self.at["times"] and not is_meant(history) and self.first(place[2]):
            yield self.finding(
                self._back[0][0], f"The scheduler's count of steps went back {len(self._back)} times by step "
                f"{place[0]}, from {before:.4g} to {value:.4g} at last.", found=place[0], segment=place[2],
                confidence=0.95, evidence={"times": len(self._back), "standing": True},
            )  # fmt: skip


class ScheduleBehind(WatchRule):
    """After a resume the scheduler goes on, and counts fewer steps than the run has made, or all of them twice.

    The watch reads the scheduler's count beside its own of the optimizer's steps in a launch. In the launch before, the
    count kept one distance from the run's steps in two looks or more. In two looks behind the resume it keeps another
    one, ten steps or more behind (a fifth of the steps before, where that is more), and began at one or more: it was
    told where to go on, as by `last_epoch`, in another unit than its own, or by an older file. Where the optimizer's
    own count is as far behind, it is the loop that goes on elsewhere (`optimizer_count`). A scheduler that begins
    at 0 is one of a new phase, or see `resumed_schedule`; but not where it is made for as many steps as before, which
    were not over, and the rate, which was what its formula gives, is a tenth or more beside it, by one factor in both
    looks (`model/schedule_beside`): the optimizer's state was loaded, with the rate of then, and the scheduler begins
    anew from that. A launch that begins at fewer steps than the one before has seen is another try.

    Or it goes on from twice the count that it had before (to one step, of ten or more): its state was loaded, and it
    was stepped for all steps so far besides. A schedule that is moved on by any other number may be so on purpose.

    What to do: load the scheduler's state, and do nothing else; give `last_epoch` the number of `scheduler.step()` so
    far.
    """

    name, family, kind, severity = "schedule_behind", "optimizer", "resume", "warning"
    series = "model/scheduler_steps"
    needs = ("=model/scheduler_steps", "=model/scheduled_steps")
    least = 4
    about = "After a resume the scheduler goes on at an earlier step, or has counted all steps twice."
    thresholds: ClassVar = {
        "looks": (2.0, "in a row, with one distance; ours"),
        "steps": (10.0, "behind; ours"),
        "share": (0.2, "of the run's steps before; ours"),
        "twice": (1.0, "off twice the count before, at most; ours"),
    }
    causes = ("schedule restarted: the scheduler goes on from another count than its own, as one of epochs",)
    remedies = (
        "load the scheduler's state with the checkpoint: `scheduler.load_state_dict(…)`",
        "give `last_epoch` the number of calls of `scheduler.step()` so far, not that of epochs",
    )

    def reset(self) -> None:
        super().reset()
        self._away: list[float] = []  # the run's steps less the scheduler's, in the looks of this launch
        self._before, self._seen, self._last, self._at = math.nan, 0, 0, -1  # of the launch before; steps; segment
        self._older, self._age = math.nan, math.nan  # the optimizer's count less the scheduler's: before, and now
        self._whole, self._length = math.nan, math.nan  # steps that it is made for: before, and now
        self._beside: list[float] = []  # the rate over the formula's, in the looks of this launch
        self._fitted = False  # whether it was the formula's in the launch before

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if place[2] != self._at:
            steady = len(self._away) >= self.at["looks"] and len(set(self._away)) == 1
            self._before, self._away, self._at = self._away[-1] if steady else math.nan, [], place[2]
            self._last, self._older, self._whole = self._seen, self._age, self._length
            self._fitted, self._beside = bool(self._beside) and all(abs(one - 1) <= _SAME for one in self._beside), []
        self._seen, self._age = place[0], watched(history, "optimizer_age", place) - value
        self._away.append(place[0] - value)
        self._length = watched(history, "scheduler_length", place)
        self._beside.append(watched(history, "schedule_beside", place))
        made = watched(history, "scheduled_steps", place)
        begun, behind = place[0] - made - 1, self._away[-1] - self._before  # steps before this launch
        enough = len(self._away) == self.at["looks"] and len(set(self._away)) == 1
        far = behind >= max(self.at["steps"], self.at["share"] * begun) and begun >= self._last - 1
        together = abs(self._age - self._older) < self.at["steps"]
        had = begun + 1 - self._before  # what the scheduler had counted before
        begins = value == made and self._length == self._whole > had and self._fitted
        share = self._beside[-1]
        begins = begins and abs(share - 1) > _LEFT and max(self._beside) - min(self._beside) <= _SAME * share
        twice = had >= self.at["steps"] and abs(value - made - 2 * had) <= self.at["twice"] and begun >= self._last - 1
        if enough and twice and not together and self.first(place[2]):
            yield self.finding(
                round(begun) + 1, f"After the resume at step {begun + 1:.0f} the scheduler goes on from "
                f"{value - made:.0f} steps, and had counted {had:.0f} before.", found=place[0], segment=place[2],
                confidence=0.95, evidence={"ahead": value - made - had, "standing": True}, causes=[_TWICE],
                remedies=["load the scheduler's state, and do not step it for the steps so far"],
            )  # fmt: skip
        elif enough and far and not together and value - made >= 1 and self.first(place[2]):
            yield self.finding(
                round(begun) + 1, f"After the resume at step {begun + 1:.0f} the scheduler goes on from "
                f"{value - made:.0f} steps: {behind:.0f} fewer than the training had made.", found=place[0],
                segment=place[2], confidence=0.95, evidence={"behind": behind, "standing": True},
            )  # fmt: skip
        elif enough and far and not together and begins and self.first(place[2]):
            yield self.finding(
                round(begun) + 1, f"After the resume at step {begun + 1:.0f} the scheduler begins again, for "
                f"{self._length:.0f} steps as before, at {share:.3g} of the rate that its formula gives: that of then "
                "was loaded.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"behind": behind, "standing": True}, causes=[_ANEW],
            )  # fmt: skip


class LoweredTwice(WatchRule):
    """The rate is lowered by the scheduler, and by something else beside it.

    Of torch's schedulers that have a formula the watch compares the rate with what that gives at the scheduler's count
    (`model/schedule_beside`). In one launch it was the formula's (to a thousandth), and is less by half or more at two
    later times at least, each time by half of the time before, and never more again.

    What to do: leave the rate to the scheduler; take out what writes `group["lr"]`.
    """

    name, family, kind, severity = "lowered_twice", "optimizer", "learning_rate", "warning"
    series = "model/schedule_beside"
    needs = ("=model/schedule_beside",)
    least = 4
    about = "The rate is lowered by the scheduler, and by something else beside it."
    thresholds: ClassVar = {"half": (0.5, "of the ratio before; ours"), "times": (2.0, "ours")}
    causes = ("learning rate falls too fast: it is lowered twice, by the scheduler and beside it",)
    remedies = ('leave the rate to the scheduler: take out what writes `group["lr"]` beside it',)

    def begin(self) -> None:
        self._falls: list[tuple[int, float]] = []  # steps, and what was left
        self._level, self._segment = math.nan, -1

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if place[2] != self._segment:
            self._segment, self._falls, self._level = place[2], [], math.nan
        if abs(value - 1) <= _SAME and not self._falls:
            self._level = 1.0
        elif value <= self.at["half"] * self._level:
            self._falls.append((place[0], value))
            self._level = value
        elif value > self._level * (1 + _SAME):
            self._level, self._falls = math.nan, []  # somebody else's rate, raised and lowered
        if len(self._falls) >= self.at["times"] and self.first(place[2]):
            yield self.finding(
                self._falls[0][0], f"The learning rate is {value:.3g} of what the scheduler's formula gives: it is "
                f"lowered beside it, since step {self._falls[0][0]}.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"share": rounded(value), "standing": True},
            )  # fmt: skip


class SteppedAgain(WatchRule):
    """The scheduler is stepped in two places: several times at once, or once more at the end of each epoch.

    The watch follows its count from step to step of the optimizer, from the 20th on. In three places or more it went on
    by two or more at once. Either it did so whenever it went on, always by the same, between no more than one in three
    of the steps, and not by the number of ranks, as accelerate does it: an epoch's end steps it twice. Or it went on by
    one as well, and by two at five places or more that lie even, to a fifth: it is stepped at batches, and again at the
    end of each epoch. Where losses are scaled this may be steps that were left out, and nothing is said.

    What to do: one call of `scheduler.step()`, in the loop that its numbers are of.
    """

    name, family, kind, severity = "stepped_again", "optimizer", "learning_rate", "warning"
    series = "model/scheduler_jumps"
    needs = ("=model/scheduler_jumps",)
    least = 1
    about = "The scheduler is stepped in two places of the loop."
    thresholds: ClassVar = {
        "times": (3.0, "at once, whenever it goes on; ours"),
        "seldom": (1 / 3, "of the steps, at most; ours"),
        "more": (5.0, "times by two, where it goes on by one as well; ours"),
        "even": (0.8, "the shortest distance between these over the longest; ours"),
    }
    causes = ("scheduler stepped too often: it is stepped in two places",)
    remedies = ("call `scheduler.step()` once, in the loop that its numbers are of",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("scheduler_moves", "scheduler_jump", "scheduler_jumps_even", "scheduled_steps")
        moves, by, even, steps = (watched(history, name, place) for name in names)
        steps -= _FOUND_AT
        seldom, scaled = moves <= self.at["seldom"] * steps, history.role("loss_scale") is not None
        if seldom and value == moves and value >= self.at["times"] and by not in (0, history.facts.get("world_size")):
            said = f"counts on by {by:.0f} at once whenever it is stepped, {value:.0f} times in {steps:.0f} steps"
        elif moves > value >= self.at["more"] and by == 2 and even >= self.at["even"] and not scaled:
            said = f"counts on by one at a time, and by two at {value:.0f} places that lie evenly apart"
        else:
            return
        if self.first(place[2]):
            yield self.finding(
                0, f"The scheduler {said}.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"jumps": value, "by": by, "standing": True},
            )  # fmt: skip


class FewSteps(WatchRule):
    """A schedule is made for a few steps, is stepped at each of the optimizer's, and the rate swings ever since.

    The watch reads how many steps one of torch's schedules is made for, eight at most, and that it was stepped once at
    each step of the optimizer, twenty times as often as that or more, in six looks or more. The rate is at half or less
    of its highest in one of these, and rises from one to the next twice or more: as of cosine annealing, which comes up
    again behind its end. Such a number is that of epochs. Where the configuration speaks of cycles or restarts, nothing
    is said.

    What to do: `scheduler.step()` once an epoch, or a schedule of as many steps as the run has.
    """

    name, family, kind, severity = "few_steps", "optimizer", "learning_rate", "warning"
    proves = "training"
    series = "model/scheduler_length"
    needs = ("=model/scheduler_length", "=model/scheduler_steps", "=model/scheduled_steps", "=model/rate_share")
    least = 6
    about = "The schedule is made for a few steps, and the rate swings."
    thresholds: ClassVar = {
        "length": (8.0, "steps, at most; ours"),
        "often": (20.0, "times that length; ours"),
        "looks": (6.0, "ours"),
        "low": (0.5, "of the highest rate; ours"),
        "rises": (2.0, "from one look to the next; ours"),
    }
    causes = ("scheduler stepped per batch: its numbers are of epochs",)
    remedies = ("call `scheduler.step()` once an epoch, or give the schedule as many steps as the run has",)

    def begin(self) -> None:
        self._rates: list[tuple[float, float, float]] = []  # counts of scheduler and optimizer; share of the rate

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("scheduler_steps", "scheduled_steps", "rate_share")
        count, made, share = (watched(history, name, place) for name in names)
        if not 1 <= value <= self.at["length"] or not math.isfinite(count + made + share):
            self._rates = []
            return
        self._rates.append((count, made, share))
        shares = [one[2] for one in self._rates]
        rises = sum(two > (1 + _SAME) * one for one, two in itertools.pairwise(shares))
        each = all(one[0] - self._rates[0][0] == one[1] - self._rates[0][1] for one in self._rates)
        often = count >= self.at["often"] * value and len(shares) >= self.at["looks"]
        swings = rises >= self.at["rises"] and min(shares) <= self.at["low"] * max(shares)
        if each and often and swings and not is_meant(history, stages=False) and self.first(place[2]):
            yield self.finding(
                0, f"The schedule is made for {value:.0f} steps, and came to {count:.0f}: the rate swings between "
                f"{min(shares):.3g} and {max(shares):.3g} of the optimizer's.", found=place[0], segment=place[2],
                confidence=0.95, evidence={"length": value, "scheduler": count, "standing": True},
            )  # fmt: skip


class PlateauTold(WatchRule):
    """A scheduler that waits for a plateau is given several numbers at once, as those of each of several evaluations.

    The watch follows how often `ReduceLROnPlateau` was stepped, from the 20th step of the optimizer on. In four places
    or more, and whenever it was stepped at all, that was twice or more between two steps of the optimizer, always as
    often, and one in three steps or fewer in all; and the rate has come down since. Of several sets, or measures, the
    one that is lower is the best for good, and what the others have counts as steps without progress, so that the rate
    comes down while all of them get better.

    What to do: one call of `scheduler.step()` an evaluation, with the loss of one set, or the mean of all.
    """

    name, family, kind, severity = "plateau_told", "optimizer", "learning_rate", "warning"
    series = "model/plateau_jumps"
    needs = ("=model/plateau_jumps", "=model/rate_share")
    about = "A scheduler that waits for a plateau is given several numbers at once."
    thresholds: ClassVar = {
        "places": (4.0, "at which it is stepped, always several times; ours"),
        "seldom": (1 / 3, "of the steps, at most; ours"),
        "low": (0.99, "of the highest rate; ours"),
    }
    causes = ("scheduler stepped too often: it waits for a plateau, and is given each of several evaluations",)
    remedies = ("call `scheduler.step()` once an evaluation, with the loss of one set, or with the mean of all",)

    def begin(self) -> None:
        self._highest = 0.0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("plateau_moves", "plateau_jump", "plateau_steps", "plateau_patience", "rate_share")
        moves, by, count, patience, share = (watched(history, name, place) for name in names)
        self._highest = max(self._highest, share)
        always = value == moves and value >= self.at["places"] and by >= 2
        low = share < self.at["low"] * self._highest
        if always and low and count <= self.at["seldom"] * place[0] and self.first(place[2]):
            yield self.finding(
                0, f"`ReduceLROnPlateau` is given {by:.0f} numbers one behind the other whenever it is stepped, "
                f"{value:.0f} times, with a patience of {patience:.0f}: the rate is at {share:.2g} of the optimizer's.",
                found=place[0], segment=place[2], confidence=0.95,
                evidence={"at once": by, "times": value, "standing": True},
            )  # fmt: skip


RULES = (WarmupAgain, ScheduleBackwards, ScheduleBehind, LoweredTwice, SteppedAgain, FewSteps, PlateauTold)
