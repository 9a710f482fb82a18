"""Rules over the optimizer: weights it leaves as they were, gradients not cleared, its weight decay.

In:   the watch's figures of each step.
Out:  findings of the family `optimizer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel import depth
from barograph.doctor.kernel.blocks import BlockColumns
from barograph.doctor.kernel.cursor import (
    RowCursor,
    came_by,
    joined,
    known,
    newest,
    numeric_setting,
    param_norm_of,
    setting,
    thawed,
    usual,
    whole,
)
from barograph.doctor.kernel.curve import between
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.series import BlockRule
from barograph.doctor.rules.optimizer import epsilon, updates

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


class UnchangedParameters(Rule):
    """A step does not change the parameters, although they have gradients and the learning rate is not zero.

    Where the model is watched, each step records how many parameters it should have changed and has not
    (`model/unchanged`). It is critical at once, and lowered to an info finding if the next step changes them. After
    a step that has changed them all it takes three such steps: gradients of a loss that has all but vanished are
    rounded away now and then, as on a run's last step. Weights in 16 bits take three steps whose updates were measured,
    not of a warm-up; fewer than a third of the parameters inform, and so do all where the training loss is below a
    hundredth of what it began with: there is little left that rounding could keep from being learnt.
    Where that was never recorded, the norm of all parameters must be the same to the last bit in four rows with a
    gradient and a learning rate. Norms that were logged with few digits don't count, nor those of weights in 16 bits:
    such a norm has eight bits itself, and stays while the weights move.

    Nearly always the optimizer was created with other parameters: before the model was copied, wrapped, moved or given
    new layers. Where all that stay are in none (`model/unheld`), that is proven; if they were trained before
    (`model/unheld_trained`) and the optimizer has a layer or two, it is a linear probe, and informs, unless some blocks
    are frozen and others are not, or they were frozen before: who thaws a part means it to be trained; or what the
    optimizer has are gains of a normalisation or a layer's bias alone, beside eight others or more. Where an optimizer
    gets them later, and changes them, it becomes an info finding: parts that are added in turn. Where only some
    of the parameters that are in one stay and weights are in 16 bits, updates are rounded away, and where the norm of
    the weights has doubled the rate that made them so large comes first; where the first block's gradient is below a
    millionth of the last block's, gradients vanish: both are warnings. Where the learning rate has decayed to a
    twentieth of its highest, that is expected, and there is no finding.
    """

    name, family, kind, severity = "unchanged_parameters", "optimizer", "frozen", "critical"
    proves = "training"
    prompt = True
    needs = ("=model/unchanged|=model/param_norm|param_norm",)
    about = "Optimizer steps do not change the parameters."
    sources = ("SageMaker Debugger: UnchangedTensor, 3 steps", "TrainCheck", "accelerate#2665")
    thresholds: ClassVar = {
        "rows": (4.0, "rows of one norm; SageMaker's 3, and one more for rounding"),
        "again": (3.0, "steps in a row, after one that changed all; ours"),
        "rounded": (1 / 3, "of the parameters, of 16 bits: fewer inform; ours"),
        "learnt": (0.01, "of the first training loss: below it, what rounding takes is not missed; ours"),
        "moving": (1e-4, "of the weights, the median update: where weights move, gains of 1 that stay inform; ours"),
        "decayed": (0.05, "of the highest learning rate: below it there is no finding; ours"),
        "probe": (4.0, "parameters of an optimizer, those of two layers: others may be meant to stay; ours"),
        "beside": (8.0, "parameters in no optimizer, beside gains or a bias alone: no layer is a probe; ours"),
        "vanished": (1e-6, "the first block's gradient, of the last block's: it moves nothing; ours"),
    }

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._since: tuple[int, int] | None = None
        self._row = 0  # steps in a row
        self._moved = -1  # the segment in which a step has changed all
        self._told: Finding | None = None
        self._found = 0  # with which step it could be known
        self._same: list[tuple[int, int, int]] = []
        self._value = math.nan
        self._said: set[int] = set()
        self._informed: set[int] = set()
        self._peak = 0.0  # the highest learning rate at the rows looked at

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), value in self._cursor.each(history.channel("model/unchanged")):
            yield from self._count(history, value, step, time, segment)
        norms = self._cursor.new(param_norm_of(history))
        if norms is not None:
            same = norms.value == numpy.concatenate([[self._value], norms.value[:-1]])
            if same.any() or len(self._same) > 1:
                yield from self._norms(history, norms, same)
            else:
                self._same = [(int(norms.step[-1]), int(norms.time[-1]), int(norms.segment[-1]))]
            self._value = float(norms.value[-1])

    def _count(self, history: RunHistory, count: float, step: int, time: int, segment: int) -> Iterator[Finding]:
        lr = known(history.role("lr"), step, time, segment)
        self._peak = max(self._peak, lr or 0.0)
        if lr is not None and lr < self.at["decayed"] * self._peak:
            count = 0.0  # at the end of a schedule updates may be too small to be seen
        half = known(history.channel("model/half_parameters"), step, time, segment) > 0
        if half and self._says_nothing(history, count, step, time, segment):
            return
        if not count > 0:
            self._row, self._moved = 0, segment
            self._since, told, self._told = None, self._told, None
            if told is not None and told.last_step - told.step <= 1 and told.severity != "info":
                yield self._finding(history, told.step, step, segment, time, told.evidence["parameters"], "info")
            elif told is not None and told.severity == "critical" and joined(history, time, segment):
                yield self.finding(
                    told.step, f"{told.evidence['parameters']} parameters were in no optimizer from step {told.step} "
                    f"on, and are in one since step {step}.", severity="info", last_step=step, found=step,
                    segment=segment, evidence=told.evidence, causes=[_UNHELD], confidence=0.3,
                )  # fmt: skip
            return
        if self._since is None or self._since[1] != segment:
            self._since, self._row = (step, segment), 0
        began = self._since[0]
        self._row += 1
        moved, again = half or self._moved == segment, self.at["again"]
        if moved and (half or self._row > 1) and self._row < again:
            return
        sure = self._told is None or (moved and self._row == again)
        self._found = step if sure else self._found
        if sure or self._told is None or step >= began + 2 * (self._told.last_step - began) + 1:
            severity = "info" if moved and self._row < again else "critical"
            self._told = self._finding(history, began, step, segment, time, whole(count), severity)
            if severity != "info" or segment not in self._informed:
                yield self._told
            if severity == "info" and moved:
                self._informed.add(segment)
            return

    def _says_nothing(self, history: RunHistory, count: float, step: int, time: int, segment: int) -> bool:
        """Of weights in 16 bits: whether a step's update was not measured, or is that of a warm-up. A step writes them
        although it is rounded away, so only what is measured says that they are what they were."""
        if count > 0:
            rate = history.role("lr")
            before, now = newest(rate, step, time, segment, 2) if rate is not None else (0.0, 0.0)
            return bool(now > before)
        updates = history.channel("model/update_p50")
        return updates is not None and not len(between(updates, step, step + 1, segment, finite=False))

    def _finding(
        self, history: RunHistory, began: int, step: int, segment: int, time: int, count: int, severity: str
    ) -> Finding:
        lr = known(history.role("lr"), step, time, segment)
        many = f"{count} parameter{'s' if count != 1 else ''}"
        message = f"The optimizer step does not change {many}, though they have gradients, since step {began}."
        if severity == "info":
            message = f"Step {began} did not change {many}; the one before or behind it did."
        half = known(history.channel("model/half_parameters"), step, time, segment)
        total = known(history.channel("model/trained_parameters"), step, time, segment)
        facts = {"parameters": count, "lr": lr, "half_parameters": half,
                 "first_block": usual(history.channel("model/flow_first_last"), step, time, segment)}  # fmt: skip
        vanished = _VANISHED if facts["first_block"] < self.at["vanished"] else None
        unheld = count == known(history.channel("model/unheld"), step, time, segment)
        proof = _ROUNDED if half > 0 and count < total and not unheld else vanished
        if proof is not None:
            rounded = proof is _ROUNDED
            few = rounded and (
                self._moves(history, step, time, segment)
                or self._has_learnt(history, step, segment)
                or count < self.at["rounded"] * total
            )  # gains of 1: 16 bits keep little
            proof = _grown(history, step, time, segment) if rounded else proof
            return self.finding(
                began, message, severity="info" if few or severity == "info" else "warning", last_step=step,
                found=self._found if severity == "critical" else step, segment=segment, evidence=facts,
                causes=proof[0], remedies=list(proof[1]), confidence=0.95 if severity == "critical" else 0.3,
            )  # fmt: skip
        probe = whole(total - count) if known(history.channel("model/unheld_trained"), step, time, segment) == 1 else 0
        chosen = known(history.channel("model/unheld_by_block"), step, time, segment) == 1
        chosen |= thawed(history, time, segment)
        chosen |= known(history.channel("model/held_vectors"), step, time, segment) > 0 and count >= self.at["beside"]
        if unheld and 0 < probe <= self.at["probe"] and not chosen:
            return self.finding(
                began, f"{count} parameters are in no optimizer, which has {probe} others: a probe of a model that was "
                "trained before. They get gradients that nothing uses.", severity="info", last_step=step,
                found=self._found, segment=segment, evidence=facts, causes=[_UNHELD], remedies=_ADD[::-1],
                confidence=0.5,
            )  # fmt: skip
        remedies = [
            *(_ADD if unheld else _AFTER),
            "check that the ids of `optimizer.param_groups[*]['params']` are those of `model.parameters()`",
        ]
        lost = not unheld and severity == "info" and self._moved == segment  # one step alone needs no remedy
        return self.finding(
            began, message, severity=severity, last_step=step, found=self._found if severity == "critical" else step,
            segment=segment, evidence=facts,
            causes=[_UNHELD] if unheld else [_LOST] if lost else _OTHERS,
            remedies=[] if lost else remedies,
            confidence=0.95 if severity == "critical" else 0.3,
        )  # fmt: skip

    def _moves(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """Whether the median weight moves all the same, by the last measure: then it is gains of 1 that stay."""
        updates = history.channel("model/update_p50")
        return updates is not None and known(updates, step, time, segment) >= self.at["moving"]

    def _has_learnt(self, history: RunHistory, step: int, segment: int) -> bool:
        """Whether next to nothing is left of the training loss, in the median of the last eight rows."""
        loss = history.role("loss")
        last = between(loss, 0, step + 1, segment)[-8:]
        first = loss.first if loss is not None and not loss.start else math.nan
        return len(last) > 0 and 0 < float(numpy.median(last)) < self.at["learnt"] * first

    def _norms(self, history: RunHistory, rows: ChannelRows, same: Any) -> Iterator[Finding]:
        norm, lr = history.role("norm"), history.role("lr")
        for at in range(len(rows)):
            segment, step, time = int(rows.segment[at]), int(rows.step[at]), int(rows.time[at])
            if not same[at] or (self._same and self._same[0][2] != segment):
                self._same = []
            self._same.append((step, time, segment))
            if not same[at] or len(self._same) != int(self.at["rows"]) or segment in self._said:
                continue
            value = float(rows.value[at])
            if not math.isfinite(value) or value == 0 or float(f"{value:.7g}") == value:
                continue  # few digits: it may have been rounded
            rate = newest(lr, step - 1, time, segment, 3) if lr is not None else numpy.full(3, numpy.nan)
            gradient = newest(norm, step - 1, time, segment, 3) if norm is not None else numpy.full(3, numpy.nan)
            if came_by(history.channel("model/unchanged"), time) or _is_half(history, step, time, segment):
                continue
            if not ((rate > 0).all() and (gradient > 0).all() and numpy.isfinite(gradient).all()):
                continue
            self._said.add(segment)
            began = self._same[0][0]
            yield self.finding(
                began, f"The norm of all parameters is {value!r} at each step since {began}, to the last bit.",
                found=step, segment=segment, key="norm", evidence={"param_norm": value, "lr": float(rate[-1])},
                causes=_why(rows.first + at >= len(self._same)), confidence=0.85,
                remedies=["make the optimizer from the parameters of the model that is trained"],
            )  # fmt: skip


def _is_half(history: RunHistory, step: int, time: int, segment: int) -> bool:
    """Whether weights are of 16 bits, by the watch's count or by the configuration."""
    kind = str(setting(history, "torch_dtype", "param_dtype", "model_dtype") or "").lower()
    return known(history.channel("model/half_parameters"), step, time, segment) > 0 or kind.endswith("float16")


