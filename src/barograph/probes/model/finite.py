"""Where a training first holds a number that is not finite: in the output, or in the gradients alone.

In:   the output of passes with gradients; gradients when a step begins; the largest input of each step.
Out:  figures of the step for the `model` record, where one is not finite, or an input is far larger than others. On
      the CPU each step is looked at; on a device, which would have to be waited for, those whose norms are measured.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from barograph.probes.model.rounds import ModelRound

BEFORE, _OUTLIER = 16, 100.0  # steps that an input is compared with; times as large
_MOST = 1 << 14  # elements of an output, at even distances
_OF_A_GRADIENT = 1 << 10
_COUNTED = 3  # steps of a launch in which all gradients are looked at, and such in which all weights are


class FiniteLook:
    """Looks at the last pass of a step and at two gradients: that of the first parameter, which a number from any layer
    reaches, and of the smallest."""

    def __init__(self) -> None:
        self._output: Any = None  # some elements of it
        self._key: Any = None
        self._chosen: list[Any] = []
        self._counted = self._weighed = 0
        self._sound = -1  # the last step that was looked at and in which all was finite

    def returned(self, output: Any) -> None:
        """The output of a pass with gradients."""
        if output is None or mesh_of(output) is not None or not output.numel():
            return
        line = output.detach().reshape(-1) if output.is_contiguous() else output.detach().flatten()[:_MOST]
        self._output = line[:: max(1, -(-len(line) // _MOST))].clone()  # it may be changed in place

    def put(self, current: ModelRound, parameters: tuple[Any, ...]) -> None:
        """A step begins."""
        if parameters is not self._key:
            self._key = parameters
            whole = [item for item in parameters if mesh_of(item) is None]
            self._chosen = list({id(item): item for item in (*whole[:1], *sorted(whole, key=_size)[:1])}.values())
        output, self._output = self._output, None
        gradients = [item.grad for item in self._chosen if item.grad is not None and not item.grad.is_sparse]
        if output is None or not gradients or not (output.device.type == "cpu" or "norms" in current.due):
            return
        some = [local(gradient).reshape(-1)[:_OF_A_GRADIENT] for gradient in gradients]
        if output.device.type != "cpu":
            import torch

            sums = [one.float().sum() for one in some]
            both = [_largest(output), sum(sums[1:], sums[0]).to(output.device)]
            current.put("finite", ("size", "sum"), torch.stack(both))
            return
        total = sum(float(one.float().sum()) for one in some)
        told = {}
        if not math.isfinite(total) or not math.isfinite(float(output.sum())):
            told = figures(float(_largest(output)), total)
        if not told:
            self._sound = current.step
            return
        told["finite_until"] = float(self._sound)
        if told.get("broken_gradient") and self._counted < _COUNTED:
            self._counted += 1
            told |= _counts(parameters)
        if told.get("broken_output") and self._weighed < _COUNTED:
            self._weighed += 1
            told["broken_weights"] = float(sum(not _is_finite(parameter.detach()) for parameter in parameters))
        current.figures |= told


def _counts(parameters: tuple[Any, ...]) -> dict[str, float]:
    """How many parameters have a gradient that is not finite, and how many one that is, and is not 0."""
    broken = spared = 0
    for parameter in parameters:
        gradient = None if parameter.grad is None or parameter.grad.is_sparse else local(parameter.grad)
        if gradient is not None and gradient.numel():
            size = float(gradient.float().abs().amax())
            broken += size - size != 0
            spared += size - size == 0 and size > 0
    return {"broken_gradients": float(broken), "spared_gradients": float(spared)}


def _largest(output: Any) -> Any:
    import torch

    return torch.linalg.vector_norm(output.float(), float("inf"))


def _is_finite(tensor: Any) -> bool:
    whole = local(tensor)
    size = float(whole.float().abs().amax()) if whole.numel() else 0.0
    return size - size == 0


def figures(size: float, total: float) -> dict[str, float]:
    """What is recorded: nothing of a step in which all is finite."""
    if size - size == 0 and total - total == 0:
        return {}
    return {"broken_output": float(size - size != 0), "broken_gradient": float(total - total != 0)} | (
        {"output_size": size} if size - size == 0 else {}
    )


def _size(parameter: Any) -> int:
    return int(parameter.numel())


def outlier(numbers: Mapping[str, Any], last: deque[float]) -> dict[str, float]:
    """Of a step with an input a hundred times as large as those of the steps before, how many times; the round of each
    step that has arrived is asked once, in the order of steps. last: the largest input of each of the last ones, to
    which this adds."""
    if "inputs" not in numbers or not math.isfinite(largest := float(numbers["inputs"][1][0][0])):
        return {}
    before = sorted(last)
    last.append(largest)
    usual = before[len(before) // 2] if len(before) >= BEFORE // 2 else 0.0
    return {"input_outlier": largest / usual} if largest > _OUTLIER * usual > 0 else {}
