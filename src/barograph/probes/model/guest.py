"""Hooks on a user's modules and tensors that nobody else notices.

In:   a function of ours that a module, a tensor or an optimizer calls.
Out:  the same, but that it raises nothing; that it does nothing where what is computed would become part of something
      else; and that others who are shown each operation of torch are not shown ours.

A pickle or a copy of such a hook is one of Python's own functions that does nothing: a model that is saved whole can be
saved while it is watched, and loaded where there is no Barograph.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Made = TypeVar("Made")

CAPTURED: deque[bool] = deque(maxlen=1)
"""True where a hook was called while a CUDA graph was captured: what it replays calls none."""


_BENEATH = threading.local()  # whether modes of others are taken off


def is_followed() -> bool:
    """Whether what is computed now becomes part of something else: of what a compiler, a tracer or an exporter writes
    down, of a CUDA graph that is captured, or of a function that `torch.func` transforms, whose tensors have no numbers
    of their own."""
    import torch

    # the compiler follows nothing behind the first of these
    if torch.compiler.is_compiling() or torch._C._is_tracing() or torch._C._functorch.maybe_current_level() is not None:
        return True
    if torch._C._len_torch_dispatch_stack():
        modes = torch._C._TorchDispatchModeKey
        if any(torch._C._get_dispatch_mode(one) is not None for one in (modes.FAKE, modes.PROXY, modes.FUNCTIONAL)):
            return True
    if _asked()[-1]():
        CAPTURED.append(True)
        return True
    return getattr(sys.modules.get("torch.fx._symbolic_trace"), "_is_fx_tracing_flag", False)


@functools.cache
def _asked() -> tuple[Callable[[], Any], ...]:
    """What is asked at each call of a hook, which takes longer to find than to answer."""
    import torch

    core = torch._C
    captured: Callable[[], bool] = getattr(core, "_cuda_isCurrentStreamCapturing", bool)
    begun: Callable[[], bool] = torch.cuda.is_initialized

    def captures() -> bool:
        try:  # of a torch with CUDA on a machine without it, the question itself is an error
            return begun() and captured()
        except Exception:  # never into the training
            return False

    return (core._is_tracing, core._len_torch_dispatch_stack, core._len_torch_function_stack,
            core._functorch.maybe_current_level, captures)  # fmt: skip


def _is_plain() -> bool:
    """Whether nothing is followed, and no mode is on: nearly always."""
    tracing, dispatched, seen, level, captured = _asked()
    return not (
        tracing() or dispatched() or seen() or captured() or level() is not None
        or getattr(sys.modules.get("torch.fx._symbolic_trace"), "_is_fx_tracing_flag", False)
    )  # fmt: skip


def apart(call: Callable[..., Any], *given: Any) -> Any:
    """Call, and nothing where that is followed. Modes of others are not shown what it computes: a checkpoint that
    chooses what it keeps counts the operations of a layer, and would take ours for the layer's; a default device is
    not that of a tensor on another one."""
    if is_followed():
        return None
    import torch

    if torch._C._len_torch_dispatch_stack():
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():  # type: ignore[no-untyped-call, unused-ignore]
            return _unseen(call, *given)
    return _unseen(call, *given)


def _unseen(call: Callable[..., Any], *given: Any) -> Any:
    """Call without the modes that see functions."""
    import torch

    if not torch._C._len_torch_function_stack():
        return call(*given)
    stack, before = _taken_off(), getattr(_BENEATH, "others", False)
    _BENEATH.others = before or not all(isinstance(one, _mode()) for one in stack)
    try:
        return call(*given)
    finally:
        _BENEATH.others = before
        _put_on(stack)


def is_alone() -> bool:
    """Whether no mode of others that sees functions is on in this thread, nor was taken off for what is called now."""
    import torch

    return not (torch._C._len_torch_function_stack() or getattr(_BENEATH, "others", False))


def _taken_off() -> list[Any]:
    """All modes that see functions, taken off this thread; the lowest one first."""
    import torch

    return [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())][::-1]


def _put_on(stack: list[Any]) -> None:
    """All of these but those that are over."""
    import torch

    for one in stack:
        if not getattr(one, "is_over", False):
            torch._C._push_on_torch_function_stack(one)


class Guest:
    """A hook that calls a function, and does nothing where the compiler follows it: of all such hooks it then follows
    the same few instructions, which it has to compile but once.

    whose: something with `on`; while that is false the function is not called."""

    def __init__(self, call: Callable[..., Any], whose: Any = None):
        self._call, self._whose = call, whose

    def __call__(self, *given: Any) -> None:
        import torch

        if torch.compiler.is_compiling() or (self._whose is not None and not self._whose.on):
            return
        try:
            if _is_plain():
                self._call(*given)
            else:
                apart(self._call, *given)
        except Exception:  # never into the training
            return

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything and gives None


class CompiledGuest(Guest):
    """One whose function is compiled with the module that it is a hook of."""

    def __call__(self, *given: Any) -> None:
        self._call(*given)


class _Nowhere:
    """The handle of a hook that is on no module."""

    def remove(self) -> None:
        """There is nothing to take away."""


def before(module: Any, call: Callable[..., Any], whose: Any = None, **how: Any) -> Any:
    """Have a function called before each call of a module, until the handle's `remove`. whose: see `Guest`."""
    return _put("register_forward_pre_hook", module, call, whose, how)


