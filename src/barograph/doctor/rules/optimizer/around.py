"""What a loop does around its optimizer: a clip that does not reach it, one that is made again and again, a schedule
in other units than it is stepped in, groups without a learning rate.

In:   norms before and after clipping, what the optimizer's groups and its changes say, the learning rate row by row.
Out:  findings of `ClipNotInForce`, `ClippedByShard`, `OptimizerRemade`, `ScheduleUnits`, `IdleGroup`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.configuration import CLIP
from barograph.doctor.kernel.cursor import (
    RowCursor,
    came_by,
    known,
    names_of,
    numeric_setting,
    setting,
    usual,
    whole,
)
from barograph.doctor.kernel.curve import is_game, rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.optimizer.accounts import as_logged
from barograph.doctor.rules.optimizer.again import is_meant
from barograph.doctor.rules.optimizer.scheduled import epochs_meant

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

_TURNS = 1.5  # steps from where a wave turns
_AROUND = 4  # steps before the first one of a new optimizer that is seen
_ROUNDED = 1e-6  # of a rate: it is a product of factors
_LIMITS = tuple(name for name in CLIP if name != "clip")  # of a policy's ratio, as often


class ClipNotInForce(Rule):
    """The configuration clips gradients at a norm, and the optimizer is given larger ones, unclipped.

    Where the norm was read both when backward ended and when the optimizer's step began, both are the same in each of
    four looks or more, and the optimizer was given a larger one than the configured in three steps; or it was given, in
    three, what is logged as the norm, and no look saw a smaller one than before. Clipping by value,
    and of parts of the model by themselves, changes the norm, and gives no finding. Or the norm that is logged, as
    `clip_grad_norm_` returns it, was exactly 0 in sixteen rows from the first one on, and the watch has measured others
    in its last four looks: there were no gradients yet, or none any more.

    What to do: `clip_grad_norm_` of this model's parameters, after the last `backward()` and before `step()`.
    """

    name, family, kind, severity = "clip_not_in_force", "gradient", "clipping", "warning"
    needs = ("=model/clip_coefficient|norm", "=model/grad_norm", "config")
    least = 3
    about = "The configured clipping does not reach the gradients."
    thresholds: ClassVar = {
        "above": (1.05, "times the configured norm; ours"),
        "looks": (3.0, "above it; ours"),
        "all": (4.0, "looks at both; ours"),
        "same": (0.999, "of the norm before, after what should clip; ours"),
        "nothing": (16.0, "logged norms of 0, from the first on; ours"),
    }
    causes = (
        "clipping not in force: it runs before the backward pass, after the step, or on another model's gradients",
    )
    remedies = ("call `clip_grad_norm_` on this model's parameters, after `backward()` and before `optimizer.step()`",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._over: list[tuple[int, float]] = []
        self._measured = 0  # looks in a row with a norm above 0
        self._logs = False  # whether a norm above 0 is logged

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        limit = numeric_setting(history, *_LIMITS)
        off = not 0 < limit < math.inf or setting(history, "gradient_clip_algorithm", "clip_mode") == "value"
        for (step, time, segment), value in self._cursor.each(history.channel("model/grad_norm")):
            norm = value
            yield from self._of_nothing(history, (step, time, segment), norm)
            if off or not self.at["above"] * limit < norm < math.inf:
                continue
            self._over.append((step, norm))
            if len(self._over) < self.at["looks"] or not self._never_acts(history, time) or not self.first():
                continue
            largest = max(norm for _, norm in self._over)
            yield self.finding(
                self._over[0][0], f"Gradients are to be clipped at a norm of {limit:.4g}, and the optimizer is given "
                f"norms of up to {largest:.4g}, as backward left them.",
                found=step, segment=segment, confidence=0.9,
                evidence={"limit": limit, "norm": rounded(self._over[0][1]), "standing": True},
            )  # fmt: skip

    def _of_nothing(self, history: RunHistory, place: tuple[int, int, int], norm: float) -> Iterator[Finding]:
        """Where the norm that clipping returns is 0, and that of the gradients is not. norm: that of this look."""
        logged, limit = history.role("norm"), numeric_setting(history, *CLIP)
        self._measured = self._measured + 1 if norm > 0 else 0
        if self._logs or logged is None or not 0 < limit < math.inf or self._measured < self.at["all"]:
            return
        step, time, segment = place
        rows = logged.rows()
        values = rows.value[rows.time <= time]
        self._logs = bool((values != 0).any())
        if self._logs or len(values) < self.at["nothing"] or logged.start or not self.first():
            return
        yield self.finding(
            int(logged.began[0]), f"Gradients are to be clipped at a norm of {limit:.4g}; what is logged as their norm "
            f"is 0 in each of {len(values)} rows, and the optimizer is given one of {norm:.3g}.",
            found=step, segment=segment, confidence=0.9, key="nothing",
            evidence={"limit": limit, "norm": rounded(norm), "standing": True},
        )  # fmt: skip

    def _never_acts(self, history: RunHistory, time: int) -> bool:
        """Whether, in all looks up to this time, gradients are the same before and after what should clip them."""
        channel = history.channel("model/clip_coefficient")
        if channel is None:
            return False
        looks = channel.rows()
        values, logged = looks.value[looks.time <= time], history.role("norm")
        if not len(values) or not (values >= self.at["same"]).all():
            return False
        rows = logged.rows() if logged is not None and logged.name != "model/grad_norm" else None
        told = (
            {} if rows is None else dict(zip(rows.step[rows.time <= time], rows.value[rows.time <= time], strict=True))
        )
        used = sum(abs(told.get(step, math.nan) / norm - 1) <= 1 - self.at["same"] for step, norm in self._over)
        return len(values) >= self.at["all"] or used >= self.at["looks"]


class ClippedByShard(WatchRule):
    """Each rank clips its shards by their own norm, and not by that of the whole gradient.

    The watched model is sharded over n ranks, and the configuration clips at a norm. Where each rank scales its own
    shards to that norm, the whole gradient's is √n times as large: it is, to a thousandth, in eight steps of the last
    sixteen, larger than the limit in twelve of them, and never above. Shards of one layer are then scaled differently.

    What to do: `clip_grad_norm_` of the sharded parameters themselves, which adds up the norms of all ranks.
    """

    name, family, kind, severity = "clipped_by_shard", "gradient", "clipping", "warning"
    series = "model/grad_norm"
    needs = ("=model/grad_norm", "=model/shards", "config")
    least = 16
    about = "Each rank clips its shards by their own norm."
    thresholds: ClassVar = {
        "looks": (16.0, "the newest; ours"),
        "bound": (8.0, "of them at √n times the limit; ours"),
        "over": (12.0, "of them above the limit; ours"),
        "same": (1e-3, "of √n times the limit; ours"),
        "above": (1.02, "times the limit; ours"),
    }
    causes = ("shards clipped by their own norms: each rank scales its part of the gradient by another factor",)
    remedies = ("clip the sharded parameters with `clip_grad_norm_`, or add up the squared norms of all ranks before",)

    def begin(self) -> None:
        self._norms: list[tuple[int, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        limit, shards = numeric_setting(history, *_LIMITS), watched(history, "shards", place)
        count = int(self.at["looks"])
        self._norms = [*self._norms, (place[0], value)][-count:]
        if not (0 < limit < math.inf and shards > 1) or len(self._norms) < count:
            return
        share = numpy.array([norm for _, norm in self._norms]) / (limit * math.sqrt(shards))
        at_bound = int((abs(share - 1) <= self.at["same"]).sum()) >= self.at["bound"]
        over = int((share > self.at["above"] / math.sqrt(shards)).sum()) >= self.at["over"]
        if at_bound and over and share.max() <= 1 + self.at["same"] and self.first(place[2]):
            yield self.finding(
                self._norms[0][0], f"Gradients are to be clipped at a norm of {limit:.4g}, and theirs is "
                f"{limit * math.sqrt(shards):.4g}, the root of {shards:.0f} times that: each of {shards:.0f} ranks "
                "clips its own shards.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"limit": limit, "shards": shards, "standing": True},
            )  # fmt: skip


class OptimizerRemade(Rule):
    """The optimizer is made anew again and again: its moments begin at zero each time.

    Optimizers that step what another one had stepped are counted: three or more, of Adam's kind or with momentum,
    while the same parameters are trained, and between the steps nothing writes them by more than ten steps' worth (the
    first step of a new one is not seen). A stage with an optimizer of its own, layers that are thawed, and rounds of
    several workers whose weights are averaged give no finding. What a loop makes anew it makes from its first round on:
    where the first was longer than two of the others, it is an info finding. So it is where the configuration speaks of
    restarts or cycles, and the rate was set up again each time: a snapshot is taken, and the next cycle begins anew.

    What to do: make it once, before the loop; change its rate with a scheduler.
    """

    name, family, kind, severity = "optimizer_remade", "optimizer", "config", "warning"
    needs = ("=model/optimizers_replaced",)
    about = "The optimizer is made anew again and again."
    thresholds: ClassVar = {
        "times": (3.0, "ours"),
        "written": (0.02, "of the weights' size, in between; ours"),
        "steps": (10.0, "of the usual size, that may be in between; ours"),
        "restarts": (2.0, "times the learning rate before; ours"),
    }
    causes = ("optimizer made anew: its moments, and its count of steps, begin at zero each time",)
    remedies = ("make the optimizer once, before the loop", "change its learning rate with a scheduler")

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._steps: list[int] = []  # with which optimizers began, of a segment
        self._segment = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/optimizers_replaced")):
            self._steps = [*self._steps, step] if segment == self._segment else [step]
            self._segment = segment
            if value < self.at["times"] or not self._matters(history, step, time, segment):
                continue
            if self.first(segment):
                meant = self._begins_late(history, segment) or self._restarts(history, segment)
                yield self.finding(
                    self._steps[0], f"{whole(value)} optimizers, one after the other, have taken over the "
                    "same parameters.", found=step, segment=segment, confidence=0.4 if meant else 0.95,
                    severity="info" if meant else "warning",
                    evidence={"optimizers": whole(value)} | ({} if meant else {"standing": True}),
                )  # fmt: skip

    def _begins_late(self, history: RunHistory, segment: int) -> bool:
        """Whether the first was made anew later than two of these rounds after the start."""
        start = history.channel("model/grad_norm") or history.role("loss")
        if start is None or len(self._steps) < self.at["times"]:
            return False
        first = start.rows().step[start.rows().segment == segment][:1]
        return len(first) > 0 and self._steps[0] - int(first[0]) > 2 * int(numpy.diff(self._steps).max())

    def _restarts(self, history: RunHistory, segment: int) -> bool:
        """Whether cycles are meant, and the rate rose to twice what it was, or more, wherever one was made."""
        rate = history.role("lr")
        if rate is None or not is_meant(history, stages=False):
            return False
        rows = rate.rows()
        around = (rows.value[(rows.segment == segment) & (rows.step >= step - _AROUND) & (rows.step <= step)]
                  for step in self._steps)  # fmt: skip
        return all(len(some) > 1 and some[-1] >= self.at["restarts"] * some[0] for some in around)

    def _matters(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        trained = history.channel("model/trained_parameters")
        others = trained is not None and trained.end > 1 and len(set(trained.rows().value.tolist())) > 1
        usual_step = usual(history.channel("model/update_p50"), step, time, segment)
        most = max(self.at["written"], self.at["steps"] * usual_step if usual_step == usual_step else 0.0)
        written = known(history.channel("model/written"), step, time, segment) > most
        momentum = known(history.channel("model/momentum"), step, time, segment) > 0
        return not others and not written and (momentum or came_by(history.channel("model/epsilon"), time))


class ScheduleUnits(Rule):
    """The run is over, and its schedule was over many times sooner: it counts epochs, and was stepped at each batch.

    Either the rate came down to a thousandth of its peak and went up again, smoothly, five times or more: cosine
    annealing that goes on behind its end (a warm restart jumps up; a cycle between two rates does not end near 0).
    Where it does not come that low, the waves are even, of a cosine, and the first low is behind as many steps as there
    are epochs, to one and a half, four or more; the half of a wave is half as long or longer, and the configuration
    does not speak of cycles or restarts. Or it fell by the same factor at the same distance, six times or more, and was
    at a thousandth of its peak in the first half of the run; or it was there in the first 15%, and stayed; or it was
    at a hundredth in the first twentieth, and never changed again. The last two take 100 steps and ten rows; waves 24
    rows, and equal falls half of these.
    Where the log has the rate at fewer steps than the watch, as once an epoch, the watch's is looked at. A series of
    the log is the rate, whatever its name, if it has the watch's number wherever both have one.

    What to do: give the scheduler numbers of steps, or step it once an epoch.
    """

    name, family, kind, severity = "schedule_units", "optimizer", "learning_rate", "warning"
    needs = ("lr|=model/rate_share",)
    least = 10
    about = "The schedule counts epochs, and is stepped at each batch."
    thresholds: ClassVar = {
        "low": (1e-3, "of the peak; ours"),
        "waves": (5.0, "ours"),
        "falls": (6.0, "ours"),
        "half": (0.5, "of the run, or of its planned steps; ours"),
        "soon": (0.15, "of it, whatever the way; ours"),
        "stairs": (0.01, "of the peak, at the foot of stairs; ours"),
        "sooner": (0.05, "of it, for these; ours"),
        "rows": (24.0, "of waves, and twice those of falls; ours"),
        "steps": (100.0, "ours"),
        "alike": (0.02, "of the factor from one fall to the next; ours"),
        "epochs": (4.0, "at least, of a cosine that ends with the last; ours"),
    }
    causes = ("scheduler stepped per batch: its numbers are of epochs",)
    remedies = ("give the scheduler numbers of steps (epochs × batches), or call `scheduler.step()` once an epoch",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rate, seen = history.role("lr"), history.channel("model/rate_share")
        rate = rate or as_logged(history)
        rate = seen if rate is None or (seen is not None and seen.end > rate.end) else rate
        if not history.facts.get("finished") or rate is None or not self.first():
            return
        rows = rate.rows()
        value = rows.value
        if rows.first or len(value) < self.least or rows.segment[0] != rows.segment[-1] or not (value >= 0).all():
            return
        peak = int((value >= 0.999 * value.max()).argmax())  # the first: crests differ by rounding
        if not value[peak] > 0:
            return
        share = value / value[peak]
        waves = self._waves(share) if len(share) >= self.at["rows"] else 0
        falls = self._falls(share, peak) if len(share) >= self.at["rows"] / 2 else -1
        planned = history.facts.get("planned_steps") or 0
        last = max(int(rows.step[-1]), int(planned))
        if waves >= self.at["waves"]:
            at = int(numpy.argmax((share <= self.at["low"]) & (numpy.arange(len(share)) > peak)))
            what = f"The learning rate went down to 0 and up again {waves} times"
        elif (at := self._of_epochs(history, rows, share)) >= 0:
            what = f"The learning rate goes up and down again and again; it was lowest first at step {rows.step[at]}, "
            what += f"behind as many steps as there are epochs, {epochs_meant(history):.0f}"
        elif falls >= 0 and rows.step[falls] < self.at["half"] * last:
            at = falls
            what = f"The learning rate is at {share[at]:.2g} of its peak from step {int(rows.step[at])} of {last} on: "
            what += "it fell by the same factor again and again"
        elif (at := self._over(rows, share, peak, last)) >= 0:
            what = f"The learning rate is at {share[at]:.2g} of its peak or below from step {int(rows.step[at])} of "
            what += f"{last} on"
        else:
            return
        yield self.finding(
            int(rows.step[at]), what, found=int(rows.step[-1]), segment=int(rows.segment[0]), confidence=0.95,
            evidence={"standing": True},
        )  # fmt: skip

    def _of_epochs(self, history: RunHistory, rows: ChannelRows, share: Any) -> int:
        """The row at which a cosine between two rates, which then comes up again, ends as if it counted epochs; -1 if
        it does not."""
        epochs = epochs_meant(history)
        ways = numpy.sign(numpy.diff(share))
        moves = numpy.flatnonzero(ways)
        turns = moves[1:][ways[moves[1:]] != ways[moves[:-1]]]  # rows at which it turns
        if epochs < self.at["epochs"] or len(turns) < 2 * self.at["waves"] or is_meant(history, stages=False):
            return -1
        lows, highs = turns[ways[turns] > 0], turns[ways[turns] < 0]
        steps = rows.step[turns] - rows.step[0]
        half = float(steps[-1] - steps[0]) / (len(steps) - 1)
        even = (abs(numpy.diff(steps) - half) <= _TURNS).all() and share[highs].min() >= 0.5 >= share[lows].max()
        beside = numpy.abs(numpy.diff(share))
        near = numpy.minimum(beside[lows - 1], beside[lows]).max()  # next to its lowest a cosine hardly moves
        ends = abs(float(rows.step[lows[0]] - rows.step[0]) - epochs) <= _TURNS and 0.5 * epochs <= half
        return int(lows[0]) if even and near <= 0.5 * beside.max() and ends else -1

    def _waves(self, share: Any) -> int:
        """How often the rate went from its lowest smoothly up to half of its peak or more."""
        count, climb = 0, -1  # since the lowest: rows between it and the half
        for one in share.tolist():
            if one <= self.at["low"]:
                climb = 0
            elif climb >= 0 and one >= 0.5:
                count, climb = count + (climb >= 1), -1
            elif climb >= 0:
                climb += 1
        return count

    def _over(self, rows: ChannelRows, share: Any, peak: int, last: int) -> int:
        """The early row behind the peak from which on next to nothing is left; -1 if there is none."""
        if rows.step[-1] - rows.step[0] < self.at["steps"]:
            return -1
        for low, soon, stairs in ((self.at["low"], self.at["soon"], False),
                                  (self.at["stairs"], self.at["sooner"], True)):  # fmt: skip
            high = numpy.flatnonzero(share > low * (1 + _ROUNDED))
            above = int(high[-1]) + 1 if len(high) else -1
            if peak < above < len(share) and rows.step[above - 1 : above + 1].mean() - rows.step[0] < soon * last:
                rest = share[above:]
                if not stairs or rest.max() - rest.min() <= _ROUNDED * rest.max():
                    return above
        return -1

    def _falls(self, share: Any, peak: int) -> int:
        """The row at which equal falls at equal distances have come to next to nothing; -1 if there is none."""
        behind = share[peak:]
        low = numpy.flatnonzero(behind <= self.at["low"])
        if not len(low):
            return -1
        behind = behind[: int(low[0]) + 1]
        places = numpy.flatnonzero(numpy.diff(behind) != 0)
        if len(places) < self.at["falls"] or not (behind > 0).all():
            return -1
        factors = behind[places + 1] / behind[places]
        apart = numpy.diff(places)
        steady = factors.max() < 1 and factors.max() - factors.min() <= self.at["alike"] * factors.max()
        return peak + int(low[0]) if steady and apart.max() - apart.min() <= 1 else -1


class IdleGroup(Rule):
    """The run is over, and a group of parameters had a learning rate of 0 in all of it, while others had one.

    It takes 100 steps. Who means to freeze leaves parameters out of the optimizer, or asks for no gradient.

    What to do: look at the groups that the optimizer is given, and at what a scheduler's function gives for each.
    """

    name, family, kind, severity = "idle_group", "optimizer", "learning_rate", "warning"
    needs = ("=model/rateless_parameters",)
    about = "A group of parameters has a learning rate of 0."
    thresholds: ClassVar = {
        "steps": (100.0, "ours"),
        "begins": (20.0, "steps behind the first, as the rates are read at every tenth; ours"),
    }
    causes = ("learning rate of one group is 0: its parameters are not trained",)
    remedies = ("look at the optimizer's groups, and at what the scheduler gives for each",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel, loss = history.channel("model/rateless_parameters"), history.role("loss")
        if not history.facts.get("finished") or channel is None or loss is None or not self.first():
            return
        rows, losses = channel.rows(), loss.rows()
        enough = len(losses) and int(losses.step[-1]) - int(rows.step[0]) >= self.at["steps"]
        enough = enough and int(rows.step[0]) - int(losses.step[0]) <= self.at["begins"]
        if rows.first or not (rows.value > 0).all() or not enough or is_game(history, loss):
            return
        step, time = int(rows.step[0]), int(rows.time[0])
        names = names_of(history, "rateless", step, time)
        yield self.finding(
            step, f"{whole(float(rows.value[-1]))} parameters have a learning rate of 0 in the whole run, while others "
            f"have one: {names}.", found=int(losses.step[-1]), segment=int(rows.segment[0]), confidence=0.9,
            evidence={"parameters": whole(float(rows.value[-1])), "standing": True},
        )  # fmt: skip


RULES = (ClipNotInForce, ClippedByShard, OptimizerRemade, ScheduleUnits, IdleGroup)
