"""RunConfig: the run's hyper-parameters; changes after the start are recorded as well.

In:   a mapping at the start; `run.config["lr"] = …` and `run.config.update(…)` later.
Out:  `option` records in the log, and the configuration in the manifest.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import types
from collections.abc import Mapping
from typing import Any

from barograph.core import manifest
from barograph.core.secrets import masked
from barograph.core.values import flatten, text
from barograph.training.recorder import Recorder

_DEPTH = 16


class RunConfig(dict[str, Any]):
    """A dictionary whose changes are recorded. It never raises for a value; what JSON can't hold becomes text."""

    def __init__(self, recorder: Recorder, values: Mapping[str, Any]):
        super().__init__(values)
        self._out = recorder

    def __setitem__(self, name: Any, value: Any) -> None:
        self.update({name: value})

    def update(self, *values: Any, **named: Any) -> None:
        """More values; nested mappings are taken in as a whole. Also an object with attributes."""
        try:
            changes = as_mapping(dict(*values)) if values and not hasattr(values[0], "__dict__") else {}
            if values and hasattr(values[0], "__dict__"):
                changes = as_mapping(values[0])
            changes |= as_mapping(named)
            super().update(changes)
            self._record(changes)
        except Exception as error:
            self._out.failed("change of the configuration", error)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The value of that name; if there is none, this one from now on."""
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, values: Any) -> RunConfig:  # type: ignore[override,misc]
        self.update(values)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def _record(self, changes: Mapping[str, Any]) -> None:
        out = self._out
        for name, value in flatten(masked(changes), lambda sentence: None).items():
            out.record("option", out.current_step, {"name": name, "value": value})
        if out.is_main:
            with contextlib.suppress(OSError):
                manifest.update(out.dir, config=masked(self))


def as_mapping(config: Any) -> dict[str, Any]:
    """A config as a plain nested dictionary: of a mapping, a dataclass, a namespace. Raises TypeError."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        as_dict = getattr(config, "to_dict", None)
        if not callable(as_dict) and not hasattr(config, "__dict__"):
            raise TypeError(
                f"config is a {type(config).__name__}, but it takes a mapping such as {{'lr': 3e-4}} or an object with "
                "attributes"
            )
        config = as_dict() if callable(as_dict) else vars(config)
    plain: dict[str, Any] = _plain(config, _DEPTH)
    return plain


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping) and depth:
        return {text(key): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)) and depth:
        return [_plain(item, depth - 1) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    holds = dataclasses.is_dataclass(value) or isinstance(value, (types.SimpleNamespace, argparse.Namespace))
    if holds and not isinstance(value, type) and depth:
        return _plain(vars(value), depth - 1)
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        if not isinstance(value, (str, bytes)):
            return json.loads(json.dumps(value.item() if hasattr(value, "item") else value))
    return text(value)