def after(module: Any, call: Callable[..., Any], whose: Any = None, **how: Any) -> Any:
    """Have a function called behind each call of a module, until the handle's `remove`. whose: see `Guest`."""
    return _put("register_forward_hook", module, call, whose, how)


def _put(kind: str, module: Any, call: Callable[..., Any], whose: Any, how: dict[str, Any]) -> Any:
    import torch

    if isinstance(module, torch.jit.RecursiveScriptModule):  # type: ignore[attr-defined, unused-ignore]
        return _Nowhere()  # a module of TorchScript takes no hooks
    _spare_scripts()
    return getattr(module, kind)(call if isinstance(call, Guest) else Guest(call, whose), **how)


def _is_ours(hook: Any) -> bool:
    """Whether a hook is one of ours, or what a copy of a module has in its place."""
    return isinstance(hook, Guest) or getattr(hook, "__func__", None) is contextlib.nullcontext.__exit__


@contextlib.contextmanager
def _without(model: Any) -> Iterator[None]:
    """No hook of ours is on a model's modules; they are in their places again behind this."""
    tables = [hooks for one in model.modules() for hooks in (one._forward_pre_hooks, one._forward_hooks)]
    found = [(hooks, list(hooks.items())) for hooks in tables if any(map(_is_ours, hooks.values()))]
    for hooks, items in found:
        for number, hook in items:
            if _is_ours(hook):
                del hooks[number]
    try:
        yield
    finally:
        for hooks, items in found:
            hooks.clear()
            hooks.update(items)


@functools.cache
def _spare_scripts() -> None:
    """From now on TorchScript compiles modules without hooks of ours: it reads the source of each hook, and fails where
    that has no types, or none that are those of the module."""
    recursive: Any = sys.modules.get("torch.jit._recursive")
    make = getattr(recursive, "create_script_module", None)
    if make is None:
        return

    @functools.wraps(make)
    def create_script_module(nn_module: Any, *given: Any, **named: Any) -> Any:
        with _without(nn_module):
            return make(nn_module, *given, **named)

    recursive.create_script_module = create_script_module


def leave(model: Any) -> None:
    """Take all such hooks off a model's modules: what put them there has failed halfway, and keeps no account."""
    for module in model.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for number, hook in list(hooks.items()):
                if isinstance(hook, Guest):
                    del hooks[number]
                    for name in ("pre_hooks_with_kwargs", "hooks_with_kwargs", "hooks_always_called"):
                        getattr(module, f"_forward_{name}").pop(number, None)


def left_as_it_was(model: Any, make: Callable[[], Made]) -> Made:
    """What is made, whose hooks are on the model; no hook stays where that fails."""
    try:
        return make()
    except Exception:
        leave(model)
        raise


class Shown:
    """From now on, and until its end, functions of torch are shown: `began(function, arguments, named)` before each,
    `ended(function, arguments, named, result)` behind it; what these raise, and compute, nobody notices.

    A mode belongs to the thread in which it began. One whose end never came, as a pass was interrupted, is taken off
    when the next pass has ended, or at the close, wherever it is among those that others have put on since.
    """

    def __init__(self, began: Callable[..., None] | None = None, ended: Callable[..., None] | None = None):
        self._mode, self._thread = _mode()(began, ended), threading.get_ident()
        _put_on([self._mode])

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *given: object) -> None:
        self.end()

    def rest(self) -> None:
        """Nothing is shown any more, though it is still there."""
        self._mode.is_over = True

    def end(self) -> bool:
        """Whether it is over: only its own thread can end it."""
        if self._thread != threading.get_ident():
            return False
        self._mode.is_over = True
        _put_on(_taken_off())
        return True


@functools.cache
def _mode() -> Any:
    """The class, which there is but once: the compiler knows modes by their classes."""
    import torch
    from torch.overrides import TorchFunctionMode

    class ShownMode(TorchFunctionMode):
        def __init__(self, began: Callable[..., None] | None, ended: Callable[..., None] | None):
            self.began, self.ended, self.is_over = began, ended, False

        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            named = named or {}
            if torch.compiler.is_compiling() or self.is_over:
                return function(*arguments, **named)
            if self.began is not None:
                with contextlib.suppress(Exception):
                    apart(self.began, function, arguments, named)
            result = function(*arguments, **named)
            if self.ended is not None:
                with contextlib.suppress(Exception):  # a tensor of somebody's own, or of another torch
                    apart(self.ended, function, arguments, named, result)
            return result

    return ShownMode


def is_compiled() -> bool:
    """Whether anything was compiled: hooks on its modules would have it compiled anew, and one on all modules has
    torch warn at each call of it."""
    return compilations() > 0


def compilations() -> int:
    """A number that grows whenever anything is compiled."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", None)
    if not counters:
        return 0
    return sum(sum(counters.get(name, {}).values()) for name in ("frames", "stats"))
