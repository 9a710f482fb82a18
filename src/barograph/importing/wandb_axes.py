"""Which of a W&B run's columns counts its steps.

In:   what `define_metric` said; rows of the history, block by block.
Out:  for each name of a block the steps of its rows, and what they count.

W&B's own `_step` counts calls of `log`. Where a run has a step of its own, said by `define_metric` or known by
its name, that is the step: runs that log at different times can be laid over one another.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Columns that are a step by their name: HF Trainer, Lightning, nanochat, nanoGPT, Megatron, and loops of one's own.
STEP_COLUMNS = (
    "train/global_step", "trainer/global_step", "global_step", "train/step", "step", "iter", "iteration",
    "training/global_step",
)  # fmt: skip
_MOST_AXES = 32  # step metrics of one run
_UNITS = (("token", "tokens"), ("sample", "samples"), ("example", "samples"), ("epoch", "epoch"))
_STEPS = re.compile(r"step|iter|update", re.IGNORECASE)


def unit_of(name: str) -> str:
    """What a column counts by its name: "step", "tokens", "samples", "epoch"; "" if the name doesn't say."""
    for word, unit in _UNITS:
        if word in name.lower():
            return unit
    return "step" if _STEPS.search(name) else ""


class WandbAxes:
    """A run's step columns. `state` is plain JSON; given again, it goes on where it was."""

    def __init__(self, state: dict[str, Any] | None = None):
        state = state or {}
        self.defined: dict[str, str] = dict(state.get("defined", {}))
        self.globs: dict[str, str] = dict(state.get("globs", {}))
        self.column: str = state.get("column", "")
        self.last: int = state.get("last", 0)  # of the run's step, for what is not a row
        self.refused: list[str] = list(state.get("refused", []))
        self._known: dict[str, str] = {}

    @property
    def state(self) -> dict[str, Any]:
        return {
            "defined": self.defined,
            "globs": self.globs,
            "column": self.column,
            "last": self.last,
            "refused": self.refused,
        }

    def define(self, name: str, glob: str, step: str) -> None:
        """`define_metric(name or glob, step_metric=step)`."""
        told = {*self.defined.values(), *self.globs.values()}
        if step and len(self.defined) + len(self.globs) < 10_000 and (step in told or len(told) < _MOST_AXES):
            if glob:
                self.globs[glob] = step
            elif name:
                self.defined[name] = step
            self._known.clear()

    def step_of(self, name: str) -> str:
        """The step column that was defined for a name; "" if none was."""
        result = self._known.get(name)
        if result is None:
            result = self.defined.get(name, "")
            if not result:
                # W&B allows a star at the end alone
                fits = [glob for glob in self.globs if name.startswith(glob[:-1]) and glob.endswith("*")]
                result = self.globs[max(fits, key=len)] if fits else ""
            if len(self._known) < 100_000:
                self._known[name] = result
        return result

    def choose(self, names: set[str]) -> None:
        """Settle which column is the run's step, at the first rows that have one."""
        if not self.column:
            said = [*self.defined.values(), *self.globs.values()]
            candidates = [*(name for name in said if unit_of(name) == "step"), *STEP_COLUMNS]
            self.column = next(
                (candidate for candidate in candidates if candidate in names and candidate not in self.refused), ""
            )

    def refuse(self) -> None:
        """The run's step column goes back or is not a whole number: W&B's own steps are taken from here on."""
        self.refused.append(self.column)
        self.column = ""


def whole_steps(values: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Values as steps; None if one of them is not a whole number from 0 on."""
    if not len(values) or not np.isfinite(values).all() or (values < 0).any() or (values > 2**62).any():
        return None
    rounded = np.rint(values)
    return rounded.astype(np.int64) if (rounded == values).all() else None
