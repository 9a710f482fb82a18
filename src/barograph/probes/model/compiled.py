"""A model that was compiled, in place by `model.compile()` or into another module: its calls are seen around that.

In:   a torch module.
Out:  two calls around each of its calls; the module as it was, when it is closed; the module that `torch.compile` made
      of it, found among the process's objects as a collection of garbage finds them.

`model.compile()` keeps what it compiled in the module, which then calls that and not its hooks: hooks are compiled with
it, and ours do nothing there. What it keeps is called through here. Torch leaves it out of copies and of what is saved.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

from barograph.probes.model.guest import compilations, is_compiled

_PLACE = "_compiled_call_impl"


class CompiledCall:
    """What takes the place of what was compiled in the module. `began(module, given, named)` and
    `ended(module, given, output)` never raise; the latter is given None where the call has failed."""

    def __init__(self, module: Any, call: Any, began: Callable[..., None], ended: Callable[..., None]):
        self._module, self.call = module, call
        self._began, self._ended = began, ended
        self._inside = False

    def __call__(self, *given: Any, **named: Any) -> Any:
        import torch

        if self._inside or torch.compiler.is_compiling():
            return self.call(*given, **named)
        self._inside, output = True, None
        self._began(self._module, given, named)
        try:
            output = self.call(*given, **named)
        finally:
            self._inside = False
            self._ended(self._module, given, output)
        return output


def surround(module: Any, began: Callable[..., None], ended: Callable[..., None]) -> bool:
    """See the calls of a module that was compiled in place; whether it was since the last time."""
    call = vars(module).get(_PLACE)
    if call is None or isinstance(call, CompiledCall):
        return False
    setattr(module, _PLACE, CompiledCall(module, call, began, ended))
    return True


def restore(module: Any) -> None:
    """Leave the module as it was compiled."""
    call = vars(module).get(_PLACE)
    if isinstance(call, CompiledCall):
        setattr(module, _PLACE, call.call)


def made_of(module: Any) -> Any:
    """What `torch.compile` returned for a module; None where it was not called, or twice."""
    kind = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)
    if not isinstance(kind, type):
        return None
    tables = [one for one in gc.get_referrers(module) if type(one) is dict and one.get("_orig_mod") is module]
    holders = gc.get_referrers(*tables) if tables else []
    inner = [one for one in holders if type(one) is dict and "_modules" in one]  # where its attributes are kept
    holders += gc.get_referrers(*inner) if inner else []
    found = {id(one): one for one in holders if isinstance(one, kind)}
    return next(iter(found.values())) if len(found) == 1 else None


def in_place(module: Any) -> bool:
    """Whether a module was compiled in place."""
    return vars(module).get(_PLACE) is not None


class CompiledWithin:
    """Whether anything is compiled that a model's calls go through: a mode that sees functions would have it compiled
    anew.

    A function is compiled when it is first called. So what is compiled while no call of the model goes on, such as an
    optimizer's step or another model, is none of it; of what was compiled before this was made it isn't known.
    """

    def __init__(self) -> None:
        self.found = is_compiled()
        self._counts: dict[int, int] = {}  # when the call began, by its thread

    def began(self) -> None:
        """A call of the model begins, of the kind that is looked at."""
        if not self.found:
            self._counts[threading.get_ident()] = compilations()

    def ended(self) -> None:
        """A call of the model is over."""
        count = self._counts.pop(threading.get_ident(), None)
        if count is not None:
            self.found |= compilations() != count

    def may_be(self, model: Any) -> bool:
        """Whether the call that begins may go through what is compiled, or will be."""
        return self.found or any(map(_is_compiled, model.modules()))


def _is_compiled(module: Any) -> bool:
    """Whether a module was compiled in place, is what `torch.compile` made of another one, or calls what it made."""
    mine = vars(module)
    if mine.get(_PLACE) is not None or type(module).__name__ == "OptimizedModule":
        return True
    return any(hasattr(one, "_torchdynamo_orig_callable") for one in mine.values() if callable(one))
