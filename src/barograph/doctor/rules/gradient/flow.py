"""Rules over gradients by layer: vanishing, exploding and spread over the depth, single layers that jump.

In:   `gradients/{layer}/norm` at intervals, and the model's figures of flow.
Out:  findings of the family `gradient`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.names import is_vector
from barograph.doctor.kernel import depth
from barograph.doctor.kernel.cursor import RowCursor, came_by, known
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import TableReader, block_of, in_order, largest_of, median_of, shown

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.tables import LayerRound, LayerTable


def _flow(table: LayerTable, current: LayerRound) -> dict[str, float]:
    """`flow_spread` and `flow_first_last` of a table, for runs whose watch has not written them."""
    blocks: dict[str, float] = {}
    norms = []
    for name, norm, there in zip(table.names, current.value.tolist(), current.there.tolist(), strict=False):
        if not there or not 0 < norm < numpy.inf or is_vector(name):
            continue
        norms.append(norm)
        if (block := block_of(name)) != name:
            blocks[block] = math.hypot(blocks.get(block, 0.0), norm)
    found = {"flow_spread": max(norms) / min(norms)} if norms else {}
    ordered = in_order(blocks)
    if len(ordered) > 1:
        found["flow_first_last"] = blocks[ordered[0]] / blocks[ordered[-1]]
    return found


class VanishingGradient(Rule):
    """Gradients get smaller and smaller on their way to the first layers.

    Of all weight matrices the median gradient norm of the third with the smallest is compared with that of the third
    with the largest, and the first block's norm with the last block's. Below 1% from first to last block is an info
    finding (stability guide). Below one thousandth, with a norm of the smallest third below 1e-4, in five tables in a
    row over 64 steps, is a warning (AutoTrainer's numbers). Layers without a gradient, or with one that is exactly
    zero, are frozen and count nowhere. Adapters and gates that begin at zero have such gradients for some steps only.
    Where a reward is logged, and the smallest are all of one network and the largest of another, as of an actor and its
    critic, nothing is said: each has a loss of its own.

    What to do: residual connections, normalisation before each block, another initialisation, no saturating
    functions.
    """

    name, family, kind, severity = "vanishing_gradient", "gradient", "vanishing", "warning"
    needs = ("gradients/*/norm|=model/flow_first_last",)
    least = 3
    about = "The first layers' gradients are far smaller than the last layers'."
    sources = ("stability guide: first layer below 1% of the last", "AutoTrainer: ratio below 1e-3 and norm below 1e-4")
    thresholds: ClassVar = {
        "informs": (0.01, "stability guide"),
        "ratio": (depth.RATIO, "AutoTrainer"),
        "norm": (1e-4, "AutoTrainer"),
        "tables": (5.0, "in a row; ours"),
        "steps": (64.0, "ours"),
    }

    def reset(self) -> None:
        self._reader, self._cursor = TableReader(), RowCursor()
        self._low: list[tuple[int, float, float]] = []
        self._blocks: list[int] = []
        self._segment = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for table, item in self._reader.new(history, "gradients", "norm"):
            yield from self._table(history, table, item)
        flow = self._cursor.new(history.channel("model/flow_first_last"))
        if flow is not None:
            with numpy.errstate(invalid="ignore"):
                low = (flow.value < self.at["informs"]) & (flow.value > 0)
            for at in range(len(flow)) if low.any() or self._blocks else ():
                yield from self._block(int(flow.step[at]), float(flow.value[at]), int(flow.segment[at]))

    def _block(self, step: int, ratio: float, segment: int) -> Iterator[Finding]:
        self._blocks = [*self._blocks, step] if 0 < ratio < self.at["informs"] else []
        if len(self._blocks) == 3 and self.first(segment, "blocks"):
            yield self.finding(
                self._blocks[0], f"The first block's gradient is {ratio:.3g} of the last block's.",
                severity="info", found=step, key="blocks", segment=segment, evidence={"ratio": ratio},
                causes=[depth.CAUSE], remedies=["look at gradients by layer"], confidence=0.4,
            )  # fmt: skip

    def _table(self, history: RunHistory, table: LayerTable, current: LayerRound) -> Iterator[Finding]:
        if not came_by(history.channel("model/flow_first_last"), current.time):
            ratio = _flow(table, current).get("flow_first_last", numpy.nan)
            yield from self._block(current.step, ratio, current.segment)
        if current.segment != self._segment:
            self._segment, self._low = current.segment, []
        use = current.there & numpy.isfinite(current.value) & (current.value > 0)
        use &= numpy.array([not is_vector(name) for name in table.names[: len(use)]], bool)
        norms = numpy.sort(current.value[use])
        third = len(norms) // 3
        if not third:
            return
        first, last = float(numpy.median(norms[:third])), float(numpy.median(norms[-third:]))
        if not (first < self.at["ratio"] * last and first < self.at["norm"]):
            self._low = []
            return
        self._low = [*self._low[:1], *self._low[1:][-8:], (current.step, first, last)]
        lasted = len(self._low) >= self.at["tables"] and current.step - self._low[0][0] >= self.at["steps"]
        if lasted and self.first(current.segment, "layers"):
            names = [table.names[at] for at in numpy.flatnonzero(use) if current.value[at] <= norms[third - 1]]
            others = [table.names[at] for at in numpy.flatnonzero(use) if current.value[at] >= norms[-third]]
            if history.role("reward") is not None and _apart(names, others):
                self._low = []
                return
            yield self.finding(
                self._low[0][0], f"Gradients vanish: {first:.3g} in a third of the layers, {last:.3g} in "
                "another.",
                found=current.step, segment=current.segment, key="layers", confidence=0.8,
                evidence={"smallest_third": first, "largest_third": last, "ratio": first / last},
                causes=_why(history, current, names),
                remedies=list(depth.REMEDIES),
            )  # fmt: skip


def _apart(names: list[str], others: list[str]) -> bool:
    """Whether these layers are of one network and the others of another, as actor and critic are: each has a loss of
    its own, and nothing goes from one to the other."""
    parts = {name.partition(".")[0] for name in names}
    return len(parts) == 1 and len(names) > 1 and parts.isdisjoint(name.partition(".")[0] for name in others)


def _why(history: RunHistory, current: LayerRound, names: list[str]) -> list[str]:
    """Why these layers' gradients are small."""
    cut = known(history.channel("model/detached"), current.step, current.time, current.segment) > 0
    experts = sum("expert" in name.lower() for name in names)
    causes = {
        "router collapsed: most experts get next to no gradient": 2 * experts > len(names),
        "graph cut: the forward pass detaches a tensor, and layers before it are reached another way": cut,
        depth.CAUSE: True,
        "bad initialisation": True,
    }
    return [cause for cause, holds in causes.items() if holds]


class GradientSpread(Rule):
    """Gradient norms of layers lie far apart, or grow towards the first block.

    The stability guide warns where they differ by more than 100 times over the depth, AutoTrainer where the first
    block's is more than 70 times the last's. Biases and norms' scales have other norms than matrices in every healthy
    model, and optimizers with a second moment compensate for it, so this is an info finding: once, after three tables
    in a row.
    """

    name, family, kind, severity = "gradient_spread", "gradient", "exploding", "info"
    needs = ("=model/flow_spread|=model/flow_first_last|gradients/*/norm",)
    least = 3
    about = "Gradient norms differ widely between layers."
    sources = ("stability guide: 100 times", "AutoTrainer: 70 times from the last block to the first")
    thresholds: ClassVar = {"spread": (100.0, "stability guide"), "ratio": (70.0, "AutoTrainer")}

    def reset(self) -> None:
        self._reader, self._cursor = TableReader(), RowCursor()
        self._high: dict[str, list[int]] = {"flow_spread": [], "flow_first_last": []}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channels = {name: history.channel(f"model/{name}") for name in self._high}
        for table, item in self._reader.new(history, "gradients", "norm"):
            if not any(came_by(channel, item.time) for channel in channels.values()):
                for name, value in _flow(table, item).items():
                    yield from self._look(name, item.step, value, item.segment)
        for name, channel in channels.items():
            rows = self._cursor.new(channel)
            if rows is None:
                continue
            with numpy.errstate(invalid="ignore"):
                high = rows.value > self._limit(name)
            for at in range(len(rows)) if high.any() or self._high[name] else ():
                yield from self._look(name, int(rows.step[at]), float(rows.value[at]), int(rows.segment[at]))

    def _limit(self, name: str) -> float:
        return self.at["spread" if name == "flow_spread" else "ratio"]

    def _look(self, name: str, step: int, value: float, segment: int) -> Iterator[Finding]:
        if self._high[name][-1:] == [step]:
            return  # the table and its own series, of one step
        self._high[name] = [*self._high[name][-3:], step] if value > self._limit(name) else []
        if len(self._high[name]) >= 3 and self.first(segment, name):
            what = f"The first block's gradient is {value:.3g} times the last block's."
            if name == "flow_spread":
                what = f"The largest gradient norm of a layer is {value:.3g} times the smallest."
            yield self.finding(
                self._high[name][0], what, found=step, key=name,
                segment=segment, evidence={"ratio": value, "bound": self._limit(name)}, confidence=0.2,
            )  # fmt: skip


class LayerGradientSpike(Rule):
    """One layer's gradient jumps while the others' do not.

    More than five times the median of its last 16 tables (Surogate's factor), and more than eight robust
    deviations of its logarithm, in at most a quarter of the layers. It is an info finding: the layer to check when the
    loss jumps.
    """

    name, family, kind, severity = "layer_gradient_spike", "gradient", "spike", "info"
    needs = ("gradients/*/norm",)
    least = 12
    about = "The gradient norm of a single layer jumps."
    sources = (
        "AdaGC: per tensor, against its moving average",
        "Surogate metrics guide: above 5 times the moving average",
    )
    thresholds: ClassVar = {
        "ratio": (5.0, "Surogate metrics guide, AdaGC"),
        "z": (8.0, "ours"),
        "share": (0.25, "of the layers at most; ours"),
    }
    causes = ("bad batch", "learning rate too high")

    def reset(self) -> None:
        self._reader = TableReader()
        self._said: dict[str, int] = {}

    def examine(self, history: RunHistory) -> Iterable[Finding]:
        found = [self._look(table, item) for table, item in self._reader.new(history, "gradients", "norm")]
        return [item for item in found if item is not None]

    def _look(self, table: LayerTable, current: LayerRound) -> Finding | None:
        before: Any = table.before(current, 16)
        if len(before) < 10:
            return None
        with numpy.errstate(divide="ignore", invalid="ignore"):
            logs, now = numpy.log(before), numpy.log(current.value)
            logs[~numpy.isfinite(logs)] = numpy.nan
            middle = median_of(logs)
            spread = numpy.maximum(1.4826 * median_of(numpy.abs(logs - middle)), 0.02)
            rise = now - middle
            high = numpy.flatnonzero(
                (rise > numpy.log(self.at["ratio"])) & (rise > self.at["z"] * spread) & (now < 700)
            )
        if not len(high) or len(high) > self.at["share"] * current.there.sum():
            return None
        worst = high[largest_of(rise[high], [table.names[at] for at in high])]
        layer = table.names[worst]
        if self._said.get(layer, -(10**9)) > current.number - 16:
            return None
        self._said[layer] = current.number
        ratio = float(numpy.exp(min(rise[worst], 700.0)))
        names = [table.names[at] for at in high]
        return self.finding(
            current.step, f"The gradient of {shown(names)} is {ratio:.3g} times its usual norm at step {current.step}.",
            key=layer,
            segment=current.segment, evidence={"layers": in_order(names)[:5], "ratio": ratio}, confidence=0.3,
        )  # fmt: skip


class ZeroLayers(Rule):
    """Gradients are computed for most layers, and are exactly zero.

    Half of the weight matrices or more have a gradient whose norm is exactly zero, the same in each of three tables in
    a row, as those of several tasks that take turns are not, while some layer's is not: no gradient passes through the
    units before the last layers, because they are inactive or multiplied by zero. Layers for which no gradient is asked
    have no row and don't count; nor do experts without a token. Gates and adapters that begin at zero let gradients
    through after their first step.

    What to do: look at the initialisation (biases far below zero before a rectifier, a scale of zero), and at masks.
    """

    name, family, kind, severity = "zero_layers", "gradient", "dead", "warning"
    needs = ("gradients/*/norm",)
    least = 3
    about = "Most layers' gradients are exactly zero."
    sources = ("SageMaker Debugger: AllZero", "AutoTrainer: 70% without a gradient")
    thresholds: ClassVar = {"share": (0.5, "of the weight matrices; ours"), "tables": (3.0, "in a row; ours")}
    causes = ("bad initialisation: units are inactive", "gradients vanish", "layer frozen")
    remedies = (
        "look at biases before rectifiers, scales and masks at the start",
        "use an activation function with a gradient below zero (GELU, SiLU, leaky ReLU)",
    )

    def reset(self) -> None:
        self._reader = TableReader()
        self._row: list[tuple[int, frozenset[str]]] = []  # steps of tables, with the layers that are zero there
        self._segment = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for table, item in self._reader.new(history, "gradients", "norm"):
            if item.segment != self._segment:
                self._segment, self._row = item.segment, []
            zero = item.there & (item.value == 0.0)
            if not zero.any() or zero.sum() == item.there.sum():
                self._row = []
                continue
            names = table.names[: len(item.value)]
            use = item.there & numpy.array(
                [not is_vector(name) and "expert" not in name.lower() for name in names], bool
            )
            share = float(zero[use].mean()) if use.sum() > 2 else 0.0
            here = frozenset(names[at] for at in numpy.flatnonzero(zero & use))
            self._row = [*self._row[-7:], (item.step, here)] if share >= self.at["share"] else []
            tables = int(self.at["tables"])
            always = frozenset.intersection(*(layers for _, layers in self._row[-tables:])) if self._row else here
            same = len(always) >= self.at["share"] * use.sum()
            if len(self._row) >= tables and same and self.first(item.segment):
                some = [name for name in names if name in always]
                share = len(some) / float(use.sum())
                yield self.finding(
                    self._row[0][0], f"The gradients of {share:.0%} of the weight matrices are exactly zero: "
                    f"{shown(some)}.",
                    found=item.step, segment=item.segment, confidence=0.8,
                    evidence={"share": share, "layers": in_order(some)[:8]},
                    )  # fmt: skip


RULES = (VanishingGradient, ZeroLayers, GradientSpread, LayerGradientSpike)
