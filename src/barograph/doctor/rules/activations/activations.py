"""Rules over activations: attention and output logits, drift along the depth, dead and saturated units, no numbers.

In:   tables of activations by layer and the model's figures of its forward passes, at intervals.
Out:  findings of the family `model`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.cursor import RowCursor, half_rate, known, newest, saved_before, usual
from barograph.doctor.kernel.curve import between
from barograph.doctor.kernel.layers import TableRule
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.series import SeriesRule
from barograph.doctor.kernel.tables import TableReader, in_order, largest_of, median_of
from barograph.doctor.rules.activations.units import DeadUnits, SaturatedUnits

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.tables import LayerRound, LayerTable

_SINCE = 16  # rows of the loss, behind which heads may have jumped
_START = 20  # steps; a first table behind them says nothing of the start


class AttentionLogits(Rule):
    """The largest attention logit is large and grows: softmax is about to see one key alone.

    Logits are the exponents of softmax, so their size means the same in all models: at 50 a key outweighs another by
    e^50. Many large models run well above 50, so that is an info finding; above 100, where QK-clip acts, it is a
    warning, as where the largest logit of a layer is three times the largest of its last 16 tables (four at least) and
    above 30, or doubles over 16 tables while above 100; and where that comes to 1,000 it is critical. While the loss
    still falls, a level above 100, and a jump to less, are info findings: heads that look at one key, as those that
    copy, are learnt so. A jump to ten times the largest is a warning all the same where a loss of the last 16 is a
    tenth above the highest of the 16 before.

    What to do: QK-norm, or QK-clip at 100; a lower learning rate; look at who sets the scale of attention.
    """

    name, family, kind, severity = "attention_logits", "model", "attention", "critical"
    needs = ("activations/*/attention_logit_max|=model/attention/logit_max",)
    least = 4
    about = "Attention logits grow."
    sources = ("Kimi K2: QK-clip at 100", "small-scale proxies: growth of attention logits")
    thresholds: ClassVar = {
        "informs": (50.0, "ours"),
        "high": (100.0, "Kimi K2, QK-clip"),
        "broken": (1000.0, "ours"),
        "jump": (3.0, "times the largest before; ours"),
        "jump_least": (30.0, "ours"),
        "sudden": (10.0, "times the largest before, at which the loss jumped: nothing that is learnt; ours"),
        "shaken": (1.1, "times the highest of 16 losses, in the 16 since; ours"),
        "falls": (0.99, "of the loss 64 rows before: it still falls; ours"),
        "moved": (0.15, "of their size that weights can have moved: they are as initialised; ours"),
        "growth": (2.0, "in 16 tables: exponential growth; ours"),
    }

    def reset(self) -> None:
        self._reader, self._cursor = TableReader(), RowCursor()
        self._said: set[tuple[int, str]] = set()
        self._past: list[tuple[int, float]] = []
        self._layered = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        new = self._reader.new(history, "activations", "attention_logit_max")
        if not self._layered:  # the model's largest counts until the first table of layers
            yield from self._look_at_all(history, new[0][1].time if new else math.inf)
            self._layered = bool(new)
        for table, item in new:
            yield from self._decide(
                history, table.names, item.value, table.before(item, 16), item.step, item.time, item.segment
            )

    def _look_at_all(self, history: RunHistory, until: float) -> Iterator[Finding]:
        """The largest logit of all layers, where it is logged as one number, before a time (µs)."""
        rows = self._cursor.new(history.channel("model/attention/logit_max"))
        for at in range(len(rows)) if rows is not None else ():
            assert rows is not None
            if rows.time[at] >= until:
                break
            segment, value = int(rows.segment[at]), float(rows.value[at])
            before = numpy.array([[old] for part, old in self._past if part == segment]).reshape(-1, 1)
            yield from self._decide(history, ["the model"], numpy.array([value]), before, int(rows.step[at]),
             int(rows.time[at]),
                         segment)  # fmt: skip
            self._past = [*self._past[-15:], (segment, value)]

    def _decide(
        self, history: RunHistory, names: list[str], value: Any, before: Any, step: int, time: int, segment: int,
    ) -> Iterator[Finding]:  # fmt: skip
        value = numpy.where(numpy.isfinite(value), value, numpy.nan)
        if not (value > self.at["jump_least"]).any():
            return
        at, state, past = self.at, "", math.nan
        if len(before) >= 4:
            with numpy.errstate(invalid="ignore"):
                largest_before = numpy.fmax.reduce(before, axis=0)
                jump = (value > at["jump"] * numpy.maximum(largest_before, 1e-3)) & (value > at["jump_least"])
                grown = (value > at["high"]) & (value > at["growth"] * before[0]) & (value > largest_before)
                grown &= len(before) == 16
            if jump.any() or grown.any():
                state = "jump" if jump.any() else "growth"
                worst = largest_of(numpy.where(jump if state == "jump" else grown, value, numpy.nan), names)
                past = float(largest_before[worst] if state == "jump" else before[0, worst])
        if not state:
            worst = largest_of(value, names)
            state = "high" if value[worst] > at["high"] else "informs" if value[worst] > at["informs"] else ""
        if not state or (segment, state) in self._said:
            return
        causes = [
            "attention temperature: the scale of the logits is wrong, or queries and keys grow",
            "learning rate too high",
        ]
        if state != "jump":
            causes.reverse()
        moved = known(history.channel("model/reach"), step, time, segment)
        drawn = not len(before) and (step <= _START or moved < self.at["moved"])
        if drawn:
            causes = ["bad initialisation: weights are too large", *causes]
        largest = float(value[worst])
        strong = state in ("jump", "growth")
        self._said |= {
            (segment, item) for item in (("jump", "growth", "high", "informs") if strong else (state, "informs"))
        }
        severity = "critical" if largest > at["broken"] else "warning" if strong or state == "high" else "info"
        of_use = (state == "high" and not drawn) or (state == "jump" and largest <= at["high"])
        at_once = state == "jump" and largest > at["sudden"] * past and self._shaken(history, step, time, segment)
        if severity == "warning" and of_use and not at_once and self._falls(history, step, time, segment):
            severity = "info"  # a head that has learnt to look at one key
        text = f"The largest attention logit of {names[worst]} is {largest:.3g} at step {step}"
        yield self.finding(
            step, text + (f", it was {past:.3g}." if past == past else "."), severity=severity, key=state,
            segment=segment,
            evidence={"layer": names[worst], "logit": largest, "before": past},
            causes=causes,
            remedies=["add QK-norm, or clip queries and keys at a logit of 100", 
                      "check where the attention scale is set",
                      half_rate(history, step, time, segment), *(saved_before(history, step) if strong else [])],
            confidence=0.75 if strong else 0.6 if state == "high" else 0.3,
        )  # fmt: skip

    def _shaken(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """Whether the loss has jumped of late."""
        loss = history.role("loss")
        rows = newest(loss, step, time, segment, 2 * _SINCE) if loss is not None else numpy.empty(0)
        earlier, since = rows[:-_SINCE], rows[-_SINCE:]
        if len(earlier) < _SINCE or not numpy.isfinite(rows).all():
            return False
        return bool(since.max() > self.at["shaken"] * earlier.max())

    def _falls(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """Whether the median of the loss's last 64 rows is below that of the 64 before; of a short run, of halves."""
        loss = history.role("loss")
        if loss is None:
            return False
        rows = newest(loss, step, time, segment, 128)
        rows = rows[numpy.isfinite(rows)]
        half = len(rows) // 2
        return half >= 16 and float(numpy.median(rows[half:])) < self.at["falls"] * float(numpy.median(rows[:half]))


