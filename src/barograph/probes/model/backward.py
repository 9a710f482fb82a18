"""The moment at which a backward pass has ended and all gradients are there, before anything clips them.

In:   a model's parameters; for sharded ones (FSDP2, whose parameters get no gradient by themselves) its outputs.
Out:  a call right after each backward pass, on the thread that called it, while this is armed.

Autograd's engine calls what is queued during a pass when the pass is over, in order; DDP and FSDP2 queue their
last reductions there too. So what is queued first queues itself once more, and comes after theirs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.activations import parts_of
from barograph.probes.model.contrasts import is_logarithm
from barograph.probes.model.guest import Guest, after
from barograph.probes.model.loss_graph import LossGraph
from barograph.probes.model.outside import OutsideLook
from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_PARTS = 3  # of what a model returns, beside its output, whose graphs are followed


class BackwardEnd:
    """Calls `at_end()` after each backward pass while armed; costs nothing at other times."""

    def __init__(self, at_end: Callable[[], Any]):
        self._at_end = at_end
        self._handles: list[Any] = []
        self._task = -1

    def __deepcopy__(self, memo: Any) -> BackwardEnd:
        """Copying a model copies its hooks: those stay what they are."""
        return self

    @property
    def armed(self) -> bool:
        """Whether hooks are in place."""
        return bool(self._handles)

    def arm(self, model: Any, parameters: Iterable[Any], each: Callable[[Any, Any], Any] | None = None) -> None:
        """Put hooks on the parameters, or where those are sharded on the model's output.

        each: also called with (parameter, gradient) as each gradient of this pass comes, for loops that free
        gradients before the pass is over.
        """
        if self._handles:
            return
        sharded = False
        for parameter in parameters:
            if mesh_of(parameter) is not None:
                sharded = True
            elif parameter.requires_grad:
                self._handles.append(parameter.register_post_accumulate_grad_hook(Guest(self._queue)))
                if each is not None:
                    self._handles.append(parameter.register_hook(Guest(_bound(each, parameter))))
        if sharded:
            self._handles.append(after(model, self._on_output))

    def disarm(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _on_output(self, module: Any, given: Any, output: Any) -> None:
        for tensor in tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(Guest(self._queue))

    def _queue(self, tensor: Any) -> None:
        import torch

        try:
            task = torch._C._current_graph_task_id()
            if task not in (self._task, -1):
                self._task = task
                engine = torch.autograd.Variable._execution_engine
                engine.queue_callback(lambda: engine.queue_callback(self._end))
        except Exception:  # an engine of another make: the norm before clipping is not known
            self._task = -1

    def _end(self) -> None:
        self._task = -1
        self._at_end()


def _bound(each: Callable[[Any, Any], Any], parameter: Any) -> Callable[[Any], None]:
    def hook(gradient: Any) -> None:
        each(parameter, gradient)

    return hook


def tensors(output: Any, depth: int = 4) -> Iterable[Any]:
    """The tensors in a module's output, also within tuples, lists, mappings and objects with attributes."""
    if hasattr(output, "requires_grad"):
        yield output
    elif depth:
        if isinstance(output, Mapping):
            parts: Iterable[Any] = output.values()
        elif isinstance(output, (tuple, list)):
            parts = output
        else:
            parts = vars(output).values() if hasattr(output, "__dict__") and not callable(output) else ()
        for part in parts:
            yield from tensors(part, depth - 1)


