"""Parts of a model that are given its inputs themselves, and are called alone in an evaluation.

In:   inputs of the model's passes; calls of its parts.
Out:  what these parts are given in evaluations.

An evaluation often asks a part alone: the encoder of a pair of networks for its features, a backbone without its head.
Which parts are given the model's own inputs is seen in one pass of the training, by addresses and shapes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.activations import dense_tensors
from barograph.probes.model.doubles import UsualPasses
from barograph.probes.model.guest import before, is_compiled
from barograph.probes.model.parts import in_backward

if TYPE_CHECKING:
    from torch import Tensor

_TRIES = 3  # steps in which parts are looked for
_MOST = 8  # parts


class EnteredParts:
    """Finds such parts, and listens to them. inside: whether a call of the model is running. came: is given the place
    of the model's input, and what a part is given in its place."""

    def __init__(self, model: Any, inside: Callable[[], bool], came: Callable[[int, Tensor], None]):
        self._model, self._inside, self._came = model, inside, came
        self._known: dict[tuple[int, int], int] = {}  # address and size of an input → its place
        self._parts: list[tuple[Any, int, tuple[int, ...]]] = []  # part, place, shape of what it was given
        self._handles: list[Any] = []
        self._tried, self._looks = 0, False
        self._passes = UsualPasses()
        self._newest: tuple[int, tuple[int, ...]] | None = None

    def trained(self, tensors: Sequence[Tensor]) -> None:
        """A pass of the training begins."""
        if self._looks:
            self._known = _places(tensors)
        elif self._tried < _TRIES and not self._parts:
            self._tried += 1
            if is_compiled():
                return
            self._looks, self._known = True, _places(tensors)
            self._handles = [before(one, self._began) for one in self._model.modules() if one is not self._model]

    def _began(self, module: Any, given: Sequence[Any]) -> None:
        """A part is called, in the step in which they are looked for."""
        with contextlib.suppress(Exception):
            tensor = next(dense_tensors(given), None)
            place = None if tensor is None else self._known.get((tensor.data_ptr(), tensor.numel()))
            if (
                tensor is not None
                and place is not None
                and len(self._parts) < _MOST
                and all(one is not module for one, _, _ in self._parts)
            ):
                self._parts.append((module, place, tuple(tensor.shape)))

    def _called(self, at: int) -> Callable[..., None]:
        _, place, shape = self._parts[at]

        def called(module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
            import torch

            if torch.is_grad_enabled() or self._inside() or in_backward():
                return
            with contextlib.suppress(Exception):
                tensor = next(dense_tensors((*given, *named.values())), None)
                if tensor is None or tensor.dim() != len(shape) or tensor.shape[1:2] != shape[1:2]:
                    return
                now = tensor.data_ptr(), tuple(tensor.shape)
                if now != self._newest and self._passes.came():  # a part of a part is given the same
                    self._came(place, tensor)
                self._newest = now

        return called

    def put(self) -> None:
        """A step begins."""
        self._newest = None
        if self._looks:
            self._stop()
            self._looks, self._known = False, {}
            self._handles = [
                before(part, self._called(at), with_kwargs=True) for at, (part, _, _) in enumerate(self._parts)
            ]
        elif self._parts:
            self._passes.put()

    def _stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def close(self) -> None:
        """Leave no hook behind."""
        self._stop()
        self._parts = []


def _places(tensors: Sequence[Tensor]) -> dict[tuple[int, int], int]:
    return {(one.data_ptr(), one.numel()): at for at, one in enumerate(tensors) if one.dim() > 1}
