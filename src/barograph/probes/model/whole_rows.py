"""Rows of an evaluation that are rows of the training in all that the model is given, where some come twice.

In:   all inputs of passes that are looked at.
Out:  figures for the `model` record.

Where batches have copies, rows are of a small space, and alike by chance, or the data has each several times, as a
table does whose measurements were written down again. Numbers tell: a column with hardly two equal ones among
different rows makes a row like no other. Rows are compared by all of their inputs, ids and labels too: an item that
comes with one user here and with another one there is no copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import local, mesh_of
from barograph.probes.model.row_marks import BITS, fingerprints

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_ROWS, _EVALUATED, _PASSES = 64, 64, 4  # of a batch; of a pass of an evaluation; passes
_COLUMNS = 32  # of numbers, in which the most varied one is looked for
_LEAST, _FEWEST = 3, 16  # numbers with a point in a row; rows of a batch
_VARIED = 0.9  # of the different rows, that have another number in that column
_KEPT = 1 << 16  # rows that are remembered


class WholeRows:
    """Remembers rows of the training, and looks for them in evaluations."""

    def __init__(self) -> None:
        self._step: Tensor | None = None  # marks of a batch, with how many numbers its most varied column has
        self._evaluated: list[Tensor] = []
        self._trained: set[int] = set()
        self._varied = True  # so far

    def trained(self, tensors: Sequence[Tensor]) -> None:
        """The inputs of a pass of the training."""
        import torch

        found = _inputs(tensors)
        if found is None or not self._varied:
            return
        marks, numbers = _marks(found, _ROWS), _numbers(found)[:_ROWS, :_COLUMNS].sort(0).values
        different = 1 + (numbers[1:] != numbers[:-1]).sum(0).amax().reshape(1)
        self._step = torch.cat([different, marks])

    def trained_no_more(self) -> None:
        """No gradient reached that pass."""
        self._step = None

    def evaluated(self, tensors: Sequence[Tensor]) -> None:
        """The inputs of a pass of an evaluation."""
        if self._varied and len(self._evaluated) < _PASSES and (found := _inputs(tensors)) is not None:
            self._evaluated.append(_marks(found, _EVALUATED))

    def forget(self) -> None:
        """Those were no evaluation."""
        self._evaluated = []

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        if self._step is not None:
            current.put("whole_rows", tuple(map(str, range(len(self._step)))), self._step)
        for at, marks in enumerate(self._evaluated):
            current.put("whole_evaluated", (str(at),) * len(marks), marks)
        self._step, self._evaluated = None, []

    def fields_of(self, numbers: Mapping[str, Any], copied: bool) -> dict[str, float]:
        """What is recorded of a step. copied: whether batches have had copies."""
        found: dict[str, float] = {}
        if copied and self._varied and self._trained and "whole_evaluated" in numbers:
            passes, values = numbers["whole_evaluated"]
            known = [int(one) in self._trained for one in values[0]]
            having = {at for at, one in zip(passes, known, strict=True) if one}
            found = {
                "evaluated_copies": sum(known) / len(known),
                "evaluated_copies_rows": float(len(known)),
                "evaluated_copies_passes": len(having) / len(set(passes)),
                "evaluated_copies_of": float(len(self._trained)),
            }
        if "whole_rows" in numbers:
            different, *rows = (int(one) for one in numbers["whole_rows"][1][0])
            self._varied = self._varied and different >= _VARIED * len(set(rows))
            if len(self._trained) < _KEPT:
                self._trained.update(rows)
        return found


def _inputs(tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """All inputs with a row an example, numbers with a point first; None where there are too few of these."""
    rows = [local(one.detach()) for one in tensors if one.dim() and mesh_of(one) is None and one.device.type != "mps"]
    numbers = [one for one in rows if one.is_floating_point() and one.dim() > 1 and one.numel() >= _LEAST * len(one)]
    if not numbers or len(numbers[0]) < _FEWEST:
        return None
    first = numbers[0]
    return [first, *(one for one in rows if one is not first and len(one) == len(first))]


def _numbers(inputs: Sequence[Tensor]) -> Tensor:
    return inputs[0].reshape(len(inputs[0]), -1)


def _marks(inputs: Sequence[Tensor], most: int) -> Tensor:
    """A number a row, of all of them together."""
    import torch

    marks = torch.zeros(min(most, len(inputs[0])), dtype=torch.int64, device=inputs[0].device)
    for one in inputs:
        rows = one[:most].reshape(len(marks), -1)
        if rows.shape[1] < 2:
            rows = torch.cat([rows, torch.zeros_like(rows)], 1)  # a single column has no differences
        marks = (3 * marks + fingerprints(rows).to(marks.device)) & BITS
    return marks
