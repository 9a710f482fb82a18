"""Weights that are written between two steps: reset, or loaded, while the training goes on.

In:   the watched parameters when a step ends and when the next one begins.
Out:  a figure where some were written: how far they are from what the step left, of their size.

A tensor counts its changes in place, so the numbers are compared only where the count says that there is something to
compare. Weights that are swapped for an evaluation and put back are what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import flat, local, mesh_of

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_PARAMETERS, _ELEMENTS = 4, 256
_OFTEN = 3  # times in a row: weights that are clamped or normalised after each step


class Written:
    """Compares some elements of a few matrices."""

    def __init__(self) -> None:
        self._key: Any = None
        self._chosen: list[Any] = []
        self._kept: list[Any] = []
        self._versions: list[int] = []
        self._times = 0
        self._then: list[Any] = []  # behind the step before
        self.follower: Callable[[Sequence[Any], list[Any], list[Any]], None] | None = None

    def ended(self, parameters: tuple[Any, ...]) -> None:
        """A step is over."""
        if parameters is not self._key:
            self._key = parameters
            whole = [item for item in parameters if item.dim() > 1 and mesh_of(item) is None]
            self._chosen = whole[:: max(1, len(whole) // _PARAMETERS)][:_PARAMETERS]
        self._then = self._kept
        self._kept = [some_of(item).clone() for item in self._chosen] if self._times < _OFTEN else []
        self._versions = [item._version for item in self._chosen]
        if self.follower is not None:
            self.follower(self._chosen, self._kept, self._then)

    def began(self, current: ModelRound) -> None:
        """The next one begins."""
        import torch

        written = self._versions != [item._version for item in self._chosen]
        self._times = self._times + 1 if written and self._versions else 0
        if not self._times or len(self._kept) != len(self._chosen) or not self._kept:
            return
        now = [some_of(item) for item in self._chosen]
        if any(one.shape != other.shape for one, other in zip(now, self._kept, strict=True)):
            return
        home = now[0].device
        away = torch.stack([(one - other).float().square().sum().to(home) for one, other in zip(now, self._kept,
                            strict=True)]).sum()  # fmt: skip
        size = torch.stack([item.float().square().sum().to(home) for item in self._kept]).sum()
        current.put("written", ("",), (away / size.clamp_min(1e-30)).sqrt().reshape(1))


def some_of(parameter: Any) -> Any:
    line = flat(local(parameter.detach()))
    return line[:: max(1, -(-len(line) // _ELEMENTS))]
