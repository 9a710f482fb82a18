"""What a model is and in which mode it runs, as numbers that are recorded at the first step and when one changes.

In:   a model's forward passes; its parameters.
Out:  `ModelState.put`, which adds to a step's figures: mode of training and evaluation, whether an evaluation was with
      gradients, width of the output, how many parameters are trained, frozen, of half precision, whether batch norm's
      statistics move, and the largest input, which is read with the step's other figures and says whether inputs are
      finite.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.activations import dense_tensors, first_tensor
from barograph.probes.model.adapters import Adapters
from barograph.probes.model.classes import ClassCounts
from barograph.probes.model.dependence import DependenceLook
from barograph.probes.model.evaluated import EvaluatedLook
from barograph.probes.model.examples import ExampleLook
from barograph.probes.model.finite import FiniteLook
from barograph.probes.model.frozen import BatchNormStatistics, frozen_figures
from barograph.probes.model.guest import Guest
from barograph.probes.model.head import Head
from barograph.probes.model.noising import TimeArgument
from barograph.probes.model.others import OtherNetwork
from barograph.probes.model.others import fields_of as other_fields
from barograph.probes.model.outputs import OutputLook
from barograph.probes.model.outside import fields_of as outside_fields
from barograph.probes.model.parameters import local
from barograph.probes.model.reach import untied_figures
from barograph.probes.model.rows import RowsLook
from barograph.probes.model.settings import layer_settings
from barograph.probes.model.texts import TextPairs

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_MOST_INPUTS = 16  # tensors of a step that are looked at
_BEFORE, _OUTLIER = 16, 100.0  # steps that an input is compared with; times as large
_LARGE = 1 << 22  # elements of an input on the CPU that are too many for each step


class ModelState:
    """Hooks on the model itself, not on its parts: two short calls a forward pass. None where it is compiled.

    asks: whether single outputs may be asked for their gradients, which takes two backward passes in all.
    """

    def __init__(self, model: Any, clock: Callable[[], float], asks: bool = True):
        self._model = model
        self._clock, self._seconds = clock, 0.0
        self._statistics, self._output = BatchNormStatistics(model), OutputLook()
        self._examples, self._classes, self._finite = ExampleLook(), ClassCounts(), FiniteLook()
        self._texts = TextPairs()
        self._other, self._time, self._rows = OtherNetwork(model), TimeArgument(model), RowsLook(model)
        self._dependence, self._head = DependenceLook(model, asks), Head(model)
        self._output.timed = self._timed
        self._modes: set[bool] = set()  # of this step's passes with gradients
        self._last: dict[str, float] = {}
        self._passes: dict[str, float] = {}
        self._inputs: list[Any] = []
        self._largest: deque[float] = deque(maxlen=_BEFORE)  # input of each of the last steps
        self._key: Any = None
        self._adapters: Adapters | None = None  # when the first step has found its parameters
        self._half = 0
        self._has_modes = any(True for _ in _of_modes(model))
        self._handles: list[Any] = []
        self._evaluated: EvaluatedLook | None = None
        if not any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
            # an evaluation often goes past DDP
            inner = model.module if type(model).__name__ == "DistributedDataParallel" else model
            self._handles = [
                inner.register_forward_pre_hook(Guest(self._timed(self._before)), with_kwargs=True),
                inner.register_forward_hook(Guest(self._timed(self._after))),
            ]
            self._evaluated = EvaluatedLook(inner)

    def _timed(self, hook: Callable[..., None]) -> Callable[..., None]:
        def timed(*given: Any) -> None:
            import torch

            if torch.compiler.is_compiling():  # nothing of a hook is for the compiler to follow
                return
            began = self._clock()
            hook(*given)
            self._seconds += self._clock() - began

        return timed

    def taken(self) -> float:
        """Seconds that the hooks took since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _before(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        import torch

        with contextlib.suppress(Exception):
            trains = torch.is_grad_enabled()
            self._head.began()
            if self._has_modes:
                on = module.training and (trains or any(part.training for part in _of_modes(module)))
                self._passes["training" if trains else "training_in_evaluation"] = float(on)
            if not trains:
                self._passes["passes_without_gradients"] = 1.0
            every = list(dense_tensors((*given, *named.values())))
            tensors = [one for one in every if one.dim()]  # a count, or a step, has no rows
            due = trains and self._output.due
            with torch.no_grad():
                _each(
                    lambda: self._rows.began(tensors, due),
                    lambda: self._time.given(given, named) if due else None,
                    lambda: self._examples.given(tensors, trains, self._output.due),
                    lambda: self._output.given(tensors, trains),
                )
            _each(lambda: self._dependence.began(tensors, trains))
            if trains:
                _each(lambda: self._other.given(tensors))
                if module.training or not any(one.requires_grad for one in every):  # else its inputs' are wanted
                    self._modes.add(bool(module.training))
                for tensor in every:
                    small = tensor.is_cuda or tensor.numel() <= _LARGE
                    if small and tensor.is_floating_point() and len(self._inputs) < _MOST_INPUTS:
                        with torch.no_grad():
                            self._inputs.append(torch.linalg.vector_norm(local(tensor.detach()), float("inf")))

    def _after(self, module: Any, given: Any, output: Any) -> None:
        import torch

        with contextlib.suppress(Exception):
            logits = self._answer(output)
            mixed = self._rows.mixed(logits)
            if mixed is not None:
                self._passes["rows_mixed"] = mixed
            if torch.is_grad_enabled():
                began = self._clock()
                _each(lambda: self._dependence.returned(logits))
                self._seconds -= self._clock() - began  # twice in a run: no account would ever cover it
                _each(lambda: self._output.returned(output, logits, self._rows.embedded()))
                with torch.no_grad():
                    _each(lambda: self._finite.returned(logits))
            if "output_width" in self._passes:
                return
            if logits is not None and logits.dim() > 1 and not logits.is_sparse:
                self._passes["output_width"] = float(logits.shape[1 if logits.dim() > 3 else -1])
                if torch.is_grad_enabled():
                    self._passes["half_output"] = float(logits.dtype == torch.float16)

    def _answer(self, output: Any) -> Any:
        """What the loss is made of, where the model returns that, or its loss alone: a tensor or None."""
        logits = getattr(output, "logits", None)
        if logits is None:
            parts = list(output) if isinstance(output, (tuple, list)) else []
            beside = (part for part in parts if getattr(part, "requires_grad", False) and part.dim() > 1)
            logits = first_tensor(output)
            if logits is not None and not logits.dim():  # a loss: what it is of may stand beside it
                logits = next(beside, logits)
        if logits is not None and not logits.dim():
            head = self._head.output(logits)
            logits = logits if head is None else head
        return logits

    def put(self, current: ModelRound, parameters: tuple[Any, ...]) -> None:
        """Add what is new since the step before."""
        import torch

        if parameters is not self._key:
            self._key = parameters
            self._half = sum(item.dtype in (torch.float16, torch.bfloat16) for item in parameters)
            self._adapters = Adapters(self._model) if self._adapters is None else self._adapters
            frozen_figures(current, self._model, parameters, self._adapters)
            untied_figures(current, self._model)
            current.figures |= layer_settings(self._model)
            current.figures["trained_elements"] = float(sum(item.numel() for item in parameters))
        if self._adapters is not None:
            self._adapters.put(current)
        self._statistics.put(current, self._modes == {True})
        self._output.put(current)
        self._dependence.put(current)
        self._examples.put(current)
        self._finite.put(current, parameters)
        self._other.put(current)
        self._time.put(current)
        if (
            len(self._modes) == 2 or "gradients_in_evaluation" in self._last
        ):  # trained in one mode, evaluated in the other
            self._passes["gradients_in_evaluation"] = float(len(self._modes) == 2)
        self._modes = set()
        if self._evaluated is not None and self._evaluated.found is not None:
            self._passes["dropout_in_evaluation"] = self._evaluated.found
        now = self._passes | {"trained_parameters": float(len(parameters)), "half_parameters": float(self._half)}
        current.figures |= {name: value for name, value in now.items() if self._last.get(name) != value}
        self._last |= now
        for evaluated in ("training", "training_in_evaluation"):
            self._passes.pop(evaluated, None)
        if self._inputs:
            home = self._inputs[0].device
            largest = torch.stack([item.float().to(home) for item in self._inputs]).amax()
            current.put("inputs", ("",), largest.reshape(1))
            self._inputs = []

    def fields_of(self, step: int, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step's examples, when it has arrived."""
        found = self._examples.fields_of(numbers, step) | self._classes.fields_of(numbers) | other_fields(numbers)
        found |= outside_fields(numbers)
        return found | self._texts.fields_of(numbers) | self._outlier(numbers)

    def _outlier(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """Of a step with an input a hundred times as large as those of the steps before, how many times; the round of
        each step that has arrived is asked once, in the order of steps."""
        if "inputs" not in numbers or not math.isfinite(largest := float(numbers["inputs"][1][0][0])):
            return {}
        before = sorted(self._largest)
        self._largest.append(largest)
        usual = before[len(before) // 2] if len(before) >= _BEFORE // 2 else 0.0
        return {"input_outlier": largest / usual} if largest > _OUTLIER * usual > 0 else {}

    def close(self) -> None:
        """Leave no hook behind."""
        self._other.close()
        self._dependence.close()
        self._head.close()
        self._rows.close()
        if self._evaluated is not None:
            self._evaluated.close()
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _each(*looks: Callable[[], None]) -> None:
    """Each by itself: one that fails takes none of the others along."""
    for look in looks:
        with contextlib.suppress(Exception):
            look()


def _of_modes(model: Any) -> Iterator[Any]:
    """Modules of which training and evaluation mode differ: dropout, and batch norm."""
    for module in model.modules():
        name = type(module).__name__
        if ("Dropout" in name and getattr(module, "p", 0) > 0) or "BatchNorm" in name:
            yield module
