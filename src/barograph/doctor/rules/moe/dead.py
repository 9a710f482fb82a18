"""Experts of a mixture that get no tokens any more.

In:   each expert's load, `moe/{layer}/load/{expert}`.
Out:  findings of `DeadExperts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import LayerTable, shown
from barograph.doctor.kernel.wording import Case
from barograph.doctor.rules.moe.moe import BALANCE, COLLAPSED, balance_loss

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.tables import LayerRound

_LOAD = expression(r"moe/(?P<layer>.+)/load/(?P<expert>\d+)$")


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
            remedies=("check whether a mask or a bias excludes it", *BALANCE), confidence=0.85,
        ),
        "back": Case(
            "Expert {experts_shown} of {layer} got no token from step {step} on, and has a share again since step "
            "{back}.",
            remedies=BALANCE[:2], severity="info", confidence=0.5,
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
                      **balance_loss(history)},
            )  # fmt: skip

    def _say(self, history: RunHistory, layer: str, dead: list[int], state: _Loads, step: int, segment: int) -> Finding:
        began = min(state.since[at] for at in dead)
        state.said.update(dead)
        share = len(state.said) / state.size
        never = [at for at in dead if at not in state.had]
        causes = ["expert dead: nothing is routed to it", *COLLAPSED[:1]]
        if share >= 0.5 or any(state.faded(at) for at in dead):
            causes.reverse()
        gets = (
            "never got a token" if len(never) == len(dead) else "gets no token" if never else "no longer gets a token"
        )
        finding = self.say(
            "dead", history, began, severity="critical" if share >= 0.5 else "warning", found=step, segment=segment,
            key=f"{layer} {dead[0]}", evidence={"layer": layer, "experts": dead[:16], "dead_share": share},
            also={"experts_shown": shown([str(at) for at in dead]), "gets": gets, **balance_loss(history)},
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


RULES = (DeadExperts,)
