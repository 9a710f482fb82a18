"""Graphs that are kept from step to step: memory grows with each.

In:   what the watch saw of earlier steps' graphs (`model/graphs_kept`, `model/averages_with_graph`).
Out:  findings of `KeptGraph`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import RowCursor
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_KEEPS = {
    "graphs_kept": (
        "graph kept: a loss or an output of each step is kept without `detach()`, so that memory grows",
        "keep numbers: `total += loss.item()`, `losses.append(loss.detach())`",
    ),
    "averages_with_graph": (
        "no_grad missing: an average of the weights is taken with gradients, and keeps the graph of each update",
        "update the average under `torch.no_grad()`, from `parameter.detach()`",
    ),
}


class KeptGraph(Rule):
    """The graphs of earlier steps stay in memory.

    The watch knows when autograd's graph of a step is gone: as a rule when the next step's output takes the place of
    its own. Where the graphs of 20 steps in a row are all there, behind a collection of garbage
    (`model/graphs_kept`), something keeps a loss or an output of each step with its graph: a sum of losses, a list of
    outputs. Behind a backward pass the graph's large tensors are gone, and memory grows slowly; without one, fast.

    Behind the 20th step the process's tensors are looked at once. One that is the end of a graph of nothing but sums
    and products of parameters, ten sums long or more, is an average of weights that is taken with gradients
    (`model/averages_with_graph`): its graph grows by each update, and is never used.

    What to do: `loss.item()`, or `detach()`, in what is kept; `torch.no_grad()` around the update of an average.
    """

    name, family, kind, severity = "kept_graph", "memory", "memory", "warning"
    needs = ("=model/graphs_kept|=model/averages_with_graph",)
    least = 1
    about = "The graphs of earlier steps stay in memory."
    thresholds: ClassVar = {"steps": (20.0, "in a row; ours")}

    def reset(self) -> None:
        self._cursor = RowCursor()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for name, (cause, remedy) in _KEEPS.items():
            rows = self._cursor.new(history.channel(f"model/{name}"))
            for at in range(len(rows) if rows is not None else 0):
                assert rows is not None
                step, segment, count = int(rows.step[at]), int(rows.segment[at]), int(rows.value[at])
                few = name == "graphs_kept" and count < self.at["steps"]
                if few or not self.first(name, segment):
                    continue
                what = (
                    f"The graphs of the {count} steps before step {step} are all in memory"
                    if name == "graphs_kept"
                    else f"{count} averages of weights keep the graph of each update" if count > 1
                    else "An average of weights keeps the graph of each update"
                )  # fmt: skip
                yield self.finding(
                    max(0, step - count) if name == "graphs_kept" else 0, f"{what}.", key=name, found=step,
                    segment=segment, confidence=0.95, causes=[cause], remedies=[remedy],
                    evidence={"count": count, "standing": True},
                )  # fmt: skip


RULES = (KeptGraph,)
