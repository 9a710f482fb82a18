"""One optimizer step as a watch saw it: what was measured, until it has arrived from the device.

In:   columns of figures and pending statistics, put in by the hooks of a step.
Out:  numbers by family, once everything is there. One transfer a device for all columns together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.objective import Squared
    from barograph.probes.model.parameters import Owned
    from barograph.probes.stats.statistics import PendingStatistics, Statistics

    Floats = np.ndarray[Any, np.dtype[np.float64]]


def finite_of(numbers: Mapping[str, Any], *families: str) -> dict[str, float]:
    """Figures of these families of a step, each with its name, when they have arrived; not those that say nothing."""
    found: dict[str, float] = {}
    for family in families:
        names, values = numbers.get(family, ((), ((),)))
        found |= {name: float(value) for name, value in zip(names, values[0], strict=True) if math.isfinite(value)}
    return found


class Arrival:
    """A tensor on its way to the CPU."""

    def __init__(self, tensor: Tensor):
        self._host = tensor.detach().to("cpu", non_blocking=True)  # into pinned memory
        self._event: Any = None
        if tensor.device.type != "cpu":
            import torch

            stream = getattr(getattr(torch, tensor.device.type), "current_stream", None)
            if stream is not None:
                self._event = stream(tensor.device).record_event()

    def ready(self) -> bool:
        """Whether it is there."""
        return self._event is None or bool(self._event.query())

    def numbers(self) -> Floats:
        """It; waits where it is not there."""
        if self._event is not None:
            self._event.synchronize()
        result: Floats = self._host.double().numpy()
        return result


class RoundPart(NamedTuple):
    """Statistics of some layers. `scale`: what the values have to be multiplied with, where the loss was scaled."""

    family: str
    names: tuple[str, ...]
    pending: PendingStatistics
    ways: tuple[Any, ...]


class ModelColumn(NamedTuple):
    """Figures [c, n] of n layers."""

    family: str
    names: tuple[str, ...]
    values: Any
    ways: tuple[Any, ...]


class ModelRound:
    """One step. Its `step` may be set right as long as nothing was written."""

    def __init__(self, step: int, due: frozenset[str], rests: bool = False):
        self.step, self.due, self.rests = step, due, rests  # rests: it is not looked at
        self.begun: set[int] = set()  # optimizers, by id
        self.stepped: set[int] = set()
        self.parts: list[RoundPart] = []
        self.columns: list[ModelColumn] = []
        self.backwards = 0  # passes that added up their gradients
        self.rates: list[tuple[Owned, list[float | None]]] = []  # of each optimizer, its groups' learning rates
        self.travel: list[tuple[Owned, tuple[float, ...]]] = []  # of Adam's kind: the sum of each group's rates so far
        self.present: set[str] = set()  # layers that had a gradient
        self.absent: set[str] = set()  # other layers of the optimizers that step
        self.sampled: set[str] = set()  # layers of whose update a part is known
        self.unchanged: set[str] | None = None  # layers with a gradient that the step did not touch
        self.loose = 0  # layers with a gradient and without an optimizer; the column `same` says whether they stayed
        self.differences = False  # whether the loss is of sizes of differences, and of no classes
        self.squared: Squared | None = None  # of a loss that is a mean square
        self.figures: dict[str, Any] = {}
        self.costs: dict[str, float] = {}
        self.merged: list[tuple[str, tuple[str, ...], Statistics]] = []
        self.events: list[tuple[str, Any, Any]] = []  # family, and its begin and end on the device
        self.exchanged = False  # whether sharded figures were put together …
        self.waits = False  # … and whether that is still to come
        self.step_seconds = math.nan  # from the end of the step before to the end of this one, without the watch
        self.besides = 0.0  # seconds of the watch beside those of its families
        self.routers: Any = None  # of a mixture of experts: figures of the model, and by layer
        self.router_layers: Any = None
        self._arrivals: list[tuple[list[ModelColumn], Arrival]] = []

    @cached_property
    def learning(self) -> dict[str, float]:
        """Learning rates by layer, where they are known without waiting for a device."""
        found: dict[str, float] = {}
        for own, rates in self.rates:
            for name, number in zip(own.names, own.groups, strict=True):
                if (rate := rates[number]) is not None:
                    found[name] = rate
        return found

    def put(self, family: str, names: tuple[str, ...], values: Tensor, ways: tuple[Any, ...] = ()) -> None:
        """Add figures [c, n] or [n]."""
        self.columns.append(ModelColumn(family, names, values.reshape(-1, max(1, len(names))), ways))

    def suspect(self, found: tuple[int, Tensor] | None) -> None:
        """This many parameters are in no optimizer, and whether some of them are what they were."""
        if found is not None:
            self.loose = found[0]
            self.put("same", tuple(map(str, range(len(found[1])))), found[1])

    def stale(self, added: bool, left: Iterable[Tensor]) -> None:
        """An optimizer's gradients were added to those of the step before, if one of these numbers is not 0."""
        self.figures["stale_gradients"] = max(float(added), self.figures.get("stale_gradients", 0.0))
        for one in left:
            self.put("stale_left", ("",), one)

    def judge(self, still: list[str] | None) -> None:
        """The step has left these as they were: that is wrong where there is a gradient and a learning rate."""
        if still is not None:
            self.unchanged = {name for name in still if name in self.present and self.learning.get(name, 1.0) > 0}

    def cost(self, family: str, seconds: float) -> None:
        """Looking at a family took so long."""
        self.costs[family] = self.costs.get(family, 0.0) + seconds

    def adds_nothing_to(self, before: Mapping[str, Any]) -> bool:
        """Whether it has no figure but zeros that the last step with a record had too."""
        if self.due or self.columns or self.parts or self.loose or self.unchanged:
            return False
        if self.unchanged is not None and before.get("unchanged") != 0:
            return False
        return all(value == before.get(name) == 0 for name, value in self.figures.items())

    def send(self) -> None:
        """Start the transfer of all columns: one for each device."""
        import torch

        for device in dict.fromkeys(column.values.device for column in self.columns):
            some = [column for column in self.columns if column.values.device == device]
            wide = torch.float32 if device.type == "mps" else torch.float64
            pack = torch.cat([column.values.to(wide).reshape(-1) for column in some])
            self._arrivals.append((some, Arrival(pack)))
        self.columns = []

    def ready(self) -> bool:
        """Whether everything has arrived."""
        if self.waits and not self.exchanged:
            return False
        arrived = all(arrival.ready() for _, arrival in self._arrivals)
        timed = all(last.query() for _, _, last in self.events)
        return arrived and timed and all(part.pending.ready() for part in self.parts)

    def numbers(self) -> dict[str, tuple[tuple[str, ...], Floats]]:
        """All columns by family: the names [n] and the figures [c, n] of all optimizers together."""
        found: dict[str, list[tuple[tuple[str, ...], Floats]]] = {}
        for columns, arrival in self._arrivals:
            values, at = arrival.numbers(), 0
            for column in columns:
                size = column.values.numel()
                table = values[at : at + size].reshape(column.values.shape)
                found.setdefault(column.family, []).append((column.names, table))
                at += size
        return {
            family: (
                tuple(name for names, _ in several for name in names),
                several[0][1] if len(several) == 1 else np.concatenate([table for _, table in several], axis=1),
            )
            for family, several in found.items()
        }

    def statistics(self, family: str) -> list[tuple[tuple[str, ...], Statistics]]:
        """The statistics of a family, of all optimizers; those put together over ranks where there are such."""
        if self.exchanged:
            return [(names, found) for known, names, found in self.merged if known == family]
        return [(part.names, part.pending.result()) for part in self.parts if part.family == family]
