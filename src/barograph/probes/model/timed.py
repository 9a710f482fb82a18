"""What a model that is given a time with each row is given at the least, the middle and the greatest times: mean and
deviation, and how rough it is; and what it is given first and last where examples are drawn, step by step.

In:   inputs of passes, those of the training and those of evaluations.
Out:  figures for the `model` record, computed on the device from some numbers; nothing waits.

A model of denoising is given examples with more or less noise. At one end of the times its inputs are nearly the
examples, at the other nearly the noise: what is prepared in another way shows there whole, and hardly in all of them.
Noise is rough: neighbours are as far apart as any two numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.noising import ROWS, some
from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = (*(f"{end}_{what}" for end in ("early", "late") for what in ("mean", "std", "time", "rough")),
           "middle_std", "middle_time")  # fmt: skip
"""Of the quarters of the rows with the least and the greatest time: mean and deviation of the inputs, mean time, and
the squared distance of neighbours in the last dimension, of that of any two numbers of a row. Of the quarter of the
rows in the middle of the times: deviation and mean time."""
_LINES, _SHORTEST = 8, 8  # of a row; places of one
_ROWS, _PASSES = 16, 3  # rows of a pass, at least; passes of an evaluation, at most
DRAWN = tuple(f"{end}_{what}" for end in ("first", "last") for what in ("time", "std", "rough"))
"""Of the first and of the last pass of an evaluation in which all rows have one time: this time, and what `FIGURES` are
of all rows."""
_STEPS = 3  # passes with one time each, at least, of a drawing


class TimedInputs:
    """Looks at inputs of the training, and at those of an evaluation's first passes."""

    def __init__(self) -> None:
        self._training: Tensor | None = None
        self._evaluated: list[Tensor] = []
        self._place: tuple[int, int] | None = None  # of inputs and times, in the training
        self._begun: Tensor | None = None  # what a drawing was given first
        self._drawn: tuple[Tensor, Tensor] | None = None  # and last: inputs and times, until the next step
        self._steps = 0

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        if not due if trains else self._place is None:
            return
        place = _places(tensors)
        if trains:
            self._place = place
        if place is None or place != self._place:
            return
        given, time = tensors[place[0]].detach(), tensors[place[1]].detach()
        if trains:
            self._training = figures(given, time)
        elif is_one(time):
            self._steps += 1
            self._drawn = given, time
            self._begun = all_rows(given, time) if self._begun is None else self._begun
        elif len(self._evaluated) < _PASSES:
            self._evaluated.append(figures(given, time))

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        import torch

        if self._training is not None:
            current.put("timed", FIGURES, self._training)
        if self._evaluated:  # samples are drawn with one time for all rows, which says nothing
            current.put("timed_evaluated", FIGURES, torch.stack(self._evaluated).nanmedian(0).values)
        if self._begun is not None and self._drawn is not None and self._steps >= _STEPS:
            current.put("timed_drawn", DRAWN, torch.cat([self._begun, all_rows(*self._drawn)]))
        self._training, self._evaluated = None, []
        self._begun, self._drawn, self._steps = None, None, 0


def is_one(time: Tensor) -> bool:
    """Whether all rows have one time, as in the steps of a drawing; on a device, where that is seen without a wait."""
    if not any(time.stride()):
        return True
    return time.device.type == "cpu" and bool(time.amin() == time.amax())


def all_rows(given: Tensor, time: Tensor) -> Tensor:
    """Half of `DRAWN`."""
    import torch

    rows, lines = some(given).float(), _lines(given)
    every = torch.arange(len(lines) if lines is not None else 0, device=rows.device)
    return torch.stack([time.reshape(-1)[0].float(), rows.std(), _roughness(lines, every).to(rows.device)])


def _places(tensors: Sequence[Tensor]) -> tuple[int, int] | None:
    """Which inputs are the first of floating point numbers, of several a row, and the first one of a number a row."""
    first = next((at for at, one in enumerate(tensors) if one.is_floating_point()), None)
    if first is None or tensors[first].dim() < 2 or len(tensors[first]) < _ROWS or mesh_of(tensors[first]):
        return None
    rows = len(tensors[first])
    alone = (at for at, one in enumerate(tensors) if at != first and one.dim() and one.numel() == len(one) == rows)
    time = next(alone, None)
    return None if time is None or tensors[first].numel() == rows else (first, time)


def figures(given: Tensor, time: Tensor) -> Tensor:
    """`FIGURES`; NaN where all rows have one time."""
    import torch

    rows = some(given.detach()).float()
    times = time.detach().reshape(-1)[: len(rows)].float()
    order, quarter = times.argsort(), len(rows) // 4
    found, lines = [], _lines(given)
    for part in (order[:quarter], order[-quarter:]):
        values = rows.index_select(0, part)
        found += [values.mean(), values.std(), times.index_select(0, part).mean(), _roughness(lines, part)]
    middle = order[(len(order) - quarter) // 2 :][:quarter]
    found += [rows.index_select(0, middle).std(), times.index_select(0, middle).mean()]
    return torch.where(times.amax() > times.amin(), torch.stack(found), math.nan)


def _lines(given: Tensor) -> Tensor | None:
    """Some lines [rows, lines, places] along the last dimension."""
    part = given.detach()[:ROWS]
    return part.reshape(len(part), -1, part.shape[-1])[:, :_LINES].float() if part.shape[-1] >= _SHORTEST else None


def _roughness(lines: Tensor | None, rows: Tensor) -> Tensor:
    """1 of noise, near 0 of what is smooth; NaN of short lines."""
    import torch

    if lines is None:
        return rows.new_full((), math.nan, dtype=torch.float32)
    some = lines.index_select(0, rows)
    return some.diff(dim=2).square().mean() / (2 * some.flatten(1).var(1).mean()).clamp_min(1e-12)


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What is recorded of a step, when it has arrived."""
    found: dict[str, float] = {}
    for family, prefix in (("timed", "input_"), ("timed_evaluated", "eval_input_"), ("timed_drawn", "drawn_")):
        names, values = numbers.get(family, ((), ((),)))
        found |= {prefix + name: float(value) for name, value in zip(names, values[0], strict=True)}
    return {name: value for name, value in found.items() if math.isfinite(value)}
