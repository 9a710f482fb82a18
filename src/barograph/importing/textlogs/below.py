"""Numbers that stand alone below a line that says an epoch, as text that names them.

In:   `Epoch 3` and right below it `0.4181`, again and again, and nothing that says what the number is.
Out:  `loss: 0.4181`, where these numbers fall as an accuracy does not.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.core.patterns import expression

_PAIR = expression(
    rb"(?im)^([^\w\n]{0,8}epoch[^\w\n]{1,4}\d{1,7}(?:/\d{1,7})?[^\w\n]{0,8}\n[ \t]{0,8})"
    rb"(\d{1,6}\.\d{3,20}(?:e[-+]?\d{1,3})?|nan|inf)(?=[ \t]{0,8}\r?$)"
)
_ENOUGH = 5  # numbers that decide
_FALLEN = 0.7  # of the first ones: what falls that far is a loss


def named(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which such numbers have a name; own: whether they were losses before."""
    if b"poch" not in text and b"POCH" not in text:
        return text
    if "bare" not in own:
        values = [float(found[2]) for found in _PAIR.finditer(text)]
        finite = [value for value in values if value < float("inf")]
        if len(finite) < _ENOUGH:
            return text
        third = max(len(finite) // 3, 1)
        early, late = sum(finite[:third]), sum(finite[-third:])
        own["bare"] = late < _FALLEN * early
    return _PAIR.sub(_with_name, text) if own["bare"] else text


def _with_name(found: re.Match[bytes]) -> bytes:
    return found[1] + b"loss: " + found[2]
