"""Numbers of a table that stand for missing ones: the same one in many rows, far beyond all others of its column; and
columns that hardly differ beside another one, in whose units they are.

In:   inputs of floating point numbers [rows, columns], of passes of the training; what the first layer with a matrix
      is given.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

Rows of several looks are put together, and looked at when there are twice as many. What a model does with such numbers
itself is done before its first matrix: if it takes them out, the least and the largest number there say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import local, mesh_of
from barograph.probes.model.rounds import finite_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("filler_columns", "filler_share", "filler_number", "filler_next", "filler_rows", "filler_size")
"""How many columns have one; of the column in which it lies furthest out, in widths of the others: the share of the
rows that have it, which number it is, and the next one; rows and columns that were looked at."""
UNITS = ("unit_columns", "unit_lost", "unit_deviation", "unit_number")
"""Columns of sixteen different numbers or more; those whose deviation, by the middle half of their numbers, is below
a hundredth of the largest one; this, and which column has it."""
_ALWAYS = ("filler_columns", "filler_rows", "filler_size")
_LOST = 100.0  # times what a column differs by
ENTERED = ("entered_low", "entered_high")  # of what the first matrix is given
_ROWS, _LEAST, _COLUMNS = 256, 64, 64  # rows in all; at which they are looked at first; of an input
_VARIED = 16  # different other numbers of a column: fewer may be kinds
_SOME, _OFTEN = 3, 0.01  # rows that have the number, at least; their share
_MIDDLE = 1.349  # deviations between the quarters of what is drawn normally
_WHOLE = 0.9  # of the columns: a row of such numbers alone is padding


class Fillers:
    """Follows the first table of the inputs."""

    def __init__(self) -> None:
        self._rows: list[Tensor] = []
        self._place, self._next = -1, _LEAST
        self._found: Tensor | None = None

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        import torch

        if not (trains and due) or self._next > _ROWS:
            return
        place = next((at for at, one in enumerate(tensors) if _is_table(one)), -1)
        if place < 0 or (self._rows and (place != self._place or not _fits(tensors[place], self._rows[0]))):
            self._rows, self._next = [], _ROWS + 1  # of several kinds of passes nothing is known
            return
        self._place = place
        some = local(tensors[place].detach())[:_ROWS, :_COLUMNS]
        self._rows.append(some.float().clone())
        if sum(map(len, self._rows)) >= self._next:
            table = _together(self._rows)
            self._found = torch.cat((figures(table), units(table)))
            self._next *= 2
            self._rows = self._rows if self._next <= _ROWS else []

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        if self._found is not None:
            current.put("fillers", FIGURES + UNITS, self._found)
            self._found = None


def _together(rows: list[Tensor]) -> Tensor:
    import torch

    return torch.cat(rows)[:_ROWS]


def _is_table(tensor: Tensor) -> bool:
    return tensor.dim() == 2 and tensor.is_floating_point() and mesh_of(tensor) is None and tensor.shape[1] > 1


def _fits(tensor: Tensor, other: Tensor) -> bool:
    return min(tensor.shape[1], _COLUMNS) == other.shape[1] and tensor.device == other.device


def figures(table: Tensor) -> Tensor:
    """`FIGURES` of some rows [rows, columns]."""
    import torch

    with torch.no_grad():
        count, columns = table.shape
        sides = torch.cat((table, -table), 1)  # the least number of each column, and the largest one
        values = sides.sort(0).values
        low, here = values[0], sides == values[0]
        following = values.gather(0, here.sum(0).clamp(max=count - 1)[None])[0]
        width, gap = values[-1] - following, following - low
        other = (values.diff(dim=0) > 0).sum(0) >= _VARIED
        far = other & (width > 0) & (gap >= width)
        padding = (here & far).sum(1, keepdim=True) >= _WHOLE * columns
        often = (here & ~padding).sum(0)
        found = far & (often >= max(_SOME, _OFTEN * count)) & (2 * often <= count)
        most = torch.where(found, gap / width, -1.0).argmax().reshape(1)
        sign = torch.where(most < columns, 1.0, -1.0)
        share, number, beside = (one.index_select(0, most)[0] for one in (often / count, low, following))
        sizes = (torch.full_like(number, one) for one in (count, columns))
        return torch.stack([found.sum().to(low.dtype), share, sign[0] * number, sign[0] * beside, *sizes])


def units(table: Tensor) -> Tensor:
    """`UNITS` of some rows [rows, columns]."""
    import torch

    with torch.no_grad():
        values = table.sort(0).values
        count = len(values)
        deviation = (values[3 * count // 4] - values[count // 4]) / _MIDDLE
        varied = ((values.diff(dim=0) > 0).sum(0) + 1 >= _VARIED) & (deviation > 0)
        deviation = torch.where(varied, deviation, 0.0)
        lost = varied & (deviation * _LOST < deviation.max())
        whose = deviation.argmax().to(deviation.dtype)
        return torch.stack([varied.sum().to(deviation.dtype), lost.sum().to(deviation.dtype), deviation.max(), whose])


def entered(tensor: Tensor) -> Tensor:
    """`ENTERED` of what a matrix is given."""
    import torch

    return torch.stack(local(tensor.detach()).float().aminmax())


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What is recorded of a step, when it has arrived."""
    found = finite_of(numbers, "fillers", "entered")
    if found.get("filler_columns") == 0:
        found = {name: value for name, value in found.items() if name[:7] != "filler_" or name in _ALWAYS}
    return found
