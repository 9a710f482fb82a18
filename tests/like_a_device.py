"""What is otherwise on a device than on the CPU, on the CPU.

Functions over many tensors change tensors there and count it in none of them: torch's optimizers, `zero_grad` of a
fused one, `clip_grad_norm_` and averages of weights use them by default. And whoever asks for a number waits.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

_WAITS = (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.masked_select,
          torch.ops.aten.equal, torch.ops.aten._unique2)  # fmt: skip

_MANY = [
    name
    for name in dir(torch)
    if name.startswith(("_foreach_", "_fused_")) and name.endswith("_") and not name.endswith("__")
]


def _uncounted(function: Any) -> Any:
    def call(tensors: Any, *rest: Any, **named: Any) -> Any:
        with torch.no_grad():
            return function(_data(tensors), *map(_data, rest), **named)

    return call


def _data(given: Any) -> Any:
    """Lists of tensors that share their memory with the given ones, and no counter."""
    if isinstance(given, (list, tuple)):
        return [one.data if isinstance(one, torch.Tensor) else one for one in given]
    return given


def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one test."""
    for name in _MANY:
        monkeypatch.setattr(torch, name, _uncounted(getattr(torch, name)))
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.optim") and hasattr(module, "_default_to_fused_or_foreach"):
            monkeypatch.setattr(module, "_default_to_fused_or_foreach", lambda *given, **named: (False, True))


class NothingWaits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, a number that is asked of a tensor is an error."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        assert function.overloadpacket not in _WAITS, f"{function} has to wait for a device"
        return function(*arguments, **(named or {}))