class AttentionEntropy(Rule):
    """Attention concentrates on a single key.

    Entropy is divided by the logarithm of the number of keys: 1 is even, 0 is one key. A layer below 0.1 in five tables
    in a row is an info finding; one that was above 0.3 in the median before, falls below 0.05, and stays there for
    three tables, warns.
    """

    name, family, kind, severity = "attention_entropy", "model", "attention", "warning"
    needs = ("activations/*/attention_entropy",)
    least = 5
    about = "Attention concentrates on a single key."
    sources = ("attention entropy",)
    thresholds: ClassVar = {"low": (0.1, "ours"), "was": (0.3, "ours"), "fell": (0.05, "ours")}
    causes = ("attention temperature", "learning rate too high")

    def reset(self) -> None:
        self._reader = TableReader()
        self._low: dict[str, list[int]] = {}
        self._fell: dict[str, list[int]] = {}
        self._said: set[tuple[int, str]] = set()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for table, item in self._reader.new(history, "activations", "attention_entropy"):
            if (item.value < self.at["low"]).any() or self._low:
                yield from self._look(history, table, item)

    def _look(self, history: RunHistory, table: LayerTable, current: LayerRound) -> Iterator[Finding]:
        before = (
            median_of(table.before(current, 16)[:-2])
            if current.number > 5
            else numpy.full(len(current.value), numpy.nan)
        )
        places = {name: at for at, name in enumerate(table.names[: len(current.value)])}
        for name in in_order(places):
            at = places[name]
            value = float(current.value[at])
            if not current.there[at]:
                continue
            self._low[name] = [*self._low.get(name, []), current.step] if value < self.at["low"] else []
            fell = value < self.at["fell"] and (bool(self._fell.get(name)) or before[at] > self.at["was"])
            self._fell[name] = [*self._fell.get(name, []), current.step] if fell else []
            for key, steps, need in (("fell", self._fell[name], 3), ("low", self._low[name], 5)):
                if len(steps) == need and (current.segment, key) not in self._said:
                    self._said |= {(current.segment, key), (current.segment, "low")}
                    yield self.finding(
                        steps[0], f"The entropy of attention in {name} is {value:.3g} of its maximum since step "
                        f"{steps[0]}.",
                        severity="warning" if key == "fell" else "info", found=current.step, key=key,
                        segment=current.segment, evidence={"layer": name, "entropy": value},
                        confidence=0.6 if key == "fell" else 0.3,
                        remedies=["add QK-norm", half_rate(history, current.step, current.time, current.segment)],
                    )  # fmt: skip
        self._low = {name: steps for name, steps in self._low.items() if steps}


