"""What the optimizer's own figures prove: a count of steps that does not go on, a schedule that is stepped too seldom
or too often, rates too small to leave the initialisation, a decay that undoes the training.

In:   `model/optimizer_age`, `rate_share`, `decay_share`, `reach` and what the watch has counted of passes.
Out:  findings of `OptimizerCount`, `ScheduleStuck`, `RateTooLow`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel import depth
from barograph.doctor.kernel.cursor import (
    RowCursor,
    came_by,
    known,
    param_norm_of,
    saved_before,
    usual,
)
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


class OptimizerCount(Rule):
    """After a resume the optimizer's count of steps does not go on with the run's.

    Adam and its kind count their steps. Within a launch that count stays at one distance from the run's steps. Where a
    run goes on and the count is 0, the optimizer's state was not loaded (of momentum alone, whether there is any is
    known at the first step); where it is another distance away, the run
    goes on at another step than the checkpoint's, and schedule, data and evaluations with it. The same is said of a
    run of its own that begins at a step of twenty or more, as one that goes on, with a model that was trained before
    (its gains are set apart) and a count of 0. Where the configuration says that the optimizer begins anew
    (`reset_optimizer`, `load_optimizer: false`, `no_load_optim`), a count of 0 is meant; that only the model is saved
    (`save_only_model`) is no such word. A run of its own whose
    learning rate begins at a quarter or less of what it is a few steps later, and has not fallen, is warmed up for a
    new optimizer: an info finding.
    And the same is said of a run of its own that begins at its first step, with a model that was trained before
    and a count of 0, where the configuration names a file that it resumes from (`resume: run/last.pt`), and speaks of
    no fine-tuning.
    """

    name, family, kind, severity = "optimizer_count", "optimizer", "resume", "warning"
    needs = ("=model/optimizer_age",)
    least = 3
    about = "After a resume, the optimizer's count of steps does not go on."
    sources = ("Adam: bias correction",)
    thresholds: ClassVar = {"steps": (10.0, "off; a scaler may skip some; ours"), "share": (0.02, "of the steps; ours"),
                            "begins": (20.0, "the first step of a run that goes on; ours"),
                            "warms": (0.25, "of a later rate, the first one; ours")}  # fmt: skip

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._segment, self._first = -1, 0
        self._last: tuple[int, float] | None = None  # step and count
        self._fresh = False  # the first launch begins with a count of 0
        self._away = self._before = math.nan  # steps less count, where two records agree; that of the launch before

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/optimizer_age")):
            age = value
            if segment != self._segment:
                anew = self._last is not None and step < 0.5 * self._last[0] and step <= self._first + 1
                if self._last == (self._first, 0.0):  # momentum alone is counted at its first step, and no more
                    self._away = float(self._first)
                self._before = math.nan if anew else self._away  # another stage, or another try
                self._fresh = self._segment == -1 and age == 0
                self._segment, self._first, self._away = segment, step, math.nan
                if age == 0:
                    yield from self._lost(history, step, segment)
            elif self._last is not None:
                same = age > self._last[1] and abs(step - age - (self._last[0] - self._last[1])) <= 2
                self._away = step - age if same else math.nan
                yield from self._compare(history, step, segment, age)
                if self._fresh and self._away >= self.at["begins"]:
                    yield from self._goes_on(history, step, time, segment)
                elif self._fresh and self._away <= 1:
                    yield from self._resumes(history, step, time, segment)
            self._last = (step, age)

    def _lost(self, history: RunHistory, step: int, segment: int) -> Iterator[Finding]:
        if step - self._before > self.at["steps"] and not _begins_anew(history) and self.first(segment):
            yield self.finding(
                step, f"The run goes on at step {step}, and the optimizer begins at 0: its state was not loaded.",
                found=step, segment=segment, confidence=0.95, evidence={"optimizer_steps": 0},
                causes=["optimizer state lost: its moments begin at zero"],
                remedies=["load the optimizer's state with the weights", "if it is gone, warm the learning rate up "
                          "again", *saved_before(history, step)],
            )  # fmt: skip

    def _goes_on(self, history: RunHistory, step: int, time: int, segment: int) -> Iterator[Finding]:
        """A run of its own begins where another one ended."""
        loss, self._fresh = history.role("loss"), False
        steps = loss.rows(0, 2).step.tolist() if loss is not None else []
        begun = steps[0] if steps else -1
        here = len(steps) > 1 and -2 <= begun - self._away <= steps[1] - steps[0] + 1  # with the first row of the log
        trained = known(history.channel("model/gains_apart"), step, time, segment) == 1
        if trained and here and not _begins_anew(history) and self.first(segment):
            warmed = self._warms_up(history, time, segment)
            yield self.finding(
                begun, f"The run begins at step {begun}, as one that goes on, with a model that was trained before, "
                "and the optimizer begins at 0: its state was not loaded"
                f"{'; its learning rate is warmed up' if warmed else ''}.", found=step, segment=segment,
                severity="info" if warmed else "warning", confidence=0.3 if warmed else 0.9,
                evidence={"optimizer_steps": 0, "standing": True},
                causes=["optimizer state lost: its moments begin at zero"],
                remedies=["load the optimizer's state with the weights",
                          "if it is gone, warm the learning rate up again"],
            )  # fmt: skip

    def _warms_up(self, history: RunHistory, time: int, segment: int) -> bool:
        """Whether the rate rises from next to nothing, as for an optimizer that is meant to begin anew."""
        for channel in (history.role("lr"), history.channel("model/rate_share")):
            rows = channel.rows() if channel is not None else None
            rates = rows.value[(rows.segment == segment) & (rows.time <= time)] if rows is not None else numpy.empty(0)
            if len(rates) > 1 and (numpy.diff(rates) >= 0).all() and rates[0] <= self.at["warms"] * rates[-1] > 0:
                return True
        return False

    def _resumes(self, history: RunHistory, step: int, time: int, segment: int) -> Iterator[Finding]:
        """A run that begins at its first step, with a checkpoint that it is said to resume from."""
        self._fresh, found = False, resumed_from(history)
        trained = known(history.channel("model/gains_apart"), step, time, segment) == 1
        if found and trained and not _begins_anew(history) and self.first(segment):
            yield self.finding(
                self._first, f"The run resumes from {found}, as the configuration says, with a model that was trained "
                "before, and its steps and the optimizer begin at 0: only weights were loaded.", found=step,
                segment=segment, confidence=0.9, evidence={"optimizer_steps": 0, "standing": True},
                causes=["optimizer state lost: its moments begin at zero",
                        "schedule restarted: the scheduler's state was not loaded"],
                remedies=["load the optimizer's and the scheduler's state and the step with the weights"],
            )  # fmt: skip

    def _compare(self, history: RunHistory, step: int, segment: int, age: float) -> Iterator[Finding]:
        off = self._before - self._away  # the count beyond what goes with the steps
        if not abs(off) > max(self.at["steps"], self.at["share"] * step):
            return
        loss = history.role("loss")
        rows = loss.rows() if loss is not None else None
        steps = rows.step[rows.segment == segment].tolist() if rows is not None else []
        if steps and abs(self._away - steps[0]) <= 2:
            yield from self._lost(history, steps[0], segment)
        elif self.first(segment):
            began = self._first if off < 0 else self._last[0] if self._last is not None else step
            yield self.finding(
                began, f"The optimizer has made {age:.0f} steps at step {step}, which would be step {step + off:.0f} "
                "of the launch before: the number of steps is not that of the checkpoint.",
                found=step, segment=segment, confidence=0.95, evidence={"optimizer_steps": age, "off": off},
                causes=["resumed at the wrong step: the loop's count is not the checkpoint's"],
                remedies=["save the step with the checkpoint, and go on with it: schedule, data and evaluations follow",
                          "check that weights and optimizer state are of one checkpoint"],
            )  # fmt: skip


def rate_shares(history: RunHistory, least: int, resumed: bool = False) -> ChannelRows | None:
    """The schedule's share of the rate, of a run that is over and was launched once. resumed: or again, where the rate
    goes on as it was."""
    channel = history.channel("model/rate_share")
    if channel is None or not history.facts.get("finished") or channel.end < 4:
        return None
    rows = channel.rows()
    whole = not rows.first and rows.step[-1] - rows.step[0] >= least
    whole = whole and (rows.segment[0] == rows.segment[-1] or (resumed and _goes_on(rows)))
    return rows if whole and numpy.isfinite(rows.value).all() else None


def _goes_on(rows: ChannelRows) -> bool:
    """Whether steps only rise, and no value leaps between two launches as it does within none."""
    moved, between = abs(numpy.diff(rows.value)), numpy.diff(rows.segment) != 0
    within = moved[~between]
    return bool((numpy.diff(rows.step) > 0).all() and len(within) and moved[between].max() <= within.max())


def as_logged(history: RunHistory) -> Channel | None:
    """The series of the log that is the learning rate by its numbers, whatever its name: where the watch has read the
    optimizer's, eight times or more and not always the same, they are the same. None if there is none."""
    read = history.channel("model/rate_in_force")
    if read is None or read.end < _READ:
        return None
    rows = read.rows()
    if numpy.ptp(rows.value) <= _ALIKE * rows.value.max() or rows.segment[0] != rows.segment[-1]:
        return None
    for name in history.channels:
        channel = None if name.startswith("model/") else history.channel(name)
        if channel is None or channel.end < len(rows):
            continue
        theirs = channel.rows()
        at = numpy.minimum(numpy.searchsorted(theirs.step, rows.step), len(theirs) - 1)
        both = theirs.step[at] == rows.step
        if both.sum() >= _READ and (abs(theirs.value[at] - rows.value)[both] <= _ALIKE * rows.value[both]).all():
            return channel
    return None