class Sentinel:
    """The last parameter's gradient tells of each backward pass, by `call()`, or another one's where that gets none.
    Passes that add up are counted."""

    def __init__(self, call: Callable[[], Any], model: Any = None):
        self._call = call
        # DDP writes a reduced gradient back after each of its backward passes
        self._between = int(type(model).__name__ == "DistributedDataParallel")
        self.rests = False  # whether passes are only counted, and not looked at
        self._parameters: Any = ()
        self._names: Mapping[int, str] = {}
        self._begun = False
        self._handles: list[Any] = []
        self._chosen: Any = None  # of them
        self._loss, self._outside = LossGraph(), OutsideLook()
        self._all = 0  # passes since the step before
        self._cleared = 0.0
        self._outputs = [0, 0]  # passes that came to an output since the step before; how many of the last ones add up
        self._task = -1  # the last one's number
        self._kept = False  # whether a sharded model keeps the last pass's gradients until they are reduced
        self._reduced = 0  # passes since the step before that gave one of its parameters a gradient
        self._passes, self._added = 0, (0, 0)  # of the step in progress; the gradient they add up in, and its changes
        self._before = 0, 0  # the same, as the last pass found it

    def __deepcopy__(self, memo: Any) -> Sentinel:
        """Copying a model copies its hooks: those stay what they are."""
        return self

    def follow(self, parameters: tuple[Any, ...], names: Mapping[int, str] | None = None) -> None:
        """Listen to one of these. names: of these, by id."""
        self._names = names or {}
        if parameters is self._parameters:
            return
        self._parameters = parameters
        self._let_go()
        whole = (parameter for parameter in reversed(parameters) if mesh_of(parameter) is None)
        self._listen(next(whole, None))
        shards = (one for one in reversed(parameters) if mesh_of(one) is not None and one.requires_grad)
        if self._chosen is None and (shard := next(shards, None)) is not None:
            self._handles = [shard.register_post_accumulate_grad_hook(Guest(self._reduces))]

    def _reduces(self, parameter: Any) -> None:
        """A pass has given a sharded parameter its gradient: FSDP2 calls its hooks when that is reduced."""
        self._reduced += 1

    def _listen(self, chosen: Any) -> None:
        self._chosen = chosen
        if chosen is not None:
            after_it = chosen.register_post_accumulate_grad_hook(Guest(self._came))
            self._handles = [chosen.register_hook(Guest(self._comes)), after_it]

    def _let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _listen_elsewhere(self) -> None:
        """No pass has been seen, though a step begins: gradients may reach other parameters than the one listened to,
        as of two networks that are stepped in turns, or before a head that nothing calls."""
        if self._all or self._chosen is None or self._chosen.grad is not None:
            return
        whole = (one for one in reversed(self._parameters) if mesh_of(one) is None and one.grad is not None)
        if (chosen := next(whole, None)) is not None:
            self._let_go()
            self._listen(chosen)

    def _comes(self, gradient: Any) -> None:
        """A pass is about to add its gradient."""
        there = self._chosen.grad
        self._before = id(there), 0 if there is None else there._version

    def _came(self, parameter: Any) -> None:
        """Gradients add up where the pass found the same tensor, unchanged since the one before: what hooks of a loop's
        own do to it within a pass does not count. A cleared one begins anew."""
        if self.rests:
            self._call()
            return
        with contextlib.suppress(Exception):  # within the training's pass: a gradient of another make
            gradient, known = parameter.grad, self._added
            self._all += 1
            self._added = id(gradient), 0 if gradient is None else gradient._version
            same, more = known[0] == self._before[0] == self._added[0], self._before[1] - known[1]
            self._passes = self._passes + 1 if same and 0 <= more <= self._between else 1
            self._loss.came()
        self._call()

    def came_to_output(self, gradient: Any, model: Any = None) -> None:
        """A gradient has come to a model's output, where no parameter gets one itself: once for each pass. It adds up
        where there are gradients of the one before, or they are kept to be reduced later."""
        import torch

        if self._chosen is not None:
            return
        with contextlib.suppress(Exception):  # an engine of another make: each output counts
            task = torch._C._current_graph_task_id()
            if task in (self._task, -1):
                return
            self._task = task
        every, some = self._outputs
        adds = every > 0 and (self._kept or any(one.grad is not None for one in self._parameters))
        self._outputs, self._kept = [every + 1, some + 1 if adds else 1], _is_kept(model)
        self._loss.came(walks=False)

    def ask(self, call: Callable[[Any], Any]) -> None:
        """Have `call` called once with the last node of the next loss's graph, when its backward pass is over."""
        self._loss.asks = call

    def follow_graph(self, output: Any, whole: Any = None) -> None:
        """An output of the model: whether its graph is kept. whole: all that the model returned; each part has a graph
        of its own, as the two sides of a pair."""
        self._loss.graphs.follow_pass(getattr(output, "grad_fn", None))
        for part in [one for one in parts_of(whole) if one is not output][:_PARTS]:
            self._loss.graphs.follow(getattr(part, "grad_fn", None))

    def put(self, current: ModelRound, alone: bool, stepped: Sequence[Iterable[Any]] = ()) -> None:
        """A step begins: how many passes have added up for it, and what their loss is. alone: with one optimizer, of
        whose passes none is meant for another. stepped: parameters of each."""
        self._listen_elsewhere()
        figures = self._loss.new(stepped)
        if not self._all > self._passes > 1:  # else it may be of passes that were cleared, as of an attack
            current.figures |= figures
        self._loss.graphs.put(current)
        if (scale := self._loss.scale) is not None and scale[0] in self._names:
            current.figures["scale_is_logarithm"] = float(is_logarithm(self._names[scale[0]]))
            if not self._begun:  # the weights of the first step
                current.put("time", ("scale_at_start",), scale[1])
            self._begun = True
        self._loss.scale = None
        current.squared, current.differences = self._loss.squared, self._loss.differences
        if self._loss.leaves is not None:
            self._outside.put(current, self._loss.leaves, self._parameters, [one for some in stepped for one in some])
            self._loss.leaves = None
        if self._loss.value is not None:
            current.put("loss_itself", ("value",), self._loss.value)
            self._loss.value = None
        gradient = None if self._chosen is None else self._chosen.grad
        made = gradient is not None and id(gradient) != self._added[0]  # by hand, of those that were cleared
        cleared = float(max(0, self._all - self._passes)) if alone and self._passes and not made else 0.0
        every, some = self._outputs if self._chosen is None else (0, 0)
        if alone and self._reduced == every > some:  # each gave gradients: none is of inputs alone, or kept for later
            cleared = float(every - some)
        if cleared or cleared != self._cleared:
            current.figures["cleared_passes"] = cleared
        self._all, self._reduced, self._cleared = 0, 0, cleared
        given, added = self._loss.given(), some if some == every else 0  # others were cleared in between
        if given and len(given) == (self._passes or added):  # all that was differentiated is in the gradients
            current.put("given", ("loss_given",), _sum(given))
            current.figures["losses_given"] = float(len(given))
        elif given and cleared and len(given) == (self._passes or some) + cleared:
            current.put("given", ("cleared_given",), _sum(given))
        current.backwards, self._passes, self._outputs, self._kept = self._passes, 0, [0, 0], False
        if (current.backwards or added) and "passes" in current.figures:
            current.figures["backwards"] = float(current.backwards or added)


def _is_kept(model: Any) -> bool:
    """Whether a sharded model adds up gradients of whole parameters, to reduce them behind a later pass."""
    with contextlib.suppress(Exception):  # of another make
        for module in model.modules():
            state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
            groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
            if groups[0] is not None:
                return not groups[0].reduce_grads
    return False


def _sum(losses: Sequence[Any]) -> Any:
    """Of numbers on one device."""
    import torch

    return torch.cat([one.double() if one.device.type != "mps" else one.float() for one in losses]).sum().reshape(1)
