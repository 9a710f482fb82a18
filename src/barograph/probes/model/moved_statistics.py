"""Statistics of batch norm that are others in an evaluation: running ones that passes without gradients, in training
mode, have moved ahead of it, and those of single examples where there are no running ones.

In:   calls of a model's first batch norm, and of its first one without running statistics.
Out:  figures for the `model` record of the next step; nothing waits.

Statistics may be gathered anew for an evaluation on purpose, from the training's data or from the evaluation's. Then
they fit what the evaluation gives the layer as well as before, or better. Passes of other data, as of noise by which a
network is timed, leave statistics that fit it worse. Of the first batch norm this says nothing but the data.

Statistics that are as torch makes them, 0 and 1, in an evaluation behind a step in which the layer gathered some, were
made anew for it, and normalise nothing.

A layer without running statistics has those of its batch in an evaluation, too: of one example at a time, those of that
example. How far they are from those of a batch is read from the next batch of the training.
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
_LOOKS, _ROWS = 3, 8  # evaluations; rows of a batch, at least
_MOST, _PLACES = 16, 512  # rows, and channels, that are looked at; places of each


class MovedStatistics:
    """Hears one layer, until `close`."""

    def __init__(self, model: Any):
        layer = next(
            (module for module in model.modules()
             if "BatchNorm" in type(module).__name__ and "Frozen" not in type(module).__name__
             and getattr(module, "running_mean", None) is not None), None
        )  # fmt: skip
        alone = next(
            (module for module in model.modules()
             if "BatchNorm" in type(module).__name__ and getattr(module, "running_mean", self) is None), None
        )  # fmt: skip
        self._handles = [before(one, call) for one, call in ((layer, self._called), (alone, self._called_alone))
                         if one is not None]  # fmt: skip
        self._rows = self._looks = 0  # in passes without gradients, at most; evaluations
        self._alone: Tensor | None = None
        self._kept: tuple[Tensor, Tensor] | None = None  # the statistics that the last step has left
        self._found: Tensor | None = None
        self._trained = False  # whether the layer has gathered in a pass with gradients
        self._unset: Tensor | None = None  # of an evaluation's first pass

    def _called(self, module: Any, given: Sequence[Any]) -> None:
        """The layer is about to run."""
        import torch

        if not torch.is_grad_enabled() and not module.training and self._trained and self._unset is None:
            self._unset = ((module.running_mean == 0).all() & (module.running_var == 1).all()).float()
        if torch.is_grad_enabled():
            self._trained |= module.training
            self._kept = None
        elif module.training:
            if self._kept is None:
                self._kept = module.running_mean.clone(), module.running_var.clone()
        elif self._kept is not None:
            kept, self._kept = self._kept, None
            if self._found is None:
                with contextlib.suppress(Exception):  # an input of another make
                    self._found = _fits(given[0], kept, (module.running_mean, module.running_var))

    def _called_alone(self, module: Any, given: Sequence[Any]) -> None:
        """A layer without running statistics is about to run."""
        import torch

        if self._looks >= _LOOKS:
            return
        with contextlib.suppress(Exception):  # an input of another make
            if not torch.is_grad_enabled():
                self._rows = max(self._rows, len(given[0]))
            elif self._rows:
                with torch.no_grad():
                    self._alone = _by_themselves(given[0], self._rows)
                self._rows, self._looks = 0, self._looks + 1

    def put(self, current: ModelRound) -> None:
        """The next step begins."""
        found, self._found, self._kept = self._found, None, None
        if found is not None:
            current.put("statistics_apart", ("before", "after"), found)
        unset, self._unset = self._unset, None
        if unset is not None:
            current.put("reset_statistics", ("",), unset)
        alone, self._alone = self._alone, None
        if alone is not None:
            current.put("statistics_alone", ("",), alone)

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._kept = self._found = self._alone = self._unset = None


def _fits(given: Tensor, *statistics: tuple[Tensor, Tensor]) -> Tensor:
    """How far means and variances are from those of an input: of two normal distributions, what one costs where the
    other is meant, in nats, in the mean of channels."""
    import torch

    variance, mean = torch.var_mean(given.detach().float().transpose(0, 1).flatten(1), 1, correction=0)
    return torch.stack([_apart(mean, variance, *its).mean() for its in statistics])


def _apart(mean: Tensor, variance: Tensor, its_mean: Tensor, its_variance: Tensor) -> Tensor:
    """What a normal distribution costs where another is meant, in nats."""
    ours, theirs = variance + _LEAST, its_variance.float() + _LEAST
    return 0.5 * ((theirs / ours).log() + (ours + (mean - its_mean.float()).square()) / theirs - 1)


def _by_themselves(given: Tensor, rows: int) -> Tensor:
    """Of a batch of the training: how far the mean and variance of each example are from those of the batch. 0 where an
    evaluation had more than one example at a time, or the training has few."""
    import torch

    if rows > 1 or len(given) < _ROWS or given.dim() < 3:
        return given.new_zeros(())
    some = given.detach()[:_MOST, :_MOST].flatten(2)
    some = some[:, :, :: max(1, some.shape[2] // _PLACES)].float()
    variance, mean = torch.var_mean(some, 2, correction=0)
    batch_variance, batch_mean = torch.var_mean(some, (0, 2), correction=0)
    return _apart(mean, variance, batch_mean, batch_variance).mean()


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What is recorded, when it has arrived."""
    names, values = numbers.get("statistics_apart", ((), ((),)))
    found = {f"statistics_apart_{name}": float(value) for name, value in zip(names, values[0], strict=True)}
    for name in ("statistics_alone", "reset_statistics"):
        if name in numbers:
            found[name] = float(numbers[name][1][0][0])
    return found