class OutputLogits(SeriesRule):
    """The output's log Z leaves 0: logits drift, which does not change the cross-entropy but overflows half precision.

    log Z is the mean over tokens of the logarithm of the sum of the exponentials. It begins near the logarithm of the
    vocabulary and may wander. It is an info finding where it is more than 5 above its first value, and has risen in
    four of five of the last 16 tables over at least 1,000 steps. It warns where its distance from zero is 100 and five
    times the median before.
    """

    name, family, kind, severity = "output_logits", "model", "logits", "warning"
    series, waits = "=model/log_z", False
    needs = ("=model/log_z",)
    least = 8
    about = "The output logits drift."
    sources = ("small-scale proxies: divergence of output logits", "PaLM: z-loss of 1e-4")
    thresholds: ClassVar = {
        "rise": (5.0, "ours"),
        "steps": (1000.0, "ours"),
        "far": (100.0, "ours"),
        "ratio": (5.0, "ours"),
    }
    causes = ("no z-loss: nothing bounds the output logits", "learning rate too high")

    def reset(self) -> None:
        self._past: list[tuple[int, float]] = []
        self._segment, self._first = -1, math.nan

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        for at in range(len(rows)):
            step, value, segment, time = (
                int(rows.step[at]),
                float(rows.value[at]),
                int(rows.segment[at]),
                int(rows.time[at]),
            )
            if segment != self._segment:
                self._segment, self._past, self._first = segment, [], value
            if not math.isfinite(value):
                continue
            state, began = "", step
            past = [item for _, item in self._past]
            if len(past) >= 4 and abs(value) > max(
                self.at["far"], self.at["ratio"] * _middle([abs(item) for item in past])
            ):
                state = "far"
            elif len(past) == 15 and abs(value) > abs(self._first) + self.at["rise"]:
                ups = sum(abs(later) > abs(earlier) for earlier, later in zip(past, [*past[1:], value], strict=True))
                began = self._past[0][0]
                if ups >= 12 and step - began >= self.at["steps"]:
                    state = "rise"
            if state and self.first(segment, state):
                yield self.finding(
                    began, f"The output's log Z is {value:.3g} at step {step}, it was {self._first:.3g} at "
                    "first.",
                    severity="warning" if state == "far" else "info", found=step, key=state,
                    segment=segment,
                    evidence={"log_z": value, "first": self._first},
                    remedies=["add a z-loss of 1e-4 · log² Z", half_rate(history, step, time, segment)],
                    confidence=0.7 if state == "far" else 0.3,
                )  # fmt: skip
            self._past = [*self._past[-14:], (step, value)]


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