def _begins_anew(history: RunHistory) -> bool:
    """Whether the configuration says that the optimizer's state is not to be loaded."""
    return any(
        (value is True and _ANEW.search(plain) and not plain.startswith("save"))
        or (value is False and _LOADED.search(plain))
        for name, value in history.options.found.items()
        if (plain := name.rpartition(".")[2].lower())
    )


def resumed_from(history: RunHistory) -> str:
    """The file that the configuration says the run resumes from; nothing where it speaks of fine-tuning."""
    plain = {name.rpartition(".")[2].lower(): value for name, value in history.options.found.items()}
    if any(_TUNED.search(name) and value not in (None, False, 0, "") for name, value in plain.items()):
        return ""
    some = (value for name, value in plain.items() if _RESUMES.fullmatch(name) and isinstance(value, str))
    return next((value for value in some if _FILE.search(value) and "://" not in value), "")


_READ, _ALIKE = 8, 1e-6  # rates that the watch has read, and how near the log's are
_RESUMES = expression(
    r"(?:resume|continue|restore|restart)(?:_training)?(?:_from)?(?:_(?:checkpoint|ckpt|path|file|dir))?(?:_path)?"
)
_FILE = expression(r"\.(?:pt|pth|ckpt|bin|tar|safetensors|pkl)$|(?:checkpoint|ckpt|step|epoch)[-_=]?\d+/?$", re.I)
_TUNED = expression(r"fine_?tun|warm_?start|transfer|pretrain", re.I)
_ANEW = expression(
    r"(?:reset|fresh|new|reinit\w*|skip|ignore|discard|drop|no_load|dont_load|without)_(?:the_)?optim(?:izers?)?(?:_states?)?$|"
    r"(?:^|_)(?:weights|model|params)_only$|only_(?:model|weights|params)$|optim(?:izer)?_(?:reset|anew|fresh)$"
)
_LOADED = expression(r"(?:load|resume|restore|keep)\w*_optim(?:izers?)?(?:_states?)?$")


