"""Weights that are loaded into a model, and are its own: what was kept of them was not copied.

In:   the dictionaries that a model's `load_state_dict` is called with.
Out:  a figure for the `model` record; no tensor is read.

`state_dict()` hands out the trained tensors themselves. What keeps these as the best weights, as an average, or to put
them back behind an evaluation, changes with each step; to load them changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from barograph.probes.model.guest import Guest


class OwnLoads:
    """Counts the times that all weights that are trained were given to a model as they lie in it."""

    def __init__(self, model: Any) -> None:
        self._model, self._count, self._said = model, 0, 0
        self._handle: Any = None
        with contextlib.suppress(Exception):  # another torch may have none
            self._handle = model._register_load_state_dict_pre_hook(Guest(self._loads))

    def _loads(self, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
        own = [(name, one) for name, one in self._model.named_parameters() if one.requires_grad and one.numel()]
        self._count += bool(own) and all(_same(state.get(prefix + name), one) for name, one in own)

    def figures(self) -> dict[str, float]:
        """`own_weights_loaded`, where there were such since the step before."""
        if self._count == self._said:
            return {}
        self._said = self._count
        return {"own_weights_loaded": float(self._count)}

    def close(self) -> None:
        """Leave no hook behind."""
        if self._handle is not None:
            self._handle.remove()


def _same(given: Any, own: Any) -> bool:
    """Whether two tensors are the same place in memory."""
    return hasattr(given, "data_ptr") and given.shape == own.shape and given.data_ptr() == own.data_ptr() != 0
