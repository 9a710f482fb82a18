"""Graphs that are kept from step to step: memory grows with each.

In:   what the watch saw of earlier steps' graphs (`model/graphs_kept`, `model/evaluated_graphs_kept`,
      `model/averages_with_graph`).
Out:  findings of `KeptGraph`, `EvaluatedGraph`, `AverageGraph`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class KeptGraph(WatchRule):
    """The graphs of earlier steps stay in memory.

    The watch knows when autograd's graph of a step is gone: as a rule when the next step's output takes the place of
    its own. Where the graphs of 20 steps in a row are all there, behind a collection of garbage
    (`model/graphs_kept`), something keeps a loss or an output of each step with its graph: a sum of losses, a list of
    outputs, or of what a layer gives. Behind a backward pass the graph's large tensors are gone, and memory grows
    slowly; without one, fast.

    What to do: `loss.item()`, or `detach()`, in what is kept.
    """

    name, family, kind, severity = "kept_graph", "memory", "memory", "warning"
    series = "model/graphs_kept"
    needs = ("=model/graphs_kept",)
    least = 1
    about = "The graphs of earlier steps stay in memory."
    thresholds: ClassVar = {"steps": (20.0, "in a row; ours")}
    causes = ("graph kept: a loss or an output of each step is kept without `detach()`, so that memory grows",)
    remedies = ("keep numbers: `total += loss.item()`, `losses.append(loss.detach())`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.at["steps"] <= value < math.inf and self.first(place[2]):
            yield self.finding(
                max(0, place[0] - round(value)), f"The graphs of the {value:.0f} steps before step {place[0]} are all "
                "in memory.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"count": value, "standing": True},
            )  # fmt: skip


class EvaluatedGraph(WatchRule):
    """What evaluations compute with gradients stays in memory.

    Between steps in training mode the watch hears passes with gradients through layers in evaluation mode, and those of
    the model's copies, as of an average. Where the graphs of three such evaluations in a row are all there when the
    next one is over, behind a collection of garbage (`model/evaluated_graphs_kept`), something keeps what they gave,
    and no backward pass has taken the large tensors away.

    What to do: `torch.no_grad()` around evaluations; `detach()` in what is kept.
    """

    name, family, kind, severity = "evaluated_graph", "memory", "memory", "warning"
    series = "model/evaluated_graphs_kept"
    needs = ("=model/evaluated_graphs_kept",)
    least = 1
    about = "What evaluations compute with gradients stays in memory."
    thresholds: ClassVar = {"evaluations": (3.0, "in a row, beside the newest; ours")}
    causes = ("no_grad missing: what evaluations compute is kept with its graph, so that memory grows with each",)
    remedies = ("`with torch.no_grad():` around evaluations, features and outputs that are kept included",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.at["evaluations"] <= value < math.inf and self.first(place[2]):
            since = watched(history, "evaluated_graphs_since", place)
            yield self.finding(
                round(since) if 0 <= since < place[0] else place[0],
                f"The graphs of {value:.0f} evaluations before step {place[0]} are all in memory.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"count": value, "standing": True},
            )  # fmt: skip


class AverageGraph(WatchRule):
    """An average of the weights is taken with gradients, and keeps the graph of each update.

    Behind the 20th step the process's tensors are looked at once. One that is the end of a graph of nothing but sums
    and products of parameters, ten sums long or more, is an average of weights that is taken with gradients
    (`model/averages_with_graph`): its graph grows by each update, and is never used.

    What to do: `torch.no_grad()` around the update of an average.
    """

    name, family, kind, severity = "average_graph", "memory", "memory", "warning"
    series = "model/averages_with_graph"
    needs = ("=model/averages_with_graph",)
    least = 1
    about = "An average of the weights keeps the graph of each update."
    causes = ("no_grad missing: an average of the weights is taken with gradients, and its graph grows",)
    remedies = ("update the average under `torch.no_grad()`, from `parameter.detach()`",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if 1 <= value < math.inf and self.first(place[2]):
            yield self.finding(
                0, f"The average of the weights keeps the graph of each update, in {value:.0f} tensors.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"count": value, "standing": True},
            )  # fmt: skip


RULES = (KeptGraph, EvaluatedGraph, AverageGraph)
