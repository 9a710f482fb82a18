"""Weights that are written between two steps: reset, or loaded, while the training goes on.

In:   the watched parameters when a step ends and when the next one begins.
Out:  a figure where some were written: how far they are from what the step left, of their size.

A tensor counts its changes in place, so the numbers are compared only where the count says that there is something to
compare; behind an evaluation, and of one of several ranks in the first steps, they are compared whatever it says, since
averages are put in, and weights averaged over ranks, through `.data`, too, which counts nothing. Weights that are
swapped for an evaluation and put back are what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import mesh_of, spread

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_PARAMETERS, _ELEMENTS = 4, 256
_WORKERS = 160  # steps in which ranks that average their weights now and then are looked for
_OFTEN = 3  # times in a row: weights that are clamped or normalised after each step


class Written:
    """Compares some elements of a few matrices, at even distances from the first to the last."""

    def __init__(self) -> None:
        self._key: Any = None
        self._chosen: list[Any] = []
        self._kept: list[Any] = []
        self._versions: list[int] = []
        self._several: bool | None = None  # whether this is one of several ranks
        self._times = self._steps = 0
        self._then: list[Any] = []  # behind the step before
        self.follower: Callable[[Sequence[Any], list[Any], list[Any], bool], None] | None = None

    def ended(self, parameters: tuple[Any, ...]) -> None:
        """A step is over."""
        if parameters is not self._key:
            self._key = parameters
            whole = [item for item in parameters if item.dim() > 1 and mesh_of(item) is None]
            count = min(_PARAMETERS, len(whole))  # the first and the last are among them: heads are what is replaced
            self._chosen = [whole[at * (len(whole) - 1) // max(1, count - 1)] for at in range(count)]
        self._then = self._kept
        self._kept = [some_of(item).clone() for item in self._chosen] if self._times < _OFTEN else []
        self._versions = [item._version for item in self._chosen]
        if self.follower is not None and self._times >= _OFTEN:  # as copies do that an optimizer steps
            now = [some_of(item).clone() for item in self._chosen]
            self.follower(self._chosen, now, now, True)
        elif self.follower is not None:
            self.follower(self._chosen, self._kept, self._then, False)

    def began(self, current: ModelRound, evaluated: bool = False) -> None:
        """The next one begins. evaluated: whether an evaluation came between, which may have put others in through
        `.data`."""
        import torch

        changed = self._averaged()  # None: not known yet
        written = self._versions != [item._version for item in self._chosen] or changed
        self._times = self._times + 1 if written and self._versions else 0
        if (
            (not self._times and changed is False and not evaluated)
            or len(self._kept) != len(self._chosen)
            or not self._kept
        ):
            return
        now = [some_of(item) for item in self._chosen]
        if any(one.shape != other.shape for one, other in zip(now, self._kept, strict=True)):
            return
        home = now[0].device
        away = torch.stack([(one - other).float().square().sum().to(home) for one, other in zip(now, self._kept,
                            strict=True)]).sum()  # fmt: skip
        size = torch.stack([item.float().square().sum().to(home) for item in self._kept]).sum()
        current.put("written", ("",), (away / size.clamp_min(1e-30)).sqrt().reshape(1))

    def _averaged(self) -> bool | None:
        """Whether weights of one of several ranks are others though nothing was counted; None where that is still to
        come from a device."""
        import torch

        self._steps += 1
        if self._steps > _WORKERS or not self._kept or len(self._kept) != len(self._chosen):
            return False
        if self._several is None:
            ranks = torch.distributed
            self._several = ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1
        if not self._several:
            return False
        now = [some_of(item) for item in self._chosen]
        return None if now[0].device.type != "cpu" else not all(map(torch.equal, now, self._kept))


def some_of(parameter: Any) -> Any:
    return spread(parameter, _ELEMENTS)
