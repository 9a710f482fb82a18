"""Means of an epoch and of an evaluation below their rows, in the words of these.

In:   `Averaged stats: lr: 0.0001  loss: 0.84 (0.91)` below `Epoch: [3]  [389/390]  eta: 0:00:00  lr: 0.0001  loss: …`,
      and below `Test:  [49/50]  eta: 0:00:00  loss: …`; words may say of what, as in `[Val] averaged stats: …`.
Out:  `averaged_loss: 0.91`, and `val loss: 0.91` of an evaluation: the mean in brackets, where there is one. What the
      rows say, rates and scales, is left out, and so are means that are NaN, as of norms where some overflowed.
"""

from __future__ import annotations

import re
from typing import Any

from barograph.core.patterns import expression

_SAID = b"veraged stats: "
_ROW = b" eta: "
_LINE = expression(rb"(?m)^(.*?)\b[Aa]veraged stats: +(\S.*)$")
_OF_DATA = expression(rb"(?i)(?:^|[^a-z])(?:val(?:id(?:ation)?)?|test|eval(?:uation)?|dev)(?![a-z_])")
_OF_TRAINING = expression(rb"(?i)(?:^|[^a-z])train(?:ing)?(?![a-z_])")
_WORD = expression(rb"(?i)\[?\b[a-z]+\]?:? *$")
_PAIR = expression(rb"(?<![\w@/.-])([A-Za-z][\w@/.-]*): (\S+)(?: \(([^\s()]+)\))?(?=[\s*]|$)")
_NO_NUMBER = expression(rb"(?i)[-+]?(?:nan|inf)")
_SETTING = expression(rb"(?i)(?:.*_)?(?:lr|scale|decay|momentum|min|max|time|data|mem)")


def stats(text: bytes, own: dict[str, Any]) -> bytes:
    """Text with such means under names of their own; own["averaged"]: whether the last row was an evaluation's."""
    result, done = list[bytes](), 0
    for found in _LINE.finditer(text) if _SAID in text else ():
        _note_row(text, done, found.start(), own)
        result += [text[done : found.start()], _named(found, bool(own.get("averaged")))]
        done = found.end()
    _note_row(text, done, len(text), own)
    return b"".join([*result, text[done:]]) if result else text


def _note_row(text: bytes, begin: int, end: int, own: dict[str, Any]) -> None:
    """Keeps whether the last row of a stretch of text is an evaluation's, by what stands ahead of its count."""
    at = text.rfind(_ROW, begin, end)
    if at >= 0:
        line = text[max(begin, text.rfind(b"\n", begin, at) + 1) : at]
        own["averaged"] = bool(_OF_DATA.search(line.partition(b"Epoch")[0]))


def _named(found: re.Match[bytes], evaluated: bool) -> bytes:
    ahead, said = found[1], found[2]
    pairs = [pair for pair in _PAIR.findall(said) if not _SETTING.fullmatch(pair[0])]
    if not pairs:
        return found[0]
    word = ahead[at.start() :] if (at := _WORD.search(ahead)) else b""
    evaluated = bool(_OF_DATA.search(word)) or (evaluated and not _OF_TRAINING.search(word))
    words = [
        b"%s: %s" % (name if evaluated else b"averaged_" + name, mean or value)
        for name, value, mean in pairs
        if not _NO_NUMBER.fullmatch(mean)
    ]
    return _WORD.sub(b"", ahead) + b"val stats: " * evaluated + b"  ".join(words)
