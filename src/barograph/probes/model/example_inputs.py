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

    Of tokens with numbers beside them, as captions with images, both: many images have one caption.
    """
    rows = [one for one in tensors if one.dim() >= 2 and len(one) >= 4 and mesh_of(one) is None]
    rows = [one for one in rows if one.device.type != "mps"]  # which has no whole numbers of 64 bits in full
    tokens = [one for one in rows if not one.is_floating_point() and one.dim() == 2 and one.shape[1] >= 4]
    numbers = [one for one in rows if one.is_floating_point()]
    if not tokens:
        return next(iter(numbers), None), None
    return tokens[0], next((one for one in numbers if len(one) == len(tokens[0])), None)


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
