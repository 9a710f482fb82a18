"""What a model is given: mean and deviation, and what pictures look like at its first layer with weights.

In:   inputs of passes; layers that run in a pass, in their order, with what they are given and give.
Out:  figures for the `model` record, computed on the device; nothing waits.

What a model does with its inputs before its first layer, such as a division by 255, is done by then. Where that layer's
output goes whole into a normalisation, which takes any scale out of it, there are no figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from barograph.probes.model import fillers
from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

FIGURES = ("picture_low", "picture_high", "picture_mean", "picture_std")
MOMENTS = ("mean", "std", "low", "high", "lows", "highs")  # of a pass's inputs; the last four of pictures
COLOURS = ("red", "green", "blue", "red_std", "green_std", "blue_std")  # of pictures of three channels, in their order
PAIR = ("first", "last", "first_std", "last_std")  # of fields of two channels [rows, 2, height, width]
BY_ROW = ("rows_off", "rows_off_most")  # how far rows are from being standardised each by itself: the median, the most
TOKENS = ("mean", "std")  # of their numbers
CLASSES = ("class", "class_share")  # of examples, that a model is given: the most frequent one, and its share
_EXAMPLES = 16
_CHANNELS = (1, 3, 4)
_ROWS = 64
_PICTURES, _OF_CHANNEL = 8, 4096  # pictures whose channels are looked at, at least; numbers of a channel
_WIDE, _WHOLE = 32, 1 << 15  # numbers of a row that is looked at as a whole, at least; of all of these, at most
_FEW = 64  # numbers of a pass: mean and deviation of so few are chance
_ENOUGH = 256  # of several such passes: their deviation is within 5% of the truth
_AT_ONCE = 3  # times that these are gathered in a row; then at looks, as of larger inputs
_NORMS = ("BatchNorm", "LayerNorm", "InstanceNorm", "RMSNorm")  # a residual block's group norm leaves the rest as it is


class Entrance:
    """Listens to one pass at a time."""

    def __init__(self) -> None:
        self._found: Tensor | None = None
        self._output: Any = None  # of the first layer, while the next one is waited for
        self._entered = False
        self._ends: Tensor | None = None  # of what the first matrix is given

    def began(self) -> None:
        """A pass."""
        self._found, self._output, self._entered, self._ends = None, None, False, None

    def ran(self, module: Any, given: Any, output: Any) -> None:
        """A layer without parts has run."""
        tensor: Any = given[0] if given else None
        if self._ends is None and _is_of_rows(module, tensor):
            self._ends = fillers.entered(tensor)
        if self._entered:
            if self._output is not None and any(name in type(module).__name__ for name in _NORMS):
                self._found = None if tensor is self._output else self._found
            self._output = None
        elif getattr(getattr(module, "weight", None), "dim", lambda: 0)() > 1 and hasattr(tensor, "dim"):
            self._entered, self._output = True, output
            if _are_pictures(tensor) and not mesh_of(tensor):
                self._found = figures(tensor)

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        if self._found is not None:
            current.put("entrance", FIGURES, self._found)
        if self._ends is not None:
            current.put("entered", fillers.ENTERED, self._ends)
        self.began()


class Inputs:
    """Mean and deviation of what passes are given, those of the training and those of evaluations.

    Of rows of a few numbers several passes are put together: those of steps in a row at first, then those of looks.
    """

    def __init__(self) -> None:
        self._moments: dict[bool, tuple[tuple[str, ...], Tensor]] = {}  # of this step, by whether it is of the training
        self._kept: dict[bool, list[Tensor]] = {True: [], False: []}
        self._gathered = 0  # times that numbers of the training were put together
        self._came = False  # whether this step's pass is among them
        self._wide = 0  # numbers of a row of the training

    def given(self, tensor: Tensor, trains: bool, due: bool) -> None:
        """An input of floating point numbers. due: this step is looked at."""
        count = tensor.numel()
        if trains in self._moments or not count:
            return
        if trains and count <= _FEW:
            if tensor.dim() < 2 or self._came or not (due or self._gathered < _AT_ONCE):
                return
            self._came = True
        elif trains:
            if due:
                self._moments[trains] = self._and_rows(moments(tensor, few(local(tensor.detach())).float()), tensor)
                self._wide = math.prod(tensor.shape[1:])
            return
        values = few(local(tensor.detach())).float()
        kept = self._kept[trains]
        if len(values) < _ENOUGH:
            if kept and kept[0].device != values.device:
                kept.clear()
            kept.append(values.clone())
            if sum(map(len, kept)) < _ENOUGH:
                return
            values = self._together(trains)
            self._gathered += trains
        self._moments[trains] = moments(tensor, values)
        if not trains and math.prod(tensor.shape[1:]) == self._wide:
            self._moments[trains] = self._and_rows(self._moments[trains], tensor)

    def _and_rows(self, found: tuple[tuple[str, ...], Tensor], tensor: Tensor) -> tuple[tuple[str, ...], Tensor]:
        """And `BY_ROW`, of rows that are neither few nor large."""
        import torch

        wide = math.prod(tensor.shape[1:])
        count = min(_ROWS, len(tensor), _WHOLE // max(1, wide))
        if tensor.dim() < 2 or wide < _WIDE or count < _PICTURES or mesh_of(tensor):
            return found
        return found[0] + BY_ROW, torch.cat((found[1], by_row(local(tensor)[:count].flatten(1).float())))

    def _together(self, trains: bool) -> Tensor:
        import torch

        kept, self._kept[trains] = self._kept[trains], []
        return torch.cat(kept)

    def put(self, current: ModelRound, instead: Inputs | None = None) -> None:
        """A step begins. instead: of what was given in the model's place, where it was not called itself."""
        self._ended()
        if instead is not None:
            instead._ended()
            theirs = instead._moments.pop(False, None)
            if theirs is not None:
                self._moments.setdefault(False, theirs)
            instead._wide = self._wide
        for name, trains in (("inputs_of_training", True), ("inputs_of_evaluation", False)):
            found = self._moments.pop(trains, None)
            if found is not None:
                current.put(name, *found)
        self._came = False

    def _ended(self) -> None:
        """An evaluation is over."""
        if False not in self._moments and sum(map(len, self._kept[False])) > _FEW:
            few = self._together(False)
            self._moments[False] = moments(few, few)
        self._kept[False] = []


