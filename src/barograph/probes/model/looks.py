"""The looks that a watch takes in a step: each reads one family of figures into the step's `ModelRound`.

In:   a round with what is due, the model's parameters and the optimizer that steps.
Out:  columns and statistics in the round; how long each family took.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from barograph.probes.model.accounts import OptimizerAccounts
from barograph.probes.model.activations import ActivationWatch
from barograph.probes.model.adapters import beside_packed, find
from barograph.probes.model.exchanges import Exchanges
from barograph.probes.model.findings import Witness
from barograph.probes.model.hooks import passes_by
from barograph.probes.model.moe import RouterWatch
from barograph.probes.model.norms import FollowedNorms, norms
from barograph.probes.model.optimizers import measure
from barograph.probes.model.parameters import Copies, Owned, local, owned, shape_of, trainable
from barograph.probes.model.rounded import RoundedCopies
from barograph.probes.model.rounds import ModelRound, RoundPart
from barograph.probes.model.schedule import WatchSchedule
from barograph.probes.model.spectral import SpectralNorms
from barograph.probes.model.updates import UpdateProbe
from barograph.probes.recording import Recording
from barograph.probes.stats import statistics as stats

_REFRESH = 10  # steps; parameters that were added or frozen are noticed within these


def clock_of(model: Any) -> Callable[[], float]:
    """Seconds by which steps and measurements are compared: the thread's processor time on the CPU, where another
    program's share of the machine lengthens a step and not a measurement; the clock where a device is waited for."""
    host = all(parameter.device.type in ("cpu", "meta") for parameter in model.parameters())
    return time.thread_time if host else time.perf_counter


class TimedActivations(ActivationWatch):
    """An activation watch that says how long its hooks took."""

    seconds = 0.0
    clock = staticmethod(time.perf_counter)

    def __deepcopy__(self, memo: Any) -> TimedActivations:
        """Copying a model copies its hooks: those stay what they are."""
        return self

    def _guard(self, name: str, look: Callable[[], Any]) -> None:
        began = self.clock()
        super()._guard(name, look)
        self.seconds += self.clock() - began


def _activations_of(model: Any, modules: Any, run: Recording) -> TimedActivations | None:
    if any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
        run.warn(
            "the activations of a compiled model are not watched: hooks would break its graph",
            key="watch no activations",
        )
        return None
    watch = TimedActivations(model, modules, warn=run.warn)
    watch.on = False
    return watch


def _event(parameters: Sequence[Any]) -> Any:
    """A moment of the device's, recorded now; None on a CPU."""
    if not parameters or not parameters[0].is_cuda:
        return None
    import torch

    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(parameters[0].device))
    return event


def prepare(parameters: Iterable[Any], given: Mapping[str, int]) -> None:
    """Have compiled now what reads tables on a device: with the first table it would hold up a step. given: intervals
    by family."""
    import torch

    wanted = [given[family] for family in ("gradients", "weights", "histograms")]
    with contextlib.suppress(Exception):  # then the first table says it
        for device, kind in {(item.device, item.dtype) for item in parameters if item.is_cuda and any(wanted)}:
            for sketch in (False, True)[: 1 + bool(wanted[-1])]:
                stats.tensor_statistics([torch.zeros(1, dtype=kind, device=device)], sketch=sketch)


def named_of_adapters(model: Any, names: Mapping[int, str]) -> set[str]:
    """The trained parameters of adapters, by their shapes. names: of trained parameters, by id."""
    ids = {id(item) for one in find(model) for item in one[1:]}
    ids |= {id(item) for one in beside_packed(model, ids) for item in (one.first, one.second)}
    return {name for parameter, name in names.items() if parameter in ids}


def _put_activations(current: ModelRound, table: Mapping[str, Mapping[str, Any]]) -> None:
    import torch

    labels = tuple(f"{layer}\n{name}" for layer, row in table.items() for name in row)
    values = [value for row in table.values() for value in row.values()]
    if values:
        home = max((value.device for value in values), key=lambda device: bool(device.type != "cpu"))
        wide = torch.float32 if home.type == "mps" else torch.float64
        column = torch.stack([value.detach().to(home, wide, non_blocking=True).reshape(()) for value in values])
        current.put("activations", labels, column)


