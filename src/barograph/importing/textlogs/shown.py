"""Values as an interpreter shows them, as names with values behind them.

In:   `('Epoch:', 3, 'loss:', 2.31)`, as Python 2 prints several things; `loss(x, y) = 2.31f0`, as Julia shows a call.
Out:  `Epoch: 3 loss: 2.31`; `loss = 2.31f0`.
"""

from __future__ import annotations

import re

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms

_TEXT = rb"[ub]?(?:'[^'\n]{0,80}'|\"[^\"\n]{0,80}\")"
_ITEM = expression(rb"(" + _TEXT + rb")|(" + forms.NUMBER + rb"|\w{1,20}\([^()\n]{0,80}\)|None|True|False)")
_TUPLE = expression(
    rb"\s{0,4}\((?=[^\n]{0,400}[A-Za-z])(?:" + _ITEM.pattern + rb")(?:, (?:" + _ITEM.pattern + rb")){1,40},?\)\s{0,4}$"
)
_PAIRS = expression(rb"\((['\"])([A-Za-z][\w ./-]{0,40})\1, (" + forms.NUMBER + rb")\)")  # `[('loss', 2.31), …]`
_CALL = expression(  # of what is trained, on some of the data
    rb"(?<![\w.])((?i:(?:[a-z]{1,20}_){0,2}(?:loss|accuracy|acc|cost|mse)))\((?=[A-Za-z_])[\w\[\], .:;]{1,60}\)"
    rb"(?= = " + forms.NUMBER + rb")"
)
_OF_ALL = expression(
    rb"(?<=\d) (?:completed|finished|done) out of \d{1,9}(?= )"
)  # `Epoch 3 completed out of 10 loss: 2.31`
_ESCAPED = expression(rb"\\[tn]")


def as_text(line: bytes) -> bytes:
    """A line without the marks that an interpreter writes around values and names."""
    if b"('" in line or b'("' in line or b"(u'" in line:
        if _TUPLE.match(line):
            return _OF_ALL.sub(b"", b" ".join(map(_bare, _ITEM.finditer(line))))
        return _PAIRS.sub(rb"\2: \3", line)
    return _CALL.sub(rb"\1", line) if b") = " in line else line


def _bare(found: re.Match[bytes]) -> bytes:
    """A text without its quotes, any other value as it is."""
    if found[1] is None:
        return found[2]
    return _ESCAPED.sub(b" ", found[1].lstrip(b"ub")[1:-1])
