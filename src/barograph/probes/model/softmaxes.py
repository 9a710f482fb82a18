"""Whether a softmax and its cross-entropy follow an output, told from the gradient that the output gets.

In:   some rows of an output, and their gradient.
Out:  each row's target and weight, and figures of what the softmax says; nothing waits.

The gradient of a cross-entropy is c (softmax(output) − target): beside the target it is proportional to exp(output),
which no other loss gives. Where labels are smoothed, a part of the target's weight is the same for all classes, and it
is a line over the softmax, with the same part in each row. Of few classes no line is to be seen: where the graph of
the loss says how much is smoothed, and all rows have one weight, each row's labels follow from that weight.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

EXACT, HALF = 2e-3, 3e-2  # what rounding may be of a number's size: of 32 bits and more, and of 16
_CLASSES = 6  # at least, for a line: it takes three points to see one, and the target is none of them
_VARIES = 0.02  # of the size of the chances: below it their line is not to be seen
_ALIKE, _ALIKE_HALF = 0.02, 0.1  # smoothing of two rows
_LEFT = 0.3  # of its weight, that the target has at least beyond its share of the smoothing
_FAR, _SAME = 5000.0, 0.01  # below the likeliest: masks are -1e4, -1e9 or the least number of a type
_TURNED = 1 << 22  # elements of a gradient of which a copy is made
_ASKED = 1 << 17  # of which the signs are counted
_SCALED = 128  # rows
_SEEN = 1e-9  # of the largest gradient: smaller ones are rounded
_OFF = 1.05  # times the least gradient that a class beside the target can have: rounding


class Softmax(NamedTuple):
    """Of rows [n, k]: whether a softmax and its cross-entropy follow; whether its labels are not smoothed; each row's
    target; whether it has one; with which weight its loss is in the whole; below which gradient a class is the target
    for sure."""

    follows: Tensor
    plain: Tensor
    target: Tensor
    alive: Tensor
    weight: Tensor
    below: Tensor


def find(output: Tensor, gradient: Tensor, within: float, smoothing: float = 0.0) -> Softmax:
    """What follows these outputs, by their gradients. within: what rounding may be, of a number's size. smoothing: how
    much of the labels is smoothed, as the loss's graph says."""
    import torch

    straight, target, weight = _plain(output, gradient, within)
    size = gradient.abs().sum(1)
    alive, adds = size > 0, gradient.sum(1).abs() <= within * size
    enough = alive.sum() >= 4
    plain = ((straight & adds) | ~alive).all() & enough
    zero = torch.zeros_like(weight[:1]).sum()
    if output.shape[1] < _CLASSES and 0 < smoothing < 1:
        fits, label, common = _by_labels(output, gradient, within, smoothing, alive)
        smooth, below = fits & adds.all() & enough, -_OFF * common * smoothing / output.shape[1]
        weight = torch.where(smooth, common, weight).masked_fill(~alive, math.nan)
        plain = plain & ~smooth if output.shape[1] > 2 else zero > 0  # rows that are alike look like either
        return Softmax(plain | smooth, plain, torch.where(smooth, label, target), alive, weight,
                       torch.where(smooth, below, zero))  # fmt: skip
    if output.shape[1] < _CLASSES or (plain.device.type == "cpu" and bool(plain)):
        return Softmax(plain, plain, target, alive, weight.masked_fill(~alive, math.nan), zero)
    fits, known, other, slope, share = _smoothed(output, gradient, within, target)
    known = known & alive
    part = (share * output.shape[1]).masked_fill(~known, math.nan)
    alike = part.nan_to_num(-math.inf).amax() - part.nan_to_num(math.inf).amin()
    alike = alike <= (_ALIKE if within < 0.01 else _ALIKE_HALF)
    # of a model that has learnt smoothed labels, the classes beside the target have all one chance
    smooth = ((fits & adds) | ~known).all() & (known.sum() >= (alive.sum() / 2).clamp_min(4)) & alike & ~plain
    below = -_OFF * (slope * share).masked_fill(~(known & smooth), 0.0).amax()
    alive = torch.where(smooth, known, alive)
    weight = torch.where(smooth, slope, weight).masked_fill(~alive, math.nan)
    return Softmax(plain | smooth, plain, torch.where(smooth, other, target), alive, weight, below)


def one_sided(gradient: Tensor) -> Tensor:
    """The gradient of texts [rows, places, classes], turned round in those rows whose likelihood the loss lowers, as of
    the rejected side of preferences that go through the model beside the chosen one: there the target has the only
    gradient above 0. As it is where some row has both signs, or all have one."""
    import torch

    count = len(gradient)
    if not _is_of_texts(gradient) or count % 2 or count < 4:
        return gradient
    one, raised, lowered = _signs(gradient)
    place = torch.arange(count, device=gradient.device)
    half, turns = place >= count // 2, place % 2 == 1
    sides = one & (lowered == ~raised).all() & torch.stack(
        [(lowered == side).all() for side in (half, ~half, turns, ~turns)]
    ).any()  # fmt: skip
    if gradient.device.type == "cpu" and not bool(sides):
        return gradient
    return torch.where((sides & lowered)[:, None, None], -gradient, gradient)


