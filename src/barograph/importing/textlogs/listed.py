"""Names in one list and their values in another, as text that says each name and its value.

In:   `['loss', 'acc_top1'] = [2.31, 0.4]`, `['loss']=[nan]`.
Out:  `loss: 2.31, acc_top1: 0.4`, `loss: nan`; lists of other lengths as they are.
"""

from __future__ import annotations

import re

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms

_LISTS = expression(
    rb"(?<![\w.\]])\[((?:(['\"])[A-Za-z][\w./ -]{0,40}\2(?:, ?)?){1,12})\]\s?=\s?\[\s?("
    + forms.NUMBER
    + rb"(?:[,\s]\s{0,8}"
    + forms.NUMBER
    + rb"){0,11})\s?\]"
)
_NAME = expression(rb"[^'\",]{1,42}(?=['\"])")


def named(text: bytes) -> bytes:
    """A text in which such values have their names."""
    return _LISTS.sub(_pairs, text) if b"'] = [" in text or b"']=[" in text or b'"] = [' in text else text


def _pairs(found: re.Match[bytes]) -> bytes:
    names = [name for name in _NAME.findall(found[1]) if name.strip()]
    values = found[3].replace(b",", b" ").split()
    if len(names) != len(values):
        return found[0]
    return b", ".join(b"%s: %s" % pair for pair in zip(names, values, strict=True))
