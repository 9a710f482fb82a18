"""Rules over routers of a mixture of experts: balance, collapse, dropped tokens, their losses.

In:   the series `moe/{figure}` and each expert's load, `moe/{layer}/load/{expert}`.
Out:  findings of the family `moe`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import RowCursor, numeric_setting, whole
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.wording import GO_BACK, Case, Text

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


COLLAPSED = ("router collapsed: a few experts get nearly all tokens", "learning rate too high", "no z-loss")
BALANCE: tuple[Text, ...] = (
    (
        "raise the coefficient of the balance loss, it is {balance:.3g}",
        "add a balance loss with a coefficient of {missing_balance}",
        "raise the coefficient of the balance loss",
    ),
    "add a z-loss of 0.001 on the router's logits",
    GO_BACK,
)


def balance_loss(history: RunHistory) -> dict[str, float]:
    """The coefficient of the balance loss, or the one to begin with where it is zero."""
    now = numeric_setting(history, "aux_coefficient", "router_aux_loss_coef", "aux_loss_coef", "moe_aux_loss_coeff",
                          "aux_loss_weight", "load_balance_coefficient")  # fmt: skip
    return {"balance": now} if now > 0 else {"missing_balance": 0.01} if now == 0 else {}


class _Bounded(Rule):
    """A figure beyond a bound, row after row.

    `rows` rows in a row, over `steps` steps at least, and no better at their end than at their beginning by more than
    a twentieth: a router that begins unbalanced and is being mended is left alone.
    """

    series: tuple[str, ...] = ()
    sign = 1  # +1: too much is wrong, -1: too little
    levels: tuple[tuple[str, str], ...] = ()  # threshold, severity; the mildest first

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._open: dict[str, list[tuple[int, float]]] = {}
        self._segment = -1
        self._said: set[tuple[int, str]] = set()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel = next((item for item in map(history.channel, self.series) if item is not None), None)
        rows = self._cursor.new(channel)
        if rows is None or channel is None:
            return
        mild = self.at[self.levels[0][0]]
        with numpy.errstate(invalid="ignore"):
            bad = rows.value > mild if self.sign > 0 else rows.value < mild
        if not bad.any() and not self._open:
            return
        for at in range(len(rows)):
            if rows.segment[at] != self._segment:
                self._segment, self._open = int(rows.segment[at]), {}
            if bad[at] or self._open:
                yield from self._row(history, channel, rows, at)

    def _row(self, history: RunHistory, channel: Channel, rows: ChannelRows, at: int) -> Iterator[Finding]:
        value, step = float(rows.value[at]), int(rows.step[at])
        for level, severity in self.levels:
            bound = self.at[level]
            if not (value > bound if self.sign > 0 else value < bound):
                if not (math.isnan(value) or self._within(level, value)):
                    self._open.pop(level, None)
                continue
            run = self._open.setdefault(level, [])
            run.append((step, value))
            count = int(self.at["rows"])
            if len(run) > 512:
                del run[1:257]
            if len(run) < count or step - run[0][0] < self.at["steps"] or (self._segment, level) in self._said:
                continue
            first = sum(item for _, item in run[:3]) / len(run[:3])
            last = sum(item for _, item in run[-3:]) / 3
            if (last < 0.95 * first) if self.sign > 0 else (last > 1.05 * first):
                continue  # it is being mended
            self._said.add((self._segment, level))
            yield self._say(history, level, severity, run[0][0], step, last, int(rows.segment[at]))

    def _within(self, level: str, value: float) -> bool:
        """Whether one row on the good side is noise: less than a tenth from the bound."""
        bound = self.at[level]
        return value > 0.9 * bound if self.sign > 0 else value < 1.1 * bound

    def case(self, history: RunHistory, step: int, segment: int) -> str:
        """Which of the `cases` it is."""
        return "all"

    def _say(
        self, history: RunHistory, level: str, severity: str, began: int, step: int, value: float, segment: int
    ) -> Finding:
        case = self.case(history, step, segment)
        return self.say(
            case, history, began, found=step, key=level, segment=segment, severity=severity,
            confidence=0.3 if severity == "info" else self.cases["all"].confidence,
            evidence={self.series[0].removeprefix("moe/"): value}, also={"value": value, **balance_loss(history)},
        )  # fmt: skip


class LoadImbalance(_Bounded):
    """One expert gets far more tokens than the mean.

    `load_imbalance` is the largest load over the mean; `max_violation` is one less. The Surogate metrics guide
    warns above 3, a violation of 2; above 5, a violation of 4, it is critical. The guide's best practice, below 2.5,
    is an info finding. It has to last for 100 steps and eight rows, and must not be getting better.

    What to do: raise the coefficient of the balance loss, or use a bias that balances without a loss.
    """

    name, family, kind, severity = "load_imbalance", "moe", "routing", "critical"
    needs = ("=moe/load_imbalance|=moe/max_violation",)
    least = 8
    about = "One expert gets far more tokens than the mean."
    sources = (
        "Surogate metrics guide: load_imbalance above 3; keep it below 2.5",
        "loss-free balancing: the maximal violation",
    )
    thresholds: ClassVar = {
        "informs": (2.5, "Surogate metrics guide"),
        "warns": (3.0, "Surogate metrics guide"),
        "critical": (5.0, "a violation of 4; ours"),
        "rows": (8.0, "ours"),
        "steps": (100.0, "ours"),
    }
    series = ("moe/load_imbalance",)
    levels = (("informs", "info"), ("warns", "warning"), ("critical", "critical"))
    cases: ClassVar = {
        "all": Case(
            "The busiest expert gets {value:.3g} times the mean load, since step {step}.",
            COLLAPSED,
            BALANCE,
            confidence=0.8,
        )
    }


class ExpertUtilization(_Bounded):
    """Many experts get no token at all.

    Below one half for 50 steps and eight rows, without getting better, warns, as in the Surogate metrics guide; below
    one quarter is critical. The guide's best practice of 0.7 is an info finding.
    """

    name, family, kind, severity = "expert_utilization", "moe", "routing", "critical"
    needs = ("=moe/expert_utilization",)
    least = 8
    about = "Many experts get no token at all."
    sources = ("Surogate metrics guide: expert_utilization below 0.5; keep it above 0.7",)
    thresholds: ClassVar = {
        "informs": (0.7, "Surogate metrics guide"),
        "warns": (0.5, "Surogate metrics guide"),
        "critical": (0.25, "ours"),
        "rows": (8.0, "ours"),
        "steps": (50.0, "ours"),
    }
    series, sign = ("moe/expert_utilization",), -1
    levels = (("informs", "info"), ("warns", "warning"), ("critical", "critical"))
    cases: ClassVar = {
        "all": Case(
            "Only {value:.0%} of the experts get tokens, since step {step}.", COLLAPSED, BALANCE, confidence=0.85
        )
    }


class RouterEntropy(_Bounded):
    """The router's entropy is very low.

    Its entropy over the logarithm of the number of experts: 1 is uniform, 0 is certain. Below one half is an info
    finding: many good routers end there. Below 0.05, in all layers' mean, warns: nothing is left to learn from. Where
    the busiest expert gets less than twice the mean load, no router has collapsed.
    """

    name, family, kind, severity = "router_entropy", "moe", "routing", "warning"
    needs = ("=moe/router_entropy",)
    least = 8
    about = "The router's entropy is very low."
    thresholds: ClassVar = {
        "informs": (0.5, "ours"),
        "warns": (0.05, "ours"),
        "even": (2.0, "times the mean load, for the busiest expert: the guide's healthy range"),
        "rows": (8.0, "ours"),
        "steps": (100.0, "ours"),
    }
    series, sign = ("moe/router_entropy",), -1
    levels = (("informs", "info"), ("warns", "warning"))
    cases: ClassVar = {
        "all": Case(
            "The router's entropy is {value:.3g} of its maximum, since step {step}.",
            COLLAPSED,
            BALANCE,
            confidence=0.7,
        ),
        "even": Case(
            "The router's entropy is {value:.3g} of its maximum, since step {step}; its experts are loaded evenly.",
            COLLAPSED[2:],
            BALANCE[1:2],
            confidence=0.7,
        ),
    }

    def case(self, history: RunHistory, step: int, segment: int) -> str:
        channel = history.channel("moe/load_imbalance")
        rows = channel.rows() if channel is not None else None
        here = (rows.step <= step) & (rows.segment == segment) if rows is not None else numpy.zeros(0, bool)
        return "even" if rows is not None and here.any() and rows.value[here][-1] < self.at["even"] else "all"


class DroppedTokens(_Bounded):
    """Experts are over capacity, and tokens are dropped.

    More than 5% is an info finding: capacities near 1 drop that many by design. More than 30% for 100 steps is a
    warning.
    """

    name, family, kind, severity = "dropped_tokens", "moe", "routing", "warning"
    needs = ("=moe/dropped_fraction",)
    least = 8
    about = "Experts are over capacity, and tokens are dropped."
    thresholds: ClassVar = {
        "informs": (0.05, "ours"),
        "warns": (0.30, "ours"),
        "rows": (8.0, "ours"),
        "steps": (100.0, "ours"),
    }
    series = ("moe/dropped_fraction",)
    levels = (("informs", "info"), ("warns", "warning"))
    cases: ClassVar = {
        "all": Case(
            "{value:.0%} of the token assignments are dropped, since step {step}.",
            COLLAPSED[:1],
            ("raise the capacity factor", BALANCE[0]),
            confidence=0.7,
        )
    }


class RouterLosses(Rule):
    """A router's own loss is far above what it was, or above what is usual.

    The Surogate metrics guide calls an auxiliary loss above 1 and a z-loss above 0.1 signs of trouble. Both scale with
    their coefficients and the number of layers, so the bounds give info findings. Ten times the median of the last 64
    rows (16 at least), eight rows in a row, warns. A token whose router logit is not finite is critical.
    """

    name, family, kind, severity = "router_losses", "moe", "routing", "critical"
    needs = ("=moe/aux_loss|=moe/z_loss|=moe/non_finite_tokens",)
    least = 1
    about = "A router's auxiliary loss is far above its usual value."
    sources = ("Surogate metrics guide: aux_loss above 1.0, z_loss above 0.1",)
    thresholds: ClassVar = {
        "aux_loss": (1.0, "Surogate metrics guide"),
        "z_loss": (0.1, "Surogate metrics guide"),
        "ratio": (10.0, "ours"),
        "rows": (8.0, "ours"),
    }

    cases: ClassVar = {
        "tokens": Case(
            "{count} tokens have a router logit that is not finite at step {step}.",
            ("overflow in a layer", "learning rate too high", "no z-loss"), (GO_BACK,), kind="nonfinite",
            confidence=0.95,
        ),
        "ratio": Case(
            "The router's {name} is {times:.3g} times its usual {usual:.3g} since step {step}.",
            COLLAPSED, BALANCE, severity="warning", confidence=0.7,
        ),
        "above": Case("The router's {name} is {value:.3g}, above {bound:.3g}.", COLLAPSED, BALANCE, severity="info",
                      confidence=0.3),
    }  # fmt: skip

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._past: dict[str, list[float]] = {}
        self._run: dict[str, list[int]] = {}
        self._segments: dict[str, int] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for name in ("aux_loss", "z_loss"):
            rows = self._cursor.new(history.channel(f"moe/{name}"))
            for at in range(len(rows)) if rows is not None else ():
                yield from self._row(history, name, rows, at)  # type: ignore[arg-type]
        rows = self._cursor.new(history.channel("moe/non_finite_tokens"))
        for place in numpy.flatnonzero(rows.value > 0) if rows is not None else ():
            assert rows is not None
            at = int(place)
            segment, step = int(rows.segment[at]), int(rows.step[at])
            if self.first(segment, "tokens"):
                tokens = float(rows.value[at])
                yield self.say("tokens", history, step, segment=segment, key="tokens", evidence={"tokens": tokens},
                               also={"count": whole(tokens)})  # fmt: skip

    def _row(self, history: RunHistory, name: str, rows: ChannelRows, at: int) -> Iterator[Finding]:
        value, step, segment = float(rows.value[at]), int(rows.step[at]), int(rows.segment[at])
        if segment != self._segments.get(name):
            self._segments[name] = segment
            self._past[name], self._run[name] = [], []
        past = self._past.setdefault(name, [])
        if not math.isfinite(value):
            return
        usual = sorted(past)[len(past) // 2] if len(past) >= 16 else math.nan
        run = self._run.setdefault(name, [])
        if value > self.at["ratio"] * usual > 0:
            run.append(step)
            if len(run) == int(self.at["rows"]) and self.first(segment, f"{name} ratio"):
                yield self.say("ratio", history, run[0], found=step, segment=segment, key=f"{name} ratio",
                               evidence={name: value, "usual": usual},
                               also={"name": name, "times": value / usual, **balance_loss(history)})  # fmt: skip
            return
        run.clear()
        past.append(value)
        del past[:-64]
        if len(past) >= 8 and sorted(past[-8:])[4] > self.at[name] and self.first(segment, name):
            yield self.say("above", history, step, segment=segment, key=name, evidence={name: value},
                           also={"name": name, "value": value, "bound": self.at[name],
                                 **balance_loss(history)})  # fmt: skip


RULES = (LoadImbalance, ExpertUtilization, RouterEntropy, DroppedTokens, RouterLosses)
