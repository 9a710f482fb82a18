"""Rules over how far a step moves the weights: too far, hardly at all, one layer unlike its like.

In:   update ratios, of the model and by layer.
Out:  findings of the family `optimizer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.names import is_vector
from barograph.doctor.kernel.cursor import RowCursor, known, newest, saved_before
from barograph.doctor.kernel.layers import TableRule
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.stages import stage_between
from barograph.doctor.kernel.tables import TableReader, in_order, role_of, table_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.tables import LayerRound, LayerTable


_FEW = 4  # parameters; the median of fewer says little: a bias of one element crosses 0


class UpdateRatio(Rule):
    """The size of an update relative to the weights is outside of the usual range.

    The ratio |ΔW| / |W| is measured by layer. The stability guide calls more than 0.1 or less than 1e-7 a red flag. The
    median over layers above 0.1 in three tables in a row, more than 64 steps after the start, is a warning: the
    learning rate is too high. Below 1e-7, with a learning rate of at least a tenth of its peak, it is a warning: too
    low. The guide's bands by phase (1e-3 to 1e-2 up to step 1,000, 1e-4 to 1e-3 up to 10,000, then 1e-5 to 1e-4) are an
    info finding where the median is ten times outside; so is a single matrix that three tables in a row have beyond the
    red flags while the median is not. The phase is that of the optimizer's own count of steps, where that is less than
    the step, as where steps are those of an environment. A median that is five times the largest of all tables before
    (six at least) is a warning at once: after a re-warm-up the learning rate does not exceed its earlier peak. Where a
    stage of the training begins, tables before it don't count.
    """

    name, family, kind, severity = "update_ratio", "optimizer", "update_ratio", "warning"
    needs = ("updates/*/ratio|=model/update_p50",)
    least = 3
    about = "Updates are too large or too small relative to the weights."
    sources = ("stability guide: weight_update_max and weight_update_min, bands by phase",)
    thresholds: ClassVar = {
        "high": (0.1, "stability guide"),
        "low": (1e-7, "stability guide"),
        "tables": (3.0, "in a row; ours"),
        "start": (64.0, "steps in which small weights may move far; ours"),
        "jump": (5.0, "times the largest so far; ours"),
        "outside": (10.0, "times outside of the stability guide's band; ours"),
    }

    def reset(self) -> None:
        self._reader, self._each, self._cursor = TableReader(), TableReader(), RowCursor()
        self._begun: dict[int, int] = {}  # segment → first step of its tables
        self._beyond: dict[str, dict[str, list[int]]] = {"high": {}, "low": {}}  # layer → steps in a row
        self._segment, self._first = -1, 0
        self._largest, self._count = 0.0, 0
        self._step = 0  # of the table before
        self._row: dict[str, list[int]] = {}
        self._said: set[tuple[int, str]] = set()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for table, item in self._each.new(history, "updates", "ratio"):
            yield from self._single(history, table, item)
        middles = history.channel("model/update_p50")
        if middles is not None:
            rows = self._cursor.new(middles)
            for at in range(len(rows)) if rows is not None else ():
                assert rows is not None
                yield from self._look(
                    history, float(rows.value[at]), int(rows.step[at]), int(rows.time[at]), int(rows.segment[at])
                )
            return
        if table_of(history, "updates", "ratio").count < 2 and not history.facts.get("finished"):
            return  # the median may be in a later record of the first step
        new = self._reader.new(history, "updates", "ratio")
        if new:
            matrices = numpy.array([not is_vector(name) for name in new[0][0].names], bool)
            for _, item in new:
                use = item.there & numpy.isfinite(item.value) & matrices[: len(item.value)]
                if use.any():
                    middle = float(numpy.median(item.value[use]))
                    yield from self._look(history, middle, item.step, item.time, item.segment)

    def _single(self, history: RunHistory, table: LayerTable, item: LayerRound) -> Iterator[Finding]:
        """Layers beyond the red flags, where the median of all is not."""
        early = item.step - self._begun.setdefault(item.segment, item.step) < self.at["start"]
        there = {
            name: value
            for name, value, is_there in zip(table.names, item.value.tolist(), item.there.tolist(), strict=False)
            if is_there and 0 < value < math.inf and not is_vector(name)
        }
        middle = float(numpy.median([*there.values()])) if there else math.nan
        for side, rows in self._beyond.items():
            bound = self.at[side]
            beyond = {
                name: value for name, value in there.items() if (value > bound if side == "high" else value < bound)
            }
            if early or len(beyond) == len(there) or (middle > bound if side == "high" else middle < bound):
                beyond = {}
            for name in [name for name in rows if name not in beyond]:
                del rows[name]
            for name in beyond:
                rows.setdefault(name, []).append(item.step)
            lasting = [name for name, steps in rows.items() if len(steps) >= self.at["tables"]]
            if not lasting or (item.segment, f"one {side}") in self._said:
                continue
            rate = known(history.role("lr"), item.step, item.time, item.segment)
            if side == "low" and self._is_meant(history, rate, item.step, item.time, item.segment):
                continue
            self._said.add((item.segment, f"one {side}"))
            first = in_order(lasting)[0]
            many = f"{len(lasting)} layers, such as {first}, are" if len(lasting) > 1 else f"{first} is"
            word = "above" if side == "high" else "below"
            yield self.finding(
                rows[first][0], f"{many} moved by {there[first]:.3g} of the weights a step, {word} {bound:g}.",
                severity="info", found=item.step, segment=item.segment, key=f"one {side}", confidence=0.3,
                evidence={"ratio": there[first], "median": middle, "layers": in_order(lasting)[:8]},
                causes=["learning rate too high for this layer" if side == "high" else "layer gets hardly any gradient",
                        "bad initialisation"],
                remedies=["check the layer's initialisation and its parameter group"],
            )  # fmt: skip

    def _look(self, history: RunHistory, middle: float, step: int, time: int, segment: int) -> Iterator[Finding]:
        if segment != self._segment:
            if self._segment == -1:
                self._first = step
            self._segment, self._row = segment, {}
        if known(history.channel("model/trained_parameters"), step, time, segment) < _FEW:
            return
        at = self.at
        early = step - self._first < at["start"]
        age = known(history.channel("model/optimizer_age"), step, time, segment)
        low, high = band(int(age) if age < step else step)
        state = ""
        if middle > at["high"] and not early:
            state = "high"
        elif 0 < middle < at["low"]:
            state = "low" if known(history.role("norm"), step, time, segment) != 0 else ""
        elif not early and middle > at["outside"] * high:
            state = "above"
        elif not early and middle < low / at["outside"]:
            state = "below"
        jump = self._count >= 6 and middle > at["jump"] * self._largest and middle > 1e-3
        if jump and self._new_stage(history, step, time, segment):
            jump, self._largest, self._count = False, 0.0, 0  # another task, which is learnt anew
        self._step = step
        if jump and (segment, "jump") not in self._said:
            self._said.add((segment, "jump"))
            rate, before = (known(history.role("lr"), moment, time, segment) for moment in (step, step - 1))
            text = (
                f"The median update is {middle:.3g} of the weights at step {step}, the largest before was "
                f"{self._largest:.3g}."
            )
            yield self._say(history, step, step, time, segment, "jump", text, middle, "warning", rate, before)
        self._row = {state: [*self._row.get(state, []), step]} if state else {}
        steps = self._row.get(state, [])
        if state and len(steps) == int(at["tables"]) and (segment, state) not in self._said and middle < math.inf:
            rate = known(history.role("lr"), step, time, segment)
            if (state in ("low", "below") and not self._is_meant(history, rate, step, time, segment)) or state in (
                "high",
                "above",
            ):
                yield from self._say_row(history, steps, state, middle, low, high, rate, time, segment)
        if math.isfinite(middle):
            self._largest = max(self._largest, middle)
            self._count += 1

    def _new_stage(self, history: RunHistory, step: int, time: int, segment: int) -> bool:
        """Whether a stage began since the table before."""
        history.as_of(time)
        begins = stage_between(history, self._step, step, segment)
        history.as_of(None)
        return begins

    def _is_meant(self, history: RunHistory, rate: float, step: int, time: int, segment: int) -> bool:
        """Small updates where the schedule is at its end, or not begun."""
        channel = history.role("lr")
        if channel is None:
            return False
        rates = newest(channel, step, time, segment, 4096)
        rates = rates[numpy.isfinite(rates)]
        return bool(len(rates)) and not rate >= 0.1 * float(rates.max())

    def _say_row(
        self, history: RunHistory, steps: list[int], state: str, middle: float, low: float, high: float, rate: float,
        time: int,
        segment: int,
    ) -> Iterator[Finding]:  # fmt: skip
        self._said.add((segment, state))
        bound = {"high": self.at["high"], "low": self.at["low"], "above": high, "below": low}[state]
        side = "above" if state in ("high", "above") else "below"
        text = f"The median update is {middle:.3g} of the weights since step {steps[0]}, {side} {bound:.3g}."
        severity = "warning" if state in ("high", "low") else "info"
        yield self._say(history, steps[0], steps[-1], time, segment, state, text, middle, severity, rate, math.nan)

    def _say(
        self, history: RunHistory, step: int, last: int, time: int, segment: int, key: str, text: str, middle: float,
        severity: str, rate: float, before: float,
    ) -> Finding:  # fmt: skip
        down = key in ("low", "below")
        factor = min(10.0, max(2.0, middle / 1e-2)) if not down else 10.0
        if before > 0 and before < rate:
            advice = f"the learning rate was {before:.3g} before and is {rate:.3g} now: go back to the previous one"
        elif rate > 0:
            advice = f"try a learning rate of {rate * factor if down else rate / factor:.3g} instead of {rate:.3g}"
        else:
            advice = f"{'raise' if down else 'lower'} the learning rate by a factor of 5 to 10"
        causes = ["learning rate too low", "weight decay too high"] if down else ["learning rate too high",
            "no warm-up",
                                                                                "bad initialisation"]  # fmt: skip
        return self.finding(
            step, text, severity=severity, found=last, key=key, segment=segment, causes=causes,
            evidence={"ratio": middle, "lr": rate, "largest_before": self._largest},
            remedies=[advice, *([] if down else saved_before(history, step))],
            confidence={"warning": 0.7, "info": 0.3}[severity],
        )  # fmt: skip


def band(step: int) -> tuple[float, float]:
    """The stability guide's healthy update ratios at a step."""
    return (1e-3, 1e-2) if step < 1000 else (1e-4, 1e-3) if step < 10_000 else (1e-5, 1e-4)


