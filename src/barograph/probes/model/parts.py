"""The parts of a model that a training calls in the model's place.

In:   calls of a model's parts in one step, and the graph of that step's loss.
Out:  the part that is given the examples, those that are given anything else that has no gradient, and those whose
      output goes into the loss by functions without weights; which of them are towers beside the first.

`model.loss(batch)`, `model.training_step(batch)`, `model.encode(x)`, or two networks that are watched as one: the model
itself is never called, and no hook on it says anything. Then its parts are listened to for one step. Of the calls that
no other call is around, those that are given tensors without gradient begin a pass, and the graph proves which ones end
it. One part that does both, as the network in a `LightningModule`, stands for the model in all. Parts that begin, and
end in other parts than the first does, are its other towers, as of searches beside postings, or of texts beside
pictures: what they are given belongs to the same examples, and only the loss brings them together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barograph.probes.model.activations import dense_tensors, first_tensor
from barograph.probes.model.guest import after, before, is_compiled
from barograph.probes.model.head import reaches
from barograph.probes.model.objective import behind
from barograph.probes.model.rows import place_of

_TRIES = 3  # steps
_MOST = 256  # calls of a step
_SIDES = 16  # calls that begin, or that end, between which ways are looked for
_NODES = 5000  # of the graph behind a call
_TOWERS = 3  # beside the first


class _Call(NamedTuple):
    """module: a part. size: of the largest tensor of rows that it was given, where none of what it was given has a
    gradient; -1 where one has, or there is none. what: which tensor that is. node: what made its output. leads: the
    parts that end a pass and are behind it."""

    module: Any
    size: int
    what: Any = None
    node: Any = None
    leads: frozenset[int] = frozenset()


class CalledParts:
    """Looks for them where the model is not called. `ask(call)`: has `call` given the next loss's last node."""

    def __init__(self, model: Any, ask: Callable[[Callable[[Any], Any]], Any]):
        self._model, self._ask = model, ask
        self.called = False  # the model itself, in a pass with gradients
        self.alone: Any = None  # the part that stands for the model
        self.beside: list[Any] = []  # other parts that run within its pass, as adapters that hooks add
        self.first: Any = None  # the part that is given the examples, where there are several
        self.given: list[Any] = []  # others that are given tensors without gradient
        self.last: list[Any] = []  # parts whose output the loss is made of
        self.towers: list[Any] = []  # of those that are given others, what is a tower beside the first
        self.late = False  # whether another tower ends before the first one begins
        self._tried, self._depth = 0, 0
        self._calls: list[_Call] = []
        self._nested: dict[int, Any] = {}  # modules that were called within these
        self._handles: list[Any] = []

    def put(self) -> bool:
        """A step begins. Whether parts have just been found."""
        self._stop()
        if self.called or self.alone is not None or self.given or self.last:
            self._tried = _TRIES
            return False
        found = self._calls and self._choose()
        self._calls, self._nested = [], {}
        if found or self._tried >= _TRIES or is_compiled():
            return bool(found)
        self._tried += 1
        for module in self._model.modules():
            if module is not self._model:
                self._handles += [
                    before(module, self._began, with_kwargs=True),
                    after(module, self._ended, always_call=True),
                ]
        self._depth = 0
        self._ask(self._loss_is)
        return False

    def _began(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        import torch

        self._depth += 1
        if self._depth > 1:
            self._nested[id(module)] = module
        if self._depth > 1 or len(self._calls) >= _MOST or not torch.is_grad_enabled() or in_backward():
            return
        size, what = -1, None
        with contextlib.suppress(Exception):
            tensors = list(dense_tensors((*given, *named.values())))
            if tensors and has_no_gradient(tensors):
                rows = [one for one in tensors if one.dim() > 1 and len(one) > 1]
                size = max([one.numel() for one in rows], default=0)
                what = place_of(max(rows or tensors, key=lambda one: one.numel()))
        self._calls.append(_Call(module, size, what))

    def _ended(self, module: Any, given: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)
        if not self._depth and self._calls and self._calls[-1].module is module and not in_backward():
            with contextlib.suppress(Exception):
                self._calls[-1] = self._calls[-1]._replace(node=getattr(first_tensor(output), "grad_fn", None))

    def _loss_is(self, root: Any) -> None:
        """The first backward pass of the step is over."""
        self._stop()
        ends = {call.node: id(call.module) for call in self._calls if reaches(root, call.node)}
        begins = {call.node: number for number, call in enumerate(self._calls) if call.size >= 0 and call.node}
        if max(len(ends), len(begins)) <= _SIDES:
            for node, module in ends.items():
                for number in _found_behind(node, begins):
                    call = self._calls[number]
                    self._calls[number] = call._replace(leads=call.leads | {module})
        self._calls = [call._replace(node=call.node in ends) for call in self._calls]

    def _choose(self) -> bool:
        calls = [call for call in self._calls if call.node is True or call.size >= 0]
        several = {id(call.module) for call in self._calls}
        begins = {id(call.module): call for call in calls if call.size >= 0}
        ends = {id(call.module): call.module for call in calls if call.node is True}
        if len(several) == 1 and begins:
            self.alone = calls[0].module
            inside = {id(one) for one in self.alone.modules()}
            self.beside = [one for key, one in self._nested.items() if key not in inside]
            return True
        largest = max((call.size for call in begins.values()), default=0)
        self.first = next((call.module for call in begins.values() if call.size == largest > 0), None)
        self.given = [call.module for call in begins.values() if call.module is not self.first]
        self.last = list(ends.values())
        if self.first is not None:
            self._find_towers()
        return bool(self.first is not None or self.given or self.last)

    def _find_towers(self) -> None:
        own = [call for call in self._calls if call.module is self.first]
        known = frozenset({id(self.first)}).union(*(call.leads for call in own))
        same = [call.what for call in own]
        apart = {id(call.module): call.module for call in self._calls
                 if call.module is not self.first and call.leads - known and call.what not in same}  # fmt: skip
        self.towers = list(apart.values())[:_TOWERS]
        places = [call.module for call in self._calls if call.size >= 0 or call.node is True]
        ended = [call.node is True for call in self._calls if call.size >= 0 or call.node is True]
        self.late = True in ended[: places.index(self.first)]

    def _stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def close(self) -> None:
        """Leave no hook behind."""
        self._stop()
        self._calls = []


def _found_behind(root: Any, wanted: Mapping[Any, int]) -> set[int]:
    """Which of these nodes one is made of."""
    waiting, seen = [root], {root}
    while waiting and len(seen) < _NODES:
        for node in behind(waiting.pop()):
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return {wanted[node] for node in seen if node in wanted}


def has_no_gradient(tensors: Iterable[Any]) -> bool:
    """Whether these tensors are given to a model, and neither made by it nor trained."""
    return not any(one.requires_grad for one in tensors)


def in_backward() -> bool:
    """Whether a backward pass runs on this thread: a part that is called in it is computed once more."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)
