"""Rules over how far a step moves the weights: too far, hardly at all, one layer unlike its like.

In:   update ratios, of the model and by layer.
Out:  findings of the family `optimizer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.rules.cursor import Cursor, known, newest, number, saved_before
from barograph.rules.rule import Rule
from barograph.rules.tables import Reader, is_vector, role_of

if TYPE_CHECKING:
    from barograph.rules.channels import Seen
    from barograph.rules.finding import Finding
    from barograph.rules.tables import Round, Table


class UpdateRatio(Rule):
    """How far a step moves the weights, relative to their size, is outside of what trains.

    The ratio |ΔW| / |W| is measured by layer. S2 calls more than 0.1 or less than 1e-7 a red flag. The median over
    layers above 0.1 in three tables in a row, more than 64 steps after the start, warns: the learning rate is too
    high. Below 1e-7, with a learning rate of at least a tenth of its peak, warns: it is too low. S2's bands by phase
    (1e-3 to 1e-2 up to step 1,000, 1e-4 to 1e-3 up to 10,000, then 1e-5 to 1e-4) inform where the median is ten times
    outside. A median that is five times the largest of all tables before (six at least) warns at once: a learning
    rate that comes back after a re-warm-up does not exceed what was.
    """

    name, family, kind, severity = "update_ratio", "optimizer", "update_ratio", "warning"
    needs = ("updates/*/ratio|=model/update_p50",)
    least = 3
    about = "Steps move the weights too far, or hardly at all."
    source = "R16; S2: ALERT_THRESHOLDS weight_update_max and weight_update_min, bands by phase"
    thresholds: ClassVar = {
        "high": (0.1, "S2"), "low": (1e-7, "S2"), "tables": (3.0, "in a row; ours"),
        "start": (64.0, "steps in which small weights may move far; ours"), "jump": (5.0, "times the largest so far; "
        "ours"),
        "outside": (10.0, "times outside of S2's band; ours"),
    }  # fmt: skip

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._reader, self._cursor = Reader(), Cursor()
        self._segment, self._first = -1, 0
        self._largest, self._count = 0.0, 0
        self._row: dict[str, list[int]] = {}
        self._said: set[tuple[int, str]] = set()

    def examine(self, seen: Seen) -> Iterable[Finding]:
        found: list[Finding] = []
        middles = seen.channel("model/update_p50")
        if middles is not None:
            rows = self._cursor.new(middles)
            for at in range(len(rows)) if rows is not None else ():
                assert rows is not None
                self._look(
                    seen, float(rows.value[at]), int(rows.step[at]), int(rows.time[at]), int(rows.segment[at]), found
                )
            return found
        new = self._reader.new(seen, "updates", "ratio")
        if new:
            matrices = numpy.array([not is_vector(name) for name in new[0][0].names], bool)
            for _, one in new:
                use = one.there & numpy.isfinite(one.value) & matrices[: len(one.value)]
                if use.any():
                    middle = float(numpy.median(one.value[use]))
                    self._look(seen, middle, one.step, one.time, one.segment, found)
        return found

    def _look(self, seen: Seen, middle: float, step: int, time: int, segment: int, found: list[Finding]) -> None:
        if segment != self._segment:
            if self._segment == -1:
                self._first = step
            self._segment, self._row = segment, {}
        at = self.at
        early = step - self._first < at["start"]
        low, high = band(step)
        state = ""
        if middle > at["high"] and not early:
            state = "high"
        elif 0 < middle < at["low"]:
            state = "low" if known(seen.role("norm"), step, time, segment) != 0 else ""
        elif not early and middle > at["outside"] * high:
            state = "above"
        elif not early and middle < low / at["outside"]:
            state = "below"
        jump = self._count >= 6 and middle > at["jump"] * self._largest and middle > 1e-3
        if jump and (segment, "jump") not in self._said:
            self._said.add((segment, "jump"))
            rate, before = (known(seen.role("lr"), moment, time, segment) for moment in (step, step - 1))
            text = (
                f"The median update is {number(middle)} of the weights at step {step}, the most before was "
                f"{number(self._largest)}."
            )
            found.append(self._say(seen, step, step, time, segment, "jump", text, middle, "warning", rate, before))
        self._row = {state: [*self._row.get(state, []), step]} if state else {}
        steps = self._row.get(state, [])
        if state and len(steps) == int(at["tables"]) and (segment, state) not in self._said and middle < math.inf:
            rate = known(seen.role("lr"), step, time, segment)
            if (state in ("low", "below") and not self._is_meant(seen, rate, step, time, segment)) or state in (
                "high",
                "above",
            ):
                self._say_row(seen, steps, state, middle, low, high, rate, time, segment, found)
        if math.isfinite(middle):
            self._largest = max(self._largest, middle)
            self._count += 1

    def _is_meant(self, seen: Seen, rate: float, step: int, time: int, segment: int) -> bool:
        """Small updates where the schedule is at its end, or not begun."""
        channel = seen.role("lr")
        if channel is None:
            return False
        rates = newest(channel, step, time, segment, 4096)
        rates = rates[numpy.isfinite(rates)]
        return bool(len(rates)) and not rate >= 0.1 * float(rates.max())

    def _say_row(
        self, seen: Seen, steps: list[int], state: str, middle: float, low: float, high: float, rate: float, time: int,
        segment: int, found: list[Finding],
    ) -> None:  # fmt: skip
        self._said.add((segment, state))
        bound = {"high": self.at["high"], "low": self.at["low"], "above": high, "below": low}[state]
        side = "above" if state in ("high", "above") else "below"
        text = f"The median update is {number(middle)} of the weights since step {steps[0]}, {side} {number(bound)}."
        severity = "warning" if state in ("high", "low") else "info"
        found.append(self._say(seen, steps[0], steps[-1], time, segment, state, text, middle, severity, rate, math.nan))

    def _say(
        self, seen: Seen, step: int, last: int, time: int, segment: int, key: str, text: str, middle: float,
        severity: str, rate: float, before: float,
    ) -> Finding:  # fmt: skip
        down = key in ("low", "below")
        factor = min(10.0, max(2.0, middle / 1e-2)) if not down else 10.0
        if before > 0 and before < rate:
            advice = f"the learning rate was {number(before)} before and is {number(rate)} now: go back to the former"
        elif rate > 0:
            advice = (
                f"try a learning rate of {number(rate * factor if down else rate / factor)} instead of {number(rate)}"
            )
        else:
            advice = f"{'raise' if down else 'lower'} the learning rate by a factor of 5 to 10"
        causes = ["learning rate too low", "weight decay too high"] if down else ["learning rate too high",
            "no warm-up",
                                                                                "bad initialisation"]  # fmt: skip
        return self.finding(
            step, text, severity=severity, last_step=last, found=last, key=key, segment=segment, causes=causes,
            evidence={"ratio": middle, "lr": rate, "largest_before": self._largest},
            remedies=[advice, *([] if down else saved_before(seen, step))],
            confidence={"warning": 0.7, "info": 0.3}[severity],
        )  # fmt: skip


def band(step: int) -> tuple[float, float]:
    """S2's healthy update ratios at a step."""
    return (1e-3, 1e-2) if step < 1000 else (1e-4, 1e-3) if step < 10_000 else (1e-5, 1e-4)