class UpdateImbalance(TableRule):
    """One layer's updates are much larger, relative to its weights, than those of its counterparts in other blocks.

    Layers whose names differ in their numbers alone have one role. A ratio more than ten times the median of its role
    (four layers at least), in three tables in a row, is an info finding: WeSaR found such layers before spikes.
    """

    name, family, kind, severity = "update_imbalance", "optimizer", "update_ratio", "info"
    tables = (("updates", "ratio"),)
    needs = ("updates/*/ratio",)
    least = 3
    about = "One layer's updates are much larger than those of similar layers."
    sources = ("WeSaR: update ratios of one role differ before spikes",)
    thresholds: ClassVar = {"ratio": (10.0, "ours"), "layers": (4.0, "of a role; ours")}
    causes = ("bad initialisation",)

    def reset(self) -> None:
        super().reset()
        self._row: dict[str, list[int]] = {}
        self._names = 0
        self._groups: list[Any] = []

    def look(self, history: RunHistory, family: str, table: LayerTable, current: LayerRound) -> Iterator[Finding]:
        if len(table.names) != self._names:
            self._names = len(table.names)
            roles: dict[str, list[int]] = {}
            for at, name in enumerate(table.names):
                if not is_vector(name):
                    roles.setdefault(role_of(name), []).append(at)
            self._groups = [numpy.array(some) for some in roles.values() if len(some) >= self.at["layers"]]
        high: set[str] = set()
        for some in self._groups:
            some = some[some < len(current.value)]
            values = current.value[some]
            values = numpy.where(numpy.isfinite(values), values, numpy.nan)
            if numpy.isfinite(values).sum() < self.at["layers"]:
                continue
            middle = float(numpy.nanmedian(values))
            for at in some[numpy.flatnonzero(values > self.at["ratio"] * middle)] if middle > 0 else ():
                name = table.names[at]
                high.add(name)
                self._row.setdefault(name, []).append(current.step)
                if len(self._row[name]) == 3 and self.first(name):
                    ratio = float(current.value[at])
                    yield self.finding(
                        self._row[name][0], f"{name} is moved by {ratio:.3g} of its weights a step, its like by "
                        f"{middle:.3g}.", found=current.step, segment=current.segment, key=name,
                        evidence={"ratio": ratio, "median_of_role": middle}, confidence=0.3,
                    )  # fmt: skip
        for name in [name for name in self._row if name not in high]:
            del self._row[name]


RULES = (UpdateRatio, UpdateImbalance)