class ActivationDrift(TableRule):
    """The root mean square of a block's output has changed by a large factor.

    The root mean square of each block's output is compared with the median of its last eight tables (four at least).
    Five times as much or more, or a fifth or less, in a third of the layers, is an info finding, and a warning if it is
    so in the next table too and the loss has risen. OPT-175B's drift of activation norms came before its
    divergences, and showed a changed line of code.
    """

    name, family, kind, severity = "activation_drift", "model", "activations", "warning"
    tables = (("activations", "rms"),)
    needs = ("activations/*/rms",)
    least = 5
    about = "Activations change in magnitude."
    sources = ("OPT: its log book", "OLMo 2: growth exponent")
    thresholds: ClassVar = {
        "ratio": (5.0, "ours"),
        "loss": (1.05, "times the loss before; ours"),
        "share": (0.33, "of the layers; ours"),
    }
    causes = ("learning rate too high", "overflow in a layer", "attention temperature")

    def reset(self) -> None:
        super().reset()
        self._open: tuple[int, int, int, Any, float] | None = None
        self._said: set[int] = set()

    def look(self, history: RunHistory, family: str, table: LayerTable, current: LayerRound) -> Iterator[Finding]:
        names = table.names[: len(current.value)]
        value = numpy.where(numpy.isfinite(current.value) & (current.value > 0), current.value, numpy.nan)
        if self._open is not None:
            number_of, step, segment, middle, before = self._open
            self._open = None
            if segment == current.segment and number_of + 1 == current.number:
                with numpy.errstate(all="ignore"):
                    ratio = value[: len(middle)] / middle
                loss = usual(history.role("loss"), current.step, current.time, current.segment, 8)
                still = self._strange(ratio)
                if still.any() and loss > self.at["loss"] * before > 0:
                    yield self._say(
                        history, names, ratio, still, step, current.step, current.time, segment, "warning", loss, before
                    )
        if current.segment in self._said:
            return
        before_tables = table.before(current, 8)
        if len(before_tables) < 4:
            return
        middle = median_of(before_tables)
        with numpy.errstate(all="ignore"):
            ratio = value / middle
        strange = self._strange(ratio)
        known = numpy.isfinite(ratio)
        if not strange.any() or strange.sum() < self.at["share"] * known.sum():
            return
        self._said.add(current.segment)
        before = usual(history.role("loss"), current.step - 1, current.time, current.segment, 48)
        self._open = (current.number, current.step, current.segment, middle, before)
        yield self._say(
            history,
            names,
            ratio,
            strange,
            current.step,
            current.step,
            current.time,
            current.segment,
            "info",
            math.nan,
            before,
        )

    def _strange(self, ratio: Any) -> Any:
        ratio = numpy.where(numpy.isfinite(ratio) & (ratio > 0), ratio, numpy.nan)
        with numpy.errstate(invalid="ignore"):
            return (ratio > self.at["ratio"]) | (ratio < 1 / self.at["ratio"])

    def _say(
        self, history: RunHistory, names: list[str], ratio: Any, strange: Any, step: int, last: int, time: int,
        segment: int,
        severity: str, loss: float, before: float,
    ) -> Finding:  # fmt: skip
        worst = largest_of(
            numpy.where(strange, numpy.abs(numpy.log(numpy.where(strange, ratio, 1.0))), numpy.nan), names
        )
        return self.finding(
            step, f"The output of {names[worst]} is {float(ratio[worst]):.3g} times as large as in the tables "
            "before.",
            severity=severity, found=last, segment=segment,
            confidence=0.6 if severity == "warning" else 0.3,
            evidence={"layers": in_order(names[at] for at in numpy.flatnonzero(strange))[:8],
            "ratio": float(ratio[worst]),
                      "loss": loss, "loss_before": before},
            remedies=[half_rate(history, step, time, segment), *saved_before(history, step)],
        )  # fmt: skip