class UpdateImbalance(Rule):
    """One layer is moved much further than its like in other blocks.

    Layers that differ in their numbers alone play one role. A ratio more than ten times the median of its role (four
    layers at least), in three tables in a row, is a remark: WeSaR found such layers before spikes.
    """

    name, family, kind, severity = "update_imbalance", "optimizer", "update_ratio", "info"
    needs = ("updates/*/ratio",)
    least = 3
    about = "One layer is moved much further than its like."
    source = "R16; WeSaR: update ratios of one role differ before spikes"
    thresholds: ClassVar = {"ratio": (10.0, "R16"), "layers": (4.0, "of a role; ours")}

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._reader = Reader()
        self._row: dict[str, list[int]] = {}
        self._said: set[str] = set()
        self._names = 0
        self._groups: list[Any] = []

    def examine(self, seen: Seen) -> Iterable[Finding]:
        found: list[Finding] = []
        for table, one in self._reader.new(seen, "updates", "ratio"):
            self._look(table, one, found)
        return found

    def _look(self, table: Table, one: Round, found: list[Finding]) -> None:
        if len(table.names) != self._names:
            self._names = len(table.names)
            roles: dict[str, list[int]] = {}
            for at, name in enumerate(table.names):
                if not is_vector(name):
                    roles.setdefault(role_of(name), []).append(at)
            self._groups = [numpy.array(some) for some in roles.values() if len(some) >= self.at["layers"]]
        high: set[str] = set()
        for some in self._groups:
            some = some[some < len(one.value)]
            values = one.value[some]
            values = numpy.where(numpy.isfinite(values), values, numpy.nan)
            if numpy.isfinite(values).sum() < self.at["layers"]:
                continue
            middle = float(numpy.nanmedian(values))
            for at in some[numpy.flatnonzero(values > self.at["ratio"] * middle)] if middle > 0 else ():
                name = table.names[at]
                high.add(name)
                self._row.setdefault(name, []).append(one.step)
                if len(self._row[name]) == 3 and name not in self._said:
                    self._said.add(name)
                    ratio = float(one.value[at])
                    found.append(self.finding(
                        self._row[name][0], f"{name} is moved by {number(ratio)} of its weights a step, its like by "
                        f"{number(middle)}.", last_step=one.step, found=one.step, segment=one.segment, key=name,
                        evidence={"ratio": ratio, "median_of_role": middle}, causes=["bad initialisation"],
                        confidence=0.3,
                    ))  # fmt: skip
        for name in [name for name in self._row if name not in high]:
            del self._row[name]


RULES = (UpdateRatio, UpdateImbalance)
