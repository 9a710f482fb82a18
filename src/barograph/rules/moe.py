"""Rules over routers of a mixture of experts: balance, collapse, dead experts, dropped tokens, their losses.

In:   the series `moe/{figure}` and each expert's load, `moe/{layer}/load/{expert}`.
Out:  findings of the family `moe`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.rules.cursor import Cursor, known, number, numeric_setting, saved_before, whole
from barograph.rules.rule import Rule
from barograph.rules.tables import Table, shown

if TYPE_CHECKING:
    from barograph.rules.channels import Channel, Rows, Seen
    from barograph.rules.finding import Finding
    from barograph.rules.tables import Round


class _Bounded(Rule):
    """A figure beyond a bound, row after row.

    `rows` rows in a row, over `steps` steps at least, and no better at their end than at their beginning by more than
    a twentieth: a router that begins unbalanced and is being mended is left alone.
    """

    series: tuple[str, ...] = ()
    sign = 1  # +1: too much is wrong, -1: too little
    levels: tuple[tuple[str, str], ...] = ()  # threshold, severity; the mildest first

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._cursor = Cursor()
        self._open: dict[str, list[tuple[int, float]]] = {}
        self._segment = -1
        self._said: set[tuple[int, str]] = set()

    def examine(self, seen: Seen) -> Iterable[Finding]:
        channel = next((one for one in map(seen.channel, self.series) if one is not None), None)
        rows = self._cursor.new(channel)
        if rows is None or channel is None:
            return ()
        mild = self.at[self.levels[0][0]]
        with numpy.errstate(invalid="ignore"):
            bad = rows.value > mild if self.sign > 0 else rows.value < mild
        if not bad.any() and not self._open:
            return ()
        found: list[Finding] = []
        for at in range(len(rows)):
            if rows.segment[at] != self._segment:
                self._segment, self._open = int(rows.segment[at]), {}
            if bad[at] or self._open:
                self._row(seen, channel, rows, at, found)
        return found

    def _row(self, seen: Seen, channel: Channel, rows: Rows, at: int, found: list[Finding]) -> None:
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
            first = sum(one for _, one in run[:3]) / len(run[:3])
            last = sum(one for _, one in run[-3:]) / 3
            if (last < 0.95 * first) if self.sign > 0 else (last > 1.05 * first):
                continue  # it is being mended
            self._said.add((self._segment, level))
            found.append(self._say(seen, level, severity, run[0][0], step, last, int(rows.segment[at])))

    def _within(self, level: str, value: float) -> bool:
        """Whether one row on the good side is noise: less than a tenth from the bound."""
        bound = self.at[level]
        return value > 0.9 * bound if self.sign > 0 else value < 1.1 * bound

    def _say(self, seen: Seen, level: str, severity: str, began: int, step: int, value: float, segment: int) -> Finding:
        raise NotImplementedError


class LoadImbalance(_Bounded):
    """One expert gets far more tokens than the mean.

    `load_imbalance` is the largest load over the mean; `max_violation` is one less. S0 warns above 3, R27 above a
    violation of 2, which is the same, and calls 4 critical: so does a value above 5 here. It has to last for 100
    steps and eight rows, and must not be getting better.

    What to do: raise the coefficient of the balance loss, or use a bias that balances without a loss.
    """

    name, family, kind, severity = "load_imbalance", "moe", "routing", "critical"
    needs = ("=moe/load_imbalance|=moe/max_violation",)
    least = 8
    about = "One expert gets far more tokens than the mean."
    source = "S0: load_imbalance above 3; R27: MaxVio above 2 and 4 for 100 steps (loss-free balancing)"
    thresholds: ClassVar = {
        "warns": (3.0, "S0, R27"),
        "critical": (5.0, "R27"),
        "rows": (8.0, "ours"),
        "steps": (100.0, "R27"),
    }
    series = ("moe/load_imbalance",)
    levels = (("warns", "warning"), ("critical", "critical"))

    def _say(self, seen: Seen, level: str, severity: str, began: int, step: int, value: float, segment: int) -> Finding:
        return self.finding(
            began, f"The busiest expert gets {number(value)} times the mean load, since step {began}.",
            severity=severity,
            last_step=step, found=step, key=level, segment=segment, evidence={"load_imbalance": value},
            causes=_COLLAPSED,
            remedies=_balance(seen, began), confidence=0.8,
        )  # fmt: skip


_COLLAPSED = ["router collapsed: a few experts get nearly all tokens", "learning rate too high", "no z-loss"]


def _balance(seen: Seen, step: int) -> list[str]:
    now = numeric_setting(seen, "aux_coefficient", "router_aux_loss_coef", "aux_loss_coef", "moe_aux_loss_coeff",
                          "aux_loss_weight", "load_balance_coefficient")  # fmt: skip
    first = (f"raise the coefficient of the balance loss, it is {number(now)}" if now > 0 else
             "add a balance loss with a coefficient of 0.01" if now == 0 else "raise the coefficient of the balance "
             "loss")  # fmt: skip
    return [first, "add a z-loss of 0.001 on the router's logits", *saved_before(seen, step)]


class ExpertUtilization(_Bounded):
    """Many experts get no token at all.

    Below one half for 50 steps and eight rows, without getting better, warns (S0); below one quarter is critical.
    S0's best practice of 0.7 is a remark.
    """

    name, family, kind, severity = "expert_utilization", "moe", "routing", "critical"
    needs = ("=moe/expert_utilization",)
    least = 8
    about = "Many experts get no token at all."
    source = "S0: expert_utilization below 0.5; keep it above 0.7; R28"
    thresholds: ClassVar = {"informs": (0.7, "S0"), "warns": (0.5, "S0, R28"), "critical": (0.25, "ours"),
        "rows": (8.0, "ours"),
                  "steps": (50.0, "ours")}  # fmt: skip
    series, sign = ("moe/expert_utilization",), -1
    levels = (("informs", "info"), ("warns", "warning"), ("critical", "critical"))

    def _say(self, seen: Seen, level: str, severity: str, began: int, step: int, value: float, segment: int) -> Finding:
        return self.finding(
            began, f"Only {value:.0%} of the experts get tokens, since step {began}.", severity=severity,
            last_step=step,
            found=step, key=level, segment=segment, evidence={"expert_utilization": value}, causes=_COLLAPSED,
            remedies=_balance(seen, began), confidence=0.3 if severity == "info" else 0.85,
        )  # fmt: skip


class RouterEntropy(_Bounded):
    """The router has made up its mind.

    Its entropy over the logarithm of the number of experts: 1 is undecided, 0 is certain. Below one half informs
    (R29): many good routers end there. Below 0.05, in all layers' mean, warns: nothing is left to learn from.
    """

    name, family, kind, severity = "router_entropy", "moe", "routing", "warning"
    needs = ("=moe/router_entropy",)
    least = 8
    about = "The router has made up its mind."
    source = "R29: below half of the logarithm of the number of experts; 0.05 ours"
    thresholds: ClassVar = {
        "informs": (0.5, "R29"),
        "warns": (0.05, "ours"),
        "rows": (8.0, "ours"),
        "steps": (100.0, "R27"),
    }
    series, sign = ("moe/router_entropy",), -1
    levels = (("informs", "info"), ("warns", "warning"))

    def _say(self, seen: Seen, level: str, severity: str, began: int, step: int, value: float, segment: int) -> Finding:
        return self.finding(
            began, f"The router's entropy is {number(value)} of its most, since step {began}.", severity=severity,
            last_step=step, found=step, key=level, segment=segment, evidence={"router_entropy": value},
            causes=_COLLAPSED,
            remedies=_balance(seen, began), confidence=0.3 if severity == "info" else 0.7,
        )  # fmt: skip


class DroppedTokens(_Bounded):
    """Experts are full, and tokens pass them by.

    More than 5% informs: capacities near 1 drop as many by design. More than 30% for 100 steps warns.
    """

    name, family, kind, severity = "dropped_tokens", "moe", "routing", "warning"
    needs = ("=moe/dropped_fraction",)
    least = 8
    about = "Experts are full, and tokens pass them by."
    source = "R29: above 5%; 30% ours"
    thresholds: ClassVar = {
        "informs": (0.05, "R29"),
        "warns": (0.30, "ours"),
        "rows": (8.0, "ours"),
        "steps": (100.0, "R27"),
    }
    series = ("moe/dropped_fraction",)
    levels = (("informs", "info"), ("warns", "warning"))

    def _say(self, seen: Seen, level: str, severity: str, began: int, step: int, value: float, segment: int) -> Finding:
        return self.finding(
            began, f"{value:.0%} of the tokens' choices are dropped, since step {began}.", severity=severity,
            last_step=step,
            found=step, key=level, segment=segment, evidence={"dropped_fraction": value}, causes=_COLLAPSED[:1],
            remedies=["raise the capacity factor", *_balance(seen, began)[:1]],
            confidence=0.3 if severity == "info" else 0.7,
        )  # fmt: skip


class RouterLosses(Rule):
    """A router's own loss is far above what it was, or above what is usual.

    S0 calls an auxiliary loss above 1 and a z-loss above 0.1 signs of trouble. Both scale with their coefficients and
    the number of layers, so the bounds inform. Ten times the median of the last 64 rows (16 at least), eight rows in
    a row, warns. A token whose router logit is not finite is critical.
    """

    name, family, kind, severity = "router_losses", "moe", "routing", "critical"
    needs = ("=moe/aux_loss|=moe/z_loss|=moe/non_finite_tokens",)
    least = 1
    about = "A router's own loss is far above what it was."
    source = "S0: aux_loss above 1.0, z_loss above 0.1; R29: ten times its median"
    thresholds: ClassVar = {
        "aux_loss": (1.0, "S0"),
        "z_loss": (0.1, "S0"),
        "ratio": (10.0, "R29"),
        "rows": (8.0, "ours"),
    }

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._cursor = Cursor()
        self._past: dict[str, list[float]] = {}
        self._run: dict[str, list[int]] = {}
        self._said: set[tuple[int, str]] = set()
        self._segments: dict[str, int] = {}

    def examine(self, seen: Seen) -> Iterable[Finding]:
        found: list[Finding] = []
        for name in ("aux_loss", "z_loss"):
            rows = self._cursor.new(seen.channel(f"moe/{name}"))
            for at in range(len(rows)) if rows is not None else ():
                self._row(seen, name, rows, at, found)  # type: ignore[arg-type]
        rows = self._cursor.new(seen.channel("moe/non_finite_tokens"))
        for place in numpy.flatnonzero(rows.value > 0) if rows is not None else ():
            assert rows is not None
            at = int(place)
            segment, step = int(rows.segment[at]), int(rows.step[at])
            if (segment, "tokens") not in self._said:
                self._said.add((segment, "tokens"))
                found.append(self.finding(
                    step, f"{whole(float(rows.value[at]))} tokens have a router logit that is not finite at step "
                    f"{step}.", kind="nonfinite",
                    segment=segment, key="tokens", evidence={"tokens": float(rows.value[at])}, confidence=0.95,
                    causes=["overflow in a layer", "learning rate too high", "no z-loss"], remedies=saved_before(seen,
                    step),
                ))  # fmt: skip
        return found

    def _row(self, seen: Seen, name: str, rows: Rows, at: int, found: list[Finding]) -> None:
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
            if len(run) == int(self.at["rows"]) and (segment, f"{name} ratio") not in self._said:
                self._said.add((segment, f"{name} ratio"))
                found.append(self.finding(
                    run[0], f"The router's {name} is {number(value / usual)} times its usual {number(usual)} since "
                    f"step {run[0]}.",
                    severity="warning", last_step=step, found=step, segment=segment, key=f"{name} ratio",
                    confidence=0.7,
                    evidence={name: value, "usual": usual}, causes=_COLLAPSED, remedies=_balance(seen, run[0]),
                ))  # fmt: skip
            return
        run.clear()
        past.append(value)
        del past[:-64]
        if len(past) >= 8 and sorted(past[-8:])[4] > self.at[name] and (segment, name) not in self._said:
            self._said.add((segment, name))
            found.append(self.finding(
                step, f"The router's {name} is {number(value)}, above {number(self.at[name])}.", severity="info",
                segment=segment,
                key=name, evidence={name: value}, causes=_COLLAPSED, remedies=_balance(seen, step), confidence=0.3,
            ))  # fmt: skip


_LOAD = re.compile(r"moe/(?P<layer>.+)/load/(?P<expert>\d+)$")


class DeadExpert(Rule):
    """An expert gets no token any more, or never did.

    The loads of a layer's experts come together. An expert without a token in five tables in a row, over at least 50
    steps, is dead if it had a share before (at least a tenth of an even one, in the median of its last 16 tables): a
    warning after three tables then, since chance does not do that to an expert with so many tokens. One that never
    had any after 100 steps is dead as well. If half of a layer's experts are dead it is critical. An expert that lost
    its load at once is masked; by and by, or with half of the others, is how a router's collapse leaves it.

    What to do: raise the balance loss; see whether a mask or a bias keeps the expert out.
    """

    name, family, kind, severity = "dead_expert", "moe", "dead_expert", "critical"
    needs = ("moe/*",)
    least = 3
    about = "An expert gets no token."
    source = "R28: no token for 100 steps; tables ours"
    thresholds: ClassVar = {"tables": (3.0, "without a token, for an expert that had its share; ours"),
                  "share": (0.1, "of an even share that it had before; ours"), "steps": (100.0, "R28")}  # fmt: skip

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._names = -1
        self._tables: dict[str, Table] = {}
        self._next: dict[str, int] = {}
        self._states: dict[str, _Loads] = {}

    def examine(self, seen: Seen) -> Iterable[Finding]:
        if len(seen.channels) != self._names:
            self._names = len(seen.channels)
            for name in seen.channels:
                if name.startswith("moe/") and (match := _LOAD.match(name)) and match["layer"] not in self._tables:
                    layer = match["layer"]
                    self._tables[layer] = Table(lambda seen, layer=layer: _loads(seen, layer))  # type: ignore[misc]
        found: list[Finding] = []
        for layer, table in self._tables.items():
            table.extend(seen)
            first = self._next.get(layer, 0)
            if table.count != first:
                self._next[layer] = table.count
                for one in table.rounds(first):
                    self._look(seen, layer, table.names, one, found)
        return found

    def _look(self, seen: Seen, layer: str, names: list[str], one: Round, found: list[Finding]) -> None:
        state = self._states.get(layer)
        if state is None or state.segment != one.segment:
            state = self._states[layer] = _Loads(one.segment, one.step)
        row = {int(name): float(load) for name, load, there in zip(names, one.value, one.there, strict=False) if there}
        whole_load = sum(row.values())
        if not 0 < whole_load < 1e15 or not all(load >= 0 for load in row.values()):
            return
        dead = state.add(row, one.step, self.at)
        loss = known(seen.role("loss"), one.step, one.time, one.segment)
        if dead and (math.isfinite(loss) or seen.role("loss") is None):  # where all is NaN, loads mean nothing
            found.append(self._say(seen, layer, dead, state, one.step, one.segment))

    def _say(self, seen: Seen, layer: str, dead: list[int], state: _Loads, step: int, segment: int) -> Finding:
        began = min(state.since[at] for at in dead)
        state.said.update(dead)
        share = len(state.said) / state.size
        never = [at for at in dead if at not in state.had]
        causes = ["expert dead: nothing is routed to it", *_COLLAPSED[:1]]
        if share >= 0.5 or any(state.faded(at) for at in dead):
            causes.reverse()
        text = (f"Expert {shown([str(at) for at in dead])} of {layer} "
            f"{'never got' if len(never) == len(dead) else 'gets no'} "
                f"token{' any more' if not never else ''} since step {began}.")  # fmt: skip
        return self.finding(
            began, text, severity="critical" if share >= 0.5 else "warning", last_step=step, found=step,
            segment=segment,
            key=f"{layer} {dead[0]}", evidence={"layer": layer, "experts": dead[:16], "dead_share": share},
            causes=causes,
            remedies=["see whether a mask or a bias keeps it out", *_balance(seen, began)], confidence=0.85,
        )  # fmt: skip


def _loads(seen: Seen, layer: str) -> dict[str, Channel]:
    head = f"moe/{layer}/load/"
    return {name[len(head) :]: channel for name, channel in seen.channels.items()
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

    @property
    def size(self) -> int:
        return max(1, len(self.empty))

    def faded(self, expert: int) -> bool:
        """Whether its load had gone down by half before it was none: a mask takes all at once, a router by and by."""
        shares = [one[expert] for one in self.past if one.get(expert, 0.0) > 0]
        return len(shares) >= 4 and max(shares[-2:]) < 0.5 * sorted(shares)[len(shares) // 2]

    def add(self, row: dict[int, float], step: int, at: dict[str, float]) -> list[int]:
        """The experts that this table shows to be dead, each once."""
        due = []
        whole_load = sum(row.values())
        for expert, load in row.items():
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
            shares = sorted(one[expert] for one in self.past if expert in one)
            lost = len(shares) >= 4 and shares[len(shares) // 2] > at["share"]
            if lost or (step - self.since[expert] >= at["steps"] and empty >= 5):
                due.append(expert)
        self.had |= {expert for expert, load in row.items() if load > 0}
        # tables from before an expert went empty stay, so that its share is remembered
        none = [self.empty[expert] for expert in row if self.empty[expert]]
        if not none or len(self.past) < 4 or min(none) > 16:
            self.past = [*self.past[-15:], {expert: load / whole_load * len(row) for expert, load in row.items()}]
        return sorted(due)


RULES = (LoadImbalance, ExpertUtilization, RouterEntropy, DroppedTokens, RouterLosses, DeadExpert)
