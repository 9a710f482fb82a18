"""What a loss makes of a model's output, told from the gradient that the output gets; what evaluations are given.

In:   inputs and output of forward passes, the gradient of the output.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

The gradient of a cross-entropy is c (softmax(output) − target): beside the target it is proportional to exp(output),
which no other loss gives. So it shows whether a softmax follows, and each row's target. That of a mean square is
c (output − target): where targets differ and it is a line over the output all the same, every output was compared with
every target. Where the graph of the loss says that it is nothing but the mean square of n outputs, c is 2 / n, and the
targets are known.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from barograph.probes.model import noising
from barograph.probes.model.activations import first_tensor
from barograph.probes.model.objective import plain_kind
from barograph.probes.model.padding import tails
from barograph.probes.model.parameters import local, mesh_of
from barograph.probes.model.rows import place_of

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.rounds import ModelRound

_ROWS, _ELEMENTS = 64, 1 << 16  # that are looked at, at most
_FIRST, _EVERY = 8, 10  # the first steps, and then one of ten
_STRIDE = 7  # another of the ten each time: an epoch of fifty steps is seen at all its places
_CLASSES = 1000  # more are a vocabulary, in which batches of one target say nothing
_TOKENS = 32  # places of a sequence whose targets are compared with its inputs
_PLACES = 1 << 17  # elements of the gradient, of as many sequences
_SHIFTS = (1, 0, 2, 3)  # places by which a target may be ahead of its input
_INPUTS = 3  # of a model, that may be what its targets are shifted from: a decoder has two
_LINE = 1e-4  # off a line, of its deviation: rounding of single precision
_SLACK = 0.02  # of targets at the bounds of a function: smoothed ones, and rounding
_FEW = 16  # rows in which two softmaxes are looked for
_WHOLE = 1 << 20  # elements of a gradient that is looked at whole, in the first steps
_COUNTED = 1 << 22  # elements on the CPU in which rows with a target are counted
FIGURES = ("softmax_twice", "sigmoid_twice", "output_spread", "logit_range", "top_target", "top_target_share",
           "broadcast_target", "target_weight", "noise_floor",
           "wrong_share", "wrong_rank", "wrong_sure", "targets_elsewhere", "targets", "places", "target_shift",
           "padding_targets")  # fmt: skip
TARGETS = ("target_mean", "target_std", "explained", "output_rms", "out_of_range")  # of a mean square
_RANGES = {"Sigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0), "Tanh": (-1.0, 1.0), "Relu": (0.0, math.inf)}
_SEEN = 4  # of `FIGURES`, the last: those of the whole gradient
_NAMED = 32  # classes whose targets are counted


class OutputLook:
    """Looks at one forward pass of some steps."""

    def __init__(self) -> None:
        self.timed: Callable[[Callable[..., None]], Callable[..., None]] = lambda hook: hook
        self._steps = self._passes = 0
        self.due = True
        self._found: Tensor | None = None
        self._training: Tensor | None = None  # mean and standard deviation of the inputs
        self._evaluation: Tensor | None = None
        self._tokens: list[Tensor] = []  # of a batch, whole
        self._places: list[Any] = []  # where they were
        self._classes: Tensor | None = None  # targets by class
        self._targets: Tensor | None = None  # of a mean square
        self._noise: Tensor | None = None
        self._given: list[Tensor] = []  # of the pass that is looked at
        self._round: ModelRound | None = None  # of the step before: it knows what the loss is

    def given(self, tensors: Iterable[Tensor], trains: bool) -> None:
        """The inputs of a pass."""
        import torch

        tensors = list(tensors)
        self._given = tensors if trains and self.due else []
        if trains and self.due:
            numbers = (one for one in tensors if one.dim() == 2 and not one.is_floating_point())
            whole = (one for one in numbers if one.shape[1] >= 8 and mesh_of(one) is None)  # no rank asks others
            some = [one for _, one in zip(range(_INPUTS), whole, strict=False)]
            self._tokens, self._places = [one[:_ROWS].clone() for one in some], [place_of(one) for one in some]
        tensor = next((one for one in tensors if one.is_floating_point()), None)
        if tensor is None:
            return
        known = self._training if trains else self._evaluation
        if known is None and (self.due or not trains) and tensor.numel() > _ROWS:
            values = _few(local(tensor.detach())).float()
            moments = torch.stack([values.mean(), values.std()])
            if trains:
                self._training = moments
            else:
                self._evaluation = moments

    def returned(self, output: Any, embedded: Collection[Any] = ()) -> None:
        """The output of a pass with gradients. embedded: which tensors were embedded in it."""
        self._passes += 1
        inputs, self._given = self._given, []
        if not self.due:
            return
        tensor = first_tensor(output) if getattr(output, "logits", None) is None else output.logits
        if tensor is None or not tensor.requires_grad or tensor.is_sparse or mesh_of(tensor) is not None:
            return
        self.due = False
        rows = _rows(tensor.detach()).clone()  # it may be changed in place
        given, self._tokens = self._tokens, []
        fed = [place in embedded for place in self._places]
        if tensor.dim() != 3 or tensor.shape[1] < 8:
            given = []
        squared = self._round.squared if self._round is not None else None
        made = plain_kind(tensor.grad_fn) if squared is not None else ""
        count = tensor.numel() if squared == (tensor.numel(), made) else 0
        noisy = noising.noisy_input(inputs, tensor) if count else None
        part = noising.some(tensor.detach()).clone() if noisy is not None else rows

        def arrived(gradient: Tensor) -> None:
            import torch

            with contextlib.suppress(Exception), torch.no_grad():
                self._found, self._classes = figures(rows, _rows(gradient)), None
                if gradient.is_cuda or gradient.numel() <= _COUNTED:
                    classes = 1 if gradient.dim() > 3 else -1
                    # no abs(): of a language model's logits a copy may be more than the device has left
                    alive = (gradient.amax(classes) != 0) | (gradient.amin(classes) != 0)
                    self._found[-_SEEN], self._found[1 - _SEEN] = alive.sum(), alive.numel()
                    same = [one for one in given if one.shape == alive[:_ROWS].shape]
                    if same and gradient.shape[2] > 1:
                        self._found[-1] = _of_padding(same[0], gradient[:_ROWS], alive[:_ROWS])
                if given and self._steps <= _FIRST and gradient.numel() <= _WHOLE:
                    self._found[-_SEEN - 1] = _elsewhere(given[0], gradient, self._found[0])
                if given:
                    follows = self._found[0]
                    most = max(1, min(_ROWS, _PLACES // (_TOKENS * gradient.shape[2])))
                    shifts = torch.stack([_shift(one[:most, : _TOKENS + max(_SHIFTS)], gradient[:most, :_TOKENS],
                                                 follows) for one in given])  # fmt: skip
                    # others than the first may be the targets themselves: they count where they are inputs for sure
                    own, following = shifts[0], shifts[0] == 1
                    for shift in (shifts[at] for at in range(1, len(given)) if fed[at]):
                        own, following = torch.where(shift == 0, shift, own), following | (shift == 1)
                    self._found[-2] = torch.where(following, torch.ones_like(follows), own)
                if count:
                    self._targets = _targets(rows, _rows(gradient), count, _RANGES.get(made))
                if noisy is not None:
                    self._noise = noising.figures(*noisy, part, noising.some(gradient), count)
                if gradient.dim() == 2 and 2 <= gradient.shape[1] <= _NAMED:
                    self._classes = _by_class(rows, _rows(gradient), self._found[0])

        tensor.register_hook(self.timed(arrived))

    def put(self, current: ModelRound) -> None:
        """A step begins: what its passes have shown."""
        if self._found is not None:
            current.put("output", FIGURES, self._found)
            current.figures["passes"] = float(self._passes)
        if self._classes is not None:
            current.put("classes", tuple(map(str, range(self._classes.shape[1]))), self._classes)
        if self._targets is not None:
            current.put("targets", TARGETS, self._targets)
        if self._noise is not None:
            current.put("noise", noising.FIGURES, self._noise)
        for name, moments in (("inputs_of_training", self._training), ("inputs_of_evaluation", self._evaluation)):
            if moments is not None:
                current.put(name, ("mean", "std"), moments)
        self._found = self._training = self._evaluation = self._classes = self._targets = self._noise = None
        self._round = current
        self._passes = 0
        self._steps += 1
        ten, place = divmod(self._steps, _EVERY)
        self.due = self._steps < _FIRST or place == _STRIDE * ten % _EVERY


def fields_of(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What of a round's columns is recorded: numbers that could be said of this output."""
    found: dict[str, float] = {}
    families = {
        "output": "",
        "targets": "",
        "noise": "",
        "time": "",
        "dependence": "",
        "inputs_of_training": "input_",
        "inputs_of_evaluation": "eval_input_",
    }
    for family, prefix in families.items():
        names, values = numbers.get(family, ((), ((),)))
        found |= {prefix + name: float(value) for name, value in zip(names, values[0], strict=True)}
    weight, targets = (found.pop(name, math.nan) for name in ("target_weight", "targets"))
    if weight * targets == weight * targets:
        scale = numbers.get("loss_scale", ((), ((1.0,),)))[1][0][0]
        found |= {"targets": targets, "loss_weight": weight * targets / float(scale)}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def figures(output: Tensor, gradient: Tensor) -> Tensor:
    """`FIGURES` of rows of an output and its gradient [n, k], NaN where there is nothing to say."""
    import torch

    exact = output.dtype in (torch.float32, torch.float64) and gradient.dtype in (torch.float32, torch.float64)
    within = 2e-3 if exact else 3e-2
    wide = torch.float32 if output.device.type == "mps" else torch.float64
    output, gradient = output.to(wide), gradient.to(wide)
    count, width = output.shape
    nothing = output.new_full((), math.nan)
    result = dict.fromkeys(FIGURES, nothing)
    bounded = ((output >= 0) & (output <= 1)).all()
    rms = output.square().mean().sqrt()
    if count >= 8:
        result["output_spread"] = (output - output.mean(0)).square().mean().sqrt() / rms
    if width > 1 and count >= 4:
        follows, target, alive, weight = _softmax(output, gradient, within)
        result["target_weight"] = torch.where(follows, weight, nothing)
        ranges = (output.amax(1) - output.amin(1)).median()
        result["logit_range"] = torch.where(follows, ranges, nothing)
        sums = ((output.sum(1) - 1).abs() < within).all()
        few = output[:_FEW], gradient[:_FEW]
        twice = bounded & sums & (follows | _exponential(*few, within))
        if exact:
            twice = twice | (~follows & _twice(*few))
        result["softmax_twice"] = torch.where(follows | twice, twice.to(wide), nothing)
        if width <= _CLASSES:
            result["noise_floor"] = torch.where(follows, _floor(output), nothing)
        if 4 <= width <= _CLASSES and count >= 16:
            for name, value in zip(("share", "rank", "sure"), _wrong(output, target, alive), strict=True):
                result[f"wrong_{name}"] = torch.where(follows, value, nothing)
        if 2 <= width <= _CLASSES and count >= 16:
            counts = torch.zeros(width, dtype=wide, device=output.device)
            counts.index_add_(0, target, alive.to(wide))
            share, top = counts.max(0)
            result["top_target"] = torch.where(follows, top.to(wide), nothing)
            result["top_target_share"] = torch.where(follows, share / alive.to(wide).sum(), nothing)
    if count * width >= 16:
        scale = gradient / (torch.sigmoid(output) - (gradient < 0).to(wide))
        logistic = (scale.amin() > 0) & (scale.amax() - scale.amin() <= within * scale.amax())
        result["sigmoid_twice"] = torch.where(logistic, bounded.to(wide), nothing)
        if width == 1 and count >= 16:
            share = (gradient < 0).to(wide).mean()
            result["top_target"] = torch.where(logistic, (share > 0.5).to(wide), nothing)
            result["top_target_share"] = torch.where(logistic, torch.maximum(share, 1 - share), nothing)
    if width == 1 and count >= 8:
        result["broadcast_target"] = _line(output[:, 0], gradient[:, 0], _LINE if exact else 0.0)
    return torch.stack([result[name] for name in FIGURES])


