"""Padding at the end of rows of tokens, told from the tokens alone.

In:   a batch of tokens [rows, places]; records of several numbers a place are made such first.
Out:  which places are padding, and whether that is sure; whether something else says where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_LONG = 3  # times the same token at a row's end


def tails(tokens: Any) -> tuple[Any, Any]:
    """Which places are padding, and whether that is sure.

    Padding is one token, three times or more at the end of several rows, of different lengths. No other token ends a
    row so, and it stands nowhere else twice in a row: a policy writes the same token over and over anywhere.
    """
    last = tokens[:, -1:]
    tail = (tokens.flip(1) == last).long().cumprod(1).flip(1).bool()
    size = tail.sum(1, keepdim=True)
    padding = tokens[:, -1].index_select(0, size.argmax().reshape(1))[0]  # an index of one number waits for the device
    of_it = last == padding
    sizes, long = size * of_it, size >= _LONG
    elsewhere = (tokens == padding) & ~tail
    sure = ((long & of_it).sum() >= 2) & ~(long & ~of_it).any() & (sizes.max() > sizes.min())
    sure = sure & ~(elsewhere[:, 1:] & elsewhere[:, :-1]).any()
    return tail & of_it & long, sure


def places_of(records: Any) -> Any:
    """Of records [rows, places, numbers] what `tails` takes for tokens [rows, places]: 0 where all numbers are those at
    the end of the row that ends with most alike places; else another number in each place."""
    import torch

    alike = (records == records[:, -1:]).all(2)
    size = alike.flip(1).long().cumprod(1).sum(1)
    padding = records[:, -1].index_select(0, size.argmax().reshape(1))[:, None]
    place = torch.arange(1, records.shape[1] + 1, device=records.device)
    return torch.where((records == padding).all(2), 0, place)


def ends(tokens: Any, padding: int) -> tuple[Any, Any]:
    """Which places are padding, of this token at a row's beginning or end, and whether there are such places and
    others."""
    of_it = (tokens == padding).long()
    found = of_it.cumprod(1).bool() | of_it.flip(1).cumprod(1).flip(1).bool()
    return found, found.any() & ~found.all()


def is_given(tail: Any, others: Sequence[Any]) -> Any:
    """Whether one of the other tensors that a model is given says where padding is [rows, places]: the rows' lengths,
    or a mask that has one number at padding and another elsewhere."""
    import torch

    padded, found = tail.any(1), torch.zeros((), dtype=torch.bool, device=tail.device)
    first = tail.long().argmax(1)
    for one in others:
        if one.shape == padded.shape and not one.is_floating_point():
            found = found | (((one.to(tail.device) - first).abs() <= 1) | ~padded).all()
        elif one.shape == tail.shape:
            number = one.to(tail.device).float()
            # rows without padding for sure may have some, of one or two places
            inside, sure = ~tail & padded[:, None], tail & padded[:, None]
            low, high = (torch.where(sure, number, away) for away in (float("inf"), -float("inf")))
            others_low, others_high = (torch.where(inside, number, away) for away in (float("inf"), -float("inf")))
            one_each = (low.amin() == high.amax()) & (others_low.amin() == others_high.amax())
            found = found | (one_each & (low.amin() != others_low.amin()))
    return found
