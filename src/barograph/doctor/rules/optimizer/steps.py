"""What happens to gradients and weights around the step: clipped away, cleared too early, written from outside.

In:   the watch's figures of each step, losses around them.
Out:  findings of `ClippedAway`, `ClippedByValue`, `ClearedPasses`, `LostWindow`, `WeightsReplaced`, `EvaluationWrites`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.configuration import ACCUMULATION
from barograph.core.names import is_vector
from barograph.doctor.kernel.cursor import RowCursor, averages_workers, came_by, known, numeric_setting, usual, whole
from barograph.doctor.kernel.curve import between, rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.stages import stage_begins
from barograph.doctor.kernel.tables import TableReader, table_of
from barograph.doctor.rules.loss.given import side_by_side

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.tables import LayerRound, LayerTable


class ClippedAway(Rule):
    """Clipping leaves next to nothing of each gradient.

    In three looks in a row over 64 steps less than a hundredth of the gradient is left, and the loss is above two
    thirds of its first value. With Adam and its kind, RMSprop, Adagrad and Lion, whose steps don't depend on the size
    of the gradient, nothing is said.

    Where a loss scale of 16 or more is in force and the norm after clipping is below a thousandth, gradients may be
    clipped while they are scaled; where parameters of no optimizer, whose gradients nobody clears, make up the norm, so
    that without theirs more than a hundredth would be left, that is the cause. The clip value then isn't.

    What to do: clip at the usual norm, or a little above.
    """

    name, family, kind, severity = "clipped_away", "gradient", "clipping", "warning"
    needs = ("=model/clip_coefficient", "loss")
    about = "Clipping leaves next to nothing of the gradient."
    thresholds: ClassVar = {
        "left": (0.01, "of the gradient; ours"),
        "looks": (3.0, "in a row; ours"),
        "steps": (64.0, "ours"),
        "fall": (1 / 3, "of the first loss; ours"),
        "scale": (16.0, "of the loss; ours"),
        "norm": (1e-3, "no clip value is below it; ours"),
    }
    causes = ("clip value too low: next to nothing is left of each gradient",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._low: list[tuple[int, int]] = []  # steps and segments

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/clip_coefficient")):
            if not 0 < value < self.at["left"]:
                self._low = []
                continue
            self._low = [look for look in self._low if look[1] == segment] + [(step, segment)]
            began = self._low[0][0]
            if len(self._low) < self.at["looks"] or step - began < self.at["steps"]:
                continue
            losses = between(history.role("loss"), began, step - 8, segment)
            first, level = (float(numpy.median(part)) if len(part) else math.nan for part in (losses[:5], losses[-16:]))
            if not level > (1 - self.at["fall"]) * first > 0 or _is_scale_free(history, time):
                continue
            norm = known(history.channel("model/grad_norm_before"), step, time, segment)
            if self.first(segment):
                other = self._other_cause(history, value, norm, (step, time, segment))
                if other:
                    yield self.finding(
                        began, f"Clipping leaves {value:.2g} of the gradient, whose norm is {norm:.3g}.",
                        found=step, segment=segment, confidence=0.6, causes=[other, *self.causes], remedies=[],
                        evidence={"coefficient": rounded(value), "norm": rounded(norm)},
                    )  # fmt: skip
                    continue
                yield self.finding(
                    began, f"Clipping leaves {value:.2g} of the gradient, whose norm is {norm:.3g}, and the "
                    f"loss went from {first:.4g} to {level:.4g}.", found=step, segment=segment, confidence=0.95,
                    evidence={"coefficient": rounded(value), "norm": rounded(norm), "standing": True},
                    remedies=[f"clip the gradient norm at {norm:.2g} or above"],
                )  # fmt: skip

    def _other_cause(self, history: RunHistory, left: float, norm: float, place: tuple[int, int, int]) -> str:
        """What else leaves so little; empty where nothing else is to be seen."""
        after = known(history.channel("model/grad_norm"), *place)
        scale = known(history.channel("model/loss_scale"), *place)
        if after < self.at["norm"] and scale >= self.at["scale"]:
            return "gradients clipped while scaled: the scaler had not divided them yet"
        if known(history.channel("model/unheld"), *place) > 0 and norm * left * left > self.at["left"] * after:
            return "optimizer holds other parameters: the gradients of those in none fill the norm"
        return ""


class ClippedByValue(Rule):
    """Clipping by value leaves next to nothing of each gradient but its signs.

    In three tables in a row over 20 steps, all matrices with a gradient, three or more, have one and the same largest
    element, to the last bit: gradients are clipped by value there. And nearly all elements are at the bound: the root
    of the mean square of the median matrix is four fifths of it or more, where that of other gradients is a twentieth
    to a third of their largest element. Elements that are all 1 and -1 are of an optimizer that takes signs on purpose.
    Adam and its kind divide a gradient by its size, and Lion takes signs itself: there signs train well, and it is an
    info finding. It stays a warning where the bound is below Adam's epsilon, which then is most of what the step is
    divided by.

    What to do: clip the norm, with `clip_grad_norm_`, or at a value that few elements reach.
    """

    name, family, kind, severity = "clipped_by_value", "gradient", "clipping", "warning"
    needs = ("gradients/*/max",)
    least = 3
    about = "Clipping by value leaves only the signs of the gradient."
    thresholds: ClassVar = {
        "matrices": (3.0, "with one bound; ours"),
        "size": (0.8, "of the bound, the root of the mean square; ours"),
        "tables": (3.0, "in a row; ours"),
        "steps": (20.0, "from the first to the last of them; ours"),
    }
    causes = ("clip value too low: gradients are clipped by value, and nearly all elements are at the bound",)

    def reset(self) -> None:
        self._reader = TableReader()
        self._row: list[tuple[int, int]] = []  # steps and segments

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for table, highest in self._reader.new(history, "gradients", "max"):
            bound, size = self._bound(history, table, highest)
            if not size >= self.at["size"] * bound > 0:
                self._row = []
                continue
            self._row = [look for look in self._row if look[1] == highest.segment] + [(highest.step, highest.segment)]
            began = self._row[0][0]
            enough = len(self._row) >= self.at["tables"] and highest.step - began >= self.at["steps"]
            if enough and self.first(highest.segment):
                epsilon = known(history.channel("model/epsilon"), highest.step, highest.time, highest.segment)
                harmless = bound >= epsilon if epsilon == epsilon else _is_scale_free(history, highest.time)
                yield self.finding(
                    began, f"The gradients' elements are clipped at {bound:.3g}, and nearly all are at that bound: the "
                    f"root of their mean square is {size:.3g}.", found=highest.step, segment=highest.segment,
                    confidence=0.5 if harmless else 0.95, severity="info" if harmless else self.severity,
                    evidence={"bound": bound, "root_mean_square": rounded(size), "standing": True},
                    remedies=["clip the norm, with `clip_grad_norm_`", f"clip at a value far above {bound:.3g}"],
                )  # fmt: skip

    def _bound(self, history: RunHistory, table: LayerTable, highest: LayerRound) -> tuple[float, float]:
        """The bound that matrices have in common, and the root of the mean square of the median one; NaN if none."""
        others = [_round_at(history, name, highest) for name in ("mean", "std")]
        sizes = [one.value for one in others if one is not None]
        count = min(len(highest.value), *map(len, sizes)) if len(sizes) == 2 else 0
        high, mean, deviation = (one[:count] for one in (highest.value, *(sizes or [highest.value] * 2)))
        matrices = numpy.array([not is_vector(name) for name in table.names[:count]], bool) & highest.there[:count]
        matrices &= (high > 0) & numpy.isfinite(high)
        if matrices.sum() < self.at["matrices"] or len(set(high[matrices].tolist())) > 1:
            return math.nan, math.nan
        bound, size = float(high[matrices][0]), numpy.sqrt(mean**2 + deviation**2)[matrices]
        signs = bound == 1 and bool((size > _SIGNS).all())
        return (math.nan, math.nan) if signs else (bound, float(numpy.median(size)))


_SIGNS = 0.999  # the root of the mean square of what is 1 or -1


def _is_scale_free(history: RunHistory, time: int) -> bool:
    """Whether the optimizer's steps don't grow with the gradient."""
    return any(came_by(history.channel(name), time) for name in ("model/epsilon", "model/scale_free"))


def _round_at(history: RunHistory, quantity: str, other: LayerRound) -> LayerRound | None:
    """The round of another column of the same table."""
    rounds = table_of(history, "gradients", quantity).rounds(0)
    return next((one for one in rounds if (one.step, one.segment) == (other.step, other.segment)), None)


class ClearedPasses(Rule):
    """Of several backward passes for one step, all but the last are cleared.

    Two passes or more are cleared in each of three looks, with one optimizer: `zero_grad()` stands within the loop over
    micro-batches. One is a usual thing, as optimizers that look ahead clear their first pass: it counts where the
    configuration says that gradients of two micro-batches are accumulated, or the loss is divided by 2, or what both
    passes were called with adds up to the loss that is logged (`model/cleared_given`), in three steps in a row to 0.2%:
    then the cleared one was meant to count. Where the
    step's gradients are other tensors than the last pass has written, they were added up by hand, and there is no
    finding. Of a model that is sharded (FSDP2) passes count where each has given a parameter its gradient.

    What to do: `zero_grad()` once a step, before the first micro-batch.
    """

    name, family, kind, severity = "cleared_passes", "optimizer", "missing_zero_grad", "warning"
    needs = ("=model/cleared_passes",)
    least = 3
    about = "Gradients are cleared between micro-batches."
    thresholds: ClassVar = {
        "half": (0.001, "around 0.5, the weight of the loss; ours"),
        "same": (0.002, "of the logged loss, what both passes were called with; ours"),
        "steps": (3.0, "in a row, that both are known of; ours"),
    }
    causes = ("zero_grad within the accumulation: only the last micro-batch counts",)
    remedies = ("call `optimizer.zero_grad()` once a step, before the first micro-batch",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: list[int] = []

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/cleared_passes")):
            count = whole(value)
            meant = count >= 2 or (count == 1 and self._halved(history, step, time, segment))
            self._row = [*self._row, step] if meant else []
            if len(self._row) >= 3 and self.first(segment):
                yield self.finding(
                    self._row[0], f"{count} of {count + 1} backward passes of each step are cleared before it.",
                    found=step, segment=segment, confidence=0.95, evidence={"passes": count, "standing": True},
                )  # fmt: skip

    def _halved(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """Whether two micro-batches are meant to be accumulated."""
        weight = known(history.channel("model/loss_weight"), step, time, segment)
        if numeric_setting(history, *ACCUMULATION) == 2 or abs(weight - 0.5) <= self.at["half"]:
            return True
        given, loss = history.channel("model/cleared_given"), history.role("loss")
        if given is None or loss is None or not came_by(given, time) or not came_by(loss, time):
            return False
        both, logged = side_by_side(given, loss, (step, time, segment))
        count = int(self.at["steps"])
        return len(both) >= count and bool((abs(both - logged) <= self.at["same"] * abs(logged))[-count:].all())


class LostWindow(Rule):
    """Gradients of the last micro-batches of an epoch are cleared, and no step is made with them.

    Steps add up the gradients of k backward passes. Three times, after equally many steps, two or more, c passes are
    cleared before those of a step, always as many, at least two and fewer than k: the batches of an epoch can't be
    divided by k, and what is left is thrown away at the beginning of the next one. The loss is divided by k, or the
    configuration says k. A single pass that is cleared may be a look at gradients, k or more an attack in an
    evaluation: nothing is said of these, nor of several optimizers.

    What to do: make a step with what is left at the end of an epoch.
    """

    name, family, kind, severity = "lost_window", "optimizer", "missing_zero_grad", "warning"
    needs = ("=model/cleared_passes", "=model/backwards")
    least = 3
    about = "Gradients of the last micro-batches of each epoch are thrown away."
    thresholds: ClassVar = {
        "times": (3.0, "ours"),
        "passes": (2.0, "cleared each time, at least; ours"),
        "same": (0.002, "around 1 / k, the weight of the loss; ours"),
    }
    causes = ("last window lost: micro-batches at the end of an epoch are cleared, and no step is made with them",)
    remedies = (
        "make a step at the last batch, too: `if (i + 1) % k == 0 or i + 1 == len(loader)`",
        "clear behind `optimizer.step()` alone",
    )

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._times: list[tuple[int, float]] = []  # steps with cleared passes, and how many
        self._segment = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/cleared_passes")):
            if segment != self._segment:
                self._segment, self._times = segment, []
            if value <= 0:
                continue
            same = not self._times or value == self._times[-1][1]
            self._times = [*(self._times if same else []), (step, value)][-int(self.at["times"]) :]
            if len(self._times) < self.at["times"] or not self._is_regular():
                continue
            parts = usual(history.channel("model/backwards"), step, time, segment)
            meant = numeric_setting(history, *ACCUMULATION) == parts
            weight = known(history.channel("model/loss_weight"), step, time, segment)
            meant |= abs(weight - 1 / parts) <= self.at["same"] if parts > 0 else False
            if meant and self.at["passes"] <= value < parts and self.first(segment):
                yield self.finding(
                    self._times[0][0], f"Each {self._times[1][0] - self._times[0][0]} steps, {value:.0f} backward "
                    f"passes are cleared and no step is made with them; a step has {parts:.0f}.", found=step,
                    segment=segment, confidence=0.9,
                    evidence={"passes": value, "micro_batches": parts, "standing": True},
                )  # fmt: skip

    def _is_regular(self) -> bool:
        """Whether passes were cleared after equally many steps each time."""
        apart = {after - before for (before, _), (after, _) in itertools.pairwise(self._times)}
        return len(apart) == 1 and min(apart) >= 2


class WeightsReplaced(Rule):
    """Weights were written between two steps, and the training is set back.

    The watch compares what a step left with what the next one begins with: they differ by more than 0.3 of their size,
    and the median of the first five losses from there on is above 1.5 times that of the sixteen before. An info finding
    where a logged number of a round, task, stage or the like changes there: each may begin with other weights; and
    where the configuration has weights set back, drawn anew, or pruned, on purpose (`rewind_rounds`, `lottery`,
    `born_again`, `prune_every`).

    What to do: look for what initialises or loads the model again while it is trained.
    """

    name, family, kind, severity = "weights_replaced", "model", "resume", "critical"
    needs = ("=model/written", "loss")
    about = "Weights are reset or loaded while the training goes on."
    thresholds: ClassVar = {
        "change": (0.3, "of the weights' size; ours"),
        "loss": (1.5, "times the loss before; ours"),
    }
    causes = ("weights written from outside: the model is reset or loaded between two steps",)
    remedies = ("look for what initialises or loads the model while it is trained",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._waiting: list[tuple[int, int, float]] = []  # step, segment, change

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        new = self._cursor.new(history.channel("model/written"))
        for at in range(len(new) if new is not None else 0):
            assert new is not None
            if new.value[at] > self.at["change"]:
                self._waiting.append((int(new.step[at]), int(new.segment[at]), float(new.value[at])))
        loss = history.role("loss")
        if not self._waiting or loss is None or not loss.end:
            return
        rows, over = loss.rows(), history.facts.get("finished")
        for one in list(self._waiting):
            step, segment, change = one
            past = numpy.flatnonzero((rows.segment > segment) | ((rows.segment == segment) & (rows.step > step + 8)))
            if not len(past) and not over:
                continue
            self._waiting.remove(one)
            part = rows.part(0, int(past[0]) if len(past) else len(rows))  # the same whenever it is looked at
            here = (part.segment == segment) & numpy.isfinite(part.value)
            before = part.value[here & (part.step < step)][-16:]
            behind = part.value[here & (part.step >= step)][:5]
            if len(before) < 5 or len(behind) < 3:
                continue
            old, now = float(numpy.median(before)), float(numpy.median(behind))
            if now > self.at["loss"] * old > 0 and self.first(segment, step):
                history.as_of(int(rows.time[past[0]]) if len(past) else None)
                meant = stage_begins(history, step, segment)
                history.as_of(None)
                yield self.finding(
                    step, f"Weights were changed by {change:.2g} of their size between two steps, before step {step}, "
                    f"and the loss went from {old:.4g} to {now:.4g}.", found=step + 9,
                    segment=segment, confidence=0.5 if meant else 0.95, severity="info" if meant else self.severity,
                    evidence={"change": rounded(change), "loss": rounded(now)},
                )  # fmt: skip


class EvaluationWrites(Rule):
    """After evaluations the training goes on from other weights.

    Three evaluations in a row, and nothing else, are followed by a step that begins with other weights than the step
    before has left. An average of the weights that is evaluated must be swapped back: else the average is what is
    trained, and each evaluation sets the training back to it. Where the configuration has workers that train by
    themselves and are averaged now and then (`inner_steps`, `local_steps`, `diloco`, …), nothing is said: they go on
    from the average, which is what is evaluated.

    What to do: keep a copy of the weights before the average is put in, and put it back behind the evaluation.
    """

    name, family, kind, severity = "evaluation_writes", "model", "eval", "warning"
    needs = ("=model/written", "eval_loss")
    about = "After evaluations the training goes on from other weights."
    thresholds: ClassVar = {"evaluations": (3.0, "in a row; ours"), "change": (0.001, "of the weights' size; ours")}
    causes = (
        "averaged weights not swapped back: an evaluation leaves other weights than it has found",
        "weights written from outside: on purpose, each time behind an evaluation",
    )
    remedies = ("keep a copy of the weights before the average is put in, and put it back behind the evaluation",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._row: list[tuple[int, float]] = []
        self._segment, self._evaluated = -1, -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        loss = history.role("eval_loss")
        for (step, time, segment), value in self._cursor.each(history.channel("model/written")):
            if segment != self._segment:
                self._segment, self._evaluated, self._row = segment, -1, []
            if not value > self.at["change"]:
                continue
            evaluations = _evaluations(loss, self._evaluated, step, time, segment)
            if not evaluations or evaluations[-1] < step - 1 or (self._row and step < self._row[-1][0] + 2):
                self._row = [(-1, math.nan)]  # something else writes too
            elif not self._row or (self._row[0][0] >= 0 and len(evaluations) == 1):
                self._row.append((step, value))
            elif self._row[0][0] >= 0:
                self._row = [(step, value)]
            self._evaluated = evaluations[-1] if evaluations else self._evaluated
            often = len(self._row) >= self.at["evaluations"] and self._row[0][0] >= 0
            if often and not averages_workers(history) and self.first(segment):
                yield self.finding(
                    self._row[0][0], f"{len(self._row)} evaluations in a row leave other weights than they have found, "
                    f"the first by {self._row[0][1]:.2g} of their size: the training goes on from these.", found=step,
                    segment=segment, confidence=0.9, evidence={"change": rounded(self._row[0][1]), "standing": True},
                )  # fmt: skip


def _evaluations(loss: Channel | None, behind: int, step: int, time: int, segment: int) -> list[int]:
    """The steps of evaluations behind one and up to another that had come by then."""
    if loss is None or not loss.end:
        return []
    rows = loss.rows()
    here = (rows.segment == segment) & (rows.step > behind) & (rows.step <= step) & (rows.time <= time)
    return [int(one) for one in rows.step[here]]


RULES = (ClippedAway, ClippedByValue, ClearedPasses, LostWindow, WeightsReplaced, EvaluationWrites)
