"""Rules over the weights: layers that no longer train, weights that grow or are not finite, spectra.

In:   tables of gradients, updates, weights and spectra by layer, and the norm of all parameters.
Out:  findings of the family `model`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.names import is_vector
from barograph.doctor.kernel.cursor import RowCursor, half_rate, known, param_norm_of, saved_before, usual
from barograph.doctor.kernel.curve import between
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import TableReader, block_of, in_order, role_of, shown
from barograph.doctor.rules.activations.groups import why_never

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.tables import LayerRound, LayerTable


class FrozenLayers(Rule):
    """Layers that were trained no longer are, while the others still train.

    A layer is out of training in a table of gradients if it has no row or its norm is exactly zero, and in a table of
    updates if the step did not move it at all. Layers that were there in each of the last five tables (at least), and
    are out in two in a row, while most others are in, make a finding; where they or another block were out and came
    back before, as where an optimizer makes one of several steps or blocks are left out by chance, in twice as many
    tables as then and two more. It is a warning for layers of one block or more than one parameter, an info finding for
    one alone, for experts, which may have got no token, and for updates of 16-bit weights, which may be rounded away.
    Layers that never were in training are frozen on purpose, or not: one info finding names them.

    What to do: check what sets `requires_grad`, detaches a tensor or leaves out a module from that step on.
    """

    name, family, kind, severity = "frozen_layer", "model", "frozen", "warning"
    needs = ("gradients/*/norm|updates/*/ratio",)
    least = 5
    about = "Some layers no longer train while others do."
    sources = ("SageMaker Debugger: AllZero", "stability guide: problem 4", "TrainCheck", "mmpretrain#702")
    thresholds: ClassVar = {
        "tables": (2.0, "in a row; ours"),
        "before": (5.0, "tables with it before; ours"),
        "others": (0.2, "share of layers that must be in training; ours"),
    }

    def reset(self) -> None:
        self._reader = TableReader()
        self._states: dict[str, _Training] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        news = []
        for family, quantity in (("gradients", "norm"), ("updates", "ratio")):
            for table, item in self._reader.new(history, family, quantity):
                news.append((item.segment, item.time, item.step, family, table, item))
        for _, _, _, family, table, item in sorted(news, key=lambda new: new[:4]):  # as they came
            yield from self._look(history, self._states.setdefault(family, _Training()), family, table, item)

    def _look(
        self, history: RunHistory, state: _Training, family: str, table: LayerTable, current: LayerRound
    ) -> Iterator[Finding]:
        names = table.names[: len(current.value)]
        state.grow(len(names))
        if current.segment != state.segment:
            state.begin(current.segment)
        state.there |= current.there
        state.rounds += 1
        absent = ~current.there | (current.value == 0.0)
        moving = int((~absent).sum())
        if moving < max(1, self.at["others"] * int(state.there.sum())):
            return  # the whole model stands still: other rules say so
        out_now = absent & (state.trained >= self.at["before"])
        state.out[~absent], state.since[~absent] = 0, 0
        fresh = out_now & (state.out == 0)
        state.since[fresh] = current.step
        state.out[out_now] += 1
        state.trained[~absent] += 1
        state.ever |= ~absent
        state.longest = numpy.where(absent, state.longest, numpy.maximum(state.longest, state.gap))
        state.gap = numpy.where(absent & state.ever, state.gap + 1, 0)
        state.trained[absent & ~out_now] = 0
        if state.rounds > self.at["before"] and family == "gradients" and not state.told_never:
            state.told_never = True
            never = [names[at] for at in numpy.flatnonzero(state.there & ~state.ever) if not _is_expert(names[at])]
            if never:
                yield self.finding(
                    current.step, f"No gradient reaches {shown(never)} since the start.", severity="info",
                    key="start",
                    found=current.step, segment=current.segment,
                    evidence={"layers": in_order(never)[:8], "count": len(never)},
                    causes=why_never(never), confidence=0.3,
                )  # fmt: skip
        due = out_now & (state.out >= int(self.at["tables"]) + 2 * state.longest)
        if due.any():  # rare
            longest = numpy.maximum(state.longest, _left_out(names, state.longest))
            due = out_now & (state.out == int(self.at["tables"]) + 2 * longest)
        if not due.any():
            return
        if family == "updates" and known(history.role("lr"), current.step - 1, current.time, current.segment) == 0:
            return  # a learning rate of zero moves nothing
        groups: dict[str, list[str]] = {}
        for at in numpy.flatnonzero(due):
            groups.setdefault(block_of(names[at]), []).append(names[at])
        began = {name: int(state.since[at]) for at, name in enumerate(names) if due[at]}
        for block, some in groups.items():
            if any(block in other.said for other in self._states.values()):
                continue
            state.said.add(block)
            first = min(began[name] for name in some)
            half = known(history.channel("model/half_parameters"), current.step, current.time, current.segment) > 0
            rounded = half and family == "updates"  # they have a gradient: the other table says so where they have not
            serious = len([name for name in some if not _is_expert(name)]) > 1 and not rounded
            what = "no longer gets a gradient" if family == "gradients" else "no longer changes"
            yield self.finding(
                first, f"{shown(some)} {what} since about step {first}, while other layers are trained.",
                key=block,
                severity="warning" if serious else "info", found=current.step, segment=current.segment,
                evidence={"layers": in_order(some)[:8], "count": len(some), "seen_in": family},
                causes=[_ROUNDED] if rounded else _CUT,
                remedies=[f"check what sets `requires_grad` or detaches a tensor of {block} at step {first}",
                          *saved_before(history, first)], confidence=0.85 if serious else 0.3,
            )  # fmt: skip


_CUT = ["layer frozen: no gradient is asked for, or the path to it is cut", "gradients vanish"]
_ROUNDED = "updates lost in rounding: they are below half a unit in the last place of 16-bit weights"


class _Training:
    """For each layer of a table: in how many tables in a row it was trained, and for how many it is out."""

    def __init__(self) -> None:
        self.trained = numpy.zeros(0, numpy.int64)
        self.out = numpy.zeros(0, numpy.int64)
        self.since = numpy.zeros(0, numpy.int64)
        self.gap, self.longest = numpy.zeros(0, numpy.int64), numpy.zeros(0, numpy.int64)  # tables without it in a row
        self.there, self.ever = numpy.zeros(0, bool), numpy.zeros(0, bool)  # in any table, and trained in any
        self.segment, self.rounds = -1, 0
        self.told_never = False
        self.said: set[str] = set()

    def grow(self, count: int) -> None:
        more = count - len(self.trained)
        if more > 0:
            self.trained, self.out, self.since, self.gap, self.longest = (
                numpy.concatenate([item, numpy.zeros(more, numpy.int64)])
                for item in (self.trained, self.out, self.since, self.gap, self.longest)
            )
            self.there, self.ever = (
                numpy.concatenate([item, numpy.zeros(more, bool)]) for item in (self.there, self.ever)
            )

    def begin(self, segment: int) -> None:
        self.segment, self.rounds = segment, 0
        for item in (self.trained, self.out, self.since, self.gap, self.longest, self.there, self.ever):
            item[:] = 0
        self.said.clear()


def _left_out(names: Sequence[str], longest: NDArray[Any]) -> int:
    """The most tables in a row that a whole block was out and came back: blocks may be left out by chance."""
    blocks: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if not _is_expert(name):
            blocks.setdefault(block_of(name), []).append(int(longest[at]))
    return max((min(some) for some in blocks.values() if len(some) > 1), default=0)


def _is_expert(name: str) -> bool:
    return "expert" in name.lower()


class WeightNonFinite(Rule):
    """A weight or a moment of the optimizer is NaN or infinite.

    No later step mends that: each forward pass through it is lost. It is critical at once. Only a checkpoint from
    before helps.
    """

    name, family, kind, severity = "weight_non_finite", "model", "nonfinite", "critical"
    prompt = True
    needs = ("=model/param_norm|param_norm|weights/*/nan|optimizer/*/non_finite",)
    about = "Weights or optimizer state are NaN or infinite."
    sources = ("SageMaker Debugger: ExplodingTensor",)
    thresholds: ClassVar = {"count": (0.0, "of elements; any one is too many")}
    causes = ("non-finite gradient: a step was taken with it", "overflow in a layer", "learning rate too high")

    def reset(self) -> None:
        self._reader, self._cursor = TableReader(), RowCursor()
        self._finite: dict[str, bool] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for channel in (param_norm_of(history), history.channel("model/non_finite_weights")):
            rows = self._cursor.new(channel)
            if rows is None or channel is None:
                continue
            counts = channel.name.endswith("weights")
            bad = rows.value > self.at["count"] if counts else ~numpy.isfinite(rows.value)
            good = self._finite.get(channel.name, counts)
            earlier = numpy.concatenate([[-1], numpy.where(bad, rows.segment, -1)[:-1]])
            for at in numpy.flatnonzero(bad & (rows.segment != earlier)):  # the first of a stretch
                if good or bool((~bad[:at]).any()):  # a column that never was a number was not logged
                    yield from self._say(
                        history,
                        "count" if counts else "norm",
                        int(rows.step[at]),
                        int(rows.time[at]),
                        int(rows.segment[at]),
                        [],
                    )
            self._finite[channel.name] = good or bool((~bad).any())
        bad_ones: list[tuple[int, int, int, str, str, list[str]]] = []
        for family, quantity in (("weights", "nan"), ("weights", "inf"), ("optimizer", "non_finite")):
            for table, item in self._reader.new(history, family, quantity):
                names = [table.names[at] for at in numpy.flatnonzero(item.value > self.at["count"])]
                if names:
                    bad_ones.append((item.segment, item.time, item.step, family, quantity, in_order(names)))
        for segment, time, step, family, _, names in sorted(bad_ones):
            yield from self._say(history, family, step, time, segment, names)

    def _say(
        self, history: RunHistory, what: str, step: int, time: int, segment: int, names: list[str]
    ) -> Iterator[Finding]:
        if not self.first(segment, what):
            return
        things = "moments of the optimizer" if what == "optimizer" else "weights"
        where = f" of {shown(names)}" if names else ""
        rate = half_rate(history, step, time, segment)
        yield self.finding(
            step, f"Some {things}{where} are not finite at step {step}.", segment=segment, key=what, confidence=0.95,
            evidence={"layers": in_order(names)[:8], "count": len(names)},
            remedies=[*saved_before(history, step), "skip steps whose gradient is not finite", rate],
        )  # fmt: skip


_LEARNT = 0.8  # of the loss beside the table before


class WeightNormGrowth(Rule):
    """Weights grow suddenly.

    The stability guide: a norm that is more than ten times what it was, or layers whose norms diverge by more than a
    thousand times, are red flags. Here: a layer's norm is ten times that of its table before, or the norm of all
    parameters is by half or more above its highest so far, with the same parameters trained: a warning. Where two
    players' norms come by turns, each has been seen; where all layers grow so, and the loss loses a fifth meanwhile,
    small ones have learnt: an info finding. The ratio of a layer's norm to its first one, largest over smallest of all
    matrices, above 1000: a warning. Growth of the norm of all parameters by 10% in 1,000 steps is usual
    in the first tenth of a training and an info finding later.
    """

    name, family, kind, severity = "weight_norm_growth", "model", "weight_growth", "warning"
    needs = ("=model/param_norm|param_norm|weights/*/norm|updates/*/weight_norm",)
    least = 2
    about = "Weights grow suddenly, or layers' norms diverge."
    sources = ("stability guide: sudden spikes above 10 times, divergence above 1000 times",)
    thresholds: ClassVar = {
        "sudden": (10.0, "stability guide"),
        "apart": (1000.0, "stability guide"),
        "step": (1.5, "all parameters, in one row; ours"),
        "trend": (0.10, "in 1,000 steps; ours"),
    }

    def reset(self) -> None:
        self._reader, self._cursor = TableReader(), RowCursor()
        self._before: dict[str, Any] = {}
        self._first: dict[str, Any] = {}
        self._lost: dict[str, float] = {}  # the loss beside the newest table of a family and segment
        self._said: set[tuple[Any, ...]] = set()
        self._last = self._most = math.nan  # the newest norm, and the highest of its segment
        self._most_of = -1
        self._rows, self._segment, self._last_step = 0, -1, -1
        self._older = -1, math.nan  # the row before the newest one
        self._mark: tuple[int, float] | None = None

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows = self._cursor.new(param_norm_of(history))
        if rows is not None:
            yield from self._whole(history, rows)
        news = []
        for family, quantity in (("updates", "weight_norm"), ("weights", "norm")):
            for table, item in self._reader.new(history, family, quantity):
                news.append((item.segment, item.time, item.step, family, table, item))
        for _, _, _, family, table, item in sorted(news, key=lambda new: new[:4]):  # as they came
            yield from self._layers(history, family, table, item)

    def _whole(self, history: RunHistory, rows: ChannelRows) -> Iterator[Finding]:
        before = self._highest_before(rows)
        values = numpy.concatenate([[self._last], rows.value])
        segments = numpy.concatenate([[self._segment], rows.segment[:-1]])
        with numpy.errstate(invalid="ignore", over="ignore"):
            jump = (rows.value > self.at["step"] * before) & (before > 0) & numpy.isfinite(rows.value)
        jump &= segments == rows.segment
        for at in numpy.flatnonzero(jump):
            if self._rows + at < 8 or ("step", int(rows.segment[at])) in self._said:
                continue
            since = int(rows.step[at - 1]) if at else self._last_step
            older = self._older if at < 2 else (int(rows.step[at - 2]), float(rows.value[at - 2]))
            older = (self._last_step, self._last) if at == 1 else older
            course = (float(values[at]) - older[1]) / max(1, since - older[0])
            if 0 < float(rows.value[at]) - float(values[at]) <= 3 * course * (int(rows.step[at]) - since):
                continue  # it grew all along: the looks are far apart
            trained = history.channel("model/trained_elements")
            if len(between(trained, since + 1, int(rows.step[at]) + 1, int(rows.segment[at]))):
                continue  # the norm is of other parameters too: layers were unfrozen
            self._said.add(("step", int(rows.segment[at])))
            step, segment, time = int(rows.step[at]), int(rows.segment[at]), int(rows.time[at])
            last = float(values[at])
            yield self.finding(
                step, f"The norm of all parameters grows from {last:.3g} to {float(rows.value[at]):.3g} "
                f"at one step, {step}.", key="step", segment=segment, evidence={"norm": float(rows.value[at]),
                "norm_before": last},
                causes=["learning rate too high", "clipping off"], confidence=0.8,
                remedies=[half_rate(history, step, time, segment), *saved_before(history, step)],
            )  # fmt: skip
        yield from self._trend(rows)
        self._rows += len(rows)
        if len(rows) > 1:
            self._older = int(rows.step[-2]), float(rows.value[-2])
        else:
            self._older = self._last_step, self._last
        self._last, self._segment = float(values[-1]), int(rows.segment[-1])
        self._last_step = int(rows.step[-1])

    def _highest_before(self, rows: ChannelRows) -> NDArray[numpy.float64]:
        """The highest norm of the segment before each row, NaN before its first."""
        found = numpy.empty(len(rows))
        for segment in numpy.unique(rows.segment):
            own = rows.segment == segment
            known = self._most if segment == self._most_of else math.nan
            values = numpy.where(numpy.isfinite(rows.value[own]), rows.value[own], math.nan)
            highest = numpy.fmax.accumulate(numpy.concatenate([[known], values]))
            found[own] = highest[:-1]
            self._most, self._most_of = float(highest[-1]), int(segment)
        return found

    def _trend(self, rows: ChannelRows) -> Iterator[Finding]:
        """Compared with marks 1,000 steps and 100 rows apart, from step 10,000 on."""
        if int(rows.step[-1]) < 10_000 or ("trend", int(rows.segment[-1])) in self._said:
            return
        for at in numpy.flatnonzero((rows.step >= 10_000) & (rows.step % 1000 < 16)):
            step, value = int(rows.step[at]), float(rows.value[at])
            if self._mark is not None and step < self._mark[0] + 990 and step >= self._mark[0]:
                continue
            if self._mark is not None and 0 < step - self._mark[0] < 2000 and self._mark[1] > 0:
                growth = value / self._mark[1] - 1
                if self.at["trend"] < growth < math.inf and ("trend", int(rows.segment[at])) not in self._said:
                    self._said.add(("trend", int(rows.segment[at])))
                    yield self.finding(
                        self._mark[0], f"The norm of all parameters grew by {growth:.0%} in 1,000 steps.",
                        severity="info",
                        found=step, segment=int(rows.segment[at]), key="trend", confidence=0.3,
                        evidence={"growth": growth}, causes=["learning rate too high", "weight decay too low"],
                    )  # fmt: skip
            self._mark = (step, value)

    def _layers(self, history: RunHistory, family: str, table: LayerTable, current: LayerRound) -> Iterator[Finding]:
        names = table.names[: len(current.value)]
        key = f"{family} {current.segment}"
        before, first = self._before.get(key), self._first.get(key)
        loss = usual(history.role("loss"), current.step, current.time, current.segment, 4)
        learns, self._lost[key] = loss < _LEARNT * self._lost.get(key, math.nan), loss
        self._before = {name: value for name, value in self._before.items() if name.split()[0] != family} | {
            key: current.value
        }
        extended = current.value.copy()
        if first is not None:
            extended[: len(first)] = numpy.where(numpy.isfinite(first), first, extended[: len(first)])
        if first is None or len(first) < len(current.value) or not numpy.isfinite(first).all():
            self._first = {name: value for name, value in self._first.items() if name.split()[0] != family} | {
                key: extended
            }
            first = extended
        if before is None:
            return
        use = numpy.array([not is_vector(name) for name in names], bool)
        earlier = numpy.full(len(current.value), numpy.nan)
        earlier[: len(before)] = before[: len(current.value)]
        with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # a layer that began at zero grows to the size of the others: that is not a problem
            use &= numpy.isfinite(current.value)
            sudden = use & (current.value > self.at["sudden"] * earlier) & (earlier > 1e-6)
            whole = bool(sudden.all(where=use))
            others, usual_norm = use & (earlier > 0), earlier if whole else current.value  # which grow as well
            others &= whole | ~sudden
            sudden &= current.value > 3 * (numpy.median(usual_norm[others]) if others.any() else math.inf)
            large = first > 0.1 * numpy.median(first[use & (first > 0)]) if (use & (first > 0)).any() else use & False
            growth = numpy.where(use & large, current.value / first, numpy.nan)
        rate = half_rate(history, current.step, current.time, current.segment)
        if sudden.any() and ("sudden", current.segment) not in self._said:
            self._said.add(("sudden", current.segment))
            some = [names[at] for at in numpy.flatnonzero(sudden)]
            worst = float(numpy.nanmax(current.value[sudden] / earlier[sudden]))
            yield self.finding(
                current.step, f"The weights of {shown(some)} are {worst:.3g} times as large as at the table before.",
                key="sudden", segment=current.segment, evidence={"layers": in_order(some)[:8], "ratio": worst},
                confidence=0.8, severity="info" if whole and learns else "warning",
                causes=["learning rate too high", "clipping off"],
                remedies=[rate, *saved_before(history, current.step)],
            )  # fmt: skip
        growth = growth[numpy.isfinite(growth) & (growth > 0)]
        if (
            len(growth) > 1
            and growth.max() > self.at["apart"] * growth.min()
            and ("apart", current.segment) not in self._said
        ):
            self._said.add(("apart", current.segment))
            yield self.finding(
                current.step, f"Layers' weight norms diverge: some grew {float(growth.max()):.3g} times, some "
                f"{float(growth.min()):.3g}.",
                key="apart", segment=current.segment, evidence={"largest": float(growth.max()),
                "smallest": float(growth.min())},
                causes=["weight decay too high", "learning rate too high"][:: 1 if growth.max() < 2 else -1],
                remedies=[rate],
                confidence=0.6,
            )  # fmt: skip


class SpectralChange(Rule):
    """A weight matrix loses its rank, or its largest singular value grows without bound.

    The stable rank is (Frobenius norm / spectral norm)². An info finding is made where it falls below a tenth of its
    first value and below 2, in three tables in a row; and where the spectral norm is ten times that of the median of
    its role. If the loss is above what it was sixteen rows before as well, it warns.
    """

    name, family, kind, severity = "spectral_change", "model", "weight_growth", "warning"
    needs = ("spectral/*/norm|spectral/*/stable_rank",)
    least = 3
    about = "A weight matrix loses rank, or its spectral norm grows without bound."
    thresholds: ClassVar = {
        "rank": (2.0, "ours"),
        "share": (0.1, "of the first; ours"),
        "ratio": (10.0, "of the role's; ours"),
    }
    causes = ("learning rate too high", "attention temperature")

    def reset(self) -> None:
        self._reader = TableReader()
        self._first: dict[str, float] = {}
        self._row: dict[str, list[int]] = {}
        self._said: set[str] = set()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for table, item in self._reader.new(history, "spectral", "stable_rank"):
            for at in numpy.flatnonzero(item.there & numpy.isfinite(item.value)):
                name, rank = table.names[at], float(item.value[at])
                first = self._first.setdefault(name, rank)
                low = rank < self.at["rank"] and rank < self.at["share"] * first
                text = f"The stable rank of {name} has fallen from {first:.3g} to {rank:.3g}."
                yield from self._note(history, f"rank {name}", low, item, text, {"stable_rank": rank, "first": first})
        for table, item in self._reader.new(history, "spectral", "norm"):
            names = table.names[: len(item.value)]
            roles: dict[str, list[float]] = {}
            for at in numpy.flatnonzero(item.there & numpy.isfinite(item.value)):
                roles.setdefault(role_of(names[at]), []).append(float(item.value[at]))
            for at in numpy.flatnonzero(item.there & numpy.isfinite(item.value)):
                of_role, value = roles[role_of(names[at])], float(item.value[at])
                usual_of = float(numpy.median(of_role))
                high = len(of_role) > 2 and value > self.at["ratio"] * usual_of > 0
                text = f"The spectral norm of {names[at]} is {value:.3g}, of similar layers {usual_of:.3g}."
                yield from self._note(
                    history, f"norm {names[at]}", high, item, text, {"norm": value, "median_of_role": usual_of}
                )

    def _note(
        self,
        history: RunHistory,
        key: str,
        high: bool,
        current: LayerRound,
        text: str,
        evidence: dict[str, Any],
    ) -> Iterator[Finding]:
        self._row[key] = [*self._row.get(key, []), current.step] if high else []
        if len(self._row[key]) != 3 or key in self._said:
            return
        self._said.add(key)
        loss = history.role("loss")
        now = usual(loss, current.step, current.time, current.segment, 8)
        before = usual(loss, self._row[key][0], current.time, current.segment, 16)
        worse = now > 1.05 * before > 0
        yield self.finding(
            self._row[key][0], text, severity="warning" if worse else "info", found=current.step,
            key=key,
            segment=current.segment, evidence=evidence,
            remedies=[half_rate(history, current.step, current.time, current.segment)],
            confidence=0.6 if worse else 0.3,
        )  # fmt: skip


RULES = (FrozenLayers, WeightNonFinite, WeightNormGrowth, SpectralChange)
