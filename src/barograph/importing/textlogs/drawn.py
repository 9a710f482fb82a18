"""Rows of a bar that counts the data of an epoch and does not say the epoch, as rows that do.

In:   `train: [████▌   ] data=0000400/0000800 loss=2.31±0.01`, and `val:   […] data=0000060/0000060 loss=2.4±0.04`.
Out:  `train: epoch 2 batch 400/800 loss=2.31±0.01`, `val: epoch 2 batch 60/60 loss=2.4±0.04`.

A count of the training's that does not rise is of the next epoch; of another launch if it stopped in its middle.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.core.patterns import expression

_BAR = expression(rb"(?m)^(train|val): {1,4}\[[^\]\n\d]{0,60}\] data=(\d{7,12})/(\d{7,12})(?= )")


def with_epochs(text: bytes, own: dict[str, Any]) -> bytes:
    """A text whose rows say their epochs; own: the last one, and how far it has come."""
    if b"] data=0" not in text:
        return text
    place = own.setdefault("drawn", [1, 0])

    def said(found: re.Match[bytes]) -> bytes:
        data, count, length = found[1], int(found[2]), int(found[3])
        if data == b"train":
            if count <= place[1]:
                place[0] = place[0] + 1 if place[1] == length else 1
            place[1] = count
        return b"%s: epoch %d batch %d/%d" % (data, place[0], count, length)

    return _BAR.sub(said, text)
