"""What a model is and in which mode it runs, as numbers that are recorded at the first step and when one changes.

In:   a model's forward passes; its parameters.
Out:  `ModelState.put`, which adds to a step's figures: mode of training and evaluation, whether an evaluation was with
      gradients, width of the output, how many parameters are trained, frozen, of half precision, whether batch norm's
      statistics move, and the largest input, which is read with the step's other figures and says whether inputs are
      finite.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from barograph.probes.model.activations import dense_tensors
from barograph.probes.model.adapters import Adapters
from barograph.probes.model.answers import EvaluationAnswers
from barograph.probes.model.averaged import EvaluatedWeights
from barograph.probes.model.averaged import fields_of as evaluated_fields
from barograph.probes.model.backward import Sentinel
from barograph.probes.model.carried import CarriedState
from barograph.probes.model.classes import ClassCounts
from barograph.probes.model.compared import fields_of as compared_fields
from barograph.probes.model.compiled import in_place, made_of, restore, surround
from barograph.probes.model.copies import averaged_over
from barograph.probes.model.dependence import DependenceLook
from barograph.probes.model.doubles import CopyPasses
from barograph.probes.model.evaluated import EvaluatedLook, told_by
from barograph.probes.model.examples import ExampleLook
from barograph.probes.model.finite import BEFORE, FiniteLook, outlier
from barograph.probes.model.frozen import frozen_figures
from barograph.probes.model.graphs import EvaluatedGraphs, UsedGraphs
from barograph.probes.model.growth import GradientGrowth
from barograph.probes.model.guest import Guest, after, before, is_compiled
from barograph.probes.model.head import Head
from barograph.probes.model.layer_modes import LayerModes
from barograph.probes.model.layer_rates import rate_figures
from barograph.probes.model.moved_statistics import MovedStatistics
from barograph.probes.model.moved_statistics import fields_of as statistics_fields
from barograph.probes.model.noising import TimeArgument
from barograph.probes.model.others import OtherNetwork
from barograph.probes.model.others import fields_of as other_fields
from barograph.probes.model.outputs import OutputLook
from barograph.probes.model.outside import fields_of as outside_fields
from barograph.probes.model.own_loads import OwnLoads
from barograph.probes.model.parameters import local, mesh_of
from barograph.probes.model.parts import CalledParts, has_no_gradient, in_backward
from barograph.probes.model.pass_modes import PassModes
from barograph.probes.model.reach import detached_table, repeated_figures, untied_figures
from barograph.probes.model.rows import RowsLook
from barograph.probes.model.running import BatchNormStatistics
from barograph.probes.model.settings import LayerSettings, end_token
from barograph.probes.model.sharded import shards_of
from barograph.probes.model.symmetry import EqualUnits
from barograph.probes.model.texts import TextPairs
from barograph.probes.model.written import Written

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_LONE = 2  # rows of one example, or of its two views
_MOST_INPUTS = 16  # tensors of a step that are looked at
_ASKED = (1, 3)  # steps of a model that is not called, before which it is looked for what was compiled of it
_TABLES = (0, 4, 9)  # steps before which the product that makes an output is looked at
_ACTING = 8  # passes without gradients between two steps that are looked at where each step has some
_LARGE = 1 << 22  # elements of an input on the CPU that are too many for each step


class ModelState:
    """Hooks on the model itself, or on the parts that a training calls in its place: two short calls a forward pass.

    asks: whether single outputs may be asked for their gradients, which takes two backward passes in all. sentinel:
    what knows of backward passes.
    """

    def __init__(
        self,
        model: Any,
        clock: Callable[[], float],
        asks: bool = True,
        sentinel: Sentinel | None = None,
        written: Written | None = None,
    ):
        self._model = model
        self._clock, self._seconds = clock, 0.0
        self._statistics, self._output = BatchNormStatistics(model), OutputLook()
        self._examples, self._classes, self._finite = ExampleLook(), ClassCounts(), FiniteLook()
        self._texts, self._units, self._settings = TextPairs(), EqualUnits(model), LayerSettings(model)
        self._other, self._time, self._rows = OtherNetwork(model), TimeArgument(model), RowsLook(model)
        compiled = in_place(model) or any(
            type(module).__name__ == "OptimizedModule" or in_place(module) for module in model.modules()
        )
        self._asked = 0  # steps in which the model was not called itself
        self._around = False  # within a call of what was compiled in place, which is seen from around it
        self._dependence, self._head = DependenceLook(model, asks and not compiled), Head(model)
        self._output.timed = self._timed
        self.rests = False  # whether the step to come is not looked at; evaluations are
        self.evaluates = False  # whether there was one since the step before
        self._calls = self._steps = self._called = 0  # passes without gradients since then; steps, and those with some
        self._table: Any = None  # whether the pass takes a table without its gradient
        self._skips = False  # whether the pass is not looked at
        self._modes: set[bool] = set()  # of this step's passes with gradients
        self._trained_modes: set[bool] = set()  # of those of the last step that is over
        self._uses, self._plain = UsedGraphs(), True
        self._without = PassModes(model)  # of those without gradients
        self._batch = self._most = 0  # rows of the inputs, in this step and in any
        self._last: dict[str, float] = {}
        self._passes: dict[str, float] = {}
        self._inputs: list[Any] = []
        self._largest: deque[float] = deque(maxlen=BEFORE)  # input of each of the last steps
        self._key: Any = None
        self._adapters: Adapters | None = None  # when the first step has found its parameters
        self._half = 0
        self._handles: list[Any] = []
        self._evaluated: EvaluatedLook | None = None
        self._carried: CarriedState | None = None
        self._moved: MovedStatistics | None = None
        self._inner, self._within = model, False
        self._sentinel = sentinel or Sentinel(lambda: None)
        self._sharded = any(mesh_of(parameter) is not None for parameter in model.parameters())
        self._parts: CalledParts | None = None
        self._waits = False  # for the part that begins a pass: another tower's output is none of it
        # an evaluation often goes past DDP; a hook on what torch.compile returns is around what is compiled
        self._inner = model.module if type(model).__name__ == "DistributedDataParallel" else model
        self._handles = [
            before(self._inner, self._timed(self._began), with_kwargs=True),
            after(self._inner, self._timed(self._ended), always_call=True),
        ]
        self._written, self._copies = written or Written(), CopyPasses(self._copy_evaluated, partial(_copy_given, self))
        self._own_loads = OwnLoads(self._inner)
        self._answers = EvaluationAnswers()
        self._graphs = EvaluatedGraphs(() if compiled else self._inner.modules())
        self._heard = self._copies.called, partial(_copy_gave, self)  # of each call of a copy
        self._averaged = EvaluatedWeights(self._inner, self._written, *self._heard)
        self._growth, self._layers = GradientGrowth(), LayerModes(self._inner, not compiled)
        self._part_looks: list[EvaluatedLook] = []  # at parts that are called in the model's place
        self._see_around()
        if not compiled:
            self._parts = CalledParts(self._inner, self._sentinel.ask)
            self._answers.listen(self._inner, lambda: self._within)
            self._output.inputs.follow(self._inner, lambda: self._within, self._part_asked)
            self._evaluated, self._carried = EvaluatedLook(self._inner), CarriedState(self._inner)
            self._moved = MovedStatistics(self._inner)

    def _see_around(self) -> None:
        """Calls of a model that was compiled in place are seen around what is compiled."""
        with contextlib.suppress(Exception):
            for module in {id(one): one for one in (self._model, self._inner)}.values():
                surround(module, Guest(self._timed(self._began_around)), Guest(self._timed(self._ended_around)))
        if self._parts is None or self._parts.called or not is_compiled():
            return
        self._asked += 1
        if self._asked in _ASKED:
            with contextlib.suppress(Exception):
                made = made_of(self._inner)
                if made is not None:
                    self._parts.called = True
                    self._handles += [
                        before(made, self._timed(self._began), with_kwargs=True),
                        after(made, self._timed(self._ended), always_call=True),
                    ]

    def _began_around(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        self._began(module, given, named)
        self._around = True

    def _ended_around(self, module: Any, given: Any, output: Any) -> None:
        self._around = False
        self._ended(module, given, output)

    def _timed(self, hook: Callable[..., None]) -> Callable[..., None]:
        def timed(*given: Any) -> None:
            began = self._clock()
            hook(*given)
            self._seconds += self._clock() - began

        return timed

    def taken(self) -> float:
        """Seconds that the hooks took since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _began(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """The model itself is called."""
        import torch

        if self._around:
            return
        self._within = True
        if self._parts is not None and torch.is_grad_enabled():
            self._parts.called = True
        self._before(module, given, named)

    def _ended(self, module: Any, given: Any, output: Any) -> None:
        if self._around:
            return
        self._within = False
        if output is not None:  # else it has failed
            self._after(module, given, output)

    def _follow(self, parts: CalledParts) -> None:
        """The model is not called, and parts of it are known that are."""
        if parts.alone is not None:
            for look in (self._evaluated, self._time, self._averaged):
                if look is not None:
                    look.close()
            self._time, self._evaluated = TimeArgument(parts.alone), EvaluatedLook(parts.alone)
            self._averaged = EvaluatedWeights(parts.alone, self._written, *self._heard)
        else:
            several = {id(one): one for one in (parts.first, *parts.given, *parts.last) if one is not None}
            self._part_looks = [EvaluatedLook(one) for one in several.values()]
            self._averaged.follow(list(several.values()))
        self._layers.follow(parts.alone, (parts.first, *parts.given, *parts.last), parts.beside)
        first = parts.alone if parts.first is None else parts.first
        begins: list[tuple[Any, Callable[..., None]]] = [(module, self._before_others) for module in parts.given]
        begins += [(module, partial(self._before_tower, which)) for which, module in enumerate(parts.towers)]
        self._examples.towers.count, self._waits = len(parts.towers), parts.late
        if first is not None:
            begins.append((first, self._before_part))
        for module, call in begins:
            self._handles.append(before(module, self._timed(call), with_kwargs=True))
        for module in parts.last if parts.alone is None else [parts.alone]:
            self._handles.append(after(module, self._timed(self._after_part)))

    def _before_part(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """What begins a pass of a model that is called by its parts."""
        if not self._within and not in_backward() and has_no_gradient(dense_tensors((*given, *named.values()))):
            self._waits = False
            self._before(module, given, named)

    def _before_others(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        import torch

        if self._within or torch.is_grad_enabled():
            return
        self._passes["passes_without_gradients"] = 1.0

    def _before_tower(self, which: int, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """What is given to another tower than the first one, in a step that is looked at or in an evaluation."""
        import torch

        trains, mode = torch.is_grad_enabled(), self._layers.of(module)
        if self._within or in_backward() or (self.rests and trains) or (mode and not trains):
            return
        with contextlib.suppress(Exception), torch.no_grad():
            tensors = [one for one in dense_tensors((*given, *named.values())) if one.dim()]
            self._examples.given_to_tower(which, tensors, trains, self._output.due)

    def _after_part(self, module: Any, given: Any, output: Any) -> None:
        if not self._within and not in_backward() and not self._waits:
            self._after(module, given, output)

    def _before(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        import torch

        with contextlib.suppress(Exception):
            self._answers.over()
            trains = torch.is_grad_enabled()
            self._skips = self.rests if trains else self._is_acting()
            if self._skips:
                return
            self.evaluates |= not trains
            self._head.began()
            self._averaged.passed(trains)
            mode = self._layers.of(module, trains)
            if mode is not None and trains:
                self._passes["training"] = float(mode)
            if not trains:
                self._passes["passes_without_gradients"] = 1.0
            every = list(dense_tensors((*given, *named.values())))
            tensors = [one for one in every if one.dim()]  # a count, or a step, has no rows
            due = trains and self._output.due
            with torch.no_grad():
                if mode is not None and not trains:
                    _each(lambda: self._without.passed(bool(mode), tensors))
                if not trains:
                    _each(lambda: self._answers.given(tensors))
                _each(
                    lambda: self._rows.began(tensors, due),
                    lambda: self._time.given(given, named) if due else None,
                    lambda: self._examples.given(tensors, trains, self._output.due, mode),
                    lambda: self._output.given(tensors, trains),
                )
            _each(lambda: self._dependence.began(tensors, trains))
            if trains:
                _each(lambda: self._other.given(tensors))
                self._plain = not any(one.requires_grad for one in every)  # else its inputs' are wanted
                if module.training or self._plain:
                    self._modes.add(bool(module.training))
                self._batch = max(self._batch, *(len(one) for one in tensors if one.dim() > 1), 0)
                for tensor in every:
                    small = tensor.is_cuda or tensor.numel() <= _LARGE
                    if small and tensor.is_floating_point() and len(self._inputs) < _MOST_INPUTS:
                        with torch.no_grad():
                            self._inputs.append(torch.linalg.vector_norm(local(tensor.detach()), float("inf")))

    def _part_asked(self) -> None:
        """An evaluation calls a part of the model alone."""
        self._passes["parts_without_gradients"] = 1.0

    def _is_acting(self) -> bool:
        """A pass without gradients: whether it is one of too many that each step has, as of a policy that acts."""
        self._calls += 1
        return self._called > self._steps // 4 + 1 and (self.rests or self._calls > _ACTING)

    def _count(self) -> None:
        """A step begins."""
        self._steps, self._called, self._calls = self._steps + 1, self._called + (self._calls > 0), 0
        self._waits = self._parts is not None and self._parts.late

    def _copy_evaluated(self, tensors: Sequence[Any]) -> None:
        self.evaluates = self._answers.awaited = True
        _each(self._answers.over, lambda: self._answers.given(tensors))

    def _after(self, module: Any, given: Any, output: Any) -> None:
        import torch

        if self._skips:
            return
        with contextlib.suppress(Exception):
            logits = self._head.answer(output)
            mixed = self._rows.mixed(logits)
            if mixed is not None:
                self._passes["rows_mixed"] = mixed
            if torch.is_grad_enabled():
                began = self._clock()
                _each(lambda: self._dependence.returned(logits))
                self._seconds -= self._clock() - began  # twice in a run: no account would ever cover it
                self._sentinel.follow_graph(logits, output)
                if self._plain:
                    self._uses.follow(logits)
                pieces = self._head.in_pieces
                _each(
                    lambda: self._output.returned(output, logits, self._rows.embedded(), pieces),
                    lambda: self._examples.returned(output),
                )
                with torch.no_grad():
                    _each(lambda: self._finite.returned(logits))
                if self._steps in _TABLES:
                    with torch.no_grad():
                        self._table = detached_table(self._inner, logits)
                if self._sharded and getattr(logits, "requires_grad", False):
                    logits.register_hook(Guest(partial(self._sentinel.came_to_output, model=self._inner)))
            else:
                _each(lambda: self._answers.gave(logits))
            if "output_width" in self._passes:
                return
            if logits is not None and logits.dim() > 1 and not logits.is_sparse:
                self._passes["output_width"] = float(logits.shape[1 if logits.dim() > 3 else -1])
                self._passes |= end_token(self._inner)
                if torch.is_grad_enabled():
                    self._passes["half_output"] = float(logits.dtype == torch.float16)

    @property
    def can_rest(self) -> bool:
        """Whether steps may be left out: not where a second network is followed from step to step."""
        return not (self._copies.heard or self._other.is_found)

    def rested(self) -> float:
        """A step begins that is not looked at. As `taken`."""
        self._count()
        self._examples.rested()
        self._averaged.rested()
        self._output.inputs.rested()
        self._without.rested()
        return self.taken()

    def put(self, current: ModelRound, parameters: tuple[Any, ...], optimizers: Sequence[Any] = ()) -> None:
        """Add what is new since the step before."""
        import torch

        self._layers.put(current, self.evaluates)
        self._copies.kinds = self._layers.kinds
        self.evaluates = False
        self._count()
        self._see_around()
        if parameters is not self._key:
            self._key = parameters
            current.figures |= averaged_over(self._model) | shards_of(parameters)
            self._half = sum(item.dtype in (torch.float16, torch.bfloat16) for item in parameters)
            if bfloats := sum(item.dtype == torch.bfloat16 for item in parameters):
                current.figures["bfloat_parameters"] = float(bfloats)
            self._adapters = Adapters(self._model) if self._adapters is None else self._adapters
            frozen_figures(current, self._model, parameters, self._adapters, optimizers)
            untied_figures(current, self._model)
            repeated_figures(current, self._model)
            rate_figures(current, self._model, optimizers)
            current.figures |= self._settings.read()
            current.figures["trained_elements"] = float(sum(item.numel() for item in parameters))
        if self._adapters is not None:
            self._adapters.put(current)
        if self._parts is not None and self._parts.put():
            self._follow(self._parts)
        self._statistics.put(current, self._modes == {True}, bool(self._modes))
        self._output.put(current)
        self._answers.put(current)
        self._dependence.put(current)
        self._examples.put(current)
        self._finite.put(current, parameters)
        self._other.put(current)
        current.figures |= self._copies.put(self._averaged.listens)
        if self._copies.gathered:
            self._passes["statistics_gathered"] = 1.0
        self._averaged.put(current)
        current.figures |= self._own_loads.figures()
        self._growth.put(current, parameters)
        if self._table is not None:
            current.put("table_detached", ("",), self._table)
            self._table = None
        self._time.put(current)
        self._units.put(current)
        for one in (self._carried, self._graphs, self._moved):
            if one is not None:
                one.put(current)
        self._uses.put(current)
        needed = self._uses.all_used or self._uses.adapts  # else trained in one mode, and evaluated in the other
        both = (len(self._modes) == 2 and not needed) or self._graphs.of_copies
        if both or "gradients_in_evaluation" in self._last:
            self._passes["gradients_in_evaluation"] = float(both)
        self._trained_modes, self._modes = self._modes, set()
        current.figures |= self._settings.again(bool(self._without.seen))
        if 0 < self._batch <= _LONE < self._most // 4:
            current.figures["lone_rows"] = float(self._batch)
        self._most, self._batch = max(self._most, self._batch), 0
        self._passes |= self._without.put(current) | told_by(
            (self._evaluated, *self._copies.looks.values(), *self._part_looks)
        )
        now = self._passes | {"trained_parameters": float(len(parameters)), "half_parameters": float(self._half)}
        current.figures |= {name: value for name, value in now.items() if self._last.get(name) != value}
        self._last |= now
        for evaluated in ("training", *(f"training_{where}_evaluation" for where in ("in", "within", "behind"))):
            self._passes.pop(evaluated, None)
        if self._inputs:
            home = self._inputs[0].device
            largest = torch.stack([item.float().to(home) for item in self._inputs]).amax()
            current.put("inputs", ("",), largest.reshape(1))
            self._inputs = []

    def put_last(self, current: ModelRound) -> bool:
        """No step follows: add what an evaluation behind the last one showed, and say whether there was one. Passes
        that each step has are those of the next one."""
        with_gradients = self._modes == {False} and True in self._trained_modes
        if not (self.evaluates or with_gradients) or self._called > self._steps // 4 + 1:
            return False
        looks = (self._output.inputs, self._answers, self._examples, self._moved)
        _each(*(partial(one.put, current) for one in looks if one is not None))
        current.figures |= self._copies.put(self._averaged.listens)
        self._passes |= self._without.put(current) | told_by(
            (self._evaluated, *self._copies.looks.values(), *self._part_looks)
        )
        if with_gradients or "gradients_in_evaluation" in self._last:
            self._passes["gradients_in_evaluation"] = float(with_gradients)
        current.figures |= {name: value for name, value in self._passes.items() if self._last.get(name) != value}
        return True

    def fields_of(self, step: int, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step's examples, when it has arrived."""
        found = self._examples.fields_of(numbers, step) | self._classes.fields_of(numbers) | other_fields(numbers)
        found |= outside_fields(numbers) | evaluated_fields(numbers) | statistics_fields(numbers)
        found |= compared_fields(numbers)
        return found | self._texts.fields_of(numbers) | outlier(numbers, self._largest)

    def close(self) -> None:
        """Leave no hook behind."""
        for module in (self._model, self._inner):
            restore(module)
        self._other.close()
        self._answers.close()
        self._output.inputs.close()
        for one in (self._averaged, self._own_loads, self._growth, self._copies, self._dependence, self._head):
            one.close()
        if self._parts is not None:
            self._parts.close()
        self._rows.close()
        looks = (self._evaluated, self._carried, self._graphs, self._moved, self._layers, self._adapters, self._time)
        for look in (*looks, *self._part_looks):
            if look is not None:
                look.close()
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _copy_given(state: ModelState, tensors: Sequence[Any], mode: bool | None) -> None:
    _each(lambda: state._examples.given(tensors, False, False, mode), lambda: state._output.inputs.evaluated(tensors))


def _copy_gave(state: ModelState, output: Any) -> None:
    _each(lambda: state._answers.of_copy(output), lambda: state._graphs.gave(output))


def _each(*looks: Callable[[], None]) -> None:
    """Each by itself: one that fails takes none of the others along."""
    for look in looks:
        with contextlib.suppress(Exception):
            look()
