"""In which mode the layers are that drop numbers: as modules, or by functions that follow a module's mode.

In:   a model; one or two passes of its training; steps.
Out:  whether the mode makes a difference, and in which one a pass is; a figure for the `model` record behind each
      evaluation; what `packed` says of these passes.

`F.dropout(x, p, self.training)` is in no module that is made for it. Of the first two passes of the training functions
are seen as they are called: whose code calls one that drops numbers has a mode, too. Behind an evaluation modules that
drop numbers are looked at: some that were in training mode before may have been left in evaluation mode, as one tower
of two, whether the other one drops numbers or not. Batch norm may be kept as it is on purpose, and so may what is not
trained.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.compiled import CompiledWithin
from barograph.probes.model.doubles import has_mode
from barograph.probes.model.drops import HandDrops
from barograph.probes.model.evaluated import drops_numbers
from barograph.probes.model.guest import Shown, after, before
from barograph.probes.model.packed import PackedLayers
from barograph.probes.model.parts import in_backward

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_PASSES = 2
_STEPS = 3  # behind which the modes of the training are known
_FRAMES = 48  # of the calls around a function


class TrainedLook:
    """Looks at the first passes of the training for functions that drop numbers, and for what is read of layers in few
    bits, and takes its hooks away."""

    def __init__(self, model: Any, owners: weakref.WeakSet[Any]):
        self._owners, self._passes = owners, 0
        self._mode: Shown | None = None
        self._within, self._drops = CompiledWithin(), HandDrops()
        self._packed = PackedLayers()
        self.packed: dict[str, Any] = {}  # of the last pass, not yet recorded
        self._handles = [before(model, self._began), after(model, self._ended, always_call=True)]

    def _began(self, module: Any, given: Any) -> None:
        import torch

        if not module.training or not torch.is_grad_enabled() or self._mode is not None or in_backward():
            return
        if self._within.may_be(module):
            self.close()  # parts that are compiled would be so again beneath a mode
            return
        self._within.began()
        self._passes += 1
        self._drops, self._packed = HandDrops(), PackedLayers(module)
        self._mode = Shown(ended=self._saw)

    def _ended(self, module: Any, given: Any, output: Any) -> None:
        import torch

        self._within.ended()
        if self._mode is None or not self._mode.end():
            return
        self._mode, self._drops = None, HandDrops()
        with torch.no_grad(), contextlib.suppress(Exception):  # a tensor of another make says nothing
            self.packed = self._packed.end()
        if self._passes >= _PASSES:
            self.close()

    def _saw(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any], result: Any) -> None:
        self._packed.saw(arguments, named)
        if drops_numbers(getattr(function, "__name__", ""), arguments, named, result, self._drops):
            owner = _owner()
            if owner is not None and not has_mode(owner):  # a module of torch's may get a share of 0
                self._owners.add(owner)

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._mode is not None and self._mode.end():
            self._mode = None


class LayerModes:
    """The modes of one model's layers. listens: whether its passes may be looked at."""

    def __init__(self, model: Any, listens: bool):
        self._model, self._whole = model, model
        self._owners: weakref.WeakSet[Any] = weakref.WeakSet()  # modules whose code drops numbers
        self._differ = any(map(has_mode, model.modules()))
        self._beside: Sequence[Any] = ()  # modules elsewhere that run within its passes
        self._parts = False  # whether the model is called by its parts
        self._looks = [TrainedLook(model, self._owners)] if listens else []
        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()  # in training mode before the first evaluation
        self._steps, self._told = 0, False
        self._around: dict[int, Any] = {}  # the module that each is a part of, by its id
        self._known: tuple[int, list[Any]] = (-1, [])  # layers that have a mode, and of how many owners that was

    def _modules(self) -> Iterable[Any]:
        return (*self._model.modules(), *self._beside)

    def _has(self, module: Any) -> bool:
        return has_mode(module) or module in self._owners

    def follow(self, alone: Any, parts: Iterable[Any], beside: Sequence[Any] = ()) -> None:
        """The model is not called, but these: one that stands for it, or several. beside: modules elsewhere that
        run within the passes of that one."""
        self.close()
        self._model, self._parts, self._beside = self._whole if alone is None else alone, alone is None, beside
        self._around = {}
        self._differ = any(map(has_mode, self._modules()))
        several = {id(one): one for one in ([alone] if alone is not None else parts) if one is not None}
        self._looks = [TrainedLook(one, self._owners) for one in several.values()]

    def of(self, module: Any, trains: bool = True) -> bool | None:
        """Whether a pass is in training mode; None where that makes no difference, or parts are in different ones, as a
        frozen one may be. Of a training's pass layers count that are trained, or are a part of what is."""
        if not self._differ and not self._owners:
            return None
        layers = self._switched() if self._parts else []
        modes = {bool(one.training) for one in layers or (module,)}
        if len(modes) > 1:
            return None
        mode = modes.pop()
        if trains and not mode:  # a backbone that is frozen belongs there, and what is trained on it may have no mode
            trained = [one for one in self._switched() if self._is_trained([one])]
            return any(one.training for one in trained) if trained else None
        if mode and not trains and not layers:  # all that has a mode may be in evaluation mode, in a model that is not
            every = self._modules() if module is self._model else module.modules()
            return any(one.training for one in every if self._has(one))
        return mode

    @property
    def kinds(self) -> frozenset[type]:
        """Classes whose code drops numbers by functions."""
        return frozenset(type(one) for one in self._owners)

    def _switched(self) -> list[Any]:
        """All layers that have a mode."""
        if self._known[0] != len(self._owners):
            self._known = len(self._owners), [one for one in self._modules() if self._has(one)]
        return self._known[1]

    def put(self, current: ModelRound, evaluated: bool) -> None:
        """A step ends. evaluated: whether an evaluation came between it and the one before."""
        for look in self._looks:
            for name, count in look.packed.items():
                current.put(name, ("",), count.reshape(1))
            look.packed = {}
        if not evaluated:
            self._steps += 1
            if self._steps <= _STEPS:
                self._trained |= {one for one in self._dropping() if one.training}
            return
        if not self._trained:
            return
        self._steps = _STEPS
        dropping = self._dropping()
        left = [one for one in self._trained & set(dropping) if not one.training]
        apart = any(one.training for one in dropping) or self._rest_trains(left)
        part = bool(left) and apart and self._is_trained(left)
        if part or self._told:
            current.figures["part_in_evaluation"] = float(part)
        self._told = part

    def _dropping(self) -> list[Any]:
        every = (one for one in self._modules() if self._has(one))
        return [one for one in every if "BatchNorm" not in type(one).__name__]

    def _is_trained(self, left: Sequence[Any]) -> bool:
        """Whether each of these has parameters that are trained, or what it is a part of has, where it has none."""
        return all(any(item.requires_grad for item in owner.parameters()) for owner in map(self._owner_of, left))

    def _rest_trains(self, left: Sequence[Any]) -> bool:
        """Whether other layers that are trained are in training mode, and of these layers, the only ones that drop
        numbers, what each is a part of is not: who switches dropout off for good leaves that as it was."""
        if any(self._owner_of(one).training for one in left):
            return False
        every = (one for one in self._modules() if one.training)
        return any(item.requires_grad for one in every for item in one.parameters(recurse=False))

    def _owner_of(self, layer: Any) -> Any:
        """What has parameters: the layer itself, or what it is a part of."""
        if not self._around:
            self._around = {id(child): part for part in self._whole.modules() for child in part.children()}
        return layer if any(True for _ in layer.parameters()) else self._around.get(id(layer), layer)

    def close(self) -> None:
        """Leave no hook behind."""
        for look in self._looks:
            look.close()
        self._looks = []


def _owner() -> Any:
    """The module whose code runs."""
    import torch

    frame: Any = sys._getframe(1)
    for _ in range(_FRAMES):
        frame = frame.f_back
        if frame is None:
            return None
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self":
            owner = frame.f_locals.get("self")
            if isinstance(owner, torch.nn.Module):
                return owner
    return None