class ScheduleStuck(Rule):
    """The run is over, and the scheduler never came near the rate that the optimizer was made with.

    Schedulers keep the rate that they start from in each group. The share in force never falls, over 90 steps at
    least, and ends below a half: the scheduler is never stepped, or once an epoch where steps are meant, or its warm-up
    is longer than the run. A run that ends before half of its planned steps is left alone, and so is a schedule that is
    stepped at each step and has stood still for the last quarter of the run: its own rates are lower than the
    optimizer's, as a warm-up by Noam's formula has them, which is followed by a constant rate.
    """

    name, family, kind, severity = "schedule_stuck", "optimizer", "learning_rate", "warning"
    needs = ("=model/rate_share",)
    least = 4
    about = "The scheduler never came near the optimizer's learning rate."
    thresholds: ClassVar = {
        "share": (0.5, "of the optimizer's rate; ours"),
        "steps": (90.0, "ours"),
        "seldom": (0.2, "steps of the scheduler for one of the optimizer: the cause; ours"),
        "each": (0.9, "the same, of one that is stepped at each step; ours"),
    }

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows = rate_shares(history, int(self.at["steps"]))
        if rows is None or not self.first():
            return
        share, last, planned = rows.value, int(rows.step[-1]), history.facts.get("planned_steps")
        if (numpy.diff(share) < 0).any() or share[-1] >= self.at["share"] or (planned and last < 0.5 * planned):
            return
        moved = int((numpy.diff(share) > 0).sum())
        late = share[4 * (rows.step - rows.step[0]) >= 3 * (last - rows.step[0])]
        if times_stepped(history) >= self.at["each"] and len(late) > 1 and late[0] == share[-1]:
            return
        what, remedy = "warm-up never ends: it is longer than the run", "warm up over 1 to 5% of the steps"
        if not moved:
            what, remedy = "scheduler never stepped", "call `scheduler.step()` after each `optimizer.step()`"
        elif moved < 0.5 * len(share) - 1 or times_stepped(history) <= self.at["seldom"]:
            what = "scheduler stepped too seldom: the warm-up counts steps, and it is stepped once an epoch"
            remedy = "call `scheduler.step()` after each `optimizer.step()`, or give it numbers of epochs"
        yield self.finding(
            int(rows.step[0]), f"The schedule is at {share[-1]:.3g} of the optimizer's learning rate at the end, step "
            f"{last}, and was never above.", found=last, segment=int(rows.segment[0]), confidence=0.95,
            evidence={"share": rounded(float(share[-1])), "changes": moved}, causes=[what], remedies=[remedy],
        )  # fmt: skip


