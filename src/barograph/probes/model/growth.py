"""How much gradients grow between the backward pass and the step, on one of several ranks: what a rank does to them
by hand, such as adding those of all ranks.

In:   the watched parameters; the first steps of a launch, in which looks at whole gradients are rare in a fast loop.
Out:  a figure for each of these steps: the norm of some elements when the step begins, over that when the last
      backward pass had ended, with what a wrapper reduces there. Nothing waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barograph.probes.model.backward import BackwardEnd
from barograph.probes.model.parameters import mesh_of
from barograph.probes.model.written import some_of

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

_STEPS = 12  # of a launch that are looked at
_PARAMETERS = 3  # the largest ones


class GradientGrowth:
    """Follows a few parameters."""

    def __init__(self) -> None:
        self._steps = 0
        self._key: Any = None
        self._chosen: list[Any] = []
        self._squares: Any = None  # when the last backward pass ended
        self._end = BackwardEnd(self._ended)

    def _follow(self, parameters: tuple[Any, ...]) -> None:
        """Be told of the backward passes of the next step."""
        if self._steps >= _STEPS or not parameters or not _is_one_of_several():
            self._end.disarm()
            return
        if parameters is not self._key:
            self._end.disarm()
            whole = [item for item in parameters if mesh_of(item) is None and item.requires_grad]
            self._key = parameters
            self._chosen = sorted(whole, key=lambda item: -item.numel())[:_PARAMETERS]
        if self._chosen:
            self._end.arm(None, self._chosen)

    def _ended(self) -> None:
        self._squares = self._read()

    def _read(self) -> Any:
        import torch

        some = [some_of(item.grad).float() for item in self._chosen if item.grad is not None]
        if len(some) < len(self._chosen) or not some:
            return None
        return torch.stack([one.square().sum().to(some[0].device) for one in some]).sum()

    def put(self, current: ModelRound, parameters: tuple[Any, ...]) -> None:
        """A step begins. parameters: those that are watched."""
        if self._steps > _STEPS:
            return
        self._steps += 1
        before, self._squares = self._squares, None
        now = self._read() if before is not None else None
        if before is not None and now is not None:
            current.put("gradient_growth", ("",), (now / before.clamp_min(1e-30)).sqrt().reshape(1))
        self._follow(parameters)

    def close(self) -> None:
        """Leave no hook behind."""
        self._end.disarm()


def _is_one_of_several() -> bool:
    import torch

    ranks = torch.distributed
    return ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1