def turned_by_rows(gradient: Tensor) -> tuple[Tensor | None, Tensor]:
    """The same of texts whose rows are raised or lowered each for itself, as good and bad answers are, with both among
    them; and whether it is so. None where it is known to be otherwise."""
    import torch

    if not _is_of_texts(gradient) or len(gradient) < 2:
        return None, gradient
    one, raised, lowered = _signs(gradient)
    sure = one & ~(raised & lowered).any() & raised.any() & lowered.any()
    if gradient.device.type == "cpu" and not bool(sure):
        return None, sure
    return torch.where((sure & lowered)[:, None, None], -gradient, gradient), sure


def _is_of_texts(gradient: Tensor) -> bool:
    return gradient.dim() == 3 and gradient.shape[2] >= _CLASSES and gradient.numel() <= _TURNED


def _signs(gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the gradient of texts: whether each place that is looked at has one class of another sign than all others, or
    no gradient; in which rows this is the one below 0, and in which the one above."""
    each = max(1, gradient.numel() // _ASKED)
    part = gradient[:, :: min(each, gradient.shape[1])]  # of few places of each row: a copy of all is another matter
    above, below = (part > 0).sum(2), (part < 0).sum(2)
    up, down = (above == 1) & (below >= 1), (below == 1) & (above >= 1)
    one = (up | down | (above + below == 0)).all()
    return one, ((down & ~up) & (above > 1)).any(1), ((up & ~down) & (below > 1)).any(1)


def _by_labels(
    output: Tensor, gradient: Tensor, within: float, smoothing: float, alive: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Whether there is one weight with which each row's labels, softmax − gradient / weight, are smoothed ones, and no
    other such weight; each row's target; that weight. It is one that the row with the largest gradient may have."""
    import torch

    width = output.shape[1]
    chances = torch.softmax(output, 1)
    wanted = torch.eye(width, dtype=output.dtype, device=output.device) * (1 - smoothing) + smoothing / width
    largest = gradient.abs().sum(1).argmax(0, keepdim=True)  # a number as an index would have to be waited for
    away = chances.index_select(0, largest) - wanted  # [target, class]
    weights = (away * gradient.index_select(0, largest)).sum(1) / away.square().sum(1)
    labels = chances - gradient / weights[:, None, None]  # [weight, row, class]
    off, target = (labels[:, :, None] - wanted).abs().amax(-1).min(-1)
    off = off.masked_fill(~alive, 0.0).amax(1).nan_to_num(math.inf).masked_fill(~(weights > 0), math.inf)
    best = off.argmin(0, keepdim=True)
    return (off <= within).sum() == 1, target.index_select(0, best)[0], weights.index_select(0, best)[0]


def _plain(output: Tensor, gradient: Tensor, within: float) -> tuple[Tensor, Tensor, Tensor]:
    """Whether each row's gradient is proportional to exp(output) beside one class; that class; the row's weight."""
    import torch

    target = gradient.argmin(1)
    power = torch.exp(output - output.amax(1, keepdim=True))
    ratio = gradient / power
    seen = power > 1e-20  # others are rounded away
    seen.scatter_(1, target[:, None], False)
    high = ratio.masked_fill(~seen, -math.inf).amax(1)
    low = ratio.masked_fill(~seen, math.inf).amin(1)
    weight = (low * power.sum(1)).masked_fill(~low.isfinite(), math.nan)
    if output.shape[1] == 2:  # one element a row: compared between rows
        scale = (high * power.sum(1)).masked_fill(gradient.abs().sum(1) == 0, math.nan)
        high, low = scale.nan_to_num(-math.inf).amax(), scale.nan_to_num(math.inf).amin()
    return (low > 0) & (high - low <= within * high), target, weight


def _smoothed(output: Tensor, gradient: Tensor, within: float, target: Tensor) -> tuple[Tensor, ...]:
    """Whether each row's gradient is a line over the softmax beside one class that lies below it; whether that can be
    seen; that class: the one with the least gradient, or, where the model is surer than smoothed labels are, the
    likeliest; the row's weight; the part of its target that each class has."""
    import torch

    chances = torch.softmax(output, 1)
    likeliest = chances.argmax(1)
    sums = torch.stack([one.sum(1) for one in (chances, gradient, chances.square(), chances * gradient,
                                               gradient.square())])  # fmt: skip
    here, there = (_line(chances, gradient, sums, within, one) for one in (target, likeliest))
    first = ~(there[4] < here[4])
    fits, known, slope, share = (torch.where(first, one, other) for one, other in zip(here[:4], there[:4], strict=True))
    return fits, known, torch.where(first, target, likeliest), slope, share


def _line(chances: Tensor, gradient: Tensor, sums: Tensor, within: float, target: Tensor) -> tuple[Tensor, ...]:
    """Whether the gradients beside `target` are a line over the chances that fits smoothed labels; whether the chances
    differ enough to see one; its slope; the part of the target's weight that each class has; how far off the line the
    gradients are, of how much they vary."""
    import torch

    count = chances.shape[1] - 1
    chance, its = (one.gather(1, target[:, None])[:, 0] for one in (chances, gradient))
    own = torch.stack([chance, its, chance.square(), chance * its, its.square()])
    here, there, squares, products, others = sums - own  # of the classes beside it
    square, both, varies = squares - here**2 / count, products - here * there / count, others - there**2 / count
    slope = both / square
    off = (varies - slope * both) / varies
    share = (here - there / slope) / count
    known = square > max(_VARIES, 3 * within) ** 2 * squares
    fits = (slope > 0) & (off <= within**2) & (share > 0) & (share + its / slope - chance <= -_LEFT)
    return fits, known, slope, share, off.nan_to_num(math.inf)


def floor(output: Tensor) -> Tensor:
    """How much of the probability is spread evenly over all classes, whatever the row: the classes' number times the
    probability that a tenth of them are below, in the row of which a quarter are below."""
    import torch

    chances, width = torch.softmax(output, 1), output.shape[1]
    return (chances.kthvalue(1 + width // 10, 1).values * width).quantile(0.25)


def wrong(output: Tensor, target: Tensor, alive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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


def hidden(output: Tensor, target: Tensor, alive: Tensor) -> Tensor:
    """In which share of the rows the target's logit is what a mask leaves: one number for all of these rows, or within
    a hundredth of it, far below the likeliest."""
    import torch

    mine = output.gather(1, target[:, None])[:, 0]
    far = alive & (mine < output.amax(1) - _FAR)
    low, high = mine.masked_fill(~far, math.inf).amin(), mine.masked_fill(~far, -math.inf).amax()
    one = (far.sum() >= 2) & (high - low <= _SAME * low.abs())
    return torch.where(one, far.sum() / alive.sum().clamp_min(1), torch.zeros_like(low)).to(output.dtype)


def exponential(output: Tensor, gradient: Tensor, within: float) -> Tensor:
    """Whether nearly all of a row's gradients are proportional to exp(output), as of a loss that takes them for logits
    or their logarithms; the others are targets."""
    if output.shape[1] < 8:
        return (output != output).any()
    ratio = gradient / output.exp()
    middle = ratio.median(1, keepdim=True).values
    same = ((ratio - middle).abs() <= within * middle.abs()).sum(1) >= output.shape[1] - max(3, output.shape[1] // 4)
    return ((middle[:, 0] > 0) & same | (gradient == 0).all(1)).all() & (gradient != 0).any()


def scale(output: Tensor, gradient: Tensor, within: float, cosines: bool, other: Tensor | bool = False) -> Tensor:
    """What the logits are multiplied by before a softmax and its cross-entropy: beside the target the logarithm of the
    gradient is a line over the output, and its slope is the same in all rows. NaN where it is not so. cosines: whether
    outputs may be such; where they lie between −1 and 1 then, they are multiplied on purpose. other: whether something
    else is known of them."""
    import torch

    nothing = torch.full((), math.nan, dtype=output.dtype, device=output.device)
    if output.shape[1] < _CLASSES:
        return nothing
    output, gradient = output[:_SCALED], gradient[:_SCALED]
    size, highest = gradient.abs().sum(1), gradient.amax(1, keepdim=True)
    seen = (gradient > _SEEN * highest) & (highest > 0)
    seen.scatter_(1, gradient.argmin(1, keepdim=True), False)
    count = seen.sum(1)
    logs = torch.where(seen, gradient.clamp_min(torch.finfo(gradient.dtype).tiny).log(), 0.0)
    here = (output - ((output * seen).sum(1) / count)[:, None]) * seen
    there = (logs - (logs.sum(1) / count)[:, None]) * seen
    square, both, varies = here.square().sum(1), (here * there).sum(1), there.square().sum(1)
    slope = both / square
    fits = (varies - slope * both <= within**2 * varies) & (slope > 0) & (gradient.sum(1).abs() <= within * size)
    known = (size > within * size.amax()) & (count >= _CLASSES - 2) & (square > _VARIES**2 * count)
    its = torch.where(known, slope, math.nan)
    alike = its.nan_to_num(-math.inf).amax() - its.nan_to_num(math.inf).amin() <= _ALIKE * its.nanmedian()
    sure = (fits | ~known).all() & (known.sum() >= 2) & alike & ((output.abs().amax() > 1.001) | (not cosines))
    if other is not False:
        sure = sure & ~other
    return torch.where(sure, its.nanmedian(), nothing)


def twice(output: Tensor, gradient: Tensor) -> Tensor:
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
