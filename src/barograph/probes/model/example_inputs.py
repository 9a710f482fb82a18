"""Which inputs of a pass tell its examples apart.

In:   the tensors that a model is given, with a row an example.
Out:  those of them by which examples are known again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barograph.probes.model.parameters import mesh_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_VIEWED = 3  # dimensions of views, as of pictures and sounds of several channels


def example_inputs(tensors: Sequence[Tensor]) -> tuple[Tensor | None, Tensor | None]:
    """The input that tells examples apart: the first of tokens, else of numbers, with rows of several elements.

    Of tokens with numbers beside them, as captions with images, both: many images have one caption. Of the features of
    a whole graph, with the nodes that are asked for beside them, those of these nodes.
    """
    rows = [one for one in tensors if one.dim() >= 2 and len(one) >= 4 and mesh_of(one) is None]
    rows = [one for one in rows if one.device.type != "mps"]  # which has no whole numbers of 64 bits in full
    tokens = [one for one in rows if not one.is_floating_point() and one.dim() == 2 and one.shape[1] >= 4]
    numbers = [one for one in rows if one.is_floating_point()]
    if not tokens:
        return (_named(numbers[0], tensors) if numbers else None), None
    return tokens[0], next((one for one in numbers if len(one) == len(tokens[0])), None)


def _named(numbers: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """The rows that whole numbers beside them name, fewer than there are; all rows where nothing does. Numbers that
    begin with 0 and never fall are offsets, as of texts that lie one behind the other, and name none: on a device, of
    which nothing is asked, as many of the first rows stand for all then."""
    import torch

    whole = (one for one in tensors if one.dim() == 1 and one.dtype in (torch.int32, torch.int64))
    whole = (one for one in whole if 4 <= len(one) < len(numbers) and mesh_of(one) is None)
    named = next((one for one in whole if one.device == numbers.device), None)
    if named is None or numbers.dim() != 2:
        return numbers
    offsets = (named[0] == 0) & (named[1:] >= named[:-1]).all()
    if named.device.type == "cpu" and bool(offsets):
        return numbers
    order = torch.arange(len(named), device=named.device, dtype=named.dtype)
    return numbers.index_select(0, torch.where(offsets, order, named).clamp(0, len(numbers) - 1))


def other_tokens(tensors: Sequence[Tensor], first: Tensor) -> Tensor | None:
    """Other tokens of the same examples, as the answers of questions."""
    others = [one for one in tensors if one is not first and one.dim() == 2 and not one.is_floating_point()]
    return next((one for one in others if len(one) == len(first) and one.shape[1] >= 4 and mesh_of(one) is None), None)


def numbers_of_rows(tensors: Sequence[Tensor]) -> Tensor | None:
    """A number a row, as users are given by theirs, beside nothing."""
    import torch

    rows = [one for one in tensors if one.numel() == len(one) >= 4 and mesh_of(one) is None] if tensors else []
    rows = [one for one in rows if one.device.type != "mps"]
    return torch.stack([rows[0].flatten(), torch.zeros_like(rows[0].flatten())], 1) if rows else None


def second_view(tensors: Sequence[Tensor], first: Tensor) -> Tensor | None:
    """Of two inputs of one pass that are rows of numbers of the same sizes, as two views of examples, the other one."""
    numbers = [one for one in tensors if one.is_floating_point() and one.shape == first.shape and mesh_of(one) is None]
    both = len(numbers) == 2 and numbers[0] is first and first.dim() >= _VIEWED
    return numbers[1] if both else None
