"""Hooks around the steps of optimizers: those that were given, or those that turn out to step a model.

In:   optimizers, or the names of parameters by id to know them by.
Out:  a call before and after each of their steps, and one after each step of other optimizers. A step that is given a
      closure has no gradients before its first call: the call before the step is then the one after that.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

from barograph.probes.model import schedulers
from barograph.probes.model.guest import is_followed
from barograph.probes.model.parameters import shape_of

_WRAPPER = "torch/optim/optimizer.py"  # where hooks are called, around each class of step
_TAKEN_OVER = 3  # steps in a row of another optimizer over the same parameters
_SCHEDULED = 20  # steps, behind which the schedulers of the watched optimizers are looked for
_FRAMES = 24  # from a scaler's step to a hook of the optimizer's, with schedulers' and others' wrappers between


def optimizers_of(given: Any) -> tuple[Any, ...] | None:
    """The optimizers in what a user gives: one, a wrapper of one, several in a list or mapping; None for None."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        given = given.values()
    several = given if isinstance(given, Iterable) and not hasattr(given, "param_groups") else (given,)
    return tuple(_inner(item) for item in several)


def _inner(optimizer: Any) -> Any:
    """The torch optimizer in a wrapper (Accelerate, DeepSpeed and others keep it as `optimizer`)."""
    for _ in range(4):
        inside = getattr(optimizer, "optimizer", None)
        if inside is None or not hasattr(inside, "param_groups"):
            break
        optimizer = inside
    return optimizer


