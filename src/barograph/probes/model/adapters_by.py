"""By which number an adapter is multiplied in evaluations, beside the training's, wherever it was merged there.

In:   an adapted module, called in the training and in evaluations; the two factors of its adapter.
Out:  `AdaptersBy`: figures for the `model` record, computed on the device; nothing waits.

Such a module is linear in what it is given. In the training its output is the layer's, W x + b, and the scale s times
B A x; the graph shows s, and sums over rows show W and b, for a few of the outputs, whatever the layer is held in. In
an evaluation the same layer is known then, and what is left of the output is along B A x: as often as it is multiplied.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.factors import scale_of
from barograph.probes.model.guest import after
from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("adapters_by", "adapters_by_error", "adapters_by_rest", "adapters_by_scale")
_OUTPUTS, _ROWS, _WIDEST = 8, 128, 512  # outputs, rows of a pass, inputs at most: sums have as many columns
_ALL, _EVERY, _MOST = 16, 8, 64  # passes of the training: the first ones, then each eighth; at most
_PASSES, _LEAST = 8, 16  # of an evaluation, at most; rows, at least
_RIDGE = 1e-9  # of the mean square of an input
_KNOWN = 1.0  # leverage of a row on what the training has shown; more of one of another kind


class AdaptersBy:
    """Listens to one adapted module. An evaluation's pass has no gradients, and the module is not set to train."""

    def __init__(self, module: Any = None, pair: Sequence[Tensor] = ()) -> None:
        self._pair = tuple(map(weakref.ref, pair))
        self._scale: float | None = None
        self._sums: tuple[Tensor, Tensor, Tensor] | None = None  # inputs by inputs, inputs by outputs; squares of these
        self._rows, self._count, self._looks, self._passes = 0, 0, 0, 0
        self._found: Tensor | None = None
        self._handles = [] if module is None else [after(module, self._went)]

    def _went(self, module: Any, given: Any, output: Any) -> None:
        """The module was called."""
        import torch

        trains = torch.is_grad_enabled()
        if trains != module.training or not self._handles:
            return
        self._count += trains
        due = self._count <= _ALL or self._count % _EVERY == 0
        if (self._looks < _MOST and due) if trains else (self._sums is not None and self._passes < _PASSES):
            with contextlib.suppress(Exception):  # a module of another make says nothing
                self._see(trains, given[0] if given else None, output)

    def _see(self, trains: bool, given: Any, output: Any) -> None:
        import torch

        one, other = (item() for item in self._pair)
        if one is None or other is None or mesh_of(output) is not None or given.device.type not in ("cpu", "cuda"):
            return
        if trains and self._scale is None:
            self._scale = scale_of(output.grad_fn, {id(one), id(other)})
        factors = _in_order(one.detach(), other.detach(), given.shape[-1], output.shape[-1])
        if not self._scale or factors is None or given.shape[-1] > _WIDEST or given.shape[:-1] != output.shape[:-1]:
            self.close()
            return
        x, y = (item.detach().flatten(0, -2) for item in (given, output))
        rows = max(1, -(-len(x) // _ROWS))
        columns = slice(None, None, max(1, output.shape[-1] // _OUTPUTS))
        x, y = x[::rows].double(), y[::rows, columns][:, :_OUTPUTS].double()
        first, second = factors[0].double(), factors[1][columns][:_OUTPUTS].double()
        added = self._scale * (x @ first.T @ second.T)
        x, left = torch.cat([x, torch.ones_like(x[:, :1])], 1), y - added
        if trains:
            now = x.T @ x, x.T @ left, left.square().sum()
            before, self._rows, self._looks = self._sums, self._rows + len(x), self._looks + 1
            self._sums = now if before is None else tuple(map(torch.add, before, now))  # type: ignore[assignment]
        else:
            self._evaluated(x, left, added)

    def _evaluated(self, x: Tensor, left: Tensor, added: Tensor) -> None:
        """Sums [6] over the rows of a pass: of what is more than in the training, along what is added; squares of both;
        leverages; elements; the variance of what the training has left unexplained."""
        import torch

        assert self._sums is not None
        inputs, both, squares = self._sums
        level = inputs.diagonal().mean() * _RIDGE
        whole = inputs + level * torch.eye(len(inputs), dtype=inputs.dtype, device=inputs.device)
        lower, _ = torch.linalg.cholesky_ex(whole)
        layer, ways = torch.cholesky_solve(both, lower), torch.cholesky_solve(x.T, lower)
        lever = (x * ways.T).sum(1)
        known = (lever <= _KNOWN).double()
        more = (left - x @ layer) * known[:, None]
        added = added * known[:, None]
        free = max(1, self._rows - len(inputs)) * left.shape[1]
        variance = (squares - (both * layer).sum()).clamp_min(0) / free
        sums = torch.stack([(more * added).sum(), added.square().sum(), more.square().sum(), (lever * known).sum(),
                            known.sum() * left.shape[1], variance])  # fmt: skip
        self._found = sums if self._found is None else torch.cat([self._found[:5] + sums[:5], sums[5:]])
        self._passes += 1

    def put(self, current: ModelRound) -> None:
        """A step begins: `FIGURES`, behind an evaluation."""
        import torch

        if self._found is not None and self._scale is not None:
            along, size, whole, lever, count, variance = self._found.unbind()
            outputs = min(_OUTPUTS, self._sums[1].shape[1]) if self._sums is not None else 1
            error = (variance * lever * outputs / size).sqrt()  # of all rows in one direction
            rest = 1 - along.square() / (size * whole)
            found = torch.stack([1 + along / size, error, rest, torch.full_like(rest, self._scale)])
            current.put("adapters_by", FIGURES, torch.where(count >= _LEAST * outputs, found, torch.nan))
        self._found, self._passes = None, 0

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _in_order(one: Tensor, other: Tensor, inputs: int, outputs: int) -> tuple[Tensor, Tensor] | None:
    """The factors as [rank, inputs] and [outputs, rank]; None where their shapes are others."""
    for first, second in ((one, other), (other, one)):
        for turned in ((first, second), (first.T, second.T)):
            if turned[0].shape[1] == inputs and turned[1].shape[0] == outputs and len(turned[0]) == turned[1].shape[1]:
                return turned
    return None
