"""The parts of a model that a training calls in the model's place.

In:   calls of a model's parts in one step, and the graph of that step's loss.
Out:  the part that is given the examples, those that are given anything else that has no gradient, and those whose
      output goes into the loss by functions without weights.

`model.loss(batch)`, `model.training_step(batch)`, `model.encode(x)`, or two networks that are watched as one: the model
itself is never called, and no hook on it says anything. Then its parts are listened to for one step. Of the calls that
no other call is around, those that are given tensors without gradient begin a pass, and the graph proves which ones end
it. One part that does both, as the network in a `LightningModule`, stands for the model in all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from barograph.probes.model.activations import dense_tensors, first_tensor
from barograph.probes.model.guest import after, before, is_compiled
from barograph.probes.model.head import reaches

_TRIES = 3  # steps
_MOST = 256  # calls of a step


class _Call(NamedTuple):
    """module: a part. size: of the largest tensor of rows that it was given, where none of what it was given has a
    gradient; -1 where one has, or there is none. node: what made its output."""

    module: Any
    size: int
    node: Any


class CalledParts:
    """Looks for them where the model is not called. `ask(call)`: has `call` given the next loss's last node."""

    def __init__(self, model: Any, ask: Callable[[Callable[[Any], Any]], Any]):
        self._model, self._ask = model, ask
        self.called = False  # the model itself, in a pass with gradients
        self.alone: Any = None  # the part that stands for the model
        self.first: Any = None  # the part that is given the examples, where there are several
        self.given: list[Any] = []  # others that are given tensors without gradient
        self.last: list[Any] = []  # parts whose output the loss is made of
        self._tried, self._depth = 0, 0
        self._calls: list[_Call] = []
        self._handles: list[Any] = []

    def put(self) -> bool:
        """A step begins. Whether parts have just been found."""
        self._stop()
        if self.called or self.alone is not None or self.given or self.last:
            self._tried = _TRIES
            return False
        found = self._calls and self._choose()
        self._calls = []
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
        if self._depth > 1 or len(self._calls) >= _MOST or not torch.is_grad_enabled() or in_backward():
            return
        size = -1
        with contextlib.suppress(Exception):
            tensors = list(dense_tensors((*given, *named.values())))
            if tensors and not any(one.requires_grad for one in tensors):
                size = max([one.numel() for one in tensors if one.dim() > 1 and len(one) > 1], default=0)
        self._calls.append(_Call(module, size, None))

    def _ended(self, module: Any, given: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)
        if not self._depth and self._calls and self._calls[-1].module is module and not in_backward():
            with contextlib.suppress(Exception):
                self._calls[-1] = self._calls[-1]._replace(node=getattr(first_tensor(output), "grad_fn", None))

    def _loss_is(self, root: Any) -> None:
        """The first backward pass of the step is over."""
        self._stop()
        self._calls = [call._replace(node=reaches(root, call.node)) for call in self._calls]

    def _choose(self) -> bool:
        calls = [call for call in self._calls if call.node is True or call.size >= 0]
        several = {id(call.module) for call in self._calls}
        begins = {id(call.module): call for call in calls if call.size >= 0}
        ends = {id(call.module): call.module for call in calls if call.node is True}
        if len(several) == 1 and begins:
            self.alone = calls[0].module
            return True
        largest = max((call.size for call in begins.values()), default=0)
        chosen = [call.module for call in begins.values() if call.size == largest > 0]
        self.first = chosen[0] if len(chosen) == 1 else None
        self.given = [call.module for call in begins.values() if call.module is not self.first]
        self.last = list(ends.values())
        return bool(self.first is not None or self.given or self.last)

    def _stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def close(self) -> None:
        """Leave no hook behind."""
        self._stop()
        self._calls = []


def in_backward() -> bool:
    """Whether a backward pass runs on this thread: a part that is called in it is computed once more."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)
