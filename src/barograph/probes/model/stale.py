"""Gradients that nobody cleared: what an optimizer's step has used is still there when the next backward adds to it.

In:   an optimizer that has stepped, with its parameters; hooks that autograd calls as gradients arrive.
Out:  for each step whether its gradients were added to those of the step before.

Nothing is waited for. A tensor counts its changes in place: a gradient that is the very tensor of the step before, with
exactly one change since, has been added to and not been zeroed. Set to None it is another tensor; zeroed, scaled or
overwritten in place it has one change more. But a device's functions over many tensors, with which `zero_grad` of a
fused optimizer zeroes them, count nothing: it must hold something, too, when the first gradient of a step comes. What
counts is the whole step: accumulation over micro-batches starts from a cleared gradient, and one that is cleared before
its own last backward pass (a GAN's generator, through which the discriminator's pass went too) is not stale.

Two parameters of each optimizer are looked at; of one that holds copies of the watched parameters alone, as those that
are kept in full beside weights of sixteen bits, the parameters that these are copies of, while the copies' gradients
are theirs, times a number. Where a gradient shares its counter with others (DDP's bucket
views) or comes without autograd's accumulation (FSDP2), it is compared when the model's output gets its gradient,
before anything arrives. Without a backward pass that is seen there is no verdict: in a replayed CUDA graph
gradients change and no counter does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from barograph.probes.model.backward import tensors
from barograph.probes.model.guest import Guest, after
from barograph.probes.model.parameters import Known, mesh_of, spread

if TYPE_CHECKING:
    from barograph.probes.model.looks import Looks

_ELEMENTS = 4096  # of a gradient
_ALIKE = 0.99999  # of the squares' product, of gradients that are the same but for a number and their rounding


class _Sample:
    """One parameter. `still`: so far in this step its gradient is the one of the step before, added to alone.
    `left`: how many of some of its elements were not 0 then. `at_start`: compared when a backward pass begins; `begun`:
    it has."""

    __slots__ = (
        "arrived", "at_start", "begun", "copy", "known", "left", "mark", "parameter", "sharded", "still", "version"
    )  # fmt: skip

    def __init__(self, parameter: Any, at_start: bool, copy: Callable[[], Any] | None = None):
        self.parameter, self.at_start, self.copy = parameter, at_start, copy
        self.sharded = mesh_of(parameter) is not None
        self.mark: Callable[[Any], bool] = _unknown  # gradients are not kept alive
        self.version, self.left = 0, cast("Any", None)
        self.still = self.arrived = self.known = self.begun = False

    def remember(self) -> None:
        """The step is over: this is what it has used."""
        gradient = _inner(self.parameter.grad)
        self.known, self.arrived, self.begun = True, False, False
        self.still, self.left = gradient is not None, None
        if gradient is not None:
            if not self.mark(gradient):
                self.mark = Known(gradient)
            self.version = changes(self.parameter.grad)

    def come(self) -> None:
        """A gradient is about to be accumulated."""
        if self.still and not self.at_start and not self.arrived and self.parameter.grad is not None:
            self.left = _filled(self.parameter.grad)

    def add(self, between: int = 0) -> None:
        """A gradient has been accumulated. between: changes that may come between two of them in a step."""
        if self.still and not self.at_start:
            gradient = self.parameter.grad
            if gradient is None or not self.mark(gradient):
                self.still = False
            else:
                more = gradient._version - self.version
                self.still = more == 1 or (self.arrived and 1 < more <= 1 + between)
                self.version += more
        self.arrived = True

    def start(self) -> None:
        """A backward pass begins."""
        if not self.begun:
            self.begun, self.arrived = True, self.arrived or self.sharded  # a sharded one tells no arrivals
            gradient = _inner(self.parameter.grad)
            self.still = (
                self.still
                and gradient is not None
                and self.mark(gradient)
                and changes(self.parameter.grad) == self.version
            )
            if self.still:
                self.left = _filled(gradient)

    def used(self) -> Any:
        """What `left` says, where the step has used this gradient: that of a copy of the parameter is the same."""
        copy = self.copy() if self.copy is not None else None
        if self.copy is None or self.left is None:
            return self.left
        return None if copy is None else self.left * _alike(copy.grad, self.parameter.grad)

    def stale(self) -> bool | None:
        """The verdict at the end of a step; None where no backward pass was seen, or no step before."""
        if not self.known or not self.arrived or self.begun < self.at_start:
            return None
        gradient = _inner(self.parameter.grad)
        return self.still and gradient is not None and self.mark(gradient)


class StaleGradients:
    """Follows the gradients of a model's optimizers. `model`: whose output begins a backward pass."""

    def __init__(self, model: Any):
        self._model = model
        self._samples: dict[int, tuple[tuple[Any, ...], list[_Sample]]] = {}  # by optimizer
        self._by_parameter: dict[int, _Sample] = {}
        self._handles: dict[int, list[Any]] = {}
        self._on_output: Any = None
        self._rests = False
        # DDP writes a reduced gradient back after each of its backward passes
        self._between = int(type(model).__name__ == "DistributedDataParallel")

    def __deepcopy__(self, memo: Any) -> StaleGradients:
        """Copying a model copies its hooks: those stay what they are."""
        return self

    def rest(self, rests: bool) -> None:
        """From here on steps are not followed, or again: then nothing is known of the step before."""
        self._rests = rests
        for sample in self._by_parameter.values():
            sample.known = sample.still = sample.arrived = sample.begun = False

    def stepped(self, optimizer: Any, looks: Looks) -> tuple[bool, list[Any]] | None:
        """An optimizer has stepped. Whether it used gradients that were added to those of its step before, if one of
        the numbers that come with it is not 0. looks: what knows its parameters."""
        parameters, copies = looks.own(optimizer).parameters, ()
        if not parameters:
            copies = looks.copies.of(optimizer, looks.names, looks.parameters).parameters
            parameters = looks.parameters if copies else ()
        known = self._samples.get(id(optimizer))
        if known is None or known[0] is not parameters:
            self._choose(optimizer, parameters, copies)
            return None
        present = [(verdict, sample.used()) for sample in known[1] if (verdict := sample.stale()) is not None]
        for sample in known[1]:
            sample.remember()
        if not known[1]:
            self._choose(optimizer, parameters, copies)  # no gradient at its first step
        still = [left for verdict, left in present if verdict and left is not None]
        return (bool(still), still) if present else None

    def _choose(self, optimizer: Any, parameters: tuple[Any, ...], copies: tuple[Any, ...]) -> None:
        self._let_go(id(optimizer))
        copy_of = {id(one): weakref.ref(copy) for one, copy in zip(parameters, copies, strict=False)}
        having = [
            parameter
            for parameter in parameters
            if _can_be_followed(parameter) and id(parameter) not in self._by_parameter
        ]
        some = dict.fromkeys(having[-1:] + having[:1])
        chosen = [_Sample(item, _at_start(item), copy_of.get(id(item))) for item in some]
        self._samples[id(optimizer)] = (parameters, chosen)
        handles = self._handles[id(optimizer)] = []
        for sample in chosen:
            self._by_parameter[id(sample.parameter)] = sample
            if not sample.sharded:
                handles.append(sample.parameter.register_post_accumulate_grad_hook(Guest(self._arrived)))
                if not sample.at_start:
                    handles.append(sample.parameter.register_hook(Guest(partial(self._comes, sample))))
            if sample.at_start and self._on_output is None:
                self._on_output = after(self._model, self._hook_output)
            sample.remember()

    def _let_go(self, optimizer: int) -> None:
        for sample in self._samples.pop(optimizer, ((), []))[1]:
            self._by_parameter.pop(id(sample.parameter), None)
        for handle in self._handles.pop(optimizer, []):
            handle.remove()

    # -- hooks -------------------------------------------------------------------------------------------

    def _comes(self, sample: _Sample, gradient: Any) -> None:
        if not self._rests:
            try:
                sample.come()
            except Exception:  # of another make
                sample.still = False

    def _arrived(self, parameter: Any) -> None:
        sample = self._by_parameter.get(id(parameter))
        if sample is not None and not self._rests:
            try:
                sample.add(self._between)
            except Exception:  # a tensor that counts no changes
                sample.still = False

    def _hook_output(self, module: Any, given: Any, output: Any) -> None:
        for tensor in tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(Guest(self._begins))
                return

    def _begins(self, gradient: Any) -> None:
        for sample in tuple(self._by_parameter.values()):
            if sample.at_start:
                try:
                    sample.start()
                except Exception:  # a tensor that counts no changes
                    sample.still = False

    def close(self) -> None:
        """Take the hooks away."""
        for optimizer in list(self._samples):
            self._let_go(optimizer)
        if self._on_output is not None:
            self._on_output.remove()
            self._on_output = None