def _targets(output: Tensor, gradient: Tensor, count: int, within: tuple[float, float] | None) -> Tensor:
    """`TARGETS` of rows of an output and its gradient, where the loss is the mean square of `count` differences: mean
    and deviation of the targets, which part of their variance the outputs explain, the outputs' size, and the share of
    targets out of the range that the output's function has."""
    import torch

    wide = torch.float32 if output.device.type == "mps" else torch.float64
    output = output.to(wide)
    target = output - gradient.to(wide) * (count / 2)
    away = (target - target.mean(0)).square().sum()
    nothing = output.new_full((), math.nan)
    explained = 1 - (output - target).square().sum() / away if len(target) >= 16 else nothing
    outside = nothing
    if within is not None:
        outside = ((target < within[0] - _SLACK) | (target > within[1] + _SLACK)).to(wide).mean()
    return torch.stack([target.mean(), target.std(), explained, output.square().mean().sqrt(), outside])


def _softmax(output: Tensor, gradient: Tensor, within: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Whether a softmax and its cross-entropy follow, with one target a row; each row's target; whether it has one;
    with which weight a row's loss is in the whole."""
    import torch

    size = gradient.abs().sum(1)
    alive = size > 0
    target = gradient.argmin(1)
    power = torch.exp(output - output.amax(1, keepdim=True))
    ratio = gradient / power
    seen = power > 1e-20  # others are rounded away
    seen.scatter_(1, target[:, None], False)
    high = ratio.masked_fill(~seen, -math.inf).amax(1)
    low = ratio.masked_fill(~seen, math.inf).amin(1)
    weight = (low * power.sum(1)).masked_fill(~(alive & low.isfinite()), math.nan).nanmedian()
    if output.shape[1] == 2:  # one element a row: compared between rows
        scale = (high * power.sum(1)).masked_fill(~alive, math.nan)
        high, low = scale.nan_to_num(-math.inf).amax(), scale.nan_to_num(math.inf).amin()
    straight = (low > 0) & (high - low <= within * high)
    adds = gradient.sum(1).abs() <= within * size
    return ((straight & adds) | ~alive).all() & (alive.sum() >= 4), target, alive, weight


def _floor(output: Tensor) -> Tensor:
    """How much of the probability is spread evenly over all classes, whatever the row: the classes' number times the
    probability that a tenth of them are below, in the row of which a quarter are below."""
    import torch

    chances, width = torch.softmax(output, 1), output.shape[1]
    return (chances.kthvalue(1 + width // 10, 1).values * width).quantile(0.25)


def _wrong(output: Tensor, target: Tensor, alive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In which share of the rows another class than the target is the likeliest; where the targets of these rows stand
    among the other classes, on the average: 0 where they are the next likely, 1 where they are the least, and one half
    where they have nothing to do with the row; how likely the likeliest is there, of how likely it is in other rows."""
    import torch

    mine = output.gather(1, target[:, None])
    above = (output > mine).sum(1)
    wrong = (above > 0) & alive
    right = alive & ~wrong
    rank = ((above - 1).clamp_min(0) * wrong).sum() / wrong.sum() / (output.shape[1] - 2)
    top = torch.softmax(output, 1).amax(1)
    sure = ((top * wrong).sum() / wrong.sum()) / ((top * right).sum() / right.sum())
    return wrong.sum() / alive.sum().clamp_min(1), rank.to(output.dtype), sure.to(output.dtype)


def _exponential(output: Tensor, gradient: Tensor, within: float) -> Tensor:
    """Whether nearly all of a row's gradients are proportional to exp(output), as of a loss that takes them for logits
    or their logarithms; the others are targets."""
    if output.shape[1] < 8:
        return (output != output).any()
    ratio = gradient / output.exp()
    middle = ratio.median(1, keepdim=True).values
    same = ((ratio - middle).abs() <= within * middle.abs()).sum(1) >= output.shape[1] - max(3, output.shape[1] // 4)
    return ((middle[:, 0] > 0) & same | (gradient == 0).all(1)).all() & (gradient != 0).any()


def _twice(output: Tensor, gradient: Tensor) -> Tensor:
    """Whether two softmaxes and a cross-entropy follow: the gradient of the first one's result is that of the second.

    That of the output is p (v − Σ p v), with v = c (softmax(p) − target) and p = softmax(output): divided by p, a line
    over softmax(p) but for the target.
    """
    import torch

    width = output.shape[1]
    if width < 5:
        return (output != output).any()
    first = torch.softmax(output, 1)
    value, second = gradient / first, torch.softmax(first, 1)
    seen = first > 1e-4
    seen.scatter_(1, value.argmin(1, keepdim=True), False)
    count = seen.sum(1, keepdim=True).clamp_min(1)
    here = (second - (second * seen).sum(1, keepdim=True) / count) * seen
    there = (value - (value * seen).sum(1, keepdim=True) / count) * seen
    slope = (here * there).sum(1, keepdim=True) / here.square().sum(1, keepdim=True)
    off = (there - slope * here).square().sum(1) / there.square().sum(1)
    # rounding of single precision, which both differences magnify: rows in which it is small against them
    alive = (count[:, 0] >= 4) & (here.abs().amax(1) > 1e-3 * second.amax(1)) & (gradient.abs().sum(1) > 0)
    right = (slope[:, 0] > 0) & (off < 1e-4)
    steady = torch.where(alive & right, slope[:, 0], torch.nan)
    apart = steady.nan_to_num(-torch.inf).amax() - steady.nan_to_num(torch.inf).amin()
    return (right | ~alive).all() & (alive.sum() >= 4) & (apart <= 0.01 * steady.nan_to_num(0.0).amax())


def _by_class(output: Tensor, gradient: Tensor, follows: Tensor) -> Tensor:
    """How many rows have each class as target, and the sum of the weights that their losses have in the whole [2, k];
    NaN where no cross-entropy follows."""
    import torch

    target, wide = gradient.argmin(1), follows.dtype
    own = torch.softmax(output.to(wide), 1).gather(1, target[:, None])[:, 0]  # its gradient is w (p − 1)
    weight = -gradient.to(wide).amin(1) / (1 - own).clamp_min(1e-6)
    table = torch.zeros(2, gradient.shape[1], dtype=wide, device=gradient.device)
    table[0].index_add_(0, target, (gradient != 0).any(1).to(wide))
    table[1].index_add_(0, target, weight)
    return torch.where(follows.isfinite(), table, torch.nan)


def _of_padding(tokens: Tensor, gradient: Tensor, alive: Tensor) -> Tensor:
    """The share of targets that lie in padding; NaN where there is none for sure.

    The targets of padding are all one.
    """
    tail, sure = tails(tokens)
    within = tail & alive
    within[:, 1:] &= tail[:, :-1]  # the first of them may be an end that is learnt
    within[:, 0] = False
    target = gradient.argmin(2)
    sure &= target.masked_fill(~within, -1).max() <= target.masked_fill(~within, gradient.shape[2]).min()
    share: Tensor = within.sum() / alive.sum().clamp_min(1)
    return share.double().masked_fill(~sure, math.nan)


def _shift(tokens: Any, gradient: Tensor, follows: Tensor) -> Tensor:
    """How many places the targets of sequences are ahead of their inputs, −1 where they are no such thing; NaN where
    that is not to be seen, or where a softmax and its cross-entropy don't follow."""
    import torch

    alive = gradient.abs().sum(-1) > 0
    target = gradient.argmin(-1)
    result = follows.new_full((), -1.0)
    changes = (tokens[:, 1:] != tokens[:, :-1]).sum()  # of few tokens over and over, every shift is true
    for ahead in reversed(_SHIFTS):
        next_ones = tokens[:, ahead : ahead + target.shape[1]]
        known = alive[:, : next_ones.shape[1]]
        same = (target[:, : next_ones.shape[1]] == next_ones) | ~known
        result = torch.where(same.all() & (known.sum() >= 8), result.new_full((), ahead), result)
    seen = follows.isfinite() & (changes >= 8) & (alive.sum() >= 8)
    return torch.where(seen, result, follows.new_full((), math.nan))


def _elsewhere(tokens: Tensor, gradient: Tensor, follows: Tensor) -> Tensor:
    """Whether the targets of a batch of texts are the next tokens of other places: 1 of other rows, each of one of the
    batch; 2 where outputs and targets were flattened in another order of rows and places; 0 if neither; NaN where that
    is not to be seen."""
    import torch

    target, (rows, places) = gradient.argmin(-1), tokens.shape
    nothing = follows.new_full((), math.nan)
    if target.shape not in ((rows, places), (places, rows)) or rows < 2 or gradient.shape[-1] < 8:
        return nothing
    alike = target.shape == tokens.shape
    mixed = (target.T if alike else target).reshape(-1).view(rows, places)
    crossed = (mixed[:, :-1] == tokens[:, 1:]).all()
    moved = torch.zeros_like(crossed)
    if alike:
        for ours, theirs in ((target, tokens), (target[:, :-1], tokens[:, 1:])):
            same = (ours[:, None] == theirs[None]).all(-1)
            moved = moved | ((same.sum(1) == 1).all() & ~same.diagonal().any())
        straight = (target[:, :-1] == tokens[:, 1:]).all()
        crossed = crossed & ~straight
    seen = follows.isfinite() & (gradient != 0).any(-1).all() & ((tokens[:, 1:] != tokens[:, :-1]).sum() >= 4 * rows)
    return torch.where(seen, torch.where(crossed, 2.0, moved.double()).to(follows.dtype), nothing)


def _line(output: Tensor, gradient: Tensor, within: float) -> Tensor:
    """The one target with which all outputs were compared by their squares; NaN where it is not one."""
    import torch

    here, there = output - output.mean(), gradient - gradient.mean()
    slope = (here * there).sum() / here.square().sum()
    off = (there - slope * here).square().mean().sqrt()
    one = (slope > 0) & (off <= within * there.square().mean().sqrt())
    return torch.where(one, output.mean() - gradient.mean() / slope, output.new_full((), math.nan))


def _rows(tensor: Tensor) -> Tensor:
    """Some rows [n, k] of an output: classes are its last dimension, of a picture's points the second."""
    if tensor.dim() < 2:
        return tensor.reshape(-1, 1)[:_ROWS]
    if tensor.dim() > 3:
        tensor = tensor.movedim(1, -1)
    most = max(4, min(_ROWS, _ELEMENTS // tensor.shape[-1]))
    some = (slice(None, most), *(slice(None, None, max(1, size // 2)) for size in tensor.shape[1:-1]))
    return tensor[some].reshape(-1, tensor.shape[-1])[:most]


def _few(tensor: Tensor) -> Tensor:
    """Elements of all rows, at even distances that no width divides: else they were those of the same columns."""
    line = tensor.reshape(-1) if tensor.is_contiguous() else tensor[:_ROWS].reshape(-1)
    stride, row = max(1, len(line) // 4096), math.prod(tensor.shape[1:])
    while stride < len(line) and math.gcd(stride, row) > 1:
        stride += 1
    return line[::stride]
