"""A learning rate that is not the one that the configuration speaks of, that goes the wrong way, or begins at nothing.

In:   the learning rate, logged and in force, and the configuration.
Out:  findings of `LearningRateDeclared`, `ScheduleMissing`, `RateRises`, `RateZeroAtFirst`, `SchedulerFirst`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import numbers_named, numeric_setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.optimizer.accounts import times_stepped
from barograph.doctor.rules.optimizer.schedule import RATES

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class LearningRateDeclared(Rule):
    """The highest learning rate of the first 1,000 rows is not the configured one, by a factor of 2. An info finding.

    Several parameter groups, scaling with the width or the number of ranks explain it, and so does a typing error.
    """

    name, family, kind, severity = "learning_rate_declared", "optimizer", "config", "info"
    needs = ("lr", "config")
    least = 200
    about = "The learning rate differs from the configured one."
    thresholds: ClassVar = {"ratio": (2.0, "ours"), "rows": (1000.0, "ours")}
    remedies = ("Check what scales the learning rate: batch size, width, ranks, parameter groups.",)

    def reset(self) -> None:
        self._done = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        if self._done:
            return
        channel = history.role("lr")
        count = int(self.at["rows"])
        finished = history.facts.get("finished")
        if channel is None or (channel.end < count and not (finished and channel.end >= self.least)):
            return
        self._done = True
        wanted = numeric_setting(history, *RATES)
        rows = channel.rows(0, count)
        values = rows.value[numpy.isfinite(rows.value)]
        if not len(values) or not wanted > 0 or values.max() <= 0 or values[-1] >= values.max():
            return  # still rising
        ratio = float(values.max()) / wanted
        if 1 / self.at["ratio"] < ratio < self.at["ratio"]:
            return
        at = int(numpy.argmax(rows.value == values.max()))
        yield self.finding(
            int(rows.step[at]),
            f"The learning rate peaks at {values.max():.3g}; the configuration says {wanted:.3g}",
            found=int(rows.step[-1]),
            segment=int(rows.segment[at]),
            confidence=0.5,
            evidence={"peak": rounded(float(values.max())), "declared": rounded(wanted)},
            causes=["learning rate too high" if ratio > 1 else "learning rate too low"],
        )


class ScheduleMissing(WatchRule):
    """The configuration speaks of a warm-up or a schedule of the learning rate, and the rate never changes.

    The watch reads the rate in force at each tenth step. From the first twenty steps on it is one number in 90 steps or
    more, and in ten looks or more. The configuration says a warm-up of twenty steps or more, which are over, or a share
    of the steps (`warmup_steps`, `lr_warmup_steps`, `warmup_ratio`, …); or, where the run is over and has come to nine
    tenths of what was planned, a schedule of the rate that falls from the beginning (`lr_scheduler_type: cosine`,
    `decay_lr: true`). A logged rate that changes, a policy's training, and optimizers that warm up by themselves give
    no finding.

    What to do: make the scheduler of this optimizer, and call its `step()` behind each step.
    """

    name, family, kind, severity = "schedule_missing", "optimizer", "learning_rate", "warning"
    proves = "training"
    series = "model/rate_in_force"
    needs = ("=model/rate_in_force", "config")
    least = 10
    about = "The configured warm-up or schedule is not in force."
    thresholds: ClassVar = {
        "looks": (10.0, "at the rate; ours"),
        "steps": (90.0, "ours"),
        "begins": (20.0, "the first step at most; steps of a warm-up at least; ours"),
        "planned": (0.9, "of the planned steps, for a schedule; ours"),
    }
    causes = ("no warm-up: the configured schedule is not in force, the learning rate never changes",)
    remedies = ("make the scheduler of this optimizer, and call `scheduler.step()` behind each `optimizer.step()`",)

    def begin(self) -> None:
        self._rates: list[float] = []
        self._count = 0
        self._first, self._last = (0, 0, 0), (0, 0, 0)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        if history.facts.get("finished") and self._segment >= 0 and self._holds(history):
            yield from self._say(history, self._meant(history))

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._first = self._first if self._rates else place
        self._rates, self._last = [*self._rates[:1], *self._rates[-1:], value], place
        self._count = self._count + 1 if len(self._rates) > 1 else 1
        if self._rates[0] != value:
            self._count = -1 << 30  # it changes
        if self._holds(history):
            yield from self._say(history, self._warmup(history))

    def _holds(self, history: RunHistory) -> bool:
        """Whether the rate is one number, from the beginning of a run on."""
        logged, policy = history.role("lr"), history.role("reward")
        if self._count < self.at["looks"] or self._first[0] > self.at["begins"] or policy is not None:
            return False
        rows = logged.rows() if logged is not None else None
        here = rows.value[rows.time <= self._last[1]] if rows is not None else numpy.empty(0)
        steps = self._last[0] - self._first[0]
        return self._rates[0] > 0 and steps >= self.at["steps"] and (not len(here) or here.min() == here.max())

    def _say(self, history: RunHistory, meant: str) -> Iterator[Finding]:
        if meant and self.first():
            yield self.finding(
                self._first[0], f"The configuration says {meant}; the learning rate is {self._rates[0]:.3g} at each of "
                f"{self._count} looks, from the beginning.", found=self._last[0], segment=self._segment,
                confidence=0.9, evidence={"lr": rounded(self._rates[0]), "standing": True},
                causes=list(self.causes if "warm" in meant else (_NEVER,)),
            )  # fmt: skip

    def _warmup(self, history: RunHistory) -> str:
        """The warm-up that is over, as the configuration has it."""
        steps = self._last[0] - self._first[0]
        found = (f"{name}: {value:g}" for name, value in numbers_named(history, WARMED)
                 if self.at["begins"] <= value <= steps)  # fmt: skip
        return next(found, "")

    def _meant(self, history: RunHistory) -> str:
        """What should have changed the rate by the end of the run."""
        for name, value in numbers_named(history, SHARE):
            if 0 < value < _HALF and value * self._last[0] >= self.at["begins"]:
                return f"{name}: {value:g}"
        planned = history.facts.get("planned_steps") or 0
        if self._last[0] < self.at["planned"] * planned - self.at["begins"]:
            return ""
        for name, value in history.options.found.items():
            plain = name.rpartition(".")[2].lower()
            if _SCHEDULE.fullmatch(plain) and isinstance(value, str) and _FALLS.match(value.lower()):
                return f"{plain}: {value}"
            if plain == "decay_lr" and value is True:
                return "decay_lr: true"
        return ""


class RateRises(Rule):
    """The run has come to its planned end, and the learning rate has risen all the time.

    From the first row to the last, 90 steps at least, no rate is lower than the one before, the first is at a fifth of
    the last or less, and the last quarter of the steps is worth a twentieth of the rise: the run ends with its highest
    rate. The plan is known, and the run has come to 95% of it. Where the configuration speaks of a test of rates, of
    stages or cycles, or of a warm-up of nine tenths of the steps, nothing is said, nor of a run that resumed. Where the
    scheduler's own count has come to a fifth of the optimizer's steps or less, it is stepped once an epoch, and never
    came to where the rate falls.

    What to do: look at which factor a schedule begins with, and which it ends with.
    """

    name, family, kind, severity = "rate_rises", "optimizer", "learning_rate", "warning"
    needs = ("lr|=model/rate_in_force",)
    least = 10
    about = "The learning rate rises from the first step to the last."
    thresholds: ClassVar = {
        "steps": (90.0, "ours"),
        "first": (0.2, "of the last, at most; ours"),
        "late": (0.05, "of the rise, in the last quarter of the steps; ours"),
        "planned": (0.95, "of the planned steps; ours"),
        "warms": (0.9, "of the planned steps: a warm-up that is meant so; ours"),
        "seldom": (0.2, "steps of the scheduler for one of the optimizer: the cause; ours"),
    }
    causes = (
        "schedule reversed: its first and last factor are exchanged",
        "warm-up never ends: it is as long as the run",
    )
    remedies = ("give the schedule its first factor first; let the rate end at a tenth of its peak or less",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rate, planned = history.role("lr") or history.channel("model/rate_in_force"), history.facts.get("planned_steps")
        if not history.facts.get("finished") or not planned or rate is None or rate.end < self.least:
            return
        rows = rate.rows()
        steps, values = rows.step, rows.value
        whole = not rows.first and rows.segment[0] == rows.segment[-1] and steps[-1] - steps[0] >= self.at["steps"]
        if not whole or steps[-1] < self.at["planned"] * planned - 2 * (steps[-1] - steps[-2]):
            return
        rise = float(values[-1] - values[0])
        late = values[-1] - numpy.interp(steps[0] + 0.75 * (steps[-1] - steps[0]), steps, values)
        rises = bool((numpy.diff(values) >= 0).all()) and values[0] <= self.at["first"] * values[-1]
        warms = [value for _, value in numbers_named(history, WARMED) if value >= self.at["warms"] * planned]
        shares = [value for _, value in numbers_named(history, SHARE) if value >= self.at["warms"]]
        meant = any(MEANT.search(name.lower()) and value for name, value in history.options.found.items())
        if rises and late >= self.at["late"] * rise > 0 and not (warms or shares or meant) and self.first():
            seldom = 0 < times_stepped(history) <= self.at["seldom"]
            yield self.finding(
                int(steps[0]), f"The learning rate rises from {values[0]:.3g} at the start to {values[-1]:.3g} at the "
                f"end, step {int(steps[-1])} of {planned}.", found=int(steps[-1]), segment=int(rows.segment[0]),
                confidence=0.9, evidence={"first": rounded(float(values[0])), "last": rounded(float(values[-1])),
                                          "standing": True},
                **({"causes": [_SELDOM], "remedies": [_EACH]} if seldom else {}),
            )  # fmt: skip


_SELDOM = "scheduler stepped too seldom: the warm-up counts steps, and it is stepped once an epoch"
_EACH = "call `scheduler.step()` after each `optimizer.step()`, or give it numbers of epochs"
_HALF = 0.5
_NEVER = "scheduler never stepped: the configured schedule is not in force, the learning rate never changes"
WARMED = expression(r"(?:lr_|num_|n_)?warm_?up_(?:steps|iters|iterations|updates)")
SHARE = expression(r"(?:lr_)?warm_?up_(?:ratio|fraction|frac|proportion)")
_SCHEDULE = expression(r"(?:lr|learning_rate)_(?:schedule|scheduler|decay)(?:_type|_name|_style)?")
MEANT = expression(r"range_?test|lr_?find|find_?lr|finder|stage|phase|cycl|restart|ramp|curricul")
_FALLS = expression(r"cosine|linear|poly|one_?cycle|exponential|inverse_sqrt|rsqrt")

_WAITS = expression(r".*(?:delay|freez|frozen|hold|wait|offset).*")


class RateZeroAtFirst(WatchRule):
    """The learning rate is exactly 0 in the first 20 steps or more, and then it is not.

    The watch reads the largest rate of the optimizer's groups as the step uses it. In its first three looks or more,
    ten steps apart, that is 0, at the steps that the optimizer makes: each costs what a step costs, and changes
    nothing. A warm-up has a rate above 0 from its second step on. Where the configuration has a number of steps to
    wait (a delay, a hold, something that is frozen), nothing is said.

    What to do: look at the warm-up's formula: `step // warmup` is 0 up to its end, `(step + 1) / warmup` rises.
    """

    name, family, kind, severity = "rate_zero_at_first", "optimizer", "learning_rate", "warning"
    series = "model/rate_in_force"
    needs = ("=model/rate_in_force",)
    least = 4
    about = "The learning rate is 0 in many steps at the beginning."
    thresholds: ClassVar = {"looks": (3.0, "at 0; ours"), "steps": (20.0, "between the first and the last; ours")}
    causes = ("warm-up does not rise: its factor is 0 up to its end, as by an integer division",)
    remedies = ("`min(1, (step + 1) / warmup)`, not `step // warmup`",)

    def begin(self) -> None:
        self._zeros: list[int] = []
        self._over = False

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self._over:
            return
        if value == 0:
            self._zeros.append(place[0])
            return
        self._over = True
        zeros = self._zeros
        enough = len(zeros) >= self.at["looks"] and zeros[-1] - zeros[0] >= self.at["steps"] and zeros[0] <= 1
        if enough and value > 0 and not any(number > 1 for _, number in numbers_named(history, _WAITS)):
            yield self.finding(
                zeros[0], f"The learning rate is 0 up to step {zeros[-1]} at least, and {value:.3g} at step "
                f"{place[0]}: the first steps change nothing.", last_step=zeros[-1], found=place[0], segment=place[2],
                confidence=0.9, evidence={"rate": rounded(value), "standing": True},
            )  # fmt: skip


class SchedulerFirst(WatchRule):
    """The scheduler is stepped before the optimizer: the first rate of the schedule is never used.

    In the first launch, with an optimizer that had made no steps, the scheduler's count is one more than the
    optimizer's steps before each of five looks, from the first one on. A scaler leaves steps out that the scheduler
    counts, and with one nothing is said. It costs the schedule its first rate, and is an info finding.

    What to do: `optimizer.step()`, then `scheduler.step()`.
    """

    name, family, kind, severity = "scheduler_first", "optimizer", "learning_rate", "info"
    series = "model/scheduler_steps"
    needs = ("=model/scheduler_steps", "=model/scheduled_steps", "=model/optimizer_age")
    least = 5
    about = "The scheduler is stepped before the optimizer."
    thresholds: ClassVar = {"looks": (5.0, "from the first on; ours")}
    causes = ("scheduler stepped before the optimizer: the schedule's first rate is never used",)
    remedies = ("call `scheduler.step()` behind `optimizer.step()`",)

    def begin(self) -> None:
        self._all = True

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ages, steps = history.channel("model/optimizer_age"), watched(history, "scheduled_steps", place)
        fresh = ages is not None and ages.end > 0 and ages.first == 0 and ages.rows().segment[0] == place[2]
        self._all = self._all and fresh and value == steps + 1 and history.channel("model/loss_scale") is None
        if self.lasts(self._all, place, self.at["looks"]):
            yield self.finding(
                1, f"The scheduler has counted {value:.0f} steps where the optimizer has made {steps:.0f}, and was one "
                "ahead in each look: it is stepped first.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"scheduler": value, "optimizer": steps, "standing": True},
            )  # fmt: skip


RULES = (LearningRateDeclared, ScheduleMissing, RateRises, RateZeroAtFirst, SchedulerFirst)