def _can_be_followed(parameter: Any) -> bool:
    gradient = parameter.grad
    return gradient is not None and _strided(_inner(gradient)) and not gradient.is_inference()


def _strided(gradient: Any) -> bool:
    """A sparse gradient is made anew by each accumulation."""
    import torch

    return bool(gradient.layout == torch.strided)


def _at_start(parameter: Any) -> bool:
    return mesh_of(parameter) is not None or bool(parameter.grad._is_view())


def _inner(gradient: Any) -> Any:
    """What of a DTensor is in this process; any other tensor itself."""
    return gradient if gradient is None or mesh_of(gradient) is None else gradient._local_tensor


def _filled(gradient: Any) -> Any:
    """How many of some elements, at even distances, are not 0."""
    import torch

    with torch.no_grad():
        return spread(gradient, _ELEMENTS).count_nonzero()


def _alike(one: Any, other: Any) -> Any:
    """1 where a gradient is another one times a number, by some of their elements; else 0."""
    import torch

    if one is None or other is None or one.shape != other.shape or one.device != other.device:
        return 0
    with torch.no_grad():
        mine, theirs = (spread(each, _ELEMENTS).float() for each in (one, other))
        return ((mine * theirs).sum().square() >= _ALIKE * mine.square().sum() * theirs.square().sum()).long()


def changes(gradient: Any) -> int:
    """How often a gradient was changed in place; zeroing a DTensor counts in itself, adding to it in its part."""
    inner = _inner(gradient)
    count: int = gradient._version
    return count if inner is gradient else count + int(inner._version)


def _unknown(tensor: Any) -> bool:
    return False
