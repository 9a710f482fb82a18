"""Single columns of what a model is given, as a feature of a table or a channel of a series: where the training's
numbers lie, and where those of evaluations do.

In:   inputs of floating point numbers, of passes of the training and of evaluations.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

One column in other units among many hardly moves the mean of all. Columns are the places of each dimension but that of
the rows; of pictures those of the channels alone. A dimension of another size in other passes is no longer looked at,
and passes of an evaluation with other inputs are not compared. Of a table it is followed besides whether each pass has
been standardised by its own rows: then the mean of each column is 0, and its deviation 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_ROWS, _COLUMNS, _ALL = 64, 256, 1 << 12  # of a pass; columns of a dimension; numbers of all of them, about
_INPUTS, _PASSES = 3, 4  # of a model; of an evaluation
_ENOUGH = 64  # numbers of a column in an evaluation
_VARIED = 16  # different numbers of a column of an evaluation: fewer may be a setting, or a flag
_TABLE, _LEAST_ROWS, _LEAST_COLUMNS = 1 << 18, 16, 4  # numbers of a table, at most; its rows and columns, at least
_MOVED, _ALIKE, _WIDER = 2.0, 0.5, 1.5  # of the training's deviations: between means; times a deviation
_NEAR = 0.3  # of a deviation, that a mean may be off, where all columns are a number times those of the training
CENTRED = ("eval", "training", "passes", "looks")
FIGURES = ("looks", "low", "high", "deviation", "median", "eval_deviation", "mean", "eval_mean", "place", "dimension",
           "number")  # fmt: skip
"""Of one column: looks at the training, in all of which its numbers lie between low and high and have this deviation;
the evaluation's median and deviation; the mean of both; which input, which of its dimensions, and which place there,
all from 0 on."""


class InputColumns:
    """Follows columns by the place of their input and their dimension there."""

    def __init__(self) -> None:
        self._kinds: tuple[Any, ...] = ()  # of all inputs of a pass of the training
        self._known: dict[tuple[int, int], Tensor] = {}  # [5, columns]: largest, negative least, sums of 1, of x, of x²
        self._looks: dict[tuple[int, int], int] = {}
        self._left: set[tuple[int, int]] = set()  # not looked at
        self._evaluated: dict[tuple[int, int], list[Tensor]] = {}
        self._off: dict[int, Tensor] = {}  # of tables: the least of what `_off_standard` was in the training
        self._seen: dict[int, int] = {}
        self._evaluated_off: dict[int, list[Tensor]] = {}

    def given(self, tensors: Sequence[Tensor], trains: bool, due: bool) -> None:
        """The inputs of a pass. due: this step of the training is looked at."""
        kinds = tuple((one.dim(), one.is_floating_point()) for one in tensors)
        if trains and due:
            self._kinds = kinds
        if (trains and not due) or kinds != self._kinds:
            return
        places = [at for at, one in enumerate(tensors) if one.is_floating_point()][:_INPUTS]
        for at in places:
            if trains:
                self._trained(at, tensors[at])
            else:
                self.evaluated(at, tensors[at])

    def _trained(self, place: int, tensor: Tensor) -> None:
        import torch

        if (off := _off_standard(tensor)) is not None:
            self._off[place] = torch.minimum(off, self._off.get(place, off).to(off.device))
            self._seen[place] = self._seen.get(place, 0) + 1
        for dimension, table in _tables(tensor, False):
            at = place, dimension
            known = self._known.get(at)
            if at in self._left or (known is not None and known.shape[1] != table.shape[1]):
                self._left.add(at)
                self._known.pop(at, None)
                continue
            count = torch.full_like(table[0], len(table))
            low, high = table.aminmax(dim=0)
            ends, sums = torch.stack((high, -low)), torch.stack((count, table.sum(0), table.square().sum(0)))
            if known is not None:
                ends, sums = torch.maximum(ends, known[:2].to(ends.device)), sums + known[2:].to(sums.device)
            self._known[at] = torch.cat((ends, sums))
            self._looks[at] = self._looks.get(at, 0) + 1

    def evaluated(self, place: int, tensor: Tensor) -> None:
        """What an evaluation gives in this place."""
        passes = self._evaluated_off.setdefault(place, [])
        if place in self._off and len(passes) < _PASSES and (off := _off_standard(tensor)) is not None:
            passes.append(off)
        had = [tables for (at, _), tables in self._evaluated.items() if at == place]
        whole = [len(tables) >= _PASSES or sum(one.shape[1] for one in tables) >= _ENOUGH for tables in had]
        if (whole and all(whole)) or not any(at == place for at, _ in self._known):
            return
        for dimension, table in _tables(tensor, True):  # evaluations often lie in an order
            thin = table[:: max(1, len(table) // (2 * _ENOUGH))]
            self._evaluated.setdefault((place, dimension), []).append(thin.T.clone())

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        import torch

        evaluated, self._evaluated = self._evaluated, {}
        off, self._evaluated_off = {at: some for at, some in self._evaluated_off.items() if some}, {}
        if off:
            whose = {at: self._off[at].to(some[0].device) for at, some in off.items()}
            counts = {at: torch.tensor([len(some), self._seen[at]]).to(whose[at]) for at, some in off.items()}
            most = {at: torch.stack(some).max() for at, some in off.items()}
            tables_off = [torch.cat((torch.stack((most[at], whose[at])), counts[at])) for at in off]
            current.put("centred", tuple(map(str, off)), torch.stack(tables_off, 1))
        for (place, dimension), tables in evaluated.items():
            known, width = self._known.get((place, dimension)), len(tables[0])
            if known is None or any(len(one) != known.shape[1] for one in tables):
                continue
            values = torch.cat(tables, 1).sort(1).values  # [columns, n]
            if values.shape[1] < _ENOUGH:
                continue
            known = known.to(values.device)
            high, low, count, total, squares = known[0], -known[1], *known[2:]
            mean = total / count
            deviation = (squares / count - mean.square()).clamp_min(0).sqrt()
            different = (values.diff(dim=1) != 0).sum(1) + 1
            looks = torch.full_like(low, self._looks[place, dimension])
            rows = (
                looks,
                low,
                high,
                deviation,
                values[:, values.shape[1] // 2],
                values.std(1),
                mean,
                values.mean(1),
                different.to(low.dtype),
            )
            names = tuple(f"{place} {dimension} {at}" for at in range(width))
            current.put("input_columns", names, torch.stack(rows))


def _off_standard(tensor: Tensor) -> Tensor | None:
    """By how much the mean of a column, in its deviations, or its deviation is off 0 or 1, at most: of a table. The
    deviation is that of the rows, or that of what they were drawn from. Columns of one number don't count; infinite
    where there are fewer than four others."""
    import torch

    table = tensor.dim() == 2 and len(tensor) >= _LEAST_ROWS and tensor.shape[1] >= _LEAST_COLUMNS
    if not table or tensor.numel() > _TABLE or mesh_of(tensor) is not None:
        return None
    deviation, mean = torch.std_mean(local(tensor.detach()).float(), dim=0)
    varied = deviation > 0
    away = torch.where(varied, mean.abs() / deviation.clamp_min(1e-12), 0.0).max()
    both = torch.stack((deviation, deviation * math.sqrt(1 - 1 / len(tensor))))
    wide = torch.where(varied, (both - 1).abs(), 0.0).amax(1).min()
    return torch.where(varied.sum() >= _LEAST_COLUMNS, torch.maximum(away, wide), math.inf)


def _tables(tensor: Tensor, evenly: bool) -> list[tuple[int, Tensor]]:
    """Some numbers [n, columns] of each dimension that has columns; of a line of numbers, one column of dimension 1.
    Of the first rows, or of rows at even distances."""
    if mesh_of(tensor) is not None or not 1 <= tensor.dim() <= 4 or not tensor.numel():
        return []
    some = local(tensor.detach())
    some = some[:: max(1, len(some) // _ROWS)] if evenly else some[:_ROWS]
    if tensor.dim() == 1:
        return [(1, some.float()[:, None])]
    found = []
    for dimension in range(1, tensor.dim() if tensor.dim() < 4 else 2):
        if 1 <= tensor.shape[dimension] <= _COLUMNS:
            found.append((dimension, _thinned(some, dimension).movedim(dimension, -1).flatten(0, -2).float()))
    return found


def _thinned(tensor: Tensor, dimension: int) -> Tensor:
    """Some numbers of each column, at even distances; nothing is copied."""
    columns = tensor.shape[dimension]
    times = -(-tensor.numel() // (columns * max(_ENOUGH, _ALL // columns)))
    for other in reversed([at for at in range(tensor.dim()) if at != dimension]):
        stride = max(1, min(times, tensor.shape[other] // (1 if other else _ENOUGH // 2)))
        tensor, times = tensor[(slice(None),) * other + (slice(None, None, stride),)], -(-times // stride)
    return tensor


def _of_other_columns(table: Any, names: Sequence[str], one: Mapping[str, float]) -> dict[str, float]:
    """`column_moved`: how many columns of the dimension of this one have a mean in evaluations that lies two of the
    training's deviations away or more; `column_swapped`: how many of these have mean and deviation of another one;
    `column_factor`: what mean and deviation of each are in evaluations, in those of the training, where that is one
    number for all columns, else 0, and `column_factor_of`: how many columns there are."""
    if not one:
        return {}
    same = [at for at, name in enumerate(names) if name.startswith(f"{one['place']:.0f} {one['dimension']:.0f} ")]
    _, _, _, mine, _, theirs, mean, other, different = table[:, same]
    moved = abs(other - mean) > _MOVED * mine
    near = abs(other[:, None] - mean) <= _ALIKE * mine
    near &= (theirs[:, None] <= _WIDER * mine) & (mine <= _WIDER * theirs[:, None])
    varied = (different >= _VARIED) & (mine > 0) & (abs(other) < math.inf)
    told = varied & (abs(mean) >= mine)  # the mean says by how much
    factors = sorted((other[told] / mean[told]).tolist())
    factor = factors[len(factors) // 2] if len(factors) >= _LEAST_COLUMNS else 0.0
    wanted = factor * mine
    alike = abs(other - factor * mean) <= _NEAR * wanted
    alike &= (theirs <= _WIDER * wanted) & (wanted <= _WIDER * theirs)
    return {
        "column_moved": float(moved.sum()), "column_swapped": float((moved & near.any(1)).sum()),
        "column_factor": factor if bool(alike[varied].all()) else 0.0, "column_factor_of": float(varied.sum()),
    }  # fmt: skip


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """`FIGURES` of the column of an evaluation that lies furthest beyond the training's, as `column_…`, with how far
    in widths of all of the training's numbers; and of the one that is the narrowest beside it, as `narrow_…`."""
    names, table = numbers.get("input_columns", ((), ()))
    ranges: dict[str, list[tuple[float, float]]] = {}  # of this column in all inputs: they may have changed places
    for name, column in zip(names, table.T.tolist() if len(names) else (), strict=True):
        ranges.setdefault(name.partition(" ")[2], []).append((column[1], column[2]))
    beyond: tuple[float, dict[str, float]] = (-math.inf, {})
    narrow: tuple[float, dict[str, float]] = (0.0, {})
    for name, column in zip(names, table.T.tolist() if len(names) else (), strict=True):
        _, low, high, deviation, median, theirs, *_, different = column
        if different < _VARIED or not all(map(math.isfinite, column)) or not min(deviation, theirs, high - low) > 0:
            continue
        figures = dict(zip(FIGURES, (*column[:-1], *map(float, name.split())), strict=True))
        mine = ranges[name.partition(" ")[2]]
        far = min(max(median - most, least - median) / (most - least) for least, most in mine if most > least)
        beyond = max(beyond, (far, figures), key=lambda one: one[0])
        narrow = max(narrow, (deviation / theirs, figures), key=lambda one: one[0])
    found = {f"column_{name}": value for name, value in beyond[1].items()}
    found |= _of_other_columns(table, names, beyond[1])
    found |= {f"narrow_{name}": value for name, value in narrow[1].items()}
    tables = numbers["centred"][1].T.tolist() if "centred" in numbers else ()
    if tables:
        found |= {f"centred_{name}": value for name, value in zip(CENTRED, min(tables), strict=True)}
    if beyond[1]:
        found |= {"column_beyond": beyond[0], "narrow_times": narrow[0]}
    return found
