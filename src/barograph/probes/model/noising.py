"""What a model of denoising is given: how much of the noise that it is to tell is in its input.

In:   an input with the shape of the output, what else the model is given, and the targets of a mean square.
Out:  figures, computed on the device from some rows; nothing waits.

Where targets are drawn from a normal distribution of mean 0 and deviation 1, they are noise. Σ input · target / Σ
target² is then the factor with which that noise is in the input: near 1 in the noisiest rows, 0 where the noise is
another one. An argument with a number for each row, the time, orders rows.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.guest import after, is_compiled

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

ROWS, ELEMENTS = 256, 256  # that are looked at, of a row at even distances
_LEAST = 128  # elements
_ROWS_OF_TIME, _EXAMPLES = 8, 4
_IN_ORDER, _DIFFERENT, _GOLDEN = 0.25, 0.75, 0.618034  # of neighbours that fall, or rise, at least; that differ
_TIME = re.compile(r"(?i)ts?|times?|time_?steps?|sigmas?|noise_?levels?|log_?snrs?|t_?steps?|steps?")
_EMBEDS = re.compile(  # a module's own name, of what makes an embedding of times
    r"(?i)(?:t|time|time_?steps?|sigma|noise_?levels?|log_?snr)(?:_?(?:emb\w*|mlp|proj|net|encod\w*|features?))?|"
    r"emb(?:ed\w*)?_(?:t|time|time_?steps?|sigma)"
)
_EMBEDDINGS = 2  # that are listened to
_EVEN = 12**-0.5  # deviation of numbers that are drawn evenly between 0 and 1
FIGURES = ("noise_target", "noise_share", "noise_share_early", "noise_share_late", "noise_even", "noise_alike",
           "time_of_rows", "time_of_columns", "end_noise_mean", "end_noise_std", "end_other_mean",
           "end_noise_alike", "noise_mark", "clean_mark")  # fmt: skip
_BITS = 20  # of a batch's noise, the first numbers, whose signs tell it from another


class TimeArgument:
    """What a model is given as the time, by the name of the argument: a number for each row; and whether what its
    embedding of times gives, a module that is named so, is the same for all rows."""

    def __init__(self, model: Any):
        try:
            self._names = list(inspect.signature(model.forward).parameters)
        except (TypeError, ValueError):
            self._names = []
        self._any = any(_TIME.fullmatch(name) for name in self._names)
        self._model: Any = model if self._any else None  # until the first look
        self._handles: list[Any] = []
        self._rows, self._same = 0, list[Any]()  # of the pass that is looked at; of each embedding in it
        self._range: Tensor | None = None
        self._weights: Tensor | None = None  # of a sum of the times, row by row
        self._drawn: Tensor | None = None  # 1 where the first times were in an order of chance, else NaN

    def given(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
        """A pass that is looked at."""
        import torch

        if not self._any:
            return
        for name, value in (*zip(self._names, arguments, strict=False), *named.items()):
            if _TIME.fullmatch(name) and isinstance(value, torch.Tensor) and value.numel() >= _ROWS_OF_TIME:
                if value.numel() == value.shape[0]:
                    wide = value.detach().float().reshape(-1)
                    self._range = torch.stack([wide.amin(), wide.amax(), self._mark(wide[:ROWS])])
                    self._rows, self._same = len(wide), []
                    self._listen()
                return

    def _listen(self) -> None:
        """At the first look: to what makes embeddings of times."""
        model, self._model = self._model, None
        if model is None or is_compiled():  # a hook would have its module compiled anew
            return
        some = [module for name, module in model.named_modules() if _EMBEDS.fullmatch(name.rpartition(".")[2])]
        self._handles = [after(one, self._embedded) for one in some[:_EMBEDDINGS]]

    def _embedded(self, module: Any, given: Any, output: Any) -> None:
        """An embedding of times was called."""
        import torch

        if self._rows and isinstance(output, torch.Tensor) and output.dim() == 2 and len(output) == self._rows:
            self._same.append((output.detach() == output.detach()[:1]).all())

    def _mark(self, times: Tensor) -> Tensor:
        """A sum of times with weights, which is the same for two batches that have the same in the same order; NaN
        where the first ones were in no order of chance."""
        import torch

        if self._weights is None or self._weights.shape != times.shape or self._weights.device != times.device:
            self._weights = torch.arange(1, len(times) + 1, device=times.device).float() * _GOLDEN % 1
        if self._drawn is None:
            self._drawn = _are_drawn(times)
        return torch.dot(times, self._weights) * self._drawn

    def put(self, current: ModelRound) -> None:
        """A step begins."""
        if self._range is not None:
            current.put("time", ("time_low", "time_high", "time_mark"), self._range)
            if self._same:
                import torch

                current.put("time", ("time_same",), torch.stack(self._same).any().float().reshape(1))
            self._range, self._rows, self._same = None, 0, []

    def close(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._model, self._handles = None, []


def _are_drawn(times: Tensor) -> Tensor:
    """1 where times are in an order of chance, and most of them differ; NaN where they may be the same in each batch on
    purpose."""
    import torch

    falls = (times.diff() < 0).float().mean()
    different = (times.sort().values.diff() != 0).float().mean()
    drawn = (falls >= _IN_ORDER) & (falls <= 1 - _IN_ORDER) & (different >= _DIFFERENT)
    return torch.where(drawn, 1.0, torch.nan).float()


def some(tensor: Tensor) -> Tensor:
    """Elements of some rows [n, k], the same of each tensor of that shape."""
    line = tensor[:ROWS].reshape(min(ROWS, tensor.shape[0]), -1)
    stride = max(1, line.shape[1] // ELEMENTS)
    while stride > 1 and math.gcd(stride, max(1, tensor.shape[-1])) > 1:
        stride += 1  # else they were those of the same columns
    return line[:, ::stride][:, :ELEMENTS]


def noisy_input(tensors: Sequence[Tensor], output: Any) -> tuple[Tensor, Tensor | None, tuple[int, ...]] | None:
    """The first input with the shape of the output, the first with a number for each row, and that shape; None without
    one."""
    shape = tuple(output.shape)
    alike = next((one for one in tensors if one.is_floating_point() and tuple(one.shape) == shape), None)
    if alike is None or len(shape) < 2 or alike.numel() < _LEAST:
        return None
    times = (one for one in tensors if one is not alike and one.numel() == shape[0] and one.shape[:1] == shape[:1])
    time = next(times, None)
    return some(alike.detach()).clone(), None if time is None else time.detach().reshape(-1)[:ROWS].clone(), shape


def target_of(output: Tensor, gradient: Tensor, count: int) -> Tensor:
    """The targets of a mean square over `count` numbers."""
    return output.float() - gradient.float() * (count / 2)


def figures(
    given: Tensor, time: Tensor | None, shape: tuple[int, ...], output: Tensor, gradient: Tensor, count: int
) -> Tensor:
    """`FIGURES`: 1 where targets are normal, else 0; with which factor they are in the input, of all rows, and of the
    quarters with the least and the greatest time, NaN where there is nothing to say; 1 where targets are drawn evenly
    between 0 and 1; 1 where all rows have the same, which is as normal as one row of it can be; of a batch with as many
    rows as columns, how far the factor of a row's targets, and that of a column's, is in the order of the times: of
    pictures the columns, or what else there are as many of, whichever is farther in that order; see `_ends`; a number
    that is the same for two batches that begin with the same noise, NaN where it is not known; and one that is the same
    for two batches of the same examples in the same order, whatever their noise: of the ends of lines that are not
    noise, else of targets that are not."""
    import torch

    target = target_of(output, gradient, count).to(given.device)
    given = given.float()
    size = target.numel()
    mean, deviation = target.mean(), target.std()
    fourth = ((target - mean) / deviation.clamp_min(1e-12)).pow(4).mean()
    normal = is_normal(target)
    even = (mean - 0.5).abs() < 4 * _EVEN / math.sqrt(size) + 0.001
    even &= (deviation / _EVEN - 1).abs() < 4 * math.sqrt(0.2 / size) + 0.002
    even &= (fourth - 1.8).abs() < 4 * math.sqrt(1.2 / size) + 0.01
    even &= (target.amin() > -1e-3) & (target.amax() < 1.001)
    nothing = torch.full_like(mean, torch.nan)
    wide = target.shape[1]
    alike = (target - target[:1]).abs().amax() < 1e-3 * deviation
    alike &= (mean.abs() < 4 / math.sqrt(wide)) & ((deviation - 1).abs() < 4 / math.sqrt(2 * wide))
    alike &= (fourth - 3).abs() < 4 * math.sqrt(24 / wide)
    alike &= torch.full_like(alike, len(target) > 1)
    first = [normal.float(), torch.where(normal, _share(given, target), nothing)]
    result = [*first, nothing, nothing, even.float(), alike.float(), nothing, nothing]
    if time is not None and len(time) == len(given) >= 16:
        order = time.argsort()
        quarter = len(order) // 4
        for place, rows in ((2, order[:quarter]), (3, order[-quarter:])):
            differs = normal & (time[order[-1]] > time[order[0]])
            result[place] = torch.where(differs, _share(given[rows], target[rows]), nothing)
    if time is not None and len(time) == len(given) == shape[0] >= 16:
        columns = [at.to(given.device) for at in _columns(shape, given.shape[1])]
        if columns:
            result[6] = _order(_factors(given, target), time)
            found = torch.stack([_order(_factors(given.T, target.T, at, shape[0]), time) for at in columns])
            result[7] = found[found.abs().nan_to_num().argmax()]
    timed = time is not None and len(time) == len(given) >= _ROWS_OF_TIME
    ends = _ends(given, time.to(given.device), target) if timed and time is not None else nothing.expand(6)
    mark = torch.where(normal, _mark(target), ends[4])
    other = normal | even | ((target - target[:1]).abs().amax() < 1e-3 * deviation) | (deviation <= 1e-4 * mean.abs())
    if timed and time is not None:  # a way along a line from or to noise, where either looks like the other
        other |= (time.amin() >= 0) & (time.amax() <= 1)
    clean = torch.where(ends[5].isfinite(), ends[5], torch.where(other, nothing, whole(target)))
    clean = clean if len(target) >= _EXAMPLES else nothing
    return torch.cat([torch.stack(result), ends[:4], mark[None], clean[None]])


def whole(numbers: Tensor) -> Tensor:
    """The sum of all numbers, each with a weight of its own between -1 and 1, by the root of how many they are."""
    import torch

    places = torch.arange(1, numbers.numel() + 1, device=numbers.device, dtype=numbers.dtype)
    return torch.dot(numbers.flatten(), 2 * (places * _GOLDEN % 1) - 1) / math.sqrt(numbers.numel())


def _mark(noise: Tensor) -> Tensor:
    """The signs of the first numbers, as a whole number: single precision hardly changes one."""
    import torch

    bits = (noise.flatten()[:_BITS] > 0).to(noise.dtype)
    return (bits * 2.0 ** torch.arange(_BITS, device=noise.device, dtype=noise.dtype)).sum()


def _columns(shape: tuple[int, ...], looked: int) -> list[Tensor]:
    """Of each dimension of a row that has as many places as there are rows: the place of each number that is looked
    at. Those of which some place has none are left out."""
    import torch

    flat = some(torch.arange(math.prod(shape[1:])).reshape(1, *shape[1:]))[0, :looked]
    found = []
    for dim in range(1, len(shape)):
        at = flat // math.prod(shape[dim + 1 :]) % shape[dim]
        if shape[dim] == shape[0] and len(set(at.tolist())) == shape[dim]:
            found.append(at)
    return found


def _factors(given: Tensor, target: Tensor, at: Tensor | None = None, places: int = 0) -> Tensor:
    """With which factor targets are in the input, row by row; of rows with the same number at `at`, together."""
    import torch

    sums = torch.stack([(given * target).sum(1), target.square().sum(1)])
    if at is not None:
        sums = torch.zeros(2, places, device=given.device).index_add_(1, at, sums)
    return sums[0] / sums[1].clamp_min(1e-12)


def _ends(given: Tensor, time: Tensor, target: Tensor) -> Tensor:
    """Where inputs lie on straight lines from noise to examples, or back, and targets are the way along them: mean and
    deviation of the noise, the mean of the examples, 1 where all rows have the same noise, its `_mark`, and the
    examples' `whole`. NaN where neither end is noise, or both are: normal, and neighbours say nothing of each
    other."""
    import torch

    share = time.float()[:, None]
    within = (share.amin() >= 0) & (share.amax() <= 1) & (share.amax() > share.amin())
    found = torch.full((6,), torch.nan, device=given.device)
    for way in (target, -target):
        both = given - share * way, given + (1 - share) * way
        for end, other in (both, both[::-1]):
            alike = (end - end[:1]).abs().amax() < 1e-3
            noise = is_normal(other) & (_of_neighbours(other) < 4 / math.sqrt(other.numel()) + 0.01)
            fits = torch.where(alike, is_normal(end[:1]), is_normal(end)) & ~noise & within
            said = torch.stack([end.mean(), end.std(), other.mean(), alike.float(), _mark(end), whole(other)])
            found = torch.where(fits & found[0].isnan(), said, found)
    return found


def _of_neighbours(rows: Tensor) -> Tensor:
    """The correlation of numbers beside each other in a row, without its sign: pictures and curves have one."""
    centred = rows - rows.mean()
    return (centred[:, 1:] * centred[:, :-1]).mean().abs() / centred.square().mean().clamp_min(1e-12)


def is_normal(numbers: Tensor) -> Tensor:
    """Whether numbers are as if drawn with mean 0 and deviation 1: four standard errors of each, and rounding."""
    size = numbers.numel()
    mean, deviation = numbers.mean(), numbers.std()
    fourth = ((numbers - mean) / deviation.clamp_min(1e-12)).pow(4).mean()
    normal = (mean.abs() < 4 / math.sqrt(size) + 0.01) & ((deviation - 1).abs() < 4 / math.sqrt(2 * size) + 0.01)
    return normal & ((fourth - 3).abs() < 4 * math.sqrt(24 / size) + 0.05)


def _order(one: Tensor, other: Tensor) -> Tensor:
    """The correlation of the ranks of both."""
    import torch

    ranks = torch.stack([some.float().argsort().argsort().float() for some in (one, other)])
    return torch.corrcoef(ranks)[0, 1]


def _share(given: Tensor, target: Tensor) -> Tensor:
    return (given * target).sum() / target.square().sum().clamp_min(1e-12)
