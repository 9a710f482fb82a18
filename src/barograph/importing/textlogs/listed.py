"""Names in one list and their values in another, as text that says each name and its value; lists of texts.

In:   `['loss', 'acc_top1'] = [2.31, 0.4]`, `['loss']=[nan]`; `task: ['car'], loss: 2.31, parts: ['0.4', '0.2']`.
Out:  `loss: 2.31, acc_top1: 0.4`, `loss: nan`; lists of other lengths as they are; `task: [car], loss: 2.31, parts:
      [0.4, 0.2]`.
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
_TEXTS = expression(rb"(?<=[:=] )\[(['\"])[^'\"\n\[\]]{1,60}\1(?:, \1[^'\"\n\[\]]{1,60}\1){0,63}\]")
_LOSS = expression(rb"(?i)loss['\"]?\s?[:=]\s{0,4}[-+]?(?:\d|nan|inf)")
_QUOTES = b"'\""
_WIDEST = 4000  # bytes of a line
_NAME = expression(rb"[^'\",]{1,42}(?=['\"])")


def named(text: bytes) -> bytes:
    """A text in which such values have their names."""
    text = _LISTS.sub(_pairs, text) if b"'] = [" in text or b"']=[" in text or b'"] = [' in text else text
    if b" ['" not in text and b' ["' not in text:
        return text
    return b"\n".join(map(_unquoted, text.split(b"\n")))


def _unquoted(line: bytes) -> bytes:
    """A line with a loss whose lists of texts have no quotes, but for dictionaries and what is longer than a row."""
    if (b" ['" not in line and b' ["' not in line) or b"{" in line or len(line) > _WIDEST or not _LOSS.search(line):
        return line
    return _TEXTS.sub(lambda found: found[0].translate(None, _QUOTES), line)


def _pairs(found: re.Match[bytes]) -> bytes:
    names = [name for name in _NAME.findall(found[1]) if name.strip()]
    values = found[3].replace(b",", b" ").split()
    if len(names) != len(values):
        return found[0]
    return b", ".join(b"%s: %s" % pair for pair in zip(names, values, strict=True))
