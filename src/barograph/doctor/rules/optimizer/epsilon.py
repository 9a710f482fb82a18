"""Adam's epsilon, beside the gradients that it is added to.

In:   the optimizer's state by layer, the watch's figures of each step.
Out:  findings of `EpsilonDominates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.names import is_vector
from barograph.doctor.kernel import depth
from barograph.doctor.kernel.cursor import RowCursor, known, numeric_setting
from barograph.doctor.kernel.curve import between
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import TableReader, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.tables import LayerRound

_CLIPPED = "clip value too low: what is left of the gradients is below epsilon"


class EpsilonDominates(Rule):
    """Adam's epsilon is larger than the gradients it is added to, so that it shrinks the updates.

    For each layer the share of elements whose sqrt(v̂) is below epsilon is measured, of those whose gradient is not
    exactly 0 (`gradients/*/zeros`), as it is of weights that are pruned. Where it is above one half in
    most weight matrices, embeddings left out (rows of unused tokens have no gradient), in two tables in a row, Adam
    has become SGD with a learning rate of lr / epsilon: a warning. A share between a tenth and one half of the layers
    is an info finding. Where clipping leaves less than a hundredth of the gradient, that is the cause; where the first
    block's gradient is below a thousandth of the last block's, or epsilon is 1e-8 already, it is the gradients.

    Where the watch has read an epsilon above 1e-6 (`model/epsilon`), and it was more than ten times the root mean
    square of all gradients at three looks in a row, that is proof: a warning if after 64 steps the loss is still above
    two thirds of its first value.

    What to do: epsilon 1e-8, or smaller; gradients shrink with the size of model and batch.
    """

    name, family, kind, severity = "epsilon_dominates", "optimizer", "epsilon", "warning"
    needs = ("optimizer/*/below_eps|=model/epsilon",)
    least = 1
    about = "Adam's epsilon is larger than the gradients."
    sources = ("small-scale proxies: gradients that near epsilon stall", "OLMo 2: from 1e-5 to 1e-8")
    thresholds: ClassVar = {
        "elements": (0.5, "share of a layer's; ours"),
        "layers": (0.5, "share that warns; ours"),
        "some": (0.1, "share for an info finding; ours"),
        "left": (0.01, "of the gradient by clipping, which is the cause then; ours"),
        "read": (1e-6, "an epsilon that is judged by the norm of all gradients; ours"),
        "times": (10.0, "the root mean square of gradients; ours"),
        "steps": (64.0, "ours"),
        "fall": (1 / 3, "of the first loss; ours"),
    }
    causes = ("epsilon too big", "gradients vanish")

    def reset(self) -> None:
        self._reader, self._cursor = TableReader(), RowCursor()
        self._row: list[tuple[int, float]] = []
        self._segment = -1
        self._looks: list[tuple[int, int]] = []  # steps and segments at which it was larger than the gradients

    def _proven(self, history: RunHistory) -> Iterator[Finding]:
        size, read = history.channel("model/trained_elements"), history.channel("model/epsilon")
        for (step, time, segment), value in self._cursor.each(
            history.channel("model/grad_norm") if read is not None and size is not None else None
        ):
            epsilon, elements = (known(channel, step, time, segment) for channel in (read, size))
            root = value / math.sqrt(max(1.0, elements))
            if not (epsilon >= self.at["read"] and 0 < self.at["times"] * root < epsilon):
                self._looks = []
                continue
            self._looks = [look for look in self._looks if look[1] == segment] + [(step, segment)]
            began = self._looks[0][0]
            if len(self._looks) < 3 or step - began < self.at["steps"] or (segment, "read") in self._firsts:
                continue
            losses = between(history.role("loss"), began, step - 8, segment)
            first, level = (float(numpy.median(part)) if len(part) else math.nan for part in (losses[:5], losses[-16:]))
            if level > (1 - self.at["fall"]) * first > 0 and self.first(segment, "read"):
                yield self.finding(
                    began, f"Adam's epsilon is {epsilon:.3g}, the root mean square of the gradients {root:.2g}: steps "
                    f"are {epsilon / root:.2g} times shorter than the learning rate says, and the loss went from "
                    f"{first:.4g} to {level:.4g}.", found=step, segment=segment, key="read", confidence=0.95,
                    causes=[self.causes[0]], remedies=["set Adam's epsilon to 1e-8"],
                    evidence={"epsilon": epsilon, "gradient": root, "standing": True},
                )  # fmt: skip

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from self._proven(history)
        new = self._reader.new(history, "optimizer", "below_eps")
        if not new:
            return
        names_of_all = new[0][0].names
        use = numpy.array([not is_vector(name) and "emb" not in name.lower() for name in names_of_all], bool)
        for _, item in new:
            if item.segment != self._segment:
                self._segment, self._row = item.segment, []
            small_ones = self._small(history, names_of_all, item)
            values = small_ones[use[: len(item.value)] & item.there]
            if len(values) < 2:
                continue
            share = float((values > self.at["elements"]).mean())
            self._row = [*self._row[-1:], (item.step, share)] if share > self.at["some"] else []
            if len(self._row) < 2:
                continue
            least = min(item for _, item in self._row)
            level = "warning" if least > self.at["layers"] else "info"
            if not self.first(item.segment, level):
                continue
            names = [name for at, name in enumerate(names_of_all[: len(item.value)])
                     if use[at] and small_ones[at] > self.at["elements"]]  # fmt: skip
            place = item.step, item.time, item.segment
            epsilon = numeric_setting(history, "eps", "epsilon", "adam_eps", "adam_epsilon", "optimizer_eps")
            epsilon = epsilon if epsilon == epsilon else known(history.channel("model/epsilon"), *place)
            small, vanished = epsilon <= 1e-8, depth.vanishes(history, *place)
            norm, left = (known(history.channel(f"model/{name}"), *place)
                          for name in ("grad_norm_before", "clip_coefficient"))  # fmt: skip
            clipped = 0 < left < self.at["left"]
            yield self.finding(
                self._row[0][0], f"Adam's epsilon{f' ({epsilon:.3g})' if epsilon == epsilon else ''} is larger "
                f"than the gradients of {share:.0%} of the layers: {shown(names)}.", severity=level, found=item.step,
                segment=item.segment, key=level, evidence={"share_of_layers": share, "epsilon": epsilon},
                causes=[_CLIPPED, self.causes[0]] if clipped else [depth.CAUSE, self.causes[0]] if vanished else
                list(self.causes[::-1] if small else self.causes),
                remedies=[f"clip the gradient norm at {norm:.2g} or above"] if clipped else
                list(depth.REMEDIES) if vanished else
                [f"set Adam's epsilon to {epsilon / 1e4 if small else 1e-8:.3g}"],
                confidence=0.85 if level == "warning" else 0.3,
            )  # fmt: skip

    def _small(self, history: RunHistory, names: list[str], item: LayerRound) -> NDArray[numpy.float64]:
        """The share of each layer's elements below epsilon, of those that have a gradient."""
        result = numpy.array(item.value, float)
        tables = [history.layers("gradients", quantity) for quantity in ("zeros", "norm", "mean", "std")]
        for at in numpy.flatnonzero(result > self.at["elements"]):
            zeros, norm, mean, deviation = (
                known(one.get(names[at]), item.step, item.time, item.segment) for one in tables
            )
            square = mean * mean + deviation * deviation
            none = zeros * square / (norm * norm) if norm > 0 else math.nan  # norm² / square elements
            if 0 < none < 1:
                result[at] = max(0.0, (result[at] - none) / (1 - none))
        return result


RULES = (EpsilonDominates,)