def times_stepped(history: RunHistory) -> float:
    """How often the scheduler is stepped at each step of the optimizer, by their counts; NaN where it is not known."""
    counts, steps = history.channel("model/scheduler_steps"), history.channel("model/scheduled_steps")
    if counts is None or steps is None or counts.end < 2 or counts.end != steps.end:
        return math.nan
    made, went = (numpy.diff(one.rows().value)[numpy.diff(one.rows().segment) == 0].sum() for one in (steps, counts))
    return float(went / made) if made > 0 else math.nan


def _from_scratch(history: RunHistory, first: float) -> bool:
    """Whether a model was not trained before: its weights are as torch draws them, its normalisation is as
    initialised, or it guesses."""
    drawn = history.channel("model/drawn")
    if drawn is not None and drawn.end and drawn.first == 1:
        return True
    untrained, width = (history.channel(f"model/{name}") for name in ("untrained", "output_width"))
    if untrained is not None and untrained.end and untrained.first == 1:
        return True
    apart = history.channel("model/gains_apart")
    if apart is not None and apart.end and apart.first == 1:
        return False  # training sets each gain apart: a loss as high as a guess's has other terms, or is of other data
    crossed = history.channel("model/loss_weight")
    guess = math.log(width.first) if width is not None and width.end and width.first > 1 else math.nan
    return crossed is not None and crossed.end > 0 and first > 0.9 * guess


