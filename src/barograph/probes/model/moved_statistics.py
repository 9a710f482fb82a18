"""Running statistics that passes without gradients, in training mode, have moved ahead of an evaluation.

In:   calls of a model's first batch norm.
Out:  figures for the `model` record of the next step; nothing waits.

Statistics may be gathered anew for an evaluation on purpose, from the training's data or from the evaluation's. Then
they fit what the evaluation gives the layer as well as before, or better. Passes of other data, as of noise by which a
network is timed, leave statistics that fit it worse. Of the first batch norm this says nothing but the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.guest import before

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_LEAST = 1e-5  # of a variance


class MovedStatistics:
    """Hears one layer, until `close`."""

    def __init__(self, model: Any):
        layer = next(
            (module for module in model.modules()
             if "BatchNorm" in type(module).__name__ and "Frozen" not in type(module).__name__
             and getattr(module, "running_mean", None) is not None), None
        )  # fmt: skip
        self._handle = before(layer, self._called) if layer is not None else None
        self._kept: tuple[Tensor, Tensor] | None = None  # the statistics that the last step has left
        self._found: Tensor | None = None

    def _called(self, module: Any, given: Sequence[Any]) -> None:
        """The layer is about to run."""
        import torch

        if torch.is_grad_enabled():
            self._kept = None
        elif module.training:
            if self._kept is None:
                self._kept = module.running_mean.clone(), module.running_var.clone()
        elif self._kept is not None:
            kept, self._kept = self._kept, None
            if self._found is None:
                with contextlib.suppress(Exception):  # an input of another make
                    self._found = _fits(given[0], kept, (module.running_mean, module.running_var))

    def put(self, current: ModelRound) -> None:
        """The next step begins."""
        found, self._found, self._kept = self._found, None, None
        if found is not None:
            current.put("statistics_apart", ("before", "after"), found)

    def close(self) -> None:
        """Leave no hook behind."""
        if self._handle is not None:
            self._handle.remove()
        self._kept = self._found = None


def _fits(given: Tensor, *statistics: tuple[Tensor, Tensor]) -> Tensor:
    """How far means and variances are from those of an input: of two normal distributions, what one costs where the
    other is meant, in nats, in the mean of channels."""
    import torch

    rows = given.detach().float().transpose(0, 1).flatten(1)
    variance, mean = torch.var_mean(rows, 1, correction=0)
    variance = variance + _LEAST
    parts = []
    for its_mean, its_variance in statistics:
        theirs = its_variance.float() + _LEAST
        parts.append((theirs / variance).log() + (variance + (mean - its_mean.float()).square()) / theirs - 1)
    return 0.5 * torch.stack(parts).mean(1)


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What is recorded, when it has arrived."""
    names, values = numbers.get("statistics_apart", ((), ((),)))
    return {f"statistics_apart_{name}": float(value) for name, value in zip(names, values[0], strict=True)}
