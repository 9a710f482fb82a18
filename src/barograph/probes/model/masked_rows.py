"""Texts beneath their masks: which they are, and which places are hidden, as tokens and the gradient of outputs show.

In:   tokens that a model is given, and the gradient of its output, where a softmax and its cross-entropy follow.
Out:  figures for the `model` record, computed on the device from some rows; nothing waits.

Where at most half of the places have a target, and most of those that have one hold the same token, which is another
one than their target, that token hides them. With the targets in their place the text is whole again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barograph.probes.model import texts
from barograph.probes.model.noising import whole

if TYPE_CHECKING:
    from torch import Tensor

_MASKED = ("hidden_places", "hidden_share", "text_mark")
TEXTS = texts.FIGURES + _MASKED
_ROWS, _ELEMENTS = 64, 1 << 22  # that are looked at, at most
_PLACES = 52  # of a text: a double holds whole numbers of as many bits
_MOST = 0.5  # of all places, that have a target; and of these, that hold the same token, at least


def with_masked(said: Mapping[str, Tensor], tokens: Tensor, gradient: Tensor, follows: Tensor) -> Tensor:
    """`TEXTS`: figures of texts, and those of `of_masked`."""
    import torch

    more = of_masked(tokens, gradient, follows)
    return torch.cat([torch.stack([said[name].to(more.dtype) for name in texts.FIGURES]), more])


def of_masked(tokens: Tensor, gradient: Tensor, follows: Tensor) -> Tensor:
    """Which of the first places are hidden in any row, as the bits of a whole number; their share; and a number that is
    the same for two batches of the same texts in the same order. NaN where nothing is hidden, and where outputs are of
    other texts than the first input. gradient: [rows, places, classes]."""
    import torch

    if tokens.shape[1] != gradient.shape[1] or len(tokens) > len(gradient):
        return torch.full((len(_MASKED),), math.nan, device=gradient.device)
    rows = max(1, min(_ROWS, _ELEMENTS // (_PLACES * gradient.shape[2])))
    given, part = tokens[:rows, :_PLACES], gradient[:rows, :_PLACES].float()
    least, target = part.min(-1)
    alive = least < 0
    count = alive.sum()
    held = torch.where(alive, given, torch.iinfo(given.dtype).max).flatten().sort().values
    usual = held[(count // 2).clamp_max(len(held) - 1)]  # what more than half of them hold
    same = ((given == usual) & alive & (target != given)).sum()
    hidden = follows & (count > 0) & (count <= _MOST * alive.numel()) & (same > _MOST * count)
    wide = torch.float32 if part.device.type == "mps" else torch.float64
    places = alive.any(0).to(wide)
    text = whole(torch.where(alive, target, given).to(part.dtype)).to(wide)
    bits = (places * 2.0 ** torch.arange(len(places), device=part.device, dtype=wide)).sum()
    found = torch.stack([bits, places.mean(), text])
    return torch.where(hidden, found, torch.full_like(found, math.nan))