class NonFiniteActivation(Rule):
    """A layer's output is NaN or infinite.

    The first such layer in the order of the model is where it began. It is critical at once: the loss is not finite
    either, or will not be.
    """

    name, family, kind, severity = "non_finite_activation", "model", "nonfinite", "critical"
    prompt = True
    needs = ("activations/*/rms|activations/*/l2_norm",)
    about = "A layer's output is NaN or infinite."
    sources = ("DeepDiagnosis: names the layer",)
    thresholds: ClassVar = {"layers": (1.0, "any one")}

    def reset(self) -> None:
        self._reader = TableReader()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        bad_ones = []
        for place, quantity in enumerate(("max", "rms", "l2_norm")):
            for table, item in self._reader.new(history, "activations", quantity):
                bad = numpy.flatnonzero(item.there & ~numpy.isfinite(item.value))
                if len(bad):
                    bad_ones.append(
                        (item.segment, item.time, item.step, place, item, in_order(table.names[at] for at in bad))
                    )
        for *_, item, names in sorted(bad_ones, key=lambda bad: bad[:4]):
            if self.first(item.segment):
                yield self.finding(
                    item.step, f"The output of {names[0]} is not finite at step {item.step}.", segment=item.segment,
                    evidence={"first": names[0], "layers": in_order(names)[:8], "of": int(item.there.sum())},
                    confidence=0.9,
                    causes=["overflow in a layer: " + names[0], "fp16 overflow", "learning rate too high"],
                    remedies=[f"look at {names[0]} and what goes into it", "compute it in bf16 or fp32",
                              half_rate(history, item.step, item.time, item.segment),
                              *saved_before(history, item.step)],
                )  # fmt: skip


class NonFiniteInput(Rule):
    """The model's input was NaN or infinite, and the loss of that step too.

    Then no layer overflowed and no rate was too high: the batch is bad. An input whose loss is finite is an info
    finding: a model may take NaN for values that are missing.

    What to do: look at the batch, and leave out what is not finite before it is given to the model.
    """

    name, family, kind, severity = "non_finite_input", "data", "nonfinite", "critical"
    prompt = True
    needs = ("=model/non_finite_inputs",)
    about = "The model's input is NaN or infinite."
    thresholds: ClassVar = {"inputs": (1.0, "any one")}

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._waiting: list[tuple[int, int]] = []  # step and segment

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows, loss = self._cursor.new(history.channel("model/non_finite_inputs")), history.role("loss")
        if rows is not None:
            some = numpy.flatnonzero(rows.value >= self.at["inputs"])
            self._waiting += zip(rows.step[some].tolist(), rows.segment[some].tolist(), strict=True)
        for step, segment in list(self._waiting):
            values = between(loss, step, step + 1, segment, finite=False)
            if not len(values) and not history.facts.get("finished"):
                continue
            self._waiting.remove((step, segment))
            bad = len(values) > 0 and not numpy.isfinite(values).all()
            if not self.first(segment, bad):
                continue
            yield self.finding(
                step, f"The model's input is not finite at step {step}" + (", and so its loss is not." if bad else "."),
                segment=segment, severity="critical" if bad else "info", key="loss" if bad else "input",
                confidence=0.95, causes=["bad batch: its inputs are NaN or infinite"],
                remedies=[f"look at the inputs of the batch of step {step}, and at what makes them",
                          "leave out examples whose inputs are not finite", *saved_before(history, step)],
            )  # fmt: skip


RULES = (
    AttentionLogits, AttentionEntropy, OutputLogits, ActivationDrift, DeadUnits, SaturatedUnits, NonFiniteActivation,
    NonFiniteInput,
)  # fmt: skip
