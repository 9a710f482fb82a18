"""What an average of the weights leaves as it was, though the trained weights have gone elsewhere.

In:   some elements of some parameters, small ones above all, of the copy that evaluations are made with, and of what is
      trained: at this evaluation, and at the one before.
Out:  figures beside those of the evaluation. Nothing waits.

An average takes one share of the way to the trained weights, in all elements alike. Where that share of an element's
way is twice the last place of bfloat16 or more, at both evaluations and to the same side, it has to move: in an average
that is kept in full, and in one that is rounded for the evaluation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from torch import Tensor

_SMALL, _LARGE, _ELEMENTS = 12, 4, 64  # vectors, and larger parameters; elements of each
_PLACES = 2.0**-6  # of an element's size, that it has to go: twice the last place of bfloat16
_ENOUGH = 4  # elements that have to move, of a parameter none of whose elements does
_FINE = 0.8  # of a large parameter's elements, that are all different: numbers of 8 bits or fewer are alike more often
NAMES = ("due", "left", "left_parameters", "half")


def paths_of(model: Any) -> list[str]:
    """The trained parameters that are looked at."""
    held = [(path, item) for path, item in model.named_parameters() if item.requires_grad and mesh_of(item) is None]
    found: list[str] = []
    for most, some in ((_SMALL, [path for path, item in held if item.dim() < 2]),
                       (_LARGE, [path for path, item in held if item.dim() > 1])):  # fmt: skip
        count = min(most, len(some))
        found += [some[at * (len(some) - 1) // max(1, count - 1)] for at in range(count)]
    return found


def sample(model: Any, paths: Sequence[str], item: Callable[[Any, str], Any], home: Any) -> Tensor:
    """Some elements of each parameter [p, n], on this device."""
    import torch

    rows = []
    for path in paths:
        flat = item(model, path).detach().reshape(-1)
        some = flat[:: max(1, len(flat) // _ELEMENTS)][:_ELEMENTS].float().to(home)
        rows.append(torch.nn.functional.pad(some, (0, _ELEMENTS - len(some))))
    return torch.stack(rows) if rows else torch.zeros(0, _ELEMENTS, device=home)


def figures(evaluated: Tensor, trained: Tensor, share: Tensor) -> Tensor:
    """`due`: how many elements have to move, of parameters some of whose elements did; `left`: what share of these is
    what it was, to the last bit; `left_parameters`: how many parameters are what they were, though four of their
    elements or more have to move; `half`: whether what is evaluated is of sixteen bits.

    evaluated, trained: [2, p, n], at the evaluation before and at this one. share: of the way to the trained weights,
    that the average has gone in between.
    """
    import torch

    way = trained - evaluated
    least, size = way.abs().amin(0), evaluated.abs().amax(0)
    due = (way[0] * way[1] > 0) & (share.clamp(0.0, 1.0) * least >= _PLACES * size)
    same = evaluated[0] == evaluated[1]
    whole = same.all(1)
    counts = (due & ~whole[:, None]).sum()
    left = (due & same & ~whole[:, None]).sum() / counts.clamp_min(1)
    whole &= due.sum(1) >= _ENOUGH
    return torch.stack([one.float() for one in (counts, left, whole.sum(), _is_half(evaluated[1]))])


def _is_half(rows: Tensor) -> Tensor:
    """Whether numbers are of sixteen bits, and no fewer."""
    line = rows.sort(1).values
    fine = (line[:, 1:] != line[:, :-1]).float().mean(1).amax() >= _FINE
    return fine & ((rows.bfloat16().float() == rows).all() | (rows.half().float() == rows).all())
