"""What the first steps show: weights that are moved further than they were long, logits before any training.

In:   the norm of all parameters, update ratios, tables of attention logits, the first losses and log Z.
Out:  findings of `EarlyGrowth`, `InitialLogits`; `began_blank`, of use to others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.names import is_vector
from barograph.doctor.kernel.cursor import RowCursor, came_by, half_rate, known, param_norm_of, thawed, usual
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import TableReader, largest_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

_UNTRAINED = 0.1  # of log Z: how far from it the first loss of a model that knows nothing may lie; ours
_ZERO = 0.4  # of the trained matrices began at 0: those of adapters, beside an embedding that is trained
_START = 20  # a run that begins later goes on with another one's weights


def is_untrained(log_z: float, loss: float, slack: float = _UNTRAINED) -> bool:
    """Whether a model's outputs hold nothing about the targets: its loss is log Z, so the mean logit of a target is 0.

    A trained model's targets have logits well above 0, so its loss lies far below log Z. NaN says no.
    """
    return log_z > 0 and loss > (1 - slack) * log_z


class EarlyGrowth(Rule):
    """The first steps change the weights by more than their initial norm.

    A step changes weights in directions that have little to do with their random start, so |W|² = |W₀|² + |ΔW|²: when
    the norm of all parameters has doubled, only a quarter of its square is left of the initialisation. Twice the first
    norm within 32 steps warns: Adam's second moments average over 20 to 1,000 steps, so that is done before the
    optimizer knows how large a gradient is. Within 64 steps 1.75 times warns where the median update of a step has
    passed the stability guide's red flag of a tenth of the weights; without that twice is an info finding, for small
    models that learn fast double their norm as well, and the longest healthy trainings do in thousands of steps.
    Adapters have no initialisation that is worth keeping, and a start of any size: where two fifths of the trained
    matrices began at exactly 0 (`model/zero_share`), or parameters of adapters are trained, by their names, there is
    no finding. Nor have tables that are looked up, whose rows begin as small as one likes: where nine tenths of what is
    trained are embeddings (`model/table_share`), as in a recommender, there is no finding. Nor has one layer
    (`model/trained_matrices`), as a head on a frozen network or a linear regression: no other layer's signal passes
    through it. The next row has to be as high: where two optimizers step by turns, a row is the norm of what one of
    them holds. Nor is anything said where more is trained by then than at first: the norm is that of what is trained,
    and grows when layers are unfrozen, or given to the optimizer later. Where two thirds of the loss are gone by then,
    or half of the evaluation loss, or a reward above 0 is three times its first, it is an info finding: the steps were
    of use. So is it where nine of ten evaluations up to then, of sixteen or more, as of one graph at each step, are
    each below the one before.

    What to do: a lower learning rate, a longer warm-up.
    """

    name, family, kind, severity = "early_growth", "optimizer", "update_ratio", "warning"
    needs = ("=model/param_norm|param_norm",)
    least = 2
    about = "The first steps change the weights by more than their initial norm."
    sources = ("stability guide: update ratio above 0.1",)
    thresholds: ClassVar = {
        "steps": (64.0, "from the start; ours"),
        "at_once": (32.0, "steps, about the memory of Adam's second moments at 0.95 to 0.97"),
        "grown": (2.0, "times the first norm: three quarters of its square are updates; ours"),
        "flagged": (1.75, "times, with a median update above `ratio`; ours"),
        "ratio": (0.1, "stability guide, weight_update_max"),
        "layer": (1.0, "trained matrices"),
        "left": (1 / 3, "of the first loss: the steps were of use; ours"),
        "evaluations": (16.0, "of the loss; ours"),
        "better": (0.9, "of these, than the one before: the same; ours"),
        "held_out": (0.5, "of the first evaluation loss: the same; ours"),
        "tables": (0.9, "of the trained elements: the norm is that of the embeddings; ours"),
    }

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._first: tuple[int, float, int] | None = None  # step, norm, segment
        self._done = False
        self._waiting: Finding | None = None  # for the next row

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        if self._done:
            return
        rows = self._cursor.new(param_norm_of(history))
        if rows is not None:
            yield from self._look(history, rows)
        if not self._done and self._waiting is not None and history.facts.get("finished"):
            self._done = True
            yield self._waiting

    def _look(self, history: RunHistory, rows: ChannelRows) -> Iterator[Finding]:
        for step, value, time, segment in zip(
            rows.step.tolist(), rows.value.tolist(), rows.time.tolist(), rows.segment.tolist(), strict=True
        ):
            if self._waiting is not None and self._first is not None:
                waits, self._waiting = self._waiting, None
                if segment != self._first[2] or not value < self.at["flagged"] * self._first[1]:
                    self._done, waits.found = True, step if segment == self._first[2] else waits.found
                    yield waits
                    return
            if not math.isfinite(value):
                continue
            if self._first is None:
                self._first = (step, value, segment)
                self._done = step > _START or value <= 0
            elif segment != self._first[2] or step - self._first[0] > self.at["steps"]:
                self._done = True
            elif value >= self.at["flagged"] * self._first[1] and (
                (flagged := self._flagged(history, step, time, segment)) or value >= self.at["grown"] * self._first[1]
            ):
                tables = known(history.channel("model/table_share"), step, time, segment)
                one = known(history.channel("model/trained_matrices"), step, time, segment) <= self.at["layer"]
                self._done = one or tables >= self.at["tables"] or _are_adapters(history, time)
                self._done |= thawed(history, time, segment)
                if not self._done:
                    # rows may be far apart: |ΔW|² grows with the steps
                    grown = min(value / self._first[1], 1e3)
                    doubled = (step - self._first[0]) * 3 / (grown * grown - 1)
                    loud = flagged or doubled <= self.at["at_once"]
                    loss = history.role("loss")
                    for curve, share, count in ((loss, "left", 5), (history.role("eval_loss"), "held_out", 1)):
                        if curve is not None and curve.end and curve.first > 0 and came_by(curve, time):
                            loud &= not usual(curve, step, time, segment, count) <= self.at[share] * curve.first
                    reward = history.role("reward")
                    if reward is not None and reward.end and reward.first > 0 and came_by(reward, time):
                        loud &= not usual(reward, step, time, segment, 5) * self.at["left"] >= reward.first
                    loud &= not self._gets_better(history, step, time, segment)
                    self._waiting = self._say(history, step, value, time, segment, "warning" if loud else "info")
            if self._done:
                return

    def _gets_better(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """Whether nearly all evaluations so far, of many, are each below the one before."""
        curve = history.role("eval_loss")
        if curve is None or not came_by(curve, time):
            return False
        rows = curve.rows(0, 2 * int(self.at["steps"]))
        values = rows.value[(rows.step <= step) & (rows.time <= time) & (rows.segment == segment)]
        return len(values) >= self.at["evaluations"] and bool((numpy.diff(values) < 0).mean() >= self.at["better"])

    def _flagged(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        updates = history.channel("model/update_p50")
        if updates is None:
            return False
        rows = updates.rows()
        here = (rows.step <= step) & (rows.time <= time) & (rows.segment == segment)
        return bool((rows.value[here] > self.at["ratio"]).any())

    def _say(self, history: RunHistory, step: int, value: float, time: int, segment: int, severity: str) -> Finding:
        assert self._first is not None
        begun, first, _ = self._first
        rate = known(history.role("lr"), step, time, segment)
        start = known(history.role("lr"), begun, time, segment)
        causes = [
            "learning rate too high: a few steps undo the initialisation",
            "no warm-up: " + ("the first steps are the largest" if start >= 0.9 * rate else "or one that is too short"),
            "bad initialisation: the initial weights are too small",
        ]
        return self.finding(
            begun, f"In {step - begun} steps the norm of all parameters grew from {first:.3g} to {value:.3g}, "
            f"{value / first:.3g} times.", found=step, segment=segment, causes=causes,
            evidence={"norm": value, "norm_at_start": first, "steps": step - begun, "lr": rate, "lr_at_start": start},
            remedies=[half_rate(history, step, time, segment), "warm the learning rate up over more steps"],
            severity=severity, confidence=0.85 if severity == "warning" else 0.3,
        )  # fmt: skip


def _are_adapters(history: RunHistory, time: int) -> bool:
    """Whether adapters are trained, or half of the matrices that are trained began at exactly 0: one factor of each."""
    named, zero = history.channel("model/trained_adapters"), history.channel("model/zero_share")
    if named is not None and came_by(named, time) and named.first > 0:
        return True
    if zero is not None and came_by(zero, time) and zero.began[0] <= _START and zero.first >= _ZERO:
        return True
    first = [
        channel.first
        for name, channel in history.layers("updates", "weight_norm").items()
        if came_by(channel, time) and channel.began[0] <= _START and not is_vector(name)
    ]
    return bool(first) and 2 * first.count(0.0) >= len(first)


class InitialLogits(Rule):
    """Attention is already concentrated before any training.

    In the first table of a run the largest attention logit is above 30, where a model with uniform attention at
    initialisation has about 1; and the model is untrained, for its loss is log Z. A logit of 30 prefers one key by a
    factor of e^30, without any data. A pretrained model may have such logits, and has a loss far below log Z.
    """

    name, family, kind, severity = "initial_logits", "model", "attention", "warning"
    needs = ("activations/*/attention_logit_max", "=model/log_z", "loss")
    about = "Attention logits are large before any training."
    sources = ("Kimi K2: attention logits above 100 are clipped",)
    thresholds: ClassVar = {
        "logit": (30.0, "ours; e^30 between two keys"),
        "untrained": (0.25, "of log Z, for these logits are noisy; ours"),
    }
    causes = ("bad initialisation: weights are too large", "attention temperature")

    def reset(self) -> None:
        self._reader = TableReader()
        self._first: tuple[int, int, int, float, str] | None = None
        self._done = False

    def examine(self, history: RunHistory) -> Iterable[Finding]:
        if self._done:
            return ()
        new = self._reader.new(history, "activations", "attention_logit_max")
        if self._first is None and new:
            table, one = new[0]
            largest = numpy.where(numpy.isfinite(one.value), one.value, -1.0)
            worst = largest_of(largest, table.names)
            if one.step > _START or largest[worst] <= self.at["logit"]:
                self._done = True
                return ()
            self._first = (one.step, one.time, one.segment, float(largest[worst]), table.names[worst])
        log_z, loss = history.channel("model/log_z"), history.role("loss")
        if self._first is None or log_z is None or loss is None or not log_z.end or not loss.end:
            return ()
        self._done = True
        if log_z.rows(0, 1).step[0] > _START:
            return ()
        step, time, segment, value, layer = self._first
        normaliser, first = float(log_z.rows(0, 1).value[0]), float(loss.rows(0, 1).value[0])
        if not is_untrained(normaliser, first, self.at["untrained"]):
            return ()
        found = max(step, int(log_z.rows(0, 1).step[0]), int(loss.rows(0, 1).step[0]))
        return [self.finding(
            step, f"The largest attention logit of {layer} is {value:.3g} before any training: the loss is "
            f"{first:.3g}, log Z {normaliser:.3g}.", found=found, segment=segment,
            evidence={"layer": layer, "logit": value, "loss": first, "log_z": normaliser},
            remedies=["scale the initial weights down: their standard deviation is about 1 / √width",
                      half_rate(history, step, time, segment)],
            confidence=0.85,
        )]  # fmt: skip


def began_blank(history: RunHistory, loss: float) -> bool:
    """Whether the run began with a model that knew nothing: its first log Z was the first losses."""
    log_z = history.channel("model/log_z")
    if log_z is None or log_z.start or not log_z.end:
        return False
    first = log_z.rows(0, 1)
    return int(first.step[0]) <= _START and is_untrained(float(first.value[0]), loss)


RULES = (EarlyGrowth, InitialLogits)