def _grown(history: RunHistory, step: int, time: int, segment: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Causes and remedies of updates that 16-bit weights round away: where weights are twice what they were, the rate
    that made them so comes first."""
    norm = param_norm_of(history)
    times = known(norm, step, time, segment) / norm.first if norm is not None and norm.first > 0 else 1.0
    if not times > 2:
        return _ROUNDED
    high = f"learning rate too high: the weights are {times:.2g} times what they were, and round off what is added"
    return (high, *_ROUNDED[0]), ("lower the learning rate, and begin anew", *_ROUNDED[1])


def _why(moved: bool) -> list[str]:
    """An optimizer that has moved the weights before holds the right ones."""
    low = "learning rate too low: the schedule is over, or updates are lost in rounding"
    return [low, *_OTHERS[::-1]] if moved else [*_OTHERS, low]


_LOST = "updates lost in rounding: what is large takes small updates in some steps alone"
_ROUNDED: tuple[tuple[str, ...], tuple[str, ...]] = (
    ("updates lost in rounding: they are below half a unit in the last place of 16-bit weights",),
    (
        "keep fp32 master weights: the model in fp32 under autocast, or an optimizer that holds fp32 copies",
        "else round stochastically, or give gains and biases a higher learning rate",
    ),
)
_VANISHED: tuple[tuple[str, ...], tuple[str, ...]] = ((depth.CAUSE,), depth.REMEDIES)
_UNHELD = (
    "optimizer holds other parameters: these are in none, as where it was made before they were, or of a part of them"
)
_ADD = ["make the optimizer after the model's last layer, or give it new ones: `optimizer.add_param_group`",
        "if they are not meant to learn, `requires_grad_(False)` says so and spares their gradients"]  # fmt: skip
_AFTER = ["make the optimizer after the model has been copied, wrapped and moved, from its own parameters"]
_OTHERS = [
    "optimizer holds other parameters: it was made before the model was copied, wrapped or moved",
    "layer frozen",
]


class UnclearedGradients(Rule):
    """Gradients are not cleared between steps: each adds to the sum of all before.

    The watch sees whether the gradient that a backward pass adds to is the one that the step before has used
    (`model/stale_gradients` is 1). It is reported at the first such step, and lowered to an info finding if the next
    step is clean.

    What to do: `optimizer.zero_grad()` before each step's first backward pass.
    """

    name, family, kind, severity = "missing_zero_grad", "optimizer", "missing_zero_grad", "critical"
    proves = "training"
    prompt = True
    needs = ("=model/stale_gradients",)
    about = "Gradients are not cleared between steps."
    sources = ("TrainCheck: misuse of step and zero_grad",)
    thresholds: ClassVar = {"rows": (2.0, "steps that leave no doubt; ours")}
    causes = ("zero_grad missing: gradients add up from step to step",)
    remedies = ("call `optimizer.zero_grad()` before the first backward pass of each step",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._since: tuple[int, int] | None = None
        self._count = 0

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows = self._cursor.new(history.channel("model/stale_gradients"))
        if rows is None or (self._since is None and not (rows.value > 0).any()):
            return
        for at in range(len(rows)):
            step, segment = int(rows.step[at]), int(rows.segment[at])
            if not rows.value[at] > 0:
                if self._since is not None and self._count < self.at["rows"]:
                    yield self._say(*self._since, step, "info")
                self._since, self._count = None, 0
                continue
            if self._since is None or self._since[1] != segment:
                self._since, self._count = (step, segment), 0
            self._count += 1
            if self._count & (self._count - 1) == 0:  # 1, 2, 4, 8, …
                yield self._say(*self._since, step, "critical")

    def _say(self, began: int, segment: int, step: int, severity: str) -> Finding:
        message = f"Gradients are not cleared between steps since step {began}: each step adds to those before."
        if severity == "info":
            message = f"The gradients of the step before {began} were not cleared; later ones were."
        return self.finding(
            began, message, severity=severity, last_step=step, found=began if severity == "critical" else step,
            segment=segment, confidence=0.95 if severity == "critical" else 0.3,
        )  # fmt: skip


class ClearedGradients(Rule):
    """Gradients are cleared between the backward pass and the step that should use them.

    The watch sees backward passes leave gradients, and none at the optimizer's step, or zeros where their norm was
    above 0 when backward had ended (`model/cleared_gradients` is 1). With zeros one such step is proof; without any
    gradient it takes three, for some trainings leave steps out by clearing.

    What to do: `optimizer.zero_grad()` behind the step, or before the first backward pass.
    """

    name, family, kind, severity = "cleared_gradients", "optimizer", "missing_zero_grad", "critical"
    proves = "training"
    needs = ("=model/cleared_gradients",)
    about = "Gradients are cleared before the step."
    sources = ("TrainCheck: misuse of step and zero_grad",)
    thresholds: ClassVar = {"rows": (3.0, "steps without a gradient; ours")}
    causes = ("zero_grad too early: between `backward()` and `optimizer.step()`",)
    remedies = ("call `optimizer.zero_grad()` behind the step, or before the first backward pass",)

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._count = self._began = 0

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for (step, time, segment), _ in self._cursor.each(history.channel("model/cleared_gradients")):
            zeros = known(history.channel("model/grad_norm"), step, time, segment) == 0
            self._began = step if not self._count else self._began
            self._count += 1
            if (zeros or self._count >= self.at["rows"]) and self.first(segment):
                yield self.finding(
                    self._began, f"Backward passes leave gradients, and at the optimizer's step they are gone, since "
                    f"step {self._began}: nothing is trained.", found=step, segment=segment, confidence=0.95,
                )  # fmt: skip


class WeightDecayTooHigh(BlockRule):
    """The weights have shrunk quickly, and the loss stands still or gets worse.

    In medians of 16 rows the norm of all parameters has fallen below 0.7 of its largest, or of its first, within 128
    rows, or, where the configuration says that a step takes more than a thousandth of each weight (lr × decay), at any
    time; and the loss is above 99% of what it was 48 rows before. It warns. Weights that shrink while the loss falls
    are the purpose of weight decay.

    What to do: lower the weight decay. With AdamW each step takes lr × decay of every weight.
    """

    name, family, kind, severity = "weight_decay_too_high", "optimizer", "weight_growth", "warning"
    needs = ("param_norm", "loss")
    least = 64
    about = "Weights shrink while the loss does not fall."
    sources = ("stability guide: weight norms", "AdamW: each step takes lr × decay of a weight")
    thresholds: ClassVar = {
        "share": (0.7, "of the largest norm; ours"),
        "loss": (0.99, "of the loss before; ours"),
        "each": (1e-3, "of a weight in a step; usual are 1e-5 to 1e-4; ours"),
    }

    def reset(self) -> None:
        super().reset()
        self._segment = -1
        self._begin(-1)

    def _begin(self, segment: int) -> None:
        self._segment, self._most, self._since, self._count = segment, 0.0, 0, 0
        self._steps: list[int] = []
        self._fell = -1
        self._said = False

    def channel(self, history: RunHistory) -> Channel | None:
        return param_norm_of(history)

    def look(self, history: RunHistory, new: BlockColumns) -> Iterator[Finding]:
        for at in range(len(new)):
            segment, middle = int(new.segment[at]), float(new.middle[at])
            if segment != self._segment:
                norm = self.channel(history) if self._segment < 0 else None
                self._begin(segment)
                self._most = norm.first if norm is not None and 0 < norm.first < math.inf else 0.0
            if self._said or not 0 < middle < math.inf:
                continue
            self._count += 1
            self._steps = [*self._steps[-3:], int(new.step[at])]
            if middle > self._most:
                self._most, self._since = middle, self._count
            if middle < self.at["share"] * self._most:
                if self._fell < 0:
                    self._fell = self._count - self._since
                yield from self._look(history, middle, int(new.last_step[at]), int(new.time[at]))
            else:
                self._fell = -1

    def _look(self, history: RunHistory, middle: float, step: int, time: int) -> Iterator[Finding]:
        loss, segment = history.role("loss"), self._segment
        decay = numeric_setting(history, "weight_decay", "wd", "adam_weight_decay", "adamw_weight_decay")
        rate = known(history.role("lr"), step, time, segment)
        if len(self._steps) < 4 or not (self._fell <= 8 or rate * decay > self.at["each"]):
            return
        now = usual(loss, step, time, segment, 16)
        before = usual(loss, self._steps[0], time, segment, 16)
        if not now > self.at["loss"] * before or not before > 0 or history.role("reward") is not None:
            return
        self._said = True
        yield self.finding(
            self._steps[0], f"The weights have shrunk to {middle / self._most:.3g} of their largest norm, and the "
            "loss does "
            f"not fall ({before:.3g} to {now:.3g}).", found=step, segment=segment,
            evidence={"param_norm": middle, "largest": self._most, "loss": now, "loss_before": before,
            "weight_decay": decay,
                      "lost_each_step": rate * decay},
            causes=["weight decay too high", "learning rate too high"][:: -1 if decay <= 0.1 else 1], confidence=0.7,
            remedies=[f"set the weight decay to {decay / 10:.3g} or less, it is {decay:.3g}" if decay > 0
                      else "lower the weight decay by a factor of 10"],
        )  # fmt: skip


RULES = (
    UnchangedParameters,
    UnclearedGradients,
    ClearedGradients,
    *updates.RULES,
    *epsilon.RULES,
    WeightDecayTooHigh,
)
