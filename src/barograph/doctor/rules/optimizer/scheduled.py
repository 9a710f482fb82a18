"""A scheduler that is stepped too often, too seldom or never, and one that waits for the wrong end of what it is given.

In:   counts of the scheduler beside those of the optimizer, its length, the best of what it was given; evaluations.
Out:  findings of `ScheduleCount`, `PlateauMode`, `PlateauPace`, `ScheduleAnew`, `ScheduleElsewhere`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.configuration import ACCUMULATION, BATCH
from barograph.doctor.kernel.cursor import RowCursor, came_by, known, numeric_setting, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.optimizer.accounts import rate_shares, times_stepped
from barograph.doctor.rules.optimizer.again import is_meant

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

_EPOCHS = ("epochs", "num_epochs", "max_epochs", "n_epochs", "num_train_epochs", "train_epochs", "total_epochs")
_SAME = 1e-5  # of a number: it is written in fewer digits than it has


def epochs_passed(history: RunHistory) -> float:
    """How many epochs have passed."""
    epochs = history.role("epoch") or history.channel("data/epoch")
    values = epochs.rows().value if epochs is not None else numpy.empty(0)
    values = values[numpy.isfinite(values)]
    return float(values.max() - values.min()) if len(values) else 0.0


def epochs_meant(history: RunHistory) -> float:
    """How many epochs a run is configured for; those of the run, where nothing is said."""
    said = numeric_setting(history, *_EPOCHS)
    return said if said == said else epochs_passed(history) + 1


class ScheduleCount(Rule):
    """The run is over, and the scheduler's count of steps does not go with the optimizer's.

    The watch reads both, of torch's schedulers, and how many steps a schedule is made for. In 90 steps or more, and in
    the whole run: the scheduler was never stepped, though it is made for as many steps as the optimizer made, or as are
    planned (within a tenth), or there were three epochs. It is made for as many steps as the optimizer made, and was
    stepped once in five of these or less: once an epoch. It is made for as many, and was stepped twice at each, or more
    often: it is over, or rises again, in the middle. Or it is cosine annealing, stepped at each step, and the run ends
    at half of the peak or more, a fifth to 1.1 of the schedule's length behind its end: the rate has come down, and up
    again. Or it is made for as many steps as there are epochs, three or more, and was stepped at each step, three times
    as often or more; or it has stairs, the last of which is one of the epochs, the third or a later one, and was there
    within the first; or stairs up to one of the optimizer's steps, and came to a fifth of that or less, stepped once in
    many, so that the rate never fell. Or it is made for k times as many steps as the optimizer made, all that are
    planned, and was stepped once at each, where each has k backward passes; or for as many times as a batch has
    examples. Or it has no length of its own, was stepped exactly once at each of k backward passes of a step, there are
    not k ranks, and the rate does not end at a tenth of its peak or less, but by the same factor again and again.

    Or the rate itself says it, of any scheduler: behind its peak its share falls, in two records in a row or more, to
    below a half, and stands still or rises again from 1 / k of the steps on (within a tenth; a fifth earlier where the
    scheduler was stepped k times at each, for it may be meant to end before the run), where each step has k backward
    passes, the configuration says so, or the scheduler was stepped k times at each. The fall may end but for a fiftieth
    of the mean one from record to record. A rate in stairs, stepped k times at each step, is over where it falls for
    the last time. Of a run that was resumed, and whose rate goes on where it was, the scheduler's count alone tells k.
    Where it rises again, it does so smoothly, not to half of its peak in one record, and the
    configuration does not speak of cycles or restarts.

    What to do: `scheduler.step()` once behind each `optimizer.step()`, and a schedule of as many steps as the run has.
    """

    name, family, kind, severity = "schedule_count", "optimizer", "learning_rate", "warning"
    proves = "training"
    needs = ("=model/scheduler_steps|=model/rate_share",)
    least = 4
    about = "The scheduler is stepped too often, too seldom, or never."
    thresholds: ClassVar = {
        "steps": (90.0, "ours"),
        "epochs": (3.0, "without a step of the scheduler; ours"),
        "within": (0.1, "of the optimizer's steps: the schedule's length; ours"),
        "seldom": (0.2, "steps of the scheduler for one of the optimizer; ours"),
        "often": (3.0, "times the number of epochs; ours"),
        "behind": (0.2, "of its length, that cosine annealing goes on behind its end; ours"),
        "ended": (0.1, "of the peak: the schedule may end with the run; ours"),
        "high": (0.5, "of the peak, at the end; ours"),
        "batch": (8.0, "examples, whose number is a factor of the length; ours"),
        "early": (0.8, "of the run over k, that a schedule stepped k times at each may end at; ours"),
        "still": (0.02, "of the mean fall from record to record: as good as none, behind a sudden end; ours"),
        "sudden": (0.1, "of the fall before, that is left; ours"),
        "falls": (2.0, "records in a row in which the rate falls, more than a single drop; ours"),
    }
    remedies = ("call `scheduler.step()` once behind each `optimizer.step()`",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._by_rate(history)
        yield from self._by_count(history)

    def _by_rate(self, history: RunHistory) -> Iterator[Finding]:
        """The schedule is over after one k-th of the run, and there are k micro-batches, or k steps of it, a step."""
        rows = rate_shares(history, int(self.at["steps"]), resumed=True)
        if rows is None:
            return
        share, steps = rows.value, rows.step
        length = history.facts.get("planned_steps") or int(steps[-1]) + int(steps[1] - steps[0])
        channel = history.channel("model/backwards")
        counted = float(numpy.median(channel.rows().value)) if channel is not None and channel.end else math.nan
        once = rows.segment[0] == rows.segment[-1]  # a run that goes on behind its plan is over there, and has parts
        parts = {number for number in (counted, numeric_setting(history, *ACCUMULATION)) if number >= 2 and once}
        times = times_stepped(history)
        pace = float(round(times)) if times >= 1.9 and abs(times - round(times)) <= 0.05 * times else math.nan
        for low, is_last in self._ends(share):
            turns = bool(share[low + 1] > share[low])
            if turns and (share[low + 1] >= 0.5 * share.max() or is_meant(history, stages=False)):
                continue  # it jumps up: a restart
            slack = (float(steps[low]) - float(steps[low - 1])) / (1 if turns else 2)  # between which it is lowest
            end = float(steps[low]) if turns else float(steps[low]) - slack
            fits = [
                k for k in ((pace,) if is_last else (*parts, pace))
                if abs(end - length / k) <= slack + self.at["within"] * length / k
                or (k == pace and self.at["early"] * length / k - slack <= end < length / k)
            ]  # fmt: skip
            if fits:
                break
        else:
            return
        if not self.first():
            return
        micro = fits[0] in parts
        yield self.finding(
            int(steps[low]), f"The schedule is over at step {int(steps[low])} of {length:.0f}"
            f"{', rises again' * turns}, and "
            + (f"each step has {fits[0]:.0f} micro-batches." if micro
               else f"the scheduler is stepped {fits[0]:.0f} times at each step of the optimizer."),
            found=int(steps[-1]), segment=int(rows.segment[low]), confidence=0.95,
            evidence={"micro_batches" if micro else "times": fits[0], "steps": length},
            causes=[f"scheduler stepped {'per micro-batch' if micro else 'too often'}: "
                    f"{fits[0]:.0f} times at each step"],
        )  # fmt: skip

    def _ends(self, share: Any) -> list[tuple[int, bool]]:
        """Records at which a rate may have come down for good: the first that it stands still behind, or rises, and the
        last one, from which on it never falls; whether it is that. share: of the peak [records]."""
        drops, before = -numpy.diff(share), int(self.at["falls"])
        small = drops <= self.at["still"] * share.max() / len(share)  # a schedule may go on from its end by a little
        falls, slow = drops > 0, False
        for at in numpy.flatnonzero(small[1:]) + 1:
            slow = bool(drops[at] <= self.at["sudden"] * drops[at - 1] or (slow and small[at - 1]))
            falls[at] &= not slow
        ends = numpy.flatnonzero((share[:-1] < 0.5 * share.max()) & ~falls)  # flat from there on, or rising again
        down = [at for at in ends.tolist() if at >= before and falls[at - before : at].all()]
        down = [at for at in down if share[: at + 1].max() >= 0.5 * share.max()]
        return [(at, False) for at in down[:1]] + [(at, True) for at in down[1:] if not falls[at:].any()][:1]

    def _by_count(self, history: RunHistory) -> Iterator[Finding]:
        """The scheduler's count beside the optimizer's."""
        counts, steps = history.channel("model/scheduler_steps"), history.channel("model/scheduled_steps")
        if not history.facts.get("finished") or counts is None or steps is None or counts.end < self.least:
            return
        rows, ours = counts.rows(), steps.rows()
        if len(rows) != len(ours) or rows.segment[0] != rows.segment[-1] or not self.first():
            return
        made, went = float(ours.value[-1] - ours.value[0]), float(rows.value[-1] - rows.value[0])
        if ours.value[-1] < self.at["steps"] or not made > 0 or went < 0:
            return
        length = known(history.channel("model/scheduler_length"), *self._end(rows))
        whole = float(ours.value[-1]) + 1
        fits = abs(length - whole) <= self.at["within"] * whole
        said = ""
        planned = history.facts.get("planned_steps") or math.nan
        meant = fits or abs(length - planned) <= self.at["within"] * planned
        if not went and (meant or epochs_passed(history) >= self.at["epochs"]):
            cause, said = "scheduler never stepped", f"was not stepped in {whole:.0f} steps of the optimizer"
        elif fits and went <= self.at["seldom"] * made and went:
            cause = "scheduler stepped too seldom: it counts steps, and is stepped once an epoch"
            said = f"is made for {length:.0f} steps, and came to {rows.value[-1]:.0f} in {whole:.0f} of the optimizer"
        elif fits and went >= 1.9 * made:
            parts = usual(history.channel("model/backwards"), *self._end(rows))
            micro = abs(parts - went / made) < 0.5
            cause = (
                f"scheduler stepped {'per micro-batch' if micro else 'too often'}: {went / made:.0f} times at each step"
            )
            said = f"is made for {length:.0f} steps, and came to {rows.value[-1]:.0f} in {whole:.0f} of the optimizer"
        elif self._counts_epochs(history, length, float(rows.value[-1]), went / made):
            cause = "scheduler stepped per batch: its numbers are of epochs"
            said = f"is made for {length:.0f} steps, as many as there are epochs, and came to {rows.value[-1]:.0f}"
        elif mark := self._stairs_of_epochs(history, rows, went / made, whole):
            cause = "scheduler stepped per batch: its numbers are of epochs"
            said = f"has its last stair at {mark:.0f}, a number of epochs, and was there within the first"
        elif mark := self._stairs_of_steps(history, rows, whole):
            cause = "schedule too long: its stairs are in steps of the optimizer, and it is stepped once an epoch"
            said = f"has its last stair at {mark:.0f}, and came to {rows.value[-1]:.0f} in {whole:.0f} of the optimizer"
        elif parts := self._of_parts(history, length, rows, went / made, whole):
            cause = f"schedule too long: it counts micro-batches, {parts:.0f} for each step"
            said = f"is made for {length:.0f} steps, {parts:.0f} times as many as the optimizer makes"
        elif self._of_examples(history, length, went / made, whole):
            cause = "schedule too long: it counts examples, and is stepped once for each batch of them"
            said = f"is made for {length:.0f} steps, as many times as the optimizer makes as a batch has examples"
        elif not length > 0 and (parts := self._each_pass(history, rows, went / made)):
            cause = f"scheduler stepped per micro-batch: {parts:.0f} times at each step"
            said = f"was stepped {went:.0f} times in {made:.0f} steps of the optimizer, once at each backward pass"
        elif self._rose(history, length, rows, went / made):
            cause = "schedule too short: it is over before the training, and the rate rises again"
            said = f"is made for {length:.0f} steps, and the optimizer makes {whole:.0f}"
        if said:
            yield self.finding(
                int(rows.step[0]), f"The scheduler {said}.", found=int(rows.step[-1]), segment=int(rows.segment[0]),
                confidence=0.95, causes=[cause],
                evidence={"scheduler": went, "optimizer": made, "standing": True},
            )  # fmt: skip

    def _end(self, rows: ChannelRows) -> Place:
        return int(rows.step[-1]), int(rows.time[-1]), int(rows.segment[-1])

    def _counts_epochs(self, history: RunHistory, length: float, count: float, pace: float) -> bool:
        """Whether a schedule of epochs is stepped at each batch."""
        epochs = epochs_meant(history)
        return length == epochs >= self.at["epochs"] and 0.9 < pace < 1.1 and count >= self.at["often"] * length

    def _stairs_of_epochs(self, history: RunHistory, rows: ChannelRows, pace: float, whole: float) -> float:
        """The last stair of a schedule that is stepped at each batch, if it is a number of epochs; else 0."""
        mark, epochs = (
            known(history.channel("model/scheduler_last_mark"), *self._end(rows)),
            epochs_meant(history),
        )
        by_epoch = self.at["epochs"] <= mark <= epochs and mark < whole / epochs
        return mark if by_epoch and 0.9 < pace < 1.1 and rows.value[-1] >= self.at["often"] * epochs else 0.0

    def _stairs_of_steps(self, history: RunHistory, rows: ChannelRows, whole: float) -> float:
        """The last stair of a schedule that is stepped once in many steps, and whose rate never fell, if the optimizer
        made as many steps; else 0."""
        mark, shares = (
            known(history.channel("model/scheduler_last_mark"), *self._end(rows)),
            history.channel("model/rate_share"),
        )
        rates = shares.rows().value if shares is not None else numpy.zeros(0)
        never = len(rates) >= self.least and bool((numpy.diff(rates) >= 0).all())
        seldom = 0 < rows.value[-1] <= self.at["seldom"] * min(mark, whole)
        return mark if never and seldom and mark <= whole else 0.0

    def _of_parts(self, history: RunHistory, length: float, rows: ChannelRows, pace: float, whole: float) -> float:
        """The number of backward passes at each step, where a schedule is made for all of them; else 0."""
        parts = usual(history.channel("model/backwards"), *self._end(rows))
        planned = float(history.facts.get("planned_steps") or 0)
        over = whole >= (1 - self.at["within"]) * planned
        whole = planned if abs(planned - whole) <= self.at["within"] * whole else whole  # the newest look is of before
        fits = parts >= 2 and abs(length - parts * whole) <= self.at["within"] / 2 * length
        return parts if over and fits and 0.9 < pace < 1.1 else 0.0

    def _of_examples(self, history: RunHistory, length: float, pace: float, whole: float) -> bool:
        """Whether a schedule is made for all examples of a run that is over, where it has steps of whole batches."""
        batch, planned = numeric_setting(history, *BATCH), float(history.facts.get("planned_steps") or 0)
        epochs = numeric_setting(history, *_EPOCHS)
        over = whole >= (1 - self.at["within"]) * planned > 0 or epochs_passed(history) + 1 >= epochs
        fits = batch >= self.at["batch"] and abs(length - batch * whole) <= self.at["within"] * length
        return over and fits and 0.9 < pace < 1.1

    def _each_pass(self, history: RunHistory, rows: ChannelRows, pace: float) -> float:
        """The number of backward passes at each step, where a schedule without a length is stepped at each; else 0. One
        that comes down to nothing just at the end may count them on purpose; and one is stepped for each of several
        ranks, as accelerate does it (https://huggingface.co/docs/accelerate/concept_guides/performance)."""
        place = self._end(rows)
        parts, share = usual(history.channel("model/backwards"), *place), history.channel("model/rate_share")
        if share is None or parts < 2 or pace != parts or history.facts.get("world_size") == parts:
            return 0.0
        rates = share.rows().value[-int(self.at["steps"]) // 10 :]
        sound = len(rates) > self.least and bool(((rates > 0) & numpy.isfinite(rates)).all())
        falls = numpy.diff(numpy.log(rates)) if sound else numpy.zeros(0)
        if not sound or not (falls < 0).all():
            return 0.0  # over, or rising again: `_by_rate`
        steadily = bool(numpy.ptp(falls) < 1e-3 * abs(falls[0]))
        ends = rates[-1] <= self.at["ended"] * share.rows().value.max()
        return parts if steadily or not ends else 0.0

    def _rose(self, history: RunHistory, length: float, rows: ChannelRows, pace: float) -> bool:
        """Whether the rate came down and rose again, smoothly, up to the end."""
        channel = history.channel("model/rate_share")
        once = (1 + self.at["behind"]) * length <= rows.value[-1] <= 2.1 * length  # not a cycle of several waves
        if channel is None or not 0.9 < pace < 1.1 or not once:
            return False
        share = channel.rows().value
        low = int(numpy.argmin(share))
        climbs = numpy.diff(share[low:])
        down = share[:low].max(initial=0.0)
        return bool(
            share[-1] >= self.at["high"] * down > 0 and len(climbs) >= 4 and (climbs >= 0).all()
            and climbs.max() <= 0.5 * down and share[low] <= 0.1 * down
        )  # fmt: skip


class PlateauMode(WatchRule):
    """A scheduler that waits for a plateau takes the highest loss for the best one, or the lowest accuracy.

    The watch reads what `ReduceLROnPlateau` holds for the best so far, and its mode. With the mode "max" that is the
    highest of three evaluation losses or more, while one is lower by 1%; with "min", the lowest of three accuracies or
    more, while one is higher. Two are enough where it was stepped twice. Each evaluation that gets better counts as one
    without progress, and the rate falls.

    What to do: `ReduceLROnPlateau(optimizer, mode="min")` of a loss, `mode="max"` of an accuracy.
    """

    name, family, kind, severity = "plateau_mode", "optimizer", "learning_rate", "warning"
    series = "model/plateau_best"
    needs = ("=model/plateau_best", "eval_loss|eval_accuracy")
    about = "A scheduler that waits for a plateau takes the worst evaluation for the best."
    thresholds: ClassVar = {
        "evaluations": (3.0, "ours"),
        "given": (2.0, "evaluations, as often as it was stepped; ours"),
        "better": (0.01, "of the loss or accuracy; ours"),
    }
    causes = ("learning rate too low: it is lowered when the evaluation gets better, by a scheduler of the wrong mode",)
    remedies = ('`ReduceLROnPlateau(optimizer, mode="min")` of a loss, `mode="max"` of an accuracy',)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        highest = known(history.channel("model/plateau_highest"), *place)
        role = "eval_loss" if highest == 1 else "eval_accuracy" if highest == 0 else ""
        seen = _known(history.role(role) if role else None, place)
        given = known(history.channel("model/plateau_steps"), *place) == len(seen)  # each of them, and nothing else
        if len(seen) < self.at["given" if given else "evaluations"]:
            return
        seen = seen if highest == 1 else -seen
        worst = value if highest == 1 else -value
        same = abs(seen.max() - worst) <= _SAME * abs(worst)
        if same and worst - seen.min() >= self.at["better"] * abs(worst) and self.first(place[2]):
            name = "mode of `ReduceLROnPlateau`"
            what = "highest loss" if highest == 1 else "lowest accuracy"
            yield self.finding(
                0, f"The {name} is \"{'max' if highest == 1 else 'min'}\": {value:.4g}, the {what} of {len(seen)} "
                "evaluations, counts as the best.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"best": rounded(value), "evaluations": len(seen), "standing": True},
            )  # fmt: skip


class PlateauPace(Rule):
    """A scheduler that waits for a plateau is stepped at each batch, and the rate is gone before half of the run.

    The watch reads how often `ReduceLROnPlateau` was stepped and its patience. Stepped as often as the optimizer (nine
    times in ten or more), with a patience of thirty steps or less, it takes the noise of batches for a plateau: at the
    end of the run the rate was at a tenth of its peak in the first half, after 60 steps of the optimizer or more, and
    never rose again. A patience of hundreds of steps, or a rate that comes down late, is left alone.

    What to do: `scheduler.step(validation_loss)` once an epoch.
    """

    name, family, kind, severity = "plateau_pace", "optimizer", "learning_rate", "warning"
    needs = ("=model/plateau_steps", "=model/rate_share")
    least = 4
    about = "A scheduler that waits for a plateau is stepped at each batch."
    thresholds: ClassVar = {
        "steps": (60.0, "of the optimizer; ours"),
        "pace": (0.9, "of its steps; ours"),
        "patience": (30.0, "steps, at most; ours"),
        "low": (0.1, "of the peak; ours"),
        "half": (0.5, "of the run; ours"),
    }
    causes = ("scheduler stepped per batch: it waits for a plateau, and its patience is of epochs",)
    remedies = ("`scheduler.step(validation_loss)` once an epoch, behind the evaluation",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        counts, shares = (history.channel(f"model/{name}") for name in ("plateau_steps", "rate_share"))
        if not history.facts.get("finished") or counts is None or shares is None or counts.end < self.least:
            return
        rows, rates = counts.rows(), shares.rows()
        place = int(rows.step[-1]), int(rows.time[-1]), int(rows.segment[-1])
        patience = known(history.channel("model/plateau_patience"), *place)
        made = float(rows.step[-1] - rows.step[0])
        often = float(rows.value[-1] - rows.value[0]) >= self.at["pace"] * made
        if rows.segment[0] != rows.segment[-1] or made < self.at["steps"] or not often:
            return
        low = numpy.flatnonzero(rates.value <= self.at["low"] * rates.value.max())
        falls = bool((numpy.diff(rates.value) <= 0).all())
        soon = len(low) and rates.step[low[0]] <= self.at["half"] * rates.step[-1]
        if patience <= self.at["patience"] and falls and soon and self.first():
            yield self.finding(
                int(rates.step[low[0]]), f"`ReduceLROnPlateau` is stepped at each batch, with a patience of "
                f"{patience:.0f}: the rate is at {rates.value[low[0]]:.2g} of the optimizer's at step "
                f"{rates.step[low[0]]} of {rates.step[-1]}.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"patience": patience, "standing": True},
            )  # fmt: skip


class ScheduleAnew(Rule):
    """After a resume the schedule begins again, where the learning rate is not logged.

    The watch reads the share of the optimizer's rate that is in force. Of its first four rows behind the resume the
    last three are those of the run's very start, to six digits, and the first of these is by a quarter or more from the
    last one before the resume: the scheduler's state was not loaded. In the very first step the rate may be the loaded
    one. A launch that begins at less than half of the steps before is another try; and where the scheduler's own count
    of steps (`model/scheduler_steps`) goes on, it was loaded, and a period begins.

    What to do: load the scheduler's state with the checkpoint.
    """

    name, family, kind, severity = "schedule_anew", "optimizer", "resume", "warning"
    needs = ("=model/rate_share",)
    least = 4
    about = "After a resume, the schedule begins again."
    thresholds: ClassVar = {
        "ratio": (1.25, "of the share before; ours"),
        "rows": (4.0, "of which all but the first are alike; ours"),
    }
    causes = ("schedule restarted: the scheduler's state was not loaded",)
    remedies = ("load the scheduler's state, or its count of steps, with the checkpoint",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._start: list[float] = []  # the run's first shares
        self._fresh: list[float] = []  # those behind the resume
        self._begun, self._segment, self._earlier = 0, -1, -1
        self._last, self._before = (0, math.nan), (0, math.nan)  # step and share; the last of the launch before

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        count = int(self.at["rows"])
        for (step, time, segment), value in self._cursor.each(history.channel("model/rate_share")):
            share = value
            if segment != self._segment:
                self._fresh, self._begun, self._before, self._earlier = [], step, self._last, self._segment
            self._segment, self._last = segment, (step, share)
            if len(self._start) < count and self._before[1] != self._before[1]:
                self._start.append(share)
                continue
            self._fresh.append(share)
            if len(self._fresh) != count or len(self._start) < count or history.role("lr") is not None:
                continue
            away = abs(math.log(max(self._fresh[1], 1e-12) / max(self._before[1], 1e-12)))
            alike = numpy.allclose(self._fresh[1:], self._start[1:], rtol=1e-6, atol=0)
            resumed = self._begun >= 0.5 * self._before[0] and away >= math.log(self.at["ratio"])
            place = step, time, segment
            if alike and resumed and not self._went_on(history, place) and self.first(segment):
                yield self.finding(
                    self._begun, f"After the resume at step {self._begun} the schedule is at {self._fresh[1]:.3g} of "
                    f"the optimizer's rate, as at the run's start; it was at {self._before[1]:.3g}.", found=step,
                    segment=segment, confidence=0.95, evidence={"share": rounded(self._fresh[1]), "standing": True},
                )  # fmt: skip

    def _went_on(self, history: RunHistory, place: Place) -> bool:
        """Whether the scheduler counts on from the launch before: a period ended where that did."""
        counts, (before, _) = history.channel("model/scheduler_steps"), self._before
        each = known(counts, before, place[1], self._earlier) / max(before, 1)
        return known(counts, *place) > each * (place[0] - self._begun / 2)


class ScheduleElsewhere(WatchRule):
    """The scheduler lowers the rate of another optimizer than the one that steps.

    Behind the 20th step the watch looks for torch's schedulers whose optimizer holds the watched parameters, and never
    made a step. Such a one is stepped, twenty times or more in three looks or more, and the rate of its optimizer
    changes by a tenth, while the rate of the optimizer that steps is the same in all of these looks: the optimizer was
    made anew, or loaded, behind the scheduler. What it logs as the rate is not the one that is in force.

    What to do: make the scheduler behind the optimizer, of the one that steps.
    """

    name, family, kind, severity = "schedule_elsewhere", "optimizer", "learning_rate", "warning"
    series = "model/stray_steps"
    needs = ("=model/stray_steps", "=model/stray_share", "=model/rate_share")
    least = 3
    about = "The scheduler lowers the rate of another optimizer than the one that steps."
    thresholds: ClassVar = {
        "looks": (3.0, "ours"),
        "steps": (20.0, "of the scheduler in these; ours"),
        "changes": (0.1, "of its rate; ours"),
    }
    causes = ("scheduler holds another optimizer: the one that steps was made behind it, and keeps its rate",)
    remedies = ("make the scheduler of the optimizer that steps, behind whatever makes or loads that",)

    def begin(self) -> None:
        self._seen: list[tuple[float, float, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        share, ours = watched(history, "stray_share", place), watched(history, "rate_share", place)
        if self._seen and (abs(ours - self._seen[0][2]) > 1e-9 or ours != ours):
            self._seen = []
        self._row = [*self._row[len(self._row) - len(self._seen) :], place]
        self._seen.append((value, share, ours))
        shares = [one[1] for one in self._seen]
        stepped = value - self._seen[0][0] >= self.at["steps"]
        changes = max(shares) - min(shares) >= self.at["changes"] * max(shares)
        if stepped and changes and len(self._seen) >= self.at["looks"] and self.first(place[2]):
            yield self.finding(
                0, f"The scheduler was stepped {value:.0f} times, and changes the rate of an optimizer that never "
                f"stepped, from {max(shares):.3g} to {min(shares):.3g} of its own; the rate of the one that steps has "
                "stayed what it was.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"scheduler": value, "standing": True},
            )  # fmt: skip


def _known(channel: Channel | None, place: Place) -> numpy.ndarray:
    """Evaluations that were known at a place."""
    if channel is None or not came_by(channel, place[1]):
        return numpy.empty(0)
    rows = channel.rows()
    here = (rows.segment == place[2]) & (rows.time <= place[1]) & numpy.isfinite(rows.value)
    found: numpy.ndarray = rows.value[here]
    return found


RULES = (ScheduleCount, PlateauMode, PlateauPace, ScheduleAnew, ScheduleElsewhere)