def scaler_around() -> Any:
    """The GradScaler that makes the optimizer's step from which this is called; None without one."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return None
        if frame.f_code.co_name == "step":
            owner = frame.f_locals.get("self")
            if any(kind.__name__ == "GradScaler" for kind in type(owner).__mro__):  # older torch has it elsewhere
                return owner
        frame = frame.f_back
    return None


def passes_by(scaler: Any, optimizer: Any) -> bool:
    """Whether an optimizer's step, which begins, is made past torch's GradScaler: it has not divided the gradients, and
    neither does it around the step, nor the optimizer within it."""
    states = getattr(scaler, "_per_optimizer_states", None)
    if states is None or not scaler.is_enabled() or getattr(optimizer, "grad_scale", None) is not None:
        return False
    stage = states.get(id(optimizer), {}).get("stage")
    return getattr(stage, "name", "READY") == "READY" and scaler_around() is None


def _is_stepping(optimizer: Any) -> bool:
    """Whether a step of it goes on around the one that begins now."""
    count, frame = 0, sys._getframe(1)
    while frame is not None and count < 2:
        code = frame.f_code
        if code.co_name == "wrapper" and code.co_filename.endswith(_WRAPPER):
            count += frame.f_locals.get("self") is optimizer
        frame = frame.f_back  # type: ignore[assignment]
    return count > 1


class OptimizerHooks:
    """Calls `before(optimizer)` and `after(optimizer)` around steps until closed."""

    def __init__(
        self,
        optimizers: tuple[Any, ...] | None,
        names: Callable[[], dict[int, str]],
        before: Callable[[Any], Any],
        after: Callable[[Any], Any],
        others: Callable[[Any], Any] = lambda optimizer: None,
    ):
        self.seen = False  # whether any step was made
        # what others want done once while the model is at rest: on the training's thread, behind its next step
        self.at_rest: deque[Callable[[], None]] = deque()
        self.without_hooks: list[str] = []
        self._names, self._before, self._after, self._others = names, before, after, others
        self._known: list[Any] = []  # weak references
        self._decided: weakref.WeakKeyDictionary[Any, tuple[tuple[int, ...], bool]] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []
        self._given = optimizers is not None
        self._followed: weakref.WeakSet[Any] = weakref.WeakSet()  # with hooks of their own
        self._steps = 0  # of watched optimizers
        self._within: dict[int, int] = {}  # steps that have begun and not ended, by the optimizer's id
        self._passed = 0  # steps of others over the watched parameters since a watched optimizer stepped
        if optimizers is None:
            self._hook_all()
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._handles.append(register_optimizer_step_post_hook(self._on_any))
        for optimizer in optimizers or ():
            if not hasattr(optimizer, "register_step_pre_hook") or not hasattr(optimizer, "param_groups"):
                self.without_hooks.append(type(optimizer).__name__)
                continue
            self._follow(optimizer)

    def say_without(self, warn: Callable[..., Any]) -> None:
        """Warn of optimizers whose steps can't be seen."""
        for name in self.without_hooks:
            warn(
                f"the optimizer {name} calls no hooks around its step, so the watch can't see its steps; it works "
                "with torch.optim.Optimizer and what is made from it",
                key=f"watch optimizer {name}",
            )

    def _follow(self, optimizer: Any) -> None:
        self._followed.add(optimizer)
        self._known.append(weakref.ref(optimizer))
        self._handles.append(optimizer.register_step_pre_hook(self._on_before))
        self._handles.append(optimizer.register_step_post_hook(self._on_after))

    def _hook_all(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        def before(optimizer: Any, given: Any, named: Any) -> Any:
            return None if is_followed() or not self._is_ours(optimizer) else self._on_before(optimizer, given, named)

        self._handles.append(register_optimizer_step_pre_hook(before))

    def _on_any(self, optimizer: Any, given: Any, named: Any) -> None:
        """Any optimizer of the process has stepped."""
        if is_followed():
            return
        if self._given:
            if optimizer not in self._followed and not self._takes_over(optimizer):
                self._others(optimizer)
        elif self._is_ours(optimizer):
            self._on_after(optimizer, given, named)
        else:
            self._others(optimizer)

    def _takes_over(self, optimizer: Any) -> bool:
        """Whether it steps what a given optimizer stepped that is gone, or that steps no more: it is watched then.

        One around a given optimizer, or within it, steps in turns with it and takes nothing over.
        """
        try:
            live = self.optimizers
            shape = shape_of((optimizer, *live))
            known = self._decided.get(optimizer)
            if known is None or known[0] != shape:
                before = {id(item) for each in live for group in each.param_groups for item in group["params"]}
                theirs = {id(item) for group in optimizer.param_groups for item in group["params"]}
                known = self._decided[optimizer] = (shape, not theirs.isdisjoint(before if live else self._names()))
            self._passed += known[1]
            if not known[1] or (live and self._passed < _TAKEN_OVER):
                return False
            self._names()  # parameters may have been replaced with it
            self._follow(optimizer)
            return True
        except Exception:  # something that only looks like an optimizer
            return False

    def _is_ours(self, optimizer: Any) -> bool:
        """Whether it steps a watched parameter; asked again when it gets more parameters."""
        try:
            shape = shape_of((optimizer,))
            known = self._decided.get(optimizer)
            if known is not None and known[0] == shape:
                return known[1]
            names = self._names()
            ours = any(id(parameter) in names for group in optimizer.param_groups for parameter in group["params"])
            ours = ours or (known is not None and known[1])  # its parameters were replaced: that is worth seeing
            if ours and (known is None or not known[1]):
                self._known.append(weakref.ref(optimizer))
            self._decided[optimizer] = (shape, ours)
            return ours
        except Exception:  # something that only looks like an optimizer
            return False

    def _on_before(self, optimizer: Any, given: Any, named: Any) -> Any:
        if is_followed():
            return None
        within = self._within.get(id(optimizer), 0)
        if within and not _is_stepping(optimizer):
            within = 0  # a step failed, and never ended
        self._within[id(optimizer)] = within + 1
        if within:
            return None  # the step of its base class, which has hooks of its own
        self.seen, self._passed = True, 0
        closure = named.get("closure", given[1] if len(given) > 1 else None)  # the first is the optimizer
        if not callable(closure):
            self._before(optimizer)
            return None
        called = False

        @functools.wraps(closure, updated=())
        def first_then_before(*arguments: Any, **options: Any) -> Any:
            nonlocal called
            result = closure(*arguments, **options)
            if not called:
                called = True
                self._before(optimizer)
            return result

        if "closure" in named:
            return given, {**named, "closure": first_then_before}
        return (given[0], first_then_before, *given[2:]), named

    def _on_after(self, optimizer: Any, given: Any, named: Any) -> None:
        if is_followed():
            return
        within = self._within.pop(id(optimizer), 1) - 1
        if within > 0:
            self._within[id(optimizer)] = within
            return
        self._after(optimizer)
        self._steps += 1
        if self._steps == _SCHEDULED:
            with contextlib.suppress(Exception):
                schedulers.find(self.optimizers)
        while self.at_rest:
            with contextlib.suppress(Exception):  # who asked may have taken it back just now
                self.at_rest.popleft()()

    @property
    def optimizers(self) -> list[Any]:
        """Those that are watched, in the order in which they were given or found."""
        return [optimizer for reference in self._known if (optimizer := reference()) is not None]

    @property
    def known(self) -> set[int]:
        """Their ids."""
        return {id(optimizer) for optimizer in self.optimizers}

    def close(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