class Looks:
    """Reads one model. `names`: of its parameters, by id. `parameters`: in the model's order."""

    def __init__(
        self,
        run: Recording,
        model: Any,
        schedule: WatchSchedule,
        memory_budget_mb: float,
        modules: Any,
        witness: Witness,
    ):
        self.names: dict[int, str] = {}
        self.parameters: tuple[Any, ...] = ()
        self._run, self._model, self._schedule, self._witness = run, model, schedule, witness
        self._limit = int(memory_budget_mb * (1 << 20))
        self._owned: dict[int, tuple[Any, Owned]] = {}
        self.copies = Copies()
        self._probes: dict[int, UpdateProbe] = {}
        self._followers: dict[int, FollowedNorms] = {}
        self._exchanges: Exchanges | None = None
        self._spectral, self._accounts, self._rounded = SpectralNorms(), OptimizerAccounts(), RoundedCopies()
        self._late = False  # no forward pass was seen before the step began
        self._scaler: Any = None  # of the step that begins
        self._left_out = 0  # steps that a scaler skipped, up to the last one that it did not
        self._routers: Any = None
        self._activations = _activations_of(model, modules, run) if schedule.given["activations"] else None
        self.clock = clock_of(model)
        if self._activations is not None:
            self._activations.clock = self.clock
        if schedule.given["moe"]:
            self._routers = RouterWatch(model, warn=run.warn)

    # -- parameters ----------------------------------------------------------------------------------------

    def refresh(self) -> dict[int, str]:
        """Look at the model again: parameters may have been added, frozen or replaced."""
        if list(self.names) == list(dict.fromkeys(id(item) for item in self._model.parameters() if item.requires_grad)):
            return self.names
        found = trainable(self._model)
        names = {id(parameter): name for name, parameter in found.items()}
        if names != self.names:
            self.names, self.parameters = names, tuple(found.values())
            self._owned.clear()
            self._followers.clear()
            for probe in self._probes.values():
                probe.drop()
            self._probes.clear()
            self._witness.follow(found, named_of_adapters(self._model, names))
            if self._exchanges is not None:
                self._exchanges.close()
            self._exchanges = Exchanges.of(self._run, found, self._schedule)
        return names

    def own(self, optimizer: Any) -> Owned:
        """The watched parameters of an optimizer."""
        shape = shape_of((optimizer,))
        known = self._owned.get(id(optimizer))
        if known is None or known[0] != shape:
            if known is not None:
                self.refresh()
            known = self._owned[id(optimizer)] = (shape, owned(optimizer, self.names))
        return known[1]

    def owners(self, optimizers: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The watched parameters of each of these optimizers."""
        return [self.own(optimizer).parameters for optimizer in optimizers]

    # -- a step ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _cost(self, current: ModelRound, family: str) -> Iterator[None]:
        began = self.clock()
        first = _event(self.parameters)
        yield
        if first is not None:
            current.events.append((family, first, _event(self.parameters)))
        current.cost(family, self.clock() - began)

    def begin(self, current: ModelRound) -> None:
        """A step's first optimizer begins."""
        if current.step % _REFRESH == 0 or "gradients" in current.due:
            self.refresh()
        if self._exchanges is not None:
            self._exchanges.begin(current)
        if self._activations is not None and "activations" in current.due:
            current.cost("activations", self._activations.seconds)
            self._activations.seconds = 0.0
            with self._cost(current, "activations"):
                self._collect_activations(current, self._activations)
        elif self._activations is not None and (found := self._activations.early()):
            _put_activations(current, {"": found})

    def _collect_activations(self, current: ModelRound, watch: ActivationWatch, last: bool = False) -> None:
        """What the forward passes left. last: of those within the step too (a closure's); no more will come."""

        table = watch.collect()
        if not last and not any(table):
            self._late = True
            return
        if not any(table):  # the model's own figures alone
            self._run.warn(
                "no activations were seen: the model is compiled, or the watched modules did not run in training mode"
                if watch.looks_at_any
                else "the model has no blocks whose activations could be watched; name modules with modules=[...]",
                key="watch no activations",
            )
        _put_activations(current, table)

    def before(self, current: ModelRound, optimizer: Any) -> None:
        """An optimizer's step begins: its gradients are what it will use."""
        own = self.own(optimizer)
        if not own.names:
            if (copies := self.copies.of(optimizer, self.names, self.parameters)).names:
                self._accounts.before(current, optimizer, copies, _rates(optimizer), watched=False)
                self._rounded.begins(current, copies.parameters, self.parameters)
            return
        gradients = [parameter.grad for parameter in own.parameters]
        current.present |= {name for name, gradient in zip(own.names, gradients, strict=True) if gradient is not None}
        if any(gradient is None for gradient in gradients):
            named = zip(own.names, own.parameters, strict=True)
            current.absent |= {name for name, parameter in named if parameter.requires_grad} - current.present
        rates = _rates(optimizer)
        # what may end its search by itself, as LBFGS within its tolerance, may leave weights as they are
        ends = ["tolerance_change" in group for group in optimizer.param_groups]
        current.rates.append((own, [0.0 if end else rate for end, rate in zip(ends, rates, strict=True)]))
        if any(ends):
            current.figures.pop("cleared_passes", None)  # each look of its search clears, on purpose
        self._accounts.before(current, optimizer, own, rates)
        scale = getattr(optimizer, "grad_scale", None)  # a fused optimizer divides by it within its step
        if current.due & {"norms", "gradients", "updates"}:
            with self._cost(current, "norms"):
                self._norms(current, optimizer, own, gradients, scale)
                if self._scaler is not None:
                    current.figures["scaler_passed_by"] = float(passes_by(self._scaler, optimizer))
        if current.due & {"gradients", "histograms"}:
            with self._cost(current, "histograms" if "histograms" in current.due else "gradients"):
                if scale is not None:
                    current.put("scale", own.names, (1.0 / scale).reshape(1).expand(len(own.names)))
                self._statistics(current, "gradients", own, gradients)
        if "updates" in current.due:
            with self._cost(current, "updates"):
                self._probe(optimizer, own).before(own.names, own.parameters)

    def count(self, current: ModelRound, optimizer: Any) -> None:
        """An optimizer's step begins, which is not looked at."""
        if self.own(optimizer).names or self.copies.of(optimizer, self.names, self.parameters).names:
            self._accounts.count(current, optimizer, _rates(optimizer))

    @property
    def can_rest(self) -> bool:
        """Whether steps may be left out: not where ranks look at each together."""
        return self._exchanges is None and self._routers is None

    def _probe(self, optimizer: Any, own: Owned) -> UpdateProbe:
        probe = self._probes.get(id(optimizer))
        if probe is None:
            whole = sum(parameter.numel() * parameter.element_size() for parameter in self.parameters)
            mine = sum(parameter.numel() * parameter.element_size() for parameter in own.parameters)
            probe = self._probes[id(optimizer)] = UpdateProbe(int(self._limit * mine / max(1, whole)))
        return probe

    def _norms(self, current: ModelRound, optimizer: Any, own: Owned, gradients: list[Any], scale: Any) -> None:
        import torch

        ways = self._ways(own)
        follower = self._followers.setdefault(id(optimizer), FollowedNorms())
        exact = bool(current.due & {"gradients", "updates", "weights", "histograms"})
        told = "most" in current.figures and not current.due & {"gradients", "updates"}  # norms after clipping follow
        # the statistics of whole gradients have their norms, those of shards as well but each rank its own
        told = told or (self._exchanges is None and bool(current.due & {"gradients", "histograms"}))
        some = [
            (place, local(gradient)) for place, gradient in enumerate(gradients) if gradient is not None and not told
        ]
        moved = norms([tensor for _, tensor in some])
        if moved.device.type == "cpu" and not math.isfinite(float(moved.sum())):
            exact = True  # which weight was it? A device reads all of them at each step
        weights = follower.squares([local(parameter) for parameter in own.parameters], current.step, exact)
        current.put("weight_squares", own.names, weights, ways)
        if told:
            return
        moved = moved.to(weights.device).square()
        if scale is not None:
            moved = moved / scale.to(moved.device, moved.dtype).square()
        if len(some) < len(own.names):
            column = torch.zeros(len(own.names), dtype=moved.dtype, device=moved.device)
            places = torch.tensor([place for place, _ in some], dtype=torch.int64)
            moved = column.index_copy_(0, places.to(moved.device, non_blocking=True), moved)
        current.put("gradient_squares", own.names, moved, ways)

    def gradient_squares(self) -> Any:
        """The squared norm of every parameter's gradient as it is now [n], 0 where there is none; None of none."""
        import torch

        some = [
            (place, local(parameter.grad))
            for place, parameter in enumerate(self.parameters)
            if parameter.grad is not None
        ]
        if not some:
            return None
        result = norms([tensor for _, tensor in some]).square()
        if len(some) == len(self.parameters):
            return result
        column = torch.zeros(len(self.parameters), dtype=result.dtype, device=result.device)
        places = torch.tensor([place for place, _ in some], dtype=torch.int64)
        return column.index_copy_(0, places.to(result.device, non_blocking=True), result)

    def put_before(self, current: ModelRound, squares: Any) -> None:
        """Squared norms from before clipping."""
        names = tuple(self.names.values())
        if len(names) == len(squares):
            ways = () if self._exchanges is None else self._exchanges.ways(names)
            current.put("before_square", names, squares, ways)

    def _ways(self, own: Owned) -> tuple[Any, ...]:
        return () if self._exchanges is None else self._exchanges.ways(own.names)

    def _statistics(self, current: ModelRound, family: str, own: Owned, tensors: list[Any]) -> None:
        """Statistics of all of them; one that is missing here stands as an empty tensor, alike on all ranks."""
        import torch

        shown = [torch.zeros(0) if tensor is None else local(tensor) for tensor in tensors]
        sketch = "histograms" in current.due
        try:
            pending = stats.tensor_statistics(shown, sketch=sketch, names=own.names)
        except (TypeError, ValueError):
            for place, (name, tensor) in enumerate(zip(own.names, shown, strict=True)):
                try:
                    stats.flatten(tensor, name)
                except (TypeError, ValueError) as error:
                    self._run.warn(f"the {family} of {name} can't be read: {error}", key=f"watch {family} {name}")
                    shown[place] = torch.zeros(0)
            pending = stats.tensor_statistics(shown, sketch=sketch, names=own.names)
        current.parts.append(RoundPart(family, own.names, pending, self._ways(own)))

    def after(self, current: ModelRound, optimizer: Any) -> None:
        """An optimizer's step is over."""
        own = self.own(optimizer)
        if not own.names:
            if (copies := self.copies.of(optimizer, self.names, self.parameters)).names:
                self._accounts.after(current, optimizer, copies)
            return
        self._accounts.after(current, optimizer, own)
        probe = self._probes.get(id(optimizer))
        if "updates" in current.due and probe is not None:
            with self._cost(current, "updates"):
                found = probe.after()
                if found is not None:
                    import torch

                    current.sampled |= found.sampled
                    both = torch.stack([found.update_squares, found.weight_squares])
                    current.put("updates", found.names, both, self._ways(own))
        if current.due & {"weights", "histograms"}:
            with self._cost(current, "histograms" if "histograms" in current.due else "weights"):
                self._statistics(current, "weights", own, list(own.parameters))
        if "optimizer_state" in current.due:
            with self._cost(current, "optimizer_state"):
                states = measure(optimizer, own)
                if states is not None:
                    current.put("optimizer_state", states.names, states.columns, self._ways(own))

    def freed(self, current: ModelRound, parameter: Any, gradient: Any) -> None:
        """A gradient that will be gone when backward is over."""
        name = self.names.get(id(parameter))
        if name is None:
            return
        current.present.add(name)
        with self._cost(current, "gradients"):
            own = Owned((name,), (parameter,), (0,))
            current.put("gradient_squares", own.names, norms([local(gradient)]).square())
            self._statistics(current, "gradients", own, [gradient])

    def note(self, current: ModelRound, norm: Any, most: float | None) -> None:
        """The loop's own norm before clipping."""
        import torch

        if hasattr(norm, "full_tensor"):
            norm = norm.full_tensor()
        tensor = norm.detach().reshape(1) if isinstance(norm, torch.Tensor) else torch.tensor([float(norm)])
        current.put("noted_norm", ("",), tensor)
        if most is not None:
            current.figures["most"] = float(most)

    def scaled(self, current: ModelRound, scaler: Any, skipped: int, steps: bool = True) -> None:
        """What a GradScaler multiplies the loss with, and how many of the loop's steps it left out so far. steps: it
        does not leave out this one."""
        if steps and skipped != self._left_out:  # the passes of such a step are cleared on purpose
            current.figures.pop("cleared_passes", None)
            self._left_out = skipped
        self._scaler, scale = scaler, getattr(scaler, "_scale", None)
        if scale is not None:
            current.put("loss_scale", ("",), scale.detach().reshape(1).clone())
        current.figures["skipped_steps"] = skipped

    def end(self, current: ModelRound) -> None:
        """All optimizers have stepped."""
        if self._late and self._activations is not None:
            self._late = False
            with self._cost(current, "activations"):
                self._collect_activations(current, self._activations, last=True)
        if "spectral" in current.due:
            with self._cost(current, "spectral"):
                found = self._spectral.update({self.names[id(parameter)]: parameter for parameter in self.parameters})
                if found.names:
                    import torch

                    current.put("spectral", found.names, torch.stack([found.norms, found.stable_ranks]))
        if self._routers is not None and "moe" in current.due:
            with self._cost(current, "moe"):
                current.routers = self._routers.get_moe_stats()
                current.router_layers = (self._routers.step_fields(), self._routers.layers(), self._routers.loads())
        if self._exchanges is not None:
            self._exchanges.end(current)

    def arm(self, due: frozenset[str]) -> None:
        """Get ready for a step at which this is due."""
        if self._activations is not None:
            self._activations.arm("activations" in due)

    # -- what it costs -----------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        """Memory held at present."""
        return sum(probe.bytes for probe in self._probes.values()) + self._spectral.bytes

    def tell(self, found: ModelRound) -> None:
        """A round's costs are known: the schedule may change. The device's own time counts where it is longer."""
        costs = dict(found.costs)
        device: dict[str, float] = {}
        for family, first, last in found.events:
            device[family] = device.get(family, 0.0) + first.elapsed_time(last) / 1e3
        if device:
            found.figures["watch_device_ms"] = round(sum(device.values()) * 1e3, 4)
            costs = {family: max(costs.get(family, 0.0), device.get(family, 0.0)) for family in costs | device}
        if self._exchanges is None:  # sharded: all ranks have to change theirs at the same step
            self._schedule.spend(costs, found.step_seconds, found.due, found.besides)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._activations is not None:
            self._activations.close()
        if self._routers is not None:
            self._routers.close()
        if self._exchanges is not None:
            self._exchanges.close()
        for probe in self._probes.values():
            probe.drop()
        self._probes.clear()


def _rates(optimizer: Any) -> list[float | None]:
    """The learning rate of each group; None of one that is on a device."""
    found: list[float | None] = []
    for group in optimizer.param_groups:
        rate = group.get("lr")
        host = isinstance(rate, (int, float)) or getattr(getattr(rate, "device", None), "type", "") == "cpu"
        found.append(float(rate) if host else None)
    return found


def skipped_round(looks: Looks, step: int, scaler: Any, count: int) -> ModelRound:
    """The round of a step that the scaler left out, as it did with `count` steps so far."""
    current = ModelRound(step, frozenset())
    looks.scaled(current, scaler, count, steps=False)
    current.send()
    return current


def unscaled(squares: Any, scaler: Any) -> Any:
    """Σ g² without a scaler's scale."""
    scale = getattr(scaler, "_scale", None)  # a tensor on the device: asking for its value would wait
    return squares if scale is None else squares / scale.to(squares.device, squares.dtype).square()
