"""Rules over routers of a mixture of experts: balance, collapse, dead experts, dropped tokens, their losses.

In:   the series `moe/{figure}` and each expert's load, `moe/{layer}/load/{expert}`.
Out:  findings of the family `moe`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import RowCursor, known, numeric_setting, whole
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import LayerTable, shown
from barograph.doctor.kernel.wording import GO_BACK, Case, Text

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.tables import LayerRound


_COLLAPSED = ("router collapsed: a few experts get nearly all tokens", "learning rate too high", "no z-loss")
_BALANCE: tuple[Text, ...] = (
    (
        "raise the coefficient of the balance loss, it is {balance:.3g}",
        "add a balance loss with a coefficient of {missing_balance}",
        "raise the coefficient of the balance loss",
    ),
    "add a z-loss of 0.001 on the router's logits",
    GO_BACK,
)


def _balance_loss(history: RunHistory) -> dict[str, float]:
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
            evidence={self.series[0].removeprefix("moe/"): value}, also={"value": value, **_balance_loss(history)},
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
            _COLLAPSED,
            _BALANCE,
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
            "Only {value:.0%} of the experts get tokens, since step {step}.", _COLLAPSED, _BALANCE, confidence=0.85
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
            _COLLAPSED,
            _BALANCE,
            confidence=0.7,
        ),
        "even": Case(
            "The router's entropy is {value:.3g} of its maximum, since step {step}; its experts are loaded evenly.",
            _COLLAPSED[2:],
            _BALANCE[1:2],
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
            _COLLAPSED[:1],
            ("raise the capacity factor", _BALANCE[0]),
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
            _COLLAPSED, _BALANCE, severity="warning", confidence=0.7,
        ),
        "above": Case("The router's {name} is {value:.3g}, above {bound:.3g}.", _COLLAPSED, _BALANCE, severity="info",
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
                               also={"name": name, "times": value / usual, **_balance_loss(history)})  # fmt: skip
            return
        run.clear()
        past.append(value)
        del past[:-64]
        if len(past) >= 8 and sorted(past[-8:])[4] > self.at[name] and self.first(segment, name):
            yield self.say("above", history, step, segment=segment, key=name, evidence={name: value},
                           also={"name": name, "value": value, "bound": self.at[name],
                                 **_balance_loss(history)})  # fmt: skip


_LOAD = re.compile(r"moe/(?P<layer>.+)/load/(?P<expert>\d+)$")


class DeadExperts(Rule):
    """An expert no longer gets a token, or never did.

    An expert that had a share (at least a tenth of an even one, in the median of its last 16 tables) and gets no token
    in three tables in a row, over at least 20 steps, is dead: chance does not do that to an expert with that number
    of tokens, and a router that is still finding its balance leaves one out for fewer steps. One without a token in
    five tables in a row, over at least 100 steps, is dead whatever it had. If half of a layer's experts are dead it is
    critical, else a warning. Where all of them have their share again, in eight tables in a row and over 20 steps, it
    becomes an info finding. An expert that lost its load at once is masked; one that lost it slowly, or together with
    half of the others, is left by a router that collapses.

    What to do: raise the balance loss; check whether a mask or a bias excludes the expert.
    """

    name, family, kind, severity = "dead_expert", "moe", "dead_expert", "critical"
    needs = ("moe/*",)
    least = 3
    about = "An expert gets no token."
    thresholds: ClassVar = {
        "tables": (3.0, "without a token, for an expert that had its share; ours"),
        "share": (0.1, "of an even share that it had before; ours"),
        "span": (
            20.0,
            "steps without a token, for an expert that had its share; with it again, for one that is back; ours",
        ),
        "back": (8.0, "tables with its share again; ours"),
        "steps": (100.0, "without a token, for one that had no share; ours"),
    }

    cases: ClassVar = {
        "dead": Case(
            "Expert {experts_shown} of {layer} {gets} since step {step}.",
            remedies=("check whether a mask or a bias excludes it", *_BALANCE), confidence=0.85,
        ),
        "back": Case(
            "Expert {experts_shown} of {layer} got no token from step {step} on, and has a share again since step "
            "{back}.",
            remedies=_BALANCE[:2], severity="info", confidence=0.5,
        ),
    }  # fmt: skip

    def reset(self) -> None:
        self._names = -1
        self._tables: dict[str, LayerTable] = {}
        self._next: dict[str, int] = {}
        self._states: dict[str, _Loads] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        if len(history.channels) != self._names:
            self._names = len(history.channels)
            for name in history.channels:
                if name.startswith("moe/") and (match := _LOAD.match(name)) and match["layer"] not in self._tables:
                    layer = match["layer"]
                    self._tables[layer] = LayerTable(lambda seen, layer=layer: _loads(seen, layer))  # type: ignore[misc]
        for layer, table in self._tables.items():
            table.extend(history)
            first = self._next.get(layer, 0)
            if table.count != first:
                self._next[layer] = table.count
                for current in table.rounds(first):
                    yield from self._look(history, layer, table.names, current)

    def _look(self, history: RunHistory, layer: str, names: list[str], current: LayerRound) -> Iterator[Finding]:
        state = self._states.get(layer)
        if state is None or state.segment != current.segment:
            state = self._states[layer] = _Loads(current.segment, current.step)
        row = {
            int(name): float(load)
            for name, load, there in zip(names, current.value, current.there, strict=False)
            if there
        }
        whole_load = sum(row.values())
        if not 0 < whole_load < 1e15 or not all(load >= 0 for load in row.values()):
            return
        dead = state.add(row, current.step, self.at)
        loss = known(history.role("loss"), current.step, current.time, current.segment)
        if dead and (math.isfinite(loss) or history.role("loss") is None):  # where all is NaN, loads mean nothing
            yield self._say(history, layer, dead, state, current.step, current.segment)
        for found, back in state.returned(current.step, self.at):
            yield self.say(
                "back", history, found.step, found=current.step, segment=current.segment, key=found.key,
                evidence={**found.evidence, "back": back},
                also={"experts_shown": shown([str(at) for at in found.evidence["experts"]]), "back": back,
                      **_balance_loss(history)},
            )  # fmt: skip

    def _say(self, history: RunHistory, layer: str, dead: list[int], state: _Loads, step: int, segment: int) -> Finding:
        began = min(state.since[at] for at in dead)
        state.said.update(dead)
        share = len(state.said) / state.size
        never = [at for at in dead if at not in state.had]
        causes = ["expert dead: nothing is routed to it", *_COLLAPSED[:1]]
        if share >= 0.5 or any(state.faded(at) for at in dead):
            causes.reverse()
        gets = (
            "never got a token" if len(never) == len(dead) else "gets no token" if never else "no longer gets a token"
        )
        finding = self.say(
            "dead", history, began, severity="critical" if share >= 0.5 else "warning", found=step, segment=segment,
            key=f"{layer} {dead[0]}", evidence={"layer": layer, "experts": dead[:16], "dead_share": share},
            also={"experts_shown": shown([str(at) for at in dead]), "gets": gets, **_balance_loss(history)},
            causes=causes,
        )  # fmt: skip
        state.open.append((finding, frozenset(dead)))
        return finding


def _loads(history: RunHistory, layer: str) -> dict[str, Channel]:
    head = f"moe/{layer}/load/"
    return {name[len(head) :]: channel for name, channel in history.channels.items()
            if name.startswith(head) and name[len(head) :].isdigit()}  # fmt: skip


class _Loads:
    """What one layer's experts have got, by expert."""

    def __init__(self, segment: int, first: int):
        self.segment, self.first = segment, first
        self.empty: dict[int, int] = {}  # tables in a row without a token
        self.since: dict[int, int] = {}
        self.had: set[int] = set()
        self.past: list[dict[int, float]] = []
        self.said: set[int] = set()
        self.shared: dict[int, list[int]] = {}  # number of tables in a row with a share; the first one's step
        self.open: list[tuple[Finding, frozenset[int]]] = []  # what was said, and not taken back; the experts of each

    @property
    def size(self) -> int:
        return max(1, len(self.empty))

    def faded(self, expert: int) -> bool:
        """Whether its load had gone down by half before it was none: a mask takes all at once, a router by and by."""
        shares = [item[expert] for item in self.past if item.get(expert, 0.0) > 0]
        return len(shares) >= 4 and max(shares[-2:]) < 0.5 * sorted(shares)[len(shares) // 2]

    def add(self, row: dict[int, float], step: int, at: dict[str, float]) -> list[int]:
        """The experts that this table shows to be dead, each once."""
        due = []
        whole_load = sum(row.values())
        for expert, load in row.items():
            if load > at["share"] * whole_load / len(row):
                self.shared.setdefault(expert, [0, step])[0] += 1
            else:
                self.shared.pop(expert, None)
            if load > 0:
                self.empty[expert] = 0
                self.said.discard(expert)
                continue
            if not self.empty.get(expert):
                self.since[expert] = step if self.past else self.first
            self.empty[expert] = self.empty.get(expert, 0) + 1
            empty = self.empty[expert]
            if expert in self.said or empty < at["tables"]:
                continue
            shares = sorted(item[expert] for item in self.past if expert in item)
            lost = len(shares) >= 4 and shares[len(shares) // 2] > at["share"]
            span = step - self.since[expert]
            if (lost and span >= at["span"]) or (span >= at["steps"] and empty >= 5):
                due.append(expert)
        self.had |= {expert for expert, load in row.items() if load > 0}
        # tables from before an expert went empty stay, so that its share is remembered
        none = [self.empty[expert] for expert in row if self.empty[expert]]
        if not none or len(self.past) < 4 or min(none) > 16:
            self.past = [*self.past[-15:], {expert: load / whole_load * len(row) for expert, load in row.items()}]
        return sorted(due)

    def returned(self, step: int, at: dict[str, float]) -> list[tuple[Finding, int]]:
        """What was said of experts that all have a share again, each once, and since which step they have it."""
        back = []
        for item in list(self.open):
            rows = [self.shared.get(expert, [0, step]) for expert in item[1]]
            since = max(first for _, first in rows)
            if min(count for count, _ in rows) >= at["back"] and step - since >= at["span"]:
                self.open.remove(item)
                back.append((item[0], since))
        return back


RULES = (LoadImbalance, ExpertUtilization, RouterEntropy, DroppedTokens, RouterLosses, DeadExperts)