def level(history: RunHistory) -> tuple[float, float, float]:
    """The loss at the start, its lowest stretch and at the end, medians of 16 rows, or of a quarter of what is there;
    NaN where there are fewer than 32."""
    loss = history.role("loss")
    values: Any = loss.rows().value if loss is not None else numpy.empty(0)
    values = values[numpy.isfinite(values)]
    if len(values) < 32:
        return math.nan, math.nan, math.nan
    size = min(16, len(values) // 4)
    middles = numpy.median(values[: len(values) // size * size].reshape(-1, size), axis=1)
    return float(numpy.median(values[:3])), float(middles.min()), float(numpy.median(values[-size:]))


_HALF_A_UNIT = {"half": 2.0**-12, "bfloat": 2.0**-9}  # of a number: a change that is less is rounded away
_LOST = "updates lost in rounding: they are below half a unit in the last place of 16-bit weights"


_SQUARED = "schedule gives the learning rate itself: it is multiplied with the optimizer's, and squared so"


def _is_stuck(share: Channel | None) -> bool:
    """Whether the optimizer's rate was never in force, and its share never fell: `ScheduleStuck` is about that."""
    values = share.rows().value if share is not None else numpy.empty(0)
    return bool(len(values)) and bool(numpy.nanmax(values) < 0.5 and not (numpy.diff(values) < 0).any())


def _is_squared(history: RunHistory) -> bool:
    """Whether the largest share of the optimizer's rate is that rate itself, as where a schedule gives the rate where a
    factor is asked for. A rate of a half or more may be a unit that the schedule counts in."""
    shares, rates = (history.channel(f"model/{name}") for name in ("rate_share", "rate_in_force"))
    if shares is None or rates is None or not shares.end or shares.end != rates.end:
        return False
    share, rate = shares.rows().value, rates.rows().value
    at = int(numpy.nanargmax(share)) if numpy.isfinite(share).any() else -1
    base = rate[at] / share[at] if at >= 0 and share[at] > 0 else math.nan
    return bool(base < 0.5 and abs(share[at] / base - 1) <= _NEARLY)


_NEARLY = 0.05  # of a rate: looks lie beside its peak


def _bound(history: RunHistory, place: tuple[int, int, int], steps: int) -> float:
    """How far a gradient with momentum can have moved all weights, of their norm; NaN if unknown."""
    rates, sizes, norms = (history.channel(f"model/{name}") for name in ("rate_sum", "param_norm", "grad_norm"))
    if rates is None or sizes is None or norms is None or rates.end < 2:
        return math.nan
    rows, values = rates.rows(), norms.rows().value
    values, size = values[numpy.isfinite(values)], known(sizes, *place)
    momentum = max(0.0, known(history.channel("model/momentum"), *place))
    covered = steps / max(1, int(rows.step[-1] - rows.step[0]))  # the newest is of an earlier step
    if not len(values) or not size > 0 or momentum >= 1:
        return math.nan
    if history.layers("optimizer", "second_moment_norm"):
        return math.nan  # steps are divided by it: logs of before had the rates of RMSprop, too
    return float(rows.value[-1]) * max(1.0, covered) * float(values.mean()) / (1 - momentum) / size


class RateTooLow(Rule):
    """The run is over, and its learning rates were too small to leave the initialisation.

    A step of Adam moves a weight by the learning rate at most. Were all steps of the run to go one way, the median
    matrix would have moved by less than a fifth of its own size; the model was not trained before (its normalisation
    begins at 1, or its loss at that of a guess), and the loss has fallen by less than a third. It takes 100 steps.
    Where weights are of 16 bits, and a step is below half a unit in their last place, it is lost: that is the first
    cause. The steps of SGD have no such bound: there the measured ones of the median layer, added up, are a twentieth
    of its size or less (of two to four looks the largest counts), or all rates added up, times the mean norm of the
    gradient and over 1 less the momentum, are a tenth of the weights' norm or less; where gradients are not clipped
    away and do not vanish. Where the largest share of the optimizer's rate that was ever in force is that rate itself,
    a schedule gives the rate where a factor is asked for: that is the first cause. Of a share below a half that never
    falls `schedule_stuck` tells.

    What to do: a learning rate ten times higher.
    """

    name, family, kind, severity = "rate_too_low", "optimizer", "learning_rate", "warning"
    proves = "training"
    needs = ("=model/reach|=model/update_p50|=model/rate_sum", "loss")
    about = "The learning rate is too low to leave the initialisation."
    sources = ("Adam: bias correction",)
    thresholds: ClassVar = {
        "reach": (0.2, "of the size of a matrix's elements; ours"),
        "path": (0.05, "of a layer's size, of measured steps added up; ours"),
        "bound": (0.1, "of the weights' norm, of rates times gradient norms added up; ours"),
        "clipped": (0.01, "of the gradient that clipping leaves; ours"),
        "fall": (1 / 3, "of the first loss; ours"),
        "steps": (100.0, "ours"),
    }
    causes = ("learning rate too low: the steps are too small to leave the initialisation",)

    def _measured(self, history: RunHistory) -> Iterator[Finding]:
        """Of an optimizer whose steps have no bound, by the steps that were measured."""
        updates, loss = history.channel("model/update_p50"), history.role("loss")
        if loss is None or history.channel("model/epsilon") is not None or not loss.end:
            return
        rows, losses = (updates.rows() if updates is not None else None), loss.rows()
        first, _, last = level(history)
        steps = int(losses.step[-1] - losses.step[0])
        sizes = rows.value[numpy.isfinite(rows.value)] if rows is not None else numpy.empty(0)
        place = int(losses.step[-1]), int(losses.time[-1]), int(losses.segment[-1])
        if losses.first or losses.segment[0] != place[2] or steps < self.at["steps"]:
            return
        path, most = _bound(history, place, steps), self.at["bound"]
        what = "all weights together can have moved"
        if len(sizes) >= 2 and not path <= most:
            path, most = float(numpy.median(sizes) if len(sizes) >= 5 else sizes.max()) * steps, self.at["path"]
            what = "the weights of the median layer have moved"
        clipped = usual(history.channel("model/clip_coefficient"), *place) < self.at["clipped"]
        still = path <= most and last > (1 - self.at["fall"]) * first > 0
        if still and not clipped and not depth.vanishes(history, *place) and _from_scratch(history, first):
            yield self.finding(
                int(losses.step[0]), f"In {steps} steps {what} by {path:.2g} of their size at most, and the "
                f"loss went from {first:.4g} to {last:.4g}.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"path": rounded(path), "last": rounded(last)},
                remedies=[f"raise the learning rate {min(100, 10 ** round(math.log10(1 / max(path, 1e-9)))):.0f}-fold"],
            )  # fmt: skip

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel, loss, share = history.channel("model/reach"), history.role("loss"), history.channel("model/rate_share")
        in_force = not _is_stuck(share)
        if history.facts.get("finished") and channel is None and in_force and self.first("measured"):
            yield from self._measured(history)
        if not history.facts.get("finished") or channel is None or loss is None or not self.first():
            return
        if not in_force:
            return  # the optimizer's rate was never in force: `ScheduleStuck` speaks
        rows, losses = channel.rows(), loss.rows()
        first, _, last = level(history)
        if not len(rows) or not len(losses) or losses.first or losses.segment[0] != losses.segment[-1]:
            return
        steps = int(losses.step[-1] - losses.step[0])
        if steps < self.at["steps"] or len(rows) < 2 or not last > (1 - self.at["fall"]) * first > 0:
            return
        each = float(rows.value[-1] - rows.value[-2]) / max(1, int(rows.step[-1] - rows.step[-2]))
        reach = float(rows.value[-1]) + each * int(losses.step[-1] - rows.step[-1])  # the newest is of an earlier step
        if reach > self.at["reach"] or not _from_scratch(history, first):
            return
        kinds = ((history.channel(f"model/{name}_parameters"), unit) for name, unit in _HALF_A_UNIT.items())
        lost = any(kind is not None and kind.end and kind.first > 0 and reach / steps < unit for kind, unit in kinds)
        yield self.finding(
            int(losses.step[0]), f"In {steps} steps the weights can have moved by {reach:.2g} of their size at most, "
            f"and the loss went from {first:.4g} to {last:.4g}.",
            found=int(losses.step[-1]), segment=int(losses.segment[0]), confidence=0.95,
            evidence={"reach": rounded(reach), "first": rounded(first), "last": rounded(last)},
            causes=[*([_LOST] if lost else []), *([_SQUARED] if _is_squared(history) else []), *self.causes],
            remedies=[f"raise the learning rate {max(3.0, min(100.0, 10 ** round(math.log10(1 / reach)))):.0f}-fold"],
        )  # fmt: skip


def outweighed(history: RunHistory, time: int) -> float:
    """How many times the loss's gradient a decay that is added to it was when the training began: the median of the
    first five looks that saw both norms. NaN where there is no such decay, or gradients vanished from the start."""
    decay, norm, gradient = (
        history.channel("model/coupled_decay"), param_norm_of(history), history.channel("model/grad_norm"),
    )  # fmt: skip
    if decay is None or norm is None or gradient is None or not came_by(decay, time) or depth.began_vanished(history):
        return math.nan
    sizes, ours = norm.rows(0, 64), gradient.rows(0, 64)
    both = set(sizes.step[sizes.time <= time].tolist()) & set(ours.step[ours.time <= time].tolist())
    times = []
    for step in sorted(both)[:5]:
        size, pull = float(sizes.value[sizes.step == step][0]), float(ours.value[ours.step == step][0])
        times.append(decay.first * size / pull if pull > 0 else math.inf)
    return float(numpy.median(times)) if len(times) == 5 else math.nan


RULES = (OptimizerCount, ScheduleStuck, RateTooLow)
