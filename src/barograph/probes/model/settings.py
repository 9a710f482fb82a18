"""Settings of layers and optimizers that a training can be judged by, and optimizers that are never stepped.

In:   a torch model; its optimizers.
Out:  figures for the `model` record when one changes; numbers on the host, nothing waits for a device.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeGuard

from barograph.probes.model.findings import listed
from barograph.probes.model.rounds import ModelRound
from barograph.probes.model.written import some_of

_IDLE = 100  # steps of the others
_UNSTEPPED = 20  # of the loop
_COMPARED = 8  # parameters
_SCALED = ("alpha", "rho", "lr_decay")  # settings of RMSprop, Adadelta and Adagrad
_SHARED = 20  # steps, in which two optimizers have stepped the same parameters
_LONG = 0.99  # a first beta of Adam that is usual
_SHORT, _TWICE = 0.9, 1.9  # the least usual one; times as long as that of squares
_AGAIN = 8  # steps, after which settings of layers are read again
_LOOKED_AT = 4  # gradients of an optimizer that is never stepped


def layer_settings(model: Any) -> dict[str, float]:
    """`dropout`: the largest probability of a layer. `norm_epsilon`: the largest of a normalisation.
    `norm_momentum`: the largest weight of a batch in running statistics."""
    dropout, epsilon, momentum = [], [], []
    for module in model.modules():
        kind = type(module).__name__
        share: Any = getattr(module, "p" if "Dropout" in kind else "dropout", None)
        if _is_number(share):
            dropout.append(float(share))
        if "Norm" in kind:
            value: Any = getattr(module, "eps", getattr(module, "variance_epsilon", None))
            if _is_number(value):
                epsilon.append(float(value))
            if getattr(module, "running_mean", None) is not None and _is_number(module.momentum):
                momentum.append(float(module.momentum))
    found = {"dropout": dropout, "norm_epsilon": epsilon, "norm_momentum": momentum}
    return {name: max(values) for name, values in found.items() if values}


class LayerSettings:
    """`layer_settings`, at the start and where they have changed behind passes without gradients: an evaluation may
    have set dropout to 0."""

    def __init__(self, model: Any):
        self._model, self._last, self._steps = model, dict[str, float](), 0

    def read(self) -> dict[str, float]:
        self._last = layer_settings(self._model)
        return self._last

    def again(self, evaluated: bool) -> dict[str, float]:
        """A step begins. evaluated: behind passes without gradients."""
        self._steps += 1
        if not evaluated or self._steps < _AGAIN or not self._last.get("dropout", 0.0) > 0:
            return {}
        last, self._steps = self._last, 0
        return {name: value for name, value in self.read().items() if value != last.get(name)}


def group_settings(groups: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """`epsilon`, of Adam and its kind; `momentum`, of what is added up undamped, or Adam's first beta where it is above
    0.99; `betas_swapped`: whether the first moment of Adam is averaged over more steps than the second;
    `coupled_decay`, of weights that is added to the gradient of Adam and its kind, before it is divided by its size;
    `scale_free`: that steps don't grow with the gradient, which is divided by its size, or of which the sign is taken:
    of Adam, RMSprop, Adagrad and their kind, and of what has betas and no epsilon, as Lion."""
    epsilon, momentum, swapped, coupled, free = [], [], [], [], []
    for group in groups:
        betas = group.get("betas")
        if betas is not None or any(name in group for name in _SCALED):
            free.append(1.0)
        if is_coupled(group):
            coupled.append(float(group["weight_decay"]))
        if isinstance(betas, (tuple, list)) and len(betas) == 2 and all(map(_is_number, betas)):
            longer = 1 - betas[1] > _TWICE * (1 - betas[0])
            swapped.append(float(betas[1] < _LONG and betas[0] >= _SHORT and longer))
            if betas[0] > _LONG and not swapped[-1]:
                momentum.append(float(betas[0]))
            if _is_number(group.get("eps")):
                epsilon.append(float(group["eps"]))
        elif _is_number(group.get("momentum")) and group.get("dampening", 0) == 0:
            momentum.append(float(group["momentum"]))
    found = {"epsilon": epsilon, "momentum": momentum, "betas_swapped": swapped, "coupled_decay": coupled,
             "scale_free": free}  # fmt: skip
    return {name: max(values) for name, values in found.items() if values}


def is_coupled(group: Mapping[str, Any]) -> bool:
    """Whether the decay of weights goes through the division by the gradient's size, as in torch's Adam and RMSprop; in
    AdamW it does not."""
    decay = group.get("weight_decay")
    adam = "betas" in group and group.get("decoupled_weight_decay") is False
    scaled = "betas" not in group and not group.get("decoupled_decay") and any(name in group for name in _SCALED)
    return (adam or scaled) and _is_number(decay) and decay > 0


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Unstepped:
    """Steps of the loop in which backward passes left gradients, and no optimizer stepped since the start."""

    def __init__(self) -> None:
        self._first = -1
        self._versions: list[int] = []
        self._kept: list[tuple[Any, Any]] = []
        self._told = False

    def came(self, upcoming: int, parameters: Collection[Any]) -> list[ModelRound]:
        """A backward pass of a step; what there is to say of it: how many steps changed no weight."""
        import torch

        if self._told or (self._first >= 0 and upcoming - self._first < _UNSTEPPED):
            return []
        versions = [item._version for item in parameters]
        if self._first < 0 or versions != self._versions:  # written by hand
            self._first, self._versions = upcoming, versions
            every = list(parameters)
            self._kept = [(item, some_of(item).clone()) for item in every[:: max(1, len(every) // _COMPARED)]]
            return []
        self._told = True
        if not all(torch.equal(some_of(item), values) for item, values in self._kept):  # and counted by no tensor
            return []
        norms = [torch.linalg.vector_norm(item.grad.detach().float()) for item in parameters if item.grad is not None]
        size = float(sum(norms[1:], norms[0])) if norms else 0.0
        if not 0 < size < float("inf"):
            return []
        current = ModelRound(upcoming, frozenset())
        current.figures["unstepped"] = float(upcoming - self._first)
        current.send()
        return [current]


class IdleOptimizers:
    """Watched optimizers that never step while others do, those that take the place of another, and two that step the
    same parameters."""

    def __init__(self) -> None:
        self._steps = 0
        self._stepped: set[int] = set()
        self._names: dict[int, list[str]] = {}
        self._last = 0
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers that have stepped
        self._held: set[int] = set()  # what they step
        self._replaced = 0
        self._together = 0  # steps in which several optimizers stepped

    def rested(self, current: ModelRound) -> None:
        """A step is over that was not looked at."""
        self._stepped |= current.begun

    def ended(self, current: ModelRound, optimizers: Collection[Any], names: Mapping[int, str]) -> set[str]:
        """A step is over. The parameters of optimizers without a step that have a gradient nevertheless, by name."""
        import torch

        self._stepped |= current.begun
        self._met_anew(current, [one for one in optimizers if id(one) in current.begun and one not in self._met], names)
        self._shared(current, [one for one in optimizers if id(one) in current.begun], names)
        idle = [optimizer for optimizer in optimizers if id(optimizer) not in self._stepped]
        self._steps += 1
        if not idle and not self._last:
            return set()
        held = [
            [item for group in optimizer.param_groups for item in group["params"] if id(item) in names]
            for optimizer in idle
        ]
        reached = [[item for item in items if item.grad is not None] for items in held]
        if self._steps == _IDLE or (self._steps > _IDLE and len(idle) < self._last):
            some = [items for items in reached if items]
            self._last = len(some)
            current.figures["idle_optimizers"] = float(len(some))
            if some:
                squares = [item.grad.detach().float().square().sum() for items in some for item in items[:_LOOKED_AT]]
                home = squares[0].device
                current.put("idle_gradient", ("",), torch.stack([item.to(home) for item in squares]).amin().reshape(1))
                current.figures["idle"] = listed(names[id(item)] for items in some for item in items)
        return {names[id(item)] for items in reached for item in items}

    def _shared(self, current: ModelRound, stepped: Collection[Any], names: Mapping[int, str]) -> None:
        """Parameters that two optimizers stepped in this step, neither of which works through the other."""
        self._together += len(stepped) > 1
        if len(stepped) < 2 or self._together != _SHARED:
            return
        within = {id(part) for one in stepped for part in vars(one).values() if hasattr(part, "param_groups")}
        tables = {id(one.param_groups): one for one in stepped if id(one) not in within}
        held = [{id(item) for group in one.param_groups for item in group["params"]} for one in tables.values()]
        shared = {item for place, items in enumerate(held) for other in held[:place] for item in items & other}
        some = [names[item] for item in names if item in shared]
        if some:
            current.figures |= {"shared_parameters": float(len(some)), "shared": listed(some)}

    def _met_anew(self, current: ModelRound, fresh: Collection[Any], names: Mapping[int, str]) -> None:
        """Optimizers make their first step: of those that step what another one stepped before, how many so far."""
        taken = 0
        for optimizer in fresh:
            self._met.add(optimizer)
            items = {id(item) for group in optimizer.param_groups for item in group["params"] if id(item) in names}
            taken += bool(self._steps) and not items.isdisjoint(self._held)
            self._held |= items
        if taken:
            self._replaced += taken
            current.figures["optimizers_replaced"] = float(self._replaced)


def end_token(model: Any) -> dict[str, float]:
    """`end_token`: what the model's own configuration says ends a text, the first of several."""
    with contextlib.suppress(Exception):  # a configuration of another make
        token = getattr(model.config, "eos_token_id", None)
        token = token[0] if isinstance(token, (list, tuple)) else token
        if isinstance(token, int) and token >= 0:
            return {"end_token": float(token)}
    return {}