def _is_of_rows(module: Any, tensor: Any) -> bool:
    """Whether a layer with a matrix is given rows of numbers."""
    two = all(getattr(one, "dim", lambda: 0)() == 2 for one in (getattr(module, "weight", None), tensor))
    return two and tensor.is_floating_point() and not mesh_of(tensor)


def _are_pictures(tensor: Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_floating_point() and tensor.shape[1] in _CHANNELS


def moments(given: Tensor, values: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """Names and numbers: `MOMENTS` of some of those that a model was given; `COLOURS` of pictures that have them, or
    `PAIR`."""
    import torch

    found = [values.mean(), values.std()]
    names: tuple[str, ...] = MOMENTS[:2]
    if _are_pictures(given):
        low, high = values.amin(), values.amax()
        found += [low, high, (values == low).float().mean(), (values == high).float().mean()]
        names = MOMENTS
    by_channel: dict[int, tuple[str, ...]] = {len(some) // 2: some for some in (COLOURS, PAIR)}
    if given.dim() == 4 and given.shape[1] in by_channel and len(given) >= _PICTURES:
        channels = local(given.detach())[:_ROWS].transpose(0, 1).flatten(1)
        channels = channels[:, :: max(1, channels.shape[1] // _OF_CHANNEL)].float()
        found += [*channels.mean(1), *channels.std(1)]
        names = names + by_channel[given.shape[1]]
    return names, torch.stack(found)


def by_row(rows: Tensor) -> Tensor:
    """`BY_ROW` of rows of numbers: how far the mean of each is from 0, or its deviation, as a share of those of all
    rows, from 1; whichever is more."""
    import torch

    level = rows.mean(1)
    spread = (rows.square().mean(1) - level.square()).clamp_min(0).sqrt()  # std_mean takes ten times as long
    off = torch.maximum(level.abs(), (spread / spread.mean() - 1).abs())
    return torch.stack((off.median(), off.amax()))


def of_tokens(tokens: Tensor) -> Tensor:
    """`TOKENS` of a batch's numbers: other texts, another tokenizer and noise have others."""
    import torch

    numbers = tokens.double() if tokens.device.type != "mps" else tokens.float()
    return torch.stack([numbers.mean(), numbers.std()])


def of_classes(tensors: Iterable[Tensor]) -> Tensor | None:
    """`CLASSES` of the whole numbers, one for each example, that a model is given beside its inputs: of those of which
    the most examples have the same. None of fewer examples than sixteen."""
    import torch

    given = list(tensors)
    rows = {len(one) for one in given if one.dim() > 1 and one.is_floating_point()}
    found = []
    for one in given:
        whole = one.dim() == 1 and one.dtype in (torch.int64, torch.int32) and not mesh_of(one)
        if whole and len(one) >= _EXAMPLES and len(one) in rows:
            top = one.detach().mode().values
            found.append(torch.stack([top.double(), (one.detach() == top).double().mean()]))
    if not found or found[0].device.type == "mps":
        return None
    return torch.stack(found).index_select(0, torch.stack(found)[:, 1].argmax().reshape(1))[0]


def figures(pictures: Tensor) -> Tensor:
    """`FIGURES` of pictures [rows, channels, height, width]: the least and the largest number, the mean, and the
    deviation within a channel."""
    import torch

    with torch.no_grad():
        some = local(pictures.detach())[:_ROWS].float()
        return torch.stack([some.amin(), some.amax(), some.mean(), some.std((0, 2, 3)).mean()])


def few(tensor: Tensor) -> Tensor:
    """Numbers of all rows, at even distances that no width divides: else they were those of the same columns."""
    line = tensor.reshape(-1) if tensor.is_contiguous() else tensor[:_ROWS].reshape(-1)
    stride, row = max(1, len(line) // 4096), math.prod(tensor.shape[1:])
    while stride < len(line) and math.gcd(stride, row) > 1:
        stride += 1
    return line[::stride]
